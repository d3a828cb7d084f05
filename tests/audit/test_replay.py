"""Replay: honest transcripts are accepted, and each planted falsehood is found where it stands."""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.audit.replay import Verdict, replay
from app.curator.errors import UpdatesExhausted
from app.curator.mechanisms.round import Hit, race
from app.spaces.queries.registry import from_canonical, parse_query
from app.verifying.transcript import replay_file
from tests.audit.transcripts import Played, play_session
from tests.kit.forger import Document, hypothesis_digest, lines_of, resealed
from tests.kit.replays import Replays
from tests.kit.strategies import BUDGET, Universe, Words, data, queries, universe, universes

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "values": ["é", "b", "c"]}, {"name": "x1", "size": 4}],
        "budget": BUDGET,
    }
)
COUNTS = np.array([[9000, 40, 300, 2], [10, 20, 3000, 70], [1, 2500, 5, 900]])
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 6, "weighted": True, "grid": 0.25, "budget": BUDGET})
CELLS: list[Words | str] = [{"type": "sparse", "indices": [i], "weights": [1.0]} for i in range(12)]
RAMP: Words = {"type": "dense", "weights": [0.3, -0.2, 0.9, 1, 0, 0.5, -1, 0.7, 0.1, 0.2, 0.4, 0.6]}


@functools.cache
def story() -> Played:
    """Hits, misses, cached answers, unverified ones, a forfeit, zero, dense weights, and more cells than updates."""
    asked: list[Words | str] = [
        {"type": "predicate", "where": {"x0": {"equals": "é"}}},
        CELLS[0],
        CELLS[0],
        RAMP,
        CELLS[3] | {"unverified": True},
        {"type": "product", "weights": {"x0": [0.0, 0.0, 0.0]}},
        "forfeit",
        *CELLS[1:6],
        {"type": "predicate", "where": {"x0": {"in": ["é"]}}},
        {"type": "product", "weights": {"x1": [0.25, 0.5, -0.75, 1.0]}},
        RAMP,
        *CELLS[6:],
        CELLS[11] | {"unverified": True},
        {"type": "predicate", "where": {}},
    ]
    return play_session(TABLE, COUNTS, asked, mechanism={"construction": "mw"}, max_updates=9, seed=4)


@functools.cache
def bought() -> Played:
    """A first session over private records: its mass was bought at opening."""
    return play_session(
        TABLE, COUNTS, CELLS, mechanism={"construction": "mw"}, records_public=False, max_updates=4, seed=2
    )


@functools.cache
def wide() -> Played:
    """A session whose plan is the same whatever the public mass is."""
    u = universe({**TABLE.declared, "capacity": 2**31 - 1})
    return play_session(u, COUNTS, CELLS, mechanism={"construction": "mw", "step": "full"}, max_updates=4, seed=2)


def test_the_story_holds_every_kind_of_entry() -> None:
    """The tests below are worth something only if each kind occurs."""
    told = {(d.get("source"), d.get("unverified", False)) for d in story().documents if d["record"] == "answer"}
    assert told == {("hypothesis", False), ("measurement", False), ("cached", False), ("hypothesis", True)}
    assert {d["record"] for d in story().documents} == {"header", "answer", "forfeit", "weights", "trailer"}
    assert "bought" in bought().documents[0]


# ------------------------------------------------------------------------------------------------ honest ones


def accepted(played: Played) -> Verdict:
    verdict = replay(played.content.splitlines(keepends=True))
    assert verdict.ok, (verdict.problem, verdict.sequence)
    session = played.session
    summary = verdict.summary
    assert summary["entries"] == session.sequence
    assert summary["queries"] == session.queries_asked
    assert summary["updates"] == session.updates_used
    assert summary["hypothesis_digest"] == played.documents[-1]["hypothesis_digest"]
    assert summary["status"] == "open"
    plan = session.plan
    paid = plan.cost_per_update * session.updates_used + (plan.purchase.cost if plan.purchase else 0)
    assert float(summary["spent"]) == pytest.approx(float(paid), rel=1e-15)
    return verdict


def test_the_story_is_accepted(tmp_path: Path) -> None:
    """Line by line and as a file, whose reading is told on the way."""
    accepted(story())
    accepted(bought())
    path = tmp_path / "transcript.ndjson"
    path.write_bytes(story().content)
    heard: list[tuple[int, int]] = []
    assert replay_file(path, lambda done, total: heard.append((done, total))).ok
    assert heard[-1] == (len(story().content), len(story().content))
    assert replay(story().lines) == replay_file(path)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_honest_sessions_are_accepted(d) -> None:
    """Every space, query form, construction and step; any noise; purchases, forfeits, exhaustion. Would catch a rule
    that honest transcripts break, and anything that a replay computes otherwise than the session did."""
    u = d.draw(universes())
    assume(u.declared["kind"] != "matrix")
    x = u.array(d.draw(data(u)))
    public = d.draw(st.booleans())
    asked: list[Words | str] = []
    for _ in range(d.draw(st.integers(0, 8))):
        words = d.draw(queries(u))
        asked.append("forfeit" if d.draw(st.integers(0, 9)) == 0 else words)
        if d.draw(st.booleans()):
            asked.append(words | ({"unverified": True} if d.draw(st.booleans()) else {}))
    played = play_session(
        u,
        x,
        asked,
        mechanism={
            "construction": d.draw(st.sampled_from(["mw", "fk"])),
            "step": d.draw(st.sampled_from(["projection", "paper"])),
        },
        records_public=public,
        seed=d.draw(st.integers(0, 99)),
        max_updates=d.draw(st.sampled_from([1, 2, 50])),
        max_queries=d.draw(st.sampled_from([3, 1000])),
        # Noise far beyond its scale, too: a session must be replayed whatever was drawn.
        noise=d.draw(st.sampled_from([None, lambda rng, scale: int(rng.choice([-40, 0, 40]) * scale)])),
    )
    accepted(played)


BIG = universe({"name": "g", "kind": "graph", "nodes": 60, "budget": {"epsilon": 30.0, "delta": 1e-6}})


def beyond_the_last_update(construction: str, u: Universe, *forfeits: str) -> Played:
    """A guaranteed session whose updates are used, by hits of noise that is far beyond its scale."""
    if u is TABLE:
        x, epsilon = COUNTS // 4, 1.0
        asked: list[Words | str] = [{"type": "product", "weights": {"x1": [i / 2048, 0, -1, 1]}} for i in range(1000)]
    else:
        x, epsilon = u.array({c: int(c[0] < 55 or c[1] % 2) for c in u.cells}), 30.0
        asked = [{"type": "cut", "left": [i], "right": list(range(j))} for i in range(60) for j in range(1, 60)]
    return play_session(
        u,
        x,
        [*asked[:9], *forfeits, *asked[9:]],
        mechanism={"construction": construction},
        epsilon=epsilon,
        max_queries=len(asked),
        beta=0.5,
        noise=lambda rng, scale: int(rng.choice([-60, 60]) * scale),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("construction", "u"), [("mw", TABLE), ("fk", TABLE), ("mw", BIG)])
def test_guaranteed_sessions_are_accepted_beyond_their_last_update(construction: str, u: Universe) -> None:
    """After the last update the hypothesis goes on answering with its bound."""
    played = beyond_the_last_update(construction, u)
    assert played.session.plan.guaranteed
    assert played.session.updates_left == 0
    assert played.documents[-2]["source"] == "hypothesis"
    assert played.documents[-2]["error_bound"] >= played.session.plan.error_bound
    accepted(played)


@pytest.mark.parametrize("step", ["projection", "full", "refit"])
def test_hypotheses_far_beyond_all_data_are_played_and_accepted(step: str) -> None:
    """A query of weight 2^-30 that noise alone made a hit moves Frieze and Kannan's cell 2^30 times as far. Would catch
    values that a replay takes for none, and a race whose 64-bit differences overflow after its noise was taken."""
    one, other = [2.0**-15] + [0.0] * 5, [0.0, 2.0**-15] + [0.0] * 4
    cell = {"type": "sparse", "indices": [1], "weights": [1.0]}
    u = universe({"name": "g", "kind": "graph", "nodes": 6, "directed": True, "budget": BUDGET})
    played = play_session(
        u,
        np.ones((6, 6), dtype=np.int64) - np.eye(6, dtype=np.int64),
        [{"type": "rank_one", "left": one, "right": other}, cell | {"unverified": True}, cell],
        mechanism={"construction": "fk", "step": step},
        epsilon=1e-7,
        max_queries=2,
        max_updates=2,
        beta=0.999999,
        noise=lambda rng, scale: int(2 * scale),
    )
    answers = [d for d in played.documents if d["record"] == "answer"]
    assert [a["source"] for a in answers] == ["measurement", "hypothesis", "measurement"]
    units = played.session.grid(answers[1]["value"])
    outcome = race(units, 1 << 20, np.array([5, -3], dtype=np.int64), 2, 10**6)
    assert outcome == Hit((1 << 20) + 5)
    accepted(played)


def test_caches_asked_in_another_order_move_no_answer_by_more_than_a_unit() -> None:
    """A server restarts and computes from other marginals than the replay: hundreds of updates later its answers are
    still within the tolerance. Would catch rounding errors that grow."""
    rng = np.random.default_rng(5)
    u = universe(
        {
            "name": "t",
            "kind": "table",
            "attributes": [{"name": f"x{i}", "size": 4} for i in range(6)],
            "budget": {"epsilon": 100.0, "delta": 1e-6},
            "capacity": 2**31 - 1,
        }
    )
    x = rng.multinomial(2**31 - 10, rng.dirichlet(np.full(4096, 0.1))).reshape(u.space.shape)
    asked: list[Words | str] = []
    for _ in range(300):
        axes = rng.choice(6, size=rng.integers(1, 4), replace=False)
        asked.append({"type": "predicate", "where": {f"x{a}": {"equals": int(rng.integers(4))} for a in axes}})
    played = play_session(u, x, asked, mechanism={"construction": "mw"}, epsilon=100.0, max_updates=500, seed=1)
    assert played.session.updates_used > 100
    documents = played.documents
    for document in documents:
        # What a restarted server would have written: the same answers from a state that was only caught up.
        assert document["record"] != "forfeit"
    other = play_session(
        u,
        x,
        [w for words in asked for w in (words, words | {"unverified": True})],
        mechanism={"construction": "mw"},
        epsilon=100.0,
        max_updates=500,
        seed=1,
    )
    mine = [d["value"] for d in documents if d["record"] == "answer"]
    theirs = [d["value"] for d in other.documents if d["record"] == "answer" and not d.get("unverified")]
    unit = 2.0**-played.session.plan.answer_bits
    distinct = [v for d, v in zip(documents[1:-1], mine, strict=True) if d["source"] != "cached"]
    assert len(distinct) > 100
    assert max(abs(a - b) for a, b in zip(mine, theirs, strict=False)) <= unit


# ------------------------------------------------------------------------------------------------ damage


@settings(max_examples=250)
@given(st.sampled_from([story, bought]), st.integers(0, 2**31), st.integers(1, 255))
def test_any_changed_byte_is_found(make: Callable[[], Played], at: int, mask: int) -> None:
    """Any byte, any change. Would catch a field that nothing holds."""
    content = bytearray(make().content)
    at %= len(content)
    content[at] ^= mask
    assert not replays(make).verdict(lines_of(bytes(content))).ok


@pytest.mark.slow
def test_every_byte_of_the_trailer_is_held() -> None:
    """The trailer is no link of the chain: all of its bytes, one changed bit each."""
    *rest, last = story().lines
    for at in range(len(last)):
        changed = bytearray(last)
        changed[at] ^= 1
        assert not replays(story).verdict([*rest, bytes(changed)]).ok


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(0, 2**31), st.binary(max_size=3))
def test_any_cut_or_insertion_is_found(start: int, length: int, put: bytes) -> None:
    """Would catch a truncated file that passes for a shorter session."""
    content = story().content
    start %= len(content)
    end = min(len(content), start + length % 200)
    changed = content[:start] + put + content[end:]
    assume(changed.rstrip(b"\n") != content.rstrip(b"\n"))
    assert not replays(story).verdict(lines_of(changed)).ok


def test_lines_dropped_swapped_or_doubled_are_found_where_they_stand() -> None:
    """Without a recomputed chain: the first entry that does not follow is named."""
    lines = story().lines
    entries = [i for i, d in enumerate(story().documents) if d["record"] in ("answer", "forfeit")]
    for i in entries:
        sequence = story().sequence(i)
        dropped, doubled = replay(lines[:i] + lines[i + 1 :]), replay([*lines[:i], lines[i], *lines[i:]])
        assert not dropped.ok
        assert not doubled.ok
        # The last entry's absence shows in the trailer alone, which is no entry.
        assert dropped.sequence == (None if i == entries[-1] else sequence)
        assert doubled.sequence == sequence + 1
    for i in entries[:-1]:
        j = i + 1 if story().documents[i + 1]["record"] != "weights" else i + 2
        changed = list(lines)
        changed[i], changed[j] = lines[j], lines[i]
        verdict = replay(changed)
        assert not verdict.ok
        assert verdict.sequence == story().sequence(i)
    for changed in (lines[:-1], lines[1:], lines + lines[-1:], [*lines, b""], lines[:1] + lines, []):
        assert not replay(changed).ok
    weights = story().entry(record="weights")
    verdict = replay(lines[:weights] + lines[weights + 1 :])
    assert (verdict.ok, verdict.sequence) == (False, story().sequence(weights + 1))


# ------------------------------------------------------------------------------------------------ forgeries

UNIT = 2.0**-20


@functools.cache
def replays(make: Callable[[], Played]) -> Replays:
    return Replays(make().lines)


def forged(change: Callable[[list[Document]], None], make: Callable[[], Played] = story) -> Verdict:
    """The verdict on a changed transcript whose chain was computed anew."""
    documents = make().documents
    change(documents)
    return replays(make).verdict(resealed(documents))


def refused(verdict: Verdict, sequence: int | None, says: str = "") -> None:
    assert not verdict.ok
    assert verdict.sequence == sequence, verdict
    assert says in str(verdict.problem), verdict


def test_the_forger_knows_his_trade() -> None:
    """Nothing changed, all sealed anew: accepted. So what is refused below is refused for its content."""
    assert resealed(story().documents) == story().lines
    assert resealed(bought().documents) == bought().lines
    assert forged(lambda d: None).ok


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_measurement_that_says_it_was_free_is_found(law: str) -> None:
    """A direct session's answers are all paid for. Would catch a server that tells a measured value as a hypothesis'
    and keeps its charge, and one that lets the same question be measured twice."""

    def measured() -> Played:
        return play_session(
            TABLE, COUNTS, [CELLS[0], CELLS[0], "forfeit", CELLS[1]], mechanism={"construction": law}, max_queries=5
        )

    assert accepted(measured()).summary["measurement_answers"] == 2

    def free(documents: list[Document]) -> None:
        documents[1]["source"] = "hypothesis"

    def again(documents: list[Document]) -> None:
        documents[2]["source"] = "measurement"

    refused(forged(free, measured), 1, "a source that it cannot have")
    refused(forged(again, measured), 2, "a source that it cannot have")


def positions(**wanted: Any) -> list[int]:
    return [
        i
        for i, d in enumerate(story().documents)
        if d["record"] == "answer" and all(d.get(k, False) == v for k, v in wanted.items())
    ]


HYPOTHESIS = positions(source="hypothesis", unverified=False)
MEASUREMENT = positions(source="measurement")
CACHED = positions(source="cached")
UNVERIFIED = positions(unverified=True)


@pytest.mark.parametrize("i", HYPOTHESIS + CACHED + UNVERIFIED)
@pytest.mark.parametrize("off", [2 * UNIT, -2 * UNIT, 1.0])
def test_a_changed_value_is_found(i: int, off: float) -> None:
    """Two units of the grid: the smallest change beyond the tolerance between machines."""

    def change(documents: list[Document]) -> None:
        documents[i]["value"] += off

    refused(forged(change), story().sequence(i))


@pytest.mark.parametrize("units", [1, -1, 2, -2])
def test_another_machine_may_be_one_unit_off_everywhere(units: int) -> None:
    """All answers of the hypothesis moved by one unit of the grid, cached ones as they were first given, with hashes of
    their own: another machine's last digits. By two: nobody's. Catches a replay that refuses honest servers, one that
    lets a little more pass in many answers than in one, and a tolerance in what is cached."""

    def change(documents: list[Document]) -> None:
        first: dict[bytes, Any] = {}
        for document in documents[1:]:
            if document["record"] != "answer":
                continue
            query = rfc8785.dumps(document["query"])
            if document["source"] == "hypothesis":
                document["value"] += units * UNIT
            if document["source"] == "cached":
                document["value"] = first[query]
            elif not document.get("unverified", False):
                first[query] = document["value"]

    verdict = forged(change)
    if abs(units) == 1:
        assert verdict.ok, verdict
    else:
        refused(verdict, story().sequence(min(HYPOTHESIS + UNVERIFIED)))


@pytest.mark.parametrize("i", CACHED)
def test_a_cached_value_is_the_first_one_to_the_last_bit(i: int) -> None:
    def change(documents: list[Document]) -> None:
        documents[i]["value"] += UNIT

    refused(forged(change), story().sequence(i), "not the one that was due")


@pytest.mark.parametrize("i", HYPOTHESIS + MEASUREMENT)
@pytest.mark.parametrize("value", ["12", None, True, [], {}, 1e308, -1e308, 1e300, UNIT / 2, 3 + UNIT / 4])
def test_a_value_that_is_no_grid_point_is_found(i: int, value: Any) -> None:
    """Would catch a type or size that ends the replay in an exception instead of a verdict."""

    def change(documents: list[Document]) -> None:
        documents[i]["value"] = value

    refused(forged(change), story().sequence(i))


@pytest.mark.parametrize(
    ("i", "source"),
    [(i, s) for i in HYPOTHESIS for s in ("measurement", "cached", "other")]
    + [(i, s) for i in MEASUREMENT for s in ("hypothesis", "cached")]
    + [(i, s) for i in CACHED for s in ("hypothesis", "measurement")]
    + [(i, s) for i in UNVERIFIED for s in ("cached", "measurement")],
)
def test_a_changed_source_is_found(i: int, source: str) -> None:
    """A hit told as a miss hides a charge; a miss told as a hit is a measurement within the threshold."""

    def change(documents: list[Document]) -> None:
        documents[i]["source"] = source

    refused(forged(change), story().sequence(i))


@pytest.mark.parametrize("i", MEASUREMENT)
@pytest.mark.parametrize("side", [-1, 1])
def test_a_measurement_within_the_threshold_is_found(i: int, side: int) -> None:
    """A measurement is released only outside c +- T: just inside it, on either side, it was none."""
    plan = story().session.plan
    present = hypothesis_before(i)
    inside = present + side * (plan.threshold_units - 2) * UNIT
    outside = present + side * (plan.threshold_units + 2) * UNIT

    def change(documents: list[Document], value: float) -> None:
        documents[i]["value"] = value

    refused(forged(lambda d: change(d, inside)), story().sequence(i), "within the threshold")
    later = forged(lambda d: change(d, outside))
    assert later.ok or (later.sequence or 10**9) > story().sequence(i)


def hypothesis_before(i: int) -> float:
    """c of the round at a position, told by the replay itself: the only value a hypothesis' answer may have there."""
    low, high = -(2**40), 2**40
    documents = copy.deepcopy(story().documents)
    documents[i]["source"] = "measurement"
    from app.audit import replay as module

    state = module.Replaying(None, None, module.MEMORY_LIMIT)
    for line in story().lines[:i]:
        state.line(line)
    session = state.session
    assert session is not None
    waiting = {} if state.waiting is None else dict([state.waiting])
    query = from_canonical(session.dataset.space, documents[i]["query"], state.blobs | waiting)
    due = session.consider(query)
    assert low < int(due.hypothesis[0]) < high
    return session.real(int(due.hypothesis[0]))


@pytest.mark.parametrize("i", HYPOTHESIS + MEASUREMENT + CACHED)
def test_a_lowered_bound_is_found(i: int) -> None:
    """Below what the plan promises, or left out; and a bound that is no number. (What rounding of the weights added
    to it cannot be told from the rounded weights.)"""
    bound = story().documents[i]["error_bound"] and story().session.plan.error_bound
    for smaller in ([bound * 0.999, bound - UNIT, -1.0] if bound else [-1.0]) + [None, "9", True, []]:

        def change(documents: list[Document], put: Any = smaller) -> None:
            documents[i]["error_bound"] = put

        refused(forged(change), story().sequence(i))


@pytest.mark.parametrize("i", UNVERIFIED)
def test_an_unverified_answer_stays_one(i: int) -> None:
    """Given a bound, or told as a verified one, it is refused."""

    def with_bound(documents: list[Document]) -> None:
        documents[i]["error_bound"] = 1e9

    def told_as_verified(documents: list[Document]) -> None:
        del documents[i]["unverified"]

    refused(forged(with_bound), story().sequence(i))
    refused(forged(told_as_verified), story().sequence(i))


@pytest.mark.parametrize("i", MEASUREMENT)
def test_a_measurement_told_as_unverified_is_found(i: int) -> None:
    """It would cost nothing: a way to hide a charge."""

    def change(documents: list[Document]) -> None:
        documents[i] |= {"unverified": True, "error_bound": None, "source": "hypothesis"}

    refused(forged(change), story().sequence(i), "not the one that was due")


def test_a_hidden_update_is_found_at_the_first_answer_that_it_would_have_moved() -> None:
    """Each measurement and the forfeit left out, everything renumbered and counted again: the hypothesis of a later
    entry is another. (The forfeit moves no hypothesis: it shows where the updates would have ended.)"""
    for i in MEASUREMENT[:-1]:

        def change(documents: list[Document], at: int = i) -> None:
            del documents[at]

        verdict = forged(change)
        assert not verdict.ok
        assert verdict.sequence is not None
        assert verdict.sequence >= story().sequence(i)


@functools.cache
def exhausted() -> Played:
    """Best effort: both updates are used, and the last question was refused."""
    asked: list[Words | str] = [CELLS[0], CELLS[1], CELLS[9], CELLS[10], "forfeit", CELLS[2], CELLS[0]]
    return play_session(TABLE, COUNTS, asked, mechanism={"construction": "mw"}, max_updates=2, seed=1)


def test_an_answer_after_exhaustion_is_found() -> None:
    """After the last update a new question gets no verified answer, from wherever it claims to come, and there is
    nothing left to forfeit."""
    assert exhausted().session.updates_left == 0
    assert exhausted().documents[-2]["source"] == "cached"
    last = exhausted().session.sequence
    new: dict[str, Any] = {
        "query": {"axes": [[0, {"range": [0, 2]}]], "type": "product"},
        "asked": {"type": "predicate", "where": {"x0": ["é", "b"]}},
    }
    for source in ("hypothesis", "measurement", "cached"):

        def change(documents: list[Document], source: str = source) -> None:
            entry = copy.deepcopy(documents[-2])
            documents.insert(-1, entry | new | {"source": source, "value": 9000.0, "error_bound": 1e6})

        refused(forged(change, exhausted), last + 1, "updates-exhausted")

    def forfeit(documents: list[Document]) -> None:
        documents.insert(-1, {"record": "forfeit", "recorded_at": "x"})

    refused(forged(forfeit, exhausted), last + 1, "after the last update")

    def unverified(documents: list[Document]) -> None:
        documents[-2] |= new | {"unverified": True, "source": "hypothesis", "error_bound": None}

    refused(forged(unverified, exhausted), last, "not the one that was due")


def test_more_queries_than_the_plan_are_found() -> None:
    def few() -> Played:
        return play_session(TABLE, COUNTS, CELLS, mechanism={"construction": "mw"}, max_queries=5, max_updates=20)

    def change(documents: list[Document]) -> None:
        extra = next(d for d in documents if d.get("source") == "measurement")
        query = {"type": "product", "axes": [[0, {"range": [0, 2]}]]}
        asked = {"type": "predicate", "where": {"x0": ["é", "b"]}}
        documents.insert(-1, copy.deepcopy(extra) | {"query": query, "asked": asked, "value": 2.0**30})

    refused(forged(change, few), 6, "queries-exhausted")


@pytest.mark.parametrize("key", sorted(json.loads(story().lines[0])["plan"]))
def test_any_change_of_the_plan_is_found(key: str) -> None:
    """Less noise, a smaller threshold or bound, more updates, another cost: the plan follows from what is public."""
    value = story().documents[0]["plan"][key]
    for other in [None, 0, 1, "x", True] + ([value * 1.0000001, value + 1, value / 2] if type(value) is float else []):
        if other == value and type(other) is type(value):
            continue

        def change(documents: list[Document], put: Any = other) -> None:
            documents[0]["plan"][key] = put

        if rfc8785.dumps(other) != rfc8785.dumps(value):
            refused(forged(change), None, "the plan does not follow")

    def left_out(documents: list[Document]) -> None:
        del documents[0]["plan"][key]

    refused(forged(left_out), None, "the plan does not follow")


@functools.cache
def pure() -> Played:
    """A session that takes all of an untouched budget, by the pure sum; one of its questions is forfeited."""
    mechanism = {"construction": "laplace"}
    asked = [CELLS[0], "forfeit", CELLS[0], CELLS[1]]
    return play_session(TABLE, COUNTS, asked, mechanism=mechanism, epsilon=1, max_queries=3, untouched=True)


def test_a_session_of_all_that_was_left_is_accepted() -> None:
    """Would catch a plan that does not follow from the header alone, as it would from the budget of today."""
    summary = accepted(pure()).summary
    plan = pure().session.plan
    assert (plan.regime, summary["updates"], summary["measurement_answers"]) == ("pure", 3, 2)
    assert plan.cost_per_update_pure is not None
    assert summary["spent_pure"] == str(plan.cost_per_update_pure * 3)
    assert accepted(story()).summary["spent_pure"] is None


def test_pure_noise_where_it_was_not_admitted_is_found() -> None:
    """Less noise than the share pays for, on a data set from which nothing was left for it: other noise was ever taken,
    or somebody held a part. Would catch a regime that is taken from the plan as it says of itself."""
    other = play_session(TABLE, COUNTS, [CELLS[0]], mechanism={"construction": "laplace"}, epsilon=1, max_queries=3)
    assert other.session.plan.scale > pure().session.plan.scale

    def claimed(documents: list[Document]) -> None:
        documents[0]["plan"] = pure().documents[0]["plan"]

    refused(forged(claimed, lambda: other), None, "the plan does not follow")

    def taken_away(documents: list[Document]) -> None:
        del documents[0]["dataset"]["left"]

    refused(forged(taken_away, pure), None, "the plan does not follow")
    for left, problem in (
        ({"renyi": "0.4", "pure": 0.9}, "the plan does not follow"),
        ({"renyi": "0.4", "pure": 1.5}, "describes no session"),
        ({"renyi": "-1", "pure": 1}, "describes no session"),
        ({"renyi": "x", "pure": 1}, "describes no session"),
        ({"renyi": "0.4", "pure": "1"}, "describes no session"),
        ({"pure": 1}, "describes no session"),
        ({"renyi": "0.40", "pure": 1, "more": 2}, "contradicts itself"),
    ):

        def change(documents: list[Document], put: Any = left) -> None:
            documents[0]["dataset"]["left"] = put

        refused(forged(change, pure), None, problem)


@pytest.mark.parametrize("key", ["shape", "cells", "capacity", "gamma", "privacy_unit", "kind", "budget", "records"])
def test_any_change_of_the_data_sets_description_is_found(key: str) -> None:
    """A description that says one thing to a reader and another to the plan. Would catch a gamma of a half, or a shape
    that is not the domain's."""
    for other in [None, 1, 0.5, "x", [1], {"epsilon": 2.0, "delta": 1e-6}]:
        if other == story().documents[0]["dataset"][key]:
            continue

        def change(documents: list[Document], put: Any = other) -> None:
            documents[0]["dataset"][key] = put

        refused(forged(change), None)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("mechanism", {"construction": "fk"}),
        ("mechanism", {"construction": "unknown"}),
        ("mechanism", {"step": "paper"}),
        ("mechanism", {"epsilon": 0.25}),
        ("mechanism", {"epsilon": "0.5"}),
        ("mechanism", {"max_queries": 10**6}),
        ("mechanism", {"max_updates": 10}),
        ("mechanism", {"max_updates": True}),
        ("mechanism", {"beta": 0.06}),
        ("mechanism", {"calibration": "jt2012"}),
        ("mechanism", {"more": 1}),
        ("dataset", {"domain": {"attributes": [{"name": "x0", "size": 12}]}}),
        ("dataset", {"domain": []}),
        ("dataset", {"name": "../t"}),
        ("dataset", {"records": -1}),
        ("dataset", {"records": "many"}),
        ("dataset", {"bought": {"mass": {"value": 3.0}}}),
        ("dataset", {"more": 1}),
    ],
)
def test_a_changed_mechanism_or_domain_is_found(where: str, change: Document) -> None:
    def apply(documents: list[Document]) -> None:
        documents[0][where] |= change

    refused(forged(apply), None)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"more": 1},
        {"bought": {"value": 3.0, "noise_scale": 1.0}},
        {"dataset": None},
        {"dataset": []},
        {"dataset": "t"},
        {"mechanism": []},
        {"plan": None},
        {"record": "answer"},
    ],
)
def test_a_header_of_another_form_is_found(change: Document) -> None:
    def apply(documents: list[Document]) -> None:
        documents[0] |= change

    refused(forged(apply), None)


def test_a_header_without_a_field_is_found() -> None:
    for key in story().documents[0]:

        def change(documents: list[Document], key: str = key) -> None:
            del documents[0][key]

        refused(forged(change), None)


@pytest.mark.parametrize(
    "bought_",
    [None, {}, {"value": 3.0}, {"value": 15_000.0, "noise_scale": 1.0}, {"value": "3", "noise_scale": 1.0}, []],
)
def test_another_purchase_is_found(bought_: Any) -> None:
    """The noise of what was bought is the plan's own."""

    def change(documents: list[Document]) -> None:
        documents[0]["bought"] = bought_

    refused(forged(change, bought), None)


@pytest.mark.parametrize("value", [-1e308, -5.0, 0.0, 2.0**65, 1e308])
def test_a_purchase_of_what_no_data_has_is_found(value: float) -> None:
    """Of the very noise, but no mass. Would catch a replay that ends in a traceback on such a header."""

    def change(documents: list[Document]) -> None:
        documents[0]["bought"]["value"] = value

    refused(forged(change, bought), None, "no mass or norm")


@pytest.mark.parametrize("value", [1e308, -1e308, -5])
def test_a_public_mass_of_no_data_is_found(value: float) -> None:
    """A plan without a worst-case bound does not depend on the mass, the hypothesis does. Would catch a traceback."""

    def change(documents: list[Document]) -> None:
        documents[0]["dataset"]["records"] = value

    assert not forged(change, wide).ok


def test_answers_after_the_last_forfeit_are_found() -> None:
    """Forfeits use updates and teach nothing: a guaranteed session that is at its end has not learnt all it promised.
    Would catch a hypothesis that is taken at its word all the same."""
    played = beyond_the_last_update("mw", TABLE, *["forfeit"] * 50)
    session = played.session
    assert session.plan.guaranteed
    assert session.updates_left == 0
    query = parse_query(CELLS[2]).compiled(session.dataset.space)
    with pytest.raises(UpdatesExhausted):
        session.consider(query)
    value = session.real(session.grid(session.mechanism.construction.answer(session.state.hypothesis, query)))
    documents = played.documents
    entry = {
        **documents[-2],
        "query": query.canonical,
        "asked": CELLS[2],
        "value": value,
        "source": "hypothesis",
        "error_bound": session.mechanism.error_bound(query),
    }
    verdict = replay(resealed([*documents[:-1], entry, documents[-1]]))
    assert not verdict.ok
    assert "updates-exhausted" in str(verdict.problem)


def test_another_bought_mass_is_found_at_the_first_answer() -> None:
    """The hypothesis would have started otherwise."""

    def change(documents: list[Document]) -> None:
        documents[0]["bought"]["value"] *= 2

    first = next(d for d in bought().documents if d.get("source") == "hypothesis")
    verdict = forged(change, bought)
    assert not verdict.ok
    assert verdict.sequence is not None
    assert verdict.sequence <= first["sequence"]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("entries", [0, None, "7"]),
        ("updates", [0, None, "9"]),
        ("head_hash", ["0" * 64, None, 5]),
        ("hypothesis_digest", ["0" * 64, "0" * 63, "G" * 64, None, 5]),
        ("status", ["closed", "retired", None, True, 5, ["open"]]),
        ("trailer_hash", ["0" * 64, None, 5]),
        ("more", [1]),
        ("log_size", [None, 1000]),
    ],
)
def test_a_changed_trailer_is_found(key: str, values: list[Any]) -> None:
    *rest, last = story().lines
    for value in values:
        verdict = replay([*rest, rfc8785.dumps(json.loads(last) | {key: value})])
        refused(verdict, None)
    without = {k: v for k, v in json.loads(last).items() if k != key}
    if key not in ("more", "log_size"):
        refused(replay([*rest, rfc8785.dumps(without)]), None)


def with_log(size: Any) -> Verdict:
    """What is said of a transcript whose trailer names a log of a size, under a hash of its own."""
    *rest, last = story().lines
    trailer = {k: v for k, v in json.loads(last).items() if k != "trailer_hash"} | {"log_size": size}
    return replay(
        [*rest, rfc8785.dumps(trailer | {"trailer_hash": hashlib.sha256(rfc8785.dumps(trailer)).hexdigest()})]
    )


def test_the_size_of_the_log_in_a_trailer() -> None:
    """A trailer of before the log names none. Catches a log that cannot hold the session's entries and its header, what
    is no number, and a size that is refused because the service's log was not there yet.
    """
    entries = story().documents[-1]["entries"]
    for size in (None, entries + 1, 10**12):
        assert with_log(size).ok, size
    for size in (entries, 0, -1, True, entries + 2.5, str(entries + 1), [entries + 1]):
        refused(with_log(size), None)


def test_the_digest_names_what_was_learnt() -> None:
    """As the documents say it is made, of the header's facts and the measurements alone: neither the session's name nor
    a miss moves it, a measurement does. Would catch a name that depends on the arithmetic of a machine."""
    documents = copy.deepcopy(story().documents)
    named = documents[-1]["hypothesis_digest"]
    assert named == hypothesis_digest(documents)
    documents[0] |= {"session": "b2c3", "opened_at": "2025-12-31T00:00:00Z"}
    assert replay(resealed(documents)).summary["hypothesis_digest"] == named
    less = documents[: MEASUREMENT[0]] + documents[-1:]
    assert replay(resealed(less)).summary["hypothesis_digest"] != named
    one = documents[: MEASUREMENT[0] + 1]
    assert hypothesis_digest(one) != hypothesis_digest(less)


@pytest.mark.parametrize(
    "query",
    [
        None,
        [],
        "all",
        5,
        {},
        {"type": "zero"},
        {"type": "product", "axes": [[0, {"in": [0]}]]},
        {"type": "product", "axes": [[0, {"range": [0, 10**15]}]]},
        {"type": "sparse", "bits": 20, "indices": [3], "weights": [2**21]},
        {"type": "dense", "bits": 20, "sha256": "0" * 64},
    ],
)
@pytest.mark.parametrize("i", [HYPOTHESIS[1], MEASUREMENT[0], CACHED[0]])
def test_another_query_is_found(i: int, query: Any) -> None:
    """What is no query, not a canonical one, or names weights that are not there."""

    def change(documents: list[Document]) -> None:
        documents[i]["query"] = query

    refused(forged(change), story().sequence(i))


def test_other_weights_under_their_name_are_found() -> None:
    """A weights record is held by the hash that names it."""
    at = story().entry(record="weights")
    blob = bytearray(base64.b64decode(story().documents[at]["data"]))
    blob[0] ^= 1

    def change(documents: list[Document]) -> None:
        documents[at]["data"] = base64.b64encode(bytes(blob)).decode()

    refused(forged(change), story().sequence(at + 1), "not what its hash names")


def test_a_file_of_something_else_gets_a_verdict() -> None:
    """Would catch an exception on whatever a path may hold."""
    deep = b"[" * 900 + b"]" * 900
    header = story().lines[0]
    for lines in (
        [b"\xff\xfe"],
        [b"id,value"],
        [deep],
        [b'{"record":"header","format":1,"dataset":' + deep + b"}"],
        [b'{"record":"header"}'],
        [b'{"record":"header","format":1,"big":123456789012345678901234567890}'],
        [header[:-1] + b',"big":9007199254740993}'],
        [header, b'{"record":{}}'],
        [header, b'{"record":"trailer","entries":9007199254740993}'],
        [header, b'{"record":"weights"}'],
        [header, b'{"record":"weights","sha256":5,"data":5}'],
        [header, b'{"record":"answer"}'],
        [header, b'{"record":"answer","sequence":1}'],
        [header, b'{"record":"unknown"}'],
        [header, header],
    ):
        assert not replay(lines).ok


def test_an_absurd_universe_gets_a_verdict() -> None:
    """A header may declare more cells than any machine holds."""

    def change(documents: list[Document]) -> None:
        dataset = documents[0]["dataset"]
        dataset["domain"]["attributes"] = [{"name": f"x{i}", "size": 2**20} for i in range(2)]
        dataset |= {"shape": [2**20, 2**20], "cells": 2**40}

    assert not forged(change).ok
