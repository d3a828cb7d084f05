"""A report and a replay of one folder: the report never says that all holds where the replay refuses.

A session's log is signed with one of its rules broken, one after the other: by the lines alone, by a transcript alone.
Both readings have the same rules; without this test one could be added to one of them, or taken out of it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curator_client.log_folder import LogFolder
from curator_client.log_report import report_of
from tests.audit.tampering import tell
from tests.audit.test_folder import line, log_of, played
from tests.kit.forger import Document, changed, documents_of, keep, places
from tests.kit.logs import Writer

pytestmark = pytest.mark.unit

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


def published(records: Records, release: str) -> None:
    told = {"name": records[0]["name"], "release": release, "manifest": "ab" * 32, "recorded_at": LATER}
    records.append({"record": "dataset", "event": "published", **told})


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
    "published by nobody": lambda log: published(log, "c3d4"),
    "published by a session": lambda log: published(log, "a1b2"),
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


# ------------------------------------------------------------------------------------------ what sessions start from

SHARED = {"construction": "evidence", "share": True}


def measured(log: Writer, session: str, dataset: str, mechanism: Document = SHARED) -> str:
    """A session that measures something; the name of that."""
    log.open(session, dataset, "0.1", mechanism=mechanism)
    name = log.measurement(session, "0.03")
    log.answer(session, "measurement", measurement=name)
    log.move("charge", session, "0.03", sequence=1)
    return name


def on_two_data_sets(log: Writer) -> None:
    name = measured(log, "s1", "people")
    log.open("s2", "people", "0.1", mechanism=SHARED, known=[name])
    log.open("s3", "survey", "0.1", mechanism=SHARED, known=[name])


def of_another_data_set(log: Writer) -> None:
    log.open("s2", "survey", "0.1", mechanism=SHARED, known=[measured(log, "s1", "people")])


def kept_to_itself(log: Writer) -> None:
    name = measured(log, "s1", "people", SHARED | {"share": False})
    log.open("s2", "people", "0.1", mechanism=SHARED, known=[name])


def no_name(log: Writer) -> None:
    log.open("s2", "people", "0.1", mechanism=SHARED, known=["no hash"])


def not_charged(log: Writer) -> None:
    log.open("s1", "people", "0.1", "0.01")
    log.answer("s1", "measurement")
    log.hour += 1
    log.open("s2", "survey", "0.1")


def no_such_event(log: Writer) -> None:
    log.principal("crowned", "ana")


#: What is wrong with a log, and what a replay says of it. The sessions have no transcripts.
LOGS: dict[str, tuple[Callable[[Writer], None], str]] = {
    "two data sets start from one measurement": (on_two_data_sets, "sessions on two data sets start from one"),
    "a measurement of another data set": (of_another_data_set, "of another data set"),
    "a measurement that is not shared": (kept_to_itself, "does not share"),
    "a measurement without a name": (no_name, "a header describes no session"),
    "what was measured is not charged": (not_charged, "paid less than its records cost"),
    "a principal's event is none": (no_such_event, "a principal that is not known"),
}


@pytest.mark.parametrize("fault", [None, *LOGS])
def test_both_know_a_fault_of_the_lines_alone(tmp_path: Path, fault: str | None) -> None:
    """Rules across sessions and data sets. Catches one that a replay holds and a report does not, or the other way
    round: then one of them says that all holds, or speaks of the transcripts that are not there."""
    log = Writer()
    log.register("people")
    log.register("survey")
    if fault is None:
        log.open("s2", "people", "0.1", mechanism=SHARED, known=[measured(log, "s1", "people")])
    else:
        LOGS[fault][0](log)
    kept = keep(tmp_path / "log", log.lines)
    found, document = LogFolder(kept).replay().broken, report_of(kept)
    assert found is not None
    if fault is None:
        assert found.problem == "the transcript is missing"
        assert document["holds"], document["checks"]
    else:
        assert LOGS[fault][1] in found.problem
        assert not document["holds"]
        assert found.problem in {each["says"] for each in document["findings"]["first"]}


# ------------------------------------------------------------------------------------------ whatever is changed


def keep_all(folder: Path, lines: list[bytes], transcripts: dict[str, list[bytes]]) -> Path:
    """A folder with these lines, signed, and transcripts by their ids."""
    kept = keep(folder, lines)
    for id, own in transcripts.items():
        place = kept / ("releases" if b'"workload"' in own[0] else "sessions")
        place.mkdir(exist_ok=True)
        (place / f"{id}.ndjson").write_bytes(b"".join(each + b"\n" for each in own))
    return kept


def hurt(rng: random.Random, lines: list[bytes]) -> None:
    """Change, leave out, repeat or move one of some lines."""
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case 2:
            lines.pop(at)
        case _:
            documents = documents_of(lines)
            place = rng.choice([*places(documents[at])])
            made = changed(documents, at, place, drop=rng.random() < 0.2)[at]
            made.pop("_was", None)
            lines[at] = line(made)


@pytest.mark.slow
def test_both_say_the_same_of_whatever_is_changed(tmp_path: Path) -> None:
    """A service's log and transcripts, of which one thing is other than it was. Catches a rule that one of the two
    lacks, among them those across sessions: what they buy, start from, measure and give back."""
    told = tell(tmp_path / "service", ["evidence", "mw, bought", "workload"])
    ids = [json.loads(own[0])["session"] for pair in told.transcripts.values() for own in pair]
    honest = dict(zip(ids, (own for pair in told.transcripts.values() for own in pair), strict=True))
    kept = keep_all(tmp_path / "honest", told.log, honest)
    assert LogFolder(kept).replay().ok
    assert all(each["holds"] for each in report_of(kept, replay=True)["checks"])
    rng, refused = random.Random(7), [0, 0]
    for number in range(24):
        log, transcripts = [*told.log], {id: [*own] for id, own in honest.items()}
        of_log = number % 3 != 0
        hurt(rng, log if of_log else transcripts[rng.choice(ids)])
        kept = keep_all(tmp_path / f"log{number}", log, transcripts)
        replayed, document = LogFolder(kept).replay(), report_of(kept, replay=True)
        assert document["holds"] == replayed.ok, (number, replayed.document()["problem"], document["checks"])
        assert report_of(kept)["holds"] >= replayed.ok
        refused[of_log] += not replayed.ok
    assert min(refused) > 4
