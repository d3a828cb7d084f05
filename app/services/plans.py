"""Plans of sessions and releases, before anything is opened: public facts are read, and nothing is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.curator.calibration import noise_scales
from app.curator.comparison import compare, parse_comparison, weigh
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.expectation import told
from app.curator.mechanisms.serving import mechanism_of
from app.curator.opening import Opening
from app.curator.plan import FREE
from app.curator.planners.workload import WorkloadPlan
from app.curator.planning import chosen, make_plan, planning_bytes
from app.curator.release_effort import expected_seconds
from app.curator.request import SessionRequest, parse_request, parse_session
from app.curator.sweep import parse_sweep
from app.curator.workload_comparison import ways_of
from app.declarations.errors import CuratorError, InvalidDataset, InvalidRequest
from app.declarations.spec import parse_spec
from app.patience import Check, while_wanted
from app.privacy.errors import InvalidBudget
from app.services.datasets import Datasets
from app.services.release_request import parse_release
from app.spaces.workload_request import WorkloadRequest


class Plans:
    """Makes plans."""

    def __init__(
        self,
        datasets: Datasets,
        *,
        memory_limit: int,
        release_seconds: float,
        render: Callable[[CuratorError], dict[str, Any]],
    ) -> None:
        self._datasets, self._render = datasets, render
        self._memory_limit, self._release_seconds = memory_limit, release_seconds

    def plan(self, asked: Any, check: Check = lambda: None) -> dict[str, Any]:
        """The plan a session would have.

        Raises:
            InvalidRequest, NotFound, PlanInfeasible: as opening would.
        """
        request = parse_session(asked)
        dataset = self._datasets.public(request.dataset)
        with while_wanted(check):
            return self._told(dataset, request)

    def sweep(self, asked: Mapping[str, Any], check: Check = lambda: None) -> dict[str, Any]:
        """What sessions of several shares and numbers of questions would promise, each as :meth:`plan` tells it: on a
        data set, or on one of a ``declaration`` that is not registered.

        Raises:
            InvalidRequest, NotFound: as opening would.
            InvalidDataset: when the declaration does not hold.
        """
        if "declaration" in asked:
            dataset = _declared(asked)
            words = {name: value for name, value in asked.items() if name != "declaration"}
            requests = parse_sweep({**words, "dataset": dataset.spec.name})
        else:
            requests = parse_sweep(asked)
            dataset = self._datasets.public(requests[0].dataset)
        with while_wanted(check):
            return {"points": [self._point(dataset, request) for request in requests]}

    def _point(self, dataset: PublicDataset, request: SessionRequest) -> dict[str, Any]:
        """A point of a sweep, with what its plan says or why there is none."""
        point = {
            "epsilon": float(request.epsilon),
            "max_queries": request.max_queries if request.declared else None,
        }
        try:
            told = self._told(dataset, request)
        except (PlanInfeasible, InvalidRequest) as error:
            return {**point, "problem": self._render(error)}
        said = ("mechanism", "error_bound", "expected_standard_errors", "independent_gaussian")
        return {**point, **{name: told[name] for name in said}}

    def _told(self, dataset: PublicDataset, request: SessionRequest) -> dict[str, Any]:
        """A plan with what is to be expected of it, and the line that it has to beat."""
        opening, why = self.opening(dataset, request)
        request, plan = opening.request, opening.plan
        expectation, paid = plan.expectation(dataset, request), plan.paid(dataset, request)
        scales = noise_scales(dataset, request, plan)
        line = {"independent_gaussian": None, "advice": FREE}
        if request.epsilon:
            line = weigh(dataset, [request], [plan]).line(None if expectation is None else expectation.error)
        return {
            **plan.reply(),
            "mechanism": request.document(),
            "why": why,
            **told(expectation, paid),
            "noise_scales": scales,
            **line,
        }

    def compare(self, asked: Mapping[str, Any], check: Check = lambda: None) -> dict[str, Any]:
        """The plans of several mechanisms for one task.

        Raises:
            InvalidRequest, NotFound: as opening would.
            PlanInfeasible: when no mechanism could have such a share.
        """
        requests = parse_comparison(asked)
        dataset = self._datasets.public(requests[0].dataset)
        with while_wanted(check):
            found = compare(dataset, requests, lambda request: self.planned(dataset, request).plan)
        return found.document(self._render)

    def ways(self, asked: Mapping[str, Any], check: Check = lambda: None) -> dict[str, Any]:
        """All ways to have a workload answered, best first.

        Raises:
            InvalidRequest, NotFound: as asking for a release would.
        """
        request = parse_request(parse_release(asked).asking(_no_session).session())
        dataset = self._datasets.public(request.dataset)
        self._check_planning(dataset, request)
        with while_wanted(check):
            return ways_of(dataset, request).document(self._render)

    def opening(self, dataset: PublicDataset, request: SessionRequest) -> tuple[Opening, str | None]:
        """The opening of a session that is asked for, and why its mechanism is the one that it is, where the choice was
        left open.

        Raises:
            InvalidRequest: when what is asked for belongs to another mechanism.
            PlanInfeasible: as :meth:`planned`.
        """
        self._check_planning(dataset, request)
        request, why = chosen(dataset, request)
        return self.planned(dataset, request), why

    def planned(self, dataset: PublicDataset, request: SessionRequest) -> Opening:
        """The opening of a session whose mechanism is named.

        Raises:
            PlanInfeasible: when there is no plan, or the hypothesis takes more memory than the service has.
        """
        self._check_planning(dataset, request)
        opening = Opening(dataset, request, make_plan(dataset, request))
        mechanism = mechanism_of(opening)
        needed = mechanism.nbytes(1) + mechanism.asking_bytes
        if needed > self._memory_limit:
            cells, construction = dataset.space.cells, request.mechanism.construction
            fewer = (
                f"declare fewer attributes or coarser bins, {'use evidence, ' if dataset.space.kind == 'table' else ''}"
            )
            raise PlanInfeasible(
                f"a session of {construction} over {cells:,} cells takes {needed:,} bytes, where the memory limit is "
                # What evidence takes at first does not depend on the cells.
                f"{self._memory_limit:,}: {'' if construction == 'evidence' else fewer}have each question measured on "
                "its own (gaussian or laplace), or have the limit raised (CURATOR_MEMORY_LIMIT)",
                cells=cells,
                bytes=needed,
                limit=self._memory_limit,
            )
        return opening

    def foretold(self, opening: Opening) -> float:
        """The time that a release will take, about; 0 for other sessions.

        Raises:
            PlanInfeasible: when that is longer than the server allows: it would be charged, and nothing come of it.
        """
        if not isinstance(opening.plan, WorkloadPlan):
            return 0.0
        seconds = expected_seconds(opening.dataset, opening.request, opening.plan)
        if seconds > self._release_seconds:
            raise PlanInfeasible(
                f"the work on it is foretold to take {seconds:,.0f} s, where the server allows "
                f"{self._release_seconds:,.0f}: ask for less, take another method (POST /v1/plans foretells what each "
                "takes), or have the limit raised (CURATOR_RELEASE_SECONDS)",
                expected_seconds=seconds,
                limit=self._release_seconds,
            )
        return seconds

    def _check_planning(self, dataset: PublicDataset, request: SessionRequest) -> None:
        """Refuse a plan that would take more memory than the service has, before anything is planned.

        Raises:
            PlanInfeasible: naming what to change.
        """
        needed, values = planning_bytes(dataset, request), sum(dataset.space.shape)
        if needed > self._memory_limit:
            raise PlanInfeasible(
                f"a plan that looks at every declared value, {values:,} of all attributes together, takes {needed:,} "
                f"bytes, where the memory limit is {self._memory_limit:,}: declare fewer values, a coarser grid or "
                "bins, use gaussian or laplace, or have the limit raised (CURATOR_MEMORY_LIMIT)",
                bytes=needed,
                limit=self._memory_limit,
            )


def _declared(asked: Mapping[str, Any]) -> PublicDataset:
    """The data set that a declaration would make, of which nothing was asked yet."""
    if "dataset" in asked:
        raise InvalidRequest("declaration: name a data set, or declare one that is not registered, not both")
    dataset = PublicDataset(parse_spec(asked["declaration"]))
    try:
        dataset.budget  # noqa: B018 - computed, and kept for all that are to come
    except InvalidBudget as error:
        raise InvalidDataset(f"budget: {error}") from None
    return dataset


def _no_session(id: str) -> WorkloadRequest:
    raise InvalidRequest("tables: a plan is of queries")
