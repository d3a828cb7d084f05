"""Tasks and results in their closed forms: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.curator.mechanisms.release import job_of
from app.curator.planners.workload import WorkloadPlan
from app.measurements.record import Measurement
from app.releases.finishing import finish
from app.services import closed_forms
from app.services.closed_forms import Damaged, refused, sealed
from app.services.release_files import tables_of
from app.services.release_tasks import Result, Task, carried_out
from tests.kit.released import CASES, Released, released

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module", params=list(CASES))
def made(request: pytest.FixtureRequest) -> Released:
    return released(request.param)


def silent(part: float) -> None:
    """Nobody is told."""


def test_what_comes_of_the_closed_form_is_what_comes_of_the_job(made: Released) -> None:
    """The oracle is the job as it is made in memory, of the opening with its plan, and its outcome as tables. Would
    catch a part of a job that the form does not hold, and numbers that are not the same to the last bit.
    """
    known = [Measurement.read(orjson.loads(line)["measurement"]) for line in made.lines]
    outcome = finish(job_of(made.opening, [], known, made.task.seed), silent)
    result = Result.read(carried_out(made.task.written(), silent))
    assert result.files == tables_of(made.opening.dataset.space, outcome)
    assert result.summary == orjson.loads(orjson.dumps(outcome.summary))
    assert (result.agreeing, result.converged) == (outcome.agreeing, outcome.converged)
    assert isinstance(made.opening.plan, WorkloadPlan)
    result.check(made.opening.request.workload.method, made.opening.plan.workload)


def test_the_forms_are_read_as_they_were_written(made: Released) -> None:
    assert Task.read(made.task.written()) == made.task
    result = carried_out(made.task.written(), silent)
    assert Result.read(result).written() == result


def test_a_task_holds_what_a_transcript_has_and_nothing_more(made: Released) -> None:
    """A task is handed to machines that nobody trusts with private numbers. Catches a part that is in no transcript."""
    body = json.loads(made.task.written().split(b"\n", 1)[1])
    assert set(body) == {"dataset", "known", "made", "mechanism", "seed"}
    header = made.opening.document()
    assert (body["dataset"], body["mechanism"]) == (header["dataset"], header["mechanism"])
    assert body["made"] == [json.loads(line)["measurement"] for line in made.lines]


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_that_has_changed_is_seen(at: float, bit: int) -> None:
    """In either form, wherever it is. Catches numbers of a result that were changed on the way."""
    one = released("gaussian")
    for form, read in ((one.task.written(), Task.read), (carried_out(one.task.written(), silent), Result.read)):
        content = bytearray(form)
        content[int(at * len(content))] ^= 1 << bit
        with pytest.raises(Damaged):
            read(bytes(content))


@given(at=st.floats(0, 1, exclude_max=True))
def test_what_was_cut_short_is_refused(at: float) -> None:
    one = released("gaussian")
    for form, read in ((one.task.written(), Task.read), (carried_out(one.task.written(), silent), Result.read)):
        with pytest.raises(Damaged):
            read(form[: int(at * len(form))])


@given(st.binary(max_size=200))
def test_bytes_that_are_no_form_are_refused(content: bytes) -> None:
    for read in (Task.read, Result.read, refused):
        with pytest.raises(Damaged):
            read(content)


def rewritten(task: Task, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A task with another body, whose digest is right: as somebody would write it who means it."""
    body = orjson.loads(task.written().split(b"\n", 1)[1])
    change(body)
    return sealed("release-task", orjson.dumps(body))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("made"),
        lambda body: body.update(pickle="gASV"),
        lambda body: body.update(seed="1"),
        lambda body: body.update(known=None),
        lambda body: body["made"][0].pop("noise"),
        lambda body: body["made"][0].update(values=["x"]),
        lambda body: body["made"].append(7),
        lambda body: body["dataset"].update(kind="cube"),
        lambda body: body["mechanism"].update(method="guess"),
        lambda body: body.update(mechanism={}),
    ],
)
def test_a_task_that_follows_from_no_transcript_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """Catches a worker that computes with what it has not checked, and one that says nothing of what is wrong."""
    with pytest.raises(Damaged, match="release-task"):
        carried_out(rewritten(released("gaussian").task, change), silent)


def test_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and workers of two versions. Catches a form that is read as if it were this program's."""
    with monkeypatch.context() as patch:
        patch.setattr(closed_forms, "VERSION", closed_forms.VERSION + 1)
        task = released("gaussian").task.written()
    with pytest.raises(Damaged, match="run the same version here"):
        Task.read(task)


def file(rows: int) -> bytes:
    """An Arrow file of so many rows."""
    sink = pa.BufferOutputStream()
    table = pa.table({"value": [0.0] * rows})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize(
    ("files", "agreeing", "word"),
    [
        ({}, False, "has the tables answers"),
        ({"answers": b""}, False, "no Arrow file"),
        ({"answers": file(3)}, False, "not as many rows"),
        ({"answers": file(12), "manifest": b"{}"}, False, "manifest"),
        ({"answers": file(12)}, True, "has the tables"),
    ],
)
def test_a_result_of_something_else_is_refused(files: dict[str, bytes], agreeing: bool, word: str) -> None:
    """A worker is not trusted to have done what it was asked. Catches a release with the tables of another one."""
    one = released("gaussian")
    assert isinstance(one.opening.plan, WorkloadPlan)
    result = Result.read(Result(files, agreeing, {}, True).written())
    with pytest.raises(Damaged, match=word):
        result.check("gaussian", one.opening.plan.workload)
