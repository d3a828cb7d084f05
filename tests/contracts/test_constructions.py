"""What every construction keeps, whatever it is made of: one suite over (construction, data, step).

A construction joins by a row in :data:`ROWS`. Each row brings small private data, so that an adversary can look for
the worst query by brute force, and the facts that a session would start from. A row says what its hypothesis is made
of and what its answers keep; each rule is held for the rows that have what it speaks of, and for no others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.constructions.base import (
    BOUNDED_STEPS,
    Construction,
    DenseHypothesis,
    Hypothesis,
    ListedHypothesis,
    Measurement,
    PublicFacts,
)
from app.constructions.dumps import Dump
from app.constructions.mechanism import Mechanism
from app.constructions.registry import construct
from app.services.ports import Snapshot
from app.spaces.factory import space_of
from app.spaces.multiset import ElementsQuery
from app.spaces.queries import parse_query
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.spec import parse_spec
from app.spaces.tensor import DenseTensor
from app.storage.snapshots import SnapshotFiles
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

LINE = universe({"name": "l", "kind": "table", "attributes": [{"name": "x", "size": 3}], "budget": BUDGET})
WORDS = space_of(parse_spec({"name": "w", "kind": "multiset", "budget": BUDGET}))

SKEWED = {cell: 40 if cell == (0, 0) else cell[0] + 2 * cell[1] for cell in TABLE.cells}
DENSE_EDGES = {cell: int(sum(cell) % 3 > 0) for cell in BIPARTITE.cells}
FEW_EDGES = {(0, 1): 1, (2, 0): 1, (1, 0): 1}
QUARTERS = {cell: (3 * cell[0] + cell[1]) % 5 for cell in GRAPH.cells}

_ENTRIES = {"kind": "matrix", "rows": 3, "columns": 4, "upper": 3, "grid": 0.25, "budget": BUDGET}
RATINGS = universe({"name": "r", "lower": 0, **_ENTRIES})
SIGNED = universe({"name": "s", "lower": -2, **_ENTRIES})
STARS = {cell: (5 * cell[0] + 7 * cell[1]) % 13 for cell in RATINGS.cells}
THREE = {(0,): 3, (1,): 0, (2,): 0}
COUNTS = {"the": 42, "of": 21, "and": 12, "é": 4}
EITHER = {cell: 12 if sum(cell) % 3 else -8 for cell in SIGNED.cells}


@dataclass(frozen=True)
class Cells:
    """Private counts over a finite universe."""

    u: Universe
    data: dict[tuple[int, ...], int]

    @property
    def name(self) -> str:
        return str(self.u.declared["name"])

    @property
    def space(self) -> Space:
        return self.u.space

    @property
    def mass(self) -> float:
        return math.ldexp(sum(self.data.values()), -self.space.data_bits)

    def truth(self, query: Query) -> float:
        """<f, x> in counts, from the exact integers."""
        exact = query.exact(self.space.tensor(self.u.array(self.data)))
        return float(Fraction(exact, 1 << (query.grid_bits + self.space.data_bits)))

    def forms(self) -> list[Query]:
        """One weighted and one 0/1 query of every form the space takes."""
        return [self.u.compiled(words) for words in every_form(self.u)]

    def worst(self) -> list[Query]:
        """What an adversary chooses from."""
        return worst_queries(self.u)

    def counted(self, hypothesis: Hypothesis, query: Query) -> float:
        """<f, h>, cell by cell."""
        assert isinstance(hypothesis, DenseHypothesis)
        weights = self.u.weights(query)
        return sum(float(weights[c]) * hypothesis.array[c] for c in self.u.cells)

    def total(self, hypothesis: Hypothesis) -> float:
        """The hypothesis' mass."""
        assert isinstance(hypothesis, DenseHypothesis)
        return float(sum(hypothesis.array[cell] for cell in self.u.cells))


@dataclass(frozen=True)
class Elements:
    """A private multiset of strings: a universe without an end."""

    data: dict[str, int]
    name = "w"
    space = WORDS

    @property
    def mass(self) -> float:
        return float(sum(self.data.values()))

    def _compiled(self, weights: dict[str, float]) -> Query:
        return WORDS.compile(parse_query({"type": "elements", "weights": weights}))

    @staticmethod
    def _weights(query: Query) -> dict[str, float]:
        assert isinstance(query, ElementsQuery)
        return dict(zip(query.elements, query.real.tolist(), strict=True))

    def truth(self, query: Query) -> float:
        """Whole counts and dyadic weights: exact."""
        return sum(weight * self.data.get(element, 0) for element, weight in self._weights(query).items())

    def forms(self) -> list[Query]:
        """Elements that are there and that are not, counted and weighed."""
        asked = [{"the": 1.0}, {"the": 1.0, "of": 1.0}, {"of": 0.5, "and": -0.75}, {"and": 1.0, "absent": 1.0}]
        return [self._compiled(weights) for weights in asked]

    def worst(self) -> list[Query]:
        """All sets of up to three of six elements, and the weighed ones."""
        pool = [*self.data, "absent", "nobody"]
        sets = [set for size in (1, 2, 3) for set in itertools.combinations(pool, size)]
        return [*(self._compiled(dict.fromkeys(set, 1.0)) for set in sets), *self.forms()]

    def counted(self, hypothesis: Hypothesis, query: Query) -> float:
        """<f, h>, element by element."""
        assert isinstance(hypothesis, ListedHypothesis)
        known = dict(zip(hypothesis.elements, hypothesis.counts.tolist(), strict=True))
        return sum(weight * known.get(element, hypothesis.other) for element, weight in self._weights(query).items())

    def total(self, hypothesis: Hypothesis) -> float:
        """The mass of the elements that it tells apart."""
        assert isinstance(hypothesis, ListedHypothesis)
        return float(hypothesis.counts.sum())


@dataclass(frozen=True)
class Row:
    """A mechanism on data.

    ``mass_kept`` says that the hypothesis' mass is the facts' own; ``tight`` that an update's answer is exactly the
    edge of the certified half-space; ``linear`` that answers are those of the exported hypothesis; ``coarse`` how
    many noise bounds of its adversary make the data's mass (a set of databases grows fast with it).
    """

    mechanism: dict[str, Any]
    of: Cells | Elements
    padding: float = 0.0
    mass_kept: bool = False
    tight: bool = False
    linear: bool = True
    queries: int = 1000
    coarse: float = 40.0
    norms: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        told = "-".join(str(v) for v in self.mechanism.values() if v != "none")
        return f"{told}-{self.of.name}{'-padded' if self.padding else ''}"

    @property
    def simplex(self) -> bool:
        """Whether the hypothesis is a mass, spread over cells or elements."""
        return self.mechanism["construction"] in ("mw", "smw", "median") or self.mechanism.get("potential") == "entropy"

    @property
    def bounded(self) -> bool:
        """Whether a number is known that updates never pass."""
        return self.mechanism["step"] in BOUNDED_STEPS and not self.mechanism.get("sampled")

    @property
    def mass(self) -> float:
        return self.of.mass

    @property
    def facts(self) -> PublicFacts:
        return PublicFacts(self.mass + self.padding, padded=self.padding > 0, norms=self.norms)

    def make(self, progress: float) -> Construction:
        mechanism = Mechanism.model_validate(self.mechanism)
        return construct(mechanism, self.of.space, self.facts, progress, self.queries)


def rows() -> Iterable[Row]:
    for step in ("projection", "paper"):
        tight = step == "projection"
        mw = {"construction": "mw", "step": step}
        fk = {"construction": "fk", "step": step}
        yield Row(mw, Cells(TABLE, SKEWED), mass_kept=True, tight=tight)
        yield Row(mw, Cells(TABLE, SKEWED), padding=25.0, tight=tight)
        yield Row(mw, Cells(BIPARTITE, DENSE_EDGES), mass_kept=True, tight=tight)
        yield Row(mw, Cells(DIRECTED, FEW_EDGES), mass_kept=True, tight=tight)
        yield Row(mw, Cells(GRAPH, QUARTERS), mass_kept=True, tight=tight)
        yield Row(mw, Cells(GRAPH, QUARTERS), padding=3.0, tight=tight)
        yield Row(fk, Cells(TABLE, SKEWED), tight=tight)
        yield Row(fk, Cells(BIPARTITE, DENSE_EDGES), tight=tight)
        yield Row(fk, Cells(DIRECTED, FEW_EDGES), tight=tight)
        yield Row(fk, Cells(GRAPH, QUARTERS), tight=tight)
        yield Row(mw, Cells(RATINGS, STARS), mass_kept=True, tight=tight)
        yield Row(mw, Cells(RATINGS, STARS), padding=4.0, tight=tight)
        yield Row(fk, Cells(RATINGS, STARS), tight=tight)
        yield Row(fk, Cells(SIGNED, EITHER), tight=tight)
        yield from mirror_rows(step, tight)
        smw = {"construction": "smw", "step": step, "sparsity": 3}
        yield Row(smw, Elements(COUNTS), tight=tight)
        yield Row(smw, Elements(COUNTS), padding=9.0, tight=tight)
        for sampled in (False, True):
            # Its answers are medians of answers, which are those of no one hypothesis.
            median = {"construction": "median", "step": step, "sampled": sampled}
            three = Cells(LINE, THREE)
            yield Row(median, three, mass_kept=True, linear=False, queries=8, coarse=10.0)
            yield Row(median, three, padding=0.25, linear=False, queries=8, coarse=10.0)
    yield from refitted_rows()


def refitted_rows() -> Iterable[Row]:
    """The steps without a bound."""
    for step in ("full", "refit"):
        md = {"construction": "md", "step": step, "ball_p": "none", "p": 1.5}
        yield Row({"construction": "mw", "step": step}, Cells(TABLE, SKEWED), mass_kept=True)
        yield Row({"construction": "mw", "step": step}, Cells(GRAPH, QUARTERS), padding=3.0)
        yield Row({"construction": "fk", "step": step}, Cells(TABLE, SKEWED))
        yield Row({"construction": "fk", "step": step}, Cells(GRAPH, QUARTERS))
        yield Row({**md, "potential": "lp"}, Cells(TABLE, SKEWED))
        yield Row({**md, "potential": "group", "axis": "rows"}, Cells(BIPARTITE, DENSE_EDGES))
        yield Row({**md, "potential": "schatten"}, Cells(DIRECTED, FEW_EDGES))


def mirror_rows(step: str, tight: bool) -> Iterable[Row]:
    """Mirror descent in each geometry; without a ball, as a ball takes answers off the certified edge again."""
    md = {"construction": "md", "step": step}
    free = {**md, "ball_p": "none"}
    entropy = {**md, "potential": "entropy"}
    yield Row(entropy, Cells(TABLE, SKEWED), mass_kept=True, tight=tight)
    yield Row(entropy, Cells(GRAPH, QUARTERS), padding=3.0, tight=tight)
    for p in ("auto", 1.5):
        lp = {**free, "potential": "lp", "p": p}
        rows = {**free, "potential": "group", "axis": "rows", "p": p}
        columns = {**free, "potential": "group", "axis": "columns", "p": p}
        schatten = {**free, "potential": "schatten", "p": p}
        yield Row(lp, Cells(TABLE, SKEWED), tight=tight)
        yield Row(lp, Cells(GRAPH, QUARTERS), tight=tight)
        yield Row(rows, Cells(BIPARTITE, DENSE_EDGES), tight=tight)
        yield Row(columns, Cells(GRAPH, QUARTERS), tight=tight)
        # Undirected graphs are left out: in Schatten geometry the hypothesis has a diagonal, which is not exported.
        yield Row(schatten, Cells(TABLE, SKEWED), tight=tight)
        yield Row(schatten, Cells(DIRECTED, FEW_EDGES), tight=tight)
    yield Row({**md, "potential": "lp", "p": 1.5}, Cells(DIRECTED, FEW_EDGES))
    ball = {**md, "potential": "group", "axis": "rows", "p": 1.5, "ball_p": 1.25}
    yield Row(ball, Cells(BIPARTITE, DENSE_EDGES), norms={"group:rows:1.25": 6.0})


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
    if len(shape) == 1:
        found += [
            {"type": "predicate", "where": {"x": {"in": [0, 2]}}},
            {"type": "product", "weights": {"x": [-0.5, 0.25, 1.0]}},
        ]
    elif u.declared["kind"] == "table":
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
    """What an adversary chooses from: all predicates, all cuts, a few weighted forms."""
    subsets = [[[i for i in range(n) if mask >> i & 1] for mask in range(1, 2**n)] for n in u.space.shape]
    words: list[Words] = []
    for sides in itertools.product(*subsets):
        if u.declared["kind"] == "table":
            words.append(
                {"type": "predicate", "where": {n: {"in": side} for n, side in zip("xy", sides, strict=False)}}
            )
        elif not u.undirected or sides[0] <= sides[1]:
            words.append({"type": "cut", "left": sides[0], "right": sides[1]})
    compiled = {q.digest: q for q in map(u.compiled, [*words, *every_form(u)])}
    return [q for q in compiled.values() if not q.is_zero]


def counts(hypothesis: Hypothesis) -> np.ndarray:
    """All numbers of a hypothesis."""
    if isinstance(hypothesis, DenseHypothesis):
        return hypothesis.array
    return np.append(hypothesis.counts, hypothesis.other)


def played(row: Row, progress: float, rounds: int = 25) -> tuple[Construction, Any, list[Measurement]]:
    """A construction after updates on every form in turn, with measurements on either side of the truth."""
    construction = row.make(progress)
    state, taken = construction.start(), []
    forms = row.of.forms()
    for i in range(rounds):
        query = forms[i % len(forms)]
        value = row.of.truth(query) + ((i * 7) % 5 - 2) * 0.3
        if abs(value - construction.answer(state, query)) > 0.7:
            taken.append(Measurement(query, value, 0.6))
            construction.update(state, taken[-1])
    return construction, state, taken


# ---------------------------------------------------------------------------------------------------- the rules


@only(lambda r: r.linear)
def test_answers_are_those_of_the_exported_hypothesis(row: Row) -> None:
    """On every form, before and after updates. Would catch a representation that answers one form and exports
    another hypothesis, a diagonal that shows, and a stale marginal."""
    construction, state, taken = played(row, 1.0)
    assert taken
    for st in (construction.start(), state):
        h = construction.export(st)
        for query in row.of.forms():
            truth = row.of.counted(h, query)
            assert construction.answer(st, query) == pytest.approx(truth, rel=1e-9, abs=1e-9)


@only(lambda r: isinstance(r.of, Cells))
def test_the_hypothesis_has_the_shape_of_the_data(row: Row) -> None:
    """Finite, of the space's shape; of an undirected graph symmetric with zero diagonal."""
    construction, state, _ = played(row, 1.0)
    h = counts(construction.export(state))
    assert isinstance(row.of, Cells)
    assert h.shape == row.of.space.shape
    assert np.isfinite(h).all()
    if row.of.u.undirected:
        np.testing.assert_allclose(h, h.T, atol=1e-12)
        assert not np.diagonal(h).any()


@only(lambda r: r.simplex)
def test_the_mass_is_kept(row: Row) -> None:
    """Where the mass is a public fact the hypothesis keeps it through every update, and stays non-negative; where it
    is padded, it never passes it."""
    construction, state, _ = played(row, 1.0)
    for st in (construction.start(), state):
        h = construction.export(st)
        assert (counts(h) >= 0).all()
        if row.mass_kept:
            assert row.of.total(h) == pytest.approx(row.facts.mass, rel=1e-12)
        else:
            assert row.of.total(h) <= row.facts.mass * (1 + 1e-12)


def test_a_transcript_gives_one_state_bit_for_bit(row: Row) -> None:
    """What an audit does: the same measurements from the start. Would catch a state that depends on what else was
    asked in between, on an earlier session, or on the order of a dictionary."""
    construction, state, taken = played(row, 1.0)
    again = row.make(1.0)
    other = again.start()
    probe = row.of.forms()
    for measurement in taken:
        query = row.of.space.from_canonical(
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
    np.testing.assert_allclose(counts(again.export(third)), counts(again.export(other)), rtol=1e-12, atol=1e-12)


def test_a_state_survives_on_disk(row: Row, tmp_path: Path) -> None:
    """Dumped, written, read and loaded, at the start and after every update: what comes back answers with the same
    bits, and so after more updates. Would catch a number left out or told in decimals, an order of memory or of
    elements that is lost, a measurement that a refit forgets, arrays shared with the state that was dumped."""
    _, _, taken = played(row, 1.0)
    survives(lambda: row.make(1.0), [*taken, *taken[:3]], row.of.forms(), tmp_path)


@pytest.mark.parametrize("step", ["projection", "refit"])
@pytest.mark.parametrize("name", ["fk", "schatten"])
def test_a_state_of_low_rank_survives_on_disk(name: str, step: str, tmp_path: Path) -> None:
    """The same of matrices that are sums of few terms, asked for cuts alone, beyond the room that such a sum begins
    with. Would catch terms, bases or coefficients left out, and a sum that forgets its diagonal."""
    graph = universe({"name": "g", "kind": "graph", "nodes": 60, "budget": BUDGET})
    words = {
        "fk": {"construction": "fk"},
        "schatten": {"construction": "md", "potential": "schatten", "ball_p": "none"},
    }
    mechanism = Mechanism.model_validate({**words[name], "step": step})
    cuts: list[Words] = [{"type": "cut", "left": list(range(i, i + 9)), "right": [0, 3 * i, 59]} for i in range(1, 13)]
    queries = [graph.compiled(cut) for cut in cuts]
    taken = [Measurement(query, 5.0 + 3 * i, 0.5) for i, query in enumerate(queries)]
    kept = survives(lambda: construct(mechanism, graph.space, PublicFacts(300.0), 1.0, 100), taken, queries, tmp_path)
    assert not isinstance(getattr(kept, "form", kept).tensor, DenseTensor)


def survives(make: Callable[[], Construction], taken: list[Measurement], probe: list[Query], folder: Path) -> Any:
    """Hold a state that goes to the disk and back before each update against one that does not."""
    construction, files = make(), SnapshotFiles(folder, 1 << 30)
    kept, state = construction.start(), construction.start()
    for measurement in taken:
        dump = construction.dump(state)
        files.write("0" * 32, Snapshot(dump.words, dump.arrays))
        read = files.read("0" * 32)
        assert read is not None
        state = make().load(Dump(read.arrays, read.facts))
        assert construction.export(state).content() == construction.export(kept).content()
        assert [construction.answer(state, q) for q in probe] == [construction.answer(kept, q) for q in probe]
        construction.update(kept, measurement)
        construction.update(state, measurement)
    assert construction.export(state).content() == construction.export(kept).content()
    return kept


def test_a_new_start_is_untouched_by_an_old_session(row: Row) -> None:
    """Would catch starts that share an array."""
    construction = row.make(1.0)
    before = construction.export(construction.start()).content()
    state = construction.start()
    query = row.of.forms()[0]
    construction.update(state, Measurement(query, construction.answer(state, query) + 9.0, 1.0))
    assert construction.export(construction.start()).content() == before
    assert construction.export(state).content() != before


def test_an_update_moves_the_answer_towards_the_measurement_and_no_further(row: Row) -> None:
    """With projections onto the edge of what the measurement certifies, which lies between the present answer and the
    value. Would catch a sign, a step of the wrong query, an overshoot past the certified edge."""
    for query in row.of.forms():
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
    for query in row.of.forms():
        for off in (-0.4, 0.0, 0.4):
            construction.update(state, Measurement(query, construction.answer(state, query) + off, 0.5))
    assert construction.export(state).content() == before


@only(lambda r: r.bounded)
@pytest.mark.parametrize("offset", [1, 0, -1])
def test_the_update_bound_holds_against_the_worst_adversary(row: Row, offset: int) -> None:
    """Every round the query of the largest gap that is a hit, its measurement off by the whole noise bound: beyond the
    truth, on it, or short of it. With T = 3L hits are at true gaps above 2L and must stop before the bound does. Would
    catch a step of half the length, a bound for another norm, a mass that the data does not have."""
    noise = row.mass / row.coarse
    alpha = 2 * noise
    construction = row.make(alpha)
    bound = construction.bound(alpha)
    assert bound is not None
    state, updates = construction.start(), 0
    queries = row.of.worst()
    truths = [row.of.truth(q) for q in queries]
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


@only(lambda r: r.bounded)
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
    forms = row.of.forms()
    for i, query in enumerate(forms * 3):
        far = (-1) ** i * 1e6 * row.mass
        construction.update(state, Measurement(query, far, 1.0))
        assert np.isfinite(counts(construction.export(state))).all()
    if row.tight:
        query = forms[0]
        target = row.mass / 3
        for value in (target, target):
            construction.update(state, Measurement(query, value, 0.0))
        assert construction.answer(state, query) == pytest.approx(target, rel=1e-5, abs=1e-5)
