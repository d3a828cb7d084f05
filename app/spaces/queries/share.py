"""The part of some records that satisfies further conditions: of all of them, or of each of several groups.

A share is the ratio of two numbers of one partition, the records that satisfy the conditions and the rest of those that
it is asked of. It is found from counts of these alone (:mod:`app.policies.shares`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from pydantic import Field

from app.declarations.conditions import Where
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries.forms import Form
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.predicate import values_looked_at
from app.spaces.queries.request import does_not_fit
from app.spaces.queries.statistic import (
    GroupedQuery,
    StatisticOfCells,
    answer_bits,
    counted,
    read_base,
    records,
)
from app.spaces.query import Query
from app.spaces.questions import Groups, check_told
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import Members


class ShareQuery(GroupedQuery):
    """The part of the records that satisfy every condition of ``where`` which satisfies every condition of ``of`` too.

    With ``group_by`` there is one for each combination of values of some attributes, which ``bins`` merges as in a
    marginal. There is none where there may be no records.
    """

    type: Literal["share"]
    of: Where = Field(description="conditions, as those of where")

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise does_not_fit("share", space)
        base = self.base(space)
        # What is not counted in any group is none of the part.
        there: dict[int, Members] = {}
        if isinstance(base, CompiledMarginal):
            there = {axis: cells.kept for axis, cells in zip(base.axes, base.cells, strict=True)}
        return share_of(space, base, records(space, self._both, there))

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self._both, self.group_by)

    @property
    def _both(self) -> Where:
        return Where(all=[self.where, self.of])

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, TableSpace):
            return None
        said = _ShareForm.read(form)
        part = read_base(space, said.of)
        if isinstance(part, CompiledMarginal):
            raise InvalidQuery("a canonical share is of records of one kind")
        return share_of(space, read_base(space, said.base), part)


class _ShareForm(Form):
    of: dict[str, Any]
    base: dict[str, Any]


@dataclass(frozen=True, eq=False)
class CompiledShare(StatisticOfCells):
    """The part of records that satisfies conditions.

    Attributes:
        base: the numbers of records that it is asked of, one for each group.
        part: the number of those of any group that satisfy the conditions.
        universe: how many values each attribute of the table has.
        answer_bits: answers are whole multiples of ``2^-answer_bits``.
    """

    base: Query
    part: Query
    universe: tuple[int, ...]
    answer_bits: int

    kind = "share"

    @lazy
    def question(self) -> Groups:
        """The numbers of records that it is asked of, as sums of cells of which each satisfies the conditions or does
        not."""
        return self.groups_of(self._marginal)

    @lazy
    def part_question(self) -> Groups:
        """The numbers of those that satisfy the conditions, as sums of the same cells."""
        inside = counted(self.part, self._marginal) >= 0
        return replace(self.question, answers=np.where(inside, self.question.answers, -1))

    @property
    def is_open(self) -> bool:
        """Whether there is a group of which records may satisfy the conditions or not."""
        inside, answers = self.part_question.answers, self.question.answers
        return bool(np.isin(inside[inside >= 0], answers[(inside < 0) & (answers >= 0)]).any())

    @lazy
    def _marginal(self) -> Marginal:
        marginal = self.telling(self.part.question)
        check_told(marginal.cells)
        return marginal

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"base": self.base.canonical, "of": self.part.canonical, "type": self.kind}


def share_of(space: TableSpace, base: Query, part: Query) -> CompiledShare:
    """The share of a part.

    Raises:
        InvalidQuery: when it is 0 or 1 of each group whatever the data are.
    """
    share = CompiledShare(base, part, space.shape, answer_bits("share", Fraction(0), Fraction(1), space.capacity))
    if not base.is_zero and (part.is_zero or not share.is_open):
        raise InvalidQuery(
            "of: whatever the records are, all or none of those that it is asked of satisfy these conditions: name "
            "some that they may or may not satisfy"
        )
    return share
