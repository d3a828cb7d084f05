"""What a connection's URL may say: where it leads to and as whom, not in the clear, and nothing else. What it says is
in no refusal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import conninfo

from app.declarations.errors import InvalidRequest

#: What URLs of each type of source begin with.
SCHEMES = {"postgresql": "postgresql://", "spark": "sc://"}
#: Bytes of a URL.
MOST_BYTES = 4096
_PORT = "[1-9][0-9]{0,4}"
#: What a URL of PostgreSQL may say, and how. All else reads other files, changes settings, or picks a server by more
#: than its name.
_POSTGRESQL = {
    "host": "[^,]+(,[^,]+)*",
    "port": f"{_PORT}(,{_PORT})*",
    "dbname": ".+",
    "user": ".+",
    "password": ".+",
    "sslmode": "disable|allow|prefer|require|verify-ca|verify-full",
    "connect_timeout": "[0-9]{1,4}",
}
#: The same of Spark, after its host and port. What a token may be is what a header may have.
_SPARK = {"use_ssl": "true|false", "token": "[!-~]+", "user_id": "[!-~]+"}
_SPARK_PORT = 15002
_ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
#: Hosts of this machine, with which nothing need be encrypted.
HERE = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class SparkAddress:
    """Where a server of Spark Connect is, and as whom it is asked."""

    host: str
    port: int
    encrypted: bool
    user: str
    token: str | None = field(repr=False)


def type_of(url: str) -> str:
    """The type of what a URL leads to.

    Raises:
        InvalidRequest: when it is none that is asked, or too long.
    """
    with suppress(UnicodeEncodeError):
        for kind, scheme in SCHEMES.items():
            if url.startswith(scheme) and len(url.encode()) <= MOST_BYTES:
                return kind
    raise InvalidRequest(
        "url: it is no URL of PostgreSQL, as postgresql://user:password@host:5432/database?sslmode=verify-full, and "
        "none of Spark, as sc://host:15002/;use_ssl=true;token=..."
    )


def check(url: str, hosts: Collection[str]) -> str:
    """Refuse a URL that leads elsewhere than the operator allows, or in the clear; the type of what it leads to.

    Args:
        url: to be kept, or used.
        hosts: those that it may name, each alone or with a port, or a folder of a local socket.

    Raises:
        InvalidRequest: naming what of it to change, never what it says.
    """
    kind = type_of(url)
    if kind == "spark":
        address = spark_address(url)
        check_hosts([(address.host, str(address.port))], hosts)
        if address.host not in HERE and not address.encrypted:
            raise InvalidRequest("url: let use_ssl be true: nothing goes in the clear")
        return kind
    try:
        told = {word: str(value) for word, value in conninfo.conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, ValueError):
        raise InvalidRequest(
            "url: it is no URL of PostgreSQL, as postgresql://user:password@host:5432/database?sslmode=verify-full"
        ) from None
    _check_words(told, _POSTGRESQL, "PostgreSQL")
    if not {"host", "user", "dbname"} <= set(told):
        raise InvalidRequest("url: name a host, a user and a database")
    names, ports = told["host"].split(","), told.get("port", "5432").split(",")
    if len(ports) not in (1, len(names)):
        raise InvalidRequest("url: name one port, or one for each host")
    check_hosts(zip(names, ports * len(names) if len(ports) == 1 else ports, strict=True), hosts)
    if told.get("sslmode") not in _ENCRYPTED and any(not name.startswith("/") and name not in HERE for name in names):
        raise InvalidRequest("url: let sslmode be verify-full, or require or verify-ca: nothing goes in the clear")
    return kind


def spark_address(url: str) -> SparkAddress:
    """What a URL of Spark says.

    Raises:
        InvalidRequest: when it says something else than it may, naming that.
    """
    try:
        found = urlsplit(url)
        host, port, path = found.hostname, found.port or _SPARK_PORT, found.path
        if found.query or found.fragment or "@" in found.netloc or found.port == 0:
            raise ValueError
        if host is None or not re.fullmatch("[a-z0-9._-]+", host):
            host = str(IPv6Address(host or ""))
        begin, *parts = path.split(";")
        if begin not in ("", "/"):
            raise ValueError
        pairs = [(word, unquote(value, errors="strict")) for word, _, value in (part.partition("=") for part in parts)]
        told = dict(pairs)
        if len(told) != len(pairs):
            raise ValueError
    except ValueError:
        raise InvalidRequest("url: it is no URL of Spark, as sc://host:15002/;use_ssl=true;token=...") from None
    _check_words(told, _SPARK, "Spark")
    return SparkAddress(host, port, told.get("use_ssl") == "true", told.get("user_id", "curator"), told.get("token"))


def _check_words(told: Mapping[str, str], allowed: Mapping[str, str], engine: str) -> None:
    """Raises InvalidRequest."""
    if beyond := sorted(set(told) - set(allowed)):
        named = f"leave {', '.join(beyond)} out" if engine == "PostgreSQL" else "leave the rest out"
        raise InvalidRequest(f"url: it may have {', '.join(sorted(allowed))}, and nothing else: {named}")
    for word, value in sorted(told.items()):
        if not re.fullmatch(allowed[word], value, re.DOTALL):
            raise InvalidRequest(f"url: {word} is empty, or is none that {engine} takes: write it anew")


def check_hosts(named: Iterable[tuple[str, str]], hosts: Collection[str]) -> None:
    """Refuse hosts that a URL names, each with its port, and that are none of those that it may name.

    Raises:
        InvalidRequest: when one is not.
    """
    for host, port in named:
        beside = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if host not in hosts and beside not in hosts:
            raise InvalidRequest(
                "url: its host is not one that this server may ask: have its operator add it to CURATOR_SOURCE_HOSTS"
            )
