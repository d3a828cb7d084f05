"""What measured cuts tell of others, against a covariance matrix over all cells that is written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from app.estimation.graphs import cut_posterior
from app.estimation.graphs.cells import Sums
from app.estimation.graphs.cut_posterior import CutPosterior, Known
from app.estimation.graphs.expectation import Expectation, SideModel, expectation
from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from tests.graphs.graphs import KINDS, cut, data, nodes, question, shapes, vector

pytestmark = pytest.mark.unit

JITTER = 1e-6


def expected(rng: np.random.Generator, kind: CellKind, shape: tuple[int, int], variance: float = 2.0) -> Expectation:
    matrix = data(rng, kind, shape)
    rows, columns = (matrix.sum(axis=k) + rng.normal(0, math.sqrt(variance), matrix.shape[1 - k]) for k in (1, 0))
    return expectation(kind, shape, [Sums(rows, rows if kind == "pairs" else columns, variance, variance)])


def cell_weights(asked: CutQuestion) -> np.ndarray:
    """The weights of all entries of the matrix, loops among them: ``S T' - 1/2 W W'`` of pairs. A plain loop."""
    s, t = vector(asked.left), vector(asked.right)
    made = np.zeros((len(s), len(t)))
    for i, j in np.ndindex(made.shape):
        made[i, j] = s[i] * t[j] - (s[i] * t[i] * s[j] * t[j] / 2 if asked.both is not None else 0)
    return made.reshape(-1)


def centred(weights: np.ndarray) -> np.ndarray:
    """The covariance of independent numbers of these variances, given that their sum is zero."""
    return np.diag(weights) - np.outer(weights, weights) / weights.sum()


def of_cells(known: Expectation) -> np.ndarray:
    """The three parts of the covariance of all entries.

    What cells differ by leaves the sums of rows and columns as they are: it is the product of a centred covariance of
    rows and one of columns, of pairs the same either way round. An error of a row's sum is spread over its entries as
    all cells are over columns, and one of a column's over rows; one of the total as both are, were they spread evenly.
    """
    shape = n, m = len(known.left.sums), len(known.right.sums)
    total = known.left.sums.sum()
    rows, columns = known.left.sums / total, known.right.sums / total
    differ = np.einsum("ik,jl->ijkl", centred(known.left.weights), centred(known.right.weights))
    if known.kind == "pairs":
        differ = differ + differ.transpose(0, 1, 3, 2)
    by_rows, by_columns = np.zeros((n * m, n)), np.zeros((n * m, m))
    by_total = np.zeros(n * m)
    for place, (i, j) in enumerate(np.ndindex(shape)):
        by_rows[place, i] += columns[j]
        (by_rows if known.kind == "pairs" else by_columns)[place, j] += rows[i]
        by_total[place] = columns[j] / n + rows[i] / m - rows[i] * columns[j]

    def spread(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return by_rows @ centred(left) @ by_rows.T + by_columns @ centred(right) @ by_columns.T

    noise = spread(known.left.noise, known.right.noise)
    noise += known.total_variance * np.outer(by_total, by_total)
    return np.stack([differ.reshape(n * m, n * m), noise, spread(known.left.shape, known.right.shape)])


def covariances(known: Expectation, questions: list[CutQuestion]) -> np.ndarray:
    on = np.array([cell_weights(each) for each in questions])
    return on @ of_cells(known) @ on.T


def learn(posterior: CutPosterior, questions: list[CutQuestion], values: np.ndarray, variances: np.ndarray) -> None:
    for each, value, variance in zip(questions, values.tolist(), variances.tolist(), strict=True):
        posterior.learn(posterior.known(each), value, variance)


def case(
    rng: np.random.Generator, kind: CellKind, shape: tuple[int, int], count: int, *, real: bool = False
) -> tuple[Expectation, list[CutQuestion], np.ndarray, np.ndarray]:
    """An expectation, questions, and a value and a variance for each."""
    known = expected(rng, kind, shape)
    questions = [question(rng, kind, shape, real=real and k % 3 == 0) for k in range(count)]
    values = np.array([known.value(each) for each in questions]) + rng.normal(0, 2, count)
    return known, questions, values, rng.uniform(0.05, 4, count)


def textbook(
    posterior: CutPosterior,
    questions: list[CutQuestion],
    values: np.ndarray,
    variances: np.ndarray,
    asked: CutQuestion,
) -> tuple[float, float]:
    """Mean and deviation of a Gaussian process, all measurements at once (Rasmussen and Williams 2006, 2.25, 2.26)."""
    parts = covariances(posterior.expected, [*questions, asked])
    whole = posterior.factor * parts[0] + parts[1] + posterior.shape_factor * parts[2]
    priors = np.array([posterior.expected.value(each) for each in questions])
    held = whole[:-1, :-1] * (1 + JITTER * np.eye(len(questions))) + np.diag(variances)
    on = np.linalg.solve(held, whole[:-1, -1])
    mean = posterior.expected.value(asked) + on @ (values - priors)
    return float(mean), math.sqrt(max(whole[-1, -1] - on @ whole[:-1, -1], JITTER * whole[-1, -1], JITTER))


def agrees(found: Known, told: tuple[float, float]) -> None:
    assert found.mean == pytest.approx(told[0], rel=1e-5, abs=1e-5)
    assert found.deviation == pytest.approx(told[1], rel=1e-3, abs=1e-3)


@given(st.sampled_from(KINDS), st.booleans(), st.integers(0, 10**6), st.data())
def test_covariances_are_those_of_cells(kind: CellKind, real: bool, seed: int, drawn: st.DataObject) -> None:
    """Each of the three parts, of a question with itself and with all that were kept. Would catch vectors that are not
    centred or by the wrong weights, the sides of one question taken for those of another, and the total left out.
    """
    rng = np.random.default_rng(seed)
    known, questions, values, variances = case(rng, kind, drawn.draw(shapes(kind, most=6)), 6, real=real)
    posterior = CutPosterior(known)
    learn(posterior, questions[:-1], values[:-1], variances[:-1])
    found = posterior.rows(questions[-1]).parts
    assert found == pytest.approx(covariances(known, questions)[:, -1], rel=1e-6, abs=1e-8)
    whole = posterior._parts[:, :5, :5]
    assert whole == pytest.approx(covariances(known, questions[:-1]), rel=1e-6, abs=1e-8)
    for part in whole:
        assert np.linalg.eigvalsh(part).min() >= -1e-8 * max(1, np.abs(part).max())


@pytest.mark.parametrize("kind", KINDS)
def test_likeness_is_of_correlations(kind: CellKind) -> None:
    """Against correlations cell by cell: their mean square, in multiples of what independent weights of the nodes have
    on average. Would catch noise of degrees that counts as likeness, a question about all nodes that is divided by
    nothing, and few questions that others are compared with.
    """
    rng, shape = np.random.default_rng(3), (7, 7)
    known = expected(rng, kind, shape)
    drawn = rng.permuted(np.tile(np.arange(7), (26, 1)), axis=1)
    sides = [nodes(7, np.sort(each[: rng.integers(2, 6)])) for each in drawn]
    questions = [cut(kind, *pair) for pair in zip(sides[::2], sides[1::2], strict=True)]
    values, variances = np.array([known.value(each) for each in questions]), np.ones(13)
    whole = cut(kind, nodes(7, np.arange(7)), nodes(7, np.arange(7)))
    posterior = CutPosterior(known)
    learn(posterior, [whole], np.array([known.value(whole)]), np.ones(1))
    learn(posterior, questions[:9], values[:9], variances[:9])
    assert posterior.likeness(posterior.rows(questions[12])) is None
    learn(posterior, questions[9:12], values[9:12], variances[9:12])
    parts = covariances(known, questions)[0]
    correlations = parts[:12, 12] / np.sqrt(np.diag(parts)[:12] * parts[12, 12])
    weights = [each.weights for each in (known.left, known.right)]
    chance = np.prod([np.sum(each**2) / each.sum() ** 2 for each in weights]) * (2 if kind == "pairs" else 1)
    found = posterior.likeness(posterior.rows(questions[12]))
    assert found == pytest.approx(np.mean(correlations**2) / chance, rel=1e-6)
    assert posterior.likeness(posterior.rows(whole)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_random_sets_are_like_none(kind: CellKind) -> None:
    """Among random sets another one is about as like them as chance makes it, and one that a kept one differs from in
    few nodes is much more so. Would catch a scale that grows with the graph or with what was kept.
    """
    rng, n = np.random.default_rng(4), 80
    known = expected(rng, kind, (n, n))
    posterior, sets = CutPosterior(known), rng.random((60, 2, n)) < 0.5
    for left, right in sets[:40]:
        asked = cut(kind, *(nodes(n, np.flatnonzero(side)) for side in (left, right)))
        posterior.learn(posterior.known(asked), known.value(asked), 1.0)

    def likeness(left: np.ndarray, right: np.ndarray) -> float:
        asked = cut(kind, *(nodes(n, np.flatnonzero(side)) for side in (left, right)))
        found = posterior.likeness(posterior.rows(asked))
        assert found is not None
        return found

    assert 0.5 < np.mean([likeness(*each) for each in sets[40:]]) < 2
    near = sets[7].copy()
    near[:, :3] ^= True
    assert likeness(*near) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_columns_are_told(kind: CellKind) -> None:
    """What cells differ by does not change the sum of a row. Would catch a part that moves degrees too, which are
    measured beside it.
    """
    known = expected(np.random.default_rng(1), kind, (6, 6))
    everyone, one = nodes(6, np.arange(6)), nodes(6, np.array([2]))
    row = cut(kind, one, everyone)
    posterior = CutPosterior(known)
    parts = posterior.rows(row).parts[:, -1]
    scale = known.left.weights.sum() * known.right.weights.sum()
    if kind != "pairs":
        assert parts[0] == pytest.approx(0, abs=1e-9 * scale)
    assert parts[1] > 0


@pytest.mark.slow
@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(0, 9), st.data())
def test_what_is_known_is_the_textbooks(kind: CellKind, seed: int, count: int, drawn: st.DataObject) -> None:
    """Learning one by one is learning all at once, with other factors too, and to find factors changes nothing else.
    Would catch a wrong update of the root, a residual of another expectation, and an answer of before.
    """
    rng = np.random.default_rng(seed)
    shape = drawn.draw(shapes(kind, most=6))
    known, questions, values, variances = case(rng, kind, shape, count, real=True)
    posterior, asked = CutPosterior(known), question(rng, kind, shape)
    for k in range(count):
        agrees(posterior.known(asked), textbook(posterior, questions[:k], values[:k], variances[:k], asked))
        learn(posterior, questions[k : k + 1], values[k : k + 1], variances[k : k + 1])
    agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))
    if count:
        posterior.refit()
        agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))
        again = CutPosterior(known)
        again.factor, again.shape_factor = posterior.factor, posterior.shape_factor
        learn(again, questions, values, variances)
        assert again.known(asked).mean == pytest.approx(posterior.known(asked).mean, rel=1e-5, abs=1e-5)
        more = question(rng, kind, shape)
        learn(posterior, [more], np.array([1.0]), np.array([0.5]))
        with_more = [*questions, more], np.append(values, 1.0), np.append(variances, 0.5)
        agrees(posterior.known(asked), textbook(posterior, *with_more, asked))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", [1.0, 40.0])
def test_factors_are_of_the_greatest_likelihood(kind: CellKind, large: float) -> None:
    """No pair of factors makes what was measured likelier, with what is expected of them. Would catch a determinant
    that is left out, residuals without their noise, and factors of the last measurements alone.
    """
    rng = np.random.default_rng(17)
    known, questions, values, variances = case(rng, kind, (6, 6), 12)
    priors = np.array([known.value(each) for each in questions])
    values = priors + large * (values - priors)
    posterior = CutPosterior(known)
    start, (_, first) = posterior.factor, (posterior.factor, posterior.shape_factor)
    assert (start, first) == (6.0, 1.0 if known.certain else 4.0)
    learn(posterior, questions, values, variances)
    posterior.refit()
    parts = covariances(known, questions)

    def likelihood(factor: float, shape: float) -> float:
        covariance = (factor * parts[0] + parts[1] + shape * parts[2]) * (1 + JITTER * np.eye(12)) + np.diag(variances)
        told = float(multivariate_normal.logpdf(values - priors, np.zeros(12), covariance))
        return told - 0.5 * (math.log(factor / start) / 2) ** 2 - 0.5 * (math.log(shape) / 2.5) ** 2

    shapes_tried = [1.0] if known.certain else [4.0**k for k in range(6)]
    best = max(likelihood(2.0**k, shape) for k in range(-2, 16) for shape in shapes_tried)
    assert likelihood(posterior.factor, posterior.shape_factor) == pytest.approx(best, abs=1e-6)
    # Alone each tells by itself: of these the same, without what they share.
    alone = CutPosterior(known)
    alone.fit_alone(np.array([np.diag(part) for part in parts]), values - priors, variances)

    def by_itself(factor: float, shape: float) -> float:
        total = factor * np.diag(parts[0]) + np.diag(parts[1]) + shape * np.diag(parts[2]) + variances
        told = float(multivariate_normal.logpdf(values - priors, np.zeros(12), np.diag(total)))
        return told - 0.5 * (math.log(factor / start) / 2) ** 2 - 0.5 * (math.log(shape) / 2.5) ** 2

    best = max(by_itself(2.0**k, shape) for k in range(-2, 16) for shape in shapes_tried)
    assert by_itself(alone.factor, alone.shape_factor) == pytest.approx(best, abs=1e-6)


def test_factors_are_found_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first measurements alone where there are many; all of them are kept. Would catch time that grows with
    the cube of all, and measurements that are lost.
    """
    rng = np.random.default_rng(18)
    known, questions, values, variances = case(rng, "arcs", (6, 6), 12)
    few, many = CutPosterior(known), CutPosterior(known)
    learn(few, questions[:5], values[:5], variances[:5])
    few.refit()
    monkeypatch.setattr(cut_posterior, "MOST_FITTED", 5)
    values[5:] += 300
    learn(many, questions, values, variances)
    many.refit()
    assert (many.factor, many.shape_factor) == (few.factor, few.shape_factor)
    asked = question(rng, "arcs", (6, 6))
    agrees(many.known(asked), textbook(many, questions, values, variances, asked))


def test_room_grows_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the first 64, and up to the most that are kept. Would catch rows that are lost where room is made, and one
    measurement too many.
    """
    monkeypatch.setattr(cut_posterior, "MOST_KEPT", 150)
    rng = np.random.default_rng(19)
    known, questions, values, variances = case(rng, "pairs", (7, 7), 150)
    posterior, asked = CutPosterior(known), question(rng, "pairs", (7, 7))
    for k in range(150):
        assert posterior.has_room(questions[k])
        learn(posterior, questions[k : k + 1], values[k : k + 1], variances[k : k + 1])
        if k in (63, 64, 128):
            agrees(
                posterior.known(asked),
                textbook(posterior, questions[: k + 1], values[: k + 1], variances[: k + 1], asked),
            )
    agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))
    assert posterior.kept == 150
    posterior.refit()
    agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))
    assert not posterior.has_room(asked)


def test_there_is_no_room_for_many_real_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a bound on one side alone."""
    monkeypatch.setattr("app.estimation.graphs.columns.MOST_REAL", 0)
    rng = np.random.default_rng(20)
    posterior = CutPosterior(expected(rng, "all", (5, 7)))
    sets = question(rng, "all", (5, 7))
    assert posterior.has_room(sets)
    rank_one = question(rng, "all", (5, 7), real=True)
    assert not posterior.has_room(CutQuestion(sets.left, rank_one.right))
    assert not posterior.has_room(CutQuestion(rank_one.left, sets.right))


def test_the_last_answer_is_not_told_of_before() -> None:
    """What is known of a question is asked for again and again. Would catch an answer of another question, or of before
    something was learnt or factors were found.
    """
    rng = np.random.default_rng(21)
    known, questions, values, variances = case(rng, "arcs", (6, 6), 6)
    posterior = CutPosterior(known)
    asked, other = (question(rng, "arcs", (6, 6), least=2) for _ in range(2))
    before = posterior.known(asked)
    assert posterior.known(asked) is before
    assert posterior.known(other).mean == pytest.approx(known.value(other))
    learn(posterior, questions[:5], values[:5], variances[:5])
    assert posterior.known(asked).deviation < before.deviation
    learnt = posterior.known(asked)
    posterior.learn(posterior.known(questions[5]), values[5], variances[5])
    posterior.known(asked)
    posterior.refit()
    agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))
    assert posterior.known(asked).mean != learnt.mean
    tried = posterior.known(asked)
    posterior.fit_alone(np.ones((3, 1)), np.array([1e6]), np.ones(1))
    assert posterior.known(asked) is not tried
    agrees(posterior.known(asked), textbook(posterior, questions, values, variances, asked))


def test_what_is_measured_again_and_again_is_certain() -> None:
    """The same question many times with little noise, which is singular but for that. Would catch a root of a negative
    number, and a variance below zero.
    """
    rng = np.random.default_rng(22)
    posterior = CutPosterior(expected(rng, "pairs", (8, 8)))
    asked = question(rng, "pairs", (8, 8), least=4)
    for _ in range(20):
        posterior.learn(posterior.known(asked), 5.0, 1e-9)
    posterior.refit()
    assert posterior.known(asked).mean == pytest.approx(5.0, abs=0.01)
    assert 0 < posterior.known(asked).deviation < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_models_never_divide_by_zero(kind: CellKind) -> None:
    """Without degrees their noise is zero, and so are its weights. Would catch numbers that are none."""
    rng = np.random.default_rng(23)
    posterior = CutPosterior(expectation(kind, (5, 5), []))
    asked = question(rng, kind, (5, 5), least=2)
    found = posterior.known(asked)
    assert math.isfinite(found.mean)
    assert found.deviation > 0
    model: SideModel = posterior.expected.left
    assert (model.totals > 0).all()
