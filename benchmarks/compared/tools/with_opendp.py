"""OpenDP's Context with Polars."""

from __future__ import annotations

import itertools
import math
from typing import Any

import given as shared
import opendp.prelude as dp
import polars as pl
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")


def keys_of(given: dict[str, Any], names: list[str]) -> pl.LazyFrame:
    cells = list(itertools.product(*(range(given["sizes"][name]) for name in names)))
    return pl.LazyFrame(cells, schema=dict.fromkeys(names, pl.Int64), orient="row")


def one(context: Any, given: dict[str, Any], question: dict[str, Any], scale: float | None) -> shared.Told:
    query = context.query()
    for name, code in question["where"].items():
        query = query.filter(pl.col(name) == code)
    names = question["by"]
    if question["kind"] in ("count", "table"):
        expression = dp_len(scale=scale, signed=True)
    else:
        lower, upper, step = given["numbers"][question["of"]]
        column: Any = pl.col(question["of"]).fill_null(0)  # which the library gives a "dp"
        if question["kind"] == "mean":
            expression = column.dp.mean((lower, upper))
        else:
            expression = column.dp.median(list(range(lower, upper + step, step)))
    if not names:
        return [([], float(query.select(expression).release().collect().item()))]
    told = query.group_by(names).agg(expression).with_keys(keys_of(given, names)).release().collect()
    return [([int(code) for code in row[:-1]], float(row[-1])) for row in told.select(*names, pl.last()).iter_rows()]


def answer(frame: pl.LazyFrame, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    questions, epsilon = job["questions"], job["epsilon"]
    several = len(questions) > 1
    # One question by Laplace noise, several by Gaussian noise, which then is less.
    loss = {"rho": shared.rho_of(epsilon, given["delta"])} if several else {"epsilon": epsilon}
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**loss),
        split_evenly_over=len(questions),
        margins=[Margin(by=(), max_length=10_000)],
    )
    # The library finds the scale by a search that takes seconds a table; it takes a scale as well, and checks it.
    scale = math.sqrt(len(questions) / (2 * loss["rho"])) * (1 + 1e-9) if several else None
    return [one(context, given, question, scale) for question in questions]


shared.run(lambda given: pl.scan_csv(given["file"]), answer)
