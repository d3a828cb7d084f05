"""Replay of evidence sessions: honest transcripts replay, and whoever changes one and seals it anew is found out.

The sessions are played in memory by hand: measured at the opening, asked, measured again, with injected noise. The
forger rewrites what he likes, names it by its new hash, and seals the chain; only the content can betray him.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import rfc8785

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.contract import ContractMechanism
from app.curator.mechanisms.protocol import Answer, Buy, Measured, Units
from app.curator.mechanisms.recorded import RecordedMechanism
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.measurements.strategy import Strategy
from app.policies.table import Wanted
from app.privacy.ledger import NOTHING, Amounts
from app.releases.factorization import Paying, Ranges, for_marginals
from app.spaces.partition import Marginal
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.records import RecordsTensor
from tests.audit.playing import OTHER, Playing, Told, judged, of_another
from tests.kit.forger import Document, sha256
from tests.kit.noise import Seeded
from tests.kit.replays import Replays

#: Each plays and replays a session of some thirty fits.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

SIZES = {"a": 4, "b": 3, "c": 6, "d": 2, "e": 5, "f": 2, "g": 3, "h": 4}
SPEC: Document = {
    "name": "survey",
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}


def records_of(seed: int, number: int = 5_000) -> RecordsTensor:
    """Records whose attributes hang together."""
    rng = np.random.default_rng(seed)
    latent = rng.random(number)
    columns = [
        (np.clip(latent + rng.normal(0, 0.3, number), 0, 0.99) * size).astype(np.uint8) for size in SIZES.values()
    ]
    return RecordsTensor(columns, tuple(SIZES.values()))


class Player(Playing):
    """One session on a table."""

    def __init__(
        self,
        known: tuple[bytes, ...] = (),
        seed: int = 0,
        spec: Document = SPEC,
        data: RecordsTensor | None = None,
        **words: Any,
    ) -> None:
        self.rng, self.data = np.random.default_rng(seed), records_of(7) if data is None else data
        dataset = PublicDataset(parse_spec(spec), left=words.pop("left", None), records=words.pop("records", None))
        self.open(dataset, {"dataset": spec["name"], "epsilon": 0.5, "max_queries": 27} | words, known)

    def at_opening(self, session: Session) -> Iterator[Measured]:
        for buy in session.purchases():
            yield Measured(Measurement(buy.strategy, buy.noise, self.released(buy)), buy.price)

    def drawn_for(self, query: Query, due: Buy) -> Units:
        return self.released(due.purchase)

    def released(self, buy: Purchase[Strategy]) -> Any:
        """With noise from the player's generator."""
        return buy.strategy.released(buy.strategy.exact(None, self.data), buy.noise, Seeded(self.rng))


def predicate(rng: np.random.Generator) -> Document:
    names = rng.choice(list(SIZES), 2, replace=False).tolist()
    where = {name: {"in": sorted({int(v) for v in rng.integers(0, SIZES[name], 2)})} for name in names}
    return {"type": "predicate", "where": where}


def played(number: int = 24, **words: Any) -> Player:
    """A session that was asked predicates and two marginals, one of them twice, and lost a round."""
    player, rng = Player(**words), np.random.default_rng(3)
    for place in range(number):
        player.ask(predicate(rng))
        if place == 3:
            player.ask({"type": "marginal", "attributes": ["a", "b", "c"]})
        if place == 5:
            counts, order = TableStrategy.of(Marginal.of((3,), {})), player.session.plan.order
            player.forfeit(Purchase.at(counts, Noise("gaussian", Decimal(200), 0), Adjacency(1), order).price)
        if place == 7:
            player.ask({"type": "marginal", "attributes": ["c", "a"], "where": {"d": 1}})
            player.ask({"type": "marginal", "attributes": ["a", "c"], "where": {"d": 1}})
    return player


def test_an_honest_session_replays() -> None:
    """With measurements at the opening and behind answers, a forfeit, cached answers, and estimates. Catches a rule
    that an honest session breaks, and an amount that is summed wrongly."""
    player = played()
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    documents = [json.loads(line) for line in player.lines]
    spent = sum(Decimal(d["cost"]["renyi"]) for d in documents if d["record"] == "measurement")
    spent += sum(Decimal(d["price"]["renyi"]) for d in documents if d["record"] == "forfeit")
    assert Decimal(verdict.summary["spent"]) == spent
    assert verdict.summary["cached_answers"] >= 1
    assert verdict.summary["estimate_answers"] >= 1
    assert verdict.summary["measurement_answers"] > 1


@pytest.mark.parametrize("questions", [1, 3])
def test_pure_sessions_replay(questions: int) -> None:
    """Few questions of all of an untouched budget are measured with pure noise, whose epsilons add up to no more than
    the session's. Catches noise of the other sum."""
    player = Player(epsilon=1.0, max_queries=questions, left=Amounts(Decimal("0.4"), Decimal(1)))
    assert player.session.plan.regime == "pure"
    rng = np.random.default_rng(5)
    for _ in range(questions):
        player.ask(predicate(rng))
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    costs = [json.loads(line)["cost"]["pure"] for line in player.lines if b'"record":"measurement"' in line]
    assert 0.99 < sum(map(Decimal, costs)) <= 1


def test_numbers_of_which_a_float_loses_digits_replay() -> None:
    """A sum of large weights with much noise passes 2^53, which RFC 8785 has no integers for. Catches a replay that
    writes measurements otherwise than the service did."""
    sums = TableStrategy((Part(Marginal.of(tuple(SIZES.values()), {}), moment=Moment(2, SIZES["c"], 1)),))
    far = Measurement(sums, Noise("gaussian", Decimal(10**17), 0), np.array([-(10**17) - 1]))
    player = Player(known=(Player.record(Measured(far, NOTHING), 1, OTHER),), max_queries=3)
    player.ask(predicate(np.random.default_rng(5)))
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_evidence_of_others_is_pinned() -> None:
    """What another session measured stands in the file, is no cost of this one, and answers. Catches a replay that
    needs the other session."""
    others = of_another(played().lines)
    player = Player(known=others, seed=4, epsilon=0.1, max_queries=5)
    rng = np.random.default_rng(3)
    answer = player.ask(predicate(rng))
    assert answer.source == "estimate"
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    without = [line for line in player.transcript() if line != others[2]]
    assert judged(without).problem == "a measurement is not what the header names"


@pytest.mark.parametrize(
    ("forged", "problem"),
    [
        ({"session": "e1d2"}, "the session names a measurement of its own as known"),
        ({"session": None}, "a measurement that was known is of no session's entry"),
        ({"session": "no name/"}, "a measurement that was known is of no session's entry"),
        ({"sequence": True}, "a measurement that was known is of no session's entry"),
        ({"sequence": -1}, "a measurement that was known is of no session's entry"),
        ({"recorded_at": "2026-01-01T00:00:01Z"}, "a measurement that was known is younger than the session"),
    ],
    ids=["its own", "nobody's", "no name", "truth", "below none", "younger"],
)
def test_what_was_known_was_measured_by_others_before(forged: Document, problem: str) -> None:
    """Its own would be free, whatever its noise; a younger one shows that the session was written afterwards."""
    known = [json.loads(line) | forged for line in of_another(played().lines)]
    player = Player(known=tuple(map(rfc8785.dumps, known)), seed=4, epsilon=0, max_queries=5)
    player.ask({"type": "marginal", "attributes": ["a", "b", "c"]})
    assert judged(player.transcript()).problem == problem


def test_what_was_measured_once_counts_once() -> None:
    """Would catch intervals that are half as wide as they should be, of four copies of one record."""
    others = of_another(played().lines)
    player = Player(known=others * 4, seed=4, epsilon=0, max_queries=5)
    player.ask({"type": "marginal", "attributes": ["a", "b", "c"]})
    assert judged(player.transcript()).problem == "the header describes no session: a measurement is named twice"


def test_who_starts_from_nothing_names_nothing() -> None:
    player = Player(known=of_another(played().lines), start="nothing")
    player.ask(predicate(np.random.default_rng(3)))
    assert judged(player.transcript()).problem == "a session that starts from nothing names what it starts from"


def test_a_round_that_was_lost_was_paid() -> None:
    player = Player()
    player.ask(predicate(np.random.default_rng(3)))
    player.forfeit(NOTHING)
    verdict = judged(player.transcript())
    assert (verdict.problem, verdict.sequence) == ("a round that was begun costs nothing", 2)


@pytest.mark.parametrize(("off", "follows"), [("0", True), ("-1e-24", False), ("1e-24", False)])
def test_a_round_of_a_contract_that_was_lost_cost_what_all_cost(off: str, follows: bool) -> None:
    player = Player(contract=True, epsilon=1.0)
    mechanism = player.session.mechanism
    assert isinstance(mechanism, ContractMechanism)
    player.forfeit(Amounts(mechanism.price.renyi + Decimal(off)))
    verdict = judged(player.transcript())
    assert verdict.problem == (None if follows else "a forfeit has another price than the plan's")


class Greedy(Player):
    """It measures at its opening what was due, and the first of that once more, with other noise."""

    def at_opening(self, session: Session) -> Iterator[Measured]:
        made = list(super().at_opening(session))
        again = replace(made[0].measurement, units=made[0].measurement.units + 1)
        yield from [*made, replace(made[0], measurement=again)]


def test_no_more_is_measured_at_the_opening_than_was_due() -> None:
    assert judged(Greedy().transcript()).problem == "the session measured more at its opening than was due"


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", ["1e19", "1e160", "1e300"])
def test_noise_that_nobody_draws_is_refused(kind: str, scale: str) -> None:
    """Would catch an auditor that divides by nothing, and says nothing of any record."""
    (first, *rest) = (json.loads(line) for line in of_another(played().lines))
    first["measurement"]["noise"] |= {"kind": kind, "scale": format(Decimal(scale), "f")}
    document = rfc8785.dumps(first)
    honest = Player(known=tuple(map(rfc8785.dumps, rest)), seed=4, epsilon=0, max_queries=5).transcript()
    header = json.loads(honest[0])
    header["evidence"]["known"].insert(0, sha256(document))
    assert judged([rfc8785.dumps(header), document, *honest[1:]]).problem == "a measurement cannot be read"


def test_a_session_without_a_share_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers what others measured, and refuses what only a model tells. Catches a guess in its transcript, and a
    plan that says another share than none."""
    others = of_another(played().lines)
    player, guessed = Player(known=others, epsilon=0), {"type": "marginal", "attributes": [*SIZES]}
    answer = player.ask({"type": "marginal", "attributes": ["a", "b", "c"]})
    assert answer.source == "estimate"
    with pytest.raises(PlanInfeasible, match="buys nothing"):
        player.ask(guessed)
    honest = player.transcript()
    verdict = judged(honest)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert (player.session.plan.holds, player.session.plan.epsilon_alone) == (NOTHING, 0)
    with monkeypatch.context() as patch:
        patch.setattr(RecordedMechanism, "_unbought", staticmethod(lambda answer, plan: answer))
        player.ask(guessed)
    verdict = judged(player.transcript())
    assert (verdict.ok, verdict.sequence) == (False, 2)
    header = json.loads(honest[0])
    header["plan"]["reserved"] = "0.1"
    assert not judged([rfc8785.dumps(header) + b"\n", *honest[1:]]).ok


def test_contrasts_and_rows_of_others_are_pinned() -> None:
    """A session begins with contrasts of two attributes and with rows over two others that a release has measured: it
    answers from them, and its file replays. Catches parts that a record does not carry, or a replay that knows counts
    alone; a changed weight is another record."""
    data, sizes, paying = records_of(7), tuple(SIZES.values()), Paying("gaussian", Decimal(2), Decimal(20))
    pair = Marginal.of(sizes, {1: None, 2: None})
    ranges = Ranges(15).rows
    assert ranges is not None
    strategy = TableStrategy((Part(Marginal.of(sizes, {4: None, 6: None}), rows=ranges),))
    rows = Wanted(strategy, Noise("gaussian", Decimal("9.5"), 0))
    known, rng = [], np.random.default_rng(5)
    for buy in (*for_marginals({pair: 1.0}, paying, public_total=False).buys, rows):
        exact = buy.strategy.exact(None, data)
        units = exact + np.rint(rng.normal(0, float(buy.noise.scale), len(exact))).astype(np.int64)
        known.append(Player.record(Measured(Measurement(buy.strategy, buy.noise, units), NOTHING), 1, OTHER))
    player = Player(known=tuple(known), seed=4, max_queries=9)
    asked = {"type": "predicate", "where": {"b": {"in": [0, 1]}, "c": {"in": [2, 3]}}}
    answer = player.ask(asked)
    truth = int((np.isin(data.columns[1], [0, 1]) & np.isin(data.columns[2], [2, 3])).sum())
    assert answer.source == "estimate"
    assert answer.accuracy is not None
    low, high = float(answer.accuracy.lows[0]), float(answer.accuracy.highs[0])
    assert low - 100 < truth < high + 100
    for query in (
        {"type": "predicate", "where": {"e": {"in": [0, 1]}, "g": {"in": [1]}}},
        {"type": "predicate", "where": {"e": {"in": [3]}}},
        predicate(rng),
    ):
        player.ask(query)
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    document = json.loads(known[-1])
    weights = document["measurement"]["strategy"][0]["rows"]["weights"]
    weights["values"] = weights["values"].replace("AQ", "Ag", 1)
    lines = [rfc8785.dumps(document) if line == known[-1] else line for line in player.transcript()]
    assert lines != player.transcript()
    assert judged(lines).problem == "a measurement is not what the header names"


def test_a_restart_arrives_at_the_same_state() -> None:
    """A session that is told its records decides as the one that made them. Catches a state that the records do not
    tell."""
    player = played()
    told = Told(player.session.opening)
    for line in player.lines[1:]:
        told.take(line)
    again = told.session
    assert (again.sequence, again.updates_used) == (player.session.sequence, player.session.updates_used)
    assert again.state.left == player.session.state.left
    rng = np.random.default_rng(11)
    for _ in range(10):
        query = parse_query(predicate(rng)).compiled(again.dataset.space)
        one, other = again.consider(query), player.session.consider(query)
        assert type(one) is type(other)
        if isinstance(one, Buy) and isinstance(other, Buy):
            assert one.purchase == other.purchase
        if isinstance(one, Answer) and isinstance(other, Answer):
            assert np.abs(one.units - other.units).max() < 1 << 10


# ---------------------------------------------------------------------------------------------- the forger


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played().transcript())


def paid(documents: list[Document]) -> tuple[Document, Document]:
    """The last answer that was measured for, and its measurement."""
    place = max(i for i, d in enumerate(documents) if "measurement" in d and d["record"] == "answer")
    return documents[place], documents[place - 1]


def free(documents: list[Document]) -> Document:
    return next(d for d in reversed(documents) if d.get("source") == "estimate" and "value" in d)


def change_value(documents: list[Document]) -> None:
    paid(documents)[1]["measurement"]["values"][0] += 400


def change_opening_value(documents: list[Document]) -> None:
    documents[1]["measurement"]["values"][0] += 2000


def smaller_noise(documents: list[Document]) -> None:
    """Less noise than was paid for."""
    paid(documents)[1]["measurement"]["noise"]["scale"] = "3"


def lower_cost(documents: list[Document]) -> None:
    paid(documents)[1]["cost"]["renyi"] = "1E-24"


def other_noise(documents: list[Document]) -> None:
    documents[1]["measurement"]["noise"]["scale"] = "2"


def no_opening(documents: list[Document]) -> None:
    made = documents[0]["evidence"]["made"]
    del documents[1 : 1 + len(made)]
    made.clear()


def one_less_at_the_opening(documents: list[Document]) -> None:
    documents[0]["evidence"]["made"].pop(0)
    del documents[1]


def estimate_moved(documents: list[Document]) -> None:
    free(documents)["value"] += 40.0


def answer_moved(documents: list[Document]) -> None:
    answer, _ = paid(documents)
    if "value" in answer:
        answer["value"] += 40.0
    else:
        answer["values"][0] += 40.0


def paid_as_free(documents: list[Document]) -> None:
    answer, measured = paid(documents)
    documents.remove(measured)
    del answer["measurement"]
    answer["source"] = "estimate"
    documents[-1]["updates"] -= 1


def measured_for_nothing(documents: list[Document]) -> None:
    """A measurement stands there that no entry names."""
    _, measured = paid(documents)
    documents.insert(len(documents) - 1, copy.deepcopy(measured))


def expected_more(documents: list[Document]) -> None:
    paid(documents)[1]["expected"]["values"][0] += 500 << 20


def forfeit_for_free(documents: list[Document]) -> None:
    forfeit = next(d for d in documents if d["record"] == "forfeit")
    del forfeit["price"]


def forfeit_of_everything(documents: list[Document]) -> None:
    forfeit = next(d for d in documents if d["record"] == "forfeit")
    forfeit["price"]["renyi"] = "0.400000000000000000000000"


def cached_moved(documents: list[Document]) -> None:
    cached = next(d for d in documents if d.get("source") == "cached")
    cached["values"][0] += 1.0


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (change_value, "does not follow"),
        (change_opening_value, "follow"),
        (smaller_noise, "not the one that was due"),
        (lower_cost, "cost is not that of its noise"),
        (other_noise, "not the one that was due"),
        (no_opening, "did not measure what was due"),
        (one_less_at_the_opening, "not the one that was due"),
        (estimate_moved, "does not follow"),
        (answer_moved, "does not follow"),
        (paid_as_free, "source that it cannot have"),
        (measured_for_nothing, "of another session or entry"),
        (expected_more, "expected does not follow"),
        (forfeit_for_free, "has a price"),
        (forfeit_of_everything, "passes what the session holds"),
        (cached_moved, "not the one that was due"),
    ],
)
def test_a_forgery_is_found_out(honest: Replays, forge: Callable[[list[Document]], None], problem: str) -> None:
    """Each would catch the rule that is broken by it, were that missing."""
    documents = honest.documents()
    forge(documents)
    verdict = honest.forged(documents)
    assert not verdict.ok
    assert problem in (verdict.problem or ""), verdict.problem


def test_a_flipped_bit_is_found(honest: Replays) -> None:
    """In any line. Catches a measurement that no hash covers."""
    rng = np.random.default_rng(1)
    lines = honest.honest
    for place in rng.choice(len(lines), 30).tolist():
        line = bytearray(lines[place])
        at = int(rng.integers(len(line)))
        line[at] ^= 1 << int(rng.integers(7))
        assert not honest.verdict([*lines[:place], bytes(line), *lines[place + 1 :]]).ok
