"""The demonstration: a survey, three analysts, a promise for 50,000 questions and two cheats, ending with a page."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.demo import page, printing
from app.demo.cheats import cheat
from app.demo.data import census
from app.demo.promise import keep_promise
from app.demo.server import Server, ServerFailed, ended, running_server
from app.demo.survey import Survey, survey
from app.demo.tables import ANALYSTS, ask_means, ask_tables, rivals
from curator_client import Curator

#: What the acts may spend of the survey, and what is left of its budget, of which the last act asks for twice as much.
MEANS, TABLES, LEFT, DELTA = 0.25, 0.5, 0.1, 1e-9
#: The part of all intervals that must hold. Each holds with probability .95, and many lean on the same measurements.
LEAST_HELD = 0.85


def run(console: Console, out: Path, *, questions: int = 50_000, seed: int = 2012, stay: bool = False) -> int:
    """Run the demonstration, print what it finds, and write its files to a folder.

    Args:
        console: where to print.
        out: the folder; it is made where it is not there.
        questions: how many the session with a promise answers.
        seed: of made-up data and of the analyst who probes; the noise is never seeded.
        stay: keep the server until Ctrl-C.

    Returns:
        0 when the bound held, enough intervals did, and neither cheat went through, else 1.
    """
    with ended(), tempfile.TemporaryDirectory(prefix="curator-demo-") as scratch, ExitStack() as running:
        folder = Path(scratch)
        try:
            with console.status("Starting a server"):
                server = running.enter_context(running_server(folder))
            good = _acts(console, server, folder, out, questions, seed)
            if stay:
                _stay(console, server)
        except ServerFailed as failure:
            console.print("[red]The demonstration failed:[/red]", end=" ")
            console.print(str(failure), markup=False)
            return 1
    return 0 if good else 1


def _acts(console: Console, server: Server, folder: Path, out: Path, questions: int, seed: int) -> bool:
    couples = survey(seed)
    with ExitStack() as running:
        admin = running.enter_context(Curator(server.url, server.admin_key))
        names = [f"analyst-{number + 1}" for number in range(ANALYSTS)]
        analysts = [running.enter_context(Curator(server.url, admin.add_principal(name, "analyst"))) for name in names]
        _register(admin, couples, folder)

        means = ask_means(analysts[0], couples, MEANS)
        printing.means(console, couples, means)

        with _counting(console, "asking") as progress:
            task = progress.add_task("", total=None)

            def tabulated(done: int, free: int, spent: float) -> None:
                words = f"free {free} of {done} tables, spent {spent:.3f} of {TABLES:.3f}"
                progress.update(task, completed=done, description=words)

            transcript = folder / "tables.ndjson"
            tables = ask_tables(analysts, couples, TABLES, transcript, tabulated)
        noise, gaps, computed = rivals(tables, MEANS + TABLES, DELTA)
        printing.tables(console, tables, TABLES)
        printing.rivals(console, tables, TABLES, MEANS, noise, gaps, computed)

        people = census(seed)
        file = folder / people.filename
        file.write_bytes(people.file)
        admin.register(people.spec, file)
        file.unlink()
        printing.before_promise(console, people, questions)
        with _counting(console, "asking") as progress:
            task = progress.add_task("", total=questions)
            promise = keep_promise(
                admin, analysts[0], people, questions, seed, lambda done: progress.update(task, completed=done)
            )
        printing.promise(console, promise)

        cheats = cheat(analysts[-1], transcript, "couples", 2 * LEFT)
        printing.cheats(console, cheats)

        out.mkdir(parents=True, exist_ok=True)
        log = admin.log(folder / "log")
        log.fetch(transcripts=False)
        log.report(html=out / "report.html")
        acts = page.Acts(couples, means, tables, TABLES, MEANS, noise, gaps, computed, promise, cheats)
        for name, content in page.files(acts).items():
            (out / name).write_text(content, encoding="utf-8")
        shutil.copy(transcript, out / "tables.ndjson")
        files = ["index.html", "report.html", "income.svg", "tables.csv", "tables.ndjson"]
        printing.files(console, out, files)
        held = tables.held >= LEAST_HELD
        good = held and promise.kept and cheats.caught
        printing.verdict(console, good)
        return good


def _register(admin: Curator, couples: Survey, folder: Path) -> None:
    file = folder / "couples.csv"
    file.write_bytes(couples.file)
    admin.register(couples.spec(MEANS + TABLES + LEFT, DELTA), file)
    file.unlink()


def _counting(console: Console, what: str) -> Progress:
    return Progress(
        TextColumn(f"  {what} {{task.description}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _stay(console: Console, server: Server) -> None:
    """Wait until somebody ends the demonstration."""
    console.print(
        f"The server stays up: {server.url}/console, key {server.admin_key}; Ctrl+C ends it.",
        markup=False,
        soft_wrap=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("The server has stopped.")
