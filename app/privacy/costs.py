"""The cost of mechanisms in Renyi differential privacy (RDP): exact decimals, rounded up.

Events are frozen descriptions of what is computed from the data; ``renyi_cost`` reads them. Costs at one
order add up over adaptively chosen mechanisms (Mironov 2017, proposition 1, and for hits of a session the
supermartingale of ``ConditionalRelease``).

Error bound: with orders in [1.001, 1e12] and the ranges checked below, every formula evaluated here in
80 digits is within 1e-30 of its true value (each function says why); 1e-30 is added, then the sum goes
up to the grid of 1e-24.
"""

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Literal

from app.privacy.errors import InfiniteCost, InvalidBudget, InvalidEvent
from app.privacy.exactness import SEARCH, WORKING, Exact, ceil_to, exact, round_up, to_decimal

Release = Literal["single", "race"]

LEAST_ORDER = Decimal("1.001")
GREATEST_ORDER = Decimal("1e12")
#: Largest e0 = gamma/b of a conditional release that is evaluated: noise below 1/64 of one record is not offered.
GREATEST_RATE = Fraction(64)
LEAST_SCALE = 1 / GREATEST_RATE
GREATEST_SCALE = Fraction(10**24)
#: Largest scale of discrete Laplace noise that is drawn, in grid units: up to here P[|noise| > 2^62] < 2 e^-178 <
#: 2^-255, so neither the sampler's 64 bits nor a sum with a value below 2^62 matters.
GREATEST_LAPLACE_SCALE = Fraction(2**62, 178)
#: Largest sigma of discrete Gaussian noise that is drawn, in grid units: P[|noise| > 2^62] < 2 e^-200 < 2^-287.
GREATEST_GAUSSIAN_SCALE = Fraction(2**62, 20)
#: Least probability with which a bit is turned over, where it is at all.
LEAST_FLIP = Fraction(1, 2**62)
_LEAST_MARGIN = Decimal("1e-15")
#: Of more grid units no noise is drawn, and nothing moves by more: a value may not fit into 64 bits.
GREATEST_UNITS = 2**62


def _positive(value: Exact, name: str) -> Fraction:
    try:
        number = exact(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidEvent(str(error)) from None
    if number <= 0:
        raise InvalidEvent(f"{name} must be positive")
    return number


@dataclass(frozen=True, slots=True)
class ConditionalRelease:
    """One hit of an online query response session, together with all the misses around it.

    A round is an e0-differentially private conditional release, e0 = 1/scale: a hit with its value, or a
    miss. With P, Q its distributions on neighbours, H = E_Q[(P/Q)^a; hit] and N = E_Q[(P/Q)^a; miss], let V
    be such that H + V N <= V in every possible round. Then (P/Q)^a V^(-hits) is a supermartingale under Q,
    so after at most B hits, however many adaptively chosen queries were asked, the Renyi divergence of
    order a is at most B ln(V)/(a-1). The least such V, over all e0-DP conditional releases:

        single: ln V = (1-a) e0 - ln(1 + e^e0 - e^(a e0)), finite iff a e0 < ln(1 + e^e0).
        race:   ln V = -a e0 - ln(1 - a (1 - e^-e0)), finite iff a (1 - e^-e0) < 1.

    Every e0-DP pair post-processes randomised response, which gives the first. In a race with the arrival
    time revealed a hit at time s with value u has density phi(u) e^(-s H), phi the hazard, hence H/(1-N) is
    at most the supremum of r^a/(a r + 1 - a) over r in [e^-e0, e^e0], attained at e^-e0. Number of queries,
    threshold, the sign shown, integer rounding and a sensitivity below gamma do not enter.

    Attributes:
        scale: b/gamma, the Laplace scale in units of the privacy unit gamma, in [1/64, 1e24].
        release: "single" (one noisy comparison a query) or "race" (a Poisson number of them, first one
            out wins).
    """

    scale: Exact
    release: Release = "single"

    def __post_init__(self) -> None:
        if not LEAST_SCALE <= _positive(self.scale, "scale") <= GREATEST_SCALE:
            raise InvalidEvent("a conditional release takes a scale from 1/64 to 1e24 privacy units")
        if self.release not in ("single", "race"):
            raise InvalidEvent("release must be 'single' or 'race'")


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceAnswer:
    """An integer answer plus discrete Laplace noise, P[k] proportional to exp(-|k|/scale).

    For a vector answer with independent noise ``sensitivity`` is the L1 sensitivity: the divergence is
    convex in the shift and zero at none (the logarithm of a positive sum of e^((a-1)D/scale) and
    e^(-aD/scale)), so a shift spread over coordinates costs at most the whole of it in one.

    Attributes:
        scale: in grid units, at most 2^62.
        sensitivity: largest change between neighbours in grid units, an integer from 1 to 2^62.
    """

    scale: Exact
    sensitivity: int

    def __post_init__(self) -> None:
        if _positive(self.scale, "scale") > GREATEST_UNITS:
            raise InvalidEvent("scale must be at most 2^62 grid units")
        if isinstance(self.sensitivity, bool) or not isinstance(self.sensitivity, int):
            raise InvalidEvent("sensitivity must be an integer number of grid units")
        if not 1 <= self.sensitivity <= GREATEST_UNITS:
            raise InvalidEvent("sensitivity must be from 1 to 2^62 grid units")


@dataclass(frozen=True, slots=True)
class DiscreteGaussianAnswer:
    """An integer answer, or vector of answers, plus independent discrete Gaussian noise.

    Attributes:
        sigma: in grid units (the parameter of the distribution, P[k] proportional to exp(-k^2/(2
            sigma^2))).
        sensitivity_squared: square of the L2 sensitivity of the rounded query, in squared grid units.
            The square, because that is what is exact.
    """

    sigma: Exact
    sensitivity_squared: Exact

    def __post_init__(self) -> None:
        _positive(self.sigma, "sigma")
        _positive(self.sensitivity_squared, "sensitivity_squared")


@dataclass(frozen=True, slots=True)
class PureStep:
    """Any ``epsilon``-differentially private step."""

    epsilon: Exact

    def __post_init__(self) -> None:
        _positive(self.epsilon, "epsilon")


@dataclass(frozen=True, slots=True)
class ExponentialChoice:
    """One draw of the exponential mechanism: P[i] proportional to exp(epsilon score_i/(2 D)), D the most that a score
    moves between neighbours.

    Between neighbours the logarithm of the ratio of probabilities lies within an interval of length ``epsilon`` (it is
    epsilon-bounded-range: Durfee, Rogers 2019). So ``K(t) = ln E_Q[(P/Q)^t]``, which is 0 at 0 and at 1, has ``K'' <=
    epsilon^2/4``, the variance of a variable in such an interval; ``t (t-1) epsilon^2/8 - K(t)`` is then convex and 0
    at 0 and 1, hence not negative beyond 1: the Renyi divergence ``K(a)/(a-1)`` is at most ``a epsilon^2/8`` (Cesar,
    Rogers 2021), a quarter of what a pure step may cost.
    """

    epsilon: Exact

    def __post_init__(self) -> None:
        _positive(self.epsilon, "epsilon")


@dataclass(frozen=True, slots=True)
class RandomisedResponse:
    """Bits of which each is turned over with probability p, independently, and neighbours differ in one (Warner 1965).
    Where they differ in m it is m of these, as coins are independent.

    The one bit that differs is released as 1 with probability 1-p from the one data set and p from the other, so the
    sum of P^a Q^(1-a) over its two values is

        (1-p)^a p^(1-a) + p^a (1-p)^(1-a),

    and 1 for every other bit. Its logarithm over a-1 is the Renyi divergence of order a, the same either way round;
    the largest ratio of probabilities is (1-p)/p, so it is pure with epsilon = ln((1-p)/p).

    Attributes:
        flip: p, in [2^-62, 1/2).
    """

    flip: Exact

    def __post_init__(self) -> None:
        if not LEAST_FLIP <= _positive(self.flip, "flip") < Fraction(1, 2):
            raise InvalidEvent("a bit is turned over with a probability from 2^-62 to less than one half")


#: What costs budget: one thing computed from the data, by its noise.
PrivacyEvent = (
    ConditionalRelease
    | DiscreteLaplaceAnswer
    | DiscreteGaussianAnswer
    | PureStep
    | ExponentialChoice
    | RandomisedResponse
)


def checked_order(order: Decimal) -> Decimal:
    """The order itself.

    Raises:
        InvalidBudget: when it is not a Decimal in [1.001, 1e12].
    """
    if not isinstance(order, Decimal) or order.is_nan() or not LEAST_ORDER <= order <= GREATEST_ORDER:
        raise InvalidBudget("a Renyi order must be a Decimal from 1.001 to 1e12")
    return order


def renyi_cost(event: PrivacyEvent, order: Decimal) -> Decimal:
    """Renyi divergence of ``order`` that the event can cause between neighbours, rounded up to a
    multiple of 1e-24.

    Raises:
        InfiniteCost: when it is infinite at this order; the event must then be refused.
        InvalidBudget: for an order outside [1.001, 1e12].
    """
    checked_order(order)
    match event:
        case ConditionalRelease(scale, release):
            return round_up(conditional_cost(to_decimal(1 / Fraction(scale)), order, release, WORKING))
        case DiscreteLaplaceAnswer(scale, sensitivity):
            return round_up(_laplace_cost(Fraction(scale), sensitivity, order))
        case DiscreteGaussianAnswer(sigma, squared):
            # A discrete Gaussian is D^2/(2 sigma^2)-zCDP (Canonne, Kamath, Steinke 2020, theorem 4);
            # exact arithmetic.
            return ceil_to(Fraction(order) * Fraction(squared) / (2 * Fraction(sigma) ** 2))
        case PureStep(epsilon):
            # Bun, Steinke 2016, proposition 3.3: e-DP implies e^2/2-zCDP; and divergence never passes e.
            rate = Fraction(epsilon)
            return ceil_to(min(rate, Fraction(order) * rate**2 / 2))
        case RandomisedResponse(flip):
            return round_up(_response_cost(Fraction(flip), order))
        case ExponentialChoice(epsilon):
            rate = Fraction(epsilon)
            return ceil_to(min(rate, Fraction(order) * rate**2 / 8))


def pure_cost(event: PrivacyEvent) -> Decimal | None:
    """Epsilon of pure differential privacy that the event has, rounded up to a multiple of 1e-24; None where it has
    none, or where misses go without a charge.

    Of discrete Laplace noise D/scale: shifted by D, no probability changes by a factor of more than e^(D/scale); for a
    vector D is the L1 sensitivity.
    """
    match event:
        case DiscreteLaplaceAnswer(scale, sensitivity):
            return ceil_to(sensitivity / Fraction(scale))
        case PureStep(epsilon) | ExponentialChoice(epsilon):
            return ceil_to(epsilon)
        case RandomisedResponse(flip):
            return round_up(_log_odds(Fraction(flip)))
        case _:
            return None


def conditional_cost(rate: Decimal, order: Decimal, release: Release, context: Context) -> Decimal:
    """ln(V)/(a-1) of ``ConditionalRelease`` at e0 = ``rate`` in (0, 64], in the precision of ``context``.

    In ``WORKING``: a e0 < ln(1+e^e0) < 65 bounds each exponential by 2e28 with absolute error below 1e-67;
    the argument of the logarithm is refused below 1e-15, so the logarithm errs by less than 1e-51, and
    dividing by a-1 >= 1e-3 leaves less than 1e-47. For the race the argument errs by less than a*1e-99
    <= 1e-87.

    Raises:
        InfiniteCost: where a e0 >= ln(1+e^e0) (single) or a (1-e^-e0) >= 1 (race), or within 1e-15 of it.
    """
    with localcontext(context):
        if release == "single":
            product, linear = order * rate, (order - 1) * rate
            # Beyond 65 the exponential exceeds 1 + e^64: refused before an enormous one is evaluated.
            margin = Decimal(-1) if product > 65 else 1 + rate.exp() - product.exp()
        else:
            linear = order * rate
            margin = 1 - order * (1 - (-rate).exp())
        if margin < _LEAST_MARGIN:
            raise InfiniteCost(
                f"a {release} conditional release has no finite cost at order {order}: use a larger scale"
            )
        return -(linear + margin.ln()) / (order - 1)


def _laplace_cost(scale: Fraction, sensitivity: int, order: Decimal) -> Decimal:
    """Renyi divergence of discrete Laplace noise shifted by D = ``sensitivity``, in ``WORKING``.

    With r = e^(-1/scale) the sum of p(k)^a p(k-D)^(1-a) over the integers is

        (1-r)/(1+r) * [ (r^((1-a)D) + r^(aD))/(1-r) + r^(aD) sum_{y=1}^{D-1} r^((1-2a)y) ].

    Divided by its largest term r^((1-a)D), with z = r^(2a-1), it is

        [1 + z^D + (1-r) sum_{k=1}^{D-1} z^k]/(1+r),

    so the divergence is D/scale + ln[...]/(a-1). All terms are positive; 1-r and 1-z lose at most 20 of the
    100 digits (scale <= 2^62), hence the bracket is within 1e-77 relatively and the result within 1e-74 +
    (D/scale)*1e-99. The formula for continuous noise is up to 1% too low on a coarse grid.
    """
    step = -(2 * Fraction(order) - 1) / scale
    with localcontext(WORKING):
        ratio, z = to_decimal(-1 / scale).exp(), to_decimal(step).exp()
        bracket = 1 + to_decimal(step * sensitivity).exp()
        if sensitivity > 1:
            bracket += (1 - ratio) * z * (1 - to_decimal(step * (sensitivity - 1)).exp()) / (1 - z)
        return to_decimal(sensitivity / scale) + (bracket / (1 + ratio)).ln() / (order - 1)


def _log_odds(flip: Fraction) -> Decimal:
    """ln((1-p)/p), in ``WORKING``: at most 43, the argument good to 100 digits, so within 1e-97."""
    with localcontext(WORKING):
        return to_decimal((1 - flip) / flip).ln()


def _response_cost(flip: Fraction, order: Decimal) -> Decimal:
    """Renyi divergence of ``RandomisedResponse``, in ``WORKING``.

    With L = ln((1-p)/p) the sum is e^((a-1)L) [1-p + p e^(-2(a-1)L)], so the divergence is
    L + ln[...]/(a-1). The bracket lies in [1/2, 1]. Its exponent errs by less than 1e14 * 1e-97 relatively to 1, so
    the bracket by less than 1e-83, its logarithm by 2e-83, and the quotient by a-1 >= 1e-3 by 2e-80.
    """
    odds = _log_odds(flip)
    with localcontext(WORKING):
        p = to_decimal(flip)
        bracket = 1 - p + p * (-2 * (order - 1) * odds).exp()
        return odds + bracket.ln() / (order - 1)


def search_cost(rate: Decimal, order: Decimal, release: Release) -> Decimal:
    """``conditional_cost`` in 40 digits, infinite instead of raising: for searches that are certified
    afterwards."""
    try:
        return conditional_cost(rate, order, release, SEARCH)
    except InfiniteCost:
        return Decimal("Infinity")
