"""An auditor who keeps the log in a folder, by the client and on the command line: what he accepts, and what not."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from curator_client import Curator, NotVerified
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.notes import Signer
from tests.kit.fetched import fetch
from tests.kit.patience import patience
from tests.kit.servers import environment, run
from tests.kit.service import Service, ask, open_session, people, serving, where

pytestmark = pytest.mark.api

KEY = base64.b64encode(bytes(range(32))).decode()
T = TypeVar("T")


def caller(service: Service) -> Curator:
    return Curator(service.url, service.admin_key)


def session(service: Service, folder: Path, questions: int = 2) -> Path:
    """The transcript of a session, in a file."""
    id = open_session(service.admin, people(service), epsilon=0.2)["id"]
    for upper in range(questions):
        ask(service.admin, id, where(age={"between": [0, 20 * (upper + 1)]}))
    path = folder / f"{id}.ndjson"
    path.write_bytes(service.admin.get(f"/v1/sessions/{id}/transcript").content)
    return path


def soon(look: Callable[[], T]) -> T:
    """What is found once what was committed is in the log; what contradicts it stays so, and is raised at once."""
    deadline = time.monotonic() + patience(10)
    while True:
        try:
            return look()
        except Contradicted:
            raise
        except NotVerified:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "refused"}


def test_a_log_is_kept_and_transcripts_are_in_it(service: Service, tmp_path: Path) -> None:
    """Catches a line that is not compared, one that was changed, and a folder whose lines were exchanged."""
    kept = tmp_path / "kept"
    folder = LogFolder(kept)
    first = session(service, tmp_path)
    with pytest.raises(NotVerified, match="fetch"):
        folder.verify(first)
    with caller(service) as curator:
        found, count = soon(lambda: fetch(folder, curator) and folder.verify(first))
        assert count == 3
        second = session(service, tmp_path, 3)
        with pytest.raises(NotVerified, match="line 1 "):
            folder.verify(second)
        later, count = soon(lambda: fetch(folder, curator) and folder.verify(second))
        assert count == 4
        assert later.size > found.size
        assert fetch(folder, curator).size >= later.size
    changed = tmp_path / "changed.ndjson"
    changed.write_bytes(first.read_bytes().replace(b'"sequence":2', b'"sequence":9'))
    with pytest.raises(NotVerified, match="line 3 "):
        folder.verify(changed)
    changed.write_bytes(b"no record\n")
    with pytest.raises(NotVerified, match="no record"):
        folder.verify(changed)
    # What an interrupted fetch leaves is not looked at; lines that were verified are.
    entries = kept / "entries.ndjson"
    whole = entries.read_bytes()
    entries.write_bytes(whole + b'{"half":')
    folder.verify(first)
    with caller(service) as curator:
        fetch(folder, curator)
    assert entries.read_bytes().startswith(whole)
    entries.write_bytes(whole.replace(b'"sequence":2', b'"sequence":9', 1))
    with pytest.raises(Contradicted):
        folder.verify(first)


@pytest.mark.parametrize("cut", ["emptied", "gone", "within a line", "behind a line"])
def test_lines_that_were_lost_here(service: Service, tmp_path: Path, cut: str) -> None:
    """What a full disk left of the folder is fetched anew, and held against what was seen. Catches a service that is
    accused of what was lost here, and lines that are written in the place of others."""
    folder, entries = LogFolder(tmp_path / "kept"), tmp_path / "kept" / "entries.ndjson"
    first = session(service, tmp_path)
    with caller(service) as curator:
        soon(lambda: fetch(folder, curator) and folder.verify(first))
        whole = entries.read_bytes()
        end = len(b"".join(whole.splitlines(keepends=True)[:2]))
        session(service, tmp_path, 3)
        if cut == "gone":
            entries.unlink()
        else:
            entries.write_bytes(whole[: {"emptied": 0, "within a line": end + 9, "behind a line": end}[cut]])
        soon(lambda: fetch(folder, curator) and folder.verify(first))
    assert entries.read_bytes().startswith(whole)


def test_two_histories_with_one_key(tmp_path: Path) -> None:
    """Two services that sign with one key: a longer one with another beginning, and one that is shorter. Catches an
    auditor who takes whatever the key has signed; and a folder that forgets what it knew, or the proof.
    """
    kept = tmp_path / "kept"
    with serving(tmp_path / "one", log_key=KEY) as honest:
        transcript = session(honest, tmp_path)
        with caller(honest) as curator:
            soon(lambda: fetch(LogFolder(kept), curator) and LogFolder(kept).verify(transcript))
        before = content(kept)
    with serving(tmp_path / "two", log_key=KEY) as other:
        with caller(other) as curator:
            with pytest.raises(Contradicted, match="entries"):
                fetch(LogFolder(kept), curator)
            assert content(kept) == before
            for _ in range(3):
                path = session(other, tmp_path)
            soon(
                lambda: (
                    fetch(LogFolder(tmp_path / "elsewhere"), curator) and LogFolder(tmp_path / "elsewhere").verify(path)
                )
            )
            with pytest.raises(Contradicted, match="begin"):
                fetch(LogFolder(kept), curator)
        assert content(kept) == before
        verifier = Signer(bytes(range(32))).verifier
        shown = verifier.checkpoint((kept / "refused").read_bytes())
        assert shown.size > verifier.checkpoint(before["checkpoint"]).size


def test_another_key(service: Service, tmp_path: Path) -> None:
    """Catches an auditor who takes a new key from whoever answers."""
    with caller(service) as curator:
        fetch(LogFolder(tmp_path / "kept"), curator)
    with serving(tmp_path / "other") as other, caller(other) as curator, pytest.raises(Contradicted, match="signed"):
        fetch(LogFolder(tmp_path / "kept"), curator)


def test_the_commands(service: Service, tmp_path: Path) -> None:
    """Catches exit codes other than those documented, and JSON that says other than the words."""
    kept = tmp_path / "kept"
    transcript = session(service, tmp_path)

    def audit(*arguments: str, url: str = service.url, key: str = service.admin_key) -> tuple[int, str]:
        client = {"CURATOR_URL": url, "CURATOR_API_KEY": key}
        done = run(["audit", *arguments], environment(tmp_path, None) | client)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, told = audit("verify", str(kept), str(transcript))
    assert (code, "fetch the log first" in told) == (1, True), told
    with caller(service) as curator:
        ready = LogFolder(tmp_path / "ready")
        soon(lambda: fetch(ready, curator) and ready.verify(transcript))
    code, told = audit("fetch", str(kept))
    assert (code, "are verified" in told) == (0, True), told
    code, told = audit("verify", str(kept), str(transcript))
    assert (code, "all 3 records" in told) == (0, True), told
    size = ready.verify(transcript)[0].size
    for more, expected in (
        (("fetch", str(kept)), {}),
        (("verify", str(kept), str(transcript)), {"records": 3}),
        (("compare", str(kept), str(tmp_path / "ready")), {"shown_to_both": size}),
    ):
        code, told = audit(*more, "--json")
        document = json.loads(told[: told.rindex("}") + 1])
        assert code == 0
        assert document["size"] >= size
        assert document.items() >= expected.items()
    code, told = audit("fetch", str(kept), url="http://127.0.0.1:9")
    assert code == 1, told
    with serving(tmp_path / "other") as other:
        code, told = audit("fetch", str(kept), url=other.url, key=other.admin_key)
    assert (code, "cannot be what it was" in told) == (3, True), told
