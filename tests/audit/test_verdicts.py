"""Verdicts: what was checked and what was not stands in them and is printed; what does not hold is raised."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from curator_client import Contradicted, Curator, Fetched, Log, MissingExtra, NotVerified, Verdict, replay
from tests.audit.test_log_client import caller, session, soon
from tests.kit.service import Service, people

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def curator(service: Service) -> Iterator[Curator]:
    with caller(service) as client:
        yield client


@pytest.fixture(scope="module")
def transcript(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session(service, tmp_path_factory.mktemp("transcript"))


@pytest.fixture(scope="module")
def kept(service: Service, curator: Curator, transcript: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has all of the log, with transcripts as an auditor's key reads them."""
    folder = tmp_path_factory.mktemp("log") / "LOG"
    with Curator(service.url, service.principal("auditor").headers["authorization"].split()[1]) as auditor:
        log = auditor.log(folder)

        def all_of_it() -> Fetched:
            found = log.fetch(progress=lambda done, of: None)
            log.verify(transcript)
            return found

        found = soon(all_of_it)
    assert isinstance(found, int)
    assert found == found.checkpoint.size > 0
    assert (found.written > 0, found.refused) == (True, ())
    return folder


def test_a_transcript_and_the_log(kept: Path, transcript: Path) -> None:
    """Catches a check that says no more than that it passed."""
    log = Log(kept)
    verdict = log.verify(transcript)
    assert verdict
    assert verdict.summary["records"] == 3
    assert verdict.summary["log"]["size"] > 3
    assert any("all 3 records" in each for each in verdict.checked)
    assert any("replay" in each for each in verdict.not_checked)
    assert str(verdict).splitlines() == [
        *(f"checked: {each}" for each in verdict.checked),
        *(f"not checked: {each}" for each in verdict.not_checked),
    ]
    with pytest.raises(ValueError, match="fetched from a service"):
        log.fetch()


def test_two_auditors(kept: Path, tmp_path: Path) -> None:
    """Catches a smaller view that is taken for all."""
    shutil.copytree(kept, tmp_path / "other")
    verdict = Log(kept).compare(tmp_path / "other")
    assert verdict.summary["shown_to_both"] == verdict.summary["log"]["size"]
    (tmp_path / "other" / "entries.ndjson").write_bytes(b"")
    with pytest.raises(NotVerified):
        Log(tmp_path / "nothing").compare(tmp_path / "other")


def test_all_of_it(kept: Path, tmp_path: Path) -> None:
    """A replay and a report of the whole folder; then of one whose line was changed. Catches a verdict of what does not
    hold, and a report that is not written of it.
    """
    log = Log(kept)
    heard: list[int] = []
    verdict = log.replay(progress=lambda done, of: heard.append(done))
    assert verdict.summary["ok"]
    assert heard
    assert len(verdict.checked) == 3
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    reported = log.report(html=page, json=document, replay=True)
    told = json.loads(document.read_text())
    assert [*reported.checked] == [each["says"] for each in told["checks"] if each["holds"]]
    assert page.read_text().startswith("<!")
    shutil.copytree(kept, tmp_path / "changed")
    entries = tmp_path / "changed" / "entries.ndjson"
    entries.write_bytes(entries.read_bytes().replace(b'"sequence":2', b'"sequence":9', 1))
    changed = Log(tmp_path / "changed")
    page.unlink()
    with pytest.raises(Contradicted):
        changed.report(html=page)
    assert page.exists()
    for ask in (changed.replay, lambda: changed.verify(next((kept / "sessions").glob("*.ndjson")))):
        with pytest.raises(Contradicted):
            ask()
    shutil.copytree(kept, tmp_path / "without")
    next((tmp_path / "without" / "sessions").glob("*.ndjson")).unlink()
    with pytest.raises(NotVerified, match="the transcript is missing"):
        Log(tmp_path / "without").replay()


def test_a_file(transcript: Path, tmp_path: Path) -> None:
    """Catches a hash that is looked for and not found, a number of entries that is not, and words that promise more."""
    lines = transcript.read_bytes().splitlines()
    head = json.loads(lines[-2])["entry_hash"]
    verdict = replay(transcript, head=head, entries=2)
    assert verdict.summary["kept_head_at"] == 2
    assert any("hash that was kept is that of entry 2" in each for each in verdict.checked)
    assert any("give head and entries" in each for each in replay(transcript).not_checked)
    with pytest.raises(NotVerified):
        replay(transcript, head="0" * 64)
    changed = tmp_path / "changed.ndjson"
    changed.write_bytes(transcript.read_bytes().replace(b'"sequence":2', b'"sequence":9'))
    with pytest.raises(NotVerified, match=r"changed\.ndjson: entry 2"):
        replay(changed)


def test_a_transcript_whose_measurement_is_another(service: Service, curator: Curator, tmp_path: Path) -> None:
    """Nothing of the chain but a measurement is changed, which the entry names by its hash. Catches a chain that is
    followed past it, where there is no replay.
    """
    with curator.session(people(service), epsilon=0.2, max_queries=9) as asked:
        asked.group_by("sex")
        honest = asked.transcript

        def changed(path: Path | str, **more: object) -> Path:
            target = honest(path)
            before, found, after = target.read_bytes().partition(b'"kind":"gaussian"')
            assert found
            target.write_bytes(before + found + after.replace(b'"values":[', b'"values":[1', 1))
            return target

        asked.verify()
        asked.transcript = changed  # type: ignore[assignment, method-assign]
        with pytest.raises(NotVerified, match="measurement that nothing names"):
            asked.verify()


def test_nothing_is_left_out_silently(
    service: Service, curator: Curator, transcript: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what a check needs the extra is named, before anything is downloaded; without both the first strength
    needs neither. Catches a check that is skipped.
    """
    log = Log(kept)
    with curator.session(people(service), epsilon=0.2, max_queries=9) as asked:
        for name in ("app.verifying.transcript", "app.verifying.folder", "app.report.reader", "app.audit.replay"):
            monkeypatch.setitem(sys.modules, name, None)
        for needs in (
            lambda: asked.verify(replay=True),
            lambda: replay(transcript),
            log.replay,
            lambda: log.report(html=kept / "report.html"),
        ):
            with pytest.raises(MissingExtra, match=r"curator-client\[replay\]"):
                needs()
        monkeypatch.setitem(sys.modules, "cryptography", None)
        for needs in (lambda: asked.verify(log=kept), lambda: asked.verify(log=True), lambda: curator.log(kept)):
            with pytest.raises(MissingExtra, match=r"curator-client\[log\]"):
                needs()
        assert asked.verify().summary["entries"] == 0


@pytest.mark.unit
def test_how_it_is_shown() -> None:
    """Catches markup in what was found that a notebook would take for its own."""
    verdict = Verdict(["a <b>"], ["c & d"], {})
    html = verdict._repr_html_()
    assert "<b>" not in html
    assert ("a &lt;b&gt;" in html, "c &amp; d" in html) == (True, True)
    assert bool(verdict) is True
    assert str(verdict) == "checked: a <b>\nnot checked: c & d"
