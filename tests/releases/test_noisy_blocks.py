"""Sums between groups of nodes in synthetic graphs: read right, averaged right, and kept by the graph."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from app.curator.dataset import PublicDataset
from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.measurements.strategies.asked import Asked
from app.releases.edge_results import MOST_BLOCKS, known_blocks
from app.releases.noisy_blocks import NoisyBlocks
from app.releases.synthetic_graph import NoisyDegrees, NoisyEdges, capped_product, spectral_graph, within_bounds
from app.spaces.queries.blocks import BlocksQuery, CompiledBlocks
from app.spaces.space import Space

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
SPECS: dict[str, dict[str, Any]] = {
    "undirected": {"kind": "graph", "nodes": 9, "directed": False},
    "directed": {"kind": "graph", "nodes": 9, "directed": True},
    "bipartite": {"kind": "bipartite", "left": 9, "right": 9},
}
#: Groups of the left side and of the right one; nodes 4, and to the right 0 and 8, are in none.
LEFT: dict[str, list[int]] = {"b": [3, 5, 8], "a": [0, 1], "c": [2, 6, 7]}
RIGHT: dict[str, list[int]] = {"c": [1, 2], "a": [3, 6, 7], "b": [4, 5]}


def space_of(kind: str) -> Space:
    return PublicDataset(parse_spec({"name": "g", "budget": BUDGET, **SPECS[kind]})).space


def compiled(kind: str, **words: Any) -> CompiledBlocks:
    sides = {"left": LEFT} if kind == "undirected" else {"left": LEFT, "right": RIGHT}
    query = BlocksQuery.model_validate({"type": "blocks", **sides, **words}).compiled(space_of(kind))
    assert isinstance(query, CompiledBlocks)
    return query


def matrix_of(kind: str) -> np.ndarray:
    matrix = (np.random.default_rng(1).random((9, 9)) < 0.5).astype(np.float64)
    if kind == "bipartite":
        return matrix
    np.fill_diagonal(matrix, 0)
    return np.triu(matrix) + np.triu(matrix).T if kind == "undirected" else matrix


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("only", [None, "within"])
def test_numbers_stand_at_their_groups(kind: str, only: str | None) -> None:
    """Exact numbers of the question, by plain loops in the order that it has, are the sums of the exact matrix wherever
    any was asked, each with its variance. Would catch numbers of other groups, groups to the right that go with others,
    nodes of no group that are taken for some, and pairs of an undirected graph that count once in one place and twice
    in another.
    """
    query, matrix = compiled(kind, **({} if only is None else {"only": only})), matrix_of(kind)
    right = LEFT if kind == "undirected" else RIGHT
    # In the order of their least members.
    lefts, rights = (sorted(side, key=lambda name, side=side: min(side[name])) for side in (LEFT, right))
    if only:
        pairs = [(name, name) for name in lefts]
    elif kind == "undirected":
        pairs = list(itertools.combinations_with_replacement(lefts, 2))
    else:
        pairs = list(itertools.product(lefts, rights))
    numbers = []
    for one, other in pairs:
        cells = itertools.product(LEFT[one], right[other])
        if kind == "undirected" and one == other:
            cells = itertools.combinations(LEFT[one], 2)
        numbers.append(sum(matrix[i, j] for i, j in cells))
    made = NoisyBlocks.of(query, np.array(numbers), 4.0)
    assert int(made.known.sum()) == (2 * len(pairs) - 3 if kind == "undirected" and not only else len(pairs))
    assert made.sums(matrix)[made.known] == pytest.approx(made.values[made.known])
    twice = np.eye(*made.values.shape, dtype=bool) if kind == "undirected" else np.zeros(made.values.shape, bool)
    assert (made.variances[made.known & twice] == 16).all()
    assert (made.variances[made.known & ~twice] == 4).all()
    ones = np.ones((9, 9)) - (0 if kind == "bipartite" else np.eye(9))
    assert made.cells(loops=kind == "bipartite") == pytest.approx(made.sums(ones))
    told = made.document(matrix)
    assert (told["numbers"], told["error"], told["discrepancy"]) == (len(pairs), 2.0, 0.0)


def measured(query: CompiledBlocks, scale: str, values: np.ndarray) -> Measurement[Asked]:
    return Measurement(Asked.of(query), Noise("gaussian", Decimal(scale), 0), values)


def test_measurements_of_one_question_are_one() -> None:
    """Averaged by precision, and what is no question about blocks is left out; of many questions those with the most
    numbers are used. Would catch a plain average, and a cut that is read as blocks.
    """
    space, query, within = space_of("directed"), compiled("directed"), compiled("directed", only="within")
    exact = np.arange(9) * 10
    many = [measured(query, "1", exact), measured(within, "1", exact[:3]), measured(query, "3", exact + 100)]
    found = known_blocks(many, space)
    assert len(found) == 2
    weights = np.array([1, 1 / 9])
    assert found[0].values[found[0].known] == pytest.approx(exact + 100 * weights[1] / weights.sum())
    assert found[0].variances[found[0].known] == pytest.approx(1 / weights.sum())
    assert int(found[1].known.sum()) == 3
    groups = [{"left": {"a": [0], "b": [n]}, "right": {"a": [n], "b": [0]}} for n in range(1, 9)]
    others = [BlocksQuery.model_validate({"type": "blocks", **each}).compiled(space) for each in groups]
    most = known_blocks([*(measured(each, "1", np.zeros(4)) for each in others), *many], space)
    assert len(most) == MOST_BLOCKS
    assert int(most[0].known.sum()) == 9


def of_groups(labels: np.ndarray, values: np.ndarray, deviation: float, *, symmetric: bool) -> NoisyBlocks:
    """Of groups that every node is in."""
    groups = len(values)
    told, variances = np.zeros((groups + 1, groups + 1)), np.full((groups + 1, groups + 1), np.inf)
    told[:-1, :-1] = values
    variances[:-1, :-1] = deviation**2 * (1.0 + symmetric * 3 * np.eye(groups))
    return NoisyBlocks(labels, labels, told, variances, symmetric)


def test_other_sums_are_averaged_by_precision() -> None:
    """Against the formula; what was not measured stays so. Would catch weights that change places."""
    blocks = of_groups(np.array([0, 1, 1]), np.array([[4.0, 8.0], [12.0, 16.0]]), 2.0, symmetric=False)
    both = blocks.beside(np.full((3, 3), 10.0), np.full((3, 3), 12.0))
    assert both.values[:2, :2] == pytest.approx((blocks.values[:2, :2] * 12 + 10 * 4) / 16)
    assert both.variances[:2, :2] == pytest.approx(3.0)
    assert np.array_equal(both.known, blocks.known)


def test_groups_are_told_of_their_degrees() -> None:
    """A group's total is the average by precision of what its degrees and its sums say; a group whose sums were not all
    measured keeps its degrees. Would catch sides that change places, and a sum that is missing and taken for zero.
    """
    blocks = of_groups(np.array([0, 1, 1]), np.array([[4.0, 8.0], [12.0, 16.0]]), 2.0, symmetric=False)
    rows = blocks.told(np.array([10.0, 5.0, 15.0]), 4.0, axis=0)
    first, second = (10 * 8 + 12 * 4) / 12, (20 * 8 + 28 * 8) / 16
    assert rows == pytest.approx([first, second / 4, 3 * second / 4])
    columns = blocks.told(np.array([10.0, 5.0, 15.0]), 4.0, axis=1)
    assert columns[0] == pytest.approx((10 * 8 + 16 * 4) / 12)
    blocks.variances[1, 0] = np.inf
    assert blocks.told(np.array([10.0, 5.0, 15.0]), 4.0, axis=0) == pytest.approx([first, 5.0, 15.0])


@pytest.mark.parametrize("undirected", [True, False])
def test_the_base_has_both(undirected: bool) -> None:
    """Degrees and sums between groups are those asked for, and cells of two groups are a product. Would catch factors
    that are applied on one side of the diagonal, and sums that are fitted once and lost again.
    """
    rng, labels = np.random.default_rng(2), np.arange(40) % 3
    truth = rng.random((40, 40)) * np.where(labels[:, None] == labels, 0.6, 0.1)
    np.fill_diagonal(truth, 0)
    truth = truth + truth.T if undirected else truth
    truth = np.minimum(truth, 1)
    blocks = of_groups(labels, np.zeros((3, 3)), 1.0, symmetric=undirected)
    wanted, how = blocks.sums(truth), {"undirected": undirected, "loops": False}
    left, right = truth.sum(axis=1), truth.sum(axis=0)
    weights = capped_product(left, right, **how, blocks=[(blocks, wanted)])
    assert weights.sum(axis=1) == pytest.approx(left, abs=0.06)
    assert weights.sum(axis=0) == pytest.approx(right, abs=0.06)
    assert blocks.sums(weights) == pytest.approx(wanted, abs=0.5)
    assert weights[0, 1] * weights[3, 4] == pytest.approx(weights[0, 4] * weights[3, 1])
    if undirected:
        assert np.array_equal(weights, weights.T)
    assert np.array_equal(capped_product(left, right, **how), capped_product(left, right, **how, blocks=[]))


def test_within_bounds_is_the_nearest_with_these_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the projection onto weights with the sums of others, by a general solver. Would catch a term of a block
    that is not found, and sums that are taken of the weights themselves.
    """
    monkeypatch.setattr("app.releases.synthetic_graph._CLOSE", 1e-4)
    monkeypatch.setattr("app.releases.synthetic_graph._FITS", 3000)
    rng, labels = np.random.default_rng(7), np.array([0, 0, 1, 1])
    weights, like = rng.uniform(-0.5, 1.2, (4, 4)), rng.uniform(0.1, 0.9, (4, 4))
    blocks = of_groups(labels, np.zeros((2, 2)), 1.0, symmetric=False)
    found = within_bounds(weights, like=like, blocks=[blocks])
    sums = np.vstack(
        [np.kron(np.eye(4), np.ones(4)), np.kron(np.ones(4), np.eye(4)), [np.kron(labels == 0, labels == 0)]]
    ).astype(float)
    kept = np.delete(sums, 7, axis=0)
    wanted = kept @ like.ravel()
    solved = minimize(
        lambda x: np.sum((x - weights.ravel()) ** 2),
        like.ravel(),
        jac=lambda x: 2 * (x - weights.ravel()),
        bounds=[(0, 1)] * 16,
        constraints=[{"type": "eq", "fun": lambda x: kept @ x - wanted, "jac": lambda x: kept}],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.ravel() == pytest.approx(solved.x, abs=5e-3)
    assert blocks.sums(found) == pytest.approx(blocks.sums(like), abs=5e-3)


NODES, GROUPS = 240, 6


def told(seed: int, labels: np.ndarray, deviation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A graph of communities, what is made of noisy cells and degrees, and of these with sums between groups."""
    rng, community = np.random.default_rng(seed), np.arange(NODES) % GROUPS
    odds = np.where(community[:, None] == community, 0.3, 0.03)
    truth = np.triu(rng.random((NODES, NODES)) < odds, 1).astype(np.float64)
    truth += truth.T
    noise = np.triu(rng.normal(0, 3.0, truth.shape), 1)
    edges = NoisyEdges(truth + noise + noise.T, 3.0, undirected=True, loops=False)
    ends = truth.sum(axis=1) + rng.normal(0, 4.0, NODES)
    degrees = NoisyDegrees(ends, ends, 4.0)
    exact = of_groups(labels, np.zeros((GROUPS, GROUPS)), deviation, symmetric=True)
    noise = np.triu(rng.normal(0, deviation, (GROUPS, GROUPS)))
    noise += noise.T
    noisy = of_groups(labels, exact.sums(truth)[:-1, :-1] + noise, deviation, symmetric=True)
    return truth, spectral_graph(edges, degrees), spectral_graph(edges, degrees, [noisy])


def rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def test_communities_are_kept() -> None:
    """Where the cells' noise hides communities, their sums err by a small part of what they did, and by no more than
    about the noise of the sums that were measured. Would catch sums that are fitted and lost in what comes after.
    """
    labels = np.arange(NODES) % GROUPS
    groups = of_groups(labels, np.zeros((GROUPS, GROUPS)), 1.0, symmetric=True)
    for seed in range(3):
        truth, without, made = told(seed, labels, 10.0)
        assert rms(groups.sums(made - truth)) < 0.1 * rms(groups.sums(without - truth))
        assert rms(groups.sums(made - truth)[:-1, :-1]) < 20
        assert made.min() >= 0
        assert made.max() <= 1
        assert np.array_equal(made, made.T)


def test_groups_that_are_nothing_do_no_harm() -> None:
    """Groups that have nothing to do with communities, and sums with much noise: what degrees let expect stays. Would
    catch noise of sums that is taken for structure.
    """
    labels = np.random.default_rng(5).integers(0, GROUPS, NODES)
    groups = of_groups(labels, np.zeros((GROUPS, GROUPS)), 1.0, symmetric=True)
    errors = np.array(
        [[rms(groups.sums(each - of[0])) for each in of[1:]] for of in (told(s, labels, 100.0) for s in range(4))]
    )
    assert rms(errors[:, 1]) < 1.2 * rms(errors[:, 0])
    assert rms(errors[:, 1]) < 50
