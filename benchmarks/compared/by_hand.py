"""What a careful person writes with NumPy: Laplace or Gaussian noise of the best calibration, and nothing else."""

from __future__ import annotations

import math

import numpy as np

from app.demo.baseline import gaussian_sigma
from benchmarks.compared.tasks import DELTA, NUMBERS, Floats, Question, Task, columns, truth


def answers(task: Task, epsilon: float, seed: int) -> list[Floats]:
    """An answer a question, in its shape; who asks knows how many questions there will be, and divides by that."""
    rng = np.random.default_rng(seed)
    asked = len(task.questions)
    return [_answer(question, epsilon, asked, rng) for question in task.questions]


def _answer(question: Question, epsilon: float, asked: int, rng: np.random.Generator) -> Floats:
    exact = truth(question)
    if question.counts:
        # A record is in one cell: of each table one number moves, by one.
        sigma, scale = gaussian_sigma(epsilon, DELTA, asked), asked / epsilon
        gaussian = sigma < math.sqrt(2) * scale
        noise = rng.normal(0, sigma, exact.shape) if gaussian else rng.laplace(0, scale, exact.shape)
        return np.asarray(exact + noise)
    share = epsilon / asked
    if question.kind == "mean":
        return _mean(question, exact, share, rng)
    return _median(question, share, rng)


def _mean(question: Question, exact: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Sums of what lies off the middle of the bounds, and counts, for half of epsilon each."""
    lower, upper, _ = NUMBERS[question.of]
    middle, reach = (lower + upper) / 2, (upper - lower) / 2
    counts = truth(Question("table", question.by, question.where))
    sums = (exact - middle) * counts + rng.laplace(0, 2 * reach / epsilon, exact.shape)
    noisy = np.maximum(counts + rng.laplace(0, 2 / epsilon, exact.shape), 1.0)
    return np.asarray(np.clip(middle + sums / noisy, lower, upper))


def _median(question: Question, epsilon: float, rng: np.random.Generator) -> Floats:
    """The exponential mechanism over the grid (Smith 2011): a value scores by how far its rank is off the middle,
    which a record moves by a half."""
    lower, upper, step = NUMBERS[question.of]
    grid = np.arange(lower, upper + step, step)
    values = np.sort(columns()[question.of])
    # A value has a middle rank if half of the records lie below it or at it: the nearest rank of its own counts.
    below, most = np.searchsorted(values, grid), np.searchsorted(values, grid, side="right")
    off = np.maximum(np.maximum(below - len(values) / 2, len(values) / 2 - most), 0.0)
    return np.array(grid[np.argmax(-off * epsilon + rng.gumbel(size=len(grid)))], np.float64)
