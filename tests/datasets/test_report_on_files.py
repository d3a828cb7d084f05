"""What is told of the records of a file, counted by a plain loop over the cells, and the places of its problems."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.storage.readers import columns as columns_module
from app.storage.readers import read_private

pytestmark = pytest.mark.unit

JSON = dict[str, Any]
BUDGET = {"epsilon": 1, "delta": 1e-9}
CODE: JSON = {"name": "code", "size": 3, "missing": True}
SCORE: JSON = {"name": "score", "lower": 0, "upper": 5, "grid": 1, "outside": "clamp"}
TABLE: JSON = {"kind": "table", "attributes": [CODE, SCORE], "outside": "drop"}


def told(spec: JSON, filename: str, content: bytes) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        parsed = parse_spec({"name": "x", "budget": BUDGET, **spec})
        report = read_private(parsed, filename, Path(file.name), memory_limit=1 << 28).report
        return None if report is None else report.view()


@given(st.lists(st.tuples(st.sampled_from(["0", "2", "3", "", "x"]), st.sampled_from(["-1", "0", "5", "9", "", "x"])),
                min_size=1, max_size=12), st.sampled_from([1 << 23, 8]))  # fmt: skip
def test_against_a_loop(records: list[tuple[str, str]], block: int) -> None:
    """Catches a record that is counted twice, one outside in two attributes that counts in one of them, a clamped or
    missing value of a record that was dropped, and counts that are lost between batches."""
    expected: JSON = {
        "read": len(records), "kept": 0, "dropped": 0, "clamped": 0, "beyond_cap": 0,
        "attributes": {name: {"dropped": 0, "clamped": 0, "missing": 0} for name in ("code", "score")},
    }  # fmt: skip
    for code, score in records:
        reasons = [name for name, bad in (("code", code in "3x" and code), ("score", score in ("", "x"))) if bad]
        for name in reasons:
            expected["attributes"][name]["dropped"] += 1
        expected["dropped" if reasons else "kept"] += 1
        if not reasons:
            expected["attributes"]["code"]["missing"] += code == ""
            expected["attributes"]["score"]["clamped"] += score in ("-1", "9")
            expected["clamped"] += score in ("-1", "9")
    text = "code,score\n" + "".join(f"{code},{score}\n" for code, score in records)
    # A line without anything but its separator is a record of two empty cells.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "BLOCK_BYTES", max(block, 32))
        if expected["kept"]:
            assert told(TABLE, "t.csv", text.encode()) == expected
        else:
            with pytest.raises(InvalidDataset, match=f"every one of the {len(records)} records") as caught:
                told(TABLE, "t.csv", text.encode())
            counts = {name: tally["dropped"] for name, tally in expected["attributes"].items() if tally["dropped"]}
            assert caught.value.extra == {"outside": counts}


def test_labels_that_do_not_match() -> None:
    """The attribute at fault is named first, with its number. Catches an empty data set that is taken as one."""
    spec = {"kind": "table", "attributes": [{"name": "sex", "values": ["f", "m"]}, SCORE], "outside": "drop"}
    with pytest.raises(InvalidDataset) as caught:
        told(spec, "t.csv", b"score,sex\n1,female\n2,male\n?,male\n")
    assert '3 of "sex", 1 of "score"' in caught.value.detail
    assert "spelled alike" in caught.value.detail


class TestProblems:
    SPEC: JSON = {"kind": "table", "attributes": [CODE, SCORE]}  # noqa: RUF012

    def refusal(self, spec: JSON, text: str) -> InvalidDataset:
        with pytest.raises(InvalidDataset) as caught:
            told(spec, "t.csv", text.encode())
        return caught.value

    def test_the_first_twenty_and_how_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Over many batches. Catches an end at the first problem, a list without end, another order."""
        monkeypatch.setattr(columns_module, "BLOCK_BYTES", 200)
        rows = [("9" if i % 3 == 0 else "1", "s3cr3t" if i % 2 == 0 else "1") for i in range(1, 301)]
        error = self.refusal(self.SPEC, "code,score\n" + "\n".join(map(",".join, rows)))
        places = [
            (i, name) for i in range(1, 301) for name, bad in (("code", i % 3 == 0), ("score", i % 2 == 0)) if bad
        ]
        assert [(p["row"], p["attribute"]) for p in error.extra["problems"]] == places[:20]
        assert error.extra["outside"] == {"code": 100, "score": 150}
        assert (error.extra["row"], error.extra["attribute"]) == (2, "score")
        assert "250 values are outside in all" in error.detail
        assert "s3cr3t" not in f"{error.detail} {error.extra}"
        expected = {p["attribute"]: p["expected"] for p in error.extra["problems"]}
        assert expected["code"].startswith("an integer code from 0 to 2, or an empty cell")
        assert expected["score"].startswith("a number from 0 to 5")

    def test_one_problem_is_said_once(self) -> None:
        error = self.refusal(self.SPEC, "code,score\n1,1\n7,1\n")
        assert "in all" not in error.detail
        assert len(error.extra["problems"]) == 1

    def test_a_refusing_attribute_of_a_table_that_drops(self) -> None:
        """A record that one attribute would drop and another refuses is a problem."""
        spec = {**TABLE, "attributes": [CODE, {**SCORE, "outside": "refuse"}]}
        error = self.refusal(spec, "code,score\n1,1\n7,1\n7,9\n")
        assert [(p["row"], p["attribute"]) for p in error.extra["problems"]] == [(3, "score")]
        assert told(spec, "t.csv", b"code,score\n1,1\n7,1\n")["dropped"] == 1

    @pytest.mark.parametrize(
        ("attribute", "words"),
        [
            ({"name": "a", "values": ["x"]}, "one of the declared values"),
            ({"name": "a", "lower": 0.5, "upper": 80, "bins": 3}, "a number from 0.5 to 80, without"),
            ({"name": "a", "dates": ["2020-01-01", "2020-12-31"], "by": "day"}, "a date from 2020-01-01 to 2020-12-31"),
        ],
    )
    def test_what_is_expected_of_each_kind(self, attribute: JSON, words: str) -> None:
        assert words in self.refusal({"kind": "table", "attributes": [attribute]}, "a,b\n?,\n").detail


def test_arrays_have_a_report_too(tmp_path: Path) -> None:
    """Counts are kept as they are; those at the last place of an attribute are without a value."""
    counts = np.arange(24).reshape(4, 6)
    spec = {"kind": "table", "attributes": [CODE, {**SCORE, "outside": None}]}
    with (tmp_path / "c.npy").open("wb") as file:
        np.save(file, counts)
    shown = told(spec, "c.npy", (tmp_path / "c.npy").read_bytes())
    assert (shown["read"], shown["kept"], shown["dropped"], shown["clamped"]) == (276, 276, 0, 0)
    assert shown["attributes"]["code"]["missing"] == 18 + 19 + 20 + 21 + 22 + 23
    assert shown["attributes"]["score"]["missing"] == 0


def test_nothing_of_it_is_shown(tmp_path: Path) -> None:
    """Its numbers are private. Catches a report that a log line or an error would print."""
    (tmp_path / "t.csv").write_text("code,score\n" + "1,1\n" * 4711)
    parsed = parse_spec({"name": "x", "budget": BUDGET, **TABLE})
    read = read_private(parsed, "t.csv", tmp_path / "t.csv", memory_limit=1 << 28)
    assert read.report is not None
    for shown in (read, read.report, read.report.attributes["code"]):
        assert "4711" not in repr(shown) + str(shown)


def test_other_kinds_have_none() -> None:
    assert told({"kind": "multiset"}, "w.csv", b"element\nthe\n") is None
