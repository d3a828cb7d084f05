"""Made-up records of tables with structural zeros keep to them, and are read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec
from app.services.dummy_records import dummy_table, encoded
from app.spaces.factory import zeros_of
from app.storage.readers import read_private
from tests.zeros.schemas import NAMES, Document, declared, satisfied, schemas
from tests.zeros.tables import SPEC

pytestmark = pytest.mark.unit


@given(schema=schemas(), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_made_up_records_keep_to_zeros(schema: tuple[tuple[int, ...], list[Document]], seed: int) -> None:
    """Would catch made-up records that no declared file has, which a session on them would refuse."""
    sizes, zeros = schema
    spec = parse_spec(declared(sizes, zeros))
    assert isinstance(spec, TableSpec)
    try:
        zeros_of(spec)
    except InvalidDataset:
        return
    for record in dummy_table(spec, 50, seed).to_pylist():
        assert not any(satisfied(zero, {name: record[name] for name in NAMES[: len(sizes)]}) for zero in zeros)


def test_made_up_files_are_accepted(tmp_path: Path) -> None:
    """Of every kind of attribute, some without a value. Would catch a made-up file that a registration refuses."""
    spec = parse_spec(
        {
            **SPEC,
            "attributes": [
                {**each, **({"missing": True} if each["name"] == "marital" else {})} for each in SPEC["attributes"]
            ],
            "zeros": [*SPEC["zeros"], {"age": {"ge": 50}, "marital": None}],
        }
    )
    (tmp_path / "made.csv").write_bytes(encoded(dummy_table(spec, 500, 3), "csv"))
    found = read_private(spec, "made.csv", tmp_path / "made.csv", memory_limit=1 << 30)
    assert found.report is not None
    assert (found.report.read, found.report.kept) == (500, 500)
