"""Commands for sessions: plans, opening, state, transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import client
from app.cli.errors import judging
from app.cli.groups import cli, sessions
from app.cli.inputs import parse_decimal, parse_mechanism
from app.cli.options import (
    AsJson,
    Beta,
    Calibration,
    Contract,
    DatasetName,
    DeclaredQueries,
    Dummy,
    Epsilon,
    ForItself,
    FromNothing,
    MaxQueries,
    MaxUpdates,
    Mechanism,
    Release,
    SessionConfidence,
    SessionId,
    SessionWithin,
)
from app.cli.rendering import print_json, say, show_comparison, show_plan, show_sessions, show_state


@cli.command()
def plan(
    dataset: DatasetName,
    epsilon: Epsilon,
    max_queries: DeclaredQueries = None,
    mechanism: Mechanism = None,
    max_updates: MaxUpdates = None,
    beta: Beta = None,
    calibration: Calibration = None,
    release: Release = None,
    within: SessionWithin = None,
    confidence: SessionConfidence = None,
    from_nothing: FromNothing = False,
    for_itself: ForItself = False,
    contract: Contract = False,
    as_json: AsJson = False,
) -> None:
    """Show what a session would promise and cost. Charges nothing."""
    terms = _terms(epsilon, max_queries, max_updates, beta, calibration, release)
    terms |= _evidence(within, confidence, from_nothing, for_itself, contract)
    with client("Planning") as curator:
        made = curator.plan(dataset, mechanism=_mechanism(mechanism), **terms)
    if as_json:
        print_json(made.raw)
    else:
        show_plan(made, made.raw)


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
    asked = [parse_mechanism(text) for text in mechanisms]
    terms = _terms(epsilon, max_queries, max_updates, beta, calibration, release)
    with client("Planning") as curator:
        found = curator.compare(dataset, asked, **terms)
    if as_json:
        print_json(found.raw)
    else:
        show_comparison(found)


@sessions.command("open")
def session_open(
    dataset: DatasetName,
    epsilon: Epsilon,
    max_queries: DeclaredQueries = None,
    mechanism: Mechanism = None,
    max_updates: MaxUpdates = None,
    beta: Beta = None,
    calibration: Calibration = None,
    release: Release = None,
    within: SessionWithin = None,
    confidence: SessionConfidence = None,
    from_nothing: FromNothing = False,
    for_itself: ForItself = False,
    contract: Contract = False,
    dummy: Dummy = False,
    as_json: AsJson = False,
) -> None:
    """Open a session, reserving its share of the budget, and print its id and plan."""
    terms = _terms(epsilon, max_queries, max_updates, beta, calibration, release)
    terms |= _evidence(within, confidence, from_nothing, for_itself, contract) | {"dummy": True if dummy else None}
    with client("Opening the session") as curator:
        session = curator.session(dataset, mechanism=_mechanism(mechanism), **terms)
    if as_json:
        print_json(session.opened.raw)
        return
    show_plan(session.plan, session.opened.raw)
    where = " on made-up records" if session.opened.dummy else ""
    say(f"Session {session.id} is open{where}.")


@sessions.command("show")
def session_show(session: SessionId, as_json: AsJson = False) -> None:
    """Show where a session stands: queries, updates, what it spent."""
    with client("Asking for the session") as curator:
        state = curator.resume(session).opened
    show_state(state, as_json=as_json)


@sessions.command("list")
def session_list(as_json: AsJson = False) -> None:
    """List the sessions you may see."""
    with client("Asking for the sessions") as curator:
        found = curator.sessions()
    show_sessions(found, as_json=as_json)


@sessions.command("close")
def session_close(session: SessionId, as_json: AsJson = False) -> None:
    """Close a session; what it reserved and did not spend returns to the data set."""
    with client("Closing the session") as curator:
        state = curator.resume(session).close()
    show_state(state, as_json=as_json)


@sessions.command("transcript")
def session_transcript(
    session: SessionId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default="SESSION.ndjson")
    ] = None,
) -> None:
    """Download a session's transcript, which `audit replay` checks."""
    target = output or Path(f"{session}.ndjson")
    with client("Downloading the transcript") as curator:
        curator.resume(session).transcript(target)
    say(f"Wrote {target} ({target.stat().st_size:,} bytes).")


@sessions.command("verify")
def session_verify(
    session: SessionId,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Where the log is kept, as `audit fetch` does: the whole transcript must be what it has.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a session's transcript, replay it, and hold it against the log.

    Without --log only the log's checkpoint is looked at, which tells nothing of the session's records.

    Exit code 1 when the transcript does not replay or is not what the log has, as far as that is kept, 3 when the log
    or the folder is not what was signed.
    """
    with client("Verifying the session") as curator, judging("the log cannot be what it was: "):
        found = curator.resume(session).verify(log=log or True, replay=True)
    if as_json:
        print_json({**found.summary, "checked": found.checked, "not_checked": found.not_checked})
    else:
        say(str(found))


def _mechanism(text: str | None) -> Any:
    return "auto" if text is None else parse_mechanism(text)


def _evidence(
    within: float | None, confidence: float | None, from_nothing: bool, for_itself: bool, contract: bool
) -> dict[str, Any]:
    """The terms of sessions that answer from evidence, None where nothing is said."""
    return {
        "within": within,
        "confidence": confidence,
        "start": "nothing" if from_nothing else None,
        "share": False if for_itself else None,
        "contract": True if contract else None,
    }


def _terms(
    epsilon: str,
    max_queries: int | None,
    max_updates: int | None,
    beta: float | None,
    calibration: str | None,
    release: str | None,
) -> dict[str, Any]:
    """The terms of a session beside its data set and mechanism."""
    return {
        "epsilon": parse_decimal(epsilon, "epsilon"),
        "max_queries": max_queries,
        "max_updates": max_updates,
        "beta": beta,
        "calibration": calibration,
        "release": release,
    }
