"""What the papers predict, as formulas; growth exponents by regression; and the plain alternatives' errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
from scipy.stats import t as student

from app.demo.baseline import expected_largest, gaussian_sigma
from app.privacy.calibration import per_hit, scale_for_cost
from app.privacy.costs import DiscreteLaplaceAnswer, renyi_cost
from app.privacy.errors import PrivacyError
from app.privacy.ledger import GREATEST_EPSILON, Budget
from benchmarks.research.applications_play import FloatArray, IntArray

#: Growth of the error bound, JT12 section 4.1, as (power of V, power of S), for k = V^S queries. At a fixed number of
#: queries the power of S is a half less, as the error grows with the root of ln k = S ln V.
IMBALANCED = {"mw": (7 / 8, 1 / 2), "fk": (11 / 16, 3 / 4), "group": (5 / 8, 3 / 4)}


def power_law(beta: float) -> dict[str, tuple[float, float]]:
    """The same for power-law degrees; the group norm's as corrected (JT12 prints V^(3/4-beta/2))."""
    return {"mw": (3 / 2 - beta / 2, 1 / 2), "fk": (1 - beta / 4, 3 / 4), "group": (5 / 4 - beta / 2, 3 / 4)}


#: GRU11 table 1: powers of n, of the universe's size (at fixed n_2; logarithms count 0), and of ln k.
TABLE_1 = {"mw": (1 / 2, 0.0, 1 / 2), "fk": (1 / 2, 1 / 4, 1 / 2), "median": (1 / 2, 0.0, 3 / 4)}


@dataclass(frozen=True)
class Exponent:
    """A power found by regression, with its 95% confidence interval."""

    power: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.power:.2f} ±{(self.high - self.low) / 2:.2f}"


def exponents(factors: Sequence[Sequence[float]], values: Sequence[float]) -> list[Exponent]:
    """Powers p_j with ``value ~ c prod factor_j^p_j``, by least squares of logarithms.

    ``factors`` has a row a value. The intervals take residuals as independent and normal: curvature counts as noise.
    """
    logs = np.log(np.asarray(factors, dtype=np.float64))
    design = np.column_stack([logs, np.ones(len(logs))])
    target = np.log(np.asarray(values, dtype=np.float64))
    found, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    freedom = len(target) - design.shape[1]
    if rank < design.shape[1] or freedom < 1:
        return [Exponent(math.nan, math.nan, math.nan)] * logs.shape[1]
    residual = target - design @ found
    covariance = np.linalg.inv(design.T @ design) * float(residual @ residual) / freedom
    width = float(student.ppf(0.975, freedom)) * np.sqrt(np.diagonal(covariance))
    return [Exponent(float(p), float(p - w), float(p + w)) for p, w in zip(found[:-1], width[:-1], strict=True)]


@lru_cache(maxsize=64)
def budget_of(epsilon: float, delta: float) -> Budget:
    """The budget of a data set."""
    return Budget.of(Decimal(str(epsilon)), Decimal(str(delta)))


#: Scales grow as the root of the number of updates, to many digits, from here on.
_MANY = 10**9


@lru_cache(maxsize=4096)
def noise_scale(epsilon: float, delta: float, updates: int) -> float:
    """b at so many updates, for gamma = 1, by the ledger's accounting."""
    if updates > _MANY:
        return noise_scale(epsilon, delta, _MANY) * math.sqrt(updates / _MANY)
    budget = budget_of(epsilon, delta)
    return float(scale_for_cost(per_hit(budget.total, updates), budget.order, "single"))


@dataclass(frozen=True)
class Promise:
    """A guaranteed plan's number of updates and error bound."""

    updates: int
    error: float


def promise(bound: Callable[[float], float], epsilon: float, delta: float, log_rounds: float) -> Promise:
    """The least B with ``bound(alpha(B)) <= B``, as guaranteed plans take it (T = 3L, alpha = 2L, error 4L, gamma = 1).

    ``log_rounds`` is ln(k/beta): k = V^S may be more than a session can be opened for.
    """

    def noise(updates: int) -> float:
        return noise_scale(epsilon, delta, updates) * log_rounds

    low, high = 0, 1
    while bound(2 * noise(high)) > high:
        low, high = high, 2 * high
    while high - low > max(1, low // 10**6):
        middle = (low + high) // 2
        low, high = (low, middle) if bound(2 * noise(middle)) <= middle else (middle, high)
    return Promise(high, 4 * noise(high))


def root_law(bound: Callable[[float], float], log_rounds: float) -> float:
    """The error bound 4L at the fixed point ``B = bound(2L)`` where ``L = sqrt(B) log_rounds``.

    That is the papers' law of noise, b = c sqrt(B), taken for any real B; the error is sqrt(c) times as much.
    """
    return 2 * math.sqrt(2 * log_rounds * math.sqrt(bound(1.0)))


def least_epsilon(bound: Callable[[float], float], delta: float, log_rounds: float, error: float) -> float | None:
    """About the least epsilon whose guaranteed plan has a smaller error; None up to the largest there may be."""
    low, high = 1e-2, float(GREATEST_EPSILON)
    if promise(bound, high, delta, log_rounds).error > error:
        return None
    while high > 1.05 * low:
        middle = float(f"{math.sqrt(low * high):.3g}")
        if promise(bound, middle, delta, log_rounds).error > error:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Degrees:
    """Degrees of left nodes, each as often as told; V nodes in all on either side."""

    values: FloatArray
    times: FloatArray

    @classmethod
    def of(cls, degrees: IntArray) -> Degrees:
        """One by one."""
        return cls(degrees.astype(np.float64), np.ones(len(degrees)))

    @property
    def nodes(self) -> float:
        """V."""
        return float(self.times.sum())

    @property
    def edges(self) -> float:
        """|E|."""
        return float(self.values @ self.times)


def group_promise(degrees: Degrees, size: int) -> Callable[[float], float]:
    """``zeta^2 R^2/((p-1) alpha^2)`` of the group norm on rows, cuts of ``size`` columns; rows are 0/1 by degree."""
    q = max(2.0, math.log(degrees.nodes))
    p = q / (q - 1)
    rows = np.sqrt(degrees.values)
    radius = float(rows.max()) * float(degrees.times @ (rows / rows.max()) ** p) ** (1 / p)
    zeta = math.sqrt(size) * degrees.nodes ** (1 / q)
    return lambda alpha: (zeta * radius / alpha) ** 2 / (p - 1)


def euclidean_promise(degrees: Degrees, size: int) -> Callable[[float], float]:
    """``zeta^2 R^2/alpha^2`` of FK with the class's own zeta, as JT12 has it (GRU11's is |X| in place of zeta^2)."""
    return lambda alpha: degrees.edges * degrees.nodes * size / alpha**2


def entropy_promise(degrees: Degrees, size: int) -> Callable[[float], float]:
    """``2 zeta^2 n^2 ln d/alpha^2`` with zeta = 1/2, as weights are 0 or 1, and d = V^2."""
    return lambda alpha: (degrees.edges / alpha) ** 2 * math.log(degrees.nodes)


def schatten_promise(singular: FloatArray, cells: int) -> Callable[[float], float]:
    """``zeta^2 R^2/((p-1) alpha^2)`` of the Schatten norm, cuts of so many cells (rank one: zeta is their root)."""
    q = max(2.0, math.log(len(singular)))
    p = q / (q - 1)
    radius = float(singular.max()) * float(((singular / singular.max()) ** p).sum()) ** (1 / p)
    return lambda alpha: cells * (radius / alpha) ** 2 / (p - 1)


PROMISES: dict[str, Callable[[Degrees, int], Callable[[float], float]]] = {
    "mw": entropy_promise,
    "fk": euclidean_promise,
    "group": group_promise,
}


def group_overtakes() -> int:
    """The power of two, V, from which the proven bound of the imbalanced graph is less by group norm than by FK."""
    power = 6
    while True:
        nodes = 2.0**power
        hubs = nodes**0.75
        degrees = Degrees(np.array([nodes, nodes**0.5]), np.array([hubs, nodes - hubs]))
        if group_promise(degrees, 1)(1.0) < euclidean_promise(degrees, 1)(1.0):
            return power
        power += 1


@dataclass(frozen=True)
class Plain:
    """Independent noise on every answer: its scale, a bound that holds with probability 1 - beta, the mean largest."""

    scale: float
    bound: float
    largest: float


def gaussian(epsilon: float, delta: float, queries: int, beta: float) -> Plain:
    """Gaussian answers at the least sigma there is (`app.demo.baseline`)."""
    sigma = gaussian_sigma(epsilon, delta, queries)
    return Plain(sigma, sigma * math.sqrt(2 * math.log(2 * queries / beta)), expected_largest(sigma, queries))


def laplace(epsilon: float, delta: float, queries: int, beta: float) -> Plain:
    """Laplace answers, at the smaller scale of pure composition and of the ledger's order."""
    budget = budget_of(epsilon, delta)

    def fits(scale: float) -> bool:
        try:
            cost = renyi_cost(DiscreteLaplaceAnswer(Decimal(repr(scale)), 1), budget.order)
        except PrivacyError:
            return False
        return cost * queries <= budget.total

    low, high = 1e-3, queries / epsilon
    if fits(high):
        while high > 1.0001 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
    harmonic = math.log(queries) + 0.5772156649 + 1 / (2 * queries)
    return Plain(high, high * math.log(queries / beta), high * harmonic)
