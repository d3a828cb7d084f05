"""Publications as files: each table by itself, a workbook of all of them, and a manifest that says what they are of."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from app.curator.opening import Opening
from app.declarations.errors import InvalidRequest
from app.releases.publication import NOTES
from app.releases.table_results import CONFIDENCE, NUMBERS
from app.services.dummy_records import encoded

#: The most rows of a sheet: what spreadsheets hold.
MOST_ROWS = (1 << 20) - 1
#: The longest cell of one.
_MOST_TEXT = 32_767
#: How many rows are written at a time.
_BATCH = 10_000


def numbered(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Each table of a publication, with its number.

    Args:
        table: of all of them, as it is kept.
    """
    for number in range(1, 1 + (pc.max(table.column("table")).as_py() or 0)):
        yield number, one(table, number)


def one(table: pa.Table, number: int) -> pa.Table:
    """A table of a publication by its number, with the columns that it has; empty where there is none.

    Args:
        table: of all of them, as it is kept.
        number: from 1 on.
    """
    found = table.filter(pc.equal(table.column("table"), number)).drop_columns(["table"])
    empty = [name for name in _attributes(found) if found.column(name).null_count == len(found)]
    return found.drop_columns(empty)


def _attributes(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if name not in ("table", *NUMBERS)]


def manifest(
    release: str, opening: Opening, made: Sequence[bytes], head: str, summary: Mapping[str, Any], tables: bytes
) -> bytes:
    """The manifest as JSON: what the tables were made of, and what they are, so that both can be checked.

    Args:
        release: its id.
        opening: of its session.
        made: the records of what was measured for it.
        head: hash of the transcript's last entry.
        summary: of the outcome.
        tables: all of them, as an Arrow file.
    """
    known = () if opening.evidence is None else opening.evidence.known
    table = pa.ipc.open_file(pa.BufferReader(tables)).read_all()
    told = [
        {
            "table": number,
            "attributes": _attributes(each),
            "rows": len(each),
            "sum": pc.sum(each.column("value")).as_py(),
            "sha256": digest(each),
        }
        for number, each in numbered(table)
    ]
    document = {
        "format": 1,
        "release": release,
        "dataset": opening.request.dataset,
        "epsilon": float(opening.request.epsilon),
        "confidence": CONFIDENCE,
        "seed": str(summary["seed"]),
        "records": summary["records"],
        "measurements": [*known, *(hashlib.sha256(line).hexdigest() for line in made)],
        "head_hash": head,
        "tables": told,
        "notes": list(NOTES),
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def digest(table: pa.Table) -> str:
    """The SHA-256 of a table as the CSV that is sent."""
    return hashlib.sha256(encoded(table, "csv")).hexdigest()


def workbook(table: pa.Table) -> bytes:
    """A table as a workbook: of a publication a sheet a table, and one with notes on how they were made.

    Texts are written as texts, also those that a spreadsheet would take for formulas.

    Raises:
        InvalidRequest: for more rows than a sheet holds.
    """
    book = Workbook(write_only=True)
    # Of synthetic records columns are labels, whatever they are called: texts, or integers of 64 bits.
    if "table" in table.column_names and table.schema.field("table").type == pa.int32():
        for number, each in numbered(table):
            _sheet(book, f"table {number}", each)
        notes = book.create_sheet("notes")
        for note in NOTES:
            notes.append([note])
    else:
        _sheet(book, "data", table)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def _sheet(book: Workbook, name: str, table: pa.Table) -> None:
    if len(table) > MOST_ROWS:
        raise InvalidRequest(
            f"Accept: a sheet holds {MOST_ROWS:,} rows, and there are {len(table):,}: take CSV or Parquet"
        )
    sheet = book.create_sheet(name)

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = WriteOnlyCell(sheet, value=ILLEGAL_CHARACTERS_RE.sub("\N{REPLACEMENT CHARACTER}", value)[:_MOST_TEXT])
        found.data_type = "s"
        return found

    sheet.append([cell(column) for column in table.column_names])
    for batch in table.to_batches(max_chunksize=_BATCH):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append([cell(value) for value in row])
