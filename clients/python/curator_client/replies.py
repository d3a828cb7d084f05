"""Answers: one number, or a table of numbers, each with what is known of its error. They print for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from curator_client.errors import ProtocolError
from curator_client.expectations import figure
from curator_client.models import JSON, need, optional_float, optional_int

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Source = Literal["hypothesis", "measurement", "cached", "estimate"]
#: Whether an interval holds by construction, or as far as the data are as the fit takes them to be.
IntervalKind = Literal["unbiased", "model"]
#: What a cell is called: a value, a range, or None where records have no value.
Label = int | float | str | None
#: Rows of a table that are printed.
ROWS = 40


def shown(value: float | None, standard_error: float | None) -> str:
    """A number with its standard error: ``1,234 ± 56``, or ``1,234 ± n/a`` where that is not known; ``n/a`` where there
    is no number."""
    if value is None:
        return "n/a"
    error = "n/a" if standard_error is None else figure(standard_error, standard_error)
    return f"{figure(value, standard_error)} ± {error}"


def named(label: Label) -> str:
    """A cell's label, for a person: that of no value as conditions have it."""
    return "null" if label is None else str(label)


def _pair(interval: Any) -> tuple[float, float] | None:
    if interval is None:
        return None
    low, high = interval
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The part that all answers have: where it came from, what it cost, how its errors are meant.

    With probability 1 - ``beta`` all answers of a session keep their ``error_bound`` together; it is None where nothing
    is promised of all of them. Intervals hold one by one, with probability ``confidence`` each. ``charged_epsilon`` is
    what the answer cost. ``updates_left`` and ``queries_left`` are None where the session has no limit. ``note`` says,
    where there is something to say, what the interval does not speak of, and what the declaration alone tells.
    """

    sequence: int
    source: Source
    interval_kind: IntervalKind | None
    confidence: float | None
    error_bound: float | None
    beta: float | None
    charged_epsilon: float
    updates_used: int
    updates_left: int | None
    queries_left: int | None
    entry_hash: str
    raw: JSON = field(repr=False)
    note: str | None = None

    @staticmethod
    def _common(reply: JSON) -> dict[str, Any]:
        return {
            "sequence": int(need(reply, "sequence")),
            "source": need(reply, "source"),
            "interval_kind": need(reply, "interval_kind"),
            "confidence": optional_float(need(reply, "confidence")),
            "error_bound": optional_float(need(reply, "error_bound")),
            "beta": optional_float(need(reply, "beta")),
            "charged_epsilon": float(need(reply, "charged_epsilon")),
            "updates_used": int(need(reply, "updates_used")),
            "updates_left": optional_int(need(reply, "updates_left")),
            "queries_left": optional_int(need(reply, "queries_left")),
            "entry_hash": str(need(reply, "entry_hash")),
            "raw": dict(reply),
            "note": None if reply.get("note") is None else str(reply["note"]),
        }


@dataclass(frozen=True, kw_only=True)
class Answer(Answered):
    """One number, in counts or in the unit of an attribute. It prints as ``1,234 ± 56``: it and its standard error.

    ``standard_error`` and ``interval`` are None where they are not known. ``value`` is None where too few records may
    be left for a statistic to mean anything.
    """

    value: float | None
    standard_error: float | None
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        return shown(self.value, self.standard_error)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to a query, or an item of a batch."""
        return cls(
            value=optional_float(need(reply, "value")),
            standard_error=optional_float(need(reply, "standard_error")),
            interval=_pair(need(reply, "interval")),
            **cls._common(reply),
        )


@dataclass(frozen=True)
class AnswerAxis:
    """An attribute of a table and what the cells along it are called; ``q`` of several quantiles, and which."""

    attribute: str
    labels: tuple[Label, ...]


@dataclass(frozen=True, kw_only=True)
class Marginal(Answered):
    """A table of counts, or of a statistic by groups or at several parts. It prints as one, a row a cell.

    Attributes:
        axes: the attributes, in the order asked; of several quantiles the last one is ``q``.
        values: the numbers, an axis an attribute; NaN where too few records may be left for a statistic.
        standard_errors: of these, in their shape; NaN, or None altogether, where they are not known.
        intervals: the ends of their intervals along a last axis; NaN, or None altogether, where they are not known.
    """

    axes: tuple[AnswerAxis, ...]
    values: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] | None = field(repr=False)
    intervals: NDArray[np.float64] | None = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to a marginal question, or an item of a batch.

        Raises:
            ProtocolError: when there are not as many numbers as cells.
        """
        import numpy as np

        axes = tuple(
            AnswerAxis(str(need(axis, "attribute")), tuple(need(axis, "labels"))) for axis in need(reply, "axes")
        )
        shape = tuple(len(axis.labels) for axis in axes)

        def shaped(name: str, *inner: int) -> NDArray[np.float64] | None:
            numbers = need(reply, name)
            try:
                if numbers is not None and inner:
                    numbers = [[None] * math.prod(inner) if item is None else item for item in numbers]
                return None if numbers is None else np.array(numbers, np.float64).reshape(*shape, *inner)
            except (TypeError, ValueError):
                raise ProtocolError(f"{name} are not as many numbers as there are cells") from None

        values = shaped("values")
        if values is None:
            raise ProtocolError("a table without values")
        return cls(
            axes=axes,
            values=values,
            standard_errors=shaped("standard_errors"),
            intervals=shaped("intervals", 2),
            **cls._common(reply),
        )

    def rows(self) -> Iterator[tuple[tuple[Label, ...], float | None, float | None, tuple[float, float] | None]]:
        """For each cell its labels, its number, the standard error and the interval of this; None for what is not."""
        import numpy as np

        errors, intervals = self.standard_errors, self.intervals
        for place in np.ndindex(self.values.shape):
            labels = tuple(axis.labels[i] for axis, i in zip(self.axes, place, strict=True))
            error = None if errors is None else _known(float(errors[place]))
            ends = None if intervals is None or np.isnan(intervals[place]).any() else _pair(intervals[place])
            yield labels, _known(float(self.values[place])), error, ends

    def __str__(self) -> str:
        head = [axis.attribute for axis in self.axes]
        body: list[list[str]] = []
        for labels, value, error, _ in self.rows():
            if len(body) == ROWS:
                break
            body.append([*map(named, labels), shown(value, error)])
        widths = [max(map(len, column)) for column in zip([*head, ""], *body, strict=True)]
        lines = [_line([*head, ""], widths), *(_line(row, widths) for row in body)]
        if self.values.size > ROWS:
            lines.append(f"... and {self.values.size - ROWS:,} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[tuple[Label, ...], float | None]:
        """The number of each cell, by its labels; None where there is none."""
        return {labels: value for labels, value, _, _ in self.rows()}

    def to_arrow(self) -> pa.Table:
        """A table with a column an attribute, ``value``, ``standard_error``, ``low`` and ``high``, a row a cell.

        Labels are integers, numbers or strings, whichever holds all of an axis; that of no value is null, as are
        numbers that are not known. An attribute of one of these names has an underscore behind it.
        """
        import numpy as np
        import pyarrow as pa

        numbers = {"value": self.values, "standard_error": self.standard_errors}
        ends = self.intervals
        numbers |= {name: None if ends is None else ends[..., i] for i, name in enumerate(("low", "high"))}
        columns: dict[str, Any] = {}
        for axis, places in zip(self.axes, np.indices(self.values.shape), strict=True):
            name = axis.attribute
            while name in numbers or name in columns:
                name += "_"
            columns[name] = _column(axis.labels).take(pa.array(places.reshape(-1)))
        for name, array in numbers.items():
            flat = np.full(self.values.size, np.nan) if array is None else array.reshape(-1)
            columns[name] = pa.array(flat, pa.float64(), mask=np.isnan(flat))
        return pa.table(columns)


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _column(labels: Sequence[Label]) -> pa.Array:
    import pyarrow as pa

    kinds = {type(label) for label in labels if label is not None}
    for several, kind in (({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= several:
            return pa.array(labels, kind)
    return pa.array([None if label is None else str(label) for label in labels], pa.string())


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row: labels to the left, the number to the right."""
    *labels, number = cells
    padded = [label.ljust(width) for label, width in zip(labels, widths, strict=False)]
    return "  ".join([*padded, number.rjust(widths[-1])]).rstrip()


def parse_answer(reply: JSON) -> Answer | Marginal:
    """From the reply to any query."""
    return Marginal.parse(reply) if isinstance(reply, Mapping) and "axes" in reply else Answer.parse(reply)
