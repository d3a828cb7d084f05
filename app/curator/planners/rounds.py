"""Plans of iterative constructions: how many rounds, on which terms, and what the papers would take for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from app.constructions.base import MarginalConstruction, PublicFacts
from app.constructions.mechanism import FkMechanism, Iterative, MwMechanism
from app.constructions.registry import construct, unfit
from app.curator.dataset import FACT_FAILURE, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.request import SessionRequest
from app.measurements.record import Measurement, Purchase, those
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.costs import DiscreteGaussianAnswer, ExponentialChoice, PrivacyEvent
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts, total
from app.releases.candidates import Candidates
from app.releases.factorization import Paying
from app.releases.rounds import MOST_LEARNT, Rounds, terms, usual_number
from app.releases.workloads import Ranges, TableWorkload
from app.spaces.partition import Marginal

#: A table's hypothesis has at most so many cells, and a round chooses from at most so many queries.
MOST_CELLS, MOST_CANDIDATES = 1 << 22, 1 << 20
#: The number of records, where it must be bought, takes one part in this many of the share.
TOTAL_PART = 20


@dataclass(frozen=True, eq=False)
class Iterations:
    """The terms of an iterative construction.

    Attributes:
        buys: the number of records, where the construction needs it and it is not public; before all rounds.
        rounds: the terms of all of them.
        progress: a gap of which every construction's bound allows no more than so many rounds, in counts; None where no
            bound is known from public facts.
        papers_epsilon: epsilon of the choice and of the measurement of a round as GRU11 has it, section 6.
        events: all that is computed from the data, each so many times.
    """

    buys: tuple[Purchase[TableStrategy], ...]
    rounds: Rounds
    progress: float | None
    papers_epsilon: float
    events: tuple[tuple[PrivacyEvent, int], ...]

    def document(self) -> dict[str, Any]:
        """As JSON: the terms of a round, and beside them those of the papers."""
        rounds = self.rounds
        return {
            "number": rounds.number,
            "candidates": rounds.candidates.number,
            "choice_epsilon": str(rounds.epsilon),
            "choice_cost": str(rounds.choice.renyi),
            "cost": str(rounds.price.renyi),
            "papers_epsilon": _short(self.papers_epsilon),
            "progress": None if self.progress is None else _short(self.progress),
        }


def iterations(dataset: PublicDataset, request: SessionRequest, workload: TableWorkload, paying: Paying) -> Iterations:
    """The rounds for a workload. Reads public facts only.

    Raises:
        PlanInfeasible, PrivacyError: when there are none, or they cannot be paid.
    """
    space, order, options = dataset.space, paying.order, request.workload.options
    mechanism = mechanism_of(request)
    reason = unfit(mechanism, space)
    if reason is not None:
        raise PlanInfeasible(reason)
    if space.cells > MOST_CELLS:
        raise PlanInfeasible(
            f"iterative_construction keeps a number for every cell, at most {MOST_CELLS:,}, and the table has "
            f"{space.cells:,}: declare fewer attributes or coarser bins, or use factorization"
        )
    if isinstance(workload, Ranges) and workload.numbers > MOST_CANDIDATES:
        raise PlanInfeasible(
            f"a round of iterative_construction chooses from at most {MOST_CANDIDATES:,} ranges, and there are "
            f"{workload.numbers:,}: declare coarser bins, or use factorization"
        )
    candidates = Candidates.of(workload, space.shape)
    if not candidates.families:
        raise PlanInfeasible("the workload asks for nothing but the number of records: open a session and ask for that")
    if candidates.most_told > MOST_LEARNT:
        raise PlanInfeasible(
            f"iterative_construction learns at most {MOST_LEARNT:,} cells a round, and a query of the workload tells "
            f"{candidates.most_told:,} apart: ask for smaller marginals, or use factorization"
        )
    facts = dataset.facts
    buys: tuple[Purchase[TableStrategy], ...] = ()
    if mechanism.entropic and facts.mass is None:
        everything = TableStrategy.of(Marginal.of(space.shape, {}))
        part = floor_to(Fraction(paying.share) / TOTAL_PART)
        buys = Paying("gaussian", part, order, paying.gamma).fitted([everything], [1.0])
    left = replace(paying, share=Amounts(paying.share).minus(Amounts(total(buy.price for buy in buys).renyi)).renyi)
    concentration = float(left.share) / float(order)
    number = options.rounds or usual_number(facts.mass, space.cells, concentration, candidates)
    rounds = terms(candidates, number, left)
    gaussian = [(rounds.noise.scale, number), *((buy.noise.scale, 1) for buy in buys)]
    events: list[tuple[PrivacyEvent, int]] = [(ExponentialChoice(rounds.epsilon), number)]
    events += [(DiscreteGaussianAnswer(scale, paying.gamma**2), count) for scale, count in gaussian]
    bound = None if buys else construct(mechanism, space, facts, 1.0, 1).bound(1.0)
    log = math.log(1 / float(dataset.budget.delta))
    return Iterations(
        buys,
        rounds,
        None if bound is None else math.sqrt(bound / number),
        float(request.epsilon) / (4 * math.sqrt(number * log)),
        tuple(events),
    )


def construction_of(
    dataset: PublicDataset, request: SessionRequest, made: Sequence[Measurement[Strategy]]
) -> MarginalConstruction:
    """The construction that keeps the hypothesis of a release.

    Args:
        dataset: what was public of the data set before.
        request: of the release.
        made: what was measured for it: the number of records before the rounds, or nothing, and what these measured.
    """
    facts = dataset.facts
    records = next((each for each in those(made, TableStrategy) if each.strategy.cells == 1), None)
    if records is not None:
        # Beyond this the noise lies with a probability that is negligible; a hypothesis needs some mass.
        tail = math.sqrt(2 * records.variance * -math.log(FACT_FAILURE))
        facts = PublicFacts(max(1.0, float(records.values.sum()) + tail), padded=True, norms=facts.norms)
    construction = construct(mechanism_of(request), dataset.space, facts, 1.0, 1)
    assert isinstance(construction, MarginalConstruction)
    return construction


def mechanism_of(request: SessionRequest) -> Iterative:
    """The construction that is asked for, by default multiplicative weights."""
    if request.workload.options.construction == "fk":
        return FkMechanism(construction="fk")
    return MwMechanism(construction="mw")


def _short(number: float) -> float:
    """To the digits that are the same on all machines."""
    return float(f"{number:.6g}")
