"""Hierarchies of bins, against generic least squares on small trees."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evidence.hierarchies import DEGREE, MOST_LEAVES, Level, cumulative, levels_of
from app.evidence.measurements import Partition


def tree(seed: int) -> tuple[list[Level], np.ndarray, np.ndarray]:
    """Levels over a few values, with two groups; the stacked 0/1 matrix, and the variances of its rows by group."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 14))
    labels = np.arange(size)
    partitions = []
    while labels.max() > 0:
        partitions.append(Partition.of(labels))
        cut = rng.random(labels.max() + 1) < 0.5
        cut[0] = False
        labels = np.cumsum(cut)[labels]
        if rng.random() < 0.3:
            break
    levels = [
        Level(p, rng.normal(50, 20, (2, p.cells)), rng.uniform(0.5, 9, (2, 1)) * rng.uniform(0.5, 2, (2, p.cells)))
        for p in partitions[::-1]
        if p.cells > 1
    ]
    rows = [np.eye(level.partition.cells)[level.partition.labels].T for level in levels]
    return levels, np.concatenate(rows), np.concatenate([level.variances for level in levels], axis=1)


@given(st.integers(0, 10**6), st.booleans())
def test_against_least_squares(seed: int, public: bool) -> None:
    """Values below each end, their variances, and those less a part of the total. Would catch a pass that weighs a cell
    by another's variance, an end that belongs to the next cell, and a covariance with the total that is left out."""
    levels, matrix, variances = tree(seed)
    total = 300.0 if public else None
    found = cumulative(levels, total)
    leaves = np.eye(levels[-1].partition.cells)
    merged = leaves[:, levels[-1].partition.labels]
    # In terms of the leaves.
    design = matrix @ merged.T / merged.sum(axis=1)
    for group in range(2):
        weights = 1 / variances[group]
        rows, told = design, np.concatenate([level.counts[group] for level in levels])
        information = rows.T @ (weights[:, None] * rows)
        covariance = np.linalg.inv(information)
        estimate = covariance @ (rows.T @ (weights * told))
        ones = np.ones(len(estimate))
        if total is not None:
            gain = covariance @ ones / (ones @ covariance @ ones)
            estimate = estimate + gain * (total - ones @ estimate)
            covariance = covariance - np.outer(gain, ones @ covariance)
        lower = np.tril(np.ones((len(estimate),) * 2))
        assert found.below[group] == pytest.approx(lower @ estimate, abs=1e-6)
        assert found.total[group] == pytest.approx(ones @ estimate)
        for level in (0.0, 0.3, 0.5):
            contrast = lower - level * ones
            expected = np.einsum("ij,jk,ik->i", contrast, covariance, contrast)
            assert found.variances(level)[group] == pytest.approx(expected, abs=1e-6)
    assert found.ends.tolist() == [int(np.flatnonzero(row)[-1]) + 1 for row in merged]


@given(st.integers(2, 10**6), st.integers(2, 5000))
def test_levels(values: int, cells: int) -> None:
    """Would catch levels that do not nest, a finest one with too many cells, and one that tells nothing apart."""
    levels = levels_of(values, cells)
    assert levels[-1].cells <= min(cells, MOST_LEAVES)
    assert levels[0].cells >= 2
    for coarse, fine in pairwise(levels):
        assert fine.refines(coarse)
        assert -(-fine.cells // coarse.cells) <= DEGREE
    assert levels[0].cells <= DEGREE or len(levels) == 1
