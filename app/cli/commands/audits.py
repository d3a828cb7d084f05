"""Commands that check transcripts and the log."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.connection import client
from app.cli.errors import Contradiction, Refusal, judging
from app.cli.groups import audits
from app.cli.inputs import parse_object, parse_size
from app.cli.options import AsJson, DatasetName, existing_file
from app.cli.rendering import err, print_json, say, show_books, show_verdict

if TYPE_CHECKING:
    from curator_client import Verdict


@audits.command("publication")
def audit_publication(
    transcript: Annotated[
        Path,
        typer.Argument(
            metavar="TRANSCRIPT", exists=True, dir_okay=False, help="That of the release.", show_default=False
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", exists=True, file_okay=False, help="What `curator publish` wrote.", show_default=False
        ),
    ],
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Where `fetch` keeps the log: what it names must have been published.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check published tables by the transcript of their release: make them anew from what was measured, and hold the
    manifest and every number against that; and the workbook, if there is one, against the tables. With --log, hold them
    against the signed log too, which has their digest: then not one record lies elsewhere than when they were made.

    Exit code 1 when something does not follow, 3 when the folder of the log is not what was verified.
    """
    from app.audit.publications import check, unlogged
    from app.services.publications import differing
    from app.verifying.transcript import replay_file
    from curator_client.log_folder import LogFolder

    with _replaying() as progress:
        verdict = replay_file(transcript, progress)
    if not verdict.ok:
        raise Refusal(f"the transcript does not replay: {verdict.problem}")
    try:
        manifest = parse_object((folder / "manifest.json").read_text(encoding="utf-8"), "manifest.json")
        names = [int(each["table"]) for each in manifest["tables"]]
        tables = {name: (folder / f"table-{name}.csv").read_bytes() for name in names}
        found = check(transcript.read_bytes().splitlines(), manifest, tables)
        book = folder / "tables.xlsx"
        problems = [*found.problems]
        if log is not None:
            with judging(""):
                problems += unlogged(manifest, LogFolder(log).read)
        if book.exists() and not problems:
            problems += differing(book.read_bytes(), tables, manifest)
        known = {"manifest.json", "tables.xlsx", *(f"table-{name}.csv" for name in names)}
        problems += [
            f"{name} is no part of the publication" for name in sorted({each.name for each in folder.iterdir()} - known)
        ]
    except (KeyError, TypeError, ValueError, OSError):
        raise Refusal("the folder has no manifest.json with the tables that it names") from None
    if as_json:
        print_json({"ok": not problems, "same": found.same and not problems, "problems": problems})
    for problem in () if as_json else problems:
        say(problem)
    if problems:
        raise Refusal("the publication does not follow from what was measured")
    if not as_json:
        said = "All holds: every number is the one computed here."
        other = "Not every number is the one computed here: another rounding moves a few records to other cells."
        say(said if found.same else other)


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
    from app.verifying.transcript import replay_file

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
    from curator_client.log_folder import LogFolder

    with judging("the folder is not what was signed: "), _replaying() as progress:
        verdict = LogFolder(folder).replay(progress, memory_limit=memory_limit)
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
        disable=not err.is_terminal,
    ) as progress:
        task = progress.add_task("replay", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


LogPlace = Annotated[
    Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Where the log is kept.", show_default=False)
]


WitnessKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--witness-key",
        metavar="NAME+HASH+KEY",
        help="The public key of a witness, known from elsewhere: take only what begins with a checkpoint that it has "
        "cosigned. May be given several times.",
        show_default=False,
    ),
]
Need = Annotated[
    int | None, typer.Option("--need", min=1, help="How many of the witnesses are enough.", show_default="all")
]
MaxAge = Annotated[
    float | None,
    typer.Option("--max-age", min=0, help="Seconds that their cosignatures may lie back.", show_default="any"),
]


def _tell(log: Mapping[str, object], words: str, *, as_json: bool, **more: object) -> None:
    """Print what was found of a log: as a sentence, or its checkpoint and more as JSON."""
    if as_json:
        print_json({**log, **more})
    else:
        say(words)


def _found(verdict: Verdict, *, as_json: bool) -> None:
    """Print a verdict on a log: what was checked and what was not, or its summary as JSON."""
    more = {name: fact for name, fact in verdict.summary.items() if name != "log"}
    _tell(verdict.summary["log"], str(verdict), as_json=as_json, **more)


@audits.command("fetch")
def audit_fetch(
    folder: LogPlace,
    witness_keys: WitnessKeys = None,
    need: Need = None,
    max_age: MaxAge = None,
    max_size: Annotated[
        str,
        typer.Option(
            help="Most bytes, such as 500MB, that may be added to the log, and that the transcripts may have together."
        ),
    ] = "16GiB",
    as_json: AsJson = False,
) -> None:
    """Keep the service's log in a folder: what came since, and the checkpoint that it was verified under; and the
    transcripts of all sessions and releases in it that have changed since.

    Exit code 3 when the log shrank, was forked, is signed with a key for which the known one did not vouch, or has
    other lines than those that were signed: somebody was shown another history. The folder then is what it was, with
    the checkpoint that contradicts it as `refused`. 1 when too few witnesses have cosigned. Needs an auditor's key; an
    administrator's reads the log, and his own transcripts.
    """
    from curator_client.quorum import Quorum
    from curator_client.verdict import log_of

    most_bytes = parse_size(max_size, "--max-size")
    try:
        Quorum.of(witness_keys or (), need, max_age)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--witness-key") from None
    with client("Fetching the log") as curator, judging("the log cannot be what it was: "):
        log = curator.log(folder)
        found = log.fetch(witnesses=witness_keys or (), need=need, max_age=max_age, most_bytes=most_bytes)
    words = f"{found.checkpoint.origin}: {found} entries are verified\ntranscripts written: {found.written}"
    told = {"transcripts_written": found.written, "transcripts_refused": list(found.refused)}
    _tell(log_of(found.checkpoint), words, as_json=as_json, **told)
    if found.refused:
        say(f"transcripts that are not for this key: {len(found.refused)}; an auditor's reads all", err)


@audits.command("cosign")
def audit_cosign(
    folder: LogPlace,
    key_file: Annotated[
        Path,
        typer.Option("--key-file", dir_okay=False, help="Your private key; made if missing.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of a new witness, such as example.org/witness.", show_default="made of its key"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Be a witness: fetch the log into a folder as `fetch` does, cosign its checkpoint, and send that to the service.

    Prints the public key: tell it, by another way than through the service, to those who are to rely on you. A key is
    for one folder and one log; the service keeps the first one that you tell. Exit code 3 as of `fetch`; nothing is
    cosigned then.
    """
    from curator_client.verdict import log_of
    from curator_client.witnessing import cosign, witness_of

    try:
        witness = witness_of(key_file, name)
    except ValueError as error:
        raise Refusal(str(error)) from None
    with client("Fetching the log") as curator, judging("nothing is cosigned: "):
        found = cosign(folder, curator, witness)
    key = witness.verifier.text()
    _tell(log_of(found), f"{found.origin}: cosigned at {found.size} entries\n{key}", as_json=as_json, witness=key)


@audits.command("compare")
def audit_compare(
    folder: LogPlace,
    other: Annotated[
        Path,
        typer.Argument(
            metavar="OTHER",
            exists=True,
            help="Another auditor's folder, or only the `checkpoint` in it.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check that another auditor was shown the same log; needs no service.

    Exit code 3 when there are two histories: both signed checkpoints are kept below `forked`. 1 when that cannot be
    told: the other has seen more, and shows only a checkpoint.
    """
    from curator_client import Log

    with judging(""):
        _found(Log(folder).compare(other), as_json=as_json)


@audits.command("forget-witness")
def audit_forget_witness(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The auditor's name.", show_default=False)],
) -> None:
    """Have the service forget an auditor's witness key and cosignatures; the next key told is kept. Needs an
    administrator's key.
    """
    with client(None) as curator:
        curator.forget_witness(name)
    say(f"the witness of {name} is forgotten")


@audits.command("verify")
def audit_verify(
    folder: LogPlace,
    transcript: Annotated[Path, existing_file("TRANSCRIPT", "What `session transcript` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check that a transcript is what the log that is kept in a folder has of its session: every line is there, and no
    more entries of it, and it was closed or not as the transcript says; needs no service.

    Exit code 1 when that is not so, as far as the log is kept, 3 when the folder is not what was verified.
    """
    from curator_client import Log

    with judging(""):
        _found(Log(folder).verify(transcript), as_json=as_json)


@audits.command("report")
def audit_report(
    folder: LogPlace,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Where to write the page; - for standard output.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Where to write the JSON; - for standard output.", show_default=False
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A signed checkpoint that was kept elsewhere; the log must begin with what it was then.",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Replay the transcripts in FOLDER/sessions and FOLDER/releases, too.")
    ] = False,
    memory_limit: Annotated[
        str, typer.Option(help="Most memory that a transcript may take, such as 500MB; what needs more is refused.")
    ] = "4GiB",
) -> None:
    """Make a page, or JSON, of what a log says that is kept in a folder: budgets, questions, releases, and whether all
    of it follows. Needs no service.

    Exit code 1 when something does not follow, 3 when the folder's lines are not those that were signed, or two
    histories were; the report is made all the same, and says so at the top.
    """
    from app.report.page import page
    from curator_client.errors import NotVerified
    from curator_client.log_report import report_of

    if html is None and as_json is None:
        raise typer.BadParameter("say where to write: --html FILE, --json FILE, or both", param_hint="--html")
    if html == as_json:
        raise typer.BadParameter("page and JSON are two files", param_hint="--html")
    limit = parse_size(memory_limit, "--memory-limit")
    try:
        with err.status("Reading the log"):
            document = report_of(folder, earlier=earlier, replay=replay, memory_limit=limit)
    except NotVerified as error:
        raise Refusal(str(error)) from None
    if as_json is not None:
        _write(as_json, orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if html is not None:
        _write(html, page(document).encode())
    wrong = [check["says"] for check in document["checks"] if check["holds"] is False]
    if wrong:
        raise (Contradiction if document["contradicted"] else Refusal)(
            f"the log does not hold: {wrong[0].removeprefix('Not so: ')}"
        )


def _write(target: Path, content: bytes) -> None:
    if target == Path("-"):
        sys.stdout.buffer.write(content)
    else:
        target.write_bytes(content)
        say(f"Wrote {target} ({len(content):,} bytes).", err)


@audits.command("commitment")
def audit_commitment(
    folder: LogPlace,
    name: DatasetName,
    file: Annotated[Path, existing_file("FILE", "The private file.")],
    key: Annotated[
        str, typer.Option("--key", metavar="HEX", help="The key of the commitment, as an administrator revealed it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check that FILE is the one that a data set was registered with, by the log that is kept in a folder; needs no
    service.

    Exit code 1 when it is another file or another key, or the log has no commitment of the data set, 3 when the folder
    is not what was verified.
    """
    from curator_client import Log

    if not re.fullmatch(r"[0-9a-f]{64}", key := key.strip().lower()):
        raise typer.BadParameter("a key has 64 hexadecimal digits", param_hint="--key")
    with judging(""):
        _found(Log(folder).check_file(name, file, key), as_json=as_json)
