"""The demonstration judges answers by a truth of its own, held here against the files it sends."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from app.declarations.spec import parse_spec
from app.demo.analysts import Told, degree_cuts, drill_down, group_cuts, grow_cuts, spectral_cuts
from app.demo.data import Flags, Table, adult, census, communities, email_eu_core, imbalanced_bipartite

pytestmark = pytest.mark.unit


def matching(table: Table, where: dict[str, tuple[int, int]]) -> int:
    """How many rows of the file sent satisfy a predicate, read as the declaration says: one row at a time."""
    declared = {item["name"]: item for item in table.spec["attributes"]}

    def cell(name: str, text: str) -> int:
        attribute = declared[name]
        if "size" in attribute:
            return int(text)
        if "values" in attribute:
            return int(attribute["values"].index(text))
        edges = attribute["edges"]
        return next(i for i in range(len(edges) - 1) if edges[i] <= float(text) < edges[i + 1])

    rows = csv.DictReader(io.StringIO(table.file.decode()))
    return sum(all(low <= cell(name, row[name]) < high for name, (low, high) in where.items()) for row in rows)


def test_census_is_what_it_says() -> None:
    table = census(7)
    assert table.records == 50_000
    assert len(table.axes) >= 6
    assert 90_000 <= table.cells <= 110_000
    parse_spec(table.spec)
    np.testing.assert_array_equal(census(7).codes, table.codes)
    assert (census(8).codes != table.codes).any()


def test_census_truth_is_that_of_its_file() -> None:
    """A code that the file and the truth understand differently would look like the curator's error."""
    table = census(7, records=800)
    analyst = drill_down(table.axes, table.records, np.random.default_rng(0))
    where = next(analyst)
    for step in range(250):
        if step % 10 == 0:
            assert table.truth(where) == matching(table, where)
        where = analyst.send(float(table.truth(where)))


def test_census_is_correlated() -> None:
    """On independent attributes every drill-down would be a waste of queries: schooling must move incomes."""
    table = census(7)
    column = {axis.name: table.codes[:, i] for i, axis in enumerate(table.axes)}
    low, high = column["education"] <= 1, column["education"] >= 6
    assert column["income"][high].mean() > column["income"][low].mean() + 0.5


def test_imbalanced_graph_is_the_papers() -> None:
    """JT12, section 4.1: V^(3/4) left nodes joined to all right ones, the others of degree V^(1/2)."""
    graph = imbalanced_bipartite(7)
    degrees = Counter(graph.adjacency.sum(axis=1).tolist())
    assert degrees == {256: 64, 16: 192}
    parse_spec(graph.spec)
    sent = {tuple(map(int, line.split())) for line in graph.file.decode().splitlines()}
    assert sent == set(zip(*np.nonzero(graph.adjacency), strict=True))


def test_communities_are_denser_than_what_is_between_them() -> None:
    """Of a graph without communities cuts by groups would be like any others."""
    graph, groups = communities(7)
    same = groups[:, None] == groups
    assert graph.adjacency[same].mean() > 5 * graph.adjacency[~same].mean()
    assert not graph.adjacency.diagonal().any()
    parse_spec(graph.spec)
    sent = {tuple(map(int, line.split())) for line in graph.file.decode().splitlines()}
    assert sent == set(zip(*np.nonzero(graph.adjacency), strict=True))


def test_adult_truth_is_that_of_its_file(shared: Path) -> None:
    table = adult(shared / "data" / "adult-pgm")
    assert table.cells >= 10**6
    where = {"sex": (1, 2), "education-num": (8, 16), "income>50K": (1, 2)}
    assert table.truth(where) == matching(table, where) > 0


def test_email_has_no_loops(shared: Path) -> None:
    """25,571 edges, 642 of them loops, says the data's own page."""
    graph = email_eu_core(shared / "data" / "email-Eu-core")
    assert graph.edges == 25_571 - 642
    assert graph.adjacency.shape == (1005, 1005)


class TestAnalysts:
    @pytest.mark.parametrize("flip", [False, True])
    def test_drill_down_depends_on_the_answers(self, flip: bool) -> None:
        """Worlds that differ in their answers must lead to different questions, else nothing adapts."""
        table = census(7, records=1000)

        def questions(distort: float) -> list[dict[str, tuple[int, int]]]:
            analyst = drill_down(table.axes, table.records, np.random.default_rng(0))
            where, found = next(analyst), []
            for _ in range(300):
                found.append(where)
                where = analyst.send(table.truth(where) * (distort if "sex" in where else 1.0))
            return found

        assert (questions(1.0) == questions(3.0 if flip else 1.0)) is not flip

    def test_drill_down_never_asks_twice(self) -> None:
        table = census(7, records=1000)
        analyst = drill_down(table.axes, table.records, np.random.default_rng(0))
        where, seen = next(analyst), Counter[tuple[tuple[str, tuple[int, int]], ...]]()
        for _ in range(2000):
            seen[tuple(sorted(where.items()))] += 1
            where = analyst.send(float(table.truth(where)))
        assert seen.most_common(1)[0][1] == 1

    def test_drill_down_goes_on_when_everything_was_asked(self) -> None:
        """A tiny domain has fewer predicates than the demonstration has questions."""
        axes = census(7, records=10).axes[1:2]
        analyst = drill_down(axes, 10, np.random.default_rng(0))
        next(analyst)
        assert all(analyst.send(5.0) for _ in range(20))

    def test_cuts_grow_towards_the_dense_block(self) -> None:
        """With true answers the hunt must find the block of full density: else it is a random walk."""
        graph = imbalanced_bipartite(7)
        density = graph.edges / 256**2
        analyst = grow_cuts(256, 256, np.random.default_rng(0))
        left, right = next(analyst)
        best = 0.0
        for _ in range(600):
            answer = float(graph.truth(left, right))
            best = max(best, answer - density * left.sum() * right.sum())
            left, right = analyst.send(answer)
        # The largest there is: all 64 full rows, whose every pair is an edge.
        assert best > 0.8 * 64 * 256 * (1 - density)


class TestCuts:
    def test_degree_cuts_take_the_nodes_of_a_range(self) -> None:
        """Thresholds of a side must be its own: on either side the nodes chosen have larger degrees than all others, or
        smaller ones."""
        rng = np.random.default_rng(0)
        degrees = rng.permutation(np.arange(50.0)), rng.permutation(np.arange(40.0))
        analyst = degree_cuts(degrees, rng)
        for _ in range(50):
            for side, chosen in zip(degrees, next(analyst), strict=True):
                assert 0 < chosen.sum() < len(side)
                above = side[chosen].min() > side[~chosen].max()
                assert above or side[chosen].max() < side[~chosen].min()

    def test_group_cuts_split_no_group(self) -> None:
        """A group that is cut in two would make it a question like any random one."""
        groups = np.arange(60) % 8
        analyst = group_cuts(groups, np.random.default_rng(0))
        for _ in range(50):
            for chosen in next(analyst):
                shares = np.array([chosen[groups == group].mean() for group in range(8)])
                assert set(shares) <= {0.0, 1.0}
                assert 2 <= shares.sum() <= 4

    def test_what_was_told_is_what_the_guess_says(self) -> None:
        """After an answer the guess of its cut is the answer, before it that of degrees; other cuts are left alone."""
        graph, groups = communities(7, nodes=100)
        degrees = graph.adjacency.sum(axis=1, dtype=np.float64), graph.adjacency.sum(axis=0, dtype=np.float64)
        told, some = Told(degrees), groups < 4

        def by_degrees(left: Flags, right: Flags) -> float:
            return float(degrees[0][left].sum() * degrees[1][right].sum() / graph.edges)

        assert told.guess(some, some) == pytest.approx(by_degrees(some, some))
        told.learn(some, some, by_degrees(some, some) + 100)
        assert told.guess(some, some) == pytest.approx(by_degrees(some, some) + 100)
        assert told.guess(~some, some) == pytest.approx(by_degrees(~some, some))

    def test_spectral_cuts_find_what_answers_have_told(self) -> None:
        """A dense block that answers told of must come up: else singular vectors are no better than chance."""
        told, rng = Told((np.full(60, 5.0), np.full(60, 5.0))), np.random.default_rng(0)
        block = np.arange(60) < 15
        told.learn(block, block, 200.0)
        cuts = spectral_cuts(told, rng)
        best = max(left[:15].mean() - left[15:].mean() for left, _ in (next(cuts) for _ in range(30)))
        assert best > 0.9
