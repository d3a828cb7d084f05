"""Intervals of tables with structural zeros hold as often as they say, and prices are those without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from app.measurements.noise import Noise
from app.policies.table import Policy
from app.spaces.partition import Marginal
from app.spaces.questions import Cells
from app.spaces.zeros import NO_ZEROS
from tests.evidence.test_table_policy import funds
from tests.zeros.tables import SIZES, SPEC, counted, measured, people, zeros_of

ZEROS, CODES = zeros_of(SPEC), people()
#: Of which all cells are estimable, and some are not possible.
TABLES = [(0, 1), (2, 3), (0, 2), (3, 4)]


@pytest.mark.statistical
def test_intervals_hold() -> None:
    """Over many draws of the noise, of the cells that can hold a record: at least as often as .95 says, by more than
    chance would have it less. Catches intervals about values that zeros moved, and deviations that are
    taken smaller."""
    held: list[bool] = []
    for seed in range(60):
        policy = Policy(measured(CODES, ZEROS, seed=seed), funds(questions=20))
        for axes in TABLES:
            question, exact = Cells(Marginal.of(SIZES, dict.fromkeys(axes))), counted(CODES, axes)
            shown = policy.shown(question, None, 0.95)
            none = ZEROS.possible(axes, question.partitions)
            assert shown.unbiased.all()
            inside = (shown.lows <= exact) & (exact <= shown.highs)
            possible = np.ones(exact.shape, bool) if none is None else none
            assert inside[~possible].all()
            held += inside[possible].tolist()
    # 60 draws of some two hundred cells, which share noise: one in a hundred is far beyond chance.
    assert np.mean(held) > 0.94


@pytest.mark.unit
def test_prices_are_those_without_zeros() -> None:
    """What is bought for a table, with which noise, at the opening and for questions: the same with and without the
    declaration, but for what zeros answer. Catches noise that is scaled to the cells that can be."""
    bought = []
    for zeros in (ZEROS, NO_ZEROS):
        policy = Policy(measured(CODES, zeros).fresh(), funds(questions=20))
        opening = [(buy.marginal, buy.noise) for buy in policy.opening()]
        bought.append(opening)
        assert all(isinstance(noise, Noise) for _, noise in opening)
        for axes in itertools.combinations(range(3), 2):
            wanted = policy.purchase(Cells(Marginal.of(SIZES, dict.fromkeys(axes))), 1e-3)
            assert wanted is not None
            bought[-1].append((wanted.marginal, wanted.noise))
    assert bought[0] == bought[1]
