"""Structural zeros: how near tables are where it is declared what cannot occur, beside the same tables without.

Run `python -m benchmarks.research.zeros` (a minute or two a seed). 20,000 made-up people have an age, a marital
state, a state with its counties, a job and a sex; nobody below 15 is or was married, nobody below 15 or above 80 has
a job, and each county is in one state. A session over the whole of a fresh budget is asked tables of these, and what
it measured is published, with the zeros declared and without, with the same noise. Errors are root mean squares over
tables, a table counting as its mean square over the cells that can hold somebody: of what the session showed, of its
tables published together, and of these tables summed over all combinations, possible or not. Beside them how often
the 95% intervals of cells that can hold somebody hold the truth where zeros are declared.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import numpy as np

from app.estimation.tables.residuals import Residuals
from app.releases.publication import published
from app.releases.workloads import Marginals
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Sum
from app.spaces.tensor import IntArray
from app.spaces.zeros import NO_ZEROS, Zeros
from benchmarks.harness import report
from benchmarks.research.regret_data import World
from benchmarks.research.regret_methods import Session, funds

#: Age in bins of five years, marital state, state, county, job (the first is none), sex.
SIZES, COUNTIES, PEOPLE = (20, 4, 8, 48, 6, 2), 6, 20_000
TABLES = [(0, 1), (0, 4), (2, 3), (0, 1, 5), (0, 4, 5), (1, 2, 3), (0, 1, 4), (0, 1, 2)]


def zeros() -> Zeros:
    """What is declared."""
    age, married, job = np.arange(20) < 3, np.arange(4) > 0, np.arange(6) > 0
    idle = age | (np.arange(20) >= 16)
    elsewhere = np.arange(48)[None, :] // COUNTIES != np.arange(8)[:, None]
    declared: list[Sum] = [
        Local.over((0, 1), np.outer(age, married)),
        Local.over((0, 4), np.outer(idle, job)),
        Local.over((2, 3), elsewhere),
    ]
    return Zeros.of(declared)


def people(seed: int) -> IntArray:
    """Records that keep to it."""
    rng = np.random.default_rng(seed)
    age = np.minimum(rng.gamma(3.0, 2.6, PEOPLE).astype(np.int64), 19)
    marital = np.where(age < 3, 0, np.minimum(rng.poisson(np.clip(age - 3, 0, 12) / 6), 3))
    state = np.minimum(rng.geometric(0.3, PEOPLE) - 1, 7)
    county = COUNTIES * state + np.minimum(rng.geometric(0.4, PEOPLE) - 1, COUNTIES - 1)
    works = (age >= 3) & (age < 16) & (rng.random(PEOPLE) < 0.7)
    job = np.where(works, 1 + np.minimum(rng.poisson(1 + state / 4), 4), 0)
    return np.stack([age, marital, state, county, job, rng.integers(0, 2, PEOPLE)], axis=1)


def played(declared: Zeros, known: Zeros, epsilon: float, seed: int) -> tuple[float, float, float, list[bool]]:
    """The mean squares of the session's tables, of the published ones, and of all cells of these; and which intervals
    hold."""
    table = World("made-up people", SIZES, people(seed))
    allowed = funds(epsilon, True, len(TABLES))
    session = Session(table, allowed, np.random.default_rng(seed), Residuals(SIZES, zeros=declared))
    questions = [Cells(Marginal.of(SIZES, dict.fromkeys(axes))) for axes in TABLES]
    bought = [session.ask(question) for question in questions]
    made = published(
        Marginals(tuple(question.marginal for question in questions)), session.policy.residuals, seed, lambda part: None
    )
    alone, together, whole = [], [], []
    held: list[bool] = []
    for axes, question, bought_for, answers in zip(TABLES, questions, bought, made.answers, strict=True):
        exact = table.counts(axes)
        possible = known.possible(axes, [Partition.singles(SIZES[axis]) for axis in axes])
        assert possible is not None
        assert not exact[~possible].any()
        shown = session.policy.shown(question, bought_for, 0.95)
        alone.append(float(np.square(shown.values - exact)[possible].mean()))
        together.append(float(np.square(answers.estimates.values - exact)[possible].mean()))
        whole.append(float(np.square(shown.values - exact).mean()))
        held += ((shown.lows <= exact) & (exact <= shown.highs))[possible].tolist()
    return float(np.mean(alone)), float(np.mean(together)), float(np.mean(whole)), held


def row(epsilon: float, seeds: int) -> list[Any]:
    """One row of the table."""
    known = zeros()
    found = {
        declared: [played(known if declared else NO_ZEROS, known, epsilon, seed) for seed in range(seeds)]
        for declared in (True, False)
    }
    errors = {
        declared: [math.sqrt(float(np.mean([own[:3][k] for own in each]))) for k in range(3)]
        for declared, each in found.items()
    }
    holds = list(itertools.chain(*(own[3] for own in found[True])))
    pairs = list(zip(errors[False], errors[True], strict=True))
    return [epsilon, *(number for pair in pairs for number in pair), float(np.mean(holds))]


def main() -> None:
    """Play all sessions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    columns = ["epsilon"]
    columns += [f"{what}, {how}" for what in ("session", "published", "all cells") for how in ("without", "declared")]
    columns += ["intervals that hold"]
    found = [row(epsilon, given.seeds) for epsilon in (0.1, 0.3, 1.0)]
    report("zeros", "Tables with and without declared structural zeros", columns, found, seeds=given.seeds)


if __name__ == "__main__":
    main()
