"""The public states of sessions and releases, as replies have them."""

from __future__ import annotations

from typing import Any

import orjson

from app.curator.opening import Header
from app.services import spending
from app.services.ports import ReleaseRow, SessionRow


def session_view(row: SessionRow) -> dict[str, Any]:
    """A session's public state. Exact amounts are decimal strings at the ledger's order."""
    header = Header.read(row.header)
    plan = header.plan
    return {
        "id": row.id,
        "dataset": header.document["dataset"]["name"],
        "owner": row.owner,
        "mechanism": header.document["mechanism"],
        "plan": {**header.document["plan"], "bound_status": header.bound_status()},
        "status": row.status,
        "sequence": row.sequence,
        "queries_asked": row.queries_asked,
        "queries_left": None if plan.max_queries is None else plan.max_queries - row.queries_asked,
        "updates_used": row.updates_used,
        "updates_left": None if plan.max_updates is None else plan.max_updates - row.updates_used,
        **spending.share_view(row, plan),
        "head_hash": row.head_hash,
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        **({"dummy": True} if header.dummy else {}),
    }


def holder_view(row: SessionRow, asked_at: str | None = None) -> dict[str, Any]:
    """What a session holds and has spent, whose it is, since when, and when it was last asked; nothing of what."""
    header = Header.read(row.header)
    return {
        "id": row.id,
        "dataset": row.dataset,
        "owner": row.owner,
        "construction": header.document["mechanism"]["construction"],
        "status": row.status,
        "epsilon": float(header.plan.epsilon),
        "regime": header.plan.regime,
        **spending.share_view(row, header.plan),
        "queries_asked": row.queries_asked,
        "updates_used": row.updates_used,
        "opened_at": row.opened_at,
        "asked_at": asked_at,
        "closed_at": row.closed_at,
    }


def release_view(row: ReleaseRow, session: SessionRow) -> dict[str, Any]:
    """A release's public state; what it costs is what its session holds and has spent."""
    plan = Header.read(session.header).plan
    return {
        "id": row.id,
        "dataset": row.dataset,
        "owner": row.owner,
        **orjson.loads(row.request),
        "status": row.status,
        "step": row.step,
        "progress": row.progress,
        "expected_seconds": row.expected_seconds,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "cost": {"epsilon": float(plan.epsilon), **spending.share_view(session, plan)},
        "plan": Header.read(session.header).document["plan"],
        "result": None if row.result is None else orjson.loads(row.result),
        "problem": None if row.problem is None else orjson.loads(row.problem),
        "links": {
            "events": f"/v1/releases/{row.id}/events",
            "transcript": f"/v1/sessions/{row.id}/transcript",
            **({"data": f"/v1/releases/{row.id}/data"} if row.status == "done" else {}),
        },
    }
