"""Without the defence a file of a few bytes would take all memory, or minutes, of whoever audits it.

A process of its own replays each file under a hard limit on its address space, a little above what it may take. It must
end with a verdict that says what is too much, and must not have come near the limit.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785

from app.audit import replay as audit
from app.audit import writing
from app.audit.replay import replay
from app.curator import advice
from app.curator.dataset import PublicDataset
from app.curator.opening import Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from tests.audit.test_replay import story
from tests.audit.transcripts import play_session
from tests.kit.strategies import BUDGET, Words, universe

pytestmark = pytest.mark.adversarial

MIB = 2**20
LIMIT = 64 * MIB
#: Room for what is none of the file's: code that is loaded late, buffers of threads, an allocator's slack.
SPARE = 256 * MIB

CHILD = """
import json, resource, sys
from pathlib import Path
from app.audit.replay import replay
from app.verifying.transcript import replay_file

limit, spare, warm, *paths = sys.argv[1:]
replay(Path(warm).read_bytes().splitlines())  # all code is loaded

def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = resident()
most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + int(limit) + int(spare)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for path in paths:
    verdict = replay_file(Path(path), memory_limit=int(limit))
    print(json.dumps([verdict.ok, str(verdict.problem), resident() - before]), flush=True)
"""
#: Whether a file follows, the problem, and the most memory that the process has taken since it began.
Told = tuple[bool, str, int]


def confined(folder: Path, files: list[list[bytes]], limit: int = LIMIT) -> list[Told]:
    """What a confined process says of files, one after the other."""
    for number, lines in enumerate(files):
        (folder / f"{number}.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    return asked(folder, [folder / f"{number}.ndjson" for number in range(len(files))], limit)


def asked(folder: Path, paths: list[Path], limit: int) -> list[Told]:
    (folder / "warm").write_bytes(story().content)
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(limit), str(SPARE), str(folder / "warm"), *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [tuple(json.loads(line)) for line in ran.stdout.splitlines()]


def header(domain: Words, mechanism: Words, **more: Any) -> bytes:
    """The honest header of a session over this domain, however large: plans take no arrays."""
    public = more.pop("records_public", True)
    dataset = PublicDataset(parse_spec({"name": "t", "budget": BUDGET, "records_public": public} | domain), 1e6)
    asked = {"dataset": "t", "mechanism": mechanism, "epsilon": 0.5, "max_queries": 100, "max_updates": 10} | more
    request = parse_request(asked)
    return writing.header(
        session="a1b2",
        opening=Opening(dataset, request, make_plan(dataset, request)).document(),
        opened_at="2026-01-01T00:00:00Z",
    )


def cells(*sizes: int) -> Words:
    return {"kind": "table", "attributes": [{"name": f"x{i}", "size": n} for i, n in enumerate(sizes)]}


UNIVERSES: dict[str, Callable[[], bytes]] = {
    "2^40 cells": lambda: header(cells(2**20, 2**20), {"construction": "mw"}),
    "one long axis": lambda: header(cells(2**31 - 1), {"construction": "mw"}),
    "a graph of 2^40 pairs": lambda: header(
        {"kind": "bipartite", "left": 2**20, "right": 2**20}, {"construction": "fk"}
    ),
    "singular values": lambda: header(
        {"kind": "bipartite", "left": 2**16, "right": 2**16},
        {"construction": "md", "potential": "schatten", "ball_p": "none"},
    ),
    "a power": lambda: header(cells(2**15, 2**15), {"construction": "md", "potential": "lp", "ball_p": "none"}),
    "a little too much": lambda: header(cells(LIMIT // 32 + 1), {"construction": "mw"}),
}


def beyond(sizes: list[int]) -> bytes:
    """A header that says more cells than can be counted."""
    document = json.loads(story().lines[0])
    document["dataset"] |= {"shape": sizes, "cells": math.prod(sizes)}
    document["dataset"]["domain"]["attributes"] = [{"name": f"x{i}", "size": n} for i, n in enumerate(sizes)]
    return rfc8785.dumps(json.loads(json.dumps(document).replace(str(document["dataset"]["cells"]), "1")))


def test_universes_beyond_memory(tmp_path: Path) -> None:
    """Would catch an array made before it is counted, and a count that forgets what a construction holds."""
    told = confined(tmp_path, [[make()] for make in UNIVERSES.values()])
    for name, (ok, problem, grown) in zip(UNIVERSES, told, strict=True):
        assert (ok, "more memory than the limit" in problem) == (False, True), (name, problem)
        assert grown < 32 * MIB, (name, grown)


def test_a_universe_beyond_numbers() -> None:
    """Universes whose number of cells is no 64-bit integer, and no float64 either."""
    for sizes in ([2**20] * 3, [2**31 - 1] * 32, [2**31 - 1] * 60):
        verdict = replay([beyond(sizes)])
        assert not verdict.ok
        assert "more than can be held" in str(verdict.problem), verdict


def with_field(path: tuple[str, ...], text: str) -> bytes:
    """The story's header with a field of any JSON; canonical if the text is."""
    document = json.loads(story().lines[0])
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = "@"
    return rfc8785.dumps(document).replace(b'"@"', text.encode())


def listed(item: str, size: int) -> str:
    return "[" + ",".join([item] * (size // (len(item) + 1))) + "]"


def entry(query: str) -> bytes:
    previous = hashlib.sha256(story().lines[0]).hexdigest()
    text = '{"entry_hash":"","error_bound":1,"previous_hash":"%s","query":%s,"record":"answer","recorded_at":"",'
    return (text % (previous, query) + '"sequence":1,"source":"hypothesis","value":1}').encode()


ATTRIBUTES = ("dataset", "domain", "attributes")
#: A line may be as long as a part of the limit: of a lower one all is as much shorter.
LIMIT_OF_LINES = LIMIT // 2
SHORT = LIMIT_OF_LINES // 64 - 4096
LINES: dict[str, Callable[[], list[bytes]]] = {
    "small lists": lambda: [with_field(("session",), listed("[]", SHORT))],
    "small objects": lambda: [with_field(("session",), listed('{"":0}', SHORT))],
    "wrong values": lambda: [with_field(ATTRIBUTES, '[{"name":"a","values":' + listed("[]", SHORT) + "}]")],
    "wrong attributes": lambda: [with_field(ATTRIBUTES, listed("0", SHORT))],
    "unknown fields": lambda: [
        with_field(("mechanism",), "{" + ",".join(f'"{i:08x}":0' for i in range(SHORT // 14)) + "}")
    ],
    "facts": lambda: [
        with_field(
            ("dataset", "bought"),
            "{" + ",".join(f'"{i:08x}":{{"noise_scale":1,"value":1}}' for i in range(SHORT // 40)) + "}",
        )
    ],
    "depth": lambda: [with_field(("plan",), "[" * (SHORT // 2) + "]" * (SHORT // 2))],
    "a long number": lambda: [with_field(("dataset", "records"), "9" * SHORT)],
    "many cells": lambda: [
        story().lines[0],
        entry('{"bits":20,"indices":' + listed("1", SHORT) + ',"type":"sparse","weights":[]}'),
    ],
    "many axes": lambda: [
        story().lines[0],
        entry('{"axes":' + listed('[0,{"range":[0,3]}]', SHORT) + ',"type":"product"}'),
    ],
    "a wide character": lambda: [story().lines[0], entry('"' + "a" * (SHORT - 500) + '\U0001f600"')],
}


def test_lines_that_grow_when_they_are_read(tmp_path: Path) -> None:
    """The longest line there may be, of what takes most memory for its length. Would catch a longest line that is too
    long, and an error that lists all that is wrong."""
    told = confined(tmp_path, [make() for make in LINES.values()], LIMIT_OF_LINES)
    for name, (ok, problem, grown) in zip(LINES, told, strict=True):
        assert not ok, name
        assert "Memory" not in problem, (name, problem)
        assert grown < LIMIT_OF_LINES, (name, grown)


def test_lines_without_an_end(tmp_path: Path) -> None:
    """Eight gigabytes (that take no room on a disk) in the place of the header, or of an entry."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, first in zip(paths, (b"", story().lines[0] + b"\n"), strict=True):
        with path.open("wb") as file:
            file.write(first)
            file.truncate(8 * 2**30)
    for ok, problem, grown in asked(tmp_path, paths, LIMIT):
        assert (ok, "a line of more than" in problem) == (False, True), problem
        assert grown < 32 * MIB, grown


def many_weights(count: int, side: int) -> list[bytes]:
    """An honest session of nothing but unverified questions with dense weights of their own, each of which is kept."""
    u = universe({"name": "g", "kind": "bipartite", "left": side, "right": side, "budget": BUDGET})
    rng = np.random.default_rng(1)
    asked: list[Words | str] = [
        {"type": "dense", "weights": rng.uniform(-1, 1, side * side).round(3).tolist(), "unverified": True}
        for _ in range(count)
    ]
    return play_session(u, u.array({}), asked, mechanism={"construction": "mw"}, max_updates=4).lines


def test_weights_that_are_kept_are_counted(tmp_path: Path) -> None:
    """A quarter of a megabyte each: as many as fit, and no more. Would catch memory that grows with the file."""
    lines = many_weights(40, 256)
    ((ok, problem, grown),) = confined(tmp_path, [lines], limit=32 * MIB)
    assert ok, problem
    assert grown < 32 * MIB
    ((ok, problem, grown),) = confined(tmp_path, [lines], limit=8 * MIB)
    assert (ok, "more memory than the limit" in problem) == (False, True), problem
    assert grown < 8 * MIB


@pytest.mark.parametrize(
    ("side", "dense", "mechanism"),
    [
        (400, False, {"construction": "mw"}),
        (300, True, {"construction": "mw"}),
        (300, True, {"construction": "mw", "step": "refit"}),
        (300, True, {"construction": "fk", "step": "refit"}),
        (100, True, {"construction": "md", "potential": "schatten", "ball_p": "none"}),
        (400, False, {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": "none"}),
        (300, True, {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": "none", "step": "refit"}),
    ],
)
def test_honest_sessions_stay_below_what_was_counted(
    side: int, dense: bool, mechanism: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are asked and learn, with dense weights and with others. Would catch a count that an honest hypothesis
    passes, so that a limit is none."""
    rng = np.random.default_rng(3)
    budget = {"epsilon": 100.0, "delta": 1e-6}
    u = universe({"name": "g", "kind": "bipartite", "left": side, "right": side, "budget": budget})
    questions: list[Words | str] = []
    for _ in range(3):
        if dense:
            questions.append({"type": "dense", "weights": rng.uniform(-1, 1, side * side).round(3).tolist()})
        questions.append({"type": "rank_one", "left": rng.random(side).tolist(), "right": rng.random(side).tolist()})
        questions.append({"type": "cut", "left": rng.permutation(side)[: side // 2].tolist(), "right": "all"})
    x = (rng.random((side, side)) < 0.5).astype(np.int64)

    def far(_: np.random.Generator, scale: float) -> int:
        return int(30 * scale)

    played = play_session(u, x, questions, mechanism=mechanism, epsilon=100.0, max_updates=6, noise=far)
    assert played.session.updates_used >= 3
    counted = [0]
    honest = audit.Replaying._afford

    def counting(self: Any, more: int, sequence: int | None) -> None:
        counted.append(self.work + self.held + more)
        honest(self, more, sequence)

    monkeypatch.setattr(audit.Replaying, "_afford", counting)
    tracemalloc.start()
    try:
        assert replay(played.lines).ok
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < max(counted) + MIB / 2, (most, max(counted))


# ------------------------------------------------------------------------------------------------ time


def test_no_advice_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An infeasible plan in a header is refused as it is. Would catch a search for changes that would do, which runs
    the program of the exact calibration again and again."""
    tried: list[object] = []
    monkeypatch.setattr(advice, "guaranteed_changes", lambda *args, **more: tried.append(args) or {})
    monkeypatch.setattr(advice, "smaller_sets", lambda *args, **more: tried.append(args) or {})

    def refused(**changes: Any) -> str:
        document = json.loads(story().lines[0])
        document["mechanism"] |= changes
        verdict = replay([rfc8785.dumps(document)])
        assert not verdict.ok
        return str(verdict.problem)

    assert "no number of updates" in refused(max_updates=None, epsilon=0.001)
    assert "would have 2^" in refused(construction="median", epsilon=0.001, max_updates=1)
    assert "whole epsilon" in refused(construction="median", calibration="exact", max_updates=1)
    assert "goes to 2,000" in refused(calibration="exact", epsilon=1, max_updates=10**7)
    assert not tried
