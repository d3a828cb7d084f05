"""Commands for records that stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import operating
from app.cli.groups import sources
from app.cli.inputs import parse_object
from app.cli.options import AsJson, existing_file
from app.cli.rendering import err, print_json, show_rehearsal


@sources.command("rehearse")
def source_rehearse(
    spec: Annotated[Path, existing_file("SPEC", "The declaration, in JSON.")],
    records: Annotated[
        int | None,
        typer.Option(min=1, help="How many records are made up; ten million at most unless said.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Where they are written meanwhile.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find a good number for answer_seconds of SPEC, a declaration that names files as its source.

    The dearest questions are asked of made-up records, as many as the declaration says there may be. The data are never
    looked at. Run it on the server's machine and with its settings, when it has as much else to do as ever.
    """
    from app.bootstrap.rehearsal import rehearse
    from app.declarations.spec import parse_spec
    from app.settings import Settings

    declared = parse_object(spec.read_text(encoding="utf-8"), str(spec))
    with operating(), err.status("Asking made-up records"):
        found = rehearse(parse_spec(declared), Settings(), records, folder)
    if as_json:
        print_json(found.view())
    else:
        show_rehearsal(found)
    if not found.possible:
        raise typer.Exit(1)
