"""A session or a release by the log: its plan, what was asked and answered, what was promised, what it paid."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.audit.records import values_of
from app.audit.report_books import Holding, Wrong, amounts_of, decimal_of, text_of
from app.audit.report_points import Thinned

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
    """What is shown of a session beside its sums."""

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
        head: the SHA-256 that its next entry must name.
        detail: None for one of which sums alone are shown.
    """

    id: str
    opened_at: Any
    construction: Any
    method: Any
    epsilon: Any
    holding: Holding
    head: bytes
    detail: Detail | None
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

    def measured(self, record: Mapping[str, Any]) -> None:
        """Take in the record of a measurement, which tells its price."""
        cost = amounts_of(record["cost"]["renyi"], record["cost"]["pure"])
        self.holding.tell(cost.renyi, record["recorded_at"])
        self.measurements += 1
        if self.detail is not None:
            noise = record["measurement"].get("noise")
            if isinstance(noise, Mapping) and "scale" in noise:
                decimal_of(noise["scale"])
                self.detail.scales.add((_whole(record["sequence"]), noise["scale"]))

    def take(self, record: Mapping[str, Any], line: bytes) -> None:
        """Take in its next entry.

        Raises:
            Wrong: when the entry is not what its hash names, or not the next one.
        """
        stated = record["entry_hash"]
        if not isinstance(stated, str):
            raise TypeError("a hash is a text")
        digest = hashlib.sha256(line.replace(b'"entry_hash":"%b",' % stated.encode(), b"", 1))
        # What follows must name what stands here, whatever this entry says of itself.
        self.head = digest.digest()
        self.sequence += 1
        self.last_at = short(record["recorded_at"])
        kind = record["record"]
        if kind == "answer":
            self._answered(record)
        elif kind == "forfeit":
            self._forfeited(record)
        else:
            self.released += 1
        if digest.hexdigest() != stated:
            raise Wrong("chains", "an entry is not what its hash names")
        if record["sequence"] != self.sequence:
            raise Wrong("chains", "an entry is not numbered as the next one of its session")

    def _pay(self) -> None:
        if self.holding.price is not None:
            self.holding.tell(self.holding.price.renyi, self.last_at)

    def _answered(self, record: Mapping[str, Any]) -> None:
        source = record["source"]
        if not isinstance(source, str) or len(source) > 64:
            raise TypeError("a source is a word")
        self.sources[source if source in self.sources or len(self.sources) < _MOST_SOURCES else "other"] += 1
        self.unverified += record.get("unverified") is True
        if source == "measurement":
            self._pay()
        detail = self.detail
        if detail is None:
            return
        bound, wish = record["error_bound"], record.get("wish")
        if bound is not None:
            detail.bounds.add((self.sequence, _number(bound)))
        if isinstance(wish, Mapping) and wish.get("within") is not None:
            detail.wishes.add((self.sequence, _number(wish["within"])))
        if len(detail.questions) < MOST_QUESTIONS:
            values = values_of(record)
            detail.questions.append(
                {
                    "sequence": self.sequence,
                    "recorded_at": self.last_at,
                    "asked": cut(record["asked"] if "asked" in record else record["query"], MOST_LETTERS),
                    "as_asked": "asked" in record,
                    "wish": None if wish is None else cut(wish, MOST_LETTERS),
                    "source": source,
                    "values": [None if value is None else _number(value) for value in values[:MOST_VALUES]],
                    "values_in_all": len(values),
                    "error_bound": bound,
                    "unverified": record.get("unverified") is True,
                }
            )

    def _forfeited(self, record: Mapping[str, Any]) -> None:
        self.forfeits += 1
        price = record.get("price")
        if price is None:
            self._pay()
            told = None if self.holding.price is None else self.holding.price.document()
        else:
            told = amounts_of(price["renyi"], price["pure"]).document()
            self.holding.tell(amounts_of(price["renyi"], None).renyi, self.last_at)
        if self.detail is not None and len(self.detail.forfeits) < MOST_FORFEITS:
            self.detail.forfeits.append({"sequence": self.sequence, "recorded_at": self.last_at, "price": told})

    def document(self, replay: tuple[bool, str | None] | None) -> dict[str, Any]:
        """As JSON; ``replay`` is the verdict over its transcript, if there is one."""
        share = self.holding.share
        found: dict[str, Any] = {
            "session": self.id,
            "release": self.method is not None,
            "construction": self.construction,
            "method": self.method,
            "opened_at": self.opened_at,
            "last_at": self.last_at,
            "epsilon": self.epsilon,
            "reserved": text_of(self.holding.promised.renyi),
            "reserved_pure": None if self.holding.promised.pure is None else text_of(self.holding.promised.pure),
            "spent": text_of(self.holding.paid),
            "held": None if share is None else text_of(share.reserved.renyi),
            "entries": self.sequence,
            "head_hash": self.head.hex(),
            "answers": {"number": self.asked, "by_source": dict(self.sources), "unverified": self.unverified},
            "measurements": self.measurements,
            "released": self.released,
            "updates": self.updates,
            "forfeits": self.forfeits,
            "replay": None if replay is None else {"ok": replay[0], "problem": replay[1]},
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


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a value is a number")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a sequence is a whole number")
    return value
