"""Which key the log is signed with. The database has the order of the keys; whoever holds the private one of the last
signs, and nobody else. The log's name is that of the first key, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.audit.log import key_record
from app.services.errors import Unavailable
from app.services.log_ports import LogKey, LogKeyStore, LogStore
from app.services.ports import Clock
from curator_client.proofs.key_changes import KeyChange
from curator_client.proofs.notes import Signer, Verifier


class KeyUnknown(Unavailable):
    """The private key that the log is signed with is not here."""


class LogKeys:
    """The log's keys.

    Args:
        store: which there were.
        log: the log.
        clock: tells the time.
        first: reads or makes the private key that a log begins with.
        known: reads all private keys that there are now.
        origin: the log's name; None for one that is made of the first public key.
    """

    def __init__(
        self,
        store: LogKeyStore,
        log: LogStore,
        clock: Clock,
        *,
        first: Callable[[], bytes],
        known: Callable[[], Iterable[bytes]],
        origin: str | None,
    ) -> None:
        self._store, self._log, self._clock = store, log, clock
        self._first, self._known, self._origin = first, known, origin
        self._signer: Signer | None = None

    def all(self) -> list[LogKey]:
        """The keys that the log was signed with, the last one now; the first call ever begins with one."""
        while not (keys := self._store.keys()):
            made = Signer(self._first(), self._origin)
            self._store.add(LogKey(0, made.verifier.text()), None)
        return keys

    @property
    def verifier(self) -> Verifier:
        """Who checks what is signed now."""
        return Verifier.parse(self.all()[-1].key)

    def statements(self) -> list[bytes]:
        """The notes by which each key vouched for the next."""
        return [key.statement for key in self.all() if key.statement is not None]

    def signer(self) -> Signer:
        """Who signs now. It is asked anew each time: another process may have changed the key.

        Raises:
            KeyUnknown: when the private key is not here.
        """
        verifier, signer = self.verifier, self._signer
        if signer is None or signer.verifier != verifier:
            signers = (Signer(seed, verifier.name) for seed in self._known())
            signer = next((each for each in signers if each.verifier == verifier), None)
        if signer is None:
            raise KeyUnknown("the log is signed with a key that this server does not have: its operator must see to it")
        self._signer = signer
        return signer

    def change(self, seed: bytes) -> None:
        """Have the key that signs now vouch for a new one, which signs from here on. It may do so as soon as
        :meth:`told`. Nothing happens when it is the one that signs.

        Raises:
            KeyUnknown: when the private key that signs now is not here.
        """
        while True:
            keys = self.all()
            old = Verifier.parse(keys[-1].key)
            new = Signer(seed, old.name)
            if new.verifier == old:
                return
            statement = KeyChange.signed(self._log.state().size, self.signer(), new)
            line = key_record(statement=statement, recorded_at=self._clock())
            if self._store.add(LogKey(len(keys), new.verifier.text(), statement), line):
                return

    def told(self) -> bool:
        """Whether the log tells of the key that signs now. Whoever has it must not sign before."""
        event = self.all()[-1].event
        return event is None or self._log.state().event >= event

    def forget(self) -> None:
        """Begin anew with another key, for which nobody vouches."""
        self._store.forget()
