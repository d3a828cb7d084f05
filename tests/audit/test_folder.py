"""A folder that a stranger signed gets a verdict, whatever its lines say; and a tree goes on from its peaks."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.audit.verdict import FolderVerdict
from app.verifying.folder import replay_folder
from curator_client.log_report import report_of
from curator_client.proofs.follower import Follower
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer
from tests.audit.test_replay import CELLS, COUNTS, TABLE
from tests.audit.transcripts import Played, play_session

pytestmark = pytest.mark.unit

SIGNER = Signer(bytes(range(32)))


@cache
def played() -> Played:
    return play_session(TABLE, COUNTS, CELLS[:4], mechanism={"construction": "mw"}, max_updates=4, seed=2)


def line(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def log_of(session: Played) -> list[dict[str, Any]]:
    """The records of the log that the session of a service would have left."""
    header, *rest = session.documents
    entries, plan = [each for each in rest if each["record"] == "answer"], header["plan"]
    declared = {**TABLE.declared, "records_public": True}
    records: list[dict[str, Any]] = [
        {
            "record": "dataset",
            "event": "registered",
            "name": header["dataset"]["name"],
            "declared": declared,
            "records": header["dataset"]["records"],
            "recorded_at": "2026-01-01T00:00:00Z",
        },
        header,
    ]

    def move(kind: str, amount: str, pure: str | None, sequence: int | None, at: str) -> None:
        number = sum(each["record"] == "movement" for each in records) + 1
        told = {"record": "movement", "number": number, "dataset": header["dataset"]["name"], "sequence": sequence}
        told |= {"session": header["session"], "kind": kind, "amount": amount, "pure": pure, "recorded_at": at}
        records.append(told)

    move("reserve", plan["reserved"], plan["reserved_pure"], None, header["opened_at"])
    for entry in entries:
        records.append(entry)
        if entry["source"] == "measurement":
            price = plan["cost_per_update"], plan["cost_per_update_pure"]
            move("charge", *price, entry["sequence"], entry["recorded_at"])
    return records


def judged(folder: Path, lines: list[bytes], session: Played) -> FolderVerdict:
    (folder / "sessions").mkdir(parents=True, exist_ok=True)
    (folder / "sessions" / "a1b2.ndjson").write_bytes(session.content)
    (folder / "entries.ndjson").write_bytes(b"".join(each + b"\n" for each in lines))
    tree = Frontier()
    for each in lines:
        tree.append(leaf_hash(each))
    seen = SIGNER.verifier.checkpoint(SIGNER.note(tree.size, tree.root()))
    return replay_folder(folder, Follower(SIGNER.verifier, seen))


def written(session: Played) -> list[bytes]:
    """The log's lines: of the session as they are, others sorted."""
    own = {json.dumps(json.loads(each), sort_keys=True): each for each in session.lines}
    return [own.get(json.dumps(each, sort_keys=True), line(each)) for each in log_of(session)]


def test_an_honest_folder_is_accepted(tmp_path: Path) -> None:
    """The changes below are worth something only if this follows."""
    session = played()
    found = judged(tmp_path, written(session), session)
    assert found.ok, found.document()
    (told,) = found.document()["sessions"]
    assert (told["answers"], told["entries_not_in_log"], told["movements_not_in_log"]) == (4, 0, 0)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a1b2", "movement", "answer", "header", "dataset", "../x", "\0", "1e999999999", "0" * 99]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["name", "known"]), st.integers(), max_size=2),
)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_line_says_there_is_a_verdict(tmp_path: Path, data: st.DataObject) -> None:
    """One field of one record of the log is anything at all, or missing. Catches an exception, a change that is taken
    for true, and a report that says other than the replay."""
    session = played()
    records, lines = log_of(session), written(session)
    i = data.draw(st.integers(0, len(records) - 1))
    document = copy.deepcopy(records[i])
    at = document
    while True:
        key = data.draw(st.sampled_from(sorted(at)))
        if not (isinstance(at[key], dict) and at[key] and data.draw(st.booleans())):
            break
        at = at[key]
    if data.draw(st.booleans()):
        at.pop(key)
    else:
        at[key] = data.draw(VALUES)
    lines[i] = line(document)
    found = judged(tmp_path, lines, session)
    # Nothing follows from when a data set was registered; what a declaration leaves out is what it would say. Where the
    # last entry is a record of another kind, the log lacks it, which is told.
    if document != records[i] and found.ok and not found.datasets[0]["entries_not_in_log"]:
        assert document["record"] == "dataset"
        assert found.datasets[0]["epsilon"] == "1.0"
    assert found.ok or found.document()["problem"]
    (tmp_path / "key").write_text(SIGNER.verifier.text() + "\n")
    (tmp_path / "checkpoint").write_bytes(SIGNER.note(found.log.size, found.log.root))
    assert report_of(tmp_path, replay=True)["holds"] == found.ok


@given(st.integers(0, 70), st.integers(0, 20))
def test_a_tree_goes_on_from_its_peaks(before: int, after: int) -> None:
    """Catches peaks that are kept in another order, or too few of them."""
    leaves = [leaf_hash(str(i).encode()) for i in range(before + after)]
    whole, first = Frontier(), Frontier()
    for leaf in leaves:
        whole.append(leaf)
    for leaf in leaves[:before]:
        first.append(leaf)
    again = Frontier(before, first.hashes)
    for leaf in leaves[before:]:
        again.append(leaf)
    assert (again.size, again.root()) == (whole.size, whole.root())
