"""Prices: what a question would cost is told of public things, leaves nothing behind, and is what is charged."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audit.replay import replay
from app.curator.errors import PlanInfeasible, QueriesExhausted, SessionClosed, UpdatesExhausted
from app.declarations.errors import CuratorError
from app.services.answering import round
from app.services.errors import NotFound
from app.services.ports import SessionRow
from app.services.registered import RegisteredCounts
from app.services.views import holder_view
from tests.kit.noise import Noise
from tests.kit.service import unique
from tests.kit.world import World, make_world, open_session, query, transcript_of, wait

pytestmark = pytest.mark.integration

TABLE = {
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 4},
        {"name": "income", "lower": 0, "upper": 99, "grid": 1, "bins": 4},
    ],
    "records_public": True,
    "budget": {"epsilon": 2.0, "delta": 1e-6},
}
GRAPH = {"kind": "graph", "nodes": 12, "directed": True, "budget": {"epsilon": 2.0, "delta": 1e-6}}
WORDS = {"kind": "multiset", "records_public": True, "budget": {"epsilon": 2.0, "delta": 1e-6}}
#: What can be asked of the table by every mechanism, of those that measure also tables of counts, and of evidence.
COUNTS: list[dict[str, Any]] = [
    {"type": "predicate", "where": {"sex": "f", "region": [0, 2]}},
    {"type": "predicate", "where": {"income": {"ge": 50}}},
    {"type": "product", "weights": {"region": [0.5, 0.0, 1.0, 0.25]}},
    {"type": "product", "weights": {"region": [0.0, 0.0, 0.0, 0.0]}},
]
TABLES: list[dict[str, Any]] = [
    {"type": "marginal", "attributes": ["sex", "region"]},
    {"type": "marginal", "attributes": ["region"], "where": {"sex": "m"}},
]
NUMBERS: list[dict[str, Any]] = [
    {"type": "mean", "of": "income"},
    {"type": "sum", "of": "income", "group_by": ["sex"]},
    {"type": "variance", "of": "income"},
    {"type": "quantile", "of": "income", "q": 0.5},
    {"type": "share", "of": {"sex": "f"}, "group_by": ["region"]},
]
CUTS: list[dict[str, Any]] = [
    {"type": "cut", "left": [0, 1, 2, 3], "right": "all"},
    {"type": "cut", "left": [0, 5], "right": [1, 2, 7, 8]},
    {"type": "cut", "left": [], "right": "all"},
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "blocks", "left": {"x": [0, 1, 2], "y": [3, 4, 5, 6]}, "right": {"all": "all"}},
    {"type": "degrees", "side": "left", "bins": [0, 2, 5]},
]
ELEMENTS: list[dict[str, Any]] = [
    {"type": "elements", "weights": {"the": 1.0}},
    {"type": "elements", "weights": {"the": 0.5, "a": -1.0}},
    {"type": "elements", "weights": {"of": 1.0, "none": 1.0}},
]
WISHES: list[dict[str, Any]] = [{}, {}, {}, {"within": 30}, {"within": 0.01}, {"confidence": 0.8}, {"adaptive": True}]
#: By name the data set, what is asked of it, and the session.
SESSIONS: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "mw": ("table", COUNTS, {"mechanism": {"construction": "mw"}}),
    "smw": ("words", ELEMENTS, {"mechanism": {"construction": "smw", "sparsity": 3}}),
    "entropy": ("table", COUNTS, {"mechanism": {"construction": "md", "potential": "entropy"}}),
    "median": ("table", COUNTS, {"mechanism": {"construction": "median", "sampled": True}}),
    "gaussian": ("table", COUNTS + TABLES, {"mechanism": {"construction": "gaussian"}}),
    "laplace": ("table", COUNTS + TABLES, {"mechanism": {"construction": "laplace"}}),
    "histogram": ("table", COUNTS + TABLES, {"mechanism": {"construction": "histogram"}}),
    "evidence": ("table", COUNTS + TABLES + NUMBERS, {"mechanism": {"construction": "evidence"}}),
    "within": ("table", COUNTS + TABLES + NUMBERS, {"mechanism": {"construction": "evidence"}, "within": 25}),
    "contract": ("table", COUNTS + TABLES, {"mechanism": {"construction": "evidence"}, "contract": True}),
    "fk": ("graph", CUTS, {"mechanism": {"construction": "fk"}}),
    "schatten": ("graph", CUTS, {"mechanism": {"construction": "md", "potential": "schatten"}}),
    "cuts": ("graph", CUTS + BLOCKS, {"mechanism": {"construction": "evidence"}}),
}
EVIDENCE = ("histogram", "evidence", "within", "contract", "cuts")
#: Sessions in which a test decides.
TESTED = ("mw", "smw", "entropy", "median", "contract", "fk", "schatten")


def rows(seed: int, others: int = 0) -> np.ndarray[Any, Any]:
    """Records of the table, some of them others than those of the seed alone."""
    drawn = np.random.default_rng(seed)
    found = np.stack([drawn.integers(0, 2, 400), drawn.integers(0, 4, 400), drawn.integers(0, 100, 400) ** 2 // 99], 1)
    found[:others] = [1, 3, 99]
    return found


@dataclass
class Priced:
    """A service with its data sets, and an analyst who asks them."""

    world: World

    def __post_init__(self) -> None:
        self.ann = self.world.analyst("ann")

    def register(self, kind: str) -> str:
        """A data set of its own, whose budget nobody else takes."""
        name = unique(kind)
        if kind == "table":
            self.register_table(name, rows(1))
        elif kind == "graph":
            arcs = "".join(f"{a},{b}\n" for a in range(12) for b in range(12) if a != b and (a * b) % 3 == 1)
            self.world.register_file({**GRAPH, "name": name}, "arcs.csv", arcs.encode())
        else:
            words = b"element,count\nthe,300\na,200\nof,50\n"
            self.world.register_file({**WORDS, "name": name}, "words.csv", words)
        return name

    def register_table(self, name: str, records: np.ndarray[Any, Any]) -> None:
        lines = ["sex,region,income", *(f"{'fm'[sex]},{region},{income}" for sex, region, income in records.tolist())]
        self.world.register_file({**TABLE, "name": name}, "table.csv", "\n".join(lines).encode())

    def open(self, session: str, dataset: str = "", **changes: Any) -> str:
        kind, _, words = SESSIONS[session]
        own: dict[str, Any] = {"max_updates": 6 if session in TESTED else None}
        if session in EVIDENCE:
            own = {"max_updates": None, "start": "nothing", "share": False}
        asked = {"epsilon": 1.5, "max_queries": 40, **own, **words, **changes}
        return self.world.open(self.ann, dataset or self.register(kind), **asked)

    def price(self, id: str, question: dict[str, Any]) -> dict[str, Any]:
        return wait(self.world.submit(self.ann, id, question, kind="price"))

    def priced(self, id: str, question: dict[str, Any]) -> dict[str, Any] | CuratorError:
        """A price, or its refusal."""
        try:
            return self.price(id, question)
        except CuratorError as error:
            return error

    def prices(self, id: str, *questions: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = wait(self.world.submit(self.ann, id, *questions, kind="prices"))["prices"]
        return found

    def ask(self, id: str, question: dict[str, Any]) -> dict[str, Any] | CuratorError:
        """An answer, or its refusal."""
        try:
            return self.world.ask(self.ann, id, question)
        except CuratorError as error:
            return error

    def left(self, id: str) -> float:
        """What a session holds of its epsilon."""
        return float(holder_view(self.row(id))["reserved_epsilon"])

    def row(self, id: str) -> SessionRow:
        found: SessionRow = self.world.built.services.sessions.row(self.ann, id)
        return found


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Priced]:
    # Noise that is as large as it is usual, the same in all sessions, up and down by the number of values.
    noise = Noise()
    noise.draw = lambda scale: int(0.8 * scale)
    world = make_world(tmp_path_factory.mktemp("prices"), noise=noise)
    yield Priced(world)
    world.stop()


def arms(answer: dict[str, Any]) -> list[float]:
    """Half the widths of an answer's intervals."""
    found = answer["intervals"] if "intervals" in answer else [answer["interval"]]
    return [(high - low) / 2 for low, high in filter(None, found or [])]


def told(answer: dict[str, Any] | CuratorError) -> Any:
    """What an answer says of its question, the same in sessions alike."""
    if isinstance(answer, CuratorError):
        return type(answer), str(answer)
    return {name: value for name, value in answer.items() if name not in ("entry_hash",)}


@pytest.mark.parametrize("session", SESSIONS)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_the_price_is_what_is_charged(priced: Priced, session: str, data: st.DataObject) -> None:
    """Whatever was asked before: what a price says of cost, source, width and rest is so when the question is asked
    next, and it is refused as the question is; and a session whose questions were all priced answers as its twin that
    was asked the same and no price. Catches a price of another moment or unit, one that teaches the session something,
    and a refusal that only one of both gives.
    """
    id, twin = priced.open(session), priced.open(session)
    questions = SESSIONS[session][1]
    for _ in range(data.draw(st.integers(2, 5))):
        question = {**data.draw(st.sampled_from(questions)), **data.draw(st.sampled_from(WISHES))}
        for other in data.draw(st.lists(st.sampled_from(questions), max_size=2)):
            priced.priced(id, other)
        price, answer = priced.priced(id, question), priced.ask(id, question)
        assert told(answer) == told(priced.ask(twin, question))
        if isinstance(price, CuratorError) or isinstance(answer, CuratorError):
            assert told(price) == told(answer)
            continue
        if price["certain"]:
            assert (price["epsilon"], price["source"]) == (answer["charged_epsilon"], answer["source"])
        else:
            assert session in TESTED
            assert price["epsilon"] > 0
            assert answer["charged_epsilon"] == (price["epsilon"] if answer["source"] == "measurement" else 0)
        if answer["charged_epsilon"] == price["epsilon"]:
            assert price["left"] == pytest.approx(priced.left(id), rel=1e-12, abs=1e-15)
        if price["source"] != "measurement":
            widths = arms(answer)
            assert price["half_width"] == ([min(widths), max(widths)] if widths else None)
        elif price["half_width"] is not None and question["type"] in ("predicate", "product", "marginal", "cut"):
            # What noise tells, before it is cut to what is possible.
            assert max(arms(answer)) <= price["half_width"][1] * (1 + 1e-6)


def test_a_width_is_foretold(priced: Priced) -> None:
    """Of what is measured half the width of the intervals is as it turns out: of counts within the grid, of statistics
    within what the numbers of records are off. Catches a width of the standard error, of another confidence, or of
    nobody's records."""
    for question, off in [(TABLES[0], 1.0), (COUNTS[1], 1.0), (NUMBERS[0], 1.6), (NUMBERS[1], 1.6)]:
        wished = {**question, "confidence": 0.9}
        id = priced.open("evidence", max_queries=2)
        price, answer = priced.price(id, wished), priced.ask(id, wished)
        assert price["source"] == "measurement"
        assert isinstance(answer, dict)
        low, high = price["half_width"]
        assert low / off / 1.01 <= min(arms(answer)) <= max(arms(answer)) <= high * off * 1.01


def test_several_are_priced_each_by_itself(priced: Priced) -> None:
    """Each from the session as it stands, the refused ones in their places. Catches prices of one after another, and a
    refusal that ends the others."""
    for session in ("evidence", "mw", "cuts"):
        id, questions = priced.open(session), SESSIONS[session][1]
        wrong = {"type": "predicate", "where": {"nobody": 1}}
        found = priced.prices(id, *questions, wrong, *questions)
        assert found[: len(questions)] == found[len(questions) + 1 :] == [priced.price(id, each) for each in questions]
        assert found[len(questions)]["type"] == "/problems/invalid-query"


def test_nothing_is_recorded(priced: Priced) -> None:
    """No entry, no charge, no noise, no reply kept. Catches a price that is an answer in all but name."""
    for session in SESSIONS:
        id = priced.open(session)
        drawn, before = priced.world.noise.drawn, priced.row(id)
        for question in SESSIONS[session][1]:
            priced.priced(id, question)
        assert priced.world.noise.drawn == drawn
        assert priced.row(id) == before
        assert priced.world.entries(id) == []


class Told:
    """Exact values as they were told first, told again to whoever asks the same afterwards."""

    def __init__(self) -> None:
        self._first: list[list[Any]] = []
        self._place: int | None = None

    def begin(self) -> None:
        """Tell from the beginning what was told so far, or what is asked first."""
        self._place = None if not self._first else 0

    def instead_of(self, whole: Any) -> Any:
        """In the place of a look at registered counts."""

        def checked(counts: RegisteredCounts) -> Any:
            return _Telling(whole(counts), self)

        return checked

    def tell(self, counts: Any, asked: Any) -> Iterator[Any]:
        if self._place is None:
            self._first.append(list(counts.tell(asked)))
            return iter(self._first[-1])
        self._place += 1
        return iter(self._first[self._place - 1])


@dataclass
class _Telling:
    counts: Any
    by: Told

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counts, name)

    def tell(self, asked: Any) -> Iterator[Any]:
        return self.by.tell(self.counts, asked)


class Watched:
    """Counts how often exact values were asked for, and may tell others in their place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        whole = RegisteredCounts.checked

        def checked(counts: RegisteredCounts) -> Any:
            self.calls += 1
            return whole(counts)

        monkeypatch.setattr(RegisteredCounts, "checked", checked)


def neighbours(priced: Priced, monkeypatch: pytest.MonkeyPatch, session: str) -> tuple[str, str]:
    """Sessions on two tables that differ in a record, with the same answers: the second is told the exact values of the
    first, so that the same noise makes the same releases."""
    names, history = [unique("one"), unique("other")], [*SESSIONS[session][1][:3], *SESSIONS[session][1][-2:]]
    for others, name in enumerate(names):
        priced.register_table(name, rows(2, others))
    told_by, answers, ids = Told(), list[Any](), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(RegisteredCounts, "checked", told_by.instead_of(RegisteredCounts.checked))
        for name in names:
            told_by.begin()
            ids.append(id := priced.open(session, name))
            answers.append([told(priced.ask(id, each)) for each in history])
    assert answers[0] == answers[1]
    return ids[0], ids[1]


def differing(priced: Priced, session: str, ids: tuple[str, str]) -> list[dict[str, Any]]:
    """The questions of which two sessions tell other prices."""
    asked = [{**each, **wish} for each, wish in itertools.product(SESSIONS[session][1], WISHES[2:])]
    found = [priced.prices(id, *asked) for id in ids]
    return [each for each, one, other in zip(asked, *found, strict=True) if one != other]


@pytest.mark.adversarial
@pytest.mark.parametrize("session", ["mw", "median", "gaussian", "evidence", "contract"])
def test_neighbours_have_the_same_prices(priced: Priced, monkeypatch: pytest.MonkeyPatch, session: str) -> None:
    """Would show a record in a price: of two tables that differ in one, with the same answers so far, every price is
    the same, and exact values are asked for by none."""
    ids = neighbours(priced, monkeypatch, session)
    watched = Watched(monkeypatch)
    assert differing(priced, session, ids) == []
    assert watched.calls == 0


@pytest.mark.adversarial
def test_a_planted_leak_is_found(priced: Priced, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would show that the test before finds nothing: with prices that look at the exact counts both of its checks
    fail."""
    ids = neighbours(priced, monkeypatch, "gaussian")
    watched, honest = Watched(monkeypatch), round.Rounds.price

    def leaky(self: Any, live: Any, asked: Any, *ahead: Any) -> dict[str, Any]:
        query = round.compiled(live.session.dataset.space, asked, 1 << 30).query
        return {**honest(self, live, asked, *ahead), "left": float(np.sum(query.exact(live.data.checked())))}

    monkeypatch.setattr(round.Rounds, "price", leaky)
    assert differing(priced, "gaussian", ids)
    assert watched.calls


@pytest.mark.adversarial
def test_neighbours_take_the_same_time(priced: Priced, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would show a price that takes as long as the data say. Coarse: medians differ by less than a factor of three."""
    ids = neighbours(priced, monkeypatch, "evidence")
    taken: dict[str, list[float]] = {id: [] for id in ids}
    for _ in range(9):
        for id in ids:
            began = time.perf_counter()
            priced.prices(id, *SESSIONS["evidence"][1])
            taken[id].append(time.perf_counter() - began)
    one, other = (statistics.median(each) for each in taken.values())
    assert 1 / 3 < one / other < 3


def test_what_the_first_count_buys_besides_is_told(priced: Priced) -> None:
    """Where nobody said how many questions there will be: the first count pays for two-way marginals, says so and
    charges that; no statistic does, and no later count. Would catch a price that seems to be that of one count."""
    asked = {"dataset": priced.register("table"), "mechanism": {"construction": "evidence"}, "epsilon": 1.5}
    id = str(json.loads(open_session(priced.world.built.services, priced.ann, asked, None))["id"])
    assert "two-way" not in priced.price(id, NUMBERS[0])["words"]
    priced.ask(id, NUMBERS[0])
    first = priced.price(id, COUNTS[0])
    assert first["words"].startswith("Number of records, where sex is f and region is 0 or 2. With it two-way")
    answer = priced.ask(id, COUNTS[0])
    assert isinstance(answer, dict)
    assert first["epsilon"] == answer["charged_epsilon"] > 0.3 * 1.5
    assert first["half_width"] == pytest.approx([arms(answer)[0]] * 2)
    assert "two-way marginals were measured with it" in answer["note"]
    later = priced.price(id, COUNTS[1])
    assert later["epsilon"] < 0.1 * 1.5
    assert "two-way" not in later["words"]
    assert "note" not in priced.ask(id, COUNTS[1])


def test_whose_session_it_is_and_its_end(priced: Priced) -> None:
    """Another's session is not found, a closed one answers nothing, an exhausted one prices what was asked before
    alone. Catches a price by which anybody learns that a session is there."""
    id, bob = priced.open("gaussian", max_queries=2), priced.world.analyst("bob")
    with pytest.raises(NotFound):
        priced.world.submit(bob, id, COUNTS[0], kind="price")
    first = priced.ask(id, COUNTS[0])
    priced.ask(id, COUNTS[1])
    assert isinstance(first, dict)
    assert priced.price(id, COUNTS[0]) == {
        "epsilon": 0.0,
        "certain": True,
        "source": "cached",
        "half_width": [arms(first)[0]] * 2,
        "left": pytest.approx(0.0, abs=1e-9),
        "words": "Number of records, where sex is f and region is 0 or 2",
    }
    with pytest.raises(QueriesExhausted):
        priced.price(id, COUNTS[2])
    priced.world.close(priced.ann, id)
    with pytest.raises(SessionClosed):
        priced.price(id, COUNTS[0])
    tested = priced.open("mw", max_updates=1)
    priced.world.noise.script.append(10_000)
    hit = priced.ask(tested, COUNTS[0])
    assert isinstance(hit, dict)
    assert hit["updates_left"] == 0
    with pytest.raises(UpdatesExhausted):
        priced.price(tested, COUNTS[2])


@pytest.mark.parametrize("session", ["mw", "gaussian", "laplace", "evidence", "contract", "cuts", "smw"])
def test_what_costs_more_is_refused(priced: Priced, session: str) -> None:
    """What may cost more than `at_most` is refused before noise, as a question and as a price, with what it may cost
    and without a trace; what costs as much is answered as if nothing were said, and recorded as that. Catches a limit
    that is looked at too late, of another unit, or kept in the transcript."""
    id, twin = priced.open(session), priced.open(session)
    for question in SESSIONS[session][1]:
        price = priced.price(id, question)
        if price["epsilon"]:
            dear = {**question, "at_most": math.nextafter(price["epsilon"], 0)}
            drawn, before = priced.world.noise.drawn, priced.row(id)
            refusal = priced.ask(id, dear)
            assert isinstance(refusal, PlanInfeasible)
            assert refusal.extra == {"needed": price["epsilon"], "at_most": dear["at_most"], "left": priced.left(id)}
            assert told(priced.priced(id, dear)) == told(refusal)
            assert (priced.world.noise.drawn, priced.row(id)) == (drawn, before)
        free = not price["epsilon"]
        allowed = {**question, "at_most": 0 if free else price["epsilon"]}
        assert priced.price(id, allowed) == price
        assert told(priced.ask(id, allowed)) == told(priced.ask(twin, question))
    kept = ("query", "value", "values", "source", "asked", "target")
    one, other = ([{k: e.get(k) for k in kept} for e in priced.world.entries(each)] for each in (id, twin))
    assert one == other
    verdict = replay(transcript_of(priced.world.built.services, id))
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_a_batch_stops_at_nothing(priced: Priced) -> None:
    """Each question of a batch has a limit of its own, by what is left when its turn comes; what is refused stands in
    its place. Catches a refusal that ends a batch, and one that is charged."""
    id = priced.open("gaussian", max_queries=4)
    cost = priced.price(id, COUNTS[0])["epsilon"]
    limits = [cost, cost / 2, 0.0, cost]
    asked = [{**question, "at_most": most} for question, most in zip([*COUNTS[:3], COUNTS[0]], limits, strict=True)]
    answers = wait(priced.world.submit(priced.ann, id, *asked, kind="batch"))["answers"]
    assert [each.get("source", each.get("type")) for each in answers] == [
        "measurement",
        "/problems/plan-infeasible",
        "/problems/plan-infeasible",
        "cached",
    ]
    assert len(priced.world.movements(priced.row(id).dataset, id)) == 1


def test_on_each_database(world: World) -> None:
    """Also where rows are held while answering: a price between answers is of the session as it stands, and is not
    stored. Catches a price that keeps a row, or a transaction, from those who answer."""
    world.register(name := unique("d"))
    ann, asked = world.analyst("ann"), query(0)
    id = world.open(ann, name, mechanism={"construction": "gaussian"}, max_updates=None)
    price = wait(world.submit(ann, id, asked, kind="price"))
    answer = world.ask(ann, id, asked)
    assert (price["source"], price["epsilon"]) == ("measurement", answer["charged_epsilon"])
    assert wait(world.submit(ann, id, asked, query(1), kind="prices"))["prices"][0]["source"] == "cached"
    assert [entry["sequence"] for entry in world.entries(id)] == [1]
    world.audit()


def _told_apart(thetas: dict[Any, Any]) -> list[tuple[Any, bytes]]:
    """By marginal the bytes of what a fit starts from."""
    return [(marginal, array.tobytes()) for marginal, array in thetas.items()]


def remembered(world: World, id: str) -> Any:
    """What a session's fits start from, as it is in the memory of its lane."""
    live = next(found for lane in world.answering._lanes if (found := lane.residents.get(id)) is not None)
    fits = live.session.state.policy.fits
    return (
        [(name, place.restriction._taken, _told_apart(place.thetas)) for name, place in fits._places.items()],
        [(key, version) for key, (version, _) in fits._fits.items()],
        dict(fits._one_ways),
        fits._seen,
    )


@pytest.mark.parametrize("session", ["evidence", "contract", "within"])
def test_fits_start_where_they_did(priced: Priced, session: str) -> None:
    """A fit starts from the last one on its attributes: those that a price makes are forgotten. Catches a price that
    changes last digits of answers to come."""
    id = priced.open(session)
    for question in SESSIONS[session][1][:5]:
        priced.ask(id, question)
    before = remembered(priced.world, id)
    for question in SESSIONS[session][1]:
        priced.priced(id, question)
    priced.priced(id, {"type": "marginal", "attributes": ["income", "region"]})
    assert remembered(priced.world, id) == before
