"""docs/python.md: every example runs, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.service import Service, register

pytestmark = pytest.mark.api

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


SPEC = {
    "name": "survey",
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
    "attributes": [
        {"name": "sex", "values": ["female", "male"]},
        {"name": "age", "lower": 0, "upper": 80, "grid": 1, "bins": 8},
    ],
}


def test_examples_print_what_they_say(root: Path, exact: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an example of names or a behaviour that the package has not."""
    rows = [f"{('female', 'male')[number % 2]},{number % 80}" for number in range(4000)]
    assert register(exact.admin, SPEC, "\n".join(["sex,age", *rows]).encode(), "survey.csv").status_code == 201
    monkeypatch.setenv("CURATOR_URL", exact.url)
    monkeypatch.setenv("CURATOR_API_KEY", exact.admin_key)
    text = (root / "docs" / "python.md").read_text()
    examples = _EXAMPLE.findall(text)
    assert len(examples) == text.count("```python")
    names: dict[str, Any] = {}
    for code, printed in examples:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        assert output.getvalue() == printed
