"""Questions as values: made without a service, equal where they ask the same in the same words.

``where(inlf=1).by("educ", bins={"educ": [0, 12, 16, 19]}).mean("faminc")`` is one. Whether it fits its data set is for
the service to say.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, cast, overload

from curator_client.conditions import Condition, Where, attribute, copied, joined, listed, plain_value, selected

if TYPE_CHECKING:
    from curator_client.answers import Answer, Table

Json = Mapping[str, Any]
A = TypeVar("A", bound="Answer | Table")
S = TypeVar("S")
By = str | Iterable[str]
#: By attribute the edges of coarser bins, or the values of each group by its name.
Bins = Mapping[str, Iterable[Any] | Mapping[str, Iterable[Any]]]
Nodes = Literal["all"] | Iterable[int | str]
#: Groups of nodes: the nodes of each by its name, or for each node the name of its group, None where it has none.
Groups = Mapping[str, Nodes] | Iterable[Any]
Side = Literal["left", "right", "out", "in"]
#: Records that are asked of, in whichever form.
Records = Union["Selection", Condition, Json]

#: Kinds of questions whose answer is a table, whatever else is said.
_TABLES = frozenset(("marginal", "blocks", "degrees", "hierarchy"))


class Question(Generic[A]):
    """What may be asked, and of which kind the answer is. ``str`` says it in words."""

    __slots__ = ("_asked", "_text")

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = dict(asked)
        self._text: str | None = None

    @property
    def json(self) -> Json:
        """As the contract has it: a copy, which may be changed."""
        return cast(Json, copied(self._asked))

    @property
    def is_table(self) -> bool:
        """Whether the answer is a table: by its kind, or as it is asked by groups or at several parts."""
        several = self._asked.get("q")
        return (
            self._asked.get("type") in _TABLES
            or bool(self._asked.get("group_by"))
            or (isinstance(several, list) and len(several) > 1)
        )

    def sql(self, dataset: str) -> str:
        """The same in SQL; raises ValueError where SQL has no words for it."""
        from curator_client.sql_words import statement

        return statement(self._asked, dataset)

    def weighted(self) -> Question[A]:
        """The same of weighted records: each counts as many times as the attribute with the role of a weight says."""
        return Question({**self.json, "weighted": True})

    def unverified(self) -> Question[A]:
        """The same, answered by the session's hypothesis alone: free of charge, and without an error bound."""
        return Question({**self.json, "unverified": True})

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Question) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __str__(self) -> str:
        from curator_client.words import words

        return words(self._asked)

    def __repr__(self) -> str:
        return f"<Question: {self}>"

    @property
    def _canonical(self) -> str:
        if self._text is None:
            self._text = json.dumps(self.json, sort_keys=True)
        return self._text


class Dense(Question["Answer"]):
    """A weight for every cell of a data set. It has a second form, which is shorter than JSON."""

    __slots__ = ("_numbers", "_shape")

    def __init__(self, shape: Sequence[int], numbers: array[float]) -> None:
        super().__init__({"type": "dense"})
        self._shape = tuple(shape)
        self._numbers = numbers

    @property
    def json(self) -> Json:
        """As the contract has it."""
        nested: list[Any] = self._numbers.tolist()
        for length in self._shape[:0:-1]:
            nested = [nested[i : i + length] for i in range(0, len(nested), length)]
        return {"type": "dense", "weights": nested}

    def npy(self) -> bytes:
        """The weights in NumPy's file format (``application/x-npy``)."""
        shape = f"({', '.join(map(str, self._shape))}{',' if len(self._shape) == 1 else ''})"
        order = "<" if sys.byteorder == "little" else ">"
        header = f"{{'descr': '{order}f8', 'fortran_order': False, 'shape': {shape}, }}"
        # The magic string, the version, the header's length: a multiple of 64 bytes, which ends in a newline.
        header += " " * (-(10 + len(header) + 1) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + self._numbers.tobytes()


class Selection:
    """Records that satisfy conditions; :func:`where` makes one. Immutable: each call gives a new one."""

    __slots__ = ("_where",)

    def __init__(self, where: Mapping[str, Any]) -> None:
        self._where = dict(where)

    @property
    def json(self) -> Where:
        """The conditions, as the contract has them."""
        return cast(Where, copied(self._where))

    def where(self, /, *conditions: Condition, **by_name: Any) -> Selection:
        """Those of these records that satisfy further conditions."""
        return Selection(joined(self._where, selected(conditions, by_name)))

    def by(self, *names: str, bins: Bins | None = None) -> Grouped:
        """For each combination of values of some attributes.

        Args:
            names: the attributes; a table's axes are in their order.
            bins: for some of them the edges of coarser bins, or groups of values that are counted as one, by name:
                ``{"work": {"employed": ["full", "part"], "not": ["none"]}}``. What is in none is not counted.
        """
        return Grouped(self._where, names, bins)

    def count(self) -> Question[Answer]:
        """How many there are."""
        return Question({"type": "predicate", "where": self._where})

    def sum(self, of: str) -> Question[Answer]:
        """The sum of an attribute."""
        return Question(self._statistic("sum", of))

    def mean(self, of: str) -> Question[Answer]:
        """The mean of an attribute, of the records with a value."""
        return Question(self._statistic("mean", of))

    def variance(self, of: str) -> Question[Answer]:
        """The mean square of what values of an attribute differ from their mean by."""
        return Question(self._statistic("variance", of))

    def median(self, of: str) -> Question[Answer]:
        """The least value of an attribute that half of the records do not pass, or more."""
        return self.quantile(of, 0.5)

    @overload
    def quantile(self, of: str, q: float) -> Question[Answer]: ...
    @overload
    def quantile(self, of: str, q: Sequence[float]) -> Question[Table]: ...
    def quantile(self, of: str, q: float | Sequence[float]) -> Question[Any]:
        """The least value of an attribute that a part ``q`` of the records do not pass, or more; of several parts,
        ascending, a table."""
        parts = plain_value(q, "q")
        if isinstance(parts, list) and len(parts) < 2:
            raise ValueError("q: several parts make a table; a single one is a number, not a list")
        return Question(self._statistic("quantile", of, q=parts))

    def share(self, /, *conditions: Condition, **by_name: Any) -> Question[Answer]:
        """The part of these records that satisfies conditions, from 0 to 1."""
        return Question(self._statistic("share", selected(conditions, by_name)))

    def ratio(self, of: str, per: str) -> Question[Answer]:
        """The sum of one attribute over the sum of another."""
        return Question(self._statistic("ratio", of, per=attribute(per)))

    def hierarchy(self, of: str) -> Question[Table]:
        """Counts of all categories and groups of categories of an attribute that is declared with levels."""
        asked: dict[str, Any] = {"type": "hierarchy", "attribute": attribute(of)}
        return Question(asked | ({"where": self._where} if self._where else {}))

    def _statistic(self, kind: str, of: str | Where, **more: Any) -> dict[str, Any]:
        asked = {"type": kind, "of": attribute(of) if isinstance(of, str) else of} | more
        return asked | ({"where": self._where} if self._where else {})

    def __eq__(self, other: object) -> bool:
        return self._where == other._where if isinstance(other, Selection) else NotImplemented

    def __hash__(self) -> int:
        return hash(json.dumps(self._where, sort_keys=True))

    def __repr__(self) -> str:
        from curator_client.words import conditions_in_words

        return f"<Selection: {conditions_in_words(self._where) or 'all records'}>"


class Grouped:
    """Records that satisfy conditions, for each combination of values of some attributes."""

    __slots__ = ("_bins", "_names", "_where")

    def __init__(self, where: Mapping[str, Any], names: Sequence[str], bins: Bins | None = None) -> None:
        if not names:
            raise ValueError('by: name at least one attribute, as by("sex")')
        if not all(isinstance(name, str) for name in names):
            raise TypeError('by: attributes are given one by one, as by("age", "sex")')
        self._names = [attribute(name) for name in names]
        self._bins = {name: _merged(given, name) for name, given in (bins or {}).items()}
        if unknown := self._bins.keys() - set(self._names):
            raise ValueError(f"bins: {', '.join(sorted(unknown))} is not grouped by")
        self._where = dict(where)

    def where(self, /, *conditions: Condition, **by_name: Any) -> Grouped:
        """Those of these records that satisfy further conditions."""
        return Grouped(joined(self._where, selected(conditions, by_name)), self._names, self._bins)

    def count(self) -> Question[Table]:
        """How many there are."""
        return Question({"type": "marginal", "attributes": self._names} | self._narrowed())

    def sum(self, of: str) -> Question[Table]:
        """The sum of an attribute."""
        return Question(self._statistic("sum", of))

    def mean(self, of: str) -> Question[Table]:
        """The mean of an attribute, of the records with a value."""
        return Question(self._statistic("mean", of))

    def variance(self, of: str) -> Question[Table]:
        """The mean square of what values of an attribute differ from their mean by."""
        return Question(self._statistic("variance", of))

    def median(self, of: str) -> Question[Table]:
        """The least value of an attribute that half of the records do not pass, or more."""
        return self.quantile(of, 0.5)

    def quantile(self, of: str, q: float | Sequence[float]) -> Question[Table]:
        """The least value of an attribute that a part ``q`` of the records do not pass, or more; of several parts the
        last axis is ``q``."""
        return Question(self._statistic("quantile", of, q=plain_value(q, "q")))

    def share(self, /, *conditions: Condition, **by_name: Any) -> Question[Table]:
        """The part of the records that satisfies conditions, from 0 to 1."""
        return Question(self._statistic("share", selected(conditions, by_name)))

    def ratio(self, of: str, per: str) -> Question[Table]:
        """The sum of one attribute over the sum of another."""
        return Question(self._statistic("ratio", of, per=attribute(per)))

    def _statistic(self, kind: str, of: str | Where, **more: Any) -> dict[str, Any]:
        asked = {"type": kind, "of": attribute(of) if isinstance(of, str) else of} | more
        return asked | {"group_by": self._names} | self._narrowed()

    def _narrowed(self) -> dict[str, Any]:
        said = {"bins": self._bins, "where": self._where}
        return {name: value for name, value in said.items() if value}

    def __eq__(self, other: object) -> bool:
        return self.count() == other.count() if isinstance(other, Grouped) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.count())

    def __repr__(self) -> str:
        return f"<Grouped: {self.count()}>"


def where(*conditions: Condition, **by_name: Any) -> Selection:
    """The records that satisfy all of some conditions: ``where(col("hrwage") >= 20, age=(None, 35))``.

    By name a value is that value; None is no value; a list, a set or an array any of them; a pair ``(low, high)`` is
    from ``low`` and below ``high``, either of which may be None. For everything else there is :class:`col`.
    """
    return Selection(selected(conditions, by_name))


def by(*names: str, bins: Bins | None = None) -> Grouped:
    """All records, for each combination of values of some attributes; see :meth:`Selection.by`."""
    return Grouped({}, names, bins)


def cut(left: Nodes, right: Nodes = "all") -> Question[Answer]:
    """The number (or weight) of edges from some nodes to others; of a matrix the sum of a block."""
    return Question({"type": "cut", "left": _nodes(left), "right": _nodes(right)})


def blocks(left: Groups, right: Groups | None = None, *, only: Literal["within"] | None = None) -> Question[Table]:
    """The edges (or their weight) between groups of nodes, or sums of a matrix' entries: a table, one question.

    Args:
        left: the groups that edges begin at, or of rows: by name the nodes of each, or a list or array with the name of
            each node's group, None (or NaN) for nodes that are not counted. Such a list is of nodes that are numbered.
        right: those that edges end at, or of columns; the same where they are left out.
        only: ``within`` asks only from each group to the one of the same name.
    """
    asked: dict[str, Any] = {"type": "blocks", "left": _groups(left)}
    if right is not None:
        asked["right"] = _groups(right)
    return Question(asked if only is None else asked | {"only": only})


def degrees(side: Side | None = None, *, bins: Iterable[int] | None = None) -> Question[Table]:
    """How many nodes of a graph without weights have a degree in each bin: a table, one question.

    Args:
        side: whose degrees: ``out`` or ``in`` of a directed graph, ``left`` or ``right`` of a bipartite one; None of an
            undirected one.
        bins: the least degree of each bin, ascending from 0; the last has no end. Doubling where they are left out.
    """
    asked: dict[str, Any] = {"type": "degrees"}
    if side is not None:
        asked["side"] = side
    if bins is not None:
        asked["bins"] = listed(bins, "bins")
    return Question(asked)


def product(weights: Mapping[str, Iterable[float]]) -> Question[Answer]:
    """A weight in [-1, 1] for each value of some attributes; a record weighs the product, and all are added up."""
    return Question(
        {"type": "product", "weights": {attribute(name): _weights(values, name) for name, values in weights.items()}}
    )


def rank_one(left: Iterable[float], right: Iterable[float]) -> Question[Answer]:
    """``left' X right`` for two weight vectors."""
    return Question({"type": "rank_one", "left": _weights(left, "left"), "right": _weights(right, "right")})


def sparse(indices: Iterable[Any], weights: Iterable[float]) -> Question[Answer]:
    """Weights of the listed cells, by flat row-major index or one list of coordinates a cell; all others weigh zero."""
    return Question(
        {"type": "sparse", "indices": plain_value(list(indices), "indices"), "weights": _weights(weights, "weights")}
    )


def dense(weights: Any) -> Question[Answer]:
    """A weight for every cell, in the shape of the data set: nested lists, or anything with the buffer protocol."""
    shape, numbers = _doubles(weights) or _nested(weights)
    if not all(map(isfinite, numbers)):
        raise ValueError("weights: finite numbers")
    return Dense(shape, numbers)


def elements(weights: Mapping[str, float]) -> Question[Answer]:
    """Weights in [-1, 1] of the named elements of a multiset; every other element weighs zero."""
    return Question({"type": "elements", "weights": {name: float(weight) for name, weight in weights.items()}})


def question(json: Json) -> Question[Any]:
    """A question in the contract's own words, such as ``{"type": "mean", "of": "income"}``."""
    if not isinstance(json, Mapping) or not isinstance(json.get("type"), str):
        raise ValueError('a question is an object with a type, such as {"type": "mean", "of": "income"}')
    return Question(_said(json))


def asked(given: Any) -> Question[Any]:
    """What is asked, also in the contract's own words."""
    return question(given) if isinstance(given, Mapping) else _only(given, Question, 'question({"type": ...})')


def chosen(given: Any) -> Selection:
    """The records that are meant, in whichever form; all of None."""
    if given is None or isinstance(given, Mapping):
        return where(**(given or {}))
    return where(given) if isinstance(given, Condition) else _only(given, Selection, 'where(sex="m")')


def _only(given: Any, kind: type[S], words: str) -> S:
    if not isinstance(given, kind):
        raise TypeError(f"say {words}: {type(given).__name__} is none")
    return given


def _said(value: Any) -> Any:
    """A copy as JSON, of which the object's names are strings."""
    if isinstance(value, Mapping):
        return {str(name): _said(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_said(item) for item in value]
    return value if isinstance(value, bool) else plain_value(value, "question")


def _merged(given: Iterable[Any] | Mapping[str, Iterable[Any]], name: str) -> Any:
    if isinstance(given, Mapping):
        return {str(label): listed(values, f"{name}, {label}") for label, values in given.items()}
    return listed(given, name)


def _weights(values: Iterable[float], name: str) -> list[float]:
    found = [float(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]
    if not all(abs(value) < float("inf") for value in found):
        raise ValueError(f"{name}: weights are finite numbers")
    return found


def _nodes(nodes: Nodes) -> Any:
    return nodes if isinstance(nodes, str) else plain_value(list(nodes), "nodes")


def _groups(given: Groups) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {str(name): _nodes(nodes) for name, nodes in given.items()}
    found: dict[str, Any] = {}
    for node, name in enumerate(given.tolist() if hasattr(given, "tolist") else given):
        if name is not None and name == name:  # NaN is not itself
            found.setdefault(str(name), []).append(node)
    return found


def _doubles(given: Any) -> tuple[Sequence[int], array[float]] | None:
    """The shape and the numbers of what has them in memory as they are needed; None of anything else."""
    try:
        view = memoryview(given)
    except TypeError:
        return None
    if view.format != "d" or not view.c_contiguous or view.shape is None:
        return None
    return view.shape, array("d", view.tobytes())


def _nested(given: Any) -> tuple[Sequence[int], array[float]]:
    """The shape and the numbers, row by row, of nested lists or of what can be made such."""
    if callable(getattr(given, "tolist", None)):
        given = given.tolist()
    level: list[Any] = [given if isinstance(given, Sequence) else memoryview(given).tolist()]
    shape: list[int] = []
    while all(map(_is_nested, level)):
        shape.append(len(level[0]))
        if not shape[-1] or any(len(items) != shape[-1] for items in level):
            raise ValueError("weights: nested lists have the same lengths everywhere, and none is empty")
        level = list(chain.from_iterable(level))
    if any(map(_is_nested, level)):
        raise ValueError("weights: numbers stand in lists of the same depth")
    return shape, array("d", map(float, level))


def _is_nested(given: Any) -> bool:
    return isinstance(given, list | tuple) or (isinstance(given, Sequence) and not isinstance(given, str | bytes))
