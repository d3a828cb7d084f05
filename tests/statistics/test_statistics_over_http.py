"""Sums, means, variances and quantiles through the whole service: from a file to answers, charges, transcripts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

pytestmark = pytest.mark.api

RECORDS = 3000
MONTHS = ["2020-01", "2020-02", "2020-03", "2020-04"]
SPEC: JSON = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 6},
        {"name": "price", "lower": 0, "upper": 20, "grid": 0.01, "bins": 10, "missing": True},
        {"name": "temp", "lower": -40, "upper": 50, "grid": 0.5},
        {"name": "big", "lower": 2_147_000_000, "upper": 2_148_000_000, "grid": 1000},
        {"name": "day", "dates": ["2020-01-01", "2020-04-30"], "by": "month", "missing": True},
    ],
}


def drawn() -> dict[str, np.ndarray]:
    """Records as whole numbers: cents, half degrees, thousands; -1 where there is no value."""
    rng = np.random.default_rng(12)
    sex = rng.integers(0, 2, RECORDS)
    cents = np.clip(rng.gamma(2.0, 200 + 150 * sex), 0, 2000).round().astype(np.int64)
    return {
        "sex": sex,
        "region": rng.integers(0, 6, RECORDS),
        "price": np.where(rng.random(RECORDS) < 0.1, -1, cents),
        "temp": np.clip(rng.normal(10, 25, RECORDS), -80, 100).round().astype(np.int64),
        "big": rng.integers(2_147_000, 2_148_001, RECORDS),
        "day": np.where(rng.random(RECORDS) < 0.1, -1, rng.integers(0, 4, RECORDS)),
    }


DATA = drawn()


def cells(k: int) -> str:
    row = {name: int(column[k]) for name, column in DATA.items()}
    price = "" if row["price"] < 0 else f"{row['price'] // 100}.{row['price'] % 100:02d}"
    day = "" if row["day"] < 0 else f"{MONTHS[row['day']]}-07"
    return f"{'fm'[row['sex']]},{row['region']},{price},{row['temp'] / 2},{row['big'] * 1000},{day}"


CSV = "\n".join([",".join(DATA), *map(cells, range(RECORDS))]).encode()
#: What a unit of the whole numbers above is.
UNITS = {"price": Decimal("0.01"), "temp": Decimal("0.5"), "big": Decimal(1000)}
EVERYBODY = np.ones(RECORDS, dtype=bool)


def own(name: str, kept: np.ndarray = EVERYBODY) -> np.ndarray:
    """The values of the records that have one, in exact units."""
    return DATA[name][kept & (DATA[name] >= 0) if name == "price" else kept]


def total(name: str, kept: np.ndarray = EVERYBODY) -> float:
    return float(UNITS[name] * int(own(name, kept).sum()))


def mean(name: str, kept: np.ndarray = EVERYBODY) -> float:
    return float(UNITS[name] * int(own(name, kept).sum()) / len(own(name, kept)))


def registered(service: Service, **changes: Any) -> str:
    name = unique("numbers")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, CSV, "numbers.csv")
    assert reply.status_code == 201, reply.text
    return name


def opened(client: httpx.Client, dataset: str, **words: Any) -> JSON:
    reply = client.post("/v1/sessions", json={"dataset": dataset, "epsilon": 1.0, "max_queries": 100, **words})
    assert reply.status_code == 201, reply.text
    found: JSON = reply.json()
    return found


def replays(client: httpx.Client, id: str, path: Path) -> None:
    path.write_bytes(client.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, (verdict.problem, verdict.sequence)


FEMALE = DATA["sex"] == 0
SOME: list[tuple[JSON, np.ndarray]] = [
    ({}, EVERYBODY),
    ({"sex": "f"}, FEMALE),
    ({"temp": {"lt": 0}}, DATA["temp"] < 0),
    ({"temp": {"between": [-12.5, 50]}}, DATA["temp"] >= -25),
    ({"price": {"gt": 2.5, "le": 7.31}}, (DATA["price"] > 250) & (DATA["price"] <= 731)),
    ({"price": None}, DATA["price"] < 0),
    ({"day": ["2020-02", None]}, (DATA["day"] == 1) | (DATA["day"] < 0)),
    (
        {"day": {"ge": "2020-02", "lt": "2020-04-01"}, "region": [0, 5]},
        np.isin(DATA["day"], [1, 2]) & np.isin(DATA["region"], [0, 5]),
    ),
    ({"any": [{"sex": "f"}, {"region": 3}]}, FEMALE | (DATA["region"] == 3)),
    # Which is a range and those without a value: what is no product of conditions may be one of values.
    ({"not": {"price": {"lt": 3}}}, (DATA["price"] < 0) | (DATA["price"] >= 300)),
    (
        {"any": [{"price": None}, {"price": {"ge": 3}}], "sex": "f"},
        FEMALE & ((DATA["price"] < 0) | (DATA["price"] >= 300)),
    ),
    ({"not": {"sex": "f", "region": [1, 2]}}, ~(FEMALE & np.isin(DATA["region"], [1, 2]))),
]


def test_sums_and_means_of_some_records(exact: Service, tmp_path: Path) -> None:
    """Of decimals, negative numbers and numbers beyond 2^31, under conditions of every kind, without noise: the truth
    to the last digit that is told, at one charge a question. Catches records without a value that count, a middle that
    is not added back, cents that are rounded, and a measurement that is charged twice or not at all."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    opening = len(exact.admin.get(f"/v1/datasets/{name}/measurements").json()["items"])
    charged = 0
    for where, kept in SOME:
        for of in UNITS:
            answer = ask(analyst, id, {"type": "sum", "of": of, "where": where})
            assert answer["value"] == pytest.approx(total(of, kept), rel=1e-12, abs=1e-6), (of, where)
            assert answer["interval"][0] <= total(of, kept) <= answer["interval"][1]
            charged += answer["source"] == "measurement"
            assert (answer["charged_epsilon"] > 0) == (answer["source"] == "measurement")
            other = ask(analyst, id, {"type": "mean", "of": of, "where": where})
            charged += other["source"] == "measurement"
            if not len(own(of, kept)):
                assert (other["value"], other["interval"], other["standard_error"]) == (None, None, None)
            elif other["value"] is not None:
                assert other["unbiased"]["value"] == pytest.approx(mean(of, kept), rel=1e-9), (of, where)
                assert other["interval"][0] <= mean(of, kept) <= other["interval"][1]
    listed, page = [], f"/v1/datasets/{name}/measurements?limit=1000"
    while page:
        found = exact.admin.get(page).json()
        listed, page = listed + found["items"], found.get("next")
    # What the opening measured is there too.
    assert len(listed) == opening + charged
    ledger = exact.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert sum(Decimal(item["cost"]["renyi"]) for item in listed) == Decimal(ledger["spent"])
    replays(analyst, id, tmp_path / "t.ndjson")


def test_groups(exact: Service) -> None:
    """Each group has its own value, in the order that was asked, the same however often and in whatever order it is
    asked again. Catches a group under the labels of another, and a question in another order that is paid for."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = {"type": "mean", "of": "temp", "group_by": ["region", "sex"]}
    answer = ask(analyst, id, words)
    assert [axis["attribute"] for axis in answer["axes"]] == ["region", "sex"]
    truth = [mean("temp", (DATA["region"] == r) & (DATA["sex"] == s)) for r in range(6) for s in range(2)]
    for value, (low, high), error, own_mean in zip(
        answer["values"], answer["intervals"], answer["standard_errors"], truth, strict=True
    ):
        assert low <= own_mean <= high
        assert abs(value - own_mean) <= 2 * error
    turned = ask(analyst, id, words | {"group_by": ["sex", "region"]})
    assert (turned["source"], turned["charged_epsilon"]) == ("cached", 0)
    assert np.reshape(turned["values"], (2, 6)).T.reshape(-1).tolist() == answer["values"]
    sums = ask(
        analyst,
        id,
        {"type": "sum", "of": "price", "group_by": ["day"], "bins": {"day": ["2020-01", "2020-03", "2020-05"]}},
    )
    assert sums["axes"][0]["labels"] == ["[2020-01, 2020-03)", "[2020-03, 2020-05)"]
    truth = [total("price", np.isin(DATA["day"], months)) for months in ([0, 1], [2, 3])]
    assert sums["values"] == pytest.approx(truth, rel=1e-12)
    every = ask(analyst, id, {"type": "sum", "of": "price", "group_by": ["day"]})
    assert every["axes"][0]["labels"] == [*MONTHS, None]
    assert every["values"] == pytest.approx([total("price", DATA["day"] == m) for m in (0, 1, 2, 3, -1)], rel=1e-12)


@pytest.mark.parametrize("kind", ["sum", "mean", "variance", "quantile"])
def test_groups_of_the_own_numbers(service: Service, kind: str) -> None:
    """With little budget, grouped by ranges of what is asked of: what each group says is what its own range allows, and
    nothing else where it is a single number. Catches all groups cut alike, and ends that rounding moves off a value."""
    analyst, name = service.principal("analyst"), registered(service)
    id = opened(analyst, name, epsilon=0.05, max_queries=8)["id"]
    edges = [0, 2.5, 2.51, 10, 20]
    wanted = {"type": kind, "of": "price", **({"q": [0.1, 0.5]} if kind == "quantile" else {})}
    answer = ask(analyst, id, wanted | {"group_by": ["price"], "bins": {"price": edges}})
    numbers = 2 if kind == "quantile" else 1
    told = 0
    for group, (low, high) in enumerate(pairwise(edges)):
        last = high if high == 20 else high - 0.01
        least, most = {"sum": (0.0, last * RECORDS), "variance": (0.0, ((last - low) / 2) ** 2)}.get(kind, (low, last))
        for place in range(numbers * group, numbers * (group + 1)):
            value, interval = answer["values"][place], answer["intervals"][place]
            if value is not None:
                told += 1
                assert least - 1e-6 <= interval[0] <= value <= interval[1] <= most + 1e-6, (group, value, interval)
                assert last > low + 1e-9 or kind == "sum" or interval[0] == value == interval[1]
    assert told


def test_what_the_data_cannot_change(service: Service, tmp_path: Path) -> None:
    """Of records that have one number the mean is that, the variance nothing and the median that: known before anything
    is measured, and free. Catches a price for what is public, and no value where nobody was counted."""
    analyst, name = service.principal("analyst"), registered(service)
    id = opened(analyst, name, epsilon=0.05, max_queries=8)["id"]
    single = {"price": {"ge": 2.5, "lt": 2.51}}
    for kind, value in (("mean", 2.5), ("variance", 0.0), ("quantile", 2.5)):
        wanted = {"type": kind, "of": "price", "where": single, **({"q": 0.5} if kind == "quantile" else {})}
        alone = ask(analyst, id, wanted)
        assert (alone["charged_epsilon"], alone["value"], alone["interval"]) == (0, value, [value, value])
        assert alone["standard_error"] == 0
        groups = ask(analyst, id, wanted | {"group_by": ["sex"]})
        assert (groups["charged_epsilon"], groups["values"]) == (0, [value] * 2)
    # How many they are is not known.
    assert ask(analyst, id, {"type": "sum", "of": "price", "where": single})["charged_epsilon"] > 0
    replays(analyst, id, tmp_path / "t.ndjson")


@pytest.mark.parametrize(("lower", "upper", "grid"), [(30, 45, 0.1), (-50, 50, 0.1), (0, 30, 0.01), (-1, 1, 0.001)])
def test_quantiles_are_declared_numbers(service: Service, tmp_path: Path, lower: int, upper: int, grid: float) -> None:
    """To the last digit, as are the ends of intervals, so that they may be asked back. Catches steps of .1 that are
    added up, an answer grid that has no 36.8, and an interval that ends beside the number that it should hold."""
    digits = round(-np.log10(grid))
    numbers = np.random.default_rng(5).integers(lower * 10**digits, upper * 10**digits + 1, 800) / 10**digits
    spec = {
        **SPEC,
        "name": unique("decimal"),
        "attributes": [{"name": "t", "lower": lower, "upper": upper, "grid": grid}],
    }
    spec["budget"] = {"epsilon": 300.0, "delta": 1e-9}
    lines = "\n".join(["t", *map(repr, numbers.tolist())])
    assert register(service.admin, spec, lines.encode(), "rows.csv").status_code == 201
    analyst = service.principal("analyst")
    id = opened(analyst, spec["name"], epsilon=300.0, max_queries=3)["id"]
    answer = ask(analyst, id, {"type": "quantile", "of": "t", "q": [round(0.05 * k, 2) for k in range(1, 20)]})
    told = [each for value, ends in zip(answer["values"], answer["intervals"], strict=True) for each in (value, *ends)]
    assert told == [float(f"{each:.{digits}f}") for each in told]
    at_most = {"type": "predicate", "where": {"t": {"le": answer["values"][9]}}}
    assert abs(ask(analyst, id, at_most)["value"] - 400) < 60
    again = ask(analyst, id, {"type": "quantile", "of": "t", "q": answer["axes"][0]["labels"]})
    assert (again["source"], again["values"]) == ("cached", answer["values"])
    replays(analyst, id, tmp_path / "t.ndjson")


@pytest.mark.parametrize("within", [218.5, 633.365, 1900])
def test_what_is_bought_for_a_sum_keeps_its_accuracy(service: Service, within: float) -> None:
    """So that the same question with the same accuracy is not charged again. Would catch noise whose width is told by a
    law without steps, and its interval by one with them."""
    numbers = np.random.default_rng(5).integers(18, 96, 3000)
    spec = {**SPEC, "name": unique("ages"), "budget": {"epsilon": 300.0, "delta": 1e-9}}
    spec["attributes"] = [{"name": "age", "lower": 18, "upper": 95, "grid": 1}]
    assert register(service.admin, spec, "\n".join(["age", *map(str, numbers)]).encode(), "rows.csv").status_code == 201
    analyst, wanted = service.principal("analyst"), {"type": "sum", "of": "age", "within": within}
    for epsilon in (1.0, 3.0):
        words = {"dataset": spec["name"], "epsilon": epsilon, "start": "nothing", "share": False}
        id = analyst.post("/v1/sessions", json=words).raise_for_status().json()["id"]
        low, high = ask(analyst, id, wanted)["interval"]
        assert (high - low) / 2 <= within * (1 + 1e-9)
        assert ask(analyst, id, wanted)["charged_epsilon"] == 0


def test_variances_and_quantiles(exact: Service, tmp_path: Path) -> None:
    """Without noise the variance of all is the truth, of groups it is in its interval; quantiles are ranges that hold
    the truth, and come nearer as more is asked. Catches a second moment about another middle, and levels that are told
    in another order."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for of in ("temp", "big"):
        answer = ask(analyst, id, {"type": "variance", "of": of})
        truth = float(np.var(DATA[of].astype(float))) * float(UNITS[of]) ** 2
        assert answer["value"] == pytest.approx(truth, rel=1e-9)
    groups = ask(analyst, id, {"type": "variance", "of": "price", "group_by": ["sex"]})
    for s, (low, high) in enumerate(groups["intervals"]):
        assert low <= float(np.var(own("price", DATA["sex"] == s) / 100)) <= high
    levels = [0.1, 0.5, 0.9]
    for where, kept in SOME[:3]:
        for of in ("price", "temp"):
            answer = ask(analyst, id, {"type": "quantile", "of": of, "q": levels, "where": where})
            assert answer["axes"] == [{"attribute": "q", "labels": levels}]
            truth = np.quantile(own(of, kept), levels, method="inverted_cdf") * float(UNITS[of])
            if of == "temp" and where == {"temp": {"lt": 0}}:
                assert max(answer["values"]) < 0
            for value, (low, high), one in zip(answer["values"], answer["intervals"], truth.tolist(), strict=True):
                assert low <= value <= high
                assert low - 1e-9 <= one <= high + 1e-9
            assert answer["values"] == sorted(answer["values"])
    one = ask(analyst, id, {"type": "quantile", "of": "price", "q": 0.5, "group_by": ["sex", "day"]})
    assert [axis["attribute"] for axis in one["axes"]] == ["sex", "day"]
    replays(analyst, id, tmp_path / "t.ndjson")


def test_what_was_paid_for_once_serves_all(noisy: Service, tmp_path: Path) -> None:
    """The mean of all follows from the mean by group that another session paid for, as do the mean of one group and the
    same question again; a session that starts from nothing pays. Catches moments that are not shared, and are used
    where they may not be."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    first = opened(analyst, name, epsilon=0.6, max_queries=4)["id"]
    by_group = {"type": "mean", "of": "price", "group_by": ["sex"]}
    medians = {"type": "quantile", "of": "temp", "q": [0.25, 0.5], "group_by": ["sex"]}
    assert ask(analyst, first, by_group)["source"] == "measurement"
    assert ask(analyst, first, medians)["source"] == "measurement"
    other = noisy.principal("analyst")
    later = opened(other, name, epsilon=0.05)["id"]
    alone = opened(analyst, name, epsilon=0.05, start="nothing")["id"]
    for words, truth in (
        ({"type": "mean", "of": "price"}, mean("price")),
        ({"type": "mean", "of": "price", "where": {"sex": "f"}}, mean("price", FEMALE)),
        ({"type": "sum", "of": "price", "where": {"sex": "f"}}, total("price", FEMALE)),
    ):
        answer = ask(other, later, words)
        assert (answer["source"], answer["charged_epsilon"], answer["interval_kind"]) == ("estimate", 0, "unbiased")
        assert abs(answer["value"] - truth) < 6 * answer["standard_error"]
    again = ask(other, later, by_group)
    assert (again["source"], again["interval_kind"]) == ("estimate", "unbiased")
    assert ask(other, later, medians)["source"] == "estimate"
    assert ask(other, later, by_group)["source"] == "cached"
    assert ask(analyst, alone, by_group)["source"] == "measurement"
    for client, id in ((analyst, first), (other, later), (analyst, alone)):
        replays(client, id, tmp_path / f"{id}.ndjson")


def test_measurements_show_their_parts(noisy: Service) -> None:
    """What a mean was paid for is listed like any other, with its parts and their noise. Catches a release that nobody
    can read."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name, max_queries=40)["id"]
    assert ask(analyst, id, {"type": "mean", "of": "price", "group_by": ["sex"]})["source"] == "measurement"
    listed = analyst.get(f"/v1/datasets/{name}/measurements", params={"limit": 1000}).json()["items"]
    bought = listed[-1]
    assert (bought["by"], bought["strategy"]["type"]) == (id, "parts")
    shown = analyst.get(f"/v1/datasets/{name}/measurements/{bought['id']}").json()
    (moment,) = [part for part in shown["parts"] if part.get("moment") == 1]
    assert moment["of"] == "price"
    labels = {axis["attribute"]: axis["labels"] for axis in moment["axes"]}
    assert labels["sex"] == ["f", "m"]
    # Steps from the middle of the range, of those who have a price: the last cell of each is of those who have none.
    values = np.reshape(moment["values"], [len(axis["labels"]) for axis in moment["axes"]])
    truth = [int((own("price", DATA["sex"] == s) - 1000).sum()) for s in range(2)]
    assert np.abs(values[:, 0] - truth).max() < 6 * moment["standard_error"]
    assert np.abs(values[:, 1]).max() < 6 * moment["standard_error"]


def test_distances_from_both_ends_show_which_they_are(noisy: Service) -> None:
    """Of few questions, with pure noise. Catches an end that nobody can tell from the other."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name, max_queries=4)["id"]
    ask(analyst, id, {"type": "mean", "of": "price", "group_by": ["sex"]})
    listed = analyst.get(f"/v1/datasets/{name}/measurements", params={"limit": 1000}).json()["items"]
    shown = analyst.get(f"/v1/datasets/{name}/measurements/{listed[-1]['id']}").json()
    prices = [own("price", DATA["sex"] == s) for s in range(2)]
    truths = {"least": [int(p.sum()) for p in prices], "greatest": [int((2000 - p).sum()) for p in prices]}
    assert [(part["of"], part["moment"], part["from"]) for part in shown["parts"]] == [
        ("price", 1, "least"),
        ("price", 1, "greatest"),
    ]
    for part in shown["parts"]:
        values = np.reshape(part["values"], [len(axis["labels"]) for axis in part["axes"]])
        assert np.abs(values[:, 0] - truths[part["from"]]).max() < 12 * part["standard_error"]


def test_a_restart_answers_the_same(tmp_path: Path) -> None:
    """Values, errors and intervals, which are told from the evidence that is read back. Catches moments that are lost
    when a server ends, and parts that are read in another order."""
    questions: list[JSON] = [
        {"type": "mean", "of": "price", "group_by": ["sex"]},
        {"type": "variance", "of": "temp"},
        {"type": "quantile", "of": "big", "q": [0.5, 0.75], "where": {"sex": "m"}},
        {"type": "mean", "of": "price"},
        {"type": "sum", "of": "price", "where": {"any": [{"sex": "f"}, {"region": 0}]}},
    ]
    told = ("values", "value", "standard_error", "standard_errors", "interval", "intervals", "interval_kind", "axes")
    with serving(tmp_path / "one", noise=SystemNoise()) as service:
        name = registered(service)
        id = opened(service.admin, name)["id"]
        for words in questions:
            ask(service.admin, id, words)
        before = [ask(service.admin, id, words) for words in questions]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with serving(tmp_path / "two", noise=SystemNoise()) as service:
        after = [ask(service.admin, id, words) for words in questions]
        assert [a["source"] for a in after] == ["cached"] * len(questions)
        assert [[a.get(t) for t in told] for a in after] == [[b.get(t) for t in told] for b in before]
        state = service.admin.get(f"/v1/sessions/{id}").json()
        more = ask(service.admin, id, {"type": "mean", "of": "temp", "group_by": ["region"]})
        assert more["queries_left"] < state["queries_left"]
        replays(service.admin, id, tmp_path / "t.ndjson")


@pytest.mark.parametrize("public", [True, False])
def test_few_questions_of_a_pure_session(noisy: Service, tmp_path: Path, public: bool) -> None:
    """Each is measured by itself, the first one of a table of which not even the number of records is known among them.
    Catches an answer that needs what was never measured, and noise of the other regime."""
    analyst, name = noisy.principal("analyst"), registered(noisy, records_public=public)
    session = opened(analyst, name, max_queries=4)
    assert session["plan"]["mode"] == "laplace"
    id = session["id"]
    target = {"type": "mean", "of": "temp", "where": {"sex": "m"}, "within": 0.01}
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=target), "plan-infeasible")
    found = [
        ask(analyst, id, {"type": "mean", "of": "price"}),
        ask(analyst, id, {"type": "quantile", "of": "temp", "q": 0.5, "group_by": ["sex"]}),
        ask(analyst, id, {"type": "variance", "of": "temp"}),
        ask(analyst, id, {"type": "sum", "of": "big", "where": {"sex": "f"}}),
    ]
    assert {answer["source"] for answer in found} == {"measurement"}
    assert abs(found[0]["value"] - mean("price")) < 6 * found[0]["standard_error"]
    assert abs(found[3]["value"] - total("big", FEMALE)) < 6 * found[3]["standard_error"]
    budget = noisy.admin.get(f"/v1/datasets/{name}").json()["budget"]
    assert budget["impure"] is False
    assert budget["pure"]["spent_epsilon"] == pytest.approx(1.0, abs=1e-2)
    replays(analyst, id, tmp_path / "t.ndjson")


@pytest.fixture
def seeded(tmp_path: Path) -> Iterator[Service]:
    """A server whose noise is drawn from a seed: how wide a ratio's interval is depends on what was drawn."""
    draw = np.random.default_rng(5).laplace
    with serving(tmp_path / "seeded", noise=Noise(lambda scale: round(draw(0.0, scale)))) as running:
        yield running


@pytest.mark.parametrize("pure", [True, False])
def test_accuracy_first(seeded: Service, tmp_path: Path, pure: bool) -> None:
    """An interval as narrow as was asked, for no more than it takes: of a sum exactly, of a mean about. Catches a
    session that is spent on one question, and an answer that is not as good as was asked."""
    analyst, name = seeded.principal("analyst"), registered(seeded)
    id = opened(analyst, name, max_queries=4 if pure else 100)["id"]
    for words, within in (
        ({"type": "sum", "of": "temp"}, 4000.0),
        ({"type": "mean", "of": "temp", "where": {"sex": "m"}}, 4.0),
    ):
        answer = ask(analyst, id, words | {"within": within})
        low, high = answer["interval"]
        assert high - low <= 2 * within * (1.001 if words["type"] == "sum" else 1.5)
        assert answer["charged_epsilon"] < 0.3
        assert ask(analyst, id, words | {"within": within * 1.6})["charged_epsilon"] == 0
    spent = analyst.get(f"/v1/sessions/{id}").json()["spent_epsilon"]
    stored = seeded.stored()
    for odd in (1e-3, 1e-200, 5e-324):
        problem = refused(
            analyst.post(f"/v1/sessions/{id}/queries", json={"type": "mean", "of": "temp", "within": odd}),
            "plan-infeasible",
        )
        assert "interval" in problem["detail"] or "epsilon" in problem["detail"]
    quantile = {"type": "quantile", "of": "temp", "q": 0.5, "within": 3}
    assert "within" in refused(analyst.post(f"/v1/sessions/{id}/queries", json=quantile), "plan-infeasible")["detail"]
    assert seeded.stored() == stored
    for odd in (1e200, 1.7e308):
        ask(analyst, id, {"type": "mean", "of": "temp", "where": {"region": [0, 1]}, "within": odd})
    assert analyst.get(f"/v1/sessions/{id}").json()["spent_epsilon"] <= spent + 0.02
    replays(analyst, id, tmp_path / "t.ndjson")


BAD: list[tuple[JSON, str]] = [
    ({"type": "mean", "of": "prize"}, "price"),
    ({"type": "mean", "of": "sex"}, "numbers on a grid"),
    ({"type": "sum", "of": "day"}, "numbers on a grid"),
    ({"type": "mean"}, "of"),
    ({"type": "mean", "of": ["price"]}, "of"),
    ({"type": "mean", "of": "price", "q": 0.5}, "q"),
    ({"type": "quantile", "of": "price"}, "q"),
    ({"type": "quantile", "of": "price", "q": 1.5}, "between 0 and 1"),
    ({"type": "quantile", "of": "price", "q": [0.5, 0.2]}, "ascend"),
    ({"type": "quantile", "of": "price", "q": []}, "q"),
    ({"type": "mean", "of": "price", "group_by": ["sex", "sex"]}, "distinct"),
    ({"type": "mean", "of": "price", "group_by": ["sax"]}, "sex"),
    ({"type": "mean", "of": "price", "bins": {"sex": ["f", "m"]}}, "grouped by"),
    ({"type": "mean", "of": "price", "where": {"price": 0.005}}, "grid of 0.01"),
    ({"type": "mean", "of": "price", "where": {"temp": None}}, "missing"),
    ({"type": "mean", "of": "price", "where": {"day": "2020-02-03"}}, "month"),
    ({"type": "mean", "of": "price", "where": {"day": "2021"}}, "2020-01-01 to 2020-04-30"),
    ({"type": "mean", "of": "price", "group_by": ["temp", "big"]}, "name fewer attributes"),
    ({"type": "mean", "of": "price", "group_by": ["temp", "day", "region"], "bins": {"temp": [0, 0]}}, "ascend"),
    (
        {"type": "mean", "of": "price", "where": {"not": {"temp": 0, "big": 2147000000, "region": 0}}},
        "fewer attributes",
    ),
    ({"type": "mean", "of": "price", "unverified": True}, "unverified"),
    ({"type": "mean", "of": "price", "within": -1}, "within"),
    ({"type": "mean", "of": "price", "confidence": 1}, "confidence"),
]


def test_bad_input_leaves_no_trace(exact: Service) -> None:
    """Refused in words that name what to change, before anything is written. Catches an unforeseen error, a charge
    for nothing, and a refusal that says nothing."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    ask(analyst, id, {"type": "mean", "of": "price"})
    stored = exact.stored()
    for words, says in BAD:
        reply = analyst.post(f"/v1/sessions/{id}/queries", json=words)
        problem = refused(reply, "invalid-request" if words.get("unverified") else "invalid-query")
        assert says in str(problem), (words, problem)
    assert exact.stored() == stored


@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        ({"construction": "gaussian"}, "evidence"),
        ({"construction": "laplace"}, "evidence"),
        ({"construction": "mw"}, "evidence"),
        ({"construction": "evidence", "contract": True}, "a session without a contract"),
    ],
)
def test_only_evidence_answers_statistics(exact: Service, mechanism: JSON, says: str) -> None:
    """Other constructions refuse them in words that name what serves, and nothing is spent. Catches a statistic that is
    answered as if it were a sum of counts."""
    analyst = exact.principal("analyst")
    small = [a for a in SPEC["attributes"] if a["name"] in ("sex", "region", "temp")]
    csv = "\n".join(
        [
            "sex,region,temp",
            *(f"{'fm'[s]},{r},{t / 2}" for s, r, t in zip(DATA["sex"], DATA["region"], DATA["temp"], strict=True)),
        ]
    )
    name = unique("small")
    assert register(exact.admin, {**SPEC, "name": name, "attributes": small}, csv.encode()).status_code == 201
    words: JSON = {"dataset": name, "epsilon": 0.5, "max_queries": 20}
    if mechanism["construction"] == "mw":
        words["max_updates"] = 5
    if "contract" in mechanism:
        words |= {"contract": mechanism["contract"]}
        mechanism = {"construction": "evidence"}
    reply = analyst.post("/v1/sessions", json={**words, "mechanism": mechanism})
    assert reply.status_code == 201, reply.text
    id, stored = reply.json()["id"], exact.stored()
    for kind in ("sum", "mean", "variance", "quantile"):
        query = {"type": kind, "of": "temp"} | ({"q": 0.5} if kind == "quantile" else {})
        problem = refused(analyst.post(f"/v1/sessions/{id}/queries", json=query), "invalid-query")
        assert says in problem["detail"]
    assert exact.stored() == stored


def test_other_data_have_no_statistics(exact: Service) -> None:
    """Catches a mean of edges."""
    name = unique("graph")
    spec = {"name": name, "kind": "graph", "nodes": 5, "budget": {"epsilon": 1.0, "delta": 1e-6}}
    assert register(exact.admin, spec, b"source,target\n0,1\n1,2\n").status_code == 201
    words = {"dataset": name, "epsilon": 0.5, "max_queries": 5, "mechanism": {"construction": "gaussian"}}
    id = exact.admin.post("/v1/sessions", json=words).json()["id"]
    problem = refused(
        exact.admin.post(f"/v1/sessions/{id}/queries", json={"type": "mean", "of": "age"}), "invalid-query"
    )
    assert "a mean query does not fit a graph data set" in problem["detail"]


def test_sums_beyond_64_bits_are_refused(exact: Service) -> None:
    """Squares of a million steps over very many records: in words that say what to declare. Catches a sum that
    overflows, and one that is silently never measured."""
    name, capacity = unique("vast"), 2**40
    fine = {"name": "n", "lower": 0, "upper": 2**20 - 1, "grid": 1}
    spec = {**SPEC, "name": name, "attributes": [fine], "capacity": capacity}
    assert register(exact.admin, spec, b"n\n1\n1048575\n").status_code == 201
    id = opened(exact.admin, name)["id"]
    stored = exact.stored()
    reply = exact.admin.post(f"/v1/sessions/{id}/queries", json={"type": "variance", "of": "n"})
    assert "declare a smaller capacity" in refused(reply, "invalid-query")["detail"]
    assert exact.stored() == stored


@pytest.mark.parametrize("mechanism", [None, {"construction": "histogram"}])
def test_a_table_that_is_measured_whole(noisy: Service, tmp_path: Path, mechanism: JSON | None) -> None:
    """Every statistic is free, and near the truth. Catches a purchase where there is nothing to buy, and a place
    without a value that is taken for a number."""
    analyst, name = noisy.principal("analyst"), unique("small")
    attributes = [SPEC["attributes"][0], {"name": "temp", "lower": -40, "upper": 50, "grid": 10, "missing": True}]
    tens = np.clip(np.rint(DATA["temp"] / 20), -4, 5).astype(int)
    kept = DATA["price"] >= 0
    csv = "\n".join(
        ["sex,temp", *(f"{'fm'[s]},{t * 10 if k else ''}" for s, t, k in zip(DATA["sex"], tens, kept, strict=True))]
    )
    spec = {**SPEC, "name": name, "attributes": attributes}
    assert register(noisy.admin, spec, csv.encode()).status_code == 201
    session = opened(analyst, name, max_queries=1000, **({} if mechanism is None else {"mechanism": mechanism}))
    assert session["plan"]["mode"] == "table"
    values = tens * 10.0
    truths: list[tuple[JSON, Callable[[np.ndarray], float]]] = [
        ({"type": "sum", "of": "temp"}, np.sum),
        ({"type": "mean", "of": "temp"}, np.mean),
        ({"type": "variance", "of": "temp"}, np.var),
        ({"type": "quantile", "of": "temp", "q": 0.4}, lambda v: np.quantile(v, 0.4, method="inverted_cdf")),
    ]
    for words, truth in truths:
        answer = ask(analyst, session["id"], words)
        assert (answer["source"], answer["charged_epsilon"], answer["interval_kind"]) == ("estimate", 0, "unbiased")
        assert abs(answer["value"] - truth(values[kept])) <= max(6 * answer["standard_error"], 1e-9)
        groups = ask(analyst, session["id"], words | {"group_by": ["sex"]})
        assert groups["charged_epsilon"] == 0
        for s, (value, error) in enumerate(zip(groups["values"], groups["standard_errors"], strict=True)):
            assert abs(value - truth(values[kept & (DATA["sex"] == s)])) <= max(6 * error, 1e-9)
    replays(analyst, session["id"], tmp_path / "t.ndjson")


@pytest.mark.postgres
def test_over_postgresql(postgres_url: str, tmp_path: Path) -> None:
    """Catches a release in parts that another database does not hold, or gives back otherwise."""
    with serving(tmp_path / "data", noise=Noise(), database_url=postgres_url) as service:
        name = registered(service)
        id = opened(service.admin, name)["id"]
        words = {"type": "mean", "of": "price", "where": {"sex": "f"}}
        answer = ask(service.admin, id, words)
        assert answer["unbiased"]["value"] == pytest.approx(mean("price", FEMALE), rel=1e-9)
        assert ask(service.admin, id, words)["source"] == "cached"
        replays(service.admin, id, tmp_path / "t.ndjson")


def test_answers_tell_what_their_interval_does_not_speak_of(service: Service) -> None:
    """Of numbers that the declaration clamps and of persons whose records it caps: in every answer about these numbers,
    alone and by groups, new and told again, whether or not anything was cut off; and in no other. Catches a note that
    follows the data, one that names the wrong attribute or bounds, and one where nothing may have been cut off."""
    spec = {
        "kind": "table",
        "records_public": True,
        "budget": {"epsilon": 1.0, "delta": 1e-9},
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "debt", "lower": -2500, "upper": 2000000, "grid": 100, "bins": 5, "outside": "clamp"},
            {"name": "age", "lower": 0, "upper": 100, "grid": 1, "bins": 5},
        ],
    }
    within, beyond = (f"who,sex,debt,age\n1,f,{debt},30\n2,m,-2500,40\n".encode() for debt in (100, 99000000))
    clamped = "values of debt beyond -2,500 and 2,000,000 count as these"
    capped = "of each person at most 3 records count"
    rest = ": the interval does not speak of what that cuts off"
    at = '; how much lies at a bound tells {"type":"share","of":{"debt":{"at":"upper"}}}, or "lower"'
    capping = {"unit": {"column": "who", "max_records": 3}}
    for data, unit, debt, age in (
        (within, {}, clamped + rest + at, None),
        (beyond, {}, clamped + rest + at, None),
        (beyond, capping, f"{clamped}, and {capped}{rest}{at}", capped + rest),
    ):
        name = unique("debts")
        reply = register(service.admin, {**spec, "name": name, **unit}, data, "debts.csv")
        assert reply.status_code == 201, reply.text
        id = opened(service.admin, name)["id"]
        for kind in ({"type": "mean"}, {"type": "sum"}, {"type": "quantile", "q": 0.5}):
            for grouped in ({}, {"group_by": ["sex"]}, {}):
                assert ask(service.admin, id, {**kind, "of": "debt", **grouped})["note"] == debt
                assert ask(service.admin, id, {**kind, "of": "age", **grouped}).get("note") == age
        assert "note" not in ask(service.admin, id, {"type": "predicate", "where": {"debt": {"ge": 2000000}}})
        assert "note" not in ask(service.admin, id, {"type": "share", "of": {"debt": {"ge": 2000000}}})


def test_a_width_that_is_not_paid_names_the_dearest_group(exact: Service) -> None:
    """Of means by group the one of the fewest records, once their numbers were released, and of counts the cell that
    merges the most; none of sums, whose intervals are as wide however few the records are, and none of a single answer.
    Catches a group told in the wrong order of the axes, and one that is named where all reach as far."""
    rows = [f"{sex},{region},50" for sex in "fm" for region in range(3) for _ in range(400)]
    rows = [row for row in rows if row != "m,1,50"] + ["m,1,50"] * 30
    data = "\n".join(["sex,region,temp", *rows]).encode()
    attributes = [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 3},
        {"name": "temp", "lower": 0, "upper": 100, "grid": 1, "bins": 10},
    ]
    name = unique("dear")
    spec = {**SPEC, "attributes": attributes, "name": name}
    assert register(exact.admin, spec, data, "dear.csv").status_code == 201
    words = {"dataset": name, "epsilon": 0.3, "max_queries": 20}

    def refusal(id: str, query: JSON) -> JSON:
        return refused(exact.admin.post(f"/v1/sessions/{id}/queries", json=query), "plan-infeasible")

    mean_of = {"type": "mean", "of": "temp", "within": 0.01}
    id = opened(exact.admin, **words)["id"]
    ask(exact.admin, id, {"type": "marginal", "attributes": ["sex", "region"]})
    for group_by in (["sex", "region"], ["region", "sex"]):
        problem = refusal(id, {**mean_of, "group_by": group_by})
        assert problem["group"] == {"sex": "m", "region": 1}
        assert ", ".join(f"{axis} {problem['group'][axis]}" for axis in group_by) in problem["detail"]
    assert "group" not in refusal(id, mean_of)
    assert "group" not in refusal(id, {**mean_of, "type": "sum", "group_by": ["sex", "region"]})
    merged = {"type": "marginal", "attributes": ["sex", "region"], "bins": {"region": [0, 1, 3]}, "within": 4}
    assert refusal(id, merged)["group"]["region"] == "[1, 3)"
