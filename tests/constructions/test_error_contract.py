"""Every answer is within its stated error while the noises keep their bound: whole sessions of every mechanism.

A session is played as the service plays it, with a noise port whose draws an adversary chooses: at each round the
noise, up to its bound, that makes the error largest. What the answers should be is told from the words of the queries,
exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.constructions.frieze_kannan import FriezeKannan
from app.constructions.mechanism import parse_mechanism
from app.curator.dataset import Bought, PublicDataset
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.mechanisms.round import Hit, Miss, play, race
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import SessionRequest, parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.spaces.query import Query
from tests.constructions.test_update_bounds import EIGHT, walsh
from tests.kit.strategies import released
from tests.questions.rows import ROWS, Cells, Row, Words, digest, signed_product, spread

pytestmark = pytest.mark.contract

# ------------------------------------------------------------------------------------------- sessions to be played


def request_of(row: Row, release: str = "single") -> SessionRequest:
    return parse_request(
        {
            "dataset": row.of.declared["name"],
            "mechanism": row.mechanism,
            "epsilon": 0.5,
            # A set of databases grows with the number of queries.
            "max_queries": 20 if row.construction == "median" else 1000,
            "max_updates": 400,
            "release": release,
        }
    )


def dataset_of(row: Row) -> PublicDataset:
    """The row's data as they would be registered: a mass is public, or bought and padded, and so are norms."""
    declared = row.of.declared | {"budget": {"epsilon": 0.5, "delta": 1e-6}}
    bought = {name: Bought(value, 1.0) for name, value in row.norms.items()}
    # Of a matrix the sum of entries is never public.
    public = not row.padding and declared["kind"] != "matrix"
    if not public and (row.simplex or row.padding):
        bought["mass"] = Bought(row.mass + row.padding, 1.0)
    return PublicDataset(parse_spec(declared), row.mass if public else None, bought)


def plan_of(row: Row, dataset: PublicDataset, request: SessionRequest, *, guaranteed: bool = False) -> Plan:
    """The plan of any session on these data, its noise made small beside them: L a part of their size, T in proportion.

    Errors and progress follow from T and L, and are what is tested; privacy is not at stake here.
    """
    mechanism = row.mechanism if row.construction == "smw" else {"construction": "fk"}
    plan = make_plan(dataset, request.model_copy(update={"mechanism": parse_mechanism(mechanism)}))
    least = math.ceil(math.ldexp(row.of.size / row.coarse, plan.answer_bits))
    return replace(
        plan,
        noise_bound_units=least,
        # A set of databases grows with 1/alpha^2, too.
        threshold_units=(3 if guaranteed or row.construction == "median" else 2) * least,
        scale=plan.scale * least / plan.noise_bound_units,
        guaranteed=guaranteed,
    )


class Port:
    """A noise port whose next draws a test chooses, in grid units."""

    low = False

    def __init__(self) -> None:
        self.draws: list[int] = [0]

    def laplace(self, scale: Any, ahead: int = 1024) -> Port:
        return self

    def poisson(self, mean: Any, cut: int) -> Any:
        raise NotImplementedError("races are given their counts")

    def take(self, n: int) -> npt.NDArray[np.int64]:
        return np.resize(np.array(self.draws, dtype=np.int64), n)

    def refill(self) -> bool:
        return False


@dataclass
class Played:
    """How many answers of each kind a session gave."""

    hits: int = 0
    misses: int = 0
    free: int = 0


class Game:
    """One session against an adversary who knows data and hypothesis, chooses queries and, within its bound, the noise.

    Every released answer is held against what the words ask of the data. A miss, and an answer without a round,
    leaves every bit of the hypothesis as it was.
    """

    def __init__(self, row: Row, *, release: str = "single", guaranteed: bool = False) -> None:
        """With ``guaranteed`` the session has the updates of the construction's bound, and the noise spends them."""
        self.row, self.port, self.spend = row, Port(), guaranteed
        dataset, request = dataset_of(row), request_of(row, release)
        self.session = Session(Opening(dataset, request, plan_of(row, dataset, request, guaranteed=guaranteed)))
        if guaranteed:
            bound = self.session.mechanism.construction.bound(self.session.plan.progress)
            assert bound is not None
            plan = replace(self.session.plan, max_updates=math.floor(bound))
            self.session = Session(Opening(dataset, request, plan))
        self.noise = self.port.laplace(self.session.plan.noise_scale_units)
        self.seen = Played()

    @property
    def state(self) -> bytes:
        return digest(self.session.mechanism.construction, self.session.state.hypothesis)

    def _play(self, query: Query, due: Test) -> Hit | Miss:
        """The round at the noise that makes the error largest; where several do, each in its turn.

        The noise bound has a unit of room for roundings, which the noise itself does not take.
        """
        session, plan, most = self.session, self.session.plan, self.session.plan.noise_bound_units - 1
        private = session.dataset.space.to_answer_grid(self.row.of.exact(query), query)

        def outcome(draws: list[int]) -> Hit | Miss:
            self.port.draws = draws
            if plan.race is None:
                return play(int(due.hypothesis[0]), private, int(self.noise.take(1)[0]), plan.threshold_units)
            return race(int(due.hypothesis[0]), private, self.noise.take(plan.race.cut), 4, plan.threshold_units)

        # Of the draws of a race about half have either sign.
        choices = [[most], [0], [-most]] if plan.race is None else [[most, -most], [0], [-most, most]]
        turn = session.sequence % 3
        outcomes = [outcome(draws) for draws in choices[turn:] + choices[:turn]]
        return max(outcomes, key=lambda found: (self.spend and isinstance(found, Hit), abs(found.value - private)))

    def ask(self, words: Words, query: Query) -> None:
        """One query, its answer held against the truth."""
        session, before = self.session, self.state
        due = session.consider(query)
        if isinstance(due, Test):
            found = self._play(query, due)
            source = "measurement" if isinstance(found, Hit) else "hypothesis"
            present = session.mechanism.construction.answer(session.state.hypothesis, query)
            due = released(found.value, source, due.error_bound)
            if isinstance(found, Hit):
                self.seen.hits += 1
                plan, gap = session.plan, abs(self.row.of.truth(query) - present)
                assert gap >= plan.progress, "an update at a gap that makes too little progress"
                assert abs(session.real(found.value) - present) - plan.noise_bound >= plan.progress
            else:
                self.seen.misses += 1
        else:
            self.seen.free += 1
        assert due.error_bound is not None
        error = abs(self.row.of.meant(words) - Fraction(session.real(int(due.units[0]))))
        assert error <= Fraction(due.error_bound) * (1 + Fraction(1, 10**12)), "an answer breaks its bound"
        session.record(query, due)
        assert session.updates_used == self.seen.hits
        if due.source != "measurement":
            assert self.state == before, "an answer that is no measurement moved the hypothesis"

    def through(self, pool: list[Words]) -> Played:
        """All queries, the worst of those that are left first."""
        left = {query.digest: (words, query) for words in pool if not (query := self.row.of.compiled(words)).is_zero}
        truths = {key: self.row.of.truth(query) for key, (_, query) in left.items()}
        session, last = self.session, 0
        while left:
            state, mechanism = session.state.hypothesis, session.mechanism
            gaps = {k: abs(truths[k] - mechanism.construction.answer(state, left[k][1])) for k in left}
            # Between two hits nothing moves, and so the order of all that are left stays.
            for key in sorted(gaps, key=lambda k: -gaps[k]):
                self.ask(*left.pop(key))
                if self.seen.hits > last:
                    last = self.seen.hits
                    break
        return self.seen


# ------------------------------------------------------------------------------------------------------- the rules


@pytest.mark.slow
@spread(lambda _: True)
def test_every_answer_of_a_session_keeps_its_bound(row: Row) -> None:
    """All queries that an adversary chooses from, worst first, at the worst noise within its bound; what is no
    measurement moves no bit of the hypothesis. Would catch rounding that no bound covers, a threshold or a noise bound
    that is off, a round against another hypothesis than the session's, an update on a miss."""
    game = Game(row)
    seen = game.through(row.of.pool)
    assert seen.hits
    assert seen.misses
    # Known answers come back as they were, unverified ones say so; neither moves anything.
    words = row.of.pool[0]
    query, before = row.of.compiled(words), game.state
    known = game.session.consider(query)
    assert isinstance(known, Answer)
    assert known.source == "cached"
    game.session.record(query, known)
    game.session.record(query, game.session.consider(query, unverified=True))
    game.session.forfeit()
    assert game.state == before


@pytest.mark.slow
@spread(lambda r: r.of.name in "tw" and not r.padding)
def test_every_answer_of_a_race_keeps_its_bound(row: Row) -> None:
    """The same with a Poisson race a round, of four draws of either sign: a smaller bound, T. Would catch a race that
    lets a gap above T pass."""
    game = Game(row, release="race")
    assert game.session.plan.error_bound == game.session.real(game.session.plan.threshold_units)
    seen = game.through(row.of.pool)
    assert seen.hits
    assert seen.misses


def used_up(step: str) -> Played:
    """A guaranteed session of Frieze/Kannan that uses all updates of its bound, as its queries are orthogonal."""
    row = Row({"construction": "fk", "step": step}, Cells(EIGHT, {(0,): 1000}), coarse=2.0002)
    game = Game(row, guaranteed=True)
    signs = [signed_product(EIGHT, [w]) for w in walsh(8)]
    game.through(signs)
    session = game.session
    assert session.updates_left == 0
    cells: list[Words] = [{"type": "predicate", "where": {"x": {"in": [i]}}} for i in range(8)]
    blocks: list[Words] = [{"type": "predicate", "where": {"x": {"in": list(range(i + 1))}}} for i in range(1, 8)]
    for words in signs + cells + blocks:
        query = row.of.compiled(words)
        gap = abs(row.of.truth(query) - session.mechanism.construction.answer(session.state.hypothesis, query))
        assert gap < session.plan.progress, "a gap is left that an update would have been due for"
        if words not in signs:
            game.ask(words, query)
    return game.seen


@pytest.mark.parametrize("step", ["projection", "paper"])
def test_answers_keep_their_bound_after_the_last_update_of_a_guaranteed_session(step: str) -> None:
    """All eight updates of a bound of 8.0 are spent; then no gap of alpha is left, and the hypothesis answers without a
    round. Would catch a bound that is too small: its session would run dry with queries that are still off."""
    seen = used_up(step)
    assert seen.hits == 8
    assert seen.free


# ------------------------------------------------------------------------------------------------- planted bugs


def learns_misses(patch: pytest.MonkeyPatch) -> None:
    """What was no measurement is learnt as if it were one."""
    right = Session.record

    def record(self: Session, query: Query, answer: Answer) -> None:
        right(self, query, replace(answer, source="measurement"))

    patch.setattr(Session, "record", record)


def wide(patch: pytest.MonkeyPatch) -> None:
    """Rounds are played with a threshold of half as much again."""
    right = play
    patch.setitem(globals(), "play", lambda c, v, a, t: right(c, v, a, t + t // 2))


def narrow(patch: pytest.MonkeyPatch) -> None:
    """Rounds are played with a threshold of half of it."""
    right = play
    patch.setitem(globals(), "play", lambda c, v, a, t: right(c, v, a, t // 2))


def stale(patch: pytest.MonkeyPatch) -> None:
    """A round is played against the hypothesis of the start."""
    right = Session.consider

    def consider(self: Session, query: Query, *, unverified: bool = False) -> Answer | Test:
        due = right(self, query, unverified=unverified)
        if isinstance(due, Test):
            due = replace(due, hypothesis=self.mechanism.own(self.mechanism.start(), query))
        return due

    patch.setattr(Session, "consider", consider)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [learns_misses, wide, narrow, stale])
@pytest.mark.parametrize("name", ["fk-projection-t", "mw-paper-r", "md-projection-schatten-1.5-g"])
def test_a_planted_bug_of_a_session_is_found(plant: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put into the code, each of them breaks the rule."""
    (row,) = [r for r in ROWS if r.name == name]
    plant(monkeypatch)
    game = Game(row)
    with pytest.raises(AssertionError):
        game.through(row.of.pool)


def test_a_bound_of_half_the_updates_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the bound a guaranteed session runs dry with gaps above alpha left."""
    right = FriezeKannan.bound
    monkeypatch.setattr(FriezeKannan, "bound", lambda self, progress: right(self, progress) / 2)
    with pytest.raises(AssertionError, match="a gap is left"):
        used_up("paper")
