"""From a declaration to its space."""

from __future__ import annotations

from dataclasses import replace

from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.spaces.errors import InvalidQuery
from app.spaces.graph import bipartite_space, graph_space
from app.spaces.matrix import matrix_space
from app.spaces.multiset import multiset_space
from app.spaces.queries.predicate import predicate
from app.spaces.questions import Sum
from app.spaces.space import Space
from app.spaces.table import table_space
from app.spaces.zeros import Zeros


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
    space, declared = table_space(spec), list[Sum]()
    for number, where in enumerate(spec.zeros or ()):
        try:
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
