"""Shares through the whole service: from a file to answers, charges, transcripts and what is refused."""

from __future__ import annotations

from decimal import Decimal
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
        {"name": "age", "lower": 15, "upper": 94, "grid": 1, "bins": 16},
        {"name": "job", "values": ["none", "part", "full"], "missing": True},
    ],
}
RANDOM = np.random.default_rng(21)
SEX, REGION = RANDOM.integers(0, 2, RECORDS), np.minimum(RANDOM.geometric(0.4, RECORDS) - 1, 5)
AGE, JOB = RANDOM.integers(15, 95, RECORDS), RANDOM.integers(-1, 3, RECORDS)
JOBS = ["none", "part", "full", ""]
CSV = "sex,region,age,job\n" + "".join(
    f"{'fm'[s]},{r},{a},{JOBS[j]}\n" for s, r, a, j in zip(SEX, REGION, AGE, JOB, strict=True)
)
WORKS, FEMALE, OLD = JOB >= 1, SEX == 0, AGE >= 65
#: What is asked, of whom, and of these whom the conditions hold of.
SOME: list[tuple[JSON, np.ndarray, np.ndarray]] = [
    ({"of": {"sex": "f"}}, np.ones(RECORDS, bool), FEMALE),
    ({"of": {"job": ["part", "full"]}, "where": {"sex": "f"}}, FEMALE, WORKS),
    ({"of": {"job": None}, "where": {"age": {"ge": 65}}}, OLD, JOB < 0),
    ({"of": {"sex": "f", "age": {"ge": 65}}, "where": {"region": [0, 1]}}, REGION < 2, FEMALE & OLD),
    ({"of": {"any": [{"age": {"ge": 65}}, {"job": "none"}]}, "where": {"sex": "m"}}, ~FEMALE, OLD | (JOB == 0)),
    ({"of": {"not": {"sex": "f", "region": 0}}}, np.ones(RECORDS, bool), ~(FEMALE & (REGION == 0))),
    (
        {"of": {"not": {"sex": "f", "region": 0}}, "where": {"any": [{"age": {"lt": 30}}, {"job": "full"}]}},
        (AGE < 30) | (JOB == 2),
        ~(FEMALE & (REGION == 0)),
    ),
    # What is asked of says part of it already.
    ({"of": {"sex": "f", "job": "full"}, "where": {"sex": "f"}}, FEMALE, JOB == 2),
]


def registered(service: Service, **changes: Any) -> str:
    name = unique("shares")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, CSV.encode(), "shares.csv")
    assert reply.status_code == 201, reply.text
    return name


def share(words: JSON, **more: Any) -> JSON:
    return {"type": "share", **words, **more}


def near(answer: JSON, truth: list[float]) -> None:
    """Each group's interval holds its own share, which without noise is in the middle of it, and is shown nearby."""
    groups = zip(answer["values"], answer["intervals"], answer["standard_errors"], truth, strict=True)
    for value, (low, high), error, own in groups:
        assert low - 1e-9 <= value <= high + 1e-9
        assert low - 1e-9 <= own <= high + 1e-9
        assert abs(value - own) <= 2.6 * error + 1e-9


def test_of_some_records(exact: Service, tmp_path: Path) -> None:
    """Under conditions of every kind, without noise: the truth, record by record, at one charge a question. Catches
    records without a value that are left out, conditions of the part that count for the whole, and a measurement that
    is charged twice or not at all."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for words, whole, part in SOME:
        answer = ask(analyst, id, share(words))
        truth = float(part[whole].mean())
        assert answer["unbiased"]["value"] == pytest.approx(truth, abs=1e-9), words
        assert abs(answer["value"] - truth) <= 1.6 * answer["standard_error"]
        assert answer["interval"][0] < truth < answer["interval"][1]
        assert 0 < answer["standard_error"] < 0.1
        assert (answer["charged_epsilon"] > 0) == (answer["source"] == "measurement")
        again = ask(analyst, id, share(words))
        assert (again["source"], again["charged_epsilon"], again["value"]) == ("cached", 0, answer["value"])
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements?limit=1000").json()["items"]
    ledger = exact.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert sum(Decimal(item["cost"]["renyi"]) for item in listed) == Decimal(ledger["spent"])
    # Nothing is measured but counts.
    for item in listed:
        parts = item["strategy"].get("parts", [{}])
        assert all("moment" not in part for part in parts)
    replays(analyst, id, tmp_path / "t.ndjson")


def test_groups(exact: Service, tmp_path: Path) -> None:
    """Each group has its own share under its labels, in the order that was asked; a group whose records can satisfy the
    conditions by no means has 0, and is known. Catches a group under the labels of another, a question in another
    order that is paid for, and records outside of all bins that are counted."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = share({"of": {"job": "full"}, "group_by": ["region", "sex"]})
    answer = ask(analyst, id, words)
    assert [axis["attribute"] for axis in answer["axes"]] == ["region", "sex"]
    truth = [float((JOB == 2)[(r == REGION) & (s == SEX)].mean()) for r in range(6) for s in range(2)]
    near(answer, truth)
    turned = ask(analyst, id, words | {"group_by": ["sex", "region"]})
    assert (turned["source"], turned["charged_epsilon"]) == ("cached", 0)
    assert np.reshape(turned["values"], (2, 6)).T.reshape(-1).tolist() == answer["values"]
    binned = ask(analyst, id, share({"of": {"sex": "f"}, "group_by": ["age"], "bins": {"age": [20, 40, 65]}}))
    assert binned["axes"][0]["labels"] == ["[20, 40)", "[40, 65)"]
    truth = [float(FEMALE[(low <= AGE) & (high > AGE)].mean()) for low, high in ((20, 40), (40, 65))]
    near(binned, truth)
    some = ask(analyst, id, share({"of": {"region": [0, 1], "sex": "f"}, "group_by": ["region"]}))
    near(some, [float(FEMALE[r == REGION].mean()) if r < 2 else 0.0 for r in range(6)])
    assert some["values"][2:] == [0.0] * 4
    assert some["standard_errors"][2:] == [0.0] * 4
    assert some["intervals"][2:] == [[0.0, 0.0]] * 4
    replays(analyst, id, tmp_path / "t.ndjson")


def test_within(noisy: Service, tmp_path: Path) -> None:
    """The least is paid that makes every interval as narrow as is wished, in units of the share; what is known better
    is free, and what cannot be paid is refused. Catches a width in counts, and a price that is paid for less."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name)["id"]
    words = share({"of": {"job": "full"}, "where": {"sex": "f"}})
    near = ask(analyst, id, words | {"within": 0.006})
    low, high = near["interval"]
    assert near["source"] == "measurement"
    assert 0.003 < (high - low) / 2 < 0.0066
    wider = ask(analyst, id, share({"of": {"not": {"job": "full"}}, "where": {"sex": "f"}}, within=0.008))
    assert (wider["source"], wider["charged_epsilon"]) == ("estimate", 0)
    assert wider["unbiased"]["value"] + near["unbiased"]["value"] == pytest.approx(1, abs=1e-9)
    grouped = ask(analyst, id, share({"of": {"job": "part"}, "group_by": ["sex"]}, within=0.008))
    assert all((high - low) / 2 < 0.0088 for low, high in grouped["intervals"])
    tight = share({"of": {"job": "none"}, "group_by": ["region"]}, within=1e-7)
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=tight), "plan-infeasible")
    replays(analyst, id, tmp_path / "t.ndjson")


def test_what_was_counted_serves(noisy: Service, tmp_path: Path) -> None:
    """A share follows at no cost from a marginal that another session paid for, and of one group from that of all.
    Catches a share that is paid for although its counts are known."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    first = opened(analyst, name, epsilon=1.2, max_queries=4)["id"]
    assert ask(analyst, first, share({"of": {"job": "full"}, "group_by": ["sex"]}))["source"] == "measurement"
    other = noisy.principal("analyst")
    later = opened(other, name, epsilon=0.05)["id"]
    for words, whole in (
        ({"of": {"job": "full"}, "group_by": ["sex"]}, None),
        ({"of": {"job": "full"}, "where": {"sex": "f"}}, FEMALE),
        ({"of": {"job": "full"}}, np.ones(RECORDS, bool)),
        ({"of": {"sex": "f"}, "where": {"job": "full"}}, None),
    ):
        answer = ask(other, later, share(words))
        assert (answer["source"], answer["charged_epsilon"], answer["interval_kind"]) == ("estimate", 0, "unbiased")
        if whole is not None:
            assert abs(answer["value"] - float((JOB == 2)[whole].mean())) < 6 * answer["standard_error"]
    for client, id in ((analyst, first), (other, later)):
        replays(client, id, tmp_path / f"{id}.ndjson")


def test_nobody(exact: Service, noisy: Service, tmp_path: Path) -> None:
    """Of no records there is no share: where conditions contradict, and where there may be nobody. Catches a division
    by nothing."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    nobody = share({"of": {"job": "full"}, "where": {"sex": "f", "all": [{"sex": "m"}]}})
    answer = ask(analyst, id, nobody)
    assert (answer["value"], answer["interval"], answer["charged_epsilon"]) == (None, None, 0)
    few = {"where": {"age": 94, "region": 5, "sex": "m"}}
    assert int(((AGE == 94) & (REGION == 5) & (SEX == 1)).sum()) < 5
    assert ask(analyst, id, share({"of": {"job": "full"}, **few}))["value"] is None
    replays(analyst, id, tmp_path / "t.ndjson")


@pytest.mark.parametrize("mechanism", ["evidence", "histogram"])
@pytest.mark.parametrize("public", [True, False])
def test_pure_sessions(noisy: Service, tmp_path: Path, public: bool, mechanism: str) -> None:
    """Few questions each measured by itself with Laplace noise, and a whole table from which shares follow. Catches an
    answer that needs what was never measured."""
    analyst, name = noisy.principal("analyst"), registered(noisy, records_public=public)
    session = opened(analyst, name, max_queries=4, mechanism={"construction": mechanism})
    id = session["id"]
    for words, whole, part in SOME[:2]:
        answer = ask(analyst, id, share(words))
        assert abs(answer["value"] - float(part[whole].mean())) < 8 * answer["standard_error"]
    replays(analyst, id, tmp_path / "t.ndjson")


BAD: list[tuple[JSON, str]] = [
    ({"of": {}}, "whatever the records are"),
    ({"of": {"sex": ["f", "m"]}}, "whatever the records are"),
    ({"of": {"sex": "f"}, "where": {"sex": "f"}}, "whatever the records are"),
    ({"of": {"sex": "f"}, "where": {"sex": "m"}}, "whatever the records are"),
    ({"of": {"sex": "f"}, "group_by": ["sex"]}, "whatever the records are"),
    ({"of": {"wage": 3}}, "unknown attribute 'wage'"),
    ({"of": {"sex": "x"}}, "sex"),
    ({"of": "sex"}, "of"),
    ({}, "of"),
    ({"of": {"sex": "f"}, "where": {"wage": 3}}, "unknown attribute 'wage'"),
    ({"of": {"sex": "f"}, "group_by": ["region", "region"]}, "distinct"),
    ({"of": {"sex": "f"}, "group_by": ["wage"]}, "unknown attribute 'wage'"),
    ({"of": {"sex": "f"}, "bins": {"age": [20, 40]}}, "bins are of attributes that are grouped by"),
    ({"of": {"sex": "f"}, "group_by": ["age"], "where": {"age": 20}}, "a single group is left"),
    ({"of": {"sex": "f"}, "group_by": ["region", "age"], "where": {"any": [{"job": "full"}] * 300}}, "at most"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_what_is_refused(exact: Service, words: JSON, says: str) -> None:
    """With what is wrong, and nothing charged."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json=share(words))
    assert reply.status_code in (400, 422), reply.text
    assert says in reply.text
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_left"] == 100


def test_where_there_are_none(exact: Service) -> None:
    """Sessions of other mechanisms, contracts and unverified answers treat shares as they do means."""
    analyst, name = exact.principal("analyst"), registered(exact)
    words: list[JSON] = [share({"of": {"sex": "f"}}), {"type": "mean", "of": "age"}]
    direct = opened(analyst, name, epsilon=0.1, max_queries=4, mechanism={"construction": "laplace"})["id"]
    replies = [analyst.post(f"/v1/sessions/{direct}/queries", json=one) for one in words]
    assert len({reply.status_code for reply in replies}) == 1
    assert "a share is answered by sessions whose mechanism is evidence or histogram" in replies[0].text
    evidence = opened(analyst, name, epsilon=0.5)["id"]
    replies = [analyst.post(f"/v1/sessions/{evidence}/queries", json=one | {"unverified": True}) for one in words]
    assert [reply.status_code for reply in replies] == [replies[1].status_code] * 2
    assert replies[0].json().get("type") == replies[1].json().get("type")


def test_graphs_have_none(exact: Service) -> None:
    """Nor have matrices and multisets."""
    name = unique("graph")
    spec = {"kind": "graph", "nodes": 5, "name": name, "budget": SPEC["budget"]}
    assert register(exact.admin, spec, b"0,1\n1,2\n", "g.csv").status_code == 201
    id = opened(exact.admin, name, max_queries=4)["id"]
    refusal = exact.admin.post(f"/v1/sessions/{id}/queries", json=share({"of": {"sex": "f"}}))
    assert "a share query does not fit a graph data set" in refusal.text


def test_through_the_client(exact: Service) -> None:
    """One number and a table, with their intervals; what is known already costs nothing. Would catch a reply that the
    client cannot read."""
    name = registered(exact)
    with Curator(exact.url, exact.admin_key) as curator:
        session = curator.session(name, epsilon=1.0, max_queries=40)
        alone = session.ask(question(share({"of": {"job": "full"}, "where": {"sex": "f"}})), within=0.01)
        assert isinstance(alone, Answer)
        assert alone.interval is not None
        assert alone.interval[0] < float((JOB == 2)[FEMALE].mean()) < alone.interval[1]
        table = session.ask(question(share({"of": {"job": "full"}, "group_by": ["sex"]})))
        assert isinstance(table, Table)
        for (sex,), value in table:
            assert value == pytest.approx(float((JOB == 2)["fm".index(str(sex)) == SEX].mean()), abs=0.02)
