"""What the demonstration prints: an act after the other, 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from app.demo.cheats import Cheats
from app.demo.data import Table
from app.demo.promise import Promise
from app.demo.survey import Survey
from app.demo.tables import ENDS, Means, Rival, Tabulated
from curator_client import Cell

#: Characters that a picture in the terminal is wide.
_WIDE = 36


def means(console: Console, survey: Survey, told: Means) -> None:
    """The first act: a row a cell, with its interval, and a mark where the truth is."""
    _act(console, 1, "A table, and how sure it is")
    console.print(
        f"{survey.records:,} records: {survey.title}. They are treated as private here, so that "
        f"answers can be held against the truth. Mean family income, for epsilon {told.epsilon:g}:\n",
        markup=False,
    )
    rows = told.rows()
    ends = [end for _, _, value, truth in rows for end in (value.low, value.high, truth)]
    low, high = min(ends), max(ends)
    for schooling, works, value, truth in rows:
        line = Text(f"{schooling}, {works}".ljust(27) + str(value).rjust(14) + "  ")
        line.append_text(_forest(value, truth, low, high))
        console.print(line)
    console.print(
        f"\n● the answer, ━ one standard error, ─ the interval, ┃ the truth: {told.held} of {len(rows)} intervals hold"
        " it. Each does with probability .95.",
        markup=False,
    )


def tables(console: Console, told: Tabulated, epsilon: float) -> None:
    """The second act."""
    _act(console, 2, "Three analysts share what was paid for")
    console.print(
        f"They ask for {len(told.answers)} tables of {told.counts:,} counts, one analyst after the other, each with a"
        f" third of epsilon {epsilon:g}. {told.free} tables were free: they follow from what others had paid for."
        f" Spent {told.spent:.3f} of {epsilon:.3f}. {told.held:.1%} of all intervals hold the truth.",
        markup=False,
    )


def rivals(
    console: Console, told: Tabulated, epsilon: float, before: float, noise: Rival, gaps: Rival, computed: int
) -> None:
    """The third act: the same tables as others would publish them."""
    _act(console, 3, "Against what you would use")
    table = Printed(box=None, pad_edge=False)
    table.add_column("root mean square error of a count", max_width=30)
    for name in ("all", f"first {ENDS}", f"last {ENDS}", "lost", "private?"):
        table.add_column(name, justify="left" if name == "private?" else "right")
    own = (told.error(), told.error(slice(ENDS)), told.error(slice(-ENDS, None)))
    table.add_row("this service", *(f"{error:.0f}" for error in own), "0", "yes, proved")
    for other in (noise, gaps):
        errors = (other.error, other.first, other.last)
        table.add_row(other.name, *(f"{error:.0f}" for error in errors), f"{other.lost}", other.promise)
    console.print(table)
    console.print(
        f"\nNoise was given epsilon {epsilon + before:g}: that of the first act, too. Of {gaps.lost} suppressed counts"
        f" anybody can compute {computed}, by subtracting tables from one another. Five questions alone gain nothing;"
        " who knows all questions ahead takes a release.",
        markup=False,
    )


def before_promise(console: Console, table: Table, questions: int) -> None:
    """The head of the fourth act, which takes a while."""
    _act(console, 4, "The promise")
    console.print(
        f"{table.title}: {table.records:,} records, {table.cells:,} cells. One session of multiplicative "
        f"weights is asked {questions:,} counts, each batch chosen by the answers before.",
        markup=False,
    )


def promise(console: Console, told: Promise) -> None:
    """The fourth act."""
    rows = (
        ("promised before the first question: largest error of all", f"{told.bound:,.0f}"),
        ("largest error", f"{told.largest:,.0f}"),
        ("root mean square error", f"{float(np.sqrt(np.mean(told.errors**2))):,.0f}"),
        ("questions measured; all others cost nothing", f"{told.updates} of {len(told.errors):,}"),
        ("epsilon spent", f"{told.spent:.3f} of {float(told.plan.epsilon):g}"),
        ("independent noise for as many, all of epsilon: promise", f"{told.alone:,.0f}"),
        ("... and its root mean square error", f"{told.sigma:,.0f}"),
    )
    table = Printed(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    kept = "Every answer kept the promise" if told.kept else "[red]An answer broke the promise[/red]"
    console.print(f"{kept}; {len(told.errors) / told.seconds:,.0f} questions a second.")


def cheats(console: Console, told: Cheats) -> None:
    """The last act."""
    _act(console, 5, "Try to cheat")
    before, after = told.changed
    for line in (
        f"The transcript as it is: {'it replays' if told.honest.ok else told.honest.problem}.",
        f"A copy in which entry {told.entry} says {after:,.0f} in the place of {before:,.0f}:",
        f"  entry {told.altered.sequence}: {told.altered.problem}",
        f"Epsilon {told.wanted:g} is asked of the survey, which has half of that left:",
        f"  {told.refusal or 'it was given'}",
    ):
        console.print(line, markup=False)


def files(console: Console, folder: Path, names: Sequence[str]) -> None:
    """What was written where."""
    console.print(f"\nOpen [bold]{folder / names[0]}[/bold]; beside it {', '.join(names[1:])}.")


def verdict(console: Console, good: bool) -> None:
    """How it went."""
    if good:
        console.print("[bold green]The promise was kept, the intervals hold, and no cheat went through.[/bold green]")
    else:
        console.print("[bold red]Not all of it held: see above.[/bold red]")


def _act(console: Console, number: int, title: str) -> None:
    console.print(f"\n[bold]{number}. {title}[/bold]\n")


def _forest(value: Cell, truth: float, low: float, high: float) -> Text:
    """An interval as a line, with the answer on it and the truth."""

    def place(at: float) -> int:
        return min(max(round((at - low) / (high - low) * (_WIDE - 1)), 0), _WIDE - 1)

    marks = [" "] * _WIDE
    error = value.standard_error or 0.0
    for reach, mark in (((value.low, value.high), "─"), ((value - error, value + error), "━"), ((value, value), "●")):
        first, last = map(place, reach)
        marks[first : last + 1] = mark * (last + 1 - first)
    marks[place(truth)] = "┃"
    line = Text("".join(marks))
    line.stylize("bold", place(truth), place(truth) + 1)
    return line
