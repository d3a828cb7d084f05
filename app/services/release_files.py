"""Results of a release as tables: answers, synthetic records and edges, with the names that the declaration has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.releases.finishing import Outcome
from app.releases.table_results import Told, labels_of, named_columns
from app.services.edge_tables import edge_table
from app.services.publications import typed
from app.spaces.partition import Partition
from app.spaces.space import Space
from app.spaces.table import TableSpace


def tables_of(space: Space, outcome: Outcome) -> dict[str, bytes]:
    """Arrow files by their names."""
    if outcome.edges is not None:
        cells = outcome.edges
        return {"edges": _encoded(edge_table(space, cells.edges, cells.values, cells.bits, sparse=cells.sparse))}
    assert isinstance(space, TableSpace)
    if outcome.agreeing:
        return {"tables": _encoded(_tables(space, outcome))}
    found = {"answers": _encoded(_answers(space, outcome))}
    if outcome.records is not None:
        found["records"] = _encoded(_records(space, outcome))
    return found


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # Of millions of edges few columns say much: numbers of nodes in order, and of bits one of two values.
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _answers(space: TableSpace, outcome: Outcome) -> pa.Table:
    """A row for each number: which question it answers, the label of its cell of each attribute (null where the
    question does not name it), the value, its standard error and the 95% interval (null where none is known). An
    attribute that is called like one of these has an underscore behind its name.
    """
    labels = [labels_of(space, each) for each in outcome.answers]
    named = [name for name in named_columns(space) if any(name in told for told in labels)]
    parts: dict[str, list[pa.Array]] = {name: [] for name in ("question", *named)}
    for number, (each, told) in enumerate(zip(outcome.answers, labels, strict=True)):
        size = each.estimates.values.size
        parts["question"].append(pa.array(np.full(size, number, np.int32)))
        for name in named:
            # Cells of several questions may be called otherwise: one column holds what all of them are called.
            parts[name].append(told[name] if name in told else pa.nulls(size, pa.string()))
    columns = {name: pa.concat_arrays(arrays) for name, arrays in parts.items()}
    known = {
        "value": [each.estimates.values for each in outcome.answers],
        "standard_error": [each.estimates.standard_errors for each in outcome.answers],
        "low": [each.estimates.lows for each in outcome.answers],
        "high": [each.estimates.highs for each in outcome.answers],
    }
    for name, arrays in known.items():
        columns[name] = pa.array(np.concatenate([array.reshape(-1) for array in arrays]), from_pandas=True)
    return pa.table(columns)


def _tables(space: TableSpace, outcome: Outcome) -> pa.Table:
    """The same of tables that agree, numbered from 1 on: whole numbers, and the ends of intervals too, but for
    statistics."""
    found = _answers(space, outcome)
    found = found.set_column(0, "table", pc.add(found.column("question"), pa.scalar(1, pa.int32())))
    return typed(found, [number for number, each in enumerate(outcome.answers, 1) if isinstance(each, Told)])


def _labels(space: TableSpace, axis: int, partition: Partition) -> pa.Array:
    """The labels of an attribute's cells."""
    return pa.array(list(space.values[axis].labels(partition.listed())))


def _records(space: TableSpace, outcome: Outcome) -> pa.Table:
    """A row for each synthetic record, a column of labels for each attribute."""
    records = outcome.records
    assert records is not None
    columns = {
        space.names[axis]: _labels(space, axis, cells).take(pa.array(codes))
        for axis, cells, codes in zip(records.axes, records.cells, records.codes.T, strict=True)
    }
    return pa.table(columns)
