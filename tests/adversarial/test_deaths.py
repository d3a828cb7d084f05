"""A hit that takes more memory than a miss ends the process when little is left, and what died is charged to nobody.

The noise is drawn, the update takes memory, the system kills the process before the commit: after the restart nothing
of the round is known. An analyst who leaves just enough memory for misses would be told of hits by deaths, free of
charge. So all that an update could take is taken before the noise.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.services.ballast import Ballast
from app.services.errors import Unavailable
from tests.integration.world import HIT, make_world

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


def attacks(tmp_path: Path, *modes: tuple[str, str]) -> list[dict[str, Any]]:
    """The same in processes that run beside each other."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.adversarial.test_deaths", str(tmp_path / "-".join(mode)), *mode],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        for mode in modes
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [json.loads(line) for line in told]


def test_a_hit_takes_no_more_than_a_miss(tmp_path: Path) -> None:
    """From the noise on. The third one is the planted bug, a ballast that holds nothing: the update shows."""
    hit, miss, planted = attacks(tmp_path, ("hit", "peak"), ("miss", "peak"), ("hit", "planted"))
    assert (hit["source"], miss["source"], planted["source"]) == ("measurement", "hypothesis", "measurement")
    assert hit["above"] <= miss["above"] + SLACK
    assert planted["above"] > miss["above"] + ARRAY / 2


def test_under_a_hard_limit_both_are_refused_or_both_answered(tmp_path: Path) -> None:
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
    sys.stdout.write(json.dumps(attack(*sys.argv[1:])))
