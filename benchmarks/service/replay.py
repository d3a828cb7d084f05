"""Replay of transcripts: answers a second beside the time in which a server gave them, and memory by their number.

Run `python -m benchmarks.service.replay` (about two minutes and a half), or `python -m benchmarks.service.replay
--long` (about a quarter of an hour: transcripts of 10^6 answers, too).

- replay_speed: a real server answers batches of one session for each of a few mechanisms over 4,096 cells, half of
  the questions asked for the second time; its transcript is then replayed. Seconds of both, on one processor each.
- replay_memory: transcripts of one session over 4,096 cells (`mw`), made in this process: mostly cached answers, and
  all of them first ones. Each is replayed in a process of its own; its peak of resident memory, and what that is
  beyond a transcript of 100 answers.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.audit import writing
from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.mechanisms.round import Hit, play
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.spaces.queries.registry import parse_query
from app.verifying.transcript import replay_file
from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client.proofs import records

SIDE, BATCH, ANSWERS = 64, 200, 4000
SPEC: dict[str, Any] = {
    "name": "t",
    "kind": "table",
    "attributes": [{"name": "a", "size": SIDE}, {"name": "b", "size": SIDE}],
    "records_public": True,
    "budget": {"epsilon": 1000.0, "delta": 1e-6},
}
AT = "2026-01-01T00:00:00Z"
_MEASURE = """
import json, resource, sys
from pathlib import Path
from app.verifying.transcript import replay_file
def told(field):
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) * 1024
if room := int(sys.argv[2]):
    limit = told("VmData") + room
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
verdict = replay_file(Path(sys.argv[1]))
found = {"ok": verdict.ok, "problem": verdict.problem, "summary": verdict.summary, "peak": told("VmHWM")}
print(json.dumps(found))
"""


def questions(distinct: int) -> Iterator[dict[str, Any]]:
    """So many rectangles of the table, each another one, again and again."""
    spans = [[low, high] for low in range(SIDE) for high in range(low, SIDE)]
    while True:
        for number in range(distinct):
            first, second = divmod(number * 7919 % len(spans) ** 2, len(spans))
            yield {"type": "predicate", "where": {"a": {"between": spans[first]}, "b": {"between": spans[second]}}}


def make_transcript(path: Path, answers: int, distinct: int) -> None:
    """Write the transcript of an honest session of `mw`, line by line: hits, misses and cached answers."""
    rng = np.random.default_rng(5)
    counts = rng.poisson(40, (SIDE, SIDE)).astype(np.int32)
    public = PublicDataset(parse_spec(SPEC), float(counts.sum()))
    private = public.space.tensor(counts)
    words = {"dataset": "t", "mechanism": {"construction": "mw"}, "epsilon": 0.3, "max_queries": distinct}
    request = parse_request(words | {"max_updates": 40})
    plan = make_plan(public, request)
    assert isinstance(plan, Plan)
    opening = Opening(public, request, plan)
    session, space = Session(opening), public.space
    header = writing.header(session="b0b0", opening=opening.document(), opened_at=AT)
    head, learnt = records.sha256(header), writing.HypothesisDigest(opening.document())
    with path.open("wb") as file:
        file.write(header + b"\n")
        for _, asked in zip(range(answers), questions(distinct), strict=False):
            query = parse_query(asked).compiled(space)
            due = session.consider(query)
            if isinstance(due, Answer):
                answer = due
            else:
                assert isinstance(due, Test)
                exact = space.to_answer_grid(int(query.exact(private)), query)
                drawn = round(rng.laplace(0, float(plan.noise_scale_units)))
                outcome = play(int(due.hypothesis[0]), exact, drawn, plan.threshold_units)
                hit = isinstance(outcome, Hit)
                units = np.array([outcome.value], np.int64)
                answer = Answer(units, "measurement" if hit else "hypothesis", due.error_bound)
            session.record(query, answer)
            sealed = writing.answer_entry(
                sequence=session.sequence,
                query=query.canonical_bytes,
                values=session.values(query, answer.units),
                source=answer.source,
                error_bound=answer.error_bound,
                unverified=False,
                recorded_at=AT,
                previous_hash=head,
                asked=writing.words(asked),
            )
            head = sealed.entry_hash
            if answer.source == "measurement":
                learnt.take(sealed.line)
            file.write(sealed.line + b"\n")
        trailer = writing.trailer(
            entries=session.sequence,
            head_hash=head,
            hypothesis_digest=learnt.hexdigest(),
            updates=session.updates_used,
            status="open",
        )
        file.write(trailer + b"\n")


def replayed(path: Path, room: int = 0) -> dict[str, Any]:
    """What a replay in a process of its own found, and its peak of resident memory in bytes; with ``room`` it may have
    so many bytes beyond what the program itself takes."""
    command = [sys.executable, "-c", _MEASURE, str(path), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"ok": False, "problem": done.stderr[-2000:]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory(sizes: list[int]) -> None:
    """Peaks of memory by the number of answers."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        path = Path(folder) / "t.ndjson"
        make_transcript(path, 100, 100)
        least = replayed(path)["peak"]
        for answers in sizes:
            for what, distinct in (("mostly cached", 2000), ("all first", answers)):
                make_transcript(path, answers, distinct)
                started = time.perf_counter()
                found = replayed(path)
                took = time.perf_counter() - started
                assert found["ok"], found["problem"]
                more, size = found["peak"] - least, path.stat().st_size
                rows.append([f"{answers:,}", what, size / 2**20, answers / took, found["peak"] / 2**20, more / 2**20])
    report(
        "replay_memory",
        "Replay of transcripts of one session (mw, 4,096 cells)",
        ["answers", "which", "MiB of file", "answers/s", "peak MiB", "MiB beyond that of 100 answers"],
        rows,
        peak_of_100_answers_mib=least / 2**20,
    )


def speed() -> None:
    """A server's time to answer, and a replay's."""
    mechanisms: dict[str, dict[str, Any]] = {
        "mw": {"mechanism": {"construction": "mw"}, "max_updates": 40, "max_queries": ANSWERS, "epsilon": 0.3},
        "gaussian": {"mechanism": {"construction": "gaussian"}, "max_queries": ANSWERS, "epsilon": 100},
        "laplace": {"mechanism": {"construction": "laplace"}, "max_queries": ANSWERS, "epsilon": 100},
        "evidence": {"mechanism": {"construction": "evidence"}, "epsilon": 100},
    }
    rows = []
    with curator() as server, tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        admin = {"authorization": f"Bearer {ADMIN_KEY}"}
        with httpx.Client(base_url=server.url, headers=admin, timeout=300) as client:
            sink = io.BytesIO()
            np.save(sink, np.random.default_rng(6).poisson(40, (SIDE, SIDE)))
            files = {"data": ("counts.npy", sink.getvalue())}
            client.post("/v1/datasets", data={"spec": json.dumps(SPEC)}, files=files).raise_for_status()
            for name, words in mechanisms.items():
                number = ANSWERS if name != "evidence" else ANSWERS // 10
                reply = client.post("/v1/sessions", json={"dataset": "t", **words})
                reply.raise_for_status()
                id, asked = reply.json()["id"], questions(number // 2)
                started = time.perf_counter()
                for _ in range(number // BATCH):
                    batch = [question for question, _ in zip(asked, range(BATCH), strict=False)]
                    reply = client.post(f"/v1/sessions/{id}/queries/batch", json={"queries": batch})
                    assert all("sequence" in item for item in reply.raise_for_status().json()["answers"]), reply.text
                served = time.perf_counter() - started
                path = Path(folder) / f"{name}.ndjson"
                path.write_bytes(client.get(f"/v1/sessions/{id}/transcript").raise_for_status().content)
                started = time.perf_counter()
                verdict = replay_file(path)
                took = time.perf_counter() - started
                assert verdict.ok, verdict.problem
                given, updates = verdict.summary["entries"], verdict.summary["updates"]
                rows.append([name, f"{given:,}", updates, given / served, given / took, took / served])
    report(
        "replay_speed",
        f"Replay beside the server that answered, in batches of {BATCH:,} (4,096 cells)",
        ["mechanism", "answers", "measured", "server answers/s", "replay answers/s", "replay / server"],
        rows,
    )


if __name__ == "__main__":
    speed()
    memory([100_000, 1_000_000] if "--long" in sys.argv[1:] else [100_000])
