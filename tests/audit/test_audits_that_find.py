"""Audits as a service of what was tampered with: each finding is that of an own replay, in the same words, and an audit
that skips a rule is seen.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import audit_worker
from app.bootstrap.noise import SystemNoise
from app.bootstrap.nursery import Nursery
from tests.audit.auditing import audited, caught_up, check_same, own_replay, story
from tests.kit.forger import documents_of, resealed
from tests.kit.service import JSON, Service, serving

pytestmark = [pytest.mark.api, pytest.mark.slow]


def of_its_own(service: Service, folder: Path) -> tuple[JSON, JSON | str]:
    """An audit of everything, and an own replay of the same state."""
    auditor = service.principal("auditor")
    caught_up(service, [])  # with that, too
    last = audited(auditor)
    return last, own_replay(service, auditor.headers["Authorization"].removeprefix("Bearer "), folder)


def change(folder: Path, statement: str, *rows: tuple[Any, ...]) -> int:
    """Change rows of the database behind the service's back; how many there were."""
    with closing(sqlite3.connect(folder / "curator.sqlite3", timeout=30)) as database:
        changed = sum(database.execute(statement, row).rowcount for row in rows or [()])
        database.commit()
    return changed


def test_a_row_that_was_changed(tmp_path: Path) -> None:
    """An entry's time is changed where it is stored: the log is not what was signed. Catches an audit that holds what
    it reads against nothing, and one that does not say which entry it is.
    """
    with serving(tmp_path / "service", noise=SystemNoise()) as service:
        ids = story(service)
        (line,) = (row[-1] for row in service.rows("entries") if row[:2] == (ids[0], 2))
        other = line.replace(b'"recorded_at":"20', b'"recorded_at":"19')
        assert other != line
        statement = "UPDATE entries SET line = ? WHERE session = ? AND sequence = 2"
        assert change(tmp_path / "service", statement, (other, ids[0])) == 1
        last, own = of_its_own(service, tmp_path)
        assert isinstance(own, str)
        assert "entries that was signed" in own
        check_same(last, own)
        where = last["result"]["finding"]["where"]
        assert (where["session"], where["entry"]) == (ids[0], 2)
        checks = {each["check"]: each["holds"] for each in last["result"]["checks"]}
        assert (checks["lines"], checks["chains"], checks["replay"]) == (False, False, None)
        assert "2" in last["result"]["finding"]["problem"]
        # Another session's audit reads the same log.
        assert audited(service.principal("auditor"), session=ids[1])["verdict"] == "does not hold"


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a service whose operator has rewritten the past while it stood still: one value that he says was
    answered, all hashes that follow from it, and the log; and the session.
    """
    folder = tmp_path_factory.mktemp("rewritten")
    with serving(folder, noise=SystemNoise()) as service:
        ids = story(service)
        transcript = service.admin.get(f"/v1/sessions/{ids[0]}/transcript").content.splitlines()
    documents = documents_of(transcript)
    (second,) = (each for each in documents if each.get("sequence") == 2)
    second["value"] = second["value"] + 1.0
    lines = resealed(documents)
    entries = [(line, ids[0], number) for number, line in enumerate(lines[1:-1], start=1)]
    assert change(folder, "UPDATE entries SET line = ? WHERE session = ? AND sequence = ?", *entries) == len(entries)
    (head,) = (each["entry_hash"] for each in documents_of(lines) if each.get("sequence") == len(entries))
    change(folder, "UPDATE sessions SET head_hash = ? WHERE id = ?", (head, ids[0]))
    for table in ("log_runs", "log_tiles", "log_state", "log_sessions"):
        change(folder, f"DELETE FROM {table}")
    return folder, ids[0]


def test_a_past_that_was_rewritten(rewritten: tuple[Path, str], tmp_path: Path) -> None:
    """The log is whole and signed, and its chains agree: only the replay of the transcript finds the value. Catches an
    audit that checks hashes alone, and one that says it in other words than an own replay.
    """
    folder, session = rewritten
    with serving(folder, noise=SystemNoise()) as service:
        caught_up(service, [session])
        last, own = of_its_own(service, tmp_path)
        assert isinstance(own, dict)
        assert own["ok"] is False
        assert (own["where"]["session"], own["where"]["entry"]) == (session, 2)
        check_same(last, own)
        checks = {each["check"]: each["holds"] for each in last["result"]["checks"]}
        assert (checks["lines"], checks["replay"]) == (True, False)
        alone = audited(service.principal("auditor"), session=session)
        assert alone["result"]["finding"] == last["result"]["finding"]
        # What it showed before, he cannot take back: who kept a checkpoint of it is told.
        assert "does not hold" in service.admin.get(last["links"]["report"]).text


@pytest.mark.parametrize("bug", ["no replay", "no finding"])
def test_an_audit_that_skips_a_rule_is_seen(
    rewritten: tuple[Path, str], tmp_path: Path, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is planted a bug. Catches a comparison that would not see it."""
    folder, session = rewritten
    monkeypatch.setenv("PLANTED", bug)
    nursery = Nursery("tests.audit.lax_worker")
    monkeypatch.setattr(audit_worker, "_NURSERY", nursery)
    with serving(folder, noise=SystemNoise()) as service:
        caught_up(service, [session])
        last, own = of_its_own(service, tmp_path)
        assert last["verdict"] == "holds"
        with pytest.raises(AssertionError):
            check_same(last, own)
    nursery.end()
