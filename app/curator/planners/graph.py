"""Plans of sessions that answer cuts of graphs and matrices from everything that was ever measured of them.

How such a session pays is told by the declaration, the budget and the number of questions alone: by degrees first and
questions after, by all edges at once, or by each of few questions on its own (:mod:`app.policies.graph`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.expectation import Expectation
from app.curator.plan import FREE, EvidencePlan, Offer
from app.curator.planners.cells import MOST_BITS, MOST_NUMBERS
from app.curator.planners.table import gaussian_of
from app.curator.request import SessionRequest
from app.estimation.tails import Term, normal_quantile, reach
from app.measurements.noise import Noise
from app.measurements.noise_search import cheapest_noise, noise_on_grid
from app.measurements.record import Purchase
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.policies.foretelling import Paid
from app.policies.graph import GraphMode
from app.privacy.costs import PureStep
from app.privacy.exactness import EXACT, floor_to
from app.privacy.ledger import Amounts, total
from app.releases import cut_bounds
from app.releases.edge_designs import beside_degrees, degrees_noise
from app.releases.factorization import Unaffordable
from app.spaces.matrix import MatrixSpace
from app.spaces.queries.cut import CutQuery
from app.spaces.space import Space

#: The part of the share that degrees take: of few questions, what each question adds to that, and at most.
DEGREES_PART, EACH_PART, MOST_PART = Fraction(1, 20), Fraction(1, 50_000), Fraction(3, 20)
#: The part that the sum of all cells takes, which degrees leave less known than that.
TOTAL_PART = Fraction(1, 50)
#: The part of epsilon that degrees take where all edges are measured.
BESIDE_EDGES = Fraction(1, 5)
#: The error of a cut by edges, in standard deviations of a cell and roots of cells of the whole: what it was on streams
#: of many kinds of cuts.
_BY_EDGES = 0.19
#: Beyond so many questions later ones are answered ever more from earlier ones; how fast errors fall by that.
_ENOUGH, _LEARNING = 300, 0.2
#: Half of what cuts of a graph, of which half of all pairs are edges, differ by from what its degrees let expect; in
#: roots of the longer side times all cells.
_BY_DEGREES = 0.0625
#: Degrees alone are measured where that is below this part of what the other ways are expected to err by.
_SURELY = 0.8
#: The part of epsilon that the total takes then.
TOTAL_BESIDE = Fraction(1, 20)
#: The most nodes for which degrees are measured: each is a value of a record.
MOST_NODES = 1 << 22
#: Kinds of data sets that such sessions are of.
GRAPHS = ("graph", "bipartite", "matrix")
_HOW: Mapping[GraphMode, str] = {
    "degrees": "degrees are measured at the opening; each question is answered from them and from all cuts measured so "
    "far where that is good enough, and measured else",
    "sums": "a small graph and little to pay with: degrees and the sum of all cells are measured at the opening, and "
    "every answer is an estimate from that, free of charge",
    "edges": "every cell is measured at the opening, and every answer is an estimate from that, free of charge",
    "free": FREE,
    "laplace": "few questions: each is measured with its part of epsilon",
}

#: What the error of a cut is that of.
_CUTS: Mapping[GraphMode, str] = {
    "degrees": "The error is that of a cut that is measured; those that are foretold well enough are not.",
    "sums": "The error is about what degrees do not tell of a cut of half of the nodes.",
    "edges": "The error is that of a cut of a quarter of all cells; it grows as the root of the number of cells.",
    "laplace": "The error is that of each cut.",
}


@dataclass(frozen=True, kw_only=True)
class GraphPlan(EvidencePlan):
    """The plan of a session that answers from evidence of a graph or a matrix.

    Attributes:
        question_error: the standard error to expect of a cut that is measured, or of one of a quarter of all cells
            where all of them are.
    """

    mode: GraphMode
    question_error: float

    def expectation(self, dataset: PublicDataset, request: SessionRequest) -> Expectation | None:
        """That of a cut; None where nothing is bought."""
        return None if self.free else Expectation({"cut": self.question_error}, (_CUTS[self.mode],))

    def paid(self, dataset: PublicDataset, request: SessionRequest) -> Paid | None:
        """Of cuts, each measured by itself; more where edges lie so near that they need not be."""
        within, confidence, share = request.within, request.confidence, dataset.share(request.epsilon)
        if within is None or not share:
            return None
        everything, bits = _everything(dataset.space), dataset.space.answer_bits

        def meets(noise: Noise) -> bool:
            return reach([Term.of(noise, np.ones(1))], confidence) <= within

        def price(noise: Noise) -> Decimal:
            return dataset.purchase(everything, noise).price.renyi

        deviation = within / normal_quantile(confidence)
        noise = cheapest_noise({"gaussian": deviation, "laplace": deviation / math.sqrt(2)}, meets, price, bits)
        return Paid(within, confidence, 0 if noise is None else int(share // price(noise)))


def graph(dataset: PublicDataset, request: SessionRequest) -> Offer[GraphPlan]:
    """The offer of a session that answers from evidence of a graph or a matrix: what is expected to err least. Reads
    public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such session, or its share pays for nothing.
    """
    space, name = dataset.space, request.mechanism.construction
    if request.contract:
        raise PlanInfeasible(
            f"contract: error bounds of all answers at once are kept for tables, and this is a {space.kind}: leave it "
            "out, or use a construction (mw, fk, md)"
        )
    if request.max_updates is not None:
        raise PlanInfeasible(f"{name} takes no max_updates: it pays as long as its share lasts")
    if request.calibration != "rdp" or request.release != "single":
        raise PlanInfeasible(f"{name} is calibrated by rdp, and its release is single: leave both out")
    if max(space.shape) > MOST_NODES:
        raise PlanInfeasible(
            f"{name} measures the degree of every node, at most {MOST_NODES:,} of a side, and there are "
            f"{max(space.shape):,}: use gaussian or laplace"
        )
    edges, whole = Edges.of(space), name == "histogram"
    adjacency = dataset.adjacency
    most = MOST_BITS if adjacency.binary else MOST_NUMBERS
    if whole and edges.cells > most:
        raise PlanInfeasible(
            f"histogram measures every cell, at most {most:,} of {'bits' if adjacency.binary else 'numbers'}, and the "
            f"{space.kind} has {edges.cells:,}: use evidence"
        )
    if not request.epsilon:
        plan = partial(
            GraphPlan,
            max_updates=request.max_queries,
            mode="free",
            how=_HOW["free"],
            declared=request.declared,
            question_error=math.inf,
        )
        return Offer(plan=plan, guarantees=Decimal(0))
    budget, share = dataset.budget, dataset.share(request.epsilon)
    pure = floor_to(request.epsilon) if dataset.admits_pure(request.epsilon) else None
    unit, order = float(dataset.space.unit), budget.order
    # In one release of everything, with all of the share.
    once = unit * math.sqrt(float(order) / (2 * float(share)))
    questions = request.max_queries if request.declared else None
    if not whole and request.within is None and pure is not None and questions is not None:
        # Laplace noise of a part of epsilon, of twice the square of its scale.
        alone = math.sqrt(2) * unit * questions / float(pure)
        if alone <= once * math.sqrt(questions):
            return _offer(dataset, request, "laplace", (), alone)
    if whole or (edges.cells <= most and request.within is None):
        buys = beside_degrees(edges, adjacency, order, share, pure, BESIDE_EDGES)
        deviation = math.sqrt(buys[0].noise.variance)
        by_edges = _BY_EDGES * deviation * math.sqrt(math.prod(edges.shape))
        many = 10**9 if questions is None else questions
        by_questions = once * math.sqrt(many) * min(1.0, (_ENOUGH / many) ** _LEARNING)
        # However noisy questions are, a graph does not differ by more from what its degrees let expect.
        by_degrees = _BY_DEGREES * math.sqrt(max(edges.shape) * math.prod(edges.shape)) * float(_largest(dataset.space))
        # Where nobody said how many questions there will be, something is kept to pay for them.
        declared = questions is not None
        if declared and not whole and pure is not None and by_degrees < _SURELY * min(by_edges, by_questions):
            return _sums(dataset, request, edges, pure, by_degrees)
        # Who picks cuts by noisy edges is answered badly: that is not risked for few questions.
        if whole or (declared and many >= _ENOUGH and by_edges < min(by_questions, by_degrees)):
            error = deviation * math.sqrt(edges.cells) / 2
            return _offer(dataset, request, "edges", buys, error)
    each = once * math.sqrt(2 * 100 if questions is None else questions)
    if request.within is not None:
        # What is asked to be known so well is measured by itself: degrees would not make it cheaper.
        return _offer(dataset, request, "degrees", (), request.within / 2)
    part = MOST_PART if questions is None else min(MOST_PART, DEGREES_PART + EACH_PART * questions)
    degrees = degrees_noise(edges, adjacency, order, floor_to(Fraction(share) * part), by_pure=False)
    everything = _total(dataset, floor_to(Fraction(share) * TOTAL_PART), pure=False)
    return _offer(dataset, request, "degrees", (degrees, everything), each)


def _sums(
    dataset: PublicDataset, request: SessionRequest, edges: Edges, pure: Decimal, error: float
) -> Offer[GraphPlan]:
    """Degrees and the total for all of epsilon, and nothing after.

    Raises:
        Unaffordable: when that pays for no noise that can be drawn.
    """
    first = floor_to(Fraction(pure) * (1 - TOTAL_BESIDE))
    degrees = degrees_noise(edges, dataset.adjacency, dataset.budget.order, first, by_pure=True)
    everything = _total(dataset, EXACT.subtract(pure, first), pure=True)
    return _offer(dataset, request, "sums", (degrees, everything), error)


def _largest(space: Space) -> Fraction:
    """How far apart two entries can be."""
    return space.upper - space.lower if isinstance(space, MatrixSpace) else Fraction(1)


def _everything(space: Space) -> Asked:
    """The sum of all cells, which moves as far as any cut does."""
    return Asked.of(CutQuery(type="cut", left="all", right="all").compiled(space))


def _total(dataset: PublicDataset, held: Decimal, *, pure: bool) -> Purchase[Asked]:
    """The sum of all cells, with the noise of the least variance that so much pays for.

    Raises:
        Unaffordable: when it would be too large to be drawn.
    """
    space, order = dataset.space, dataset.budget.order
    everything, bits = _everything(space), space.answer_bits
    noise = noise_on_grid(float(held), float(order), *everything.sensitivity(dataset.adjacency, bits), bits, pure=pure)
    if noise is None:
        raise Unaffordable("so small a share pays for no noise that can be drawn: raise epsilon")
    return dataset.purchase(everything, noise)


def _offer(
    dataset: PublicDataset,
    request: SessionRequest,
    mode: GraphMode,
    buys: tuple[Purchase[Strategy], ...],
    error: float,
) -> Offer[GraphPlan]:
    plan = partial(
        GraphPlan,
        max_updates=request.max_queries,
        mode=mode,
        how=_HOW[mode],
        declared=request.declared,
        question_error=cut_bounds.rounded_up(error),
    )
    order, share = dataset.budget.order, dataset.share(request.epsilon)
    # All that it may draw is Gaussian noise of this share at most, or Laplace noise that costs no more.
    events = ((gaussian_of(Fraction(share), order), 1),)
    price = total(buy.price for buy in buys)
    if mode == "laplace":
        most = Amounts.of(PureStep(request.epsilon), order)
        return Offer(plan=plan, most=most, events=events, regime="pure", guarantees=request.epsilon)
    if mode != "degrees" and (price.renyi > share or (price.pure is not None and dataset.admits_pure(request.epsilon))):
        return Offer(plan=plan, buys=buys, regime="pure", guarantees=request.epsilon)
    return Offer(plan=plan, buys=buys, most=Amounts(share), events=events)
