"""A statement as questions of the contract, and the answers to them as columns and rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sqlglot import exp

from app.declarations.conditions import Condition
from app.spaces.errors import InvalidQuery
from app.spaces.queries.registry import parse_query
from app.spaces.values import Label
from app.sql import conditions
from app.sql.aggregates import FUNCTIONS, Aggregate, aggregate
from app.sql.errors import SqlRefused
from app.sql.grouping import Group, Type, group
from app.sql.options import Wishes, wishes
from app.sql.source import Source, read
from app.sql.table import Table
from curator_client.version import __version__

#: The aggregates of one statement, at most.
MOST_AGGREGATES = 8
#: The columns of a statement that wants no rows, about.
_MOST_COLUMNS = 1000
#: A question that looks at more values is compiled where it is answered.
_MOST_LOOKED_AT = 1 << 20
Role = Literal["group", "value", "standard_error", "low", "high", "fact"]
_BEHIND: tuple[tuple[str, Role], ...] = (("_se", "standard_error"), ("_low", "low"), ("_high", "high"))
#: Questions whose answers are numbers of records.
_COUNTS = ("marginal", "predicate")
_BOUNDS: dict[str, Role] = {"DP_INTERVAL_LOW": "low", "DP_INTERVAL_HIGH": "high"}
#: What has no place in a statement, by its part of the tree, and what to say instead.
PARTS = {
    "with_": ("WITH: there are no subqueries", "ask each statement by itself"),
    "joins": ("one table is asked at a time", "join tables before they are registered"),
    "laterals": ("one table is asked at a time", "join tables before they are registered"),
    "having": ("there is no HAVING", "choose among the rows of the answer"),
    "distinct": ("there is no DISTINCT", "GROUP BY the columns"),
    "windows": ("there are no windows", "use GROUP BY"),
    "qualify": ("there are no windows (QUALIFY)", "use GROUP BY"),
    "offset": ("there is no OFFSET", "take the rows that you want from the answer"),
}
_KNOWN = {"expressions", "from_", "where", "group", "order", "limit"}
CHOSEN = (
    "rows were chosen by their noisy values: the intervals are nominal for cells that were not chosen by their noise, "
    "and the largest values tend to be too large"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result.

    Attributes:
        name: of it.
        type: of its values, of which any may be null.
        role: what its values are.
        place: of a group which of them, else of which question.
    """

    name: str
    type: Type
    role: Role
    place: int

    def view(self) -> dict[str, str]:
        """What is said of it beside the rows."""
        return {"name": self.name, "type": self.type, "role": self.role}


@dataclass(frozen=True, slots=True)
class _Order:
    """One part of an ``ORDER BY``: a column, or what is not selected, as a column."""

    column: Column
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Select:
    """A statement that asks.

    Attributes:
        explain: whether its price is asked for, and no answer.
        questions: in the contract's words, with what is wanted of their answers.
        columns: of the result.
        at_most: of epsilon that all answers together may cost; None where nothing is said.
        notices: for who asks.
    """

    source: Source
    explain: bool
    questions: tuple[dict[str, Any], ...]
    columns: tuple[Column, ...]
    at_most: float | None
    notices: tuple[str, ...]
    _places: tuple[exp.Expr, ...]
    _groups: tuple[Group, ...]
    #: Where conditions leave one value of all that is grouped by: these, and the questions have no groups.
    _only: tuple[Label, ...]
    _order: tuple[_Order, ...]
    _limit: int | None

    def refused(self, question: int, problem: str) -> SqlRefused:
        """The refusal of a question, at its aggregate."""
        try:
            self.source.refuse(self._places[question], problem)
        except SqlRefused as error:
            return error

    @property
    def axes(self) -> int:
        """How many axes of an answer are groups."""
        return 0 if self._only else len(self._groups)

    def rows(self, answers: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """The rows of the result, from the answers to the questions in their order."""
        given = [_Told(answer, self.axes) for answer in answers]
        # A condition of one aggregate, as that there is a value, may leave labels out that others have.
        labels = [_merged([each.labels[axis] for each in given]) for axis in range(self.axes)]
        cells = _cells([len(each) for each in labels])
        named = (tuple(own[k] for own, k in zip(labels, cell, strict=True)) for cell in cells)
        found = [
            _Row(self, given, cell, own, tuple(each.number(own) for each in given))
            for cell, own in zip(cells, named, strict=True)
        ]
        for order in reversed(self._order):
            nothing = [row for row in found if row.value(order.column) is None]
            told = [row for row in found if row.value(order.column) is not None]
            told.sort(key=lambda row, by=order.column: row.key(by), reverse=order.descending)  # type: ignore[misc]
            found = nothing + told if order.nulls_first else told + nothing
        return [[row.value(column) for column in self.columns] for row in found[: self._limit]]


class _Told:
    """An answer, by the labels of its groups.

    Args:
        answer: in the contract's words.
        axes: how many of its axes are groups.
    """

    def __init__(self, answer: Mapping[str, Any], axes: int) -> None:
        found = answer.get("axes", ())
        self.answer = answer
        self.labels: list[list[Label]] = [axis["labels"] for axis in found[:axes]]
        self._places = [{_key(label): place for place, label in enumerate(own)} for own in self.labels]
        #: How many values each group has; None where it has one that is no list.
        self.several = len(found[-1]["labels"]) if len(found) > axes else None

    def number(self, labels: Sequence[Label]) -> int | None:
        """The place of a group among all; None where the answer has none of these labels."""
        number = 0
        for label, places in zip(labels, self._places, strict=True):
            place = places.get(_key(label))
            if place is None:
                return None
            number = number * len(places) + place
        return number


def _key(label: Label) -> tuple[type, Label]:
    """What tells labels apart: true is not 1."""
    return type(label), label


def _merged(lists: Sequence[list[Label]]) -> list[Label]:
    """All labels of several lists, in the order of the longest."""
    found = {_key(label): label for own in sorted(lists, key=len, reverse=True) for label in own}
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the result: a combination of labels.

    Attributes:
        select: the statement.
        answers: to its questions.
        cell: the places of the labels among all of their group.
        labels: of the groups.
        numbers: the place of these among the groups of each answer; None where it has none of them.
    """

    select: Select
    answers: Sequence[_Told]
    cell: tuple[int, ...]
    labels: tuple[Label, ...]
    numbers: tuple[int | None, ...]

    def value(self, column: Column) -> Any:
        """What stands in a column."""
        if column.role == "group":
            label = (self.select._only or self.labels)[column.place]
            return self.select._groups[column.place].value(label)
        told = self.answers[column.place]
        if "axes" not in told.answer:
            return _single(told.answer, column.role)
        number = self.numbers[column.place]
        if number is None:
            # Nobody is there that the aggregate is of: none are counted, for certain, and of none nothing is told.
            return 0 if self.select.questions[column.place]["type"] in _COUNTS else None
        if told.several is None:
            return _of_table(told.answer, column.role, number)
        return [_of_table(told.answer, column.role, number * told.several + k) for k in range(told.several)]

    def key(self, column: Column) -> Any:
        """What rows are ordered by: ranges by their order, and not by their letters."""
        if column.role == "group" and self.select.axes and self.select._groups[column.place].ranged:
            return self.cell[column.place]
        value = self.value(column)
        return [(each is None, each or 0) for each in value] if isinstance(value, list) else value


def _single(answer: Mapping[str, Any], role: Role) -> Any:
    if role in ("value", "standard_error"):
        return answer.get(role)
    ends = answer.get("interval")
    return None if ends is None else ends[role == "high"]


def _of_table(answer: Mapping[str, Any], role: Role, number: int) -> Any:
    if role == "value":
        return answer["values"][number]
    told = answer.get("standard_errors" if role == "standard_error" else "intervals")
    found = None if told is None else told[number]
    return found if role == "standard_error" or found is None else found[role == "high"]


def _cells(lengths: Sequence[int]) -> list[tuple[Any, ...]]:
    """All combinations in the order of an answer: the last place changes first."""
    found: list[tuple[Any, ...]] = []
    for number in range(math.prod(lengths)):
        cell = []
        for length in reversed(lengths):
            number, place = divmod(number, length)
            cell.append(place)
        found.append(tuple(reversed(cell)))
    return found


@dataclass(frozen=True, slots=True)
class ShowTables:
    """``SHOW TABLES``: the data sets that there are."""


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE``: the attributes of the table."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A statement that needs no data: of constants, or one that wants no rows. Tools ask so whether there is somebody,
    and what the columns are.

    Attributes:
        explain: whether its price is asked for.
        columns: of the result.
        rows: of it.
    """

    explain: bool
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...] = ()


Statement = Select | Shown | ShowTables | Describe


def translate(text: str, table: Table) -> Statement:
    """A statement as questions to a table.

    Raises:
        SqlRefused: when it has no meaning here, with the place and, where there is one, the way to say it.
    """
    source = read(text)
    try:
        if source.kind == "show":
            return ShowTables()
        if source.table is not None:
            named = source.table.token_type.name in ("IDENTIFIER", "STRING")
            table.check_named(source, source.table.text, quoted=named, at=source.table)
            return Describe()
        assert source.tree is not None
        return _Reading(source, table, source.tree).read()
    except RecursionError:
        raise SqlRefused(text, 0, len(text), "it is nested too deep", "leave parentheses out") from None


class _Reading:
    """Reads one SELECT."""

    def __init__(self, source: Source, table: Table, tree: exp.Select) -> None:
        self._source, self._table, self._tree = source, table, tree
        self._aggregates: list[tuple[exp.Expr, Aggregate]] = []
        #: Values by the names that they are selected under, and the columns that are groups.
        self._aliases: dict[str, int] = {}

    def read(self) -> Select | Shown:
        """The statement, as one that asks only where rows are wanted that no declaration tells."""
        source, tree = self._source, self._tree
        if not tree.args.get("from_"):
            return self._constants()
        limit = self._limit()
        where = tree.args["where"].this if tree.args.get("where") else None
        nothing = limit == 0 or (where is not None and conditions.is_never(source, where))
        parts = [_bare(each) for each in tree.expressions]
        if nothing and not tree.args.get("group") and all(isinstance(each, exp.Star | exp.Column) for each in parts):
            self._check_parts()
            wishes(source, self._table)
            return Shown(source.explain, tuple(self._declared()))
        asked = self._select(limit)
        return Shown(source.explain, asked.columns) if limit == 0 else asked

    def _constants(self) -> Shown:
        """The one row of a statement without a table."""
        source, tree = self._source, self._tree
        facts = [_fact(_bare(each), self._table.spec.name) for each in tree.expressions]
        if not facts or None in facts or {name for name, part in tree.args.items() if part} - {"expressions", "limit"}:
            unknown = next((part for part, fact in zip(tree.expressions, facts, strict=True) if fact is None), tree)
            source.refuse(unknown, "no table is asked", f'say FROM "{self._table.spec.name}"')
        taken: set[str] = set()
        both = zip(tree.expressions, facts, strict=True)
        told = [(_free(part.alias or fact[0], taken), fact) for part, fact in both if fact is not None]
        columns = tuple(Column(name, fact[1], "fact", 0) for name, fact in told)
        return Shown(source.explain, columns, () if self._limit() == 0 else (tuple(fact[2] for _, fact in told),))

    def _declared(self) -> list[Column]:
        """The columns that are named, or all of them, of a statement that wants no rows."""
        found: list[Column] = []
        taken: set[str] = set()
        for part in self._tree.expressions:
            node = _bare(part)
            every = isinstance(node, exp.Star) or isinstance(node.this, exp.Star)
            names = [exp.column(each.name, quoted=True) for each in self._table.spec.attributes] if every else [node]
            if len(found) > _MOST_COLUMNS:
                self._source.refuse(part, f"more than {_MOST_COLUMNS:,} columns", "name each once")
            for each in names:
                told = group(self._source, self._table, each)
                found.append(Column(_free(part.alias or told.name, taken), told.type, "group", 0))
        return found

    def _select(self, limit: int | None) -> Select:
        """The statement as one that asks."""
        source, tree = self._source, self._tree
        self._check_parts()
        wanted = wishes(source, self._table)
        groups = self._groups()
        where = conditions.where(source, self._table, tree.args["where"].this if tree.args.get("where") else None)
        columns = self._columns(groups)
        order = tuple(
            self._order(each, groups, columns)
            for each in (tree.args["order"].expressions if tree.args.get("order") else ())
        )
        only = self._only(groups, where)
        questions: list[dict[str, Any]] = []
        places: list[exp.Expr] = []
        numbers: list[int] = []
        for node, found in self._aggregates:
            question = self._question(found, () if only else groups, where, wanted)
            if question not in questions:
                self._check(node, question)
                questions.append(question)
                places.append(node)
            numbers.append(questions.index(question))

        def asked(column: Column) -> Column:
            if column.role == "group":
                return column
            return Column(column.name, column.type, column.role, numbers[column.place])

        ordered = tuple(_Order(asked(each.column), each.descending, each.nulls_first) for each in order)
        return Select(
            source,
            source.explain,
            tuple(questions),
            tuple(map(asked, columns)),
            wanted.at_most,
            tuple(self._notices(groups, ordered, limit)),
            tuple(places),
            tuple(groups),
            only,
            ordered,
            limit,
        )

    def _check_parts(self) -> None:
        source, tree = self._source, self._tree
        for name, part in tree.args.items():
            if not part or name in _KNOWN:
                continue
            at = part[0] if isinstance(part, list) else part
            problem, hint = PARTS.get(name, (f"{name.rstrip('s_').upper()} is not understood here", "leave it out"))
            source.refuse(at if isinstance(at, exp.Expr) else tree, problem, hint)
        named = tree.args["from_"].this
        if not isinstance(named, exp.Table) or not isinstance(named.this, exp.Identifier):
            source.refuse(
                named, "a table is meant to stand here", "there are no subqueries: ask each statement by itself"
            )
        if named.args.get("joins"):
            source.refuse(named.args["joins"][0], *PARTS["joins"])
        alias = named.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            source.refuse(alias, "columns keep their names", "say FROM survey AS s, and name columns in SELECT with AS")
        extra = {name for name, part in named.args.items() if part} - {"this", "alias", "db"}
        schema = named.args.get("db")
        # The data set's own name as the schema is how others write it.
        schemas = ("public", self._table.spec.name.lower())
        if extra or (schema is not None and schema.name.lower() not in schemas):
            source.refuse(named, "of a table there is its name alone", f'say FROM "{self._table.spec.name}"')
        self._table.check_named(source, named.this.name, quoted=bool(named.this.quoted), at=named.this)
        known = {self._table.spec.name.lower(), named.alias.lower()} - {""}
        for column in tree.find_all(exp.Column):
            if column.table and column.table.lower() not in known:
                source.refuse(column.args["table"], f"there is no table {column.table[:64]!r} here", "leave it out")

    def _groups(self) -> list[Group]:
        tree, source = self._tree, self._source
        given = tree.args.get("group")
        if given is None:
            return []
        more = {name for name, part in given.args.items() if part} - {"expressions"}
        # `all` is true of GROUP BY ALL, and false of GROUP BY DISTINCT.
        if more or given.args.get("all") is not None:
            hint = "leave ROLLUP, CUBE, GROUPING SETS, ALL and DISTINCT out"
            source.refuse(given, "records are grouped once", hint)
        found: list[Group] = []
        for node in given.expressions:
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                source.refuse(node, "records are grouped once", "leave ROLLUP, CUBE and GROUPING SETS out")
            each = group(source, self._table, self._selected(node))
            name = each.values.attribute.name
            if any(name == other.values.attribute.name for other in found):
                source.refuse(node, f"records are grouped by {name} twice", "name it once")
            found.append(each)
        return found

    def _selected(self, node: exp.Expr) -> exp.Expr:
        """What a number or another name stands for: a part of what is selected."""
        parts = self._tree.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.this) if str(node.this).isdigit() and len(str(node.this)) < 6 else 0
            if not 1 <= place <= len(parts):
                self._source.refuse(node, "no column that is selected has this number", f"there are {len(parts)}")
            return _bare(parts[place - 1])
        if isinstance(node, exp.Column) and not node.table:
            names = {attribute.name.lower() for attribute in self._table.spec.attributes}
            called = [
                each.this for each in parts if isinstance(each, exp.Alias) and each.alias.lower() == node.name.lower()
            ]
            # A column of the table comes before one that is only called so, as in PostgreSQL.
            if called and node.name.lower() not in names:
                return _bare(called[0])
        return node

    def _columns(self, groups: Sequence[Group]) -> list[Column]:
        parts = self._tree.expressions
        told = [_bare(each) for each in parts]
        bounded = any(_bound(node) for node in told)
        found: list[Column] = []
        late: list[tuple[int, exp.Expr, str]] = []
        taken: set[str] = set()
        # What the statement names keeps its name: those that are made are others.
        named = {part.alias.lower() for part in parts if part.alias}
        for part, node in zip(parts, told, strict=True):
            if _bound(node):
                late.append((len(found), node, part.alias))
                found.append(Column("", "double", "low", 0))
                continue
            place = self._place_of(node, groups)
            if place is not None:
                name = _named(part.alias, groups[place].name, taken, named)
                found.append(Column(name, groups[place].type, "group", place))
                continue
            if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                self._table.column(self._source, node, at=node)
                self._source.refuse(node, "records are not shown one by one", "GROUP BY the column, and COUNT(*)")
            asked = self._aggregate(node)
            own = self._aggregates[asked][1]
            name = _named(part.alias, own.name, taken, named)
            self._aliases.setdefault(name.lower(), asked)
            kind: Type = "double[]" if own.several else "double"
            found.append(Column(name, kind, "value", asked))
            if not bounded:
                found += [Column(_named("", name + end, taken, named), kind, role, asked) for end, role in _BEHIND]
        for place, node, alias in late:
            role = _BOUNDS[str(node.this).upper()]
            asked = self._of_bound(node)
            own = self._aggregates[asked][1]
            name = _named(alias, f"{node.this}".lower(), taken, named)
            found[place] = Column(name, "double[]" if own.several else "double", role, asked)
        if not self._aggregates:
            self._source.refuse(self._tree, "nothing is counted", f"select an aggregate: {FUNCTIONS}")
        return found

    def _of_bound(self, node: exp.Expr) -> int:
        if len(node.expressions) != 1:
            self._source.refuse(node, "it has one aggregate", "name one that is selected: DP_INTERVAL_LOW(n)")
        inner = node.expressions[0]
        if isinstance(inner, exp.Column):
            asked = self._aliases.get(inner.name.lower())
            if asked is None:
                self._source.refuse(inner, "no aggregate is selected under this name", "say COUNT(*) AS n first")
            return asked
        return self._aggregate(inner)

    def _aggregate(self, node: exp.Expr) -> int:
        """The place of an aggregate among those that are asked."""
        found = aggregate(self._source, self._table, node)
        if len(self._aggregates) >= MOST_AGGREGATES:
            self._source.refuse(
                node, f"a statement has at most {MOST_AGGREGATES} aggregates", "ask the others in another one"
            )
        self._aggregates.append((node, found))
        return len(self._aggregates) - 1

    def _only(self, groups: Sequence[Group], where: Mapping[str, Any]) -> tuple[Label, ...]:
        """The one label of each group where conditions leave one value of each: a filter by what is grouped by."""
        found: list[Label] = []
        for each in groups:
            attribute = each.values.attribute
            told = where.get(attribute.name, ...)
            # Merged values have labels that only an answer tells.
            if told is ... or each.bins is not None or (attribute.kind == "numbers" and attribute.bin_count):
                return ()
            condition = told if isinstance(told, dict) else {"in": told if isinstance(told, list) else [told]}
            members = each.values.members(Condition.model_validate(condition))
            places = np.arange(each.values.places + 1)[members]
            if len(places) != 1:
                return ()
            found += each.values.labels([places])
        return tuple(found)

    def _question(
        self, found: Aggregate, groups: Sequence[Group], where: dict[str, Any], wanted: Wishes
    ) -> dict[str, Any]:
        names = [each.values.attribute.name for each in groups]
        bins = {name: each.bins for name, each in zip(names, groups, strict=True) if each.bins is not None}
        selected = conditions.joined(where, found.there)
        question: dict[str, Any]
        if found.kind == "predicate":
            question = {"type": "marginal", "attributes": names} if groups else {"type": "predicate"}
        else:
            question = dict(found.asked) | ({"group_by": names} if groups else {})
        if bins:
            question["bins"] = bins
        if selected or question["type"] == "predicate":
            question["where"] = selected
        return question | wanted.fields

    def _check(self, node: exp.Expr, question: dict[str, Any]) -> None:
        """Refuse at its aggregate what the space does not have."""
        try:
            words = parse_query(question)
            if words.looked_at(self._table.space) <= _MOST_LOOKED_AT:
                words.compiled(self._table.space)
        except InvalidQuery as error:
            self._source.refuse(node, error.detail)

    def _order(self, node: exp.Expr, groups: Sequence[Group], columns: Sequence[Column]) -> _Order:
        assert isinstance(node, exp.Ordered)
        if {name for name, part in node.args.items() if part} - {"this", "desc", "nulls_first"}:
            problem = "ORDER BY has ASC or DESC, NULLS FIRST or LAST, and nothing else"
            self._source.refuse(node, problem, "leave the rest out")
        descending, nulls_first = bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
        by = node.this
        if isinstance(by, exp.Column) and not by.table:
            given = [part for part in self._tree.expressions if part.alias.lower() == by.name.lower()]
            if len(given) > 1:
                self._source.refuse(by, "several columns are called so", "give each a name of its own")
            named = [column for column in columns if column.name.lower() == by.name.lower()]
            if named:
                return _Order(named[0], descending, nulls_first)
        target = self._selected(by)
        place = self._place_of(target, groups)
        if place is not None:
            return _Order(Column("", "text", "group", place), descending, nulls_first)
        if _bound(target):
            column = Column("", "double", _BOUNDS[str(target.this).upper()], self._of_bound(target))
            return _Order(column, descending, nulls_first)
        same = [k for k, (other, _) in enumerate(self._aggregates) if other == target]
        if not same:
            self._source.refuse(by, "rows are ordered by what is selected", "select it, and name it here")
        return _Order(Column("", "double", "value", same[0]), descending, nulls_first)

    def _place_of(self, node: exp.Expr, groups: Sequence[Group]) -> int | None:
        """Which of the groups an expression is, if it is one."""
        written = self._unqualified(node)
        return next((place for place, each in enumerate(groups) if self._unqualified(each.written) == written), None)

    def _unqualified(self, node: exp.Expr) -> str:
        """An expression without the tables of its columns, which have the names that they have in the table."""
        while isinstance(node, exp.Paren):
            node = node.this
        copy = node.copy()
        for column in list(copy.find_all(exp.Column)):
            for part in ("table", "db", "catalog"):
                column.set(part, None)
            if isinstance(column.this, exp.Identifier):
                column.set("this", exp.to_identifier(self._table.named(column.this), quoted=True))
        return copy.sql()

    def _limit(self) -> int | None:
        limit = self._tree.args.get("limit")
        if limit is None:
            return None
        count = limit.args.get("expression") or limit.args.get("count")
        options = limit.args.get("limit_options")
        odd = options is not None and (options.args.get("percent") or options.args.get("with_ties"))
        text = str(count.this) if isinstance(count, exp.Literal) and not count.is_string else ""
        if odd or not text.isdigit() or len(text) > 9 or limit.args.get("expressions"):
            self._source.refuse(limit, "LIMIT is a whole number of rows", "say LIMIT 10, or leave it out")
        return int(text)

    def _notices(self, groups: Sequence[Group], order: Sequence[_Order], limit: int | None) -> list[str]:
        notices = [
            f"records without a value of {each.values.attribute.name} are in none of its bins: IS NULL finds them"
            for each in groups
            if each.bins is not None and each.values.attribute.missing
        ]
        notices += [each.notice for each in groups if each.notice is not None]
        if limit is not None and any(each.column.role != "group" for each in order):
            notices.append(CHOSEN)
        return notices


#: What tools ask of a server, and what it is called in the result.
_FACTS: dict[type[exp.Expr], str] = {
    exp.CurrentVersion: "version",
    exp.CurrentSchema: "current_schema",
    exp.CurrentDatabase: "current_database",
    exp.CurrentCatalog: "current_catalog",
}


def _fact(node: exp.Expr, table: str) -> tuple[str, Type, Any] | None:
    """The name, the type and the value of a constant; None where it is none."""
    match node:
        case exp.Null():
            return "column", "text", None
        case exp.Boolean():
            return "column", "boolean", bool(node.this)
        case exp.Literal() if node.is_string:
            return "column", "text", str(node.this)
        case exp.Literal() if str(node.this).isascii() and str(node.this).isdigit() and len(str(node.this)) < 16:
            return "column", "integer", int(node.this)
    name = _FACTS.get(type(node))
    told = {"version": f"Curator {__version__}", "current_schema": "public"}
    return None if name is None else (name, "text", told.get(name, table))


def _bare(part: exp.Expr) -> exp.Expr:
    """What is selected, without the name that it gets."""
    found: exp.Expr = part.unalias()
    return found


def _bound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in _BOUNDS


def _named(given: str, made: str, taken: set[str], named: set[str]) -> str:
    """The name of a column: the one that it was given, or one that is made and given to no other."""
    if given:
        return _free(given, taken)
    found = _free(made, taken | named)
    taken.add(found.lower())
    return found


def _free(name: str, taken: set[str]) -> str:
    """A name that no column has, this one where it is free."""
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.lower())
    return found
