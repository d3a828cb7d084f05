"""Releases for workloads known in advance: asked for, followed to their end, and read as tables."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlencode

from curator_client._async.waiting import sleep
from curator_client.calls import MOST_DATA, Call
from curator_client.errors import Refused, Unreachable
from curator_client.models import JSON, Plan, need
from curator_client.progress import Progress
from curator_client.proofs.nesting import parse_bounded
from curator_client.release_states import ReleaseState, show_state, state_in
from curator_client.requests import ARROW, CSV, PARQUET, XLSX, segment
from curator_client.tables import frame

if TYPE_CHECKING:
    import pandas

    from curator_client._async.http import Transport

#: What files are asked for as, by their endings.
FORMATS = {".csv": CSV, ".parquet": PARQUET, ".arrow": ARROW, ".xlsx": XLSX}
#: Seconds after which a stream that has ended early is asked for again, and for which the service may be away.
AGAIN_SECONDS, AWAY_SECONDS = 1.0, 60.0
#: Seconds in which a line of a stream of events must be whole.
EVENT_SECONDS = 60.0


class AsyncRelease:
    """One release, as :meth:`AsyncCurator.release` asks for it.

    Attributes:
        state: where it stood when this client heard of it last.
    """

    def __init__(self, transport: Transport, state: ReleaseState) -> None:
        self._transport, self.state = transport, state
        self._path = f"/v1/releases/{segment(state.id)}"

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
        """Where it stood when this client heard of it last: queued, running, done, failed or cancelled."""
        return self.state.status

    @property
    def progress(self) -> float:
        """How far it was then, from 0 to 1."""
        return self.state.progress

    @property
    def result(self) -> JSON | None:
        """What came of it, as far as is told without its data."""
        return self.state.result

    @property
    def raw(self) -> JSON:
        """The reply as it came."""
        return self.state.raw

    async def refresh(self) -> ReleaseState:
        """Ask where it stands now."""
        self.state = ReleaseState.parse(await self._transport.json(Call("GET", self._path)))
        return self.state

    async def events(self) -> AsyncIterator[ReleaseState]:
        """Its state now and whenever that changes, up to the end.

        A stream that breaks, as when the server is replaced, is asked for again; a state may then be told twice.

        Raises:
            Unreachable: when the service is away for :data:`AWAY_SECONDS`.
        """
        async for state in self._events(None):
            yield state

    async def _events(self, deadline: float | None) -> AsyncIterator[ReleaseState]:
        heard = time.monotonic()
        while True:
            left = EVENT_SECONDS if deadline is None else min(EVENT_SECONDS, max(0.0, deadline - time.monotonic()))
            with suppress(Unreachable):
                async for event in self._transport.lines(Call("GET", f"{self._path}/events"), left):
                    state = state_in(event)
                    if state is not None:
                        heard, self.state = time.monotonic(), state
                        yield state
                        if state.ended:
                            return
                    if deadline is not None and time.monotonic() >= deadline:
                        break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"release {self.id} is {self.state.status} still, and goes on")
            if time.monotonic() > heard + AWAY_SECONDS:
                raise Unreachable("the stream of events broke, and did not come again")
            pause = AGAIN_SECONDS if deadline is None else min(AGAIN_SECONDS, max(0.0, deadline - time.monotonic()))
            await sleep(pause)

    async def wait(self, *, timeout: float | None = None, progress: Progress = False) -> Self:
        """Wait for its end.

        Args:
            timeout: seconds after which it is no longer waited for; it goes on, and may be waited for again.
            progress: hears of per cent done, and of 100; True shows a line on standard error, where that is a terminal.

        Raises:
            Refused: when it failed, or was cancelled.
            TimeoutError: when it has not ended by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        async for state in self._events(deadline):
            if progress is True:
                show_state(state)
            elif callable(progress):
                progress(round(100 * state.progress), 100)
        if self.state.status == "done":
            return self
        raise self.state.problem or Refused(
            "conflict", f"The release is {self.state.status}", 409, "nothing came of it"
        )

    async def cancel(self) -> ReleaseState:
        """Cancel it, which is possible before noise is drawn; its share returns to the data set.

        Raises:
            Refused: ``conflict`` after that.
        """
        self.state = ReleaseState.parse(await self._transport.json(Call("DELETE", self._path)))
        return self.state

    async def answers(self) -> pandas.DataFrame:
        """The workload's answers: ``question``, a label an attribute, ``value`` and ``standard_error`` in counts.
        Frames need the extras ``pandas`` and ``arrow``."""
        return await self._frame("answers")

    async def tables(self) -> list[pandas.DataFrame]:
        """The tables of a publication: labels, ``value`` (whole of counts), ``standard_error``, ``low``, ``high``."""
        count = int(need(cast(JSON, self.state.result), "tables"))
        return [await self._frame(f"table-{number + 1}") for number in range(count)]

    async def manifest(self) -> JSON:
        """What a publication was made of, and the digests of its tables."""
        return cast(JSON, parse_bounded(await self._data("manifest", "application/json")))

    async def records(self) -> pandas.DataFrame:
        """Synthetic records: a row each, a column an attribute."""
        return await self._frame("records")

    async def edges(self) -> pandas.DataFrame:
        """The edges of a synthetic graph."""
        return await self._frame("edges")

    async def _frame(self, part: str) -> pandas.DataFrame:
        return frame(await self._data(part, ARROW))

    async def save(self, path: Path | str, *, part: str | None = None) -> Path:
        """Write what came of it to ``path``: as CSV, Parquet, Arrow or a workbook (.xlsx) by the ending. No extra is
        needed.

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
        target.write_bytes(await self._data(part, FORMATS[target.suffix]))
        return target

    async def _data(self, part: str | None, accept: str) -> bytes:
        query = "" if part is None else "?" + urlencode({"part": part})
        call = Call("GET", f"{self._path}/data{query}", {"Accept": accept}, most=MOST_DATA)
        return (await self._transport.send(call)).content
