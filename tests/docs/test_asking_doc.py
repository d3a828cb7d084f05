"""docs/asking.md: every example is a question that is taken, and every form of question has one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from app.declarations.conditions import MOST_CONDITIONS, Condition, Where
from app.declarations.spec import parse_spec
from app.http import schemas
from app.services.query_bodies import compiled
from app.spaces.factory import space_of
from app.spaces.queries import blocks, marginal
from app.spaces.queries.linear import MOST_LOCAL
from app.spaces.queries.registry import QueryRequest
from app.spaces.queries.request import QueryModel
from app.spaces.query import Query
from app.spaces.space import Space
from curator_client import answers

pytestmark = pytest.mark.unit

_JSON = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "asking.md").read_text()


@pytest.fixture(scope="module")
def asked(text: str) -> list[tuple[dict[str, object], Query]]:
    """Each question with what it compiles to on the declaration before it."""
    space: Space | None = None
    found = []
    for block in _JSON.findall(text):
        document = json.loads(block)
        if "kind" in document:
            space = space_of(parse_spec(document))
            continue
        assert space is not None
        found.append((document, compiled(space, document, 1 << 28).query))
    return found


def test_every_form_has_an_example_that_is_taken(asked: list[tuple[dict[str, object], Query]]) -> None:
    """Would catch an example that is refused, one that asks for nothing, and a new form without one."""
    assert all(not query.is_zero for _, query in asked)
    forms = {kind.model_fields["type"].annotation for kind in get_args(get_args(QueryRequest)[0])}
    assert {document["type"] for document, _ in asked} == {get_args(form)[0] for form in forms}


def test_every_word_is_explained(text: str) -> None:
    """Would catch a field, a condition or a source of answers that readers are not told of."""
    words = {name for name, field in Condition.model_fields.items() if field.alias is None}
    words |= {field.alias or name for model in (Condition, Where) for name, field in model.model_fields.items()}
    words -= {"in_", "not_"}
    words |= QueryModel.model_fields.keys()
    words |= set(get_args(answers.Source)) | {"unbiased", "model"}
    words |= schemas.MarginalView.model_fields.keys() | schemas.AnswerView.model_fields.keys()
    # Told of in docs/mechanisms.md, docs/audit.md and the description of the reply.
    words -= {"sequence", "entry_hash", "updates_used", "updates_left", "queries_left", "unverified_left"}
    missing = {word for word in words if f"`{word}`" not in text and f'"{word}"' not in text}
    assert not missing


def test_limits_are_the_programs(text: str) -> None:
    """Would catch a limit that was changed in the program alone."""
    assert (marginal.MOST_NUMBERS, MOST_LOCAL) == (2**16, 2**20)
    assert "at least two cells and at most 2^16" in text
    assert blocks.MOST_NUMBERS == 2**16
    assert "at least two numbers and at most 2^16" in text
    assert marginal.MOST_VALUES == 2**24
    assert f"{MOST_CONDITIONS} conditions" in text
    assert "at most 2^20" in text
    assert "2^24 declared values" in text
