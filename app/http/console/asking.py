"""What pages that ask share: the session they ask in, prices of questions, and an answer as it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request

from app.declarations.errors import CuratorError
from app.http import json_bodies
from app.http.console.drawing import Curve, Forest, curve, forest, marks_of
from app.http.context import Context
from app.http.problems import PROBLEMS
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.errors import NotFound
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal
from app.services.sql import Told
from curator_client.sql_words import statement
from curator_client.words import shown

#: From where an answer comes: the tone of its tag, and what is said of it.
SOURCES: Mapping[str, tuple[str, str]] = {
    "measurement": ("blue", "measured"),
    "estimate": ("green", "follows from what was measured"),
    "cached": ("green", "asked before"),
    "hypothesis": ("green", "as the hypothesis has it"),
}
#: Parts of the width that the price of a question is also asked for: what accuracy costs.
_WIDTHS = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Price:
    """What a question would cost."""

    epsilon: float
    certain: bool
    source: tuple[str, str]
    half_width: tuple[float, float] | None
    left: float
    words: str
    curve: Curve | None


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer as pages show it."""

    sequence: int
    title: str
    source: tuple[str, str]
    charged: float
    confidence: float | None
    kind: str | None
    note: str | None
    dummy: bool
    entry_hash: str
    recorded_at: str | None
    number: str | None
    half_width: float | None
    chart: Forest
    error_bound: float | None
    question: Mapping[str, Any] | None
    sql: str | None
    python: str | None
    r: str | None


async def priced(
    request: Request, context: Context, actor: Principal, session: str, asked: dict[str, Any], *, widths: bool
) -> Price:
    """The price of a question; with ``widths`` that of the same with other widths, too, where its own is known.

    Raises:
        CuratorError: what asking it would be refused with.
    """
    (price,) = await _prices(request, context, actor, session, [asked])
    if "status" in price:
        raise Told(price)
    known = price["half_width"]
    points = [(price["epsilon"], known[0])] if known is not None else []
    if widths and known is not None and price["epsilon"] > 0 and known[0] > 0:
        others = [{**asked, "within": known[0] * part} for part in _WIDTHS]
        for other in await _prices(request, context, actor, session, others):
            if "status" not in other and other["half_width"] is not None:
                points.append((other["epsilon"], other["half_width"][0]))
    return Price(
        price["epsilon"],
        price["certain"],
        SOURCES[price["source"]],
        None if known is None else (known[0], known[1]),
        price["left"],
        price["words"],
        curve(points),
    )


async def _prices(
    request: Request, context: Context, actor: Principal, session: str, questions: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    context.authenticator.count(request, actor, len(questions))
    reply = await answer(context, request, actor, Ticket("prices", session, actor.name, tuple(questions)))
    prices: list[dict[str, Any]] = orjson.loads(reply)["prices"]
    return prices


def form_key(actor: Principal, route: str, nonce: str, asked: Mapping[str, Any]) -> IdempotencyKey:
    """The idempotency key of what a form asks of a route: the same form with the same in it asks once."""
    mark = json_bodies.fingerprint(asked)
    return IdempotencyKey(actor.name, route, f"console-{nonce[:64]}-{mark[:32]}", mark)


def answered_entry(context: Context, actor: Principal, session: str, sequence: int) -> dict[str, Any]:
    """An entry of a session with its answer as it was replied.

    Raises:
        NotFound: when there is none, or its reply is not kept any more.
    """
    entry = context.services.transcripts.entry(actor, session, sequence)
    if entry["answer"] is None:
        raise NotFound(
            "how well this answer is known is kept while its session is open and for a week afterwards, and for "
            "answers that were asked with an idempotency key: its value stands in the transcript"
        )
    return entry


def shown_answer(
    context: Context, actor: Principal, session: Mapping[str, Any], sequence: int, *, whole: bool = False
) -> Shown:
    """The answer of an entry. Its reply may be long: this is for a turn at costly work, and keeps little of it.

    Args:
        context: of the routes.
        actor: who looks.
        session: the state of its session.
        sequence: its number.
        whole: whether all rows are shown, as far as a page may.

    Raises:
        NotFound: as :func:`answered_entry`.
    """
    entry = answered_entry(context, actor, session["id"], sequence)
    reply, question = entry["answer"], entry["question"]
    axes, marks = marks_of(reply)
    return Shown(
        reply["sequence"],
        title_of(entry),
        SOURCES[reply["source"]],
        reply["charged_epsilon"],
        reply["confidence"],
        reply["interval_kind"],
        reply.get("note"),
        bool(reply.get("dummy", False)),
        reply["entry_hash"],
        entry["recorded_at"],
        None if axes else shown(reply["value"], reply["standard_error"]),
        max(((mark.interval[1] - mark.interval[0]) / 2 for mark in marks if mark.interval is not None), default=None),
        forest(axes, marks, whole=whole),
        reply["error_bound"],
        question,
        _sql(question, session["dataset"]),
        _python(question),
        None if question is None else in_r(question),
    )


def title_of(entry: Mapping[str, Any]) -> str:
    """What an answer is of, in words."""
    return str(entry["words"] or "An answer")


def _sql(question: Mapping[str, Any] | None, dataset: str) -> str | None:
    """The question as a statement; None where SQL has no words for it."""
    if question is None:
        return None
    try:
        return statement(question, dataset)
    except ValueError:
        return None


def _python(question: Mapping[str, Any] | None) -> str | None:
    return None if question is None else f"session.ask(question({question!r}))"


def in_r(question: Mapping[str, Any]) -> str:
    """The question as an expression of R that asks it, whatever its labels are: in a string of R a backslash escapes
    itself and the quote, and JSON leaves no other character that means anything there."""
    text = json.dumps(question).replace("\\", "\\\\").replace("'", "\\'")
    return f"ask(s, '{text}')"


def refusal_of(error: CuratorError) -> dict[str, str]:
    """A refusal as pages show it beside a form."""
    return {"title": PROBLEMS[error.code][1], "detail": error.detail}
