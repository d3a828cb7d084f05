"""Replay of sums, means, variances and quantiles: honest transcripts replay, and whoever changes one is found out.

Played and forged as in :mod:`tests.evidence.test_replay_of_evidence`: every hash agrees, and the content alone can
betray the forger.
"""

from __future__ import annotations

import base64
import copy
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import mpmath
import numpy as np
import pytest

from app.curator.errors import PlanInfeasible
from app.privacy.ledger import Amounts
from app.spaces.records import RecordsTensor
from tests.audit.playing import judged, of_another
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document, resealed
from tests.kit.replays import Replays

#: Each plays and replays sessions of many fits.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

SPEC: Document = {
    "name": "incomes",
    "kind": "table",
    "attributes": [
        {"name": "sex", "size": 2},
        {"name": "age", "lower": 15, "upper": 95, "grid": 1, "bins": 16},
        {"name": "region", "size": 9},
        {"name": "income", "lower": 0, "upper": 50_000, "grid": 100, "bins": 20, "missing": True},
        {"name": "job", "size": 6},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
SIZES = (2, 81, 9, 502, 6)
PERSONS = SPEC | {"unit": {"column": "who", "max_records": 3}}
MEAN = {"type": "mean", "of": "income", "group_by": ["sex"]}
MEDIAN = {"type": "quantile", "of": "age", "q": [0.25, 0.5], "where": {"sex": 1}}
#: Nobody has the last job.
NOBODY = {"type": "mean", "of": "income", "where": {"job": 5, "region": 8}}
QUESTIONS: list[Document] = [
    {"type": "mean", "of": "income"},
    {"type": "sum", "of": "age", "where": {"region": [1, 2]}},
    {"type": "predicate", "where": {"income": {"lt": 10_000}, "sex": 0}},
    {"type": "variance", "of": "age"},
    NOBODY,
    MEDIAN,
    {"type": "mean", "of": "income"},
    {"type": "quantile", "of": "income", "q": 0.9, "group_by": ["sex"]},
    {"type": "sum", "of": "income", "where": {"age": {"ge": 30, "lt": 50}}},
    {"type": "mean", "of": "age", "where": {"any": [{"sex": 1}, {"region": [0, 3]}]}},
    {"type": "variance", "of": "income", "group_by": ["sex"]},
    {"type": "sum", "of": "income", "where": {"sex": 1, "all": [{"sex": 0}]}},
    MEAN,
]


def people(number: int = 20_000) -> RecordsTensor:
    """Records of five attributes; a tenth of them has no income, and nobody the last job."""
    rng = np.random.default_rng(8)
    sex, region = rng.integers(0, 2, number), rng.integers(0, 9, number)
    age = np.clip(rng.normal(30 + 5 * sex, 17, number), 0, 80).astype(np.uint8)
    income = np.clip(rng.lognormal(5.0 + 0.3 * sex, 0.7, number), 0, 500).astype(np.uint16)
    income[rng.random(number) < 0.1] = 501
    job = rng.integers(0, 5, number)
    return RecordsTensor([sex.astype(np.uint8), age, region.astype(np.uint8), income, job.astype(np.uint8)], SIZES)


DATA = people()


def played(questions: list[Document] = QUESTIONS, **words: Any) -> Player:
    """A session that was asked these."""
    player = Player(**({"spec": SPEC, "data": DATA, "max_queries": 14} | words))
    for question in questions:
        player.ask(question)
    return player


def own(player: Player) -> list[Document]:
    """What the session measured, by entry."""
    return [json.loads(line) for line in player.lines if b'"record":"measurement"' in line]


def replays(player: Player, *, cached: int, nobody: int, bought: int) -> None:
    """An honest session replays, and what is spent is what its measurements cost; of its answers so many are cached,
    and so many have no value; so many measurements were for questions, at least."""
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert Decimal(verdict.summary["spent"]) == sum(Decimal(m["cost"]["renyi"]) for m in own(player))
    assert verdict.summary["cached_answers"] == cached
    answers = [json.loads(line) for line in player.lines if b'"record":"answer"' in line]
    assert sum(a.get("value", 0) is None for a in answers) == nobody
    assert len([m for m in own(player) if m["sequence"]]) >= bought


def replays_in_any_order(questions: list[Document], seed: int) -> None:
    """Questions in another order and other noise."""
    order = np.random.default_rng(seed).permutation(len(questions))
    verdict = judged(played([questions[k] for k in order], seed=seed, epsilon=[0.05, 0.2, 1.0][seed % 3]).transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_an_honest_session_replays() -> None:
    """With moments and ranges that were measured, free answers, a cached one, one that nobody can give, and what costs
    nothing. Catches a rule that an honest session breaks, and a cost that is not what was spent."""
    player = played()
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert Decimal(verdict.summary["spent"]) == sum(Decimal(m["cost"]["renyi"]) for m in own(player))
    assert verdict.summary["cached_answers"] == 1
    moments = [m for m in own(player) if "strategy" in m["measurement"]]
    powers = {p["moment"]["power"] for m in moments for p in m["measurement"]["strategy"] if p["moment"] is not None}
    assert powers == {1, 2}
    answers = [json.loads(line) for line in player.lines if b'"record":"answer"' in line]
    assert any(a.get("value", 0) is None for a in answers)


@pytest.mark.parametrize("seed", range(6))
def test_honest_sessions_replay_whatever_the_noise(seed: int) -> None:
    """Questions in another order and other noise each time. Catches decisions that hang on what is not recorded."""
    replays_in_any_order(QUESTIONS, seed)


def test_persons_are_paid_for_with_all_of_their_records() -> None:
    """Of the same noise a session whose unit is a person states a larger price, by the square of the records where it
    is Gaussian. Catches a price of one record; and the cheaper price is found in a replay."""
    player = played(spec=PERSONS)
    replays = Replays(player.transcript())
    order = Decimal(player.session.plan.order)
    paid = 0
    for place, line in enumerate(player.lines):
        document = json.loads(line)
        if document["record"] != "measurement" or "strategy" not in document["measurement"]:
            continue
        told = document["measurement"]
        assert told["noise"]["kind"] == "gaussian"
        squared = sum((3 * part["multiplier"]) ** 2 * squares(part) for part in told["strategy"])
        due = order * squared / (2 * Decimal(told["noise"]["scale"]) ** 2)
        assert 0 <= Decimal(document["cost"]["renyi"]) - due < Decimal("2e-24")
        documents = replays.documents()
        cheaper = (Decimal(document["cost"]["renyi"]) / 9).quantize(Decimal("1e-24"))
        documents[place]["cost"]["renyi"] = str(cheaper)
        assert replays.forged(documents).problem == "the measurement's cost is not that of its noise"
        paid += 1
    assert paid >= 3


def squares(part: Document) -> int:
    """The sum of squares that one record moves a part by at most: of rows what they weigh its cell by."""
    if "rows" not in part:
        return largest(part["moment"]) ** 2
    rows, kinds = part["rows"], {"columns": "<i2", "weights": f"<i{part['rows']['weights']['bits'] // 8}"}
    texts = {"columns": rows["columns"], "weights": rows["weights"]["values"]}
    columns, weights = (np.frombuffer(base64.b64decode(texts[name]), kind) for name, kind in kinds.items())
    moved = [0] * rows["cells"]
    for column, weight in zip(columns.tolist(), weights.tolist(), strict=True):
        moved[column] += weight**2
    return max(moved)


def largest(moment: Document | None) -> int:
    """What one record adds to a moment at most, by its definition."""
    if moment is None:
        return 1
    middle = (moment["places"] - 1) // 2
    steps = range(-middle, moment["places"] - middle)
    half = max(map(abs, steps))
    times = moment["times"]["least"] + moment["times"]["places"] - 1 if "times" in moment else 1
    return times * {0: 1, 1: half, 2: max(abs(u * u - half * half // 2) for u in steps)}[moment["power"]]


@pytest.mark.parametrize("question", [MEAN, MEDIAN, {"type": "variance", "of": "age"}])
def test_pure_sessions_replay(question: Document) -> None:
    """All of an untouched budget, for one question: the noise of every part is pure, and their epsilons and those of
    the opening add up to no more than the session's. Catches noise of the other sum, and a part that is not added."""
    left = Amounts(Decimal("0.4"), Decimal(1))
    player = played([question], epsilon=1.0, max_queries=1, left=left)
    assert player.session.plan.regime == "pure"
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for document in own(player):
            told = document["measurement"]
            assert told["noise"]["kind"] == "laplace"
            parts = told.get("strategy", [{"multiplier": 1, "moment": None}])
            moved = sum(part["multiplier"] * largest(part["moment"]) for part in parts)
            due = moved / mpmath.mpf(told["noise"]["scale"])
            if drawn := told.get("quantiles"):
                # A record moves the score of a block by as much as the larger part of one, up or down.
                far = [max(level, 10**6 - level) for level in drawn["levels"]]
                due += 2 * mpmath.mpf(sum(far)) / 10**6 / mpmath.mpf(drawn["scale"])
            assert 0 <= mpmath.mpf(document["cost"]["pure"]) - due < mpmath.mpf("1e-22")
            total += due
        assert 0.4 < total <= 1


def test_a_whole_table_answers_all() -> None:
    """Of a small table everything is measured at the opening, and statistics are arithmetic. Catches a statistic that
    is bought where the table was."""
    spec = SPEC | {"attributes": [SPEC["attributes"][0], {"name": "age", "lower": 0, "upper": 20, "grid": 1}]}
    rng = np.random.default_rng(2)
    data = RecordsTensor(
        [rng.integers(0, 2, 5000).astype(np.uint8), rng.integers(0, 21, 5000).astype(np.uint8)], (2, 21)
    )
    questions: list[Document] = [
        {"type": kind, "of": "age", "where": {"sex": 1}} | ({"q": 0.5} if kind == "quantile" else {})
        for kind in ("sum", "mean", "variance", "quantile")
    ]
    player = Player(spec=spec, data=data, mechanism={"construction": "histogram"})
    assert {player.ask(question).source for question in questions} == {"estimate"}
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_moments_of_others_answer() -> None:
    """What another session measured of numbers answers here, free where it is good enough. Catches a pinned moment that
    is not taken in."""
    others = of_another(played().lines)
    player = Player(known=others, seed=4, spec=SPEC, data=DATA, epsilon=0.01, max_queries=5)
    assert player.ask({"type": "mean", "of": "income", "where": {"sex": 1}}, within=20_000.0).source == "estimate"
    assert not own(player)[len(others) :]
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


@pytest.mark.parametrize("question", [MEAN, MEDIAN, {"type": "sum", "of": "age", "where": {"sex": 1}}])
def test_the_first_question_of_an_unknown_table(question: Document) -> None:
    """Nothing was measured, and the number of records is not public: as much is measured as the answer needs, and where
    nothing can be paid the question is refused. Catches an answer that is made of what nobody knows."""
    player = played([], epsilon=1.0, max_queries=2, left=Amounts(Decimal("0.4"), Decimal(1)))
    assert not own(player)
    given = player.ask(question)
    assert given.source == "measurement"
    assert given.accuracy is not None
    assert np.isfinite(given.accuracy.standard_errors).all()
    broke = played([], epsilon=1.0, max_queries=2, left=Amounts(Decimal("0.4"), Decimal(1)))
    broke.forfeit(broke.session.plan.holds)
    with pytest.raises(PlanInfeasible, match="nothing was measured"):
        broke.ask(question)


def test_accuracy_first_pays_the_least() -> None:
    """Ten times as wide an interval costs a hundredth or less, and a mean of nobody knows how many is refused. Catches
    a search that begins beyond all noise and then pays everything."""
    costs = []
    for within in (5_000.0, 50_000.0):
        player = played([], records=20_000.0)
        given = player.ask({"type": "sum", "of": "age", "where": {"sex": 1}}, within=within)
        assert given.accuracy is not None
        assert 0.5 * within < (given.accuracy.highs - given.accuracy.lows)[0] / 2 <= within
        costs.append(sum(Decimal(m["cost"]["renyi"]) for m in own(player) if m["sequence"]))
    assert 80 * costs[1] < costs[0] < player.session.plan.holds.renyi / 10
    player = played([], epsilon=1.0, max_queries=2, left=Amounts(Decimal("0.4"), Decimal(1)))
    with pytest.raises(PlanInfeasible, match="how many records"):
        player.ask(MEAN, within=100.0)


@pytest.mark.parametrize("kind", ["sum", "mean", "variance"])
def test_no_noise_is_small_enough(kind: str) -> None:
    """Accuracy beyond whole counts is refused, and says so. Catches a search that tries noise of no such scale."""
    player = played([], records=20_000.0)
    with pytest.raises(PlanInfeasible, match="no noise is so small"):
        player.ask({"type": kind, "of": "age"}, within=1e-30)


def test_what_is_far_beyond_the_data_is_a_number() -> None:
    """A share of next to nothing, and a table of few records: the noise passes what the answer's grid has room for.
    Catches a number that becomes a null, or changes its sign."""
    signs = set()
    for seed in range(12):
        player = played([], spec=SPEC | {"capacity": 1000}, epsilon=1e-9, max_queries=5, seed=seed)
        given = player.ask({"type": "sum", "of": "income"}, within=1e30)
        value = json.loads(player.lines[-1])["value"]
        assert given.accuracy is not None
        assert abs(given.accuracy.linear[0]) > 2.0**40
        assert value is not None
        assert (value > 0) == (given.accuracy.linear[0] > 0)
        signs.add(value > 0)
        verdict = judged(player.transcript())
        assert verdict.ok, (verdict.problem, verdict.sequence)
    assert signs == {True, False}


# ---------------------------------------------------------------------------------------------- the forger


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played().transcript())


def of(documents: list[Document], question: Document) -> tuple[Document, Document]:
    """The first answer to a question, and what stands before it: its measurement where it was paid for."""
    place = next(i for i, d in enumerate(documents) if d.get("asked") == question)
    return documents[place], documents[place - 1]


def parts(documents: list[Document]) -> list[Document]:
    """What was measured for means by group."""
    found: list[Document] = of(documents, MEAN)[1]["measurement"]["strategy"]
    return found


def multiplier(documents: list[Document]) -> None:
    """A part that is known better than was paid for."""
    parts(documents)[-1]["multiplier"] *= 2


def axis(documents: list[Document]) -> None:
    """A moment of another attribute."""
    parts(documents)[-1]["moment"] |= {"axis": 1, "places": 81}


def power(documents: list[Document]) -> None:
    parts(documents)[-1]["moment"]["power"] = 2


def places(documents: list[Document]) -> None:
    """Those without a value are taken for the largest number."""
    parts(documents)[-1]["moment"]["places"] = 502


def part_dropped(documents: list[Document]) -> None:
    told = of(documents, {"type": "variance", "of": "age"})[1]["measurement"]
    told["strategy"].pop()
    told["values"].pop()


def part_doubled(documents: list[Document]) -> None:
    """A second look at the same moment, for nothing."""
    told = of(documents, MEAN)[1]["measurement"]
    last = told["strategy"][-1]
    told["strategy"].append(copy.deepcopy(last))
    sizes = zip(last["marginal"]["sizes"], last["marginal"]["partitions"], strict=True)
    told["values"] += told["values"][-math.prod(n if p is None else max(p) + 1 for n, p in sizes) :]


def released_moved(documents: list[Document]) -> None:
    told = of(documents, MEAN)[1]["measurement"]
    told["values"] = [value + 40 * round(float(told["noise"]["scale"])) for value in told["values"]]


def value_moved(documents: list[Document]) -> None:
    of(documents, MEAN)[0]["values"][0] += 100.0


def value_for_null(documents: list[Document]) -> None:
    of(documents, NOBODY)[0]["value"] = 500.0


def null_for_value(documents: list[Document]) -> None:
    of(documents, MEAN)[0]["values"][1] = None


def cached_null(documents: list[Document]) -> None:
    next(d for d in documents if d.get("source") == "cached")["value"] = None


def ranges(documents: list[Document]) -> None:
    """One end of a range a place further."""
    labels = of(documents, MEDIAN)[1]["measurement"]["strategy"][0]["marginal"]["partitions"][-1]
    place = next(k for k in range(1, len(labels) - 1) if labels[k - 1] < labels[k] == labels[k + 1])
    labels[place] -= 1


def row(documents: list[Document]) -> None:
    """One weight of a row is another."""
    weights = of(documents, MEDIAN)[1]["measurement"]["strategy"][0]["rows"]["weights"]
    told = bytearray(base64.b64decode(weights["values"]))
    told[-2] ^= 1
    weights["values"] = base64.b64encode(bytes(told)).decode()


def price(documents: list[Document]) -> None:
    of(documents, MEAN)[1]["cost"]["renyi"] = "1E-24"


def price_of_a_count(documents: list[Document]) -> None:
    """As if a record moved each part by its multiplier."""
    cost, told = of(documents, MEAN)[1]["cost"], of(documents, MEAN)[1]["measurement"]
    first, last = (sum((p["multiplier"] * w(p)) ** 2 for p in told["strategy"]) for w in (lambda p: 1, weight))
    cost["renyi"] = str((Decimal(cost["renyi"]) * first / last).quantize(Decimal("1e-24")))


def weight(part: Document) -> int:
    return largest(part["moment"])


def scale(documents: list[Document]) -> None:
    noise = of(documents, MEAN)[1]["measurement"]["noise"]
    noise["scale"] = str(Decimal(noise["scale"]) / 2)


def level(documents: list[Document]) -> None:
    of(documents, MEDIAN)[0]["query"]["q"] = ["0.25", "0.75"]


def level_and_words(documents: list[Document]) -> None:
    """The same in the words of the question: the answer is not that of the upper quartile."""
    level(documents)
    of(documents, MEDIAN)[0]["asked"] = MEDIAN | {"q": [0.25, 0.75]}


def words(documents: list[Document]) -> None:
    of(documents, MEAN)[0]["asked"] = MEAN | {"of": "age"}


def other_kind(documents: list[Document]) -> None:
    """A mean is told as one of other numbers, in both forms."""
    answer = of(documents, MEAN)[0]
    answer["asked"] = MEAN | {"type": "variance"}
    answer["query"]["type"] = "variance"


def expected(documents: list[Document]) -> None:
    """Statistics say nothing of what was expected."""
    of(documents, MEAN)[1]["expected"] = {"standard_error": 3, "values": [1, 2]}


def without_measurement(documents: list[Document], asked: Document) -> None:
    """The answer to a question as one that nothing was measured for."""
    answer, measured = of(documents, asked)
    documents.remove(measured)
    del answer["measurement"]
    answer["source"] = "estimate"
    documents[-1]["updates"] -= 1


def no_measurement(documents: list[Document]) -> None:
    without_measurement(documents, MEAN)


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (multiplier, "not the one that was due"),
        (axis, "not the one that was due"),
        (power, "not the one that was due"),
        (places, "not the one that was due"),
        (part_dropped, "not the one that was due"),
        (part_doubled, "not the one that was due"),
        (released_moved, "does not follow"),
        (value_moved, "does not follow"),
        (value_for_null, "a value where none follows"),
        (null_for_value, "none where one does"),
        (cached_null, "not the one that was due"),
        (ranges, "not the one that was due"),
        (row, "not the one that was due"),
        (price, "cost is not that of its noise"),
        (price_of_a_count, "cost is not that of its noise"),
        (scale, "not the one that was due"),
        (level, "does not compile to the recorded query"),
        (level_and_words, "not the one that was due"),
        (words, "does not compile to the recorded query"),
        (other_kind, "answer grid"),
        (expected, "expected"),
        (no_measurement, "source that it cannot have"),
    ],
)
def test_a_forgery_is_found_out(honest: Replays, forge: Callable[[list[Document]], None], problem: str) -> None:
    """Each would catch the rule that is broken by it, were that missing; and the entry that is named is the one."""
    documents = honest.documents()
    forge(documents)
    lines = resealed(documents, count=False, updates=False)
    assert sorted(lines) != sorted(honest.honest)
    verdict = honest.verdict(lines)
    assert not verdict.ok
    assert problem in (verdict.problem or ""), verdict.problem
    changed = next(n for n, (one, other) in enumerate(zip(lines, honest.honest, strict=False)) if one != other)
    document = json.loads(lines[changed])
    assert verdict.sequence == document["sequence"]


def test_a_flipped_bit_is_found(honest: Replays) -> None:
    """In any line. Catches a part of a measurement, or of the words of a question, that no hash covers."""
    rng = np.random.default_rng(1)
    lines = honest.honest
    for place in [*range(1, len(lines)), *range(1, len(lines))]:
        line = bytearray(lines[place])
        at = int(rng.integers(len(line)))
        line[at] ^= 1 << int(rng.integers(7))
        assert not honest.verdict([*lines[:place], bytes(line), *lines[place + 1 :]]).ok
