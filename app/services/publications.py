"""Publications as files: each table by itself, a workbook of all of them, and a manifest that says what they are of."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from zipfile import ZipFile

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from app.curator.opening import Opening
from app.curator.planners.workload import WorkloadPlan
from app.declarations.errors import InvalidRequest
from app.releases.publication import FORMAT, notes_of, stated
from app.releases.table_results import CONFIDENCE, NUMBERS
from app.releases.workloads import TableWorkload
from app.services.dummy_records import encoded
from app.spaces.table import TableSpace
from curator_client.words import words

#: The most rows of a sheet: what spreadsheets hold.
MOST_ROWS = (1 << 20) - 1
#: The longest cell of one.
_MOST_TEXT = 32_767
#: How many rows are written at a time.
_BATCH = 10_000
#: Columns of numbers, and how they are read, of counts and of statistics.
_KINDS = {name: float if name == "standard_error" else int for name in NUMBERS}, dict.fromkeys(NUMBERS, float)
#: Where a table of all says which of them are statistics.
_STATISTICS = b"statistics"
#: When a workbook was written, as it says so itself.
_WRITTEN = re.compile(rb"<dcterms:(?:created|modified)[^>]*>[^<]*")


def typed(table: pa.Table, statistics: Sequence[int]) -> pa.Table:
    """All tables of a publication as they are kept: whole numbers where there are no statistics, else numbers, and
    which tables are not whole.

    Args:
        table: of all of them.
        statistics: the numbers of those that are statistics, ascending.
    """
    if statistics:
        return table.replace_schema_metadata({_STATISTICS: orjson.dumps(list(statistics))})
    return _whole(table)


def _whole(table: pa.Table) -> pa.Table:
    for name in ("value", "low", "high"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
    return table


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
    metadata = table.schema.metadata or {}
    if _STATISTICS in metadata:
        found = found.replace_schema_metadata(None)
        found = found if number in orjson.loads(metadata[_STATISTICS]) else _whole(found)
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
    space, plan = opening.dataset.space, opening.plan
    assert isinstance(space, TableSpace)
    assert isinstance(plan, WorkloadPlan)
    assert isinstance(plan.workload, TableWorkload)
    asked = opening.request.workload.workload
    told = [
        {
            "table": number,
            "attributes": _attributes(each),
            **stated(space, table_of, number, asked, pc.sum(each.column("value")).as_py()),
            "rows": len(each),
            "sha256": digest(each),
        }
        for (number, each), table_of in zip(numbered(table), plan.workload.tables, strict=True)
    ]
    document = {
        "format": FORMAT,
        "release": release,
        "dataset": opening.request.dataset,
        "epsilon": float(opening.request.epsilon),
        "confidence": CONFIDENCE,
        "seed": str(summary["seed"]),
        "records": summary["records"],
        "measurements": [*known, *(hashlib.sha256(line).hexdigest() for line in made)],
        "head_hash": head,
        "tables": told,
        "notes": notes_of(plan.workload),
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def digest(table: pa.Table) -> str:
    """The SHA-256 of a table as the CSV that is sent."""
    return hashlib.sha256(encoded(table, "csv")).hexdigest()


def workbook(table: pa.Table, manifest: Mapping[str, Any] | None = None) -> bytes:
    """A table as a workbook: of a publication a sheet a table, and one with notes on what they count and how they were
    made.

    Texts are written as texts, also those that a spreadsheet would take for formulas.

    Args:
        table: of a release.
        manifest: of a publication; None of all else.

    Raises:
        InvalidRequest: for more rows than a sheet holds.
    """
    named = [("data", table)] if manifest is None else [(f"table {k}", each) for k, each in numbered(table)]
    sheets = [(name, each.column_names, _rows(each)) for name, each in named]
    return _book(sheets, None if manifest is None else list(_notes(manifest)))


def _rows(table: pa.Table) -> Iterator[Sequence[Any]]:
    if len(table) > MOST_ROWS:
        raise InvalidRequest(
            f"Accept: a sheet holds {MOST_ROWS:,} rows, and there are {len(table):,}: take CSV or Parquet"
        )
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _book(sheets: Iterable[tuple[str, Sequence[str], Iterable[Sequence[Any]]]], notes: Sequence[str] | None) -> bytes:
    """A workbook with a sheet a table, each by its name, its header and its rows; and one of notes, where there are
    any."""
    book = Workbook(write_only=True)
    for name, header, rows in sheets:
        sheet = book.create_sheet(name)
        for row in itertools.chain([header], rows):
            sheet.append([_cell(sheet, value) for value in row])
    if notes is not None:
        sheet = book.create_sheet("notes")
        for note in notes:
            sheet.append([_cell(sheet, note)])
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def differing(book: bytes, tables: Mapping[int, bytes], manifest: Mapping[str, Any]) -> list[str]:
    """What a workbook of a publication says that its tables and its manifest do not: every part of it is held against
    the one that is made here, and none is opened as a sheet, which may be of any size.

    Args:
        book: the file.
        tables: the CSV file of each table by its number.
        manifest: that was checked.
    """
    try:
        beside = {told["table"] for told in manifest["tables"] if "question" in told}
        sheets = [(f"table {k}", *_typed(content, _KINDS[k in beside])) for k, content in sorted(tables.items())]
    except (ValueError, OverflowError, csv.Error):
        return ["tables.xlsx cannot be held against tables that are none"]
    due = ZipFile(io.BytesIO(_book(sheets, list(_notes(manifest)))))
    try:
        found = ZipFile(io.BytesIO(book))
        if found.namelist() != due.namelist():
            return ["tables.xlsx has other parts than a workbook of these tables"]
        return [
            f"tables.xlsx is not the workbook of these tables and notes: {name} differs"
            for name, own in zip(due.namelist(), due.infolist(), strict=True)
            if found.getinfo(name).file_size != own.file_size or _part(found, name) != _part(due, name)
        ]
    except Exception:  # noqa: BLE001 - whatever is wrong with a file that anybody may have written
        return ["tables.xlsx is no workbook"]


def _part(book: ZipFile, name: str) -> bytes:
    """A part of a workbook, but for when it was written."""
    return _WRITTEN.sub(b"", book.read(name)) if name == "docProps/core.xml" else book.read(name)


def _typed(content: bytes, columns: Mapping[str, type]) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """The header of a CSV file, and its rows with numbers in their columns.

    Raises:
        ValueError, OverflowError, csv.Error: when there is none.
    """
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    kinds = [columns.get(name, str) for name in header]
    return header, [[None if not text else kind(text) for kind, text in zip(kinds, row, strict=True)] for row in rows]


def _text(value: str) -> str:
    """A text as a sheet holds it."""
    return ILLEGAL_CHARACTERS_RE.sub("\N{REPLACEMENT CHARACTER}", value)[:_MOST_TEXT]


def _notes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a publication is of, what each of its tables counts, and how they were made."""
    yield (
        f"Data set {manifest['dataset']}, release {manifest['release']}. Intervals hold with a probability of "
        f"{manifest['confidence']:.0%}. What was measured for this release alone had epsilon {manifest['epsilon']:g}."
    )
    for told in manifest["tables"]:
        if "question" in told:
            yield f"table {told['table']}: {words(told['question'])}"
        else:
            yield f"table {told['table']}: {_counted(told['attributes'], told['counts'])}; {told['sum']:,} together"
    yield from manifest["notes"]


def _counted(attributes: Sequence[str], counts: Sequence[Mapping[str, str]] | None) -> str:
    """What a table counts, by what its manifest says of it."""
    if attributes:
        return f"records by {', '.join(attributes)}"
    if counts is None:
        return "records under conditions that are too many to be told here"
    some = (", ".join(f"{name} {label}" for name, label in each.items()) for each in counts)
    return f"records with {'; or '.join(some)}" if any(counts) else "all records"


def _cell(sheet: Any, value: Any) -> Any:
    """A cell of a sheet: a text is one, also where a spreadsheet would take it for a formula."""
    if not isinstance(value, str):
        return value
    found = WriteOnlyCell(sheet, value=_text(value))
    found.data_type = "s"
    return found
