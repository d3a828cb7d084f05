"""Results of SQL as Arrow streams."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from app.http.marginal_tables import FACTS

_TYPES = {
    "integer": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "date": pa.string(),
    "boolean": pa.bool_(),
    "double[]": pa.list_(pa.float64()),
}


def arrow_result(result: dict[str, Any]) -> bytes:
    """A result as an Arrow stream: its columns, dates as texts, and all else as JSON in the metadata of the schema."""
    names = [column["name"] for column in result["columns"]]
    kinds = [_TYPES[column["type"]] for column in result["columns"]]
    rows = result["rows"]
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    facts = orjson.dumps({name: part for name, part in result.items() if name != "rows"})
    table = pa.table(arrays, names=names).replace_schema_metadata({FACTS: facts})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
