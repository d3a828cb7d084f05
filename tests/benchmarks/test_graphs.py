"""The benchmark of cuts measures what it says, at tiny sizes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.research import graphs as benchmark
from benchmarks.research import graphs_data as data
from benchmarks.research import graphs_methods as methods

pytestmark = [pytest.mark.unit, pytest.mark.slow]

KINDS: dict[str, dict[str, Any]] = {
    "directed": {},
    "undirected": {"undirected": True},
    "bipartite": {"bipartite": True},
}


def small(kind: str, nodes: int = 40, **how: Any) -> data.Graph:
    """Two blocks, denser within than between; without loops unless bipartite."""
    rng, side = np.random.default_rng(5), np.arange(nodes) % 2
    odds = np.where(side[:, None] == side, 0.4, 0.1)
    return data.of_pairs(kind, np.argwhere(rng.random((nodes, nodes)) < odds), (nodes, nodes), **KINDS[kind], **how)


def pairs_of(of: data.Graph, left: np.ndarray, right: np.ndarray) -> set[Any]:
    """The pairs of a cut, one by one: a pair is a set if undirected."""
    found = {(i, j) for i in np.flatnonzero(left) for j in np.flatnonzero(right) if of.bipartite or i != j}
    return {frozenset(pair) for pair in found} if of.undirected else found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", data.STREAMS)
def test_streams(kind: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact answers are the edges counted one by one, and no cut has an empty side. Would catch an undirected edge
    that counts twice, loops, and a stream that the seed does not move."""
    monkeypatch.setattr(data, "questions", lambda of, stream: 60)
    of = small(kind, clustered="spectral" if kind == "bipartite" else "louvain")
    edges = {
        frozenset((int(i), int(j))) if of.undirected else (int(i), int(j))
        for i, j in zip(*of.matrix.nonzero(), strict=True)
    }
    assert len(edges) == of.edges
    asked = data.made(of, stream, 0)
    assert set(asked.kinds) == ({"communities"} if stream == "communities" else set(data._KINDS))
    cells = of.cells(asked.lefts, asked.rights)
    for left, right, truth, most in zip(asked.lefts, asked.rights, asked.truths, cells, strict=True):
        assert left.any()
        assert right.any()
        pairs = pairs_of(of, left, right)
        assert truth == len(pairs & edges) == of.truth(left, right)
        assert most == len(pairs)
    again, other = data.made(of, stream, 0), data.made(of, stream, 1)
    assert np.array_equal(asked.lefts, again.lefts)
    assert not np.array_equal(asked.lefts, other.lefts)


def test_communities_are_whole() -> None:
    """Questions about communities take all of one or nothing, of either side. Would catch labels of the wrong side."""
    of = small("bipartite")
    asked = data.made(of, "communities", 0)
    for side, label in zip((asked.lefts, asked.rights), of.labels, strict=True):
        for community in np.unique(label):
            inside = side[:, label == community]
            assert np.array_equal(inside.any(axis=1), inside.all(axis=1))


def test_files(tmp_path: Path) -> None:
    """Edge lists are read without their headers, loops and repetitions, both lists of listeners together, and genres
    by name. Would catch a lost first edge."""
    files = {
        "email-Eu-core/email-Eu-core.txt": "0 1\n1 1\n1 0\n0 1\n2 0\n",
        "facebook_combined/facebook_combined.txt": "#a\n#b\n0 1\n1 2\n",
        "wikipedia-chameleon/chameleon_edges.csv": "id1,id2\n2,0\n0,2\n1,2\n",
        "lastfm-lightgcn/data1.txt": "1\t5\t9\n2\t7\t30\n",
        "lastfm-lightgcn/test1.txt": "1\t8\t4\n",
        "deezer-RO-genres/RO_genres.json": json.dumps({"7": ["Rock", "Jazz"], "9": ["Jazz"]}),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    read = {name: data.GRAPHS[name](tmp_path) for name in ("email", "facebook", "chameleon", "lastfm", "deezer")}
    matrices = {name: of.matrix.toarray().tolist() for name, of in read.items()}
    assert matrices == {
        "email": [[0, 1, 0], [1, 0, 0], [1, 0, 0]],
        "facebook": [[0, 1, 0], [1, 0, 1], [0, 1, 0]],
        "chameleon": [[0, 0, 1], [0, 0, 1], [1, 1, 0]],
        "lastfm": [[1, 0, 0, 1], [0, 0, 1, 0]],
        "deezer": [[1, 1], [1, 0]],
    }
    assert {name: of.undirected for name, of in read.items()} == dict.fromkeys(read, False) | {
        "facebook": True,
        "chameleon": True,
    }


def test_families(tmp_path: Path) -> None:
    """JT12's imbalanced graph has V^(3/4) full rows and V^(1/2) edges in every other, its power law as many nodes of
    degree one as the law says. Would catch neighbours drawn twice."""
    imbalanced = data.GRAPHS["jt-256"](tmp_path).matrix.sum(axis=1)
    assert sorted(imbalanced) == [16] * 192 + [256] * 64
    power = data.GRAPHS["jt-power-256"](tmp_path).matrix.sum(axis=1)
    law = np.arange(1, 257) ** -data.BETA
    assert (power == 1).sum() == pytest.approx(256 * law[0] / law.sum(), abs=1)
    assert data.GRAPHS["random-256"](tmp_path).edges == pytest.approx(64 * 256 + 192 * 16, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_theory(kind: str) -> None:
    """Edge noise and Gaussian noise err by what they say: ``(cells e^eps)^(1/2)/(e^eps - 1)`` and
    ``(a k/(2 R))^(1/2)``, without bias. Would catch one bit an ordered pair of an undirected graph, noise that
    clipping hides, and a budget that is not divided."""
    of, epsilon, drawn = small(kind, 60), 2.0, 400
    rng = np.random.default_rng(0)
    left, right = rng.random(60) < 0.6, rng.random(60) < 0.6
    truth, cells = of.truth(left, right), len(pairs_of(of, left, right))
    edges = [methods.METHODS["edges"](of, epsilon, 1e-9, 1, seed).answer(left, right)[0] for seed in range(drawn)]
    deviation = math.sqrt(cells * math.exp(epsilon)) / (math.exp(epsilon) - 1)
    assert 6 * deviation < truth < cells - 6 * deviation, "clipping would show"
    assert np.std(edges) == pytest.approx(deviation, rel=0.15)
    assert np.mean(edges) == pytest.approx(truth, abs=5 * deviation / drawn**0.5)
    budget = methods.budget_of(epsilon, 1e-9)
    deviation = math.sqrt(float(budget.order) * 7 / (2 * float(budget.total)))
    values = methods.METHODS["gaussian"](of, epsilon, 1e-9, 7, 0).answers(  # type: ignore[attr-defined]
        np.tile(left, (4000, 1)), np.tile(right, (4000, 1))
    )
    assert np.std(values) == pytest.approx(deviation, rel=0.1)
    assert np.mean(values) == pytest.approx(truth, abs=5 * deviation / 4000**0.5)
    few = methods.METHODS["gaussian-clipped"](of, epsilon, 1e-9, 10**6, 0)
    clipped = [few.answer(left, right)[0] for _ in range(50)]
    assert (min(clipped), max(clipped)) == (0, cells)


@pytest.mark.parametrize("kind", KINDS)
def test_degrees_are_kept(kind: str) -> None:
    """With noise that is next to none, degrees alone, and edges with degrees, have the degrees of the graph; with much
    of edge noise the degrees still come near. Would catch rows corrected by the noise of columns."""
    of = small(kind)
    rows, columns = of.matrix.sum(axis=1), of.matrix.sum(axis=0)
    exact = methods.METHODS["degrees"](of, 500.0, 1e-9, 1, 0).expectation()
    assert exact is not None
    assert exact.sum(axis=1) == pytest.approx(rows, abs=0.5)
    assert exact.sum(axis=0) == pytest.approx(columns, abs=0.5)
    both = methods.METHODS["edges-degrees"](of, 2.0, 1e-9, 1, 0).expectation()
    alone = methods.METHODS["edges"](of, 2.0, 1e-9, 1, 0).expectation()
    assert both is not None
    assert alone is not None
    assert np.isclose(both.sum(axis=1).sum(), both.sum(axis=0).sum(), rtol=1e-4)
    assert not np.array_equal(both, alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["weights", "weights-degrees"])
def test_weights_learn(kind: str, method: str) -> None:
    """A hit moves the hypothesis to the value that was measured; the number of edges is kept, weights of an undirected
    graph stay symmetric, and with noise that is next to none cuts asked again are answered nearly exactly. Would catch
    a pair that is scaled twice, and questions after a hit answered by the hypothesis before it."""
    of = small(kind)
    learning = methods.METHODS[method](of, 300.0, 1e-9, 400, 0)
    assert isinstance(learning, methods.MultiplicativeWeights)
    asked = np.random.default_rng(1)
    lefts, rights = asked.random((2, 40, 40)) < 0.5
    truths = of.truths(lefts, rights)
    first = learning.answers(lefts, rights)
    later = np.array([learning.answer(left, right)[0] for left, right in zip(lefts, rights, strict=True)])
    assert 0 < learning.hits <= learning.UPDATES
    assert benchmark.rooted(first - truths) < 8
    assert benchmark.rooted(later - truths) < 8
    weights = learning.expectation()
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert weights.sum() / (1 + of.undirected) == pytest.approx(of.edges, rel=0.05)
    if of.undirected:
        assert weights == pytest.approx(weights.T, rel=1e-4)
    fresh = methods.METHODS["weights"](of, 1.0, 1e-9, 1, 0)
    assert isinstance(fresh, methods.MultiplicativeWeights)
    held = float(data.cut_sums(fresh.expectation(), lefts[:1], rights[:1], of.undirected)[0])
    fresh._update(lefts[0], rights[0], held, held + 20)
    moved = float(data.cut_sums(fresh.expectation(), lefts[:1], rights[:1], of.undirected)[0])
    assert moved == pytest.approx(held + 20, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_adversary(kind: str) -> None:
    """It never asks twice, cuts of an undirected graph have disjoint sides, it finds the noise of published edges, and
    it moves on when what is published moves. Would catch an adversary that knows nothing, or everything."""
    of = small(kind)
    adversary, published = data.Adversary(of, 0), methods.METHODS["edges"](of, 1.0, 1e-9, 1, 0).expectation()
    known = adversary._twice.sum() / 2 / (1 + of.undirected)
    assert 0.3 * of.edges < known < 0.7 * of.edges
    assert set(np.unique(adversary._twice)) == {0, 2}
    assert not np.any((adversary._twice > 0) & (of.matrix.toarray() == 0))
    cuts = [adversary.choose(published) for _ in range(adversary.QUESTIONS)]
    assert len({(left.tobytes(), right.tobytes()) for left, right in cuts}) == adversary.QUESTIONS
    if of.undirected:
        assert not any(np.any(left & right) for left, right in cuts)
    lefts, rights = (np.array(side) for side in zip(*cuts, strict=True))
    off = np.abs(data.cut_sums(published, lefts, rights, of.undirected) - of.truths(lefts, rights))
    usual = np.sqrt(of.cells(lefts, rights) * math.e) / (math.e - 1)
    assert np.mean(off[:10] / usual[:10]) > 2.5
    following = data.Adversary(of, 0)
    for planted in (slice(0, 12), slice(20, 35)):
        published = following._twice.copy()
        published[planted, planted] += 5
        left, right = following.choose(published)
        found, nodes = int(left[planted].sum()) * int(right[planted].sum()), planted.stop - planted.start
        assert found > (0.2 if of.undirected else 0.9) * nodes**2


def test_scores_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's errors, what intervals hold, and the ratio to the best other method; seeds are put together. Would
    catch a ratio to the policy itself, and answers without an interval counted as misses."""
    monkeypatch.setattr(benchmark, "CELLS", tmp_path / "cells.json")
    found = np.array([[1.0, 0.0, 4.0], [2.0, 1.0, 3.0], [5.0, math.nan, math.nan]])
    score = benchmark.scored(["a", "b", "b"], found, np.array([4.0, 6.0, 5.0]))
    assert score["rmse"] == pytest.approx(math.sqrt(25 / 3))
    assert (score["intervals"], score["inside"], score["half_width"], score["largest"]) == (2, 1, 1.5, 4)
    assert score["kinds"] == pytest.approx({"a": 3, "b": math.sqrt(8)})
    cell = score | {"seconds": 1.0}
    for method, values in (("auto", (3.0, 4.0)), ("zero", (50.0,)), ("gaussian", (10.0,))):
        for seed, rmse in enumerate(values):
            benchmark.store(f"sbm|few|1|{method}|{seed}", cell | {"rmse": rmse})
    (row,) = benchmark.rows(benchmark.load())
    told = dict(zip(benchmark.COLUMNS, row, strict=True))
    assert (told["half"], told["best alternative"], told["zero"], told["edges"]) == ("tuned", "gaussian", 50, None)
    assert told["ratio"] == pytest.approx(math.sqrt(12.5) / 10)
    assert (told["covered"], told["half-width"], told["seconds auto"]) == (0.5, 1.5, 2)
    assert benchmark.summary([row])[-1][3:5] == [1, pytest.approx(math.sqrt(12.5) / 10)]
    assert "| sbm | tuned |" in benchmark.markdown()


@pytest.mark.parametrize("stream", ["few", benchmark.ADVERSARY])
def test_cells(stream: str) -> None:
    """A cell is measured from the graph to the score: saying zero errs by the answers themselves. Would catch answers
    held against those of other questions."""
    of = small("undirected", 30)
    zero = benchmark.measured(of, stream, 1.0, "zero", 0)
    if stream == "few":
        assert zero["rmse"] == pytest.approx(benchmark.rooted(data.made(of, stream, 0).truths))
    exact = benchmark.measured(of, stream, 60.0, "edges", 0)
    assert exact["rmse"] < 0.01 < zero["rmse"]
    assert exact["questions"] == (300 if stream == "few" else data.Adversary.QUESTIONS)


class Exact:
    """Answers the truth, with an interval of a given half-width beside it, and publishes what it was asked."""

    name = "exact"

    def __init__(self, of: data.Graph, questions: int) -> None:
        self.of, self.questions, self.asked = of, questions, 0

    def answer(self, left: np.ndarray, right: np.ndarray) -> data.Answer:
        self.asked += 1
        truth = self.of.truth(left, right)
        return truth, truth + (self.asked % 2) - 0.5, truth + 1.5

    def expectation(self) -> np.ndarray:
        return np.full(self.of.shape, self.asked / self.questions)


@pytest.mark.parametrize("stream", ["few", benchmark.ADVERSARY])
def test_methods_that_answer_one_by_one(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method with intervals is asked every question once, in order, and told how many there are. Would catch
    intervals that are lost, and a number of questions that is not the stream's."""
    made: list[Exact] = []

    def make(of: data.Graph, epsilon: float, delta: float, questions: int, seed: int) -> Exact:
        made.append(Exact(of, questions))
        return made[0]

    monkeypatch.setitem(methods.METHODS, "auto", make)
    cell = benchmark.measured(small("directed", 30), stream, 1.0, "auto", 0)
    assert (cell["rmse"], cell["largest"]) == (0, 0)
    assert cell["questions"] == cell["intervals"] == made[0].questions == made[0].asked
    assert cell["inside"] == cell["questions"] / 2
    assert cell["half_width"] == 0.75
