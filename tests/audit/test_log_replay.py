"""A whole service replayed from what an auditor fetched: sessions of several mechanisms, releases, a data set that is
retired; and folders with which something is wrong, told by name.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.audit.verdict import FolderVerdict
from app.bootstrap.clock import utc_now
from app.http import problems
from app.services.upkeep import forfeit
from curator_client import Curator, NotVerified
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer
from tests.kit.fetched import fetch
from tests.kit.patience import patience
from tests.kit.servers import environment, run
from tests.kit.service import JSON, Service, ask, open_session, people, serving, unique, where

pytestmark = [pytest.mark.api, pytest.mark.slow]

SEED = bytes(range(32))
QUESTIONS = [
    where(age={"between": [0, 20]}),
    where(sex={"equals": "female"}),
    where(age={"between": [0, 60]}),
    where(sex={"equals": "female"}),
]


def closed(client: httpx.Client, id: str) -> None:
    assert client.post(f"/v1/sessions/{id}/close").status_code == 200


def released(client: httpx.Client, dataset: str, **words: Any) -> str:
    """A release, once it is done."""
    body = {"dataset": dataset, "method": "gaussian", "workload": {"marginals": 2}, "epsilon": 0.2, **words}
    reply = client.post("/v1/releases", json=body)
    assert reply.status_code == 202, reply.text
    id = str(reply.json()["id"])
    deadline = time.monotonic() + patience(60)
    while (state := client.get(f"/v1/releases/{id}").json())["status"] not in ("done", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert state["status"] == "done", state
    return id


class Story:
    """What happened at a service, and the folder of an auditor who fetched it."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder
        analyst = service.principal("analyst", "story")
        self.hidden = people(service, name=unique("hidden"), records_public=False)
        self.retired, self.pure, self.exact, self.more = (people(service) for _ in range(4))
        self.ids: dict[str, str] = {}
        plans: dict[str, tuple[str, JSON]] = {
            "mw": (self.hidden, {}),
            "fk": (self.hidden, {"mechanism": {"construction": "fk"}, "epsilon": 0.1}),
            "evidence": (self.hidden, {"mechanism": {"construction": "evidence"}, "max_updates": None, "epsilon": 0.1}),
            "again": (self.hidden, {"mechanism": {"construction": "evidence"}, "max_updates": None, "epsilon": 0.1}),
            "laplace": (
                self.retired,
                {"mechanism": {"construction": "laplace"}, "max_updates": None, "max_queries": 9, "epsilon": 0.2},
            ),
            "race": (self.retired, {"release": "race", "epsilon": 0.3}),
            "left open": (self.retired, {"epsilon": 0.1}),
            "contract": (
                self.more,
                {
                    "mechanism": {"construction": "evidence"},
                    "max_updates": None,
                    "max_queries": 20,
                    "contract": True,
                    "epsilon": 0.5,
                },
            ),
            "gaussian": (
                self.more,
                {"mechanism": {"construction": "gaussian"}, "max_updates": None, "max_queries": 9, "epsilon": 0.4},
            ),
            "for itself": (
                self.more,
                {"mechanism": {"construction": "evidence"}, "max_updates": None, "share": False, "epsilon": 0.1},
            ),
            "all": (
                self.pure,
                {"mechanism": {"construction": "laplace"}, "max_updates": None, "max_queries": 3, "epsilon": 1.0},
            ),
            "exact": (self.exact, {"calibration": "exact", "epsilon": 1.0, "max_updates": 3}),
        }
        for name, (dataset, words) in plans.items():
            id = self.ids[name] = open_session(analyst, dataset, **words)["id"]
            for question in QUESTIONS:
                reply = analyst.post(f"/v1/sessions/{id}/queries", json=question)
                assert reply.status_code in (200, 409), reply.text
            if name in ("mw", "evidence", "laplace", "exact"):
                closed(analyst, id)
        self.ids["release"] = released(analyst, self.hidden)
        self.ids["rounds"] = released(analyst, self.hidden, method="iterative_construction", epsilon=0.05)
        assert service.admin.delete(f"/v1/datasets/{self.retired}").status_code == 200
        self.auditor = service.admin.post("/v1/principals", json={"name": "eve", "role": "auditor"}).json()["api_key"]
        self.settled = self.fetch_all()

    @contextlib.contextmanager
    def curator(self) -> Iterator[Curator]:
        with Curator(self.service.url, self.auditor) as curator:
            yield curator

    def fetch_all(self) -> FolderVerdict:
        """Fetch until the log has caught up with the transcripts."""
        deadline = time.monotonic() + patience(20)
        kept = LogFolder(self.folder)
        while True:
            with self.curator() as curator:
                assert curator.log(self.folder).fetch().refused == ()
            found = kept.replay()
            assert found.ok, (found.document()["problem"], found.document()["where"], self.ids)
            behind = sum(each["entries_not_in_log"] + each["movements_not_in_log"] for each in found.sessions)
            if not behind and {each["session"] for each in found.sessions} == set(self.ids.values()):
                return found
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    key = base64.b64encode(SEED).decode()
    with serving(folder / "service", log_key=key) as service:
        yield Story(service, folder / "kept")


def test_all_follows_and_the_books_are_the_ledgers(story: Story) -> None:
    """Catches a refusal of what is honest, a sum that is not the ledger's, and counts of other records."""
    document = story.settled.document()
    assert document["problem"] is document["where"] is None
    found = {each["dataset"]: each for each in document["datasets"]}
    for name in (story.hidden, story.retired, story.pure, story.exact, story.more):
        told, ledger = found[name], story.service.admin.get(f"/v1/datasets/{name}/ledger").json()
        for sum_, exact in (("renyi", ledger), ("pure", ledger["pure"])):
            for what in ("budget", "spent", "reserved", "remaining"):
                assert Decimal(told[what][sum_]) == Decimal(exact[what]), (name, what, sum_)
        shown = ledger["epsilon"]
        assert told["regime"] == shown["regime"]
        assert float(told["spent"]["epsilon"]) == shown["spent_epsilon"]
        assert float(told["remaining"]["epsilon"]) == shown["remaining_epsilon"]
        assert told["movements"] == len(ledger["entries"])
        assert told["impure"] == shown["impure"]
    # All of this budget went to pure noise, which the other sum counts as more than all.
    whole = found[story.pure]
    assert whole["regime"] == "pure"
    assert (
        Decimal("0.999")
        < Decimal(whole["spent"]["epsilon"])
        <= 1
        < Decimal(whole["spent"]["renyi"]) / Decimal(whole["budget"]["renyi"])
    )
    sessions = {each["session"]: each for each in document["sessions"]}
    assert {name: sessions[id]["status"] for name, id in story.ids.items() if name != "all"} == {
        **dict.fromkeys(story.ids.keys() - {"all"}, "closed"),
        **dict.fromkeys(("fk", "again", "contract", "gaussian", "for itself"), "open"),
    }
    assert (found[story.hidden]["sessions"], found[story.hidden]["releases"]) == (4, 2)
    assert found[story.hidden]["answers"] == 16
    assert found[story.retired]["retired_at"] is not None
    assert json.loads((story.folder / "sessions" / f"{story.ids['again']}.ndjson").read_bytes().splitlines()[0])[
        "evidence"
    ]["known"]


def test_only_what_changed_is_fetched(story: Story, tmp_path: Path) -> None:
    """Catches transcripts that are fetched again for nothing, one that changed and is not, lines that are read again
    where the frontier is kept, and a folder without one, or with one of another log, that does not go on."""
    kept, folder = tmp_path / "kept", story.folder
    shutil.copytree(folder, kept)
    with story.curator() as curator:
        mine, log = LogFolder(kept), curator.log(kept)
        assert log.fetch().written == 0
        analyst = story.service.principal("analyst")
        name = people(story.service)
        id = open_session(analyst, name, epsilon=0.1)["id"]
        ask(analyst, id, QUESTIONS[0])
        seen = set()
        deadline = time.monotonic() + patience(10)
        path = kept / "sessions" / f"{id}.ndjson"
        while not (path.exists() and len(path.read_bytes().splitlines()) == 3 and mine.replay().sessions[-1]["spent"]):
            seen.add(log.fetch().written)
            assert time.monotonic() < deadline
        assert seen <= {0, 1}
        # A line that was verified is not looked at again by a fetch; a replay does.
        frontier = json.loads((kept / "frontier").read_bytes())
        assert frontier["size"] == len((kept / "entries.ndjson").read_bytes().splitlines())
        lines = (kept / "entries.ndjson").read_bytes()
        (kept / "entries.ndjson").write_bytes(lines.replace(b'"admin"', b'"nimda"', 1))
        fetch(mine, curator)
        with pytest.raises(Contradicted):
            mine.replay()
        (kept / "frontier").write_bytes(
            json.dumps({**frontier, "peaks": ["00" * 32] * len(frontier["peaks"])}).encode()
        )
        with pytest.raises(Contradicted):
            fetch(mine, curator)
        whole = (kept / "entries.ndjson").read_bytes()
        (kept / "entries.ndjson").write_bytes(whole.replace(b'"nimda"', b'"admin"', 1))
        for broken in (None, b"", b"[]", b'{"size":1}'):
            (kept / "frontier").unlink(missing_ok=True)
            if broken is not None:
                (kept / "frontier").write_bytes(broken)
            fetch(mine, curator)
            assert json.loads((kept / "frontier").read_bytes())["peaks"]
        assert log.fetch().written == len(story.ids) + 1
        assert mine.replay().ok


def test_others_read_no_transcripts(story: Story, tmp_path: Path) -> None:
    """Catches a fetch that breaks off where the key is no auditor's, and a replay that does without transcripts."""
    kept = LogFolder(tmp_path)
    with pytest.raises(NotVerified):
        kept.replay()
    with Curator(story.service.url, story.service.admin_key) as curator:
        assert set(story.ids.values()) <= set(curator.log(tmp_path).fetch().refused)
    found = kept.replay()
    assert not found.ok
    assert found.document()["problem"] == "the transcript is missing"
    assert found.document()["where"]["session"] in story.ids.values()


# ------------------------------------------------------------------------------------- what is wrong is told by name


def resigned(kept: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Other lines, under a checkpoint that the log's own key signs."""
    lines = change((kept / "entries.ndjson").read_bytes().splitlines())
    tree = Frontier()
    for line in lines:
        tree.append(leaf_hash(line))
    (kept / "entries.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    (kept / "checkpoint").write_bytes(Signer(SEED).note(tree.size, tree.root()))


def movements(lines: list[bytes], session: str) -> list[int]:
    """Where the movements of a session stand."""
    return [i for i, line in enumerate(lines) if b'"record":"movement"' in line and session.encode() in line]


def edited(line: bytes, **fields: Any) -> bytes:
    document = json.loads(line) | fields
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def at(number: int, whose: str, /, **fields: Any) -> Callable[[list[bytes]], list[bytes]]:
    """A change of one movement of a session."""

    def change(lines: list[bytes]) -> list[bytes]:
        place = movements(lines, whose)[number]
        return [*lines[:place], edited(lines[place], **fields), *lines[place + 1 :]]

    return change


def without(number: int, session: str) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        place = movements(lines, session)[number]
        return lines[:place] + lines[place + 1 :]

    return change


@pytest.mark.parametrize("name", ["mw", "evidence", "laplace", "exact", "release", "rounds"])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_any_movement_that_is_another_is_named(story: Story, tmp_path: Path, name: str, number: int) -> None:
    """The first, second or last movement of a session of another amount, kind, entry, time, session or data set, or
    left out, in a log that is signed all the same. Catches each that is taken for true."""
    kept, session = tmp_path / "kept", story.ids[name]
    shutil.copytree(story.folder, kept)
    lines = (kept / "entries.ndjson").read_bytes().splitlines()
    before = json.loads(lines[movements(lines, session)[number]])
    other, left_out = story.ids["fk"], without(number, session)
    changes: list[Callable[[list[bytes]], list[bytes]]] = [
        at(number, session, amount=str(Decimal(before["amount"]) + Decimal("1e-24"))),
        at(number, session, pure="0.125"),
        at(number, session, kind="forfeit" if before["kind"] != "forfeit" else "charge"),
        at(number, session, kind="gift"),
        at(number, session, sequence=7),
        at(number, session, session=other),
        at(number, session, session="0" * 32),
        at(number, session, session=None),
        at(number, session, dataset=story.pure),
        at(number, session, number=before["number"] + 1000),
        left_out,
        lambda lines: [*lines, lines[movements(lines, session)[number]]],
    ]
    if number != -1:
        changes.append(at(number, session, recorded_at="2026-01-01T00:00:00Z"))
    for place, change in enumerate(changes):
        shutil.copy(story.folder / "entries.ndjson", kept / "entries.ndjson")
        resigned(kept, change)
        found = LogFolder(kept).replay()
        told = found.document()
        if found.ok:
            # What is missing at the end of a log may come: it is told, and nothing else is accepted.
            behind = [each["movements_not_in_log"] for each in told["sessions"] if each["session"] == session]
            assert (number, changes[place], behind) == (-1, left_out, [1])
        else:
            assert told["where"]["movement"] is not None or told["where"]["session"] is not None, told


def test_other_faults_are_named(story: Story, tmp_path: Path) -> None:
    """Catches transcripts and lines of the log that are not each other's, a measurement that nobody made, data sets
    that were never registered or are described otherwise, a session behind a retirement, and a budget that is passed.
    """
    kept = tmp_path / "kept"

    def told(*, change: Callable[[list[bytes]], list[bytes]] | None = None) -> JSON:
        if change is not None:
            resigned(kept, change)
        found = LogFolder(kept).replay().document()
        assert found["ok"] is False
        shutil.rmtree(kept)
        shutil.copytree(story.folder, kept)
        return found

    shutil.copytree(story.folder, kept)
    mw, again, evidence = (story.ids[name] for name in ("mw", "again", "evidence"))
    file = kept / "sessions" / f"{mw}.ndjson"
    file.unlink()
    assert told()["where"]["session"] == mw
    file.write_bytes((kept / "sessions" / f"{again}.ndjson").read_bytes())
    assert told()["where"]["session"] == mw
    (kept / "sessions" / "stray.ndjson").write_bytes(b"")
    assert "stray" in told()["problem"]
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    found = told()
    assert (found["where"]["session"], found["where"]["entry"]) == (mw, 2)
    # Whoever measured is nowhere: who starts from that names it.
    names = json.loads((kept / "sessions" / f"{again}.ndjson").read_bytes().splitlines()[0])["evidence"]["known"]
    assert names
    gone = kept / "sessions" / f"{evidence}.ndjson"
    own = set(gone.read_bytes().splitlines())
    gone.unlink()
    found = told(change=lambda lines: [line for line in lines if line not in own and evidence.encode() not in line])
    assert found["where"]["session"] == again
    assert any(name in found["problem"] for name in names)
    entry = next(line for line in lines if b'"sequence":2' in line).strip()

    def position(lines: list[bytes], *texts: str) -> int:
        return next(i for i, line in enumerate(lines) if all(text.encode() in line for text in texts))

    found = told(change=lambda lines: [line for line in lines if line != entry])
    assert "entry" in found["problem"]
    found = told(change=lambda lines: [*lines, entry])
    assert "entry" in found["problem"]

    def reworded(lines: list[bytes]) -> list[bytes]:
        return [line.replace(b'"value":', b'"value":1', 1) if line == entry else line for line in lines]

    found = told(change=reworded)
    assert (found["where"]["session"], found["where"]["entry"]) == (mw, 2)
    registered = '"event":"registered"'
    found = told(
        change=lambda lines: [
            line for line in lines if not (registered.encode() in line and story.hidden.encode() in line)
        ]
    )
    assert found["where"]["dataset"] == story.hidden
    found = told(
        change=lambda lines: [
            line.replace(b'"epsilon":"1', b'"epsilon":"2').replace(b'"epsilon":1', b'"epsilon":2')
            if registered.encode() in line and story.hidden.encode() in line
            else line
            for line in lines
        ]
    )
    assert found["where"]["dataset"] == story.hidden
    assert "another data set" in found["problem"]
    found = told(
        change=lambda lines: [
            edited(line, recorded_at="2001-01-01T00:00:00Z") if b'"event":"retired"' in line else line for line in lines
        ]
    )
    assert found["where"]["dataset"] == story.retired
    assert "retired" in found["problem"]
    # A second header, and the record of a measurement that is not there.
    found = told(change=lambda lines: [*lines, lines[position(lines, '"record":"header"', mw)]])
    assert found["where"]["session"] == mw
    measurement = position((kept / "entries.ndjson").read_bytes().splitlines(), '"record":"measurement"', evidence)
    found = told(change=lambda lines: lines[:measurement] + lines[measurement + 1 :])
    assert found["where"]["session"] == evidence
    found = told(change=lambda lines: [*lines, b"no record"])
    assert "record" in found["problem"]


def test_an_old_copy(tmp_path: Path) -> None:
    """All of every budget is taken for an old copy: open sessions forfeit, data sets lose what is left. Catches books
    that have no such movements, and sums that are not full then."""
    with serving(tmp_path / "service") as service:
        names = [people(service) for _ in range(3)]
        ids = [open_session(service.admin, name, epsilon=0.3)["id"] for name in names[:2]]
        ids.append(
            open_session(service.admin, names[1], mechanism={"construction": "laplace"}, max_updates=None, epsilon=0.2)[
                "id"
            ]
        )
        for id in ids:
            ask(service.admin, id, QUESTIONS[0])
        assert service.admin.delete(f"/v1/datasets/{names[0]}").status_code == 200
        forfeit(service.built.store, utc_now, problems.document)
        key = service.admin.post("/v1/principals", json={"name": "eve", "role": "auditor"}).json()["api_key"]
        kept, deadline = LogFolder(tmp_path / "kept"), time.monotonic() + patience(20)
        with Curator(service.url, key) as curator:
            while True:
                curator.log(kept.path).fetch()
                found = kept.replay()
                assert found.ok or time.monotonic() < deadline, found.document()
                behind = sum(each["movements_not_in_log"] for each in found.datasets)
                if found.ok and not behind and [each["movements"] for each in found.datasets][1:] == [7, 1]:
                    break
                assert time.monotonic() < deadline, found.datasets
                time.sleep(0.1)
    for each in found.datasets:
        assert each["retired_at"] is not None
        assert Decimal(each["reserved"]["renyi"]) == 0
    assert all(Decimal(each["remaining"]["renyi"]) == 0 for each in found.datasets[1:])


def test_the_command(story: Story, tmp_path: Path) -> None:
    """Catches exit codes other than those documented, and output that is not the document."""
    kept = tmp_path / "kept"
    shutil.copytree(story.folder, kept)

    def audit(*arguments: str) -> tuple[int, str, str]:
        client = {"CURATOR_URL": story.service.url, "CURATOR_API_KEY": story.auditor}
        done = run(["audit", *arguments], environment(tmp_path, None) | client)
        return done.returncode, done.stdout, " ".join(done.stderr.split())

    code, shown, errors = audit("replay", str(kept), "--json")
    assert code == 0, errors
    assert json.loads(shown)["sessions"] == json.loads(json.dumps(story.settled.document()["sessions"]))
    code, shown, errors = audit("replay", str(kept))
    assert (code, "all follows" in shown) == (0, True), errors
    code, _, errors = audit("replay", str(kept), "--entries", "3")
    assert code == 2, errors
    path = kept / "sessions" / f"{story.ids['mw']}.ndjson"
    path.write_bytes(path.read_bytes().replace(b'"sequence":3', b'"sequence":4', 1))
    code, shown, errors = audit("replay", str(kept), "--json")
    assert (code, story.ids["mw"] in errors, json.loads(shown)["ok"]) == (1, True, False), errors
    lines = (kept / "entries.ndjson").read_bytes()
    (kept / "entries.ndjson").write_bytes(lines[:-2])
    code, _, errors = audit("replay", str(kept))
    assert (code, "not what was signed" in errors) == (3, True), errors
    code, _, errors = audit("replay", str(tmp_path))
    assert code == 1, errors
    code, shown, errors = audit("fetch", str(tmp_path / "new"))
    assert (code, "transcripts written: " in shown) == (0, True), errors
    assert io.BytesIO((tmp_path / "new" / "checkpoint").read_bytes()).readline()
