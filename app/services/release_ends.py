"""The end of a release that comes to nothing, and what becomes of its share.

Until the step ``measuring`` is committed nothing was computed from the private data: the share returns. From then on
nothing returns, whoever ends the release and whyever: what may have been drawn and was not recorded is charged, and the
transcript says so by a *forfeit*, as of a round that could not be recorded (docs/privacy.md, 11.1). What is charged is
the whole share, which the price of the plan's measurements is part of.
"""

from __future__ import annotations

from dataclasses import replace

from app.audit import writing
from app.services import spending
from app.services.ports import EntryRow, ReleaseRow, ReleaseStatus, SessionRow, Transaction


def end_release(tx: Transaction, row: ReleaseRow, status: ReleaseStatus, now: str, problem: bytes | None) -> bool:
    """End a release, and its session with it, in the caller's transaction; whether it still was as ``row`` says."""
    session = tx.lock_sessions([row.id])[row.id]
    now = max(now, session.opened_at)  # a clock may have been set back
    if not tx.move_release(replace(row, status=status, worker=None, finished_at=now, problem=problem), row):
        return False
    if session.status == "open":
        if row.step == "queued":
            closed, returned = spending.end(session, now)
            tx.move_sessions([closed])
            tx.move_ledger([returned])
        else:
            _forfeit(tx, session, now)
    return True


def _forfeit(tx: Transaction, session: SessionRow, now: str) -> None:
    """Charge all that a session holds for what was not recorded of it, and close it."""
    price, sequence = spending.held(session), session.sequence + 1
    sealed = writing.forfeit_entry(
        sequence=sequence, recorded_at=now, previous_hash=session.head_hash, price=price.document()
    )
    share, charged = spending.charge(session, price, sequence, now)
    after = session.after(sequence, session.queries_asked, session.updates_used + 1, share, sealed.entry_hash)
    closed, returned = spending.end(after, now)
    tx.append([EntryRow(session.id, sequence, "forfeit", None, None, None, sealed.line)], [])
    tx.move_sessions([closed])
    tx.move_ledger([charged, returned])
