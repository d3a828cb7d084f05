"""The command line as a person uses it: a process, its output, its exit code, against a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from app.cli.application import cli
from app.cli.commands import questions
from app.demo.server import Server, running_server
from curator_client import Curator, question
from tests.kit.servers import launching, run

pytestmark = pytest.mark.integration

SPEC: dict[str, Any] = {
    "name": "people",
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["female", "male"]},
        {"name": "age", "lower": 0, "upper": 100, "bins": 10},
    ],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, forked_servers: None) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    spec, data = folder / "people.json", folder / "people.csv"
    spec.write_text(json.dumps(SPEC))
    rows = [f"{('female', 'male')[i % 2]},{i % 100}" for i in range(10_000)]
    data.write_text("\n".join(["sex,age", *rows]))
    return spec, data


@pytest.fixture(scope="module")
def people(server: Server, files: tuple[Path, Path]) -> None:
    """The data set, registered through the command line."""
    done = curator(server, "dataset", "add", *map(str, files))
    assert done.returncode == 0, done.stderr
    assert "people" in done.stdout


@pytest.fixture(scope="module")
def session(server: Server, people: None) -> str:
    """Id of a session opened through the command line."""
    done = curator(
        server, "session", "open", "people", "-m", "mw", "--epsilon", "0.5", "--max-updates", "10",
        "--max-queries", "100", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def curator(
    server: Server | None, *arguments: str, key: str | None = None, url: str | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    if server is not None:
        environment |= {"CURATOR_URL": server.url, "CURATOR_API_KEY": key or server.admin_key}
    if url is not None:
        environment |= {"CURATOR_URL": url, "CURATOR_API_KEY": "any"}
    return run(arguments, {**environment, "COLUMNS": "160"}, stdin)


def narrow(server: Server, *arguments: str, key: str | None = None) -> str:
    """What a command prints on a terminal of eighty columns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    environment |= {"CURATOR_URL": server.url, "CURATOR_API_KEY": key or server.admin_key, "COLUMNS": "80"}
    done = run(arguments, environment, "")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.stdout


class TestHelp:
    @pytest.mark.parametrize(
        "command",
        [
            [],
            ["serve"],
            ["migrate"],
            ["backup"],
            ["restore"],
            ["forfeit"],
            ["vault", "rotate"],
            ["principal", "add"],
            ["principal", "rotate"],
            ["principal", "list"],
            ["ledger"],
            ["session", "list"],
            ["dataset", "list"],
            ["compare"],
            ["dataset", "add"],
            ["dataset", "check"],
            ["plan"],
            ["session"],
            ["session", "open"],
            ["session", "show"],
            ["session", "close"],
            ["session", "transcript"],
            ["ask"],
            ["audit", "replay"],
            ["demo"],
        ],
    )
    def test_every_command_explains_itself(self, command: list[str]) -> None:
        done = curator(None, *command, "--help")
        assert done.returncode == 0
        assert "Usage:" in done.stdout

    def test_it_is_installed(self) -> None:
        """The script itself, in a process from scratch. Catches a name of it that leads nowhere, and what all other
        tests would have from the process that they are forked from."""
        installed = [str(Path(sys.executable).with_name("curator")), "dataset", "list"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
        done = subprocess.run(installed, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "CURATOR_API_KEY" in done.stderr

    def test_nothing_heavy_is_loaded_for_it(self) -> None:
        """A command line that takes a second to print its help loads what it does not need."""
        loaded = subprocess.run(
            [sys.executable, "-c", "import sys, app.cli; print(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert not {"numpy", "pyarrow", "fastapi", "sqlalchemy", "opendp"} & set(loaded)


class TestRegistration:
    def test_what_became_of_the_records(self, server: Server, tmp_path: Path) -> None:
        """A table of what was dropped, clamped and missing, with totals. Catches a report that nobody sees."""
        age = {"name": "age", "lower": 0, "upper": 100, "grid": 1, "outside": "clamp", "missing": True}
        spec = {**SPEC, "name": "reported", "outside": "drop", "attributes": [SPEC["attributes"][0], age]}
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        rows = ["female,20"] * 5 + ["male,120"] * 3 + ["male,"] * 2 + ["other,20"]
        (tmp_path / "r.csv").write_text("\n".join(["sex,age", *rows]))
        done = curator(server, "dataset", "add", str(tmp_path / "spec.json"), str(tmp_path / "r.csv"))
        assert done.returncode == 0, done.stderr
        assert "11 records read, 10 kept" in done.stdout
        lines = [line.replace("│", " ").split() for line in done.stdout.splitlines()]
        assert ["sex", "1", "0", "0"] in lines
        assert ["age", "0", "3", "2"] in lines
        assert ["records", "in", "all", "1", "3"] in lines

    def test_all_problems(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "spec.json").write_text(json.dumps({**SPEC, "name": "refused"}))
        (tmp_path / "r.csv").write_text("sex,age\nmale,20\nMale,20\nfemale,s3cr3t\n")
        done = curator(server, "dataset", "add", str(tmp_path / "spec.json"), str(tmp_path / "r.csv"))
        assert done.returncode == 1
        assert "row 2, attribute sex, expected one of the declared values" in done.stderr
        assert "row 3, attribute age, expected a number from 0 to 100" in done.stderr
        assert "outside: sex 1, age 1" in done.stderr
        assert "s3cr3t" not in done.stderr


class TestRefusals:
    """A person reads a sentence, a script reads the exit code; nobody reads a stack trace."""

    def test_no_key(self) -> None:
        done = curator(None, "plan", "people", "--epsilon", "1", "-k", "10")
        assert done.returncode == 1
        assert "CURATOR_API_KEY" in done.stderr

    def test_nobody_listens(self) -> None:
        """Port 9 of this machine: nothing listens there, and the connection is refused at once."""
        done = curator(None, "dataset", "list", url="http://127.0.0.1:9")
        assert done.returncode == 1
        assert "no reply" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_problem_of_the_service(self, server: Server) -> None:
        done = curator(server, "plan", "nothing-of-that-name", "--epsilon", "1", "-k", "10")
        assert done.returncode == 1
        assert "not-found" in done.stderr
        assert "Traceback" not in done.stderr

    def test_an_unknown_key(self, server: Server) -> None:
        done = curator(server, "dataset", "list", key="not-a-key")
        assert done.returncode == 1
        assert "unauthenticated" in done.stderr

    @pytest.mark.parametrize("query", ["{", "[1]", "@/no/such/file"])
    def test_a_query_that_cannot_be_read(self, server: Server, query: str) -> None:
        done = curator(server, "ask", "some-session", query)
        assert done.returncode == 1
        assert "Error:" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ("plan", "people", "--epsilon", "1e400"),
            ("session", "open", "people", "--epsilon", "1e400"),
            ("ask", "SESSION", "--where", "age>=1e400"),
            ("ask", "SESSION", '{"type": "predicate", "where": {"age": {"ge": NaN}}}'),
        ],
    )
    def test_numbers_that_are_none(self, server: Server, session: str, words: tuple[str, ...]) -> None:
        """Catches a stack trace, and the exit code of a fault of the program."""
        done = curator(server, *(session if word == "SESSION" else word for word in words))
        assert done.returncode in (1, 2), done.stderr
        assert "the program itself failed" not in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_second_server_on_the_same_data(self, tmp_path: Path) -> None:
        """Two processes on one embedded database would each think they hold the sessions' locks."""
        with launching(tmp_path / "data", None) as launcher:
            launcher.start().wait_until_ready()
            environment = {**os.environ, "CURATOR_DATA_DIR": str(tmp_path / "data")}
            done = run(["serve", "--port", "0"], environment)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()


class TestChecks:
    """A declaration is drafted, corrected and registered by commands alone."""

    DATA = "sex,age,note\n" + "".join(f"{('female', 'male')[n % 2]},{n % 90},note {n}\n" for n in range(500))

    def test_a_draft_is_json_and_the_rest_is_said_aside(self, server: Server, tmp_path: Path) -> None:
        """Catches words among the JSON, a draft without its warning, and one that cannot be registered."""
        data, draft = tmp_path / "drafted people.csv", tmp_path / "draft.json"
        data.write_text(self.DATA)
        done = curator(server, "dataset", "check", str(data))
        assert done.returncode == 0, done.stderr
        spec = json.loads(done.stdout)
        assert spec["name"] == "drafted-people"
        assert "private" in done.stderr
        assert '"note"' in done.stderr
        assert "500 records read" in done.stderr
        done = curator(server, "dataset", "check", str(data), "--out", str(draft))
        assert (done.returncode, done.stdout) == (0, "")
        assert json.loads(draft.read_text()) == spec
        assert curator(server, "dataset", "add", str(draft), str(data)).returncode == 0

    def test_problems_fail(self, server: Server, tmp_path: Path) -> None:
        """Catches a script that registers in spite of problems, and a name that is taken for a style."""
        data, spec = tmp_path / "p.csv", tmp_path / "p.json"
        data.write_text(self.DATA)
        attributes = [{"name": "age", "lower": 0, "upper": 50, "bins": 5}, {"name": "[red]", "size": 2}]
        spec.write_text(json.dumps({"name": "p", "attributes": attributes}))
        done = curator(server, "dataset", "check", str(data), "--spec", str(spec))
        assert done.returncode == 1
        assert json.loads(done.stdout)["attributes"] == attributes
        assert "refused" in done.stderr
        assert "[red]" in done.stderr
        assert "52" in done.stderr  # the first record whose age is beyond its bound

    def test_a_document_of_several_tables(self, server: Server, tmp_path: Path) -> None:
        """Catches an option that does not reach the service."""
        data, spec = tmp_path / "p.csv", tmp_path / "p.yaml"
        data.write_text(self.DATA)
        spec.write_text(
            "db:\n  s:\n"
            "    one: {row_privacy: true, age: {type: int, lower: 0, upper: 100}}\n"
            "    two: {row_privacy: true, age: {type: int, lower: 0, upper: 200}}\n"
        )
        done = curator(server, "dataset", "check", str(data), "--spec", str(spec))
        assert done.returncode == 1
        assert "s.one, s.two" in done.stderr
        done = curator(server, "dataset", "check", str(data), "--spec", str(spec), "--table", "two")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["attributes"][0]["upper"] == 200

    def test_the_client(self, server: Server) -> None:
        """Catches a field of the reply that the client does not have, and bytes that are sent without their name."""
        with Curator(server.url, server.admin_key) as client:
            found = client.check(
                b"a,b\n1,x\n9,y\n", {"name": "p", "attributes": [{"name": "a", "size": 3}]}, filename="d.csv"
            )
            assert found.spec["budget"] == {"epsilon": 1.0, "delta": 1e-9}
            assert [(problem.attribute, problem.row) for problem in found.problems] == [("a", 2)]
            assert found.report is None
            whole = client.check(b"a,b\n1,x\n9,y\n", filename="d.csv")
            assert whole.problems == ()
            assert whole.report is not None
            assert whole.report.kept == 2
            assert whole.warnings
            with pytest.raises(ValueError, match="filename"):
                client.check(b"a\n1\n")
            # Of the shape of the declared cells it would be taken for their counts.
            frame: Any = pd.DataFrame({"a": [1, 1], "b": [0, 1]})
            with pytest.raises(TypeError, match="write a frame to a file"):
                client.check(frame, {"name": "p", "attributes": [{"name": "a", "size": 2}, {"name": "b", "size": 2}]})


class TestAnalysis:
    """From registration to the audit, by commands alone."""

    def test_plan(self, server: Server, people: None) -> None:
        task = ("--epsilon", "0.5", "--max-queries", "100", "--max-updates", "10")
        done = curator(server, "plan", "people", "-m", "mw", *task)
        assert done.returncode == 0, done.stderr
        assert "error bound" in done.stdout

    def test_the_id_of_a_session_may_be_copied(self, server: Server, people: None) -> None:
        """Catches marks of a terminal beside it."""
        done = curator(server, "session", "open", "people", "--epsilon", "0")
        assert re.search(r"^Session [0-9a-f]{32} is open\.$", done.stdout, re.MULTILINE), done.stdout + done.stderr

    def test_the_median_s_own_options(self, server: Server, people: None) -> None:
        """Catches options that do not reach the service: they are in the mechanism that it planned."""
        task = ("people", "--epsilon", "0.5", "-k", "100", "--max-updates", "10", "--json")
        median = '{"construction": "median", "sampled": true, "weights": "nonnegative"}'
        done = curator(server, "session", "open", *task, "--mechanism", median)
        assert done.returncode == 0, done.stderr
        opened = json.loads(done.stdout)
        assert opened["mechanism"]["sampled"] is True
        assert opened["mechanism"]["weights"] == "nonnegative"
        assert curator(server, "session", "close", opened["id"]).returncode == 0
        refused = curator(server, "plan", *task, "-m", '{"construction": "median", "weights": "heavy"}')
        assert refused.returncode == 1
        assert "invalid-request" in refused.stderr

    def test_mirror_descent_s_own_options(self, server: Server, people: None) -> None:
        """Catches a step, norm or promise that does not reach the service."""
        task = ("people", "--epsilon", "0.1", "-k", "100", "--max-updates", "5", "--json")
        asked = {"potential": "lp", "p": 1.5, "ball_p": "none", "zeta": 40.0, "step": "refit"}
        done = curator(server, "session", "open", *task, "-m", json.dumps({"construction": "md", **asked}))
        assert done.returncode == 0, done.stderr
        opened = json.loads(done.stdout)
        assert {name: opened["mechanism"][name] for name in asked} == asked
        assert curator(server, "session", "close", opened["id"]).returncode == 0
        refused = curator(server, "plan", *task, "-m", '{"construction": "md", "potential": "lp", "p": "two"}')
        assert refused.returncode == 1
        assert "p" in refused.stderr

    def test_a_mechanism_by_its_name(self, server: Server, people: None) -> None:
        """A construction alone is short for JSON with nothing else. Catches one that is sent as text, or not at all."""
        task = ("people", "--epsilon", "0.5", "-k", "100", "--max-updates", "10", "--json")
        named, written, other = (
            json.loads(curator(server, "plan", *task, "-m", asked).stdout)
            for asked in ("fk", '{"construction": "fk"}', "mw")
        )
        assert named == written != other

    @pytest.mark.parametrize(
        "mechanism", ['{"construction": "md"', ' ["mw"]', '{"construction": "mw", "construction": "fk"}']
    )
    def test_a_mechanism_that_cannot_be_read(self, server: Server, people: None, mechanism: str) -> None:
        """Catches half a mechanism that is planned, and the second of two members of one name taken without a word."""
        refused = curator(server, "plan", "people", "--epsilon", "0.5", "-k", "100", "-m", mechanism)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr

    def test_compare(self, server: Server, people: None) -> None:
        """One table of several mechanisms: the best is marked, one without a plan says why, and the client reads
        the same out of the reply as it stands.
        """
        words = ["mw", '{"construction": "smw", "sparsity": 3}', "fk"]
        task = ("people", "--epsilon", "0.5", "--max-queries", "100", "--max-updates", "10")
        done = curator(server, "compare", *task[:1], *words, *task[1:])
        assert done.returncode == 0, done.stderr
        assert "best" in done.stdout
        with Curator(server.url, server.admin_key) as client:
            asked = [{"construction": "mw"}, {"construction": "smw", "sparsity": 3}, {"construction": "fk"}]
            found = client.compare("people", asked, epsilon=0.5, max_queries=100, max_updates=10)
            alone = client.plan("people", mechanism=asked[0], epsilon=0.5, max_queries=100, max_updates=10)
        assert [outcome.mechanism["construction"] for outcome in found.outcomes] == ["mw", "smw", "fk"]
        first = found.outcomes[0].plan
        assert first is not None
        assert first.error_bound == alone.error_bound
        bounds = [outcome.plan.error_bound for outcome in found.outcomes if outcome.plan is not None]
        assert found.best is not None
        best = found.outcomes[found.best].plan
        assert best is not None
        assert best.error_bound == min(bounds)
        assert [outcome.plan is None for outcome in found.outcomes] == [
            outcome.problem is not None for outcome in found.outcomes
        ]
        assert found.gaussian_error_bound == found.raw["independent_gaussian"]["error_bound"] > 0
        assert found.advice in " ".join(done.stdout.split())
        assert curator(server, "compare", *task[:1], "nothing", *task[1:]).returncode == 1

    def test_dataset_list(self, server: Server, people: None) -> None:
        done = curator(server, "dataset", "list")
        assert "people" in done.stdout

    def test_listings_lose_nothing_on_a_narrow_terminal(self, server: Server, people: None, session: str) -> None:
        """Catches an id, a name or an amount cut off at eighty columns, where somebody copies it from, and a session
        whose owner, state or cost is not told."""
        owner = "somebody.with.a.name.of.sixty-four.characters-" + "x" * 18
        key = curator(server, "principal", "add", owner).stdout.strip()
        opened = curator(
            server, "session", "open", "people", "-e", "0.125", "-k", "50", "-m", "laplace", "--json", key=key
        )  # fmt: skip
        assert opened.returncode == 0, opened.stderr
        id = json.loads(opened.stdout)["id"]
        asked = curator(server, "ask", id, "--where", "sex=female", key=key)
        assert asked.returncode == 0, asked.stderr

        listed = narrow(server, "session", "list", key=key)
        assert id in listed
        together = "".join(listed.split())
        assert all(part in listed for part in ("people", "laplace", "open", "1 of 50"))
        principals = narrow(server, "principal", "list")
        assert owner in "".join(principals.split()) or owner[:20] in principals
        assert "…" not in listed + principals
        state = json.loads(curator(server, "session", "show", id, "--json", key=key).stdout)
        assert f"{state['spent_epsilon']:,.6g}" in together
        assert f"{state['reserved_epsilon']:,.6g}" in together

        whole = json.loads(curator(server, "ledger", "people", "--json").stdout)
        told = narrow(server, "ledger", "people")
        assert "…" not in told
        for entry in whole["entries"]:
            assert entry["session"] in told
            assert re.search(rf"(?<!\S){re.escape(format(entry['epsilon'], ',.6g'))}$", told, re.MULTILINE)
        last = next(entry for entry in whole["entries"] if (entry["session"], entry["kind"]) == (id, "charge"))
        assert last["epsilon"] == pytest.approx(float(last["amount"]) / float(whole["budget"]))
        assert "exactly" in told
        assert told.index("0.125") < told.index("exactly")

        data_sets = narrow(server, "dataset", "list")
        assert "registered" in "".join(data_sets.split())
        remaining = json.loads(curator(server, "dataset", "show", "people").stdout)["budget"]["remaining_epsilon"]
        assert f"{remaining:,.6g}" in "".join(data_sets.split())
        rows = json.loads(curator(server, "principal", "list", "--json").stdout)
        assert {"name", "role", "created_at", "revoked_at"} == rows[0].keys()
        assert owner in {row["name"] for row in rows}

    def test_a_principal_gets_a_key_that_works(self, server: Server) -> None:
        done = curator(server, "principal", "add", "ann", "--role", "analyst")
        assert done.returncode == 0, done.stderr
        key = done.stdout.strip()
        assert curator(server, "dataset", "list", key=key).returncode == 0
        rotated = curator(server, "principal", "rotate", "ann")
        assert rotated.returncode == 0, rotated.stderr
        assert curator(server, "dataset", "list", key=rotated.stdout.strip()).returncode == 0
        assert "unauthenticated" in curator(server, "dataset", "list", key=key).stderr

    def test_ask(self, server: Server, session: str) -> None:
        query = {"type": "predicate", "where": {"sex": {"equals": "female"}, "age": {"between": [20, 50]}}}
        done = curator(server, "ask", session, json.dumps(query), "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        # Of 10,000 records half are women, three tenths of them from 20 to 49.
        assert abs(answer["value"] - 1500) <= answer["error_bound"]
        again = curator(server, "ask", session, "-", stdin=json.dumps(query))
        assert again.returncode == 0, again.stderr
        assert "cached" in again.stdout
        in_words = curator(server, "ask", session, "--where", "sex=female", "--where", "age>=20", "--where", "age<50")
        assert "cached" in in_words.stdout, in_words.stderr
        unweighted = curator(server, "ask", session, "--where", "sex=female", "--weighted")
        assert unweighted.returncode == 1
        assert "role of a weight" in unweighted.stderr

    def test_ask_for_a_table(self, server: Server, people: None) -> None:
        """As a table, as JSON and as CSV the same numbers, from one question. Of 10,000 records half are women, a tenth
        of them in each bin. Would catch a question that is paid for again, and one that is asked half."""
        with Curator(server.url, server.admin_key) as client:
            session = client.session("people", mechanism={"construction": "gaussian"}, epsilon=0.1, max_queries=3).id
        words = ("--group-by", "age,sex", "--bins", "age=0,50,100", "--where", "age<90")
        done = curator(server, "ask", session, *words, "--csv")
        assert done.returncode == 0, done.stderr
        head, *rows = done.stdout.splitlines()
        assert head == "age,sex,value,standard_error,low,high"
        assert [row.split(",female,")[0] for row in rows[::2]] == ['"[0, 50)"', '"[50, 90)"']
        values = [float(row.rsplit(",", 4)[1]) for row in rows]
        error = float(rows[0].rsplit(",", 4)[2])
        assert all(abs(v - truth) < 8 * error for v, truth in zip(values, (2500, 2500, 2000, 2000), strict=True))
        shown = curator(server, "ask", session, *words)
        assert "cached" in shown.stdout, shown.stderr
        assert f"{values[0]:,.0f} ±" in shown.stdout
        query = {"type": "marginal", "attributes": ["age", "sex"], "bins": {"age": [0, 50, 90]}}
        reply = json.loads(curator(server, "ask", session, json.dumps(query), "--json").stdout)
        assert (reply["values"], reply["source"], reply["queries_left"]) == (values, "cached", 2)
        number = curator(server, "ask", session, "--where", "sex=female", "--csv")
        assert number.stdout.startswith("value,standard_error,low,high\n"), number.stderr
        assert "±" in curator(server, "ask", session, "--where", "sex=female").stdout

    def test_ask_of_a_graph(self, server: Server, tmp_path: Path) -> None:
        """Blocks of groups in files, whose nodes are numbers or declared labels, as a table and as CSV; degrees are
        refused by the service. Would catch labels that are sent as numbers, sides exchanged, and an option that does
        not reach the service."""
        left, right, spec = tmp_path / "users.csv", tmp_path / "films.tsv", tmp_path / "likes.json"
        left.write_text("node,group\n0,young\n1,old\n2,young\n")
        right.write_text("10\told films\n30\tnew films\n")
        (tmp_path / "likes.csv").write_text("".join(f"{u},{f}\n" for u, f in ((0, 10), (1, 10), (2, 30), (0, 20))))
        spec.write_text(
            json.dumps(
                {"name": "likes", "kind": "bipartite", "left": 3, "right": 3, "right_labels": ["10", "20", "30"]}
                | {"budget": {"epsilon": 1000, "delta": 1e-6}}
            )
        )
        added = curator(server, "dataset", "add", str(spec), str(tmp_path / "likes.csv"))
        assert added.returncode == 0, added.stderr
        with Curator(server.url, server.admin_key) as client:
            session = client.session("likes", mechanism={"construction": "laplace"}, epsilon=1000, max_queries=2).id
        words = ("--blocks", str(left), "--blocks-right", str(right))
        done = curator(server, "ask", session, *words, "--csv")
        assert done.returncode == 0, done.stderr
        head, *rows = [line.split(",") for line in done.stdout.splitlines()]
        assert head == ["left", "right", "value", "standard_error", "low", "high"]
        found = {(a, b): round(float(value)) for a, b, value, *_ in rows}
        assert found == {
            ("young", "old films"): 1,
            ("young", "new films"): 1,
            ("old", "old films"): 1,
            ("old", "new films"): 0,
        }
        shown = curator(server, "ask", session, *words)
        assert "cached" in shown.stdout, shown.stderr
        assert "old films" in shown.stdout
        apart = curator(server, "ask", session, *words, "--only", "within")
        assert apart.returncode == 1
        assert "is on one side alone" in apart.stderr
        degrees = curator(server, "ask", session, "--degrees", "--side", "left", "--bins", "0,1,2")
        assert degrees.returncode == 1
        assert "degrees are answered by sessions" in degrees.stderr
        wrong = curator(server, "ask", session, "--degrees", "--side", "left", "--bins", "0,9")
        assert "more than 3 neighbours" in wrong.stderr

    def test_the_service_chooses(self, server: Server, people: None) -> None:
        """Without a mechanism and a number of queries: what was chosen, why, and what it means lead. Would catch an
        option that does not reach the service."""
        words = ("people", "--epsilon", "0.02", "--within", "500", "--confidence", "0.9", "--from-nothing")
        made = curator(server, "plan", *words)
        assert made.returncode == 0, made.stderr
        assert made.stdout.startswith("evidence: ")
        opened = json.loads(curator(server, "session", "open", *words, "--for-itself", "--json").stdout)
        asked = {name: opened["mechanism"][name] for name in ("within", "confidence", "start", "share")}
        assert asked == {"within": 500, "confidence": 0.9, "start": "nothing", "share": False}
        answer = curator(server, "ask", opened["id"], "--where", "sex=female")
        assert "0.9 (" in answer.stdout, answer.stderr
        share = curator(server, "ask", opened["id"], "--share", "age>=50", "--group-by", "sex", "--csv")
        assert share.returncode == 0, share.stderr
        rows = [line.split(",") for line in share.stdout.splitlines()[1:]]
        assert [row[0] for row in rows] == ["female", "male"]
        assert all(abs(float(row[1]) - 0.5) < 0.2 for row in rows)
        refused = curator(server, "ask", opened["id"], "--where", "age<50", "--within", "0.001")
        assert refused.returncode == 1
        assert "plan-infeasible" in refused.stderr
        assert curator(server, "session", "show", opened["id"]).returncode == 0
        words = ("people", "--epsilon", "0.02", "--max-queries", "20", "--contract")
        promised = curator(server, "plan", *words)
        assert promised.returncode == 0, promised.stderr
        assert "error bound" in promised.stdout
        assert json.loads(curator(server, "plan", *words, "--json").stdout)["mode"] == "contract"

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ((), "nothing is asked"),
            (("{}", "--group-by", "age"), "not both"),
            (("{}", "--mean", "age"), "not both"),
            (("--mean", "age", "--sum", "age"), "one of --sum, --mean"),
            (("--mean", "age", "--q", "0.5"), "--q is of --quantile"),
            (("--quantile", "age", "--q", "half"), "--q must be a number"),
            (("--share", "age"), "--share: 'age' is no condition"),
            (("--ratio", "age"), "--ratio: 'age' is no two attributes"),
            (("--ratio", "age/"), "--ratio: 'age/' is no two attributes"),
            (("--median", "age", "--share", "age>=3"), "one of --median, --share"),
            (("--mean", "age", "--where", "age<null"), "age=null selects it"),
            (("--bins", "age=0,50"), "--group-by"),
            (("--bins", "age=50", "--group-by", "age"), "no two edges"),
            (("--bins", 'work={"employed"', "--group-by", "work"), "no two edges"),
            (("--where", "age>18 and age<65"), "several conditions"),
            (("--where", "sex=f && age<65"), "several conditions"),
            (("--where", "age"), "no condition"),
            (("--only", "within"), "of --blocks"),
            (("--side", "out"), "of --degrees"),
            (("--degrees", "--group-by", "age"), "by themselves"),
            (("--degrees", "--bins", "age=0,5"), "least degree"),
            (("--blocks", "none.csv"), "cannot be read"),
            (("--blocks", "none.csv", "--degrees"), "by itself"),
        ],
    )
    def test_what_is_not_a_question(self, words: tuple[str, ...], says: str) -> None:
        done = curator(None, "ask", "session", *words)
        assert done.returncode == 1
        assert says in done.stderr

    @pytest.mark.parametrize(
        ("words", "asked"),
        [
            (("--median", "age"), {"type": "quantile", "of": "age", "q": 0.5, "where": {}}),
            (
                ("--ratio", "pay / hours", "--group-by", "sex", "--where", "age>=30"),
                {"type": "ratio", "of": "pay", "per": "hours", "where": {"age": {"ge": 30}}, "group_by": ["sex"]},
            ),
            (
                ("--mean", "pay", "--group-by", "work", "--bins", 'work={"employed": ["full", "part=half"]}'),
                {
                    "type": "mean",
                    "of": "pay",
                    "where": {},
                    "group_by": ["work"],
                    "bins": {"work": {"employed": ["full", "part=half"]}},
                },
            ),
            (
                ("--group-by", "age,of=fice", "--where", 'town="Bonn and age=1"', "--bins", "of=fice=1,2"),
                {
                    "type": "marginal",
                    "attributes": ["age", "of=fice"],
                    "where": {"town": "Bonn and age=1"},
                    "bins": {"of=fice": [1, 2]},
                },
            ),
            (
                ("--share", "age>=50", "--share", "sex=male,female", "--weighted"),
                {"type": "share", "of": {"age": {"ge": 50}, "sex": ["male", "female"]}, "where": {}, "weighted": True},
            ),
        ],
    )
    def test_statistics_in_words(
        self, words: tuple[str, ...], asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As they are sent. Would catch an option that is read for another, or dropped."""
        seen: list[dict[str, Any]] = []

        class Heard(Exception):
            pass

        def question(self: questions._Words, labels: object = None) -> dict[str, Any]:
            seen.append(own(self))
            raise Heard

        own = questions._Words.question
        monkeypatch.setattr(questions._Words, "question", question)
        for command in ("ask", "price"):
            found = CliRunner().invoke(cli, [command, "session", *words])
            assert isinstance(found.exception, Heard), found.output
        assert seen == [asked, asked]

    def test_prices(self, server: Server, people: None) -> None:
        """Catches a price that is charged, one that is cut off by a narrow terminal, and a limit that is not sent."""
        with Curator(server.url, server.admin_key) as client:
            session = client.session("people", epsilon=0.1, max_queries=5, mechanism="gaussian")
        told = curator(server, "price", session.id, "--group-by", "age", "--where", "sex=female")
        assert told.returncode == 0, told.stderr
        assert len(told.stdout.splitlines()) == 1
        assert "epsilon" in told.stdout
        assert "(measurement)" in told.stdout
        as_json = json.loads(curator(server, "price", session.id, "--group-by", "age", "--json").stdout)
        assert as_json["epsilon"] > 0
        refused = curator(server, "ask", session.id, "--group-by", "age", "--at-most", str(as_json["epsilon"] / 3))
        assert refused.returncode == 1
        assert "at_most" in refused.stderr
        with Curator(server.url, server.admin_key) as client:
            assert client.resume(session.id).state().queries_asked == 0

    def test_close_transcript_and_replay(self, server: Server, people: None, tmp_path: Path) -> None:
        with Curator(server.url, server.admin_key) as client:
            session = client.session(
                "people", mechanism={"construction": "mw"}, epsilon=0.1, max_updates=5, max_queries=50
            )
            session.ask_many(
                question({"type": "predicate", "where": {"age": {"between": [i, i + 10]}}}) for i in range(0, 100, 10)
            )
        shown = curator(server, "session", "show", session.id)
        assert "10 of" in shown.stdout, shown.stderr
        closed = curator(server, "session", "close", session.id)
        assert "closed" in closed.stdout, closed.stderr
        target = tmp_path / "t.ndjson"
        written = curator(server, "session", "transcript", session.id, "--output", str(target))
        assert written.returncode == 0, written.stderr
        followed = curator(None, "audit", "replay", str(target))
        assert followed.returncode == 0, followed.stderr

        # One digit of one answer changed: the chain no longer holds, and the entry is named.
        lines = target.read_bytes().splitlines()
        entry = json.loads(lines[3])
        entry["value"] += 1
        lines[3] = json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()
        target.write_bytes(b"\n".join(lines) + b"\n")
        forged = curator(None, "audit", "replay", str(target))
        assert forged.returncode == 1
        assert "entry 3" in forged.stderr
        assert "Traceback" not in forged.stderr
