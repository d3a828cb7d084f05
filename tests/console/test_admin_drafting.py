"""A declaration as a form and back; what was guessed stays told until it is changed; the last hour's samples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.console.budgets import Course
from app.http.console.drafting import DraftForm, amber, fits, guesses_of, number, written
from app.http.console.gate import Form
from app.http.console.pages.home import _idle
from app.http.console.pages.operation import CHARTS, _drawn
from app.http.metrics import Levels, Metrics
from app.settings import Settings

pytestmark = pytest.mark.unit

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
_WHOLE = st.integers(-(10**6), 10**6)
_SHARED = st.fixed_dictionaries(
    {}, optional={"missing": st.just(True), "outside": st.sampled_from(["drop", "clamp", "refuse"])}
)
_KINDS = st.one_of(
    st.fixed_dictionaries(
        {"lower": _WHOLE, "upper": _WHOLE | st.floats(-1e6, 1e6)},
        optional={"grid": st.sampled_from([1, 0.1, 0.25]), "bins": st.integers(1, 50), "role": st.just("weight")},
    ),
    st.fixed_dictionaries({"size": st.integers(1, 10**6)}),
    st.fixed_dictionaries({"values": st.lists(_NAMES, min_size=1, max_size=4, unique=True)}),
    st.fixed_dictionaries({"values": st.lists(_WHOLE, min_size=1, max_size=4, unique=True)}),
    st.fixed_dictionaries({"values": st.lists(st.text(max_size=4), min_size=1, max_size=4)}),
    st.fixed_dictionaries({"dates": st.just(["2020-01-01", "2020-12-31"])}, optional={"by": st.just("month")}),
    st.fixed_dictionaries({"levels": st.just({"a": ["b", "c"]})}),
)
_ATTRIBUTES = st.builds(lambda name, kind, shared: {"name": name, **kind, **shared}, _NAMES, _KINDS, _SHARED)
_SPECS = st.builds(
    lambda attributes, rest: {
        "name": "survey",
        "kind": "table",
        "attributes": attributes,
        "budget": {"epsilon": 1.5, "delta": 1e-9},
        **rest,
    },
    st.lists(_ATTRIBUTES, min_size=1, max_size=4, unique_by=lambda each: each["name"]),
    st.fixed_dictionaries(
        {},
        optional={
            "access": st.just("granted"),
            "records_public": st.just(True),
            "description": _NAMES,
            "unit": st.just({"column": "person", "max_records": 3}),
            "null_values": st.just(["NA", "-"]),
            "zeros": st.just([{"age": [1]}]),
        },
    ),
)


def _sent(draft: DraftForm) -> Form:
    """What a browser sends of the form: all fields that the page has, hidden ones too."""
    fields = [
        *draft.fields.items(),
        ("attributes", str(len(draft.attributes))),
        ("guessed_budget", draft.guessed_budget),
    ]
    for at, each in enumerate(draft.attributes):
        own = {"name": each.name, "type": each.type, "guessed": each.guessed, **each.fields}
        fields += [(f"a{at}.{name}", value) for name, value in own.items()]
    # A box that is not ticked is not sent.
    return Form([(name, value) for name, value in fields if value or not name.endswith(("missing", "records_public"))])


@given(_SPECS)
def test_a_form_says_the_declaration_that_it_was_made_of(spec: dict[str, Any]) -> None:
    """Catches a part of a declaration that is lost or changed on its way through the page."""
    assert fits(spec)
    draft = DraftForm.of(spec, {})
    assert DraftForm.read(_sent(draft)).spec() == spec


@given(_SPECS)
def test_what_was_guessed_is_amber_until_it_is_changed(spec: dict[str, Any]) -> None:
    """Catches an attribute that is no longer told to be guessed although nobody touched it, on the way through fields
    and through JSON, and one that still is although somebody did."""
    names = [each["name"] for each in spec["attributes"]]
    guesses = guesses_of(spec, names, budget=True)
    again = DraftForm.read(_sent(DraftForm.of(spec, guesses)))
    assert again.guesses == guesses
    assert all(each.amber for each in again.attributes)
    assert again.amber_budget
    assert amber(again.spec(), guesses) == len(names) + 1
    changed = [{**each, "outside": "drop", "missing": not each.get("missing")} for each in spec["attributes"]]
    assert amber({**spec, "attributes": changed, "budget": {"epsilon": 2, "delta": 1e-9}}, guesses) == 0
    for nothing in (None, [], "x", {"attributes": 3}):
        assert amber(nothing, guesses) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "graph"},
        {"attributes": [{"name": "a", "size": 2}] * 61},
        {"attributes": "none"},
        {"attributes": [{"name": "a\u200b", "size": 2}]},
        {"attributes": [3]},
        {"description": "two\nlines"},
        {"name": 3},
    ],
)
def test_what_fields_cannot_say_is_written_as_json(changed: dict[str, Any]) -> None:
    """Catches a letter that nobody sees, or an end of a line, which a field of a page would change."""
    assert not fits({"name": "n", "kind": "table", "attributes": [], **changed})
    assert "\u200b" not in written({"a": "\u200bä"})
    assert "ä" in written({"a": "\u200bä"})


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("1.5", 1.5), ("1e-9", 1e-9), ("", ""), ("ten", "ten")])
def test_numbers_as_they_are_typed(text: str, value: object) -> None:
    """Catches a text that becomes a number, or nothing, instead of being refused as what it is."""
    assert number(text) == value


def _stands(regime: str = "renyi") -> dict[str, Any]:
    return {"budget": "0.5", "epsilon": {"epsilon": 2.0, "regime": regime, "remaining_epsilon": 1.0}}


def _moved(kind: str, amount: str, pure: str | None = None, session: str | None = "s") -> dict[str, Any]:
    return {"kind": kind, "amount": amount, "pure": pure, "session": session, "recorded_at": "2026-03-01T10:00:00Z"}


def test_a_course_follows_the_ledger() -> None:
    """Worked by hand: of epsilon 2 at a limit of 0.5 an amount of 0.1 is 0.4. Catches a movement that is counted as
    another, and what a session gives back that stays held."""
    course = Course(_stands())
    for movement, spent, held in (
        (_moved("reserve", "0.25"), 0.0, 1.0),
        (_moved("purchase", "0.05"), 0.2, 0.8),
        (_moved("charge", "0.1"), 0.6, 0.4),
        (_moved("return", "0.05"), 0.6, 0.2),
        (_moved("forfeit", "0.05"), 0.8, 0.0),
        (_moved("forfeit", "0.1", session=None), 1.2, 0.0),
    ):
        course.add([movement])
        last = course.steps()[-1]
        assert (last.spent, last.held) == pytest.approx((spent, held))
    assert course.movements == 6


def test_a_course_of_pure_noise_is_in_epsilons() -> None:
    """Catches amounts at the ledger's order that are shown as epsilons."""
    course = Course(_stands("pure"))
    course.add([_moved("reserve", "0.25", "0.5"), _moved("charge", "0.1", "0.125")])
    assert (course.steps()[-1].spent, course.steps()[-1].held) == (0.125, 0.375)


def test_a_pace_needs_movements() -> None:
    """Catches a month that is foretold from next to nothing, and movements of long ago in the pace of today."""
    course = Course(_stands())
    course.add([_moved("charge", "0.01")] * 4)
    assert course.pace() is None
    course.add([_moved("charge", "0.01")] * 4)
    # They are of March: nothing was spent in the last thirty days.
    assert course.pace() == 0
    assert course.lasts_until() is None


def test_forgotten_sessions_are_told() -> None:
    """Catches a session that is told by when it was opened although it was asked since, and one that was never asked
    and is not told."""

    def session(owner: str, opened: int, asked: int | None) -> dict[str, Any]:
        ago = [
            None if days is None else (datetime.now(UTC) - timedelta(days, 60)).isoformat() for days in (opened, asked)
        ]
        held = {"dataset": "d", "reserved_epsilon": 0.39, "epsilon": 0.8}
        return {"owner": owner, "opened_at": ago[0], "asked_at": ago[1], **held}

    told = _idle([session("ann", 40, 12), session("ben", 40, 1), session("cleo", 8, None), session("dora", 2, None)])
    assert [each["words"] for each in told] == [
        "A session of ann on d holds 0.39 of 0.8, and was not asked for 12 days",
        "A session of cleo on d holds 0.39 of 0.8, and was not asked for 8 days",
    ]


def test_charts_are_of_the_metrics() -> None:
    """Counters, levels and means by hand over two samples. Catches a chart of a metric that is not there any more, and
    one that shows a total in the place of a rate."""
    metrics = Metrics()
    metrics.sample()
    metrics.answered("estimate", 30)
    metrics.group(2, 0.004)
    metrics.refused("rate")
    metrics.refused("connections")
    metrics.watch(lambda: Levels(5, 0, 7, 3 * 2**20, 2**30, 0), lambda: {"queued": 2}, lambda: 2**20)
    metrics.stop()
    known = {name for each in metrics.samples.all() for name in each.numbers}
    metrics._levels["waiting_requests"].set(5)
    metrics.sample()
    samples = metrics.samples.all()
    first, last = samples[0], samples[-1]
    object.__setattr__(last, "at", first.at + 30)
    read = {chart.name: chart.read(first, last) for chart in CHARTS}
    assert len(CHARTS) == len(read) == 12
    assert read["Answers"] == 60
    assert read["Turns"] == pytest.approx(4)
    assert read["Turned away"] == 4
    assert read["Connections turned away"] == 2
    assert read["Exports turned away"] == 0
    assert read["Waiting requests"] == 5
    assert {chart.metric for chart in CHARTS if chart.metric} <= known
    drawn = _drawn(CHARTS[0], [first, last])
    assert drawn["risen"] == [("estimate", "30")]
    assert not any(name.endswith("_bucket") for name in last.numbers)


def test_settings_are_shown_without_what_is_secret() -> None:
    """Catches a key, or a password in an address, on a page."""
    secrets = {"admin_key": "a-key-of-the-operator", "database_url": "postgresql://u:passw0rd@db.example/curator"}
    shown = {name: value for name, value, _ in Settings(**secrets).shown()}  # type: ignore[arg-type]
    assert shown["CURATOR_ADMIN_KEY"] == shown["CURATOR_DATABASE_URL"] == "set, not shown"
    assert shown["CURATOR_VAULT_KEY"] == "unset"
    assert shown["CURATOR_QUEUE_LIMIT"] == "64"
    assert not any(secret in str(shown) for secret in secrets.values())
