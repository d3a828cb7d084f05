"""Commands for connections to databases outside."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.connection import client
from app.cli.groups import connections
from app.cli.inputs import read_secret
from app.cli.options import AsJson
from app.cli.rendering import say, show_connections

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the connection.", show_default=False)]


@connections.command("add")
def connection_add(name: _Name) -> None:
    """Add a connection to a database. Its URL is read from standard input, and never shown again."""
    url = read_secret("URL of the database (postgresql://... or sc://...)")
    with client("Adding the connection") as curator:
        curator.add_connection(name, url)
    say(f"The connection {name} is there: a declaration may name it.")


@connections.command("list")
def connection_list(as_json: AsJson = False) -> None:
    """List connections. Their URLs are never shown again."""
    with client("Asking for the connections") as curator:
        found = curator.connections()
    show_connections(found, as_json=as_json)


@connections.command("replace")
def connection_replace(name: _Name) -> None:
    """Keep another URL under a name, as after a password was changed. It is read from standard input."""
    url = read_secret("URL of the database (postgresql://... or sc://...)")
    with client("Replacing the connection") as curator:
        curator.replace_connection(name, url)
    say(f"The connection {name} has another URL: what is asked through it goes on.")


@connections.command("check")
def connection_check(name: _Name) -> None:
    """Ask a connection's database whether it answers, and its role only reads where it tells; exit code 1 if not."""
    with client("Checking the connection") as curator:
        problems = curator.check_connection(name)
    for problem in problems:
        say(f"- {problem}")
    if problems:
        raise typer.Exit(1)
    say(f"The connection {name} answers, and nothing is wrong with it as far as it tells.")


@connections.command("remove")
def connection_remove(name: _Name) -> None:
    """Forget a connection for good."""
    with client("Removing the connection") as curator:
        curator.remove_connection(name)
    say(f"The connection {name} is forgotten.")
