"""Releases as sessions: everything is measured at the opening, and nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from app.curator.evidence import EvidenceMechanism
from app.curator.mechanisms import State
from app.curator.opening import Opening
from app.curator.workload_plan import WorkloadPlan, paying_of
from app.evidence.edges import EdgeBuy
from app.evidence.policy import Buy
from app.privacy.ledger import Amounts, total
from app.spaces.errors import InvalidRequest
from app.spaces.query import Query


class WorkloadMechanism(EvidenceMechanism):
    """What a release measures, and what it takes in.

    Args:
        opening: of the session; its plan is that of a release.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        plan = opening.plan
        assert isinstance(plan, WorkloadPlan)
        self._release = plan

    def purchases(self, state: State) -> Sequence[tuple[Buy | EdgeBuy, Amounts]]:
        """What the plan names, each with its price."""
        paying = paying_of(self._opening.dataset, self._opening.request)
        buys = [buy for buy in self._release.buys if isinstance(buy, Buy)]
        found = [(buy, paying.price([buy])) for buy in buys]
        self._plan.holds.minus(total(price for _, price in found))  # refuses to spend more than is held
        return found

    def admit(self, query: Query) -> None:
        """Refuse every query.

        Raises:
            InvalidRequest: naming what serves.
        """
        raise InvalidRequest(
            "a release is asked nothing: read its data, or open a session, which starts from what was measured for it"
        )
