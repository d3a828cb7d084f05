"""Deadlines for the machine at hand: what passes on a quiet one passes on one that is several times slower."""

from __future__ import annotations

import time

#: Seconds that :func:`_work` takes on the quiet machine for which deadlines are written down.
_QUIET = 0.02
#: How often it is looked again how busy the machine is: others come and go.
_EVERY = 10.0
_slowest, _looked = 1.0, -_EVERY


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, on this one: longer by as much as work of a known size took at its worst."""
    global _slowest, _looked
    if time.monotonic() - _looked > _EVERY:
        began = time.perf_counter()
        _work()
        _slowest = max(_slowest, (time.perf_counter() - began) / _QUIET)
        _looked = time.monotonic()
    return seconds * _slowest


def _work() -> None:
    sum(range(1_000_000))
