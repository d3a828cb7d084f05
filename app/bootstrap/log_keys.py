"""Where the log's private keys lie, and how one takes the place of another."""

from __future__ import annotations

import structlog

from app.bootstrap.clock import utc_now
from app.bootstrap.preconditions import StartRefused
from app.services.log_keys import KeyUnknown, LogKeys
from app.services.rekeying import LogLags, tell
from app.services.sequencer import Sequencer
from app.settings import Settings
from app.storage.keys import KeyDamaged, kept_key, made_key, replace_key, sweep_keys
from app.storage.log_signatures import SqlLogKeys
from app.storage.log_store import SqlLog
from app.storage.store import SqlStore
from curator_client.proofs.notes import Signer, Verifier

logger = structlog.get_logger(__name__)

#: The files of the log's key, and of the one that is to be its next.
LOG_KEY, NEXT_LOG_KEY = "log.key", "log-next.key"
UNKNOWN = (
    "the log is signed with a key that is not here: put keys/log.key back into the data folder, which all servers of "
    "one database share, or set CURATOR_LOG_KEY, and after a change CURATOR_LOG_OLD_KEY to the one before; "
    "`curator log rotate --lost` when it is lost for good"
)


def keys_of_log(settings: Settings, store: SqlStore, log: SqlLog) -> LogKeys:
    """The log's keys as the settings and the data folder have them."""

    def first() -> bytes:
        new = settings.log_key_bytes()
        if new is None:
            return made_key(settings.keys_dir, LOG_KEY)
        # A log from before keys were kept track of was signed with the old one.
        return settings.log_old_key_bytes() or new

    def known() -> list[bytes]:
        if settings.log_key is not None:
            found = [settings.log_key_bytes(), settings.log_old_key_bytes()]
        else:
            found = [kept_key(settings.keys_dir, name) for name in (LOG_KEY, NEXT_LOG_KEY)]
        return [seed for seed in found if seed is not None]

    return LogKeys(SqlLogKeys(store), log, utc_now, first=first, known=known, origin=settings.log_origin)


def settle(settings: Settings, store: SqlStore) -> None:
    """See to it that the log can be signed: a key that CURATOR_LOG_OLD_KEY is to vouch for is vouched for, and a change
    of keys that was interrupted is finished. Without any key the rest of the service goes on: it replies 503 to whoever
    asks for a checkpoint.

    Raises:
        StartRefused: when there is a key that is not the log's, or the log has another name than is set.
    """
    try:
        _settle(settings, store)
    except KeyUnknown:
        if settings.log_key is not None or (settings.keys_dir / LOG_KEY).exists():
            raise StartRefused(UNKNOWN) from None
        logger.error("the log cannot be signed", advice=UNKNOWN)


def rotate(settings: Settings, store: SqlStore) -> Verifier:
    """Give the log another key, or finish what was interrupted; the key that signs from here on.

    Raises:
        StartRefused: as :func:`settle`; when there is no key; and when keys are set, and not both.
    """
    keys = keys_of_log(settings, store, SqlLog(store))
    name = _name(settings, keys)
    sweep_keys(settings.keys_dir)
    try:
        if settings.log_key is None:
            interrupted = kept_key(settings.keys_dir, NEXT_LOG_KEY)
            if interrupted is None or keys.verifier != _verifier(interrupted, name):
                keys.signer()
                keys.change(made_key(settings.keys_dir, NEXT_LOG_KEY))
        elif settings.log_old_key is None:
            raise StartRefused("set CURATOR_LOG_KEY to the new key, and CURATOR_LOG_OLD_KEY to the one before")
        _settle(settings, store)
    except KeyUnknown:
        raise StartRefused(UNKNOWN) from None
    return keys.verifier


def begin_anew(settings: Settings, store: SqlStore) -> bool:
    """Have the log begin anew with whatever key there is at the next start, if the one that it is signed with is not
    here; whether that is so.
    """
    keys = keys_of_log(settings, store, SqlLog(store))
    if not SqlLogKeys(store).keys():
        return False
    try:
        keys.signer()
    except KeyUnknown:
        keys.forget()
        return True
    return False


def _finish(settings: Settings, keys: LogKeys) -> None:
    """The old key goes when the log tells of the new one."""
    following = None if settings.log_key is not None else kept_key(settings.keys_dir, NEXT_LOG_KEY)
    if following is not None and keys.verifier == _verifier(following, keys.verifier.name):
        replace_key(settings.keys_dir, LOG_KEY, NEXT_LOG_KEY)


def _settle(settings: Settings, store: SqlStore) -> None:
    """As :func:`settle`, but it raises KeyUnknown when the private key is not here."""
    sql = SqlLog(store)
    keys = keys_of_log(settings, store, sql)
    try:
        name = _name(settings, keys)
        new, old = settings.log_key_bytes(), settings.log_old_key_bytes()
        if new is not None and old is not None and keys.verifier == _verifier(old, name):
            keys.change(new)
        keys.signer()
        tell(keys, Sequencer(sql))
        _finish(settings, keys)
    except (OSError, KeyDamaged, LogLags) as error:
        raise StartRefused(f"the key of the log cannot be used: {error}") from None


def _name(settings: Settings, keys: LogKeys) -> str:
    name = keys.verifier.name
    if settings.log_origin not in (None, name):
        raise StartRefused(f"CURATOR_LOG_ORIGIN: the log is called {name} for good: name it so, or unset it")
    return name


def _verifier(seed: bytes, name: str) -> Verifier:
    return Signer(seed, name).verifier
