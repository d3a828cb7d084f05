"""Mechanisms side by side: their plans for one task, and the noise on every answer that they have to beat.

The plain alternative answers each of the k queries with discrete Gaussian noise. At the ledger's order a such an
answer costs ``a gamma^2/(2 sigma^2)`` (the discrete Gaussian's Renyi divergence is at most the continuous one's:
Canonne, Kamath, Steinke 2020), so a share S pays for k of them, chosen adaptively, with

    sigma = gamma sqrt(a k / (2 S)),      all errors within sigma sqrt(2 ln(2k/beta)) with probability 1 - beta

(its tails are sub-Gaussian with the same sigma). It learns nothing from its answers: its error grows as the square
root of k, where a plan's grows with the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.planner import Plan, make_plan
from app.curator.request import SessionRequest, parse_request
from app.privacy.errors import PrivacyError
from app.spaces.errors import CuratorError, InvalidRequest

#: Mechanisms that one request may compare.
MOST_MECHANISMS = 16
_UP = 1 + 2.0**-40


@dataclass(frozen=True)
class Gaussian:
    """Independent Gaussian noise on every answer: its standard deviation and error bound, in counts."""

    sigma: float
    error_bound: float

    def document(self) -> dict[str, float]:
        """As JSON."""
        return {"sigma": self.sigma, "error_bound": self.error_bound}


@dataclass(frozen=True)
class Comparison:
    """Plans (or why there is none) in the order asked, the index of the one with the least error bound, advice."""

    requests: Sequence[SessionRequest]
    outcomes: Sequence[Plan | CuratorError]
    best: int | None
    gaussian: Gaussian
    advice: str

    def document(self, render: Callable[[CuratorError], dict[str, Any]]) -> dict[str, Any]:
        """As JSON; ``render`` makes problems of refusals."""
        plans = []
        for request, outcome in zip(self.requests, self.outcomes, strict=True):
            mechanism = request.mechanism.model_dump(mode="json", exclude_none=True)
            found = {"plan": outcome.document()} if isinstance(outcome, Plan) else {"problem": render(outcome)}
            plans.append({"mechanism": mechanism, **found})
        return {
            "plans": plans,
            "best": self.best,
            "independent_gaussian": self.gaussian.document(),
            "advice": self.advice,
        }


def parse_comparison(asked: Mapping[str, Any]) -> list[SessionRequest]:
    """One request for each of ``mechanisms``, which stands in the place of ``mechanism``.

    Raises:
        InvalidRequest: when a mechanism, or anything else, cannot be read.
    """
    mechanisms = asked.get("mechanisms")
    if "mechanism" in asked:
        raise InvalidRequest("give mechanism or mechanisms, not both")
    if not isinstance(mechanisms, list) or not 1 <= len(mechanisms) <= MOST_MECHANISMS:
        raise InvalidRequest(f"mechanisms: a list of 1 to {MOST_MECHANISMS} mechanisms")
    rest = {key: value for key, value in asked.items() if key != "mechanisms"}
    found = []
    for index, mechanism in enumerate(mechanisms):
        try:
            found.append(parse_request({**rest, "mechanism": mechanism}))
        except InvalidRequest as error:
            raise InvalidRequest(f"mechanisms.{index}: {error.detail}") from None
    return found


def independent_gaussian(dataset: PublicDataset, share: Decimal, queries: int, beta: float) -> Gaussian:
    """What a share of the budget buys when every one of ``queries`` answers gets its own noise."""
    gamma = float(dataset.space.sensitivity)
    squared = Fraction(dataset.budget.order) * queries / (2 * Fraction(share))
    sigma = gamma * math.sqrt(float(squared)) * _UP
    return Gaussian(sigma, sigma * math.sqrt(2 * math.log(2 * queries / beta)) * _UP)


def compare(dataset: PublicDataset, requests: Sequence[SessionRequest]) -> Comparison:
    """Plan every request, which differ in their mechanisms alone, and hold them against independent noise.

    Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible: when the share itself cannot be had, whatever the mechanism.
    """
    first = requests[0]
    try:
        share = dataset.budget.share(first.epsilon)
    except PrivacyError as error:
        raise PlanInfeasible(str(error)) from None
    outcomes: list[Plan | CuratorError] = []
    for request in requests:
        try:
            outcomes.append(make_plan(dataset, request))
        except CuratorError as error:
            outcomes.append(error)
    bounds = [outcome.error_bound if isinstance(outcome, Plan) else math.inf for outcome in outcomes]
    best = min(range(len(bounds)), key=bounds.__getitem__)
    gaussian = independent_gaussian(dataset, share, first.max_queries, first.beta)
    plan = outcomes[best]
    if not isinstance(plan, Plan):
        return Comparison(requests, outcomes, None, gaussian, _advice_without(gaussian, first, dataset))
    return Comparison(requests, outcomes, best, gaussian, _advice(plan, first, gaussian, dataset))


def _advice(plan: Plan, request: SessionRequest, gaussian: Gaussian, dataset: PublicDataset) -> str:
    lasts = "for all queries" if plan.guaranteed else f"until its {plan.max_updates:,} updates are used"
    if min(plan.error_bound, gaussian.error_bound) >= dataset.mass_bound:
        return (
            f"No error bound here ({min(plan.error_bound, gaussian.error_bound):.6g} at best) is below the data's "
            f"whole mass, {dataset.mass_bound:.6g}: answering 0 is as good. Raise epsilon, ask fewer queries, or allow "
            "fewer updates."
        )
    if gaussian.error_bound < plan.error_bound:
        # The one grows as the square root of the queries, the other hardly.
        enough = request.max_queries * (plan.error_bound / gaussian.error_bound) ** 2
        return (
            f"Independent Gaussian noise on each of the {request.max_queries:,} answers is better: "
            f"{gaussian.error_bound:.6g} against {plan.error_bound:.6g} for the best mechanism. A session pays off "
            f"from some {enough:.2g} queries on."
        )
    return (
        f"The least error bound, {plan.error_bound:.6g} {lasts}, beats the {gaussian.error_bound:.6g} of independent "
        f"Gaussian noise on each of the {request.max_queries:,} answers."
    )


def _advice_without(gaussian: Gaussian, request: SessionRequest, dataset: PublicDataset) -> str:
    useful = gaussian.error_bound < dataset.mass_bound
    return (
        f"None of the mechanisms has a plan; independent Gaussian noise on each of the {request.max_queries:,} answers "
        f"has an error bound of {gaussian.error_bound:.6g}"
        + ("." if useful else f", no better than answering 0 (the data's mass is at most {dataset.mass_bound:.6g}).")
        + (" Give max_updates for a best-effort plan." if request.max_updates is None else "")
    )
