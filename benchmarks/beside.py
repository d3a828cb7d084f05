"""Two states of the code beside each other: answers of a server, and answers replayed, by processor second.

Run `python -m benchmarks.beside COMMIT [--singles]` (some ten minutes; three with `--singles`). The code of the commit
is checked out into a folder of its own; servers of both states run by turns, each on a fresh data folder, are asked the
same and end. Processor time is counted, as it hardly depends on what else the machine does. A ratio is that of the
medians over the rounds: above one, this state is the faster one.

Single answers, which clients ask one by one, depend on who waits for whom as well. For these, servers of both states
and one of a POST that does nothing run at the same time and are asked in turns of half a second: each turn is held
against the turn beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.harness import (
    ADMIN_KEY,
    ROOT,
    Script,
    Server,
    code_of,
    curator,
    load,
    postgres,
    report,
    request_bytes,
    sending,
    server,
)
from benchmarks.service.answering import predicates, processor_seconds, singles
from benchmarks.service.replay import SIDE, SPEC, questions

ROUNDS, BATCH = 3, 100
#: Of single answers: clients, sessions, turns of each server, seconds of each turn.
CLIENTS, SESSIONS, TURNS, SECONDS = (1, 8, 64), 8, 16, 0.5
GRAPH: dict[str, Any] = {
    "name": "g",
    "kind": "graph",
    "nodes": 600,
    "directed": False,
    "budget": {"epsilon": 1000.0, "delta": 1e-6},
}
_REPLAY = """
import sys, time
from pathlib import Path
try:
    from app.verifying.transcript import replay_file
except ModuleNotFoundError:  # the other state may be one that has it elsewhere
    from app.audit.replay import replay_file
started = time.process_time()
verdict = replay_file(Path(sys.argv[1]))
took = time.process_time() - started
assert verdict.ok, verdict.problem
print(took)
"""


def groups() -> Iterator[dict[str, Any]]:
    """Marginals and conditions by turns, no two alike."""
    for low in range(SIDE):
        for high in range(low + 1, SIDE):
            edges = {"between": [low, high]}
            yield {"type": "marginal", "attributes": ["a"], "where": {"b": edges}}
            yield {"type": "predicate", "where": {"any": [{"a": edges}, {"b": edges}]}}


def cuts() -> Iterator[dict[str, Any]]:
    """Random cuts of a graph."""
    rng = np.random.default_rng(8)
    while True:
        side = rng.random(GRAPH["nodes"]) < 0.5
        yield {"type": "cut", "left": np.flatnonzero(side).tolist(), "right": np.flatnonzero(~side).tolist()}


#: By what is asked: of which data set, the session, the questions, and how many of them at once.
PARTS: dict[str, tuple[str, dict[str, Any], Any, int, int]] = {
    "mw, conditions": (
        "t",
        {"mechanism": {"construction": "mw"}, "max_updates": 40, "max_queries": 4000, "epsilon": 0.3},
        lambda: questions(2000),
        4000,
        BATCH,
    ),
    "laplace, conditions": (
        "t",
        {"mechanism": {"construction": "laplace"}, "max_queries": 4000, "epsilon": 100},
        lambda: questions(2000),
        4000,
        BATCH,
    ),
    "evidence, conditions": (
        "t",
        {"mechanism": {"construction": "evidence"}, "epsilon": 100},
        lambda: questions(150),
        300,
        BATCH,
    ),
    "evidence, marginals and any": ("t", {"mechanism": {"construction": "evidence"}, "epsilon": 100}, groups, 30, 1),
    "graph, cuts": ("g", {"epsilon": 100, "max_queries": 1000}, cuts, 200, 1),
}


def played(folder: Path) -> dict[str, float]:
    """Answers a processor second of a server of the code in a folder, and of replays of its transcripts by it."""
    rates = {}
    rng = np.random.default_rng(6)
    upper = np.triu(rng.random((GRAPH["nodes"], GRAPH["nodes"])) < 0.05, 1)
    edges = "\n".join(f"{a},{b}" for a, b in np.argwhere(upper).tolist()).encode()
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as kept, curator(folder=folder) as server:
        admin = {"authorization": f"Bearer {ADMIN_KEY}"}
        with httpx.Client(base_url=server.url, headers=admin, timeout=300) as client:
            table = Path(kept) / "counts.npy"
            np.save(table, rng.poisson(40, (SIDE, SIDE)))
            for spec, name, data in ((SPEC, "counts.npy", table.read_bytes()), (GRAPH, "edges.csv", edges)):
                reply = client.post("/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": (name, data)})
                assert reply.is_success, reply.text
            for part, (dataset, words, source, number, batch) in PARTS.items():
                reply = client.post("/v1/sessions", json={"dataset": dataset, **words})
                assert reply.is_success, reply.text
                address, asked = f"/v1/sessions/{reply.json()['id']}", source()
                bodies = [[next(asked) for _ in range(batch)] for _ in range(number // batch)]
                started = processor_seconds(server.pid)
                for body in bodies:
                    if batch > 1:
                        reply = client.post(f"{address}/queries/batch", json={"queries": body})
                        assert all("sequence" in item for item in reply.raise_for_status().json()["answers"])
                    else:
                        reply = client.post(f"{address}/queries", json=body[0])
                        assert reply.is_success, reply.text
                rates[f"{part}: answers"] = number / (processor_seconds(server.pid) - started)
                path = Path(kept) / "transcript.ndjson"
                path.write_bytes(client.get(f"{address}/transcript").raise_for_status().content)
                command = [sys.executable, "-c", _REPLAY, str(path)]
                paths = os.environ | code_of(folder)
                replay = subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True, check=True)
                rates[f"{part}: replay"] = number / float(replay.stdout)
    return rates


def asked_by_turns(database: str, other: Path) -> Iterator[list[Any]]:
    """For each number of clients: answers a second of this code, and beside the other's and the POST that does nothing;
    processor time an answer, beside the other's.
    """
    with contextlib.ExitStack() as stack:
        running: dict[str, tuple[Server, Callable[[int], list[Script]]]] = {}
        for name, folder in (("here", ROOT), ("there", other)):
            url = stack.enter_context(postgres()) if database == "PostgreSQL" else None
            each = stack.enter_context(curator(url, folder=folder))
            running[name] = each, singles(each, SESSIONS)
        request = request_bytes("/v1/sessions/x/queries", json.dumps(predicates(5)(77)).encode(), ADMIN_KEY)
        noop = stack.enter_context(server([sys.executable, "-m", "benchmarks.service.noop", "{port}"]))
        running["noop"] = noop, lambda clients: [sending(lambda _: request) for _ in range(clients)]
        for clients in CLIENTS:
            rates: dict[str, list[float]] = defaultdict(list)
            used: dict[str, float] = defaultdict(float)
            done: dict[str, int] = defaultdict(int)
            for number in range(TURNS + 1):
                for name in [*running][:: 1 if number % 2 else -1]:
                    each, scripts = running[name]
                    before = processor_seconds(each.pid)
                    found = load(each.port, scripts(clients), SECONDS)
                    assert not found.errors
                    if number:  # the first turn warms up
                        rates[name].append(found.rate)
                        used[name] += processor_seconds(each.pid) - before
                        done[name] += found.requests
            took = {name: 1000 * used[name] / done[name] for name in used}
            ratios = np.array(rates["here"]) / np.array(rates["there"])
            yield [
                f"{database}, single answers",
                clients,
                float(np.median(rates["here"])),
                float(np.median(np.array(rates["here"]) / np.array(rates["noop"]))),
                *np.quantile(ratios, [0.5, 0.25, 0.75]).tolist(),
                took["here"],
                took["here"] / took["there"],
            ]


def main(commit: str, *, only_singles: bool) -> None:
    """Measure and write."""
    with tempfile.TemporaryDirectory(prefix="curator-beside-") as folder:
        other = Path(folder) / "code"
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "-q", "--detach", str(other), commit], check=True)
        named = subprocess.run([*git, "rev-parse", "--short", commit], check=True, capture_output=True, text=True)
        try:
            report(
                "beside_singles",
                f"Single answers, beside the code of {named.stdout.strip()}",
                [
                    "what",
                    "clients",
                    "answers a second",
                    "of no-op",
                    "of the other code's",
                    "first quartile",
                    "third quartile",
                    "processor ms an answer",
                    "of the other's",
                ],
                [row for database in ("SQLite", "PostgreSQL") for row in asked_by_turns(database, other)],
                turns=TURNS,
            )
            if not only_singles:
                compare(other, named.stdout.strip())
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(other)], check=True)


def compare(other: Path, named: str) -> None:
    """What is asked at once, and replays."""
    here: dict[str, list[float]] = defaultdict(list)
    there: dict[str, list[float]] = defaultdict(list)
    for number in range(ROUNDS):
        for code, found in [(other, there), (ROOT, here)][:: 1 if number % 2 else -1]:
            for part, rate in played(code).items():
                found[part].append(rate)
    rows = []
    for part, rates in here.items():
        ratios = np.array(rates) / np.array(there[part])
        ratio = float(np.median(rates) / np.median(there[part]))
        rows.append([part, float(np.median(rates)), ratio, float(ratios.min()), float(ratios.max())])
    report(
        "beside",
        f"Answers and replays a processor second, beside the code of {named}",
        ["what", "a processor second", "of the other code's", "least of a round", "most of a round"],
        rows,
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--singles", action="store_true", help="single answers alone")
    given = parser.parse_args()
    main(given.commit, only_singles=given.singles)
