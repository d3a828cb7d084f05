"""The client's own check: what a server shows of a session is held against what it told while the session ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from curator_client import Answer, Curator, Log, NotVerified, Refused, Session, Verdict, question, where
from curator_client import seen as seen_entries
from curator_client.calls import Call
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.key_changes import KeyChange
from curator_client.proofs.notes import Signer
from curator_client.seen import SeenEntries
from tests.audit.test_log_client import KEY, soon
from tests.kit.fetched import fetch
from tests.kit.forger import Document, resealed
from tests.kit.servers import environment, run
from tests.kit.service import Service, people, serving

pytestmark = pytest.mark.api

FEMALE = where(sex="female").count()
BEGINS = "that the log begins with what was shown before"
AGES = [question({"type": "predicate", "where": {"age": {"between": [low, 80]}}}) for low in (20, 40, 60)]


@pytest.fixture
def curator(service: Service) -> Iterator[Curator]:
    with Curator(service.url, service.admin_key) as client:
        yield client


@pytest.fixture
def session(service: Service, curator: Curator) -> Session:
    return curator.session(
        people(service), mechanism={"construction": "mw"}, epsilon=0.2, max_queries=100, max_updates=5
    )


def showing(session: Session, change: Callable[[list[Document]], list[Document]]) -> None:
    """Let the server show this session's transcript changed, every hash of it made good."""
    honest = session.transcript

    def transcript(path: Path | str, **more: object) -> Path:
        target = honest(path)
        documents = change([json.loads(line) for line in target.read_bytes().splitlines()])
        target.write_bytes(b"".join(line + b"\n" for line in resealed(documents)))
        return target

    session.transcript = transcript  # type: ignore[method-assign]


class TestVerify:
    def test_what_was_seen_is_found(self, curator: Curator, session: Session) -> None:
        """From the opening on, by whichever call something was told. Catches a kept hash that goes back when a repeated
        call gets its old reply, or that some call does not keep."""
        assert session.head == (0, session.opened.head_hash)
        assert session.verify().summary["entries"] == 0
        first = session.ask(FEMALE, key="first")
        assert session.head == (1, first.entry_hash)
        answers = session.ask_many([*AGES, FEMALE])
        last = answers[-1]
        assert isinstance(last, Answer)
        assert session.ask(FEMALE, key="first").entry_hash == first.entry_hash
        assert session.head == (5, last.entry_hash)
        found = session.verify(replay=True).summary
        assert (found["entries"], found["kept_head_at"], found["status"]) == (5, 5, "open")
        mean = session.ask_mean(where(sex="male").count(), over=100)
        assert session.head == (6, mean.entry_hash)
        other = curator.resume(session.id)
        assert other.head == session.head
        other.ask(AGES[0])
        # What another client added follows, but was not seen here.
        found = session.verify(replay=True).summary
        assert (found["entries"], found["kept_head_at"]) == (7, 6)
        assert session.state().head_hash == (session.head or ("", ""))[1]
        session.close()
        assert session.verify().summary["status"] == "closed"

    @pytest.mark.parametrize("replay", [False, True])
    @pytest.mark.parametrize("attack", ["cut", "all later", "one later", "of another"])
    def test_another_past_is_refused(
        self, service: Service, curator: Curator, session: Session, attack: str, replay: bool
    ) -> None:
        """A server that shows another past than the one it told, every hash made good, and replay alone satisfied.
        Catches a check that needs a replay for that."""
        session.ask_many([FEMALE, *AGES, FEMALE])

        def change(documents: list[Document]) -> list[Document]:
            if attack == "cut":
                return [*documents[:-2], documents[-1]]
            if attack == "one later":
                return [*documents[:-2], documents[-2] | {"recorded_at": "2100-01-01T00:00:00Z"}, documents[-1]]
            if attack == "of another":
                return [documents[0] | {"session": "0" * 32}, *documents[1:]]
            return [d | {"recorded_at": "2100-01-01T00:00:00Z"} if "recorded_at" in d else d for d in documents]

        showing(session, change)
        with pytest.raises(NotVerified, match=r"cut off|is not the one|not that of session"):
            session.verify(replay=replay)
        session._head, session.told = None, SeenEntries()
        if attack == "of another":
            with pytest.raises(NotVerified, match="not that of session"):
                session.verify(replay=replay)
        else:
            assert session.verify(replay=replay).summary["entries"] >= 4  # who kept nothing cannot tell

    def test_what_does_not_follow(self, session: Session) -> None:
        """The entry is named, and a limit of memory is kept to."""
        session.ask_many([FEMALE, *AGES])

        def change(documents: list[Document]) -> list[Document]:
            documents[2]["error_bound"] *= 3
            return documents

        with pytest.raises(NotVerified, match="more memory than the limit"):
            session.verify(replay=True, memory_limit=1000)
        showing(session, change)
        with pytest.raises(NotVerified, match="entry 2 is not the one"):
            session.verify(replay=True)
        session._head, session.told = None, SeenEntries()
        assert session.verify().summary["entries"] == 4  # its chain holds
        with pytest.raises(NotVerified, match="entry 2: the error bound is larger"):
            session.verify(replay=True)


def changing(session: Session, change: Callable[[list[Document]], list[Document]]) -> None:
    """As :func:`showing`, and the server answers whoever asks for a newest entry by that of the changed transcript."""
    showing(session, change)
    session._head = None


class TestEverythingThatWasTold:
    """Beside the newest entry, whose hash covers the others as they are shown."""

    def test_a_tail_that_is_made_anew(self, session: Session) -> None:
        """An answer is changed after the fact, and every hash behind it made good; the newest hash of the changed past
        was told, too, as by a server that goes on from it. Catches a client that keeps the newest alone.
        """
        session.ask_many([FEMALE, *AGES, FEMALE])

        def change(documents: list[Document]) -> list[Document]:
            documents[2]["recorded_at"] = documents[3]["recorded_at"] = documents[4]["recorded_at"]
            documents[2]["recorded_at"] = documents[1]["recorded_at"][:-1] + "Z"
            return [d | {"recorded_at": "2100-01-01T00:00:00Z"} if d.get("sequence", 0) > 2 else d for d in documents]

        changing(session, change)
        with pytest.raises(NotVerified, match="entry 3 is not the one that was told of"):
            session.verify()
        forgetful = SeenEntries()
        session.told = forgetful
        assert session.verify(replay=True).summary["entries"] == 5  # a replay cannot tell

    def test_a_value_other_than_its_entry(self, session: Session) -> None:
        """A reply that tells a number beside the hash of an entry with another one. Catches a client that takes the
        hash for the answer.
        """
        answer = session.ask(FEMALE)
        session.verify()
        session.told = SeenEntries()
        session.told.add(1, answer.entry_hash or "", answer + 1)
        with pytest.raises(NotVerified, match="entry 1 is not the one"):
            session.verify()

    def test_an_end_cut_off(self, session: Session) -> None:
        """Catches entries that were told of and are not looked for beyond the last one that is shown."""
        session.ask_many([FEMALE, *AGES])
        changing(session, lambda documents: [*documents[:-2], documents[-1]])
        with pytest.raises(NotVerified, match="entry 4, which was told of, is not there"):
            session.verify()

    def test_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many answers there are. Catches memory that grows, the newest let go, and old ones all of them."""
        monkeypatch.setattr(seen_entries, "MOST_KEPT", 100)
        told = SeenEntries()
        for sequence in range(1, 10_000):
            told.add(sequence, f"{sequence:064x}", 1.0)
            told.add(sequence, f"{sequence:064x}", 1.0)
            assert len(told) <= 100

        def shown(*changed: int) -> list[bytes]:
            return [
                json.dumps({"sequence": n, "entry_hash": f"{n + (n in changed):064x}", "value": 1.0}).encode()
                for n in range(1, 10_000)
            ]

        told.check(shown())
        with pytest.raises(NotVerified, match="entry 9999 is"):
            told.check(shown(9999))
        with pytest.raises(NotVerified, match="is not the one"):
            told.check(shown(*range(1, 5000)))


def later(documents: list[Document]) -> list[Document]:
    """Every entry at another time."""
    return [d | {"recorded_at": "2100-01-01T00:00:00Z"} if "recorded_at" in d else d for d in documents]


class TestTheLog:
    def test_with_a_folder(self, service: Service, curator: Curator, session: Session, tmp_path: Path) -> None:
        """The whole transcript is held against the log. Catches a server that changes the past before anybody has kept
        a hash, or cuts off its end, and a session that passes by a log that is not kept as far.
        """
        folder = LogFolder(tmp_path / "log")
        session.ask_many([FEMALE, *AGES])
        found = soon(lambda: fetch(folder, curator) and session.verify(log=folder.path))
        assert found.summary["records"] == 5
        assert any("all 5 records of the transcript are among" in each for each in found.checked)
        assert not any("log has the same" in each for each in found.not_checked)
        assert session.verify(log=Log(folder.path)).summary["log"] == found.summary["log"]
        for change in (
            later,
            lambda documents: [*documents[:-2], documents[-1]],
            lambda documents: [*documents[:-1], documents[-1] | {"status": "closed"}],
        ):
            other = curator.resume(session.id)
            other.told = SeenEntries()
            changing(other, change)
            assert other.verify(replay=True).summary["entries"] in (3, 4)  # a replay by itself cannot tell
            with pytest.raises(NotVerified, match="of the log that are kept"):
                other.verify(log=folder.path)
        session.ask(FEMALE)
        with pytest.raises(NotVerified, match="fetch those that came since"):
            session.verify(log=folder.path)

    def test_with_an_analysts_key(self, tmp_path: Path) -> None:
        """Checkpoints alone: what could not be checked is said, and a log that shrank or was forked between two looks
        is found. Catches a client that takes any signed checkpoint.
        """
        with serving(tmp_path / "one", log_key=KEY) as honest, Curator(honest.url, honest.admin_key) as admin:
            key = admin.add_principal("ann", "analyst")
            name = people(honest)
            with Curator(honest.url, key) as ann:
                session = ann.session(name, mechanism={"construction": "mw"}, epsilon=0.2, max_queries=9, max_updates=5)

                def begun() -> Verdict:
                    found = session.verify(log=True)
                    if not found.summary["log"]["size"]:  # every log begins with an empty one
                        raise NotVerified("not yet")
                    return found

                first = soon(begun)
                size = first.summary["log"]["size"]
                assert any("that the records are in the log" in each for each in first.not_checked)
                assert BEGINS not in first.not_checked
                session.ask(FEMALE)

                def grown() -> Verdict:
                    found = session.verify(log=True)
                    if found.summary["log"]["size"] == size or BEGINS not in found.not_checked:
                        raise NotVerified("not yet")
                    return found

                soon(grown)
                signer = Signer(bytes(range(32)))
                size = ann._service.seen_log.look()["size"]
                for note, problem in (
                    (signer.note(size - 1, bytes(32)), "entries and had"),
                    (signer.note(size, bytes(32)), "two different logs"),
                    (Signer(bytes(32)).note(size + 9, bytes(32)), "not signed"),
                ):
                    planted(session, note)
                    with pytest.raises(Contradicted, match=problem):
                        session.verify(log=True)
                # Another key counts once the known one has vouched for it.
                new = Signer(bytes(32), signer.verifier.name)
                shown = new.note(size + 9, bytes(32))
                forged = KeyChange.signed(size, new, signer)
                planted(session, shown, [forged])
                with pytest.raises(Contradicted, match="not signed"):
                    session.verify(log=True)
                planted(session, shown, [KeyChange.signed(size, signer, new)])
                assert session.verify(log=True).summary["log"]["size"] == size + 9
            # Who may have proofs is shown one, where there is one.
            session = admin.session(name, mechanism={"construction": "mw"}, epsilon=0.2, max_queries=9, max_updates=5)
            session.verify(log=True)
            session.ask(FEMALE)

            def proven() -> None:
                if BEGINS not in session.verify(log=True).checked:
                    raise NotVerified("not yet")

            soon(proven)
            size = admin._service.seen_log.look()["size"]
            planted(session, signer.note(size + 1, bytes(32)))
            session.ask(AGES[0])

            def verify() -> None:
                """As soon as the log is that large, and has a proof. Nobody asks for a checkpoint, which hurries it."""
                honest.built.services.sequencer.hurry()
                try:
                    session.verify(log=True)
                except Refused as problem:
                    raise NotVerified("not yet") from problem

            with pytest.raises(Contradicted, match="does not begin"):
                soon(verify)

    def test_the_command(self, service: Service, curator: Curator, session: Session, tmp_path: Path) -> None:
        """Catches exit codes other than those documented."""
        session.ask_many([FEMALE, *AGES])
        kept = tmp_path / "log"
        soon(lambda: fetch(LogFolder(kept), curator) and session.verify(log=kept))

        def verify(*more: str) -> tuple[int, str]:
            client = {"CURATOR_URL": service.url, "CURATOR_API_KEY": service.admin_key}
            done = run(["session", "verify", session.id, *more], environment(tmp_path, None) | client)
            return done.returncode, " ".join((done.stdout + done.stderr).split())

        code, told = verify()
        assert (code, "not checked: that the records are in the log" in told) == (0, True), told
        code, told = verify("--log", str(kept))
        assert (code, "checked: all 5 records" in told, "log has the same" in told) == (0, True, False), told
        code, told = verify("--log", str(kept), "--json")
        assert (code, json.loads(told)["records"]) == (0, 5)
        code, told = verify("--log", str(tmp_path / "nothing"))
        assert code == 2, told
        session.ask(FEMALE)
        code, told = verify("--log", str(kept))
        assert (code, "fetch those that came since" in told) == (1, True), told
        (kept / "entries.ndjson").write_bytes(b"")
        code, told = verify("--log", str(kept))
        assert (code, "cannot be what it was" in told) == (3, True), told


def planted(session: Session, note: bytes, statements: Sequence[bytes] = ()) -> None:
    """Let the server show this checkpoint, and these changes of the log's key."""
    transport, honest = session._transport, type(session._transport).send

    def send(call: Call, *more: object) -> httpx.Response:
        if call.path == "/v1/log/checkpoint":
            return httpx.Response(200, content=note)
        if call.path == "/v1/log/key" and statements:
            return httpx.Response(200, json={"previous": [statement.decode() for statement in statements]})
        return honest(transport, call, *more)  # type: ignore[arg-type]

    transport.send = send  # type: ignore[method-assign]
