"""Openings of sessions, as answers need them: each computed once from its header, and the latest of them kept."""

from __future__ import annotations

from functools import lru_cache

from app.curator.opening import Header, Opening

#: Openings that are kept. A declaration may take some megabytes.
KEPT = 32


@lru_cache(maxsize=KEPT)
def opening_of(header: bytes) -> Opening:
    """What the session of a header, which this service wrote, was opened on.

    A session that is not in memory is looked at several times before it answers: for its lane, for the memory that it
    takes, and to make its state. Its plan is computed once, which may take seconds.
    """
    return Header.read(header).opening()
