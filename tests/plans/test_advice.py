"""Refusals of plans: everything that they offer is tried, over constructions and spaces."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constructions.median import MOST_CELLS, MOST_COUNTS, Median
from app.curator import advice
from app.curator.calibration import Calibrator
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.privacy.exact import exact_scale

pytestmark = pytest.mark.unit

Words = dict[str, Any]


def dataset(declared: Words, records: float | None, epsilon: float = 1.0, **state: Any) -> PublicDataset:
    words = {"name": "d", "budget": {"epsilon": epsilon, "delta": 1e-6}, "records_public": records is not None}
    return PublicDataset(parse_spec({**words, **declared}), records, **state)


def table(*sizes: int) -> Words:
    return {"kind": "table", "attributes": [{"name": f"a{i}", "size": size} for i, size in enumerate(sizes)]}


def planned(data: PublicDataset, words: Words) -> Plan:
    """As a request that came as JSON."""
    return make_plan(data, parse_request(json.loads(json.dumps({"dataset": "d", **words}))))


def refusal(data: PublicDataset, words: Words) -> PlanInfeasible | None:
    try:
        planned(data, words)
    except PlanInfeasible as refused:
        return refused
    return None


def tried(data: PublicDataset, words: Words, name: str, value: float) -> Plan:
    """The plan after one change that a refusal offers, exactly as offered."""
    if name == "records":
        return planned(PublicDataset(data.spec, value), words)
    if name == "cells":
        spec = data.spec.model_dump(mode="json", exclude_none=True)
        smaller = dataset(table(int(value)), data.records, float(spec["budget"]["epsilon"]))
        return planned(smaller, words)
    return planned(data, {**words, name: value})


def hold_to_its_word(data: PublicDataset, words: Words, refused: PlanInfeasible) -> int:
    """Try everything that a refusal offers; how much that was."""
    count = 0
    for name, value in refused.extra.items():
        if value is None:
            continue
        plan = tried(data, words, name, value)
        assert plan.guaranteed is (words.get("max_updates") is None), (name, value)
        assert plan.error_bound < (value if name == "records" else data.mass_bound), (name, value)
        count += 1
    effort = {**words, "max_updates": words.get("max_updates") or 5}
    if "use the sampled form" in refused.detail:
        planned(data, {**effort, "mechanism": {"construction": "median", "sampled": True}})
        count += 1
    instead = re.search("use (mw|fk)", refused.detail)
    if instead:
        planned(data, {**effort, "mechanism": {"construction": instead[1]}, "calibration": "rdp"})
        count += 1
    if "use rdp" in refused.detail:
        planned(data, {**words, "calibration": "rdp"})
        count += 1
    if "use single" in refused.detail:
        planned(data, {**effort, "release": "single"})
        count += 1
    most = re.search(r"ask at most ([\d,]+) queries", refused.detail)
    if most:
        planned(data, {**effort, "max_queries": int(most[1].replace(",", ""))})
        count += 1
    buyer = dict(words["mechanism"]) if "buy" in refused.detail else None
    if buyer is not None:
        if "of mw" in refused.detail or "of another mechanism" in refused.detail:
            buyer = {"construction": "mw"}
        elif "ball_p" in refused.detail:
            buyer = {**buyer, "ball_p": buyer.get("ball_p", "auto")}
        bought = planned(data, {**effort, "mechanism": buyer, "calibration": "rdp"}).purchase
        assert bought is not None, refused.detail
        # Once that is there, what was missing is not what keeps a plan from being made.
        after = refusal(
            data.with_bought(bought.fact, Bought(1000.0, 5.0)), {**words, "mechanism": buyer | words["mechanism"]}
        )
        assert after is None or "buy" not in after.detail, after.detail
        count += 1
    return count


DENSE: list[Words] = [
    {"construction": "mw"},
    {"construction": "fk"},
    {"construction": "md", "potential": "entropy"},
    {"construction": "md", "potential": "lp"},
    {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": "auto"},
    {"construction": "md", "potential": "group", "axis": "rows"},
    {"construction": "md", "potential": "schatten", "step": "paper"},
    {"construction": "median"},
    {"construction": "median", "weights": "nonnegative"},
    {"construction": "median", "sampled": True},
    {"construction": "smw", "sparsity": 2},
]
SPACES: list[Words] = [
    table(2),
    table(3),
    table(5),
    table(2, 2),
    table(16, 16),
    table(90, 90),
    {"kind": "graph", "nodes": 3},
    {"kind": "graph", "nodes": 40, "directed": True},
    {"kind": "graph", "nodes": 120},
    {"kind": "bipartite", "left": 2, "right": 2},
    {"kind": "bipartite", "left": 30, "right": 50},
    {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 5},
    {"kind": "matrix", "rows": 20, "columns": 30, "lower": -1, "upper": 1},
    {"kind": "multiset"},
]


@pytest.mark.slow
@settings(max_examples=120)
@given(
    st.sampled_from(SPACES),
    st.sampled_from(DENSE),
    st.sampled_from([None, 1, 300, 2000, 4000, 10**5]),
    st.sampled_from([1.0, 0.3, 0.02]),
    st.sampled_from([2, 1000, 10**6]),
    st.sampled_from([0.05, 0.5, 1e-6]),
    st.sampled_from([None, None, 5, 3000]),
    st.sampled_from(["rdp", "race", "jt2012"]),
)
def test_every_remedy_does_what_it_says(
    declared: Words,
    mechanism: Words,
    records: int | None,
    epsilon: float,
    queries: int,
    beta: float,
    updates: int | None,
    how: str,
) -> None:
    """Each figure of a refusal makes the plan by itself, as it was given, with an error below the mass; the mechanisms,
    calibrations and purchases that its words name are there. Would catch advice that looks at the noise alone and not
    at whether the hypothesis can be held, and advice that is refused in its turn."""
    if records is not None and declared["kind"] in ("graph", "bipartite", "matrix"):
        records = min(records, 4)  # a small universe does not hold more
    data = dataset(declared, None if declared.get("lower") == -1 else records)
    words: Words = {"mechanism": mechanism, "epsilon": epsilon, "max_queries": queries, "beta": beta}
    words |= {"release": "race"} if how == "race" else {"calibration": how}
    if updates is not None:
        words["max_updates"] = updates
    refused = refusal(data, words)
    if refused is not None:
        hold_to_its_word(data, words, refused)


#: A graph of 64 nodes asked for the exact median mechanism; tables where one thing or another is in the way.
TOLD = [
    (table(4), 400, {"max_queries": 1000}, {"records"}),
    (table(4), 1200, {"max_queries": 1000}, {"max_queries", "records"}),
    (table(12), 4000, {"max_queries": 1000}, {"cells"}),
    (table(12), 4000, {"max_queries": 1000, "max_updates": 5}, {"cells"}),
    (table(4), 2000, {"max_queries": 1000, "max_updates": 5}, {"cells", "epsilon", "max_updates", "records"}),
    (table(4), 10**6, {"max_queries": 1000, "max_updates": 5}, {"epsilon", "records"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "records", "more", "offered"), TOLD)
def test_what_a_set_too_large_is_offered(declared: Words, records: int, more: Words, offered: set[str]) -> None:
    """Numbers for epsilon, queries, updates, records or cells, each of which fits. Would catch a refusal with none."""
    data = dataset(declared, records)
    words = {"mechanism": {"construction": "median"}, "epsilon": 1.0, **more}
    refused = refusal(data, words)
    assert refused is not None
    found = {name: value for name, value in refused.extra.items() if value is not None}
    assert offered <= set(found)
    assert hold_to_its_word(data, words, refused) >= len(found)
    for name in ("max_queries", "max_updates", "records", "cells"):
        assert name not in found or f"{found[name]:,}" in refused.detail


def test_a_set_that_never_fits() -> None:
    """A graph of 64 nodes has 2,016 pairs: no queries, beta or records make its set small enough. Would catch the
    records, queries and beta that were named all the same, and a form that would fit left unnamed."""
    data = dataset({"kind": "graph", "nodes": 64}, 1500)
    words = {"mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 1000}
    refused = refusal(data, words)
    assert refused is not None
    assert re.search(rf"2\^\d+.* databases .* over 2,016 cells.*{MOST_COUNTS:,}.*at most \d+ cells", refused.detail)
    assert [refused.extra[name] for name in ("epsilon", "max_queries", "beta", "records")] == [None] * 4
    assert "use the sampled form with max_updates" in refused.detail
    assert hold_to_its_word(data, words, refused)
    larger = refusal(dataset({"kind": "graph", "nodes": 100}, 1500), words)
    assert larger is not None
    assert math.comb(100, 2) > MOST_CELLS
    assert "use mw" in larger.detail


def test_a_larger_error_may_make_the_set_fit() -> None:
    """Over 4 cells 20,000 records make too large a set at the least number of updates that the bound needs; with more
    updates, and so more noise, the set fits, and the plan is still a guaranteed one below the mass."""
    data = dataset(table(4), 20_000)
    plan = planned(data, {"mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 1000})
    assert plan.guaranteed
    assert plan.update_bound is not None
    assert plan.update_bound <= plan.max_updates
    assert plan.error_bound < 20_000
    construction = Median(data.space, data.facts, "projection", plan.progress, 1000)
    assert construction.infeasible is None
    assert 2 ** construction.size(plan.progress) * 4 <= MOST_COUNTS


def test_more_records_than_there_are_cells_are_not_offered() -> None:
    """Would catch the advice to bring 6,670 edges to a graph that has room for 2,016."""
    data = dataset({"kind": "graph", "nodes": 64}, 300)
    refused = refusal(data, {"mechanism": {"construction": "mw"}, "epsilon": 1.0, "max_queries": 1000})
    assert refused is not None
    offered = refused.extra["records"]
    assert offered is None or offered <= 2016


@pytest.mark.parametrize(
    ("state", "epsilon", "queries", "cause"),
    [
        ({}, 100.0, 10, "at the data set's epsilon"),
        ({}, 45.0, 10**9, "so many queries"),
        ({"race_sessions": 10**6}, 40.0, 1000, "1,000,000 sessions with races"),
    ],
)
def test_why_a_race_cannot_be_paid_for(state: Words, epsilon: float, queries: int, cause: str) -> None:
    """The cause that is told is the one: without it there is a plan. Would catch sessions blamed where none were."""
    data = dataset(table(8), 10**6, epsilon, **state)
    words = {
        "mechanism": {"construction": "mw"},
        "epsilon": 1.0,
        "max_queries": queries,
        "max_updates": 5,
        "release": "race",
    }
    refused = refusal(data, words)
    assert refused is not None
    assert cause in refused.detail
    assert "session" not in refused.detail or data.race_sessions
    assert hold_to_its_word(data, words, refused) >= 1
    if "at most" in refused.detail:
        fresh = PublicDataset(data.spec, data.records)
        assert planned(fresh if state else data, {**words, "max_queries": 1000}).race is not None


MATRIX = {"kind": "matrix", "rows": 3, "columns": 3, "lower": 0, "upper": 5}
PAPER = {"construction": "md", "potential": "lp", "p": 1.5, "step": "paper"}


@pytest.mark.parametrize(
    ("declared", "records", "changes", "cause"),
    [
        (table(4), 10**6, {"max_updates": 5}, "whole epsilon, 1.0, in one session; or use rdp, which has a plan"),
        (table(4), 10**6, {"epsilon": 1.0, "max_updates": 2001}, "2,000 updates; use rdp"),
        (table(4), None, {"max_updates": 5}, "declare the records public, or use rdp"),
        (MATRIX, None, {"max_updates": 5}, "nothing to buy the mass with: use rdp"),
        (table(4), 10**6, {"max_updates": 5, "mechanism": PAPER}, "nothing to buy the lp:1.5 with: use rdp"),
        (table(4), 10**6, {"max_updates": 5000}, "2,000 updates; use rdp"),
        (table(4), 10**6, {"mechanism": {"construction": "mw", "step": "full"}}, "give max_updates"),
        (table(4), 10, {}, "with rdp: no number of updates keeps the error below the whole mass: this would do:"),
        (table(4), 10**6, {"epsilon": 1.0}, "up to 2,000, where exact calibration ends"),
    ],
)
def test_a_doomed_exact_session_is_refused_before_its_program_runs(
    monkeypatch: pytest.MonkeyPatch, declared: Words, records: float | None, changes: Words, cause: str
) -> None:
    """Would catch seconds of work for a session that cannot be: its program has no say in why, nor in what would do
    instead. That of a single update, which takes a tenth of a second, may be asked."""
    programs: list[int] = []

    def counted(*arguments: Any) -> Decimal:
        programs.append(arguments[2])
        return exact_scale(*arguments)

    monkeypatch.setattr("app.curator.calibration._exact_scale", counted)
    data = dataset(declared, records)
    words = {"mechanism": {"construction": "mw"}, "epsilon": 0.5, "max_queries": 10, "calibration": "exact", **changes}
    refused = refusal(data, words)
    assert refused is not None
    assert cause in refused.detail
    assert set(programs) <= ({1} if words["epsilon"] == 1.0 else set())
    hold_to_its_word(data, words, refused)


def test_an_exact_session_that_takes_too_long_is_told_how_many_updates_do_not() -> None:
    """Would catch a limit of work that sends the analyst from one refusal to the next."""
    data = dataset(table(4), 10**6, 1000)
    words = {"mechanism": {"construction": "mw"}, "epsilon": 1000, "max_queries": 10, "calibration": "exact"}
    refused = refusal(data, {**words, "max_updates": 2000})
    assert refused is not None
    found = re.search(r"at most ([\d,]+), or use rdp", refused.detail)
    assert found is not None
    updates = int(found[1].replace(",", ""))
    assert updates < 2000
    request = parse_request({"dataset": "d", **words})
    Calibrator(data, request, data.budget.total).check_program(updates)


def test_untried_advice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The net above is cut: changes that are believed and not tried. Some of them must fail when tried."""
    least_change = advice._least_change

    def believing(adjust: Any, most: float, promising: Any, works: Any) -> Any:
        return least_change(adjust, most, lambda change: True, lambda change: True)

    monkeypatch.setattr(advice, "_least_change", believing)
    data = dataset(table(12), 300)
    words = {"mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 1000}
    refused = refusal(data, words)
    assert refused is not None
    with pytest.raises(CuratorError):
        hold_to_its_word(data, words, refused)
