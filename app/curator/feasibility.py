"""Feasibility: the plan that a request has, or why it has none.

A best-effort plan is given its number of updates B. A guaranteed plan takes the least B that the construction's own
bound on updates does not pass: with more updates there is more noise, and so more progress an update, for which the
bound and the state shrink.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from app.bisection import least_integer_near
from app.constructions.base import Construction
from app.constructions.mechanism import Mechanism
from app.constructions.registry import construct, missing, unfit
from app.curator.calibration import MOST_EXACT_UPDATES, Calibrator
from app.curator.dataset import PublicDataset
from app.curator.direct import direct_plan
from app.curator.edge_plan import edge_plan
from app.curator.evidence_plan import evidence_plan
from app.curator.facts import Purchase, grid_of, unmeasurable
from app.curator.graph_plan import GRAPHS, graph_plan
from app.curator.plan import Infeasible, Plan, SessionPlan, Terms, stated
from app.curator.power_plan import power_plan
from app.curator.promises import MOST_UPDATES, least_epsilon, step_size, worst_case
from app.curator.request import SessionRequest
from app.curator.workload_plan import workload_plan
from app.privacy.costs import GREATEST_LAPLACE_SCALE, ConditionalRelease, PrivacyEvent, PureStep, renyi_cost
from app.privacy.errors import PrivacyError
from app.privacy.exactness import floor_to
from app.spaces.space import Space

#: A session that needs a private fact buys it with one part in this many of its share.
PURCHASE_PART = 20


def find_plan(dataset: PublicDataset, request: SessionRequest) -> SessionPlan | Infeasible:
    """The plan of a session, or why there is none. Reads public facts only: the same for neighbouring data."""
    budget = dataset.budget
    if request.mechanism.direct is not None:
        return direct_plan(dataset, request, request.mechanism.direct)
    workload = request.mechanism.workload
    if workload is not None:
        if not workload.whole:
            return workload_plan(dataset, request)
        powered = request.mechanism.method == "iterative_construction"
        return power_plan(dataset, request) if powered else edge_plan(dataset, request)
    if request.mechanism.from_evidence:
        return (graph_plan if dataset.space.kind in GRAPHS else evidence_plan)(dataset, request)
    reason = unfit(request.mechanism, dataset.space)
    if reason is not None:
        return Infeasible(reason)
    try:
        share = budget.share(request.epsilon)
        purchase = _purchase(dataset, request, share)
        if isinstance(purchase, Infeasible):
            return purchase
        calibrator = Calibrator(dataset, request, share - (purchase.cost if purchase else 0))
        if request.max_updates is None:
            terms = _guaranteed(calibrator)
        else:
            terms = calibrator.terms(request.max_updates, guaranteed=False)
        if isinstance(terms, Infeasible):
            return terms
        alone = _epsilon_alone(dataset, request, terms, purchase)
    except PrivacyError as error:
        return Infeasible(str(error))
    refused = _unbearable(dataset, request, terms)
    if refused is not None:
        return refused
    update_bound, status = worst_case(dataset, request.mechanism, terms.progress, request.max_queries)
    return Plan(
        scale=terms.scale,
        noise_bound_units=terms.noise_bound_units,
        threshold_units=terms.threshold_units,
        **stated(dataset, request),
        max_updates=terms.max_updates,
        cost_per_update=terms.cost_per_update,
        race=terms.race,
        guaranteed=request.max_updates is None,
        epsilon_alone=alone,
        reserved=share,
        purchase=purchase,
        update_bound=update_bound,
        bound_status=status,
        step_size=step_size(dataset, request, terms.progress),
    )


def construction_at(calibrator: Calibrator, progress: float) -> Construction:
    """The construction that keeps the hypothesis of a session with this progress, in counts."""
    request, dataset = calibrator.request, calibrator.dataset
    return construct(request.mechanism, dataset.space, dataset.facts, progress, request.max_queries)


def at_whole_mass(calibrator: Calibrator) -> tuple[Construction, float] | None:
    """The construction of a guaranteed plan with an error of the whole mass, the largest that is of any use, and its
    progress; None where not even one update has terms."""
    first = calibrator.terms(1, guaranteed=True)
    if isinstance(first, Infeasible):
        return None
    progress = calibrator.dataset.mass_bound * first.progress / first.error_bound
    return construction_at(calibrator, progress), progress


# ---------------------------------------------------------------------- purchases


def _purchase(dataset: PublicDataset, request: SessionRequest, share: Decimal) -> Purchase | Infeasible | None:
    """The fact that the session must buy at opening; None where it needs none."""
    fact = missing(request.mechanism, dataset.space, dataset.facts)
    if fact is None:
        return None
    purchase = _purchase_of(dataset, fact, share)
    if isinstance(purchase, Purchase) and request.calibration == "exact":
        # ``exact`` counts a data set's whole (epsilon, delta) as one session of hits: nothing else may be in it.
        instead = "" if fact != "mass" or dataset.spec.kind == "matrix" else "declare the records public, or "
        return Infeasible(f"exact calibration leaves nothing to buy the {fact} with: {instead}use rdp")
    return purchase


def _purchase_of(dataset: PublicDataset, fact: str, share: Decimal) -> Purchase | Infeasible:
    """What buying a fact with a twentieth of a share gets: about the largest pure epsilon whose cost fits.

    A pure e-DP step costs at most ``min(e, a e^2/2)`` at order a.
    """
    budget = dataset.budget
    allowed = Fraction(share) / PURCHASE_PART
    order = Fraction(budget.order)
    root = Fraction(Decimal(float(2 * allowed / order)).sqrt()) * Fraction(999_999_999, 1_000_000_000)
    epsilon = floor_to(max(allowed, root), Decimal("1e-15"))
    too_small = Infeasible(f"this share of epsilon is too small to buy the {fact} that the construction needs")
    if epsilon <= 0:
        return too_small
    reason = unmeasurable(dataset.space, fact)
    if reason is not None:
        return Infeasible(reason)
    purchase = Purchase(fact, epsilon, renyi_cost(PureStep(epsilon), budget.order), *grid_of(dataset.space, fact))
    return too_small if purchase.scale_units > GREATEST_LAPLACE_SCALE else purchase


# ---------------------------------------------------------------------- what a plan costs and holds


def _epsilon_alone(dataset: PublicDataset, request: SessionRequest, terms: Terms, purchase: Purchase | None) -> Decimal:
    """What the session would guarantee were it all that is ever computed from the data."""
    budget = dataset.budget
    hit = ConditionalRelease(terms.scale / dataset.space.sensitivity, request.release)
    events: list[tuple[PrivacyEvent, int]] = [(hit, terms.max_updates)]
    if purchase is not None:
        events.append((PureStep(purchase.epsilon), 1))
    if request.calibration == "exact":
        return request.epsilon
    return least_epsilon(tuple(events), Fraction(budget.delta) - budget.set_aside)


def _unbearable(dataset: PublicDataset, request: SessionRequest, terms: Terms) -> Infeasible | None:
    """Why the construction cannot hold its hypothesis, or would take too long to learn."""
    space = dataset.space
    construction = construct(request.mechanism, space, dataset.facts, terms.progress, request.max_queries)
    if construction.infeasible is not None:
        return Infeasible(construction.infeasible, cause="large-state", most_cells=construction.most_cells)
    most = construction.most_updates
    if most is None or terms.max_updates <= most:
        return None
    return Infeasible(
        f"step refit fits the hypothesis anew to everything measured, which over {space.cells:,} cells takes many "
        f"seconds an update from some {most:,} updates on: allow at most {most:,}, or use step full",
        extra={"max_updates": most},
    )


# ---------------------------------------------------------------------- the least number of updates


def _guaranteed(calibrator: Calibrator) -> Terms | Infeasible:
    """The terms for the least number of updates that the construction's own bound does not pass, its state fitting."""
    dataset, mechanism = calibrator.dataset, calibrator.request.mechanism
    if mechanism.unbounded is not None:
        return Infeasible(f"{mechanism.unbounded}: give max_updates")
    fact = missing(mechanism, dataset.space, dataset.facts)
    if fact is not None or construction_at(calibrator, 1.0).bound(1.0) is None:
        return Infeasible(_how_to_know(mechanism, dataset.space))
    one = calibrator.terms(1, guaranteed=True)
    if isinstance(one, Infeasible):  # what refuses even one update says so in its own words
        return one
    exact = calibrator.request.calibration == "exact"
    least = _least_exact(calibrator) if exact else _least_updates(calibrator, 1, MOST_UPDATES)
    if least is not None:
        terms = calibrator.terms(least, guaranteed=True)
        if isinstance(terms, Infeasible) or terms.error_bound < dataset.mass_bound:
            return terms
    ends = f" up to {MOST_EXACT_UPDATES:,}, where exact calibration ends," if exact else ""
    return Infeasible(f"no number of updates{ends} keeps the error below the whole mass", cause="no-guarantee")


def _least_updates(calibrator: Calibrator, guess: int, most: int) -> int | None:
    """The least number of updates that are enough, looked for around a guess; None up to ``most``."""

    def enough(updates: int) -> bool:
        """Whether the bound does not pass so many updates, with a state that fits; false where they have no terms."""
        terms = calibrator.terms(updates, guaranteed=True)
        if isinstance(terms, Infeasible):
            return False
        request = calibrator.request
        bound = worst_case(calibrator.dataset, request.mechanism, terms.progress, request.max_queries)[0]
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
    terms = calibrator.terms(first, guaranteed=True)
    if isinstance(terms, Infeasible):
        return None
    bound = worst_case(dataset, request.mechanism, terms.progress, request.max_queries)[0] or first
    return _least_updates(calibrator, min(math.isqrt(first * bound), MOST_EXACT_UPDATES), MOST_EXACT_UPDATES)


def _how_to_know(mechanism: Mechanism, space: Space) -> str:
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
