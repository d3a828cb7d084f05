"""Commands that check transcripts and the log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.connection import client
from app.cli.errors import Contradiction, Refusal
from app.cli.groups import audits
from app.cli.inputs import parse_size
from app.cli.options import AsJson, DatasetName, ExistingFile
from app.cli.rendering import err, out, show_verdict


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


LogPlace = Annotated[
    Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Where the log is kept.", show_default=False)
]


@audits.command("fetch")
def audit_fetch(folder: LogPlace) -> None:
    """Keep the service's log in a folder: what came since, and the checkpoint that it was verified under.

    Exit code 3 when the log shrank, was forked, is signed with another key than at first, or has other lines than those
    that were signed: somebody was shown another history. The folder then is what it was, with the checkpoint that
    contradicts it as `refused`. Needs an auditor's or an administrator's key.
    """
    from app.client.errors import Contradicted
    from app.client.log import LogFolder

    with client("Fetching the log") as curator:
        try:
            found = LogFolder(folder).fetch(curator)
        except Contradicted as error:
            raise Contradiction(f"the log cannot be what it was: {error}") from None
    out.print(f"{found.origin}: {found.size} entries are verified", highlight=False, soft_wrap=True)


@audits.command("verify")
def audit_verify(folder: LogPlace, transcript: Annotated[Path, ExistingFile]) -> None:
    """Check that a transcript is what the log that is kept in a folder has of its session: every line is there, and no
    more entries of it, and it was closed or not as the transcript says; needs no service.

    Exit code 1 when that is not so, as far as the log is kept, 3 when the folder is not what was verified.
    """
    from app.client.errors import Contradicted, NotVerified
    from app.client.log import LogFolder

    try:
        found, count = LogFolder(folder).verify(transcript)
    except Contradicted as error:
        raise Contradiction(str(error)) from None
    except NotVerified as error:
        raise Refusal(str(error)) from None
    out.print(
        f"all {count} records are among the {found.size} entries of {found.origin}", highlight=False, soft_wrap=True
    )


@audits.command("commitment")
def audit_commitment(
    folder: LogPlace,
    name: DatasetName,
    file: Annotated[Path, ExistingFile],
    key: Annotated[
        str, typer.Option("--key", metavar="HEX", help="The key of the commitment, as an administrator revealed it.")
    ],
) -> None:
    """Check that FILE is the one that a data set was registered with, by the log that is kept in a folder; needs no
    service.

    Exit code 1 when it is another file or another key, or the log has no commitment of the data set, 3 when the folder
    is not what was verified.
    """
    from app.client.errors import Contradicted, NotVerified
    from app.client.log import LogFolder

    if not re.fullmatch(r"[0-9a-f]{64}", key := key.strip().lower()):
        raise typer.BadParameter("a key has 64 hexadecimal digits", param_hint="--key")
    try:
        found = LogFolder(folder).check_commitment(name, file, bytes.fromhex(key))
    except Contradicted as error:
        raise Contradiction(str(error)) from None
    except NotVerified as error:
        raise Refusal(str(error)) from None
    out.print(
        f"{file} is the file that {name} was registered with, by the {found.size} entries of {found.origin}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
