"""Evidence sessions of graphs and matrices: cuts are answered from all that was ever measured, and measured where they
must.

The policy (:mod:`app.evidence.graph_policy`) decides from public things alone, in cells from 0 to 1. Here it meets the
session: queries become questions, entries of a matrix are moved and scaled by its bounds, amounts are exact, and the
state is what the transcript says.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import chdtri

from app.constructions.base import Hypothesis
from app.constructions.dumps import Dump
from app.curator.errors import PlanInfeasible
from app.curator.graph_plan import GraphPlan
from app.curator.mechanisms import (
    Accuracy,
    Answer,
    Due,
    Measure,
    Measured,
    RoundNoise,
    RoundTerms,
    Source,
    State,
    Units,
    Wish,
)
from app.curator.opening import Opening
from app.curator.recorded import RecordedMechanism, noise_of, out_of_reach
from app.evidence.asked import Asked, AskedRelease
from app.evidence.cut_posterior import MOST_KEPT
from app.evidence.cuts import CutQuestion
from app.evidence.degrees import DegreeRelease, GraphBuy, GraphRelease
from app.evidence.edges import BitFlips, EdgeRelease, Edges
from app.evidence.estimates import normal_quantile
from app.evidence.graph_policy import GraphMeans, GraphPolicy, Learnt, Prediction, Shown
from app.evidence.measurements import Noise, NoiseKind
from app.evidence.noise_choice import LEAST_SCALE, SLACK, noise_on_grid, rounded_down
from app.evidence.policy import OutOfReach, squared
from app.evidence.products import ProductRelease
from app.evidence.strategies import Release
from app.privacy.ledger import Amounts, total
from app.releases.cut_bounds import Term, all_cuts_bound
from app.releases.pricing import price_of_asked
from app.spaces.degrees import CompiledDegrees
from app.spaces.errors import InvalidQuery, InvalidRequest
from app.spaces.matrix import MatrixSpace
from app.spaces.query import CompiledDense, CompiledPair, CompiledProduct, CompiledSparse, Query
from app.spaces.tensor import FloatArray

#: Of a question of more parts than the first others learn nothing, and beyond the second nothing is said of it but
#: what was measured for it; nor of one whose parts together weigh so many nodes: each is looked at beside all that was
#: kept, and a lane has others to answer.
MOST_LEARNT, MOST_ESTIMATED, MOST_WEIGHED = 256, 1 << 12, 1 << 20
#: About what a session takes beside what it keeps, and a node of it.
_OWN_BYTES, _NODE_BYTES = 16 << 20, 256
#: What a node that a question weighs takes while it is answered.
_ASKED_BYTES = 128
#: Of a pair of measurements that were kept: their covariances in three parts, and the factor.
_PAIR_BYTES = 32
#: Noise beyond this, in units of the answer grid, might pass 62 bits once it is drawn.
_GREATEST_UNITS = 2.0**54
#: Why there is no hypothesis to show.
NO_GRAPH = "the session keeps measurements, not cells: read them at the data set's measurements, or release all cuts"


#: The parts of queries that are being answered: what they weigh is looked at again and again.
_ASKED: WeakKeyDictionary[Query, list[CutQuestion]] = WeakKeyDictionary()


@dataclass(eq=False)
class GraphEvidence:
    """What a session knows: what is left to pay with, what was measured before the first question, with the noise of
    each measurement of cells, and the policy.
    """

    left: Amounts
    learnt: Learnt = field(default_factory=Learnt)
    noises: list[Noise | BitFlips] = field(default_factory=list)
    policy: GraphPolicy | None = None


class GraphMechanism(RecordedMechanism):
    """Answers from evidence of a graph or a matrix.

    Args:
        opening: of the session; its plan is that of such a session.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, GraphPlan)
        self._plan, space = opening.plan, self._space
        self._edges = Edges.of(space)
        # Entries are these numbers and multiples of these from 0 to 1.
        self._floor, self._span = 0.0, 1.0
        if isinstance(space, MatrixSpace):
            self._floor, self._span = float(space.lower), float(space.upper - space.lower)
        spec_unit = getattr(opening.dataset.spec, "unit", None)
        self._unit_side = None if spec_unit is None else str(spec_unit.side)

    # ------------------------------------------------------------------ the state

    def start(self, dump: Dump | None = None) -> State:
        """Nothing is measured yet, and the whole share is left."""
        return State(GraphEvidence(self._plan.holds))

    def pin(self, state: State, measured: Measured) -> None:
        """Take in what was measured before the first question: by others before the opening, then at the opening, which
        has a price.

        Raises:
            ValueError: when it is of another data set.
        """
        known, release = _evidence(state), measured.release
        if isinstance(release, DegreeRelease):
            release.strategy.check(self._space)
            rows, columns = release.strategy.sides(release.values)
            n, m = self._edges.shape
            sums = ((rows - self._floor * m) / self._span, (columns - self._floor * n) / self._span)
            known.learnt.degrees.append((*sums, release.variance / self._span**2))
        elif isinstance(release, EdgeRelease):
            release.strategy.check(self._space)
            matrix = release.strategy.matrix((release.values - self._floor) / self._span).astype(np.float32)
            known.learnt.edges.append((matrix, release.variance / self._span**2))
            known.noises.append(release.noise)
        elif isinstance(release, AskedRelease):
            release.strategy.check(self._space)
            query = release.strategy.query(self._space)
            values = self._cells(query, release.values)
            variance = release.variance / self._span**2
            known.learnt.asked.append((self._learnt(query), self._names(query), values, variance))
        elif isinstance(release, ProductRelease):
            # Products with weights that were chosen by the data's noise are left to their release.
            release.strategy.check(self._space)
        else:
            raise ValueError("a measurement of a table")
        known.left = known.left.minus(measured.price)

    def purchases(self, state: State) -> Sequence[tuple[GraphBuy, Amounts]]:
        """What is to be measured at the opening, given what others measured, each with its price."""
        learnt = _evidence(state).learnt
        found: list[tuple[GraphBuy, Amounts]] = []
        for buy, price in zip(self._plan.buys, self._plan.prices, strict=True):
            known = [noise for _, _, noise in learnt.degrees]
            if isinstance(buy.strategy, Edges):
                known = [noise for _, noise in learnt.edges]
            elif isinstance(buy.strategy, Asked):
                name = self._names(buy.strategy.query(self._space))
                known = [noise for _, names, _, noise in learnt.asked if names == name]
            bought = buy.noise.variance / self._span**2
            if sum(1 / noise for noise in known) < 1 / bought:
                found.append((buy, price))
        self._plan.holds.minus(total(price for _, price in found))  # refuses to spend more than is held
        return found

    def admit(self, query: Query) -> None:
        """Refuse a query that is no cut, no rank-one query and none of their kind.

        Raises:
            InvalidQuery: naming what serves.
        """
        if isinstance(query, CompiledSparse | CompiledDense):
            raise InvalidQuery(
                "weights on single cells are not answered from evidence: ask cut or rank_one, blocks or degrees, or in "
                "a session of gaussian or laplace"
            )

    # ------------------------------------------------------------------ answers

    def decide(self, state: State, query: Query, wish: Wish, leaning: float = 0.0) -> Answer | Due:
        """An estimate where that is good enough or nothing can be paid, else a measurement.

        Raises:
            PlanInfeasible: when what is wished cannot be had; nothing was drawn.
        """
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "estimate", None)
        policy, wish, left = self._policy(state), self._wished(wish), _evidence(state).left
        parts = self._parts(query)
        due: Measure | None
        if wish.within is not None:
            due = self._accurate(policy, query, wish, left)
        else:
            due = self._share(policy, query, parts, wish, left, leaning)
        if due is not None:
            return due
        if not self._is_estimable(policy, query, parts):
            instead = "ask for fewer blocks, or" if parts else "ask for degrees"
            raise PlanInfeasible(
                "nothing was measured that this could be answered from, and the session has nothing left to pay with: "
                f"{instead} in another session, of evidence"
            )
        return self._answer(state, query, wish, "estimate")

    def released(self, state: State, query: Query, due: Due, units: Units) -> Answer:
        """The answer from all evidence, what was released for it among that."""
        assert isinstance(due, Measure)
        assert isinstance(due.strategy, Asked)
        noise = noise_of(due.terms.noise, self._bits)
        measured = Measured(AskedRelease(due.strategy, noise, units), due.terms.price, due.expected)
        self._learn(state, query, measured)
        return self._answer(state, query, due.wish, "measurement", measured)

    def recall(self, state: State, query: Query, measured: Measured | None, tested: Units | None) -> None:
        """Take in a first answer and what was measured for it."""
        if query.is_zero:
            return
        if measured is not None:
            self._learn(state, query, measured)
            return
        parts = self._parts(query)
        self._policy(state).note(parts[0] if len(parts) == 1 else None)

    # ------------------------------------------------------------------ what is known

    def accuracy(self, state: State, query: Query, units: Units, wish: Wish) -> Accuracy:
        """How well values that were given before are known by now."""
        given = self._real(units)
        if query.is_zero:
            nothing = np.zeros(len(given))
            return Accuracy(nothing, nothing, nothing, np.ones(len(given), dtype=bool), wish.probability)
        return self._accuracy(state, query, self._shown(state, query), given, self._wished(wish))

    # ------------------------------------------------------------------ what it takes

    def nbytes(self, updates: int) -> int:
        """About what measurements, and covariances of those that are kept, take."""
        measured = any(isinstance(buy.strategy, Edges) for buy in self._plan.buys)
        cells = 8 * math.prod(self._edges.shape) if measured else 0
        return _OWN_BYTES + _NODE_BYTES * sum(self._edges.shape) + self._kept_bytes(updates) + cells

    def working_bytes(self, state: State, query: Query) -> int:
        """What a question and new room for what is kept take for a while."""
        weighed = sum(self._edges.shape)
        if isinstance(query, CompiledProduct) and not query.grid_bits:
            weighed = sum(n if a is None else a.count for a, n in zip(query.axes, query.shape, strict=True))
        elif isinstance(query, CompiledPair) and not query.grid_bits:
            weighed = 3 * (query.left.count + query.right.count)
        policy = self._policy(state)
        # Of many numbers many may be kept, for which room may grow more than once.
        many = (
            0 if query.numbers == 1 else 2 * self._kept_bytes(policy.posterior.kept + min(query.numbers, MOST_LEARNT))
        )
        return _ASKED_BYTES * (weighed + query.numbers) + policy.working_bytes(weighed) + many

    def export(self, state: State) -> Hypothesis:
        """Nothing."""
        raise InvalidRequest(NO_GRAPH)

    def price(self, release: Release | GraphRelease) -> Amounts:
        """What a measurement of a question costs."""
        if not isinstance(release, AskedRelease):
            raise ValueError("a measurement of no question")
        return self._price(release.strategy.query(self._space), release.noise)

    # ------------------------------------------------------------------ within

    def _kept_bytes(self, updates: int) -> int:
        """About what cuts take that are kept after so many updates, with room for as many again."""
        kept = min(updates, MOST_KEPT)
        sets = 3 * self._edges.shape[0] if self._edges.kind == "pairs" else sum(self._edges.shape)
        return _PAIR_BYTES * kept**2 + kept * sets // 4

    def _policy(self, state: State) -> GraphPolicy:
        known = _evidence(state)
        if known.policy is None:
            plan = self._plan
            questions = plan.max_queries if plan.declared else None
            means = GraphMeans(plan.mode, questions)
            known.policy = GraphPolicy(self._edges.kind, self._edges.shape, means, known.learnt)
        return known.policy

    def _parts(self, query: Query) -> list[CutQuestion]:
        """The cuts that a query asks for, in the order of its numbers; none of degrees."""
        if isinstance(query, CompiledDegrees):
            return []
        known = _ASKED.get(query)
        if known is None:
            known = _ASKED[query] = CutQuestion.all_of(query, self._edges.kind)
        return known

    def _names(self, query: Query) -> list[Hashable]:
        """What each number of a query is known by: a cut by its sides, so that it is known wherever it was measured."""
        parts = self._parts(query)
        return [part.name for part in parts] or [(query.digest, place) for place in range(query.numbers)]

    def _moved(self, query: Query) -> tuple[int, int]:
        """By how much the values of neighbours differ, on the answer grid: in L1, and in the square of L2."""
        unit = 1 << self._bits
        if isinstance(query, CompiledDegrees):
            gamma = int(self._space.unit)
            return query.l1(gamma, self._unit_side) * unit, query.squared(gamma, self._unit_side) * unit**2
        # An entry is in one of the numbers, with a weight of 1 at most.
        moved = int(self._space.sensitivity * unit)
        return moved, moved**2

    def _price(self, query: Query, noise: Noise) -> Amounts:
        return price_of_asked(noise, *self._moved(query), self._plan.order)

    def _due(
        self, query: Query, noise: Noise, expected: Prediction | None, wish: Wish, left: Amounts
    ) -> Measure | None:
        """A measurement; None where it cannot be paid."""
        price = self._price(query, noise)
        if price.within(left) != price:
            return None
        told = None
        if expected is not None:
            value = self._told(query, np.array([expected.value]))
            told = self._grid(value), self._unit(self._span * expected.standard_error)
        units = Fraction(noise.scale) * (1 << self._bits)
        return Measure(RoundTerms(RoundNoise(noise.kind, units), price), None, Asked.of(query), told, wish)

    def _share(
        self, policy: GraphPolicy, query: Query, parts: list[CutQuestion], wish: Wish, left: Amounts, leaning: float
    ) -> Measure | None:
        """Budget first: the question's share of what is left, unless the prediction is as good."""
        if self._plan.mode in ("edges", "sums"):
            return None
        pure = self._plan.mode == "laplace"
        paid = float((left.pure if pure else left.renyi) or 0) * policy.part()
        noise = noise_on_grid(paid, float(self._plan.order), *self._moved(query), self._bits, pure=pure)
        if noise is None:
            return None
        if all(v is not None and v <= noise.variance for v in self._variances(policy, query)):
            return None
        if len(parts) != 1:
            return self._due(query, noise, None, wish, left)
        prediction = policy.predicted(parts[0])
        if not policy.worth(parts[0], prediction, noise.variance / self._span**2, leaning):
            return None
        return self._due(query, noise, prediction, wish, left)

    def _accurate(self, policy: GraphPolicy, query: Query, wish: Wish, left: Amounts) -> Measure | None:
        """Accuracy first: the least that gets every unbiased interval within what is wished; None where they are.

        Raises:
            PlanInfeasible: where that cannot be paid.
        """
        assert wish.within is not None
        wanted = squared(wish.within / self._quantile(policy, wish, unbiased=True))
        known = self._variances(policy, query)
        if self._is_estimable(policy, query, self._parts(query)):
            # What is bound to lie within the interval that is wished takes no measurement to be told.
            low, high = self._bounds(query)
            known = [known[place] for place in np.flatnonzero(self._span * (high - low) > 2 * wish.within)]
        missing = max((1 / wanted - (0.0 if v is None else 1 / v) for v in known), default=0.0)
        if missing <= SLACK / wanted:
            return None
        # Of so wide an interval there is no cheaper noise than the largest that is drawn.
        deviation = min(1 / math.sqrt(missing), math.ldexp(_GREATEST_UNITS, -self._bits))
        pure = self._plan.regime == "pure"
        scales: dict[NoiseKind, float] = {"laplace": deviation / math.sqrt(2)}
        if not pure:
            scales["gaussian"] = deviation
        offered: list[tuple[Amounts, Noise]] = []
        for kind, scale in scales.items():
            rounded = rounded_down(scale)
            if LEAST_SCALE <= math.ldexp(float(rounded), self._bits) <= _GREATEST_UNITS:
                noise = Noise(kind, rounded, self._bits)
                offered.append((self._price(query, noise), noise))
        held = float((left.pure if pure else left.renyi) or 0)
        if not offered:
            raise out_of_reach(OutOfReach(math.inf, held), self._plan)
        price, noise = min(offered, key=lambda each: each[0].renyi)
        due = self._due(query, noise, self._expected(policy, query), wish, left)
        if due is None:
            needed = float((price.pure if pure else price.renyi) or 0)
            raise out_of_reach(OutOfReach(max(needed, math.nextafter(held, math.inf)), held), self._plan)
        return due

    def _expected(self, policy: GraphPolicy, query: Query) -> Prediction | None:
        parts = self._parts(query)
        return policy.predicted(parts[0]) if len(parts) == 1 else None

    def _learn(self, state: State, query: Query, measured: Measured) -> None:
        known, release = _evidence(state), measured.release
        assert isinstance(release, AskedRelease)
        policy, parts, names = self._policy(state), self._parts(query), self._names(query)
        known.left = known.left.minus(measured.price)
        values, variance = self._cells(query, release.values), release.variance / self._span**2
        if measured.expected is None:
            policy.record_all(self._learnt(query), names, values, variance)
            return
        expected, error = map(self._real, measured.expected)
        (value,) = self._cells(query, expected)
        policy.record(
            parts[0], names[0], Prediction(float(value), float(error) / self._span), float(values[0]), variance
        )

    @staticmethod
    def _is_modelled(parts: list[CutQuestion]) -> bool:
        """Whether what is expected of the parts of a question is looked at; of a single one always."""
        if len(parts) <= 1:
            return len(parts) == 1
        weighed = sum(len(side.places) for part in parts for side in (part.left, part.right))
        return len(parts) <= MOST_ESTIMATED and weighed <= MOST_WEIGHED

    def _learnt(self, query: Query) -> list[CutQuestion]:
        """The parts of a question that others learn from."""
        parts = self._parts(query)
        return parts if len(parts) <= MOST_LEARNT and self._is_modelled(parts) else []

    def _is_estimable(self, policy: GraphPolicy, query: Query, parts: list[CutQuestion]) -> bool:
        """Whether something can be said of every number."""
        if self._is_modelled(parts):
            return True
        return all(policy.variance_of(None, name) is not None for name in self._names(query))

    def _variances(self, policy: GraphPolicy, query: Query) -> list[float | None]:
        """Those of the unbiased values of a query, in counts; None where there is none."""
        names, parts = self._names(query), self._parts(query)
        told = parts if self._is_modelled(parts) else [None] * len(names)
        found = [policy.variance_of(part, name) for part, name in zip(told, names, strict=True)]
        return [None if variance is None else self._span**2 * variance for variance in found]

    def _answer(
        self, state: State, query: Query, wish: Wish, source: Source, measured: Measured | None = None
    ) -> Answer:
        shown = self._shown(state, query)
        values = self._told(query, np.array([each.value for each in shown]))
        accuracy = self._accuracy(state, query, shown, values, wish)
        return Answer(self._grid(values), source, None, accuracy=accuracy, measured=measured)

    def _shown(self, state: State, query: Query) -> list[Shown]:
        policy, names = self._policy(state), self._names(query)
        if not self._is_modelled(self._parts(query)):
            bounds = np.stack(self._bounds(query), axis=1).tolist()
            return [policy.alone(name, (low, high)) for name, (low, high) in zip(names, bounds, strict=True)]
        return [policy.shown(part, name) for part, name in zip(self._parts(query), names, strict=True)]

    def _accuracy(self, state: State, query: Query, shown: list[Shown], values: FloatArray, wish: Wish) -> Accuracy:
        """How well shown values are known, in counts."""
        policy = self._policy(state)
        unbiased = np.array([each.unbiased is not None for each in shown])
        linear = self._told(query, np.array([np.nan if s.unbiased is None else s.unbiased for s in shown]))
        errors = self._span * np.array([np.nan if s.error is None else s.error for s in shown])
        deviations = self._span * np.array([each.deviation for each in shown])
        reach = np.where(unbiased, errors, deviations) * np.where(
            unbiased, self._quantile(policy, wish, unbiased=True), self._quantile(policy, wish, unbiased=False)
        )
        centres = np.where(unbiased, linear, values)
        if wish.adaptive and policy.edges is not None and self._is_modelled(self._parts(query)):
            # Who picks a cut by the noise of edges finds one that errs by far more than a cut does. What is known of
            # all cuts at once is known of sums of cells; what is shown lies apart from them, which everybody can tell.
            plain = self._told(query, np.array([policy.edges.plain(part) for part in self._parts(query)]))
            reach = np.maximum(reach, self._of_all_cuts(state, wish) + np.abs(centres - plain))
        lows, highs = centres - reach, centres + reach
        least, most = (self._told(query, each) for each in self._bounds(query))
        return Accuracy(
            standard_errors=np.maximum(values - lows, highs - values) / normal_quantile(wish.probability),
            lows=np.clip(lows, least, most),
            highs=np.clip(highs, least, most),
            unbiased=unbiased,
            confidence=wish.probability,
            linear=linear,
            linear_errors=errors,
        )

    def _quantile(self, policy: GraphPolicy, wish: Wish, *, unbiased: bool) -> float:
        """How many standard deviations an interval reaches to either side.

        A measurement made for a question has noise that the question was not chosen by. What is expected of one that
        was chosen by all that is expected is a sum of what was measured: of all such sums at once a quantile of
        chi squared tells (Scheffe 1953).
        """
        if unbiased or not wish.adaptive:
            return normal_quantile(wish.probability)
        return math.sqrt(float(chdtri(policy.posterior.kept + 2, 1 - wish.probability)))

    def _of_all_cuts(self, state: State, wish: Wish) -> float:
        """What the errors of all cuts by edges keep at once, in counts; each measurement of these by its precision."""
        noises = _evidence(state).noises
        precision = sum(1 / noise.variance for noise in noises)
        terms = [Term(noise, 1 / (noise.variance * precision)) for noise in noises]
        return all_cuts_bound(self._edges, terms, 1 - wish.probability)

    def _bounds(self, query: Query) -> tuple[FloatArray, FloatArray]:
        """What each number can be, in cells."""
        if isinstance(query, CompiledDegrees):
            return np.zeros(query.numbers), np.full(query.numbers, float(query.nodes))
        bounds = np.array([part.bounds for part in self._parts(query)])
        return bounds[:, 0], bounds[:, 1]

    def _cells(self, query: Query, values: FloatArray) -> FloatArray:
        """Values of a query in cells from 0 to 1."""
        return (values - self._floor * self._weights(query)) / self._span

    def _told(self, query: Query, values: FloatArray) -> FloatArray:
        """Values in cells as counts."""
        return self._floor * self._weights(query) + self._span * values

    def _weights(self, query: Query) -> FloatArray:
        """The sum of the weights of each number."""
        if not self._floor:
            return np.zeros(query.numbers)
        return np.array([part.weight for part in self._parts(query)])


def _evidence(state: State) -> GraphEvidence:
    known = state.hypothesis
    assert isinstance(known, GraphEvidence)
    return known
