"""Workloads as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.cli.errors import Refusal
from app.cli.inputs import parse_workload

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("marginals=3", {"marginals": 3}),
        ("marginals=2:age, sex", {"marginals": 2, "attributes": ["age", "sex"]}),
        ("ranges=age", {"ranges": "age"}),
        ("cuts", {"cuts": "all"}),
        ("rank_one=all", {"rank_one": "all"}),
        ('{"marginals": 1}', {"marginals": 1}),
    ],
)
def test_short_forms(typed: str, meant: dict[str, Any]) -> None:
    assert parse_workload(typed) == meant


def test_queries_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "queries.json"
    file.write_text('[{"type": "predicate", "where": {}}]')
    assert parse_workload(f"queries={file}") == {"queries": [{"type": "predicate", "where": {}}]}
    file.write_text('{"type": "predicate"}')
    with pytest.raises(Refusal, match="not a JSON list"):
        parse_workload(f"queries={file}")
    file.write_text("nothing")
    with pytest.raises(Refusal, match="not JSON"):
        parse_workload(f"queries={file}")


@pytest.mark.parametrize(
    "typed", ["", "marginals", "marginals=all", "marginals=2:", "ranges", "cuts=some", "magic=1", "{"]
)
def test_anything_else_is_refused(typed: str) -> None:
    """Catches a word that is taken for another, and a slip that reaches the service."""
    with pytest.raises(Refusal):
        parse_workload(typed)
