"""Answers that are tables as Arrow streams: a row a cell, from the reply that is JSON otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from app.releases.table_results import NUMBERS, distinct

#: Where the metadata of the stream's schema have what is no column, as JSON.
FACTS = b"curator"


def arrow_table(reply: bytes) -> bytes:
    """The reply as an Arrow stream.

    A column an attribute, with the labels of the cells: integers, numbers or strings, whichever holds all of them, and
    null for no value. Then ``value``, ``standard_error``, ``low`` and ``high``, null where they are not known. An
    attribute of one of these names has an underscore behind it. All else that the reply says is JSON in the metadata of
    the schema.

    Args:
        reply: the JSON of an answer that is a table.
    """
    answer = orjson.loads(reply)
    axes = answer.pop("axes")
    lengths = [len(axis["labels"]) for axis in axes]
    columns: dict[str, Any] = {}
    for place, name in enumerate(distinct((axis["attribute"] for axis in axes), NUMBERS)):
        axis = axes[place]
        each = np.repeat(np.arange(lengths[place]), math.prod(lengths[place + 1 :]))
        columns[name] = _labels(axis["labels"]).take(pa.array(np.tile(each, math.prod(lengths[:place]))))
    values, errors, intervals = (answer.pop(name) for name in ("values", "standard_errors", "intervals"))
    nothing = [None] * len(values)
    lows, highs = zip(*(ends or (None, None) for ends in intervals or nothing), strict=True)
    for name, numbers in zip(NUMBERS, (values, errors or nothing, lows, highs), strict=True):
        columns[name] = pa.array(numbers, pa.float64())
    table = pa.table(columns).replace_schema_metadata({FACTS: orjson.dumps(answer)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _labels(labels: list[Any]) -> pa.Array:
    kinds = {type(label) for label in labels if label is not None}
    for several, kind in (({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= several:
            return pa.array(labels, kind)
    return pa.array([None if label is None else str(label) for label in labels], pa.string())
