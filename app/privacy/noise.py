"""Integer noise: exact samplers by OpenDP behind one protocol, and blocks of it drawn ahead of need.

Scales are in grid units. A scale reaches OpenDP as the least float that is at least the exact one
(OpenDP samples exactly from the distribution of that float), so the noise is never smaller than what was
paid for. Results are 64-bit: scales at which that width could matter are refused.

What cannot be promised from Python: OpenDP hands over a list of integers, which is dropped but not
overwritten; only the arrays owned here are.
"""

import os
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt
from opendp import measurements
from opendp.domains import atom_domain, vector_domain
from opendp.measures import zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features  # of the prelude these alone: the rest of it imports polars

from app.privacy.costs import GREATEST_GAUSSIAN_SCALE, GREATEST_LAPLACE_SCALE
from app.privacy.errors import InvalidEvent
from app.privacy.exactness import Exact, exact, float_at_least

Integers = npt.NDArray[np.int64]


class NoiseSource(Protocol):
    """Where the noise of a round comes from. Tests inject their own."""

    def take(self, n: int) -> Integers:
        """``n`` independent values, shape (n,), int64, owned by the caller, handed out this once."""
        ...


def _float_scale(scale: Exact, greatest: Fraction) -> float:
    try:
        number = exact(scale, "scale")
    except (TypeError, ValueError) as error:
        raise InvalidEvent(str(error)) from None
    if not 0 < number <= greatest:
        raise InvalidEvent(f"scale must be positive and at most {float(greatest):.3g} grid units")
    return float_at_least(number)


class _OpenDP:
    """Fresh draws of one OpenDP measurement at zero."""

    __slots__ = ("_measure", "_zeros", "scale")

    def __init__(self, scale: float, make: Callable[..., Callable[[list[int]], list[int]]], metric: object) -> None:
        enable_features("contrib")
        self.scale = scale
        self._measure = make(vector_domain(atom_domain(T="i64")), metric, scale=scale)
        self._zeros: list[int] = []

    def take(self, n: int) -> Integers:
        """``n`` fresh values, shape (n,). How long it takes depends on their size: draw off the request path."""
        zeros = self._zeros
        if len(zeros) != n:
            zeros = self._zeros = [0] * n
        return np.array(self._measure(zeros), dtype=np.int64) if n else np.empty(0, dtype=np.int64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale!r})"


class DiscreteLaplace(_OpenDP):
    """P[k] proportional to exp(-|k|/scale) on the integers.

    Args:
        scale: in grid units (for a session 2^m * b * gamma); ``scale`` of the instance is the float used,
            never less.

    Raises:
        InvalidEvent: unless 0 < scale <= 2^62/178, exact.
    """

    __slots__ = ()

    def __init__(self, scale: Exact) -> None:
        super().__init__(_float_scale(scale, GREATEST_LAPLACE_SCALE), measurements.make_laplace, l1_distance(T="i64"))


class DiscreteGaussian(_OpenDP):
    """P[k] proportional to exp(-k^2/(2 scale^2)) on the integers.

    Args:
        scale: sigma in grid units; ``scale`` of the instance is the float used, never less.

    Raises:
        InvalidEvent: unless 0 < scale <= 2^62/20, exact.
    """

    __slots__ = ()

    def __init__(self, scale: Exact) -> None:
        super().__init__(_float_scale(scale, GREATEST_GAUSSIAN_SCALE), measurements.make_gaussian, l2_distance(T="i64"))


#: How far from zero scores are moved: less than twice that, numbers of Python have as many digits.
_AWAY = 1 << 61


class Choice:
    """Draws of the exponential mechanism: index i with probability proportional to exp(scores[i]/scale).

    OpenDP's noisy maximum with Gumbel noise, which has this law exactly: noise is told apart digit by digit for as long
    as the largest is not certain, and scores are integers.

    Args:
        scale: in units of the scores; a larger float where it is none.

    Raises:
        InvalidEvent: unless 0 < scale <= 2^62, exact.
    """

    __slots__ = ("_measure", "scale")

    def __init__(self, scale: Exact) -> None:
        enable_features("contrib")
        self.scale = _float_scale(scale, Fraction(2**62))
        domain = vector_domain(atom_domain(T="i64"))
        measure = zero_concentrated_divergence()
        self._measure = measurements.make_noisy_max(domain, linf_distance(T="i64"), measure, scale=self.scale)

    def of(self, scores: Integers) -> int:
        """The index drawn for these scores, shape (n,), int64, n at least 1. The time that takes hangs on how they are
        spread, and not on how large they are.
        """
        greatest = int(scores.max())
        if greatest - int(scores.min()) < _AWAY:
            # Moved alike they have the same law, and each as many digits: Python has numbers near zero at hand, and
            # makes others, which told neighbours apart.
            scores = scores - greatest - _AWAY
        return int(self._measure(scores.tolist()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale!r})"


class NoiseBlock:
    """Noise drawn ahead: each value is handed out once and overwritten with 0 as it leaves.

    Safe to share between threads. ``take`` uses the current block, then the spare one, and draws itself
    only when both are empty; ``refill``, called by a background thread, draws the spare. A block belongs
    to the process that made it: after a fork both processes would hand out the same values, so the child
    is refused. It cannot be copied or pickled, and shows nothing of its contents.

    Args:
        source: fresh noise, for instance a ``DiscreteLaplace``. Called by one thread at a time.
        size: values a block.

    Raises:
        ValueError: for a size below 1.
    """

    __slots__ = ("_drawing", "_lock", "_next", "_process", "_size", "_source", "_spare", "_values")

    def __init__(self, source: NoiseSource, size: int) -> None:
        if size < 1:
            raise ValueError("a block holds at least one value")
        self._source = source
        self._size = size
        self._values: Integers = np.empty(0, dtype=np.int64)
        self._next = 0
        self._spare: Integers | None = None
        self._lock = threading.Lock()
        self._drawing = threading.Lock()
        self._process = os.getpid()

    def take(self, n: int) -> Integers:
        """The next ``n`` values, shape (n,), a copy that the caller owns; their places here hold 0
        afterwards.

        Raises:
            RuntimeError: in a process forked from the one that made this block.
            ValueError: for a negative n.
        """
        self._own()
        taken = np.empty(n, dtype=np.int64)
        filled = 0
        with self._lock:
            while filled < n:
                if self._next == len(self._values):
                    self._values, self._spare, self._next = self._spare_or_fresh(), None, 0
                count = min(n - filled, len(self._values) - self._next)
                part = self._values[self._next : self._next + count]
                taken[filled : filled + count] = part
                part[:] = 0
                self._next += count
                filled += count
        return taken

    @property
    def low(self) -> bool:
        """Whether there is no spare block, so that :meth:`refill` would draw one."""
        return self._spare is None

    def refill(self) -> bool:
        """Draw the spare block if there is none; True if one was drawn. Takers wait for it only when
        they have none left.

        Raises:
            RuntimeError: in a process forked from the one that made this block.
        """
        self._own()
        with self._drawing:
            if self._spare is not None:
                return False
            drawn = self._draw()
        with self._lock:
            self._spare = drawn
        return True

    def _spare_or_fresh(self) -> Integers:
        if self._spare is not None:
            return self._spare
        with self._drawing:
            return self._draw()

    def _draw(self) -> Integers:
        drawn = np.array(self._source.take(self._size), dtype=np.int64)
        if drawn.shape != (self._size,):
            raise ValueError("a noise source gave another number of values than asked for")
        return drawn

    def _own(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("noise belongs to the process that drew it: make a new block after a fork")

    def __repr__(self) -> str:
        return f"NoiseBlock(size={self._size})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("noise is not copied or pickled")
