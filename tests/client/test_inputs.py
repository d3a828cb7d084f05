"""Conditions and bins as they are typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.errors import Refusal
from app.cli.inputs import (
    names_of,
    numbered,
    parse_bins,
    parse_conditions,
    parse_degrees,
    parse_levels,
    read_groups,
    split,
)
from app.spaces.queries.registry import parse_query

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([], {}),
        (["sex=female"], {"sex": "female"}),
        (["workclass=3"], {"workclass": 3}),
        (['code="3"'], {"code": "3"}),
        (["workclass=1,4"], {"workclass": [1, 4]}),
        (["sex = female , male"], {"sex": ["female", "male"]}),
        (["income=null"], {"income": None}),
        (["income at upper"], {"income": {"at": "upper"}}),
        ([" hours per week  at lower ", "sex=f"], {"hours per week": {"at": "lower"}, "sex": "f"}),
        (["look=at upper"], {"look": "at upper"}),
        (["income=null,3"], {"income": [None, 3]}),
        (['word="null"'], {"word": "null"}),
        (["joined>=2020-05", "joined<2021-01-01"], {"joined": {"ge": "2020-05", "lt": "2021-01-01"}}),
        (['joined="2020"'], {"joined": "2020"}),
        (["flag=true"], {"flag": "true"}),
        (["age>=30", "age<65"], {"age": {"ge": 30, "lt": 65}}),
        (["age > 30.5"], {"age": {"gt": 30.5}}),
        (["age<=-1"], {"age": {"le": -1}}),
        (["marital-status=never married"], {"marital-status": "never married"}),
        (["note=a=b"], {"note": "a=b"}),
        (['{"a=b": {"in": [1, 2]}}', "sex=female"], {"a=b": {"in": [1, 2]}, "sex": "female"}),
        (
            ['{"any": [{"sex": "male"}, {"not": {"code": 1}}]}', "age<65"],
            {"any": [{"sex": "male"}, {"not": {"code": 1}}], "age": {"lt": 65}},
        ),
        (['{"age": {"ge": 30}}', "age<65"], {"age": {"ge": 30, "lt": 65}}),
    ],
)
def test_conditions(texts: list[str], found: dict[str, Any]) -> None:
    """Would catch a number sent as text, text as a number, a bound that replaces the other, and a sign read in part."""
    assert parse_conditions(texts) == found
    parse_query({"type": "predicate", "where": found})


@pytest.mark.parametrize(
    "texts",
    [
        ["sex"],
        ["=female"],
        ["income at"],
        ["at upper"],
        ["income at middle"],
        ["sex="],
        [""],
        ["age=>30"],
        ["sex=female", "sex=male"],
        ["age>=30", "age>=40"],
        ["age=30", "age<65"],
        ["age<null"],
        ["age<65", "age=30"],
        ['{"not": {"sex": "male"}}', '{"not": {"age": {"ge": 30}}}'],
        ['{"any": [{"sex": "male"}]}', '{"any": [{"code": 1}]}'],
        ["{"],
        ['{"a": 1, "a": 2}'],
    ],
)
def test_conditions_that_are_none(texts: list[str]) -> None:
    """Would catch a condition that is dropped without a word."""
    with pytest.raises(Refusal):
        parse_conditions(texts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sex!=m", """'{"not": {"sex": "m"}}'"""),
        ("code != 3", """'{"not": {"code": 3}}'"""),
        ("canton='Zürich'", "canton=Zürich"),
    ],
)
def test_conditions_as_other_languages_have_them(text: str, words: str) -> None:
    """Would catch an attribute named ``sex!``, and a label that is said not to be there for its quotes."""
    with pytest.raises(Refusal, match=re.escape(words)):
        parse_conditions([text])


@pytest.mark.parametrize(
    ("text", "labels", "found"),
    [
        ("work=full, part", ["full, part"], "full, part"),
        ("work=full,part", ["full, part"], "full, part"),
        ("work=none,full, part", ["full, part"], ["none", "full, part"]),
        ("work=full, part,none", ["full, part", "full, part,none"], "full, part,none"),
        ("work=full, part", ["part, full"], ["full", "part"]),
        ("work=full, part", [], ["full", "part"]),
        ('work="full, part"', [], "full, part"),
        ('work= "full, part" , none', [], ["full, part", "none"]),
        ('work="a \\"b\\", c",3', [], ['a "b", c', 3]),
        ('work=l\'indépendant "libéral"', [], 'l\'indépendant "libéral"'),
        ('work="a" or "b, c"', [], ['"a" or "b', 'c"']),
    ],
)
def test_labels_with_commas(text: str, labels: list[str], found: Any) -> None:
    """Would catch a label taken for two, two for one, and quotes within a label that are taken for quotes around it."""
    assert parse_conditions([text], lambda name: labels if name == "work" else ()) == {"work": found}


@given(parts=st.lists(st.text(alphabet="ab ,\"'\\é", min_size=1).filter(str.strip), min_size=1))
def test_quoted_labels_are_what_they_were(parts: list[str]) -> None:
    """Would catch a comma, a quote or a backslash in quotes that ends a label."""
    assert [json.loads(each) for each in split(" , ".join(map(json.dumps, parts)))] == parts


def test_names() -> None:
    """Would catch a name with a comma taken for two."""
    assert names_of('age, "net income, monthly",sex') == ["age", "net income, monthly", "sex"]
    assert names_of("5,true") == ["5", "true"]


def test_bins() -> None:
    """Would catch edges sent as text."""
    assert parse_bins(["age=15, 30,45.5", "a=b=0,2"]) == {"age": [15, 30, 45.5], "a=b": [0, 2]}
    for texts in (["age"], ["=1,2"], ["age=1,2", "age=1,3"]):
        with pytest.raises(Refusal):
            parse_bins(texts)


def test_levels() -> None:
    """Would catch one part sent as a list, which makes a table of it, and a word sent on."""
    assert parse_levels("0.5") == 0.5
    assert parse_levels("0.25, 0.5,0.75") == [0.25, 0.5, 0.75]
    for text in ("", "0.5,", "half"):
        with pytest.raises(Refusal):
            parse_levels(text)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("c.csv", "0,red\n2, red\n1,blue\n", {"red": ["0", "2"], "blue": ["1"]}),
        ("c.csv", "\ufeffnode,group\r\n0,red\r\n", {"red": ["0"]}),
        ("c.csv", 'Node,label\n\nann,"a, b"\nben,\n', {"a, b": ["ann"]}),
        ("c.tsv", "node\tgroup\n7\ta,b\n", {"a,b": ["7"]}),
        ("c.txt", "ann,node\nnode,node\n", {"node": ["ann", "node"]}),
        ("c.csv", "", {}),
    ],
)
def test_groups_of_a_file(tmp_path: Path, name: str, text: str, found: dict[str, list[str]]) -> None:
    """Would catch a header that is taken for a node, a node for a header, and one without a group that is counted."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_groups(tmp_path / name, "--blocks") == found


@pytest.mark.parametrize("text", [b"0\n", b"0,red,1\n", b",red\n", b"\xff,red\n"])
def test_other_files_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.csv").write_bytes(text)
    with pytest.raises(Refusal, match="--blocks"):
        read_groups(tmp_path / "c.csv", "--blocks")
    with pytest.raises(Refusal, match="cannot be read"):
        read_groups(tmp_path / "none.csv", "--blocks")


def test_numbers_of_nodes() -> None:
    """Would catch a header of another name that is sent as a node, or left out."""
    assert numbered({"a": ["0", "07"]}, "--blocks") == {"a": [0, 7]}
    for wrong in ("user", "-1", "1.0", "²"):
        with pytest.raises(Refusal, match="is no node"):
            numbered({"a": ["0"], "b": [wrong]}, "--blocks")


def test_bins_of_degrees() -> None:
    assert parse_degrees("0, 1,2,10") == [0, 1, 2, 10]
    for wrong in ("", "0,", "0,a", "0,-1", "0,1.5", "age=0,5"):
        with pytest.raises(Refusal, match="--bins"):
            parse_degrees(wrong)
