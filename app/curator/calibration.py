"""Calibration: the noise, threshold and price of a session's rounds as functions of its number of updates.

With ``L = b ln(k/beta)`` all k noises stay within L with probability 1 - beta. Then an update's answer is within L
of the truth, a hypothesis' answer within T + L, and an update happens only at a true gap above T - L (the
progress alpha). Best-effort terms take T = 2L; terms of a guaranteed plan take T = 3L, the best ratio as the bound on
updates grows with 1/alpha^2. The papers' own calibrations keep their T = 4b ln(2k/beta).

A Poisson race of mean M takes ``L = b ln(M k/beta)`` and T = 2L either way: hits are within L, misses within T, hits
happen only at a true gap above T - L, all with probability 1 - beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from app.curator.dataset import FACT_FAILURE, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Infeasible, Plan, Race, SessionPlan, Terms
from app.curator.request import SessionRequest
from app.patience import still_wanted
from app.privacy.calibration import gru2011_scale, jt2012_scale, per_hit, scale_for_cost
from app.privacy.costs import GREATEST_LAPLACE_SCALE, ConditionalRelease, Release, renyi_cost
from app.privacy.errors import PrivacyError
from app.privacy.exact import exact_scale, reach
from app.privacy.poisson import distance_delta, race_cut, race_mean, session_part
from app.privacy.race import SAMPLER_DISTANCE

#: The most updates of an exact calibration, whose dynamic program has a stage for each.
MOST_EXACT_UPDATES = 2000
#: The most stages times cells of its array: some three seconds.
MOST_EXACT_WORK = 5_000_000


@dataclass(frozen=True)
class Calibrator:
    """Finds the terms of a session's rounds.

    Attributes:
        dataset: what is public of the data.
        request: the session asked for.
        share: Renyi divergence that all its updates together may cost.
    """

    dataset: PublicDataset
    request: SessionRequest
    share: Decimal

    def possible(self, updates: int, *, guaranteed: bool) -> Terms | None:
        """The terms for so many updates; None where there are none."""
        try:
            return self.terms(updates, guaranteed=guaranteed)
        except (PlanInfeasible, PrivacyError):
            return None

    def terms(self, updates: int, *, guaranteed: bool) -> Terms:
        """The terms for so many updates.

        Raises:
            PlanInfeasible, PrivacyError: when there are none.
        """
        still_wanted()
        request, dataset = self.request, self.dataset
        bits, gamma = dataset.space.answer_bits, dataset.space.sensitivity
        scale = self._scale(updates)
        units = scale * (1 << bits)
        # The bound rests on each fact that was bought lying above the true one.
        failure = request.beta - (FACT_FAILURE * len(dataset.bought) if guaranteed else 0.0)
        if failure <= 0:
            raise PlanInfeasible(f"beta must exceed {FACT_FAILURE:.3g}, the failure of a bought fact")
        race = self.race(failure, updates) if request.release == "race" else None
        comparisons = request.max_queries * (1.0 if race is None else float(race.mean))
        # One unit more than the noise needs: private values and the hypothesis' answers are rounded to the grid.
        bound = math.ceil(float(units) * (1 + 2.0**-40) * math.log(comparisons / failure)) + 1
        if request.calibration in ("jt2012", "gru2011"):
            threshold = math.ceil(4 * float(units) * math.log(2 * request.max_queries / failure))
        else:
            threshold = (3 if guaranteed and race is None else 2) * bound
        if threshold + bound >= 2**62 or units > GREATEST_LAPLACE_SCALE:
            raise PlanInfeasible("the noise passes 62 bits of the answer grid: raise epsilon, or allow fewer updates")
        if request.calibration == "exact":
            # The guarantee is the dynamic program's; the ledger only has to be full when the updates are.
            cost = per_hit(self.share, updates)
        else:
            cost = renyi_cost(ConditionalRelease(scale / gamma, request.release), dataset.budget.order)
        if cost * updates > self.share:
            raise PlanInfeasible("the share does not pay for so many updates at this calibration: raise epsilon")
        return Terms(
            scale=scale,
            noise_bound_units=bound,
            threshold_units=threshold,
            answer_bits=bits,
            max_updates=updates,
            cost_per_update=cost,
            race=race,
        )

    def _scale(self, updates: int) -> Fraction:
        """b in counts."""
        request, budget = self.request, self.dataset.budget
        match request.calibration:
            case "jt2012":
                scale = jt2012_scale(request.epsilon, budget.delta, updates)
            case "gru2011":
                scale = gru2011_scale(request.epsilon, budget.delta, updates)
            case "exact":
                self.check_program(updates)
                scale = _exact_scale(request.epsilon, budget.delta, updates)
            case "rdp":
                scale = _scale_for_cost(per_hit(self.share, updates), budget.order, request.release)
        return Fraction(scale) * self.dataset.space.sensitivity

    def check_program(self, updates: int) -> None:
        """Refuse a program of the exact calibration, before it runs, that is of no use or takes too long.

        Raises:
            PlanInfeasible: saying which.
        """
        budget, epsilon = self.dataset.budget, self.request.epsilon
        if updates > MOST_EXACT_UPDATES:
            raise PlanInfeasible(f"exact calibration goes to {MOST_EXACT_UPDATES:,} updates; use rdp")
        if epsilon != budget.epsilon:
            raise Infeasible(
                f"exact calibration takes the data set's whole epsilon, {budget.epsilon:f}, in one session",
                cause="part-of-epsilon",
            )
        similar = _scale_for_cost(per_hit(budget.total, updates), budget.order, "single")
        cells = reach(1 / float(similar), updates, float(epsilon))
        if cells * updates > MOST_EXACT_WORK:
            raise PlanInfeasible(
                f"exact calibration of {updates:,} updates takes too long at this epsilon: allow at most "
                f"{MOST_EXACT_WORK // cells:,}, or use rdp"
            )

    def race(self, failure: float, updates: int) -> Race:
        """Mean and cut; the cut is paid from the part of delta that this session may use of what was set aside.

        A forfeited round has drawn too. It counts as no query but uses an update.

        Raises:
            PlanInfeasible: when there is not enough of it.
        """
        budget, queries = self.dataset.budget, self.request.max_queries
        draws = queries + updates
        mean = race_mean(queries, Decimal(failure))
        allowed = session_part(budget.set_aside, self.dataset.race_sessions + 1)
        # The sampler's own distance from the Poisson law is paid from the same part.
        sampler = Fraction(distance_delta(SAMPLER_DISTANCE, draws, budget.epsilon))
        if sampler >= allowed:
            raise PlanInfeasible(self._no_race(updates))
        return Race(mean, race_cut(mean, draws, budget.epsilon, allowed - sampler))

    def _no_race(self, updates: int) -> str:
        """The reason that a race cannot be paid for: the data set's epsilon, the queries, or the sessions before."""
        budget, sessions = self.dataset.budget, self.dataset.race_sessions
        each = Fraction(distance_delta(SAMPLER_DISTANCE, 1, budget.epsilon))
        first, now = (session_part(budget.set_aside, ordinal) for ordinal in (1, sessions + 1))
        if 2 * each >= first:
            return (
                "the delta set aside for races pays for none at the data set's epsilon, as how far a race's sampler "
                f"is from the Poisson law counts e^{budget.epsilon:f} times: use single"
            )
        # Half of what there is: the other half pays for the cut.
        most = int(now / each / 2) - updates
        fewer = f"ask at most {most:,} queries, or use single" if most >= 1 else "use single"
        if (self.request.max_queries + updates) * each >= first:
            return f"the delta set aside for races does not pay for so many queries and updates: {fewer}"
        return (
            f"of the delta set aside for races the {sessions:,} sessions with races that the data set has had leave "
            f"too little for so many queries and updates: {fewer}"
        )


def noise_scales(dataset: PublicDataset, request: SessionRequest, plan: SessionPlan) -> dict[str, float | None]:
    """Laplace scales in counts that each calibration would need for a plan's epsilon and number of updates.

    ``exact``, which takes seconds, is given for a plan that is calibrated so. None for other plans, and where a
    calibration has no scale at these parameters.
    """
    if not isinstance(plan, Plan) or plan.direct:  # its noise is no test's
        return dict.fromkeys(("exact", "rdp", "race", "jt2012", "gru2011"))
    budget, updates = dataset.budget, plan.max_updates
    found: dict[str, Fraction | Decimal | None] = {"exact": None}
    if plan.calibration == "exact":
        found["exact"] = _exact_scale(request.epsilon, budget.delta, updates)
    share = per_hit(plan.reserved - (plan.purchase.cost if plan.purchase else 0), updates)
    found["rdp"] = _if_any(lambda: _scale_for_cost(share, budget.order, "single"))
    found["race"] = _if_any(lambda: _scale_for_cost(share, budget.order, "race"))
    found["jt2012"] = jt2012_scale(request.epsilon, budget.delta, updates)
    found["gru2011"] = gru2011_scale(request.epsilon, budget.delta, updates)
    gamma = dataset.space.sensitivity
    return {name: None if scale is None else float(Fraction(scale) * gamma) for name, scale in found.items()}


def _if_any(scale: Callable[[], Decimal]) -> Decimal | None:
    """A scale for comparison, or None where the calibration has none at these parameters."""
    try:
        return scale()
    except PrivacyError:
        return None


@lru_cache(maxsize=4096)
def _scale_for_cost(cost: Decimal, order: Decimal, release: Release) -> Decimal:
    return scale_for_cost(cost, order, release)


@lru_cache(maxsize=1024)
def _exact_scale(epsilon: Decimal, delta: Decimal, updates: int) -> Decimal:
    return exact_scale(epsilon, delta, updates)
