"""What a session would be good for, over shares of the budget and numbers of questions, before it is opened."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.errors import CuratorError
from app.http.console.asking import refusal_of
from app.http.console.gate import Analyst, ConsoleRoute
from app.http.console.numbers import positive
from app.http.console.rendering import page
from app.http.dependencies import AppContext

router = APIRouter(prefix="/console/datasets/{name}/what-if", include_in_schema=False, route_class=ConsoleRoute)

#: Numbers of questions that are looked at beside the one that is asked about.
_QUESTIONS = (1, 10, 100, 1000)


@router.get("")
async def show(request: Request, context: AppContext, login: Analyst, name: str) -> Response:
    """The errors to expect of a session of so much epsilon and so many questions, and of others around it."""
    services, actor = context.services, login.principal
    dataset = await run_in_threadpool(services.datasets.describe, name, actor)
    asked = request.query_params
    left = dataset["grant"]["available_epsilon"] if dataset["grant"] else dataset["budget"]["remaining_epsilon"]
    epsilon = _number(asked.get("epsilon", ""), left / 2)
    questions = max(1, int(_number(asked.get("questions", ""), 30)))
    told: dict[str, Any] = {"chart": None, "chosen": None, "others": [], "refusal": None}
    if left > 0:
        numbers = sorted({*_QUESTIONS, questions})
        sweeps = [
            {"dataset": name, "sweep": {"epsilon": [epsilon], "max_queries": numbers}},
            {"dataset": name, "sweep": {"epsilon": [epsilon / 2], "max_queries": [questions]}},
        ]
        context.authenticator.count_heavy(actor)
        try:
            async with context.plans.turn(request, actor) as work:
                found = [await run_in_threadpool(services.plans.sweep, sweep, work.check) for sweep in sweeps]
            points = [point for each in found for point in each["points"]]
            told |= _told(points, epsilon, questions)
        except CuratorError as error:
            told["refusal"] = refusal_of(error)
    return await run_in_threadpool(
        page,
        request,
        "what_if.html.jinja",
        login,
        dataset=dataset,
        left=left,
        epsilon=epsilon,
        questions=questions,
        **told,
    )


def _number(text: str, default: float) -> float:
    number = positive(text)
    return float(number) if number is not None and number < 1e12 else default


def _told(points: list[dict[str, Any]], epsilon: float, questions: int) -> dict[str, Any]:
    """The point that was asked about, others beside it, and the line over numbers of questions."""
    line = [point for point in points if point["epsilon"] == epsilon]
    chosen = next((point for point in line if point["max_queries"] == questions), None)
    rows = []
    for point in line:
        rows.append(
            {
                "questions": point["max_queries"],
                "error": _error(point),
                "gaussian": (point.get("independent_gaussian") or {}).get("sigma"),
                "mechanism": (point.get("mechanism") or {}).get("construction"),
                "detail": (point.get("problem") or {}).get("detail"),
            }
        )
    half = next((p for p in points if p["epsilon"] == epsilon / 2 and p["max_queries"] == questions), None)
    return {
        "rows": rows,
        "chosen": chosen,
        "error": None if chosen is None else _error(chosen),
        "half_error": None if half is None else _error(half),
        "chart": _chart(rows, questions),
    }


def _error(point: dict[str, Any]) -> float | None:
    """The standard error to expect of a count; None where nothing is foretold."""
    expected = point.get("expected_standard_errors")
    return None if not expected else expected.get("one_attribute") or expected.get("cut")


def _chart(rows: list[dict[str, Any]], questions: int) -> dict[str, Any] | None:
    """Errors over numbers of questions, both by their logarithms, in a square of 100."""
    known = [row for row in rows if row["error"]]
    if len(known) < 2:
        return None
    numbers = [row["error"] for row in known] + [row["gaussian"] for row in known if row["gaussian"]]
    low, high = math.log(min(numbers)) - 0.2, math.log(max(numbers)) + 0.2
    first, last = math.log(rows[0]["questions"]), math.log(rows[-1]["questions"])

    def place(number: float, error: float) -> tuple[float, float]:
        return 100 * (math.log(number) - first) / max(last - first, 1e-9), 100 * (high - math.log(error)) / (high - low)

    def points(of: str) -> str:
        found = [place(row["questions"], row[of]) for row in known if row[of]]
        return " ".join(f"{x:.2f},{y:.2f}" for x, y in found)

    step = 10 ** math.floor(math.log10(max(numbers)))
    ticks = [
        value for value in (step / 10, step / 5, step / 2, step, 2 * step, 5 * step) if low < math.log(value) < high
    ]
    here = next((row for row in known if row["questions"] == questions), None)
    return {
        "own": points("error"),
        "gaussian": points("gaussian"),
        "ticks": [(f"{place(1, value)[1]:.2f}%", f"{value:,.4g}") for value in ticks],
        "across": [(f"{place(row['questions'], 1)[0]:.2f}%", f"{row['questions']:,}") for row in rows],
        "here": None if here is None else tuple(f"{part:.2f}%" for part in place(here["questions"], here["error"])),
    }
