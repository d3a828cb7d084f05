"""A hit that takes more memory than a miss ends the process when little is left, and what died is charged to nobody.

The noise is drawn, the update takes memory, the system kills the process before the commit: after the restart nothing
of the round is known. An analyst who leaves just enough memory for misses would be told of hits by deaths, free of
charge. So all that an update could take is taken before the noise.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pytest

from app.bootstrap import reader_process
from app.services.ballast import Ballast
from app.services.errors import Unavailable
from tests.kit.processes import end_with_tests
from tests.kit.world import HIT, SPEC, make_world, open_session

pytestmark = pytest.mark.adversarial

ROOT = Path(__file__).resolve().parents[2]
#: The universe: 4.5 MiB an array, of which the hypothesis has two and an update takes one or two more.
SIDE = 768
ARRAY = 8 * SIDE * SIDE
#: What allocators and threads make of the same work, from one run to the next.
SLACK = 2 << 20
LIMITS_MB = [*range(3, 27, 3)]


def figure(name: str) -> int:
    """A figure of this process' memory, in bytes, as the system has it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) << 10


#: Of sessions that answer from evidence: how they are opened, and what is asked before and then.
_THREE = [{"name": name, "size": 10} for name in "abc"]
_NUMBERS = [{"name": "a", "size": 8}, {"name": "x", "lower": 0, "upper": 4000, "grid": 1}]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = {
    "contract": (
        {"kind": "table", "attributes": _THREE},
        {"contract": True, "max_queries": 50},
        [{"type": "marginal", "attributes": list(names)} for names in ("ab", "bc", "ac", "abc")],
    ),
    "evidence": (
        {"kind": "table", "attributes": _THREE},
        {"max_queries": 4},
        [{"type": "marginal", "attributes": list(names)} for names in ("ab", "bc", "ac", "abc")],
    ),
    "statistics": (
        {"kind": "table", "attributes": _NUMBERS},
        {"max_queries": 4},
        [
            {"type": "mean", "of": "x", "group_by": ["a"]},
            {"type": "variance", "of": "x"},
            {"type": "quantile", "of": "x", "q": [0.25, 0.5], "where": {"a": {"lt": 4}}},
            {"type": "quantile", "of": "x", "q": [0.1, 0.5, 0.9]},
        ],
    ),
    "graph": (
        {"kind": "graph", "nodes": 20_000, "directed": True},
        {"max_queries": 500},
        [{"type": "cut", "left": list(range(k, 20_000, 3)), "right": list(range(0, 20_000, k + 2))} for k in range(4)],
    ),
}


class Ripples:
    """Noise of a told law that differs from cell to cell, so that a fit has something to do."""

    def __init__(self, count: int) -> None:
        self._values = np.sin(np.arange(count) * 1.7) * 2

    def __mul__(self, scale: Any) -> Ripples:
        self._values = self._values * float(scale)
        return self

    def __round__(self) -> Any:
        return np.rint(self._values).astype(np.int64)


def evidence_attack(folder: str, kind: str, outcome: str, mode: str) -> dict[str, Any]:
    """What a question of a session on evidence takes from its noise on, in a process of its own.

    A hit of a test is told by its noise; elsewhere every round measures, and the noise is large or none.
    """
    world = make_world(Path(folder), memory_limit=1 << 30)
    declared, asked, questions = KINDS[kind]
    rng = np.random.default_rng(5)
    if kind in ("contract", "evidence"):
        # Alike in all cells: what is expected is the truth, and noise alone decides.
        sink = io.BytesIO()
        np.save(sink, np.full((10, 10, 10), 100))
        name, content = "d.npy", sink.getvalue()
    elif kind == "graph":
        cells = np.unique(rng.integers(0, 20_000**2, 50_000))
        rows = [f"{row},{column}" for row, column in zip(*np.divmod(cells, 20_000), strict=True) if row != column]
    else:
        sizes = [a.get("size", 4001) for a in declared["attributes"]]
        names = ",".join(a["name"] for a in declared["attributes"])
        rows = [names, *(",".join(map(str, row)) for row in rng.integers(0, sizes, (5000, len(sizes))).tolist())]
    if kind in ("graph", "statistics"):
        name, content = "d.csv", "\n".join(rows).encode()
    spec = {**SPEC, "name": "d", **declared}
    if kind == "graph":
        del spec["attributes"]
    world.register_file(spec, name, content)
    ann = world.analyst("ann")
    changes = {"mechanism": {"construction": "evidence"}, "epsilon": 0.9, **asked}
    prepared = open_session(world.built.services, ann, {"dataset": "d", **changes}, None)
    id = str(json.loads(prepared)["id"])
    if mode == "planted":
        Ballast.hold = lambda self, nbytes: None  # type: ignore[method-assign]
    noise = world.noise
    for question in questions[:-1]:
        noise.script.append(HIT if kind == "contract" else 0)
        world.ask(ann, id, question)
        noise.script.clear()
    start = [0]

    def mark() -> None:
        if not start[0]:
            start[0] = figure("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")

    noise.before = mark
    if kind == "contract":
        noise.script.extend([HIT if outcome == "hit" else 0, cast(Any, Ripples(1000))])
    else:
        noise.script.append(3.0 if outcome == "large" else 0)
    source = world.ask(ann, id, questions[-1])["source"]
    above = figure("VmHWM") - start[0]
    world.stop()
    return {"source": source, "above": above}


def attack(folder: str, outcome: str, mode: str) -> dict[str, Any]:
    """Play rounds that end as told, in a process of its own; what they took, or what became of them."""
    world = make_world(Path(folder), memory_limit=1 << 30)
    attributes = [{"name": name, "size": SIDE} for name in "ab"]
    world.register("d", np.ones((SIDE, SIDE), np.int64), attributes=attributes)
    ann = world.analyst("ann")
    mechanism = {"construction": "md", "potential": "lp", "ball_p": "none"}
    id = world.open(ann, "d", mechanism=mechanism, max_updates=20, epsilon=0.5)
    noise, draw = world.noise, HIT if outcome == "hit" else 0
    weights = np.linspace(0.5, 1.0, SIDE)

    def asked(number: int) -> dict[str, Any]:
        # A balance of the two halves: the zero hypothesis is right about it, so noise alone decides.
        ramp = weights * (1 + number / 100) / 2
        return {"type": "product", "weights": {"a": ramp.tolist(), "b": ([1.0] * (SIDE // 2) + [-1.0] * (SIDE // 2))}}

    if mode == "planted":
        Ballast.hold = lambda self, nbytes: None  # type: ignore[method-assign]
    # The first answer brings everything into memory that any round needs, but for what is held ready for updates.
    world.ask(ann, id, {**asked(0), "unverified": True})
    found: dict[str, Any] = {}
    if mode == "limit":
        found["rounds"] = []
        for number, extra in enumerate(LIMITS_MB, 1):
            noise.script.clear()
            noise.script.append(draw)
            drawn, most = noise.drawn, resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (figure("VmSize") + (extra << 20), most))
            try:
                told = world.ask(ann, id, asked(number))["source"]
            except Unavailable:
                told = "refused" if noise.drawn == drawn else "died"
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            found["rounds"].append(told)
    else:
        start = [0]

        def mark() -> None:
            start[0] = figure("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew

        world.ask(ann, id, asked(0))
        noise.before = mark
        noise.script.append(draw)
        found["source"] = world.ask(ann, id, asked(1))["source"]
        found["above"] = figure("VmHWM") - start[0]
    found["entries"] = world.built.services.sessions.get(ann, id)["sequence"]
    world.stop()
    return found


Attacks = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def attacks() -> Iterator[Attacks]:
    """attacks(folder, *modes): each in a process of its own, beside each other. They are forked from one that has done
    nothing but import the program, which takes longer than they do.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.answering.test_deaths"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_tests,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    orders, replies = process.stdin, process.stdout

    def attacks(folder: Path, *modes: tuple[str, ...]) -> list[dict[str, Any]]:
        orders.write(json.dumps([[str(folder / "-".join(mode)), *mode] for mode in modes]) + "\n")
        orders.flush()
        told: list[dict[str, Any]] = json.loads(replies.readline())
        return told

    yield attacks
    process.kill()
    process.communicate()


def begun(*words: str) -> IO[str]:
    """An attack in a process of its own, and what it will tell."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        own = evidence_attack if words[1] in KINDS else attack
        try:
            os.write(writing, json.dumps(own(*words)).encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    return os.fdopen(reading)


def test_a_hit_takes_no_more_than_a_miss(tmp_path: Path, attacks: Attacks) -> None:
    """From the noise on. The third one is the planted bug, a ballast that holds nothing: the update shows."""
    hit, miss, planted = attacks(tmp_path, ("hit", "peak"), ("miss", "peak"), ("hit", "planted"))
    assert (hit["source"], miss["source"], planted["source"]) == ("measurement", "hypothesis", "measurement")
    assert hit["above"] <= miss["above"] + SLACK
    assert planted["above"] > miss["above"] + ARRAY / 2


def test_a_contract_s_hit_takes_no_more_than_its_miss(tmp_path: Path, attacks: Attacks) -> None:
    """The fit that a hit makes, with the measurement among what it fits, is held ready with the rest. The third one is
    the planted bug: the fit shows."""
    modes = (("contract", "hit", "peak"), ("contract", "miss", "peak"), ("contract", "hit", "planted"))
    hit, miss, planted = attacks(tmp_path, *modes)
    assert (hit["source"], miss["source"], planted["source"]) == ("measurement", "estimate", "measurement")
    assert hit["above"] <= miss["above"] + SLACK
    assert planted["above"] > miss["above"] + 2 * SLACK


@pytest.mark.parametrize("kind", ["evidence", "statistics", "graph"])
def test_what_was_drawn_is_not_told_by_memory(tmp_path: Path, attacks: Attacks, kind: str) -> None:
    """Such sessions test nothing: whether they measure is public. Would catch noise whose size decides how much is
    made of it, beyond what is held ready."""
    large, none = attacks(tmp_path, (kind, "large", "peak"), (kind, "none", "peak"))
    assert (large["source"], none["source"]) == ("measurement", "measurement")
    assert abs(large["above"] - none["above"]) <= SLACK


def test_under_a_hard_limit_both_are_refused_or_both_answered(tmp_path: Path, attacks: Attacks) -> None:
    """The system gives a little more memory each time. Catches a round that dies after its noise, and an outcome that
    decides whether there is enough."""
    hit, miss = attacks(tmp_path, ("hit", "limit"), ("miss", "limit"))
    assert set(hit["rounds"]) == {"refused", "measurement"}
    assert set(miss["rounds"]) == {"refused", "hypothesis"}
    refused = [found["rounds"].count("refused") for found in (hit, miss)]
    assert abs(refused[0] - refused[1]) <= 1
    for found, answered in zip((hit, miss), refused, strict=True):
        assert found["entries"] == 1 + len(LIMITS_MB) - answered


def test_what_cannot_be_had_is_refused() -> None:
    """Catches memory that is promised and not there, and a ballast that is lost count of."""
    ballast = Ballast()
    ballast.hold(3 << 20)
    assert ballast.nbytes == 3 << 20
    ballast.hold(1 << 20)
    assert ballast.nbytes == 3 << 20
    with pytest.raises(Unavailable, match="nothing was asked"):
        ballast.hold(1 << 60)
    assert ballast.nbytes == 0
    before = figure("VmRSS")
    ballast.hold(32 << 20)
    assert figure("VmRSS") - before > 30 << 20
    ballast.keep(32 << 20)
    assert ballast.nbytes == 32 << 20
    ballast.keep(5 << 20)
    assert ballast.nbytes == 0
    assert figure("VmRSS") - before < 2 << 20


if __name__ == "__main__":
    # All that are forked here ask this one to read their files: each would begin one of its own, and import it anew.
    reader_process._NURSERY.begin().close()
    for line in sys.stdin:
        told = [begun(*words) for words in json.loads(line)]
        print(json.dumps([json.load(each) for each in told]), flush=True)  # noqa: T201
