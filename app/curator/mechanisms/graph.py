"""Evidence sessions of graphs and matrices: cuts are answered from all that was ever measured, and measured where they
must.

The policy (:mod:`app.policies.graph`) decides from public things alone, in cells from 0 to 1. Here it meets the
session: queries become questions, entries of a matrix are moved and scaled by its bounds, amounts are exact, and the
state is what the transcript says.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property

import numpy as np
from scipy.special import chdtri

from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import (
    Answer,
    Buy,
    Due,
    Measured,
    PayingState,
    Source,
    Target,
    Units,
)
from app.curator.mechanisms.recorded import RecordedMechanism, out_of_reach
from app.curator.opening import Opening
from app.curator.planners.graph import GraphPlan
from app.estimation.flips import flips_quantile
from app.estimation.graphs.cells import SumOfSums, Sums
from app.estimation.graphs.cut_posterior import MOST_KEPT
from app.estimation.intervals import Estimates
from app.estimation.tables.estimates import shown_errors
from app.estimation.tails import Term, norm_quantile, normal_quantile, quantile, reach
from app.measurements.noise import BitFlips, Noise, NoiseKind, least_scale
from app.measurements.noise_search import SLACK, cheapest_noise, noise_on_grid
from app.measurements.record import Purchase
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.policies.graph import GraphFunds, GraphPolicy, Learnt, Prediction, Shown
from app.policies.table import OLD_PART, OutOfReach, of_looks, squared
from app.privacy.ledger import Amounts
from app.releases.cut_bounds import Term as CellTerm
from app.releases.cut_bounds import all_cuts_bound
from app.spaces.cuts import CutQuestion
from app.spaces.errors import InvalidQuery
from app.spaces.matrix import MatrixSpace
from app.spaces.queries.degrees import CompiledDegrees
from app.spaces.queries.linear import CompiledDense, CompiledSparse
from app.spaces.query import Query
from app.spaces.tensor import FloatArray

#: Of a question of more parts than the first others learn nothing, and beyond the second nothing is said of it but
#: what was measured for it; nor of one whose parts together weigh so many nodes: each is looked at beside all that was
#: kept, and a lane has others to answer.
MOST_LEARNT, MOST_ESTIMATED, MOST_WEIGHED = 256, 1 << 12, 1 << 20
#: About what a session takes beside what it keeps, and a node of it.
_OWN_BYTES, _NODE_BYTES = 16 << 20, 160
#: What a node that a question weighs takes while it is answered.
_ASKED_BYTES = 128
#: Of a pair of measurements that were kept: their covariances in three parts, and the factor.
_PAIR_BYTES = 32
#: To so many digits the part of a variance is told that degrees leave.
_DIGITS = 6
#: Noise beyond this, in units of the answer grid, might pass 62 bits once it is drawn.
_GREATEST_UNITS = 2.0**54


@dataclass(frozen=True)
class _Cells:
    """Measured cells that are summed.

    Attributes:
        many: how many.
        weights: of each, where they are few.
        left: the part of the variance of their sum that degrees leave.
        peak: the square of the largest weight over the mean of all squares.
    """

    many: int = 0
    weights: tuple[float, ...] = ()
    left: float = 1.0
    peak: float = 1.0

    @property
    def alike(self) -> int:
        """How many cells of the largest weight would have the same variance."""
        return max(1, math.floor(self.many / self.peak + SLACK))


@dataclass(frozen=True)
class _Known:
    """What an unbiased value follows from.

    Attributes:
        drawn: the noises that the number was measured with.
        variance: of all together, in counts.
        told: by sums of rows and columns.
        cells: that were measured.
    """

    drawn: tuple[Noise, ...]
    variance: float
    told: SumOfSums | None = None
    cells: _Cells = _Cells()


@dataclass(eq=False)
class GraphEvidence(PayingState):
    """The state of a session: what is left to pay with, what was measured before the first question, with the noise of
    each measurement of cells and of sums of rows and columns, the noises of all numbers that were asked for, and the
    policy.
    """

    edges: Edges
    funds: GraphFunds
    learnt: Learnt = field(default_factory=Learnt)
    #: How well everything is known that was measured before the first question: precisions, in cells.
    pinned: dict[Hashable, float] = field(default_factory=dict)
    noises: list[Noise | BitFlips] = field(default_factory=list)
    of_sums: list[Noise] = field(default_factory=list)
    #: Of each number that was measured by itself the noises that it was measured with, in that order.
    drawn: dict[Hashable, tuple[Noise, ...]] = field(default_factory=dict)

    @cached_property
    def policy(self) -> GraphPolicy:
        """The policy of the session, by all that was known at its first question."""
        return GraphPolicy(self.edges.kind, self.edges.shape, self.funds, self.learnt)

    def note(self, names: Sequence[Hashable], noise: Noise) -> None:
        """Numbers were measured, each with this noise."""
        after: dict[tuple[Noise, ...], tuple[Noise, ...]] = {}
        for name in names:
            before = self.drawn.get(name, ())
            self.drawn[name] = after.setdefault(before, (*before, noise))


class GraphMechanism(RecordedMechanism[GraphEvidence]):
    """Answers from evidence of a graph or a matrix.

    Args:
        opening: of the session; its plan is that of such a session.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, GraphPlan)
        self._plan, space = opening.plan, self._space
        self._edges = Edges.of(space)
        # What one takes that weighs every node.
        self.asking_bytes = _ASKED_BYTES * sum(self._edges.shape)
        # Entries are these numbers and multiples of these from 0 to 1.
        self._floor, self._span = 0.0, 1.0
        if isinstance(space, MatrixSpace):
            self._floor, self._span = float(space.lower), float(space.upper - space.lower)

    # ------------------------------------------------------------------ the state

    def start(self) -> GraphEvidence:
        """Nothing is measured yet, and the whole share is left."""
        plan = self._plan
        return GraphEvidence(
            plan.holds, self._edges, GraphFunds(plan.mode, plan.max_queries if plan.declared else None)
        )

    def pin(self, state: GraphEvidence, measured: Measured) -> None:
        """Take in what was measured before the first question: by others before the opening, then at the opening, which
        has a price.

        Raises:
            ValueError: when it is of another data set.
        """
        release = measured.measurement
        release.strategy.check(self._space)
        variance = release.variance / self._span**2
        name: Hashable = release.strategy.tag
        if isinstance(release.strategy, Degrees):
            rows, columns = release.strategy.sides(release.values)
            n, m = self._edges.shape
            rows, columns = (rows - self._floor * m) / self._span, (columns - self._floor * n) / self._span
            state.learnt.degrees.append(Sums(rows, columns, variance, variance))
            state.of_sums.append(release.added)
        elif isinstance(release.strategy, Edges):
            matrix = release.strategy.matrix((release.values - self._floor) / self._span).astype(np.float32)
            state.learnt.edges.append((matrix, variance))
            state.noises.append(release.noise)
        elif isinstance(release.strategy, Asked):
            query = release.strategy.query(self._space)
            values, names = self._cells(query, release.values), self._names(query)
            state.learnt.asked.append((self._learnt(query), names, values, variance))
            state.note(names, release.added)
            name = tuple(names)
        # Products with weights that were chosen by the data's noise are left to their release.
        state.pinned[name] = state.pinned.get(name, 0.0) + 1 / variance
        state.left = state.left.minus(measured.price)

    def purchases(self, state: GraphEvidence) -> Sequence[Purchase[Strategy]]:
        """The measurements due at the opening, given what others measured, each with its price."""
        return [
            buy
            for buy in self._plan.buys
            if state.pinned.get(self._name(buy.strategy), 0.0) < 1 / (buy.noise.variance / self._span**2)
        ]

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

    def decide(self, state: GraphEvidence, query: Query, target: Target, slack: float = 0.0) -> Answer | Due:
        """An estimate where that is good enough or nothing can be paid, else a measurement.

        Raises:
            PlanInfeasible: when what is asked for cannot be had; nothing was drawn.
        """
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "estimate", None)
        policy, target = state.policy, self._targeted(target)
        due: Buy | None
        if target.within is not None:
            due = self._accurate(state, query, target)
        else:
            due = self._share(state, query, target, slack)
        if due is not None:
            return due
        if not self._is_estimable(policy, query):
            instead = "ask for fewer blocks, or" if query.cuts else "ask for degrees"
            raise PlanInfeasible(
                "nothing was measured that this could be answered from, and the session has nothing left to pay with: "
                f"{instead} in another session, of evidence"
            )
        return self._unbought(self._answer(state, query, target, "estimate"), self._plan)

    def foretold(self, state: GraphEvidence, query: Query, due: Due) -> FloatArray:
        """As far as the noise of all that each number is measured with reaches then; of one that may have been chosen
        by what was released that of the new measurement alone.
        """
        assert isinstance(due, Buy)
        noise, target = due.purchase.added, due.target
        if target.adaptive:
            looks = [1 + len(state.drawn.get(name, ())) for name in self._names(query)]
            part = (1 - OLD_PART) * (1 - target.probability)
            alone = {n: reach(_terms([noise]), 1 - of_looks(part, n)) for n in set(looks)}
            return np.array([alone[n] for n in looks])
        alike = self._known(state, query)
        found = {each: self._reach_with(state, each, noise, target.probability) for each in set(alike)}
        return np.array([found[each] for each in alike])

    def apply(self, state: GraphEvidence, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer from all evidence, what was released for it among that."""
        assert isinstance(due, Buy)
        assert units is not None
        measured = due.measured(units)
        self._learn(state, query, measured)
        return self._answer(state, query, due.target, "measurement", measured)

    def learn(self, state: GraphEvidence, query: Query, answer: Answer) -> None:
        """Take in a first answer and what was measured for it."""
        if query.is_zero:
            return
        if answer.measured is not None:
            self._learn(state, query, answer.measured)
            return
        state.policy.note(query.cuts[0] if len(query.cuts) == 1 else None)

    # ------------------------------------------------------------------ what is known

    def show(self, state: GraphEvidence, query: Query, units: Units, target: Target) -> Estimates:
        """How well values that were given before are known by now."""
        given = self._real(units)
        if query.is_zero:
            nothing = np.zeros(len(given))
            return Estimates(given, nothing, nothing, nothing, np.ones(len(given), dtype=bool), target.probability)
        shown = self._shown(state, query)
        return self._accuracy(state, query, shown, given, self._targeted(target), given=True).holding(given)

    # ------------------------------------------------------------------ what it takes

    def nbytes(self, updates: int) -> int:
        """About what measurements, and covariances of those that are kept, take."""
        measured = any(isinstance(buy.strategy, Edges) for buy in self._plan.buys)
        cells = 8 * math.prod(self._edges.shape) if measured else 0
        return _OWN_BYTES + _NODE_BYTES * sum(self._edges.shape) + self._kept_bytes(updates) + cells

    def working_bytes(self, state: GraphEvidence, query: Query) -> int:
        """The memory that a question and new room for what is kept take for a while."""
        weighed = sum(self._edges.shape)
        if query.numbers == 1 and query.cuts and not query.grid_bits:
            (cut,) = query.cuts
            weighed = (1 if cut.both is None else 3) * (cut.left.count + cut.right.count)
        policy = state.policy
        # Of many numbers many may be kept, for which room may grow more than once.
        many = (
            0 if query.numbers == 1 else 2 * self._kept_bytes(policy.posterior.kept + min(query.numbers, MOST_LEARNT))
        )
        return _ASKED_BYTES * (weighed + query.numbers) + policy.working_bytes(weighed) + many

    # ------------------------------------------------------------------ within

    def _kept_bytes(self, updates: int) -> int:
        """About what cuts take that are kept after so many updates, with room for as many again."""
        kept = min(updates, MOST_KEPT)
        sets = 3 * self._edges.shape[0] if self._edges.kind == "pairs" else sum(self._edges.shape)
        return _PAIR_BYTES * kept**2 + kept * sets // 4

    def _names(self, query: Query) -> list[Hashable]:
        """The names of a query's numbers: a cut by its sides, so that it is known wherever it was measured."""
        return [part.name for part in query.cuts] or [(query.digest, place) for place in range(query.numbers)]

    def _name(self, strategy: Strategy) -> Hashable:
        """The key of a strategy, in whatever words it is."""
        return tuple(self._names(strategy.query(self._space))) if isinstance(strategy, Asked) else strategy.tag

    def _sensitivity(self, query: Query) -> tuple[int, int]:
        """By how much the values of neighbours differ, on the answer grid: in L1, and in the square of L2."""
        return Asked.of(query).sensitivity(self._opening.dataset.adjacency, self._bits)

    def _price(self, query: Query, noise: Noise) -> Amounts:
        return self._opening.dataset.purchase(Asked.of(query), noise).price

    def _due(
        self, state: GraphEvidence, query: Query, noise: Noise, expected: Prediction | None, target: Target
    ) -> Buy | None:
        """A measurement; None where it cannot be paid."""
        purchase = self._opening.dataset.purchase(Asked.of(query), noise)
        if not state.pays(purchase.price):
            return None
        expectation = None
        if expected is not None:
            value = self._as_counts(query, np.array([expected.value]))
            expectation = self._grid(value), self._unit(self._span * expected.standard_error)
        return Buy(purchase, expectation, target)

    def _share(self, state: GraphEvidence, query: Query, target: Target, slack: float) -> Buy | None:
        """Budget first: the question's share of what is left, unless the prediction is as good."""
        if self._plan.mode in ("edges", "sums", "free"):
            return None
        policy, pure = state.policy, self._plan.mode == "laplace"
        paid = state.held * policy.part(alone=not self._modelled(query))
        noise = noise_on_grid(paid, float(self._plan.order), *self._sensitivity(query), self._bits, pure=pure)
        if noise is None:
            return None
        if (self._variances(policy, query) <= noise.variance).all():
            return None
        prediction = self._expected(policy, query)
        if prediction is None:
            return self._due(state, query, noise, None, target)
        if not policy.worth(query.cuts[0], prediction, noise.variance / self._span**2, slack):
            return None
        return self._due(state, query, noise, prediction, target)

    def _accurate(self, state: GraphEvidence, query: Query, target: Target) -> Buy | None:
        """Accuracy first: the least that gets every unbiased interval within what is asked for; None where they are.

        Raises:
            PlanInfeasible: where that cannot be paid.
        """
        assert target.within is not None
        policy, within = state.policy, target.within
        reaches = self._reaches(state, query, target)
        if self._is_estimable(policy, query):
            # What is bound to lie within the interval that is asked for takes no measurement to be told.
            low, high = self._bounds(query)
            reaches = reaches[np.flatnonzero(self._span * (high - low) > 2 * within)]
        if bool((reaches <= within).all()):
            return None
        # Numbers are alike that were measured alike; of one that was chosen by what it was measured with only new noise
        # counts.
        alike = {_Known((), math.inf)} if target.adaptive else set(self._known(state, query))
        confidence = target.probability
        if target.adaptive:
            # What is measured is one look more.
            looks = 1 + max(len(state.drawn.get(name, ())) for name in self._names(query))
            confidence = 1 - of_looks((1 - OLD_PART) * (1 - target.probability), looks)

        def meets(noise: Noise) -> bool:
            return all(self._reach_with(state, known, noise, confidence) <= within for known in alike)

        variances = [known.variance for known in alike]
        missing = max(squared(normal_quantile(confidence) / within) - (1 / v if v else 0.0) for v in variances)
        most = math.ldexp(_GREATEST_UNITS, -self._bits)
        deviation = min(1 / math.sqrt(max(missing, squared(1 / within) * SLACK)), most)
        pure = self._plan.regime == "pure"
        about: dict[NoiseKind, float] = {} if pure else {"gaussian": deviation}
        about["laplace"] = deviation / math.sqrt(2)
        noise = cheapest_noise(about, meets, lambda noise: self._price(query, noise).renyi, self._bits, most)
        if noise is None:
            raise out_of_reach(OutOfReach(math.inf, state.held), self._plan)
        due = self._due(state, query, noise, self._expected(policy, query), target)
        if due is None:
            price = self._price(query, noise)
            needed = float((price.pure if pure else price.renyi) or 0)
            raise out_of_reach(OutOfReach(max(needed, math.nextafter(state.held, math.inf)), state.held), self._plan)
        return due

    def _expected(self, policy: GraphPolicy, query: Query) -> Prediction | None:
        return policy.predicted(query.cuts[0]) if len(query.cuts) == 1 else None

    def _learn(self, state: GraphEvidence, query: Query, measured: Measured) -> None:
        release = measured.measurement.of(Asked)
        policy, names = state.policy, self._names(query)
        state.left = state.left.minus(measured.price)
        state.note(names, release.added)
        values, variance = self._cells(query, release.values), release.variance / self._span**2
        if measured.expected is None:
            policy.record_all(self._learnt(query), names, values, variance)
            return
        expected, error = map(self._real, measured.expected)
        (value,) = self._cells(query, expected)
        policy.record(
            query.cuts[0], names[0], Prediction(float(value), float(error) / self._span), float(values[0]), variance
        )

    @staticmethod
    def _modelled(query: Query) -> Sequence[CutQuestion]:
        """The parts of a question, where what is expected of them is looked at; of a single one always."""
        parts = query.cuts
        if len(parts) <= 1:
            return parts
        if len(parts) > MOST_ESTIMATED:
            return ()
        weighed = sum(len(side.places) for part in parts for side in (part.left, part.right))
        return parts if weighed <= MOST_WEIGHED else ()

    def _learnt(self, query: Query) -> Sequence[CutQuestion]:
        """The parts of a question that others learn from."""
        return self._modelled(query) if len(query.cuts) <= MOST_LEARNT else ()

    def _is_estimable(self, policy: GraphPolicy, query: Query) -> bool:
        """Whether something can be said of every number."""
        return bool(self._modelled(query)) or bool((self._variances(policy, query) < math.inf).all())

    def _variances(self, policy: GraphPolicy, query: Query) -> FloatArray:
        """Those of the unbiased values of a query, in counts; infinite where there is none."""
        found: FloatArray = self._span**2 * policy.unbiased(self._modelled(query), self._names(query))[1]
        return found

    def _known(self, state: GraphEvidence, query: Query) -> list[_Known]:
        """What the unbiased value of each number of a query follows from, but for measured cells."""
        names, variances = self._names(query), self._variances(state.policy, query).tolist()
        told = [state.policy.summed(part) for part in self._modelled(query)] or [None] * len(names)
        return [_Known(state.drawn.get(n, ()), v, t) for n, v, t in zip(names, variances, told, strict=True)]

    @staticmethod
    def _reach_with(state: GraphEvidence, known: _Known, noise: Noise, confidence: float) -> float:
        """How far the noise of a number reaches, in counts, once it was measured again with this noise."""
        terms = _terms_beside(state, (*known.drawn, noise), known.told)
        return quantile(terms, confidence) * _deviation_with(known.variance, noise)

    def _answer(
        self, state: GraphEvidence, query: Query, target: Target, source: Source, measured: Measured | None = None
    ) -> Answer:
        shown = self._shown(state, query)
        values = self._as_counts(query, shown.values)
        accuracy = self._accuracy(state, query, shown, values, target, measured)
        return self._told(query, source, accuracy, measured=measured)

    def _shown(self, state: GraphEvidence, query: Query) -> Shown:
        policy, names, parts = state.policy, self._names(query), self._modelled(query)
        return policy.shown(parts, names) if parts else policy.alone(names, self._bounds(query))

    def _accuracy(
        self,
        state: GraphEvidence,
        query: Query,
        shown: Shown,
        values: FloatArray,
        target: Target,
        measured: Measured | None = None,
        *,
        given: bool = False,
    ) -> Estimates:
        """Values and how well they are known, in counts: those shown, moved into their intervals, or ones that were
        given before. ``measured`` is what was measured for this very answer."""
        policy = state.policy
        unbiased = shown.errors < math.inf
        linear = self._as_counts(query, shown.unbiased)
        errors, deviations = self._span * shown.errors, self._span * shown.deviations
        reaches = self._reaches(state, query, target, shown, measured)
        if target.adaptive and measured is not None:
            linear, errors, reaches = self._fresh(state, query, target, measured, (linear, errors, reaches))
        centres = np.where(unbiased, linear, values)
        reaches = np.where(unbiased, reaches, deviations * self._model_quantile(policy, target))
        least, most = (self._as_counts(query, each) for each in self._bounds(query))
        # An interval about what is impossible would be a point at the bound, as if nothing else could be.
        centres = np.clip(centres, least, most)
        own = np.where(unbiased, errors, deviations)
        lows, highs = np.clip(centres - reaches, least, most), np.clip(centres + reaches, least, most)
        if not given:
            # What holds whatever was asked before may leave out what all measurements together say.
            values = np.fmax(np.fmin(values, highs), lows)
        return Estimates(
            values,
            standard_errors=shown_errors(values - centres, own, reaches),
            lows=lows,
            highs=highs,
            unbiased=unbiased,
            confidence=target.probability,
            linear=linear,
            linear_errors=np.where(unbiased, errors, np.nan),
        )

    def _reaches(
        self,
        state: GraphEvidence,
        query: Query,
        target: Target,
        shown: Shown | None = None,
        measured: Measured | None = None,
    ) -> FloatArray:
        """How far the noise of the unbiased value of each number reaches, in counts; infinite where there is none.

        A question that may have been chosen by what was released may be any of the numbers that were: each of these has
        an equal part of what may be missed. Where edges were measured it may be any cut. ``shown`` is what is shown, if
        that is known already, and ``measured`` what was measured for this very answer.
        """
        policy, parts, every = state.policy, self._modelled(query), self._known(state, query)
        deviations = np.sqrt([known.variance for known in every])
        found = np.full(len(every), np.inf)
        # Of many numbers most were measured alike.
        alike: dict[_Known, list[int]] = {}
        for place in np.flatnonzero(deviations < math.inf).tolist():
            known = replace(every[place], variance=1.0)
            if policy.edges is not None and parts and parts[place].square > 0:
                part = parts[place]
                left = policy.edges.of(part)[1] / (policy.edges.variance * part.square)
                many, peak = part.weighed
                known = replace(known, cells=_Cells(many, part.few, round(left, _DIGITS), peak))
            alike.setdefault(known, []).append(place)
        for known, places in alike.items():
            if target.adaptive:
                reached = self._chosen_deviations(state, known, target, fresh=measured is not None)
            else:
                reached = self._deviations(state, known, 1 - target.probability)
            found[places] = reached * deviations[places]
        if target.adaptive and policy.edges is not None and parts:
            # Who picks a cut by the noise of edges finds one that errs by far more than a cut does. What is known of
            # all cuts at once is known of sums of cells; what is shown lies apart from them, which everybody can tell.
            missed = (1 - target.probability) * (1.0 if measured is None else OLD_PART)
            linear = (shown or self._shown(state, query)).unbiased
            plain = np.array([policy.edges.plain(part) for part in parts])
            # Where there is no cell there is nothing to be missed.
            adjacency = np.nan_to_num(self._span * np.abs(linear - plain))
            found = np.maximum(found, self._of_all_cuts(state, missed) + adjacency)
        return found

    def _chosen_deviations(self, state: GraphEvidence, known: _Known, target: Target, *, fresh: bool) -> float:
        """How many standard deviations the error of a number reaches that may have been chosen by what was released.

        Each number that was measured by itself has an equal part of what may be missed, and so have all sums of rows
        and columns together. What several tell is off by no more than each of them is, by the weights that they have.
        Where there is fresh noise it may miss the rest.
        """
        missed = (1 - target.probability) * (OLD_PART if fresh else 1.0)
        told = known.told
        missed /= max(1, len(state.drawn) + (bool(state.of_sums) and state.policy.edges is None))
        own = self._deviations(state, replace(known, told=None), of_looks(missed, len(known.drawn)), together=True)
        if told is None:
            return own
        sums = self._of_all_sums(state, told, missed)
        precisions = sum(1 / noise.variance for noise in known.drawn), _precision(state, told)
        parts = [precision / sum(precisions) for precision in precisions]
        return math.sqrt(parts[0]) * own + math.sqrt(parts[1]) * sums

    def _of_all_sums(self, state: GraphEvidence, told: SumOfSums, missed: float) -> float:
        """How many standard deviations the error of a sum of rows and columns reaches, of all of them at once but with
        a probability: half of that is for single rows and columns, and half for whatever weights they have."""
        rows, columns = self._edges.shape
        many = rows if self._edges.kind == "pairs" else rows + columns
        if len(told.weights) == 1:
            return quantile(_terms_beside(state, (), told), 1 - missed / 2 / many)
        return norm_quantile(0, [(noise, 1, many) for noise in state.of_sums], missed / 2)

    @staticmethod
    def _deviations(state: GraphEvidence, known: _Known, missed: float, *, together: bool = False) -> float:
        """How many standard deviations the error of a number reaches; ``together`` for whatever weights the noises have
        that it was measured with."""
        found, drawn, cells = 0.0, known.drawn, known.cells
        if together and len(drawn) > 1:
            found = norm_quantile(0, [(noise, 1, 1) for noise in drawn], missed)
        elif drawn or known.told is not None:
            found = quantile(_terms_beside(state, drawn, known.told), 1 - missed)
        if cells.many:
            noises = [noise for noise in state.noises if isinstance(noise, Noise)]
            if noises:
                # What degrees change has the same part of each cell's error in it, and beside it many small ones.
                terms = _terms(noises, np.array(cells.weights or [1.0]), 1 if cells.weights else cells.alike)
                left = max(round(cells.left, 3), 1e-3)
                rest = math.sqrt(sum(term.variance for term in terms) * (1 / left - 1))
                if rest > 0:
                    terms.append(Term.of(_smooth(rest), np.ones(1)))
                found = max(found, quantile(terms, 1 - missed))
            flips = [noise for noise in state.noises if isinstance(noise, BitFlips)]
            told = 1 - missed, cells.left, cells.weights, cells.peak
            reaches = [flips_quantile(noise, cells.many, *told) for noise in flips]
            found = max([found, *reaches])
        return found

    def _fresh(
        self,
        state: GraphEvidence,
        query: Query,
        target: Target,
        measured: Measured,
        others: tuple[FloatArray, FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values, errors and reaches of a measurement alone that was made for the question, whose noise nobody chose it
        by, where that is narrower than all that is known together."""
        release = measured.measurement.of(Asked)
        linear, errors, reaches = others
        noise, looks = release.added, [len(state.drawn[name]) for name in self._names(query)]
        part = (1 - OLD_PART) * (1 - target.probability)
        alone = {n: reach(_terms([noise]), 1 - of_looks(part, n)) for n in set(looks)}
        own = np.array([alone[n] for n in looks])
        narrower = own < reaches
        fresh = np.where(narrower, release.values, linear)
        deviation = math.sqrt(noise.variance)
        return fresh, np.where(narrower, deviation, errors), np.where(narrower, own, reaches)

    @staticmethod
    def _model_quantile(policy: GraphPolicy, target: Target) -> float:
        """How many standard deviations an interval of the model reaches: what is expected of a question that was chosen
        by all that is expected is a sum of what was measured, of all such sums at once a quantile of chi squared tells
        (Scheffe 1953)."""
        if not target.adaptive:
            return normal_quantile(target.probability)
        return math.sqrt(float(chdtri(policy.posterior.kept + 2, 1 - target.probability)))

    def _of_all_cuts(self, state: GraphEvidence, missed: float) -> float:
        """The bound that the errors of all cuts by edges keep at once but with a probability, in counts; each
        measurement of these by its precision.
        """
        noises = state.noises
        precision = sum(1 / noise.variance for noise in noises)
        terms = [CellTerm(noise, 1 / (noise.variance * precision)) for noise in noises]
        return all_cuts_bound(self._edges, terms, missed)

    def _bounds(self, query: Query) -> tuple[FloatArray, FloatArray]:
        """The range of each number, in cells."""
        if isinstance(query, CompiledDegrees):
            return np.zeros(query.numbers), np.full(query.numbers, float(query.nodes))
        bounds = np.array([part.bounds for part in query.cuts])
        return bounds[:, 0], bounds[:, 1]

    def _cells(self, query: Query, values: FloatArray) -> FloatArray:
        """Values of a query in cells from 0 to 1."""
        return (values - self._floor * self._weights(query)) / self._span

    def _as_counts(self, query: Query, values: FloatArray) -> FloatArray:
        """Values in cells as counts."""
        return self._floor * self._weights(query) + self._span * values

    def _weights(self, query: Query) -> FloatArray:
        """The sum of the weights of each number."""
        if not self._floor:
            return np.zeros(query.numbers)
        return np.array([part.weight for part in query.cuts])


def _terms(noises: Sequence[Noise], weights: FloatArray | None = None, repeated: int = 1) -> list[Term]:
    """The noises of the average of measurements by their precision, of one number or of a sum of some."""
    precision = sum(1 / noise.variance for noise in noises)
    own = np.ones(1) if weights is None else weights
    return [Term.of(noise, own / noise.variance / precision, repeated=repeated) for noise in noises]


def _terms_beside(state: GraphEvidence, noises: Sequence[Noise], told: SumOfSums | None) -> list[Term]:
    """The noises of the average of measurements by their precision, one of which may be a sum of rows and columns."""
    if told is None:
        return _terms(noises)
    own = sum(1 / noise.variance for noise in noises)
    part = own / (own + _precision(state, told))
    # Each is a part of an average that is a part of one.
    beside = [replace(term, weights=part * term.weights) for term in _terms(noises)]
    return beside + [replace(term, weights=(1 - part) * term.weights) for term in _terms(state.of_sums, told.weights)]


def _precision(state: GraphEvidence, told: SumOfSums) -> float:
    """That of a sum of rows and columns, in counts."""
    return sum(1 / noise.variance for noise in state.of_sums) / float(told.weights @ told.weights)


def _smooth(deviation: float) -> Noise:
    """Normal noise, on a grid on which its steps do not show; of the least deviation there where it would be less."""
    return Noise("gaussian", max(Decimal(repr(deviation)), least_scale(24)), 24)


def _deviation_with(variance: float, noise: Noise) -> float:
    """The deviation of a value of some variance, infinite where there is none, averaged with one more measurement."""
    return math.sqrt(1 / ((1 / variance if variance else 0.0) + 1 / noise.variance))
