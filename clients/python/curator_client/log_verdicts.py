"""What is found of a log that a folder keeps, as verdicts. Nothing here calls a service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curator_client.comparing import compare
from curator_client.errors import Contradicted, NotVerified
from curator_client.extras import server
from curator_client.log_folder import LogFolder
from curator_client.log_report import report_of
from curator_client.verdict import NEVER, Verdict, log_of

_GROWN = "entries that came into the log since it was fetched"
_REPLAY = 'that plans, prices, noise scales and free answers follow: replay them (the extra "replay")'
_OTHERS = "that others were shown the same log: compare it, or have it cosigned by witnesses"


def verified(folder: LogFolder, transcript: Path | str) -> Verdict:
    """Of :meth:`LogFolder.verify`."""
    found, count = folder.verify(transcript)
    checked = [f"all {count} records of the transcript are among the {found.size} entries of {found.origin}"]
    return Verdict(checked, [_REPLAY, _OTHERS, NEVER], {"log": log_of(found), "records": count})


def compared(folder: LogFolder, other: Path) -> Verdict:
    """Of :func:`curator_client.comparing.compare`."""
    smaller, larger = compare(folder, other)
    checked = [f"{larger.origin}: one log; of its {larger.size} entries the first {smaller.size} were shown to both"]
    left = [f"the {larger.size - smaller.size} entries behind"] if larger.size > smaller.size else []
    return Verdict(checked, [*left, _REPLAY, NEVER], {"log": log_of(larger), "shown_to_both": smaller.size})


def file_checked(folder: LogFolder, dataset: str, file: Path | str, key: str) -> Verdict:
    """Of :meth:`LogFolder.check_file`."""
    found = folder.check_file(dataset, file, bytes.fromhex(key))
    checked = [f"{file} is the file that {dataset} was registered with, by the {found.size} entries of {found.origin}"]
    left = ["that answers were computed from it: only who has it could look", _OTHERS]
    return Verdict(checked, left, {"log": log_of(found), "dataset": dataset, "file": str(file)})


def replayed(
    folder: LogFolder, progress: Callable[[int, int | None], None] | None, memory_limit: int | None
) -> Verdict:
    """Of :meth:`LogFolder.replay`."""
    verdict = folder.replay(progress, memory_limit=memory_limit)
    if verdict.broken is not None:
        raise NotVerified(f"{folder.path}: {placed(verdict.broken)}")
    document: dict[str, Any] = verdict.document()
    answers = sum(each["answers"] for each in document["datasets"])
    checked = [
        f"the {verdict.log.size} entries of {verdict.log.origin} are those that were signed",
        f"the books of {len(document['datasets'])} data sets: no budget is passed, every charge is a session's",
        f"{len(document['sessions'])} transcripts are what the log has, and their {answers} answers follow: plans, "
        "prices, noise scales and free answers",
    ]
    missing = [
        f"{count} {what} of transcripts are not in the log yet: fetch it again"
        for what in ("entries", "movements")
        if (count := sum(each[f"{what}_not_in_log"] for each in document["datasets"]))
    ]
    return Verdict(checked, [*missing, _GROWN, _OTHERS, NEVER], document)


def reported(
    folder: LogFolder,
    html: Path | str | None,
    as_json: Path | str | None,
    replay: bool,
    earlier: Path | str | None,
    memory_limit: int | None,
) -> Verdict:
    """Of :func:`curator_client.log_report.report_of`; writes the files."""
    before = None if earlier is None else Path(earlier)
    document = report_of(folder.path, earlier=before, replay=replay, memory_limit=memory_limit)
    if html is not None:
        Path(html).write_text(server("report.page").page(document), encoding="utf-8")
    if as_json is not None:
        Path(as_json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    checks = document["checks"]
    wrong = [each["says"] for each in checks if each["holds"] is False]
    if wrong:
        kind = Contradicted if document["contradicted"] else NotVerified
        raise kind(f"the log does not hold: {wrong[0].removeprefix('Not so: ')}")
    checked = [each["says"] for each in checks if each["holds"]]
    left = [each["says"] for each in checks if each["holds"] is None]
    return Verdict(checked, [*left, _GROWN, NEVER], document)


def placed(broken: Any) -> str:
    """What does not follow, behind the place where it is."""
    places = {
        "data set": broken.dataset,
        "session": broken.session,
        "movement": broken.movement,
        "entry": broken.entry,
    }
    where = ", ".join(f"{name} {place}" for name, place in places.items() if place is not None)
    return f"{where}: {broken.problem}" if where else str(broken.problem)
