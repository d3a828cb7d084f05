"""Hierarchies as strategies: what they are of, how they are written, and which of them serve a question."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest

from app.measurements.noise import Noise
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase, read_strategy, serving
from app.measurements.strategies.hierarchy import Hierarchy
from app.measurements.strategies.tables import Part, TableStrategy
from app.privacy.costs import DiscreteLaplaceAnswer, renyi_cost
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Nested
from app.spaces.table import TableSpace

pytestmark = pytest.mark.unit

SIZES = (5, 3)
SPACE = TableSpace("table", SIZES, ("place", "sex"), 100)
COARSE, FINE = Partition.of(np.array([0, 0, 1, 1, 2])), Partition.of(np.array([0, 0, 1, 2, 3]))
DATA = CountsTensor(np.arange(15).reshape(SIZES))


def marginals(*levels: Partition | None, beside: bool = False) -> list[Marginal]:
    rest: dict[int, Partition | None] = {1: None} if beside else {}
    return [Marginal.of(SIZES, {0: level, **rest}) for level in levels]


def tree(*multipliers: int, beside: bool = False) -> Hierarchy:
    every = marginals(COARSE, FINE, None, beside=beside)
    return Hierarchy(tuple(Part(m, multiplier=times) for m, times in zip(every, multipliers, strict=True)))


def test_each_level_costs_what_a_marginal_does() -> None:
    """Of equal multipliers the levels cost as many times the price of one, in both sums of the ledger. Catches the
    price of a sum of all that moves, which is more, and of one level, which is less."""
    noise, order = Noise("laplace", Decimal("6.5"), 0), Decimal(20)
    price = Purchase.at(tree(1, 1, 1), noise, Adjacency(3), order).price
    one = Purchase.at(TableStrategy.of(marginals(None)[0]), noise, Adjacency(3), order).price
    assert price.renyi == 3 * one.renyi
    assert one.pure is not None
    assert price.pure == 3 * one.pure
    assert one.renyi == renyi_cost(DiscreteLaplaceAnswer(13 / Decimal(2), 3), order)  # type: ignore[arg-type]
    gaussian = Purchase.at(tree(1, 2, 3), Noise("gaussian", Decimal(10), 0), Adjacency(2), order).price
    assert gaussian.pure is None
    assert float(gaussian.renyi) == pytest.approx(20 * 4 * (1 + 4 + 9) / (2 * 100))


def test_it_counts_level_by_level() -> None:
    """Each level by itself, times its multiplier. Catches levels in another order."""
    counts = np.arange(15).reshape(SIZES).sum(axis=1)
    expected = [counts[:2].sum(), counts[2:4].sum(), counts[4]]
    expected += [2 * n for n in (counts[:2].sum(), counts[2], counts[3], counts[4])] + [3 * n for n in counts]
    assert tree(1, 2, 3).exact(SPACE, DATA).tolist() == expected


@pytest.mark.parametrize("beside", [False, True])
def test_it_is_written_read_and_shown(beside: bool) -> None:
    strategy = tree(1, 2, 3, beside=beside)
    noise = Noise("gaussian", Decimal("2.5"), 0)
    measured = Measurement(strategy, noise, np.arange(strategy.cells))
    document = json.loads(json.dumps(measured.document()))
    assert read_strategy(document) == strategy
    assert isinstance(Measurement.read(document).strategy, Hierarchy)
    told = strategy.describe(SPACE)
    assert (told["type"], told["attribute"], told["levels"]) == ("hierarchy", "place", [3, 4, 5])
    assert told["cells"] == strategy.cells == 12 * (3 if beside else 1)
    strategy.check(SPACE)
    with pytest.raises(ValueError, match="attributes"):
        strategy.check(TableSpace("table", (6, 3), ("place", "sex"), 100))


@pytest.mark.parametrize(
    "parts",
    [
        [marginals(None)[0]],
        [*marginals(None), *marginals(COARSE)],
        [*marginals(COARSE, None), *marginals(None)],
        [*marginals(COARSE), Marginal.of(SIZES, {1: None})],
        [*marginals(Partition.of(np.array([0, 1, 0, 1, 1])), FINE)],
        [*marginals(COARSE), *marginals(None, beside=True)],
        [Marginal.of(SIZES, {0: COARSE, 1: Partition.of(np.array([0, 1, 1]))}), *marginals(None, beside=True)],
    ],
    ids=["one level", "backwards", "twice", "another attribute", "across", "one more attribute", "two attributes"],
)
def test_what_is_no_tree_is_refused(parts: list[Marginal]) -> None:
    """Catches a record that says to be a hierarchy, and is any list of marginals."""
    with pytest.raises(ValueError, match="level"):
        Hierarchy(tuple(map(Part, parts)))
    with pytest.raises(ValueError, match="level"):
        read_strategy({"hierarchy": [Part(marginal).document() for marginal in parts]})


def test_it_serves_questions_of_nodes_alone() -> None:
    """With as many levels as there are, and equal parts of the price among those that are offered."""
    nodes = np.array([[0, 0], [2, 0], [2, 1]])
    question = Nested(marginals(None, beside=True)[0], 0, (COARSE, FINE, Partition.singles(5)), nodes)
    found = serving(question)
    assert {type(each) for each in found} == {Hierarchy}
    assert [part.multiplier for part in found[0].parts] == [1, 1, 1]
    for each in found:
        assert [part.marginal for part in each.parts] == marginals(COARSE, FINE, None, beside=True)
        multipliers = [part.multiplier for part in each.parts]
        assert multipliers == sorted(multipliers)
    assert serving(Cells(marginals(None)[0])) == []
    assert serving(Nested(marginals(None)[0], 0, (Partition.singles(5),), np.array([[0, 1]]))) == []
