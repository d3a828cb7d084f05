"""Synthetic records from a library, in an environment of its own: a script that knows nothing of this project.

`python releases_library.py NAME EPSILON DELTA IN.npz OUT.npz` where NAME is `aim` or `mst` of smartnoise-synth; IN has
`records` (codes, a row each) and `sizes`; OUT has `records` and `seconds`. The environment is made with

    python -m venv /some/folder
    /some/folder/bin/pip install smartnoise-sql==1.0.10 mbi==1.1.0 "disjoint-set>=0.9,<0.10" Faker
    /some/folder/bin/pip install --no-deps smartnoise-synth==1.0.8

without what the library has for neural networks alone, which takes gigabytes. Nothing of the budget goes to
preprocessing, the values of attributes being public.

Records are drawn independently from the fitted model, and many, so that errors are the model's. The library's own way
of making as many records as there are (`round` of mbi 1.1.0) loses what attributes that were not measured together have
in common: of the survey of benchmarks.compared MST's model errs by 80 and those records by 250, whatever epsilon is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer

DRAWN = 1_000_000


def drawn(name: str, epsilon: float, delta: float, records: Any, sizes: Sequence[int], degree: int) -> Any:
    """Records of the model that is fitted, as codes; AIM takes all marginals of so many attributes for its workload."""
    names = [f"a{i}" for i in range(len(sizes))]
    # Labels are known to be 0, 1, ...: each value once is enough to learn them, and is its own code.
    labels = [LabelTransformer(nullable=False) for _ in names]
    for label, size in zip(labels, sizes, strict=True):
        label.fit([*range(int(size))])
    budget = {"epsilon": epsilon, "delta": delta}
    synthesizer = AIMSynthesizer(**budget, degree=degree) if name == "aim" else MSTSynthesizer(**budget)
    frame = pd.DataFrame(records, columns=names)
    synthesizer.fit(frame, transformer=TableTransformer(labels), preprocessor_eps=0.0)
    made = synthesizer.synthesizer.synthetic_data(rows=DRAWN, method="sample")
    if name == "mst":
        made = synthesizer.undo_compress_fn(made)
    return made.df[[f"col{i}" for i in range(len(names))]].to_numpy(np.int64)


def main() -> None:
    """Fit, draw, and write."""
    name, epsilon, delta, source, target = sys.argv[1:]
    given = np.load(source)
    started = time.perf_counter()
    records = drawn(name, float(epsilon), float(delta), given["records"], given["sizes"].tolist(), 3)
    np.savez(target, records=records, seconds=time.perf_counter() - started)


if __name__ == "__main__":
    main()
