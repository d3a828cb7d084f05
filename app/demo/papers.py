"""The papers' constructions at work: serve, register, ask, compare, close, replay."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Printed

from app.audit.replay import Verdict
from app.demo.analysts import Where, drill_down, grow_cuts
from app.demo.baseline import expected_largest, gaussian_sigma, gaussian_sigma_charged, queries_to_overtake
from app.demo.cuts import CUTS, LEAST_HELD, SLACK, CutOutcome, ask_cuts, cut_case, print_cuts, spelled
from app.demo.data import BUDGET, Graph, Table, adult, census, email_eu_core, imbalanced_bipartite
from app.demo.server import ServerFailed, ended, running_server
from app.verifying.transcript import replay_file
from curator_client import Answer, Curator, Plan, Question, Refused, Session
from curator_client.questions import question as asked_as

#: Fields of a replay's summary that are printed.
PRINTED = ("entries", "hypothesis_answers", "estimate_answers", "measurement_answers", "updates", "head_hash")


@dataclass(frozen=True)
class Case:
    """One data set, one session on it, and the analyst who asks.

    The analyst's queries have a form of their own: ``spell`` turns one into a question of the client, and ``truth``
    into its true answer, which only this demonstration knows.
    """

    title: str
    facts: str
    spec: dict[str, Any]
    file: bytes = field(repr=False)
    filename: str
    mechanism: dict[str, Any]
    max_updates: int
    analyst: Generator[Any, float, None] = field(repr=False)
    spell: Callable[[Any], Question[Answer]] = field(repr=False)
    truth: Callable[[Any], int] = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.spec["name"])


def _table_case(table: Table, max_updates: int, seed: int) -> Case:
    axes = {axis.name: axis for axis in table.axes}

    def spell(where: Where) -> Question[Answer]:
        conditions = {name: axes[name].condition(*cells) for name, cells in where.items()}
        return asked_as({"type": "predicate", "where": conditions})

    return Case(
        title=f"{table.title}: multiplicative weights",
        facts=f"{table.records:,} records, {len(axes)} attributes, {table.cells:,} cells",
        spec=table.spec,
        file=table.file,
        filename=table.filename,
        mechanism={"construction": "mw"},
        max_updates=max_updates,
        analyst=drill_down(table.axes, table.records, np.random.default_rng([seed, 3])),
        spell=spell,
        truth=table.truth,
    )


def _graph_case(graph: Graph, max_updates: int, seed: int) -> Case:
    left, right = graph.adjacency.shape

    return Case(
        title=f"{graph.title}: Frieze/Kannan",
        facts=f"{graph.edges:,} edges, {left * right:,} pairs of nodes",
        spec=graph.spec,
        file=graph.file,
        filename=graph.filename,
        mechanism={"construction": "fk"},
        max_updates=max_updates,
        analyst=grow_cuts(left, right, np.random.default_rng([seed, 4])),
        spell=lambda sides: spelled(*sides),
        truth=lambda sides: graph.truth(*sides),
    )


def _cases(data: Path | None, seed: int) -> list[Case]:
    """The two cases. Their most updates are about twice as many as these analysts have needed."""
    if data is None:
        return [
            _table_case(census(seed), 80, seed),
            _graph_case(imbalanced_bipartite(seed), 80, seed),
        ]
    return [
        _table_case(adult(data / "adult-pgm"), 120, seed),
        _graph_case(email_eu_core(data / "email-Eu-core"), 60, seed),
    ]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a session: its answers, the true answers, and what it left of the data set's budget."""

    case: Case
    plan: Plan
    answers: list[Answer]
    truths: list[int]
    seconds: float
    spent: Decimal
    remaining: Decimal
    ledger_order: float
    ledger_spent: float
    transcript: Path

    @property
    def errors(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Answer minus true answer, of every answer that has a bound."""
        pairs = zip(self.answers, self.truths, strict=True)
        bounded = [(float(answer), truth) for answer, truth in pairs if answer.error_bound is not None]
        return np.array([value - truth for value, truth in bounded if value is not None])

    @property
    def broken(self) -> list[int]:
        """Sequence numbers of the answers that are further from the true ones than their bounds."""
        return [
            answer.sequence
            for answer, truth in zip(self.answers, self.truths, strict=True)
            if not answer.missing
            and answer.error_bound is not None
            and abs(answer - truth) > answer.error_bound + SLACK
        ]


def run(console: Console, *, data: Path | None = None, queries: int = 2000, seed: int = 2012) -> int:
    """Run three sessions and print what comes of them.

    Args:
        console: where to print.
        data: folder with ``adult-pgm`` and ``email-Eu-core``; None for made-up data.
        queries: queries of each of the two sessions that answer by a hypothesis, and of each kind of the third within
            what that asks.
        seed: of the generated data and of the analysts; the noise is never seeded.

    Returns:
        0 when every bound held, enough intervals did, and every transcript replays, else 1.
    """
    with ended(), tempfile.TemporaryDirectory(prefix="curator-demo-") as scratch:
        folder = Path(scratch)
        try:
            cases, last = _cases(data, seed), cut_case(data, seed)
            each = min(max(queries, CUTS[0]), CUTS[1])
            outcomes = []
            with ExitStack() as running:
                with console.status("Starting a server"):
                    server = running.enter_context(running_server(folder))
                admin = running.enter_context(Curator(server.url, server.admin_key))
                analyst_key = admin.add_principal("demo-analyst", "analyst")
                analyst = running.enter_context(Curator(server.url, analyst_key))
                for case in cases:
                    outcomes.append(_ask_all(console, admin, analyst, case, queries, folder))
                    _print_outcome(console, outcomes[-1])
                cuts = ask_cuts(console, admin, analyst, last, each, seed, folder)
                print_cuts(console, cuts)
        except FileNotFoundError as missing:
            console.print(f"[red]No file[/red] {missing.filename}")
            return 1
        except ServerFailed as failure:
            console.print("[red]The demonstration failed:[/red]", end=" ")
            console.print(str(failure), markup=False)
            return 1
        console.print("\nThe server has stopped. What follows reads nothing but the three transcripts.")
        transcripts = {outcome.case.name: outcome.transcript for outcome in outcomes} | {cuts.name: cuts.transcript}
        verdicts = [_replay(console, name, transcript) for name, transcript in transcripts.items()]
        return _print_verdict(console, outcomes, cuts, verdicts)


def _ask_all(console: Console, admin: Curator, analyst: Curator, case: Case, queries: int, folder: Path) -> Outcome:
    file = folder / case.filename
    file.write_bytes(case.file)
    admin.register(case.spec, file)
    file.unlink()
    session = analyst.session(
        case.name,
        mechanism=case.mechanism,
        epsilon=BUDGET["epsilon"],
        max_queries=queries,
        max_updates=case.max_updates,
    )
    console.print(f"\n[bold]{case.title}[/bold]  ({case.facts})")
    start = time.monotonic()
    answers, truths = _ask_queries(console, session, case, queries)
    seconds = time.monotonic() - start
    session.close()
    budget = admin.dataset(case.name).budget
    ledger = admin.ledger(case.name)
    return Outcome(
        case=case,
        plan=session.plan,
        answers=answers,
        truths=truths,
        seconds=seconds,
        spent=budget.spent,
        remaining=budget.left,
        ledger_order=float(ledger.raw["order"]),
        ledger_spent=float(ledger.raw["spent"]),
        transcript=session.transcript(folder / f"{case.name}.ndjson"),
    )


def _ask_queries(console: Console, session: Session, case: Case, queries: int) -> tuple[list[Answer], list[int]]:
    """Ask the analyst's queries one by one; when the updates have run out, without a bound."""
    answers: list[Answer] = []
    truths: list[int] = []
    out_of_updates = False
    question = next(case.analyst)
    with Progress(
        TextColumn("  asking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[updates]} updates"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=queries, updates=0)
        while len(answers) < queries:
            query = case.spell(question)
            try:
                answer = session.ask(query.unverified() if out_of_updates else query)
            except Refused as problem:
                if problem.type != "updates-exhausted" or out_of_updates:
                    raise
                out_of_updates = True
                continue
            answers.append(answer)
            truths.append(case.truth(question))
            progress.update(task, completed=len(answers), updates=answer.raw["updates_used"])
            question = case.analyst.send(float(answer))
    return answers, truths


def _print_outcome(console: Console, outcome: Outcome) -> None:
    plan, errors, queries = outcome.plan, outcome.errors, len(outcome.answers)
    sources = Counter(answer.source for answer in outcome.answers)
    epsilon, delta = float(plan.epsilon), float(plan.delta)
    rms = float(np.sqrt(np.mean(errors**2)))
    largest = float(np.abs(errors).max())
    without = queries - len(errors)

    asked = f"{queries:,} in {outcome.seconds:.0f} s ({queries / outcome.seconds:,.0f} a second)"
    answered = f"{sources['hypothesis']:,} from the hypothesis, {sources['measurement']:,} measured"
    if sources["cached"]:
        answered += f", {sources['cached']:,} repeated"
    table = Printed(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("adaptive queries", asked)
    table.add_row("answers", answered)
    table.add_row("updates", f"{outcome.answers[-1].raw['updates_used']:,} of {plan.max_updates:,}")
    if without:
        table.add_row("[yellow]asked after the updates ran out, no bound[/yellow]", f"{without:,}")
    table.add_row("noise scale", f"{plan.noise_scale:,.1f}")
    table.add_row(f"promised bound (all answers, probability {1 - plan.beta:g})", f"{plan.error_bound:,.0f}")
    table.add_row("largest error", f"{largest:,.0f}")
    table.add_row("root-mean-square error", f"{rms:,.0f}")
    table.add_row(f"epsilon spent and left (delta {delta:g})", f"{outcome.spent:.3f} and {outcome.remaining:.3f}")
    table.add_section()
    sigmas = [gaussian_sigma(epsilon, delta, queries)]
    table.add_row(f"Gaussian noise instead, at epsilon {epsilon:g}", _gaussian(sigmas[0], queries))
    if outcome.ledger_spent > 0:
        sigmas.append(gaussian_sigma_charged(outcome.ledger_order, outcome.ledger_spent, queries))
        table.add_row(f"... at the epsilon spent, {outcome.spent:.3f}", _gaussian(sigmas[1], queries))
    console.print(table)
    console.print(_comparison(plan, queries, rms, sigmas), markup=False)


def _gaussian(sigma: float, queries: int) -> str:
    return f"RMS {sigma:,.0f}, largest about {expected_largest(sigma, queries):,.0f}"


def _comparison(plan: Plan, queries: int, rms: float, sigmas: list[float]) -> str:
    """Which error is smaller at this number of queries, and from which number on the curator's bound is."""
    whole, *charged = ("smaller" if rms < sigma else "larger" for sigma in sigmas)
    said = (
        f"At {queries:,} queries the curator's RMS error is {whole} than that of independent Gaussian answers"
        " which spend the whole share (analytic calibration, Balle and Wang 2018)"
    )
    if charged:
        said += f", and {charged[0]} than if they spend just what the session did"
    said += "."
    assert plan.error_bound is not None, "the demonstration's mechanisms promise one"
    overtaken = queries_to_overtake(plan.error_bound, queries, plan.beta, float(plan.epsilon), float(plan.delta))
    if overtaken is not None:
        said += (
            " The curator pays for updates, not for queries: while its updates last, its bound on all answers"
            f" is below the Gaussian's largest error from about {overtaken:,} queries on."
        )
    return said


def _replay(console: Console, name: str, transcript: Path) -> Verdict:
    with Progress(
        TextColumn(f"  replaying {name}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=transcript.stat().st_size)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        verdict = replay_file(transcript, progress=show)
    if verdict.ok:
        printed = {fact: verdict.summary[fact] for fact in PRINTED if fact in verdict.summary}
        facts = ", ".join(f"{fact.replace('_', ' ')} {value}" for fact, value in printed.items())
        console.print(f"[green]The transcript of {name} replays.[/green]")
        console.print(f"  {facts}", markup=False)
    else:
        where = "" if verdict.sequence is None else f" at entry {verdict.sequence}"
        console.print(f"[red]The transcript of {name} does not replay{where}:[/red]", end=" ")
        console.print(str(verdict.problem), markup=False)
    return verdict


def _print_verdict(console: Console, outcomes: list[Outcome], cuts: CutOutcome, verdicts: list[Verdict]) -> int:
    broken = {outcome.case.name: outcome.broken for outcome in outcomes if outcome.broken}
    for name, sequences in broken.items():
        count, first = len(sequences), sequences[0]
        console.print(f"[red]{name}: {count} answers break their bound, the first at entry {first}.[/red]")
    if cuts.held < LEAST_HELD:
        console.print(f"[red]{cuts.name}: {cuts.held:.1%} of the intervals held, less than {LEAST_HELD:.0%}.[/red]")
    if broken or cuts.held < LEAST_HELD or not all(verdict.ok for verdict in verdicts):
        return 1
    held = f"{cuts.held:.1%} of the intervals held"
    console.print(f"\n[bold green]Every bound was kept, {held}, and all transcripts replay.[/bold green]")
    return 0
