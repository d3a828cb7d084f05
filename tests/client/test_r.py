"""The client in R, as far as it can be looked at without R: `make r` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import curator_client
from app.http.problems import PROBLEMS

pytestmark = pytest.mark.unit


@pytest.fixture
def package(root: Path) -> Path:
    return root / "clients" / "r"


def test_what_the_page_names_is_there_and_described(root: Path, package: Path) -> None:
    """Catches a function that is renamed, or no longer exported, while docs/r.md sends readers to it; one that the page
    does not have; and one without a manual page."""
    exported = set(re.findall(r"^export\((\w+)\)$", (package / "NAMESPACE").read_text(), re.MULTILINE))
    defined = set(re.findall(r"^(\w+) <- function", "\n".join(_sources(package)), re.MULTILINE))
    described = set(
        re.findall(r"\\alias\{(\w+)\}", "\n".join(path.read_text() for path in (package / "man").iterdir()))
    )
    page = (root / "docs" / "r.md").read_text()
    table = page[page.index("## Functions") : page.index("## Errors")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)\(", " ".join(rows))) == exported
    assert len(exported) >= 10
    assert exported <= defined
    assert exported <= described


def test_manual_pages_are_those_of_the_comments(package: Path) -> None:
    """Catches an argument or an example that was changed in a comment and not in what R shows: roxygen2 was not run."""
    sources = "\n".join(_sources(package))
    pages = "\n".join(path.read_text() for path in (package / "man").iterdir())
    parameters = re.findall(r"^#' @param (\S+)", sources, re.MULTILINE)
    assert parameters
    for name in parameters:
        assert f"\\item{{{name}}}" in pages.replace("\\dots", "...")
    code = re.findall(r"^#' ((?:[a-z]+ <- )?(?:ask|price|session|curator|dataset)\w*\(.*)$", sources, re.MULTILINE)
    assert len(code) > 10
    for line in code:
        assert line in pages


def test_the_version_is_that_of_the_release(package: Path) -> None:
    """Catches a package that goes out under an old number, and one that needs more than it says."""
    fields = dict(re.findall(r"^(\w+): (.*)$", (package / "DESCRIPTION").read_text(), re.MULTILINE))
    assert fields["Version"] == curator_client.__version__
    assert fields["Imports"] == "httr2 (>= 0.2.2), jsonlite"
    called = set(re.findall(r"\b(\w+)::", "\n".join(_sources(package))))
    assert called == {"httr2", "jsonlite", "stats", "utils"}


def test_problems_are_those_of_the_service(root: Path, package: Path) -> None:
    """Catches advice for a problem that the service does not have, and a class in docs/r.md that nothing raises."""
    source = (package / "R" / "conditions.R").read_text()
    advice = re.findall(r'^  "([a-z-]+)" =', source[: source.index("STATUSES")], re.MULTILINE)
    assert len(advice) >= 8
    assert set(advice) <= set(PROBLEMS)
    assert set(re.findall(r'"\d{3}" = "([a-z-]+)"', source)) <= set(PROBLEMS)
    own = {"unreachable", "protocol-error"}
    page = (root / "docs" / "r.md").read_text()
    classes = re.findall(r"`curator_([a-z_]+)`", page[page.index("## Errors") : page.index("## What it does not do")])
    assert {name.replace("_", "-") for name in classes} - {"", "error"} <= {*PROBLEMS, *own}


def _sources(package: Path) -> list[str]:
    return [path.read_text() for path in sorted((package / "R").iterdir())]
