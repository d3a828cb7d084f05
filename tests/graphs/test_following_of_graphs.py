"""Replay of sessions that answer from evidence of graphs and matrices.

They are played in memory by hand, with noise of a seeded generator: measured at the opening, asked, measured again.
Beside the one that played, a second session is told every record after each question, as one that is loaded anew or
followed by another process is: both have to know the same at every step.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible, QueriesExhausted
from app.curator.mechanisms import graph as graph_mechanism
from app.curator.mechanisms.graph import GraphEvidence
from app.curator.mechanisms.protocol import Measured, Target
from app.curator.opening import Opening
from app.curator.session import Session
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.policies import graph as graph_policy
from app.policies.graph import GraphPolicy
from app.privacy.ledger import NOTHING, Account, Amounts
from app.spaces.queries.registry import parse_query
from tests.audit.playing import PlayingGraphs, Told, judged
from tests.kit.forger import Document
from tests.kit.noise import Seeded

#: Each plays a session of some forty questions.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

NODES = 24
#: What is declared of each kind, and what its cells may hold, in units of its grid.
KINDS: dict[str, tuple[Document, int, int]] = {
    "undirected": ({"kind": "graph", "nodes": NODES}, 0, 2),
    "directed": ({"kind": "graph", "nodes": NODES, "directed": True}, 0, 2),
    "bipartite": ({"kind": "bipartite", "left": NODES, "right": 17}, 0, 2),
    "weighted": ({"kind": "graph", "nodes": NODES, "weighted": True, "grid": 0.25}, 0, 5),
    "matrix": ({"kind": "matrix", "rows": NODES, "columns": 15, "lower": -1, "upper": 2, "grid": 0.5}, -2, 5),
}
#: What opens a session, and how it pays.
MODES: dict[str, Document] = {
    "degrees": {"max_queries": 200, "epsilon": 0.5},
    "open": {"epsilon": 0.5},
    "edges": {"max_queries": 400, "epsilon": 1.0, "mechanism": {"construction": "histogram"}},
    "laplace": {"max_queries": 9, "epsilon": 1.0},
    "within": {"epsilon": 0.9, "within": 60.0},
}


def private(kind: str, rng: np.random.Generator) -> Any:
    """Cells at random, with nodes of very different degrees."""
    declared, low, high = KINDS[kind]
    rows = declared.get("nodes") or declared.get("left") or declared["rows"]
    columns = declared.get("nodes") or declared.get("right") or declared["columns"]
    likely = np.minimum(0.9, np.outer(rng.pareto(1.5, rows) + 0.3, rng.pareto(1.5, columns) + 0.3) / 3)
    cells = np.where(rng.random((rows, columns)) < likely, rng.integers(low, high, (rows, columns)), 0).astype(np.int64)
    if declared["kind"] == "graph":
        np.fill_diagonal(cells, 0)
        if not declared.get("directed"):
            cells = np.triu(cells, 1) + np.triu(cells, 1).T
    return cells


class Player(PlayingGraphs):
    """One session, its transcript line by line, and a second session that is told the records alone."""

    def __init__(self, kind: str, seed: int = 0, **words: Any) -> None:
        self.kind, self.rng = kind, np.random.default_rng(seed)
        spec = parse_spec({"name": "g", "budget": {"epsilon": 1.0, "delta": 1e-9}, **KINDS[kind][0]})
        dataset = PublicDataset(spec, left=Account(PublicDataset(spec).budget).whole)
        self.drawn, self.cells = Seeded(self.rng), dataset.space.tensor(private(kind, self.rng))
        self.open(dataset, {"dataset": "g", **words})

    def begin(self, opening: Opening) -> None:
        self._second = Told(opening)

    def add(self, line: bytes) -> None:
        """Write a line, and tell it to the second session."""
        super().add(line)
        self._second.take(line)

    @property
    def told(self) -> Session:
        return self._second.session

    # ------------------------------------------------------------------ questions

    def question(self, number: int) -> Document:
        """One of many kinds."""
        rng, shape = self.rng, self.session.dataset.space.shape
        pairs, graph = self.kind in ("undirected", "weighted"), KINDS[self.kind][0]["kind"] != "matrix"
        if number % 5 == 2:
            sides = (np.round(rng.integers(0 if pairs else -4, 5, n) / 4, 2).tolist() for n in shape)
            return {"type": "rank_one", **dict(zip(("left", "right"), sides, strict=True))}
        if number % 11 == 3:
            sides = (rng.integers(0, 2, n).tolist() for n in shape)  # a cut in other words
            return {"type": "rank_one", **dict(zip(("left", "right"), sides, strict=True))}
        if number % 11 == 5:
            groups = {
                name: part.tolist() for name, part in zip("ab", np.split(rng.permutation(NODES), [9]), strict=True)
            }
            other = {
                name: part.tolist() for name, part in zip("xyz", np.split(rng.permutation(15), [4, 9]), strict=True)
            }
            return {"type": "blocks", "left": groups} | ({} if pairs else {"right": other})
        if number % 11 == 7 and graph and self.kind != "weighted":
            return {"type": "degrees", "bins": [0, 1 + number % 3, 5, 9]} | ({} if pairs else {"side": "left"})
        left, right = (np.flatnonzero(rng.random(n) < rng.choice([0.1, 0.5, 0.9])).tolist() for n in shape)
        return {"type": "cut", "left": left, "right": right}


def known(session: Session) -> tuple[GraphEvidence, GraphPolicy]:
    evidence = session.state
    assert isinstance(evidence, GraphEvidence)
    return evidence, evidence.policy


def same(player: Player) -> None:
    """Hold all that decides in both sessions against each other, to the last bit."""
    (one, first), (other, second) = (known(session) for session in (player.session, player.told))
    assert one.left == other.left
    assert player.session.updates_used == player.told.updates_used
    assert (first._asked, first._measured, first.kappa, first.part()) == (
        second._asked,
        second._measured,
        second.kappa,
        second.part(),
    )
    assert first._measures.places == second._measures.places
    assert np.array_equal(first._measures._sums, second._measures._sums)
    a, b = first.posterior, second.posterior
    assert (a.kept, a.factor, a.shape_factor) == (b.kept, b.factor, b.shape_factor)
    assert np.array_equal(a._solved, b._solved)
    assert np.array_equal(a._root, b._root)


@pytest.mark.parametrize(
    ("kind", "mode"),
    # Every other pair, each kind and each mode among them more than once.
    [(kind, mode) for k, kind in enumerate(KINDS) for m, mode in enumerate(MODES) if (k + m) % 2 == 0],
)
def test_who_is_told_the_records_knows_the_same(kind: str, mode: str) -> None:
    """After each of some forty questions of all kinds, some repeated in other words or with other wishes, a forfeit
    among them, a session that was told the records has the same left, and the same posterior, bit by bit; and the
    transcript replays. Catches a state that hangs on anything but the records: on what was looked at, on words, or on
    the order in which things were thought of.
    """
    player = Player(kind, seed=sum(map(ord, kind + mode)), **MODES[mode])
    asked: list[Document] = []
    sources = set()
    for number in range(42):  # every kind, wish and forfeit comes twice
        words = player.question(number)
        target: Document = {}
        if asked and number % 6 == 1:
            words = asked[int(player.rng.integers(len(asked)))]
            target = [{"within": 40.0}, {"within": 90.0, "confidence": 0.8}, {"adaptive": True}, {"confidence": 0.99}][
                number // 6 % 4
            ]
            if number % 4 == 1:
                target |= {"adaptive": True}
        elif number % 13 == 4:
            target = {"within": 120.0}
        elif number % 17 == 6:
            price, left = Amounts(Decimal("0.00001"), Decimal("0.00001")), known(player.session)[0].left
            if (
                player.session.updates_left > 0
                and price.renyi <= left.renyi
                and (left.pure is None or price.renyi <= left.pure)
            ):
                player.forfeit(price)
        # Looked at, and not asked in the end: leaves nothing behind.
        with contextlib.suppress(CuratorError):
            player.session.consider(parse_query(player.question(number)).compiled(player.session.dataset.space))
        with contextlib.suppress(PlanInfeasible, QueriesExhausted):
            sources.add(player.ask(words, **target).source)
        asked.append(words)
        same(player)
    assert len(sources) > 1
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def blocks(groups: int) -> Document:
    """All nodes, in so many groups."""
    return {"type": "blocks", "left": {str(g): list(range(g, NODES, groups)) for g in range(groups)}}


@pytest.mark.parametrize("groups", [2, 23])
def test_of_many_numbers_nobody_learns(groups: int) -> None:
    """Blocks are learnt from while they are few, by the session that asked and by one that starts from what it shared,
    and beyond that answer for themselves alone. Catches a question whose thousands of numbers every later session
    spends minutes on before its first answer.
    """
    player = Player("undirected", epsilon=0.5)
    player.ask(blocks(groups))
    kept = known(player.session)[1].posterior.kept
    # Beside the sum of all cells, which was measured at the opening.
    assert kept == (4 if groups == 2 else 1)
    later = Session(player.session.opening)
    for line in player.lines:
        record = json.loads(line)
        if record["record"] == "measurement":
            later.pin(replace(Measured.read(record), price=NOTHING))
    query = parse_query(blocks(groups)).compiled(later.dataset.space)
    assert later.mechanism.show(later.state, query, np.zeros(query.numbers, np.int64), Target()).unbiased.all()
    assert known(later)[1].posterior.kept == kept


def test_of_parts_that_weigh_many_nodes_nothing_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured of them is told all the same, asked again too, and cuts are answered as ever. Catches groups of
    a large graph that a lane looks at for minutes, and an answer that is lost for that.
    """
    monkeypatch.setattr(graph_mechanism, "MOST_WEIGHED", 2 * NODES)
    player = Player("undirected", epsilon=0.5)
    first, again = player.ask(blocks(3)), player.ask(blocks(3))
    assert (first.source, again.source) == ("measurement", "cached")
    assert first.accuracy is not None
    assert first.accuracy.unbiased.all()
    assert known(player.session)[1].posterior.kept == 1
    player.ask({"type": "cut", "left": [0, 1, 2, 3], "right": "all"})
    assert known(player.session)[1].posterior.kept == 2
    same(player)
    assert judged(player.transcript()).ok


@pytest.mark.parametrize(
    "asked", [{"type": "degrees", "bins": [0, 2]}, blocks(3), {"type": "cut", "left": [0], "right": [1]}]
)
def test_an_interval_may_be_as_wide_as_one_likes(asked: Document) -> None:
    """Wider than the widest noise that is drawn: that is narrow enough. Catches a refusal that asks for a wider
    interval still."""
    player = Player("undirected", epsilon=0.5)
    answer = player.ask(asked, within=1e12)
    # What is bound to lie within it takes no measurement.
    assert answer.source == ("measurement" if asked["type"] == "degrees" else "estimate")
    assert judged(player.transcript()).ok


@pytest.mark.parametrize(
    ("paid_from", "problem"),
    [(0.0, "the answer has a measurement that was not due"), (1e9, "the answer claims a source that it cannot have")],
)
def test_who_pays_otherwise_is_found_out(paid_from: float, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that pays for what it knows, and one that pays for nothing: neither replays, though every price, noise
    and value in it is in order. Catches an audit that believes what decided."""
    player, half = Player("directed", epsilon=0.5), list(range(12))
    with monkeypatch.context() as changed:
        changed.setattr(graph_policy, "PAID_FROM", paid_from)
        # The noise of half of all cells is far smaller than they can be, and that of one is larger.
        player.ask({"type": "cut", "left": "all", "right": half})
        player.ask({"type": "cut", "left": [0], "right": [1]})
    assert judged(player.transcript()).problem == problem
