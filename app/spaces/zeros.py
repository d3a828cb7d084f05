"""Structural zeros: combinations of values that are declared not to occur.

Each zero is a set of combinations of some attributes' values. Zeros that share attributes, directly or through others,
are looked at together, over the values that they tell apart: the possible combinations of these are an array of a few
dimensions, whatever the size of the universe. Those of different such families name different attributes, so that a box
of values (a cell of a marginal) holds a possible combination if it does so for each family. Which cells of a marginal
are impossible is thus known exactly, and without a look at the universe.

Zeros are declared, hence public. They bound what data there can be, and not how neighbours differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.spaces.lazy import lazy
from app.spaces.partition import Partition
from app.spaces.questions import Local, Product, Question, Sum
from app.spaces.tensor import Array, FloatArray, IntArray

#: A family's values are told apart in so many combinations at most.
MOST_COMBINATIONS = 1 << 18
#: In a question of more cells nothing is looked for.
_MOST_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class Family:
    """Zeros that are looked at together.

    Attributes:
        attributes: that they name, ascending.
        classes: of each the values that they do not tell apart.
        possible: for each combination of these whether it can occur, an axis an attribute; some can.
    """

    attributes: tuple[int, ...]
    classes: tuple[Partition, ...]
    possible: Array

    def onto(self, attributes: Sequence[int]) -> Family | None:
        """What it says of some attributes: which combinations are of a record that can be; None where it names none."""
        kept = [a in attributes for a in self.attributes]
        if not any(kept):
            return None
        summed = tuple(place for place, own in enumerate(kept) if not own)
        named = [(a, own) for a, own, is_kept in zip(self.attributes, self.classes, kept, strict=True) if is_kept]
        return Family(
            tuple(a for a, _ in named), tuple(own for _, own in named), np.asarray(self.possible.any(axis=summed))
        )

    def within(self, cells: Sequence[Partition]) -> Array:
        """Which boxes of cells, a partition of each attribute, hold a possible combination."""
        found: Array = self.possible
        for place, (own, asked) in enumerate(zip(self.classes, cells, strict=True)):
            met = _met(own, asked)
            found = np.moveaxis(np.tensordot(met, found.astype(np.float64), axes=(1, place)) > 0, 0, place)
        return found

    def over(self, cells: Sequence[Partition]) -> Family:
        """The same of a table whose values are such cells of this one's."""
        merged = [_alike(_met(own, asked)) for own, asked in zip(self.classes, cells, strict=True)]
        kinds = tuple(Partition.of(labels) for labels in merged)
        firsts = [Partition.of(kind.labels[asked.labels]) for kind, asked in zip(kinds, cells, strict=True)]
        return Family(self.attributes, kinds, self.within(firsts))


@dataclass(frozen=True, eq=False)
class Choices:
    """The values of an attribute that each of some records may have.

    Attributes:
        allowed: a row for each record, a column for each class of values.
        classes: of each value.
    """

    allowed: Array
    classes: IntArray

    def wrong(self, values: IntArray) -> IntArray:
        """The places of the records that cannot have the values given, one each."""
        return np.flatnonzero(~self.allowed[np.arange(len(values)), self.classes[values]])

    def of(self, records: IntArray | slice = slice(None)) -> Array:
        """For some records whether each value is one, a row each."""
        found: Array = self.allowed[records][:, self.classes]
        return found


@dataclass(frozen=True, eq=False)
class Zeros:
    """All structural zeros of a table; none at all, unless made by :meth:`of`."""

    families: tuple[Family, ...] = ()

    @classmethod
    def of(cls, declared: Sequence[Sum]) -> Zeros:
        """Those of some questions, each of which weighs what it says cannot be one, and all else zero.

        Raises:
            ValueError: when they tell too many combinations apart, or leave none.
        """
        families = []
        for group in _families(declared):
            attributes = tuple(sorted({a for zero in group for a in zero.attributes}))
            classes: dict[int, Partition] = {}
            for zero in group:
                for attribute, own in zip(zero.attributes, zero.partitions, strict=True):
                    classes[attribute] = classes[attribute].met(own) if attribute in classes else own
            shape = tuple(classes[a].cells for a in attributes)
            if math.prod(shape) > MOST_COMBINATIONS:
                raise ValueError(
                    f"those that share attributes tell {math.prod(shape):,} combinations apart, and at most "
                    f"{MOST_COMBINATIONS:,} are looked at: declare fewer, or of fewer attributes"
                )
            possible = np.ones(shape, bool)
            for zero in group:
                shape_of = [classes[a].cells if a in zero.attributes else 1 for a in attributes]
                weighed = zero.on([classes[a] for a in zero.attributes]).reshape(shape_of)
                possible &= weighed == 0
            if not possible.any():
                raise ValueError("together they leave no record that can be")
            families.append(Family(attributes, tuple(classes[a] for a in attributes), possible))
        return cls(tuple(families))

    def __bool__(self) -> bool:
        return bool(self.families)

    def possible(self, attributes: Sequence[int], cells: Sequence[Partition]) -> Array | None:
        """Which cells of a marginal can hold a record, in its shape; None where all can.

        Args:
            attributes: ascending.
            cells: of each.
        """
        found: Array | None = None
        for family in self._onto(attributes):
            own = family.within([cells[list(attributes).index(a)] for a in family.attributes])
            if own.all():
                continue
            shaped = own.reshape([cells[k].cells if a in family.attributes else 1 for k, a in enumerate(attributes)])
            found = shaped if found is None else found & shaped
        return None if found is None else np.broadcast_to(found, [own.cells for own in cells])

    def impossible(self, question: Question) -> Array | None:
        """Which answers are 0 whatever the records, in the shape of the question, as nothing that they weigh can be;
        None where none is known to be."""
        if not self._onto(question.attributes):
            return None
        if isinstance(question, Product):
            return np.array(True) if self._excludes(question) else None
        if question.cells > _MOST_CELLS:
            return None
        possible = self.possible(question.attributes, question.partitions)
        if possible is None:
            return None
        if isinstance(question, Sum):
            found = ~np.any(possible & (question.on(question.partitions) != 0))
        else:
            # What weighs more than one counts as well as what weighs less.
            counts = possible.astype(np.float64)
            squared = getattr(question, "squared", question.of)
            found = squared(counts, question.partitions) == 0
        return np.asarray(found) if np.any(found) else None

    def _excludes(self, question: Product) -> bool:
        """Whether a product weighs nothing that can be: a box, of any number of attributes."""
        if not question.scale:
            return True
        weighed = dict(zip(question.attributes, question.vectors, strict=True))
        for family in self._onto(question.attributes):
            index = [
                np.unique(own.labels[weighed[a] != 0]) for a, own in zip(family.attributes, family.classes, strict=True)
            ]
            if not family.possible[np.ix_(*index)].any():
                return True
        return False

    def cells(self, attributes: Sequence[int]) -> dict[int, Partition]:
        """By attribute the values that zeros tell apart where these attributes alone are looked at."""
        found: dict[int, Partition] = {}
        for family in self._onto(attributes):
            local = Local.over(family.attributes, family.possible)
            for attribute, alike in zip(local.attributes, local.partitions, strict=True):
                own = family.classes[family.attributes.index(attribute)]
                found[attribute] = Partition.of(alike.labels[own.labels])
        return found

    def over(self, attributes: Sequence[int], cells: Sequence[Partition]) -> Zeros:
        """Those of a table whose attributes are some of this one's, with such cells for values."""
        families = []
        for family in self._onto(attributes):
            places = tuple(list(attributes).index(a) for a in family.attributes)
            made = family.over([cells[place] for place in places])
            families.append(Family(places, made.classes, made.possible))
        return Zeros(tuple(families))

    def violated(self, codes: Array) -> Array:
        """Which records cannot be.

        Args:
            codes: a row for each record, a column for each attribute.
        """
        found = np.zeros(len(codes), bool)
        for family in self.families:
            index = [own.labels[codes[:, a]] for a, own in zip(family.attributes, family.classes, strict=True)]
            found |= ~family.possible[tuple(index)]
        return found

    def choices(self, codes: IntArray, attribute: int, known: Sequence[int]) -> Choices | None:
        """Which values of an attribute records may have, beside those that they have of others; None where any.

        Args:
            codes: a row for each record, a column for each attribute.
            attribute: whose values are looked for.
            known: other attributes that records have values of, which can be together.
        """
        for family in self._onto([*known, attribute]):
            if attribute in family.attributes:
                place = family.attributes.index(attribute)
                rows = np.moveaxis(family.possible, place, -1)
                others = [(a, own) for a, own in zip(family.attributes, family.classes, strict=True) if a != attribute]
                found = rows[tuple(own.labels[codes[:, a]] for a, own in others)]
                return Choices(np.broadcast_to(found, (len(codes), rows.shape[-1])), family.classes[place].labels)
        return None

    def _onto(self, attributes: Sequence[int]) -> list[Family]:
        if not self.families:
            return []
        named = frozenset(attributes)
        return [own for own in (self._told(named, family) for family in self.families) if own is not None]

    def _told(self, named: frozenset[int], family: Family) -> Family | None:
        inside = named.intersection(family.attributes)
        known = self._remembered.get((family.attributes, inside))
        if known is None and inside:
            known = self._remembered[family.attributes, inside] = family.onto(tuple(inside))
        return known

    @lazy
    def _remembered(self) -> dict[tuple[tuple[int, ...], frozenset[int]], Family | None]:
        return {}


#: Where nothing is declared.
NO_ZEROS = Zeros()


def raked(shares: FloatArray, targets: Sequence[FloatArray]) -> FloatArray:
    """A product with zeros brought back to its one-way shares, as far as these can be had without the cells that are
    zero: quasi-independence, by iterative proportional fitting.

    Args:
        shares: not negative, one axis an attribute.
        targets: of each attribute the shares of its values.
    """
    for _ in range(_RAKED):
        off = 0.0
        for axis, target in enumerate(targets):
            sums = shares.sum(axis=tuple(k for k in range(shares.ndim) if k != axis))
            wanted = np.where(sums > 0, target, 0.0)
            wanted = wanted / wanted.sum()
            off = max(off, float(np.abs(wanted - sums).max()))
            factors = np.divide(wanted, sums, out=np.zeros(len(sums)), where=sums > 0)
            shares = shares * factors.reshape([-1 if k == axis else 1 for k in range(shares.ndim)])
        if off < _NEAR:
            break
    return shares


#: Rounds of raking at most, and how near one-way shares are near enough.
_RAKED, _NEAR = 200, 1e-6


def _families(declared: Sequence[Sum]) -> list[list[Sum]]:
    """Zeros that share attributes, directly or through others."""
    found: list[tuple[set[int], list[Sum]]] = []
    for zero in declared:
        named, members = set(zero.attributes), [zero]
        apart = []
        for others, group in found:
            if named.isdisjoint(others):
                apart.append((others, group))
            else:
                named |= others
                members = [*group, *members]
        found = [*apart, (named, members)]
    return [members for _, members in found]


def _met(classes: Partition, cells: Partition) -> FloatArray:
    """For each cell the classes that it has a value of, as ones."""
    met = np.zeros((cells.cells, classes.cells))
    inside = cells.labels >= 0
    met[cells.labels[inside], classes.labels[inside]] = 1.0
    return met


def _alike(rows: FloatArray) -> IntArray:
    """A label for each row, equal rows having equal ones."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
