"""Releases over HTTP: asked for, followed, read, cancelled."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from app.audit.replay import replay
from app.http import streams
from app.http.routes import releases as routes
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import (
    ARROW,
    JSON,
    PARQUET,
    Gate,
    Service,
    open_session,
    people,
    refused,
    register,
    serving,
    unique,
)

pytestmark = [pytest.mark.api, pytest.mark.slow]


def words(dataset: str, **changes: Any) -> JSON:
    return {"dataset": dataset, "method": "gaussian", "workload": {"marginals": 2}, "epsilon": 0.5, **changes}


def ask(client: httpx.Client, dataset: str, key: str | None = None, **changes: Any) -> JSON:
    headers = {} if key is None else {"Idempotency-Key": key}
    reply = client.post("/v1/releases", json=words(dataset, **changes), headers=headers)
    assert reply.status_code == 202, reply.text
    told: JSON = reply.json()
    return told


def told(client: httpx.Client, id: str) -> list[tuple[str, JSON]]:
    """The events of a release up to its end."""
    reply = client.get(f"/v1/releases/{id}/events")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in reply.text.strip().split("\n\n")]
    assert blocks[0] == {"retry": str(streams.RECONNECT_MS)}
    return [(block["event"], json.loads(block["data"])) for block in blocks[1:] if "event" in block]


@pytest.fixture(scope="module")
def done(service: Service) -> tuple[httpx.Client, JSON]:
    """Somebody's release that is done, and what it is on."""
    owner = service.principal("analyst")
    events = told(owner, ask(owner, people(service))["id"])
    assert [name for name, _ in events] == ["progress"] * (len(events) - 1) + ["end"]
    return owner, events[-1][1]


@pytest.fixture
def held(noise: Noise) -> Iterator[Gate]:
    """Whoever draws waits for the test: the release that is worked on stays before its noise, the others queued."""
    gate = Gate()
    with gate.shut():
        noise.draw = gate
        yield gate
    noise.draw = lambda _: 0


class TestCourse:
    def test_what_it_costs_and_promises(self, done: tuple[httpx.Client, JSON]) -> None:
        """Catches fields that the contract names and that are missing, and a share that is not given back."""
        owner, state = done
        assert (state["status"], state["step"], state["progress"]) == ("done", "done", 1.0)
        assert (state["method"], state["workload"]) == ("gaussian", {"marginals": 2})
        assert state["cost"]["reserved"] == "0"
        assert 0 < state["cost"]["spent_epsilon"] <= 0.5
        assert state["plan"]["measurements"] == 1
        assert state["problem"] is None
        assert owner.get(f"/v1/releases/{state['id']}").json() == state
        listed = owner.get("/v1/releases").json()
        assert listed["items"] == [state]

    def test_the_transcript_replays(self, service: Service, done: tuple[httpx.Client, JSON]) -> None:
        owner, state = done
        lines = owner.get(state["links"]["transcript"]).content.splitlines()
        assert [json.loads(line)["record"] for line in lines] == ["header", "measurement", "release", "trailer"]
        assert replay(lines).ok
        found = owner.get(f"/v1/datasets/{state['dataset']}/measurements").json()["items"]
        assert len(found) == 1

    def test_data_in_every_format(self, done: tuple[httpx.Client, JSON]) -> None:
        """Catches formats that say different things, a missing label, and a standard error that is none."""
        owner, state = done
        path = state["links"]["data"]
        csv = pa.csv.read_csv(io.BytesIO(owner.get(path, headers={"Accept": "text/csv"}).content))
        parquet = pq.read_table(io.BytesIO(owner.get(path, headers={"Accept": PARQUET}).content))
        reply = owner.get(path)
        assert reply.headers["content-type"] == ARROW
        arrow = pa.ipc.open_stream(reply.content).read_all()
        assert arrow.num_rows == 8
        assert set(arrow["sex"].to_pylist()) == {"female", "male"}
        assert arrow["value"].to_pylist() == parquet["value"].to_pylist() == csv["value"].to_pylist()
        assert min(arrow["standard_error"].to_pylist()) > 0
        assert parquet.column_names == csv.column_names == arrow.column_names
        assert owner.get(path, params={"part": "answers"}).content == reply.content
        refused(owner.get(path, params={"part": "records"}), "not-found")
        refused(owner.get(path, params={"part": "everything"}), "invalid-request")
        refused(owner.get(path, headers={"Accept": "image/png"}), "invalid-request")

    def test_what_was_measured_serves_a_session(self, done: tuple[httpx.Client, JSON]) -> None:
        owner, state = done
        opened = open_session(
            owner, state["dataset"], mechanism={"construction": "evidence"}, epsilon=0.1, max_updates=None
        )
        answer = owner.post(
            f"/v1/sessions/{opened['id']}/queries", json={"type": "marginal", "attributes": ["sex"], "within": 1e5}
        )
        assert answer.json()["source"] == "estimate"

    def test_its_session_is_asked_nothing(self, done: tuple[httpx.Client, JSON]) -> None:
        """Catches a release that answers queries, or is closed by hand under the hands of whoever works on it."""
        owner, state = done
        path = f"/v1/sessions/{state['id']}"
        query = {"type": "marginal", "attributes": ["sex"]}
        for end, body in (("queries", query), ("queries/batch", {"queries": [query]}), ("close", None)):
            refused(owner.post(f"{path}/{end}", json=body), "conflict")
        assert owner.get(path).json()["status"] == "closed"
        assert owner.get(f"{path}/hypothesis").status_code < 500

    def test_who_sees_it(self, service: Service, done: tuple[httpx.Client, JSON]) -> None:
        """Catches somebody else's release that is told from one that is not there, and an auditor who asks for one."""
        owner, state = done
        stranger, auditor = service.principal("analyst"), service.principal("auditor")
        for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/data"), ("DELETE", "")):
            foreign = stranger.request(method, f"/v1/releases/{state['id']}{path}")
            refused(foreign, "not-found")
            assert foreign.content == stranger.request(method, f"/v1/releases/{'0' * 32}{path}").content
        assert stranger.get("/v1/releases").json() == {"items": []}
        assert auditor.get(f"/v1/releases/{state['id']}").json() == state
        assert auditor.get(state["links"]["data"]).content == owner.get(state["links"]["data"]).content
        refused(auditor.delete(f"/v1/releases/{state['id']}"), "forbidden")
        refused(auditor.post("/v1/releases", json=words(state["dataset"])), "forbidden")

    def test_metrics(self, service: Service, done: tuple[httpx.Client, JSON]) -> None:
        deadline = time.monotonic() + patience(30)
        while 'curator_releases{status="done"} 0.0' in service.admin.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        shown = service.admin.get("/metrics").text
        for status in ("queued", "running", "done", "failed", "cancelled"):
            assert f'curator_releases{{status="{status}"}}' in shown
        assert "curator_release_fit_seconds_count" in shown


class TestKeys:
    def test_repeats(self, service: Service, held: Gate) -> None:
        """Concurrent ones, later ones, and one with another body. Catches a second share that is reserved."""
        owner, dataset = service.principal("analyst"), people(service)
        headers = {"Idempotency-Key": unique("key")}
        with ThreadPoolExecutor(4) as pool:
            replies = list(
                pool.map(lambda _: owner.post("/v1/releases", json=words(dataset), headers=headers), range(4))
            )
        assert {reply.status_code for reply in replies} == {202}
        assert len({reply.content for reply in replies}) == 1
        id = replies[0].json()["id"]
        assert [item["id"] for item in owner.get("/v1/releases").json()["items"]] == [id]
        other = owner.post("/v1/releases", json=words(dataset, epsilon=0.25), headers=headers)
        refused(other, "idempotency-conflict")
        held.opened.set()
        told(owner, id)
        assert owner.post("/v1/releases", json=words(dataset), headers=headers).content == replies[0].content


class TestCancel:
    def test_before_and_after_the_noise(self, service: Service, held: Gate) -> None:
        """Catches a release that is cancelled with its noise drawn, and a share that does not return."""
        owner, dataset = service.principal("analyst"), people(service)
        # Two are worked on at a time: one of any kind, and a quick one.
        first, other = (ask(owner, dataset, epsilon=epsilon)["id"] for epsilon in (0.2, 0.1))
        deadline = time.monotonic() + patience(30)
        while any(owner.get(f"/v1/releases/{id}").json()["step"] != "measuring" for id in (first, other)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        second = ask(owner, dataset, epsilon=0.7)["id"]
        refused(owner.post("/v1/releases", json=words(dataset, epsilon=0.1)), "budget-exhausted")
        refused(owner.get(f"/v1/releases/{second}/data"), "conflict")
        refused(owner.delete(f"/v1/releases/{first}"), "conflict")
        cancelled = owner.delete(f"/v1/releases/{second}")
        assert cancelled.status_code == 200
        assert (cancelled.json()["status"], cancelled.json()["cost"]["spent"]) == ("cancelled", "0")
        assert told(owner, second) == [("end", cancelled.json())]
        refused(owner.delete(f"/v1/releases/{second}"), "conflict")
        refused(owner.get(f"/v1/releases/{second}/data"), "conflict")
        left = owner.get(f"/v1/datasets/{dataset}").json()["budget"]["remaining_epsilon"]
        assert left == pytest.approx(0.7, abs=1e-3)
        held.opened.set()
        assert told(owner, first)[-1][1]["status"] == "done"


class TestPlans:
    def test_times_are_foretold(self, service: Service, done: tuple[httpx.Client, JSON]) -> None:
        """Catches a method of which nobody knows how long it takes, and a release that says another time than its
        plan.
        """
        owner, state = done
        asked = {"dataset": state["dataset"], "workload": state["workload"], "epsilon": 0.5}
        ways = owner.post("/v1/plans", json=asked).json()["methods"]
        times = {way["method"]: way["expected_seconds"] for way in ways if "plan" in way and "method" in way}
        assert state["expected_seconds"] == times["gaussian"]
        assert set(times) == {
            "histogram",
            "gaussian",
            "projection",
            "factorization",
            "synthetic_table",
            "iterative_construction",
        }
        assert all(0 < seconds < 60 for seconds in times.values())

    def test_every_role_may_plan(self, service: Service) -> None:
        """Where access is by grant, too: a plan follows from the descriptor, which everybody may read; whoever has no
        grant is told that he cannot open it. Catches a plan that tells some more than others, and one that opens what
        needs a grant.
        """
        dataset = people(service, access="granted")
        stranger, auditor = service.principal("analyst"), service.principal("auditor")
        for asked in (
            {"dataset": dataset, "workload": {"marginals": 1}, "epsilon": 0.5},
            {"dataset": dataset, "epsilon": 0.5, "mechanism": {"construction": "gaussian"}, "max_queries": 3},
        ):
            replies = [who.post("/v1/plans", json=asked) for who in (service.admin, stranger, auditor)]
            assert {reply.status_code for reply in replies} == {200}
            plans = [reply.json() for reply in replies]
            notes = [plan.pop("note") for plan in plans]
            assert plans[0] == plans[1] == plans[2]
            assert [note is not None for note in notes] == [False, True, False]
        assert stranger.get(f"/v1/datasets/{dataset}").content == auditor.get(f"/v1/datasets/{dataset}").content
        refused(stranger.post("/v1/releases", json=words(dataset)), "forbidden")
        refused(auditor.post("/v1/releases", json=words(dataset)), "forbidden")
        refused(stranger.get(f"/v1/datasets/{dataset}/measurements"), "forbidden")


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "problem", "says"),
        [
            ({"flavour": 1}, "invalid-request", "flavour"),
            ({"method": "magic"}, "invalid-request", "method"),
            ({"epsilon": "0.5"}, "invalid-request", "epsilon"),
            ({"epsilon": 0}, "invalid-request", "epsilon"),
            ({"workload": {}}, "invalid-request", "workload"),
            ({"workload": {"marginals": 1, "cuts": "all"}}, "invalid-request", "give one of"),
            ({"workload": {"marginals": 0}}, "invalid-request", "marginals"),
            ({"workload": {"queries": []}}, "invalid-request", "queries"),
            ({"workload": {"attributes": ["sex"]}}, "invalid-request", "workload"),
            ({"workload": {"marginals": 1, "attributes": ["height"]}}, "plan-infeasible", "height"),
            ({"workload": {"cuts": "all"}}, "plan-infeasible", "table"),
            ({"workload": {"ranges": "height"}}, "plan-infeasible", "height"),
            ({"epsilon": 900}, "budget-exhausted", ""),
            ({"dataset": "nobodys"}, "not-found", "data set"),
        ],
    )
    def test_is_refused_in_words(self, service: Service, changes: JSON, problem: str, says: str) -> None:
        """Catches a request that is taken, a server error, and a refusal that does not name what is wrong."""
        dataset = people(service)
        before = service.rows("releases")
        told = refused(service.admin.post("/v1/releases", json={**words(dataset), **changes}), problem)
        assert says in told["detail"]
        assert service.rows("releases") == before

    def test_a_table_of_another_kind(self, service: Service) -> None:
        spec = {"kind": "graph", "nodes": 4, "name": unique("graph"), "budget": {"epsilon": 1.0, "delta": 1e-6}}
        assert register(service.admin, spec, b"0 1\n1 2\n", "g.txt").status_code == 201
        refused(service.admin.post("/v1/releases", json=words(spec["name"])), "plan-infeasible")

    @pytest.mark.parametrize("path", ["/v1/sessions", "/v1/plans"])
    def test_as_a_session(self, service: Service, path: str) -> None:
        """Catches a way around the queue, and a plan of a session that cannot be opened."""
        workload = {"method": "gaussian", "workload": {"marginals": 1}, "options": {}}
        mechanism = {"construction": "workload", **workload}
        words = {"dataset": people(service), "epsilon": 0.1, "max_queries": 1}
        told = refused(service.admin.post(path, json={**words, "mechanism": mechanism}), "invalid-request")
        assert "/v1/releases" in told["detail"]
        if path == "/v1/plans":
            told = refused(service.admin.post(path, json={**words, "mechanisms": [mechanism]}), "invalid-request")
            assert "/v1/releases" in told["detail"]

    def test_not_an_object(self, service: Service) -> None:
        for body in (b"[]", b"{", b"null", b""):
            reply = service.admin.post("/v1/releases", content=body, headers={"Content-Type": "application/json"})
            refused(reply, "invalid-request")


class TestStreams:
    def test_there_are_only_so_many(self, service: Service, held: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches streams that are counted for good, or for everybody together."""
        monkeypatch.setattr(streams, "MOST_EACH", 2)
        owner, other = service.principal("analyst"), service.principal("analyst")
        id, his = ask(owner, people(service))["id"], ask(other, people(service))["id"]
        with contextlib.ExitStack() as stack:
            heard = []  # what is no longer referred to is closed
            for _ in range(2):
                reply = stack.enter_context(owner.stream("GET", f"/v1/releases/{id}/events"))
                assert reply.status_code == 200
                heard.append(reply.iter_bytes())
                assert next(heard[-1])
            refused(owner.get(f"/v1/releases/{id}/events"), "too-many-requests")
            with other.stream("GET", f"/v1/releases/{his}/events") as reply:
                assert reply.status_code == 200
        deadline = time.monotonic() + patience(30)
        while True:  # the server notices after a moment that they are gone
            with owner.stream("GET", f"/v1/releases/{id}/events") as reply:
                if reply.status_code == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        held.opened.set()
        for client, each in ((owner, id), (other, his)):
            assert told(client, each)[-1][1]["status"] == "done"

    @pytest.mark.parametrize("how", ["revoked", "rotated"])
    def test_it_ends_with_the_key(self, service: Service, held: Gate, how: str) -> None:
        """Catches who goes on hearing of a release when he has no key any more, and another's stream that ends too."""
        name = unique("leaving")
        leaving, other = service.principal("analyst", name), service.principal("analyst")
        streams = [f"/v1/releases/{ask(who, people(service))['id']}/events" for who in (leaving, other)]
        with leaving.stream("GET", streams[0]) as ended, other.stream("GET", streams[1]) as goes_on:
            heard = goes_on.iter_bytes()
            assert next(heard)
            gone = ended.iter_bytes()
            assert next(gone)
            if how == "revoked":
                assert service.admin.delete(f"/v1/principals/{name}").status_code == 204
            else:
                assert service.admin.post(f"/v1/principals/{name}/key").status_code == 200
            assert not any(b"event: end" in part for part in gone), "it ended before the release did"
            held.opened.set()
            assert any(b"event: end" in part for part in heard)
        refused(leaving.get(streams[0]), "unauthenticated")

    def test_one_hears_that_it_lives(self, service: Service, held: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a quiet stream that whatever lies between takes for dead, and one that a proxy holds back."""
        monkeypatch.setattr(routes, "QUIET_LOOKS", 1)
        owner = service.principal("analyst")
        id = ask(owner, people(service))["id"]
        with owner.stream("GET", f"/v1/releases/{id}/events") as reply:
            assert reply.headers["x-accel-buffering"] == "no"
            assert reply.headers["cache-control"] == "no-store"
            assert any(b": still here" in part for part in reply.iter_bytes())
        held.opened.set()
        told(owner, id)


def test_the_end_of_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A stream is open, one release has its noise in hand and another waits. Catches a server that waits for its
    streams until the time to drain is over, work that is lost, and a release that is charged twice; all of it goes on
    after the next start.
    """
    folder, noise, gate = tmp_path_factory.mktemp("ending"), Noise(), Gate()
    noise.draw = gate
    with serving(folder, noise=noise) as first, gate.shut():
        dataset = people(first)
        id = ask(first.admin, dataset, key="k")["id"]
        assert gate.entered.wait(30)
        later = ask(first.admin, dataset, epsilon=0.2)["id"]
        heard: list[bytes] = []
        begun = threading.Event()

        def follow() -> None:
            with first.caller(first.admin_key).stream("GET", f"/v1/releases/{id}/events") as reply:
                for part in reply.iter_bytes():
                    heard.append(part)
                    begun.set()

        listening = threading.Thread(target=follow)
        listening.start()
        assert begun.wait(30)
        first._server.should_exit = True
        listening.join(10)
        assert not listening.is_alive()
        assert b"event: end" not in b"".join(heard)
        gate.opened.set()
        first.stop()
    with serving(folder, noise=noise) as second:
        for each in (id, later):
            assert told(second.admin, each)[-1][1]["status"] == "done"
        ledger = second.admin.get(f"/v1/datasets/{dataset}/ledger").json()["entries"]
        kinds = [entry["kind"] for entry in ledger if entry["session"] == id]
        assert kinds == ["reserve", "charge", "return"]
        assert ask(second.admin, dataset, key="k")["id"] == id
