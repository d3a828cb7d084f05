"""The OpenAPI document against the server, by schemathesis: what is described is what happens.

For every operation the systematic requests, valid and invalid, at every boundary that the document names; some of them
and random valid ones with an admin's and an analyst's key. No reply may be a server error (a 503 included: nothing here
gives a reason for one), have a status or a media type that the document does not give the operation, or a body that
is not of the schema it gives; what breaks the document's own schema must be refused, and so must undescribed methods.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from app.http.openapi import declaration_schemas
from curator_client.proofs.notes import Witness
from tests.http.test_principals import ROUTES
from tests.kit.noise import Noise
from tests.kit.service import ARROW, JSON, NPY, Service, arrow, npy, open_session, people, register, serving, unique

pytestmark = pytest.mark.api

load_all_checks()
CONFORMANCE = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
        "allow_header_conformance",
    ]
)
#: Every operation, with the roles that may call it.
OPERATIONS = {
    f"{method} {path}".replace("nothing", "{name}")
    .replace("0123456789abcdef0123456789abcdef", "{id}")
    .replace("/entries/1", "/entries/{sequence}")
    .replace("principals/nobody", "principals/{name}")
    .replace("connections/nobody", "connections/{name}")
    .replace("grants/nobody", "grants/{principal}")
    .replace("witnesses/nobody", "witnesses/{name}")
    .replace("0" * 64, "{id}"): roles.split()
    for method, path, roles in ROUTES
} | {"GET /healthz": ["admin", "analyst"], "GET /readyz": ["admin", "analyst"]}
#: Shares of less are written with more digits than are taken, or have no plan.
LEAST_EPSILON = 0.01
#: Random valid requests for each operation, with either key, beside the systematic ones.
EXAMPLES = 8
#: Of the systematic requests with a second key, and of batches of whole questions and prices, one in so many.
OTHER_KEY, BATCHES = 7, 5
#: How a case describes that it is about what stands within a condition, or within the description of a construction:
#: the schema has one of each, and one piece of code reads it, wherever it stands.
WITHIN = re.compile(
    r"(?:^|: )(?:(?P<hurt>where|of|mechanisms?) -> |Object with valid '(?P<valid>where|of|mechanisms?)' value: )"
)
#: A data set and a session of every kind, for the lists.
KINDS: list[tuple[JSON, str, bytes, JSON]] = [
    ({"kind": "graph", "nodes": 4, "records_public": True}, "g.txt", b"0 1\n1 2\n", {"construction": "mw"}),
    ({"kind": "bipartite", "left": 2, "right": 3}, "g.csv", b"0,1,0.5\n", {"construction": "fk"}),
    (
        {"kind": "matrix", "rows": 2, "columns": 3, "lower": 0, "upper": 5, "absent": 0},
        "m.csv",
        b"row,column,value\n0,1,4.5\n",
        {"construction": "md", "potential": "schatten", "p": 1.5},
    ),
    ({"kind": "multiset"}, "w.csv", b"element,count\nthe,3\n", {"construction": "smw", "sparsity": 3}),
]
#: It cannot be relied upon to come before the noise: tests/releases/test_releases_over_http.py holds that up.
RACING = {"DELETE /v1/releases/{id}"}
#: A body of theirs that succeeds takes more than their schema can tell: a spec within a string, and a file to match; or
#: a workload of the data set's kind, with a method that serves it; or a signature; or a statement of SQL; or that no
#: other audit is under way; or a URL.
BEYOND_SCHEMA = {
    "POST /v1/datasets",
    "POST /v1/datasets/check",
    "POST /v1/releases",
    "POST /v1/log/cosignatures",
    "POST /v1/audits",
    "POST /v1/connections",
    "PUT /v1/connections/{name}",
    "POST /v1/sessions/{id}/sql",
    "POST /v1/datasets/{name}/sql",
}

_eight = st.lists(st.floats(-1, 1), min_size=8, max_size=8)
schemathesis.openapi.media_type(NPY, _eight.map(npy) | st.binary(max_size=200))
schemathesis.openapi.media_type(ARROW, _eight.map(arrow) | st.binary(max_size=200))


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    how = {"vault_key": base64.b64encode(bytes(32)).decode(), "source_hosts": "127.0.0.1"}
    with serving(tmp_path_factory.mktemp("fuzzed"), noise=Noise(), memory_limit=64 << 20, **how) as running:
        for kind, filename, data, mechanism in KINDS:
            spec = {**kind, "name": unique(kind["kind"]), "budget": {"epsilon": 1.0, "delta": 1e-6}}
            assert register(running.admin, spec, data, filename).status_code == 201
            open_session(running.admin, spec["name"], mechanism=mechanism, epsilon=0.1)
        yield running


@pytest.fixture(scope="module")
def schema(fuzzed: Service) -> Any:
    return schemathesis.openapi.from_dict(fuzzed.admin.get("/openapi.json").json())


@pytest.fixture(scope="module")
def analyst(fuzzed: Service) -> httpx.Client:
    return fuzzed.principal("analyst")


def existing(service: Service, client: httpx.Client, label: str) -> dict[str, Any]:
    """Path parameters of things that exist, made for this operation: it may destroy them."""
    found: dict[str, Any] = {}
    if "/sessions/{id}" in label:
        found["id"] = open_session(client, people(service))["id"]
    if "{sequence}" in label:
        asked = {"type": "predicate", "where": {"sex": "male"}}
        keyed = {"Idempotency-Key": "k"}
        reply = client.post(f"/v1/sessions/{found['id']}/queries", json=asked, headers=keyed)
        found["sequence"] = reply.json()["sequence"]
    if "/releases/{id}" in label:
        found["id"] = released(client, people(service), done=not label.startswith("DELETE"))
    if "/audits/{id}" in label:
        found["id"] = audited(service.admin)
    if "/datasets/{name}" in label:
        found["name"] = people(service)
    if "/measurements/{id}" in label:
        evidence = {"mechanism": {"construction": "evidence"}, "epsilon": 0.1, "max_updates": None}
        session = open_session(client, found["name"], **evidence)["id"]
        reply = client.post(f"/v1/sessions/{session}/queries", json={"type": "marginal", "attributes": ["sex"]})
        assert reply.status_code == 200, reply.text
        found["id"] = client.get(f"/v1/datasets/{found['name']}/measurements").json()["items"][0]["id"]
    if "/principals/{name}" in label:
        found["name"] = unique("leaver")
        service.principal("analyst", found["name"])
    if "/connections/{name}" in label:
        found["name"] = unique("connection")
        asked = {"name": found["name"], "url": "postgresql://u:p@127.0.0.1/d"}
        assert service.admin.post("/v1/connections", json=asked).status_code == 201
    if "/witnesses/{name}" in label:
        found["name"], witness = unique("witness"), Witness(os.urandom(32))
        auditor = service.principal("auditor", found["name"])
        note = witness.cosign(auditor.get("/v1/log/checkpoint").content, 0)
        asked = {"witness": witness.verifier.text()}
        assert auditor.post("/v1/log/cosignatures", params=asked, content=note).status_code == 204
    if "{principal}" in label:
        found["principal"] = unique("grantee")
        service.principal("analyst", found["principal"])
    return found


def released(client: httpx.Client, dataset: str, *, done: bool) -> str:
    """A release of this data set; one that is not yet measured is cancelled by the first who asks."""
    asked = {"dataset": dataset, "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.1}
    reply = client.post("/v1/releases", json=asked)
    assert reply.status_code == 202, reply.text
    id = str(reply.json()["id"])
    if done:  # the stream ends with the work
        assert client.get(f"/v1/releases/{id}/events").text.count("event: end") == 1
    return id


def audited(admin: httpx.Client) -> str:
    """An audit that is done. There is one at a time: another one is waited for."""
    while (reply := admin.post("/v1/audits", json={"all": True})).status_code == 409:
        admin.get(f"/v1/audits/{reply.json()['audit']}/events")
    id = str(reply.json()["id"])
    assert admin.get(f"/v1/audits/{id}/events").text.count("event: end") == 1
    return id


def systematic(schema: Any, label: str) -> Iterator[Any]:
    """The systematic requests of an operation. What a question of a batch says, or one whose price is asked, is read by
    the same code as that of a question alone: of these come some, to show that it is so. What stands within a condition
    comes once, in the first form that has it, and so does what stands within a construction; that each form has them at
    all comes with each.
    """
    method, path = label.split()
    cases = schema.iter_coverage_cases(
        schema[path][method],
        generation_modes=list(GenerationMode),
        generation_config=schema.config.generation,
    )
    others, known = 0, set()
    for case in cases:
        asked = case.body if isinstance(case.body, dict) else {}
        questions = asked.get("queries")
        batch = isinstance(questions, list) and questions and all(isinstance(each, dict) for each in questions)
        if (found := WITHIN.search(case.meta.phase.data.description)) and (not questions or batch):
            inner = json.dumps((questions[0] if batch else asked).get(found["hurt"] or found["valid"])).strip("[]")
            if inner in known:
                continue
            known.add(inner)
        if batch or (path.endswith("/price") and "type" in asked):
            others += 1
            if others % BATCHES != 1:
                continue
        yield case


class Conversation:
    """What is asked of an operation with one key, on one connection: opening it anew for each of thousands of requests
    took more than the requests.
    """

    def __init__(self, service: Service, client: httpx.Client, label: str) -> None:
        self._url, self._exists, self._dataset = service.url, existing(service, client, label), people(service)
        self._headers = {"Authorization": client.headers["Authorization"]}
        self._connection = requests.Session()
        self._connection.trust_env = False
        self.statuses: set[int] = set()

    def check(self, case: Any) -> None:
        """Send a request, and hold the reply against the document."""
        for name in set(self._exists) & set(case.path_parameters or ()):
            case.path_parameters[name] = self._exists[name]
        # What may be a data set's name becomes that of one which is there; what may not is sent as it is.
        if isinstance(case.body, dict) and isinstance(name := case.body.get("dataset"), str) and 0 < len(name) <= 64:
            case.body["dataset"] = self._dataset
            share = case.body.get("epsilon")
            if isinstance(share, float) and 0 < share < LEAST_EPSILON:
                case.body["epsilon"] = LEAST_EPSILON
        response = case.call(base_url=self._url, session=self._connection, headers=self._headers)
        case.validate_response(response, checks=CONFORMANCE)
        assert response.status_code < 500, response.text
        self.statuses.add(response.status_code)

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_happens_is_what_is_described(fuzzed: Service, schema: Any, analyst: httpx.Client, label: str) -> None:
    """Catches a status, a media type or a field that the document does not tell, a request taken that the document
    does not allow, and any server error. What a role may do has to succeed at least once: the rest would not be
    reached otherwise.

    All systematic requests are sent with the key of the least role that may call the operation. What they say is read
    by the same code whoever says it: with the other key are sent some.
    """
    clients = {"admin": fuzzed.admin, "analyst": analyst}
    least, other = sorted(clients, reverse="analyst" in OPERATIONS[label])
    asked = {role: Conversation(fuzzed, clients[role], label) for role in (least, other)}

    def check(case: Any) -> None:
        for conversation in asked.values():
            conversation.check(case)

    bounded = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for number, case in enumerate(systematic(schema, label)):
        asked[least].check(case)
        if number % OTHER_KEY == 0:
            asked[other].check(case)
    method, path = label.split()
    bounded(given(case=schema[path][method].as_strategy())(check))()
    for role, conversation in asked.items():
        conversation.close()
        if role in OPERATIONS[label] and label not in BEYOND_SCHEMA | RACING:
            assert conversation.statuses & {200, 201, 202, 204}, (role, conversation.statuses)


def test_a_declaration_has_its_schema(fuzzed: Service) -> None:
    """Catches a form whose field spec is any text, and a schema that is named and not there. What the schema says is
    tested with the examples of docs/datasets.md."""
    document = fuzzed.admin.get("/openapi.json").json()
    form = document["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert form["schema"] == {"$ref": "#/components/schemas/RegistrationForm"}
    shown = document["components"]["schemas"]
    assert shown["RegistrationForm"]["properties"]["spec"] == {"$ref": "#/components/schemas/Declaration"}
    assert shown["Declaration"] == declaration_schemas()["Declaration"]
    fields = shown["TableSpec"]["properties"]
    assert {"encoding", "null_values", "outside", "capacity", "attributes"} <= fields.keys()
    assert {"grid", "dates", "by", "missing", "outside"} <= shown["Attribute"]["properties"].keys()


def test_nothing_is_left_out(schema: Any) -> None:
    """Catches an operation that the test above does not know."""
    described = {operation.ok().label for operation in schema.get_all_operations()}
    assert described == set(OPERATIONS)
