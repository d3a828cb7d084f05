"""Traces: where a request's time went, told to a collector of OpenTelemetry, and nothing private with it.

The collector is a server of this process. What it takes is read by the protocol's own messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import structlog
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.bootstrap import traces
from app.bootstrap.traces import STEP, Traces
from app.services.answering.parked import Parked
from app.services.tracing import Trace
from app.settings import Settings
from app.spaces.counts import NotCounted
from tests.kit.noise import Noise, nothing
from tests.kit.service import JSON, Service, ask, open_session, people, refused, serving, where
from tests.kit.world import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: All that a span may say beside its name and its times.
KEYS = {"http.request.method", "http.route", "http.response.status_code", "curator.kind", "curator.outcome"}


class Collector:
    """A collector, with all that it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    @property
    def spans(self) -> list[JSON]:
        found: list[JSON] = []
        for body in [*self.bodies]:
            Parse(body, ExportTraceServiceRequest())  # raises on a field that is none, or of another type
            for resource in orjson.loads(body)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += scope["spans"]
        return found

    def named(self, name: str) -> list[JSON]:
        return [span for span in self.spans if span["name"] == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "EVERY_SECONDS", 0.05)


@contextmanager
def traced(folder: Path, url: str) -> Iterator[Service]:
    with serving(folder / "var", noise=Noise(nothing), traces=url) as service:
        yield service


def words(span: JSON) -> dict[str, str]:
    return {each["key"]: str(*each["value"].values()) for each in span["attributes"]}


def times(span: JSON) -> tuple[int, int]:
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def test_a_question_is_told_of_with_its_parts(tmp_path: Path, collector: Collector) -> None:
    """Each part lies within its request, and all times are tenths of a second."""
    with traced(tmp_path, collector.url) as service:
        analyst = service.principal("analyst")
        session = open_session(analyst, people(service))["id"]
        ask(analyst, session, where(sex="male"))
        route = "POST /v1/sessions/{id}/queries"
        eventually(lambda: collector.named(route))
        (request,) = collector.named(route)
        assert words(request) == {
            "http.request.method": "POST",
            "http.route": "/v1/sessions/{id}/queries",
            "http.response.status_code": "200",
        }
        assert (request["kind"], "parentSpanId" in request) == (2, False)
        own = [span for span in collector.spans if span.get("parentSpanId") == request["spanId"]]
        assert sorted(span["name"] for span in own) == ["answer", "commit", "queued"]
        assert {span["traceId"] for span in own} == {request["traceId"]}
        (answer,) = (span for span in own if span["name"] == "answer")
        assert words(answer) == {"curator.kind": "ask", "curator.outcome": "answered"}
        for span in (request, *own):
            began, ended = times(span)
            assert began % STEP == ended % STEP == 0
            assert times(request)[0] <= began <= ended <= times(request)[1]
            assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert abs(times(request)[1] / 1e9 - time.time()) < 60
        refused(analyst.post(f"/v1/sessions/{session}/queries", json=where(sex="neither")), "invalid-query")
        eventually(lambda: [s for s in collector.named("answer") if words(s)["curator.outcome"] == "invalid-query"])


def _raises(*_: object) -> None:
    raise ValueError("okapi")


def test_nothing_private_is_told(tmp_path: Path, collector: Collector) -> None:
    """Names, questions, numbers, sessions and keys: of whatever goes well or wrong. Would catch a span that has a path
    in the place of its template, or the text of an error."""
    with traced(tmp_path, collector.url) as service:
        analyst = service.principal("analyst")
        name = people(service, name="quagga-data")
        opened = open_session(analyst, name)
        value = ask(analyst, opened["id"], where(sex="male"))["value"]
        for path in (f"/v1/datasets/{name}", "/v1/datasets/okapi", "/okapi", f"/v1/sessions/{opened['id']}?x=okapi"):
            analyst.get(path)
        analyst.request("PROPFIND", "/okapi")
        analyst.post(f"/v1/sessions/{opened['id']}/queries", json=where(okapi=1), headers={"Idempotency-Key": "okapi"})
        analyst.post("/v1/sessions", content=b"okapi")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("app.services.datasets.Datasets.describe", _raises)
            analyst.get(f"/v1/datasets/{name}")
        service.admin.post("/v1/datasets", data={"spec": "okapi"}, files={"data": ("okapi.csv", b"okapi")})
        analyst.get("/healthz")
        eventually(lambda: collector.named("GET /healthz"))
        keys = [client.headers["Authorization"].split()[-1] for client in (analyst, service.admin)]
    everything = b"".join(collector.bodies).decode()
    for secret in ("okapi", "quagga", "male", opened["id"], str(value), *keys):
        assert secret.lower() not in everything.lower(), secret
    assert {key for span in collector.spans for key in words(span)} <= KEYS
    statuses = {words(span).get("http.response.status_code") for span in collector.spans}
    assert {"200", "201", "404", "422"} <= statuses, "all of this was told of"
    told = {span["name"] for span in collector.spans}
    assert "POST /v1/datasets" not in told, "how long it takes to read private data"
    assert {"GET /v1/datasets/{name}", "other unmatched"} <= told


def test_waiting_for_a_source_is_told_when_the_tick_is_over() -> None:
    """Counting takes a moment. Would catch a span with an engine's time."""
    told: list[Any] = []
    tracer = SimpleNamespace(part=lambda name, within, began, ended, **more: told.append((name, ended - began, more)))
    parked = Parked(1, 0.4, SimpleNamespace(tallied=lambda _: None, late_source=lambda: None), tracer)  # type: ignore[arg-type]
    done = threading.Event()
    parked.wait("ann", NotCounted(lambda: None), lambda _: done.set(), Trace("0" * 32, "0" * 16))
    assert done.wait(60)
    parked.stop()
    ((name, seconds, more),) = told
    assert (name, more) == ("parked", {"outcome": "counted"})
    assert seconds >= 0.399


def test_what_is_done_beside_requests_is_told(tmp_path: Path, collector: Collector) -> None:
    with traced(tmp_path, collector.url) as service:
        analyst = service.principal("analyst")
        asked = {"dataset": people(service), "method": "gaussian", "epsilon": 0.1, "workload": {"marginals": 1}}
        assert analyst.post("/v1/releases", json=asked).status_code == 202
        eventually(lambda: collector.named("job"))
    assert [words(span) for span in collector.named("job")] == [{"curator.kind": "release"}]


def test_a_collector_that_is_away_is_noticed_by_nobody_who_asks(tmp_path: Path, collector: Collector) -> None:
    """It is told once, in the log; and a server ends in time."""
    collector.status = 503
    with traced(tmp_path, collector.url) as service:
        assert service.admin.get("/v1/datasets").status_code == 200
        eventually(lambda: collector.bodies)
    collector.server.shutdown()
    collector.server.server_close()
    with traced(tmp_path / "other", collector.url) as service:
        assert service.admin.get("/v1/datasets").status_code == 200
        began = time.monotonic()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://a..b/v1", "http://127.0.0.1:1/v1/traces"])
def test_an_address_at_which_nobody_is_ends_nothing(url: str) -> None:
    """Whatever the library says of it. Would catch a thread that ends with the first span, and says nothing."""
    sending = Traces(url)
    with structlog.testing.capture_logs() as told:
        sending.start()
        for _ in range(2):
            sending.part("job", None, 0.0, 1.0, "release")
            eventually(lambda: told)
        sending.stop()
    assert not sending._thread.is_alive(), "it was told to end, and did"
    assert [line["event"] for line in told] == ["spans do not reach the collector, and are dropped"]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing takes it. Would catch memory that grows, and requests that wait for a collector."""
    monkeypatch.setattr(traces, "MOST_WAITING", 8)
    stuck = Traces("http://127.0.0.1:1/v1/traces")
    for _ in range(100):
        stuck.part("job", None, 0.0, 1.0, "release")
    assert stuck._spans.qsize() == 8
    stuck.stop()
    Traces("http://127.0.0.1:1/v1/traces").stop()  # a service that did not start


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector/", "http://name:password@collector/"])
def test_an_address_that_is_none_refuses_the_start(url: str, tmp_path: Path) -> None:
    """A password in it would stand in what shows settings."""
    with pytest.raises(ValueError, match="traces"):
        Settings(data_dir=tmp_path, traces=url)
