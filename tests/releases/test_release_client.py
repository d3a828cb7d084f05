"""Releases as the Python client and the command line have them, against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from curator_client import Curator, Refused, ReleaseState
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.servers import run
from tests.kit.service import Gate, Service, people

pytestmark = [pytest.mark.api, pytest.mark.slow]


@pytest.fixture(scope="module")
def curator(service: Service) -> Iterator[Curator]:
    with Curator(service.url, service.admin_key) as client:
        yield client


def command(service: Service, *arguments: str) -> tuple[int, str, str]:
    environment = {"CURATOR_URL": service.url, "CURATOR_API_KEY": service.admin_key, "COLUMNS": "160"}
    done = run(["release", *arguments], environment)
    return done.returncode, done.stdout, done.stderr


def test_from_asking_to_tables(service: Service, curator: Curator, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a state that is not told, a table that is another one, and a bar that fails without a terminal."""
    asked = curator.release(people(service), workload={"marginals": 1}, epsilon=0.5, method="gaussian", key="k")
    assert (asked.state.status, asked.state.ended) == ("queued", False)
    assert asked.plan.mode == "release"
    seen: list[ReleaseState] = []
    seen += asked.events()
    assert asked.wait() is asked
    assert seen[-1] == asked.state == curator.existing_release(asked.id).state
    assert (asked.status, asked.state.progress) == ("done", 1.0)
    assert asked.wait(progress=True).state.ended
    assert [each.id for each in curator.releases()] == [asked.id]
    table = asked.answers()
    assert len(table) == 6
    assert {*table.columns} == {"question", "sex", "age", "value", "standard_error", "low", "high"}
    with pytest.raises(Refused) as refusal:
        asked.edges()
    assert refusal.value.type == "not-found"
    with pytest.raises(Refused) as refusal:
        asked.cancel()
    assert refusal.value.type == "conflict"


def test_what_to_expect(service: Service, curator: Curator) -> None:
    """Catches a plan that loses a method or its refusal, and a table that says another one is best."""
    dataset = people(service)
    plan = curator.plan_release(dataset, workload={"marginals": 1}, epsilon=0.5)
    methods = {way.name: way for way in plan if not way.interactive}
    assert plan.best == plan[0].name
    assert methods["factorization"].root_mean_square is not None
    assert methods["synthetic_graph"].problem is not None
    assert {way.name for way in plan if way.interactive} >= {"evidence", "gaussian", "mw"}
    code, shown, _ = command(service, "plan", dataset, "--workload", "marginals=1", "--epsilon", "0.5")
    assert code == 0
    (best,) = [line for line in shown.splitlines() if "best" in line]
    assert plan.best in best
    code, told, _ = command(service, "plan", dataset, "-w", "marginals=1", "--epsilon", "0.5", "--json")
    assert json.loads(told)["best"] == plan.best


def test_cancelled(service: Service, curator: Curator, noise: Noise) -> None:
    """Catches a wait that takes a cancellation for data."""
    gate, dataset = Gate(), people(service)
    asked = partial(curator.release, dataset, workload={"marginals": 1}, epsilon=0.2, method="gaussian")
    with gate.shut():
        noise.draw = gate
        # Two are worked on at a time: one of any kind, and a quick one.
        first, other = asked(), asked()
        deadline = time.monotonic() + patience(20)
        while {first.refresh().step, other.refresh().step} != {"measuring"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        last = asked()
        assert last.cancel().status == "cancelled"
        with pytest.raises(TimeoutError, match="goes on"):
            first.wait(timeout=0.3)
        assert not first.state.ended
        with pytest.raises(Refused, match="cancelled"):
            last.wait()
    noise.draw = lambda _: 0
    heard: list[tuple[int, int | None]] = []
    first.wait(progress=lambda done, of: heard.append((done, of)))
    assert heard[-1] == (100, 100)
    other.wait()


def test_commands(service: Service, tmp_path: Path) -> None:
    """Catches a command that does not do what its name says, and one that ends in a stack trace."""
    dataset = people(service)
    words = ["-e", "0.5", "-w", "marginals=1", "--method", "gaussian"]
    code, told, errors = command(service, "ask", dataset, *words, "--json")
    assert code == 0, errors
    id = json.loads(told)["id"]
    code, told, errors = command(service, "follow", id)
    assert (code, "done" in told) == (0, True), errors
    assert id in command(service, "list")[1]
    assert "epsilon spent" in command(service, "show", id)[1]
    file = tmp_path / "answers.parquet"
    assert command(service, "data", id, "-o", str(file), "--part", "answers")[0] == 0
    assert pq.read_table(file).num_rows == 6
    for wrong in (
        ["data", id, "-o", str(tmp_path / "answers.xls")],
        ["cancel", id],
        ["ask", dataset, "-e", "1", "-w", "x"],
    ):
        code, _, errors = command(service, *wrong)
        assert code == 1
        assert errors
        assert "Traceback" not in errors
