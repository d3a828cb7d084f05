"""From a declaration to its space."""

from __future__ import annotations

from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.spaces.graph import bipartite_space, graph_space
from app.spaces.matrix import matrix_space
from app.spaces.multiset import multiset_space
from app.spaces.space import Space
from app.spaces.table import table_space


def space_of(spec: Spec, capacity: int | None = None) -> Space:
    """The space that a declaration describes; ``capacity`` replaces the declared bound on its mass.

    Raises:
        InvalidDataset: when the universe cannot be addressed.
    """
    space: Space
    match spec:
        case TableSpec():
            space = table_space(spec)
        case BipartiteSpec():
            space = bipartite_space(spec)
        case GraphSpec():
            space = graph_space(spec)
        case MatrixSpec():
            space = matrix_space(spec)
        case MultisetSpec():
            space = multiset_space(spec)
    return space if capacity is None else space.with_capacity(capacity)
