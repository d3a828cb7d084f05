"""The fate of the records of a table's file: which are kept, dropped or moved to a bound, and what is wrong.

A report is for whoever brings the file, and for nobody else. It counts records and names rows and attributes; no part
of it is a value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset

#: Problems that are told with their place; of all others their number is.
MOST_PROBLEMS = 20
#: Attributes that a message names.
_MOST_NAMED = 8


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A column as positions on its attribute's axis.

    Attributes:
        places: a position a record, -1 where a value is outside of the declaration.
        clamped: whether a value was moved to the nearest bound.
    """

    places: NDArray[np.int64]
    clamped: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for an attribute's values, in words, and whether one that is not refuses the file, or the record is
    dropped. ``missing`` is the position of records without a value, None where there may be none.
    """

    attribute: str
    expected: str
    refuses: bool
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that refuses the file: in which record, counted from 1, of which attribute, and what it should be."""

    row: int
    attribute: str
    expected: str


@dataclass(slots=True, repr=False)
class Tally:
    """Records of which an attribute had a value that dropped them, was moved to a bound, or was missing; the latter two
    of kept records alone.
    """

    dropped: int = 0
    clamped: int = 0
    missing: int = 0


@dataclass(slots=True, repr=False)
class Report:
    """Counts the records of a file, a batch at a time.

    ``read`` is ``kept``, ``dropped`` and ``beyond_cap`` (of persons who have more than are kept of anybody) and, while
    there are problems, the records that have one. ``clamped`` and ``missing`` are told before the cap. ``dropped`` and
    ``clamped`` count a record once, however many of its values are the reason; ``attributes`` count it in each of them.
    ``outside`` counts for each attribute the values that refuse the file; ``problems`` are the first of these in the
    order of the file.
    """

    rules: Sequence[Rule]
    read: int = 0
    kept: int = 0
    dropped: int = 0
    clamped: int = 0
    beyond_cap: int = 0
    attributes: dict[str, Tally] = field(init=False)
    problems: list[Problem] = field(default_factory=list)
    outside: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attributes = {rule.attribute: Tally() for rule in self.rules}

    def add(self, first: int, columns: Sequence[Coded]) -> NDArray[np.bool_]:
        """Count a batch, and tell which of its records are kept.

        Args:
            first: the number of its first record.
            columns: one for each rule.
        """
        outside = [column.places < 0 for column in columns]
        refused = [bad & rule.refuses for bad, rule in zip(outside, self.rules, strict=True)]
        kept: NDArray[np.bool_] = ~np.logical_or.reduce(outside)
        wrong = np.logical_or.reduce(refused)
        self.read += len(kept)
        self.kept += int(kept.sum())
        self.dropped += int((~kept & ~wrong).sum())
        self.clamped += int((kept & np.logical_or.reduce([column.clamped for column in columns])).sum())
        for rule, column, bad in zip(self.rules, columns, outside, strict=True):
            tally = self.attributes[rule.attribute]
            tally.dropped += 0 if rule.refuses else int(bad.sum())
            tally.clamped += int((kept & column.clamped).sum())
            if rule.missing is not None:
                tally.missing += int((kept & (column.places == rule.missing)).sum())
        if wrong.any():
            self._note(first, refused)
        return kept

    def _note(self, first: int, refused: Sequence[NDArray[np.bool_]]) -> None:
        """Take note of a batch's problems."""
        for rule, bad in zip(self.rules, refused, strict=True):
            if bad.any():
                self.outside[rule.attribute] = self.outside.get(rule.attribute, 0) + int(bad.sum())
        room = MOST_PROBLEMS - len(self.problems)
        places = [(int(i), axis) for axis, bad in enumerate(refused) for i in np.flatnonzero(bad)[:room]]
        for index, axis in sorted(places)[:room]:
            self.problems.append(Problem(first + index, self.rules[axis].attribute, self.rules[axis].expected))

    def count(self, records: int, missing: Mapping[str, int]) -> None:
        """Count records that are kept, and how many of them are without a value of an attribute."""
        self.read += records
        self.kept += records
        for name, without in missing.items():
            self.attributes[name].missing += without

    def cap(self, beyond: int) -> None:
        """Count records as beyond the cap that were kept so far."""
        self.kept -= beyond
        self.beyond_cap += beyond

    def check(self) -> None:
        """Refuse what the whole file shows to be no data set.

        Raises:
            InvalidDataset: with all problems, as far as they are told; or when every record would be dropped.
        """
        if self.problems:
            raise self._refusal()
        if self.read and not self.kept:
            dropped = {name: tally.dropped for name, tally in self.attributes.items() if tally.dropped}
            raise InvalidDataset(
                f"every one of the {self.read:,} records would be dropped. Outside of the declaration are "
                f"{counted(dropped)}: are the declared values and those of the file spelled alike?",
                outside=dropped,
            )

    def _refusal(self) -> InvalidDataset:
        worst, total = self.problems[0], sum(self.outside.values())
        more = f" {total:,} values are outside in all: {counted(self.outside)}." if total > 1 else ""
        return InvalidDataset(
            f'row {worst.row}, attribute "{worst.attribute}": outside the declared domain, expected {worst.expected}.'
            f'{more} Correct the file, widen the domain, or declare "outside": "drop"',
            row=worst.row,
            attribute=worst.attribute,
            problems=[asdict(problem) for problem in self.problems],
            outside=dict(self.outside),
        )

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """The report of which :meth:`view` made this."""
        report = cls([], view["read"], view["kept"], view["dropped"], view["clamped"], view["beyond_cap"])
        report.attributes = {name: Tally(**tally) for name, tally in view["attributes"].items()}
        return report

    def view(self) -> dict[str, Any]:
        """The report as JSON, without problems: there are none in what is kept."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": self.dropped,
            "clamped": self.clamped,
            "beyond_cap": self.beyond_cap,
            "attributes": {name: asdict(tally) for name, tally in self.attributes.items()},
        }


def counted(counts: dict[str, int]) -> str:
    """So many of each attribute, the most first."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    told = [f'{count:,} of "{name}"' for name, count in most[:_MOST_NAMED]]
    more = [f"{len(most) - _MOST_NAMED} further attributes"] if len(most) > _MOST_NAMED else []
    return ", ".join(told + more)
