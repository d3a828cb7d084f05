"""The opening of a session: everything that its answers follow from, beside the queries.

A transcript's header is the one written form of it, and :class:`Header` its one reader. What a header states and what
follows from it are two things: :meth:`Header.opening` computes the plan anew from the data set's declaration and the
request, as an audit must and as answers need; who only tells what was stated reads :class:`StatedPlan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

import orjson

from app.constructions.base import Construction
from app.constructions.registry import construct
from app.curator.dataset import Bought, PublicDataset
from app.curator.feasibility import find_plan
from app.curator.plan import BoundStatus, Plan, SessionPlan
from app.curator.promises import worst_case
from app.curator.request import SessionRequest
from app.declarations.errors import InvalidRequest
from app.keeping import Kept
from app.privacy.ledger import Amounts, Regime

#: What is made of a long declaration takes about so many times its bytes.
FACTOR = 32
#: Data sets that were read lately, by their descriptors.
_SHARED: Kept[PublicDataset] = Kept(FACTOR << 20, 8)
held = _SHARED.held


@dataclass(frozen=True)
class Pins:
    """The measurements that a session starts from, by the hashes of their records.

    Attributes:
        known: what was measured of the data set before, by other sessions.
        made: what the session measured at its opening.
    """

    known: tuple[str, ...]
    made: tuple[str, ...]

    def document(self) -> dict[str, list[str]]:
        """As JSON."""
        return {"known": list(self.known), "made": list(self.made)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none, or names a measurement twice, which would count twice.
        """
        known, made = document["known"], document["made"]
        if not all(isinstance(hashes, list) and all(isinstance(h, str) for h in hashes) for hashes in (known, made)):
            raise TypeError("measurements are named by their hashes")
        if len({*known, *made}) < len(known) + len(made):
            raise ValueError("a measurement is named twice")
        return cls(tuple(known), tuple(made))


@dataclass(frozen=True)
class Opening:
    """The facts that a session was opened on, and its promises.

    Attributes:
        dataset: what was public of the data set before the session.
        request: what was asked for.
        plan: what follows from both.
        bought: the fact that the session released at its opening, its first release; None where it needed none.
        evidence: the measurements that an evidence session starts from; None for others.
    """

    dataset: PublicDataset
    request: SessionRequest
    plan: SessionPlan
    bought: Bought | None = None
    evidence: Pins | None = None

    @cached_property
    def prior(self) -> PublicDataset:
        """The public facts before the first query, the fact released at the opening among it: the hypothesis starts
        from that.
        """
        if self.plan.purchase is None or self.bought is None:
            return self.dataset
        return self.dataset.with_bought(self.plan.purchase.fact, self.bought)

    def construction(self) -> Construction:
        """The construction that keeps the session's hypothesis."""
        plan, prior = self.plan, self.prior
        assert isinstance(plan, Plan)
        return construct(self.request.iterative, prior.space, prior.facts, plan.progress, plan.max_queries)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        document: dict[str, Any] = {
            "dataset": self.dataset.descriptor(),
            "mechanism": self.request.document(),
            "plan": self.plan.document(),
        }
        if self.bought is not None:
            document["bought"] = self.bought.document()
        if self.request.dummy:
            document["dummy"] = True
        if self.evidence is not None:
            document["evidence"] = self.evidence.document()
        return document

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The opening that a document describes, its plan computed anew.

        Raises:
            CuratorError, PrivacyError, KeyError, TypeError: when it describes none.
        """
        return cls.planned(Stated.of(document))

    @classmethod
    def planned(cls, stated: Stated) -> Self:
        """The opening of what is stated: the plan follows, and whether anything is bought.

        Raises:
            PlanInfeasible: when there is no such plan.
            InvalidRequest: when it says of nothing that is bought what came of it.
        """
        # Where there is none, as for a header that was made up, no search for changes that would do takes time.
        plan = find_plan(stated.dataset, stated.request)
        if plan.purchase is not None and stated.bought is None:
            raise InvalidRequest("the session buys a fact, and does not say what came of it")
        bought = None if plan.purchase is None else stated.bought
        return cls(stated.dataset, stated.request, plan, bought, stated.evidence)


@dataclass(frozen=True)
class Stated:
    """The statements of an opening's document, taken apart and not computed with: all but the plan."""

    dataset: PublicDataset
    request: SessionRequest
    bought: Bought | None
    evidence: Pins | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            CuratorError, KeyError, TypeError, ValueError, ArithmeticError: when it states none.
        """
        dataset = PublicDataset.from_descriptor(document["dataset"])
        request = SessionRequest.from_document(document["mechanism"], dataset.spec.name)
        if document.get("dummy") is True:
            request = request.model_copy(update={"dummy": True})
        bought = Bought.of(document["bought"]) if "bought" in document else None
        evidence = Pins.of(document["evidence"]) if request.mechanism.from_evidence else None
        return cls(dataset, request, bought, evidence)


@dataclass(frozen=True)
class StatedPlan:
    """The plan that a header states; amounts are exact at the ledger's order.

    ``fixed_price`` tells whether all rounds cost the same.
    """

    epsilon: Decimal
    reserved: Decimal
    reserved_pure: Decimal | None
    regime: Regime
    max_queries: int | None
    max_updates: int | None
    calibration: str
    update_bound: int | None
    progress: float | None
    fixed_price: bool

    @property
    def holds(self) -> Amounts:
        """The amounts that the session reserved at its opening."""
        return Amounts(self.reserved, self.reserved_pure)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the document of a plan."""
        return cls(
            epsilon=Decimal(repr(document["epsilon"])),
            reserved=Decimal(document["reserved"]),
            reserved_pure=None if document["reserved_pure"] is None else Decimal(document["reserved_pure"]),
            regime=document["regime"],
            max_queries=document["max_queries"],
            max_updates=document["max_updates"],
            calibration=document["calibration"],
            update_bound=document["update_bound"],
            progress=document["progress"],
            # Evidence pays for openings too, so its records tell each price.
            fixed_price=document["cost_per_update"] is not None and "mode" not in document,
        )


@dataclass(frozen=True)
class Header:
    """A transcript's header as it stands: whose it is, when it was opened, and the opening's document, unchecked."""

    session: str
    opened_at: str
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, line: bytes) -> Self:
        """From the line, which this service wrote."""
        return cls.of(orjson.loads(line))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From the parsed line.

        Raises:
            KeyError: when a field is missing.
        """
        stated = {name: record[name] for name in ("dataset", "mechanism", "plan")}
        stated |= {name: record[name] for name in ("bought", "dummy", "evidence") if name in record}
        return cls(record["session"], record["opened_at"], stated)

    @cached_property
    def plan(self) -> StatedPlan:
        """The plan as it is written."""
        return StatedPlan.of(self.document["plan"])

    @property
    def dummy(self) -> bool:
        """Whether the session is on made-up records."""
        return "dummy" in self.document

    @property
    def pins(self) -> Pins | None:
        """The measurements that an evidence session starts from; None for others.

        Raises:
            KeyError, TypeError: when the header describes none.
        """
        return Pins.of(self.document["evidence"]) if "evidence" in self.document else None

    def stated(self) -> Stated:
        """All but the plan, taken apart.

        Raises:
            CuratorError, KeyError, TypeError, ValueError, ArithmeticError: when the header states none.
        """
        return Stated.of(self.document)

    def opening(self) -> Opening:
        """The opening, computed anew.

        Raises:
            CuratorError, PrivacyError, KeyError, TypeError: when the header describes none.
        """
        return Opening.of(self.document)

    def bound_status(self) -> BoundStatus:
        """The ``update_bound`` of the plan, or why there is none."""
        if not self.plan.fixed_price:
            return "no-worst-case-bound"
        if self.plan.update_bound is not None or self.plan.progress is None:
            return "bound"
        dataset = _shared(orjson.dumps(self.document["dataset"]))
        mechanism = SessionRequest.from_document(self.document["mechanism"], dataset.spec.name).iterative
        queries = self.document["plan"]["max_queries"]
        return worst_case(dataset, mechanism, self.plan.progress, queries)[1]


def _shared(descriptor: bytes) -> PublicDataset:
    """The data set of a descriptor. Reading a long declaration takes milliseconds, and sessions in a list share it."""
    return _SHARED.get(
        descriptor, lambda: PublicDataset.from_descriptor(orjson.loads(descriptor)), lambda _: FACTOR * len(descriptor)
    )
