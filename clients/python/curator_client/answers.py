"""Answers: one number, or a table of numbers, each with what is known of its error. They print for people."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast, overload
from unicodedata import combining, east_asian_width

from curator_client.errors import ProtocolError
from curator_client.extras import extra
from curator_client.words import UNCERTAIN, named, shown

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import polars
    import pyarrow

    from curator_client.figures import Mark
    from curator_client.questions import Question

Json = Mapping[str, Any]
Source = Literal["measurement", "estimate", "cached", "hypothesis"]
#: What a cell is called: a value, a range, or None where records have no value.
Label = int | float | str | None
#: Where a file is.
Path = str | PathLike[str]
#: Rows of a table that are printed.
ROWS = 40
#: Columns behind those of the axes.
NUMBERS = ("value", "standard_error", "low", "high")


class Told:
    """What every answer says of itself."""

    _raw: Json
    _question: Question[Any] | None

    def _tell(self, reply: Json, question: Question[Any] | None) -> Self:
        for name in ("sequence", "source", "charged_epsilon", "confidence", "interval_kind", "error_bound"):
            _need(reply, name)
        self._raw, self._question = dict(reply), question
        return self

    @property
    def question(self) -> Question[Any] | None:
        """What was asked; None where whoever made this did not say."""
        return self._question

    @property
    def sequence(self) -> int:
        """The number of its entry in the session's transcript."""
        return int(self._raw["sequence"])

    @property
    def source(self) -> Source:
        """``measurement``: paid for now; ``estimate``: from all that was measured; ``cached``: asked before;
        ``hypothesis``: what a session's tests have left standing."""
        return cast(Source, self._raw["source"])

    @property
    def charged(self) -> float:
        """What it cost, in epsilon."""
        return float(self._raw["charged_epsilon"])

    @property
    def confidence(self) -> float | None:
        """The probability with which each interval holds; None where there is none."""
        return _optional(self._raw["confidence"], "confidence")

    @property
    def interval_kind(self) -> Literal["unbiased", "model"] | None:
        """``unbiased``: intervals hold by construction; ``model``: as far as the data are as a fit takes them to be."""
        return cast("Literal['unbiased', 'model'] | None", self._raw["interval_kind"])

    @property
    def error_bound(self) -> float | None:
        """With probability 1 - beta every answer of the session is that near, all together; None where nothing of the
        kind is promised."""
        return _optional(self._raw["error_bound"], "error_bound")

    @property
    def queries_left(self) -> int | None:
        """How many questions the session has left; None where it has no limit."""
        left = self._raw.get("queries_left")
        return None if left is None else int(left)

    @property
    def entry_hash(self) -> str:
        """The hash of its entry in the session's transcript."""
        return str(self._raw.get("entry_hash", ""))

    @property
    def dummy(self) -> bool:
        """Whether it is of made-up records."""
        return bool(self._raw.get("dummy", False))

    @property
    def note(self) -> str | None:
        """What the interval does not speak of, and what the declaration alone tells; None where that is nothing."""
        note = self._raw.get("note")
        return None if note is None else str(note)

    @property
    def raw(self) -> Json:
        """The reply as it came."""
        return self._raw

    @property
    def title(self) -> str:
        """The question in words, or what else it may be called."""
        return "Answer" if self._question is None else str(self._question)


class Cell(float):
    """A number with its error. It is a ``float``: whatever is computed from it is a plain float, without interval.

    NaN where there is no value. ``str``: ``1,234 ± 56``. ``format(x, ".1f")`` is that of a float.
    """

    _standard_error: float | None
    _interval: tuple[float, float] | None

    def __new__(
        cls,
        value: float | None,
        standard_error: float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> Self:
        """A number, its standard error and its interval; None for what is not known."""
        made = super().__new__(cls, math.nan if value is None else value)
        made._standard_error = standard_error
        made._interval = interval
        return made

    @property
    def standard_error(self) -> float | None:
        """The standard error; None where it is not known."""
        return self._standard_error

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None where there is none."""
        return self._interval

    @property
    def low(self) -> float:
        """The lower end of the interval; NaN where there is none."""
        return math.nan if self._interval is None else self._interval[0]

    @property
    def high(self) -> float:
        """The upper end of the interval; NaN where there is none."""
        return math.nan if self._interval is None else self._interval[1]

    @property
    def missing(self) -> bool:
        """Whether there is no value: too few records may be left for a statistic to mean anything."""
        return math.isnan(self)

    @property
    def reliable(self) -> bool | None:
        """Whether the standard error is at most a third of the value; None where it is not known."""
        if self.missing or self._standard_error is None:
            return None
        return 3 * self._standard_error <= abs(float(self))

    def __str__(self) -> str:
        return shown(float(self), self._standard_error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __getnewargs__(self) -> tuple[float]:
        return (float(self),)


class Answer(Cell, Told):
    """One number, in counts or in the unit of an attribute."""

    @classmethod
    def parse(cls, reply: Json, question: Question[Any] | None = None) -> Self:
        """From the reply to a question, or an item of a batch; raises ProtocolError when it is none."""
        made = cls(
            _optional(_need(reply, "value"), "value"),
            _optional(_need(reply, "standard_error"), "standard_error"),
            _ends(_need(reply, "interval")),
        )
        return made._tell(reply, question)

    def _repr_html_(self) -> str:
        from curator_client.figures import forest

        return forest(self.title, (), [_mark((), self)], confidence=self.confidence, notes=_notes(self))


class Row(NamedTuple):
    """A cell of a table: what it is called along each axis, and the number with its error."""

    labels: tuple[Label, ...]
    value: Cell


class Axis(NamedTuple):
    """An attribute of a table and what the cells along it are called; ``q`` of several quantiles, and which."""

    name: str
    labels: tuple[Label, ...]


class Table(Told, Sequence[Row]):
    """A row a cell: labels, and a number with its error. ``table.cell("female", "[30, 45)")`` is one of them."""

    _axes: tuple[Axis, ...]
    _rows: tuple[Row, ...]

    @classmethod
    def parse(cls, reply: Json, question: Question[Any] | None = None) -> Self:
        """From the reply to a question, or an item of a batch; raises ProtocolError when it is none."""
        table = cls()._tell(reply, question)
        try:
            table._axes = tuple(Axis(str(axis["attribute"]), tuple(axis["labels"])) for axis in reply["axes"])
        except (KeyError, TypeError):
            raise ProtocolError("axes are not what a table has") from None
        places: list[tuple[Label, ...]] = [()]
        for axis in table._axes:
            places = [(*labels, label) for labels in places for label in axis.labels]
        values = _need(reply, "values")
        columns = [values, _need(reply, "standard_errors"), _need(reply, "intervals")]
        listed = [[None] * len(places) if column is None and k else column for k, column in enumerate(columns)]
        if not all(isinstance(column, list) and len(column) == len(places) for column in listed):
            raise ProtocolError("there are not as many numbers as there are cells")
        table._rows = tuple(
            Row(labels, Cell(_optional(value, "values"), _optional(error, "standard_errors"), _ends(ends)))
            for labels, value, error, ends in zip(places, *listed, strict=True)
        )
        return table

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The attributes, in the order asked."""
        return self._axes

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of frames: the axes, ``value``, ``standard_error``, ``low`` and ``high``. An axis that is called
        like one of those, or like another one, has an underscore behind its name."""
        names: list[str] = []
        for axis in self._axes:
            name = axis.name
            while name in NUMBERS or name in names:
                name += "_"
            names.append(name)
        return (*names, *NUMBERS)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def cell(self, *labels: Label) -> Cell:
        """The number of a cell; ``math.isnan`` of it where it has no value.

        Args:
            labels: one for each axis, as it prints; None for records without a value.

        Raises:
            KeyError: naming the nearest label, where the table has no such cell.
        """
        if len(labels) != len(self._axes):
            raise KeyError(f"a label for each of {', '.join(axis.name for axis in self._axes)}, not {len(labels)}")
        place = 0
        for axis, label in zip(self._axes, labels, strict=True):
            place = place * len(axis.labels) + _place(axis, label)
        return self._rows[place].value

    def __str__(self) -> str:
        head = [*(axis.name for axis in self._axes), ""]
        body = [[*map(named, labels), str(value)] for labels, value in self._rows[:ROWS]]
        widths = [max(map(_wide, column)) for column in zip(head, *body, strict=True)]
        doubts = [f"  {UNCERTAIN}" if value.reliable is False else "" for _, value in self._rows[:ROWS]]
        lines = [_line(head, widths), *(_line(row, widths) + doubt for row, doubt in zip(body, doubts, strict=True))]
        if len(self) > ROWS:
            lines.append(f"... and {len(self) - ROWS:,} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Table of {len(self):,} cells: {self.title}>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row a cell, by :attr:`columns`; None for what is not known."""
        names = self.columns
        return [dict(zip(names, [*labels, *_numbers(value)], strict=True)) for labels, value in self._rows]

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """As CSV, with empty fields for what is not known; written to a file where one is named."""
        import csv

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for labels, value in self._rows:
            writer.writerow(["" if field is None else field for field in (*labels, *_numbers(value))])
        if path is not None:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text.getvalue())
        return text.getvalue()

    def to_pandas(self) -> pandas.DataFrame:
        """A frame with a row a cell. Axes are ordered categories, so that groups and plots keep their order; records
        without a value have none there, and what is not known of a number is NaN. Needs the extra ``pandas``."""
        pd = extra("pandas", "pandas")
        columns: dict[str, Any] = {}
        for name, axis, labels in self._places():
            kinds = pd.CategoricalDtype([label for label in axis.labels if label is not None], ordered=True)
            columns[name] = pd.Categorical(labels, dtype=kinds)
        for name, numbers in self._known():
            columns[name] = pd.Series(numbers, dtype="float64")
        frame: pandas.DataFrame = pd.DataFrame(columns)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A frame with a row a cell. Axes of labels are enumerations in their order, those of numbers are numbers; null
        is no value, and what is not known. Needs the extra ``polars``."""
        pl = extra("polars", "polars")
        columns: list[Any] = []
        for name, axis, labels in self._places():
            kind = _kind(axis.labels)
            if kind is str:
                texts = list(dict.fromkeys(str(label) for label in axis.labels if label is not None))
                texts_there = [None if label is None else str(label) for label in labels]
                columns.append(pl.Series(name, texts_there, dtype=pl.Enum(texts)))
            else:
                columns.append(pl.Series(name, labels, dtype=pl.Int64 if kind is int else pl.Float64))
        for name, numbers in self._known():
            columns.append(pl.Series(name, numbers, dtype=pl.Float64))
        frame: polars.DataFrame = pl.DataFrame(columns)
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table with a row a cell, as the service sends it: labels are integers, numbers or strings, whichever
        holds all of an axis; null is no value, and what is not known. Needs the extra ``arrow``."""
        pa = extra("arrow", "pyarrow")
        kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
        columns: dict[str, Any] = {}
        for name, axis, labels in self._places():
            kind = _kind(axis.labels)
            there = [None if label is None else kind(label) for label in labels]
            columns[name] = pa.array(there, kinds[kind])
        for name, numbers in self._known():
            columns[name] = pa.array(numbers, pa.float64())
        return pa.table(columns)

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Each cell as a dot, with a thick line of one standard error and a thin one of the interval. Needs the extra
        ``plot``."""
        from curator_client.plots import plot_table

        return plot_table(self, ax)

    def svg(self) -> str:
        """The drawing of the console as a file: each number with its interval."""
        from curator_client.figures import standing_alone

        return standing_alone(self._repr_html_())

    def _repr_html_(self) -> str:
        from curator_client.figures import MOST, forest

        marks = [_mark(labels, value) for labels, value in self._rows[:MOST]]
        names = [axis.name for axis in self._axes]
        return forest(self.title, names, marks, in_all=len(self), confidence=self.confidence, notes=_notes(self))

    def _known(self) -> Iterator[tuple[str, list[float | None]]]:
        """For each column of numbers its name, and the number of each row; None for what is not known."""
        rows = [_numbers(value) for _, value in self._rows]
        for place, name in enumerate(NUMBERS):
            yield name, [row[place] for row in rows]

    def _places(self) -> Iterator[tuple[str, Axis, list[Label]]]:
        """For each axis its column's name, and the label of each row."""
        for place, (name, axis) in enumerate(zip(self.columns, self._axes, strict=False)):
            yield name, axis, [labels[place] for labels, _ in self._rows]


def parse_answer(reply: object, question: Question[Any] | None = None) -> Answer | Table:
    """From the reply to any question; raises ProtocolError when it is none."""
    if not isinstance(reply, Mapping):
        raise ProtocolError("the reply is no answer")
    return Table.parse(reply, question) if "axes" in reply else Answer.parse(reply, question)


def _mark(labels: Sequence[Label], value: Cell) -> Mark:
    from curator_client.figures import Mark

    number, error, _, _ = _numbers(value)
    return Mark(tuple(map(named, labels)), number, error, value.interval)


def _notes(told: Told) -> list[str]:
    made_up = ["Of made-up records."] if told.dummy else []
    return [*made_up, *([told.note] if told.note else [])]


def _numbers(value: Cell) -> list[float | None]:
    return [
        None if number is None or math.isnan(number) else float(number)
        for number in (value, value.standard_error, value.low, value.high)
    ]


def _kind(labels: Sequence[Label]) -> type[int] | type[float] | type[str]:
    """Whichever holds all labels."""
    kinds = {type(label) for label in labels if label is not None}
    if kinds and kinds <= {int}:
        return int
    return float if kinds and kinds <= {int, float} else str


def _place(axis: Axis, label: Label) -> int:
    """Where a label stands on an axis; raises KeyError with the nearest one."""
    for place, there in enumerate(axis.labels):
        if there == label and (there is None) == (label is None):
            return place
    for place, there in enumerate(axis.labels):
        if there is not None and str(there) == str(label):
            return place
    from difflib import get_close_matches

    texts = [named(there) for there in axis.labels[:1000]]
    near = get_close_matches(str(label)[:100], texts, n=1, cutoff=0.0)
    hint = f": do you mean {near[0]!r}?" if near else ""
    raise KeyError(f"{axis.name} has no {label!r} in this table{hint}")


def _wide(text: str) -> int:
    """How many places of a terminal a text takes: some characters of East Asia two, accents by themselves none."""
    return len(text) + sum(
        (east_asian_width(mark) in "WF") - (combining(mark) > 0) for mark in text if not mark.isascii()
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row: labels to the left, the number to the right."""
    *labels, number = cells
    padded = [label + " " * (width - _wide(label)) for label, width in zip(labels, widths, strict=False)]
    return "  ".join([*padded, number.rjust(widths[-1])]).rstrip()


def _need(reply: Json, name: str) -> Any:
    try:
        return reply[name]
    except KeyError:
        raise ProtocolError(f"the reply has no {name}") from None


def _optional(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{name}: {type(value).__name__} is no number")
    return float(value)


def _ends(interval: object) -> tuple[float, float] | None:
    if interval is None:
        return None
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        raise ProtocolError("an interval is a pair")
    low, high = (_optional(end, "interval") for end in interval)
    if low is None or high is None:
        raise ProtocolError("an interval has two ends")
    return low, high
