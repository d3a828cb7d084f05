"""A fault of the replay itself is no verdict: not of a transcript, not of a folder, not in a report, and the commands
have an exit code for it.

Faults are planted where sessions decide and where measurements are taken in. LAPACK says ``LinAlgError``, a
``ValueError``, of what one machine's rounding makes of a matrix and another's does not; assertions are this program's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from numpy.linalg import LinAlgError

from app.audit import books, writing
from app.audit.failures import Malformed, Undecided, taking_apart
from app.audit.replay import replay
from app.cli import main
from app.curator.session import Session
from app.declarations.errors import InvalidRequest
from app.measurements.strategies.tables import TableStrategy
from app.services import openings
from app.services.errors import Unavailable
from curator_client.log_report import report_of
from tests.audit.test_folder import log_of, played
from tests.audit.test_replay import TABLE
from tests.audit.test_report_against_replay import folder_of
from tests.evidence.test_replay_of_evidence import played as evidence

pytestmark = pytest.mark.unit

FAULTS = [LinAlgError, AssertionError, KeyError, AttributeError, TypeError, ValueError, ZeroDivisionError, MemoryError]


def planted(patch: pytest.MonkeyPatch, fault: type[Exception]) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise fault("planted")

    patch.setattr(Session, "consider", fail)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_mathematics_is_no_verdict(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an honest transcript that is refused for it, and one that is accepted."""
    assert replay(played().lines).ok
    planted(monkeypatch, fault)
    with pytest.raises(Undecided, match=f"at entry 1 .{fault.__name__}.") as found:
        replay(played().lines)
    assert found.value.sequence == 1


#: Where a transcript's or a log's documents meet this program's own code.
GUARDED: list[tuple[Any, str]] = [
    (TableStrategy, "check"),
    (writing, "answer_entry"),
    (books, "parse_spec"),
]


@pytest.mark.parametrize("fault", [AssertionError, KeyError, AttributeError, TypeError])
@pytest.mark.parametrize(("owner", "name"), GUARDED)
def test_a_fault_where_documents_are_held_against_ours_is_no_verdict(
    owner: Any, name: str, fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a fault of ours that is told as the record's: "cannot be read", "declares no data set"."""
    lines, registration = evidence(4).transcript(), {"name": TABLE.declared["name"], "declared": TABLE.declared}
    assert replay(lines).ok
    books.Registered.read(registration)

    def fail(*_args: object, **_more: object) -> None:
        raise fault("planted")

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(fault if owner is books else Undecided):
        books.Registered.read(registration) if owner is books else replay(lines)


def test_commands_and_reports_say_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an exit code that scripts read as a finding."""
    kept = folder_of(tmp_path, log_of(played()))
    planted(monkeypatch, AssertionError)
    with pytest.raises(Undecided):
        report_of(kept, replay=True)
    assert report_of(kept)["holds"]
    transcript = str(kept / "sessions" / "a1b2.ndjson")
    for command in (["replay", transcript], ["replay", str(kept)], ["report", str(kept), "--replay", "--json", "-"]):
        monkeypatch.setattr(sys, "argv", ["curator", "audit", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 4
        told = " ".join(capsys.readouterr().err.split())
        assert "no verdict" in told
        assert "does not" not in told


def test_what_is_a_documents_fault() -> None:
    """Where a document is taken apart errors of type and key are its own; an assertion, or of LAPACK, never is."""
    for error in (KeyError, TypeError, ValueError, InvalidRequest):
        with pytest.raises(Malformed), taking_apart():
            raise error("planted")
    for ours in (AssertionError, LinAlgError, MemoryError):
        with pytest.raises(ours), taking_apart():
            raise ours("planted")


def test_what_the_service_recorded_is_no_fault_of_a_caller() -> None:
    """Catches a refusal of the service's own record that is told as the request's: 422 in the place of 503."""
    openings._kept.clear()
    header = played().lines[0]
    assert openings.opening_of(header).request.max_updates == 4
    with pytest.raises(Unavailable, match="operator"):
        openings.opening_of(header.replace(b'"construction":"mw"', b'"construction":"xx"', 1))
