"""Drafts of declarations: what a column becomes, and that no value of the file is told but in the draft itself."""

from __future__ import annotations

import calendar
import datetime
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.attributes import MAX_NUMBERS, Attribute
from app.declarations.drafts import (
    LEAST_TOLD_APART,
    MOST_BINS,
    MOST_CODES,
    MOST_LABELS,
    PLACEHOLDER,
    WRITTEN,
    ColumnSummary,
    Layout,
    Numbers,
    attribute_of,
    completed,
    name_of,
    numeric,
    to_draft,
)
from app.declarations.spec import MOST_ATTRIBUTES, NAME, parse_spec, problems_of

pytestmark = [pytest.mark.unit, pytest.mark.slow]

#: Stands for a private value.
SECRET = "s3cr3t"


def texts(name: str, *labels: str, filled: int = 10_000, empty: bool = False) -> ColumnSummary:
    few = tuple(sorted(labels)) if len(labels) <= MOST_LABELS else None
    return ColumnSummary(name, filled, empty, labels=few)


def numbers(name: str, *values: float, decimals: int | None = 0, filled: int = 10_000) -> ColumnSummary:
    few = tuple(sorted(set(values)))
    held = Numbers(min(values), max(values), decimals, few if len(few) <= MOST_LABELS else None)
    return ColumnSummary(name, filled, False, numbers=held)


def drafted(summary: ColumnSummary) -> dict[str, Any]:
    fields, _ = attribute_of(summary)
    assert fields is not None
    return fields


class TestNumbers:
    @given(
        st.lists(st.integers(-(10**9), 10**9), min_size=MOST_CODES + 1, unique=True),
        st.integers(0, 6),
    )
    def test_bounds_are_outside_and_round(self, units: list[int], decimals: int) -> None:
        """Catches a bound within the numbers, one that is an extreme of the file though it is not round, bins that are
        too many or of odd widths, and a draft that no declaration may be.
        """
        values = [float(Decimal(unit).scaleb(-decimals)) for unit in units]
        made = Attribute.model_validate(drafted(numbers("x", *values, decimals=decimals)))
        low, high = made.bounds
        assert low <= min(map(Fraction, map(str, values)))
        assert high >= max(map(Fraction, map(str, values)))
        edges = [made.edge_at()(number) for number in range(made.bin_count + 1)]
        width = edges[1] - edges[0]
        assert 1 <= len(edges) - 1 <= MOST_BINS
        assert {b - a for a, b in pairwise(edges)} == {width}
        # One, two or five times a power of ten, of which both bounds are multiples.
        digits = f"{Decimal(width.numerator) / Decimal(width.denominator):f}".replace(".", "").strip("0")
        assert digits in ("1", "2", "5")
        assert (low / width).denominator == 1
        assert (high / width).denominator == 1
        assert made.places <= MAX_NUMBERS

    def test_ages_are_as_a_person_would_declare_them(self) -> None:
        """Catches bounds that are round and far off, and integers on another grid than their own."""
        assert drafted(numbers("age", *range(17, 91))) == {
            "name": "age", "lower": 15, "upper": 90, "grid": 1, "bins": 15,
        }  # fmt: skip

    def test_decimals_make_the_grid(self) -> None:
        """Catches a grid that is finer or coarser than what is written."""
        values = [n / 20 for n in range(40)]
        assert drafted(numbers("x", *values, decimals=2))["grid"] == 0.01

    def test_too_many_numbers_get_a_coarser_grid_and_a_note(self) -> None:
        """Catches cents of a large range that no declaration can hold, and a coarser grid that nobody is told of."""
        fields, notes = attribute_of(numbers("income", *[n * 5000.01 for n in range(50)], decimals=2))
        assert fields is not None
        assert fields["grid"] == 1
        assert len(notes) == 1
        assert "grid of 1" in notes[0]

    @pytest.mark.parametrize(
        "values",
        [[1e300, 2e300, 3e300], [-1.7e308, 1.7e308], [1e-300, 2e-300], [2.0**60, 2.0**61]],
    )
    def test_what_lies_on_no_grid_has_bins_or_is_left_out(self, values: list[float]) -> None:
        """Catches an overflow, and a draft that would be refused."""
        fields, notes = attribute_of(numbers("x", *values, decimals=None))
        assert notes
        if fields is not None:
            made = Attribute.model_validate(fields)
            assert made.kind == "bins"
            assert float(made.bounds[0]) <= values[0]
            assert float(made.bounds[1]) >= values[-1]

    @given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
    def test_any_floats_are_drafted_or_left_out(self, a: float, b: float) -> None:
        """Catches whatever arithmetic makes of extreme numbers, and bounds that are moved inwards."""
        fields, _ = attribute_of(numbers("x", a, b, *([0.5] if a <= 0.5 <= b else []), decimals=None))
        if fields is not None:
            # Integers of more than 64 bits are no JSON here.
            orjson.dumps(fields)
            low, high = Attribute.model_validate(fields).bounds
            # Bounds beyond what floats tell apart are the nearest floats.
            assert float(low) <= min(a, b)
            assert float(high) >= max(a, b)

    @pytest.mark.parametrize(
        ("few", "expected"),
        [
            ([0, 1], {"size": 2}),
            ([1], {"size": 2}),
            ([0], {"size": 2}),
            ([0, 1, 2, 3], {"size": 4}),
            ([1, 2, 3], {"values": [1, 2, 3]}),
            ([0, 1, 3], {"values": [0, 1, 3]}),
            ([-1, 0, 1], {"values": [-1, 0, 1]}),
            ([*range(MOST_CODES)], {"size": MOST_CODES}),
        ],
    )
    def test_few_whole_numbers_are_codes_or_values(self, few: list[int], expected: dict[str, Any]) -> None:
        """Catches codes of which one is missing taken for all of them, and numbers where codes are."""
        assert drafted(numbers("kind", *few)) == {"name": "kind", **expected}

    def test_more_are_numbers(self) -> None:
        assert "grid" in drafted(numbers("kind", *range(MOST_CODES + 1)))

    @given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
    def test_given_bounds_stay(self, low: int, span: int) -> None:
        """Bounds that somebody declared are not rounded. Catches one that is moved, and bins without a number."""
        fields, _ = numeric(Fraction(low), Fraction(low + span), Fraction(1))
        made = Attribute.model_validate({"name": "x", **fields})
        assert made.bounds == (low, low + span)
        assert made.bin_count <= MOST_BINS + 1


class TestTexts:
    def test_labels_are_values(self) -> None:
        assert drafted(texts("sex", "male", "female")) == {"name": "sex", "values": ["female", "male"]}

    @pytest.mark.parametrize("labels", [("true",), ("TRUE", "FALSE"), ("False", "true")])
    def test_booleans_are_both_whichever_there_are(self, labels: tuple[str, ...]) -> None:
        """Catches a draft that tells that nobody in the file is one of the two."""
        assert drafted(texts("active", *labels))["values"] == ["false", "true"]

    def test_a_column_with_empty_cells_may_be_without_a_value(self) -> None:
        assert drafted(texts("sex", "f", "m", empty=True))["missing"] is True
        assert "missing" not in drafted(texts("sex", "f", "m"))

    def test_too_many_texts_are_left_out(self) -> None:
        """Catches names of people in a public declaration."""
        fields, notes = attribute_of(texts("remark", *(f"{SECRET}{n}" for n in range(MOST_LABELS + 1))))
        assert fields is None
        assert "free text" in notes[0]

    @pytest.mark.parametrize("written", WRITTEN)
    def test_numbers_and_dates_that_are_written_another_way(self, written: str) -> None:
        """Would catch a column that is left out, or taken for categories, without a word of what to write instead."""
        many = replace(texts("when", *(f"{SECRET}{n}" for n in range(MOST_LABELS + 1))), written=written)
        fields, (note,) = attribute_of(many)
        assert fields is None
        assert WRITTEN[written] in note
        assert "free text" not in note
        fields, (note,) = attribute_of(replace(texts("share", "1%", "2%"), written=written))
        assert fields == {"name": "share", "values": ["1%", "2%"]}
        assert note == WRITTEN[written]

    def test_texts_that_differ_in_each_record_are_left_out(self) -> None:
        """Catches a short file of names: there are few of them, and each tells of one person."""
        count = LEAST_TOLD_APART + 1
        fields, _ = attribute_of(texts("who", *(f"{SECRET}{n}" for n in range(count)), filled=count))
        assert fields is None

    def test_no_note_has_a_value(self) -> None:
        """Catches a value in what is told of a column, or in how the summary is written out."""
        summaries = [
            texts("a", *(f"{SECRET}{n}" for n in range(MOST_LABELS + 1))),
            texts("b", SECRET, "other", empty=True),
            texts("patient", *(f"{SECRET}{n}" for n in range(50)), filled=50),
            numbers("c", 8173645.25, 1.0, decimals=None),
        ]
        draft = completed({}, "people", summaries)
        told = f"{draft.notes} {draft!r} {summaries!r}"
        assert SECRET not in told
        assert "8173645" not in told


class TestPeople:
    @pytest.mark.parametrize(
        "name", ["id", "ID", "personId", "person_id", "PatientID", "user id", "Customer", "household", "subject.id"]
    )
    def test_who_is_told_apart_is_no_attribute(self, name: str) -> None:
        """Catches an identifier among the attributes, as text or as number, without a word about the unit."""
        many = [f"x{n}" for n in range(MOST_LABELS + 1)]
        for summary in (texts(name, *many), numbers(name, *range(MOST_LABELS + 1))):
            fields, notes = attribute_of(summary)
            assert fields is None
            assert '"unit"' in notes[0]

    @pytest.mark.parametrize("name", ["humidity", "idle", "paid", "personality", "width", "valid"])
    def test_other_names_have_the_letters_too(self, name: str) -> None:
        """Catches a number that is left out as its name has the letters of an identifier's."""
        assert drafted(numbers(name, *range(MOST_LABELS + 1)))["grid"] == 1

    def test_few_values_tell_nobody_apart(self) -> None:
        assert drafted(texts("customer", "private", "business"))["values"] == ["business", "private"]


class TestDates:
    @given(st.dates(), st.integers(0, 3 * 366))
    def test_days_are_kept_by_day_in_whole_months(self, first: datetime.date, days: int) -> None:
        """Catches a first or last day of the file in the draft, and a month that is cut."""
        last = first + datetime.timedelta(min(days, (datetime.date.max - first).days))
        fields = drafted(ColumnSummary("day", 100, False, dates=(first, last)))
        low, high = map(datetime.date.fromisoformat, fields["dates"])
        assert fields["by"] == "day"
        assert (low.year, low.month, low.day) == (first.year, first.month, 1)
        assert (high.year, high.month) == (last.year, last.month)
        assert high.day == calendar.monthrange(high.year, high.month)[1]

    def test_more_years_are_kept_by_month(self) -> None:
        summary = ColumnSummary("day", 100, False, dates=(datetime.date(2001, 5, 6), datetime.date(2010, 2, 3)))
        assert drafted(summary) == {"name": "day", "dates": ["2001-01-01", "2010-12-31"], "by": "month"}


class TestWhole:
    def test_a_draft_is_a_sound_declaration(self) -> None:
        """Catches a draft that its own check would refuse."""
        summaries = [texts("sex", "f", "m"), numbers("age", *range(17, 91))]
        draft = completed({}, "my people (2)", summaries)
        spec = parse_spec(draft.spec)
        assert spec.name == "my-people-2"
        assert [attribute.name for attribute in spec.attributes] == ["sex", "age"]  # type: ignore[union-attr]
        assert draft.spec["budget"] == PLACEHOLDER
        assert any(note.startswith("budget") for note in draft.notes)

    def test_what_is_declared_stays(self) -> None:
        """Catches a draft in the place of what somebody has decided."""
        declared = {
            "name": "mine",
            "budget": {"epsilon": 2, "delta": 1e-6},
            "attributes": [{"name": "age", "lower": 0, "upper": 120, "grid": 1}, {"name": "sex", "missing": True}],
            "records_public": True,
        }
        assert to_draft(declared, ["sex", "age", "other"]) == ["sex"]
        draft = completed(declared, "people", [texts("sex", "f", "m")])
        assert draft.spec == {
            **declared,
            "kind": "table",
            "attributes": [declared["attributes"][0], {"name": "sex", "values": ["f", "m"], "missing": True}],
        }
        assert draft.notes == ()

    def test_no_more_attributes_than_a_table_has(self) -> None:
        """Catches a draft of a wide file that is refused as a whole."""
        draft = completed({}, "wide", [texts(f"c{n}", "a", "b") for n in range(MOST_ATTRIBUTES + 3)])
        assert len(draft.spec["attributes"]) == MOST_ATTRIBUTES
        assert any("last 3 columns" in note for note in draft.notes)
        assert problems_of(draft.spec)[1] == []

    @pytest.mark.parametrize("name", ["", " a", "x" * 129, "any", "not"])
    def test_names_that_no_attribute_has_are_left_out(self, name: str) -> None:
        assert attribute_of(texts(name, "a", "b"))[0] is None

    @given(st.text(max_size=100))
    def test_any_text_makes_a_name(self, text: str) -> None:
        """Catches a file's name that makes a declaration unusable."""
        assert NAME.fullmatch(name_of(text))

    def test_whose_a_record_is_is_no_attribute(self) -> None:
        """Catches a draft that its own unit makes unsound."""
        assert to_draft({"unit": {"column": "who", "max_records": 3}}, ["who", "age"]) == ["age"]

    def test_columns_must_be_known_where_one_is_drafted(self) -> None:
        """Catches a draft of an array, which would have no attributes."""
        assert to_draft({}, None) is None
        assert to_draft({"attributes": [{"name": "a"}]}, None) is None
        assert to_draft({"attributes": [{"name": "a", "size": 2}]}, None) == []

    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["attributes", "name", "missing", "encoding", "null_values", "size"]), inner)))  # fmt: skip  # noqa: E501
    def test_nonsense_is_completed_and_refused(self, nonsense: Any) -> None:
        """Catches an error of another kind than a refusal, whatever stands in a declaration."""
        declared = nonsense if isinstance(nonsense, dict) else {"attributes": nonsense}
        Layout.of(declared)
        wanted = to_draft(declared, ["a"])
        draft = completed(declared, "x", [texts(name, "p", "q") for name in wanted or ()])
        spec, problems = problems_of(draft.spec)
        assert spec is not None or problems


class TestProblems:
    GOOD: ClassVar[dict[str, Any]] = {
        "name": "people",
        "kind": "table",
        "attributes": [{"name": "sex", "size": 2}, {"name": "age", "lower": 0, "upper": 80, "bins": 4}],
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }

    def test_a_sound_declaration_has_none(self) -> None:
        assert problems_of(self.GOOD) == (parse_spec(self.GOOD), [])

    def test_all_are_found(self) -> None:
        """Catches a check that stops at the first, or at the first attribute, and one that names none."""
        attributes = [{"name": "a", "size": 0}, {"name": "b"}, *self.GOOD["attributes"], {"size": 3}]
        declared = {**self.GOOD, "attributes": attributes, "budget": {"epsilon": -1, "delta": 2}, "colour": "red"}
        spec, problems = problems_of(declared)
        told = [problem.detail for problem in problems]
        for words in ('attribute "a"', 'attribute "b"', "attributes.4", "epsilon", "delta", "colour"):
            assert any(words in detail for detail in told), (words, told)
        assert [problem.extra.get("attribute") for problem in problems][:2] == ["a", "b"]
        assert spec is not None
        assert [attribute.name for attribute in spec.attributes] == ["sex", "age"]  # type: ignore[union-attr]

    def test_what_has_no_sound_attribute_is_nothing(self) -> None:
        spec, problems = problems_of({**self.GOOD, "attributes": [{"name": "a"}]})
        assert spec is None
        assert len(problems) == 1

    def test_too_many_attributes_are_one_problem(self) -> None:
        many = [{"name": f"a{n}", "size": 2} for n in range(MOST_ATTRIBUTES + 40)]
        assert len(problems_of({**self.GOOD, "attributes": many})[1]) == 1
