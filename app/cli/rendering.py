"""Output: results as tables or JSON on standard output, everything else on standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:
    from app.audit.replay import Verdict
    from app.audit.verdict import FolderVerdict
    from curator_client import (
        Answer,
        Check,
        Comparison,
        Dataset,
        Grant,
        Holder,
        Ledger,
        Member,
        Plan,
        Principal,
        Refused,
        ReleaseState,
        Report,
        SessionState,
        Table,
        WorkloadPlan,
    )

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    out.print_json(json.dumps(value, default=str))


def print_line(text: str) -> None:
    """Print a sentence, whole however wide the terminal is."""
    out.print(text, markup=False, soft_wrap=True)


def cell(value: object) -> str:
    """A value for a person: numbers with separators and six digits, everything else as it is."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Decimal):
        return f"{value:,.6g}"
    return str(value)


def progress_of(done: int | None, left: int | None) -> str:
    """How much is done, of how much where there is a limit."""
    if done is None:
        return "-"
    return f"{done:,}" if left is None else f"{done:,} of {done + left:,}"


def _facts(title: str, facts: Mapping[str, object]) -> Grid:
    table = Grid(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right", overflow="fold")
    for name, value in facts.items():
        table.add_row(name, cell(value))
    return table


def show_check(found: Check) -> None:
    """Print on standard error what a check found beside the declaration."""
    if found.problems:
        table = Grid("record", "attribute", "problem", title="A registration would be refused", title_justify="left")
        for problem in found.problems:
            row = "" if problem.row is None else cell(problem.row)
            table.add_row(row, Text(problem.attribute or ""), Text(problem.detail))
        err.print(table)
    if found.report is not None:
        show_report(found.report, err)
    for what, sentences in (("Warning", found.warnings), ("Note", found.notes)):
        for sentence in sentences:
            err.print(f"{what}: {sentence}", markup=False, soft_wrap=True)


def show_plan(made: Plan, chosen: Mapping[str, object]) -> None:
    """Print a plan: what answers, what that means, and then the numbers that it has.

    Args:
        made: the plan.
        chosen: the reply that it came with, which has the mechanism and, where the service chose, why.
    """
    mechanism = chosen.get("mechanism")
    if isinstance(mechanism, Mapping):
        out.print(f"[bold]{mechanism.get('construction')}[/bold]", end="")
        out.print(f": {chosen['why']}" if chosen.get("why") else "", markup=False, soft_wrap=True)
    if made.how is not None:
        out.print(made.how, markup=False, soft_wrap=True)
    if made.expected:
        out.print(made.expected, markup=False, soft_wrap=True)
    promised = made.error_bound is not None
    facts: dict[str, object] = {
        "noise": made.noise,
        "noise scale (counts)": made.noise_scale,
        "threshold (counts)": made.threshold,
        "error bound (counts)": made.error_bound,
        "... holds with probability": 1 - made.beta if promised else None,
        "queries": made.max_queries,
        "updates": made.max_updates if promised else None,
        "updates suffice for all queries": made.guaranteed if promised else None,
        "updates at worst": (made.update_bound or made.bound_status) if promised else None,
        "epsilon of the data set's": made.epsilon,
        "epsilon of this part alone": made.epsilon_alone,
        "delta": made.delta,
        "calibration": made.calibration if promised else None,
    }
    out.print(_facts("Plan", {name: fact for name, fact in facts.items() if fact is not None}))


def show_comparison(found: Comparison) -> None:
    """Print the plans of several mechanisms, one row a mechanism."""
    table = Grid("", "mechanism")
    for column in ("error bound (counts)", "... for all queries", "updates", "noise scale (counts)"):
        table.add_column(column, justify="right")
    table.add_column("why not")
    for number, outcome in enumerate(found.outcomes):
        name = " ".join(str(value) for value in outcome.mechanism.values())
        made = outcome.plan
        numbers: tuple[object, ...] = ("",) * 4
        if made is not None:
            certain = "no promise" if outcome.certain_error is None else outcome.certain_error
            numbers = (made.error_bound, certain, made.max_updates, made.noise_scale)
        refusal = "" if outcome.problem is None else outcome.problem.detail or outcome.problem.title
        table.add_row("best" if number == found.best else "", name, *map(cell, numbers), refusal)
    out.print(table)
    out.print(found.advice, markup=False)


def _interval(ends: tuple[float, float] | None, error: float | None) -> str:
    from curator_client.words import figure

    return "n/a" if ends is None else " to ".join(figure(end, error) for end in ends)


def _about(answer: Answer | Table) -> dict[str, object]:
    """The lines that every answer has beside its numbers."""
    facts: dict[str, object] = {}
    if answer.confidence is not None and answer.interval_kind is not None:
        facts["intervals hold with probability"] = f"{answer.confidence:g} ({answer.interval_kind})"
    facts |= {
        "error bound": answer.error_bound,
        "source": answer.source,
        "charged epsilon": answer.charged,
        "updates": progress_of(answer.raw["updates_used"], answer.raw["updates_left"]),
        "queries left": answer.queries_left,
    }
    return facts if answer.note is None else facts | {"note": answer.note}


def show_answer(answer: Answer | Table, what: str) -> None:
    """Print an answer: a number, or a table of them with a row a cell.

    Args:
        answer: to print.
        what: the numbers are.
    """
    from curator_client import Table
    from curator_client.words import named

    title = f"Answer {answer.sequence}"
    if not isinstance(answer, Table):
        out.print(
            _facts(
                title,
                {what: str(answer), "interval": _interval(answer.interval, answer.standard_error)} | _about(answer),
            )
        )
        return
    table = Grid(*[axis.name for axis in answer.axes], title=title, title_justify="left")
    for name in (what, "interval"):
        table.add_column(name, justify="right")
    for labels, value in answer:
        table.add_row(*map(named, labels), str(value), _interval(value.interval, value.standard_error))
    out.print(table)
    for name, fact in _about(answer).items():
        out.print(f"{name}: {cell(fact)}", markup=False)


def print_csv(answer: Answer | Table) -> None:
    """Print an answer as CSV: a row a cell, with its labels; numbers that are not known are empty."""
    from curator_client import Table

    if isinstance(answer, Table):
        sys.stdout.write(answer.to_csv())
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("value", "standard_error", "low", "high"))
        numbers = (None if answer.missing else float(answer), answer.standard_error, *(answer.interval or (None, None)))
        writer.writerow(numbers)


def print_rows(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print rows as CSV, with empty fields for what is not known."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows([columns, *rows])


def show_state(state: SessionState, *, as_json: bool) -> None:
    """Print a session's state."""
    if as_json:
        print_json(state.raw)
        return
    out.print(
        _facts(
            f"Session {state.id}",
            {
                "data set": state.dataset,
                "construction": state.mechanism.get("construction"),
                "status": state.status,
                "queries": progress_of(state.queries_asked, state.queries_left),
                "updates": progress_of(state.updates_used, state.updates_left),
                "error bound (counts)": state.plan.error_bound,
                "spent of epsilon": state.spent_epsilon,
                "reserved of epsilon": state.reserved_epsilon,
                "spent exactly (Rényi, at the ledger's order)": state.spent,
                "reserved exactly (Rényi)": state.reserved,
                "head hash": state.head_hash,
                "in the log of": None if state.log_size is None else f"{state.log_size:,} entries",
            },
        )
    )


def _listing(*columns: str, numbers: Collection[str] = (), whole: str | None = None) -> Grid:
    """A table of which no cell loses a character, however narrow the terminal is.

    Args:
        columns: their headings.
        numbers: those that are set to the right.
        whole: one that is never broken into lines.
    """
    table = Grid(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=name == whole)
    return table


def show_sessions(found: list[SessionState], *, as_json: bool) -> None:
    """Print sessions, one row each; amounts are parts of the data set's epsilon."""
    if as_json:
        print_json([state.raw for state in found])
        return
    numbers = ("queries", "spent", "reserved")
    table = _listing("session", "owner\ndata set", "answers by\nstatus", *numbers, numbers=numbers, whole="session")
    for state in found:
        table.add_row(
            state.id,
            f"{state.owner or ''}\n{state.dataset}",
            f"{state.mechanism.get('construction', '')}\n{state.status}",
            progress_of(state.queries_asked, state.queries_left),
            cell(state.spent_epsilon),
            cell(state.reserved_epsilon),
        )
    out.print(table)


def show_principals(found: list[Member], *, as_json: bool) -> None:
    """Print who may call, one row each."""
    if as_json:
        print_json([member.raw for member in found])
        return
    table = _listing("name", "role", "since", "key revoked")
    for member in found:
        table.add_row(member.name, member.role, member.created_at, member.revoked_at or "")
    out.print(table)


def show_ledger(found: Ledger, *, as_json: bool) -> None:
    """Print a ledger: its movements, what they come to, and what is left; as epsilons first, and then exact."""
    if as_json:
        print_json(found.raw)
        return
    from curator_client import Budget

    raw = found.raw
    where = "session, entry, time"
    table = _listing("movement", "epsilon", where, "exact", numbers=("epsilon",), whole=where)
    for entry in found.entries:
        place = [entry["session"] or "", entry["sequence"] and f"entry {entry['sequence']:,}", entry["recorded_at"]]
        exact = [entry["amount"], entry["pure"] and f"pure {entry['pure']}"]
        lines = ("\n".join(filter(None, part)) for part in (place, exact))
        table.add_row(str(entry["kind"]), cell(entry["epsilon"]), *lines)
    out.print(table)
    sums = Budget.parse(raw["epsilon"])
    totals = _listing("counted by", "spent", "reserved", "remaining", numbers=("spent", "reserved", "remaining"))
    for name, of in (("renyi", sums.renyi), ("pure", sums.pure)):
        counts = " (counts)" if name == sums.regime else ""
        totals.add_row(f"{name}{counts}", *map(cell, (of.spent_epsilon, of.reserved_epsilon, of.remaining_epsilon)))
    out.print(f"epsilon {cell(sums.epsilon)}, of which are", markup=False)
    out.print(totals)
    exactly = _listing("exactly", "sum", "of", "remaining")
    exactly.add_row(f"renyi, order {raw['order']}", raw["sum"], raw["budget"], raw["remaining"])
    exactly.add_row("pure", raw["pure"]["sum"], raw["pure"]["budget"], raw["pure"]["remaining"])
    out.print(exactly)


def show_verdict(verdict: Verdict, *, as_json: bool) -> None:
    """Print what a replay found; in a table, only of a transcript that replays."""
    if as_json:
        print_json(
            {
                "ok": verdict.ok,
                "problem": verdict.problem,
                "sequence": verdict.sequence,
                "summary": verdict.summary,
            }
        )
    elif verdict.ok:
        table = Grid("the transcript replays", title_justify="left")
        table.add_column("", overflow="fold")
        for name, value in verdict.summary.items():
            table.add_row(name.replace("_", " "), cell(value))
        out.print(table)


def show_books(verdict: FolderVerdict, *, as_json: bool) -> None:
    """Print what a replay of a folder found; in a table, a row a data set, only where all follows."""
    if as_json:
        print_json(verdict.document())
        return
    if not verdict.ok:
        return
    title = f"all follows, up to entry {verdict.log.size:,} of {verdict.log.origin}"
    numbers = ("sessions\nreleases", "answers\nmovements", "epsilon", "spent", "reserved", "remaining")
    table = _listing("data set", *numbers, numbers=numbers)
    for found in verdict.datasets:
        # Rounded here; exact in the JSON.
        amounts = [float(found[name]["epsilon"]) for name in ("budget", "spent", "reserved", "remaining")]
        retired = " (retired)" if found["retired_at"] is not None else ""
        table.add_row(
            Text(found["dataset"] + retired),
            f"{found['sessions']:,}\n{found['releases']:,}",
            f"{found['answers']:,}\n{found['movements']:,}",
            *map(cell, amounts),
        )
    out.print(title, highlight=False, soft_wrap=True)
    out.print(table)
    for what in ("entries", "movements"):
        missing = sum(found[f"{what}_not_in_log"] for found in verdict.datasets)
        if missing:
            err.print(f"{missing:,} {what} of transcripts are not in the log yet: fetch it again", soft_wrap=True)


def show_key(holder: Principal, *, as_json: bool) -> None:
    """Print a principal's key, alone on standard output."""
    if as_json:
        print_json({"name": holder.name, "role": holder.role, "api_key": holder.api_key})
        return
    err.print(f"{holder.role} [bold]{holder.name}[/bold] may now call with this key, shown only now:")
    out.print(holder.api_key, soft_wrap=True)


def show_datasets(found: list[Dataset], *, as_json: bool) -> None:
    """Print data sets, one row each."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("epsilon\ndelta", "spent", "reserved", "remaining")
    table = _listing("name", "kind\nstatus", *numbers, "counted by", numbers=numbers)
    for item in found:
        budget, grant = item.budget, item.grant
        table.add_row(
            item.name,
            f"{item.kind}\n{item.raw.get('status', '')}",
            f"{cell(budget.epsilon)}\n{cell(budget.delta)}",
            *map(cell, (budget.spent_epsilon, budget.reserved_epsilon, budget.remaining_epsilon)),
            budget.regime
            + ("" if grant is None else f"\nyour grant: {cell(grant.available_epsilon)} of {cell(grant.epsilon)}"),
        )
    out.print(table)


def show_grants(found: list[Grant], *, as_json: bool) -> None:
    """Print who may hold how much and what is left, one row each; a dash where there is no grant."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("grant", "spent", "reserved", "remaining", "available")
    table = _listing("data set", "analyst", *numbers, numbers=numbers)
    for item in found:
        table.add_row(
            item.dataset,
            item.principal,
            "–" if item.epsilon is None else cell(item.epsilon),
            *map(cell, (item.spent_epsilon, item.reserved_epsilon, item.remaining_epsilon, item.available_epsilon)),
        )
    out.print(table)


def show_holders(found: list[Holder], *, as_json: bool) -> None:
    """Print whose sessions are on a data set and what they cost, one row each."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("epsilon", "spent", "reserved", "asked\ncharged")
    table = _listing(
        "session", "analyst\nanswers by", "status\nopened, closed", *numbers, numbers=numbers, whole="session"
    )
    for item in found:
        table.add_row(
            item.id,
            f"{item.owner}\n{item.construction}",
            "\n".join(filter(None, (item.status, item.opened_at, item.closed_at))),
            *map(cell, (item.epsilon, item.spent_epsilon, item.reserved_epsilon)),
            f"{item.queries_asked:,}\n{item.updates_used:,}",
        )
    out.print(table)


def show_report(report: Report, to: Console = out) -> None:
    """Print what became of the records of a file, one row an attribute that did not simply keep all."""
    beyond = f", {cell(report.beyond_cap)} beyond the cap" if report.beyond_cap else ""
    to.print(f"{cell(report.read)} records read, {cell(report.kept)} kept{beyond}", markup=False)
    table = Grid("attribute")
    for column in ("dropped", "clamped", "missing"):
        table.add_column(column, justify="right")
    for name, tally in report.attributes.items():
        if any(tally.values()):
            table.add_row(Text(name), *(cell(tally[column]) for column in ("dropped", "clamped", "missing")))
    if table.row_count:
        table.add_section()
        table.add_row("records in all", cell(report.dropped), cell(report.clamped), "")
        to.print(table)


def show_problem(problem: Refused) -> None:
    """Print a refusal of the service."""
    from curator_client.errors import SqlRefused

    err.print(f"[bold red]{problem.title}[/bold red] [dim]({problem.type}, {problem.status})[/dim]")
    if isinstance(problem, SqlRefused):  # which shows the place
        err.print(str(problem), markup=False, soft_wrap=True)
        return
    if problem.detail:
        err.print(problem.detail, markup=False)
    for name, value in problem.extra.items():
        several = isinstance(value, list)
        err.print(f"  {name}:" if several else f"  {name}: {_in_words(value)}", markup=False)
        for item in value if several else ():
            err.print(f"    {_in_words(item)}", markup=False)


def _in_words(fact: object) -> object:
    """A fact of a refusal on one line."""
    return ", ".join(f"{name} {value}" for name, value in fact.items()) if isinstance(fact, Mapping) else fact


def show_error(message: str) -> None:
    """Print a failure in a sentence."""
    err.print("[bold red]Error:[/bold red]", end=" ")
    err.print(message, markup=False)


def show_release(state: ReleaseState, *, as_json: bool) -> None:
    """Print where a release stands."""
    if as_json:
        print_json(state.raw)
        return
    cost, problem = state.cost, state.problem
    facts: dict[str, object] = {
        "data set": state.dataset,
        "method": state.method,
        "workload": json.dumps(state.workload),
        "status": state.status,
        "step": None if state.ended else state.step,
        "progress": None if state.ended else f"{state.progress:.0%}",
        "seconds foretold": None if state.ended else f"{state.expected_seconds:.3g}",
        "epsilon held": cost.get("reserved_epsilon"),
        "epsilon spent": cost.get("spent_epsilon"),
        "why": None if problem is None else problem.detail,
    }
    out.print(_facts(f"Release {state.id}", {name: fact for name, fact in facts.items() if fact is not None}))


def show_ways(found: WorkloadPlan, *, as_json: bool) -> None:
    """Print all ways to have a workload answered, a line each."""
    if as_json:
        print_json(found.raw)
        return
    table = Grid("", "method", "asked", box=SIMPLE)
    for column in ("root mean square (counts)", "largest", "how meant", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("why not")
    for way in found.ways:
        best = not way.interactive and way.name == found.best
        refusal = "" if way.problem is None else way.problem.detail or way.problem.title
        errors = map(cell, (way.root_mean_square, way.largest, way.basis, way.expected_seconds))
        table.add_row("best" if best else "", way.name, "in a session" if way.interactive else "", *errors, refusal)
    out.print(table)


def show_releases(found: Collection[ReleaseState], *, as_json: bool) -> None:
    """Print releases, a line each."""
    if as_json:
        print_json([state.raw for state in found])
        return
    table = Grid("release", "data set", "method", "status", "progress", box=SIMPLE)
    for state in found:
        table.add_row(state.id, Text(state.dataset), state.method, state.status, f"{state.progress:.0%}")
    out.print(table)


@contextmanager
def progress_bar() -> Iterator[Callable[[ReleaseState], None]]:
    """A bar on standard error that shows the states it is called with."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("queued", total=1.0)

        def show(state: ReleaseState) -> None:
            step = state.status if state.ended or state.status == "queued" else state.step
            bar.update(task, description=step, completed=state.progress)

        yield show
