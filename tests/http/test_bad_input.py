"""Whatever is sent: the contract's problem, nothing stored, no private value told.

One table of everything that can be wrong with a request. Each case must be refused with the problem named, in
problem JSON, with a detail that holds the given words (what to change, or where it is); and afterwards every row of
every table and the folder of the private files must be what they were before, and in the end every ledger.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.noise import Noise
from tests.kit.service import (
    ARROW,
    JSON,
    NPY,
    RawReply,
    Service,
    arrow,
    ask,
    head,
    multipart,
    npy,
    open_session,
    raw,
    refused,
    register,
    serving,
    session_words,
    where,
)

pytestmark = pytest.mark.api

MAX_BODY, MAX_JSON = 2 << 20, 256 << 10
FEMALE = where(sex={"equals": "female"})
#: The private counts of the data sets here, and what stands in the cells of refused files. None may ever be told.
COUNTS = np.array([[9137, 113, 57, 853], [4219, 211, 307, 503]])
SECRETS = ["9137", "4219", str(COUNTS.sum()), str(COUNTS[0].sum()), "8173645", "zebra-quux", "71.618"]

AS_JSON = {"Content-Type": "application/json"}

Reply = httpx.Response | RawReply


@dataclass
class World:
    """A server with a little of everything, and what it had stored when that was made."""

    service: Service
    analyst: httpx.Client
    sessions: dict[str, str]
    stored: str = ""

    @property
    def admin(self) -> httpx.Client:
        return self.service.admin

    def raw(self, request: bytes, **how: Any) -> RawReply:
        reply = raw(self.service.address, request, **how)
        assert reply is not None
        return reply


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("bad")
    limits = {"max_body_bytes": MAX_BODY, "max_query_body_bytes": MAX_JSON, "memory_limit": 64 << 20}
    with serving(folder, noise=Noise(), **limits) as service:
        budget = {"epsilon": 1.0, "delta": 1e-6}
        for spec, filename, data in [
            ({**TABLE, "name": "people"}, "c.npy", npy(COUNTS)),
            ({**TABLE, "name": "spent"}, "c.npy", npy(COUNTS)),
            ({"name": "friends", "kind": "graph", "nodes": 6, "budget": budget}, "g.txt", b"0 1\n1 2\n"),
            ({"name": "web", "kind": "graph", "nodes": 3, "directed": True, "budget": budget}, "g.txt", b"0 1\n"),
            ({**NAMED, "name": "named", "budget": budget}, "g.csv", b"u,x,0.5\nv,y,1\n"),
            ({**TABLE, "name": "gone"}, "c.npy", npy(COUNTS)),
            ({**WORDS_SPEC, "name": "words"}, "w.csv", b"element,count\nthe,9137\nof,4219\n"),
        ]:
            assert register(service.admin, spec, data, filename).status_code == 201
        service.admin.delete("/v1/datasets/gone")
        analyst, other = service.principal("analyst", "ann"), service.principal("analyst", "eve")
        fk = {"construction": "fk"}
        sessions = {
            name: open_session(client, dataset, mechanism=fk, epsilon=epsilon, max_updates=1)["id"]
            for name, client, dataset, epsilon in [
                ("people", analyst, "people", 0.1),
                ("friends", analyst, "friends", 0.1),
                ("web", analyst, "web", 0.1),
                ("named", analyst, "named", 0.1),
                ("closed", analyst, "people", 0.1),
                ("exhausted", analyst, "people", 0.1),
                ("foreign", other, "people", 0.1),
                ("spent", analyst, "spent", 1.0),
            ]
        }
        smw = {"construction": "smw", "sparsity": 2}
        sessions["words"] = open_session(analyst, "words", mechanism=smw, epsilon=0.1)["id"]
        analyst.post(f"/v1/sessions/{sessions['closed']}/close")
        ask(analyst, sessions["exhausted"], FEMALE, key="used")
        made = World(service, analyst, sessions)
        made.stored = service.stored()
        ledgers = service.ledgers()
        yield made
        # Ledgers are read from the rows that each case has compared; once more, then, as they are served.
        assert service.ledgers()[: len(ledgers)] == ledgers


TABLE: JSON = {
    "name": "new",
    "kind": "table",
    "attributes": [{"name": "sex", "values": ["female", "male"]}, {"name": "age", "lower": 0, "upper": 80, "bins": 4}],
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
GRAPH: JSON = {"name": "new", "kind": "graph", "nodes": 6, "budget": TABLE["budget"]}
NAMED: JSON = {
    "name": "new",
    "kind": "bipartite",
    "left": 2,
    "right": 2,
    "left_labels": ["u", "v"],
    "right_labels": ["x", "y"],
    "budget": TABLE["budget"],
}
MATRIX: JSON = {
    "name": "new",
    "kind": "matrix",
    "rows": 2,
    "columns": 3,
    "lower": 0,
    "upper": 5,
    "absent": 0,
    "budget": TABLE["budget"],
}
WORDS_SPEC: JSON = {"name": "new", "kind": "multiset", "budget": TABLE["budget"]}


# --------------------------------------------------------------------------------------------------- the table

Send = Callable[[World], Reply]
CASES: dict[str, tuple[Send, str, tuple[str, ...]]] = {}


def case(name: str, send: Send, problem: str, *words: str) -> None:
    assert name not in CASES, name
    CASES[name] = (send, problem, words)


# ---- files

TRAILING_COMMA = "sex,age\nfemale,3\nmale,4,8173645\n"


def upload(spec: Any, data: bytes | str, filename: str = "data.csv") -> Send:
    return lambda w: register(w.admin, spec, data.encode() if isinstance(data, str) else data, filename)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def npz(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def header_only(header: str, body: bytes = b"") -> bytes:
    """An .npy file of any header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + body


def shaped(size: int, body: bytes = b"") -> bytes:
    """An .npy file of float64 that states this size."""
    return header_only(str({"descr": "<f8", "fortran_order": False, "shape": (size,)}), body)


GOOD = "sex,age\nfemale,3\nmale,4\n"
for name, spec, data, filename, words in [
    ("a number outside", TABLE, "sex,age\nfemale,3\nmale,8173645\n", "d.csv", ("row 2", "age", "outside")),
    ("a category outside", TABLE, "sex,age\nzebra-quux,3\n", "d.csv", ("row 1", "sex", "outside")),
    ("a number below", TABLE, "sex,age\nfemale,-71.618\n", "d.csv", ("row 1", "age")),
    ("NaN in a record", TABLE, "sex,age\nfemale,nan\n", "d.csv", ("row 1", "age")),
    ("an empty cell", TABLE, "sex,age\nfemale,\n", "d.csv", ("row 1", "age")),
    ("no number", TABLE, "sex,age\nfemale,zebra-quux\n", "d.csv", ("row 1", "age")),
    ("infinity", TABLE, "sex,age\nfemale,inf\n", "d.csv", ("row 1", "age")),
    ("a number beyond floats", TABLE, "sex,age\nfemale,1e400\n", "d.csv", ("row 1", "age")),
    ("a code with a fraction", {**TABLE, "attributes": [{"name": "c", "size": 3}]}, "c\n1\n1.5\n", "d.csv", ("row 2",)),
    ("ragged", TABLE, TRAILING_COMMA, "d.csv", ("row 2", "3 field")),
    ("short", TABLE, "sex,age\nfemale,3\nmale\n", "d.csv", ("row 2", "1 field")),
    ("an open quote", TABLE, 'sex,age\n"female,3\nmale,8173645\n', "d.csv", ("quote", "line 2")),
    ("a column missing", TABLE, "sex,height\nfemale,3\n", "d.csv", ("age",)),
    ("a column twice", TABLE, "sex,age,age\nfemale,3,4\n", "d.csv", ("age",)),
    ("no header", TABLE, "zebra-quux,8173645\nmale,4\n", "d.csv", ("first line",)),
    ("a header only", TABLE, "sex,age\n", "d.csv", ("no records",)),
    ("an empty file", TABLE, "", "d.csv", ("empty",)),
    ("blank lines", TABLE, "\n\n\n", "d.csv", ("blank",)),
    ("no UTF-8", TABLE, b"sex,age\nfemale,3\nm\xe4le,4\n", "d.csv", ("UTF-8",)),
    ("UTF-16", TABLE, GOOD.encode("utf-16"), "d.csv", ("UTF-8",)),
    ("binary", TABLE, bytes(range(256)), "d.csv", ("UTF-8",)),
    ("no ending", TABLE, GOOD, "data", (".csv",)),
    ("another ending", TABLE, GOOD, "data.ods", (".parquet",)),
    ("a path for a name", TABLE, GOOD, "../../etc/passwd", (".csv",)),
    ("CSV named Parquet", TABLE, GOOD, "d.parquet", ("Parquet",)),
    ("CSV named npy", TABLE, GOOD, "d.npy", ("NumPy",)),
    ("CSV named npz", TABLE, GOOD, "d.npz", ("npz",)),
    ("a truncated Parquet", TABLE, parquet(sex=["male"], age=[8173645])[:-9], "d.parquet", ("Parquet",)),
    ("Parquet of lists", TABLE, parquet(sex=["male"], age=[[3]]), "d.parquet", ("lists",)),
    ("Parquet outside", TABLE, parquet(sex=["male"], age=[8173645]), "d.parquet", ("row 1", "age")),
    ("negative counts", TABLE, npy(-COUNTS), "d.npy", ("negative",)),
    ("fractional counts", TABLE, npy(COUNTS + 0.5), "d.npy", ("whole",)),
    ("NaN counts", TABLE, npy(COUNTS * np.nan), "d.npy", ("finite",)),
    ("counts beyond the capacity", {**TABLE, "capacity": 9000}, npy(COUNTS), "d.npy", ("capacity",)),
    ("counts of another shape", TABLE, npy(COUNTS.T), "d.npy", ("4 x 2", "2 x 4")),
    ("counts as text", TABLE, npy(COUNTS.astype(str)), "d.npy", ("integers",)),
    ("pickled counts", TABLE, npy(COUNTS.astype(object)), "d.npy", ("integers",)),
    ("complex counts", TABLE, npy(COUNTS * 1j), "d.npy", ("integers",)),
    ("truncated counts", TABLE, npy(COUNTS)[:-1], "d.npy", ("truncated",)),
    ("counts and more", TABLE, npy(COUNTS) + b"8173645", "d.npy", ("truncated",)),
    ("a header that lies", TABLE, shaped(10**14), "d.npy",
     ("shape",)),
    ("a header that is no Python", TABLE, header_only("(" * 400), "d.npy", ("damaged",)),
    ("two arrays", TABLE, npz(a=COUNTS, b=COUNTS), "d.npz", ("one array",)),
    ("a bomb", TABLE, npz(a=np.zeros((2000, 2000))), "d.npz", ("unpacks",)),
    ("a truncated npz", TABLE, npz(a=COUNTS)[:-30], "d.npz", ("npz",)),
    ("a node out of range", GRAPH, "0 1\n1 8173645\n", "g.txt", ("row 2", "0 to 5")),
    ("a negative node", GRAPH, "0 1\n-1 2\n", "g.txt", ("row 2",)),
    ("a node with a fraction", GRAPH, "0 1\n1 1.5\n", "g.txt", ("row 2",)),
    ("a loop", GRAPH, "0 1\n3 3\n", "g.txt", ("row 2", "loops")),
    ("a label out of range", NAMED, "u,x\nu,zebra-quux\n", "g.csv", ("row 2", "label")),
    ("a weight above 1", {**NAMED, "weighted": True}, "u,x,71.618\n", "g.csv", ("row 1", "from 0 to 1")),
    ("a weight below 0", {**NAMED, "weighted": True}, "u,x,-0.1\n", "g.csv", ("row 1", "from 0 to 1")),
    ("a weight NaN", {**NAMED, "weighted": True}, "u,x,nan\n", "g.csv", ("row 1", "from 0 to 1")),
    ("two weights for an edge", NAMED, "u,x,0.5\nu,x,0.25\n", "g.csv", ("row 2", "earlier")),
    ("weights not declared", {**NAMED, "weighted": False}, "u,x,0.5\n", "g.csv", ("weighted",)),
    ("one column of edges", GRAPH, "1\n2\n", "g.txt", ("two",)),
    ("four columns of edges", GRAPH, "1 2 3 4\n", "g.txt", ("two",)),
    ("an asymmetric matrix", GRAPH, npy(np.triu(np.ones((6, 6)), 1)), "g.npy", ("symmetric",)),
    ("a matrix with loops", GRAPH, npy(np.ones((6, 6))), "g.npy", ("loops",)),
    ("a matrix of sevens", GRAPH, npy(np.full((6, 6), 7)), "g.npy", ("0 to 1",)),
    ("a value out of bounds", MATRIX, "row,column,value\n0,1,71.618\n", "m.csv", ("row 1", "from 0 to 5")),
    ("a value NaN", MATRIX, "row,column,value\n0,1,nan\n", "m.csv", ("row 1", "from 0 to 5")),
    ("two values for a cell", MATRIX, "row,column,value\n0,1,5\n0,1,4\n", "m.csv", ("row 2", "earlier")),
    ("a column out of range", MATRIX, "row,column,value\n0,8173645,5\n", "m.csv", ("row 1", "column", "0 to 2")),
    ("a row missing", MATRIX, "line,column,value\n0,1,5\n", "m.csv", ("row",)),
    ("absent cells not declared", {**MATRIX, "absent": None}, "row,column,value\n0,1,5\n", "m.csv", ("absent",)),
    ("an array out of bounds", MATRIX, npy([[0, 1, 2], [3, 4, 71.618]]), "m.npy", ("from 0 to 5",)),
    ("an array of another shape", MATRIX, npy(np.ones((3, 2))), "m.npy", ("3 x 2",)),
    ("a negative count", WORDS_SPEC, "element,count\nthe,3\nof,-8173645\n", "w.csv", ("row 2", "count")),
    ("a count with a fraction", WORDS_SPEC, "element,count\nthe,1.5\n", "w.csv", ("row 1", "count")),
    ("a count beyond measure", WORDS_SPEC, "element,count\nthe,1e400\n", "w.csv", ("row 1", "count")),
    ("an empty element", WORDS_SPEC, "element,count\n,1\n", "w.csv", ("row 1", "element")),
    ("no elements", WORDS_SPEC, "word,count\nzebra-quux,1\n", "w.csv", ("element",)),
    ("a graph from npy of no shape", GRAPH, npy(np.float64(1)), "g.npy", ("shape",)),
]:  # fmt: skip
    case(f"file: {name}", upload(spec, data, filename), "invalid-dataset", *words)


# ---- declarations


def declared(**changes: Any) -> Send:
    return upload({**TABLE, **changes}, GOOD)


def attribute(**fields: Any) -> Send:
    return declared(attributes=[{"name": "a", **fields}])


for label, budget in [
    ("epsilon 0", {"epsilon": 0, "delta": 1e-6}),
    ("epsilon below 0", {"epsilon": -1, "delta": 1e-6}),
    ("epsilon beyond measure", {"epsilon": 1e300, "delta": 1e-6}),
    ("delta 0", {"epsilon": 1, "delta": 0}),
    ("delta 1", {"epsilon": 1, "delta": 1}),
    ("delta 2", {"epsilon": 1, "delta": 2}),
    ("no delta", {"epsilon": 1}),
    ("no epsilon", {"delta": 1e-6}),
    ("more", {"epsilon": 1, "delta": 1e-6, "gamma": 1}),
    ("a list", [1, 1e-6]),
    ("null", None),
    ("a list for epsilon", {"epsilon": [1], "delta": 1e-6}),
    ("true for epsilon", {"epsilon": True, "delta": 1e-6}),
    ("no number for delta", {"epsilon": 1, "delta": "small"}),
    ("a string for epsilon", {"epsilon": "1", "delta": 1e-6}),
]:
    case(f"budget: {label}", declared(budget=budget), "invalid-dataset", "budget")
for name in ("", "a/b", "../x", "caf\u00e9", "\u540d", ".hidden", "a b", "x" * 65, "a\x00b", "a\n", "-a"):
    case(f"data set's name: {name!r}", declared(name=name), "invalid-request", "name")
for label, value in [("number", 7), ("null", None), ("list", ["a"]), ("object", {}), ("true", True)]:
    case(f"data set's name: a {label}", declared(name=value), "invalid-request", "name")
for label, send, words in [
    ("of no kind", declared(kind="cube"), ("kind",)),
    ("kind null", declared(kind=None), ("kind",)),
    ("kind a list", declared(kind=["table"]), ("kind",)),
    ("an unknown field", declared(atributes=[]), ("atributes",)),
    ("no attributes", declared(attributes=[]), ("attributes",)),
    ("attributes an object", declared(attributes={}), ("attributes",)),
    ("an attribute null", declared(attributes=[None]), ("attributes.0",)),
    ("61 attributes", declared(attributes=[{"name": f"a{i}", "size": 2} for i in range(61)]), ("attributes",)),
    ("one name for two", declared(attributes=[{"name": "a", "size": 2}] * 2), ("distinct",)),
    ("a nameless attribute", declared(attributes=[{"size": 2}]), ("name",)),
    ("an attribute's name a number", attribute(name=5, size=2), ("name",)),
    ("an attribute's name empty", attribute(name="", size=2), ("name",)),
    ("an attribute of nothing", attribute(), ("size",)),
    ("an attribute of two kinds", attribute(size=2, values=["a"]), ("size",)),
    ("an unknown word in an attribute", attribute(size=2, sizes=3), ("sizes",)),
    ("size 0", attribute(size=0), ("size",)),
    ("size below 0", attribute(size=-5), ("size",)),
    ("size true", attribute(size=True), ("size",)),
    ("size a fraction", attribute(size=2.5), ("size",)),
    ("size a string", attribute(size="2"), ("size",)),
    ("no values", attribute(values=[]), ("values",)),
    ("a value twice", attribute(values=["a", "a"]), ("distinct",)),
    ("a value null", attribute(values=[None]), ("values",)),
    ("a value a float", attribute(values=[0.5]), ("values",)),
    ("lower without upper", attribute(lower=0), ("upper",)),
    ("bins alone", attribute(bins=5), ("lower",)),
    ("upper below lower", attribute(lower=5, upper=4, bins=2), ("upper",)),
    ("bins 0", attribute(lower=0, upper=4, bins=0), ("bins",)),
    ("bins a fraction", attribute(lower=0, upper=4, bins=1.5), ("bins",)),
    ("unit bins of a fraction", attribute(lower=0, upper=4.5), ("bins",)),
    ("edges that fall", attribute(edges=[0, 2, 1]), ("edges",)),
    ("one edge", attribute(edges=[0]), ("edges",)),
    ("edges and bins", attribute(edges=[0, 1], bins=1), ("edges",)),
    ("a bound that is a word", attribute(lower="low", upper=4, bins=2), ("lower",)),
    ("a bound that is a string", attribute(lower="0", upper=4, bins=2), ("lower",)),
    ("an edge that is true", attribute(edges=[0, True]), ("edges",)),
    ("outside: keep", declared(outside="keep"), ("outside",)),
    ("access: all", declared(access="all"), ("access",)),
    ("records_public: 1", declared(records_public=1), ("records_public",)),
    ("records_public: yes", declared(records_public="yes"), ("records_public",)),
    ("a long description", declared(description="x" * 2001), ("description",)),
    ("capacity 0", declared(capacity=0), ("capacity",)),
    ("capacity beyond 2^40", declared(capacity=2**41), ("capacity",)),
    ("an axis without end", attribute(size=2**31), ("size",)),
    ("a size beyond 64 bits", attribute(size=2**63), ("size",)),
    ("nodes 1", upload({**GRAPH, "nodes": 1}, "0 1\n", "g.txt"), ("nodes",)),
    ("nodes a string", upload({**GRAPH, "nodes": "6"}, "0 1\n", "g.txt"), ("nodes",)),
    ("nodes without end", upload({**GRAPH, "nodes": 2**26}, "0 1\n", "g.txt"), ("cells",)),
    ("nodes beyond 64 bits", upload({**GRAPH, "nodes": 2**63}, "0 1\n", "g.txt"), ("nodes",)),
    ("directed: 1", upload({**GRAPH, "directed": 1}, "0 1\n", "g.txt"), ("directed",)),
    ("loops: keep", upload({**GRAPH, "loops": "keep"}, "0 1\n", "g.txt"), ("loops",)),
    ("too few labels", upload({**GRAPH, "labels": ["a"]}, "a a\n", "g.txt"), ("labels",)),
    ("a label twice", upload({**NAMED, "left_labels": ["u", "u"]}, "u,x\n", "g.csv"), ("labels",)),
    ("a grid that is no power of two", upload({**NAMED, "grid": 0.3}, "u,x\n", "g.csv"), ("grid",)),
    ("a matrix upside down", upload({**MATRIX, "lower": 6}, "row,column,value\n0,1,5\n"), ("upper",)),
    ("a matrix of huge numbers", upload({**MATRIX, "upper": 1e308}, "row,column,value\n0,1,5\n"), ("upper",)),
    ("a matrix off its grid", upload({**MATRIX, "lower": 0.1}, "row,column,value\n0,1,5\n"), ("lower",)),
    ("a matrix without bounds", upload({k: v for k, v in MATRIX.items() if k != "upper"}, "0,1,5\n"), ("upper",)),
    ("an absent value out of bounds", upload({**MATRIX, "absent": 7}, "row,column,value\n0,1,5\n"), ("absent",)),
    ("attributes for a multiset", upload({**WORDS_SPEC, "attributes": []}, "element\nthe\n"), ("attributes",)),
    ("nodes for a table", declared(nodes=5), ("nodes",)),
    ("no object", upload([TABLE], GOOD), ("object",)),
    ("null", upload(None, GOOD), ("object",)),
    ("no JSON", upload("{'name': 'new'}", GOOD), ("JSON",)),
    ("empty", upload("", GOOD), ("JSON",)),
    ("NaN", upload(json.dumps({**TABLE, "budget": {"epsilon": float("nan"), "delta": 1e-6}}), GOOD), ("JSON",)),
    ("1e400", upload(json.dumps(TABLE).replace("1.0", "1e400"), GOOD), ("JSON",)),
    ("half a surrogate", upload(json.dumps(TABLE).replace('"new"', r'"\ud800"'), GOOD), ("JSON",)),
    ("nested to death", upload("[" * 50_000, GOOD), ("JSON",)),
    ("nested deeper than is read", declared(attributes=json.loads("[" * 40 + "]" * 40)), ("32",)),
]:  # fmt: skip
    case(f"spec: {label}", send, "invalid-dataset", *words)
case("data set: a name in use", upload({**TABLE, "name": "people"}, GOOD), "conflict", "people", "never reused")
case("data set: a name that was in use", upload({**TABLE, "name": "gone"}, GOOD), "conflict", "never reused")


# ---- forms


def form(*pieces: bytes, media_type: str = "multipart/form-data; boundary=b0undary") -> Send:
    return lambda w: w.admin.post("/v1/datasets", content=b"".join(pieces), headers={"Content-Type": media_type})


def part(name: str, body: bytes, filename: str | None = None) -> bytes:
    suffix = "" if filename is None else f'; filename="{filename}"'
    return f'--b0undary\r\nContent-Disposition: form-data; name="{name}"{suffix}\r\n\r\n'.encode() + body + b"\r\n"


WORDS, END = json.dumps(TABLE).encode(), b"--b0undary--\r\n"
WHOLE = multipart(TABLE, GOOD.encode())
SPEC, DATA = part("spec", WORDS), part("data", GOOD.encode(), "d.csv")
for label, send in [
    ("cut in the data", form(WHOLE[:-60])),
    ("cut in the spec", form(WHOLE[:120])),
    ("cut in a part's header", form(WHOLE[:30])),
    ("data first, then cut in the spec", form(DATA, SPEC[:-20])),
    ("nothing", form(b"")),
    ("another boundary", form(WHOLE.replace(b"b0undary", b"boundary"))),
    ("no boundary", form(WHOLE, media_type="multipart/form-data")),
    ("JSON", form(WORDS, media_type="application/json")),
    ("no type", lambda w: w.admin.post("/v1/datasets", content=WHOLE)),
    ("another multipart", form(WHOLE, media_type="multipart/mixed; boundary=b0undary")),
    ("spec missing", form(DATA, END)),
    ("data missing", form(SPEC, END)),
    ("data without a file name", form(SPEC, part("data", GOOD.encode()), END)),
    ("spec as a file", form(part("spec", WORDS, "spec.json"), DATA, END)),
    ("spec twice", form(SPEC, SPEC, DATA, END)),
    ("data twice", form(SPEC, DATA, DATA, END)),
    ("one more field", form(SPEC, DATA, part("note", b"hello"), END)),
    ("a nameless part", form(SPEC, DATA.replace(b'; name="data"', b""), END)),
    ("spec no UTF-8", form(part("spec", WORDS.replace(b"female", b"f\xe9male")), DATA, END)),
    ("spec in a charset of its own", form(SPEC.replace(b"female", b"f\xe9male"), DATA, END,
                                          media_type="multipart/form-data; boundary=b0undary; charset=latin-1")),
    ("garbage", form(bytes(range(256)) * 20)),
]:  # fmt: skip
    case(f"form: {label}", send, "invalid-request")


def sent(request: bytes, body: bytes = b"") -> Send:
    """Bytes on a connection of their own; the admin's key where %s stands."""
    return lambda w: w.raw(request.replace(b"%s", w.service.admin_key.encode()) + body)


def chunks(body: bytes, size: int = 1 << 16) -> bytes:
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


FORM = "multipart/form-data; boundary=b0undary"
BIG = multipart(TABLE, b"x" * MAX_BODY)
case("form: cut, the length as cut",
     sent(head("POST", "/v1/datasets", "%s", Content_Type=FORM, Content_Length=len(WHOLE) - 40), WHOLE[:-40]),
     "invalid-request", "complete")  # fmt: skip
case("form: cut, in chunks that end well",
     sent(head("POST", "/v1/datasets", "%s", Content_Type=FORM, Transfer_Encoding="chunked"), chunks(WHOLE[:-40], 50)),
     "invalid-request", "complete")  # fmt: skip
case("form: over the limit, as declared",
     sent(head("POST", "/v1/datasets", "%s", Content_Type=FORM, Content_Length=MAX_BODY + 1)),
     "payload-too-large", "2,097,152")  # fmt: skip
case("form: far over the limit, as declared",
     sent(head("POST", "/v1/datasets", "%s", Content_Type=FORM, Content_Length=10**18)),
     "payload-too-large", "2,097,152")  # fmt: skip
case("form: over the limit, in chunks",
     sent(head("POST", "/v1/datasets", "%s", Content_Type=FORM, Transfer_Encoding="chunked"), chunks(BIG)),
     "payload-too-large", "2,097,152")  # fmt: skip


# ---- queries


def query(asked: Any, on: str = "people") -> Send:
    return body(json.dumps(asked).encode(), on=on)


def body(content: bytes, media_type: str = "application/json", on: str = "people", path: str = "queries") -> Send:
    headers = {"Content-Type": media_type}
    return lambda w: w.analyst.post(f"/v1/sessions/{w.sessions[on]}/{path}", content=content, headers=headers)


def sides(left: Any, right: Any, kind: str = "cut") -> JSON:
    return {"type": kind, "left": left, "right": right}


def marginal(attributes: Any, **more: Any) -> JSON:
    return {"type": "marginal", "attributes": attributes, **more}


def dense(weights: Any) -> JSON:
    return {"type": "dense", "weights": weights}


def sparse(indices: Any, weights: Any) -> JSON:
    return {"type": "sparse", "indices": indices, "weights": weights}


for label, asked, words in [
    ("no type", {"where": {}}, ("type",)),
    ("an unknown type", {"type": "median", "where": {}}, ("type",)),
    ("type null", {"type": None}, ("type",)),
    ("type a list", {"type": ["predicate"]}, ("type",)),
    ("type an object", {"type": {"type": "predicate"}}, ("type",)),
    ("a list", [FEMALE], ("object",)),
    ("null", None, ("object",)),
    ("a string", "predicate", ("object",)),
    ("a number", 5, ("object",)),
    ("an unknown field", {**FEMALE, "weights": {}}, ("weights",)),
    ("no where", {"type": "predicate"}, ("where",)),
    ("where a list", {"type": "predicate", "where": []}, ("where",)),
    ("where null", {"type": "predicate", "where": None}, ("where",)),
    ("unverified 1", {**FEMALE, "unverified": 1}, ("unverified",)),
    ("unverified null", {**FEMALE, "unverified": None}, ("unverified",)),
    ("unverified yes", {**FEMALE, "unverified": "yes"}, ("unverified",)),
    ("an unknown attribute", where(shoes={"equals": 1}), ("shoes", "sex, age")),
    ("an attribute of another case", where(Sex={"equals": "male"}), ("Sex",)),
    ("an unknown category", where(sex={"equals": "other"}), ("sex",)),
    ("a code for a category", where(sex={"equals": 0}), ("sex",)),
    ("true for a category", where(sex={"equals": True}), ("sex",)),
    ("null for a category", where(sex={"equals": None}), ("sex",)),
    ("a condition of nothing", where(sex={}), ("exactly one",)),
    ("a condition of two", where(sex={"equals": "male", "in": ["male"]}), ("exactly one",)),
    ("a condition of a new kind", where(sex={"like": "m%"}), ("like",)),
    ("a condition null", where(sex=None), ("sex",)),
    ("a bare value that is none", where(sex="other"), ("sex",)),
    ("a bare list of nothing", where(age=[]), ("where.age: must not be empty",)),
    ("comparisons of categories", where(sex={"ge": "female"}), ("sex", "comparisons")),
    ("a comparison across a bin", where(age={"ge": 30}), ("age", "bin edges")),
    ("comparisons of two lower ends", where(age={"ge": 20, "gt": 20}), ("ge", "gt")),
    ("within nothing", {**FEMALE, "within": 0}, ("within",)),
    ("a confidence of one", {**FEMALE, "confidence": 1}, ("confidence",)),
    ("adaptive 1", {**FEMALE, "adaptive": 1}, ("adaptive",)),
    ("a marginal of this construction", marginal(["sex"]), ("evidence, gaussian",)),
    ("a marginal of nothing", marginal([]), ("attributes",)),
    ("a marginal of a word", marginal("sex"), ("attributes",)),
    ("a marginal of an unknown attribute", marginal(["shoes"]), ("shoes", "sex, age")),
    ("a marginal of an attribute twice", marginal(["sex", "sex"]), ("distinct",)),
    ("a marginal of a single cell", marginal(["sex"], where={"sex": "male"}), ("two cells", "predicate")),
    ("a marginal of bins off the edges", marginal(["age"], bins={"age": [0, 30, 80]}), ("age", "bin edges")),
    ("a marginal of bins of another attribute", marginal(["sex"], bins={"age": [0, 20]}), ("bins",)),
    ("a marginal of bins that fall", marginal(["age"], bins={"age": [40, 20, 0]}), ("age", "ascend")),
    ("an empty in", where(sex={"in": []}), ("in",)),
    ("in a string", where(sex={"in": "male"}), ("in",)),
    ("in with null", where(sex={"in": [None]}), ("in",)),
    ("between on categories", where(sex={"between": ["female", "male"]}), ("sex",)),
    ("between of one", where(age={"between": [20]}), ("between",)),
    ("between of three", where(age={"between": [0, 20, 40]}), ("between",)),
    ("between of words", where(age={"between": ["0", "20"]}), ("age", "numbers")),
    ("between reversed", where(age={"between": [40, 20]}), ("age", "reversed")),
    ("between of nothing", where(age={"between": [20, 20]}), ("age", "empty")),
    ("a predicate across a bin", where(age={"between": [0, 30]}), ("age", "bin edges")),
    ("a predicate off the edges by a hair", where(age={"between": [0, 20.000000001]}), ("bin edges",)),
    ("between beyond the domain", where(age={"between": [0, 100]}), ("bin edges",)),
    ("between of huge numbers", where(age={"between": [-1e308, 1e308]}), ("bin edges",)),
    ("equals inside a bin", where(age={"equals": 30}), ("age", "bin")),
    ("weights of another number", {"type": "product", "weights": {"age": [1, 0]}}, ("4 weights",)),
    ("weights of an unknown attribute", {"type": "product", "weights": {"shoes": [1]}}, ("shoes",)),
    ("weights above 1", {"type": "product", "weights": {"sex": [1, 1.0000001]}}, ("[-1, 1]",)),
    ("weights below -1", {"type": "product", "weights": {"sex": [-1.5, 0]}}, ("[-1, 1]",)),
    ("weights beyond measure", {"type": "product", "weights": {"sex": [1e308, 0]}}, ("[-1, 1]",)),
    ("weights of words", {"type": "product", "weights": {"sex": ["1", "0"]}}, ("sex",)),
    ("weights of booleans", {"type": "product", "weights": {"sex": [True, False]}}, ("sex",)),
    ("weights null", {"type": "product", "weights": {"sex": None}}, ("sex",)),
    ("weights of null", {"type": "product", "weights": {"sex": [None, 1]}}, ("sex",)),
    ("weights a number", {"type": "product", "weights": 1}, ("weights",)),
    ("a cut of a table", sides("all", "all"), ("table",)),
    ("elements of a table", {"type": "elements", "weights": {"the": 1.0}}, ("table",)),
    ("a cell out of range", sparse([8], [1]), ("0..7",)),
    ("a negative cell", sparse([-1], [1]), ("0..7",)),
    ("a cell twice", sparse([1, 1], [1, 0.5]), ("twice",)),
    ("a cell twice, spelled by axes", sparse([[0, 1], [0, 1]], [1, 1]), ("twice",)),
    ("coordinates out of range", sparse([[0, 4]], [1]), ("[2, 4]",)),
    ("coordinates of another rank", sparse([[0, 1, 0]], [1]), ("[2, 4]",)),
    ("coordinates ragged", sparse([[0, 1], [0]], [1, 1]), ("indices",)),
    ("indices of two forms", sparse([1, [0, 1]], [1, 1]), ("indices",)),
    ("indices beyond 64 bits", sparse([2**64 - 1], [1]), ("indices",)),
    ("indices beyond everything", sparse([10**30], [1]), ("indices",)),
    ("indices of fractions", sparse([0.5], [1]), ("indices",)),
    ("indices of booleans", sparse([True], [1]), ("indices",)),
    ("fewer weights than indices", sparse([1, 2], [1]), ("one length",)),
    ("a sparse weight above 1", sparse([1], [2]), ("[-1, 1]",)),
    ("a dense weight above 1", dense([0] * 7 + [1.5]), ("[-1, 1]",)),
    ("too few dense weights", dense([0.5] * 7), ("8 weights", "[2, 4]")),
    ("dense weights transposed", dense([[0.5, 0.5]] * 4), ("8 weights",)),
    ("dense weights ragged", dense([[0.5] * 4, [0.5] * 3]), ("dense",)),
    ("dense weights of words", dense(["a"] * 8), ("numbers",)),
    ("dense weights with a word", dense([0.5] * 7 + ["1"]), ("numbers",)),
    ("dense weights with null", dense([0.5] * 7 + [None]), ("numbers",)),
    ("dense weights with an object", dense([0.5] * 7 + [{}]), ("dense",)),
    ("dense weights true", dense([True] * 8), ("numbers",)),
    ("no dense weights", dense([]), ("8 weights",)),
    ("dense weights a number", dense(1), ("weights",)),
    ("dense weights nested", dense(json.loads("[" * 25 + "1" + "]" * 25)), ("dense",)),
]:
    case(f"query: {label}", query(asked), "invalid-query", *words)
for label, on, asked, words in [
    ("a node out of range", "friends", sides([6], "all"), ("left", "0..5")),
    ("a negative node", "friends", sides("all", [-1]), ("right", "0..5")),
    ("a node beyond 64 bits", "friends", sides([2**64 - 1], "all"), ("0..5",)),
    ("a node that is a word", "friends", sides(["a"], "all"), ("0..5",)),
    ("a node with a fraction", "friends", sides([0.5], "all"), ("left",)),
    ("a node true", "friends", sides([True], "all"), ("left",)),
    ("a side that is a word", "friends", sides("most", "all"), ("left",)),
    ("a side missing", "friends", {"type": "cut", "left": [1]}, ("right",)),
    ("a side null", "friends", sides(None, "all"), ("left",)),
    ("a side an object", "friends", sides({}, "all"), ("left",)),
    ("an unknown label", "named", sides(["w"], "all"), ("left", "labels")),
    ("a number for a label", "named", sides([0], "all"), ("labels",)),
    ("a label of the other side", "named", sides(["x"], "all"), ("labels",)),
    ("negative weights, undirected", "friends", sides([-1] + [0] * 5, [1] * 6, "rank_one"), ("[0, 1]",)),
    ("weights above 1", "web", sides([1.5, 0, 0], [1] * 3, "rank_one"), ("[-1, 1]",)),
    ("too few weights", "web", sides([1], [1] * 3, "rank_one"), ("left", "3 weights")),
    ("a cut's words for weights", "web", sides("all", "all", "rank_one"), ("left",)),
    ("the diagonal", "friends", sparse([[1, 1]], [1]), ("diagonal",)),
    ("a pair twice, either way round", "friends", sparse([[0, 1], [1, 0]], [1, 1]), ("twice",)),
    ("asymmetric weights", "friends", dense(np.triu(np.ones((6, 6)), 1).tolist()), ("symmetric",)),
    ("weights on the diagonal", "friends", dense(np.ones((6, 6)).tolist()), ("diagonal",)),
    ("a predicate of a graph", "friends", where(left={"equals": 1}), ("graph",)),
    ("an element above 1", "words", {"type": "elements", "weights": {"the": 1.5}}, ("[-1, 1]",)),
    ("no element", "words", {"type": "elements", "weights": {}}, ("weights",)),
    ("a list of elements", "words", {"type": "elements", "weights": ["the"]}, ("weights",)),
    ("an element's weight a word", "words", {"type": "elements", "weights": {"the": "1"}}, ("the",)),
    ("an element's weight true", "words", {"type": "elements", "weights": {"the": True}}, ("the",)),
    ("more elements than the session is for", "words",
     {"type": "elements", "weights": {"the": 1, "of": 1, "and": 1}}, ("2",)),
    ("a marginal of a graph", "friends", marginal(["left"]), ("table", "graph")),
    ("a marginal of a multiset", "words", marginal(["x"]), ("table", "multiset")),
    ("a cut of a multiset", "words", sides("all", "all"), ("multiset",)),
    ("dense weights of a multiset", "words", dense([1]), ("multiset",)),
    ("a product of a graph", "web", {"type": "product", "weights": {"left": [1, 0, 0]}}, ("graph",)),
]:  # fmt: skip
    case(f"query of another kind: {label}", query(asked, on), "invalid-query", *words)
for label, content, words in [
    ("empty", b"", ("JSON",)),
    ("blank", b" \n\t ", ("JSON",)),
    ("cut short", b'{"type": "predicate", "where": {', ("JSON",)),
    ("two documents", b'{"type": "predicate", "where": {}} {}', ("JSON",)),
    ("single quotes", b"{'type': 'predicate'}", ("JSON",)),
    ("a comment", b'{"type": "predicate", "where": {}} // all', ("JSON",)),
    ("NaN", b'{"type": "dense", "weights": [NaN]}', ("JSON",)),
    ("Infinity", b'{"type": "dense", "weights": [-Infinity]}', ("JSON",)),
    ("1e400", b'{"type": "dense", "weights": [1e400]}', ("JSON",)),
    ("a number of 100,000 digits", b'{"type": "dense", "weights": [' + b"9" * 100_000 + b"]}", ("JSON",)),
    ("invalid UTF-8", b'{"type": "predicate", "where": {"s\xff": {}}}', ("JSON",)),
    ("overlong UTF-8", b'{"type": "predicate", "where": {"\xc0\xaf": {}}}', ("JSON",)),
    ("half a surrogate", rb'{"type": "predicate", "where": {"\ud800": {}}}', ("JSON",)),
    ("UTF-16", json.dumps(FEMALE).encode("utf-16"), ("JSON",)),
    ("a byte order mark", b"\xef\xbb\xbf" + json.dumps(FEMALE).encode(), ("JSON",)),
    ("a control character", b'{"type": "predicate\x01"}', ("JSON",)),
    ("lists to death", b"[" * 100_000, ("JSON",)),
    ("objects to death", b'{"a":' * 20_000, ("JSON",)),
    ("nested deeper than is read", b'{"type":"dense","weights":' + b"[" * 40 + b"]" * 40 + b"}", ("32",)),
]:
    case(f"JSON: {label}", body(content), "invalid-request", *words)
    if label not in ("empty", "blank"):  # closing may come without a body
        case(f"JSON, to close: {label}", body(content, path="close"), "invalid-request", *words)
for media_type in ("text/plain", "text/csv", "application/xml", "application/octet-stream", "multipart/form-data",
                   "application/vnd.apache.parquet", "application/jsonx", "nonsense"):  # fmt: skip
    case(f"type: {media_type}", body(json.dumps(FEMALE).encode(), media_type), "invalid-request", "application/json")
for path in ("batch", "close"):
    case(f"type: an array for a {path}", body(npy(np.ones(8)), NPY, path="queries/batch" if path == "batch" else path),
         "invalid-request", "JSON")  # fmt: skip


def stretched() -> bytes:
    """An Arrow stream of eight weights that claims to hold four thousand: what lies behind them is not the client's."""
    honest = arrow(np.linspace(-1, 1, 8))
    lie = honest.replace(struct.pack("<q", 8), struct.pack("<q", 4000))
    assert lie != honest
    return lie


for label, content, media_type, words in [
    ("JSON for npy", json.dumps(FEMALE).encode(), NPY, (NPY,)),
    ("JSON for Arrow", json.dumps(FEMALE).encode(), ARROW, (ARROW,)),
    ("nothing for npy", b"", NPY, (NPY,)),
    ("nothing for Arrow", b"", ARROW, (ARROW,)),
    ("a truncated npy", npy(np.ones(8))[:-1], NPY, ("complete",)),
    ("an npy and more", npy(np.ones(8)) + b"x", NPY, ("complete",)),
    ("a pickle", npy(np.array([{}], dtype=object)), NPY, ("numbers",)),
    ("an npz", npz(a=np.ones(8)), NPY, (NPY,)),
    ("half an npz", npz(a=np.ones(8))[:40], NPY, (NPY,)),
    ("words", npy(np.array(["a"] * 8)), NPY, ("numbers",)),
    ("complex", npy(np.ones(8) * 1j), NPY, ("numbers",)),
    ("booleans", npy(np.ones(8, bool)), NPY, ("numbers",)),
    ("dates", npy(np.ones(8, "M8[s]")), NPY, ("numbers",)),
    ("another shape", npy(np.ones((4, 2))), NPY, ("[2, 4]",)),
    ("a scalar", npy(np.float64(1)), NPY, ("[2, 4]",)),
    ("no weights", npy(np.ones(0)), NPY, ()),
    ("NaN", npy(np.full(8, np.nan)), NPY, ("finite",)),
    ("infinity", npy(np.full(8, np.inf)), NPY, ("finite",)),
    ("above 1", npy(np.full(8, 2)), NPY, ("[-1, 1]",)),
    ("a terabyte on its word", shaped(10**12), NPY,
     ("complete",)),
    ("a size beyond 64 bits", shaped(10**30), NPY,
     ("complete",)),
    ("a negative size", shaped(-1, bytes(64)), NPY,
     ("complete",)),
    ("a header of brackets", header_only("(" * 9000), NPY, (NPY,)),
    ("a header that hashes a list", header_only("{[]: 1}"), NPY, (NPY,)),
    ("two Arrow columns", arrow([0.5] * 8, [0.5] * 8), ARROW, ("one column",)),
    ("Arrow words", arrow(["a"] * 8), ARROW, ("numbers",)),
    ("Arrow nulls", arrow([0.5] * 7 + [None]), ARROW, ("finite",)),
    ("Arrow lists", arrow([[0.5]] * 8), ARROW, ("numbers",)),
    ("a truncated Arrow", arrow([0.5] * 8)[:-40], ARROW, (ARROW,)),
    ("an Arrow longer than its bytes", stretched(), ARROW, (ARROW,)),
]:  # fmt: skip
    case(f"array: {label}", body(content, media_type), "invalid-query", *words)


def long_query(size: int) -> bytes:
    return b'{"type":"dense","weights":[' + b"0," * (size // 2) + b"0]}"


for path in ("queries", "queries/batch", "close"):
    case(f"{path}: over the limit, as declared", lambda w, path=path: w.raw(
        head("POST", f"/v1/sessions/{w.sessions['people']}/{path}", w.service.admin_key, Content_Length=MAX_JSON + 1)),
        "payload-too-large", "262,144")  # fmt: skip
    case(f"{path}: over the limit, in chunks", lambda w, path=path: w.raw(
        head("POST", f"/v1/sessions/{w.sessions['people']}/{path}", w.service.admin_key, Transfer_Encoding="chunked")
        + chunks(long_query(MAX_JSON))), "payload-too-large", "262,144")  # fmt: skip
case("array: over the limit", body(npy(np.zeros(MAX_BODY // 8 + 1)), NPY), "payload-too-large", "2,097,152")
for path in ("/v1/sessions", "/v1/plans", "/v1/principals"):
    case(f"{path}: over the limit", lambda w, path=path: w.admin.post(
        path, content=long_query(MAX_JSON), headers=AS_JSON),
        "payload-too-large", "262,144")  # fmt: skip


# ---- sessions


def session(**changes: Any) -> Send:
    words = {name: value for name, value in {**session_words("people"), **changes}.items() if value is not ...}
    return lambda w: w.analyst.post("/v1/sessions", json=words)


WRONG: dict[str, list[Any]] = {
    "dataset": [..., None, 1, True, [], {}, "", "x" * 65],
    "mechanism": [None, "mw", [], 1, {}],
    "epsilon": [..., None, "0.5", True, [], {}, 0, -0.5, -0.0, 1e-300, 1e300, 1001],
    "max_queries": [..., None, "10", True, [], {}, 0, -1, 10.5, 1e300, 10**9 + 1, 2**63, 2**64 - 1],
    "beta": [None, "0.05", True, [], {}, 0, 1, -0.1, 1.5, 1e-300],
    "max_updates": ["10", True, [], {}, 0, -1, 1.5, 1e300, 10**7 + 1, 2**63],
    "calibration": [None, 1, True, [], "best"],
    "release": [None, 1, True, [], "relay"],
    "max_query": [5],
    # Of sessions that answer from evidence; that of these words does not.
    "within": [5, "5", True, 0, -1],
    "confidence": [0.9, "0.9", True, 0, 1],
    "start": ["nothing", "evidence", None, "all"],
    "share": [True, False, 1, None],
}
for field, values in WRONG.items():
    for value in values:
        shown = "left out" if value is ... else repr(value) if len(repr(value)) < 30 else "too long"
        case(f"session: {field} {shown}", session(**{field: value}), "invalid-request", field)
for label, mechanism in [
    ("without a construction", {"step": "paper"}),
    ("unknown", {"construction": "magic"}),
    ("null", {"construction": None}),
    ("a list", {"construction": ["mw"]}),
    ("with an unknown field", {"construction": "mw", "rate": 1}),
    ("with an unknown step", {"construction": "mw", "step": "giant"}),
    ("md without a potential", {"construction": "md"}),
    ("md of an unknown potential", {"construction": "md", "potential": "gravity"}),
    ("md with p below 1", {"construction": "md", "potential": "lp", "p": 0.5}),
    ("md with p a word", {"construction": "md", "potential": "lp", "p": "small"}),
    ("smw without sparsity", {"construction": "smw"}),
    ("smw with sparsity 0", {"construction": "smw", "sparsity": 0}),
    ("smw with sparsity a fraction", {"construction": "smw", "sparsity": 1.5}),
]:
    case(f"session: mechanism {label}", session(mechanism=mechanism), "invalid-request", "mechanism")
for label, document in [("a list", [1]), ("null", None), ("a string", "x"), ("a number", 1.5), ("nothing", {})]:
    for path in ("/v1/sessions", "/v1/plans"):
        case(f"{path}: {label}", lambda w, path=path, document=document: w.analyst.post(
             path, content=json.dumps(document), headers=AS_JSON), "invalid-request")  # fmt: skip
for name in ("nothing", "a/b", "caf\u00e9", "a\x00b", "PEOPLE", "people ", "'--"):
    case(f"session: on {name!r}", session(dataset=name), "not-found", "data set")
case("session: on a retired data set", session(dataset="gone"), "not-found", "retired")
case("session: guaranteed without a mass", session(max_updates=...), "plan-infeasible", "records")
case("session: more than is left", session(epsilon=0.71, mechanism={"construction": "fk"}), "budget-exhausted", "less")
case("session: more than there ever was", session(epsilon=999), "budget-exhausted", "less")
case("session: of what is all reserved", session(dataset="spent", epsilon=0.001), "budget-exhausted", "less")
case("session: noise beyond all grids", session(epsilon=1e-20, max_updates=10**7), "plan-infeasible")
case("closed: a query", query(FEMALE, "closed"), "session-closed", "closed")
case("closed: what it had answered", query(where(), "closed"), "session-closed", "closed")
case("closed: again", lambda w: w.analyst.post(f"/v1/sessions/{w.sessions['closed']}/close"), "session-closed")
case("foreign: a query", query(FEMALE, "foreign"), "not-found", "session")
case("foreign: a batch", body(b'{"queries": [{}]}', path="queries/batch", on="foreign"), "not-found", "session")
case("foreign: closing", lambda w: w.analyst.post(f"/v1/sessions/{w.sessions['foreign']}/close"), "not-found")
case("exhausted: a new query", query(where(age={"between": [0, 20]}), "exhausted"), "updates-exhausted", "unverified")
case("a reused key", lambda w: w.analyst.post(f"/v1/sessions/{w.sessions['exhausted']}/queries", json=where(),
     headers={"Idempotency-Key": "used"}), "idempotency-conflict", "new key")  # fmt: skip
for label, document in [
    ("no list", {"queries": 5}),
    ("empty", {"queries": []}),
    ("a list", [FEMALE]),
    ("null", None),
    ("more", {"queries": [FEMALE], "key": 1}),
    ("an object of queries", {"queries": {"0": {}}}),
]:
    case(f"batch: {label}", body(json.dumps(document).encode(), path="queries/batch"), "invalid-request")  # fmt: skip
for label, document in [("a list", []), ("a string", "now"), ("a number", 0)]:
    case(f"close: {label}", body(json.dumps(document).encode(), path="close"), "invalid-request", "object")


# ---- principals and grants


def principal(document: Any) -> Send:
    return lambda w: w.admin.post("/v1/principals", content=json.dumps(document), headers=AS_JSON)


for name in ("", "a/b", "caf\u00e9", "\U0001f4a9", ".x", "a b", "x" * 65, "a\x00b", "a\n", None, 5, [], {}, True):
    case(f"principal: named {name!r}", principal({"name": name, "role": "analyst"}), "invalid-request", "name")
for role in ("root", "", "Admin", None, 5, [], {}, True):
    case(f"principal: role {role!r}", principal({"name": "new", "role": role}), "invalid-request", "role")
for label, document in [
    ("no role", {"name": "new"}),
    ("no name", {"role": "admin"}),
    ("a list", ["new", "admin"]),
    ("null", None),
    ("a key of one's own", {"name": "new", "role": "admin", "api_key": "k" * 40}),
]:
    case(f"principal: {label}", principal(document), "invalid-request")  # fmt: skip
case("principal: a name in use", principal({"name": "ann", "role": "admin"}), "conflict", "never reused")
case("principal: the operator's name", principal({"name": "admin", "role": "admin"}), "conflict", "never reused")
for label, document in [
    ("below 0", {"epsilon": -1}),
    ("above the budget", {"epsilon": 1.5}),
    ("null", {"epsilon": None}),
    ("a string", {"epsilon": "0.5"}),
    ("true", {"epsilon": True}),
    ("huge", {"epsilon": 1e300}),
    ("nothing", {}),
    ("more", {"epsilon": 0.5, "delta": 0}),
    ("a list", [0.5]),
]:
    case(f"grant: {label}", lambda w, document=document: w.admin.put(
         "/v1/datasets/people/grants/ann", content=json.dumps(document), headers=AS_JSON),
         "invalid-request", "epsilon" if isinstance(document, dict) else "object")  # fmt: skip
for path in ("nothing/grants/ann", "people/grants/nobody", "people/grants/a%00b", "a%00b/grants/ann"):
    case(f"grant: {path}", lambda w, path=path: w.admin.put(f"/v1/datasets/{path}", json={"epsilon": 0.5}), "not-found")
for name in ("nobody", "a%00b", "%ff", "x" * 3000):
    case(f"revoke: {name[:20]}", lambda w, name=name: w.admin.delete(f"/v1/principals/{name}"), "not-found")


# ---- paths, methods, headers

for path in ("/", "/v1", "/v1/", "/v2/datasets", "/v1/datasets/", "/v1//datasets", "/v1/datasets/people/", "/v1/../v1",
             "/v1/datasets/people/secret", "/v1/datasets/%2e%2e", "/V1/datasets", "/v1/datasets;x", "/.env",
             "/v1/datasets/a%2fb", "/v1/sessions/%00", "/%c0%ae%c0%ae/", "/v1/datasets/" + "x" * 20_000):  # fmt: skip
    case(f"path: {path[:40]}", sent(head("GET", path, "%s")), "not-found")
for method, path in [("PUT", "/v1/datasets"), ("PATCH", "/v1/datasets/people"), ("DELETE", "/v1/sessions"),
                     ("POST", "/v1/datasets/people"), ("GET", "/v1/plans"), ("OPTIONS", "/v1/sessions"),
                     ("TRACE", "/v1/datasets"), ("POST", "/healthz"), ("DELETE", "/metrics"),
                     ("PROPFIND", "/v1/datasets"), ("POST", "/v1/datasets/people/ledger"),
                     ("PUT", "/v1/plans")]:  # fmt: skip
    case(f"method: {method} {path}", sent(head(method, path, "%s")), "method-not-allowed", method)
case("header: a key of 60,000 characters", sent(head("GET", "/v1/datasets", "k" * 60_000)), "unauthenticated", "Bearer")
case("header: a key that is no ASCII", sent(head("GET", "/v1/datasets", "k\xe9\xff")), "unauthenticated", "Bearer")
case("header: no key", sent(head("GET", "/v1/datasets")), "unauthenticated", "Bearer")
case("header: no key, on a body over the limit", sent(head("POST", "/v1/datasets", Content_Length=10**12)),
     "unauthenticated", "Bearer")  # fmt: skip
case(
    "header: no end of one", sent(head("GET", "/healthz")[:-2] + b"X-A: " + b"a" * 10**6), "payload-too-large", "65,536"
)
case(
    "header: no end of many", sent(head("GET", "/healthz")[:-2] + b"X-A: a\r\n" * 10**5), "payload-too-large", "65,536"
)
case("header: no end of a path", sent(head("GET", "/" + "x" * 10**6)), "payload-too-large", "65,536")
case("header: no end of a trailer",
     sent(head("POST", "/v1/datasets", Transfer_Encoding="chunked") + b"0\r\nX-A: " + b"a" * 10**6),
     "payload-too-large", "65,536")  # fmt: skip
for label, wrong in [
    ("no HTTP", b"GARBAGE\r\n\r\n"),
    ("HTTP/9.9", b"GET / HTTP/9.9\r\n\r\n"),
    ("an unknown method", b"BREW / HTTP/1.1\r\n\r\n"),
    ("a NUL", b"GET / HTTP/1.1\r\n\x00: a\r\n\r\n"),
    ("a length that is none", b"POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n"),
    ("two lengths", b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    ("a bad chunk", b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
]:
    case(f"wire: {label}", sent(wrong), "invalid-request", "HTTP/1.1")  # fmt: skip
case("header: an Accept that nothing fits", lambda w: w.analyst.get(
     f"/v1/sessions/{w.sessions['people']}/hypothesis", headers={"Accept": "x/" + "y" * 60_000}),
     "invalid-request", "Accept")  # fmt: skip


# --------------------------------------------------------------------------------------------------- the test


@pytest.mark.parametrize("name", CASES)
def test_is_refused_and_leaves_no_trace(world: World, logged: list[Any], name: str) -> None:
    """Catches a 500 or a 503, a stack trace, another problem than the contract's, a detail that does not help, a
    private value told to the sender or the log, and anything written by what was refused.
    """
    send, problem, words = CASES[name]
    reply = send(world)
    document = refused(reply, problem)
    text = json.dumps(document)
    for word in words:
        assert word in document["detail"], document
    if problem == "budget-exhausted":
        assert document["requested"] > document["remaining"] >= 0
    for secret in SECRETS:
        assert not re.search(rf"(?<![\d.]){re.escape(secret)}(?!\d)", text), document
        assert secret not in repr(logged)
    assert "Traceback" not in text
    assert 'File "' not in text
    assert world.service.stored() == world.stored


@pytest.mark.parametrize(
    ("label", "request_head", "body"),
    [
        ("a form", {"Content_Length": len(WHOLE)}, WHOLE[: len(WHOLE) // 2]),
        ("a form but for its last byte", {"Content_Length": len(WHOLE)}, WHOLE[:-1]),
        ("a form in chunks", {"Transfer_Encoding": "chunked"}, chunks(WHOLE, 100)[:-40]),
        ("a form's head", {"Content_Length": len(WHOLE)}, b""),
    ],
)
def test_who_hangs_up_leaves_no_trace(world: World, label: str, request_head: JSON, body: bytes) -> None:
    """An upload whose connection breaks before the length it declared: there is nobody to answer, and nothing may be
    kept. Catches half a file registered, and a server that does not get over it.
    """
    request = head("POST", "/v1/datasets", world.service.admin_key, Content_Type=FORM, **request_head)
    reply = raw(world.service.address, request + body, hang_up=True)
    if reply is not None:
        refused(reply, "invalid-request")
    assert world.service.stored() == world.stored
    assert world.admin.get("/healthz").status_code == 200


def test_the_good_form_is_good(world: World) -> None:
    """The form that the cases above cut and bend is taken as it is: they are refused for what was done to them."""
    spec = {**TABLE, "name": "zz-whole"}
    content = multipart(spec, GOOD.encode())
    reply = world.admin.post("/v1/datasets", content=content, headers={"Content-Type": FORM})
    assert reply.status_code == 201, reply.text
    world.stored = world.service.stored()
