"""What the comparison of policies runs on: tables of real records, streams of questions, and the exact answers.

The records are those of ``../shared/data``; what is not there is left out.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Product, Question
from app.spaces.tensor import FloatArray, IntArray

DATA = next((p / "shared" / "data" for p in Path(__file__).resolve().parents if (p / "shared" / "data").is_dir()), None)
#: The eight and the seven attributes of Adult that earlier work on marginals takes.
_ADULT8 = (
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
)
_ADULT7 = tuple(a for a in _ADULT8 if a != "relationship")


@dataclass(frozen=True, eq=False)
class World:
    """A table of records: number of values of each attribute, and the records' values, one row a record."""

    name: str
    sizes: tuple[int, ...]
    records: IntArray

    @property
    def cells(self) -> int:
        """Number of cells of the table."""
        return math.prod(self.sizes)

    @cached_property
    def _known(self) -> dict[tuple[int, ...], FloatArray]:
        return {}

    def counts(self, attributes: tuple[int, ...]) -> FloatArray:
        """The exact marginal, value by value."""
        found = self._known.get(attributes)
        if found is None:
            shape = [self.sizes[a] for a in attributes]
            places = np.zeros(len(self.records), dtype=np.int64)
            for a in attributes:
                places = places * self.sizes[a] + self.records[:, a]
            found = np.bincount(places, minlength=math.prod(shape)).reshape(shape).astype(np.float64)
            if found.size <= 1 << 16:
                self._known[attributes] = found
        return found

    def exact(self, question: Question) -> FloatArray:
        """The true answers."""
        counts = self.counts(question.attributes)
        return question.of(counts, [Partition.singles(n) for n in counts.shape])

    def marginal(self, marginal: Marginal) -> FloatArray:
        """The exact counts of a marginal's cells."""
        counts = self.counts(marginal.attributes)
        return np.asarray(Cells(marginal).of(counts, [Partition.singles(n) for n in counts.shape]))


def read_columns(path: Path, names: Sequence[str] | None = None) -> tuple[list[str], np.ndarray]:
    with path.open() as file:
        rows = list(csv.reader(file))
    header = rows[0]
    kept = list(names or header)
    places = [header.index(name) for name in kept]
    return kept, np.array([[float(row[p]) for p in places] for row in rows[1:]])


def _adult(name: str, attributes: Sequence[str] | None) -> World:
    assert DATA is not None
    sizes = json.loads((DATA / "adult-pgm" / "adult-domain.json").read_text())
    names, values = read_columns(DATA / "adult-pgm" / "adult.csv", attributes or list(sizes))
    return World(name, tuple(sizes[n] for n in names), values.astype(np.int64))


def _titanic() -> World:
    """Six attributes: ages in bins of 15 years, siblings up to three."""
    assert DATA is not None
    sizes = json.loads((DATA / "titanic" / "titanic-domain.json").read_text())
    names, values = read_columns(
        DATA / "titanic" / "titanic.csv", ["Survived", "Pclass", "Sex", "Age", "SibSp", "Embarked"]
    )
    values = values.astype(np.int64)
    values[:, 3] = np.minimum(values[:, 3] // 15, 5)
    values[:, 4] = np.minimum(values[:, 4], 3)
    own = {"Age": 6, "SibSp": 4}
    return World("titanic", tuple(own.get(n, sizes[n]) for n in names), values)


def _fulton() -> World:
    """Twelve attributes of a census sample: ages in bins of ten years, incomes in bins of 20,000."""
    assert DATA is not None
    kept = ["puma", "sex", "age", "educ", "income", "latino", "black", "asian", "married", "children", "employed",
            "disability"]  # fmt: skip
    _, values = read_columns(DATA / "fulton-pums" / "FultonPUMS5full.csv", kept)
    values[:, 2] //= 10
    values[:, 4] = np.clip(values[:, 4] // 20_000, -1, 10)
    columns = [np.unique(column, return_inverse=True)[1] for column in values.T]
    return World("fulton", tuple(int(c.max()) + 1 for c in columns), np.stack(columns, axis=1).astype(np.int64))


def _covid() -> World:
    """A block of 2 x 2 x 4 x 8 cells (positive or not, gender, age, ethnicity) of a week's tests, as the shares by day
    give it, attributes taken to be independent of one another."""
    assert DATA is not None
    folder = DATA / "turbo-covid19"

    def shares(file: str, column: str, count: str, most: int) -> np.ndarray:
        with (folder / file).open() as source:
            rows = [r for r in csv.DictReader(source) if r["date"] == "2021-01-15"]
        values = sorted(
            (float(r[count]) for r in rows if r[column] not in ("Total", "Unknown", "Missing")), reverse=True
        )
        numbers = np.array(values[:most])
        return np.asarray(numbers / numbers.sum())

    gender = shares("covidgender.csv", "Gender", "total_cases_by_gender", 2)
    age = shares("covidage.csv", "Age Group", "total_cases_by_age", 4)
    ethnicity = shares("covidethnicity.csv", "Ethnicity", "total_cases_by_ethnicity", 8)
    with (folder / "covid19cases_test.csv").open() as source:
        rows = [
            r for r in csv.DictReader(source) if r["area"] == "California" and "2021-01-11" <= r["date"] < "2021-01-18"
        ]
    tests = sum(float(r["total_tests"]) for r in rows)
    positive = sum(float(r["positive_tests"]) for r in rows) / tests
    share = np.einsum("i,j,k,l->ijkl", [1 - positive, positive], gender, age, ethnicity).reshape(-1)
    counts = np.random.default_rng(7).multinomial(int(tests), share / share.sum())
    records = np.stack(np.unravel_index(np.repeat(np.arange(len(counts)), counts), (2, 2, 4, 8)), axis=1)
    return World("covid", (2, 2, 4, 8), records.astype(np.int64))


WORLDS: dict[str, Callable[[], World]] = {
    "adult7": lambda: _adult("adult7", _ADULT7),
    "adult8": lambda: _adult("adult8", _ADULT8),
    "adult14": lambda: _adult("adult14", None),
    "titanic": _titanic,
    "fulton": _fulton,
    "covid": _covid,
}


@lru_cache(maxsize=2)
def world(name: str) -> World:
    """A table by name."""
    return WORLDS[name]()


def available() -> bool:
    """Whether the records are there."""
    return DATA is not None


# Streams of questions.


def group_by(table: World, attributes: tuple[int, ...]) -> Question:
    """All cells of a marginal."""
    return Cells(Marginal.of(table.sizes, dict.fromkeys(attributes)))


def predicate(table: World, rng: np.random.Generator, attributes: tuple[int, ...], single: bool = False) -> Question:
    """A condition on each attribute that half of its values meet, or a single one."""
    vectors: dict[int, FloatArray] = {}
    for a in attributes:
        size = table.sizes[a]
        while True:
            chosen = np.arange(size) == rng.integers(size) if single else rng.random(size) < 0.5
            if 0 < chosen.sum() < size:
                break
        vectors[a] = chosen.astype(np.float64)
    return Product.over(vectors)


def several(rng: np.random.Generator, table: World, count: int) -> tuple[int, ...]:
    """Attributes at random."""
    return tuple(sorted(int(a) for a in rng.choice(len(table.sizes), count, replace=False)))


def _tabulation(table: World, seed: int) -> list[Question]:
    """Six one-way tables, six two-way ones, and sixty counts under conditions."""
    rng = np.random.default_rng(1000 + seed)
    ones: list[tuple[int, ...]] = [(int(a),) for a in rng.permutation(len(table.sizes))[:6]]
    twos: list[tuple[int, ...]] = []
    while len(twos) < 6:
        pair = several(rng, table, 2)
        if pair not in twos:
            twos.append(pair)
    counts = []
    for _ in range(60):
        attributes = twos[rng.integers(6)] if rng.random() < 0.5 else several(rng, table, int(rng.integers(1, 4)))
        counts.append(predicate(table, rng, attributes, single=bool(rng.random() < 0.5)))
    return [group_by(table, a) for a in [*ones, *twos]] + counts


def _tables(table: World, seed: int) -> list[Question]:
    """Four one-way and four two-way tables."""
    questions = _tabulation(table, seed)
    return [*questions[:4], *questions[-64:-60]]


def _predicates(count: int, orders: tuple[int, ...]) -> Callable[[World, int], list[Question]]:
    def made(table: World, seed: int) -> list[Question]:
        rng = np.random.default_rng(2000 + seed)
        return [predicate(table, rng, several(rng, table, int(rng.choice(orders)))) for _ in range(count)]

    return made


def _all_triples(table: World, seed: int) -> list[Question]:
    """All three-way tables of the first seven attributes in random order."""
    triples = list(itertools.combinations(range(min(len(table.sizes), 7)), 3))
    order = np.random.default_rng(3000 + seed).permutation(len(triples))
    return [group_by(table, triples[i]) for i in order]


def _drill_down(table: World, seed: int) -> list[Question]:
    """A table of one attribute, then the cells of its three most frequent values with three other attributes; four
    times."""
    rng = np.random.default_rng(4000 + seed)
    questions: list[Question] = []
    for a in rng.permutation(len(table.sizes))[:4]:
        first = int(a)
        questions.append(group_by(table, (first,)))
        top = np.argsort(-table.counts((first,)))[:3]
        for b in rng.permutation([i for i in range(len(table.sizes)) if i != first])[:3]:
            second = int(b)
            for t in top:
                for value in range(min(table.sizes[second], 5)):
                    chosen = {
                        first: np.arange(table.sizes[first]) == t,
                        second: np.arange(table.sizes[second]) == value,
                    }
                    questions.append(Product.over({i: v.astype(np.float64) for i, v in chosen.items()}))
    return questions


def _ranges(table: World, seed: int) -> list[Question]:
    """Two hundred ranges of one to three attributes with many values."""
    rng = np.random.default_rng(5000 + seed)
    wide = sorted(range(len(table.sizes)), key=lambda a: -table.sizes[a])[:4]
    questions: list[Question] = []
    while len(questions) < 200:
        vectors = {}
        for a in rng.choice(wide, int(rng.integers(1, 4)), replace=False):
            low, high = sorted(rng.integers(0, table.sizes[a] + 1, 2))
            vectors[int(a)] = ((np.arange(table.sizes[a]) >= low) & (np.arange(table.sizes[a]) < high)).astype(float)
        if all(v.any() and not v.all() for v in vectors.values()):
            questions.append(Product.over(vectors))
    return questions


STREAMS: dict[str, Callable[[World, int], list[Question]]] = {
    "8 tables": _tables,
    "tabulation": _tabulation,
    "300 predicates": _predicates(300, (2, 3)),
    "10,000 predicates": _predicates(10_000, (3,)),
    "all triples": _all_triples,
    "drill-down": _drill_down,
    "ranges": _ranges,
}


#: How many questions there are that an analyst who knows the truth chooses from.
POOL = 2000


def pool(table: World, seed: int) -> list[Question]:
    """The questions that an analyst who knows the truth chooses from: predicates of three attributes."""
    rng = np.random.default_rng(6000 + seed)
    return [predicate(table, rng, several(rng, table, 3)) for _ in range(POOL)]
