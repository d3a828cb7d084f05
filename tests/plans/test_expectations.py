"""What plans foretell of sessions on tables, against what sessions then err: made-up tables, noise from seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.curator.dataset import Bought, PublicDataset
from app.curator.expectation import Expectation, told
from app.curator.mechanisms.protocol import Answer, Buy
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import SessionRequest, parse_request
from app.curator.session import Session
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.measurements.strategy import exact_values
from app.privacy.ledger import NOTHING
from app.services.measuring import measured_all
from app.spaces.queries.registry import parse_query
from app.spaces.records import RecordsTensor
from tests.kit.noise import Seeded

RECORDS, SEEDS = 10_000, 20
ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "sex", "values": ["f", "m"]},
    {"name": "work", "size": 8},
    {"name": "age", "lower": 15, "upper": 94, "grid": 1, "bins": 16},
    {"name": "income", "lower": 0, "upper": 99_900, "grid": 100, "bins": 20},
]
ASKED: dict[str, list[dict[str, Any]]] = {
    "one_attribute": [{"type": "predicate", "where": {"work": {"in": [0, 1, 2, 3]}}}],
    "two_attributes": [{"type": "predicate", "where": {"work": {"in": [0, 1, 2, 3]}, "age": {"lt": 55}}}],
    "cell": [{"type": "marginal", "attributes": ["sex", "work"]}],
    "share": [{"type": "share", "of": {"sex": "f"}}],
    "mean": [{"type": "mean", "of": "income"}],
    "sum": [{"type": "sum", "of": "age"}],
    "median": [{"type": "quantile", "of": "income", "q": 0.5}],
}


@cache
def columns(shape: str) -> list[np.ndarray]:
    """Codes of the records: all values alike, or skewed ones that depend on one another."""
    rng = np.random.default_rng(1)
    if shape == "even":
        return [rng.integers(0, size, RECORDS).astype(np.uint16) for size in (2, 8, 80, 1000)]
    work = np.minimum(rng.geometric(0.4, RECORDS) - 1, 7)
    age = np.clip(np.rint(rng.normal(28, 14, RECORDS) + 2 * work), 0, 79)
    income = np.clip(np.rint(rng.normal(350, 220, RECORDS) + 5 * age * (work < 3)), 0, 999)
    sex = rng.random(RECORDS) < 0.3 + 0.05 * work
    return [column.astype(np.uint16) for column in (sex, work, age, income)]


def truth(shape: str, words: dict[str, Any]) -> np.ndarray:
    """The exact answer: plain loops over the records."""
    sex, work, age, income = (column.astype(np.int64) for column in columns(shape))
    numbers = {"age": 15 + age, "income": 100 * income}
    match words["type"]:
        case "predicate":
            return np.array([((work < 4) & ((age + 15 < 55) if "age" in words["where"] else True)).sum()])
        case "marginal":
            return np.array([((sex == s) & (work == w)).sum() for s in range(2) for w in range(8)])
        case "share":
            return np.array([(sex == 0).mean()])
        case "mean":
            return np.array([numbers[words["of"]].mean()])
        case "sum":
            return np.array([numbers[words["of"]].sum()])
    return np.array([np.sort(numbers[words["of"]])[(RECORDS + 1) // 2 - 1]])


def table(attributes: Sequence[dict[str, Any]] = ATTRIBUTES, *, public: bool = True, **more: Any) -> PublicDataset:
    words = {"name": "t", "kind": "table", "attributes": list(attributes), "records_public": public}
    budget = {"epsilon": 1.0, "delta": 1e-6}
    return PublicDataset(parse_spec({**words, "budget": budget, **more}), RECORDS if public else None)


def request(**words: Any) -> SessionRequest:
    asked = {"dataset": "t", "mechanism": {"construction": "evidence"}, "epsilon": 0.5}
    return parse_request({**asked, **{name: word for name, word in words.items() if word is not None}})


def expectation(dataset: PublicDataset, asked: SessionRequest) -> Expectation:
    found = make_plan(dataset, asked).expectation(dataset, asked)
    assert found is not None
    return found


class Playing:
    """A session on records, with noise from a seed; what it measures at its opening is measured."""

    def __init__(
        self,
        dataset: PublicDataset,
        asked: SessionRequest,
        data: RecordsTensor,
        seed: int,
        before: Sequence[Answer] = (),
    ) -> None:
        plan = make_plan(dataset, asked)
        self.session = Session(Opening(dataset, asked, plan, evidence=Pins((), ())))
        self._space, self._data, self._noise = dataset.space, data, Seeded(np.random.default_rng(seed))
        for answer in before:
            assert answer.measured is not None
            self.session.pin(replace(answer.measured, price=NOTHING))
        for made in measured_all(self._noise, self._space, data, self.session.purchases()):
            self.session.pin(made)

    def expected(self) -> dict[str, Any]:
        """What the reply to its opening would foretell, before it is asked anything."""
        return self.session.expected(())

    def ask(self, words: dict[str, Any]) -> tuple[Answer, np.ndarray]:
        query = parse_query(words).compiled(self._space)
        due = self.session.consider(query)
        if isinstance(due, Buy):
            (exact,) = exact_values([due.purchase.strategy], self._space, self._data)
            due = self.session.apply(query, due, due.purchase.strategy.released(exact, due.purchase.noise, self._noise))
        assert isinstance(due, Answer)
        self.session.record(query, due)
        return due, np.array(self.session.values(query, due.units), dtype=np.float64)


@pytest.mark.statistical
@pytest.mark.parametrize("shape", ["even", "skewed"])
@pytest.mark.parametrize(("public", "max_queries"), [(True, 15), (False, None)])
def test_first_answers_err_as_is_foretold(shape: str, public: bool, max_queries: int | None) -> None:
    """Twenty sessions a question, each asked it first: their root mean square error is within a factor of two of what
    the plan foretold, of a median of three. With a public number of records and with ten thousand assumed, as there
    are. Catches errors of another purchase than the session makes, another unit, a number of records left out, and an
    error of a mean or a median that leaves out what its values are spread over."""
    dataset, asked = table(public=public), request(max_queries=max_queries)
    data = RecordsTensor(columns(shape), dataset.space.shape)
    found = expectation(dataset, asked)
    assert found.records == RECORDS
    for kind, questions in ASKED.items():
        for words in questions:
            told = found.errors[kind]
            error = told[words["of"]] if isinstance(told, dict) else told
            exact = truth(shape, words)
            off = [Playing(dataset, asked, data, seed).ask(words)[1] - exact for seed in range(SEEDS)]
            made = float(np.sqrt(np.mean(np.square(off))))
            factor = 3 if kind == "median" else 2
            assert error is not None
            assert error / factor < made < error * factor, (kind, error, made)


@pytest.mark.statistical
def test_tenth_answers_err_as_is_foretold() -> None:
    """Of a number of questions that nobody said: counts under conditions on ten attributes, one after the other. Would
    catch the first question's error told of all, and shares of another series than the session's."""
    size, number = 6, 12
    dataset, asked = table([{"name": f"a{n}", "size": size} for n in range(number)]), request()
    rng = np.random.default_rng(2)
    codes = [rng.integers(0, size, RECORDS).astype(np.uint16) for _ in range(number)]
    data, found = RecordsTensor(codes, dataset.space.shape), expectation(dataset, asked)
    assert found.tenth is not None
    first, tenth = found.errors["one_attribute"], found.tenth["one_attribute"]
    assert isinstance(first, float)
    assert isinstance(tenth, float)
    assert tenth > 2 * first
    off: list[list[float]] = []
    for seed in range(SEEDS):
        playing = Playing(dataset, asked, data, seed)
        answers = [playing.ask({"type": "predicate", "where": {f"a{n}": {"in": [0, 1, 2]}}})[1] for n in range(10)]
        off.append([float(answer[0]) - int((codes[n] < 3).sum()) for n, answer in enumerate(answers)])
    made = np.sqrt(np.mean(np.square(off), axis=0))
    assert first / 2 < made[0] < 2 * first
    assert tenth / 2 < made[9] < 2 * tenth


@pytest.mark.unit
def test_groups_err_as_the_words_say() -> None:
    """Means of g equal groups are bought as that of all is, and each is divided by a part of the records: the errors of
    answers are about g times that which is foretold of all. Would catch the sentence about groups, were it wrong."""
    dataset, asked = table(), request(max_queries=15)
    data = RecordsTensor(columns("even"), dataset.space.shape)
    told = expectation(dataset, asked).errors["mean"]
    assert isinstance(told, dict)
    answer, _ = Playing(dataset, asked, data, 0).ask({"type": "mean", "of": "income", "group_by": ["work"]})
    assert answer.accuracy is not None
    assert told["income"] is not None
    assert answer.accuracy.standard_errors.mean() == pytest.approx(8 * told["income"], rel=0.3)


@pytest.mark.unit
def test_the_number_of_records_is_the_one_that_is_known() -> None:
    """A public one, one that was bought, or else one that is assumed and said to be. Errors of what is divided by it
    fall with it, those of counts do not. Would catch a number that nobody knows told as if somebody did."""
    all_told: dict[str, Expectation] = {}
    for name, dataset in {
        "public": table(),
        "bought": table(public=False).with_bought("mass", Bought(40_000.0, 10.0)),
        "assumed": table(public=False),
    }.items():
        all_told[name] = expectation(dataset, request(max_queries=15))
    assert [all_told[name].records for name in all_told] == [RECORDS, 40_000.0, RECORDS]
    assert ["not public" in " ".join(all_told[name].words) for name in all_told] == [False, False, True]
    few, many = all_told["assumed"].errors, all_told["bought"].errors
    assert few["cell"] == many["cell"]
    for kind in ("mean", "share"):
        one, other = ((each["age"] if isinstance(each, dict) else each) for each in (few[kind], many[kind]))
        assert one == pytest.approx(4 * other, rel=0.2)  # type: ignore[operator]


@pytest.mark.unit
@pytest.mark.parametrize("more", [{"within": 50.0}, {"contract": True, "max_queries": 100}])
def test_only_counts_are_foretold_where_an_accuracy_or_a_contract_is_asked_for(more: dict[str, Any]) -> None:
    """What such a session answers of numbers is told by the question. Would catch errors of means that it never has."""
    found = expectation(table(), request(**more))
    assert list(found.errors) == ["one_attribute", "two_attributes", "cell"]
    assert found.tenth is None
    if "within" in more:
        assert found.errors["cell"] == pytest.approx(50 / 1.96, rel=1e-3)


@pytest.mark.unit
def test_a_plan_pays_for_as_many_counts_as_it_says() -> None:
    """A session that asks for an accuracy answers as many counts as its plan named, each of another attribute, all of
    them measured and within what was asked for; then hardly anything is left. Would catch a number that the budget
    does not pay for, and one that leaves much of it."""
    attributes = [{"name": f"a{n}", "size": 4} for n in range(40)]
    dataset, asked = table(attributes, public=False), request(within=60.0, max_queries=100)
    paid = make_plan(dataset, asked).paid(dataset, asked)
    assert paid is not None
    assert 5 < paid.counts < 40
    assert not paid.whole_table
    data = RecordsTensor([np.zeros(RECORDS, np.uint16)] * 40, dataset.space.shape)
    playing = Playing(dataset, asked, data, 0)
    for n in range(paid.counts):
        answer, _ = playing.ask({"type": "predicate", "where": {f"a{n}": 1}})
        assert answer.source == "measurement"
        assert answer.accuracy is not None
        assert float((answer.accuracy.highs - answer.accuracy.lows).max()) <= 2 * 60.0
    left = playing.session.state.held  # type: ignore[attr-defined]
    assert left < 1.5 * float(dataset.share(asked.epsilon)) / (paid.counts + 1)


@pytest.mark.unit
@pytest.mark.parametrize(("cells", "whole"), [(4, True), (64, False)])
def test_a_whole_table_is_paid_for_where_a_plan_says_so(cells: int, whole: bool) -> None:
    """With as many questions as there are cells the session measures all of them at once, and every count is within
    what was asked for; or the plan says that it is not to be had, and how many counts are. Would catch a table that
    cannot be paid, or whose sums reach farther."""
    dataset = table([{"name": "a", "size": cells}, {"name": "b", "size": 2}], public=False)
    asked = request(within=60.0, max_queries=2 * cells)
    paid = make_plan(dataset, asked).paid(dataset, asked)
    assert paid is not None
    assert paid.whole_table is whole
    if not whole:
        assert make_plan(dataset, asked).expectation(dataset, asked) is None
        assert paid.counts < paid.cells
        return
    codes = np.random.default_rng(0).integers(0, cells, RECORDS).astype(np.uint16)
    playing = Playing(dataset, asked, RecordsTensor([codes, codes % 2], dataset.space.shape), 0)
    for words in ({"a": 0}, {"b": 1}, {"a": {"in": [0, 1, 3]}, "b": 0}):
        answer, _ = playing.ask({"type": "predicate", "where": words})
        assert answer.source == "estimate"
        assert answer.accuracy is not None
        assert float(answer.accuracy.highs[0] - answer.accuracy.lows[0]) <= 2 * 60.0


def _attributes() -> st.SearchStrategy[dict[str, Any]]:
    missing = st.sampled_from([{}, {"missing": True}])
    steps = st.integers(1, 3000)
    numbers = st.builds(
        lambda low, count, step, bins, more: {
            "lower": low,
            "upper": low + count * step,
            "grid": step,
            **({"bins": min(bins, count)} if bins else {}),
            **more,
        },
        st.integers(-(10**6), 10**6),
        steps,
        st.sampled_from([1, 5, 0.5, 1000]),
        st.integers(0, 9),
        missing,
    )
    codes = st.builds(lambda size, more: {"size": size, **more}, st.integers(1, 300), missing)
    dates = st.just({"dates": ["2020-01-01", "2025-12-31"], "by": "month"})
    return st.one_of(numbers, codes, dates)


@pytest.mark.unit
@settings(max_examples=30)
@given(
    attributes=st.lists(_attributes(), min_size=1, max_size=4),
    records=st.sampled_from([None, 0, 1, 7, 10**6]),
    epsilon=st.sampled_from([1e-6, 0.01, 0.5, 1.0]),
    max_queries=st.sampled_from([None, 1, 3, 15, 10_000]),
    more=st.sampled_from([{}, {}, {"within": 1.0}, {"within": 1e-9}, {"within": 1e6}, {"contract": True}]),
    whole=st.booleans(),
    unit=st.sampled_from([{}, {"unit": {"column": "who", "max_records": 7}}, {"capacity": 2**40}]),
)
@example([{"size": 1}], None, 0.5, None, {}, False, {})
@example([{"lower": 0, "upper": 2**20 - 1, "grid": 1}], None, 0.5, 100, {}, False, {"capacity": 2**40})
def test_every_plan_foretells_numbers_or_that_they_are_not_known(
    attributes: list[dict[str, Any]],
    records: int | None,
    epsilon: float,
    max_queries: int | None,
    more: dict[str, Any],
    whole: bool,
    unit: dict[str, Any],
) -> None:
    """Whatever is declared and asked for: each error is a positive number or null, by the attributes of numbers, and no
    plan fails by what is said of it. Would catch an overflow, a division by nothing, and a kind of attribute that has
    no mean."""
    named = [{"name": f"a{n}", **each} for n, each in enumerate(attributes)]
    budget = {"epsilon": 1.0, "delta": 1e-6}
    words = {"name": "t", "kind": "table", "attributes": named, "records_public": records is not None}
    dataset = PublicDataset(parse_spec({**words, "budget": budget, **unit}), records)
    if whole and "contract" not in more:
        more = {**more, "mechanism": {"construction": "histogram"}}
    try:
        asked = request(epsilon=epsilon, max_queries=max_queries, **more)
        plan = make_plan(dataset, asked)
    except CuratorError:
        return
    found = plan.expectation(dataset, asked)
    said = orjson.loads(orjson.dumps(told(found, plan.paid(dataset, asked))))
    if said["questions_within"] is not None:
        assert said["questions_within"]["counts"] >= 0
    if found is None:
        return
    numbers = {each["name"] for each in named if "grid" in each}
    for errors in (found.errors, found.tenth or {}):
        for kind, error in errors.items():
            if kind in ("mean", "sum", "median"):
                assert isinstance(error, dict)
                assert set(error) == numbers
            each = list(error.values()) if isinstance(error, dict) else [error]
            assert all(value is None or 0 <= value < math.inf for value in each)


@pytest.mark.unit
def test_what_was_measured_before_is_taken_in() -> None:
    """An opened session foretells errors by what it measured and others had: for the number of records that was
    measured, and from a mean that is known already. Would catch errors of an untouched table."""
    dataset, asked = table(public=False), request(max_queries=4)
    data = RecordsTensor(columns("even"), dataset.space.shape)
    first = Playing(dataset, asked, data, 0)
    fresh = first.expected()
    answers = [first.ask(words)[0] for words in ({"type": "mean", "of": "income"}, *ASKED["cell"])]
    after = Playing(dataset, asked, data, 1, before=answers).expected()
    planned = expectation(dataset, asked)
    assert planned.records == RECORDS
    for said, near in ((fresh, 0.1), (after, 0.02)):
        assert said["expectation"]["records"] == pytest.approx(RECORDS, rel=near)
        assert said["expectation"]["records"] != RECORDS
    means = [said["expected_standard_errors"]["mean"]["income"] for said in (fresh, after)]
    assert means[1] < means[0]
    free = request(epsilon=0)
    assert make_plan(dataset, free).expectation(dataset, free) is None
    nothing = Playing(dataset, free, data, 2).expected()["expected_standard_errors"]
    known = Playing(dataset, free, data, 2, before=answers).expected()["expected_standard_errors"]
    assert nothing["cell"] is known["median"]["income"] is nothing["mean"]["income"] is None
    assert known["mean"]["income"] == pytest.approx(means[1], rel=0.5)
