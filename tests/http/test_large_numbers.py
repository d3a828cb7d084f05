"""Numbers that JSON writes as integers and no float keeps every digit of: declared, asked for, and read again.

They would catch a session whose transcript cannot be sent, so that nobody audits the log any more.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audit.replay import replay
from curator_client.proofs.records import canonical
from tests.kit.service import Service, unique

pytestmark = pytest.mark.api

WIDE: dict[str, Any] = {"name": "far", "edges": [-1e20, 0, 2**53, 1e16, 123456789012345680000]}


@pytest.fixture(scope="module")
def far(exact: Service) -> str:
    """A data set with numbers beyond 2^53 in its declaration."""
    name = unique("far")
    declared = {"name": name, "kind": "table", "budget": {"epsilon": 5, "delta": 1e-9}, "attributes": [WIDE]}
    files = {"spec": (None, json.dumps(declared)), "data": ("t.csv", b"far\n1\n1e17\n")}
    reply = exact.admin.post("/v1/datasets", files=files)
    assert reply.status_code == 201, reply.text
    return name


@pytest.mark.parametrize("construction", ["evidence", "gaussian"])
def test_a_transcript_with_numbers_beyond_2_53_is_sent_and_replays(exact: Service, far: str, construction: str) -> None:
    analyst = exact.principal("analyst")
    asked = {"dataset": far, "mechanism": {"construction": construction}, "epsilon": 0.5, "max_queries": 3}
    session = analyst.post("/v1/sessions", json=asked)
    assert session.status_code == 201, session.text
    id = session.json()["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json={"type": "predicate", "where": {"far": {"bin": 3}}})
    assert reply.status_code in (200, 422), reply.text
    sent = exact.principal("auditor").get(f"/v1/sessions/{id}/transcript")
    assert sent.status_code == 200, sent.text
    verdict = replay(iter(sent.content.splitlines(keepends=True)))
    assert verdict.ok, verdict.problem


@pytest.mark.parametrize("within", [2.0**31 + 1, 1e16, 1e18, 1e100])
@pytest.mark.parametrize("route", ["/v1/sessions", "/v1/plans"])
def test_no_interval_is_wider_than_any_data(exact: Service, far: str, route: str, within: float) -> None:
    """Would catch a plan that counts questions in more digits than a reply has, or in less than none."""
    reply = exact.principal("analyst").post(route, json={"dataset": far, "epsilon": 0.01, "within": within})
    assert (reply.status_code, reply.json()["type"]) == (422, "/problems/invalid-request")
    assert "within" in reply.json()["detail"]
    widest = exact.principal("analyst").post(route, json={"dataset": far, "epsilon": 0.001, "within": 2.0**31})
    assert widest.status_code in (200, 201), widest.text


@pytest.mark.unit
@given(st.floats(2.0**53, 1e300), st.integers(2**53, 10**21))
def test_what_is_canonical_is_so_when_it_is_read_again(number: float, digits: int) -> None:
    """Of integers that no float is, other bytes are written than were read."""
    written = canonical({"a": [number]})
    assert canonical(json.loads(written)) == written
    read = json.dumps(digits).encode()
    assert (canonical(digits) == read) is (float(digits) == digits and read == canonical(float(digits)))
