"""Which noise a share pays for: the law and the scale of the least variance.

Gaussian noise costs about half of what Laplace noise of the same variance does while there is much of it; of little
noise Laplace costs less. Which it is is computed, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Literal, TypeVar

from scipy.optimize import brentq

from app.bisection import least_integer
from app.measurements.noise import FLIP_BITS, BitFlips, Law, Noise, NoiseKind
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT

#: Noise of a smaller or larger scale is not bought, in the units that are released.
LEAST_SCALE, GREATEST_SCALE = 0.125, 1e12
#: Nor of one that might pass 62 bits once it is drawn.
_GREATEST_UNITS = 2.0**54
_UP, _DOWN = Context(prec=4, rounding=ROUND_CEILING), Context(prec=4, rounding=ROUND_FLOOR)
#: How near the largest scale is found that is small enough.
_NEAR = 2e-4
#: How many times the scale of a guess noise may have that gets somewhere.
_FAR = 4.0
#: What rounding of floats may add up to: scales are this part larger before they are rounded up.
SLACK = 1e-9
#: Costs of Laplace noise so large beside what it hides are those of the first term of their series, to as small a part.
_SLIGHT = 1e-5

#: Scales that are offered where prices are exact: of so many digits, from a tenth of a grid unit on, and below 10^15 of
#: them.
_DIGITS, _LEAST_DECADE, _GREATEST_DECADE = 4, -1, 15

#: The laws of noise.
LawName = NoiseKind | Literal["flips"]
_Price = TypeVar("_Price", float, Decimal)


def rounded_up(value: float, least: float = LEAST_SCALE) -> Decimal:
    """A scale of few digits that costs no more; ``least`` is the smallest that there is."""
    return _UP.create_decimal_from_float(max(value, least) * (1 + SLACK))


def laplace_cost(scale: float, order: float, sensitivity: int = 1) -> float:
    """The Renyi divergence of an order between discrete Laplace noise on whole counts and itself moved by some."""
    rate = 1 / scale
    if order * sensitivity * rate < _SLIGHT:
        # The sum below would lose all digits: of its series the first term is all there is to them.
        return order * (sensitivity * rate) ** 2 / 2
    step = -(2 * order - 1) * rate
    far = math.exp(step * sensitivity)
    if sensitivity > 1:
        far += math.expm1(-rate) * math.exp(step) * math.expm1(step * (sensitivity - 1)) / -math.expm1(step)
    return sensitivity * rate + (math.log1p(far) - math.log1p(math.exp(-rate))) / (order - 1)


def least_noise(
    share: float, order: float, sensitivity: Sequence[int], squared: float, most: float, *, pure: bool
) -> tuple[NoiseKind, Decimal] | None:
    """The noise of least variance that a share pays for: its law and its scale; None where that is none to speak of.

    Args:
        share: what is paid, of epsilon where noise must be pure, else at the Renyi order.
        order: of the ledger.
        sensitivity: by how much neighbours differ in each part of what is measured, in the L1 norm.
        squared: the square of how much all of it moves in the L2 norm.
        most: greatest scale.
        pure: whether noise must be pure.
    """
    if share <= 0:
        return None
    most = min(most, _GREATEST_UNITS)
    if pure:
        scale = max(sum(sensitivity) / share, LEAST_SCALE)
        return None if scale > most else ("laplace", rounded_up(scale))
    if order * squared / (2 * share) > most**2:
        return None
    sigma = math.sqrt(order * squared / (2 * share))
    same = sigma / math.sqrt(2)

    def cost(scale: float) -> float:
        return sum(laplace_cost(scale, order, by) for by in sensitivity)

    # Only of little noise can it be the better; of much its cost is lost in the rounding of what it is made of.
    if 0.05 < same < 100 * order * sum(sensitivity) and cost(same) < share:
        # Of little noise the cost is about the sum of what moves over the scale.
        low, high = math.log(min(same * math.exp(-6.0), sum(sensitivity) / (2 * share))), math.log(same)
        scale = math.exp(brentq(lambda x: cost(math.exp(x)) - share, low, high, xtol=1e-12))
        return "laplace", rounded_up(max(scale, LEAST_SCALE))
    return "gaussian", rounded_up(max(sigma, LEAST_SCALE))


def noise_on_grid(share: float, order: float, absolute: int, squared: int, bits: int, *, pure: bool) -> Noise | None:
    """The noise of least variance that a share pays for, of values on a grid of 2^-bits; None where that is none to
    speak of.

    Args:
        share: what is paid, of epsilon where noise must be pure, else at the Renyi order.
        order: of the ledger.
        absolute: by how much neighbours differ in the L1 norm, in units of the grid.
        squared: the same in the square of the L2 norm.
        bits: of the grid.
        pure: whether noise must be pure.
    """
    found = least_noise(share, order, [absolute], float(squared), GREATEST_SCALE * (1 << bits), pure=pure)
    if found is None:
        return None
    # Of few digits in counts, too: a record is read by people.
    return Noise(found[0], rounded_up(math.ldexp(float(found[1]), -bits), math.ldexp(LEAST_SCALE, -bits)), bits)


def least_affordable(law: LawName, bits: int, cost: Callable[[Law], Decimal | None], share: Decimal) -> Law | None:
    """The least noise of a law that costs no more than a share, by exact prices alone; None where there is none.

    Args:
        law: whose noise is offered: scales of four digits, or every probability of turning a bit over.
        bits: of the grid that noise lies on.
        cost: what noise costs, larger noise of the law no more; None where it cannot be paid so.
        share: what may be paid.
    """
    first = 10 ** (_DIGITS - 1)
    decade = 9 * first

    def noise(number: int) -> Law:
        """The noise of a law as it grows."""
        if law == "flips":
            return BitFlips(number + 1)
        units = Decimal(first + number % decade).scaleb(_LEAST_DECADE + 1 - _DIGITS + number // decade)
        return Noise(law, EXACT.multiply(units, Decimal(0.5**bits)), bits)

    def pays(number: int) -> bool:
        try:
            paid = cost(noise(number))
        except PrivacyError:  # such as a price that is infinite
            return False
        return paid is not None and paid <= share

    most = (1 << (FLIP_BITS - 1)) - 2 if law == "flips" else decade * (_GREATEST_DECADE - _LEAST_DECADE) - 1
    return noise(least_integer(pays, -1, most)) if pays(most) else None


def cheapest_noise(
    about: Mapping[NoiseKind, float],
    meets: Callable[[Noise], bool],
    price: Callable[[Noise], _Price],
    bits: int = 0,
    most: float = GREATEST_SCALE,
) -> Noise | None:
    """The noise that is small enough and costs least: the largest of one of some laws; None where none is small enough.

    Args:
        about: the laws, the first one where two cost the same, and of each the scale to look around.
        meets: whether noise is small enough, as all smaller noise of its law then is.
        price: what noise costs, larger noise of a law no more.
        bits: of the grid that noise lies on.
        most: the greatest scale.
    """
    best: tuple[_Price, Noise] | None = None
    for kind, scale in about.items():
        # Nothing is gained by looking for what would cost more by far.
        far = Noise(kind, rounded_up(min(_FAR * scale, most), math.ldexp(LEAST_SCALE, -bits)), bits)
        if best is not None and price(far) > best[0]:
            continue
        noise = _largest_noise(kind, meets, scale, bits, most)
        if noise is not None and (best is None or price(noise) < best[0]):
            best = price(noise), noise
    return None if best is None else best[1]


def _largest_noise(
    kind: NoiseKind, meets: Callable[[Noise], bool], about: float, bits: int, most: float
) -> Noise | None:
    """The noise of a law and of the largest scale of few digits that is small enough; None where none is."""
    least = math.ldexp(LEAST_SCALE, -bits)

    def noise(scale: float) -> Noise:
        return Noise(kind, _DOWN.create_decimal_from_float(scale), bits)

    def small(scale: float) -> bool:
        return meets(noise(scale))

    low = high = min(max(about, least), most)
    while not small(low):
        if low <= least:
            return None
        low, high = max(low / 2, least), low
    if low == high:
        while high < most and small(high):
            low, high = high, min(1.5 * high, most)
        if small(high):
            return noise(high)
    while high > low * (1 + _NEAR):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if small(middle) else (low, middle)
    return noise(low)
