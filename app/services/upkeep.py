"""The operator's work on a service that stands still: other keys for its private files, and the end of a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import orjson

from app.audit.log import principal_record, retirement_record
from app.declarations.errors import CuratorError
from app.services import spending
from app.services.datasets import file_names, is_dummy, standing
from app.services.errors import ReleaseFailed, Unavailable
from app.services.ports import RELEASE_WORKED, Clock, Store, Transaction
from app.services.principals import OPERATOR
from app.services.release_ends import end_release

#: A time after all that are written.
_NEVER = "9999-12-31T23:59:59Z"
#: Sessions that one statement names: databases take only so many parameters.
_AT_A_TIME = 500


class Resealer(Protocol):
    """Private files on their way from one vault key to another."""

    def registration(self) -> AbstractContextManager[None]:
        """Held from before :meth:`resealed` until the row that names the new file is committed."""

    def resealed(self, name: str, entry: dict[str, str]) -> dict[str, str] | None:
        """A copy of a file under the new key, durable; None where the file is under it already.

        Raises:
            Unavailable: when neither key opens it.
        """

    def destroy(self, entry: dict[str, str]) -> None:
        """Remove a file for good."""

    def sweep(self, known: Callable[[], Iterable[str]]) -> None:
        """Remove files that no committed row names."""


def reseal(store: Store, files: Resealer) -> tuple[int, list[str]]:
    """Put every private file under the new key; how many there were to do, and the data sets that neither key opens.

    Each data set is one step: a new file, then the row that names it, then the old file's end. Wherever this stops,
    the row names a file that one of the two keys opens, and doing it again goes on from there.
    """
    with store.read() as tx:
        rows = [row for row in tx.datasets() if row.retired_at is None]
    done, lost = 0, []
    for row in rows:
        with files.registration():
            try:
                entry = files.resealed(row.name, row.vault_entry)
            except Unavailable:
                lost.append(row.name)
                continue
            if entry is None:
                continue
            with store.write() as tx:
                tx.set_vault_entry(row.name, entry)
                tx.commit()
        files.destroy(row.vault_entry)
        done += 1
    files.sweep(partial(file_names, store))
    return done, lost


def forfeit(store: Store, clock: Clock, render: Callable[[CuratorError], dict[str, Any]]) -> None:
    """Take what is stored for an old copy, of which nobody knows what was released since; one transaction.

    Whatever was, the server that went on kept within the budgets. So all of every budget counts as spent: open
    sessions are closed with the whole of their reservations charged, what was left of a data set is charged to the
    data set itself, and the data sets are retired. Releases for which nothing was recorded have failed; the next start
    ends the others, as of any data set that is retired. Keys may have been revoked since: all but the operator's
    are. ``render`` makes problem documents of refusals.
    """
    read = clock()
    failed = orjson.dumps(
        render(ReleaseFailed("the server went back to an old copy: all of the budget counts as spent"))
    )
    with store.write() as tx:
        for dataset in tx.datasets():
            # Whatever clocks did: an audit refuses what was opened later than a retirement, or forfeited before it.
            now = max(read, tx.last_opened_in(dataset.name), dataset.retired_at or "")
            left_open = tx.open_in(dataset.name)
            for start in range(0, len(left_open), _AT_A_TIME):
                rows = tx.lock_sessions(left_open[start : start + _AT_A_TIME]).values()
                movements = [spending.forfeit(row, now) for row in rows]
                tx.move_sessions([closed for closed, _ in movements])
                tx.move_ledger([movement for _, movement in movements])
                for row in rows:
                    _end_release(tx, row.id, now, failed)
            if dataset.retired_at is None:
                _, account = standing(dataset, tx.passed(dataset.name))
                lost, movement = spending.forfeit_rest(dataset, account, now)
                tx.forfeit_dataset(lost)
                tx.move_ledger([movement])
                tx.retire_dataset(dataset.name, now)
                if not is_dummy(dataset):
                    tx.add_event(retirement_record(name=dataset.name, recorded_at=now))
        for principal in tx.principals():
            if principal.name != OPERATOR and principal.revoked_at is None:
                tx.revoke_principal(principal.name, read)
                tx.add_event(
                    principal_record(event="revoked", name=principal.name, role=principal.role, recorded_at=read)
                )
        # All of them: whoever logged out since would be logged in again.
        tx.remove_old_logins(_NEVER, _NEVER)
        tx.commit()


def _end_release(tx: Transaction, id: str, now: str, problem: bytes) -> None:
    """End the release of a session, if it is of one."""
    row = tx.release(id)
    if row is not None and row.status in RELEASE_WORKED:
        end_release(tx, row, "failed", now, problem)
