"""Logs that tests write, line by line, with the functions that the service writes its own with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from app.audit import writing
from app.audit.log import movement_record, principal_record, registration_record, retirement_record
from app.curator.dataset import PublicDataset
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from curator_client.proofs import records
from tests.kit.forger import sha256

AT = "2026-11-22T{:02d}:25:{:02d}Z"
#: A budget, the order that follows from it, and what may be spent (tests/privacy has these by other means).
BUDGET, ORDER, LIMIT = {"epsilon": 1.0, "delta": 1e-6}, "19", Decimal("0.450063216874085924601356")
TABLE: dict[str, Any] = {"kind": "table", "attributes": [{"name": "age", "size": 100}], "budget": BUDGET}


class Writer:
    """Writes a log."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.heads: dict[str, tuple[str, int]] = {}
        self.sets: dict[str, str] = {}
        self.declared: dict[str, PublicDataset] = {}
        self.hour = 21
        self._moved = self._clock = 0

    @property
    def at(self) -> str:
        self._clock += 1
        return AT.format(self.hour, min(59, self._clock // 10))

    def principal(self, event: Any, name: str) -> None:
        self.lines.append(principal_record(event=event, name=name, role="analyst", recorded_at=self.at))

    def register(self, name: str, **declared: Any) -> None:
        told = TABLE | {"name": name, "records_public": True} | declared
        with suppress(CuratorError):
            self.declared.setdefault(name, PublicDataset(parse_spec(told), 12.0))
        self.lines.append(registration_record(declared=told, records=12.0, commitment="ab" * 32, recorded_at=self.at))

    def retire(self, name: str) -> None:
        self.lines.append(retirement_record(name=name, recorded_at=self.at))

    def move(self, kind: str, session: str | None, amount: str, pure: str | None = None, **more: Any) -> None:
        self._moved += 1
        dataset = more.pop("dataset", None) or self.sets[session or ""]
        # A charge stands before its entry in these logs, the end of a session behind its last.
        entries = self.heads.get(session or "", ("", 0))[1]
        due = {"charge": entries + 1, "return": entries, "forfeit": entries if session else None}.get(kind)
        told = {"dataset": dataset, "session": session, "kind": kind, "amount": amount, "pure": pure, "sequence": due}
        self.lines.append(movement_record(self._moved, told | {"recorded_at": self.at} | more))

    def open(
        self, session: str, dataset: str, reserved: str, price: str | None = None, *, reserve: str = "", **more: Any
    ) -> None:
        """A header, and what it reserves; ``known`` are measurements of others that it starts from."""
        pure, known = more.pop("pure", None), more.pop("known", None)
        plan = {
            "reserved": reserved,
            "reserved_pure": pure,
            "cost_per_update": price,
            "cost_per_update_pure": None,
            "purchase": None,
            "order": ORDER,
            "delta": 1e-6,
            "beta": 0.05,
            "error_bound": 10.5,
            "epsilon_alone": 0.5,
            "epsilon": 0.25,
            "regime": "renyi",
            "max_queries": None,
            "max_updates": None,
            "calibration": "rdp",
            "update_bound": None,
            "progress": None,
            "race": None,
        }
        opening = {
            "dataset": self.declared[dataset].descriptor() | more.pop("described", {}),
            "mechanism": {"construction": "mw", "epsilon": 0.25} | more.pop("mechanism", {}),
            "plan": plan | more.pop("plan", {}),
            **({} if known is None else {"evidence": {"known": known, "made": []}}),
        }
        at = self.at
        line = writing.header(session=session, opening=opening, opened_at=at)
        self.lines.append(line)
        self.heads[session] = (sha256(line), 0)
        self.sets[session] = dataset
        self.move("reserve", session, reserve or reserved, pure, recorded_at=at)

    def answer(self, session: str, source: str = "hypothesis", **more: Any) -> None:
        fields: dict[str, Any] = {"query": b'{"type":"x"}', "values": [1.5], "error_bound": 10.5, "unverified": False}
        fields |= {"asked": records.canonical({"type": "predicate", "where": {"age": 3}})} | more
        self._entry(session, writing.answer_entry, source=source, **fields)

    def forfeit(self, session: str, price: Mapping[str, str | None] | None = None) -> None:
        self._entry(session, writing.forfeit_entry, price=price)

    def measurement(self, session: str, cost: str) -> str:
        """The record of what a session's next entry measures; its hash."""
        measured = {
            "cost": {"renyi": cost, "pure": None},
            "measurement": {"noise": {"kind": "gaussian", "scale": "5.5"}},
        }
        line = writing.measurement_record(
            session=session, sequence=self.heads[session][1] + 1, measured=measured, recorded_at=self.at
        )
        self.lines.append(line)
        return sha256(line)

    def _entry(self, session: str, make: Any, **fields: Any) -> None:
        head, sequence = self.heads[session]
        sealed = make(sequence=sequence + 1, recorded_at=self.at, previous_hash=head, **fields)
        self.heads[session] = (sealed.entry_hash, sequence + 1)
        self.lines.append(sealed.line)


def honest() -> Writer:
    """A small log in which everything follows."""
    log = Writer()
    log.principal("created", "ana")
    log.register("people")
    log.open("s1", "people", "0.2", "0.05")
    log.answer("s1")
    log.move("charge", "s1", "0.05", sequence=2)
    log.answer("s1", "measurement")
    log.move("charge", "s1", "0.05", sequence=3)
    log.forfeit("s1")
    log.move("return", "s1", "0.1")
    log.open("r1", "people", "0.1", mechanism={"method": "gaussian", "workload": {"marginals": 2}})
    log.measurement("r1", "0.03")
    log.move("charge", "r1", "0.03", sequence=1)
    log.answer("r1", "measurement")
    log.retire("people")
    log.principal("key replaced", "ana")
    return log
