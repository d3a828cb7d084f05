"""Sessions whose hypothesis a construction keeps: how many updates they have, and on which terms.

A best-effort plan is given its number of updates B. A guaranteed plan takes the least B that the construction's own
bound on updates does not pass: with more updates there is more noise, and so more progress an update, for which the
bound and the state shrink.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import partial

from app.bisection import least_integer_near
from app.constructions.base import Construction
from app.constructions.mechanism import Iterative, MedianMechanism
from app.constructions.registry import construct, missing, unfit
from app.curator.calibration import MOST_EXACT_UPDATES, Calibrator
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase, grid_of, unmeasurable
from app.curator.plan import Infeasible, Offer, Plan, Terms
from app.curator.promises import MOST_UPDATES, step_size, worst_case
from app.curator.request import SessionRequest
from app.privacy.costs import GREATEST_LAPLACE_SCALE, ConditionalRelease, PrivacyEvent, PureStep, renyi_cost
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.spaces.space import Space

#: A session that needs a private fact buys it with one part in this many of its share.
PURCHASE_PART = 20


def construction(dataset: PublicDataset, request: SessionRequest) -> Offer[Plan]:
    """The offer of a session whose hypothesis a construction keeps.

    Raises:
        PlanInfeasible, PrivacyError: when the guarantee asked for cannot be kept, or the hypothesis cannot be held.
    """
    reason = unfit(request.iterative, dataset.space)
    if reason is not None:
        raise PlanInfeasible(reason)
    share = dataset.budget.share(request.epsilon)
    purchase = _purchase(dataset, request, share)
    calibrator = Calibrator(dataset, request, share - (purchase.cost if purchase else 0))
    if request.max_updates is None:
        terms = _guaranteed(calibrator)
    else:
        terms = calibrator.terms(request.max_updates, guaranteed=False)
    _check_bearable(dataset, request, terms)
    update_bound, status = worst_case(dataset, request.iterative, terms.progress, request.max_queries)
    plan = partial(
        Plan,
        scale=terms.scale,
        noise_bound_units=terms.noise_bound_units,
        threshold_units=terms.threshold_units,
        max_updates=terms.max_updates,
        cost_per_update=terms.cost_per_update,
        race=terms.race,
        guaranteed=request.max_updates is None,
        purchase=purchase,
        update_bound=update_bound,
        bound_status=status,
        step_size=step_size(dataset, request, terms.progress),
    )
    if request.calibration == "exact":
        return Offer(plan=plan, most=Amounts(share), guarantees=request.epsilon)
    hit = ConditionalRelease(terms.scale / dataset.space.sensitivity, request.release)
    events: tuple[tuple[PrivacyEvent, int], ...] = ((hit, terms.max_updates),)
    if purchase is not None:
        events += ((PureStep(purchase.epsilon), 1),)
    return Offer(plan=plan, most=Amounts(share), events=events)


def construction_at(calibrator: Calibrator, progress: float) -> Construction:
    """The construction that keeps the hypothesis of a session with this progress, in counts."""
    request, dataset = calibrator.request, calibrator.dataset
    return construct(request.iterative, dataset.space, dataset.facts, progress, request.max_queries)


def at_whole_mass(calibrator: Calibrator) -> tuple[Construction, float] | None:
    """The construction of a guaranteed plan with an error of the whole mass, the largest that is of any use, and its
    progress; None where not even one update has terms."""
    first = calibrator.possible(1, guaranteed=True)
    if first is None:
        return None
    progress = calibrator.dataset.mass_bound * first.progress / first.error_bound
    return construction_at(calibrator, progress), progress


# ---------------------------------------------------------------------- purchases


def _purchase(dataset: PublicDataset, request: SessionRequest, share: Decimal) -> Purchase | None:
    """The fact that the session must buy at opening; None where it needs none.

    Raises:
        PlanInfeasible: when it cannot be bought.
    """
    fact = missing(request.iterative, dataset.space, dataset.facts)
    if fact is None:
        return None
    purchase = _purchase_of(dataset, fact, share)
    if request.calibration == "exact":
        # ``exact`` counts a data set's whole (epsilon, delta) as one session of hits: nothing else may be in it.
        instead = "" if fact != "mass" or dataset.spec.kind == "matrix" else "declare the records public, or "
        raise PlanInfeasible(f"exact calibration leaves nothing to buy the {fact} with: {instead}use rdp")
    return purchase


def _purchase_of(dataset: PublicDataset, fact: str, share: Decimal) -> Purchase:
    """The purchase of a fact with a twentieth of a share: about the largest pure epsilon whose cost fits.

    A pure e-DP step costs at most ``min(e, a e^2/2)`` at order a.

    Raises:
        PlanInfeasible: when that is nothing.
    """
    budget = dataset.budget
    allowed = Fraction(share) / PURCHASE_PART
    order = Fraction(budget.order)
    root = Fraction(Decimal(float(2 * allowed / order)).sqrt()) * Fraction(999_999_999, 1_000_000_000)
    epsilon = floor_to(max(allowed, root), Decimal("1e-15"))
    too_small = PlanInfeasible(f"this share of epsilon is too small to buy the {fact} that the construction needs")
    if epsilon <= 0:
        raise too_small
    reason = unmeasurable(dataset.space, fact)
    if reason is not None:
        raise PlanInfeasible(reason)
    purchase = Purchase(fact, epsilon, renyi_cost(PureStep(epsilon), budget.order), *grid_of(dataset.space, fact))
    if purchase.scale_units > GREATEST_LAPLACE_SCALE:
        raise too_small
    return purchase


# ---------------------------------------------------------------------- what a plan costs and holds


def _check_bearable(dataset: PublicDataset, request: SessionRequest, terms: Terms) -> None:
    """Refuse a construction that cannot hold its hypothesis, or would take too long to learn.

    Raises:
        PlanInfeasible: saying which.
    """
    space = dataset.space
    construction = construct(request.iterative, space, dataset.facts, terms.progress, request.max_queries)
    if construction.infeasible is not None:
        raise Infeasible(construction.infeasible, "large-state", construction.most_cells)
    most = construction.most_updates
    if most is not None and terms.max_updates > most:
        raise PlanInfeasible(
            f"step refit fits the hypothesis anew to everything measured, which over {space.cells:,} cells takes many "
            f"seconds an update from some {most:,} updates on: allow at most {most:,}, or use step full",
            max_updates=most,
        )


# ---------------------------------------------------------------------- the least number of updates


def _guaranteed(calibrator: Calibrator) -> Terms:
    """The terms for the least number of updates that the construction's own bound does not pass, its state fitting.

    Raises:
        PlanInfeasible, PrivacyError: when there is none.
    """
    dataset, mechanism = calibrator.dataset, calibrator.request.iterative
    if mechanism.unbounded is not None:
        raise PlanInfeasible(f"{mechanism.unbounded}: give max_updates")
    fact = missing(mechanism, dataset.space, dataset.facts)
    if fact is not None or construction_at(calibrator, 1.0).bound(1.0) is None:
        raise PlanInfeasible(_how_to_know(mechanism, dataset.space))
    calibrator.terms(1, guaranteed=True)  # what refuses even one update says so in its own words
    exact = calibrator.request.calibration == "exact"
    least = _least_exact(calibrator) if exact else _least_updates(calibrator, 1, MOST_UPDATES)
    if least is not None:
        terms = calibrator.terms(least, guaranteed=True)
        if terms.error_bound < dataset.mass_bound:
            return terms
    ends = f" up to {MOST_EXACT_UPDATES:,}, where exact calibration ends," if exact else ""
    raise Infeasible(f"no number of updates{ends} keeps the error below the whole mass", "no-guarantee")


def _least_updates(calibrator: Calibrator, guess: int, most: int) -> int | None:
    """The least number of updates that are enough, looked for around a guess; None up to ``most``."""

    def enough(updates: int) -> bool:
        """Whether the bound does not pass so many updates, with a state that fits; false where they have no terms."""
        terms = calibrator.possible(updates, guaranteed=True)
        if terms is None:
            return False
        request = calibrator.request
        bound = worst_case(calibrator.dataset, request.iterative, terms.progress, request.max_queries)[0]
        return bound is not None and bound <= updates and construction_at(calibrator, terms.progress).infeasible is None

    return least_integer_near(enough, guess, 1, most)


def _least_exact(calibrator: Calibrator) -> int | None:
    """The least number of updates of an exact calibration, found with as few of its programs as will do.

    The exact noise is less than that of rdp, which takes milliseconds to find, and less noise needs more updates: fewer
    than rdp needs are too few. As the noise grows about as the root of the updates and their bound falls as its square,
    number and bound meet at about the root of their product.
    """
    dataset, request = calibrator.dataset, calibrator.request
    quick = Calibrator(dataset, request.model_copy(update={"calibration": "rdp"}), calibrator.share)
    first = _least_updates(quick, 1, MOST_UPDATES)
    if first is None or first > MOST_EXACT_UPDATES:
        return None
    terms = calibrator.possible(first, guaranteed=True)
    if terms is None:
        return None
    bound = worst_case(dataset, request.iterative, terms.progress, request.max_queries)[0] or first
    return _least_updates(calibrator, min(math.isqrt(first * bound), MOST_EXACT_UPDATES), MOST_EXACT_UPDATES)


def _how_to_know(mechanism: Iterative, space: Space) -> str:
    """The reason that there is no guaranteed plan, and which sessions buy it."""
    if mechanism.norm(space) is not None:
        return (
            "a guaranteed plan needs a bound on the norm of the data: open a session with ball_p and max_updates that "
            "buys it first"
        )
    # fk never buys anything, and the set of the exact median mechanism is sized by what would be bought.
    buys = mechanism.entropic and not (isinstance(mechanism, MedianMechanism) and not mechanism.sampled)
    return (
        "a guaranteed plan needs the number of records: declare it public, or open a session "
        + ("with max_updates" if buys else "of mw with max_updates")
        + " that buys it first"
    )
