"""Ratios through the whole service: from a file to answers, charges, transcripts and what is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curator_client import Answer, Curator, Table, question
from tests.kit.service import JSON, Service, ask, refused, register, unique
from tests.statistics.test_statistics_over_http import opened, replays

pytestmark = pytest.mark.api

RECORDS = 4000
SPEC: JSON = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 2.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 6},
        {"name": "income", "lower": 0, "upper": 5000, "grid": 0.5, "bins": 20, "missing": True, "outside": "clamp"},
        {"name": "hours", "lower": 1, "upper": 80, "grid": 1},
        {"name": "leave", "lower": -10, "upper": 40, "grid": 1, "bins": 5, "missing": True},
        {"name": "age", "lower": 15, "upper": 95, "bins": 16},
    ],
}
RANDOM = np.random.default_rng(31)
SEX, REGION = RANDOM.integers(0, 2, RECORDS), np.minimum(RANDOM.geometric(0.4, RECORDS) - 1, 5)
HOURS, AGE = np.clip(RANDOM.normal(38, 14, RECORDS), 1, 80).astype(int), RANDOM.integers(15, 95, RECORDS)
#: In halves of a unit; what is above the bound counts as that. -1 where there is none.
HALVES = (HOURS * RANDOM.gamma(4.0, 8.0 + 4 * SEX, RECORDS)).astype(int) * 2
HALVES[RANDOM.random(RECORDS) < 0.1] = -1
LEAVE = RANDOM.integers(-10, 41, RECORDS)
LEAVE[RANDOM.random(RECORDS) < 0.2] = -99
CSV = "sex,region,income,hours,leave,age\n" + "".join(
    f"{'fm'[s]},{r},{'' if i < 0 else i / 2},{h},{'' if n == -99 else n},{a}\n"
    for s, r, i, h, n, a in zip(SEX, REGION, HALVES, HOURS, LEAVE, AGE, strict=True)
)
NUMBERS: dict[str, list[Fraction]] = {
    "income": [Fraction(min(max(int(i), 0), 10_000), 2) for i in HALVES],
    "hours": [Fraction(int(h)) for h in HOURS],
    "leave": [Fraction(0 if n == -99 else int(n)) for n in LEAVE],
}
EVERYBODY, FEMALE, LONG = np.ones(RECORDS, bool), SEX == 0, HOURS >= 40
SOME: list[tuple[JSON, np.ndarray]] = [
    ({"of": "income", "per": "hours"}, EVERYBODY),
    ({"of": "hours", "per": "income", "where": {"sex": "f"}}, FEMALE),
    ({"of": "income", "per": "leave"}, EVERYBODY),
    ({"of": "leave", "per": "hours", "where": {"hours": {"ge": 40}}}, LONG),
    ({"of": "income", "per": "hours", "where": {"not": {"income": None}}}, HALVES >= 0),
    (
        {"of": "income", "per": "hours", "where": {"any": [{"sex": "f"}, {"hours": {"ge": 40}, "region": [0, 1]}]}},
        FEMALE | (LONG & (REGION < 2)),
    ),
]


def ratio(words: JSON, **more: Any) -> JSON:
    return {"type": "ratio", **words, **more}


def true(words: JSON, kept: np.ndarray = EVERYBODY) -> float:
    """The quotient, record by record, in exact arithmetic."""
    above, below = (sum(n for n, own in zip(NUMBERS[words[k]], kept, strict=True) if own) for k in ("of", "per"))
    return float(above / below)


def registered(service: Service, **changes: Any) -> str:
    name = unique("ratios")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, CSV.encode(), "ratios.csv")
    assert reply.status_code == 201, reply.text
    return name


def test_of_some_records(exact: Service, tmp_path: Path) -> None:
    """Decimals, negative numbers, clamped ones and records without a value, under conditions of every kind, without
    noise: the exact quotient, at one charge a question. Catches records without a value that count, a middle that is
    not added back, and a measurement that is charged twice or not at all."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for words, kept in SOME:
        answer = ask(analyst, id, ratio(words))
        truth = true(words, kept)
        assert answer["value"] == pytest.approx(truth, rel=1e-9), words
        assert answer["unbiased"]["value"] == pytest.approx(truth, rel=1e-9), words
        assert answer["interval"][0] < truth < answer["interval"][1]
        assert answer["interval_kind"] == "unbiased"
        assert (answer["charged_epsilon"] > 0) == (answer["source"] == "measurement")
        again = ask(analyst, id, ratio(words))
        assert (again["source"], again["charged_epsilon"], again["value"]) == ("cached", 0, answer["value"])
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements?limit=1000").json()["items"]
    ledger = exact.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert sum(Decimal(item["cost"]["renyi"]) for item in listed) == Decimal(ledger["spent"])
    replays(analyst, id, tmp_path / "t.ndjson")


def test_groups(exact: Service, tmp_path: Path) -> None:
    """Each group has its own ratio under its labels, in the order that was asked; values that bins leave out count for
    nothing. Catches a group under the labels of another, and a question in another order that is paid for."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = ratio({"of": "income", "per": "hours", "group_by": ["region", "sex"]})
    answer = ask(analyst, id, words)
    assert [axis["attribute"] for axis in answer["axes"]] == ["region", "sex"]
    for place, value in enumerate(answer["values"]):
        kept = (place // 2 == REGION) & (place % 2 == SEX)
        if value is not None:
            low, high = answer["intervals"][place]
            assert value == pytest.approx(true(words, kept), rel=1e-9)
            assert low < value < high
    # The last region has a few dozen records.
    assert answer["values"][:6].count(None) == 0
    turned = ask(analyst, id, words | {"group_by": ["sex", "region"]})
    assert (turned["source"], turned["charged_epsilon"]) == ("cached", 0)
    assert np.reshape(turned["values"], (2, 6)).T.reshape(-1).tolist() == answer["values"]
    merged = {"of": "hours", "per": "income", "group_by": ["region"], "bins": {"region": {"a": [0, 2], "b": [1]}}}
    named = ask(analyst, id, ratio(merged))
    assert named["axes"][0]["labels"] == ["a", "b"]
    assert named["values"] == pytest.approx([true(merged, np.isin(REGION, own)) for own in ([0, 2], [1])], rel=1e-9)
    replays(analyst, id, tmp_path / "t.ndjson")


def test_within(noisy: Service, tmp_path: Path) -> None:
    """The least is paid that makes every interval as narrow as is wished, in units of the ratio; what is known better
    is free, and what cannot be paid is refused. Catches a width in the units of a sum."""
    analyst, name = noisy.principal("analyst"), registered(noisy, budget={"epsilon": 8.0, "delta": 1e-9})
    # What a width costs hangs on what the opening's noise made of the total: some need more than 1.
    id = opened(analyst, name, epsilon=4.0)["id"]
    words = ratio({"of": "income", "per": "hours", "where": {"sex": "f"}})
    near = ask(analyst, id, words | {"within": 0.8})
    low, high = near["interval"]
    assert near["source"] == "measurement"
    assert 0.3 < (high - low) / 2 < 1.2
    assert abs(near["value"] - true(words, FEMALE)) < 5 * near["standard_error"]
    wider = ask(analyst, id, words | {"within": 2})
    assert (wider["source"], wider["charged_epsilon"]) == ("cached", 0)
    grouped = ask(analyst, id, ratio({"of": "income", "per": "hours", "group_by": ["sex"]}, within=1.0))
    assert all((high - low) / 2 < 1.5 for low, high in grouped["intervals"])
    tight = ratio({"of": "income", "per": "hours", "group_by": ["region"]}, within=1e-7)
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=tight), "plan-infeasible")
    replays(analyst, id, tmp_path / "t.ndjson")


def test_what_was_measured_serves(noisy: Service, tmp_path: Path) -> None:
    """What one analyst paid for a ratio by group tells others the ratio of all and of one group, and the sums and means
    of both attributes; and a ratio is free after both means. Catches moments that are bought twice."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    first = opened(analyst, name, epsilon=1.0, max_queries=3)["id"]
    assert ask(analyst, first, ratio({"of": "income", "per": "hours", "group_by": ["sex"]}))["source"] == "measurement"
    for of in ("income", "leave"):
        ask(analyst, first, {"type": "mean", "of": of, "group_by": ["sex"]})
    other = noisy.principal("analyst")
    later = opened(other, name, epsilon=0.01)["id"]
    for words in (
        ratio({"of": "income", "per": "hours"}),
        ratio({"of": "hours", "per": "income", "where": {"sex": "f"}}),
        ratio({"of": "income", "per": "leave", "group_by": ["sex"]}),
        {"type": "mean", "of": "hours", "where": {"sex": "f"}},
        {"type": "sum", "of": "income", "group_by": ["sex"]},
    ):
        answer = ask(other, later, words)
        assert (answer["source"], answer["charged_epsilon"], answer["interval_kind"]) == ("estimate", 0, "unbiased")
        if answer.get("value") is not None and words["type"] == "ratio":
            truth = true(words, FEMALE if "where" in words else EVERYBODY)
            assert abs(answer["value"] - truth) < 6 * answer["standard_error"]
    for client, id in ((analyst, first), (other, later)):
        replays(client, id, tmp_path / f"{id}.ndjson")


def test_nobody(exact: Service, tmp_path: Path) -> None:
    """Where conditions contradict, and where the sum below may be zero, there is no value. Catches a division by
    nothing, and a null that is told before it is paid for."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    both = ratio({"of": "income", "per": "hours", "where": {"sex": "f", "all": [{"sex": "m"}]}})
    answer = ask(analyst, id, both)
    assert (answer["value"], answer["interval"], answer["charged_epsilon"]) == (None, None, 0)
    few = ratio({"of": "income", "per": "hours", "where": {"region": 5, "sex": "m", "hours": 77}})
    assert int(((REGION == 5) & (SEX == 1) & (HOURS == 77)).sum()) < 3
    assert ask(analyst, id, few)["value"] is None
    replays(analyst, id, tmp_path / "t.ndjson")


@pytest.mark.parametrize("mechanism", ["evidence", "histogram"])
@pytest.mark.parametrize("public", [True, False])
def test_pure_sessions(noisy: Service, tmp_path: Path, public: bool, mechanism: str) -> None:
    """Few questions each measured by itself with Laplace noise, and a whole table from which ratios follow, their two
    sums from the same counts. Catches an answer that needs what was never measured."""
    small = [SPEC["attributes"][0], {"name": "hours", "lower": 1, "upper": 80, "grid": 1}]
    small.append({"name": "leave", "lower": -10, "upper": 40, "grid": 1, "missing": True})
    changed = {"attributes": small} if mechanism == "histogram" else {}
    analyst, name = noisy.principal("analyst"), unique("ratios")
    spec = {**SPEC, "name": name, "records_public": public, **changed}
    assert register(noisy.admin, spec, CSV.encode(), "ratios.csv").status_code == 201
    session = opened(analyst, name, max_queries=4, mechanism={"construction": mechanism})
    for words, kept in (({"of": "leave", "per": "hours"}, EVERYBODY), ({"of": "leave", "per": "hours"}, FEMALE)):
        asked = ratio(words) if kept is EVERYBODY else ratio(words, where={"sex": "f"})
        answer = ask(analyst, session["id"], asked)
        assert answer["interval_kind"] == "unbiased"
        assert abs(answer["value"] - true(words, kept)) < 8 * answer["standard_error"]
    replays(analyst, session["id"], tmp_path / "t.ndjson")


def test_notes(exact: Service) -> None:
    """What bounds cut off of either attribute. Catches a note of the first alone."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for words in ({"of": "income", "per": "hours"}, {"of": "hours", "per": "income"}):
        assert "values of income beyond 0 and 5,000 count as these" in ask(analyst, id, ratio(words))["note"]
    assert "note" not in ask(analyst, id, ratio({"of": "leave", "per": "hours"}))


BAD: list[tuple[JSON, str]] = [
    ({"of": "income", "per": "income"}, "name another"),
    ({"of": "income"}, "per"),
    ({"per": "income"}, "of"),
    ({"of": "income", "per": "wage"}, "unknown attribute 'wage'"),
    ({"of": "wage", "per": "income"}, "unknown attribute 'wage'"),
    ({"of": "income", "per": "sex"}, "sex: a ratio is of numbers on a grid"),
    ({"of": "age", "per": "income"}, "age: a ratio is of numbers on a grid"),
    ({"of": "income", "per": ["hours"]}, "per"),
    ({"of": {"income": 3}, "per": "hours"}, "of"),
    ({"of": "income", "per": None}, "per"),
    ({"of": "income", "per": "hours", "q": 0.5}, "q"),
    ({"of": "income", "per": "hours", "where": {"income": None}}, "of: no record that satisfies the conditions"),
    ({"of": "income", "per": "leave", "where": {"leave": None}}, "per: no record that satisfies the conditions"),
    ({"of": "income", "per": "hours", "where": {"wage": 3}}, "unknown attribute 'wage'"),
    ({"of": "income", "per": "hours", "group_by": ["sex", "sex"]}, "distinct"),
    ({"of": "income", "per": "hours", "bins": {"age": [20, 40]}}, "bins are of attributes that are grouped by"),
    ({"of": "income", "per": "hours", "group_by": ["sex"], "where": {"sex": "f"}}, "a single group is left"),
    ({"of": "income", "per": "hours", "within": -1}, "within"),
    ({"of": "income", "per": "hours", "within": "NaN"}, "within"),
    ({"of": "leave", "per": "income", "group_by": ["income", "age", "hours", "region"]}, "at most"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_what_is_refused(exact: Service, words: JSON, says: str) -> None:
    """With what is wrong, and nothing charged."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json=ratio(words))
    assert reply.status_code in (400, 422), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert says in reply.text
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_left"] == 100


def test_where_there_are_none(exact: Service) -> None:
    """Sessions of other mechanisms, workloads, and graphs refuse ratios. Catches a ratio that is taken for a count."""
    analyst, name = exact.principal("analyst"), registered(exact)
    words = ratio({"of": "income", "per": "hours"})
    direct = opened(analyst, name, epsilon=0.1, max_queries=4, mechanism={"construction": "laplace"})["id"]
    reply = analyst.post(f"/v1/sessions/{direct}/queries", json=words)
    assert "a ratio is answered by sessions whose mechanism is evidence or histogram" in reply.text
    plan = exact.admin.post("/v1/plans", json={"dataset": name, "workload": {"queries": [words]}, "epsilon": 0.1})
    assert "a ratio is asked in sessions" in plan.text
    graph = unique("graph")
    spec = {"kind": "graph", "nodes": 5, "name": graph, "budget": SPEC["budget"]}
    assert register(exact.admin, spec, b"0,1\n1,2\n", "g.csv").status_code == 201
    id = opened(exact.admin, graph, max_queries=4)["id"]
    refusal = exact.admin.post(f"/v1/sessions/{id}/queries", json=words)
    assert "a ratio query does not fit a graph data set" in refusal.text


def test_through_the_client(exact: Service) -> None:
    """One number and a table, with their intervals. Would catch a reply that the client cannot read."""
    name = registered(exact)
    with Curator(exact.url, exact.admin_key) as curator:
        session = curator.session(name, epsilon=1.0, max_queries=40)
        alone = session.ask(question(ratio({"of": "income", "per": "hours", "where": {"sex": "f"}})))
        assert isinstance(alone, Answer)
        assert alone.interval is not None
        assert alone.interval[0] < true({"of": "income", "per": "hours"}, FEMALE) < alone.interval[1]
        table = session.ask(question(ratio({"of": "income", "per": "hours", "group_by": ["sex"]})))
        assert isinstance(table, Table)
        for (sex,), value in table:
            kept = "fm".index(str(sex)) == SEX
            assert value == pytest.approx(true({"of": "income", "per": "hours"}, kept), rel=1e-9)
