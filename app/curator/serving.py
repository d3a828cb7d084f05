"""Which mechanism serves a session."""

from __future__ import annotations

from app.curator.contract import ContractMechanism
from app.curator.edge_release import EdgeMechanism
from app.curator.evidence import EvidenceMechanism
from app.curator.graph_evidence import GraphMechanism
from app.curator.mechanisms import DirectMeasurement, OnlineQueryResponse, SessionMechanism
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planners.cells import EdgePlan
from app.curator.planners.graph import GraphPlan
from app.curator.planners.power import PowerPlan
from app.curator.planners.table import EvidencePlan
from app.curator.planners.workload import WorkloadPlan
from app.curator.power_release import PowerMechanism
from app.curator.workload import WorkloadMechanism


def mechanism_of(opening: Opening) -> SessionMechanism:
    """The mechanism of a session."""
    plan = opening.plan
    if isinstance(plan, EdgePlan):
        return EdgeMechanism(opening)
    if isinstance(plan, PowerPlan):
        return PowerMechanism(opening)
    if isinstance(plan, WorkloadPlan):
        return WorkloadMechanism(opening)
    if isinstance(plan, GraphPlan):
        return GraphMechanism(opening)
    if isinstance(plan, EvidencePlan):
        return EvidenceMechanism(opening) if plan.contract is None else ContractMechanism(opening)
    assert isinstance(plan, Plan)
    return DirectMeasurement(opening) if plan.direct else OnlineQueryResponse(opening)
