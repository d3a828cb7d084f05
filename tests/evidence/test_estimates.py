"""What is shown: which interval, how it is cut, what the standard error belongs to, and how often it is true."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.intervals import Estimates
from app.estimation.tables.estimates import around, contradicted, possible
from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals, Unbiased
from app.measurements.pieces import Counts
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Product, Question
from tests.evidence.tables import measured, released, weights

pytestmark = pytest.mark.unit

SIZES = (3, 4, 2)
Z95 = 1.959963984540054


def estimates(question: Question, residuals: Residuals, fits: LocalFits, confidence: float = 0.95) -> Estimates:
    fit, unbiased = fits.fit(question), residuals.unbiased(question)
    return around(
        question,
        fit.values(question),
        unbiased,
        residuals.reaches(question, unbiased, confidence),
        lambda: fit.standard_errors(question),
        residuals.public_total,
        confidence,
    )


def shown(question: Question, taken: list[Counts], total: float | None = None, confidence: float = 0.95) -> Estimates:
    residuals = Residuals(SIZES, total)
    for m in taken:
        residuals.add(m)
    return estimates(question, residuals, LocalFits(residuals), confidence)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.5, 0.95, 0.999]))
def test_the_parts_belong_together(seed: int, public: bool, confidence: float) -> None:
    """Value plus or minus the quantile times the standard error reaches both ends of the interval before it is cut; the
    interval is that of the possible value next to the best linear unbiased one where there is one, the fit's elsewhere,
    and holds the value shown. Would catch a standard error of the unbiased value shown beside the fit's, and a cut
    interval made the measure of an error."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.choice([0.0, 3.0, 30.0], SIZES))
    taken = [released(rng, counts, cells, 4.0, "gaussian") for cells in ({0: None, 1: None}, {2: None}, {1: None})]
    total = float(counts.sum()) if public else None
    question = Product.over({int(a): rng.integers(0, 2, SIZES[a]) for a in rng.choice(3, 2, replace=False)})
    residuals = Residuals(SIZES, total)
    for m in taken:
        residuals.add(m)
    local = LocalFits(residuals)
    one = estimates(question, residuals, local, confidence)
    linear, fit = residuals.unbiased(question), local.fit(question)
    # Two sides of an exact normal law, found by bisection.
    low, high = 0.0, 9.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if math.erf(middle / math.sqrt(2)) > confidence else (middle, high)
    least, most = possible(question, total)
    assert one.values == pytest.approx(min(max(float(fit.values(question)), least), most))
    if linear.estimable:
        centre, deviation = float(linear.values), float(linear.standard_errors)
        assert (one.unbiased, one.linear, one.linear_errors) == (True, centre, deviation)
    else:
        centre, deviation = float(one.values), float(fit.standard_errors(question))
        assert not one.unbiased
        assert one.linear == pytest.approx(math.nan, nan_ok=True)
        assert one.linear_errors == pytest.approx(math.nan, nan_ok=True)
    centre = min(max(centre, least), most)
    ends = centre - high * deviation, centre + high * deviation
    cut = [min(max(end, least), most) for end in ends]
    assert [one.lows, one.highs] == pytest.approx([min(cut[0], one.values), max(cut[1], one.values)])
    assert one.standard_errors == pytest.approx(max(float(one.values) - ends[0], ends[1] - float(one.values)) / high)
    assert one.confidence == confidence


def test_cells_are_shown_as_questions_of_their_own() -> None:
    """All cells of a marginal at once against one question a cell. Would catch an axis taken for another."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(8.0, SIZES)
    taken = [released(rng, counts, cells, 4.0, "laplace") for cells in ({0: None, 1: None}, {1: None, 2: None})]
    halves = Partition.of(np.array([0, 0, 1, 1]))
    for cells in ({0: None, 1: halves}, {0: None, 2: None}):
        marginal = Marginal.of(SIZES, cells)
        table = shown(Cells(marginal), taken)
        for place in np.ndindex(marginal.shape):
            vectors = {a: marginal.partition(k).labels == place[k] for k, a in enumerate(marginal.attributes)}
            one, other = table.each(lambda array, place=place: array[place]), shown(Product.over(vectors), taken)
            assert one.unbiased == other.unbiased == (1 in cells)
            if one.unbiased:
                assert one.linear == pytest.approx(other.linear)
                assert one.linear_errors == pytest.approx(other.linear_errors)
                assert [one.lows, one.highs] == pytest.approx([other.lows, other.highs])


@pytest.mark.parametrize(
    ("question", "total", "expected"),
    [
        (Product.over({0: np.array([1, 0, 1])}), 50.0, (0.0, 50.0)),
        (Product.over({0: np.array([1, 0, 1])}), None, (0.0, math.inf)),
        (Product.over({0: np.array([1, -0.5, 0])}, 2.0), 50.0, (-50.0, 100.0)),
        (Product.over({0: np.array([1, -0.5, 0])}), None, (-math.inf, math.inf)),
        (Product.over({0: np.array([1, -1, 1]), 1: np.array([0.5, 1, 1, -1])}), 50.0, (-50.0, 50.0)),
        (Product.over({0: np.array([-1, -2, 0])}), None, (-math.inf, 0.0)),
        (Product.over({}), 50.0, (50.0, 50.0)),
        (Local.over((0, 2), np.array([[0.25, 1], [0.5, 0.5], [1, 1]])), 40.0, (10.0, 40.0)),
        (Cells(Marginal.of(SIZES, {0: None})), 50.0, (0.0, 50.0)),
    ],
)
def test_what_is_possible(question: Question, total: float | None, expected: tuple[float, float]) -> None:
    assert possible(question, total) == expected


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_no_confidence(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        shown(Product.over({}), [], 5.0, confidence)


def test_far_below_zero_an_interval_reaches_up_from_zero() -> None:
    """Would catch an interval that says zero to zero of a count that could be five."""
    taken = [measured(Marginal.of(SIZES, {0: None}), 3.0, np.array([-50.0, 80.0, 70.0]))]
    one = shown(Product.over({0: np.array([1, 0, 0])}), taken, 100.0)
    # The total leaves two thirds of the variance.
    reach = Z95 * math.sqrt(6)
    assert one.lows == 0.0
    assert one.highs == pytest.approx(max(reach, one.values))
    assert one.values >= 0
    assert one.standard_errors * Z95 == pytest.approx(one.values + reach)


@settings(max_examples=200)
@given(st.floats(-100, 200), st.floats(0, 100), st.floats(0.01, 50), st.floats(0, 100), st.sampled_from([None, 100.0]))
def test_a_possible_truth_is_held_wherever_it_was(
    linear: float, truth: float, reach: float, value: float, total: float | None
) -> None:
    """Against the interval that is cut and no more: whatever possible truth that holds the shown one holds, and the
    value. Would catch a centre moved the wrong way, and a value outside its own interval."""
    question = Product.over({0: np.array([1, 0, 0])})
    unbiased = Unbiased(np.asarray(linear), np.asarray((reach / Z95) ** 2))
    one = around(question, np.asarray(value), unbiased, np.asarray(reach), lambda: np.asarray(1.0), total, 0.95)
    if abs(linear - truth) <= reach:
        assert one.lows <= truth + 1e-9
        assert truth - 1e-9 <= one.highs
    assert one.lows <= one.values <= one.highs


class TestContradicted:
    """Whether unbiased values are nearer to the truth than a fit's."""

    @pytest.mark.parametrize("cells", [1, 8, 200])
    def test_a_true_fit_is_kept(self, cells: int) -> None:
        """In 2,000 draws at each size no more than one in fifty is taken for wrong. Would catch a threshold that noise
        alone passes."""
        rng = np.random.default_rng(1)
        truth, variances = np.full(cells, 50.0), np.full(cells, 9.0)
        wrong = sum(contradicted(truth, Unbiased(truth + rng.normal(0, 3, cells), variances)) for _ in range(2000))
        assert wrong <= 40

    @pytest.mark.parametrize("cells", [8, 200])
    def test_a_fit_three_deviations_off_is_not(self, cells: int) -> None:
        """Catches a rule that never speaks."""
        rng = np.random.default_rng(2)
        truth, variances = np.full(cells, 50.0), np.full(cells, 9.0)
        seen = sum(contradicted(truth + 9, Unbiased(truth + rng.normal(0, 3, cells), variances)) for _ in range(500))
        assert seen >= 495

    def test_what_is_not_known_contradicts_nothing(self) -> None:
        assert not contradicted(np.array([5.0, 5.0]), Unbiased(np.array([90.0, np.nan]), np.array([1.0, np.nan])))


ESTIMABLE = Product.over({0: np.array([1, 1, 0]), 1: np.array([0, 1, 1, 0])})
ROW = weights(SIZES, ESTIMABLE)[0]
ROUNDS, FITTED = 900, 300
NOT_ESTIMABLE = Product.over({0: np.array([1, 1, 0]), 2: np.array([0, 1])})


def tables(kind: str, told: float = 1.0) -> Iterator[tuple[np.ndarray, Residuals]]:
    """:data:`ROUNDS` seeded sparse tables, flat, and what was measured of them.

    Args:
        kind: of the noise.
        told: what deviations are said to be, as a part of what they are.
    """
    rng = np.random.default_rng(9)
    for _ in range(ROUNDS):
        counts = rng.poisson(np.outer(rng.dirichlet([1.0] * 12), [0.7, 0.3]) * 120).reshape(SIZES)
        residuals = Residuals(SIZES)
        for cells in ({0: None, 1: None}, {2: None}, {0: None}):
            m = released(rng, counts, cells, 4.0, kind)
            residuals.add(measured(m.marginal, 4.0 * told, m.values, m.noise.kind))
        yield counts.reshape(-1), residuals


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_coverage(kind: str) -> None:
    """Of kind unbiased 93% at the least hold of a nominal 95%, over 900 seeded tables (a standard deviation is
    0.73%), before they are cut to what is possible; over the first 300, which are fitted, when they are, and so does
    the value shown plus or minus its error. Those of kind model have no such promise; on these tables, whose attributes
    are nearly independent, they hold too."""
    asked = {"unbiased": ESTIMABLE, "model": NOT_ESTIMABLE}
    rows = {name: weights(SIZES, question)[0] for name, question in asked.items()}
    held = dict.fromkeys([*asked, "shown", "uncut"], 0)
    for place, (counts, residuals) in enumerate(tables(kind)):
        held["uncut"] += uncut_holds(counts, residuals)
        if place >= FITTED:
            continue
        for name, question in asked.items():
            truth = float(rows[name] @ counts)
            one = estimates(question, residuals, LocalFits(residuals))
            assert one.unbiased == (name == "unbiased")
            held[name] += int(one.lows <= truth <= one.highs)
            if name == "unbiased":
                held["shown"] += int(abs(one.values - truth) <= Z95 * one.standard_errors)
    assert held["uncut"] / ROUNDS >= 0.93
    assert held["unbiased"] / FITTED >= 0.93
    assert held["shown"] / FITTED >= 0.93
    assert held["model"] / FITTED >= 0.9


def uncut_holds(counts: np.ndarray, residuals: Residuals) -> bool:
    """Whether the unbiased interval holds the truth, before it is cut to what is possible: no fit is needed."""
    linear = residuals.unbiased(ESTIMABLE)
    return bool(abs(linear.values - ROW @ counts) <= residuals.reaches(ESTIMABLE, linear, 0.95))


@pytest.mark.slow
def test_the_coverage_test_sees_a_variance_30_percent_too_small() -> None:
    """The unbiased interval is what it was before it was cut to what is possible, as the truth is: no fit is needed. It
    holds of 89.9% (1.0%), so that any 900 tables show it with a probability of 99.9%."""
    held = sum(uncut_holds(*table) for table in tables("gaussian", math.sqrt(0.7)))
    assert held / ROUNDS < 0.93
