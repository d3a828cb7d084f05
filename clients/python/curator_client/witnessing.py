"""A witness of a log: it follows the log into a folder, and cosigns what it verified there.

It signs nothing that it did not verify, never a smaller log than before, and never two different ones of a size. What
it cosigned last is in the folder, as ``cosigned``, before the cosignature leaves: whatever breaks off, the next time
goes on from there. A key belongs to one folder; with one in two folders nobody could hold to that.
"""

from __future__ import annotations

import fcntl
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from curator_client import durable
from curator_client._sync.curator import Curator
from curator_client._sync.log_routes import LogRoutes
from curator_client.errors import Contradicted, NotVerified, Refused
from curator_client.log_folder import LogFolder
from curator_client.proofs.follower import LogForked, LogShrank
from curator_client.proofs.notes import Checkpoint, NoteRefused, Witness

#: How many witnesses are looked for whom to join, at most.
_MOST = 100
_KEY_BYTES = 32


def cosign(path: Path | str, curator: Curator, witness: Witness) -> Checkpoint:
    """Bring a folder up to date, cosign its checkpoint and send it to the service; which one.

    Checkpoints in between that others have cosigned are cosigned first: witnesses who come at different times would
    hardly ever find the same size.

    Raises:
        Contradicted: as :meth:`curator_client.Log.fetch`; and when the log is not what was cosigned before, or what
            another has cosigned is not part of it. Nothing is cosigned.
        NotVerified: when the log is empty, or somebody else uses the folder.
        Refused: when the service refuses it.
    """
    folder, routes = LogFolder(path), curator.log_routes
    with _alone(folder.path):
        found = curator.log(path).fetch(transcripts=False).checkpoint
        note = (folder.path / "checkpoint").read_bytes()
        last = folder.path / "cosigned"
        try:
            verifier, told = folder.signed(note)
            if told != found:
                raise NotVerified(f"{folder.path} is being used by another")
            if not found.size:
                raise NotVerified("the log is empty: there is nothing yet that a witness could have seen")
            before = folder.signed(last.read_bytes())[1] if last.exists() else None
            if before is not None:
                routes.check_connected(verifier, before, found)
            for other in _others(folder, routes, 0 if before is None else before.size, found.size):
                try:
                    routes.check_connected(verifier, folder.signed(other)[1], found)
                except (LogForked, LogShrank):
                    folder.write("refused", other)
                    raise
                _send(last, routes, witness, other)
            _send(last, routes, witness, note)
        except (LogForked, LogShrank, NoteRefused) as error:
            raise Contradicted(str(error)) from None
    return found


def witness_of(path: Path, name: str | None) -> Witness:
    """The witness whose private key is in a file; it is made, for its owner alone to read, where there is none.

    Args:
        path: the file.
        name: of a new witness; None for one that is made of its public key.

    Raises:
        ValueError: when the file holds something else, others may read it, or the name cannot be one.
    """
    if not path.exists():
        made = Witness(secrets.token_bytes(_KEY_BYTES), name)
        made = Witness.parse(made.text())  # with its name, if that is one
        with suppress(FileExistsError):  # somebody made one meanwhile
            durable.write(path, f"{made.text()}\n".encode(), replace=False)
            return made
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ValueError(f"others may read {path}: chmod 600 it, or better, make another key")
    made = Witness.parse(path.read_text().strip())
    if name not in (None, made.name):
        raise ValueError(f"the witness in {path} is called {made.name}")
    return made


def _others(folder: LogFolder, routes: LogRoutes, after: int, before: int) -> list[bytes]:
    """Checkpoints between two sizes that others have cosigned, the smallest first: of one witness at least, of two, and
    so on.

    Raises:
        NoteRefused: when one is not of this log.
    """
    found = {}
    for count in range(1, _MOST):
        try:
            note = routes.checkpoint(count)
        except Refused as problem:
            if problem.type != "not-found":
                raise
            break
        size = folder.signed(note)[1].size
        if after < size < before:
            found[size] = note
    return [found[size] for size in sorted(found)]


def _send(last: Path, routes: LogRoutes, witness: Witness, note: bytes) -> None:
    """Cosign a note that was checked, remember it, and let it go."""
    made = witness.cosign(note, int(time.time()))
    durable.write(last, made, mode=0o666)
    routes.cosign(witness.verifier.text(), made)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While this lasts nobody else cosigns from a folder.

    Raises:
        NotVerified: when somebody does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".cosigning").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotVerified(f"another command is cosigning from {folder}: let it end") from None
        yield
