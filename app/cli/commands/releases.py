"""Commands for releases: asked for, followed, read, cancelled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli, releases
from app.cli.inputs import names_of, parse_decimal, parse_workload
from app.cli.options import AsJson, DatasetName, Epsilon, ForItself, FromNothing
from app.cli.rendering import print_json, progress_bar, say, show_release, show_releases, show_ways

ReleaseId = Annotated[str, typer.Argument(metavar="RELEASE", help="The release's id.", show_default=False)]
Workload = Annotated[
    str,
    typer.Option(
        "--workload",
        "-w",
        help="What is to be answered: marginals=3, marginals=2:age,sex, ranges=age, queries=FILE, cuts, rank_one, or "
        "JSON.",
        show_default=False,
    ),
]
Method = Annotated[str, typer.Option(help="How it is released: histogram, gaussian and so on.")]
Records = Annotated[int | None, typer.Option(min=1, help="synthetic_table: how many records.", show_default=False)]

Geometry = Annotated[str | None, typer.Option(help="synthetic_graph: spectral, or cut_norm.", show_default=False)]
Rounding = Annotated[str | None, typer.Option(help="synthetic_graph: edges, drawn by weight.", show_default=False)]
Rounds = Annotated[int | None, typer.Option(min=1, help="iterative_construction: how many.", show_default=False)]
Construction = Annotated[str | None, typer.Option(help="iterative_construction: mw or fk.", show_default=False)]


@releases.command("ask")
def release_ask(
    dataset: DatasetName,
    epsilon: Epsilon,
    workload: Workload,
    method: Method = "auto",
    records: Records = None,
    geometry: Geometry = None,
    rounding: Rounding = None,
    rounds: Rounds = None,
    construction: Construction = None,
    from_nothing: FromNothing = False,
    for_itself: ForItself = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a release; its share is reserved and the work queued."""
    options: dict[str, Any] = {
        "records": records,
        "geometry": geometry,
        "rounding": rounding,
        "rounds": rounds,
        "construction": construction,
        "start": "nothing" if from_nothing else None,
        "share": False if for_itself else None,
    }
    asked, share = parse_workload(workload), parse_decimal(epsilon, "epsilon")
    with client("Asking for the release") as curator:
        made = curator.release(dataset, asked, epsilon=share, method=cast(Any, method), **options)
    show_release(made.state, as_json=as_json)


@cli.command("publish")
def publish(
    dataset: DatasetName,
    output: Annotated[
        Path, typer.Option("--output", "-o", file_okay=False, help="The folder for the files.", show_default=False)
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="Attributes of a table, as age,sex; once for each.", show_default=False),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Tables as a JSON list of questions.", show_default=False),
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Of a session of yours: what it was asked for.", show_default=False)
    ] = None,
    epsilon: Annotated[str, typer.Option(help="What may be spent to measure for it first.")] = "0",
    within: Annotated[
        float | None,
        typer.Option(help="How far intervals may reach, in counts: tells what is missing.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish tables of whole numbers that add up to one another, and statistics beside them, from all that was
    measured: a workbook, a CSV file a table, and a manifest. Spends nothing unless told."""
    from curator_client import by, question

    asked = [by(*names_of(table)).count() for table in tables or ()]
    listed = [*map(question, parse_workload(f"queries={queries}")["queries"])] if queries is not None else []
    share = parse_decimal(epsilon, "epsilon")
    if (session is None) != bool(asked or listed):
        raise Refusal("give tables by --table or --queries, or those of a session by --session")
    with client(None) as curator, progress_bar() as show:
        made = curator.publish(
            dataset, tables=None if session else [*asked, *listed], session=session, epsilon=share, within=within
        )
        for state in made.events():
            show(state)
        made.wait()
    with client("Downloading the tables") as curator:
        found = curator.existing_release(made.id)
        output.mkdir(parents=True, exist_ok=True)
        manifest = found.manifest()
        files = [found.save(output / "tables.xlsx", part="tables")]
        for table in cast(list[Mapping[str, Any]], manifest["tables"]):
            files.append(found.save(output / f"table-{table['table']}.csv", part=f"table-{table['table']}"))
        files.append(output / "manifest.json")
        files[-1].write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(found.state.raw)
        return
    result = found.state.result or {}
    # Of statistics alone no records are made.
    records = f"{manifest['records']:,} records in " if manifest["records"] else ""
    say(f"Release {made.id}: {records}{len(files) - 2} tables.")
    for file in files:
        say(f"Wrote {file} ({file.stat().st_size:,} bytes).")
    for number in cast(list[int], result.get("untold", ())):
        say(f"Table {number} has no values: nothing that was measured tells them, or it may be of nobody.")
    for each in cast(list[Mapping[str, Any]], result.get("missing", ())):
        reaches = "anywhere" if each["half_width"] is None else f"{each['half_width']:,.4g} counts"
        costs = "no noise is so small" if each["epsilon"] is None else f"{each['epsilon']:.3g} of epsilon would mend it"
        say(f"Intervals of table {each['table']} reach {reaches} to either side: {costs}.")


@releases.command("plan")
def release_plan(dataset: DatasetName, epsilon: Epsilon, workload: Workload, as_json: AsJson = False) -> None:
    """Show every method with the errors to expect, best first. Charges nothing."""
    asked, share = parse_workload(workload), parse_decimal(epsilon, "epsilon")
    with client("Planning") as curator:
        found = curator.plan_release(dataset, asked, epsilon=share)
    show_ways(found, as_json=as_json)


@releases.command("list")
def release_list(as_json: AsJson = False) -> None:
    """List the releases you may see."""
    with client("Asking for the releases") as curator:
        found = curator.releases()
    show_releases([each.state for each in found], as_json=as_json)


@releases.command("show")
def release_show(release: ReleaseId, as_json: AsJson = False) -> None:
    """Show where a release stands, and what it costs."""
    with client("Asking for the release") as curator:
        state = curator.existing_release(release).state
    show_release(state, as_json=as_json)


@releases.command("follow")
def release_follow(release: ReleaseId, as_json: AsJson = False) -> None:
    """Wait for a release's end, with a bar that shows how far it is; exit code 1 when nothing came of it."""

    with client(None) as curator, progress_bar() as show:
        found = curator.existing_release(release)
        for state in found.events():
            show(state)
    show_release(found.state, as_json=as_json)
    if found.state.status != "done":
        raise typer.Exit(1)


@releases.command("cancel")
def release_cancel(release: ReleaseId, as_json: AsJson = False) -> None:
    """Cancel a release for which no noise was drawn yet; its share returns to the data set."""
    with client("Cancelling the release") as curator:
        state = curator.existing_release(release).cancel()
    show_release(state, as_json=as_json)


@releases.command("data")
def release_data(
    release: ReleaseId,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where to write it: .csv, .xlsx, .parquet or .arrow.", show_default=False),
    ],
    part: Annotated[
        str | None,
        typer.Option(
            help="records, edges, answers, tables, or table-1 and so on; the first there is.", show_default=False
        ),
    ] = None,
) -> None:
    """Download what came of a release."""
    with client("Downloading the data") as curator:
        found = curator.existing_release(release)
        try:
            target = found.save(output, part=part)
        except ValueError as error:
            raise Refusal(str(error)) from None
    say(f"Wrote {target} ({target.stat().st_size:,} bytes).")
