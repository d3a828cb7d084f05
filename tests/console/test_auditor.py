"""The auditor's pages over HTTP: a check from its start to its verdict, what was tampered with, proofs, what is pasted,
and who sees what.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from typing import Any, Self

import httpx
import pytest
from markupsafe import escape

from app.storage.log_store import SqlLog
from curator_client.proofs import merkle, notes
from tests.audit.auditing import caught_up, held, until
from tests.kit.console import Visitor, heading
from tests.kit.patience import patience
from tests.kit.service import Service, ask, open_session, people, refused, unique, where

pytestmark = pytest.mark.api

MARKUP = "<b onclick=alert(1)>&\"'"
HOLDS = "Everything that was checked holds."


@pytest.fixture(scope="module")
def story(noisy: Service) -> tuple[str, str]:
    """A data set full of markup and a session on it, all of it in the log."""
    attributes = [
        {"name": "sex", "values": ["female", MARKUP]},
        {"name": "age", "lower": 0, "upper": 80, "bins": 4},
    ]
    name = people(noisy, description=MARKUP, attributes=attributes)
    mechanism = {"mechanism": {"construction": "evidence"}, "max_updates": None}
    id = open_session(noisy.admin, name, epsilon=0.1, **mechanism)["id"]
    for query in (where(sex=MARKUP), where(age={"between": [0, 40]}), where(sex=MARKUP)):
        ask(noisy.admin, id, query)
    caught_up(noisy, [id])
    return name, id


class Auditor(Visitor):
    """An auditor, who has logged in within the context."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.url)
        self.name = unique("auditor")
        created = service.admin.post("/v1/principals", json={"name": self.name, "role": "auditor"})
        self.key = created.json()["api_key"]

    def __enter__(self) -> Self:
        super().__enter__()
        assert self.log_in(self.key).status_code == 303
        return self


@pytest.fixture(scope="module")
def olga(noisy: Service, story: tuple[str, str]) -> Iterator[Auditor]:
    with Auditor(noisy) as visitor:
        yield visitor


@pytest.fixture
def unchecked(noisy: Service) -> None:
    """A service that was not checked yet."""
    for each in noisy.admin.get("/v1/audits").json()["items"]:
        assert noisy.admin.delete(f"/v1/audits/{each['id']}").status_code == 204


def api(service: Service, visitor: Auditor) -> httpx.Client:
    return service.caller(visitor.key)


def field(page: httpx.Response, name: str) -> str:
    """What a text area or a hidden field has in it."""
    found = re.search(rf'<textarea id="{name}"[^>]*>(.*?)</textarea>|name="{name}" value="([^"]*)"', page.text, re.S)
    assert found is not None, name
    return unescape(found[1] or found[2] or "")


def words_of(page: httpx.Response) -> str:
    """What a page says, without its markup."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.text)).split())


def begun(visitor: Auditor, **fields: str) -> str:
    """Begin a check by the form; the address of its page."""
    reply = visitor.form("/console/verdict", {"nonce": unique("nonce"), "checkpoint": "", **fields})
    assert reply.status_code == 303, reply.text
    return str(reply.headers["location"])


def ended(visitor: Auditor, place: str) -> httpx.Response:
    """The page of a check when that has ended."""

    def looked() -> httpx.Response | None:
        page = visitor.get(place)
        return None if "being checked" in heading(page) else page

    page: httpx.Response = until(looked)
    return page


def audit_of(service: Service, visitor: Auditor, place: str) -> dict[str, Any]:
    """The same check by the API."""
    audit: dict[str, Any] = api(service, visitor).get(f"/v1/audits/{place.rpartition('/')[2]}").json()
    return audit


# ---------------------------------------------------------------------- a check


def test_a_check_from_its_start_to_its_report(noisy: Service, olga: Auditor, unchecked: None) -> None:
    """Catches a verdict before there is one, a check that is begun twice by two clicks, a page that says other things
    than the audit found, and a report that a browser shows without its style or lets run.
    """
    assert olga.get("/console").headers["location"] == "/console/verdict"
    first = olga.get("/console/verdict")
    assert heading(first) == "Not checked yet."
    assert olga.get("/v1/audits").status_code == 401
    place = begun(olga, nonce=field(first, "nonce"))
    assert begun(olga, nonce=field(first, "nonce")) == place
    page = ended(olga, place)
    assert heading(page) == heading(olga.get("/console/verdict")) == HOLDS
    result = audit_of(noisy, olga, place)["result"]
    for told in (*(each["says"] for each in result["checks"]), *result["not_checked"], result["log"]["root"]):
        assert told in words_of(page)
    assert "curator audit replay LOG" in page.text
    assert "the server’s check of itself" in page.text
    assert page.text.count(">replays</span>") == len(result["sessions"])
    report = olga.get(f"{place}/report")
    policy = report.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert report.content == api(noisy, olga).get(f"/v1/audits/{place[17:]}/report").content
    assert olga.get(f"{place}/report.json").json()["holds"] is True
    assert olga.get(f"{place}/checkpoint").text == result["log"]["checkpoint"]
    # What she kept is what the next check is held against.
    assert field(page, "checkpoint") == result["log"]["checkpoint"]
    again = ended(olga, begun(olga, checkpoint=field(page, "checkpoint")))
    assert heading(again) == HOLDS
    assert f"begins with the {result['log']['size']:,} entries" in words_of(again)


def test_one_who_runs_is_seen_by_the_second_and_stopped_by_the_first(
    noisy: Service, olga: Auditor, unchecked: None
) -> None:
    """Catches a second check beside the first, a check that anybody may stop, a GET that stops it, and a verdict of one
    that was stopped.
    """
    with Auditor(noisy) as second, held(noisy) as gate:
        place = begun(olga)
        assert gate.entered.wait(patience(30))
        followed = begun(second)
        assert followed == f"{place}?second=1"
        page = second.get(followed)
        assert f"A check of {olga.name} is under way" in words_of(page)
        assert heading(second.get("/console/verdict")) == "Everything is being checked"
        assert ">Stop</button>" not in page.text
        assert second.form(f"{place}/stop", {}).status_code == 403
        assert second.get(f"{place}/stop").status_code in (404, 405)
        part = olga.get(place, headers={"HX-Request": "true"})
        assert 'hx-trigger="every 2s"' in part.text
        assert "HX-Refresh" not in part.headers
        assert "Look again" in part.text
        assert ">Stop</button>" in part.text
        assert olga.form(f"{place}/stop", {}, token=second.token()).status_code == 403
        assert audit_of(noisy, olga, place)["status"] == "running"
        assert olga.form(f"{place}/stop", {}).status_code == 303
        gate.opened.set()
        page = ended(olga, place)
    assert heading(page) == "Stopped. It is no verdict."
    assert f"Stopped by {olga.name}" in words_of(page)
    assert olga.get(place, headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"
    # Who stops what has ended loses nothing.
    assert olga.form(f"{place}/stop", {}).headers["location"] == place
    assert heading(olga.get(place)) == "Stopped. It is no verdict."
    for name in ("report", "checkpoint"):
        assert olga.get(f"{place}/{name}").status_code in (404, 409)


def test_one_session(noisy: Service, olga: Auditor, story: tuple[str, str], unchecked: None) -> None:
    """Catches a check of one session that is told as one of everything, and one that takes the place of the verdict."""
    _, id = story
    page = olga.get(f"/console/sessions/{id}")
    session = api(noisy, olga).get(f"/v1/sessions/{id}").json()
    assert session["head_hash"] in page.text
    assert f"{session['log_size']:,} entries or more" in words_of(page)
    place = begun(olga, session=id)
    found = ended(olga, place)
    assert heading(found) == "This session holds."
    assert audit_of(noisy, olga, place)["session"] == id
    assert heading(olga.get("/console/verdict")) == "Not checked yet."
    assert olga.form("/console/verdict", {"session": "0" * 32}).status_code == 404


def test_a_row_that_was_changed(noisy: Service, olga: Auditor, story: tuple[str, str]) -> None:
    """An entry is changed where it is stored, and then put back. Catches a page that says that all holds, one that does
    not say what and where in the words of the finding, and a verdict told by colour alone.
    """
    _, id = story
    (line,) = (row[-1] for row in noisy.rows("entries") if row[:2] == (id, 2))
    other = line.replace(b'"recorded_at":"20', b'"recorded_at":"19')

    def store(content: bytes) -> None:
        with closing(sqlite3.connect(noisy.settings.data_dir / "curator.sqlite3", timeout=30)) as database:
            database.execute("UPDATE entries SET line = ? WHERE session = ? AND sequence = 2", (content, id))
            database.commit()

    store(other)
    try:
        place = begun(olga)
        page = ended(olga, place)
    finally:
        store(line)
    audit = audit_of(noisy, olga, place)
    finding = audit["result"]["finding"]
    assert audit["verdict"] == "does not hold"
    told = words_of(page)
    assert heading(page).endswith("checks do not hold.")
    assert finding["problem"][1:] in told
    assert (finding["where"]["session"], finding["where"]["entry"]) == (id, 2)
    assert f'href="/console/sessions/{id}/records/2">entry 2</a>' in page.text
    for check in audit["result"]["checks"]:
        assert check["says"] in told
    assert page.text.count("fails</span>") == sum(each["holds"] is False for each in audit["result"]["checks"])
    assert "Stays open" in told
    assert "What to do" in told
    assert "agree</span>" not in page.text
    assert heading(ended(olga, begun(olga))) == HOLDS


# ---------------------------------------------------------------------- what is pasted


def forged(service: Service, size: int) -> str:
    """Another history under the log's own key."""
    return service.built.services.log.keys.signer().note(size, merkle.leaf_hash(b"another history")).decode()


def test_another_history_under_the_key(noisy: Service, olga: Auditor) -> None:
    """Catches a growth that is not looked at, on either page, and a page that does not say to keep both."""
    for size in (3, 10**6):
        note = forged(noisy, size)
        page = olga.form("/console/log/compare", {"checkpoint": note})
        assert "The log does not begin with it. Keep both checkpoints." in words_of(page)
        assert field(page, "checkpoint") == note.strip()
        found = ended(olga, place := begun(olga, checkpoint=note))
        assert heading(found) == "One check does not hold."
        finding = audit_of(noisy, olga, place)["result"]["finding"]["problem"]
        assert finding[1:] in words_of(found)
        assert "speak against whoever holds it" in words_of(found)
    begins = olga.form("/console/log/compare", {"checkpoint": olga.get("/console/log/checkpoint").text.strip()})
    assert "The log begins with it." in words_of(begins)


@pytest.mark.parametrize("path", ["/console/log/compare", "/console/verdict"])
def test_what_is_no_checkpoint_of_this_log(noisy: Service, olga: Auditor, path: str) -> None:
    """Rubbish, another log's checkpoint and one that nobody signed. Catches a fault, a text that is lost, a refusal
    that is not beside its field, and a check that is begun all the same.
    """
    rows = noisy.rows("audits")
    own = olga.get("/console/log/checkpoint").text
    other = notes.Signer(os.urandom(32)).note(3, merkle.leaf_hash(b"x")).decode()
    for text in ("nonsense", MARKUP, own.partition("\n\n")[0], own[:-12], other, "x" * 70_000, "ä\n\n— ä ä"):
        page = olga.form(path, {"checkpoint": text, "nonce": "n"})
        assert page.status_code == 422, text[:40]
        assert 'aria-describedby="checkpoint-error"' in page.text
        assert "the text of one that this log signed" in page.text[page.text.index('id="checkpoint-error"') :]
        assert field(page, "checkpoint").strip() == text.strip()
        assert MARKUP not in page.text
    assert noisy.rows("audits") == rows


# ---------------------------------------------------------------------- the log


def test_an_entry_is_proved(noisy: Service, olga: Auditor, story: tuple[str, str]) -> None:
    """By its number, by the hash that a transcript has of it, and as a measurement is named; the file that is offered
    is held against the log's key by the client. Catches a proof of another line, and a line that is not the one signed.
    """
    _, id = story
    caught_up(noisy, [id])  # what tests before this one have done: the page's proof is then that of the file
    transcript = olga.get(f"/console/sessions/{id}/transcript").content.splitlines()
    entry = next(line for line in transcript if json.loads(line).get("sequence") == 2)
    place = olga.get(f"/console/sessions/{id}/records/2").headers["location"]
    number = int(re.findall(r"\d+", place)[0])
    by_hash = olga.get("/console/log/find", params={"entry": f" {json.loads(entry)['entry_hash'].upper()} "})
    assert by_hash.headers["location"] == f"/console/log/entries/{number}"
    assert (
        olga.get("/console/log/find", params={"entry": str(number)}).headers["location"] == by_hash.headers["location"]
    )
    assert olga.get(f"/console/log/entries/{number}/line").content == entry
    direct = olga.get(f"/console/sessions/{id}/records/2/proof")
    proof = olga.get(direct.headers["location"]).json()
    verifier = notes.Verifier.parse(api(noisy, olga).get("/v1/log/key").json()["key"])
    signed = verifier.checkpoint(proof["checkpoint"].encode())
    hashes = [base64.b64decode(each) for each in proof["hashes"]]
    assert proof["line"].encode() == entry
    merkle.check_inclusion(merkle.leaf_hash(entry), proof["index"], signed.size, hashes, signed.root)
    page = olga.get(place)
    assert all(str(escape(each)) in page.text for each in proof["hashes"])
    assert f'href="/console/sessions/{id}"' in page.text
    measured = next(line for line in transcript if json.loads(line)["record"] == "measurement")
    named = olga.get("/console/log/find", params={"entry": hashlib.sha256(measured).hexdigest()})
    assert olga.get(f"{named.headers['location']}/line").content == measured


def test_entries_that_are_not_there(noisy: Service, olga: Auditor, story: tuple[str, str]) -> None:
    """Catches a fault, a text that is lost, and a proof of what no log has."""
    name, id = story
    for text, status in (("f" * 64, 404), ("9" * 15, 422), ("x1", 422), (MARKUP, 422), ("9" * 30, 422), ("-1", 422)):
        page = olga.get("/console/log/find", params={"entry": text})
        assert page.status_code == status, text
        assert 'id="entry-error"' in page.text
        assert f'value="{escape(text)}"' in page.text
    for path in ("entries/999999", "entries/x", "entries/-1/line", "entries/9999999999999999999/proof"):
        assert olga.get(f"/console/log/{path}").status_code == 404
    for place in ("0", "4000", "x", "2/else"):
        assert olga.get(f"/console/sessions/{id}/records/{place}").status_code == 404
    rehearsal = open_session(noisy.admin, name, epsilon=0.1, dummy=True)["id"]
    ask(noisy.admin, rehearsal, where(age={"between": [0, 40]}))
    assert olga.get(f"/console/sessions/{rehearsal}/records/1").status_code == 409
    assert "Check this session" not in olga.get(f"/console/sessions/{rehearsal}").text


def test_a_search_by_a_hash_ends(noisy: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a search without bounds, and one that goes on when nobody waits for it."""
    log, asked = noisy.built.services.log, []
    (line, *_) = log.entries(0, 0).split(b"\n")
    leaf = merkle.leaf_hash(line).hex()
    assert log.find(leaf, lambda: asked.append(1)) == 0
    assert asked
    monkeypatch.setattr("app.services.log.MOST_SEARCHED", 2)
    assert log.find(leaf, lambda: None) is None
    with pytest.raises(InterruptedError):
        log.find(leaf, lambda: (_ for _ in ()).throw(InterruptedError))  # type: ignore[arg-type,return-value]


def test_witnesses(noisy: Service, olga: Auditor) -> None:
    """Catches a witness who is not told of, told of an older time, or told of as if the server knew."""
    page = olga.get("/console/log")
    witness = notes.Witness(os.urandom(32), name := f"{unique('office')}.example/w")
    key, log = witness.verifier.text(), SqlLog(noisy.built.store)
    for at in (1_795_000_000, 1_795_086_400):
        # Of each size one cosignature is kept: the log grows between them.
        noisy.principal("analyst")
        until(lambda: not noisy.built.services.sequencer.step())
        until(lambda: not log.news(log.state(), log.settled(), 1)[0])
        note = witness.cosign(noisy.admin.get("/v1/log/checkpoint").content, at)
        headers = {"Content-Type": "text/plain"}
        sent = api(noisy, olga).post("/v1/log/cosignatures", params={"witness": key}, content=note, headers=headers)
        assert sent.status_code == 204, sent.text
    assert name not in page.text
    told = words_of(olga.get("/console/log"))
    size = notes.Checkpoint.parse(note.decode().partition("\n\n")[0] + "\n").size
    assert f"{name} {size:,} entries, 19 November 2026" in told
    assert "18 November" not in told
    assert "proves nothing" in told
    assert name in olga.get("/console/verdict").text


# ---------------------------------------------------------------------- books


def test_the_books(noisy: Service, olga: Auditor, story: tuple[str, str]) -> None:
    """Catches a movement that no page has, one without its session and entry, and names that are read as markup."""
    name, id = story
    base = f"/console/datasets/{name}"
    ledger = api(noisy, olga).get(f"/v1/datasets/{name}/ledger").json()["entries"]
    page, seen = olga.get(f"{base}/ledger?limit=1"), []
    while True:
        seen += re.findall(rf'href="/console/sessions/{id}">', page.text)
        following = re.search(rf'href="({base}/ledger\?limit=1&amp;after=\d+)"', page.text)
        if following is None:
            break
        page = olga.get(unescape(following[1]))
    assert len(seen) == len(ledger)
    entries = [f'/{id}/records/{each["sequence"]}"' for each in ledger if each["sequence"]]
    whole = olga.get(f"{base}/ledger").text
    assert all(each in whole for each in entries)
    assert "Budget over time" in (overview := olga.get(base)).text
    assert api(noisy, olga).get(f"/v1/datasets/{name}").json()["commitment"] in overview.text
    assert str(escape(MARKUP)) in overview.text
    for path in (base, f"{base}/declaration", "/console/sessions", f"/console/sessions/{id}", "/console/datasets"):
        page = olga.get(path)
        assert page.status_code == 200
        assert MARKUP not in page.text


# ---------------------------------------------------------------------- who sees what


def test_who_sees_what(noisy: Service, olga: Auditor, story: tuple[str, str]) -> None:
    """Catches a page for somebody else's role, and a transcript's record that an admin sees of others."""
    name, id = story
    place = ended(olga, begun(olga)).url.path
    shared = ["/console/log", "/console/log/checkpoint", "/console/log/entries/0", "/console/log/entries/0/proof"]
    shared += [f"/console/datasets/{name}/ledger", place, f"{place}/report", f"{place}/checkpoint"]
    key = noisy.admin.post("/v1/principals", json={"name": unique("ann"), "role": "analyst"}).json()["api_key"]
    with Visitor(noisy.url) as ann, Visitor(noisy.url) as admin, Visitor(noisy.url) as nobody:
        ann.log_in(key)
        admin.log_in(noisy.admin_key)
        for path in shared:
            assert ann.get(path).status_code == 404, path
            assert admin.get(path).status_code == 200, path
            assert heading(nobody.get(path)) == "Log in"
        for path in ("/console/verdict", "/console/log/compare", f"{place}/stop"):
            assert ann.form(path, {"checkpoint": "x"}).status_code == 404
            assert nobody.form(path, {}, token="0" * 64).status_code == 403
        for path in ("/console/verdict", f"/console/sessions/{id}/records/1"):
            assert ann.get(path).status_code == 404
        # The story is the admin's own; others' are none of his, and he begins from a session's page.
        assert admin.get("/console/verdict").status_code == 404
        assert admin.get(f"/console/sessions/{id}/records/1").status_code == 303
        theirs = open_session(noisy.caller(key), name, epsilon=0.1)["id"]
        assert admin.form("/console/verdict", {"session": theirs}).status_code == 404
        assert admin.get(f"/console/sessions/{theirs}/records/1").status_code == 404
        assert olga.get(f"/console/sessions/{theirs}").status_code == 200
    assert refused(noisy.caller(key).get("/v1/audits"), "forbidden")


def test_work_is_counted(noisy: Service, olga: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a page that takes the work of a route without its rate."""
    name = noisy.admin.get("/v1/datasets").json()["items"][0]["name"]
    counted: list[str] = []
    monkeypatch.setattr(
        noisy.built.app.state.context.authenticator, "count_heavy", lambda actor: counted.append(actor.name)
    )
    for path in ("log/entries/0", "log/entries/0/line", "log/find?entry=0", f"datasets/{name}/ledger"):
        before = len(counted)
        olga.get(f"/console/{path}")
        assert len(counted) == before + 1, path
    for path in ("verdict", "log/compare"):
        before = len(counted)
        olga.form(f"/console/{path}", {"checkpoint": "x"})
        assert len(counted) == before + 1, path
