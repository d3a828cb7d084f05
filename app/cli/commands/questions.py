"""The command that asks: one number, or a table of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli
from app.cli.inputs import parse_bins, parse_conditions, parse_levels, parse_object, text_of
from app.cli.options import AsJson, SessionId
from app.cli.rendering import print_csv, print_json, show_answer


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
            help="A condition, such as sex=female, age>=30, workclass=1,4 or income=null (no value), or conditions as "
            'JSON, such as \'{"any": [{"sex": "female"}, {"not": {"age": {"ge": 30}}}]}\'. May be repeated: all must '
            "hold.",
            show_default=False,
        ),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(help="Edges of coarser bins, such as age=15,30,45,95. May be repeated.", show_default=False),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(help="Largest half-width of the answer's interval, in counts or the unit.", show_default=False),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of that interval.", show_default=False)] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="The question was chosen by earlier answers: widen its interval.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV, a row a cell.")] = False,
) -> None:
    """Ask one query: as JSON, such as '{"type": "predicate", "where": {"sex": "female"}}', or in words.

    [bold]curator ask SESSION --where sex=female[/bold] counts records, [bold]curator ask SESSION --group-by
    age,sex[/bold] makes a table of counts, which is one question. [bold]--mean income[/bold], or another statistic,
    stands in the place of counts.
    """
    from app.client.queries import asks_table

    of = {"sum": sum_of, "mean": mean_of, "variance": variance_of, "quantile": quantile_of}
    statistic = _statistic({kind: name for kind, name in of.items() if name is not None}, levels)
    asked = _question(query, statistic, group_by, where or [], bins or [])
    wanted: dict[str, Any] = {"within": within, "confidence": confidence, "adaptive": adaptive}
    with client("Asking") as curator:
        opened = curator.session(session)
        answer = opened.marginal(asked, **wanted) if asks_table(asked) else opened.ask(asked, **wanted)
    if as_json:
        print_json(answer.raw)
    elif as_csv:
        print_csv(answer)
    else:
        counts = "count" if asked.get("type") == "marginal" else "value"
        show_answer(answer, f"{asked['type']} of {asked['of']}" if "of" in asked else counts)


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
