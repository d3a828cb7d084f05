"""How often intervals hold what they say: every kind of question, way to pay, epsilon, confidence and shape of data.

Run `python -m benchmarks.research.coverage` (some ten minutes on two cores; `--quick` a minute). Each part is played in
this process with the service's own plans, measurements and intervals, and with noise of exactly the stated law from
NumPy. `--only` plays parts whose names begin so (`--list` names them) and keeps what is there of others; `--resume`
plays what is missing.

Of each cell it is counted in how many sessions intervals held. Flagged is what holds less often than it says by more
than chance, and what says .95 and holds more often than .995 without a reason
(:mod:`benchmarks.research.coverage_judge`).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import Target
from app.curator.planners.contract import ContractPlan
from app.curator.planners.workload import WorkloadPlan
from app.declarations.errors import CuratorError
from app.releases.table_results import Answers
from benchmarks.harness import RESULTS, report
from benchmarks.research import coverage_data as data
from benchmarks.research.coverage_data import Asked, GraphWorld, TableWorld
from benchmarks.research.coverage_judge import AT_BOUND, LEVELS, TOO_OFTEN, USUAL, Cell, Verdict, judged, together
from benchmarks.research.coverage_played import Drawn, Played, Setting, Told, released

CELLS = RESULTS / "coverage_cells.json"
DELTA = 1e-9
EPSILONS, CONFIDENCES = (0.1, 0.5, 1.0, 2.5), (0.95, 0.8, 0.99, 0.999)
TABLES = ("even", "skewed", "ties", "empty", "tiny", "missing", "bound")
GRAPHS = ("even", "skewed", "ties", "empty", "tiny", "bound")
World = TableWorld | GraphWorld
Stream = Literal["all", "few", "within", "chosen"]


@dataclass(frozen=True)
class Way:
    """A kind of session, or of release.

    Attributes:
        asked: the session, without data set and epsilon; as many queries as the stream has where it says none.
        pure: whether it may take all of the budget for pure noise.
        stream: all questions in any order; one of them; counts each within a width; or one that is chosen by what was
            released before, and asked as such.
        sessions: how many are played of each data set and epsilon.
        unit: what noise is a whole number of, in counts.
    """

    asked: dict[str, Any]
    pure: bool = False
    stream: Stream = "all"
    sessions: int = 24
    unit: float = 0.0


def _of(construction: str, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"construction": construction}} | more


def _release(method: str) -> dict[str, Any]:
    return {"mechanism": {"construction": "workload", "workload": {"marginals": 2}, "method": method, "options": {}}}


EVIDENCE = _of("evidence")
TABLE_WAYS = {
    "gaussian": Way(_of("gaussian"), sessions=100),
    "laplace": Way(_of("laplace"), pure=True, sessions=100),
    "lift": Way(EVIDENCE, unit=1.0),
    "table": Way(EVIDENCE | {"max_queries": 40}, pure=True, unit=1.0),
    "few": Way(EVIDENCE, pure=True, stream="few", sessions=150, unit=1.0),
    "histogram": Way(_of("histogram"), unit=1.0),
    "contract": Way(EVIDENCE | {"contract": True}, unit=1.0),
    "race": Way(EVIDENCE | {"contract": True, "release": "race"}, unit=1.0),
    "within": Way(EVIDENCE, stream="within", unit=1.0),
    "lift, chosen": Way(EVIDENCE, stream="chosen", sessions=50, unit=1.0),
    "table, chosen": Way(EVIDENCE | {"max_queries": 40}, pure=True, stream="chosen", sessions=50, unit=1.0),
}
GRAPH_WAYS = {
    "gaussian": Way(_of("gaussian"), sessions=100),
    "laplace": Way(_of("laplace"), pure=True, sessions=100),
    "few": Way(EVIDENCE, pure=True, stream="few", sessions=100),
    "open": Way(EVIDENCE),
    "many": Way(EVIDENCE | {"max_queries": 1000}, pure=True, unit=1.0),
    "histogram": Way(_of("histogram"), unit=1.0),
    "open, chosen": Way(EVIDENCE, stream="chosen", sessions=50),
    "many, chosen": Way(EVIDENCE | {"max_queries": 1000}, pure=True, stream="chosen", sessions=50, unit=1.0),
}
RELEASES = {
    method: Way(_release(method), pure=True, sessions=50, unit=1.0)
    for method in ("histogram", "gaussian", "projection", "factorization", "synthetic_table")
}
FAMILIES: dict[str, tuple[dict[str, Way], Sequence[str], Callable[[str], World]]] = {
    "table": (TABLE_WAYS, TABLES, data.table),
    "graph": (GRAPH_WAYS, GRAPHS, data.graph),
    "matrix": (GRAPH_WAYS, GRAPHS, data.matrix),
    "release": (RELEASES, TABLES, data.table),
}


@dataclass(frozen=True)
class Part:
    """What is played as one."""

    family: str
    way: str
    data: str
    epsilon: float

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.family}/{self.way}/{self.data}/{self.epsilon:g}"


def parts() -> Iterator[Part]:
    """All there are."""
    for family, (ways, worlds, _) in FAMILIES.items():
        for way in ways:
            for world in worlds:
                for epsilon in EPSILONS:
                    yield Part(family, way, world, epsilon)


class Counted:
    """The cells of a part."""

    def __init__(self, part: Part, mode: str) -> None:
        self._part, self._mode = part, mode
        self.cells: dict[tuple[str, str, float], Cell] = {}

    def cell(self, kind: str, interval: str, confidence: float) -> Cell:
        """One of them."""
        key = kind, interval, confidence
        if key not in self.cells:
            self.cells[key] = Cell(kind, self._mode, interval, self._part.data, self._part.epsilon, confidence)
        return self.cells[key]

    def take(
        self, kind: str, truth: np.ndarray, told: Told, unit: float, ranges: list[np.ndarray] | None = None
    ) -> None:
        """The answers of one session to one question, and of quantiles the places between which records are counted."""
        found = told.accuracy
        assert found is not None
        nothing, centres = np.isnan(told.values), told.values
        if found.linear is not None:
            # What was told before stays: at a higher confidence there may be nobody by now, and all is possible.
            nothing = nothing | (found.unbiased & np.isnan(found.linear))
            centres = np.where(found.unbiased, found.linear, told.values)
        lows, highs = np.where(nothing, np.nan, found.lows), np.where(nothing, np.nan, found.highs)
        for interval, chosen in (("unbiased", found.unbiased), ("model", ~found.unbiased)):
            if chosen.any():
                own = self.cell(kind, interval, found.confidence)
                narrow = narrower(lows, highs, unit, ranges)
                inner = None if narrow is None else (narrow[0][chosen], narrow[1][chosen])
                own.take(truth[chosen], lows[chosen], highs[chosen], centres[chosen], inner)

    def bound(self, kept: bool, confidence: float) -> None:
        """Whether all answers of a session kept their bounds."""
        cell = self.cell("all answers", "bound", confidence)
        cell.take(np.zeros(1), np.zeros(1) if kept else np.ones(1), np.ones(1), np.zeros(1))


def narrower(
    lows: np.ndarray, highs: np.ndarray, unit: float, ranges: list[np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The next narrower intervals that there are; None where they could be of any width."""
    if ranges is None:
        return (lows + unit, highs - unit) if unit else None
    # Intervals of quantiles begin at the first number of a range and end with the last of one.
    above = [
        ends[min(np.searchsorted(ends, low, side="right"), len(ends) - 1)]
        for ends, low in zip(ranges, lows, strict=True)
    ]
    below = [ends[np.searchsorted(ends, high, side="right") - 1] - 1 for ends, high in zip(ranges, highs, strict=True)]
    return np.array(above, np.float64), np.array(below, np.float64)


def questions(family: str, way: Way, world: World) -> Sequence[Asked]:
    """What is asked in a way."""
    if isinstance(world, GraphWorld):
        return data.graph_questions(world)
    construction, counts = way.asked["mechanism"].get("construction"), way.stream == "within" or "contract" in way.asked
    return data.COUNTS if counts or construction in ("gaussian", "laplace") else data.COUNTS + data.STATISTICS


def play(
    part: Part, sessions: float = 1.0, *, stretch: float = 1.0, kinds: Collection[str] | None = None
) -> list[Cell]:
    """The cells of a part; none where there is no such session.

    Args:
        part: which.
        sessions: how many are played, beside how many there are of its kind.
        stretch: by how much noise is larger than is said.
        kinds: of the questions that are asked; all where it is left out.
    """
    ways, _, make = FAMILIES[part.family]
    way, world = ways[part.way], make(part.data)
    asked = [each for each in questions(part.family, way, world) if kinds is None or each.kind in kinds]
    number = {"few": 1, "chosen": 3}.get(way.stream, len(asked))
    request = {"epsilon": part.epsilon} | ({} if part.family == "release" else {"max_queries": number}) | way.asked
    records = world.records if isinstance(world, TableWorld) else None
    try:
        setting = Setting.of(world.declared, world.data, request, delta=DELTA, records=records, pure=way.pure)
    except PlanInfeasible:
        return []
    counted = Counted(part, _mode(part, setting))
    for seed in range(max(1, round(sessions * way.sessions))):
        # Of each part and session its own, whatever else is played.
        rng = np.random.default_rng([*part.name.encode(), seed])
        noise = Drawn(rng, stretch)
        if part.family == "release":
            assert isinstance(world, TableWorld)
            _count_release(counted, setting, world, noise, seed)
        else:
            _count_session(counted, setting, world, way, asked, noise)
    return list(counted.cells.values())


def _mode(part: Part, setting: Setting) -> str:
    """What a part's way to pay is called in tables."""
    plan = setting.opening.plan
    if isinstance(plan, WorkloadPlan):
        return f"release: {part.way}"
    name = "" if part.family == "table" else f"{part.family}: "
    if setting.mode is None or part.way in ("histogram", "within"):
        return name + part.way
    if isinstance(plan, ContractPlan):
        return name + ("contract" if part.way == "contract" else "contract, race")
    return f"{name}evidence, {setting.mode}"


def _count_session(
    counted: Counted, setting: Setting, world: World, way: Way, asked: Sequence[Asked], noise: Drawn
) -> None:
    played = Played(setting, noise)
    if way.stream == "chosen":
        chosen = _chosen(played, world)
        if chosen is not None:
            _count(counted, played, chosen, world, way, adaptive=True)
        return
    order = noise.rng.permutation(len(asked))[: 1 if way.stream == "few" else None]
    kept: list[bool] = []
    for place in order:
        # Half a width that a question of all asked together could have with twice the budget.
        within = 80.0 / float(setting.opening.request.epsilon) if way.stream == "within" else None
        told = _count(counted, played, asked[place], world, way, within=within)
        if told is not None and told.bound is not None:
            kept.append(bool((np.abs(told.values - asked[place].truth(world)) <= told.bound).all()))
    if kept:
        counted.bound(all(kept), 1 - setting.opening.plan.beta)


def _count(
    counted: Counted,
    played: Played,
    asked: Asked,
    world: World,
    way: Way,
    within: float | None = None,
    *,
    adaptive: bool = False,
) -> Told | None:
    """One question at all confidences, of which the first decides what is paid; None where it is refused."""
    first: Told | None = None
    truth = asked.truth(world)
    for confidence in CONFIDENCES:
        try:
            told = played.ask(asked.words, Target(within if first is None else None, confidence, adaptive))
        except CuratorError:
            return None
        unit, ranges = way.unit * {"weights": 0.25, "share": 0.0, "share by": 0.0}.get(asked.kind, 1.0), None
        if asked.words["type"] == "quantile":
            ranges = played.ranges(asked.words)
        counted.take(asked.kind, truth, told, unit, ranges)
        first = first or told
    return first


def _chosen(played: Played, world: World) -> Asked | None:
    """The question that is picked by the noise of what was released: what all that came out high is together."""
    try:
        if isinstance(world, TableWorld):
            values = played.ask(data.NUMBERS).values
            numbers = np.flatnonzero(data.above(values)).tolist()
            words = {"type": "predicate", "where": {"value": {"in": numbers}}}
            return Asked("chosen set", words, lambda w: np.array([float(np.isin(w.columns[2], numbers).sum())]))
        rows, columns = world.entries.shape
        half = list(range(rows // 2))
        others = list(range(columns // 2, columns))
        if world.matrix:
            each = data.blocks("", [half, list(range(rows // 2, rows))], [[k] for k in range(columns)])
            values, others = played.ask(each.words).values.reshape(2, -1)[0], list(range(columns))
        else:
            each = data.blocks("", [half, *([k] for k in others)], None)
            values = played.ask(each.words).values.reshape(1 + len(others), -1)[0, 1:]
    except CuratorError:
        return None
    return data.cut("chosen cut", half, [others[k] for k in np.flatnonzero(data.above(values))])


def _count_release(counted: Counted, setting: Setting, world: TableWorld, noise: Drawn, seed: int) -> None:
    outcome = released(setting, noise, seed)
    for answers in outcome.answers:
        assert isinstance(answers, Answers)
        marginal = answers.question.marginal_of(setting.opening.dataset.space.shape)
        cells = tuple(marginal.partition(k) for k in range(len(marginal.attributes)))
        truth = data.counted(world, marginal.attributes, cells).reshape(-1)
        lows, highs = np.asarray(answers.estimates.lows).reshape(-1), np.asarray(answers.estimates.highs).reshape(-1)
        if not np.isnan(lows).all():
            kind = "marginal of " + " and ".join(setting.opening.dataset.space.names[a] for a in marginal.attributes)
            counted.cell(kind, "unbiased", 0.95).take(truth, lows, highs, (lows + highs) / 2, (lows + 1, highs - 1))


# ---------------------------------------------------------------------- what is kept, and what is told


#: What is kept of a cell beside its name, and how many digits.
KEPT, DIGITS = ("sessions", "answers", "held", "narrower", "single", "silent", "width", "squares"), 6


def load() -> dict[str, list[Cell]]:
    """What was played so far, by part."""
    if not CELLS.exists():
        return {}
    found: dict[str, list[Cell]] = {}
    for name, modes in json.loads(CELLS.read_text())["parts"].items():
        _, _, world, epsilon = name.split("/")
        found[name] = [
            Cell(kind, mode, interval, world, float(epsilon), confidence, **dict(zip(KEPT, numbers, strict=True)))
            for mode, kinds in modes.items()
            for kind, interval, cells in kinds
            for confidence, *numbers in cells
        ]
    return found


def store(found: dict[str, list[Cell]]) -> None:
    """Keep what was played: a line a part."""
    lines = []
    for name in sorted(found):
        modes: dict[str, dict[tuple[str, str], list[list[float]]]] = {}
        for cell in found[name]:
            numbers = [float(f"{getattr(cell, each):.{DIGITS}g}") for each in KEPT]
            own = modes.setdefault(cell.mode, {}).setdefault((cell.kind, cell.interval), [])
            own.append([cell.confidence, *(round(n) if n == round(n) else n for n in numbers)])
        told = {mode: [[*kind, cells] for kind, cells in kinds.items()] for mode, kinds in modes.items()}
        lines.append(f"{json.dumps(name)}: {json.dumps(told, separators=(',', ':'))}")
    text = f'{{"columns": {json.dumps(["confidence", *KEPT])},\n"parts": {{\n' + ",\n".join(lines) + "\n}}\n"
    made = CELLS.with_suffix(".new")
    made.write_text(text)
    made.replace(CELLS)


def summarise(found: dict[str, list[Cell]], *, folder: Any = RESULTS, **facts: Any) -> list[Verdict]:
    """Tables of what was played: a row for each kind of question and way to pay; and all that is flagged.

    The chance of a row that it is flagged by mistake is that of all of them together.
    """
    cells = [cell for own in found.values() for cell in own]
    verdicts = judged(cells)
    rows: dict[tuple[str, str, str], dict[float, Cell]] = {}
    for cell in together(cells, LEVELS[-1]):
        rows.setdefault((cell.mode, cell.kind, cell.interval), {})[cell.confidence] = cell
    within = [cell for cell in cells if cell.data not in AT_BOUND and cell.confidence == USUAL]
    inside = {(c.mode, c.kind, c.interval): c for c in together(within, LEVELS[-1])}
    shown = []
    for (mode, kind, interval), own in sorted(rows.items()):
        usual = own.get(USUAL)
        faults = sorted({v.fault for v in verdicts if (v.cell.mode, v.cell.kind) == (mode, kind)})
        reason = None
        if usual is not None and usual.covered > TOO_OFTEN:
            inner = inside.get((mode, kind, interval))
            reason = usual.reason or ("at a bound" if inner is None or inner.covered <= TOO_OFTEN else inner.reason)
        every = [own[c].covered if c in own else None for c in sorted(CONFIDENCES)]
        width = None if usual is None or math.isnan(usual.wide) else usual.wide
        sessions = max(each.sessions for each in own.values())
        shown.append([mode, kind, interval, sessions, *every, width, reason, ", ".join(faults) or None])
    columns = ["paid by", "question", "interval", "sessions"]
    columns += [f"{c:g}" for c in sorted(CONFIDENCES)]
    columns += ["width", "why more often", "flagged"]
    report("coverage", "How often intervals hold", columns, shown, folder=folder, **facts)
    flagged = [
        [
            v.fault,
            v.cell.mode,
            v.cell.kind,
            v.cell.interval,
            v.cell.data,
            None if math.isnan(v.cell.epsilon) else v.cell.epsilon,
            v.cell.confidence,
            v.cell.sessions,
            v.cell.covered,
            v.cell.chance,
        ]
        for v in sorted(verdicts, key=lambda v: (v.fault, v.cell.mode, v.cell.kind, v.cell.confidence))
    ]
    told = ["fault", "paid by", "question", "interval", "data", "epsilon", "says", "sessions", "holds", "chance"]
    report("coverage_flagged", "Flagged", told, flagged, folder=folder)
    return verdicts


def main() -> None:
    """Play, count and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sixth of the sessions")
    parser.add_argument("--times", type=float, default=1.0, help="so many times the sessions")
    parser.add_argument("--only", nargs="*", default=[""], help="parts whose names begin so")
    parser.add_argument("--resume", action="store_true", help="what was played before is not played again")
    parser.add_argument("--summary", action="store_true", help="only make the tables of what was played")
    parser.add_argument("--list", action="store_true", help="name the parts")
    asked = parser.parse_args()
    chosen = [part for part in parts() if part.name.startswith(tuple(asked.only))]
    if asked.list:
        print("\n".join(part.name for part in chosen))
        return
    found = load() if asked.resume or asked.summary or asked.only != [""] else {}
    due = [] if asked.summary else [p for p in chosen if not (asked.resume and p.name in found)]
    started = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(play, part, asked.times / (6 if asked.quick else 1)): part for part in due}
        for number, done in enumerate(as_completed(running), 1):
            found[running[done].name] = done.result()
            if number % 20 == 0 or number == len(due):
                store(found)
                print(f"{number} of {len(due)} parts, {time.perf_counter() - started:.0f} s", flush=True)
    names = {part.name for part in parts()}
    summarise({name: cells for name, cells in found.items() if name in names})


if __name__ == "__main__":
    main()
