"""The client's own check: what a server shows of a session is held against what it told while the session ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.client import Answer, Curator, NotVerified, Session, predicate
from tests.api.support import Service, people
from tests.unit.audit.transcripts import Document, reseal

FEMALE = predicate(sex={"equals": "female"})
AGES = [predicate(age={"between": [low, 80]}) for low in (20, 40, 60)]


@pytest.fixture
def curator(service: Service) -> Iterator[Curator]:
    with Curator(service.url, service.admin_key) as client:
        yield client


@pytest.fixture
def session(service: Service, curator: Curator) -> Session:
    return curator.open_session(people(service), {"construction": "mw"}, epsilon=0.2, max_queries=100, max_updates=5)


def showing(session: Session, change: Callable[[list[Document]], list[Document]]) -> None:
    """Let the server show this session's transcript changed, every hash of it made good."""
    honest = session.transcript

    def transcript(path: Path | str, **more: object) -> Path:
        target = honest(path)
        documents = change([json.loads(line) for line in target.read_bytes().splitlines()])
        target.write_bytes(b"".join(line + b"\n" for line in reseal(documents)))
        return target

    session.transcript = transcript  # type: ignore[method-assign]


class TestVerify:
    def test_what_was_seen_is_found(self, curator: Curator, session: Session) -> None:
        """From the opening on, by whichever call something was told. Catches a kept hash that goes back when a repeated
        call gets its old reply, or that some call does not keep."""
        assert session.seen == (0, session.opened.head_hash)
        assert session.verify()["entries"] == 0
        first = session.ask(FEMALE, key="first")
        assert session.seen == (1, first.entry_hash)
        answers = session.ask_many([*AGES, FEMALE])
        last = answers[-1]
        assert isinstance(last, Answer)
        assert session.ask(FEMALE, key="first").entry_hash == first.entry_hash
        assert session.seen == (5, last.entry_hash)
        found = session.verify()
        assert (found["entries"], found["kept_head_at"], found["status"]) == (5, 5, "open")
        mean = session.ask_mean(predicate(sex={"equals": "male"}), over=100)
        assert session.seen == (6, mean.entry_hash)
        other = curator.session(session.id)
        assert other.seen == session.seen
        other.ask(AGES[0])
        found = session.verify()  # what another client added follows, but was not seen here
        assert (found["entries"], found["kept_head_at"]) == (7, 6)
        assert session.state().head_hash == (session.seen or ("", ""))[1]
        session.close()
        assert session.verify()["status"] == "closed"

    @pytest.mark.parametrize("attack", ["cut", "all later", "one later", "of another"])
    def test_another_past_is_refused(self, service: Service, curator: Curator, session: Session, attack: str) -> None:
        """A server that shows another past than the one it told, every hash made good, and replay alone satisfied."""
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
        with pytest.raises(NotVerified, match=r"cut off|is not there"):
            session.verify()
        session.seen = None
        if attack == "of another":
            with pytest.raises(NotVerified, match="not that of session"):
                session.verify()
        else:
            assert session.verify()["updates"] >= 0  # who kept nothing cannot tell

    def test_what_does_not_follow(self, session: Session) -> None:
        """The entry is named, and a limit of memory is kept to."""
        session.ask_many([FEMALE, *AGES])

        def change(documents: list[Document]) -> list[Document]:
            documents[2]["error_bound"] *= 3
            return documents

        with pytest.raises(NotVerified, match="more memory than the limit"):
            session.verify(memory_limit=1000)
        showing(session, change)
        with pytest.raises(NotVerified, match="entry 2: the error bound is larger"):
            session.verify()
