"""Which questions are taken for costly, and whose turn it is to have one computed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.declarations.spec import parse_spec
from app.services.answering import costs
from app.services.answering.aside import Aside
from app.services.answering.costs import SlowAskers, seems_costly
from app.spaces.factory import space_of
from app.spaces.space import Space
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
TEN = {"type": "predicate", "where": {"any": [{f"a{i}": 1} for i in range(10)]}, "within": 500}
PAIR = {"type": "predicate", "where": {"a0": 1, "a1": [0, 1]}}


def space(**words: Any) -> Space:
    return space_of(parse_spec({"name": "d", "budget": BUDGET, **words}))


@pytest.fixture
def table() -> Space:
    return space(kind="table", attributes=[{"name": f"a{i}", "size": 2} for i in range(14)])


@pytest.mark.parametrize(
    ("asked", "on_evidence", "costly"),
    [
        (PAIR, True, False),
        (PAIR, False, False),
        (TEN, True, True),
        (TEN, False, False),
        ({"type": "predicate", "where": {"not": {"all": [{f"a{i}": 0} for i in range(8)]}}}, True, True),
        ({"type": "marginal", "attributes": [f"a{i}" for i in range(4)]}, True, False),
        ({"type": "marginal", "attributes": [f"a{i}" for i in range(9)]}, True, True),
        ({"type": "marginal", "attributes": [f"a{i}" for i in range(9)]}, False, False),
        ({"type": "marginal", "attributes": [f"a{i}" for i in range(10)]}, False, True),
        ({"type": "product", "weights": {"a0": [0.5, 1]}}, True, False),
        ({"type": "sparse", "indices": [0] * 5000, "weights": [1] * 5000}, False, True),
        (["no question"], True, False),
        (None, True, False),
    ],
)
def test_by_the_cells_that_are_named(table: Space, asked: Any, on_evidence: bool, costly: bool) -> None:
    """Catches costly predicates that pass for cheap ones, and cheap ones that lose their place in a group."""
    assert seems_costly(table, asked, on_evidence=on_evidence) is costly


def test_by_the_nodes() -> None:
    small, large = (space(kind="graph", nodes=nodes) for nodes in (100, 10**6))
    blocks = {"type": "blocks", "left": {"red": [0, 1], "blue": [2]}}
    assert not seems_costly(small, blocks, on_evidence=True)
    assert seems_costly(large, blocks, on_evidence=True)
    assert seems_costly(small, {"type": "cut", "left": [0] * 5000, "right": "all"}, on_evidence=False)


def test_the_words_are_not_walked_to_their_end(table: Space) -> None:
    """A list of a million lists is told by its length. Catches a look at a question that is itself costly."""

    class Long(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("walked")

    listed = Long([[0, 0]] * (costs.LISTED + 1))
    assert seems_costly(table, {"type": "sparse", "indices": listed, "weights": []}, on_evidence=False)


def test_slow_askers_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches one slow question that is held against its sender for ever, and a list that grows with the names."""
    monkeypatch.setattr(costs, "REMEMBERED", 2)
    now = [0.0]
    slow = SlowAskers(lambda: now[0])
    slow.note("quick", costs.SLOW_SECONDS / 2)
    for name in ("first", "second", "third"):
        slow.note(name, costs.SLOW_SECONDS)
    assert [name in slow for name in ("quick", "first", "second", "third")] == [False, False, True, True]
    now[0] = costs.REMEMBERED_SECONDS
    assert "third" not in slow


def test_principals_take_turns_aside() -> None:
    """Catches one principal's work that is done side by side, or before all of another's."""
    aside, gate, done = Aside(threads=2), threading.Event(), list[str]()
    ended = threading.Semaphore(0)

    def work(name: str, *, held: bool = False) -> None:
        def run() -> None:
            if held:
                gate.wait(30)
            done.append(name)
            ended.release()

        aside.do(name[0], run)

    work("a0", held=True)
    for name in ("a1", "a2", "b0", "b1"):
        work(name)
    aside.start()
    for _ in range(2):
        assert ended.acquire(timeout=patience(30))
    assert done == ["b0", "b1"]
    work("c0")
    assert ended.acquire(timeout=patience(30))
    gate.set()
    for _ in range(3):
        assert ended.acquire(timeout=patience(30))
    assert done == ["b0", "b1", "c0", "a0", "a1", "a2"]
    aside.stop()
