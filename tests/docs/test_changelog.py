"""The changelog: in the form that people and programs know, and true of names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import curator_client
from curator_client import models

pytestmark = pytest.mark.unit

SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Old and new names", "Fixed", "Security"}
_CODE = re.compile(r"`([^`]+)`")
#: A class of the client, or what one of them has.
_NAME = re.compile(r"[A-Z]+[a-z]\w*(?:\.\w+)?")


@pytest.fixture(scope="module")
def changelog(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text()


def test_its_form(changelog: str) -> None:
    """Catches a release without a version or a day, and sections of a kind that nobody looks for."""
    releases = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert releases[0] == "Unreleased"
    for release in releases[1:]:
        assert re.fullmatch(r"\d+\.\d+\.\d+ - (?:\d{4}-\d{2}-\d{2}|not yet tagged)", release), release
    assert set(re.findall(r"^### (.+)$", changelog, re.MULTILINE)) <= SECTIONS


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")


@pytest.mark.parametrize("name", ["CHANGELOG.md", "SECURITY.md", "docs/releasing.md"])
def test_links_lead_somewhere(root: Path, name: str) -> None:
    """Catches a page or a heading that was renamed."""
    document = root / name
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", document.read_text())
    assert links
    for path, anchor in links:
        target = (document.parent / path) if path else document
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in {slug(each) for each in headings}, f"{path}#{anchor}"


def rows(changelog: str) -> Iterator[tuple[str, str]]:
    """The table of names."""
    table = changelog[changelog.index("| was | is |") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        old, new = line.strip("|").split(" | ")
        yield old.strip(), new.strip()


def is_there(name: str) -> bool:
    """Whether the client has a class, and what it is said to have."""
    owner, _, part = name.partition(".")
    found = getattr(curator_client, owner, getattr(models, owner, None))
    if found is None or not part:
        return found is not None
    return hasattr(found, part) or part in getattr(found, "__dataclass_fields__", {})


def test_old_names_are_gone_and_new_ones_there(changelog: str) -> None:
    """Catches a row that sends callers to a name that there is not, or away from one that still serves. A cell with
    words beside its names tells what became of one that stayed."""
    told, gone = 0, 0
    for old, new in rows(changelog):
        if not _CODE.sub("", old).strip(" ,"):
            for name in filter(_NAME.fullmatch, _CODE.findall(old)):
                assert not is_there(name), f"{name} is still there"
                gone += 1
        for name in filter(_NAME.fullmatch, _CODE.findall(new)):
            assert is_there(name), f"there is no {name}"
            told += 1
    assert gone > 15
    assert told > 25
