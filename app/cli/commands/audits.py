"""Commands that check transcripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.errors import Refusal
from app.cli.groups import audits
from app.cli.inputs import parse_size
from app.cli.options import AsJson, ExistingFile
from app.cli.rendering import err, show_verdict


@audits.command("replay")
def audit_replay(
    transcript: Annotated[Path, ExistingFile],
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
    """Check a transcript by itself: its chain, its plan, and every answer it derives from earlier ones.

    Whoever can rewrite the whole file can make times, a cut end, the status and measurements agree again:
    --head with a hash from a reply, kept elsewhere, shows that what stands up to it is what it was.
    """
    from app.audit.replay import replay_file

    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head := head.strip().lower()):
        raise typer.BadParameter("a hash has 64 hexadecimal digits", param_hint="--head")
    limit = parse_size(memory_limit, "--memory-limit")
    with Progress(
        TextColumn("Replaying"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as progress:
        task = progress.add_task("replay", total=transcript.stat().st_size)
        verdict = replay_file(
            transcript,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            head=head,
            entries=entries,
            memory_limit=limit,
        )
    show_verdict(verdict, as_json=as_json)
    if not verdict.ok:
        where = f"entry {verdict.sequence}: " if verdict.sequence is not None else ""
        raise Refusal(f"the transcript does not replay: {where}{verdict.problem}")
