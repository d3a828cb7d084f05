"""docs/releases.md: all that it says to type is typed, on one server, and every body that it shows is taken."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas  # type: ignore[import-untyped]
import pytest

from app.bootstrap.noise import SystemNoise
from app.constructions.mechanism import Method, ReleaseOptions
from app.curator import workload_comparison
from app.curator.planners import cells, rounds, workload
from app.measurements.strategies.tables import MOST_ROW_CELLS
from app.releases import factorization, fitting
from app.spaces.workload_request import MOST_NAMED, WorkloadRequest
from tests.kit.patience import patience
from tests.kit.servers import shims
from tests.kit.service import Service, serving
from tests.kit.world import eventually

pytestmark = [pytest.mark.api, pytest.mark.slow]

_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_JSON = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Typed:
    """What came of typing everything: the folder that it was typed in, what was printed, and the server."""

    folder: Path
    printed: str
    service: Service


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "releases.md").read_text()


@pytest.fixture(scope="module")
def typed(root: Path, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    """All blocks in one shell, in their order."""
    folder, commands = tmp_path_factory.mktemp("typed"), tmp_path_factory.mktemp("bin")
    shims(commands)
    script = "\n".join(
        code if language == "bash" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
        for language, code in _BLOCK.findall(text)
    )
    with serving(tmp_path_factory.mktemp("served"), noise=SystemNoise()) as service:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")} | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "CURATOR_URL": service.url,
            "CURATOR_API_KEY": service.admin_key,
            "COLUMNS": "160",
        }
        command = ["bash", "-euo", "pipefail", "-c", script]
        limit = patience(90)
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        yield Typed(folder, done.stdout, service)


def test_everything_that_is_typed_does_what_is_said(typed: Typed) -> None:
    """Would catch a command, a field or a file that was renamed, answers without errors, labels of another form than is
    said, records that pandas cannot read, a release that is cancelled after its noise, and a transcript that does not
    replay."""
    assert "the transcript replays" in typed.printed
    assert re.search(r"409$", typed.printed, re.MULTILINE)
    answers = pandas.read_csv(typed.folder / "answers.csv")
    assert len(answers) == 2 * 8 + 2 * 3 + 8 * 3
    assert (answers["standard_error"] > 0).all()
    # What is impossible is cut off: of an empty cell both may be 0.
    assert (answers["low"] <= answers["high"]).all()
    assert (answers["low"] < answers["high"]).mean() > 0.5
    ranges = pandas.read_csv(typed.folder / "ranges.csv")
    assert "[20, 30)" in set(ranges["age"])
    assert abs(ranges["value"].sum() - 3000) < 5 * ranges["standard_error"].sum()
    assert "event: end" in (typed.folder / "events.txt").read_text()
    assert json.loads((typed.folder / "cancelled.json").read_text())["type"] == "/problems/conflict"
    records = pandas.read_parquet(typed.folder / "records.parquet")
    assert list(records.columns) == ["sex", "age", "work"]
    assert len(records) == 3000
    assert set(records["work"]) == {"none", "part", "full"}
    # Nobody of the survey works before 18: the records know it, as their tables were measured.
    children = records[records["age"] == "[0, 10)"]
    assert (children["work"] == "none").mean() > 0.8

    def ended() -> Any:
        """The first six, once all have ended: nobody waits for the last."""
        found = typed.service.admin.get("/v1/releases").json()["items"][:6]
        return found if {release["status"] for release in found}.isdisjoint(("queued", "running")) else None

    releases = eventually(ended)
    assert [found["status"] for found in releases] == ["done"] * 6
    # Those that were asked for in one second are told in any order.
    assert {found["result"]["records"] for found in releases if "records" in found["result"]} == {3000}


def test_published_tables_add_up(typed: Typed) -> None:
    """Would catch a publication that is not written where it is said, tables that disagree, and one that is charged."""
    manifest = json.loads((typed.folder / "tables" / "manifest.json").read_text())
    by_sex, by_age = (pandas.read_csv(typed.folder / "tables" / f"table-{number}.csv") for number in (1, 2))
    assert manifest["epsilon"] == 0
    assert [table["sum"] for table in manifest["tables"]] == [3000, 3000, None]
    asked = {"type": "share", "of": {"work": "full"}, "group_by": ["sex"], "where": {}}
    assert manifest["tables"][2]["question"] == asked
    assert pandas.read_csv(typed.folder / "tables" / "table-3.csv")["value"].between(0, 1).all()
    assert by_sex.groupby("age")["value"].sum().to_dict() == by_age.set_index("age")["value"].to_dict()
    assert (typed.folder / "measured" / "tables.xlsx").stat().st_size > 0
    assert json.loads((typed.folder / "published.json").read_text())["cost"]["reserved"] == "0"


def test_what_a_release_measured_is_free(typed: Typed) -> None:
    """Would catch a session that pays for what a release measured."""
    assert re.search(r"^estimate 0(\.0)?$", typed.printed, re.MULTILINE), typed.printed


def test_the_synthetic_graph_is_one(typed: Typed) -> None:
    """networkx reads its edges. Would catch a pair that is there twice, a loop, weights that were to be rounded, and a
    graph that has little to do with the one behind it."""
    networkx = pytest.importorskip("networkx")
    edges = pandas.read_csv(typed.folder / "edges.csv")
    assert set(edges["weight"]) == {1.0}
    graph = networkx.from_pandas_edgelist(edges)
    assert graph.number_of_edges() == len(edges)
    assert networkx.number_of_selfloops(graph) == 0
    with (typed.folder / "friends.txt").open() as file:
        truth = len(list(csv.reader(file)))
    # Its number of edges is that of the unbiased weights, up to their noise: five of its standard errors.
    releases = typed.service.admin.get("/v1/releases").json()["items"]
    # The later one knows more.
    cell = min(found["result"]["cell_error"] for found in releases if found["dataset"] == "friends")
    assert abs(len(edges) - truth) < 5 * cell * (40 * 39 / 2) ** 0.5
    assert f"Graph with {graph.number_of_nodes()} nodes and {len(edges)} edges" in typed.printed


def test_plans_are_told(typed: Typed) -> None:
    """Would catch a basis of errors that the page does not explain, and a best method that has no plan."""
    plans = json.loads((typed.folder / "plans.json").read_text())
    assert re.search(rf"^{plans['best']} .* best *$", typed.printed, re.MULTILINE)
    bases = {way["expected"]["basis"] for way in plans["methods"] if way.get("expected")}
    assert bases == set(get_args(workload_comparison.Basis))


def test_every_workload_is_taken(typed: Typed, text: str) -> None:
    """Would catch an example that is refused, and a form of workload without one."""
    shown: list[dict[str, Any]] = [json.loads(block) for block in _JSON.findall(text)]
    for asked in shown:
        dataset = "friends" if WorkloadRequest.model_validate(asked).whole else "survey"
        words = {"dataset": dataset, "workload": asked, "epsilon": 0.1}
        reply = typed.service.admin.post("/v1/plans", json=words)
        assert reply.status_code == 200, reply.text
        assert reply.json()["best"] is not None
    assert {name for asked in shown for name in asked} == set(WorkloadRequest.model_fields)


def test_every_word_is_explained(text: str) -> None:
    """Would catch a method, an option or a basis that readers are not told of."""
    words = {*get_args(Method), *ReleaseOptions.model_fields, *get_args(workload_comparison.Basis)}
    assert not {word for word in words if f"`{word}`" not in text}


def test_limits_are_the_programs(text: str) -> None:
    """Would catch a limit that was changed in the program alone."""
    assert workload.MOST_WHOLE == 2**20
    assert workload.MOST_CELLS == fitting.MOST_CELLS == rounds.MOST_CELLS == 2**22
    assert factorization.MOST_CELLS == 2**17
    assert (cells.MOST_BITS, cells.MOST_NUMBERS) == (2**24, 2**22)
    assert f"{MOST_ROW_CELLS:,} cells apart" in text
    assert f"up to {cells.MOST_NEAREST:,} nodes a side" in text
    assert f"up to {MOST_NAMED:,} of them" in text
    for method, part in workload_comparison.NEARER.items():
        assert f"`{method}`" in text
        assert str(part) in text
