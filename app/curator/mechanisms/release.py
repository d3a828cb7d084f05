"""Releases as sessions: what the plan names is measured, then what rounds choose, and nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from app.curator.mechanisms.protocol import Measured, PayingState, Pinning, SessionMechanism
from app.curator.opening import Opening, Stated
from app.curator.planners.rounds import construction_of
from app.curator.planners.table import residuals_of
from app.curator.planners.workload import WorkloadPlan, workload_of
from app.measurements.record import Measurement, Purchase
from app.measurements.strategy import Strategy
from app.releases.edge_results import known_blocks
from app.releases.finishing import Job
from app.releases.workloads import Cuts


def job_of(
    stated: Opening | Stated, known: Sequence[Measurement[Strategy]], made: Sequence[Measurement[Strategy]], seed: int
) -> Job:
    """The task to make what is to be made of a release's measurements.

    The plan is not needed for it: to look for what is best to measure may take longer than what is made of it.

    Args:
        stated: of the release, or its opening.
        known: what was measured of the data set before.
        made: what was measured for the release.
        seed: of everything that is drawn at random for it, which is no secret.
    """
    dataset, request = stated.dataset, stated.request
    budget, method, workload = dataset.budget, request.workload.method, workload_of(dataset.space, request)
    learning = method == "iterative_construction" and not isinstance(workload, Cuts)
    return Job(
        method=method,
        options=request.workload.options.model_dump(exclude_none=True),
        workload=workload,
        empty=residuals_of(dataset.space, dataset.records),
        known=known,
        made=made,
        seed=seed,
        beta=request.beta,
        blocks=known_blocks(known, dataset.space) if method == "synthetic_graph" else (),
        construction=construction_of(dataset, request, made) if learning else None,
        unit_epsilon=float(budget.order) * dataset.gamma**2 / 2 * float(budget.epsilon) / float(budget.total),
    )


class ReleaseMechanism(SessionMechanism[PayingState], Pinning[PayingState]):
    """The mechanism of a release. Of what was measured it keeps what is left to pay with: the values are in the
    records, from which the release is made.

    Args:
        opening: of the session; its plan is that of a release.
    """

    def __init__(self, opening: Opening) -> None:
        assert isinstance(opening.plan, WorkloadPlan)
        self._plan, self._space = opening.plan, opening.dataset.space

    def start(self) -> PayingState:
        """The whole share is left."""
        return PayingState(self._plan.holds)

    def pin(self, state: PayingState, measured: Measured) -> None:
        """Hold what was measured against the data set, and pay for it."""
        measured.measurement.strategy.check(self._space)
        state.left = state.left.minus(measured.price)

    def purchases(self, state: PayingState) -> Sequence[Purchase[Strategy]]:
        """The purchases that the plan names."""
        return self._plan.buys

    def nbytes(self, updates: int) -> int:
        """The memory that measuring takes, in bytes."""
        return self._plan.measuring_bytes(self._space)
