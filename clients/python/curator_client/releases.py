"""Releases for workloads known in advance: asked for, followed to their end, and read as tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import quote, urlencode

from curator_client.calls import MOST_DATA, Call
from curator_client.errors import ProtocolError, Refused, Unreachable, refusal
from curator_client.extras import extra
from curator_client.models import JSON, Plan, need
from curator_client.progress import line
from curator_client.proofs.nesting import parse_bounded

if TYPE_CHECKING:
    import pyarrow as pa

    from curator_client._http import Transport

ARROW = "application/vnd.apache.arrow.stream"
#: What files are asked for as, by their endings.
FORMATS = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": ARROW,
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
#: Seconds after which a stream that has ended early is asked for again, and for which the service may be away.
AGAIN_SECONDS, AWAY_SECONDS = 1.0, 60.0
#: Seconds in which a line of a stream of events must be whole.
EVENT_SECONDS = 60.0


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
        )


@dataclass(frozen=True)
class WorkloadPlan:
    """All ways to have a workload answered, best first; ``best`` is the method that is expected to err least."""

    ways: tuple[Way, ...]
    best: str | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/plans`` with a workload."""
        methods = need(reply, "methods")
        if not isinstance(methods, list):
            raise ProtocolError("methods is not a list")
        best = need(reply, "best")
        return cls(tuple(map(Way.parse, methods)), None if best is None else str(best), reply)


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


class Release:
    """One release, as :meth:`Curator.release` asks for it.

    Attributes:
        state: where it stood when this client heard of it last.
    """

    def __init__(self, transport: Transport, state: ReleaseState) -> None:
        self._transport, self.state = transport, state
        self._path = f"/v1/releases/{quote(state.id, safe='')}"

    @property
    def id(self) -> str:
        """Its id, and that of the session which has its transcript."""
        return self.state.id

    @property
    def plan(self) -> Plan:
        """The measurements for it, and their cost."""
        return self.state.plan

    @property
    def status(self) -> str:
        """Where it stands now, asked of the service: queued, running, done, failed or cancelled."""
        return self.refresh().status

    def refresh(self) -> ReleaseState:
        """Ask where it stands now."""
        self.state = ReleaseState.parse(self._transport.json(Call("GET", self._path)))
        return self.state

    def events(self) -> Iterator[ReleaseState]:
        """Its state now and whenever that changes, up to the end.

        A stream that breaks, as when the server is replaced, is asked for again; a state may then be told twice.

        Raises:
            Unreachable: when the service is away for :data:`AWAY_SECONDS`.
        """
        heard = time.monotonic()
        while True:
            with suppress(Unreachable):
                for state in _states(self._transport.lines(Call("GET", f"{self._path}/events"), EVENT_SECONDS)):
                    heard, self.state = time.monotonic(), state
                    yield state
                    if state.ended:
                        return
            if time.monotonic() > heard + AWAY_SECONDS:
                raise Unreachable("the stream of events broke, and did not come again")
            time.sleep(AGAIN_SECONDS)

    def wait(self, progress: Callable[[ReleaseState], None] | bool = False) -> Self:
        """Wait for its end.

        Args:
            progress: called with each state; True shows a line on standard error, where that is a terminal.

        Raises:
            Refused: when it failed, or was cancelled.
        """
        show = show_state if progress is True else progress
        for state in self.events():
            if callable(show):
                show(state)
        if self.state.status == "done":
            return self
        raise self.state.problem or Refused(
            "conflict", f"The release is {self.state.status}", 409, "nothing came of it"
        )

    def cancel(self) -> ReleaseState:
        """Cancel it, which is possible before noise is drawn; its share returns to the data set.

        Raises:
            Refused: ``conflict`` after that.
        """
        self.state = ReleaseState.parse(self._transport.json(Call("DELETE", self._path)))
        return self.state

    def answers(self) -> pa.Table:
        """The workload's answers: ``question``, a label an attribute, ``value`` and ``standard_error`` in counts."""
        return self._table("answers")

    def tables(self) -> list[pa.Table]:
        """The tables of a publication: labels, a whole ``value``, its ``standard_error``, ``low`` and ``high``."""
        count = int(need(cast(JSON, self.state.result), "tables"))
        return [self._table(f"table-{number + 1}") for number in range(count)]

    def manifest(self) -> JSON:
        """What a publication was made of, and the digests of its tables."""
        return cast(JSON, parse_bounded(self._data("manifest", "application/json")))

    def records(self) -> pa.Table:
        """Synthetic records: a row each, a column an attribute."""
        return self._table("records")

    def edges(self) -> pa.Table:
        """The edges of a synthetic graph."""
        return self._table("edges")

    def _table(self, part: str) -> pa.Table:
        return arrow_table(self._data(part, ARROW))

    def save(self, path: Path | str, part: str | None = None) -> Path:
        """Write what came of it to ``path``: as CSV, Parquet, Arrow or a workbook (.xlsx) by the ending.

        Args:
            path: where to write it.
            part: ``records``, ``edges``, ``answers``, ``tables``, or ``table-1`` and so on; the first that there is
                where none is named.

        Raises:
            ValueError: for another ending.
        """
        target = Path(path)
        if target.suffix not in FORMATS:
            raise ValueError(f"the name must end in {', '.join(FORMATS)}")
        target.write_bytes(self._data(part, FORMATS[target.suffix]))
        return target

    def _data(self, part: str | None, accept: str) -> bytes:
        query = "" if part is None else "?" + urlencode({"part": part})
        return self._transport.send(
            Call("GET", f"{self._path}/data{query}", {"Accept": accept}, most=MOST_DATA)
        ).content


def arrow_table(content: bytes) -> pa.Table:
    """The table of an Arrow stream.

    Raises:
        ProtocolError: when it is none.
    """
    pa = extra("arrow", "pyarrow")
    with suppress(pa.ArrowException, OSError), pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
        table.validate(full=True)
        return table
    raise ProtocolError("the reply is not a table")


def _states(lines: Iterator[str]) -> Iterator[ReleaseState]:
    """The states that a stream of server-sent events tells."""
    for each in lines:
        if each.startswith("data:"):
            try:
                told = parse_bounded(each[len("data:") :].encode())
            except ValueError:
                raise ProtocolError("an event is not JSON") from None
            yield ReleaseState.parse(told)


def show_state(state: ReleaseState) -> None:
    """Show a state as one line."""
    told = state.status if state.ended or state.status == "queued" else f"{state.step} {state.progress:.0%}"
    line(told, last=state.ended)
