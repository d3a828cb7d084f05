"""The fourth act: a session of multiplicative weights that answers 50,000 adaptively chosen counts.

It pays for its updates alone, and promises before the first question how far all of its answers are off at most. Noise
on each answer pays for every question: for so many it can promise less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.demo.baseline import gaussian_sigma, least_largest
from app.demo.data import Table
from curator_client import MW, Answer, Curator, Plan, Question, Session, question

#: Questions of a batch; the analyst has seen all answers to the batches before.
BATCH = 256
#: The most updates that the session pays for: this analyst has needed about half as many.
UPDATES = 120
#: Answers are multiples of a fine grid: a difference this small comes from floating point.
SLACK = 1e-9
#: How many of the most surprising questions the next ones are made of.
LEADS = 400


@dataclass(frozen=True)
class Promise:
    """What came of the session.

    Attributes:
        plan: with the bound that was promised.
        errors: answer minus truth, a question each, in the order asked.
        updates: how many questions were measured, as their answers would have been too far off.
        spent: the epsilon that this took.
        seconds: how long asking took.
        alone: what independent Gaussian noise could promise of all answers, with the same probability, in counts.
        sigma: the standard deviation of that noise.
    """

    table: Table
    plan: Plan
    errors: NDArray[np.float64] = field(repr=False)
    updates: int
    spent: float
    seconds: float
    alone: float
    sigma: float

    @property
    def bound(self) -> float:
        """The promised bound, in counts."""
        assert self.plan.error_bound is not None  # multiplicative weights promise one
        return self.plan.error_bound

    @property
    def largest(self) -> float:
        """The largest error of all answers."""
        return float(np.abs(self.errors).max())

    @property
    def kept(self) -> bool:
        """Whether every answer is within the bound."""
        return self.largest <= self.bound + SLACK


class Boxes:
    """The true counts of boxes, that is, of ranges of cells along every attribute."""

    def __init__(self, table: Table) -> None:
        shape = [axis.cells for axis in table.axes]
        counts = np.bincount(np.ravel_multi_index(table.codes.T, shape), minlength=int(np.prod(shape)))
        sums = np.pad(counts.reshape(shape), [(1, 0)] * len(shape))
        for axis in range(len(shape)):
            sums = np.cumsum(sums, axis=axis)
        self._sums = sums

    def counts(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many records lie in each box, from ``low`` to below ``high``, a row a box and a column an attribute."""
        found = np.zeros(len(low), np.int64)
        attributes = low.shape[1]
        for corner in np.ndindex(*([2] * attributes)):
            at = np.where(np.array(corner, dtype=bool), low, high)
            found += (-1) ** sum(corner) * self._sums[tuple(at.T)]
        return found


class Prober:
    """An analyst who follows surprises: what differs most from records that are spread evenly.

    A batch is made of random boxes and of the most surprising ones before, each with one side drawn anew.
    """

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        self._sizes = np.array([axis.cells for axis in table.axes])
        self._rng, self._records = rng, table.records
        #: Boxes by how surprising their answers were, the most surprising first.
        self._leads: list[tuple[float, NDArray[np.int64], NDArray[np.int64]]] = []

    def batch(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The next boxes: from which cells, to below which."""
        rng, attributes = self._rng, len(self._sizes)
        ends = np.sort(rng.integers(0, self._sizes + 1, (2, size, attributes)), axis=0)
        low, high = np.minimum(ends[0], self._sizes - 1), ends[1]
        high = np.maximum(high, low + 1)
        whole = rng.random((size, attributes)) < 0.55
        low, high = np.where(whole, 0, low), np.where(whole, self._sizes, high)
        if self._leads:
            for row in range(0, size, 2):
                _, from_, to = self._leads[int(rng.integers(len(self._leads)))]
                side = int(rng.integers(attributes))
                keep = np.arange(attributes) != side
                low[row, keep], high[row, keep] = from_[keep], to[keep]
        return low, high

    def learn(self, low: NDArray[np.int64], high: NDArray[np.int64], answers: NDArray[np.float64]) -> None:
        """Take in the answers to a batch."""
        expected = self._records * np.prod((high - low) / self._sizes, axis=1)
        surprises = np.abs(answers - expected)
        leads = [*self._leads, *zip(surprises.tolist(), low, high, strict=True)]
        self._leads = sorted(leads, key=lambda lead: -lead[0])[:LEADS]


def keep_promise(
    admin: Curator,
    analyst: Curator,
    table: Table,
    questions: int,
    seed: int,
    progress: Callable[[int], None],
) -> Promise:
    """Open the session on a data set that is registered, ask its questions in batches, and hold every answer against
    the truth.
    """
    session = analyst.session(
        table.name,
        mechanism=MW(),
        epsilon=table.spec["budget"]["epsilon"],
        max_queries=questions,
        max_updates=UPDATES,
    )
    start = time.monotonic()
    errors, updates = _ask(session, table, questions, seed, progress)
    seconds = time.monotonic() - start
    session.close()
    plan = session.plan
    sigma = gaussian_sigma(float(plan.epsilon), float(plan.delta), questions)
    return Promise(
        table=table,
        plan=plan,
        errors=errors,
        updates=updates,
        spent=float(admin.dataset(table.name).budget.spent),
        seconds=seconds,
        alone=least_largest(sigma, questions, plan.beta),
        sigma=sigma,
    )


def _ask(
    session: Session, table: Table, questions: int, seed: int, progress: Callable[[int], None]
) -> tuple[NDArray[np.float64], int]:
    boxes, prober = Boxes(table), Prober(table, np.random.default_rng([seed, 10]))
    errors: list[NDArray[np.float64]] = []
    done = updates = 0
    while done < questions:
        low, high = prober.batch(min(BATCH, questions - done))
        told = session.ask_many([_spelled(table, *sides) for sides in zip(low, high, strict=True)], batch_size=BATCH)
        updates = int(told[-1].raw["updates_used"])
        values = np.array([float(answer) for answer in told])
        errors.append(values - boxes.counts(low, high))
        prober.learn(low, high, values)
        done += len(values)
        progress(done)
    return np.concatenate(errors), updates


def _spelled(table: Table, low: NDArray[np.int64], high: NDArray[np.int64]) -> Question[Answer]:
    conditions = {
        axis.name: axis.condition(int(start), int(end))
        for axis, start, end in zip(table.axes, low, high, strict=True)
        if (start, end) != (0, axis.cells)
    }
    return question({"type": "predicate", "where": conditions})
