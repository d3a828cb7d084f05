"""Contrasts and rows: what one record moves, documents, and what is known from them, against generic least squares."""

from __future__ import annotations

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals
from app.estimation.tables.restrictions import Restricted, assembled
from app.measurements.noise import Noise
from app.measurements.pieces import Combination, Contrast, Counts, pieces_of
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.rows import Rows, centred, contrast_sensitivity
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, renyi_cost
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Groups, Local, Product, Question, WeightedCells
from app.spaces.records import RecordsTensor
from tests.evidence.tables import BITS, matrix, measured, released, weights

pytestmark = pytest.mark.unit

SIZES = (2, 4, 3)
PAIRS = Partition.of(np.array([0, 0, 1, 1]))
UNEVEN = Partition.of(np.array([0, 1, 1, 1]))


def kronecker(shape: tuple[int, ...]) -> np.ndarray:
    """The matrix of contrasts by its definition, a Kronecker product over the axes."""
    return reduce(np.kron, [n * np.eye(n, dtype=int) - np.ones((n, n), int) for n in shape], np.ones((1, 1), int))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_along_an_axis(axis: int) -> None:
    """Each row for each place along the other axes, by its definition; and the matrix is found again, unless one weight
    is another. Would catch rows that are put along another axis, or found alike where they are not."""
    shape = (2, 3, 2)
    matrix = np.array([[1, 2, 5], [0, -3, 1], [4, 0, 0], [0, 0, 7]])[:, : shape[axis]]
    others = [n for k, n in enumerate(shape) if k != axis]
    expected = []
    for place in np.ndindex(*shape[:axis], len(matrix), *shape[axis + 1 :]):
        row = np.zeros(shape, int)
        for k, weight in enumerate(matrix[place[axis]]):
            row[(*place[:axis], k, *place[axis + 1 :])] = weight
        expected.append(row.reshape(-1))
    matrix = matrix[matrix.any(axis=1)]
    rows = Rows.along(matrix, shape, axis)
    assert rows.matrix.toarray().tolist() == [row.tolist() for row in expected if row.any()]
    assert rows.count == len(matrix) * math.prod(others)
    found = rows.alike(shape, axis)
    assert found is not None
    assert found.tolist() == matrix.tolist()
    changed = rows.matrix.toarray()
    changed[-1, -1] += 1
    assert Rows.of(changed).alike(shape, axis) is None
    assert Rows.of(changed[:-1]).alike(shape, axis) is None


def contrast(rng: np.random.Generator, counts: np.ndarray, marginal: Marginal, sigma: float) -> Contrast:
    exact = kronecker(marginal.shape) @ matrix(counts.shape, marginal) @ counts.reshape(-1)
    noisy = exact + rng.normal(0, sigma, exact.shape)
    units = np.rint(np.ldexp(noisy, BITS)).astype(np.int64).reshape(marginal.shape)
    return Contrast(marginal, Noise("gaussian", Decimal(repr(sigma)), BITS), units)


def combination(
    rng: np.random.Generator, counts: np.ndarray, marginal: Marginal, rows: np.ndarray, sigma: float
) -> Combination:
    exact = rows @ matrix(counts.shape, marginal) @ counts.reshape(-1)
    units = np.rint(np.ldexp(exact + rng.normal(0, sigma, exact.shape), BITS)).astype(np.int64)
    return Combination(marginal, Noise("gaussian", Decimal(repr(sigma)), BITS), units, rows=Rows.of(rows))


def stacked(
    sizes: tuple[int, ...], taken: list[Counts | Contrast | Combination], total: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows over all cells, values and variances; a public total is one of next to no noise."""
    rows, values, variances = [], [], []
    for m in taken:
        own = matrix(sizes, m.marginal)
        if isinstance(m, Contrast):
            own = kronecker(m.marginal.shape) @ own
        elif isinstance(m, Combination):
            own = m.rows.matrix.toarray() @ own
        rows.append(own)
        values.append(np.ldexp(m.units.reshape(-1).astype(float), -m.noise.bits) / m.multiplier)
        variances.append(np.full(len(own), m.noise.variance / m.multiplier**2))
    if total is not None:
        rows.append(np.ones((1, math.prod(sizes))))
        values.append(np.array([total]))
        variances.append(np.array([1e-9]))
    return np.concatenate(rows), np.concatenate(values), np.concatenate(variances)


def solved(
    sizes: tuple[int, ...], taken: list[Counts | Contrast | Combination], total: float | None, row: np.ndarray
) -> tuple[float, float]:
    """Generalised least squares by the pseudo-inverse of a dense matrix of all cells."""
    if not taken and total is None:
        return math.nan, math.nan
    rows, values, variances = stacked(sizes, taken, total)
    pseudo = np.linalg.pinv(rows / np.sqrt(variances)[:, None], rcond=1e-11)
    if np.abs(row @ pseudo @ (rows / np.sqrt(variances)[:, None]) - row).max() > 1e-6:
        return math.nan, math.nan
    on = row @ pseudo
    return float(on @ (values / np.sqrt(variances))), float(on @ on)


# ------------------------------------------------------------------ what a record moves


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3))
def test_what_a_record_moves_contrasts_by(shape: list[int]) -> None:
    """Against every column of the explicit matrix. Would catch a norm of the centred and not of the whole numbers."""
    marginal = Marginal.of(shape, dict.fromkeys(range(len(shape))))
    sensitivity, columns = contrast_sensitivity(marginal), kronecker(tuple(shape))
    assert (np.abs(columns).sum(axis=0) == sensitivity.absolute).all()
    assert ((columns**2).sum(axis=0) == sensitivity.squared).all()
    counts = np.arange(marginal.cells).reshape(shape) ** 2
    assert np.array_equal(centred(counts).reshape(-1), columns @ counts.reshape(-1))


def integers(rng: np.random.Generator, rows: int, cells: int, most: int = 3) -> np.ndarray:
    found = rng.integers(-most, most + 1, (rows, cells))
    return found[np.abs(found).sum(axis=1) > 0]


@given(st.integers(0, 10**6))
def test_what_a_record_moves_rows_by(seed: int) -> None:
    """Against the dense matrix, and squares beyond what float64 holds. Would catch norms of rows for norms of columns,
    and squares added up as floats."""
    rng = np.random.default_rng(seed)
    dense = np.concatenate([integers(rng, 4, 6, (1 << 20) - 1), np.eye(6, dtype=int)])
    sensitivity = Rows.of(dense).sensitivity
    assert sensitivity.absolute == max(sum(abs(int(w)) for w in column) for column in dense.T)
    assert sensitivity.squared == max(sum(int(w) ** 2 for w in column) for column in dense.T)


def strategy(seed: int = 0) -> TableStrategy:
    """Of all kinds of parts."""
    rng = np.random.default_rng(seed)
    pair = Marginal.of(SIZES, {0: None, 1: PAIRS})
    return TableStrategy(
        (
            Part(Marginal.of(SIZES, {1: None, 2: None}), None, 2, residual=True),
            Part(pair, None, 3, rows=Rows.of(integers(rng, 7, 4))),
            Part(Marginal.of(SIZES, {2: None}), Moment(1, 4, 1)),
            Part(pair, None, 1, residual=True),
        )
    )


@given(st.integers(0, 10**6))
def test_exact_values(seed: int) -> None:
    """From records and from counts, against explicit matrices; and one record more moves each part by no more than is
    charged, some record by exactly that. Would catch contrasts of the wrong axis and a multiplier left out."""
    rng = np.random.default_rng(seed)
    table, own = rng.integers(0, 9, SIZES), strategy(seed)
    cells = np.repeat(np.arange(table.size), table.reshape(-1))
    columns = [c.astype(np.uint8) for c in np.unravel_index(cells, SIZES)]
    found = own.exact(None, CountsTensor(table))
    assert found.tolist() == own.exact(None, RecordsTensor(columns, SIZES)).tolist()
    start = 0
    for part in own.parts:
        stop = start + part.cells
        if part.moment is None:
            rows = part.multiplier * matrix(SIZES, part.marginal)
            rows = (kronecker(part.marginal.shape) if part.residual else part.rows.matrix.toarray()) @ rows  # type: ignore[union-attr]
            assert found[start:stop].tolist() == (rows @ table.reshape(-1)).tolist()
            assert np.abs(rows).sum(axis=0).max() == part.sensitivity.absolute
            assert (rows**2).sum(axis=0).max() == part.sensitivity.squared
        start = stop


@pytest.mark.parametrize("gamma", [1, 3])
def test_prices(gamma: int) -> None:
    """By explicit norms. Would catch a part charged in L2 by its L1 norm or the other way round."""
    own, order = strategy(), Decimal(9)
    absolute, squared = [], 0
    for part in own.parts:
        if part.moment is not None:
            rows = np.array([[part.moment.largest]])
        else:
            rows = kronecker(part.marginal.shape) if part.residual else part.rows.matrix.toarray()  # type: ignore[union-attr]
        absolute.append(gamma * part.multiplier * int(np.abs(rows).sum(axis=0).max()))
        squared += gamma**2 * part.multiplier**2 * int((rows**2).sum(axis=0).max())
    gaussian = Purchase.at(own, Noise("gaussian", Decimal(100), 0), Adjacency(gamma), order).price
    assert float(gaussian.renyi) == pytest.approx(9 * squared / (2 * 100**2))
    assert gaussian.renyi >= renyi_cost(DiscreteGaussianAnswer(Fraction(100), squared), order)
    laplace = Purchase.at(own, Noise("laplace", Decimal(1000), 0), Adjacency(gamma), order).price
    assert laplace.pure is not None
    assert laplace.pure == pytest.approx(Decimal(sum(absolute)) / 1000)
    costs = [renyi_cost(DiscreteLaplaceAnswer(Fraction(1000), d), order) for d in absolute]
    assert float(laplace.renyi) == pytest.approx(float(sum(costs)))


def test_sums_that_pass_62_bits_are_refused() -> None:
    """Would catch contrasts that are taken for counts: their numbers are larger by as much as there are cells."""
    wide = Marginal.of((1 << 10, 1 << 10), {0: None, 1: None})
    assert TableStrategy((Part(wide),)).is_exact(1 << 50)
    assert TableStrategy((Part(wide, residual=True),)).is_exact(1 << 39)
    assert not TableStrategy((Part(wide, residual=True),)).is_exact(1 << 41)
    heavy = Rows.of(np.full((8, 2), (1 << 20) - 1))
    assert TableStrategy((Part(Marginal.of((2,), {0: None}), rows=heavy),)).is_exact(1 << 38)
    assert not TableStrategy((Part(Marginal.of((2,), {0: None}), rows=heavy),)).is_exact(1 << 40)


# ------------------------------------------------------------------ documents


def test_documents_and_back() -> None:
    """Through JSON text, to equal strategies. Would catch rows or contrasts that are not written."""
    own = strategy()
    one = Measurement(own, Noise("laplace", Decimal(3), 0), np.arange(own.cells))
    back = Measurement.read(json.loads(json.dumps(one.document())))
    assert back.strategy == own
    assert hash(back.strategy) == hash(own)
    assert np.array_equal(back.units, one.units)
    assert strategy(1) != own
    kinds = [type(piece).__name__ for _, piece in pieces_of(back)]
    assert kinds == ["Contrast", "Combination", "Counts", "Contrast"]


def test_what_is_no_part() -> None:
    """Would catch two forms of one thing, rows that are read as others, and rows over other cells."""
    pair = Marginal.of(SIZES, {0: None, 1: PAIRS})
    rows = Rows.of(np.array([[1, 0, 2, 0], [0, -1, 0, 3]]))
    document = Part(pair, rows=rows).document()
    assert Part.read(document).rows == rows
    packed = document["rows"]
    for wrong in (
        document | {"residual": False},
        document | {"residual": True},
        document | {"rows": packed | {"cells": 3}},
        document | {"rows": packed | {"cells": 5}},
        document | {"rows": packed | {"cells": 4.0}},
        document | {"rows": packed | {"more": 1}},
        document | {"rows": packed | {"columns": packed["columns"][:-4]}},
        document | {"rows": packed | {"columns": packed["columns"] + "\n"}},
        document | {"rows": packed | {"columns": packed["weights"]["values"]}},
        document | {"rows": packed | {"weights": packed["weights"] | {"bits": 32}}},
        document | {"rows": packed | {"weights": packed["weights"] | {"bits": 8}}},
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Part.read(wrong)
    for weights_ in (np.zeros((2, 4)), np.full((1, 4), 1 << 20)):
        with pytest.raises(ValueError, match="rows"):
            Rows.of(weights_)
    with pytest.raises(ValueError, match="contrasts"):
        Part(Marginal.of(SIZES, {}), residual=True)
    with pytest.raises(ValueError, match="moment"):
        Part(pair, Moment(1, 4, 1), residual=True)
    with pytest.raises(ValueError, match="rows"):
        Part(Marginal.of(SIZES, {0: None}), rows=rows)


# ------------------------------------------------------------------ unbiased values


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[int, ...], float | None, list[Counts | Contrast]]:
    sizes = draw(st.sampled_from([(2, 3), (4, 2), (2, 4, 3), (4,), (2, 2, 2)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.poisson(20.0, sizes)
    taken: list[Counts | Contrast] = []
    for _ in range(draw(st.integers(1, 6))):
        chosen = draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, min_size=1, max_size=3))
        cells = {a: PAIRS if sizes[a] == 4 and draw(st.booleans()) else None for a in chosen}
        marginal, sigma = Marginal.of(sizes, cells), draw(st.sampled_from([0.5, 1.0, 3.0]))
        if draw(st.booleans()):
            taken.append(contrast(rng, counts, marginal, sigma * marginal.cells))
        else:
            taken.append(released(rng, counts, cells, sigma, "gaussian"))
    return sizes, draw(st.none() | st.just(float(counts.sum()))), taken


@st.composite
def questions(draw: st.DrawFn, sizes: tuple[int, ...]) -> Question:
    chosen = sorted(draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, min_size=1)))
    weight = st.integers(-2, 2).map(lambda w: w / 2)
    kind = draw(st.sampled_from(["product", "local", "cells"]))
    if kind == "product":
        return Product.over({a: np.array(draw(st.lists(weight, min_size=sizes[a], max_size=sizes[a]))) for a in chosen})
    if kind == "cells":
        return Cells(Marginal.of(sizes, dict.fromkeys(chosen)))
    shape = tuple(sizes[a] for a in chosen)
    given_ = draw(st.lists(weight, min_size=math.prod(shape), max_size=math.prod(shape)))
    return Local.over(chosen, np.array(given_).reshape(shape))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_contrasts_and_marginals_agree_with_least_squares(data: st.DataObject) -> None:
    """Value, variance and estimability for mixes of marginals and contrasts on values and on coarser cells, before or
    after one another, against a dense solver over the whole numbers that were released. Would catch contrasts that are
    taken for a marginal, and a precision without the square of the number of cells."""
    sizes, total, taken = data.draw(worlds())
    question = data.draw(questions(sizes))
    state = Residuals(sizes, total)
    assert all(state.add(m) for m in taken)
    found = state.unbiased(question)
    for row, value, variance in zip(weights(sizes, question), found.values.flat, found.variances.flat, strict=True):
        asked = solved(sizes, list(taken), total, row)
        assert (float(value), float(variance)) == pytest.approx(asked, rel=1e-5, abs=1e-5, nan_ok=True)


def test_contrasts_that_stay_apart_are_used_together() -> None:
    """Uneven cells beside single values: a closed form of their own, averaged by precision with the other. Would catch
    contrasts that are dropped, and a total that is averaged though it is public."""
    rng = np.random.default_rng(5)
    sizes, total = (4, 3), 240.0
    counts = rng.multinomial(240, np.full(12, 1 / 12)).reshape(sizes)
    fine = [released(rng, counts, {0: None, 1: None}, 2.0, "gaussian")]
    coarse: list[Counts | Contrast | Combination] = [
        contrast(rng, counts, Marginal.of(sizes, cells), 5.0)
        for cells in ({0: UNEVEN}, {1: None}, {0: UNEVEN, 1: None})
    ]
    state = Residuals(sizes, total)
    assert [state.add(m) for m in [*fine, *coarse]] == [True, False, True, False]
    # Of the contrasts of the second attribute alone the first closed form has all.
    question = Product.over({0: np.array([1.0, 0.25, 0.25, 0.25]) - 0.5})
    one = solved(sizes, [*fine], total, weights(sizes, question)[0])
    other = solved(sizes, [coarse[0]], total, weights(sizes, question)[0])
    found = state.unbiased(question)
    assert float(found.variances) == pytest.approx(1 / (1 / one[1] + 1 / other[1]), rel=1e-5)
    assert float(found.values) == pytest.approx(
        (one[0] / one[1] + other[0] / other[1]) / (1 / one[1] + 1 / other[1]), rel=1e-5
    )
    assert float(state.total.values) == total


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_rows_agree_with_least_squares(data: st.DataObject) -> None:
    """Of questions whose weights are constant on their cells; averaged with a marginal by precision. Full and deficient
    rank. Would catch weights summed into the wrong cells, a variance with the square of a multiplier too many, and a
    value that the rows do not determine."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    sizes = SIZES
    counts = rng.poisson(20.0, sizes)
    marginal = Marginal.of(sizes, {0: None, 1: data.draw(st.sampled_from([None, PAIRS])), 2: None})
    rows = integers(rng, data.draw(st.integers(3, 2 * marginal.cells)), marginal.cells)
    if data.draw(st.booleans()):
        rows = np.concatenate([rows, np.eye(marginal.cells, dtype=int)])
    one = combination(rng, counts, marginal, rows, 2.0)
    other = released(rng, counts, {0: None, 1: PAIRS}, 3.0, "gaussian")
    state = Residuals(sizes)
    assert not state.add(one)
    state.add(other)
    halves = Marginal.of(sizes, {1: PAIRS, 2: None})
    groups = Groups(halves, np.array([[0, 1, -1], [1, 0, 2]]), (4,))
    for question in (
        Product.over({1: np.array([1, 1, 0, 0]), 2: np.array([1.0, 0, -1])}),
        Product.over({0: np.array([1, 0]), 1: np.array([0.5, 0.5, 1, 1])}),
        Product.over({}),
        Cells(halves),
        Cells(Marginal.of(sizes, {1: None})),
        WeightedCells(Marginal.of(sizes, {1: PAIRS}), 2, np.array([0.0, 1.0, 5.0])),
        WeightedCells(Marginal.of(sizes, {2: None}), 2, np.array([0.0, 1.0, 5.0])),
        groups,
    ):
        if isinstance(question, Groups):
            cells = matrix(sizes, halves)
            asked = np.stack([(question.answers.reshape(-1) == k) @ cells for k in range(4)])
        else:
            asked = weights(sizes, question)
        found = state.unbiased(question)
        for k, row in enumerate(asked):
            told = [solved(sizes, [m], None, row) for m in (one, other)]
            told = [t for t in told if not math.isnan(t[1]) and t[1] > 0]
            value, variance = float(found.values.reshape(-1)[k]), float(found.variances.reshape(-1)[k])
            if not row.any():
                assert (value, variance) == (0, 0)
            elif not told:
                assert math.isnan(variance)
            else:
                precision = sum(1 / v for _, v in told)
                assert variance == pytest.approx(1 / precision, rel=1e-4)
                assert value == pytest.approx(sum(y / v for y, v in told) / precision, rel=1e-4, abs=1e-3)


# ------------------------------------------------------------------ fits


def test_assembled_marginals_tell_what_contrasts_told() -> None:
    """Of all contrasts of two attributes out of three, those of one attribute known best: the marginals that are made
    of them, as independent measurements, have for each residual the precision of its contrasts and their value. Would
    catch contrasts of one attribute that are counted in two marginals."""
    rng = np.random.default_rng(6)
    counts = rng.poisson(20.0, SIZES)
    sets = [c for k in (1, 2) for c in itertools.combinations(range(3), k)]
    known, state, again = {}, Residuals(SIZES, 480.0), Residuals(SIZES, 480.0)
    for attributes in sets:
        marginal = Marginal.of(SIZES, dict.fromkeys(attributes))
        one = contrast(rng, counts, marginal, 1.0 * marginal.cells * len(attributes) ** 2)
        state.add(one)
        known[marginal] = Restricted(marginal, one.values, one.variance)
    for own in assembled(known).values():
        assert own.values.sum() == pytest.approx(0, abs=1e-9)
        again.add(measured(own.marginal, math.sqrt(own.variance), own.values))
    for attributes in sets:
        question = Cells(Marginal.of(SIZES, dict.fromkeys(attributes)))
        one_, other = state.unbiased(question), again.unbiased(question)
        assert other.variances == pytest.approx(one_.variances, rel=1e-6)
        assert other.values == pytest.approx(one_.values, abs=1e-6)


@given(st.integers(0, 10**6))
def test_assembled_marginals_tell_no_more(seed: int) -> None:
    """Whatever the noise of the contrasts, and with some of them missing. Would catch precision given twice."""
    rng = np.random.default_rng(seed)
    sets = [c for k in (1, 2, 3) for c in itertools.combinations(range(3), k) if rng.random() < 0.8]
    known = {}
    for attributes in sets:
        marginal = Marginal.of(SIZES, dict.fromkeys(attributes))
        known[marginal] = Restricted(marginal, np.zeros(marginal.shape), float(rng.exponential()))
    found = assembled(known)
    assert set(found) <= set(known)
    for marginal, own in known.items():
        told = sum(
            1 / other.variance / (other.marginal.cells / marginal.cells)
            for other in found.values()
            if set(marginal.attributes) <= set(other.marginal.attributes)
        )
        assert told <= 1 / own.variance * (1 + 1e-9)


def rms(fits: LocalFits, counts: np.ndarray) -> float:
    question = Cells(Marginal.of(counts.shape, dict.fromkeys(range(counts.ndim))))
    return float(np.sqrt(np.mean((fits.fit(question).values(question) - counts) ** 2)))


@pytest.mark.slow
def test_fits_of_contrasts_are_as_good_as_those_of_marginals() -> None:
    """The same table measured by its three two-way marginals, and by the contrasts that tell as much for the same
    price: errors of the fits are alike over seeded repetitions. Would catch contrasts that a fit does not use, or uses
    with a variance that is not theirs."""
    sizes, rng = (4, 5, 6), np.random.default_rng(7)
    shares = rng.dirichlet(np.full(120, 0.3)).reshape(sizes)
    errors: dict[str, list[float]] = {"marginals": [], "contrasts": [], "one-way": []}
    pairs = list(itertools.combinations(range(3), 2))
    for _ in range(12):
        counts = rng.multinomial(5000, shares.reshape(-1)).reshape(sizes)
        whole, parts, poor = (Residuals(sizes, 5000.0) for _ in range(3))
        for pair in pairs:
            whole.add(released(rng, counts, dict.fromkeys(pair), 20.0, "gaussian"))
        price = len(pairs) / 20.0**2
        sets = [(0,), (1,), (2,), *pairs]
        norms = {c: math.prod(sizes[a] * (sizes[a] - 1) for a in c) for c in sets}
        for attributes in sets:
            marginal = Marginal.of(sizes, dict.fromkeys(attributes))
            # Each with an equal part of the price.
            one = contrast(rng, counts, marginal, math.sqrt(norms[attributes] * len(sets) / price))
            parts.add(one)
            if len(attributes) == 1:
                poor.add(one)
        for name, state in zip(errors, (whole, parts, poor), strict=True):
            errors[name].append(rms(LocalFits(state), counts))
    mean = {name: float(np.sqrt(np.mean(np.square(found)))) for name, found in errors.items()}
    assert mean["contrasts"] < 1.1 * mean["marginals"]
    assert mean["contrasts"] < 0.85 * mean["one-way"]


def test_fits_use_rows() -> None:
    """A fit over the cells of rows with little noise has their counts, with small standard errors; so has one of fewer
    attributes, and one of more. Would catch rows that only unbiased values know."""
    rng = np.random.default_rng(8)
    sizes = (4, 6)
    counts = rng.poisson(200.0, sizes)
    marginal = Marginal.of(sizes, {0: None, 1: None})
    hierarchy = np.concatenate(
        [np.ones((1, 24), int), np.kron(np.eye(4, dtype=int), np.ones((1, 6), int)) * 2, 3 * np.eye(24, dtype=int)]
    )
    state = Residuals(sizes, float(counts.sum()))
    state.add(combination(rng, counts, marginal, hierarchy, 0.5))
    fits = LocalFits(state)
    for cells in ({0: None, 1: None}, {0: None}, {1: None}):
        question = Cells(Marginal.of(sizes, dict.fromkeys(cells)))
        fit = fits.fit(question)
        exact = counts.sum(axis=tuple(a for a in range(2) if a not in cells))
        assert fit.values(question) == pytest.approx(exact, abs=2.5)
        assert (fit.standard_errors(question) < 1.5).all()
