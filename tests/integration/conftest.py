"""Fixtures of the integration suites: a world on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.services.answering import group
from tests.kit.databases import empty_database
from tests.kit.world import World, make_world

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


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
