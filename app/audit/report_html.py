"""A report as one page of HTML, from its document: no script, nothing from elsewhere, readable and printable anywhere.

Whatever comes from the log goes through :func:`app.audit.report_markup.tag`, which escapes it. The page's policy allows
its own style by its hash and nothing else: no script, no picture, no connection, no form.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.audit.report_dataset_html import dataset
from app.audit.report_markup import Markup, joined, tag
from app.audit.report_parts import amount, code, facts, moment, number, table, words
from app.audit.report_style import STYLE

_ABOUT = (
    "The log is the list of everything public that a curator of private data recorded: what was declared, spent, "
    "asked, answered and released. This page was made from a copy of it, and tells what of it was checked."
)
#: What is looked at, in the order of the document.
_CHECKS = {
    "signature": "Signature",
    "lines": "Lines",
    "earlier": "Earlier checkpoint",
    "refused": "One history",
    "records": "Records",
    "chains": "Chains of sessions",
    "books": "Budgets",
    "charges": "Charges",
    "replay": "Replay",
}
_MARKS = {True: ("✓", "holds", "holds"), False: ("✗", "wrong", "does not hold"), None: ("–", "open", "left open")}


def page(document: Mapping[str, Any]) -> str:
    """The page of a report."""
    log, datasets = document["log"], document["datasets"]
    title = f"Report of the log {log['origin'] or 'in a folder'}"
    policy = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"default-src 'none'; style-src 'sha256-{policy}'; base-uri 'none'; form-action 'none'",
        ),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        # The one text of the page that is its own, and is not escaped.
        Markup(f"<style>{STYLE}</style>"),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", _ABOUT), _verdict(document), _summary(log, datasets)),
        tag(
            "main",
            _checked(document),
            _overview(datasets),
            joined(dataset(each, place) for place, each in enumerate(datasets, 1)),
            _principals(document["principals"], document["log_keys"]),
        ),
        tag(
            "footer",
            "Made by `curator audit report` from a folder, without any service. Times are UTC. Amounts are exact "
            "decimals: Renyi divergence at the order of the data set. What follows ≈ is rounded.",
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _verdict(document: Mapping[str, Any]) -> Markup:
    wrong = [each for each in document["checks"] if each["holds"] is False]
    if not wrong:
        open_ = [each for each in document["checks"] if each["holds"] is None]
        rest = f" Left open: {', '.join(_CHECKS[each['check']].lower() for each in open_)}." if open_ else ""
        return tag("p", tag("strong", "All that was checked holds."), rest, class_="verdict holds", role="status")
    first = "Something does not follow."
    if document["contradicted"]:
        unsigned = any(each["check"] in ("signature", "lines") for each in wrong)
        first = f"{'These are not the lines that were' if unsigned else 'Two different histories were'} signed."
    return tag(
        "div",
        tag("p", tag("strong", first)),
        tag("ul", *(tag("li", tag("b", _CHECKS[each["check"]], ": "), each["says"]) for each in wrong)),
        class_="verdict wrong",
        role="alert",
    )


def _summary(log: Mapping[str, Any], datasets: Sequence[Mapping[str, Any]]) -> Markup:
    questions = sum(each["sessions"]["questions"] for each in datasets)
    sessions = sum(each["sessions"]["number"] for each in datasets)
    when = "" if log["first_at"] is None else f" from {log['first_at']} to {log['last_at']}"
    return tag(
        "p",
        f"{words(log['lines'], 'entry', 'entries')}{when}: {words(len(datasets), 'data set')}, "
        f"{words(sessions, 'session or release', 'sessions and releases')}, {words(questions, 'answer')}.",
    )


def _checked(document: Mapping[str, Any]) -> Markup:
    log, findings = document["log"], document["findings"]
    rows = []
    for each in document["checks"]:
        mark, style, spoken = _MARKS[each["holds"]]
        rows.append(
            tag(
                "tr",
                tag(
                    "th",
                    tag("span", mark, class_=f"mark {style}", aria_hidden="true"),
                    _CHECKS[each["check"]],
                    scope="row",
                ),
                tag("td", tag("span", spoken, class_=style)),
                tag("td", each["says"]),
            )
        )
    found = None
    if findings["first"]:
        found = joined(
            (
                tag("h3", "What does not follow"),
                table(
                    ("check", "line", "what", "session"),
                    (
                        (_CHECKS[each["check"]], number(each["line"]), each["says"], code(each["session"]))
                        for each in findings["first"]
                    ),
                ),
                tag("p", f"And {number(findings['left_out'])} more.") if findings["left_out"] else None,
            )
        )
    return tag(
        "section",
        tag("h2", "What was checked"),
        tag("div", tag("table", tag("tbody", *rows)), class_="scroll"),
        found,
        tag("h3", "The checkpoint"),
        facts(
            {
                "origin": code(log["origin"]),
                "size": None if log["size"] is None else words(log["size"], "entry", "entries"),
                "tree hash (root)": code(log["root"]),
                "key": code(log["key"]),
                "records": ", ".join(f"{kind} {count:,}" for kind, count in log["records"].items()),
            }
        ),
        tag("h3", "What remains to be trusted"),
        tag("ol", *(tag("li", sentence) for sentence in document["trust"])),
        id="checked",
    )


def _overview(datasets: Sequence[Mapping[str, Any]]) -> Markup:
    def rows() -> Iterable[tuple[object, ...]]:
        for place, each in enumerate(datasets, 1):
            budget = each["budget"]
            name = tag("a", each["name"], href=f"#data-{place}") if each["whole"] else each["name"]
            yield (
                name,
                amount(budget["epsilon"]),
                amount(budget["delta"]),
                amount(budget["spent_epsilon"], 6),
                amount(budget["reserved_epsilon"], 6),
                number(each["sessions"]["number"]),
                number(each["sessions"]["questions"]),
                number(each["sessions"]["forfeits"]),
            )

    columns = ("data set", "epsilon", "delta", "spent ≈", "reserved ≈", "sessions", "answers", "refusals that spent")
    return tag("section", tag("h2", "Data sets"), table(columns, rows(), numbers=range(1, 8)))


def _principals(principals: Mapping[str, Any], log_keys: Sequence[Mapping[str, Any]]) -> Markup:
    events = [*principals["first"], *principals["last"]]
    changes = [each for each in events if each["event"] == "key replaced"]

    def rows(shown: Sequence[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
        return ((moment(each["recorded_at"]), each["event"], each["name"], each["role"]) for each in shown)

    columns = ("time", "event", "name", "role")
    counts = ", ".join(f"{event} {count:,}" for event, count in principals["by_event"].items())
    return tag(
        "section",
        tag("h2", "Principals and keys"),
        tag("p", "Who could call the service. Which of them opened a session is not in the log."),
        tag("h3", "Keys that were replaced"),
        table(columns, rows(changes)) if changes else tag("p", "None that is shown."),
        tag("h3", "Changes of the log's own key"),
        table(
            ("time", "entries by then", "old key", "new key"),
            ((moment(each["recorded_at"]), each["size"], each["old"], each["new"]) for each in log_keys),
        )
        if log_keys
        else tag("p", "None."),
        tag("h3", "All events"),
        tag("p", counts or "None."),
        tag(
            "details",
            tag("summary", words(len(events), "event")),
            table(columns, rows(events)),
            tag("p", f"{number(principals['left_out'])} more, in between, are left out.")
            if principals["left_out"]
            else None,
        )
        if events
        else None,
    )
