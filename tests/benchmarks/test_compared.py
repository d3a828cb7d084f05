"""What this service and other tools are held against: truths by pandas, errors by a slow loop, and noise by hand."""

from __future__ import annotations

import io
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from dp_accounting.rdp import RdpAccountant

from benchmarks.compared import by_hand, tasks
from benchmarks.compared.tasks import NUMBERS, SIZES, Question, Score, Task
from benchmarks.compared.tools.given import rho_of

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """The file that all tools read."""
    return pd.read_csv(io.StringIO(tasks.file()))


def test_truths_are_those_of_pandas(frame: pd.DataFrame) -> None:
    """Of every question that is asked. Would catch attributes in another order, a record that a condition keeps though
    it should not, and a sum in the place of a mean."""
    questions = [question for task in tasks.tasks() for question in task.questions]
    assert {question.kind for question in questions} == {"count", "table", "mean", "median"}
    for question in questions:
        kept = frame
        for name, code in question.where.items():
            kept = kept[kept[name] == code]
        if question.kind == "count":
            expected = float(len(kept))
        elif question.kind == "median":
            expected = float(kept[question.of].median())
        else:
            groups = kept.groupby(list(question.by))
            found = groups.size() if question.kind == "table" else groups[question.of].mean()
            cells = list(product(*(range(size) for size in question.shape)))
            keys = cells if len(question.by) > 1 else [cell[0] for cell in cells]
            expected = found.reindex(keys, fill_value=0).to_numpy(float).reshape(question.shape)
        np.testing.assert_allclose(tasks.truth(question), expected, rtol=1e-12)


def test_the_file_keeps_what_is_declared_of_it(frame: pd.DataFrame) -> None:
    """Would catch codes and numbers outside what every tool is told ahead, which some clamp and others fail at."""
    assert list(frame) == [*SIZES, *NUMBERS]
    for name, size in SIZES.items():
        assert set(frame[name]) == set(range(size))
    for name, (lower, upper, step) in NUMBERS.items():
        assert frame[name].between(lower, upper).all()
        assert ((frame[name] - lower) % step == 0).all()


def test_errors_are_those_of_a_slow_loop() -> None:
    """Would catch a cell left out that is not counted as 0, one below 0 that is, and cells that are transposed."""
    question = Question("table", ("educ", "inlf"))
    exact = tasks.truth(question)
    told = [([code, works], float(exact[code, works] + 3 * code - 2 * works)) for code in range(4) for works in (0, 1)]
    told[3] = ([1, 1], -7.0)
    del told[0]
    expected = 0.0
    for code, works in product(range(4), range(2)):
        value = next((value for codes, value in told if codes == [code, works]), 0.0)
        expected += (max(value, 0.0) - exact[code, works]) ** 2
    square, lost = tasks.errors(question, tasks.filled(question, told))
    assert (square, lost) == (pytest.approx(expected / 8), 1)


def test_a_mean_that_is_not_told_is_no_zero() -> None:
    """Would catch an income of 0 for a group of which a tool is silent."""
    question = Question("mean", ("educ",), of="faminc")
    told = [([code], float(tasks.truth(question)[code]) + 100.0) for code in (0, 2, 3)]
    assert tasks.errors(question, tasks.filled(question, [*told, ([1], None)])) == (pytest.approx(10_000.0), 1)


def test_scores_weigh_questions_alike() -> None:
    """A table of 24 cells and one of 4. Would catch a mean over all cells, in which small tables are lost."""
    task = Task("two", [Question("table", ("inlf", "hours", "age")), Question("table", ("educ",))])
    score = Score()
    answers = []
    for question, off in zip(task.questions, (1.0, 7.0), strict=True):
        answers.append([(list(cell), float(value) + off) for cell, value in np.ndenumerate(tasks.truth(question))])
    score.take(task, answers, 2.0)
    assert (score.rmse, score.cells, score.lost, score.runs) == (pytest.approx(5.0), 28, 0, 1)


def test_noise_by_hand_is_what_the_budget_buys() -> None:
    """Laplace noise of scale 1/epsilon on one table, Gaussian noise on twenty, as dp-accounting calibrates it. Would
    catch a budget that is not divided, or divided by cells."""
    alone, stream = tasks.tasks()[1], tasks.tasks()[2]

    def spread(task: Task, epsilon: float, runs: int) -> float:
        off = [
            (answer - tasks.truth(question)).reshape(-1)
            for seed in range(runs)
            for question, answer in zip(task.questions, by_hand.answers(task, epsilon, seed), strict=True)
        ]
        return float(np.concatenate(off).std())

    assert spread(alone, 0.5, 500) == pytest.approx(math.sqrt(2) / 0.5, rel=0.06)
    gaussian = GaussianPrivacyLoss.from_privacy_guarantee(DifferentialPrivacyParameters(1.0, 1e-9), math.sqrt(20))
    assert spread(stream, 1.0, 10) == pytest.approx(gaussian.standard_deviation, rel=0.05)


def test_the_median_by_hand_is_the_exponential_mechanism() -> None:
    """Frequencies of the values against the law written out, with a loop over records. Would catch a rank that counts
    ties on one side, and half of the exponent."""
    question = Question("median", of="earns")
    values = tasks.columns()["earns"]
    grid = range(0, 2010, 10)
    scores = [-max(0.0, sum(values < g) - len(values) / 2, len(values) / 2 - sum(values <= g)) for g in grid]
    epsilon = 0.05
    weights = np.exp(epsilon * np.array(scores))
    law = weights / weights.sum()
    rng = np.random.default_rng(3)
    drawn = np.array([float(by_hand._median(question, epsilon, rng)) for _ in range(4000)])
    for place, probability in enumerate(law):
        if probability > 0.05:
            assert np.mean(drawn == 10.0 * place) == pytest.approx(probability, abs=0.03)


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_the_budget_of_gaussian_tools_is_within_epsilon(epsilon: float) -> None:
    """Against dp-accounting's Renyi conversion. Would catch a tool that is given more than the others, or much less."""
    rho = rho_of(epsilon, 1e-9)
    orders = [1 + 10 ** (k / 100) / 10 for k in range(400)]
    spent = RdpAccountant(orders).compose(GaussianDpEvent(1 / math.sqrt(2 * rho))).get_epsilon(1e-9)
    assert spent == pytest.approx(epsilon, rel=1e-3)
