"""The command line as a person meets it on a terminal of eighty columns, and a script behind a pipe."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from app.demo.server import Server, running_server
from tests.kit.patience import patience
from tests.kit.servers import run
from tests.kit.world import eventually

pytestmark = pytest.mark.integration

#: As long as names may be, and labels as offices have them.
NAME = "labour-force-survey-of-the-northern-provinces-" + "x" * 18
ANALYST = "somebody.with.a.name.of.sixty-four.characters-" + "y" * 18
LABELS = [
    "full, part",
    "none",
    'l\'indépendant "libéral"',
    "日本語のとても長いラベル",
    "self-employed without employees in agriculture, forestry and fishing",
]
#: Of what the command line loads none must be there before a command needs it.
HEAVY = {
    "app.services",
    "app.storage",
    "app.http",
    "fastapi",
    "numpy",
    "opendp",
    "pandas",
    "pyarrow",
    "scipy",
    "sqlalchemy",
}


class Place:
    """A server, a data set of long names, a session with some answers, a release and a log that was fetched."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
        self.environment |= {"CURATOR_URL": server.url, "CURATOR_API_KEY": server.admin_key, "COLUMNS": "80"}
        spec = {
            "name": NAME,
            "kind": "table",
            "records_public": True,
            "budget": {"epsilon": 4.0, "delta": 1e-9},
            "attributes": [
                {"name": "work", "values": LABELS},
                {"name": "net income", "lower": 0, "upper": 9, "grid": 1},
            ],
        }
        rows = ['"' + label.replace('"', '""') + f'",{n % 10}' for n in range(60) for label in LABELS]
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "data.csv").write_text("\n".join(["work,net income", *rows]), encoding="utf-8")
        self.said("dataset", "add", str(folder / "spec.json"), str(folder / "data.csv"))
        self.said("principal", "add", ANALYST)
        self.said("dataset", "grant", NAME, ANALYST, "--epsilon", "0.5")
        opened = self.said("session", "open", NAME, "-e", "1", "-k", "50", "--json")
        self.session = str(json.loads(opened)["id"])
        self.answer = self.said("ask", self.session, "--group-by", "work,net income", "--where", "work=full, part,none")
        self.release = str(
            json.loads(self.said("release", "ask", NAME, "-e", "0.1", "-w", "marginals=2", "--json"))["id"]
        )
        self.said("release", "follow", self.release)
        transcript, log = str(folder / "s.ndjson"), str(folder / "log")
        self.said("session", "transcript", self.session, "-o", transcript)

        def logged() -> bool:
            """What was just recorded is in the log a moment later."""
            self.said("audit", "fetch", log)
            return self.done("audit", "verify", log, transcript).returncode == 0

        eventually(logged)

    def done(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(arguments, self.environment)

    def said(self, *arguments: str) -> str:
        done = self.done(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, forked_servers: None) -> Iterator[Place]:
    with running_server(tmp_path_factory.mktemp("server")) as server:
        yield Place(server, tmp_path_factory.mktemp("files"))


def test_tables_of_all_commands_at_eighty_columns(place: Place) -> None:
    """Would catch a table that a terminal breaks anew, and an id, a name or a number that is cut or folded: the next
    command needs it as it is."""
    session, release, log = place.session, place.release, str(place.folder / "log")
    table = f'FROM "{NAME}" GROUP BY work'
    aggregates = 'COUNT(*) AS number_of_records, SUM("net income") AS sum_of_incomes'
    for command, whole in (
        (["dataset", "list"], [NAME]),
        (["dataset", "sessions", NAME], [session, release]),
        (["grants", NAME], [NAME, ANALYST]),
        (["principal", "list"], [ANALYST]),
        (["ledger", NAME], [session, release]),
        (["session", "list"], [session, NAME]),
        (["session", "show", session], [session, NAME]),
        (["plan", NAME, "-e", "0.1"], []),
        (["compare", NAME, "-e", "0.1", "-k", "9", "mw", "fk", "gaussian"], ["mw projection"]),
        (["ask", session, "--group-by", "work"], [" ± "]),
        (["ask", session, "--where", "work=full, part"], [" ± "]),
        (["price", session, "--mean", "net income", "--group-by", "work"], []),
        (["sql", session, f"SELECT work, {aggregates} {table}"], ["number_of_records", "sum_of_incomes", " ± "]),
        (["sql", session, f'SELECT work, {aggregates}, AVG("net income") AS a {table}'], ["number_of_records", " ± "]),
        (["sql", session, f"EXPLAIN SELECT COUNT(*) {table}"], ["epsilon"]),
        (["sql", session, f'DESCRIBE "{NAME}"'], ["work"]),
        (["release", "list"], [release, NAME]),
        (["release", "follow", release], [release, NAME]),
        (["release", "plan", NAME, "-e", "0.1", "-w", "marginals=2"], ["iterative_construction"]),
        (["audit", "replay", str(place.folder / "s.ndjson")], [session, NAME, "the transcript replays"]),
        (["audit", "replay", log], [NAME]),
        (["session", "verify", session], []),
    ):
        done = place.done(*command)
        assert done.returncode == 0, (command, done.stderr)
        # Nobody looks at progress behind a pipe, and no line of it is left.
        assert done.stderr == "", command
        lines = done.stdout.splitlines()
        assert max(map(cell_len, lines)) <= 80, command
        assert "\x1b" not in done.stdout, command
        for text in whole:
            assert any(text in line for line in lines), (command, text, done.stdout)
        assert "…" not in done.stdout.partition("\nNot this ")[0], command


def test_a_refused_way_has_one_line(place: Place) -> None:
    """Would catch a reason that is folded into a narrow column, and one that is cut without a word of where the rest
    is."""
    command = ("release", "plan", NAME, "-e", "0.1", "-w", "marginals=2")
    told = place.said(*command).partition("Not this method:\n")[2]
    ways = json.loads(place.said(*command, "--json"))["methods"]
    refused = [str(way.get("method") or way["mechanism"]) for way in ways if way.get("problem")]
    *lines, last = told.rstrip().splitlines()
    assert [line.split()[0] for line in lines] == refused != []
    assert "--json has the whole" in last


def test_labels_with_commas(place: Place) -> None:
    """Of 300 records 60 have each label. Would catch a label that is taken for two, quotes that are sent along, and a
    list of labels of which one has a comma."""
    assert "full, part" in place.answer
    assert "none" in place.answer
    assert "libéral" not in place.answer
    for condition, truth in (
        ("work=full, part", 60),
        ('work="full, part"', 60),
        ("work=none,full, part", 120),
        ('work="full, part",none', 120),
        ('work=l\'indépendant "libéral"', 60),
        ("work=日本語のとても長いラベル", 60),
    ):
        answer = json.loads(place.said("ask", place.session, "--where", condition, "--json"))
        assert abs(answer["value"] - truth) < 8 * answer["standard_error"] < 200, condition
        words = place.said("price", place.session, "--where", condition)
        assert ("or" in words.split()) == (truth == 120)
    refused = place.done("ask", place.session, "--where", "work=full, parts")
    assert (refused.returncode, "declared values" in refused.stderr) == (1, True)


def test_what_is_too_uncertain_is_said_in_words(place: Place) -> None:
    """Would catch a number without meaning that is shown as any other, alone, in a table and in SQL. (Noise
    passes three times its deviation in three of a thousand numbers, so that two are asked for alone.)
    """
    opened = json.loads(place.said("session", "open", NAME, "-e", "0.001", "-m", "gaussian", "-k", "9", "--json"))
    alone = [place.said("ask", opened["id"], "--where", f"work={label}") for label in ("none", "full, part")]
    assert any("too uncertain" in told for told in alone)
    for command in (
        ["ask", opened["id"], "--group-by", "work"],
        ["sql", opened["id"], f'SELECT work, COUNT(*) AS n FROM "{NAME}" GROUP BY work'],
    ):
        assert "too uncertain" in place.said(*command)


def test_json_is_all_that_is_printed(place: Place) -> None:
    """Would catch a sentence among the JSON, and a command whose result no script can read."""
    session, release, log = place.session, place.release, str(place.folder / "log")
    for command in (
        ["dataset", "list"], ["dataset", "sessions", NAME], ["dataset", "grant", NAME, ANALYST, "-e", "0.5"],
        ["dataset", "commitment", NAME], ["grants"], ["grants", NAME], ["principal", "list"], ["ledger", NAME],
        ["session", "list"], ["session", "show", session], ["session", "verify", session], ["plan", NAME, "-e", "0.1"],
        ["compare", NAME, "-e", "0.1", "-k", "9", "mw"], ["ask", session, "--group-by", "work"],
        ["price", session, "--group-by", "work"], ["sql", session, f'SELECT COUNT(*) FROM "{NAME}"'],
        ["release", "list"], ["release", "show", release], ["release", "follow", release],
        ["release", "plan", NAME, "-e", "0.1", "-w", "marginals=1"],
        ["publish", NAME, "-o", str(place.folder / "tables"), "-t", "work"], ["audit", "replay", log],
        ["audit", "replay", str(place.folder / "s.ndjson")], ["audit", "fetch", str(place.folder / "another")],
        ["audit", "compare", log, log],
        ["audit", "verify", log, str(place.folder / "s.ndjson")],
    ):  # fmt: skip
        done = place.done(*command, "--json")
        assert done.returncode == 0, (command, done.stderr)
        assert isinstance(json.loads(done.stdout), dict | list), command


def test_refusals_say_what_to_do_next(place: Place) -> None:
    """Would catch a refusal that leaves somebody alone, and advice about Python on the command line."""
    for command, environment, says in (
        (["dataset", "list"], {"CURATOR_API_KEY": "none"}, "CURATOR_API_KEY"),
        (["dataset", "list"], {"CURATOR_URL": "http://127.0.0.1:9"}, "CURATOR_URL"),
        (["ask", "nothing", "--where", "work=none"], {}, "curator session list"),
        (["dataset", "dummy", NAME, "--out", "records.doc"], {}, ".parquet"),
    ):
        done = run(command, place.environment | environment)
        assert (done.returncode, done.stdout) == (1, ""), command
        assert says in done.stderr
        assert max(map(cell_len, done.stderr.splitlines())) <= 80


def test_problems_of_a_file_are_told_together(place: Place) -> None:
    """Would catch a screen full of one problem, line by line, and rows that are not named."""
    lines = ["work,net income", *("none,99" for _ in range(30)), "none,1"]
    (place.folder / "wrong.csv").write_text("\n".join(lines))
    spec = json.loads((place.folder / "spec.json").read_text())
    (place.folder / "another.json").write_text(json.dumps(spec | {"name": "another"}))
    for command in (
        ["dataset", "check", str(place.folder / "wrong.csv"), "--spec", str(place.folder / "another.json")],
        ["dataset", "add", str(place.folder / "another.json"), str(place.folder / "wrong.csv")],
    ):
        told = place.done(*command).stderr
        assert "1, 2, 3, 4, 5 and others" in " ".join(told.split())
        assert len(told.splitlines()) < 15


#: Prints what is loaded, after the help of every command was printed.
_ALL_HELP = """
import sys, typer, io, contextlib
from app.cli import application
from app.cli.groups import cli
def walk(command, path):
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, [*path, name])
top = typer.main.get_command(cli)
said = io.StringIO()
paths = list(walk(top, []))
for path in paths:
    with contextlib.redirect_stdout(said):
        top.main([*path, "--help"], standalone_mode=False)
print(len(paths), max(map(len, said.getvalue().splitlines())))
print(*sys.modules)
"""


def test_help_loads_nothing_heavy_and_fits() -> None:
    """All commands' help in one process. Would catch an import at the head of a module of commands, which all of them
    pay for, and a help text that is wider than the terminal."""
    environment = os.environ | {"COLUMNS": "80"}
    ran = subprocess.run([sys.executable, "-c", _ALL_HELP], capture_output=True, text=True, check=True, env=environment)
    told, modules = ran.stdout.splitlines()
    commands, widest = map(int, told.split())
    assert commands > 50
    assert widest <= 80
    assert HEAVY & set(modules.split()) == set()


def test_help_takes_half_a_second() -> None:
    """The quickest of three fresh processes, in processor time. Would catch a command line that loads what it does not
    need."""
    took = []
    command = [str(Path(sys.executable).with_name("curator")), "--help"]
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(took) < patience(0.5)
