"""Results from a release's measurements: answers with their standard errors, synthetic records, synthetic graphs.

All of it is a function of what was released, so it costs nothing and may be made again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.constructions.base import MarginalConstruction
from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.record import Measurement, those
from app.measurements.strategies.tables import Moment, TableStrategy
from app.measurements.strategy import Strategy
from app.patience import Progress
from app.policies.statistics import take_in
from app.releases.edge_results import EdgeValues, edge_values
from app.releases.noisy_blocks import NoisyBlocks
from app.releases.power import low_rank
from app.releases.publication import missing, published
from app.releases.rounds import learnt
from app.releases.statistics import told
from app.releases.table_results import CONFIDENCE, Answers, Records, Told, nearest, synthetic, unbiased
from app.releases.workloads import Cuts, TableWorkload, Workload
from app.spaces.partition import Partition
from app.spaces.tensor import DenseTensor


class WorkerDied(Exception):
    """Whoever did a job ended before it was done; the message says how."""


class TookTooLong(WorkerDied):
    """Whoever did a job was ended for the time that it took."""


@dataclass(frozen=True)
class Job:
    """A task to make results of measurements.

    Attributes:
        method: of the release.
        options: of the method.
        workload: what is asked.
        empty: residuals of the table of which nothing is measured, its number of records public or not.
        known: what was measured of the data set before.
        made: what was measured for the release.
        seed: of everything that is drawn at random for it, which is no secret.
        beta: the probability with which bounds that are stated may be broken.
        construction: what keeps the hypothesis of an iterative construction; None for other methods.
        blocks: sums between groups of a graph's nodes that were measured before, where a graph is to be made.
        unit_epsilon: the epsilon that counts of a table cost with Gaussian noise of variance 1.
    """

    method: str
    options: Mapping[str, Any]
    workload: Workload
    empty: Residuals
    known: Sequence[Measurement[Strategy]]
    made: Sequence[Measurement[Strategy]]
    seed: int
    beta: float = 0.05
    construction: MarginalConstruction | None = None
    blocks: Sequence[NoisyBlocks] = ()
    unit_epsilon: float = math.inf

    @property
    def tables(self) -> Sequence[Measurement[TableStrategy]]:
        """The earlier measurements of a table."""
        return those(self.known, TableStrategy)

    @property
    def rounds(self) -> Sequence[Measurement[TableStrategy]]:
        """The measurements of the rounds: all but the number of records, bought before them where it must be."""
        return [each for each in those(self.made, TableStrategy) if each.strategy.cells > 1]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a release.

    Attributes:
        answers: of the workload's questions.
        agreeing: whether the counts among these are whole numbers that add up to one another.
        records: synthetic records; None where none are made.
        edges: values of the cells of a graph or a matrix; None of a table.
        summary: JSON of what is to be said of it.
        converged: whether what was looked for was found to its tolerance.
    """

    answers: Sequence[Answers | Told]
    agreeing: bool = False
    records: Records | None = None
    edges: EdgeValues | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    converged: bool = True


def finish(job: Job, progress: Progress) -> Outcome:
    """Answers, and what else the method makes.

    Args:
        job: from measurements that were recorded.
        progress: told from time to time.
    """
    if isinstance(job.workload, Cuts):
        if job.method == "iterative_construction":
            values, told = low_rank(job.known, job.made, progress)
            return Outcome((), edges=values, summary=told)
        graph = [release for release in (*job.known, *job.made) if not isinstance(release.strategy, TableStrategy)]
        edges, summary = edge_values(
            graph, job.method, job.options, blocks=job.blocks, beta=job.beta, seed=job.seed, progress=progress
        )
        return Outcome((), edges=edges, summary=summary)
    if job.construction is not None:
        return _learnt(job, job.construction, progress)
    releases = those((*job.known, *job.made), TableStrategy)
    if job.method == "publication":
        return _published(job, job.workload, releases, progress)
    residuals = job.empty.knowing(releases)
    if job.method == "projection":
        answers, converged = nearest(job.workload, residuals, releases, progress)
        return Outcome(answers, converged=converged)
    if job.method == "synthetic_table":
        made = synthetic(job.workload, residuals, releases, job.options.get("records"), job.seed, progress)
        summary = {"records": len(made.records.codes), "seed": job.seed, "discrepancy": made.discrepancy}
        return Outcome(made.answers, records=made.records, summary=summary, converged=made.converged)
    return Outcome(unbiased(residuals, job.workload.questions, progress))


def _published(
    job: Job, workload: TableWorkload, measured: Sequence[Measurement[TableStrategy]], progress: Progress
) -> Outcome:
    """Tables of counts that agree, and statistics beside them."""
    residuals, moments = job.empty.fresh(), dict[Moment, Residuals]()
    for measurement in measured:
        take_in(measurement, residuals, moments)
    made = published(workload.counted, residuals, job.seed, progress)
    counts, shares = made.answers[: len(workload.questions)], made.answers[len(workload.questions) :]
    statistics = told(workload, residuals, moments, shares)
    answers = workload.in_order(counts, statistics)
    summary: dict[str, Any] = {"records": len(made.records.codes), "seed": job.seed, "tables": len(answers)}
    if statistics:
        untold = [place + 1 for place, each in sorted(statistics.items()) if np.isnan(each.estimates.values).all()]
        summary["untold"] = untold
    if (within := job.options.get("within")) is not None:
        lacking = missing(workload.questions, residuals, within, job.unit_epsilon)
        numbers = [place + 1 for place in range(len(answers)) if place not in statistics]
        summary["within"] = within
        summary["missing"] = [each.document() | {"table": numbers[each.table - 1]} for each in lacking]
    return Outcome(answers, agreeing=True, summary=summary, converged=made.converged)


def _learnt(job: Job, construction: MarginalConstruction, progress: Progress) -> Outcome:
    """Answers of a hypothesis, of whose errors nothing is known; with what its rounds chose and how far it was off."""
    assert not isinstance(job.workload, Cuts)
    found = learnt(construction, job.tables, job.rounds, progress)
    table = DenseTensor(found.table)
    answers = []
    for question in job.workload.questions:
        counts = np.asarray(table.marginal(question.attributes), np.float64)
        values = np.asarray(question.of(counts, [Partition.singles(size) for size in counts.shape]))
        answers.append(Answers(question, Estimates.bare(values, CONFIDENCE)))
    last = found.gaps[-max(1, len(found.gaps) // 4) :]
    summary = {"rounds": len(found.gaps), "chosen": [list(each) for each in found.chosen], "largest_gap": max(last)}
    return Outcome(answers, summary=summary)
