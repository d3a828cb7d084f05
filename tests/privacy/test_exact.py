"""The dynamic program: reference vectors, a slow plain oracle, an adversary from below."""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import app.privacy.exact as module
from app.privacy.calibration import rdp_scale
from app.privacy.errors import InvalidBudget
from app.privacy.exact import delta_of, exact_scale

pytestmark = pytest.mark.unit


@pytest.mark.slow
def test_reference_vectors(shared: Path) -> None:
    rows = json.loads((shared / "vectors" / "calibration.json").read_text())["rows"]
    assert rows
    for row in rows:
        epsilon, delta = Decimal(str(row["epsilon"])), Decimal(str(row["delta"]))
        assert float(exact_scale(epsilon, delta, row["updates"])) == pytest.approx(row["single_exact"], rel=2e-3)


def test_published_example() -> None:
    assert float(exact_scale(Decimal(1), Decimal("1e-6"), 100)) == pytest.approx(69.28, rel=1e-4)


def plain(e0: float, updates: int, epsilon: float, reach: int) -> mpmath.mpf:
    """The recursion as it is written, value iteration from below in 30 digits, cell by cell."""
    with mpmath.workdps(30):
        rate = mpmath.mpf(e0)
        s = 1 / (1 + mpmath.exp(rate))
        cells = range(-reach, reach + 1)
        before = {n: max(mpmath.mpf(0), 1 - mpmath.exp(mpmath.mpf(epsilon) - rate * n)) for n in cells}
        before[-reach - 1], before[reach + 1] = mpmath.mpf(0), before[reach]
        for _ in range(updates):
            after = dict(before)
            for _ in range(110):
                change = mpmath.mpf(0)
                for n in cells:
                    value = max((1 - s) * after[n + 1] + s * before[n - 1], s * after[n - 1] + (1 - s) * before[n + 1])
                    change = max(change, value - after[n])
                    after[n] = value
                if change < mpmath.mpf("1e-25"):
                    break
            before = after
        return before[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("e0", "updates", "epsilon"),
    [(0.25, 1, 0.6), (0.25, 3, 1.0), (1.5, 2, 3.25)],
)
def test_the_program_is_the_recursion_from_above(e0: float, updates: int, epsilon: float) -> None:
    """Never below the plain recursion, above it by less than 1e-6: catches a wrong recursion."""
    truth = plain(e0, updates, epsilon, 90)
    value = delta_of(Fraction(e0), updates, Fraction(epsilon))
    assert truth <= value <= truth * (1 + mpmath.mpf("1e-6")) + mpmath.mpf("1e-18")


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.02, 2), st.integers(1, 30), st.floats(0.1, 6))
def test_a_stationary_adversary_stays_below(e0: float, updates: int, epsilon: float) -> None:
    """Randomised response until `updates` hits: negative binomially many misses, loss +e0 each, -e0 a hit.

    Its delta is exact by summation; an upper bound below it would be no bound.
    """
    with mpmath.workdps(40):
        rate, eps = mpmath.mpf(e0), mpmath.mpf(epsilon)
        s = 1 / (1 + mpmath.exp(rate))
        delta = mpmath.mpf(0)
        for misses in range(6000):
            loss = rate * (misses - updates)
            # Misses keep 1-s under P and s under Q.
            mass = mpmath.binomial(misses + updates - 1, misses) * (1 - s) ** misses * s**updates
            if loss > eps:
                delta += mass * (1 - mpmath.exp(eps - loss))
                if mass < mpmath.mpf("1e-30") and misses > updates:
                    break
    bound = delta_of(Fraction(e0), updates, Fraction(epsilon))
    assert bound >= delta
    assert 0 < bound <= 1


@settings(max_examples=20)
@given(
    st.fractions(Fraction(1, 200), 2, max_denominator=1000),
    st.integers(1, 60),
    st.fractions(Fraction(1, 10), 4),
)
def test_delta_rises_with_rate_and_updates_and_falls_with_epsilon(
    e0: Fraction, updates: int, epsilon: Fraction
) -> None:
    here = delta_of(e0, updates, epsilon)
    slack = 1 + 1e-7
    assert delta_of(e0 * Fraction(11, 10), updates, epsilon) * slack >= here
    assert delta_of(e0, updates + 1, epsilon) * slack >= here
    assert delta_of(e0, updates, epsilon * Fraction(11, 10)) <= here * slack


def test_a_wider_array_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truncation is from above and far away."""
    narrow = delta_of(Fraction(1, 50), 60, 1)
    monkeypatch.setattr(module, "_TAIL", 200)
    wide = delta_of(Fraction(1, 50), 60, 1)
    assert narrow == pytest.approx(wide, rel=1e-6)


def test_truncating_too_early_errs_upwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safety does not rest on the reach: cut right behind the start the bound is loose, never low."""
    truth = delta_of(Fraction(1, 10), 20, 1)
    for reach in (12, 20, 40):
        monkeypatch.setattr(module, "reach", lambda *_, cells=reach: cells)
        assert delta_of(Fraction(1, 10), 20, 1) >= truth * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=4)
@given(st.decimals("0.2", 4, places=1), st.integers(4, 12), st.integers(1, 150))
def test_the_scale_is_on_the_safe_side_and_tight(epsilon: Decimal, digits: int, updates: int) -> None:
    delta = Decimal(1).scaleb(-digits)
    scale = Fraction(exact_scale(epsilon, delta, updates))
    assert delta_of(1 / scale, updates, epsilon) <= float(delta)
    assert delta_of(1 / (scale * (1 - Fraction(3, 10**5))), updates, epsilon) > float(delta)
    assert scale <= Fraction(rdp_scale(epsilon, delta, updates)) * (1 + Fraction(1, 10**6))


def test_the_scale_has_a_floor() -> None:
    """However weak the guarantee, no noise below gamma/16 is given."""
    assert exact_scale(Decimal(1000), Decimal("0.999999999"), 1) == Decimal("0.0625")


def test_a_thousand_updates_take_seconds() -> None:
    """No loop over losses: one evaluation is about a tenth of a second here."""
    assert 0 < delta_of(Fraction(1, 198), 1000, 1) < 1e-5


@pytest.mark.parametrize(
    ("rate", "updates", "epsilon"),
    [
        (0, 1, 1),
        (-1, 1, 1),
        (17, 1, 1),
        (0.5, 1, 1),
        (1, 0, 1),
        (1, 5001, 1),
        (1, 1, 0),
        (Fraction(1, 10**9), 1, 10),
    ],
)
def test_parameters_without_meaning_are_refused(rate: Fraction, updates: int, epsilon: int) -> None:
    with pytest.raises(InvalidBudget):
        delta_of(rate, updates, epsilon)


def test_arrays_are_left_alone_between_calls() -> None:
    """Two evaluations in a row agree to the bit: no state is shared."""
    values = [delta_of(Fraction(1, 30), 25, 1) for _ in range(2)]
    assert np.all(np.array(values) == values[0])
