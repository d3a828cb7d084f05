"""Data sets, as they are shown: descriptors and ledgers; and their rows, as other use cases find and lock them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import structlog

from app.curator.dataset import Bought, PublicDataset
from app.declarations.naming import meant
from app.declarations.spec import NAME, parse_spec
from app.privacy.ledger import Account
from app.services import spending
from app.services.errors import Forbidden, NotFound, Unavailable
from app.services.pages import Page
from app.services.ports import DatasetRow, Holding, LedgerRow, Store, StoreHeld, Transaction
from app.services.principals import Principal

logger = structlog.get_logger(__name__)

#: What the names of made-up data sets begin with; no declared name does.
DUMMY = "~"
#: How long others of this process that work on the same data set are waited for.
QUEUE_SECONDS = 30.0


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


def find_dataset(tx: Transaction, name: str, *, lock: bool = False) -> DatasetRow:
    """The row of a data set, held where it is to be locked.

    Raises:
        NotFound: when there is none of that name.
    """
    # What could not be a name is not looked up: not every database takes every character.
    row = tx.dataset(name, lock=lock) if NAME.fullmatch(name) else None
    if row is None:
        raise NotFound(f"there is no data set {name[:64]!r}{meant(name, tx.vault_entries())}")
    return row


def grant_views(
    row: DatasetRow, holdings: Sequence[Holding], granted: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """What each of some principals may hold of a data set, by their grants, and what of that is spent, reserved and
    left.
    """
    _, account = standing(row, holdings)
    own: dict[str, list[Holding]] = {principal: [] for principal in granted}
    for each in holdings:
        if each.owner in own:
            own[each.owner].append(each)
    return [
        {
            "dataset": row.name,
            "principal": principal,
            **spending.grant_view(
                spending.account_of_owner(principal, account.budget, own[principal]),
                None if cap is None else Decimal(cap),
                account,
            ),
        }
        for principal, cap in granted.items()
    ]


def grant_view(row: DatasetRow, holdings: Sequence[Holding], principal: str, granted: str | None) -> dict[str, Any]:
    """The same of one."""
    (view,) = grant_views(row, holdings, {principal: granted})
    return view


def dataset_view(
    row: DatasetRow, holdings: Sequence[Holding], grant: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The public descriptor of a data set, with the state of its budget, and of the grant of whoever looks."""
    dataset = public_dataset(row)
    view, account = dataset.descriptor(), spending.account_of(row, dataset.budget, holdings)
    view["grant"] = grant
    view["budget"] = spending.budget_view(account)
    view["created_at"] = row.created_at
    view["commitment"] = row.commitment
    view["status"] = "registered" if row.retired_at is None else "retired"
    return view


def check_open(row: DatasetRow, **extra: object) -> None:
    """Refuse who has no grant, where access is by grant; the refusal tells also what is ``extra``."""
    if row.spec.get("access", "open") == "granted":
        raise Forbidden("this data set is open by grant only: ask an admin for one", **extra)


def file_names(store: Store) -> list[str]:
    """The private files that rows name."""
    with store.read() as tx:
        return [entry["file_name"] for entry in tx.vault_entries().values()]


def connections_in_use(store: Store) -> set[str]:
    """The connections that data sets are asked through."""
    with store.read() as tx:
        return {entry["connection"] for entry in tx.vault_entries().values() if "connection" in entry}


class Datasets:
    """Shows data sets, and finds and locks them for other use cases."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Of each data set one request waits for the row, at most: each that waits takes a connection and a thread.
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        #: Data sets whose row somebody else held when it was last asked for.
        self._kept: set[str] = set()

    def describe(self, name: str, actor: Principal | None = None) -> dict[str, Any]:
        """The public descriptor with the state of the budget, and the grant of whoever looks, if he has one.

        Raises:
            NotFound: when there is none of that name.
        """
        with self._store.read() as tx:
            return _seen(tx, find_dataset(tx, name), actor)

    def list(self, after: str, most: int, actor: Principal | None = None) -> Page:
        """The same by name, of data sets beyond ``after``."""
        with self._store.read() as tx:
            rows, others = tx.datasets_page(after, most)
            views = [_seen(tx, row, actor) for row in rows]
        return Page(views, rows[-1].name if others else None)

    def names(self, *, retired: bool = False) -> Sequence[str]:
        """The names of the registered data sets, or of those that are retired, in their order."""
        with self._store.read() as tx:
            return tx.dataset_names(retired=retired)

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
            row = find_dataset(tx, name)
            granted = actor.role != "analyst" or tx.grant(name, actor.name) is not None
        if not granted:
            check_open(row)
        return row

    def note(self, actor: Principal, name: str) -> str | None:
        """What plans are told with to an analyst who could open none of them, for want of a grant; else None.

        Raises:
            NotFound: when there is no data set of that name.
        """
        try:
            self.seen(actor, name)
        except Forbidden:
            return "you have no grant on this data set, so you cannot open what is planned here: ask an admin for one"
        return None

    def ledger(self, actor: Principal, name: str, after: int, most: int) -> tuple[dict[str, Any], Page]:
        """Where the budget stands, and movements of it numbered beyond ``after``; exact amounts at the ledger's order.

        Both are of one moment: what a budget stands at is told by all its movements, on whichever page they are.

        Raises:
            NotFound: when there is none of that name.
        """
        actor.require("admin", "auditor")
        with self._store.read() as tx:
            row = find_dataset(tx, name)
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

    def registered(self, name: str) -> DatasetRow:
        """A data set that sessions may be opened on.

        Raises:
            NotFound: when there is none of that name, or it is retired.
        """
        with self._store.read() as tx:
            row = find_dataset(tx, name)
        if row.retired_at is not None:
            raise NotFound(f"the data set {name!r} is retired")
        return row

    @contextmanager
    def locked(self, name: str) -> Iterator[tuple[Transaction, DatasetRow]]:
        """A transaction that holds the row of a data set, and the row.

        While somebody else keeps it, one request at a time finds out whether that is still so.

        Raises:
            NotFound: when there is none of that name.
            Unavailable: when it cannot be had now.
        """
        with self._store.read() as tx:
            find_dataset(tx, name)
        turn = self._turns[name]
        waited = not turn.acquire(blocking=False)
        if waited and (name in self._kept or not turn.acquire(timeout=QUEUE_SECONDS)):
            raise _kept_by_others()
        try:
            if waited and name in self._kept:
                raise _kept_by_others()
            with self._store.write() as tx:
                try:
                    row = find_dataset(tx, name, lock=True)
                except StoreHeld:
                    if name not in self._kept:
                        logger.warning("another process holds the row of a data set", dataset=name)
                    self._kept.add(name)
                    raise _kept_by_others() from None
                self._kept.discard(name)
                yield tx, row
        finally:
            turn.release()


def _seen(tx: Transaction, row: DatasetRow, actor: Principal | None) -> dict[str, Any]:
    holdings = tx.holdings(row.name)
    granted = None if actor is None else tx.grant(row.name, actor.name)
    if actor is None or granted is None:
        return dataset_view(row, holdings)
    return dataset_view(row, holdings, grant_view(row, holdings, actor.name, granted))


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
