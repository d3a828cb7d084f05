"""What is told of releases: the ways to have a workload answered, and where one stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self, cast

from curator_client.errors import ProtocolError, Refused, refusal
from curator_client.models import JSON, Plan, need
from curator_client.progress import line
from curator_client.proofs.nesting import parse_bounded

#: How a workload is released; ``auto`` leaves it to the service.
Method = Literal[
    "auto",
    "histogram",
    "gaussian",
    "projection",
    "factorization",
    "synthetic_table",
    "synthetic_graph",
    "iterative_construction",
]


@dataclass(frozen=True)
class Way:
    """One way to have a workload answered: a method of releases, or a mechanism of sessions.

    ``root_mean_square`` and ``largest`` are the errors to expect, in counts, None where none are foretold; ``basis``
    says how they are meant. ``expected_seconds`` is what the work on a release takes, about. Where there is no plan,
    ``problem`` says why.
    """

    name: str
    interactive: bool
    root_mean_square: float | None
    largest: float | None
    basis: str | None
    problem: Refused | None
    expected_seconds: float | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From one of the methods in the reply to ``POST /v1/plans`` with a workload."""
        interactive, expected = "mechanism" in reply, reply.get("expected")
        seconds = reply.get("expected_seconds")
        return cls(
            name=str(need(reply, "mechanism" if interactive else "method")),
            interactive=interactive,
            root_mean_square=None if expected is None else float(need(expected, "root_mean_square")),
            largest=None if expected is None else float(need(expected, "largest")),
            basis=None if expected is None else str(need(expected, "basis")),
            problem=refusal(reply["problem"], 422) if "problem" in reply else None,
            expected_seconds=None if seconds is None else float(seconds),
            raw=dict(reply),
        )


class WorkloadPlan(list[Way]):
    """All ways to have a workload answered, best first.

    Attributes:
        best: the method of releases that is expected to err least, None where there is none.
        raw: the reply as it came.
    """

    best: str | None
    raw: JSON

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/plans`` with a workload."""
        methods, best = need(reply, "methods"), need(reply, "best")
        if not isinstance(methods, list):
            raise ProtocolError("methods is not a list")
        plan = cls(map(Way.parse, methods))
        plan.best, plan.raw = None if best is None else str(best), dict(reply)
        return plan


@dataclass(frozen=True)
class ReleaseState:
    """Where a release stands.

    ``status`` is queued, running, done, failed or cancelled; ``step`` and ``progress``, from 0 to 1, tell how far it
    is, ``expected_seconds`` about how long the work takes. ``cost`` has what it holds and has spent; ``result`` tells
    what came of it, ``problem`` why nothing did.
    """

    id: str
    dataset: str
    method: str
    workload: JSON
    status: str
    step: str
    progress: float
    cost: JSON
    plan: Plan
    result: JSON | None
    problem: Refused | None
    expected_seconds: float
    raw: JSON = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("done", "failed", "cancelled")

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From any reply, or event, that describes a release."""
        problem = need(reply, "problem")
        return cls(
            id=str(need(reply, "id")),
            dataset=str(need(reply, "dataset")),
            method=str(need(reply, "method")),
            workload=cast(JSON, need(reply, "workload")),
            status=str(need(reply, "status")),
            step=str(need(reply, "step")),
            progress=float(need(reply, "progress")),
            cost=cast(JSON, need(reply, "cost")),
            plan=Plan.parse(need(reply, "plan")),
            result=need(reply, "result"),
            problem=None if problem is None else refusal(problem, int(problem.get("status", 0))),
            expected_seconds=float(need(reply, "expected_seconds")),
            raw=dict(reply),
        )


def state_in(event: str) -> ReleaseState | None:
    """The state that a line of a stream of server-sent events tells; None where it tells none.

    Raises:
        ProtocolError: when it is not JSON, or no state.
    """
    if not event.startswith("data:"):
        return None
    try:
        told = parse_bounded(event[len("data:") :].encode())
    except ValueError:
        raise ProtocolError("an event is not JSON") from None
    return ReleaseState.parse(told)


def show_state(state: ReleaseState) -> None:
    """Show a state as one line."""
    told = state.status if state.ended or state.status == "queued" else f"{state.step} {state.progress:.0%}"
    line(told, last=state.ended)
