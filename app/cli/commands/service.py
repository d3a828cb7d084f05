"""Commands that run the service, maintain what it stores, and demonstrate it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import operating
from app.cli.groups import cli, log, vault
from app.cli.rendering import err, out, say


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; more than one needs PostgreSQL.")] = 1,
) -> None:
    """Serve until SIGTERM. The embedded database is migrated first; its data lie in CURATOR_DATA_DIR."""
    gc.disable()  # nothing of what is imported goes, and looking for garbage in it takes a fifth of the time
    from app.bootstrap import serving

    gc.enable()
    with operating():
        serving.serve(host, port, workers)


@cli.command()
def work() -> None:
    """Work on what servers with CURATOR_FINISHER=table put out, until SIGTERM.

    CURATOR_DATABASE_URL names their database and a role that sees the table of jobs alone. It needs no data and no key.
    """
    from app.bootstrap import working

    with operating():
        working.work()


@cli.command()
def migrate() -> None:
    """Bring the database of CURATOR_DATABASE_URL to the present schema."""
    from app.bootstrap import maintenance

    with operating(), err.status("Migrating the database"):
        maintenance.migrate()
    say("The database is up to date.")


@cli.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for it.", show_default=False)],
) -> None:
    """Copy database, private files and keys into a new folder, also while the server runs."""
    from app.bootstrap import maintenance

    with operating(), err.status("Backing up"):
        files = maintenance.back_up(folder)
    say(f"{folder} is a whole backup, with {files:,} private files.")


@cli.command()
def restore(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="What `backup` made.", show_default=False),
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

    with operating(), err.status("Restoring"):
        maintenance.restore(folder, final=final)
    say("Everything is restored." if final else "The records are restored; every budget counts as spent.")


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
    with operating():
        maintenance.forfeit()
    say("Every budget counts as spent.")


@vault.command("rotate")
def vault_rotate() -> None:
    """Put every private file under CURATOR_VAULT_KEY. The old key is CURATOR_VAULT_OLD_KEY; unset, files lie in
    the clear. The server must stand still; what is interrupted is finished by running it again.
    """
    from app.bootstrap import maintenance

    with operating(), err.status("Changing the key of private files"):
        done = maintenance.rotate_vault()
    say(f"Every private file is under the new key; {done:,} had to be changed.")


@log.command("rotate")
def log_rotate(
    lost: Annotated[
        bool,
        typer.Option("--lost", help="The key is lost and cannot vouch: go on as a log of another name."),
    ] = False,
) -> None:
    """Give the log another key, for which the old one vouches: auditors follow.

    A new key is made in the data folder, and the old one destroyed once the log tells of the new one. Where keys are
    set: CURATOR_LOG_KEY is the new one, CURATOR_LOG_OLD_KEY the old one; the start of a server with both does the same.
    The server must stand still; what is interrupted is finished by running it again, or at the next start.
    """
    from app.bootstrap import maintenance

    with operating(), err.status("Changing the key of the log"):
        key = maintenance.rotate_log(lost=lost)
    told = f"The log is signed with {key} from here on." if key else "The log begins anew at the next start."
    say(told)


@cli.command()
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Folder for the page and its files.")
    ] = Path("demo"),
    stay: Annotated[bool, typer.Option("--stay", help="Keep the server until Ctrl-C.")] = False,
    papers: Annotated[
        bool, typer.Option("--papers", help="The papers' constructions instead: three audited sessions, no files.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="With --papers: run on adult-pgm/adult.csv and email-Eu-core/email-Eu-core.txt in this folder.",
            show_default=False,
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(
            "--questions",
            min=1,
            help="Of the session with a promise (50,000); with --papers of the first two sessions (2,000).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of made-up data and of the analysts who probe.")] = 2012,
) -> None:
    """Run a real server for a minute: tables of a survey with their margins against the truth, a promise for 50,000
    questions, two cheats; ends with a page.
    """
    if papers:
        from app.demo.papers import run as run_papers

        raise typer.Exit(run_papers(out, data=data, queries=questions or 2000, seed=seed))
    if data is not None:
        raise typer.BadParameter("goes with --papers", param_hint="--data")
    from app.demo.runner import run

    raise typer.Exit(run(out, out_folder, questions=questions or 50_000, seed=seed, stay=stay))
