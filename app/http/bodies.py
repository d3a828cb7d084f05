"""Request bodies: read within limits of their size and memory, parsed within limits of what they hold."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import io
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.lib import format as npy
from starlette.requests import Request
from starlette.types import Scope

from app.services.answering import DenseBody
from app.services.errors import PayloadTooLarge, Unavailable
from app.spaces.errors import InvalidQuery, InvalidRequest

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
#: Most record batches of an Arrow body: an empty one takes more memory than it has bytes.
MAX_BATCHES = 10_000
#: Most values of a JSON body. While it is parsed every other request waits, and a byte becomes up to forty in memory.
MAX_VALUES = 2_000_000
#: Values that a list, an object or a name counts as: it takes as much time and memory as so many numbers.
VALUES_A_NAME = 4
#: Values, and bytes, that count as one request.
VALUES_A_REQUEST, BYTES_A_REQUEST = 2_000, 1 << 16
#: How an Arrow stream ends: as written since version 0.15 of Arrow, and before.
_ENDS = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
#: Media types that are read as JSON. The second is what curl and urllib declare unless told otherwise.
_JSON = ("application/json", "application/x-www-form-urlencoded")


def header(request: Request, name: bytes) -> str | None:
    """The first header of this name in lower case. The framework's own look-up costs several times as much."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def media_type(request: Request) -> str:
    """The declared media type of the body, in lower case without parameters; empty where none is declared."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def expect_json(request: Request) -> None:
    """Refuse a body that is declared to be something else than JSON.

    Raises:
        InvalidRequest: saying what to send.
    """
    declared = media_type(request)
    if declared and declared not in _JSON and not declared.endswith("+json"):
        raise InvalidRequest("the body must be JSON: send it with Content-Type: application/json")


def expect_plain(scope: Scope) -> None:
    """Refuse a request whose body is compressed or otherwise encoded: nothing here would decode it.

    Raises:
        InvalidRequest: naming the header to leave out.
    """
    for name, value in scope["headers"]:
        plain = _PLAIN.get(name)
        if plain is not None and value.strip().lower() != plain:
            raise InvalidRequest(
                f"{name.decode().title()} other than {plain.decode()} is not taken: send the body as it is"
            )


#: Headers that state the encoding of a body, and the value that is accepted. The HTTP parser decodes chunks, and
#: refuses other encodings only where they come last.
_PLAIN = {b"transfer-encoding": b"chunked", b"content-encoding": b"identity"}


class BodyMemory:
    """Memory for the bodies of all requests under way, as they were sent. For the event loop's thread alone.

    A limit on each body does not bound the memory of many that are sent at once: this does.

    Args:
        size: bytes.
        refused: called with the reason, ``memory``, of each request that there is no memory for.
    """

    def __init__(self, size: int, refused: Callable[[str], None]) -> None:
        self.free, self._refused = size, refused

    def reserve(self, scope: Scope, size: int) -> None:
        """Reserve memory for a part of a request's body, until :meth:`release`.

        Raises:
            Unavailable: when there is not enough.
        """
        if size > self.free:
            self._refused("memory")
            raise Unavailable("the bodies of other requests take all the room there is: send again a little later")
        self.free -= size
        scope["body_bytes"] = scope.get("body_bytes", 0) + size

    def release(self, scope: Scope) -> None:
        """Release what a request reserved, as it is done."""
        self.free += scope.pop("body_bytes", 0)

    def release_after(self, scope: Scope, work: asyncio.Future[None]) -> None:
        """Release what a request reserved when some work is done that outlives the request."""
        reserved = scope.pop("body_bytes", 0)

        def done(_: asyncio.Future[None]) -> None:
            self.free += reserved

        work.add_done_callback(done)


async def read(request: Request, limit: int, memory: BodyMemory) -> bytes:
    """The body's bytes.

    Raises:
        PayloadTooLarge: as soon as it passes ``limit`` bytes, or declares that it will.
        Unavailable: when the bodies of all requests leave no memory for it.
    """
    declared = header(request, b"content-length") or ""
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    # Most often the first part is all there is. The others go into one array: in a list, a part of one byte would take
    # fifty.
    first, rest = b"", bytearray()
    async for part in request.stream():
        if len(first) + len(rest) + len(part) > limit:
            raise too_large(limit)
        memory.reserve(request.scope, len(part))
        if first:
            rest += part
        else:
            first = part
    return first + rest if rest else first


def too_large(limit: int) -> PayloadTooLarge:
    """The refusal of a body over its limit."""
    return PayloadTooLarge(f"the body may have at most {limit:,} bytes", limit=limit)


def weigh(body: bytes) -> int:
    """As how many requests a JSON body counts, by its commas, brackets and colons, before it is parsed.

    Raises:
        PayloadTooLarge: when it has more than :data:`MAX_VALUES` values.
    """
    values = body.count(b",") + VALUES_A_NAME * sum(body.count(sign) for sign in (b"[", b"{", b":"))
    if values > MAX_VALUES:
        raise PayloadTooLarge(
            f"a JSON body may hold at most {MAX_VALUES:,} values, where a list, an object or a name counts as "
            f"{VALUES_A_NAME}: send dense weights as .npy or Arrow, or fewer queries in a batch",
            limit=MAX_VALUES,
        )
    return 1 + values // VALUES_A_REQUEST + len(body) // BYTES_A_REQUEST


def parse_json(body: bytes, depth: int) -> Any:
    """The document of a JSON body that has passed :func:`weigh`.

    Raises:
        InvalidRequest: when it is not JSON, is nested deeper than ``depth``, or an object has two members of one name.
    """
    # Each new list may trigger a garbage collection that visits all of them. No other thread goes without collection:
    # the parser holds the interpreter's lock.
    gc.disable()
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    finally:
        gc.enable()
    if body.count(b"[") + body.count(b"{") > depth and _deeper(document, depth):
        raise InvalidRequest(f"the body is nested deeper than {depth} levels")
    if _repeats_a_name(body, document):
        raise InvalidRequest("an object of the body has two members of one name: keep one of them")
    return document


_CONTAINERS = frozenset((dict, list))


def _deeper(document: Any, depth: int) -> bool:
    level = [document] if type(document) in _CONTAINERS else []
    for _ in range(depth + 1):
        inner: list[Any] = []
        for node in level:
            children = node.values() if type(node) is dict else node
            # Most lists hold numbers alone, which this tells faster than a loop.
            if not _CONTAINERS.isdisjoint(map(type, children)):
                inner += [child for child in children if type(child) in _CONTAINERS]
        if not inner:
            return False
        level = inner
    return True


_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_NAMED = re.compile(rb'"[ \t\r\n]*+:')


def _repeats_a_name(body: bytes, document: Any) -> bool:
    """Whether an object of a body has two members of one name, of which the parser keeps only the last.

    Each member of the body has a colon outside of strings: there are more of them than members in ``document`` if some
    were dropped. Most bodies have no colon in a string. Then the members of ``document`` are all found before the long
    lists below them, which need no visit.
    """
    colons, members = body.count(b":"), 0
    nodes = [document]
    while nodes and members < colons:
        node = nodes.pop()
        if type(node) is dict:
            members += len(node)
            node = node.values()
        elif type(node) is not list:
            continue
        if members < colons and not _CONTAINERS.isdisjoint(map(type, node)):
            nodes += [child for child in node if type(child) in _CONTAINERS]
    if members == colons or members == len(_NAMED.findall(body)):  # cheaper than to find the strings
        return False
    return members < _TEXT.sub(b"", body).count(b":")


def fingerprint(document: Any) -> str:
    """The hash of a body that an idempotency key stands for: equal for equal JSON, however it is formatted."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()


def dense_body(media_type: str, body: bytes, *, unverified: bool) -> DenseBody:
    """A dense query from an .npy or Arrow body.

    Args:
        media_type: which of the two it is.
        body: the bytes.
        unverified: whether to answer it from the hypothesis alone.

    Raises:
        InvalidQuery: when the body is not what its media type says, or holds something else than numbers.
    """
    try:
        array = _npy(body) if media_type == NPY else _arrow(body)
    except InvalidQuery:
        raise
    except Exception:  # noqa: BLE001 - the parsers of both formats raise almost anything on damaged bytes
        raise InvalidQuery(f"the body is not a readable {media_type}: write it again") from None
    return DenseBody(array, unverified)


def _npy(body: bytes) -> Any:
    """The array of an .npy body, as a view of it: a header that lies about the size allocates nothing."""
    stream = io.BytesIO(body)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
    shape, fortran, dtype = read_header(stream)
    if dtype.kind not in "biuf":
        raise InvalidQuery("an .npy body holds an array of numbers")
    start = stream.tell()
    if min(shape, default=0) < 0 or len(body) - start != math.prod(shape) * dtype.itemsize:
        raise InvalidQuery("the .npy body is not as long as its shape says: is it complete?")
    return np.frombuffer(body, dtype, offset=start).reshape(shape, order="F" if fortran else "C")


def _arrow(body: bytes) -> Any:
    """The only column of an Arrow body.

    Only plain numbers are read, which take no more memory than the body. Everything else (compressed buffers,
    dictionaries, runs, nulls without a buffer) could expand to any size that the body names, and is refused unread.
    """
    source = pa.BufferReader(body)
    with pa.ipc.open_stream(body) as reader:
        if len(reader.schema) != 1:
            raise InvalidQuery("an Arrow body has one column of weights")
        kind = reader.schema.field(0).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidQuery("an Arrow body holds a column of plain numbers")
        end = 0
        for number, message in enumerate(pa.ipc.MessageReader.open_stream(source)):
            end = source.tell()
            if message.type not in ("schema", "record batch"):
                raise InvalidQuery("an Arrow body holds a schema and record batches, and nothing else")
            if number > MAX_BATCHES:
                raise InvalidQuery(f"an Arrow body holds at most {MAX_BATCHES:,} record batches: write larger ones")
            if message.type == "record batch" and _compressed(message.metadata.to_pybytes()):
                raise InvalidQuery("an Arrow body comes without compression: write it with compression=None")
        if body[end:] not in _ENDS:
            raise InvalidQuery(
                "an Arrow body ends with the mark of the stream's end and nothing after it: close the writer"
            )
        table = reader.read_all()
    # Only this compares the stated lengths with the buffers. Without it a column could reach beyond the body, into
    # other memory of this process.
    table.validate(full=True)
    return table.column(0).to_numpy()


def _compressed(metadata: bytes) -> bool:
    """Whether the buffers of a record batch are compressed. The library does not tell: it decompresses them unasked.

    Message.fbs of the Arrow format: ``compression`` is field 3 of a RecordBatch, which is field 2 of a Message. The
    library has verified the flatbuffer when it read the message.
    """

    def field(table: int, number: int) -> int:
        """The offset of a table's field, by the table's vtable (flatbuffers); 0 if the table does not have it."""
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        slot = 4 + 2 * number
        size, offset = struct.unpack_from("<H", metadata, vtable)[0], 0
        if slot < size:
            offset = struct.unpack_from("<H", metadata, vtable + slot)[0]
        return table + int(offset) if offset else 0

    message = struct.unpack_from("<I", metadata, 0)[0]
    header = field(message, 2)
    return bool(field(header + struct.unpack_from("<I", metadata, header)[0], 3))
