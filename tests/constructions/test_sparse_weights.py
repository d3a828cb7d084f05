"""Sparse multiplicative weights against MW over all its slots written out, and against the lecture's own argument."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from app.constructions.base import MeasuredQuery, PublicFacts, Step
from app.constructions.sparse_weights import OutOfSlots, SlotsState, SparseWeights, slots_needed
from app.curator.dataset import PublicDataset
from app.curator.errors import UpdatesExhausted
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.opening import Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from tests.kit.strategies import released

pytestmark = pytest.mark.unit

SPACE = space_of(parse_spec({"name": "w", "kind": "multiset", "budget": {"epsilon": 1.0, "delta": 1e-6}}))
#: Counts of 900 in all; the adversaries' pool has elements that do not occur.
COUNTS = {"the": 420, "of": 210, "and": 120, "to": 80, "é": 40, "\U0001f600": 20, "zyzzyva": 10}
POOL = [*COUNTS, "absent", "nobody", ""]
STEPS: list[Step] = ["projection", "paper"]


def query(weights: dict[str, float]) -> Query:
    return parse_query({"type": "elements", "weights": weights}).compiled(SPACE)


def smw(progress: float, step: Step = "projection", sparsity: int = 3, mass: float = 900.0, padded: bool = False):
    return SparseWeights(SPACE, PublicFacts(mass, padded=padded), step, progress, sparsity)


def truth(weights: dict[str, float]) -> float:
    return sum(w * COUNTS.get(e, 0) for e, w in weights.items())


class Written:
    """Algorithm 1 of the lecture over s slots that are all there, on the unit scale."""

    def __init__(self, slots: int) -> None:
        self.d = np.full(slots, 1 / slots)
        self.h: dict[str, int] = {}

    def value(self, element: str) -> float:
        if element in self.h:
            return float(self.d[self.h[element]])
        return float(self.d[len(self.h)]) if len(self.h) < len(self.d) else 0.0

    def answer(self, weights: dict[str, float]) -> float:
        return sum(w * self.value(e) for e, w in weights.items())

    def vector(self, weights: dict[str, float]) -> np.ndarray:
        q = np.zeros(len(self.d))
        for element in sorted(weights):
            if weights[element]:
                self.h.setdefault(element, len(self.h))
                q[self.h[element]] = weights[element]
        return q

    def tilt(self, q: np.ndarray, rate: float) -> None:
        self.d = self.d * np.exp(rate * q)
        self.d /= self.d.sum()

    def project(self, q: np.ndarray, target: float) -> None:
        """The rate at which the tilted distribution answers ``target``, by bisection."""

        def off(rate: float) -> float:
            tilted = self.d * np.exp(rate * q - (rate * q).max())
            return float(q @ tilted / tilted.sum()) - target

        if off(0.0) != 0.0:
            most = 200 / float(np.abs(q[q != 0]).min())  # small weights take long steps
            self.tilt(q, brentq(off, -most, most, xtol=1e-14))


WEIGHTS = st.one_of(st.sampled_from([1.0, -1.0, 0.5, 0.25]), st.integers(-16, 16).map(lambda i: i / 16))
QUERIES = st.dictionaries(st.sampled_from(POOL), WEIGHTS, min_size=1, max_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@given(st.lists(st.tuples(QUERIES, st.floats(-0.9, 0.9)), min_size=1, max_size=6))
def test_it_is_mw_over_all_slots(step: Step, updates: list[tuple[dict[str, float], float]]) -> None:
    """Would catch free slots that are not normalised with the rest, an element whose slot starts from another value
    than it counted before, a step of another length, and a projection that misses its edge."""
    construction = smw(300.0, step)
    state = construction.start()
    written = Written(state.slots)
    for weights, share in updates:
        asked = query(weights)
        if asked.is_zero:
            continue
        present = construction.answer(state, asked)
        assert present == pytest.approx(900 * written.answer(weights), rel=1e-9, abs=1e-9)
        low, high = asked.range
        value = 900 * (high * share if share > 0 else -low * share)
        if value == present:
            continue
        noise = abs(value - present) / 3
        construction.update(state, MeasuredQuery(asked, value, noise))
        q = written.vector(weights)
        if step == "paper":
            written.tilt(q, math.copysign(300 / 900 / 2, value - present))
        else:
            # At the boundary of the simplex, a billionth of the mass short of it.
            margin = (high - low) * 2.0**-30
            written.project(q, min(max((present + (value - present) * 2 / 3) / 900, low + margin), high - margin))
        assert tuple(state.slot_of.items()) == tuple(written.h.items())
        taken = len(state.slot_of)
        np.testing.assert_allclose(state.masses[:taken], 900 * written.d[:taken], rtol=1e-8, atol=1e-9)
        assert state.free == pytest.approx(900 * written.d[-1], rel=1e-8)
        for element in POOL:
            alone = construction.answer(state, query({element: 1.0}))
            assert alone == pytest.approx(900 * written.value(element), rel=1e-8, abs=1e-9)


@given(st.integers(1, 5), st.floats(0.08, 1.5), st.sampled_from([2.0, 4.0]))
def test_slots_are_the_smallest_that_do(m: int, a: float, factor: float) -> None:
    """Would catch an off-by-one of the search, against counting up."""
    s = 1
    while s / (math.log(s) + 1) < factor * m / a**2:
        s += 1
    assert slots_needed(m, a, factor) == s


@given(st.integers(1, 1000), st.floats(1e-4, 0.99), st.sampled_from([2.0, 4.0]))
def test_updates_within_the_bound_leave_a_slot_free(m: int, a: float, factor: float) -> None:
    """Would catch a number of slots that the proof's updates could all take: then there is no slot for other mass."""
    s = slots_needed(m, a, factor)
    assert m * math.floor(factor * math.log(s) / a**2) < s


def worst(construction: SparseWeights, state: SlotsState, most: int) -> dict[str, float]:
    """Of all queries of that many elements, weights in [-1, 1], one of the largest gap: signs on the worst elements."""
    off = {e: COUNTS.get(e, 0) - construction.answer(state, query({e: 1.0})) for e in POOL}
    chosen = sorted(off, key=lambda e: -abs(off[e]))[:most]
    return {e: math.copysign(1.0, off[e]) for e in chosen}


def battle(construction: SparseWeights, alpha: float, adverse: bool) -> Iterable[tuple[SlotsState, dict[str, float]]]:
    """Updates by an adversary who always asks the worst query, with T = 3L and noise at its bound L = alpha/2.

    Adverse noise hides what it can of the gap as long as there still is a hit; then, or always, noise makes hits of
    all gaps above alpha = T - L.
    """
    state, noise = construction.start(), alpha / 2
    while True:
        weights = worst(construction, state, construction.sparsity)
        asked = query(weights)
        gap = truth(weights) - construction.answer(state, asked)
        off = -noise if adverse and abs(gap) - noise > 3 * noise else noise
        if abs(gap) + off <= 3 * noise:
            return
        assert construction.has_room(state, asked)
        construction.update(state, MeasuredQuery(asked, truth(weights) + math.copysign(off, off * gap), noise))
        yield state, weights


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("padding", [0.0, 300.0])
@pytest.mark.parametrize("adverse", [True, False])
@pytest.mark.parametrize("sparsity", [1, 5])
def test_the_bound_holds_against_the_worst_adversary(step: Step, padding: float, adverse: bool, sparsity: int) -> None:
    """Would catch a step of half its length, a bound that forgets the padding, slots that run out."""
    alpha = 60.0
    construction = smw(alpha, step, sparsity, 900 + padding, padding > 0)
    bound = construction.bound(alpha)
    assert bound is not None
    updates = 0
    for updates, (state, _) in enumerate(battle(construction, alpha, adverse), 1):
        assert updates <= bound
        assert len(state.slot_of) <= min(sparsity * updates, len(POOL)) < state.slots
    assert updates > 0


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("padding", [0.0, 300.0])
@pytest.mark.parametrize("adverse", [True, False])
def test_the_potential_falls_as_the_proof_says(step: Step, padding: float, adverse: bool) -> None:
    """KL of the data on the final slots, its other mass spread over the free ones, falls by a^2/4 an update (the
    lecture's step) or a^2/2 (the projection), from at most ln s. Would catch a proof that does not fit the code."""
    alpha, mass = 60.0, 900 + padding
    construction = smw(alpha, step, 3, mass, padding > 0)
    least = (alpha / mass) ** 2 / construction.factor
    rounds = [w for _, w in battle(construction, alpha, adverse)]
    final: list[str] = []
    for weights in rounds:
        final += [e for e in sorted(weights) if e not in final]
    slots = construction.start().slots
    share = np.array([COUNTS.get(e, 0) for e in final]) / mass
    other = 1 - share.sum()

    def potential(state: SlotsState) -> float:
        masses = np.array([state.masses[state.slot_of[e]] if e in state.slot_of else state.free for e in final]) / mass
        free = slots - len(final)
        kept = share > 0
        total = float(share[kept] @ np.log(share[kept] / masses[kept]))
        return total + (other * math.log(other / free / (state.free / mass)) if other > 0 else 0.0)

    before = potential(construction.start())
    assert before <= math.log(slots)
    for state, _ in battle(construction, alpha, adverse):
        after = potential(state)
        assert before - after >= least * (1 - 1e-9)
        assert after >= -1e-12
        before = after


def test_memory_grows_with_updates_and_not_with_slots() -> None:
    """Would catch an array of all slots: at this progress there are 10^12 of them."""
    construction = smw(0.01, sparsity=10, mass=1e4)
    state = construction.start()
    assert state.slots > 10**12
    for i in range(50):
        weights = {f"word {10 * i + j}": 1.0 for j in range(10)}
        construction.update(state, MeasuredQuery(query(weights), 100.0, 1.0))
    assert len(state.slot_of) == 500
    assert len(state.masses) < 2000
    assert construction.nbytes(50) >= 500 * 8


def test_queries_of_more_elements_are_refused() -> None:
    """Would catch slots planned for m elements and taken by more; weights that round to nothing do not count."""
    construction = smw(100.0, sparsity=2)
    construction.admit(query({"a": 1.0, "b": -0.5, "c": 1e-9, "d": 0.0}))
    construction.admit(query({"a": 0.0, "b": 0.0, "c": 0.0}))
    with pytest.raises(InvalidQuery, match="at most 2 elements"):
        construction.admit(query({"a": 1.0, "b": 1.0, "c": 1.0}))


def test_slots_that_run_out_are_told_before_the_round() -> None:
    """Only broken noise bounds get there. Would catch an update that half happens, and an answer that counts slots
    nobody can have."""
    construction = smw(500.0, sparsity=2)
    state = construction.start()
    for i in range(state.slots):
        asked = query({f"{i}": 1.0})
        assert construction.has_room(state, asked)
        construction.update(state, MeasuredQuery(asked, 900.0, 0.0))
    more = query({"one": 1.0, "more": 1.0})
    assert not construction.has_room(state, more)
    assert construction.has_room(state, query({"0": 1.0}))
    before = construction.export(state).content()
    with pytest.raises(OutOfSlots):
        construction.update(state, MeasuredQuery(more, 900.0, 0.0))
    assert construction.export(state).content() == before
    assert construction.answer(state, more) == 0.0
    assert construction.export(state).other == 0.0


def test_the_export_lists_what_the_answers_say() -> None:
    """Would catch an export in another order or scale than the state's."""
    construction = smw(100.0)
    state = construction.start()
    for weights in ({"the": 1.0, "of": 0.5}, {"é": 1.0}, {"the": -1.0, "absent": 1.0}):
        construction.update(state, MeasuredQuery(query(weights), truth(weights), 1.0))
    found = construction.export(state)
    assert found.elements == ("of", "the", "é", "absent")
    for element, count in zip(found.elements, found.counts, strict=True):
        assert construction.answer(state, query({element: 1.0})) == pytest.approx(count)
    assert construction.answer(state, query({"unheard of": 1.0})) == pytest.approx(found.other)
    total = found.counts.sum() + found.other * (state.slots - len(found.elements))
    assert total == pytest.approx(900)
    assert found.content() == construction.export(state).content()


@pytest.mark.parametrize("step", STEPS)
def test_absurd_measurements_leave_a_finite_hypothesis(step: Step) -> None:
    """Noise has no largest value. Would catch infinities, and a hypothesis that no later update brings back."""
    construction = smw(50.0, step)
    state = construction.start()
    asked: list[dict[str, float]] = [{"the": 1.0}, {"of": -1.0, "and": 0.5}, {"the": 0.25, "é": 1.0}]
    for i in range(60):
        construction.update(state, MeasuredQuery(query(asked[i % 3]), (-1) ** i * 1e9, 1.0))
        values: list[Any] = [state.free, *state.masses[: len(state.slot_of)]]
        assert all(math.isfinite(v) and v >= 0 for v in values)
    if step == "projection":
        construction.update(state, MeasuredQuery(query({"the": 1.0}), 300.0, 0.0))
        assert construction.answer(state, query({"the": 1.0})) == pytest.approx(300.0, rel=1e-6)


def test_what_certifies_nothing_changes_nothing() -> None:
    """A measurement within its noise bound of the answer takes no slot."""
    construction = smw(100.0)
    state = construction.start()
    asked = query({"the": 1.0})
    construction.update(state, MeasuredQuery(asked, construction.answer(state, asked) + 5.0, 6.0))
    assert not state.slot_of
    assert construction.export(state).content() == construction.export(construction.start()).content()


def test_without_a_mass_there_is_no_bound() -> None:
    """Would catch a plan from a mass that nobody knows."""
    assert SparseWeights(SPACE, PublicFacts(), "projection", 10.0, 3).bound(10.0) is None


def test_steps_and_bounds() -> None:
    """The lecture's formulas, by hand at m = 2, a = 1/2: 4m/a^2 = 32, and 163/(ln 163 + 1) is the first to reach it."""
    construction = smw(450.0, "paper", 2)
    s = construction.start().slots
    assert s / (math.log(s) + 1) >= 32 > (s - 1) / (math.log(s - 1) + 1)
    assert construction.bound(450.0) == pytest.approx(16 * (math.log(s) + 1))
    assert construction.step_size(450.0) == 0.25
    better = smw(450.0, "projection", 2).bound(450.0)
    assert better is not None
    assert better < construction.bound(450.0) / 2


def test_a_session_without_room_says_so_before_any_noise() -> None:
    """Ten records and noise of hundreds: one slot. Would catch a round that is played and cannot be learnt, and an
    unverified answer that is refused with it."""
    spec = {"name": "w", "kind": "multiset", "records_public": True, "budget": {"epsilon": 1.0, "delta": 1e-6}}
    words = {"dataset": "w", "mechanism": {"construction": "smw", "sparsity": 1}, "epsilon": 1.0}
    dataset, request = PublicDataset(parse_spec(spec), 10), parse_request({**words, "max_queries": 9, "max_updates": 5})
    session = Session(Opening(dataset, request, make_plan(dataset, request)))
    assert session.state.hypothesis.slots == 1
    first, second = query({"a": 1.0}), query({"b": 1.0})
    assert isinstance(session.consider(first), Test)
    session.record(first, released(session.grid(900.0), "measurement", 1.0))
    with pytest.raises(UpdatesExhausted, match="no room"):
        session.consider(second)
    assert isinstance(session.consider(second, unverified=True), Answer)
    assert isinstance(session.consider(query({"a": 0.5})), Test)
    with pytest.raises(InvalidQuery):
        session.consider(query({"a": 1.0, "b": 1.0}), unverified=True)
