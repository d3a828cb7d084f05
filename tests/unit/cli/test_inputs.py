"""Conditions and bins as they are typed."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.errors import Refusal
from app.cli.inputs import parse_bins, parse_conditions, parse_levels
from app.spaces.query_request import parse_query


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
