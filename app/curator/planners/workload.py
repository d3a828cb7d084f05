"""Plans of releases: what is measured for a workload that is known in advance, and what it costs.

A release is a session that buys all it measures at its opening and is asked nothing: its plan names the measurements,
and an audit that computes the plan anew finds whether they are the ones that were made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from app.constructions.mechanism import Method, ReleaseOptions
from app.constructions.registry import approximate
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer
from app.curator.planners.rounds import Iterations, construction_of, iterations
from app.curator.planners.table import TablePlan, gaussian_of, most_bytes, residuals_of
from app.curator.request import SessionRequest
from app.curator.workloads import compiled, counts_records
from app.declarations.errors import InvalidRequest
from app.measurements.record import Measurement, Purchase, bought, those
from app.measurements.rows import Rows
from app.measurements.strategies.tables import MOST_ROW_CELLS, TableStrategy
from app.measurements.strategy import Strategy
from app.patience import Progress
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.errors import UnfitWorkload
from app.releases.expected import Expected, unbiased
from app.releases.factorization import MOST_SETS, Factorization, Paying, Questions, for_cells, for_marginals, of_rows
from app.releases.factorization import Ranges as CellRanges
from app.releases.fitting import MOST_CELLS as MOST_FITTED
from app.releases.playing import Begin
from app.releases.rounds import Hypothesis
from app.releases.workloads import Cuts, Marginals, Ranges, TableWorkload, Workload
from app.spaces.partition import Marginal
from app.spaces.space import Space

#: For a fit the precision of what is measured of most attributes together is this part of what would be best for
#: unbiased values (docs/releases.md).
EMPHASIS = 0.5
#: Methods that look for what is best to measure.
SEARCHED: tuple[Method, ...] = ("factorization", "synthetic_table", "publication")
#: Methods whose answers are those of fits.
_FITTED: tuple[Method, ...] = ("synthetic_table", "publication")
#: The options that belong to methods of tables; the others have none.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "iterative_construction": ("rounds", "construction"),
    "synthetic_table": ("records",),
    "publication": ("within",),
}
#: The most cells of a table that is measured whole, and of all measurements of a release together, and of what is
#: published.
MOST_WHOLE, MOST_CELLS = 1 << 20, 1 << 22


@dataclass(frozen=True, kw_only=True)
class WorkloadPlan(TablePlan):
    """The plan of a release.

    Attributes:
        workload: what is asked.
        expected: the errors of the best linear unbiased values; None where they are not told.
        iterations: the rounds behind that, each of which measures what it chooses; None where there are none.
    """

    mode: str = "release"
    how: str = "what the workload is answered from is measured at once, and nothing is asked"
    declared: bool = True
    workload: Workload
    expected: Expected | None
    iterations: Iterations | None = None

    @property
    def in_rounds(self) -> bool:
        """Whether there are rounds behind these purchases, which choose what they measure."""
        return self.max_updates > len(self.buys)

    def admits(self, place: int, release: Measurement[Strategy], price: Amounts) -> bool:
        """Whether a measurement may be the one at this place among all, in a round."""
        rounds = None if self.iterations is None else self.iterations.rounds
        return rounds is not None and price == rounds.price and rounds.admits(release.of(TableStrategy))

    def rounds(
        self,
        dataset: PublicDataset,
        request: SessionRequest,
        known: Sequence[Measurement[Strategy]],
        made: Sequence[Measurement[Strategy]],
        progress: Progress,
    ) -> Begin | None:
        """The rounds behind the purchases of the plan; None where there are none.

        Args:
            dataset: what was public of the data set before.
            request: of the release.
            known: what was measured of the data set before.
            made: what was bought for the release.
            progress: told from time to time.
        """
        if self.iterations is None:
            return None
        hypothesis = Hypothesis(construction_of(dataset, request, made), those(known, TableStrategy))
        return partial(self.iterations.rounds.play, hypothesis, progress)

    def measuring_bytes(self, space: Space) -> int:
        """About what measuring takes."""
        return most_bytes(space)

    def document(self) -> dict[str, Any]:
        """As JSON: with how many measurements there are, their cells where these are known ahead, the least and the
        largest noise, and the terms of rounds.
        """
        rounds = None if self.iterations is None else self.iterations.rounds
        noises = [buy.noise for buy in self.buys] + ([] if rounds is None else [rounds.noise])
        scales = [noise.scale for noise in noises]
        document = super().document() | {
            "measurements": self.max_updates,
            "cells": sum(buy.strategy.cells for buy in self.buys) if rounds is None else None,
            "noise": noises[0].kind if noises else None,
            "noise_scale": float(min(scales)) if scales else None,
            "largest_noise_scale": float(max(scales)) if scales else None,
        }
        return document if self.iterations is None else document | {"rounds": self.iterations.document()}


def workload(dataset: PublicDataset, request: SessionRequest) -> Offer[WorkloadPlan]:
    """The offer of a table's release. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such release.
    """
    asked = workload_of(dataset.space, request)
    assert not isinstance(asked, Cuts)
    method = request.workload.method
    check_options(dataset.space, request.workload.options, method, _OPTIONS.get(method, ()))
    if method == "publication" and not all(map(counts_records, asked.questions)):
        raise PlanInfeasible("a publication holds counts of records: leave out sums of other weights than 0 and 1")
    if method == "publication" and asked.numbers > MOST_CELLS:
        raise PlanInfeasible(
            f"a publication has at most {MOST_CELLS:,} numbers, and these tables have {asked.numbers:,}: ask for fewer "
            "of them, or of fewer groups"
        )
    if request.epsilon and not asked.counted.questions:
        raise PlanInfeasible(
            "what a publication spends measures counts, and all that is asked are other statistics: ask for them in "
            "a session, and publish that with epsilon 0"
        )
    if not request.epsilon:
        # Of what was measured before: nothing is bought, so that nothing more is ever known of the data.
        plan = partial(WorkloadPlan, max_updates=0, workload=asked, expected=None)
        return Offer(plan=plan, regime="pure", guarantees=request.epsilon)
    paying = paying_of(dataset, request)
    share = dataset.share(request.epsilon)
    rounds: Iterations | None = None
    expected: Expected | None = None
    if method == "iterative_construction":
        rounds = iterations(dataset, request, asked, paying)
        buys, events = rounds.buys, rounds.events
    else:
        buys, expected = _measured(dataset, request, asked.counted, paying)
        events = ((gaussian_of(Fraction(share), dataset.budget.order), 1),)
    plan = partial(
        WorkloadPlan,
        max_updates=len(buys) + (0 if rounds is None else rounds.rounds.number),
        workload=asked,
        expected=expected,
        iterations=rounds,
    )
    if paying.kind == "gaussian":
        return Offer(plan=plan, buys=buys, most=Amounts(share), events=events)
    return Offer(plan=plan, buys=buys, events=events, regime="pure", guarantees=request.epsilon)


def workload_of(space: Space, request: SessionRequest) -> Workload:
    """The workload of a release.

    Raises:
        PlanInfeasible: when the data set has no such workload.
    """
    try:
        return compiled(space, request.workload.workload, published=request.workload.method == "publication")
    except InvalidRequest as error:
        raise PlanInfeasible(error.detail) from None


def check_options(space: Space, options: ReleaseOptions, method: str, own: Collection[str]) -> None:
    """Refuse options of a release but those that belong to its method, whose names are ``own``.

    Raises:
        PlanInfeasible: naming the first of the others.
    """
    for name in type(options).model_fields:
        if getattr(options, name) is not None and name not in own:
            raise PlanInfeasible(f"{name} does not belong to {method} of a {space.kind}: leave it out")


def paying_of(dataset: PublicDataset, request: SessionRequest) -> Paying:
    """The payment of a release.

    Raises:
        PrivacyError: when there is no such share.
    """
    order, gamma = dataset.budget.order, dataset.gamma
    if request.workload.method == "histogram" and dataset.admits_pure(request.epsilon):
        return Paying("laplace", floor_to(Fraction(request.epsilon)), order, gamma)
    return Paying("gaussian", dataset.share(request.epsilon), order, gamma)


def _measured(
    dataset: PublicDataset, request: SessionRequest, workload: TableWorkload, paying: Paying
) -> tuple[tuple[Purchase[TableStrategy], ...], Expected | None]:
    """The measurements of a method, and the errors of the best linear unbiased values from that.

    Raises:
        PlanInfeasible, PrivacyError: when there is nothing of that kind, or it cannot be paid.
    """
    method, sizes = request.workload.method, dataset.space.shape
    if method == "synthetic_graph":
        raise PlanInfeasible("synthetic_graph serves graphs, and this is a table: use synthetic_table")
    empty = residuals_of(dataset.space, dataset.records)
    if method == "histogram":
        everything = Marginal.of(sizes, dict.fromkeys(range(len(sizes))))
        if everything.cells > MOST_WHOLE:
            raise PlanInfeasible(
                f"histogram measures at most {MOST_WHOLE:,} cells, and the table has {approximate(everything.cells)}: "
                "declare fewer attributes or coarser bins, or use factorization"
            )
        buys = paying.fitted([TableStrategy.of(everything)], [1.0])
        return buys, None if isinstance(workload, Ranges) else unbiased(buys, workload.questions, empty)
    if method in ("gaussian", "projection"):
        if isinstance(workload, Ranges):
            raise PlanInfeasible(f"{method} measures questions one by one, and ranges are too many: use factorization")
        if len(workload.questions) > MOST_SETS:
            raise PlanInfeasible(
                f"{method} measures at most {MOST_SETS:,} questions one by one, and there are "
                f"{len(workload.questions):,}: ask for fewer marginals, or use factorization"
            )
        own = [question.marginal_of(sizes) for question in workload.questions]
        if sum(marginal.cells for marginal in own) > MOST_CELLS:
            raise PlanInfeasible(
                f"a release measures at most {MOST_CELLS:,} cells, and the workload has "
                f"{sum(marginal.cells for marginal in own):,}: ask for fewer marginals, or of fewer attributes"
            )
        cells = workload.marginal.cells
        if method == "projection" and cells > MOST_FITTED:
            # Said before anything is paid: what would be made of the measurements could not be held.
            raise PlanInfeasible(
                f"projection keeps a number for every cell of the workload's attributes, at most {MOST_FITTED:,}, and "
                f"these have {approximate(cells)}: ask for fewer attributes, or use factorization or synthetic_table"
            )
        buys = paying.fitted([TableStrategy.of(marginal) for marginal in own], [1.0] * len(own))
        return buys, unbiased(buys, workload.questions, empty)
    try:
        emphasis = EMPHASIS if method in _FITTED else 1.0
        found = _factorized(dataset, workload, paying, emphasis, request.workload.rows)
    except UnfitWorkload as error:
        raise PlanInfeasible(f"{method}: {error}") from None
    return found.buys, found.expected


def _factorized(
    dataset: PublicDataset, workload: TableWorkload, paying: Paying, emphasis: float, rows: Mapping[str, Any] | None
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
            return for_marginals(weights, paying, public_total=dataset.records is not None, emphasis=emphasis)
    marginal = workload.marginal
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
    parts = [part for buy in bought(plan.buys, TableStrategy) for part in buy.strategy.parts]
    searched = request.workload.method in SEARCHED and not any(part.residual for part in parts)
    if not searched or isinstance(plan.workload, Cuts):
        return request
    counted = plan.workload.counted
    if isinstance(counted, Marginals) and counted.even:
        return request
    if not parts:
        return request
    (part,) = parts
    rows = {} if part.rows is None else part.rows.document()
    return request.model_copy(update={"mechanism": request.mechanism.model_copy(update={"rows": rows})})
