"""Transcripts, as they are shown: the records, and a trailer that follows from them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from json import JSONDecoder
from typing import Any

import orjson

from app.audit import writing
from app.curator.opening import Header
from app.privacy.ledger import Amounts
from app.services import spending
from app.services.errors import NotFound
from app.services.pages import Page
from app.services.ports import SessionRow, Store
from app.services.principals import Principal
from app.services.sessions import Sessions, find_session
from curator_client.words import words

#: How many measurements that a session starts from are read at a time.
_PINS = 64
#: Reads one value out of a longer text.
_ONE = JSONDecoder()


class Transcripts:
    """Shows transcripts.

    Args:
        store: where the records are.
        sessions: who may see which.
        log_size: the size of the smallest log that has a session up to an entry; None while there is none.
    """

    def __init__(self, store: Store, sessions: Sessions, log_size: Callable[[str, int], int | None]) -> None:
        self._store, self._sessions, self._log_size = store, sessions, log_size

    def lines(self, actor: Principal, id: str) -> Iterator[bytes]:
        """The transcript as it stands, line by line: header, entries (dense weights before their first use), trailer.

        What an auditor is shown follows from the records alone: no state is made and no cache is read.

        Raises:
            NotFound: when there is none, or it is somebody else's; before the first line.
        """
        return self._lines(self._sessions.row(actor, id))

    def recorded(self, id: str) -> Iterator[bytes] | None:
        """The same of a session, whoever's it is, for who shows nobody what it reads; None where there is none."""
        row = find_session(self._store, id)
        return None if row is None else self._lines(row)

    def entries(self, actor: Principal, id: str, after: int, most: int) -> Page:
        """The entries of a session beyond the one of this number, each in short: what was asked, in words, where the
        answer came from and what it cost; no values and no weights.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        row = self._sessions.row(actor, id)
        with self._store.read() as tx:
            page = tx.transcript_page(row.id, after, row.sequence)[:most]
            last = page[-1][0] if page else row.sequence
            measured = tx.evidence_of(row.id, after, last)
        header = Header.read(row.header)
        items = [_in_short(header, orjson.loads(line), measured.get(sequence)) for sequence, line, _ in page]
        return Page(items, str(last) if last < row.sequence else None)

    def entry(self, actor: Principal, id: str, sequence: int) -> dict[str, Any]:
        """One entry in short, with the question as it was asked and the answer as it was replied then; None for what is
        not kept: questions that are arrays or long, and replies without an idempotency key, or of sessions that were
        closed long ago.

        Raises:
            NotFound: when there is none, or the session is somebody else's.
        """
        row = self._sessions.row(actor, id)
        routes = [f"/v1/sessions/{row.id}/{name}" for name in ("queries", "queries/batch", "sql")]
        with self._store.read() as tx:
            page = tx.transcript_page(row.id, sequence - 1, sequence) if 0 < sequence <= row.sequence else []
            measured = tx.evidence_of(row.id, sequence - 1, sequence)
            reply = tx.reply_telling(row.owner, routes, sequence)
        if not page:
            raise NotFound("the session has no such entry")
        line = orjson.loads(page[0][1])
        return {
            **_in_short(Header.read(row.header), line, measured.get(sequence)),
            "question": line.get("asked"),
            "answer": None if reply is None else answer_in(reply, sequence),
        }

    def _lines(self, row: SessionRow) -> Iterator[bytes]:
        yield row.header + b"\n"
        pins = Header.read(row.header).pins
        if pins is not None:
            names = [*pins.known, *pins.made]
            for start in range(0, len(names), _PINS):
                page = names[start : start + _PINS]
                with self._store.read() as tx:
                    found = tx.evidence_named(row.dataset, page)
                yield from (found[name] + b"\n" for name in page)
        # The transcript ends where its row does. Entries are never changed, so pages may be read one by one. What has
        # been handed out is not kept here.
        learnt, after = writing.HypothesisDigest(Header.read(row.header).document), 0
        lines: deque[bytes] = deque()
        while after < row.sequence:
            after = self._read_page(row, after, lines, learnt)
            while lines:
                yield lines.popleft()
        yield (
            writing.trailer(
                entries=row.sequence,
                head_hash=row.head_hash,
                hypothesis_digest=learnt.hexdigest(),
                updates=row.updates_used,
                status=row.status,
                log_size=self._log_size(row.id, row.sequence),
            )
            + b"\n"
        )

    def _read_page(self, row: SessionRow, after: int, lines: deque[bytes], learnt: writing.HypothesisDigest) -> int:
        """Add a page of a transcript to some lines, and tell which entry it ends with."""
        with self._store.read() as tx:
            page = tx.transcript_page(row.id, after, row.sequence)
            measured = tx.evidence_of(row.id, after, page[-1][0])
        for sequence, line, weights in page:
            if sequence in measured:
                lines.append(measured[sequence] + b"\n")
            lines.extend(writing.weights_record(name, blob) + b"\n" for name, blob in weights)
            lines.append(line + b"\n")
            learnt.take(line)
        return page[-1][0]


def answer_in(reply: bytes, sequence: int) -> dict[str, Any] | None:
    """The answer of an entry in the reply to a question or a batch, of which nothing else is parsed: a batch may be
    tens of megabytes long. None where it is not in there.

    An answer begins with its number. Within a string of JSON no quote stands alone, so a match is never in one.
    """
    for found in re.finditer(rb'\{"sequence":%d,' % sequence, reply):
        answer: dict[str, Any] = _ONE.raw_decode(reply[found.start() :].decode())[0]
        if "entry_hash" in answer:
            return answer
    return None


def _in_short(header: Header, entry: Mapping[str, Any], measured: bytes | None) -> dict[str, Any]:
    """An entry without what it released; ``measured`` is the record of what was measured for it, if there is one."""
    asked = entry.get("asked")
    return {
        "sequence": entry["sequence"],
        "record": entry["record"],
        "words": words(asked) if isinstance(asked, dict) else None,
        "source": entry.get("source"),
        "charged_epsilon": spending.charged_epsilon(header.plan, _cost(header, entry, measured)),
        "recorded_at": entry["recorded_at"],
    }


def _cost(header: Header, entry: Mapping[str, Any], measured: bytes | None) -> Amounts | None:
    """What an entry cost, by its own record, by that of its measurement, or by a plan whose rounds all cost the same;
    None where nothing."""
    if measured is not None:
        return Amounts.read(orjson.loads(measured)["cost"])
    if entry["record"] != "forfeit" and entry.get("source") != "measurement":
        return None
    if "price" in entry:
        return Amounts.read(entry["price"])
    plan = header.document["plan"]
    return Amounts.read({"renyi": plan["cost_per_update"], "pure": plan["cost_per_update_pure"]})
