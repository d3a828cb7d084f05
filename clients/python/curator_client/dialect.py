"""The dialect ``curator://`` of SQLAlchemy: dashboards and whatever else reads through it. It needs the extra
``sqlalchemy``::

    create_engine("curator://:KEY@curator.example/survey?epsilon=0.5&max_queries=100&at_most=0.05")
    create_engine("curator://127.0.0.1:8000/survey", connect_args={"key": KEY})

The database is one data set, which is its one table. The key is the password, which SQLAlchemy shows as ``***``, or in
``connect_args``, or in ``CURATOR_API_KEY``. HTTPS is spoken, but to this machine itself; ``tls=on`` or ``off`` says
otherwise. All connections of a URL share one session, of other processes too, so that ``epsilon`` is what all of them
may ever spend; ``session=NAME`` is another one. Without ``epsilon`` nothing is spent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.engine import default
from sqlalchemy.sql import compiler

from curator_client import dbapi
from curator_client.errors import CuratorError

_SCHEMA = "public"
#: What the URL may say behind the data set.
_SAID = {"epsilon", "max_queries", "at_most", "session", "tls", "timeout", "retry_for"}


class _AsItCame:
    """Numbers of the contract are Python's own; of a column in bins they are the names of ranges."""

    def result_processor(self, dialect: Any, coltype: Any) -> None:
        """None: nothing is converted."""


class _Float(_AsItCame, types.Float):  # type: ignore[type-arg]
    pass


class _Numeric(_AsItCame, types.Numeric):  # type: ignore[type-arg]
    pass


class _Identifiers(compiler.IdentifierPreparer):
    """Names as they are declared, in quotes: without, letters would count for more or for less than they do here."""

    def _requires_quotes(self, value: str) -> bool:
        return True


class CuratorDialect(default.DefaultDialect):
    """Reads one data set by :mod:`curator_client.dbapi`. What SQL cannot say here the service refuses, in words."""

    name = "curator"
    driver = "http"
    supports_statement_cache = True
    supports_alter = False
    supports_comments = True
    supports_default_values = False
    supports_native_boolean = True
    supports_native_decimal = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    # As the service divides: FLOOR(x / 10) * 10 makes bins.
    div_is_floordiv = False
    max_identifier_length = 128
    default_paramstyle = dbapi.paramstyle
    default_schema_name = _SCHEMA
    preparer = _Identifiers
    colspecs: Any = {  # noqa: RUF012
        types.Float: _Float,
        types.Numeric: _Numeric,
    }

    @classmethod
    def import_dbapi(cls) -> Any:
        """The module of PEP 249."""
        return dbapi

    # As SQLAlchemy 1.4 calls it.
    dbapi = import_dbapi  # type: ignore[assignment]

    def create_connect_args(self, url: Any) -> tuple[list[Any], dict[str, Any]]:
        """What :func:`curator_client.dbapi.connect` is called with.

        Raises:
            ArgumentError: when the URL says something that is not understood, or a key where it would be logged.
        """
        said = dict(url.query)
        if "key" in said or "password" in said:
            raise exc.ArgumentError(
                "what a URL asks for is logged: give the key as curator://:KEY@host, or in connect_args"
            )
        unknown = sorted(said.keys() - _SAID)
        if unknown:
            raise exc.ArgumentError(f"the URL says {', '.join(unknown)}: there are {', '.join(sorted(_SAID))}")
        if not url.database or not url.host:
            raise exc.ArgumentError("a URL names the host and the data set: curator://host:8000/survey")
        options: dict[str, Any] = {"dataset": url.database, "session": said.pop("session", "dbapi")}
        host = f"[{url.host}]" if ":" in url.host else url.host
        port = f":{url.port}" if url.port else ""
        options["url"] = f"{_scheme(url.host, said.pop('tls', None))}://{host}{port}"
        if url.password or url.username:
            options["key"] = str(url.password or url.username)
        for name, text in said.items():
            options[name] = _number(name, text)
        return [], options

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Nothing: what was told cannot be taken back."""

    def _get_server_version_info(self, connection: Any) -> None:
        return None

    def _get_default_schema_name(self, connection: Any) -> str:
        return _SCHEMA

    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        """One schema."""
        return [_SCHEMA]

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """The data set, where it is a table."""
        found = self._described(connection, None, schema)
        return [found["name"]] if found is not None and found["kind"] == "table" else []

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        """Whether the data set is called so."""
        return table_name in self.get_table_names(connection, schema)

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> list[Any]:
        """The attributes.

        Raises:
            NoSuchTableError: when the data set is called otherwise.
        """
        found = self._table(connection, table_name, schema)
        return [
            {
                "name": each["name"],
                "type": _type(each),
                "nullable": bool(each.get("missing")),
                "default": None,
                "autoincrement": False,
                "comment": each.get("description") or None,
            }
            for each in found["domain"]["attributes"]
        ]

    def get_table_comment(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """What the data set is said to be."""
        return {"text": self._table(connection, table_name, schema)["description"] or None}

    def get_pk_constraint(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """None: records are not told apart."""
        return {"constrained_columns": [], "name": None}

    def _none(self, connection: Any, table_name: str = "", schema: str | None = None, **kw: Any) -> list[Any]:
        return []

    get_view_names = get_temp_table_names = get_temp_view_names = get_sequence_names = _none  # type: ignore[assignment]
    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _none

    def _table(self, connection: Any, name: str, schema: str | None) -> Mapping[str, Any]:
        found = self._described(connection, name, schema)
        if found is None or found["kind"] != "table":
            raise exc.NoSuchTableError(name)
        return found

    def _described(self, connection: Any, name: str | None, schema: str | None) -> Mapping[str, Any] | None:
        raw = connection.connection
        opened: dbapi.Connection = getattr(raw, "dbapi_connection", None) or raw.connection
        if schema not in (None, _SCHEMA) or name not in (None, opened.dataset):
            return None
        try:
            return opened.curator.dataset(opened.dataset).raw
        except CuratorError as error:
            dbapi.raise_as(error)


def _scheme(host: str, tls: str | None) -> str:
    if tls not in (None, "on", "off"):
        raise exc.ArgumentError("tls is on or off")
    if tls is not None:
        return "https" if tls == "on" else "http"
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    return "http" if own else "https"


def _number(name: str, text: Any) -> Any:
    try:
        found = int(text) if name == "max_queries" else Decimal(text) if name == "epsilon" else float(text)
    except (InvalidOperation, TypeError, ValueError):
        raise exc.ArgumentError(f"{name} is a number") from None
    return found


def _type(attribute: Mapping[str, Any]) -> types.TypeEngine[Any]:
    """The type of a column, by the declaration of its attribute. Ranges and months are texts: they are labels."""
    values = attribute.get("values")
    if values is not None:
        return types.Integer() if all(isinstance(each, int) for each in values) else types.String()
    if attribute.get("dates"):
        return types.Date() if attribute.get("by") == "day" else types.String()
    if attribute.get("size"):
        return types.Integer()
    if attribute.get("grid") is None:
        return types.String()
    whole = all(float(attribute[each]).is_integer() for each in ("grid", "lower"))
    return types.Integer() if whole and not attribute.get("bins") else types.Float()
