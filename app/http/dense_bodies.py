"""Bodies that are a dense query: an array (.npy), or a column of an Arrow stream."""

from __future__ import annotations

import io
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from app.http.headers import NPY
from app.services.query_bodies import DenseBody
from app.spaces.errors import InvalidQuery
from app.spaces.queries.request import QueryModel

#: Most record batches of an Arrow body: an empty one takes more memory than it has bytes.
MAX_BATCHES = 10_000
#: How an Arrow stream ends: as written since version 0.15 of Arrow, and before.
_ENDS = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")


def dense_body(media_type: str, body: bytes, wanted: QueryModel) -> DenseBody:
    """A dense query from an .npy or Arrow body.

    Args:
        media_type: which of the two it is.
        body: the bytes.
        wanted: what is wanted of the answer, which the body cannot say.

    Raises:
        InvalidQuery: when the body is not what its media type says, or holds something else than numbers.
    """
    try:
        array = _npy(body) if media_type == NPY else _arrow(body)
    except InvalidQuery:
        raise
    except Exception:  # noqa: BLE001 - the parsers of both formats raise almost anything on damaged bytes
        raise InvalidQuery(f"the body is not a readable {media_type}: write it again") from None
    return DenseBody(array, wanted)


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
