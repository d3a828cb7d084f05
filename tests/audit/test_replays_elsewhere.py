"""Transcripts that others replay for an audit: the same is found, whoever does it and whatever becomes of them."""

from __future__ import annotations

import json
import math
import pickle
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, update

from app.audit.against_log import NUMBERS, Due, Found
from app.audit.watching import Differs
from app.bootstrap import audit_worker
from app.bootstrap.audit_worker import AT_ONCE, MOST_WAITING, ProcessChecker, _Spread
from app.bootstrap.release_worker import ProcessFinisher
from app.bootstrap.table_finisher import TableFinisher
from app.services import replay_tasks
from app.services.closed_forms import Damaged, sealed
from app.services.replay_tasks import carried_out, found_in, name_of, written
from app.storage import tables as t
from app.storage.database import make_engines
from app.storage.job_table import JobTable
from curator_client.proofs.findings import Unfollowed
from tests.audit.auditing import audited, caught_up, started, story, until
from tests.audit.folders import found_of
from tests.audit.tampering import tell
from tests.audit.test_folder import log_of, played
from tests.audit.test_report_against_replay import folder_of, hurt, keep_all
from tests.kit.patience import patience
from tests.kit.service import Service, open_session, people, serving
from tests.releases.test_finishers import MEMORY, at_work, rows, silence


def nothing(_: float) -> None:
    pass


def through_forms(due: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
    """Each transcript replayed as on another machine, which has the bytes of a task and nothing else."""
    for each in due:
        if isinstance(each, Unfollowed):
            yield each
        else:
            task = written(each)[1]
            yield found_in(carried_out(task, nothing), name_of(task))


@pytest.mark.unit
@pytest.mark.slow
def test_the_same_is_found_of_whatever_is_changed(tmp_path: Path) -> None:
    """A service's log and transcripts, honest and with one thing other than it was; the oracle is the replay here.
    Catches a part of a task or of what is found that a closed form loses, and a rule that needs more than it holds.
    """
    told = tell(tmp_path / "service", ["evidence", "mw, bought", "workload"])
    ids = [json.loads(own[0])["session"] for pair in told.transcripts.values() for own in pair]
    honest = dict(zip(ids, (own for pair in told.transcripts.values() for own in pair), strict=True))
    kept = keep_all(tmp_path / "honest", told.log, honest)
    assert found_of(kept, through_forms) == found_of(kept)
    assert found_of(kept)[0]["verdict"] == "holds"
    rng, seen = random.Random(11), set[str]()
    for number in range(30):
        log, transcripts = [*told.log], {id: [*own] for id, own in honest.items()}
        hurt(rng, log if number % 3 == 0 else transcripts[rng.choice(ids)])
        kept = keep_all(tmp_path / f"log{number}", log, transcripts)
        here = found_of(kept)
        assert found_of(kept, through_forms) == here, number
        seen |= {check["says"] for check in here[0]["checks"] if check["check"] == "replay"}
    assert len(seen) > 8
    assert any("does not have the line that the log has" in says for says in seen)


def writing_down(tasks: list[bytes]) -> Callable[[Iterator[Due | Unfollowed]], Iterator[Found | Unfollowed]]:
    """Replays here, and keeps what would be handed on."""

    def replays(due: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
        for each in due:
            assert isinstance(each, Due)
            again, task = written(each)
            tasks.append(task)
            yield again.replayed(MEMORY, lambda _: None)

    return replays


@pytest.mark.unit
def test_a_task_holds_what_auditors_have_and_nothing_more(tmp_path: Path) -> None:
    """Line by line; beside those a line of numbers and hashes. Catches a number, a name or a key of the server in what
    is handed to machines that see nothing else.
    """
    kept = folder_of(tmp_path, log_of(played()))
    tasks: list[bytes] = []
    assert found_of(kept, writing_down(tasks))[0]["verdict"] == "holds"
    ((_, first, *rest),) = (task.splitlines() for task in tasks)
    lines = (kept / "entries.ndjson").read_bytes().splitlines()
    assert set(rest) <= {*lines, *played().lines}
    beside = json.loads(first)
    assert {name: type(value) for name, value in beside.items() if name not in ("digests", "sizes", "sought")} == {
        "entries": int,
        "movements": int,
    }
    assert [len(bytes.fromhex(each)) for each in beside["digests"]] == [32, 32]
    assert 0 < beside["sizes"][0] <= beside["sizes"][1] == len(lines)
    assert beside["sought"] == []


# ---------------------------------------------------------------------- the closed forms


#: The name of a task.
TASK = name_of(b"a task")


def one_found() -> bytes:
    names = ("entries", "forfeit_answers", "hypothesis_answers", "estimate_answers", "cached_answers")
    numbers = dict.fromkeys((*names, "unverified_answers", "measurement_answers"), 3)
    summary = {"status": "open", "head_hash": "ab", **numbers}
    told = {"of": TASK, "beyond": 1, "made": ["00ff"], "misplaced": True, "missing": 2, "summary": summary}
    return sealed("replay-result", orjson.dumps(told))


@pytest.mark.unit
def test_what_was_found_is_read() -> None:
    found = found_in(one_found(), TASK)
    assert isinstance(found, Found)
    assert (found.beyond, found.missing, found.misplaced, found.made) == (1, 2, True, {b"\x00\xff"})
    told = {"of": TASK, "problem": "p", "entry": 3, "movement": None, "differs": True}
    broken = found_in(sealed("replay-result", orjson.dumps(told)), TASK)
    assert isinstance(broken, Differs)
    assert (broken.problem, broken.entry, broken.movement) == ("p", 3, None)


@pytest.mark.unit
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_that_has_changed_is_seen(at: float, bit: int) -> None:
    """Catches a verdict of what was changed on the way."""
    content = bytearray(one_found())
    content[int(at * len(content))] ^= 1 << bit
    with pytest.raises(Damaged):
        found_in(bytes(content), TASK)


@pytest.mark.unit
@given(st.binary(max_size=200))
def test_bytes_that_are_no_form_are_refused(content: bytes) -> None:
    with pytest.raises(Damaged):
        found_in(content, TASK)
    with pytest.raises(Damaged):
        carried_out(content, nothing)


@pytest.mark.unit
@pytest.mark.parametrize(
    "change",
    [
        {"of": None},
        {"of": name_of(b"another")},
        {"beyond": "1"},
        {"beyond": -1},
        {"missing": 1 << 53},
        {"summary": {"status": "open", "head_hash": "ab", **dict.fromkeys(NUMBERS, 1 << 63)}},
        {"missing": True},
        {"misplaced": 0},
        {"made": ["xy"]},
        {"made": None},
        {"summary": {}},
        {"summary": {"status": 7}},
        {"problem": "p"},
        {"problem": 7, "differs": False, "entry": None, "movement": None},
        {"problem": "p", "differs": False, "entry": "1", "movement": None},
        {"problem": "p", "differs": False, "entry": 1, "movement": -1},
    ],
)
def test_a_finding_of_another_form_is_refused(change: dict[str, Any]) -> None:
    """A worker is not trusted to write what it should. Catches a report with whatever it wrote."""
    told = orjson.loads(one_found().split(b"\n", 1)[1])
    with pytest.raises(Damaged):
        found_in(sealed("replay-result", orjson.dumps({**told, **change})), TASK)


@pytest.mark.unit
def test_what_another_version_found_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was not upgraded with its server may not know a rule. Catches a verdict by the rules of before."""
    tasks: list[bytes] = []
    found_of(folder_of(tmp_path, log_of(played())), writing_down(tasks))
    (task,) = tasks
    assert isinstance(found_in(carried_out(task, nothing), name_of(task)), Found)
    with monkeypatch.context() as patch:
        patch.setattr(replay_tasks, "__version__", "0.0.1")
        old = carried_out(task, nothing)
    with pytest.raises(Damaged, match="another version"):
        found_in(old, name_of(task))


@pytest.mark.unit
def test_only_so_many_sessions_wait_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is replayed elsewhere, and nobody does it. Catches an audit that holds all sessions behind it in
    memory, which is bounded."""
    asked, pulled = list[Any](), 0

    def due(first: Due) -> Iterator[Due | Unfollowed]:
        nonlocal pulled
        yield first
        for pulled in range(1, 10 * MOST_WAITING):
            yield Unfollowed(f"session {pulled}")

    def back(_: Any) -> bytes:
        word, awaited = pickle.loads(asked[-1])
        assert word == "replayed"
        assert pulled <= MOST_WAITING
        return pickle.dumps([(0, None)] if awaited else [])

    monkeypatch.setattr(audit_worker, "send", lambda _, content: asked.append(content))
    monkeypatch.setattr(audit_worker, "receive", back)

    def replays(each: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
        first = next(each)
        assert isinstance(first, Due)
        found = list(_Spread(None, MEMORY)(due(first)))  # type: ignore[arg-type]
        assert isinstance(found[0], Found)
        said = [one.problem for one in found[1:] if isinstance(one, Unfollowed)]
        assert said == [f"session {number}" for number in range(1, 10 * MOST_WAITING)]
        yield found[0]

    assert found_of(folder_of(tmp_path, log_of(played())), replays)[0]["verdict"] == "holds"
    assert pulled == 10 * MOST_WAITING - 1


@pytest.mark.unit
@pytest.mark.parametrize(("parts", "away"), [(9, 1), (7, 0)])
def test_a_process_hands_on_what_its_memory_holds_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, away: int
) -> None:
    """It may take so many times as much as a transcript has. Catches an audit that needs more memory with others than
    by itself, where it is read line by line."""
    sent = list[bytes]()
    monkeypatch.setattr(audit_worker, "send", lambda _, content: sent.append(content))
    monkeypatch.setattr(audit_worker, "receive", lambda _: pickle.dumps([(0, None)]))
    length = sum(len(line) + 1 for line in played().lines)

    def replays(due: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
        yield from _Spread(None, parts * length)(due)  # type: ignore[arg-type]

    assert found_of(folder_of(tmp_path, log_of(played())), replays)[0]["verdict"] == "holds"
    assert [pickle.loads(each)[0] for each in sent].count("replay") == away


@pytest.mark.unit
@pytest.mark.parametrize("body", [b"", b"{}", b"[]\n", b'{"movements":2}\nx\ny', b'{"movements":-1}\n{}'])
def test_a_task_that_follows_from_no_log_is_refused(body: bytes) -> None:
    with pytest.raises(Damaged):
        carried_out(sealed("replay-task", body), nothing)


# ---------------------------------------------------------------------- an audit, and who works for it


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One with more sessions than are replayed elsewhere at a time."""
    with serving(tmp_path_factory.mktemp("service")) as made:
        ids, name = story(made), people(made)
        ids += [str(open_session(made.admin, name, epsilon=0.01)["id"]) for _ in range(2 * AT_ONCE)]
        caught_up(made, ids)
        yield made


@pytest.fixture(scope="module")
def auditor(service: Service) -> httpx.Client:
    client = service.principal("auditor")
    caught_up(service, [])
    return client


def checking(service: Service, checker: ProcessChecker, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service.built.services.audit_jobs, "_checker", checker)


#: Verdict, result, and the report in both forms.
Told = tuple[str, dict[str, Any], bytes, bytes]


def told_of(auditor: httpx.Client) -> Told:
    """What an audit tells."""
    last = audited(auditor)
    assert last["status"] == "done", last
    forms = ("application/json", "text/html")
    first, second = (auditor.get(last["links"]["report"], headers={"Accept": form}).content for form in forms)
    return last["verdict"], last["result"], first, second


@pytest.fixture(scope="module")
def alone(auditor: httpx.Client) -> Told:
    """What is told where nobody else works."""
    return told_of(auditor)


class Counting(ProcessFinisher):
    """Somebody else, who counts what he did."""

    done = 0

    def finish(self, task: bytes, progress: Any) -> bytes:
        result = super().finish(task, progress)
        Counting.done += 1
        return result


@pytest.mark.api
@pytest.mark.slow
def test_an_audit_with_others_tells_the_same(
    service: Service, auditor: httpx.Client, alone: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte. Catches a session that is told twice, in another place or by nobody, and one that nobody else
    was given.
    """
    assert alone[0] == "holds"
    checking(service, ProcessChecker(MEMORY, lambda: Counting(MEMORY)), monkeypatch)
    assert told_of(auditor) == alone
    assert Counting.done >= AT_ONCE


@pytest.mark.api
@pytest.mark.slow
def test_what_others_cannot_do_is_done_here(
    service: Service, auditor: httpx.Client, alone: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have too little memory. Catches an audit that fails of its helpers."""
    checking(service, ProcessChecker(MEMORY, lambda: ProcessFinisher(1 << 16)), monkeypatch)
    assert told_of(auditor) == alone


class Confused(ProcessFinisher):
    """Somebody else, who tells of every transcript what he found of the first one."""

    first: bytes | None = None

    def finish(self, task: bytes, progress: Any) -> bytes:
        Confused.first = Confused.first or super().finish(task, progress)
        return Confused.first


@pytest.mark.api
@pytest.mark.slow
def test_what_was_found_of_another_transcript_is_not_believed(
    service: Service, auditor: httpx.Client, alone: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a session that holds because another one does."""
    checking(service, ProcessChecker(MEMORY, lambda: Confused(MEMORY)), monkeypatch)
    assert told_of(auditor) == alone
    assert Confused.first is not None


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    _, made = make_engines(postgres_url)
    yield made
    made.dispose()


@pytest.fixture
def by_table(service: Service, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> JobTable:
    """The table over which the service has transcripts replayed."""
    jobs = JobTable(engine)
    checking(service, ProcessChecker(MEMORY, partial(TableFinisher, jobs, 60.0, "replay")), monkeypatch)
    return jobs


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.postgres
def test_workers_over_the_table_may_fall_silent(
    auditor: httpx.Client, alone: Told, by_table: JobTable, engine: Engine
) -> None:
    """One takes a replay and is gone; another has it after the silence, and all others. Catches a session that is
    lost, and what is left in the table.
    """
    id = started(auditor)
    until(lambda: by_table.claim() is not None)
    silence(engine)
    assert {row.kind for row in rows(engine)} == {"replay"}
    with at_work(by_table, ProcessFinisher):
        until(lambda: auditor.get(f"/v1/audits/{id}").json()["status"] == "done")
        assert told_of(auditor) == alone
    last = auditor.get(f"/v1/audits/{id}").json()
    assert (last["verdict"], last["result"]) == alone[:2]
    assert rows(engine) == []


#: What a role of workers may write in place of an end, each about a job that it has or has not taken.
NONSENSE: list[dict[str, Any]] = [
    {"status": "ended", "end": "done", "result": b""},
    {"status": "ended", "end": "done", "result": None},
    {"status": "ended", "end": "done", "result": b"\x00" * 4000},
    {"status": "waiting", "end": "done", "result": one_found(), "progress": math.nan},
    {"status": "ended", "end": "refused", "result": b"{}", "progress": math.inf},
    {"status": "ended", "end": "refused", "result": sealed("refusal", b'{"refusal":"CuratorError","detail":"d"}')},
    {
        "status": "ended",
        "end": "refused",
        "result": sealed("refusal", b'{"refusal":"CuratorError","detail":"d","extra":{"detail":"e","self":1}}'),
    },
    {"status": "ended", "end": "late", "result": b"\xff\xfe", "progress": -1e308},
    {"status": "of tomorrow", "end": "unknown", "result": b"x", "claims": 2**31 - 1},
    {"status": "running", "worker": None, "beat": -1.0, "claims": -5, "end": "died", "result": b"x"},
]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.postgres
def test_whatever_a_worker_writes_the_same_is_found(
    auditor: httpx.Client, alone: Told, by_table: JobTable, engine: Engine
) -> None:
    """Nonsense of ten kinds, in turn, and no worker that works. Catches an audit that fails of what its helpers write,
    and a verdict of it."""
    assert isinstance(by_table, JobTable)
    id, number = started(auditor), 0
    while auditor.get(f"/v1/audits/{id}").json()["status"] != "done":
        for row in rows(engine):
            with engine.begin() as connection:
                told = NONSENSE[number % len(NONSENSE)]
                connection.execute(update(t.jobs).where(t.jobs.c.id == row.id, t.jobs.c.end.is_(None)).values(told))
            number += 1
    last = auditor.get(f"/v1/audits/{id}").json()
    assert (last["verdict"], last["result"]) == alone[:2]
    forms = ("application/json", "text/html")
    for form, told_alone in zip(forms, alone[2:], strict=True):
        assert auditor.get(last["links"]["report"], headers={"Accept": form}).content == told_alone
    assert number >= AT_ONCE
    assert rows(engine) == []


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.postgres
def test_an_audit_that_waits_for_workers_can_be_stopped(
    auditor: httpx.Client, by_table: JobTable, engine: Engine
) -> None:
    """No worker is there. Catches an audit that nothing ends, and replays that are left for nobody."""
    id = started(auditor)
    until(lambda: len(rows(engine)) == AT_ONCE)
    time.sleep(1.0)  # so that there is nothing left to do but to wait
    begun = time.monotonic()
    assert auditor.delete(f"/v1/audits/{id}").json()["status"] == "stopping"
    until(lambda: auditor.get(f"/v1/audits/{id}").json()["status"] == "stopped")
    assert time.monotonic() - begun < patience(5)
    assert rows(engine) == []
