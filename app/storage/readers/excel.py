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

from app.declarations.errors import InvalidDataset
from app.storage.readers.columns import BATCH_CELLS, BLOCK_BYTES, Batch

#: Cells that are looked at, empty ones between others too.
MOST_CELLS = 1 << 22
#: Characters of a cell, as spreadsheet programs have it. A text stands in the file once for all cells that have it.
MOST_CHARACTERS = 32_767
#: A parsed cell takes so many times its bytes in the file, at most.
_GROWTH = 64
#: A cell with a formula and without a value, which would look empty. A formula that comes to no text is computed. No
#: part of it goes back, or beyond the next tag: of any text each byte is looked at a few times.
_NEVER_COMPUTED = re.compile(
    rb"""<(?:[\w.-]++:)?+c\b(?![^<>]*\bt=["']str["'])[^<>]*+>\s*+"""
    rb"<(?:[\w.-]++:)?+f\b[^<>]*+>(?:(?<=/>)|[^<]*+</[\w.:-]++\s*+>)\s*+"
    rb"(?:<[\w.:-]++\s*+(?:/>|>\s*+</[\w.:-]++\s*+>)\s*+)?+</(?:[\w.-]++:)?+c\s*+>"
)
_DAMAGED = (
    "the file is no Excel workbook (.xlsx), is damaged, or is protected by a password: save it again, or save the "
    "sheet as CSV"
)


class ExcelSheet:
    """The first sheet of a workbook, read once from top to bottom. XML with entities is refused, as openpyxl does where
    defusedxml is installed.

    Args:
        path: of the file.
        memory_limit: bytes that the file may take when it is parsed, and its texts when they are written out.

    Raises:
        InvalidDataset: when it is no workbook, is too large, or its first sheet is empty.
    """

    def __init__(self, path: Path, memory_limit: int) -> None:
        # The library warns of a date that is none by printing its number.
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        self._sheet = self._opened(path, memory_limit)
        self._memory_limit = memory_limit
        header = next(self._rows(None), None)
        if header is None:
            raise InvalidDataset("the first sheet of the workbook is empty")
        names = [_text(cell) or "" for cell in header]
        _check_length(names, "the first row")
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
        size, first, written = max(1, BATCH_CELLS // len(self.names)), 1, 0
        columns: list[list[str | None]] = [[] for _ in wanted]
        held = 0
        for number, row in enumerate(rows, first):
            texts = [_text(row[position]) for position in wanted]
            held += _check_length(texts, f"row {number}")
            for column, text in zip(columns, texts, strict=True):
                column.append(text)
            if held > BLOCK_BYTES or number - first + 1 == size:
                written += held
                if written > self._memory_limit:
                    raise InvalidDataset(
                        f"the texts of the sheet take more than the memory limit of {self._memory_limit:,} bytes: "
                        "shorten them, or raise CURATOR_MEMORY_LIMIT"
                    )
                yield _batch(first, columns)
                columns, held, first = [[] for _ in wanted], 0, number + 1
        if columns[0]:
            yield _batch(first, columns)
        elif first == 1:
            raise InvalidDataset("the sheet holds a row of names and no records")


def _batch(first: int, columns: list[list[str | None]]) -> Batch:
    return Batch(first, [pa.array(column, pa.large_string()) for column in columns])


def _check_length(texts: Sequence[str | None], where: str) -> int:
    """How many characters texts have.

    Raises:
        InvalidDataset: when one has more than a cell may have.
    """
    lengths = [len(text) for text in texts if text is not None]
    if lengths and max(lengths) > MOST_CHARACTERS:
        raise InvalidDataset(
            f"{where}: a cell holds more than {MOST_CHARACTERS:,} characters, which no spreadsheet program writes: "
            "shorten it, or save the sheet as CSV"
        )
    return sum(lengths)


def _text(cell: Any) -> str | None:
    """A cell as CSV has it; None for an empty one."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**63 else repr(cell)
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, datetime.date) else str(cell)
