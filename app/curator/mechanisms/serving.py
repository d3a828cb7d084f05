"""Which mechanism serves a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.curator.mechanisms.contract import ContractMechanism
from app.curator.mechanisms.direct import DirectMeasurement
from app.curator.mechanisms.graph import GraphMechanism
from app.curator.mechanisms.oqr import OnlineQueryResponse
from app.curator.mechanisms.protocol import SessionMechanism
from app.curator.mechanisms.release import ReleaseMechanism
from app.curator.mechanisms.table import TableMechanism
from app.curator.opening import Opening
from app.curator.plan import Plan, SessionPlan
from app.curator.planners.cells import EdgePlan
from app.curator.planners.contract import ContractPlan
from app.curator.planners.graph import GraphPlan
from app.curator.planners.power import PowerPlan
from app.curator.planners.table import TablePlan
from app.curator.planners.workload import WorkloadPlan

#: Of sessions that answer from evidence, and of releases.
_MECHANISMS: Mapping[type[SessionPlan], Callable[[Opening], SessionMechanism[Any]]] = {
    TablePlan: TableMechanism,
    ContractPlan: ContractMechanism,
    GraphPlan: GraphMechanism,
    WorkloadPlan: ReleaseMechanism,
    EdgePlan: ReleaseMechanism,
    PowerPlan: ReleaseMechanism,
}


def mechanism_of(opening: Opening) -> SessionMechanism[Any]:
    """The mechanism of a session."""
    plan = opening.plan
    if isinstance(plan, Plan):
        return DirectMeasurement(opening) if plan.direct else OnlineQueryResponse(opening)
    return _MECHANISMS[type(plan)](opening)
