"""Would show what nobody thought of: an upload or body, made at random and hurt at random, that ends in a 5xx, leaves
something behind though it was refused, or is taken for something else than it holds.

What is drawn knows the formats: whole files and bodies of every kind are made first, and then hurt where it hurts, at
quotes, ends, names, types and lengths. The same examples in every run; ``make fuzz`` draws others.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sqlite3
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from app.declarations.spec import parse_spec
from app.http import dense_bodies
from app.spaces.errors import InvalidQuery
from app.spaces.queries.request import QueryModel
from app.storage.log_store import SqlLog
from app.storage.vault import Vault, VaultEntry
from tests.datasets.plain import NoReading, length_of, mass_of
from tests.kit.foreign import FOREIGN
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import (
    ARROW,
    JSON,
    NPY,
    PROBLEM,
    STATUS,
    Service,
    arrow,
    head,
    multipart,
    npy,
    open_session,
    raw,
    register,
    serving,
    unique,
)

pytestmark = pytest.mark.adversarial

#: Some examples in every run, many where they are drawn anew.
drawn = settings(max_examples=40 if settings().derandomize else 400)
#: For files that are checked in three ways and registered, by the code that reads those of uploads.
read_thrice = settings(max_examples=15 if settings().derandomize else 400)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
ADMIN_KEY = "the-operators-own-key"


# ----------------------------------------------------------------------------------------------- what is watched


@dataclass
class World:
    """A server with a data set of each kind and a session on each, and what shows that a request left something."""

    service: Service
    callers: list[httpx.Client]
    sessions: dict[str, str]
    database: sqlite3.Connection
    events: list[MutableMapping[str, Any]]
    room: int
    files: set[str] = field(default_factory=set)
    commits: int = 0

    def _commits(self) -> int:
        """A number that moves with each commit of the server's."""
        return int(self.database.execute("PRAGMA data_version").fetchone()[0])

    def _settle(self) -> None:
        """Until no release is worked on, and all that was committed is in the log: these are commits, too."""
        log = SqlLog(self.service.built.store)
        deadline = time.monotonic() + patience(60)
        worked = "SELECT count(*) FROM releases WHERE status IN ('queued', 'running')"
        while self.database.execute(worked).fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        while log.news(log.state(), log.settled(), 1)[0]:
            assert time.monotonic() < deadline
            self.service.built.services.sequencer.hurry()
            time.sleep(0.005)

    def _files(self) -> set[str]:
        return {path.name for path in self.service.settings.vault_dir.iterdir()}

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[tuple[int, Any, bytes]]]:
        """Hold replies, which the block collects, against everything that any reply must keep to."""
        self.events.clear()
        self._settle()
        self.commits, self.files = self._commits(), self._files()
        replies: list[tuple[int, Any, bytes]] = []
        yield replies
        wrong = [entry for entry in self.events if entry["level"] in ("error", "critical")]
        assert not wrong, wrong
        for status, headers, body in replies:
            assert status < 500, (status, body)
            assert b"Traceback" not in body
            if status >= 400:
                assert headers["content-type"] == PROBLEM, (status, headers)
                document = json.loads(body)
                assert STATUS[document["type"].removeprefix("/problems/")] == status == document["status"]
                assert len(document["detail"]) >= 10
                assert not FOREIGN.search(document["detail"]), document["detail"]
        if all(status >= 400 for status, _, _ in replies):
            # Nothing stays of what was refused: no row, no private file.
            assert self._commits() == self.commits
            assert self._files() == self.files
        # No room either, whatever came of it.
        deadline = time.monotonic() + patience(60)
        while self.service.built.context.body_memory.free != self.room:
            assert time.monotonic() < deadline, "the room that a body took was not given back"
            time.sleep(0.001)

    def mass(self, name: str) -> Fraction:
        """The mass of what was stored under a name, in counts."""
        found = self.database.execute("SELECT spec, vault_entry FROM datasets WHERE name = ?", (name,)).fetchone()
        spec, entry = (json.loads(value) for value in found)
        vault = Vault(self.service.settings.vault_dir, None, keys_folder=self.service.settings.keys_dir)
        data = vault.open(VaultEntry(entry["file_name"], entry["digest"]))
        return Fraction(data.mass, 2 ** getattr(parse_spec(spec), "data_bits", 0))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    events: list[MutableMapping[str, Any]] = []

    def keep(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> str:
        events.append(entry)
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.add_log_level, keep])
    limits = {"rate_limit": None, "heavy_rate_limit": None, "memory_limit": 256 << 20, "max_body_bytes": 1 << 20}
    with serving(tmp_path_factory.mktemp("fuzz"), noise=Noise(), admin_key=ADMIN_KEY, **limits) as service:
        analyst, auditor = service.principal("analyst", "ann"), service.principal("auditor", "audrey")
        sessions = {}
        for spec, filename, data in [
            ({"name": "table", **SPECS["codes"]}, "t.csv", b"a,b\n0,x\n1,y\n"),
            ({"name": "graph", **SPECS["friends"]}, "g.txt", b"0 1\n1 2\n"),
            ({"name": "matrix", **SPECS["ratings"]}, "m.csv", b"row,column,value\n0,1,5\n"),
            ({"name": "multiset", **SPECS["words"]}, "w.csv", b"element,count\nthe,3\n"),
        ]:
            assert register(service.admin, {**spec, "budget": BUDGET}, data, filename).status_code == 201
            construction = "smw" if spec["name"] == "multiset" else "fk"
            mechanism = {"construction": construction, **({"sparsity": 2} if construction == "smw" else {})}
            opened = open_session(
                analyst, spec["name"], mechanism=mechanism, epsilon=0.5, max_queries=10**6, max_updates=5
            )
            sessions[spec["name"]] = opened["id"]
        direct = {"mechanism": {"construction": "gaussian"}, "epsilon": 0.4, "max_queries": 1000, "max_updates": None}
        sessions["measured"] = open_session(analyst, "table", **direct)["id"]
        path = f"file:{service.settings.data_dir / 'curator.sqlite3'}?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
            room = service.built.context.body_memory.free
            yield World(service, [service.admin, analyst, auditor], sessions, database, events, room)
    structlog.reset_defaults()


# ----------------------------------------------------------------------------------------------- uploads

LABELS = ["ann", "bob", "c d", "é"]
SPECS: dict[str, JSON] = {
    "codes": {"kind": "table", "attributes": [{"name": "a", "size": 3}, {"name": "b", "values": ["x", "y", "z z"]}]},
    "years": {
        "kind": "table",
        "attributes": [{"name": "age", "lower": 0, "upper": 90, "bins": 9}, {"name": "n", "values": [1, 2, 30]}],
        "outside": "drop",
        "capacity": 12,
    },
    "one": {"kind": "table", "attributes": [{"name": "a", "size": 4}], "capacity": 2**40},
    "visits": {
        "kind": "table",
        "attributes": [
            {"name": "price", "lower": -2, "upper": 9, "grid": 0.5, "outside": "clamp", "missing": True},
            {"name": "day", "dates": ["2020-02-01", "2021-01-31"], "by": "month", "missing": True},
        ],
    },
    "friends": {"kind": "graph", "nodes": 5},
    "follows": {"kind": "graph", "nodes": 4, "directed": True, "loops": "drop", "labels": LABELS},
    "likes": {"kind": "bipartite", "left": 4, "right": 3, "left_labels": LABELS, "grid": 0.125},
    "ratings": {"kind": "matrix", "rows": 2, "columns": 3, "lower": -1, "upper": 5, "grid": 0.25, "absent": 1},
    "words": {"kind": "multiset", "capacity": 2**40},
}
#: What hurts a text.
THORNS = [
    '"', '""', '","', '"\n', ",", "\t", " ", "\n", "\r", "\r\n", "\0", "\ufeff", "\u00a0", "\udcff", "-", "1e5",
    "1e-400", "nan", "inf", "0", "1", "9" * 20, "'", ";", "a,b", "\n\n", " \n",
]  # fmt: skip


def cell_of(d: st.DataObject, attribute: JSON) -> Any:
    if "size" in attribute:
        return d.draw(st.integers(0, attribute["size"] - 1))
    if "values" in attribute:
        return d.draw(st.sampled_from(attribute["values"]))
    if "dates" in attribute:
        return d.draw(st.sampled_from(["2020-02-29", "2020-12-31T23:59", "2021-01", "2020-02-01 00:00", ""]))
    return d.draw(st.integers(int(attribute["lower"]), int(attribute["upper"])) | st.just(12.5))


def records_of(d: st.DataObject, spec: JSON) -> tuple[list[str], list[list[Any]]]:
    """Names of columns, and records that keep to a declaration most of the time."""
    size = d.draw(st.integers(1, 12))
    match spec["kind"]:
        case "table":
            names = [attribute["name"] for attribute in spec["attributes"]]
            rows = [[cell_of(d, attribute) for attribute in spec["attributes"]] for _ in range(size)]
        case "multiset":
            names = ["element", "count"]
            counts = st.integers(0, 9) | st.sampled_from([2**39, 2**40, 2**40 + 1])
            rows = [[d.draw(st.text(min_size=1, max_size=3)), d.draw(counts)] for _ in range(size)]
        case "matrix":
            names = ["row", "column", "value"]
            values = st.integers(-4, 20).map(lambda units: units / 4) | st.just(0.1)
            rows = [[d.draw(st.integers(0, 1)), d.draw(st.integers(0, 2)), d.draw(values)] for _ in range(size)]
            rows = list({(row[0], row[1]): row for row in rows}.values())
        case _:
            left = spec.get("left_labels") or spec.get("labels") or list(range(spec.get("nodes", 4)))
            right = list(range(spec["right"])) if "right" in spec else left
            names = ["left", "right"]
            rows = [[d.draw(st.sampled_from(left)), d.draw(st.sampled_from(right))] for _ in range(size)]
            rows = [row for row in rows if row[0] != row[1] or "right" in spec] or [[left[0], right[1]]]
            if d.draw(st.booleans()):
                rows = [list(row) for row in {tuple(row) for row in rows}]
                names, rows = [*names, "weight"], [[*row, d.draw(st.integers(0, 8)) / 8] for row in rows]
    if spec["kind"] in ("table", "matrix") and d.draw(st.booleans()):
        note = st.text(st.sampled_from(list('ab ,"\n')), max_size=4)
        names, rows = [*names, "note"], [[*row, d.draw(note)] for row in rows]
    return names, rows


def text_of(d: st.DataObject, names: list[str], rows: list[list[Any]], separator: str) -> bytes:
    """A text file, quoted where it must be and sometimes where it need not be."""
    end = d.draw(st.sampled_from(["\n", "\r\n"]))
    thorough = d.draw(st.booleans())

    def written(cell: Any) -> str:
        text = str(cell)
        if thorough or any(sign in text for sign in ' ,\t"\r\n'):
            return '"' + text.replace('"', '""') + '"'
        return text

    lines = [separator.join(map(written, row)) for row in [names, *rows]]
    return (end.join(lines) + end * d.draw(st.integers(0, 2))).encode("utf-8", "replace")


def parquet_of(d: st.DataObject, names: list[str], rows: list[list[Any]]) -> bytes:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array([str(c) for c in column] if d.draw(st.booleans()) else list(column)) for column in columns]
    how: dict[str, Any] = {
        "use_dictionary": d.draw(st.booleans()),
        "compression": d.draw(st.sampled_from(["none", "snappy", "zstd"])),
        "data_page_version": d.draw(st.sampled_from(["1.0", "2.0"])),
        "row_group_size": d.draw(st.integers(1, 20)),
        "write_page_checksum": d.draw(st.booleans()),
    }
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=names), sink, **how)
    return sink.getvalue()


def array_of(d: st.DataObject, spec: JSON) -> Any:
    """An array of the declared shape, most of the time in a type and of entries that are taken."""
    match spec["kind"]:
        case "table":
            shape = tuple(map(length_of, spec["attributes"]))
            entries = st.integers(0, 3) | st.sampled_from([2**39, 2**40])
        case "matrix":
            shape, entries = (2, 3), st.integers(-1, 5)
        case "multiset":
            shape, entries = (3,), st.integers(0, 3)
        case _:
            shape = (spec.get("left") or spec["nodes"], spec.get("right") or spec["nodes"])
            entries = st.integers(0, 1)
    size = int(np.prod(shape))
    array = np.array(d.draw(st.lists(entries, min_size=size, max_size=size)), np.int64).reshape(shape)
    if spec["kind"] == "graph" and d.draw(st.booleans()):
        array = np.triu(array, 1) + np.triu(array, 1).T
    kind = d.draw(st.sampled_from(["i8", "f8", "u8", ">i8", "f4", "u1", "?", "f2", "c16", "U3"]))
    order: Any = d.draw(st.sampled_from("CF"))
    with np.errstate(all="ignore"):
        return np.array(array.astype(kind), order=order)


def hurt(d: st.DataObject, data: bytes) -> bytes:
    """The same bytes with something of them changed."""
    for _ in range(d.draw(st.integers(1, 3))):
        place = d.draw(st.integers(0, len(data)))
        other = min(len(data), place + d.draw(st.integers(1, 12)))
        match d.draw(st.sampled_from(["thorn", "flip", "cut", "drop", "double", "overwrite", "append"])):
            case "thorn":
                thorn = d.draw(st.sampled_from(THORNS)).encode("utf-8", "surrogateescape")
                data = data[:place] + thorn + data[place:]
            case "flip" if data:
                place = min(place, len(data) - 1)
                data = data[:place] + bytes([data[place] ^ 1 << d.draw(st.integers(0, 7))]) + data[place + 1 :]
            case "cut":
                data = data[:place]
            case "drop":
                data = data[:place] + data[other:]
            case "double":
                data = data[:other] + data[place:]
            case "overwrite":
                extreme = d.draw(st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x01"]))
                data = data[:place] + extreme + data[place + len(extreme) :]
            case "append":
                data += d.draw(st.binary(max_size=9))
    return data


@drawn
@given(st.data())
def test_uploads(world: World, d: st.DataObject) -> None:
    """Whole files are taken and damaged ones refused, or taken for what a plain reading finds in them."""
    spec = SPECS[d.draw(st.sampled_from(sorted(SPECS)))]
    suffix = d.draw(st.sampled_from([".csv", ".tsv", ".txt", ".parquet", ".parquet", ".npy", ".npz"]))
    filename = "data" + suffix
    names, rows = records_of(d, spec)
    if suffix == ".parquet":
        data = parquet_of(d, names, rows)
    elif suffix in (".npy", ".npz"):
        array = array_of(d, spec)
        sink = io.BytesIO()
        np.savez_compressed(sink, a=array)
        data = npy(array) if suffix == ".npy" else sink.getvalue()
    else:
        edges = spec["kind"] in ("graph", "bipartite")
        data = text_of(d, names, rows, "," if edges or suffix == ".csv" else "\t")
    whole = d.draw(st.integers(0, 3)) == 0
    if not whole:
        data = hurt(d, data)
    name = unique("f")
    with world.watched() as replies:
        reply = register(world.service.admin, {"name": name, "budget": BUDGET, **spec}, data, filename)
        replies.append((reply.status_code, reply.headers, reply.content))
    try:
        expected = mass_of(spec, filename, data)
    except NoReading:
        assert reply.status_code == 422, (spec, filename, data)
        return
    if reply.status_code == 201:
        assert world.mass(name) == expected, (spec, filename, data)
    else:
        assert reply.status_code == 422
        # Whatever a plain reading takes of a whole file is taken.
        assert not whole or "capacity" in reply.text, (spec, filename, data, reply.text)


@drawn
@given(st.data())
def test_forms(world: World, d: st.DataObject) -> None:
    """Registrations whose declaration or multipart frame is hurt."""
    name = unique("f")
    spec = json.dumps(changed(d, {"name": name, "budget": BUDGET, **SPECS[d.draw(st.sampled_from(sorted(SPECS)))]}))
    words = spec.encode()
    if d.draw(st.booleans()):
        words = hurt(d, words)
    body = multipart(words, b"a,b\n0,x\n", d.draw(st.sampled_from(["d.csv", "d.npy", "", "d.parquet"])))
    if d.draw(st.booleans()):
        body = hurt(d, body)
    headers = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    with world.watched() as replies:
        reply = world.service.admin.post("/v1/datasets", content=body, headers=headers)
        replies.append((reply.status_code, reply.headers, reply.content))


# ----------------------------------------------------------------------------------------------- JSON on every route

SESSION: JSON = {
    "dataset": "table", "mechanism": {"construction": "mw"}, "epsilon": 0.001, "max_queries": 10, "max_updates": 2,
}  # fmt: skip
RELEASES: list[JSON] = [
    {"dataset": "table", "workload": {"marginals": 1, "attributes": ["b"]}, "epsilon": 0.001, "method": "gaussian"},
    {"dataset": "table", "workload": {"queries": [{"type": "predicate", "where": {"b": "x"}}]}, "epsilon": 2},
    {"dataset": "graph", "workload": {"cuts": "all"}, "epsilon": 2, "method": "synthetic_graph", "rounding": "edges"},
]
QUERIES: list[JSON] = [
    {"type": "predicate", "where": {"a": {"equals": 1}, "b": {"in": ["x", "y"]}}},
    {"type": "product", "weights": {"a": [0.5, 1, 0]}},
    {"type": "cut", "left": [0, 1], "right": "all"},
    {"type": "rank_one", "left": [0.5] * 5, "right": [1] * 5},
    {"type": "sparse", "indices": [0, 4], "weights": [0.25, -1]},
    {"type": "dense", "weights": [[0.5, 1, 0], [0, 0, 1], [1, 1, 1]], "unverified": True},
    {"type": "elements", "weights": {"the": 1, "a:b": 0.5}},
    {"type": "marginal", "attributes": ["b", "a"], "bins": {"a": [0, 1, 3]}, "where": {"b": ["x", "y"]}},
    {"type": "marginal", "attributes": ["b"], "where": {"a": {"ge": 1, "lt": 3}}, "within": 1e6, "confidence": 0.9},
    {"type": "marginal", "attributes": ["a"], "where": {"a": {"gt": 0}, "b": "x"}, "adaptive": True},
    {"type": "mean", "of": "a", "group_by": ["b"], "where": {"any": [{"a": {"ge": 1}}, {"b": "x"}]}, "within": 1e6},
    {"type": "variance", "of": "b", "where": {"a": None}},
    {"type": "quantile", "of": "a", "q": [0.25, 0.5], "group_by": ["a", "b"], "bins": {"a": [0, 1, 3]}},
    {"type": "blocks", "left": {"u": [0, 1], "v": [2]}, "right": {"u": [0, 1], "v": [2]}, "only": "within"},
    {"type": "degrees", "side": "out", "bins": [0, 1, 3]},
]
#: Each route that reads JSON, and bodies that it takes.
STATEMENTS = [
    {"statement": statement}
    for statement in (
        "SELECT COUNT(*) FROM t WHERE a = 1",
        "SELECT a, AVG(b) AS m FROM t GROUP BY a",
        "EXPLAIN SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY 2 DESC LIMIT 3",
        "SHOW TABLES",
    )
]
ROUTES: list[tuple[str, str, list[Any]]] = [
    ("POST", "/v1/principals", [{"name": "spare", "role": "analyst"}]),
    ("POST", "/v1/principals/NAME/key", [{}]),
    ("POST", "/v1/connections", [{"name": "c", "url": "postgresql://u:p@127.0.0.1/d"}]),
    ("PUT", "/v1/connections/NAME", [{"url": "postgresql://u:p@127.0.0.1/d"}]),
    ("POST", "/v1/connections/NAME/check", [{}]),
    ("POST", "/v1/datasets/NAME/commitment", [{}]),
    ("PUT", "/v1/datasets/NAME/grants/ann", [{"epsilon": 0.9}]),
    ("POST", "/v1/plans", [SESSION, {**SESSION, "mechanisms": [{"construction": "mw"}, {"construction": "fk"}]}]),
    ("POST", "/v1/sessions", [SESSION]),
    ("POST", "/v1/sessions/SESSION/queries", list(QUERIES)),
    ("POST", "/v1/sessions/SESSION/queries/batch", [{"queries": QUERIES}, {"queries": QUERIES[:1] * 3}]),
    ("POST", "/v1/sessions/SESSION/price", [*QUERIES, {"queries": QUERIES[:3]}]),
    ("POST", "/v1/sessions/SESSION/sql", STATEMENTS),
    ("POST", "/v1/datasets/NAME/sql", STATEMENTS),
    ("GET", "/v1/sessions/SESSION/entries", [None]),
    ("GET", "/v1/sessions/SESSION/entries/{sequence}", [None]),
    ("GET", "/v1/datasets/NAME/sessions", [None]),
    ("GET", "/v1/datasets/NAME/grants", [None]),
    ("GET", "/v1/grants", [None]),
    ("POST", "/v1/sessions/spare/close", [{}]),
    ("GET", "/v1/log/key", [None]),
    ("GET", "/v1/log/checkpoint?witnesses=1", [None]),
    ("GET", "/v1/log/entries?start=0&end=3", [None]),
    ("GET", "/v1/log/proof/inclusion?index=0&size=1", [None]),
    ("GET", "/v1/log/proof/consistency?first=0&second=1", [None]),
    ("POST", "/v1/log/cosignatures?witness=w%2B0488a364%2BBBvW", [{}]),
    ("DELETE", "/v1/log/witnesses/NAME", [None]),
    ("GET", "/v1/sessions/SESSION", [None]),
    ("GET", "/v1/sessions/SESSION/hypothesis", [None]),
    ("GET", "/v1/sessions/SESSION/transcript", [None]),
    ("GET", "/v1/sessions", [None]),
    ("POST", "/v1/releases", RELEASES),
    ("GET", "/v1/releases", [None]),
    ("GET", "/v1/releases/SESSION", [None]),
    ("GET", "/v1/releases/SESSION/events", [None]),
    ("GET", "/v1/releases/SESSION/data?part=answers", [None]),
    ("DELETE", "/v1/releases/SESSION", [None]),
    ("GET", "/v1/datasets", [None]),
    ("GET", "/v1/datasets/NAME", [None]),
    ("GET", "/v1/datasets/NAME/ledger", [None]),
    ("GET", "/v1/datasets/NAME/dummy?records=3&seed=x", [None]),
    ("GET", "/v1/datasets/NAME/measurements", [None]),
    ("GET", "/v1/datasets/NAME/measurements/SESSION", [None]),
    ("GET", "/v1/principals", [None]),
    ("GET", "/v1/connections", [None]),
    ("DELETE", "/v1/connections/NAME", [None]),
    ("DELETE", "/v1/principals/spare", [None]),
    ("DELETE", "/v1/datasets/spare", [None]),
]
odd = st.sampled_from(
    [None, True, False, 0, -1, 1, 0.5, 1e308, 5e-324, 2**53, 2**63, -(2**63), 10**30, "", "x", "all", "table", "\u0000",
     "\ud7ff", "a" * 300, [], {}, [[]], [None], {"": None}, {"type": "dense"}, [0.1] * 9]
).map(copy.deepcopy)  # fmt: skip


members = st.sampled_from(
    ["unverified", "type", "name", "beta", "release", "step", "", "\u00e9", "within", "adaptive", "bins", "where",
     "attributes", "a", "ge", "le", "in", "all", "any", "not"]
)  # fmt: skip


def places_of(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            found += [(node, key), *places_of(node[key])]
    return found


def changed(d: st.DataObject, document: Any) -> Any:
    """A document with some of its values replaced, dropped, doubled, or moved."""
    document = copy.deepcopy(document)
    for _ in range(d.draw(st.integers(0, 2))):
        places = places_of(document)
        if not places:
            return d.draw(odd)
        node, key = d.draw(st.sampled_from(places))
        match d.draw(st.sampled_from(["replace", "drop", "more", "nest", "swap"])):
            case "replace":
                node[key] = d.draw(odd)
            case "drop":
                del node[key]
            case "more" if isinstance(node, dict):
                name = d.draw(members)
                node[name] = d.draw(odd)
            case "more":
                node.append(d.draw(odd))
            case "nest":
                node[key] = [node[key]]
            case "swap":
                other, place = d.draw(st.sampled_from(places))
                with contextlib.suppress(KeyError, IndexError):
                    node[key] = copy.deepcopy(other[place])
    return document


def doubled(d: st.DataObject, body: bytes) -> bytes:
    """A body in which a member is written twice, somewhere."""
    place = body.find(b"{", d.draw(st.integers(0, len(body))))
    return body if place < 0 else body[: place + 1] + b'"type":0,"type":1,' + body[place + 1 :]


@drawn
@given(st.data())
def test_bodies(world: World, d: st.DataObject) -> None:
    """JSON of every route on this and other routes, changed and damaged, by everybody."""
    method, path, known = d.draw(st.sampled_from(ROUTES))
    if d.draw(st.integers(0, 5)) == 0:
        known = d.draw(st.sampled_from(ROUTES))[2]
    names = st.sampled_from(["table", "graph", "nobody", "x" * 70, "a b", "\u00e9", "..", "%", "\0", "a\nb"])
    path = path.replace("NAME", quote(d.draw(names), safe=""))
    sessions = [*world.sessions.values(), "0" * 32, "x", "'"]
    path = path.replace("SESSION", quote(d.draw(st.sampled_from(sessions)), safe=""))
    path = path.replace("{sequence}", d.draw(st.sampled_from(["1", "2", "0", "-1", "9" * 17, "x", "%00"])))
    path += d.draw(
        st.sampled_from(
            ["", "", "", "?limit=1", "?limit=-1", "?after=x&limit=x", "?unverified=no", "?within=x", "?%00"]
        )
    )
    document = changed(d, d.draw(st.sampled_from(known)))
    body = b"" if document is None else json.dumps(document).encode()
    match d.draw(st.sampled_from(["whole", "whole", "hurt", "doubled"])):
        case "hurt":
            body = hurt(d, body)
        case "doubled":
            body = doubled(d, body)
    headers = {"Content-Type": d.draw(st.sampled_from(["application/json", "", "text/plain", NPY, ARROW, "a/b+json"]))}
    if d.draw(st.booleans()):
        headers["Idempotency-Key"] = d.draw(st.sampled_from(["one", "two", "k" * 256, ""]))
    if d.draw(st.integers(0, 3)) == 0:
        headers["Accept"] = d.draw(st.sampled_from([ARROW, f"{ARROW}, */*", "application/json", "text/html", ""]))
    if d.draw(st.integers(0, 7)) == 0:
        headers["Content-Encoding"] = "gzip"
    caller = d.draw(st.sampled_from(world.callers))
    with world.watched() as replies:
        reply = caller.request(method, path, content=body, headers=headers)
        replies.append((reply.status_code, reply.headers, reply.content))
    if reply.status_code < 300 and body.strip():
        # Whatever is taken as JSON is JSON without a member twice.
        if headers["Content-Type"] not in (NPY, ARROW) and method in ("POST", "PUT"):
            json.loads(body, object_pairs_hook=distinct)
        assert headers.get("Content-Encoding") is None


def distinct(pairs: list[tuple[str, Any]]) -> JSON:
    members = dict(pairs)
    assert len(members) == len(pairs)
    return members


# ----------------------------------------------------------------------------------------------- arrays


@drawn
@given(st.data())
def test_arrays(world: World, d: st.DataObject) -> None:
    """.npy and Arrow bodies, whole and damaged: refused, or the numbers that a plain reading finds in them."""
    shapes = {"table": (3, 3), "graph": (5, 5), "matrix": (2, 3), "multiset": (3,)}
    session, shape = d.draw(st.sampled_from(list(shapes.items())))
    size = int(np.prod(shape))
    weights = np.array(d.draw(st.lists(st.sampled_from([0, 1, 0.5, -1, -0.25]), min_size=size, max_size=size)))
    weights = weights.astype(d.draw(st.sampled_from(["f8", "f4", "f2", "i8", "i1", ">f8", "u4"])))
    media_type = d.draw(st.sampled_from([NPY, ARROW]))
    if media_type == NPY:
        body = npy(weights.reshape(shape) if d.draw(st.booleans()) else weights)
    else:
        body = arrow(weights.astype(weights.dtype.newbyteorder("=")))
    if d.draw(st.booleans()):
        body = hurt(d, body)
    path = f"/v1/sessions/{world.sessions[session]}/queries"
    with world.watched() as replies:
        reply = world.callers[1].post(path, content=body, headers={"Content-Type": media_type})
        replies.append((reply.status_code, reply.headers, reply.content))
    try:
        found = dense_bodies.dense_body(media_type, body, QueryModel()).weights
    except InvalidQuery:
        assert reply.status_code == 422
        return
    if media_type == NPY:
        plain = np.load(io.BytesIO(body), allow_pickle=False)
    else:
        with pa.ipc.open_stream(body) as reader:
            plain = reader.read_all().column(0).to_numpy()
    assert np.array_equal(found, plain, equal_nan=True)


# ----------------------------------------------------------------------------------------------- requests


@drawn
@given(st.data())
def test_requests(world: World, d: st.DataObject) -> None:
    """Heads and frames of requests, byte by byte. Whatever comes back is a reply of this service's, or none."""
    body = json.dumps(d.draw(st.sampled_from(QUERIES))).encode()
    ask = f"/v1/sessions/{world.sessions['table']}/queries"
    method, path = d.draw(st.sampled_from([("POST", ask), ("GET", "/v1/datasets")]))
    headers: dict[str, str | int] = {"Content-Type": "application/json"}
    match d.draw(st.sampled_from(["length", "chunked", "both", "neither", "coded"])):
        case "length":
            headers["Content-Length"] = d.draw(st.sampled_from([len(body), 0, len(body) - 1, "x", "-1", 10**20]))
        case "chunked":
            headers["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        case "both":
            headers |= {"Transfer-Encoding": "chunked", "Content-Length": len(body)}
        case "coded":
            headers["Transfer-Encoding"] = d.draw(st.sampled_from(["gzip, chunked", "gzip", "chunked, gzip", "x"]))
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    request = head(method, path, ADMIN_KEY, **headers) + body
    if d.draw(st.booleans()):
        request = hurt(d, request)
    with world.watched() as replies:
        reply = raw(world.service.address, request, hang_up=True)
        if reply is not None:
            replies.append((reply.status, reply.headers, reply.body))


#: Documents that a check reads, to be hurt.
DOCUMENTS: list[Any] = [
    {"name": "p", "attributes": [{"name": "a"}, {"name": "b", "missing": True}], "null_values": ["x"]},
    {"": {"s": {"t": {"max_ids": 2, "a": {"type": "int", "lower": 0, "upper": 5}, "b": {"private_id": True}}}}},
    {"max_ids": 1, "row_privacy": True, "columns": {"a": {"type": "float", "lower": 0.5, "upper": 9}}},
    {
        "@type": "Table",
        "tableSchema": {
            "columns": [
                {"titles": ["a", "A"], "datatype": {"base": "integer", "minimum": 0, "maximum": "7"}},
                {"name": "b", "datatype": "string", "keyValues": ["x", "y"], "nullableProportion": 0.1},
            ]
        },
    },
]


@read_thrice
@given(st.data())
def test_checks(world: World, d: st.DataObject) -> None:
    """Drafts and checks of hurt files and documents: a check of what is registered has no problem, and nothing of any
    check stays.
    """
    spec = SPECS[d.draw(st.sampled_from(sorted(SPECS)))]
    names, rows = records_of(d, spec)
    filename = d.draw(st.sampled_from(["data.csv", "data.parquet"]))
    data = parquet_of(d, names, rows) if filename == "data.parquet" else text_of(d, names, rows, ",")
    if d.draw(st.booleans()):
        data = hurt(d, data)
    declared = {"name": unique("f"), "budget": BUDGET, **spec}
    document = json.dumps(changed(d, d.draw(st.sampled_from(DOCUMENTS))))
    if d.draw(st.booleans()):
        document = hurt(d, document.encode()).decode("utf-8", "replace")
    # The first byte of a document tells JSON from YAML; JSON is YAML too.
    document = d.draw(st.sampled_from(["", "# \n"])) + document
    found = []
    for words in (None, json.dumps(declared), document):
        with world.watched() as replies:
            form = {} if words is None else {"spec": words}
            files = {"data": (filename, data)}
            reply = world.service.admin.post("/v1/datasets/check", data=form, files=files)
            replies.append((reply.status_code, reply.headers, reply.content))
            assert reply.status_code in (200, 422)
        assert world.database.execute("PRAGMA data_version").fetchone()[0] == world.commits
        assert {path.name for path in world.service.settings.vault_dir.iterdir()} == world.files
        found.append(reply)
    registered = register(world.service.admin, declared, data, filename)
    assert (registered.status_code == 201) == (found[1].json()["problems"] == []), (declared, data, found[1].text)


def test_every_route_is_drawn(world: World) -> None:
    """Catches a route that comes and is not tried here."""
    paths = {(method, path.split("?")[0]) for method, path, _ in ROUTES}
    paths |= {("POST", "/v1/datasets"), ("POST", "/v1/datasets/check")}
    described = world.service.built.app.openapi()["paths"]
    assert len(described) > 40
    missing = []
    for path, item in described.items():
        # An audit beats while it is checked: what is stored would not stand still.
        if not path.startswith("/v1") or path.startswith("/v1/audits"):
            continue
        path = path.replace("{id}", "SESSION").replace("{principal}", "ann").replace("{name}", "NAME")
        for method in item:
            spellings = {path, path.replace("NAME", "spare"), path.replace("SESSION", "spare")}
            missing += [] if {(method.upper(), each) for each in spellings} & paths else [(method.upper(), path)]
    assert missing == []
