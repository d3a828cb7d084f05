"""Fixtures of services: servers that the tests of a module share, and worlds on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from playwright.sync_api import Browser, sync_playwright

from app.bootstrap.noise import SystemNoise
from app.demo import server as demo_server
from app.services.answering import group
from tests.kit.console import launched
from tests.kit.databases import empty_database
from tests.kit.noise import Noise
from tests.kit.servers import shims
from tests.kit.service import Service, serving
from tests.kit.world import World, make_world

_events: list[MutableMapping[str, Any]] = []


def _keep(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    _events.append(event)
    raise structlog.DropEvent


@pytest.fixture(scope="module")
def _log() -> Iterator[None]:
    # For each module: between two of them the same process may run tests that set the log up for themselves.
    structlog.configure(processors=[structlog.processors.add_log_level, _keep])
    yield
    structlog.reset_defaults()


@pytest.fixture
def logged(_log: None) -> Iterator[list[MutableMapping[str, Any]]]:
    """The log's events during a test; an error among them is a reply that only looked like a planned one."""
    _events.clear()
    yield _events
    assert not [event for event in _events if event["level"] in ("error", "critical")]


@pytest.fixture(scope="module")
def noise() -> Noise:
    """The noise of the module's server: none, until a test sets ``draw``."""
    return Noise()


@pytest.fixture(scope="module")
def service(_log: None, tmp_path_factory: pytest.TempPathFactory, noise: Noise) -> Iterator[Service]:
    """A server that the tests of a module share."""
    with serving(tmp_path_factory.mktemp("service"), noise=noise) as running:
        yield running


@pytest.fixture(scope="module")
def exact(_log: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server whose noise is zero, so that what is measured is the truth."""
    with serving(tmp_path_factory.mktemp("exact"), noise=Noise()) as running:
        yield running


@pytest.fixture(scope="module")
def noisy(_log: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("noisy"), noise=SystemNoise()) as running:
        yield running


@pytest.fixture(scope="module")
def forked_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of `app.demo.server` are forked, as those of `launching`; tests of the demonstration do without."""
    shims(commands := tmp_path_factory.mktemp("bin"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_server, "sys", SimpleNamespace(executable=str(commands / "python")))
        yield


@pytest.fixture(autouse=True)
def _nothing_unforeseen(request: pytest.FixtureRequest) -> None:
    """Where the contract of HTTP is tested nothing that is logged speaks of an unforeseen error."""
    if request.node.get_closest_marker("api") is not None:
        request.getfixturevalue("logged")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium without a window, which the tests of a module share: while it is driven no event loop of asyncio can
    run in the same thread.
    """
    with sync_playwright() as playwright:
        shown = launched(playwright)
        yield shown
        shown.close()


DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


#: For a test to which the database does not matter.
on_embedded = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str | None:
    """None for the embedded database, or the URL of a PostgreSQL database with its tables."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=DATABASES)
def unmigrated(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The same, without the tables."""
    if request.param == "sqlite":
        yield None
        return
    with empty_database(request.getfixturevalue("postgres_server")) as url:
        yield url


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten pauses between tries, to 10 ms each, and cut no group for its time: which requests share a commit is for
    the test to say, and not for how busy the machine is.
    """
    monkeypatch.setattr(group, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(group, "SLICE_SECONDS", 60.0)


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """worlds(url, **settings): a service over this test's data folder; all of them are stopped afterwards."""
    unhurried(monkeypatch)
    made: list[World] = []

    def make(url: str | None, **settings: Any) -> World:
        made.append(make_world(tmp_path, url, **settings))
        return made[-1]

    yield make
    for world in made:
        world.stop()


@pytest.fixture
def world(worlds: Callable[..., World], database: str | None) -> World:
    """One service, on each database in turn."""
    return worlds(database)
