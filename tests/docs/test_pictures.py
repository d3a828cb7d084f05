"""The picture of the README is what the command that it names draws; noise alone differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.income import PICTURE, drawn

pytestmark = pytest.mark.integration


def form(picture: str) -> str:
    """A drawing without the numbers, which noise changes, and what moves with them."""
    without = re.sub(r"<line[^>]*gridline[^>]*>|<text[^>]*tick[^>]*>[^<]*</text>|, too uncertain", "", picture)
    return re.sub(r"-?[\d,]*\.?\d+", "#", without)


@pytest.mark.usefixtures("forked_servers")
def test_the_picture_of_the_readme_is_drawn_by_its_command(root: Path) -> None:
    """Would catch a picture from another program, one of before labels changed, and a command that no longer runs."""
    readme = (root / "README.md").read_text()
    assert f"]({PICTURE.relative_to(root)})" in readme
    assert "python -m benchmarks.income" in readme
    shown, now = PICTURE.read_text(encoding="utf-8"), drawn()
    assert shown.count('class="truth"') == now.count('class="truth"') == 8
    assert form(shown) == form(now)
    assert shown != now
