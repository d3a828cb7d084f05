"""Intervals of variances of small groups: how often several hold, and how wide they are.

Run `python -m benchmarks.research.intervals` (a minute). Noise of the number of records, of the sum and of the sum of
squares is drawn with NumPy, as it is where single numbers are counted (Laplace) and where moments are measured
(Gaussian).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.stats import chi2, norm

from app.estimation.tables.joint import Joint
from app.estimation.tables.ratios import variances_of
from benchmarks.harness import report

#: Records of a group, numbers of the grid, and noise of the number of records as a part of it.
SIZES, PLACES, NOISES, DRAWS, CONFIDENCE = (30, 100, 400, 2000), (8, 20, 60), (0.01, 0.05, 0.15, 0.3), 2000, 0.95
#: What constants were chosen on, and what was looked at once, at the end.
SHAPES = ("even", "skewed", "ties", "all at a bound", "two camps", "one far off")
KEPT = SHAPES[4:]
METHODS = ("no covariances", "first order", "box", "flat", "taken", "two")


def parts(shape: str, places: int) -> np.ndarray:
    """How records are spread over the numbers."""
    at = np.arange(places)
    spread = {
        "even": np.ones(places),
        "skewed": np.exp(-8 * at / places),
        "ties": np.isin(at, [places // 5, places // 2]),
        "all at a bound": at == places - 1,
        "two camps": np.exp(-np.square((at - places / 6) / 2)) + np.exp(-np.square((at - places / 1.2) / 2)),
        "one far off": np.where(at == 0, 0.97, np.where(at == places - 1, 0.03, 0.0)),
    }[shape].astype(np.float64)
    return np.asarray(spread / spread.sum())


def known(
    rng: np.random.Generator, counts: np.ndarray, noise: float, how: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """N, S and Q of a group in many draws, the covariances of their noise, and what is true."""
    places = len(counts)
    steps = np.arange(places) - (places - 1) // 2
    weights = np.stack([np.ones(places), steps, np.square(steps)])
    truth, size = weights @ counts, noise * counts.sum()
    if how == "counted":
        each = size / math.sqrt(places)
        drawn = rng.laplace(0, each / math.sqrt(2), (DRAWS, places)) @ weights.T
        return truth + drawn, each**2 * weights @ weights.T, truth
    # Of the sum of squares a moment less half of the largest is measured.
    half = float(np.abs(steps).max())
    root = np.diag([size, size * half, size * half**2 / 2])
    root[2] += half**2 / 2 * root[0]
    return truth + rng.normal(size=(DRAWS, 3)) @ root.T, root @ root.T, truth


def ends(values: np.ndarray, covariance: np.ndarray, places: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The interval that each method has in each draw, cut to what is possible."""
    quantile = float(norm.ppf(0.5 + CONFIDENCE / 2))
    least, most = -float((places - 1) // 2), float(places - 1 - (places - 1) // 2)
    n, s, q = values.T
    linear = q / n - np.square(s / n)
    slopes = np.stack([2 * np.square(s / n) - q / n, -2 * s / n, np.ones(len(n))], axis=1) / n[:, None]
    told = Joint(values, np.broadcast_to(covariance, (len(values), 3, 3)))
    found = {}
    # As it was: moments as they are measured, about half of the largest square.
    bare = np.eye(3)
    bare[2, 0] = most**2 / 2
    own = np.diag(np.linalg.solve(bare, np.linalg.solve(bare, covariance).T))
    for name, matrix in (("no covariances", bare @ np.diag(own) @ bare.T), ("first order", covariance)):
        errors = np.sqrt(np.einsum("gi,ij,gj->g", slopes, matrix, slopes))
        found[name] = linear - quantile * errors, linear + quantile * errors
    reach = float(norm.ppf(1 - (1 - CONFIDENCE) / 6)) * np.sqrt(np.diag(covariance))
    corners = [values + np.array(signs) * reach for signs in itertools.product((-1, 1), repeat=3)]
    corners += [np.stack([c[:, 0], np.clip(0.0, s - reach[1], s + reach[1]), c[:, 2]], axis=1) for c in corners]
    there = np.stack([np.where(c[:, 0] > 0, c[:, 2] / c[:, 0] - np.square(c[:, 1] / c[:, 0]), np.nan) for c in corners])
    unsafe = n <= reach[0]
    found["box"] = np.where(unsafe, 0, there.min(axis=0)), np.where(unsafe, most**2, there.max(axis=0))
    found["flat"] = variances_of(told, quantile, least, most, curved=False)[1:]
    found["taken"] = variances_of(told, quantile, least, most)[1:]
    found["two"] = variances_of(told, math.sqrt(chi2.ppf(CONFIDENCE, 2)), least, most, curved=False)[1:]
    return {name: (np.clip(low, 0, most**2), np.clip(high, 0, most**2)) for name, (low, high) in found.items()}


def main() -> None:
    """Measure and report."""
    rows = []
    for shape in SHAPES:
        held: dict[str, list[float]] = {name: [] for name in METHODS}
        wide: dict[str, list[float]] = {name: [] for name in METHODS}
        for seed, (size, places, noise, how) in enumerate(
            itertools.product(SIZES, PLACES, NOISES, ("counted", "moments"))
        ):
            rng = np.random.default_rng(seed)
            counts = rng.multinomial(size, parts(shape, places))
            values, covariance, truth = known(rng, counts, noise, how)
            # Where there may be nobody there is no value.
            values = values[values[:, 0] > float(norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt(covariance[0, 0])]
            true = truth[2] / truth[0] - (truth[1] / truth[0]) ** 2
            intervals = ends(values, covariance, places)
            usual = float(np.mean(intervals["taken"][1] - intervals["taken"][0]))
            for name, (low, high) in intervals.items():
                held[name].append(float(np.mean((low <= true + 1e-9) & (true <= high + 1e-9))))
                wide[name].append(float(np.mean(high - low)) / usual)
        for name in METHODS:
            width = math.exp(float(np.mean(np.log(wide[name]))))
            rows.append(
                [shape, name, min(held[name]), float(np.mean(held[name])), max(held[name]), width, max(wide[name])]
            )
    columns = ["data", "interval", "least held", "mean held", "most held", "width", "largest width"]
    report("intervals", "Nominal 95% intervals of variances", columns, rows, draws=DRAWS, untouched=list(KEPT))


if __name__ == "__main__":
    main()
