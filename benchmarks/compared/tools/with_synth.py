"""AIM or MST of SmartNoise Synth, named by the third word: tables counted in records of its model.

AIM is told all tables of two attributes for its workload; MST takes none. Both take the number of records for public.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import given as shared
import pandas as pd

sys.path.append(str(Path(__file__).parents[2] / "research"))
from releases_library import drawn


def answer(frame: Any, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    names = list(given["sizes"])
    sizes = list(given["sizes"].values())
    codes = drawn(sys.argv[3], float(job["epsilon"]), given["delta"], frame[names].to_numpy(), sizes, degree=2)
    made = pd.DataFrame(codes, columns=names)
    found = []
    for question in job["questions"]:
        counted = made.groupby(question["by"]).size() * (len(frame) / len(made))
        found.append([([int(code) for code in cell], float(value)) for cell, value in counted.items()])
    return found


shared.run(lambda given: pd.read_csv(given["file"]), answer)
