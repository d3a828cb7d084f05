"""Answers to marginal questions as Arrow streams: a row a cell, from the reply that is JSON otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

#: Columns behind those of the attributes.
NUMBERS = ("value", "standard_error", "low", "high")
#: Where the metadata of the stream's schema have what is no column, as JSON.
FACTS = b"curator"


def arrow_table(reply: bytes) -> bytes:
    """The reply as an Arrow stream.

    A column an attribute, with the labels of the cells: integers, or strings where one label is a string. Then
    ``value``, ``standard_error``, ``low`` and ``high``, null where they are not known. An attribute of one of these
    names has an underscore behind it. All else that the reply says is JSON in the metadata of the schema.

    Args:
        reply: the JSON of an answer to a marginal question.
    """
    answer = orjson.loads(reply)
    axes = answer.pop("axes")
    lengths = [len(axis["labels"]) for axis in axes]
    columns: dict[str, Any] = {}
    for place, axis in enumerate(axes):
        name = axis["attribute"]
        while name in NUMBERS or name in columns:
            name += "_"
        each = np.repeat(np.arange(lengths[place]), math.prod(lengths[place + 1 :]))
        columns[name] = _labels(axis["labels"]).take(pa.array(np.tile(each, math.prod(lengths[:place]))))
    values, errors, intervals = (answer.pop(name) for name in ("values", "standard_errors", "intervals"))
    nothing = [None] * len(values)
    lows, highs = zip(*intervals, strict=True) if intervals is not None else (nothing, nothing)
    for name, numbers in zip(NUMBERS, (values, errors or nothing, lows, highs), strict=True):
        columns[name] = pa.array(numbers, pa.float64())
    table = pa.table(columns).replace_schema_metadata({FACTS: orjson.dumps(answer)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _labels(labels: list[Any]) -> pa.Array:
    if all(type(label) is int for label in labels):
        return pa.array(labels, pa.int64())
    return pa.array([str(label) for label in labels], pa.string())
