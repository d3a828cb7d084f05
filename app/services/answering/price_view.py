"""The price of a question as a reply has it: what it would cost and tell, from public things alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.curator.mechanisms.protocol import Answer, Buy, Due, MarginalTest, Target, Test
from app.curator.session import Session
from app.services import spending
from app.services.answering.answer_view import buys_more
from app.services.ports import SessionRow
from app.spaces.query import Query
from app.spaces.tensor import FloatArray
from curator_client.words import words

#: What is said where the first count of a session buys what later ones are answered from.
_BESIDE = ". With it two-way marginals are measured, once: later counts are answered from them, and cost less"


def price_view(
    session: Session, row: SessionRow, asked: Mapping[str, Any], query: Query, due: Answer | Due, target: Target
) -> dict[str, Any]:
    """What a question would cost, as JSON.

    Args:
        session: apart from the one that answers.
        row: of the session, as it stands.
        asked: the question in JSON.
        query: the same compiled.
        due: what was decided on it.
        target: how well the answer is wanted.
    """
    price = None if isinstance(due, Answer) else due.price
    return {
        "epsilon": spending.charged_epsilon(session.plan, price),
        "certain": not isinstance(due, Test | MarginalTest),
        "source": due.source if isinstance(due, Answer) else "measurement",
        "half_width": _widths(_reaches(session, query, due, target)),
        "left": spending.left_epsilon(session.plan, row, price),
        "words": words(asked) + (_BESIDE if isinstance(due, Buy) and buys_more(query, due.purchase.strategy) else ""),
    }


def _reaches(session: Session, query: Query, due: Answer | Due, target: Target) -> FloatArray | None:
    """How far the intervals of the answers reach to either side; None where nothing is known of that."""
    if not isinstance(due, Answer):
        return session.foretold(query, due)
    known = session.accuracy(query, due, target)
    return None if known is None else (known.highs - known.lows) / 2


def _widths(reaches: FloatArray | None) -> list[float] | None:
    """The least and the greatest of those that are known."""
    known = np.array([]) if reaches is None else reaches[np.isfinite(reaches)]
    return [float(known.min()), float(known.max())] if known.size else None
