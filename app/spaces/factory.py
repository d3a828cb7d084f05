"""From a declaration to its space."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.spaces.errors import InvalidQuery
from app.spaces.graph import bipartite_space, graph_space
from app.spaces.matrix import matrix_space
from app.spaces.multiset import multiset_space
from app.spaces.queries.conditions import named
from app.spaces.queries.predicate import predicate, values_looked_at
from app.spaces.questions import Sum
from app.spaces.space import Space
from app.spaces.table import table_space
from app.spaces.zeros import NO_ZEROS, Zeros

#: The most values and combinations of values that all zeros of a table are looked at on, and of how many declarations
#: what they say is remembered.
MOST_LOOKED_AT, _KEPT = 1 << 24, 64


def space_of(spec: Spec) -> Space:
    """The space that a declaration describes.

    Raises:
        InvalidDataset: when the universe cannot be addressed, or a structural zero does not fit the attributes.
    """
    match spec:
        case TableSpec():
            return replace(table_space(spec), zeros=zeros_of(spec))
        case BipartiteSpec():
            return bipartite_space(spec)
        case GraphSpec():
            return graph_space(spec)
        case MatrixSpec():
            return matrix_space(spec)
        case MultisetSpec():
            return multiset_space(spec)


def zeros_of(spec: TableSpec) -> Zeros:
    """What is declared not to occur of a table.

    Raises:
        InvalidDataset: when a structural zero does not fit the attributes, or they leave no record.
    """
    return _zeros_of(_Declared(spec)) if spec.zeros else NO_ZEROS


class _Declared:
    """A declaration, equal to others that declare the same zeros of the same attributes."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._text = spec.model_dump_json(include={"attributes", "zeros"})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Declared) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=_KEPT)
def _zeros_of(told: _Declared) -> Zeros:
    # A space is made of a declaration again and again; what zeros say takes long where they are of many values.
    space, declared, looked_at = table_space(told.spec), list[Sum](), 0
    for number, where in enumerate(told.spec.zeros or ()):
        try:
            looked_at += values_looked_at(space, where, sorted(named(where)))
            if looked_at > MOST_LOOKED_AT:
                raise InvalidQuery(
                    f"at most {MOST_LOOKED_AT:,} values, and with any and not combinations of values, are looked at in "
                    "all zeros together: declare fewer, or of fewer values"
                )
            found = predicate(space, where)
        except InvalidQuery as error:
            raise InvalidDataset(f"zeros.{number}: {error.detail}") from None
        if found.is_zero:
            raise InvalidDataset(f"zeros.{number}: no combination of values satisfies it: leave it out")
        assert isinstance(found.question, Sum)
        declared.append(found.question)
    try:
        return Zeros.of(declared)
    except ValueError as error:
        raise InvalidDataset(f"zeros: {error}") from None
