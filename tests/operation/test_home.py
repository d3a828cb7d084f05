"""What the workers of a server are forked from: they share its memory and nothing that must differ between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.kit.servers import ROOT, Caller, Server, launching, request_under_way
from tests.kit.world import eventually

#: Prints what each of two processes draws that are forked as workers are: noise in units of its grid, a choice, bits.
#: At last from a generator that was there before.
DRAWS = """
import multiprocessing
from fractions import Fraction

import numpy as np

def drawn(told):
    import planted
    from app.bootstrap.noise import SystemNoise
    noise = SystemNoise()
    draws = [noise.gaussian(10**6).take(8), noise.laplace(10**6).take(8), noise.flips(Fraction(1, 4)).take(256)]
    draws.append(np.array([noise.choose(np.zeros(1000, dtype=np.int64), 1) for _ in range(8)]))
    told.put([draw.tolist() for draw in [*draws, planted.GENERATOR.integers(10**9, size=8)]])

if __name__ == "__main__":
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["app.bootstrap.home", "planted"])
    told = forked.Queue()
    for _ in range(2):
        forked.Process(target=drawn, args=(told,)).start()
    print([told.get(timeout=300), told.get(timeout=300)])
"""


def home(server: Server) -> psutil.Process:
    """What the workers of a server were forked from."""
    (found,) = {worker.ppid() for worker in server.workers()}
    return psutil.Process(found)


@pytest.mark.adversarial
def test_two_workers_draw_different_noise(tmp_path: Path) -> None:
    """Catches a generator that is seeded, or has noise ahead, when a worker is forked: two workers would add the same
    noise, and the difference of their answers would be that of private numbers.
    """
    script = tmp_path / "draws.py"
    script.write_text(DRAWS)
    (tmp_path / "planted.py").write_text("import numpy\nGENERATOR = numpy.random.default_rng()\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    arguments = [sys.executable, str(script)]
    printed = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    first, second = json.loads(printed)
    assert [kind == other for kind, other in zip(first, second, strict=True)] == [False] * 4 + [True]


@pytest.mark.integration
@pytest.mark.postgres
class TestAServerFromScratch:
    def test_it_forks_from_one_thread_that_has_imported_all(self, tmp_path: Path, postgres_url: str) -> None:
        """Catches a process with threads that is forked, whose locks may be held for ever in its children, and workers
        that import the program each for itself: most of their memory would be their own.
        """
        with launching(tmp_path / "data", postgres_url) as launcher:
            server = launcher.command(None, "--workers", "2").wait_until_ready()
            eventually(lambda: len(server.workers()) == 2)
            assert home(server).num_threads() == 1
            for worker in server.workers():
                held = worker.memory_full_info()
                assert held.uss < held.rss / 3

    def test_all_of_it_is_killed_but_the_supervisor(self, tmp_path: Path, postgres_url: str) -> None:
        """What workers are forked from is killed: they end, others come, and the server answers. Catches workers that
        go on unseen beside those that replace them, and a supervisor that forks no more.
        """
        with launching(tmp_path / "data", postgres_url) as launcher:
            server = launcher.command(None, "--workers", "2").wait_until_ready()
            eventually(lambda: len(server.workers()) == 2)
            before = server.workers()
            home(server).kill()
            eventually(lambda: not psutil.wait_procs(before, timeout=0.01)[1])
            eventually(lambda: len(server.workers()) == 2)
            server.wait_until_ready()
            assert Caller(server.url).get("/v1/datasets")["items"] == []

    def test_all_are_told_to_end(self, tmp_path: Path, postgres_url: str) -> None:
        """SIGTERM to the whole group, as a system may send it, while a worker has a request under way. Catches what
        workers are forked from that ends with the signal: the supervisor would take all workers for dead and end before
        them, and a container ends with its first process.
        """
        with launching(tmp_path / "data", postgres_url) as launcher:
            server = launcher.command(None, "--workers", "2").wait_until_ready()
            eventually(lambda: len(server.workers()) == 2)
            with request_under_way(server) as finish:
                os.killpg(server.pid, signal.SIGTERM)
                eventually(lambda: len(server.workers()) == 1)
                time.sleep(1)
                assert server.alive()
                assert finish() == 422
            assert server.wait_until_ended()
            assert server.child is not None
            assert server.child.returncode == 0
