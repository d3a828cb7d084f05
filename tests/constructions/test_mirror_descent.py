"""Mirror descent against a machine that knows nothing but the definition, and against full decompositions.

The machine keeps theta as a plain array, takes the query's weights cell by cell, and makes every step with the
potentials and projections of the geometry, which have oracles of their own. Multiplicative weights and
Frieze/Kannan are held against the same machine.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from app.constructions.base import Construction, MeasuredQuery, PublicFacts
from app.constructions.mechanism import parse_mechanism
from app.constructions.mirror.form import matrix_of
from app.constructions.mirror.schatten import CoreTensor, SchattenForm
from app.constructions.mirror_descent import MirrorDescent, norm_bound
from app.constructions.registry import construct, unfit
from app.declarations.errors import InvalidRequest
from app.geometry.norms import Norm, conjugate, vector_norm
from app.spaces.errors import InvalidQuery
from app.spaces.queries.cells import dense_of
from app.spaces.queries.linear import CompiledPair
from app.spaces.query import Query
from app.spaces.tensor import DenseTensor
from tests.constructions.potentials import (
    Entropy,
    Group,
    Potential,
    Power,
    Schatten,
    SquaredNorm,
    onto_ball,
    onto_halfspace,
)
from tests.kit.strategies import BUDGET, Universe, Words, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 5}, {"name": "y", "size": 4}],
        "budget": BUDGET,
    }
)
CUBE = universe(
    {
        "name": "c",
        "kind": "table",
        "attributes": [{"name": "x", "size": 3}, {"name": "y", "size": 4}, {"name": "z", "size": 2}],
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 7, "right": 9, "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 8, "budget": BUDGET})
WEIGHTED = universe({"name": "w", "kind": "graph", "nodes": 6, "weighted": True, "grid": 0.25, "budget": BUDGET})
MATRIX = universe(
    {"name": "m", "kind": "matrix", "rows": 6, "columns": 5, "lower": -1, "upper": 2, "grid": 0.25, "budget": BUDGET}
)

LP: Words = {"construction": "md", "potential": "lp"}
ROWS: Words = {"construction": "md", "potential": "group", "axis": "rows"}
COLUMNS: Words = {"construction": "md", "potential": "group", "axis": "columns", "p": 1.4}
SCHATTEN: Words = {"construction": "md", "potential": "schatten"}
CASES = [
    *[(u, LP) for u in (TABLE, CUBE, BIPARTITE, GRAPH, MATRIX)],
    (TABLE, {**LP, "p": 1.001}),
    (GRAPH, {**LP, "p": 2}),
    *[(u, m) for m in (ROWS, COLUMNS, SCHATTEN) for u in (TABLE, BIPARTITE, GRAPH, WEIGHTED, MATRIX)],
    (BIPARTITE, {**SCHATTEN, "p": 1.5}),
    (BIPARTITE, {**ROWS, "p": 2}),
]


#: A case of every form of the potentials, each on a space of another kind.
FORMS = [(TABLE, LP), (GRAPH, ROWS), (BIPARTITE, COLUMNS), (WEIGHTED, SCHATTEN), (MATRIX, SCHATTEN), (GRAPH, LP)]


def name(case: Any) -> str:
    if isinstance(case, str):
        return case
    if isinstance(case, Universe):
        return str(case.declared["name"])
    return "-".join(str(v) for k, v in case.items() if k != "construction")


def ask(u: Universe, rng: np.random.Generator, forms: tuple[str, ...]) -> Query:
    """A random query of one of the forms that the space takes."""
    shape = u.space.shape
    form = forms[rng.integers(len(forms))]
    low = 0.0 if u.undirected else -1.0
    if form == "product" and u.declared["kind"] == "table":
        names = [a["name"] for a in u.declared["attributes"]]
        chosen = [i for i in range(len(names)) if rng.random() < 0.8] or [0]
        weights = {
            names[i]: (
                rng.integers(0, 2, shape[i]).astype(float) if rng.random() < 0.5 else rng.uniform(-1, 1, shape[i])
            ).tolist()
            for i in chosen
        }
        return u.compiled({"type": "product", "weights": weights})
    if form == "product" and rng.random() < 0.6:
        sides = {s: np.flatnonzero(rng.random(n) < 0.5).tolist() for s, n in zip(("left", "right"), shape, strict=True)}
        return u.compiled({"type": "cut", **sides})
    if form == "product":
        sides = {s: rng.uniform(low, 1, n).tolist() for s, n in zip(("left", "right"), shape, strict=True)}
        return u.compiled({"type": "rank_one", **sides})
    if form == "sparse":
        cells = [u.cells[i] for i in rng.choice(len(u.cells), 3, replace=False)]
        return u.compiled(
            {"type": "sparse", "indices": [list(c) for c in cells], "weights": rng.uniform(-1, 1, 3).tolist()}
        )
    weights = rng.uniform(-1, 1, shape)
    if u.undirected:
        weights = np.triu(weights, 1) + np.triu(weights, 1).T
    return u.compiled({"type": "dense", "weights": weights.tolist()})


def data(u: Universe, rng: np.random.Generator) -> np.ndarray:
    """Random data of the space, in counts."""
    kind = u.declared["kind"]
    if kind == "table":
        return rng.poisson(3.0, u.space.shape).astype(float)
    if kind == "matrix":
        return rng.integers(-4, 9, u.space.shape) / 4.0
    x = (
        rng.integers(0, 5, u.space.shape) / 4.0
        if u.space.data_bits
        else rng.integers(0, 2, u.space.shape).astype(float)
    )
    return np.triu(x, 1) + np.triu(x, 1).T if u.undirected else x


@dataclass
class Machine:
    """JT12's algorithm 2 and its projection, by definition: whole arrays, no structure used."""

    u: Universe
    potential: Potential
    step: str
    progress: float
    mass: float = 0.0
    slack: bool = False
    ball: tuple[float, float] | None = None
    zeta: float | None = None

    def __post_init__(self) -> None:
        size = self.u.space.size if isinstance(self.potential, Entropy) else self.u.space.shape
        if isinstance(self.potential, Entropy):
            size += int(self.slack)
        self.theta = np.zeros(size)
        self._told: dict[Query, np.ndarray] = {}

    def f(self, query: Query) -> np.ndarray:
        """The query's weights, as the potential's inner product takes them."""
        if query not in self._told:
            self._told[query] = self._told_by(query)
        return self._told[query]

    def _told_by(self, query: Query) -> np.ndarray:
        weights = {cell: float(w) for cell, w in self.u.weights(query).items()}
        if isinstance(self.potential, Entropy):
            return np.array([weights[c] for c in self.u.cells] + [0.0] * self.slack)
        full = np.zeros(self.u.space.shape)
        for cell, weight in weights.items():
            full[cell] = weight
            if self.u.undirected:
                full[cell[::-1]] = weight
        if self.u.undirected and not isinstance(self.potential, Power):
            if isinstance(self.potential, Schatten) and isinstance(query, CompiledPair):
                s, t, w = (a.real_vector() for a in (query.left, query.right, query.both))
                full = np.outer(s, t) + np.outer(t, s) - np.outer(w, w)
            full = full / 2
        return full

    @property
    def h(self) -> np.ndarray:
        return self.potential.inverse(self.theta)

    def answer(self, query: Query) -> float:
        return self.potential.inner(self.f(query), self.h)

    def update(self, measurement: MeasuredQuery) -> None:
        f, present = self.f(measurement.query), self.answer(measurement.query)
        zeta = self.zeta or self.potential.dual_norm(f)
        if zeta == 0:
            return
        side = math.copysign(1, measurement.value - present)
        if self.step == "paper":
            self.theta = self.theta + side * self.potential.mu * self.progress / zeta**2 * f
        else:
            drawn = 0.0 if self.step == "full" else measurement.noise_bound
            target = measurement.value - side * drawn
            if side * (target - present) <= 0:
                return
            if isinstance(self.potential, Entropy):
                low, high = f.min(), f.max()
                margin = 2.0**-30 * (high - low)
                target = min(max(target, (low + margin) * self.mass), (high - margin) * self.mass)
            self.theta = onto_halfspace(self.potential, self.theta, f, target)
        if self.ball is not None:
            assert isinstance(self.potential, SquaredNorm)
            self.theta = self.potential.link(onto_ball(self.potential, self.h, *self.ball))


def potential_of(u: Universe, mechanism: Words) -> SquaredNorm:
    norm = parse_mechanism(mechanism).norm(u.space)
    assert norm is not None
    if norm.family == "lp":
        return Power(norm.p, multiplicity=2 if u.undirected else 1)
    return Group(norm.p, norm.side or "rows") if norm.family == "group" else Schatten(norm.p)


def made(u: Universe, mechanism: Words, facts: PublicFacts, progress: float = 1.0) -> Construction:
    return construct(parse_mechanism(mechanism), u.space, facts, progress, 100)


def follow(
    u: Universe,
    construction: Construction,
    machine: Machine,
    *,
    rounds: int = 14,
    forms: tuple[str, ...] = ("product", "product", "sparse", "dense"),
    seed: int = 0,
) -> tuple[float, int]:
    """Play the same measurements on both; the largest difference of answers, relative to the largest answer."""
    rng = np.random.default_rng(seed)
    x = data(u, rng)
    probes = [ask(u, rng, forms) for _ in range(6)]
    state, worst, updates = construction.start(), 0.0, 0
    for _ in range(rounds):
        query = ask(u, rng, forms)
        value = query.inner(DenseTensor(x)) + rng.uniform(-0.1, 0.1)
        measurement = MeasuredQuery(query, value, 0.1)
        if abs(value - construction.answer(state, query)) < 0.2:
            continue
        construction.update(state, measurement)
        machine.update(measurement)
        updates += 1
        mine = np.array([construction.answer(state, q) for q in (query, *probes)])
        other = np.array([machine.answer(q) for q in (query, *probes)])
        worst = max(worst, float(np.abs(mine - other).max()) / max(1.0, float(np.abs(other).max())))
    return worst, updates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("u", "mechanism", "step"),
    [*((*case, "projection") for case in CASES), *((*case, step) for step in ("paper", "full") for case in FORMS)],
    ids=name,
)
def test_trajectory(u: Universe, mechanism: Words, step: str) -> None:
    """Every form of the potentials walks where the definition walks. Would catch a block that is not the query's, a
    stale norm, rank or marginal, a lost factor of two on undirected graphs, a step of another length."""
    construction = made(u, {**mechanism, "step": step}, PublicFacts())
    worst, updates = follow(u, construction, Machine(u, potential_of(u, mechanism), step, 1.0), rounds=20)
    assert updates >= 6
    assert worst <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "ball"),
    [("projection", "auto"), ("projection", 1.0), ("projection", 1.3), ("projection", 2.0), ("paper", "auto")],
)
@pytest.mark.parametrize(
    ("u", "mechanism"),
    [
        (TABLE, LP),
        (GRAPH, {**LP, "p": 1.3}),
        (GRAPH, ROWS),
        (BIPARTITE, COLUMNS),
        (BIPARTITE, SCHATTEN),
        (GRAPH, SCHATTEN),
    ],
    ids=name,
)
def test_ball(u: Universe, mechanism: Words, step: str, ball: float | str) -> None:
    """The hypothesis is kept in a ball that was bought, of the potential's own norm or of another."""
    words = {**mechanism, "step": step, "ball_p": ball}
    norm = parse_mechanism(words).ball(u.space)
    assert norm is not None
    radius = 2.5
    construction = made(u, words, PublicFacts(norms={norm.name: radius}))
    machine = Machine(u, potential_of(u, mechanism), step, 1.0, ball=(norm.p, radius))
    worst, updates = follow(u, construction, machine)
    assert updates >= 4
    assert worst <= 1e-6
    assert parse_mechanism(words).fact(u.space) == norm.name


@pytest.mark.slow
@pytest.mark.parametrize(("step", "padding"), [("projection", 7.0), ("paper", 0.0), ("paper", 7.0), ("full", 0.0)])
@pytest.mark.parametrize("u", [TABLE, CUBE, BIPARTITE, GRAPH, WEIGHTED], ids=name)
def test_multiplicative_weights_is_the_case_of_the_entropy(u: Universe, padding: float, step: str) -> None:
    """mw (with GRU11's rate alpha/(2n), which is mu alpha/zeta^2 at zeta^2 = 2) and md with the entropy (JT12's rate)
    both come out of the generic machine, with and without a slack cell."""
    x = data(u, np.random.default_rng(0))
    mass = float(x.sum()) / (2 if u.undirected else 1) + padding
    facts = PublicFacts(mass, padded=padding > 0)
    for mechanism, zeta in (
        ({"construction": "mw", "step": step}, math.sqrt(2)),
        ({"construction": "md", "potential": "entropy", "step": step}, None),
    ):
        machine = Machine(u, Entropy(mass), step, 1.0, mass=mass, slack=padding > 0, zeta=zeta)
        worst, updates = follow(u, made(u, mechanism, facts), machine)
        assert updates >= 2
        assert worst <= 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("step", ["projection", "paper", "full"])
@pytest.mark.parametrize("u", [TABLE, CUBE, BIPARTITE, GRAPH, WEIGHTED, MATRIX], ids=name)
def test_frieze_kannan_is_the_case_of_l2(u: Universe, step: str) -> None:
    """fk (whose paper takes |X| for zeta^2) comes out of the generic machine, and so does md with p = 2 (whose paper's
    step takes this query's own norm)."""
    potential = Power(2.0, multiplicity=2 if u.undirected else 1)
    for mechanism, zeta in (
        ({"construction": "fk", "step": step}, math.sqrt(u.space.size)),
        ({**LP, "p": 2, "step": step}, None),
    ):
        worst, updates = follow(u, made(u, mechanism, PublicFacts()), Machine(u, potential, step, 1.0, zeta=zeta))
        assert updates >= 6
        assert worst <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("step", ["projection", "paper"])
@pytest.mark.parametrize(("u", "mechanism"), CASES, ids=name)
def test_every_update_lowers_the_divergence(u: Universe, mechanism: Words, step: str) -> None:
    """D(x; h) falls by mu alpha^2/(2 zeta^2) at least, with the measurement off by its whole bound, in either
    direction in turn: the lemma that the bound of updates is a sum of. The worst queries are those of the largest
    gap."""
    rng = np.random.default_rng(3)
    x, bound = data(u, rng), 0.1
    alpha = 2 * bound
    potential = potential_of(u, mechanism)
    construction = made(u, {**mechanism, "step": step}, PublicFacts(), alpha)
    assert isinstance(construction, MirrorDescent)
    machine = Machine(u, potential, step, alpha)
    queries = [ask(u, rng, ("product", "sparse", "dense")) for _ in range(30)]
    truths = [q.inner(DenseTensor(x)) for q in queries]
    before = potential.value(x)
    state, updates = construction.start(), 0
    for turn in range(20):
        noise = (1.0, -1.0)[turn % 2]
        gaps = [t - construction.answer(state, q) for q, t in zip(queries, truths, strict=True)]
        at = int(np.argmax(np.abs(gaps)))
        value = truths[at] + noise * math.copysign(bound, gaps[at])
        if abs(gaps[at]) + noise * bound <= 3 * bound:
            break
        construction.update(state, MeasuredQuery(queries[at], value, bound))
        machine.update(MeasuredQuery(queries[at], value, bound))
        # By way of theta: h itself may have cells too small for float64, whose link is not.
        after = potential.value(x) + potential.conjugate_value(machine.theta) - potential.inner(machine.theta, x)
        least = potential.mu * alpha**2 / (2 * potential.dual_norm(machine.f(queries[at])) ** 2)
        assert after <= before - least * (1 - 1e-6) + 1e-9 * before
        before = after
        updates += 1
    assert updates >= 3
    # The construction is where the machine is, so what was shown of the one holds of the other.
    assert construction.answer(state, queries[0]) == pytest.approx(machine.answer(queries[0]), rel=1e-6, abs=1e-7)


# ---------------------------------------------------------------------------------------------- the core of few ranks

WIDE = universe({"name": "wide", "kind": "bipartite", "left": 40, "right": 30, "budget": BUDGET})
NODES = universe({"name": "nodes", "kind": "graph", "nodes": 40, "budget": BUDGET})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("u", "p"), [(WIDE, "auto"), (WIDE, 1.2), (NODES, 1.7)], ids=["wide-auto", "wide-1.2", "nodes-1.7"]
)
def test_core_against_full_decompositions(u: Universe, p: float | str) -> None:
    """Cores in growing bases give the answers and the matrix that full singular value decompositions of theta give
    (the measured error is some 1e-14 of the largest entry), and the bases stay orthonormal."""
    construction = made(u, {**SCHATTEN, "p": p}, PublicFacts())
    assert isinstance(construction, MirrorDescent)
    machine = Machine(u, potential_of(u, {**SCHATTEN, "p": p}), "projection", 1.0)
    rng = np.random.default_rng(8)
    x = data(u, rng)
    state = construction.start()
    for i in range(18 if u is WIDE else 12):
        query = ask(u, rng, ("product",))
        measurement = MeasuredQuery(query, query.inner(DenseTensor(x)), 0.1)
        construction.update(state, measurement)
        machine.update(measurement)
        tensor = state.form.tensor
        assert isinstance(tensor, CoreTensor)
        if i % 6 == 5:
            h = machine.h
            assert tensor.dense() == pytest.approx(h, abs=1e-11 * np.abs(h).max())
    for basis in (tensor.left, tensor.right):
        assert basis.vectors.T @ basis.vectors == pytest.approx(np.eye(basis.size), abs=1e-14)


def test_queries_learnt_twice_take_no_room() -> None:
    """A query in the span of those before adds nothing to the bases."""
    construction = made(WIDE, SCHATTEN, PublicFacts())
    state = construction.start()
    queries = [
        WIDE.compiled({"type": "cut", "left": left, "right": right})
        for left, right in (([0, 1], [2, 3]), ([0, 1], "all"), ([5], [2, 3]), ([0, 1, 5], [2, 3]))
    ]
    for i, query in enumerate(queries * 3):
        construction.update(state, MeasuredQuery(query, construction.answer(state, query) + 3 + i, 0.1))
    assert state.form.tensor.left.size == 2
    assert state.form.tensor.right.size == 2


@pytest.mark.slow
@pytest.mark.parametrize(("u", "step"), [(WIDE, "projection"), (NODES, "paper"), (WIDE, "full")], ids=name)
def test_sparse_queries_are_few_terms(u: Universe, step: str) -> None:
    """A row, or a column, of the cells that a query names is a term. Would catch rows taken for columns, or one half of
    an undirected graph."""
    rng = np.random.default_rng(3)
    construction = made(u, {**SCHATTEN, "step": step}, PublicFacts())
    state, machine = construction.start(), Machine(u, potential_of(u, SCHATTEN), step, 1.0)
    probes = [ask(u, rng, ("product", "sparse", "dense")) for _ in range(8)]
    across = [[3, 7], [5, 7], [3, 9], [8, 9], [4, 9]]  # five rows, two columns; and the other way round
    for cells in (across, [cell[::-1] for cell in across], across):
        query = u.compiled({"type": "sparse", "indices": cells, "weights": rng.uniform(-1, 1, 5).tolist()})
        for asked in (query, ask(u, rng, ("product", "sparse"))):
            measurement = MeasuredQuery(asked, construction.answer(state, asked) + 5.0, 0.1)
            construction.update(state, measurement)
            machine.update(measurement)
            mine = np.array([construction.answer(state, probe) for probe in (asked, *probes)])
            assert mine == pytest.approx([machine.answer(probe) for probe in (asked, *probes)], rel=1e-8, abs=1e-8)
    assert isinstance(state.form.tensor, CoreTensor)
    assert state.form.tensor.left.size <= 20


def low_rank(u: Universe, rng: np.random.Generator, rank: int = 3) -> Query:
    """A dense query whose weights were of this rank before they were rounded."""
    rows, columns = u.space.shape
    weights = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
    return dense_of(u.space, weights / np.abs(weights).max())


@pytest.mark.slow
@pytest.mark.parametrize("step", ["projection", "paper", "full"])
def test_dense_queries_of_low_rank(step: str) -> None:
    """What is learnt of a dense query is what its weights were before rounding: the state stays small, and answers are
    within the rounding of those that whole matrices give. Would catch a term lost, or weights learnt at another scale.
    """
    rng = np.random.default_rng(4)
    construction = made(WIDE, {**SCHATTEN, "step": step}, PublicFacts(), progress=10.0)
    state, machine = construction.start(), Machine(WIDE, potential_of(WIDE, SCHATTEN), step, 10.0)
    probes = [ask(WIDE, rng, ("product", "sparse", "dense")) for _ in range(8)]
    for _ in range(4):
        query = low_rank(WIDE, rng)
        measurement = MeasuredQuery(query, construction.answer(state, query) + 20.0, 5.0)
        construction.update(state, measurement)
        machine.update(measurement)
        mine = np.array([construction.answer(state, probe) for probe in (query, *probes)])
        other = np.array([machine.answer(probe) for probe in (query, *probes)])
        # Rounding moves an answer by a millionth or so of the mass; a term is worth counts.
        assert np.abs(mine - other).max() <= 2.0**-19 * WIDE.space.capacity
        assert not np.array_equal(mine, other)
    assert isinstance(state.form.tensor, CoreTensor)
    assert state.form.tensor.left.size == 12
    again = construction.load(construction.dump(state))
    for kept in (state, again):
        construction.update(kept, MeasuredQuery(query, construction.answer(kept, query) - 30.0, 5.0))
    assert [construction.answer(state, probe) for probe in probes] == [construction.answer(again, p) for p in probes]


def learnt(construction: MirrorDescent, query: Query) -> np.ndarray:
    """What the form learns of a query."""
    assert isinstance(construction.form, SchattenForm)
    known = construction.form._factors(query)
    assert known is not None
    return known.dense()


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_data_stays_on_its_side(sign: float, planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt instead of a query is not taken further than the data certainly lies, even where all that rounding
    did points one way. A planted bug, the difference not drawn back, goes too far."""
    if planted:
        monkeypatch.setattr(MirrorDescent, "_room", lambda self, zeta: math.inf)
        kept = SchattenForm.approximate
        monkeypatch.setattr(SchattenForm, "approximate", lambda *args: 1e-300 if kept(*args) else 0.0)
    rng = np.random.default_rng(10)
    construction = made(WIDE, SCHATTEN, PublicFacts(), progress=5.0)
    assert isinstance(construction, MirrorDescent)
    passed = []
    for _ in range(4):
        query, state = low_rank(WIDE, rng), construction.start()
        weights, near = matrix_of(query, WIDE.space.shape), learnt(construction, query)
        x = ((sign * weights > 0) & (sign * (weights - near) < 0)).astype(float)
        construction.update(state, MeasuredQuery(query, query.inner(DenseTensor(x)), 0.0))
        assert isinstance(state.form.tensor, CoreTensor)
        passed.append(sign * float((near * (state.form.tensor.dense() - x)).sum()) > 0)
        x = ((sign * weights > 0) & (sign * (weights - near) > 0)).astype(float)
        state = construction.start()
        construction.update(state, MeasuredQuery(query, query.inner(DenseTensor(x)), 0.0))
        passed.append(sign * float((near * (state.form.tensor.dense() - x)).sum()) > 0)
    assert any(passed) == planted


def test_the_query_itself_where_the_bound_could_feel_it() -> None:
    """What answers are off by is no less than it is, never more than there is room for, and the room is what the
    bound's proof leaves. Would catch a mass, a half or a hypothesis forgotten, or room that a promised zeta uses up."""
    rng = np.random.default_rng(9)
    kinds = set()
    for alpha, width in itertools.product((1.0, 0.05, 0.01, 1e-6), (4.0, 1 + 1e-3, 1 + 1e-7, 1.0)):
        query = low_rank(WIDE, rng, 2)
        zeta = made(WIDE, SCHATTEN, PublicFacts()).form.zeta(query)  # type: ignore[attr-defined]
        assert zeta == pytest.approx(np.linalg.norm(matrix_of(query, WIDE.space.shape), 2), rel=0.3)
        construction = made(WIDE, {**SCHATTEN, "zeta": width * zeta}, PublicFacts(), progress=alpha)
        assert isinstance(construction, MirrorDescent)
        room = construction._room(zeta)
        assert (alpha - 2 * room) ** 2 / zeta**2 >= (alpha / (width * zeta)) ** 2 * (1 - 1e-12)
        assert alpha**2 - 2 * alpha * room >= (alpha / width) ** 2 * (1 - 1e-12)
        state = construction.start()
        construction.form.move(state.form, construction.form.path(state.form, low_rank(WIDE, rng, 2), 1.0), 0.3)
        off = construction.form.approximate(state.form, query, room)
        assert off <= max(room, 0.0)
        kinds.add(isinstance(state.form.tensor, CoreTensor))
        if isinstance(state.form.tensor, CoreTensor):
            apart = matrix_of(query, WIDE.space.shape) - learnt(construction, query)
            x = np.where(apart > 0, 1.0, 0.0)
            assert off >= float((apart * x).sum()) + abs(float((apart * state.form.tensor.dense()).sum()))
        else:
            assert off == 0.0
    assert kinds == {True, False}


def test_full_rank_falls_back_to_matrices() -> None:
    """From the update at which the core is as large as the smaller side, and from the first query that has too many
    terms: answers go on as if nothing had happened (the trajectories say the same of every form)."""
    rng = np.random.default_rng(1)
    for forms in (("product",), ("product", "product", "dense")):
        construction = made(BIPARTITE, SCHATTEN, PublicFacts())
        machine = Machine(BIPARTITE, potential_of(BIPARTITE, SCHATTEN), "projection", 1.0)
        state, kinds = construction.start(), []
        for _ in range(12):
            query = ask(BIPARTITE, rng, forms)
            if query.is_zero:
                continue
            measurement = MeasuredQuery(query, construction.answer(state, query) + rng.choice([-3.0, 3.0]), 0.1)
            construction.update(state, measurement)
            machine.update(measurement)
            kinds.append(isinstance(state.form.tensor, CoreTensor))
            assert construction.answer(state, query) == pytest.approx(machine.answer(query), rel=1e-9)
        assert kinds[0]
        assert not kinds[-1]


@pytest.mark.parametrize("mechanism", [LP, ROWS, COLUMNS, SCHATTEN], ids=name)
def test_what_is_shown_is_what_answers(mechanism: Words) -> None:
    """On an undirected graph the shown matrix is symmetric with zero diagonal. It answers every query as the
    construction does; in Schatten geometry, whose hypothesis has a diagonal, all that touch no pair twice."""
    rng = np.random.default_rng(2)
    construction = made(GRAPH, mechanism, PublicFacts())
    state = construction.start()
    x = data(GRAPH, rng)
    for _ in range(6):
        query = ask(GRAPH, rng, ("product", "sparse"))
        construction.update(state, MeasuredQuery(query, query.inner(DenseTensor(x)), 0.1))
    h = construction.dense(state)
    assert h == pytest.approx(h.T, abs=1e-12)
    assert not np.diagonal(h).any()
    for _ in range(20):
        query = ask(GRAPH, rng, ("product", "sparse", "dense"))
        if mechanism is SCHATTEN and isinstance(query, CompiledPair) and query.both.vector().any():
            continue
        assert construction.answer(state, query) == pytest.approx(query.inner(DenseTensor(h)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("p", [1.001, 1.05, "auto", 2.0])
def test_far_measurements(p: float | str) -> None:
    """Values from 1e-6 to 1e12, one cell and all of them in turn: no power overflows, every target is met."""
    construction = made(TABLE, {**LP, "p": p, "step": "full"}, PublicFacts())
    state = construction.start()
    one = TABLE.compiled({"type": "predicate", "where": {"x": {"equals": 0}, "y": {"equals": 1}}})
    rest = TABLE.compiled({"type": "predicate", "where": {"x": {"in": [1, 2, 3, 4]}}})
    every = TABLE.compiled({"type": "predicate", "where": {}})
    for value, query in ((1e-6, one), (1e12, rest), (-5.0, one), (1e3, every), (-1e-6, rest), (1e9, one), (0.0, every)):
        construction.update(state, MeasuredQuery(query, value, 1e-9))
        # A difference of answers of size 1e12 is known to the rounding of those.
        size = float(np.abs(construction.dense(state)).max())
        assert construction.answer(state, query) == pytest.approx(value, rel=1e-9, abs=1e-11 * size)
        assert np.isfinite(construction.dense(state)).all()


# ------------------------------------------------------------------------------------------------------ bounds, norms


@pytest.mark.parametrize("u", [TABLE, BIPARTITE, GRAPH, WEIGHTED, MATRIX], ids=name)
def test_norm_bounds_hold(u: Universe) -> None:
    """What follows from the public facts is never below the norm of data that they fit."""
    rng = np.random.default_rng(4)
    norms = [
        Norm(family, p, side)  # type: ignore[arg-type]
        for family, side in (("lp", None), ("group", "rows"), ("group", "columns"), ("schatten", None))
        for p in (1.0, 1.1, 1.5, 2.0)
    ]
    for density in (0.02, 0.3, 1.0):
        for _ in range(10):
            x = data(u, rng) * (rng.random(u.space.shape) < density)
            if u.undirected:
                x = np.triu(x, 1) + np.triu(x, 1).T
            mass = float(x.sum()) / (2 if u.undirected else 1)
            for facts in (PublicFacts(mass), PublicFacts(mass + 3, padded=True), PublicFacts()):
                for norm in norms:
                    bound = norm_bound(u.space, facts, norm)
                    copies = 2 if u.undirected and norm.family == "lp" else 1
                    assert bound is None or norm.of(x, copies) <= bound * (1 + 1e-12)
                    assert bound is not None or (facts.mass is None and u.space.largest is None)


def test_norm_of_an_unweighted_graph_is_its_edges() -> None:
    """||x||_p^p = N, to the letter."""
    for p in (1.1, 1.5, 2.0):
        assert norm_bound(GRAPH.space, PublicFacts(13), Norm("lp", p)) == pytest.approx(13 ** (1 / p))


@pytest.mark.slow
@pytest.mark.parametrize(("u", "mechanism"), CASES, ids=name)
def test_largest_zeta(u: Universe, mechanism: Words) -> None:
    """No query with weights in [-1, 1] has a larger dual norm than the bound of updates allows for; all ones, or all
    ones off the diagonal, nearly has it."""
    construction = made(u, mechanism, PublicFacts())
    assert isinstance(construction, MirrorDescent)
    machine = Machine(u, potential_of(u, mechanism), "projection", 1.0)
    rng = np.random.default_rng(5)
    largest = construction.form.largest_zeta()
    for _ in range(30):
        query = ask(u, rng, ("product", "sparse", "dense"))
        exact = machine.potential.dual_norm(machine.f(query))
        assert construction.form.zeta(query) == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert exact <= largest * (1 + 1e-12)
    ones = np.ones(u.space.shape)
    if u.undirected:
        np.fill_diagonal(ones, 0.0)
    every = u.compiled({"type": "dense", "weights": ones.tolist()})
    assert construction.form.zeta(every) >= 0.8 * largest


def test_bound_is_the_formula() -> None:
    """zeta^2 R^2/((p-1) alpha^2), with the least R known; none without a norm, and none for steps that have none."""
    p = 1.25
    norms = PublicFacts(norms={"lp:1.25": 6.0})
    zeta = 20 ** (1 / conjugate(p))
    words = {**LP, "p": p}
    assert made(TABLE, words, norms).bound(2.0) == pytest.approx((zeta * 6.0 / 2.0) ** 2 / 0.25)
    assert made(TABLE, {**words, "zeta": 1.5}, norms).bound(2.0) == pytest.approx((1.5 * 6.0 / 2.0) ** 2 / 0.25)
    assert made(TABLE, words, PublicFacts()).bound(2.0) is None
    assert made(TABLE, words, PublicFacts(5.0)).bound(2.0) == pytest.approx((zeta * 5.0 / 2.0) ** 2 / 0.25)
    for step in ("full", "refit"):
        for mechanism in (words, {"construction": "mw"}, {"construction": "fk"}):
            assert made(TABLE, {**mechanism, "step": step}, replace(norms, mass=9.0)).bound(2.0) is None
    # Through a ball of another norm: ||x||_p <= ||x||_r for r <= p, else the dimension enters.
    for ball, factor in ((1.0, 1.0), (2.0, 20 ** (1 / p - 1 / 2))):
        facts = PublicFacts(norms={f"lp:{ball}": 4.0})
        found = made(TABLE, {**words, "ball_p": ball}, facts).bound(2.0)
        assert found == pytest.approx((zeta * 4.0 * factor / 2.0) ** 2 / 0.25)


def test_promised_zeta_is_kept() -> None:
    """A query whose dual norm passes the promise is refused before anything is asked of the data."""
    for u, words, small, large in (
        (BIPARTITE, ROWS, {"left": "all", "right": [1]}, {"left": "all", "right": [1, 2, 3]}),
        (BIPARTITE, SCHATTEN, {"left": [1], "right": [1]}, {"left": [1, 2], "right": [1, 2, 3]}),
        (GRAPH, LP, {"left": [0], "right": [1]}, {"left": "all", "right": "all"}),
    ):
        inside, outside = (u.compiled({"type": "cut", **sides}) for sides in (small, large))
        free = made(u, words, PublicFacts())
        assert isinstance(free, MirrorDescent)
        promised = made(u, {**words, "zeta": free.form.zeta(inside)}, PublicFacts())
        promised.admit(inside)
        with pytest.raises(InvalidQuery, match="dual norm"):
            promised.admit(outside)
        free.admit(outside)
    entropy = made(TABLE, {"construction": "md", "potential": "entropy", "zeta": 0.5}, PublicFacts(30.0))
    entropy.admit(TABLE.compiled({"type": "predicate", "where": {"x": {"equals": 0}}}))
    with pytest.raises(InvalidQuery):
        entropy.admit(TABLE.compiled({"type": "product", "weights": {"x": [-1.0, 1, 1, 1, 1]}}))
    assert entropy.bound(1.0) == pytest.approx(made(TABLE, {"construction": "mw"}, PublicFacts(30.0)).bound(1.0) / 4)  # type: ignore[operator]


def imbalanced(size: int) -> dict[str, float]:
    """Bounds of updates on JT12's imbalanced graph (section 4.1) at unit progress for cuts of one column.

    |A| = V^(3/4) rows are joined to all columns, every other row to V^(1/2) of them.
    """
    u = universe({"name": "big", "kind": "bipartite", "left": size, "right": size, "budget": BUDGET})
    degrees = np.full(size, size**0.5)
    degrees[: round(size**0.75)] = size
    edges = PublicFacts(float(degrees.sum()))
    norm = parse_mechanism(ROWS).norm(u.space)
    assert norm is not None
    bought = replace(edges, norms={norm.name: vector_norm(np.sqrt(degrees), norm.p)})
    found = {
        "group": made(u, {**ROWS, "zeta": size ** (1 / conjugate(norm.p))}, bought).bound(1.0),
        "euclid": made(u, {**LP, "p": 2, "zeta": size**0.5}, edges).bound(1.0),
        "entropy": made(u, {"construction": "md", "potential": "entropy", "zeta": 0.5}, edges).bound(1.0),
    }
    return {k: v for k, v in found.items() if v is not None}


def test_imbalanced_graph() -> None:
    """Errors go with the fourth root of these bounds, so JT12's V^(5/8), V^(11/16) and V^(7/8) say that they grow as
    V^(5/2) ln V for the group norm, V^(11/4) for Frieze/Kannan, V^(7/2) ln V for multiplicative weights (in the limit:
    exponents that are a quarter off would be off by a factor of 2.8)."""
    small, large = imbalanced(2**14), imbalanced(2**20)
    logs = 20 / 14
    assert large["group"] / small["group"] == pytest.approx(2 ** (6 * 5 / 2) * logs, rel=0.2)
    assert large["euclid"] / small["euclid"] == pytest.approx(2 ** (6 * 11 / 4), rel=0.1)
    assert large["entropy"] / small["entropy"] == pytest.approx(2 ** (6 * 7 / 2) * logs, rel=0.1)


# ---------------------------------------------------------------------------------------------------- the mechanism


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"construction": "md"}, "potential"),
        ({"construction": "md", "potential": "l1"}, "potential"),
        ({**LP, "p": 1}, "1.001"),
        ({**LP, "p": 2.5}, "to 2"),
        ({**LP, "p": "1.5"}, "number"),
        ({**LP, "p": True}, "number"),
        ({**LP, "p": math.nan}, "finite"),
        ({**LP, "axis": "rows"}, "axis"),
        ({"construction": "md", "potential": "group"}, "axis"),
        ({"construction": "md", "potential": "group", "axis": "diagonal"}, "axis"),
        ({**LP, "ball_p": 0.5}, "from 1"),
        ({**LP, "ball_p": "some"}, "number"),
        ({**LP, "zeta": 0}, "greater than 0"),
        ({**LP, "zeta": math.inf}, "finite"),
        ({"construction": "md", "potential": "entropy", "p": 1.5}, "entropy"),
        ({"construction": "md", "potential": "entropy", "ball_p": "none"}, "entropy"),
        ({"construction": "mw", "potential": "lp"}, "mw.potential"),
        ({"construction": "fk", "p": 1.5}, "fk.p"),
        ({**LP, "step": "leap"}, "step"),
        ({**LP, "rank": 3}, "rank"),
    ],
)
def test_words_that_are_refused(words: Words, told: str) -> None:
    """Each names what is wrong."""
    with pytest.raises(ValidationError, match=told):
        parse_mechanism(words)


def test_exponents() -> None:
    """auto counts what the norm is taken over."""
    for words, count in ((LP, 63), (ROWS, 7), ({**ROWS, "axis": "columns"}, 9), (SCHATTEN, 7)):
        norm = parse_mechanism(words).norm(BIPARTITE.space)
        assert norm is not None
        assert conjugate(norm.p) == pytest.approx(max(2.0, math.log(count)))


def test_facts_that_are_bought() -> None:
    """The ball where it is asked for, or where JT12's steps end on it; the mass for the entropy; else nothing."""
    space = BIPARTITE.space

    def fact(**more: Any) -> str | None:
        return parse_mechanism({**LP, "p": 1.5, **more}).fact(space)

    assert fact() is None
    assert fact(ball_p="none") is None
    assert fact(step="full") is None
    assert fact(ball_p="auto") == "lp:1.5"
    assert fact(ball_p=1.25) == "lp:1.25"
    assert fact(step="paper") == "lp:1.5"
    assert fact(step="paper", ball_p="none") is None
    assert parse_mechanism({**ROWS, "p": 1.5, "ball_p": "auto"}).fact(space) == "group:rows:1.5"
    assert parse_mechanism({"construction": "md", "potential": "entropy"}).fact(space) == "mass"


def test_spaces_it_does_not_fit() -> None:
    group = parse_mechanism(ROWS)
    assert "axes" in (unfit(group, CUBE.space) or "")
    with pytest.raises(InvalidRequest, match="axes"):
        construct(group, CUBE.space, PublicFacts(), 1.0, 10)
    entropy = parse_mechanism({"construction": "md", "potential": "entropy"})
    assert "negative" in (unfit(entropy, MATRIX.space) or "")
    assert unfit(parse_mechanism(LP), CUBE.space) is None


@pytest.mark.parametrize("step", ["projection", "paper", "full", "refit"])
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_a_ball_without_room_keeps_the_zero_hypothesis(step: str, p: float) -> None:
    """A graph that is known to have no edges, and noise that says otherwise, twice. Would catch a division by the unit
    that a ball of radius 0 has left."""
    found = made(BIPARTITE, {**LP, "p": p, "ball_p": "auto", "step": step}, PublicFacts(0.0))
    state = found.start()
    query = BIPARTITE.compiled({"type": "cut", "left": [0, 2], "right": "all"})
    for value in (500.0, -300.0, 400.0):
        found.update(state, MeasuredQuery(query, value, 10.0))
        assert found.answer(state, query) == 0.0
        assert not found.dense(state).any()
