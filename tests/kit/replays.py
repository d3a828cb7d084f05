"""Replays of transcripts that begin as an honest one does, each taken up where it leaves it."""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import threading
from collections.abc import Sequence
from types import FunctionType
from typing import Any
from weakref import ReferenceType

import numpy as np

from app.audit.replay import MEMORY_LIMIT, Replaying, Verdict, _verdict
from tests.kit.forger import Document, documents_of, resealed

_LOCK, _HASH = type(threading.Lock()), type(hashlib.sha256())
_CACHED = type(functools.cache(len))


class Replays:
    """The verdicts of :func:`app.audit.replay.replay`, for many changes of one transcript.

    A replay reads line by line, so that what it has found behind a line depends on the lines up to there alone: what it
    holds behind each line of the honest transcript is kept, and another transcript is read on from a copy of it. A copy
    that lost something would be no witness: the honest transcript, read on from a copy behind every line, must be
    accepted.

    Args:
        honest: its lines, without their ends.
        head: what was kept of it, as :func:`app.audit.replay.replay` has it.
        entries: the same.
    """

    def __init__(self, honest: Sequence[bytes], *, head: str | None = None, entries: int | None = None) -> None:
        self.honest = list(honest)
        self._behind = [_Kept(Replaying(head, entries, MEMORY_LIMIT))]
        for line in self.honest:
            state = self._behind[-1].copy()
            with np.errstate(all="ignore"):
                state.line(line)
            self._behind.append(_Kept(state))
        assert self._behind[-1].copy().verdict().ok
        # What is refused of a forgery is what was forged.
        assert self._sealed(self.documents()) == self.honest

    def documents(self) -> list[Document]:
        """The records of the honest transcript, anew each time."""
        return documents_of(self.honest)

    def forged(self, documents: Sequence[Document]) -> Verdict:
        """What a replay says of such records, every hash of which agrees."""
        return self.verdict(self._sealed(documents))

    @staticmethod
    def _sealed(documents: Sequence[Document]) -> list[bytes]:
        return resealed(documents, count=False, updates=False)

    def verdict(self, lines: Sequence[bytes]) -> Verdict:
        """What a replay says of these lines, which stand without their ends."""
        most = min(len(lines), len(self.honest))
        at = next((at for at in range(most) if lines[at] != self.honest[at]), most)
        return _verdict(self._behind[at].copy(), lines[at:])


class _Kept(pickle.Pickler):
    """A replay as it stands. What it was opened on is nobody's to change, and stays the same; functions with what they
    found before and references that hold nothing do, too.
    """

    def __init__(self, state: Replaying) -> None:
        self._opening = None if state.session is None else state.session.opening
        self._whole: list[Any] = []
        content = io.BytesIO()
        super().__init__(content)
        self.dump(state)
        self._content = content.getvalue()

    def persistent_id(self, obj: Any) -> int | None:
        if obj is None or (
            obj is not self._opening and not isinstance(obj, _HASH | _LOCK | _CACHED | FunctionType | ReferenceType)
        ):
            return None
        self._whole.append(obj)
        return len(self._whole) - 1

    def copy(self) -> Replaying:
        reader = pickle.Unpickler(io.BytesIO(self._content))
        reader.persistent_load = self._anew
        state: Replaying = reader.load()
        return state

    def _anew(self, at: int) -> Any:
        found = self._whole[at]
        if isinstance(found, _HASH):
            return found.copy()
        return threading.Lock() if isinstance(found, _LOCK) else found
