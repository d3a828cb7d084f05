"""The private store: readers of uploads, the vault, and the exact counts that sessions share."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import io
import json
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import structlog
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, OutsideTable, Spec, TableSpec, published
from app.services.errors import Unavailable
from app.services.ports import Upload
from app.services.registered import RegisteredCounts
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, ExactCounts
from app.spaces.elements import ElementsTensor
from app.spaces.records import RecordsTensor
from app.spaces.space import Space
from app.storage import readers
from app.storage.blobs import FileStamp
from app.storage.kept_counts import NOTHING_KEPT, Kept
from app.storage.private_data import CodesData, CsrData, DenseData, ElementsData, IntArray, RecordsData, SourceData
from app.storage.readers import Readers
from app.storage.readers.codes import Sealing, rewritten
from app.storage.sources import NO_SOURCES, Moved, ParquetFolders, Sources, parquet, shaped
from app.storage.vault import Vault, VaultCorrupt, VaultEntry, VaultError, VaultMissing, VaultWrongKey, content_of
from curator_client.proofs.commitment import FileDigest

logger = structlog.get_logger(__name__)

#: What counts the records of a file of codes: by its path, what is needed beside, and what is asked. Raises Moved,
#: Unavailable.
AskCodes: TypeAlias = Callable[[Path, bytes, Sequence[CellCounts]], NDArray[np.int64]]
#: File systems tell times in steps of some milliseconds: a file may be altered twice within one, and look the same.
STEP_SECONDS = 0.05
#: How long a file that was refused is not read again while it looks the same: so long, and so many times as long as
#: reading it took.
REFUSED_SECONDS, REFUSED_SHARE = 1.0, 20


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The finding of a file that was read when it looked so, and until when that is believed."""

    stamp: FileStamp | None
    error: Exception | None
    until: float


def _believed_until(stamp: FileStamp) -> float:
    """Until when a file that is read now is believed to be what it is, while it looks so: always, unless it was changed
    just before.
    """
    return math.inf if abs(time.time() - stamp.changed_ns / 1e9) > STEP_SECONDS else 0.0


def _unusable(error: Exception) -> Unavailable:
    if isinstance(error, VaultWrongKey):
        return Unavailable(
            "the data set's private file was written with another vault key, or with none: nothing is answered from it "
            "until an operator sets CURATOR_VAULT_KEY to that key, or changes it by `curator vault rotate`",
            retry_after=60,
        )
    what = "missing" if isinstance(error, VaultMissing) else "not what was registered, or cannot be read"
    return Unavailable(
        f"the data set's private file is {what}: nothing is answered from it until an "
        "operator puts it back from a backup",
        retry_after=60,
    )


class VaultStore:
    """Private arrays in a vault; read once a data set, for all its sessions in memory, and gone with the last of them.

    ``await_writers`` waits until no transaction that may still name a file is under way; ``readers`` read uploads;
    ``sources`` have the records that stay where they are, ``ask_codes`` counts those that are in a file of codes, and
    ``kept`` has what was counted of both.
    """

    def __init__(
        self,
        vault: Vault,
        memory_limit: int,
        await_writers: Callable[[], None],
        readers: Readers = readers,
        sources: Sources = NO_SOURCES,
        kept: Kept = NOTHING_KEPT,
        ask_codes: AskCodes | None = None,
    ) -> None:
        self._vault, self._memory_limit, self._await_writers = vault, memory_limit, await_writers
        self._readers, self._sources, self._kept = readers, sources, kept
        self._ask_codes = ask_codes or ParquetFolders(parquet, (), memory_limit).ask_codes
        self._counts: WeakValueDictionary[str, RegisteredCounts] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._verified: dict[str, _Verdict] = {}
        self._verifying: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def read_upload(self, spec: Spec, filename: str, path: Path) -> Upload:
        """Parse an uploaded file; an edge list's layout decides whether the graph is weighted.

        Raises:
            InvalidDataset: naming what is wrong with the file, never a value.
        """
        if isinstance(spec, BipartiteSpec | GraphSpec) and spec.weighted is None:
            spec = spec.model_copy(update={"weighted": self._readers.has_weights(filename, path)})
        read = self._readers.read_private(spec, filename, path, memory_limit=self._memory_limit)
        data, report = read.data, None if read.report is None else read.report.view()
        bits = spec.data_bits if isinstance(spec, BipartiteSpec | GraphSpec | MatrixSpec) else 0
        with path.open("rb") as file:
            digest = FileDigest.of(file)
        contents = {"upload": digest.sha256, "numbers": content_of(data)}
        return Upload(spec, math.ldexp(data.mass, -bits), digest, data, contents, report)

    def count_source(self, spec: TableSpec) -> Upload:
        """Count the records that a declaration names: as if the counts had been uploaded, as ``numpy.save`` writes
        them. Of records that are asked later the file is what is known of them; of those that were prepared it is what
        says which they were.

        Raises:
            InvalidDataset: naming what is wrong with the records, never a value.
            Unavailable: when what was counted are no counts of this declaration.
        """
        found = self._sources.register(spec)
        data = found.data
        contents = {"upload": found.identity.sha256, "numbers": content_of(data)}
        match data:
            case DenseData() if spec.prepare is None:
                file = _saved(data.array)
            case SourceData():
                file = _saved(data.about)
            case _:
                file = found.identity
        upload = Upload(published(spec), float(data.mass), file, data, contents, found.report.view())
        if isinstance(data, SourceData) and isinstance(spec.source, OutsideTable):
            return replace(upload, connection=spec.source.connection)
        return upload

    def columns(self, filename: str, path: Path, layout: Layout) -> tuple[str, ...] | None:
        """Names of the columns of a table's file; None for an array of counts, which names none.

        Raises:
            InvalidDataset: when the file's name or its beginning tells no table.
        """
        return self._readers.column_names(filename, path, layout, memory_limit=self._memory_limit)

    def summarise(self, filename: str, path: Path, layout: Layout) -> tuple[ColumnSummary, ...]:
        """Summaries of the columns that the layout names in a table's file, for a draft; nothing of it is kept.

        Raises:
            InvalidDataset: when the file cannot be read to its end.
        """
        return self._readers.summarise(filename, path, layout, memory_limit=self._memory_limit)

    def registration(self) -> AbstractContextManager[None]:
        """Holds off sweeps until the row that names the file is committed."""
        return self._vault.registration()

    def put(self, name: str, upload: Upload, key: bytes | None = None) -> dict[str, str]:
        """Write the numbers durably, and the key of a commitment into the same file; the entry goes into the data set's
        row.

        Raises:
            Unavailable: when the disk refuses; then nothing remains.
        """
        try:
            entry = self._vault.put(name, upload.data, key)
        except OSError as error:
            logger.error("a private file could not be written", error=errno.errorcode.get(error.errno or 0, "unknown"))
            raise Unavailable(
                "the private file could not be written and nothing was kept: an operator must look at the disk",
                retry_after=60,
            ) from None
        marks = {what: self._vault.mark(entry.file_name, content) for what, content in upload.contents.items()}
        told = {"file_name": entry.file_name, "digest": entry.digest, **marks}
        return told if upload.connection is None else {**told, "connection": upload.connection}

    def commitment_key(self, entry: dict[str, str]) -> bytes | None:
        """The key that is in the file, which is read and verified; None where it has none.

        Raises:
            Unavailable: when the file is missing, altered, or sealed with another key.
        """
        try:
            return self._vault.commitment_key(VaultEntry(entry["file_name"], entry["digest"]))
        except (VaultError, OSError) as error:
            raise _unusable(error) from None

    def alike(self, upload: Upload, entry: dict[str, str]) -> bool:
        """Whether an entry was made of the same file or holds the same numbers, its own file gone or not.

        Not known of an entry that another vault key made, and once the key was changed not of the file either.
        """
        name = entry["file_name"]
        return any(
            hmac.compare_digest(entry.get(what, ""), self._vault.mark(name, content))
            for what, content in upload.contents.items()
        )

    def counts(self, space: Space, entry: dict[str, str]) -> RegisteredCounts:
        """The private numbers, read and verified where no session in memory has them; they are told as long as the file
        passes :meth:`check`.

        Raises:
            Unavailable: when the file is missing, altered, or sealed with another key.
        """
        name, kept = entry["file_name"], VaultEntry(entry["file_name"], entry["digest"])
        with self._lock:
            known = self._counts.get(name)
            if known is None:
                try:
                    stamp = self._vault.stamp(kept)
                    until = _believed_until(stamp)
                    data = self._vault.open(kept)
                except (VaultError, OSError) as error:
                    raise _unusable(error) from None
                self._verified[name] = _Verdict(stamp, None, until)
                match data:
                    case SourceData():
                        counts = self._asked(space, name, data)
                    case CodesData():
                        counts = self._coded(space, name, kept, data)
                    case _:
                        counts = _counts_of(space, data)
                known = self._counts[name] = RegisteredCounts(counts, partial(self._check, name, kept))
                return known
        known.check()
        return known

    def _asked(self, space: Space, name: str, data: SourceData) -> ExactCounts:
        """The numbers of records that stay where they are."""
        sources = self._sources
        return AskedCounts(
            space.shape,
            data.mass,
            sources.asking(data),
            self._kept.of(name),
            sources.seconds(data),
            sources.place(data),
        )

    def _coded(self, space: Space, name: str, kept: VaultEntry, data: CodesData) -> ExactCounts:
        """The numbers of records in a file of codes."""
        ask = _CodesFile(data, partial(self._reopened, kept), partial(self._check, name, kept), self._ask_codes)
        seconds = float(json.loads(data.about.tobytes())["seconds"] or 0)
        return AskedCounts(space.shape, data.mass, ask, self._kept.of(name), seconds)

    def _reopened(self, kept: VaultEntry) -> CodesData:
        try:
            data = self._vault.open(kept)
        except (VaultError, OSError) as error:
            raise _unusable(error) from None
        assert isinstance(data, CodesData)
        return data

    @property
    def held(self) -> int:
        """Bytes of all private numbers that are in memory, with what was made of them and kept."""
        found = (reference() for reference in self._counts.valuerefs())
        return sum(counts.nbytes for counts in found if counts is not None)

    def check(self, entry: dict[str, str]) -> None:
        """Refuse a file that is not there, or is not what was written.

        It is read and verified when first asked for and whenever it has changed, else this is a look at the folder. A
        file that is refused is looked at again when it changes, and else after a while: what it lacks may be a key
        that is put back, or a disk that can be read again.

        Raises:
            Unavailable: saying what an operator must do.
        """
        self._check(entry["file_name"], VaultEntry(entry["file_name"], entry["digest"]))

    def _check(self, name: str, kept: VaultEntry) -> None:
        error = self._found(name, kept)
        if error is not None:
            raise _unusable(error)

    def is_foreign(self, entries: Iterable[dict[str, str]]) -> bool:
        """Whether some files are of another vault key, or of none, and not one is of this."""
        foreign = False
        for entry in entries:
            fits = self._vault.fits(VaultEntry(entry["file_name"], entry["digest"]))
            if fits:
                return False
            foreign = foreign or fits is False
        return foreign

    def usable(self, entry: dict[str, str]) -> bool:
        """Whether a file is there and is what was written; see :meth:`check`."""
        return self._found(entry["file_name"], VaultEntry(entry["file_name"], entry["digest"])) is None

    def _found(self, name: str, kept: VaultEntry) -> Exception | None:
        """The fault of a file."""
        try:
            stamp = self._vault.stamp(kept)
        except (VaultError, OSError) as error:
            self._tell(name, self._verified.get(name), error)
            self._verified[name] = _Verdict(None, error.with_traceback(None), 0.0)
            return error
        known = self._verified.get(name)
        if known is not None and known.stamp == stamp and time.monotonic() < known.until:
            return known.error
        with self._verifying[name]:  # one reads it for all that wait, and nobody waits for another file
            known = self._verified.get(name)
            if known is not None and known.stamp == stamp and time.monotonic() < known.until:
                return known.error
            started, until, wrong = time.monotonic(), _believed_until(stamp), None
            try:
                self._vault.verify(kept)
            except (VaultError, OSError) as error:
                wrong, now = error.with_traceback(None), time.monotonic()
                until = now + REFUSED_SECONDS + REFUSED_SHARE * (now - started)
            self._tell(name, known, wrong)
            self._verified[name] = _Verdict(stamp, wrong, until)
            return wrong

    @staticmethod
    def _tell(name: str, before: _Verdict | None, error: Exception | None) -> None:
        """Log what has become of a file, once."""
        if error is not None and (before is None or before.error is None):
            logger.error("a private file cannot be used", file=name, error=type(error).__name__)
        elif error is None and before is not None and before.error is not None:
            logger.warning("a private file can be used again", file=name)

    @property
    def moved(self) -> list[str]:
        """The data sets whose records stay elsewhere, and were not what was registered when they were asked last."""
        return self._sources.moved

    def lies_there(self, entry: dict[str, str]) -> bool:
        """Whether there is a file, whatever it holds."""
        try:
            self._vault.stamp(VaultEntry(entry["file_name"], entry["digest"]))
        except VaultMissing:
            return False
        except (VaultError, OSError):  # what is wrong with it is told when it is read
            pass
        return True

    def forget(self, entry: dict[str, str]) -> None:
        """Drop what is held in memory of a file."""
        with self._lock:
            self._counts.pop(entry["file_name"], None)
            self._verified.pop(entry["file_name"], None)
            self._verifying.pop(entry["file_name"], None)

    def destroy(self, entry: dict[str, str]) -> None:
        """Remove the file for good."""
        self.forget(entry)
        self._kept.destroy(entry["file_name"])
        self._vault.destroy(VaultEntry(entry["file_name"], entry["digest"]))

    def sweep(self, known: Callable[[], Iterable[str]]) -> None:
        """Remove files that no committed row names."""

        def named() -> set[str]:
            own = set(known())
            return own | self._kept.files(own)

        sweep(self._vault, named, self._await_writers)


class _CodesFile:
    """Has a file of codes counted, as long as it is what was written: see :class:`app.spaces.asked.AskedCounts`.

    Args:
        data: the file, verified.
        reopen: verifies and opens it again, where what is open is not what it was: its name may lead to an equal one.
        look: raises Unavailable when what has its name is not what was written.
        ask: counts its records.
    """

    def __init__(
        self,
        data: CodesData,
        reopen: Callable[[], CodesData],
        look: Callable[[], None],
        ask: AskCodes,
    ) -> None:
        self._data, self._looks = data, _looks(data)
        self._reopen, self._look, self._ask = reopen, look, ask

    def __call__(self, asked: Sequence[CellCounts]) -> list[NDArray[np.int64]]:
        self._look()
        if _looks(self._data) != self._looks:
            self._data = self._reopen()
            self._looks = _looks(self._data)
        held = Path(f"/proc/self/fd/{self._data.file.fileno()}")
        try:
            numbers = self._ask(held, self._data.about.tobytes(), asked)
        except Moved:
            numbers = None
        self._look()
        if numbers is None or _looks(self._data) != self._looks:
            raise _unusable(VaultCorrupt())
        return shaped(numbers, asked)


def _looks(data: CodesData) -> tuple[int, ...]:
    """How a file that is open looks from outside."""
    found = os.fstat(data.file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class VaultResealer:
    """Private files on their way from one vault to another on the same folder, which differ in their keys.

    ``folder`` is on the disk that files are written to which are not only copied: see
    :class:`~app.storage.readers.codes.Sealing`.
    """

    def __init__(self, old: Vault, new: Vault, await_writers: Callable[[], None], folder: Path | None = None) -> None:
        self._old, self._new, self._await_writers, self._folder = old, new, await_writers, folder

    def registration(self) -> AbstractContextManager[None]:
        """Holds off sweeps until the row that names the new file is committed."""
        return self._new.registration()

    def resealed(self, name: str, entry: dict[str, str]) -> dict[str, str] | None:
        """A copy of a file under the new key, verified against its digest; None where it is under it already.

        Raises:
            Unavailable: when neither key opens it.
        """
        found = VaultEntry(entry["file_name"], entry["digest"])
        with contextlib.suppress(VaultError):
            self._new.verify(found)
            return None
        try:
            data = self._old.open(found)
            if isinstance(data, CodesData):  # its own key was sealed with the old one
                data = rewritten(data, Sealing(self._folder, self._new.file_key()))
            made = self._new.put(name, data, self._old.commitment_key(found))
        except VaultError:
            raise Unavailable("neither key opens the private file") from None
        numbers = self._new.mark(made.file_name, content_of(data))
        # The mark of what was uploaded was made with the old key.
        carried = {what: told for what, told in entry.items() if what != "upload"}
        return {**carried, "file_name": made.file_name, "digest": made.digest, "numbers": numbers}

    def destroy(self, entry: dict[str, str]) -> None:
        """Remove the file for good."""
        self._new.destroy(VaultEntry(entry["file_name"], entry["digest"]))

    def sweep(self, known: Callable[[], Iterable[str]]) -> None:
        """Remove files that no committed row names."""
        sweep(self._new, known, self._await_writers)


def sweep(vault: Vault, known: Callable[[], Iterable[str]], await_writers: Callable[[], None]) -> None:
    """Remove files that no row names once no transaction that may still name one is under way."""

    def named() -> set[str]:
        await_writers()
        return set(known())

    vault.sweep(named)


def _saved(array: IntArray) -> FileDigest:
    """The digest of the file that ``numpy.save`` makes of an array; no file is written."""
    head = io.BytesIO()
    npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    digest = hashlib.sha256(head.getvalue())
    digest.update(np.ascontiguousarray(array).data)
    return FileDigest(len(head.getvalue()) + array.nbytes, digest.digest())


def _counts_of(space: Space, data: CsrData | DenseData | RecordsData | ElementsData) -> ExactCounts:
    match data:
        case CsrData():
            return space.tensor(data.matrix())
        case DenseData():
            return space.tensor(data.array)
        case RecordsData():
            return RecordsTensor(data.columns, space.shape)
        case ElementsData():
            return ElementsTensor(data)
