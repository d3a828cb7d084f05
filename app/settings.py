"""The operator's settings: environment variables ``CURATOR_*``, read once when :class:`Settings` is made.

Importing this module reads nothing. Secrets are ``SecretStr``, so that they print as stars, and a value that fails
validation is never shown.
"""

import base64
import binascii
import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.storage.database import embedded_file
from curator_client.proofs.notes import ORIGIN

PREFIX = "CURATOR_"
VAULT_KEY_BYTES = 32
#: Variables that the command line reads as a client of a running server. The server does not read them.
CLIENT_VARIABLES = frozenset({"CURATOR_URL", "CURATOR_API_KEY"})

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_bytes(text: object) -> object:
    """A number of bytes from ``"4GiB"``, ``"500 MB"``, ``"1048576"`` or an int.

    A bare ``k``, ``M``, ``G`` or ``T`` is a power of 1024.

    Raises:
        ValueError: for any other text, without repeating it.
    """
    if not isinstance(text, str):
        return text
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("expected a size such as 4GiB, 500MB or a number of bytes")
    return (
        int(float(match[1]) * _UNITS[match[2].lower()]) if "." in match[1] else int(match[1]) * _UNITS[match[2].lower()]
    )


#: Places of private files. Credentials of a store do not stand in its URL, and the characters are those that need no
#: quoting there.
_BUCKET_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9._-]*)*/?", re.ASCII)
_FOLDER_URL = re.compile(r"file:///[A-Za-z0-9._~/-]+", re.ASCII)
#: A host, alone or with a port, or a folder of a local socket; or nothing behind a last comma.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/:\[\]@]+|[0-9A-Fa-f:.]+)(:\d{1,5})?|/[^\s]*|")

ByteCount = Annotated[int, BeforeValidator(parse_bytes)]


def half_of_memory() -> int:
    """Half of the memory this process may use, in bytes: the machine's, or its control group's if that has less."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = min(limit, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return limit // 2


class Settings(BaseSettings):
    """Everything that can be set, with its default.

    A field's environment variable is ``CURATOR_`` and its name in capitals. An empty variable counts as not set.

    Raises:
        pydantic.ValidationError: when a value is malformed; it never shows the value.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, hide_input_in_errors=True, frozen=True, extra="forbid"
    )

    data_dir: Path = Field(Path("var"), description="Folder of the embedded database, the vault and the keys.")
    database_url: str | None = Field(
        None,
        description="URL of another database, postgresql://... Unset: SQLite in data_dir.",
    )
    admin_key: SecretStr | None = Field(
        None, description="First administrator's API key. Unset: one is made and printed once at first start."
    )
    vault_key: SecretStr | None = Field(
        None,
        description="Base64 of 32 bytes: encrypts private files. Unset: they lie in the clear (mode 0600).",
    )
    vault_old_key: SecretStr | None = Field(
        None,
        description="The vault key before this one, for `curator vault rotate` alone. Unset: files lie in the clear.",
    )
    vault_url: str | None = Field(
        None,
        description="Where private files lie: s3://bucket/prefix, for which CURATOR_VAULT_KEY must be set, or "
        "file:///folder. Unset: in data_dir.",
    )
    log_key: SecretStr | None = Field(
        None,
        description="Base64 of 32 bytes: the Ed25519 key that the log is signed with. Unset: one is made in data_dir.",
    )
    log_old_key: SecretStr | None = Field(
        None,
        description="The log's key before CURATOR_LOG_KEY, which vouches for that one when the server starts. Unset: "
        "the log's key is what it was.",
    )
    log_origin: str | None = Field(
        None, description="Name of the log, such as example.org/curator. Unset: one made of its first public key."
    )
    memory_limit: ByteCount = Field(
        default_factory=half_of_memory,
        ge=16 * 1024**2,
        description="Memory for data sets and hypotheses, such as 4GiB.",
    )
    source_folders: str | None = Field(
        None,
        description="Folders, with a colon between two, below which a declaration may name files as its source. "
        "Unset: none.",
    )
    source_hosts: str | None = Field(
        None,
        description="Hosts of databases and clusters, each alone or with a port, with a comma between two, that a "
        "connection may name. Unset: none.",
    )
    untried_engines: str | None = Field(
        None,
        description="Engines, with a comma between two, that a source may be a table of though nobody has tried them "
        "against a real account: bigquery, snowflake, trino. Unset: none.",
    )
    source_queries: int = Field(
        2,
        ge=1,
        le=64,
        description="How many questions to sources are counted at a time, of different principals: of files, and of "
        "each connection.",
    )
    source_deadline_seconds: float = Field(
        600.0, gt=0, le=86400, description="Longest time in which a source counts what it is asked; then it is ended."
    )
    source_tick_seconds: float = Field(
        1.0,
        ge=0.01,
        le=3600,
        description="Whoever waits for a source goes on a whole number of these after he began to wait.",
    )
    traces: str | None = Field(
        None,
        pattern=r"^https?://[^@\s]+$",
        description="Where a collector of OpenTelemetry takes traces over HTTP, such as "
        "http://collector:4318/v1/traces; unset: nothing is traced.",
    )
    snapshot_limit: ByteCount = Field(
        4 * 1024**3,
        ge=0,
        description="Disk space for snapshots of sessions, which make a restart faster; 0 keeps none.",
    )
    export_limit: ByteCount = Field(
        4 * 1024**3,
        ge=1024**2,
        description="Disk space for hypotheses and transcripts while they are read, and for the log while it is "
        "audited; who finds none gets 503.",
    )
    release_seconds: float = Field(
        900.0,
        gt=0,
        le=86400,
        description="Longest time in which something is made of a release's measurements; then it fails, and what was "
        "measured is kept and charged.",
    )
    dask_url: str | None = Field(
        None,
        pattern=r"^tls://[^@/\s]+:\d{1,5}$",
        description="Scheduler of a Dask cluster, tls://HOST:PORT, for CURATOR_FINISHER=dask. Unset: none.",
    )
    dask_ca: Path | None = Field(
        None, description="File (PEM) of the authority that signs the certificates of the cluster and of this server."
    )
    dask_certificate: Path | None = Field(
        None, description="File (PEM) of the certificate that shows the cluster who this server is."
    )
    dask_key: Path | None = Field(None, description="File (PEM) of the key of that certificate.")
    finisher: Literal["process", "table", "dask"] = Field(
        "process",
        validate_default=True,
        description="Who makes long releases and replays transcripts for audits: processes beside the server; with "
        "`table` also `curator work` on any machine, which needs PostgreSQL; with `dask` also a cluster, which needs "
        "the four settings CURATOR_DASK_*.",
    )
    max_body_bytes: ByteCount = Field(
        1024**3, ge=1024, description="Largest request body, uploads of data sets included."
    )
    max_query_body_bytes: ByteCount = Field(
        64 * 1024**2, ge=1024, description="Largest body of a query, a batch or any other JSON request."
    )
    max_json_depth: int = Field(32, ge=4, le=128, description="Deepest nesting of a JSON body.")
    queue_limit: int = Field(
        64,
        ge=1,
        description="Most requests that may wait for one session's turn; beyond it 503 with Retry-After.",
    )
    request_timeout_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Longest wait for a session's turn before 503 with Retry-After.",
    )
    rate_limit: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Requests a second that one key may send, each query of a batch counted; beyond it 429 with "
        "Retry-After. Unset: no limit.",
    )
    rate_burst: int = Field(1000, ge=1, description="Requests that a key may send at once after a pause.")
    heavy_rate_limit: float | None = Field(
        50.0,
        gt=0,
        allow_inf_nan=False,
        description="The same for requests that take much work: plans, registrations, opening sessions, transcripts, "
        "hypotheses, ledgers; each counts as one for every 10 ms that it took.",
    )
    heavy_rate_burst: int = Field(2000, ge=1, description="Such requests that a key may send at once after a pause.")
    max_connections: int = Field(
        2048, ge=1, description="Connections that each server process serves at a time; more get 503 with Retry-After."
    )
    max_connections_per_client: int | None = Field(
        None,
        ge=1,
        description="How many of them one client address may have, a network of 64 bits in IPv6; proxies of "
        "CURATOR_TRUSTED_PROXIES may have all. Unset: a quarter of CURATOR_MAX_CONNECTIONS.",
    )
    client_timeout_seconds: float = Field(
        20.0,
        gt=0,
        allow_inf_nan=False,
        description="Time for the head of a request, and the stretch over which CURATOR_CLIENT_MIN_RATE is taken.",
    )
    client_min_rate: ByteCount = Field(
        1024,
        ge=1,
        description="Bytes a second that a client must send of a body, and read of a reply; slower ones are cut off.",
    )
    keep_alive_seconds: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="How long a connection may stay open without a request."
    )
    answer_deadline_ms: int | None = Field(
        None,
        ge=1,
        le=60_000,
        description="Replies to queries leave so many milliseconds after the request was read, however long the "
        "work took; later ones leave at once and are counted. Unset: each leaves when it is there.",
    )
    trusted_proxies: str | None = Field(
        None,
        description="Addresses or networks, separated by commas, of proxies whose X-Forwarded-For is believed. Unset: "
        "nobody's is.",
    )
    console: bool = Field(True, description="Serve the console for browsers under /console.")
    console_plain_http: bool = Field(
        False,
        description="Let browsers log in over plain HTTP from elsewhere than this machine: whoever listens then has "
        "their log-ins. Proxies with TLS are told of with CURATOR_TRUSTED_PROXIES instead.",
    )
    contact: str | None = Field(
        None,
        max_length=200,
        description="Whom people without a key ask for one, such as dpo@stats.example; the log-in page says it.",
    )
    metrics_open: bool = Field(False, description="Serve /metrics without a key.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe line to log.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("data_dir")
    @classmethod
    def _one_name(cls, value: Path) -> Path:
        # In the URL of the embedded database, what follows a question mark would be parameters.
        if "?" in str(value.absolute()):
            raise ValueError("expected a folder without a question mark in its name")
        return value

    @field_validator("database_url")
    @classmethod
    def _a_database(cls, value: str | None) -> str | None:
        if value is not None:
            embedded_file(value)
        return value

    @field_validator("finisher")
    @classmethod
    def _where_others_work(cls, value: str, info: ValidationInfo) -> str:
        # Whoever can open an embedded database sees all of it, and a cluster without TLS is anybody's.
        url = info.data.get("database_url")
        if value == "table" and (url is None or embedded_file(url) is not None):
            raise ValueError("expected another one, or a PostgreSQL database in CURATOR_DATABASE_URL")
        named = ("dask_url", "dask_ca", "dask_certificate", "dask_key")
        missing = [name for name in named if info.data.get(name) is None]
        if value == "dask" and missing:
            raise ValueError(
                f"expected another one, or a cluster: set {', '.join(PREFIX + name.upper() for name in missing)}"
            )
        if value != "dask" and len(missing) < len(named):
            raise ValueError("expected dask, which the settings CURATOR_DASK_* are for; unset them where none is meant")
        return value

    @field_validator("vault_url")
    @classmethod
    def _a_place(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or _FOLDER_URL.fullmatch(value):
            return value
        if not _BUCKET_URL.fullmatch(value):
            raise ValueError("expected s3://bucket, s3://bucket/prefix or file:///folder, with nothing else in it")
        if info.data.get("vault_key") is None:
            raise ValueError("set CURATOR_VAULT_KEY: private files leave this machine sealed, or not at all")
        return value

    @field_validator("source_folders")
    @classmethod
    def _whole_paths(cls, value: str | None) -> str | None:
        if value is not None and not all(os.path.isabs(folder) and "\0" not in folder for folder in value.split(":")):
            raise ValueError("expected folders by their whole paths, such as /srv/visits:/srv/labs")
        return value

    @field_validator("source_hosts")
    @classmethod
    def _hosts(cls, value: str | None) -> str | None:
        if value is not None and not all(_HOST.fullmatch(host.strip()) for host in value.split(",")):
            raise ValueError("expected hosts with a comma between two, such as db.example.org:5432,10.0.0.2")
        return value

    @field_validator("untried_engines")
    @classmethod
    def _engines(cls, value: str | None) -> str | None:
        if not {name.strip() for name in (value or "").split(",")} <= {"", "bigquery", "snowflake", "trino"}:
            raise ValueError("expected some of bigquery, snowflake and trino, with a comma between two")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, value: str | None) -> str | None:
        try:
            _networks(value)
        except ValueError:
            raise ValueError("expected addresses or networks, such as 10.0.0.2 or 10.0.0.0/24") from None
        return value

    @field_validator("log_origin")
    @classmethod
    def _an_origin(cls, value: str | None) -> str | None:
        if value is not None and not ORIGIN.fullmatch(value):
            raise ValueError("expected up to 255 printable ASCII characters, none of them a space or a plus sign")
        return value

    @field_validator("vault_key", "vault_old_key", "log_key", "log_old_key")
    @classmethod
    def _well_formed_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _decode_key(value)
        return value

    @field_validator("log_old_key")
    @classmethod
    def _before_another(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and "log_key" in info.data and info.data["log_key"] is None:
            raise ValueError("set CURATOR_LOG_KEY to the key that comes after this one, or unset this")
        return value

    def vault_key_bytes(self) -> bytes | None:
        """The 32 bytes of the vault key, or None where private files lie in the clear."""
        return None if self.vault_key is None else _decode_key(self.vault_key)

    def vault_old_key_bytes(self) -> bytes | None:
        """The 32 bytes of the vault key before this one, or None where private files lay in the clear."""
        return None if self.vault_old_key is None else _decode_key(self.vault_old_key)

    def log_key_bytes(self) -> bytes | None:
        """The 32 bytes of the log's private key, or None where it lies in the data folder."""
        return None if self.log_key is None else _decode_key(self.log_key)

    def log_old_key_bytes(self) -> bytes | None:
        """The 32 bytes of the log's private key before this one, or None where none is told."""
        return None if self.log_old_key is None else _decode_key(self.log_old_key)

    @property
    def connections_a_client(self) -> int:
        """Connections that one client address may have to a process."""
        return self.max_connections_per_client or max(1, self.max_connections // 4)

    def trusts(self, host: str) -> bool:
        """Whether an address is that of a proxy whose ``X-Forwarded-For`` is believed."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in _networks(self.trusted_proxies))

    def shown(self) -> list[tuple[str, str, str]]:
        """Environment variable, value and meaning of every setting, in the order of the class. Of keys, and of a
        database's URL, which may hold a password, it is told whether they are set.
        """
        rows = []
        for name, (variable, _, meaning) in zip(type(self).model_fields, settings_table(), strict=True):
            value = getattr(self, name)
            hidden = isinstance(value, SecretStr) or name == "database_url"
            rows.append((variable, "unset" if value is None else "set, not shown" if hidden else str(value), meaning))
        return rows

    @property
    def hosts_of_sources(self) -> frozenset[str]:
        """Hosts of databases that a connection may name."""
        return frozenset(host.strip() for host in (self.source_hosts or "").split(",") if host.strip())

    @property
    def engines_untried(self) -> frozenset[str]:
        """Engines that a source may be a table of though nobody has tried them."""
        return frozenset(name.strip() for name in (self.untried_engines or "").split(",") if name.strip())

    @property
    def folders_of_sources(self) -> tuple[Path, ...]:
        """Folders below which files of sources are read."""
        return () if self.source_folders is None else tuple(map(Path, self.source_folders.split(":")))

    @property
    def vault_dir(self) -> Path:
        """Folder of the private files, where these lie in one."""
        if self.vault_url is None or self.vault_objects is not None:
            return self.data_dir / "vault"
        return Path(self.vault_url.removeprefix("file://"))

    @property
    def files_elsewhere(self) -> Path | None:
        """Folder of the private files, where they lie in one outside of the data folder; None elsewhere."""
        return None if self.vault_url is None or self.vault_objects is not None else self.vault_dir

    @property
    def vault_objects(self) -> str | None:
        """URL of the object store of the private files; None where these lie in a folder."""
        return self.vault_url if self.vault_url is not None and _BUCKET_URL.fullmatch(self.vault_url) else None

    @property
    def snapshots_dir(self) -> Path:
        """Folder of the sessions' snapshots."""
        return self.data_dir / "snapshots"

    @property
    def exports_dir(self) -> Path:
        """Folder of exports while they are read; the files in it have no names."""
        return self.data_dir / "exports"

    @property
    def keys_dir(self) -> Path:
        """Folder of the keys the server makes for itself."""
        return self.data_dir / "keys"

    @property
    def embedded_database(self) -> Path | None:
        """The file of the embedded database by its real path; None where the database is a server."""
        if self.database_url is None:
            return Path(os.path.realpath(self.data_dir / "curator.sqlite3"))
        return embedded_file(self.database_url)

    @property
    def sqlalchemy_url(self) -> str:
        """The database in use: `database_url`, or SQLite in the data folder."""
        return self.database_url or f"sqlite:///{self.embedded_database}"


@lru_cache(maxsize=1)
def _networks(text: str | None) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(part.strip()) for part in text.split(",")] if text else []


def _decode_key(value: SecretStr) -> bytes:
    try:
        key = base64.b64decode(value.get_secret_value().strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != VAULT_KEY_BYTES:
        raise ValueError(f"expected base64 of exactly {VAULT_KEY_BYTES} bytes, as `openssl rand -base64 32` prints")
    return key


def settings_table() -> list[tuple[str, str, str]]:
    """Environment variable, default and meaning of every setting, in the order of the class. The documents show it."""
    rows = []
    for name, field in Settings.model_fields.items():
        if field.default is PydanticUndefined:
            default = "half of memory"
        elif field.default is None:
            default = "unset"
        else:
            default = str(field.default)
        rows.append((PREFIX + name.upper(), default, field.description or ""))
    return rows


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """The names of ``CURATOR_*`` variables that nothing reads, sorted.

    The server refuses to start while there is one: a misspelt ``CURATOR_VAULT_KEY`` would leave private files
    unencrypted without a warning.
    """
    known = {name for name, _, _ in settings_table()} | CLIENT_VARIABLES
    return sorted(name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)


def nearest_variable(name: str) -> str | None:
    """The ``CURATOR_*`` variable that a misspelt one was probably meant to be; None if none is similar."""
    known = {variable.removeprefix(PREFIX) for variable, _, _ in settings_table()}
    near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), known, n=1)
    return PREFIX + near[0] if near else None
