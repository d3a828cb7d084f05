"""Who may do what: keys, roles, and the order in which refusals come."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.kit.service import Service, open_session, people, refused, unique, where
from tests.kit.world import eventually

pytestmark = pytest.mark.api

#: Every route that needs a key: method, path, and the roles that may call it. Session routes: beside the owner.
ROUTES = [
    ("GET", "/v1/principals", "admin auditor"),
    ("POST", "/v1/principals", "admin"),
    ("DELETE", "/v1/principals/nobody", "admin"),
    ("POST", "/v1/principals/nobody/key", "admin"),
    ("GET", "/v1/connections", "admin"),
    ("POST", "/v1/connections", "admin"),
    ("PUT", "/v1/connections/nobody", "admin"),
    ("POST", "/v1/connections/nobody/check", "admin"),
    ("DELETE", "/v1/connections/nobody", "admin"),
    ("POST", "/v1/datasets", "admin"),
    ("POST", "/v1/datasets/check", "admin"),
    ("GET", "/v1/datasets", "admin analyst auditor"),
    ("GET", "/v1/datasets/nothing", "admin analyst auditor"),
    ("GET", "/v1/datasets/nothing/dummy", "admin analyst auditor"),
    ("GET", "/v1/datasets/nothing/grants", "admin"),
    ("PUT", "/v1/datasets/nothing/grants/nobody", "admin"),
    ("GET", "/v1/datasets/nothing/sessions", "admin"),
    ("GET", "/v1/grants", "admin analyst auditor"),
    ("POST", "/v1/datasets/nothing/commitment", "admin"),
    ("GET", "/v1/datasets/nothing/ledger", "admin auditor"),
    ("GET", "/v1/datasets/nothing/measurements", "admin analyst auditor"),
    ("GET", "/v1/datasets/nothing/measurements/" + 64 * "0", "admin analyst auditor"),
    ("DELETE", "/v1/datasets/nothing", "admin"),
    ("POST", "/v1/plans", "admin analyst auditor"),
    ("POST", "/v1/sessions", "admin analyst"),
    ("GET", "/v1/sessions", "admin analyst auditor"),
    ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef", "admin analyst auditor"),
    ("POST", "/v1/sessions/0123456789abcdef0123456789abcdef/queries", "admin analyst"),
    ("POST", "/v1/sessions/0123456789abcdef0123456789abcdef/queries/batch", "admin analyst"),
    ("POST", "/v1/sessions/0123456789abcdef0123456789abcdef/price", "admin analyst"),
    ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef/entries", "admin analyst auditor"),
    ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef/entries/1", "admin analyst auditor"),
    ("POST", "/v1/sessions/0123456789abcdef0123456789abcdef/sql", "admin analyst"),
    ("POST", "/v1/datasets/nothing/sql", "admin analyst"),
    ("POST", "/v1/sessions/0123456789abcdef0123456789abcdef/close", "admin analyst"),
    ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef/transcript", "admin analyst auditor"),
    ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef/hypothesis", "admin analyst auditor"),
    ("GET", "/v1/log/key", "admin analyst auditor"),
    ("GET", "/v1/log/checkpoint", "admin analyst auditor"),
    ("GET", "/v1/log/entries", "admin auditor"),
    ("GET", "/v1/log/proof/inclusion", "admin auditor"),
    ("GET", "/v1/log/proof/consistency", "admin auditor"),
    ("POST", "/v1/log/cosignatures", "admin auditor"),
    ("DELETE", "/v1/log/witnesses/nobody", "admin"),
    ("POST", "/v1/audits", "admin auditor"),
    ("GET", "/v1/audits", "admin auditor"),
    ("GET", "/v1/audits/0123456789abcdef0123456789abcdef", "admin auditor"),
    ("GET", "/v1/audits/0123456789abcdef0123456789abcdef/events", "admin auditor"),
    ("GET", "/v1/audits/0123456789abcdef0123456789abcdef/report", "admin auditor"),
    ("DELETE", "/v1/audits/0123456789abcdef0123456789abcdef", "admin auditor"),
    ("POST", "/v1/releases", "admin analyst"),
    ("GET", "/v1/releases", "admin analyst auditor"),
    ("GET", "/v1/releases/0123456789abcdef0123456789abcdef", "admin analyst auditor"),
    ("GET", "/v1/releases/0123456789abcdef0123456789abcdef/events", "admin analyst auditor"),
    ("GET", "/v1/releases/0123456789abcdef0123456789abcdef/data", "admin analyst auditor"),
    ("DELETE", "/v1/releases/0123456789abcdef0123456789abcdef", "admin analyst"),
    ("GET", "/metrics", "admin auditor"),
]


@pytest.fixture(scope="module")
def callers(service: Service) -> dict[str, httpx.Client]:
    return {
        "admin": service.admin,
        "analyst": service.principal("analyst"),
        "auditor": service.principal("auditor"),
    }


class TestKeys:
    def test_a_new_principal_gets_a_key_this_once(self, service: Service) -> None:
        """Catches other field names, and a key that can be read again or lies in the database."""
        name = unique("ann")
        reply = service.admin.post("/v1/principals", json={"name": name, "role": "analyst"})
        assert reply.status_code == 201
        made = reply.json()
        assert set(made) == {"name", "role", "api_key"}
        assert (made["name"], made["role"]) == (name, "analyst")
        assert service.caller(made["api_key"]).get("/v1/sessions").json() == {"items": []}
        listed = service.admin.get("/v1/principals")
        assert made["api_key"] not in listed.text
        assert made["api_key"] not in service.stored()
        assert [p["role"] for p in listed.json()["items"] if p["name"] == name] == ["analyst"]

    def test_names_are_never_reused(self, service: Service) -> None:
        """Catches a name that comes free by revoking its key: a new holder would own the old one's sessions."""
        name = unique("bob")
        body = {"name": name, "role": "analyst"}
        assert service.admin.post("/v1/principals", json=body).status_code == 201
        refused(service.admin.post("/v1/principals", json=body), "conflict")
        assert service.admin.delete(f"/v1/principals/{name}").status_code == 204
        refused(service.admin.post("/v1/principals", json=body), "conflict")

    def test_a_revoked_key_is_unknown_at_once(self, service: Service) -> None:
        """Catches a key kept in memory after its revocation; the second revocation finds nothing."""
        name = unique("eve")
        client = service.principal("analyst", name)
        assert client.get("/v1/datasets").status_code == 200
        reply = service.admin.delete(f"/v1/principals/{name}")
        assert (reply.status_code, reply.content) == (204, b"")
        refused(client.get("/v1/datasets"), "unauthenticated")
        refused(service.admin.delete(f"/v1/principals/{name}"), "not-found")

    def test_nobody_revokes_their_own_key(self, service: Service) -> None:
        """Catches the last admin locking everybody out."""
        refused(service.admin.delete("/v1/principals/admin"), "conflict")
        assert service.admin.get("/v1/principals").status_code == 200

    def test_a_new_key_for_the_same_principal(self, service: Service) -> None:
        """Catches an old key that goes on working, a holder who loses what is theirs, another role, and a key
        that can be read again.
        """
        dataset, name = people(service), unique("ann")
        old = service.principal("analyst", name)
        id = open_session(old, dataset)["id"]
        for body in (None, b"", b" ", b"{}"):
            reply = service.admin.post(f"/v1/principals/{name}/key", content=body)
            assert reply.status_code == 200, reply.text
            made = reply.json()
            assert set(made) == {"name", "role", "api_key"}
            assert (made["name"], made["role"]) == (name, "analyst")
            assert made["api_key"] not in service.stored()
            refused(old.get("/v1/datasets"), "unauthenticated")
            old = service.caller(made["api_key"])
            assert old.get(f"/v1/sessions/{id}").status_code == 200
            assert old.post(f"/v1/sessions/{id}/queries", json=where(sex={"equals": "male"})).status_code == 200

    def test_a_revoked_principal_is_let_in_again(self, service: Service) -> None:
        """The key is revoked, not the person: a leak is stopped first and mended later. Catches a revocation that
        keeps its mark, with which the next one would find nothing, and the old key coming back with the new.
        """
        name = unique("eve")
        old = service.principal("analyst", name)
        service.admin.delete(f"/v1/principals/{name}")
        made = service.admin.post(f"/v1/principals/{name}/key").json()
        assert service.caller(made["api_key"]).get("/v1/datasets").status_code == 200
        refused(old.get("/v1/datasets"), "unauthenticated")
        assert service.admin.delete(f"/v1/principals/{name}").status_code == 204
        refused(service.caller(made["api_key"]).get("/v1/datasets"), "unauthenticated")

    def test_no_new_key(self, service: Service) -> None:
        """Catches a key for nobody, one for the operator that the next start undoes, and a body that is ignored."""
        for name in ("nobody", "a%00b", "-", "x" * 65):
            refused(service.admin.post(f"/v1/principals/{name}/key"), "not-found")
        refused(service.admin.post("/v1/principals/admin/key"), "conflict")
        name = unique("ann")
        client = service.principal("analyst", name)
        for body in (b"{", b"[]", b"null", b'{"api_key": "mine"}'):
            refused(service.admin.post(f"/v1/principals/{name}/key", content=body), "invalid-request")
        refused(client.post(f"/v1/principals/{name}/key"), "forbidden")
        assert client.get("/v1/datasets").status_code == 200

    @pytest.mark.parametrize(
        "authorization",
        [None, "", "Bearer", "Basic YWRtaW46", "bearer-the-operators-own-key", "Bearer the-operators-own-ke"],
    )
    def test_without_a_known_key(self, service: Service, authorization: str | None) -> None:
        """Catches a scheme or a prefix of a key taken for the key."""
        headers = {} if authorization is None else {"Authorization": authorization}
        refused(httpx.get(f"{service.url}/v1/datasets", headers=headers), "unauthenticated")

    def test_the_scheme_is_read_in_any_case(self, service: Service) -> None:
        """RFC 9110: the scheme's case does not matter. Catches a client turned away for "bearer"."""
        headers = {"Authorization": f"bearer {service.admin_key}"}
        assert httpx.get(f"{service.url}/v1/datasets", headers=headers).status_code == 200


class TestRoles:
    def test_every_route_needs_a_key(self, service: Service) -> None:
        """Catches a route left open; asked at once, since a wrong key costs its sender a moment."""
        nobody = service.caller("not-a-key-of-anybody")
        with ThreadPoolExecutor(len(ROUTES)) as pool:
            replies = list(pool.map(lambda route: nobody.request(route[0], route[1]), ROUTES))
        for reply in replies:
            refused(reply, "unauthenticated")

    def test_the_table_is_complete(self, service: Service) -> None:
        """Catches a new route that the tests of roles do not know."""
        document = service.admin.get("/openapi.json").json()
        described = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
        assert len(described) == len(ROUTES) + len({"/healthz", "/readyz"})

    @pytest.mark.parametrize(("method", "path", "roles"), ROUTES)
    def test_wrong_roles(self, callers: dict[str, httpx.Client], method: str, path: str, roles: str) -> None:
        """A wrong role is 403 before anything else is looked at: the body is rubbish, the things do not exist.
        A right one gets past it. Catches a role let in, kept out, or told first what is wrong with its body.
        """
        for role, client in callers.items():
            reply = client.request(method, path, content=b"{" if method in ("POST", "PUT") else None)
            if role in roles.split():
                assert reply.status_code in (200, 404, 422), (role, reply.text)
            else:
                detail = refused(reply, "forbidden")["detail"]
                assert role in detail

    def test_a_foreign_session_is_not_there(self, service: Service, callers: dict[str, httpx.Client]) -> None:
        """Somebody else's session is 404 on every route, with the very reply of one that does not exist: its
        existence tells nothing. The auditor reads, the admin closes, and neither asks.
        """
        dataset = people(service)
        owner, stranger = service.principal("analyst"), callers["analyst"]
        id = open_session(owner, dataset)["id"]
        query = where(sex={"equals": "male"})
        for method, path, body in [
            ("GET", "", None),
            ("GET", "/transcript", None),
            ("GET", "/hypothesis", None),
            ("POST", "/queries", query),
            ("POST", "/queries/batch", {"queries": [query]}),
            ("POST", "/close", None),
        ]:
            foreign = stranger.request(method, f"/v1/sessions/{id}{path}", json=body)
            missing = stranger.request(method, f"/v1/sessions/{'0' * 32}{path}", json=body)
            refused(foreign, "not-found")
            assert foreign.content == missing.content
            by_admin = service.admin.request(method, f"/v1/sessions/{id}{path}", json=body)
            if path != "/close":
                refused(by_admin, "not-found")
        assert by_admin.status_code == 200
        assert by_admin.json()["status"] == "closed"
        assert id not in stranger.get("/v1/sessions").text
        assert id not in service.admin.get("/v1/sessions").text

    def test_the_auditor_reads_everything_and_asks_nothing(
        self, service: Service, callers: dict[str, httpx.Client]
    ) -> None:
        """Catches an auditor kept from a transcript, or let into a session."""
        dataset = people(service)
        owner, auditor = service.principal("analyst"), callers["auditor"]
        id = open_session(owner, dataset)["id"]
        query = where(sex={"equals": "male"})
        owner.post(f"/v1/sessions/{id}/queries", json=query)
        # The log comes a moment after what it is of, and transcripts say how far it is.
        eventually(lambda: b'"log_size":null' not in owner.get(f"/v1/sessions/{id}/transcript").content)
        for path in ("", "/transcript", "/hypothesis"):
            assert auditor.get(f"/v1/sessions/{id}{path}").content == owner.get(f"/v1/sessions/{id}{path}").content
        assert id in [session["id"] for session in auditor.get("/v1/sessions").json()["items"]]
        assert auditor.get(f"/v1/datasets/{dataset}/ledger").status_code == 200
        refused(auditor.post(f"/v1/sessions/{id}/queries", json=query), "forbidden")
        refused(auditor.post(f"/v1/sessions/{id}/queries/batch", json={"queries": [query]}), "forbidden")
        refused(auditor.post(f"/v1/sessions/{id}/close"), "forbidden")
        refused(auditor.post("/v1/sessions", json={"dataset": dataset}), "forbidden")
        assert json.loads(owner.get(f"/v1/sessions/{id}").content)["queries_asked"] == 1
