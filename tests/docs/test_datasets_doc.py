"""docs/datasets.md: every example is registered with the file behind it, every field has its words."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from app.declarations import spec as declarations
from app.declarations.attributes import Attribute
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Encoding, parse_spec, written
from app.http import openapi
from app.storage.readers import FORMATS, excel, read_private, report
from app.storage.sources import PostgresTables, files
from app.storage.sources.parquet import count_source, prepare_source
from tests.datasets.outside import outside

pytestmark = pytest.mark.unit

JSON = dict[str, Any]
KINDS = get_args(declarations.Spec)
_BLOCK = re.compile(r"^```(json|csv|txt|npy|report)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "datasets.md").read_text()


@pytest.fixture(scope="module")
def examples(text: str) -> list[tuple[JSON, str, bytes]]:
    """Each declaration with the name and the bytes of the file behind it."""

    def found() -> Iterator[tuple[JSON, str, bytes]]:
        declared: JSON | None = None
        for kind, block in _BLOCK.findall(text):
            if kind == "json":
                assert declared is None, f"no file behind {declared}"
                declared = json.loads(block)
            elif kind != "report":
                assert declared is not None, f"no declaration before {block}"
                content = block.encode(declared.get("encoding", "utf-8"))
                if kind == "npy":
                    sink = io.BytesIO()
                    np.save(sink, np.array(json.loads(block)))
                    content = sink.getvalue()
                yield declared, f"data.{kind}", content
                declared = None

    return list(found())


def read(declared: JSON, filename: str, content: bytes, folder: Path) -> Any:
    spec = parse_spec(declared)
    if declared.get("source", {}).get("type") == "postgresql":
        with outside() as database:
            header, *records = content.decode().split()
            columns = [(name, "integer") for name in header.split(",")]
            schema, name = declared["source"]["table"].split(".")
            database.fill(columns, [record.split(",") for record in records], name, schema)
            return PostgresTables(lambda connection: database.reader, 60.0).register(spec)  # type: ignore[arg-type]
    if "source" in declared:
        (folder / "visits").mkdir(exist_ok=True)
        pq.write_table(csv.read_csv(io.BytesIO(content)), folder / "visits" / "2025-01.parquet")
        reading = count_source if declared.get("prepare") is None else prepare_source
        return reading(spec, [folder], memory_limit=1 << 28)  # type: ignore[arg-type]
    (folder / filename).write_bytes(content)
    if declared["kind"] in ("graph", "bipartite") and spec.weighted is None:  # type: ignore[union-attr]
        spec = spec.model_copy(update={"weighted": False})
    return read_private(spec, filename, folder / filename, memory_limit=1 << 28)


def test_every_kind_has_an_example_that_is_taken(examples: list[tuple[JSON, str, bytes]], tmp_path: Path) -> None:
    """Would catch an example that is refused, and a kind of data, or of attribute, without one."""
    for declared, filename, content in examples:
        assert read(declared, filename, content, tmp_path).data.mass > 0
    assert {declared["kind"] for declared, _, _ in examples} == {
        get_args(kind.model_fields["kind"].annotation)[0] for kind in KINDS
    }
    attributes = [Attribute(**a) for declared, _, _ in examples for a in declared.get("attributes", ())]
    assert {a.kind for a in attributes} == {"codes", "categories", "bins", "numbers", "dates"}


def test_every_field_is_in_an_example_and_explained(text: str, examples: list[tuple[JSON, str, bytes]]) -> None:
    """Would catch a field that readers are not told of."""
    fields = {name for kind in KINDS for name in kind.model_fields}
    assert set().union(*(declared for declared, _, _ in examples)) == fields
    attributes = [attribute for declared, _, _ in examples for attribute in declared.get("attributes", ())]
    assert set().union(*attributes) == set(Attribute.model_fields)
    assert not {name for name in fields | set(Attribute.model_fields) if f"`{name}`" not in text}


def test_the_report_is_the_one_of_the_example(
    text: str, examples: list[tuple[JSON, str, bytes]], tmp_path: Path
) -> None:
    """Would catch a report that is another than the document promises."""
    (shown,) = (json.loads(block) for kind, block in _BLOCK.findall(text) if kind == "report")
    (clinic,) = (example for example in examples if example[0]["name"] == "clinic")
    assert read(*clinic, tmp_path).report.view() == shown


def test_limits_and_lists_are_the_programs(text: str) -> None:
    """Would catch a format, an encoding or a limit that was changed in the program alone."""
    assert all(f"`{suffix}`" in text for suffix in FORMATS)
    assert all(f"`{encoding}`" in text for encoding in get_args(Encoding) if encoding != "utf-8")
    assert f"{excel.MOST_CELLS:,} cells" in text
    assert f"the first {report.MOST_PROBLEMS} values" in text
    assert f"up to {files.MOST_FILES} files" in text
    assert f"in at most {declarations.MOST_COMPARED:,} bins" in text


def _validator() -> Any:
    """Of what the document of the interface says of a declaration, by a library of its own."""
    document = {"components": {"schemas": openapi.declaration_schemas()}, "$ref": "#/components/schemas/Declaration"}
    return jsonschema_rs.validator_for(document)


def test_examples_are_of_the_schema_that_is_shown(examples: list[tuple[JSON, str, bytes]]) -> None:
    """Would catch a schema in the document of the interface that lacks a field, or demands what need not be given."""
    validator = _validator()
    for declared, _, _ in examples:
        validator.validate(declared)
        validator.validate(written(parse_spec(declared)))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tables"},
        {"attributes": []},
        {"attributes": [{"name": "a", "size": 0}]},
        {"attributes": [{"name": "a", "size": 2, "sizes": 2}]},
        {"attributes": [{"name": "a", "lower": "0", "upper": 1, "bins": 1}]},
        {"attributes": [{"name": "a", "lower": 0, "upper": 1, "grid": 0}]},
        {"attributes": [{"name": "a", "size": 2, "outside": "ignore"}]},
        {"budget": {"epsilon": 0, "delta": 0.5}},
        {"budget": {"epsilon": "1", "delta": 0.5}},
        {"encoding": "rot13"},
        {"null_values": []},
        {"null_values": ["x"] * 21},
        {"colour": "red"},
    ],
)
def test_what_is_refused_is_not_of_the_schema(change: JSON) -> None:
    """Would catch a schema that tells nothing: each change breaks a rule that a schema can say."""
    sound = {
        "name": "x",
        "kind": "table",
        "budget": {"epsilon": 1, "delta": 1e-9},
        "attributes": [{"name": "a", "size": 2}],
    }
    validator = _validator()
    assert validator.is_valid(sound)
    assert not validator.is_valid({**sound, **change})
    with pytest.raises(InvalidDataset):
        parse_spec({**sound, **change})
