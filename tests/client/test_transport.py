"""How the client behaves on the wire: what it repeats, with which key, and how it reads refusals.

The other end is a scripted HTTP server on a real socket, because what is tested is the behaviour on a
connection: resets, truncated bodies, refused ports. What the service itself answers is tested against the
service.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from curator_client import (
    AsyncCurator,
    BatchFailed,
    BudgetExhausted,
    Curator,
    CuratorError,
    ProtocolError,
    Refused,
    Session,
    Unreachable,
    blocks,
    by,
    degrees,
    dense,
    question,
    where,
)
from curator_client._sync.http import retry_after
from curator_client._sync.waiting import Lock
from tests.kit.awaited import awaited
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

PLAN = {
    "noise": "laplace",
    "noise_scale": 10.0,
    "threshold": 20.0,
    "error_bound": 30.0,
    "beta": 0.05,
    "max_updates": 5,
    "max_queries": 100,
    "guaranteed": False,
    "step_size": 0.1,
    "epsilon": "0.5",
    "epsilon_alone": 0.25,
    "delta": "1e-9",
    "calibration": "rdp",
    "regime": "renyi",
}
SESSION = {"id": "s1", "dataset": "d", "mechanism": {"construction": "mw"}, "plan": PLAN, "status": "open"}
ANSWER = {
    "sequence": 1,
    "value": 12.5,
    "source": "hypothesis",
    "error_bound": 30.0,
    "beta": 0.05,
    "standard_error": None,
    "interval": None,
    "interval_kind": None,
    "confidence": None,
    "charged_epsilon": 0.0,
    "updates_used": 0,
    "updates_left": 5,
    "queries_left": 99,
    "entry_hash": "00",
}
SUM = {"spent_epsilon": 0, "reserved_epsilon": 0, "remaining_epsilon": 1}
BUDGET = {"epsilon": 1, "delta": 1e-9, "regime": "pure", **SUM, "renyi": SUM, "pure": SUM, "impure": False}
DATASET = {
    "name": "d",
    "kind": "table",
    "domain": {"attributes": []},
    "privacy_unit": "one record added or removed",
    "status": "registered",
    "budget": BUDGET,
}


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Script:
    """Replies to give, one a request, and the requests that came."""

    url: str
    replies: list[Reply] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    #: By request the other end of its connection.
    ports: list[int] = field(default_factory=list)

    def idempotency_keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.seen]


def say(status: int, body: object = None, **headers: str) -> Reply:
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return reply


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a reply: what a client sees when the service dies after reading the
    request.
    """
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def break_off(content: bytes) -> Reply:
    """Announce a body and close the connection in the middle of it."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.wfile.flush()
        hang_up(handler)

    return reply


@pytest.fixture
def script() -> Iterator[Script]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            scripted.ports.append(self.client_address[1])
            scripted.seen.append(Seen(self.command, self.path, headers, body))
            scripted.replies.pop(0)(self)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scripted = Script(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield scripted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=[Curator, awaited], ids=["blocking", "awaited"])
def calling(request: pytest.FixtureRequest) -> Callable[..., Curator]:
    """What makes a client, of either kind."""
    made: Callable[..., Curator] = request.param
    return made


@pytest.fixture
def curator(script: Script, calling: Callable[..., Curator]) -> Iterator[Curator]:
    with calling(script.url, "the-key", timeout=5, retry_for=10) as client:
        yield client


@pytest.fixture
def session(script: Script, curator: Curator) -> Session:
    script.replies = [say(201, SESSION)]
    opened = curator.session("d", mechanism={"construction": "mw"}, epsilon=0.5, max_queries=9, max_updates=5)
    script.seen.clear()
    return opened


class TestIdempotency:
    def test_a_lost_reply_is_asked_for_again_with_the_same_key(self, script: Script, session: Session) -> None:
        """Another key would be another query: charged twice, with two noises."""
        script.replies = [hang_up, hang_up, say(200, ANSWER)]
        assert session.ask(where(sex=1).count()) == 12.5
        first, *rest = script.idempotency_keys()
        assert first
        assert rest == [first, first]
        assert len({request.body for request in script.seen}) == 1

    def test_a_body_broken_off_is_asked_for_again_with_the_same_key(self, script: Script, session: Session) -> None:
        """A connection may break after the status line: the reply is then as lost as if none had come."""
        script.replies = [break_off(json.dumps(ANSWER).encode()), say(200, ANSWER)]
        assert session.ask(where(sex=1).count()) == 12.5
        assert len(set(script.idempotency_keys())) == 1

    def test_each_logical_call_has_its_own_key(self, script: Script, session: Session) -> None:
        """One key for two queries would answer the second with the first one's answer."""
        script.replies = [say(200, ANSWER)] * 3 + [say(200, {"answers": [ANSWER]}), say(200, SESSION)]
        for _ in range(3):
            session.ask(where(sex=1).count())
        session.ask_many([where(sex=1).count()])
        session.close()
        assert None not in script.idempotency_keys()
        assert len(set(script.idempotency_keys())) == 5

    def test_a_key_given_is_the_key_sent(self, script: Script, session: Session) -> None:
        script.replies = [say(200, ANSWER)]
        session.ask(where(sex=1).count(), key="mine")
        assert script.idempotency_keys() == ["mine"]

    def test_a_call_without_a_key_is_not_repeated_once_it_was_sent(self, script: Script, curator: Curator) -> None:
        """A principal added twice would be a conflict, its only key lost: the caller has to look."""
        script.replies = [hang_up, say(201, {"name": "ann", "role": "analyst", "api_key": "k"})]
        with pytest.raises(Unreachable):
            curator.add_principal("ann", "analyst")
        assert len(script.seen) == 1

    def test_a_call_without_a_key_is_repeated_when_it_was_not_carried_out(
        self, script: Script, curator: Curator
    ) -> None:
        script.replies = [
            say(503, {"type": "/problems/unavailable"}, Retry_After="0"),
            say(201, {"name": "ann", "role": "analyst", "api_key": "k"}),
        ]
        assert curator.add_principal("ann", "analyst") == "k"

    def test_an_upload_is_sent_whole_again(self, script: Script, curator: Curator, tmp_path: Path) -> None:
        """A file read to its end by the first try would make the second one empty."""
        file = tmp_path / "people.csv"
        file.write_text("sex\n0\n1\n")
        script.replies = [say(503, Retry_After="0"), say(201, DATASET)]
        curator.register({"name": "d", "kind": "table"}, file)
        assert all(b"sex\n0\n1\n" in request.body for request in script.seen)
        assert all(b'filename="people.csv"' in request.body for request in script.seen)


class TestRetries:
    @pytest.mark.slow
    def test_retry_after_is_honoured(self, script: Script, session: Session) -> None:
        script.replies = [say(503, Retry_After="1"), say(200, ANSWER)]
        start = time.monotonic()
        session.ask(where(sex=1).count())
        assert time.monotonic() - start >= 1.0
        assert len(set(script.idempotency_keys())) == 1

    def test_too_many_requests_waits_too(self, script: Script, session: Session) -> None:
        script.replies = [
            say(429, {"type": "/problems/too-many-requests"}, Retry_After="0"),
            say(200, ANSWER),
        ]
        assert session.ask(where(sex=1).count()).sequence == 1

    def test_a_wait_longer_than_the_time_left_is_told_at_once(
        self, script: Script, calling: Callable[..., Curator]
    ) -> None:
        """Sleeping through a wait that cannot help would only hide the refusal."""
        script.replies = [say(503, {"type": "/problems/unavailable", "detail": "draining"}, Retry_After="3600")]
        start = time.monotonic()
        with calling(script.url, "k", retry_for=30) as curator, pytest.raises(Refused, match="draining"):
            curator.datasets()
        assert time.monotonic() - start < patience(20)

    def test_a_service_that_stays_away_is_unreachable(self, calling: Callable[..., Curator]) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            with calling(url, "k", retry_for=0.5) as curator, pytest.raises(Unreachable, match="no reply"):
                curator.datasets()

    def test_other_refusals_are_not_repeated(self, script: Script, session: Session) -> None:
        script.replies = [say(409, {"type": "/problems/session-closed", "title": "Session closed"})]
        with pytest.raises(Refused) as raised:
            session.ask(where(sex=1).count())
        assert raised.value.type == "session-closed"
        assert len(script.seen) == 1

    @pytest.mark.parametrize(("header", "seconds"), [("0", 0), ("7", 7), ("-3", 0)])
    def test_retry_after_as_a_number(self, header: str, seconds: float) -> None:
        assert retry_after(httpx.Response(503, headers={"Retry-After": header})) == seconds

    @pytest.mark.parametrize(("ahead", "low", "high"), [(90, 60, 90), (-90, 0, 0)])
    def test_retry_after_as_a_date(self, ahead: float, low: float, high: float) -> None:
        """RFC 9110, 10.2.3 has both forms; a moment that has passed means now."""
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)
        seconds = retry_after(httpx.Response(503, headers={"Retry-After": header}))
        assert seconds is not None
        assert low <= seconds <= high

    @pytest.mark.parametrize("header", ["soon", "", "Nov 20"])
    def test_an_unreadable_retry_after_is_none(self, header: str) -> None:
        assert retry_after(httpx.Response(503, headers={"Retry-After": header})) is None


class TestProblems:
    def test_every_member_is_kept(self, script: Script, curator: Curator) -> None:
        script.replies = [
            say(
                409,
                {
                    "type": "/problems/budget-exhausted",
                    "title": "Budget exhausted",
                    "status": 409,
                    "detail": "0.2 is left",
                    "requested": "0.5",
                    "remaining": "0.2",
                },
                Content_Type="application/problem+json",
            )
        ]
        with pytest.raises(Refused) as raised:
            curator.session("d", mechanism={"construction": "mw"}, epsilon=0.5, max_queries=9)
        problem = raised.value
        assert (problem.type, problem.title, problem.status) == ("budget-exhausted", "Budget exhausted", 409)
        assert problem.extra == {"requested": "0.5", "remaining": "0.2"}
        assert isinstance(problem, BudgetExhausted)
        assert (problem.requested, problem.remaining) == (0.5, 0.2)
        assert "0.2 is left" in str(problem)

    @pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[1]", b"\xff\xfe"])
    def test_a_refusal_in_another_form_still_is_a_problem(self, script: Script, curator: Curator, body: bytes) -> None:
        """A proxy in between answers in its own form."""
        script.replies = [say(502, body)]
        with pytest.raises(Refused) as raised:
            curator.datasets()
        assert raised.value.status == 502

    @pytest.mark.parametrize("body", [b"not json", b"[]", b"{}", b'{"items": 3}'])
    def test_a_success_in_another_form_is_named(self, script: Script, curator: Curator, body: bytes) -> None:
        script.replies = [say(200, body)]
        with pytest.raises(ProtocolError):
            curator.datasets()

    @pytest.mark.parametrize(
        "following", ["http://elsewhere/v1/datasets?after=a", "//elsewhere/x?", "/v1/sessions?", 3]
    )
    def test_a_next_page_of_something_else_is_not_asked_for(
        self, script: Script, curator: Curator, following: object
    ) -> None:
        """Catches a key that is sent wherever a reply says."""
        script.replies = [say(200, {"items": [], "next": following})]
        with pytest.raises(ProtocolError):
            curator.datasets()
        assert len(script.seen) == 1

    def test_a_refused_query_of_a_batch_is_a_problem_in_its_place(self, script: Script, session: Session) -> None:
        refusal = {"type": "/problems/invalid-query", "title": "Invalid query", "status": 422, "detail": "no"}
        script.replies = [say(200, {"answers": [ANSWER, refusal, {**ANSWER, "sequence": 2}]})]
        asked = [where(a=1).count(), where(b=1).count(), where(c=1).count()]
        first, second, third = session.ask_many(asked, on_error="return")
        assert not isinstance(first, Refused)
        assert isinstance(second, Refused)
        assert (second.type, second.status) == ("invalid-query", 422)
        assert not isinstance(third, Refused)
        assert third.sequence == 2

    def test_a_refusal_is_raised_with_what_was_paid_for(self, script: Script, session: Session) -> None:
        """Catches answers that are charged and lost, and a refusal that nobody sees."""
        refusal = {"type": "/problems/invalid-query", "title": "Invalid query", "status": 422, "detail": "no"}
        script.replies = [say(200, {"answers": [ANSWER]}), say(200, {"answers": [refusal]})]
        with pytest.raises(BatchFailed, match="1 of 2") as failed:
            session.ask_many([where(a=1).count(), where(b=1).count()], batch_size=1)
        first, second = failed.value.results
        assert first == 12.5
        assert isinstance(second, Refused)

    def test_a_batch_with_too_few_answers_is_refused(self, script: Script, session: Session) -> None:
        """Zipping answers to queries silently would give the wrong answers to the rest."""
        script.replies = [say(200, {"answers": [ANSWER]})]
        with pytest.raises(ProtocolError):
            session.ask_many([where(a=1).count(), where(b=1).count()])


class TestWhatIsSent:
    def test_the_key_of_the_caller(self, script: Script, curator: Curator) -> None:
        script.replies = [say(200, {"items": []})]
        curator.datasets()
        assert script.seen[0].headers["authorization"] == "Bearer the-key"

    def test_options_left_out_are_not_sent(self, script: Script, curator: Curator) -> None:
        """`null` is not "your default": the contract's defaults hold only for what is absent."""
        script.replies = [say(201, SESSION)]
        curator.session("d", mechanism={"construction": "fk"}, epsilon=0.5, max_queries=9, max_updates=None, beta=0.05)
        assert json.loads(script.seen[0].body) == {
            "dataset": "d",
            "mechanism": {"construction": "fk"},
            "epsilon": 0.5,
            "max_queries": 9,
            "beta": 0.05,
        }

    def test_a_batch_is_cut_into_calls_in_order(self, script: Script, session: Session) -> None:
        script.replies = [
            say(200, {"answers": [{**ANSWER, "sequence": i} for i in part]}) for part in ([1, 2], [3, 4], [5])
        ]
        done: list[int] = []
        answers = session.ask_many(
            (where(a=i).count() for i in range(5)), batch_size=2, progress=lambda count, _: done.append(count)
        )
        assert [a.sequence for a in answers if not isinstance(a, Refused)] == [1, 2, 3, 4, 5]
        assert done == [2, 4, 5]
        sent = [query["where"]["a"]["equals"] for r in script.seen for query in json.loads(r.body)["queries"]]
        assert sent == [0, 1, 2, 3, 4]

    def test_a_dense_query_is_an_npy_body(self, script: Script, session: Session) -> None:
        script.replies = [say(200, ANSWER)]
        session.ask(dense([[1, 0], [0, -1]]))
        assert script.seen[0].headers["content-type"] == "application/x-npy"
        sent = np.load(io.BytesIO(script.seen[0].body), allow_pickle=False)
        np.testing.assert_array_equal(sent, [[1, 0], [0, -1]])

    def test_what_is_wanted_stands_beside_the_question(self, script: Script, session: Session) -> None:
        """In the body of JSON, in the address of an array; what is left to the session is not sent."""
        script.replies = [say(200, ANSWER)] * 3
        session.ask(where(a=1).count(), within=50, confidence=0.9, adaptive=True)
        session.ask(where(a=1).count(), within=0.5)
        session.ask(dense([1]), confidence=0.5, adaptive=True)
        asked = {"type": "predicate", "where": {"a": {"equals": 1}}}
        first, second = (json.loads(r.body) for r in script.seen[:2])
        assert first == asked | {"within": 50, "confidence": 0.9, "adaptive": True}
        assert second == asked | {"within": 0.5}
        assert script.seen[2].path.endswith("/queries?confidence=0.5&adaptive=true")

    def test_tables_are_asked_for_as_tables(self, script: Script, session: Session) -> None:
        """Of a reply that does not fit what was asked it is said so. Would catch a table taken for a number."""
        table = {k: v for k, v in ANSWER.items() if k not in ("value", "standard_error", "interval")} | {
            "axes": [{"attribute": "a", "labels": [0, 1]}],
            "values": [1.0, 2.0],
            "standard_errors": [0.5, 0.5],
            "intervals": None,
        }
        script.replies = [say(200, table), say(200, table), say(200, ANSWER), *[say(200, table)] * 3]
        found = session.group_by("a", bins={"a": [0, 2, 4]}, where=where(b=1), within=5)
        asked = {"type": "marginal", "attributes": ["a"], "bins": {"a": [0, 2, 4]}, "where": {"b": {"equals": 1}}}
        assert json.loads(script.seen[0].body) == asked | {"within": 5}
        assert [(row.labels, float(row.value)) for row in found] == [((0,), 1.0), ((1,), 2.0)]
        assert [float(row.value) for row in session.ask(by("a").count())] == [1.0, 2.0]
        assert json.loads(script.seen[1].body) == by("a").count().json
        with pytest.raises(ProtocolError, match="a number where a table"):
            session.group_by("a")
        with pytest.raises(ProtocolError, match="a table in place"):
            session.count(a=1)
        assert [float(row.value) for row in session.blocks({"a": [0], "b": [1]}, only="within")] == [1.0, 2.0]
        assert json.loads(script.seen[4].body) == blocks({"a": [0], "b": [1]}, only="within").json
        assert [float(row.value) for row in session.degrees("in", bins=[0, 1])] == [1.0, 2.0]
        assert json.loads(script.seen[5].body) == degrees("in", bins=[0, 1]).json

    def test_names_are_one_segment_of_the_path(self, script: Script, curator: Curator) -> None:
        """A name with a slash or a question mark must not reach another route."""
        script.replies = [say(404, {"type": "/problems/not-found"})]
        with pytest.raises(Refused):
            curator.dataset("../principals/x?y")
        assert script.seen[0].path == "/v1/datasets/..%2Fprincipals%2Fx%3Fy"

    def test_weights_that_are_no_numbers_never_leave(self, script: Script, session: Session) -> None:
        with pytest.raises(ValueError, match="nan is no value"):
            session.ask(question({"type": "product", "weights": {"a": [float("nan")]}}))
        assert script.seen == []


class TestAnyRoute:
    def test_a_call(self, script: Script, curator: Curator) -> None:
        """Catches a body that is not sent, a key that is not, and one that is tried again without."""
        script.replies = [say(200, {"a": 1}), hang_up, say(200, {"b": 2}), say(204), say(200, [1]), hang_up]
        assert curator.call("GET", "/v1/new?x=1") == {"a": 1}
        assert script.seen[0].path == "/v1/new?x=1"
        assert curator.call("POST", "/v1/new", {"c": 3}, key="mine") == {"b": 2}
        assert script.idempotency_keys()[1:] == ["mine", "mine"]
        assert json.loads(script.seen[-1].body) == {"c": 3}
        assert curator.call("DELETE", "/v1/new") == {}
        with pytest.raises(ProtocolError, match="no object"):
            curator.call("GET", "/v1/new")
        with pytest.raises(Unreachable):
            curator.call("POST", "/v1/new", {})

    @pytest.mark.parametrize("path", ["//elsewhere/v1", "http://elsewhere/v1", "v1", "@elsewhere", ""])
    def test_the_key_goes_nowhere_else(self, script: Script, curator: Curator, path: str) -> None:
        """Catches a path that is taken for an address."""
        with pytest.raises(ValueError, match="slash"):
            curator.call("GET", path)
        assert script.seen == []


class TestTranscript:
    def test_appears_only_when_whole(self, script: Script, session: Session, tmp_path: Path) -> None:
        """Half a transcript under its final name would be taken for a forged one."""
        content = b'{"record":"header"}\n' * 5000
        target = tmp_path / "t.ndjson"
        script.replies = [break_off(content), say(200, content)]
        assert session.transcript(target) == target
        assert target.read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["t.ndjson"]

    def test_nothing_remains_of_a_refusal(self, script: Script, session: Session, tmp_path: Path) -> None:
        script.replies = [say(404, {"type": "/problems/not-found"})]
        with pytest.raises(Refused):
            session.transcript(tmp_path / "t.ndjson")
        assert list(tmp_path.iterdir()) == []


class TestPlaces:
    """Processes, loops and clients that were closed."""

    def test_a_process_that_was_forked_has_connections_of_its_own(self, script: Script) -> None:
        """Would catch replies that come to whichever process reads first: answers to other people's questions."""
        script.replies = [say(200, {"items": [DATASET]}) for _ in range(3)]
        with Curator(script.url, "the-key", timeout=5, retry_for=0) as curator:
            curator.datasets()
            child = os.fork()
            if child == 0:
                try:
                    os._exit(len(curator.datasets()))
                finally:
                    os._exit(77)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            curator.datasets()
        first, other, again = script.ports
        assert first == again != other

    def test_a_lock_that_another_process_holds_keeps_nobody(self) -> None:
        """Would catch a child that waits for ever for a question that its parent was asking when it was forked."""
        lock = Lock()
        with lock:
            child = os.fork()
            if child == 0:
                os._exit(not lock.acquire(timeout=1))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert lock.locked()

    def test_a_client_serves_one_loop_after_another(self, script: Script) -> None:
        """Would catch connections that belong to a loop that has ended."""
        script.replies = [say(200, {"items": [DATASET]}) for _ in range(2)]
        curator = AsyncCurator(script.url, "the-key", timeout=5, retry_for=0)
        assert [len(asyncio.run(curator.datasets())) for _ in range(2)] == [1, 1]

    def test_a_client_that_was_closed_says_so(self, script: Script, calling: Callable[..., Curator]) -> None:
        """Would catch an error of the library below, which names no way out."""
        curator = calling(script.url, "the-key")
        curator.close()
        with pytest.raises(Unreachable, match="make another"):
            curator.datasets()


class TestKeys:
    """What no header has is refused before anything is sent, and not told."""

    @pytest.mark.parametrize("key", ["secret\nkey", "secret\x00key", "sécret", " ", ""])
    def test_keys_that_cannot_be_sent(self, script: Script, calling: Callable[..., Curator], key: str) -> None:
        """Would catch a key in the words of an error, and so in logs; and one of nobody for which another's is used."""
        with pytest.raises(ValueError, match="the key has one or more printable") as refused:
            calling(script.url, key)
        assert "cret" not in str(refused.value)

    def test_the_end_of_the_line_is_no_part_of_a_key(self, script: Script, calling: Callable[..., Curator]) -> None:
        """As of a file that a command wrote."""
        script.replies = [say(200, {"items": []})]
        with calling(script.url, "the-key\r\n") as curator:
            curator.datasets()
        assert script.seen[0].headers["authorization"] == "Bearer the-key"

    def test_an_idempotency_key_that_cannot_be_sent(self, session: Session) -> None:
        """Would catch a call that is tried for a minute."""
        with pytest.raises(ValueError, match="an idempotency key"):
            session.ask(where(sex=1).count(), key="a\nb")

    def test_an_address_without_a_protocol_is_not_tried_again(self, calling: Callable[..., Curator]) -> None:
        """Would catch a minute of tries."""
        began = time.monotonic()
        with calling("127.0.0.1:9", "the-key", retry_for=60) as curator, pytest.raises(Unreachable, match="http://"):
            curator.datasets()
        assert time.monotonic() - began < patience(10)


class TestManyQuestions:
    """Batches between which the service is lost."""

    def test_answers_before_a_batch_that_is_lost_are_kept(self, script: Script, session: Session) -> None:
        """They are paid for. Would catch an error that drops them."""
        script.replies = [say(200, {"answers": [ANSWER]}), say(500, b"")]
        with pytest.raises(CuratorError) as lost:
            session.ask_many([where(a=n).count() for n in range(3)], batch_size=1)
        assert [float(each) for each in lost.value.results] == [12.5]  # type: ignore[arg-type]

    def test_all_of_it_is_asked_again_under_one_key(self, script: Script, session: Session) -> None:
        """Would catch batches that share a key, and ones that are charged anew."""
        asked = [where(a=n).count() for n in range(3)]
        for _ in range(2):
            script.replies = [say(200, {"answers": [ANSWER] * n}) for n in (2, 1)]
            session.ask_many(asked, batch_size=2, key="mine")
        assert script.idempotency_keys() == ["mine-0", "mine-2"] * 2
