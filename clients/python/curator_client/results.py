"""What is told beside answers: prices, results of SQL statements, and what several plans would promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from curator_client.answers import Answer, Json, Source, Table, parse_answer
from curator_client.errors import ProtocolError
from curator_client.extras import extra
from curator_client.words import figure, number_in_words

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

#: Rows of a result that are shown.
ROWS = 40
#: What a point of a sweep of plans tells.
_WHAT_IF = ("epsilon", "max_queries", "mechanism", "expected_error", "gaussian_error", "error_bound", "problem")
#: Kinds of questions whose standard error stands for a session's: of tables, and of graphs and matrices.
_COUNTS = ("one_attribute", "cut")


class Price:
    """What a question would cost and tell, from public things alone. Nothing is asked, recorded or charged."""

    def __init__(self, reply: Json) -> None:
        """From a reply; raises ProtocolError when it is no price."""
        try:
            ends = reply["half_width"]
            self._half_width = None if ends is None else (float(ends[0]), float(ends[1]))
            self._epsilon, self._left = float(reply["epsilon"]), float(reply["left"])
            self._certain, self._source = bool(reply["certain"]), str(reply["source"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise ProtocolError("the reply is no price") from None
        self._raw = dict(reply)

    @property
    def epsilon(self) -> float:
        """What the answer would cost: 0 where it is free, the most that it may be where it is not ``certain``."""
        return self._epsilon

    @property
    def certain(self) -> bool:
        """Whether it would cost that. Where a test decides it may be free instead."""
        return self._certain

    @property
    def source(self) -> Source:
        """What the answer would be."""
        return cast(Source, self._source)

    @property
    def half_width(self) -> tuple[float, float] | None:
        """Half the width of the narrowest and of the widest interval to expect; None where that is not known."""
        return self._half_width

    @property
    def left(self) -> float:
        """What the session would have left of its epsilon, afterwards."""
        return self._left

    @property
    def raw(self) -> Json:
        """The reply as it came."""
        return self._raw

    def __str__(self) -> str:
        cost = "free" if self._epsilon == 0 else f"epsilon {'' if self._certain else 'at most '}{self._epsilon:.3g}"
        ends = self._half_width
        reach = list(dict.fromkeys(f"± {figure(end, end)}" for end in ends or ()))
        return f"{cost}{', interval ' if reach else ''}{' to '.join(reach)}; {self._left:.3g} left"

    def __repr__(self) -> str:
        return f"<Price: {self}>"


class _Rows(Sequence[Mapping[str, Any]]):
    """Rows of named columns, which print as a table."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
        self._columns = tuple(columns)
        self._rows = [dict(zip(self._columns, row, strict=True)) for row in rows]

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A frame of the same rows and columns. Needs the extra ``pandas``."""
        frame: pandas.DataFrame = extra("pandas", "pandas").DataFrame(self._rows, columns=list(self._columns))
        return frame

    def __str__(self) -> str:
        body = self._shown()
        widths = [max(map(len, column)) for column in zip(self._columns, *body, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in [list(self._columns), *body]]
        return "\n".join([*lines, *self._below()])

    def _repr_html_(self) -> str:
        from curator_client.figures import escaped

        head = "".join(f"<th>{escaped(name)}</th>" for name in self._columns)
        body = "".join(f"<tr>{''.join(f'<td>{escaped(text)}</td>' for text in row)}</tr>" for row in self._shown())
        below = "".join(f"<p>{escaped(line)}</p>" for line in self._below())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"

    def _shown(self) -> list[list[str]]:
        return [[_told(value) for value in row.values()] for row in self._rows[:ROWS]]

    def _below(self) -> list[str]:
        return [f"... and {len(self) - ROWS:,} more"] if len(self) > ROWS else []


class SqlResult(_Rows):
    """The rows of a statement: the columns that it asks for, and behind each number its error and interval."""

    def __init__(self, reply: Json) -> None:
        """From a reply; raises ProtocolError when it is none to a statement."""
        try:
            super().__init__((column["name"] for column in reply["columns"]), reply["rows"])
            self._answers = tuple(parse_answer(answer) for answer in reply["answers"])
            self._notices = tuple(map(str, reply["notices"]))
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the reply is no result of a statement") from None
        self._raw = dict(reply)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._columns

    @property
    def answers(self) -> tuple[Answer | Table, ...]:
        """The answer to each aggregate."""
        return self._answers

    @property
    def notices(self) -> tuple[str, ...]:
        """What is to be known of the rows."""
        return self._notices

    @property
    def raw(self) -> Json:
        """The reply as it came."""
        return self._raw

    def _below(self) -> list[str]:
        return [*super()._below(), *self._notices]


class WhatIf(_Rows):
    """A row a combination of ``epsilon`` and ``max_queries``, and what a session of these would promise.

    ``mechanism`` is the construction that would serve it. ``expected_error`` is the standard error to expect of a count
    under conditions on one attribute (of graphs and matrices, of a cut) and ``gaussian_error`` that of Gaussian noise
    for each question by itself; ``error_bound`` is what all answers keep together. None is what is not known, or not
    promised; where there is no such session ``problem`` says why.
    """

    def __init__(self, reply: Json) -> None:
        """From the reply to a sweep of plans; raises ProtocolError when it is none."""
        try:
            super().__init__(_WHAT_IF, [_point(point) for point in reply["points"]])
        except (KeyError, TypeError, AttributeError):
            raise ProtocolError("the reply is no sweep of plans") from None
        self._raw = dict(reply)

    @property
    def raw(self) -> Json:
        """The reply as it came."""
        return self._raw

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """The errors to expect over the number of questions, or over epsilon where there is one such number; dashed
        those of Gaussian noise. Needs the extra ``plot``."""
        from curator_client.plots import new_axes

        ax = new_axes(4) if ax is None else ax
        by_questions = len({row["max_queries"] for row in self}) > 1
        along, apart = ("max_queries", "epsilon") if by_questions else ("epsilon", "max_queries")
        for place, fixed in enumerate(dict.fromkeys(row[apart] for row in self)):
            for name, style, label in (
                ("expected_error", "-o", f"{apart.replace('_', ' ')} {fixed}"),
                ("gaussian_error", "--", None),
            ):
                known = [row for row in self if row[apart] == fixed and row[name] is not None]
                ax.plot([r[along] for r in known], [r[name] for r in known], style, color=f"C{place}", label=label)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(along.replace("_", " "))
        ax.set_ylabel("standard error; dashed: Gaussian noise")
        ax.legend()
        return ax


def _point(point: Json) -> list[Any]:
    """The row of a point of a sweep."""
    mechanism, gaussian = point.get("mechanism") or {}, point.get("independent_gaussian") or {}
    errors, problem = point.get("expected_standard_errors") or {}, point.get("problem") or {}
    expected = next((errors[kind] for kind in _COUNTS if errors.get(kind) is not None), None)
    return [
        point["epsilon"],
        point["max_queries"],
        mechanism.get("construction"),
        expected,
        gaussian.get("sigma"),
        point.get("error_bound"),
        problem.get("detail"),
    ]


def _told(value: object) -> str:
    if value is None or isinstance(value, str):
        return "n/a" if value is None else value
    return f"{value:,.6g}" if isinstance(value, float) else number_in_words(value)
