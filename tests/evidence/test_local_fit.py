"""Local fits: what they are the optimum of, what is merged, what is remembered, and their standard errors."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, rel_entr

from app.estimation.tables import dual
from app.estimation.tables import local_fit as fits
from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import Counts
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Product
from tests.evidence.tables import matrix, measured, released, weights

pytestmark = pytest.mark.unit

SIZES = (3, 4, 2)


def state(sizes: tuple[int, ...], measurements: list[Counts], total: float | None) -> tuple[Residuals, LocalFits]:
    residuals = Residuals(sizes, total)
    for m in measurements:
        residuals.add(m)
    return residuals, LocalFits(residuals)


def halves(size: int) -> np.ndarray:
    return (np.arange(size) < size // 2).astype(float)


def one_way(residuals: Residuals, a: int) -> tuple[np.ndarray, np.ndarray]:
    """The shares of an attribute's values, and the variances of these by noise: the nearest counts that are not
    negative (found by bisection of what is taken off each), 0.3 at the least."""
    known = residuals.unbiased(Cells(Marginal.of(residuals.sizes, {a: None})))
    values = np.ones(residuals.sizes[a]) if np.isnan(known.values).any() else known.values
    low, high = float(values.min()) - abs(float(values.sum())) - 1, float(values.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > max(values.sum(), 0) else (low, middle)
    counts = np.maximum(np.maximum(values - high, 0), 0.3)
    return counts / counts.sum(), known.variances / counts.sum() ** 2


def base_of(residuals: Residuals) -> tuple[np.ndarray, np.ndarray]:
    """The product of the one-way marginals over all cells, and the variance that it has by their noise."""
    found = [one_way(residuals, a) for a in range(len(residuals.sizes))]
    base, squares = np.ones(()), np.ones(())
    for shares, own in found:
        base, squares = base[..., None] * shares, squares[..., None] * (shares**2 + own)
    # Of independent factors the mean of the square is the product of theirs.
    return base.reshape(-1), (squares - base**2).reshape(-1)


@st.composite
def evidence(draw: st.DrawFn) -> list[Counts]:
    """Noisy measurements of one sparse table, single values of every attribute among them."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    counts = rng.poisson(rng.choice([0.0, 3.0, 60.0], SIZES))
    pair = Partition.of(np.array([0, 1, 0]))
    told = [{0: None}, {1: None}, {2: None}, {0: None, 1: None}, {0: pair, 2: None}, {1: None, 2: None}, {0: pair}, {}]
    chosen = [*range(3), *draw(st.lists(st.sampled_from(range(3, len(told))), max_size=5))]
    return [released(rng, counts, told[i], draw(st.sampled_from([2.0, 6.0])), "gaussian") for i in chosen]


def gap(taken: list[Counts], total: float | None) -> float:
    """How far the primal value of the fitted counts of all cells is above the dual bound at the theta that belongs to
    them: zero at the optimum alone. The problem is put together here from explicit matrices."""
    residuals, local = state(SIZES, taken, total)
    question = Cells(Marginal.of(SIZES, dict.fromkeys(range(3))))
    fit = local.fit(question)
    n = max(float(residuals.total.values), 1.0)
    fitted = fit.values(question).reshape(-1)
    assert fitted.sum() == pytest.approx(n)
    rows, values, variances, several, every = [], [], [], [], []
    for marginal in {m.marginal: None for m in taken if m.marginal.attributes}:
        same = [m for m in taken if m.marginal == marginal]
        variance = 1 / sum(1 / m.variance for m in same)
        mean = sum(m.values.reshape(-1) / m.variance for m in same) * variance
        rows.append(matrix(SIZES, marginal))
        values.append(mean + (n - mean.sum()) / len(mean))
        variances.append(np.full(len(mean), variance))
        every.append(variance)
        if len(marginal.attributes) > 1:
            several.append(variance)
    # The whole marginal is asked for.
    strength = 0.4 * math.exp(-0.5 * np.mean(np.log(several or every)))
    assert fit.strength == pytest.approx(strength)
    counted, y, ridge = np.concatenate(rows), np.concatenate(values), strength * np.concatenate(variances)
    theta = (y - counted @ fitted) / ridge
    base = base_of(residuals)[0]
    above = rel_entr(fitted, n * base).sum() + 0.5 * np.sum(theta**2 * ridge)
    below = theta @ y - n * logsumexp(counted.T @ theta, b=base) - 0.5 * np.sum(ridge * theta**2)
    return float(above - below)


@pytest.mark.slow
@settings(max_examples=60)
@given(evidence(), st.sampled_from([None, 300.0]))
def test_a_fit_is_the_optimum_it_is_said_to_be(taken: list[Counts], total: float | None) -> None:
    """Would catch another base, strength or variance, a measurement left out, and an optimum that was not reached."""
    assert gap(taken, total) == pytest.approx(0, abs=1e-7)


def test_the_gap_shows_a_fit_that_ends_too_early_or_has_another_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above allows is far below what such faults make."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(30.0, SIZES)
    taken = [released(rng, counts, dict.fromkeys(c), 2.0, "gaussian") for c in [(0,), (1,), (2,), (0, 1), (1, 2)]]
    assert gap(taken, None) < 1e-7
    monkeypatch.setattr(fits, "TOLERANCE", 0.1)
    assert gap(taken, None) > 1e-5
    monkeypatch.undo()
    monkeypatch.setattr(fits, "LEAST_COUNT", 400.0)
    assert gap(taken, None) > 1e-5


def test_merged_cells_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a question and all measurements tell few cells apart, the fit over those has the answers of the fit over
    all. Would catch cells divided in other proportions than the base's."""
    sizes = (6, 5, 4)
    rng = np.random.default_rng(4)
    counts = rng.poisson(20.0, sizes)
    parts = [Partition.of(rng.permutation(np.arange(n) % 3 > 0)) for n in (*sizes, *sizes)]
    taken = [
        released(rng, counts, {0: parts[0], 1: parts[1], 2: parts[2]}, 3.0, "gaussian"),
        released(rng, counts, {0: parts[3], 1: parts[4]}, 3.0, "laplace"),
        released(rng, counts, {2: parts[2], 1: parts[4]}, 5.0, "gaussian"),
    ]
    _, local = state(sizes, taken, float(counts.sum()))
    # With one strength for sums and for tables, that their cells may be compared.
    monkeypatch.setattr(fits, "FEW_WEIGHT", fits.MANY_WEIGHT)
    question = Product.over({a: parts[a].labels for a in range(3)})
    few, every = local.fit(question), local.fit(Cells(Marginal.of(sizes, dict.fromkeys(range(3)))))
    assert few.counts.size < every.counts.size == 120
    assert float(few.values(question)) == pytest.approx(float(every.values(question)), abs=1e-5)


def test_attributes_of_a_hundred_values() -> None:
    """With single values of each attribute known and some predicates measured, a fit has the cells of the predicates.
    Would catch a fit over the million cells of three such attributes."""
    sizes = (100,) * 5
    rng = np.random.default_rng(5)
    taken = [measured(Marginal.of(sizes, {a: None}), 10.0, rng.normal(100, 10, 100)) for a in range(5)]
    for pair in itertools.combinations(range(5), 2):
        marginal = Marginal.of(sizes, {a: Partition.of(halves(100)) for a in pair})
        taken.append(measured(marginal, 20.0, np.full((2, 2), 2500.0)))
    _, local = state(sizes, taken, 10_000.0)
    question = Product.over({a: np.arange(100) % 2 for a in (0, 2, 4)})
    fit = local.fit(question)
    assert fit.counts.shape == (4, 4, 4)
    assert float(fit.values(question)) == pytest.approx(1250, rel=0.1)
    taken.append(measured(Marginal.of(sizes, {0: None, 2: None}), 10.0, rng.normal(1, 10, (100, 100))))
    _, local = state(sizes, taken, 10_000.0)
    assert local.fit(question).counts.size <= fits.MOST_CELLS


def test_measurements_of_no_account_are_left_out() -> None:
    """Of very many measurements on the attributes of a question the best known ones are fitted. Would catch work that
    grows with all that was ever asked."""
    rng, sizes = np.random.default_rng(9), (12, 12, 12)
    taken = [measured(Marginal.of(sizes, {a: None}), 10.0, rng.normal(100, 10, 12)) for a in range(3)]
    for sigma in range(1, 40):
        marginal = Marginal.of(sizes, {a: Partition.of(rng.integers(0, 2, 12)) for a in range(3)})
        taken.append(measured(marginal, 40.0 - sigma, np.full((2, 2, 2), 150.0)))
    _, local = state(sizes, taken, 1200.0)
    fit = local.fit(Product.over({a: halves(12) for a in range(3)}))
    assert len(fit.known) == fits.MOST_KNOWN
    kept = [float(k.variances.min()) for k in fit.known]
    assert max(kept) <= 17.0**2


def test_remembered_until_the_next_measurement() -> None:
    """Would catch a fit that is made again for nothing, one that is served after it is out of date, and a start from
    the last fit that ends elsewhere than one from nothing."""
    rng = np.random.default_rng(6)
    counts = rng.poisson(20.0, SIZES)
    residuals, local = state(SIZES, [released(rng, counts, {a: None}, 3.0, "gaussian") for a in range(3)], None)
    question = Product.over({0: np.array([1, 0, 1]), 1: np.array([1, 1, 0, 0])})
    steps = [
        {0: None, 1: None},
        {1: None, 2: None},
        {0: Partition.of(np.array([0, 1, 0])), 1: None},
        {0: None, 1: None},
    ]
    for cells in steps:
        first = local.fit(question)
        assert local.fit(question) is first
        residuals.add(released(rng, counts, cells, 3.0, "gaussian"))
        second = local.fit(question)
        assert second is not first
        alone = LocalFits(residuals).fit(question)
        assert second.counts == pytest.approx(alone.counts, abs=1e-4)
        assert float(second.standard_errors(question)) == pytest.approx(
            float(alone.standard_errors(question)), rel=1e-4
        )


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch fits and sets of attributes that are kept for ever."""
    rng = np.random.default_rng(7)
    sizes = (3,) * 8
    residuals = Residuals(sizes, 500.0)
    for a in range(8):
        residuals.add(measured(Marginal.of(sizes, {a: None}), 3.0, rng.normal(50, 3, 3)))
    local = LocalFits(residuals)
    monkeypatch.setattr(fits, "MOST_SETS", 4)
    monkeypatch.setattr(fits, "MOST_NUMBERS", 1000)
    for chosen in itertools.combinations(range(8), 3):
        local.fit(Cells(Marginal.of(sizes, dict.fromkeys(chosen))))
    assert len(local._places) == 4
    assert sum(fit.numbers for _, fit in local._fits.values()) <= 1000


@pytest.mark.slow
@settings(max_examples=60)
@given(evidence(), st.sampled_from([None, 300.0]), st.integers(0, 10**6))
def test_standard_errors_of_all_cells(taken: list[Counts], total: float | None, seed: int) -> None:
    """Against the inverse of the full precision matrix over all cells, for sums, any weights and groups of cells. Would
    catch a prior variance that leaves out any term, and a total that is conditioned on where it is not public."""
    residuals, local = state(SIZES, taken, total)
    fit = local.fit(Cells(Marginal.of(SIZES, dict.fromkeys(range(3)))))
    p, n = np.maximum(fit.counts.reshape(-1), 0.05), max(float(residuals.total.values), 1.0)
    precision = np.diag(1 / np.max([p / fit.strength, p * p / 4, n**2 * base_of(residuals)[1]], axis=0))
    for m in taken:
        if m.marginal.attributes:
            rows = matrix(SIZES, m.marginal)
            precision += rows.T @ rows / m.variance
    covariance = np.linalg.inv(precision)
    if total is not None:
        whole = covariance.sum(axis=1)
        covariance -= np.outer(whole, whole) / whole.sum()
    rng = np.random.default_rng(seed)
    every = tuple(Partition.singles(n) for n in SIZES)
    asked = [
        Local.over((0, 1, 2), rng.normal(size=SIZES)),
        Product.over({a: rng.normal(size=SIZES[a]) for a in range(3)}),
    ]
    assert fit.partitions == every
    for question in (*asked, Cells(Marginal.of(SIZES, {0: Partition.of(np.array([0, 0, 1])), 1: None, 2: None}))):
        rows = weights(SIZES, question)
        expected = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows)).reshape(question.shape)
        assert fit.standard_errors(question) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_what_noise_left_nothing_of_may_be_as_much_as_it_hides() -> None:
    """Of values of which bins alone were counted, evenly spread as the fit takes them to be, with noise of more than
    half a bin: where a bin is told to be all but empty the errors of its values are what standard errors say. Catches
    ones by the fitted counts alone, which are next to nothing there: 95% intervals held a third of the time."""
    rng, values, size = np.random.default_rng(12), 200, 10
    bins = Partition.runs(values, np.arange(0, values, size))
    truth, held = np.full(values, 9.6), []
    for _ in range(40):
        taken = [released(rng, truth, {0: bins}, 60.0, "gaussian")]
        _, local = state((values,), taken, float(truth.sum()))
        for question in (Cells(Marginal.of((values,), {0: None})), Product.over({0: np.arange(values) // 5 == 3})):
            fit = local.fit(question)
            found, errors = fit.values(question).reshape(-1), fit.standard_errors(question).reshape(-1)
            low, true = (
                found < 2,
                float(question.on((Partition.singles(values),)) @ truth) if not question.shape else 9.6,
            )
            held += (np.abs(found - true) <= 1.96 * errors)[low].tolist()
    assert len(held) > 500
    assert np.mean(held) > 0.9


def test_how_records_lie_within_a_bin_nobody_knows() -> None:
    """Of bins that were counted, all of whose records have one value, as people round what they say and bounds clamp:
    that value and the others lie within what standard errors say, in one attribute and beside another. Catches errors
    that take them to lie about evenly: such a value is ten times what is fitted, and no interval held."""
    rng, size = np.random.default_rng(14), 10
    sizes, bins = (200, 2), Partition.runs(200, np.arange(0, 200, size))
    truth = np.zeros(sizes)
    truth[::size] = rng.integers(20, 400, (20, 2))
    held: dict[str, list[bool]] = {"alone": [], "beside another": []}
    for _ in range(10):
        taken = [
            released(rng, truth, {0: bins}, 10.0, "gaussian"),
            released(rng, truth, {0: bins, 1: None}, 10.0, "gaussian"),
        ]
        _, local = state(sizes, taken, float(truth.sum()))
        for name, axes in (("alone", {0: None}), ("beside another", {0: None, 1: None})):
            question = Cells(Marginal.of(sizes, axes))
            fit = local.fit(question)
            true = question.of(truth, tuple(map(Partition.singles, sizes))) if len(axes) == 2 else truth.sum(axis=1)
            off, errors = np.abs(fit.values(question) - true), fit.standard_errors(question)
            held[name] += (off <= 1.96 * errors)[::size].reshape(-1).tolist()
            assert (off <= 1.96 * errors).mean() > 0.95
    assert min(map(np.mean, held.values())) > 0.93, {name: np.mean(own) for name, own in held.items()}


def test_nearer_than_the_unbiased_value_on_a_sparse_table() -> None:
    """What a fit is for: over seeded tables of two nearly independent attributes, most of whose cells are empty, its
    squared error is less than half of the unbiased one's."""
    rng = np.random.default_rng(8)
    sizes, off = (8, 8), {"fit": 0.0, "unbiased": 0.0}
    question = Cells(Marginal.of(sizes, {0: None, 1: None}))
    for _ in range(20):
        counts = rng.poisson(np.outer(*(2.0 ** -rng.permutation(8) for _ in range(2))) * 500)
        taken = [released(rng, counts, dict.fromkeys(c), 5.0, "gaussian") for c in [(0,), (1,), (0, 1)]]
        residuals, local = state(sizes, taken, None)
        off["fit"] += float(((local.fit(question).values(question) - counts) ** 2).sum())
        off["unbiased"] += float(((residuals.unbiased(question).values - counts) ** 2).sum())
    assert off["fit"] < 0.5 * off["unbiased"]


def test_the_total_and_nothing_else() -> None:
    """A question on no attribute, a table of which only the total is known, and one of which nothing is."""
    _, public = state(SIZES, [], 120.0)
    all_of_it, part = Product.over({}, -2.0), Product.over({1: np.array([1, 0, 0, 0])})
    assert float(public.fit(all_of_it).values(all_of_it)) == -240.0
    assert float(public.fit(all_of_it).standard_errors(all_of_it)) == 0.0
    assert float(public.fit(part).values(part)) == pytest.approx(30.0)
    # Two cells of deviations 15 and 45 before their sum is known.
    assert float(public.fit(part).standard_errors(part)) == pytest.approx(15 * 45 / math.hypot(15, 45))
    bought = state(SIZES, [measured(Marginal.of(SIZES, {}), 3.0, np.array(90.0))], None)[1]
    assert float(bought.fit(all_of_it).standard_errors(all_of_it)) == pytest.approx(6.0)
    assert float(bought.fit(part).values(part)) == pytest.approx(22.5)
    with pytest.raises(ValueError, match="nothing is known"):
        state(SIZES, [], None)[1].fit(part)
    with pytest.raises(ValueError, match="table"):
        public.fit(Product.over({9: np.array([1, 0])}))
    assert float(state(SIZES, [], 0.0)[1].fit(part).values(part)) <= 1.0


def test_a_base_of_bins() -> None:
    """Where single values are not known the finest bins that are make the base, each spread evenly over its values."""
    sizes = (7, 2)
    bins = Partition.of(np.array([0, 0, 0, 1, 1, 2, 2]))
    taken = [measured(Marginal.of(sizes, {0: bins}), 1.0, np.array([30.0, 60.0, -5.0]))]
    _, local = state(sizes, taken, 85.0)
    question = Cells(Marginal.of(sizes, {0: None, 1: None}))
    fitted = local.fit(question).values(question)
    assert fitted[0] == pytest.approx(fitted[1])
    assert fitted[3] == pytest.approx(fitted[4])
    assert fitted[:, 0] == pytest.approx(fitted[:, 1])
    assert fitted[3].sum() / fitted[0].sum() == pytest.approx((57.5 / 2) / (27.5 / 3), rel=0.1)
    assert 0 < fitted[5:].sum() < 1


def test_the_typical_error_of_many_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by sums with random signs against counted out. Would catch signs that are the same for all, and a mean over
    the wrong number of answers."""
    rng = np.random.default_rng(10)
    sizes = (12, 11, 3)
    counts = rng.poisson(15.0, sizes)
    taken = [released(rng, counts, dict.fromkeys(c), 4.0, "gaussian") for c in [(0,), (1,), (2,), (0, 1), (1, 2)]]
    _, local = state(sizes, taken, None)
    question = Cells(Marginal.of(sizes, {0: None, 1: None, 2: None}))
    fit = local.fit(question)
    told = fit.standard_error(question)
    monkeypatch.setattr(fits, "_COUNTED", 10**6)
    assert told == pytest.approx(fit.standard_error(question), rel=0.15)
    assert fit.standard_error(question) == pytest.approx(np.sqrt(np.mean(fit.standard_errors(question) ** 2)))


def test_the_product_needs_no_search() -> None:
    """It is the product of the one-way marginals, on the question's own cells. Would catch shares of another
    attribute."""
    rng = np.random.default_rng(11)
    counts = rng.poisson(30.0, SIZES)
    taken = [released(rng, counts, {a: None}, 0.01, "gaussian") for a in range(3)]
    _, local = state(SIZES, taken, float(counts.sum()))
    question = Product.over({0: np.array([1, 0, 1]), 1: np.array([1, 1, 0, 0])})
    first, second = counts.sum(axis=(1, 2)), counts.sum(axis=(0, 2))
    expected = (first[0] + first[2]) * (second[0] + second[1]) / counts.sum()
    assert float(local.product(question).values(question)) == pytest.approx(expected, rel=1e-3)
    assert 0 < local.product(question).standard_error(question) < counts.sum()


@pytest.mark.parametrize("planted", ["no search converges", "too many cells"])
def test_the_product_stands_in_for_a_fit_that_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """And says so itself: it has taken nothing in. Would catch an answer that never comes, and a product where there is
    a fit."""
    rng = np.random.default_rng(12)
    counts = rng.poisson(30.0, SIZES)
    _, local = state(SIZES, [released(rng, counts, {0: None, 1: None}, 4.0, "gaussian")], float(counts.sum()))
    question = Cells(Marginal.of(SIZES, {0: None, 1: None}))
    assert local.best(question) is local.fit(question)
    if planted == "too many cells":
        monkeypatch.setattr(fits, "MOST_FITTED", question.cells - 1)
    else:
        monkeypatch.setattr(dual, "_MOST_STEPS", 0)
        _, local = state(SIZES, [released(rng, counts, {0: None, 1: None}, 4.0, "gaussian")], float(counts.sum()))
    found = local.best(question)
    assert found.converged == local.converged == (planted == "too many cells")
    assert not found.known
    assert np.array_equal(found.values(question), local.product(question).values(question))


def test_where_nothing_was_counted_declared_cells_hold_as_many_records() -> None:
    """Shares before anything is known, and once only the two halves are. Would catch values that are taken to be evenly
    spread where cells of uneven widths were declared."""
    starting = {0: Partition.runs(6, np.array([0, 1, 2]))}
    residuals = Residuals((6,), 100.0, starting)
    fits = LocalFits(residuals)
    assert fits.shares(0) == pytest.approx([1 / 3, 1 / 3, *[1 / 12] * 4])
    assert not fits.tells_apart(0, 6)
    residuals.add(measured(Marginal.of((6,), {0: Partition.runs(6, np.array([0, 3]))}), 1e-6, np.array([90.0, 10.0])))
    # Of the first half's seven and a half parts of a record's chance the first two cells have four each.
    assert fits.shares(0) == pytest.approx([0.4, 0.4, 0.1, *[0.1 / 3] * 3], abs=1e-3)
    assert fits.tells_apart(0, 6)
    assert not fits.tells_apart(0, 3)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
    st.sampled_from([None, 0.0, 1e-13, 1e-9, 1.0]),
)
@example([1000.1, -1000.0, -0.1], None)
def test_nearest_counts_of_what_cancels_out(values: list[float], rest: float | None) -> None:
    """Held against exact rational numbers, also where values all but cancel out, as noise beside few records may.
    Catches a sum that is lost beside the largest value: nothing would be above the level, and the answer would fail.
    """
    # Beside the sum of the others the last value leaves ``rest``.
    whole = np.array(values if rest is None else [*values, rest - math.fsum(values)])
    exact = sorted(map(Fraction, whole.tolist()), reverse=True)
    total = max(sum(exact), Fraction(0))
    levels = [(sum(exact[: k + 1]) - total) / (k + 1) for k in range(len(exact))]
    level = max((k for k in range(len(exact)) if exact[k] > levels[k]), default=None)
    cut = exact[0] if level is None else levels[level]
    nearest = [float(max(Fraction(value) - cut, Fraction(0))) for value in whole.tolist()]
    found = fits._projected(whole)
    assert np.abs(found - nearest).max() <= 1e-9 * max(1.0, float(np.abs(whole).max()))
