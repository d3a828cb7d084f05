"""Connecting to BigQuery, Snowflake and Trino: one form of URL, and what Python's common interface of databases leaves
open of each. A driver is imported by whoever connects: none of them comes with the service.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from app.declarations.errors import InvalidDataset
from app.storage.connection_urls import HERE, MOST_BYTES

#: Seconds that connecting may take.
_CONNECT_SECONDS = 10
#: A name of a database, which is quoted in every query: nothing in it means anything to any engine.
_DATABASE = re.compile(r"""[^\x00-\x1f"'`\\]{1,255}""")


@dataclass(frozen=True, repr=False)
class Place:
    """Where a connection leads to, and as whom.

    Attributes:
        type: of the source: bigquery, snowflake or trino.
        host: which is asked.
        port: of it.
        database: the project of BigQuery, the database of Snowflake, the catalog of Trino.
        user: whoever asks; of BigQuery a service account by its address.
        password: its secret; of BigQuery the account's private key.
        options: what else the URL says, as the warehouse of Snowflake.
    """

    type: str
    host: str
    port: int
    database: str
    user: str
    password: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, url: str) -> Place:
        """The place of a URL.

        Raises:
            ValueError: saying what of it to change, never what it says.
        """
        if len(url) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} characters: shorten it")
        try:
            parts = urlsplit(url)
            port, options = parts.port or 443, dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else [])
            user, password = (unquote(each or "", errors="strict") for each in (parts.username, parts.password))
            database = unquote(parts.path.removeprefix("/"), errors="strict")
            driver = DRIVERS[parts.scheme]
        except (ValueError, KeyError):
            raise ValueError("it is no URL, as trino://user:password@host:443/catalog") from None
        place = cls(parts.scheme, parts.hostname or "", port, database, user, password, options)
        if not place.host or not place.user or parts.fragment:
            raise ValueError("name a host, a user and a database, and no fragment")
        if not _DATABASE.fullmatch(database):
            raise ValueError("its database has no name, or one with signs that mean something to engines: rename it")
        if beyond := sorted(set(options) - driver.options):
            able = ", ".join(sorted(driver.options)) or "no options"
            raise ValueError(f"of {place.type} it may have {able}, and nothing else: leave {', '.join(beyond)} out")
        if not place.password and place.host not in HERE:
            raise ValueError("it has no password: nobody is asked off this machine without one")
        return place

    @property
    def plain(self) -> bool:
        """Whether what is said goes in the clear: on this machine, where no password goes with it."""
        return self.host in HERE and not self.password


class Driver(ABC):
    """How an engine is connected to, and asked in time.

    Attributes:
        extra: of this distribution, which brings the driver.
        options: what a URL may say beside the place.
    """

    extra: str
    options: frozenset[str] = frozenset()

    @abstractmethod
    def connect(self, place: Place, seconds: float) -> Any:
        """A connection (PEP 249), of which each statement has so many seconds at most. Raises what the driver raises.

        Raises:
            InvalidDataset: when the driver is not installed.
        """

    def execute(self, cursor: Any, text: str, seconds: float) -> None:
        """Begin a statement that may take so many seconds. Raises what the driver raises."""
        cursor.execute(text)

    def _module(self, name: str) -> Any:
        try:
            return import_module(name)
        except ImportError:
            raise InvalidDataset(
                f"source.type: the server has no driver of {self.extra}: have its operator install "
                f"curator-server[{self.extra}]"
            ) from None


class _BigQuery(Driver):
    """By HTTPS, with tokens that the account's key signs: no other host is asked for one."""

    extra = "bigquery"

    def connect(self, place: Place, seconds: float) -> Any:
        bigquery, dbapi = map(self._module, ("google.cloud.bigquery", "google.cloud.bigquery.dbapi"))
        accounts = self._module("google.oauth2.service_account")
        told = {
            "client_email": place.user,
            # As in the file of a key, or as the key is.
            "private_key": place.password.replace("\\n", "\n"),
            "token_uri": f"https://{place.host}",
        }
        # What may read only: a token of it cannot be used to write, whatever the account may.
        scopes = ["https://www.googleapis.com/auth/bigquery.readonly"]
        account = accounts.Credentials.from_service_account_info(told, scopes=scopes)
        scheme = "http" if place.host in HERE else "https"
        client = bigquery.Client(
            project=place.database,
            credentials=account.with_always_use_jwt_access(True),
            client_options={"api_endpoint": f"{scheme}://{place.host}:{place.port}"},
            # What was told before may be of another state.
            default_query_job_config=bigquery.QueryJobConfig(
                use_query_cache=False, job_timeout_ms=math.ceil(seconds * 1000)
            ),
        )
        return dbapi.connect(client, prefer_bqstorage_client=False)

    def execute(self, cursor: Any, text: str, seconds: float) -> None:
        config = self._module("google.cloud.bigquery").QueryJobConfig(job_timeout_ms=math.ceil(seconds * 1000))
        # Of two percent signs the driver makes one, with parameters or without.
        cursor.execute(text.replace("%", "%%"), job_config=config)


class _Snowflake(Driver):
    """By HTTPS. The password may be a programmatic access token."""

    extra = "snowflake"
    options = frozenset({"warehouse", "role"})

    def connect(self, place: Place, seconds: float) -> Any:
        return self._module("snowflake.connector").connect(
            account=place.host.removesuffix(".snowflakecomputing.com"),
            host=place.host,
            port=place.port,
            user=place.user,
            password=place.password,
            database=place.database,
            login_timeout=_CONNECT_SECONDS,
            session_parameters={
                "STATEMENT_TIMEOUT_IN_SECONDS": math.ceil(seconds),
                "QUOTED_IDENTIFIERS_IGNORE_CASE": False,
                # What was told before may be of another state.
                "USE_CACHED_RESULT": False,
                "TIMEZONE": "UTC",
            },
            **place.options,
        )

    def execute(self, cursor: Any, text: str, seconds: float) -> None:
        cursor.execute(f"ALTER SESSION SET STATEMENT_TIMEOUT_IN_SECONDS = {math.ceil(seconds)}")
        cursor.execute(text)


class _Trino(Driver):
    """By HTTPS; on this machine, and without a password, in the clear."""

    extra = "trino"

    def connect(self, place: Place, seconds: float) -> Any:
        dbapi, auth = map(self._module, ("trino.dbapi", "trino.auth"))
        return dbapi.connect(
            host=place.host,
            port=place.port,
            http_scheme="http" if place.plain else "https",
            user=place.user,
            auth=auth.BasicAuthentication(place.user, place.password) if place.password else None,
            catalog=place.database,
            source="curator",
            timezone="UTC",
            request_timeout=_CONNECT_SECONDS,
            session_properties={"query_max_run_time": f"{math.ceil(seconds)}s"},
        )


#: How each type of source is connected to.
DRIVERS: dict[str, Driver] = {"bigquery": _BigQuery(), "snowflake": _Snowflake(), "trino": _Trino()}
