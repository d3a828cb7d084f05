"""All ways to have a workload answered: errors that are foretold beside errors that are made, and the order."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.planners.table import residuals_of
from app.curator.planners.workload import WorkloadPlan
from app.curator.request import SessionRequest, parse_request
from app.curator.workload_comparison import INTERACTIVE, NEARER, ORDER, Way, Ways, chosen_method, ways_of
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement
from app.privacy.ledger import Amounts
from app.releases.fitting import fit, known_of, projection
from app.releases.workloads import Marginals
from app.services.release_request import parse_release
from app.spaces.dense import CountsTensor
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SIZES = (2, 5, 4)
RECORDS = 600
WORDS: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in zip("abc", SIZES, strict=True)],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
#: Most of its cells are empty, as those of surveys are.
COUNTS = np.random.default_rng(5).multinomial(RECORDS, np.random.default_rng(6).dirichlet(np.full(40, 0.15)))
TABLE = CountsTensor(COUNTS.reshape(SIZES).astype(np.int64))
PAIRS = {"marginals": 2}
MIXED = {
    "queries": [{"type": "marginal", "attributes": ["a", "b"]}, {"type": "predicate", "where": {"b": {"in": [0, 3]}}}]
}
REPETITIONS = 60


def dataset(**changes: Any) -> PublicDataset:
    return PublicDataset(parse_spec(WORDS | changes), RECORDS)


def request(workload: dict[str, Any], epsilon: float = 0.5) -> SessionRequest:
    return parse_request(parse_release({"dataset": "d", "workload": workload, "epsilon": epsilon}).session())


def ways(workload: dict[str, Any], of: PublicDataset | None = None, epsilon: float = 0.5) -> Ways:
    return ways_of(of or dataset(), request(workload, epsilon))


def found(workload: dict[str, Any], name: str, of: PublicDataset | None = None, epsilon: float = 0.5) -> Way:
    (way,) = (way for way in ways(workload, of, epsilon).ways if way.name == name and not way.interactive)
    return way


def render(error: CuratorError) -> dict[str, Any]:
    return {"type": error.code, "detail": error.detail}


def drawn(plan: WorkloadPlan, rng: np.random.Generator) -> Residuals:
    """What is known after the plan's measurements of the table, with NumPy's noise of the plan's scales."""
    known = residuals_of(dataset().space, RECORDS)
    for buy in plan.buys:
        exact, scale = buy.strategy.exact(None, TABLE), float(buy.noise.scale)
        noise = rng.laplace(0, scale, exact.size) if buy.noise.kind == "laplace" else rng.normal(0, scale, exact.size)
        for moment, piece in pieces_of(Measurement(buy.strategy, buy.noise, exact + np.rint(noise).astype(np.int64))):
            assert moment is None
            known.add(piece)
    return known


def truth(questions: Sequence[Question]) -> FloatArray:
    """The exact numbers of a workload."""
    answers = []
    for question in questions:
        counts = np.asarray(TABLE.marginal(question.attributes), np.float64)
        coarse = question.of(counts, [type(question.partitions[0]).singles(size) for size in counts.shape])
        answers.append(np.asarray(coarse).reshape(-1))
    return np.concatenate(answers)


class TestExpectations:
    @pytest.mark.parametrize("workload", [PAIRS, MIXED], ids=["pairs", "queries"])
    @pytest.mark.parametrize("method", ["gaussian", "factorization", "histogram", "pure histogram"])
    def test_exact_ones_are_those_of_simulated_noise(self, method: str, workload: dict[str, Any]) -> None:
        """The root mean square over draws of the plan's noise agrees with what was foretold, within three standard
        errors of its mean square; the largest error is on average no larger than foretold. Would catch noise of another
        scale than the plan's, variances of other questions, and a root mean square that is taken question by question.
        """
        pure = method == "pure histogram"
        of = dataset()
        if pure:
            of = PublicDataset(of.spec, RECORDS, left=Amounts(of.budget.total, of.spec.budget.epsilon))
        way = found(workload, method.removeprefix("pure "), of, 1.0 if pure else 0.5)
        assert isinstance(way.outcome, WorkloadPlan)
        assert way.expected is not None
        assert way.basis == "exact"
        assert {buy.noise.kind for buy in way.outcome.buys} == {"laplace" if pure else "gaussian"}
        questions = way.outcome.workload.questions  # type: ignore[union-attr]
        exact, rng = truth(questions), np.random.default_rng(1)
        squares, largest = [], []
        for _ in range(REPETITIONS):
            known = drawn(way.outcome, rng)
            values = np.concatenate([np.asarray(known.unbiased(question).values).reshape(-1) for question in questions])
            squares.append(float(np.mean((values - exact) ** 2)))
            largest.append(float(np.abs(values - exact).max()))
        deviation = float(np.std(squares, ddof=1)) / math.sqrt(len(squares))
        # Rounded to whole counts, NumPy's noise has a twelfth more variance than the noise that is drawn.
        assert abs(np.mean(squares) - way.expected.rms**2) < 3 * deviation + 1 / 12
        assert np.mean(largest) < way.expected.largest

    @pytest.mark.parametrize("epsilon", [0.1, 1.0])
    def test_the_nearest_table_errs_no_more_than_is_said(self, epsilon: float) -> None:
        """With each draw of the noise the nearest table errs no more than the unbiased values of the same measurements
        do, and so no more than is said. Would catch an ``at most`` of other measurements or of less noise.
        """
        way = found(PAIRS, "projection", epsilon=epsilon)
        assert way.basis == "at most"
        assert isinstance(way.outcome, WorkloadPlan)
        assert way.expected is not None
        workload, rng = way.outcome.workload, np.random.default_rng(2)
        assert isinstance(workload, Marginals)
        assert [marginal.attributes for marginal in workload.marginals] == [(0, 1), (0, 2), (1, 2)]
        exact, squares = truth(workload.questions), []
        for _ in range(10):
            known = drawn(way.outcome, rng)
            counts = projection(SIZES, known_of(known), RECORDS).counts
            values = np.concatenate([counts.sum(axis=axis).reshape(-1) for axis in (2, 1, 0)])
            plain = np.concatenate([known.unbiased(question).values.reshape(-1) for question in workload.questions])
            squares.append(float(np.mean((values - exact) ** 2)))
            # The search ends within a thousandth of the nearest.
            assert squares[-1] < 1.001 * np.mean((plain - exact) ** 2)
        assert math.sqrt(np.mean(squares)) < way.expected.rms

    def test_a_fit_is_promised_nothing(self) -> None:
        """Where a table has what fits do not expect, effects of all attributes together, a fit errs more than unbiased
        values do: what is said of it holds usually. Would catch a promise that a table breaks.
        """
        way = found(PAIRS, "synthetic_table", epsilon=1.0)
        assert way.basis == "usually at most"
        assert isinstance(way.outcome, WorkloadPlan)
        assert way.expected is not None
        questions, rng, squares = way.outcome.workload.questions, np.random.default_rng(2), []  # type: ignore[union-attr]
        for _ in range(5):
            counts = fit(SIZES, known_of(drawn(way.outcome, rng)), RECORDS).counts
            values = np.concatenate([counts.sum(axis=axis).reshape(-1) for axis in (2, 1, 0)])
            squares.append(float(np.mean((values - truth(questions)) ** 2)))
        assert math.sqrt(np.mean(squares)) > way.expected.rms


class TestOrder:
    @pytest.mark.parametrize("workload", [PAIRS, MIXED, {"ranges": "b"}], ids=["pairs", "queries", "ranges"])
    def test_best_first(self, workload: dict[str, Any]) -> None:
        """Would catch a list that is not sorted, errors that are at most so large and are not counted as less, and
        another method taken than the first."""
        listed = ways(workload)
        errors = []
        for way in listed.ways:
            error = math.inf if way.expected is None else way.expected.rms
            errors.append(error * (1 if way.interactive else NEARER.get(way.name, 1)))
        planned = [not isinstance(way.outcome, CuratorError) for way in listed.ways]
        assert planned == sorted(planned, reverse=True)
        assert errors[: sum(planned)] == sorted(errors[: sum(planned)])
        best = next(way for way in listed.ways if not way.interactive)
        assert listed.best == best
        asked, why = chosen_method(dataset(), request(workload))
        assert asked.mechanism.method == best.name
        assert why.startswith(best.name)

    def test_every_way_is_there_once(self) -> None:
        """Would catch a method or a mechanism of sessions that is left out, or is listed twice."""
        listed = ways(PAIRS).ways
        assert sorted(way.name for way in listed if not way.interactive) == sorted(ORDER)
        assert sorted(way.name for way in listed if way.interactive) == sorted(INTERACTIVE)
        documents = ways(PAIRS).document(render)
        assert documents["numbers"] == 2 * 5 + 2 * 4 + 5 * 4
        assert documents["best"] == listed[0].name
        for shown in documents["methods"]:
            assert ("method" in shown) != ("mechanism" in shown)
            assert ("plan" in shown) != ("problem" in shown)


class TestRefusals:
    @pytest.mark.parametrize(
        ("workload", "changes", "method", "says"),
        [
            (PAIRS, {}, "synthetic_graph", "this is a table: use synthetic_table"),
            ({"ranges": "b"}, {}, "gaussian", "use factorization"),
            ({"ranges": "b"}, {}, "projection", "use factorization"),
            (PAIRS, {"attributes": [{"name": f"a{i}", "size": 8} for i in range(8)]}, "histogram", "1,048,576"),
            (PAIRS, {"attributes": [{"name": f"a{i}", "size": 8} for i in range(8)]}, "projection", "4,194,304"),
        ],
    )
    def test_are_problems_in_the_list(
        self, workload: dict[str, Any], changes: dict[str, Any], method: str, says: str
    ) -> None:
        """Would catch one way without a plan that refuses all of them, and a plan of what cannot be carried through
        once it is paid for."""
        way = found(workload, method, dataset(**changes))
        assert isinstance(way.outcome, CuratorError)
        assert way.expected is None
        problem = way.document(render)["problem"]
        assert problem["type"] == "plan-infeasible"
        assert says in problem["detail"]
        assert ways(workload, dataset(**changes)).best is not None


@pytest.mark.parametrize(
    ("options", "serves"),
    [
        ({"records": 5}, "synthetic_table"),
        ({"rounds": 3}, "iterative_construction"),
        ({"construction": "mw"}, "iterative_construction"),
        ({"rounding": "edges"}, None),
        ({"geometry": "spectral"}, None),
    ],
)
def test_options_belong_to_their_method(options: dict[str, Any], serves: str | None) -> None:
    """Would catch an option that is taken and does nothing."""
    words = {"dataset": "d", "workload": PAIRS, "epsilon": 0.5} | options
    listed = ways_of(dataset(), parse_request(parse_release(words).session()), interactive=False)
    assert (None if listed.best is None else listed.best.name) == serves
    for way in listed.ways:
        if way.name not in (serves, "synthetic_graph"):
            assert isinstance(way.outcome, CuratorError)
            assert f"{next(iter(options))} does not belong to {way.name}" in way.outcome.detail


def test_nothing_private_is_looked_at() -> None:
    """All that is told is a function of the declaration, of what is public beside it and of the request: the same bytes
    for neighbouring data, twice. Would catch an argument or a field through which data come, and plans that depend on
    chance.
    """
    assert list(inspect.signature(ways_of).parameters) == ["dataset", "request", "interactive"]
    assert set(PublicDataset.__dataclass_fields__) == {"spec", "records", "bought", "race_sessions", "left"}
    private = PublicDataset(parse_spec(WORDS | {"records_public": False}), None)
    shown = {json.dumps(ways_of(private, request(PAIRS)).document(render), sort_keys=True) for _ in range(2)}
    assert len(shown) == 1
