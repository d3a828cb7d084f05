"""SmartNoise SQL; with `default` as third word rare groups are dropped, as they are unless it is told not to."""

from __future__ import annotations

import sys
from typing import Any

import given as shared
import pandas as pd
from snsql import Privacy, from_df

DEFAULT = sys.argv[3:] == ["default"]


def metadata(given: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {"row_privacy": True, "rows": 5634}
    if not DEFAULT:
        # The codes are public, so that groups need not be hidden.
        table["censor_dims"] = False
    for name, size in given["sizes"].items():
        table[name] = {"type": "int", "lower": 0, "upper": size - 1}
    for name, (lower, upper, _) in given["numbers"].items():
        table[name] = {"type": "int", "lower": lower, "upper": upper}
    return {"": {"public": {"couples": table}}}


def statement(question: dict[str, Any]) -> str:
    value = f"AVG({question['of']})" if question["kind"] == "mean" else "COUNT(*)"
    text = f"SELECT {', '.join([*question['by'], value + ' AS told'])} FROM public.couples"
    if question["where"]:
        text += " WHERE " + " AND ".join(f"{name} = {code}" for name, code in question["where"].items())
    return text + (f" GROUP BY {', '.join(question['by'])}" if question["by"] else "")


def answer(frame: Any, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    questions = job["questions"]
    if any(question["kind"] == "median" for question in questions):
        raise NotImplementedError("there are no quantiles")
    # Epsilon is of each column that is told: a mean is a sum and a count.
    columns = sum(2 if question["kind"] == "mean" else 1 for question in questions)
    privacy = Privacy(epsilon=job["epsilon"] / columns, delta=given["delta"] / columns)
    reader = from_df(frame, privacy=privacy, metadata=metadata(given))
    found = []
    for question in questions:
        rows = reader.execute(statement(question))[1:]
        found.append([([int(code) for code in row[:-1]], None if row[-1] is None else float(row[-1])) for row in rows])
    return found


shared.run(lambda given: pd.read_csv(given["file"]), answer)
