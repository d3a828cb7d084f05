"""Statements of SQL: what they ask of a data set or a session, and what is said of tables without asking anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible, QueriesExhausted
from app.curator.opening import Header
from app.declarations.attributes import Attribute
from app.declarations.errors import CuratorError, InvalidRequest
from app.declarations.spec import TableSpec
from app.services.datasets import Datasets
from app.services.errors import BudgetExhausted
from app.services.idempotency import IdempotencyKey, find_reply
from app.services.ports import Store
from app.services.principals import Principal
from app.services.sessions import Sessions
from app.services.views import session_view
from app.spaces.errors import InvalidQuery
from app.spaces.table import TableSpace
from app.sql.statement import Describe, Select, Shown, ShowTables, Statement, translate
from app.sql.table import Table

#: Data sets that SHOW TABLES tells, at most.
MOST_SHOWN = 1000
#: Of an attribute that DESCRIBE tells so many values are written out.
_MOST_VALUES = 20
_PRICES = (
    ("question", "text"),
    ("epsilon", "double"),
    ("certain", "boolean"),
    ("source", "text"),
    ("half_width_low", "double"),
    ("half_width_high", "double"),
    ("left", "double"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement that was read for a session.

    Attributes:
        statement: what it says.
        told: the result of one that asks nothing; None of others.
        queries_left: how many questions the session has left; None without a limit.
    """

    statement: Statement
    told: dict[str, Any] | None
    queries_left: int | None


class Sql:
    """Reads statements."""

    def __init__(self, store: Store, datasets: Datasets, sessions: Sessions) -> None:
        self._store, self._datasets, self._sessions = store, datasets, sessions

    def translate(self, actor: Principal, name: str, text: Any) -> dict[str, Any]:
        """What a statement would ask of a data set: its questions, the columns of its result, and its notices.

        Raises:
            NotFound: when there is no data set of that name, or it is retired.
            InvalidRequest: when it is no text, or the data set no table.
            SqlRefused: when it has no meaning here.
        """
        table, statement = _read(self._datasets.public(name), text)
        told = self._told(actor, statement, table)
        if told is not None:
            return {"questions": [], **told}
        assert isinstance(statement, Select)
        return {
            "questions": list(statement.questions),
            "columns": _priced_columns() if statement.explain else [column.view() for column in statement.columns],
            "notices": list(statement.notices),
        }

    def read(
        self, actor: Principal, session: str, text: Any, at_most: float | None = None, *, explain: bool = False
    ) -> Asked:
        """A statement for a session of the actor's, which may cost so much of epsilon where that is said; with
        ``explain`` as if EXPLAIN stood before it, where it asks anything.

        Raises:
            NotFound: when the actor has no such session.
            InvalidRequest, SqlRefused: as :meth:`translate`.
        """
        row = self._sessions.row(actor, session)
        # As its opening states it: of sessions on made-up records too.
        stated = PublicDataset.from_descriptor(Header.read(row.header).document["dataset"])
        table, statement = _read(stated, text)
        if at_most is not None and isinstance(statement, Select):
            least = at_most if statement.at_most is None else min(at_most, statement.at_most)
            statement = replace(statement, at_most=least)
        if explain and isinstance(statement, Select | Shown):
            statement = replace(statement, explain=True)
        return Asked(statement, self._told(actor, statement, table), session_view(row)["queries_left"])

    def known(self, key: IdempotencyKey | None) -> bytes | None:
        """The answers that were given under a key before.

        Raises:
            IdempotencyConflict: when it was used with another statement.
        """
        if key is None:
            return None
        with self._store.read() as tx:
            return find_reply(tx, key)

    def _told(self, actor: Principal, statement: Statement, table: Table) -> dict[str, Any] | None:
        match statement:
            case ShowTables():
                page = self._datasets.list("", MOST_SHOWN, actor)
                rows = [[item["name"], item["kind"], item["description"] or None] for item in page.items]
                notices = [] if page.after is None else [f"there are more than these {MOST_SHOWN:,}"]
                return _result(("name", "kind", "description"), rows, notices)
            case Describe():
                return _result(("name", "type", "values", "missing"), list(map(_described, table.spec.attributes)), [])
            case Shown():
                columns = _priced_columns() if statement.explain else [column.view() for column in statement.columns]
                rows = [] if statement.explain else [list(row) for row in statement.rows]
                return {"columns": columns, "rows": rows, "answers": [], "notices": []}
        return None


def _read(dataset: PublicDataset, text: Any) -> tuple[Table, Statement]:
    if not isinstance(text, str):
        raise InvalidRequest("statement: a text is meant to stand here")
    if not isinstance(dataset.spec, TableSpec) or not isinstance(dataset.space, TableSpace):
        raise InvalidRequest(f"SQL asks tables, and this is a {dataset.spec.kind} data set: ask with questions")
    table = Table(dataset.spec, dataset.space)
    return table, translate(text, table)


def check_prices(asked: Asked, prices: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a statement of which one question would be refused, before any of them is asked.

    Args:
        asked: the statement.
        prices: of its questions, each behind those before it, or the problem document in its place.

    Raises:
        SqlRefused, CuratorError: what the first question would be refused with.
        PlanInfeasible: when all together cost more than the statement may.
        BudgetExhausted: when they cost more than the session has left.
        QueriesExhausted: when the session has fewer questions left.
    """
    select = asked.statement
    assert isinstance(select, Select)
    _check_each(select, prices)
    # What was answered before is answered again, however many are left.
    new = sum(price["source"] != "cached" for price in prices)
    if asked.queries_left is not None and new > asked.queries_left:
        raise QueriesExhausted(
            f"the statement asks {new} new questions, and the session has {asked.queries_left} left: open another"
        )
    total = sum(price["epsilon"] for price in prices)
    if select.at_most is not None and total > select.at_most:
        raise PlanInfeasible(
            f"the statement costs up to epsilon {total:.6g}, and may cost {select.at_most:g}: allow more by at_most "
            "or by epsilon in OPTIONS, or a wider interval by within"
        )
    paid = [price for price in prices if price["epsilon"]]
    left = min((price["left"] + price["epsilon"] for price in paid), default=0.0)
    if len(paid) > 1 and total > left * (1 + 1e-9):
        requested, remaining = Decimal(repr(total)), Decimal(repr(left))
        raise BudgetExhausted("the answers together cost more than the session has left", requested, remaining)


def _check_each(select: Select, prices: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what the first question would be refused with: of a question that does not fit, at its aggregate."""
    for number, price in enumerate(prices):
        if "status" in price:
            if price["type"] == f"/problems/{InvalidQuery.code}":
                raise select.refused(number, str(price["detail"]))
            raise Told(price)


class Told(CuratorError):
    """A refusal that was told as a document before.

    Args:
        document: of it.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        said = {name: part for name, part in document.items() if name not in ("type", "title", "status", "detail")}
        super().__init__(str(document["detail"]), **said)
        self.code = str(document["type"]).removeprefix("/problems/")  # type: ignore[misc]


def explained(select: Select, prices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The prices of a statement's questions as a result, a row a question.

    Raises:
        SqlRefused, CuratorError: what the first question would be refused with.
    """
    _check_each(select, prices)
    rows: list[list[Any]] = []
    for price in prices:
        widths = price["half_width"] or [None, None]
        rows.append([price["words"], price["epsilon"], price["certain"], price["source"], *widths, price["left"]])
    return {"columns": _priced_columns(), "rows": rows, "answers": [], "notices": list(select.notices)}


def answered(select: Select, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answers to a statement's questions as a result.

    Raises:
        CuratorError: what the first question was refused with, as another took what was left meanwhile.
    """
    for answer in answers:
        if "status" in answer:
            raise Told(answer)
    return {
        "columns": [column.view() for column in select.columns],
        "rows": select.rows(answers),
        "answers": list(answers),
        "notices": [*select.notices, *dict.fromkeys(each["note"] for each in answers if each.get("note"))],
    }


def _priced_columns() -> list[dict[str, str]]:
    return [{"name": name, "type": kind, "role": "price"} for name, kind in _PRICES]


def _result(names: Sequence[str], rows: list[list[Any]], notices: list[str]) -> dict[str, Any]:
    columns = [{"name": name, "type": "boolean" if name == "missing" else "text", "role": "fact"} for name in names]
    return {"columns": columns, "rows": rows, "answers": [], "notices": notices}


def _described(attribute: Attribute) -> list[Any]:
    """A row of DESCRIBE: what values there are, as they are declared."""
    if attribute.values is not None:
        shown = ", ".join(map(repr, attribute.values[:_MOST_VALUES]))
        more = len(attribute.values) - _MOST_VALUES
        told = shown + (f" and {more:,} more" if more > 0 else "")
    elif attribute.size is not None:
        told = f"0 to {attribute.size - 1}"
    elif attribute.dates is not None:
        told = f"{attribute.dates[0]} to {attribute.dates[1]}, by {attribute.by}"
    else:
        low, high = (f"{float(bound):.15g}" for bound in attribute.bounds)
        parts = [f"{attribute.bin_count:,} bins"] if attribute.bin_count else []
        if attribute.grid is not None:
            parts.append(f"grid {float(attribute.grid):.15g}")
        told = ", ".join([f"{low} to {high}", *parts])
    return [attribute.name, attribute.kind, told, bool(attribute.missing)]
