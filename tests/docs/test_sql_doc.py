"""docs/sql.md: every construct becomes what it says, or is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.declarations.spec import parse_spec
from app.spaces.table import table_space
from app.sql.errors import SqlRefused
from app.sql.statement import Describe, Select, Shown, ShowTables, translate
from app.sql.table import Table

pytestmark = pytest.mark.unit


def test_every_construct_becomes_what_the_table_says(root: Path) -> None:
    """Would catch a construct that is refused or taken and of which readers are told otherwise."""
    text = (root / "docs" / "sql.md").read_text()
    spec = parse_spec(json.loads(re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]))
    table = Table(spec, table_space(spec))  # type: ignore[arg-type]
    constructs = re.search(r"<!-- constructs -->\n(.*)<!-- /constructs -->", text, re.DOTALL)
    assert constructs is not None
    lines = [re.fullmatch(r"\| `(.*)` \| (.*) \|", line) for line in constructs[1].splitlines()[2:]]
    assert len(lines) > 80
    for line in lines:
        assert line is not None
        statement, becomes = line.groups()
        said = None
        try:
            found = translate(statement, table)
        except SqlRefused as refused:
            said = refused.detail
        if said is not None:
            assert becomes.startswith("refused: "), statement
            for instead in re.findall(r"\b(?:say|use) ([A-Z_]{3,}|FLOOR\(.*\))", becomes):
                assert instead.replace("hours", "x") in said, statement
            continue
        if isinstance(found, Select) and not found.explain:
            assert becomes.split(":")[0] == f"`{found.questions[0]['type']}`", statement
        else:
            told = {ShowTables: "data sets", Describe: "attributes", Select: "price", Shown: "nothing is asked"}[
                type(found)
            ]
            assert told in becomes
    example = re.search(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    assert translate(example[1], table)
