"""Plans of releases: what is measured for a workload that is known in advance, and what it costs.

A release is a session that buys all it measures at its opening and is asked nothing: its plan names the measurements,
and an audit that computes the plan anew finds whether they are the ones that were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from app.constructions.mechanism import Method
from app.constructions.registry import approximate
from app.curator.dataset import PublicDataset
from app.curator.evidence_plan import EvidencePlan, residuals_of
from app.curator.plan import Infeasible, stated
from app.curator.promises import least_epsilon
from app.curator.request import SessionRequest
from app.curator.rounds_plan import Iterations, iterations
from app.curator.workloads import compiled
from app.declarations.errors import InvalidRequest
from app.evidence.policy import Buy
from app.measurements.rows import Rows
from app.measurements.strategies.degrees import GraphBuy
from app.measurements.strategies.tables import MOST_ROW_CELLS, TableStrategy
from app.privacy.costs import DiscreteGaussianAnswer, PrivacyEvent
from app.privacy.errors import PrivacyError
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.errors import UnfitWorkload
from app.releases.expected import Expected, unbiased
from app.releases.factorization import Factorization, Paying, Questions, for_cells, for_marginals, of_rows
from app.releases.factorization import Ranges as CellRanges
from app.releases.fitting import MOST_CELLS as MOST_FITTED
from app.releases.workloads import Cuts, Marginals, Ranges, TableWorkload, Workload
from app.spaces.partition import Marginal

#: For a fit the precision of what is measured of most attributes together is this part of what would be best for
#: unbiased values (docs/releases.md).
LEANING = 0.5
#: Methods that look for what is best to measure.
SEARCHED: tuple[Method, ...] = ("factorization", "synthetic_table")
#: The options that belong to methods of tables; the others have none.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "iterative_construction": ("rounds", "construction"),
    "synthetic_table": ("records",),
}
#: The most cells of a table that is measured whole, and of all measurements of a release together.
MOST_WHOLE, MOST_CELLS = 1 << 20, 1 << 22


@dataclass(frozen=True, kw_only=True)
class WorkloadPlan(EvidencePlan):
    """The plan of a release.

    Attributes:
        workload: what is asked.
        buys: what is measured, in this order.
        expected: the errors of the best linear unbiased values; None where they are not told.
        iterations: the rounds behind that, each of which measures what it chooses; None where there are none.
    """

    workload: Workload
    buys: tuple[Buy | GraphBuy, ...]
    expected: Expected | None
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
    """The plan of a table's release, or why there is none. Reads public facts only: the same for neighbouring data."""
    mechanism, space = request.mechanism, dataset.space
    assert mechanism.workload is not None
    try:
        workload = compiled(space, mechanism.workload)
    except InvalidRequest as error:
        return Infeasible(error.detail)
    method, options = mechanism.method or "", mechanism.options
    for name in () if options is None else type(options).model_fields:
        if getattr(options, name) is not None and name not in _OPTIONS.get(method, ()):
            return Infeasible(f"{name} does not belong to {method} of a table: leave it out")
    budget = dataset.budget
    assert not isinstance(workload, Cuts)
    try:
        paying = paying_of(dataset, request)
        share = dataset.share(request.epsilon)
        rounds: Iterations | None = None
        expected: Expected | None = None
        buys: tuple[Buy, ...]
        events: tuple[tuple[PrivacyEvent, int], ...]
        if mechanism.method == "iterative_construction":
            iterated = iterations(dataset, request, workload, paying)
            if isinstance(iterated, Infeasible):
                return iterated
            rounds, buys, events = iterated, iterated.buys, iterated.events
        else:
            found = _measured(dataset, request, workload, paying)
            if isinstance(found, Infeasible):
                return found
            buys, expected = found
            events = ((DiscreteGaussianAnswer(Fraction(1), 2 * Fraction(share) / Fraction(budget.order)), 1),)
        alone = least_epsilon(events, Fraction(budget.delta) - budget.set_aside)
    except PrivacyError as error:
        return Infeasible(str(error))
    holds = Amounts(share)
    if paying.kind == "laplace":
        # It takes all that is left of epsilon, and of the other sum what its measurements cost there.
        holds = Amounts(paying.price(buys).renyi, floor_to(Fraction(request.epsilon)))
        alone = min(alone, request.epsilon)
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
        expected=expected,
        iterations=rounds,
    )


def paying_of(dataset: PublicDataset, request: SessionRequest) -> Paying:
    """What a release is paid with.

    Raises:
        PrivacyError: when there is no such share.
    """
    order, gamma = dataset.budget.order, dataset.gamma
    if request.mechanism.method == "histogram" and dataset.admits_pure(request.epsilon):
        return Paying("laplace", floor_to(Fraction(request.epsilon)), order, gamma)
    return Paying("gaussian", dataset.share(request.epsilon), order, gamma)


def _measured(
    dataset: PublicDataset, request: SessionRequest, workload: TableWorkload, paying: Paying
) -> tuple[tuple[Buy, ...], Expected | None] | Infeasible:
    """What a method measures, and the errors of the best linear unbiased values from that.

    Raises:
        PrivacyError: when it cannot be paid.
    """
    method, sizes = request.mechanism.method, dataset.space.shape
    if method == "synthetic_graph":
        return Infeasible("synthetic_graph serves graphs, and this is a table: use synthetic_table")
    empty = residuals_of(dataset.space, dataset.records)
    if method == "histogram":
        everything = Marginal.of(sizes, dict.fromkeys(range(len(sizes))))
        if everything.cells > MOST_WHOLE:
            return Infeasible(
                f"histogram measures at most {MOST_WHOLE:,} cells, and the table has {approximate(everything.cells)}: "
                "declare fewer attributes or coarser bins, or use factorization"
            )
        buys = paying.fitted([TableStrategy.of(everything)], [1.0])
        return buys, None if isinstance(workload, Ranges) else unbiased(buys, workload.questions, empty)
    if method in ("gaussian", "projection"):
        if isinstance(workload, Ranges):
            return Infeasible(f"{method} measures questions one by one, and ranges are too many: use factorization")
        own = [question.apart(sizes) for question in workload.questions]
        if sum(marginal.cells for marginal in own) > MOST_CELLS:
            return _too_large(sum(marginal.cells for marginal in own))
        cells = workload.apart(sizes).cells
        if method == "projection" and cells > MOST_FITTED:
            # Said before anything is paid: what would be made of the measurements could not be held.
            return Infeasible(
                f"projection keeps a number for every cell of the workload's attributes, at most {MOST_FITTED:,}, and "
                f"these have {approximate(cells)}: ask for fewer attributes, or use factorization or synthetic_table"
            )
        buys = paying.fitted([TableStrategy.of(marginal) for marginal in own], [1.0] * len(own))
        return buys, unbiased(buys, workload.questions, empty)
    try:
        leaning = LEANING if method == "synthetic_table" else 1.0
        found = _factorized(dataset, workload, paying, leaning, request.mechanism.rows)
    except UnfitWorkload as error:
        return Infeasible(f"{method}: {error}")
    return found.buys, found.expected


def _factorized(
    dataset: PublicDataset, workload: TableWorkload, paying: Paying, leaning: float, rows: Mapping[str, Any] | None
) -> Factorization:
    """The measurements that make the errors of a workload least.

    Raises:
        UnfitWorkload: for a workload that is too large, and rows that are none of it.
    """
    if isinstance(workload, Marginals):
        weights: dict[Marginal, float] = {}
        for marginal in workload.marginals:
            weights[marginal] = weights.get(marginal, 0.0) + 1.0
        if workload.even:
            return for_marginals(weights, paying, public_total=dataset.records is not None, leaning=leaning)
    marginal = workload.apart(dataset.space.shape)
    if marginal.cells > MOST_ROW_CELLS:
        raise UnfitWorkload(
            f"the workload tells {approximate(marginal.cells)} cells apart, at most {MOST_ROW_CELLS:,}: ask for "
            "marginals of declared cells, of fewer attributes, or for fewer queries"
        )
    asked = CellRanges(marginal.cells) if isinstance(workload, Ranges) else Questions(workload.weights(marginal))
    if rows is not None:
        try:
            read = Rows.read(rows) if rows else None
        except (KeyError, TypeError, ValueError):
            raise UnfitWorkload("rows are written in another way") from None
        return of_rows(marginal, read, asked, paying)
    return for_cells(marginal, asked, paying)


def settled(plan: WorkloadPlan, request: SessionRequest) -> SessionRequest:
    """A request that names the rows which a plan found best: a search in floating point may end elsewhere on another
    machine, and whoever audits the release must come to the same plan.
    """
    parts = [part for buy in plan.buys if isinstance(buy, Buy) for part in buy.strategy.parts]
    searched = request.mechanism.method in SEARCHED and not any(part.residual for part in parts)
    if not searched or isinstance(plan.workload, Cuts) or (isinstance(plan.workload, Marginals) and plan.workload.even):
        return request
    (part,) = parts
    rows = {} if part.rows is None else part.rows.document()
    return request.model_copy(update={"mechanism": request.mechanism.model_copy(update={"rows": rows})})


def _too_large(cells: int) -> Infeasible:
    return Infeasible(
        f"a release measures at most {MOST_CELLS:,} cells, and the workload has {cells:,}: ask for fewer marginals, or "
        "of fewer attributes"
    )
