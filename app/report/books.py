"""The books of a log as a report shows them: movements by their kinds, and how the sums went.

The sums are those of :class:`app.audit.books.Books`; a movement that breaks a rule is in none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import Any

from app.privacy.exactness import EXACT
from app.privacy.ledger import Account, Amounts
from app.report.points import Thinned
from app.report.words import text_of

#: Movements of a data set that are shown: so many first ones and so many last ones.
MOST_MOVEMENTS = 100
_SUMS = ("spent", "reserved", "pure_spent", "pure_reserved")


@dataclass
class Book:
    """A data set by the log: what was declared, and what became of its budget.

    Attributes:
        declared: as it was registered.
        commitment: to its private file.
        revealed: to whom its key was given, and when; the first ones.
        unit: of privacy, as headers have it.
    """

    name: str
    declared: Any
    records: Any
    registered_at: Any
    commitment: Any
    revealed: list[dict[str, Any]] = field(default_factory=list)
    unit: Any = None
    sums: dict[str, tuple[int, Decimal]] = field(default_factory=dict)
    first: list[Mapping[str, Any]] = field(default_factory=list)
    last: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_MOVEMENTS))
    steps: Thinned[tuple[Any, Decimal, Decimal, Decimal, Decimal]] = field(
        default_factory=lambda: Thinned(lambda step: step[1] + step[2])
    )

    def move(self, movement: Mapping[str, Any], moved: Amounts, account: Account) -> None:
        """Take in a movement, and where the data set stands behind it."""
        number, held = self.sums.get(movement["kind"], (0, Decimal(0)))
        self.sums[movement["kind"]] = (number + 1, EXACT.add(held, moved.renyi))
        (self.first if len(self.first) < MOST_MOVEMENTS else self.last).append(movement)
        sums = (getattr(account, name) for name in _SUMS)
        self.steps.add((movement["recorded_at"], *sums))

    def document(self, account: Account) -> dict[str, Any]:
        """As JSON: amounts are decimal strings, what is left out of the movements is summed up by their kinds."""
        shown = [*self.first, *self.last]
        left: dict[str, dict[str, Any]] = {}
        for kind, (number, total) in self.sums.items():
            mine = [Decimal(each["amount"]) for each in shown if each["kind"] == kind]
            if number > len(mine):
                rest = EXACT.subtract(total, reduce(EXACT.add, mine, Decimal(0)))
                left[kind] = {"number": number - len(mine), "amount": text_of(rest)}
        return {
            "budget": _budget(account),
            "movements": {
                "number": sum(number for number, _ in self.sums.values()),
                "by_kind": {kind: {"number": n, "amount": text_of(held)} for kind, (n, held) in self.sums.items()},
                "first": self.first,
                "left_out": left,
                "last": list(self.last),
            },
            "steps": [
                {"recorded_at": at} | dict(zip(_SUMS, map(text_of, sums), strict=True))
                for at, *sums in self.steps.items()
            ],
        }


def _budget(account: Account) -> dict[str, Any]:
    budget, shown = account.budget, account.shown(account.regime, account.budget.epsilon)
    return {
        "epsilon": text_of(budget.epsilon),
        "delta": text_of(budget.delta),
        "order": text_of(budget.order),
        "limit": text_of(budget.total),
        **{name: text_of(getattr(account, name)) for name in _SUMS},
        "impure": account.impure,
        "regime": account.regime,
        "spent_epsilon": text_of(shown.spent),
        "reserved_epsilon": text_of(shown.reserved),
    }
