"""Plans of evidence sessions: what they may pay, and how they go about it.

Such a session answers from everything that was ever measured of its data set and buys what it must. How it pays is told
by the declaration and the budget alone, so that its plan follows from its header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

from app.constructions.registry import approximate
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.expectation import Expectation, of_table
from app.curator.plan import FREE, EvidencePlan, Offer
from app.curator.request import SessionRequest
from app.curator.workloads import too_many_values, values_bytes
from app.estimation.tables.residuals import Residuals
from app.policies.foretelling import Foretelling, Paid, paid_for
from app.policies.table import Funds, Mode, OutOfReach, Policy
from app.privacy.costs import DiscreteGaussianAnswer, PrivacyEvent, PureStep
from app.privacy.ledger import Amounts
from app.spaces.partition import Partition
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.zeros import NO_ZEROS

#: The most cells of a table that is measured whole: some seconds of drawing noise.
MOST_MEASURED = 1 << 20
#: About what measurements and fits take, kept within limits of their own.
_OWN_BYTES = 56 << 20
_HOW: Mapping[Mode, str] = {
    "table": "the whole table is measured at the opening, and every answer is an estimate from that, free of charge",
    "laplace": "few questions on a large table: each is measured with its part of epsilon",
    "free": FREE,
    "lift": "each question is answered from all that was measured so far where that is good enough, and measured else",
}


@dataclass(frozen=True, kw_only=True)
class TablePlan(EvidencePlan):
    """The plan of a session that answers from evidence of a table."""

    def expectation(self, dataset: PublicDataset, request: SessionRequest) -> Expectation | None:
        """As of a table of which nothing was measured; None where nothing is bought, or the opening cannot be paid."""
        if self.free:
            return None
        policy = Policy(residuals_of(dataset.space, dataset.records), funds_of(dataset, request))
        try:
            due = policy.opening()
        except OutOfReach:
            return None
        return foretold(dataset, Foretelling(policy, due, policy.total, records=dataset.facts.mass))

    def paid(self, dataset: PublicDataset, request: SessionRequest) -> Paid | None:
        """Of counts."""
        return paid_for(dataset.space.shape, funds_of(dataset, request))


def foretold(dataset: PublicDataset, found: Foretelling) -> Expectation:
    """What is expected of a session on a table."""
    assert isinstance(dataset.space, TableSpace)
    return of_table(found, dataset.space)


def most_bytes(space: Space) -> int:
    """About what measurements and fits take, and every declared value."""
    return _OWN_BYTES + values_bytes(space)


def table(dataset: PublicDataset, request: SessionRequest) -> Offer[TablePlan]:
    """The offer of a session that answers from evidence of a table.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such session.
    """
    check_table(dataset, request)
    policy = Policy(residuals_of(dataset.space, dataset.records), funds_of(dataset, request))
    order, share = dataset.budget.order, dataset.share(request.epsilon)
    plan = partial(
        TablePlan, max_updates=request.max_queries, mode=policy.mode, how=_HOW[policy.mode], declared=request.declared
    )
    if policy.mode == "free":
        return Offer(plan=plan, guarantees=Decimal(0))
    # All that it may draw is Gaussian noise of this share at most.
    events = ((gaussian_of(Fraction(share), order), 1),)
    if not policy.pure:
        return Offer(plan=plan, most=Amounts(share), events=events)
    # Its price in the other sum is that of any pure mechanism at most.
    most = Amounts.of(PureStep(request.epsilon), order)
    return Offer(plan=plan, most=most, events=events, regime="pure", guarantees=request.epsilon)


def check_table(dataset: PublicDataset, request: SessionRequest) -> None:
    """Refuse a session that no table answers from evidence.

    Raises:
        PlanInfeasible: saying why.
    """
    space, name = dataset.space, request.mechanism.construction
    if space.kind != "table":
        raise PlanInfeasible(
            f"{name} serves tables, and this is a {space.kind}: use gaussian, laplace or a construction"
        )
    refused = too_many_values(space, name)
    if refused is not None:
        raise PlanInfeasible(refused)
    if name == "histogram" and space.cells > MOST_MEASURED:
        raise PlanInfeasible(
            f"histogram measures at most {MOST_MEASURED:,} cells, and the table has {approximate(space.cells)}: "
            "declare fewer attributes or coarser bins, or use evidence"
        )
    if request.max_updates is not None and not request.contract:
        raise PlanInfeasible(f"{name} takes no max_updates: it pays as long as its share lasts")
    if request.calibration != "rdp" or (request.release != "single" and not request.contract):
        raise PlanInfeasible(
            f"{name} is calibrated by rdp, and without a contract its release is single: leave both out"
        )


def gaussian_of(share: Fraction, order: Decimal) -> PrivacyEvent:
    """The purchase of a share that may draw Gaussian noise alone: as one answer of the same concentration."""
    return DiscreteGaussianAnswer(Fraction(1), 2 * share / Fraction(order))


def funds_of(dataset: PublicDataset, request: SessionRequest) -> Funds:
    """The budget of a session, for its policy.

    Raises:
        PrivacyError: when there is no such share.
    """
    budget, epsilon = dataset.budget, request.epsilon
    questions = request.max_queries if request.declared else None
    share = dataset.share(epsilon)
    # Tests are not pure, and where little is to be paid the other sum counts it as less.
    pure = not request.contract and request.within is None and dataset.admits_pure(epsilon)
    return Funds(
        float(budget.order),
        float(share),
        float(epsilon),
        pure,
        questions,
        whole=request.mechanism.construction == "histogram",
        contract=request.contract,
        within=request.within,
        confidence=request.confidence,
        gamma=dataset.gamma,
    )


def residuals_of(space: Space, records: float | None) -> Residuals:
    """Nothing measured yet of a table, whose number of records may be public."""
    starting, zeros = (space.starting, space.zeros) if isinstance(space, TableSpace) else ({}, NO_ZEROS)
    cells = {axis: Partition.runs(space.shape[axis], begins) for axis, begins in starting.items()}
    return Residuals(space.shape, records, cells, zeros)
