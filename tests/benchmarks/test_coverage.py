"""What judges coverage: its tests against the binomial law, its noise against the laws it is said to have, its truths
by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from benchmarks.research import coverage, coverage_data
from benchmarks.research.coverage_judge import Cell, judged
from benchmarks.research.coverage_played import Drawn

pytestmark = pytest.mark.unit


def cell(covered: float, sessions: int = 1000, confidence: float = 0.95, answers: int = 1, **more: Any) -> Cell:
    told = {"kind": "sum", "mode": "gaussian", "interval": "unbiased", "data": "even", "epsilon": 1.0} | more
    return Cell(
        **told,
        confidence=confidence,
        sessions=sessions,
        answers=sessions * answers,
        held=covered * sessions,
        narrower=covered * sessions,
        width=sessions,
        squares=sessions,
    )


def faults(*cells: Cell) -> set[str]:
    return {verdict.fault for verdict in judged(cells)}


def test_what_is_flagged() -> None:
    """Would catch a test that is turned round, one that counts answers in place of sessions, and a reason that is taken
    for granted."""
    assert faults(cell(0.95), cell(0.945, epsilon=0.1)) == set()
    assert faults(cell(0.9)) == {"too seldom"}
    assert faults(cell(0.998)) == {"too often"}
    # As many answers in a tenth of the sessions, or too few sessions to tell.
    assert faults(cell(0.9, sessions=100, answers=10)) == set()
    assert faults(cell(1.0, sessions=50)) == set()
    # Of another confidence it is not asked why.
    assert faults(cell(1.0, confidence=0.99)) == set()
    # Nor of what is cut at a bound.
    assert faults(cell(1.0, data="bound")) == set()
    assert faults(cell(0.9, data="bound")) == {"too seldom"}
    # A model says so of itself; of whole numbers a unit less on either side would hold too seldom.
    assert faults(cell(0.8, interval="model")) == set()
    whole = cell(0.998)
    whole.narrower = 0.9 * whole.sessions
    assert (faults(whole), whole.reason) == (set(), "whole numbers")
    # Intervals that are narrower than their errors are all that may be.
    cut = cell(0.998)
    for each, reason in ((0.9, "all that may be"), (1.1, None)):
        cut.width, cut.squares = each * cut.sessions, 1.0 * cut.sessions
        assert cut.reason == reason


def test_many_small_lacks_are_seen_together() -> None:
    """Cells none of which could be told by itself. Would catch levels that are not put together."""
    several = [cell(0.88, sessions=100, data=f"data {k}", epsilon=k + 0.5) for k in range(12)]
    assert faults(several[0]) == set()
    assert faults(*several) == {"too seldom"}


def test_the_chance_is_the_binomial_law() -> None:
    """Would catch a tail that leaves out what was counted, and parts of sessions that are rounded the wrong way."""
    assert cell(0.93).chance == pytest.approx(binom.cdf(930, 1000, 0.95))
    several = cell(0.9305, answers=8)
    assert several.chance == pytest.approx(math.e * binom.cdf(931, 1000, 0.95))


def test_averages_of_a_session_keep_the_bound() -> None:
    """The largest departure there is: all answers of a session hold or miss together. In 20,000 experiments no more are
    flagged at 1% than 1%. Would catch sessions counted as often as they have answers."""
    rng = np.random.default_rng(5)
    held, times = np.unique(rng.binomial(200, 0.95, 20_000), return_counts=True)
    flagged = [cell(h / 200, sessions=200, answers=5).chance < 0.01 for h in held]
    assert times[flagged].sum() <= 200


@pytest.mark.parametrize(("law", "scale"), [("laplace", 0.6), ("laplace", 7.0), ("gaussian", 0.4), ("gaussian", 9.0)])
def test_noise_has_its_law(law: str, scale: float) -> None:
    """40,000 draws against the law written out. Would catch rounded continuous noise in place of a discrete law, and
    another scale."""
    drawn = getattr(Drawn(np.random.default_rng(2)), law)(scale).take(40_000)
    places = np.arange(-400, 401)
    weights = np.exp(-np.abs(places) / scale if law == "laplace" else -np.square(places / scale) / 2)
    counts = np.array([(drawn == k).sum() for k in places])
    expected = weights / weights.sum() * len(drawn)
    common = expected > 20
    observed = np.append(counts[common], counts[~common].sum())
    assert chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue > 1e-4


def test_truths_by_hand() -> None:
    """Would catch a truth that is taken from what is measured: an edge within both sides that counts twice, missing
    values among the numbers, a quantile of the wrong rank."""
    world = coverage_data.TableWorld((np.array([0, 0, 2]), np.array([1, 1, 0]), np.array([10, 20, 51])), missing=True)
    true = {asked.kind: asked.truth(world).tolist() for asked in coverage_data.COUNTS + coverage_data.STATISTICS}
    assert (true["predicate"], true["range"], true["weights"]) == ([2.0], [2.0], [0.0])
    assert true["marginal"] == [0, 2, 0, 0, 1, 0]
    assert (true["sum"], true["mean"], true["variance"]) == ([30.0], [15.0], [25.0])
    assert true["quantile"] == [10.0, 10.0, 20.0]
    assert true["mean by"][0] == 15.0
    assert math.isnan(true["mean by"][1])
    triangle = coverage_data.GraphWorld(np.array([[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]))
    assert coverage_data.cut("", [0, 1], [0, 1, 2]).truth(triangle).tolist() == [3.0]


def test_a_part_is_the_same_whatever_else_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it another once it was kept. Would catch noise that goes on from one part to the next, so that `--only`
    would tell something else, and numbers read back in another order."""
    part = coverage.Part("table", "gaussian", "tiny", 1.0)
    first = coverage.play(part, 0.02)
    other = coverage.play(coverage.Part("graph", "gaussian", "tiny", 1.0), 0.02)
    assert coverage.play(part, 0.02) == first
    monkeypatch.setattr(coverage, "CELLS", tmp_path / "cells.json")
    coverage.store({"graph/gaussian/tiny/1": other, part.name: first})
    kept = coverage.load()[part.name]
    assert [(c.kind, c.mode, c.data, c.epsilon, c.confidence, c.sessions) for c in kept] == [
        (c.kind, c.mode, c.data, c.epsilon, c.confidence, c.sessions) for c in first
    ]
    assert [c.wide for c in kept] == pytest.approx([c.wide for c in first], rel=1e-4, nan_ok=True)
