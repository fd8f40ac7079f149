"""What stands before every route and socket: Host, Origin, credentials, meant writes, and what an answer says."""

from __future__ import annotations

import pytest
from gateway_kit import Answer, Client
from serving_kit import PIN, TOKEN, Lab, lab
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from lmagent.core.errors import SandboxError
from lmagent.gateway.http.access import Done
from lmagent.gateway.http.guard import GuardRules
from lmagent.gateway.http.route import Call, Route, Socket, Talk


async def done(call: Call) -> Done:
    return Done()


async def fails(call: Call) -> Done:
    raise RuntimeError("the secret is 42")


async def refuses(call: Call) -> Done:
    raise SandboxError("it does not work", fix="do something else")


async def echo(talk: Talk) -> None:
    await talk.socket.accept()
    async for text in talk.socket.iter_text():
        await talk.socket.send_text(f"{talk.visitor.caller}: {text}")


async def broken(talk: Talk) -> None:
    raise RuntimeError("before it was accepted")


ROUTES = (
    Route("GET", "/api/things", done, "Read", answer=Done),
    Route("POST", "/api/things", done, "Write", answer=Done),
    Route("DELETE", "/api/things", done, "Delete", answer=Done),
    Route("GET", "/api/fails", fails, "Fail", answer=Done),
    Route("GET", "/api/refuses", refuses, "Refuse", answer=Done),
)
SOCKETS = (Socket("/ws/broken", broken), Socket("/ws/{session}", echo))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with lab(tmp_path_factory.mktemp("guard"), ROUTES, SOCKETS) as made:
        yield made


@pytest.fixture
def page(running: Lab) -> Client:
    answer = running.anyone.ask("POST", "/api/login", {"pin": PIN})
    return Client(running.port, {"Cookie": answer.headers["set-cookie"].partition(";")[0]})


MEANT = {"X-LMAgent-Request": "1"}


def refused(answer: Answer, status: int, code: str) -> bool:
    assert (answer.status, answer.code) == (status, code), answer.body
    return True


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7860",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#localhost",
        "localhost:7860:7860",
        "localhost:123456",
        "[::2]",
        "10.0.0.1",
        "2130706433",
        "0",
        "localhost/..",
        "local host",
        "user@localhost",
        "::1",
        "[localhost]",
        "0.0.0.0",
        "ⓛocalhost".encode().decode("latin-1"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/things", "/api/login", "/healthz", "/openapi.json"])
def test_a_wrong_host_gets_nothing_not_even_a_page(running, host, path):
    answer = running.ask("GET", path, headers={"Host": host})
    assert answer.status in (421, 400)  # 400: no host could be called so
    assert answer.code in ("wrong_host", "invalid_http")
    assert b"<" not in answer.body


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:80", "[::1]:7860", "a.localhost", "localhost."]
)
def test_this_machines_own_names_are_right(running, host):
    assert running.ask("GET", "/api/things", headers={"Host": host}).status == 200


def test_names_that_were_given_are_right_and_a_connections_own_address_is_beyond_loopback(tmp_path):
    with lab(tmp_path, ROUTES, rules=GuardRules(False, ("Agent.example", "phone.local")), bind="0.0.0.0") as open_lab:
        for host in ("agent.EXAMPLE:443", "phone.local", "127.0.0.1"):
            assert open_lab.ask("GET", "/api/things", headers={"Host": host}).status == 200
        for host in ("other.example", "10.0.0.1", "127.0.0.1.nip.example"):
            assert refused(open_lab.ask("GET", "/api/things", headers={"Host": host}), 421, "wrong_host")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost:1",
        "http://127.0.0.1",
        "http://[",
        "://",
        "file://",
        " ",
        "http://127.0.0.1:{port}.evil.example",
        "http://evil@127.0.0.1:{port}",
        "http://127.0.0.1:{port}@evil",
        "chrome-extension://127.0.0.1:{port}",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_foreign_page_may_not_even_read(running, page, origin, method):
    origin = origin.format(port=running.port)
    for client in (running, page):
        headers = {"Origin": origin, **MEANT}
        assert refused(client.ask(method, "/api/things", headers=headers), 403, "foreign_origin")
    assert refused(running.anyone.ask("POST", "/api/login", {"pin": PIN}, {"Origin": origin}), 403, "foreign_origin")


def test_our_own_page_may(running, page):
    own = {"Origin": f"http://127.0.0.1:{running.port}", **MEANT}
    assert page.ask("POST", "/api/things", headers=own).status == 200
    assert page.ask("GET", "/api/things", headers=own).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_embeds_or_links_to_is_not_answered_to_a_browser(running, page, site):
    assert refused(page.ask("GET", "/api/things", headers={"Sec-Fetch-Site": site}), 403, "foreign_origin")
    for own in ("same-origin", "none"):
        assert page.ask("GET", "/api/things", headers={"Sec-Fetch-Site": own}).status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    "header", [{}, {"X-LMAgent-Request": "0"}, {"X-LMAgent-Request": ""}, {"X-Requested-With": "1"}]
)
def test_a_browsers_write_has_to_be_meant(running, page, method, header):
    assert refused(page.ask(method, "/api/things", headers=header), 403, "not_meant")
    assert page.ask(method, "/api/things", headers=MEANT).status == 200
    assert running.ask(method, "/api/things", headers=header).status == 200  # a program's token is no cookie


def test_everything_but_what_is_open_needs_credentials(running):
    for method in ("GET", "POST", "DELETE"):
        assert refused(running.anyone.ask(method, "/api/things", headers=MEANT), 401, "no_credentials")
    for wrong in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", f"Token {TOKEN}"):
        assert refused(
            running.anyone.ask("GET", "/api/things", headers={"Authorization": wrong}), 401, "no_credentials"
        )
    for cookie in ("lmagent=", "lmagent=1.a~b", "lmagent=%00", "other=1", ";;=", "lmagent=6.\xff~\xff"):
        assert refused(running.anyone.ask("GET", "/api/things", headers={"Cookie": cookie}), 401, "no_credentials")
    assert running.anyone.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "token=x",
        "access_token=x",
        "TOKEN=x",
        "api_key=x",
        "pin=1",
        "a=1&token=",
        f"q={TOKEN}",
        f"x=a{TOKEN}b",
        "%74oken=x",
    ],
)
def test_tokens_in_addresses_are_refused(running, query):
    for path in ("/api/things", "/", "/healthz"):
        assert refused(running.ask("GET", f"{path}?{query}"), 400, "token_in_url")
        assert TOKEN not in running.ask("GET", f"{path}?{query}").body.decode()


def test_every_answer_says_what_a_browser_may_do_with_it(running):
    answers = [
        running.ask("GET", "/api/things"),
        running.ask("GET", "/nothing"),
        running.ask("PUT", "/api/things"),
        running.anyone.ask("GET", "/api/things"),
        running.ask("GET", "/", headers={"Host": "evil.example"}),
        running.ask("GET", "/api/fails"),
        running.anyone.ask("GET", "/open/x"),
    ]
    assert [answer.status for answer in answers] == [200, 404, 405, 401, 421, 500, 404]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert policy.endswith("require-trusted-types-for 'script'; trusted-types worker")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


def test_a_fault_is_told_without_its_words_and_said_in_one_line(running):
    running.said.clear()
    answer = running.ask("GET", "/api/fails")
    assert refused(answer, 500, "fault")
    assert b"42" not in answer.body
    assert len(running.said) == 1
    assert "RuntimeError: the secret is 42" in running.said[0]
    log = running.hub.host.workspace / ".lmagent" / "logs" / "lmagent.log"
    assert "test_gateway_guard.py" in log.read_text()


def test_what_our_errors_say_is_told(running):
    answer = running.ask("GET", "/api/refuses")
    assert answer.status == 503
    assert answer.json == {"error": {"code": "no_sandbox", "message": "it does not work", "fix": "do something else"}}


def test_what_is_not_there_and_what_is_not_taken_are_told_apart(running):
    assert refused(running.ask("GET", "/api/nothing"), 404, "not_found")
    wrong = running.ask("PUT", "/api/things")
    assert refused(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, POST, DELETE"
    for method in ("OPTIONS", "TRACE", "PATCH", "BREW", "get"):
        assert running.ask(method, "/api/things").status == 405
    head = running.ask("HEAD", "/api/things")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "11")


def test_a_link_logs_a_browser_in_once(running):
    ticket = running.access.link()
    assert running.anyone.ask("HEAD", f"/open/{ticket}").status == 200  # a look ahead uses nothing up
    first = running.anyone.ask("GET", f"/open/{ticket}")
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert Client(running.port, {"Cookie": cookie}).ask("GET", "/api/things").status == 200
    again = running.anyone.ask("GET", f"/open/{ticket}", headers={"Accept": "text/html"})
    assert again.status == 404
    assert "set-cookie" not in again.headers
    assert b"Enter the PIN" in again.body


def test_logging_out_takes_the_cookie_for_good(running, page):
    answer = page.ask("POST", "/api/logout", headers=MEANT)
    assert answer.headers["set-cookie"].startswith("lmagent=; ")
    assert refused(page.ask("GET", "/api/things"), 401, "no_credentials")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"pin": 1}', b'{"pin": null}', b"\xff", b'{"pn": "1"}'])
def test_a_login_that_is_none_is_told_so_and_costs_no_try(running, body):
    for _ in range(15):
        assert refused(running.anyone.ask("POST", "/api/login", body), 400, "invalid")
    assert running.anyone.ask("POST", "/api/login", {"pin": PIN}).status == 200


class TestSockets:
    def url(self, running: Lab, path: str = "/ws/a") -> str:
        return f"ws://127.0.0.1:{running.port}{path}"

    def talk(self, running: Lab, headers: dict[str, str], path: str = "/ws/a") -> str:
        with connect(self.url(running, path), additional_headers=headers, proxy=None) as socket:
            socket.send("hello")
            return str(socket.recv())

    def refusal(self, running: Lab, headers: dict[str, str], path: str = "/ws/a") -> tuple[int, bytes]:
        with pytest.raises(InvalidStatus) as caught:
            self.talk(running, headers, path)
        response = caught.value.response
        assert response.headers["x-content-type-options"] == "nosniff"
        return response.status_code, bytes(response.body or b"")

    def test_programs_and_browsers_get_theirs(self, running, page):
        assert self.talk(running, running.headers) == "token: hello"
        own = {"Origin": f"http://127.0.0.1:{running.port}"}
        assert self.talk(running, {**page.headers, **own}) == "page: hello"

    def test_others_are_refused_before_it_opens(self, running, page):
        assert self.refusal(running, {})[0] == 401
        for origin in ("null", "https://evil.example", "http://localhost:3000"):
            for headers in (running.headers, page.headers):
                status, body = self.refusal(running, {**headers, "Origin": origin})
                assert status == 403
                assert b"foreign_origin" in body
        assert self.refusal(running, {**running.headers, "Host": "evil.example"})[0] in (421, 400)
        assert self.refusal(running, running.headers, f"/ws/a?token={TOKEN}")[0] == 400
        assert self.refusal(running, running.headers, "/ws/a?access_token=x")[0] == 400
        assert self.refusal(running, running.headers, "/nothing")[0] == 404
        for wrong in ("/ws/activity", "/ws/..", "/ws/a%20b", "/ws/" + "a" * 65):
            assert self.refusal(running, running.headers, wrong)[0] == 400

    def test_a_fault_before_it_opens_is_told(self, running):
        running.said.clear()
        assert self.refusal(running, running.headers, "/ws/broken")[0] == 500
        assert len(running.said) == 1

    def test_a_socket_is_no_way_around_for_a_route(self, running):
        assert self.refusal(running, running.headers, "/api/things")[0] == 404
