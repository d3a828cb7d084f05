"""How long the work on a release takes, foretold from its plan: sizes, times what each took where it was measured.

It is told before anything is asked for, decides who waits for whom, and keeps from being spent what nothing would come
of in time. No plan, price or transcript depends on it, so the constants may be others tomorrow. They are those of
``python -m benchmarks.service.release_times``, which sets beside each other what is foretold and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.curator.dataset import PublicDataset
from app.curator.planners.workload import WorkloadPlan
from app.curator.request import SessionRequest
from app.measurements.noise import BitFlips
from app.measurements.strategies.edges import Edges
from app.releases.fitting import MOST_CELLS
from app.releases.power import STEPS
from app.releases.publication import moves_looked_at
from app.releases.synthetic_graph import SMALL
from app.releases.workloads import Cuts, Marginals, Ranges

#: Seconds for one of each.
SECONDS: Mapping[str, float] = {
    "start": 1.5,
    "number drawn": 6e-5,
    "bit drawn": 2e-8,
    "question": 2e-3,
    "number answered": 1e-7,
    "local fit": 0.008,
    "cell of a local fit": 8e-4,
    "projected cell": 6e-5,
    "fitted cell": 1e-4,
    "record": 5e-7,
    "move looked at": 7e-9,
    "round": 0.4,
    "cell of a round": 2e-7,
    "cell of a graph": 1e-6,
    "cell of a spectrum": 7e-6,
    "cell of the nearest graph": 7e-5,
}


def expected_seconds(dataset: PublicDataset, request: SessionRequest, plan: WorkloadPlan) -> float:
    """The time that drawing the noise of a release and making its data will take together, about; a server that has
    much else to do takes longer.
    """
    return sum(SECONDS[name] * number for name, number in amounts(dataset, request, plan).items())


def amounts(dataset: PublicDataset, request: SessionRequest, plan: WorkloadPlan) -> Mapping[str, float]:
    """How much there is to do of each kind that :data:`SECONDS` names."""
    found: dict[str, float] = {"start": 1.0}
    for buy in plan.buys:
        kind = "bit drawn" if isinstance(buy.strategy, Edges) and isinstance(buy.noise, BitFlips) else "number drawn"
        found[kind] = found.get(kind, 0.0) + buy.strategy.cells
    if isinstance(plan.workload, Cuts):
        return found | _of_graphs(dataset, request, plan)
    return found | _of_tables(dataset, request, plan)


def _of_graphs(dataset: PublicDataset, request: SessionRequest, plan: WorkloadPlan) -> dict[str, float]:
    mechanism, edges = request.workload, Edges.of(dataset.space)
    rows, columns = edges.shape
    if mechanism.method == "iterative_construction":
        rounds = plan.max_updates / (STEPS + 1)
        return {
            "round": rounds,
            "number drawn": plan.max_updates * max(rows, columns),
            "cell of a round": rounds * rows * columns,
            "cell of a graph": edges.cells,
        }
    if mechanism.method != "synthetic_graph":
        return {"cell of a graph": edges.cells}
    if mechanism.options.geometry == "cut_norm":
        return {"cell of the nearest graph": rows * columns}
    # All singular values of a small matrix, the largest ones of others.
    side = min(rows, columns)
    return {"cell of a spectrum": rows * columns * (side / 1000 if side <= SMALL else 0.4)}


def _of_tables(dataset: PublicDataset, request: SessionRequest, plan: WorkloadPlan) -> dict[str, float]:
    assert not isinstance(plan.workload, Cuts)
    mechanism, workload = request.workload, plan.workload.counted
    questions, marginal = workload.questions, workload.marginal
    cells = math.prod(marginal.shape)
    # What is known of a question follows from all sets of its attributes.
    found = {
        "question": float(len(questions)),
        "number answered": float(sum(math.prod(each.shape) * 2 ** len(each.attributes) for each in questions)),
    }
    # Along each attribute counts are multiplied by a matrix.
    work = cells * (sum(marginal.shape) + 40) / 100
    if mechanism.method == "iterative_construction":
        assert plan.iterations is not None
        rounds = plan.iterations.rounds
        scored = sum(strategy.cells for strategy in rounds.candidates.strategies)
        return found | {"round": rounds.number, "cell of a round": rounds.number * (cells + scored)}
    if mechanism.method == "projection":
        return found | {"projected cell": work}
    if mechanism.method == "publication":
        found["move looked at"] = moves_looked_at(workload, dataset.records)
    elif mechanism.method != "synthetic_table":
        return found
    records = mechanism.options.records or dataset.records or 0
    found["record"] = float(records) * len(marginal.shape)
    fitted_whole = isinstance(workload, Marginals) and workload.even and cells <= MOST_CELLS
    if mechanism.method == "synthetic_table" and fitted_whole:
        return found | {"fitted cell": work}
    pairs = sum(math.comb(len(each.attributes), 2) for each in questions)
    local = float(sum(math.prod(each.shape) for each in questions))
    if isinstance(workload, Ranges):  # of measured rows, each of which is in many cells
        local *= 10
    return found | {"local fit": float(len(questions) + pairs + len(marginal.shape)), "cell of a local fit": local}
