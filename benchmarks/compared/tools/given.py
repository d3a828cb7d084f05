"""What each tool's script shares: `python SCRIPT GIVEN.json ANSWERS.json`, in an environment of its own.

GIVEN has what is public, the path of the `file` and the `jobs`: each has an `epsilon`, a `seed`, its `questions`, and
whether they are asked `together`. ANSWERS is written after each job: for every one the seconds that it took, and for
each question a list of groups, as the codes of its attributes in order, with their values.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Told = list[tuple[list[int], float]]


def rho_of(epsilon: float, delta: float) -> float:
    """The largest zero-concentrated budget within (epsilon, delta) (Canonne, Kamath, Steinke 2020, proposition 12)."""

    def epsilon_of(rho: float) -> float:
        orders = (1 + 10 ** (k / 400) / 10 for k in range(1600))
        return min(a * rho + math.log(1 / (a * delta)) / (a - 1) + math.log1p(-1 / a) for a in orders)

    low, high = 0.0, epsilon
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle) <= epsilon else (low, middle)
    return low


def run(
    prepare: Callable[[dict[str, Any]], Any], answer: Callable[[Any, dict[str, Any], dict[str, Any]], list[Told]]
) -> None:
    """Answer all jobs with what `prepare` made of the file, whose time is nobody's.

    Args:
        answer: given what was prepared, what is public, and a job; one list of told groups a question.
    """
    given = json.loads(Path(sys.argv[1]).read_text())
    target = Path(sys.argv[2])
    prepared = prepare(given)
    done = []
    for job in given["jobs"]:
        started = time.perf_counter()
        answers = answer(prepared, given, job)
        done.append({"seconds": time.perf_counter() - started, "answers": answers})
        target.write_text(json.dumps(done))
