"""Long computations: they tell how far they are, and whoever starts one says when nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Told of how much of the work is done, from 0 to 1.
Progress = Callable[[float], None]
#: Raises when nobody waits for the work any more.
Check = Callable[[], None]

_still_wanted: ContextVar[Check] = ContextVar("still_wanted", default=lambda: None)


@contextmanager
def while_wanted(check: Check) -> Iterator[None]:
    """Have :func:`still_wanted` call ``check`` while the context lasts, in this thread."""
    token = _still_wanted.set(check)
    try:
        yield
    finally:
        _still_wanted.reset(token)


def still_wanted() -> None:
    """Go on with a long computation; called every few milliseconds of it.

    Raises:
        Exception: what ``check`` of :func:`while_wanted` raises when nobody waits any more. It should be neither a
            refusal of the service nor of :mod:`app.privacy`: a search for a plan would read that as "there is none".
    """
    _still_wanted.get()()
