"""Plans as values: what a session's rounds do, what a session promises, and why a request has no plan.

Numbers with ``_units`` are whole units of the answer grid, ``2^-answer_bits`` counts each; all other scales, bounds and
thresholds are in counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypedDict

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase
from app.curator.request import SessionRequest
from app.privacy.ledger import Amounts, Regime

#: What ``update_bound`` says, or why it says nothing:
#: ``bound`` (the worst-case number of updates at this plan's progress), ``above-limit`` (there is such a number, and it
#: passes :data:`app.curator.promises.MOST_UPDATES`), ``fact-unknown`` (it depends on a mass or norm that is not public,
#: which this session buys at opening or another one must), ``no-worst-case-bound`` (a step or form without any promise
#: on its updates).
BoundStatus = Literal["bound", "above-limit", "fact-unknown", "no-worst-case-bound"]
#: Why there is no plan: the ``parameters`` as they are; a ``part-of-epsilon`` where a calibration takes all of it;
#: ``no-guarantee`` at any number of updates; a ``large-state`` that the construction cannot hold.
Cause = Literal["parameters", "part-of-epsilon", "no-guarantee", "large-state"]


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
    """What every session's plan says, whatever becomes of its queries.

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
    purchase: Purchase | None = None
    update_bound: int | None = None
    bound_status: BoundStatus = "no-worst-case-bound"
    reserved_pure: Decimal | None = None
    regime: Regime = "renyi"

    @property
    def holds(self) -> Amounts:
        """What the session reserves at its opening, a purchase included."""
        return Amounts(self.reserved, self.reserved_pure)

    @property
    def error_bound(self) -> float | None:
        """What all answers keep with probability 1 - beta, in counts; None where no such thing is promised."""
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


class Stated(TypedDict):
    """What a plan says because it was asked for or declared: fields of :class:`SessionPlan`."""

    answer_bits: int
    max_queries: int
    beta: float
    epsilon: Decimal
    delta: Decimal
    calibration: str
    release: str
    order: Decimal


def stated(dataset: PublicDataset, request: SessionRequest) -> Stated:
    """What every plan of a request on a data set says."""
    budget = dataset.budget
    return Stated(
        answer_bits=dataset.space.answer_bits,
        max_queries=request.max_queries,
        beta=request.beta,
        epsilon=request.epsilon,
        delta=budget.delta,
        calibration=request.calibration,
        release=request.release,
        order=budget.order,
    )


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
        """What an update costs."""
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


@dataclass(frozen=True)
class Infeasible:
    """Why a request has no plan.

    Attributes:
        detail: one sentence, which says what to change where that is known without a search.
        cause: tells which changes are worth looking for (:mod:`app.curator.advice`); for ``parameters`` none are.
        extra: public facts that go with the refusal.
        most_cells: over how many cells a state that is too large would fit, where cells are what limits it.
    """

    detail: str
    cause: Cause = "parameters"
    extra: Mapping[str, object] = field(default_factory=dict)
    most_cells: int | None = None

    def refusal(self) -> PlanInfeasible:
        """The error that says so, without looking for changes that would do."""
        return PlanInfeasible(self.detail, **self.extra)
