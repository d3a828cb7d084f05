"""What the README tells a newcomer to type works as it stands there, from an empty folder and in one terminal."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import free_port
from tests.kit.patience import patience
from tests.kit.servers import shims

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: An answer with its standard error, as `1,234 ± 56`.
_ANSWER = re.compile(r"(?<![\d,.])[\d,.]+ ± [\d,.]+")


def typed(readme: str) -> str:
    """All that the README says to type, in order; Python goes to the interpreter."""
    return "\n".join(
        code if language == "bash" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
        for language, code in _BLOCK.findall(readme)
    )


def test_the_first_session_runs_as_it_stands(tmp_path: Path) -> None:
    """Catches a command that was renamed, an id that a reader would have to fill in, a server that is not awaited or
    goes on running, and answers without an error. Only the port is another: somebody may listen on that one."""
    port = free_port()
    script = typed((ROOT / "README.md").read_text()).replace("8000", str(port))
    assert script.count(str(port)) >= 3
    commands, folder = tmp_path / "bin", tmp_path / "empty"
    commands.mkdir()
    folder.mkdir()
    shims(commands)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    environment |= {
        "PATH": f"{commands}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CURATOR_URL": f"http://127.0.0.1:{port}",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill ${{server:-}} 2>/dev/null || true' EXIT\n{script}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(90),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # One count and a table of 2 x 8 on the command line, the same in Python.
    assert len(_ANSWER.findall(done.stdout)) >= 2 * (1 + 16), said
    assert "the transcript replays" in done.stdout
    assert '"standard_error":' in done.stdout
    assert "Traceback" not in said
    assert (folder / "var").is_dir()
    assert not list(re.findall(r"say S|<[a-z]+>|YOUR_", script))


def test_every_block_is_run() -> None:
    """Catches a block in another spelling, which nothing would run."""
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("## A first session") : readme.index("## What is promised")]
    assert section.count("```") == 2 * len(_BLOCK.findall(section)) > 6
