"""The books of data sets, replayed from the movements of a log; no input or output of its own.

A *movement* is a line of a ledger: a session reserves its share of a data set, buys what it needs at its opening, is
charged, and returns what it did not use or forfeits it. :class:`Books` goes through the movements of all data sets in
their order, with exact amounts, by these rules:

1. Numbers of movements grow. A movement is of a data set that was registered.
2. A session's first movement is its *reserve*, behind its header in the log: of the header's data set, at the header's
   time, of what the header's plan holds. Where something is bought or measured at the opening, the *purchase* comes
   next, and nowhere else.
3. The header describes the data set as it was registered, with the facts that were bought and the races that were held
   before; what it says was left of the budget is what was, and its plan counts at the order of the data set's ledger.
4. A *charge* is no more than what the session still holds, and none is for an earlier entry than the one before it, or
   for the same.
5. A *return* is what the session still holds, to the last digit, and the session's last movement. So is a *forfeit*.
   Where the calibration is exact nothing returns: the last movement charges what is left.
   No movement but a forfeit, which an operator makes by whatever clock, is dated before the session's last one.
6. After every movement a data set's reserved and spent together keep within the budget that was declared, or within
   its epsilon where all noise was ever pure (docs/privacy.md, 8.1).
7. A *forfeit* is of a data set that was retired by then. One of no session is what is left of the whole data set.
   Behind a forfeit nothing is opened on its data set.
8. Nothing is opened on a data set later than its retirement.

What a session was charged for is told by its transcript. :class:`Tally` holds its movements against that, one by one:

9. The purchase is what the plan bought, or what was measured at the opening; each entry that cost something has one
   charge, of its price, with its number and its time, and no other entry has one. A release is charged once for all.
10. The last movement is there when the session is closed, and has the number of its last entry.

A transcript may go further than a log that was fetched before it: movements that are missing at the end are counted,
not refused. They are within what the session reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, Self

from app.audit.failures import Malformed, taking_apart
from app.curator.dataset import Bought, PublicDataset, check_records
from app.curator.opening import Header
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT
from app.privacy.ledger import Account, Amounts, Share
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed

Kind = Literal["reserve", "purchase", "charge", "return", "forfeit"]
_KINDS = frozenset({"reserve", "purchase", "charge", "return", "forfeit"})
#: Amounts, whose digits before the point tell no more than 28, are not longer than this.
_MOST_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement of a data set's ledger; ``session`` is None of what the data set lost by itself."""

    number: int
    dataset: str
    session: str | None
    kind: str
    amounts: Amounts
    sequence: int | None
    recorded_at: str

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """From its line, parsed.

        Raises:
            Unfollowed: when it is none.
        """
        number = record.get("number")
        known = number if type(number) is int else None
        try:
            with taking_apart():
                session, sequence = record["session"], record["sequence"]
                amount, pure = record["amount"], record["pure"]
                if type(number) is not int or not isinstance(session, str | None) or record["kind"] not in _KINDS:
                    raise TypeError("no movement")
                if type(sequence) not in (int, type(None)) or not isinstance(record["dataset"], str):
                    raise TypeError("no movement")
                if records.second(record["recorded_at"]) is None or max(len(amount), len(pure or "")) > _MOST_DIGITS:
                    raise ValueError("no movement")
                amounts = Amounts.read({"pure": pure, "renyi": amount})
                kind, at = record["kind"], record["recorded_at"]
                return cls(number, record["dataset"], session, kind, amounts, sequence, at)
        except Malformed:
            raise Unfollowed("a movement cannot be read", movement=known) from None

    def refuse(self, problem: str) -> Unfollowed:
        """That it does not follow."""
        return Unfollowed(problem, check="books", dataset=self.dataset, session=self.session, movement=self.number)


@dataclass(frozen=True)
class Registered:
    """A data set as the log says it was registered, and when it was retired, if it was."""

    name: str
    declared: Mapping[str, Any]
    records: float | None
    retired_at: str | None = None

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """From the line of its registration, parsed.

        Raises:
            Unfollowed: when it is none.
        """
        name = record.get("name")
        named = name if isinstance(name, str) else None
        none = Unfollowed("the registration declares no data set", dataset=named)
        try:
            with taking_apart():
                made = cls(record["name"], record["declared"], record.get("records"))
        except Malformed:
            raise none from None
        try:
            made.public.budget  # noqa: B018 - it is computed here, where it is known of what
            check_records(made.public.spec, made.records)
        except (CuratorError, PrivacyError):
            raise none from None
        if made.public.spec.name != name:
            raise none
        return made

    @cached_property
    def public(self) -> PublicDataset:
        """Its public facts before anything was asked."""
        return PublicDataset(parse_spec(self.declared), self.records)


@dataclass(frozen=True)
class Opened:
    """The parts of a session's header that the books must know.

    Attributes:
        session, opened_at: whose header it is, and its time.
        public: the data set as it is described there.
        holds: what the plan reserves.
        exact: whether its accounting has no refunds.
        buys: whether something is bought or measured at the opening.
        bought: the fact that it bought, by its name.
        race: whether it holds a race.
        release: whether it is of a release.
        known: the measurements of others that it starts from, by the hashes of their records.
        shares: whether others may start from what it measures.
        construction: what answers, by its name.
        order: the Renyi order that the plan counts at; None where it is not looked at.
    """

    session: str
    opened_at: str
    public: PublicDataset
    holds: Amounts
    exact: bool = False
    buys: bool = False
    bought: tuple[str, Bought] | None = None
    race: bool = False
    release: bool = False
    known: tuple[str, ...] = ()
    shares: bool = False
    construction: str | None = None
    order: str | None = None

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """From the parsed header. That plan and data set follow from each other is for a replay.

        Raises:
            Malformed: when it describes no session.
        """
        with taking_apart():
            return cls._read(record)

    @classmethod
    def _read(cls, record: Mapping[str, Any]) -> Self:
        header = Header.of(record)
        document, plan, pins = header.document, header.plan, header.pins
        purchase = document["plan"]["purchase"]
        facts = () if purchase is None else tuple(purchase)
        if len(facts) > 1 or (len(facts) == 1) != ("bought" in document):
            raise ValueError("a session buys one fact, and says what came of it")
        return cls(
            session=header.session,
            opened_at=header.opened_at,
            public=PublicDataset.from_descriptor(document["dataset"]),
            holds=Amounts.read({"pure": document["plan"]["reserved_pure"], "renyi": document["plan"]["reserved"]}),
            exact=plan.calibration == "exact",
            buys=bool(facts) or bool(pins and pins.made),
            bought=(facts[0], Bought.of(document["bought"])) if facts else None,
            race=document["plan"]["race"] is not None,
            release="workload" in document["mechanism"],
            known=() if pins is None else pins.known,
            shares=document["mechanism"].get("share") is True,
            construction=document["mechanism"].get("construction"),
            order=document["plan"]["order"],
        )


@dataclass(slots=True)
class Held:
    """Where a session stands by its movements."""

    dataset: str
    share: Share
    exact: bool
    buys: bool
    moved_at: str
    movements: int = 1
    sequence: int = 0
    ended: bool = False


@dataclass(slots=True)
class Book:
    """Where a data set stands by its movements."""

    registered: Registered
    account: Account
    bought: dict[str, Bought] = field(default_factory=dict)
    races: int = 0
    forfeited: bool = False
    movements: int = 0


class Books:
    """All data sets of a log, from its movements in their order.

    Args:
        registered: the data sets, by their names.
        opened: a session's header, where the log has one before the movement that is looked at; else None.
    """

    def __init__(self, registered: Mapping[str, Registered], opened: Callable[[str], Opened | None]) -> None:
        self.books = {name: Book(each, Account(each.public.budget)) for name, each in registered.items()}
        self.sessions: dict[str, Held] = {}
        self._opened, self._number = opened, 0

    def take(self, movement: Movement) -> None:
        """Take in the next movement.

        Raises:
            Unfollowed: when it breaks a rule.
        """
        if movement.number <= self._number:
            raise movement.refuse("a movement does not come behind the one before it: it was moved or repeated")
        self._number = movement.number
        book = self.books.get(movement.dataset)
        if book is None:
            raise movement.refuse("a movement is of a data set that was never registered")
        book.movements += 1
        if movement.kind == "forfeit" and not _retired(book, movement.recorded_at):
            raise movement.refuse("something is forfeited on a data set that was not retired")
        held = None if movement.session is None else self.sessions.get(movement.session)
        try:
            if movement.session is None:
                self._lose(book, movement)
            elif held is None:
                self.sessions[movement.session] = self._open(book, movement, movement.session)
            else:
                held.movements += 1
                self._move(book, held, movement)
        except PrivacyError as error:
            raise movement.refuse(f"a movement passes what there is: {error}") from None

    def _open(self, book: Book, movement: Movement, session: str) -> Held:
        opened = self._opened(session)
        if opened is None:
            raise movement.refuse("a movement is of a session whose header the log does not have before it")
        if opened.public.spec.name != movement.dataset:
            raise movement.refuse("a movement is of another data set than its session")
        if movement.kind != "reserve":
            raise movement.refuse("a session's first movement does not reserve")
        if movement.sequence is not None or movement.recorded_at != opened.opened_at:
            raise movement.refuse("a session reserves at another time than its header's")
        if movement.amounts != opened.holds:
            raise movement.refuse("a session reserves another amount than its plan")
        if book.forfeited:
            raise movement.refuse("a session opens on a data set that was forfeited")
        _check_described(book, opened, movement)
        book.account = book.account.reserve(movement.amounts)
        book.races += opened.race
        if opened.bought is not None:
            book.bought[opened.bought[0]] = opened.bought[1]
        share = Share.of(movement.amounts)
        return Held(movement.dataset, share, opened.exact, opened.buys, movement.recorded_at)

    @staticmethod
    def _move(book: Book, held: Held, movement: Movement) -> None:
        """A movement of a session that has reserved."""
        if held.dataset != movement.dataset:
            raise movement.refuse("a movement is of another data set than its session")
        if held.ended:
            raise movement.refuse("a session moves after its last movement")
        if movement.kind == "reserve":
            raise movement.refuse("a session reserves a second time")
        if movement.kind != "forfeit" and _is_before(movement.recorded_at, held.moved_at):
            raise movement.refuse("a movement is dated before the one before it of its session")
        if (movement.kind == "purchase") != (held.buys and held.movements == 2):
            raise movement.refuse("a session buys at its opening what its header says, and nothing else")
        share, left = held.share, held.share.reserved
        if movement.kind == "purchase":
            if movement.sequence is not None:
                raise movement.refuse("a purchase is of no entry")
        elif movement.sequence is None or movement.sequence < held.sequence:
            raise movement.refuse("a movement is of an earlier entry than the one before it")
        if movement.kind in ("return", "forfeit"):
            if movement.amounts != left:
                raise movement.refuse("what ends a session is not what it had left")
            if movement.kind == "return" and held.exact:
                raise movement.refuse("an exact session returns nothing")
            held.ended = True
        if movement.kind == "charge":
            # Where the calibration is exact, the one that takes what is left may be the session's end.
            ends = held.exact and movement.amounts == left
            if movement.sequence == held.sequence and not ends:
                raise movement.refuse("an entry is charged twice, or none is")
        if movement.kind == "return":
            held.share = share.give_back()
            book.account = book.account.give_back(share)
        else:
            held.share = share.charge(movement.amounts)
            book.account = book.account.charge(share, movement.amounts)
        held.sequence, held.moved_at = movement.sequence or 0, movement.recorded_at
        book.forfeited = book.forfeited or movement.kind == "forfeit"

    @staticmethod
    def _lose(book: Book, movement: Movement) -> None:
        """Count all that is left of a data set as spent."""
        account = book.account
        if movement.kind != "forfeit" or movement.sequence is not None:
            raise movement.refuse("a movement is of no session")
        if movement.amounts != Amounts(account.remaining, account.pure_remaining):
            raise movement.refuse("what a data set forfeits is not what it had left")
        book.account = replace(
            account,
            spent=EXACT.add(account.spent, movement.amounts.renyi),
            pure_spent=EXACT.add(account.pure_spent, movement.amounts.pure or Decimal(0)),
            impure=account.impure or account.used <= account.budget.total,
        )
        book.forfeited = True


def _is_before(at: str, other: str) -> bool:
    """Whether a time lies in an earlier second than another."""
    first, second = records.second(at), records.second(other)
    return first is None or second is None or first < second


def _retired(book: Book, at: str) -> bool:
    """Whether a data set was retired at a time, or in the same second."""
    retired, then = records.second(book.registered.retired_at), records.second(at)
    return retired is not None and then is not None and retired <= then


def _check_described(book: Book, opened: Opened, movement: Movement) -> None:
    """Hold what a header says of its data set against what the log says."""
    registered, public = book.registered, opened.public
    if public.spec != registered.public.spec or public.records != registered.records:
        raise movement.refuse("the session's header describes another data set than was registered")
    if public.bought != book.bought:
        raise movement.refuse("the session's header states other facts than were bought before it")
    if public.race_sessions != book.races:
        raise movement.refuse("the session's header counts other races than were held before it")
    if opened.order not in (None, str(registered.public.budget.order)):
        raise movement.refuse("the session's plan counts at another order than its data set's ledger")
    if public.left is not None and public.left != book.account.whole:
        raise movement.refuse("the session's header says that other amounts were left of the budget")
    retired, opened_at = records.second(registered.retired_at), records.second(opened.opened_at)
    if retired is not None and (opened_at is None or opened_at > retired):
        raise movement.refuse("a session opens on a data set that was retired")


class Tally:
    """A session's movements held against its transcript, which tells what was due. ``missing`` counts those that the
    log does not have yet.

    Args:
        opened: its header.
        movements: of the session, in their order; each was taken into the books.
    """

    def __init__(self, opened: Opened, movements: Iterable[Movement]) -> None:
        self._opened, self._movements = opened, iter(movements)
        self.missing = 0

    def begin(self, purchase: Amounts | None) -> None:
        """The opening, with what was bought or measured there.

        Raises:
            Unfollowed: when there are other movements.
        """
        self._expect(("reserve",), self._opened.holds, None, self._opened.opened_at)
        if purchase is not None:
            self._expect(("purchase",), purchase, None, self._opened.opened_at)

    def charge(self, price: Amounts, sequence: int, recorded_at: str) -> None:
        """The charge of an entry.

        Raises:
            Unfollowed: when there is another movement.
        """
        self._expect(("charge",), price, sequence, recorded_at)

    def end(self, left: Amounts | None, sequence: int) -> None:
        """The end of the transcript; ``left`` is what a closed session had left, None of an open one.

        Raises:
            Unfollowed: when there is another movement, or one more.
        """
        if left is not None:
            self._expect(("charge" if self._opened.exact else "return", "forfeit"), left, sequence, None)
        more = next(self._movements, None)
        if more is not None:
            raise more.refuse("a movement stands for nothing in the session's transcript")

    def _expect(self, kinds: tuple[str, ...], amounts: Amounts, sequence: int | None, recorded_at: str | None) -> None:
        found = None if self.missing else next(self._movements, None)
        if found is None:
            self.missing += 1
            return
        if found.kind not in kinds or found.sequence != sequence:
            where = "" if sequence is None else f" of entry {sequence}"
            raise found.refuse(f"the transcript has a {kinds[0]}{where} where the movement is")
        if found.amounts != amounts:
            raise found.refuse("a movement is of another amount than follows from the transcript")
        if recorded_at is not None and found.recorded_at != recorded_at:
            raise found.refuse("a movement has another time than what it is for")
