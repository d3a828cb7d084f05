"""Tasks to make something of a release's measurements, and what comes of them, in closed forms that any machine can be
given.

A task is JSON: the data set as its descriptor says, what was asked, the measurements as they were recorded, and a seed.
All of that stands in transcripts, so that a task holds no private number and no key. A result is an Arrow stream: the
tables of the release as Arrow files, and what is said of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson
import pyarrow as pa

from app.curator.mechanisms.release import job_of
from app.curator.opening import Stated
from app.declarations.errors import CuratorError
from app.measurements.record import Measurement
from app.patience import Progress
from app.releases.finishing import Job, finish
from app.releases.workloads import Cuts, Workload
from app.services.closed_forms import Damaged, opened, sealed
from app.services.release_files import tables_of
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Question

#: The kinds of both forms.
TASK, _RESULT = "release-task", "release-result"
#: The tables that a method makes of a table, where they are not answers alone.
_TABLES = {"publication": ("tables",), "synthetic_table": ("answers", "records")}
_FILES = pa.schema([("name", pa.string()), ("data", pa.large_binary())])


@dataclass(frozen=True)
class Task:
    """A task to make what is to be made of a release's measurements.

    Attributes:
        dataset: the descriptor of the data set, as the release's header has it.
        mechanism: what was asked for, as it has that.
        known: documents of what was measured of the data set before.
        made: those of what was measured for the release.
        seed: of everything that is drawn at random for it, which is no secret.
    """

    dataset: Mapping[str, Any]
    mechanism: Mapping[str, Any]
    known: Sequence[Mapping[str, Any]]
    made: Sequence[Mapping[str, Any]]
    seed: int

    @classmethod
    def of(cls, header: Mapping[str, Any], known: Sequence[bytes], made: Sequence[bytes], seed: int) -> Self:
        """The task of a release, from the document of its header and the records of measurements."""
        before, own = ([orjson.loads(line)["measurement"] for line in lines] for lines in (known, made))
        return cls(header["dataset"], header["mechanism"], before, own, seed)

    def written(self) -> bytes:
        """The closed form."""
        names = ("dataset", "known", "made", "mechanism", "seed")
        return sealed(TASK, orjson.dumps({name: getattr(self, name) for name in names}))

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From the closed form.

        Raises:
            Damaged: when it is none.
        """
        try:
            found = cls(**orjson.loads(opened(TASK, content)))
        except TypeError:
            raise Damaged(f"a {TASK} lacks a part, or has one too many") from None
        if type(found.seed) is not int or not isinstance(found.known, list) or not isinstance(found.made, list):
            raise Damaged(f"a {TASK} with parts of other types")
        return found

    def job(self) -> tuple[Stated, Job]:
        """What is stated of the release, and the job.

        Raises:
            Damaged: when they follow from no transcript.
        """
        try:
            stated = Stated.of({"dataset": self.dataset, "mechanism": self.mechanism, "evidence": _NOTHING})
            known, made = ([Measurement.read(each) for each in part] for part in (self.known, self.made))
            return stated, job_of(stated, known, made, self.seed)
        except (CuratorError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise Damaged(f"a {TASK} that follows from no transcript ({type(error).__name__})") from error


#: The hashes of measurements, which stand in the task themselves.
_NOTHING: Mapping[str, list[str]] = {"known": [], "made": []}


@dataclass(frozen=True)
class Result:
    """What was made of a task.

    Attributes:
        files: Arrow files by the names of tables.
        agreeing: whether these are whole numbers that add up to one another.
        summary: JSON of what is to be said of it.
        converged: whether what was looked for was found to its tolerance.
    """

    files: Mapping[str, bytes]
    agreeing: bool
    summary: Mapping[str, Any]
    converged: bool

    def written(self) -> bytes:
        """The closed form."""
        told = {"agreeing": self.agreeing, "converged": self.converged, "summary": dict(self.summary)}
        rows = pa.table([list(self.files), list(self.files.values())], schema=_FILES)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _FILES.with_metadata({"told": orjson.dumps(told)})) as writer:
            writer.write_table(rows)
        return sealed(_RESULT, sink.getvalue().to_pybytes())

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From the closed form.

        Raises:
            Damaged: when it is none.
        """
        try:
            with pa.ipc.open_stream(pa.py_buffer(opened(_RESULT, content))) as stream:
                schema, rows = stream.schema, stream.read_all()
            told = orjson.loads(schema.metadata[b"told"])
            agreeing, summary, converged = told["agreeing"], told["summary"], told["converged"]
            sound = schema.equals(_FILES) and isinstance(summary, dict)
            if not sound or type(agreeing) is not bool or type(converged) is not bool:
                raise TypeError
            names, data = (rows.column(each.name).to_pylist() for each in _FILES)
            return cls(dict(zip(names, data, strict=True)), agreeing, summary, converged)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"this is no {_RESULT}") from error

    def check(self, method: str, workload: Workload) -> None:
        """Hold the tables against what was asked for: whoever made them may have made something else of it.

        Raises:
            Damaged: naming the table.
        """
        expected = ("edges",) if isinstance(workload, Cuts) else _TABLES.get(method, ("answers",))
        if tuple(sorted(self.files)) != expected or self.agreeing != (expected == ("tables",)):
            raise Damaged(f"a {_RESULT} has the tables {', '.join(expected)}, and this one {', '.join(self.files)}")
        for name, data in self.files.items():
            try:
                table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
                table.validate(full=True)
            except pa.ArrowException as error:
                raise Damaged(f"the table {name} of a {_RESULT} is no Arrow file") from error
            if isinstance(workload, Cuts) or name == "records":
                continue
            if table.num_rows != sum(_rows(asked) for asked in workload.tables):
                raise Damaged(f"the table {name} of a {_RESULT} has not as many rows as were asked for")


def _rows(asked: Question | CompiledStatistic) -> int:
    return asked.numbers if isinstance(asked, CompiledStatistic) else math.prod(asked.shape)


def carried_out(content: bytes, progress: Progress) -> bytes:
    """The result of a task, both in their closed forms.

    Args:
        content: the task.
        progress: told from time to time.

    Raises:
        Damaged: when it is none.
        CuratorError: when nothing can come of it.
    """
    stated, job = Task.read(content).job()
    outcome = finish(job, progress)
    files = tables_of(stated.dataset.space, outcome)
    return Result(files, outcome.agreeing, outcome.summary, outcome.converged).written()
