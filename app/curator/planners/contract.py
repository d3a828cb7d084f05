"""Contract sessions: how whole marginals are tested, and what is measured behind a hit.

A test holds ``g``, the sum over a marginal's cells of how far the counts are from what the session expects of them,
against a threshold T, with discrete Laplace noise of scale b. With k the number of queries, ``L = b ln(k/beta)`` (of a
Poisson race of mean M: ``L = b ln(M k/beta)``) and T = 2L, all misses tell ``g <= T + L`` (``T``), but for a
probability of beta/2. Behind a hit the marginal is measured with discrete Gaussian noise of scale 3b/2: that takes
about a fifth of what the hit costs (a third in a race), and errs far less than a miss may. The other half of beta is
shared by the B measurements.

A session that does not say how many updates it wants has as many as there are marginals of up to three attributes, and
no more than it has queries: the least number, and so the smallest error bound, with which each of them, or each
question, can be measured once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from app.bisection import least_integer_near
from app.curator.calibration import Calibrator
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer, Terms
from app.curator.planners.table import TablePlan, check_table, gaussian_of
from app.curator.request import SessionRequest
from app.measurements.noise_search import LEAST_SCALE
from app.policies.table import CELL_REACH, ONE_WAYS_PART
from app.privacy.calibration import DIGITS, per_hit, scale_for_cost
from app.privacy.costs import (
    GREATEST_LAPLACE_SCALE,
    ConditionalRelease,
    DiscreteGaussianAnswer,
    PrivacyEvent,
    Release,
    renyi_cost,
)
from app.privacy.exactness import EXACT
from app.privacy.ledger import Amounts
from app.spaces.space import Space

#: The most cells that are tested at a time: what the session expects of them is kept in the transcript.
MOST_TESTED = 1 << 16
#: The scale of a measurement's noise, in scales of the test's.
MEASURED = Fraction(3, 2)
#: The part of L by which answers may lie beside what was tested, before they are tested anew.
DRIFT = Fraction(1, 4)
#: Marginals of so many attributes are counted where the number of updates is left open.
_ORDER = 3
_HOW = (
    "each question is held against the data first, which costs nothing where all that was measured answers it within "
    "the error bound, and measured else"
)
#: What floats in a bound may add up to: this part more.
_UP = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Contract(Terms):
    """The terms of a contract session; all is in whole counts, as its grid has no bits.

    Attributes:
        max_queries: k.
        beta: the probability with which some bound fails.
        halved: whether the number of records is public: of weights between 0 and 1 a miss then tells twice as much.
    """

    max_queries: int
    beta: float
    halved: bool

    @property
    def gap(self) -> int:
        """The gap that a miss certifies: the counts of the tested cells differ by so much at most, all of them
        together.
        """
        return self.threshold_units + (0 if self.race is not None else self.noise_bound_units)

    @property
    def measured_scale(self) -> Fraction:
        """Sigma of a measurement behind a hit."""
        return MEASURED * self.scale

    @property
    def drift(self) -> int:
        """How far an answer may lie from what was tested."""
        return math.ceil(DRIFT * self.noise_bound_units)

    def reach(self, numbers: int) -> float:
        """How far so many noises of a measurement, or sums of them with weights of length 1, are from 0 at most.

        Discrete Gaussian noise is subgaussian with parameter sigma (Canonne, Kamath, Steinke 2020, corollary 17). A
        measurement's part of beta is ``beta/(2B)``: a half of that for the numbers that were asked for, and a quarter
        each for all cells by themselves and added up.
        """
        return float(self.measured_scale) * math.sqrt(2 * math.log(2 * numbers / self._quarter)) * _UP

    def noise_gap(self, cells: int) -> float:
        """How far so many noises of a measurement are from 0 at most, added up.

        That is the largest of their sums with any signs, each of which is subgaussian with parameter
        ``sqrt(cells) sigma``; there are ``2^cells`` of them.
        """
        tail = cells * math.log(2) - math.log(self._quarter)
        return float(self.measured_scale) * math.sqrt(2 * cells * tail) * _UP

    @property
    def _quarter(self) -> float:
        return self.beta / (8 * self.max_updates)

    @property
    def error_bound(self) -> float:
        """The bound that every answer keeps that is a count: of the records that satisfy a condition, or in a cell.

        Its own bound tells what another one keeps.
        """
        missed = (self.gap / 2 if self.halved else self.gap) + self.drift
        hit = self.reach(MOST_TESTED) + CELL_REACH * float(self.measured_scale)
        return max(missed, hit)


@dataclass(frozen=True, kw_only=True)
class ContractPlan(TablePlan):
    """The plan of a contract session; ``contract`` has the terms of its tests."""

    contract: Contract

    @property
    def error_bound(self) -> float:
        """The contract's."""
        return self.contract.error_bound

    def document(self) -> dict[str, Any]:
        """As JSON: with the terms of tests. Threshold, bounds and drift are in counts."""
        terms = self.contract
        return super().document() | {
            "noise": "laplace",
            "noise_scale": float(terms.scale),
            "measured_scale": float(terms.measured_scale),
            "threshold": terms.threshold_units,
            "noise_bound": terms.noise_bound,
            "drift": terms.drift,
            "progress": terms.progress,
            "race": None if terms.race is None else terms.race.document(),
            "cost_per_update": str(terms.cost_per_update),
        }


def contract(dataset: PublicDataset, request: SessionRequest) -> Offer[ContractPlan]:
    """The offer of a session that answers from evidence of a table and keeps a bound of all answers at once.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such session.
    """
    check_table(dataset, request)
    share = dataset.share(request.epsilon)
    terms = _terms(dataset, request, share)
    hit = events_of_hit(terms.scale, request.release, dataset.gamma)
    one_ways = gaussian_of(Fraction(str(ONE_WAYS_PART)) * Fraction(share), dataset.budget.order)
    return Offer(
        plan=partial(
            ContractPlan,
            max_updates=terms.max_updates,
            mode="contract",
            how=_HOW,
            declared=request.declared,
            race=terms.race,
            contract=terms,
        ),
        most=Amounts(share),
        events=((one_ways, 1), *((event, terms.max_updates) for event in hit)),
    )


def price_of_hit(scale: Fraction, release: Release, order: Decimal, gamma: int) -> Decimal:
    """The cost of a test and of the measurement behind its hit at an order; a miss costs nothing."""
    test, measured = events_of_hit(scale, release, gamma)
    return EXACT.add(renyi_cost(test, order), renyi_cost(measured, order))


def events_of_hit(scale: Fraction, release: Release, gamma: int) -> tuple[PrivacyEvent, PrivacyEvent]:
    """A test of this scale in counts, and the measurement behind its hit. Neighbours differ in gamma records, each of
    which moves either by one.
    """
    return ConditionalRelease(scale / gamma, release), DiscreteGaussianAnswer(MEASURED * scale, gamma**2)


def _terms(dataset: PublicDataset, request: SessionRequest, share: Decimal) -> Contract:
    """The terms of a contract session with this share.

    Raises:
        PlanInfeasible, PrivacyError: when no noise fits.
    """
    updates = request.max_updates or _updates(dataset.space, request.max_queries)
    tests = per_hit(EXACT.multiply(share, Decimal(1) - Decimal(str(ONE_WAYS_PART))), updates)
    scale = _scale(tests, dataset.budget.order, request.release) * dataset.gamma
    race = None
    if request.release == "race":
        race = Calibrator(dataset, request, share).race(request.beta, updates)
    comparisons = request.max_queries * (1.0 if race is None else float(race.mean))
    bound = math.ceil(float(scale) * _UP * math.log(comparisons / request.beta))
    if scale > GREATEST_LAPLACE_SCALE or bound >= 2**58:
        raise PlanInfeasible("the noise of a test passes 62 bits: raise epsilon, or allow fewer updates")
    return Contract(
        scale=scale,
        noise_bound_units=bound,
        threshold_units=2 * bound,
        answer_bits=0,
        max_updates=updates,
        cost_per_update=price_of_hit(scale, request.release, dataset.budget.order, dataset.gamma),
        race=race,
        max_queries=request.max_queries,
        beta=request.beta,
        halved=dataset.records is not None,
    )


def _updates(space: Space, queries: int) -> int:
    """How many updates there are where none are asked for."""
    attributes = sum(size > 1 for size in space.shape)
    return min(queries, max(1, sum(math.comb(attributes, order) for order in range(1, _ORDER + 1))))


@lru_cache(maxsize=1024)
def _scale(cost: Decimal, order: Decimal, release: Release) -> Fraction:
    """The least scale b, of 15 digits and in units of gamma, with which a hit costs no more: its price is that of the
    same scale where gamma is one.

    Raises:
        InvalidBudget: when none up to 1e24 does.
    """
    least = max(scale_for_cost(cost, order, release), Decimal(str(LEAST_SCALE)))
    unit = Decimal(1).scaleb(least.adjusted() - DIGITS + 1)

    def meets(count: int) -> bool:
        return price_of_hit(count * Fraction(unit), release, order, 1) <= cost

    first = int(least / unit)
    # The test costs more than the measurement, and half as much with less than twice the scale.
    found = least_integer_near(meets, first + first // 8, first, 64 * first)
    assert found is not None
    return found * Fraction(unit)
