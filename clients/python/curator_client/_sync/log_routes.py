# Made of _async/log_routes.py by make_sync.py: change that.

"""The calls by which the log is read, and by which a witness adds to it: all that following it needs of a service."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlencode

from curator_client._sync.http import Transport
from curator_client.calls import MOST_TRANSCRIPT, SMALL, Call
from curator_client.errors import NotVerified, ProtocolError, Refused
from curator_client.models import need
from curator_client.proofs.follower import Follower
from curator_client.proofs.notes import Checkpoint, NoteUnsigned, Verifier
from curator_client.quorum import Quorum
from curator_client.requests import segment

#: Lines of a page of the log.
PAGE = 1000


class LogRoutes:
    """The log of one service, as one key may see it.

    Raises:
        ProtocolError: by every method, when a reply is not one of the contract.
        Refused: by every method, when the service refuses.
        Unreachable: by every method, when no reply comes.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def key(self) -> str:
        """The key that the log is signed with, NAME+HASH+KEY."""
        return str(need(self._transport.json(Call("GET", "/v1/log/key", most=SMALL)), "key"))

    def key_statements(self) -> list[bytes]:
        """The signed notes by which each key of the log vouched for the next.

        Raises:
            ProtocolError: when they are no texts.
        """
        reply = self._transport.json(Call("GET", "/v1/log/key", most=SMALL))
        try:
            return [str(note).encode() for note in reply["previous"]]
        except (KeyError, TypeError):
            raise ProtocolError("the log's key comes with a list of notes about earlier ones") from None

    def known(self, state: Follower, note: bytes) -> Follower:
        """Whoever follows the log, with the key that has signed a checkpoint: the one that is known, or one for which
        it vouched.

        Raises:
            NoteRefused: when it is signed with no such key.
        """
        try:
            state.verifier.open(note)
        except NoteUnsigned:
            statements = self.key_statements()
            return state.know(note, lambda: statements)
        return state

    def checkpoint(self, witnesses: int | None = None, keys: Sequence[str] = ()) -> bytes:
        """The signed checkpoint of the log as it is now; or the newest one that witnesses have cosigned.

        Args:
            witnesses: how many of them, at least; None for the newest of all.
            keys: of those that count, each NAME+HASH+KEY; all that the service knows where none is named.

        Raises:
            Refused: ``not-found`` when so many have cosigned none.
        """
        asked = [] if witnesses is None else [("witnesses", str(witnesses)), *(("witness", key) for key in keys)]
        path = "/v1/log/checkpoint" + (f"?{urlencode(asked)}" if asked else "")
        return (self._transport.send(Call("GET", path, most=SMALL))).content

    def cosigned(self, quorum: Quorum) -> bytes:
        """The newest checkpoint that enough of some witnesses have cosigned; the log's own signature is not checked.

        Raises:
            NotVerified: when there is none, or none that is new enough.
            NoteMalformed: when what the service shows is no note.
        """
        try:
            note = self.checkpoint(quorum.need, [each.text() for each in quorum.witnesses])
        except Refused as problem:
            if problem.type != "not-found":
                raise
            raise NotVerified(f"no checkpoint was cosigned by {quorum.need} of the witnesses named") from None
        quorum.check(note)
        return note

    def cosign(self, key: str, note: bytes) -> None:
        """Add a checkpoint that a witness has cosigned.

        Args:
            key: the witness', NAME+HASH+KEY: the same as ever.
            note: the log's own with the cosignature.
        """
        path = f"/v1/log/cosignatures?{urlencode({'witness': key})}"
        self._transport.send(Call("POST", path, {"Content-Type": "text/plain"}, lambda: {"content": note}))

    def entries(self, start: int, end: int) -> list[bytes]:
        """Lines of the log from one number to another, both among them: the first ones, as many as a page has.

        Raises:
            ProtocolError: when there is none, or more than were asked for or a page may have.
        """
        reply = self._transport.send(Call("GET", f"/v1/log/entries?start={start}&end={end}"))
        count = reply.content.count(b"\n")
        if not reply.content.endswith(b"\n") or not 0 < count <= min(end + 1 - start, PAGE):
            raise ProtocolError("a page of the log has no lines, or others than were asked for")
        return reply.content[:-1].split(b"\n")

    def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the log of ``second`` entries begins with that of ``first``.

        Raises:
            ProtocolError: when its hashes are not base64.
        """
        path = f"/v1/log/proof/consistency?first={first}&second={second}"
        reply = self._transport.json(Call("GET", path, most=SMALL))
        try:
            return [base64.b64decode(each, validate=True) for each in reply["hashes"]]
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("a proof is a list of hashes in base64") from None

    def check_connected(self, verifier: Verifier, earlier: Checkpoint, later: Checkpoint) -> None:
        """Check by a proof of the service that one checkpoint begins with another; both were verified.

        Raises:
            LogShrank: when the later one is smaller.
            LogForked: when it does not.
        """
        state = Follower(verifier, earlier)
        state.check_sizes(later)
        if 0 < earlier.size < later.size:
            state.check_growth(later, self.consistency(earlier.size, later.size))

    def transcript(
        self,
        id: str,
        path: Path | str,
        progress: Callable[[int], None] | None = None,
        *,
        most_bytes: int = MOST_TRANSCRIPT,
    ) -> Path:
        """Download the transcript of a session or a release (NDJSON) to ``path``, which appears only once it is whole.

        Raises:
            Refused: ``not-found`` when there is none that the caller may read.
            ProtocolError: when it has more than ``most_bytes``.
        """
        target = Path(path)
        call = Call("GET", f"/v1/sessions/{segment(id)}/transcript", most=most_bytes)
        self._transport.download(call, target, progress)
        return target
