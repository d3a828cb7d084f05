"""Commands for principals."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from app.cli.connection import client
from app.cli.groups import principals
from app.cli.options import AsJson
from app.cli.rendering import say, show_key, show_principals


@principals.command("add")
def principal_add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new name; names are never reused.", show_default=False)
    ],
    role: Annotated[
        Literal["admin", "analyst", "auditor"], typer.Option(help="admin, analyst or auditor.", show_choices=False)
    ] = "analyst",
    as_json: AsJson = False,
) -> None:
    """Add a principal and print its key, which is shown only now."""
    with client("Adding the principal") as curator:
        added = curator.add_principal(name, role)
    show_key(added, as_json=as_json)


@principals.command("list")
def principal_list(as_json: AsJson = False) -> None:
    """List who may call, and whose key is revoked. Keys are never shown again."""
    with client("Asking for the principals") as curator:
        found = curator.principals()
    show_principals(found, as_json=as_json)


@principals.command("rotate")
def principal_rotate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key to replace.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Replace a principal's key, a revoked one too, and print the new one, which is shown only now."""
    with client("Replacing the key") as curator:
        rotated = curator.rotate_key(name)
    show_key(rotated, as_json=as_json)


@principals.command("revoke")
def principal_revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key to revoke.", show_default=False)],
) -> None:
    """Revoke a principal's key for good."""
    with client("Revoking the key") as curator:
        curator.revoke(name)
    say(f"The key of {name} is revoked.")
