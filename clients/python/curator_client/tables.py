"""Arrays and tables that come as files, read with no more trust than anything else that comes."""

from __future__ import annotations

import io
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from curator_client.errors import ProtocolError
from curator_client.extras import extra

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import pyarrow as pa
    from numpy.typing import NDArray


def array(content: bytes) -> NDArray[np.float64]:
    """The array of a .npy file, of the size that it says.

    Raises:
        ProtocolError: when it is none.
    """
    import numpy as np
    from numpy.lib import format as npy

    stream = io.BytesIO(content)
    # The header is parsed as Python, which raises almost anything on what is none.
    with suppress(Exception):
        if npy.read_magic(stream) == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(stream)
            if dtype.kind in "iuf" and len(content) - stream.tell() == math.prod(shape) * dtype.itemsize:
                found = np.frombuffer(content, dtype, offset=stream.tell())
                return found.reshape(shape, order="F" if fortran else "C").astype(np.float64)
    raise ProtocolError("the hypothesis is not an array")


def arrow_table(content: bytes) -> pa.Table:
    """The table of an Arrow stream.

    Raises:
        MissingExtra: without the extra ``arrow``.
        ProtocolError: when it is none.
    """
    pa = extra("arrow", "pyarrow")
    with suppress(pa.ArrowException, OSError), pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
        table.validate(full=True)
        return table
    raise ProtocolError("the reply is not a table")


def frame(content: bytes) -> pandas.DataFrame:
    """The same as a frame.

    Raises:
        MissingExtra: without the extras ``pandas`` and ``arrow``.
        ProtocolError: when it is none.
    """
    extra("pandas", "pandas")
    made: Any = arrow_table(content).to_pandas()
    return made
