"""Excel workbooks (.xlsx): the first sheet, whose first row that is not empty names the columns.

A cell becomes the text that a CSV file would have, so that a sheet means the same in both: dates as 2020-01-31,
Booleans as true and false, a formula as the value that was last computed.
"""

import contextlib
import datetime
import io
import itertools
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa

from app.spaces.errors import InvalidDataset
from app.storage.readers.columns import BATCH_CELLS, Batch

#: Cells that are looked at, empty ones between others too.
MOST_CELLS = 1 << 22
#: A parsed cell takes so many times its bytes in the file, at most.
_GROWTH = 64
#: A cell with a formula and without a value, which would look empty. A formula that comes to no text is computed.
_NEVER_COMPUTED = re.compile(
    rb'<c\b(?![^>]*\bt="str")[^>]*>\s*<f\b(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>'
)
_DAMAGED = (
    "the file is no Excel workbook (.xlsx), is damaged, or is protected by a password: save it again, or save the "
    "sheet as CSV"
)


class ExcelSheet:
    """The first sheet of a workbook, read once from top to bottom.

    Args:
        path: of the file.
        memory_limit: bytes that the file may take when it is parsed.

    Raises:
        InvalidDataset: when it is no workbook, is too large, or its first sheet is empty.
    """

    def __init__(self, path: Path, memory_limit: int) -> None:
        # The library warns of a date that is none by printing its number.
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        self._sheet = self._opened(path, memory_limit)
        self._looked_at = 0
        header = next(self._rows(None), None)
        if header is None:
            raise InvalidDataset("the first sheet of the workbook is empty")
        names = [_text(cell) or "" for cell in header]
        while not names[-1].strip():
            names.pop()
        self.names = [name.strip() for name in names]

    @staticmethod
    def _opened(path: Path, memory_limit: int) -> Any:
        size = sheet = None
        computed = True
        # Damaged XML raises almost anything, and some of it quotes what was read.
        with contextlib.suppress(Exception):
            with zipfile.ZipFile(path) as archive:
                # No member is unpacked beyond the size that is stated of it.
                size = sum(member.file_size for member in archive.infolist())
                if size * _GROWTH <= memory_limit:
                    sheets = (name for name in archive.namelist() if "/worksheets/" in name)
                    computed = not any(_NEVER_COMPUTED.search(archive.read(name)) for name in sheets)
            if computed and size * _GROWTH <= memory_limit:
                book = io.BytesIO(path.read_bytes())
                sheet = openpyxl.load_workbook(book, read_only=True, data_only=True, keep_links=False).worksheets[0]
                # What the file says of its own extent is often wrong.
                sheet.reset_dimensions()
        if size is not None and size * _GROWTH > memory_limit:
            raise InvalidDataset(
                f"the workbook unpacks to {size:,} bytes, the memory limit allows {memory_limit // _GROWTH:,}: "
                "save the sheet as CSV or Parquet, or raise CURATOR_MEMORY_LIMIT"
            )
        if not computed:
            raise InvalidDataset(
                "the workbook has formulas that were never computed: open it in a spreadsheet program and save it again"
            )
        if sheet is None:
            raise InvalidDataset(_DAMAGED)
        return sheet

    def _rows(self, width: int | None) -> Iterator[Sequence[Any]]:
        """Rows with a value, from the top."""
        complete, looked_at = False, 0
        with contextlib.suppress(Exception):
            for row in self._sheet.iter_rows(max_col=width, values_only=True):
                looked_at += max(1, len(row))
                if looked_at > MOST_CELLS:
                    break
                if any(cell is not None for cell in row):
                    yield row
            complete = True
        if looked_at > MOST_CELLS:
            raise InvalidDataset(f"the sheet has more than {MOST_CELLS:,} cells: save it as CSV or Parquet")
        if not complete:
            raise InvalidDataset(_DAMAGED)

    def batches(self, wanted: Sequence[int]) -> Iterator[Batch]:
        """The columns at positions ``wanted`` of all rows below the names.

        Raises:
            InvalidDataset: when the sheet is damaged, too large, or has no such row.
        """
        rows = itertools.islice(self._rows(len(self.names)), 1, None)
        size, first = max(1, BATCH_CELLS // len(self.names)), 1
        while part := list(itertools.islice(rows, size)):
            columns = [[_text(row[position]) for row in part] for position in wanted]
            yield Batch(first, [pa.array(column, pa.large_string()) for column in columns])
            first += len(part)
        if first == 1:
            raise InvalidDataset("the sheet holds a row of names and no records")


def _text(cell: Any) -> str | None:
    """A cell as CSV has it; None for an empty one."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, datetime.date) else str(cell)
