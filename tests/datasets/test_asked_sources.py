"""Tables that are too wide for all of their cells to be counted: what is asked is counted where the records lie, once.

The oracle is a plain loop over the records. These would catch a class that a record is counted in twice or not at all,
files that are asked though they are not what was registered, and counts that outlive their data set.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.bootstrap import reader_process, wiring
from app.bootstrap.reader_process import ProcessReaders
from app.declarations.spec import SOURCES_OF_FILES
from app.services.errors import Unavailable
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, Contraction, NotCounted, Tally
from app.spaces.partition import Partition
from app.storage.kept_counts import NOTHING_KEPT
from app.storage.private_data import SourceData
from app.storage.sources import Engine, ParquetFolders, Sources, compiled, outcome, parquet
from tests.audit.auditing import audited
from tests.datasets import source_files as plain
from tests.datasets.source_files import JSON, declare, write
from tests.datasets.test_sources import MEMORY, MOVES, at_work, lay, sources, table
from tests.kit.noise import Noise, nothing
from tests.kit.patience import patience
from tests.kit.service import Service, ask, open_session, people, refused, serving, unique, where
from tests.kit.world import eventually
from tests.questions.test_exact_counts import brute, same, tallies

WARD = {"name": "ward", "size": 3}
YEAR = {"name": "year", "size": 6000}
SUM = CellCounts((0,), (None,), (3,), factors=((1, np.arange(6000)),))
BY_WARD = CellCounts((0,), (None,), (3,))
OLD = CellCounts((0,), (None,), (3,), where=((1, slice(3000, 6000)),))


TALLIES = "curator_source_tallies_total"


def asked_counts(declared: JSON, folder: Path, engine: Engine = parquet, memory: int = MEMORY) -> AskedCounts:
    """What a table's records are asked by, kept in memory alone."""
    found = Sources(dict.fromkeys(SOURCES_OF_FILES, ParquetFolders(engine, [folder], memory)))
    spec = table(declared)
    data = found.register(spec).data
    assert isinstance(data, SourceData)
    shape = tuple(attribute.length for attribute in spec.attributes)
    return AskedCounts(shape, data.mass, found.asking(data), NOTHING_KEPT.of("x"))


def told(counts: AskedCounts, *asked: Tally) -> list[Any]:
    try:
        return list(counts.tell(asked))
    except NotCounted as lacking:
        lacking.count()
    return list(counts.tell(asked))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is too wide."""
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)


@pytest.mark.unit
@pytest.mark.slow
@pytest.mark.usefixtures("wide")
@given(source=sources(strays=False), data=st.data())
def test_what_is_asked_is_what_a_plain_loop_counts(tmp_path_factory: Any, source: Any, data: st.DataObject) -> None:
    """Of any declaration whose records all lie inside. Would catch a place that is looked up beside its own, a file
    that is counted twice or not at all, and a weight of another value."""
    attributes, _, records, _ = source
    shape = tuple(plain.places(a) + bool(a.get("missing")) for a in attributes)
    assume(math.prod(shape) <= 1 << 12)
    folder = tmp_path_factory.getbasetemp() / "asked"
    lay(folder, source)
    entries = np.zeros(shape, np.int64)
    for cell, number in plain.count(attributes, records).cells.items():
        entries[cell] = number
    counts = asked_counts(declare(attributes, "part=*/*.parquet"), folder)
    asked: list[Tally] = data.draw(st.lists(tallies(shape, (CellCounts, Contraction)), min_size=1, max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.spaces.asked.GATHERED_SECONDS", 0)
        patch.setattr("app.spaces.asked.MOST_WEIGHED", data.draw(st.sampled_from([0, 1 << 12])))
        patch.setattr(parquet, "_LISTED", data.draw(st.sampled_from([0, 1 << 12])))
        for tally, number in zip(asked, told(counts, *asked), strict=True):
            assert same(number, brute(tally, entries))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for number in (1, 2):
        write(tmp_path / f"{number}.parquet", {"ward": rng.integers(0, 3, 50), "year": rng.integers(0, 6000, 50)})
    return tmp_path


@pytest.mark.unit
@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("what", [what for what in MOVES if what not in ("a link now", "replaced by its copy")])
def test_records_that_moved_are_not_asked(folder: Path, what: str) -> None:
    """And what was counted before still answers. Would catch other data under the old name."""
    counts = asked_counts(declare([WARD, YEAR], "?.parquet"), folder)
    before = told(counts, BY_WARD)[0]
    MOVES[what](folder / "2.parquet")
    with pytest.raises(NotCounted) as lacking:
        counts.tell([OLD])
    with pytest.raises(Unavailable, match="not what was registered"):
        lacking.value.count()
    assert (told(counts, BY_WARD)[0] == before).all()


@pytest.mark.unit
@pytest.mark.usefixtures("wide")
def test_records_that_only_look_otherwise_are_asked(folder: Path) -> None:
    """As after a restore: equal contents in other files. They are read once, and from then on a look is enough."""
    counts = asked_counts(declare([WARD, YEAR], "?.parquet"), folder)
    for number in (1, 2):
        path = folder / f"{number}.parquet"
        shutil.copy(path, folder / "copy")
        os.replace(folder / "copy", path)
    assert told(counts, BY_WARD)[0].sum() == 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.storage.sources.files._digest", lambda file: pytest.fail("it is read again"))
        assert told(counts, OLD)[0].sum() <= 100


@pytest.mark.unit
@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("beside", ["3.parquet", "0.parquet"])
def test_a_file_more_is_another_source(folder: Path, beside: str) -> None:
    """One that the pattern finds, too. Would catch records that come to a data set after its registration."""
    counts = asked_counts(declare([WARD, YEAR], "?.parquet"), folder)
    shutil.copy(folder / "1.parquet", folder / beside)
    with pytest.raises(NotCounted) as lacking:
        counts.tell([BY_WARD])
    with pytest.raises(Unavailable):
        lacking.value.count()


@pytest.mark.unit
@pytest.mark.usefixtures("wide")
def test_nothing_filters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition is a class of every record: the text of no query has a word that leaves records out. Planted, a
    filter is found, as records are missing. Would catch a time that tells whether anybody satisfies a condition."""
    texts: list[str] = []
    honest = compiled.counts
    monkeypatch.setattr(compiled, "counts", lambda *how: texts.append(honest(*how)) or texts[-1])
    counts = asked_counts(declare([WARD, YEAR], "?.parquet"), folder)
    told(counts, OLD, SUM, Contraction((None, None)))
    assert texts
    for text in texts:
        assert not {"WHERE", "HAVING", "FILTER", "LIMIT", "QUALIFY"} & set(text.upper().replace("(", " ").split())
    records = parquet.Engine._records
    monkeypatch.setattr(
        parquet.Engine, "_records", lambda *how, **more: f"SELECT * FROM ({records(*how, **more)}) WHERE p1 >= 3000"
    )
    with pytest.raises(NotCounted) as lacking:
        counts.tell([CellCounts((1,), (Partition.runs(6000, [0, 10]),), (2,))])
    with pytest.raises(RuntimeError, match="another number"):
        lacking.value.count()


# ------------------------------------------------------------------------------------------------ processes


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of which one question takes seconds: of each record's value the bin is looked for."""
    folder = tmp_path_factory.mktemp("long-asked")
    write(folder / "x.parquet", {"ward": np.zeros(24 << 20, np.int8), "year": np.zeros(24 << 20, np.int8)})
    return folder


LONG = {"name": "ward", "edges": [k / 16 for k in range(2049)]}


@pytest.mark.unit
@pytest.mark.slow
def test_an_engine_that_is_killed_is_begun_once_more(long: Path) -> None:
    """And a second time refuses the question alone. Would catch a server that is stuck, or asks for ever."""
    attributes = [LONG, {"name": "year", "size": 2**14}]
    counts = asked_counts(declare(attributes, "*.parquet"), long, ProcessReaders(patience(60), patience(60)))
    asked = CellCounts((0,), (None,), (2048,))
    while at_work():  # of the registration, which may be about to end
        time.sleep(0.01)
    for kills in (2, 1):
        found: list[Any] = []

        def work(found: list[Any] = found) -> None:
            try:
                found.append(told(counts, asked)[0])
            except Unavailable as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        killed: set[int] = set()
        deadline = time.monotonic() + patience(60)
        while len(killed) < kills:
            assert time.monotonic() < deadline
            for worker in at_work():
                if worker.pid not in killed:
                    killed.add(worker.pid)
                    worker.kill()
                    break
            time.sleep(0.01)
        thread.join(patience(60))
        if kills == 2:
            assert found[0].detail == reader_process.ASKING.ended
        else:
            assert found[0][0] == 24 << 20


@pytest.mark.unit
@pytest.mark.slow
def test_counting_ends_at_its_time(long: Path) -> None:
    """Would catch a question that keeps an engine for ever."""
    attributes = [LONG, {"name": "year", "size": 2**14}]
    counts = asked_counts(declare(attributes, "*.parquet"), long, ProcessReaders(patience(60), 0.2))
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"longer than the 0\.2 s"):
        told(counts, CellCounts((0,), (None,), (2048,)))
    assert time.monotonic() - began < patience(0.2) + reader_process._GRACE


# ------------------------------------------------------------------------------------------------ over HTTP

ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 3, "column": "zebra-column"},
    {"name": "age", "lower": 0, "upper": 80, "bins": 4, "outside": "clamp", "missing": True},
    {"name": "year", "size": 2**18},
    {"name": "month", "size": 12},
]
MONTH = {"name": "month", "lower": 0, "upper": 11, "grid": 1}
WARDS, YEARS, MONTHS = np.arange(500) % 3, np.arange(500) * 501, np.arange(500) % 12
AGES = np.where(np.arange(500) % 7 == 0, np.nan, np.arange(500) % 90 * 1.0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zebra-lake")
    for number in range(2):
        half = slice(number * 250, (number + 1) * 250)
        columns = {"zebra-column": WARDS[half], "age": AGES[half], "year": YEARS[half], "month": MONTHS[half]}
        write(folder / "quux" / f"{number}.parquet", columns)
    return folder


@pytest.fixture(scope="module")
def var(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked") / "var"


def running(var: Path, lake: Path) -> Any:
    return serving(var, noise=Noise(nothing), source_folders=str(lake), source_tick_seconds=0.05)


@pytest.fixture(scope="module")
def service(var: Path, lake: Path) -> Iterator[Service]:
    with running(var, lake) as service:
        yield service


def registered(service: Service, lake: Path, prefix: str, **more: Any) -> tuple[str, Path]:
    """A data set of files of its own, and where these are."""
    name = unique(prefix)
    shutil.copytree(lake / "quux", lake / name)
    declared = {**declare(ATTRIBUTES, f"{name}/*.parquet"), "name": name, "budget": {"epsilon": 50.0, "delta": 1e-9}}
    declared |= more
    reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(declared))})
    assert reply.status_code == 201, reply.text
    assert reply.json()["report"]["read"] == 500
    return name, lake / name


def opened(analyst: httpx.Client, name: str, construction: str) -> str:
    """A session that measures each answer, or learns from all of them; noise is nothing here."""
    words = {"dataset": name, "mechanism": {"construction": construction}, "epsilon": 0.3, "max_queries": 20}
    reply = analyst.post("/v1/sessions", json=words)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


@pytest.mark.api
def test_answers_are_those_of_the_records(service: Service, lake: Path) -> None:
    """Without noise: counts, under conditions, of a marginal, and a mean; and the audit holds. Would catch a question
    that is answered of something else, and an opening that does not wait for its counts."""
    name, _ = registered(service, lake, "asked")
    analyst = service.principal("analyst")
    session = opened(analyst, name, "gaussian")
    assert ask(analyst, session, where(ward=1))["value"] == (WARDS == 1).sum()
    late = where(ward=[0, 2], year={"ge": 100_000})
    assert ask(analyst, session, late)["value"] == ((WARDS != 1) & (YEARS >= 100_000)).sum()
    assert ask(analyst, session, {"type": "marginal", "attributes": ["ward"]})["values"] == np.bincount(WARDS).tolist()
    queries = [where(age={"ge": 20, "lt": 60}), where(year={"lt": 9})]
    batch = analyst.post(f"/v1/sessions/{session}/queries/batch", json={"queries": queries}).json()["answers"]
    assert [each["value"] for each in batch] == [((AGES >= 20) & (AGES < 60)).sum(), (YEARS < 9).sum()]
    evidence = opened(analyst, name, "evidence")
    marginal = ask(analyst, evidence, {"type": "marginal", "attributes": ["ward", "month"]})["values"]
    table = np.zeros((3, 12))
    np.add.at(table, (WARDS, MONTHS), 1)
    # It is shrunk towards what is likely under the noise that it would have had; counts are 0 or about 42.
    assert np.reshape(marginal, (3, 12)) == pytest.approx(table, abs=12)
    assert audited(service.principal("auditor"), all=True)["verdict"] == "holds"


@pytest.mark.api
def test_replies_leave_at_the_declared_second(service: Service, lake: Path) -> None:
    """What is counted is answered two seconds after it was asked for, found or not; what was counted before, at once.
    Would catch a declaration that nobody heeds, and one that keeps what needs no source waiting."""
    name, files = registered(service, lake, "seconds", answer_seconds=2)
    assert service.admin.get(f"/v1/datasets/{name}").json()["domain"]["answer_seconds"] == 2
    analyst = service.principal("analyst")
    session = opened(analyst, name, "gaussian")

    def asked(query: JSON) -> tuple[int, float]:
        began = time.monotonic()
        reply = analyst.post(f"/v1/sessions/{session}/queries", json=query)
        return reply.status_code, time.monotonic() - began

    status, took = asked(where(ward=1, month=2))
    assert status == 200
    assert 2.0 <= took < 2.0 + patience(0.6)
    status, took = asked(where(ward=1))
    assert status == 200
    assert took < patience(1.0)
    shutil.rmtree(files)
    status, took = asked(where(ward=1, year=2))
    assert status == 503
    assert 2.0 <= took < 2.0 + patience(0.6)


@pytest.mark.api
def test_a_release_waits_as_questions_do(service: Service, lake: Path) -> None:
    """What it lacks is counted with what others wait for, and among what the metric tells. Would catch an engine that
    is started for a release beside as many as may be at work."""

    def countings() -> float:
        told = service.admin.get("/metrics").text
        return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith(f"{TALLIES}{{"))

    name, _ = registered(service, lake, "released")
    analyst, before = service.principal("analyst"), countings()
    words = {"dataset": name, "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 1.0}
    reply = analyst.post("/v1/releases", json=words)
    assert reply.status_code == 202, reply.text
    id = reply.json()["id"]
    done = eventually(lambda: _ended(analyst, id))
    assert done["status"] == "done", done
    assert countings() == before + 1


def _ended(analyst: httpx.Client, id: str) -> JSON | None:
    found: JSON = analyst.get(f"/v1/releases/{id}").json()
    return found if found["status"] in ("done", "failed") else None


@pytest.mark.api
def test_a_batch_is_counted_at_once(service: Service, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine questions, no two of the same classes. Would catch a source that is asked once a question, each of which
    waits for a tick."""
    asks: list[int] = []
    honest = ProcessReaders.ask_source

    def asking(self: Any, about: bytes, looked: Any, folders: Any, asked: Any, **more: Any) -> Any:
        asks.append(len(asked))
        return honest(self, about, looked, folders, asked, **more)

    monkeypatch.setattr(ProcessReaders, "ask_source", asking)
    name, _ = registered(service, lake, "batch")
    analyst = service.principal("analyst")
    session = opened(analyst, name, "gaussian")
    queries = [where(ward=0, year={"ge": 1000 * n, "lt": 100_000 + n}) for n in range(9)]
    batch = analyst.post(f"/v1/sessions/{session}/queries/batch", json={"queries": queries}).json()["answers"]
    expected = [((WARDS == 0) & (1000 * n <= YEARS) & (100_000 + n > YEARS)).sum() for n in range(9)]
    assert [each["value"] for each in batch] == expected
    assert len(asks) <= 2


@pytest.mark.api
def test_statistics_in_a_batch(service: Service, lake: Path) -> None:
    """Each waits for numbers of its own. Would catch a batch whose later questions are no sums of counts, for which
    nothing can be counted ahead, and one that may not wait as often as it has questions."""
    numbers = [each if each["name"] != "month" else MONTH for each in ATTRIBUTES]
    name, _ = registered(service, lake, "statistics", attributes=numbers)
    analyst = service.principal("analyst")
    session = opened(analyst, name, "evidence")
    queries = [
        where(month=3, ward=0),
        {"type": "mean", "of": "month", "where": {"ward": 1, "year": {"ge": 50_000}}},
        {"type": "quantile", "of": "month", "q": 0.5, "where": {"age": {"ge": 20, "lt": 60}, "year": {"ge": 9}}},
        {"type": "share", "of": {"month": 5}, "where": {"ward": 2, "year": {"lt": 200_000}}},
        {"type": "sum", "of": "month", "group_by": ["ward"]},
    ]
    reply = analyst.post(f"/v1/sessions/{session}/queries/batch", json={"queries": queries})
    assert reply.status_code == 200, reply.text
    answers = reply.json()["answers"]
    truths = [
        ((MONTHS == 3) & (WARDS == 0)).sum(),
        MONTHS[(WARDS == 1) & (YEARS >= 50_000)].mean(),
        np.median(MONTHS[(AGES >= 20) & (AGES < 60) & (YEARS >= 9)]),
        (MONTHS[(WARDS == 2) & (YEARS < 200_000)] == 5).mean(),
    ]
    for answer, truth in zip(answers, truths, strict=False):
        low, high = answer["interval"]
        assert low - 1e-9 <= truth <= high + 1e-9
    sums = np.bincount(WARDS, MONTHS)
    assert all(low <= own <= high for (low, high), own in zip(answers[4]["intervals"], sums, strict=True))


@pytest.mark.api
def test_openings_that_wait_keep_nobody_else_waiting(
    service: Service, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are turns for plans: another data set's sessions are opened meanwhile. Would catch a turn
    that is held while an engine counts.
    """
    go, honest = threading.Event(), ProcessReaders.ask_source

    def asking(self: Any, *how: Any, **more: Any) -> Any:
        assert go.wait(patience(60))
        return honest(self, *how, **more)

    monkeypatch.setattr(ProcessReaders, "ask_source", asking)
    name, _ = registered(service, lake, "openings")
    analysts = [service.principal("analyst") for _ in range(wiring.PLANS + 2)]
    opened_here: list[str] = []
    threads = [
        threading.Thread(target=lambda who=who: opened_here.append(opened(who, name, "evidence"))) for who in analysts
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            open_session(service.principal("analyst"), people(service))
        assert not opened_here
    finally:
        go.set()
    for thread in threads:
        thread.join(patience(60))
    assert len(set(opened_here)) == len(analysts)


@pytest.mark.api
def test_what_is_too_wide_is_refused_before_anything_is_asked(service: Service, lake: Path) -> None:
    """With a problem document, and no trace. Would catch a fault of the server, and a charge."""
    name, _ = registered(service, lake, "wide")
    analyst = service.principal("analyst")
    session = opened(analyst, name, "gaussian")
    reply = analyst.post(f"/v1/sessions/{session}/queries", json={"type": "marginal", "attributes": ["month", "year"]})
    assert 400 <= reply.status_code < 500, reply.text
    assert analyst.get(f"/v1/sessions/{session}").json()["queries_asked"] == 0


@pytest.mark.api
def test_kept_counts_outlive_a_restart_and_the_records(var: Path, lake: Path, tmp_path: Path) -> None:
    """The records are gone and the server is another: what was counted answers in a new session, what was not is
    refused with 503 and without a trace, until the records are back. Would catch a source that is asked for what is
    known, other data under the old name, and a charge for what was not answered."""
    own = tmp_path / "var"
    with running(own, lake) as service:
        name, files = registered(service, lake, "kept")
        analyst = service.principal("analyst", name="ann")
        session = opened(analyst, name, "gaussian")
        value = ask(analyst, session, where(ward=1))["value"]
        key = analyst.headers["authorization"].removeprefix("Bearer ")
        files.rename(files.with_suffix(".away"))
    with running(own, lake) as service:
        analyst = service.caller(key)
        session = opened(analyst, name, "gaussian")
        assert ask(analyst, session, where(ward=1))["value"] == value
        before = analyst.get(f"/v1/sessions/{session}").json() | {"log_size": None}
        refused(analyst.post(f"/v1/sessions/{session}/queries", json=where(ward=2, year=7)), "source-moved")
        assert analyst.get(f"/v1/sessions/{session}").json() | {"log_size": None} == before
        # An opening that measures is refused alike, and reserves nothing.
        ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
        words = {"dataset": name, "mechanism": {"construction": "evidence"}, "epsilon": 0.3, "max_queries": 20}
        refused(analyst.post("/v1/sessions", json=words), "source-moved")
        assert service.admin.get(f"/v1/datasets/{name}/ledger").json() == ledger
        # Whoever watches is told how many there are, and no name.
        eventually(lambda: "curator_moved_sources 1.0" in service.admin.get("/metrics").text)
        assert service.admin.get("/readyz").status_code == 200
        files.with_suffix(".away").rename(files)
        assert ask(analyst, session, where(ward=2, year=YEARS[2].item()))["value"] == 1
        eventually(lambda: "curator_moved_sources 0.0" in service.admin.get("/metrics").text)
        assert len(service.rows("kept_counts")) >= 2
        assert "zebra" not in str(service.rows("kept_counts")) + service.stored()
        # Retired, nothing of it is left.
        assert service.admin.delete(f"/v1/datasets/{name}").status_code == 200
        assert not service.rows("kept_counts")
        assert not [path for path in (own / "vault").iterdir() if path.name.startswith(name)]


@pytest.mark.api
def test_kept_counts_that_are_altered_are_counted_again(lake: Path, tmp_path: Path) -> None:
    """Would catch a bit on the disk that changes an answer."""
    own = tmp_path / "var"
    with running(own, lake) as service:
        name, _ = registered(service, lake, "altered")
        analyst = service.principal("analyst", name="ann")
        value = ask(analyst, opened(analyst, name, "gaussian"), where(ward=1))["value"]
        key = analyst.headers["authorization"].removeprefix("Bearer ")
        private = str(service.rows("datasets"))
    for path in (own / "vault").glob(f"{name}.*"):
        if path.name not in private:
            content = bytearray(path.read_bytes())
            content[-9] ^= 1
            path.write_bytes(content)
    with running(own, lake) as service:
        analyst = service.caller(key)
        assert ask(analyst, opened(analyst, name, "gaussian"), where(ward=1))["value"] == value
