"""Columns that are found by their names, in any format that has names: CSV and other text, Excel, Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.declarations.errors import InvalidDataset
from app.storage.readers.columns import Batch, parquet_batches, parquet_columns, text_batches, text_layout
from app.storage.readers.excel import ExcelSheet

#: For each text suffix the marks that may separate fields, the most likely first.
SEPARATORS = {".csv": ",;\t", ".tsv": "\t", ".txt": "\t,; "}


@dataclass(frozen=True, eq=False, repr=False)
class NamedColumns:
    """Some columns of a file.

    Attributes:
        names: of the columns that were asked for and are there, in that order.
        batches: their rows.
        separator: what stands between fields of text; empty where nothing does.
    """

    names: tuple[str, ...]
    batches: Iterator[Batch]
    separator: str


def named_columns(
    suffix: str,
    path: Path,
    names: Sequence[str],
    optional: Sequence[str] = (),
    *,
    max_rows: int | None,
    memory_limit: int,
    may_be_empty: bool = False,
) -> NamedColumns:
    """The columns ``names``, and those of ``optional`` that there are, of a CSV, text, Excel or Parquet file.

    Text is separated by that one of its suffix's marks by which the first line names the most of the columns.

    Args:
        suffix: the ending of the file's name.
        path: of the file.
        names: columns that must be there.
        optional: columns that may be.
        max_rows: as :func:`parquet_batches` has it.
        memory_limit: as well.
        may_be_empty: as well; of other formats each file has records.

    Raises:
        InvalidDataset: when a name is missing or stands twice.
    """
    found: Sequence[str]
    separator = ""
    if suffix == ".parquet":
        found = parquet_columns(path)
    elif suffix == ".xlsx":
        sheet = ExcelSheet(path, memory_limit)
        found = sheet.names
    elif suffix in SEPARATORS:
        layout = text_layout(path, SEPARATORS[suffix], names)
        found, separator = layout.fields, layout.separator
    else:
        raise InvalidDataset(f"this kind of data set is not read from {suffix} files")
    present = [*names, *(name for name in optional if name in found)]
    for name in present:
        if name not in found:
            # What was found instead is not repeated: without a header it is a record.
            raise InvalidDataset(
                f'the file has no column "{name}"'
                if suffix == ".parquet"
                else f'the file has no column "{name}": its first line must name every declared column, spelled alike',
                attribute=name,
            )
        if found.count(name) > 1:
            raise InvalidDataset(f'the file has two columns "{name}": remove or rename one', attribute=name)
    positions = [found.index(name) for name in present]
    if suffix == ".parquet":
        batches = parquet_batches(
            path, positions, max_rows=max_rows, memory_limit=memory_limit, may_be_empty=may_be_empty
        )
    elif suffix == ".xlsx":
        batches = sheet.batches(positions)
    else:
        batches = text_batches(path, separator, len(found), positions, skip_lines=layout.lines)
    return NamedColumns(tuple(present), batches, separator)
