"""IBM's diffprivlib: histograms of codes, means and medians of each group by itself."""

from __future__ import annotations

import itertools
from typing import Any

import given as shared
import numpy as np
import pandas as pd
from diffprivlib import tools


def one(frame: Any, given: dict[str, Any], question: dict[str, Any], epsilon: float, seed: int) -> shared.Told:
    names = question["by"]
    if question["kind"] == "count":
        # Of all records: the noise is cut off at their number.
        meant = np.all([frame[name] == code for name, code in question["where"].items()], axis=0)
        return [([], float(tools.count_nonzero(meant, epsilon=epsilon, random_state=seed)))]
    if question["kind"] == "table":
        sizes = [given["sizes"][name] for name in names]
        edges = [(-0.5, size - 0.5) for size in sizes]
        values, _ = tools.histogramdd(
            frame[names].to_numpy(), epsilon=epsilon, bins=sizes, range=edges, random_state=seed
        )
        return [(list(cell), float(values[cell])) for cell in itertools.product(*(range(size) for size in sizes))]
    lower, upper, _ = given["numbers"][question["of"]]
    make = tools.mean if question["kind"] == "mean" else tools.median
    found = []
    # Groups have no record in common, so that each may spend all.
    for place, cell in enumerate(itertools.product(*(range(given["sizes"][name]) for name in names))):
        chosen = frame
        for name, code in zip(names, cell, strict=True):
            chosen = chosen[chosen[name] == code]
        values = chosen[question["of"]].to_numpy(float)
        told = make(values, epsilon=epsilon, bounds=(lower, upper), random_state=seed * 100 + place)
        found.append((list(cell), float(told)))
    return found


def answer(frame: Any, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    questions = job["questions"]
    share = job["epsilon"] / len(questions)
    return [one(frame, given, question, share, 1000 * job["seed"] + place) for place, question in enumerate(questions)]


shared.run(lambda given: pd.read_csv(given["file"]), answer)
