"""Publications as files: each table by itself, a workbook of all of them, and a manifest that says what they are of."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from openpyxl import Workbook, load_workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from app.curator.opening import Opening
from app.curator.planners.workload import WorkloadPlan
from app.declarations.errors import InvalidRequest
from app.releases.publication import FORMAT, NOTES
from app.releases.table_results import CONFIDENCE, NUMBERS, counted
from app.releases.workloads import TableWorkload
from app.services.dummy_records import encoded
from app.spaces.table import TableSpace

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
    space, plan = opening.dataset.space, opening.plan
    assert isinstance(space, TableSpace)
    assert isinstance(plan, WorkloadPlan)
    assert isinstance(plan.workload, TableWorkload)
    told = [
        {
            "table": number,
            "attributes": _attributes(each),
            "counts": counted(space, plan.workload.questions[number - 1]),
            "rows": len(each),
            "sum": pc.sum(each.column("value")).as_py(),
            "sha256": digest(each),
        }
        for number, each in numbered(table)
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
        "notes": list(NOTES),
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
    book = Workbook(write_only=True)
    if manifest is None:
        _sheet(book, "data", table)
    else:
        for number, each in numbered(table):
            _sheet(book, f"table {number}", each)
        notes = book.create_sheet("notes")
        for note in _notes(manifest):
            notes.append([_cell(notes, note)])
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def differing(book: bytes, tables: Mapping[int, bytes]) -> list[str]:
    """What a workbook of a publication says that its tables do not.

    Args:
        book: the file.
        tables: the CSV file of each table by its number.
    """
    try:
        found = load_workbook(io.BytesIO(book), read_only=True)
    except Exception:  # noqa: BLE001 - whatever is wrong with a file that anybody may have written
        return ["tables.xlsx is no workbook"]
    if found.sheetnames != [*(f"table {number}" for number in sorted(tables)), "notes"]:
        return ["tables.xlsx has not a sheet for each table, and one of notes"]
    return [
        f"table {number} of tables.xlsx is not that of table-{number}.csv"
        for number, content in sorted(tables.items())
        if not _alike(found[f"table {number}"].iter_rows(values_only=True), content)
    ]


def _alike(rows: Iterable[Sequence[Any]], content: bytes) -> bool:
    """Whether a sheet has the cells of a CSV file."""
    told = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    return all(
        _same(cell, text)
        for row, written in itertools.zip_longest(rows, told, fillvalue=())
        for cell, text in itertools.zip_longest(row, written, fillvalue="")
    )


def _same(cell: Any, text: str) -> bool:
    """Whether a cell of a sheet is what stands in one of a CSV file."""
    if cell is None or isinstance(cell, str):
        return (cell or "") == _text(text)
    try:
        return math.isclose(float(cell), float(text), rel_tol=1e-14)  # sheets have numbers of 15 digits
    except (TypeError, ValueError):
        return False


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


def _sheet(book: Workbook, name: str, table: pa.Table) -> None:
    if len(table) > MOST_ROWS:
        raise InvalidRequest(
            f"Accept: a sheet holds {MOST_ROWS:,} rows, and there are {len(table):,}: take CSV or Parquet"
        )
    sheet = book.create_sheet(name)
    sheet.append([_cell(sheet, column) for column in table.column_names])
    for batch in table.to_batches(max_chunksize=_BATCH):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append([_cell(sheet, value) for value in row])
