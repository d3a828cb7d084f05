"""Promises: how many updates there can be, and which error is kept for all queries for certain."""

from __future__ import annotations

import math
from dataclasses import replace

from app.bisection import least_factor
from app.constructions.base import BOUNDED_STEPS, PublicFacts
from app.constructions.mechanism import Iterative
from app.constructions.registry import construct, missing
from app.curator.dataset import PublicDataset
from app.curator.plan import BoundStatus, Plan
from app.curator.request import SessionRequest

#: No guaranteed plan runs to more updates than this.
MOST_UPDATES = 10**7


def worst_case(
    dataset: PublicDataset, mechanism: Iterative, progress: float, queries: int
) -> tuple[int | None, BoundStatus]:
    """The most updates there can be when each is made at a true gap above ``progress`` counts; or why none is known."""
    if mechanism.unbounded is not None or progress <= 0:
        return None, "no-worst-case-bound"
    bound = construct(mechanism, dataset.space, dataset.facts, progress, queries).bound(progress)
    if bound is None:
        return None, "fact-unknown"
    return (None, "above-limit") if bound > MOST_UPDATES else (math.floor(bound), "bound")


def step_size(dataset: PublicDataset, request: SessionRequest, progress: float) -> float | None:
    """The rate of a fixed-length step at this progress.

    None where there are no such steps, and where it depends on a fact that the session has yet to buy.
    """
    mechanism, facts = request.iterative, dataset.facts
    if mechanism.step not in BOUNDED_STEPS or missing(mechanism, dataset.space, facts):
        return None
    return construct(mechanism, dataset.space, facts, progress, request.max_queries).step_size(progress)


def certain_error(dataset: PublicDataset, request: SessionRequest, plan: Plan) -> float | None:
    """The least error, in counts, that this plan's noise and number of updates keep for all its queries for certain.

    That is the plan's own error bound where its updates last for all queries: in a guaranteed plan, and where the
    worst-case bound at the plan's progress is no more than ``max_updates``. Else a threshold would have to be so wide
    that the bound is met: its progress alpha is the least with ``bound(alpha) <= max_updates``, and the error grows by
    as much as the progress. None where there is no such bound. A mass that is not public counts as the largest that it
    can be.
    """
    if plan.guaranteed:
        return plan.error_bound
    if request.iterative.unbounded is not None:
        return None
    facts = _largest_mass(dataset)

    def lasts(progress: float) -> bool:
        construction = construct(request.iterative, dataset.space, facts, progress, request.max_queries)
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
    found = least_factor(lasts, high / 2, high, 1 + 1e-6)
    assert found is not None
    return plan.error_bound + found - least


def _largest_mass(dataset: PublicDataset) -> PublicFacts:
    """The public facts, with the largest mass that there can be in place of one that is not public."""
    facts = dataset.facts
    return replace(facts, mass=dataset.mass_bound, padded=True) if facts.mass is None else facts
