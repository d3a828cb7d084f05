"""What a session buys for counts by a hierarchy: held against the leaves alone and against equal levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts, counts_in
from app.measurements.record import Measurement, serving
from app.measurements.strategies.hierarchy import Hierarchy
from app.measurements.strategies.tables import Part, TableStrategy
from app.policies.table import Bought, Funds, Policy, Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Nested
from benchmarks.research.hierarchies import TREES, question_of

pytestmark = pytest.mark.unit

ORDER, SHARE = 30.0, 0.02


def policy(question: Nested, known: list[Counts] | None = None, **words: Any) -> Policy:
    """Of a session on a table of this attribute, and others that make it too large to be measured whole."""
    residuals = Residuals((question.sizes[0], 4000, 3000))
    for counts in known or []:
        residuals.add(counts)
    funds: dict[str, Any] = {"order": ORDER, "renyi": SHARE, "epsilon": 1.0, "pure": False, "questions": 20}
    return Policy(residuals, Funds(**(funds | words)))


def squares(of: Policy, question: Nested, wanted: Wanted) -> float:
    after = of.residuals.variances_after(question, wanted.strategy, wanted.noise.variance)
    return float(after.sum())


def equal(question: Nested) -> TableStrategy:
    return Hierarchy(tuple(Part(part.marginal) for part in question.parts))


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 3])
@pytest.mark.parametrize("mode", ["lift", "laplace"])
@pytest.mark.parametrize("name", TREES)
def test_no_worse_than_leaves_and_equal_levels_at_the_same_price(name: str, mode: str, gamma: int) -> None:
    """Over all nodes, by their variances, and within the share. Catches a tree where the leaves alone are better, and
    the leaves where the tree is."""
    question = question_of(TREES[name])
    of = policy(question, pure=mode == "laplace", questions=2 if mode == "laplace" else 20, gamma=gamma)
    assert of.mode == mode
    left = 1.0 if of.pure else SHARE
    prediction, wanted = of.decide(question, left)
    assert wanted is not None
    assert prediction.standard_error == 0
    price = of.price(wanted.noise, wanted.strategy.sensitivity)
    assert price <= left
    leaves = TableStrategy.of(question.marginal_of(of.residuals.sizes))
    for other in (leaves, equal(question)):
        noise = of.noise(price * (1 + 1e-6), other.sensitivity)
        assert noise is not None
        assert squares(of, question, wanted) <= squares(of, question, Wanted(other, noise)) * 1.003


def test_what_is_known_helps_and_decides() -> None:
    """With the tree measured well nothing is bought. Catches a choice by the tree alone."""
    question = question_of(TREES["50 of 60"])
    of = policy(question)
    _, first = of.decide(question, SHARE)
    assert first is not None
    noise = Noise(first.noise.kind, first.noise.scale / 50, 0)
    told = counts_in(Measurement(first.strategy, noise, np.zeros(first.strategy.cells, np.int64)))
    prediction, again = policy(question, list(told)).decide(question, SHARE)
    assert again is None
    assert prediction.standard_error > 0


@pytest.mark.slow
def test_accuracy_first_buys_the_cheapest_that_is_enough() -> None:
    """Catches a strategy that is taken though another gets there for less."""
    question = question_of(TREES["50 of 60"])
    of = policy(question, renyi=50.0)
    _, wanted = of.decide(question, 50.0, within=30.0)
    assert wanted is not None
    reaches = of.residuals.reaches_after(question, wanted.strategy, wanted.noise, 0.95)
    assert 29 < reaches.max() <= 30
    paid = of.price(wanted.noise, wanted.strategy.sensitivity)
    for other in (TableStrategy.of(question.marginal_of(of.residuals.sizes)), *serving(question)):
        cheaper = of.noise(paid * 0.98, other.sensitivity)
        assert cheaper is not None
        assert of.residuals.reaches_after(question, other, cheaper, 0.95).max() > 30


def test_what_was_bought_is_shown_as_it_adds_up() -> None:
    """Values below zero stay, and sums are those of what is shown. Catches a value that is cut or drawn to a fit, and
    an interval that begins below what is possible without the value being there."""
    question = question_of(TREES["4 of 100"])
    of = policy(question, questions=5)
    prediction, wanted = of.decide(question, SHARE)
    assert wanted is not None
    rng = np.random.default_rng(1)
    units = np.rint(rng.normal(0, float(wanted.noise.scale), wanted.strategy.cells)).astype(np.int64)
    bought = Bought(prediction, counts_in(Measurement(wanted.strategy, wanted.noise, units)))
    of.record(question, bought)
    shown = of.shown(question, bought, 0.95)
    assert (shown.values < 0).any()
    assert (shown.lows >= np.minimum(shown.values, 0)).all()
    np.testing.assert_allclose(shown.values, of.residuals.unbiased(question).values)
    leaves = shown.values[question.nodes[:, 0] == 1]
    sums = Cells(Marginal.of((400,), {0: question.levels[0]})).of(leaves, [Partition.singles(400)])
    np.testing.assert_allclose(sums, shown.values[question.nodes[:, 0] == 0])
    adaptive = of.shown(question, None, 0.95, adaptive=True)
    assert (adaptive.highs >= shown.highs).all()
