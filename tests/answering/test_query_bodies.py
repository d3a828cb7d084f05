"""What is wanted of an answer stands beside the question, and is no part of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.services.query_bodies import Asked, DenseBody, compiled
from app.spaces.queries.request import parse_wanted
from tests.kit.strategies import BUDGET, universe

pytestmark = pytest.mark.unit

SPACE = universe(
    {"name": "t", "kind": "table", "attributes": [{"name": "x", "size": 3}], "budget": BUDGET},
).space
WANTED: list[dict[str, Any]] = [
    {},
    {"unverified": True},
    {"within": 50},
    {"within": 0.5, "confidence": 0.99},
    {"adaptive": True, "confidence": 1e-9},
]


@pytest.mark.parametrize("wanted", WANTED)
def test_what_is_wanted_is_no_part_of_the_question(wanted: dict[str, Any]) -> None:
    """Would catch the same question paid for again because another confidence is asked, and a word that is lost."""
    for asked in (
        {"type": "predicate", "where": {"x": [0, 2]}},
        {"type": "marginal", "attributes": ["x"]},
        {"type": "dense", "weights": [0.5, 1, 0]},
    ):
        found = compiled(SPACE, asked | wanted, 1 << 20)
        assert found.query.digest == compiled(SPACE, asked, 1 << 20).query.digest
        assert told(found) == expected(wanted)
    array = compiled(SPACE, DenseBody(np.array([0.5, 1, 0]), parse_wanted(wanted)), 1 << 20)
    assert array.query.digest == found.query.digest
    assert told(array) == expected(wanted)


def told(asked: Asked) -> tuple[Any, ...]:
    return asked.unverified, asked.within, asked.confidence, asked.adaptive


def expected(wanted: dict[str, Any]) -> tuple[Any, ...]:
    return (
        wanted.get("unverified", False),
        wanted.get("within"),
        wanted.get("confidence"),
        wanted.get("adaptive", False),
    )
