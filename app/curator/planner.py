"""Plans: noise, threshold, error bound and number of updates from public facts alone.

With ``L = b ln(k/beta)`` all k noises stay within L with probability 1 - beta. Then an update's answer is within L
of the truth, a hypothesis' answer within T + L, and an update happens only at a true gap above T - L (the
progress alpha). A best-effort plan is given its number of updates B and takes T = 2L; a guaranteed plan finds the
least B with ``bound(alpha) <= B`` and takes T = 3L, the best ratio as the bound grows with 1/alpha^2. The papers'
own calibrations keep their T = 4b ln(2k/beta).

A Poisson race of mean M takes ``L = b ln(M k/beta)`` and T = 2L either way: hits are within L, misses within T, hits
happen only at a true gap above T - L, all with probability 1 - beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from app.constructions.base import Construction, PublicFacts
from app.constructions.registry import construct, missing, unfit
from app.curator.dataset import FACT_FAILURE, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase, grid_of
from app.curator.request import SessionRequest
from app.privacy.calibration import gru2011_scale, jt2012_scale, per_hit, scale_for_cost
from app.privacy.conversion import epsilon_alone
from app.privacy.costs import ConditionalRelease, Mechanism, PureStep, renyi_cost
from app.privacy.errors import PrivacyError
from app.privacy.exact import exact_scale
from app.privacy.exactness import floor_to
from app.privacy.poisson import distance_delta, race_cut, race_mean, session_part
from app.privacy.race import SAMPLER_DISTANCE
from app.spaces.errors import CuratorError

#: A session that needs a private fact buys it with one part in this many of its share.
PURCHASE_PART = 20
#: The dynamic program of the exact calibration takes time with the number of updates.
MOST_EXACT_UPDATES = 2000
#: No guaranteed plan runs to more updates than this.
MOST_UPDATES = 10**7
#: Largest scale of integer noise that is drawn, in grid units (`app.privacy.noise`).
GREATEST_NOISE = Fraction(2**62, 178)


@dataclass(frozen=True)
class Race:
    """A Poisson race: mean M of the secret number of comparisons, and ``cut``, where that number is cut off."""

    mean: Decimal
    cut: int


@dataclass(frozen=True)
class Plan:
    """What a session will do and promises. Scales and errors with ``_units`` are whole answer-grid units."""

    scale: Fraction  # Laplace scale b in counts, exact
    noise_bound_units: int  # L
    threshold_units: int  # T
    answer_bits: int
    max_updates: int
    max_queries: int
    beta: float
    guaranteed: bool
    epsilon: Decimal
    epsilon_alone: Decimal
    delta: Decimal
    calibration: str
    release: str
    order: Decimal
    cost_per_update: Decimal
    reserved: Decimal
    purchase: Purchase | None
    update_bound: int | None
    step_size: float | None
    race: Race | None = None

    @property
    def noise_scale_units(self) -> Fraction:
        """The scale of the discrete Laplace noise on the answer grid."""
        return self.scale * (1 << self.answer_bits)

    @property
    def noise_bound(self) -> float:
        """L in counts."""
        return math.ldexp(self.noise_bound_units, -self.answer_bits)

    @property
    def error_bound(self) -> float:
        """T + L in counts (T for a race); an answer's own bound adds what rounding of its weights can move."""
        noise = 0 if self.race is not None else self.noise_bound_units
        return math.ldexp(self.threshold_units + noise, -self.answer_bits)

    @property
    def progress(self) -> float:
        """alpha = T - L in counts: an update is made only at a larger true gap."""
        return math.ldexp(self.threshold_units - self.noise_bound_units, -self.answer_bits)

    def document(self) -> dict[str, Any]:
        """As JSON; exact amounts are decimal strings."""
        return {
            "noise_scale": float(self.scale),
            "threshold": math.ldexp(self.threshold_units, -self.answer_bits),
            "error_bound": self.error_bound,
            "noise_bound": self.noise_bound,
            "progress": self.progress,
            "beta": self.beta,
            "max_updates": self.max_updates,
            "max_queries": self.max_queries,
            "guaranteed": self.guaranteed,
            "update_bound": self.update_bound,
            "step_size": self.step_size,
            "epsilon": float(self.epsilon),
            "epsilon_alone": float(self.epsilon_alone),
            "delta": float(self.delta),
            "calibration": self.calibration,
            "release": self.release,
            "race": None if self.race is None else {"mean": float(self.race.mean), "cut": self.race.cut},
            "answer_grid": 2.0**-self.answer_bits,
            "order": str(self.order),
            "cost_per_update": str(self.cost_per_update),
            "reserved": str(self.reserved),
            "purchase": None
            if self.purchase is None
            else {
                self.purchase.fact: {
                    "epsilon": str(self.purchase.epsilon),
                    "cost": str(self.purchase.cost),
                    "noise_scale": self.purchase.noise_scale,
                }
            },
        }


def purchase_of(dataset: PublicDataset, fact: str, share: Decimal) -> Purchase:
    """What buying a fact with a twentieth of a share gets: about the largest pure epsilon whose cost fits.

    A pure e-DP step costs at most ``min(e, a e^2/2)`` at order a.
    """
    budget = dataset.budget
    allowed = Fraction(share) / PURCHASE_PART
    order = Fraction(budget.order)
    root = Fraction(Decimal(float(2 * allowed / order)).sqrt()) * Fraction(999_999_999, 1_000_000_000)
    epsilon = floor_to(max(allowed, root), Decimal("1e-15"))
    if epsilon <= 0:
        raise PlanInfeasible(f"this share of epsilon is too small to buy the {fact} that the construction needs")
    purchase = Purchase(fact, epsilon, renyi_cost(PureStep(epsilon), budget.order), *grid_of(dataset.space, fact))
    if purchase.scale_units > GREATEST_NOISE:
        raise PlanInfeasible(f"this share of epsilon is too small to buy the {fact} that the construction needs")
    return purchase


def make_plan(dataset: PublicDataset, request: SessionRequest) -> Plan:
    """The plan of a session. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible: when the guarantee asked for cannot be kept; the extras say which single change of
            epsilon, max_queries, beta or records would do.
    """
    budget, space = dataset.budget, dataset.space
    reason = unfit(request.mechanism, space)
    if reason is not None:
        raise PlanInfeasible(reason)
    try:
        share = budget.share(request.epsilon)
        purchase = None
        fact = missing(request.mechanism, space, dataset.facts)
        if fact is not None:
            purchase = purchase_of(dataset, fact, share)
        if request.calibration == "exact":
            _check_exact(dataset, request, purchase)
        planner = _Planner(dataset, request, share - (purchase.cost if purchase else 0))
        if request.max_updates is not None:
            plan = planner.at(request.max_updates, guaranteed=False)
        else:
            plan = planner.guaranteed()
        steps: list[tuple[Mechanism, int]] = [
            (ConditionalRelease(plan.scale / space.sensitivity, request.release), plan.max_updates)
        ]
        if purchase is not None:
            steps.append((PureStep(purchase.epsilon), 1))
        kept = Fraction(budget.delta) - budget.set_aside
        alone = request.epsilon if request.calibration == "exact" else _epsilon_alone(tuple(steps), kept)
    except PrivacyError as error:
        raise PlanInfeasible(str(error)) from None
    reason = planner.infeasible(plan)
    if reason is not None:
        raise PlanInfeasible(reason)
    return replace(plan, reserved=share, purchase=purchase, epsilon_alone=alone)


def noise_scales(dataset: PublicDataset, request: SessionRequest, plan: Plan) -> dict[str, float | None]:
    """Laplace scales in counts that each calibration would need for a plan's epsilon and number of updates.

    ``exact`` is what the whole (epsilon, delta) of the data set would need if it were this session's epsilon
    alone; None where a calibration does not go so far.
    """
    budget, updates = dataset.budget, plan.max_updates
    found: dict[str, Fraction | Decimal | None] = {"exact": None}
    if updates <= MOST_EXACT_UPDATES:
        found["exact"] = _if_any(lambda: _exact_scale(request.epsilon, budget.delta, updates))
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
def _epsilon_alone(steps: tuple[tuple[Mechanism, int], ...], delta: Fraction) -> Decimal:
    """Sessions of one plan are loaded again and again; the search over orders is made once."""
    return epsilon_alone(steps, delta)[0]


@lru_cache(maxsize=4096)
def _scale_for_cost(cost: Decimal, order: Decimal, release: Literal["single", "race"]) -> Decimal:
    return scale_for_cost(cost, order, release)


@lru_cache(maxsize=1024)
def _exact_scale(epsilon: Decimal, delta: Decimal, updates: int) -> Decimal:
    return exact_scale(epsilon, delta, updates)


def _check_exact(dataset: PublicDataset, request: SessionRequest, purchase: Purchase | None) -> None:
    """``exact`` counts a data set's whole (epsilon, delta) as one session of hits, so nothing else may be in it."""
    if request.epsilon != dataset.budget.epsilon:
        raise PlanInfeasible(
            "exact calibration takes the data set's whole epsilon in one session",
            epsilon=float(dataset.budget.epsilon),
        )
    if purchase is not None:
        raise PlanInfeasible(
            f"exact calibration leaves nothing to buy the {purchase.fact} with: declare the records public, or use rdp"
        )


class _Planner:
    """Noise and thresholds as functions of the number of updates."""

    def __init__(self, dataset: PublicDataset, request: SessionRequest, share: Decimal) -> None:
        self.dataset, self.request, self.share = dataset, request, share
        self.bits = dataset.space.answer_bits

    def _scale(self, updates: int, epsilon: Decimal) -> Fraction:
        """b in counts."""
        request, budget = self.request, self.dataset.budget
        match request.calibration:
            case "jt2012":
                scale = jt2012_scale(epsilon, budget.delta, updates)
            case "gru2011":
                scale = gru2011_scale(epsilon, budget.delta, updates)
            case "exact":
                if updates > MOST_EXACT_UPDATES:
                    raise PlanInfeasible(f"exact calibration goes to {MOST_EXACT_UPDATES:,} updates; use rdp")
                scale = _exact_scale(epsilon, budget.delta, updates)
            case _:
                scale = _scale_for_cost(per_hit(self.share, updates), budget.order, request.release)
        return Fraction(scale) * self.dataset.space.sensitivity

    def at(self, updates: int, *, guaranteed: bool) -> Plan:
        """The plan with the given number of updates."""
        request, budget, space = self.request, self.dataset.budget, self.dataset.space
        scale = self._scale(updates, request.epsilon)
        units = scale * (1 << self.bits)
        # The bound rests on each fact that was bought lying above the true one.
        failure = request.beta - (FACT_FAILURE * len(self.dataset.bought) if guaranteed else 0.0)
        if failure <= 0:
            raise PlanInfeasible(f"beta must exceed {FACT_FAILURE:.3g}, the failure of a bought fact")
        race = self._race(failure, updates) if request.release == "race" else None
        rounds = request.max_queries * (1.0 if race is None else float(race.mean))
        # One unit more than the noise needs: private values and the hypothesis' answers are rounded to the grid.
        bound = math.ceil(float(units) * (1 + 2.0**-40) * math.log(rounds / failure)) + 1
        if request.calibration in ("jt2012", "gru2011"):
            threshold = math.ceil(4 * float(units) * math.log(2 * request.max_queries / failure))
        else:
            threshold = (3 if guaranteed and race is None else 2) * bound
        if threshold + bound >= 2**62 or units > GREATEST_NOISE:
            raise PlanInfeasible("the noise passes 62 bits of the answer grid: raise epsilon, or allow fewer updates")
        if request.calibration == "exact":
            # The guarantee is the dynamic program's; the ledger only has to be full when the updates are.
            cost = per_hit(self.share, updates)
        else:
            cost = renyi_cost(ConditionalRelease(scale / space.sensitivity, request.release), budget.order)
        if cost * updates > self.share:
            raise PlanInfeasible("the share does not pay for so many updates at this calibration: raise epsilon")
        plan = Plan(
            scale=scale,
            noise_bound_units=bound,
            threshold_units=threshold,
            answer_bits=self.bits,
            max_updates=updates,
            max_queries=request.max_queries,
            beta=request.beta,
            guaranteed=guaranteed,
            epsilon=request.epsilon,
            epsilon_alone=Decimal(0),
            delta=budget.delta,
            calibration=request.calibration,
            release=request.release,
            order=budget.order,
            cost_per_update=cost,
            reserved=self.share,
            purchase=None,
            update_bound=None,
            step_size=None,
            race=race,
        )
        return replace(plan, update_bound=self._bound(plan), step_size=self._step(plan))

    def _race(self, failure: float, updates: int) -> Race:
        """Mean and cut; the cut is paid from the part of delta that this session may use of what was set aside.

        A forfeited round has drawn too. It counts as no query but uses an update.
        """
        budget, queries = self.dataset.budget, self.request.max_queries
        draws = queries + updates
        mean = race_mean(queries, Decimal(failure))
        allowed = session_part(budget.set_aside, self.dataset.race_sessions + 1)
        # The sampler's own distance from the Poisson law is paid from the same part.
        sampler = Fraction(distance_delta(SAMPLER_DISTANCE, draws, budget.epsilon))
        if sampler >= allowed:
            raise PlanInfeasible("the delta set aside for races is used up by so many sessions and queries: use single")
        return Race(mean, race_cut(mean, draws, budget.epsilon, allowed - sampler))

    def _construction(self, plan: Plan, facts: PublicFacts | None = None) -> Construction:
        request, dataset = self.request, self.dataset
        return construct(request.mechanism, dataset.space, facts or dataset.facts, plan.progress, request.max_queries)

    def _bound(self, plan: Plan) -> int | None:
        if plan.threshold_units <= plan.noise_bound_units:
            return None
        bound = self._construction(plan).bound(plan.progress)
        return None if bound is None or bound > MOST_UPDATES else math.floor(bound)

    def _step(self, plan: Plan) -> float | None:
        if missing(self.request.mechanism, self.dataset.space, self.dataset.facts) is not None:
            return None
        return self._construction(plan).step_size(plan.progress)

    def infeasible(self, plan: Plan) -> str | None:
        """Why the construction cannot hold its hypothesis under this plan, or None."""
        return self._construction(plan).infeasible

    def guaranteed(self) -> Plan:
        """The least number of updates that the construction's own bound does not pass."""
        mass, mechanism = self.dataset.mass_bound, self.request.mechanism
        if mechanism.unbounded is not None:
            raise PlanInfeasible(f"{mechanism.unbounded}: give max_updates")
        fact = missing(mechanism, self.dataset.space, self.dataset.facts)
        if fact is not None or self._construction_bound(1.0) is None:
            if mechanism.norm(self.dataset.space) is not None:
                raise PlanInfeasible(
                    "a guaranteed plan needs a bound on the norm of the data: open a session with ball_p and "
                    "max_updates that buys it first"
                )
            raise PlanInfeasible(
                "a guaranteed plan needs the number of records: declare it public, or open a session with "
                "max_updates that buys it first"
            )

        def enough(updates: int) -> bool:
            bound = self.at(updates, guaranteed=True).update_bound
            return bound is not None and bound <= updates

        least = _least(enough, MOST_UPDATES)
        if least is not None:
            plan = self.at(least, guaranteed=True)
            if plan.error_bound < mass:
                return plan
        raise PlanInfeasible(
            "no number of updates keeps the error below the whole mass: raise epsilon or beta, ask fewer "
            "queries, or bring more records (each figure given would do alone, about)",
            **self._remedies(mass),
        )

    def _remedies(self, mass: float) -> dict[str, object]:
        """About how far one of epsilon, max_queries, beta, records would have to go, the others kept.

        Whether a guaranteed plan exists shows at the updates that the bound allows for an error of the whole mass:
        with fewer the bound is not met, and more of them make more noise. None where nothing would do.
        """
        request, dataset = self.request, self.dataset

        def error(epsilon: Decimal, n: float) -> float:
            """The error at those updates, as a part of the mass."""
            if n <= 0:
                return math.inf
            share = floor_to(Fraction(self.share) * Fraction(epsilon) / Fraction(request.epsilon))
            planner = _Planner(dataset.with_mass(n), request.model_copy(update={"epsilon": epsilon}), share)
            try:
                least = planner.at(1, guaranteed=True)
                bound = planner._construction_bound(n * least.progress / least.error_bound)
                if bound is None or bound > MOST_UPDATES:
                    return math.inf
                return planner.at(max(1, math.ceil(bound)), guaranteed=True).error_bound / n
            except (CuratorError, PrivacyError):
                return math.inf

        def stretched(s: float) -> Decimal:
            return Decimal(f"{float(request.epsilon) * s:.9g}")

        # Noises that must keep their bound all together; a race takes about as many a query, whatever else changes.
        noises = 1.0 if request.release == "single" else float(race_mean(request.max_queries, Decimal(request.beta)))
        shorter = math.log(noises * request.max_queries / request.beta) / max(error(request.epsilon, mass), 1.0)
        queries = math.floor(request.beta / noises * math.exp(shorter))
        beta = noises * request.max_queries * math.exp(-shorter)
        room = float(dataset.budget.epsilon / request.epsilon)
        stretch = _least_real(lambda s: error(stretched(s), mass) < 1, 1.0, room) if room > 1 else None
        more = None
        if dataset.facts.mass is not None:
            more = _least_real(lambda s: error(request.epsilon, mass * s) < 1, 1.0, 1e9)
        return {
            "epsilon": float(stretched(stretch)) if stretch else None,
            "max_queries": queries if queries >= 1 else None,
            "beta": beta if beta < 1 else None,
            "records": math.ceil(mass * more) if more else None,
        }

    def _construction_bound(self, progress: float) -> float | None:
        """Most updates at a progress; None where the construction knows no bound yet."""
        dataset, request = self.dataset, self.request
        return construct(request.mechanism, dataset.space, dataset.facts, progress, request.max_queries).bound(progress)


def _least(holds: Callable[[int], bool], most: int) -> int | None:
    """The least whole number for which a monotone condition holds, or None up to ``most``."""
    low, high = 0, 1
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(most, high * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _least_real(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """About the least factor for which a monotone condition holds, or None up to ``high``."""
    if not holds(high):
        return None
    while high > 1.005 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
