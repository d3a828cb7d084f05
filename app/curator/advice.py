"""Advice: the single changes that would make an infeasible plan feasible, each tried before it is offered.

A parameter of a plan is changed by a factor. The least that will do is found where a quick condition, monotone in
the factor, turns true; whether the plan is then made is tried, and a little more of a change where it is not. What was
never made is not offered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal

from app.bisection import least_factor, least_integer
from app.constructions.mechanism import MedianMechanism, MwMechanism
from app.curator.calibration import Calibrator
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.feasibility import find_plan, possible_plan
from app.curator.plan import Infeasible, Plan
from app.curator.planners.construction import at_whole_mass, construction_at
from app.curator.promises import MOST_UPDATES
from app.curator.request import SessionRequest
from app.declarations.spec import parse_spec
from app.privacy.errors import PrivacyError
from app.spaces.factory import space_of

#: A data set and a request, one of them with one thing changed.
Change = tuple[PublicDataset, SessionRequest]
#: One parameter changed by a factor of at least 1: the value that it then has, and the change.
Adjustment = Callable[[float], tuple[float, Change]]
Found = Mapping[str, float | int | None]

#: No parameter is changed by more: such data or budgets are others altogether.
MOST_FACTOR = 1e9
#: By how much more than the quick condition says a parameter is changed, one after the other until the plan is made.
_FURTHER = (1.0, 1.005, 1.02, 1.05, 1.1, 1.25, 2.0)
_MOST_BETA = 0.999
#: How near to the least factor that will do one is looked for.
_NEAR = 1.005

_WORDS = {
    "epsilon": "epsilon {}",
    "max_queries": "max_queries {:,}",
    "max_updates": "max_updates {:,}",
    "beta": "beta {:.3g}",
    "records": "{:,} records",
    "cells": "{:,} cells",
}


def refusal(dataset: PublicDataset, request: SessionRequest, found: Infeasible) -> PlanInfeasible:
    """The error for a request without a plan, with the single changes that were tried and would do."""
    if request.calibration == "exact":
        return _no_exact(dataset, request, found)
    return _too_large(dataset, request, found) if found.cause == "large-state" else _no_guarantee(dataset, request)


def _no_exact(dataset: PublicDataset, request: SessionRequest, found: Infeasible) -> PlanInfeasible:
    """The refusal of an exact calibration. Changes are tried with ``rdp`` alone, whose noise is a few percent more:
    each would take programs of its own, which take seconds."""
    instead = request.model_copy(update={"calibration": "rdp"})
    try:
        find_plan(dataset, instead)
    except PlanInfeasible as other:
        told = refusal(dataset, instead, other) if isinstance(other, Infeasible) else other
        return PlanInfeasible(f"{found.detail}; with rdp: {told.detail}")
    return PlanInfeasible(f"{found.detail}; or use rdp, which has a plan")


def _no_guarantee(dataset: PublicDataset, request: SessionRequest) -> PlanInfeasible:
    """The refusal of a guarantee."""
    text, most = "no number of updates keeps the error below the whole mass", None
    reason = None
    calibrator = _calibrator(dataset, request)
    whole = at_whole_mass(calibrator) if calibrator is not None and dataset.mass_bound else None
    if whole is not None:
        construction, _ = whole
        reason, most = construction.infeasible, construction.most_cells
    changes = guaranteed_changes(dataset, request, most, promising=_promising, works=_works)
    instead = "" if reason is None else _instead(dataset, request)
    return PlanInfeasible(f"{reason or text}: {listed(changes)}{instead}", **changes)


def _too_large(dataset: PublicDataset, request: SessionRequest, found: Infeasible) -> PlanInfeasible:
    """The refusal of a hypothesis that cannot be held."""
    instead, most = _instead(dataset, request), found.most_cells
    if most is None:
        return PlanInfeasible(found.detail + instead)
    changes = smaller_sets(dataset, request, most, promising=_fits, works=_is_useful)
    return PlanInfeasible(f"{found.detail}: {listed(changes)}{instead}", **changes)


def _instead(dataset: PublicDataset, request: SessionRequest) -> str:
    """Other mechanisms that hold a hypothesis where this one cannot."""
    updates = request.max_updates or 1
    for mechanism, name in (
        (MedianMechanism(construction="median", sampled=True), "the sampled form"),
        (MwMechanism(construction="mw"), "mw"),
    ):
        if _works((dataset, request.model_copy(update={"mechanism": mechanism, "max_updates": updates}))):
            return f"; or use {name}" + ("" if request.max_updates else " with max_updates")
    return ""


# ---------------------------------------------------------------------- conditions on a changed request


def _works(change: Change) -> bool:
    """Whether there is a plan."""
    return isinstance(possible_plan(*change), Plan)


def _is_useful(change: Change) -> bool:
    """Whether there is a plan with an error below the whole mass."""
    plan = possible_plan(*change)
    return isinstance(plan, Plan) and plan.error_bound < change[0].mass_bound


def _promising(change: Change) -> bool:
    """Whether a guaranteed plan is to be expected. About: :func:`_works` then tells.

    Whether there is one shows at the updates that the bound allows for an error of the whole mass: with fewer the
    bound is not met, and more of them make more noise.
    """
    dataset, request = change
    mass = dataset.mass_bound
    calibrator = _calibrator(dataset, request)
    whole = at_whole_mass(calibrator) if mass and calibrator is not None else None
    if calibrator is None or whole is None:
        return False
    construction, progress = whole
    bound = construction.bound(progress)
    if bound is None or bound > MOST_UPDATES or construction.infeasible is not None:
        return False
    terms = calibrator.possible(max(1, math.ceil(bound)), guaranteed=True)
    return terms is not None and terms.error_bound < mass


def _fits(change: Change) -> bool:
    """Whether the state fits, or there is so much noise that there is no plan at all."""
    dataset, request = change
    calibrator = _calibrator(dataset, request)
    if calibrator is None:
        return True
    terms = calibrator.possible(request.max_updates or 1, guaranteed=False)
    return terms is None or construction_at(calibrator, terms.progress).infeasible is None


def _calibrator(dataset: PublicDataset, request: SessionRequest) -> Calibrator | None:
    """With the whole share for updates; None where there is no such share."""
    try:
        return Calibrator(dataset, request, dataset.budget.share(request.epsilon))
    except PrivacyError:
        return None


# ---------------------------------------------------------------------- the changes


def guaranteed_changes(
    dataset: PublicDataset,
    request: SessionRequest,
    cells: int | None,
    *,
    promising: Callable[[Change], bool],
    works: Callable[[Change], bool],
) -> dict[str, float | int | None]:
    """About how far one of epsilon, max_queries, beta, records would have to go for a guaranteed plan.

    More epsilon than the data set's, or more records than its universe holds, are not offered. ``cells`` is over how
    many a state would fit, where that is limited. None where nothing would do.
    """
    room = float(dataset.budget.epsilon / request.epsilon)
    found: dict[str, float | int | None] = {
        "epsilon": _least_change(_epsilon(dataset, request, 1), room, promising, works),
        "max_queries": _least_change(_queries(dataset, request), request.max_queries, promising, works),
        "beta": _least_change(_beta(dataset, request), _MOST_BETA / request.beta, promising, works),
        "records": None,
    }
    mass = dataset.facts.mass
    if mass:
        most = min(MOST_FACTOR, space_of(dataset.spec).capacity / mass)
        found["records"] = _least_change(_records(dataset, request, 1), most, promising, works)
    if cells is not None:
        found["cells"] = most_cells(dataset, request, cells, works)
    return found


def smaller_sets(
    dataset: PublicDataset,
    request: SessionRequest,
    cells: int,
    *,
    promising: Callable[[Change], bool],
    works: Callable[[Change], bool],
) -> dict[str, float | int | None]:
    """About how far one of epsilon, max_updates, max_queries, records would have to go for a state that fits.

    ``cells`` is over how many it would fit as it is. Less epsilon and more updates make more noise, a larger error,
    and so a smaller set. None where nothing would do.
    """
    found: dict[str, float | int | None] = {
        "epsilon": _least_change(_epsilon(dataset, request, -1), MOST_FACTOR, promising, works),
        "max_queries": _least_change(_queries(dataset, request), request.max_queries, promising, works),
        "max_updates": None,
        "records": None,
        "cells": most_cells(dataset, request, cells, works),
    }
    if request.max_updates is not None:
        most = MOST_UPDATES / request.max_updates
        found["max_updates"] = _least_change(_updates(dataset, request), most, promising, works)
    if dataset.facts.mass:
        found["records"] = _least_change(_records(dataset, request, -1), dataset.facts.mass, promising, works)
    return found


def most_cells(
    dataset: PublicDataset, request: SessionRequest, cells: int, works: Callable[[Change], bool]
) -> int | None:
    """The largest universe up to ``cells`` at which the plan is made."""
    too_many = least_integer(lambda number: not works((with_cells(dataset, number), request)), 0, cells + 1)
    return too_many - 1 or None


def with_cells(dataset: PublicDataset, cells: int) -> PublicDataset:
    """A table of so many cells with the same budget and public facts."""
    spec = {
        "name": dataset.spec.name,
        "kind": "table",
        "attributes": [{"name": "cell", "size": cells}],
        "records_public": dataset.spec.records_public,
        "budget": {"epsilon": float(dataset.spec.budget.epsilon), "delta": float(dataset.spec.budget.delta)},
    }
    return replace(dataset, spec=parse_spec(spec))


def listed(found: Found) -> str:
    """The changes in words."""
    given = [_WORDS[name].format(value) for name, value in found.items() if value is not None]
    if not given:
        return f"no change of {' or '.join(found)} alone would do"
    return ("any of these alone would do: " if len(given) > 1 else "this would do: ") + ", ".join(given)


def _epsilon(dataset: PublicDataset, request: SessionRequest, way: int) -> Adjustment:
    def adjust(factor: float) -> tuple[float, Change]:
        value = min(Decimal(f"{float(request.epsilon) * factor**way:.9g}"), dataset.budget.epsilon)
        return float(value), (dataset, request.model_copy(update={"epsilon": value}))

    return adjust


def _queries(dataset: PublicDataset, request: SessionRequest) -> Adjustment:
    def adjust(factor: float) -> tuple[float, Change]:
        value = max(1, math.floor(request.max_queries / factor))
        return value, (dataset, request.model_copy(update={"max_queries": value}))

    return adjust


def _updates(dataset: PublicDataset, request: SessionRequest) -> Adjustment:
    def adjust(factor: float) -> tuple[float, Change]:
        value = min(MOST_UPDATES, math.ceil((request.max_updates or 1) * factor))
        return value, (dataset, request.model_copy(update={"max_updates": value}))

    return adjust


def _beta(dataset: PublicDataset, request: SessionRequest) -> Adjustment:
    def adjust(factor: float) -> tuple[float, Change]:
        value = min(float(f"{request.beta * factor:.9g}"), _MOST_BETA)
        return value, (dataset, request.model_copy(update={"beta": value}))

    return adjust


def _records(dataset: PublicDataset, request: SessionRequest, way: int) -> Adjustment:
    def adjust(factor: float) -> tuple[float, Change]:
        mass = dataset.mass_bound * factor**way
        value = math.ceil(mass) if way > 0 else math.floor(mass)
        return value, (dataset.with_mass(float(value)), request)

    return adjust


def _least_change(
    adjust: Adjustment, most: float, promising: Callable[[Change], bool], works: Callable[[Change], bool]
) -> float | int | None:
    """The value of a parameter changed about as little as makes the plan, or None."""
    least = least_factor(lambda factor: promising(adjust(factor)[1]), 1.0, most, _NEAR) if most > 1 else None
    if least is None:
        return None
    for further in _FURTHER:
        value, change = adjust(min(least * further, most))
        if works(change):
            return value
    return None
