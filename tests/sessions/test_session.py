"""The state of a session: what is answered without a round, in which order things are checked, what counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constructions.mechanism import parse_mechanism
from app.constructions.registry import unfit
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import QueriesExhausted, UpdatesExhausted
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.mechanisms.round import Hit, play
from app.curator.opening import Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session, units_of
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from tests.kit.strategies import BUDGET, Universe, answer, asked, data, queries, released, told, universe, universes

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "size": 4}, {"name": "x1", "size": 3}],
        "budget": BUDGET,
    }
)


def session(u: Universe = TABLE, records: float | None = 10**6, construction: str = "mw", **more: Any) -> Session:
    request = {"dataset": "t", "mechanism": {"construction": construction}, "epsilon": 0.5, "max_queries": 10} | more
    return opened(PublicDataset(parse_spec(u.declared), records), request)


def opened(dataset: PublicDataset, asked: dict[str, Any]) -> Session:
    request = parse_request(asked)
    return Session(Opening(dataset, request, make_plan(dataset, request)))


def cell(i: int, u: Universe = TABLE) -> Query:
    return u.compiled({"type": "sparse", "indices": [i], "weights": [1.0]})


NOTHING = TABLE.compiled({"type": "sparse", "indices": [], "weights": []})


def hit(s: Session, query: Query, value: float) -> None:
    """Record a measurement, as after a round that was due."""
    due = s.consider(query)
    assert isinstance(due, Test)
    s.record(query, released(s.grid(value), "measurement", due.error_bound))


def miss(s: Session, query: Query) -> None:
    due = s.consider(query)
    assert isinstance(due, Test)
    s.record(query, released(int(due.hypothesis[0]), "hypothesis", due.error_bound))


# ------------------------------------------------------------------------------------------------ order of checks


def best_effort_out_of_updates() -> Session:
    s = session(max_updates=1)
    hit(s, cell(0), 5000.0)
    return s


def guaranteed_out_of_updates() -> Session:
    s = session(max_queries=1000)
    hit(s, cell(0), 5000.0)
    while s.updates_left:
        s.learn(cell(1 + s.updates_used % 5), np.array([s.grid(5000.0)]))
    return s


def guaranteed_but_for_a_forfeit() -> Session:
    s = session(max_queries=1000)
    hit(s, cell(0), 5000.0)
    while s.updates_used - s.state.forfeits < (s.plan.update_bound or 0) - 1:
        s.learn(cell(1 + s.updates_used % 5), np.array([s.grid(5000.0)]))
    while s.updates_left:
        s.forfeit()
    return s


def out_of_queries() -> Session:
    s = session(max_queries=2, max_updates=5)
    hit(s, cell(0), 5000.0)
    miss(s, cell(1))
    return s


def out_of_both() -> Session:
    s = session(max_queries=1, max_updates=1)
    hit(s, cell(0), 5000.0)
    return s


CASES = [
    # state, and what a new, a known, a zero and an unverified query get
    (lambda: session(max_updates=5), {"new": "round", "zero": "hypothesis", "unverified": "unverified"}),
    (
        best_effort_out_of_updates,
        {"new": UpdatesExhausted, "known": "cached", "zero": "hypothesis", "unverified": "unverified"},
    ),
    (
        guaranteed_out_of_updates,
        {"new": "hypothesis", "known": "cached", "zero": "hypothesis", "unverified": "unverified"},
    ),
    (
        guaranteed_but_for_a_forfeit,
        {"new": UpdatesExhausted, "known": "cached", "zero": "hypothesis", "unverified": "unverified"},
    ),
    (
        out_of_queries,
        {"new": QueriesExhausted, "known": "cached", "zero": QueriesExhausted, "unverified": "unverified"},
    ),
    (out_of_both, {"new": QueriesExhausted, "known": "cached", "zero": QueriesExhausted, "unverified": "unverified"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "table"), CASES)
def test_what_is_checked_first(make: Callable[[], Session], table: dict[str, Any]) -> None:
    """Unverified questions are always answered, known ones come from what was given, then the queries must last, zero
    queries cost no round, then the updates. Would catch a round that is paid for though the answer is public, an answer
    after exhaustion, and a bound on an answer of a hypothesis that has not learnt what its guarantee rests on."""
    s = make()
    before = (s.sequence, s.queries_asked, s.updates_used)
    for kind, wanted in table.items():
        query = {"new": cell(7), "known": cell(0), "zero": NOTHING, "unverified": cell(0)}[kind]
        if isinstance(wanted, type):
            with pytest.raises(wanted) as refused:
                s.consider(query)
            assert "unverified" in refused.value.detail
        else:
            due = s.consider(query, unverified=kind == "unverified")
            if wanted == "round":
                assert isinstance(due, Test)
                assert due.error_bound >= s.plan.error_bound
            else:
                assert isinstance(due, Answer)
                assert due.unverified == (wanted == "unverified")
                assert due.source == ("hypothesis" if due.unverified else wanted)
                if kind == "zero":
                    assert told(due) == ([0], "hypothesis", 0.0, False)
                elif due.unverified:
                    assert due.error_bound is None
                    present = s.mechanism.construction.answer(s.state.hypothesis, query)
                    assert s.real(int(due.units[0])) == pytest.approx(present, abs=s.real(1))
                elif wanted == "cached":
                    assert told(due) == ([s.grid(5000.0)], "cached", s.mechanism.error_bound(query), False)
                else:
                    assert due.error_bound == s.mechanism.error_bound(query)
        # Looking at a question changes nothing.
        assert (s.sequence, s.queries_asked, s.updates_used) == before


def test_weights_too_small_for_the_grid_still_have_an_error() -> None:
    """Half of 2^-20 on a million records may be half a record: would catch a bound of zero on an answer of zero."""
    s = session(max_updates=5)
    tiny = TABLE.compiled({"type": "product", "weights": {"x0": [4e-7] * 4}})
    assert tiny.is_zero
    due = s.consider(tiny)
    assert isinstance(due, Answer)
    assert due.units.tolist() == [0]
    assert due.error_bound == pytest.approx(4e-7 * 10**6)


@pytest.mark.parametrize("form", ["product", "sparse", "dense"])
def test_bounds_on_tiny_weights_are_rounded_up(form: str) -> None:
    """All of the mass may lie in one cell: the bound on an answer of zero is no less than weight times mass. Would
    catch products of float64 numbers that are rounded to the nearest, below the error that they state."""
    s = session(records=10**6 + 1, max_updates=5)
    for i in range(1, 400):
        weights, factor = [i / 3e9] * 4, 1 - i / 1024
        words = {
            "product": {"type": "product", "weights": {"x0": weights, "x1": [factor] * 3}},
            "sparse": {"type": "sparse", "indices": [0], "weights": weights[:1]},
            "dense": {"type": "dense", "weights": weights * 3},
        }
        query = TABLE.compiled(words[form])
        assert query.is_zero
        error = Fraction(weights[0]) * (Fraction(factor) if form == "product" else 1) * Fraction(s.dataset.mass_bound)
        assert Fraction(s.mechanism.error_bound(query)) >= error


def test_a_known_answer_keeps_its_first_value_and_bound() -> None:
    """Asked again under other words, after updates, and as cached once more. Would catch a cache that follows the
    hypothesis, or counts."""
    s = session(max_updates=5)
    query = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})
    miss(s, query)
    first = s.consider(query)
    assert isinstance(first, Answer)
    hit(s, cell(0), 5000.0)
    again = TABLE.compiled({"type": "product", "weights": {"x0": [0.0, 1.0, 0.0, 0.0]}})
    for _ in range(2):
        known = s.consider(again)
        assert isinstance(known, Answer)
        assert told(known) == (first.units.tolist(), "cached", first.error_bound, False)
        s.record(again, known)
    assert (s.sequence, s.queries_asked, s.updates_used) == (4, 2, 1)


def test_a_known_answer_keeps_the_bound_of_the_words_it_is_asked_in() -> None:
    """Words that compile to the same weights are another distance from them. Would catch the bound of words on the grid
    said of words off it, and one that shrinks for those that are nearer."""
    s = session(max_updates=5)
    for exact, off in ([1.0, 0.5], [1.0 - 4e-7, 0.5 - 4e-7]), ([0.0, 0.0], [4e-7, 4e-7]):
        on_grid = TABLE.compiled({"type": "sparse", "indices": [0, 1], "weights": exact})
        off_grid = TABLE.compiled({"type": "sparse", "indices": [0, 1], "weights": off})
        assert on_grid.digest == off_grid.digest
        due = s.consider(on_grid)
        if isinstance(due, Test):
            miss(s, on_grid)
        else:
            s.record(on_grid, due)
        first, second, third = (s.consider(query) for query in (on_grid, off_grid, on_grid))
        assert isinstance(first, Answer)
        assert isinstance(second, Answer)
        assert isinstance(third, Answer)
        assert told(first) == told(third)
        assert first.error_bound == due.error_bound
        assert second.units.tolist() == first.units.tolist()
        assert second.error_bound == pytest.approx(due.error_bound + 4e-7 * 10**6)


@pytest.mark.parametrize(
    "words",
    [
        {"type": "sparse", "indices": [0], "weights": [5e-324]},
        {"type": "dense", "weights": [[5e-324, 0.0, 0.0]] + [[0.0] * 3] * 3},
        {"type": "product", "weights": {"x0": [5e-324, 0.0, 0.0, 0.0]}},
        {"type": "product", "weights": {"x0": [1e-200, 0.0, 0.0, 0.0], "x1": [1e-200, 0.0, 0.0]}},
    ],
    ids=lambda words: words["type"],
)
def test_a_bound_on_little_is_not_nothing(words: Any) -> None:
    """The least weight times less than one of mass is zero in float64. Would catch the answer 0 that is said to be
    exact where it is not."""
    s = session(records=0.25, max_updates=5)
    due = s.consider(TABLE.compiled(words))
    assert isinstance(due, Answer)
    assert due.error_bound is not None
    assert due.error_bound > 0


def test_an_unverified_answer_is_never_remembered() -> None:
    """Would catch an answer without a bound that comes back as a cached one."""
    s = session(max_updates=5)
    s.record(cell(3), s.consider(cell(3), unverified=True))
    assert isinstance(s.consider(cell(3)), Test)
    assert (s.sequence, s.queries_asked) == (1, 0)


@dataclass
class Counters:
    """What the page says of counting: an entry each, a query where a first answer was given, an update a hit."""

    sequence: int = 0
    queries: int = 0
    updates: int = 0
    forfeits: int = 0


@settings(max_examples=40)
@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["ask", "ask", "unverified", "forfeit"]), st.integers(0, 7), st.booleans()),
        max_size=30,
    ),
)
def test_counters_follow_the_entries(guaranteed: bool, steps: list[tuple[str, int, bool]]) -> None:
    """A walk through any entries against three plain counters. Would catch a query that counts twice, an exhausted
    session that goes on, or one that stops early."""
    s = session(max_queries=6, **({} if guaranteed else {"max_updates": 3}))
    most = s.plan.max_updates
    model, given_ = Counters(), set()
    for kind, index, far in steps:
        query = cell(index) if index else NOTHING
        if kind == "forfeit":
            if model.updates < most:
                s.forfeit()
                model.sequence += 1
                model.updates += 1
                model.forfeits += 1
            continue
        try:
            due = s.consider(query, unverified=kind == "unverified")
        except QueriesExhausted:
            assert kind == "ask"
            assert model.queries == 6
            assert index not in given_
            continue
        except UpdatesExhausted:
            learnt = model.updates - model.forfeits
            assert not guaranteed or learnt < (s.plan.update_bound or 0)
            assert model.updates == most
            assert index not in given_
            continue
        if isinstance(due, Test):
            assert model.queries < 6
            assert model.updates < most
            source = "measurement" if far else "hypothesis"
            s.record(query, released(int(due.hypothesis[0]) + (s.grid(1e5) if far else 0), source, due.error_bound))
            model.updates += far
        else:
            s.record(query, due)
        model.sequence += 1
        if kind == "ask" and index not in given_:
            given_.add(index)
            model.queries += 1
        assert (s.sequence, s.queries_asked, s.updates_used) == (model.sequence, model.queries, model.updates)
        assert s.queries_left == 6 - model.queries
        assert s.updates_left == most - model.updates


# ------------------------------------------------------------------------------------------- the error contract


#: Every construction in every geometry; which of them serve a space depends on the space.
MECHANISMS: list[dict[str, Any]] = [
    {"construction": "mw"},
    {"construction": "fk"},
    {"construction": "md", "potential": "entropy"},
    {"construction": "md", "potential": "lp", "ball_p": "none"},
    {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": "none"},
    {"construction": "md", "potential": "group", "axis": "rows", "ball_p": "none"},
    {"construction": "md", "potential": "group", "axis": "columns", "p": 1.25, "ball_p": "none"},
    {"construction": "md", "potential": "schatten", "p": 1.5, "ball_p": "none"},
    {"construction": "median", "sampled": True},
]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_every_answer_keeps_its_bound_while_the_noise_keeps_its_own(d) -> None:
    """Any data of any space, any construction that serves it with any step, any query, noise up to b ln(k/beta): the
    released number is within the stated bound of what the words ask of the data, hit or miss, and a hit's half-space
    holds the data and lies at least alpha beyond the hypothesis. Would catch rounding (of weights, of values, of the
    hypothesis) that no bound covers."""
    u = d.draw(universes())
    x = d.draw(data(u))
    mass = Fraction(sum(x.values()), 1 << u.space.data_bits)
    fits = [m for m in MECHANISMS if unfit(parse_mechanism(m), u.space) is None]
    mechanism = dict(d.draw(st.sampled_from(fits)))
    steps = (
        ["projection", "paper"] if mechanism["construction"] == "median" else ["projection", "paper", "full", "refit"]
    )
    mechanism["step"] = d.draw(st.sampled_from(steps))
    needed = parse_mechanism(mechanism).entropic
    # Of a matrix the sum of entries is never public: it is bought, as any mass may be, and padded.
    public = u.declared["kind"] != "matrix" and (d.draw(st.booleans()) or needed)
    bought = {} if public or not needed else {"mass": Bought(float(math.ceil(mass)) + 1.0, 1.0)}
    request = {
        "dataset": u.declared["name"],
        "mechanism": mechanism,
        "epsilon": 0.5,
        "max_updates": d.draw(st.sampled_from([1, 40])),
        "max_queries": d.draw(st.sampled_from([1, 1000])),
        "beta": d.draw(st.sampled_from([0.9, 0.05])),
    }
    dataset = PublicDataset(parse_spec(u.declared), float(mass) if public else None, bought)
    s = opened(dataset, request)
    plan = s.plan
    largest = largest_noise(s)
    tensor = u.space.tensor(u.array(x))
    for _ in range(3):
        words = d.draw(queries(u))
        try:
            query = u_words(words).compiled(s.dataset.space)
            due = s.consider(query)
        except (QueriesExhausted, UpdatesExhausted, InvalidQuery):
            continue
        truth = answer(asked(u, words), x) / (1 << u.space.data_bits)
        if not isinstance(due, Test):
            assert due.error_bound is not None
            value = Fraction(s.real(int(due.units[0])))
            assert abs(truth - value) <= Fraction(due.error_bound) * (1 + Fraction(1, 10**12))
            continue
        compiled = Fraction(query.exact(tensor), 1 << (query.grid_bits + u.space.data_bits))
        present = s.mechanism.construction.answer(s.state.hypothesis, query)
        noise = d.draw(st.sampled_from([-largest, 0, largest]))
        private = s.dataset.space.to_answer_grid(query.exact(tensor), query)
        outcome = play(int(due.hypothesis[0]), private, noise, plan.threshold_units)
        answered = Fraction(outcome.value, 1 << plan.answer_bits)
        assert abs(truth - answered) <= Fraction(due.error_bound) * (1 + Fraction(1, 10**12))
        if isinstance(outcome, Hit):
            assert abs(compiled - answered) <= Fraction(plan.noise_bound)
            assert abs(compiled - Fraction(present)) >= Fraction(plan.progress)
            assert abs(answered - Fraction(present)) - Fraction(plan.noise_bound) >= Fraction(plan.progress)
        source = "measurement" if isinstance(outcome, Hit) else "hypothesis"
        s.record(query, released(outcome.value, source, due.error_bound))


def u_words(words: Any) -> Any:
    from app.spaces.queries.registry import parse_query

    return parse_query(words)


def largest_noise(s: Session) -> int:
    """The least whole number of units that all noises stay within with probability 1 - beta: with r = e^(-1/scale),
    P[|A| > m] = 2 r^(m+1) / (1 + r), summed over the queries."""
    scale = float(s.plan.noise_scale_units)
    most = math.ceil(scale * math.log(s.plan.max_queries / s.plan.beta))
    # As one exponential: r is so near 1 that a power of it would be off by more than there is to spare.
    assert s.plan.max_queries * 2 * math.exp(-(most + 1) / scale) / (1 + math.exp(-1 / scale)) <= s.plan.beta
    return most


@pytest.mark.parametrize("beta", [0.9, 0.3, 0.05])
def test_coarse_grids_are_in_the_bounds(beta: float) -> None:
    """A capacity of 2^40 leaves answers in 32nds, and a large epsilon noise of a few of those: half a unit of rounding
    is then no trifle. Would catch a noise bound without room for it."""
    u = universe(TABLE.declared | {"capacity": 2**40, "budget": {"epsilon": 1000.0, "delta": 1e-6}})
    s = session(u, 100, epsilon=1000.0, max_updates=1, max_queries=1, beta=beta)
    plan = s.plan
    assert plan.answer_bits == 5
    # The weight puts the exact value half-way between two grid points, of which the further one is answered.
    query = u.compiled({"type": "product", "weights": {"x0": [1 / 64, 0, 0, 0]}})
    tensor = u.space.tensor(u.array({(0, 0): 1}))
    answered = Fraction(u.space.to_answer_grid(query.exact(tensor), query) + largest_noise(s), 32)
    assert answered - Fraction(1, 64) == Fraction(2 * largest_noise(s) + 1, 64)
    assert answered - Fraction(1, 64) <= plan.noise_bound
    # A hit's gap, as far as the grid can tell it, is above alpha for the real numbers too.
    least_hit = plan.threshold_units + 1
    assert Fraction(least_hit - largest_noise(s), 32) - Fraction(1, 32) >= plan.progress


# ------------------------------------------------------------------------------------------------- catching up


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 7), st.sampled_from(["miss", "hit", "unverified", "forfeit"])), max_size=12))
def test_a_session_caught_up_from_entries_is_the_one_that_gave_them(steps: list[tuple[int, str]]) -> None:
    """record() on the server, recall_all(), learn(), skip() and forfeit() from the transcript: the same counters, known
    answers and hypothesis, bit for bit. Would catch a server that goes on from another state after a restart."""
    first, second = session(max_queries=20, max_updates=20), session(max_queries=20, max_updates=20)
    for index, kind in steps:
        query = cell(index)
        if kind == "forfeit":
            first.forfeit()
            second.forfeit()
            continue
        due = first.consider(query, unverified=kind == "unverified")
        if not isinstance(due, Test):
            first.record(query, due)
            second.skip(**{due.source if due.source == "cached" else "unverified": 1})
            continue
        units = int(due.hypothesis[0]) + (first.plan.threshold_units + 5 if kind == "hit" else 0)
        source = "measurement" if kind == "hit" else "hypothesis"
        answer = released(units, source, due.error_bound)
        first.record(query, answer)
        second.recall_all([(query.digest, answer.units.tobytes(), due.error_bound)])
        if kind == "hit":
            second.learn(query, units_of(answer.units.tobytes()))
    assert (first.sequence, first.queries_asked, first.updates_used, first.unverified_left) == (
        second.sequence,
        second.queries_asked,
        second.updates_used,
        second.unverified_left,
    )
    for index in range(1, 8):
        due, same = first.consider(cell(index)), second.consider(cell(index))
        if isinstance(due, Test):
            assert isinstance(same, Test)
            assert (due.hypothesis.tolist(), due.threshold, due.noise.scale, due.price) == (
                same.hypothesis.tolist(),
                same.threshold,
                same.noise.scale,
                same.price,
            )
        else:
            assert isinstance(same, Answer)
            assert told(due) == told(same)
    content = [s.mechanism.construction.export(s.state.hypothesis).content() for s in (first, second)]
    assert content[0] == content[1]


@pytest.mark.parametrize("construction", ["mw", "fk"])
def test_the_papers_mechanisms_refuse_marginals_and_say_who_takes_them(construction: str) -> None:
    """Would catch one noise on all cells of a marginal, and a refusal that leads nowhere."""
    s = session(construction=construction, max_updates=3)
    marginal = TABLE.compiled({"type": "marginal", "attributes": ["x0"]})
    for unverified in (False, True):
        with pytest.raises(InvalidQuery, match="evidence, gaussian, laplace or histogram"):
            s.consider(marginal, unverified=unverified)
    assert s.queries_asked == 0
