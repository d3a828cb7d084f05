"""What would make an infeasible plan feasible: one change at a time, each tried before it is offered.

A lever is one of a plan's parameters. How far it must move is found where a quick condition, monotone in it, turns
true; whether the plan is then made is tried, and a little further where it is not. What was never made is not offered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal

from app.curator.dataset import PublicDataset
from app.curator.request import SessionRequest
from app.spaces.factory import space_of
from app.spaces.spec import parse_spec

#: A data set and a request, one of them with one thing changed.
Change = tuple[PublicDataset, SessionRequest]
#: A lever moved by a factor of at least 1: the value that it then has, and the change.
Lever = Callable[[float], tuple[float, Change]]
Found = Mapping[str, float | int | None]

#: No lever is moved by more: such data or budgets are others altogether.
MOST_FACTOR = 1e9
#: How much further than the quick condition says a lever is moved at most, in steps.
_FURTHER = (1.0, 1.005, 1.02, 1.05, 1.1, 1.25, 2.0)
_MOST_BETA = 0.999

_WORDS = {
    "epsilon": "epsilon {}",
    "max_queries": "max_queries {:,}",
    "max_updates": "max_updates {:,}",
    "beta": "beta {:.3g}",
    "records": "{:,} records",
    "cells": "{:,} cells",
}


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
        "epsilon": _moved(_epsilon(dataset, request, 1), room, promising, works),
        "max_queries": _moved(_queries(dataset, request), request.max_queries, promising, works),
        "beta": _moved(_beta(dataset, request), _MOST_BETA / request.beta, promising, works),
        "records": None,
    }
    mass = dataset.facts.mass
    if mass:
        most = min(MOST_FACTOR, space_of(dataset.spec).capacity / mass)
        found["records"] = _moved(_records(dataset, request, 1), most, promising, works)
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
        "epsilon": _moved(_epsilon(dataset, request, -1), MOST_FACTOR, promising, works),
        "max_queries": _moved(_queries(dataset, request), request.max_queries, promising, works),
        "max_updates": None,
        "records": None,
        "cells": most_cells(dataset, request, cells, works),
    }
    if request.max_updates is not None:
        most = 10**7 / request.max_updates
        found["max_updates"] = _moved(_updates(dataset, request), most, promising, works)
    if dataset.facts.mass:
        found["records"] = _moved(_records(dataset, request, -1), dataset.facts.mass, promising, works)
    return found


def most_cells(
    dataset: PublicDataset, request: SessionRequest, cells: int, works: Callable[[Change], bool]
) -> int | None:
    """The largest universe up to ``cells`` at which the plan is made."""
    low, high = 0, cells + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works((with_cells(dataset, middle), request)) else (low, middle)
    return low or None


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


def _epsilon(dataset: PublicDataset, request: SessionRequest, way: int) -> Lever:
    def lever(factor: float) -> tuple[float, Change]:
        value = min(Decimal(f"{float(request.epsilon) * factor**way:.9g}"), dataset.budget.epsilon)
        return float(value), (dataset, request.model_copy(update={"epsilon": value}))

    return lever


def _queries(dataset: PublicDataset, request: SessionRequest) -> Lever:
    def lever(factor: float) -> tuple[float, Change]:
        value = max(1, math.floor(request.max_queries / factor))
        return value, (dataset, request.model_copy(update={"max_queries": value}))

    return lever


def _updates(dataset: PublicDataset, request: SessionRequest) -> Lever:
    def lever(factor: float) -> tuple[float, Change]:
        value = min(10**7, math.ceil((request.max_updates or 1) * factor))
        return value, (dataset, request.model_copy(update={"max_updates": value}))

    return lever


def _beta(dataset: PublicDataset, request: SessionRequest) -> Lever:
    def lever(factor: float) -> tuple[float, Change]:
        value = min(float(f"{request.beta * factor:.9g}"), _MOST_BETA)
        return value, (dataset, request.model_copy(update={"beta": value}))

    return lever


def _records(dataset: PublicDataset, request: SessionRequest, way: int) -> Lever:
    def lever(factor: float) -> tuple[float, Change]:
        mass = dataset.mass_bound * factor**way
        value = math.ceil(mass) if way > 0 else math.floor(mass)
        return value, (dataset.with_mass(float(value)), request)

    return lever


def _moved(
    lever: Lever, most: float, promising: Callable[[Change], bool], works: Callable[[Change], bool]
) -> float | int | None:
    """The value of a lever moved about as little as makes the plan, or None."""
    least = least_real(lambda factor: promising(lever(factor)[1]), 1.0, most) if most > 1 else None
    if least is None:
        return None
    for further in _FURTHER:
        value, change = lever(min(least * further, most))
        if works(change):
            return value
    return None


def least_real(holds: Callable[[float], bool], low: float, high: float, good: float = 1.005) -> float | None:
    """A factor up to ``good`` times the least one for which a monotone condition holds, or None up to ``high``."""
    if not holds(high):
        return None
    while high > good * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
