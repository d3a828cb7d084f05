"""Planning: the plan of a session, or the refusal of one."""

from __future__ import annotations

from app.constructions.mechanism import DirectNoise, FromEvidenceMechanism, WorkloadMechanism
from app.curator.advice import refusal
from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan, possible_plan
from app.curator.plan import Infeasible, Plan, SessionPlan
from app.curator.planners.graph import GRAPHS, MOST_NODES
from app.curator.planners.workload import WorkloadPlan, settled
from app.curator.request import SessionRequest
from app.curator.workload_comparison import chosen_method
from app.curator.workloads import values_bytes


def chosen(dataset: PublicDataset, request: SessionRequest) -> tuple[SessionRequest, str | None]:
    """The request with a mechanism, and why it is that one where the choice was left open.

    Raises:
        InvalidRequest: when what is asked for belongs to another mechanism, or the number of queries must be said.
    """
    if isinstance(request.mechanism, WorkloadMechanism):
        why = None
        if request.mechanism.method == "auto":
            request, why = chosen_method(dataset, request)
        plan = possible_plan(dataset, request)
        return (settled(plan, request) if isinstance(plan, WorkloadPlan) else request), why
    if request.mechanism.construction != "auto":
        return request, None
    if dataset.space.kind == "table":
        why = "everything that is measured of a table answers its questions together, and those of later sessions"
        return request.with_mechanism("evidence"), why
    if dataset.space.kind in GRAPHS and max(dataset.space.shape) <= MOST_NODES:
        what = "bipartite graph" if dataset.space.kind == "bipartite" else dataset.space.kind
        why = f"the degrees and all that is measured of a {what} answer its cuts together, and those of later sessions"
        return request.with_mechanism("evidence"), why
    names: tuple[DirectNoise, ...] = ("gaussian", "laplace")
    plans = {name: possible_plan(dataset, request.with_mechanism(name)) for name in names}
    errors = {name: plan.standard_error or 0.0 for name, plan in plans.items() if isinstance(plan, Plan)}
    best = min(errors, key=errors.__getitem__, default=names[0])
    why = f"each question is measured on its own, and for {request.max_queries:,} of them {best} noise errs least"
    return request.with_mechanism(best), why


def planning_bytes(dataset: PublicDataset, request: SessionRequest) -> int:
    """The most bytes that planning a session takes, told by the declaration alone before anything is made."""
    mechanism = request.mechanism
    looks = isinstance(mechanism, FromEvidenceMechanism | WorkloadMechanism)
    return values_bytes(dataset.space) if looks else 0


def make_plan(dataset: PublicDataset, request: SessionRequest) -> SessionPlan:
    """The plan of a session. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible: when the guarantee asked for cannot be kept, or the hypothesis cannot be held; the extras give
            single changes, each of which was tried and does.
    """
    try:
        return find_plan(dataset, request)
    except Infeasible as found:
        raise refusal(dataset, request, found) from None
