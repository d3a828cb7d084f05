"""Tables counted where they lie in a cluster of Spark, by Spark Connect: text goes in (:mod:`.compiled`), whole numbers
come out.

A cluster has no transactions over a table that is kept as Parquet. So each question tells by itself of which records
it is: beside its numbers it adds up keyed hashes of the places of every record that it counts, and these sums must be
those of the registration. There is no moment between the look and the count.

Of the protocol four calls are made, by the stubs that its client is made of. That client itself writes the engine's
words to a log of its own, and tries again for minutes. An engine's error text may hold values, and is never looked at.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import SparkTable, TableSpec
from app.services.errors import SourceUnavailable
from app.spaces.counts import CellCounts
from app.storage import readers
from app.storage.connection_urls import spark_address
from app.storage.readers import Readers
from app.storage.readers.report import Report
from app.storage.sources import compiled
from app.storage.sources.compiled import Column, Damaged, Dialect, Kind
from app.storage.sources.copied import check_room, copying, read_copy
from app.storage.sources.outcome import CountedSource, DeclaredSource, Moved, asking, too_slow, unreachable

logger = structlog.get_logger(__name__)

#: Seconds that connecting may take, and looking at a connection, and letting go of one.
_CONNECT_SECONDS, _LOOK_SECONDS, _LEAVE_SECONDS = 10, 30, 5
#: Bytes of a message, in either direction: a question looks up at most 2^20 numbers.
_MESSAGE_BYTES = 1 << 27
#: Of each key the hashes of 2^40 records add up to less than 2^62.
_KEYS, _HASHED = 3, (1 << 22) - 1
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    "string": "text",
    "boolean": "truth",
    **dict.fromkeys(("date", "timestamp_ntz"), "time"),
}
_ANSI = "spark.sql.ansi.enabled"
#: Of the session alone. Sums that overflow are errors. Nothing is answered from statistics of files, and no part of
#: them is left out by what is asked. A file that is gone or damaged is an error, and no table is a file's path.
_SETTINGS = {
    _ANSI: "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.aggregatePushdown": "false",
    "spark.sql.optimizer.metadataOnly": "false",
    "spark.sql.cbo.enabled": "false",
}
_NO_ANSI = (
    "its sums would wrap around, as ANSI mode cannot be had: have its operator let sessions set spark.sql.ansi.enabled"
)
_TOO_OLD = "it is older than Spark 4: take a later one"
_AWAY = "the cluster cannot be reached, or refuses the token: look at host, port, use_ssl and token"
_NO_CLIENT = (
    "this server has no client of Spark: have its operator install the extra spark, as by "
    "pip install 'curator-server[spark]'"
)


class _NoTable(Exception):
    """The engine knows no such table, or cannot tell of it."""


class _Unfit(Exception):
    """A cluster that is not asked; why, in words for who added it."""


@cache
def _library() -> SimpleNamespace:
    """The client's stubs, which only who asks Spark has: they take half a second and 95 MiB.

    Raises:
        SourceUnavailable: when they are not installed.
    """
    # It takes a program that was read from no file for its own tests, and ends it.
    program = sys.modules["__main__"]
    program.__dict__.setdefault("__file__", __file__)
    # Messages of its own would name hosts.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of it that are not used
            import grpc
            from google.rpc import error_details_pb2, status_pb2
            from pyspark.sql.connect import proto
    except ImportError:
        raise SourceUnavailable(_NO_CLIENT, retry_after=60) from None
    return SimpleNamespace(grpc=grpc, proto=proto, details=error_details_pb2, status=status_pb2)


class _Session:
    """A session of its own with a server of Spark Connect, which ends with all that it began.

    Args:
        url: of the connection, with its secret.
        seconds: after which whatever is under way ends.

    Raises:
        SourceUnavailable: when there is no client.
        _Unfit: when the cluster is not asked.
        grpc.RpcError: when it cannot be reached.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self._lib = _library()
        grpc, proto = self._lib.grpc, self._lib.proto
        address = spark_address(url)
        host = f"[{address.host}]" if ":" in address.host else address.host
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_SECONDS * 1000),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        where = f"dns:///{host}:{address.port}"
        if address.encrypted:
            self._channel = grpc.secure_channel(where, grpc.ssl_channel_credentials(), options)
        else:
            self._channel = grpc.insecure_channel(where, options)
        self._until = time.monotonic() + seconds
        self._stub = proto.SparkConnectServiceStub(self._channel)
        self._metadata = [("authorization", f"Bearer {address.token}")] if address.token else []
        self._who = {"session_id": str(uuid.uuid4()), "user_context": proto.UserContext(user_id=address.user)}

    def __enter__(self) -> _Session:
        proto = self._lib.proto
        try:
            told = self._call("AnalyzePlan", spark_version=proto.AnalyzePlanRequest.SparkVersion())
            if not re.match("([4-9]|[1-9][0-9])[.]", told.spark_version.version):
                raise _Unfit(_TOO_OLD)
            pairs = [proto.KeyValue(key=key, value=value) for key, value in _SETTINGS.items()]
            operation = proto.ConfigRequest.Operation(set=proto.ConfigRequest.Set(pairs=pairs))
            self._call("Config", operation=operation)
            operation = proto.ConfigRequest.Operation(get=proto.ConfigRequest.Get(keys=[_ANSI]))
            if [pair.value for pair in self._call("Config", operation=operation).pairs] != ["true"]:
                raise _Unfit(_NO_ANSI)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Else the cluster would keep it for an hour. What is under way in it ends, too.
        with suppress(self._lib.grpc.RpcError):
            request = self._lib.proto.ReleaseSessionRequest(**self._who)
            self._stub.ReleaseSession(request, timeout=_LEAVE_SECONDS, metadata=self._metadata)
        self._channel.close()

    def _call(self, name: str, **words: Any) -> Any:
        request = getattr(self._lib.proto, f"{name}Request")(**self._who, **words)
        return getattr(self._stub, name)(request, timeout=self._left, metadata=self._metadata)

    @property
    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """What a query tells, a batch after another.

        Raises:
            grpc.RpcError: when it fails, or takes too long.
            _NoTable: when a name in it is none that the engine knows.
            Damaged: when it tells what cannot be read.
        """
        proto = self._lib.proto
        call = self._call("ExecutePlan", plan=proto.Plan(root=proto.Relation(sql=proto.SQL(query=query))))
        try:
            for part in call:
                if part.HasField("arrow_batch"):
                    with pa.ipc.open_stream(part.arrow_batch.data) as reader:
                        yield from reader
        except self._lib.grpc.RpcError as error:
            if self._names_unknown(error):
                raise _NoTable from None
            raise
        except pa.ArrowException:
            raise Damaged from None
        finally:
            call.cancel()

    def _names_unknown(self, error: Any) -> bool:
        """Whether an error is one of the analysis of a query, by the class that it says it is of."""
        details, info = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin"), self._lib.details
        for each in self._lib.status.Status.FromString(details or b"").details:
            told = info.ErrorInfo()
            if each.Unpack(told) and told.reason.endswith("AnalysisException"):
                return True
        return False

    def numbers(self, query: str, width: int) -> Iterator[NDArray[np.int64]]:
        """What a query tells as columns of whole numbers, a batch after another; else nothing of it is read.

        Raises:
            grpc.RpcError, _NoTable: see :meth:`batches`.
            Damaged: when they are not that many, or not whole numbers.
        """
        for batch in self.batches(query):
            if batch.schema.types != [pa.int64()] * width or any(column.null_count for column in batch.columns):
                raise Damaged
            yield np.stack([column.to_numpy() for column in batch.columns])


def complaints(url: str) -> list[str]:
    """What is wrong with a cluster, in words for who added its connection. What its user may do it does not tell."""
    try:
        with _Session(url, _LOOK_SECONDS):
            return []
    except _Unfit as error:
        return [str(error)]
    except SourceUnavailable as error:
        return [error.detail]
    except _library().grpc.RpcError as error:
        logger.warning("a connection was checked, and its cluster cannot be asked", error=error.code().name)
        return [_AWAY]


class SparkTables:
    """Tables of clusters of Spark.

    Args:
        connect: gives the URL of a named connection.
        seconds: that counting may take.
        readers: read what was copied of a table that is prepared.
        memory_limit: bytes that what was copied may take, and what is made of it.
    """

    def __init__(
        self, connect: Callable[[str], str], seconds: float, readers: Readers = readers, memory_limit: int = 1 << 30
    ) -> None:
        self._connect, self._seconds = connect, seconds
        self._readers, self._memory_limit = readers, memory_limit

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of all cells of a table, or where these are too many what is needed to ask for some later.

        Raises:
            InvalidDataset: when there is no such connection or table; when it is not what is declared; when a record is
                outside of the domain; when the table changes meanwhile.
            SourceUnavailable: when the cluster cannot be reached.
        """
        of, keys = DeclaredSource(spec), [secrets.randbits(63) for _ in range(_KEYS)]
        counts = np.zeros(0, np.int64)
        with self._asked(spec) as table:
            identity = table.survey(of.report, keys)
            if of.whole:
                counts, told = table.count(of.every, keys)
                if told != identity:
                    raise InvalidDataset(
                        "source.table: it was written to while it was counted, and nothing was kept: register again "
                        "when nothing writes to it"
                    )
        return of.outcome(counts, [*keys, *identity], {"keys": keys, "identity": identity})

    def prepare(self, spec: TableSpec) -> CountedSource:
        """The records of a table, copied into memory and read as an upload's are.

        Raises:
            InvalidDataset: when there is no such connection, table or column; when records are not what is declared,
                or take more memory than there is.
            SourceUnavailable: when the cluster cannot be reached.
        """
        with copying() as memory:
            with self._asked(spec) as table:
                table.copy(memory, self._memory_limit)
            return read_copy(self._readers, spec, memory, "table.parquet", self._memory_limit)

    def asking(self, about: bytes) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
        """What asks the records of a table that was registered: it raises Moved when they are not what they were, and
        Unavailable when the cluster cannot be reached, or takes too long.
        """
        return asking(about, self._asked, _counted)

    @contextmanager
    def _asked(self, spec: TableSpec) -> Iterator[_Table]:
        """A declared table in a session of its own.

        Raises:
            InvalidDataset: when it is not there, or is not kept as Parquet.
            SourceUnavailable: when there is no client; when the cluster is none that is asked, cannot be reached or
                takes too long.
        """
        source = spec.source
        assert isinstance(source, SparkTable)
        if source.connection is None or source.table is None:
            raise InvalidDataset("source: name a connection and a table, as health.visits")
        url = self._connect(source.connection)
        grpc = _library().grpc
        try:
            with _Session(url, self._seconds) as session:
                yield _Table(session, spec, source.table)
        except _Unfit as error:
            raise SourceUnavailable(f"the cluster that has the records is not asked: {error}", retry_after=60) from None
        except (grpc.RpcError, _NoTable, Damaged) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else None
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise too_slow(self._seconds) from None
            name = type(error).__name__ if code is None else code.name
            raise unreachable(source.connection, name, "cluster") from None


def _counted(
    table: _Table, asked: Sequence[CellCounts], keys: Sequence[int], identity: Sequence[int]
) -> Sequence[NDArray[np.int64]]:
    """See :func:`.outcome.asking`."""
    told = [table.count(each, keys) for each in asked]
    if any(found != identity for _, found in told):
        raise Moved
    return [numbers for numbers, _ in told]


class _Table(Dialect):
    """A table within a session, and the words of the engine.

    Raises:
        InvalidDataset: when it is not there, or is not kept as Parquet.
    """

    real, huge, text, over = "DOUBLE", "DECIMAL(38, 0)", "STRING", "{} div {}"

    def __init__(self, session: _Session, spec: TableSpec, table: str) -> None:
        self._session, self._spec = session, spec
        self._table = ".".join(f"`{part}`" for part in table.split("."))
        try:
            found = json.loads(self._described())
            kind, provider = found["type"], found.get("provider")
            self._columns = [Column(column["name"], _kind(column["type"])) for column in found["columns"]]
        except _NoTable:
            raise InvalidDataset(
                "source.table: there is no such table, or the cluster does not tell of it: name one of its own catalog"
            ) from None
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Damaged from None
        if kind not in ("MANAGED", "EXTERNAL") or provider != "parquet":
            raise InvalidDataset(
                "source.table: it is a view, or is not kept as Parquet: name a table that is, as one of CREATE TABLE "
                "... USING parquet AS SELECT"
            )

    def _described(self) -> str:
        (row,) = (
            pa.Table.from_batches(self._session.batches(f"DESCRIBE TABLE EXTENDED {self._table} AS JSON"))
            .column(0)
            .to_pylist()
        )
        return str(row)

    def survey(self, report: Report, keys: Sequence[int]) -> list[int]:
        """Count records, and those outside, clamped or without a value, into a report; how many there are, and for each
        key the sum of their hashes (:meth:`_hashes`).
        """
        width = 2 + 3 * len(self._spec.attributes)
        query = compiled.survey(self._spec, self._reasons(), self._hashes(keys))
        (told,) = np.hstack([*self._session.numbers(query, width + len(keys))]).T.tolist()
        return [compiled.surveyed(self._spec, told[:width], report), *told[width:]]

    def count(self, asked: CellCounts, keys: Sequence[int]) -> tuple[NDArray[np.int64], list[int]]:
        """The numbers of all classes, flat; and how many records were counted, and for each key the sum of their hashes
        (:meth:`_hashes`).
        """
        named = sorted({*asked.axes, *dict(asked.factors)})
        hashes = {f"h{number}": hashed for number, hashed in enumerate(self._hashes(keys))}
        places = compiled.held(self._spec, self._reasons(), named, hashes)
        query = compiled.counts(self, self._spec, places, asked, [*hashes])
        numbers, identity = np.zeros(math.prod(asked.shape), np.int64), np.zeros(1 + len(keys), np.int64)
        for found, number, total, *sums in self._session.numbers(query, 3 + len(keys)):
            identity += [each.sum() for each in (number, *sums)]
            compiled.add(numbers, found, total)
        return numbers, identity.tolist()

    def copy(self, memory: IO[bytes], most: int) -> None:
        """Write what is declared of all records as Parquet, each column under its attribute's name.

        Raises:
            InvalidDataset: when a column is not there, or the file takes more bytes.
        """
        at = {column.name: position for position, column in enumerate(self._columns)}
        names = [attribute.name for attribute in self._spec.attributes]
        if self._spec.unit is not None:
            names.append(self._spec.unit.column)
        for column, name in zip(self._spec.columns, names, strict=True):
            if column not in at:
                raise InvalidDataset(f'source: the table has no column "{column}": name another', attribute=name)
        found = ", ".join(f"c{at[column]} AS n{number}" for number, column in enumerate(self._spec.columns))
        every = ", ".join(f"c{position}" for position in range(len(self._columns)))
        with ExitStack() as opened:
            writer: pq.ParquetWriter | None = None
            for batch in self._session.batches(f"SELECT {found} FROM {self._table} AS records({every})"):
                named = batch.rename_columns(names)
                writer = writer or opened.enter_context(pq.ParquetWriter(memory, named.schema))
                writer.write_batch(named)
                check_room(memory.tell(), most)

    def _reasons(self) -> str:
        """A query for the places of all records, or why they have none."""
        axes = range(len(self._spec.attributes))
        return compiled.records(self, self._spec, self._columns, self._table, axes, reasons=True)

    def _hashes(self, keys: Sequence[int]) -> list[str]:
        """For each key a hash of a record's places, or of why it has none: the same of the same records in any order,
        once they are added up.
        """
        places = ", ".join(f"p{axis}" for axis in range(len(self._spec.attributes)))
        return [f"(xxhash64({key}L, {places}) & {_HASHED}L)" for key in keys]

    # ------------------------------------------------------------------ the engine's words

    def word(self, axis: int, text: str) -> str:
        """In an array, byte by byte; by no text of the query, however labels are spelled."""
        words = ", ".join(f"X'{label.encode().hex()}'" for label in compiled.labels(self._spec.attributes[axis]))
        return f"(NULLIF(array_position(array({words}), CAST({text} AS BINARY)), 0) - 1)"

    def is_nan(self, column: str) -> str:
        """By the engine's own function."""
        return f"isnan({column})"

    def is_infinite(self, column: str) -> str:
        """Above or below all numbers."""
        return f"(abs({column}) = CAST('Infinity' AS DOUBLE))"

    def days(self, first: str, date: str) -> str:
        """As a number: the difference itself is an interval."""
        return f"datediff({date}, {first})"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In an array, of which every number is as near. It is one word of the query: a million of them would be read
        for minutes.
        """
        listed = ",".join(map(str, numbers.tolist()))
        return f"element_at(CAST(split('{listed}', ',') AS ARRAY<BIGINT>), CAST({place} + 1 AS INTEGER))"


def _kind(told: dict[str, Any]) -> Kind | None:
    """What a column of a type holds, as far as it is counted."""
    if told["name"] == "decimal":
        return "wide" if told["scale"] == 0 else None
    if told.get("collation", "UTF8_BINARY") != "UTF8_BINARY":
        return None  # texts that are not equal are said to be
    return _KINDS.get(told["name"])
