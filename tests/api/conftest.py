"""A real server for the suites of the HTTP contract. Nothing it logs may speak of an unforeseen error."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from app.bootstrap.noise import SystemNoise
from tests.kit.noise import Noise
from tests.kit.service import Service, serving

_events: list[MutableMapping[str, Any]] = []


def _keep(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    _events.append(event)
    raise structlog.DropEvent


@pytest.fixture(scope="module", autouse=True)
def _log() -> Iterator[None]:
    # For each module: between two of them the same process may run tests that set the log up for themselves.
    structlog.configure(processors=[structlog.processors.add_log_level, _keep])
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
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
def service(tmp_path_factory: pytest.TempPathFactory, noise: Noise) -> Iterator[Service]:
    """A server that the tests of a module share."""
    with serving(tmp_path_factory.mktemp("service"), noise=noise) as running:
        yield running


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server whose noise is zero, so that what is measured is the truth."""
    with serving(tmp_path_factory.mktemp("exact"), noise=Noise()) as running:
        yield running


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("noisy"), noise=SystemNoise()) as running:
        yield running
