"""Tasks to replay a transcript against the log's part of its session, and what is found, in closed forms that any
machine can be given.

A task is a line of JSON, the log's lines of the session's header and movements, and the transcript: all of it is what
auditors of the data set may read, and it holds no private number and no key. What is found is JSON, and names the task
that it is of and the program that found it: whoever was given another task, or has other rules, tells nothing of this.
"""

from __future__ import annotations

import hashlib
import io
import sys
from dataclasses import replace
from typing import Any

import orjson

from app.audit import forms
from app.audit.against_log import NUMBERS, TEXTS, Due, Found
from app.audit.books import Opened
from app.audit.failures import Malformed, Undecided
from app.audit.watching import Differs
from app.patience import Progress
from app.services.closed_forms import Damaged, opened, sealed
from curator_client.proofs.findings import Unfollowed
from curator_client.version import __version__

#: The kinds of both forms.
TASK, _RESULT = "replay-task", "replay-result"
#: Words about progress.
_STEPS = 100
#: Numbers of entries and answers are smaller: sums of them have 64 bits.
_MOST = 1 << 53


def name_of(task: bytes) -> str:
    """A name that no other task has, nor the same one for another version of this program.

    Args:
        task: in its closed form.
    """
    return hashlib.sha256(f"{__version__}\n".encode() + task).hexdigest()


def written(due: Due) -> tuple[Due, bytes]:
    """The closed form of a task, for which the transcript is read; and what is due, to be replayed here all the same.

    Raises:
        OSError: when the transcript cannot be read.
    """
    movements = [line.rstrip(b"\n") for line in due.movements]
    with due.transcript as file:
        transcript = file.read()
    told = {
        "digests": [each.hex() for each in due.digests],
        "entries": due.entries,
        "movements": len(movements),
        "sizes": due.sizes,
        "sought": [each.hex() for each in due.sought],
    }
    again = replace(due, movements=movements, transcript=io.BytesIO(transcript))
    return again, sealed(TASK, b"\n".join((orjson.dumps(told), due.header, *movements, transcript)))


def _read(content: bytes) -> Due:
    """From the closed form.

    Raises:
        Damaged: when it is none.
    """
    file = io.BytesIO(opened(TASK, content))
    try:
        told = orjson.loads(file.readline())
        header, *movements = (file.readline() for _ in range(1 + told["movements"]))
        return Due(
            header,
            Opened.read(forms.parse(header)),
            movements,
            told["entries"],
            tuple(map(bytes.fromhex, told["digests"])),
            tuple(told["sizes"]),
            frozenset(map(bytes.fromhex, told["sought"])),
            file,
        )
    except (Malformed, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"this is no {TASK}") from error


def carried_out(content: bytes, progress: Progress) -> bytes:
    """What is found of a task, both in their closed forms.

    Args:
        content: the task.
        progress: told from time to time.

    Raises:
        Damaged: when it is none.
        MemoryError: when it takes more memory than there is.
        Undecided: when the replay itself fails.
    """
    due, read, step = _read(content), 0, 0

    def heard(count: int) -> None:
        nonlocal read, step
        read += count
        if (reached := read * _STEPS // len(content)) > step:
            step = reached
            progress(step / _STEPS)

    try:
        found = due.replayed(sys.maxsize, heard)
    except Undecided as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        raise
    return sealed(_RESULT, orjson.dumps({"of": name_of(content), **_told(found)}))


def _told(found: Found | Unfollowed) -> dict[str, Any]:
    if isinstance(found, Unfollowed):
        where = {"entry": found.entry, "movement": found.movement}
        return {"differs": isinstance(found, Differs), "problem": found.problem, **where}
    return {
        "beyond": found.beyond,
        "made": [each.hex() for each in found.made],
        "misplaced": found.misplaced,
        "missing": found.missing,
        "summary": found.summary,
    }


def found_in(content: bytes, of: str) -> Found | Unfollowed:
    """What is found, from its closed form.

    Args:
        content: the form.
        of: the name of the task that it is to be of (:func:`name_of`).

    Raises:
        Damaged: when it is none, or is of another task.
    """
    try:
        told = orjson.loads(opened(_RESULT, content))
        if told["of"] != of:
            raise Damaged(f"a {_RESULT} of another task, or of another version of this program")
        if "problem" in told:
            kind = Differs if told["differs"] else Unfollowed
            entry, movement = (None if told[name] is None else _number(told[name]) for name in ("entry", "movement"))
            return kind(_of(str, told["problem"]), entry=entry, movement=movement)
        summary = {name: _of(str, told["summary"][name]) for name in TEXTS}
        summary |= {name: _number(told["summary"][name]) for name in NUMBERS}
        return Found(
            summary,
            _number(told["beyond"]),
            _number(told["missing"]),
            _of(bool, told["misplaced"]),
            frozenset(map(bytes.fromhex, told["made"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"this is no {_RESULT}") from error


def _of(kind: type, value: Any) -> Any:
    """A value of this type and no other.

    Raises:
        TypeError: when it is of another.
    """
    if type(value) is not kind:
        raise TypeError("a part of another type")
    return value


def _number(value: Any) -> int:
    """How many there are of something.

    Raises:
        TypeError: when it is no whole number.
        ValueError: when there cannot be that many.
    """
    if not 0 <= _of(int, value) < _MOST:
        raise ValueError("a number that is out of range")
    return int(value)
