"""Noise scales: reference vectors, closed forms, rounding directions."""

import contextlib
import json
import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.privacy.calibration import (
    best_order,
    gru2011_scale,
    jt2012_scale,
    per_hit,
    rdp_scale,
    scale_for_cost,
)
from app.privacy.conversion import epsilon_alone, rdp_budget
from app.privacy.costs import ConditionalRelease, renyi_cost
from app.privacy.errors import InfiniteCost, InvalidBudget

pytestmark = pytest.mark.unit

RELEASES = st.sampled_from(["single", "race"])
COSTS = st.decimals(min_value="1e-15", max_value="50", places=24)
ORDERS = st.decimals(min_value="1.001", max_value="3000", places=3)


def next_below(scale: Decimal) -> Decimal:
    """The next decimal of 15 significant digits downwards."""
    return scale - Decimal(1).scaleb(scale.adjusted() - 14)


@pytest.mark.slow
def test_reference_vectors(shared: Path) -> None:
    """Every scale of the reference vectors to 1e-3. Would catch a wrong order search, cost or
    conversion."""
    rows = json.loads((shared / "vectors" / "calibration.json").read_text())["rows"]
    assert rows
    for row in rows:
        epsilon, delta = Decimal(str(row["epsilon"])), Decimal(str(row["delta"]))
        assert float(rdp_scale(epsilon, delta, row["updates"])) == pytest.approx(row["single_rdp"], rel=1e-3)
        assert float(rdp_scale(epsilon, delta, row["updates"], "race")) == pytest.approx(row["race_rdp"], rel=1e-3)


def test_published_examples() -> None:
    """epsilon 1, delta 1e-6, 100 updates: the four scales that the theory states."""
    one, delta = Decimal(1), Decimal("1e-6")
    assert float(jt2012_scale(one, delta, 100)) == pytest.approx(15202, rel=1e-4)
    assert float(gru2011_scale(one, delta, 100)) == pytest.approx(152018, rel=1e-4)
    assert float(rdp_scale(one, delta, 100)) == pytest.approx(75.15, rel=1e-4)
    assert float(rdp_scale(one, delta, 100, "race")) == pytest.approx(52.76, rel=1e-4)


@given(st.decimals("0.01", 10, places=2), st.integers(2, 20), st.integers(1, 10**6))
def test_papers_scales_are_their_formulas_rounded_up(epsilon: Decimal, digits: int, updates: int) -> None:
    delta = Decimal(1).scaleb(-digits)
    value = 100 * math.sqrt(updates) * math.log(4 / float(delta)) / float(epsilon)
    scale = jt2012_scale(epsilon, delta, updates)
    assert float(scale) == pytest.approx(value, rel=1e-13)
    assert gru2011_scale(epsilon, delta, updates) == pytest.approx(10 * scale, rel=Decimal("1e-13"))
    assert len(scale.normalize().as_tuple().digits) <= 15


@pytest.mark.slow
@given(COSTS, ORDERS, RELEASES)
def test_scale_for_cost_is_the_least_safe_scale(cost: Decimal, order: Decimal, release: str) -> None:
    """The cost at the scale is at most the one asked for, and at the next smaller scale above it.

    Would catch a search that ends on the unsafe side, or lazily far on the safe one.
    """
    scale = scale_for_cost(cost, order, release)
    assert renyi_cost(ConditionalRelease(scale, release), order) <= cost
    if scale == Decimal(1) / 64:
        return
    with contextlib.suppress(InfiniteCost):
        assert renyi_cost(ConditionalRelease(next_below(scale), release), order) > cost


@pytest.mark.slow
@settings(max_examples=10)
@given(st.decimals("0.05", 8, places=2), st.integers(3, 15), st.integers(1, 5000), RELEASES)
def test_rdp_scale_is_safe_and_no_order_does_better(epsilon: Decimal, digits: int, updates: int, release: str) -> None:
    """At the scale returned the guarantee holds at its order; with 0.1% less noise it holds at none."""
    delta = Decimal(1).scaleb(-digits)
    scale = rdp_scale(epsilon, delta, updates, release)
    order = best_order(epsilon, delta, updates, release, digits=4)
    assert updates * renyi_cost(ConditionalRelease(scale, release), order) <= rdp_budget(epsilon, delta, order)
    less = scale * Decimal("0.999")
    assert epsilon_alone([(ConditionalRelease(less, release), updates)], delta)[0] > epsilon


@pytest.mark.slow
@settings(max_examples=5)
@given(st.decimals("0.05", 5, places=2), st.integers(1, 2000), RELEASES)
def test_more_updates_or_less_epsilon_need_more_noise(epsilon: Decimal, updates: int, release: str) -> None:
    delta = Decimal("1e-7")
    scale = rdp_scale(epsilon, delta, updates, release)
    assert rdp_scale(epsilon, delta, updates + max(1, updates // 10), release) > scale
    assert rdp_scale(epsilon * Decimal("0.9"), delta, updates, release) > scale
    assert rdp_scale(epsilon, delta / 2, updates, release) > scale


@given(st.decimals("1e-6", 100, places=24), st.integers(1, 10**6))
def test_hits_together_stay_within_the_total(total: Decimal, updates: int) -> None:
    each = per_hit(total, updates)
    quantum = Decimal("1e-24")
    exact = int(total / quantum), int(each / quantum)
    assert exact[1] * updates <= exact[0] < (exact[1] + 1) * updates


@pytest.mark.parametrize("cost", [Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("1e-25"), 0.5])
def test_costs_without_meaning_are_refused(cost: Decimal) -> None:
    with pytest.raises(InvalidBudget):
        scale_for_cost(cost, Decimal(20), "single")


@pytest.mark.parametrize("updates", [0, -1, True, 1.5])
def test_update_counts_without_meaning_are_refused(updates: int) -> None:
    with pytest.raises(InvalidBudget):
        rdp_scale(Decimal(1), Decimal("1e-6"), updates)


def test_a_budget_below_every_order_says_what_to_change() -> None:
    with pytest.raises(InvalidBudget, match="raise epsilon or delta"):
        rdp_scale(Decimal("1e-12"), Decimal("1e-300"), 100)
