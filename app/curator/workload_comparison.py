"""The errors of a workload: every method of a release and every mechanism that answers it question by question.

All of it is told from public facts before anything is spent: the same for neighbouring data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from app.constructions.mechanism import Method, parse_mechanism
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.feasibility import find_plan, possible_plan
from app.curator.plan import Plan, SessionPlan
from app.curator.planners.workload import WorkloadPlan
from app.curator.release_effort import expected_seconds
from app.curator.request import SessionRequest
from app.curator.workloads import compiled
from app.declarations.errors import CuratorError
from app.releases.expected import Expected, of
from app.releases.workloads import Cuts, Marginals, Sums, TableWorkload, Workload

#: What the errors of a way are: foretold to the digit; no larger than those of unbiased values, which the nearest
#: possible table to these keeps (a projection onto a convex set leads no farther from any of its points); or so only on
#: surveys that were tried, as a fit's, which on a table unlike these may err more.
Basis = Literal["exact", "at most", "usually at most"]
#: The methods whose errors are not exactly those of unbiased values.
BASES: Mapping[str, Basis] = {"projection": "at most", "synthetic_table": "usually at most"}
#: On all tables that were tried their errors were below these parts of that (docs/releases.md).
NEARER: Mapping[str, float] = {"projection": 0.8, "synthetic_table": 0.6}
#: Which of several methods is taken where as much is to be expected of them: what is nearer than promised first.
ORDER: tuple[Method, ...] = (
    "synthetic_table",
    "projection",
    "factorization",
    "gaussian",
    "histogram",
    "synthetic_graph",
    "iterative_construction",
)
#: Mechanisms of sessions that a workload may be asked of, question by question.
INTERACTIVE = ("evidence", "histogram", "gaussian", "laplace", "mw", "fk")


@dataclass(frozen=True)
class Way:
    """One way to have a workload answered.

    Attributes:
        name: of the method, or of the mechanism.
        interactive: whether it is a mechanism of sessions.
        outcome: its plan, or why it has none.
        expected: its errors, None where nothing is foretold.
        basis: whether these are exact, or its errors are no larger, always or usually.
        seconds: what the work on a release will take, about; None where nothing is foretold.
    """

    name: str
    interactive: bool
    outcome: SessionPlan | CuratorError
    expected: Expected | None = None
    basis: Basis = "exact"
    seconds: float | None = None

    def document(self, render: Callable[[CuratorError], dict[str, Any]]) -> dict[str, Any]:
        """As JSON; ``render`` makes problems of refusals."""
        named = {"mechanism" if self.interactive else "method": self.name}
        if not isinstance(self.outcome, SessionPlan):
            return named | {"problem": render(self.outcome)}
        told = None if self.expected is None else self.expected.document() | {"basis": self.basis}
        took = {} if self.interactive else {"expected_seconds": self.seconds}
        return named | {"expected": told, **took, "plan": self.outcome.reply()}

    @property
    def rank(self) -> tuple[bool, float, bool, int]:
        """The lesser the better."""
        error = math.inf if self.expected is None else self.expected.rms
        if not self.interactive:
            error *= NEARER.get(self.name, 1.0)
        place = ORDER.index(self.name) if self.name in ORDER and not self.interactive else len(ORDER)
        return not isinstance(self.outcome, SessionPlan), error, self.interactive, place


@dataclass(frozen=True)
class Ways:
    """All ways to have a workload answered, best first."""

    workload: Workload
    ways: tuple[Way, ...]

    @property
    def best(self) -> Way | None:
        """The release that is expected to err least; None where none has a plan."""
        releases = (way for way in self.ways if not way.interactive and isinstance(way.outcome, SessionPlan))
        return next(releases, None)

    def document(self, render: Callable[[CuratorError], dict[str, Any]]) -> dict[str, Any]:
        """As JSON; ``render`` makes problems of refusals."""
        numbers = None if isinstance(self.workload, Cuts) else self.workload.numbers
        best = self.best
        return {
            "numbers": numbers,
            "best": None if best is None else best.name,
            "methods": [way.document(render) for way in self.ways],
        }


def ways_of(dataset: PublicDataset, request: SessionRequest, *, interactive: bool = True) -> Ways:
    """All ways to have the workload of a release's request answered with its share, best first.

    Args:
        dataset: what is public.
        request: of a release; its method does not matter. With an epsilon of 0 there are publications alone.
        interactive: whether mechanisms of sessions are among them.

    Raises:
        InvalidRequest: when the data set has no such workload.
    """
    workload = compiled(dataset.space, request.workload.workload)
    ways = list(_releases(dataset, request, workload))
    if interactive and request.epsilon and not isinstance(workload, Cuts):
        ways += _sessions(dataset, request, workload)
    return Ways(workload, tuple(sorted(ways, key=lambda way: way.rank)))


def chosen_method(dataset: PublicDataset, request: SessionRequest) -> tuple[SessionRequest, str]:
    """A release's request with the method that is expected to err least, and why it is that one.

    Raises:
        InvalidRequest: when the data set has no such workload.
    """
    best = ways_of(dataset, request, interactive=False).best
    # Where no method has a plan, the refusal is that of the one which serves the most workloads of the kind.
    widest = "histogram" if request.workload.workload.whole else "factorization"
    name = widest if best is None else best.name
    why = f"errors of no method are foretold for this workload and this share, and {name} serves it"
    if best is not None and best.expected is not None:
        most = "" if best.basis == "exact" else f"{best.basis} "
        why = (
            f"{name} is expected to err least of the methods whose errors are foretold, for this workload and this "
            f"share: {most}{best.expected.rms:.4g} in the root mean square"
        )
        if best.name in NEARER:
            # What another method is expected to err may be less than that.
            why += f", and on the surveys that were tried at most {NEARER[best.name]:g} of it"
    return _with_method(request, name), why


def _with_method(request: SessionRequest, method: str) -> SessionRequest:
    return request.model_copy(update={"mechanism": request.workload.model_copy(update={"method": method})})


def _releases(dataset: PublicDataset, request: SessionRequest, workload: Workload) -> Iterator[Way]:
    # A publication is made of any of these, or with an epsilon of 0 of what was measured before.
    methods = [m for m in get_args(Method) if m not in ("auto", "publication")] if request.epsilon else ["publication"]
    for method in methods:
        asked = _with_method(request, method)
        try:
            found = find_plan(dataset, asked)
        except PlanInfeasible as error:
            yield Way(method, False, error)
            continue
        assert isinstance(found, WorkloadPlan)
        seconds = expected_seconds(dataset, asked, found)
        yield Way(method, False, found, found.expected, BASES.get(method, "exact"), seconds)


def _sessions(dataset: PublicDataset, request: SessionRequest, workload: TableWorkload) -> Iterator[Way]:
    """Sessions in which the questions of a workload are asked one after the other."""
    if not isinstance(workload, Marginals | Sums):
        return
    marginals = len(workload.questions)
    for name in INTERACTIVE:
        # Constructions answer one number at a time, the others a whole marginal.
        queries = workload.numbers if name in ("mw", "fk") else marginals
        mechanism = parse_mechanism({"construction": name})
        asked = SessionRequest(
            dataset=request.dataset, mechanism=mechanism, epsilon=request.epsilon, max_queries=queries
        )
        try:
            yield _session(dataset, find_plan(dataset, asked), name, request, workload)
        except CuratorError as error:
            yield Way(name, True, error)


def _session(
    dataset: PublicDataset, plan: SessionPlan, name: str, request: SessionRequest, workload: Marginals | Sums
) -> Way:
    if name == "histogram":
        release = possible_plan(dataset, _with_method(request, name))
        return Way(name, True, plan, release.expected if isinstance(release, WorkloadPlan) else None)
    if not isinstance(plan, Plan):
        return Way(name, True, plan)
    error = plan.standard_error
    if error is not None:
        return Way(name, True, plan, of(plan.noise, [np.full(workload.numbers, error * error)]))
    # Whatever is asked, every answer keeps the bound with the plan's probability.
    bound = plan.error_bound
    return Way(name, True, plan, Expected((), bound, bound), "at most")
