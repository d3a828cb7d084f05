"""The analyst's pages over HTTP: what is asked once, what is refused and where, what two tabs do, and who sees what."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from html import unescape
from time import sleep
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from app.declarations.errors import CuratorError
from app.services.answering.dispatch import Answering
from app.services.errors import Unavailable
from tests.kit.console import Visitor, heading
from tests.kit.service import JSON, PEOPLE, Service, people, register, unique
from tests.kit.world import eventually

pytestmark = pytest.mark.api

MARKUP = "<b onclick=alert(1)>&\"'"


@pytest.fixture
def name(service: Service) -> str:
    """A data set whose labels and description are full of markup."""
    attributes = [
        {"name": "sex", "values": ["female", MARKUP]},
        {"name": "age", "lower": 0, "upper": 80, "bins": 4},
    ]
    return people(service, description=MARKUP, attributes=attributes, budget={"epsilon": 50.0, "delta": 1e-6})


@pytest.fixture
def ann(service: Service) -> Iterator[Visitor]:
    key = service.admin.post("/v1/principals", json={"name": unique("ann"), "role": "analyst"}).json()["api_key"]
    with Visitor(service.url) as visitor:
        visitor.log_in(key)
        visitor.headers["X-Key"] = key  # for calls of the API beside the pages
        yield visitor


def hidden(page: httpx.Response) -> JSON:
    """The hidden fields of the question's form."""
    form = page.text[page.text.index('class="card builder"') :]
    return hidden_of(form[: form.index("</form>")])


def hidden_of(text: str) -> JSON:
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text)}


def opened(ann: Visitor, name: str, **fields: Any) -> str:
    """Open a session by the form; the address of its page."""
    reply = ann.form(f"/console/datasets/{name}/ask/open", {"epsilon": "0.5", "questions": "20", **fields})
    assert reply.status_code == 303, reply.text
    return reply.headers["location"]


def api(service: Service, ann: Visitor) -> httpx.Client:
    return service.caller(ann.headers["X-Key"])


def ask(ann: Visitor, name: str, page: httpx.Response, **fields: Any) -> httpx.Response:
    told = hidden(page)
    token = told.pop("token")
    return ann.form(f"/console/datasets/{name}/ask", {**told, "do": "ask", "kind": "count", **fields}, token=token)


def test_a_question_is_asked_once(service: Service, ann: Visitor, name: str) -> None:
    """Two clicks of one button, and a reload of it. Catches a second charge, an answer that is not the one of the
    first, and a price that was not the one shown."""
    place = opened(ann, name)
    page = ann.get(place)
    id = hidden(page)["session"]
    fields = {"by-0": "sex", "by-1": "age", "exact": "within", "within": "3.5"}
    told = ann.form(
        f"/console/datasets/{name}/ask/price", {**hidden(page), **fields, "kind": "count"}, token=hidden(page)["token"]
    )
    shown = hidden_of(told.text)["at_most"]
    first = ask(ann, name, page, at_most=shown, **fields)
    again = ask(ann, name, page, at_most=shown, **fields)
    assert (first.status_code, again.status_code) == (303, 303)
    assert first.headers["location"] == again.headers["location"]
    entries = api(service, ann).get(f"/v1/sessions/{id}/entries").json()["items"]
    assert len(entries) == 1
    assert entries[0]["charged_epsilon"] == float(shown) > 0
    answer = ann.get(first.headers["location"].partition("#")[0])
    assert "Number of records by sex and age" in answer.text


def test_a_share_is_asked(service: Service, ann: Visitor, name: str) -> None:
    """By the form, as the contract has it, and the form comes back for another. Catches a field that is dropped on the
    way, and a page that cannot show a share."""
    page = ann.get(opened(ann, name))
    fields = {"kind": "share", "part": "age", "part-operator": "ge", "part-value": "40", "by-0": "sex"}
    reply = ask(ann, name, page, **fields)
    assert reply.status_code == 303, reply.text
    place = reply.headers["location"].partition("#")[0]
    entry = api(service, ann).get(f"/v1/sessions/{hidden(page)['session']}/entries/1").json()
    assert entry["question"] is not None
    assert entry["question"]["type"] == "share"
    assert entry["question"]["group_by"] == ["sex"]
    like = ann.get(f"{place}&like=1").text
    assert re.search(r'name="kind" value="share" checked', like)
    assert re.search(r'name="part-value"[^>]*value="40"', like)


def test_the_question_in_r_is_the_question(service: Service, ann: Visitor, name: str) -> None:
    """Strings of Python and of R have the same escapes for quotes and backslashes. Catches a label that ends the string
    in the text that somebody copies, and a question that asks something else."""
    page = ann.get(opened(ann, name))
    reply = ask(ann, name, page, **{"where-0": "sex", "operator-0": "is", "value-0": MARKUP})
    answer = ann.get(reply.headers["location"].partition("#")[0])
    (found,) = re.findall(r"In R</summary><pre [^>]*>ask\(s, (.*?)\)</pre>", answer.text)
    entry = api(service, ann).get(f"/v1/sessions/{hidden(page)['session']}/entries/1").json()
    assert entry["question"] is not None
    assert json.loads(ast.literal_eval(unescape(found))) == entry["question"]


def test_what_costs_more_than_was_shown_is_not_asked(service: Service, ann: Visitor, name: str) -> None:
    """Catches a button whose price is not kept."""
    page = ann.get(opened(ann, name))
    reply = ask(
        ann, name, page, at_most="0.0000001", **{"by-0": "sex", "by-1": "age", "exact": "within", "within": "3.5"}
    )
    assert reply.status_code == 200
    assert "Nothing was asked, and nothing was paid" in reply.text
    id = hidden(page)["session"]
    assert api(service, ann).get(f"/v1/sessions/{id}").json()["queries_asked"] == 0


def test_another_tab_asked_meanwhile(service: Service, ann: Visitor, name: str) -> None:
    """A page that does not know the newest entry says so and asks anew; the next click is answered. Catches a question
    that is paid for by a price that is not the one now."""
    place = opened(ann, name)
    old, new = ann.get(place), ann.get(place)
    assert ask(ann, name, new, **{"by-0": "sex"}).status_code == 303
    reply = ask(ann, name, old, **{"by-0": "age"})
    assert reply.status_code == 200
    assert "Another question was asked" in reply.text
    assert ask(ann, name, reply, **{"by-0": "age"}).status_code == 303
    id = hidden(old)["session"]
    assert api(service, ann).get(f"/v1/sessions/{id}").json()["queries_asked"] == 2


def test_what_is_not_there_yet_is_asked_again(
    service: Service, ann: Visitor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is late, or the commit failed. Catches a page that would pay twice, or says that nothing was done."""
    page = ann.get(opened(ann, name))
    submit = Answering.submit

    def late(self: Answering, actor: Any, ticket: Any) -> None:
        if ticket.kind == "ask":
            raise Unavailable("not now")
        submit(self, actor, ticket)

    monkeypatch.setattr(Answering, "submit", late)
    reply = ask(ann, name, page, **{"by-0": "sex"})
    assert reply.status_code == 503
    assert "It may have been answered" in reply.text
    assert "you get the first answer, and pay once" in reply.text
    assert hidden(reply)["nonce"] == hidden(page)["nonce"]
    monkeypatch.undo()
    assert ask(ann, name, reply, **{"by-0": "sex"}).status_code == 303


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"by-0": "nobody"}, "choose an attribute of the list"),
        ({"kind": "mean", "of": "sex"}, "choose an attribute of numbers"),
        ({"kind": "share", "part": "age", "part-operator": "ge", "part-value": "old"}, "a number"),
        ({"kind": "sum", "of": "sex", "weighted": "1"}, "choose an attribute of numbers"),
        ({"where-0": "age", "operator-0": "ge", "value-0": "old"}, "a number"),
        ({"where-0": "age", "operator-0": "ge", "value-0": MARKUP}, "a number"),
        ({"exact": "within", "within": "0"}, "a number above 0"),
        ({"by-0": "sex", "by-1": "age", "exact": "within", "within": "0.000001"}, "Nothing was asked"),
        ({"where-0": "age", "operator-0": "is", "value-0": "3"}, "The query does not fit"),
    ],
)
def test_a_wrong_question_stays_as_it_was_typed(ann: Visitor, name: str, fields: JSON, said: str) -> None:
    """Catches a form that is emptied, a refusal that is not said, and markup of a field in the page."""
    page = ann.get(opened(ann, name))
    reply = ask(ann, name, page, **fields)
    assert reply.status_code in (200, 422)
    assert said in unescape(reply.text)
    assert "<b onclick" not in reply.text
    for field, value in fields.items():
        assert field == "of" or value in unescape(reply.text)


def test_rows_are_added_and_dropped_without_a_script(ann: Visitor, name: str) -> None:
    """Catches a form that needs a script, or asks when a row is added."""
    page = ann.get(opened(ann, name))
    page = ask(ann, name, page, do="add-by")
    assert page.text.count('name="by-') == 1
    page = ask(ann, name, page, do="add-where", **{"by-0": "sex"})
    assert (page.text.count('name="by-'), page.text.count('name="where-')) == (1, 1)
    page = ask(ann, name, page, do="drop-by-0", **{"by-0": "sex", "where-0": "age", "value-0": "40"})
    assert 'name="by-' not in page.text
    assert 'value="40"' in page.text


def test_sessions_that_cannot_be_opened(ann: Visitor, name: str) -> None:
    """Catches a refusal that is lost, and a form that forgets what was typed."""
    for fields, said in (
        ({"epsilon": "99"}, "does not hold so much"),
        ({"epsilon": "x"}, "epsilon"),
        ({"epsilon": "0,5"}, "epsilon"),
        ({"questions": "-3"}, "max_queries"),
    ):
        reply = ann.form(f"/console/datasets/{name}/ask/open", {"epsilon": "0.5", "questions": "20", **fields})
        assert reply.status_code == 422
        assert said in reply.text
        assert f'value="{next(iter(fields.values()))}"' in reply.text
    assert ann.form("/console/datasets/nothing/ask/open", {"epsilon": "1"}).status_code == 404


def test_a_number_of_questions_may_be_unknown(service: Service, ann: Visitor, name: str) -> None:
    """Catches a form that cannot leave it out, and one that takes a number for it."""
    page = ann.get(opened(ann, name, questions=""))
    plan = api(service, ann).get(f"/v1/sessions/{hidden(page)['session']}").json()
    assert plan["queries_left"] is None


def test_a_rehearsal_says_so_on_every_page(service: Service, ann: Visitor, name: str) -> None:
    """Catches made-up numbers that look like true ones, and a rehearsal that is paid for."""
    before = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
    place = opened(ann, name, do="rehearse")
    page = ann.get(place)
    assert "Made up" in page.text
    answer = ask(ann, name, page, **{"by-0": "sex"})
    assert "Made up" in ann.get(answer.headers["location"].partition("#")[0]).text
    id = hidden(page)["session"]
    for path in (f"/console/sessions/{id}", f"/console/sessions/{id}/answers/1"):
        assert "Made up" in ann.get(path).text
    assert service.admin.get(f"/v1/datasets/{name}").json()["budget"] == before


def test_closing_asks_first(service: Service, ann: Visitor, name: str) -> None:
    """Catches a session that one click ends, and one that two do not."""
    page = ann.get(opened(ann, name))
    id = hidden(page)["session"]
    path = f"/console/datasets/{name}/ask/close"
    assert heading(ann.form(path, {"session": id})) == "Close this session?"
    assert api(service, ann).get(f"/v1/sessions/{id}").json()["status"] == "open"
    assert ann.form(path, {"session": id, "sure": "1"}).status_code == 303
    assert api(service, ann).get(f"/v1/sessions/{id}").json()["status"] == "closed"
    assert "Ask" in ann.get(f"/console/datasets/{name}/ask?session={id}").text


def test_files_of_an_answer(service: Service, ann: Visitor, name: str) -> None:
    """Each has the numbers that were replied. Catches a file of another answer, or one that is asked anew."""
    page = ann.get(opened(ann, name))
    id = hidden(page)["session"]
    ask(ann, name, page, **{"by-0": "age"})
    caller = api(service, ann)
    reply = caller.get(f"/v1/sessions/{id}/entries/1").json()["answer"]
    base = f"/console/sessions/{id}/answers/1"
    rows = [line.rsplit(",", 4) for line in ann.get(f"{base}.csv").text.splitlines()[1:]]
    assert [float(row[1]) for row in rows] == reply["values"]
    assert [float(row[2]) for row in rows] == reply["standard_errors"]
    assert ann.get(f"{base}.parquet").content[:4] == b"PAR1"
    drawn = ann.get(f"{base}.svg")
    assert drawn.text.startswith("<svg")
    assert "attachment" in drawn.headers["content-disposition"]
    # What the log has of it may come to be in between.
    pages = f"/console/sessions/{id}/transcript", f"/v1/sessions/{id}/transcript"
    eventually(lambda: ann.get(pages[0]).content == caller.get(pages[1]).content)
    assert caller.get(f"/v1/sessions/{id}").json()["sequence"] == 1
    for path in (
        f"{base}.xml",
        f"{base}.csv.csv",
        f"/console/sessions/{id}/answers/2",
        f"/console/sessions/{id}/answers/x",
        f"/console/sessions/{id}/answers/²",
    ):
        assert ann.get(path).status_code == 404


def test_how_much_was_measured(service: Service, ann: Visitor, name: str) -> None:
    """Catches a count that is not that of the contract, and one for somebody who may not see what was measured."""
    page = ann.get(opened(ann, name))
    for attribute in ("sex", "age"):
        ask(ann, name, page, **{"by-0": attribute})
        page = ann.get(f"/console/datasets/{name}/ask")
    listed = api(service, ann).get(f"/v1/datasets/{name}/measurements").json()["items"]
    assert f"<dt>Measured so far</dt><dd>{len(listed)} tables" in page.text
    closed = people(service, access="granted")
    shut = ann.get(f"/console/datasets/{closed}/ask")
    assert shut.status_code == 200
    assert "Measured so far" not in shut.text


def test_what_others_asked_is_not_shown(service: Service, ann: Visitor, name: str) -> None:
    """Catches a session, an answer or a file that another analyst, or an admin, sees by its address; and the auditor,
    who sees all, shut out."""
    page = ann.get(opened(ann, name))
    id = hidden(page)["session"]
    ask(ann, name, page, **{"by-0": "age"})
    paths = [
        f"/console/sessions/{id}",
        f"/console/sessions/{id}/answers/1",
        f"/console/sessions/{id}/answers/1.csv",
        f"/console/sessions/{id}/transcript",
    ]
    for role, status in (("analyst", 404), ("admin", 404), ("auditor", 200)):
        key = service.admin.post("/v1/principals", json={"name": unique(role), "role": role}).json()["api_key"]
        with Visitor(service.url) as other:
            other.log_in(key)
            assert {other.get(path).status_code for path in paths} == {status}
            asks = other.get(f"/console/datasets/{name}/ask?session={id}")
            assert asks.status_code == 404
            if role == "auditor":
                for path in (f"/console/datasets/{name}/ask", f"/console/datasets/{name}/sql", "/console/releases/new"):
                    assert other.get(path).status_code == 404


def test_names_are_text_wherever_they_stand(service: Service, ann: Visitor, name: str) -> None:
    """Would show markup of a declaration that a browser reads as such, on any page."""
    page = ann.get(opened(ann, name))
    id = hidden(page)["session"]
    ask(ann, name, page, **{"by-0": "sex"})
    measured = api(service, ann).get(f"/v1/datasets/{name}/measurements").json()["items"][0]["id"]
    base = f"/console/datasets/{name}"
    for path in (
        f"{base}/ask?session={id}&answer=1&like=1",
        f"{base}/about",
        f"{base}/measured",
        f"{base}/measured/{measured}",
        f"{base}/what-if",
        f"{base}/sql",
        "/console/datasets",
        "/console/sessions",
        f"/console/sessions/{id}",
        f"/console/sessions/{id}/answers/1",
        f"/console/releases/new?dataset={name}",
        f"{base}/sql?statement={MARKUP}",
        f"/console/releases/new?dataset={MARKUP}&epsilon={MARKUP}",
        f"{base}/what-if?epsilon={MARKUP}",
        f"{base}/ask?answer={MARKUP}",
        f"{base}/ask?answer=²",
    ):
        reply = ann.get(path)
        assert reply.status_code == 200, path
        assert "<b onclick" not in reply.text, path


def test_names_with_letters_that_nobody_sees(service: Service, ann: Visitor) -> None:
    """Joiners, as Persian and emoji have them, and soft hyphens: asked by the form and by SQL, again and again. Catches
    a field that comes back with another text than was put in; what is no field still spells them out."""
    odd, label, spec = "می\u200cخواهم", "so\xadft \U0001f469\u200d\U0001f680", {**PEOPLE, "name": unique("letters")}
    spec["attributes"] = [{"name": odd, "values": [label, "b"]}]
    assert register(service.admin, spec, f"{odd}\n{label}\nb\n".encode(), "rows.csv").status_code == 201
    page = ann.get(opened(ann, spec["name"]))
    id, fields = hidden(page)["session"], {"where-0": odd, "op-0": "is", "value-0": label}
    for do in ("price", "price", "ask"):
        page = ask(ann, spec["name"], page, **fields, do=do)
        if do == "price":
            assert f'value="{odd}" selected' in page.text
            assert f'value="{label}"' in page.text
            assert "⟨U+200C⟩" in page.text
    assert page.status_code == 303, page.text
    path = f"/console/datasets/{spec['name']}/sql"
    text = f'SELECT "{odd}", COUNT(*) FROM "{spec["name"]}" GROUP BY "{odd}"'
    priced = ann.form(path, {"session": id, "statement": text, "do": "price"})
    (kept,) = re.findall(r"<textarea[^>]*>([^<]*)</textarea>", priced.text)
    assert unescape(kept).strip() == text
    assert (
        "The result" in ann.form(path, {"session": id, **hidden(priced), "statement": unescape(kept), "do": "ask"}).text
    )


@pytest.mark.parametrize("odd", ['q"q', "a/b", "and", "می\u200cخواهم"])
def test_examples_of_statements_have_a_meaning(service: Service, ann: Visitor, odd: str) -> None:
    """Whatever columns are called. Catches a name that is written without its quotes."""
    spec = {**PEOPLE, "name": unique("odd-names"), "attributes": [{"name": odd, "size": 2}]}
    lines = "".join(f'"{each}"\n' for each in (odd.replace('"', '""'), 0, 1))
    assert register(service.admin, spec, lines.encode(), "rows.csv").status_code == 201
    opened(ann, spec["name"])
    path = f"/console/datasets/{spec['name']}/sql"
    page = ann.get(path)
    examples = [unquote(unescape(each)) for each in re.findall(r'sql\?statement=([^"]*)"', page.text)]
    assert len(examples) == 3
    for text in examples:
        told = ann.form(path, {"session": hidden(page)["session"], "statement": text, "do": "price"}).text
        assert 'role="alert"' not in told, text


def test_enter_in_a_field_asks_for_the_price(ann: Visitor, name: str) -> None:
    """The first button of a form is what Enter presses. Catches one that takes a row away."""
    page = ask(ann, name, ann.get(opened(ann, name)), **{"by-0": "sex", "do": "add-by"}).text
    form = page[page.index('class="card builder"') :]
    first = re.search(r'<button[^>]*name="do" value="([^"]*)"', form)
    assert first is not None
    assert first[1] == "price"


def test_statements(service: Service, ann: Visitor, name: str) -> None:
    """A statement is priced first, then asked once; what is refused is marked at its place. Catches a price that
    spends, a second charge, and a place that is another's."""
    page = ann.get(opened(ann, name))
    id = hidden(page)["session"]
    path, caller = f"/console/datasets/{name}/sql", api(service, ann)
    form = {"session": id, "statement": f'SELECT sex, COUNT(*) FROM "{name}"\r\nGROUP BY sex', "nonce": "n" * 20}
    priced = ann.form(path, {**form, "do": "price"})
    assert "What it would cost" in priced.text
    assert caller.get(f"/v1/sessions/{id}").json()["sequence"] == 0
    form |= hidden(priced)
    for _ in range(2):
        assert "The result" in ann.form(path, {**form, "do": "ask"}).text
    assert caller.get(f"/v1/sessions/{id}").json()["sequence"] == 1
    for do in ("price", "ask"):
        refused = ann.form(path, {**form, "statement": f'SELECT COUNT(*) FROM "{name}"\r\nWHERE nobody = 1', "do": do})
        assert refused.status_code == 422
        assert "<mark>nobody</mark>" in refused.text
    for do in ("price", "ask"):
        first = ann.form(path, {**form, "statement": f'SELECT SUM(nobody) FROM "{name}"', "do": do})
        assert "<mark>nobody</mark>" in first.text
        assert "line 1, column 12:" in first.text
    nothing = ann.form(path, {**form, "statement": f'SELECT sex FROM "{name}" LIMIT 0', "do": "price"})
    assert "What it would cost" in nothing.text


def test_a_statement_is_paid_for_as_it_was_shown(service: Service, ann: Visitor, name: str) -> None:
    """Nothing is asked but the very statement whose price was shown, in that session and for that price at most.
    Catches another text, another session, no price at all, and a price that has grown meanwhile."""
    path, caller = f"/console/datasets/{name}/sql", api(service, ann)
    words = {"dataset": name, "mechanism": {"construction": "gaussian"}, "epsilon": 0.1, "max_queries": 5}
    id, other = (caller.post("/v1/sessions", json=words).raise_for_status().json()["id"] for _ in range(2))
    wanted, another = (f'SELECT {what}, COUNT(*) FROM "{name}" GROUP BY {what}' for what in ("sex, age", "age"))
    form = {"session": id, "statement": wanted, "nonce": "m" * 20}
    shown = hidden(ann.form(path, {**form, "do": "price"}))
    assert float(shown["at_most"]) > 0
    for changes in ({"statement": another}, {"session": other}, {"seen": ""}, {"at_most": ""}, {"at_most": "0"}):
        page = ann.form(path, {**form, **shown, **changes, "do": "ask"}).text
        assert "Not asked" in page, changes
        assert "What it would cost" in page
    for each in (id, other):
        assert caller.get(f"/v1/sessions/{each}").json()["sequence"] == 0
    assert "The result" in ann.form(path, {**form, **shown, "do": "ask"}).text
    assert caller.get(f"/v1/sessions/{id}").json()["spent_epsilon"] <= float(shown["at_most"]) * (1 + 1e-9)


def test_a_release(service: Service, ann: Visitor, name: str) -> None:
    """The ways side by side, one taken once, its files. Catches a second release of two clicks, and one of another data
    set than was named."""
    page = ann.get("/console/releases/new", params={"dataset": name, "way": "2", "epsilon": "0.2"})
    assert "factorization" in page.text
    odd = ann.get("/console/releases/new", params={"dataset": name, "way": "2", "epsilon": "0,2"})
    assert "with a point before its decimals" in odd.text
    form = {"dataset": name, "way": "2", "epsilon": "0.2", "method": "factorization", "nonce": "n" * 20}
    taken = [ann.form("/console/releases", form).headers["location"] for _ in range(2)]
    assert taken[0] == taken[1]
    refused = (({"epsilon": "99"}, 422), ({"method": MARKUP}, 422), ({"epsilon": "x"}, 404), ({"dataset": "no"}, 404))
    for fields, status in refused:
        assert ann.form("/console/releases", {**form, **fields}).status_code == status
    id = taken[0].rpartition("/")[2]
    with api(service, ann).stream("GET", f"/v1/releases/{id}/events") as events:
        list(events.iter_lines())
    assert "Done" in ann.get(taken[0]).text
    told = api(service, ann).get(f"/v1/releases/{id}/data", headers={"Accept": "text/csv"}).content
    assert ann.get(f"{taken[0]}/files/answers.csv").content == told
    assert ann.get(f"{taken[0]}/files/answers.exe").status_code == 404
    assert ann.get(f"{taken[0]}/files/nothing.csv").status_code == 422


def test_the_list_of_sessions_goes_on_behind_a_release(
    ann: Visitor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of releases are left out of the list. Catches a list that ends where one was left out."""
    sessions = [opened(ann, name, epsilon="0.1").rpartition("=")[2] for _ in range(2)]
    sleep(1.1)  # sessions are in the order of their second
    form = {"dataset": name, "way": "1", "epsilon": "0.2", "method": "factorization", "nonce": "n" * 20}
    assert ann.form("/console/releases", form).status_code == 303
    sessions.append(opened(ann, name, epsilon="0.1").rpartition("=")[2])
    monkeypatch.setattr("app.http.console.pages.sessions._A_PAGE", 1)
    seen, place = [], "/console/sessions"
    while place:
        told = ann.get(place).text
        seen += re.findall(r'href="/console/sessions/([0-9a-f]{32})"', told)
        further = re.search(r'href="(/console/sessions\?before=[0-9a-f]{32})"', told)
        place = further[1] if further else ""
    assert sorted(seen) == sorted(sessions)


def test_tables_that_agree(service: Service, ann: Visitor, name: str) -> None:
    """What a session was told becomes a publication, free. Catches a form that spends, and one without its files."""
    page = ann.get(opened(ann, name))
    session = hidden(page)["session"]
    ask(ann, name, page, **{"by-0": "sex", "by-1": "age"})
    form = {"dataset": name, "tables": session, "method": "publication", "nonce": "n" * 20}
    assert session in ann.get("/console/releases/new", params={"dataset": name}).text
    place = ann.form("/console/releases", form).headers["location"]
    id = place.rpartition("/")[2]
    with api(service, ann).stream("GET", f"/v1/releases/{id}/events") as events:
        list(events.iter_lines())
    told = ann.get(place).text
    assert "It cost 0." in told
    for file in ("tables.xlsx", "manifest.json"):
        assert f"/files/{file}" in told
        assert ann.get(f"{place}/files/{file}").status_code == 200


def test_tables_without_values_are_said(service: Service, ann: Visitor) -> None:
    """Would catch a publication that lacks what was asked for, of which its page says that all is done."""
    numbers = {"name": "income", "lower": 0, "upper": 9, "grid": 1}
    spec = {"name": unique("console"), "kind": "table", "records_public": True, "budget": {"epsilon": 1, "delta": 1e-6}}
    rows = "income\n" + "5\n" * 20
    registered = register(service.admin, {**spec, "attributes": [numbers]}, rows.encode(), "rows.csv")
    assert registered.status_code == 201, registered.text
    client, body = api(service, ann), {"dataset": spec["name"], "method": "publication", "epsilon": 0}
    id = client.post("/v1/releases", json={**body, "tables": [{"type": "mean", "of": "income"}]}).json()["id"]
    with client.stream("GET", f"/v1/releases/{id}/events") as events:
        list(events.iter_lines())
    told = ann.get(f"/console/releases/{id}").text
    assert "nothing that was measured tells them, or they may be of nobody: table 1." in told


def test_refusals_of_lanes_are_said(ann: Visitor, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw is a page, too, and says that something may have been done."""

    def fault(*_: object) -> None:
        raise RuntimeError("boom")

    class Odd(CuratorError):
        code = "conflict"

    page = ann.get(opened(ann, name))
    monkeypatch.setattr(Answering, "submit", lambda *_: (_ for _ in ()).throw(Odd("odd")))
    assert "odd" in ask(ann, name, page, **{"by-0": "sex"}).text
