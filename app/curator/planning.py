"""Planning: the plan of a session, or the refusal of one."""

from __future__ import annotations

from app.curator.advice import refusal
from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan
from app.curator.plan import Infeasible, Plan
from app.curator.request import SessionRequest


def make_plan(dataset: PublicDataset, request: SessionRequest) -> Plan:
    """The plan of a session. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible: when the guarantee asked for cannot be kept, or the hypothesis cannot be held; the extras give
            single changes, each of which was tried and does.
    """
    found = find_plan(dataset, request)
    if isinstance(found, Infeasible):
        raise refusal(dataset, request, found)
    return found


def plan_of(dataset: PublicDataset, request: SessionRequest) -> Plan:
    """The plan of a session that was opened: that of :func:`make_plan`, which had it then.

    Where there is none all the same, as for a header that was made up, no search for changes that would do takes time.

    Raises:
        PlanInfeasible: when there is none.
    """
    found = find_plan(dataset, request)
    if isinstance(found, Infeasible):
        raise found.refusal()
    return found
