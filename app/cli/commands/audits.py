"""Commands that check transcripts and the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.connection import client
from app.cli.errors import Contradiction, Refusal
from app.cli.groups import audits
from app.cli.inputs import parse_size
from app.cli.options import AsJson, ExistingFile
from app.cli.rendering import err, out, show_books, show_verdict


@audits.command("replay")
def audit_replay(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            exists=True,
            readable=True,
            help="A transcript, or a folder that `fetch` keeps.",
            show_default=False,
        ),
    ],
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="HASH",
            help="A head_hash or entry_hash that was kept while the session ran; it must be in the transcript's chain.",
            show_default=False,
        ),
    ] = None,
    entries: Annotated[
        int | None,
        typer.Option(
            "--entries",
            min=0,
            help="How many entries there were at least; with --head, the sequence of the one that has the hash.",
            show_default=False,
        ),
    ] = None,
    memory_limit: Annotated[
        str, typer.Option(help="Most memory that the transcript may take, such as 500MB; what needs more is refused.")
    ] = "4GiB",
    as_json: AsJson = False,
) -> None:
    """Check a transcript by itself: its chain, its plan, and every answer derived from earlier ones. Of a folder
    that `fetch` keeps: the log, the books of every data set, and every transcript against both.

    Whoever can rewrite the whole file can make times, a cut end, the status and measurements agree again:
    --head with a hash from a reply, kept elsewhere, shows that what stands up to it is what it was. So does the log.

    Exit code 1 when something does not follow or is missing, 3 when a folder is not what was signed.
    """
    limit = parse_size(memory_limit, "--memory-limit")
    if place.is_dir():
        if head is not None or entries is not None:
            raise typer.BadParameter("of one transcript, not of a folder", param_hint="--head, --entries")
        _replay_folder(place, limit, as_json=as_json)
        return
    from app.audit.replay import replay_file

    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head := head.strip().lower()):
        raise typer.BadParameter("a hash has 64 hexadecimal digits", param_hint="--head")
    with _replaying() as progress:
        verdict = replay_file(place, progress, head=head, entries=entries, memory_limit=limit)
    show_verdict(verdict, as_json=as_json)
    if not verdict.ok:
        where = f"entry {verdict.sequence}: " if verdict.sequence is not None else ""
        raise Refusal(f"the transcript does not replay: {where}{verdict.problem}")


def _replay_folder(folder: Path, memory_limit: int, *, as_json: bool) -> None:
    """Replay all that a folder keeps, and print what was found."""
    from app.client.errors import NotVerified
    from app.client.log import Contradicted, LogFolder

    try:
        with _replaying() as progress:
            verdict = LogFolder(folder).replay(progress, memory_limit=memory_limit)
    except Contradicted as error:
        raise Contradiction(f"the folder is not what was signed: {error}") from None
    except NotVerified as error:
        raise Refusal(str(error)) from None
    show_books(verdict, as_json=as_json)
    broken = verdict.broken
    if broken is not None:
        places = {
            "data set": broken.dataset,
            "session": broken.session,
            "movement": broken.movement,
            "entry": broken.entry,
        }
        where = ", ".join(f"{name} {place}" for name, place in places.items() if place is not None)
        raise Refusal(f"the folder does not replay: {where + ': ' if where else ''}{broken.problem}")


@contextmanager
def _replaying() -> Iterator[Callable[[int, int], None]]:
    """A bar of bytes read, of how many."""
    with Progress(
        TextColumn("Replaying"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as progress:
        task = progress.add_task("replay", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


LogPlace = Annotated[
    Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Where the log is kept.", show_default=False)
]


@audits.command("fetch")
def audit_fetch(folder: LogPlace) -> None:
    """Keep the service's log in a folder: what came since, and the checkpoint that it was verified under; and the
    transcripts of all sessions and releases in it that have changed since.

    Exit code 3 when the log shrank, was forked, is signed with another key than at first, or has other lines than those
    that were signed: somebody was shown another history. The folder then is what it was, with the checkpoint that
    contradicts it as `refused`. Needs an auditor's key; an administrator's reads the log, and his own transcripts.
    """
    from app.client.log import Contradicted, LogFolder

    with client("Fetching the log") as curator:
        kept = LogFolder(folder)
        try:
            found = kept.fetch(curator)
        except Contradicted as error:
            raise Contradiction(f"the log cannot be what it was: {error}") from None
        transcripts = kept.fetch_transcripts(curator)
    out.print(f"{found.origin}: {found.size} entries are verified", highlight=False, soft_wrap=True)
    out.print(f"{transcripts.written} transcripts were written", highlight=False)
    if transcripts.refused:
        err.print(
            f"{len(transcripts.refused)} transcripts are not for this key: an auditor's reads all", soft_wrap=True
        )


@audits.command("verify")
def audit_verify(folder: LogPlace, transcript: Annotated[Path, ExistingFile]) -> None:
    """Check that every line of a transcript is in the log that is kept in a folder; needs no service.

    Exit code 1 when a line is not in it, 3 when the folder is not what was verified.
    """
    from app.client.errors import NotVerified
    from app.client.log import Contradicted, LogFolder

    try:
        found, count = LogFolder(folder).verify(transcript)
    except Contradicted as error:
        raise Contradiction(str(error)) from None
    except NotVerified as error:
        raise Refusal(str(error)) from None
    out.print(
        f"all {count} records are among the {found.size} entries of {found.origin}", highlight=False, soft_wrap=True
    )
