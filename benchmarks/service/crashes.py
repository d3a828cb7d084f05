"""Servers killed with SIGKILL at every named step and at random moments, under load, and checked after each restart.

Run `python -m benchmarks.service.crashes [--kills N]` (N kills on each database, default 120; some ten minutes in all).
The harness is that of the tests (`tests/kit/crashes.py`): clients ask, open, close, register and retire, and
repeat under its key whatever got no reply. After each restart every reply that anybody received since the last check is
held against the transcripts, the ledger against what the transcripts say was spent, each session that has moved is
replayed, and the vault is held against the records; every 20 rounds, and at the end, all of it is done for everything.
In half of the rounds sessions are written down whenever they have learnt anything, and come back from there. On
PostgreSQL a second server is at work in half of the rounds, and some kills are of one of two workers. A violation is
anything that was lost, forked, half done or charged twice; there must be none, and the run fails if there is one, or if
a step was missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness import free_port, postgres, report
from tests.kit.crashes import RANDOM, WORKER, Findings, check, prepare, torture
from tests.kit.servers import launching
from tests.kit.steps import KEEPING, MIGRATING, WORKING

DATABASES = ("SQLite", "PostgreSQL")
#: Share of the kills that come at random moments.
AT_RANDOM = 0.4
#: Kills of one of two workers, where there can be several.
OF_WORKERS = 6
#: Statements after which a migration is killed.
STATEMENTS = (1, 3, 8, 16)


def schedule(kills: int, workers: bool) -> tuple[list[str], list[tuple[str, int]]]:
    """Moments for so many kills, and those of the migrations before them."""
    migrating = [(step, n) for step in MIGRATING for n in (STATEMENTS if "between" in step else (1,))]
    rest = kills - len(migrating)
    named = round(rest * (1 - AT_RANDOM))
    steps = WORKING + KEEPING
    moments = [steps[i % len(steps)] for i in range(named)] + [RANDOM] * (rest - named)
    if workers:
        moments[-OF_WORKERS:] = [WORKER] * OF_WORKERS
    random.Random(kills).shuffle(moments)
    return moments, migrating


def run(name: str, kills: int) -> tuple[Findings, float]:
    """All kills on one database; what was found, and the seconds it took."""
    postgresql = name == "PostgreSQL"
    moments, migrating = schedule(kills, postgresql)
    findings, port, started = Findings(), free_port(), time.perf_counter()
    with ExitStack() as stack:
        url = stack.enter_context(postgres()) if postgresql else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curator-bench-")))
        launcher = stack.enter_context(launching(folder / "data", url))
        clients = prepare(launcher, url, port, findings, migrating=migrating)
        torture(launcher, clients, port, moments, findings, second=free_port() if postgresql else None)
        check(launcher, clients, launcher.command(port).wait_until_ready(), findings)
        findings.hold("Traceback" not in launcher.logs(), "a stack trace in the log")
    steps = [*WORKING, *KEEPING, *MIGRATING, RANDOM, *([WORKER] if postgresql else [])]
    for step in steps:
        findings.hold(findings.kills[step] > 0, f"{step}: no kill")
    return findings, time.perf_counter() - started


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=120, help="kills on each database")
    kills = parser.parse_args().kills
    found = {name: run(name, kills) for name in DATABASES}
    rows: list[list[Any]] = [
        [step, *(found[name][0].kills[step] for name in DATABASES)]
        for step in (*WORKING, *KEEPING, *MIGRATING, RANDOM, WORKER)
    ]
    rows.append(["kills in all", *(found[name][0].kills.total() for name in DATABASES)])
    for what in sorted({what for findings, _ in found.values() for what in findings.totals}):
        rows.append([what, *(found[name][0].totals[what] for name in DATABASES)])
    rows.append(["violations", *(len(found[name][0].violations) for name in DATABASES)])
    rows.append(["seconds", *(round(found[name][1]) for name in DATABASES)])
    violations = {name: findings.violations for name, (findings, _) in found.items()}
    report(
        "crashes", "Killed under load, and checked after each restart", ["", *DATABASES], rows, violations=violations
    )
    if any(violations.values()):
        sys.exit(f"violations: {violations}")


if __name__ == "__main__":
    main()
