"""What is made of a release's measurements: answers with their standard errors, synthetic records, synthetic graphs.

All of it is a function of what was released, so it costs nothing and may be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.evidence.questions import Question
from app.evidence.residuals import Residuals
from app.evidence.strategies import Release
from app.releases.workloads import Marginals, Sums, Workload
from app.spaces.tensor import FloatArray, IntArray

#: Told of how much of the work is done, from 0 to 1.
Progress = Callable[[float], None]


class WorkerDied(Exception):
    """Whoever did a job ended before it was done; the message says how."""


@dataclass(frozen=True)
class Job:
    """What is to be made of which measurements.

    Attributes:
        method: of the release.
        options: of the method.
        workload: what is asked.
        empty: residuals of the table of which nothing is measured, its number of records public or not.
        known: what was measured of the data set before.
        made: what was measured for the release.
        seed: of everything that is drawn at random for it, which is no secret.
    """

    method: str
    options: Mapping[str, Any]
    workload: Workload
    empty: Residuals
    known: Sequence[Release]
    made: Sequence[Release]
    seed: int


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one question: values in counts, and standard errors, NaN where none are known."""

    question: Question
    values: FloatArray
    standard_errors: FloatArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a release.

    Attributes:
        answers: of the workload's questions.
        records: synthetic records, a row of codes each; None where none are made.
        summary: JSON of what is to be said of it.
    """

    answers: Sequence[Answers]
    records: IntArray | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)


def finish(job: Job, progress: Progress) -> Outcome:
    """Answers, and what else the method makes.

    Args:
        job: from measurements that were recorded.
        progress: told from time to time.
    """
    assert isinstance(job.workload, Marginals | Sums)
    residuals = job.empty
    for release in (*job.known, *job.made):
        for moment, measurement in release.pieces:
            if moment is None:
                residuals.add(measurement)
    answers = []
    questions = job.workload.questions
    for number, question in enumerate(questions):
        known = residuals.unbiased(question)
        errors = np.where(known.estimable, known.standard_errors, np.nan)
        answers.append(Answers(question, np.asarray(known.values), errors))
        progress((number + 1) / len(questions))
    return Outcome(answers)
