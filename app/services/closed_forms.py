"""Closed forms of tasks, of what comes of them and of how they end, in which they go to any machine.

Ahead of each stands a line that tells its kind, the version of its form and its SHA-256; whatever is of another kind or
version, or damaged, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import orjson

from app.declarations.errors import CuratorError
from app.releases.finishing import TookTooLong, WorkerDied

#: Of all forms. A program takes those of its own version alone: servers and workers are upgraded together.
VERSION = 1
#: How a task ended: with a result, a refusal, the end of its process, or one for the time that it took.
End = Literal["done", "refused", "died", "late"]
_REFUSAL = "refusal"
_HEAD = 1024


class Damaged(ValueError):
    """What was read is none of these forms, is of another version, or is not what was written."""


def sealed(kind: str, body: bytes) -> bytes:
    """The closed form of a kind."""
    head = {"kind": kind, "sha256": hashlib.sha256(body).hexdigest(), "version": VERSION}
    return orjson.dumps(head) + b"\n" + body


def kind_of(content: bytes) -> Any:
    """The kind that a form says it is of.

    Raises:
        Damaged: when it says none.
    """
    try:
        return orjson.loads(content[:_HEAD].partition(b"\n")[0])["kind"]
    except (ValueError, KeyError, TypeError):
        raise Damaged("this is no closed form") from None


def opened(kind: str, content: bytes) -> memoryview:
    """The body of a closed form.

    Raises:
        Damaged: when it is none of this kind and version.
    """
    line, end, _ = content[:_HEAD].partition(b"\n")
    try:
        head = orjson.loads(line)
        found, version, digest = head["kind"], head["version"], head["sha256"]
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"this is no {kind}") from None
    if not end or found != kind:
        raise Damaged(f"this is no {kind}")
    if version != VERSION:
        raise Damaged(f"a {kind} of version {version!r}, and this program reads {VERSION}: run the same version here")
    body = memoryview(content)[len(line) + 1 :]
    if hashlib.sha256(body).hexdigest() != digest:
        raise Damaged(f"the {kind} is damaged: it does not have the SHA-256 that stands ahead of it")
    return body


def refusal(error: CuratorError) -> bytes:
    """The closed form of a refusal: it says again what it said, elsewhere."""
    told = {"detail": error.detail, "extra": error.extra, "refusal": type(error).__name__}
    return sealed(_REFUSAL, orjson.dumps(told, default=str))


def refused(content: bytes) -> CuratorError:
    """The refusal of a closed form.

    Raises:
        Damaged: when it is none.
    """
    try:
        told = orjson.loads(opened(_REFUSAL, content))
        kinds = {kind.__name__: kind for kind in _kinds(CuratorError)}
        kind, detail, extra = kinds[told["refusal"]], str(told["detail"]), dict(told["extra"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"this is no {_REFUSAL}") from error
    # Each kind is made of arguments of its own.
    made = kind.__new__(kind, detail)
    CuratorError.__init__(made, detail, **extra)
    return made


def _kinds(of: type[CuratorError]) -> Iterator[type[CuratorError]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)


def end_of(make: Callable[[], bytes]) -> tuple[End, bytes]:
    """How what makes the result of a task ends, and what is told of that."""
    try:
        return "done", make()
    except CuratorError as error:
        return "refused", refusal(error)
    except TookTooLong as error:
        return "late", str(error).encode()
    except WorkerDied as error:
        return "died", str(error).encode()


def result_of(end: str, told: bytes) -> bytes:
    """The result of a task that has ended so.

    Raises:
        CuratorError: when it was refused.
        WorkerDied: when it died.
        TookTooLong: when it was late.
        Damaged: when what is told is no refusal.
    """
    if end == "done":
        return told
    if end == "refused":
        raise refused(told)
    raise (TookTooLong if end == "late" else WorkerDied)(told.decode(errors="replace"))
