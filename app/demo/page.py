"""The page that the demonstration ends with, and the files beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from app.demo.cheats import Cheats
from app.demo.promise import Promise
from app.demo.survey import Survey, tables
from app.demo.tables import ENDS, Means, Rival, Tabulated
from app.report.pages import rendered
from app.report.plots import Plot, Series, height_axis, number_axis, point_plot
from curator_client.figures import Mark, forest, standing_alone

_TEMPLATES = Path(__file__).parent / "templates"
#: Points of a plot.
_POINTS = 200


@dataclass(frozen=True)
class Acts:
    """What came of each act; ``computed`` of the cells that suppression hides follow by subtraction."""

    survey: Survey
    means: Means
    tables: Tabulated
    epsilon: float
    before: float
    noise: Rival
    gaps: Rival
    computed: int
    promise: Promise
    cheats: Cheats

    @property
    def ends(self) -> int:
        """So many tables at the beginning and at the end are told by themselves."""
        return ENDS

    @property
    def errors(self) -> tuple[float, float, float]:
        """Root mean square errors of all tables, the first and the last ones."""
        return self.tables.error(), self.tables.error(slice(ENDS)), self.tables.error(slice(-ENDS, None))

    @property
    def promise_error(self) -> float:
        """The root mean square error of the session with a promise."""
        return float(np.sqrt(np.mean(self.promise.errors**2)))


def files(acts: Acts) -> Mapping[str, str]:
    """The page, the picture of the first act and all counts of the second, by the names of their files."""
    picture = forest_of(acts.means)
    told = {
        "acts": acts,
        "picture": Markup(picture),  # noqa: S704 - drawn by us, every text in it escaped
        "curve": _curve(acts.promise),
    }
    return {
        "index.html": rendered("demo.html.jinja", told, folders=(_TEMPLATES,)),
        "income.svg": standing_alone(picture),
        "tables.csv": _counts(acts.tables),
    }


def forest_of(told: Means) -> str:
    """The first act's picture, as SVG: a row a mean, with a mark where the truth is."""
    marks = [
        Mark((schooling, works), float(value), value.standard_error, value.interval, truth)
        for schooling, works, value, truth in told.rows()
    ]
    title = "Mean family income by schooling and work"
    return forest(title, ("schooling", "wife"), marks, confidence=told.answer.confidence)


def _curve(told: Promise) -> Plot:
    """The largest error of each stretch of questions, below what was promised and what noise could promise."""
    stretches = np.array_split(np.abs(told.errors), min(_POINTS, len(told.errors)))
    ends = np.cumsum([len(stretch) for stretch in stretches]).tolist()
    largest = [(float(end), float(stretch.max())) for end, stretch in zip(ends, stretches, strict=True)]
    across = [(float(end), told.bound) for end in ends]
    alone = [(float(end), told.alone) for end in ends]
    series = [
        Series("two", "promise of independent noise", alone),
        Series("three", "promise of this session", across),
        Series("one", "largest errors", largest),
    ]
    words = (
        f"Of {len(told.errors):,} answers none was further off than {told.largest:,.0f} records; the session had"
        f" promised {told.bound:,.0f}, independent noise could have promised {told.alone:,.0f}."
    )
    x = number_axis("questions", 0, round(1.03 * len(told.errors)))
    return point_plot(
        "promise",
        "Errors and promises",
        words,
        x,
        height_axis("records", max(told.alone, told.bound, told.largest)),
        series,
    )


def _counts(told: Tabulated) -> str:
    """All counts as CSV: which table, which cell, value, standard error, interval, truth."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "cell", "value", "standard_error", "low", "high", "truth"])
    for names, answer, truth in zip(tables(), told.answers, told.truths, strict=True):
        for (labels, value), true in zip(answer, truth.reshape(-1), strict=True):
            numbers = (float(value), value.standard_error, value.low, value.high, int(true))
            writer.writerow([" x ".join(names), " | ".join(map(str, labels)), *numbers])
    return text.getvalue()
