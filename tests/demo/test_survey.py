"""The truth that the demonstration holds answers against, and what it says of others."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from app.declarations.spec import parse_spec
from app.demo import survey as surveys
from app.demo.data import census
from app.demo.promise import Boxes, Prober
from app.demo.survey import ATTRIBUTES, BINS, Survey, survey, tables, years
from app.demo.tables import SUPPRESSED_BELOW, _left_hidden

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def real() -> Survey:
    return survey(1)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Survey:
    """What is taken where the survey's package is not installed."""

    def missing(package: str) -> Path:
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(surveys, "files", missing)
    return survey(1)


def test_counts_and_means_are_those_of_the_file(real: Survey) -> None:
    """Record by record, from the file that is sent. Catches bins whose ends are on the wrong side, and columns that
    changed places."""
    names = ("age", "inlf", "faminc")
    counted: Counter[tuple[int, ...]] = Counter()
    incomes: dict[tuple[int, int], list[float]] = {}
    for row in csv.DictReader(io.StringIO(real.file.decode())):
        values = {name: float(row[name]) for name in (*names, "educ")}

        def bin_of(name: str, values: dict[str, float] = values) -> int:
            edges = BINS.get(name, (0, 1, 2))
            return next(i for i in range(len(edges) - 1) if edges[i] <= values[name] < edges[i + 1])

        counted[tuple(map(bin_of, names))] += 1
        incomes.setdefault((bin_of("educ"), bin_of("inlf")), []).append(values["faminc"])
    counts = real.counts(names)
    assert {place: counts[place] for place in np.ndindex(counts.shape)} == {
        place: counted[place] for place in np.ndindex(counts.shape)
    }
    means = real.means("faminc", ("educ", "inlf"))
    assert {place: pytest.approx(np.mean(each)) for place, each in incomes.items()} == {
        place: means[place] for place in np.ndindex(means.shape)
    }


def test_a_made_up_survey_takes_its_place(made_up: Survey, real: Survey) -> None:
    """It has the same columns within the same bounds, says that it is made up, and no table of it is trivial."""
    assert "made-up" in made_up.title
    assert "made-up" not in real.title
    assert made_up.file.splitlines()[0] == real.file.splitlines()[0]
    parse_spec(made_up.spec(1.0, 1e-9))
    for each in ATTRIBUTES:
        column = made_up.columns[each["name"]]
        known = column[~np.isnan(column)]
        assert (len(known) == len(column)) != each.get("missing", False), each
        low, high = (each["lower"], each["upper"]) if "grid" in each else (0, each["size"] - 1)
        assert (low <= known.min(), known.max() <= high) == (True, True), each
        assert len(np.unique(known)) > 1
    assert np.isfinite(made_up.means("faminc", ("educ", "inlf"))).all()


def test_suppressed_counts_that_are_told_follow_indeed(real: Survey) -> None:
    """Against linear algebra: a hidden count follows exactly if it is fixed by what tables that share two attributes
    have in common. Catches a count that is said to follow and does not."""
    asked = tables()[:12]
    hidden = [(real.counts(names) > 0) & (real.counts(names) < SUPPRESSED_BELOW) for names in asked]
    places = [(table, place) for table, cells in enumerate(hidden) for place in zip(*np.nonzero(cells), strict=True)]
    column = {place: number for number, place in enumerate(places)}
    rows = []
    for one, names in enumerate(asked):
        for other in range(one):
            shared = [name for name in names if name in asked[other]]
            if len(shared) != 2:
                continue
            for at in np.ndindex(*(hidden[one].shape[names.index(name)] for name in shared)):
                row = np.zeros(len(places))
                for table, sign in ((one, 1.0), (other, -1.0)):
                    for number, (of, place) in enumerate(places):
                        own = [place[asked[table].index(name)] for name in shared] if of == table else None
                        if own == list(at):
                            row[number] += sign
                rows.append(row)
    system = np.array(rows)
    rank = np.linalg.matrix_rank(system)
    fixed = sum(
        np.linalg.matrix_rank(np.vstack([system, np.eye(len(places))[column[place]]])) == rank for place in places
    )
    left = _left_hidden(hidden, asked)
    assert 0 < len(places) - left <= fixed
    assert _left_hidden([np.zeros_like(cells) for cells in hidden], asked) == 0


def test_boxes_are_counted_as_records_are() -> None:
    """Against a scan of the records. Catches a corner with the wrong sign."""
    table = census(3, records=2000)
    boxes, prober = Boxes(table), Prober(table, np.random.default_rng(4))
    low, high = prober.batch(60)
    prober.learn(low, high, boxes.counts(low, high).astype(float))
    low, high = (np.vstack(pair) for pair in zip((low, high), prober.batch(60), strict=True))
    names = [axis.name for axis in table.axes]
    for start, end, count in zip(low, high, boxes.counts(low, high), strict=True):
        sides = zip(names, start.tolist(), end.tolist(), strict=True)
        assert table.truth({name: (first, last) for name, first, last in sides}) == count


def test_years_in_words() -> None:
    """All whole numbers of the declaration, each in one bin. Would catch a bin that is told one year too long."""
    told = {"[0, 12)": "below 12 years", "[12, 13)": "12 years", "[13, 16)": "13 to 15 years"}
    assert {label: years(label) for label in told} == told
    assert {years("[16, 19)"), years("[16, 19]")} == {"16 years and more"}
