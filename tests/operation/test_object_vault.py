"""Servers whose private files lie in an object store: they share a database and the store, and no disk."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.kit.objects import SECRET, Store, object_store
from tests.kit.patience import patience
from tests.kit.servers import Caller, Launcher, curator, launching
from tests.kit.world import ADMIN_KEY, SHAPE, eventually, query

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Counts that stand nowhere else, and how they lie in a file that is not sealed.
COUNTS = 100 + np.arange(32).reshape(SHAPE)
MARK = COUNTS.astype(np.uint8).tobytes()
TRUTH = int(COUNTS[1].sum())
OLD, NEW = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
LOG = base64.b64encode(bytes([3] * 32)).decode()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """The store, which every process that these tests start knows."""
    with object_store() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(store: Store) -> str:
    return store.bucket()


def settings(bucket: str, key: str = OLD) -> dict[str, str]:
    return {"vault_url": f"s3://{bucket}/private", "vault_key": key, "log_key": LOG}


def session(caller: Caller, name: str) -> str:
    asked = {"dataset": name, "mechanism": {"construction": "gaussian"}, "epsilon": 0.5, "max_queries": 5}
    reply = caller.post("/v1/sessions", asked)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def ask(caller: Caller, id: str, number: int, key: str | None = None) -> httpx.Response:
    return caller.post(f"/v1/sessions/{id}/queries", query(1, *range(number)), key)


def answered(reply: httpx.Response) -> float:
    assert reply.status_code == 200, reply.text
    return float(reply.json()["value"])


def ended(launcher: Launcher) -> None:
    """Kill all of its servers, and look for what must be neither in their logs nor in their folders."""
    launcher.end()
    folder = launcher.folder
    said = launcher.logs().encode() + b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for private in (MARK, SECRET.encode(), OLD.encode(), NEW.encode()):
        assert private not in said
    assert not list((folder / "vault").glob("*.vault"))


@pytest.mark.postgres
def test_servers_share_a_store_and_no_disk(tmp_path: Path, bucket: str, store: Store, postgres_url: str) -> None:
    """What one registered another answers, also when that one was killed and its disk is gone; what another retires is
    gone from the store. Every object is sealed. Catches a file that stayed on a disk, or went away in the clear.
    """
    with (
        launching(tmp_path / "one", postgres_url, **settings(bucket)) as one,
        launching(tmp_path / "two", postgres_url, **settings(bucket)) as two,
    ):
        first, second = one.start().wait_until_ready(), two.start().wait_until_ready()
        here, there = Caller(first.url), Caller(second.url)
        assert here.register("people", COUNTS).status_code == 201
        (name,) = [key for key in store.contents(bucket) if key.endswith(".vault")]
        id = session(there, "people")
        value = answered(ask(there, id, 8, "once"))
        assert abs(value - TRUTH) < TRUTH
        ended(one)
        assert answered(ask(there, id, 8, "once")) == value
        third = Caller(two.start().wait_until_ready().url)
        assert answered(ask(third, id, 8, "once")) == value
        answered(ask(third, id, 3))
        assert all(MARK not in content for content in store.contents(bucket).values())
        assert third.http.delete("/v1/datasets/people").status_code in (200, 204)
        assert name not in store.contents(bucket)
        ended(two)


def test_a_file_that_nobody_names_goes_at_the_start(tmp_path: Path, bucket: str, store: Store) -> None:
    """As a process leaves it that dies between file and row. Catches private files that stay for ever, and a sweep that
    takes what is none of its own.
    """
    with launching(tmp_path / "one", None, **settings(bucket)) as one:
        assert Caller(one.start().wait_until_ready().url).register("people", COUNTS).status_code == 201
        one.end()
        (named,) = [key for key in store.contents(bucket) if key.endswith(".vault")]
        orphan = named.replace("people", "other")
        for key in (orphan, "private/of-somebody-else"):
            store.client.put_object(Bucket=bucket, Key=key, Body=b"left")
        id = session(caller := Caller(one.start().wait_until_ready().url), "people")
        eventually(lambda: orphan not in store.contents(bucket))
        assert {named, "private/of-somebody-else"} <= set(store.contents(bucket))
        answered(ask(caller, id, 8))
        ended(one)


def test_an_altered_object_answers_nothing(tmp_path: Path, bucket: str, store: Store) -> None:
    """Nothing is charged, and who puts it back goes on. Catches an answer from other numbers than were registered."""
    with launching(tmp_path / "one", None, **settings(bucket)) as one:
        caller = Caller(one.start().wait_until_ready().url)
        assert caller.register("people", COUNTS).status_code == 201
        id = session(caller, "people")
        answered(ask(caller, id, 8))
        (name,) = [key for key in store.contents(bucket) if key.endswith(".vault")]
        content = store.contents(bucket)[name]
        before = caller.get(f"/v1/sessions/{id}")
        store.client.put_object(Bucket=bucket, Key=name, Body=content[:-1] + bytes([content[-1] ^ 1]))
        refused = ask(caller, id, 3)
        assert refused.status_code == 503, refused.text
        assert caller.get(f"/v1/sessions/{id}") | {"log_size": 0} == before | {"log_size": 0}
        store.client.put_object(Bucket=bucket, Key=name, Body=content)
        eventually(lambda: ask(caller, id, 3).status_code == 200)
        one.end()


def test_a_store_that_is_away(tmp_path: Path, bucket: str, store: Store) -> None:
    """Questions and registrations get 503 and leave no trace; when it is back they go on, under the same keys. Catches
    a server that answers from what it cannot look at, that fails with 500, or that hangs.
    """
    with launching(tmp_path / "one", None, **settings(bucket)) as one:
        caller = Caller(one.start().wait_until_ready().url)
        caller.http.timeout = patience(60)
        assert caller.register("people", COUNTS).status_code == 201
        id = session(caller, "people")
        value = answered(ask(caller, id, 8, "known"))
        store.stop()
        try:
            begun = time.monotonic()
            for refused in (ask(caller, id, 3, "asked"), caller.register("others", COUNTS)):
                assert refused.status_code == 503, refused.text
                assert refused.headers["content-type"] == "application/problem+json"
            assert time.monotonic() - begun < patience(40)
            assert answered(ask(caller, id, 8, "known")) == value
            assert [each["name"] for each in caller.get("/v1/datasets")["items"]] == ["people"]
        finally:
            store.start()
        eventually(lambda: ask(caller, id, 3, "asked").status_code == 200)
        assert caller.register("others", COUNTS).status_code == 201
        assert caller.get(f"/v1/sessions/{id}")["queries_asked"] == 2
        ended(one)


def operate(folder: Path, *arguments: str, **named: str) -> subprocess.CompletedProcess[str]:
    done = curator(folder, None, *arguments, **named)
    assert SECRET not in done.stdout + done.stderr
    return done


def test_another_key_and_another_bucket(tmp_path: Path, bucket: str, store: Store) -> None:
    """Rotated, backed up, and restored into another bucket. Catches objects of the old key that stay, a backup without
    them, and a restore that mixes them with others.
    """
    folder, copy, other = tmp_path / "one", tmp_path / "backup", store.bucket()
    with launching(folder, None, **settings(bucket)) as one:
        caller = Caller(one.start().wait_until_ready().url)
        assert caller.register("people", COUNTS).status_code == 201
        ended(one)
    before = {key for key in store.contents(bucket) if key.endswith(".vault")}
    done = operate(folder, "vault", "rotate", **settings(bucket, NEW), vault_old_key=OLD)
    assert done.returncode == 0, done.stderr
    after = {key for key in store.contents(bucket) if key.endswith(".vault")}
    assert len(after) == 1
    assert not after & before
    done = operate(folder, "backup", str(copy), **settings(bucket, NEW))
    assert done.returncode == 0, done.stderr
    assert len(list((copy / "vault").glob("*.vault"))) == 1
    refused = operate(tmp_path / "two", "restore", str(copy), "--final", **settings(bucket, OLD))
    assert refused.returncode != 0
    done = operate(tmp_path / "two", "restore", str(copy), "--final", **settings(other, NEW))
    assert done.returncode == 0, done.stderr
    with launching(tmp_path / "two", None, **settings(other, NEW)) as two:
        caller = Caller(two.start().wait_until_ready().url)
        answered(ask(caller, session(caller, "people"), 8))
        ended(two)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vault_url": "s3://nobody-made-this"}, "CURATOR_VAULT_URL"),
        ({"vault_url": "s3://key:secret@bucket"}, "nothing else in it"),
        ({"vault_url": "gs://bucket"}, "expected s3://"),
        ({"vault_key": ""}, "CURATOR_VAULT_KEY"),
    ],
)
def test_what_does_not_start(tmp_path: Path, bucket: str, changes: dict[str, Any], says: str) -> None:
    """Catches a server that says at the first registration that it cannot keep it, or keeps it in the clear."""
    given = {name: value for name, value in (settings(bucket) | changes).items() if value}
    done = operate(tmp_path / "one", "serve", "--port", "1", **given)
    assert done.returncode == 1
    assert says in " ".join(done.stderr.split())
    assert "secret" not in done.stderr


def test_a_store_that_keeps_versions_does_not_start(tmp_path: Path, store: Store) -> None:
    """What is retired would be kept. Catches a promise that the store does not let the server keep."""
    done = operate(tmp_path / "one", "serve", "--port", "1", **settings(store.bucket(versions=True)))
    assert done.returncode == 1
    assert "versioning" in done.stderr
    assert ADMIN_KEY not in done.stderr
