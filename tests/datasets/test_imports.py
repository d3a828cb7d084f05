"""Documents of SmartNoise and CSVW as declarations: written by hand after what their projects publish."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations import imports
from app.declarations.drafts import Draft
from app.declarations.errors import InvalidDataset
from app.declarations.imports import format_of, imported, parse_yaml
from app.declarations.spec import TableSpec, problems_of
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

DEPTH = 32
BUDGET = {"epsilon": 1, "delta": 1e-9}

SMARTNOISE = """
"":
  Hospital:
    Visits:
      max_ids: 3
      rows: 1000
      censor_dims: False
      patient:
        private_id: True
        type: int
      age:
        type: int
        lower: 0
        upper: 120
        nullable: False
      '"Weight-kg"':
        type: float
        lower: 0.5
        upper: 250
      ward:
        type: string
        cardinality: 4
      urgent:
        type: boolean
      admitted:
        type: datetime
      blob:
        type: unknown
engine: postgres
"""
LOMAS = """
max_ids: 1
row_privacy: true
rows: 344
columns:
  species:
    type: string
    cardinality: 3
    categories: [Adelie, Chinstrap, Gentoo]
  bill:
    type: float
    precision: 64
    lower: 30.0
    upper: 65.0
    nullable: true
  seen:
    type: datetime
    lower: 2020-01-01
    upper: 2021-06-30
"""
CSVW: dict[str, Any] = {
    "@context": ["http://www.w3.org/ns/csvw", "csvw-eo-context.jsonld"],
    "@type": "Table",
    "url": "https://example.org/data/income.csv",
    "privacyUnit": "person",
    "maxContributions": 2,
    "publicLength": 1000,
    "tableSchema": {
        "columns": [
            {"name": "person", "datatype": "integer"},
            {
                "name": "region",
                "titles": {"en": ["Region", "Area"], "de": "Gebiet"},
                "datatype": "int",
                "required": True,
                "minimum": 1,
                "maximum": 7,
                "keyValues": [1, 2, 3, 7],
                "propertyUrl": "https://example.org/region",
            },
            {
                "name": "age",
                "titles": "Age",
                "datatype": {"base": "integer", "minimum": "0", "maxInclusive": 99, "format": "#0"},
                "nullableProportion": 0.0,
            },
            {"name": "sex", "datatype": "string"},
            {"name": "tags", "datatype": "string", "separator": ";"},
            {"name": "computed", "virtual": True, "datatype": "string"},
            {
                "name": "born",
                "datatype": {"base": "date", "minimum": "1920-01-01", "maximum": "2019-12-31"},
            },
        ]
    },
}
#: The same terms under the prefixes of other versions of the vocabulary.
PREFIXED = {
    "@type": "csvw:Table",
    "name": "penguins",
    "csvw-safe:public.privacyUnit": "penguin",
    "csvw-safe:bounds.maxContributions": 3,
    "csvw:tableSchema": {
        "columns": [
            {"@type": "csvw:Column", "name": "penguin", "datatype": "string", "dp:privacyId": True},
            {
                "name": "island",
                "datatype": "string",
                "required": True,
                "csvw-safe:public.partitions": [
                    {"@type": "csvw-safe:Partition", "csvw-safe:predicate": {"partitionValue": "Biscoe"}},
                    {"csvw-safe:part.predicate": {"csvw-safe:part.partitionValue": "Dream"}},
                    {"dp:partitionValue": "Torgersen"},
                ],
            },
            {
                "name": "mass",
                "datatype": "double",
                "required": True,
                "dp:publicPartitions": [
                    {"dp:lowerBound": 2000, "dp:upperBound": 3000},
                    {"dp:lowerBound": 3000, "dp:upperBound": 7000.5},
                ],
            },
        ]
    },
}


def of(text: str | dict[str, Any], table: str | None = None, columns: tuple[str, ...] = ()) -> Draft:
    document = parse_yaml(text, DEPTH) if isinstance(text, str) else json.loads(json.dumps(text))
    assert format_of(document) is not None
    return imported(document, table, columns)


def attributes(draft: Draft) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in draft.spec["attributes"]}


def told(draft: Draft, *words: str) -> bool:
    """Whether one note has all the words."""
    return any(all(word in note for word in words) for note in draft.notes)


class TestSmartNoise:
    def test_a_document(self) -> None:
        """Catches a field that is read as another, lost without a note, or made up."""
        draft = of(SMARTNOISE)
        assert draft.spec["name"] == "Visits"
        assert draft.spec["unit"] == {"column": "patient", "max_records": 3}
        found = attributes(draft)
        assert [*found] == ["age", "Weight-kg", "ward", "urgent", "admitted"]
        age = found["age"]
        assert (age["lower"], age["upper"], age["grid"], age["outside"]) == (0, 120, 1, "clamp")
        assert "missing" not in age
        weight = found["Weight-kg"]
        assert (weight["lower"], weight["upper"], weight["missing"]) == (0.5, 250, True)
        # What the document does not tell is drafted from the file.
        for name in ("ward", "urgent", "admitted"):
            assert found[name] == {"name": name, "missing": True}
        assert told(draft, "censor_dims")
        assert told(draft, "rows", "records_public")
        assert told(draft, '"blob"', "unknown")
        assert told(draft, '"ward"', "categories")

    def test_a_document_of_lomas(self) -> None:
        """Catches categories and dates that are dropped, and empty cells allowed where Lomas has none."""
        draft = of(LOMAS)
        found = attributes(draft)
        assert found["species"] == {"name": "species", "values": ["Adelie", "Chinstrap", "Gentoo"]}
        assert (found["bill"]["lower"], found["bill"]["upper"], found["bill"]["missing"]) == (30, 65, True)
        assert found["seen"]["dates"] == ["2020-01-01", "2021-06-30"]
        assert found["seen"]["by"] == "day"
        assert "missing" not in found["seen"]
        assert "unit" not in draft.spec
        assert "name" not in draft.spec

    def test_what_is_said_in_full_is_sound(self) -> None:
        """Catches a field that no declaration takes."""
        draft = of(LOMAS)
        spec, problems = problems_of({"name": "penguins", "budget": BUDGET, **draft.spec})
        assert problems == []
        assert isinstance(spec, TableSpec)

    @pytest.mark.parametrize("spelled", ['"Visits"', "`Visits`", "[Visits]"])
    def test_escaped_names(self, spelled: str) -> None:
        """Catches the escapes of a database in a name."""
        assert of({"": {"Hospital": {spelled: {"a": {"type": "boolean"}}}}}).spec["name"] == "Visits"

    def test_one_of_several_tables(self) -> None:
        """Catches a table chosen by its place, and a refusal that does not name those there are."""
        tables = {name: {"a": {"type": "int", "lower": 0, "upper": n}} for n, name in enumerate(["p", "q"], 1)}
        document = {"db": {"s": tables, "t": {"q": {"b": {"type": "boolean"}}}}}
        with pytest.raises(InvalidDataset, match=r"s\.p, s\.q, t\.q"):
            of(document)
        with pytest.raises(InvalidDataset, match="none of this name"):
            of(document, "r")
        with pytest.raises(InvalidDataset, match="several"):
            of(document, "q")
        assert of(document, "p").spec["name"] == "p"
        assert attributes(of(document, "s.q"))["a"]["upper"] == 2

    @pytest.mark.parametrize(
        ("table", "unit", "note"),
        [
            ({"row_privacy": True, "p": {"private_id": True, "type": "int"}}, None, "records are what is protected"),
            ({"p": {"private_id": True, "type": "int"}}, {"column": "p", "max_records": 1}, None),
            ({"max_ids": 4}, None, "no column says whose"),
            ({"p": {"private_id": True}, "q": {"private_id": True}}, None, "one column"),
        ],
    )
    def test_units(self, table: dict[str, Any], unit: Any, note: str | None) -> None:
        """Catches a person protected as a record, and the other way round, without a word."""
        draft = of({"": {"s": {"t": {**table, "a": {"type": "boolean"}}}}})
        assert draft.spec.get("unit") == unit
        assert note is None or told(draft, note)

    @pytest.mark.parametrize("most", [0, -1, 1.5, "three", True])
    def test_a_nonsensical_number_of_records_is_refused(self, most: Any) -> None:
        """Catches a bound on a person's records that is none, taken as it stands."""
        with pytest.raises(InvalidDataset, match="whole number"):
            of({"": {"s": {"t": {"max_ids": most, "p": {"private_id": True, "type": "int"}}}}})

    def test_numbers_that_need_not_be_clamped_are_not(self) -> None:
        """Catches values that are moved to a bound though the document says to leave them."""
        draft = of({"": {"s": {"t": {"clamp_columns": False, "a": {"type": "int", "lower": 0, "upper": 9}}}}})
        assert "outside" not in attributes(draft)["a"]

    @pytest.mark.parametrize(("lower", "upper"), [(9, 0), (3, 3)])
    def test_bounds_that_are_reversed_stay_to_be_refused(self, lower: int, upper: int) -> None:
        """Catches bounds that are set right silently."""
        draft = of({"": {"s": {"t": {"a": {"type": "int", "lower": lower, "upper": upper}}}}})
        _, problems = problems_of({"name": "t", "budget": BUDGET, **draft.spec})
        assert [problem.extra for problem in problems] == [{"attribute": "a"}]

    @pytest.mark.parametrize("bound", ["high", float("1e301"), True, [1], "9" * 50])
    def test_bounds_that_are_no_numbers_are_told_of(self, bound: Any) -> None:
        draft = of({"": {"s": {"t": {"a": {"type": "int", "lower": 0, "upper": bound}}}}})
        assert attributes(draft)["a"] == {"name": "a", "missing": True}
        assert told(draft, '"a"', "bounds")


class TestCsvw:
    def test_a_document(self) -> None:
        """Catches a field that is read as another, lost without a note, or made up."""
        draft = of(CSVW, columns=("person", "Area", "Age", "sex", "born"))
        assert draft.spec["name"] == "income"
        assert draft.spec["unit"] == {"column": "person", "max_records": 2}
        found = attributes(draft)
        assert [*found] == ["Area", "Age", "sex", "born"]
        assert found["Area"] == {"name": "Area", "values": [1, 2, 3, 7]}
        assert (found["Age"]["lower"], found["Age"]["upper"], found["Age"]["grid"]) == (0, 99, 1)
        assert "missing" not in found["Age"]
        assert found["sex"] == {"name": "sex", "missing": True}
        assert found["born"]["dates"] == ["1920-01-01", "2019-12-31"]
        assert found["born"]["by"] == "month"
        assert told(draft, "publicLength")
        assert told(draft, '"tags"', "lists")
        assert told(draft, '"computed"', "virtual")
        assert told(draft, '"Age"', "format")

    def test_without_the_file_a_column_has_its_first_title(self) -> None:
        assert [*attributes(of(CSVW))] == ["Region", "Age", "sex", "born"]

    def test_other_prefixes(self) -> None:
        """Catches terms that are known under one prefix alone: each version of the vocabulary has another."""
        draft = of(PREFIXED)
        found = attributes(draft)
        assert draft.spec["name"] == "penguins"
        assert draft.spec["unit"] == {"column": "penguin", "max_records": 3}
        assert found["island"] == {"name": "island", "values": ["Biscoe", "Dream", "Torgersen"]}
        assert found["mass"] == {"name": "mass", "edges": [2000, 3000, 7000.5]}
        assert problems_of({"budget": BUDGET, **draft.spec})[1] == []

    def test_a_list_that_is_not_exhaustive_is_no_list_of_categories(self) -> None:
        """Catches records refused for a value that the document never excluded."""
        column = {"name": "a", "datatype": "string", "keyValues": ["x"], "exhaustiveKeys": False}
        draft = of({"tableSchema": {"columns": [column]}})
        assert attributes(draft)["a"] == {"name": "a", "missing": True}
        assert told(draft, "not exhaustive")

    def test_a_group_of_tables(self) -> None:
        """Catches a schema of the group that its tables do not get, and a table chosen by its place."""
        schema = {"columns": [{"name": "a", "datatype": {"base": "int", "minimum": 0, "maximum": 5}}]}
        group = {"tables": [{"url": "x/one.csv"}, {"url": "two.csv"}], "tableSchema": schema}
        with pytest.raises(InvalidDataset, match="one, two"):
            of(group)
        assert of(group, "two").spec["name"] == "two"
        assert attributes(of(group, "two"))["a"]["upper"] == 5

    @pytest.mark.parametrize(
        "document",
        [
            {"tableSchema": []},
            {"tableSchema": {"columns": {"a": 1}}},
            {"tableSchema": {"columns": [3]}},
            {"tableSchema": {"columns": [{"datatype": "int"}]}},
            {"tables": [1]},
            {"tables": []},
            {"tables": [{"url": "a.csv"}, {"url": "b/a.csv"}], "tableSchema": {"columns": []}},
            {"csvw:tableSchema": {"columns": []}, "tableSchema": {"columns": []}},
            {"tableSchema": {"columns": [{"name": "a"}] * 1001}},
        ],
    )
    def test_what_breaks_its_own_format_is_refused(self, document: dict[str, Any]) -> None:
        """Catches an error of another kind, and a guess."""
        with pytest.raises(InvalidDataset):
            of(document)


class TestFormats:
    @pytest.mark.parametrize(
        "document",
        [
            None,
            [],
            "text",
            {},
            {"name": "people"},
            {"budget": {"epsilon": 1, "delta": 1e-9}},
            {"name": "m", "kind": "matrix", "rows": 2, "columns": 3},
            {"attributes": [{"name": "a", "size": 2}]},
            {"engine": "postgres"},
            {"db": {"schema": {}}},
        ],
    )
    def test_declarations_of_this_project_are_not_foreign(self, document: Any) -> None:
        """Catches a declaration that is taken for somebody else's."""
        assert format_of(document) is None

    @pytest.mark.slow
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["columns", "tableSchema", "tables", "name", "titles", "datatype", "type", "lower", "upper",
                         "categories", "partitions", "private_id", "max_ids", "base", "minimum", "url", "x"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=30,
        )
    )  # fmt: skip
    def test_nonsense_is_refused_or_told_of(self, document: Any) -> None:
        """Catches any other error than a refusal, and a draft that cannot be sent."""
        if format_of(document) is None:
            return
        try:
            draft = imported(document, None, ())
        except InvalidDataset:
            return
        json.dumps(draft.spec)
        assert all(isinstance(note, str) and len(note) < 10_000 for note in draft.notes)


class TestYaml:
    def test_what_yaml_means_is_as_json_has_it(self) -> None:
        """Catches a date, a key or a number that no reply could hold."""
        text = "a: [1, 2.5, yes, null, 2020-01-31, 2020-01-31T10:00:00]\n2020: {x: '1'}\n"
        found = parse_yaml(text, DEPTH)
        assert found == {"a": [1, 2.5, True, None, "2020-01-31", "2020-01-31T10:00:00"], "2020": {"x": "1"}}
        json.dumps(found)

    def test_an_own_declaration_may_be_yaml(self) -> None:
        text = "name: p\nkind: table\nattributes:\n- {name: a, size: 2}\n- name: d\n  dates: [2020-01-01, 2020-12-31]\n  by: month\nbudget: {epsilon: 1, delta: 1.0e-9}\n"  # noqa: E501
        assert problems_of(parse_yaml(text, DEPTH))[1] == []

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("a: &x 1\nb: 2", "anchors"),
            ("a: *x", "alias"),
            ("a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]", "anchors"),
            ("a: !!python/object/apply:os.system [echo]", "tags"),
            ("a: !!binary aGVsbG8=", "tags"),
            ("? [1, 2]\n: x", "neither"),
            ("a: 1\na: 2", "two keys"),
            ("a: [1, 2", "line 1"),
            ("a: 2020-13-45", "cannot be read"),
            ("a: .inf", "cannot be read"),
            ("a: .nan", "cannot be read"),
            ("a: 99999999999999999999", "cannot be read"),
            ("a: " + "9" * 5000, "cannot be read"),
            ("a: b: c", "line 1"),
            ("a: \x07", "cannot be read"),
            ("--- a\n--- b\n", "neither"),
            ("yes: 1", "quotes"),
            ("[" * 40 + "]" * 40, "nested"),
            ("[" * 20_000, "nested"),
            ("- " * 20_000, "nested"),
            ("{a: " * 5000, "nested"),
            ("a: [" + "1," * 20_001 + "]", "values"),
            ("a: " + "x" * imports.MOST_YAML_BYTES, "bytes"),
        ],
    )
    def test_hostile_documents_are_refused(self, text: str, words: str) -> None:
        """Catches a document that runs code, grows in memory, is guessed at, or breaks the parser."""
        began = time.monotonic()
        with pytest.raises(InvalidDataset) as caught:
            parse_yaml(text, DEPTH)
        assert words in caught.value.detail
        assert caught.value.__cause__ is None
        assert time.monotonic() - began < patience(20)

    @given(st.text(max_size=60))
    def test_any_text_is_a_document_or_refused(self, text: str) -> None:
        """Catches whatever else the parser raises."""
        with contextlib.suppress(InvalidDataset):
            json.dumps(parse_yaml(text, DEPTH))
