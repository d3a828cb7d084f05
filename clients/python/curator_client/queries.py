"""The contract's queries: each function returns the JSON object to send. NumPy arrays and numbers may be given.

Whether a query fits its data set is for the service to say: nothing is checked here.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Query = dict[str, Any]
Nodes = Literal["all"] | Iterable[int | str]
#: Groups of nodes: the nodes of each by its name, or for each node the name of its group, None where it has none.
Groups = Mapping[str, Nodes] | Iterable[Any]
#: By attribute the edges of coarser bins, or the values of each group by its name.
Bins = Mapping[str, Iterable[float] | Mapping[str, Iterable[Any]]]


@dataclass(frozen=True)
class Dense:
    """A ``dense`` query: a weight for every cell of the space, sent as an ``.npy`` body, which is shorter than JSON."""

    weights: NDArray[np.float64] = field(repr=False)

    def body(self) -> bytes:
        """The array in NumPy's file format."""
        import numpy as np

        buffer = io.BytesIO()
        np.save(buffer, self.weights, allow_pickle=False)
        return buffer.getvalue()

    def as_json(self) -> Query:
        """The same query as JSON, for a batch."""
        return {"type": "dense", "weights": self.weights.tolist()}


QueryLike = Mapping[str, Any] | Dense


def _plain(value: Any) -> Any:
    """A value that can become JSON: NumPy's scalars and arrays are Python's, dates their text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(item) for item in value]
    return value


def _weights(values: ArrayLike) -> list[float]:
    import numpy as np

    flat: list[float] = np.asarray(values, dtype=np.float64).tolist()
    return flat


def _nodes(nodes: Nodes) -> Any:
    return nodes if isinstance(nodes, str) else _plain(list(nodes))


def where(given: Mapping[str, Any] | None = None, /, **conditions: Any) -> dict[str, Any]:
    """Conditions by attribute, all of which must hold, as predicates and marginals have them.

    A condition is ``{"between": [a, b]}``, ``{"in": [...]}``, ``{"equals": v}`` or comparisons such as
    ``{"ge": 30, "lt": 65}``; a bare value means ``equals``, a list, tuple, set or range means ``in``. None stands for
    the records without a value, a date (of the standard library) for its text. Attributes whose
    names are no Python names go in ``given``::

        where({"marital-status": 3}, age={"ge": 30, "lt": 40}, sex=["female"])

    Beside attributes there may be ``all`` and ``any``, lists of further conditions, and ``not``, what must not hold::

        where(any=[where(age={"ge": 65}), where(workclass=[1, 4])])
    """
    return _spelled({**(given or {}), **conditions})


def _spelled(conditions: Mapping[str, Any]) -> dict[str, Any]:
    spelled: dict[str, Any] = {}
    for name, condition in conditions.items():
        if name in ("all", "any"):
            spelled[name] = [_spelled(part) for part in condition]
        elif name == "not":
            spelled[name] = _spelled(condition)
        elif isinstance(condition, Mapping):
            spelled[name] = _plain(condition)
        elif isinstance(condition, list | tuple | set | frozenset | range) or getattr(condition, "shape", None):
            spelled[name] = {"in": _plain(condition)}
        else:
            spelled[name] = {"equals": _plain(condition)}
    return spelled


def predicate(given: Mapping[str, Any] | None = None, /, **conditions: Any) -> Query:
    """How many records satisfy every condition; these as for :func:`where`::

    predicate({"marital-status": 3}, age={"between": [30, 40]}, sex=["female"])
    """
    return {"type": "predicate", "where": where(given, **conditions)}


def marginal(
    attributes: str | Iterable[str],
    *,
    bins: Bins | None = None,
    where: Mapping[str, Any] | None = None,
) -> Query:
    """How many records have each combination of values of some attributes: a table of counts, one question.

    Args:
        attributes: their names; the table's axes are in their order.
        bins: for some of them the edges of coarser bins, among the declared ones (of codes, integers), or groups of
            values that are counted as one, by name: ``{"work": {"employed": ["full", "part"], "not": ["none"]}}``.
            What is in no bin and no group is not counted.
        where: conditions on these and other attributes, as for :func:`where`.
    """
    return {"type": "marginal", "attributes": _names(attributes)} | _narrowed(where, bins)


def _names(attributes: str | Iterable[str]) -> list[str]:
    return [attributes] if isinstance(attributes, str) else list(attributes)


def _narrowed(where: Mapping[str, Any] | None, bins: Bins | None) -> Query:
    """The bins and conditions of a question, where it has any."""
    said: Query = {}
    if bins:
        said["bins"] = {
            name: _plain(
                {label: list(values) for label, values in merged.items()}
                if isinstance(merged, Mapping)
                else list(merged)
            )
            for name, merged in bins.items()
        }
    if where:
        said["where"] = _spelled(where)
    return said


def statistic(
    kind: Literal["sum", "mean", "variance", "quantile"],
    of: str,
    *,
    q: float | Iterable[float] | None = None,
    where: Mapping[str, Any] | None = None,
    group_by: str | Iterable[str] = (),
    bins: Bins | None = None,
) -> Query:
    """A statistic of an attribute that is declared with a grid, over records that have a value of it.

    Args:
        kind: which.
        of: the attribute.
        q: of quantiles the part of the records that lies below, or several, ascending; with others None.
        where: conditions, as for :func:`where`.
        group_by: attributes; there is a statistic for each combination of their values.
        bins: for some of these the edges of coarser bins or groups of values, as for :func:`marginal`.
    """
    query: Query = {"type": kind, "of": of}
    if q is not None:
        query["q"] = _plain(list(q)) if isinstance(q, Iterable) else _plain(q)
    if groups := _names(group_by):
        query["group_by"] = groups
    return query | _narrowed(where, bins)


def asks_table(query: Mapping[str, Any]) -> bool:
    """Whether the answer is a table: of counts, of blocks or degrees of a graph, or of a statistic by groups or at
    several parts."""
    several = query.get("q")
    return (
        query.get("type") in ("marginal", "blocks", "degrees", "hierarchy")
        or bool(query.get("group_by"))
        or (isinstance(several, list) and len(several) > 1)
    )


def product(weights: Mapping[str, ArrayLike] | None = None, /, **by_name: ArrayLike) -> Query:
    """A weight vector in [-1, 1] for each named attribute; the others weigh one."""
    return {
        "type": "product",
        "weights": {name: _weights(values) for name, values in {**(weights or {}), **by_name}.items()},
    }


def cut(left: Nodes, right: Nodes) -> Query:
    """The number (or weight) of edges from ``left`` to ``right``; ``"all"`` means every node."""
    return {"type": "cut", "left": _nodes(left), "right": _nodes(right)}


def blocks(left: Groups, right: Groups | None = None, only: Literal["within"] | None = None) -> Query:
    """The edges (or their weight) between groups of nodes, or sums of a matrix' entries: a table, one question.

    Args:
        left: the groups that edges begin at, or of rows: by name the nodes of each, or a list or array with the name of
            each node's group, None (or NaN) for nodes that are not counted. Such a list is of nodes that are numbered.
        right: those that edges end at, or of columns; the same where they are left out.
        only: ``within`` asks only from each group to the one of the same name.
    """
    query: Query = {"type": "blocks", "left": _groups(left)}
    if right is not None:
        query["right"] = _groups(right)
    return query if only is None else query | {"only": only}


def _groups(given: Groups) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {str(name): _nodes(nodes) for name, nodes in given.items()}
    found: dict[str, Any] = {}
    for node, name in enumerate(given):
        plain = _plain(name)
        if plain is not None and plain == plain:  # NaN is not itself
            found.setdefault(str(plain), []).append(node)
    return found


def degrees(side: Literal["left", "right", "out", "in"] | None = None, bins: Iterable[int] | None = None) -> Query:
    """How many nodes of a graph without weights have a degree in each bin: a table, one question.

    Args:
        side: whose degrees: ``out`` or ``in`` of a directed graph, ``left`` or ``right`` of a bipartite one; None of an
            undirected one.
        bins: the least degree of each bin, ascending from 0; the last has no end. Doubling where they are left out.
    """
    query: Query = {"type": "degrees"}
    if side is not None:
        query["side"] = side
    if bins is not None:
        query["bins"] = _plain(list(bins))
    return query


def rank_one(left: ArrayLike, right: ArrayLike) -> Query:
    """``left' X right`` for two weight vectors."""
    return {"type": "rank_one", "left": _weights(left), "right": _weights(right)}


def sparse(indices: Sequence[int] | Sequence[Sequence[int]] | NDArray[np.integer[Any]], weights: ArrayLike) -> Query:
    """Weights of the listed cells, by flat row-major index or one list of coordinates a cell."""
    return {"type": "sparse", "indices": _plain(indices), "weights": _weights(weights)}


def dense(weights: ArrayLike) -> Dense:
    """A weight for every cell, in the shape of the space."""
    import numpy as np

    return Dense(np.ascontiguousarray(weights, dtype=np.float64))


def elements(weights: Mapping[str, float]) -> Query:
    """Weights of the named elements of a multiset; every other element weighs zero."""
    return {"type": "elements", "weights": {name: float(weight) for name, weight in weights.items()}}


def weighted(query: Query) -> Query:
    """The same query of weighted records: each counts as many times as the attribute with the role of a weight says."""
    return {**query, "weighted": True}


def unverified(query: QueryLike) -> Query:
    """The same query, to be answered by the hypothesis alone, free of charge and without an error bound."""
    spelled = query.as_json() if isinstance(query, Dense) else dict(query)
    return {**spelled, "unverified": True}
