"""The ways of a query, of an upload and of a release are those of docs/architecture.md."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import httpx
import pytest

from app.bootstrap import reader_process, release_worker
from app.declarations.spec import parse_spec
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.released import released
from tests.kit.service import Service, serving

pytestmark = pytest.mark.integration

#: A row of a way: its number or letter, the file, the function.
_ROW = re.compile(r"^\| (\w+) \| `([\w/.]+)` \| `([\w.]+)` \|", re.MULTILINE)
_SPEC = {
    "kind": "table",
    "records_public": True,
    "attributes": [{"name": "sex", "size": 2}],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}


class Calls:
    """The functions of the service that are called in a thread which begins while this is entered, in their order."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self._seen: list[tuple[str, str]] | None = None

    def __enter__(self) -> Calls:
        threading.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        seen, code = self._seen, frame.f_code
        if event == "call" and seen is not None and code.co_filename.startswith(self._root):
            function = code.co_qualname.rpartition("<locals>.")[2]
            seen.append((code.co_filename.removeprefix(self._root), function))

    def of(
        self, request: Callable[[], httpx.Response], until: Callable[[], object] = lambda: None
    ) -> list[tuple[str, str]]:
        """The calls that a request leads to, until its reply is there and ``until`` returns."""
        self._seen = seen = []
        reply = request()
        until()
        self._seen = None
        assert reply.is_success, reply.text
        return seen


def rows(root: Path, title: str) -> dict[str, tuple[str, str]]:
    """The rows of a way by their numbers and letters: file and function."""
    text = (root / "docs" / "architecture.md").read_text()
    _, _, section = text.partition(f"\n## {title}\n")
    return {mark: (file, function) for mark, file, function in _ROW.findall(section.partition("\n## ")[0])}


def follow(way: Sequence[tuple[str, str]], calls: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of a way is left when its steps are looked for among the calls, one behind the other."""
    left = list(way)
    for call in calls:
        if left and call == left[0]:
            del left[0]
    return left


@pytest.fixture(scope="module")
def noise() -> Noise:
    return Noise()


@pytest.fixture(scope="module")
def calls(root: Path) -> Iterator[Calls]:
    with Calls(root) as calls:
        yield calls


@pytest.fixture(scope="module")
def service(calls: Calls, noise: Noise, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("ways"), noise=noise) as running:
        yield running


def upload(service: Service, name: str) -> httpx.Response:
    files = {"data": ("people.csv", "sex\n" + "0\n1\n" * 500)}
    return service.admin.post("/v1/datasets", files=files, data={"spec": json.dumps({"name": name, **_SPEC})})


def test_query(root: Path, calls: Calls, service: Service, noise: Noise) -> None:
    """Catches a step that was added, moved or renamed while the document tells the way as it was, and an answer that
    was given before and takes memory or noise all the same.
    """
    way = rows(root, "The way of a query")
    assert [mark for mark in way if mark.isdigit()] == [str(n) for n in range(1, len(way) - len("abcdefgh") + 1)]
    assert [mark for mark in way if mark.isalpha()] == [*"abcdefgh"]
    upload(service, "asked").raise_for_status()
    mechanism = {"construction": "mw"}
    terms = {"dataset": "asked", "mechanism": mechanism, "epsilon": 0.5, "max_queries": 10, "max_updates": 3}
    id = service.admin.post("/v1/sessions", json=terms).json()["id"]

    def ask(value: int) -> list[tuple[str, str]]:
        query = {"type": "predicate", "where": {"sex": {"equals": value}}}
        return calls.of(lambda: service.admin.post(f"/v1/sessions/{id}/queries", json=query))

    miss = ask(0)
    assert follow([step for mark, step in way.items() if mark != "h"], miss) == []
    assert way["h"] not in miss
    noise.draw = lambda _scale: 10**9
    assert follow([*way.values()], ask(1)) == []
    again = ask(0)
    assert follow([step for mark, step in way.items() if mark not in "cdeh"], again) == []
    assert not {way[mark] for mark in "cdeh"} & set(again)


def test_upload(root: Path, calls: Calls, service: Service, tmp_path: Path) -> None:
    """Catches a step that was added, moved or renamed while the document tells the way as it was."""
    way = rows(root, "The way of an upload")
    letters = [mark for mark in way if mark.isalpha()]
    assert letters == [*"abcd"]
    assert [mark for mark in way if mark.isdigit()] == [str(n) for n in range(1, len(way) - len(letters) + 1)]
    assert follow([way[mark] for mark in way if mark.isdigit()], calls.of(lambda: upload(service, "followed"))) == []

    def elsewhere() -> httpx.Response:
        """What the process does, in a thread that is watched."""
        (tmp_path / "people.csv").write_text("sex\n0\n1\n")
        spec = parse_spec({"name": "followed", **_SPEC})
        arguments = "read_private", tmp_path / "people.csv", 1 << 26, (spec, "people.csv")
        thread = threading.Thread(target=reader_process._done, args=arguments)
        thread.start()
        thread.join()
        return httpx.Response(200)

    assert follow([way[mark] for mark in letters], calls.of(elsewhere)) == []


def test_release(root: Path, calls: Calls, service: Service, noise: Noise) -> None:
    """Catches a step that was added, moved or renamed while the document tells the way as it was: of the request, of
    the work that goes on when it has its reply, and of what the process does that makes something of measurements.
    """
    way = rows(root, "The way of a release")
    elsewhere = way.pop("a")
    assert list(way) == [str(n) for n in range(1, len(way) + 1)]
    upload(service, "released").raise_for_status()
    noise.draw = lambda _scale: 0
    asked = {"dataset": "released", "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.5}
    replies: list[httpx.Response] = []

    def ask() -> httpx.Response:
        replies.append(service.admin.post("/v1/releases", json=asked))
        return replies[-1]

    def done() -> None:
        deadline = time.monotonic() + patience(60)
        while service.built.services.releases.row(replies[0].json()["id"]).status != "done":  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    seen = calls.of(ask, done)
    request, work = list(way.values())[:9], list(way.values())[11:]
    assert follow(request, seen) == []
    assert follow([way["10"], way["11"]], seen) == []
    assert follow(work, seen) == []

    def made() -> httpx.Response:
        """What the process does, in a thread that is watched."""
        thread = threading.Thread(target=release_worker.carried_out, args=(released("gaussian").task.written(), print))
        thread.start()
        thread.join()
        return httpx.Response(200)

    assert follow([elsewhere], calls.of(made)) == []


def test_a_way_that_is_not_gone_is_noticed(root: Path, calls: Calls, service: Service) -> None:
    """Catches a comparison that would take any way: in another order, or through what is not called."""
    way = [step for mark, step in rows(root, "The way of an upload").items() if mark.isdigit()]
    seen = calls.of(lambda: upload(service, "compared"))
    assert follow(way[::-1], seen) != []
    assert follow([*way, ("app/http/app.py", "create_app")], seen) == [("app/http/app.py", "create_app")]
