"""Iceberg tables: which Parquet files a snapshot of one is made of, told by its metadata, which no engine reads.

A snapshot names a list of manifests, and each of these names files (Iceberg table spec, "Manifest Lists" and
"Manifests"; both are Avro). Columns are known by numbers there and by names to whoever counts files, so that each name
that is asked must be one column throughout (ibid., "Column Projection"). What the files alone do not tell is refused:
deleted rows, columns that were renamed or added between files.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.declarations.errors import InvalidDataset
from app.storage.sources.files import SourceFile, listed
from app.storage.sources.versions import (
    MOST_LOG_BYTES,
    MOST_LOGS,
    check_inside,
    damaged,
    patterns_of,
    read_log,
    sound,
    unknown,
    untold,
)

_SNAPSHOT = "source.snapshot"
_FOLDER = "metadata"
_METADATA = re.compile(r"(?:v([0-9]{1,18})|([0-9]{1,18})-[0-9A-Za-z-]+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
#: The latest version of the format that is read: later ones have values that stand in no file.
_FORMAT = 2
#: The scheme and the host of an address: a table may be copied from where it was written.
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")
_DELETED = 2

_Json = Mapping[str, Any]


def files_of(table: str, snapshot: str, folders: Sequence[Path]) -> tuple[list[str], dict[str, int]]:
    """The files of a snapshot, as patterns below the operator's folders that match each alone; and the number of each
    of its columns by name.

    Args:
        table: the table's folder, below one of these.
        snapshot: the number of one, or the name of a tag.
        folders: those below which files may be named.

    Raises:
        InvalidDataset: saying what to change: when there is no such table or snapshot, or its files alone do not tell
            what its rows are.
    """
    metadata, taken = _found(table, snapshot, folders)
    with sound():
        if int(metadata["format-version"]) > _FORMAT:
            raise untold(_SNAPSHOT, "it has a format that is not read", f"write it in version {_FORMAT} of the format")
        # What is first of the format names no schema with a snapshot, and has one.
        schemas = {each["schema-id"]: each for each in metadata.get("schemas") or ()}
        number = taken.get("schema-id", metadata.get("current-schema-id"))
        schema = metadata["schema"] if number is None else schemas[number]
        columns = {str(field["name"]): int(field["id"]) for field in schema["fields"]}
        location = metadata["location"]
        manifests = _read(table, location, taken["manifest-list"], folders)
        if len(manifests) > MOST_LOGS:
            raise InvalidDataset("source.table: its log is too long: rewrite its manifests, and name a later snapshot")
        files: dict[str, None] = {}
        for manifest in manifests:
            for entry in _read(table, location, manifest["manifest_path"], folders, int(manifest["manifest_length"])):
                if entry["status"] == _DELETED:
                    continue
                file = entry["data_file"]
                if manifest.get("content") or file.get("content"):
                    raise untold(_SNAPSHOT, "rows of its files are deleted", "rewrite them (rewrite_data_files)")
                if file["file_format"].upper() != "PARQUET" or file.get("key_metadata") is not None:
                    raise untold(_SNAPSHOT, "some are no plain Parquet files", "rewrite them as such")
                path = _below(location, file["file_path"])
                if path in files:
                    raise untold(_SNAPSHOT, "one of its files is in it twice", "rewrite them")
                files[path] = None
    return patterns_of(table, files, _SNAPSHOT), columns


def check_columns(files: Sequence[SourceFile], numbers: Mapping[str, int], asked: Collection[str]) -> None:
    """Refuse files in which a name that is asked is not one and the same column of the table. They are asked by their
    own names, which differ from the table's where a column was renamed, or its name has signs that are none of Avro's.

    Args:
        files: those of a snapshot.
        numbers: of its columns, by name.
        asked: names of columns.

    Raises:
        InvalidDataset: when one is not; which is public, as a schema is.
    """
    schemas = [own for own in map(_numbered, files) if own is not None]
    for name in asked:
        told = {own[name] for own in schemas if name in own}
        wanted = {numbers[name]} if name in numbers else told
        if len(wanted) > 1 or not told <= wanted & set(numbers.values()):
            raise untold(_SNAPSHOT, f"{name!r} is another column in some of them", "rewrite them, or leave it out")
        for own in schemas:
            if name not in own:
                others = sorted(other for other, number in own.items() if number in wanted)
                how = f"let column be {others[0]!r} if all have that one" if others else "rewrite them, or leave it out"
                raise untold(
                    _SNAPSHOT, f"column {name!r} has another name in some, or is not there, or has no number", how
                )


def _numbered(file: SourceFile) -> dict[str, int] | None:
    """The numbers of the columns of a file, by its own names; None of one that cannot be read: whoever counts it says
    so."""
    try:
        schema = pq.read_schema(file.held)
    except (pa.ArrowException, OSError):
        return None
    told = {field.name: (field.metadata or {}).get(b"PARQUET:field_id", b"") for field in schema}
    return {name: int(number) for name, number in told.items() if number.isdigit()}


def _found(table: str, snapshot: str, folders: Sequence[Path]) -> tuple[_Json, _Json]:
    """The newest metadata that tell of a snapshot, and what they say of it."""
    names = listed(f"{table}/{_FOLDER}", folders, "source.table")
    numbered = [(int(found[1] or found[2]), name) for name in names if (found := _METADATA.fullmatch(name))]
    if not numbered:
        raise InvalidDataset("source.table: no Iceberg table below the server's folders for sources: correct it")
    if len(numbered) > MOST_LOGS:
        raise InvalidDataset("source.table: its log is too long: have old metadata deleted")
    numbered.sort(reverse=True)
    for number, name in numbered:
        metadata = read_log(f"{table}/{_FOLDER}/{name}", folders, _metadata)
        with sound():
            if snapshot.isascii() and snapshot.isdigit():
                wanted = int(snapshot)
            else:
                tag = (metadata.get("refs") or {}).get(snapshot)
                # A branch goes on, and a tag may be given to another snapshot: the newest metadata say to which, and of
                # two that were written at once one never came to be.
                if tag is None or tag["type"] != "tag" or [n for n, _ in numbered].count(number) > 1:
                    break
                wanted = tag["snapshot-id"]
            for each in metadata.get("snapshots") or ():
                if each["snapshot-id"] == wanted:
                    return metadata, each
    raise unknown(_SNAPSHOT)


def _metadata(path: Path) -> _Json:
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        with gzip.open(path) as packed:
            content = packed.read(MOST_LOG_BYTES + 1)
        if len(content) > MOST_LOG_BYTES:
            raise damaged()
    found = json.loads(content)
    if not isinstance(found, dict):
        raise damaged()
    return found


def _read(table: str, location: str, address: str, folders: Sequence[Path], length: int | None = None) -> list[_Json]:
    """The entries of a manifest, whose length the list says, or of a list of them. One that was cut between two blocks
    is as good a file as the whole.
    """
    name = _below(location, address)
    check_inside([name], _SNAPSHOT)
    return read_log(f"{table}/{name}", folders, _entries, length)


def _entries(path: Path) -> list[_Json]:
    # Loaded by whoever counts, in a process of its own: others never need it.
    import fastavro

    with path.open("rb") as file:
        found: list[Any] = [*fastavro.reader(file)]
    return [dict(each) for each in found]


def _below(location: str, address: str) -> str:
    """The path of a file below the table's folder; the whole address where it does not lie there."""
    folder, path = (_SCHEME.sub("", each, count=1) for each in (location, address))
    return path.removeprefix(folder.rstrip("/") + "/")
