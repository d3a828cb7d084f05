"""What to expect of a session before it is asked anything, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.policies.foretelling import LATER, Errors, Foretelling, Paid
from app.spaces.table import TableSpace

#: The unit of the errors of each kind of question.
_UNITS: Mapping[str, str] = {
    "one_attribute": "records",
    "two_attributes": "records",
    "cell": "records",
    "share": "part of 1",
    "mean": "the attribute's",
    "sum": "the attribute's",
    "median": "the attribute's",
    "cut": "counts",
}
#: The kinds of questions that ask for a count.
_SINGLE = ("one_attribute", "two_attributes", "cell", "cut")


@dataclass(frozen=True)
class Expectation:
    """What to expect.

    Attributes:
        errors: standard errors of the first question, by kind (:meth:`Foretelling.errors`); of graphs and matrices
            those of a ``cut``.
        words: what they rest on, in sentences.
        tenth: the same of the tenth question, where nobody said how many there will be, and later ones get less.
        records: for how many records errors of means, medians and shares are.
    """

    errors: Errors
    words: tuple[str, ...]
    tenth: Errors | None = None
    records: float | None = None

    @property
    def error(self) -> float | None:
        """That of a single number: of a cut, or the largest of counts under conditions and in cells."""
        found = [error for kind, error in self.errors.items() if kind in _SINGLE and isinstance(error, float)]
        return max(found, default=None)

    def document(self) -> dict[str, Any]:
        """As JSON, beside the errors of the first question."""
        return {
            "units": {kind: _UNITS[kind] for kind in self.errors},
            "tenth": self.tenth,
            "records": self.records,
            "words": list(self.words),
        }


def told(expectation: Expectation | None, paid: Paid | None) -> dict[str, Any]:
    """What the reply to a plan, and an opened session's plan, say of it, as JSON."""
    return {
        "expected_standard_errors": None if expectation is None else expectation.errors,
        "expectation": None if expectation is None else expectation.document(),
        "questions_within": None if paid is None else _paid(paid),
    }


def of_table(found: Foretelling, space: TableSpace) -> Expectation:
    """Of a session on a table."""
    errors = found.errors(space)
    tenth = found.errors(space, LATER) if found.falling else None
    if "share" not in errors:
        word = "Means, medians and shares are not foretold where an accuracy or a contract is asked for."
        return Expectation(errors, (word,), tenth)
    what = "means, medians and shares" if "mean" in errors else "shares"
    number = f"Errors of {what} are for {found.records:,.0f} records"
    words = [
        f"{number}, and fall as one over that number."
        if found.known
        else f"{number}, as it is not public how many there are. They fall as one over that number.",
        "Of g groups of equal size each errs as much as all records in counts and sums, and about g times as much in "
        f"{what}.",
    ]
    if "mean" in errors:
        words.append(
            "Values that nothing was measured of are taken to be spread evenly over an attribute's declared cells. How "
            "much means and medians err depends on that: a median errs more where few records are near it."
        )
    if tenth is not None:
        words.append(
            "Of an unknown number of questions the first may cost most. The tenth is foretold as if the nine before it "
            "were of its kind, and none of them free: declare the number of questions where you know it."
        )
    return Expectation(errors, tuple(words), tenth, found.records)


def _paid(paid: Paid) -> dict[str, Any]:
    near = f"within ± {paid.within:,.6g} ({paid.confidence:.6g})"
    what = "cuts" if paid.cells is None else "counts"
    words = [f"The share pays for {paid.counts:,} different {what} {near} at least, each measured by itself."]
    if paid.cells is not None and paid.whole_table:
        words.append(
            f"It pays for the whole table, of which all counts are then {near}: declare {paid.cells:,} questions or "
            "more."
        )
    elif paid.cells is not None:
        words.append("It does not pay for a whole table of which all counts are that near.")
    return {
        "within": paid.within,
        "confidence": paid.confidence,
        "counts": paid.counts,
        "whole_table": None if paid.cells is None else paid.whole_table,
        "words": words,
    }
