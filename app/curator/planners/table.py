"""Plans of evidence sessions: what they may pay, and how they go about it.

Such a session answers from everything that was ever measured of its data set and buys what it must. How it pays is told
by the declaration and the budget alone, so that its plan follows from its header.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from app.constructions.registry import approximate
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer, SessionPlan
from app.curator.planners.contract import Contract, contract_of, events_of_hit
from app.curator.request import SessionRequest
from app.curator.workloads import too_many_values
from app.evidence.policy import ONE_WAYS_PART, Means, Mode, OutOfReach, Policy
from app.evidence.residuals import Residuals
from app.privacy.costs import DiscreteGaussianAnswer, PrivacyEvent, PureStep
from app.privacy.ledger import Amounts
from app.spaces.partition import Partition
from app.spaces.space import Space
from app.spaces.table import TableSpace

#: The most cells of a table that is measured whole: some seconds of drawing noise.
MOST_MEASURED = 1 << 20
_HOW: dict[Mode, str] = {
    "table": "the whole table is measured at the opening, and every answer is an estimate from that, free of charge",
    "laplace": "few questions on a large table: each is measured with its part of epsilon",
    "lift": "each question is answered from all that was measured so far where that is good enough, and measured else",
    "contract": "each question is held against the data first, which costs nothing where all that was measured answers "
    "it within the error bound, and measured else",
    "release": "what the workload is answered from is measured at once, and nothing is asked",
}


@dataclass(frozen=True, kw_only=True)
class EvidencePlan(SessionPlan):
    """The plan of an evidence session.

    Attributes:
        mode: ``table``, ``laplace``, ``lift`` or ``contract``: how it pays.
        declared: whether the number of questions was declared; a session where it was not never runs out of them.
        contract: the terms of its tests, where a bound of all answers at once is promised.
    """

    mode: Mode
    declared: bool
    contract: Contract | None = None

    @property
    def error_bound(self) -> float | None:
        """The contract's."""
        return None if self.contract is None else self.contract.error_bound

    def document(self) -> dict[str, Any]:
        """As JSON: with the mode, the terms of tests where there are any, and no number of queries where none was
        declared. Threshold, bounds and drift are in counts.
        """
        document = super().document() | {"mode": self.mode}
        if not self.declared:
            document |= {"max_queries": None, "max_updates": None}
        terms = self.contract
        if terms is not None:
            document |= {
                "noise": "laplace",
                "noise_scale": float(terms.scale),
                "measured_scale": float(terms.measured_scale),
                "threshold": terms.threshold_units,
                "noise_bound": terms.noise_bound,
                "drift": terms.drift,
                "progress": terms.progress,
                "race": None if terms.race is None else terms.race.document(),
                "cost_per_update": str(terms.cost_per_update),
            }
        return document

    def reply(self) -> dict[str, Any]:
        """As JSON for those who ask: with the mode in words."""
        return super().reply() | {"how": _HOW[self.mode]}


def table(dataset: PublicDataset, request: SessionRequest) -> Offer[EvidencePlan]:
    """What a session offers that answers from evidence of a table.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such session.
    """
    space, order = dataset.space, dataset.budget.order
    name = request.mechanism.construction
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
    policy = Policy(residuals_of(space, dataset.records), means_of(dataset, request))
    share = dataset.share(request.epsilon)
    contract: Contract | None = None
    # All that it may draw is Gaussian noise of this share at most.
    events: tuple[tuple[PrivacyEvent, int], ...] = ((gaussian_of(Fraction(share), order), 1),)
    if request.contract:
        contract = contract_of(dataset, request, share)
        hit = events_of_hit(contract.scale, request.release, dataset.gamma)
        one_ways = gaussian_of(Fraction(str(ONE_WAYS_PART)) * Fraction(share), order)
        events = ((one_ways, 1), *((event, contract.max_updates) for event in hit))
    plan = partial(
        EvidencePlan,
        max_updates=request.max_queries if contract is None else contract.max_updates,
        mode=policy.mode,
        declared=request.declared,
        race=None if contract is None else contract.race,
        contract=contract,
    )
    if not policy.pure:
        return Offer(plan=plan, most=Amounts(share), events=events)
    # Its price in the other sum is that of any pure mechanism at most.
    most = Amounts.of(PureStep(request.epsilon), order)
    return Offer(plan=plan, most=most, events=events, regime="pure", guarantees=request.epsilon)


def expected_errors(dataset: PublicDataset, request: SessionRequest) -> dict[str, float] | None:
    """The standard errors to expect of counts under conditions on one and on two attributes, before anything is known
    of the data; None where they are not foretold.

    Raises:
        PrivacyError: when there is no such share.
    """
    policy = Policy(residuals_of(dataset.space, dataset.records), means_of(dataset, request))
    try:
        found = policy.expected()
    except OutOfReach:
        return None
    return None if found is None else {"one_attribute": found[0], "two_attributes": found[1]}


def gaussian_of(share: Fraction, order: Decimal) -> PrivacyEvent:
    """What a share is spent on that may draw Gaussian noise alone: as one answer of the same concentration."""
    return DiscreteGaussianAnswer(Fraction(1), 2 * share / Fraction(order))


def means_of(dataset: PublicDataset, request: SessionRequest) -> Means:
    """What a session may pay from, for its policy.

    Raises:
        PrivacyError: when there is no such share.
    """
    budget, epsilon = dataset.budget, request.epsilon
    questions = request.max_queries if request.declared else None
    share = dataset.share(epsilon)
    # Tests are not pure, and where little is to be paid the other sum counts it as less.
    pure = not request.contract and request.within is None and dataset.admits_pure(epsilon)
    return Means(
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
    starting = space.starting if isinstance(space, TableSpace) else {}
    cells = {axis: Partition.runs(space.shape[axis], begins) for axis, begins in starting.items()}
    return Residuals(space.shape, records, cells)
