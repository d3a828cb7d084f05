"""What every construction keeps, whatever it is made of: one suite over (construction, data, step).

A construction joins by a row in :data:`ROWS`. Each row brings small private data, so that an adversary can look for
the worst query by brute force, and the facts that a session would start from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.constructions.base import Construction, DenseHypothesis, Measurement, PublicFacts
from app.constructions.mechanism import Mechanism
from app.constructions.registry import construct
from app.spaces.query import Query
from tests.strategies import BUDGET, Universe, Words, universe

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 3}, {"name": "y", "size": 3}],
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 3, "right": 4, "budget": BUDGET})
DIRECTED = universe({"name": "d", "kind": "graph", "nodes": 3, "directed": True, "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 5, "weighted": True, "grid": 0.25, "budget": BUDGET})

SKEWED = {cell: 40 if cell == (0, 0) else cell[0] + 2 * cell[1] for cell in TABLE.cells}
DENSE_EDGES = {cell: int(sum(cell) % 3 > 0) for cell in BIPARTITE.cells}
FEW_EDGES = {(0, 1): 1, (2, 0): 1, (1, 0): 1}
QUARTERS = {cell: (3 * cell[0] + cell[1]) % 5 for cell in GRAPH.cells}

_ENTRIES = {"kind": "matrix", "rows": 3, "columns": 4, "upper": 3, "grid": 0.25, "budget": BUDGET}
RATINGS = universe({"name": "r", "lower": 0, **_ENTRIES})
SIGNED = universe({"name": "s", "lower": -2, **_ENTRIES})
STARS = {cell: (5 * cell[0] + 7 * cell[1]) % 13 for cell in RATINGS.cells}
EITHER = {cell: 12 if sum(cell) % 3 else -8 for cell in SIGNED.cells}


@dataclass(frozen=True)
class Row:
    """A mechanism on data.

    ``mass_kept`` says that the hypothesis' mass is the facts' own; ``tight`` that an update's answer is exactly the
    edge of the certified half-space.
    """

    mechanism: dict[str, Any]
    u: Universe
    data: dict[tuple[int, ...], int]
    padding: float = 0.0
    mass_kept: bool = False
    tight: bool = False
    norms: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        told = "-".join(str(v) for v in self.mechanism.values() if v != "none")
        return f"{told}-{self.u.declared['name']}{'-padded' if self.padding else ''}"

    @property
    def x(self) -> np.ndarray:
        """The private counts, as real numbers."""
        return np.ldexp(self.u.array(self.data).astype(float), -self.u.space.data_bits)

    @property
    def simplex(self) -> bool:
        """Whether the hypothesis is a mass spread over cells."""
        return self.mechanism["construction"] == "mw" or self.mechanism.get("potential") == "entropy"

    @property
    def mass(self) -> float:
        return math.ldexp(sum(self.data.values()), -self.u.space.data_bits)

    @property
    def facts(self) -> PublicFacts:
        return PublicFacts(self.mass + self.padding, padded=self.padding > 0, norms=self.norms)

    def make(self, progress: float, queries: int = 1000) -> Construction:
        mechanism = Mechanism.model_validate(self.mechanism)
        return construct(mechanism, self.u.space, self.facts, progress, queries)

    def truth(self, query: Query) -> float:
        """<f, x> in counts, from the exact integers."""
        exact = query.exact(self.u.space.tensor(self.u.array(self.data)))
        return float(Fraction(exact, 1 << (query.grid_bits + self.u.space.data_bits)))


def rows() -> Iterable[Row]:
    for step in ("projection", "paper"):
        tight = step == "projection"
        mw = {"construction": "mw", "step": step}
        fk = {"construction": "fk", "step": step}
        yield Row(mw, TABLE, SKEWED, mass_kept=True, tight=tight)
        yield Row(mw, TABLE, SKEWED, padding=25.0, tight=tight)
        yield Row(mw, BIPARTITE, DENSE_EDGES, mass_kept=True, tight=tight)
        yield Row(mw, DIRECTED, FEW_EDGES, mass_kept=True, tight=tight)
        yield Row(mw, GRAPH, QUARTERS, mass_kept=True, tight=tight)
        yield Row(mw, GRAPH, QUARTERS, padding=3.0, tight=tight)
        yield Row(fk, TABLE, SKEWED, tight=tight)
        yield Row(fk, BIPARTITE, DENSE_EDGES, tight=tight)
        yield Row(fk, DIRECTED, FEW_EDGES, tight=tight)
        yield Row(fk, GRAPH, QUARTERS, tight=tight)
        yield Row(mw, RATINGS, STARS, mass_kept=True, tight=tight)
        yield Row(mw, RATINGS, STARS, padding=4.0, tight=tight)
        yield Row(fk, RATINGS, STARS, tight=tight)
        yield Row(fk, SIGNED, EITHER, tight=tight)
        yield from mirror_rows(step, tight)


def mirror_rows(step: str, tight: bool) -> Iterable[Row]:
    """Mirror descent in each geometry; without a ball, as a ball takes answers off the certified edge again."""
    md = {"construction": "md", "step": step}
    free = {**md, "ball_p": "none"}
    entropy = {**md, "potential": "entropy"}
    yield Row(entropy, TABLE, SKEWED, mass_kept=True, tight=tight)
    yield Row(entropy, GRAPH, QUARTERS, padding=3.0, tight=tight)
    for p in ("auto", 1.5):
        lp = {**free, "potential": "lp", "p": p}
        rows = {**free, "potential": "group", "axis": "rows", "p": p}
        columns = {**free, "potential": "group", "axis": "columns", "p": p}
        schatten = {**free, "potential": "schatten", "p": p}
        yield Row(lp, TABLE, SKEWED, tight=tight)
        yield Row(lp, GRAPH, QUARTERS, tight=tight)
        yield Row(rows, BIPARTITE, DENSE_EDGES, tight=tight)
        yield Row(columns, GRAPH, QUARTERS, tight=tight)
        # Undirected graphs are left out: in Schatten geometry the hypothesis has a diagonal, which is not exported.
        yield Row(schatten, TABLE, SKEWED, tight=tight)
        yield Row(schatten, DIRECTED, FEW_EDGES, tight=tight)
    yield Row({**md, "potential": "lp", "p": 1.5}, DIRECTED, FEW_EDGES)
    ball = {**md, "potential": "group", "axis": "rows", "p": 1.5, "ball_p": 1.25}
    yield Row(ball, BIPARTITE, DENSE_EDGES, norms={"group:rows:1.25": 6.0})


ROWS = list(rows())


@pytest.fixture(params=ROWS, ids=[r.name for r in ROWS])
def row(request: pytest.FixtureRequest) -> Row:
    return request.param


def only(holds: Callable[[Row], bool]) -> pytest.MarkDecorator:
    """The rows a rule is about; for the others there is nothing to hold."""
    chosen = [r for r in ROWS if holds(r)]
    return pytest.mark.parametrize("row", chosen, indirect=True, ids=[r.name for r in chosen])


# ------------------------------------------------------------------------------------------------ the queries


def every_form(u: Universe) -> list[Words]:
    """One weighted and one 0/1 query of every form the space takes."""
    cells, shape = u.cells, u.space.shape
    ramp = np.zeros(shape)
    for i, cell in enumerate(cells):
        ramp[cell] = (i - 2) / len(cells)
        if u.undirected:
            ramp[cell[::-1]] = ramp[cell]
    found: list[Words] = [
        {"type": "sparse", "indices": [list(cells[1]), list(cells[-1])], "weights": [1.0, 1.0]},
        {"type": "sparse", "indices": [list(cells[0]), list(cells[2])], "weights": [0.5, -0.75]},
        {"type": "dense", "weights": ramp.tolist()},
        {"type": "dense", "weights": np.abs(ramp).tolist()},
    ]
    if u.declared["kind"] == "table":
        found += [
            {"type": "predicate", "where": {"x": {"in": [0, 2]}}},
            {"type": "predicate", "where": {"x": {"equals": 1}, "y": {"between": [0, 1]}}},
            {"type": "product", "weights": {"x": [-0.5, 0.25, 1.0]}},
            {"type": "product", "weights": {"x": [-0.5, 0.25, 1.0], "y": [0.125, 0.5, 0.75]}},
        ]
    else:
        low = 0.0 if u.undirected else -1.0
        found += [
            {"type": "cut", "left": [0, 2], "right": [1, 2]},
            {"type": "cut", "left": [0], "right": "all"},
            {"type": "rank_one", "left": np.linspace(low, 1, shape[0]).tolist(), "right": [0.5] * shape[1]},
            {"type": "rank_one", "left": [1.0] * shape[0], "right": np.linspace(1, low, shape[1]).tolist()},
        ]
    return found


def worst_queries(u: Universe) -> list[Query]:
    """What an adversary chooses from: all predicates of two attributes, all cuts, a few weighted forms."""
    rows, columns = u.space.shape
    subsets = [[[i for i in range(n) if mask >> i & 1] for mask in range(1, 2**n)] for n in (rows, columns)]
    words: list[Words] = []
    for left, right in itertools.product(*subsets):
        if u.declared["kind"] == "table":
            words.append({"type": "predicate", "where": {"x": {"in": left}, "y": {"in": right}}})
        elif not u.undirected or left <= right:
            words.append({"type": "cut", "left": left, "right": right})
    compiled = {q.digest: q for q in map(u.compiled, [*words, *every_form(u)])}
    return [q for q in compiled.values() if not q.is_zero]


def exported(row: Row, construction: Construction, state: Any) -> np.ndarray:
    hypothesis = construction.export(state)
    assert isinstance(hypothesis, DenseHypothesis)
    return hypothesis.array


def total(u: Universe, array: np.ndarray) -> float:
    return float(sum(array[cell] for cell in u.cells))


def played(row: Row, progress: float, rounds: int = 25) -> tuple[Construction, Any, list[Measurement]]:
    """A construction after updates on every form in turn, with measurements on either side of the truth."""
    construction = row.make(progress)
    state, taken = construction.start(), []
    forms = [row.u.compiled(w) for w in every_form(row.u)]
    for i in range(rounds):
        query = forms[i % len(forms)]
        value = row.truth(query) + ((i * 7) % 5 - 2) * 0.3
        if abs(value - construction.answer(state, query)) > 0.7:
            taken.append(Measurement(query, value, 0.6))
            construction.update(state, taken[-1])
    return construction, state, taken


# ---------------------------------------------------------------------------------------------------- the rules


def test_answers_are_those_of_the_exported_hypothesis(row: Row) -> None:
    """On every form, before and after updates. Would catch a representation that answers one form and exports
    another hypothesis, a diagonal that shows, and a stale marginal."""
    construction, state, taken = played(row, 1.0)
    assert taken
    for st in (construction.start(), state):
        h = exported(row, construction, st)
        for words in every_form(row.u):
            query = row.u.compiled(words)
            weights = row.u.weights(query)
            truth = sum(float(weights[c]) * h[c] for c in row.u.cells)
            assert construction.answer(st, query) == pytest.approx(truth, rel=1e-9, abs=1e-9)


def test_the_hypothesis_has_the_shape_of_the_data(row: Row) -> None:
    """Finite, of the space's shape; of an undirected graph symmetric with zero diagonal."""
    construction, state, _ = played(row, 1.0)
    h = exported(row, construction, state)
    assert h.shape == row.u.space.shape
    assert np.isfinite(h).all()
    if row.u.undirected:
        np.testing.assert_allclose(h, h.T, atol=1e-12)
        assert not np.diagonal(h).any()


@only(lambda r: r.simplex)
def test_the_mass_is_kept(row: Row) -> None:
    """Where the mass is a public fact the hypothesis keeps it through every update, and stays non-negative; where it
    is padded, it never passes it."""
    construction, state, _ = played(row, 1.0)
    for st in (construction.start(), state):
        h = exported(row, construction, st)
        assert (h >= 0).all()
        if row.mass_kept:
            assert total(row.u, h) == pytest.approx(row.facts.mass, rel=1e-12)
        else:
            assert total(row.u, h) <= row.facts.mass * (1 + 1e-12)


def test_a_transcript_gives_one_state_bit_for_bit(row: Row) -> None:
    """What an audit does: the same measurements from the start. Would catch a state that depends on what else was
    asked in between, on an earlier session, or on the order of a dictionary."""
    construction, state, taken = played(row, 1.0)
    again = row.make(1.0)
    other = again.start()
    probe = [row.u.compiled(w) for w in every_form(row.u)]
    for measurement in taken:
        query = row.u.space.from_canonical(
            measurement.query.canonical,
            {} if measurement.query.blob is None else {measurement.query.canonical["sha256"]: measurement.query.blob},
        )
        again.update(other, replace(measurement, query=query))
    assert again.export(other).content() == construction.export(state).content()
    # Questions in between may fill caches, which moves the last bits of a sum and nothing more.
    third = again.start()
    for measurement in taken:
        for query in probe:
            again.answer(third, query)
        again.update(third, measurement)
    np.testing.assert_allclose(exported(row, again, third), exported(row, again, other), rtol=1e-12, atol=1e-12)


def test_a_new_start_is_untouched_by_an_old_session(row: Row) -> None:
    """Would catch starts that share an array."""
    construction = row.make(1.0)
    before = construction.export(construction.start()).content()
    state = construction.start()
    query = row.u.compiled(every_form(row.u)[0])
    construction.update(state, Measurement(query, construction.answer(state, query) + 9.0, 1.0))
    assert construction.export(construction.start()).content() == before
    assert construction.export(state).content() != before


def test_an_update_moves_the_answer_towards_the_measurement_and_no_further(row: Row) -> None:
    """With projections onto the edge of what the measurement certifies, which lies between the present answer and the
    value. Would catch a sign, a step of the wrong query, an overshoot past the certified edge."""
    for words in every_form(row.u):
        query = row.u.compiled(words)
        low, high = query.range
        for side in (1, -1):
            construction = row.make(0.5)
            state = construction.start()
            present = construction.answer(state, query)
            room = min((high if side > 0 else -low) * row.facts.mass - side * present, 6.0)
            if not row.simplex:
                room = 6.0
            if room <= 0.5:
                continue
            value = present + side * room
            construction.update(state, Measurement(query, value, 0.25 * room))
            after = construction.answer(state, query)
            assert side * (after - present) > 0
            if row.tight:
                assert after == pytest.approx(present + side * 0.75 * room, rel=1e-7, abs=1e-7)


@only(lambda r: r.tight)
def test_what_certifies_nothing_changes_nothing(row: Row) -> None:
    """A measurement within its own noise bound of the present answer: the projection leaves the hypothesis alone."""
    construction, state, _ = played(row, 1.0)
    before = construction.export(state).content()
    for words in every_form(row.u):
        query = row.u.compiled(words)
        for off in (-0.4, 0.0, 0.4):
            construction.update(state, Measurement(query, construction.answer(state, query) + off, 0.5))
    assert construction.export(state).content() == before


@pytest.mark.parametrize("offset", [1, 0, -1])
def test_the_update_bound_holds_against_the_worst_adversary(row: Row, offset: int) -> None:
    """Every round the query of the largest gap that is a hit, its measurement off by the whole noise bound: beyond the
    truth, on it, or short of it. With T = 3L hits are at true gaps above 2L and must stop before the bound does. Would
    catch a step of half the length, a bound for another norm, a mass that the data does not have."""
    noise = row.mass / 40
    alpha = 2 * noise
    construction = row.make(alpha)
    bound = construction.bound(alpha)
    assert bound is not None
    state, updates = construction.start(), 0
    queries = worst_queries(row.u)
    truths = [row.truth(q) for q in queries]
    while True:
        gaps = [t - construction.answer(state, q) for q, t in zip(queries, truths, strict=True)]
        at = int(np.argmax(np.abs(gaps)))
        if abs(gaps[at]) + offset * noise <= 3 * noise:
            break
        updates += 1
        assert updates <= bound
        value = truths[at] + offset * math.copysign(noise, gaps[at])
        construction.update(state, Measurement(queries[at], value, noise))
    assert updates > 0


def test_bounds_and_steps_follow_the_progress(row: Row) -> None:
    """A larger gap needs fewer updates and takes longer steps; a bound is finite and positive."""
    construction = row.make(1.0)
    bounds = [construction.bound(alpha) for alpha in (0.5, 1.0, 2.0, 4.0)]
    assert all(b is not None and 0 < b < math.inf for b in bounds)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]
    steps = [construction.step_size(alpha) for alpha in (0.5, 1.0, 2.0)]
    if steps[0] is not None:
        assert 0 < steps[0] < steps[1] < steps[2]


def test_absurd_measurements_leave_a_finite_hypothesis(row: Row) -> None:
    """Noise has no largest value: would catch a hypothesis of infinities after a measurement far outside what the data
    could answer, and one that no later update can bring back."""
    construction = row.make(1.0)
    state = construction.start()
    forms = [row.u.compiled(w) for w in every_form(row.u)]
    for i, query in enumerate(forms * 3):
        far = (-1) ** i * 1e6 * row.mass
        construction.update(state, Measurement(query, far, 1.0))
        h = exported(row, construction, state)
        assert np.isfinite(h).all()
    if row.tight:
        query = forms[0]
        target = row.mass / 3
        for value in (target, target):
            construction.update(state, Measurement(query, value, 0.0))
        assert construction.answer(state, query) == pytest.approx(target, rel=1e-5, abs=1e-5)
