"""Listings: tables of a terminal of which nothing is lost, however narrow it is.

A cell is never cut. An id, a name and a number stand whole on one line, so that they can be copied; words are folded
where there is no room. Where a row has no room at all, its first cell gets a line of its own above the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

#: Between two columns, and before what stands below its heading.
_GAP, _INDENT = 2, 2
#: Words of this length are not broken, as long as there is room for them.
_WORD = 12


@dataclass(frozen=True)
class Column:
    """A column of a listing.

    Attributes:
        name: its heading, of one line or several.
        number: whether its cells are set to the right. Numbers are whole.
        whole: whether a line of a cell is never folded.
    """

    name: str
    number: bool = False
    whole: bool = False


def columns(*names: str, numbers: Sequence[str] = (), whole: Sequence[str] = ()) -> list[Column]:
    """Columns of these names, some of numbers and some that are never folded."""
    return [Column(name, name in numbers, name in whole or name in numbers) for name in names]


def listed(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table.

    Args:
        columns: of the table, at least one.
        rows: a cell a column; cells may have several lines.
        width: of the terminal. No line is wider, unless a part of it that is never folded is.
    """
    widths = _widths(columns, rows, width)
    if widths is not None:
        head = list(_row(columns, [column.name for column in columns], widths))
        rule = "─" * min(sum(widths) + _GAP * (len(widths) - 1), width)
        return [*head, rule, *(line for row in rows for line in _row(columns, row, widths))]
    first, others = columns[0], columns[1:]
    if not others:
        return [line for row in rows for line in folded(row[0], 1 if first.whole else width, whole=first.whole)]
    below = [row[1:] for row in rows]
    fits = _widths(others, below, width - _INDENT) or _squeezed(others, below, width - _INDENT)
    head = [first.name.replace("\n", " "), *_indented(_row(others, [column.name for column in others], fits))]
    lines = [*head, "─" * min(max(map(cell_len, head)), width)]
    for row in rows:
        lines += folded(row[0], width, whole=first.whole)
        lines += _indented(_row(others, row[1:], fits))
    return lines


def facts(found: Sequence[tuple[str, str]], width: int) -> list[str]:
    """The lines of names and what they stand for; what has no room beside its name stands below it, whole."""
    left = max((cell_len(name) for name, _ in found), default=0)
    room = width - left - _GAP
    lines = []
    for name, fact in found:
        if max(map(cell_len, fact.split()), default=0) <= room:
            first, *more = folded(fact, room, whole=False) or [""]
            lines += [f"{_set(name, left)}{' ' * _GAP}{first}".rstrip(), *(" " * (left + _GAP) + line for line in more)]
        else:
            lines += [name, *_indented(folded(fact, width - _INDENT, whole=True))]
    return lines


def folded(text: str, width: int, *, whole: bool) -> list[str]:
    """A text in lines of at most ``width`` cells: broken between words, and a longer word only where it is not to be
    kept whole. Wide characters count twice."""
    lines = []
    for paragraph in text.split("\n"):
        if whole and " " not in paragraph:
            lines.append(paragraph)
            continue
        line = ""
        for word in paragraph.split(" "):
            if line and cell_len(line) + 1 + cell_len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
            while not whole and cell_len(line) > width:
                part = _first(line, width)
                lines.append(part)
                line = line[len(part) :]
        lines.append(line)
    return lines


def _first(text: str, width: int) -> str:
    """As many characters as ``width`` cells have, and at least one."""
    taken, used = 0, 0
    while taken < len(text) and (used := used + cell_len(text[taken])) <= width:
        taken += 1
    return text[: max(taken, 1)]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of every column so that no word is broken; None where there is no room for that."""
    most, least = _bounds(columns, rows)
    room = width - _GAP * (len(columns) - 1)
    return None if sum(least) > room else _shared(least, most, room)


def _squeezed(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The width of every column where there is too little room: words are broken, numbers are not."""
    most, least = _bounds(columns, rows)
    tight = [low if column.whole else min(low, _WORD) for column, low in zip(columns, least, strict=True)]
    return _shared(tight, most, width - _GAP * (len(columns) - 1))


def _bounds(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[list[int], list[int]]:
    """The width of every column without folding, and the least one that breaks no word."""
    most, least = [], []
    for place, column in enumerate(columns):
        cells = [row[place] for row in rows]
        lines = [line for text in (column.name, *cells) for line in text.split("\n")]
        most.append(max(map(cell_len, lines)))
        words = [*column.name.split(), *(part for text in cells for part in _parts(text, whole=column.whole))]
        least.append(max(map(cell_len, words), default=0))
    return most, least


def _parts(text: str, *, whole: bool) -> list[str]:
    """What of a cell stands on one line."""
    return text.split("\n") if whole else text.split()


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths from ``least`` to ``most``: what room is left goes to the columns that lack it, a cell at a time."""
    found = list(least)
    for _ in range(room - sum(found)):
        lack = [high - now for high, now in zip(most, found, strict=True)]
        if max(lack) <= 0:
            break
        found[lack.index(max(lack))] += 1
    return found


def _row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of a row."""
    cells = [folded(text, width, whole=False) for text, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = (
            _set(lines[number] if number < len(lines) else "", width, right=column.number)
            for column, lines, width in zip(columns, cells, widths, strict=True)
        )
        yield (" " * _GAP).join(parts).rstrip()


def _set(text: str, width: int, *, right: bool = False) -> str:
    """A text in a field of so many cells."""
    blank = " " * (width - cell_len(text))
    return blank + text if right else text + blank


def _indented(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [" " * _INDENT + line for line in lines]
