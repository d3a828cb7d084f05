"""Pages of admins over HTTP: whose they are, what they need, what they show again, and what they never show."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import pytest

from tests.kit.console import Visitor, heading
from tests.kit.service import PEOPLE, Service, head, people, read_reply, register, unique

pytestmark = pytest.mark.api

#: A file whose values and whose rare category are found nowhere else.
CSV = (
    "age,sex,income\n"
    + "".join(f"{20 + i % 50},{'mf'[i % 2]},{7_310_001 + 13 * i}\n" for i in range(60))
    + "33,zebra,\n"
)
SPEC = {
    "kind": "table",
    "attributes": [
        {"name": "age", "lower": 0, "upper": 100, "grid": 1, "bins": 10},
        {"name": "sex", "values": ["m", "f"]},
    ],
    "outside": "drop",
    "budget": {"epsilon": 1, "delta": 1e-6},
}
#: Markup in all that may have it.
MARKUP = "<img src=x onerror=alert(1)>\"'"


@pytest.fixture(scope="module")
def admin(service: Service) -> Iterator[Visitor]:
    """The operator's browser."""
    with Visitor(service.url) as visitor:
        visitor.log_in(service.admin_key)
        yield visitor


@pytest.fixture(scope="module")
def survey(service: Service) -> str:
    """A data set on which somebody has asked, and somebody else has a grant."""
    name = people(service, access="granted")
    ann = service.principal("analyst", "ann")
    for who in ("ann", service.principal("analyst", "dora") and "dora"):
        service.admin.put(f"/v1/datasets/{name}/grants/{who}", json={"epsilon": 0.5})
    asked = {"dataset": name, "epsilon": 0.25, "max_queries": 9}
    session = ann.post("/v1/sessions", json=asked).json()["id"]
    for sex in ("male", "male", "female"):
        question = {"type": "predicate", "where": {"sex": [sex]}}
        assert ann.post(f"/v1/sessions/{session}/queries", json=question).status_code == 200
    return name


def paths(name: str) -> list[str]:
    own = ("", "/declaration", "/sessions", "/grants", "/ledger", "/commitment", "/retire")
    homes = ("/console/to-look-at", "/console")
    rest = ["/console/register", "/console/people", "/console/people/ann/key", "/console/people/ann/revoke"]
    return [f"/console/datasets/{name}{part}" for part in own] + [*rest, "/console/operation", *homes]


def send(
    visitor: Visitor, fields: dict[str, Any], csv: str | None = CSV, filename: str = "survey.csv"
) -> httpx.Response:
    """The form of a registration, as a browser sends it: the token first, and an empty file where none was chosen."""
    files: list[Any] = [
        ("token", (None, visitor.token())),
        *((name, (None, str(text))) for name, text in fields.items()),
    ]
    files.append(("data", (filename if csv is not None else "", csv or "", "text/csv")))
    return visitor.post("/console/register", files=files, headers={"Sec-Fetch-Site": "same-origin"})


def fields_of(reply: httpx.Response) -> dict[str, str]:
    """What a browser would send of the form that a page shows."""
    form = reply.text[reply.text.index('id="registering"') :]
    found: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", form):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        ticked = 'type="checkbox"' not in tag or " checked" in tag
        if name and ticked and 'type="file"' not in tag and name[1] != "token":
            found[name[1]] = unescape(value[1]) if value else "on"
    for name, text in re.findall(r'<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>', form, re.DOTALL):
        found[name] = unescape(text)
    for name, options in re.findall(r'<select [^>]*name="([^"]*)">(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options)
        first = re.search(r'<option(?: value="([^"]*)")?>([^<]*)', options)
        picked = chosen or first
        assert picked is not None
        found[name] = picked[2] if picked[1] is None else picked[1]
    return found


# ---------------------------------------------------------------------- whose pages


def test_pages_of_admins_are_no_pages_to_others(service: Service, survey: str) -> None:
    """Would show a page, or that there is one, to who has another role; and a form that does something for him."""
    before = service.stored()
    for role in ("analyst", "auditor"):
        key = service.admin.post("/v1/principals", json={"name": unique(role), "role": role}).json()["api_key"]
        before = service.stored()
        with Visitor(service.url) as other:
            other.log_in(key)
            token = other.token()
            for path in paths(survey):
                reply = other.get(path)
                books = path.rpartition("/")[2] in (survey, "declaration", "ledger")
                if path == "/console" or (role == "auditor" and books):
                    continue
                expected = 303 if path.endswith(survey) else 404
                assert reply.status_code == expected, (role, path)
            for path in (f"/console/datasets/{survey}/{act}" for act in ("grants", "commitment", "retire")):
                assert other.form(path, {"name": survey}, token=token).status_code == 404
            for path in ("/console/people", "/console/people/ann/key", "/console/people/ann/revoke"):
                assert other.form(path, {"name": "eve", "role": "admin"}, token=token).status_code == 404
            assert send(other, {"do": "check"}).status_code == 404
    after = service.stored()
    # The log-ins are there, and nothing else.
    assert [row for row in after.splitlines() if "console_logins" not in row] == [
        row for row in before.splitlines() if "console_logins" not in row
    ]


def test_auditors_see_the_books_and_nobody_in_them(service: Service, survey: str) -> None:
    """Would show who holds what to whom no route tells it, or a form to who may not use it."""
    key = service.admin.post("/v1/principals", json={"name": unique("auditor"), "role": "auditor"}).json()["api_key"]
    with Visitor(service.url) as auditor:
        auditor.log_in(key)
        for part in ("", "/declaration", "/ledger"):
            reply = auditor.get(f"/console/datasets/{survey}{part}")
            assert reply.status_code == 200
            main = reply.text[reply.text.index("<main") :]
            assert not re.search(r">ann<|dora|/grants|/retire|/commitment|<form", main)


@pytest.mark.parametrize("token", [None, "0" * 64])
def test_forms_need_their_token(service: Service, admin: Visitor, survey: str, token: str | None) -> None:
    """Would show a form of another page that works by the cookie alone."""
    before = service.stored()
    for path, fields in (
        (f"/console/datasets/{survey}/grants", {"principal": "ann", "epsilon": "0.1"}),
        (f"/console/datasets/{survey}/commitment", {"sure": "1"}),
        (f"/console/datasets/{survey}/retire", {"name": survey}),
        ("/console/people", {"name": "eve", "role": "admin"}),
        ("/console/people/ann/key", {"sure": "1"}),
        ("/console/people/ann/revoke", {"sure": "1"}),
    ):
        assert admin.form(path, fields, token=token).status_code == 403, path
    assert service.stored() == before


def test_what_looks_changes_nothing(service: Service, admin: Visitor, survey: str) -> None:
    """Would show an address that does something to whoever is made to open it."""
    before = service.stored()
    for path in paths(survey):
        assert admin.get(path, params={"name": survey, "token": admin.token()}).status_code == 200, path
    assert service.stored() == before


def test_what_is_not_there(admin: Visitor) -> None:
    """Catches a fault, or an empty page, in the place of a page that says so."""
    for part in ("", "/declaration", "/sessions", "/grants", "/ledger", "/commitment", "/retire"):
        for name in ("nobody", "%00", "x" * 300):
            assert admin.get(f"/console/datasets/{name}{part}").status_code == 404
    assert admin.get("/console/people", params={"after": "\0"}).status_code == 422
    assert admin.form("/console/people/nobody/key", {}).status_code == 404
    assert admin.form("/console/people/nobody/revoke", {}).status_code == 404
    assert admin.form("/console/people/admin/key", {}).status_code == 409


# ---------------------------------------------------------------------- what is shown again, and once


def test_what_is_refused_is_shown_again(admin: Visitor, survey: str) -> None:
    """Catches a form that is empty after a refusal, one that says it elsewhere than beside its field, and a refusal
    that looks like a success."""
    grants = f"/console/datasets/{survey}/grants"
    for fields, field, status in (
        ({"principal": "nobody", "epsilon": "0.5"}, "principal", 404),
        ({"principal": "ann", "epsilon": "much"}, "epsilon", 422),
        ({"principal": "ann", "epsilon": "7"}, "epsilon", 422),
        ({"principal": "ann", "epsilon": "nan"}, "epsilon", 422),
    ):
        reply = admin.form(grants, fields)
        assert reply.status_code == status
        assert f'id="{field}-refusal"' in reply.text
        for value in fields.values():
            assert f'value="{value}"' in reply.text
    for name, status in (("not a name", 422), ("ann", 409), (MARKUP, 422)):
        reply = admin.form("/console/people", {"name": name, "role": "auditor"})
        assert reply.status_code == status
        assert 'id="name-refusal"' in reply.text
        assert '<option value="auditor" selected>' in reply.text
        assert name in unescape(reply.text)
    reply = admin.form(f"/console/datasets/{survey}/retire", {"name": "another"})
    assert (reply.status_code, 'value="another"' in reply.text) == (422, True)


def test_a_grant_is_given_and_told(service: Service, admin: Visitor, survey: str) -> None:
    """Catches a cap that is not what was typed, and one whose promise is not told."""
    reply = admin.form(f"/console/datasets/{survey}/grants", {"principal": "dora", "epsilon": "0.125"})
    assert reply.status_code == 200
    assert "no guarantee of 0.125" in reply.text
    held = service.admin.get(f"/v1/datasets/{survey}/grants").json()["items"]
    assert {each["principal"]: each["epsilon"] for each in held}["dora"] == 0.125


def test_a_key_is_shown_once_and_kept_nowhere(service: Service, admin: Visitor) -> None:
    """Catches a key in the database, in another page or in a second reply; and one that is not the principal's."""
    name = unique("eve")
    for path, fields in (("/console/people", {"name": name, "role": "analyst"}), (f"/console/people/{name}/key", {})):
        reply = admin.form(path, fields)
        found = re.search(r'id="secret"[^>]*>(cur_[\w-]+)<', reply.text)
        assert found is not None
        key = found[1]
        assert reply.text.count(key) == 1
        assert reply.headers["cache-control"] == "no-store"
        assert key not in service.stored()
        for page in ("/console/people", "/console", f"/console/people/{name}/key"):
            assert "cur_" not in admin.get(page).text
        with service.caller(key) as caller:
            assert caller.get("/v1/datasets").status_code == 200
    assert admin.form(f"/console/people/{name}/revoke", {}).status_code == 303
    with service.caller(key) as caller:
        assert caller.get("/v1/datasets").status_code == 401


def test_a_commitment_is_revealed_on_demand_and_told(service: Service, admin: Visitor) -> None:
    """Catches a key that is on a page before it was asked for, and a revelation of which the log does not know."""
    name = people(service)
    path = f"/console/datasets/{name}/commitment"
    before = service.stored()
    assert 'id="secret"' not in admin.get(path).text
    assert service.stored() == before
    found = re.search(r'id="secret"[^>]*>([0-9a-f]{64})<', admin.form(path, {}).text)
    assert found is not None
    told = service.admin.post(f"/v1/datasets/{name}/commitment").json()
    assert told["key"] == found[1]
    assert service.stored() != before
    assert 'id="secret"' not in admin.get(path).text


def test_a_data_set_is_retired_by_its_name(service: Service, admin: Visitor) -> None:
    """Catches a file that is destroyed at a press, and pages of what is retired that are faults."""
    name = people(service)
    path = f"/console/datasets/{name}/retire"
    assert admin.form(path, {"name": name.upper()}).status_code == 422
    assert service.admin.get(f"/v1/datasets/{name}").json()["status"] == "registered"
    assert admin.form(path, {"name": f" {name} "}).status_code == 303
    assert service.admin.get(f"/v1/datasets/{name}").json()["status"] == "retired"
    for part in ("", "/sessions", "/grants", "/ledger", "/commitment", "/retire"):
        assert admin.get(f"/console/datasets/{name}{part}").status_code == 200
    assert admin.form(f"/console/datasets/{name}/commitment", {}).status_code == 409
    assert admin.form(path, {"name": name}).status_code == 404


# ---------------------------------------------------------------------- what they tell


def test_the_books_agree_with_the_routes(service: Service, admin: Visitor, survey: str) -> None:
    """By the ledger's own sums. Catches a drawing that tells of another amount than the figures beside it, and the
    question of somebody on the page of an admin."""
    budget = service.admin.get(f"/v1/datasets/{survey}").json()["budget"]
    text = admin.get(f"/console/datasets/{survey}").text
    drawn = re.search(r"<desc>The limit is 1\. .*? to ([\d.]+); ([\d.]+) is reserved", text)
    assert drawn is not None
    assert float(drawn[1]) == pytest.approx(budget["spent_epsilon"], rel=0.01)
    assert float(drawn[2]) == pytest.approx(budget["reserved_epsilon"], rel=0.01)
    assert "ann, session: " in text
    assert "dora has a grant and never opened a session" in text
    for part in ("", "/sessions", "/ledger", "/grants"):
        main = admin.get(f"/console/datasets/{survey}{part}").text
        assert not re.search(r"predicate|\bfemale\b", main[main.index("<main") :])


def test_forgotten_sessions_are_told(service: Service, admin: Visitor, survey: str) -> None:
    """Catches a session that is told to be forgotten although it was just asked, and a time that is not its last
    entry's."""
    (held,) = service.admin.get(f"/v1/datasets/{survey}/sessions").json()["items"]
    assert held["opened_at"] <= held["asked_at"]
    assert "was not asked for" not in admin.get("/console/to-look-at").text


def test_what_to_look_at(service: Service, admin: Visitor) -> None:
    """Catches a budget that is used up and not told, a part of the first page that is a whole one, and numbers of the
    first page that are not those of the lists."""
    name = people(service, budget={"epsilon": 1.0, "delta": 1e-6})
    ended = people(service)
    opened = service.admin.post("/v1/sessions", json={"dataset": name, "epsilon": 0.95, "max_queries": 9}).json()
    service.admin.post("/v1/sessions", json={"dataset": name, "epsilon": 0, "dummy": True, "max_queries": 9})
    service.admin.delete(f"/v1/datasets/{ended}")
    whole = admin.get("/console/to-look-at").text
    part = admin.get("/console/to-look-at", headers={"HX-Request": "true"}).text
    for text in (whole, part):
        assert f"{name} has little left to give" in text
    assert part.startswith("<section")
    assert whole.startswith("<!doctype html>")
    first = admin.get("/console").text
    listed = service.admin.get("/v1/datasets?limit=1000").json()["items"]
    registered = [each["name"] for each in listed if each["status"] == "registered"]
    sessions = [
        each
        for dataset in registered
        for each in service.admin.get(f"/v1/datasets/{dataset}/sessions?limit=1000").json()["items"]
    ]
    assert opened["id"] in {each["id"] for each in sessions}
    assert f"<dt>Open sessions</dt><dd>{sum(each['status'] == 'open' for each in sessions)}<" in first
    assert f"<dt>Data sets</dt><dd>{len(registered)}<small>{len(listed) - len(registered)} retired" in first
    assert ended in first


def test_lists_come_a_page_at_a_time(admin: Visitor, survey: str) -> None:
    """Catches a ledger that is read whole for a page, and a link that skips a movement."""
    path: str | None = f"/console/datasets/{survey}/ledger?limit=1"
    seen = 0
    while path is not None and seen < 50:
        text = admin.get(path).text
        seen += text.count('data-h="Part of epsilon"')
        following = re.search(r'href="([^"]*ledger\?limit=1&amp;after=[^"]*)"', text)
        path = unescape(following[1]) if following else None
    whole = admin.get(f"/console/datasets/{survey}/ledger").text.count('data-h="Part of epsilon"')
    assert seen == whole > 1


def test_markup_in_names_is_text(service: Service, admin: Visitor) -> None:
    """A declaration and a description full of markup. Would show a page in which it runs."""
    spec = {
        **PEOPLE,
        "name": unique("markup"),
        "description": MARKUP,
        "attributes": [{"name": MARKUP, "values": [MARKUP + "a", MARKUP + "b"]}],
        "access": "granted",
    }
    csv = f'"{MARKUP.replace(chr(34), chr(34) * 2)}"\n"{(MARKUP + "a").replace(chr(34), chr(34) * 2)}"\n'
    assert register(service.admin, spec, csv.encode()).status_code == 201
    for part in ("", "/declaration", "/grants", "/retire", "/commitment"):
        assert "<img" not in admin.get(f"/console/datasets/{spec['name']}{part}").text
    reply = send(admin, {"do": "check"}, csv)
    assert reply.status_code == 200
    assert MARKUP in unescape(reply.text)
    assert "<img" not in reply.text
    reply = send(admin, {**fields_of(reply), "name": MARKUP, "do": "register", "known": "on"}, csv, f"{MARKUP}.csv")
    assert reply.status_code == 422
    assert "<img" not in reply.text


def test_pages_have_no_style_and_no_script_of_their_own(admin: Visitor, survey: str) -> None:
    """Would show markup that the policy forbids."""
    for path in paths(survey):
        text = admin.get(path).text
        assert not re.search(r"<[^>]*\s(style|on\w+)=", text), path
        assert not re.search(r"<style|<script(?![^>]*\ssrc=)", text), path


# ---------------------------------------------------------------------- registering


def test_a_file_without_the_token_is_not_read(service: Service, admin: Visitor) -> None:
    """Of a body of a hundred million bytes a few come, and the refusal is there. Would show a server that holds the
    file of whoever makes a browser send one: with no token, with another one's, and with the file before the token."""
    free = service.built.context.body_memory.free
    cookie = f"curator={admin.cookies['curator']}"

    def part(name: str, text: str, filename: str | None = None) -> bytes:
        file = "" if filename is None else f'; filename="{filename}"'
        return f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{text}\r\n'.encode()

    for first in (
        part("token", "0" * 64),
        part("do", "check"),
        b"",
        part("do", "check") + part("token", admin.token()),
    ):
        request = head(
            "POST",
            "/console/register",
            Content_Type="multipart/form-data; boundary=b",
            Content_Length=100_000_000,
            Cookie=cookie,
            Sec_Fetch_Site="same-origin",
        ).replace(b"Host: curator", f"Host: {service.url.removeprefix('http://')}".encode())
        with socket.create_connection(service.address, timeout=30) as connection:
            connection.sendall(request + first + part("data", "a" * 1000, "x.csv"))
            reply = read_reply(connection.makefile("rb"))
        assert reply is not None
        assert reply.status == 403
        assert b"another log-in" in reply.body
    assert service.built.context.body_memory.free == free


def test_files_come_from_pages_of_this_server(admin: Visitor) -> None:
    """Would show a file that a page of somebody else has a browser send."""
    files = [("token", (None, admin.token())), ("data", ("x.csv", CSV))]
    for site in ("cross-site", "same-site", "none"):
        reply = admin.post("/console/register", files=files, headers={"Sec-Fetch-Site": site})
        assert reply.status_code == 403
    assert admin.form("/console/register", {"do": "check"}).status_code == 422


def test_a_registration_step_by_step(service: Service, admin: Visitor) -> None:
    """As a browser without scripts does it. Catches a draft that registers although nobody looked at it, a value that
    is kept from one step to the next, a declaration that is not the one on the page, and a report in another page."""
    before = service.stored()
    reply = send(admin, {"do": "check", "spec": ""})
    assert reply.status_code == 200
    assert reply.text.count("guessed from the file") == 3
    assert "10 counts ±" in reply.text
    assert "zebra" in reply.text  # of the file, for the admin who sent it
    assert service.stored() == before
    fields = fields_of(reply)
    name = unique("survey")
    fields |= {"name": name, "a1.values": "m\r\nf\r\nother", "a1.outside": "drop", "do": "register"}
    reply = send(admin, fields)
    assert reply.status_code == 422
    assert 'id="known-refusal"' in reply.text
    assert fields_of(reply)["a1.values"] == "m\nf\nother"
    assert service.stored() == before
    again = send(admin, {**fields, "known": "on"}, None)
    assert again.status_code == 422
    assert 'id="data-refusal"' in again.text
    reply = send(admin, {**fields, "known": "on"})
    assert (reply.status_code, heading(reply)) == (200, f"{name} is registered")
    assert "61 read, 60 kept" in reply.text
    declared = service.admin.get(f"/v1/datasets/{name}").json()
    assert declared["domain"]["attributes"][1] == {"name": "sex", "values": ["m", "f", "other"], "outside": "drop"}
    for path in [*paths(name), "/console/datasets"]:
        text = admin.get(path).text
        assert not re.search(r"zebra|61 read|60 kept", text), path
        assert not any(str(7_310_001 + 13 * i) in text for i in range(60)), path
    # The name is used: what was typed is shown again.
    reply = send(admin, {**fields, "known": "on"})
    assert reply.status_code == 409
    assert "names are never reused" in reply.text
    assert fields_of(reply)["a1.values"] == "m\nf\nother"


def test_what_is_declared_is_not_amber(service: Service, admin: Visitor) -> None:
    """A declaration of one's own, as JSON. Catches a box that has to be ticked for nothing, and one that need not be
    after the form was turned to JSON and back."""
    name = unique("own")
    reply = send(admin, {"do": "check", "spec": json.dumps({**SPEC, "name": name})})
    assert "guessed from the file" not in reply.text
    assert 'name="known"' not in reply.text
    assert send(admin, {**fields_of(reply), "do": "register"}).status_code == 200
    assert service.admin.get(f"/v1/datasets/{name}").status_code == 200

    reply = send(admin, {**fields_of(send(admin, {"do": "check"})), "do": "json"})
    assert json.loads(fields_of(reply)["spec"])["attributes"][1]["values"] == ["f", "m", "zebra"]
    assert 'name="known"' in reply.text
    assert send(admin, {**fields_of(reply), "do": "register"}).status_code == 422
    reply = send(admin, {**fields_of(reply), "do": "check"})
    assert reply.text.count("guessed from the file") == 3


@pytest.mark.parametrize(
    ("spec", "csv", "filename", "says"),
    [
        ("{", CSV, "x.csv", "spec"),
        ("[1]", CSV, "x.csv", "an object"),
        ("", "", "x.csv", ""),
        ("", CSV, "x.exe", ""),
        ("", "\x00\x01", "x.parquet", ""),
        (json.dumps({**SPEC, "name": "x", "budget": {"epsilon": "much"}}), CSV, "x.csv", "epsilon"),
        (json.dumps({"kind": "graph", "name": "g", "nodes": 5, "budget": SPEC["budget"]}), CSV, "x.csv", ""),
        (json.dumps({**SPEC, "name": "x", "attributes": [{"name": "no", "size": 2}]}), CSV, "x.csv", "no column"),
    ],
)
def test_what_cannot_be_registered(
    service: Service, admin: Visitor, spec: str, csv: str, filename: str, says: str
) -> None:
    """Catches a fault, a trace of a refused file, a value in a refusal, and a text that is gone with it."""
    before = service.stored()
    for do in ("check", "register"):
        reply = send(admin, {"do": do, "spec": spec, "known": "on"}, csv, filename)
        assert reply.status_code in (200, 422, 409)
        assert "refusal" in reply.text
        assert says in unescape(reply.text)
        assert "7310014" not in reply.text
    assert service.stored() == before


def test_values_of_a_refused_file_are_not_told(admin: Visitor) -> None:
    """Problems name rows and attributes. Catches a refusal that repeats what is private."""
    spec = {**SPEC, "name": "x", "outside": "refuse"}
    reply = send(admin, {"do": "check", "spec": json.dumps(spec)})
    assert "record 61" in reply.text
    assert "zebra" not in reply.text


def test_too_much_of_a_form(service: Service, admin: Visitor) -> None:
    """Catches a form whose fields are held without bounds, and one that names a million attributes."""
    many = [("token", (None, admin.token())), *(("a", (None, "1")) for _ in range(2500))]
    reply = admin.post("/console/register", files=many, headers={"Sec-Fetch-Site": "same-origin"})
    assert reply.status_code == 422
    assert send(admin, {"do": "json", "mode": "fields", "attributes": "9" * 400}).status_code in (200, 422)
    assert send(admin, {"do": "json", "mode": "fields", "attributes": "999"}).status_code in (200, 422)
    assert send(admin, {"do": "json", "mode": "fields", "rest": "[" * 5000}).status_code == 422


def test_a_data_set_may_be_called_as_a_page_is(service: Service, admin: Visitor) -> None:
    """Catches a page among those of data sets, at whose address one of that name is not found."""
    for name in ("new", "register", "ask"):
        assert register(service.admin, {**SPEC, "name": name}, CSV.encode(), "survey.csv").status_code == 201
        shown = admin.get(f"/console/datasets/{name}")
        assert (shown.status_code, heading(shown).split()[0]) == (200, name)
