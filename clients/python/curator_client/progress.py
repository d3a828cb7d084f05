"""How far a call is, for whoever waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable

#: True is one line on standard error, where that is a terminal; else a function of done and of all, None where that is
#: not known.
Progress = bool | Callable[[int, int | None], None]


def line(text: str, *, last: bool = False) -> None:
    """Show a text in the place of the one before, on standard error, where that is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}" + ("\r\x1b[K" if last else ""))
        sys.stderr.flush()


def counted(done: int, of: int | None) -> None:
    """Show how many of all are done."""
    line(f"{done:,}" if of is None else f"{done:,} of {of:,}", last=done == of)


def heard_by(progress: Progress) -> Callable[[int, int | None], None] | None:
    """Who hears of how much is done; None where nobody does."""
    if callable(progress):
        return progress
    return counted if progress else None


def downloading(progress: Progress) -> Callable[[int], None] | None:
    """Who hears of bytes of which nobody knows how many there will be; None where nobody does."""
    show = heard_by(progress)
    return None if show is None else lambda done: show(done, None)
