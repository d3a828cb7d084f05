"""The command that asks: one number, or a table of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli
from app.cli.inputs import (
    numbered,
    parse_bins,
    parse_conditions,
    parse_degrees,
    parse_levels,
    parse_object,
    read_groups,
    text_of,
)
from app.cli.options import AsJson, SessionId
from app.cli.rendering import print_csv, print_json, print_line, print_rows, show_answer


@cli.command()
def ask(
    session: SessionId,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query as JSON, @FILE, or - for standard input.", show_default=False),
    ] = None,
    group_by: Annotated[
        str | None,
        typer.Option(help="Attributes, such as age,sex: one number for each combination.", show_default=False),
    ] = None,
    sum_of: Annotated[str | None, typer.Option("--sum", help="The sum of an attribute.", show_default=False)] = None,
    mean_of: Annotated[str | None, typer.Option("--mean", help="The mean of an attribute.", show_default=False)] = None,
    variance_of: Annotated[
        str | None, typer.Option("--variance", help="The variance of an attribute.", show_default=False)
    ] = None,
    quantile_of: Annotated[
        str | None, typer.Option("--quantile", help="Quantiles of an attribute.", show_default=False)
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option("--q", help="Of --quantile: parts of the records, such as 0.25,0.5,0.75.", show_default="0.5"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="A condition, such as sex=female, age>=30, workclass=1,4, income at upper or income=null (no value), "
            "or conditions as "
            'JSON, such as \'{"any": [{"sex": "female"}, {"not": {"age": {"ge": 30}}}]}\'. May be repeated: all must '
            "hold.",
            show_default=False,
        ),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(
            help="Edges of coarser bins, such as age=15,30,45,95. May be repeated. Of --degrees: 0,1,2,5.",
            show_default=False,
        ),
    ] = None,
    blocks: Annotated[
        Path | None,
        typer.Option(
            help="Groups of nodes, or of rows: a CSV or TSV file with a row a node, the node and the name of its "
            "group, under a header that begins with node or none. The edges between all of them.",
            show_default=False,
        ),
    ] = None,
    blocks_right: Annotated[
        Path | None,
        typer.Option(
            help="Of --blocks: such a file of the nodes that edges end at, or of columns.", show_default=False
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Of --blocks: within asks only within each group.", show_default=False)
    ] = None,
    degrees: Annotated[bool, typer.Option("--degrees", help="How many nodes of a graph have how many edges.")] = False,
    side: Annotated[
        str | None,
        typer.Option(help="Of --degrees: out or in of a directed graph, left or right.", show_default=False),
    ] = None,
    weighted: Annotated[
        bool, typer.Option("--weighted", help="Each record counts as many times as its weight says.")
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(help="Largest half-width of the answer's interval, in counts or the unit.", show_default=False),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of that interval.", show_default=False)] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="The question was chosen by earlier answers: widen its interval.")
    ] = False,
    at_most: Annotated[
        float | None,
        typer.Option(
            help="Most epsilon that the answer may cost: refused where it would cost more.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV, a row a cell.")] = False,
) -> None:
    """Ask one query: as JSON, such as '{"type": "predicate", "where": {"sex": "female"}}', or in words.

    [bold]curator ask SESSION --where sex=female[/bold] counts records, [bold]curator ask SESSION --group-by
    age,sex[/bold] makes a table of counts, which is one question. [bold]--mean income[/bold], or another statistic,
    stands in the place of counts. Of a graph [bold]--blocks communities.csv[/bold] counts the edges between groups of
    nodes, [bold]--degrees[/bold] nodes by how many edges they have.
    """
    from curator_client import question

    of = {"sum": sum_of, "mean": mean_of, "variance": variance_of, "quantile": quantile_of}
    statistic = _statistic({kind: name for kind, name in of.items() if name is not None}, levels)
    graph = _of_graph(blocks, blocks_right, only, side, bins or [], degrees=degrees)
    if graph and (query is not None or statistic or group_by or where):
        raise Refusal("--blocks and --degrees are questions by themselves")
    asked = graph or _question(query, statistic, group_by, where or [], bins or [])
    if weighted:
        asked |= {"weighted": True}
    wanted: dict[str, Any] = {"within": within, "confidence": confidence, "adaptive": adaptive, "at_most": at_most}
    with client("Asking") as curator:
        opened = curator.resume(session)
        if blocks is not None:
            asked |= _nodes(asked, curator.dataset(opened.opened.dataset).raw["domain"])
        answer = opened.ask(question(asked), **wanted)
    if as_json:
        print_json(answer.raw)
    elif as_csv:
        print_csv(answer)
    else:
        counts = {"marginal": "count", "degrees": "nodes"}.get(asked.get("type", ""), "value")
        show_answer(answer, f"{asked['type']} of {asked['of']}" if "of" in asked else counts)


@cli.command()
def price(
    session: SessionId,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query as JSON, @FILE, or - for standard input.", show_default=False),
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(help="Attributes, such as age,sex: a table of counts.", show_default=False)
    ] = None,
    where: Annotated[list[str] | None, typer.Option(help="A condition, as of ask.", show_default=False)] = None,
    bins: Annotated[
        list[str] | None, typer.Option(help="Edges of coarser bins, as of ask.", show_default=False)
    ] = None,
    within: Annotated[
        float | None, typer.Option(help="Largest half-width of the answer's interval.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a query would cost and tell, from public things alone. Asks and charges nothing."""
    from curator_client import question

    asked = question(_question(query, {}, group_by, where or [], bins or []))
    with client("Pricing") as curator:
        found = curator.resume(session).price(asked, within=within)
    if as_json:
        print_json(found.raw)
    else:
        print_line(f"{asked}: {found} ({found.source})")


@cli.command()
def sql(
    session: SessionId,
    statement: Annotated[str, typer.Argument(help="The statement, @FILE, or - for standard input.")],
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it would cost; asks and charges nothing.")
    ] = False,
    at_most: Annotated[
        float | None, typer.Option(help="The most that it may cost, in epsilon.", show_default=False)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a statement of SQL; behind each number stand its standard error and its interval."""
    text = text_of(statement)
    with client("Asking") as curator:
        result = curator.resume(session).sql(f"EXPLAIN {text}" if explain else text, at_most=at_most)
    if as_json:
        print_json(result.raw)
    elif as_csv:
        print_rows(result.columns, [row.values() for row in result])
    else:
        for line in str(result).splitlines():
            print_line(line)


def _statistic(of: dict[str, str], levels: str | None) -> dict[str, Any]:
    """The statistic that the words of the command ask for; empty where it is none.

    Raises:
        Refusal: when there are several, or parts of the records that are no quantile's.
    """
    if len(of) > 1:
        raise Refusal(f"ask one of {', '.join(f'--{kind}' for kind in of)} at a time")
    if levels is not None and "quantile" not in of:
        raise Refusal("--q is of --quantile")
    asked: dict[str, Any] = {}
    for kind, name in of.items():
        asked = {"type": kind, "of": name}
        if kind == "quantile":
            asked["q"] = 0.5 if levels is None else parse_levels(levels)
    return asked


def _of_graph(
    blocks: Path | None, right: Path | None, only: str | None, side: str | None, bins: list[str], *, degrees: bool
) -> dict[str, Any]:
    """The question of a graph that the words of the command ask for; empty where it is none.

    Raises:
        Refusal: when they do not go together, or a file is none of groups.
    """
    if blocks is None and (right is not None or only is not None):
        raise Refusal("--blocks-right and --only are of --blocks")
    if not degrees and side is not None:
        raise Refusal("--side is of --degrees")
    if blocks is not None:
        if degrees or bins:
            raise Refusal("--blocks is a question by itself")
        asked: dict[str, Any] = {"type": "blocks", "left": read_groups(blocks, "--blocks")}
        if right is not None:
            asked["right"] = read_groups(right, "--blocks-right")
        return asked if only is None else asked | {"only": only}
    if not degrees:
        return {}
    if len(bins) > 1:
        raise Refusal("--bins: give the least degrees of all bins at once, such as 0,1,2,5")
    return {
        "type": "degrees",
        **({} if side is None else {"side": side}),
        **({"bins": parse_degrees(bins[0])} if bins else {}),
    }


def _nodes(asked: dict[str, Any], domain: dict[str, Any]) -> dict[str, Any]:
    """The groups of each side, their nodes numbers where these have no declared labels."""
    return {
        side: groups if "labels" in domain or f"{side}_labels" in domain else numbered(groups, f"--blocks: {side}")
        for side, groups in asked.items()
        if side in ("left", "right")
    }


def _question(
    query: str | None, statistic: dict[str, Any], group_by: str | None, where: list[str], bins: list[str]
) -> dict[str, Any]:
    """The query that the words of the command ask for.

    Raises:
        Refusal: when they ask for none, or for one in two ways.
    """
    in_words = bool(statistic or group_by or where or bins)
    if query is not None:
        if in_words:
            raise Refusal("give QUERY, or --mean and the like, --group-by, --where and --bins, not both")
        return parse_object(text_of(query), "QUERY")
    if not in_words:
        raise Refusal("nothing is asked: give QUERY, --mean or the like, --group-by or --where")
    asked: dict[str, Any] = (statistic or {"type": "predicate"}) | {"where": parse_conditions(where)}
    if group_by is not None:
        names = [name.strip() for name in group_by.split(",")]
        asked |= {"group_by": names} if statistic else {"type": "marginal", "attributes": names}
    if bins:
        if group_by is None:
            raise Refusal("--bins are of attributes that --group-by names")
        asked["bins"] = parse_bins(bins)
    return asked
