"""AIM or MST of SmartNoise Synth, named by the third word: tables counted in the records that they make.

AIM is told all tables of two attributes for its workload; MST takes none.
"""

from __future__ import annotations

import sys
from typing import Any

import given as shared
import pandas as pd
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer


def answer(frame: Any, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    names = list(given["sizes"])
    labels = [LabelTransformer(nullable=False) for _ in names]
    for label, size in zip(labels, given["sizes"].values(), strict=True):
        label.fit([*range(size)])
    budget = {"epsilon": float(job["epsilon"]), "delta": given["delta"]}
    method = AIMSynthesizer(**budget, degree=2) if sys.argv[3] == "aim" else MSTSynthesizer(**budget)
    method.fit(frame[names], transformer=TableTransformer(labels), preprocessor_eps=0.0)
    made = pd.DataFrame(method.sample(len(frame)), columns=names).astype(int)
    found = []
    for question in job["questions"]:
        counted = made.groupby(question["by"]).size()
        found.append([([int(code) for code in codes], float(value)) for codes, value in counted.items()])
    return found


shared.run(lambda given: pd.read_csv(given["file"]), answer)
