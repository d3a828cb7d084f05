"""Weighted questions through the whole service: from a file to answers, charges, transcripts and what is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from curator_client import Answer, Curator, Table, by, where
from tests.kit.service import JSON, Service, ask, refused, register, unique
from tests.statistics.test_statistics_over_http import opened, replays

pytestmark = pytest.mark.api

RECORDS = 3000
WEIGHT: JSON = {"name": "w", "lower": 0.5, "upper": 40, "grid": 0.5, "outside": "clamp", "role": "weight"}
SPEC: JSON = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 2.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 4},
        WEIGHT,
        {"name": "hours", "lower": 1, "upper": 80, "grid": 1, "missing": True},
    ],
}
RANDOM = np.random.default_rng(7)
SEX, REGION = RANDOM.integers(0, 2, RECORDS), np.minimum(RANDOM.geometric(0.5, RECORDS) - 1, 3)
#: -1 where there is none.
HOURS = np.clip(RANDOM.normal(30 + 8 * SEX, 9, RECORDS), 1, 80).astype(int)
HOURS[RANDOM.random(RECORDS) < 0.1] = -1
#: In halves; what is above 40 counts as that.
HALVES = (RANDOM.gamma(2.0, 6.0, RECORDS) * (1 + (HOURS > 35))).astype(int) + 1
CSV = "sex,region,w,hours\n" + "".join(
    f"{'fm'[s]},{r},{v / 2},{'' if h < 0 else h}\n" for s, r, v, h in zip(SEX, REGION, HALVES, HOURS, strict=True)
)
W = [Fraction(min(int(v), 80), 2) for v in HALVES]
EVERYBODY, FEMALE, LONG = np.ones(RECORDS, bool), SEX == 0, HOURS >= 40
SOME: list[tuple[JSON, np.ndarray]] = [
    ({}, EVERYBODY),
    ({"sex": "f"}, FEMALE),
    ({"any": [{"sex": "f"}, {"hours": {"ge": 40}, "region": [0, 1]}]}, FEMALE | (LONG & (REGION < 2))),
    ({"w": {"ge": 10}, "not": {"hours": None}}, (HALVES >= 20) & (HOURS >= 0)),
]


def registered(service: Service, **changes: object) -> str:
    name = unique("weights")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, CSV.encode(), "weights.csv")
    assert reply.status_code == 201, reply.text
    return name


def stood_for(kept: np.ndarray) -> float:
    """The sum of the weights of some records, one by one."""
    return float(sum(weight for weight, own in zip(W, kept, strict=True) if own))


def test_counts_of_some_records(exact: Service, tmp_path: Path) -> None:
    """Without noise the sums of weights, of which those beyond their bound count as it and a note says so; the sum of
    the attribute is the same question. Catches records that count once, and weights from the middle of their range."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for under, kept in SOME:
        answer = ask(analyst, id, {"type": "predicate", "where": under, "weighted": True})
        assert answer["value"] == pytest.approx(stood_for(kept), rel=1e-9), under
        assert answer["interval"][0] < stood_for(kept) < answer["interval"][1]
        assert "values of w beyond 0.5 and 40 count as these" in answer["note"]
        same = ask(analyst, id, {"type": "sum", "of": "w", "where": under})
        assert (same["source"], same["value"]) == ("cached", answer["value"])
        alone = ask(analyst, id, {"type": "predicate", "where": under})
        assert abs(alone["value"] - kept.sum()) < 30
    replays(analyst, id, tmp_path / "t.ndjson")


def test_means_of_single_numbers_are_declared(service: Service, tmp_path: Path) -> None:
    """Of records that have one number the weighted mean is that, to the last digit, known before anything is measured,
    and so is where its interval ends. Catches steps of .1 that are added up, and an answer grid that has no 36.8."""
    analyst, spec = service.principal("analyst"), {**SPEC, "name": unique("decimal")}
    spec["attributes"] = [{"name": "t", "lower": 30, "upper": 45, "grid": 0.1}, WEIGHT]
    lines = "".join(f"{(300 + place % 151) / 10},{place % 80 / 2 + 0.5}\n" for place in range(600))
    assert register(service.admin, spec, f"t,w\n{lines}".encode(), "rows.csv").status_code == 201
    id, wanted = opened(analyst, spec["name"])["id"], {"type": "mean", "of": "t", "weighted": True}
    for number in (30.0, 36.7, 36.8, 44.9):
        alone = ask(analyst, id, wanted | {"where": {"t": number}})
        assert (alone["charged_epsilon"], alone["value"], alone["interval"]) == (0, number, [number, number])
    edges = [36, 36.1, 36.7, 36.8, 36.9]
    groups = ask(analyst, id, wanted | {"group_by": ["t"], "bins": {"t": edges}})
    assert (groups["values"][0], *groups["values"][2:]) == (36.0, 36.7, 36.8)
    for (low, high), interval in zip(pairwise(edges), groups["intervals"], strict=True):
        assert interval is None or low <= interval[0] <= interval[1] <= round(high - 0.1, 1)
    replays(analyst, id, tmp_path / "t.ndjson")


def test_marginals(exact: Service, tmp_path: Path) -> None:
    """Each cell has the sum of its own weights, under its labels, with values that bins leave out in none. Catches a
    cell under the labels of another, and a table that is charged cell by cell."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = {
        "type": "marginal",
        "attributes": ["region", "sex"],
        "bins": {"region": {"near": [0], "far": [3, 1]}},
        "where": {"not": {"hours": None}},
        "weighted": True,
    }
    answer = ask(analyst, id, words)
    assert [axis["attribute"] for axis in answer["axes"]] == ["region", "sex"]
    assert answer["axes"][0]["labels"] == ["near", "far"]
    groups = [REGION == 0, (REGION == 1) | (REGION == 3)]
    for place, value in enumerate(answer["values"]):
        kept = groups[place // 2] & (place % 2 == SEX) & (HOURS >= 0)
        assert value == pytest.approx(stood_for(kept), rel=1e-9)
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements?limit=1000").json()["items"]
    assert len([item for item in listed if "parts" in item["strategy"]]) <= 1
    replays(analyst, id, tmp_path / "t.ndjson")


PARTS: list[tuple[JSON, np.ndarray]] = [
    ({"sex": "f"}, FEMALE),
    ({"any": [{"sex": "f"}, {"hours": {"ge": 40}}]}, FEMALE | LONG),
    ({"w": {"ge": 10}}, HALVES >= 20),
]


def test_shares(exact: Service, tmp_path: Path) -> None:
    """Of some records and by group: the quotients of sums of weights. Catches a share of records, and a group under
    another's labels."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for of, part in PARTS:
        words = {"type": "share", "of": of, "where": {"region": [0, 1]}, "weighted": True}
        truth = stood_for(part & (REGION < 2)) / stood_for(REGION < 2)
        answer = ask(analyst, id, words)
        assert answer["value"] == pytest.approx(truth, abs=1e-9)
        assert answer["interval"][0] < truth < answer["interval"][1]
        assert "values of w beyond 0.5 and 40 count as these" in answer["note"]
        assert ask(analyst, id, words)["source"] == "cached"
        assert ask(analyst, id, words | {"weighted": False})["value"] != pytest.approx(truth, abs=1e-3)
    answer = ask(analyst, id, {"type": "share", "of": {"sex": "f"}, "group_by": ["region"], "weighted": True})
    assert answer["axes"] == [{"attribute": "region", "labels": [0, 1, 2, 3]}]
    for place, value in enumerate(answer["values"][:2]):
        assert value == pytest.approx(stood_for(FEMALE & (place == REGION)) / stood_for(place == REGION), abs=1e-9)
    replays(analyst, id, tmp_path / "t.ndjson")


def weighted_mean(kept: np.ndarray) -> float:
    """Of hours, record by record in exact arithmetic."""
    own = [(weight, int(hours)) for weight, hours, is_kept in zip(W, HOURS, kept, strict=True) if is_kept and hours > 0]
    return float(sum(weight * hours for weight, hours in own) / sum(weight for weight, _ in own))


def test_means(exact: Service, tmp_path: Path) -> None:
    """The sum of values times weights over that of the weights, of records with a value. Catches weights of records
    without one, and the plain mean."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for under, kept in SOME:
        words = {"type": "mean", "of": "hours", "where": under, "weighted": True}
        answer = ask(analyst, id, words)
        assert answer["value"] == pytest.approx(weighted_mean(kept), rel=1e-9), under
        assert answer["interval"][0] < weighted_mean(kept) < answer["interval"][1]
        assert "values of w beyond 0.5 and 40 count as these" in answer["note"]
    answer = ask(analyst, id, {"type": "mean", "of": "hours", "group_by": ["sex", "region"], "weighted": True})
    known = [(k, value) for k, value in enumerate(answer["values"]) if value is not None]
    assert len(known) > 3
    for place, value in known:
        assert value == pytest.approx(weighted_mean((place // 4 == SEX) & (place % 4 == REGION)), rel=1e-9)
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements?limit=1000").json()["items"]
    parts = [part for item in listed for part in item["strategy"].get("parts", ())]
    assert any(part.get("of") == "hours" and part.get("times") == "w" for part in parts)
    replays(analyst, id, tmp_path / "t.ndjson")


def weighted_quantile(kept: np.ndarray, level: float) -> int:
    """The least value that records of this part of the weights, or more, do not pass; in exact arithmetic."""
    own = sorted((int(h), weight) for weight, h, is_kept in zip(W, HOURS, kept, strict=True) if is_kept and h > 0)
    goal, below = Fraction(level) * sum(weight for _, weight in own), Fraction(0)
    for hours, weight in own:
        below += weight
        if below >= goal:
            return hours
    raise AssertionError("there are none")


def test_quantiles(exact: Service, tmp_path: Path) -> None:
    """Without noise within a range of the true ones, which intervals hold. The budget is large, as counts that should
    be noisy are weighed against how all records are spread. Catches the quantile of records that count once, which is
    hours lower."""
    analyst = exact.principal("analyst")
    name = registered(exact, budget={"epsilon": 16.0, "delta": 1e-9})
    id = opened(analyst, name, epsilon=16.0)["id"]
    words = {"type": "quantile", "of": "hours", "q": [0.25, 0.5, 0.75], "weighted": True}
    answer = ask(analyst, id, words)
    assert answer["axes"] == [{"attribute": "q", "labels": [0.25, 0.5, 0.75]}]
    true = [weighted_quantile(EVERYBODY, level) for level in (0.25, 0.5, 0.75)]
    assert np.abs(np.array(answer["values"]) - true).max() <= 1
    assert all(low <= value <= high for value, (low, high) in zip(true, answer["intervals"], strict=True))
    assert "values of w beyond 0.5 and 40 count as these" in answer["note"]
    plain = ask(analyst, id, {k: v for k, v in words.items() if k != "weighted"})
    assert plain["values"][1] < answer["values"][1] - 2
    for under, kept in SOME[1:]:
        answer = ask(analyst, id, {"type": "quantile", "of": "hours", "q": 0.5, "where": under, "weighted": True})
        assert abs(answer["value"] - weighted_quantile(kept, 0.5)) <= 2
        assert answer["interval"][0] <= weighted_quantile(kept, 0.5) <= answer["interval"][1]
    refusal = refused(analyst.post(f"/v1/sessions/{id}/queries", json=words | {"within": 0.01}), "plan-infeasible")
    assert "quantile" in refusal["detail"]
    replays(analyst, id, tmp_path / "t.ndjson")


def test_through_the_client(exact: Service) -> None:
    """As any question is asked there. Catches a client that refuses the word."""
    analyst, name = exact.principal("analyst"), registered(exact)
    with Curator(str(analyst.base_url), analyst.headers["authorization"].removeprefix("Bearer ")) as curator:
        session = curator.session(name, epsilon=1.0, max_queries=10)
        answer = session.ask(where().mean("hours").weighted())
        table = session.ask(by("sex").count().weighted())
    assert isinstance(answer, Answer)
    assert isinstance(table, Table)
    assert answer == pytest.approx(weighted_mean(EVERYBODY), rel=1e-9)
    assert [value for _, value in table] == pytest.approx([stood_for(FEMALE), stood_for(~FEMALE)], rel=1e-9)


def test_within(noisy: Service) -> None:
    """In the unit of weights; an accuracy that cannot be paid is refused before noise."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name)["id"]
    words = {"type": "predicate", "where": {"sex": "f"}, "weighted": True}
    answer = ask(analyst, id, words | {"within": 900})
    low, high = answer["interval"]
    assert (high - low) / 2 <= 900 * 1.001
    assert abs(answer["value"] - stood_for(FEMALE)) < 1800
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=words | {"within": 1e-6}), "plan-infeasible")


BAD_ROLES: list[tuple[JSON, str]] = [
    ({"name": "w", "size": 4, "role": "weight"}, "declare lower, upper and grid"),
    ({"name": "w", "lower": 0, "upper": 9, "bins": 3, "role": "weight"}, "declare lower, upper and grid"),
    ({**WEIGHT, "lower": -1}, "change lower"),
    ({**WEIGHT, "lower": 0.25, "upper": 40.25}, "change lower"),
    ({**WEIGHT, "missing": True}, "leave missing out"),
    ({**WEIGHT, "lower": 4096, "upper": 4097, "grid": 2**-20}, "declare a coarser grid"),
    ({**WEIGHT, "role": "stratum"}, "role"),
]


@pytest.mark.parametrize(("attribute", "says"), BAD_ROLES)
def test_what_is_no_weight(exact: Service, attribute: JSON, says: str) -> None:
    """Refused with what to change. Catches weights below zero, whose quotients have no meaning."""
    attributes = [attribute if one["name"] == "w" else one for one in SPEC["attributes"]]
    spec = {**SPEC, "name": unique("weights"), "attributes": attributes}
    reply = register(exact.admin, spec, CSV.encode(), "weights.csv")
    assert says in refused(reply, "invalid-dataset")["detail"]


def test_one_weight(exact: Service) -> None:
    """Two are refused. Catches a weight that is whichever comes first."""
    other = {"name": "hours", "lower": 1, "upper": 80, "grid": 1, "role": "weight"}
    spec = {**SPEC, "name": unique("weights"), "attributes": [*SPEC["attributes"][:3], other]}
    assert "at most" in refused(register(exact.admin, spec, CSV.encode(), "weights.csv"), "invalid-dataset")["detail"]


UNWEIGHTED: JSON = {k: v for k, v in WEIGHT.items() if k != "role"}


@pytest.mark.parametrize(
    "words",
    [
        {"type": "predicate", "where": {"sex": "f"}},
        {"type": "marginal", "attributes": ["sex"]},
        {"type": "share", "of": {"sex": "f"}},
        {"type": "mean", "of": "hours"},
        {"type": "quantile", "of": "hours", "q": 0.5},
    ],
)
def test_where_there_is_no_weight(exact: Service, words: JSON) -> None:
    """Refused with what to change, and nothing charged. Catches a weight of one for everybody."""
    attributes = [UNWEIGHTED if one["name"] == "w" else one for one in SPEC["attributes"]]
    analyst, name = exact.principal("analyst"), registered(exact, attributes=attributes)
    id = opened(analyst, name)["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json=words | {"weighted": True})
    assert "role of a weight" in refused(reply, "invalid-query")["detail"]
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_left"] == 100


@pytest.mark.parametrize("kind", ["variance", "hierarchy", "ratio", "sum", "product"])
def test_what_cannot_be_weighted(exact: Service, kind: str) -> None:
    """Refused, not answered without weights. Catches a word that is passed over."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = {"type": kind, "of": "hours", "weighted": True}
    assert analyst.post(f"/v1/sessions/{id}/queries", json=words).status_code == 422


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"type": "mean", "of": "w"}, "records are weighted by"),
        ({"type": "quantile", "of": "w", "q": 0.5}, "records are weighted by"),
        ({"type": "mean", "of": "sex"}, "numbers on a grid"),
        ({"type": "marginal", "attributes": ["sex"], "bins": {"sex": {"women": ["f"]}}}, "two cells or more"),
        ({"type": "marginal", "attributes": ["sex", "nobody"]}, "nobody"),
        ({"type": "predicate", "where": {"nobody": 1}}, "nobody"),
        ({"type": "share", "of": {}}, "all or none"),
        ({"type": "share", "of": {"sex": "f"}, "where": {"sex": "f"}}, "all or none"),
    ],
)
def test_what_says_nothing(exact: Service, words: JSON, says: str) -> None:
    """Refused with what to change. Catches a mean of weights by themselves."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json=words | {"weighted": True})
    assert says in refused(reply, "invalid-query")["detail"]


def test_sums_that_might_pass_64_bits(exact: Service) -> None:
    """A product of large numbers is refused where the capacity allows too many records. Catches a sum that wraps."""
    hours = {"name": "hours", "lower": 0, "upper": 2**20 - 1, "grid": 1, "missing": True}
    attributes = [hours if one["name"] == "hours" else one for one in SPEC["attributes"]]
    analyst = exact.principal("analyst")
    for capacity in (2**40, 10_000):
        id = opened(analyst, registered(exact, attributes=attributes, capacity=capacity))["id"]
        words = {"type": "mean", "of": "hours", "weighted": True}
        reply = analyst.post(f"/v1/sessions/{id}/queries", json=words)
        if capacity == 2**40:
            assert "declare a smaller capacity" in refused(reply, "invalid-query")["detail"]
        else:
            assert reply.status_code == 200, reply.text


def test_other_mechanisms(exact: Service) -> None:
    """A session of counts alone refuses sums of weights, and says what serves. Catches a weighted count that is
    answered as a count."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name, mechanism={"construction": "laplace"}, max_queries=4)["id"]
    words = {"type": "predicate", "where": {"sex": "f"}, "weighted": True}
    assert "evidence" in refused(analyst.post(f"/v1/sessions/{id}/queries", json=words), "invalid-query")["detail"]


@pytest.mark.parametrize("kind", ["mean", "quantile"])
def test_groups_of_the_own_numbers(noisy: Service, kind: str) -> None:
    """With little budget, by ranges of what is asked of: each group says what its own range allows. Catches all groups
    cut to the bounds of all numbers."""
    analyst, name, edges = noisy.principal("analyst"), registered(noisy), [1, 20, 21, 60, 80]
    id = opened(analyst, name, epsilon=0.05, max_queries=8)["id"]
    words = {"type": kind, "of": "hours", "weighted": True, **({"q": 0.4} if kind == "quantile" else {})}
    answer = ask(analyst, id, words | {"group_by": ["hours"], "bins": {"hours": edges}})
    told = 0
    for (low, high), value, interval in zip(pairwise(edges), answer["values"], answer["intervals"], strict=True):
        if value is not None:
            told += 1
            last = high if high == 80 else high - 1
            assert low - 1e-6 <= interval[0] <= value <= interval[1] <= last + 1e-6, (low, high, value, interval)
    assert told
