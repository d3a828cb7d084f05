"""The log as a client without an auditor's key sees it: held against what the same client was shown before."""

from __future__ import annotations

from curator_client._async.log_routes import LogRoutes
from curator_client._async.waiting import Lock
from curator_client.errors import Contradicted, ProtocolError, Refused
from curator_client.extras import extra
from curator_client.models import JSON
from curator_client.proofs.follower import Follower, LogForked, LogShrank
from curator_client.proofs.notes import NoteRefused, Verifier


class SeenLog:
    """The log as far as a caller of any role may look: its key and its checkpoints, of which the last one is kept.

    The key is the one that was told first, or one for which it vouched.
    """

    def __init__(self, routes: LogRoutes) -> None:
        self._routes = routes
        self._state: Follower | None = None
        self._turn = Lock()

    async def look(self) -> JSON:
        """Hold the checkpoint of now against the one that was seen before: ``size``, and whether it is ``proven`` that
        it begins with that, None where there is nothing to prove.

        Raises:
            MissingExtra: without the extra ``log``.
            Contradicted: when the log shrank, has another hash at the same size, does not begin with what was seen, or
                is signed with a key for which the one known did not vouch.
        """
        extra("log", "cryptography")
        async with self._turn:  # what was seen last is not replaced by what was asked for earlier
            return await self._look()

    async def _look(self) -> JSON:
        try:
            if self._state is None:
                self._state = Follower(Verifier.parse(await self._routes.key()))
            note = await self._routes.checkpoint()
            state = await self._routes.known(self._state, note)
            found = state.look(note)
            proven = None
            if state.seen is not None and 0 < state.seen.size < found.size:
                proof = await self._growth(state.seen.size, found.size)
                proven = proof is not None
                if proof is not None:
                    state.check_growth(found, proof)
        except (LogShrank, LogForked, NoteRefused) as error:
            raise Contradicted(str(error)) from None
        self._state = Follower(state.verifier, found)
        return {"size": found.size, "proven": proven}

    async def _growth(self, first: int, second: int) -> list[bytes] | None:
        """The proof of consistency, None for a caller who may not have it."""
        try:
            return await self._routes.consistency(first, second)
        except Refused as problem:
            if problem.status != 403:
                raise
            return None
        except ProtocolError:
            raise Contradicted("what is shown for a proof is none") from None
