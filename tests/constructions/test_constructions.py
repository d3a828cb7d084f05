"""What every construction keeps, whatever it is made of: one suite over (construction, data, step).

The rows are in :mod:`tests.questions.rows`: small private data on every space, and every construction that serves it.
Each rule is held for the rows that have what it speaks of, and for no others. Bounds on the number of updates are held
in ``test_update_bounds.py``, the error of answers in ``test_error_contract.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.constructions.base import Construction, MeasuredQuery, PublicFacts
from app.constructions.dumps import Dump
from app.constructions.mechanism import parse_mechanism
from app.constructions.registry import construct
from app.services.ports import Snapshot
from app.spaces.queries.registry import from_canonical
from app.spaces.query import Query
from app.spaces.tensor import DenseTensor
from app.storage.snapshots import SnapshotFiles
from tests.kit.strategies import BUDGET, Words, universe
from tests.questions.rows import Cells, Row, Teller, counts, digest, every, only, played, seen, spread, with_step

pytestmark = pytest.mark.contract


@pytest.mark.slow
@only(lambda r: r.single)
def test_answers_are_those_of_one_hypothesis(row: Row) -> None:
    """On every form, before and after updates, answers are those of the exported hypothesis, counted cell by cell; in
    Schatten geometry, of an undirected graph, with one diagonal that answers tell. Would catch a representation that
    answers one form and exports another hypothesis, a diagonal that shows where there is none, a stale marginal."""
    construction, state, taken = seen(row, 1.0)
    assert taken
    queries = row.of.worst()
    teller = Teller(row, queries)
    for st in (construction.start(), state):
        answers = [construction.answer(st, query) for query in queries]
        np.testing.assert_allclose(answers, teller(construction, st), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@only(lambda r: isinstance(r.of, Cells))
def test_the_hypothesis_has_the_shape_of_the_data(row: Row) -> None:
    """Finite, of the space's shape; of an undirected graph symmetric with zero diagonal."""
    construction, state, _ = seen(row, 1.0)
    h = counts(construction.export(state))
    assert isinstance(row.of, Cells)
    assert h.shape == row.of.space.shape
    assert np.isfinite(h).all()
    if row.of.u.undirected:
        np.testing.assert_allclose(h, h.T, atol=1e-12)
        assert not np.diagonal(h).any()


@pytest.mark.slow
@only(lambda r: r.simplex)
def test_the_mass_is_kept(row: Row) -> None:
    """Where the mass is a public fact the hypothesis keeps it through every update, and stays non-negative; where it
    is padded, it never passes it."""
    construction, state, _ = seen(row, 1.0)
    for st in (construction.start(), state):
        h = construction.export(st)
        assert (counts(h) >= 0).all()
        if row.mass_kept:
            assert row.of.total(h) == pytest.approx(row.facts.mass, rel=1e-12)
        else:
            assert row.of.total(h) <= row.facts.mass * (1 + 1e-12)


@pytest.mark.slow
@every
def test_a_transcript_gives_one_state_bit_for_bit(row: Row) -> None:
    """What an audit does: the same measurements from the start. Would catch a state that depends on what else was
    asked in between, on an earlier session, or on the order of a dictionary."""
    construction, state, taken = seen(row, 1.0)
    again = row.make(1.0)
    other = again.start()
    probe = row.of.forms()
    for measurement in taken:
        query = from_canonical(
            row.of.space,
            measurement.query.canonical,
            {} if measurement.query.blob is None else {measurement.query.canonical["sha256"]: measurement.query.blob},
        )
        again.update(other, replace(measurement, query=query))
    assert again.export(other).content() == construction.export(state).content()
    # Questions in between may fill caches, which moves the last bits of a sum and nothing more.
    third = again.start()
    for measurement in taken:
        for query in probe:
            again.answer(third, query)
        again.update(third, measurement)
    np.testing.assert_allclose(counts(again.export(third)), counts(again.export(other)), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@spread(lambda _: True)
def test_a_state_survives_on_disk(row: Row, tmp_path: Path) -> None:
    """Dumped, written, read and loaded, at the start and after every update: what comes back answers with the same
    bits, and so after more updates. Would catch a number left out or told in decimals, an order of memory or of
    elements that is lost, a measurement that a refit forgets, arrays shared with the state that was dumped."""
    _, _, taken = seen(row, 1.0)
    survives(lambda: row.make(1.0), [*taken, *taken[:3]], row.of.forms(), tmp_path)


@pytest.mark.parametrize("step", ["projection", "refit"])
@pytest.mark.parametrize("name", ["fk", "schatten"])
def test_a_state_of_low_rank_survives_on_disk(name: str, step: str, tmp_path: Path) -> None:
    """The same of matrices that are sums of few terms, asked for cuts alone, beyond the room that such a sum begins
    with. Would catch terms, bases or coefficients left out, and a sum that forgets its diagonal."""
    graph = universe({"name": "g", "kind": "graph", "nodes": 60, "budget": BUDGET})
    words = {
        "fk": {"construction": "fk"},
        "schatten": {"construction": "md", "potential": "schatten", "ball_p": "none"},
    }
    mechanism = parse_mechanism({**words[name], "step": step})
    cuts: list[Words] = [{"type": "cut", "left": list(range(i, i + 9)), "right": [0, 3 * i, 59]} for i in range(1, 13)]
    queries = [graph.compiled(cut) for cut in cuts]
    taken = [MeasuredQuery(query, 5.0 + 3 * i, 0.5) for i, query in enumerate(queries)]
    kept = survives(lambda: construct(mechanism, graph.space, PublicFacts(300.0), 1.0, 100), taken, queries, tmp_path)
    assert not isinstance(getattr(kept, "form", kept).tensor, DenseTensor)


def survives(make: Callable[[], Construction], taken: list[MeasuredQuery], probe: list[Query], folder: Path) -> Any:
    """Hold a state that goes to the disk and back before each update against one that does not."""
    construction, files = make(), SnapshotFiles(folder, 1 << 30)
    kept, state = construction.start(), construction.start()
    for measurement in taken:
        dump = construction.dump(state)
        files.write("0" * 32, Snapshot(dump.words, dump.arrays))
        read = files.read("0" * 32)
        assert read is not None
        state = make().load(Dump(read.arrays, read.facts))
        assert construction.export(state).content() == construction.export(kept).content()
        assert [construction.answer(state, q) for q in probe] == [construction.answer(kept, q) for q in probe]
        construction.update(kept, measurement)
        construction.update(state, measurement)
    assert construction.export(state).content() == construction.export(kept).content()
    return kept


@pytest.mark.slow
@every
def test_a_new_start_is_untouched_by_an_old_session(row: Row) -> None:
    """Would catch starts that share an array."""
    construction = row.make(1.0)
    before = construction.export(construction.start()).content()
    state = construction.start()
    query = row.of.forms()[0]
    construction.update(state, MeasuredQuery(query, construction.answer(state, query) + 9.0, 1.0))
    assert construction.export(construction.start()).content() == before
    assert construction.export(state).content() != before


@pytest.mark.slow
@spread(lambda _: True)
def test_an_update_moves_the_answer_towards_the_measurement_and_no_further(row: Row) -> None:
    """With projections onto the edge of what the measurement certifies, which lies between the present answer and the
    value. Would catch a sign, a step of the wrong query, an overshoot past the certified edge."""
    for query in row.of.forms():
        low, high = query.range
        for side in (1, -1):
            construction = row.make(0.5)
            state = construction.start()
            present = construction.answer(state, query)
            room = min((high if side > 0 else -low) * row.facts.mass - side * present, 6.0)
            if not row.simplex:
                room = 6.0
            if room <= 0.5:
                continue
            value = present + side * room
            construction.update(state, MeasuredQuery(query, value, 0.25 * room))
            after = construction.answer(state, query)
            assert side * (after - present) > 0
            if row.tight:
                assert after == pytest.approx(present + side * 0.75 * room, rel=1e-7, abs=1e-7)


@pytest.mark.slow
@only(lambda r: r.step == "projection" and r.single)
def test_what_certifies_nothing_changes_nothing(row: Row) -> None:
    """A measurement within its own noise bound of the present answer: a projection leaves every bit of the state alone.
    (On a ball's edge it is drawn back by the last bit that it may have been rounded beyond.)"""
    construction, state, _ = played(row, 1.0)
    before, numbers = digest(construction, state), counts(construction.export(state)).copy()
    for query in row.of.forms():
        for off in (-0.4, 0.0, 0.4):
            construction.update(state, MeasuredQuery(query, construction.answer(state, query) + off, 0.5))
            if row.ball:
                np.testing.assert_allclose(counts(construction.export(state)), numbers, rtol=1e-12, atol=1e-12)
            else:
                assert digest(construction, state) == before


@only(lambda r: r.step == "projection" and r.construction == "median")
def test_what_certifies_nothing_halves_a_set_as_the_paper_does(row: Row) -> None:
    """The median mechanism is told of hits alone, and a hit drops the half on the wrong side whatever it certifies: one
    that certifies nothing does what the paper's update does, bit for bit."""
    paper = with_step(row, "paper").make(1.0)
    for query in row.of.forms():
        construction = row.make(1.0)
        states = construction.start(), paper.start()
        value = construction.answer(states[0], query) + 0.4
        for made, state in zip((construction, paper), states, strict=True):
            made.update(state, MeasuredQuery(query, value, 0.5))
        assert digest(construction, states[0]) == digest(paper, states[1])


@pytest.mark.slow
@only(lambda r: r.step == "paper")
def test_a_paper_step_asks_for_the_side_of_a_measurement_alone(row: Row) -> None:
    """It goes by a fixed length (or a half), however far off or certain the value is: any two on one side give the same
    state, bit for bit. (A sampled median draws its points anew from the value; its cuts are the same.) Would catch a
    step that grows with the noise."""
    for query in row.of.forms():
        for side in (-1, 1):
            seen = set()
            for off, noise in ((0.01, 0.5), (3.0, 0.5), (3.0, 9.0)):
                construction = row.make(1.0)
                state = construction.start()
                value = construction.answer(state, query) + side * off
                construction.update(state, MeasuredQuery(query, value, noise))
                if row.mechanism.get("sampled"):
                    seen.add(construction.dump(state).arrays["edges"].tobytes())
                else:
                    seen.add(digest(construction, state))
            assert len(seen) == 1


@pytest.mark.slow
@only(lambda r: r.step == "full")
def test_a_full_step_to_the_present_answer_changes_nothing(row: Row) -> None:
    """Where the measurement is the present answer there is nowhere to go: the state stays, bit for bit. (A simplex sums
    its masses in another order than answers do, and may go the last bits of that.)"""
    construction, state, _ = played(row, 1.0)
    before, numbers = digest(construction, state), counts(construction.export(state)).copy()
    for query in row.of.forms():
        construction.update(state, MeasuredQuery(query, construction.answer(state, query), 0.5))
        if row.simplex:
            np.testing.assert_allclose(counts(construction.export(state)), numbers, rtol=1e-12, atol=1e-12)
        else:
            assert digest(construction, state) == before


@only(lambda r: r.step == "refit")
def test_a_refit_to_what_it_answers_already_stays_where_it_is(row: Row) -> None:
    """It keeps the measurement, so that the state grows; the hypothesis agrees with it and with what it knew before,
    and stays where it was to a small part of the noise bound, what the refits' slack may move."""
    construction = row.make(1.0)
    state = construction.start()
    first, *others = row.of.forms()
    start = construction.answer(state, first)
    value = start + 0.3 * ((first.range[1] * row.mass if row.simplex else 3.0) - start)
    construction.update(state, MeasuredQuery(first, value, 0.5))
    before = counts(construction.export(state)).copy()
    for query in others:
        construction.update(state, MeasuredQuery(query, construction.answer(state, query), 0.5))
    assert construction.answer(state, first) == pytest.approx(value, abs=0.5 * 2.0**-7)
    np.testing.assert_allclose(counts(construction.export(state)), before, rtol=0, atol=0.5 * 2.0**-6)


@only(lambda r: r.bounded)
def test_bounds_and_steps_follow_the_progress(row: Row) -> None:
    """A larger gap needs fewer updates and takes longer steps; a bound is finite and positive."""
    construction = row.make(1.0)
    bounds = [construction.bound(alpha) for alpha in (0.5, 1.0, 2.0, 4.0)]
    assert all(b is not None and 0 < b < math.inf for b in bounds)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]
    steps = [construction.step_size(alpha) for alpha in (0.5, 1.0, 2.0)]
    if steps[0] is not None:
        assert 0 < steps[0] < steps[1] < steps[2]


@pytest.mark.slow
@spread(lambda _: True)
def test_absurd_measurements_leave_a_finite_hypothesis(row: Row) -> None:
    """Noise has no largest value: would catch a hypothesis of infinities after a measurement far outside what the data
    could answer, and one that no later update can bring back."""
    construction = row.make(1.0)
    state = construction.start()
    forms = row.of.forms()
    for i, query in enumerate(forms * 2):
        far = (-1) ** i * 1e6 * row.mass
        construction.update(state, MeasuredQuery(query, far, 1.0))
        assert np.isfinite(counts(construction.export(state))).all()
    if row.tight:
        query = forms[0]
        target = row.mass / 3
        for value in (target, target):
            construction.update(state, MeasuredQuery(query, value, 0.0))
        assert construction.answer(state, query) == pytest.approx(target, rel=1e-5, abs=1e-5)
