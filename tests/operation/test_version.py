"""The version: one place says it, and all that tells it says the same."""

from __future__ import annotations

import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest

from app.report.page import BY_COMMAND, BY_SERVICE
from curator_client import Curator, __version__
from tests.kit.service import Service

pytestmark = pytest.mark.api

#: Where the version stands.
PLACE = Path("clients/python/curator_client/version.py")


def test_one_place_says_it(root: Path) -> None:
    """Catches a second place, which the next release would forget; and an installation of before."""
    assert re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', (root / PLACE).read_text(), re.MULTILINE) == [__version__]
    programs = [*root.glob("*.toml"), *root.glob("clients/*/*.toml"), root / "Makefile", root / "Dockerfile"]
    programs += [*root.glob("*.yml"), *root.glob("app/**/*.py"), *root.glob("clients/python/**/*.py")]
    told = rf"(?<![\d.>=]){re.escape(__version__)}(?![\d.])"
    assert [path.relative_to(root) for path in programs if re.search(told, path.read_text())] == [PLACE]
    assert {version("curator-server"), version("curator-client")} == {__version__}, "run make setup"
    # A package of R has to say its own.
    assert f"\nVersion: {__version__}\n" in (root / "clients" / "r" / "DESCRIPTION").read_text()


def test_the_changelog_has_it(root: Path) -> None:
    """Catches a release that the changelog does not begin with, once what is unreleased was left out."""
    headings = re.findall(r"^## \[?([\w.]+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(each for each in headings if each != "Unreleased") == __version__


def test_all_that_tells_it_says_the_same(service: Service) -> None:
    """Catches a description, a command, a report or an SQL function of another version."""
    assert service.admin.get("/openapi.json").json()["info"]["version"] == __version__
    command = [str(Path(sys.executable).with_name("curator")), "--version"]
    assert subprocess.check_output(command, text=True) == f"curator {__version__}\n"
    for made in (BY_COMMAND, BY_SERVICE):
        assert re.findall(r"\d+\.\d+\.\d+", made) == [__version__]


def test_the_client_says_it_to_the_service() -> None:
    """Catches requests that do not say which client sent them: a log of a proxy tells who has to be warned."""
    heard = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["User-Agent"])
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with Curator(f"http://127.0.0.1:{server.server_port}") as curator:
                curator.call("GET", "/readyz")
        finally:
            server.shutdown()
            thread.join()
    assert heard == [f"curator-client/{__version__}"]
