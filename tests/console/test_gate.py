"""Attacks on the console's gate: forms from elsewhere, other tokens, cookies and keys where they mean nothing, framing,
guesses, fixation, and addresses that lead away."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from app.http.console.gate import is_own_address
from tests.kit.console import Visitor, heading
from tests.kit.service import Service, raw, unique

pytestmark = [pytest.mark.adversarial, pytest.mark.api]


@pytest.fixture
def ann(service: Service) -> Iterator[Visitor]:
    """An analyst who has logged in, with her key as ``key``."""
    name = unique("ann")
    key = service.admin.post("/v1/principals", json={"name": name, "role": "analyst"}).json()["api_key"]
    with Visitor(service.url) as visitor:
        assert visitor.log_in(key).status_code == 303
        visitor.params = httpx.QueryParams()
        yield visitor
    service.admin.delete(f"/v1/principals/{name}")


def is_login(reply: httpx.Response) -> bool:
    return reply.status_code == 200 and heading(reply) == "Log in"


class TestFormsFromElsewhere:
    @pytest.mark.parametrize(
        ("site", "headers"),
        [
            ("cross-site", {}),
            ("same-site", {}),
            ("none", {}),
            ("cross-site", {"Origin": "OWN"}),
            (None, {}),
            (None, {"Origin": "https://evil.example"}),
            (None, {"Origin": "null"}),
            (None, {"Origin": "OWN.evil.example"}),
            (None, {"Origin": "//["}),
        ],
    )
    def test_they_do_nothing(self, service: Service, ann: Visitor, site: str | None, headers: dict[str, str]) -> None:
        """A page of somebody else has a browser send a form with its cookie. Would show if the cookie alone were enough
        to change anything."""
        own = {name: value.replace("OWN", service.url) for name, value in headers.items()}
        for token in ("", None):
            reply = ann.form("/console/me/end-all", {}, token=token, site=site, **own)
            assert reply.status_code == 403
            assert "not sent by a page of this server" in reply.text
        assert not is_login(ann.get("/console/me"))

    def test_of_a_browser_that_names_its_origin_alone(self, service: Service, ann: Visitor) -> None:
        """Catches a check that shuts out browsers that send no Sec-Fetch-Site."""
        assert ann.form("/console/theme", {}, site=None, Origin=service.url).status_code == 303

    @pytest.mark.parametrize("token", [None, "0" * 64, "ä", "f" * 63])
    def test_tokens_of_nobody(self, ann: Visitor, token: str | None) -> None:
        """A form without the token of its log-in. Would show if it were looked at by its length or not at all."""
        reply = ann.form("/console/me/end-all", {"all": "1"}, token=token)
        assert reply.status_code == 403
        assert "another log-in" in reply.text
        assert not is_login(ann.get("/console/me"))

    def test_tokens_of_others(self, service: Service, ann: Visitor) -> None:
        """An admin's token in an analyst's form, and one of her own other browser. Would show a token that stands for
        more than one log-in."""
        with Visitor(service.url) as other:
            other.log_in(service.admin_key)
            assert ann.form("/console/me/end-all", {}, token=other.token()).status_code == 403
            assert other.token() != ann.token()

    def test_what_looks_changes_nothing(self, service: Service, ann: Visitor) -> None:
        """An address that somebody was made to open. Would show a GET that ends a log-in or changes what pages look
        like: there is no such route."""
        before = ann.token()
        for path in ("/console/logout", "/console/login", "/console/me/end-all", "/console/me/end", "/console/theme"):
            assert ann.get(path, params={"token": before}).status_code in (404, 405)
        assert ann.token() == before

    @pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x"])
    def test_bodies_that_are_no_form(self, ann: Visitor, kind: str) -> None:
        """Would show a body that pages of others can send without being asked about."""
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": kind}
        assert ann.post("/console/me/end-all", content=b"token=x", headers=headers).status_code == 422

    @pytest.mark.parametrize(
        "body", [b"a=%ff", b"\xff=1", b"&".join(b"a=1" for _ in range(5000)), b"a" * 2_000_000, b"a=%00&token=%00"]
    )
    def test_bodies_that_cannot_be_read(self, service: Service, ann: Visitor, body: bytes) -> None:
        """Would show a form that is answered with a fault, or held without bounds."""
        kind = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        for path in ("/console/me/end-all", "/console/login"):
            assert ann.post(path, content=body, headers=kind).status_code in (403, 413, 422)
        assert not is_login(ann.get("/console/me"))


class TestCookiesAndKeys:
    def test_a_cookie_is_nothing_to_routes(self, service: Service, ann: Visitor) -> None:
        """A log-in's cookie at the API, as cookie and as key. Would show a way past the forms' tokens."""
        secret = ann.cookies["curator"]
        assert ann.get("/v1/datasets").status_code == 401
        with service.caller(secret) as caller:
            assert caller.get("/v1/datasets").status_code == 401

    def test_a_key_is_nothing_to_pages(self, service: Service) -> None:
        """A key as header and as cookie. Would show pages that a script with a key could read and send forms to."""
        for headers in (
            {"Authorization": f"Bearer {service.admin_key}"},
            {"Cookie": f"curator={service.admin_key}"},
            {"Cookie": f"__Host-curator={service.admin_key}"},
        ):
            assert is_login(httpx.get(f"{service.url}/console/me", headers=headers))

    def test_the_cookie_is_hidden_and_stays_here(self, service: Service) -> None:
        """Would show a cookie that scripts read, that other sites make browsers send, or that says who has it."""
        with Visitor(service.url) as visitor:
            said = visitor.log_in(service.admin_key).headers["set-cookie"]
        name, *flags = said.split("; ")
        assert re.fullmatch(r"curator=[\w-]{43}", name)
        assert {flag.lower() for flag in flags} == {"httponly", "max-age=43200", "path=/", "samesite=strict"}

    def test_over_tls_it_is_kept_to_this_host(self, service: Service) -> None:
        """Behind a proxy with TLS. Would show a cookie that another host of the domain could set, or that leaves in the
        clear."""
        # The server of this test believes no proxy: what one would have made of the request is put there by hand.
        app = service.built.app

        async def over_tls(scope: object, receive: object, send: object) -> None:
            if isinstance(scope, dict) and scope["type"] == "http":
                scope |= {"scheme": "https"}
            await app(scope, receive, send)  # type: ignore[arg-type]

        loop = service.built.context.delivery.loop
        assert loop is not None

        async def logged_in() -> httpx.Response:
            transport = httpx.ASGITransport(over_tls)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="https://stats.example") as client:
                form = {"key": service.admin_key}
                return await client.post("/console/login", data=form, headers={"Sec-Fetch-Site": "same-origin"})

        reply = asyncio.run_coroutine_threadsafe(logged_in(), loop).result(30)
        said = reply.headers["set-cookie"]
        assert said.startswith("__Host-curator=")
        assert "secure" in said.lower()
        assert "domain" not in said.lower()

    def test_a_secret_that_was_put_there_is_not_taken(self, service: Service) -> None:
        """Fixation: a cookie that somebody else chose is there before the log-in. Would show a log-in under it."""
        with Visitor(service.url) as visitor:
            visitor.cookies.set("curator", "A" * 43)
            visitor.log_in(service.admin_key)
            secrets = [cookie.value for cookie in visitor.cookies.jar]
        assert any(value != "A" * 43 for value in secrets)
        assert is_login(httpx.get(f"{service.url}/console/me", cookies={"curator": "A" * 43}))

    def test_a_log_in_ends_the_one_before(self, service: Service) -> None:
        """Would show an old secret that still works when somebody else has logged in with the same browser."""
        with Visitor(service.url) as visitor:
            visitor.log_in(service.admin_key)
            old = visitor.cookies["curator"]
            visitor.log_in(service.admin_key)
            assert visitor.cookies["curator"] != old
        assert is_login(httpx.get(f"{service.url}/console/me", cookies={"curator": old}))

    def test_a_form_is_not_played_again_after_the_log_out(self, service: Service, ann: Visitor) -> None:
        """Would show a log-in that ends in the browser alone."""
        token, secret = ann.token(), ann.cookies["curator"]
        assert ann.form("/console/logout", {}).status_code == 303
        with Visitor(service.url) as thief:
            thief.cookies.set("curator", secret)
            reply = thief.form("/console/theme", {"theme": "dark"}, token=token)
        assert (reply.status_code, heading(reply)) == (403, "Log in")

    def test_a_key_that_is_gone_logs_out(self, service: Service) -> None:
        """Would show a log-in that outlives its key, revoked or replaced."""
        name = unique("bob")
        key = service.admin.post("/v1/principals", json={"name": name, "role": "analyst"}).json()["api_key"]
        with Visitor(service.url) as visitor:
            visitor.log_in(key)
            key = service.admin.post(f"/v1/principals/{name}/key").json()["api_key"]
            assert is_login(visitor.get("/console/me"))
            visitor.log_in(key)
            assert not is_login(visitor.get("/console/me"))
            service.admin.delete(f"/v1/principals/{name}")
            assert is_login(visitor.get("/console/me"))


class TestGuesses:
    def test_they_take_their_time(self, service: Service) -> None:
        """Would show a form by which keys are guessed faster than by the API."""
        before = service.rows("console_logins")
        with Visitor(service.url) as visitor:
            began = time.monotonic()
            for key in ("cur_" + "x" * 43, "", "ä" * 40, "no such-key"):
                reply = visitor.log_in(key)
                assert reply.status_code == 403
                assert "No such key." in reply.text
                assert not key or key not in reply.text
            assert time.monotonic() - began >= 4 * 0.25
        assert service.rows("console_logins") == before

    def test_the_secret_and_the_key_are_kept_nowhere(self, service: Service) -> None:
        """Would show a database whose reader could use what it holds."""
        with Visitor(service.url) as visitor:
            visitor.log_in(service.admin_key)
            secret, token = visitor.cookies["curator"], visitor.token()
        for held in (secret, token, service.admin_key):
            assert held not in service.stored()


class TestAddresses:
    @pytest.mark.parametrize(
        "then",
        [
            "https://evil.example/console",
            "//evil.example/console",
            "/console/../../v1",
            "/console/\\evil",
            "/consolex",
            "/v1/datasets",
            "javascript:alert(1)",
            "/console/\r\nSet-Cookie: curator=x",
            "/console/ä",
            "\t/console",
        ],
    )
    def test_a_log_in_leads_nowhere_else(self, service: Service, then: str) -> None:
        """A link that asks for a log-in and then for another server. Would show a redirect away, or a second header."""
        assert not is_own_address(then)
        with Visitor(service.url) as visitor:
            reply = visitor.log_in(service.admin_key, then)
        assert reply.headers["location"] == "/console"
        assert len(reply.headers.get_list("set-cookie")) == 1

    def test_hosts_that_are_not_this_machine_are_told_why(self, service: Service) -> None:
        """A name that somebody's server points at this machine, and plain HTTP from elsewhere. Would show a log-in that
        whoever listens could take."""
        for host in (
            "evil.example",
            "stats.example:8000",
            "192.168.1.7",
            "[::ffff:10.0.0.1]",
            "",
            "127.0.0.1.evil.example",
        ):
            head = f"GET /console HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            reply = raw(service.address, head.encode())
            assert reply is not None
            assert reply.status == 403, host
            assert b"TLS" in reply.body

    def test_pages_of_nothing(self, service: Service, ann: Visitor) -> None:
        """Would show a fault in the place of a page, or a page of another role that is told from one that is not."""
        for path in ("/console/nothing", "/console/people/..%2f", "/console/%00", "/console/datasets/" + "x" * 3000):
            reply = ann.get(path)
            assert reply.status_code == 404, path
            assert "<h1>" in reply.text
        assert ann.post("/console/nothing").status_code in (404, 405)


class TestEveryPage:
    PATHS = ("/console", "/console/me", "/console/nothing", "/console/datasets")

    def test_nothing_is_framed_kept_or_loaded_from_elsewhere(self, ann: Visitor) -> None:
        """Would show a page that another one may frame, that a shared machine keeps, or in which markup of a stranger
        would run."""
        for path in self.PATHS:
            headers = ann.get(path, follow_redirects=False).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
            assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["x-content-type-options"] == "nosniff"

    def test_what_they_load_is_kept_and_changes_with_its_address(self, service: Service, ann: Visitor) -> None:
        """Would show a style sheet that is asked for on each page, or an old one after an upgrade."""
        page = ann.get("/console/me").text
        for path in re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page):
            reply = httpx.get(f"{service.url}{path}")
            assert reply.status_code == 200
            assert "immutable" in reply.headers["cache-control"]
            other = httpx.get(f"{service.url}{re.sub('static/[0-9a-f]+', 'static/' + '0' * 16, path)}")
            assert other.status_code == 404

    def test_the_templates_put_no_style_or_script_into_pages(self, ann: Visitor) -> None:
        """Would show markup that the policy forbids."""
        for path in self.PATHS:
            text = ann.get(path, follow_redirects=True).text
            assert not re.search(r"<[^>]*\s(style|on\w+)=", text)
            assert not re.search(r"<style|<script(?![^>]*\ssrc=)", text)

    def test_who_logs_in_at_the_log_in_goes_on_to_the_first_page(self, service: Service) -> None:
        """Its own address is no page. Would catch a good key that ends at nothing."""
        with Visitor(service.url) as visitor:
            assert heading(visitor.get("/console/login")) == "Log in"
            reply = visitor.log_in(service.admin_key, then="/console/login")
            assert (reply.status_code, reply.headers["Location"]) == (303, "/console")
            assert visitor.get("/console", follow_redirects=True).status_code == 200


class TestWhatWasSentMeanwhile:
    def test_it_is_kept_over_a_new_log_in(self, service: Service) -> None:
        """Would catch a form whose text is gone with its log-in, one that is sent without being asked for, and markup
        of it in the page."""
        with Visitor(service.url) as visitor:
            visitor.log_in(service.admin_key)
            token = visitor.token()
            visitor.form("/console/me/end-all", {})
            reply = visitor.form("/console/theme", {"theme": 'da"><b>rk'}, token=token)
            assert (reply.status_code, heading(reply)) == (403, "Log in")
            assert "<b>rk" not in reply.text
            fields = {"then": "/console/theme", "kept:theme": 'da"><b>rk', "kept:then": "/console/datasets"}
            again = visitor.form("/console/login", {"key": service.admin_key, **fields}, token=None)
            assert again.status_code == 200
            assert "<b>rk" not in again.text
            assert 'action="/console/theme"' in again.text
            assert visitor.token() in again.text

    def test_little_is_kept_of_whoever_has_no_log_in(self, service: Service) -> None:
        """Would catch a page as long as anybody likes, five times what he sent, and a large body that is read."""
        with Visitor(service.url) as visitor:
            reply = visitor.form("/console/theme", {"theme": "x" * 60_000}, token=None)
            assert (reply.status_code, heading(reply)) == (403, "Log in")
            assert "is kept in this page" in reply.text
            for sent in ('"' * 30_000, "x" * 900_000):
                reply = visitor.form("/console/theme", {"theme": sent}, token=None)
                assert (reply.status_code, heading(reply)) == (403, "Log in")
                assert "too long to be kept" in reply.text
                assert len(reply.content) < 10_000
            reply = visitor.form("/console/login", {"key": "wrong", "kept:theme": "x" * 900_000}, token=None)
            assert reply.status_code == 413
