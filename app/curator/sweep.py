"""Sweeps: one session asked for with several numbers of questions and several shares of the budget."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from app.curator.request import SessionRequest, parse_session
from app.declarations.errors import InvalidRequest

#: Points that one request may sweep over.
MOST_POINTS = 48
#: What may be swept over, the last of them changing first.
SWEPT = ("epsilon", "max_queries")


def parse_sweep(asked: Mapping[str, Any]) -> list[SessionRequest]:
    """One request for each point of ``sweep``, which names values of ``epsilon``, of ``max_queries`` or of both: for
    each epsilon in the order given every number of questions.

    Raises:
        InvalidRequest: when there are none or too many, a value is no such, or it is also given beside the sweep.
    """
    sweep = asked["sweep"]
    if not isinstance(sweep, dict) or not sweep or not set(sweep) <= set(SWEPT):
        raise InvalidRequest("sweep: name lists of values of epsilon, of max_queries or of both, and nothing else")
    words = {name: value for name, value in asked.items() if name != "sweep"}
    lists = []
    for name in SWEPT:
        values = sweep.get(name, [None])
        if not isinstance(values, list) or not values:
            raise InvalidRequest(f"sweep.{name}: a list of at least one value")
        if name in sweep and name in words:
            raise InvalidRequest(f"{name}: give it, or the values of it to sweep over, not both")
        lists.append(values)
    number = len(lists[0]) * len(lists[1])
    if number > MOST_POINTS:
        raise InvalidRequest(f"sweep: {number:,} points, where {MOST_POINTS} are planned at most")
    points = [dict(zip(SWEPT, point, strict=True)) for point in itertools.product(*lists)]
    return [parse_session(words | {name: value for name, value in each.items() if name in sweep}) for each in points]
