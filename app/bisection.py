"""Bisection: where a monotone condition turns true, for whole numbers and for positive factors.

Whoever asks makes sure that the condition is monotone: false up to some number and true from there on. Each search
asks for the same numbers in the same order every time, so that what rounding decides is decided alike on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def least_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer for which ``holds``, which is false at ``low`` and true at ``high`` (neither is asked)."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_integer_near(holds: Callable[[int], bool], guess: int, least: int, most: int) -> int | None:
    """The least integer from ``least`` to ``most`` for which ``holds``; None where there is none.

    The steps away from the guess double, so the nearer it is the fewer numbers are asked for.
    """
    low, high, step = guess - 1, guess, 1
    if holds(guess):
        while low >= least and holds(low):
            low, high, step = max(least - 1, low - step), low, 2 * step
    else:
        while not holds(high):
            if high >= most:
                return None
            low, high, step = high, min(most, high + step), 2 * step
    return least_integer(holds, low, high)


def least_factor(holds: Callable[[float], bool], low: float, high: float, accuracy: float) -> float | None:
    """A factor from ``low`` to ``high``, both positive, for which ``holds``; None where it does not hold at ``high``.

    It is at most ``accuracy`` (a factor above 1) times the least such factor, or than ``low`` where it holds there.
    """
    if not holds(high):
        return None
    while high > accuracy * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
