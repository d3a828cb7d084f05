"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the service's reply as JSON.")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The data set's name.", show_default=False)]
ExistingFile = typer.Argument(exists=True, dir_okay=False, readable=True, show_default=False)

Mechanism = Annotated[
    str,
    typer.Option(
        "--mechanism",
        "-m",
        help="How questions are answered: mw, fk, md, smw, median, laplace or gaussian, or JSON with options, such as "
        '\'{"construction": "md", "potential": "entropy"}\'.',
    ),
]
Epsilon = Annotated[str, typer.Option("--epsilon", "-e", help="Share of the data set's epsilon.", show_default=False)]
MaxQueries = Annotated[
    int,
    typer.Option(
        "--max-queries", "-k", min=1, help="Most queries; the bound holds for all of them.", show_default=False
    ),
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
