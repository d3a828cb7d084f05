"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.models import ArgumentInfo

AsJson = Annotated[bool, typer.Option("--json", help="Print the service's reply as JSON.")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The data set's name.", show_default=False)]


def existing_file(name: str, help: str) -> ArgumentInfo:
    """A file that must be there, called by this name in the command's help."""
    made: ArgumentInfo = typer.Argument(
        metavar=name, help=help, exists=True, dir_okay=False, readable=True, show_default=False
    )
    return made


Mechanism = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "-m",
        help="How questions are answered: evidence, laplace, gaussian, mw, fk, md, smw or median, or JSON with "
        'options, such as \'{"construction": "md", "potential": "entropy"}\'. Left out, the service chooses.',
        show_default=False,
    ),
]
Epsilon = Annotated[
    str,
    typer.Option("--epsilon", "-e", help="Share of the data set's epsilon; 0 asks what is free.", show_default=False),
]
MaxQueries = Annotated[
    int,
    typer.Option(
        "--max-queries", "-k", min=1, help="Most queries; the bound holds for all of them.", show_default=False
    ),
]
DeclaredQueries = Annotated[
    int | None,
    typer.Option(
        "--max-queries",
        "-k",
        min=1,
        help="Most queries; the bound holds for all of them. May be left out where evidence answers.",
        show_default=False,
    ),
]
SessionWithin = Annotated[
    float | None,
    typer.Option(help="Evidence: largest half-width of an answer's interval, in counts.", show_default=False),
]
SessionConfidence = Annotated[
    float | None, typer.Option(help="Evidence: of the intervals of answers.", show_default="0.95")
]
FromNothing = Annotated[
    bool, typer.Option("--from-nothing", help="Evidence: do not use what was measured for other sessions.")
]
ForItself = Annotated[
    bool, typer.Option("--for-itself", help="Evidence: keep what is measured from other sessions' answers.")
]
Contract = Annotated[
    bool, typer.Option("--contract", help="Evidence: keep an error bound of all answers at once, by tests.")
]
Dummy = Annotated[
    bool,
    typer.Option("--dummy", help="On made-up records: costs nothing, tells nothing of the data."),
]
MaxUpdates = Annotated[
    int | None,
    typer.Option(help="Most updates; left out, the guaranteed plan is made.", show_default=False),
]
Beta = Annotated[float | None, typer.Option(help="Probability with which bounds may fail.", show_default=False)]
Calibration = Annotated[
    str | None, typer.Option(help="Noise calibration: rdp, exact, gru2011 or jt2012.", show_default="rdp")
]
Release = Annotated[
    str | None,
    typer.Option(help="One draw a query (single) or a secret number of them (race).", show_default="single"),
]
