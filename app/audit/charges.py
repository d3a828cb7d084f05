"""What a log's entries and measurements say that they cost, held against what their sessions were charged.

A session pays no less than its records cost. Movements come into a log in their order, but an entry may come a moment
before its charge: that one is missing once there are movements that were made well after the entry, and waited for
until then. Which price is due for which record, a replay of the transcript shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.audit import forms
from app.audit.books import Held
from app.privacy.exactness import EXACT
from app.privacy.ledger import Amounts
from curator_client.proofs.findings import Unfollowed

#: How long after an entry a movement is that shows that the entry's own must be in the log.
_WAIT_SECONDS = 600


@dataclass(slots=True)
class Charged:
    """A session's records against its movements.

    Attributes:
        price: what each charged round costs, where all cost the same.
        told: what its records say that they cost.
        paid: what it was charged.
        short_at: the time of the record from which on it has paid less than that; None where it has not.
    """

    price: Amounts | None
    told: Decimal = Decimal(0)
    paid: Decimal = Decimal(0)
    short_at: str | None = None

    def tell(self, cost: Amounts | None, at: str) -> None:
        """Take in what a record of some time says that it cost."""
        if cost is not None:
            self.told = EXACT.add(self.told, cost.renyi)
            if self.short_at is None and self.told > self.paid:
                self.short_at = at

    def pay(self, paid: Decimal) -> None:
        """Take in what it was charged in all."""
        self.paid = paid
        if self.told <= paid:
            self.short_at = None


class Charges:
    """All sessions of a log. Records are of their forms (:func:`app.audit.forms.check`)."""

    def __init__(self) -> None:
        self.sessions: dict[str, Charged] = {}
        self._moved_at = ""

    def opened(self, session: str, record: Mapping[str, Any]) -> None:
        """Take in a header: what its plan bought, and what a round costs."""
        plan = record["plan"]
        charged = self.sessions[session] = Charged(forms.price(plan))
        for fact in (plan["purchase"] or {}).values():
            charged.tell(forms.amounts(fact["cost"], None), record["opened_at"])

    def measured(self, session: str, record: Mapping[str, Any]) -> None:
        """Take in a measurement, which tells its price."""
        if (charged := self.sessions.get(session)) is not None:
            cost = record["cost"]
            charged.tell(forms.amounts(cost.get("renyi"), cost.get("pure")), record["recorded_at"])

    def entered(self, session: str, record: Mapping[str, Any]) -> None:
        """Take in an entry: a measurement of a test, or a round that was lost, has its price."""
        charged, price = self.sessions.get(session), record.get("price")
        if charged is None:
            return
        if record["record"] == "forfeit":
            own = charged.price if price is None else forms.amounts(price.get("renyi"), price.get("pure"))
            charged.tell(own, record["recorded_at"])
        elif record.get("source") == "measurement":
            charged.tell(charged.price, record["recorded_at"])

    def moved(self, session: str | None, held: Held | None, at: str) -> None:
        """Take in a movement of some time, and where its session stands behind it; None of one of no session."""
        self._moved_at = max(self._moved_at, at)
        if session is not None and held is not None and (charged := self.sessions.get(session)) is not None:
            charged.pay(held.share.spent.renyi)

    def end(self) -> Iterator[Unfollowed]:
        """Sessions that paid less than their records cost, and should have paid by now."""
        for session, charged in self.sessions.items():
            if charged.short_at is not None and not self._waits(charged.short_at):
                yield Unfollowed("a session paid less than its records cost", check="charges", session=session)

    @property
    def waiting(self) -> int:
        """How many sessions may have been charged since."""
        return sum(each.short_at is not None and self._waits(each.short_at) for each in self.sessions.values())

    def _waits(self, short_at: str) -> bool:
        return _seconds(short_at) + _WAIT_SECONDS >= _seconds(self._moved_at)


def _seconds(at: str) -> float:
    """Seconds since 1970 of a time; those of one that is none lie before all others."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return -math.inf
