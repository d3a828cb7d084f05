"""Replay of sessions on graphs and matrices: honest transcripts replay, and whoever changes one is found out.

Forged as in :mod:`tests.evidence.test_replay_of_evidence`: what was changed is named by its new hash and the whole
chain is sealed anew, so that the content alone can betray the forger.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Buy
from app.declarations.spec import parse_spec
from app.measurements.packing import packed_numbers, unpacked_numbers
from app.privacy.exactness import floor_to
from app.privacy.ledger import Account, Amounts
from app.spaces.dense import CountsTensor
from app.spaces.queries.registry import parse_query
from tests.audit.playing import PlayingGraphs, Told, judged, of_another
from tests.evidence.test_replay_of_evidence import paid
from tests.kit.forger import Document
from tests.kit.noise import Seeded
from tests.kit.replays import Replays

pytestmark = [pytest.mark.unit, pytest.mark.slow]

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
SPECS: dict[str, Document] = {
    "directed": {"kind": "graph", "nodes": 60, "directed": True},
    "undirected": {"kind": "graph", "nodes": 60},
    "matrix": {"kind": "matrix", "rows": 60, "columns": 60, "lower": -1, "upper": 2, "grid": 0.5},
}
MODES: dict[str, Document] = {
    "degrees": {"epsilon": 0.5, "max_queries": 20},
    "edges": {"epsilon": 0.5, "max_queries": 30, "mechanism": {"construction": "histogram"}},
    "laplace": {"epsilon": 1.0, "max_queries": 3},
}


def cells(kind: str) -> CountsTensor:
    """Of a graph a tenth; of a matrix all, in halves."""
    rng = np.random.default_rng(1)
    if kind == "matrix":
        return CountsTensor(rng.integers(-2, 5, (60, 60)))
    found = (rng.random((60, 60)) < 0.4).astype(np.int64)
    np.fill_diagonal(found, 0)
    return CountsTensor(found if kind == "directed" else np.triu(found, 1) + np.triu(found, 1).T)


class GraphPlayer(PlayingGraphs):
    """One session on a graph or a matrix."""

    def __init__(self, kind: str, known: tuple[bytes, ...] = (), seed: int = 0, **words: Any) -> None:
        spec = parse_spec({"name": "g", "budget": BUDGET, **SPECS[kind]})
        whole = Account(PublicDataset(spec).budget).whole if words.get("epsilon") == 1 else None
        self.drawn, self.cells = Seeded(np.random.default_rng(seed)), cells(kind)
        self.open(PublicDataset(spec, left=whole), {"dataset": "g", **words}, known)


def cut(rng: np.random.Generator) -> Document:
    left, right = (np.flatnonzero(rng.random(60) < 0.5).tolist() for _ in range(2))
    return {"type": "cut", "left": left, "right": right}


def played(kind: str, mode: str, known: tuple[bytes, ...] = (), seed: int = 0, **words: Any) -> GraphPlayer:
    """A session that was asked cuts, one that is too small to be measured, one twice, and many numbers at once."""
    player, rng = GraphPlayer(kind, known, seed, **(MODES[mode] | words)), np.random.default_rng(3)
    first = cut(rng)
    player.ask(first)
    player.ask(cut(rng))
    player.ask(first)
    if mode == "laplace":
        player.ask({"type": "rank_one", "left": [0.5] * 60, "right": [0.25] * 60})
        return player
    player.ask({"type": "cut", "left": [3], "right": [4]})
    sides: Document = {"left": {"a": list(range(30)), "b": list(range(30, 60))}}
    if kind == "matrix":
        sides["right"] = {"x": list(range(60))}
    player.ask({"type": "blocks", **sides})
    if mode == "degrees":
        player.ask(cut(rng), within=100.0)
        if kind != "matrix":
            player.ask({"type": "degrees", "bins": [0, 20], **({"side": "left"} if kind == "directed" else {})})
        player.forfeit(Amounts(Decimal("0.001")))
    for _ in range(4):
        player.ask(cut(rng))
    return player


@lru_cache
def honest(kind: str = "undirected", mode: str = "degrees") -> tuple[bytes, ...]:
    return tuple(played(kind, mode).transcript())


@lru_cache
def replays(kind: str = "undirected", mode: str = "degrees") -> Replays:
    return Replays(honest(kind, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SPECS)
def test_an_honest_session_replays(kind: str, mode: str) -> None:
    """In every mode. Catches a rule that an honest session breaks, and an amount that is summed wrongly."""
    lines = list(honest(kind, mode))
    verdict = judged(lines)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    documents = [json.loads(line) for line in lines]
    spent = sum(Decimal(d["cost"]["renyi"]) for d in documents if d["record"] == "measurement")
    spent += sum(Decimal(d["price"]["renyi"]) for d in documents if d["record"] == "forfeit")
    assert Decimal(verdict.summary["spent"]) == spent
    assert verdict.summary["cached_answers"] == 1
    sources = {d.get("source") for d in documents if d["record"] == "answer"}
    assert sources == {"degrees": {"cached", "estimate", "measurement"}, "edges": {"cached", "estimate"}}.get(
        mode, {"cached", "measurement"}
    )


@pytest.mark.parametrize("seed", range(4))
def test_honest_sessions_replay_whatever_the_noise(seed: int) -> None:
    """Catches decisions that hang on what is not recorded."""
    verdict = judged(played("directed", "degrees", seed=seed, epsilon=[0.05, 0.2, 0.9, 0.5][seed]).transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


@pytest.mark.parametrize("mode", ["degrees", "edges"])
def test_evidence_of_others_is_pinned(mode: str) -> None:
    """What another session measured stands in the file and is no cost of this one; without a line of it, or with two
    lines in each other's place, the file is none. Catches a replay that needs the other session."""
    others = of_another(honest("undirected", mode))
    player = GraphPlayer("undirected", others, 4, epsilon=0.1, max_queries=5)
    assert not player.session.purchases()
    player.ask(cut(np.random.default_rng(9)))
    lines = player.transcript()
    verdict = judged(lines)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert judged([line for line in lines if line != others[1]]).problem is not None
    lines[1], lines[2] = lines[2], lines[1]
    assert judged(lines).problem == "a measurement is not what the header names"


def test_a_restart_arrives_at_the_same_state() -> None:
    """A session that is told its records decides as the one that made them. Catches a state that the records do not
    tell, and an answer that is not taken note of."""
    player = played("undirected", "degrees")
    told = Told(player.session.opening)
    for line in player.lines[1:]:
        told.take(line)
    again = told.session
    assert (again.sequence, again.updates_used) == (player.session.sequence, player.session.updates_used)
    assert again.state.left == player.session.state.left
    rng = np.random.default_rng(11)
    for number in range(12):
        words = cut(rng) if number % 3 else {"type": "cut", "left": [number], "right": [number + 1, 50]}
        query = parse_query(words).compiled(again.dataset.space)
        one, other = again.consider(query), player.session.consider(query)
        assert type(one) is type(other)
        if isinstance(one, Buy) and isinstance(other, Buy):
            assert one.purchase == other.purchase
            assert _told(one.expected) == _told(other.expected)
        if isinstance(one, Answer) and isinstance(other, Answer):
            assert one.units.tolist() == other.units.tolist()


def _told(expected: tuple[Any, int] | None) -> tuple[list[int], int] | None:
    return None if expected is None else (expected[0].tolist(), expected[1])


# ---------------------------------------------------------------------------------------------- the forger


def free(documents: list[Document]) -> Document:
    return next(d for d in documents if d.get("source") == "estimate")


def single(documents: list[Document]) -> tuple[Document, Document]:
    """The first answer to a cut that was measured, and its measurement."""
    place = next(i for i, d in enumerate(documents) if "measurement" in d and d["record"] == "answer" and "value" in d)
    return documents[place], documents[place - 1]


def repacked(measured: Document, change: Callable[[Any], None]) -> None:
    """Released values, changed."""
    told = measured["measurement"]
    units = unpacked_numbers(told["values"], told["asked"]["numbers"] if "asked" in told else 60).copy()
    change(units)
    told["values"] = packed_numbers(units)


def added(number: int) -> Callable[[Any], None]:
    def change(units: Any) -> None:
        units[0] += number

    return change


def change_value(documents: list[Document]) -> None:
    repacked(single(documents)[1], added(400 << 20))


def change_degree(documents: list[Document]) -> None:
    repacked(documents[1], added(2000))


def smaller_noise(documents: list[Document]) -> None:
    measured = single(documents)[1]["measurement"]["noise"]
    measured["scale"] = str(Decimal(measured["scale"]) * Decimal("0.7"))


def smaller_noise_of_degrees(documents: list[Document]) -> None:
    noise = documents[1]["measurement"]["noise"]
    noise["scale"] = str(Decimal(noise["scale"]) * Decimal("0.7"))


def other_law(documents: list[Document]) -> None:
    single(documents)[1]["measurement"]["noise"]["kind"] = "laplace"


def lower_cost(documents: list[Document]) -> None:
    single(documents)[1]["cost"]["renyi"] = "1E-24"


def lower_cost_of_degrees(documents: list[Document]) -> None:
    cost = documents[1]["cost"]
    cost["renyi"] = str(Decimal(cost["renyi"]) - Decimal("1e-24"))


def cheap_degrees(documents: list[Document]) -> None:
    """A histogram of degrees at the price of a sum."""
    many = [d for d in documents if "asked" in d.get("measurement", {})]
    (measured,) = [d for d in many if d["measurement"]["asked"]["query"]["type"] == "degrees"]
    measured["cost"]["renyi"] = str(floor_to(Fraction(measured["cost"]["renyi"]) / 2))


def expected_more(documents: list[Document]) -> None:
    single(documents)[1]["expected"]["values"][0] += 500 << 20


def expected_better(documents: list[Document]) -> None:
    single(documents)[1]["expected"]["standard_error"] //= 2


def expected_nothing(documents: list[Document]) -> None:
    single(documents)[1]["expected"] = None


def other_question(documents: list[Document]) -> None:
    """What was measured is another cut than was asked."""
    first, second = (d for d in documents if "asked" in d.get("measurement", {}) and d["sequence"] in (1, 2))
    first["measurement"]["asked"] = copy.deepcopy(second["measurement"]["asked"])


def one_more_number(documents: list[Document]) -> None:
    single(documents)[1]["measurement"]["asked"]["numbers"] = 2


def no_opening(documents: list[Document]) -> None:
    documents[0]["evidence"]["made"].clear()
    del documents[1:3]


def twice_at_the_opening(documents: list[Document]) -> None:
    documents[3:3] = copy.deepcopy(documents[1:3])
    documents[0]["evidence"]["made"] *= 2


def no_total(documents: list[Document]) -> None:
    """The sum of all cells, which stands behind the degrees, was never measured."""
    documents[0]["evidence"]["made"].pop()
    del documents[2]


def no_degrees(documents: list[Document]) -> None:
    del documents[0]["evidence"]["made"][0], documents[1]


def total_twice(documents: list[Document]) -> None:
    documents.insert(3, copy.deepcopy(documents[2]))
    made = documents[0]["evidence"]["made"]
    made.append(made[1])


def total_for_degrees(documents: list[Document]) -> None:
    """Twice, and no degrees."""
    documents[1] = copy.deepcopy(documents[2])
    made = documents[0]["evidence"]["made"]
    made[0] = made[1]


def total_before_degrees(documents: list[Document]) -> None:
    documents[1], documents[2] = documents[2], documents[1]
    documents[0]["evidence"]["made"].reverse()


def total_of_less(documents: list[Document]) -> None:
    """What was measured at the opening is a cut that was asked for later."""
    documents[2]["measurement"]["asked"] = copy.deepcopy(single(documents)[1]["measurement"]["asked"])


def change_total(documents: list[Document]) -> None:
    repacked(documents[2], added(4000 << 20))


def smaller_noise_of_total(documents: list[Document]) -> None:
    noise = documents[2]["measurement"]["noise"]
    noise["scale"] = str(Decimal(noise["scale"]) * Decimal("0.7"))


def lower_cost_of_total(documents: list[Document]) -> None:
    cost = documents[2]["cost"]
    cost["renyi"] = str(Decimal(cost["renyi"]) - Decimal("1e-24"))


def dropped(documents: list[Document]) -> None:
    documents.remove(single(documents)[1])


def doubled(documents: list[Document]) -> None:
    place = documents.index(single(documents)[1])
    documents.insert(place, copy.deepcopy(documents[place]))


def reordered(documents: list[Document]) -> None:
    """Two measurements in each other's place, each named by the entry behind it."""
    first, second = (
        i for i, d in enumerate(documents) if "asked" in d.get("measurement", {}) and d["sequence"] in (1, 2)
    )
    documents[first], documents[second] = documents[second], documents[first]


def estimate_moved(documents: list[Document]) -> None:
    free(documents)["value"] += 40.0


def answer_moved(documents: list[Document]) -> None:
    single(documents)[0]["value"] += 40.0


def many_moved(documents: list[Document]) -> None:
    answer = next(d for d in documents if d["record"] == "answer" and "values" in d)
    answer["values"][0] += 40.0


def cached_moved(documents: list[Document]) -> None:
    next(d for d in documents if d.get("source") == "cached")["value"] += 1.0


def paid_as_free(documents: list[Document]) -> None:
    answer, measured = single(documents)
    documents.remove(measured)
    del answer["measurement"]
    answer["source"] = "estimate"
    documents[-1]["updates"] -= 1


def measured_for_nothing(documents: list[Document]) -> None:
    documents.insert(len(documents) - 1, copy.deepcopy(paid(documents)[1]))


def forfeit_for_free(documents: list[Document]) -> None:
    del next(d for d in documents if d["record"] == "forfeit")["price"]


def forfeit_of_everything(documents: list[Document]) -> None:
    next(d for d in documents if d["record"] == "forfeit")["price"]["renyi"] = "0.900000000000000000000000"


def other_mode(documents: list[Document]) -> None:
    documents[0]["plan"]["mode"] = "edges"


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (change_value, "follow"),
        (change_degree, "follow"),
        (smaller_noise, "not the one that was due"),
        (smaller_noise_of_degrees, "not the one that was due"),
        (other_law, "not the one that was due"),
        (lower_cost, "cost is not that of its noise"),
        (lower_cost_of_degrees, "not the one that was due"),
        (cheap_degrees, "cost is not that of its noise"),
        (expected_more, "expected does not follow"),
        (expected_better, "expected does not follow"),
        (expected_nothing, "expected is not told"),
        (other_question, "not the one that was due"),
        (one_more_number, "none that this data set has"),
        (no_opening, "did not measure what was due"),
        (twice_at_the_opening, "named twice"),
        (no_total, "did not measure what was due"),
        (no_degrees, "not the one that was due"),
        (total_twice, "named twice"),
        (total_for_degrees, "named twice"),
        (total_before_degrees, "not the one that was due"),
        (total_of_less, "not the one that was due"),
        (change_total, "follow"),
        (smaller_noise_of_total, "not the one that was due"),
        (lower_cost_of_total, "not the one that was due"),
        (dropped, "not the one that it names"),
        (doubled, "stands where none is due"),
        (reordered, "another session or entry"),
        (estimate_moved, "does not follow"),
        (answer_moved, "does not follow"),
        (many_moved, "does not follow"),
        (cached_moved, "not the one that was due"),
        (paid_as_free, "source that it cannot have"),
        (measured_for_nothing, "another session or entry"),
        (forfeit_for_free, "has a price"),
        (forfeit_of_everything, "passes what the session holds"),
        (other_mode, "plan does not follow"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_forgery_is_found_out(forge: Callable[[list[Document]], None], problem: str) -> None:
    """Each would catch the rule that is broken by it, were that missing."""
    documents = replays().documents()
    forge(documents)
    verdict = replays().forged(documents)
    assert not verdict.ok
    assert problem in (verdict.problem or ""), verdict.problem


def edges_of(documents: list[Document]) -> Document:
    return next(d for d in documents if "edges" in d.get("measurement", {}))


def other_edges(documents: list[Document]) -> None:
    """None at all."""
    released = edges_of(documents)["measurement"]
    given = released["values"]
    released["values"] = given[len(given.rstrip("=")) :].rjust(len(given), "A")


def fewer_flips(documents: list[Document]) -> None:
    edges_of(documents)["measurement"]["noise"]["flips"] -= 1


def edges_for_less(documents: list[Document]) -> None:
    cost = edges_of(documents)["cost"]
    cost["renyi"] = str(Decimal(cost["renyi"]) - Decimal("1e-24"))


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (other_edges, "does not follow"),
        (fewer_flips, "not the one that was due"),
        (edges_for_less, "not the one that was due"),
        (estimate_moved, "does not follow"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_forged_edges_are_found(forge: Callable[[list[Document]], None], problem: str) -> None:
    """Of a session that measured all edges. Catches an audit that takes their noise or price from the record, and
    answers that follow from nothing."""
    known = replays("undirected", "edges")
    documents = known.documents()
    forge(documents)
    verdict = known.forged(documents)
    assert not verdict.ok
    assert problem in (verdict.problem or ""), verdict.problem
