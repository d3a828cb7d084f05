"""A data set's budget as admins and auditors look at it: where it stood over time, how fast it goes, who held it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from app.report.points import Thinned
from app.services.pages import Page
from curator_client.figures import Lane, Span, Step

#: The days over which a pace is taken, and the movements below which there is none.
PACE_DAYS, LEAST_MOVEMENTS = 30, 5
#: So many sessions are drawn: the open ones, and the last of the others.
MOST_LANES = 12
_DAY = 86400.0
#: The farthest day that a pace is said to lead to.
_FARTHEST = 100 * 365 * _DAY


def seconds(text: str) -> float:
    """A time of the service, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def now() -> float:
    """This moment, in seconds since 1970."""
    return datetime.now(UTC).timestamp()


@dataclass
class Course:
    """Where a budget stood after each movement of its ledger, as parts of epsilon in the sum that is shown.

    Args:
        stands: the head of a ledger (:meth:`app.services.datasets.Datasets.ledger`).
    """

    stands: Mapping[str, Any]
    movements: int = 0
    _spent: Decimal = Decimal(0)
    _held: Decimal = Decimal(0)
    _steps: Thinned[Step] = field(default_factory=lambda: Thinned(lambda step: step.spent + step.held))
    _recent: list[Step] = field(default_factory=list)
    #: When each session was charged last.
    charged: dict[str, str] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """The budget."""
        return float(self.stands["epsilon"]["epsilon"])

    @property
    def pure(self) -> bool:
        """Whether amounts are epsilons of pure noise."""
        return bool(self.stands["epsilon"]["regime"] == "pure")

    def add(self, movements: Iterable[Mapping[str, Any]]) -> None:
        """Take in the next movements, in their order."""
        limit = Decimal(self.stands["budget"])
        part = Decimal(1) if self.pure else Decimal(repr(self.epsilon)) / limit
        since = now() - PACE_DAYS * _DAY
        for each in movements:
            told = each["pure"] if self.pure else each["amount"]
            amount = Decimal(told or 0) * part
            kind = each["kind"]
            if kind == "reserve":
                self._held += amount
            else:
                if each["session"] is not None:
                    self._held -= amount
                if kind != "return":
                    self._spent += amount
            self.movements += 1
            step = Step(seconds(each["recorded_at"]), float(self._spent), max(float(self._held), 0.0))
            self._steps.add(step)
            if step.at >= since:
                self._recent.append(Step(step.at, float(amount) if kind in ("charge", "purchase", "forfeit") else 0, 0))

    def steps(self) -> list[Step]:
        """Where it stood, as many moments as can be drawn."""
        return self._steps.items()

    def span(self, since: str, until: float) -> Span:
        """The time from the registration on."""
        return Span(seconds(since), max(until, seconds(since) + 60))

    def pace(self) -> float | None:
        """Epsilon that was spent in the last thirty days; None where too little moved to tell."""
        if self.movements < LEAST_MOVEMENTS:
            return None
        return sum(step.spent for step in self._recent)

    def lasts_until(self) -> str | None:
        """The month in which nothing is left at the pace of the last thirty days; None where there is no such."""
        pace, left = self.pace(), float(self.stands["epsilon"]["remaining_epsilon"]) + float(self._held)
        if not pace or left <= 0:
            return None
        ahead = left / pace * PACE_DAYS * _DAY
        return None if ahead > _FARTHEST else f"{datetime.fromtimestamp(now() + ahead, UTC):%B %Y}"


def lanes_of(sessions: Sequence[Mapping[str, Any]]) -> list[Lane]:
    """The sessions that are drawn, in the order in which they were opened: what is open, and the last of the others."""
    chosen = sorted(sessions, key=lambda each: (each["status"] == "open", each["opened_at"]))[-MOST_LANES:]
    return [_lane(each) for each in sorted(chosen, key=lambda each: each["opened_at"])]


def is_release(session: Mapping[str, Any]) -> bool:
    """Whether a session is that of a release."""
    return bool(session["construction"] == "workload")


def _lane(session: Mapping[str, Any]) -> Lane:
    kind: Literal["open", "closed", "release"] = "open" if session["status"] == "open" else "closed"
    kind = "release" if is_release(session) else kind
    share = f"{session['spent_epsilon']:.3g} of {session['epsilon']:.3g}"
    what = "release" if is_release(session) else "session"
    end = None if session["closed_at"] is None else seconds(session["closed_at"])
    owner = session["owner"] if len(session["owner"]) <= 12 else f"{session['owner'][:11]}…"
    return Lane(seconds(session["opened_at"]), end, f"{owner}, {what}: {share}", kind)


def every(fetch: Callable[[str, int], Page], most: int = 1000) -> list[dict[str, Any]]:
    """All items of a list that comes a page at a time, told by what each page follows on."""
    page = fetch("", most)
    found = page.items
    while page.after is not None:
        page = fetch(page.after, most)
        found += page.items
    return found
