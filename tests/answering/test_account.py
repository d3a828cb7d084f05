"""The account of memory: what is told to it, what lanes may keep of it, and who gives when another needs room."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_array

from app.services.memory import GIVE_SECONDS, Memory
from app.services.openings import FACTOR, opening_bytes
from app.spaces.counts import LineSums
from app.spaces.dense import CountsTensor
from app.spaces.records import RecordsTensor
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import Axis

pytestmark = pytest.mark.unit


def nothing() -> None:
    pass


def test_private_numbers_are_counted_and_leave_less_to_share() -> None:
    """Would catch numbers that nobody counts, and a question that is refused by how many there are: who may ask is
    told nothing of private data by that."""
    private = [0]
    memory = Memory(900, [lambda: private[0]])
    for name in "abc":
        memory.join(name, nothing)
    assert (memory.share, memory.room) == (300, 300)
    memory.tell("a", 250)
    private[0] = 600
    assert (memory.held, memory.share, memory.room) == (850, 100, 300)
    assert not memory.lacks(50)
    assert memory.lacks(51)


@pytest.mark.slow
def test_who_needs_room_waits_until_others_gave() -> None:
    """Those that hold something are told, and nobody else. Would catch one who goes on before there is room, one who
    waits for himself, and one who waits for ever for somebody who does not give."""
    memory, asked = Memory(1000), []

    def give() -> None:
        asked.append("b")
        threading.Timer(0.05, lambda: memory.tell("b", 100)).start()

    memory.join("a", lambda: asked.append("a"))
    memory.join("b", give)
    memory.join("c", lambda: asked.append("c"))
    memory.tell("a", 100)
    memory.tell("b", 800)
    started = time.monotonic()
    memory.ask("a", 500)
    assert asked == ["b"]
    assert not memory.lacks(500)
    assert time.monotonic() - started < GIVE_SECONDS
    started = time.monotonic()
    memory.ask("a", 5000)
    assert GIVE_SECONDS <= time.monotonic() - started < 3 * GIVE_SECONDS


def test_tensors_tell_what_they_and_their_caches_take() -> None:
    """Would catch marginals, row sums and cells that are kept beside the numbers and counted by nobody."""
    records = RecordsTensor([np.zeros(1000, np.uint16), np.zeros(1000, np.uint8)], (300, 5))
    assert records.nbytes == 3000
    assert records.contract((None, None)) == 1000
    records.contract([None, _axis(5)])
    assert records.nbytes == 3000 + 8 * (1 + 5)
    records.gather(np.array([0]))
    assert records.nbytes == 3000 + 8 * (1 + 5) + 16
    dense = CountsTensor(np.ones((200, 300), np.uint8))
    assert dense.nbytes == 60_000
    dense.contract([_axis(200), None])
    assert dense.nbytes == 60_000 + 8 * 200
    sparse = SparseTensor(csr_array((np.ones(2, np.int8), ([0, 1], [1, 0])), shape=(50, 50)))
    before = sparse.nbytes
    next(sparse.tell([LineSums(0)]))
    assert sparse.nbytes == before + 8 * 50
    assert opening_bytes(b"x" * 100) == 100 * FACTOR


def _axis(length: int) -> Axis:
    return Axis(length, slice(0, 1))
