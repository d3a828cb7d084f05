"""The books of data sets: legal histories are accepted, and each single movement that is another is refused and named.

Histories are made by a player who keeps sums of his own, with transcripts that say what was charged; the auditor is
given the movements, the headers and the transcripts alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from app.audit.books import Books, Movement, Opened, Registered, Tally
from app.curator.dataset import Bought, PublicDataset
from app.declarations.spec import parse_spec
from app.privacy.ledger import Amounts
from curator_client.proofs.findings import Unfollowed

pytestmark = pytest.mark.unit

STEP = Decimal("1e-24")


def declared(name: str) -> dict[str, object]:
    attributes = [{"name": "x", "size": 4}]
    return {"name": name, "kind": "table", "attributes": attributes, "budget": {"epsilon": 1.0, "delta": 1e-6}}


BUDGET = PublicDataset(parse_spec(declared("a"))).budget


def at(second: int) -> str:
    return f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


@dataclass
class Player:
    """One session: what it holds, and what its transcript says."""

    opened: Opened
    left: Amounts
    sequence: int = 0
    purchase: Amounts | None = None
    charges: list[tuple[Amounts, int, str]] = field(default_factory=list)
    open: bool = True
    end: Amounts | None = None


@dataclass
class Shelf:
    """One data set, in the player's own sums."""

    name: str
    used: Decimal = Decimal(0)
    pure: Decimal = Decimal(0)
    impure: bool = False
    bought: dict[str, Bought] = field(default_factory=dict)
    races: int = 0
    retired_at: str | None = None


class History:
    """A legal history, by a seed."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random, self.clock = Random(seed), 0
        self.shelves = {name: Shelf(name) for name in ("a", "b")}
        self.players: dict[str, Player] = {}
        self.movements: list[Movement] = []
        for _ in range(steps):
            self.clock += self.random.randrange(3)
            self.random.choice([self.open, self.charge, self.charge, self.charge, self.end])()
        if self.random.random() < 0.5:
            self.forfeit()

    def move(self, dataset: str, session: str | None, kind: str, amounts: Amounts, sequence: int | None) -> None:
        number = (self.movements[-1].number if self.movements else 0) + self.random.randint(1, 2)
        self.movements.append(Movement(number, dataset, session, kind, amounts, sequence, at(self.clock)))

    def open(self) -> None:
        shelf = self.random.choice([*self.shelves.values()])
        epsilon = Decimal(self.random.choice(["0.05", "0.1", "0.3"]))
        pure = epsilon if self.random.random() < 0.4 else None
        holds = Amounts(BUDGET.share(epsilon), pure)
        if shelf.used + holds.renyi > BUDGET.total:
            return
        session = f"s{len(self.players)}"
        race, exact = self.random.random() < 0.2, pure is None and self.random.random() < 0.2
        buys = pure is None and self.random.random() < 0.3 and "mass" not in shelf.bought
        bought = ("mass", Bought(float(self.random.randrange(100)), 1.0)) if buys else None
        public = PublicDataset(parse_spec(declared(shelf.name)), None, dict(shelf.bought), shelf.races)
        opened = Opened(session, at(self.clock), public, holds, exact, buys, bought, race)
        player = self.players[session] = Player(opened, holds)
        shelf.used += holds.renyi
        shelf.pure += pure or 0
        shelf.impure |= pure is None
        shelf.races += race
        self.move(shelf.name, session, "reserve", holds, None)
        if bought is not None:
            shelf.bought["mass"] = bought[1]
            player.purchase = Amounts(self.part(holds.renyi), Decimal("0.01"))
            player.left = Amounts(player.left.renyi - player.purchase.renyi, None)
            self.move(shelf.name, session, "purchase", player.purchase, None)

    def part(self, of: Decimal) -> Decimal:
        return (of * Decimal(self.random.randint(1, 4)) / 10).quantize(STEP)

    def player(self) -> Player | None:
        return self.random.choice([p for p in self.players.values() if p.open] or [None])

    def charge(self) -> None:
        player = self.player()
        if player is None:
            return
        player.sequence += self.random.randint(1, 3)
        left = player.left
        price = Amounts(self.part(left.renyi), None if left.pure is None else self.part(left.pure))
        if not price.renyi:
            return
        player.left = Amounts(left.renyi - price.renyi, None if left.pure is None else left.pure - (price.pure or 0))
        player.charges.append((price, player.sequence, at(self.clock)))
        self.move(player.opened.public.spec.name, player.opened.session, "charge", price, player.sequence)

    def end(self, kind: str | None = None) -> None:
        player = self.player()
        if player is None:
            return
        player.open, player.end = False, player.left
        shelf, returns = self.shelves[player.opened.public.spec.name], kind is None and not player.opened.exact
        if returns:
            shelf.used -= player.left.renyi
            shelf.pure -= player.left.pure or 0
        told = kind or ("charge" if player.opened.exact else "return")
        self.move(shelf.name, player.opened.session, told, player.left, player.sequence)

    def forfeit(self) -> None:
        """All is taken for an old copy."""
        while self.player() is not None:
            self.end("forfeit")
        for shelf in self.shelves.values():
            pure = Decimal(0) if shelf.impure else max(Decimal(0), Decimal(1) - shelf.pure)
            self.move(shelf.name, None, "forfeit", Amounts(BUDGET.total - shelf.used, pure), None)
            shelf.retired_at = at(self.clock)


def audited(history: History, movements: list[Movement]) -> tuple[Books, dict[str, int]]:
    """The auditor: the books, and how many movements of each session are missing at its end."""
    registered = {n: Registered(n, declared(n), None, shelf.retired_at) for n, shelf in history.shelves.items()}
    books = Books(registered, lambda session: player.opened if (player := history.players.get(session)) else None)
    own: dict[str | None, list[Movement]] = defaultdict(list)
    for movement in movements:
        books.take(movement)
        own[movement.session].append(movement)
    missing = {}
    for session, player in history.players.items():
        if not own[session]:
            raise Unfollowed("no movement", session=session)
        tally = Tally(player.opened, own[session])
        tally.begin(player.purchase)
        for charge in player.charges:
            tally.charge(*charge)
        tally.end(player.end, player.sequence)
        missing[session] = tally.missing
    return books, missing


histories = st.builds(History, st.integers(0, 10**9), st.integers(1, 40))


@given(histories)
@settings(max_examples=150, deadline=None)
def test_legal_histories_are_accepted(history: History) -> None:
    """Catches a refusal of what is honest, and sums that are not those that the player kept himself."""
    books, missing = audited(history, history.movements)
    assert set(missing.values()) <= {0}
    for name, shelf in history.shelves.items():
        account = books.books[name].account
        if shelf.retired_at is None:
            assert account.used == shelf.used
            assert account.pure_used == shelf.pure
        else:
            assert account.remaining == account.pure_remaining == 0
        left = [p.left.renyi for p in history.players.values() if p.open and p.opened.public.spec.name == name]
        assert account.reserved == sum(left, Decimal(0))
        assert account.impure == (shelf.impure or shelf.retired_at is not None)


def renumbered(movements: list[Movement]) -> list[Movement]:
    """What a forger makes of them who knows that numbers grow."""
    return [replace(each, number=number) for number, each in enumerate(movements, start=1)]


@given(histories, st.data())
@settings(max_examples=100, deadline=None)
def test_no_return_is_dated_before_what_it_returns(history: History, data: st.DataObject) -> None:
    """A forger says that a session was over before it was charged for the last time, or before it was opened: of
    returns no transcript tells the time. Catches a verdict that takes any time of a return on trust."""
    ends = [i for i, each in enumerate(history.movements) if each.kind == "return"]
    assume(ends)
    i = data.draw(st.sampled_from(ends))
    end = history.movements[i]
    before = [each for each in history.movements[:i] if each.session == end.session][-1]
    assume(before.recorded_at > at(0))
    seconds = st.integers(0, history.clock).map(at).filter(lambda time: time < before.recorded_at)
    forged = list(history.movements)
    forged[i] = replace(end, recorded_at=data.draw(seconds))
    with pytest.raises(Unfollowed, match="dated before") as found:
        audited(history, forged)
    assert (found.value.session, found.value.movement) == (end.session, end.number)
    # In the same second it is none.
    forged[i] = replace(end, recorded_at=before.recorded_at)
    audited(history, forged)


KINDS = ("reserve", "purchase", "charge", "return", "forfeit")


@pytest.mark.slow
@given(histories, st.data())
@settings(max_examples=500, deadline=None)
def test_any_single_other_movement_is_refused_and_named(history: History, data: st.DataObject) -> None:
    """One movement of another amount, kind, entry, time, session or data set, in another place, left out or there
    twice; with numbers that fit. Catches a rule that is not there: what none of them finds is taken for true."""
    movements = history.movements
    assume(movements)
    i = data.draw(st.integers(0, len(movements) - 1))
    movement = movements[i]
    how = data.draw(
        st.sampled_from(["amount", "pure", "kind", "sequence", "time", "session", "dataset", "order", "drop", "repeat"])
    )
    event(f"{how} of {movement.kind}")
    renyi, pure = movement.amounts.renyi, movement.amounts.pure
    changed = list(movements)
    match how:
        case "amount":
            changed[i] = replace(
                movement, amounts=Amounts(renyi + data.draw(st.sampled_from([1, 10**22])) * STEP, pure)
            )
        case "pure":
            changed[i] = replace(movement, amounts=Amounts(renyi, None if pure else STEP))
        case "kind":
            shelf = history.shelves[movement.dataset]
            others = set(KINDS) - {movement.kind}
            if shelf.retired_at is not None and movement.session is not None:
                # Of an old copy, who was closed by hand and who was not is told by nobody.
                others -= {"forfeit", "return", "charge"} if movement.kind in ("forfeit", "return", "charge") else set()
            changed[i] = replace(movement, kind=data.draw(st.sampled_from(sorted(others))))
        case "sequence":
            changed[i] = replace(movement, sequence=(movement.sequence or 0) + 1)
        case "time":
            assume(movement.kind in ("reserve", "purchase", "charge"))
            assume(not (movement.kind == "charge" and history.players[movement.session or ""].opened.exact))
            changed[i] = replace(movement, recorded_at=at(history.clock + 1))
        case "session":
            others = {*history.players, "unknown", None} - {movement.session}
            changed[i] = replace(movement, session=data.draw(st.sampled_from(sorted(others, key=str))))
        case "dataset":
            changed[i] = replace(
                movement, dataset=data.draw(st.sampled_from(["c", "b" if movement.dataset == "a" else "a"]))
            )
        case "order":
            later = [j for j in range(i + 1, len(movements)) if movements[j].session == movement.session is not None]
            assume(later)
            changed[i], changed[later[0]] = changed[later[0]], movement
        case "drop":
            assume(movement.session is not None)
            del changed[i]
        case "repeat":
            changed.insert(data.draw(st.integers(i + 1, len(movements))), movement)
    given_numbers = data.draw(st.booleans())
    changed = changed if given_numbers else renumbered(changed)
    broken, missing = None, {}
    try:
        _, missing = audited(history, changed)
    except Unfollowed as error:
        broken = error
    if broken is not None:
        assert broken.movement is not None or broken.session == movement.session
        return
    assert how == "drop"
    assert {session: count for session, count in missing.items() if count} == {movement.session: 1}
    assert movement == [each for each in movements if each.session == movement.session][-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"amount": 1},
        {"amount": "-1"},
        {"amount": "NaN"},
        {"amount": "1e-25"},
        {"amount": "1" * 100},
        {"pure": 2},
        {"number": True},
        {"number": "3"},
        {"kind": "gift"},
        {"kind": ["charge"]},
        {"session": 3},
        {"sequence": 1.5},
        {"recorded_at": "today"},
        {"dataset": None},
    ],
)
def test_what_is_no_movement_is_refused(fields: dict[str, object]) -> None:
    """Catches amounts that are rounded or negative, and an exception in the place of a verdict."""
    record = {"number": 3, "dataset": "a", "session": "s", "kind": "charge", "amount": "0.1", "pure": None}
    record |= {"sequence": 1, "recorded_at": at(0)}
    assert Movement.read(record).amounts == Amounts(Decimal("0.1"))
    with pytest.raises(Unfollowed, match="cannot be read"):
        Movement.read(record | fields)


def test_what_headers_say_of_their_data_set() -> None:
    """A header with a fact that nobody bought, another count of races, another amount that was left, another
    declaration, and one on a data set that was retired. Catches each that is taken on trust."""
    public = PublicDataset(parse_spec(declared("a")))
    left = Amounts(BUDGET.total, Decimal(1))
    holds = Amounts(BUDGET.total, Decimal(1))
    movement = Movement(1, "a", "s", "reserve", holds, None, at(5))

    def take(public: PublicDataset, retired_at: str | None = None) -> None:
        opened = Opened("s", at(5), public, holds)
        Books({"a": Registered("a", declared("a"), None, retired_at)}, lambda _: opened).take(movement)

    take(public)
    take(replace(public, left=left))
    take(public, at(5))
    for other, retired_at, told in (
        (replace(public, bought={"mass": Bought(3.0, 1.0)}), None, "facts"),
        (replace(public, race_sessions=1), None, "races"),
        (replace(public, left=Amounts(left.renyi, Decimal("0.5"))), None, "left of the budget"),
        (replace(public, records=3.0), None, "another data set"),
        (PublicDataset(parse_spec(declared("a") | {"description": "another"})), None, "another data set"),
        (public, at(4), "retired"),
    ):
        with pytest.raises(Unfollowed, match=told) as found:
            take(other, retired_at)
        assert (found.value.dataset, found.value.session, found.value.movement) == ("a", "s", 1)


@pytest.mark.parametrize(
    ("public", "records", "follows"),
    [(True, 5000, True), (False, None, True), (False, 5000, False), (True, None, False), (True, 2.0**65, False)],
)
def test_the_number_of_records_is_told_where_it_is_public(public: bool, records: float | None, follows: bool) -> None:
    """Would catch an exact number that is a free fact of a data set which was declared to keep it."""
    declared = {
        "name": "t",
        "kind": "table",
        "records_public": public,
        "budget": {"epsilon": 1.0, "delta": 1e-9},
        "attributes": [{"name": "a", "size": 2}],
    }
    told = {"name": "t", "declared": declared} | ({} if records is None else {"records": records})
    if follows:
        assert Registered.read(told).records == records
        return
    with pytest.raises(Unfollowed):
        Registered.read(told)
