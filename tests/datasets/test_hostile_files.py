"""Would show a file that costs more than it should: that holds the interpreter, takes memory by the gigabyte, or ends
the server. Each is read within its time and memory, or refused; requests are answered meanwhile.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openpyxl
import psutil
import pyarrow as pa
import pytest

from app.bootstrap import nursery, reader_process
from app.bootstrap.reader_process import ProcessReaders, ReaderFailed
from app.declarations.drafts import Layout
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.storage import readers
from tests.datasets import hostile_files as hostile
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, refused, serving, unique

pytestmark = pytest.mark.adversarial

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
WORDS: JSON = {"kind": "table", "attributes": [{"name": "a", "values": ["x", "y"]}], "outside": "drop"}
CODES: JSON = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
GRAPH: JSON = {"kind": "graph", "nodes": 60, "weighted": False}
MULTISET: JSON = {"kind": "multiset"}
#: What a reading may take: of time, on a machine that does much else, and of memory that the operator allows.
SECONDS, MEMORY = 30.0, 64 << 20
#: Records of a file that takes a second or more to read.
LONG = 24 << 20
#: What is told where the process had to be ended: no reader should leave it to that.
ENDED = (reader_process.READING.ended, reader_process.READING.too_large, f"takes longer than the {SECONDS:g} s")


def sheet(rows: str) -> bytes:
    return hostile.workbook({"xl/worksheets/sheet1.xml": hostile.sheet(rows)})


def shared(size: int, rows: int) -> bytes:
    """A workbook in which one text stands in many cells."""
    cells = "".join(f'<row r="{i}"><c r="A{i}" t="s"><v>0</v></c></row>' for i in range(2, rows + 2))
    parts = {"xl/sharedStrings.xml": hostile.strings("x" * size), "xl/worksheets/sheet1.xml": hostile.sheet(cells)}
    return hostile.workbook(parts)


INLINE = hostile.sheet('<row r="2"><c r="A2" t="inlineStr"><is><t></t></is></c></row>')
ENTITIES = {
    "a sheet": ("xl/worksheets/sheet1.xml", INLINE),
    "shared strings": ("xl/sharedStrings.xml", hostile.strings("")),
    "styles": ("xl/styles.xml", f"<styleSheet {hostile.MAIN}></styleSheet>"),
    "the book": ("xl/workbook.xml", f"<workbook {hostile.MAIN}></workbook>"),
    "types": ("[Content_Types].xml", "<Types></Types>"),
}

#: Files are made by the test that reads them.
REFUSED: dict[str, tuple[JSON, str, Callable[[], bytes], str]] = {
    "cells without ends": (WORDS, "t.xlsx", lambda: sheet("<c" * 60_000), "no Excel workbook"),
    "formulas without ends": (WORDS, "t.xlsx", lambda: sheet("<c><f>" * 60_000), "no Excel workbook"),
    "attributes without ends": (WORDS, "t.xlsx", lambda: sheet("<c " + 'a="" ' * 60_000), "no Excel workbook"),
    "white space within formulas": (WORDS, "t.xlsx", lambda: sheet(("<c><f>" + " " * 999) * 999), "no Excel workbook"),
    "one text in a thousand cells": (WORDS, "t.xlsx", lambda: shared(40_000, 1000), "32,767 characters"),
    "a text of the longest in many cells": (WORDS, "t.xlsx", lambda: shared(32_767, 9_000), "the memory limit"),
    "a name as long as a book": (
        WORDS, "t.xlsx",
        lambda: hostile.workbook({"xl/worksheets/sheet1.xml": hostile.sheet("").replace("<t>a", "<t>" + "a" * 40_000)}),
        "the first row"),
    "a row at the end of all rows": (
        WORDS, "t.xlsx", lambda: sheet('<row r="999999999999"><c r="A999999999999"><v>1</v></c></row>'), "cells"),
    "a workbook said to be small": (
        WORDS, "t.xlsx", lambda: hostile.understated(shared(20_000, 10)), "no Excel workbook"),
    "a workbook that unpacks to a hundred times its size": (
        WORDS, "t.xlsx", lambda: sheet(" " * (2 << 20)), "unpacks to"),
    **{f"entities in {name}": (WORDS, "t.xlsx", lambda which=which: hostile.entities(*which), "no Excel workbook")
       for name, which in ENTITIES.items()},
    "an array said to be huge": (
        CODES, "t.npy", lambda: hostile.npy("{'descr': '<i8', 'fortran_order': False, 'shape': (999999999999999,)}"),
        "the array has shape"),
    "an array of objects": (
        CODES, "t.npy", lambda: hostile.npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", b"cos\nsystem\n"),
        "objects"),
    "a header of brackets": (CODES, "t.npy", lambda: hostile.npy("(" * 9000), "header is damaged"),
    "a header that is computed": (
        CODES, "t.npy", lambda: hostile.npy("{'descr': '<i8', 'fortran_order': False, 'shape': (9**9**9,)}"),
        "header is damaged"),
    "an archive of zeros": (CODES, "t.npz", lambda: hostile.npz(bytes(32 << 20)), "unpacks to more"),
    "an archive of zeros said to be small": (
        CODES, "t.npz", lambda: hostile.understated(hostile.npz(bytes(32 << 20))), "not a NumPy array"),
    "an archive of many members": (CODES, "t.npz", lambda: hostile.npz(b"", 20_000), "one array"),
    "names without end": (CODES, "t.csv", lambda: b"a" + b",b" * 400_000 + b"\n0" + b",0" * 400_000 + b"\n9", "row 2"),
    "quotes without end": (CODES, "t.csv", lambda: b"a,b\n" + b'"' * 2_000_001, "line 2"),
    "a line without end": (CODES, "t.csv", lambda: b"a,b\n0," + b"0" * (20 << 20), "longer than 8 MiB"),
    "blanks and ends of lines": (CODES, "t.txt", lambda: b"a b\n" + b" \n" * 1_000_000, "no records"),
    "packed text": (CODES, "t.csv", lambda: hostile.gzipped(1 << 20), "not text"),
    "a name twice among many": (
        CODES, "t.parquet",
        lambda: hostile.parquet(pa.table([pa.array([0])] * 4_001, names=[*map(str, range(4_000)), "3999"])),
        "columns 4000 and 4001"),
    "lists within lists": (
        CODES, "t.parquet", lambda: hostile.parquet(pa.table({"a": pa.array([[[[[0]]]]])})), "lists or structures"),
    "a group of rows beyond all memory": (
        CODES, "t.parquet",
        lambda: hostile.parquet(pa.table({"a": pa.array(np.zeros(9 << 20, np.int64))}), use_dictionary=False,
                        compression="zstd", row_group_size=16 << 20), "row group"),
    "packed JSON": (MULTISET, "t.json", lambda: b'{"element": "x"}', "must end in"),
}  # fmt: skip


def read(how: Any, spec: JSON, filename: str, path: Path) -> Any:
    parsed = parse_spec({"name": "x", "budget": BUDGET, **spec})
    return how.read_private(parsed, filename, path, memory_limit=MEMORY)


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_by_its_reader(tmp_path: Path, what: str) -> None:
    """By what is wrong with it, not by the end of its process."""
    spec, filename, content, words = REFUSED[what]
    path = tmp_path / "upload"
    path.write_bytes(content())
    with pytest.raises(InvalidDataset) as refusal:
        read(ProcessReaders(SECONDS), spec, filename, path)
    assert words in refusal.value.detail
    assert not any(ended in refusal.value.detail for ended in ENDED)
    assert "quux" not in refusal.value.detail


KEPT: dict[str, tuple[JSON, str, Callable[[], bytes], int]] = {
    "one number a million times": (CODES, "t.parquet", lambda: hostile.runs(4 << 20), 4 << 20),
    "one text a thousand times": (WORDS, "t.xlsx", lambda: shared(1, 1000), 1000),
    "blanks and ends of lines": (GRAPH, "g.txt", lambda: b"0 1\n" + b"\t \n" * 1_000_000 + b"1 2\n", 2),
    "blanks": (GRAPH, "g.txt", lambda: b"0 1\n" + b" " * 4_000_000 + b"1 2\n", 2),
    "one long text in every row": (
        {"kind": "table", "attributes": [{"name": "a", "values": ["x" * 100, "y"]}]}, "t.parquet",
        lambda: hostile.one_long_text(1 << 20, 100), 1 << 20),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_is_read_within_bounds(tmp_path: Path, what: str) -> None:
    spec, filename, content, records = KEPT[what]
    path = tmp_path / "upload"
    path.write_bytes(content())
    assert read(ProcessReaders(SECONDS), spec, filename, path).data.mass == records


def test_a_process_reads_what_is_read_here(tmp_path: Path) -> None:
    """Numbers, reports, weights, names and summaries: all four layouts of private data pass unchanged."""
    files: list[tuple[JSON, str, bytes]] = [
        ({**CODES, "outside": "drop"}, "t.csv", b"a,n\n0,1.5\n1,-0.0\n9,1e300\n,\n"),
        ({"kind": "table", "attributes": [{"name": "a", "size": 1 << 25}]}, "t.csv", b"a\n7\n33554431\n"),
        (GRAPH, "g.csv", b"0,1\n1,2\n"),
        ({"kind": "graph", "nodes": 100_000, "weighted": True}, "g.csv", b"0,1,0.5\n1,99999,1\n"),
        (MULTISET, "m.csv", "element,count\nthe,3\nä,2\n".encode()),
    ]
    elsewhere = ProcessReaders(SECONDS)
    for spec, filename, content in files:
        path = tmp_path / filename
        path.write_bytes(content)
        here, there = (read(how, spec, filename, path) for how in (readers, elsewhere))
        assert (type(here.data), here.data.mass) == (type(there.data), there.data.mass)
        for name, array in here.data.arrays().items():
            other = there.data.arrays()[name]
            assert array.dtype == other.dtype
            assert array.shape == other.shape
            assert (array == other).all()
            assert not other.flags.writeable
        assert (here.report is None) == (there.report is None)
        assert here.report is None or here.report.view() == there.report.view()
        if spec["kind"] == "graph":
            assert elsewhere.has_weights(filename, path) is readers.has_weights(filename, path)
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,n,d,e\n0,1.5,2020-01-01,\n1,-0.0,2021-02-03,\n")
    names = elsewhere.column_names("t.csv", path, Layout(), memory_limit=MEMORY)
    assert names == ("a", "n", "d", "e")
    layout = Layout(names=names)
    assert elsewhere.summarise("t.csv", path, layout, memory_limit=MEMORY) == readers.summarise(
        "t.csv", path, layout, memory_limit=MEMORY
    )
    array = tmp_path / "t.npy"
    np.save(array, np.zeros(3))
    assert elsewhere.column_names("t.npy", array, Layout(), memory_limit=MEMORY) is None


def test_a_refusal_is_the_same_from_a_process(tmp_path: Path) -> None:
    """With the rows, attributes and counts that it names."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a\n0\n7\n9\n")
    found = []
    for how in (readers, ProcessReaders(SECONDS)):
        with pytest.raises(InvalidDataset) as refusal:
            read(how, CODES, "t.csv", path)
        found.append((refusal.value.detail, refusal.value.extra))
    assert found[0] == found[1]
    assert found[0][1]["outside"] == {"a": 2}


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is read for so long that a test can look at it, end it, or ask for something else."""
    path = tmp_path_factory.mktemp("long") / "t.parquet"
    path.write_bytes(hostile.runs(LONG))
    return path


def children() -> list[psutil.Process]:
    """Processes that read."""
    nursery = reader_process._NURSERY._process
    try:
        return [] if nursery is None else psutil.Process(nursery.pid).children()
    except psutil.NoSuchProcess:  # it was killed
        return []


def reading(path: Path) -> threading.Thread:
    """A thread in which a file is read; returns when its process is at work."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(read(ProcessReaders(SECONDS), CODES, "t.parquet", path))
        except InvalidDataset as error:
            found.append(error)

    deadline = time.monotonic() + patience(30)
    while children():  # of the test before, which may be about to end
        assert time.monotonic() < deadline
        time.sleep(0.01)
    thread = threading.Thread(target=work)
    thread.start()
    while not any(worker.rlimit(psutil.RLIMIT_FSIZE)[0] > 0 for worker in children()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    thread.found = found  # type: ignore[attr-defined]
    return thread


def test_reading_ends_at_its_time(long_file: Path) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidDataset, match=r"longer than the 0\.1 s"):
        read(ProcessReaders(0.1), CODES, "t.parquet", long_file)
    assert time.monotonic() - began < 0.1 + reader_process._GRACE
    deadline = time.monotonic() + patience(5)
    while children() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not children()


def test_whatever_kills_the_process_refuses_the_file_alone(long_file: Path, tmp_path: Path) -> None:
    """A library that ends its process (a flaw, the system short of memory) must not end the server."""
    thread = reading(long_file)
    (worker,) = children()
    worker.kill()
    thread.join(30)
    (refusal,) = thread.found  # type: ignore[attr-defined]
    assert isinstance(refusal, InvalidDataset)
    assert refusal.detail == reader_process.READING.ended
    # Those of which all are forked may die as well: another one takes its place.
    assert reader_process._NURSERY._process is not None
    os.kill(reader_process._NURSERY._process.pid, signal.SIGKILL)
    path = tmp_path / "t.csv"
    path.write_bytes(b"a\n0\n")
    for _ in range(2):
        assert read(ProcessReaders(SECONDS), CODES, "t.csv", path).data.mass == 1


def test_readers_end_with_what_forked_them(long_file: Path) -> None:
    thread = reading(long_file)
    (worker,) = children()
    assert reader_process._NURSERY._process is not None
    os.kill(reader_process._NURSERY._process.pid, signal.SIGKILL)
    worker.wait(10)
    thread.join(30)
    (refusal,) = thread.found  # type: ignore[attr-defined]
    assert isinstance(refusal, InvalidDataset)


def test_memory_that_is_not_there_refuses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library raises then is told as what it is; what else is raised by its type alone."""

    def told(error: Exception) -> Any:
        def failing(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(readers, "has_weights", failing)
        return reader_process._done("has_weights", tmp_path, 0, ("g.csv",))[0]

    assert told(pa.lib.ArrowMemoryError("zebra")) == {"large": True}
    assert told(KeyError("zebra")) == {"failed": "KeyError"}


def test_processes_take_so_much_memory_and_no_more(long_file: Path) -> None:
    thread = reading(long_file)
    (worker,) = children()
    soft, hard = worker.rlimit(psutil.RLIMIT_DATA)
    held = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    assert soft == hard <= held + MEMORY + reader_process.WORKING_BYTES
    assert worker.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    worker.kill()
    thread.join(30)


def test_no_secret_is_where_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATOR_VAULT_KEY", "zebra")
    monkeypatch.setenv("PGPASSWORD", "zebra")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "zebra")
    reader_process._NURSERY.end()
    (tmp_path / "t.csv").write_bytes(b"a\n0\n")
    read(ProcessReaders(SECONDS), CODES, "t.csv", tmp_path / "t.csv")
    assert reader_process._NURSERY._process is not None
    environment = Path(f"/proc/{reader_process._NURSERY._process.pid}/environ").read_bytes()
    assert b"zebra" not in environment


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("hostile"), noise=Noise()) as running:
        yield running


@pytest.mark.parametrize("route", ["/v1/datasets", "/v1/datasets/check"])
def test_others_are_answered_meanwhile(service: Service, long_file: Path, route: str) -> None:
    """A workbook of two kilobytes used to hold the interpreter for minutes; a long file holds nobody."""
    spec = {**CODES, "name": unique("new"), "budget": BUDGET}
    files = [("t.xlsx", sheet("<c" * 60_000)), ("t.parquet", long_file.read_bytes())]
    replies: list[httpx.Response] = []

    def send() -> None:
        for filename, content in files:
            words = {"spec": json.dumps(spec)}
            replies.append(service.admin.post(route, data=words, files={"data": (filename, content)}, timeout=120))

    thread = threading.Thread(target=send)
    thread.start()
    waits = []
    with httpx.Client(base_url=service.admin.base_url) as other:
        while thread.is_alive():
            began = time.monotonic()
            assert other.get("/healthz").status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.02)
    thread.join()
    assert len(waits) > 5
    assert sorted(waits)[len(waits) // 2] < 0.5
    if route == "/v1/datasets":
        assert "no Excel workbook" in refused(replies[0], "invalid-dataset")["detail"]
        assert replies[1].status_code == 201
    else:
        assert "no Excel workbook" in replies[0].text
        assert replies[1].json()["report"]["read"] == LONG


def damaged(rng: random.Random, content: bytes) -> bytes:
    """A file of which a few bytes are others, are gone, or come again."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[place] ^= 1 << rng.randrange(8)
            case 1:
                del found[place : place + rng.randrange(1, 9)]
            case 2:
                found[place:place] = bytes(rng.choices(b"\"',;\n\r\t \0<>&0123456789eE-.[]{}()", k=rng.randrange(1, 5)))
            case _:
                other = rng.randrange(len(found))
                found[place:place] = found[other : other + rng.randrange(1, 40)]
    return bytes(found)


def damaged_within(rng: random.Random, content: bytes) -> bytes:
    """An archive of which one member is damaged, and packed again."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as target:
        chosen = rng.choice(source.namelist())
        for name in source.namelist():
            member = source.read(name)
            target.writestr(name, damaged(rng, member) if name == chosen else member)
    return sink.getvalue()


def test_whatever_is_damaged_is_read_or_refused(tmp_path: Path) -> None:
    """Any other error would be our own, and told as the file's."""
    book = openpyxl.Workbook()
    for row in (["p", "a", "n"], ["u", 0, 1.5], ["v", 1, True], ["u", 2, "x"]):
        book.worksheets[0].append(row)
    sink = io.BytesIO()
    book.save(sink)
    plain = pa.table({"p": ["u", "v", None], "a": [0, 1, 2], "n": [1.0, float("nan"), 2.0]})
    array = io.BytesIO()
    np.save(array, np.eye(3)[0])
    persons = {**CODES, "outside": "drop", "unit": {"column": "p", "max_records": 1}}
    files: list[tuple[JSON, str, bytes, Any]] = [
        (persons, "t.xlsx", sink.getvalue(), damaged_within),
        (persons, "t.csv", b'p,a,n\nu,0,1.5\n"v",1,"2"\n', damaged),
        ({**CODES, "encoding": "utf-16"}, "t.csv", "a;n\n0;1,5\n".encode("utf-16"), damaged),
        (persons, "t.parquet", hostile.parquet(plain), damaged),
        (CODES, "t.parquet", hostile.parquet(plain, use_dictionary=False, compression="none"), damaged),
        (CODES, "t.npy", array.getvalue(), damaged),
        (CODES, "t.npz", hostile.npz(array.getvalue()), damaged),
        (GRAPH, "g.txt", b"0 1\n1  2\n\n3\t4\n", damaged),
        (MULTISET, "m.tsv", b"element\tcount\nthe\t3\nof\t2\n", damaged),
    ]
    rng = random.Random(22)
    path = tmp_path / "upload"
    kept = refusals = 0
    for round_ in range(40):
        for spec, filename, content, hurt in files:
            path.write_bytes(hurt(rng, content))
            try:
                read(readers, spec, filename, path)
                kept += 1
            except InvalidDataset:
                refusals += 1
            if spec["kind"] == "table" and round_ % 4 == 0:
                layout = Layout(encoding=spec.get("encoding"))
                try:
                    names = readers.column_names(filename, path, layout, memory_limit=MEMORY)
                    if names:
                        readers.summarise(filename, path, replace(layout, names=names), memory_limit=MEMORY)
                except InvalidDataset:
                    refusals += 1
    assert kept > 20
    assert refusals > 100


def test_what_a_reader_does_wrong_is_told_by_its_type(tmp_path: Path) -> None:
    """Nothing of its words, which may quote the file."""
    (tmp_path / "t.csv").write_bytes(b"a\n0\n")
    with pytest.raises(ReaderFailed, match=r"^[A-Za-z]+$"):
        ProcessReaders(SECONDS).summarise("t.csv", tmp_path / "t.csv", None, memory_limit=MEMORY)  # type: ignore[arg-type]


def test_entities_are_refused_by_the_library_that_knows_them() -> None:
    """openpyxl takes it where it is installed."""
    assert openpyxl.DEFUSEDXML


def test_a_machine_without_processes_refuses_no_file(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many processes as there may be: nothing is wrong with the file, and it may be sent again. Catches a server
    that calls this its own failure, or the file's.
    """
    monkeypatch.setattr(nursery.sys, "executable", str(tmp_path / "none"))
    reader_process._NURSERY.end()
    spec = {**CODES, "name": unique("new"), "budget": BUDGET}
    for _ in range(2):
        reply = service.admin.post(
            "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("t.csv", b"a\n0\n")}
        )
        refused(reply, "unavailable")
    # One that ends as soon as it has begun.
    monkeypatch.setattr(nursery.sys, "executable", "/bin/true")
    reply = service.admin.post("/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("t.csv", b"a\n0\n")})
    refused(reply, "unavailable")
