"""Workers that cannot start: at first, and when one is replaced while the database is away."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.server.workers import PAUSE_SECONDS
from app.settings import Settings
from tests.answering.test_held_rows import plain
from tests.kit.servers import Caller, Launcher, curator, launching
from tests.kit.world import eventually
from tests.operation.test_supervision import scraped

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_workers_that_cannot_start(tmp_path: Path, postgres_url: str) -> None:
    """Something lies in the vault that no start can sweep away. Catches an end with code 0, after which a service
    manager would take all for well, whether the server is one process or several.
    """
    (tmp_path / "data" / "vault" / "people.0123456789abcdef.vault").mkdir(parents=True)
    for arguments in (["--workers", "2"], []):
        done = curator(tmp_path / "data", postgres_url, "serve", "--port", "0", *arguments)
        assert done.returncode > 0
        assert "Traceback" not in done.stdout + done.stderr


def test_a_worker_ends_while_the_database_is_away(tmp_path: Path, postgres_url: str) -> None:
    """Catches a supervisor that takes a worker which cannot be replaced now for a server that can never start, and ends
    the ones that live; and one that is never replaced, or as fast as processes can be made.
    """
    name = make_url(postgres_url).database
    elsewhere = make_url(plain(postgres_url)).set(database="postgres").render_as_string(hide_password=False)
    with launching(tmp_path / "data", postgres_url) as launcher:
        server = launcher.start(workers=2).wait_until_ready()
        admin = Caller(server.url)
        both = 2 * Settings(admin_key="x" * 20).memory_limit - 6
        eventually(lambda: scraped(admin).get("curator_memory_limit_bytes", 0.0) >= both, 60)
        time.sleep(2)  # in which each is asked whether it has started
        with psycopg.connect(elsewhere, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            server.workers()[0].kill()
            eventually(lambda: not server.alive() or len(failures(launcher)) >= 2, 90)
            assert server.alive()
            assert httpx.get(f"{server.url}/healthz", timeout=10).status_code == 200
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        server.wait_until_ready()
        eventually(lambda: len(server.workers()) == 2, 30)
        times = failures(launcher)
        assert min(later - earlier for earlier, later in pairwise(times)) >= timedelta(seconds=PAUSE_SECONDS)
        assert "Traceback" not in launcher.logs()


def failures(launcher: Launcher) -> list[datetime]:
    """When workers failed to start."""
    lines = [json.loads(line) for line in launcher.logs().splitlines() if "a worker failed to start" in line]
    return [datetime.fromisoformat(line["timestamp"]) for line in lines]
