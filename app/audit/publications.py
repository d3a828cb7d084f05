"""Publications, checked by whoever sees the transcript of the release: made anew from what was measured.

A publication is a function of measurements and of a seed, all of which the release's transcript has. It is computed
again here. On the machine that it came from, or one that rounds alike, the same numbers come out. Elsewhere a rounding
may fall otherwise and move some records to neighbouring cells: then the tables must still add up to one another, count
nothing that is declared not to occur, and each count must lie as near to what is computed here as its interval is wide.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from app.curator.mechanisms.protocol import Measured
from app.curator.mechanisms.release import job_of
from app.curator.opening import Header
from app.releases.finishing import Outcome, finish
from app.releases.table_results import Answers
from app.spaces.questions import Cells
from app.spaces.table import TableSpace
from app.spaces.tensor import Array
from app.spaces.zeros import NO_ZEROS

_NUMBERS = ("value", "low", "high")


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
    problems = []
    session = orjson.loads(lines[0])["session"]
    if manifest["release"] != session:
        problems.append(f"the manifest is that of release {manifest['release']}, the transcript that of {session}")
    if list(manifest["measurements"]) != names:
        problems.append("the manifest does not name the measurements that the transcript has")
    job = job_of(opening, measured[:known], measured[known:], seed=int(str(session)[:15], 16))
    outcome = finish(job, lambda part: None)
    told = {int(each["table"]): str(each["sha256"]) for each in manifest["tables"]}
    if sorted(told) != list(range(1, 1 + len(outcome.answers))) or sorted(tables) != sorted(told):
        problems.append(f"there are {len(outcome.answers)} tables, and not as many are named or given")
        return Checked(tuple(problems), False)
    for number, content in sorted(tables.items()):
        if hashlib.sha256(content).hexdigest() != told[number]:
            problems.append(f"table {number} is not the one that the manifest names")
    found, same, space = {}, True, opening.dataset.space
    zeros = space.zeros if isinstance(space, TableSpace) else NO_ZEROS
    for number, answers in enumerate(outcome.answers, start=1):
        columns = _columns(tables[number], answers)
        if columns is None:
            problems.append(f"table {number} has not the rows and columns of its question")
            continue
        impossible = zeros.impossible(answers.question)
        problems += (f"table {number}: {problem}" for problem in _off(columns, answers, impossible))
        same &= all(np.array_equal(columns[name], own) for name, own in _own(answers).items())
        found[number] = columns["value"]
    problems += _disagreeing(outcome, found)
    return Checked(tuple(problems), same and not problems)


def _own(answers: Answers) -> Mapping[str, Array]:
    """The numbers that are computed here, in the order of rows."""
    estimates = answers.estimates
    return dict(
        zip(_NUMBERS, (each.reshape(-1) for each in (estimates.values, estimates.lows, estimates.highs)), strict=True)
    )


def _columns(content: bytes, answers: Answers) -> Mapping[str, Array] | None:
    """The numbers of a table's file; None where it is no table of so many rows."""
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        found = {name: np.array([int(row[name]) for row in rows], np.float64) for name in _NUMBERS}
    except (KeyError, TypeError, ValueError):
        return None
    return found if len(rows) == answers.estimates.values.size else None


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
    own = _own(answers)
    reach = np.maximum(1.0, own["high"] - own["low"])
    for name in _NUMBERS:
        far = np.abs(columns[name] - own[name]) > reach
        if far.any():
            row = int(np.flatnonzero(far)[0])
            yield f"{name} of row {row + 1} is {columns[name][row]:g}, and {own[name][row]:g} follows"


def _disagreeing(outcome: Outcome, found: Mapping[int, Array]) -> Iterator[str]:
    """Tables that do not add up to the same."""
    cells = {
        number: (answers.question, found[number].reshape(answers.question.shape))
        for number, answers in enumerate(outcome.answers, start=1)
        if number in found and isinstance(answers.question, Cells)
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
