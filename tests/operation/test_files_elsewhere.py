"""Private files in a folder of their own: whoever comes with another database takes none of them for left-overs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kit.servers import Caller, curator, launching
from tests.kit.world import ADMIN_KEY, SHAPE, eventually

pytestmark = pytest.mark.integration

COUNTS = 100 + np.arange(32).reshape(SHAPE)


def test_another_data_folder_does_not_sweep_them(tmp_path: Path) -> None:
    """While the first server runs, and when it has ended; and a copy that was restored elsewhere. Would catch a name
    that is mistyped, or a drill, after which all private files are gone.
    """
    place = tmp_path / "files"
    settings = {"vault_url": f"file://{place}"}

    def kept() -> list[str]:
        return sorted(path.name for path in place.glob("*.vault"))

    with launching(tmp_path / "one", None, **settings) as one:
        server = one.start().wait_until_ready()
        assert Caller(server.url).register("people", COUNTS).status_code == 201
        (file,) = kept()
        eventually(lambda: (place / "ledger.seen").exists(), 10)
        done = curator(tmp_path / "two", None, "serve", "--port", "0", **settings)
        assert done.returncode == 1
        assert "already serves the private files" in done.stderr
        assert curator(tmp_path / "one", None, "backup", str(tmp_path / "copy"), **settings).returncode == 0
        one.end()
        for folder, arguments, said in (
            ("two", ["serve", "--port", "0"], "the database lacks what this data folder has seen"),
            ("three", ["restore", str(tmp_path / "copy")], "there are private files"),
        ):
            done = curator(tmp_path / folder, None, *arguments, **settings)
            assert (done.returncode, said in done.stderr) == (1, True), done.stderr
            assert kept() == [file]
        again = Caller(one.start().wait_until_ready().url)
        assert again.get("/v1/datasets/people")["status"] == "registered"


def test_nobody_else_reads_the_database(tmp_path: Path) -> None:
    """In a folder that others may look into. Would catch transcripts and digests of keys that any user can read."""
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with launching(folder, None) as launcher:
        server = launcher.start().wait_until_ready()
        assert Caller(server.url).register("people", COUNTS).status_code == 201
        found = {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir() if "sqlite3" in path.name}
    assert found
    assert set(found.values()) == {0}, found


def test_the_key_of_the_admin_is_told_before_anything_fails(tmp_path: Path) -> None:
    """It is kept nowhere. Would catch a service that nobody can enter, as its first start failed behind that."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "keys").write_text("no folder")
    done = curator(folder, None, "serve", "--port", "0", admin_key="")
    assert done.returncode == 1
    assert "admin key (shown this once): cur_" in done.stdout


def test_the_key_of_somebody_else_is_no_admin_key(tmp_path: Path) -> None:
    """Would catch an error of the database in the place of what to change."""
    with launching(tmp_path, None) as launcher:
        key = Caller(launcher.start().wait_until_ready().url).add("ann")
        launcher.end()
        done = curator(tmp_path, None, "serve", "--port", "0", admin_key=key)
    assert done.returncode == 1
    assert "CURATOR_ADMIN_KEY: it is another principal's key" in done.stderr
    assert key != ADMIN_KEY
    assert key not in done.stderr
