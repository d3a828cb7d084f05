"""How often intervals hold, in the smallest cells of the table that `python -m benchmarks.research.coverage` makes.

Sessions and releases of the service's own plans, with seeded noise of exactly the stated law. A cell fails where
intervals hold less often than they say by more than chance, over all cells that are looked at here together, and where
they say .95 and hold more often than .995 without a reason. The judge must judge: noise that is larger than is said is
found out.

With other seeds a test would be wrong with probability .01.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from benchmarks.research.coverage import Part, play
from benchmarks.research.coverage_judge import Cell, judged

pytestmark = pytest.mark.statistical

#: What is played: how many times the sessions of the table, and the kinds of questions; None: all that there are.
PLAYED: list[tuple[Part, float, Collection[str] | None]] = [
    (Part("table", "gaussian", "ties", 2.5), 1.0, None),
    (Part("table", "laplace", "ties", 2.5), 1.0, None),
    (Part("graph", "gaussian", "even", 2.5), 1.0, None),
    (Part("matrix", "laplace", "even", 2.5), 1.0, None),
    (Part("table", "few", "ties", 2.5), 0.6, ("one cell", "quantile")),
    (Part("table", "table", "ties", 0.5), 1.0, ("one cell", "marginal")),
    (Part("table", "lift", "ties", 0.5), 0.6, ("quantile",)),
    (Part("table", "lift", "missing", 1.0), 0.6, ("weights", "sum", "mean by", "quantile by")),
    (Part("graph", "histogram", "even", 1.0), 1.0, ("pair",)),
    (Part("table", "contract", "skewed", 1.0), 1.0, ("predicate", "weights")),
    (Part("table", "table, chosen", "even", 0.5), 0.6, None),
    (Part("table", "lift, chosen", "even", 1.0), 0.6, None),
    (Part("graph", "few", "even", 1.0), 1.0, ("total", "pair", "cut")),
    (Part("release", "gaussian", "ties", 0.5), 0.5, None),
]


@pytest.mark.parametrize(("part", "times", "kinds"), PLAYED, ids=lambda value: getattr(value, "name", ""))
def test_intervals_hold(part: Part, times: float, kinds: Collection[str] | None) -> None:
    """Would catch an error that is understated, tails of another law, an interval that ends too early, and one that is
    wider than it need be."""
    assert [(each.fault, each.cell) for each in judged(play(part, times, kinds=kinds))] == []


def test_larger_noise_is_found_out() -> None:
    """A planted fault: noise 30% larger than it is said to be. Would catch a judge that lets everything pass."""
    flagged: list[Cell] = []
    for part, times in ((Part("table", "gaussian", "ties", 2.5), 3.0), (Part("release", "gaussian", "ties", 0.5), 4.0)):
        found = judged(play(part, times, stretch=1.3))
        assert {each.fault for each in found} == {"too seldom"}
        flagged += [each.cell for each in found]
    assert {cell.confidence for cell in flagged} >= {0.8, 0.95}
