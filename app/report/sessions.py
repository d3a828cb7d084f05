"""A session or a release by the log: its plan, what was asked and answered, what was promised, what it paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from app.audit import forms
from app.audit.books import Held
from app.privacy.ledger import Amounts
from app.report.points import Thinned
from app.report.words import text_of

#: Questions of a session that are shown, letters of one, and values of an answer to one.
MOST_QUESTIONS, MOST_LETTERS, MOST_VALUES = 100, 1000, 6
#: Refusals that spend that are shown of a session.
MOST_FORFEITS = 20
#: Letters of what was declared, of a mechanism and of a plan that are shown.
MOST_DECLARED = 20_000
#: Sources of answers that are told apart.
_MOST_SOURCES = 20


@dataclass(slots=True)
class Detail:
    """The details of a session that are shown beside its sums."""

    mechanism: Any
    plan: Any
    questions: list[dict[str, Any]] = field(default_factory=list)
    forfeits: list[dict[str, Any]] = field(default_factory=list)
    bounds: Thinned[tuple[int, Any]] = field(default_factory=lambda: _errors())
    wishes: Thinned[tuple[int, Any]] = field(default_factory=lambda: _errors())
    scales: Thinned[tuple[int, Any]] = field(default_factory=lambda: _errors())


def _errors() -> Thinned[tuple[int, Any]]:
    return Thinned(lambda point: float(point[1]))


@dataclass(slots=True)
class Course:
    """A session that is followed through the log.

    Attributes:
        method: of a release; None for a session.
        promised: what the plan in its header says that it reserves.
        price: what each charged round costs, where all cost the same.
        head: the hash of its last entry, or of its header.
        detail: None for one of which sums alone are shown.
        held: where it stands by its movements; None before the first one.
    """

    id: str
    dataset: str
    opened_at: str
    construction: Any
    method: Any
    epsilon: Any
    promised: Amounts
    price: Amounts | None
    head: str
    detail: Detail | None
    held: Held | None = None
    last_at: Any = None
    sequence: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    unverified: int = 0
    forfeits: int = 0
    released: int = 0
    measurements: int = 0

    @property
    def asked(self) -> int:
        """How many questions were answered."""
        return sum(self.sources.values())

    @property
    def updates(self) -> int:
        """How many of its entries cost something."""
        return self.sources["measurement"] + self.forfeits + self.released

    @property
    def paid(self) -> Decimal:
        """Its spending by the movements, at the ledger's order."""
        return Decimal(0) if self.held is None else self.held.share.spent.renyi

    def measured(self, record: Mapping[str, Any]) -> None:
        """Take in the record of a measurement."""
        self.measurements += 1
        noise = record["measurement"].get("noise")
        if self.detail is not None and isinstance(noise, Mapping) and "scale" in noise:
            self.detail.scales.add((record["sequence"], noise["scale"]))

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in its next entry."""
        self.head = record["entry_hash"]
        self.sequence += 1
        self.last_at = record["recorded_at"]
        kind = record["record"]
        if kind == "answer":
            self._answered(record)
        elif kind == "forfeit":
            self._forfeited(record)
        else:
            self.released += 1

    def _answered(self, record: Mapping[str, Any]) -> None:
        source = record["source"][:64]
        self.sources[source if source in self.sources or len(self.sources) < _MOST_SOURCES else "other"] += 1
        self.unverified += record.get("unverified") is True
        detail = self.detail
        if detail is None:
            return
        bound, wish = record.get("error_bound"), record.get("wish")
        if bound is not None:
            detail.bounds.add((self.sequence, bound))
        if isinstance(wish, Mapping) and wish.get("within") is not None:
            detail.wishes.add((self.sequence, wish["within"]))
        if len(detail.questions) < MOST_QUESTIONS:
            values = [record["value"]] if "value" in record else record["values"]
            detail.questions.append(
                {
                    "sequence": self.sequence,
                    "recorded_at": self.last_at,
                    "asked": cut(record["asked"] if "asked" in record else record.get("query"), MOST_LETTERS),
                    "as_asked": "asked" in record,
                    "wish": None if wish is None else cut(wish, MOST_LETTERS),
                    "source": source,
                    "values": values[:MOST_VALUES],
                    "values_in_all": len(values),
                    "error_bound": bound,
                    "unverified": record.get("unverified") is True,
                }
            )

    def _forfeited(self, record: Mapping[str, Any]) -> None:
        self.forfeits += 1
        told, price = record.get("price"), self.price
        if told is not None:
            price = forms.amounts(told.get("renyi"), told.get("pure"))
        if self.detail is not None and len(self.detail.forfeits) < MOST_FORFEITS:
            shown = None if price is None else price.document()
            self.detail.forfeits.append({"sequence": self.sequence, "recorded_at": self.last_at, "price": shown})

    def document(self, replays: Mapping[str | None, str | None]) -> dict[str, Any]:
        """As JSON; ``replays`` tells what does not follow of transcripts, None where all does."""
        problem = replays.get(self.id)
        found: dict[str, Any] = {
            "session": self.id,
            "release": self.method is not None,
            "construction": self.construction,
            "method": self.method,
            "opened_at": self.opened_at,
            "last_at": self.last_at,
            "epsilon": self.epsilon,
            "reserved": text_of(self.promised.renyi),
            "reserved_pure": None if self.promised.pure is None else text_of(self.promised.pure),
            "spent": text_of(self.paid),
            "held": None if self.held is None else text_of(self.held.share.reserved.renyi),
            "entries": self.sequence,
            "head_hash": self.head,
            "answers": {"number": self.asked, "by_source": dict(self.sources), "unverified": self.unverified},
            "measurements": self.measurements,
            "released": self.released,
            "updates": self.updates,
            "forfeits": self.forfeits,
            "replay": {"ok": problem is None, "problem": problem} if self.id in replays else None,
            "detail": None,
        }
        detail = self.detail
        if detail is not None:
            found["detail"] = {
                "mechanism": detail.mechanism,
                "plan": detail.plan,
                "questions": {"first": detail.questions, "left_out": self.asked - len(detail.questions)},
                "forfeits": {"first": detail.forfeits, "left_out": self.forfeits - len(detail.forfeits)},
                "errors": {
                    "error_bound": detail.bounds.items(),
                    "within": detail.wishes.items(),
                    "noise_scale": detail.scales.items(),
                },
            }
        return found


def cut(document: Any, most: int) -> Any:
    """A document, or, where its JSON is longer than ``most`` bytes, how long it is and its beginning as ``cut``."""
    written = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    if len(written) <= most:
        return document
    return {"cut": written[:most].decode(errors="ignore"), "bytes": len(written)}


def short(value: Any, most: int = 256) -> Any:
    """A text, cut where it is longer; other things as :func:`cut` has them."""
    if isinstance(value, str):
        return value if len(value) <= most else value[:most] + "…"
    return cut(value, most)
