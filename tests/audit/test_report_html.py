"""The page of a report: nothing that comes from a log is anything but text, whatever it is."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from app.report.page import page
from app.report.pages import environment, style
from app.report.plots import height_axis, number_axis
from tests.audit.test_report import report
from tests.kit.logs import Writer, honest

pytestmark = pytest.mark.unit

#: All that a page is made of.
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section"),
    *("h1", "h2", "h3", "h4", "h5", "p", "strong", "b", "ul", "ol", "li", "a", "span", "code", "pre", "time", "div"),
    *("dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption"),
    *("svg", "path", "line", "text", "desc"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "role", "href", "scope", "tabindex"),
    *("aria-hidden", "aria-labelledby", "viewbox", "d", "x", "y", "dx", "dy", "transform", "text-anchor"),
    *("x1", "x2", "y1", "y2", "width", "height", "preserveaspectratio", "font-size", "font-family"),
    *("fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-dasharray"),
}
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "</style></title><svg onload=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "<!--",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;",
    "javascript:alert(1)",
    "{{7*7}}${7*7}",
]


class Seen(HTMLParser):
    """What a browser would make of a page: elements, attributes, texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.others: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def harmless(text: str) -> Seen:
    """A page that is parsed, and has nothing but what pages have."""
    seen = Seen(text)
    assert not seen.open
    assert not seen.others
    assert set(seen.tags) <= TAGS, set(seen.tags) - TAGS
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    assert all(re.fullmatch(r"#data-\d+(-\d+)?", value or "") for name, value in seen.attributes if name == "href")
    ids = [value for name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert seen.tags.count("style") == 1
    assert "url(" not in text
    return seen


def hostile_log(word: str) -> Writer:
    """A log with a word wherever a word can be."""
    log = Writer()
    log.principal("created", word)
    log.principal("key replaced", word)
    attribute = {"name": word, "values": [word, "b"]}
    log.register("people", attributes=[attribute], description=word)
    id = "s1"
    log.open(
        id,
        "people",
        "0.2",
        "0.01",
        mechanism={"construction": word, "workload": {word: [word]}},
        plan={"noise": word, "noise_scale": word, "error_bound": word, "beta": word, word: word},
    )
    log.answer(
        id,
        "measurement",
        asked=orjson.dumps({"type": word, "where": {word: {"in": [word]}}}, option=orjson.OPT_SORT_KEYS),
    )
    log.answer(id, asked=None, query=orjson.dumps({word: word}), target={"within": 5.0})
    log.answer(id, "hypothesis")
    log.forfeit(id)
    log.open("r1", "people", "0.1", mechanism={"method": word, "workload": word})
    log.register(word)
    log.lines += [orjson.dumps({"record": word, "kind": word}), word.encode()]
    return log


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_words_are_text(word: str) -> None:
    """Catches a name, a question, a label, a mechanism, a reason that is put into the page as it stands."""
    document = report(hostile_log(word).lines, replays={"s1": word})
    seen = harmless(page(document))
    assert seen.texts.count(word) >= 6
    with_others = [text for text in seen.texts if word in text or orjson.dumps(word).decode()[1:-1] in text]
    assert len(with_others) > 15


@given(st.text())
def test_markup_shows_what_it_was_given(text: str) -> None:
    """Catches an escape that is left out, and letters that are not seen or turn the writing round."""
    template = environment().from_string('{{ text }}<a title="{{ text }}">{{ text }}</a>{{ nothing }}')
    made = template.render(text=text, nothing=None)
    seen = Seen(made)
    assert seen.tags == ["a"]
    shown = dict(seen.attributes)["title"]
    assert isinstance(shown, str)
    assert "".join(seen.texts) == 2 * shown
    assert not set(shown) & set("\u202e\u2066\u200f\x00\x1b\ufeff")
    if text.isascii() and text.isprintable():
        assert shown == text


def test_a_name_that_is_not_known_is_an_error() -> None:
    """Catches a template that shows nothing where a field was renamed."""
    with pytest.raises(UndefinedError, match="other"):
        environment().from_string("{{ report.other }}").render(report={})


def test_nothing_is_allowed_but_the_page_s_own_style() -> None:
    """Catches a policy that allows scripts or anything from elsewhere, and a hash of another style."""
    text = page(report(honest().lines))
    seen = harmless(text)
    policy = next(value for name, value in seen.attributes if value and value.startswith("default-src"))
    css = style("report.css")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert f"<style>{css}</style>" in text
    assert not re.search(r"https?:", text)
    assert "@import" not in css


def test_pictures_tell_in_words_what_they_show() -> None:
    """Catches a picture without a text alternative, or axes without units."""
    text = page(report(honest().lines))
    budget, *pictures = re.findall(r"<svg[^>]* role=.*?</desc>.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        labels = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', picture)
        assert labels is not None
        for id in labels.groups():
            assert f'id="{id}"' in picture
    assert "<title>Budget of " in budget
    assert re.search(r"<desc>The limit is 1\. .* spent rises in \d+ steps to 0\.289; .* is reserved", budget)
    assert "Heights are shares of epsilon 1." in text
    assert "counts" in pictures[0]


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1e99", "-1", "NaN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a document."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [*found, *(each for key, child in children for each in places(child, (*path, key)))]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_anything_makes_a_page(data: st.DataObject) -> None:
    """A line with anything in place of something, or without it. Catches a stack trace, and a page that is broken."""
    lines = list(honest().lines)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        document = orjson.loads(lines[at])
        path = data.draw(st.sampled_from(places(document)))
        node = document
        for key in path[:-1]:
            node = node[key]
        if data.draw(st.booleans()):
            junk = data.draw(JUNK)
            try:
                orjson.dumps(junk)
            except TypeError:  # an integer that JSON has no room for, half a letter
                junk = None
            node[path[-1]] = junk
        else:
            del node[path[-1]]
        if not isinstance(document, dict) or not document:
            continue
        lines[at] = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        if data.draw(st.booleans()):
            lines.insert(at, lines[at])
    made = report(lines)
    orjson.dumps(made)
    harmless(page(made))


@given(st.floats(0, 1e300))
def test_heights(high: float) -> None:
    """Catches an axis that ends below what is plotted, has no marks, or too many."""
    axis = height_axis("counts", high)
    assert axis.high >= high
    assert axis.high > 0
    assert 2 <= len(axis.marks) <= 12


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_numbers(low: int, more: int) -> None:
    """Catches marks outside of an axis, or too many."""
    axis = number_axis("entry", low, low + more)
    assert axis.low < axis.high
    assert len(axis.marks) <= 12
    assert all(axis.low <= at <= axis.high for at, _ in axis.marks)
