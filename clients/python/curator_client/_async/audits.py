"""Audits that the service makes of itself: asked for, followed to their end, and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from curator_client._async.waiting import sleep
from curator_client.audit_states import AuditState
from curator_client.calls import MOST_DATA, Call
from curator_client.progress import line
from curator_client.requests import segment

if TYPE_CHECKING:
    from curator_client._async.http import Transport

#: How often an audit that is waited for is looked at, in seconds.
LOOK_SECONDS = 1.0


class AsyncAudit:
    """One audit, as :meth:`AsyncCurator.audit` asks for it.

    Attributes:
        state: where it stood when this client heard of it last.
    """

    def __init__(self, transport: Transport, state: AuditState) -> None:
        self._transport, self.state = transport, state
        self._path = f"/v1/audits/{segment(state.id)}"

    @property
    def id(self) -> str:
        """Its id."""
        return self.state.id

    async def refresh(self) -> AuditState:
        """Ask where it stands now."""
        self.state = AuditState.parse(await self._transport.json(Call("GET", self._path)))
        return self.state

    async def wait(self, progress: Callable[[AuditState], None] | bool = False) -> AuditState:
        """Where it stands at its end. It has no verdict where somebody stopped it.

        Args:
            progress: called with each state; True shows a line on standard error, where that is a terminal.

        Raises:
            Refused: when it failed, which is no verdict either.
        """
        while True:
            state = await self.refresh()
            if progress is True:
                line(state.says, last=state.ended)
            elif callable(progress):
                progress(state)
            if state.ended:
                break
            await sleep(LOOK_SECONDS)
        if state.problem is not None:
            raise state.problem
        return state

    async def stop(self) -> None:
        """Stop it, or forget it where it has ended."""
        await self._transport.send(Call("DELETE", self._path))

    async def save(self, path: Path | str) -> Path:
        """Write the report of an audit that is done to ``path``: as JSON where it ends so, else as a page.

        Raises:
            Refused: ``conflict`` when it is not done.
        """
        target = Path(path)
        accept = "application/json" if target.suffix == ".json" else "text/html"
        call = Call("GET", f"{self._path}/report", {"Accept": accept}, most=MOST_DATA)
        target.write_bytes((await self._transport.send(call)).content)
        return target
