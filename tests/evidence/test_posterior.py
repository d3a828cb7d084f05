"""Posterior variances against the inverse of the full precision matrix."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables import posterior
from app.estimation.tables.posterior import Posterior, incidence
from app.estimation.tables.restrictions import Values
from app.spaces.partition import Marginal

pytestmark = pytest.mark.unit


def known(rng: np.random.Generator, cells: int, counts: list[int]) -> list[Values]:
    """Values of sets of cells, each division of all of them into so many; as many as there are cells is each by itself,
    in any order."""
    found = []
    for count in counts:
        labels = rng.permutation(cells) if count == cells else rng.permutation(np.arange(cells) % count)
        found.append(Values(Marginal((), (), ()), labels, np.zeros(count), rng.uniform(0.5, 50, count)))
    return found


def covariance(prior: np.ndarray, values: list[Values], exact: bool) -> np.ndarray:
    precision = np.diag(1 / prior)
    for v in values:
        rows = np.eye(len(v.values))[:, v.labels]
        precision += rows.T @ np.diag(1 / v.variances) @ rows
    result = np.linalg.inv(precision)
    if exact:
        whole = result.sum(axis=1)
        result -= np.outer(whole, whole) / whole.sum()
    return result


@given(st.integers(0, 10**6), st.lists(st.sampled_from([2, 3, 5, 12]), max_size=6), st.booleans())
def test_variances_of_sums_and_groups(seed: int, counts: list[int], exact: bool) -> None:
    """With fewer values than cells and more, values of single cells, and a known total. Would catch either system set
    up wrongly, and a total that is conditioned on before or twice."""
    rng = np.random.default_rng(seed)
    prior, values = rng.uniform(1, 1000, 12), known(rng, 12, counts)
    asked, expected = Posterior(prior, values, exact=exact), covariance(prior, values, exact)
    weights, labels = rng.normal(size=12), rng.integers(0, 4, 12)
    assert asked.of_sum(weights) == pytest.approx(weights @ expected @ weights, rel=1e-8, abs=1e-8)
    groups = np.eye(4)[labels].T
    assert asked.of_groups(labels, 4) == pytest.approx(np.diag(groups @ expected @ groups.T), rel=1e-8, abs=1e-8)


def test_what_is_left_out_makes_variances_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the least certain values go. Would catch a bound that is told too small, and certain values
    thrown away first."""
    rng = np.random.default_rng(1)
    prior, values = rng.uniform(1, 1000, 12), known(rng, 12, [3, 4, 5, 3])
    values.append(Values(Marginal((), (), ()), np.arange(12) % 2, np.zeros(2), np.full(2, 0.01)))
    whole = Posterior(prior, values, exact=False)
    monkeypatch.setattr(posterior, "MOST_ROWS", 8)
    part = Posterior(prior, values, exact=False)
    for weights in np.eye(12):
        assert part.of_sum(weights) >= whole.of_sum(weights) - 1e-9
    even = (np.arange(12) % 2 == 0).astype(float)
    assert part.of_sum(even) < 0.01


def test_incidence() -> None:
    values = known(np.random.default_rng(2), 6, [2, 3])
    dense = incidence(values, 6).toarray()
    assert np.array_equal(dense, np.concatenate([np.eye(2)[:, values[0].labels], np.eye(3)[:, values[1].labels]]))


def exactly(prior: np.ndarray, values: list[Values], exact: bool, weights: np.ndarray) -> list[float]:
    """Variances of sums in numbers of 120 digits."""
    with mpmath.workdps(120):
        precision = mpmath.diag([1 / mpmath.mpf(float(each)) for each in prior])
        for v in values:
            for label, variance in enumerate(v.variances):
                inside = np.flatnonzero(v.labels == label)
                for i in inside:
                    for j in inside:
                        precision[int(i), int(j)] += 1 / mpmath.mpf(float(variance))
        result = precision**-1
        found = []
        ones = mpmath.matrix([1] * len(prior))
        for column in weights.T:
            w = mpmath.matrix(column.tolist())
            variance = (w.T * result * w)[0]
            if exact:
                variance -= (w.T * result * ones)[0] ** 2 / (ones.T * result * ones)[0]
            found.append(float(variance))
        return found


@settings(max_examples=60)
@pytest.mark.parametrize("most", [13, 20])
@given(st.integers(0, 10**6), st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.booleans())
def test_counts_of_which_next_to_nothing_was_known(most: int, seed: int, counts: list[int], exact: bool) -> None:
    """Of cells of up to 10^10 records beside cells of none, which values tell to a record. Would catch a variance that
    rounding leaves next to none of, and a system that it leaves without a factor: no variance is less than the true
    one. Of up to a million records none is more either."""
    rng = np.random.default_rng(seed)
    prior, values = 10 ** rng.uniform(-2, most, 6), known(rng, 6, counts)
    asked, weights = Posterior(prior, values, exact=exact), np.eye(6)
    weights = np.concatenate([weights, rng.integers(0, 2, (6, 3))], axis=1)
    true = np.array(exactly(prior, values, exact, weights))
    found = asked.of_sums(weights)
    assert (found >= true * (1 - 1e-3)).all()
    assert (found <= 1.001 * (true if most == 13 else weights.T**2 @ prior) + 1e-6).all()
