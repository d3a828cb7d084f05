"""Delta tables: which Parquet files a version of one is made of, told by its log, which is read by no engine.

A version is told by the last checkpoint before it, and the commits since (Delta transaction log protocol, "Action
Reconciliation"). What the files alone do not tell is refused: deleted rows, columns of other names, and values that
stand in the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from app.declarations.errors import InvalidDataset
from app.storage.sources.files import listed
from app.storage.sources.versions import MOST_LOGS, damaged, patterns_of, read_log, sound, unknown, untold

_VERSION = "source.version"
_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
#: What is needed to read a table whose files alone tell its rows.
_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck"})
_READER = 3
_MAPPING = "delta.columnMapping.mode"

_Action = Mapping[str, Any]
_File = tuple[Any, ...]


def files_of(table: str, version: int, folders: Sequence[Path]) -> list[str]:
    """The names of the files of a version, as patterns below the operator's folders that match each alone.

    Args:
        table: the table's folder, below one of these.
        version: of the table.
        folders: those below which files may be named.

    Raises:
        InvalidDataset: saying what to change: when there is no such table or version, or its files alone do not tell
            what its rows are.
    """
    names = listed(f"{table}/{_LOG}", folders, "source.table")
    if not any(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names):
        raise InvalidDataset("source.table: no Delta table below the server's folders for sources: correct it")
    live: dict[_File, None] = {}
    metadata: _Action | None = None
    known = False
    for action in _actions(table, version, names, folders):
        with sound():
            if action.get("protocol") is not None:
                _check_protocol(action["protocol"])
                known = True
            metadata = action.get("metaData") or metadata
            if action.get("remove") is not None:
                live.pop(_file(action["remove"]), None)
            if action.get("add") is not None:
                live[_file(action["add"])] = None
    if not known or metadata is None:
        raise damaged()
    # What was once so, and is no more in this version, is nothing to it.
    with sound():
        _check_metadata(metadata)
    if any(vector for _, *vector in live):
        raise untold(_VERSION, "rows of its files are deleted", "purge them (REORG ... APPLY (PURGE))")
    return patterns_of(table, [path for path, *_ in live], _VERSION)


def _actions(table: str, version: int, names: Sequence[str], folders: Sequence[Path]) -> Iterator[_Action]:
    """What the log says up to a version, in its order.

    Raises:
        InvalidDataset: when that version is not told.
    """
    parts: dict[int, dict[int, str]] = {}
    whole: dict[int, int] = {}
    for name in names:
        found = _CHECKPOINT.fullmatch(name)
        if found and int(found[1]) <= version:
            number, part, count = int(found[1]), int(found[2] or 1), int(found[3] or 1)
            # One that was written in several parts stands beside none of other numbers of them.
            if whole.setdefault(number, count) == count:
                parts.setdefault(number, {})[part] = name
    complete = [number for number, found in parts.items() if sorted(found) == [*range(1, whole[number] + 1)]]
    start = max(complete, default=-1)
    commits = {int(found[1]): name for name in names if (found := _COMMIT.fullmatch(name))}
    needed = range(start + 1, version + 1)
    if version - start > MOST_LOGS or any(number not in commits for number in needed):
        raise unknown(_VERSION)
    for _, name in sorted(parts.get(start, {}).items()):
        yield from _read(f"{table}/{_LOG}/{name}", folders, _checkpointed)
    for number in needed:
        yield from _read(f"{table}/{_LOG}/{commits[number]}", folders, _committed)


def _read(name: str, folders: Sequence[Path], how: Callable[[Path], list[_Action]]) -> list[_Action]:
    found = read_log(name, folders, how)
    if not all(isinstance(action, dict) for action in found):
        raise damaged()
    return found


def _committed(path: Path) -> list[_Action]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _checkpointed(path: Path) -> list[_Action]:
    """What was removed before is not in the table either way."""
    with pq.ParquetFile(path) as file:
        told = file.read(columns=["protocol", "metaData", "add.path", "add.deletionVector"])
    rows: list[_Action] = told.to_pylist(maps_as_pydicts="strict")
    return rows


def _check_protocol(protocol: _Action) -> None:
    features = set(protocol.get("readerFeatures") or ())
    # Columns of other names are looked for where the table says that it has some; vectors where a file has one.
    if int(protocol["minReaderVersion"]) > _READER or features - _FEATURES - {"columnMapping", "deletionVectors"}:
        raise untold(_VERSION, "it has features that are not read", "write it with fewer")


def _check_metadata(metadata: _Action) -> None:
    if metadata.get("partitionColumns"):
        raise untold(_VERSION, "it is partitioned, so that files have not all columns", "write it without")
    if (metadata.get("configuration") or {}).get(_MAPPING, "none") != "none":
        raise untold(_VERSION, "its columns have other names in its files", f"write it without {_MAPPING}")


def _file(action: _Action) -> _File:
    """A file by its path below the table's folder and by which of its rows are deleted: in one commit the one may go
    and the other come, in any order."""
    path, vector = unquote(action["path"], errors="strict"), action.get("deletionVector")
    if vector is None:
        return (path,)
    return path, vector["storageType"], vector["pathOrInlineDv"], vector.get("offset")
