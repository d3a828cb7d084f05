"""Commands that are forked from one process, as tests start them, are what they would be from scratch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.kit.servers import is_running, shims
from tests.kit.world import eventually

pytestmark = pytest.mark.integration

#: Draws from whatever noise or keys may come from; the last one is known to be copied with a process.
DRAWING = """
import json, random, secrets
from decimal import Decimal
from fractions import Fraction
import numpy as np
from app.bootstrap.noise import SystemNoise
noise = SystemNoise()
print(json.dumps({
    "laplace": noise.laplace(2**30).take(4).tolist(),
    "gaussian": noise.gaussian(2**30).take(4).tolist(),
    "flips": np.asarray(noise.flips(Fraction(1, 4)).take(128)).tolist(),
    "choose": [noise.choose(np.zeros(1 << 10, np.int64), 1) for _ in range(16)],
    "poisson": [noise.poisson(Decimal(30), 1000).take() for _ in range(32)],
    "secrets": secrets.token_hex(16),
    "random": random.random(),
    "numpy": np.random.default_rng().random(),
    "of old": np.random.random(),
}))
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    shims(folder)
    return folder


def shell(commands: Path, folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_each_draws_noise_of_its_own(commands: Path, tmp_path: Path) -> None:
    """Servers are forked in the same way. Catches a generator in the memory of the process that they are forked from:
    two servers would add the same noise, and what tests find of them would not be so of others. That it would be seen
    is shown by numpy's old generator, which nothing uses, and which is copied.
    """
    (tmp_path / "drawing.py").write_text(DRAWING)
    drawn = shell(commands, tmp_path, "for n in 1 2 3; do python - < drawing.py; done")
    assert drawn.returncode == 0, drawn.stderr
    told = [json.loads(line) for line in drawn.stdout.splitlines()]
    assert len(told) == 3
    for source in told[0]:
        assert len({json.dumps(one[source]) for one in told}) == (1 if source == "of old" else 3), source


def test_a_shell_notices_no_difference(commands: Path, tmp_path: Path) -> None:
    """Catches a folder, a variable, an argument, a stream or an exit code that is not the command's own."""
    done = shell(
        commands,
        tmp_path,
        """
        told='import os, sys; print(sys.stdin.read().strip(), os.environ["WORD"], sys.argv[1])'
        echo in | WORD=told python -c "$told" 'a b' > out
        python -c 'import os, sys; print(os.getcwd()); print("aside", file=sys.stderr); sys.exit(7)'
        echo $?
        curator nothing-of-that-name 2> refused
        echo $?
        """,
    )
    assert (tmp_path / "out").read_text() == "in told a b\n"
    assert done.stdout.splitlines() == [str(tmp_path), "7", "2"]
    assert done.stderr == "aside\n"
    assert "nothing-of-that-name" in (tmp_path / "refused").read_text()


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_what_is_killed_ends(commands: Path, tmp_path: Path, number: str) -> None:
    """Catches a command that outlives its signal, and one whose death is taken for success."""
    done = shell(
        commands,
        tmp_path,
        f"""
        waiting='import os, time; print(os.getpid(), file=open("new", "w")); os.rename("new", "pid"); time.sleep(600)'
        python -c "$waiting" & shim=$!
        while [ ! -e pid ]; do sleep 0.01; done
        kill -{number} {"$shim" if number == "TERM" else "$(cat pid)"}
        wait $shim
        echo $?
        """,
    )
    assert done.stdout == "137\n", done.stderr
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not is_running(pid))
