"""The command `curator` and its groups of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from curator_client.version import __version__

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
connections = _group("Connections to databases whose tables data sets name.")
sources = _group("Records that stay where they are.")
datasets = _group("Private data sets and their budgets.")
sessions = _group("Sessions of adaptively chosen queries.")
releases = _group("Releases of workloads that are known in advance.")
vault = _group("Private files at rest.")
log = _group("The key of the log.")
audits = _group("Checks of transcripts and of the log.")
cli.add_typer(principals, name="principal")
cli.add_typer(connections, name="connection")
cli.add_typer(sources, name="source")
cli.add_typer(datasets, name="dataset")
cli.add_typer(sessions, name="session")
cli.add_typer(releases, name="release")
cli.add_typer(vault, name="vault")
cli.add_typer(log, name="log")
cli.add_typer(audits, name="audit")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"curator {__version__}")
        raise typer.Exit


@cli.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


#: All of them, each with its commands.
groups = (cli, principals, connections, sources, datasets, sessions, releases, vault, log, audits)
