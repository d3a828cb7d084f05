"""Workloads as they are asked for, compiled against the space of a data set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.declarations.errors import CuratorError, InvalidRequest
from app.declarations.naming import unknown
from app.patience import still_wanted
from app.releases.workloads import Cuts, Marginals, Ranges, Sums, Workload
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.forms import kind_of
from app.spaces.queries.registry import from_canonical, is_statistic, parse_query
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.questions import Cells, Sum, check_told
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.workload_request import WorkloadRequest

#: The most marginals of a workload, and the most numbers that one asks for.
MOST_MARGINALS, MOST_NUMBERS = 1 << 14, 1 << 26
#: The most values of all attributes together where each is looked at, and what that takes at a time: some vectors of
#: numbers along each attribute, in a session, a plan or a question.
MOST_VALUES, VALUE_BYTES = 1 << 22, 192
#: The kinds of recorded questions that may ask for counts.
_COUNTED = ("marginal", "predicate", "product", "local", "hierarchy")


def too_many_values(space: Space, name: str) -> str | None:
    """Why what looks at every declared value cannot serve a table; None where it can."""
    values = sum(space.shape)
    if values <= MOST_VALUES:
        return None
    longest = max(range(len(space.shape)), key=lambda axis: space.shape[axis])
    return (
        f"{name} looks at every declared value, at most {MOST_VALUES:,} of all attributes together, of which there are "
        f'{values:,}; "{space.names[longest]}" alone has {space.shape[longest]:,}: declare fewer values, a coarser '
        "grid or bins, or use gaussian or laplace"
    )


def values_bytes(space: Space) -> int:
    """The memory that looking at every declared value of a table takes; 0 where nothing does, as they are too many."""
    values = sum(space.shape) if isinstance(space, TableSpace) else 0
    return VALUE_BYTES * values if values <= MOST_VALUES else 0


def compiled(space: Space, asked: WorkloadRequest, *, published: bool = False) -> Workload:
    """The workload that a request states.

    Attributes whose values are counted in bins at first are asked in these.

    Args:
        space: of the data set.
        asked: the request.
        published: whether it is that of a publication, which holds statistics too.

    Raises:
        InvalidRequest: when the data set has no such workload, or it asks for too much.
    """
    if asked.cuts is not None or asked.rank_one is not None:
        if isinstance(space, TableSpace) or space.extent == "unbounded":
            raise InvalidRequest(f"workload.{asked.kind}: a {space.kind} has none: use marginals, ranges or queries")
        return Cuts(asked.rank_one is not None)
    if not isinstance(space, TableSpace):
        raise InvalidRequest(
            f"workload.{asked.kind}: serves tables, and this is a {space.kind}: use cuts or rank_one, which are "
            "released with the whole of it"
        )
    refused = too_many_values(space, "a release")
    if refused is not None:
        raise InvalidRequest(refused)
    if asked.marginals is not None:
        return _marginals(space, asked.marginals, asked.attributes)
    if asked.ranges is not None:
        axis = _axis(space, asked.ranges)
        return Ranges(axis, cells_of(space, axis))
    questions: list[Sum | Cells] = []
    statistics: dict[int, CompiledStatistic] = {}
    for number, query in enumerate(asked.queries or asked.recorded or ()):
        still_wanted()
        try:
            found = parse_query(query).compiled(space) if asked.queries else from_canonical(space, query, {})
            if isinstance(found, CompiledStatistic):
                statistics[number] = _told(found, published=published)
            elif found.is_zero:
                raise InvalidQuery("no record can satisfy the conditions, so the answer is 0: leave it out")
            else:
                questions.append(_released(space, found))
        except CuratorError as error:
            # Those of a publication were asked for as tables.
            raise InvalidRequest(f"question {number + 1} of the workload: {error.detail}") from None
    if not statistics and not any(question.attributes for question in questions):
        raise InvalidRequest(
            "the questions tell nothing apart, and ask for the number of all records: a session tells it"
        )
    if all(isinstance(question, Cells) for question in questions):
        return Marginals(tuple(question.marginal_of(space.shape) for question in questions), statistics)
    return Sums(tuple(questions), statistics)


def _released(space: TableSpace, found: Query) -> Sum | Cells:
    """What is released for a question: with conditions all cells that these tell apart, as those outside cost nothing,
    and help."""
    question = found.question
    if found.chosen is None and isinstance(question, Sum | Cells):
        return question
    return Cells(question.marginal_of(space.shape))


def _told(found: CompiledStatistic, *, published: bool) -> CompiledStatistic:
    """A statistic that a publication can hold.

    Raises:
        InvalidQuery: when it cannot, or the release is none.
    """
    if not published:
        raise InvalidQuery(f"a {found.kind} is asked in sessions, and published; other releases are of counts")
    if found.counts.is_zero:
        raise InvalidQuery("no record can satisfy the conditions, so there is no answer: leave it out")
    check_told(found.counts.question.cells)
    return found


def counts_records(question: Sum | Cells) -> bool:
    """Whether each number that is asked for counts records: the weights of a sum are 0 and 1."""
    return isinstance(question, Cells) or set(np.unique(question.on(question.partitions)).tolist()) <= {0.0, 1.0}


def is_published(space: Space, form: Mapping[str, Any]) -> bool:
    """Whether a question of this canonical form asks for what a publication holds: counts of a table's records, or a
    statistic of them."""
    if not isinstance(space, TableSpace) or not (kind_of(form) in _COUNTED or is_statistic(form)):
        return False
    found = from_canonical(space, form, {})
    if isinstance(found, CompiledStatistic):
        return not found.counts.is_zero
    return not found.is_zero and counts_records(_released(space, found))


def cells_of(space: TableSpace, axis: int) -> Partition:
    """The cells that an attribute's values are counted in where nothing else is asked."""
    starting = space.starting.get(axis)
    return Partition.singles(space.shape[axis]) if starting is None else Partition.runs(space.shape[axis], starting)


def _axis(space: TableSpace, name: str) -> int:
    if name not in space.names:
        raise InvalidRequest(f"workload: {unknown('attribute', name, space.names, 'the attributes are')}")
    return space.names.index(name)


def _marginals(space: TableSpace, count: int, attributes: list[str] | None) -> Marginals:
    axes = sorted(range(len(space.shape)) if attributes is None else (_axis(space, name) for name in attributes))
    if count > len(axes):
        raise InvalidRequest(f"workload.marginals: of {len(axes)} attributes at most {len(axes)} are taken together")
    if math.comb(len(axes), count) > MOST_MARGINALS:
        raise InvalidRequest(
            f"workload.marginals: {math.comb(len(axes), count):,} marginals are too many, at most {MOST_MARGINALS:,}: "
            "name fewer attributes, or take fewer together"
        )
    cells = {axis: cells_of(space, axis) for axis in axes}
    found = [Marginal.of(space.shape, {a: cells[a] for a in chosen}) for chosen in itertools.combinations(axes, count)]
    workload = Marginals(tuple(dict.fromkeys(found)))
    if workload.numbers > MOST_NUMBERS:
        raise InvalidRequest(
            f"workload.marginals: {workload.numbers:,} cells are too many, at most {MOST_NUMBERS:,}: name fewer "
            "attributes, or take fewer together"
        )
    return workload
