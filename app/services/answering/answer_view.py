"""An answer as a reply has it: its values, how well they are known, and what the session has left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson

from app.curator.mechanisms.protocol import Answer
from app.curator.session import Session
from app.declarations.spec import Spec, TableSpec
from app.estimation.intervals import Estimates
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.ledger import Amounts
from app.services import spending
from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.table import TableSpace


def answer_view(
    session: Session,
    query: Query,
    answer: Answer,
    accuracy: Estimates | None,
    *,
    values: list[float | None],
    price: Amounts | None,
    sequence: int,
    entry_hash: str,
) -> dict[str, Any]:
    """The reply to a query, as JSON.

    Args:
        session: which has recorded the answer.
        query: what was asked.
        answer: what was decided.
        accuracy: how well the values are known; None where that is not known.
        values: those of the answer in counts, None where there is no value.
        price: what it cost; None of what is free.
        sequence: the number of its entry.
        entry_hash: that of its entry.
    """
    limited = session.opening.request.declared
    view = {
        "sequence": sequence,
        **_values(query, values, accuracy),
        "source": answer.source,
        "error_bound": answer.error_bound,
        "beta": session.plan.beta,
        "charged_epsilon": spending.charged_epsilon(session.plan, price),
        "updates_used": session.updates_used,
        "updates_left": session.updates_left if limited else None,
        "queries_left": session.queries_left if limited else None,
        "entry_hash": entry_hash,
    }
    dataset = session.opening.dataset
    told = _known(dataset.space, query), _cut_off(dataset.spec, query), _beside(query, answer)
    notes = [note for note in told if note is not None]
    if notes:
        view["note"] = "; ".join(notes)
    if session.opening.request.dummy:
        view["dummy"] = True
    if answer.unverified:
        view |= {"unverified": True, "unverified_left": session.unverified_left}
    return view


def buys_more(query: Query, strategy: Strategy) -> bool:
    """Whether a count is measured with others, of attributes that it does not name."""
    if not isinstance(strategy, TableStrategy) or isinstance(query, CompiledStatistic):
        return False
    return any(set(part.marginal.attributes) - set(query.question.attributes) for part in strategy.parts)


def _beside(query: Query, answer: Answer) -> str | None:
    """What was paid for with an answer; None where nothing else."""
    if answer.measured is None or not buys_more(query, answer.measured.measurement.strategy):
        return None
    return "two-way marginals were measured with it, once: later counts are answered from them, and cost less"


def _known(space: Space, query: Query) -> str | None:
    """Which counts are known to be 0, as the declaration says that what they count cannot occur; None where none is."""
    if not isinstance(space, TableSpace) or not space.zeros or isinstance(query, CompiledStatistic | CompiledZero):
        return None
    if query.is_zero:
        return "no record can be what is asked for, by the declared zeros: it is 0 whatever the records, and free"
    if query.numbers == 1:
        return None
    impossible = space.zeros.impossible(query.question)
    count = 0 if impossible is None else int(np.count_nonzero(query.selected(impossible)))
    return f"{count:,} of these counts are 0 whatever the records, by the declared zeros" if count else None


def _cut_off(spec: Spec, query: Query) -> str | None:
    """What a statistic of numbers does not tell of the file by the declaration: values that may have been moved to a
    bound, and records of persons beyond those that are kept. None where it tells all.
    """
    if not isinstance(query, CompiledStatistic) or not query.weighed or not isinstance(spec, TableSpec):
        return None
    told, clamped = [], []
    for attribute in (spec.attributes[axis] for axis in query.weighed):
        if attribute.outside == "clamp":
            clamped.append(attribute.name)
            told.append(
                f"values of {attribute.name} beyond {attribute.lower:,.15g} and {attribute.upper:,.15g} count as these"
            )
    if spec.unit is not None:
        told.append(f"of each person at most {spec.unit.max_records:,} records count")
    if not told:
        return None
    said = f"{', and '.join(told)}: the interval does not speak of what that cuts off"
    questions = [orjson.dumps({"type": "share", "of": {name: {"at": "upper"}}}).decode() for name in clamped]
    return f'{said}; how much lies at a bound tells {" and ".join(questions)}, or "lower"' if questions else said


def _values(query: Query, values: list[float | None], accuracy: Estimates | None) -> dict[str, Any]:
    """Values with how well they are known: null where that is not known, or there is no value."""
    errors: list[float | None] | None = None
    intervals: list[list[float] | None] | None = None
    known: dict[str, Any] = {"interval_kind": None, "confidence": None}
    if accuracy is not None:
        ends = zip(accuracy.lows.tolist(), accuracy.highs.tolist(), strict=True)
        intervals = [
            None if value is None or not all(map(math.isfinite, end)) else [*end]
            for value, end in zip(values, ends, strict=True)
        ]
        errors = [
            None if value is None or not math.isfinite(error) else error
            for value, error in zip(values, accuracy.standard_errors.tolist(), strict=True)
        ]
        if any(interval is not None for interval in intervals):
            known = {
                "interval_kind": "unbiased" if accuracy.unbiased.all() else "model",
                "confidence": accuracy.confidence,
            }
    if query.labels:
        order = query.ordered(np.arange(query.numbers)).tolist()
        return {
            "axes": query.labels,
            "values": [values[place] for place in order],
            "standard_errors": None if errors is None else [errors[place] for place in order],
            "intervals": None if intervals is None else [intervals[place] for place in order],
            **known,
        }
    if (
        accuracy is not None
        and accuracy.linear is not None
        and accuracy.linear_errors is not None
        and known["interval_kind"] == "unbiased"
        and values[0] is not None
    ):
        known["unbiased"] = {
            "value": float(accuracy.linear[0]),
            "standard_error": float(accuracy.linear_errors[0]),
        }
    return {
        "value": values[0],
        "standard_error": None if errors is None else errors[0],
        "interval": None if intervals is None else intervals[0],
        **known,
    }
