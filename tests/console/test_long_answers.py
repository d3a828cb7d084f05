"""Answers of many rows: how much of them a page shows, where it is made, and who waits for that."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from jinja2 import Template

from app.http.console.drawing import forest
from app.http.console.pages.sql import shortened
from curator_client.figures import Mark
from tests.kit.console import Visitor
from tests.kit.service import JSON, Service, head, raw, register, unique
from tests.kit.world import eventually

#: Values of each of two attributes: their table has 1,600 cells.
SIDE = 40
TABLE = {"type": "marginal", "attributes": ["x", "y"], "within": 40}
ROW = re.compile(r'<th scope="row" class="sub"')


@pytest.fixture
def name(service: Service) -> str:
    name = unique("wide")
    attributes = [{"name": each, "size": SIDE} for each in ("x", "y")]
    spec = {"name": name, "kind": "table", "records_public": True, "attributes": attributes}
    spec["budget"] = {"epsilon": 50.0, "delta": 1e-6}
    rows = "x,y\n" + "".join(f"{n % SIDE},{n % 7}\n" for n in range(200))
    assert register(service.admin, spec, rows.encode()).status_code == 201
    return name


@pytest.fixture
def key(service: Service) -> str:
    words = {"name": unique("ann"), "role": "analyst"}
    return str(service.admin.post("/v1/principals", json=words).json()["api_key"])


@pytest.fixture
def ann(service: Service, key: str) -> Iterator[Visitor]:
    with Visitor(service.url) as visitor:
        visitor.log_in(key)
        yield visitor


@pytest.fixture
def session(service: Service, key: str, name: str) -> JSON:
    """An open session in which the whole table was asked for, as entry 1."""
    caller = service.caller(key)
    opened: JSON = caller.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5, "max_queries": 20}).json()
    asked = caller.post(f"/v1/sessions/{opened['id']}/queries", json=TABLE, headers={"Idempotency-Key": "a"})
    assert len(asked.raise_for_status().json()["values"]) == SIDE * SIDE
    return opened


def rows_of(page: httpx.Response) -> int:
    assert page.status_code == 200, page.text
    return len(ROW.findall(page.text))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("numbers", "whole", "among", "rows", "further"),
    [
        (40, False, 1, 40, 0),
        (41, False, 1, 40, 41),
        (1000, True, 1, 1000, 0),
        (1001, False, 1, 40, 1000),
        (1001, True, 1, 1000, 0),
        (1001, True, 4, 250, 0),
        (1001, False, 500, 2, 0),
        (1001, True, 5000, 1, 0),
    ],
)
def test_rows_of_a_chart(numbers: int, whole: bool, among: int, rows: int, further: int) -> None:
    """Catches a chart of more rows than a page may have, and a click that would show no more than is there already."""
    marks = [Mark((str(n),), float(n), 1.0, (n - 2.0, n + 2.0)) for n in range(numbers)]
    chart = forest(["x"], marks, whole=whole, among=among)
    assert (len(chart.rows), chart.further, chart.in_all) == (rows, further, numbers)


@pytest.mark.api
def test_pages_show_a_thousand_rows(service: Service, ann: Visitor, key: str, name: str, session: JSON) -> None:
    """Of 1,600 numbers, whichever page shows them and whatever its address says; the files have all. Catches a page as
    long as its answer, one that does not say so, and a button that leads to what is shown already."""
    base = f"/console/sessions/{session['id']}/answers/1"
    desk = f"/console/datasets/{name}/ask?session={session['id']}&answer=1&like=1"
    measured = service.caller(key).get(f"/v1/datasets/{name}/measurements").json()["items"][-1]["id"]
    for page, whole in (
        (base, f"{base}?whole"),
        (desk, f"{desk}&whole=1"),
        (f"/console/datasets/{name}/measured/{measured}", f"/console/datasets/{name}/measured/{measured}?whole=1"),
    ):
        short, long = ann.get(page), ann.get(whole)
        assert rows_of(short) == 40
        assert "Show the first 1,000 of 1,600 rows" in short.text
        assert rows_of(long) == 1000
        assert "These are the first 1,000 of 1,600 rows." in long.text
        assert "Show the first" not in long.text
    assert len(ann.get(f"{base}.csv").text.splitlines()) == 1601


@pytest.mark.api
def test_results_of_statements(ann: Visitor, name: str, session: JSON) -> None:
    """1,000 rows of 1,600. Catches a page as long as its result, and one that does not say so."""
    form = {"session": session["id"], "statement": f'SELECT x, y, COUNT(*) FROM "{name}" GROUP BY x, y'}
    priced = ann.form(f"/console/datasets/{name}/sql", {**form, "do": "price"})
    told = dict(re.findall(r'name="(at_most|seen|nonce)" value="([^"]*)"', priced.text))
    page = ann.form(f"/console/datasets/{name}/sql", {**form, **told, "do": "ask"})
    assert "These are the first 1,000 of 1,600 rows." in page.text
    assert f'href="/console/sessions/{session["id"]}"' in page.text
    assert page.text.count("<tr>") == 1001


@pytest.mark.unit
@pytest.mark.parametrize(
    ("rows", "columns", "shown"),
    [(0, 0, 0), (1000, 6, 1000), (1001, 6, 1000), (1000, 40, 1000), (1000, 41, 975), (5, 40_001, 1)],
)
def test_cells_of_a_result(rows: int, columns: int, shown: int) -> None:
    """Catches a page as long as the rows of its result are wide, and one that keeps what it does not show."""
    result = {"columns": [{}] * columns, "rows": [[]] * rows, "notices": ["n"], "answers": [{}]}
    cut = shortened(result)
    assert (len(cut.pop("rows")), cut) == (shown, {"columns": [{}] * columns, "in_all": rows, "notices": ["n"]})


@pytest.mark.api
@pytest.mark.parametrize("seen", ["é", "\U0001f600", "seen"])
def test_a_mark_of_no_price(ann: Visitor, name: str, session: JSON, seen: str) -> None:
    """Catches text that is no ASCII where the mark of a price stands: it was an error of the server's."""
    form = {"session": session["id"], "statement": f'SELECT COUNT(*) FROM "{name}"', "at_most": "1", "seen": seen}
    page = ann.form(f"/console/datasets/{name}/sql", {**form, "do": "ask"})
    assert page.status_code == 200
    assert "Not asked" in page.text


@pytest.mark.api
def test_pages_are_made_beside_the_event_loop(
    ann: Visitor, service: Service, name: str, session: JSON, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a page that is made where all requests wait for it."""
    render, made, held_up = Template.render, [], []

    def watched(template: Template, *args: Any, **kwargs: Any) -> str:
        made.append(template.name)
        try:
            asyncio.get_running_loop()
            held_up.append(template.name)
        except RuntimeError:
            pass
        return render(template, *args, **kwargs)

    id, token = session["id"], ann.token()
    monkeypatch.setattr(Template, "render", watched)
    for path in (
        f"/console/sessions/{id}/answers/1",
        f"/console/datasets/{name}/ask?session={id}&answer=1",
        f"/console/datasets/{name}/sql",
        f"/console/datasets/{name}/what-if",
        f"/console/releases/new?dataset={name}",
    ):
        assert ann.get(path).status_code == 200
    statement = {"session": id, "statement": f'SELECT x, y, COUNT(*) FROM "{name}" GROUP BY x, y', "do": "price"}
    priced = ann.form(f"/console/datasets/{name}/sql", statement, token=token)
    told = dict(re.findall(r'name="(at_most|seen|nonce)" value="([^"]*)"', priced.text))
    ann.form(f"/console/datasets/{name}/sql", {**statement, **told, "do": "ask"}, token=token)
    ann.form(f"/console/datasets/{name}/ask/price", {"session": id, "kind": "count"}, token=token)
    assert len(made) == 8
    assert held_up == []


@contextmanager
def held(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """While the context lasts, nobody gets an entry; the list of those that were begun to be read."""
    transcripts = service.built.services.transcripts
    entry, begun, going = transcripts.entry, [], threading.Event()

    def waiting(actor: Any, id: str, sequence: int) -> JSON:
        begun.append(sequence)
        assert going.wait(60)
        return entry(actor, id, sequence)

    monkeypatch.setattr(transcripts, "entry", waiting)
    try:
        yield begun
    finally:
        going.set()


@pytest.mark.adversarial
@pytest.mark.parametrize("place", ["/v1/sessions/{id}/entries/1", "/console/sessions/{id}/answers/1.csv"])
def test_nobody_waits_for_answers_that_nobody_reads(
    service: Service, ann: Visitor, key: str, session: JSON, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty requests for one long answer would keep the server busy after their clients have gone, and everybody else
    waiting: all threads that requests share would read it. One turn of a principal reads it, and the others end."""
    path, cookie = place.format(id=session["id"]), "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
    other = service.principal("analyst")
    with ThreadPoolExecutor(1) as pool, held(service, monkeypatch) as begun:
        first = pool.submit(httpx.get, f"{service.url}{path}", headers=_headers(key, cookie), timeout=60)
        eventually(lambda: len(begun) == 1)
        request = head("GET", path, key, cookie=cookie).replace(b"Host: curator", b"Host: localhost")
        for _ in range(60):
            raw(service.address, request, hang_up=True)
        for _ in range(3):
            assert httpx.get(f"{service.url}/readyz", timeout=30).status_code == 200
            assert other.get("/v1/datasets").status_code == 200
        exports = service.built.context.exports
        eventually(lambda: not exports._waiting)
        assert begun == [1]
    assert first.result().status_code == 200
    assert begun == [1]


def _headers(key: str, cookie: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "Cookie": cookie}
