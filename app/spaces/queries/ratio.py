"""Ratios of two sums: that of one attribute on a grid over that of another, of some records or of each of their groups.

Each sum is of the records that have a value of its own attribute, as it is when it is asked for alone. Both follow from
counts of records and from moments of the two attributes (:mod:`app.policies.ratios`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from pydantic import Field, StrictStr

from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries.forms import Form, Whole
from app.spaces.queries.predicate import values_looked_at
from app.spaces.queries.request import does_not_fit
from app.spaces.queries.statistic import GroupedQuery, OnGrid, StatisticOfCells, axis_of, check_axis, read_base
from app.spaces.query import Query
from app.spaces.questions import Cells, Groups, Product, check_told
from app.spaces.space import Space
from app.spaces.table import TableSpace

#: Answers are whole multiples of a power of two that many bits below the ratio of the largest numbers.
_BITS = 40


class RatioQuery(GroupedQuery):
    """The sum of an attribute over the sum of another one, both declared with a grid, of the records that satisfy every
    condition; a record without a value of one of them adds nothing to its sum.

    With ``group_by`` there is one for each combination of values of some attributes, which ``bins`` merges as in a
    marginal. There is none where the sum below may be zero.
    """

    type: Literal["ratio"]
    of: StrictStr = Field(description="the attribute whose sum is divided")
    per: StrictStr = Field(description="the attribute by whose sum it is divided")

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise does_not_fit("ratio", space)
        of, per = (axis_of(space, "ratio", name) for name in (self.of, self.per))
        if of == per:
            raise InvalidQuery("per: is the attribute of the sum that is divided, so that the ratio is 1: name another")
        ratio = _of(space, self.base(space), of, per)
        ratio.check(self.of, self.per)
        return ratio

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self.where, [*self.group_by, self.of, self.per])

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, TableSpace):
            return None
        said = _RatioForm.read(form)
        for axis in (said.of, said.per):
            check_axis(space, axis)
        if said.of == said.per:
            raise InvalidQuery("a canonical ratio is of two attributes")
        ratio = _of(space, read_base(space, said.base), said.of, said.per)
        ratio.check("of", "per")
        return ratio


class _RatioForm(Form):
    of: Whole
    per: Whole
    base: dict[str, Any]


@dataclass(frozen=True)
class Numbers(OnGrid):
    """The numbers of an attribute on a grid.

    Attributes:
        axis: of the attribute.
        low: its least number.
        step: of its grid.
        places: how many numbers it has.
        times: another attribute, by whose numbers they are multiplied as they lie to either side of their middle.
    """

    axis: int
    low: float
    step: float
    places: int
    times: Numbers | None = None

    @classmethod
    def of(cls, space: TableSpace, axis: int) -> Numbers:
        """Those of an attribute of a table."""
        attribute = space.attributes[axis]
        return cls(axis, float(attribute.bounds[0]), float(attribute.step), attribute.places)

    @property
    def unit(self) -> float:
        """What all of them are whole multiples of, from their middle."""
        return self.step * (1.0 if self.times is None else self.times.step)

    @property
    def axes(self) -> tuple[int, ...]:
        """The attributes that they follow from."""
        return (self.axis,) if self.times is None else (self.axis, self.times.axis)


@dataclass(frozen=True, eq=False)
class CompiledRatio(StatisticOfCells):
    """The sum of an attribute over that of another.

    Attributes:
        base: the numbers of records that it is asked of, one for each group.
        of: the numbers whose sum is divided.
        per: the numbers by whose sum it is divided.
        universe: how many values each attribute of the table has.
        answer_bits: answers are whole multiples of ``2^-answer_bits``.
    """

    base: Query
    of: Numbers
    per: Numbers
    universe: tuple[int, ...]
    answer_bits: int

    kind = "ratio"

    @property
    def weighed(self) -> tuple[int, ...]:
        return self.of.axis, self.per.axis

    @lazy
    def question(self) -> Groups:
        """The numbers of records with a value of the attribute by whose sum it is divided."""
        return self.below(self._marginal)

    @lazy
    def of_question(self) -> Groups:
        """The numbers of records with a value of the attribute whose sum is divided, as sums of the same cells."""
        return self.above(self._marginal)

    def below(self, marginal: Marginal) -> Groups:
        """The numbers of records of the sum below, as sums of cells of a marginal that tells them apart."""
        return self.valued(self.per, marginal)

    def above(self, marginal: Marginal) -> Groups:
        """Those of the sum above."""
        return self.valued(self.of, marginal)

    @lazy
    def apart(self) -> bool:
        """Whether a record may have a value of one of the two attributes alone."""
        return not np.array_equal(self.question.answers, self.of_question.answers)

    @lazy
    def within(self) -> bool:
        """Whether every record that has a value of the one above has one of the one below."""
        return bool((self.question.answers[self.of_question.answers >= 0] >= 0).all())

    def check(self, of: str, per: str) -> None:
        """Refuse a ratio that is the same whatever the data are.

        Args:
            of: the name of the attribute whose sum is divided.
            per: that of the other.

        Raises:
            InvalidQuery: when no record that it is asked of can have a value of one of them.
        """
        if self.base.is_zero:
            return
        for place, name, question in (("of", of, self.of_question), ("per", per, self.question)):
            if bool((question.answers < 0).all()):
                raise InvalidQuery(
                    f"{place}: no record that satisfies the conditions has a value of {name}, whatever the records "
                    "are: change where"
                )

    def marginal(self, numbers: Iterable[Numbers], singly: Iterable[Numbers] = ()) -> Marginal:
        """The cells that tell its groups apart, and in each of these the records with a value of some attributes, and
        single values of others."""
        told = [self._told(each) for each in numbers if self._asks_unvalued(each)]
        single = (axis for each in singly for axis in each.axes)
        return self.telling(*told, *(Cells(Marginal.of(self.universe, {axis: None})) for axis in single))

    def valued(self, numbers: Numbers, marginal: Marginal) -> Groups:
        """The numbers of records with a value of an attribute, as sums of cells of a marginal that tells them apart."""
        groups = self.groups_of(marginal)
        if numbers.axis not in marginal.attributes:
            return groups
        place = marginal.attributes.index(numbers.axis)
        there = marginal.partition(place).members < numbers.places
        there = there.reshape([-1 if k == place else 1 for k in range(len(marginal.attributes))])
        return replace(groups, answers=np.where(there, groups.answers, -1))

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"base": self.base.canonical, "of": self.of.axis, "per": self.per.axis, "type": self.kind}

    @lazy
    def _marginal(self) -> Marginal:
        marginal = self.marginal((self.per, self.of))
        check_told(marginal.cells)
        return marginal

    def _told(self, numbers: Numbers) -> Product:
        return Product.over({numbers.axis: np.arange(self.universe[numbers.axis]) < numbers.places})

    def _asks_unvalued(self, numbers: Numbers) -> bool:
        """Whether some of the records that it is asked of may have no value of an attribute."""
        if self.universe[numbers.axis] == numbers.places:
            return False
        marginal = self.telling(self._told(numbers))
        place = marginal.attributes.index(numbers.axis)
        unvalued = marginal.partition(place).labels[numbers.places]
        return bool((self.groups_of(marginal).answers.take(unvalued, axis=place) >= 0).any())


def _of(space: TableSpace, base: Query, of: int, per: int) -> CompiledRatio:
    above, below = (space.attributes[axis] for axis in (of, per))
    most = [max(abs(bound) for bound in attribute.bounds) for attribute in (above, below)]
    scale = Fraction(most[0]) / Fraction(most[1])
    bits = _BITS + scale.denominator.bit_length() - scale.numerator.bit_length()
    return CompiledRatio(base, Numbers.of(space, of), Numbers.of(space, per), space.shape, bits)
