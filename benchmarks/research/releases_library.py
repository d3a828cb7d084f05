"""Synthetic records from a library, in an environment of its own: a script that knows nothing of this project.

`python releases_library.py NAME EPSILON DELTA IN.npz OUT.npz [DEGREE]` where NAME is `aim` or `mst` of
smartnoise-synth; IN has `records` (codes, a row each) and `sizes`; OUT has `records` and `seconds`. The environment is
made with

    python -m venv /some/folder
    /some/folder/bin/pip install smartnoise-sql==1.0.10 mbi==1.1.0 "disjoint-set>=0.9,<0.10" Faker
    /some/folder/bin/pip install --no-deps smartnoise-synth==1.0.8

without what the library has for neural networks alone, which takes gigabytes. Both are run as they come, but for what
they are to be good at: AIM takes all marginals of DEGREE attributes, or three, for its workload. Nothing of the budget
goes to preprocessing, the values of attributes being public.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from snsynth.aim import AIMSynthesizer  # type: ignore[import-not-found]
from snsynth.mst import MSTSynthesizer  # type: ignore[import-not-found]
from snsynth.transform import LabelTransformer, TableTransformer  # type: ignore[import-not-found]


def main() -> None:
    """Fit, sample as many records as there are, and write them."""
    name, epsilon, delta, source, target, *degree = sys.argv[1:]
    given = np.load(source)
    names = [f"a{i}" for i in range(len(given["sizes"]))]
    frame = pd.DataFrame(given["records"], columns=names)
    # Labels are known to be 0, 1, ...: each value once is enough to learn them.
    labels = [LabelTransformer(nullable=False) for _ in names]
    for label, size in zip(labels, given["sizes"], strict=True):
        label.fit([*range(int(size))])
    budget = {"epsilon": float(epsilon), "delta": float(delta)}
    started = time.perf_counter()
    if name == "aim":
        synthesizer = AIMSynthesizer(**budget, degree=int(degree[0]) if degree else 3)
    else:
        synthesizer = MSTSynthesizer(**budget)
    synthesizer.fit(frame, transformer=TableTransformer(labels), preprocessor_eps=0.0)
    records = synthesizer.sample(len(frame))
    np.savez(target, records=np.asarray(records, dtype=np.int64), seconds=time.perf_counter() - started)


if __name__ == "__main__":
    main()
