"""Plans as values: what a session's rounds do, what a session promises, and why a request has no plan.

Numbers with ``_units`` are whole units of the answer grid, ``2^-answer_bits`` counts each; all other scales, bounds and
thresholds are in counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.expectation import Expectation
from app.curator.facts import Purchase as FactPurchase
from app.curator.request import SessionRequest
from app.measurements.record import Purchase
from app.measurements.strategy import Strategy
from app.policies.foretelling import Paid
from app.privacy.conversion import epsilon_alone
from app.privacy.costs import PrivacyEvent
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts, Regime, total

#: What ``update_bound`` says, or why it says nothing:
#: ``bound`` (the worst-case number of updates at this plan's progress), ``above-limit`` (there is such a number, and it
#: passes :data:`app.curator.promises.MOST_UPDATES`), ``fact-unknown`` (it depends on a mass or norm that is not public,
#: which this session buys at opening or another one must), ``no-worst-case-bound`` (a step or form without any promise
#: on its updates).
BoundStatus = Literal["bound", "above-limit", "fact-unknown", "no-worst-case-bound"]
#: Why there is no plan: a ``part-of-epsilon`` where a calibration takes all of it; ``no-guarantee`` at any number of
#: updates; a ``large-state`` that the construction cannot hold.
Cause = Literal["part-of-epsilon", "no-guarantee", "large-state"]


@dataclass(frozen=True)
class Race:
    """A Poisson race: mean M of the secret number of comparisons, and ``cut``, where that number is cut off."""

    mean: Decimal
    cut: int

    def document(self) -> dict[str, float]:
        """As JSON."""
        return {"mean": float(self.mean), "cut": self.cut}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms that all rounds of a session have in common.

    Attributes:
        scale: Laplace scale b in counts, exact.
        noise_bound_units: L, which all noises keep with the plan's probability.
        threshold_units: T.
        answer_bits: of the answer grid.
        max_updates: how many updates the terms are made for.
        cost_per_update: Renyi divergence at the ledger's order.
        race: where a round compares more than once.
    """

    scale: Fraction
    noise_bound_units: int
    threshold_units: int
    answer_bits: int
    max_updates: int
    cost_per_update: Decimal
    race: Race | None = None

    @property
    def noise_scale_units(self) -> Fraction:
        """The scale of the discrete Laplace noise on the answer grid."""
        return self.scale * (1 << self.answer_bits)

    @property
    def noise_bound(self) -> float:
        """L in counts."""
        return math.ldexp(self.noise_bound_units, -self.answer_bits)

    @property
    def error_bound(self) -> float:
        """T + L in counts (T for a race); an answer's own bound adds what rounding of its weights can move."""
        noise = 0 if self.race is not None else self.noise_bound_units
        return math.ldexp(self.threshold_units + noise, -self.answer_bits)

    @property
    def progress(self) -> float:
        """alpha = T - L in counts: an update is made only at a larger true gap."""
        return math.ldexp(self.threshold_units - self.noise_bound_units, -self.answer_bits)


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """The plan of a session, whatever becomes of its queries.

    Attributes:
        answer_bits: of the answer grid.
        max_updates: how many rounds may be charged.
        max_queries: k, declared or the most that there can be.
        beta: the probability with which some answer may break its error bound.
        epsilon: the session's share of the data set's epsilon.
        epsilon_alone: what the session would guarantee were it all that is ever computed from the data.
        delta: the data set's.
        calibration: by which the noise was found.
        release: ``single`` or ``race``.
        order: the Renyi order of the data set's ledger.
        reserved: Renyi divergence that opening the session takes from the budget, a purchase included.
        race: the Poisson race that a round is, where it is one.
        reserved_pure: the pure epsilon that it takes, where all of its noise is pure; None elsewhere.
        regime: the sum of the ledger that ``epsilon`` is a share of. In the ``pure`` one the session takes all that is
            left of it, whatever its price in the other.
        purchase: the fact bought at opening, where one is.
        buys: what is measured at the opening, in this order, where it is not known as well already.
        update_bound: the worst-case number of updates.
        bound_status: what ``update_bound`` says, or why it says nothing.
    """

    answer_bits: int
    max_updates: int
    max_queries: int
    beta: float
    epsilon: Decimal
    epsilon_alone: Decimal
    delta: Decimal
    calibration: str
    release: str
    order: Decimal
    reserved: Decimal
    race: Race | None = None
    purchase: FactPurchase | None = None
    buys: tuple[Purchase[Strategy], ...] = ()
    update_bound: int | None = None
    bound_status: BoundStatus = "no-worst-case-bound"
    reserved_pure: Decimal | None = None
    regime: Regime = "renyi"

    @property
    def holds(self) -> Amounts:
        """The amounts that the session reserves at its opening, a purchase included."""
        return Amounts(self.reserved, self.reserved_pure)

    @property
    def error_bound(self) -> float | None:
        """A bound that all answers keep with probability 1 - beta, in counts; None where no such thing is promised."""
        return None

    def expectation(self, dataset: PublicDataset, request: SessionRequest) -> Expectation | None:
        """What to expect before anything was measured of the data; None where nothing is foretold."""
        return None

    def paid(self, dataset: PublicDataset, request: SessionRequest) -> Paid | None:
        """How many questions of the accuracy that is asked for the share pays for; None where none is."""
        return None

    def document(self) -> dict[str, Any]:
        """As JSON, as a transcript's header keeps it; exact amounts are decimal strings. What a plan does not have is
        null.
        """
        return {
            "noise": None,
            "noise_scale": None,
            "threshold": None,
            "error_bound": self.error_bound,
            "noise_bound": None,
            "progress": None,
            "beta": self.beta,
            "max_updates": self.max_updates,
            "max_queries": self.max_queries,
            "guaranteed": False,
            "update_bound": self.update_bound,
            "step_size": None,
            "epsilon": float(self.epsilon),
            "epsilon_alone": float(self.epsilon_alone),
            "delta": float(self.delta),
            "calibration": self.calibration,
            "release": self.release,
            "race": None,
            "answer_grid": 2.0**-self.answer_bits,
            "order": str(self.order),
            "cost_per_update": None,
            "cost_per_update_pure": None,
            "reserved": str(self.reserved),
            "reserved_pure": _text(self.reserved_pure),
            "regime": self.regime,
            "purchase": None,
        }

    def reply(self) -> dict[str, Any]:
        """As JSON for those who ask: with what ``update_bound`` says, or why it says nothing."""
        return {**self.document(), "bound_status": self.bound_status}


#: How a session without a share goes about it.
FREE = "nothing is bought: what follows from what was measured is answered, free of charge, and the rest refused"


@dataclass(frozen=True, kw_only=True)
class EvidencePlan(SessionPlan):
    """The plan of a session that answers from all that was measured of its data set, or of a release.

    Attributes:
        mode: how it pays.
        how: that in words.
        declared: whether the number of questions was declared; a session where it was not never runs out of them.
    """

    mode: str
    how: str
    declared: bool

    @property
    def free(self) -> bool:
        """Whether the session has no share: it buys nothing, and answers what follows from measurements alone."""
        return not self.epsilon

    def document(self) -> dict[str, Any]:
        """As JSON: with the mode, and no number of queries where none was declared."""
        document = super().document() | {"mode": self.mode}
        return document if self.declared else document | {"max_queries": None, "max_updates": None}

    def reply(self) -> dict[str, Any]:
        """As JSON for those who ask: with the mode in words."""
        return super().reply() | {"how": self.how}


@dataclass(frozen=True, kw_only=True)
class Plan(Terms, SessionPlan):
    """The plan of a session whose rounds are all on the same terms, and what it promises.

    Attributes:
        noise: of which law the noise is; ``scale`` is its parameter.
        direct: whether every question is measured, without a test.
        cost_per_update_pure: what an update costs of ``reserved_pure``.
        guaranteed: whether the updates last for all queries whatever the data.
        step_size: the rate of a fixed-length step at this progress, where one is known.
    """

    guaranteed: bool
    step_size: float | None
    noise: Literal["laplace", "gaussian"] = "laplace"
    direct: bool = False
    cost_per_update_pure: Decimal | None = None

    @property
    def price(self) -> Amounts:
        """The cost of an update."""
        return Amounts(self.cost_per_update, self.cost_per_update_pure)

    @property
    def standard_error(self) -> float | None:
        """The standard deviation of an answer in counts, where every answer is a measurement; None elsewhere.

        Of discrete Laplace noise exactly; of discrete Gaussian noise sigma, which is no less.
        """
        if not self.direct:
            return None
        if self.noise == "gaussian":
            return float(self.scale)
        return math.ldexp(1 / (math.sqrt(2) * math.sinh(1 / (2 * float(self.noise_scale_units)))), -self.answer_bits)

    def document(self) -> dict[str, Any]:
        """As JSON, as a transcript's header keeps it; exact amounts are decimal strings."""
        purchase = self.purchase
        return super().document() | {
            "noise": self.noise,
            "noise_scale": float(self.scale),
            "threshold": None if self.direct else math.ldexp(self.threshold_units, -self.answer_bits),
            "noise_bound": self.noise_bound,
            "progress": None if self.direct else self.progress,
            "guaranteed": self.guaranteed,
            "step_size": self.step_size,
            "race": None if self.race is None else self.race.document(),
            "cost_per_update": str(self.cost_per_update),
            "cost_per_update_pure": _text(self.cost_per_update_pure),
            "purchase": None
            if purchase is None
            else {
                purchase.fact: {
                    "epsilon": str(purchase.epsilon),
                    "cost": str(purchase.cost),
                    "noise_scale": purchase.noise_scale,
                }
            },
        }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


class Infeasible(PlanInfeasible):
    """A request has no plan, and there may be changes to be looked for that would do (:mod:`app.curator.advice`).

    Attributes:
        cause: tells which.
        most_cells: over how many cells a state that is too large would fit, where cells are what limits it.
    """

    def __init__(self, detail: str, cause: Cause, most_cells: int | None = None) -> None:
        super().__init__(detail)
        self.cause, self.most_cells = cause, most_cells


# ---------------------------------------------------------------------- from what is offered to a plan

P_co = TypeVar("P_co", bound=SessionPlan, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Offer(Generic[P_co]):
    """A planner's offer for a request: purchases now and later, before :func:`settle` makes a plan of it.

    Attributes:
        plan: makes the plan of what :func:`settle` adds.
        buys: what it wants to have measured at the opening.
        price: what it is sure to buy costs; where it is not given, that of what is bought at the opening.
        most: what all that it may buy costs at most; where it is not given, what it is sure to buy.
        events: all that it may compute from the data, each so many times.
        regime: the sum of the ledger that it is a share of.
        guarantees: an epsilon that is kept whatever the events come to; None where none is.
    """

    plan: Callable[..., P_co]
    buys: tuple[Purchase[Strategy], ...] = ()
    price: Amounts | None = None
    most: Amounts | None = None
    events: tuple[tuple[PrivacyEvent, int], ...] = ()
    regime: Regime = "renyi"
    guarantees: Decimal | None = None


def settle(dataset: PublicDataset, request: SessionRequest, offer: Offer[P_co]) -> P_co:
    """The plan of what is offered: what it holds of the budget and what it would guarantee alone.

    In the pure regime it takes all that is left of epsilon, and of the other sum what it costs there.

    Raises:
        PrivacyError: when the budget has no such amounts.
    """
    budget = dataset.budget
    price = offer.price or total(buy.price for buy in offer.buys)
    most = offer.most or price
    holds = most if offer.regime == "renyi" else Amounts(most.renyi, floor_to(request.epsilon))
    holds.minus(price)  # refuses to promise more than is held
    kept = [] if offer.guarantees is None else [offer.guarantees]
    if offer.events:
        kept.append(_alone(offer.events, Fraction(budget.delta) - budget.set_aside))
    return offer.plan(
        answer_bits=dataset.space.answer_bits,
        max_queries=request.max_queries,
        beta=request.beta,
        epsilon=request.epsilon,
        epsilon_alone=min(kept),
        delta=budget.delta,
        calibration=request.calibration,
        release=request.release,
        order=budget.order,
        reserved=holds.renyi,
        reserved_pure=holds.pure,
        regime=offer.regime,
        buys=offer.buys,
    )


@lru_cache(maxsize=4096)
def _alone(events: tuple[tuple[PrivacyEvent, int], ...], delta: Fraction) -> Decimal:
    """The epsilon of so many of each of these events, were they all that is ever computed from the data.

    Sessions of one plan are loaded again and again; the search over orders is made once.
    """
    return epsilon_alone(events, delta)[0]
