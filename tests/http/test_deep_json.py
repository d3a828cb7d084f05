"""Would show JSON without bottom that ends in a RecursionError, a 500 or a transcript that nobody can replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.settings import Settings
from app.verifying.transcript import replay_file
from curator_client.proofs.nesting import MOST_DEPTH, deeper, parse_bounded
from tests.kit.noise import Noise
from tests.kit.service import Service, open_session, people, refused, serving

pytestmark = pytest.mark.adversarial

DEEPEST = 128


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that takes bodies as deep as any may."""
    with serving(tmp_path_factory.mktemp("deep"), noise=Noise(), max_json_depth=DEEPEST) as running:
        people(running, name="people")
        yield running


@pytest.fixture(scope="module")
def session(service: Service) -> str:
    return str(open_session(service.admin, people(service))["id"])


def depth_of(document: Any) -> int:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return 0 if not isinstance(document, dict | list) else 1 + max(map(depth_of, inner), default=0)


DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner),
)


@given(DOCUMENTS, st.integers(0, 8))
def test_depth_is_what_it_is(document: Any, depth: int) -> None:
    assert deeper(document, depth) == (depth_of(document) > depth + 1)


def test_json_has_so_many_levels() -> None:
    assert parse_bounded(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH)
    for content in (b"[" * 1_000 + b"]" * 1_000, b"[" * 10**6, b'{"a":' * 300 + b"1" + b"}" * 300):
        with pytest.raises(ValueError):
            parse_bounded(content)


def test_no_service_takes_what_libraries_do_not_write() -> None:
    """Beyond 254 levels the hash of a body could not be made: 500."""
    Settings(max_json_depth=DEEPEST)
    with pytest.raises(ValidationError):
        Settings(max_json_depth=DEEPEST + 1)


def conditions(levels: int) -> dict[str, Any]:
    """Conditions as deep as that, of which each level says nothing new."""
    where: dict[str, Any] = {"sex": {"equals": "female"}}
    for level in range(levels):
        where = {"not": {"not": where}} if level % 3 == 2 else {("all", "any")[level % 2]: [where]}
    return where


def test_the_deepest_question_is_answered_and_replays(service: Service, tmp_path: Path) -> None:
    """As asked it stands in the transcript, within an entry."""
    id = open_session(service.admin, "people")["id"]
    where: dict[str, Any] = {"sex": {"equals": "female"}}
    while depth_of({"where": {"not": where}}) <= DEEPEST:
        where = {"not": where}
    plain = {"type": "predicate", "where": {"sex": {"equals": "female"}}}
    replies = [
        service.admin.post(f"/v1/sessions/{id}/queries", json=query)
        for query in (plain, {"type": "predicate", "where": where}, {"type": "predicate", "where": conditions(40)})
    ]
    assert [reply.status_code for reply in replies] == [200, 200, 200], [reply.text for reply in replies]
    service.admin.post(f"/v1/sessions/{id}/close").raise_for_status()
    (tmp_path / "t").write_bytes(service.admin.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(tmp_path / "t")
    assert verdict.ok, verdict.problem


ROUTES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "a principal": ("POST", "/v1/principals", lambda deep: {"name": "x", "role": deep}),
    "a grant": ("PUT", "/v1/datasets/people/grants/x", lambda deep: {"epsilon": deep}),
    "a plan": ("POST", "/v1/plans", lambda deep: {"dataset": "people", "mechanism": deep}),
    "a workload": ("POST", "/v1/plans", lambda deep: {"dataset": "people", "workload": deep, "epsilon": 0.1}),
    "a session": ("POST", "/v1/sessions", lambda deep: {"dataset": "people", "mechanism": {"construction": deep}}),
    "an audit": ("POST", "/v1/audits", lambda deep: {"all": True, "checkpoint": deep}),
    "a release": ("POST", "/v1/releases", lambda deep: {"dataset": "people", "workload": {"queries": deep}}),
    "a revelation": ("POST", "/v1/datasets/people/commitment", lambda deep: {"a": deep}),
    "a query": ("POST", "/v1/sessions/{id}/queries", lambda deep: {"type": "predicate", "where": deep}),
    "a condition": ("POST", "/v1/sessions/{id}/queries", lambda deep: {"type": "predicate", "where": {"any": deep}}),
    "weights": ("POST", "/v1/sessions/{id}/queries", lambda deep: {"type": "dense", "weights": deep}),
    "a batch": ("POST", "/v1/sessions/{id}/queries/batch", lambda deep: {"queries": deep}),
}


@pytest.mark.parametrize("levels", [60, DEEPEST - 2, DEEPEST + 10, 300, 2_000])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_refuses_what_is_too_deep(service: Service, session: str, route: str, levels: int) -> None:
    method, path, body = ROUTES[route]
    deep = b"[" * levels + b"]" * levels
    content = json.dumps(body("DEEP")).encode().replace(b'"DEEP"', deep)
    reply = service.admin.request(
        method, path.format(id=session), content=content, headers={"Content-Type": "application/json"}
    )
    problem = reply.json()
    if path.endswith("batch") and reply.status_code == 200:
        assert all("detail" in answer for answer in problem["answers"])
        return
    refused(reply, problem["type"].rsplit("/")[-1])
    assert reply.status_code in (404, 422)
    if levels > DEEPEST:
        # Beyond what the parser itself takes it is no JSON.
        assert f"{DEEPEST} levels" in problem["detail"] or "not JSON" in problem["detail"]


@pytest.mark.parametrize("levels", [60, DEEPEST + 10, 300, 2_000])
@pytest.mark.parametrize("route", ["/v1/datasets", "/v1/datasets/check"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_declarations_have_a_bottom(service: Service, route: str, levels: int, form: str) -> None:
    deep = "[" * levels + "]" * levels
    written = {"json": f'{{"name": "n", "attributes": {deep}}}', "yaml": f"name: n\nattributes: {deep}\n"}
    spec = written[form]
    reply = service.admin.post(route, data={"spec": spec}, files={"data": ("t.csv", b"a\n0\n")})
    assert reply.status_code in (200, 422), reply.text
    if reply.status_code == 422:
        refused(reply, "invalid-dataset")
