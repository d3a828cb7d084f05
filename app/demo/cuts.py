"""The demonstration's third session: three kinds of cuts of a graph, answered from evidence.

No mechanism is given, so that the service chooses. The analyst knows what the service has published of the graph, its
degrees among it, and groups of nodes from elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Printed

from app.demo.analysts import CutAnalyst, Floats, Told, degree_cuts, group_cuts, spectral_cuts
from app.demo.baseline import gaussian_sigma
from app.demo.data import BUDGET, Codes, Flags, Graph, communities, email_eu_core
from curator_client import Answer, Curator, Plan, Question, Session, cut

#: Questions of each kind: at least so many, of which hardly ever too few intervals hold by chance, and at most so many.
CUTS = (30, 150)
#: The part of all intervals that must hold. Each holds with probability .95; as they lean on the same measurements,
#: more of them fail together than would by themselves.
LEAST_HELD = 0.85
#: Answers are multiples of a fine grid: a difference this small comes from floating point.
SLACK = 1e-9


@dataclass(frozen=True)
class CutCase:
    """A directed graph, and the number of each node's group; ``facts`` says which groups these are."""

    graph: Graph
    groups: Codes = field(repr=False)
    facts: str


@dataclass(frozen=True)
class AskedCut:
    """A cut that was asked, with its true answer."""

    kind: str
    answer: Answer
    truth: int

    @property
    def error(self) -> float:
        """Answer minus true answer."""
        return float(self.answer) - self.truth

    @property
    def paid(self) -> bool:
        """Whether it was measured for this question."""
        return self.answer.source == "measurement"

    @property
    def held(self) -> bool:
        """Whether its interval holds the true answer."""
        assert self.answer.interval is not None  # as of every answer from evidence
        low, high = self.answer.interval
        return low - SLACK <= self.truth <= high + SLACK


@dataclass(frozen=True)
class CutOutcome:
    """A session of cuts: what was asked, and its transcript."""

    name: str
    plan: Plan
    asked: list[AskedCut] = field(repr=False)
    seconds: float
    spent: float
    transcript: Path

    @property
    def held(self) -> float:
        """The part of all intervals that held."""
        return float(np.mean([one.held for one in self.asked]))


def cut_case(data: Path | None, seed: int) -> CutCase:
    """The made-up graph of communities; of real data the second session's graph once more, under another name.

    Whoever wrote to whom are numbered as a crawl has met them, so that runs of numbers may mean something.
    """
    if data is None:
        graph, groups = communities(seed)
        return CutCase(graph, groups, "communities known from elsewhere")
    graph = email_eu_core(data / "email-Eu-core")
    graph = replace(graph, spec=graph.spec | {"name": f"{graph.name}-evidence"})
    nodes = len(graph.adjacency)
    return CutCase(graph, np.arange(nodes) * 32 // nodes, "32 groups: runs of node numbers")


def ask_cuts(
    console: Console, admin: Curator, analyst: Curator, case: CutCase, each: int, seed: int, folder: Path
) -> CutOutcome:
    """Register the graph, open a session that chooses for itself, and ask it ``each`` cuts of every kind in turn."""
    graph = case.graph
    file = folder / graph.filename
    file.write_bytes(graph.file)
    admin.register(graph.spec, file)
    file.unlink()
    session = analyst.session(graph.name, epsilon=BUDGET["epsilon"], max_queries=3 * each)
    console.print(f"\n[bold]{graph.title}: evidence[/bold]  ({graph.edges:,} edges, {case.facts})")
    start = time.monotonic()
    told = Told(_released_degrees(analyst, graph))
    kinds: dict[str, CutAnalyst] = {
        "by degrees": degree_cuts(told.degrees, np.random.default_rng([seed, 6])),
        "by groups": group_cuts(case.groups, np.random.default_rng([seed, 7])),
        "spectral": spectral_cuts(told, np.random.default_rng([seed, 8])),
    }
    asked = _ask_in_turn(console, session, graph, kinds, each, told)
    seconds = time.monotonic() - start
    session.close()
    spent = admin.dataset(graph.name).budget.spent
    transcript = session.transcript(folder / f"{graph.name}.ndjson")
    return CutOutcome(graph.name, session.plan, asked, seconds, float(spent), transcript)


def _released_degrees(analyst: Curator, graph: Graph) -> tuple[Floats, Floats]:
    """The noisy degrees that the session has measured at its opening, of sources and of targets."""
    measured = analyst.dataset(graph.name).measurements()
    released = next(one for one in measured if one.raw["strategy"]["type"] == "degrees")
    values = np.array(released.values()["values"], np.float64)
    return values[: len(graph.adjacency)], values[len(graph.adjacency) :]


def _ask_in_turn(
    console: Console, session: Session, graph: Graph, kinds: dict[str, CutAnalyst], each: int, told: Told
) -> list[AskedCut]:
    asked = []
    with Progress(
        TextColumn("  asking"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        for _ in progress.track(range(each)):
            for kind, cuts in kinds.items():
                left, right = next(cuts)
                answer = session.ask(spelled(left, right))
                told.learn(left, right, float(answer))
                asked.append(AskedCut(kind, answer, graph.truth(left, right)))
    return asked


def spelled(left: Flags, right: Flags) -> Question[Answer]:
    """A cut between two masks of nodes as a question."""
    return cut(*("all" if side.all() else np.flatnonzero(side).tolist() for side in (left, right)))


def print_cuts(console: Console, outcome: CutOutcome) -> None:
    """A row a kind of cut: what was paid for, how far answers were off, and how many intervals held."""
    plan, asked = outcome.plan, outcome.asked
    sigma = gaussian_sigma(float(plan.epsilon), float(plan.delta), len(asked))
    table = Printed()
    table.add_column("cuts")
    for name in ("asked", "paid", "free", "RMS error", "Gaussian noise", "intervals that held"):
        table.add_column(name, justify="right")
    for kind in dict.fromkeys(one.kind for one in asked):
        _add_row(table, kind, [one for one in asked if one.kind == kind], sigma)
    table.add_section()
    _add_row(table, "all", asked, sigma)
    console.print(table)
    console.print(
        f"{len(asked):,} questions in {outcome.seconds:.0f} s; epsilon spent {outcome.spent:.3f}. Gaussian noise:"
        f" independent, for {len(asked):,} questions at epsilon {float(plan.epsilon):g}, as above. Each interval holds"
        " with probability 0.95, as far as its model does; no error bound is promised.",
        markup=False,
    )


def _add_row(table: Printed, kind: str, asked: list[AskedCut], sigma: float) -> None:
    paid = sum(one.paid for one in asked)
    rms = float(np.sqrt(np.mean([one.error**2 for one in asked])))
    held = float(np.mean([one.held for one in asked]))
    table.add_row(
        kind, f"{len(asked):,}", f"{paid:,}", f"{len(asked) - paid:,}", f"{rms:,.0f}", f"{sigma:,.0f}", f"{held:.1%}"
    )
