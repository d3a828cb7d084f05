"""How far a sum of independent noises reaches: the exact interval of an unbiased value, and of one chosen by its noise.

The error of every unbiased value is ``sum of w_i Z_i``, with public weights and independent noises of known laws, each
on the multiples of a step (:class:`~app.measurements.noise.Noise`). :func:`reach` is the least r for which
``P[|sum| <= r]`` is at least a confidence. Normal quantiles serve sums of many noises; a few Laplace ones have longer
tails, and noise of a scale near one step misses by what its steps leave out.

The law of the sum is that of a lattice, by discrete Fourier transform of its characteristic function, which is the
product of those of the terms. It is rounded outward wherever it is not exact:

* Where all weighed steps are multiples of one of them, that is the lattice, and nothing is rounded.
* Else noises of the largest steps are rounded to a fine lattice of step h: each moves the sum by h/2 at most, which is
  added to the reach. (Those of ``MOST_ROUNDED`` different weights at most.)
* Of all others each has an independent uniform part of its step added. One such part smooths a lattice into a law that
  is symmetric and falls to both sides; more of them spread it further (Anderson 1955, Birnbaum 1948), so that with half
  of the largest of these steps added the reach is an upper bound. (Proved for steps that are multiples of one another;
  for others tests hold it against enumeration.) Steps are a small part of a sum of many terms.
* More than ``MOST_GROUPS`` different weights are rounded up to powers of 2^(1/128).

The transform repeats itself: what lies beyond its ends, by Chernoff's bound a part of e^-14 of what may be missed, is
taken for lying inside, and made up for. Confidences closer to one than ``LEAST_MISSED`` have Chernoff's bound itself.

Who chooses the weights by the noises themselves is covered by what holds for all weights at once (Scheffe 1953):
``|sum of w_i Z_i| <= sqrt(sum of w_i^2 s_i^2) * sqrt(sum of (Z_i/s_i)^2)``. :func:`norm_quantile` is the quantile of
the second root, chi of normal noises, and more where noises have longer tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import chdtr, chdtri, ndtri

from app.keeping import Kept
from app.measurements.noise import Noise, NoiseKind
from app.spaces.tensor import FloatArray, IntArray

#: Of so many different weights at most terms are rounded to a fine lattice, and so many are told apart.
MOST_ROUNDED, MOST_GROUPS = 24, 256
#: What is missed with less probability than this is bounded, not computed.
LEAST_MISSED = 1e-9
#: Points of a transform, at most; and of all transforms of one sum.
_POINTS, _WORK = 1 << 15, 1 << 21
#: The logarithm of the part of what may be missed that may lie beyond the ends of a transform.
_BEYOND = 14.0
#: Steps below this part of the sum's deviation are as good as none.
_SMOOTH = 1 / 512
#: Multiples are told to this part, and characteristic functions below the second are zero.
_MULTIPLE, _ZERO = 1e-9, 1e-16
#: From this scale on, in steps, the characteristic function of the discrete Gaussian is a bell on each period.
_BELL = 2.0
#: In steps of the lattice, the deviation of what smooths a law that is no lattice's.
_SMOOTHED = 2.5
#: Of many different weights so many are told apart between one and its double.
_FINE = 128
#: So many frequencies are looked at first: often nothing is left beyond.
_FIRST = 1 << 7
#: Sums of so many equal noises are as good as normal ones.
_AS_NORMAL = 64
#: The squares of so many noises are summed on a grid, of more by their cumulants; scales beyond the third are one law.
_GRID, _MOST_ON_GRID, _SAME = 1 << 16, 20_000, 256.0
#: What rounding of floats may add up to.
_ROUNDING = 1e-11


def normal_quantile(confidence: float) -> float:
    """How many standard deviations to either side hold the normal law with this probability.

    Raises:
        ValueError: unless it lies between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError("a confidence lies between 0 and 1")
    return float(ndtri(0.5 + confidence / 2))


@dataclass(frozen=True, eq=False)
class Term:
    """Equal noises with weights: ``counts[i]`` independent ones have the weight ``weights[i]``.

    ``multiplier`` divides the noise, as it does what was measured.
    """

    noise: Noise
    weights: FloatArray
    counts: IntArray
    multiplier: float = 1

    @classmethod
    def of(cls, noise: Noise, weights: FloatArray, multiplier: int = 1, repeated: int = 1) -> Term:
        """A term for weights as they come, each of so many noises."""
        flat = np.asarray(weights, dtype=np.float64).reshape(-1)
        return cls(noise, flat, np.full(len(flat), repeated, dtype=np.int64), multiplier)

    @property
    def variance(self) -> float:
        """Of the weighed sum, in counts squared."""
        return float(np.square(self.weights) @ self.counts) * self.noise.variance / self.multiplier**2


def reach(terms: Sequence[Term], confidence: float) -> float:
    """The least r, rounded up, for which the weighed sum of all noises lies within r of zero with this probability.

    Args:
        terms: independent noises; weights of zero do not matter.
        confidence: the probability, between 0 and 1.

    Returns:
        r in counts; 0 where there is no noise.

    Raises:
        ValueError: for another confidence.
    """
    if not 0 < confidence < 1:
        raise ValueError("a confidence lies between 0 and 1")
    return _reach(signature(terms), confidence)


def quantile(terms: Sequence[Term], confidence: float) -> float:
    """How many standard deviations of the sum :func:`reach` is; the normal law's where there is no noise."""
    variance = sum(term.variance for term in terms)
    return reach(terms, confidence) / math.sqrt(variance) if variance else normal_quantile(confidence)


#: The law of noise, its scale in steps, the weighed step in counts, and how many of them there are.
_Summed = tuple[NoiseKind, float, float, int]
#: One for each law and weight.
Signature = tuple[_Summed, ...]

#: Laws that were asked for lately. That of noise of many steps takes as many numbers.
_MASSES: Kept[FloatArray] = Kept(1 << 23, 256)
_SQUARES: Kept[tuple[FloatArray, FloatArray]] = Kept(1 << 23, 64)


def signature(terms: Sequence[Term]) -> Signature:
    """The signature of a sum's law: equal weights together, in an order, to twelve digits."""
    found: dict[tuple[NoiseKind, float], list[tuple[FloatArray, IntArray]]] = {}
    for term in terms:
        steps = np.abs(term.weights) * (math.ldexp(1.0, -term.noise.bits) / term.multiplier)
        scale = math.ldexp(float(term.noise.scale), term.noise.bits)
        found.setdefault((term.noise.kind, scale), []).append((steps, term.counts))
    largest = max((float(s.max(initial=0.0)) for parts in found.values() for s, _ in parts), default=0.0)
    if not largest:
        return ()
    noises: list[_Summed] = []
    for (kind, scale), parts in sorted(found.items()):
        steps, counts = np.concatenate([s for s, _ in parts]), np.concatenate([c for _, c in parts])
        kept = steps > largest * 2.0**-40
        steps, which = np.unique(_rounded(steps[kept]), return_inverse=True)
        if len(steps) > MOST_GROUPS:
            finer = np.exp2(np.ceil(np.log2(steps) * _FINE) / _FINE)
            steps, merged = np.unique(finer, return_inverse=True)
            which = merged[which]
        many = np.bincount(which, weights=counts[kept], minlength=len(steps))
        noises += [(kind, scale, float(s), round(float(m))) for s, m in zip(steps, many, strict=True)]
    return tuple(noises)


def _rounded(steps: FloatArray) -> FloatArray:
    """To 40 bits, so that weights are equal which rounding told apart."""
    mantissas, exponents = np.frexp(steps)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissas, 40)), exponents - 40))


@lru_cache(maxsize=4096)
def _reach(noises: Signature, confidence: float) -> float:
    if not noises:
        return 0.0
    # The same of any weights but for their size: squares of tiny ones would be nothing, their noise none.
    exponent = math.frexp(max(step for _, _, step, _ in noises))[1]
    own = [(kind, scale, math.ldexp(step, -exponent), many) for kind, scale, step, many in noises]
    missed = 1 - confidence
    found = _chernoff(own, missed) if missed < LEAST_MISSED else _transformed(own, confidence, exponent)
    return math.ldexp(found, exponent)


def _variance(kind: NoiseKind, scale: float) -> float:
    """In steps squared."""
    if kind == "laplace":
        return 0.5 / math.sinh(0.5 / scale) ** 2
    if scale >= _BELL:
        return scale * scale
    weights, squares = _masses(kind, scale), np.arange(len(_masses(kind, scale))) ** 2.0
    return float(2 * (weights @ squares))


def _masses(kind: NoiseKind, scale: float) -> FloatArray:
    """The probabilities of 0, 1, 2, ... steps."""
    return _MASSES.get((kind, scale), lambda: _masses_of(kind, scale), lambda masses: masses.nbytes)


def _masses_of(kind: NoiseKind, scale: float) -> FloatArray:
    if kind == "laplace":
        ratio = math.exp(-1 / scale)
        return np.asarray(-math.expm1(-1 / scale) / (1 + ratio) * np.exp(-np.arange(math.ceil(45 * scale) + 1) / scale))
    weights = np.exp(-np.square(np.arange(math.ceil(9.5 * scale) + 2)) / (2 * scale * scale))
    return np.asarray(weights / (2 * weights.sum() - weights[0]))


def _characteristic(kind: NoiseKind, scale: float, angles: FloatArray) -> FloatArray:
    """Of noise in steps, at angles a step."""
    if kind == "laplace":
        return np.asarray(1 / (1 + 2 * _variance(kind, scale) * np.square(np.sin(angles / 2))))
    if scale >= _BELL:
        nearest = angles - 2 * math.pi * np.rint(angles / (2 * math.pi))
        return np.asarray(np.exp(-0.5 * np.square(scale * nearest)))
    masses = _masses(kind, scale)
    return np.asarray(masses[0] + 2 * (np.cos(np.outer(angles, np.arange(1, len(masses)))) @ masses[1:]))


def _transformed(noises: Sequence[_Summed], confidence: float, exponent: int) -> float:
    """Of steps that were divided by two to an exponent."""
    deviation = math.sqrt(sum(many * step**2 * _variance(kind, scale) for kind, scale, step, many in noises))
    logarithm = math.log(1 / (1 - confidence)) + _BEYOND
    largest = max(step for _, _, step, _ in noises)
    end = logarithm * (deviation / math.sqrt(2) + largest / 2)
    least = min(step for _, _, step, _ in noises)
    points = _power(2 * end / least)
    multiples = [step / least for _, _, step, _ in noises]
    if (
        points <= _POINTS
        and points * len(noises) <= _WORK
        and all(abs(m - round(m)) <= _MULTIPLE * m for m in multiples)
    ):
        exact = [(kind, scale, round(m), many) for m, (kind, scale, _, many) in zip(multiples, noises, strict=True)]
        # Multiples of a step that rounding did not touch are exact.
        slack = 1.0 if math.ldexp(least, exponent + 30).is_integer() else 1 + _MULTIPLE
        return _on_lattice(exact, points, confidence) * least * slack
    lattice = 2 * end / _POINTS
    # As many are rounded, in the order of their steps, as make what is added for either the least.
    ordered = sorted(noises, key=lambda t: -t[2])
    moved = np.cumsum([0] + [many for _, _, _, many in ordered]) * lattice / 2
    steps = np.array([step for _, _, step, _ in ordered] + [0.0])
    margins = moved + np.where(steps > 0, (steps + lattice) / 2, 0.0)
    # Fine steps are smooth, and noise on them takes many of these.
    coarse = int((steps > _SMOOTH * deviation).sum())
    first = int(np.argmin(margins[: min(coarse, MOST_ROUNDED) + 1]))
    rounded, smooth, margin = ordered[:first], ordered[first:], float(margins[first])
    found = np.ones(_POINTS // 2 + 1)
    if smooth:
        fine = smooth[0][2] <= _SMOOTH * deviation and all(
            kind == "laplace" or scale >= _BELL for kind, scale, _, _ in smooth
        )
        found = _smoothed(smooth, lattice, fine=fine)
    for kind, scale, step, many in rounded:
        masses = _masses(kind, scale)
        places = np.rint(np.arange(len(masses)) * (step / lattice)).astype(np.int64) % _POINTS
        law = np.bincount(places, weights=masses, minlength=_POINTS)
        # Both signs: the law is symmetric, and so is its transform real.
        found *= (2 * np.fft.rfft(law).real - masses[0]) ** many
    return (_first(np.fft.irfft(found, _POINTS), confidence) * lattice + margin) * (1 + _MULTIPLE)


def _smoothed(terms: Sequence[_Summed], lattice: float, *, fine: bool) -> FloatArray:
    """The transform of terms each of which has an independent uniform part of its step added.

    Where all steps are ``fine`` nothing comes back once it is gone.
    """
    frequencies = np.linspace(0.0, math.pi, _POINTS // 2 + 1)
    if fine:
        found = _gone(terms, frequencies[:_FIRST] / lattice)
        if found[-1] <= _ZERO:
            return np.asarray(np.pad(found, (0, len(frequencies) - _FIRST)))
    found = np.exp(-0.5 * np.square(_SMOOTHED * frequencies))
    # Those that leave least come first.
    for kind, scale, step, many in sorted(terms, key=lambda t: -t[2] * t[1] * math.sqrt(t[3])):
        kept = int(np.flatnonzero(np.abs(found) > _ZERO)[-1]) + 1
        found[kept:] = 0.0
        angles = frequencies[:kept] * (step / lattice)
        found[:kept] *= (_characteristic(kind, scale, angles) * np.sinc(angles / (2 * math.pi))) ** many
    return np.asarray(found)


def _gone(terms: Sequence[_Summed], frequencies: FloatArray) -> FloatArray:
    """The same at low frequencies, all terms at once: a uniform part of so small a step is as good as a normal one."""
    logarithm = np.zeros(len(frequencies))
    for kind in ("laplace", "gaussian"):
        own = [term for term in terms if term[0] == kind]
        steps, many = np.array([term[2] for term in own]), np.array([float(term[3]) for term in own])
        variances = np.array([_variance(term[0], term[1]) for term in own])
        square = float(many @ np.square(steps)) / 12
        if kind == "gaussian":
            square += float(many @ (np.square(steps) * variances))
        else:
            halves = np.sin(np.outer(frequencies, steps) / 2)
            logarithm -= np.log1p(2 * variances * np.square(halves)) @ many
        logarithm -= 0.5 * square * np.square(frequencies)
    return np.asarray(np.exp(logarithm))


def _on_lattice(exact: Sequence[tuple[NoiseKind, float, int, int]], points: int, confidence: float) -> int:
    """The reach in steps of a lattice on which all noises lie: each with how many steps it takes at once."""
    turns = np.arange(points // 2 + 1, dtype=np.int64)
    found = np.ones(len(turns))
    for kind, scale, multiple, many in exact:
        angles = ((turns * multiple) % points) * np.float64(2 * math.pi / points)
        found *= _characteristic(kind, scale, angles) ** many
    return _first(np.fft.irfft(found, points), confidence)


def _first(law: FloatArray, confidence: float) -> int:
    """The first place up to which, on both sides of zero, there is enough of a law."""
    half = law[: len(law) // 2].copy()
    half[1:] *= 2
    within = np.cumsum(half)
    beyond = (1 - confidence) * math.exp(-_BEYOND)
    return min(int(np.searchsorted(within, confidence + beyond + _ROUNDING)), len(half))


def _power(number: float) -> int:
    return 1 << max(6, math.ceil(math.log2(number)))


def _chernoff(noises: Sequence[_Summed], missed: float) -> float:
    """``min over u of (K(u) + ln(2/missed)) / u``, K the logarithm of the moment-generating function.

    Of Laplace noise of variance v that is ``-ln(1 - v (cosh(u) - 1))``; of discrete Gaussian noise it is less than
    ``scale^2 u^2/2`` (Canonne, Kamath, Steinke 2020).
    """
    kinds = np.array([kind == "laplace" for kind, _, _, _ in noises])
    scales, steps, many = (np.array([float(term[k]) for term in noises]) for k in (1, 2, 3))
    variances = np.array([_variance(kind, scale) for kind, scale, _, _ in noises])
    limit = float(np.min(np.where(kinds, 1 / (scales * steps), np.inf)))
    logarithm = math.log(2 / missed)
    middle = math.sqrt(2 * logarithm / float(many @ (steps**2 * np.maximum(variances, scales**2))))
    tried = middle * np.geomspace(1e-2, 1e2, 64)
    if math.isfinite(limit):
        tried = np.concatenate([tried[tried < limit], limit * np.linspace(0.02, 0.98, 49)])
    least = math.inf
    for u in tried.tolist():
        with np.errstate(over="ignore"):
            own = np.where(
                kinds,
                -np.log1p(-np.minimum(2 * variances * np.sinh(np.where(kinds, u * steps / 2, 0.0)) ** 2, 1 - 2.0**-53)),
                np.square(scales * steps * u) / 2,
            )
        least = min(least, (float(many @ own) + logarithm) / u)
    return least * (1 + _MULTIPLE)


def is_normal(noise: Noise, repeated: int) -> bool:
    """Whether a sum of so many noises is as good as normal but for its steps: of many of them, or of Gaussian ones, and
    of some steps."""
    deviation = math.sqrt(repeated * noise.variance) * 2.0**noise.bits
    return deviation >= _BELL and (repeated >= _AS_NORMAL or noise.kind == "gaussian")


def norm_quantile(normal: int, others: Sequence[tuple[Noise, int, int]], missed: float, step: float = 0.0) -> float:
    """The quantile that the root of a sum of squares of independent noises, each divided by its deviation, exceeds with
    a probability, rounded up.

    Args:
        normal: how many of them are normal.
        others: the law of others, how many equal noises each of them is the sum of, and how many there are.
        missed: the probability, positive.
        step: the longest step of the normal ones, in their deviations. Gaussian noise on a lattice is normal noise that
            was rounded to it: it reaches half a step farther.
    """
    many: dict[tuple[NoiseKind, float, int], int] = {}
    for noise, repeated, count in others:
        if is_normal(noise, repeated):
            normal += count
            step = max(step, 1 / math.sqrt(repeated * noise.variance * 4.0**noise.bits))
            continue
        law = noise.kind, min(math.ldexp(float(noise.scale), noise.bits), _SAME), repeated
        many[law] = many.get(law, 0) + count
    return _norm_quantile(normal, tuple(sorted(many.items())), missed) + step / 2


@lru_cache(maxsize=1024)
def _norm_quantile(normal: int, others: tuple[tuple[tuple[NoiseKind, float, int], int], ...], missed: float) -> float:
    if not others:
        return math.sqrt(float(chdtri(normal, missed))) if normal else 0.0
    if missed < LEAST_MISSED:
        # Every one of them is within what it exceeds with an equal part.
        count = sum(n for _, n in others)
        worst = 0.0
        for (kind, scale, repeated), _ in others:
            deviation = math.sqrt(repeated * _variance(kind, scale))
            worst = max(worst, _chernoff(((kind, scale, 1.0, repeated),), missed / (2 * count)) / deviation)
        return math.sqrt(count * worst**2 + (float(chdtri(normal, missed / 2)) if normal else 0.0))
    laws = [(*_squares(kind, scale, repeated), count) for (kind, scale, repeated), count in others]
    # Cumulants of the squares, the first of which are one.
    spread = 2 * normal + sum(count * float(p @ np.square(x - 1)) for x, p, count in laws)
    skew = 8 * normal + sum(count * float(p @ (x - 1) ** 3) for x, p, count in laws)
    whole = normal + sum(count for _, count in others)
    if whole > _MOST_ON_GRID:
        z = float(-ndtri(missed))
        return math.sqrt(whole + math.sqrt(spread) * z + skew / spread * (z * z + 1) / 6)
    longest, rare = 0.0, missed * math.exp(-_BEYOND) / whole
    for x, p, _ in laws:
        longest = max(longest, float(x[-1 - int(np.searchsorted(np.cumsum(p[::-1]), rare))]))
    step = (whole + 12 * math.sqrt(spread) + 2 * longest) / _GRID
    found = np.ones(_GRID // 2 + 1, dtype=np.complex128)
    for x, p, count in laws:
        # Each square lies between two points of the grid, and has a part of its probability at either: in the mean it
        # is the same, and spread more.
        places = np.minimum((x / step).astype(np.int64), _GRID - 2)
        above = np.clip(x / step - places, 0.0, 1.0)
        law = np.bincount(places, weights=p * (1 - above), minlength=_GRID)
        law += np.bincount(places + 1, weights=p * above, minlength=_GRID)
        found *= np.fft.rfft(law) ** count
    if normal:
        ends = chdtr(normal, step * np.arange(_GRID))
        found *= np.fft.rfft(np.diff(ends, prepend=0.0))
    within = np.cumsum(np.fft.irfft(found, _GRID))
    place = int(np.searchsorted(within, 1 - missed + missed * math.exp(-_BEYOND) + _ROUNDING))
    return math.sqrt(min(place, _GRID) * step)


def _squares(kind: NoiseKind, scale: float, repeated: int) -> tuple[FloatArray, FloatArray]:
    """The squares of a sum of equal noises in variances, ascending, and their probabilities."""
    return _SQUARES.get(
        (kind, scale, repeated), lambda: _squares_of(kind, scale, repeated), lambda law: law[0].nbytes + law[1].nbytes
    )


def _squares_of(kind: NoiseKind, scale: float, repeated: int) -> tuple[FloatArray, FloatArray]:
    variance = repeated * _variance(kind, scale)
    if repeated == 1:
        law = _masses(kind, scale).copy()
    else:
        points = _power(2 * (40 * math.sqrt(variance) + 60 * scale + 40))
        angles = np.linspace(0.0, math.pi, points // 2 + 1)
        law = np.maximum(np.fft.irfft(_characteristic(kind, scale, angles) ** repeated, points)[: points // 2], 0.0)
    law[1:] *= 2
    return np.square(np.arange(len(law), dtype=np.float64)) / variance, np.asarray(law / law.sum())
