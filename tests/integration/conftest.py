"""Fixtures of the integration suites: a world on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.services.answering import group
from app.storage.database import make_engines
from app.storage.migrate import migrate
from tests.integration.world import World, make_world

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str | None:
    """None for the embedded database, or the URL of an empty PostgreSQL database."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def migrated(postgres_url: str) -> str:
    """The URL of a PostgreSQL database with its tables."""
    _, writing = make_engines(postgres_url)
    migrate(writing)
    writing.dispose()
    return postgres_url


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """worlds(url, **settings): a service over this test's data folder; all of them are stopped afterwards.

    Pauses between tries are shortened, to 10 ms each. Groups are not cut for their time: which requests share a commit
    is for the test to say, and not for how busy the machine is.
    """
    monkeypatch.setattr(group, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(group, "SLICE_SECONDS", 60.0)
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
