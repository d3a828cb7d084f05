"""Sessions on graphs and matrices through the whole service: planned, asked, charged, shared, refused and replayed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from app.curator.dataset import PublicDataset
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer
from app.privacy.ledger import Amounts
from app.verifying.transcript import replay_file
from curator_client.proofs import records
from tests.kit.noise import Noise, Seeded, Source
from tests.kit.service import ARROW, JSON, Service, ask, npy, refused, register, serving, unique

pytestmark = [pytest.mark.api, pytest.mark.slow]

Floats = npt.NDArray[np.float64]
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
RANDOM = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """A data set that is declared, and its cells: of an undirected graph symmetric."""

    spec: JSON
    cells: Floats

    @property
    def pairs(self) -> bool:
        return self.spec["kind"] == "graph" and not self.spec.get("directed")

    def truth(self, words: JSON) -> float:
        """The value of a cut or rank-one query."""
        left, right = (self.weights(words, side, length) for side, length in zip(SIDES, self.cells.shape, strict=True))
        value = left @ self.cells @ right
        both = left * right if self.pairs else np.zeros(1)
        return float(value - (both @ self.cells @ both / 2 if self.pairs else 0))

    @staticmethod
    def weights(words: JSON, side: str, length: int) -> Floats:
        if words["type"] == "rank_one":
            return np.array(words[side], float)
        found = np.zeros(length)
        found[slice(None) if words[side] == "all" else words[side]] = 1
        return found

    def cut(self, rng: np.random.Generator) -> JSON:
        """A cut of about a quarter of all cells."""
        left, right = (np.flatnonzero(rng.random(length) < 0.5).tolist() for length in self.cells.shape)
        return {"type": "cut", "left": left, "right": right}

    def rank_one(self, rng: np.random.Generator) -> JSON:
        """Weights on a grid, negative ones among them where there may be any."""
        least = 0 if self.pairs else -4
        left, right = ((rng.integers(least, 5, length) / 4).tolist() for length in self.cells.shape)
        return {"type": "rank_one", "left": left, "right": right}


SIDES = ("left", "right")
#: The sum of all cells, which is measured beside degrees.
EVERYTHING: JSON = {"type": "cut", "left": "all", "right": "all"}


def _graph(*, directed: bool) -> Floats:
    """A graph with hubs."""
    activity = RANDOM.pareto(1.5, 60) + 1
    found = (RANDOM.random((60, 60)) < np.minimum(0.9, np.outer(activity, activity) / 15)).astype(float)
    np.fill_diagonal(found, 0)
    return found if directed else np.triu(found, 1) + np.triu(found, 1).T


CASES = {
    "directed": Case({"kind": "graph", "nodes": 60, "directed": True}, _graph(directed=True)),
    "undirected": Case({"kind": "graph", "nodes": 60}, _graph(directed=False)),
    "bipartite": Case({"kind": "bipartite", "left": 40, "right": 50}, (RANDOM.random((40, 50)) < 0.2).astype(float)),
    "weighted": Case(
        {"kind": "bipartite", "left": 40, "right": 50, "weighted": True, "grid": 0.25},
        RANDOM.integers(0, 5, (40, 50)) / 4,
    ),
    "matrix": Case(
        {"kind": "matrix", "rows": 45, "columns": 40, "lower": -1, "upper": 2, "grid": 0.5},
        RANDOM.integers(-2, 5, (45, 40)) / 2,
    ),
}
#: What opens a session, and the mode and law of its noise.
MODES: dict[str, tuple[JSON, str]] = {
    "degrees": ({"epsilon": 0.5, "max_queries": 12}, "degrees"),
    "open": ({"epsilon": 0.5}, "degrees"),
    "histogram": ({"epsilon": 0.5, "max_queries": 50, "mechanism": {"construction": "histogram"}}, "edges"),
    "edges": ({"epsilon": 1.0, "max_queries": 5000}, "edges"),
    "laplace": ({"epsilon": 1.0, "max_queries": 3}, "laplace"),
}


class Coins(Noise):
    """No noise, but for bits, which are turned over as often as they are said to be: without that no estimate from them
    is near to the truth."""

    def flips(self, probability: Any) -> Any:
        return Source(lambda n: (np.random.default_rng(n).random(n) < float(probability)).astype(np.uint8))


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server whose noise is zero, so that what is measured is the truth."""
    with serving(tmp_path_factory.mktemp("exact"), noise=Coins()) as running:
        yield running


@pytest.fixture(scope="module")
def seeded() -> Seeded:
    """The noise of :func:`noisy`."""
    return Seeded(np.random.default_rng(0))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory, seeded: Seeded) -> Iterator[Service]:
    """A server with noise."""
    with serving(tmp_path_factory.mktemp("noisy"), noise=seeded) as running:
        yield running


def registered(service: Service, kind: str, **more: Any) -> str:
    name = unique(kind)
    reply = register(
        service.admin, {"budget": BUDGET, **CASES[kind].spec, "name": name, **more}, npy(CASES[kind].cells), "d.npy"
    )
    assert reply.status_code == 201, reply.text
    return name


def opened(client: httpx.Client, dataset: str, **words: Any) -> JSON:
    reply = client.post("/v1/sessions", json={"dataset": dataset, "epsilon": 0.5, **words})
    assert reply.status_code == 201, reply.text
    found: JSON = reply.json()
    return found


def replays(client: httpx.Client, id: str, folder: Path) -> JSON:
    """The summary of the session's transcript, replayed from its file alone."""
    path = folder / f"{id}.ndjson"
    path.write_bytes(client.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    return verdict.summary


def listed(service: Service, name: str) -> list[JSON]:
    found: list[JSON] = service.admin.get(f"/v1/datasets/{name}/measurements", params={"limit": 1000}).json()["items"]
    return found


def audited(service: Service, client: httpx.Client, name: str, id: str, answers: list[JSON], folder: Path) -> None:
    """All books of a data set with one session agree, and its transcript replays."""
    state = client.get(f"/v1/sessions/{id}").json()
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    costs = [Amounts.read(item["cost"]) for item in listed(service, name)]
    assert sum(cost.renyi for cost in costs) == Decimal(state["spent"]) == Decimal(ledger["spent"])
    first = client.get(f"/v1/sessions/{id}").json()["plan"]
    charged = sum(answer["charged_epsilon"] for answer in answers)
    # What was measured at the opening no answer was charged for.
    made = header(client, id)["evidence"]["made"]
    assert [item["id"] for item in listed(service, name)][: len(made)] == made
    before = costs[: len(made)]
    if first["regime"] == "pure":
        assert sum(cost.pure or 0 for cost in costs) == Decimal(state["spent_pure"]) <= 1
        opening = float(sum(cost.pure or 0 for cost in before))
    else:
        share = float(Decimal(state["spent"]) + Decimal(state["reserved"]))
        opening = float(sum(cost.renyi for cost in before)) / share * first["epsilon"]
    assert charged + opening == pytest.approx(state["spent_epsilon"], rel=1e-6, abs=1e-9)
    assert state["spent_epsilon"] <= first["epsilon"]
    summary = replays(client, id, folder)
    assert summary["spent"] == state["spent"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CASES)
def test_without_noise_answers_are_the_truth(exact: Service, kind: str, mode: str, tmp_path: Path) -> None:
    """Cuts and rank-one queries of every kind in every mode: what was measured is told to the last digit beside what is
    shown, which is near to it, and every interval holds the truth; asked again they are cached; all books agree.
    Catches an entry of a matrix that is not moved back by its bounds, an edge that is counted at both ends, a weight
    that is lost, and a charge for what was known.
    """
    analyst, case, name, rng = (
        exact.principal("analyst"),
        CASES[kind],
        registered(exact, kind),
        np.random.default_rng(1),
    )
    words, told = MODES[mode]
    session = opened(analyst, name, **words)
    id = session["id"]
    assert session["mechanism"]["construction"] == words.get("mechanism", {"construction": "evidence"})["construction"]
    assert (session["plan"]["mode"], session["queries_left"]) == (told, words.get("max_queries"))
    asked = [case.cut(rng), case.rank_one(rng), case.cut(rng)]
    if mode != "laplace":
        asked += [EVERYTHING, case.rank_one(rng), case.cut(rng)]
    answers = []
    for number, query in enumerate(asked, start=1):
        answer, truth = ask(analyst, id, query), case.truth(query)
        answers.append(answer)
        assert answer["sequence"] == number
        # Of a question of many the share buys no more than is known of the sum of all cells already.
        free = told == "edges" or (mode == "open" and query == EVERYTHING)
        assert answer["source"] == ("estimate" if free else "measurement")
        assert (answer["charged_epsilon"] > 0) == (not free)
        assert answer["interval_kind"] == "unbiased"
        coins = any(item["noise"]["kind"] == "flips" for item in listed(exact, name))
        error = answer["unbiased"]["standard_error"]
        assert answer["unbiased"]["value"] == pytest.approx(truth, rel=1e-6, abs=5 * error if coins else 1e-5)
        assert abs(answer["value"] - answer["unbiased"]["value"]) <= 2 * error
        assert coins or answer["interval"][0] <= truth <= answer["interval"][1]
        assert answer["standard_error"] > 0
    for query, answer in zip(asked, answers, strict=True):
        again = ask(analyst, id, query)
        assert (again["source"], again["charged_epsilon"], again["value"]) == ("cached", 0, answer["value"])
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_asked"] == len(asked)
    audited(exact, analyst, name, id, answers, tmp_path)


@pytest.mark.parametrize("mode", ["degrees", "histogram", "laplace"])
@pytest.mark.parametrize("kind", CASES)
def test_what_has_no_cells_costs_nothing(exact: Service, kind: str, mode: str, tmp_path: Path) -> None:
    """Empty sides and, of a graph, a node with itself: zero for certain, and free. Catches a charge for nothing, and a
    division by the number of cells."""
    analyst, case, name = exact.principal("analyst"), CASES[kind], registered(exact, kind)
    words = MODES[mode][0]
    id = opened(analyst, name, **words)["id"]
    spent = analyst.get(f"/v1/sessions/{id}").json()["spent"]
    nothing: list[JSON] = [{"type": "cut", "left": [], "right": "all"}, {"type": "cut", "left": [3], "right": []}]
    if case.spec["kind"] == "graph":
        nothing.append({"type": "cut", "left": [3], "right": [3]})
    for query in nothing:
        answer = ask(analyst, id, query)
        low, high = answer["interval"]
        assert (answer["value"], low, high, answer["charged_epsilon"]) == (0, 0, 0, 0), query
    rows, columns = case.cells.shape
    zeros = {"type": "rank_one", "left": [0] * rows, "right": [1] * columns}
    if mode != "laplace":
        assert ask(analyst, id, zeros)["value"] == 0
    assert analyst.get(f"/v1/sessions/{id}").json()["spent"] == spent
    replays(analyst, id, tmp_path)


@pytest.mark.parametrize("mode", ["degrees", "histogram"])
@pytest.mark.parametrize("kind", CASES)
def test_with_noise(noisy: Service, seeded: Seeded, kind: str, mode: str, tmp_path: Path) -> None:
    """Answers err as they say, intervals hold most truths, and as often as a question is measured its share
    is charged. Catches errors that are told in other units than values."""
    analyst, case, name, rng = (
        noisy.principal("analyst"),
        CASES[kind],
        registered(noisy, kind),
        np.random.default_rng(3),
    )
    words = MODES[mode][0] | ({"max_queries": 30} if mode == "degrees" else {})
    seeded.random = np.random.default_rng(5)
    session, answers, held, errors = opened(analyst, name, **words), [], [], []
    for _ in range(25):
        query = case.cut(rng)
        answer, truth = ask(analyst, session["id"], query), case.truth(query)
        answers.append(answer)
        low, high = answer["interval"]
        held.append(low <= truth <= high)
        errors.append((answer["value"] - truth) / answer["standard_error"])
        assert answer["confidence"] == 0.95
        assert low <= high
    assert np.sqrt(np.mean(np.square(errors))) < 1.6
    assert np.mean(held) > 0.6
    audited(noisy, analyst, name, session["id"], answers, tmp_path)


@pytest.mark.parametrize("kind", CASES)
def test_blocks_and_degrees(exact: Service, kind: str, tmp_path: Path) -> None:
    """Many numbers at once are charged as one question, at a price that is found here from the noise that the ledger
    names: an edge is in one block, and moves one node of a side, of an undirected graph two, from one number to
    another. Catches degrees that are charged as a sum, and blocks that are charged one by one.
    """
    analyst, case, name = exact.principal("analyst"), CASES[kind], registered(exact, kind)
    id = opened(analyst, name, epsilon=0.8)["id"]
    answers: list[JSON] = []
    groups: JSON = {"left": {"a": list(range(20)), "b": list(range(20, 40))}}
    if not case.pairs:
        groups["right"] = {"x": list(range(5, 30)), "y": list(range(30, 40)), "z": [0, 1]}
    others = groups.get("right", groups["left"])
    answer = ask(analyst, id, {"type": "blocks", **groups})
    answers.append(answer)
    truths = [
        case.truth({"type": "cut", "left": a, "right": b}) for a in groups["left"].values() for b in others.values()
    ]
    assert_measured(exact, name, {*truths})
    assert all(low <= truth <= high for (low, high), truth in zip(answer["intervals"], truths, strict=True))
    assert answer["source"] == "measurement"
    gamma = Fraction(3 if kind == "matrix" else 1)
    assert_price(exact, analyst, name, id, absolute=gamma, squared=gamma**2)
    side = {} if case.pairs else {"side": "left"}
    if kind in ("weighted", "matrix"):
        refused(analyst.post(f"/v1/sessions/{id}/queries", json={"type": "degrees", **side}), "invalid-query")
    else:
        bins = [0, 5, 10, 15, 25]
        answer = ask(analyst, id, {"type": "degrees", "bins": bins, **side})
        answers.append(answer)
        degrees = case.cells.sum(axis=1)
        truths = np.histogram(degrees, [*bins, np.inf])[0].tolist()
        assert_measured(exact, name, {*truths})
        assert answer["values"] == pytest.approx(truths, abs=1e-6)
        assert answer["axes"][0]["labels"][-1] == "25+"
        ends = 2 if case.pairs else 1
        assert_price(exact, analyst, name, id, absolute=Fraction(2 * ends), squared=Fraction(2 * ends**2))
        again = ask(analyst, id, {"type": "degrees", "bins": bins, **side})
        assert (again["source"], again["charged_epsilon"], again["values"]) == ("cached", 0, answer["values"])
        if not case.pairs:
            other = ask(analyst, id, {"type": "degrees", "bins": bins, "side": "right"})
            answers.append(other)
            assert other["values"] == pytest.approx(
                np.histogram(case.cells.sum(axis=0), [*bins, np.inf])[0].tolist(), abs=1e-6
            )
    assert ask(analyst, id, {"type": "blocks", **groups})["source"] == "cached"
    audited(exact, analyst, name, id, answers, tmp_path)


def assert_measured(service: Service, name: str, truths: set[float]) -> None:
    """The last measurement released these values."""
    shown = service.admin.get(f"/v1/datasets/{name}/measurements/{listed(service, name)[-1]['id']}").json()
    assert set(shown["values"]) == truths


def assert_price(
    service: Service, client: httpx.Client, name: str, id: str, *, absolute: Fraction, squared: Fraction
) -> None:
    """The last charge of the ledger is the price of the last measurement's noise, to the last digit, where neighbours
    differ by so much in the L1 norm, and by so much in the square of the L2 norm."""
    cost = assert_cost(service, client, name, id, absolute=absolute, squared=squared)
    assert Decimal(moved(service, name, "charge")[-1]["amount"]) == cost.renyi


def moved(service: Service, name: str, kind: str) -> list[JSON]:
    """The ledger's entries of a kind."""
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    return [entry for entry in ledger["entries"] if entry["kind"] == kind]


def assert_cost(
    service: Service, client: httpx.Client, name: str, id: str, *, absolute: Fraction, squared: Fraction
) -> Amounts:
    """What the last measurement is said to cost is the price of its noise in this sense; that."""
    item, told = listed(service, name)[-1], header(client, id)
    unit = round(1 / told["plan"]["answer_grid"])
    scale = Fraction(str(item["noise"]["scale"])) * unit
    if item["noise"]["kind"] == "gaussian":
        event: Any = DiscreteGaussianAnswer(scale, int(squared * unit**2))
    else:
        event = DiscreteLaplaceAnswer(scale, int(absolute * unit))
    cost = Amounts.read(item["cost"])
    assert cost == Amounts.of(event, PublicDataset.from_descriptor(told["dataset"]).budget.order)
    return cost


@pytest.mark.parametrize("kind", CASES)
def test_the_sum_of_all_cells_is_known(exact: Service, kind: str, tmp_path: Path) -> None:
    """It is measured beside degrees, at the price of one sum that an edge, or an entry, moves once, and asked within
    what that gives it costs nothing, of a second session neither, which measures neither anew. Catches a sum that is
    charged as degrees are, one that is measured and not learnt from, one that is paid again, and degrees that do not
    tell it beside that.
    """
    analyst, case, name = exact.principal("analyst"), CASES[kind], registered(exact, kind)
    first = opened(analyst, name, max_queries=12)
    gamma = Fraction(3 if kind == "matrix" else 1)
    assert_measured(exact, name, {case.truth(EVERYTHING)})
    cost = assert_cost(exact, analyst, name, first["id"], absolute=gamma, squared=gamma**2)
    items = listed(exact, name)
    assert [item["strategy"]["type"] for item in items] == ["degrees", "query"]
    assert header(analyst, first["id"])["evidence"] == {"known": [], "made": [item["id"] for item in items]}
    share = Decimal(first["spent"]) + Decimal(first["reserved"])
    assert Decimal("0.0198") < cost.renyi / share <= Decimal("0.02")
    (purchase,) = moved(exact, name, "purchase")
    assert Decimal(purchase["amount"]) == Decimal(first["spent"]) == Amounts.read(items[0]["cost"]).renyi + cost.renyi
    within = 2 * items[1]["noise"]["scale"]
    second = opened(analyst, name, epsilon=0.4, max_queries=12)
    assert (Decimal(second["spent"]), listed(exact, name)) == (0, items)
    assert header(analyst, second["id"])["evidence"] == {"known": [item["id"] for item in items], "made": []}
    for session in (first, second):
        answer = ask(analyst, session["id"], EVERYTHING | {"within": within})
        assert (answer["source"], answer["charged_epsilon"]) == ("estimate", 0)
        assert answer["unbiased"]["value"] == pytest.approx(case.truth(EVERYTHING), abs=1e-5)
        # Half of all degrees tell it too; or all of one side, and of the other as well.
        n, m = case.cells.shape
        degrees = items[0]["noise"]["scale"] ** 2 * (n / 4 if case.pairs else n * m / (n + m))
        both = (items[1]["noise"]["scale"] ** -2 + 1 / degrees) ** -0.5
        assert answer["unbiased"]["standard_error"] == pytest.approx(both, rel=1e-3)
        low, high = answer["interval"]
        assert low <= case.truth(EVERYTHING) <= high <= low + 2 * within
        replays(analyst, session["id"], tmp_path)
    assert listed(exact, name) == items


def test_accuracy_first(exact: Service, tmp_path: Path) -> None:
    """A question pays the least that gets within what is asked, then the difference alone; what cannot be paid is
    refused, and nothing was drawn or stored; a session that is closed gives back the rest, to the last digit. Catches a
    refined question that is paid twice, one that is paid although so few cells cannot be farther off, and a refusal
    that leaves a trace.
    """
    analyst, name = exact.principal("analyst"), registered(exact, "undirected")
    id = opened(analyst, name, max_queries=40)["id"]
    query = CASES["undirected"].cut(np.random.default_rng(2))
    prices = []
    for within in (60, 120, 30, 29.9):
        answer = ask(analyst, id, query | {"within": within})
        assert answer["interval"][1] - answer["interval"][0] <= 2 * within * (1 + 1e-6)
        prices.append(answer["charged_epsilon"])
    assert prices[1] == 0
    other = ask(analyst, id, CASES["undirected"].cut(np.random.default_rng(4)) | {"within": 30})["charged_epsilon"]
    # Half the width is four times the price, of which one part was paid.
    assert prices[0] + prices[2] == pytest.approx(other, rel=5e-3)
    assert prices[2] == pytest.approx(3 * prices[0], rel=2e-2)
    for few in ({"left": [3], "right": [4]}, {"left": [0, 1], "right": [2, 3, 4]}):
        answer = ask(analyst, id, {"type": "cut", "within": 3, **few})
        assert (answer["source"], answer["charged_epsilon"]) == ("estimate", 0)
        assert answer["interval"][1] - answer["interval"][0] <= 6
    stored = exact.stored()
    path = f"/v1/sessions/{id}/queries"
    for words in (
        query | {"within": 0.5},
        query | {"within": 1e-200},
        CASES["undirected"].cut(RANDOM) | {"within": 1e-3},
    ):
        problem = refused(analyst.post(path, json=words), "plan-infeasible")
        assert "epsilon" in problem["detail"] or "interval" in problem["detail"]
    assert exact.stored() == stored
    blocks = {"type": "blocks", "left": {"a": list(range(9)), "b": list(range(9, 30))}, "within": 80}
    answer = ask(analyst, id, blocks)
    assert all(high - low <= 160 * (1 + 1e-6) for low, high in answer["intervals"])
    degrees = {"type": "degrees", "bins": [0, 4, 9], "within": 200}
    assert all(high - low <= 400 for low, high in ask(analyst, id, degrees)["intervals"])
    before = exact.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert Decimal(before["reserved"]) > 0
    assert analyst.post(f"/v1/sessions/{id}/close").status_code == 200
    after = exact.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert Decimal(after["reserved"]) == 0
    assert after["spent"] == before["spent"]
    refused(analyst.post(path, json=query), "session-closed")
    assert replays(analyst, id, tmp_path)["status"] == "closed"


def test_a_session_within_an_accuracy(exact: Service, tmp_path: Path) -> None:
    """Measures no degrees and answers each question within what it says. Catches a session that spends before anybody
    asked."""
    analyst, name, case = exact.principal("analyst"), registered(exact, "matrix"), CASES["matrix"]
    session = opened(analyst, name, within=250, confidence=0.9)
    assert Decimal(session["spent"]) == 0
    query = case.cut(np.random.default_rng(2))
    answer = ask(analyst, session["id"], query)
    assert (answer["source"], answer["confidence"]) == ("measurement", 0.9)
    assert answer["interval"][1] - answer["interval"][0] <= 500 * (1 + 1e-6)
    assert answer["unbiased"]["value"] == pytest.approx(case.truth(query), abs=1e-5)
    audited(exact, analyst, name, session["id"], [answer], tmp_path)


def header(client: httpx.Client, id: str) -> JSON:
    found: JSON = records.parse(client.get(f"/v1/sessions/{id}/transcript").content.split(b"\n")[0])
    return found


def test_what_one_session_paid_for_serves_the_next(exact: Service, tmp_path: Path) -> None:
    """A second session starts from all that is shared, names it in its header, pays for degrees and their sum no more,
    and answers what was measured without paying; one that starts from nothing pays anew; what is not shared serves
    nobody and is shown to no analyst. All replay from their files alone. Catches evidence that is lost, paid twice, or
    used where it may not be.
    """
    analyst, case, name = exact.principal("analyst"), CASES["directed"], registered(exact, "directed")
    rng = np.random.default_rng(5)
    query, hidden_query = case.cut(rng), case.cut(rng)
    first = opened(analyst, name, epsilon=0.4, max_queries=10)
    ask(analyst, first["id"], query)
    paid = [item["id"] for item in listed(exact, name)]
    assert [item["strategy"]["type"] for item in listed(exact, name)] == ["degrees", "query", "query"]
    assert header(analyst, first["id"])["evidence"] == {"known": [], "made": paid[:2]}
    hidden = opened(analyst, name, epsilon=0.05, max_queries=3, share=False)["id"]
    assert header(analyst, hidden)["evidence"] == {"known": paid, "made": []}
    ask(analyst, hidden, hidden_query | {"within": 500})
    unseen = listed(exact, name)[-1]
    assert unseen["by"] == hidden
    assert unseen["id"] not in [item["id"] for item in analyst.get(f"/v1/datasets/{name}/measurements").json()["items"]]
    refused(analyst.get(f"/v1/datasets/{name}/measurements/{unseen['id']}"), "not-found")
    second = opened(exact.principal("analyst"), name, epsilon=0.1, max_queries=10)
    assert Decimal(second["spent"]) == 0
    mine = opened(analyst, name, epsilon=0.1, max_queries=10)["id"]
    assert header(analyst, mine)["evidence"] == {"known": paid, "made": []}
    width = np.ptp(ask(analyst, first["id"], query)["interval"])
    free = ask(analyst, mine, query | {"within": width})
    assert (free["source"], free["charged_epsilon"]) == ("estimate", 0)
    assert free["unbiased"]["value"] == pytest.approx(case.truth(query), abs=1e-5)
    alone = opened(analyst, name, epsilon=0.2, max_queries=10, start="nothing")
    assert Decimal(alone["spent"]) > 0
    evidence = header(analyst, alone["id"])["evidence"]
    assert (evidence["known"], len(evidence["made"])) == ([], 2)
    assert ask(analyst, alone["id"], query)["source"] == "measurement"
    for id in (first["id"], hidden, mine, alone["id"]):
        replays(analyst, id, tmp_path)


@pytest.mark.parametrize("kind", ["directed", "matrix"])
def test_edges_that_were_measured_serve_all(exact: Service, kind: str, tmp_path: Path) -> None:
    """After a histogram everything is an estimate, free, of a second session too, which measures no cell again; who
    picks a cut by what was released gets an interval that holds for all cuts at once. Catches an interval that is no
    wider for who searched for a cut.
    """
    analyst, case, name = exact.principal("analyst"), CASES[kind], registered(exact, kind)
    words = {"epsilon": 0.4, "max_queries": 30, "mechanism": {"construction": "histogram"}}
    first = opened(analyst, name, **words)
    types = [item["strategy"]["type"] for item in listed(exact, name)]
    assert sorted(types) == ["degrees", "edges"]
    second = opened(analyst, name, **words)
    assert Decimal(second["spent"]) == 0
    assert len(listed(exact, name)) == 2
    third = opened(analyst, name, epsilon=0.1, max_queries=5)
    rng = np.random.default_rng(8)
    query, other = case.cut(rng), case.rank_one(rng)
    answers = [ask(analyst, session["id"], query) for session in (first, second, third)]
    assert {answer["source"] for answer in answers[:2]} == {"estimate"}
    assert answers[0]["unbiased"]["value"] == pytest.approx(answers[1]["unbiased"]["value"], abs=1e-3)
    for asked in (other, case.cut(rng)):
        narrow, wide = (ask(analyst, first["id"], asked | more) for more in ({}, {"adaptive": True}))
        widths = [answer["interval"][1] - answer["interval"][0] for answer in (narrow, wide)]
        assert widths[1] > 2 * widths[0] or wide["interval"] == list(_bounds(case, asked))
        assert wide["charged_epsilon"] == 0
    problem = refused(
        analyst.post(f"/v1/sessions/{first['id']}/queries", json=query | {"within": 0.01}), "plan-infeasible"
    )
    assert "epsilon" in problem["detail"]
    for session in (first, second, third):
        replays(analyst, session["id"], tmp_path)


@pytest.mark.parametrize("kind", ["directed", "bipartite"])
def test_who_searched_for_a_cut_is_told_of_all_of_them(noisy: Service, tmp_path: Path, kind: str) -> None:
    """A cut that is picked by where the released cells err most: the interval of one question misses it by far, that of
    a question which says so holds, and says something. Catches an interval that is no wider for who searched.
    """
    analyst, case = noisy.principal("analyst"), CASES[kind]
    name = registered(noisy, kind, budget={"epsilon": 4.0, "delta": 1e-9})
    id = opened(analyst, name, epsilon=4.0, max_queries=30, mechanism={"construction": "histogram"})["id"]
    (edges,) = (item for item in listed(noisy, name) if item["strategy"]["type"] == "edges")
    released = noisy.admin.get(f"/v1/datasets/{name}/measurements/{edges['id']}").json()["values"]
    rows, columns = case.cells.shape
    off = np.zeros(case.cells.shape)
    off[~np.eye(rows, dtype=bool) if kind == "directed" else np.ones(off.shape, dtype=bool)] = released
    off -= case.cells
    left, right = np.ones(rows, dtype=bool), np.arange(columns) % 2 == 0
    for _ in range(20):
        left = off[:, right].sum(axis=1) > 0
        right = off[left].sum(axis=0) > 0
    query = {"type": "cut", "left": np.flatnonzero(left).tolist(), "right": np.flatnonzero(right).tolist()}
    one, every = (ask(analyst, id, query | more) for more in ({}, {"adaptive": True}))
    truth, (low, high) = case.truth(query), _bounds(case, query)
    assert not one["interval"][0] <= truth <= one["interval"][1]
    assert every["interval"][0] <= truth <= every["interval"][1]
    assert every["interval"][1] - every["interval"][0] < 0.9 * (high - low)
    # As far as the released cells are off the cut's true value at least, which is not known to who asks.
    assert every["interval"][1] - every["unbiased"]["value"] > off[np.ix_(left, right)].sum()
    replays(analyst, id, tmp_path)


def _bounds(case: Case, words: JSON) -> tuple[float, float]:
    """What a query can be at all."""
    left, right = (case.weights(words, side, length) for side, length in zip(SIDES, case.cells.shape, strict=True))
    weights = np.outer(left, right)
    if case.spec["kind"] == "graph":
        np.fill_diagonal(weights, 0)  # no node has an edge to itself
    low, high = case.spec.get("lower", 0), case.spec.get("upper", 1)
    return (
        float(np.where(weights > 0, low * weights, high * weights).sum()),
        float(np.where(weights > 0, high * weights, low * weights).sum()),
    )


@pytest.mark.parametrize("kind", CASES)
def test_measurements_are_shown(exact: Service, kind: str) -> None:
    """Each with its values, as JSON and as a table, and the noise and price that the list has for it. Catches values
    in other units than the data's, and numbers of another measurement."""
    analyst, case, name = exact.principal("analyst"), CASES[kind], registered(exact, kind)
    id = opened(analyst, name, max_queries=12)["id"]
    query = case.cut(np.random.default_rng(2))
    ask(analyst, id, query)
    items = analyst.get(f"/v1/datasets/{name}/measurements").json()["items"]
    assert [item["strategy"]["type"] for item in items] == ["degrees", "query", "query"]
    rows, columns = case.cells.sum(axis=1), case.cells.sum(axis=0)
    sums = rows if case.pairs else np.concatenate([rows, columns])
    for item, truths in zip(items, (sums, [case.truth(EVERYTHING)], [case.truth(query)]), strict=True):
        address = f"/v1/datasets/{name}/measurements/{item['id']}"
        shown = analyst.get(address).json()
        assert {field: shown[field] for field in item} == item
        if item["strategy"]["type"] == "query":
            assert shown["values"] == pytest.approx(list(truths), abs=1e-9)
        deviation = item["noise"]["scale"] * (math.sqrt(2) if item["noise"]["kind"] == "laplace" else 1)
        assert shown["standard_error"] == pytest.approx(deviation, rel=0.01)
        reply = analyst.get(address, headers={"Accept": ARROW})
        assert reply.status_code == 200
        table = pa.ipc.open_stream(reply.content).read_all()
        assert table[table.column_names[-1]].to_pylist() == pytest.approx(list(truths), abs=1e-9)
    assert items[-1]["strategy"]["of"] == shown["query"]["type"]


#: What no such session takes, and what the refusal names.
OPENINGS: list[tuple[JSON, str, str]] = [
    ({"contract": True, "max_queries": 9}, "plan-infeasible", "use a construction (mw, fk, md)"),
    ({"max_updates": 5, "mechanism": {"construction": "evidence"}}, "plan-infeasible", "takes no max_updates"),
    ({"calibration": "jt2012", "mechanism": {"construction": "evidence"}}, "plan-infeasible", "leave both out"),
    ({"release": "race", "mechanism": {"construction": "evidence"}}, "plan-infeasible", "leave both out"),
    ({"within": -1}, "invalid-request", "within"),
    ({"epsilon": 2}, "budget-exhausted", ""),
    ({"mechanism": {"construction": "gaussian"}}, "invalid-request", "max_queries"),
    ({"mechanism": {"construction": "gaussian"}, "max_queries": 5, "start": "nothing"}, "invalid-request", "start"),
]
QUESTIONS: list[tuple[JSON, str, str]] = [
    ({"type": "sparse", "indices": [1, 200], "weights": [1, 1]}, "invalid-query", "gaussian or laplace"),
    ({"type": "cut", "left": [0], "right": [9], "unverified": True}, "invalid-request", "leave unverified out"),
    ({"type": "cut", "left": [0], "right": [60]}, "invalid-query", "right"),
    ({"type": "predicate", "where": {}}, "invalid-query", "does not fit"),
    ({"type": "degrees", "side": "left"}, "invalid-query", "leave it out"),
    ({"type": "cut", "left": [0], "right": [9], "within": 0}, "invalid-query", "within"),
    ({"type": "cut", "left": [0], "right": [9], "confidence": 1}, "invalid-query", "confidence"),
]


def test_what_is_refused_leaves_no_trace(exact: Service) -> None:
    """In words that name what serves, before anything is drawn or written. Catches an unforeseen error, and a refusal
    that costs something."""
    analyst, name = exact.principal("analyst"), registered(exact, "undirected")
    stored = exact.stored()
    for words, problem, says in OPENINGS:
        asked = {"dataset": name, "epsilon": 0.5, **words}
        assert says in str(refused(analyst.post("/v1/sessions", json=asked), problem)), words
        if problem != "budget-exhausted":
            assert says in str(refused(analyst.post("/v1/plans", json=asked), problem)), words
    assert exact.stored() == stored
    id = opened(analyst, name, max_queries=12)["id"]
    stored = exact.stored()
    path = f"/v1/sessions/{id}/queries"
    for words, problem, says in QUESTIONS:
        assert says in str(refused(analyst.post(path, json=words), problem)), words
    dense = npy(_graph(directed=False))
    reply = analyst.post(path, content=dense, headers={"Content-Type": "application/x-npy"})
    assert "gaussian or laplace" in refused(reply, "invalid-query")["detail"]
    assert "or release all cuts" in refused(analyst.get(f"/v1/sessions/{id}/hypothesis"), "invalid-request")["detail"]
    assert exact.stored() == stored


def test_degrees_where_all_edges_were_measured(exact: Service, tmp_path: Path) -> None:
    """Nothing is left to pay for a histogram of degrees with, and the edges say nothing of it that is stated: refused
    in words. Catches an answer out of nothing."""
    analyst, name = exact.principal("analyst"), registered(exact, "undirected")
    id = opened(analyst, name, epsilon=0.4, max_queries=30, mechanism={"construction": "histogram"})["id"]
    stored = exact.stored()
    problem = refused(analyst.post(f"/v1/sessions/{id}/queries", json={"type": "degrees"}), "plan-infeasible")
    assert "ask for degrees in another session" in problem["detail"]
    assert exact.stored() == stored
    replays(analyst, id, tmp_path)


@pytest.mark.parametrize("kind", ["directed", "undirected", "matrix"])
def test_little_to_pay_with(noisy: Service, tmp_path: Path, kind: str) -> None:
    """The whole of a small budget goes to degrees and the total, as pure noise; every cut is free then, and said to be
    the model's, but for the total, which is known; what is not told by that is refused. Catches a charge after the
    opening, and a data set that is taken for impure.
    """
    analyst, case = noisy.principal("analyst"), CASES[kind]
    name = registered(noisy, kind, budget={"epsilon": 0.1, "delta": 1e-9})
    session = opened(analyst, name, epsilon=0.1, max_queries=400)
    assert session["plan"]["mode"] == "sums"
    rng = np.random.default_rng(4)
    for query in [case.cut(rng) for _ in range(5)]:
        answer = ask(analyst, session["id"], query)
        assert (answer["source"], answer["interval_kind"], answer["charged_epsilon"]) == ("estimate", "model", 0)
    answer = ask(analyst, session["id"], EVERYTHING)
    assert (answer["interval_kind"], answer["charged_epsilon"]) == ("unbiased", 0)
    if kind != "matrix":
        degrees = {"type": "degrees"} | ({} if case.pairs else {"side": "out"})
        path = f"/v1/sessions/{session['id']}/queries"
        assert "another session" in refused(analyst.post(path, json=degrees), "plan-infeasible")["detail"]
    budget = noisy.admin.get(f"/v1/datasets/{name}").json()["budget"]
    assert budget["impure"] is False
    assert budget["pure"]["spent_epsilon"] == pytest.approx(0.1, rel=0.01)
    replays(analyst, session["id"], tmp_path)


def test_queries_run_out(exact: Service, tmp_path: Path) -> None:
    """Where their number was declared, and never where it was not. Catches a session that answers beyond its plan."""
    analyst, case, name = exact.principal("analyst"), CASES["bipartite"], registered(exact, "bipartite")
    rng = np.random.default_rng(2)
    id = opened(analyst, name, epsilon=0.3, max_queries=2)["id"]
    queries = [case.cut(rng) for _ in range(3)]
    assert [ask(analyst, id, query)["queries_left"] for query in queries[:2]] == [1, 0]
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=queries[2]), "queries-exhausted")
    assert ask(analyst, id, queries[0])["source"] == "cached"
    endless = opened(analyst, name, epsilon=0.3)
    assert (endless["queries_left"], endless["updates_left"]) == (None, None)
    assert ask(analyst, endless["id"], queries[2])["queries_left"] is None
    replays(analyst, id, tmp_path)
    replays(analyst, endless["id"], tmp_path)


@pytest.mark.parametrize("kind", CASES)
def test_plans(exact: Service, kind: str) -> None:
    """What is chosen, why, how it pays and how much a cut is expected to err, beside other mechanisms for the same
    task; it costs nothing. Catches a plan that a session does not have, and a comparison that evidence breaks."""
    analyst, name = exact.principal("analyst"), registered(exact, kind)
    stored = exact.stored()
    expected = []
    for mode in ("degrees", "histogram", "laplace"):
        words = MODES[mode][0]
        plan = analyst.post("/v1/plans", json={"dataset": name, **words}).json()
        assert plan["mode"] == MODES[mode][1]
        assert {"degrees": "degrees", "edges": "every cell", "laplace": "few questions"}[plan["mode"]] in plan["how"]
        assert plan["expected_standard_errors"]["cut"] > 0
        expected.append(plan["expected_standard_errors"]["cut"])
        assert (plan["why"] is None) == (mode == "histogram")
        assert plan["error_bound"] is None
        assert plan["independent_gaussian"]["sigma"] > 0
    assert expected[2] < expected[0]
    mechanisms = [{"construction": "evidence"}, {"construction": "histogram"}, {"construction": "gaussian"}]
    asked = {"dataset": name, "epsilon": 0.5, "max_queries": 20, "mechanisms": mechanisms}
    compared = analyst.post("/v1/plans", json=asked).json()
    assert [item["mechanism"]["construction"] for item in compared["plans"]] == ["evidence", "histogram", "gaussian"]
    assert all("plan" in item for item in compared["plans"])
    assert compared["advice"]
    assert exact.stored() == stored


def test_a_restart(tmp_path: Path) -> None:
    """On the same folder: what was asked is cached, what is new is answered as it would have been, and the transcript
    replays, in every mode and with questions of every kind before. Catches a state that the records do not tell."""
    folder, rng = tmp_path / "data", np.random.default_rng(2)
    sessions: list[tuple[str, Case, list[tuple[JSON, JSON]], list[JSON]]] = []
    with serving(folder, noise=Noise()) as service:
        for kind, mode in (
            ("undirected", "degrees"),
            ("matrix", "degrees"),
            ("weighted", "histogram"),
            ("bipartite", "laplace"),
        ):
            case, name = CASES[kind], registered(service, kind)
            words = MODES[mode][0]
            id = opened(service.admin, name, **words)["id"]
            asked = [case.cut(rng), case.rank_one(rng)]
            if mode == "degrees":
                half = {"a": list(range(10)), "b": list(range(10, 40))}
                asked += [{"type": "blocks", "left": half, "right": half}, {"type": "cut", "left": [0], "right": [1]}]
                asked += [{"type": "degrees"}] if case.pairs else []
            sessions.append((id, case, [(query, ask(service.admin, id, query)) for query in asked], [case.cut(rng)]))
    with serving(folder, noise=Noise()) as service:
        for id, case, told, new in sessions:
            for query, answer in told:
                again = ask(service.admin, id, query)
                assert (again["source"], again["charged_epsilon"]) == ("cached", 0)
                one = "values" if "values" in answer else "value"
                assert again[one] == answer[one]
                assert again["sequence"] > len(told)
            for query in new:
                answer = ask(service.admin, id, query)
                low, high = answer["interval"]
                assert low <= case.truth(query) <= high
                assert answer["source"] in ("measurement", "estimate")
            replays(service.admin, id, tmp_path)


@pytest.mark.parametrize("kind", CASES)
def test_a_dummy_session(noisy: Service, kind: str, tmp_path: Path) -> None:
    """Made-up records of the declaration alone: planned, asked and recorded as on the data, and nothing is spent of
    these. Catches a rehearsal that the data pays for."""
    analyst, name = noisy.principal("analyst"), registered(noisy, kind)
    session = opened(analyst, name, dummy=True, max_queries=12)
    assert session["dummy"] is True
    answer = ask(analyst, session["id"], CASES[kind].cut(np.random.default_rng(2)))
    assert answer["source"] == "measurement"
    assert listed(noisy, name) == []
    assert noisy.admin.get(f"/v1/datasets/{name}").json()["budget"]["spent_epsilon"] == 0
    assert replays(analyst, session["id"], tmp_path)["dummy"] is True


def test_a_node_as_the_unit(exact: Service, tmp_path: Path) -> None:
    """Questions are charged for all edges of a node, a histogram of degrees of its own side for the one node that
    moves, and of the other side for all of them. Catches a session that hides an edge where it promised a node."""
    analyst, m = exact.principal("analyst"), 50
    name = registered(exact, "bipartite", unit={"side": "left", "max_edges": m})
    id = opened(analyst, name, epsilon=0.9)["id"]
    case, answers = CASES["bipartite"], []
    assert_measured(exact, name, {case.truth(EVERYTHING)})
    assert_cost(exact, analyst, name, id, absolute=Fraction(m), squared=Fraction(m**2))
    query = {"type": "cut", "left": list(range(30)), "right": "all"}
    answers.append(ask(analyst, id, query | {"within": 500}))
    assert answers[0]["source"] == "measurement"
    assert_measured(exact, name, {case.truth(query)})
    assert answers[0]["unbiased"]["value"] == pytest.approx(case.truth(query), abs=1e-5)
    assert_price(exact, analyst, name, id, absolute=Fraction(m), squared=Fraction(m**2))
    for side, nodes in (("left", 1), ("right", 50)):
        answers.append(ask(analyst, id, {"type": "degrees", "side": side, "bins": [0, 8, 12], "within": 10**5}))
        assert_price(exact, analyst, name, id, absolute=Fraction(2 * nodes), squared=Fraction(2 * nodes**2))
    audited(exact, analyst, name, id, answers, tmp_path)
