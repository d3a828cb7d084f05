"""Publications, checked by whoever sees the transcript of the release: made anew from what was measured.

A publication is a function of measurements and of a seed, all of which the release's transcript has. It is computed
again here. On the machine that it came from, or one that rounds alike, the same numbers come out. Elsewhere a rounding
may fall otherwise and move some records to neighbouring cells: then the tables must still add up to one another, count
nothing that is declared not to occur, and each count must lie as near to what is computed here as its interval is wide;
and all that was moved must be little, a record a cell or ten. Shares move with their records; other statistics are the
same but for rounding.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from app.audit.log import PUBLISHED
from app.curator.mechanisms.protocol import Measured
from app.curator.mechanisms.release import job_of
from app.curator.opening import Header, Opening
from app.releases.finishing import Outcome, finish
from app.releases.publication import FORMAT, notes_of, stated
from app.releases.table_results import CONFIDENCE, NUMBERS, Answers, Told, labels_of
from app.releases.workloads import Cuts, TableWorkload
from app.spaces.questions import Cells
from app.spaces.table import TableSpace
from app.spaces.tensor import Array

_NUMBERS = ("value", "low", "high")
#: What a manifest says, and of each table.
_STATED = ("attributes", "counts", "rows", "sum")
_TABLE = frozenset({"table", "sha256", *_STATED})
_OF_STATISTIC = _TABLE | {"question"}
_NAMED = ("format", "release", "dataset", "epsilon", "confidence", "seed", "records", "head_hash")
_MANIFEST = frozenset({*_NAMED, "measurements", "tables", "notes"})
#: How many records of a table another rounding may move, at least; or one a cell.
_FEW_MOVED = 10
#: How far two machines may compute a statistic apart, in parts of it and of its interval's width.
_APART = 1e-6


@dataclass(frozen=True)
class Checked:
    """What is found of a publication.

    Attributes:
        problems: what does not follow, in words; none where all holds.
        same: whether every number is the one that is computed here.
    """

    problems: tuple[str, ...]
    same: bool

    @property
    def ok(self) -> bool:
        """Whether all holds."""
        return not self.problems


def digest(manifest: Mapping[str, Any]) -> str:
    """The digest of a manifest that the log names: SHA-256, in hexadecimal digits, of its canonical JSON."""
    return hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()


def unlogged(manifest: Mapping[str, Any], read: Callable[[Callable[[bytes], object]], object]) -> list[str]:
    """What a signed log does not bear out of a manifest: its release published it, and nothing else.

    Args:
        manifest: as it was published.
        read: shows every line of the log.
    """
    published: list[Any] = []

    def look(line: bytes) -> None:
        if b'"record":"dataset"' in line:  # others need not be read
            record = orjson.loads(line)
            told = (record.get("event"), record.get("name"), record.get("release"))
            if told == (PUBLISHED, manifest["dataset"], manifest["release"]):
                published.append(record.get("manifest"))

    read(look)
    if not published:
        return ["the log, as far as it is kept, has no publication of this release"]
    return [] if published == [digest(manifest)] else ["the log names another manifest of this release"]


def check(lines: Sequence[bytes], manifest: Mapping[str, Any], tables: Mapping[int, bytes]) -> Checked:
    """Hold a publication's files against the transcript of its release.

    Args:
        lines: of the transcript, which was replayed.
        manifest: as it was published.
        tables: the CSV file of each table by its number.

    Raises:
        KeyError, TypeError, ValueError: for a manifest or a transcript that is none.
    """
    header = Header.read(lines[0].rstrip(b"\n"))
    opening = header.opening()
    records = [orjson.loads(line) for line in lines[1:]]
    measured = [Measured.read(record).measurement for record in records if record["record"] == "measurement"]
    names = [hashlib.sha256(line.rstrip(b"\n")).hexdigest() for line in lines[1:] if b'"record":"measurement"' in line]
    known = 0 if opening.evidence is None else len(opening.evidence.known)
    if header.document["mechanism"].get("method") != "publication":
        return Checked(("the transcript is not that of a publication",), False)
    job = job_of(opening, measured[:known], measured[known:], seed=int(str(header.session)[:15], 16))
    outcome = finish(job, lambda part: None)
    assert not isinstance(job.workload, Cuts)
    head = records[-1]["head_hash"]
    problems = list(_misstated(manifest, opening, header.session, names, head, outcome, job.workload))
    told, numbers = manifest["tables"], list(range(1, 1 + len(outcome.answers)))
    if [str(each["table"]) for each in told] != [str(number) for number in numbers] or sorted(tables) != numbers:
        problems.append(f"there are {len(outcome.answers)} tables, and not as many are named, in their order, or given")
        return Checked(tuple(problems), False)
    kinds = [_OF_STATISTIC if isinstance(answers, Told) else _TABLE for answers in outcome.answers]
    unknown = [set(manifest) - _MANIFEST, *(set(each) - kind for each, kind in zip(told, kinds, strict=True))]
    if any(unknown):
        problems.append(f"the manifest says what none does: {', '.join(sorted(set().union(*unknown)))[:200]}")
    found, same, space = {}, True, opening.dataset.space
    assert isinstance(space, TableSpace)
    for number, (answers, table) in enumerate(zip(outcome.answers, job.workload.tables, strict=True), start=1):
        if hashlib.sha256(tables[number]).hexdigest() != told[number - 1]["sha256"]:
            problems.append(f"table {number} is not the one that the manifest names")
        columns = _columns(tables[number], space, answers)
        if columns is None:
            problems.append(f"table {number} has not the rows and columns of its question")
            continue
        due = stated(space, table, number, opening.request.workload.workload, _sum(columns, answers))
        due |= {"attributes": list(labels_of(space, answers)), "rows": len(columns["value"])}
        if {name: told[number - 1][name] for name in due} != due:
            problems.append(f"the manifest says of table {number} what it is not")
        if isinstance(answers, Told):
            wrong = _amiss(columns, answers)
        else:
            wrong = _off(columns, answers, space.zeros.impossible(answers.question))
            found[number] = columns["value"]
        problems += (f"table {number}: {problem}" for problem in wrong)
        same &= all(np.array_equal(columns[name], own, equal_nan=True) for name, own in _own(answers).items())
    problems += _disagreeing(outcome, found)
    return Checked(tuple(problems), same and not problems)


def _misstated(
    manifest: Mapping[str, Any],
    opening: Opening,
    session: str,
    names: Sequence[str],
    head: str,
    outcome: Outcome,
    workload: TableWorkload,
) -> Iterator[str]:
    """What a manifest says that its release's transcript does not."""
    if manifest["release"] != session:
        yield f"the manifest is that of release {manifest['release']}, the transcript that of {session}"
    if list(manifest["measurements"]) != list(names):
        yield "the manifest does not name the measurements that the transcript has"
    due = {
        "format": FORMAT,
        "dataset": opening.request.dataset,
        "epsilon": float(opening.request.epsilon),
        "confidence": CONFIDENCE,
        "seed": str(outcome.summary["seed"]),
        "records": outcome.summary["records"],
        "head_hash": head,
        "notes": notes_of(workload),
    }
    for name, value in due.items():
        if type(manifest[name]) is not type(value) or manifest[name] != value:
            yield f"the manifest's {name} is not that of the transcript"


def _sum(columns: Mapping[str, Array], answers: Answers | Told) -> int | None:
    return None if isinstance(answers, Told) else int(columns["value"].sum())


def _own(answers: Answers | Told) -> Mapping[str, Array]:
    """The numbers that are computed here, in the order of rows."""
    estimates = answers.estimates
    return dict(
        zip(_NUMBERS, (each.reshape(-1) for each in (estimates.values, estimates.lows, estimates.highs)), strict=True)
    )


def _columns(content: bytes, space: TableSpace, answers: Answers | Told) -> Mapping[str, Array] | None:
    """The numbers of a table's file; None where it is not the table of its question: another header, other rows or
    labels, or what is no number."""
    labels = labels_of(space, answers)
    named, read = list(labels), _number if isinstance(answers, Told) else _whole
    try:
        header, *rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    except (ValueError, csv.Error):
        return None
    size = answers.estimates.values.size
    if header != [*named, *NUMBERS] or len(rows) != size:
        return None
    if any(len(row) != len(header) for row in rows):
        return None
    for column, told in enumerate(labels.values()):
        if [row[column] for row in rows] != told.fill_null("").to_pylist():
            return None
    try:
        found = {
            name: np.array([read(row[header.index(name)]) for row in rows], np.float64).reshape(size)
            for name in _NUMBERS
        }
        found["standard_error"] = np.array([_number(row[len(named) + 1]) for row in rows], np.float64)
    except (ValueError, OverflowError):
        return None
    return found


def _whole(text: str) -> int:
    """A number as it is written.

    Raises:
        ValueError: when it is written otherwise.
    """
    if str(int(text)) != text:
        raise ValueError("a number is written otherwise")
    return int(text)


def _number(text: str) -> float:
    """A number of a statistic, NaN where there is none.

    Raises:
        ValueError: for what is no number.
    """
    number = float(text or "nan")
    if text and not math.isfinite(number):
        raise ValueError("a number is written otherwise")
    return number


def _amiss(columns: Mapping[str, Array], answers: Told) -> Iterator[str]:
    """What is wrong with a table of a statistic."""
    values, lows, highs = (columns[name] for name in _NUMBERS)
    if ((values < lows) | (values > highs)).any():
        yield "a value lies outside its interval"
    estimates = answers.estimates
    width = estimates.highs - estimates.lows
    slack = _APART * np.maximum(np.abs(estimates.values), width)
    if answers.steps is not None:
        # Some records lie in other cells on another machine.
        slack = np.maximum(slack, np.minimum(width, max(_FEW_MOVED, len(values)) * answers.steps))
    own = {**_own(answers), "standard_error": estimates.standard_errors}
    yield from _wrong(columns, own, {name: ~_alike(columns[name], due, slack) for name, due in own.items()})


def _off(columns: Mapping[str, Array], answers: Answers, impossible: Array | None) -> Iterator[str]:
    """What is wrong with a table by itself, of which some answers are 0 whatever the records."""
    values, lows, highs = (columns[name] for name in _NUMBERS)
    if values.min(initial=0) < 0:
        yield "a count is below zero"
    if ((values < lows) | (values > highs)).any():
        yield "a count lies outside its interval"
    if impossible is not None:
        counted = np.any([columns[name] != 0 for name in _NUMBERS], axis=0) & impossible.reshape(-1)
        if counted.any():
            yield f"row {int(np.flatnonzero(counted)[0]) + 1} counts what is declared not to occur"
    own, errors = _own(answers), answers.estimates.standard_errors.reshape(-1)
    moved = float(np.abs(values - own["value"]).sum()) / 2
    if moved > max(_FEW_MOVED, len(values)):
        yield f"{moved:,.0f} records lie in other cells than follows, which no rounding moves"
    reach = np.maximum(1.0, own["high"] - own["low"])
    # The ends are those of what was measured, and reach to the value: only where they did may another be beside them.
    least, most = np.minimum(own["low"], values) - 1, np.maximum(own["high"], values) + 1
    above = np.where(own["low"] < own["value"], own["low"] + 1, np.inf)
    below = np.where(own["high"] > own["value"], own["high"] - 1, -np.inf)
    wrong = {
        "value": np.abs(values - own["value"]) > reach,
        "low": (lows < least) | (lows > above),
        "high": (highs > most) | (highs < below),
        "standard_error": ~np.isclose(columns["standard_error"], errors, rtol=1e-6, atol=0, equal_nan=True),
    }
    yield from _wrong(columns, {**own, "standard_error": errors}, wrong)


def _alike(found: Array, due: Array, slack: Array) -> Array:
    """Which numbers are as near as that, or are none on both sides."""
    alike: Array = (np.abs(found - due) <= slack) | (np.isnan(found) & np.isnan(due))
    return alike


def _wrong(columns: Mapping[str, Array], own: Mapping[str, Array], far: Mapping[str, Array]) -> Iterator[str]:
    """Of each column the first number that is too far from the one that is computed here."""
    for name, rows in far.items():
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            yield f"{name} of row {row + 1} is {columns[name][row]:g}, and {own[name][row]:g} follows"


def _disagreeing(outcome: Outcome, found: Mapping[int, Array]) -> Iterator[str]:
    """Tables that do not add up to the same."""
    cells = {
        number: (answers.question, found[number].reshape(answers.question.shape))
        for number, answers in enumerate(outcome.answers, start=1)
        if number in found and isinstance(answers, Answers) and isinstance(answers.question, Cells)
    }
    for one, other in itertools.combinations(cells, 2):
        sums = []
        shared = [
            attribute
            for attribute, partition in zip(cells[one][0].attributes, cells[one][0].partitions, strict=True)
            if (attribute, partition) in list(zip(cells[other][0].attributes, cells[other][0].partitions, strict=True))
        ]
        for number in (one, other):
            question, values = cells[number]
            sums.append(values.sum(axis=tuple(k for k, a in enumerate(question.attributes) if a not in shared)))
        if not np.array_equal(*sums):
            yield f"tables {one} and {other} do not add up to the same"
