"""DB-API 2.0 (PEP 249): statements of SQL for pandas, notebooks and dashboards::

    from curator_client import dbapi

    with dbapi.connect("https://curator.example", key, dataset="survey", epsilon=0.5, at_most=0.05) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT sex, AVG(hours) AS h FROM survey WHERE age >= ? GROUP BY sex", [30])
        print(cursor.fetchall())

**A connection spends nothing unless it says** ``epsilon``: without, it gets what follows from what was measured before,
and all else is refused. Connections that say the same share one session, and so one ``epsilon``. Behind each aggregate
``n`` stand the columns ``n_se``, ``n_low`` and ``n_high``.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from curator_client import errors
from curator_client._sync.curator import Curator
from curator_client._sync.session import Session
from curator_client.results import SqlResult
from curator_client.sql_literals import bound

#: Of PEP 249: its version; threads may share this module and no connection; parameters are marked as ``?``.
apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
#: What describes a column: name, type, four that are not known, and whether it may be NULL.
Described = tuple[str, str, None, None, None, None, bool]


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802
    """The local day of so many seconds since 1970."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """The local time of day of so many seconds since 1970; no column has any."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """The local time of so many seconds since 1970; at midnight it is that day."""
    return Timestamp(*time.localtime(ticks)[:6])


def Binary(value: bytes) -> bytes:  # noqa: N802
    """Bytes as they are; no column has any, and a statement with them is refused."""
    return bytes(value)


class TypeObject(frozenset[str]):
    """Types of columns, as the service calls them, that are equal to each of them (PEP 249)."""

    def __eq__(self, other: object) -> bool:
        return other in self if isinstance(other, str) else frozenset.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = frozenset.__hash__


STRING = TypeObject({"text"})
NUMBER = TypeObject({"integer", "double", "boolean"})
DATETIME = TypeObject({"date"})
BINARY: TypeObject = TypeObject()
ROWID: TypeObject = TypeObject()


class Warning(Exception):
    """What is to be known of the rows: the notices, in ``Cursor.messages``."""


class Error(Exception):
    """The root of all errors of this module; ``__cause__`` is the client's own."""


class InterfaceError(Error):
    """The module is used otherwise than it can be: a closed cursor, rows before a statement."""


class DatabaseError(Error):
    """The service refuses, or cannot answer."""


class DataError(DatabaseError):
    """A parameter that has no literal."""


class OperationalError(DatabaseError):
    """Nobody is there, the key is none, or the budget, the questions or ``at_most`` do not hold so much."""


class IntegrityError(DatabaseError):
    """Of PEP 249; nothing raises it."""


class InternalError(DatabaseError):
    """The service sent what the contract does not allow."""


class ProgrammingError(DatabaseError):
    """The statement has no meaning here, or there is no such data set."""


class NotSupportedError(DatabaseError):
    """What PEP 249 allows and private data do not."""


_ERRORS: tuple[tuple[type[errors.CuratorError], type[Error]], ...] = (
    (errors.SqlRefused, ProgrammingError),
    (errors.InvalidQuestion, ProgrammingError),
    (errors.InvalidRequest, ProgrammingError),
    (errors.NotFound, ProgrammingError),
    (errors.TooLarge, ProgrammingError),
    (errors.ProtocolError, InternalError),
    (errors.Refused, OperationalError),
    (errors.Unreachable, OperationalError),
)
#: Shared sessions that this process opened.
_OPENED: set[str] = set()
_FREE = (
    "This connection spends nothing: connect with epsilon=..., what it may spend in all, and at_most=..., what one "
    "statement may, to have this answered."
)


def raise_as(error: errors.CuratorError, way: str = "") -> NoReturn:
    """Raise what the client says as PEP 249 calls it, with the way on where the client knows none."""
    kind = next((ours for theirs, ours in _ERRORS if isinstance(error, theirs)), DatabaseError)
    raise kind(f"{str(error).rstrip('.')}. {way}" if way else str(error)) from error


def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    dataset: str,
    epsilon: float | Decimal | None = None,
    max_queries: int | None = None,
    at_most: float | None = None,
    session: str | None = "dbapi",
    timeout: float = 60.0,
    retry_for: float = 60.0,
) -> Connection:
    """A connection to one data set, which is its one table. Nothing is sent before the first statement.

    Args:
        url: address of the service: ``CURATOR_URL`` where it is left out.
        key: the caller's: ``CURATOR_API_KEY`` where it is left out.
        dataset: name of the data set.
        epsilon: what all statements together may cost. Where it is left out only free answers come. The first statement
            that asks opens the session, which spends a large part of it at once, for tables that serve all statements.
        max_queries: the most questions that are answered; the service spends better where it is known.
        at_most: what one statement may cost, in epsilon, beside the opening of the session.
        session: a name under which connections share one session and its ``epsilon``, of other processes too, as long
            as they say the same ``epsilon`` and ``max_queries``: so many of them spend no more than one. None is a
            session of the connection's own, closed with it.
        timeout: seconds that one try may take.
        retry_for: seconds for which a call is tried again, under the same key, so that it is paid for once.
    """
    return Connection(
        Curator(url, key, timeout=timeout, retry_for=retry_for), dataset, epsilon, max_queries, at_most, session
    )


class Connection:
    """A connection (PEP 249); made by :func:`connect`. As a context manager it is closed at the end.

    Attributes:
        curator: the client that it speaks through.
        dataset: the name of its data set.
    """

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(
        self,
        curator: Curator,
        dataset: str,
        epsilon: float | Decimal | None,
        max_queries: int | None,
        at_most: float | None,
        name: str | None,
    ) -> None:
        self.curator, self.dataset = curator, dataset
        # 2, 2.0 and Decimal(2) are one epsilon: said alike they are one session.
        self._epsilon = None if epsilon is None else float(epsilon)
        self._max_queries, self._at_most = max_queries, at_most
        self._name = name
        self._paid: Session | None = None
        self._unpaid: Session | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def session(self) -> Session:
        """The session that statements are asked in. One that may spend is opened by the first statement that asks, or
        here: its opening costs.

        Raises:
            OperationalError, ProgrammingError: when it cannot be opened.
        """
        self._check_open()
        if self._epsilon is None:
            return self._free()
        if self._paid is None:
            key = self._key()
            try:
                self._paid = self.curator.session(
                    self.dataset, epsilon=self._epsilon, max_queries=self._max_queries, key=key
                )
            except errors.CuratorError as error:
                raise_as(error)
            if key is not None:
                _OPENED.add(key)
        return self._paid

    def _free(self) -> Session:
        """The connection's own session of epsilon 0, which knows what was measured before it was opened."""
        if self._unpaid is None:
            try:
                self._unpaid = self.curator.session(self.dataset, epsilon=0)
            except errors.CuratorError as error:
                raise_as(error)
        return self._unpaid

    def _key(self) -> str | None:
        """The Idempotency-Key that a shared session is opened with: who repeats it gets the same session."""
        if self._name is None:
            return None
        said = json.dumps(["dbapi", self.dataset, self._name, self._epsilon, self._max_queries])
        return hashlib.sha256(said.encode()).hexdigest()

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    def _sql(self, statement: str) -> SqlResult:
        self._check_open()
        # What asks nothing, as tools do all day, opens no session that costs.
        if self._epsilon is None or (self._paid is None and self._key() not in _OPENED):
            session = self._free()
            try:
                result = session.sql(statement)
            except errors.TooExact as error:
                if self._epsilon is None:
                    raise_as(error, _FREE)
            except errors.CuratorError as error:
                raise_as(error)
            else:
                if self._epsilon is None or not (result.answers or _prices(result)):
                    return result
        session = self.session
        try:
            return session.sql(statement, at_most=self._at_most)
        except errors.SessionClosed as error:
            raise_as(error, "" if self._name is None else "Connections that say another session=... open one.")
        except errors.CuratorError as error:
            raise_as(error)

    def cursor(self) -> Cursor:
        """A new cursor."""
        self._check_open()
        return Cursor(self)

    def commit(self) -> None:
        """Nothing: what was asked is recorded when it is answered."""
        self._check_open()

    def rollback(self) -> None:
        """Nothing: what was told cannot be taken back, and what it cost stays spent."""
        self._check_open()

    def close(self) -> None:
        """Close the connection. A session that others may share stays open, with what is left of its epsilon:
        ``connection.session.close()`` gives that back.
        """
        if self._closed:
            return
        self._closed = True
        own = [self._unpaid, self._paid if self._name is None else None]
        try:
            for session in own:
                if session is not None:
                    session.close()
        except errors.CuratorError as error:
            raise_as(error)
        finally:
            self.curator.close()


class Cursor:
    """The rows of one statement after another (PEP 249). Iterating over it gives rows.

    Attributes:
        connection: whose it is.
        arraysize: how many rows ``fetchmany`` gives where nothing is said.
        description: of the columns of the last statement; None before it.
        rowcount: of its rows; -1 before it.
        messages: its notices, each with the class :class:`Warning`.
        result: its answers, with their sources and what each was charged; None before it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.lastrowid = None
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self.description: list[Described] | None = None
        self.rowcount = -1
        self.messages: list[tuple[type[Warning], Warning]] = []
        self.result: SqlResult | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def execute(self, operation: str, parameters: Sequence[object] | None = None) -> Self:
        """Ask a statement, whose marks ``?`` stand for the parameters.

        Raises:
            ProgrammingError: when it has no meaning here, at which place, and what to write instead.
            OperationalError: when it costs more than the connection may spend, or nobody answers.
            DataError: when a parameter has no literal.
        """
        self._check_open()
        self._forget()
        if isinstance(parameters, Mapping | str | bytes):
            raise ProgrammingError("parameters are a list, for marks ? in their order")
        try:
            statement = bound(operation, parameters) if parameters else operation
        except ValueError as error:
            raise DataError(str(error)) from error
        self.result = result = self.connection._sql(statement)
        columns = result.raw["columns"]
        self.description = [(each["name"], each["type"], None, None, None, None, True) for each in columns]
        dates = [place for place, each in enumerate(columns) if each["type"] == "date"]
        self._rows = [_dated(row, dates) for row in result.raw["rows"]]
        self.rowcount = len(self._rows)
        self.messages = [(Warning, Warning(notice)) for notice in result.notices]
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[object]]) -> NoReturn:
        """Refused: statements have rows, and each of them may cost.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError("each statement has rows, and may cost: execute one after the other")

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None where there is none left."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, ``arraysize`` of them where nothing is said."""
        self._check_rows()
        end = self._next + max(0, self.arraysize if size is None else size)
        found, self._next = self._rows[self._next : end], min(end, len(self._rows))
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self.fetchmany(len(self._rows))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        found = self.fetchone()
        if found is None:
            raise StopIteration
        return found

    @property
    def rownumber(self) -> int | None:
        """How many rows were fetched; None before a statement."""
        return None if self.description is None else self._next

    def nextset(self) -> Literal[None]:
        """None: a statement has one set of rows."""
        self._check_rows()

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Nothing: parameters have the size that they have."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing: no column is cut off."""

    def close(self) -> None:
        """Forget the rows. Closed cursors do nothing any more."""
        self._forget()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        self.connection._check_open()

    def _check_rows(self) -> None:
        self._check_open()
        if self.description is None:
            raise InterfaceError("no statement was executed that has rows")


def _prices(result: SqlResult) -> bool:
    """Whether it tells prices of questions, which are another session's."""
    return bool(len(result)) and result.raw["columns"][0]["role"] == "price"


def _dated(row: Sequence[Any], dates: Sequence[int]) -> tuple[Any, ...]:
    told = list(row)
    for place in dates:
        told[place] = None if told[place] is None else datetime.date.fromisoformat(told[place])
    return tuple(told)
