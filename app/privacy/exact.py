"""Calibration ``exact``: the least delta of B hits over all e0-DP conditional releases, by dynamic
programming.

The privacy loss of a session moves in steps of e0. With s = 1/(1+e^e0), u_0(n) = max(0, 1 - e^(epsilon -
e0 n)) and, for j = 1..B, the fixpoint of

    u_j(n) = max{ (1-s) u_j(n+1) + s u_{j-1}(n-1),  s u_j(n-1) + (1-s) u_{j-1}(n+1) },

delta(epsilon) = u_B(0): the worst an adversary reaches who chooses each round after seeing the last,
misses in the first terms and hits in the second. Losses between the steps are dominated, the value being
convex. It needs 5 to 12% less noise than the Renyi bound.

It stands alone. The program counts the whole (epsilon, delta) of a data set as one session with one e0,
and a delta spent that way does not add up with Renyi amounts: nothing of it could be refunded or shared.
A data set calibrated ``exact`` has no ledger of further sessions or releases, and one with a ledger takes
no ``exact`` session.

Certified from above. The map T on the right is monotone with a single fixpoint, so any array U with T(U)
<= U lies above it. Each stage ends only when such a U has been exhibited in floating point:

- p >= 1-s, q >= s are floats rounded up; p x + q y in floats errs by at most three roundings (each 2^-53
  relatively), so multiplied by 1 + 2^-50 it is at least the true value; nothing underflows, all entries
  being at least 1e-280.
- The array covers n in [-M, M]. Above M it counts as 1; below -M as its value at -M, an upper bound because
  the value rises with n; T(U) <= U holds out there because U is not below the stage before.
- e0 is rounded up, epsilon down; u_0 is raised by more than the error of its evaluation.

What is returned is therefore at least the true delta, however the array was found, and whatever M is.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_banded

from app.patience import still_wanted
from app.privacy.calibration import rdp_scale
from app.privacy.conversion import checked_count, checked_delta, checked_epsilon
from app.privacy.errors import InvalidBudget
from app.privacy.exactness import WORKING, Exact, ceil_to, exact, float_at_least, float_at_most, to_decimal

#: The work grows like updates^1.5; beyond this many use ``rdp``, whose excess is then a few percent.
GREATEST_UPDATES: Final = 5_000
_GREATEST_RATE: Final = 16
_GREATEST_CELLS: Final = 2_000_000

Floats = npt.NDArray[np.float64]
Choices = npt.NDArray[np.bool_]

_UP: Final = 1 + 2.0**-50
_FLOOR: Final = 1e-280
_TAIL: Final = 60
_ROUNDS: Final = 60
_PRECISION: Final = Fraction(1, 100_000)
#: A stage's array is raised by one to two times this, relatively: 2e-10 B of delta in all.
_INFLATION: Final = 1e-10


def delta_of(rate: Exact, updates: int, epsilon: Exact) -> float:
    """The least delta for which ``updates`` hits at e0 = ``rate`` are (epsilon, delta)-private, rounded up.

    Args:
        rate: e0 = gamma/b, exact, at most 16.
        updates: B, from 1 to 5000.
        epsilon: positive.

    Raises:
        InvalidBudget: for parameters outside these ranges, or a ratio epsilon/e0 above a million.
    """
    checked_epsilon(epsilon)
    if checked_count(updates, "updates") > GREATEST_UPDATES:
        raise InvalidBudget(f"exact calibration takes at most {GREATEST_UPDATES} updates: use rdp")
    try:
        e0 = float_at_least(exact(rate, "e0"))
    except (TypeError, ValueError) as error:
        raise InvalidBudget(str(error)) from None
    if not 0 < e0 <= _GREATEST_RATE:
        raise InvalidBudget(f"exact calibration takes e0 above 0 and at most {_GREATEST_RATE}")
    least_epsilon = float_at_most(Fraction(epsilon))
    cells = reach(e0, updates, least_epsilon)
    if cells > _GREATEST_CELLS:
        raise InvalidBudget("epsilon is too large a multiple of e0 for exact calibration: use rdp")
    p, q = _probabilities(e0)
    before = np.zeros(2 * cells + 3)
    after = np.empty_like(before)
    choice = np.ones(2 * cells + 1, dtype=np.bool_)
    before[1:-1] = _start(e0, least_epsilon, cells)
    for _ in range(updates):
        still_wanted()
        _stage(before, after, choice, p, q)
        before, after = after, before
    return float(before[cells + 1])


def exact_scale(epsilon: Exact, delta: Exact, updates: int) -> Decimal:
    """Scale b (gamma = 1) at which ``updates`` hits are (epsilon, delta)-private by ``delta_of``, 7 digits.

    The scale returned meets delta; one smaller by 1e-5 relatively does not. Never below gamma/16.

    Raises:
        InvalidBudget: as ``delta_of``, and when (epsilon, delta) allows nothing.
    """
    checked_epsilon(epsilon)
    target = float_at_most(checked_delta(delta))
    if target == 0:
        raise InvalidBudget("delta is too small for exact calibration: use rdp")

    def excess(scale: Fraction) -> float:
        """ln(delta/target), positive exactly where delta is above the target."""
        reached = delta_of(1 / scale, updates, epsilon)
        distance = abs(math.log(reached / target))
        return max(distance, 1e-300) if reached > target else -distance

    least = 1 / Fraction(_GREATEST_RATE)
    # The Renyi bound is safe and the optimum seldom below four fifths of it.
    high = max(least, Fraction(_digits(Fraction(rdp_scale(epsilon, delta, updates)))))
    above = excess(high)
    while above > 0:
        high *= 2
        above = excess(high)
    low = max(least, high * 4 / 5)
    below = excess(low)
    while below <= 0:
        if low == least:
            return _digits(least)
        high, above, low = low, below, max(least, low * 4 / 5)
        below = excess(low)
    while high / low > 1 + _PRECISION:
        # ln delta is nearly linear in the scale: try on either side of the secant's root, then halve.
        root = low + (high - low) * Fraction(below / (below - above))
        for guess in (root * (1 + _PRECISION / 4), root * (1 - _PRECISION / 4), (low + high) / 2):
            if not low < guess < high or high / low <= 1 + _PRECISION:
                continue
            rounded = Fraction(_digits(guess))
            value = excess(rounded)
            if value <= 0:
                high, above = rounded, value
            else:
                low, below = rounded, value
    return _digits(high)


def _digits(value: Fraction) -> Decimal:
    """The value rounded up to 7 significant digits."""
    unit = Decimal(1).scaleb(to_decimal(value).adjusted() - 6)
    return ceil_to(value, unit)


def reach(e0: float, updates: int, epsilon: float) -> int:
    """M: far enough that counting everything beyond as delta changes little. Tightness only, not safety.

    The array has 2M + 1 cells, and the program's work grows as updates times M.

    A hit brings a geometric number of misses, variance 2 in steps; to be beyond M has probability below
    e^-60.
    """
    spread = math.sqrt(4 * updates * _TAIL) + 2 * _TAIL + 2 * updates * min(e0, 1)
    return math.ceil(epsilon / e0 + spread)


def _probabilities(e0: float) -> tuple[float, float]:
    """(p, q): floats at least 1-s and s."""
    with localcontext(WORKING):
        grown = Decimal(e0).exp()
        p, q = grown / (1 + grown), 1 / (1 + grown)
    # One step up covers the error of the 100 digits as well.
    return math.nextafter(float_at_least(p), 2), math.nextafter(float_at_least(q), 2)


def _start(e0: float, epsilon: float, cells: int) -> Floats:
    """u_0 on -M..M, at least the true value.

    The exponent errs by at most two roundings of its terms; it is lowered by four. expm1 errs by a few
    units of the last place, for which the value is raised by 2^-46.
    """
    losses = np.arange(-cells, cells + 1, dtype=np.float64) * e0
    exponent = epsilon - losses
    exponent -= (epsilon + np.abs(losses)) * 2.0**-51
    values = -np.expm1(np.minimum(exponent, 0.0)) * (1 + 2.0**-46)
    return np.clip(values, _FLOOR, 1.0)


def _stage(before: Floats, after: Floats, choice: Choices, p: float, q: float) -> None:
    """Fill ``after`` with a certified upper bound of the fixpoint over ``before``.

    Both hold one more cell at each end: below, a copy of the value at -M; above, 1. ``choice`` says where the
    first of the two rounds is the better one; it starts at the last stage's and is left at this one's.
    """
    before[0], before[-1] = before[1], 1.0
    hit_below, hit_above = q * before[:-2], p * before[2:]
    slope = np.linspace(2 * _INFLATION, _INFLATION, len(choice))
    for _ in range(_ROUNDS):
        values = np.maximum(_solve(choice, hit_below, hit_above, p, q), before[1:-1])
        # Inflated more towards -M: where hits weigh little, that slope is what makes T(U) <= U strict.
        after[1:-1] = np.minimum(values * (1 + slope) + _FLOOR, 1.0)
        after[0], after[-1] = after[1], 1.0
        image = np.maximum(p * after[2:] + hit_below, q * after[:-2] + hit_above) * _UP
        if np.all((image <= after[1:-1]) | (after[1:-1] >= 1.0)):
            return
        # The values themselves decide which choice is better: the inflation would hide small differences.
        after[0], after[1:-1] = values[0], values
        np.greater_equal(p * after[2:] + hit_below, q * after[:-2] + hit_above, out=choice)
    raise ArithmeticError("a stage of the dynamic program was not certified")


def _solve(choice: Choices, hit_below: Floats, hit_above: Floats, p: float, q: float) -> Floats:
    """The value of one fixed choice of rounds, about: a tridiagonal system (policy iteration, Howard
    1960)."""
    choice[0] = True
    bands = np.ones((3, len(choice)))
    bands[0, 1:] = np.where(choice[:-1], -p, 0.0)
    bands[2, :-1] = np.where(choice[1:], 0.0, -q)
    hits = np.where(choice, hit_below, hit_above)
    hits[-1] += p if choice[-1] else 0.0
    solution: Floats = solve_banded((1, 1), bands, hits, overwrite_ab=True, overwrite_b=True, check_finite=False)
    return solution
