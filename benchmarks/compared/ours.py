"""The service on the same tasks: a real server, asked as the documents say."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from app.demo.survey import BINS
from benchmarks.compared.tasks import BAND, DELTA, EARNS, INCOME, NUMBERS, SIZES, Floats, Question, Task, file
from curator_client import Curator


def declaration(name: str, epsilon: float) -> dict[str, Any]:
    """What is declared of the file: codes, and numbers on their grids; income is counted in its bands."""
    attributes: list[dict[str, Any]] = [{"name": each, "size": SIZES[each]} for each in SIZES if each != BAND]
    for each, (lower, upper, step) in NUMBERS.items():
        attributes.append({"name": each, "lower": lower, "upper": upper, "grid": step})
    attributes[-2]["edges"] = list(BINS[INCOME])
    attributes[-1]["bins"] = 20
    return {
        "name": name,
        "kind": "table",
        "budget": {"epsilon": epsilon, "delta": DELTA},
        "attributes": attributes,
    }


def answers(curator: Curator, task: Task, epsilon: float, seed: int) -> tuple[list[Floats], float]:
    """An answer a question, in its shape, of a data set registered for this run; and the seconds of asking."""
    name = f"{task.name}-{epsilon}-{seed}".replace(" ", "-").replace(",", "").replace(".", "-")
    curator.register(declaration(name, epsilon), file().encode(), filename="couples.csv")
    started = time.perf_counter()
    found = _released(curator, name, task, epsilon) if task.together else _asked(curator, name, task, epsilon)
    return found, time.perf_counter() - started


def _names(question: Question) -> tuple[str, ...]:
    return tuple(INCOME if each == BAND else each for each in question.by)


def _asked(curator: Curator, name: str, task: Task, epsilon: float) -> list[Floats]:
    found = []
    with curator.session(name, epsilon=epsilon, max_queries=len(task.questions)) as session:
        for question in task.questions:
            if question.kind == "count":
                where: dict[str, Any] = dict(question.where)
                found.append(np.array(float(session.count(**where))))
            elif question.kind == "median":
                found.append(np.array(float(session.median(EARNS))))
            else:
                by = _names(question)
                table = session.group_by(*by) if question.kind == "table" else session.mean(question.of, by=by)
                found.append(np.array([float(value) for _, value in table]).reshape(question.shape))
    return found


def _released(curator: Curator, name: str, task: Task, epsilon: float) -> list[Floats]:
    attributes = [INCOME if each == BAND else each for each in SIZES]
    release = curator.release(name, workload={"marginals": 2, "attributes": attributes}, epsilon=epsilon).wait()
    told = release.answers()
    return [_of(told, question) for question in task.questions]


def _of(told: Any, question: Question) -> Floats:
    """A table of a release: the rows that tell of its attributes alone, in their order."""
    by = list(_names(question))
    others = [INCOME if each == BAND else each for each in SIZES if each not in question.by]
    rows = told[told[by].notna().all(axis=1) & told[others].isna().all(axis=1)]
    values: Floats = rows["value"].to_numpy(np.float64)
    return values.reshape(question.shape)
