"""Where private files and the note of the ledger lie: the data folder, or what CURATOR_VAULT_URL names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from app.bootstrap.preconditions import StartRefused
from app.settings import Settings
from app.storage.blobs import Blobs, FileNote, Folder, Note, UnfitStore
from app.storage.ledger_watch import NAME
from app.storage.turns import turns_of


def place_of_files(settings: Settings, engine: Engine) -> Blobs:
    """Where private files lie; where the place has no locks, those of the database serve.

    Raises:
        StartRefused: when this machine has no client for the object store.
    """
    if settings.vault_objects is None:
        return Folder(settings.vault_dir)
    from app.storage.objects import Objects, opened  # whoever has a folder does not load the store's client

    with _asked():
        return Objects(opened(settings.vault_objects), turns_of(engine))


def note_of_ledger(settings: Settings) -> Note:
    """Where it is noted what was seen of the ledger.

    Raises:
        StartRefused: when this machine has no client for the object store.
    """
    if settings.vault_objects is None:
        return FileNote((settings.files_elsewhere or settings.data_dir) / NAME)
    from app.storage.objects import ObjectNote, opened

    with _asked():
        return ObjectNote(opened(settings.vault_objects), NAME)


def check_place(place: Blobs) -> None:
    """Check that a place keeps what is put there.

    Raises:
        StartRefused: when it does not, or cannot be asked.
    """
    with _asked():
        place.check()


@contextmanager
def _asked() -> Iterator[None]:
    """Reasons for which an object store does not serve, as refusals to start."""
    try:
        yield
    except UnfitStore as error:
        raise StartRefused(f"CURATOR_VAULT_URL: private files are not safe in this object store, {error}") from None
    except OSError as error:
        raise StartRefused(
            f"CURATOR_VAULT_URL: {error.strerror}: look at the URL, at the AWS_* variables, which have the store's "
            "address and credentials, and at the certificate authorities of this machine (SSL_CERT_FILE)"
        ) from None
