"""What is measured for questions known ahead: against semidefinite programs, generic least squares and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.sparse import csr_array

from app.estimation.tables.residuals import Residuals
from app.measurements import least_error as rows_of_least_error
from app.measurements.least_error import hierarchy, least_error, least_error_pure, rounded
from app.measurements.noise import NoiseKind
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.releases.errors import UnfitWorkload
from app.releases.factorization import (
    CellWorkload,
    Factorization,
    Paying,
    Questions,
    Ranges,
    for_cells,
    for_marginals,
)
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local
from tests.evidence.tables import matrix

pytestmark = pytest.mark.unit

ORDER = Decimal(20)
RENYI = Paying("gaussian", Decimal("0.003"), ORDER)
PURE = Paying("laplace", Decimal("0.1"), ORDER)


def semidefinite(questions: np.ndarray) -> float:
    """The least ``tr F X^-1 F'`` with ones on the diagonal of X, by an interior-point method."""
    cvxpy = pytest.importorskip("cvxpy")
    size = questions.shape[1]
    x = cvxpy.Variable((size, size), PSD=True)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.matrix_frac(questions.T, x)), [cvxpy.diag(x) == 1])
    return float(problem.solve(solver="CLARABEL"))


def workload_of(sizes: tuple[int, ...], weights: Mapping[tuple[int, ...], float]) -> dict[Marginal, float]:
    return {Marginal.of(sizes, dict.fromkeys(kept)): weight for kept, weight in weights.items()}


def whole_error(workload: Mapping[Marginal, float], found: Factorization) -> float:
    return sum(w * m.cells * rms**2 for (m, w), rms in zip(workload.items(), found.expected.each, strict=True))


# ------------------------------------------------------------------ marginals


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "weights"),
    [
        ((2, 3), {(0,): 1.0, (1,): 2.0}),
        ((2, 3), {(0,): 1.0, (1,): 1.0, (0, 1): 0.3}),
        ((2, 2, 2), {(0, 1): 1.0, (1, 2): 4.0, (0, 2): 1.0}),
        ((2, 4), {(): 5.0, (1,): 1.0}),
        ((5,), {(0,): 1.0}),
    ],
)
def test_contrasts_are_the_optimum_of_all_matrices(
    sizes: tuple[int, ...], weights: dict[tuple[int, ...], float]
) -> None:
    """The weighted squared error of the closed form is that of the semidefinite program over all strategies. Would
    catch a wrong worth or price of any set of attributes: each moves the error off its minimum."""
    workload = workload_of(sizes, weights)
    rows = np.concatenate([math.sqrt(w) * matrix(sizes, m) for m, w in workload.items()])
    sigma = float(ORDER) / (2 * float(RENYI.share))
    found = for_marginals(workload, RENYI, public_total=False)
    assert whole_error(workload, found) == pytest.approx(sigma * semidefinite(rows), rel=1e-5)


def known(sizes: tuple[int, ...], buys: tuple[Purchase[TableStrategy], ...], total: float | None) -> Residuals:
    """What measurements tell, all of whose values are zero."""
    state = Residuals(sizes, total)
    for buy in buys:
        values = np.zeros(buy.strategy.cells, np.int64)
        for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, values)):
            state.add(piece)
    return state


@st.composite
def workloads(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[Marginal, float]]:
    sizes = draw(st.sampled_from([(2, 3), (4, 2, 3), (2, 2, 2, 3)]))
    sets = [c for k in range(len(sizes) + 1) for c in itertools.combinations(range(len(sizes)), k)]
    chosen = draw(st.lists(st.sampled_from(sets), unique=True, min_size=1, max_size=4).filter(any))
    pairs = Partition.of(np.array([0, 0, 0, 1]))
    cells: dict[int, Partition | None] = {0: pairs} if sizes[0] == 4 and draw(st.booleans()) else {}
    weight = st.sampled_from([0.1, 1.0, 7.0])
    return sizes, {Marginal.of(sizes, {a: cells.get(a) for a in kept}): draw(weight) for kept in chosen}


@pytest.mark.slow
@settings(max_examples=40)
@given(workloads(), st.sampled_from([RENYI, PURE]), st.booleans(), st.sampled_from([1, 3]))
def test_errors_are_those_of_the_evidence_that_follows(
    drawn: tuple[tuple[int, ...], dict[Marginal, float]], paying: Paying, public: bool, gamma: int
) -> None:
    """Variances that later questions see, cell by cell (uneven cells of an attribute too); the exact price is within
    the share and all but uses it up. Would catch errors that are told and not kept, and a scale rounded down."""
    sizes, workload = drawn
    paying = Paying(paying.kind, paying.share, paying.order, gamma)
    found = for_marginals(workload, paying, public_total=public)
    assert {buy.noise.kind for buy in found.buys} == {paying.kind}
    paid = found.price.renyi if paying.kind == "gaussian" else found.price.pure
    assert paid is not None
    assert paying.share * (1 - Decimal("1e-11")) <= paid <= paying.share
    start = dict(zip([0], [m.partition(0) for m in workload if 0 in m.attributes], strict=False))
    state = Residuals(sizes, 100.0 if public else None, start)
    for m in known(sizes, found.buys, None).contrasts + known(sizes, found.buys, None).measurements:
        state.add(m)
    everything, count = 0.0, 0
    for marginal, rms in zip(workload, found.expected.each, strict=True):
        told = state.unbiased(Cells(marginal)).variances
        assert told == pytest.approx(np.full(told.shape, rms**2), rel=1e-9)
        everything, count = everything + float(told.sum()), count + told.size
    assert found.expected.rms == pytest.approx(math.sqrt(everything / count), rel=1e-9)


@pytest.mark.slow
@settings(max_examples=40)
@given(workloads(), st.sampled_from([RENYI, PURE]))
def test_marginals_are_no_worse_than_the_table_or_themselves(
    drawn: tuple[tuple[int, ...], dict[Marginal, float]], paying: Paying
) -> None:
    """Nor than all with the same noise, each answered by least squares from all. Would catch an alternative that is
    left out."""
    sizes, workload = drawn
    found = whole_error(workload, for_marginals(workload, paying, public_total=False))
    cells = {a: p for m in workload for a, p in zip(m.attributes, m.partitions, strict=True)}
    table = (Marginal.of(sizes, cells),)
    for measured in (table, tuple(workload)):
        buys = paying.fitted([TableStrategy.of(m) for m in measured], [1.0] * len(measured))
        start = {a: p for a, p in cells.items() if p is not None}
        state = Residuals(sizes, None, start)
        for m in known(sizes, buys, None).measurements:
            state.add(m)
        other = sum(w * float(state.unbiased(Cells(m)).variances.sum()) for m, w in workload.items())
        assert found <= other * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("paying", [RENYI, PURE])
def test_simulated_marginals(paying: Paying) -> None:
    """Seeded noise on exact values, read by the evidence: root mean squares within 6%, and the mean of the largest
    errors below its bound, which is no more than two and a half times as large. Would catch contrasts
    whose noise is another than is told."""
    sizes, rng = (3, 4, 2), np.random.default_rng(3)
    table = rng.poisson(50.0, sizes)
    workload = {Marginal.of(sizes, dict.fromkeys(pair)): 1.0 for pair in itertools.combinations(range(3), 2)}
    found = for_marginals(workload, paying, public_total=True)
    squares: dict[Marginal, list[float]] = {m: [] for m in workload}
    largest = []
    for _ in range(200):
        state = Residuals(sizes, float(table.sum()))
        for buy in found.buys:
            _release(state, buy, table, rng)
        most = 0.0
        for marginal, errors in squares.items():
            others = tuple(a for a in range(3) if a not in marginal.attributes)
            error = state.unbiased(Cells(marginal)).values - table.sum(axis=others)
            errors.append(float(np.mean(error**2)))
            most = max(most, float(np.abs(error).max()))
        largest.append(most)
    for rms, errors in zip(found.expected.each, squares.values(), strict=True):
        assert math.sqrt(np.mean(errors)) == pytest.approx(rms, rel=0.06)
    assert 0.4 * found.expected.largest < np.mean(largest) < found.expected.largest


def _release(state: Residuals, buy: Purchase[TableStrategy], table: np.ndarray, rng: np.random.Generator) -> None:
    exact, scale = buy.strategy.exact(None, CountsTensor(table)), float(buy.noise.scale)
    noise = rng.laplace(0, scale, len(exact)) if buy.noise.kind == "laplace" else rng.normal(0, scale, len(exact))
    units = exact + np.rint(noise).astype(np.int64)
    for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, units)):
        state.add(piece)


def test_what_is_no_workload_of_marginals() -> None:
    """Would catch contrasts over cells that do not fit together."""
    sizes = (4, 3)
    halves = {0: Partition.of(np.array([0, 0, 1, 1]))}
    one = Marginal.of(sizes, {0: None})
    for workload in (
        {one: 0.0},
        {one: math.inf},
        {one: 1.0, Marginal.of(sizes, halves | {1: None}): 1.0},
        {Marginal.of(sizes, {}): 1.0},
        {},
        {Marginal.of((2,) * 13, dict.fromkeys(range(13))): 1.0},
        {Marginal.of((1 << 18,), {0: None}): 1.0},
    ):
        with pytest.raises(UnfitWorkload, match=r"marginal|attribute|cells"):
            for_marginals(workload, RENYI, public_total=True)
    with pytest.raises(ValueError, match="share"):
        Paying("laplace", Decimal(0), ORDER)


# ------------------------------------------------------------------ any questions


def drawn_questions(rng: np.random.Generator, cells: int) -> np.ndarray:
    while True:
        found = rng.integers(-1, 3, (int(rng.integers(1, 2 * cells)), cells)) * (rng.random(cells) < 0.8)
        if found.any():
            return np.asarray(found)


def error(questions: np.ndarray, measured: np.ndarray, kind: NoiseKind) -> float:
    """The total squared error of least squares over measurements with noise of the size that hides a column."""
    size = np.abs(measured).sum(axis=0).max() ** 2 if kind == "laplace" else (measured**2).sum(axis=0).max()
    return float(size * (np.asarray(questions @ np.linalg.pinv(measured)) ** 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_least_error_is_that_of_the_semidefinite_program(seed: int) -> None:
    """Of random questions, of which some leave cells out or tell fewer directions than there are; ranges and sums of
    the first cells. Within a few thousandths before and after rounding. Would catch a search that ends too early."""
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(3, 9))
    questions = drawn_questions(rng, cells).astype(float)
    if seed < 2:
        questions = [np.tri(8), hierarchy(7, 2).toarray()][seed].astype(float)
    least = semidefinite(questions)
    found = least_error(questions.T @ questions)
    assert np.square(found).sum(axis=0) == pytest.approx(np.ones(len(found.T)))
    assert least * (1 - 1e-4) <= error(questions, found, "gaussian") <= least * 1.005
    assert error(questions, rounded(found), "gaussian") <= least * 1.02


@given(st.integers(0, 10**6))
def test_the_derivative_of_the_error_with_laplace_noise(seed: int) -> None:
    """Error and derivative against the definition and numerical differences. Would catch a wrong term of either."""
    rng = np.random.default_rng(seed)
    cells, rows = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    questions = drawn_questions(rng, cells)
    gram, t = (questions.T @ questions).astype(float), rng.random((rows, cells))
    measured = np.concatenate([np.eye(cells), t]) / (1 + t.sum(axis=0))
    value, slope = rows_of_least_error._pure_error(t.reshape(-1), gram)
    assert value == pytest.approx(error(questions, measured, "laplace"), rel=1e-9)
    numerical = approx_fprime(t.reshape(-1), lambda x: rows_of_least_error._pure_error(x, gram)[0], 1e-7)
    assert slope == pytest.approx(numerical, rel=1e-4, abs=1e-4 * (1 + value))


def test_optimised_rows_for_laplace_noise_have_columns_of_norm_one() -> None:
    """And their error is well below that of the cells and of hierarchies, for all ranges of 60 cells. Would
    catch a search that stays where it began."""
    workload = Ranges(60)
    found = least_error_pure(workload.gram)
    assert np.abs(found).sum(axis=0) == pytest.approx(np.ones(60))
    questions = np.linalg.cholesky(workload.gram).T
    others = [hierarchy(60, b).toarray() for b in (2, 4, 8, 16)]
    assert error(questions, found, "laplace") < 0.8 * min(error(questions, m, "laplace") for m in [np.eye(60), *others])


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([RENYI, PURE]))
def test_cells_are_no_worse_than_alternatives(seed: int, paying: Paying) -> None:
    """The chosen measurement's errors are those of generic least squares, one by one, its price within the share; and
    no more than those of the cells, or of the questions themselves. Would catch an alternative left out, a sensitivity
    of what was not released, and errors of another matrix."""
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(2, 10))
    questions, marginal = drawn_questions(rng, cells), Marginal.of((cells,), {0: None})
    found = for_cells(marginal, Questions(csr_array(questions)), paying)
    (buy,) = found.buys
    paid = found.price.renyi if paying.kind == "gaussian" else found.price.pure
    assert paid is not None
    assert paid <= paying.share
    rows = buy.strategy.parts[0].rows
    measured = np.eye(cells) if rows is None else rows.matrix.toarray().astype(float)
    variance = buy.noise.variance
    each = variance * (np.asarray(questions @ np.linalg.pinv(measured)) ** 2).sum(axis=1)
    assert np.square(found.expected.each) == pytest.approx(each, rel=1e-6, abs=1e-9)
    assert found.expected.rms == pytest.approx(math.sqrt(each.mean()))
    one = variance * buy_size(buy)
    for other in (np.eye(cells), questions.astype(float)):
        assert each.sum() <= error(questions, other, paying.kind) * one * (1 + 1e-6)


def buy_size(buy: Purchase[TableStrategy]) -> float:
    """One over the squared size of what the noise of a measurement hides."""
    sensitivity = buy.strategy.sensitivity[0]
    return 1 / (sensitivity.squared if buy.noise.kind == "gaussian" else sensitivity.absolute**2)


def test_ranges_are_what_they_say() -> None:
    """Against the matrix of all ranges. Would catch an end that is left out."""
    rows = np.array([[i <= c <= j for c in range(9)] for i in range(9) for j in range(i, 9)], dtype=float)
    one, listed = Ranges(9), Questions(csr_array(rows))
    directions = np.random.default_rng(1).normal(size=(9, 4))
    assert one.count == listed.count == len(rows)
    assert one.gram == pytest.approx(rows.T @ rows)
    assert listed.gram == pytest.approx(rows.T @ rows)
    for workload in (one, listed):
        assert workload.squares == pytest.approx((rows**2).sum(axis=1))
        assert workload.lengths(directions) == pytest.approx(((rows @ directions) ** 2).sum(axis=1))
        assert workload.rows is not None
        assert workload.rows.matrix.toarray().tolist() == rows.tolist()
    sums = hierarchy(5, 2).toarray()
    assert sums[:5].tolist() == np.eye(5).tolist()
    assert sums[5:].tolist() == [
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 1, 1, 1, 1],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "paying"), [(Ranges(24), RENYI), (Questions(csr_array(np.tri(24))), PURE)])
def test_simulated_cells(workload: CellWorkload, paying: Paying) -> None:
    """Seeded noise on the exact values of the rows, read by the evidence over two attributes: within 10% over some
    questions. Would catch rows over cells in another order than the questions."""
    sizes, rng = (4, 6), np.random.default_rng(4)
    table = rng.poisson(50.0, sizes)
    found = for_cells(Marginal.of(sizes, {0: None, 1: None}), workload, paying)
    assert found.name == "optimised"
    rows = workload.rows
    assert rows is not None
    questions = [Local.over((0, 1), row.reshape(sizes)) for row in rows.matrix.toarray()]
    chosen = [k for k, question in enumerate(questions) if len(question.attributes) == 2]
    chosen = chosen[:: max(1, len(chosen) // 10)]
    asked = [questions[k] for k in chosen]
    truth = np.array([float((q.weights * table).sum()) for q in asked])
    squares = np.zeros(len(asked))
    for _ in range(150):
        state = Residuals(sizes)
        _release(state, found.buys[0], table, rng)
        squares += (np.array([float(state.unbiased(q).values) for q in asked]) - truth) ** 2 / 150
    told = np.square(np.array(found.expected.each)[chosen])
    assert math.sqrt(squares.mean()) == pytest.approx(math.sqrt(told.mean()), rel=0.1)
    assert squares == pytest.approx(told, rel=0.5)


def test_what_is_no_workload_of_cells() -> None:
    """Would catch questions over other cells, and tables that would take hours."""
    with pytest.raises(UnfitWorkload, match="cells"):
        for_cells(Marginal.of((5,), {0: None}), Ranges(4), RENYI)
    with pytest.raises(UnfitWorkload, match="cells"):
        for_cells(Marginal.of((4096,), {0: None}), Ranges(4096), RENYI)
    for wrong in (np.zeros((2, 3)), np.full((1, 2), np.nan), np.zeros((0, 3))):
        with pytest.raises(ValueError, match="weights"):
            Questions(csr_array(wrong))


@pytest.mark.parametrize(
    "questions", [np.ones((1, 64)), np.eye(64)[:1], np.outer(np.arange(1, 65.0) ** 9, np.ones(64))]
)
def test_questions_that_see_next_to_nothing(questions: np.ndarray) -> None:
    """Matrices of rank one, as far from having an inverse as can be. Catches a search that one machine's rounding ends
    and another's does not; what it finds answers them, with the error that was told.
    """
    found = least_error(questions.T @ questions)
    assert np.linalg.norm(found, axis=0) == pytest.approx(np.ones(64))
    weights = questions[0] / np.linalg.norm(questions[0])
    told = np.linalg.lstsq(found.T, weights, rcond=None)[0]
    assert found.T @ told == pytest.approx(weights, abs=1e-6)
    # Cells one by one would do as well as their weights are long.
    assert float(told @ told) <= float(weights @ weights) * (1 + 1e-2)
