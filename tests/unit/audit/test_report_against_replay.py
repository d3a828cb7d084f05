"""A report and a replay of one folder: the report never says that all holds where the replay refuses.

A session's log is signed with one of its rules broken, one after the other: by the lines alone, by a transcript alone.
Both readings have the same rules; without this test one could be added to one of them, or taken out of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.client import LogFolder
from app.client.log_report import report_of
from tests.unit.audit.logs import keep
from tests.unit.audit.test_folder import line, log_of, played
from tests.unit.audit.transcripts import Document

Records = list[Document]


def folder_of(place: Path, records: Records) -> Path:
    """A folder with these lines, signed, and the session's transcript."""
    own = {json.dumps(json.loads(each), sort_keys=True): each for each in played().lines}
    kept = keep(place / "log", [own.get(json.dumps(each, sort_keys=True), line(each)) for each in records])
    (kept / "sessions").mkdir(exist_ok=True)
    (kept / "sessions" / "a1b2.ndjson").write_bytes(played().content)
    return kept


def first(records: Records, record: str, **fields: Any) -> Document:
    return next(each for each in records if {"record": record, **fields}.items() <= each.items())


def movement(records: Records, kind: str) -> Document:
    return first(records, "movement", kind=kind)


def more(records: Records, like: str, **fields: Any) -> None:
    """One movement more, like the first of a kind."""
    last = max(each["number"] for each in records if each["record"] == "movement")
    records.append({**copy.deepcopy(movement(records, like)), "number": last + 1, **fields})


def retired(records: Records, at: str) -> None:
    records.append({"record": "dataset", "event": "retired", "name": records[0]["name"], "recorded_at": at})


LATER = "2026-06-01T00:00:00Z"
NOT_BOUGHT = {"mass": {"noise_scale": 1.0, "value": 3.0}}
#: What is wrong with the lines, by the rule that it breaks.
LINES: dict[str, Callable[[Records], Any]] = {
    "registered twice": lambda log: log.append(copy.deepcopy(log[0])),
    "never registered": lambda log: log.pop(0),
    "another declaration was registered": lambda log: log[0]["declared"].update(description="another"),
    "another number of records was registered": lambda log: log[0].update(records=3.0),
    "retired before the opening": lambda log: retired(log, "2000-01-01T00:00:00Z"),
    "retired twice": lambda log: (retired(log, LATER), retired(log, LATER)),
    "another one is retired": lambda log: (retired(log, LATER), log[-1].update(name="nobody")),
    "numbers go back": lambda log: movement(log, "charge").update(number=1),
    "reserved at another time": lambda log: movement(log, "reserve").update(recorded_at="2026-01-01T00:00:01Z"),
    "reserved for an entry": lambda log: movement(log, "reserve").update(sequence=1),
    "another amount is reserved": lambda log: movement(log, "reserve").update(amount="0.001"),
    "nothing is reserved": lambda log: log.remove(movement(log, "reserve")),
    "charged before it is reserved": lambda log: log.insert(2, log.pop(log.index(movement(log, "charge")))),
    "bought and not said": lambda log: more(log, "charge", kind="purchase", sequence=None),
    "an entry is charged twice": lambda log: more(log, "charge"),
    "charged for an earlier entry": lambda log: more(log, "charge", sequence=0),
    "less is returned than is left": lambda log: more(log, "charge", kind="return", sequence=4),
    "forfeited without an end": lambda log: more(log, "charge", kind="forfeit", sequence=4),
    "a data set forfeits": lambda log: more(log, "charge", kind="forfeit", session=None, sequence=None),
    "another fact is stated": lambda log: log[1]["dataset"].update(bought=NOT_BOUGHT),
    "another number of races is stated": lambda log: log[1]["dataset"].update(race_sessions=1),
    "an entry is another": lambda log: first(log, "answer", sequence=2).update(recorded_at=LATER),
    "an entry is missing": lambda log: log.remove(first(log, "answer", sequence=2)),
    "two headers": lambda log: log.append(copy.deepcopy(log[1])),
}


@pytest.mark.parametrize("fault", [None, *LINES])
def test_what_a_replay_refuses_does_not_hold(tmp_path: Path, fault: str | None) -> None:
    """Catches a rule that only one of the two has, and one that an honest log breaks. Lines alone are enough: without
    the transcripts the report finds all of it, too."""
    log = log_of(played())
    if fault is not None:
        LINES[fault](log)
    kept = folder_of(tmp_path, log)
    found = LogFolder(kept).replay()
    told = {replay: report_of(kept, replay=replay) for replay in (True, False)}
    assert found.ok == (fault is None), found.document()
    assert {replay: document["holds"] for replay, document in told.items()} == {True: found.ok, False: found.ok}


#: What is wrong with the transcripts.
FILES: dict[str, Callable[[Path], Any]] = {
    "missing": lambda place: place.unlink(),
    "of another session": lambda place: place.rename(place.with_name("c3d4.ndjson")),
    "a stray": lambda place: place.with_name("c3d4.ndjson").write_bytes(b""),
    "cut off": lambda place: place.write_bytes(b"".join(place.read_bytes().splitlines(keepends=True)[:-1])),
    "empty": lambda place: place.write_bytes(b""),
}


@pytest.mark.parametrize("fault", FILES)
def test_transcripts_that_a_replay_refuses_do_not_hold(tmp_path: Path, fault: str) -> None:
    """Where a report replays them. Catches a transcript that it passes over."""
    kept = folder_of(tmp_path, log_of(played()))
    FILES[fault](kept / "sessions" / "a1b2.ndjson")
    assert not LogFolder(kept).replay().ok
    assert not report_of(kept, replay=True)["holds"]
