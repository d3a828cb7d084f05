"""Conditions on records: what a ``where`` selects, attribute by attribute or on the combinations of some attributes.

Conditions of which all must hold select, of each attribute, some values. With ``any`` and ``not`` they select
combinations of values of the attributes that they name, which often are a product of values nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import chain

import numpy as np
import numpy.typing as npt

from app.declarations.conditions import Condition, Where
from app.spaces.errors import InvalidQuery
from app.spaces.queries.linear import MOST_LOCAL
from app.spaces.tensor import Members, meeting
from app.spaces.values import Values

Selection = npt.NDArray[np.bool_]
#: The axis and the values of the attribute of a name; raises InvalidQuery where there is none.
LookUp = Callable[[str], tuple[int, Values]]


def named(where: Where) -> set[str]:
    """The attributes that conditions name."""
    return {name for part in _parts(where) for name in part.conditions}


def are_together(where: Where) -> bool:
    """Whether conditions are looked at on combinations of values."""
    return bool(where.any) or where.not_ is not None or any(map(are_together, where.all))


def selected(where: Where, look_up: LookUp) -> dict[int, Members] | None:
    """By axis the values that satisfy conditions of which all must hold; None where there are others.

    Raises:
        InvalidQuery: when one does not fit its attribute.
    """
    if are_together(where):
        return None
    found: dict[int, Members] = {}
    for part in _parts(where):
        for name, condition in part.conditions.items():
            axis, values = look_up(name)
            members = values.members(condition)
            found[axis] = meeting(found[axis], members) if axis in found else members
    return found


def combinations(where: Where, look_up: LookUp) -> tuple[tuple[int, ...], Selection]:
    """The axes that conditions of any form name, ascending, and which combinations of their values satisfy them.

    Raises:
        InvalidQuery: when there are too many of these.
    """
    lengths = {axis: values.attribute.length for axis, values in map(look_up, named(where))}
    if math.prod(lengths.values()) > MOST_LOCAL:
        raise InvalidQuery(
            f"where: the attributes have {math.prod(lengths.values()):,} combinations of values, and with any and not "
            f"at most {MOST_LOCAL:,} are looked at: name fewer attributes"
        )
    axes = tuple(sorted(lengths))

    def holds(name: str, condition: Condition) -> Selection:
        axis, values = look_up(name)
        chosen = np.zeros(lengths[axis], dtype=bool)
        chosen[values.members(condition)] = True
        return chosen.reshape([lengths[a] if a == axis else 1 for a in axes])

    def evaluated(part: Where) -> Selection:
        # The longest first: however conditions stand in one another, few selections are held at a time.
        inner: list[tuple[int, Callable[[], Selection]]] = [(_weight(p), partial(evaluated, p)) for p in part.all]
        if part.any:
            some = sorted(part.any, key=_weight, reverse=True)
            inner.append((_weight(*some), lambda: reduce(np.logical_or, map(evaluated, some))))
        if part.not_ is not None:
            negated = part.not_
            inner.append((_weight(negated), lambda: ~evaluated(negated)))
        inner.sort(key=lambda each: each[0], reverse=True)
        own = (holds(name, condition) for name, condition in part.conditions.items())
        return reduce(np.logical_and, chain((made() for _, made in inner), own), np.ones([1] * len(axes), dtype=bool))

    return axes, np.broadcast_to(evaluated(where), [lengths[axis] for axis in axes]).copy()


def _weight(*wheres: Where) -> int:
    """How much conditions are made of."""
    return sum(1 for where in wheres for _ in _parts(where))


def _parts(where: Where) -> Iterator[Where]:
    """Conditions with all that they are made of."""
    yield where
    if where.all or where.any or where.not_ is not None:
        for inner in (*where.all, *where.any, *([] if where.not_ is None else [where.not_])):
            yield from _parts(inner)
