"""Plans of releases: what is measured for a workload that is known in advance, and what it costs.

A release is a session that buys all it measures at its opening and is asked nothing: its plan names the measurements,
and an audit that computes the plan anew finds whether they are the ones that were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from app.curator.dataset import PublicDataset
from app.curator.evidence_plan import EvidencePlan
from app.curator.plan import Infeasible, stated
from app.curator.promises import least_epsilon
from app.curator.request import SessionRequest
from app.curator.rounds_plan import Iterations, iterations
from app.curator.workloads import compiled
from app.evidence.measurements import NoiseKind
from app.evidence.policy import Buy
from app.evidence.strategies import Strategy
from app.privacy.costs import DiscreteGaussianAnswer
from app.privacy.errors import PrivacyError
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.designs import Means, alike, whole
from app.releases.pricing import price_of
from app.releases.workloads import Cuts, Marginals, TableWorkload, Workload
from app.spaces.errors import InvalidRequest

#: The most cells of a table that is measured whole, and of all measurements of a release together.
MOST_WHOLE, MOST_CELLS = 1 << 20, 1 << 22


@dataclass(frozen=True, kw_only=True)
class WorkloadPlan(EvidencePlan):
    """The plan of a release.

    Attributes:
        workload: what is asked.
        buys: what is measured, in this order.
        iterations: the rounds behind that, each of which measures what it chooses; None where there are none.
    """

    workload: Workload
    buys: tuple[Buy, ...]
    iterations: Iterations | None = None

    def document(self) -> dict[str, Any]:
        """As JSON: with how many measurements there are, their cells where these are known ahead, the least and the
        largest noise, and the terms of rounds.
        """
        rounds = None if self.iterations is None else self.iterations.rounds
        buys = self.buys if rounds is None else (*self.buys, rounds.noise)
        scales = [buy.scale for buy in buys]
        document = super().document() | {
            "measurements": self.max_updates,
            "cells": sum(buy.strategy.cells for buy in buys) if rounds is None else None,
            "noise": buys[0].kind if buys else None,
            "noise_scale": float(min(scales)) if scales else None,
            "largest_noise_scale": float(max(scales)) if scales else None,
        }
        return document if self.iterations is None else document | {"rounds": self.iterations.document()}


def workload_plan(dataset: PublicDataset, request: SessionRequest) -> WorkloadPlan | Infeasible:
    """The plan of a release, or why there is none. Reads public facts only: the same for neighbouring data."""
    mechanism, space = request.mechanism, dataset.space
    assert mechanism.workload is not None
    try:
        workload = compiled(space, mechanism.workload)
    except InvalidRequest as error:
        return Infeasible(error.detail)
    budget = dataset.budget
    try:
        means = means_of(dataset, request)
        if isinstance(workload, Cuts):
            return Infeasible(f"{mechanism.method} serves tables, and this is a {space.kind}")
        rounds: Iterations | None = None
        if mechanism.method == "iterative_construction":
            found = iterations(dataset, request, workload, means)
            if isinstance(found, Infeasible):
                return found
            rounds, buys, events = found, found.buys, found.events
        else:
            designed = _designed(workload, mechanism.method or "auto", space.shape, means)
            if isinstance(designed, Infeasible):
                return designed
            share = dataset.share(request.epsilon)
            buys, events = designed, ((DiscreteGaussianAnswer(1, 2 * Fraction(share) / Fraction(budget.order)), 1),)
        alone = least_epsilon(events, Fraction(budget.delta) - budget.set_aside)
    except PrivacyError as error:
        return Infeasible(str(error))
    holds = means.holds
    if holds.pure is not None:
        # It takes all that is left of epsilon, and of the other sum what its measurements cost there.
        holds, alone = Amounts(means.cost(buys).renyi, holds.pure), min(alone, request.epsilon)
    return WorkloadPlan(
        **stated(dataset, request),
        max_updates=len(buys) + (0 if rounds is None else rounds.rounds.number),
        epsilon_alone=alone,
        reserved=holds.renyi,
        reserved_pure=holds.pure,
        regime="renyi" if holds.pure is None else "pure",
        mode="release",
        declared=True,
        workload=workload,
        buys=buys,
        iterations=rounds,
    )


def means_of(dataset: PublicDataset, request: SessionRequest) -> Means:
    """What a release may pay from, for its design.

    Raises:
        PrivacyError: when there is no such share.
    """
    order, gamma = dataset.budget.order, dataset.gamma
    pure = request.mechanism.method == "histogram" and dataset.admits_pure(request.epsilon)
    holds = Amounts(dataset.share(request.epsilon))
    if pure:
        # Whatever it costs in the other sum: the session takes all that is left of this one.
        holds = Amounts(Decimal(10) ** 12, floor_to(Fraction(request.epsilon)))

    def price(strategy: Strategy, kind: NoiseKind, scale: Decimal) -> Amounts:
        return price_of(strategy, kind, Fraction(scale), order, gamma)

    return Means(order, holds, gamma, price)


def _designed(
    workload: TableWorkload, method: str, sizes: tuple[int, ...], means: Means
) -> tuple[Buy, ...] | Infeasible:
    """What a method measures.

    Raises:
        Unaffordable: when it cannot be paid.
    """
    if method == "histogram":
        strategy = whole(sizes)
        if strategy.cells > MOST_WHOLE:
            return Infeasible(
                f"histogram measures at most {MOST_WHOLE:,} cells, and the table has {strategy.cells:,}: declare fewer "
                "attributes or coarser bins, or use factorization"
            )
        return alike([strategy], means)
    if not isinstance(workload, Marginals):
        return Infeasible(f"{method} releases marginals: use factorization for other workloads")
    if workload.numbers > MOST_CELLS:
        return Infeasible(
            f"a release measures at most {MOST_CELLS:,} cells, and the workload has {workload.numbers:,}: ask for "
            "fewer marginals, or of fewer attributes"
        )
    return alike([Strategy.of(marginal) for marginal in workload.marginals], means)
