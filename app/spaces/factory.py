"""From a declaration to its space."""

from __future__ import annotations

from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.spaces.graph import bipartite_space, graph_space
from app.spaces.matrix import matrix_space
from app.spaces.multiset import multiset_space
from app.spaces.space import Space
from app.spaces.table import table_space


def space_of(spec: Spec) -> Space:
    """The space that a declaration describes.

    Raises:
        InvalidDataset: when the universe cannot be addressed.
    """
    match spec:
        case TableSpec():
            return table_space(spec)
        case BipartiteSpec():
            return bipartite_space(spec)
        case GraphSpec():
            return graph_space(spec)
        case MatrixSpec():
            return matrix_space(spec)
        case MultisetSpec():
            return multiset_space(spec)
