"""The command that asks: one number, or a table of counts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli
from app.cli.inputs import parse_bins, parse_conditions, parse_object, text_of
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
        typer.Option(help="Attributes, such as age,sex: one count for each combination.", show_default=False),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="A condition, such as sex=female, age>=30 or workclass=1,4, or conditions as JSON. May be repeated: "
            "all must hold.",
            show_default=False,
        ),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(help="Edges of coarser bins, such as age=15,30,45,95. May be repeated.", show_default=False),
    ] = None,
    within: Annotated[
        float | None, typer.Option(help="Largest half-width of the answer's interval, in counts.", show_default=False)
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
    age,sex[/bold] makes a table of counts, which is one question.
    """
    asked = _question(query, group_by, where or [], bins or [])
    wanted: dict[str, Any] = {"within": within, "confidence": confidence, "adaptive": adaptive}
    with client("Asking") as curator:
        opened = curator.session(session)
        table = asked.get("type") == "marginal"
        answer = opened.marginal(asked, **wanted) if table else opened.ask(asked, **wanted)
    if as_json:
        print_json(answer.raw)
    elif as_csv:
        print_csv(answer)
    else:
        show_answer(answer)


def _question(query: str | None, group_by: str | None, where: list[str], bins: list[str]) -> dict[str, Any]:
    """The query that the words of the command ask for.

    Raises:
        Refusal: when they ask for none, or for one in two ways.
    """
    in_words = bool(group_by or where or bins)
    if query is not None:
        if in_words:
            raise Refusal("give QUERY, or --group-by, --where and --bins, not both")
        return parse_object(text_of(query), "QUERY")
    if not in_words:
        raise Refusal("nothing is asked: give QUERY, --group-by or --where")
    asked: dict[str, Any] = {"type": "predicate", "where": parse_conditions(where)}
    if group_by is not None:
        asked |= {"type": "marginal", "attributes": [name.strip() for name in group_by.split(",")]}
    if bins:
        if group_by is None:
            raise Refusal("--bins are of attributes that --group-by names")
        asked["bins"] = parse_bins(bins)
    return asked
