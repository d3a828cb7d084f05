"""The commands that ask: one number, or a table of them, in words or in SQL, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import client
from app.cli.errors import Refusal
from app.cli.groups import cli
from app.cli.inputs import (
    names_of,
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
from app.cli.rendering import print_csv, print_json, print_rows, say, show_answer, show_sql

if TYPE_CHECKING:
    from curator_client import Session


Query = Annotated[
    str | None,
    typer.Argument(metavar="QUERY", help="The query as JSON, @FILE, or - for standard input.", show_default=False),
]
GroupBy = Annotated[
    str | None,
    typer.Option(help="Attributes, such as age,sex: one number for each combination.", show_default=False),
]
SumOf = Annotated[str | None, typer.Option("--sum", help="The sum of an attribute.", show_default=False)]
MeanOf = Annotated[str | None, typer.Option("--mean", help="The mean of an attribute.", show_default=False)]
VarianceOf = Annotated[str | None, typer.Option("--variance", help="The variance of an attribute.", show_default=False)]
QuantileOf = Annotated[str | None, typer.Option("--quantile", help="Quantiles of an attribute.", show_default=False)]
MedianOf = Annotated[str | None, typer.Option("--median", help="The median of an attribute.", show_default=False)]
ShareOf = Annotated[
    list[str] | None,
    typer.Option(
        "--share",
        help="The share of records that satisfy a condition, written as one of --where, among those under --where. May "
        "be repeated: all must hold.",
        show_default=False,
    ),
]
RatioOf = Annotated[
    str | None,
    typer.Option(
        "--ratio", help="The sum of an attribute over that of another, such as income/hours.", show_default=False
    ),
]
Levels = Annotated[
    str | None,
    typer.Option("--q", help="Of --quantile: parts of the records, such as 0.25,0.5,0.75.", show_default="0.5"),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="A condition, such as sex=female, age>=30, workclass=1,4 (any of them), income at upper or income=null "
        "(no value), or conditions as "
        'JSON, such as \'{"any": [{"sex": "female"}, {"not": {"age": {"ge": 30}}}]}\'. A label with a comma may stand '
        "in double quotes. May be repeated: all must hold.",
        show_default=False,
    ),
]
Bins = Annotated[
    list[str] | None,
    typer.Option(
        help="Edges of coarser bins, such as age=15,30,45,95, or groups of values, such as "
        """'work={"employed": ["full", "part"]}'. May be repeated. Of --degrees: 0,1,2,5.""",
        show_default=False,
    ),
]
Blocks = Annotated[
    Path | None,
    typer.Option(
        help="Groups of nodes, or of rows: a CSV or TSV file with a row a node, the node and the name of its "
        "group, under a header that begins with node or none. The edges between all of them.",
        show_default=False,
    ),
]
BlocksRight = Annotated[
    Path | None,
    typer.Option(help="Of --blocks: such a file of the nodes that edges end at, or of columns.", show_default=False),
]
Only = Annotated[str | None, typer.Option(help="Of --blocks: within asks only within each group.", show_default=False)]
Degrees = Annotated[bool, typer.Option("--degrees", help="How many nodes of a graph have how many edges.")]
Side = Annotated[
    str | None,
    typer.Option(help="Of --degrees: out or in of a directed graph, left or right.", show_default=False),
]
Weighted = Annotated[bool, typer.Option("--weighted", help="Each record counts as many times as its weight says.")]
Within = Annotated[
    float | None,
    typer.Option(help="Largest half-width of the answer's interval, in counts or the unit.", show_default=False),
]
Confidence = Annotated[float | None, typer.Option(help="Of that interval.", show_default=False)]


@cli.command()
def ask(
    session: SessionId,
    query: Query = None,
    group_by: GroupBy = None,
    sum_of: SumOf = None,
    mean_of: MeanOf = None,
    variance_of: VarianceOf = None,
    median_of: MedianOf = None,
    quantile_of: QuantileOf = None,
    levels: Levels = None,
    share_of: ShareOf = None,
    ratio_of: RatioOf = None,
    where: Where = None,
    bins: Bins = None,
    blocks: Blocks = None,
    blocks_right: BlocksRight = None,
    only: Only = None,
    degrees: Degrees = False,
    side: Side = None,
    weighted: Weighted = False,
    within: Within = None,
    confidence: Confidence = None,
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
    age,sex[/bold] makes a table of counts, which is one question. [bold]--mean income[/bold], [bold]--share
    'hours>=35'[/bold] or another statistic stands in the place of counts. Of a graph [bold]--blocks
    communities.csv[/bold] counts the edges between groups of nodes, [bold]--degrees[/bold] nodes by how many edges they
    have.
    """
    from curator_client import question

    statistics = {"sum": sum_of, "mean": mean_of, "variance": variance_of, "median": median_of}
    of = statistics | {"quantile": quantile_of, "share": share_of, "ratio": ratio_of}
    graph = _of_graph(blocks, blocks_right, only, side, bins or [], degrees=degrees)
    words = _Words(query, of, levels, group_by, where or [], bins or [], graph, weighted=weighted)
    wanted: dict[str, Any] = {"within": within, "confidence": confidence, "adaptive": adaptive, "at_most": at_most}
    with _asking(words, session, "Asking") as (opened, asked):
        answer = opened.ask(question(asked), **wanted)
    if as_json:
        print_json(answer.raw)
    elif as_csv:
        print_csv(answer)
    else:
        counts = {"marginal": "count", "degrees": "nodes", "share": "share"}.get(asked.get("type", ""), "value")
        per = f" to {asked['per']}" if "per" in asked else ""
        told = f"{asked['type']} of {asked['of']}{per}" if isinstance(asked.get("of"), str) else counts
        show_answer(answer, told)


@cli.command()
def price(
    session: SessionId,
    query: Query = None,
    group_by: GroupBy = None,
    sum_of: SumOf = None,
    mean_of: MeanOf = None,
    variance_of: VarianceOf = None,
    median_of: MedianOf = None,
    quantile_of: QuantileOf = None,
    levels: Levels = None,
    share_of: ShareOf = None,
    ratio_of: RatioOf = None,
    where: Where = None,
    bins: Bins = None,
    blocks: Blocks = None,
    blocks_right: BlocksRight = None,
    only: Only = None,
    degrees: Degrees = False,
    side: Side = None,
    weighted: Weighted = False,
    within: Within = None,
    confidence: Confidence = None,
    as_json: AsJson = False,
) -> None:
    """Say what a query would cost and tell, from public things alone. Asks and charges nothing.

    The query is written as [bold]curator ask[/bold] takes it.
    """
    from curator_client import question

    statistics = {"sum": sum_of, "mean": mean_of, "variance": variance_of, "median": median_of}
    of = statistics | {"quantile": quantile_of, "share": share_of, "ratio": ratio_of}
    graph = _of_graph(blocks, blocks_right, only, side, bins or [], degrees=degrees)
    words = _Words(query, of, levels, group_by, where or [], bins or [], graph, weighted=weighted)
    with _asking(words, session, "Pricing") as (opened, asked):
        found = opened.price(question(asked), within=within, confidence=confidence)
    if as_json:
        print_json(found.raw)
    else:
        say(f"{question(asked)}: {found} ({found.source})")


@dataclass(frozen=True)
class _Words:
    """What the words of a command ask for."""

    query: str | None
    of: Mapping[str, str | list[str] | None]
    levels: str | None
    group_by: str | None
    where: list[str]
    bins: list[str]
    graph: Mapping[str, Any]
    _: KW_ONLY
    weighted: bool

    def question(self, labels: Callable[[str], Collection[str]] | None = None) -> dict[str, Any]:
        """The question; ``labels`` are those of an attribute that have commas.

        Raises:
            Refusal: when there is none, or one in two ways.
        """
        of = {kind: name for kind, name in self.of.items() if name not in (None, [])}
        statistic = _statistic(of, self.levels, labels)
        if self.graph and (self.query is not None or statistic or self.group_by or self.where):
            raise Refusal("--blocks and --degrees are questions by themselves")
        asked = dict(self.graph) or _question(self.query, statistic, self.group_by, self.where, self.bins, labels)
        return asked | ({"weighted": True} if self.weighted else {})


@contextmanager
def _asking(words: _Words, session: str, doing: str) -> Iterator[tuple[Session, dict[str, Any]]]:
    """The session, and the question as its data set has it.

    Raises:
        Refusal: when the words are no question: then nothing is called.
    """
    asked = words.question()
    with client(doing) as curator:
        opened = curator.resume(session)
        conditions = [*words.where, *(words.of["share"] or ())]
        commas = any("," in text and not text.lstrip().startswith("{") for text in conditions)
        if "left" in words.graph or commas:
            domain = curator.dataset(opened.opened.dataset).raw["domain"]
            if commas:
                asked = words.question(lambda name: _with_commas(domain, name))
            asked |= _nodes(dict(words.graph), domain)
        yield opened, asked


def _with_commas(domain: Mapping[str, Any], name: str) -> list[str]:
    """The labels of an attribute that have commas."""
    attributes = (each for each in domain.get("attributes", ()) if each["name"] == name)
    return [label for each in attributes for label in each.get("values") or () if "," in str(label)]


@cli.command()
def sql(
    session: SessionId,
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="The statement, @FILE, or - for standard input.")
    ],
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it would cost; asks and charges nothing.")
    ] = False,
    at_most: Annotated[
        float | None, typer.Option(help="The most that it may cost, in epsilon.", show_default=False)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a statement of SQL; beside each number stand its standard error and its interval."""
    text = text_of(statement)
    with client("Asking") as curator:
        result = curator.resume(session).sql(f"EXPLAIN {text}" if explain else text, at_most=at_most)
    if as_json:
        print_json(result.raw)
    elif as_csv:
        print_rows(result.columns, [row.values() for row in result])
    else:
        show_sql(result)


def _statistic(
    of: Mapping[str, Any], levels: str | None, labels: Callable[[str], Collection[str]] | None
) -> dict[str, Any]:
    """The statistic that the words of the command ask for; empty where it is none.

    Raises:
        Refusal: when there are several, or what one is of is not what it takes.
    """
    if len(of) > 1:
        raise Refusal(f"ask one of {', '.join(f'--{kind}' for kind in of)} at a time")
    if levels is not None and "quantile" not in of:
        raise Refusal("--q is of --quantile")
    for kind, name in of.items():
        match kind:
            case "median":
                return {"type": "quantile", "of": name, "q": 0.5}
            case "quantile":
                return {"type": kind, "of": name, "q": 0.5 if levels is None else parse_levels(levels)}
            case "share":
                return {"type": kind, "of": parse_conditions(name, labels, "--share")}
            case "ratio":
                above, slash, below = (part.strip() for part in name.partition("/"))
                if not (above and slash and below):
                    raise Refusal(f"--ratio: {name!r} is no two attributes such as income/hours")
                return {"type": kind, "of": above, "per": below}
        return {"type": kind, "of": name}
    return {}


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
    query: str | None,
    statistic: dict[str, Any],
    group_by: str | None,
    where: list[str],
    bins: list[str],
    labels: Callable[[str], Collection[str]] | None,
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
    asked: dict[str, Any] = (statistic or {"type": "predicate"}) | {"where": parse_conditions(where, labels)}
    if group_by is not None:
        names = names_of(group_by)
        asked |= {"group_by": names} if statistic else {"type": "marginal", "attributes": names}
    if bins:
        if group_by is None:
            raise Refusal("--bins are of attributes that --group-by names")
        asked["bins"] = parse_bins(bins)
    return asked
