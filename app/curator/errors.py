"""Refusals of the protocol. Each depends on public facts and recorded outcomes only."""

from __future__ import annotations

from app.declarations.errors import CuratorError


class PlanInfeasible(CuratorError):
    """No parameters keep the promise that was asked for; the extras say what would."""

    code = "plan-infeasible"


class UpdatesExhausted(CuratorError):
    """A best-effort session has used all its updates."""

    code = "updates-exhausted"


class QueriesExhausted(CuratorError):
    """A session has answered as many queries as its plan allows."""

    code = "queries-exhausted"


class SessionClosed(CuratorError):
    """A closed session answers nothing."""

    code = "session-closed"
