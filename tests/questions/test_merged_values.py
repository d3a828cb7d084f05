"""Values that are merged by name: counts against pandas, and what is told, charged, recorded and read back of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.spaces.queries.registry import from_canonical
from app.spaces.records import RecordsTensor
from curator_client import by
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.strategies import BUDGET, Words, universe

pytestmark = pytest.mark.unit

#: By attribute the labels of its values, in the order of their places.
LABELS: dict[str, list[Any]] = {
    "work": ["full", "part", "none", "retired", None],
    "code": [0, 1, 2, 3],
    "year": [2000, 2001, 2002, 2003],
}
TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "work", "values": ["full", "part", "none", "retired"], "missing": True},
            {"name": "code", "size": 4},
            {"name": "year", "lower": 2000, "upper": 2003, "grid": 1},
        ],
        "budget": BUDGET,
    }
)
ROWS = st.lists(st.tuples(*(st.sampled_from(range(len(labels))) for labels in LABELS.values())), max_size=30)


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict[str, list[Any]]:
    """One to three groups, in any order, of some values of an attribute."""
    values = draw(st.permutations(LABELS[name]))
    cuts = sorted(draw(st.sets(st.integers(1, len(values)), min_size=1, max_size=3)))
    starts = [0, *cuts[:-1]]
    names = draw(st.permutations(["a", "b", "c"]))
    return {names[k]: values[first:stop] for k, (first, stop) in enumerate(zip(starts, cuts, strict=True))}


def tensor(rows: list[tuple[int, ...]]) -> RecordsTensor:
    columns = np.array(rows, np.uint8).reshape(len(rows), len(LABELS)).T
    return RecordsTensor([np.ascontiguousarray(c) for c in columns], TABLE.space.shape)


def told(words: Words, rows: list[tuple[int, ...]]) -> tuple[list[list[Any]], list[int]]:
    """The labels along each axis and the exact counts of the answer, row by row."""
    query = TABLE.compiled({"type": "marginal"} | words)
    return [axis["labels"] for axis in query.labels], query.ordered(query.exact(tensor(rows))).tolist()


@settings(max_examples=60)
@given(st.data())
def test_counts_are_those_of_pandas(d: st.DataObject) -> None:
    """Groups of non-neighbours, on one or two attributes, beside one that is not merged and a condition. Would catch
    values that are in no group but are counted, groups under another's name, and cells of another axis."""
    rows = d.draw(ROWS)
    names = d.draw(st.lists(st.sampled_from(list(LABELS)), unique=True, min_size=2, max_size=3))
    bins = {name: d.draw(groups(name)) for name in names[: d.draw(st.integers(1, len(names)))]}
    where = d.draw(st.sampled_from([{}, {"code": [0, 1, 2]}, {"any": [{"code": 1}, {"work": "full"}]}]))
    words = {"attributes": names, "bins": bins, "where": where if "code" not in names else {}}
    # Fewer than two cells are refused; that is tested by hand.
    axes = [list(bins[name]) if name in bins else LABELS[name] for name in names]
    if np.prod([len(axis) for axis in axes]) < 2:
        return
    if "any" in words["where"] and "work" in names:
        words["where"] = {}

    frame = pd.DataFrame([[LABELS[n][p] for n, p in zip(LABELS, row, strict=True)] for row in rows], columns=LABELS)
    frame = frame.astype(object).where(frame.notna(), "missing")
    if "code" in words["where"]:
        frame = frame[frame["code"].isin([0, 1, 2])]
    elif words["where"]:
        frame = frame[(frame["code"] == 1) | (frame["work"] == "full")]
    for name in names:
        spelled = {value: value for value in LABELS[name]}
        if name in bins:
            spelled = {value: group for group, values in bins[name].items() for value in values}
        frame[name] = frame[name].map({("missing" if v is None else v): str(label) for v, label in spelled.items()})
    counts = frame.dropna(subset=names).groupby(names).size().to_dict()

    found, values = told(words, rows)
    assert [sorted(map(str, axis)) for axis in found] == [sorted(map(str, axis)) for axis in axes]
    cells = itertools.product(*([str(label) for label in axis] for axis in found))
    assert {cell: n for cell, n in zip(cells, values, strict=True) if n} == counts


@settings(max_examples=60)
@given(ROWS, groups("work").filter(lambda found: len(found) > 1), st.sampled_from(["code", "year"]))
def test_a_merged_table_is_the_sum_of_the_fine_one(
    rows: list[tuple[int, ...]], merged: dict[str, list[Any]], other: str
) -> None:
    """And a form that is read back is the same question, with the same counts. Would catch a cell that is counted
    twice or dropped, and a canonical form that forgets which values are in no group."""
    words = {"type": "marginal", "attributes": [other, "work"], "bins": {"work": merged}}
    _, fine = told({"attributes": [other, "work"]}, rows)
    (_, named), values = told({k: v for k, v in words.items() if k != "type"}, rows)
    table = np.array(fine).reshape(len(LABELS[other]), -1)
    expected = [table[:, [LABELS["work"].index(v) for v in merged[name]]].sum(axis=1) for name in named]
    assert np.array(values).reshape(len(LABELS[other]), -1).T.tolist() == [column.tolist() for column in expected]
    query = TABLE.compiled(words)
    back = from_canonical(TABLE.space, orjson.loads(orjson.dumps(query.canonical)), {})
    assert (back.digest, back.canonical) == (query.digest, query.canonical)
    assert back.exact(tensor(rows)).tolist() == query.exact(tensor(rows)).tolist()


def test_what_is_counted_is_the_question() -> None:
    """Whatever groups are called and in which order they and their values stand. Would catch a name in the canonical
    form, which would have one table paid for twice."""
    spelled: list[dict[str, Any]] = [
        {"employed": ["full", "part"], "not": ["none", None]},
        {"x": [None, "none"], "y": ["part", "full", "part"]},
    ]
    one, two = (TABLE.compiled({"type": "marginal", "attributes": ["work"], "bins": {"work": g}}) for g in spelled)
    assert one.digest == two.digest
    assert one.labels == [{"attribute": "work", "labels": ["employed", "not"]}]
    assert two.labels == [{"attribute": "work", "labels": ["y", "x"]}]
    other = TABLE.compiled(
        {"type": "marginal", "attributes": ["work"], "bins": {"work": {"employed": ["full"], "not": ["none", None]}}}
    )
    assert other.digest != one.digest
    edges, named = (
        TABLE.compiled({"type": "marginal", "attributes": ["code"], "bins": {"code": b}})
        for b in ([0, 2, 4], {"low": [0, 1], "high": [3, 2]})
    )
    assert edges.digest == named.digest


def test_under_a_condition_names_stay() -> None:
    """Would catch the name of another group where the condition changes which group has the least value, and a group
    of nothing, which is told as zero for ever."""
    words: Words = {
        "attributes": ["code", "work"],
        "bins": {"code": {"a": [0, 3], "b": [1, 2]}, "work": {"x": ["full"], "y": ["none"]}},
        "where": {"code": [1, 2, 3], "work": ["none", "part"]},
    }
    rows = [(2, 3, 0), (2, 3, 0), (2, 1, 0), (0, 1, 0), (2, 0, 0), (1, 2, 0)]
    assert told(words, rows) == ([["b", "a"], ["y"]], [1, 2])
    assert told(words | {"where": {"any": [{"code": 3}, {"work": "none", "code": 1}]}}, rows)[0] == [
        ["b", "a"],
        ["x", "y"],
    ]


def test_groups_of_statistics_and_shares_are_merged_too() -> None:
    """Would catch kinds of questions with group_by that take edges alone."""
    bins = {"work": {"employed": ["full", "part"], "not": ["none"]}}
    for words in ({"type": "mean", "of": "year"}, {"type": "share", "of": {"code": 1}}):
        query = TABLE.compiled(words | {"group_by": ["work"], "bins": bins})
        assert query.labels == [{"attribute": "work", "labels": ["employed", "not"]}]
        assert query.numbers == 2


SPEC: dict[str, Any] = {
    "name": "jobs",
    "kind": "table",
    "attributes": [{"name": "work", "values": ["full", "part", "none", "retired"]}, {"name": "sex", "size": 2}],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "records_public": True,
}


@pytest.mark.parametrize("records", [None, 5000])
def test_a_session_replays(records: int | None) -> None:
    """Merged tables, one of them twice under other names, with and without a known number of records. Would catch a
    total that is taken for that of the groups where values are left out, and an audit that knows no such cells."""
    rng = np.random.default_rng(4)
    columns = [rng.choice(4, 5000, p=[0.4, 0.1, 0.2, 0.3]).astype(np.uint8), rng.integers(0, 2, 5000).astype(np.uint8)]
    spec = SPEC | {"records_public": records is not None}
    player = Player(spec=spec, data=RecordsTensor(columns, (4, 2)), max_queries=4, epsilon=1.0, records=records)
    for merged in ({"employed": ["full", "none"], "not": ["part"]}, {"n": ["part"], "e": ["none", "full"]}):
        player.ask({"type": "marginal", "attributes": ["work"], "bins": {"work": merged}})
    player.ask({"type": "marginal", "attributes": ["work", "sex"], "bins": {"work": {"a": ["retired", "full"]}}})
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert verdict.summary["cached_answers"] == 1
    first, _, third = (json.loads(line) for line in player.lines if b'"record":"answer"' in line)
    truth = np.bincount(columns[0], minlength=4)
    assert np.allclose(first["values"], [truth[0] + truth[2], truth[1]], atol=150)
    assert np.allclose(third["values"], np.bincount(columns[1][np.isin(columns[0], [0, 3])]), atol=150)


def test_as_the_client_spells_it() -> None:
    """Would catch groups that are told as a list of their names, and NumPy's values."""
    spelled = by("code", bins={"code": {"a": np.array([0, 2]), "b": (1,)}}).count().json
    assert spelled == {"type": "marginal", "attributes": ["code"], "bins": {"code": {"a": [0, 2], "b": [1]}}}
