"""The vault on a real file system, with real processes that really die.

Caught here: a byte changed anywhere in a file, a file cut short or exchanged, a key that is not the
file's, plaintext on an encrypted vault's disk, wide file modes, and a sweep that takes a file which is
about to be committed.
"""

import contextlib
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage import vault as vault_module
from app.storage.private_data import CsrData, DenseData, ElementsData, PrivateData, RecordsData
from app.storage.vault import Vault, VaultCorrupt, VaultEntry, VaultError, VaultMissing, VaultWrongKey
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests

pytestmark = pytest.mark.unit

KEY = bytes(range(32))
IMPORTS = """
import os, sys, time
from pathlib import Path
import numpy as np
from app.storage.private_data import DenseData
from app.storage.vault import Vault
"""
REGISTER = f"""{IMPORTS}
vault = Vault(Path(sys.argv[1]), None)
registration = vault.registration()
registration.__enter__()
entry = vault.put("adult", DenseData(np.zeros(3, "u1"), 0))
"""
"""A process that registers and has not committed yet; `entry` is what it put."""
MARK = np.frombuffer(b"PLAINTEXT-OF-A-PRIVATE-FILE!", np.uint8)


@pytest.fixture(params=[None, KEY], ids=["plain", "encrypted"])
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Vault:
    return Vault(tmp_path / "vault", request.param)


def put(vault: Vault, data: PrivateData, name: str = "adult") -> VaultEntry:
    with vault.registration():
        return vault.put(name, data)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != ".registrations.lock"}


def same(left: PrivateData, right: PrivateData) -> bool:
    return (
        type(left) is type(right)
        and left.mass == right.mass
        and getattr(left, "shape", None) == getattr(right, "shape", None)
        and left.arrays().keys() == right.arrays().keys()
        and all(
            array.dtype == right.arrays()[name].dtype and np.array_equal(array, right.arrays()[name])
            for name, array in left.arrays().items()
        )
    )


def dense(size: int = 1000) -> DenseData:
    return DenseData(np.arange(size, dtype=np.int32).reshape(-1, 10), size * (size - 1) // 2)


def csr() -> CsrData:
    return CsrData(
        (3, 500),
        np.array([0, 2, 2, 3], np.int64),
        np.array([1, 499, 0], np.int32),
        np.array([7, 8, 9], np.uint16),
        24,
    )


def elements() -> ElementsData:
    return ElementsData(
        np.frombuffer("azé".encode(), np.uint8),
        np.array([0, 1, 2, 4], np.int64),
        np.array([1, 2, 3], np.int64),
        6,
    )


def kept_records() -> RecordsData:
    return RecordsData((np.array([1, 0, 2], np.uint8), np.array([500, 0, 7], np.uint16)), 3)


class TestPut:
    @pytest.mark.parametrize(
        "data", [dense(), csr(), kept_records(), elements()], ids=["dense", "csr", "records", "elements"]
    )
    def test_round_trip(self, vault: Vault, data: PrivateData) -> None:
        entry = put(vault, data)
        vault.verify(entry)
        opened = vault.open(entry)
        assert same(opened, data)
        for array in opened.arrays().values():
            with pytest.raises(ValueError, match="read-only"):
                array.flat[0] = 1
        if isinstance(opened, ElementsData):
            assert opened.lookup(["é", "z", "b", "a"]).tolist() == [3, 2, 0, 1]

    @given(size=st.integers(0, 700), chunk=st.integers(64, 400))
    def test_chunk_borders(self, tmp_path_factory: pytest.TempPathFactory, size: int, chunk: int) -> None:
        """Lengths around the borders of encrypted chunks, whole last chunks and empty arrays included."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vault_module, "CHUNK_BYTES", chunk)
            vault = Vault(tmp_path_factory.mktemp("vault"), KEY)
            data = DenseData(np.arange(size) % 251, size)
            entry = put(vault, data)
            vault.verify(entry)
            assert same(vault.open(entry), data)

    def test_more_than_one_real_chunk(self, vault: Vault) -> None:
        data = dense(1_000_000)
        assert same(vault.open(put(vault, data)), data)

    def test_modes(self, vault: Vault, tmp_path: Path) -> None:
        (tmp_path / "vault").mkdir(mode=0o755)
        before = os.umask(0)
        try:
            entry = put(vault, dense())
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "vault").stat().st_mode) == 0o700
        for path in (tmp_path / "vault").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert files(tmp_path / "vault") == {entry.file_name}
        if (tmp_path / "keys").exists():
            assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
            assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()] == [0o600]

    def test_nothing_remains_of_a_refused_write(
        self, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                put(vault, dense())
        assert files(tmp_path / "vault") == set()

    def test_unusable_ids(self, vault: Vault) -> None:
        for name in ("", "../escape", "a/b", ".hidden", "a b", "a\n", "x" * 200):
            with pytest.raises(ValueError, match="id consists of"):
                put(vault, dense(), name)

    def test_outside_of_a_registration(self, vault: Vault) -> None:
        with pytest.raises(RuntimeError, match="registration"):
            vault.put("adult", dense())

    def test_two_of_one_name_do_not_meet(self, vault: Vault) -> None:
        first, second = put(vault, dense(10)), put(vault, dense(20))
        assert vault.open(first).mass == 45
        assert vault.open(second).mass == 190


class TestDamage:
    @pytest.mark.slow
    def test_every_flipped_byte_is_caught(self, vault: Vault, tmp_path: Path) -> None:
        entry = put(vault, dense(100))
        path = tmp_path / "vault" / entry.file_name
        good = path.read_bytes()
        for at in range(len(good)):
            bad = bytearray(good)
            bad[at] ^= 1
            path.write_bytes(bad)
            for use in (vault.verify, vault.open):
                with pytest.raises((VaultCorrupt, VaultWrongKey)):
                    use(entry)

    def test_truncated_or_longer(self, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where the cut leaves whole chunks behind, which only the mark of the last one tells."""
        monkeypatch.setattr(vault_module, "CHUNK_BYTES", 128)
        entry = put(vault, dense(200))
        path = tmp_path / "vault" / entry.file_name
        good = path.read_bytes()
        for length in [*range(len(good) - 300, len(good)), 0, 3, 8, 40, 56, 56 + 144, 56 + 2 * 144]:
            path.write_bytes(good[:length])
            for use in (vault.verify, vault.open):
                with pytest.raises((VaultCorrupt, VaultWrongKey)):
                    use(entry)
        path.write_bytes(good + b"\0")
        for use in (vault.verify, vault.open):
            with pytest.raises(VaultCorrupt):
                use(entry)

    def test_the_last_chunk_is_known_to_be_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Even where it held nothing but padding, so that neither the arrays nor a digest would miss it."""
        monkeypatch.setattr(vault_module, "CHUNK_BYTES", 16)
        vault = Vault(tmp_path / "vault", KEY)
        entry = put(vault, DenseData(np.ones(4, np.uint8), 4))
        path = tmp_path / "vault" / entry.file_name
        good = path.read_bytes()
        path.write_bytes(good[: -(16 + 16)])
        with pytest.raises(VaultCorrupt, match="altered or truncated"):  # the cipher says so, not the digest
            vault.open(entry)

    def test_reordered_chunks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vault_module, "CHUNK_BYTES", 128)
        vault = Vault(tmp_path / "vault", KEY)
        entry = put(vault, dense(200))
        path = tmp_path / "vault" / entry.file_name
        good = path.read_bytes()
        path.write_bytes(good[:56] + good[56 + 144 : 56 + 288] + good[56 : 56 + 144] + good[56 + 288 :])
        with pytest.raises(VaultCorrupt, match="altered or truncated"):  # the cipher says so, not the digest
            vault.open(entry)

    def test_exchanged_files(self, vault: Vault, tmp_path: Path) -> None:
        first, second = put(vault, dense(10)), put(vault, dense(20))
        left, right = tmp_path / "vault" / first.file_name, tmp_path / "vault" / second.file_name
        content = left.read_bytes()
        left.write_bytes(right.read_bytes())
        right.write_bytes(content)
        for entry in (first, second):
            for use in (vault.verify, vault.open):
                with pytest.raises(VaultCorrupt):
                    use(entry)

    def test_an_encrypted_file_is_bound_to_its_name(self, tmp_path: Path) -> None:
        """By the cipher itself, digest or no digest."""
        vault = Vault(tmp_path / "vault", KEY)
        first, second = put(vault, dense(10)), put(vault, dense(20))
        (tmp_path / "vault" / first.file_name).replace(tmp_path / "vault" / second.file_name)
        with pytest.raises(VaultCorrupt, match="altered or truncated"):  # the cipher says so, not the digest
            vault.open(second)

    def test_missing(self, vault: Vault) -> None:
        entry = put(vault, dense())
        vault.destroy(entry)
        for use in (vault.verify, vault.open):
            with pytest.raises(VaultMissing):
                use(entry)

    def test_a_symbolic_link_is_not_followed(self, vault: Vault, tmp_path: Path) -> None:
        entry = put(vault, dense())
        path = tmp_path / "vault" / entry.file_name
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(VaultError, match="cannot be opened"):
            vault.open(entry)

    def test_a_record_that_points_elsewhere(self, vault: Vault, tmp_path: Path) -> None:
        (tmp_path / "other").write_bytes(b"x")
        put(vault, dense())
        for name in ("../other", str(tmp_path / "other"), ""):
            with pytest.raises(VaultCorrupt):
                vault.open(VaultEntry(name, "0" * 64))


class TestKeys:
    def test_wrong_key(self, tmp_path: Path) -> None:
        entry = put(Vault(tmp_path / "vault", KEY), dense())
        other = Vault(tmp_path / "vault", KEY[::-1])
        for use in (other.verify, other.open):
            with pytest.raises(VaultWrongKey):
                use(entry)

    def test_no_key(self, tmp_path: Path) -> None:
        entry = put(Vault(tmp_path / "vault", KEY), dense())
        with pytest.raises(VaultWrongKey, match="CURATOR_VAULT_KEY"):
            Vault(tmp_path / "vault", None).open(entry)

    def test_a_plain_file_is_not_taken_for_an_encrypted_one(self, tmp_path: Path) -> None:
        entry = put(Vault(tmp_path / "vault", None), dense())
        for use in (Vault(tmp_path / "vault", KEY).open, Vault(tmp_path / "vault", KEY).verify):
            with pytest.raises(VaultWrongKey, match="written without a vault key"):
                use(entry)

    def test_short_key(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            Vault(tmp_path, b"short")

    def test_plaintext_is_on_the_disk_only_without_a_key(self, tmp_path: Path) -> None:
        """Looks for the contents in every file under the folder, the ones in the making included."""
        data = DenseData(np.tile(MARK, 100_000), 1)
        for key, expected in ((None, True), (KEY, False)):
            folder = tmp_path / str(expected)
            vault = Vault(folder / "vault", key)
            seen = []

            def watched(source: Path, target: Path, seen: list[bool] = seen) -> None:
                seen.append(MARK.tobytes() in source.read_bytes())
                source.rename(target)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "link", watched)
                entry = put(vault, data)
            seen += [MARK.tobytes() in path.read_bytes() for path in folder.rglob("*") if path.is_file()]
            assert any(seen) is expected
            assert same(vault.open(entry), data)

    def test_equal_data_look_different(self, tmp_path: Path) -> None:
        """Neither file nor digest may tell that two data sets are the same."""
        vault = Vault(tmp_path / "vault", KEY)
        first, second = put(vault, dense()), put(vault, dense())
        assert first.digest != second.digest
        left, right = ((tmp_path / "vault" / entry.file_name).read_bytes() for entry in (first, second))
        assert left[100:] != right[100:]

    def test_digest_needs_its_key(self, tmp_path: Path) -> None:
        vault = Vault(tmp_path / "vault", None)
        entry = put(vault, dense())
        Vault(tmp_path / "vault", None).verify(entry)
        (tmp_path / "keys" / "vault-digest.key").write_bytes(bytes(32))
        with pytest.raises(VaultCorrupt, match="digest"):
            Vault(tmp_path / "vault", None).verify(entry)

    @pytest.mark.slow
    def test_two_processes_agree_on_one_digest_key(self, tmp_path: Path) -> None:
        """Four start at once on an empty folder; every file must verify under the one key that is left."""
        script = REGISTER + "print(entry.file_name, entry.digest)"
        started = [_python(script, tmp_path / "vault") for _ in range(4)]
        vault = Vault(tmp_path / "vault", None)
        for process in started:
            output, _ = process.communicate(timeout=patience(60))
            vault.verify(VaultEntry(*output.split()))
        assert [path.name for path in (tmp_path / "keys").iterdir()] == ["vault-digest.key"]


@pytest.mark.slow
class TestCommitmentKeys:
    @pytest.mark.parametrize("sealed", [None, KEY], ids=["plain", "encrypted"])
    def test_the_key_is_in_the_file_and_nowhere_else(self, tmp_path: Path, sealed: bytes | None) -> None:
        """Beside numbers of one chunk and of several. Catches a key in the clear in an encrypted vault, one that shows
        in the digest that goes into a row, and one that changes what equal numbers are known by.
        """
        vault, key = Vault(tmp_path / "vault", sealed), bytes(range(200, 232))
        for data in (dense(), dense(1_000_000)):
            with vault.registration():
                entry = vault.put("adult", data, key)
            assert vault.commitment_key(entry) == key
            assert same(vault.open(entry), data)
            assert vault.commitment_key(put(vault, data)) is None
            for path in tmp_path.rglob("*"):
                found = path.is_file() and any(form in path.read_bytes() for form in (key, key.hex().encode()))
                assert found == (sealed is None and path.name == entry.file_name)
            vault.destroy(entry)
            with pytest.raises(VaultMissing):
                vault.commitment_key(entry)

    def test_an_altered_file_gives_no_key(self, vault: Vault, tmp_path: Path) -> None:
        """Every byte of a small file is changed. Catches a key that is read before the file is verified."""
        with vault.registration():
            entry = vault.put("adult", dense(), bytes(range(32)))
        path = tmp_path / "vault" / entry.file_name
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(VaultError):
                vault.commitment_key(entry)
        path.write_bytes(content)
        assert vault.commitment_key(entry) == bytes(range(32))


class TestSweep:
    def test_removes_what_nobody_names(self, vault: Vault, tmp_path: Path) -> None:
        kept, lost = put(vault, dense()), put(vault, dense())
        (tmp_path / "vault" / "notes.txt").write_text("not ours")
        assert vault.sweep(lambda: {kept.file_name}) == 1
        assert files(tmp_path / "vault") == {kept.file_name, "notes.txt"}
        vault.verify(kept)
        with pytest.raises(VaultMissing):
            vault.open(lost)

    def test_empty_folder(self, vault: Vault, tmp_path: Path) -> None:
        """Nothing but the lock is made, which a first registration would have to wait for."""
        assert vault.sweep(set) == 0
        assert files(tmp_path / "vault") == set()

    def test_waits_for_registrations_of_this_process(self, vault: Vault, tmp_path: Path) -> None:
        with vault.registration():
            entry = vault.put("adult", dense())
            assert vault.sweep(set) is None
            assert Vault(tmp_path / "vault", None).sweep(set) is None
        vault.verify(entry)
        assert vault.sweep(set) == 1

    def test_a_clock_that_was_set_back(self, vault: Vault, tmp_path: Path) -> None:
        """Files of a crash that are newer than the clock says. Catches private numbers that stay for as long."""
        later = time.time() + 3600
        os.utime(tmp_path / "vault" / put(vault, dense()).file_name, (later, later))
        assert vault.sweep(set) == 1
        assert not files(tmp_path / "vault")

    def test_spares_a_registration_in_another_process_until_it_dies(self, tmp_path: Path) -> None:
        script = REGISTER + "print(entry.file_name, flush=True); time.sleep(60)"
        vault = Vault(tmp_path / "vault", None)
        with _running(script, tmp_path / "vault") as process:
            assert process.stdout is not None
            name = process.stdout.readline().strip()
            assert vault.sweep(set) is None
            assert files(tmp_path / "vault") == {name}
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=patience(60))
        assert vault.sweep(set) == 1
        assert files(tmp_path / "vault") == set()

    @pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
    def test_crash_between_writing_and_naming(self, tmp_path: Path, key: bytes | None) -> None:
        """The process dies just before it gets its name: no file of the vault exists, and the sweep leaves no
        trace.
        """
        # The key of digests gets its name alike, and before.
        dying = "link = os.link\nos.link = lambda a, b: os._exit(9) if str(b).endswith('.vault') else link(a, b)\n"
        script = REGISTER.replace("vault = ", f"{dying}vault = ", 1)
        script = script.replace("None)", f"{key!r})", 1)
        process = _python(script, tmp_path / "vault")
        assert process.wait(timeout=patience(60)) == 9
        (left,) = files(tmp_path / "vault")
        assert left.endswith(".tmp")
        vault = Vault(tmp_path / "vault", key)
        assert vault.sweep(set) == 1
        assert files(tmp_path / "vault") == set()

    @pytest.mark.slow
    def test_two_sweeps_and_many_registrations(self, tmp_path: Path) -> None:
        """Two processes sweep without pause while this one registers: no committed file is ever lost."""
        committed = tmp_path / "committed"
        committed.mkdir()
        script = f"""{IMPORTS}
folder = Path(sys.argv[1])
vault = Vault(folder, None)
print("ready", flush=True)
while True:
    vault.sweep(lambda: os.listdir(folder.parent / "committed"))
"""
        vault = Vault(tmp_path / "vault", None)
        entries = []
        with _running(script, tmp_path / "vault") as first, _running(script, tmp_path / "vault") as second:
            for process in (first, second):
                assert process.stdout is not None
                process.stdout.readline()
            enough, deadline = time.monotonic() + 3, time.monotonic() + patience(60)
            while len(entries) < 200 and time.monotonic() < (enough if len(entries) > 10 else deadline):
                with vault.registration():
                    entries.append(vault.put("adult", dense(100)))
                    (committed / entries[-1].file_name).touch()
        assert len(entries) > 10
        for entry in entries:
            vault.verify(entry)


class TestOpened:
    @pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
    def test_what_was_verified_stays(self, tmp_path: Path, key: bytes | None) -> None:
        """The file is overwritten in place, cut short and lengthened under somebody who has opened it. Catches arrays
        that are mapped from the file: they would change unverified, and one cut short ends the process (SIGBUS).
        """
        vault, data = Vault(tmp_path / "vault", key), dense(4000)
        entry = put(vault, data)
        opened = vault.open(entry)
        path = tmp_path / "vault" / entry.file_name
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.write(b"\xff" * size)
            file.flush()
            assert same(opened, data)
            for length in (2 * size, 100):
                file.truncate(length)
                assert same(opened, data)

    def test_a_file_that_grows_while_it_is_read(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = put(vault, dense())
        chunks = Vault._chunks

        def longer(self: Vault, *arguments: Any) -> Iterator[bytes]:
            yield from chunks(self, *arguments)
            yield b"more"

        monkeypatch.setattr(Vault, "_chunks", longer)
        with pytest.raises(VaultCorrupt):
            vault.open(entry)


class TestDestroy:
    def test_who_has_it_open_keeps_it(self, vault: Vault) -> None:
        data = dense()
        entry = put(vault, data)
        opened = vault.open(entry)
        vault.destroy(entry)
        vault.destroy(entry)
        assert same(opened, data)


class TestConcealment:
    def test_nothing_shows_contents(self, vault: Vault) -> None:
        data = DenseData(np.full((2, 2), 424242), 1696968)
        entry = put(vault, data)
        shown = f"{data!r} {data} {vault!r} {vault.open(entry)!r} {csr()!r} {elements()!r} {entry!r}"
        assert "4242" not in shown
        assert "1696968" not in shown
        assert entry.digest not in shown

    @pytest.mark.parametrize("data", [dense(), csr(), elements()])
    def test_is_not_pickled(self, data: PrivateData) -> None:
        with pytest.raises(TypeError, match="private"):
            pickle.dumps(data)

    def test_errors_name_the_file_alone(self, vault: Vault, tmp_path: Path) -> None:
        entry = put(vault, DenseData(np.full(5, 424242), 2121210))
        path = tmp_path / "vault" / entry.file_name
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(VaultError) as caught:
            vault.open(entry)
        assert "4242" not in str(caught.value)
        assert entry.digest not in str(caught.value)


ROOT = Path(__file__).resolve().parents[2]


def _python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=end_with_tests,
    )


@contextlib.contextmanager
def _running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = _python(script, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=patience(60))
