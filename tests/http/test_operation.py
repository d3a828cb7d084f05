"""What runs beside the answers: health, metrics, the OpenAPI document, the interactive docs, headers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from curator_client import Curator, question
from tests.kit.service import Service, ask, head, open_session, people, raw, refused, serving, where

pytestmark = pytest.mark.api


class TestHealth:
    @pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "ready")])
    def test_without_a_key(self, service: Service, path: str, status: str) -> None:
        """Catches a probe that needs a key, and one that a proxy may cache."""
        reply = httpx.get(service.url + path)
        assert (reply.status_code, reply.json()) == (200, {"status": status})
        assert reply.headers["cache-control"] == "no-store"

    def test_not_ready_without_its_database(self, tmp_path: Path) -> None:
        """Catches a readiness that looks at nothing: the process is alive, and says that it cannot work."""
        with serving(tmp_path) as service:
            service.built.store.close()  # open connections would keep the moved file
            database = tmp_path / "curator.sqlite3"
            database.rename(tmp_path / "moved")
            (tmp_path / "curator.sqlite3").mkdir()
            refused(httpx.get(f"{service.url}/readyz"), "unavailable")
            assert httpx.get(f"{service.url}/healthz").status_code == 200
            (tmp_path / "curator.sqlite3").rmdir()
            (tmp_path / "moved").rename(database)
            assert httpx.get(f"{service.url}/readyz").status_code == 200


class TestMetrics:
    def test_counts_are_of_public_outcomes(self, service: Service) -> None:
        """Catches metrics without a type, and labels that name a session, a data set or a principal."""
        analyst = service.principal("analyst")
        dataset = people(service)
        id = open_session(analyst, dataset)["id"]
        before = self.measurements(service.admin.get("/metrics").text)
        ask(analyst, id, where(sex={"equals": "male"}))
        reply = service.admin.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=")
        assert self.measurements(reply.text) == before + 1
        assert 'route="/v1/sessions/{id}/queries"' in reply.text
        for word in (id, dataset, "analyst-"):
            assert word not in reply.text

    @staticmethod
    def measurements(exposition: str) -> float:
        """Answers so far that were measurements."""
        (line,) = (line for line in exposition.splitlines() if line.startswith('curator_answers_total{source="meas'))
        return float(line.split()[-1])

    def test_analysts_have_no_access(self, service: Service) -> None:
        """Catches counters of everybody's sessions shown to one analyst."""
        refused(service.principal("analyst").get("/metrics"), "forbidden")
        assert service.principal("auditor").get("/metrics").status_code == 200

    def test_open_by_setting(self, tmp_path: Path) -> None:
        """Catches a setting that nothing reads."""
        with serving(tmp_path, metrics_open=True) as service:
            assert httpx.get(f"{service.url}/metrics").status_code == 200


class TestDocuments:
    def test_openapi(self, service: Service) -> None:
        """Catches a document that needs a key, or that leaves out a route of the contract."""
        reply = httpx.get(f"{service.url}/openapi.json")
        assert reply.status_code == 200
        document = reply.json()
        assert document["openapi"].startswith("3.")
        assert {
            "/v1/principals",
            "/v1/principals/{name}",
            "/v1/datasets",
            "/v1/datasets/{name}",
            "/v1/datasets/{name}/grants/{principal}",
            "/v1/datasets/{name}/ledger",
            "/v1/plans",
            "/v1/sessions",
            "/v1/sessions/{id}",
            "/v1/sessions/{id}/queries",
            "/v1/sessions/{id}/queries/batch",
            "/v1/sessions/{id}/close",
            "/v1/sessions/{id}/transcript",
            "/v1/sessions/{id}/hypothesis",
            "/healthz",
            "/readyz",
            "/metrics",
        } <= set(document["paths"])

    def test_docs(self, service: Service) -> None:
        """Catches the interactive docs missing."""
        reply = httpx.get(f"{service.url}/docs")
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/html")
        assert 'src="/docs/start.js"' in reply.text
        assert '"/openapi.json"' in httpx.get(f"{service.url}/docs/start.js").text


def test_replies_are_neither_guessed_at_nor_kept(service: Service) -> None:
    """Catches replies that a browser may sniff as something else or a shared cache may keep, refusals included."""
    for reply in (
        service.admin.get("/v1/datasets"),
        service.admin.get("/v1/nothing"),
        httpx.get(f"{service.url}/docs"),
    ):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers


@pytest.mark.parametrize("path", ["/healthz", "/v1/datasets", "/v1/nothing", "/v1/plans", "/docs"])
def test_head_is_get_without_its_body(service: Service, path: str) -> None:
    """The same status and the same head. Catches a probe by HEAD that is refused, and a body after the head, which the
    connection's next reader would take for a reply."""
    key = service.admin_key
    told, looked = (raw(service.address, head(method, path, key)) for method in ("GET", "HEAD"))
    assert told is not None
    assert looked is not None
    assert (looked.status, looked.body) == (told.status, b"")
    assert told.body
    assert {**looked.headers, "date": ""} == {**told.headers, "date": ""}


def test_what_takes_get_is_said_to_take_head(service: Service) -> None:
    """Would catch an Allow header that leaves out what is served."""
    reply = service.admin.patch("/v1/datasets")
    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, HEAD, POST"


def test_the_client_speaks_to_it(service: Service) -> None:
    """Catches a contract kept by the server and broken by its own client, or the other way round."""
    dataset = people(service)
    with Curator(service.url, service.admin_key) as client:
        session = client.session(dataset, mechanism={"construction": "mw"}, epsilon=0.5, max_queries=10, max_updates=5)
        answer = session.ask(question(where(sex={"equals": "male"})))
        assert (float(answer), answer.source) == (5000.0, "measurement")
        assert session.hypothesis_array().updates == 1
        assert session.close().status == "closed"
