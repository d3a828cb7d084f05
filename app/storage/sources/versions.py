"""What versions of a table have in common, whichever format says of which Parquet files each is made: how a log is
read, what refuses one, and what refuses a version.

The files of a version are never altered, so that they are what is looked at afterwards, and the log no more. What the
files alone do not tell is refused. As of any source nothing outside of the operator's folders is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import TypeVar

from app.declarations.errors import InvalidDataset
from app.declarations.spec import leads_elsewhere
from app.storage.sources.files import MOST_FILES, held

#: A file of a log has so many bytes at most, and a version so many of them; and a path below a table so many parts.
MOST_LOG_BYTES = 1 << 28
MOST_LOGS = 10_000
MOST_PARTS = 64

_T = TypeVar("_T")


def read_log(name: str, folders: Sequence[Path], how: Callable[[Path], _T], length: int | None = None) -> _T:
    """What a file of a log says.

    Args:
        name: below the operator's folders.
        folders: these.
        how: the file is read, by a path that leads to it and to no other.
        length: of it in bytes, where the log says so.

    Raises:
        InvalidDataset: when it is too long or of another length, cannot be read, or is altered meanwhile.
    """
    with held(escape(name), folders, "source.table") as file:
        if file.stamp[2] > MOST_LOG_BYTES:
            raise InvalidDataset("source.table: its log is too long: shorten it, and name a later version")
        if length is not None and file.stamp[2] != length:
            raise damaged()
        try:
            found = how(Path(file.held))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001
            # Libraries meet what is no file of theirs with errors of all kinds.
            raise damaged() from None
        file.check()
    return found


@contextmanager
def sound() -> Iterator[None]:
    """What the log says is of the kinds that it should be.

    Raises:
        InvalidDataset: when it is not.
    """
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise damaged() from None


def patterns_of(table: str, files: Collection[str], field: str) -> list[str]:
    """Patterns below the operator's folders that match each file of a version alone.

    Args:
        table: the table's folder.
        files: their paths below it.
        field: of the declaration, that names the version.

    Raises:
        InvalidDataset: when there are none, too many, or some that do not lie in the table's folder.
    """
    check_inside(files, field)
    if not files:
        raise InvalidDataset(f"{field}: the table has no files in this version: name another")
    if len(files) > MOST_FILES:
        raise InvalidDataset(f"{field}: more than {MOST_FILES} files: put them into fewer, larger ones (compaction)")
    return [escape(f"{table}/{path}") for path in files]


def check_inside(files: Collection[str], field: str) -> None:
    """Refuse paths that do not lie in the table's folder.

    Raises:
        InvalidDataset: when one does not, or is none that anybody has.
    """
    if any(path.count("/") >= MOST_PARTS for path in files):
        raise damaged()
    if any(leads_elsewhere(path) or ":" in path.partition("/")[0] for path in files):
        raise untold(field, "some of its files lie elsewhere", "copy them into its folder")


def unknown(field: str) -> InvalidDataset:
    """The refusal of a version that the log does not tell."""
    return InvalidDataset(f"{field}: the table's log tells no such version any more, or yet: name another")


def untold(field: str, why: str, what: str) -> InvalidDataset:
    """The refusal of a version whose files alone do not tell its rows."""
    return InvalidDataset(
        f"{field}: this version's files alone do not tell its rows, as {why}: {what}, and name that version"
    )


def damaged() -> InvalidDataset:
    """The refusal of a log that makes no sense."""
    return InvalidDataset("source.table: its log is damaged, or none that is read: write the table again")
