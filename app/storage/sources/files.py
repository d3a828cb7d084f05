"""Files of a source: found by patterns below the folders that the operator names, and held open while they are counted.

Links are followed, and what they lead to lies inside of a folder still; nothing else is opened, and no other folder is
listed. No refusal has a path: files are told of by the number of their pattern, or by their own among all.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from app.declarations.errors import InvalidDataset

#: The most files of a source.
MOST_FILES = 256
#: File systems tell times in steps of some milliseconds: a file may be altered twice within one, and look the same.
STEP_SECONDS = 0.05
MOVED = (
    "a file of the source was altered or replaced while it was counted, and nothing was kept: register again when "
    "nothing writes to the files"
)

#: Device, inode, bytes, and times of contents and of the entry: what changes when a file does.
_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, repr=False)
class SourceFile:
    """A file that is held open, by its name below its folder."""

    name: str
    path: Path
    descriptor: int
    stamp: _Stamp

    @property
    def held(self) -> str:
        """The path by which this process reads the very file that is open, whatever has its name now."""
        return f"/proc/self/fd/{self.descriptor}"

    def check(self) -> None:
        """Refuse a file that is not what was opened.

        Raises:
            InvalidDataset: when it was written to, or something else has its name.
        """
        try:
            same = _stamp(os.fstat(self.descriptor)) == self.stamp == _stamp(self.path.stat())
        except OSError:
            same = False
        if not same:
            raise InvalidDataset(MOVED)


@contextmanager
def opened(patterns: Sequence[str], folders: Sequence[Path], named: str | None = None) -> Iterator[list[SourceFile]]:
    """All files that match one of the patterns, in the order of their names.

    Args:
        patterns: of paths below the folders.
        folders: the operator's.
        named: the field of the declaration by which each pattern is of one file; None where each is in
            ``source.files``, and may match several, in several folders.

    Raises:
        InvalidDataset: naming what to change.
    """
    inside = _inside(folders)
    with ExitStack() as closing:
        files: dict[str, SourceFile] = {}
        for number, pattern in enumerate(patterns):
            where, found = named or f"source.files.{number}", set[str]()
            for folder in inside:
                for name in _matching(folder, "", pattern.split("/"), inside, where):
                    path = Path(folder, name)
                    found.add(str(path))
                    if named is not None and len(found) > 1:
                        raise _several(named)
                    if str(path) in files:
                        continue
                    if len(files) == MOST_FILES:
                        raise InvalidDataset(f"source: more than {MOST_FILES} files: write fewer, larger ones")
                    descriptor = _open(path, inside, where)
                    closing.callback(os.close, descriptor)
                    files[str(path)] = SourceFile(name, path, descriptor, _stamp(os.fstat(descriptor)))
            if not found:
                what = "matches" if named is None else "is what it names"
                raise InvalidDataset(f"{where}: no file of the server's folders for sources {what}: correct it")
        if len({file.stamp[:2] for file in files.values()}) < len(files):
            raise InvalidDataset("source: two of the files are one, by a link: its records would count twice")
        if any(abs(time.time_ns() - file.stamp[4]) < STEP_SECONDS * 1e9 for file in files.values()):
            time.sleep(STEP_SECONDS)  # what is altered from now on looks so
            for file in files.values():
                file.check()
        yield sorted(files.values(), key=lambda file: (file.name, str(file.path)))


@contextmanager
def held(pattern: str, folders: Sequence[Path], named: str) -> Iterator[SourceFile]:
    """One file.

    Raises:
        InvalidDataset: naming what to change, when it is not there, or several are.
    """
    with opened([pattern], folders, named) as files:
        yield files[0]


def listed(name: str, folders: Sequence[Path], named: str) -> list[str]:
    """The names in a folder that is below one of the operator's; none where there is no such folder.

    Raises:
        InvalidDataset: when it leads outside, cannot be read, or several of the operator's have one.
    """
    inside = _inside(folders)
    found = [os.path.realpath(Path(folder, name)) for folder in inside if os.path.isdir(Path(folder, name))]
    if not all(_lies_in(path, inside) for path in found):
        raise _outside(named)
    if len(found) > 1:
        raise _several(named)
    try:
        return sorted(os.listdir(found[0])) if found else []
    except OSError:
        raise InvalidDataset(f"{named}: a folder cannot be read: let the server's user read it") from None


def _inside(folders: Sequence[Path]) -> list[str]:
    if not folders:
        raise InvalidDataset(
            "source: this server reads no files of its own: have its operator name their folders in "
            "CURATOR_SOURCE_FOLDERS, or upload the file"
        )
    return [os.path.realpath(folder) for folder in folders]


def _several(named: str) -> InvalidDataset:
    return InvalidDataset(f"{named}: two of the server's folders for sources have one: name it otherwise")


def _outside(where: str) -> InvalidDataset:
    return InvalidDataset(
        f"{where}: a link leads outside of the server's folders for sources: name other files, or have the operator "
        "add the folder to CURATOR_SOURCE_FOLDERS"
    )


#: What files were, each by its name, its bytes and its SHA-256; and how it looked from outside then.
Identity = list[tuple[str, int, str]]
Looks = list[_Stamp]


def identity(files: Iterable[SourceFile]) -> Identity:
    """Names, sizes and SHA-256 of files, which are read."""
    return [(file.name, file.stamp[2], _digest(file)) for file in files]


def looks(files: Iterable[SourceFile]) -> Looks:
    """How files look from outside."""
    return [file.stamp for file in files]


def same(files: Sequence[SourceFile], known: Identity, looked: Looks) -> bool:
    """Whether these are the files that were known. Those that look otherwise are read."""
    if [(file.name, file.stamp[2]) for file in files] != [(name, size) for name, size, _ in known]:
        return False
    alike = zip(files, known, looked, strict=True)
    return all(file.stamp == stamp or _digest(file) == digest for file, (_, _, digest), stamp in alike)


def _digest(file: SourceFile) -> str:
    with open(os.dup(file.descriptor), "rb") as content:
        content.seek(0)
        return hashlib.file_digest(content, "sha256").hexdigest()


def _matching(folder: str, name: str, parts: Sequence[str], inside: Sequence[str], where: str) -> Iterator[str]:
    """Names below a folder that match, each folder on the way looked at only when it lies inside.

    Raises:
        InvalidDataset: when one leads outside.
    """
    part, rest = parts[0], parts[1:]
    if any(sign in part for sign in "*?["):
        try:
            listed = sorted(os.listdir(Path(folder, name)))
        except OSError:
            return
        hidden = part.startswith(".")
        entries = [entry for entry in listed if fnmatchcase(entry, part) and entry.startswith(".") <= hidden]
    else:
        entries = [part]
    for entry in entries:
        found = os.path.join(name, entry)
        if not _lies_in(os.path.realpath(Path(folder, found)), inside):
            raise _outside(where)
        if rest:
            yield from _matching(folder, found, rest, inside, where)
        elif os.path.lexists(Path(folder, found)):
            yield found


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _open(path: Path, inside: Sequence[str], where: str) -> int:
    """The descriptor of a plain file.

    Raises:
        InvalidDataset: when it is none, cannot be opened, or lies outside now.
    """
    try:
        # Through no link: the path is the real one, unless it was changed since. A pipe would be waited for.
        real = os.path.realpath(path)
        if not stat.S_ISREG(os.lstat(real).st_mode):
            raise InvalidDataset(f"{where}: it matches what is no file: name files, as visits/*.parquet does")
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise InvalidDataset(f"{where}: a file cannot be opened: let the server's user read it") from None
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if not regular or not _lies_in(os.readlink(f"/proc/self/fd/{descriptor}"), inside):
        os.close(descriptor)
        raise InvalidDataset(MOVED)
    return descriptor


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
