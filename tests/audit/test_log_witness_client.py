"""Witnesses by the client and on the command line: auditors who are shown different histories find out, and clients who
rely on witnesses take neither.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from curator_client import Curator, NotVerified
from curator_client._sync.log_routes import LogRoutes
from curator_client.comparing import compare
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.notes import Checkpoint, NoteMalformed, Signer, Witness
from curator_client.witnessing import cosign, witness_of
from tests.audit.test_log_client import KEY, content, session, soon
from tests.audit.test_log_witnesses import grown, newest, size
from tests.kit.fetched import fetch
from tests.kit.servers import environment, run
from tests.kit.service import Service, serving, unique

pytestmark = pytest.mark.api

LOG = Signer(bytes(range(32))).verifier


class Auditor:
    """An auditor who is a witness: a folder, a key, and his own key to some services."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = LogFolder(folder / f"witness{number}")
        self.witness = Witness(bytes([number]) * 32, f"example.org/witness{number}")
        self.line = self.witness.verifier.text()
        self.keys: dict[str, str] = {}

    def calls(self, service: Service) -> Curator:
        """Those of a key of his own, whose making is an entry of the log."""
        if service.url not in self.keys:
            name = unique("auditor")
            reply = service.admin.post("/v1/principals", json={"name": name, "role": "auditor"})
            self.keys[service.url] = reply.json()["api_key"]
        return Curator(service.url, self.keys[service.url])

    def cosign(self, service: Service) -> Checkpoint:
        with self.calls(service) as curator:
            return cosign(self.folder.path, curator, self.witness)


@pytest.fixture
def auditors(tmp_path: Path) -> list[Auditor]:
    return [Auditor(tmp_path, number) for number in (1, 2)]


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "honest", log_key=KEY) as service:
        grown(service)
        yield service


@pytest.fixture
def forked(tmp_path: Path, honest: Service) -> Iterator[Service]:
    """Another history with the same key, longer than the honest one."""
    with serving(tmp_path / "forked", log_key=KEY) as service:
        while size(newest(service)) <= size(newest(honest)) + 2:
            grown(service)
        yield service


class Showing(Curator):
    """A service that shows to those who ask for witnesses a note of its own choice."""

    def __init__(self, service: Service, note: bytes) -> None:
        super().__init__(service.url, service.admin_key)
        self.note = note

    @property
    def log_routes(self) -> LogRoutes:
        note = self.note

        class Shown(LogRoutes):
            def checkpoint(self, witnesses: int | None = None, keys: Sequence[str] = ()) -> bytes:
                return super().checkpoint() if witnesses is None else note

        return Shown(self._service.transport)


def calls(service: Service) -> Curator:
    return Curator(service.url, service.admin_key)


def test_what_enough_witnesses_have_cosigned_is_taken(honest: Service, auditors: list[Auditor], tmp_path: Path) -> None:
    """Catches a demand that is not kept, one witness who counts twice, any witness in the place of those named, and a
    folder that moves all the same.
    """
    one, two = auditors
    folder, lines = LogFolder(tmp_path / "kept"), [one.line, two.line]
    stranger = Witness(bytes([9]) * 32).verifier.text()
    with calls(honest) as curator:
        with pytest.raises(NotVerified, match="2 of the witnesses"):
            fetch(folder, curator, lines)
        assert content(folder.path) == {}
        first = one.cosign(honest)
        with pytest.raises(NotVerified):
            fetch(folder, curator, lines)
        assert fetch(folder, curator, lines, 1).size >= first.size
        two.calls(honest).close()
        grown(honest)
        # The other comes later, finds the log longer, and joins what the first has cosigned.
        assert two.cosign(honest).size > first.size
        found = fetch(folder, curator, lines)
        told = LOG.checkpoint((folder.path / "witnessed").read_bytes())
        assert (told.size, found.size > told.size) == (first.size, True)
        before = content(folder.path)
        for named in ([stranger], [one.line, stranger]):
            with pytest.raises(NotVerified):
                fetch(folder, curator, named)
        assert fetch(folder, curator, [one.line, stranger], 1).size == found.size
        assert fetch(folder, curator, lines, max_age=60).size == found.size
        assert content(folder.path).keys() == before.keys()
        for wrong in ((lines, 3), (lines, 0), ([], 1), ([one.line, one.line], None), ([LOG.text()], None)):
            with pytest.raises(ValueError, match=r"witness|key"):
                fetch(folder, curator, *wrong)


def test_cosignatures_grow_old(honest: Service, auditors: list[Auditor], tmp_path: Path) -> None:
    """One of an hour ago, one of an hour ahead, and one that is renewed. Catches an age that is not looked at, and a
    quiet log that cannot be cosigned again.
    """
    one = auditors[0]
    folder = LogFolder(tmp_path / "kept")
    with one.calls(honest) as own, calls(honest) as curator:
        for at in (int(time.time()) - 3600, int(time.time()) + 3600):
            one_note = one.witness.cosign(newest(honest), at)
            showing = Showing(honest, one_note)
            with showing, pytest.raises(NotVerified, match="within"):
                fetch(folder, showing, [one.line], max_age=600)
        own.log_routes.cosign(one.line, one.witness.cosign(newest(honest), int(time.time()) - 3600))
        with pytest.raises(NotVerified, match="within"):
            fetch(folder, curator, [one.line], max_age=600)
        one.cosign(honest)
        fetch(folder, curator, [one.line], max_age=600)


def test_two_histories_are_found_by_comparing(
    honest: Service, forked: Service, auditors: list[Auditor], tmp_path: Path
) -> None:
    """Two auditors, one key, two histories: by their folders, and by a checkpoint alone, from either side. Catches a
    comparison that is content with two good signatures, and evidence that is lost.
    """
    one, two = auditors
    with one.calls(honest) as curator:
        fetch(one.folder, curator)
        same = LogFolder(tmp_path / "same")
        fetch(same, curator)
        grown(honest)
        own = fetch(same, curator)
    smaller, larger = compare(one.folder, same.path)
    assert (smaller.size < larger.size, larger) == (True, own)
    assert compare(same, one.folder.path) == (smaller, larger)
    assert compare(same, one.folder.path / "checkpoint") == (smaller, larger)
    with pytest.raises(NotVerified, match="fetch"):
        compare(one.folder, same.path / "checkpoint")
    with two.calls(forked) as curator:
        fetch(two.folder, curator)
    before = content(one.folder.path)
    for mine, other, first in ((one.folder, two.folder, True), (two.folder, one.folder, True)):
        with pytest.raises(Contradicted, match="two histories") as found:
            compare(mine, other.path)
        assert ("is the first that differs" in str(found.value)) == first
        for name, keeper in (("own", mine), ("other", other)):
            kept = (mine.path / "forked" / name).read_bytes()
            assert kept == (keeper.path / "checkpoint").read_bytes()
            LOG.checkpoint(kept)
    with pytest.raises(Contradicted, match="two histories"):
        compare(two.folder, one.folder.path / "checkpoint")
    for strange in (Signer(bytes(32), LOG.name).note(own.size, own.root), b"no note"):
        (tmp_path / "strange").write_bytes(strange)
        with pytest.raises(NotVerified):
            compare(one.folder, tmp_path / "strange")
    (one.folder.path / "forked" / "own").unlink()
    (one.folder.path / "forked" / "other").unlink()
    (one.folder.path / "forked").rmdir()
    assert content(one.folder.path) == before


def test_a_split_view_with_honest_witnesses(
    honest: Service, forked: Service, auditors: list[Auditor], tmp_path: Path
) -> None:
    """Each witness is shown another history, and cosigns what it was shown: all signatures are good. Whoever needs more
    than half of them is shown neither; half of them is enough for both, which is what docs/audit.md says of it, and
    comparing finds it out. Catches a cosignature that counts for another history than its own.
    """
    lines = [one.line for one in auditors]
    for one, service in zip(auditors, (honest, forked), strict=True):
        one.cosign(service)
    for number, service in enumerate((honest, forked)):
        with pytest.raises(NotVerified), calls(service) as curator:
            fetch(LogFolder(tmp_path / f"all{number}"), curator, lines)
        with calls(service) as curator:
            fetch(LogFolder(tmp_path / f"half{number}"), curator, lines, need=1)
    with pytest.raises(Contradicted):
        compare(LogFolder(tmp_path / "half0"), tmp_path / "half1")


def test_a_witness_of_one_history_cosigns_no_other(
    honest: Service, forked: Service, auditors: list[Auditor], tmp_path: Path
) -> None:
    """The witness saw the honest log. Catches a witness who can be turned: by the other log, by a folder that was
    emptied but for what was cosigned, by what another witness has cosigned; and a client who takes the other history by
    a cosignature of the honest one.
    """
    one, two = auditors
    seen = one.cosign(honest)
    before = content(one.folder.path)
    for emptied in (False, True):
        if emptied:
            for name in ("checkpoint", "entries.ndjson"):
                (one.folder.path / name).unlink()
        with pytest.raises(Contradicted):
            one.cosign(forked)
        assert (one.folder.path / "cosigned").read_bytes() == before["cosigned"]
    assert forked.rows("log_cosignatures") == []
    kept = LogFolder(tmp_path / "kept")
    with calls(forked) as curator, pytest.raises(NotVerified):
        fetch(kept, curator, [one.line])
    assert content(kept.path) == {}
    with calls(honest) as curator:
        vouched = curator.log_routes.checkpoint(1, [one.line])
    with Showing(forked, vouched) as curator, pytest.raises(Contradicted):
        fetch(kept, curator, [one.line])
    assert LOG.checkpoint((kept.path / "witnessed").read_bytes()) == seen
    assert LOG.checkpoint((kept.path / "refused").read_bytes()).size > seen.size
    assert not (kept.path / "checkpoint").exists()
    with two.calls(honest) as curator:
        fetch(two.folder, curator)
    (two.folder.path / "checkpoint").unlink()
    (two.folder.path / "entries.ndjson").unlink()
    assert two.cosign(forked).size > seen.size
    # The first one's cosignature of the honest log, shown to a witness of the other.
    grown(forked)
    with Showing(forked, vouched) as curator:
        (two.folder.path / "cosigned").unlink()
        with pytest.raises(Contradicted):
            cosign(two.folder.path, curator, two.witness)
    assert not (two.folder.path / "cosigned").exists()


class Deaf(Curator):
    """A service that cannot be reached when a cosignature is sent."""

    @property
    def log_routes(self) -> LogRoutes:
        class Cut(LogRoutes):
            def cosign(self, key: str, note: bytes) -> None:
                raise OSError("the cable was cut")

        return Cut(self._service.transport)


def test_a_witness_remembers_before_it_tells(honest: Service, forked: Service, auditors: list[Auditor]) -> None:
    """The connection breaks as the cosignature leaves: it may have arrived. Catches a witness who forgets that, and one
    who cannot go on.
    """
    one = auditors[0]
    with Deaf(honest.url, honest.admin_key) as curator, pytest.raises(OSError, match="cable"):
        cosign(one.folder.path, curator, one.witness)
    told = one.witness.verifier.open((one.folder.path / "cosigned").read_bytes())
    for name in ("checkpoint", "entries.ndjson"):
        (one.folder.path / name).unlink()
    with pytest.raises(Contradicted):
        one.cosign(forked)
    for name in ("checkpoint", "entries.ndjson"):
        (one.folder.path / name).unlink()
    assert one.cosign(honest).size >= told.checkpoint.size


def test_two_commands_do_not_cosign_at_once(honest: Service, auditors: list[Auditor]) -> None:
    """Catches two signatures that are both given before either is remembered."""
    one = auditors[0]

    class Meanwhile(Curator):
        @property
        def log_routes(self) -> LogRoutes:
            class Watched(LogRoutes):
                def cosign(self, key: str, note: bytes) -> None:
                    with pytest.raises(NotVerified, match="another command"):
                        one.cosign(honest)
                    super().cosign(key, note)

            return Watched(self._service.transport)

    with one.calls(honest), Meanwhile(honest.url, one.keys[honest.url]) as curator:
        cosign(one.folder.path, curator, one.witness)


def test_the_file_of_a_key(tmp_path: Path) -> None:
    """Catches a key that others may read, another one at the second time, and one that is made in the place of a file
    that is none.
    """
    path = tmp_path / "key"
    made = witness_of(path, "example.org/w")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert witness_of(path, None) == witness_of(path, "example.org/w") == made
    with pytest.raises(ValueError, match="is called"):
        witness_of(path, "example.org/other")
    path.chmod(0o640)
    with pytest.raises(ValueError, match="others may read"):
        witness_of(path, None)
    with pytest.raises(ValueError, match="private key"):
        witness_of(tmp_path / "new", "two words")
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").write_text("something else\n")
    (tmp_path / "new").chmod(0o600)
    with pytest.raises(NoteMalformed):
        witness_of(tmp_path / "new", None)
    assert (tmp_path / "new").read_text() == "something else\n"


def test_the_commands(honest: Service, forked: Service, tmp_path: Path) -> None:
    """Catches exit codes other than those documented, and a key that is not told."""
    auditor = Auditor(tmp_path, 3)
    transcript = session(honest, tmp_path)
    with auditor.calls(honest), auditor.calls(forked), calls(honest) as curator:
        ready = LogFolder(tmp_path / "ready")
        soon(lambda: fetch(ready, curator) and ready.verify(transcript))

    def audit(*arguments: str, service: Service = honest) -> tuple[int, str]:
        client = {"CURATOR_URL": service.url, "CURATOR_API_KEY": auditor.keys[service.url]}
        done = run(["audit", *arguments], environment(tmp_path, None) | client)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    kept, key = str(tmp_path / "kept"), str(tmp_path / "key")
    code, told = audit("cosign", kept, "--key-file", key, "--name", "example.org/w")
    assert (code, "cosigned at" in told) == (0, True), told
    line = next(word for word in told.split() if word.startswith("example.org/w+"))
    assert Witness.parse(Path(key).read_text().strip()).verifier.text() == line
    code, told = audit("fetch", str(tmp_path / "client"), "--witness-key", line, "--need", "1", "--max-age", "600")
    assert (code, "are verified" in told) == (0, True), told
    for wrong in (("--witness-key", "nonsense"), ("--need", "1"), ("--witness-key", line, "--need", "2")):
        code, told = audit("fetch", str(tmp_path / "client"), *wrong)
        assert code == 2, told
    code, told = audit("fetch", str(tmp_path / "new"), "--witness-key", line, service=forked)
    assert (code, "cosigned by 1" in told) == (1, True), told
    assert audit("compare", kept, str(tmp_path / "client"))[0] == 0
    assert audit("compare", str(tmp_path / "nothing"), str(tmp_path / "client"))[0] == 1
    assert audit("fetch", str(tmp_path / "other"), service=forked)[0] == 0
    code, told = audit("compare", kept, str(tmp_path / "other"))
    assert (code, "two histories" in told) == (3, True), told
    code, told = audit("cosign", kept, "--key-file", key, service=forked)
    assert (code, "nothing is cosigned" in told) == (3, True), told
    Path(key).chmod(0o644)
    code, told = audit("cosign", kept, "--key-file", key)
    assert (code, "others may read" in told) == (1, True), told
    assert audit("forget-witness", "nobody")[0] == 1
