"""Output: results as tables or JSON on standard output, everything else on standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from app.cli.listings import Column, columns, facts, folded, listed

if TYPE_CHECKING:
    from app.audit.replay import Verdict
    from app.audit.verdict import FolderVerdict
    from app.bootstrap.rehearsal import Rehearsal
    from curator_client import (
        Answer,
        Cell,
        Check,
        Comparison,
        Connection,
        Dataset,
        Grant,
        Holder,
        Key,
        Ledger,
        Plan,
        Principal,
        Refused,
        ReleaseState,
        Report,
        SessionState,
        SqlResult,
        Table,
        WorkloadPlan,
    )

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

#: What the next command is given.
_WHOLE = (
    "data set",
    "data set\nanalyst",
    "name",
    "opened\nclosed",
    "release\ndata set",
    "session\nanalyst",
    "session\ndata set",
)
#: Of records with one problem so many are named.
_ROWS = 5


def print_json(value: object) -> None:
    """Print a value as JSON."""
    out.print_json(json.dumps(value, default=str))


def say(text: str, to: Console = out, *, bold: str = "") -> None:
    """Print sentences in lines that the terminal has room for. No word is broken: ids, keys and paths stay whole.

    Args:
        text: of one line or several.
        to: where to.
        bold: how the text begins, which is set off where the terminal can.
    """
    for number, line in enumerate(folded(text, to.width, whole=True)):
        told = Text(line)
        if bold and number == 0:
            told.stylize("bold", 0, len(bold))
        to.print(told, soft_wrap=True)


def _show_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], to: Console = out) -> None:
    """Print a table of which no cell loses a character."""
    for line in listed(columns, list(rows), to.width):
        to.print(line, markup=False, soft_wrap=True)


def _show_list(columns: Sequence[Column], rows: Sequence[Sequence[str]], none: str) -> None:
    """Print what there is; where there is nothing, say that in place of a table of headings."""
    if rows:
        _show_table(columns, rows)
    else:
        out.print(none)


def _show_facts(title: str, found: Mapping[str, object]) -> None:
    """Print what is known of one thing, a line a fact."""
    out.print(title, markup=False, soft_wrap=True, style="bold")
    for line in facts([(name, cell(fact)) for name, fact in found.items()], out.width):
        out.print(line, markup=False, soft_wrap=True)


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


def show_check(found: Check) -> None:
    """Print on standard error what a check found beside the declaration."""
    if found.problems:
        say("A registration would be refused:", err)
        kinds: dict[tuple[str, str], list[int]] = {}
        for problem in found.problems:
            rows = kinds.setdefault((problem.attribute or "", problem.detail), [])
            if problem.row is not None:
                rows.append(problem.row)
        table = [(name, _rows(rows), detail) for (name, detail), rows in kinds.items()]
        _show_table(columns("attribute", "records", "problem", whole=("attribute", "records")), table, err)
    if found.report is not None:
        show_report(found.report, err)
    for what, sentences in (("Warning", found.warnings), ("Note", found.notes)):
        for sentence in sentences:
            say(f"{what}: {sentence}", err)


def show_rehearsal(found: Rehearsal) -> None:
    """Print how long questions of made-up records took, and what to declare."""
    shown = columns("question", "seconds", "expected", numbers=("seconds", "expected"))
    _show_table(shown, [(each.question, f"{each.seconds:.2f}", f"{each.expected:.2f}") for each in found.timed])
    say(f"Seconds are of {found.records:,} made-up records, and expected of {found.capacity:,}, the declared capacity.")
    if found.possible:
        say(f'Declare "answer_seconds": {found.answer_seconds}, twice what the slowest is expected to take.')
    else:
        say(
            f"Twice what the slowest is expected to take is {found.answer_seconds:,} seconds, and nobody waits for "
            f"more than {found.longest:g} here: raise CURATOR_REQUEST_TIMEOUT_SECONDS, or declare fewer values."
        )


def _rows(rows: Sequence[int]) -> str:
    """The numbers of some records: the first of them."""
    return ", ".join(str(row) for row in rows[:_ROWS]) + (" and others" if len(rows) > _ROWS else "")


def show_plan(made: Plan, chosen: Mapping[str, object]) -> None:
    """Print a plan: what answers, what that means, and then the numbers that it has.

    Args:
        made: the plan.
        chosen: the reply that it came with, which has the mechanism and, where the service chose, why.
    """
    mechanism = chosen.get("mechanism")
    if isinstance(mechanism, Mapping):
        name = str(mechanism.get("construction"))
        say(f"{name}: {chosen['why']}" if chosen.get("why") else name, bold=name)
    for text in (made.how, made.expected):
        if text:
            say(text)
    promised = made.error_bound is not None
    found: dict[str, object] = {
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
    _show_facts("Plan", {name: fact for name, fact in found.items() if fact is not None})


def show_comparison(found: Comparison) -> None:
    """Print the plans of several mechanisms, a line each, and those that there is no plan for."""
    rows, refused = [], []
    for number, outcome in enumerate(found.outcomes):
        name = " ".join(str(value) for value in outcome.mechanism.values())
        made = outcome.plan
        if made is None:
            problem = outcome.problem
            refused.append((name, "" if problem is None else problem.detail or problem.title))
            continue
        certain = "no promise" if outcome.certain_error is None else outcome.certain_error
        numbers = map(cell, (made.error_bound, certain, made.max_updates, made.noise_scale))
        rows.append((name, *numbers, "best" if number == found.best else ""))
    names = ("error bound\n(counts)", "for all\nqueries", "updates", "noise scale\n(counts)")
    _show_table(columns("mechanism", *names, "", numbers=names, whole=("mechanism",)), rows)
    _show_refused("mechanism", refused)
    say(found.advice)


def _show_refused(what: str, refused: Sequence[tuple[str, str]]) -> None:
    """Print why some ways are none, a line each; where a reason is longer, the reply has all of it."""
    if not refused:
        return
    left = max(len(name) for name, _ in refused)
    out.print(f"\nNot this {what}:", markup=False)
    cut = False
    for name, why in refused:
        short = Text(f"{name:{left}}  {why}")
        cut |= short.cell_len > out.width
        short.truncate(out.width, overflow="ellipsis")
        out.print(short, soft_wrap=True)
    out.print("(--json has the whole of each reason.)\n" if cut else "", markup=False)


def _interval(ends: tuple[float, float] | None, error: float | None) -> str:
    from curator_client.words import figure

    return "n/a" if ends is None else " to ".join(figure(end, error) for end in ends)


def _about(answer: Answer | Table) -> dict[str, object]:
    """The lines that every answer has beside its numbers."""
    found: dict[str, object] = {}
    if answer.confidence is not None and answer.interval_kind is not None:
        found["intervals hold with probability"] = f"{answer.confidence:g} ({answer.interval_kind})"
    if answer.error_bound is not None:
        found["error bound"] = answer.error_bound
        found["updates"] = progress_of(answer.raw["updates_used"], answer.raw["updates_left"])
    found["source"] = answer.source
    found["charged epsilon"] = answer.charged
    found["queries left"] = "not limited" if answer.queries_left is None else answer.queries_left
    return found if answer.note is None else found | {"note": answer.note}


def _doubt(value: Cell) -> str:
    """What is to be said of a number beside its error."""
    from curator_client.words import UNCERTAIN

    return UNCERTAIN if value.reliable is False else ""


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
        told = ", ".join(filter(None, (str(answer), _doubt(answer))))
        interval = _interval(answer.interval, answer.standard_error)
        _show_facts(title, {what: told, "interval": interval} | _about(answer))
        return
    rows = [
        (*map(named, labels), str(value), _interval(value.interval, value.standard_error), _doubt(value))
        for labels, value in answer
    ]
    out.print(title, markup=False, style="bold")
    _show_cells([axis.name for axis in answer.axes], (what, "interval"), rows)
    out.print()
    for line in facts([(name, cell(fact)) for name, fact in _about(answer).items()], out.width):
        out.print(line, markup=False, soft_wrap=True)


def _show_cells(labels: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of labels, numbers and, at the end, doubts, where there are any."""
    shown = [Column(name) for name in labels] + [Column(name, number=True, whole=True) for name in numbers]
    if any(row[-1] for row in rows):
        _show_table([*shown, Column("", whole=True)], rows)
    else:
        _show_table(shown, [row[:-1] for row in rows])


def show_sql(result: SqlResult) -> None:
    """Print the rows of a statement: each number with its standard error and its interval in two columns. Where there
    are more than two aggregates, or one of two is too uncertain in some row, each has a line of its own."""
    names, rows = result.columns, [tuple(row.values()) for row in result]
    roles = [str(column["role"]) for column in result.raw["columns"]]
    values = _aggregates(roles, rows)
    if "price" in roles:
        for row in rows:
            for line in facts([(name, _plain(value)) for name, value in zip(names, row, strict=True)], out.width):
                out.print(line, markup=False, soft_wrap=True)
    elif not values:
        _show_table([Column(name) for name in names], [[_plain(value) for value in row] for row in rows])
    else:
        groups = [place for place, role in enumerate(roles) if role == "group"]
        labels = [names[place] for place in groups]
        told = [[_plain(row[place]) for place in groups] for row in rows]
        cells = [[_cell_of(*row[place : place + 4]) for place in values] for row in rows]
        shown = [[(str(n), _interval(n.interval, n.standard_error), _doubt(n)) for n in row] for row in cells]
        aggregates = [names[place] for place in values]
        doubted = any(doubt for row in shown for *_, doubt in row)
        if len(values) > 2 or (len(values) == 2 and doubted):
            lines = [
                [*group, name, *texts]
                for group, row in zip(told, shown, strict=True)
                for name, texts in zip(aggregates, row, strict=True)
            ]
            _show_cells([*labels, "of"], ("value", "interval"), lines)
        else:
            heads = [head for name in aggregates for head in (name, "interval")]
            lines = [
                [*group, *(text for value, interval, _ in row for text in (value, interval)), row[-1][-1]]
                for group, row in zip(told, shown, strict=True)
            ]
            _show_cells(labels, heads, lines)
    for notice in result.notices:
        say(notice)


def _aggregates(roles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[int]:
    """Where the aggregates of a statement stand, if each is one number and has its error and interval behind it."""
    behind = ["standard_error", "low", "high"]
    values = [place for place, role in enumerate(roles) if role == "value"]
    whole = all(list(roles[place + 1 : place + 4]) == behind for place in values)
    known = sum(role == "group" for role in roles) + 4 * len(values) == len(roles)
    single = not any(isinstance(row[place], list) for row in rows for place in values)
    return values if whole and known and single else []


def _cell_of(value: float | None, error: float | None, low: float | None, high: float | None) -> Cell:
    from curator_client import Cell

    return Cell(value, error, None if low is None or high is None else (low, high))


def _plain(value: object) -> str:
    """A value of a row of no known role."""
    from curator_client.words import named

    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return cell(value) if isinstance(value, bool | float) else named(value)


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
    found: dict[str, object] = {
        "data set": state.dataset,
        "construction": state.mechanism.get("construction"),
        "status": state.status,
        "queries": progress_of(state.queries_asked, state.queries_left),
        "updates": progress_of(state.updates_used, state.updates_left),
    }
    if state.plan.error_bound is not None:
        found["error bound (counts)"] = state.plan.error_bound
    found |= {
        "spent of epsilon": state.spent_epsilon,
        "reserved of epsilon": state.reserved_epsilon,
        "spent exactly (Rényi)": state.spent,
        "reserved exactly (Rényi)": state.reserved,
        "head hash": state.head_hash,
        "in the log of": None if state.log_size is None else f"{state.log_size:,} entries",
    }
    _show_facts(f"Session {state.id}", found)


def show_sessions(found: list[SessionState], *, as_json: bool) -> None:
    """Print sessions, one row each; amounts are parts of the data set's epsilon."""
    if as_json:
        print_json([state.raw for state in found])
        return
    numbers = ("queries", "spent", "reserved")
    names = columns("session\ndata set", "owner\nanswers by", "status", *numbers, numbers=numbers, whole=_WHOLE)
    rows = [
        (
            f"{state.id}\n{state.dataset}",
            f"{state.owner or ''}\n{state.mechanism.get('construction', '')}",
            state.status,
            progress_of(state.queries_asked, state.queries_left),
            cell(state.spent_epsilon),
            cell(state.reserved_epsilon),
        )
        for state in found
    ]
    _show_list(names, rows, "no sessions")


def show_connections(found: list[Connection], *, as_json: bool) -> None:
    """Print connections to databases, one row each."""
    if as_json:
        print_json([each.raw for each in found])
        return
    rows = [(each.name, each.type, each.created_at, each.created_by) for each in found]
    _show_list(columns("name", "type", "since", "added by", whole=("name", "since")), rows, "no connections")


def show_principals(found: list[Principal], *, as_json: bool) -> None:
    """Print who may call, one row each."""
    if as_json:
        print_json([member.raw for member in found])
        return
    rows = [(member.name, member.role, member.created_at, member.revoked_at or "") for member in found]
    _show_list(columns("name", "role", "since", "key revoked", whole=("name", "since")), rows, "nobody")


def show_ledger(found: Ledger, *, as_json: bool) -> None:
    """Print a ledger: its movements, what they come to, and what is left; as epsilons first, and then exact."""
    if as_json:
        print_json(found.raw)
        return
    from curator_client import Budget

    raw = found.raw
    rows = []
    for entry in raw["entries"]:
        place = f"entry {entry['sequence']:,}" if entry["sequence"] else ""
        exact = [_exactly(entry["amount"])] + ([f"pure {entry['pure']}"] if Decimal(entry["pure"] or 0) else [])
        rows.append(
            (
                f"{entry['session'] or ''}\n{entry['recorded_at']}",
                f"{entry['kind']}\n{place}",
                "\n".join([cell(entry["epsilon"]), *exact]),
            )
        )
    head = columns("session\ntime", "movement\nentry", "epsilon\nexact", numbers=("epsilon\nexact",))
    _show_list(head, rows, "nothing was moved")
    sums = Budget.parse(raw["epsilon"])
    numbers = ("spent", "reserved", "remaining")
    totals = []
    for name, of in (("renyi", sums.renyi), ("pure", sums.pure)):
        counts = " (counts)" if name == sums.regime else ""
        amounts = map(cell, (of.spent, of.reserved, of.left))
        totals.append((f"{name}{counts}", *amounts))
    say(f"\nepsilon {cell(sums.epsilon)}, of which are")
    _show_table(columns("counted by", *numbers, numbers=numbers), totals)
    exactly = [
        (f"{name} {what}", _exactly(of[key]))
        for name, of in ((f"renyi (order {raw['order']}):", raw), ("pure:", raw["pure"]))
        for what, key in (("sum", "sum"), ("of", "budget"), ("remaining", "remaining"))
    ]
    say("\nexactly")
    for line in facts(exactly, out.width):
        out.print(line, markup=False, soft_wrap=True)


def _exactly(amount: str) -> str:
    """An amount as it is, and nothing as one zero."""
    return amount if Decimal(amount) else "0"


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
        _show_facts(
            "the transcript replays", {name.replace("_", " "): value for name, value in verdict.summary.items()}
        )


def show_books(verdict: FolderVerdict, *, as_json: bool) -> None:
    """Print what a replay of a folder found; in a table, a row a data set, only where all follows."""
    if as_json:
        print_json(verdict.document())
        return
    if not verdict.ok:
        return
    title = f"all follows, up to entry {verdict.log.size:,} of {verdict.log.origin}"
    numbers = ("sessions\nreleases", "answers\nmovements", "epsilon", "spent", "reserved", "remaining")
    rows = []
    for found in verdict.datasets:
        # Rounded here; exact in the JSON.
        amounts = [float(found[name]["epsilon"]) for name in ("budget", "spent", "reserved", "remaining")]
        rows.append(
            (
                found["dataset"] + (" (retired)" if found["retired_at"] is not None else ""),
                f"{found['sessions']:,}\n{found['releases']:,}",
                f"{found['answers']:,}\n{found['movements']:,}",
                *map(cell, amounts),
            )
        )
    say(title)
    _show_list(columns("data set", *numbers, numbers=numbers, whole=_WHOLE), rows, "no data sets")
    for what in ("entries", "movements"):
        missing = sum(found[f"{what}_not_in_log"] for found in verdict.datasets)
        if missing:
            say(f"{missing:,} {what} of transcripts are not in the log yet: fetch it again", err)


def show_key(key: Key, *, as_json: bool) -> None:
    """Print a principal's key, alone on standard output."""
    if as_json:
        print_json({"name": key.name, "role": key.role, "api_key": key})
        return
    say(f"{key.role} {key.name} may now call with this key, shown only now:", err)
    out.print(key, soft_wrap=True)


def show_datasets(found: list[Dataset], *, as_json: bool) -> None:
    """Print data sets, one row each."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("epsilon\ndelta", "spent", "reserved", "remaining")
    rows = []
    for item in found:
        budget, grant = item.budget, item.grant
        own = "" if grant is None else f"\nyour grant: {cell(grant.available)} of {cell(grant.epsilon)}"
        rows.append(
            (
                item.name,
                f"{item.kind}\n{item.raw.get('status', '')}",
                f"{cell(budget.epsilon)}\n{cell(budget.delta)}",
                *map(cell, (budget.spent, budget.reserved, budget.left)),
                budget.regime + own,
            )
        )
    names = columns("name", "kind\nstatus", *numbers, "counted by", numbers=numbers, whole=_WHOLE)
    _show_list(names, rows, "no data sets")


def show_grants(found: list[Grant], *, as_json: bool) -> None:
    """Print who may hold how much and what is left, one row each; a dash where there is no grant."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("grant", "spent", "reserved", "remaining", "available")
    rows = [
        (
            f"{item.dataset}\n{item.principal}",
            "–" if item.epsilon is None else cell(item.epsilon),
            *map(cell, (item.spent, item.reserved, item.left, item.available)),
        )
        for item in found
    ]
    _show_list(columns("data set\nanalyst", *numbers, numbers=numbers, whole=_WHOLE), rows, "no grants")


def show_holders(found: list[Holder], *, as_json: bool) -> None:
    """Print whose sessions are on a data set and what they cost, one row each."""
    if as_json:
        print_json([item.raw for item in found])
        return
    numbers = ("epsilon", "spent", "reserved", "asked\ncharged")
    rows = [
        (
            f"{item.id}\n{item.owner}",
            f"{item.construction}\n{item.status}",
            "\n".join(filter(None, (item.opened_at, item.closed_at))),
            *map(cell, (item.epsilon, item.spent_epsilon, item.reserved_epsilon)),
            f"{item.queries_asked:,}\n{item.updates_used:,}",
        )
        for item in found
    ]
    names = columns("session\nanalyst", "answers by\nstatus", "opened\nclosed", *numbers, numbers=numbers, whole=_WHOLE)
    _show_list(names, rows, "no sessions")


def show_report(report: Report, to: Console = out) -> None:
    """Print what became of the records of a file, one row an attribute that did not simply keep all."""
    beyond = f", {cell(report.beyond_cap)} beyond the cap" if report.beyond_cap else ""
    say(f"{cell(report.read)} records read, {cell(report.kept)} kept{beyond}", to)
    numbers = ("dropped", "clamped", "missing")
    rows = [
        (name, *(cell(tally[number]) for number in numbers))
        for name, tally in report.attributes.items()
        if any(tally.values())
    ]
    if rows:
        rows.append(("records in all", cell(report.dropped), cell(report.clamped), ""))
        _show_table(columns("attribute", *numbers, numbers=numbers), rows, to)


#: What to do about a refusal on the command line, where the client's own advice speaks of Python.
_ADVICE = {
    "unauthenticated": "Set CURATOR_API_KEY to the key that the admin told you.",
    "not-found": "What there is: curator dataset list, curator session list, curator release list.",
}


def show_problem(problem: Refused) -> None:
    """Print a refusal of the service."""
    from curator_client.errors import SqlRefused

    title = f"{problem.title} ({problem.type}, {problem.status})"
    say(title, err, bold=title)
    if isinstance(problem, SqlRefused):  # which shows the place
        told, *place = str(problem).split("\n")
        say(told, err)
        for line in place:
            err.print(line, markup=False, soft_wrap=True)
        return
    if problem.detail:
        say(problem.detail, err)
    for name, value in problem.extra.items():
        if isinstance(value, list):
            say(f"  {name}:", err)
            for item in _together(value):
                say(f"    {item}", err)
        else:
            say(f"  {name}: {_in_words(value)}", err)
    advice = _ADVICE.get(problem.type, problem.advice)
    if advice:
        say(advice, err)


def _together(items: Sequence[object]) -> list[str]:
    """Items of a list in words, those as one that differ by the row alone."""
    rows: dict[str, list[int]] = {}
    for item in items:
        row = item.get("row") if isinstance(item, Mapping) else None
        rest = {k: v for k, v in item.items() if k != "row"} if isinstance(item, Mapping) and row is not None else item
        rows.setdefault(str(_in_words(rest)), []).extend([] if row is None else [row])
    return [
        f"row{'s' if len(found) > 1 else ''} {_rows(found)}, {text}" if found else text for text, found in rows.items()
    ]


def _in_words(fact: object) -> object:
    """A fact of a refusal on one line."""
    return ", ".join(f"{name} {value}" for name, value in fact.items()) if isinstance(fact, Mapping) else fact


def show_error(message: str) -> None:
    """Print a failure in a sentence."""
    say(f"Error: {message}", err, bold="Error:")


def show_release(state: ReleaseState, *, as_json: bool) -> None:
    """Print where a release stands."""
    if as_json:
        print_json(state.raw)
        return
    cost, problem = state.cost, state.problem
    found: dict[str, object] = {
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
    _show_facts(f"Release {state.id}", {name: fact for name, fact in found.items() if fact is not None})


def show_ways(found: WorkloadPlan, *, as_json: bool) -> None:
    """Print all ways to have a workload answered, best first, a line each, and why others are none."""
    if as_json:
        print_json(found.raw)
        return
    rows, refused = [], []
    for way in found:
        name = f"{way.name} (session)" if way.interactive else way.name
        if way.problem is not None:
            refused.append((name, way.problem.detail or way.problem.title))
            continue
        errors = ["n/a" if error is None else cell(error) for error in (way.root_mean_square, way.largest, way.basis)]
        seconds = "" if way.expected_seconds is None else f"{way.expected_seconds:,.3g}"
        best = not way.interactive and way.name == found.best
        rows.append((name, *errors, seconds, "best" if best else ""))
    numbers = ("root mean square\n(counts)", "largest", "seconds")
    head = columns("method", *numbers[:2], "how meant", "seconds", "", numbers=numbers, whole=("method",))
    _show_table(head, rows)
    _show_refused("method", refused)


def show_releases(found: Collection[ReleaseState], *, as_json: bool) -> None:
    """Print releases, a line each."""
    if as_json:
        print_json([state.raw for state in found])
        return
    rows = [(f"{state.id}\n{state.dataset}", state.method, state.status, f"{state.progress:.0%}") for state in found]
    names = columns("release\ndata set", "method", "status", "progress", numbers=("progress",), whole=_WHOLE)
    _show_list(names, rows, "no releases")


@contextmanager
def progress_bar() -> Iterator[Callable[[ReleaseState], None]]:
    """A bar on standard error that shows the states it is called with."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Elsewhere than on a terminal even a bar that is shown nowhere would leave a line.
    with Progress(*parts, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("queued", total=1.0)

        def show(state: ReleaseState) -> None:
            step = state.status if state.ended or state.status == "queued" else state.step
            bar.update(task, description=step, completed=state.progress)

        yield show
