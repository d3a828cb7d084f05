"""Parameters of a Poisson race: how many comparisons a query takes, and where that number may be cut.

A race draws a secret N ~ Poisson(M), takes N independent noisy comparisons and releases the first one
out. Any sampler within total variation tau of Poisson(M) turns an (epsilon, delta) guarantee over k
queries into (epsilon, delta + (1 + e^epsilon) k tau): both neighbours' output probabilities move by at
most k tau. Cutting N at Nmax moves it by P[N > Nmax]. That delta is set aside at registration
(``ledger.Budget.set_aside``), before anything else is computed from delta.

Unlike Renyi amounts what a session's cut costs is never returned: its queries may have been asked. So
that the sessions of a data set, in any number, together keep to what was set aside, the j-th race
session of a data set takes 1/(j (j+1)) of it; these parts add up to less than 1, and a smaller part
costs a few comparisons at most.
"""

from decimal import Decimal, localcontext
from fractions import Fraction

from app.bisection import least_integer
from app.privacy.conversion import checked_count, checked_delta, checked_epsilon
from app.privacy.errors import InvalidBudget
from app.privacy.exactness import WORKING, Exact, ceil_to, exact, to_decimal

LEAST_MEAN = 4
#: Means are multiples of this, 1/1024: exact as floats too.
MEAN_GRID = Decimal("0.0009765625")
_GREATEST_MEAN = 10_000
_RELATIVE = Decimal("1e-60")


def race_mean(queries: int, beta: Exact) -> Decimal:
    """M = 2 ln(2k/beta), at least 4, rounded up to 1/1024.

    With it a query whose gap passes the threshold is missed with total probability at most beta/2 over
    ``queries`` of them: half of its comparisons or more come out, so none does with probability e^(-M/2).

    Raises:
        InvalidBudget: unless queries >= 1 and 0 < beta < 1.
    """
    ratio = 2 * checked_count(queries, "max_queries") / _probability(beta)
    with localcontext(WORKING):
        mean = 2 * to_decimal(ratio).ln() * (1 + _RELATIVE)
    return max(Decimal(LEAST_MEAN), ceil_to(mean, MEAN_GRID))


def session_part(set_aside: Exact, ordinal: int) -> Fraction:
    """The delta that the ``ordinal``-th race session of a data set (counted from 1) may use for its cut."""
    count = checked_count(ordinal, "ordinal")
    return checked_delta(set_aside) / (count * (count + 1))


def cut_delta(mean: Exact, cut: int, queries: int, epsilon: Exact) -> Decimal:
    """(1 + e^epsilon) * queries * P[Poisson(mean) > cut]: what cutting at ``cut`` costs of delta, rounded up.

    The tail is summed until its remainder, below a geometric series, no longer shows; 100 digits leave a
    relative error below 1e-90, for which 1e-60 is added.

    Args:
        mean: M.
        cut: Nmax, the largest number of comparisons that can be drawn.
        queries: k of the session.
        epsilon: of the data set, not of the session.

    Raises:
        InvalidBudget: for parameters without meaning, or epsilon above 1e6.
    """
    intensity = _mean(mean)
    if isinstance(cut, bool) or not isinstance(cut, int) or cut < 0:
        raise InvalidBudget("the cut is an integer, at least 0")
    with localcontext(WORKING):
        M = to_decimal(intensity)
        term = (-M).exp()
        for n in range(1, cut + 2):
            term = term * M / n
        tail, n = term, cut + 1
        while n <= M or term > tail * _RELATIVE:
            n += 1
            term = term * M / n
            tail += term
        tail += term * M / (n + 1 - M)
    return distance_delta(tail, queries, epsilon)


def distance_delta(distance: Exact, queries: int, epsilon: Exact) -> Decimal:
    """(1 + e^epsilon) * queries * distance: what drawing N within that total variation of its law costs of
    delta, rounded up.

    Args:
        distance: a bound on the total variation of one draw.
        queries: how often N is drawn, at most.
        epsilon: of the data set, not of the session.

    Raises:
        InvalidBudget: for parameters without meaning, or epsilon above 1e6.
    """
    rate, factor = checked_epsilon(epsilon), checked_count(queries, "max_queries")
    with localcontext(WORKING):
        return (1 + to_decimal(rate).exp()) * factor * to_decimal(exact(distance, "distance")) * (1 + _RELATIVE)


def race_cut(mean: Exact, queries: int, epsilon: Exact, allowed: Exact) -> int:
    """Nmax: the least number at which ``cut_delta`` is at most ``allowed``.

    Raises:
        InvalidBudget: for parameters without meaning.
    """
    most = checked_delta(allowed)

    def allows(cut: int) -> bool:
        return cut_delta(mean, cut, queries, epsilon) <= most

    low, high = -1, int(_mean(mean)) + 1
    while not allows(high):
        low, high = high, 2 * high
    return least_integer(allows, low, high)


def _mean(mean: Exact) -> Fraction:
    try:
        number = exact(mean, "mean")
    except (TypeError, ValueError) as error:
        raise InvalidBudget(str(error)) from None
    if not 0 < number <= _GREATEST_MEAN:
        raise InvalidBudget(f"the mean of a race is positive and at most {_GREATEST_MEAN}")
    return number


def _probability(beta: Exact) -> Fraction:
    try:
        number = exact(beta, "beta")
    except (TypeError, ValueError) as error:
        raise InvalidBudget(str(error)) from None
    if not Fraction(1, 10**300) <= number < 1:
        raise InvalidBudget("beta must lie strictly between 0 and 1, and not below 1e-300")
    return number
