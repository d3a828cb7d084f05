"""Direct mechanisms: every question is measured on its own, with noise that all of them share the budget for.

With k questions the noise of each may cost a k-th of the session's share at the ledger's order; or, where the session
takes all that is left of a budget from which nothing but pure noise was ever paid, have a k-th of its epsilon as pure
differential privacy (docs/privacy.md, 8.1): for few questions that is less noise. All k noises stay within L with
probability 1 - beta, which is the error bound: ``L = b ln(k/beta)`` for discrete Laplace noise, as for the noise of a
test, and ``L = sigma sqrt(2 ln(2k/beta))`` for discrete Gaussian noise, which is subgaussian with parameter sigma
(Canonne, Kamath, Steinke 2020, corollary 17).
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial

from app.bisection import least_integer_near
from app.constructions.mechanism import DirectMechanism, DirectNoise
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer, Plan
from app.curator.request import SessionRequest
from app.privacy.calibration import per_hit
from app.privacy.costs import (
    GREATEST_GAUSSIAN_SCALE,
    GREATEST_LAPLACE_SCALE,
    DiscreteGaussianAnswer,
    DiscreteLaplaceAnswer,
    renyi_cost,
)
from app.privacy.ledger import Amounts, Regime

#: Scales are whole multiples of 2^-16 grid units.
_SCALE_BITS = 16


def direct(dataset: PublicDataset, request: SessionRequest) -> Offer[Plan]:
    """The offer of a session that measures every question.

    Raises:
        PlanInfeasible, PrivacyError: when no noise can be paid.
    """
    assert isinstance(request.mechanism, DirectMechanism)
    noise = request.mechanism.construction
    if request.max_updates is not None:
        raise PlanInfeasible(f"{noise} takes no max_updates: every answer is a measurement")
    if request.calibration != "rdp" or request.release != "single":
        raise PlanInfeasible(f"{noise} is calibrated by rdp, and its release is single: leave both out")
    budget, bits = dataset.budget, dataset.space.answer_bits
    sensitivity = int(dataset.space.sensitivity * (1 << bits))
    regime: Regime = "renyi"
    share = dataset.share(request.epsilon)
    each = per_hit(share, request.max_queries)
    units = _least_scale(noise, each, budget.order, sensitivity) if each else None
    if noise == "laplace" and dataset.admits_pure(request.epsilon):
        pure = _least_pure_scale(per_hit(request.epsilon, request.max_queries), sensitivity)
        if pure is not None and (units is None or pure < units):
            units, regime = pure, "pure"
    if units is None:
        raise PlanInfeasible(
            "the noise passes 62 bits of the answer grid: raise epsilon, or ask fewer queries"
            if each
            else "so small a share does not pay for so many questions: raise epsilon, or ask fewer"
        )
    event = event_of(noise, units, sensitivity)
    price = Amounts.of(event, budget.order)
    needed = price.times(request.max_queries)
    plan = partial(
        Plan,
        noise=noise,
        direct=True,
        scale=units / (1 << bits),
        noise_bound_units=noise_bound(noise, units, request.max_queries, request.beta),
        threshold_units=0,
        max_updates=request.max_queries,
        cost_per_update=price.renyi,
        cost_per_update_pure=price.pure,
        guaranteed=True,
        update_bound=request.max_queries,
        bound_status="bound",
        step_size=None,
    )
    return Offer(
        plan=plan,
        price=needed,
        most=None if regime == "pure" else replace(needed, renyi=share),
        events=((event, request.max_queries),),
        regime=regime,
        guarantees=request.epsilon if regime == "pure" else None,
    )


def event_of(noise: DirectNoise, units: Fraction, sensitivity: int) -> DiscreteLaplaceAnswer | DiscreteGaussianAnswer:
    """The event that one answer costs budget by: its noise of this scale, in grid units, and its sensitivity in the
    same.
    """
    if noise == "laplace":
        return DiscreteLaplaceAnswer(units, sensitivity)
    return DiscreteGaussianAnswer(units, sensitivity**2)


@lru_cache(maxsize=1024)
def _least_scale(noise: DirectNoise, cost: Decimal, order: Decimal, sensitivity: int) -> Fraction | None:
    """The least scale, in grid units, of noise that costs no more; None where it would be too large to be drawn."""
    most = GREATEST_LAPLACE_SCALE if noise == "laplace" else GREATEST_GAUSSIAN_SCALE
    # The cost of Gaussian noise, which that of Laplace noise is about while it is small.
    guess = sensitivity * math.sqrt(float(order) / (2 * float(cost)))

    def meets(count: int) -> bool:
        return renyi_cost(event_of(noise, Fraction(count, 1 << _SCALE_BITS), sensitivity), order) <= cost

    greatest = int(most * (1 << _SCALE_BITS))
    first = min(max(1, round(guess * 2**_SCALE_BITS)), greatest)
    found = least_integer_near(meets, first, 1, greatest)
    return None if found is None else Fraction(found, 1 << _SCALE_BITS)


def _least_pure_scale(epsilon: Decimal, sensitivity: int) -> Fraction | None:
    """The least scale, in grid units, of Laplace noise of no more pure epsilon; None where it cannot be drawn."""
    if not epsilon:
        return None
    units = Fraction(math.ceil(sensitivity / Fraction(epsilon) * (1 << _SCALE_BITS)), 1 << _SCALE_BITS)
    return units if units <= GREATEST_LAPLACE_SCALE else None


def noise_bound(noise: DirectNoise, units: Fraction, queries: int, beta: float) -> int:
    """L in grid units, which so many noises of this scale all keep with probability 1 - beta.

    It is a unit more than the noise needs, as private values are rounded to the grid.
    """
    tail = math.log(queries / beta) if noise == "laplace" else math.sqrt(2 * math.log(2 * queries / beta))
    return math.ceil(float(units) * (1 + 2.0**-40) * tail) + 1
