"""The picture of the README is what the command that it names draws; noise alone differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.income import PICTURE, drawn
from curator_client.figures import Mark, forest

pytestmark = pytest.mark.integration


def form(picture: str) -> str:
    """A drawing without the numbers, which noise changes, and what moves with them: how many marks the axis has, and
    where notes below it are broken.
    """
    without = re.sub(r'<path class="grid"[^>]*>|<text class="tick"[^>]*>[^<]*</text>|, too uncertain', "", picture)
    without = re.sub(r'</text><text class="note"[^>]*>', " ", without)
    return re.sub(r"-?[\d,]*\.?\d+", "#", without)


@pytest.mark.parametrize("factor", [1.5, 1.8, 7.5])
def test_numbers_alone_are_left_out_of_the_form(factor: float) -> None:
    """Noise may put one mark more on the axis. Catches a form that knows how many there are, or no labels."""

    def picture(factor: float, label: str = "b") -> str:
        marks = [Mark(("a", label), factor * n, 1.0, (factor * n - 2, factor * n + 2), n) for n in (3.1, 4.0, 10.0)]
        return forest("title", ("x", "y"), marks, confidence=0.95)

    assert picture(factor).count('class="grid"') != picture(1.0).count('class="grid"')
    assert form(picture(factor)) == form(picture(1.0))
    assert form(picture(factor, "another")) != form(picture(1.0))


@pytest.mark.usefixtures("forked_servers")
def test_the_picture_of_the_readme_is_drawn_by_its_command(root: Path) -> None:
    """Would catch a picture from another program, one of before labels changed, and a command that no longer runs."""
    readme = (root / "README.md").read_text()
    assert f"]({PICTURE.relative_to(root)})" in readme
    assert "python -m benchmarks.income" in readme
    shown, now = PICTURE.read_text(encoding="utf-8"), drawn()
    assert shown.count('class="truth"') == now.count('class="truth"') == 8
    assert form(shown) == form(now)
    assert shown.count('class="grid"') == shown.count('class="tick"') > 2
    assert now.count('class="grid"') == now.count('class="tick"') > 2
    assert shown != now
