"""Contract sessions: what a plan costs and keeps, what certificates tell, and that every answer keeps its bound."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.curator.certificates import Certificate, Certificates, whole_counts
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible, UpdatesExhausted
from app.curator.mechanisms.contract import ContractMechanism
from app.curator.mechanisms.protocol import Answer, MarginalTest, Measured, Target
from app.curator.mechanisms.round import play_marginal
from app.curator.opening import Opening, Pins
from app.curator.planners.contract import MOST_TESTED, Contract, ContractPlan
from app.curator.planning import make_plan
from app.curator.request import SessionRequest, parse_request
from app.curator.session import Session
from app.declarations.errors import InvalidRequest
from app.declarations.spec import parse_spec
from app.measurements.record import Measurement
from app.privacy.ledger import Amounts
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.questions import Cells, Local, Product, Question

pytestmark = pytest.mark.unit

SIZES = (3, 4, 2)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
SPEC = {
    "name": "t",
    "kind": "table",
    "attributes": [{"name": f"x{k}", "size": size} for k, size in enumerate(SIZES)],
    "budget": BUDGET,
}
RECORDS = 19_200
ASKED = {"dataset": "t", "mechanism": {"construction": "evidence"}, "epsilon": 1.0, "max_queries": 50, "contract": True}
RELEASES = ["single", "race"]


def opening(public: bool = True, **more: Any) -> Opening:
    dataset = PublicDataset(parse_spec({**SPEC, "records_public": public}), RECORDS if public else None)
    request = parse_request(ASKED | more)
    return Opening(dataset, request, make_plan(dataset, request), evidence=Pins((), ()))


def terms(**more: Any) -> Contract:
    plan = opening(**more).plan
    assert isinstance(plan, ContractPlan)
    return plan.contract


# ------------------------------------------------------------------------------------------------ plans


def ln_v(e0: mpmath.mpf, a: mpmath.mpf, release: str) -> mpmath.mpf:
    if release == "single":
        return (1 - a) * e0 - mpmath.log(1 + mpmath.exp(e0) - mpmath.exp(a * e0))
    return -a * e0 - mpmath.log(1 - a * (1 - mpmath.exp(-e0)))


@mpmath.workdps(60)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("updates", [1, 7, 40])
def test_hits_cost_the_test_and_the_measurement_and_fit_the_share(release: str, updates: int) -> None:
    """``ln V/(a-1) + a/(2 sigma^2)``, B times, and what the opening may buy, are within the share. Would catch a hit
    that is charged without its test or without its measurement, and far less noise or far more than is paid for."""
    made = opening(release=release, max_updates=updates)
    plan, contract = made.plan, terms(release=release, max_updates=updates)
    a, b = mpmath.mpf(str(plan.order)), mpmath.mpf(contract.scale.numerator) / contract.scale.denominator

    def price(scale: mpmath.mpf) -> mpmath.mpf:
        return ln_v(1 / scale, a, release) / (a - 1) + a / (2 * (mpmath.mpf(3) / 2 * scale) ** 2)

    assert 0 <= mpmath.mpf(str(contract.cost_per_update)) - price(b) <= mpmath.mpf("3e-24")
    share = mpmath.mpf(str(plan.reserved)) * mpmath.mpf("0.9")
    assert contract.cost_per_update * updates <= plan.reserved * Decimal("0.9")
    assert price(b * (1 - mpmath.mpf("1e-13"))) * updates > share
    assert contract.max_updates == plan.max_updates == updates
    state = Session(made)
    bought = sum((buy.price.renyi for buy in state.purchases()), Decimal(0))
    assert bought + contract.cost_per_update * updates <= plan.reserved


@mpmath.workdps(40)
@pytest.mark.parametrize("release", RELEASES)
def test_bounds_fail_with_beta_at_most(release: str) -> None:
    """The probabilities that some miss tells less than it is said to, or some measurement errs by more than it is said
    to, told by the noise's own laws. Would catch a bound without the number of tests, of updates or of cells."""
    k, beta, cells = 50, 0.05, 24
    contract = terms(release=release, beta=beta)
    b = mpmath.mpf(contract.scale.numerator) / contract.scale.denominator
    r, bound = mpmath.exp(-1 / b), contract.noise_bound_units
    if contract.race is None:
        # A miss at a gap above T + L takes noise below -L.
        missed = r ** (bound + 1) / (1 + r)
        assert contract.gap == contract.threshold_units + bound
    else:
        # At a gap above T each comparison comes out unless its noise is negative.
        missed = mpmath.exp(-mpmath.mpf(str(contract.race.mean)) * (1 - r / (1 + r)))
        assert contract.gap == contract.threshold_units
    assert k * missed <= beta / 2
    sigma = mpmath.mpf(contract.measured_scale.numerator) / contract.measured_scale.denominator

    def tail(reach: float) -> mpmath.mpf:
        """Both tails of one value, by sums over the integers."""
        weights = [mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * sigma**2)) for n in range(int(30 * sigma))]
        return 2 * mpmath.fsum(weights[math.floor(reach) + 1 :]) / (2 * mpmath.fsum(weights) - 1)

    part = beta / (2 * contract.max_updates)
    assert tail(contract.reach(1)) <= part / 2
    assert cells * tail(contract.reach(cells)) <= part / 4
    # Added up, the noises of so many cells: 2^cells signs, each sum of deviation sqrt(cells) sigma at most.
    normal = mpmath.ncdf(-contract.noise_gap(cells) / (mpmath.sqrt(cells) * sigma))
    assert 2 ** mpmath.mpf(cells) * normal <= part / 4


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.001, 1e-12), (0.1, 0.1), (10.0, 1e-6), (1000.0, 0.1)])
@pytest.mark.parametrize(("queries", "updates"), [(1, None), (10**9, 10**6)])
def test_plans_of_extreme_budgets_fit_them(epsilon: float, delta: float, queries: int, updates: int | None) -> None:
    """Would catch a search for the scale that ends too early, and a price that passes the share."""
    spec = parse_spec({**SPEC, "budget": {"epsilon": epsilon, "delta": delta}})
    words = {"epsilon": epsilon, "max_queries": queries, "max_updates": updates}
    plan = make_plan(PublicDataset(spec, None), parse_request(ASKED | words))
    assert isinstance(plan, ContractPlan)
    assert plan.contract.cost_per_update * plan.max_updates <= plan.reserved * Decimal("0.9")
    assert plan.contract.threshold_units == 2 * plan.contract.noise_bound_units


def test_a_table_of_one_cell() -> None:
    """There is nothing to test but its total."""
    dataset = PublicDataset(parse_spec({**SPEC, "attributes": [{"name": "x0", "size": 1}]}), 100)
    request = parse_request(ASKED)
    session = Session(Opening(dataset, request, make_plan(dataset, request), evidence=Pins((), ())))
    due = session.consider(parse_query({"type": "predicate", "where": {}}).compiled(dataset.space))
    assert isinstance(due, MarginalTest)
    assert due.counts.tolist() == [100]


def test_the_number_of_updates_is_that_of_the_marginals_or_of_the_questions() -> None:
    """3 + 3 + 1 marginals of up to three attributes. Would catch a B that leaves marginals or questions without one."""
    assert terms().max_updates == 7
    assert terms(max_queries=4).max_updates == 4
    assert terms(max_queries=4, max_updates=6).max_updates == 6


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_plan_says(public: bool, release: str) -> None:
    """Would catch a bound that leaves out the drift, or halves a gap of data whose number is not public."""
    plan, contract = opening(public, release=release).plan, terms(public=public, release=release)
    document = plan.document()
    gap = contract.threshold_units + (contract.noise_bound_units if release == "single" else 0)
    missed = gap / (2 if public else 1) + math.ceil(contract.noise_bound_units / 4)
    hit = contract.reach(MOST_TESTED) + 2.5 * float(contract.measured_scale)
    assert document["error_bound"] == max(missed, hit)
    assert (document["threshold"], document["noise_bound"]) == (contract.threshold_units, contract.noise_bound_units)
    assert document["noise_scale"] == float(contract.scale)
    assert (document["max_updates"], document["max_queries"]) == (7, 50)
    assert (document["race"] is None) == (release == "single")
    assert (
        Opening.of(opening(public, release=release).document()).document()
        == opening(public, release=release).document()
    )


@pytest.mark.parametrize(
    "more",
    [
        {"within": 10.0},
        {"mechanism": {"construction": "mw"}, "max_updates": 3},
        {"mechanism": {"construction": "gaussian"}},
        {"mechanism": {"construction": "histogram"}},
        {"contract": 1},
    ],
)
def test_contracts_that_cannot_be(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(ASKED | more)


def test_a_contract_says_how_many_queries_there_are() -> None:
    """Its bound holds for so many tests."""
    asked = {name: value for name, value in ASKED.items() if name != "max_queries"}
    with pytest.raises(InvalidRequest):
        parse_request(asked)
    assert isinstance(parse_request(asked | {"contract": False}), SessionRequest)


# ------------------------------------------------------------------------------------------------ the round

COUNTS = st.lists(st.integers(-3, 3), min_size=1, max_size=4)


@given(COUNTS, COUNTS, st.lists(st.integers(-6, 6), min_size=1, max_size=3), st.integers(0, 3), st.integers(0, 6))
def test_a_surprise_is_a_noisy_distance_beyond_the_threshold(
    private: list[int], expected: list[int], drawn: list[int], count: int, threshold: int
) -> None:
    """Would catch a comparison beyond the count, >= for >, a signed sum, a release of anything but the measurement, and
    noise that is left behind or used for both."""
    size = min(len(private), len(expected))
    x, h = np.array(private[:size]), np.array(expected[:size])
    noise, fresh = np.array(drawn), np.arange(100, 100 + size)
    found = play_marginal(x, h, noise, count, threshold, fresh)
    far = sum(abs(a - b) for a, b in zip(private[:size], expected[:size], strict=True))
    if any(far + one > threshold for one in drawn[:count]):
        assert found is not None
        assert found.tolist() == [value + 100 + k for k, value in enumerate(private[:size])]
    else:
        assert found is None
    assert not fresh.any()
    assert not noise.any()
    assert private[:size] == x.tolist()


@given(COUNTS, st.integers(0, 3), st.sampled_from([1, -1]), st.integers(0, 10**6))
def test_a_record_moves_the_distance_by_one_at_most(private: list[int], place: int, step: int, seed: int) -> None:
    """The sensitivity that the noise is scaled for. Would catch a distance of squares, or of unrounded values."""
    x = np.array(private)
    neighbour = x.copy()
    neighbour[place % len(x)] += step
    h = whole_counts(np.random.default_rng(seed).normal(0, 3, len(x)))

    def told(counts: Any) -> list[bool]:
        """Whether each threshold is passed without noise: all that the distance decides."""
        nothing = [np.zeros(1, np.int64) for _ in range(64)]
        return [play_marginal(counts, h, nothing[t], 1, t, np.zeros(len(x), np.int64)) is not None for t in range(64)]

    assert abs(sum(told(x)) - sum(told(neighbour))) <= 1


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30))
def test_whole_counts_stand_beside_the_values_and_keep_the_sum(values: list[float]) -> None:
    """Would catch rounding cell by cell, by which the sum of many small values is lost."""
    found = whole_counts(np.array(values))
    assert np.abs(found - values).max() <= 1 + 1e-9
    assert abs(int(found.sum()) - sum(values)) <= 0.5 + 1e-9


# ------------------------------------------------------------------------------------------------ certificates


@st.composite
def partitions(draw: st.DrawFn, size: int) -> Partition | None:
    return draw(
        st.one_of(
            st.none(),
            st.lists(st.integers(0, 2), min_size=size, max_size=size).map(
                lambda labels: Partition.of(np.array(labels))
            ),
        )
    )


@st.composite
def marginals(draw: st.DrawFn) -> Marginal:
    named = draw(st.lists(st.sampled_from(range(len(SIZES))), unique=True))
    return Marginal.of(SIZES, {a: draw(partitions(SIZES[a])) for a in named})


@st.composite
def covered(draw: st.DrawFn, marginal: Marginal) -> tuple[Question, list[np.ndarray]]:
    """A question whose weights do not vary within the cells, and its weights over the whole table, one array for each
    of its numbers."""
    weights = st.sampled_from([0.0, 1.0, 1.0, 0.5, -1.0, -0.25])

    def full(axis_weights: dict[int, np.ndarray]) -> np.ndarray:
        found = np.ones(SIZES)
        for axis, vector in axis_weights.items():
            found = found * vector.reshape([-1 if k == axis else 1 for k in range(len(SIZES))])
        return found

    labels = {a: marginal.partition(k).labels for k, a in enumerate(marginal.attributes)}
    kind = draw(st.sampled_from(["product", "local", "cells"]))
    if kind == "product":
        chosen = {
            a: np.array(draw(st.lists(weights, min_size=int(own.max()) + 1, max_size=int(own.max()) + 1)))[own]
            for a, own in labels.items()
        }
        return Product.over(chosen), [full(chosen)]
    if kind == "local" and labels:
        drawn = draw(st.lists(weights, min_size=marginal.cells, max_size=marginal.cells))
        local = np.array(drawn).reshape(marginal.shape)[np.ix_(*labels.values())]
        spread = local.reshape([SIZES[a] if a in labels else 1 for a in range(len(SIZES))])
        return Local.over(list(labels), local), [np.broadcast_to(spread, SIZES)]
    coarser = {}
    for a, own in labels.items():
        if draw(st.booleans()):
            merged = np.array(
                draw(st.lists(st.integers(0, 1), min_size=int(own.max()) + 1, max_size=int(own.max()) + 1))
            )
            coarser[a] = Partition.of(merged[own])
    asked = Marginal.of(SIZES, coarser)
    shape = asked.shape
    arrays = []
    for cell in itertools.product(*(range(n) for n in shape)):
        inside = {a: (asked.partition(k).labels == cell[k]).astype(float) for k, a in enumerate(asked.attributes)}
        arrays.append(full(inside))
    return Cells(asked), arrays


@st.composite
def certified(draw: st.DrawFn) -> tuple[np.ndarray, Certificate, Question, list[np.ndarray], bool]:
    """A table, a certificate that holds of it, and a covered question."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    table = rng.integers(0, 10, SIZES)
    marginal = draw(marginals())
    true = counts_of(table, marginal)
    off = rng.integers(-6, 7, true.shape) * (rng.random(true.shape) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    if draw(st.booleans()):
        certificate = Certificate(marginal, true + off, float(np.abs(off).sum()), math.inf, 0, tested=True)
    else:
        certificate = Certificate(marginal, true + off, np.abs(off).sum() * 1.5, np.abs(off).max(), 0, tested=False)
    question, weights = draw(covered(marginal))
    return table, certificate, question, weights, draw(st.booleans())


def counts_of(table: np.ndarray, marginal: Marginal) -> np.ndarray:
    """The counts of a marginal's cells, record by record."""
    found = np.zeros(marginal.shape, np.int64)
    for cell in np.ndindex(*SIZES):
        place = tuple(marginal.partition(k).labels[cell[a]] for k, a in enumerate(marginal.attributes))
        found[place] += table[cell]
    return found


@pytest.mark.slow
@settings(max_examples=300)
@given(certified())
def test_certificates_hold_for_every_question_that_is_constant_on_the_cells(
    case: tuple[np.ndarray, Certificate, Question, list[np.ndarray], bool],
) -> None:
    """Against sums over the whole table. Would catch a gap that is halved where the number is not public or the counts
    have another sum, cells that are merged and counted once, and weights beyond [0, 1]."""
    table, certificate, question, weights, public = case
    assert certificate.covers(question)
    centre = certificate.centre(question).reshape(-1)
    radius = certificate.radius(question, float(table.sum()) if public else None)
    truth = np.array([float((each * table).sum()) for each in weights])
    assert len(centre) == len(truth)
    assert np.abs(centre - truth).max() <= radius + 1e-9


@pytest.mark.slow
@settings(max_examples=100)
@given(certified(), st.integers(0, 10**6))
def test_what_has_drifted_is_off_by_the_drift_more(
    case: tuple[np.ndarray, Certificate, Question, list[np.ndarray], bool], seed: int
) -> None:
    """A value that another table makes, wherever it has gone since. Would catch a drift that is left out."""
    table, certificate, question, weights, public = case
    later = np.random.default_rng(seed).integers(0, 30, SIZES)
    shown = np.array([float((each * later).sum()) for each in weights])
    truth = np.array([float((each * table).sum()) for each in weights])
    radius = certificate.radius(question, float(table.sum()) if public else None)
    drift = np.abs(shown - certificate.centre(question).reshape(-1))
    assert (np.abs(shown - truth) <= radius + drift + 1e-9).all()


def test_a_gap_is_told_no_larger_than_it_must_be() -> None:
    """Counts in one cell moved to another: of the one cell all of the gap, half of it where the number is public.
    Would catch bounds that hold because they are far too wide."""
    marginal = Marginal.of(SIZES, {0: None, 1: None})
    counts = np.full(marginal.shape, 50)
    question = Product.over({0: np.array([1.0, 0, 0]), 1: np.array([1.0, 0, 0, 0])})
    certificate = Certificate(marginal, counts, 10.0, math.inf, 0, tested=True)
    assert certificate.radius(question, None) == 10
    assert certificate.radius(question, float(counts.sum())) == 5
    assert certificate.radius(question, float(counts.sum()) + 4) == 7
    measured = Certificate(marginal, counts, 10.0, 2.0, 0, tested=False)
    assert measured.radius(question, None) == 2
    assert measured.radius(Product.over({0: np.array([1.0, 0, 0])}), None) == 8


def test_what_is_not_constant_on_the_cells_is_not_covered() -> None:
    marginal = Marginal.of(SIZES, {1: Partition.of(np.array([0, 0, 1, 1]))})
    certificate = Certificate(marginal, np.array([1, 2]), 1.0, 1.0, 0, tested=True)
    assert certificate.covers(Product.over({1: np.array([1.0, 1, 0, 0])}))
    assert certificate.covers(Product.over({}))
    assert not certificate.covers(Product.over({1: np.array([1.0, 0, 0, 0])}))
    assert not certificate.covers(Product.over({0: np.array([1.0, 0, 0]), 1: np.array([1.0, 1, 0, 0])}))


def test_the_oldest_certificates_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch certificates that take memory without an end, and a newer one that is forgotten for its age."""
    monkeypatch.setattr("app.curator.certificates.MOST_COUNTS", 10)
    kept, question = Certificates(), Product.over({})

    def made(axis: int) -> Certificate:
        marginal = Marginal.of(SIZES, {axis: None})
        return Certificate(marginal, np.zeros(marginal.shape, np.int64), 1.0, 1.0, 0, tested=True)

    for axis in (0, 1, 0, 2):  # 3, 4, 3 again, 2 cells: 9 in all
        kept.add(made(axis))
    assert [each.marginal.attributes for each in kept.covering(question)] == [(2,), (0,), (1,)]
    kept.add(Certificate(Marginal.of(SIZES, {2: None}), np.zeros(2, np.int64), 1.0, 1.0, 0, tested=False))
    assert [(each.marginal.attributes, each.tested) for each in kept.covering(question)] == [
        ((2,), False),
        ((2,), True),
        ((0,), True),
    ]


# ------------------------------------------------------------------------------------------------ sessions


class Player:
    """Whoever holds the data of a contract session, with noise of a test's own."""

    def __init__(
        self,
        table: np.ndarray,
        public: bool,
        release: str,
        rng: np.random.Generator,
        *,
        quiet: bool = False,
        **more: Any,
    ) -> None:
        self.opening = opening(public, release=release, epsilon=1.0, **more)
        self.session, self.table, self.rng = Session(self.opening), table, rng
        self.data = self.opening.dataset.space.tensor(table)
        assert isinstance(self.session.mechanism, ContractMechanism)
        plan = self.opening.plan
        assert isinstance(plan, ContractPlan)
        self.contract = plan.contract
        self.pinned: list[Measured] = []
        for buy in self.session.purchases():
            exact = buy.strategy.exact(self.opening.dataset.space, self.data)
            drawn = np.rint(rng.normal(0, 0 if quiet else float(buy.noise.scale), exact.shape)).astype(np.int64)
            self.pinned.append(Measured(Measurement(buy.strategy, buy.noise, exact + drawn), buy.price))
            self.session.pin(self.pinned[-1])
        self.tests, self.quiet = 0, quiet

    def query(self, words: dict[str, Any]) -> Query:
        return parse_query(words).compiled(self.opening.dataset.space)

    def noise(self) -> np.ndarray:
        """Noise of a test that keeps its bound, and of a race one that does what is likely."""
        most = 0 if self.quiet else self.contract.noise_bound_units
        drawn = self.rng.integers(-most, most + 1, 3)
        return np.abs(drawn) if self.contract.race is not None else drawn[:1]

    def ask(self, words: dict[str, Any]) -> Answer:
        query = self.query(words)
        due = self.session.consider(query)
        if not isinstance(due, Answer):
            assert isinstance(due, MarginalTest)
            self.tests += 1
            private, drawn = due.purchase.strategy.exact(self.opening.dataset.space, self.data), self.noise()
            # Of this length at most: then so is any sum with weights of length 1, each by itself, and all added up.
            fresh = self.rng.normal(size=len(private))
            fresh *= self.rng.uniform(0, 1) * self.contract.reach(1) / np.sqrt(fresh @ fresh)
            fresh = np.trunc(fresh).astype(np.int64)
            units = play_marginal(private, due.counts, drawn, len(drawn), due.threshold, fresh)
            due = self.session.apply(query, due, units)
        self.session.record(query, due)
        return due

    def truth(self, words: dict[str, Any]) -> np.ndarray:
        query = self.query(words)
        exact = np.atleast_1d(np.array(query.exact(self.data), dtype=np.float64))
        return np.ldexp(exact, -query.grid_bits)

    def check(self, words: dict[str, Any], answer: Answer) -> None:
        assert answer.error_bound is not None
        values = np.ldexp(answer.units.astype(float), -self.session.plan.answer_bits)
        assert np.abs(values - self.truth(words)).max() <= answer.error_bound


def words(rng: np.random.Generator) -> dict[str, Any]:
    """A filtered count, a table of counts, or weights."""
    named = [k for k in range(len(SIZES)) if rng.random() < 0.6] or [1]
    kind = rng.integers(0, 4)
    if kind == 0:
        return {"type": "marginal", "attributes": [f"x{k}" for k in named]}
    if kind == 1:
        weights = {f"x{k}": rng.choice([0.0, 1.0, 0.5, 0.25], SIZES[k]).tolist() for k in named}
        return {"type": "product", "weights": weights}
    where = {f"x{k}": {"in": np.flatnonzero(rng.random(SIZES[k]) < 0.5).tolist() or [0]} for k in named}
    return {"type": "predicate", "where": where}


def uneven(rng: np.random.Generator, records: int = RECORDS) -> np.ndarray:
    """A table whose attributes hang together."""
    shares = rng.gamma(0.3, 1, SIZES) + 1e-3
    return rng.multinomial(records, (shares / shares.sum()).reshape(-1)).reshape(SIZES)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(RELEASES))
def test_every_answer_keeps_its_bound_while_the_noise_keeps_its_own(seed: int, public: bool, release: str) -> None:
    """Whatever was tested, measured, or certified before. Would catch a certificate that is used for what it does not
    cover, a bound without its drift, a hit's value that is clipped away from its bound, and a plan that promises more
    than its answers keep."""
    rng = np.random.default_rng(seed)
    player = Player(uneven(rng), public, release, rng)
    plan = player.session.plan
    assert plan.error_bound is not None
    for _ in range(25):
        asked = words(rng)
        left = player.session.updates_left
        try:
            answer = player.ask(asked)
        except UpdatesExhausted:
            assert not left
            continue
        player.check(asked, answer)
        assert answer.error_bound is not None
        if asked["type"] != "product" and left and answer.source != "cached":
            assert answer.error_bound <= plan.error_bound + 1
    assert player.session.updates_used <= player.tests <= 25


def test_nothing_is_tested_twice_and_a_hit_makes_room_for_new_tests() -> None:
    """The same cells of the same hypothesis are asked for in other words: a coarser table and each of its cells come
    free. Would catch a second test, whose noise would be a second chance to be surprised."""
    rng = np.random.default_rng(3)
    player = Player(np.full(SIZES, 800), True, "single", rng, quiet=True)
    table = {"type": "marginal", "attributes": ["x0", "x1"]}
    player.ask(table)
    assert (player.tests, player.session.updates_used) == (1, 0)
    for where in [{"x0": {"equals": 0}}, {"x1": {"in": [0, 2]}}, {"x0": {"in": [0, 1]}, "x1": {"equals": 3}}]:
        answer = player.ask({"type": "predicate", "where": where})
        assert (answer.source, answer.measured, answer.tested) == ("estimate", None, None)
    assert player.tests == 1
    assert player.ask({"type": "predicate", "where": {"x2": {"equals": 0}}}).tested is not None
    assert player.tests == 2


def test_without_updates_what_is_certain_is_answered_and_nothing_else() -> None:
    """Would catch a test that no update is left to pay for, and an answer without a bound."""
    rng = np.random.default_rng(5)
    table = np.zeros(SIZES, np.int64)
    table[0, 0, 0] = table[1, 1, 1] = table[2, 3, 0] = RECORDS // 3 + 1
    player = Player(table, False, "single", rng, max_updates=1)
    near = {"type": "predicate", "where": {"x0": {"equals": 0}}}
    player.ask(near)
    assert player.session.updates_used == 0
    hit = {"type": "marginal", "attributes": ["x0", "x1"]}
    assert player.ask(hit).source == "measurement"
    assert player.session.updates_used == 1
    again = player.ask({"type": "predicate", "where": {"x0": {"in": [1, 2]}}})
    assert again.source == "estimate"
    player.check({"type": "predicate", "where": {"x0": {"in": [1, 2]}}}, again)
    with pytest.raises(UpdatesExhausted):
        player.ask({"type": "predicate", "where": {"x2": {"equals": 0}}})


def test_a_forfeit_uses_an_update_and_the_cells_are_tested_again() -> None:
    """Nobody was told what came of it."""
    player = Player(np.full(SIZES, 800), True, "single", np.random.default_rng(3), max_updates=3)
    query = player.query({"type": "predicate", "where": {"x2": {"equals": 0}}})
    assert isinstance(player.session.consider(query), MarginalTest)
    left = player.session.state.left.renyi
    player.session.forfeit(Amounts(player.contract.cost_per_update))
    assert player.session.updates_used == 1
    assert left - player.session.state.left.renyi == player.contract.cost_per_update
    assert isinstance(player.session.consider(query), MarginalTest)


def test_what_a_contract_session_does_not_take() -> None:
    """Would catch bounds of weights that were rounded without a word, tests of more cells than are kept, and a width
    that a session cannot promise."""
    player = Player(np.full(SIZES, 800), True, "single", np.random.default_rng(3))
    with pytest.raises(InvalidQuery):
        player.ask({"type": "product", "weights": {"x0": [1 / 3, 0.0, 1.0]}})
    with pytest.raises(PlanInfeasible):
        player.session.consider(player.query({"type": "marginal", "attributes": ["x0"]}), target=Target(within=3.0))
    spec = {**SPEC, "attributes": [{"name": f"x{k}", "size": 300} for k in range(2)]}
    dataset = PublicDataset(parse_spec(spec), None)
    request = parse_request(ASKED)
    session = Session(Opening(dataset, request, make_plan(dataset, request), evidence=Pins((), ())))
    with pytest.raises(InvalidQuery):
        session.consider(parse_query({"type": "marginal", "attributes": ["x0", "x1"]}).compiled(dataset.space))


def test_the_state_is_that_of_the_records() -> None:
    """A session that is told the records alone answers as the one that made them: same certificates, same drift.
    Would catch what is learnt of a test or a measurement in one of the two ways only."""
    rng = np.random.default_rng(11)
    player = Player(uneven(rng), True, "race", rng)
    other = Session(player.opening)
    for measured in player.pinned:
        other.pin(measured)
    for _ in range(20):
        each = words(rng)
        asked = player.session.queries_asked
        answer = player.ask(each)
        if player.session.queries_asked > asked:
            other.record(player.query(each), answer, read=True)
    assert player.session.updates_used == other.updates_used > 0
    assert player.session.queries_asked == other.queries_asked
    for _ in range(20):
        query = player.query(words(rng))
        first, second = player.session.consider(query), other.consider(query)
        assert type(first) is type(second)
        if isinstance(first, Answer) and isinstance(second, Answer):
            assert np.abs(first.units - second.units).max() <= 1 << 10  # a thousandth of a count
            assert first.source == second.source
        elif isinstance(first, MarginalTest) and isinstance(second, MarginalTest):
            assert first.purchase == second.purchase
            assert np.abs(first.counts - second.counts).max() <= 1


def test_scales_have_few_digits() -> None:
    """What is drawn is what is written: a decimal of the record."""
    contract = terms()
    assert Fraction(Decimal(str(float(contract.measured_scale)))) == pytest.approx(float(contract.measured_scale))
    digits = Decimal(contract.measured_scale.numerator) / contract.measured_scale.denominator
    assert Fraction(digits) == contract.measured_scale
