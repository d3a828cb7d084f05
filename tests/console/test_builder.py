"""The form of a question: what it says, what is wrong with it, and that what it says becomes the form again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.console.builder import KINDS, MOST_ROWS, OPERATORS, Builder, Choice, Group, Where, Wrong
from app.http.console.graph_builder import GraphBuilder
from app.http.console.numbers import number_of
from app.spaces.queries.registry import parse_query

pytestmark = pytest.mark.unit

SPEC: dict[str, Any] = {
    "name": "people",
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["female", "male", "not, told", 'a "b"', " c"], "missing": True},
        {"name": "code", "size": 7},
        {"name": "age", "lower": 0, "upper": 100, "grid": 1, "missing": True},
        {"name": "wage", "lower": -2.5, "upper": 2.5, "grid": 0.5},
        {"name": "counts", "lower": 0, "upper": 9, "grid": 1, "role": "weight"},
        {"name": "seen", "dates": ["2020-01-01", "2020-12-31"], "by": "day"},
    ],
    "budget": {"epsilon": 1, "delta": 1e-9},
}
CHOICES = {each["name"]: Choice.of(each) for each in SPEC["attributes"]}


def said(builder: Builder) -> dict[str, Any]:
    return builder.question(CHOICES)


# ---------------------------------------------------------------------- what a form says, and back


def typed_value(choice: Choice) -> st.SearchStrategy[str]:
    if choice.dates:
        return st.dates(min_value=_day(2020, 1, 1), max_value=_day(2020, 12, 31)).map(str)
    if choice.labels and not choice.numeric:
        return st.sampled_from(choice.labels).filter(lambda label: label == label.strip())
    if choice.name == "wage":
        return st.sampled_from(["-2.5", "-1", "0", ".5", "1.5", "2.5"])
    return st.integers(0, 6).map(str)


def _day(year: int, month: int, day: int) -> date:
    return date(year, month, day)


@st.composite
def conditions(draw: st.DrawFn) -> Where:
    choice = CHOICES[draw(st.sampled_from(sorted(CHOICES)))]
    words = [word for word, _ in OPERATORS]
    words = [word for word in words if choice.numeric or word not in ("ge", "gt", "lt", "le")]
    words = [word for word in words if choice.missing or word not in ("missing", "present")]
    operator = draw(st.sampled_from(words))
    if operator in ("missing", "present"):
        return Where(choice.name, operator)
    value = typed_value(choice)
    if operator == "in":
        several = draw(st.lists(value, min_size=1, max_size=3))
        return Where(choice.name, operator, ", ".join(f'"{each.replace(chr(34), chr(34) * 2)}"' for each in several))
    return Where(choice.name, operator, draw(value))


@st.composite
def forms(draw: st.DrawFn) -> Builder:
    names = draw(st.lists(st.sampled_from(["sex", "code", "age"]), max_size=3, unique=True))
    edges = {"age": ["", "0 30 65 100", "0, 50, 100"], "code": [""], "sex": [""]}
    kind = draw(st.sampled_from([kind for kind, _ in KINDS]))
    of = draw(st.sampled_from(["age", "wage"]))
    groups = tuple(Group(name, draw(st.sampled_from(edges[name]))) for name in names)
    return Builder(
        kind,
        of,
        draw(st.sampled_from(["0.5", "0.25, 0.5, .75"])),
        groups,
        tuple(draw(st.lists(conditions(), max_size=3))),
        draw(st.sampled_from(["", "10", "2,500"])),
        draw(st.booleans()),
        "wage" if of == "age" else "age",
        draw(conditions()),
        kind not in ("sum", "ratio", "variance") and draw(st.booleans()),
    )


@given(forms())
def test_a_question_is_the_form_that_said_it(builder: Builder) -> None:
    """The service takes what a form says, and it becomes a form that says the same. Catches a question that is refused
    although its form is right, and one that comes back as another."""
    asked = said(builder)
    parse_query(asked)
    again = Builder.of_question(asked, CHOICES)
    assert again is not None
    assert said(again) == asked


def test_a_share_has_more_than_one_form() -> None:
    """Catches a share of the client that comes back as none."""
    for of in ({"sex": "male"}, {"sex": {"equals": "male"}}):
        again = Builder.of_question({"type": "share", "of": of, "weighted": False}, CHOICES)
        assert again is not None
        assert (again.part, again.of, again.weighted) == (Where("sex", "is", "male"), "", False)


def test_conditions_have_more_than_one_form() -> None:
    """Those that say the same are the same form. Catches a question of the client that comes back as none."""
    for where in ({"code": 1}, {"code": {"equals": 1}}):
        again = Builder.of_question({"type": "predicate", "where": where}, CHOICES)
        assert again is not None
        assert again.conditions == (Where("code", "is", "1"),)
    several = Builder.of_question({"type": "predicate", "where": {"sex": ["female", "male"]}}, CHOICES)
    assert several is not None
    assert several.conditions == (Where("sex", "in", "female, male"),)


def test_what_forms_cannot_say_stays_no_form() -> None:
    """Catches a question that comes back without a part of it."""
    for question in (
        {"type": "predicate", "where": {"any": [{"sex": "male"}, {"code": 1}]}},
        {"type": "predicate", "where": {"not": {"age": {"ge": 3}}}},
        {"type": "predicate", "where": {"age": {"ge": 3, "lt": 5}}},
        {"type": "predicate", "where": {"age": {"at": "upper"}}},
        {"type": "share", "of": {"sex": "male", "code": 1}},
        {"type": "share", "of": {"any": [{"sex": "male"}, {"code": 1}]}},
        {"type": "share", "of": {}},
        {"type": "ratio", "of": "age", "per": "nothing"},
        {"type": "marginal", "attributes": ["sex"], "bins": {"sex": {"one": ["male"], "two": ["female"]}}},
        {"type": "variance", "of": "age", "weighted": True},
        {"type": "mean", "of": "nothing"},
    ):
        assert Builder.of_question(question, CHOICES) is None


@pytest.mark.parametrize(
    ("builder", "field"),
    [
        (Builder(kind="median"), "kind"),
        (Builder(kind="mean", of="sex"), "of"),
        (Builder(kind="mean", of=""), "of"),
        (Builder(kind="ratio", of="age"), "per"),
        (Builder(kind="ratio", of="age", per="age"), "per"),
        (Builder(kind="ratio", of="sex", per="age"), "of"),
        (Builder(kind="share"), "part"),
        (Builder(kind="share", part=Where("nobody")), "part"),
        (Builder(kind="share", part=Where("age", "ge", "")), "part-value"),
        (Builder(kind="sum", of="age", weighted=True), "weighted"),
        (Builder(kind="quantile", of="age", parts="2"), "parts"),
        (Builder(kind="quantile", of="age", parts=""), "parts"),
        (Builder(groups=(Group("nobody"),)), "by-0"),
        (Builder(groups=(Group("sex"), Group("sex"))), "by-1"),
        (Builder(groups=(Group("sex", "1 2"),)), "edges-0"),
        (Builder(groups=(Group("age", "1"),)), "edges-0"),
        (Builder(groups=(Group("age", "1 x"),)), "edges-0"),
        (Builder(groups=(Group("age", "5 5"),)), "edges-0"),
        (Builder(groups=(Group("age", "0 1e999"),)), "edges-0"),
        (Builder(conditions=(Where("nobody"),)), "where-0"),
        (Builder(conditions=(Where("sex", "is", "nobody"),)), "value-0"),
        (Builder(conditions=(Where("sex", "ge", "male"),)), "value-0"),
        (Builder(conditions=(Where("age", "is", "old"),)), "value-0"),
        (Builder(conditions=(Where("age", "is", ""),)), "value-0"),
        (Builder(conditions=(Where("age", "in", " , "),)), "value-0"),
        (Builder(conditions=(Where("age", "like", "3"),)), "value-0"),
        (Builder(within="-1"), "within"),
        (Builder(within="nan"), "within"),
    ],
)
def test_what_is_wrong_is_said_of_its_field(builder: Builder, field: str) -> None:
    """Catches a fault that is said of another field, or of none."""
    with pytest.raises(Wrong) as refused:
        said(builder)
    assert list(refused.value.told) == [field]


class Filled(dict[str, str]):
    """Fields as a form has them."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        return super().get(name, default)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "kind",
                "of",
                "parts",
                "per",
                "part",
                "part-operator",
                "part-value",
                "weighted",
                "exact",
                "within",
                "adaptive",
                "by-0",
                "edges-0",
                "by-11",
                "where-0",
                "operator-0",
                "value-0",
                "where-7",
                "value-7",
                "by-99",
            ]
        ),
        st.text(max_size=12) | st.text("09²٣ ,", max_size=4),
    )
)
def test_no_form_is_a_fault(fields: dict[str, str]) -> None:
    """Whatever was filled in is a question or says what is wrong, and rows are as many as they may be. Catches an error
    of another kind."""
    builder = Builder.read(Filled(fields))
    assert len(builder.groups) <= MOST_ROWS
    for do in ("add-by", "drop-by-0", "drop-where-0", "drop-where-9999", "drop-by--1", "drop-by-²", "price", ""):
        builder.changed(do)
    graph = GraphBuilder.read(Filled(fields | {"groups": fields.get("of", ""), "left": fields.get("within", "")}))
    for question in (lambda: said(builder), graph.question):
        told = wrong(question)
        assert told is None or (told and all(told.values()))


def wrong(question: Callable[[], object]) -> dict[str, str] | None:
    """What is wrong with a form; None of one that says a question."""
    try:
        question()
    except Wrong as error:
        return error.told
    return None


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("0.5", 0.5),
        (" 1,000 ", 1000),
        ("1,234,567.5", 1234567.5),
        ("−3", -3),
        (".5", 0.5),
        ("1e3", 1000),
        ("0,5", None),
        ("0,500", None),
        ("1,5", None),
        ("1,0000", None),
        ("12,34,567", None),
        ("1_000", None),
        ("1e999", None),
        ("nan", None),
        ("²", None),
        ("٣", None),
        ("", None),
    ],
)
def test_numbers_as_people_type_them(typed: str, number: float | None) -> None:
    """Catches a comma before decimals that is taken for one between thousands: who types 0,5 would spend 5."""
    assert number_of(typed) == number


@pytest.mark.parametrize(
    ("typed", "groups"),
    [
        ("a, a, b", {"a": [0, 1], "b": [2]}),
        ("a a  b", {"a": [0, 1], "b": [2]}),
        ("a,,b", {"a": [0], "b": [2]}),
        ("node,group\n7,x\nann,y\n8,x\n9,", {"x": [7, 8], "y": ["ann"]}),
        ("7,x\n8,x", {"x": [7, 8]}),
    ],
)
def test_groups_of_nodes(typed: str, groups: dict[str, list[Any]]) -> None:
    """Catches a node in another's group."""
    asked = GraphBuilder(kind="between", groups_of=typed).question()
    assert asked == {"type": "blocks", "left": groups}
