"""Audits as a service, over HTTP: what is found, and that it is what a replay on one's own machine finds; who may ask,
stop and read.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap.nursery import NICENESS
from app.services import audits as use_cases
from app.services import exports
from curator_client import Conflict, Curator, NotFound
from curator_client.proofs.merkle import leaf_hash
from curator_client.proofs.notes import Signer
from tests.audit.auditing import (
    audited,
    caught_up,
    check_same,
    command,
    followed,
    held,
    own_replay,
    started,
    story,
    until,
    workers,
)
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, ask, npy, open_session, people, refused, register, serving, unique, where

pytestmark = [pytest.mark.api, pytest.mark.slow]


@pytest.fixture(scope="module")
def told(noisy: Service) -> list[str]:
    return story(noisy)


@pytest.fixture(scope="module")
def auditor(noisy: Service) -> httpx.Client:
    return noisy.principal("auditor")


@pytest.fixture(scope="module")
def done(noisy: Service, told: list[str], auditor: httpx.Client) -> tuple[list[JSON], list[str]]:
    """The states of an audit of everything; the ledgers before it and behind it."""
    before = noisy.ledgers()
    states = followed(auditor, started(auditor))
    return states, [*before, *noisy.ledgers()]


def key_of(caller: httpx.Client) -> str:
    return caller.headers["Authorization"].removeprefix("Bearer ")


class TestWhatHolds:
    def test_it_is_what_an_own_replay_says(
        self, noisy: Service, auditor: httpx.Client, done: tuple[list[JSON], list[str]], tmp_path: Path
    ) -> None:
        """Catches a second auditor: books, sessions or a checkpoint that are other than those of
        `curator audit replay`, and a report that is other than that of `curator audit report`.
        """
        last = done[0][-1]
        own = own_replay(noisy, key_of(auditor), tmp_path)
        assert isinstance(own, dict)
        assert own["ok"]
        check_same(last, own)
        path = last["links"]["report"]
        report = auditor.get(path, headers={"Accept": "application/json"}).json()
        _, printed, _ = command(noisy, "", tmp_path, "report", str(tmp_path / "log"), "--replay", "--json", "-")
        expected = json.loads(printed)
        # The key is known from elsewhere: of the one from a folder, of the other from the service.
        (of_service, *others), (of_folder, *same) = report.pop("checks"), expected.pop("checks")
        assert of_service == {**of_folder, "says": of_folder["says"].replace("in this folder", "of this service")}
        assert others == same
        assert report == expected
        page = auditor.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "All that was checked holds" in page.text
        assert "without any service" not in page.text
        assert auditor.get(path, headers={"Accept": "image/png"}).status_code == 422

    def test_progress_comes_in_stages(self, done: tuple[list[JSON], list[str]]) -> None:
        """Catches numbers that go back, and a stage that is told as done before it is."""
        states, _ = done
        stages = ["copying", "lines", "books", "replay"]
        seen = [stages.index(state["progress"]["stage"]) for state in states]
        assert seen == sorted(seen)
        last = states[-1]
        progress = last["progress"]
        assert (progress["stage"], progress["sessions"], progress["of_sessions"]) == ("replay", 3, 3)
        assert progress["lines"] == progress["of_lines"] == last["result"]["log"]["size"]
        assert {state["verdict"] for state in states[:-1]} == {None}
        assert last["verdict"] == "holds"

    def test_nothing_is_spent(self, done: tuple[list[JSON], list[str]]) -> None:
        _, ledgers = done
        assert ledgers[: len(ledgers) // 2] == ledgers[len(ledgers) // 2 :]

    def test_what_is_not_checked_is_said(self, auditor: httpx.Client, done: tuple[list[JSON], list[str]]) -> None:
        """Catches a verdict that promises what no log shows. A checkpoint that was kept is one thing less."""
        result = done[0][-1]["result"]
        words = " ".join(result["not_checked"])
        for what in ("noise", "private file", "same log", "checkpoint that you kept"):
            assert what in words
        grown = audited(auditor, all=True, checkpoint=result["log"]["checkpoint"])["result"]
        assert "checkpoint that you kept" not in " ".join(grown["not_checked"])
        assert [each["holds"] for each in grown["checks"] if each["check"] == "earlier"] == [True]
        assert grown["earlier_size"] == result["log"]["size"]

    def test_one_session(self, noisy: Service, auditor: httpx.Client, told: list[str]) -> None:
        """Catches an audit of one that replays the others, or that says of them what it does not know."""
        last = audited(auditor, session=told[0])
        assert (last["session"], last["all"], last["verdict"]) == (told[0], False, "holds")
        result = last["result"]
        assert [each["session"] for each in result["sessions"]] == [told[0]]
        assert "2 others were not looked at" in result["checks"][-1]["says"]
        assert len(result["datasets"]) == 1
        assert "answers" not in result["datasets"][0]
        # An admin asks for his own; the story is his.
        assert audited(noisy.admin, session=told[2])["verdict"] == "holds"

    def test_a_log_that_did_not_grow_from_what_was_kept(
        self, noisy: Service, auditor: httpx.Client, told: list[str]
    ) -> None:
        """Two histories under one key: the checkpoint is signed with it, and of other lines, or of more. Catches a
        growth that is not looked at.
        """
        signer = noisy.built.services.log.keys.signer()
        for size, problem in ((3, "begin with"), (10**6, "the log has")):
            other = signer.note(size, leaf_hash(b"another history")).decode()
            last = audited(auditor, all=True, checkpoint=other)
            assert (last["verdict"], last["result"]["contradicted"]) == ("does not hold", True), last
            checks = {each["check"]: each for each in last["result"]["checks"]}
            assert checks["earlier"]["holds"] is False
            assert checks["replay"]["holds"] is None
            finding = last["result"]["finding"]["problem"]
            assert problem in finding or "are not those that were seen" in finding


class TestOneAtATime:
    def test_the_second_is_told_of_the_first(self, noisy: Service, auditor: httpx.Client, told: list[str]) -> None:
        """Catches a second process, an audit that cannot be stopped, and a verdict of one that was."""
        other = noisy.principal("auditor")
        with held(noisy) as gate:
            id = started(auditor)
            assert gate.entered.wait(patience(30))
            (worker,) = workers(os.getpid())
            for caller in (auditor, other, noisy.admin):
                reply = caller.post("/v1/audits", json={"session": told[0]})
                assert refused(reply, "conflict")["audit"] == id
            assert other.get(f"/v1/audits/{id}").json()["status"] == "running"
            assert refused(auditor.get(f"/v1/audits/{id}/report"), "conflict")
            # It stands back, and has neither the database nor a private file open, nor a secret in its environment.
            assert worker.nice() >= NICENESS
            assert not [each.path for each in worker.open_files() if "vault" in each.path or "sqlite" in each.path]
            assert not [name for name in worker.environ() if name.startswith("CURATOR_")]
            assert refused(other.delete(f"/v1/audits/{id}"), "forbidden")
            reply = auditor.delete(f"/v1/audits/{id}")
            assert (reply.status_code, reply.json()["status"]) == (200, "stopping")
            # The process is gone before another audit may begin.
            assert refused(other.post("/v1/audits", json={"all": True}), "conflict")
            gate.opened.set()
            last = followed(auditor, id)[-1]
            assert not worker.is_running()
        assert (last["status"], last["verdict"], last["result"]) == ("stopped", None, None)
        assert last["stopped_by"] == auditor.get(f"/v1/audits/{id}").json()["owner"]
        assert "0 of 3" in last["says"] or "lines of the log" in last["says"]
        assert last["says"].endswith("It is no verdict.")
        assert auditor.delete(f"/v1/audits/{id}").status_code == 204
        assert refused(auditor.get(f"/v1/audits/{id}"), "not-found")
        assert audited(other, all=True)["verdict"] == "holds"

    def test_a_key_names_one_audit(self, auditor: httpx.Client, told: list[str]) -> None:
        """Catches a retry that starts another audit, or is told something else than the first time."""
        asked, headers = {"session": told[1]}, {"Idempotency-Key": "a-key"}
        first = auditor.post("/v1/audits", json=asked, headers=headers)
        followed(auditor, first.json()["id"])
        again = auditor.post("/v1/audits", json=asked, headers=headers)
        assert (again.status_code, again.content) == (202, first.content)
        assert refused(auditor.post("/v1/audits", json={"all": True}, headers=headers), "idempotency-conflict")
        assert auditor.delete(first.json()["links"]["self"]).status_code == 204


class TestByTheClient:
    def test_an_audit_from_its_start_to_its_report(
        self, noisy: Service, auditor: httpx.Client, told: list[str], tmp_path: Path
    ) -> None:
        """Catches a client that ends before the audit does, or that loses what it found."""
        with Curator(noisy.url, key_of(auditor)) as curator:
            audit = curator.audit(told[0], checkpoint=curator.log_routes.checkpoint())
            heard: list[str] = []
            state = audit.wait(lambda state: heard.append(state.status))
            assert (state.verdict, state.session, heard[-1]) == ("holds", told[0], "done")
            assert state.result is not None
            assert state.result["earlier_size"] == state.result["log"]["size"]
            assert json.loads(audit.save(tmp_path / "report.json").read_bytes())["holds"]
            assert audit.save(tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
            assert audit.id in [each.id for each in curator.audits()]
            assert curator.existing_audit(audit.id).state == state
            with held(noisy) as gate:
                going = curator.audit()
                with pytest.raises(Conflict) as caught:
                    curator.audit(told[1])
                assert caught.value.extra["audit"] == going.id
                going.stop()
                gate.opened.set()
                assert (going.wait().status, going.state.verdict) == ("stopped", None)
            audit.stop()
            with pytest.raises(NotFound):
                audit.refresh()


class TestWhoMayAsk:
    def test_analysts_may_not(self, noisy: Service, done: tuple[list[JSON], list[str]]) -> None:
        analyst, id = noisy.principal("analyst"), done[0][-1]["id"]
        for reply in (
            analyst.post("/v1/audits", json={"all": True}),
            analyst.get("/v1/audits"),
            *(analyst.get(f"/v1/audits/{id}{more}") for more in ("", "/events", "/report")),
            analyst.delete(f"/v1/audits/{id}"),
        ):
            refused(reply, "forbidden")
        assert noisy.caller(None).get("/v1/audits").status_code == 401

    def test_what_is_not_there(self, noisy: Service, auditor: httpx.Client, told: list[str]) -> None:
        """An admin does not see others' transcripts, here either. Catches an audit that tells of them."""
        for id in ("0" * 32, "x", "ABC"):
            for reply in (
                auditor.get(f"/v1/audits/{id}"),
                auditor.get(f"/v1/audits/{id}/events"),
                auditor.get(f"/v1/audits/{id}/report"),
                auditor.delete(f"/v1/audits/{id}"),
                auditor.post("/v1/audits", json={"session": id}),
            ):
                refused(reply, "not-found")
        analyst = noisy.principal("analyst")
        theirs = open_session(analyst, people(noisy), epsilon=0.1)["id"]
        refused(noisy.admin.post("/v1/audits", json={"session": theirs}), "not-found")

    @pytest.mark.parametrize(
        "body",
        [
            {},
            [],
            {"all": False},
            {"all": None},
            {"all": 1},
            {"session": None},
            {"session": 7},
            {"session": "0" * 32, "all": True},
            {"all": True, "checkpoint": ""},
            {"all": True, "checkpoint": 5},
            {"all": True, "checkpoint": "curator/x\n3\nnothing\n"},
            {"all": True, "checkpoint": "x" * 70_000},
            {"all": True, "more": 1},
        ],
    )
    def test_bad_bodies(self, noisy: Service, auditor: httpx.Client, body: Any) -> None:
        """Catches a body that leaves a trace, or that is taken for another one."""
        before = noisy.rows("audits")
        refused(auditor.post("/v1/audits", json=body), "invalid-request")
        assert noisy.rows("audits") == before

    def test_lists(self, noisy: Service, auditor: httpx.Client, done: tuple[list[JSON], list[str]]) -> None:
        """Catches pages that leave audits out, and long results in a list."""
        one = auditor.get("/v1/audits", params={"limit": 1}).json()
        assert "result" not in one["items"][0]
        ids, following = [], "/v1/audits?limit=1"
        while following:
            page = noisy.admin.get(following).json()
            ids += [each["id"] for each in page["items"]]
            following = page.get("next")
        assert ids == [each["id"] for each in auditor.get("/v1/audits").json()["items"]]
        assert len(set(ids)) == len(ids)
        assert done[0][-1]["id"] in ids
        refused(auditor.get("/v1/audits", params={"after": "0" * 32}), "invalid-request")


class TestEnds:
    @pytest.fixture
    def tomorrow(self, noisy: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400 + 60))
        for each in (noisy.built.services.audits, noisy.built.services.audit_jobs):
            monkeypatch.setattr(each, "_clock", lambda: later)

    def test_it_is_gone_after_a_day(self, noisy: Service, told: list[str], tomorrow: None) -> None:
        """Catches an audit that is kept for ever, one that is shown behind its time, and reports that stay behind."""
        assert use_cases.KEPT.days == 1
        rows = noisy.rows("audits")
        assert rows
        (id, *_) = rows[0]
        refused(noisy.admin.get(f"/v1/audits/{id}"), "not-found")
        assert noisy.admin.get("/v1/audits").json()["items"] == []
        jobs = noisy.built.services.audit_jobs
        jobs._tended = 0.0
        jobs.tend()
        assert noisy.rows("audits") == noisy.rows("audit_reports") == []

    def test_memory_is_refused_and_is_no_verdict(
        self,
        noisy: Service,
        auditor: httpx.Client,
        told: list[str],
        monkeypatch: pytest.MonkeyPatch,
        logged: list[Any],
    ) -> None:
        """A hypothesis of a million numbers is more than a process may have here. Catches one that takes what it likes,
        and a want of memory that is told as a finding.
        """
        sizes = {"attributes": [{"name": "a", "size": 1000}, {"name": "b", "size": 1000}], "records_public": True}
        spec = {"kind": "table", "name": unique("large"), "budget": {"epsilon": 1.0, "delta": 1e-6}, **sizes}
        assert register(noisy.admin, spec, npy(np.full((1000, 1000), 3)), "counts.npy").status_code == 201
        mw = {"construction": "mw"}
        id = open_session(noisy.admin, spec["name"], mechanism=mw, epsilon=0.5, max_updates=2)["id"]
        ask(noisy.admin, id, where(a={"between": [0, 7]}))
        caught_up(noisy, [id])
        assert audited(noisy.admin, session=id)["verdict"] == "holds"
        monkeypatch.setattr(noisy.built.services.audit_jobs._checker, "_memory_limit", 4 << 20)
        last = audited(noisy.admin, session=id)
        assert (last["status"], last["verdict"], last["result"]) == ("failed", None, None)
        assert last["problem"]["type"] == "/problems/audit-failed"
        assert "CURATOR_MEMORY_LIMIT" in last["problem"]["detail"]
        assert "says nothing of the log" in last["says"]
        refused(auditor.get(last["links"]["report"]), "conflict")
        logged.clear()  # the operator is told, too

    def test_disk_is_refused_and_is_no_verdict(
        self, noisy: Service, auditor: httpx.Client, told: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Catches copies of the log that take more of the disk than exports may, or that keep it when they are gone."""
        space = noisy.built.context.export_space
        with monkeypatch.context() as patch:
            patch.setattr(exports, "KEPT", 1000)
            patch.setattr(space, "_disk", 2000)
            last = audited(auditor)
        assert (last["status"], last["verdict"], last["problem"]["status"]) == ("failed", None, 503)
        assert (space._on_disk.total(), space._open.total()) == (0, 0)

    def test_a_process_that_is_killed_is_no_verdict(
        self, noisy: Service, auditor: httpx.Client, told: list[str], logged: list[Any]
    ) -> None:
        with held(noisy) as gate:
            id = started(auditor)
            assert gate.entered.wait(patience(30))
            (worker,) = workers(os.getpid())
            worker.kill()
            gate.opened.set()
            last = followed(auditor, id)[-1]
        assert (last["status"], last["verdict"]) == ("failed", None)
        assert "no memory left" in last["problem"]["detail"]
        assert [event.get("audit") for event in logged if event["level"] == "error"] == [id]
        logged.clear()  # that line is what is meant

    def test_metrics_count_them(self, noisy: Service, auditor: httpx.Client, told: list[str]) -> None:
        """Catches counts that name anybody, and outcomes that are not counted."""
        text = noisy.admin.get("/metrics").text
        lines = [line for line in text.splitlines() if line.startswith("curator_audits_total{")]
        assert {line.partition(" ")[0] for line in lines} >= {
            f'curator_audits_total{{outcome="{outcome}"}}'
            for outcome in ("holds", "does_not_hold", "stopped", "failed")
        }
        before = sum(float(line.rpartition(" ")[2]) for line in lines)
        audited(auditor)

        def counted() -> bool:
            now = noisy.admin.get("/metrics").text.splitlines()
            return sum(float(x.rpartition(" ")[2]) for x in now if x.startswith("curator_audits_total{")) == before + 1

        until(counted)


def test_a_checkpoint_of_an_earlier_key(tmp_path: Path) -> None:
    """The log's key was replaced, and the old one vouched for the new one. Catches a checkpoint that nobody knows any
    more, and a growth that is refused for the key's sake.
    """
    old, new = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    with serving(tmp_path, log_key=old) as service:
        people(service)
        caught_up(service, [])
        kept = service.admin.get("/v1/log/checkpoint").text
    with serving(tmp_path, log_key=new, log_old_key=old) as service:
        caught_up(service, [])
        last = audited(service.admin, all=True, checkpoint=kept)
        assert last["verdict"] == "holds", last
        assert [each["holds"] for each in last["result"]["checks"] if each["check"] == "earlier"] == [True]
        assert last["result"]["log"]["checkpoint"] != kept
        strangers = Signer(bytes([3]) * 32, last["result"]["log"]["origin"]).note(1, bytes(32)).decode()
        refused(service.admin.post("/v1/audits", json={"all": True, "checkpoint": strangers}), "invalid-request")
