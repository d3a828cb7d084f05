"""Rehearsals of sources: made-up records are asked as the data would be, and the data are never looked at."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bootstrap import rehearsal
from app.bootstrap.rehearsal import Rehearsal, Timed, rehearse
from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec
from app.settings import Settings
from app.spaces.asked import MOST_CLASSES, classes_of
from app.storage.sources.parquet import count_source
from tests.datasets.source_files import JSON, declare
from tests.kit.servers import curator

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 40, "column": "ward_code"},
    {"name": "age", "lower": 0, "upper": 120, "grid": 1, "missing": True},
    {"name": "day", "dates": ["2020-01-01", "2025-12-31"], "by": "day"},
    {"name": "sex", "values": ["f", "m", "x"]},
    {"name": "pay", "lower": 0, "upper": 1000, "bins": 50},
]


def spec(attributes: list[JSON] = ATTRIBUTES, **more: Any) -> TableSpec:
    source = {"type": "parquet", "files": ["nowhere/*.parquet"]}
    found = parse_spec({**declare(attributes), "capacity": 4000, "source": source, **more})
    assert isinstance(found, TableSpec)
    return found


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_TIMES", 1)
    monkeypatch.setattr(rehearsal, "FEW", 10)


def test_made_up_records_are_asked_and_nothing_is_left(tmp_path: Path) -> None:
    """The declared files are not there, and nobody notices. Would catch a rehearsal that looks at the data."""
    found = rehearse(spec(), Settings(), folder=tmp_path)
    assert (found.records, found.capacity, found.possible) == (4000, 4000, True)
    assert [each.question for each in found.timed] == [
        "all that an opening counts of two attributes",
        f"a table of {2192 * 122 * 3:,} cells",
        "a condition on 5 attributes",
        f"sums of age by {2192 * 50 * 3:,} groups",
    ]
    assert all(0 < each.seconds == each.expected for each in found.timed), "as many as declared: nothing is added"
    assert not [*tmp_path.iterdir()]


def test_a_part_of_the_records_tells_of_all(tmp_path: Path) -> None:
    found = rehearse(spec(capacity=2_000_000), Settings(), records=1000, folder=tmp_path)
    assert (found.records, found.capacity) == (1000, 2_000_000)
    assert all(each.expected >= each.seconds for each in found.timed)


def test_it_writes_records_as_the_declaration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several files and parts of files; the engine that counts the data takes each of them."""
    monkeypatch.setattr(rehearsal, "_DRAWN", 30)
    monkeypatch.setattr(rehearsal, "_FILE", 100)
    rehearsal._write(spec(), 250, tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    assert [pq.read_metadata(file).num_rows for file in files] == [100, 100, 50]
    plain = [{key: value for key, value in each.items() if key != "column"} for each in ATTRIBUTES]
    told = spec(plain, source={"type": "parquet", "files": ["*.parquet"]})
    report = count_source(told, [tmp_path], memory_limit=1 << 30).report
    assert (report.kept, report.outside) == (250, {})


SIZES = st.lists(st.integers(2, 3000), min_size=1, max_size=24)


@given(SIZES)
def test_questions_are_such_as_are_asked(sizes: list[int]) -> None:
    """Each has as many classes as are told apart, and no more; the widest has no room for another attribute."""
    declared = spec([{"name": f"a{n}", "size": size} for n, size in enumerate(sizes)])
    questions = dict(rehearsal._questions(declared))
    shape = tuple(sizes)
    for asked in questions.values():
        assert asked
        assert all(classes_of(each, shape) is not None for each in asked)
    (wide,) = next(asked for words, asked in questions.items() if words.startswith("a table"))
    left = [size for axis, size in enumerate(sizes) if axis not in wide.axes]
    assert all(math.prod(wide.shape) * size > MOST_CLASSES for size in left)


def test_attributes_of_one_column(tmp_path: Path) -> None:
    """And no two of which make a table together. Would catch made-up files that are none of the declaration's, and a
    question that asks nothing."""
    twice = [{"name": name, "size": 5000, "column": "x"} for name in ("a", "b")]
    found = rehearse(spec(twice), Settings(), folder=tmp_path)
    assert [each.question for each in found.timed] == ["a table of 5,000 cells", "a condition on 2 attributes"]


def test_so_few_records_tell_nothing(tmp_path: Path) -> None:
    """What is left of two times that hardly differ would be taken times the declared records."""
    with pytest.raises(InvalidDataset, match="make up 1,000 or more"):
        rehearse(spec(capacity=2_000_000), Settings(), records=999, folder=tmp_path)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (spec(ATTRIBUTES[:2]), "nobody waits"),
        (spec(prepare="vault"), "leave it out"),
        (spec(source={"type": "postgresql", "connection": "c", "table": "a.b"}), "files alone"),
        (parse_spec({**declare(ATTRIBUTES[3:4])}), "names none"),
    ],
)
def test_where_nobody_waits_nothing_is_rehearsed(declared: TableSpec, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match=words):
        rehearse(declared, Settings(), folder=tmp_path)


def test_what_to_declare() -> None:
    timed = (Timed("x", 0.2, 3.1), Timed("y", 0.3, 1.0))
    assert Rehearsal(10, 100, timed, 30.0).answer_seconds == 7
    assert not Rehearsal(10, 100, timed, 7.0).possible, "the longest wait itself is too long"


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**declare(ATTRIBUTES), "capacity": 500, "source": {"type": "parquet", "files": ["x"]}}))
    done = curator(tmp_path, None, "source", "rehearse", str(path))
    assert done.returncode == 0, done.stderr
    assert 'Declare "answer_seconds": ' in done.stdout
    done = curator(tmp_path, None, "source", "rehearse", str(path), "--json", request_timeout_seconds="0.001")
    assert done.returncode == 1, "nobody waits for so long"
    told = json.loads(done.stdout)
    assert (told["records"], told["possible"]) == (500, False)
    path.write_text(json.dumps(declare(ATTRIBUTES[3:4])))
    done = curator(tmp_path, None, "source", "rehearse", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "nobody waits for one" in done.stderr
