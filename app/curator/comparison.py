"""Mechanisms side by side: their plans for one task, and the noise on every answer that they have to beat.

**Which is best.** An error bound holds until a plan's updates are used, and is much the same for every mechanism with
the same number of them: it says nothing of how far they go. So plans are held against each other by the error that
each keeps *for all k queries, for certain* (:func:`app.curator.promises.certain_error`):

1. a guaranteed plan, and one whose worst-case bound on updates is within ``max_updates``, keeps its error bound;
2. another one would keep the error of a threshold so wide that the bound is within ``max_updates``, with the same
   noise (a mass that is not public counts as the largest that it can be, for every mechanism alike);
3. one without a worst-case bound (``full``, ``refit``, a sample) keeps none, and comes after all that do.

The least such error is the best. Among equal ones the lesser worst-case number of updates is, then the lesser error
bound, then the mechanism whose JSON sorts first: never the order of the request. This compares promises. How soon a
hypothesis is good on data that no adversary has chosen is measured, not planned (docs/applications.md).

The plain alternative answers each of the k queries with discrete Gaussian noise. At the ledger's order a such an
answer costs ``a gamma^2/(2 sigma^2)`` (the discrete Gaussian's Renyi divergence is at most the continuous one's:
Canonne, Kamath, Steinke 2020), so a share S pays for k of them, chosen adaptively, with

    sigma = gamma sqrt(a k / (2 S)),      all errors within sigma sqrt(2 ln(2k/beta)) with probability 1 - beta

(its tails are sub-Gaussian with the same sigma). It learns nothing from its answers: its error grows as the square
root of k, where a plan's grows with the logarithm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Plan, SessionPlan
from app.curator.planning import make_plan
from app.curator.promises import certain_error
from app.curator.request import SessionRequest, parse_session
from app.declarations.errors import CuratorError, InvalidRequest
from app.privacy.errors import PrivacyError

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
    """Plans (or why there is none) in the order asked, what each keeps for certain, the index of the best, advice."""

    requests: Sequence[SessionRequest]
    outcomes: Sequence[SessionPlan | CuratorError]
    certain: Sequence[float | None]
    best: int | None
    gaussian: Gaussian
    advice: str

    def document(self, render: Callable[[CuratorError], dict[str, Any]]) -> dict[str, Any]:
        """As JSON; ``render`` makes problems of refusals."""
        plans: list[dict[str, Any]] = []
        for request, outcome, certain in zip(self.requests, self.outcomes, self.certain, strict=True):
            mechanism = request.mechanism.model_dump(mode="json", exclude_none=True)
            if isinstance(outcome, SessionPlan):
                plans.append({"mechanism": mechanism, "plan": outcome.reply(), "certain_error": certain})
            else:
                plans.append({"mechanism": mechanism, "problem": render(outcome)})
        return {"plans": plans, "best": self.best, **self.line()}

    def line(self, expected: float | None = None) -> dict[str, Any]:
        """The line to beat, and whether it is better, as JSON.

        Args:
            expected: the standard error that is foretold of answers, where no bound is promised.
        """
        best = None if self.best is None else self.outcomes[self.best]
        bound = best.error_bound if isinstance(best, SessionPlan) else None
        if bound is not None:
            # Noise is not better than itself, whatever rounding makes of its scale.
            itself = isinstance(best, Plan) and _is_gaussian(best)
            better = self.gaussian.error_bound < bound and not itself
        else:
            better = expected is None or self.gaussian.sigma < expected
        return {"independent_gaussian": {**self.gaussian.document(), "better": better}, "advice": self.advice}


def parse_comparison(asked: Mapping[str, Any]) -> list[SessionRequest]:
    """One request for each of ``mechanisms``, which is given instead of ``mechanism``.

    Raises:
        InvalidRequest: when a mechanism, or anything else, cannot be read.
    """
    mechanisms = asked.get("mechanisms")
    if "mechanism" in asked:
        raise InvalidRequest("give mechanism or mechanisms, not both")
    if not isinstance(mechanisms, list) or not 1 <= len(mechanisms) <= MOST_MECHANISMS:
        raise InvalidRequest(f"mechanisms: a list of 1 to {MOST_MECHANISMS} mechanisms")
    common = {key: value for key, value in asked.items() if key != "mechanisms"}
    found = []
    for index, mechanism in enumerate(mechanisms):
        try:
            found.append(parse_session({**common, "mechanism": mechanism}))
        except InvalidRequest as error:
            within = re.sub(r"(^|; )mechanism(?=[.:])", rf"\1mechanisms.{index}", error.detail)
            raise InvalidRequest(within if within != error.detail else f"mechanisms.{index}: {within}") from None
    return found


def independent_gaussian(dataset: PublicDataset, share: Decimal, queries: int, beta: float) -> Gaussian:
    """The noise that a share of the budget buys when every one of ``queries`` answers gets its own noise."""
    gamma = float(dataset.space.sensitivity)
    squared = Fraction(dataset.budget.order) * queries / (2 * Fraction(share))
    sigma = gamma * math.sqrt(float(squared)) * _UP
    return Gaussian(sigma, sigma * math.sqrt(2 * math.log(2 * queries / beta)) * _UP)


def compare(
    dataset: PublicDataset, requests: Sequence[SessionRequest], plan: Callable[[SessionRequest], SessionPlan]
) -> Comparison:
    """Plan every request, which differ in their mechanisms alone, and hold them against independent noise.

    Reads public facts only: the same for neighbouring data.

    Args:
        dataset: what is public of the data set.
        requests: one for each mechanism.
        plan: the plan of a request; raises a CuratorError where there is none.

    Raises:
        PlanInfeasible: when the share itself cannot be had, whatever the mechanism.
    """
    outcomes: list[SessionPlan | CuratorError] = []
    for request in requests:
        try:
            outcomes.append(plan(request))
        except CuratorError as error:
            outcomes.append(error)
    return weigh(dataset, requests, outcomes)


def weigh(
    dataset: PublicDataset, requests: Sequence[SessionRequest], outcomes: Sequence[SessionPlan | CuratorError]
) -> Comparison:
    """Compare the plans of requests that differ in their mechanisms alone.

    Raises:
        PlanInfeasible: when the share itself cannot be had, whatever the mechanism.
    """
    first = requests[0]
    try:
        share = dataset.budget.share(first.epsilon)
    except PrivacyError as error:
        raise PlanInfeasible(str(error)) from None
    gaussian = independent_gaussian(dataset, share, first.max_queries, first.beta)
    certain = [
        certain_error(dataset, request, outcome) if isinstance(outcome, Plan) else None
        for request, outcome in zip(requests, outcomes, strict=True)
    ]
    ranks = {
        index: _rank(request, outcome, certain[index])
        for index, (request, outcome) in enumerate(zip(requests, outcomes, strict=True))
        if isinstance(outcome, Plan)
    }
    best = min(ranks, key=ranks.__getitem__, default=None)
    plan = None if best is None else outcomes[best]
    if best is None or not isinstance(plan, Plan):
        unbound = any(isinstance(outcome, SessionPlan) for outcome in outcomes)
        advice = _advice_unbound(gaussian, first) if unbound else _advice_without(gaussian, requests, dataset)
    else:
        advice = _advice(plan, certain[best], first, gaussian, dataset)
    return Comparison(requests, outcomes, certain, best, gaussian, advice)


def _rank(request: SessionRequest, plan: Plan, certain: float | None) -> tuple[float, float, float, str]:
    """The lesser the better; plans of different mechanisms never have the same."""
    return (
        math.inf if certain is None else certain,
        math.inf if plan.update_bound is None else plan.update_bound,
        plan.error_bound,
        request.mechanism.model_dump_json(exclude_none=True),
    )


def _advice(
    plan: Plan, certain: float | None, request: SessionRequest, gaussian: Gaussian, dataset: PublicDataset
) -> str:
    line = f"independent Gaussian noise on each of the {request.max_queries:,} answers"
    if min(plan.error_bound, gaussian.error_bound) >= dataset.mass_bound:
        return (
            f"No error bound here ({min(plan.error_bound, gaussian.error_bound):.6g} at best) is below the data's "
            f"whole mass, {dataset.mass_bound:.6g}: answering 0 is as good. Raise epsilon, ask fewer queries, or allow "
            "fewer updates."
        )
    if _is_gaussian(plan):
        return f"The best mechanism is {line}: its error bound is {plan.error_bound:.6g}, for all queries."
    if gaussian.error_bound < plan.error_bound:
        better = (
            f"I{line[1:]} is better: {gaussian.error_bound:.6g} against {plan.error_bound:.6g} for the best mechanism."
        )
        if plan.direct:
            # Whose noise grows faster with the number of queries.
            return better
        # The one grows as the square root of the queries, the other hardly.
        enough = request.max_queries * (plan.error_bound / gaussian.error_bound) ** 2
        return f"{better} A session pays off from some {enough:.2g} queries on."
    beats = f"The best mechanism's error bound, {plan.error_bound:.6g}, beats the {gaussian.error_bound:.6g} of {line}"
    if certain is not None and certain <= plan.error_bound:
        return f"{beats}, for all queries."
    lasts = f"{beats} until its {plan.max_updates:,} updates are used. "
    if certain is None:
        lasts += "Nothing promises that they last for all queries"
    else:
        lasts += f"That they last for all queries is certain only of an error of {certain:.6g}"
    if certain is None or gaussian.error_bound < certain:
        return f"{lasts}: where a bound must hold for all of them, the Gaussian noise is better."
    return f"{lasts}, which beats the Gaussian noise too."


def _is_gaussian(plan: Plan) -> bool:
    """Whether it is the line to beat: Gaussian noise on each answer."""
    return plan.direct and plan.noise == "gaussian"


def _advice_unbound(gaussian: Gaussian, request: SessionRequest) -> str:
    line = "Each answer says how well it is known; no bound of all answers at once is promised"
    if not request.declared:
        return f"{line}. Ask for a contract where one is needed."
    return (
        f"{line} (ask for a contract where one is needed). Independent Gaussian noise on each of the "
        f"{request.max_queries:,} answers would have a standard deviation of {gaussian.sigma:.6g}."
    )


def _advice_without(gaussian: Gaussian, requests: Sequence[SessionRequest], dataset: PublicDataset) -> str:
    first, useful = requests[0], gaussian.error_bound < dataset.mass_bound
    effort = first.max_updates is None and any(_best_effort(dataset, request) for request in requests)
    return (
        f"None of the mechanisms has a plan; independent Gaussian noise on each of the {first.max_queries:,} answers "
        f"has an error bound of {gaussian.error_bound:.6g}"
        + ("." if useful else f", no better than answering 0 (the data's mass is at most {dataset.mass_bound:.6g}).")
        + (" Give max_updates for a best-effort plan." if effort else "")
    )


def _best_effort(dataset: PublicDataset, request: SessionRequest) -> bool:
    """Whether giving ``max_updates`` makes a plan."""
    try:
        make_plan(dataset, request.model_copy(update={"max_updates": 1}))
    except CuratorError:
        return False
    return True
