"""Plans of evidence sessions: what they may pay, and how they go about it.

Such a session answers from everything that was ever measured of its data set and buys what it must. How it pays is told
by the declaration and the budget alone, so that its plan follows from its header.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from app.curator.contract_plan import Contract, contract_of, events_of_hit
from app.curator.dataset import PublicDataset
from app.curator.plan import Infeasible, SessionPlan
from app.curator.promises import least_epsilon
from app.curator.request import SessionRequest
from app.evidence.policy import ONE_WAYS_PART, Means, Mode, Policy
from app.evidence.residuals import Residuals
from app.privacy.costs import DiscreteGaussianAnswer, PrivacyEvent
from app.privacy.errors import PrivacyError
from app.spaces.space import Space

_HOW: dict[Mode, str] = {
    "table": "the whole table is measured at the opening, and every answer is an estimate from that, free of charge",
    "laplace": "few questions on a large table: each is measured with its part of epsilon",
    "lift": "each question is answered from all that was measured so far where that is good enough, and measured else",
    "contract": "each question is held against the data first, which costs nothing where all that was measured answers "
    "it within the error bound, and measured else",
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


def evidence_plan(dataset: PublicDataset, request: SessionRequest) -> EvidencePlan | Infeasible:
    """The plan of a session that answers from evidence, or why there is none."""
    space, budget = dataset.space, dataset.budget
    name = request.mechanism.construction
    if space.kind != "table":
        return Infeasible(f"{name} serves tables, and this is a {space.kind}: use gaussian, laplace or a construction")
    if request.max_updates is not None and not request.contract:
        return Infeasible(f"{name} takes no max_updates: it pays as long as its share lasts")
    if request.calibration != "rdp" or (request.release != "single" and not request.contract):
        return Infeasible(f"{name} is calibrated by rdp, and without a contract its release is single: leave both out")
    contract: Contract | None = None
    try:
        share = budget.share(request.epsilon)
        if request.contract:
            found = contract_of(dataset, request, share)
            if isinstance(found, Infeasible):
                return found
            contract = found
            hit = events_of_hit(contract.scale, request.release)
            events = [(_gaussian(Fraction(str(ONE_WAYS_PART)) * Fraction(share), budget.order), 1)]
            events += [(event, contract.max_updates) for event in hit]
        else:
            events = [(_gaussian(Fraction(share), budget.order), 1)]
        alone = least_epsilon(tuple(events), Fraction(budget.delta) - budget.set_aside)
    except PrivacyError as error:
        return Infeasible(str(error))
    means = means_of(request, budget.order, share)
    return EvidencePlan(
        answer_bits=space.answer_bits,
        max_updates=request.max_queries if contract is None else contract.max_updates,
        max_queries=request.max_queries,
        beta=request.beta,
        epsilon=request.epsilon,
        epsilon_alone=alone,
        delta=budget.delta,
        calibration=request.calibration,
        release=request.release,
        order=budget.order,
        reserved=share,
        mode=Policy(residuals_of(space, dataset.records), means).mode,
        declared=request.declared,
        race=None if contract is None else contract.race,
        contract=contract,
    )


def _gaussian(share: Fraction, order: Decimal) -> PrivacyEvent:
    """What a share is spent on that may draw Gaussian noise alone: as one answer of the same concentration."""
    return DiscreteGaussianAnswer(Fraction(1), 2 * share / Fraction(order))


def means_of(request: SessionRequest, order: Decimal, share: Decimal) -> Means:
    """What a session may pay from, for its policy."""
    questions = request.max_queries if request.declared else None
    return Means(float(order), float(share), float(request.epsilon), False, questions, request.contract)


def residuals_of(space: Space, records: float | None) -> Residuals:
    """Nothing measured yet of a table, whose number of records may be public."""
    return Residuals(space.shape, records)
