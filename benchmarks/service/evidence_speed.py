"""How long answers from evidence take, beside those of a hypothesis, over HTTP.

Run `python -m benchmarks.service.evidence_speed` (about a minute, on a quiet machine). One real server, a table of
48,842 made-up records over 1.8 million cells (eight attributes whose values hang together), one client that asks one
question after the other. Fresh questions are counts under conditions on three attributes: most are estimated from a
local fit, some are measured. The same questions are asked of a session of `mw`, and the latest of both sessions again.
"""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np

from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client import Answer, Curator, Question
from curator_client.questions import question as asked_as

SIZES = {"a": 9, "b": 16, "c": 7, "d": 15, "e": 6, "f": 5, "g": 2, "h": 2}
RECORDS, QUESTIONS, AGAIN = 48_842, 400, 100


def records(rng: np.random.Generator) -> bytes:
    """A CSV of records whose attributes hang together."""
    latent, columns = rng.random(RECORDS), []
    for size in SIZES.values():
        near = np.clip(latent + rng.normal(0, 0.3, RECORDS), 0, 0.999)
        columns.append((np.where(rng.random(RECORDS) < 0.6, near, rng.random(RECORDS) ** 2) * size).astype(int))
    rows = [",".join(SIZES), *(",".join(map(str, row)) for row in np.stack(columns, axis=1).tolist())]
    return "\n".join(rows).encode()


def question(rng: np.random.Generator) -> Question[Answer]:
    """A count under random conditions on three attributes."""
    where = {}
    for name in rng.choice(list(SIZES), 3, replace=False).tolist():
        where[name] = {"in": np.flatnonzero(rng.random(SIZES[name]) < 0.5).tolist() or [0]}
    return asked_as({"type": "predicate", "where": where})


def main() -> None:
    """Measure and write."""
    rng = np.random.default_rng(1)
    taken: dict[str, list[float]] = defaultdict(list)
    with curator() as server, Curator(server.url, ADMIN_KEY) as client:
        attributes = [{"name": name, "size": size} for name, size in SIZES.items()]
        spec = {"name": "t", "kind": "table", "attributes": attributes, "records_public": True}
        client.register(spec | {"budget": {"epsilon": 2.0, "delta": 1e-9}}, records(rng), filename="t.csv")
        evidence = client.session("t", epsilon=1.0, max_queries=10_000)
        other = client.session("t", mechanism={"construction": "mw"}, epsilon=1.0, max_queries=10_000, max_updates=100)
        questions = [question(rng) for _ in range(QUESTIONS)]
        for name, session in (("evidence", evidence), ("mw", other)):
            for asked in [*questions, *questions[-AGAIN:]]:
                started = time.perf_counter()
                source = session.ask(asked).source
                taken[f"{name}: {source}"].append(time.perf_counter() - started)
        for number in range(AGAIN + 1):
            started = time.perf_counter()
            evidence.group_by("a", "b")
            taken["evidence: marginal of 144 cells, " + ("again" if number else "first")].append(
                time.perf_counter() - started
            )
    base = float(np.median(taken["mw: hypothesis"]))
    rows = [
        (
            name,
            len(times),
            1e3 * float(np.median(times)),
            1e3 * float(np.quantile(times, 0.95)),
            np.median(times) / base,
        )
        for name, times in sorted(taken.items())
    ]
    report(
        "evidence_speed",
        "Answers over HTTP, one after the other",
        ("answer", "number", "median (ms)", "95th percentile (ms)", "median, of a hypothesis' answer"),
        [(*row[:-1], float(row[-1])) for row in rows],
    )


if __name__ == "__main__":
    main()
