"""Several workers of one server, beside as many servers: what their start takes, and what memory they hold.

Run `python -m benchmarks.service.workers` (two minutes). All are on one PostgreSQL, and nobody asks them anything.
Memory is what these processes hold, where they share it each its part (PSS), and of a process that answers what it
shares with nobody (USS).
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack

import psutil

from benchmarks.harness import curator, postgres, report

NUMBERS = (1, 2, 4, 8)
SETTLED_SECONDS = 8
MIB = 1 << 20
#: Of processes that do not answer: supervisors, and what workers are forked from.
MOST_THREADS_OF_OTHERS = 8


def held(number: int, servers: int) -> list[float]:
    """Seconds of a processor until all serve, MiB of all, and MiB of one that answers.

    Args:
        number: of processes that answer.
        servers: that they are divided among.
    """
    with ExitStack() as stack:
        url = stack.enter_context(postgres())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="curator-bench-"))
        begun = [
            psutil.Process(stack.enter_context(curator(url, number // servers, CURATOR_DATA_DIR=folder)).pid)
            for _ in range(servers)
        ]
        time.sleep(SETTLED_SECONDS)
        processes = [each for server in begun for each in (server, *server.children(recursive=True))]
        seconds = sum(each.cpu_times().user + each.cpu_times().system for each in processes)
        memory = [each.memory_full_info() for each in processes]
        # Whoever answers has lanes, threads of its own.
        least = min(
            own.uss for own, each in zip(memory, processes, strict=True) if each.num_threads() > MOST_THREADS_OF_OTHERS
        )
        return [seconds, sum(own.pss for own in memory) / MIB, least / MIB]


def main() -> None:
    rows = []
    for number in NUMBERS:
        for servers in sorted({1, number}):
            what = f"servers: {number}" if servers == number else f"workers of one server: {number}"
            rows.append([what, *held(number, servers)])
    columns = ["what", "seconds of a processor", "MiB of all", "MiB of one alone"]
    report("workers", "Workers of one server, and servers", columns, rows)


if __name__ == "__main__":
    main()
