"""docs/python.md: every example runs, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_examples_print_what_they_say(root: Path) -> None:
    """Would catch an example of names or a behaviour that the package has not."""
    text = (root / "docs" / "python.md").read_text()
    examples = _EXAMPLE.findall(text)
    assert len(examples) == text.count("```python")
    names: dict[str, Any] = {}
    for code, printed in examples:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        assert output.getvalue() == printed
