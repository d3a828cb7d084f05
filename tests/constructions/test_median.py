"""The median mechanism: its set against all multisets written out, its sample against the body it is drawn from.

The oracle of the exact form is a Python set of databases, each a tuple of records, with answers in fractions.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from app.constructions.base import MeasuredQuery, PublicFacts, Step
from app.constructions.mechanism import MedianMechanism, parse_mechanism
from app.constructions.median import (
    MOST_COUNTS,
    POINTS,
    Cut,
    DatabasesState,
    Median,
    SampledMedian,
    SampleState,
    cell_weights,
    compositions,
    inner,
    twice_median,
)
from app.constructions.registry import construct
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from tests.kit.strategies import BUDGET, Universe, Words, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 2}, {"name": "y", "size": 2}],
        "budget": BUDGET,
    }
)
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 3, "weighted": True, "grid": 0.25, "budget": BUDGET})
MATRIX = universe(
    {"name": "m", "kind": "matrix", "rows": 1, "columns": 3, "lower": 0, "upper": 4, "grid": 1.0, "budget": BUDGET}
)
STEPS: list[Step] = ["projection", "paper"]


def forms(u: Universe) -> list[Words]:
    """All 0/1 queries over the universe, and a few weighted ones."""
    cells = u.cells
    found: list[Words] = []
    for mask in range(1, 2 ** len(cells)):
        chosen = [list(c) for i, c in enumerate(cells) if mask >> i & 1]
        found.append({"type": "sparse", "indices": chosen, "weights": [1.0] * len(chosen)})
    ramp = [(i + 1) / len(cells) for i in range(len(cells))]
    found.append({"type": "sparse", "indices": [list(c) for c in cells], "weights": ramp})
    found.append({"type": "sparse", "indices": [list(c) for c in cells], "weights": [1 / 3, *ramp[1:]]})
    return found


@dataclass(frozen=True)
class Case:
    """Private data over a tiny universe; ``padding`` is what the known mass is too large."""

    u: Universe
    data: tuple[int, ...]
    padding: float = 0.0

    @property
    def x(self) -> dict[tuple[int, ...], Fraction]:
        return {c: Fraction(v, 2**self.u.space.data_bits) for c, v in zip(self.u.cells, self.data, strict=True)}

    @property
    def mass(self) -> float:
        return float(sum(self.x.values()))

    @property
    def facts(self) -> PublicFacts:
        return PublicFacts(self.mass + self.padding, padded=self.padding > 0)

    def make(self, progress: float, step: Step, queries: int, **more: Any) -> Any:
        kind = SampledMedian if more.pop("sampled", False) else Median
        return kind(self.u.space, self.facts, step, progress, queries, **more)

    def truth(self, query: Query) -> float:
        weights = self.u.weights(query)
        return float(sum(weights[c] * self.x[c] for c in self.u.cells))


CASES = [
    Case(TABLE, (60, 30, 10, 0)),
    Case(TABLE, (60, 30, 10, 0), padding=15.0),
    Case(GRAPH, (4, 2, 1)),
    Case(MATRIX, (4, 1, 3), padding=2.0),
]


class Written:
    """The set as tuples of cell numbers, the slack cell last; answers as fractions."""

    def __init__(self, case: Case, construction: Median) -> None:
        self.u = case.u
        self.m = construction.records(construction.progress)
        self.scale = Fraction(construction.mass) / self.m
        cells = len(case.u.cells) + (case.padding > 0)
        self.members = set(itertools.combinations_with_replacement(range(cells), self.m))
        self.alpha = Fraction(construction.progress)

    def answers(self, query: Query) -> dict[tuple[int, ...], Fraction]:
        weights = [*self.u.weights(query).values(), Fraction(0)]
        return {d: self.scale * sum(weights[c] for c in d) for d in self.members}

    def median(self, query: Query) -> Fraction:
        return statistics.median(self.answers(query).values())

    def update(self, query: Query, value: float, noise: float, step: Step) -> None:
        answers, middle = self.answers(query), self.median(query)
        if value > middle:
            kept = {d for d, a in answers.items() if a > middle}
            nearer = {d for d in kept if answers[d] > Fraction(value) - Fraction(noise) - self.alpha}
        else:
            kept = {d for d, a in answers.items() if a < middle}
            nearer = {d for d in kept if answers[d] < Fraction(value) + Fraction(noise) + self.alpha}
        if step == "projection" and nearer:
            kept = nearer
        self.members = kept or self.members

    def columns(self) -> set[tuple[int, ...]]:
        cells = max(max(d) for d in self.members) + 1
        return {tuple(d.count(c) for c in range(cells)) for d in self.members}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("case", CASES)
def test_the_set_is_that_of_all_multisets(case: Case, step: Step) -> None:
    """Would catch a missing or doubled database, a median over distinct answers, ties that stay, a slack cell that a
    query touches, and a projection that drops what the measurement allows."""
    alpha = case.mass * 0.6
    construction = case.make(alpha, step, 3, signed=False)
    state, written = construction.start(), Written(case, construction)
    assert state.members.shape[1] == len(written.members)
    queries = [case.u.compiled(w) for w in forms(case.u)]
    turn = 0
    for i in range(4):
        for query in queries:
            truth = written.median(query)
            assert construction.answer(state, query) == pytest.approx(float(truth), rel=1e-12, abs=1e-12)
        turn = (turn + 5 * i + 3) % len(queries)
        query = queries[turn]
        value = float(written.median(query)) + (1.3 if i % 2 else -1.7) * alpha
        construction.update(state, MeasuredQuery(query, value, alpha / 3))
        written.update(query, value, alpha / 3, step)
        width = state.members.shape[0]
        found = {tuple(int(v) for v in column) for column in state.members.T}
        assert found == {c + (0,) * (width - len(c)) for c in written.columns()}


@given(st.integers(0, 9), st.integers(1, 5))
def test_compositions_are_all_of_them_once(total: int, parts: int) -> None:
    """Would catch a missing, doubled or wrong vector, against the product of all ranges."""
    found = [tuple(int(v) for v in c) for c in compositions(total, parts).T]
    wanted = [c for c in itertools.product(range(total + 1), repeat=parts) if sum(c) == total]
    assert found == wanted


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=9))
def test_twice_the_median(values: list[int]) -> None:
    """Would catch an off-by-one between even and odd numbers of members."""
    assert Fraction(twice_median(np.array(values)), 2) == statistics.median(map(Fraction, values))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40), st.integers(-(10**6), 10**6))
def test_an_update_drops_at_least_half(values: list[int], value: int) -> None:
    """Ties at the median included, on either side. Would catch a set that is not halved: the bound would be false."""
    low, high = twice_median(np.array(values)), Fraction(twice_median(np.array(values)), 2)
    assert low == 2 * high
    kept = [v for v in values if (v > high if value > high else v < high)]
    assert len(kept) <= len(values) // 2


def worst(case: Case, construction: Any, state: Any, queries: list[Query], truths: list[float]) -> tuple[int, float]:
    gaps = [t - construction.answer(state, q) for q, t in zip(queries, truths, strict=True)]
    at = int(np.argmax(np.abs(gaps)))
    return at, gaps[at]


def battle(case: Case, construction: Any, queries: list[Query], adverse: bool) -> Iterable[Any]:
    """States after updates on the worst query, T = 3L and noise at its bound L = alpha/2 (adverse while that hits)."""
    state, noise = construction.start(), construction.progress / 2
    truths = [case.truth(q) for q in queries]
    while True:
        at, gap = worst(case, construction, state, queries, truths)
        off = -noise if adverse and abs(gap) - noise > 3 * noise else noise
        if abs(gap) + off <= 3 * noise:
            return
        value = truths[at] + math.copysign(off, off * gap)
        construction.update(state, MeasuredQuery(queries[at], value, noise))
        yield state


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("adverse", [True, False])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("data", "padding"), [((97, 1, 1, 1), 0.0), ((1, 1, 1, 97), 9.0), ((0, 2, 98, 0), 0.0)])
def test_the_bound_holds_against_the_worst_adversary(
    step: Step, adverse: bool, signed: bool, data: tuple[int, ...], padding: float
) -> None:
    """All 0/1 queries (and their negatives) of the universe, the worst one every time. Would catch databases too
    small to stand for the data, a set that loses the one that does, and a set that is not halved."""
    case = Case(TABLE, data, padding)
    alpha = 55.0 if signed else 28.0
    words = forms(TABLE)
    if signed:
        words += [{**w, "weights": [-v for v in w["weights"]]} for w in words]
    queries = [TABLE.compiled(w) for w in words]
    construction = case.make(alpha, step, len(queries), signed=signed)
    assert construction.infeasible is None
    bound = construction.bound(alpha)
    first = construction.start().members.shape[1]
    assert bound == pytest.approx(math.log2(first))
    updates = 0
    for updates, state in enumerate(battle(case, construction, queries, adverse), 1):
        assert updates <= bound
        # Some member is alpha-accurate on every query: it is what keeps the set from becoming empty.
        off = np.zeros(state.members.shape[1])
        for query in queries:
            weights = [*map(float, TABLE.weights(query).values()), 0.0][: state.members.shape[0]]
            answers = np.array(weights) @ state.members * (construction.mass / state.members.sum(axis=0)[0])
            off = np.maximum(off, np.abs(answers - case.truth(query)))
        assert off.min() < alpha
    assert updates > 0


def test_sizes_by_hand() -> None:
    """m = ceil(n^2 ln k/alpha^2) or ceil(2 n^2 ln(2k)/alpha^2), the set has C(m + d - 1, d - 1) members."""
    case = Case(TABLE, (60, 30, 10, 0))
    plain, signed = case.make(50.0, "paper", 10, signed=False), case.make(50.0, "paper", 10)
    assert plain.records(50.0) == math.ceil(4 * math.log(10)) == 10
    assert signed.records(50.0) == math.ceil(8 * math.log(20)) == 24
    assert plain.bound(50.0) == math.log2(math.comb(13, 3))
    assert case.make(50.0, "paper", 1, signed=False).records(50.0) == math.ceil(4 * math.log(2))
    padded = Case(TABLE, (60, 30, 10, 0), 25.0).make(50.0, "paper", 10, signed=False)
    assert padded.records(50.0) == math.ceil(6.25 * math.log(10))
    assert padded.bound(50.0) == math.log2(math.comb(15 + 4, 4))
    assert Case(TABLE, (1, 1, 1, 1)).make(1e-7, "paper", 10).bound(1e-7) is None


@given(st.integers(2, 400), st.integers(2, 400))
def test_the_size_of_large_sets(m: int, d: int) -> None:
    """Would catch an approximation below the true size where factorials are long."""
    space = universe({"name": "b", "kind": "bipartite", "left": 1, "right": d, "budget": BUDGET}).space
    construction = Median(space, PublicFacts(1.0), "paper", 1.0, 10)
    object.__setattr__(construction, "records", lambda _: m)
    exact = math.log2(math.comb(m + d - 1, d - 1))
    assert exact * (1 - 1e-14) <= construction.size(1.0) <= exact * (1 + 1e-9)


class TestRefusals:
    """What a session is told before it opens."""

    people: ClassVar[Words] = {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 4}],
        "records_public": True,
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }

    def plan(self, mass: float | None = 3000.0, *, spec: Words | None = None, **changes: Any):
        words = {"dataset": "t", "mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 20}
        found = PublicDataset(parse_spec(self.people if spec is None else spec), mass)
        return make_plan(found, parse_request(words | changes))

    def test_a_set_that_is_too_large(self) -> None:
        """Would catch a session that fills the memory when it is first asked: the size is in the refusal."""
        with pytest.raises(
            PlanInfeasible, match=rf"2\^\d+.* databases of [\d,]+ records over 4 cells.*{MOST_COUNTS:,}"
        ):
            self.plan(10**6, max_updates=10)

    def test_a_mass_that_is_not_known(self) -> None:
        """Would catch a purchase for a set that may turn out too large."""
        hidden = self.people | {"records_public": False}
        with pytest.raises(PlanInfeasible, match="number of records"):
            self.plan(None, spec=hidden, max_updates=5)
        plan = self.plan(None, spec=hidden, max_updates=5, mechanism={"construction": "median", "sampled": True})
        assert plan.purchase is not None
        bought = PublicDataset(parse_spec(hidden), None, {"mass": Bought(500.0, 30.0)})
        words = {"dataset": "t", "mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 20}
        assert make_plan(bought, parse_request(words | {"max_updates": 5})).purchase is None

    def test_the_sample_is_best_effort(self) -> None:
        """Would catch a guarantee that nothing stands behind."""
        with pytest.raises(PlanInfeasible, match="max_updates"):
            self.plan(mechanism={"construction": "median", "sampled": True})
        plan = self.plan(10**6, mechanism={"construction": "median", "sampled": True}, max_updates=7)
        assert (plan.guaranteed, plan.update_bound, plan.step_size) == (False, None, None)

    def test_a_guaranteed_plan(self) -> None:
        """Where records are few the exact form's own bound is met."""
        two = self.people | {"attributes": [{"name": "x", "size": 2}]}
        plan = self.plan(20_000, spec=two)
        assert plan.guaranteed
        assert plan.update_bound is not None
        assert plan.update_bound <= plan.max_updates < 25
        assert plan.error_bound < 20_000

    def test_what_no_median_serves(self) -> None:
        """Would catch a set over an unbounded universe, or of negative counts."""
        for spec in (
            {"name": "w", "kind": "multiset", "budget": BUDGET},
            {"name": "m", "kind": "matrix", "rows": 2, "columns": 2, "lower": -1, "upper": 1, "budget": BUDGET},
        ):
            with pytest.raises(PlanInfeasible):
                self.plan(None, spec=spec, max_updates=2)
        big = self.people | {"attributes": [{"name": "x", "size": 5000}]}
        with pytest.raises(PlanInfeasible, match="at most 4,096 cells"):
            self.plan(spec=big, max_updates=2, mechanism={"construction": "median", "sampled": True})

    def test_negative_weights_where_none_were_promised(self) -> None:
        """Would catch databases too small for the queries that are asked."""
        negative = TABLE.compiled({"type": "product", "weights": {"x": [1.0, -0.5]}})
        for sampled in (True, False):
            CASES[0].make(50.0, "paper", 5, sampled=sampled).admit(negative)
            with pytest.raises(InvalidQuery, match="negative"):
                CASES[0].make(50.0, "paper", 5, sampled=sampled, signed=False).admit(negative)

    def test_fields(self) -> None:
        """Would catch a field of one construction taken by another."""
        for fields in (
            {"construction": "mw", "sampled": True},
            {"construction": "median", "step": "refit"},
            {"construction": "median", "weights": "any"},
            {"construction": "median", "sampled": 1},
            {"construction": "median", "sparsity": 3},
        ):
            with pytest.raises(ValueError, match=r"."):
                parse_mechanism(fields)


@given(st.data())
@settings(max_examples=30)
def test_weights_of_many_axes_are_cut_to_what_64_bits_hold(d) -> None:
    """Three weighted axes have more than 40 bits; would catch an overflow, and a cut that moves an answer by half a
    unit of the answer grid."""
    u = universe(
        {
            "name": "t",
            "kind": "table",
            "attributes": [{"name": f"x{i}", "size": 2} for i in range(3)],
            "capacity": 1,
            "budget": BUDGET,
        }
    )
    # Odd multiples of 2^-17: no common factor of two takes bits away.
    odd = st.integers(2**13, 2**16 - 1).map(lambda n: (2 * n + 1) / 2**17)
    vectors = {f"x{i}": [-d.draw(odd), d.draw(odd)] for i in range(3)}
    query = u.compiled({"type": "product", "weights": vectors})
    assert query.grid_bits > 40
    integers, bits = cell_weights(u.space, query)
    assert bits == 40
    for found, weight in zip(integers.tolist(), u.weights(query).values(), strict=True):
        assert abs(Fraction(found, 2**40) - weight) <= Fraction(1, 2**41)


class TestSample:
    """The sampled form."""

    def test_it_starts_uniform(self) -> None:
        """Each count of a uniform point of the simplex of d cells has the law Beta(1, d - 1). Would catch points that
        lean to a corner or to the middle."""
        points = CASES[0].make(1.0, "paper", 10, sampled=True).start().points
        assert points.shape == (POINTS, 4)
        np.testing.assert_allclose(points.sum(axis=1), 100)
        for cell in range(4):
            assert kstest(points[:, cell] / 100, "beta", args=(1, 3)).pvalue > 1e-4

    def test_it_stays_uniform_within_a_cut(self) -> None:
        """After a cut the law is the uniform one on what is left: x_0 >= 40 of 100, so the rest is a simplex of 60.
        Would catch a walk that sticks to where it entered, and one that forgets the other bounds."""
        construction = CASES[0].make(1.0, "projection", 10, sampled=True)
        query = TABLE.compiled({"type": "sparse", "indices": [0], "weights": [1.0]})
        samples = []
        for i in range(40):  # the value seeds the walk
            state = construction.start()
            construction.update(state, MeasuredQuery(query, 45.0 + i / 2**20, 5.0 + i / 2**20))
            samples.append(state.points)
        rest = (np.concatenate(samples) - [40, 0, 0, 0]) / 60
        assert (rest >= -1e-9).all()
        for cell in range(4):
            assert kstest(rest[:, cell], "beta", args=(1, 3)).pvalue > 1e-4

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("case", CASES)
    def test_points_stay_inside_every_cut(self, case: Case, step: Step) -> None:
        """And in the simplex, and the data with them. Would catch a cut on the wrong side, a walk through a wall, and
        a cut that the noise bound does not certify."""
        alpha = case.mass / 12
        construction = case.make(alpha, step, 100, sampled=True)
        queries = [case.u.compiled(w) for w in forms(case.u)]
        x = np.array([[*map(float, case.x.values()), case.padding][: construction.dimension]])
        states = 0
        for states, state in enumerate(itertools.islice(battle(case, construction, queries, True), 12), 1):
            assert len(state.cuts) == states
            assert (state.points >= 0).all()
            np.testing.assert_allclose(state.points.sum(axis=1), construction.mass, rtol=1e-9)
            for cut in state.cuts:
                assert cut.slack(state.points).min() >= -1e-9 * construction.mass
                assert cut.slack(x).min() >= -1e-9 * construction.mass
        assert states > 0

    def test_it_learns(self) -> None:
        """A few updates bring every query of the universe near. Would catch a sample that ignores its cuts."""
        case = CASES[0]
        construction = case.make(4.0, "projection", 100, sampled=True)
        queries = [case.u.compiled(w) for w in forms(case.u)]
        assert sum(1 for _ in itertools.islice(battle(case, construction, queries, False), 60)) < 30

    def test_it_is_a_function_of_the_measurements(self) -> None:
        """Bit for bit, whatever was asked in between; another value or order gives another sample. Would catch random
        numbers from elsewhere than the transcript."""
        queries = [TABLE.compiled(w) for w in forms(TABLE)[:4]]

        def run(values: list[float], between: int) -> SampleState:
            construction = CASES[0].make(4.0, "projection", 100, sampled=True)
            state = construction.start()
            for query, value in zip(queries, values, strict=True):
                for other in queries * between:
                    construction.answer(state, other)
                construction.update(state, MeasuredQuery(query, value, 2.0))
            return state

        first, again = run([70.0, 50.0, 90.0, 15.0], 0), run([70.0, 50.0, 90.0, 15.0], 2)
        assert first.points.tobytes() == again.points.tobytes()
        other = run([70.0, 50.0, 90.0, 15.0000001], 0)
        assert first.points.tobytes() != other.points.tobytes()

    def test_its_random_numbers_are_what_they_are_everywhere(self) -> None:
        """PCG64 as published, seeded with a SHA-256: the stream written out here with integers. Would catch numbers
        that depend on NumPy's version or on the machine, which a replay elsewhere could not draw again."""
        from app.constructions.median import _Uniform

        seed = int.from_bytes(hashlib.sha256(b"some seed").digest())
        mask, multiplier = (1 << 128) - 1, 0x2360ED051FC65DA44385DF649FCCF645
        words = np.random.SeedSequence(seed).generate_state(4, np.uint64)
        state, increment = (int(words[0]) << 64) | int(words[1]), (int(words[2]) << 64) | int(words[3])
        increment = (increment << 1 | 1) & mask
        state = (increment + state) * multiplier + increment & mask
        found = []
        for _ in range(5):
            state = (state * multiplier + increment) & mask
            xored, turn = (state >> 64) ^ (state & ((1 << 64) - 1)), state >> 122
            drawn = (xored >> turn | xored << (64 - turn)) & ((1 << 64) - 1)
            found.append((drawn >> 11) * 2.0**-53)
        assert _Uniform(b"some seed").draw(5).tolist() == found

    @pytest.mark.slow
    def test_a_measurement_that_no_point_allows(self) -> None:
        """Noise has no largest value. Would catch a sample that becomes empty, infinite, or walks forever."""
        for step in STEPS:
            construction = CASES[0].make(4.0, step, 100, sampled=True)
            state = construction.start()
            for i, words in enumerate(forms(TABLE) * 2):
                query = TABLE.compiled(words)
                construction.update(state, MeasuredQuery(query, (-1) ** i * 1e9, 2.0))
                assert np.isfinite(state.points).all()
                np.testing.assert_allclose(state.points.sum(axis=1), 100, rtol=1e-9)
                assert math.isfinite(construction.answer(state, query))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampled", [True, False])
def test_the_export_is_the_mean(case: Case, sampled: bool) -> None:
    """In the space's shape, of an undirected graph symmetric, the slack cell left out. Would catch an export that
    adds up to the padded mass, or counts in members' records."""
    construction = case.make(case.mass * 0.6, "paper", 3, sampled=sampled, signed=False)
    state = construction.start()
    construction.update(state, MeasuredQuery(case.u.compiled(forms(case.u)[0]), case.mass * 2, 0.1))
    array = construction.export(state).array
    assert array.shape == case.u.space.shape
    rows: Any = state.members.T if isinstance(state, DatabasesState) else state.points
    rows = rows / rows.sum(axis=1, keepdims=True) * construction.mass
    for i, cell in enumerate(case.u.cells):
        assert array[cell] == pytest.approx(float(np.mean(rows[:, i])), rel=1e-9)
        if case.u.undirected:
            assert array[cell[::-1]] == array[cell]
    assert array.sum() / (2 if case.u.undirected else 1) <= construction.mass * (1 + 1e-9)


def test_a_set_that_nothing_fits_stays_as_it_is() -> None:
    """Beyond its bound, where noises broke theirs. Would catch an empty set, which has no median."""
    case = CASES[0]
    construction = case.make(60.0, "projection", 3, signed=False)
    state = construction.start()
    query = TABLE.compiled(forms(TABLE)[0])
    for _ in range(20):
        construction.update(state, MeasuredQuery(query, 1e9, 1.0))
    assert state.members.shape[1] == 1
    assert construction.answer(state, query) == pytest.approx(100.0)


def test_the_registry_makes_both_forms() -> None:
    """Would catch a promise of non-negative weights that is lost on the way."""
    space, facts = TABLE.space, PublicFacts(100.0)
    exact = construct(MedianMechanism(construction="median"), space, facts, 50.0, 10)
    sampled = construct(
        MedianMechanism(construction="median", sampled=True, weights="nonnegative"), space, facts, 50.0, 10
    )
    assert isinstance(exact, Median)
    assert exact.signed
    assert isinstance(sampled, SampledMedian)
    assert not sampled.signed
    assert sampled.bound(50.0) is None


def test_inner_and_slack() -> None:
    """Would catch a slack of the wrong sign."""
    points = np.array([[1.0, 2.0], [3.0, 0.0]])
    np.testing.assert_array_equal(inner(points, np.array([1.0, -1.0])), [-1.0, 3.0])
    np.testing.assert_array_equal(Cut(np.array([1.0, -1.0]), -1, 1.0).slack(points), [2.0, -2.0])
