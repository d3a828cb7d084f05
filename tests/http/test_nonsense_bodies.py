"""Would show bodies taken for something else than what they say: a member lost, an array and more, text that is coded.

Each of these bodies used to be accepted. Each must be refused with its reason and leave nothing behind; bodies that
look like them and are in order are taken.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.errors import Refusal
from app.cli.inputs import parse_object
from app.declarations.errors import InvalidRequest
from app.http import json_bodies
from tests.kit.noise import Noise
from tests.kit.service import (
    ARROW,
    PEOPLE,
    RawReply,
    Service,
    arrow,
    head,
    multipart,
    open_session,
    people,
    raw,
    refused,
    serving,
    unique,
    where,
)

pytestmark = pytest.mark.adversarial

AS_JSON = {"Content-Type": "application/json"}


@dataclass
class World:
    service: Service
    analyst: httpx.Client
    dataset: str
    session: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("nonsense"), noise=Noise()) as service:
        analyst = service.principal("analyst", "ann")
        dataset = people(service)
        session = open_session(analyst, dataset, mechanism={"construction": "fk"}, epsilon=0.1, max_queries=1000)["id"]
        yield World(service, analyst, dataset, session)


# ------------------------------------------------------------------------------------------- members of one name

TWICE: dict[str, tuple[str, str, str]] = {
    "a principal of two roles": ("POST", "/v1/principals", '{"name": "x", "role": "analyst", "role": "admin"}'),
    "spelled otherwise": ("POST", "/v1/principals", r'{"name": "x", "role": "analyst", "\u0072ole": "admin"}'),
    "with blanks": ("POST", "/v1/principals", '{"name" : "x" , "role" :\n"analyst", "role"\t: "admin" }'),
    "with colons in texts": ("POST", "/v1/principals", '{"name": "a:b", "role": ":", "role": "admin"}'),
    "with quotes in texts": ("POST", "/v1/principals", r'{"name": "a\":", "role": "\\", "role": "admin"}'),
    "a cap": ("PUT", "/v1/datasets/DATASET/grants/ann", '{"epsilon": 0.1, "epsilon": 1.0}'),
    "a session": (
        "POST", "/v1/sessions",
        '{"dataset": "DATASET", "mechanism": {"construction": "fk"}, "epsilon": 0.01, "epsilon": 0.5}'),
    "a mechanism within": (
        "POST", "/v1/sessions",
        '{"dataset": "DATASET", "mechanism": {"construction": "fk", "construction": "mw"}, "epsilon": 0.1}'),
    "a plan": ("POST", "/v1/plans", '{"dataset": "x", "dataset": "DATASET"}'),
    "a query": (
        "POST", "/v1/sessions/SESSION/queries",
        '{"type": "predicate", "where": {"sex": {"equals": "male"}, "sex": {"equals": "female"}}}'),
    "a query in a batch": (
        "POST", "/v1/sessions/SESSION/queries/batch",
        '{"queries": [{"type": "predicate", "where": {}}, {"type": "predicate", "type": "dense", "where": {}}]}'),
    "whole batches": ("POST", "/v1/sessions/SESSION/queries/batch", '{"queries": [], "queries": [{}]}'),
    "closing": ("POST", "/v1/sessions/SESSION/close", '{"a": 1, "a": 2}'),
    "a new key": ("POST", "/v1/principals/ann/key", '{"a": {}, "a": {}}'),
}  # fmt: skip


@pytest.mark.parametrize("what", TWICE)
def test_a_name_twice_is_refused(world: World, what: str) -> None:
    """On every route that reads JSON. The last of the two used to win."""
    method, path, body = TWICE[what]
    path = path.replace("DATASET", world.dataset).replace("SESSION", world.session)
    body = body.replace("DATASET", world.dataset)
    caller = world.analyst if "/sessions" in path else world.service.admin
    before = world.service.stored()
    reply = caller.request(method, path, content=body, headers=AS_JSON)
    assert "two members of one name" in refused(reply, "invalid-request")["detail"]
    assert world.service.stored() == before


@pytest.mark.parametrize("where_", ["above", "within"])
def test_a_name_twice_in_a_declaration(world: World, where_: str) -> None:
    """Would catch a data set registered with the second of two budgets, or of two sizes of an attribute."""
    words = json.dumps({**PEOPLE, "name": unique("new")})
    if where_ == "above":
        words = words[:-1] + ', "budget": {"epsilon": 100, "delta": 0.5}}'
    else:
        words = words.replace('"lower": 0,', '"lower": 0, "lower": 10,')
    before = world.service.stored()
    body = multipart(words.encode(), b"sex,age\nmale,40\n")
    headers = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    reply = world.service.admin.post("/v1/datasets", content=body, headers=headers)
    assert "two members of one name" in refused(reply, "invalid-dataset")["detail"]
    assert world.service.stored() == before


texts = st.text(st.sampled_from(list('a:"\\ {},[]\n\u00e9')), max_size=6)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
layouts = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n "), (",", " :")])


@given(documents, layouts, st.booleans())
def test_nothing_that_is_json_is_refused(document: Any, layout: tuple[str, str], plain: bool) -> None:
    """Texts full of colons, quotes and brackets, laid out in any way: the count of members is exact."""
    body = json.dumps(document, separators=layout, ensure_ascii=plain).encode()
    assert json_bodies.parse_json(body, 32) == document


@given(documents, layouts, st.data())
def test_every_name_twice_is_found(document: Any, layout: tuple[str, str], d: st.DataObject) -> None:
    """One member of any object written again, under the same name however spelled, anywhere below any text."""
    places: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node:
                places.append(node)
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    document = {"top": document, "a:": ["::", {"b": '":'}]}
    walk(document)
    chosen = d.draw(st.sampled_from(places))
    name = d.draw(st.sampled_from(list(chosen)))

    def write(node: Any) -> str:
        if isinstance(node, dict):
            members = [json.dumps(key) + layout[1] + write(child) for key, child in node.items()]
            if node is chosen:
                spelled = d.draw(
                    st.sampled_from([json.dumps(name), '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"'])
                )
                members.insert(d.draw(st.integers(0, len(members))), spelled + layout[1] + "0")
            return "{" + layout[0].join(members) + "}"
        if isinstance(node, list):
            return "[" + layout[0].join(map(write, node)) + "]"
        return json.dumps(node)

    body = write(document).encode()
    orjson.loads(body)  # it is JSON
    with pytest.raises(InvalidRequest, match="two members of one name"):
        json_bodies.parse_json(body, 32)


def test_long_lists_are_not_looked_through() -> None:
    """The work beside parsing does not grow with the weights of a query. Counted, not timed: nothing asks a long list
    for its items."""

    class Numbers(list[float]):
        def __iter__(self) -> Iterator[float]:
            raise AssertionError("the list was looked through")

    body = b'{"type": "dense", "weights": [0.5, 0.5]}'
    assert not json_bodies._repeats_a_name(body, {"type": "dense", "weights": Numbers([0.5, 0.5])})


# ------------------------------------------------------------------------------------------- Arrow

END = b"\xff\xff\xff\xff\0\0\0\0"
WEIGHTS = arrow(np.full(8, 0.5))
#: One whose last weights look like the mark.
LOOKALIKE = arrow(np.array([0] * 6 + [-1, 0], np.int32))


def legacy(array: Any) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"w": array})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=True)) as writer:
        writer.write_table(table)
    return sink.getvalue()


OLD = legacy(np.full(8, 0.25))
ARRAYS: dict[str, bytes] = {
    "one byte after the end": WEIGHTS + b"\0",
    "a second end": WEIGHTS + END,
    "a second array": WEIGHTS + WEIGHTS,
    "text after the end": WEIGHTS + b"and more",
    "no end": WEIGHTS[:-8],
    "half an end": WEIGHTS[:-4],
    "almost an end": WEIGHTS[:-1],
    "no end, but weights that look like it": LOOKALIKE[:-8],
    "an old stream without an end": OLD[:-4],
    "an old stream and more": OLD + b"\0\0\0\0",
}


@pytest.mark.parametrize("what", ARRAYS)
def test_an_arrow_body_ends_where_it_says(world: World, what: str) -> None:
    assert WEIGHTS.endswith(END)
    assert LOOKALIKE[:-8].endswith(END)
    before = world.service.stored()
    headers = {"Content-Type": ARROW}
    reply = world.analyst.post(f"/v1/sessions/{world.session}/queries", content=ARRAYS[what], headers=headers)
    refused(reply, "invalid-query")
    assert world.service.stored() == before


@pytest.mark.parametrize("body", [WEIGHTS, LOOKALIKE, OLD], ids=["now", "lookalike", "old"])
def test_whole_arrow_bodies_are_taken(world: World, body: bytes) -> None:
    headers = {"Content-Type": ARROW}
    reply = world.analyst.post(f"/v1/sessions/{world.session}/queries", content=body, headers=headers)
    assert reply.status_code == 200, reply.text


# ------------------------------------------------------------------------------------------- codings

QUERY = json.dumps(where(sex={"equals": "female"})).encode()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(QUERY), QUERY)


def sent(world: World, headers: dict[str, str | int], body: bytes, path: str | None = None) -> RawReply:
    start = head("POST", path or f"/v1/sessions/{world.session}/queries", key_of(world.analyst), **headers)
    reply = raw(world.service.address, start + body)
    assert reply is not None
    return reply


def key_of(client: httpx.Client) -> str:
    return client.headers["authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    "coding",
    ["gzip, chunked", "identity, chunked", "GZIP,Chunked", "deflate, gzip, chunked", "x-anything, chunked",
     "x\r\nTransfer-Encoding: chunked", "gzip", "identity", "chunked, gzip", "chunked, chunked"],
)  # fmt: skip
def test_no_transfer_coding_but_chunked(world: World, coding: str) -> None:
    """What was compressed would be read as it is: a proxy that undoes it, or does not, would see another request."""
    before = world.service.stored()
    headers = {"Content-Type": "application/json", "Transfer-Encoding": coding}
    for path in (None, f"/v1/sessions/{world.session}/close"):
        refused(sent(world, headers, CHUNKED, path), "invalid-request")
    assert world.service.stored() == before


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "x", "identity, gzip", "gzip, identity"])
def test_no_content_coding(world: World, coding: str) -> None:
    before = world.service.stored()
    headers: dict[str, str | int] = {"Content-Type": "application/json", "Content-Length": len(QUERY)}
    reply = sent(world, {**headers, "Content-Encoding": coding}, QUERY)
    assert "Content-Encoding" in refused(reply, "invalid-request")["detail"]
    assert world.service.stored() == before


@pytest.mark.parametrize("coding", ["chunked", "Chunked", " chunked "])
def test_chunks_are_taken(world: World, coding: str) -> None:
    headers: dict[str, str | int] = {"Content-Type": "application/json", "Transfer-Encoding": coding}
    assert sent(world, headers, CHUNKED).status == 200
    assert sent(world, {**headers, "Content-Encoding": "identity"}, CHUNKED).status == 200


def test_the_command_line_finds_it_too() -> None:
    """The command line parses what is typed before it sends it: it must not lose the member itself."""
    with pytest.raises(Refusal, match="role"):
        parse_object('{"a": [{"role": 1, "role": 2}]}', "--spec")
    assert parse_object('{"a": {"a": "a:"}}', "--spec") == {"a": {"a": "a:"}}
