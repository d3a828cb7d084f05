"""Rows over ranges for a median, beside counts of as many ranges for the same price: what each is told by.

Run `python -m benchmarks.research.quantile_rows` (some seconds). Nothing is drawn: variances follow from the rows. They
are those of least error for the number of records below each end less half of all (:mod:`app.policies.quantiles`), each
end weighing alike. All are parts of the variance that counts of ranges bring.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from app.measurements.least_error import least_error, least_error_pure, rounded
from app.policies.quantiles import OF_ALL
from benchmarks.harness import report

RANGES = (4, 8, 16, 32, 64)
SEARCHES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"gaussian": least_error, "laplace": least_error_pure}


def row(ranges: int, kind: str) -> list[object]:
    """What rows bring over so many ranges."""
    below = np.tri(ranges - 1, ranges) - 0.5
    needed = below.T @ below / (ranges - 1)
    matrix = rounded(SEARCHES[kind](needed + OF_ALL))
    # The variance of noise for the price of counts: what a record moves rows by, squared.
    moved = np.square(matrix).sum(axis=0).max() if kind == "gaussian" else np.abs(matrix).sum(axis=0).max() ** 2
    known = np.linalg.inv(matrix.T @ matrix) * float(moved)
    return [
        ranges,
        kind,
        float(np.trace(known @ needed) / np.trace(needed)),
        float(known.sum() / ranges),
        float(np.trace(known) / ranges),
    ]


def main() -> None:
    """Compute and report."""
    columns = ["ranges", "noise", "below less half", "all", "a range"]
    found = [row(ranges, kind) for kind in SEARCHES for ranges in RANGES]
    report("quantile_rows", "Rows over ranges for a median", columns, found)


if __name__ == "__main__":
    main()
