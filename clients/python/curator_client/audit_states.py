"""Where an audit stands that the service makes of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from curator_client.errors import Refused, refusal
from curator_client.models import JSON, need


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
