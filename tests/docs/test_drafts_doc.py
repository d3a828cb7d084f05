"""docs/drafts.md: what it says of each example is what the service makes of it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from app.declarations import attributes, drafts, imports
from app.declarations.spec import MOST_ATTRIBUTES
from app.services.checks import MOST_PROBLEMS
from app.storage.readers.summaries import MOST_COLUMNS
from tests.kit.service import Service

pytestmark = pytest.mark.api

_BLOCK = re.compile(r"^```(csv|json|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "drafts.md").read_text()


def people(head: str) -> str:
    """3,000 records like those of the example: with its columns, and drawn from what a person would expect of them."""
    draw = random.Random(1)
    rows = []
    for n in range(3000):
        # Everything is there for certain: the first records have each extreme once.
        age = {0: "17", 1: "93", 2: ""}.get(n, str(draw.randint(17, 93)))
        joined = {0: "2019-02-03", 1: "2022-11-07"}.get(n, f"2020-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}")
        remark = f"remark {n}" if n % 3 else ""
        rows.append(f"{n},{('female', 'male')[n % 2]},{age},{n % 3},{joined},{('true', 'false')[n % 2]},{remark}")
    return "\n".join([head, *rows]) + "\n"


def check(service: Service, data: str, spec: str | None) -> dict[str, Any]:
    form = {} if spec is None else {"spec": spec}
    reply = service.admin.post("/v1/datasets/check", data=form, files={"data": ("people.csv", data.encode())})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_examples(service: Service, text: str) -> None:
    """Would catch a draft, or a mapping of either format, that the document shows as it never is."""
    blocks = _BLOCK.findall(text)
    assert [kind for kind, _ in blocks] == ["csv", "json", "yaml", "json", "json", "json"]
    data = people(blocks[0][1].splitlines()[0])
    for spec, expected in ((None, blocks[1][1]), (blocks[2][1], blocks[3][1]), (blocks[4][1], blocks[5][1])):
        found = check(service, data, spec)
        # Documents may say whose records they are before files can.
        assert {problem["detail"] for problem in found["problems"]} <= {"unit: persons are not read yet: leave it out"}
        assert found["spec"] == json.loads(expected)


def test_limits_are_the_programs(text: str) -> None:
    """Would catch a limit that was changed in the program alone."""
    assert f"up to {MOST_PROBLEMS}, each" in text
    assert f"up to {drafts.MOST_LABELS} different texts of up to {drafts.MOST_CHARACTERS} characters" in text
    assert f"up to {drafts.MOST_CODES} different whole numbers" in text
    assert f"up to {drafts.MOST_BINS} bins" in text
    assert attributes.MAX_NUMBERS == 2**20
    assert "more than 2^20 numbers" in text
    assert drafts.MOST_DAYS == 3 * 366
    assert "by day up to three years" in text
    assert f"at most {MOST_ATTRIBUTES} attributes" in text
    assert f"{MOST_COLUMNS:,} columns" in text
    assert f"up to {imports.MOST_YAML_BYTES >> 10} KiB" in text
