"""The number of updates never exceeds ``bound(alpha)``: held against adversaries, and against the proof, step by step.

A bound is D0 divided by what an update lowers the distance D to the data by, and most data and most adversaries leave
most of it unused. So it is not enough that updates end in time: every single update must lower D by what the proof
counts on (:mod:`tests.questions.proofs`), the bound must pay for the data that need most, and for each construction
there are data and queries made so that the number of updates itself comes near the bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from app.constructions import frieze_kannan, median, mirror_descent, multiplicative_weights, sparse_weights
from app.constructions.base import Construction, ListedHypothesis, MeasuredQuery, certified
from app.constructions.mirror.schatten import SchattenForm
from app.spaces.query import Query
from tests.kit.strategies import BUDGET, Words, universe
from tests.questions.proofs import Normed, Slots, Update, proof_of
from tests.questions.rows import (
    BIPARTITE,
    DIRECTED,
    GRAPH,
    RATINGS,
    ROWS,
    SIGNED,
    SPACES,
    TABLE,
    Cells,
    Elements,
    Matrix,
    Row,
    Teller,
    only,
    signed_product,
    spread,
)

pytestmark = pytest.mark.contract

#: Distances are sums and differences of float64, good to this part of the first of them.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Round:
    """A query that is a hit: its measurement, and the true and the certified gap to the present answer."""

    measurement: MeasuredQuery
    gap: float
    certified: float
    edge: float


def smallest(gaps: Any) -> int:
    """The place of the smallest gap; of those that are equal but for rounding, the first."""
    return int(np.argmin(np.round(gaps / gaps.max(), 9)))


def largest(gaps: Any) -> int:
    """The place of the largest gap, likewise."""
    return int(np.argmax(np.round(gaps / gaps.max(), 9)))


#: An adversary: the query to ask next with its true gap (signed), given the construction and its state; None where no
#: query that it knows is a hit, that is off by more than the least hit.
Adversary = Callable[[Construction, Any, float], tuple[Query, float] | None]


def among(row: Row, queries: list[Query], choose: Callable[[Any], int] = largest) -> Adversary:
    """Looks through all queries, and chooses from the gaps that are hits."""
    teller, truths = Teller(row, queries), np.array([row.of.truth(query) for query in queries])

    def look(construction: Construction, state: Any, least: float) -> tuple[Query, float] | None:
        if row.single:
            answers = teller(construction, state)
        else:
            answers = np.array([construction.answer(state, query) for query in queries])
        gaps = truths - answers
        hits = np.flatnonzero(np.abs(gaps) > least)
        if not len(hits):
            return None
        at = int(hits[choose(np.abs(gaps[hits]))])
        return queries[at], float(gaps[at])

    return look


def siege(
    row: Row, construction: Construction, state: Any, adversary: Adversary, noise: float, offset: float
) -> Iterator[Round]:
    """Rounds of T = 3L against an adversary who knows data and hypothesis, until no query is a hit any more.

    Each measurement is off by ``offset`` noise bounds: beyond the truth, on it or short of it. Hits are at true gaps
    above 2L = alpha. The caller makes the update before it asks for the next round.
    """
    while (found := adversary(construction, state, (3 - offset) * noise)) is not None:
        query, gap = found
        present, truth = construction.answer(state, query), row.of.truth(query)
        # What is asked and what is exported are one hypothesis, in every state that a siege comes through.
        assert truth - present == pytest.approx(gap, rel=1e-9, abs=1e-9 * row.of.size)
        side = math.copysign(1.0, gap)
        measurement = MeasuredQuery(query, float(truth + side * offset * noise), noise)
        edge = measurement.value - side * noise
        yield Round(measurement, abs(truth - present), side * (edge - present), edge)


def besieged(row: Row, adversary: Adversary, queries: list[Query], noise: float, offset: float) -> float:
    """Play a siege to its end and hold every update against the proof; the part of the bound that was used.

    Args:
        row: mechanism and data.
        adversary: who asks.
        queries: what it may ask for, of which the proof takes the largest dual norm.
        noise: L.
        offset: how many L measurements are beyond the truth.
    """
    alpha = 2 * noise
    construction = row.make(alpha)
    bound = construction.bound(alpha)
    assert bound is not None
    proof = proof_of(row, alpha, _final(row, adversary, noise, offset))
    least = proof.least(alpha, queries)
    state, updates = construction.start(), 0
    first = before = proof.distance(construction, state)
    assert first / least <= bound * (1 + ROUNDING), "the bound does not pay for these data"
    for round in siege(row, construction, state, adversary, noise, offset):
        updates += 1
        assert updates <= bound, "more updates than the bound"
        construction.update(state, round.measurement)
        after = proof.distance(construction, state)
        owed = proof.owed(Update(round.measurement.query, round.gap, round.certified, alpha))
        assert owed >= least * (1 - ROUNDING), "the proof counts on less than the bound does"
        assert before - after >= owed - ROUNDING * (first + owed), "an update lowers the distance by too little"
        assert after >= -ROUNDING * first
        if row.tight and not row.simplex:
            now = construction.answer(state, round.measurement.query)
            assert now == pytest.approx(round.edge, rel=1e-7, abs=1e-7 * row.of.size)
        before = after
    return updates / bound


def _final(row: Row, adversary: Adversary, noise: float, offset: float) -> tuple[str, ...]:
    """The elements that have slots in the end: the same siege, played for them alone."""
    if not isinstance(row.of, Elements):
        return ()
    construction = row.make(2 * noise)
    state = construction.start()
    for round in siege(row, construction, state, adversary, noise, offset):
        construction.update(state, round.measurement)
    hypothesis = construction.export(state)
    assert isinstance(hypothesis, ListedHypothesis)
    return hypothesis.elements


@pytest.mark.slow
@only(lambda r: r.bounded)
def test_every_update_against_the_worst_adversary_pays_what_the_bound_counts_on(row: Row) -> None:
    """Every round the query of the largest gap of all, found by brute force, its measurement off by the whole noise
    bound, beyond the truth. Would catch a step of half the length, a step along another query, a bound for another norm
    or too small for these data, a mass that the data does not have, an answer that is not the exported hypothesis'."""
    queries = row.of.worst()
    assert besieged(row, among(row, queries), queries, row.of.size / row.coarse, 1) > 0


@pytest.mark.slow
@spread(lambda r: r.bounded)
@pytest.mark.parametrize("offset", [0, -1])
def test_every_update_of_a_smaller_measurement_pays_what_the_bound_counts_on(row: Row, offset: int) -> None:
    """The same of measurements on the truth, and short of it: less is certified. Would catch a step that counts on
    more than what is."""
    queries = row.of.worst()
    assert besieged(row, among(row, queries), queries, row.of.size / row.coarse, offset) > 0


@pytest.mark.slow
@only(lambda r: r.bounded)
def test_every_update_against_the_subtlest_adversary_pays_what_the_bound_counts_on(row: Row) -> None:
    """Every round the query that is just a hit: many more kinds of queries than the worst ones, each at a gap near
    alpha, where nothing is paid beyond what the proof counts on. Would catch a rate that does not fit the query's own
    norm."""
    queries = row.of.worst()
    assert besieged(row, among(row, queries, smallest), queries, row.of.size / row.coarse, 1) > 0


@pytest.mark.slow
@only(lambda r: r.bounded and r.construction == "median")
def test_a_database_near_the_data_is_never_dropped(row: Row) -> None:
    """Why the set can be halved no more often than the bound says: of its first members one answers all queries within
    alpha, and after every update such a one is there. Would catch an update that drops the right side, or more than
    the measurement rules out."""
    of, noise = row.of, row.of.size / row.coarse
    assert isinstance(of, Cells)
    queries, alpha = of.worst(), 2 * noise
    construction = row.make(alpha)
    state = construction.start()
    weights, truths = np.stack([of.weights(query) for query in queries]), np.array([of.truth(q) for q in queries])

    def nearest() -> float:
        members = construction.dump(state).arrays["members"].astype(np.float64)
        shares = members[: len(of.u.cells)] / members.sum(axis=0)
        return float(np.abs(weights @ shares * float(row.facts.mass or 0) - truths[:, None]).max(axis=0).min())

    assert nearest() < alpha
    for offset in (1, 0, -1):
        state = construction.start()
        for round in siege(row, construction, state, among(row, queries), noise, offset):
            construction.update(state, round.measurement)
            assert nearest() < alpha


# ---------------------------------------------------------------------------------- the data that need the most


def _hadamard(rows: int, columns: int, size: int) -> dict[tuple[int, ...], int]:
    """Entries of one size whose rows are orthogonal (columns a power of two)."""
    return {(i, j): size * (-1) ** (i & j).bit_count() for i in range(rows) for j in range(columns)}


#: On each space: all of the mass in one cell, or entries of the largest size that are as unlike each other as can be.
EXTREMES = {
    of.name: of
    for of in (
        Cells(TABLE, {(1, 2): 40}),
        Cells(BIPARTITE, {(1, 2): 1}),
        Cells(DIRECTED, {(2, 1): 1}),
        Cells(GRAPH, {(1, 3): 4}),
        Cells(RATINGS, {(2, 1): 12}),
        Cells(SIGNED, _hadamard(3, 4, 12)),
        Elements({"the": 40}),
    )
}


def extreme(row: Row) -> Row:
    """A row's mechanism on the data of its space that need the most updates; norms that were bought are exact."""
    if row.construction == "median":
        return row
    # Where the mass is padded the data fill all but a trace of it.
    moved = replace(row, of=EXTREMES[row.of.name], padding=2.0**-20 if row.padding else 0.0)
    if not row.norms:
        return moved
    (name,) = row.norms
    proof = Normed(moved)
    assert isinstance(moved.of, Cells)
    return replace(moved, norms={name: proof.norm(proof.seen(moved.of.vector), float(name.split(":")[-1]))})


def paid(row: Row) -> float:
    """The part of the bound that the proof needs: D0, over what an update lowers it by."""
    row = extreme(row)
    alpha = 2 * row.of.size / row.coarse
    construction = row.make(alpha)
    bound = construction.bound(alpha)
    assert bound is not None
    queries = row.of.worst()
    final = ("the",) if isinstance(row.of, Elements) else ()
    proof = proof_of(row, alpha, final)
    needed = proof.distance(construction, construction.start()) / proof.least(alpha, queries)
    assert needed <= bound * (1 + ROUNDING)
    return needed / bound


@pytest.mark.slow
@only(lambda r: r.bounded)
def test_the_bound_is_what_the_data_that_need_most_need(row: Row) -> None:
    """D0, computed from data that are as far from the start as the public facts allow, over what the proof lowers it
    by: the bound is no smaller, and it is that number itself, but for the parts that are stated. Would catch a bound
    that is off by a factor, on either side, another norm's, or one that forgets the slack cell."""
    space = row.of.space
    part = 1 - 1e-5
    if row.construction == "smw":
        # The bound has ln s + 1 where D0 is ln s.
        slots = Slots(extreme(row), 2 * row.of.mass / row.coarse, ()).slots
        part *= math.log(slots) / (math.log(slots) + 1)
    elif row.mechanism.get("potential") == "group" and space.symmetric:
        # The largest dual norm counts the diagonal, which no query weighs.
        part *= (space.shape[0] - 1) / space.shape[0]
    assert paid(row) >= part


# ------------------------------------------------------------------------------- instances that are tight


def walsh(size: int) -> list[list[float]]:
    """Orthogonal vectors of signs; ``size`` is a power of two."""
    return [[float((-1) ** (i & j).bit_count()) for j in range(size)] for i in range(size)]


EIGHT = universe({"name": "8", "kind": "table", "attributes": [{"name": "x", "size": 8}], "budget": BUDGET})
SIXTEEN = universe(
    {"name": "16", "kind": "table", "attributes": [{"name": n, "size": 4} for n in "xy"], "budget": BUDGET}
)
PAIR = universe({"name": "2", "kind": "table", "attributes": [{"name": "x", "size": 2}], "budget": BUDGET})


@dataclass(frozen=True)
class Tight:
    """A game whose number of updates is a large part of its bound.

    ``most`` is the largest true answer over alpha; the adversary asks for the least of hits, with measurements a whole
    noise bound beyond the truth.
    """

    row: Row
    queries: list[Query]
    most: float
    part: float


def tight() -> Iterator[Tight]:
    """All records in one cell (of one element), asked by products of signs, each of which answers all of them.

    - **fk**: the queries are orthogonal and of the largest norm, so none learns of another and |X| of them use all of
      ``||x||^2 |X|/alpha^2 = |X|``.
    - **entropy**: each of r independent bits is one update, of a bound of ``2 r ln 2``; GRU11's shorter step takes two
      now and then, of ``4 r ln 2``.
    - **norms**: a first step from zero reaches (p-1) of the way that 2-strong convexity allows for (equality is at
      p = 2, where it is fk); the parts grow with p.
    - **slots**: as entropy, but most of ``ln s`` is the way from all slots to the elements asked for.
    - **median**: with two cells a set is a range of counts, which halving searches down to a width of alpha, while the
      set has about as many members between two answers that are alpha apart: less than half of the bound.
    """
    mass = Cells(EIGHT, {(0,): 1000})
    line = [EIGHT.compiled(signed_product(EIGHT, [w])) for w in walsh(8)]
    corner = Cells(SIXTEEN, {(0, 0): 1000})
    blocks = [SIXTEEN.compiled(signed_product(SIXTEEN, [u, v])) for u in walsh(4) for v in walsh(4)]
    # Signs of full rank beside those of rank one.
    bent = [np.outer(u, v) * walsh(4) for u in walsh(4) for v in walsh(4)]
    signs = [*blocks, *(SIXTEEN.compiled({"type": "dense", "weights": f.tolist()}) for f in bent)]
    md = {"construction": "md", "ball_p": "none"}
    for step in ("projection", "paper"):
        paper = step == "paper"
        yield Tight(Row({"construction": "fk", "step": step}, mass), line, 1.0001, 0.99)
        yield Tight(Row({"construction": "fk", "step": step}, corner), blocks, 1.0001, 0.99)
        yield Tight(
            Row({"construction": "mw", "step": step}, mass), line, 1.1 if paper else 1.0001, 0.39 if paper else 0.72
        )
        yield Tight(
            Row({"construction": "mw", "step": step}, mass, padding=1.0),
            line,
            1.5 if paper else 1.0001,
            0.4 if paper else 0.68,
        )
        yield Tight(Row({"construction": "md", "potential": "entropy", "step": step}, mass), line, 1.0001, 0.72)
        for p, part in ((1.9, 0.72), (1.5, 0.49), ("auto", 0.72)):
            lp = {**md, "potential": "lp", "p": p, "step": step}
            yield Tight(Row(lp, mass), line, 1.0001 if p == 1.5 else 1.1, part)
        half = (1.5, 1.25, 0.47, 0.37) if paper else (1.5, 1.1, 0.36, 0.28)
        for p, most, group, schatten in ((1.9, 1.1, 0.69, 0.68), half):
            for axis in ("rows", "columns"):
                rows = {**md, "potential": "group", "axis": axis, "p": p, "step": step}
                yield Tight(Row(rows, corner), signs, most, group)
            yield Tight(Row({**md, "potential": "schatten", "p": p, "step": step}, corner), signs, most, schatten)
        names = [f"e{i}" for i in range(16)]
        one = Elements({"e0": 1000})
        listed = [one.compiled({"type": "elements", "weights": dict(zip(names, w, strict=True))}) for w in walsh(16)]
        smw = {"construction": "smw", "step": step, "sparsity": 16}
        yield Tight(Row(smw, one), listed, 1.25 if paper else 1.2, 0.35 if paper else 0.25)
        cells = [PAIR.compiled({"type": "predicate", "where": {"x": {"equals": i}}}) for i in (0, 1)]
        databases = {"construction": "median", "step": step, "sampled": False}
        found = {(0,): 3} if paper else {(0,): 1, (1,): 2}
        yield Tight(Row(databases, Cells(PAIR, found), queries=2), cells, 400 if paper else 10, 0.4 if paper else 0.24)


TIGHT = list(tight())


@pytest.mark.parametrize("game", TIGHT, ids=[f"{g.row.name}-{g.most}" for g in TIGHT])
def test_a_tight_game_uses_the_stated_part_of_its_bound(game: Tight) -> None:
    """Would catch a bound that is too small by the inverse of the part, whatever the proof is believed to say."""
    noise = game.row.of.mass / game.most / 2
    assert besieged(game.row, among(game.row, game.queries, smallest), game.queries, noise, 1) >= game.part


# ------------------------------------------------------------------- matrices too large for all of their queries


def spectral(row: Row) -> Adversary:
    """Looks at the top singular vectors of x - h: of each pair the cuts by sign and by size, and the signs themselves.

    ``|A(S,T)| <= sigma sqrt(|S||T|)``, and the best cut is a constant away from what the vectors of the largest
    values give: so do Frieze and Kannan look for cuts.
    """
    of = row.of
    assert isinstance(of, Matrix)

    def look(construction: Construction, state: Any, least: float) -> tuple[Query, float] | None:
        left, _, right = np.linalg.svd(of.spread(of.vector - of.listed(construction.export(state))))
        best: tuple[Query, float] | None = None
        for query in {q.digest: q for k in range(2) for q in map(of.ask, rounded(of, left[:, k], right[k]))}.values():
            gap = of.truth(query) - construction.answer(state, query)
            if not query.is_zero and abs(gap) > max(least, 0.0 if best is None else abs(best[1])):
                best = query, gap
        return best

    return look


def rounded(of: Cells, u: Any, v: Any) -> Iterator[Words]:
    """Cuts and products of signs near ``u v'``."""
    for a, b in itertools.product((u, -u), (v, -v)):
        for level in (0.0, 0.5):
            sides = [np.flatnonzero(side > level * np.abs(side).max()).tolist() for side in (a, b)]
            if all(sides):
                yield {"type": "cut", "left": sides[0], "right": sides[1]}
    if not of.u.undirected:
        yield {
            "type": "rank_one",
            "left": np.where(u < 0, -1.0, 1.0).tolist(),
            "right": np.where(v < 0, -1.0, 1.0).tolist(),
        }


def large() -> Iterator[Row]:
    """Matrices of 24 by 30, in part of low rank, in part random: every space that has them, every construction."""
    random = np.random.default_rng(24)
    entries = {"kind": "matrix", "rows": 24, "columns": 30, "upper": 1, "grid": 0.125, "budget": BUDGET}
    declared = [
        {"name": "B", "kind": "bipartite", "left": 24, "right": 30, "budget": BUDGET},
        {"name": "D", "kind": "graph", "nodes": 24, "directed": True, "budget": BUDGET},
        {"name": "G", "kind": "graph", "nodes": 24, "budget": BUDGET},
        {"name": "R", "lower": 0, **entries},
        {"name": "S", "lower": -1, **entries},
    ]
    for u in map(universe, declared):
        i, j = np.indices(u.space.shape)
        dense = np.where((i % 3 == 0) & (j % 3 == 0), 0.9, 0.15) > random.random(u.space.shape)
        sign = np.where((i + j) % 4 < 2, 1, -1) if u.space.signed else 1
        units = (dense * sign) << u.space.data_bits
        of = Matrix(u, {c: int(units[c]) for c in u.cells if u.declared["kind"] != "graph" or c[0] != c[1]})
        md = {"construction": "md", "ball_p": "none"}
        for step in ("projection", "paper"):
            if not u.space.signed:
                yield Row({"construction": "mw", "step": step}, of, mass_kept=True)
                yield Row({"construction": "mw", "step": step}, of, padding=10.0)
            yield Row({"construction": "fk", "step": step}, of)
            yield Row({**md, "potential": "lp", "step": step}, of)
            yield Row({**md, "potential": "group", "axis": "rows", "step": step}, of)
            yield Row({**md, "potential": "group", "axis": "columns", "step": step}, of)
            yield Row({**md, "potential": "schatten", "step": step}, of)


LARGE = list(large())
MATRICES = [of for of in SPACES if of.declared["kind"] != "table"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "offset"),
    [(row, (1, -1)[place % 2]) for place, row in enumerate(LARGE)],
    ids=[row.name for row in LARGE],
)
def test_every_update_against_singular_vectors_pays_what_the_bound_counts_on(row: Row, offset: int) -> None:
    """The same on matrices that have too many queries to be looked through. Would catch what shows only where there is
    room for many updates: sums of terms that drift, a basis that is left, a rate that is right for small matrices."""
    of = row.of
    assert isinstance(of, Matrix)
    rows, columns = (list(range(length)) for length in of.space.shape)
    # No cut and no product of signs has a larger dual norm than one of these.
    queries = [of.ask({"type": "cut", "left": left, "right": columns}) for left in (rows, rows[:1])]
    if not of.u.undirected:
        queries.append(of.ask({"type": "rank_one", "left": [1.0] * 23 + [-1.0], "right": [1.0] * len(columns)}))
    # Where measurements fall short fewer queries are hits: less noise leaves room for them.
    assert besieged(row, spectral(row), queries, of.size / (9 if offset > 0 else 12), offset) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "geometry", [{"construction": "fk"}, {"construction": "md", "potential": "schatten", "p": 1.5}]
)
@pytest.mark.parametrize("of", MATRICES, ids=[of.name for of in MATRICES])
def test_singular_vectors_find_queries_about_as_bad_as_the_worst(of: Cells, geometry: dict[str, Any]) -> None:
    """On matrices small enough for brute force, in every state of a siege: never less than a quarter of the largest gap
    of all, and more than half of it on average. Would catch an adversary that finds nothing, whom every bound
    survives."""
    row = Row({**geometry, "step": "projection"}, Matrix(of.u, of.data))
    noise = of.size / 40
    construction = row.make(2 * noise)
    state, worst, parts = construction.start(), among(row, of.worst()), []
    for round in siege(row, construction, state, worst, noise, 0):
        found = spectral(row)(construction, state, 0.0)
        assert found is not None
        parts.append(abs(found[1]) / round.gap)
        construction.update(state, round.measurement)
    assert min(parts) > 0.25
    assert sum(parts) / len(parts) > 0.5


# --------------------------------------------------------------------------------------------- planted bugs


def rules(row: Row) -> None:
    """All that is held of one row above."""
    queries = row.of.worst()
    for offset in (1, 0, -1):
        besieged(row, among(row, queries), queries, row.of.size / row.coarse, offset)
    besieged(row, among(row, queries, smallest), queries, row.of.size / row.coarse, 1)
    paid(row)


def scaled(cls: type, name: str, factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Plant a method whose result is off by a factor."""
    right, kept_static = getattr(cls, name), isinstance(cls.__dict__[name], staticmethod)

    def wrong(*arguments: Any) -> Any:
        return factor * right(*arguments)

    return lambda patch: patch.setattr(cls, name, staticmethod(wrong) if kept_static else wrong)


def halfway(patch: pytest.MonkeyPatch) -> None:
    """Every projection goes half of the way."""
    for module in (frieze_kannan, mirror_descent, multiplicative_weights):
        patch.setattr(module, "target_of", lambda m, present, step: (present + certified(m, present)) / 2)
    patch.setattr(sparse_weights, "certified", lambda m, present: (present + certified(m, present)) / 2)


def now_and_then(patch: pytest.MonkeyPatch) -> None:
    """One update in five is lost."""
    calls = itertools.count()
    for cls in (frieze_kannan.FriezeKannan, mirror_descent.MirrorDescent, multiplicative_weights.MultiplicativeWeights):

        def update(self: Any, state: Any, m: MeasuredQuery, right: Any = cls.update) -> None:
            if next(calls) % 5 != 4:
                right(self, state, m)

        patch.setattr(cls, "update", update)


def ties_stay(patch: pytest.MonkeyPatch) -> None:
    """The databases at the median are kept with the half."""

    def update(self: Any, state: Any, m: MeasuredQuery) -> None:
        totals, _ = self._totals(state, m.query)
        side = 1 if m.value > self.answer(state, m.query) else -1
        state.members = state.members[:, side * (2 * totals - median.twice_median(totals)) >= 0]

    patch.setattr(median.Median, "update", update)


def no_slack(patch: pytest.MonkeyPatch) -> None:
    """A padded mass has a slack cell that the bound does not count."""
    weights = multiplicative_weights.MultiplicativeWeights
    patch.setattr(weights, "dimension", property(lambda self: self.space.size))


def one_half(patch: pytest.MonkeyPatch) -> None:
    """Of an undirected graph the norm is taken of one half of the matrix."""
    right = mirror_descent.norm_bound

    def wrong(space: Any, facts: Any, norm: Any) -> float | None:
        found = right(space, facts, norm)
        return None if found is None else found / (2 ** (1 / norm.p) if space.symmetric else 1.0)

    patch.setattr(mirror_descent, "norm_bound", wrong)


def another_query(patch: pytest.MonkeyPatch) -> None:
    """A fixed step is as long as if every query had the largest dual norm."""
    patch.setattr(mirror_descent.MirrorDescent, "_rate", lambda self, progress, zeta: self.step_size(progress))
    patch.setattr(
        mirror_descent.MirrorDescent, "step_size", lambda self, progress: 2 * progress / self.form.largest_zeta() ** 2
    )


MIRROR, WEIGHTS = mirror_descent.MirrorDescent, multiplicative_weights.MultiplicativeWeights
CUTS, SLOTS, SET = frieze_kannan.FriezeKannan, sparse_weights.SparseWeights, median.Median
_MD = ("md-{}-lp-1.5-{}", "md-{}-group-rows-1.5-{}", "md-{}-schatten-1.5-{}")

PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], list[str]]] = {
    "half a rate of md": (scaled(MIRROR, "_rate", 0.5), [n.format("paper", of) for n in _MD for of in "tbdgrs"]),
    "an eighth of md's bound": (
        scaled(MIRROR, "bound", 1 / 8),
        [n.format(step, of) for n in _MD for of in "tbdgrs" for step in ("paper", "projection")],
    ),
    "two thirds of md's bound": (
        scaled(MIRROR, "bound", 2 / 3),
        [_MD[0].format("paper", "t"), _MD[2].format("paper", "g")],
    ),
    "a rate for the largest query": (another_query, [n.format("paper", of) for n in _MD for of in "tg"]),
    "half a rate of mw": (
        scaled(WEIGHTS, "_rate", 0.5),
        ["mw-paper-t", "mw-paper-g", "md-paper-entropy-t", "mw-paper-r-padded"],
    ),
    "half a step of mw": (
        scaled(WEIGHTS, "step_size", 0.5),
        ["mw-paper-t", "mw-paper-b", "mw-paper-d", "mw-paper-t-padded"],
    ),
    "an eighth of mw's bound": (
        scaled(WEIGHTS, "bound", 1 / 8),
        ["mw-paper-t", "mw-projection-g", "md-projection-entropy-r"],
    ),
    "half of mw's bound": (
        scaled(WEIGHTS, "bound", 0.5),
        ["mw-paper-t", "mw-projection-t", "md-paper-entropy-r-padded"],
    ),
    "a slack cell that is not counted": (no_slack, ["mw-paper-t-padded", "mw-projection-g-padded"]),
    "half a step of fk": (scaled(CUTS, "step_size", 0.5), ["fk-paper-t", "fk-paper-g", "fk-paper-s"]),
    "an eighth of fk's bound": (
        scaled(CUTS, "bound", 1 / 8),
        [f"fk-{s}-{of}" for s in ("paper", "projection") for of in "tbdgrs"],
    ),
    "half a step of smw": (scaled(SLOTS, "step_size", 0.5), ["smw-paper-3-w", "smw-paper-3-w-padded"]),
    "an eighth of smw's bound": (scaled(SLOTS, "bound", 1 / 8), ["smw-paper-3-w", "smw-projection-3-w"]),
    "an eighth of the median's bound": (
        scaled(SET, "bound", 1 / 8),
        ["median-paper-False-l", "median-projection-False-p"],
    ),
    "ties that stay": (ties_stay, ["median-paper-False-l", "median-paper-False-q"]),
    "half of the way": (
        halfway,
        ["fk-projection-t", "mw-projection-b", "smw-projection-3-w", *(n.format("projection", "g") for n in _MD)],
    ),
    "lost updates": (now_and_then, ["fk-projection-b", "fk-paper-r", "mw-paper-d", "md-projection-lp-1.5-s"]),
    "half of an undirected graph's norm": (one_half, ["md-paper-group-rows-1.5-g", "md-projection-schatten-1.5-g"]),
    "half of a largest dual norm": (
        scaled(SchattenForm, "largest_zeta", 0.5),
        ["md-paper-schatten-1.5-g", "md-paper-schatten-1.5-b"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "name"), [(plant, name) for plant, (_, names) in PLANTED.items() for name in names])
def test_a_planted_bug_is_found(plant: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the bugs that the rules are there for, put into the code: the rules hold without it, and not with it."""
    (row,) = [r for r in ROWS if r.name == name]
    PLANTED[plant][0](monkeypatch)
    with pytest.raises(AssertionError):
        rules(row)
