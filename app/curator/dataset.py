"""The public facts of a registered data set, and its descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from app.constructions.base import PublicFacts
from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec, Spec, TableSpec, parse_spec, written
from app.measurements.noise import Law
from app.measurements.pricing import Adjacency, adjacency_of
from app.measurements.record import Purchase
from app.measurements.strategy import Strategy
from app.privacy.ledger import Amounts, Budget, amount
from app.spaces.factory import space_of
from app.spaces.space import Space

S = TypeVar("S", bound=Strategy)

_UNITS = {
    "table": "one record added or removed",
    "bipartite": "one edge added or removed, or its weight changed",
    "graph": "one edge added or removed, or its weight changed",
    "matrix": "one entry changed",
    "multiset": "one element added or removed",
}
#: The largest mass or norm that any data have: larger ones are of no data, and overflow what is computed of them.
LARGEST_FACT = 2.0**64
_DECLARED = ("name", "kind", "budget", "records_public", "access", "description")

#: A bought fact lies above the true one but for this probability.
FACT_FAILURE = 2.0**-20


@dataclass(frozen=True)
class Bought:
    """A fact bought from the budget: a noisy mass or norm, padded upward by its tail; both in counts."""

    value: float
    noise_scale: float

    def document(self) -> dict[str, float]:
        """As JSON."""
        return {"value": self.value, "noise_scale": self.noise_scale}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Bought:
        """From JSON.

        Raises:
            InvalidDataset: when it is none.
            KeyError, TypeError: as well.
        """
        value, scale = document["value"], document["noise_scale"]
        if any(type(each) not in (int, float) or not 0 < each <= LARGEST_FACT for each in (value, scale)):
            raise InvalidDataset("what was bought, or its noise, is no mass or norm of any data")
        return cls(float(value), float(scale))


@dataclass(frozen=True)
class PublicDataset:
    """Declaration, capacity and public mass of a data set; nothing else of it is known without paying.

    ``records`` is the exact mass in counts where the declaration makes it public; ``bought`` the padded noisy
    one once some session has paid for it. Neither is there before that. ``race_sessions`` counts the sessions with
    a Poisson race so far: the next one may use the smaller a part of the delta set aside. ``left`` is what is
    left of the budget, by both sums, at the moment that this is of, where a session of pure noise may take all of it;
    None where none may, as other noise was ever taken, something is reserved, or the Renyi sum has more left.
    """

    spec: Spec
    records: float | None = None
    bought: Mapping[str, Bought] = field(default_factory=dict)
    race_sessions: int = 0
    left: Amounts | None = None

    def admits_pure(self, epsilon: Decimal) -> bool:
        """Whether a session of this epsilon whose noise is all pure may be one whose price in the Renyi sum passes its
        share there: it must take all that is left.

        Where the price does not pass the share, it may be opened as any other.
        """
        return self.left is not None and epsilon == self.left.pure

    def share(self, epsilon: Decimal) -> Decimal:
        """The part of the Renyi sum that a session of this epsilon may hold: its share, or what is left where it takes
        that; nothing of an epsilon of 0.

        Raises:
            InvalidBudget: when there is no such share.
        """
        if not epsilon:
            return Decimal(0)
        share = self.budget.share(epsilon)
        return min(share, self.left.renyi) if self.left is not None and self.admits_pure(epsilon) else share

    @cached_property
    def budget(self) -> Budget:
        """The guarantee over everything ever computed from the data set."""
        return _budget(self.spec.budget.epsilon, self.spec.budget.delta)

    @cached_property
    def space(self) -> Space:
        """The universe; a public mass tightens its capacity."""
        space = space_of(self.spec)
        if self.records is None or getattr(self.spec, "capacity", None) is not None:
            return space
        return space.with_capacity(max(1, min(space.capacity, -int(-self.records // 1))))

    @property
    def gamma(self) -> int:
        """By how much the counts of a table's cells move between neighbours, all together."""
        return self.adjacency.gamma

    @cached_property
    def adjacency(self) -> Adjacency:
        """How far neighbours are apart."""
        space, unit = self.space, getattr(self.spec, "unit", None)
        side = getattr(unit, "side", None)
        return adjacency_of(space.data_bits, space.unit, space.largest, signed=space.signed, side=side)

    def purchase(self, strategy: S, noise: Law) -> Purchase[S]:
        """A measurement to be made, at its price.

        Raises:
            PrivacyError: when that is infinite at the ledger's order.
        """
        return Purchase.at(strategy, noise, self.adjacency, self.budget.order)

    @cached_property
    def facts(self) -> PublicFacts:
        """The public facts that a construction may start from."""
        norms = {name: bought.value for name, bought in self.bought.items() if name != "mass"}
        if self.records is not None:
            return PublicFacts(self.records, norms=norms)
        mass = self.bought.get("mass")
        return PublicFacts(None if mass is None else mass.value, padded=mass is not None, norms=norms)

    @cached_property
    def mass_bound(self) -> float:
        """Largest mass the data can have, as far as is public: bounds what rounding of weights can move."""
        return float(self.space.capacity) if self.facts.mass is None else self.facts.mass

    def with_bought(self, fact: str, bought: Bought) -> PublicDataset:
        """The same data set after a fact was bought."""
        return replace(self, bought={**self.bought, fact: bought})

    def with_mass(self, mass: float) -> PublicDataset:
        """The same declaration with another mass in place of the known one, if one is known."""
        if self.records is not None:
            return replace(self, records=mass)
        bought = self.bought.get("mass")
        return self if bought is None else self.with_bought("mass", replace(bought, value=mass))

    def descriptor(self) -> dict[str, Any]:
        """The public descriptor, without what was spent."""
        declared = written(self.spec)
        space = self.space
        document: dict[str, Any] = {
            "name": self.spec.name,
            "kind": self.spec.kind,
            "description": self.spec.description,
            "domain": {key: value for key, value in declared.items() if key not in _DECLARED},
            "privacy_unit": _unit(self.spec),
            "gamma": float(space.unit),
            "shape": list(space.shape),
            "cells": None if space.extent == "unbounded" else _number(space.size),
            "capacity": space.capacity,
            "access": self.spec.access,
            "records_public": self.spec.records_public,
            "budget": {"epsilon": float(self.spec.budget.epsilon), "delta": float(self.spec.budget.delta)},
        }
        if self.records is not None:
            document["records"] = self.records
        if self.bought:
            document["bought"] = {name: bought.document() for name, bought in self.bought.items()}
        if self.race_sessions:
            document["race_sessions"] = self.race_sessions
        if self.left is not None:
            document["left"] = {"renyi": str(self.left.renyi), "pure": float(self.left.pure or 0)}
        return document

    @classmethod
    def from_descriptor(cls, document: Mapping[str, Any]) -> PublicDataset:
        """The data set a descriptor speaks of.

        Raises:
            InvalidDataset: when it is none.
        """
        declared = {key: document[key] for key in _DECLARED if key in document} | dict(document["domain"])
        budget = document["budget"]
        declared["budget"] = {"epsilon": budget["epsilon"], "delta": budget["delta"]}
        spec, left = parse_spec(declared), document.get("left")
        records, races = document.get("records"), document.get("race_sessions", 0)
        check_records(spec, records)
        if type(races) is not int or races < 0:
            raise InvalidDataset("race_sessions: a whole number, 0 or more")
        return cls(
            spec,
            records,
            {name: Bought.of(bought) for name, bought in document.get("bought", {}).items()},
            races,
            None if left is None else _left(left, spec.budget.epsilon),
        )


def check_records(spec: Spec, records: Any) -> None:
    """Refuse what a stranger tells of the number of records.

    Raises:
        InvalidDataset: when it is no such number, or not told where it is public, and there alone.
    """
    if records is not None and (type(records) not in (int, float) or not 0 <= records <= LARGEST_FACT):
        raise InvalidDataset("records: a number, 0 or more")
    if (records is None) is spec.mass_public:
        raise InvalidDataset("records: told where they are public, and there alone")


def _unit(spec: Spec) -> str:
    """The difference between neighbouring data sets."""
    match spec:
        case TableSpec(unit=unit) if unit is not None:
            return f'one person ("{unit.column}") with all of up to {unit.max_records:,} records added or removed'
        case BipartiteSpec(unit=unit) if unit is not None:
            return f"one node of the {unit.side} side with all of up to {unit.max_edges:,} edges added or removed"
        case GraphSpec(unit=unit) if unit is not None:
            return f"one node with all of up to {unit.max_edges:,} edges that leave it added or removed"
    return _UNITS[spec.kind]


def _left(document: Mapping[str, Any], epsilon: Decimal) -> Amounts:
    """The remaining budget that a descriptor states."""
    left = Amounts(amount(Decimal(document["renyi"])), Decimal(repr(document["pure"])))
    if not left.pure or not 0 < left.pure <= epsilon:
        raise InvalidDataset("left.pure: more than 0, and no more than the budget's epsilon")
    return left


@lru_cache(maxsize=256)
def _budget(epsilon: Decimal, delta: Decimal) -> Budget:
    """The search for the order is the same for all sessions of a data set."""
    return Budget.of(epsilon, delta)


def _number(value: int) -> int | float | None:
    """A size as a JSON number: beyond 2^53 the nearest one, and None where there is none near."""
    if value < 2**53:
        return value
    return float(value) if value.bit_length() < 1024 else None
