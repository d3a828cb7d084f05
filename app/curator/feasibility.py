"""Feasibility: the plan that a request has, or why it has none."""

from __future__ import annotations

from collections.abc import Callable

from app.constructions.mechanism import DirectMechanism, FromEvidenceMechanism, WorkloadMechanism
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer, SessionPlan, settle
from app.curator.planners.cells import cells
from app.curator.planners.construction import construction
from app.curator.planners.contract import contract
from app.curator.planners.direct import direct
from app.curator.planners.graph import GRAPHS, graph
from app.curator.planners.power import power
from app.curator.planners.table import table
from app.curator.planners.workload import workload
from app.curator.request import SessionRequest
from app.privacy.errors import PrivacyError

#: What a session of a request offers, from public facts only: the same for neighbouring data.
Planner = Callable[[PublicDataset, SessionRequest], Offer[SessionPlan]]


def find_plan(dataset: PublicDataset, request: SessionRequest) -> SessionPlan:
    """The plan of a session. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible: when there is none.
    """
    try:
        return settle(dataset, request, _planner(dataset, request)(dataset, request))
    except PrivacyError as error:
        raise PlanInfeasible(str(error)) from None


def possible_plan(dataset: PublicDataset, request: SessionRequest) -> SessionPlan | None:
    """The plan of a session; None where there is none."""
    try:
        return find_plan(dataset, request)
    except PlanInfeasible:
        return None


def _planner(dataset: PublicDataset, request: SessionRequest) -> Planner:
    mechanism = request.mechanism
    if isinstance(mechanism, DirectMechanism):
        return direct
    if isinstance(mechanism, WorkloadMechanism):
        if not mechanism.workload.whole:
            return workload
        return power if mechanism.method == "iterative_construction" else cells
    if isinstance(mechanism, FromEvidenceMechanism):
        if dataset.space.kind in GRAPHS:
            return graph
        return contract if request.contract else table
    return construction
