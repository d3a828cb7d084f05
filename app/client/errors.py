"""Errors of a call: the service refuses, cannot be reached, or does not keep to the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class Problem(Exception):
    """A refusal by the service (RFC 9457).

    ``type`` is the stable name of the problem without its path (``budget-exhausted``), ``title`` and
    ``detail`` are for people, ``status`` is the HTTP status, ``extra`` holds every further member, such as
    ``requested`` and ``remaining``.
    """

    def __init__(self, type: str, title: str, status: int, detail: str, extra: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{title}: {detail}" if detail else title)
        self.type = type
        self.title = title
        self.status = status
        self.detail = detail
        self.extra = dict(extra or {})

    @classmethod
    def parse(cls, body: object, status: int) -> Self:
        """The problem that a reply's JSON states; one by ``status`` alone where it states none."""
        if not isinstance(body, Mapping):
            return cls("unknown", f"HTTP {status}", status, "the reply was not a problem object")
        fields = dict(body)
        type_ = str(fields.pop("type", "unknown")).rsplit("/", 1)[-1]
        title = str(fields.pop("title", type_))
        detail = str(fields.pop("detail", ""))
        stated = fields.pop("status", status)
        return cls(type_, title, stated if isinstance(stated, int) else status, detail, fields)


class Unreachable(Exception):
    """No reply came, however often the call was tried; what it asked for may or may not have been done."""


class ProtocolError(Exception):
    """A reply that the contract does not allow: most likely something else listens at that address."""


class NotVerified(Exception):
    """A session's transcript does not replay, or is not the one of the answers that this client got."""


class Contradicted(NotVerified):
    """The log is not what it was, or not what was signed."""
