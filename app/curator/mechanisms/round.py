"""One round of online query response (GRU11 algorithm 1, JT12 algorithm 1), and tests of whole marginals, in whole
grid units.

A round sees the public hypothesis' answer c, the private value v and one noise A. It releases ``v + A`` where that
is more than T away from c, and c otherwise. What v + A was on a miss exists nowhere afterwards: not in the
result, not in an exception.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Hit:
    """The hypothesis was off: the noisy value is released and an update is due."""

    value: int


@dataclass(frozen=True, slots=True)
class Miss:
    """The hypothesis was near enough: its own answer is released."""

    value: int


def play(hypothesis: int, private: int, noise: int, threshold: int) -> Hit | Miss:
    """Hit when ``|private + noise - hypothesis| > threshold``, else miss. All whole units of the answer grid."""
    if abs(private + noise - hypothesis) > threshold:
        return Hit(private + noise)
    return Miss(hypothesis)


def race(hypothesis: int, private: int, noise: npt.NDArray[np.int64], count: int, threshold: int) -> Hit | Miss:
    """A Poisson race: the first of ``count`` noisy values outside ``hypothesis +- threshold`` is released, else miss.

    ``noise`` holds as many values as the race is cut at. All of them are looked at whatever ``count`` is, so that
    the secret number shows neither in what is done nor in how long it takes; they are zero afterwards.
    """
    noise += private - hypothesis
    places, last = np.arange(len(noise)), len(noise) - 1
    outside = np.abs(noise) > threshold
    outside &= places < count
    # Not argmax, which stops at the first True: how many values come before it must not show.
    first = int(np.where(outside, places, len(noise)).min())
    gap = int(noise[min(first, last)])
    noise[:] = 0
    return Hit(hypothesis + gap) if first <= last else Miss(hypothesis)


def distance(private: npt.NDArray[np.int64], expected: npt.NDArray[np.int64]) -> int:
    """How far private counts are from expected ones, all cells together: one record moves it by one at most."""
    return int(np.abs(private - expected).sum())


def play_marginal(
    private: npt.NDArray[np.int64],
    expected: npt.NDArray[np.int64],
    noise: npt.NDArray[np.int64],
    count: int,
    threshold: int,
    fresh: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64] | None:
    """A test of a marginal: ``private + fresh`` where one of the first ``count`` values of ``noise`` added to the
    distance of private and expected counts passes the threshold; None where none does.

    Nothing of the distance is released, nor of how far it is beyond the threshold. A single comparison has one value
    of noise and a count of one; of a race ``noise`` holds as many as it is cut at, all of which are looked at whatever
    the count is. All that was drawn is zero afterwards.
    """
    noise += distance(private, expected)
    passed = noise > threshold
    passed &= np.arange(len(noise)) < count
    noise[:] = 0
    released = private + fresh if int(passed.sum()) else None
    fresh[:] = 0
    return released
