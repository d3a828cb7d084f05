"""What a source tells at its registration, and what refuses it."""

from __future__ import annotations

from dataclasses import dataclass

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec
from app.spaces.asked import MOST_CLASSES
from app.storage.private_data import DenseData, SourceData
from app.storage.readers.report import Report, counted


@dataclass(frozen=True, eq=False, repr=False)
class CountedSource:
    """A table of counts, or where the cells are too many for one what is needed to ask for some later; what became of
    the records, and a hash of what the files were.
    """

    data: DenseData | SourceData
    report: Report
    identity: bytes


class Moved(Exception):
    """Files are not what they were at registration."""


def check_width(spec: TableSpec, *, all_counted: bool) -> None:
    """Refuse attributes of which not all values can be told apart, unless all cells are counted at once.

    Raises:
        InvalidDataset: naming the attribute.
    """
    for attribute in () if all_counted else spec.attributes:
        if attribute.length > MOST_CLASSES:
            raise InvalidDataset(
                f'source: attribute "{attribute.name}" has {attribute.length:,} values, and of a table as wide as this '
                f"at most {MOST_CLASSES:,} are told apart: declare bins, fewer values, or upload the file",
                attribute=attribute.name,
            )


def check_report(report: Report, capacity: int) -> None:
    """Refuse what the counts show to be no data set.

    Raises:
        InvalidDataset: with the number of values outside, by attribute.
    """
    if report.outside:
        raise InvalidDataset(
            f"values are outside the declared domain: {counted(report.outside)}. Correct them, widen the "
            'domain, or declare "outside": "clamp" of numbers and dates',
            outside=dict(report.outside),
        )
    if not report.read:
        raise InvalidDataset("the files or the table of the source hold no records")
    if report.kept > capacity:
        raise InvalidDataset(f"there are more records than the declared capacity of {capacity}")
