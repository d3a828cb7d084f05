"""Audits that the service makes of itself: asked for, followed to their end, and read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from curator_client.calls import MOST_DATA, Call
from curator_client.errors import Refused, refusal
from curator_client.models import JSON, need
from curator_client.progress import line

if TYPE_CHECKING:
    from curator_client._http import Transport

#: How often an audit that is waited for is looked at, in seconds.
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class AuditState:
    """Where an audit stands.

    ``status`` is running, stopping, done, stopped or failed, and ``says`` that in words; ``progress`` tells how far it
    is. When it is done, ``verdict`` is ``holds`` or ``does not hold``, and ``result`` says what was found, checked and
    left open. ``problem`` is why it failed.
    """

    id: str
    session: str | None
    status: str
    says: str
    verdict: str | None
    progress: JSON
    result: JSON | None
    problem: Refused | None
    raw: JSON = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("done", "stopped", "failed")

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From any reply that describes an audit; in lists there is no ``result``."""
        session, verdict, problem = (need(reply, name) for name in ("session", "verdict", "problem"))
        return cls(
            id=str(need(reply, "id")),
            session=None if session is None else str(session),
            status=str(need(reply, "status")),
            says=str(need(reply, "says")),
            verdict=None if verdict is None else str(verdict),
            progress=need(reply, "progress"),
            result=reply.get("result"),
            problem=None if problem is None else refusal(problem, int(problem.get("status", 0))),
            raw=dict(reply),
        )


class Audit:
    """One audit, as :meth:`Curator.audit` asks for it.

    Attributes:
        state: where it stood when this client heard of it last.
    """

    def __init__(self, transport: Transport, state: AuditState) -> None:
        self._transport, self.state = transport, state
        self._path = f"/v1/audits/{quote(state.id, safe='')}"

    @property
    def id(self) -> str:
        """Its id."""
        return self.state.id

    def refresh(self) -> AuditState:
        """Ask where it stands now."""
        self.state = AuditState.parse(self._transport.json(Call("GET", self._path)))
        return self.state

    def wait(self, progress: Callable[[AuditState], None] | bool = False) -> AuditState:
        """Where it stands at its end. It has no verdict where somebody stopped it.

        Args:
            progress: called with each state; True shows a line on standard error, where that is a terminal.

        Raises:
            Refused: when it failed, which is no verdict either.
        """
        while True:
            state = self.refresh()
            if progress is True:
                line(state.says, last=state.ended)
            elif callable(progress):
                progress(state)
            if state.ended:
                break
            time.sleep(LOOK_SECONDS)
        if state.problem is not None:
            raise state.problem
        return state

    def stop(self) -> None:
        """Stop it, or forget it where it has ended."""
        self._transport.send(Call("DELETE", self._path))

    def save(self, path: Path | str) -> Path:
        """Write the report of an audit that is done to ``path``: as JSON where it ends so, else as a page.

        Raises:
            Refused: ``conflict`` when it is not done.
        """
        target = Path(path)
        accept = "application/json" if target.suffix == ".json" else "text/html"
        target.write_bytes(
            self._transport.send(Call("GET", f"{self._path}/report", {"Accept": accept}, most=MOST_DATA)).content
        )
        return target
