"""Openings of sessions, as answers need them: each computed once from its header, and the latest of them kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from app.curator.opening import FACTOR, Header, Opening
from app.declarations.errors import CuratorError
from app.keeping import Kept
from app.services.errors import Unavailable

logger = structlog.get_logger(__name__)

#: Openings that are kept, and the bytes of all their headers.
KEPT, KEPT_BYTES = 32, 4 << 20

_kept: Kept[Opening] = Kept(FACTOR * KEPT_BYTES, KEPT)
held = _kept.held


@contextmanager
def own_records() -> Iterator[None]:
    """Around what reads records that this service wrote: what is refused there is nothing that a caller can mend.

    Raises:
        Unavailable: in the place of a refusal.
    """
    try:
        yield
    except Unavailable:
        raise
    except CuratorError as error:
        logger.error("what was recorded of a session cannot be read", error=type(error).__name__)
        problem = "what was recorded of the session cannot be read: an operator must look"
        raise Unavailable(problem, retry_after=60) from error


def opening_of(header: bytes) -> Opening:
    """The opening of a session from its header, which this service wrote.

    A session that is not in memory is looked at several times before it answers: for its lane, for the memory that it
    takes, and to make its state. Its plan is computed once, which may take seconds.
    """

    def made() -> Opening:
        with own_records():
            return Header.read(header).opening()

    return _kept.get(header, made, lambda opening: opening_bytes(header))


def opening_bytes(header: bytes) -> int:
    """About what the opening of a header takes in memory."""
    return FACTOR * len(header)
