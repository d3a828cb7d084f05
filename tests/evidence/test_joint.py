"""Numbers that are known together, against the unbiased weights of least variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables.joint import Joint, pooled, sharpened
from tests.evidence.tables import least_variance

pytestmark = pytest.mark.unit

NUMBERS = 3


@st.composite
def sources(draw: st.DrawFn) -> list[Joint]:
    """What some sources tell of three numbers of a few groups: some of them or none, with noise of any rank."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups, found = draw(st.integers(1, 4)), []
    truth = rng.normal(0, 5, (groups, NUMBERS))
    for _ in range(draw(st.integers(1, 4))):
        values, covariances = np.full((groups, NUMBERS), np.nan), np.full((groups, NUMBERS, NUMBERS), np.nan)
        for group in range(groups):
            told = [k for k in range(NUMBERS) if draw(st.booleans())]
            # Of less than full rank a number follows from others, or is known exactly.
            root = rng.normal(0, 1, (len(told), draw(st.integers(0, NUMBERS))))
            values[group, told] = truth[group, told] + root @ rng.normal(0, 1, root.shape[1])
            covariances[np.ix_([group], told, told)] = root @ root.T
        found.append(Joint(values, covariances))
    return found


@settings(max_examples=60, deadline=None)
@given(sources())
def test_what_sources_tell_together(told: list[Joint]) -> None:
    """Would catch a source that is counted twice or left out, one whose numbers are taken for independent, a number
    that only some tell and is not known better by what others tell of its neighbours, and inverses of nothing."""
    found = pooled(told)
    for group in range(len(found.values)):
        known = [(np.flatnonzero(t.known[group]), t.values[group], t.covariances[group]) for t in told]
        lists = [(own.tolist(), y[own], v[np.ix_(own, own)]) for own, y, v in known]
        values, covariance = least_variance(lists)
        assert found.values[group] == pytest.approx(values, rel=1e-5, abs=1e-5, nan_ok=True)
        assert found.covariances[group] == pytest.approx(covariance, rel=1e-5, abs=1e-5, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(sources(), st.lists(st.sampled_from([0.25, 4.0, np.inf]), min_size=NUMBERS, max_size=NUMBERS))
def test_what_is_told_once_more(told: list[Joint], bought: list[float]) -> None:
    """Against the same numbers pooled as sources. Would catch a purchase that tells nothing of what goes with it."""
    before = told[0]
    more = [
        Joint.of_one(k, NUMBERS, np.zeros(len(before.values)), np.full(len(before.values), v))
        for k, v in enumerate(bought)
        if np.isfinite(v)
    ]
    after = sharpened(before.covariances, np.broadcast_to(bought, before.values.shape))
    assert after == pytest.approx(pooled([before, *more]).covariances, rel=1e-6, abs=1e-7, nan_ok=True)


def test_many_sources_of_many_groups() -> None:
    """Of which each tells some groups, with noise that is independent: averages by precision. Would catch groups that
    are taken for alike because their last sources are."""
    rng = np.random.default_rng(6)
    told = rng.random((15, 40, NUMBERS)) < 0.5
    told[3:, 1:] = told[3:, :1]
    values, variances = rng.normal(0, 5, told.shape), rng.uniform(1, 4, told.shape)
    sources = [
        Joint(
            np.where(own, y, np.nan), np.where(own[:, :, None] & own[:, None], v[:, :, None] * np.eye(NUMBERS), np.nan)
        )
        for own, y, v in zip(told, values, variances, strict=True)
    ]
    precisions = np.where(told, 1 / variances, 0.0)
    whole = precisions.sum(axis=0)
    found = pooled(sources)
    assert found.values == pytest.approx((precisions * values).sum(axis=0) / whole)
    assert found.variances == pytest.approx(1 / whole)
