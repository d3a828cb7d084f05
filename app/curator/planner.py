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

from app.constructions.base import BOUNDED_STEPS, Construction
from app.constructions.mechanism import Mechanism as AnyMechanism
from app.constructions.registry import construct, missing, unfit
from app.curator.dataset import FACT_FAILURE, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase, grid_of
from app.curator.remedies import Change, guaranteed_changes, least_real, listed, smaller_sets
from app.curator.request import SessionRequest
from app.privacy.calibration import gru2011_scale, jt2012_scale, per_hit, scale_for_cost
from app.privacy.conversion import epsilon_alone
from app.privacy.costs import ConditionalRelease, Mechanism, PureStep, renyi_cost
from app.privacy.errors import PrivacyError
from app.privacy.exact import exact_scale, reach
from app.privacy.exactness import floor_to
from app.privacy.ledger import Budget
from app.privacy.patience import still_wanted
from app.privacy.poisson import distance_delta, race_cut, race_mean, session_part
from app.privacy.race import SAMPLER_DISTANCE
from app.spaces.errors import CuratorError
from app.spaces.space import Space

#: A session that needs a private fact buys it with one part in this many of its share.
PURCHASE_PART = 20
#: The dynamic program of the exact calibration takes time with the number of updates.
MOST_EXACT_UPDATES = 2000
#: And with the cells of its array, each of which every stage takes a few times over: some three seconds.
MOST_EXACT_WORK = 5_000_000
#: No guaranteed plan runs to more updates than this.
MOST_UPDATES = 10**7
#: What ``update_bound`` says, or why it says nothing:
#: ``bound`` (the worst-case number of updates at this plan's progress), ``above-limit`` (there is such a number, and it
#: passes MOST_UPDATES), ``fact-unknown`` (it depends on a mass or norm that is not public, which this session buys at
#: opening or another one must), ``no-worst-case-bound`` (a step or form without any promise on its updates).
BoundStatus = Literal["bound", "above-limit", "fact-unknown", "no-worst-case-bound"]
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
    bound_status: BoundStatus
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
        """As JSON, as a transcript's header keeps it; exact amounts are decimal strings."""
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

    def reply(self) -> dict[str, Any]:
        """As JSON for those who ask: with what ``update_bound`` says, or why it says nothing."""
        return {**self.document(), "bound_status": self.bound_status}


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
        PlanInfeasible: when the guarantee asked for cannot be kept, or the hypothesis cannot be held; the extras give
            single changes, each of which was tried and does.
    """
    try:
        return _make_plan(dataset, request)
    except (_NoGuarantee, _TooLarge, _NotWhole) as refused:
        if request.calibration == "exact":
            raise _no_exact(dataset, request, refused) from None
        if isinstance(refused, _TooLarge):
            raise _too_large(dataset, request, refused) from None
        raise _no_guarantee(dataset, request) from None


class _NoGuarantee(PlanInfeasible):
    """No number of updates keeps the error below the mass; what would is yet to be found."""


class _NotWhole(PlanInfeasible):
    """An exact session asked for less than the data set's epsilon."""


class _TooLarge(PlanInfeasible):
    """The construction cannot hold its hypothesis; what would is yet to be found."""

    def __init__(self, construction: Construction) -> None:
        super().__init__(construction.infeasible or "")
        self.construction = construction


def _make_plan(dataset: PublicDataset, request: SessionRequest) -> Plan:
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
        if request.calibration == "exact" and purchase is not None:
            raise PlanInfeasible(_nothing_to_buy_with(dataset, purchase))
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
    construction = planner.construction(plan)
    if construction.infeasible is not None:
        raise _TooLarge(construction)
    return replace(plan, reserved=share, purchase=purchase, epsilon_alone=alone)


def _made(dataset: PublicDataset, request: SessionRequest) -> Plan | None:
    """The plan, or None where it is refused for whatever reason: how remedies are tried."""
    try:
        return _make_plan(dataset, request)
    except (CuratorError, PrivacyError):
        return None


def _no_guarantee(dataset: PublicDataset, request: SessionRequest) -> PlanInfeasible:
    """The refusal of a guarantee, with the single changes that were tried and would do."""

    def works(change: Change) -> bool:
        return _made(*change) is not None

    text, most = "no number of updates keeps the error below the whole mass", None
    reason = None
    if dataset.mass_bound:
        construction, _ = _planner(dataset, request).at_whole_mass()
        reason, most = construction.infeasible, construction.most_cells
    found = guaranteed_changes(dataset, request, most, promising=_promising, works=works)
    instead = "" if reason is None else _instead(dataset, request)
    return PlanInfeasible(f"{reason or text}: {listed(found)}{instead}", **found)


def _no_exact(dataset: PublicDataset, request: SessionRequest, refused: PlanInfeasible) -> PlanInfeasible:
    """The refusal of an exact calibration. Changes are tried with ``rdp`` alone, whose noise is a few percent more:
    each would take programs of its own, which take seconds."""
    instead = request.model_copy(update={"calibration": "rdp"})
    try:
        make_plan(dataset, instead)
    except PlanInfeasible as reason:
        return PlanInfeasible(f"{refused.detail}; with rdp: {reason.detail}")
    return PlanInfeasible(f"{refused.detail}; or use rdp, which has a plan")


def _too_large(dataset: PublicDataset, request: SessionRequest, refused: _TooLarge) -> PlanInfeasible:
    """The refusal of a hypothesis that cannot be held, with the single changes that were tried and would do."""
    instead, most = _instead(dataset, request), refused.construction.most_cells
    if most is None:
        return PlanInfeasible(refused.detail + instead)

    def fits(change: Change) -> bool:
        """Whether the state fits, or there is so much noise that there is no plan at all."""
        dataset, request = change
        try:
            planner = _planner(dataset, request)
            plan = planner.at(request.max_updates or 1, guaranteed=False)
        except (CuratorError, PrivacyError):
            return True
        return planner.construction(plan).infeasible is None

    def works(change: Change) -> bool:
        plan = _made(*change)
        return plan is not None and plan.error_bound < change[0].mass_bound

    found = smaller_sets(dataset, request, most, promising=fits, works=works)
    return PlanInfeasible(f"{refused.detail}: {listed(found)}{instead}", **found)


def _instead(dataset: PublicDataset, request: SessionRequest) -> str:
    """Other mechanisms that hold a hypothesis where this one cannot."""
    updates = request.max_updates or 1
    for words, name in (
        ({"construction": "median", "sampled": True}, "the sampled form"),
        ({"construction": "mw"}, "mw"),
    ):
        mechanism = request.mechanism.model_validate(words)
        if _made(dataset, request.model_copy(update={"mechanism": mechanism, "max_updates": updates})) is not None:
            return f"; or use {name}" + ("" if request.max_updates else " with max_updates")
    return ""


def _promising(change: Change) -> bool:
    """Whether a guaranteed plan is to be expected. About: :func:`_make_plan` then tells.

    Whether there is one shows at the updates that the bound allows for an error of the whole mass: with fewer the
    bound is not met, and more of them make more noise.
    """
    dataset, request = change
    try:
        planner, mass = _planner(dataset, request), dataset.mass_bound
        if not mass:
            return False
        construction, progress = planner.at_whole_mass()
        bound = construction.bound(progress)
        if bound is None or bound > MOST_UPDATES or construction.infeasible is not None:
            return False
        return planner.at(max(1, math.ceil(bound)), guaranteed=True).error_bound < mass
    except (CuratorError, PrivacyError):
        return False


def worst_case(
    dataset: PublicDataset, mechanism: AnyMechanism, progress: float, queries: int
) -> tuple[int | None, BoundStatus]:
    """The most updates there can be when each is made at a true gap above ``progress`` counts, or why none is told."""
    if mechanism.unbounded is not None or progress <= 0:
        return None, "no-worst-case-bound"
    bound = construct(mechanism, dataset.space, dataset.facts, progress, queries).bound(progress)
    if bound is None:
        return None, "fact-unknown"
    return (None, "above-limit") if bound > MOST_UPDATES else (math.floor(bound), "bound")


def certain_error(dataset: PublicDataset, request: SessionRequest, plan: Plan) -> float | None:
    """The least error, in counts, that this plan's noise and number of updates keep for all its queries for certain.

    That is the plan's own error bound where its updates last for all queries: in a guaranteed plan, and where the
    worst-case bound at the plan's progress is no more than ``max_updates``. Else the error that a threshold would have
    to make, so wide that the bound is met: its progress alpha is the least with ``bound(alpha) <= max_updates``, and
    the error is further by as much. None where there is no such bound. A mass that is not public counts as the
    largest that it can be.
    """
    if plan.guaranteed:
        return plan.error_bound
    if request.mechanism.unbounded is not None:
        return None
    facts = dataset.facts
    if facts.mass is None:
        facts = replace(facts, mass=dataset.mass_bound, padded=True)

    def lasts(progress: float) -> bool:
        construction = construct(request.mechanism, dataset.space, facts, progress, request.max_queries)
        bound = construction.bound(progress)
        return bound is not None and math.floor(bound) <= plan.max_updates

    least = plan.progress
    if least <= 0:
        return None
    if lasts(least):
        return plan.error_bound
    high = 2 * least
    while not lasts(high):
        if high > 2.0**100:
            return None
        high *= 2
    found = least_real(lasts, high / 2, high, 1 + 1e-6)
    assert found is not None
    return plan.error_bound + found - least


def noise_scales(dataset: PublicDataset, request: SessionRequest, plan: Plan) -> dict[str, float | None]:
    """Laplace scales in counts that each calibration would need for a plan's epsilon and number of updates.

    ``exact``, which takes seconds, is told of a plan that has it; None elsewhere, and where a calibration does not go
    so far.
    """
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
def _epsilon_alone(steps: tuple[tuple[Mechanism, int], ...], delta: Fraction) -> Decimal:
    """Sessions of one plan are loaded again and again; the search over orders is made once."""
    return epsilon_alone(steps, delta)[0]


@lru_cache(maxsize=4096)
def _scale_for_cost(cost: Decimal, order: Decimal, release: Literal["single", "race"]) -> Decimal:
    return scale_for_cost(cost, order, release)


@lru_cache(maxsize=1024)
def _exact_scale(epsilon: Decimal, delta: Decimal, updates: int) -> Decimal:
    return exact_scale(epsilon, delta, updates)


def _nothing_to_buy_with(dataset: PublicDataset, purchase: Purchase) -> str:
    """``exact`` counts a data set's whole (epsilon, delta) as one session of hits, so nothing else may be in it."""
    instead = "" if purchase.fact != "mass" or dataset.spec.kind == "matrix" else "declare the records public, or "
    return f"exact calibration leaves nothing to buy the {purchase.fact} with: {instead}use rdp"


def _check_exact(budget: Budget, epsilon: Decimal, updates: int) -> None:
    """Refuse an exact program that is of no use or takes too long, before it runs."""
    if updates > MOST_EXACT_UPDATES:
        raise PlanInfeasible(f"exact calibration goes to {MOST_EXACT_UPDATES:,} updates; use rdp")
    if epsilon != budget.epsilon:
        raise _NotWhole(f"exact calibration takes the data set's whole epsilon, {budget.epsilon:f}, in one session")
    cells = reach(
        1 / float(_scale_for_cost(per_hit(budget.total, updates), budget.order, "single")), updates, float(epsilon)
    )
    if cells * updates > MOST_EXACT_WORK:
        raise PlanInfeasible(
            f"exact calibration of {updates:,} updates takes too long at this epsilon: allow at most "
            f"{MOST_EXACT_WORK // cells:,}, or use rdp"
        )


def _planner(dataset: PublicDataset, request: SessionRequest) -> _Planner:
    """With the whole share for updates."""
    return _Planner(dataset, request, dataset.budget.share(request.epsilon))


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
                _check_exact(budget, epsilon, updates)
                scale = _exact_scale(epsilon, budget.delta, updates)
            case _:
                scale = _scale_for_cost(per_hit(self.share, updates), budget.order, request.release)
        return Fraction(scale) * self.dataset.space.sensitivity

    def at(self, updates: int, *, guaranteed: bool) -> Plan:
        """The plan with the given number of updates."""
        still_wanted()
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
            bound_status="no-worst-case-bound",
            step_size=None,
            race=race,
        )
        most, status = worst_case(self.dataset, request.mechanism, plan.progress, plan.max_queries)
        return replace(plan, update_bound=most, bound_status=status, step_size=self._step(plan))

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
            raise PlanInfeasible(self._no_race(updates))
        return Race(mean, race_cut(mean, draws, budget.epsilon, allowed - sampler))

    def _no_race(self, updates: int) -> str:
        """What keeps a race from being paid for: the data set's epsilon, the queries, or the sessions before."""
        budget, sessions = self.dataset.budget, self.dataset.race_sessions
        each = Fraction(distance_delta(SAMPLER_DISTANCE, 1, budget.epsilon))
        first, now = (session_part(budget.set_aside, ordinal) for ordinal in (1, sessions + 1))
        if 2 * each >= first:
            return (
                "the delta set aside for races pays for none at the data set's epsilon, as how far a race's sampler "
                f"is from the Poisson law counts e^{budget.epsilon:f} times: use single"
            )
        # Half of what there is: the rest pays for the cut.
        most = int(now / each / 2) - updates
        fewer = f"ask at most {most:,} queries, or use single" if most >= 1 else "use single"
        if (self.request.max_queries + updates) * each >= first:
            return f"the delta set aside for races does not pay for so many queries and updates: {fewer}"
        return (
            f"of the delta set aside for races the {sessions:,} sessions with races that the data set has had leave "
            f"too little for so many queries and updates: {fewer}"
        )

    def construction(self, plan: Plan) -> Construction:
        """The construction that would keep the plan's hypothesis."""
        return self._at_progress(plan.progress)

    def _at_progress(self, progress: float) -> Construction:
        request, dataset = self.request, self.dataset
        return construct(request.mechanism, dataset.space, dataset.facts, progress, request.max_queries)

    def at_whole_mass(self) -> tuple[Construction, float]:
        """The construction, and its progress, of a guaranteed plan with an error of the whole mass: the largest that is
        of any use."""
        first = self.at(1, guaranteed=True)
        progress = self.dataset.mass_bound * first.progress / first.error_bound
        return self._at_progress(progress), progress

    def _step(self, plan: Plan) -> float | None:
        mechanism = self.request.mechanism
        if mechanism.step not in BOUNDED_STEPS or missing(mechanism, self.dataset.space, self.dataset.facts):
            return None
        return self.construction(plan).step_size(plan.progress)

    def guaranteed(self) -> Plan:
        """The least number of updates that the construction's own bound does not pass, with a state that fits.

        With more updates there is more noise, and so more progress an update: the bound and the state shrink.

        Raises:
            _NoGuarantee: when there is none with an error below the mass.
            PlanInfeasible: when it is not a matter of how many.
        """
        mechanism = self.request.mechanism
        if mechanism.unbounded is not None:
            raise PlanInfeasible(f"{mechanism.unbounded}: give max_updates")
        fact = missing(mechanism, self.dataset.space, self.dataset.facts)
        if fact is not None or self._at_progress(1.0).bound(1.0) is None:
            raise PlanInfeasible(_how_to_know(mechanism, self.dataset.space))
        self.at(1, guaranteed=True)  # what refuses even one update says so in its own words
        exact = self.request.calibration == "exact"
        least = self._least_exact() if exact else _least(self._enough, 1, MOST_UPDATES)
        if least is not None:
            plan = self.at(least, guaranteed=True)
            if plan.error_bound < self.dataset.mass_bound:
                return plan
        ends = f" up to {MOST_EXACT_UPDATES:,}, where exact calibration ends," if exact else ""
        raise _NoGuarantee(f"no number of updates{ends} keeps the error below the whole mass")

    def _enough(self, updates: int) -> bool:
        """Whether the bound does not pass so many updates, with a state that fits; false where so many have no plan."""
        try:
            plan = self.at(updates, guaranteed=True)
        except (PlanInfeasible, PrivacyError):
            return False
        bound = plan.update_bound
        return bound is not None and bound <= updates and self.construction(plan).infeasible is None

    def _least_exact(self) -> int | None:
        """The least number of updates with as few programs as will do.

        Less noise takes more updates: what is too few with rdp, whose noise is told in milliseconds, is too few. And
        the noise grows about as the root of the updates, their bound falls as its square: the two meet at the root of
        their product.
        """
        quick = self.request.model_copy(update={"calibration": "rdp"})
        first = _least(_Planner(self.dataset, quick, self.share)._enough, 1, MOST_UPDATES)
        if first is None or first > MOST_EXACT_UPDATES:
            return None
        try:
            bound = self.at(first, guaranteed=True).update_bound or first
        except (PlanInfeasible, PrivacyError):
            return None
        return _least(self._enough, min(math.isqrt(first * bound), MOST_EXACT_UPDATES), MOST_EXACT_UPDATES)


def _how_to_know(mechanism: AnyMechanism, space: Space) -> str:
    """What a guaranteed plan lacks, and which sessions buy it."""
    if mechanism.norm(space) is not None:
        return (
            "a guaranteed plan needs a bound on the norm of the data: open a session with ball_p and max_updates that "
            "buys it first"
        )
    # fk never buys anything, and the set of the exact median mechanism is sized by what would be bought.
    buys = mechanism.entropic and not (mechanism.construction == "median" and not mechanism.sampled)
    return (
        "a guaranteed plan needs the number of records: declare it public, or open a session "
        + ("with max_updates" if buys else "of mw with max_updates")
        + " that buys it first"
    )


def _least(holds: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The least whole number, looked for around a guess, for which a monotone condition holds; None up to ``most``."""
    low, high, step = guess - 1, guess, 1
    if holds(guess):
        while low and holds(low):
            low, high, step = max(0, low - step), low, 2 * step
    else:
        while not holds(high):
            if high >= most:
                return None
            low, high, step = high, min(most, high + step), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
