"""The command line: runs the service, calls it as a client, and audits transcripts without it.

Commands that call the service take its address from ``CURATOR_URL`` and the caller's key from
``CURATOR_API_KEY``. What a command finds goes to standard output, everything else to standard error. Exit
code 0 is success, 1 a refusal or a failure told in a sentence, 2 a command that was not understood.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from app.client import Answer, Comparison, Curator, Dataset, Plan, Principal, Problem, SessionState

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

HELP = {"help_option_names": ["-h", "--help"]}


def _group(help: str) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True, context_settings=HELP, rich_markup_mode="rich")


cli = typer.Typer(
    name="curator",
    help="A differentially private query service: serve it, ask it, audit it.\n\n"
    "Client commands call the service at [bold]CURATOR_URL[/bold] (default http://127.0.0.1:8000) "
    "with the key in [bold]CURATOR_API_KEY[/bold].",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)
principals = _group("Who may call the service.")
datasets = _group("Private data sets and their budgets.")
sessions = _group("Sessions of adaptively chosen queries.")
vault = _group("Private files at rest.")
audits = _group("Checks that need nothing but a transcript.")
cli.add_typer(principals, name="principal")
cli.add_typer(datasets, name="dataset")
cli.add_typer(sessions, name="session")
cli.add_typer(vault, name="vault")
cli.add_typer(audits, name="audit")

AsJson = Annotated[bool, typer.Option("--json", help="Print the service's reply as JSON.")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The data set's name.", show_default=False)]
ExistingFile = typer.Argument(exists=True, dir_okay=False, readable=True, show_default=False)

Construction = Annotated[
    str, typer.Option("--construction", "-c", help="How the hypothesis is kept: mw, fk, md, smw or median.")
]
Epsilon = Annotated[str, typer.Option("--epsilon", "-e", help="Share of the data set's epsilon.", show_default=False)]
MaxQueries = Annotated[
    int,
    typer.Option(
        "--max-queries", "-k", min=1, help="Most queries; the bound holds for all of them.", show_default=False
    ),
]
MaxUpdates = Annotated[
    int | None,
    typer.Option(help="Most updates; left out, the guaranteed plan is made.", show_default=False),
]
Beta = Annotated[float | None, typer.Option(help="Probability with which bounds may fail.", show_default=False)]
Calibration = Annotated[
    str | None, typer.Option(help="Noise calibration: rdp, exact, gru2011 or jt2012.", show_default="rdp")
]
Release = Annotated[
    str | None,
    typer.Option(help="One draw a query (single) or a secret number of them (race).", show_default="single"),
]
Step = Annotated[
    str | None,
    typer.Option(help="How far an update goes: projection, paper, full or refit.", show_default="projection"),
]
Potential = Annotated[str | None, typer.Option(help="Of md: entropy, lp, group or schatten.", show_default=False)]
P = Annotated[str | None, typer.Option("--p", help="Of md: the norm's p, a number or auto.", show_default=False)]
BallP = Annotated[
    str | None,
    typer.Option(help="Of md: p of the norm that bounds the hypothesis, a number, auto or none.", show_default=False),
]
Zeta = Annotated[
    float | None, typer.Option(help="Of md: the queries' largest dual norm, promised.", show_default=False)
]
Axis = Annotated[str | None, typer.Option(help="Of the group norm: rows or columns.", show_default=False)]
Sparsity = Annotated[int | None, typer.Option(help="Of smw: most non-zero weights of a query.", show_default=False)]
Sampled = Annotated[
    bool, typer.Option("--sampled", help="Of median: keep a sample of the data sets that the answers allow.")
]
Weights = Annotated[
    str | None,
    typer.Option(help="Of median: signed, or the promise of nonnegative weights.", show_default="signed"),
]


class Refusal(Exception):
    """Something the person at the keyboard can mend, told in a sentence."""


# The service


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; more than one needs PostgreSQL.")] = 1,
) -> None:
    """Serve until SIGTERM. The embedded database is migrated first; its data lie in CURATOR_DATA_DIR."""
    from app.bootstrap import serving

    with _operating():
        serving.serve(host, port, workers)


@cli.command()
def migrate() -> None:
    """Bring the database of CURATOR_DATABASE_URL to the present schema."""
    from app.bootstrap import maintenance

    with _operating(), err.status("Migrating the database"):
        maintenance.migrate()
    out.print("The database is up to date.")


@cli.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="A new folder for it.", show_default=False)],
) -> None:
    """Copy database, private files and keys into a new folder, also while the server runs."""
    from app.bootstrap import maintenance

    with _operating(), err.status("Backing up"):
        files = maintenance.back_up(folder)
    out.print(f"{folder} is a whole backup, with {files:,} private files.", markup=False, soft_wrap=True)


@cli.command()
def restore(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="What `backup` made.", show_default=False)
    ],
    final: Annotated[
        bool,
        typer.Option("--final", help="I know that nothing was asked since, there or on any other copy: all goes on."),
    ] = False,
) -> None:
    """Put a backup into an empty data folder and database.

    Without --final only the records come back: nobody knows what was released since, so every session is closed,
    every budget counts as spent, data sets are retired, and all keys but the operator's are revoked.
    """
    from app.bootstrap import maintenance

    with _operating(), err.status("Restoring"):
        maintenance.restore(folder, final=final)
    out.print("Everything is restored." if final else "The records are restored; every budget counts as spent.")


@cli.command()
def forfeit(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """After restoring an old database by other means: close every session, count every budget as spent, retire
    the data sets, revoke all keys but the operator's.
    """
    from app.bootstrap import maintenance

    if not yes:
        typer.confirm("Give up what is left of every budget, for good?", abort=True, err=True)
    with _operating():
        maintenance.forfeit()
    out.print("Every budget counts as spent.")


@vault.command("rotate")
def vault_rotate() -> None:
    """Put every private file under CURATOR_VAULT_KEY. The old key is CURATOR_VAULT_OLD_KEY; unset, files lie in
    the clear. The server must stand still; what is interrupted is finished by running it again.
    """
    from app.bootstrap import maintenance

    with _operating(), err.status("Changing the key of private files"):
        done = maintenance.rotate_vault()
    out.print(f"Every private file is under the new key; {done:,} had to be changed.")


@contextmanager
def _operating() -> Iterator[None]:
    """What keeps the service from starting, told in a sentence; no value of a setting is repeated."""
    from pydantic import ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    from app.bootstrap.preconditions import StartRefused

    try:
        yield
    except StartRefused as refused:
        raise Refusal(str(refused)) from None
    except ValidationError as invalid:
        wrong = [
            f"CURATOR_{'.'.join(map(str, item['loc'])).upper()}: {item['msg'].removeprefix('Value error, ')}"
            for item in invalid.errors(include_input=False, include_url=False, include_context=False)
        ]
        raise Refusal("; ".join(wrong)) from None
    except SQLAlchemyError as failed:
        # The driver's own message names server and database, never the password; the statement is left out.
        raise Refusal(f"the database: {getattr(failed, 'orig', None) or failed}") from None


# The client


@contextmanager
def _client(doing: str) -> Iterator[Curator]:
    """The service as the environment names it, with a sign of life on the terminal while it works."""
    from app.client import Curator

    key = os.environ.get("CURATOR_API_KEY")
    if not key:
        raise Refusal("no key: set CURATOR_API_KEY to yours")
    url = os.environ.get("CURATOR_URL") or "http://127.0.0.1:8000"
    with Curator(url, key, retry_for=3.0) as curator, err.status(doing):
        yield curator


@principals.command("add")
def principal_add(
    name: Annotated[str, typer.Argument(help="The new name; names are never reused.", show_default=False)],
    role: Annotated[str, typer.Option(help="admin, analyst or auditor.")] = "analyst",
    as_json: AsJson = False,
) -> None:
    """Add a principal and print its key, which is told this once."""
    with _client("Adding the principal") as curator:
        added = curator.add_principal(name, role)
    _show_key(added, as_json=as_json)


@principals.command("rotate")
def principal_rotate(
    name: Annotated[str, typer.Argument(help="Whose key to replace.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Replace a principal's key, a revoked one too, and print the new one, which is told this once."""
    with _client("Replacing the key") as curator:
        rotated = curator.rotate_key(name)
    _show_key(rotated, as_json=as_json)


@principals.command("revoke")
def principal_revoke(
    name: Annotated[str, typer.Argument(help="Whose key to revoke.", show_default=False)],
) -> None:
    """Revoke a principal's key for good."""
    with _client("Revoking the key") as curator:
        curator.revoke_principal(name)
    out.print(f"The key of {name} is revoked.", markup=False)


@datasets.command("add")
def dataset_add(
    spec: Annotated[Path, ExistingFile],
    data: Annotated[Path, ExistingFile],
    as_json: AsJson = False,
) -> None:
    """Register a data set: SPEC is its declaration (JSON), DATA its private file (CSV, Parquet, NumPy,
    edges).
    """
    declared = _parse_object(spec.read_text(encoding="utf-8"), str(spec))
    with _client(f"Registering {data.name}") as curator:
        registered = curator.register(declared, data)
    _show_datasets([registered], as_json=as_json)
    for warning in registered.warnings:
        err.print(f"Warning: {warning}", markup=False, soft_wrap=True)


@datasets.command("list")
def dataset_list(as_json: AsJson = False) -> None:
    """List the data sets and what is left of their budgets."""
    with _client("Asking for the data sets") as curator:
        found = curator.datasets()
    _show_datasets(found, as_json=as_json)


@datasets.command("show")
def dataset_show(name: DatasetName) -> None:
    """Print a data set's public descriptor as JSON."""
    with _client("Asking for the data set") as curator:
        found = curator.dataset(name)
    _print_json(found.raw)


@datasets.command("grant")
def dataset_grant(
    name: DatasetName,
    principal: Annotated[str, typer.Argument(help="The analyst.", show_default=False)],
    epsilon: Epsilon,
) -> None:
    """Cap what one analyst may spend of a data set's epsilon."""
    with _client("Granting") as curator:
        curator.grant(name, principal, _decimal(epsilon, "epsilon"))
    out.print(f"{principal} may spend up to epsilon {epsilon} of {name}.", markup=False)


@datasets.command("retire")
def dataset_retire(
    name: DatasetName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Destroy a data set's private file. Its public records stay; this cannot be undone."""
    if not yes:
        typer.confirm(f"Destroy the private file of {name}?", abort=True, err=True)
    with _client("Retiring the data set") as curator:
        curator.retire(name)
    out.print(f"{name} is retired.", markup=False)


@cli.command()
def plan(
    dataset: DatasetName,
    epsilon: Epsilon,
    max_queries: MaxQueries,
    construction: Construction = "mw",
    max_updates: MaxUpdates = None,
    beta: Beta = None,
    calibration: Calibration = None,
    release: Release = None,
    step: Step = None,
    potential: Potential = None,
    p: P = None,
    ball_p: BallP = None,
    zeta: Zeta = None,
    axis: Axis = None,
    sparsity: Sparsity = None,
    sampled: Sampled = False,
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Show what a session would promise and cost. Charges nothing."""
    options = _session_options(max_updates, beta, calibration, release)
    with _client("Planning") as curator:
        made = curator.plan(
            dataset,
            _mechanism(construction, step, potential, p, ball_p, zeta, axis, sparsity, sampled, weights),
            epsilon=_decimal(epsilon, "epsilon"),
            max_queries=max_queries,
            **options,
        )
    if as_json:
        _print_json(made.raw)
    else:
        out.print(_plan_table(made))


@cli.command()
def compare(
    dataset: DatasetName,
    epsilon: Epsilon,
    max_queries: MaxQueries,
    mechanisms: Annotated[
        list[str],
        typer.Argument(
            metavar="MECHANISM...",
            help="Mechanisms, each a construction such as mw, or JSON such as "
            '\'{"construction": "md", "potential": "entropy"}\'.',
            show_default=False,
        ),
    ],
    max_updates: MaxUpdates = None,
    beta: Beta = None,
    calibration: Calibration = None,
    release: Release = None,
    as_json: AsJson = False,
) -> None:
    """Show the plans of several mechanisms side by side, and what plain noise would do. Charges nothing."""
    asked = [
        _parse_object(word, word) if word.lstrip().startswith("{") else {"construction": word} for word in mechanisms
    ]
    with _client("Planning") as curator:
        found = curator.compare(
            dataset,
            asked,
            epsilon=_decimal(epsilon, "epsilon"),
            max_queries=max_queries,
            **_session_options(max_updates, beta, calibration, release),
        )
    if as_json:
        _print_json(found.raw)
    else:
        _show_comparison(found)


@sessions.command("open")
def session_open(
    dataset: DatasetName,
    epsilon: Epsilon,
    max_queries: MaxQueries,
    construction: Construction = "mw",
    max_updates: MaxUpdates = None,
    beta: Beta = None,
    calibration: Calibration = None,
    release: Release = None,
    step: Step = None,
    potential: Potential = None,
    p: P = None,
    ball_p: BallP = None,
    zeta: Zeta = None,
    axis: Axis = None,
    sparsity: Sparsity = None,
    sampled: Sampled = False,
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Open a session, reserving its share of the budget, and print its id and plan."""
    options = _session_options(max_updates, beta, calibration, release)
    with _client("Opening the session") as curator:
        session = curator.open_session(
            dataset,
            _mechanism(construction, step, potential, p, ball_p, zeta, axis, sparsity, sampled, weights),
            epsilon=_decimal(epsilon, "epsilon"),
            max_queries=max_queries,
            **options,
        )
    if as_json:
        _print_json(session.opened.raw)
        return
    out.print(_plan_table(session.plan))
    out.print(f"Session [bold]{session.id}[/bold] is open.", soft_wrap=True)


@sessions.command("show")
def session_show(session: SessionId, as_json: AsJson = False) -> None:
    """Show where a session stands: queries, updates, what it spent."""
    with _client("Asking for the session") as curator:
        state = curator.session(session).opened
    _show_state(state, as_json=as_json)


@sessions.command("list")
def session_list(as_json: AsJson = False) -> None:
    """List the sessions you may see."""
    with _client("Asking for the sessions") as curator:
        found = curator.sessions()
    if as_json:
        _print_json([state.raw for state in found])
        return
    table = Table("session", "data set", "construction", "status")
    for columns in ("queries", "updates"):
        table.add_column(columns, justify="right")
    for state in found:
        table.add_row(
            state.id,
            state.dataset,
            str(state.mechanism.get("construction", "")),
            state.status,
            _of(state.queries_asked, state.queries_left),
            _of(state.updates_used, state.updates_left),
        )
    out.print(table)


@sessions.command("close")
def session_close(session: SessionId, as_json: AsJson = False) -> None:
    """Close a session; what it reserved and did not spend returns to the data set."""
    with _client("Closing the session") as curator:
        state = curator.session(session).close()
    _show_state(state, as_json=as_json)


@sessions.command("transcript")
def session_transcript(
    session: SessionId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default="SESSION.ndjson")
    ] = None,
) -> None:
    """Download a session's transcript, which `audit replay` checks."""
    target = output or Path(f"{session}.ndjson")
    with _client("Downloading the transcript") as curator:
        curator.session(session).transcript(target)
    out.print(f"Wrote {target} ({target.stat().st_size:,} bytes).", markup=False, soft_wrap=True)


@cli.command()
def ask(
    session: SessionId,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="The query as JSON, @FILE, or - for standard input.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Ask one query, such as '{"type": "predicate", "where": {"sex": {"equals": "female"}}}'."""
    asked = _parse_object(_text_of(query), "QUERY")
    with _client("Asking") as curator:
        answer = curator.session(session).ask(asked)
    if as_json:
        _print_json(answer.raw)
    else:
        out.print(_answer_table(answer))


# Audits and the demo


@audits.command("replay")
def audit_replay(
    transcript: Annotated[Path, ExistingFile],
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="HASH",
            help="A head_hash or entry_hash that was kept while the session ran; it must be in the transcript's chain.",
            show_default=False,
        ),
    ] = None,
    entries: Annotated[
        int | None,
        typer.Option(
            "--entries",
            min=0,
            help="How many entries there were at least; with --head, the sequence of the one that has the hash.",
            show_default=False,
        ),
    ] = None,
    memory_limit: Annotated[
        str, typer.Option(help="Most memory that the transcript may take, such as 500MB; what needs more is refused.")
    ] = "4GiB",
    as_json: AsJson = False,
) -> None:
    """Check a transcript by itself: its chain, its plan, and every answer it derives from earlier ones.

    Whoever can rewrite the whole file can make times, a cut end, the status and measurements agree again:
    --head with a hash from a reply, kept elsewhere, shows that what stands up to it is what it was.
    """
    from app.audit.replay import replay_file

    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head := head.strip().lower()):
        raise typer.BadParameter("a hash has 64 hexadecimal digits", param_hint="--head")
    limit = _bytes(memory_limit, "--memory-limit")
    with Progress(
        TextColumn("Replaying"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as progress:
        task = progress.add_task("replay", total=transcript.stat().st_size)
        verdict = replay_file(
            transcript,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            head=head,
            entries=entries,
            memory_limit=limit,
        )
    if as_json:
        _print_json(
            {
                "ok": verdict.ok,
                "problem": verdict.problem,
                "sequence": verdict.sequence,
                "summary": verdict.summary,
            }
        )
    elif verdict.ok:
        table = Table("the transcript follows", "", title_justify="left")
        for name, value in verdict.summary.items():
            table.add_row(name.replace("_", " "), _cell(value))
        out.print(table)
    if not verdict.ok:
        where = f"entry {verdict.sequence}: " if verdict.sequence is not None else ""
        raise Refusal(f"the transcript does not follow: {where}{verdict.problem}")


@cli.command()
def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Run on adult-pgm/adult.csv and email-Eu-core/email-Eu-core.txt in this folder instead.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries a session.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the made-up data and of the analysts.")] = 2012,
) -> None:
    """Run a real server for a few minutes: two sessions of adaptive queries, judged against the truth and
    audited.
    """
    from app.demo.runner import run

    raise typer.Exit(run(out, data=data, queries=queries, seed=seed))


# Reading what was typed


def _text_of(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        return Path(argument[1:]).read_text(encoding="utf-8")
    return argument


def _parse_object(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=_members)
    except ValueError as error:
        raise Refusal(f"{where} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Refusal(f"{where} is not a JSON object")
    return parsed


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. Raises ValueError where two have one name: the second would be sent alone."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has two members {twice!r}")
    return members


def _decimal(text: str, what: str) -> Decimal:
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = Decimal("nan")
    if not value.is_finite():
        raise Refusal(f"{what} must be a number, not {text!r}")
    return value


def _bytes(text: str, what: str) -> int:
    from app.settings import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=what) from None
    assert isinstance(size, int)
    return size


def _mechanism(
    construction: str,
    step: str | None,
    potential: str | None,
    p: str | None,
    ball_p: str | None,
    zeta: float | None,
    axis: str | None,
    sparsity: int | None,
    sampled: bool,
    weights: str | None,
) -> dict[str, Any]:
    given = {
        "step": step,
        "potential": potential,
        "p": _exponent(p, "p"),
        "ball_p": _exponent(ball_p, "ball-p"),
        "zeta": zeta,
        "axis": axis,
        "sparsity": sparsity,
        "sampled": sampled or None,
        "weights": weights,
    }
    return {
        "construction": construction,
        **{name: value for name, value in given.items() if value is not None},
    }


def _exponent(given: str | None, name: str) -> float | str | None:
    """An exponent as a number, or one of the words that stand for one."""
    return given if given in (None, "auto", "none") else float(_decimal(given, name))


def _session_options(
    max_updates: int | None,
    beta: float | None,
    calibration: str | None,
    release: str | None,
) -> dict[str, Any]:
    return {
        "max_updates": max_updates,
        "beta": beta,
        "calibration": calibration,
        "release": release,
    }


# Showing what was found


def _print_json(value: object) -> None:
    out.print_json(json.dumps(value, default=str))


def _cell(value: object) -> str:
    """A value for a person: numbers with separators and six digits, everything else as it is."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Decimal):
        return f"{value:,.6g}"
    return str(value)


def _of(done: int | None, left: int | None) -> str:
    if done is None:
        return "-"
    return f"{done:,}" if left is None else f"{done:,} of {done + left:,}"


def _facts(title: str, facts: Mapping[str, object]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts.items():
        table.add_row(name, _cell(value))
    return table


def _plan_table(made: Plan) -> Table:
    return _facts(
        "Plan",
        {
            "noise scale (counts)": made.noise_scale,
            "threshold (counts)": made.threshold,
            "error bound (counts)": made.error_bound,
            "... holds with probability": 1 - made.beta,
            "queries": made.max_queries,
            "updates": made.max_updates,
            "updates suffice for all queries": made.guaranteed,
            "updates at worst": made.bound_status if made.update_bound is None else made.update_bound,
            "epsilon of the data set's": made.epsilon,
            "epsilon of this part alone": made.epsilon_alone,
            "delta": made.delta,
            "calibration": made.calibration,
        },
    )


def _show_comparison(found: Comparison) -> None:
    table = Table("", "mechanism")
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
        table.add_row("best" if number == found.best else "", name, *map(_cell, numbers), refusal)
    out.print(table)
    out.print(found.advice, markup=False)


def _answer_table(answer: Answer) -> Table:
    return _facts(
        f"Answer {answer.sequence}",
        {
            "value": answer.value,
            "error bound": answer.error_bound,
            "source": answer.source,
            "updates": _of(answer.updates_used, answer.updates_left),
            "queries left": answer.queries_left,
        },
    )


def _show_state(state: SessionState, *, as_json: bool) -> None:
    if as_json:
        _print_json(state.raw)
        return
    out.print(
        _facts(
            f"Session {state.id}",
            {
                "data set": state.dataset,
                "construction": state.mechanism.get("construction"),
                "status": state.status,
                "queries": _of(state.queries_asked, state.queries_left),
                "updates": _of(state.updates_used, state.updates_left),
                "error bound (counts)": state.plan.error_bound,
                "spent (Rényi, at the ledger's order)": state.spent,
                "reserved (Rényi)": state.reserved,
                "head hash": state.head_hash,
            },
        )
    )


def _show_key(holder: Principal, *, as_json: bool) -> None:
    if as_json:
        _print_json({"name": holder.name, "role": holder.role, "api_key": holder.api_key})
        return
    err.print(f"{holder.role} [bold]{holder.name}[/bold] may now call with this key, shown only now:")
    out.print(holder.api_key, soft_wrap=True)


def _show_datasets(found: list[Dataset], *, as_json: bool) -> None:
    if as_json:
        _print_json([item.raw for item in found])
        return
    table = Table("name", "kind")
    for column in ("epsilon", "delta", "spent", "reserved", "remaining"):
        table.add_column(column, justify="right")
    for item in found:
        budget = item.budget
        amounts = (
            budget.epsilon,
            budget.delta,
            budget.spent_epsilon,
            budget.reserved_epsilon,
            budget.remaining_epsilon,
        )
        table.add_row(item.name, item.kind, *map(_cell, amounts))
    out.print(table)


def _show_problem(problem: Problem) -> None:
    err.print(f"[bold red]{problem.title}[/bold red] [dim]({problem.type}, {problem.status})[/dim]")
    if problem.detail:
        err.print(problem.detail, markup=False)
    for name, value in problem.extra.items():
        err.print(f"  {name}: {value}", markup=False)


def _fail(message: str, code: int = 1) -> NoReturn:
    err.print("[bold red]Error:[/bold red]", end=" ")
    err.print(message, markup=False)
    sys.exit(code)


def main() -> None:
    """Run the command line; every failure that a person can mend is a sentence, not a stack trace."""
    from app.client.errors import Problem, ProtocolError, Unreachable
    from app.spaces.errors import CuratorError

    try:
        cli()
    except Problem as problem:
        _show_problem(problem)
        sys.exit(1)
    except CuratorError as refusal:
        _fail(refusal.detail)
    except (Refusal, Unreachable, ProtocolError, OSError) as error:
        _fail(str(error))
    except UnicodeDecodeError:
        _fail("the file is not UTF-8 text")
    except KeyboardInterrupt:
        _fail("interrupted", 130)


if __name__ == "__main__":
    main()
