"""Without the defence: the page that takes keys runs what another host sends, or is shown inside another page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from tests.kit.service import Service, serving

pytestmark = pytest.mark.adversarial

#: What a policy may name at all: nothing, this very host, and images that are written out.
ALLOWED = {"'none'", "'self'", "data:"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("pages")) as running:
        yield running


class Page(HTMLParser):
    """What a page loads, and what of it would run without being loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag if tag in ("script", "style") else ""
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                self.loads.append(value or "")
            elif name == "style" or name.startswith("on"):
                self.inline.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        if self._within and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._within = ""


def policy(reply: httpx.Response) -> dict[str, set[str]]:
    """The content security policy of a reply by its directives."""
    parts = [part.split() for part in reply.headers["content-security-policy"].split(";")]
    return {name: set(sources) for name, *sources in parts}


def test_all_of_it_comes_from_here(service: Service) -> None:
    """Every script, style sheet and image of the page, and of what these load, is served by the server itself; nothing
    is written into the page. Catches a host that sees who reads the page and whose script gets the keys, and a page
    that does not work without the internet.
    """
    reply = httpx.get(f"{service.url}/docs")
    page = Page()
    page.feed(reply.text)
    assert page.inline == []
    loaded = [each for each in page.loads if not each.startswith("data:")]
    assert len(loaded) >= 3
    kinds = set()
    for each in loaded:
        url = urljoin(f"{service.url}/docs", each)
        assert urlsplit(url).netloc == urlsplit(service.url).netloc
        part = httpx.get(url)
        assert part.status_code == 200
        assert part.headers["x-content-type-options"] == "nosniff"
        kinds.add(part.headers["content-type"].split(";")[0])
        if "css" in part.headers["content-type"]:
            assert "@import" not in part.text
            assert all(found.startswith("data:") for found in re.findall(r"url\([\"']?([^\"')]{1,20})", part.text))
        if len(part.content) < 10_000:  # the one that says what is shown
            assert '"/openapi.json"' in part.text
            assert "//" not in part.text
    assert kinds == {"text/javascript", "text/css"}


def test_the_browser_is_told_so(service: Service) -> None:
    """The policy of the page, and of its parts, names nobody else, and no script but those served; no other page may
    show it. Catches a policy with a hole, and one that allows what it should only forbid.
    """
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"):
        reply = httpx.get(f"{service.url}{path}")
        said = policy(reply)
        assert said["default-src"] == said["base-uri"] == said["form-action"] == said["frame-ancestors"] == {"'none'"}
        assert set().union(*said.values()) <= ALLOWED
        assert said.pop("img-src") == {"'self'", "data:"}
        assert "data:" not in set().union(*said.values())
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"


def test_there_is_no_other_page(service: Service) -> None:
    """Whatever else is asked for, by a browser, is no page. Catches a second one, without a policy, that the framework
    brings along; and a way from the page's files to others.
    """
    paths = {getattr(route, "path", "") for route in service.built.app.routes}
    paths |= {"/", "/redoc", "/docs/", "/docs/oauth2-redirect", "/docs/nothing", "/favicon.ico"}
    paths |= {"/docs/redoc.standalone.js", "/docs/..%2f__init__.py", "/docs/%2e%2e/core.py", "/docs//etc/passwd"}
    for path in paths - {"/docs"}:
        reply = service.admin.get(path, headers={"Accept": "text/html"})
        assert "html" not in reply.headers["content-type"], path
        if path.startswith("/docs/") and path != "/docs/start.js":
            assert reply.status_code == 404, path


def test_keys_stay_in_the_page(service: Service) -> None:
    """Catches a page that keeps a key in the browser, takes one from a link, or lets a link say what it loads."""
    start = httpx.get(f"{service.url}/docs/start.js").text
    for word in ("persistAuthorization", "queryConfigEnabled", "configUrl", "preauthorize", "withCredentials"):
        assert word not in start
    assert "validatorUrl: null" in start


@pytest.mark.parametrize("asked", ["bytes=0-1", "bytes=abc", "bytes=9999999999-", "bytes=5-1", "x", "bytes=0-1,3-4"])
def test_files_come_whole(service: Service, asked: str) -> None:
    """Whatever part of a file is asked for. Catches a refusal that is no problem, in the framework's own words."""
    path = f"{service.url}/docs/swagger-ui.css"
    whole, part = httpx.get(path), httpx.get(path, headers={"Range": asked})
    assert (part.status_code, part.content) == (200, whole.content)
    assert part.headers["content-type"] == whole.headers["content-type"] == "text/css; charset=utf-8"
    assert int(httpx.head(path).headers["content-length"]) == len(whole.content)
