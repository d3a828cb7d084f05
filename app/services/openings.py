"""Openings of sessions, as answers need them: each computed once from its header, and the latest of them kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from app.curator.opening import Header, Opening
from app.declarations.errors import CuratorError
from app.services.errors import Unavailable

log = structlog.get_logger(__name__)

#: Openings that are kept, and the bytes of all their headers: what is made of one with a long declaration is many times
#: as large, about as many times as told.
KEPT, KEPT_BYTES, FACTOR = 32, 4 << 20, 32

_kept: OrderedDict[bytes, Opening] = OrderedDict()
_lock = threading.Lock()


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
        log.error("what was recorded of a session cannot be read", error=type(error).__name__)
        problem = "what was recorded of the session cannot be read: an operator must look"
        raise Unavailable(problem, retry_after=60) from error


def opening_of(header: bytes) -> Opening:
    """What the session of a header, which this service wrote, was opened on.

    A session that is not in memory is looked at several times before it answers: for its lane, for the memory that it
    takes, and to make its state. Its plan is computed once, which may take seconds.
    """
    with _lock:
        known = _kept.get(header)
        if known is not None:
            _kept.move_to_end(header)
            return known
    with own_records():
        made = Header.read(header).opening()
    with _lock:
        _kept[header] = made
        while len(_kept) > KEPT or (len(_kept) > 1 and sum(map(len, _kept)) > KEPT_BYTES):
            _kept.popitem(last=False)
    return made


def opening_bytes(header: bytes) -> int:
    """About what the opening of a header takes in memory."""
    return FACTOR * len(header)


def held() -> int:
    """About what the openings that are kept take in memory."""
    with _lock:
        return sum(map(opening_bytes, _kept))
