"""kill -9 at named steps and random moments, under load: what was answered stands, what was not asked twice is not
charged twice. The harness is :mod:`tests.kit.crashes`; `benchmarks/service/crashes.py` runs it at length.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import free_port
from tests.kit.crashes import RANDOM, WORKER, Findings, check, prepare, torture
from tests.kit.servers import launching
from tests.kit.steps import HASTY, KEEPING, MIGRATING, WORKING

pytestmark = pytest.mark.integration

#: Kills at random moments, beside one at each of the named steps.
RANDOM_KILLS = 3
#: Where a server with a database of its own dies: before a commit and after it, and wherever no database is asked.
EMBEDDED = tuple(step for step in WORKING if "commit" not in step or step.startswith(("answering", "retiring")))
#: Where one dies whose database others use: at every commit, and with a file that has no row yet.
BESIDE = tuple(step for step in WORKING if "commit" in step or "row" in step)


def run(folder: Path, database: str | None, moments: list[str], migrating: Any = (), **order: Any) -> Findings:
    """Kill a server at these moments and check what is left; ``order`` plants a bug."""
    findings, port = Findings(), free_port()
    with launching(folder / "data", database) as launcher:
        clients = prepare(launcher, database, port, findings, migrating=migrating)
        second = None if database is None else free_port()
        torture(launcher, clients, port, moments, findings, second=second, books_every=3, **order)
        server = (launcher.start if order else launcher.command)(port, **order).wait_until_ready()
        check(launcher, clients, server, findings)
        findings.hold("Traceback" not in launcher.logs(), "a stack trace in the log")
    return findings


def test_what_was_answered_stands(tmp_path: Path, unmigrated: str | None) -> None:
    """Catches an answer that left before it was durable, a charge without its entry or the other way round, a round
    played twice for one key, a chain that a crash forks, a data set half registered, a migration half applied, a
    snapshot that says something else than its transcript; and on PostgreSQL what only shows when another server, or
    another worker, goes on while one dies.
    """
    named = (*EMBEDDED, *KEEPING) if unmigrated is None else (*BESIDE, WORKER)
    moments = [*named, *[RANDOM] * RANDOM_KILLS]
    random.Random(3).shuffle(moments)
    migrating = [(step, 5 if "between" in step else 1) for step in MIGRATING]
    found = run(tmp_path, unmigrated, moments, migrating)
    assert found.violations == []
    # The harness has worked: every step was killed at, and there was something to lose.
    assert {*EMBEDDED, *BESIDE} == {*WORKING}
    assert found.kills == {**dict.fromkeys((*named, *MIGRATING), 1), RANDOM: RANDOM_KILLS}
    assert found.totals["checks of what is new"] >= len(moments) - 3
    assert found.totals["sessions resumed from a snapshot"] > 0
    assert unmigrated is None or found.totals["killed beside a second server"] > 3
    assert found.totals["replies"] > 100
    assert found.totals["hits"] > 10
    assert found.totals["statistics answered"] > 3
    assert found.totals["data sets"] > 3
    assert found.totals["retried without a reply"] > 3


@pytest.mark.parametrize(
    ("bug", "moments", "complaint"),
    [
        ("double charge", [RANDOM], "the books"),
        ("forgotten keys", ["answering: after the commit, before the reply"], "an entry that nobody asked for"),
        ("no sweep", ["registering: between file and row"], "a half-registered data set"),
    ],
)
def test_the_checker_sees(tmp_path: Path, bug: str, moments: list[str], complaint: str) -> None:
    """Servers with a planted bug each. Catches a checker that is blind: after the restart, to what is new, or at the
    end, to everything.
    """
    found = run(tmp_path, None, moments, bug=bug)
    assert sum(complaint in violation for violation in found.violations) >= 2, found.violations


def test_a_reply_before_its_commit_is_caught(tmp_path: Path) -> None:
    """A server whose commits come a moment after they are reported is killed in that moment, a second long. Catches a
    checker that does not see an answer which was told and is not recorded.
    """
    found = run(tmp_path, None, [HASTY], bug="reply first")
    assert any("a reply was lost" in v or "two answers under one key" in v for v in found.violations), found.violations
