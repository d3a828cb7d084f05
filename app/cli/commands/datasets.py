"""Commands for data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli, datasets
from app.cli.inputs import parse_decimal, parse_object
from app.cli.options import AsJson, DatasetName, Epsilon, existing_file
from app.cli.rendering import (
    err,
    print_json,
    say,
    show_check,
    show_datasets,
    show_grants,
    show_holders,
    show_ledger,
    show_report,
)


@datasets.command("add")
def dataset_add(
    spec: Annotated[Path, existing_file("SPEC", "The declaration, in JSON.")],
    data: Annotated[Path | None, existing_file("DATA", "The private file; left out where SPEC names a source.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register a data set: SPEC is its declaration (JSON), DATA its private file (CSV, Excel, Parquet,
    NumPy, edges). Where SPEC names a source, files on the server's own disk, there is no DATA.
    """
    declared = parse_object(spec.read_text(encoding="utf-8"), str(spec))
    with client(f"Registering {spec.name if data is None else data.name}") as curator:
        registered = curator.register(declared, data)
    show_datasets([registered.dataset], as_json=as_json)
    if registered.report is not None and not as_json:
        show_report(registered.report)
    for warning in registered.warnings:
        say(f"Warning: {warning}", err)


@datasets.command("check")
def dataset_check(
    data: Annotated[Path, existing_file("DATA", "The private file.")],
    spec: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="The declaration as far as it is known, in JSON or YAML, or a SmartNoise or CSVW document. Left out, "
            "all of it is drafted.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Which table of a document with several.", show_default=False)
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="Write the declaration to this file.", show_default=False)
    ] = None,
) -> None:
    """Check a declaration and its file DATA, or draft one. Nothing is registered or kept.

    The declaration is printed as JSON, what is wrong with it or should be known of it on standard error. The command
    fails where a registration would.
    """
    text = None if spec is None else spec.read_text(encoding="utf-8")
    with client(f"Checking {data.name}") as curator:
        found = curator.check(data, text, table=table)
    if to is None:
        print_json(found.spec)
    else:
        to.write_text(json.dumps(found.spec, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    show_check(found)
    if found.problems:
        raise typer.Exit(1)


@datasets.command("list")
def dataset_list(as_json: AsJson = False) -> None:
    """List the data sets, whether they are still there, and what is left of their budgets."""
    with client("Asking for the data sets") as curator:
        found = curator.datasets()
    show_datasets(found, as_json=as_json)


@datasets.command("show")
def dataset_show(name: DatasetName) -> None:
    """Print a data set's public descriptor as JSON."""
    with client("Asking for the data set") as curator:
        found = curator.dataset(name)
    print_json(found.raw)


@cli.command()
def ledger(name: DatasetName, as_json: AsJson = False) -> None:
    """List every movement of a data set's budget, what they come to, and what is left."""
    with client("Asking for the ledger") as curator:
        found = curator.ledger(name)
    show_ledger(found, as_json=as_json)


@datasets.command("grant")
def dataset_grant(
    name: DatasetName,
    principal: Annotated[str, typer.Argument(metavar="ANALYST", help="Who may spend it.", show_default=False)],
    epsilon: Epsilon,
    as_json: AsJson = False,
) -> None:
    """Cap what one analyst may spend of a data set's epsilon."""
    with client("Granting") as curator:
        given = curator.grant(name, principal, parse_decimal(epsilon, "epsilon"))
    if as_json:
        print_json(given.raw)
        return
    say(f"{principal} may spend up to epsilon {epsilon} of {name}.")
    say(f"What that promises: {given.promises}.")


@datasets.command("sessions")
def dataset_sessions(name: DatasetName, as_json: AsJson = False) -> None:
    """List all sessions on a data set, those of releases too: whose they are and what they cost, not what was asked."""
    with client("Asking for the sessions") as curator:
        found = curator.holders(name)
    show_holders(found, as_json=as_json)


@cli.command()
def grants(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="DATASET", help="A data set: what everybody may hold of it, for admins. Yours where left out."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List who may hold how much of a data set's epsilon, what is spent and reserved of it, and what is left."""
    with client("Asking for the grants") as curator:
        found = curator.grants(name)
    show_grants(found, as_json=as_json)


@datasets.command("commitment")
def dataset_commitment(name: DatasetName, as_json: AsJson = False) -> None:
    """Reveal the commitment to a data set's private file, with its key. The log says that it was revealed to you.

    Give the key to nobody who may not see the file: with it guesses of the file can be tested. It is destroyed with the
    file when the data set is retired. `curator audit commitment` checks a file by it.
    """
    with client("Revealing the commitment") as curator:
        found = curator.reveal_commitment(name)
    if as_json:
        print_json(asdict(found))
        return
    say(f"{found.algorithm} {found.commitment}")
    say(f"key {found.key}")


@datasets.command("retire")
def dataset_retire(
    name: DatasetName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Destroy a data set's private file. Its public records stay; this cannot be undone."""
    if not yes:
        typer.confirm(f"Destroy the private file of {name}?", abort=True, err=True)
    with client("Retiring the data set") as curator:
        curator.retire(name)
    say(f"{name} is retired.")


@datasets.command("dummy")
def dataset_dummy(
    name: DatasetName,
    to: Annotated[Path, typer.Option("--out", help="The file: .csv, .parquet or .arrow.", dir_okay=False)],
    records: Annotated[int, typer.Option("--records", min=1, max=100_000, help="How many records.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Equal seeds give equal records.")] = 0,
) -> None:
    """Write made-up records like those of a data set, drawn from its declaration alone."""
    if to.suffix not in (".csv", ".parquet", ".arrow"):
        raise Refusal("the name must end in .csv, .parquet or .arrow")
    with client("Asking for made-up records") as curator:
        curator.dataset(name).save_dummy(to, records, seed=seed)
    say(f"Wrote {to}: made up from the declaration of {name}, nothing of its data.")
