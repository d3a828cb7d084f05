"""Data sets: registration, descriptors, grants, ledger, retirement."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
import structlog

from app.audit.commitment import ALGORITHM, KEY_BYTES, commitment
from app.audit.log import registration_record, retirement_record, revelation_record
from app.curator.dataset import Bought, PublicDataset
from app.declarations.errors import CuratorError, InvalidDataset, InvalidRequest
from app.declarations.naming import meant
from app.declarations.spec import NAME, Spec, parse_spec, written
from app.privacy.errors import InvalidBudget
from app.privacy.ledger import Account, Amounts, Budget
from app.services import spending
from app.services.dummies import drawn, dummy_table, encoded, mass_of, readable
from app.services.errors import Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from app.services.pages import Page
from app.services.ports import (
    Clock,
    DatasetRow,
    Holding,
    LedgerRow,
    PrivateStore,
    Store,
    StoreConflict,
    StoreHeld,
    Transaction,
    Upload,
)
from app.services.principals import Principal
from app.spaces.factory import space_of

log = structlog.get_logger(__name__)

#: Budgets from which on a guarantee says little: an answer may be e^10 times as likely with a record as without it.
LARGE_EPSILON = 10
#: What the names of made-up data sets begin with; no declared name does. So many are kept at a time, so many of them
#: for one principal, and each for so long.
DUMMY, MOST_DUMMIES, DUMMIES_EACH, DUMMY_AGE = "~", 64, 16, timedelta(hours=24)
#: How many records they have where the number is not public, and at most.
DUMMY_RECORDS, MOST_DRAWN = 10_000, 1 << 20
#: Data sets that a warning names, at most.
MOST_NAMED = 8
#: How long others of this process that work on the same data set are waited for.
QUEUE_SECONDS = 30.0
#: How long a start waits for the sessions of a retired data set to close.
RECOVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Dummy:
    """Made-up records and the data set that they will be, whose file is not written yet."""

    row: DatasetRow
    table: pa.Table = field(repr=False)


def is_dummy(row: DatasetRow) -> bool:
    """Whether a data set is made up: its name is none that could be declared."""
    return row.name.startswith(DUMMY)


def public_dataset(row: DatasetRow) -> PublicDataset:
    """The public facts of a stored data set."""
    records = row.records
    return PublicDataset(
        parse_spec(row.spec),
        None if records is None else int(records) if records == int(records) else records,
        {fact: Bought.of(bought) for fact, bought in row.bought.items()},
        row.race_sessions,
    )


def standing(row: DatasetRow, holdings: Sequence[Holding]) -> tuple[PublicDataset, Account]:
    """The public facts of a stored data set at the moment of these holdings, and where its budget stands then."""
    dataset = public_dataset(row)
    account = spending.account_of(row, dataset.budget, holdings)
    return replace(dataset, left=account.whole), account


class Datasets:
    """Registers data sets and tells what is public of them."""

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        clock: Clock,
        *,
        close_session: Callable[[str, float | None], None],
    ) -> None:
        self._store, self._private, self._clock = store, private, clock
        self._close_session = close_session
        #: Of each data set one request waits for the row, at most: each that waits takes a connection and a thread.
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        #: Data sets whose row somebody else held when it was last asked for.
        self._kept: set[str] = set()

    def register(self, actor: Principal, declared: Any, filename: str, path: Path) -> dict[str, Any]:
        """Take a declared data set and its file; all of it or nothing.

        Returns its descriptor, and beside it ``warnings``, what the registration does not keep from, but who registers
        should know, and the ``report`` of the file. Both may depend on the private numbers and are for him alone:
        nothing keeps or logs them, and no descriptor has them.

        Raises:
            InvalidDataset: naming what to change in the declaration or the file.
            Conflict: when the name was ever in use.
            Unavailable: when the private file cannot be written.
        """
        actor.require("admin")
        spec = parse_spec(declared)
        for refusal in self._refusals(spec):
            raise refusal
        try:
            row, told = self._keep(spec, filename, path)
        except CuratorError:
            raise
        except Exception:
            # Whether the commit happened is in doubt: the file goes if no row names it.
            self._sweep()
            raise
        return {**self._view(row, []), **told}

    def examine(
        self, spec: Spec, filename: str, path: Path
    ) -> tuple[list[CuratorError], list[str], Mapping[str, Any] | None]:
        """Every problem that a registration of this would meet, where it tells the first, and what it would warn of;
        nothing is kept.

        Returns:
            The problems; the warnings; and the report of what would become of the file's records, if it is known.
        """
        problems = [*self._refusals(spec)]
        try:
            upload = self._private.read_upload(spec, filename, path)
        except CuratorError as error:
            return [*problems, error], [], None
        # What to warn of is computed from a declaration that holds, whatever its name.
        warnings = self._warnings(upload) if all(isinstance(problem, Conflict) for problem in problems) else []
        return problems, warnings, upload.report

    def _refusals(self, spec: Spec) -> Iterator[CuratorError]:
        """Why a declaration cannot be registered, whatever its file holds."""
        try:
            PublicDataset(spec).budget  # noqa: B018 - computed, and kept for all that are to come
        except InvalidBudget as error:
            yield InvalidDataset(f"budget: {error}")
        try:
            space_of(spec)
        except CuratorError as error:  # it cannot be addressed
            yield error
        with self._store.read() as tx:
            if tx.dataset(spec.name) is not None:
                yield self._in_use(spec.name)

    def _keep(self, spec: Spec, filename: str, path: Path) -> tuple[DatasetRow, dict[str, Any]]:
        """Write file and row, the row last; and what to tell who registers."""
        now = self._clock()  # before anything private is looked at
        with self._private.registration():
            upload = self._private.read_upload(spec, filename, path)
            told = {"warnings": self._warnings(upload), "report": upload.report}
            key = secrets.token_bytes(KEY_BYTES)
            committed = commitment(key, upload.file)
            entry = self._private.put(spec.name, upload, key)
            row = DatasetRow(
                name=spec.name,
                spec=written(upload.spec),
                records=upload.mass if spec.mass_public else None,
                bought={},
                vault_entry=entry,
                created_at=now,
                commitment=committed,
            )
            try:
                with self._store.write() as tx:
                    self._check_free(tx, spec.name)
                    tx.add_dataset(row)
                    tx.add_event(
                        registration_record(
                            declared=row.spec, records=row.records, commitment=committed, recorded_at=now
                        )
                    )
                    tx.commit()
            except (StoreConflict, Conflict):
                self._private.destroy(entry)
                raise self._in_use(spec.name) from None
        return row, told

    def _warnings(self, upload: Upload) -> list[str]:
        """Warnings for who registers, one sentence each."""
        found, budget, space = [], upload.spec.budget, space_of(upload.spec)
        with self._store.read() as tx:
            rows = [row for row in tx.datasets() if not is_dummy(row)]
        same = [row.name for row in rows if self._private.alike(upload, row.vault_entry)]
        if same:
            named = ", ".join(same[:MOST_NAMED])
            more = f" and {len(same) - MOST_NAMED} more" if len(same) > MOST_NAMED else ""
            found.append(
                f"the same file, or one of the same numbers, was registered as {named}{more}: for whoever is in "
                "several data sets their epsilons and deltas add up, those of retired ones too"
            )
        report = upload.report
        if report is not None and 2 * report["dropped"] > report["read"]:
            found.append(
                f"{report['dropped']:,} of {report['read']:,} records were dropped: are the declared values those of "
                "the file?"
            )
        if budget.epsilon > LARGE_EPSILON:
            found.append(
                f"epsilon {budget.epsilon} is beyond {LARGE_EPSILON}: it lets an answer be e^{budget.epsilon} times as "
                "likely with somebody's record as without it, which protects hardly anybody"
            )
        # A matrix has as many records as cells; else they are what is counted.
        records = space.size if upload.spec.kind == "matrix" else upload.mass
        if records * float(budget.delta) > 1:
            found.append(
                f"delta {budget.delta} is above one over the number of records: to publish one record whole, chosen at "
                "random, would keep such a guarantee. Declare a delta far below"
            )
        return found

    def _sweep(self) -> None:
        """Remove private files that nobody names, as far as that can be known now; else the next start does it."""
        try:
            self._private.sweep(self._named)
        except Exception as error:  # noqa: BLE001 - the request has failed already, of something else
            log.warning("private files could not be swept", error=type(error).__name__)

    def _named(self) -> list[str]:
        with self._store.read() as tx:
            return [entry["file_name"] for entry in tx.vault_entries().values()]

    def _check_free(self, tx: Transaction, name: str) -> None:
        if tx.dataset(name) is not None:
            raise self._in_use(name)

    @staticmethod
    def _in_use(name: str) -> Conflict:
        return Conflict(f"the name {name!r} is or was in use: names are never reused")

    def _row(self, tx: Transaction, name: str, *, lock: bool = False) -> DatasetRow:
        # What could not be a name is not looked up: not every database takes every character.
        row = tx.dataset(name, lock=lock) if NAME.fullmatch(name) else None
        if row is None:
            raise NotFound(f"there is no data set {name[:64]!r}{meant(name, tx.vault_entries())}")
        return row

    @staticmethod
    def _view(row: DatasetRow, holdings: list[Holding]) -> dict[str, Any]:
        dataset = public_dataset(row)
        view, account = dataset.descriptor(), spending.account_of(row, dataset.budget, holdings)
        view["budget"] = spending.budget_view(account)
        view["created_at"] = row.created_at
        view["commitment"] = row.commitment
        view["status"] = "registered" if row.retired_at is None else "retired"
        return view

    def describe(self, name: str) -> dict[str, Any]:
        """The public descriptor with the state of the budget.

        Raises:
            NotFound: when there is none of that name.
        """
        with self._store.read() as tx:
            return self._view(self._row(tx, name), tx.holdings(name))

    def list(self, after: str, most: int) -> Page:
        """Descriptors by name, of data sets beyond ``after``."""
        with self._store.read() as tx:
            rows, others = tx.datasets_page(after, most)
            views = [self._view(row, tx.holdings(row.name)) for row in rows]
        return Page(views, rows[-1].name if others else None)

    def public(self, name: str) -> PublicDataset:
        """The facts of a data set that plans may read.

        Raises:
            NotFound: when there is none of that name, or it is retired.
        """
        row = self.registered(name)
        with self._store.read() as tx:
            return standing(row, tx.holdings(name))[0]

    def seen(self, actor: Principal, name: str) -> DatasetRow:
        """A data set whose measurements and dummy records somebody may see: all may, but where access is by grant.

        Raises:
            NotFound: when there is none of that name.
            Forbidden: when access is by grant, and an analyst has none.
        """
        with self._store.read() as tx:
            row = self._row(tx, name)
            granted = actor.role != "analyst" or tx.grant(name, actor.name) is not None
        if not granted:
            _check_open(row)
        return row

    def dummy(self, actor: Principal, name: str, records: int, seed: int) -> pa.Table:
        """Made-up records like those of a data set, from its declaration alone.

        Raises:
            NotFound: when there is none of that name.
            Forbidden: when access is by grant, and an analyst has none.
            InvalidRequest: for a number of records or a seed out of range.
        """
        return dummy_table(parse_spec(self.seen(actor, name).spec), records, seed)

    def dummy_of(self, actor: Principal, row: DatasetRow) -> Dummy:
        """Made-up records in place of a data set's, as many as are public, with the whole budget as it was declared.

        Raises:
            Forbidden: when access is by grant, and an analyst has none.
            TooManyRequests: when as many of them are kept as may be.
        """
        spec = parse_spec(self.seen(actor, row.name).spec)
        with self._store.read() as tx:
            self.check_dummies(tx, actor)
        count = DUMMY_RECORDS if row.records is None else int(row.records)
        table = drawn(spec, max(1, min(count, MOST_DRAWN)), 0)
        made = DatasetRow(
            name=DUMMY + secrets.token_hex(16),
            spec=row.spec,
            records=None if row.records is None else mass_of(spec, table),
            bought={},
            vault_entry={},
            created_at=self._clock(),
        )
        return Dummy(made, table)

    def check_dummies(self, tx: Transaction, actor: Principal, opening: str | None = None) -> None:
        """Refuse to keep one more beside those that are kept; ``opening`` names the one for which that is asked.

        Raises:
            TooManyRequests: when as many of them are kept as may be, in all or for one principal.
        """
        kept = [name for name in tx.vault_entries() if name.startswith(DUMMY) and name != opening]
        own = sum(any(holding.owner == actor.name for holding in tx.holdings(name)) for name in kept)
        if own >= DUMMIES_EACH:
            raise TooManyRequests(f"you have {DUMMIES_EACH} sessions on made-up records open: close one first")
        if len(kept) >= MOST_DUMMIES:
            raise TooManyRequests(
                f"{MOST_DUMMIES} sessions on made-up records are open: send again when others have closed some"
            )

    def keep_dummy(self, dummy: Dummy) -> DatasetRow:
        """Keep made-up records as a data set of their own, that nobody can name and no list shows.

        Raises:
            Unavailable: when the file cannot be written.
        """
        with self._private.registration(), NamedTemporaryFile(suffix=".parquet") as file:
            file.write(encoded(dummy.table, "parquet"))
            file.flush()
            upload = self._private.read_upload(readable(parse_spec(dummy.row.spec)), file.name, Path(file.name))
            row = replace(dummy.row, vault_entry=self._private.put(dummy.row.name.removeprefix(DUMMY), upload))
            try:
                with self._store.write() as tx:
                    tx.add_dataset(row)
                    tx.commit()
            except BaseException:
                self._private.destroy(row.vault_entry)
                raise
        return row

    def end_dummy(self, row: DatasetRow) -> None:
        """Destroy made-up records."""
        with self._store.write() as tx:
            tx.retire_dataset(row.name, self._clock())
            tx.commit()
        self._private.destroy(row.vault_entry)

    def end_old_dummies(self) -> None:
        """Close sessions on made-up records that are older than :data:`DUMMY_AGE`, and destroy the records; but for one
        whose turn to close does not come.
        """
        before = datetime.fromisoformat(self._clock()) - DUMMY_AGE
        with self._store.read() as tx:
            kept = [row for row in tx.datasets() if is_dummy(row) and row.retired_at is None]
        for row in kept:
            if datetime.fromisoformat(row.created_at) < before:
                with self._store.read() as tx:
                    left = tx.open_in(row.name)
                try:
                    for session in left:
                        self._close_session(session, None)
                    self.end_dummy(row)
                except CuratorError as error:
                    log.warning("an old session on made-up records cannot be ended", error=type(error).__name__)

    def registered(self, name: str) -> DatasetRow:
        """A data set that sessions may be opened on.

        Raises:
            NotFound: when there is none of that name, or it is retired.
        """
        with self._store.read() as tx:
            row = self._row(tx, name)
        if row.retired_at is not None:
            raise NotFound(f"the data set {name!r} is retired")
        return row

    @contextmanager
    def holding(self, name: str) -> Iterator[tuple[Transaction, DatasetRow]]:
        """A transaction that holds the row of a data set, and the row.

        While somebody else keeps it, one request at a time finds out whether that is still so.

        Raises:
            NotFound: when there is none of that name.
            Unavailable: when it cannot be had now.
        """
        with self._store.read() as tx:
            self._row(tx, name)
        turn = self._turns[name]
        waited = not turn.acquire(blocking=False)
        if waited and (name in self._kept or not turn.acquire(timeout=QUEUE_SECONDS)):
            raise _kept_by_others()
        try:
            if waited and name in self._kept:
                raise _kept_by_others()
            with self._store.write() as tx:
                try:
                    row = self._row(tx, name, lock=True)
                except StoreHeld:
                    if name not in self._kept:
                        log.warning("another process holds the row of a data set", dataset=name)
                    self._kept.add(name)
                    raise _kept_by_others() from None
                self._kept.discard(name)
                yield tx, row
        finally:
            turn.release()

    def grant(self, actor: Principal, name: str, principal: str, epsilon: Any) -> dict[str, Any]:
        """Set an analyst's cap: the most epsilon of this data set that his sessions may hold and spend.

        Raises:
            NotFound: for an unknown data set or principal.
            InvalidRequest: for an epsilon that is no number from 0 to the data set's.
        """
        actor.require("admin")
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
            raise InvalidRequest("epsilon must be a number")
        cap = Decimal(repr(epsilon))
        with self.holding(name) as (tx, row):
            who = tx.principal(principal) if NAME.fullmatch(principal) else None
            if who is None or who.revoked_at is not None:
                raise NotFound(f"no principal {principal[:64]!r} holds a key")
            total = Decimal(str(row.spec["budget"]["epsilon"]))
            if not cap.is_finite() or not 0 <= cap <= total:
                raise InvalidRequest(f"epsilon must lie between 0 and the data set's {total}")
            tx.set_grant(name, principal, str(cap))
            tx.commit()
        return {"dataset": name, "principal": principal, "epsilon": float(cap)}

    def ledger(self, actor: Principal, name: str, after: int, most: int) -> tuple[dict[str, Any], Page]:
        """Where the budget stands, and movements of it numbered beyond ``after``; exact amounts at the ledger's order.

        Both are of one moment: what a budget stands at is told by all its movements, on whichever page they are.

        Raises:
            NotFound: when there is none of that name.
        """
        actor.require("admin", "auditor")
        with self._store.read() as tx:
            row = self._row(tx, name)
            _, account = standing(row, tx.holdings(name))
            movements, others = tx.ledger_page(name, after, most)
        view = {
            "dataset": name,
            **spending.account_view(account),
            "epsilon": spending.budget_view(account),
        }
        page = Page(
            [_movement(movement, account) for _, movement in movements], str(movements[-1][0]) if others else None
        )
        return view, page

    def reveal(self, actor: Principal, name: str) -> dict[str, Any]:
        """The commitment to a data set's private file and the key that opens it.

        That an admin was given it is recorded before he is, once, however often he asks.

        Raises:
            NotFound: when there is none of that name.
            Conflict: when the key was destroyed with the file, or there never was one.
            Unavailable: when the file cannot be read, or the data set not be had now.
        """
        actor.require("admin")
        now = self._clock()  # before anything private is looked at
        with self._store.read() as tx:
            row = self._row(tx, name)
        _check_committed(row)
        # Before the row is held: others would wait for as long as the file takes.
        try:
            key = self._private.commitment_key(row.vault_entry)
        except Unavailable:
            with self._store.read() as tx:
                _check_committed(self._row(tx, name))
            raise
        if key is None:
            raise Unavailable(f"the private file of {name!r} has no key: an operator must put it back from a backup")
        with self.holding(name) as (tx, row):
            _check_committed(row)
            if actor.name not in row.revealed_to:
                tx.set_revealed_to(name, (*row.revealed_to, actor.name))
                tx.add_event(revelation_record(name=name, by=actor.name, recorded_at=now))
                tx.commit()
        return {"dataset": name, "algorithm": ALGORITHM, "commitment": row.commitment, "key": key.hex()}

    def retire(self, actor: Principal, name: str) -> dict[str, Any]:
        """Close every session of a data set and destroy its private file; public records stay.

        Raises:
            NotFound: when there is none of that name, or it is retired already.
            Unavailable: when it cannot be retired now, or a session of it has not closed yet.
        """
        actor.require("admin")
        with self.holding(name) as (tx, row):
            if row.retired_at is None:
                # Whatever clocks did: an audit refuses what was opened later than this.
                at = max(self._clock(), tx.last_opened_in(name))
                tx.retire_dataset(name, at)
                tx.add_event(retirement_record(name=name, recorded_at=at))
                tx.commit()
        # From here on no session can open. Those that are open end in their own turn, so that a round that
        # has begun is recorded; should the process die first, the next start finishes the work. Should it fail,
        # whoever asks again does.
        self.finish_retirement(row)
        if row.retired_at is not None:
            raise NotFound(f"the data set {name!r} is retired already")
        return self.describe(name)

    def finish_retirement(self, row: DatasetRow, seconds: float | None = None) -> None:
        """Close the sessions that a retired data set still has and destroy its private file.

        Raises:
            Unavailable: when a session has not closed in so many seconds, where named, or those of any request.
        """
        with self._store.read() as tx:
            left = [*tx.open_in(row.name), *tx.releases_in(row.name)]
        for session in dict.fromkeys(left):
            self._close_session(session, seconds)
        self._private.destroy(row.vault_entry)

    def recover(self) -> None:
        """Recover after a crash: finish retirements, and remove private files nobody names; as far as nobody else keeps
        it from that.
        """
        with self._store.read() as tx:
            rows = tx.datasets()
            left = [row for row in rows if is_dummy(row) and row.retired_at is None and not tx.open_in(row.name)]
        for row in left:
            self.end_dummy(row)
        for row in (row for row in rows if row.retired_at is not None):
            try:
                self.finish_retirement(row, RECOVERY_SECONDS)
            except Unavailable:
                log.error("a data set could not be retired to the end: retire it again", dataset=row.name)
        try:
            self._private.sweep(self._named)
        except StoreHeld:
            log.warning("private files could not be swept: another process holds data sets")

    def allowed(
        self,
        tx: Transaction,
        row: DatasetRow,
        actor: Principal,
        holdings: Sequence[Holding],
        budget: Budget,
        holds: Amounts,
        epsilon: Decimal,
    ) -> None:
        """Refuse amounts, asked for as this epsilon, that the actor may not hold: no access, or past his cap.

        Raises:
            Forbidden: when access is by grant and there is none.
            BudgetExhausted: when they pass the cap.
        """
        if is_dummy(row):
            # Who may see the data set was asked before; made-up records have no cap.
            return
        granted = tx.grant(row.name, actor.name)
        if granted is None:
            if actor.role != "admin":
                _check_open(row)
            return
        spending.check_cap(spending.account_of_owner(actor.name, budget, holdings), holds, Decimal(granted), epsilon)


def _check_committed(row: DatasetRow) -> None:
    """Refuse where there is no key any more, or never was."""
    if row.commitment is None:
        raise Conflict(f"the data set {row.name!r} has no commitment: it was registered before there were any")
    if row.retired_at is not None:
        raise Conflict(
            f"the data set {row.name!r} is retired: the key of its commitment was destroyed with its private file"
        )


def _check_open(row: DatasetRow) -> None:
    """Refuse who has no grant, where access is by grant."""
    if row.spec.get("access", "open") == "granted":
        raise Forbidden("this data set is open by grant only: ask an admin for one")


def _kept_by_others() -> Unavailable:
    return Unavailable("another process holds the data set: send the request again a little later")


def _movement(row: LedgerRow, account: Account) -> dict[str, Any]:
    return {
        "session": row.session,
        "kind": row.kind,
        "epsilon": spending.moved_epsilon(row, account),
        "amount": row.amount,
        "pure": row.pure,
        "sequence": row.sequence,
        "recorded_at": row.recorded_at,
    }
