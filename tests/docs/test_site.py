"""The documents build as a site without a warning, and the site needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: What a browser fetches by itself.
_FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]* src="(https?:[^"]+)|<link[^>]* href="(https?:[^"]+)""")


def built(root: Path, documents: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Sphinx, as `make docs` runs it, with the project's own configuration."""
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(root / "docs"), str(documents), str(site)]
    return subprocess.run([sys.executable, *command], cwd=root, capture_output=True, text=True, check=False)


def test_the_site_builds_and_stands_alone(root: Path, tmp_path: Path) -> None:
    """Would catch a link to a page or heading that is not there, a page that no list names, a reference that the code
    no longer has, and a page that fetches a script, a style sheet or a picture from another server.
    """
    done = built(root, root / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "tutorials/analyst.html", "explanation/deciding.html", "search.html"} <= pages.keys()
    assert {name: _FETCHED.findall(text) for name, text in pages.items() if _FETCHED.search(text)} == {}
    for name, told in {
        "http": "/v1/sessions/{id}/queries",
        "commands": "curator audit replay",
        "python": "curator_client.Curator",
        "settings": "CURATOR_VAULT_KEY",
        "metrics": "curator_answers_total",
        "problems": "budget-exhausted",
        "grammar": "PERCENTILE_CONT",
    }.items():
        assert told in re.sub("<[^>]+>", "", pages[f"reference/{name}.html"]), name


def test_what_is_not_there_is_noticed(root: Path, tmp_path: Path) -> None:
    """Would catch a build that takes any link, or a page that no list names, and a reference that may be empty."""
    (documents := tmp_path / "docs").mkdir()
    (documents / "index.md").write_text("# A\n\n[there](nowhere.md)\n\n[there](#no-heading)\n")
    (documents / "alone.md").write_text("# B\n\n```{made} nonsense\n```\n")
    done = built(root, documents, tmp_path / "site")
    assert done.returncode != 0
    for told in ("nowhere.md", "no-heading", "alone.md", "nonsense"):
        assert told in done.stderr
