"""What private numbers show in the time that it takes to look them up, an element that is there against one that is
not, and a node's edges; and in that of a draw among many numbers, with one record more and without.

Run `python -m benchmarks.service.lookups` (about two minutes). Two data sets that differ in what is asked for are asked
in turn, in one process and without a server: differences of processor time a look-up, and their standard errors over
the rounds.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from app.measurements.strategies.drawn import LEVEL_DIGITS
from app.privacy.noise import Choice
from app.spaces.elements import ElementsTensor
from app.spaces.queries.elements import CompiledElements
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import Axis, IntArray, index_set
from app.storage.private_data import ElementsData

ROUNDS = 21
ELEMENTS, NODES, EDGES = 100_000, 30_000, 200_000
DEGREE, LENGTH = 1_000, 100_000
#: A median of so many records is drawn among so many numbers, at this scale in records.
RECORDS, NUMBERS, SCALE = 20_000, 10_000, 20


def difference(there: Callable[[], object], absent: Callable[[], object], calls: int) -> tuple[float, float, float]:
    """Microseconds a call of the second, what the first takes beyond it, and that difference's standard error."""

    def microseconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        for _ in range(calls):
            work()
        return (time.process_time() - started) / calls * 1e6

    there(), absent()  # what is made once
    gc.disable()
    found = []
    for number in range(ROUNDS):
        # Neither is always the first.
        first, second = (there, absent) if number % 2 else (absent, there)
        times = microseconds(first), microseconds(second)
        found.append(times if number % 2 else times[::-1])
    gc.enable()
    differences = [one - other for one, other in found]
    error = statistics.stdev(differences) / math.sqrt(ROUNDS)
    return statistics.median(other for _, other in found), statistics.mean(differences), error


def multiset(*more: str) -> ElementsTensor:
    """A multiset of numbered words and some more."""
    words = sorted([*(f"word-{i:07}".encode() for i in range(ELEMENTS)), *map(str.encode, more)])
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
    ones = np.ones(len(words), np.int64)
    return ElementsTensor(ElementsData(np.frombuffer(b"".join(words), np.uint8), offsets, ones, len(words)))


def graph(degree: int) -> SparseTensor:
    """A random undirected graph, in which node 7 has so many edges."""
    ends = np.random.default_rng(2).integers(0, NODES, (EDGES, 2))
    ends = ends[(ends[:, 0] != ends[:, 1]) & ~(ends == 7).any(axis=1)]
    ends = np.vstack([ends, [[7, 100 + i] for i in range(degree)]]) if degree else ends
    rows, columns = np.concatenate([ends, ends[:, ::-1]]).T
    matrix = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(NODES, NODES))
    matrix.sum_duplicates()
    return SparseTensor(matrix)


def scores(counts: IntArray) -> IntArray:
    """Of a median: how many records too few or too many lie below each number, in parts that levels are told in."""
    upto, half = np.cumsum(counts), 10**LEVEL_DIGITS // 2
    goal = half * counts.sum()
    nearest: IntArray = np.minimum(np.minimum(goal - 2 * half * (upto - counts), 2 * half * upto - goal), 0)
    return nearest


def spreads() -> dict[str, IntArray]:
    """Numbers of records, by how they are spread."""
    rng, ends, one = np.random.default_rng(3), np.zeros(NUMBERS, np.int64), np.zeros(NUMBERS, np.int64)
    ends[[0, -1]], one[NUMBERS // 3] = RECORDS // 2, RECORDS
    crowded = np.clip(rng.lognormal(math.log(NUMBERS / 8), 0.8, RECORDS), 0, NUMBERS - 1).astype(np.int64)
    return {
        "half of the records at either end": ends,
        "evenly many at each": np.bincount(rng.integers(0, NUMBERS, RECORDS), minlength=NUMBERS),
        "crowded at the lower end": np.bincount(crowded, minlength=NUMBERS),
        "all of them at one": one,
    }


def main() -> None:
    def looked_up(element: str, calls: int) -> tuple[float, float, float]:
        query = CompiledElements((element,), np.array([1]), 0, 0.0)
        there, absent = multiset(element), multiset()
        return difference(lambda: query.exact(there), lambda: query.exact(absent), calls)

    def summed(left: list[int], calls: int) -> tuple[float, float, float]:
        sides = [Axis(NODES, index_set(NODES, np.array(side))) for side in (left, range(0, NODES, 2))]
        many, none = graph(DEGREE), graph(0)
        return difference(lambda: many.contract(sides), lambda: none.contract(sides), calls)

    for name, (absent, more, error) in {
        f"a short element of {ELEMENTS:,}": looked_up("word-0050000x", 20_000),
        f"an element of {LENGTH:,} bytes": looked_up("y" * LENGTH, 2_000),
        f"a cut from one node of {DEGREE:,} edges or of none": summed([7], 2_000),
    }.items():
        print(f"{name}: {absent:.2f} us, where it is there {more:+.3f} us (standard error {error:.3f})")
    choice = Choice(SCALE * 10**LEVEL_DIGITS)
    for name, counts in spreads().items():
        without, with_one = scores(counts), scores(counts + (np.arange(NUMBERS) == 0))
        usual, beyond, error = difference(lambda: choice.of(with_one), lambda: choice.of(without), 20)  # noqa: B023
        print(
            f"a draw among {NUMBERS:,} numbers, {name}: {usual / 1000:.2f} ms, with one record more "
            f"{beyond / 1000:+.3f} ms (standard error {error / 1000:.3f})"
        )


if __name__ == "__main__":
    main()
