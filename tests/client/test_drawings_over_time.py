"""Drawings over time: a budget's steps, lanes of sessions, and small traces, read by a parser of XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_client.figures import Lane, Span, Step, lanes, steps, trace

pytestmark = pytest.mark.unit

_BEGIN = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
_DAY = 86400.0
_MOMENTS = st.floats(0, 3e10, allow_nan=False)
_EPSILON = st.floats(0, 1000, allow_nan=False)
_TEXTS = st.text(max_size=80) | st.just("</title><script>alert(1)</script>")
_MARKUP = {"svg", "title", "desc", "text", "path", "line", "rect"}


def _parsed(drawing: str) -> ET.Element:
    root = ET.fromstring(drawing)
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= _MARKUP
    assert not any(name in each.attrib for each in root.iter() for name in ("style", "onload"))
    for each in root.iter():
        for name, value in each.attrib.items():
            if name in ("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height"):
                assert not re.search("nan|inf|e[+-]", value), (name, value)
            if name in ("x", "x1", "x2", "width") and value.endswith("%"):
                assert 0 <= float(value[:-1]) <= 100
    return root


def _of(root: ET.Element, style: str) -> list[ET.Element]:
    return [each for each in root.iter() if style in each.get("class", "").split()]


def _told(root: ET.Element) -> str:
    return next(each.text or "" for each in root if each.tag.endswith("desc"))


@st.composite
def _spans(draw: st.DrawFn) -> Span:
    since = draw(_MOMENTS)
    return Span(since, since + draw(st.floats(0, 3e9)), draw(st.booleans()))


@given(_TEXTS, st.lists(st.builds(Step, _MOMENTS, _EPSILON, _EPSILON), max_size=6), st.floats(1e-6, 1000), _spans())
def test_any_budget_is_drawn(title: str, course: list[Step], limit: float, span: Span) -> None:
    """Catches markup of a name in a page, places beyond the drawing, and numbers that are none."""
    root = _parsed(steps(title, sorted(course), limit, span, pace=1e-9))
    assert len(_of(root, "limit")) == len(_of(root, "ar-spent")) == len(_of(root, "ar-held")) == 1


@given(
    _TEXTS,
    st.lists(
        st.builds(Lane, _MOMENTS, st.none() | _MOMENTS, _TEXTS, st.sampled_from(["open", "closed", "release"])),
        max_size=5,
    ),
    _spans(),
)
def test_any_lanes_are_drawn(title: str, drawn: list[Lane], span: Span) -> None:
    """Catches a session without its bar, and markup of an owner's name in a page."""
    root = _parsed(lanes(title, drawn, span))
    assert len(_of(root, "lane")) == len(drawn)


@given(_TEXTS, st.lists(st.tuples(_MOMENTS, st.floats(0, 1e15)), max_size=6), _spans())
def test_any_trace_is_drawn(title: str, course: list[tuple[float, float]], span: Span) -> None:
    """Catches a number over time that is nothing, or none at all, and ends the page."""
    _parsed(trace(title, sorted(course), span, "a minute"))


def test_steps_stand_where_their_numbers_are() -> None:
    """By the drawing's own lines: heights are linear up to the limit, and each holds to the next moment. Catches an
    area of what is held that begins at the bottom, a step that slopes, and a height of another moment."""
    until = _BEGIN + 100 * _DAY
    course = [Step(_BEGIN, 0.0, 1.0), Step(_BEGIN + 50 * _DAY, 0.5, 0.5), Step(until - 1, 2.0, 1.0)]
    root = _parsed(steps("b", course, 4.0, Span(_BEGIN, until)))
    limit, bottom = (float(_of(root, style)[0].get("y1", "")) for style in ("limit", "base"))

    def height(y: float) -> float:
        return 4.0 * (bottom - y) / (bottom - limit)

    for style, expected in (("ar-spent", [0.0, 0.5, 2.0]), ("ar-held", [1.0, 1.0, 3.0])):
        path = _of(root, style)[0].get("d", "")
        drawn = re.findall(r"H([\d.]+)V([\d.]+)", path)[:3]
        assert [height(float(y)) for _, y in drawn] == pytest.approx(expected, abs=0.02)
        begin, middle, end = (float(x) for x, _ in drawn)
        assert (begin, middle) == pytest.approx((0.0, end / 2), abs=0.1)
        assert "L" not in path
    now = float(_of(root, "now")[0].get("x1", "%")[:-1])
    assert 90 < now < 100
    assert [each.text for each in _of(root, "lab")] == ["limit 4", "spent and reserved 3", "spent 2"]
    assert [each.text for each in _of(root, "tick") if each.text and each.text.isalpha()] == [
        "Jun",
        "Jul",
        "Aug",
        "Sep",
    ]


def test_a_pace_leads_on_and_no_farther_than_the_limit() -> None:
    """Catches spending that is foretold beyond what may ever be spent."""
    until = _BEGIN + 100 * _DAY
    course = [Step(_BEGIN, 3.9, 0.0)]
    for pace, ends in ((0.0001 / _DAY, "spent"), (50 / _DAY, "limit")):
        root = _parsed(steps("b", course, 4.0, Span(_BEGIN, until), pace))
        ahead = float(_of(root, "ahead")[0].get("y2", ""))
        limit = float(_of(root, "limit")[0].get("y1", ""))
        assert (ahead == limit) == (ends == "limit")
    assert not _of(_parsed(steps("b", course, 4.0, Span(_BEGIN, until))), "ahead")


def test_drawings_say_what_they_show() -> None:
    """Catches a picture that is nothing to whoever does not see it."""
    span = Span(_BEGIN, _BEGIN + 100 * _DAY)
    told = _told(_parsed(steps("Budget", [Step(_BEGIN, 0.25, 0.5)], 4.0, span)))
    assert told == (
        "The limit is 4. From 1 June 2026 to 9 September 2026 spent rises in 1 steps to 0.25; 0.5 is reserved by open "
        "sessions."
    )
    assert "nothing was spent" in _told(_parsed(steps("Budget", [], 4.0, span)))
    drawn = [
        Lane(_BEGIN, _BEGIN + 9 * _DAY, "ann, session: 0.1 of 0.2", "closed"),
        Lane(_BEGIN, None, "ben, session: 0 of 0.2", "open"),
    ]
    assert _told(_parsed(lanes("Who", drawn, span))) == (
        "ann, session: 0.1 of 0.2, closed, from 1 June 2026 to 10 June 2026; ben, session: 0 of 0.2, open, from 1 June "
        "2026 until now."
    )
    course = [(_BEGIN, 3.0), (_BEGIN + 60, 1.0)]
    assert "at most 3 a minute, at the end 1 a minute" in _told(
        _parsed(trace("Answers", course, Span(_BEGIN, _BEGIN + 120), "a minute"))
    )
    assert "No sample" in _told(_parsed(trace("Answers", [], Span(_BEGIN, _BEGIN))))


def test_an_open_lane_ends_now_and_a_short_one_is_seen() -> None:
    """Catches an open session that ends where nothing is known, and one of a moment that has no width."""
    span = Span(_BEGIN, _BEGIN + 100 * _DAY)
    root = _parsed(lanes("Who", [Lane(_BEGIN, None, "a", "open"), Lane(_BEGIN, _BEGIN + 1, "b", "release")], span))
    now = float(_of(root, "now")[0].get("x1", "%")[:-1])
    first, second = _of(root, "lane")
    assert float(first.get("width", "%")[:-1]) == pytest.approx(now, abs=0.02)
    assert float(second.get("width", "%")[:-1]) > 0.5
    assert "rel" in second.get("class", "").split()
