"""Wide tables that are prepared: the codes of their records lie in a sealed Parquet file, and are asked there.

The oracles are a plain loop over the records and the upload of the same records. These would catch a record that is
counted elsewhere than it belongs, a file that is asked though it is not what was written, and a record, key or code
that lies somewhere in the clear or stays behind.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import secrets
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.bootstrap import maintenance
from app.bootstrap.reader_process import ProcessReaders
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Persons, TableSpec
from app.services.errors import Unavailable
from app.spaces.counts import CellCounts, Contraction, Tally
from app.spaces.factory import space_of
from app.spaces.records import RecordsTensor
from app.storage.objects import Objects
from app.storage.objects import opened as opened_store
from app.storage.private_data import CodesData, RecordsData
from app.storage.private_store import VaultResealer, VaultStore
from app.storage.readers import codes, read_private, tables
from app.storage.readers.codes import CodesWriter, Sealing
from app.storage.readers.persons import Capping, SpilledCapping
from app.storage.sources import CountedSource, ParquetFolders, Sources, parquet
from app.storage.sources.copied import copying, read_copy
from app.storage.turns import ProcessTurns
from app.storage.vault import Vault, VaultEntry, VaultError, VaultWrongKey, content_of
from tests.datasets import source_files as plain
from tests.datasets.source_files import BUDGET, JSON, declare, write
from tests.datasets.test_asked_sources import told
from tests.datasets.test_prepared_sources import tried
from tests.datasets.test_sources import MEMORY, lay, sources, table
from tests.kit.noise import Noise, nothing
from tests.kit.objects import object_store
from tests.kit.servers import Caller, launching
from tests.kit.service import Service, ask, serving, unique, where
from tests.questions.test_exact_counts import brute, same, tallies

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
WARD = {"name": "ward", "size": 3}
YEAR = {"name": "year", "size": 2**14}
CODE = {"name": "code", "size": 2**12}
BY_WARD = CellCounts((0,), (None,), (3,))
LATE = CellCounts((0,), (None,), (3,), where=((1, slice(3000, 2**14)),))


def prepared(spec: TableSpec, folder: Path, key: bytes | None = KEY, memory: int = MEMORY) -> CountedSource:
    """What is made of a declared source, on a disk below the folder."""
    sealing = Sealing(folder, None if key is None else secrets.token_bytes(32))
    return parquet.prepare_source(spec, [folder], memory_limit=memory, sealing=sealing)


def kept(vault: Vault, data: CodesData, key: bytes | None = b"c" * 32) -> VaultEntry:
    with vault.registration():
        return vault.put("wide", data, key)


def store_of(vault: Vault) -> VaultStore:
    return VaultStore(vault, MEMORY, lambda: None)


def row(entry: VaultEntry) -> dict[str, str]:
    return {"file_name": entry.file_name, "digest": entry.digest}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    for number in (1, 2):
        columns = {each["name"]: rng.integers(0, each["size"], 60) for each in (WARD, YEAR, CODE)}
        write(tmp_path / f"{number}.parquet", columns)
    return tmp_path


@pytest.fixture
def spec() -> TableSpec:
    return table(declare([WARD, YEAR, CODE], "?.parquet", prepare="vault"))


# ------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.unit
@pytest.mark.slow
@pytest.mark.parametrize("key", [KEY, None], ids=["sealed", "in the clear"])
@given(source=sources(), data=st.data())
def test_what_is_asked_is_what_the_upload_tells(
    tmp_path_factory: Any, key: bytes | None, source: Any, data: st.DataObject
) -> None:
    """Of any declaration: the report, the refusals and every number, with several groups of rows. Would catch a group
    that is lost, a place in a type that does not hold it, and an axis that is longer or shorter where it is asked.
    """
    attributes, types, records, _ = source
    shape = tuple(plain.places(a) + bool(a.get("missing")) for a in attributes)
    assume(math.prod(shape) <= 1 << 12)
    folder = tmp_path_factory.mktemp("sealed")
    lay(folder, source)
    columns = {
        a["name"]: pa.array([record[axis] for record in records], kind)
        for axis, (a, kind) in enumerate(zip(attributes, types, strict=True))
    }
    own = [{name: value for name, value in a.items() if name != "column"} for a in attributes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_COUNTED", 0)
        patch.setattr(codes, "GROUP_ROWS", 3)
        patch.setattr("app.spaces.asked.GATHERED_SECONDS", 0)
        patch.setattr(parquet, "_LISTED", data.draw(st.sampled_from([0, 1 << 12])))
        path = write(folder / "whole.parquet", columns)
        spec = table(declare(attributes, "part=*/*.parquet", prepare="vault"))
        uploaded = tried(lambda: read_private(table(declare(own)), "whole.parquet", path, memory_limit=MEMORY))
        found = tried(lambda: prepared(spec, folder, key))
        if isinstance(uploaded, InvalidDataset) or isinstance(found, InvalidDataset):
            assert found.extra.get("outside") == uploaded.extra.get("outside")
            return
        made = found
        assert made.report.view() == (uploaded.report and uploaded.report.view())
        assert isinstance(made.data, CodesData)
        vault = Vault(folder / "vault", key)
        counts: Any = store_of(vault).counts(space_of(spec), row(kept(vault, made.data)))
        assert isinstance(uploaded.data, RecordsData)
        held = RecordsTensor(uploaded.data.columns, shape)
        entries = np.zeros(shape, np.int64)
        np.add.at(entries, tuple(uploaded.data.columns), 1)
        asked: list[Tally] = data.draw(st.lists(tallies(shape, (CellCounts, Contraction)), min_size=1, max_size=3))
        for tally, number in zip(asked, told(counts, *asked), strict=True):
            assert same(number, brute(tally, entries))
            assert same(number, next(iter(held.tell([tally]))))


#: Visits: whose they are, the ward as text, some of which is no ward, days on a grid of halves, and a weight.
PATIENTS = [f"p{number}" for number in (1, 1, 1, 1, 2, 2, 3, 4, 4, 5, None, 1)]
WARDS = ["north", "north", "south", "?", "south", "north", "south", "n/a", "north", "east", "north", ""]
DAYS = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 40.0, 8.0, 9.0, 10.0, 1.0, 2.5]
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "values": ["north", "south"], "missing": True, "outside": "drop"},
    {"name": "days", "lower": 0, "upper": 30, "grid": 0.5, "outside": "clamp"},
    {"name": "code", "size": 2**17},
]


def visits(folder: Path, patients: list[str | None] = PATIENTS) -> None:
    for number, part in enumerate((slice(0, 5), slice(5, None))):
        write(
            folder / f"{number}.parquet",
            {
                "patient": pa.array(patients[part], pa.string()),
                "ward": pa.array(WARDS[part]),
                "days": pa.array(DAYS[part]),
                "code": pa.array([7 * place for place in range(len(WARDS))][part]),
            },
        )


@pytest.mark.unit
def test_of_each_person_so_many_records_are_kept(tmp_path: Path) -> None:
    """What is dropped, clamped and missing is told, and of each person two records at most are counted, which he has.
    Would catch a cap that holds a group or a file, and a record that nobody has."""
    patients = [name if name != "pNone" else "p6" for name in PATIENTS]
    visits(tmp_path, patients)
    unit = {"unit": {"column": "patient", "max_records": 2}, "null_values": ["n/a"]}
    spec = table(declare(ATTRIBUTES, "*.parquet", prepare="vault", **unit))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "GROUP_ROWS", 3)
        found = prepared(spec, tmp_path)
    places = {"north": 0, "south": 1, "n/a": 2, "": 2}
    had: dict[str | None, Counter[tuple[int, int, int]]] = {}
    for number, (whose, ward, day) in enumerate(zip(patients, WARDS, DAYS, strict=True)):
        if ward in places:
            had.setdefault(whose, Counter())[places[ward], int(2 * min(day, 30.0)), 7 * number] += 1
    view = found.report.view()
    assert (view["read"], view["dropped"], view["clamped"]) == (12, 2, 1)
    assert view["kept"] == sum(min(2, own.total()) for own in had.values()) == found.data.mass
    assert isinstance(found.data, CodesData)
    columns = parquet_columns(found.data)
    counted = Counter(zip(*columns, strict=True))
    for own in had.values():
        assert sum(min(counted[record], number) for record, number in own.items()) == min(2, own.total())


def parquet_columns(data: CodesData) -> list[list[int]]:
    """The codes of a file, by another reader than the one that asks it."""
    import pyarrow.parquet as pq
    from pyarrow.parquet.encryption import create_decryption_properties

    key = json.loads(data.about.tobytes())["key"]
    how = None if key is None else create_decryption_properties(base64.b64decode(key))
    data.file.seek(0)
    return [column.to_pylist() for column in pq.read_table(data.file, decryption_properties=how).columns]


@pytest.mark.unit
@given(
    whose=st.lists(st.sampled_from(["a", " a", "b", "c", "dé", "", None, "none"]), max_size=30),
    most=st.integers(1, 4),
    data=st.data(),
)
def test_in_parts_the_same_records_are_kept(
    tmp_path_factory: Any, whose: list[Any], most: int, data: st.DataObject
) -> None:
    """As all at once, in whatever batches they come. Would catch a person who is in two parts, and one more record."""
    unit, key = Persons(column="p", max_records=most), b"k" * 32
    values = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(whose), max_size=len(whose))), np.int64)
    ends = sorted(data.draw(st.lists(st.integers(0, len(whose)), max_size=3)))
    kept = []
    folder = tmp_path_factory.getbasetemp()
    for capping in (
        Capping(unit, [3], key, MEMORY, ["none"]),
        SpilledCapping(unit, [3], key, MEMORY, ["none"], folder),
    ):
        for start, end in zip([0, *ends], [*ends, len(whose)], strict=True):
            persons = capping.identify(pa.array(whose[start:end], pa.string()))
            told = persons >= 0
            capping.add([values[start:end][told], persons[told]])
        places = Counter(np.concatenate([np.zeros(0, np.int64), *(part for (part,) in capping.kept())]).tolist())
        kept.append((places, capping.beyond))
    assert kept[0] == kept[1]


@pytest.mark.unit
def test_records_that_wait_on_a_disk_are_sealed(tmp_path: Path) -> None:
    """Would catch ids in the clear in a file that outlives its process, or has a name."""
    capping = SpilledCapping(Persons(column="p", max_records=1), [3], b"k" * 32, MEMORY, (), tmp_path)
    persons = capping.identify(pa.array(["zebra"] * 1000))
    capping.add([np.zeros(1000, np.int64), persons])
    capping._file.flush()
    assert not list(tmp_path.iterdir())
    stored = os.pread(capping._file.fileno(), 1 << 20, 0)
    assert len(stored) > 100
    assert b"zebra" not in stored
    assert sum(len(part) for (part,) in capping.kept()) == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    ("declared", "held"),
    [
        ({}, False),
        ({"capacity": 1000}, True),
        ({"capacity": 10**9}, False),
        ({"capacity": 10**9, "records_public": True}, True),
    ],
)
def test_public_facts_decide_where_records_are(lake: Path, declared: JSON, held: bool) -> None:
    """The capacity, or the number of records where it is public. Would catch a rule that tells how many records there
    are by how questions are answered."""
    spec = table(declare([WARD, YEAR, CODE], "?.parquet", prepare="vault", **declared))
    data = prepared(spec, lake).data
    assert isinstance(data, RecordsData if held else CodesData)


@pytest.mark.unit
@pytest.mark.parametrize(("most", "held"), [(120, True), (119, False), (60, False), (1, False), (0, False)])
def test_a_public_number_is_held_as_long_as_it_fits(
    lake: Path, spec: TableSpec, monkeypatch: pytest.MonkeyPatch, most: int, held: bool
) -> None:
    """Records that were held until then are written with those that follow. Would catch some that are lost between."""
    monkeypatch.setattr(tables, "most_held", lambda *_: most)
    found = prepared(spec, lake).data
    columns = parquet_columns(found) if isinstance(found, CodesData) else [c.tolist() for c in found.arrays().values()]
    assert isinstance(found, RecordsData if held else CodesData)
    assert columns == [column.tolist() for column in columns_of(lake).values()]


@pytest.mark.unit
def test_an_axis_beyond_what_is_told_apart_is_held(lake: Path) -> None:
    """Would catch a table of which no value could be asked any more."""
    spec = table(declare([WARD, YEAR, {"name": "code", "size": 2**21}], "?.parquet", prepare="vault"))
    assert isinstance(prepared(spec, lake).data, RecordsData)


@pytest.mark.unit
def test_a_narrow_table_is_counted(lake: Path) -> None:
    spec = table(declare([WARD, YEAR], "?.parquet", prepare="vault"))
    assert not isinstance(prepared(spec, lake).data, CodesData)


# ------------------------------------------------------------------------------------------------ the file


@pytest.mark.unit
@pytest.mark.parametrize("key", [KEY, None], ids=["sealed", "in the clear"])
def test_the_vault_gives_back_what_it_was_given(lake: Path, spec: TableSpec, key: bytes | None) -> None:
    """Records, key of the commitment and content, and no file but its own. Would catch codes in the clear."""
    before = {path.name for path in lake.iterdir()}
    made = prepared(spec, lake, key).data
    assert isinstance(made, CodesData)
    vault = Vault(lake / "vault", key)
    entry = kept(vault, made)
    found = vault.open(entry)
    assert isinstance(found, CodesData)
    assert parquet_columns(found) == parquet_columns(made)
    assert (found.mass, content_of(found)) == (120, content_of(made))
    assert vault.commitment_key(entry) == b"c" * 32
    vault.verify(entry)
    assert {path.name for path in lake.iterdir()} - before == ({"vault"} if key else {"vault", "keys"})
    stored = (lake / "vault" / entry.file_name).read_bytes()
    assert stored.startswith(b"PARE" if key else b"PAR1")
    if key is not None:
        secret = json.loads(found.about.tobytes())["key"]
        for private in (secret.encode(), base64.b64decode(secret), b"lengths", b"c0"):
            assert private not in stored
    assert "key" not in repr(found)


@pytest.mark.unit
def test_equal_records_are_known_again(lake: Path, spec: TableSpec) -> None:
    """Under other keys. Would catch a warning of the same records that is never given."""
    one, other = prepared(spec, lake).data, prepared(spec, lake, None).data
    assert content_of(one) == content_of(other)
    (lake / "2.parquet").unlink()
    assert content_of(prepared(spec, lake).data) != content_of(one)


@pytest.mark.unit
def test_another_key_opens_nothing(lake: Path, spec: TableSpec) -> None:
    """And is told from a file that was altered, so that an operator looks for the right thing."""
    data = prepared(spec, lake).data
    assert isinstance(data, CodesData)
    entry = kept(Vault(lake / "vault", KEY), data)
    for key in (OTHER, None):
        with pytest.raises(VaultWrongKey):
            Vault(lake / "vault", key).open(entry)
    with pytest.raises(VaultWrongKey):
        Vault(lake / "vault", None).verify(entry)


@pytest.mark.unit
@pytest.mark.parametrize("part", [0, 10, 0.3, 0.9, -1])
def test_a_changed_bit_is_refused(lake: Path, spec: TableSpec, part: float) -> None:
    """In the pages, the key or the footer, before and while it is asked: 503, and what was counted before is gone with
    it, as of every private file. Put back, it answers. Would catch an answer from other records."""
    vault = Vault(lake / "vault", KEY)
    made = prepared(spec, lake).data
    assert isinstance(made, CodesData)
    entry = kept(vault, made)
    store, path = store_of(vault), lake / "vault" / entry.file_name
    counts: Any = store.counts(space_of(spec), row(entry))
    before = told(counts, BY_WARD)[0]
    whole = path.read_bytes()
    at = int(part * len(whole)) if isinstance(part, float) else part
    altered = bytearray(whole)
    altered[at] ^= 1
    path.write_bytes(altered)
    with pytest.raises(Unavailable, match="not what was registered"):
        told(counts, LATE)
    with pytest.raises(Unavailable):
        store_of(vault).counts(space_of(spec), row(entry))
    shutil.copy(path, lake / "copy")
    (lake / "copy").write_bytes(whole)
    os.replace(lake / "copy", path)
    store.check(row(entry)) if store.usable(row(entry)) else store.forget(row(entry))
    again: Any = store.counts(space_of(spec), row(entry))
    assert (told(again, BY_WARD)[0] == before).all()
    assert told(again, LATE)[0].sum() <= 120


@pytest.mark.unit
def test_a_page_that_changes_under_the_engine_is_refused(lake: Path, spec: TableSpec) -> None:
    """Where nothing looks otherwise: pages say by themselves whether they are what was written. Would catch a fault of
    the server in the place of a refusal, and a wrong number."""
    made = prepared(spec, lake).data
    assert isinstance(made, CodesData)
    stored = os.pread(made.file.fileno(), 1 << 20, 0)
    asked = [CellCounts((axis,), (None,), (each["size"],)) for axis, each in enumerate((WARD, YEAR, CODE))]
    for at in range(4, len(stored), len(stored) // 20):
        (lake / "altered").write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
        with pytest.raises(parquet.Moved):
            parquet.ask_codes(lake / "altered", made.about.tobytes(), asked, memory_limit=MEMORY)


@pytest.mark.unit
def test_an_equal_file_in_its_place_is_asked(lake: Path, spec: TableSpec) -> None:
    """As after a restore, while it is asked. Would catch questions that are refused for ever."""
    vault = Vault(lake / "vault", KEY)
    made = prepared(spec, lake).data
    assert isinstance(made, CodesData)
    entry = kept(vault, made)
    counts: Any = store_of(vault).counts(space_of(spec), row(entry))
    shutil.copy(lake / "vault" / entry.file_name, lake / "copy")
    os.replace(lake / "copy", lake / "vault" / entry.file_name)
    assert told(counts, BY_WARD)[0].sum() == 120
    assert told(counts, LATE)[0].sum() <= 120


@pytest.mark.unit
@pytest.mark.parametrize("old", [KEY, None], ids=["sealed", "in the clear"])
def test_another_vault_key_writes_it_anew(lake: Path, spec: TableSpec, old: bytes | None) -> None:
    """Under another key of its own. Would catch a file that the old key opens still, and other records."""
    before, after = Vault(lake / "vault", old), Vault(lake / "vault", OTHER)
    made = prepared(spec, lake, old).data
    assert isinstance(made, CodesData)
    entry = kept(before, made)
    resealer = VaultResealer(before, after, lambda: None, lake)
    with resealer.registration():
        told_anew = resealer.resealed("wide", {**row(entry), "upload": "x"})
        assert told_anew is not None
        assert resealer.resealed("wide", told_anew) is None
    new = VaultEntry(told_anew["file_name"], told_anew["digest"])
    with pytest.raises(VaultError):
        before.open(new)
    data = after.open(new)
    assert isinstance(data, CodesData)
    assert parquet_columns(data) == parquet_columns(made)
    assert content_of(data) == content_of(made)
    assert json.loads(data.about.tobytes())["key"] != json.loads(made.about.tobytes())["key"]
    assert after.commitment_key(new) == b"c" * 32


@pytest.mark.unit
def test_who_dies_leaves_nothing(lake: Path, spec: TableSpec) -> None:
    """While it writes, and between the file and the row that names it. Would catch files that nobody removes."""
    before = {path.name for path in lake.iterdir()}
    writer = os.fork()
    if writer == 0:
        with contextlib.suppress(BaseException):
            CodesWriter([3], Sealing(lake, KEY)).add([np.zeros(10, np.int64)])
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
    assert {path.name for path in lake.iterdir()} == before
    vault, made = Vault(lake / "vault", KEY), prepared(spec, lake).data
    assert isinstance(made, CodesData)
    kept(vault, made)
    store_of(vault).sweep(list)
    assert not list((lake / "vault").glob("*.vault"))


@pytest.mark.integration
def test_from_an_object_store_it_is_copied_as_it_is_stored(
    lake: Path, spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server asks what one has put there; its copy is sealed and has no name. Altered there, it is refused.
    Would catch a server that needs the file of another, and a copy in the clear."""
    with object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        place = Objects(opened_store(f"s3://{store.bucket()}/private"), ProcessTurns())
        one, other = (Vault(place, KEY, copies=lake) for _ in range(2))
        made = prepared(spec, lake).data
        assert isinstance(made, CodesData)
        entry = kept(one, made)
        before = {path.name for path in lake.iterdir()}
        counts: Any = store_of(other).counts(space_of(spec), row(entry))
        assert told(counts, BY_WARD)[0].sum() == 120
        copied = other.open(entry)
        assert isinstance(copied, CodesData)
        assert os.pread(copied.file.fileno(), 4, 0) == b"PARE"
        assert {path.name for path in lake.iterdir()} == before
        assert other.commitment_key(entry) == b"c" * 32
        with place.open(entry.file_name) as found:
            whole = found.file.read()
        place.remove(entry.file_name)
        place.put(entry.file_name, [whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]])
        with pytest.raises(Unavailable):
            told(counts, LATE)


@pytest.mark.unit
def test_a_disk_that_refuses(lake: Path, spec: TableSpec) -> None:
    """503 for the operator, and nothing stays. Would catch a fault that tells what was read."""
    readers = ProcessReaders(sealing=lambda: Sealing(lake / "nowhere", KEY))
    with pytest.raises(Unavailable, match="look at the disk"):
        Sources({"parquet": ParquetFolders(readers, [lake], MEMORY)}).register(spec)


@pytest.mark.unit
@pytest.mark.slow
def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """3 million records, 30 MB of codes, where memory for fewer than a tenth of them is allowed to be held."""
    rng = np.random.default_rng(1)
    for number in range(3):
        columns = {f"a{axis}": rng.integers(0, 60_000, 1 << 20).astype(np.uint16) for axis in range(5)}
        write(tmp_path / f"{number}.parquet", columns, row_group_size=1 << 17)
    attributes = [{"name": f"a{axis}", "size": 60_000} for axis in range(5)]
    spec = table(declare(attributes, "*.parquet", prepare="vault"))
    made: Any = prepared(spec, tmp_path, memory=1 << 22).data
    assert isinstance(made, CodesData)
    assert made.mass == 3 << 20
    with pytest.raises(InvalidDataset, match="CURATOR_MEMORY_LIMIT"):
        parquet.prepare_source(spec, [tmp_path], memory_limit=1 << 22)
    numbers = ProcessReaders().ask_codes(
        Path(f"/proc/self/fd/{made.file.fileno()}"),
        made.about.tobytes(),
        [CellCounts((0,), (None,), (60_000,))],
        memory_limit=1 << 27,
    )
    assert numbers.sum() == 3 << 20


# ------------------------------------------------------------------------------------------------ the whole service

STORED = base64.b64encode(KEY).decode()


def running(folder: Path, lake: Path, **more: Any) -> Any:
    how = {"source_folders": str(lake), "source_tick_seconds": 0.05, "vault_key": STORED, **more}
    return serving(folder, noise=Noise(nothing), **how)


def registered(service: Service, **more: Any) -> str:
    declared = {**declare([WARD, YEAR, CODE], "?.parquet", prepare="vault"), "name": unique("sealed")}
    declared |= {"budget": {**BUDGET, "epsilon": 50.0}, **more}
    reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(declared))})
    assert reply.status_code == 201, reply.text
    return str(declared["name"])


def opened(analyst: httpx.Client, name: str) -> str:
    words = {"dataset": name, "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    reply = analyst.post("/v1/sessions", json=words)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def columns_of(lake: Path) -> dict[str, Any]:
    parts = [pa.parquet.read_table(lake / f"{number}.parquet").to_pydict() for number in (1, 2)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.api
def test_registered_asked_restarted_altered_and_retired(tmp_path: Path, lake: Path, logged: list[Any]) -> None:
    """Every question is answered of the records, without the source; what was counted is kept over a restart. Altered,
    the file answers nothing, 503; put back it does. Retired, nothing of it is left in the folder."""
    records = columns_of(lake)
    truth = int((records["ward"] == 1).sum())
    late = int(((records["ward"] != 1) & (records["year"] >= 3000)).sum())
    with running(tmp_path / "var", lake) as service:
        name = registered(service)
        for path in lake.glob("*.parquet"):
            path.unlink()
        analyst = service.principal("analyst", name="ann")
        key = analyst.headers["authorization"].removeprefix("Bearer ")
        session = opened(analyst, name)
        assert ask(analyst, session, where(ward=1))["value"] == truth
        (file,) = [p for p in (tmp_path / "var" / "vault").glob("*.vault") if p.read_bytes().startswith(b"PARE")]
    with running(tmp_path / "var", lake) as service:
        analyst = service.caller(key)
        assert len(list((tmp_path / "var" / "vault").glob("*.vault"))) > 1
        session = opened(analyst, name)
        assert ask(analyst, session, where(ward=1))["value"] == truth
        whole = file.read_bytes()
        file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        reply = analyst.post(f"/v1/sessions/{session}/queries", json=where(ward=[0, 2], year={"ge": 3000}))
        assert reply.status_code == 503
        assert service.caller(None).get("/readyz").status_code == 503
        file.write_bytes(whole)
        logged.clear()  # of what was refused just now
        for _ in range(200):
            reply = analyst.post(f"/v1/sessions/{session}/queries", json=where(ward=[0, 2], year={"ge": 3000}))
            if reply.status_code == 200:
                break
        assert reply.json()["value"] == late
        assert service.admin.delete(f"/v1/datasets/{name}").status_code in (200, 204)
        assert not list((tmp_path / "var" / "vault").glob("*.vault"))
        names = {path.name for path in (tmp_path / "var").rglob("*") if path.is_file()}
        assert not [each for each in names if each.startswith("tmp")]


@pytest.mark.api
def test_backed_up_restored_and_under_another_key(tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup has the file as it is stored; restored, and after a rotation of the vault's key, it answers."""
    truth = int((columns_of(lake)["ward"] == 2).sum())
    with running(tmp_path / "var", lake) as service:
        name = registered(service, answer_seconds=1)
        analyst = service.principal("analyst", name="ann")
        key = analyst.headers["authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("CURATOR_VAULT_KEY", STORED)
    monkeypatch.setenv("CURATOR_DATA_DIR", str(tmp_path / "var"))
    monkeypatch.delenv("CURATOR_DATABASE_URL", raising=False)
    assert maintenance.back_up(tmp_path / "backup") == 1
    monkeypatch.setenv("CURATOR_DATA_DIR", str(tmp_path / "restored"))
    (tmp_path / "restored").mkdir(mode=0o700)
    maintenance.restore(tmp_path / "backup", final=True)
    new = base64.b64encode(OTHER).decode()
    monkeypatch.setenv("CURATOR_VAULT_KEY", new)
    monkeypatch.setenv("CURATOR_VAULT_OLD_KEY", STORED)
    assert maintenance.rotate_vault() == 1
    with running(tmp_path / "restored", lake, vault_key=new) as service:
        analyst = service.caller(key)
        assert ask(analyst, opened(analyst, name), where(ward=2))["value"] == truth
        assert service.admin.get(f"/v1/datasets/{name}").json()["domain"]["answer_seconds"] == 1


@pytest.mark.integration
@pytest.mark.slow
def test_killed_servers_leave_nothing_and_answer_again(tmp_path: Path, lake: Path) -> None:
    """kill -9 at rest and in the middle of a registration. Would catch files of which nobody knows, answers that are
    lost, and records or keys in the logs."""
    settings = {"source_folders": str(lake), "vault_key": STORED, "source_tick_seconds": "0.05"}
    declared = {**declare([WARD, YEAR, CODE], "?.parquet", prepare="vault"), "budget": {**BUDGET, "epsilon": 50.0}}
    with launching(tmp_path / "var", None, **settings) as launcher:
        caller = Caller(launcher.start().wait_until_ready().url)

        def register(name: str) -> httpx.Response:
            return caller.http.post("/v1/datasets", files={"spec": (None, json.dumps({**declared, "name": name}))})

        assert register("one").status_code == 201
        words = {"dataset": "one", "mechanism": {"construction": "gaussian"}, "epsilon": 0.5, "max_queries": 5}
        session = caller.post("/v1/sessions", words).json()["id"]
        ward = where(ward=1)
        value = caller.post(f"/v1/sessions/{session}/queries", ward, "once").json()["value"]

        def begun() -> None:
            with contextlib.suppress(httpx.HTTPError):
                register("two")

        thread = threading.Thread(target=begun)
        thread.start()
        time.sleep(0.2)
        launcher.end()
        thread.join()
        caller = Caller(launcher.start().wait_until_ready().url)
        assert caller.post(f"/v1/sessions/{session}/queries", ward, "once").json()["value"] == value
        late = caller.post(f"/v1/sessions/{session}/queries", where(ward=[0, 2], year={"ge": 3000}))
        assert late.status_code == 200
        rows = caller.get("/v1/datasets")["items"]
        files = [path for path in (tmp_path / "var" / "vault").iterdir() if path.suffix == ".vault"]
        assert sum(path.read_bytes().startswith(b"PARE") for path in files) == len(rows)
        launcher.end()
        said = launcher.logs()
        for private in (STORED, "?.parquet"):
            assert private not in said


@pytest.mark.unit
def test_a_copy_of_a_table_goes_to_a_file_too(tmp_path: Path) -> None:
    """As text of PostgreSQL, in a process of its own. Would catch tables of databases that are held in memory still."""
    spec = table(declare(ATTRIBUTES, "x.parquet", prepare="vault"))
    readers = ProcessReaders(sealing=lambda: Sealing(tmp_path, KEY))
    with copying() as memory:
        memory.write(b"ward,days,code\nnorth,1.5,7\n,40,70000\neast,2,1\n")
        found = read_copy(readers, spec, memory, "table.csv", MEMORY)
    assert isinstance(found.data, CodesData)
    assert parquet_columns(found.data) == [[0, 2], [3, 60], [7, 70000]]
    assert (found.report.kept, found.report.dropped, found.report.clamped) == (2, 1, 1)
