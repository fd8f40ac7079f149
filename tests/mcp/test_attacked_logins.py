"""Logins under attack: servers that lead elsewhere, send too much, quote secrets; and files that others can change."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_kit import run
from starlette.responses import JSONResponse, RedirectResponse, Response
from testkit.authserver import AuthServer, auth_server, query, visit

from lmagent.core.errors import LmagentError
from lmagent.mcp.login import auth, flow, kept
from lmagent.mcp.login.requests import leads_inside
from lmagent.mcp.oauth import auth_of, is_logged_in, login, logout
from lmagent.mcp.spec import OAuthClient, ServerSpec

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SECRET = "client-secret-1234"


@pytest.fixture(scope="module")
def running() -> Iterator[AuthServer]:
    with auth_server() as made:
        yield made


@pytest.fixture
def server(running: AuthServer) -> AuthServer:
    running.reset()
    return running


@pytest.fixture(scope="module")
def other() -> Iterator[AuthServer]:
    """Another authorization server, which must receive nothing."""
    with auth_server() as made:
        yield made


@pytest.fixture
def spec(server: AuthServer) -> ServerSpec:
    return ServerSpec("guarded", url=server.url)


def browser(address: str) -> bool:
    visit(address)
    return True


def failure(spec: ServerSpec, data: Path, opener: Callable[[str], bool] | None = browser) -> str:
    """The line that a failed login prints."""
    with pytest.raises(LmagentError, match="the login to guarded failed") as failed:
        run(lambda: login(spec, data, lambda _text: None, opener))
    assert "\n" not in failed.value.message
    assert not is_logged_in(spec, data)
    return failed.value.message


def logged_in(spec: ServerSpec, data: Path, **changes: Any) -> kept.KeptLogin:
    run(lambda: login(spec, data, lambda _text: None, browser))
    found = kept.load(data, spec)
    assert found is not None
    for name, value in changes.items():
        setattr(found, name, value)
    kept.save(data, spec, found)
    return found


async def answer(spec: ServerSpec, data: Path, method: str = "tools/list") -> int:
    async with httpx2.AsyncClient(auth=auth_of(spec, data)) as http:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "write"}}
        return (await http.post(spec.url, json=message)).status_code


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "issuer", "expected"),
    [
        ("https://169.254.169.254/latest", "", True),
        ("https://127.0.0.1:8443/token", "", True),
        ("https://[::1]/token", "", True),
        ("https://[::ffff:10.0.0.1]/token", "", True),
        ("https://localhost/token", "", True),
        ("https://192.168.1.1/reboot?now=1", "", True),
        ("https://8.8.4.4/token", "", False),
        ("https://10.1.2.3/token", "https://10.1.2.3/", False),  # the user names it
        ("https://10.1.2.4/token", "https://10.1.2.3/", True),
    ],
)
def test_a_server_on_the_internet_leads_to_no_address_inside(address: str, issuer: str, expected: bool) -> None:
    assert run(lambda: leads_inside("https://8.8.8.8/mcp", address, issuer)) is expected
    assert not run(lambda: leads_inside("https://192.168.1.7/mcp", address, issuer))


@pytest.mark.parametrize("url", ["https://8.8.8.8/mcp", "http://8.8.8.8/mcp"])
def test_neither_requests_nor_the_browser_are_led_inside(url: str) -> None:
    made = flow.Flow(ServerSpec("guarded", url=url), lambda _text: None, None, None, "")
    inside = f"{url.partition(':')[0]}://127.0.0.1:9/authorize"
    device = flow.DeviceAnswer("d", "ABCD", inside)
    for step in (
        lambda: made.fetch(httpx2.Request("GET", inside)),
        lambda: made.check_address(inside),
        lambda: made.show_device(device),
    ):
        with pytest.raises(Exception, match=r"leads to .*127\.0\.0\.1:9/authorize, which is not"):
            run(step)


def test_an_address_of_a_server_with_tls_must_have_it_too() -> None:
    made = flow.Flow(ServerSpec("guarded", url="https://8.8.8.8/mcp"), lambda _text: None, None, None, "")
    for step in (
        lambda: made.fetch(httpx2.Request("GET", "http://8.8.4.4/token")),
        lambda: made.show_device(flow.DeviceAnswer("d", "ABCD", "http://8.8.4.4/enter")),
    ):
        with pytest.raises(Exception, match="is not encrypted"):
            run(step)


# --- other authorization servers --------------------------------------------------------------------------------------


def test_metadata_of_another_issuer_is_refused(
    server: AuthServer, other: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    server.twists[METADATA] = lambda _form: JSONResponse(server.known(issuer=other.address))
    assert "issuer mismatch" in failure(spec, tmp_path)


def test_a_redirect_that_names_another_issuer_is_refused(
    server: AuthServer, other: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    server.twists["/token"] = lambda _form: Response(status_code=500)

    def mixed(address: str) -> bool:
        given = query(address)
        visit(f"{given['redirect_uri'][0]}?code=c-12345678&state={given['state'][0]}&iss={other.address}")
        return True

    assert "iss mismatch" in failure(spec, tmp_path, mixed)
    assert not server.received  # the code was sent nowhere


@pytest.mark.parametrize("path", ["/token", "/register", METADATA])
def test_a_redirect_to_another_server_is_not_followed(
    path: str, server: AuthServer, other: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    other.reset()
    other.twists[path] = lambda _form: Response(status_code=500)
    server.twists[path] = lambda _form: RedirectResponse(f"{other.address}{path}", status_code=307)
    if path == METADATA:  # counts as missing, and the login is at the server itself
        assert logged_in(spec, tmp_path).token_endpoint == f"{server.address}/token"
    else:
        failure(spec, tmp_path)
    assert not other.received


@pytest.mark.parametrize("opener", [browser, None])
def test_a_secret_goes_to_no_other_authorization_server_than_the_entry_names(
    opener: Callable[[str], bool] | None, server: AuthServer, tmp_path: Path
) -> None:
    client = OAuthClient("c-1", SECRET, issuer="https://auth.example")
    spec = ServerSpec("guarded", url=server.url, oauth=client)
    for path in ("/token", "/device"):
        server.twists[path] = lambda _form: Response(status_code=500)
    assert "its entry names https://auth.example" in failure(spec, tmp_path, opener)
    for path in (METADATA, RESOURCE):  # no metadata: the login is at the server itself
        server.twists[path] = lambda _form: Response(status_code=404)
    assert "has no metadata, and its entry names https://auth.example" in failure(spec, tmp_path, opener)
    assert not [path for path, _, _ in server.received if path in ("/token", "/device")]


def test_the_place_for_devices_is_the_authorization_servers_own(
    server: AuthServer, other: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    other.reset()
    other.twists["/device"] = lambda _form: Response(status_code=500)
    resource = {"resource": server.url, "authorization_servers": [server.address]}
    stolen = {**resource, "device_authorization_endpoint": f"{other.address}/device"}
    server.twists[RESOURCE] = lambda _form: JSONResponse(stolen)
    run(lambda: login(spec, tmp_path, lambda _text: None, None))
    assert not other.received


# --- answers ----------------------------------------------------------------------------------------------------------


def endless(_form: dict[str, str]) -> Response:
    return Response(b" " * 3_000_000)


@pytest.mark.parametrize("path", [METADATA, RESOURCE, "/register", "/token"])
def test_an_answer_that_is_too_long_ends_the_login(
    path: str, server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    server.twists[path] = endless
    assert "an answer is too long" in failure(spec, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b"\xff\xfe",
        b"null",
        b'{"access_token": 7}',
        b'{"access_token": "t-12345678", "token_type": "Bearer", "expires_in": "soon"}',
        b'{"access_token": "t-12345678", "token_type": "MAC"}',
        b'{"access_token": "t-12345678", "token_type": "Bearer", "expires_in": 1%s}' % (b"0" * 400),
    ],
)
@pytest.mark.parametrize("status", [200, pytest.param(400, marks=pytest.mark.long)])
def test_an_answer_that_is_none_is_one_line_without_the_token(
    status: int, content: bytes, server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    server.twists["/token"] = lambda _form: Response(content, status, media_type="application/json")
    assert "t-12345678" not in failure(spec, tmp_path)
    if content.startswith(b"["):
        for path in ("/device", METADATA):
            server.twists = {path: server.twists.get("/token", endless)}
            failure(spec, tmp_path, None)


@pytest.mark.parametrize("place", ["http://[", "http://a b/", "file:///etc/passwd"])
def test_a_place_of_metadata_that_is_no_address_is_one_line(
    place: str, server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{place}"'}
    server.twists["/mcp"] = lambda _form: Response(status_code=401, headers=challenge)
    failure(spec, tmp_path)


@pytest.mark.parametrize("opener", [browser, None])
def test_no_code_and_no_secret_is_in_the_error_of_a_login(
    opener: Callable[[str], bool] | None, server: AuthServer, tmp_path: Path
) -> None:
    """The server quotes all that it was sent."""
    spec = ServerSpec("guarded", url=server.url, oauth=OAuthClient("c-1", SECRET))

    def quoting(form: dict[str, str]) -> Response:
        quoted = [server.received[-1][2], form.get("code"), form.get("code_verifier"), form.get("device_code")]
        return JSONResponse({"error": "invalid_grant", "error_description": quoted}, status_code=400)

    server.twists["/token"] = quoting
    line = failure(spec, tmp_path, opener)
    assert "invalid_grant" in line
    assert line.count("[redacted]") == (3 if opener else 2)
    _, form, header = server.received[-1]
    for secret in (form.get("code"), form.get("code_verifier"), form.get("device_code"), header.split()[-1]):
        assert not secret or secret not in line


def test_an_endpoint_with_parameters_keeps_them_and_cannot_choose_the_state(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    endpoint = f"{server.address}/authorize?tenant=blue&state=guessed&x="
    server.twists[METADATA] = lambda _form: JSONResponse(server.known(authorization_endpoint=endpoint))
    opened: list[str] = []

    def attacked(address: str) -> bool:
        opened.append(address)
        given = query(address)
        assert "not the login" in visit(f"{given['redirect_uri'][0]}?code=stolen&state=guessed")
        visit(address.replace("state=guessed&", ""))
        return True

    run(lambda: login(spec, tmp_path, lambda _text: None, attacked))
    assert query(opened[0])["tenant"] == ["blue"]
    assert query(opened[0])["response_type"] == ["code"]


# --- the redirect and the device --------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(server: AuthServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        spec = ServerSpec("guarded", url=server.url, oauth=OAuthClient("c-1", port=port))
        assert f"port {port} for the redirect cannot be used" in failure(spec, tmp_path)


def test_a_server_that_wants_slower_polls_gets_them(server: AuthServer) -> None:
    device = flow.DeviceAnswer("d-1", "ABCD", "http://127.0.0.1/enter", interval=1.0)
    for expected in (6.0, 11.0):
        assert flow.is_pending(httpx2.Response(400, json={"error": "slow_down"}), device)
        assert device.interval == expected
    assert flow.is_pending(httpx2.Response(400, json={"error": "authorization_pending"}), device)
    assert device.interval == 11.0
    assert not flow.is_pending(httpx2.Response(400, json={"error": "invalid_grant"}), device)


def test_a_code_that_was_not_entered_in_time_says_so(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    server.twists["/token"] = lambda _form: JSONResponse({"error": "expired_token"}, status_code=400)
    assert "the code was not entered in time" in failure(spec, tmp_path, None)


# --- kept logins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_login_that_others_can_read_or_change_is_not_used(
    mode: int, server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    logged_in(spec, tmp_path)
    file = kept.login_file(tmp_path, spec)
    file.chmod(mode)
    with pytest.raises(LmagentError, match="the kept login of guarded is open to other users"):
        auth_of(spec, tmp_path)
    logged_in(spec, tmp_path)
    assert run(lambda: answer(spec, tmp_path)) == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_login_of_another_user_is_not_used(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path)
    os.chown(kept.login_file(tmp_path, spec), 12345, -1)
    with pytest.raises(LmagentError, match="belongs to another user"):
        auth_of(spec, tmp_path)


def test_a_missing_scope_is_noted_without_the_old_tokens(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    """Another process renewed the login, or the user logged out, while a call was on its way."""
    logged_in(spec, tmp_path)

    async def work(meanwhile: Callable[[], object]) -> None:
        async with httpx2.AsyncClient(auth=auth_of(spec, tmp_path)) as http:
            meanwhile()
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write"}}
            assert (await http.post(spec.url, json=message)).status_code == 403

    found = kept.load(tmp_path, spec)
    assert found is not None
    found.refresh_token = "renewed"
    run(lambda: work(lambda: kept.save(tmp_path, spec, found)))
    after = kept.load(tmp_path, spec)
    assert after is not None
    assert (after.refresh_token, after.wanted) == ("renewed", "read write")
    run(lambda: work(lambda: kept.forget(tmp_path, spec)))
    assert kept.load(tmp_path, spec) is None


def test_a_call_that_is_cancelled_does_not_lose_the_renewed_login(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    logged_in(spec, tmp_path, expires=1.0)

    async def work() -> None:
        with anyio.CancelScope() as scope:
            usual = server.refresh_tokens

            class Watched(set[str]):
                def discard(self, token: object) -> None:
                    super().discard(token)  # type: ignore[arg-type]
                    anyio.from_thread.run_sync(scope.cancel, token=handle)

            handle = anyio.lowlevel.current_token()
            server.refresh_tokens = Watched(usual)
            await answer(spec, tmp_path)

    run(work)
    assert len(server.refreshes) == 1
    assert run(lambda: answer(spec, tmp_path)) == 200
    assert len(server.refreshes) == 1


def test_a_renewal_that_gets_an_endless_or_no_answer_ends(
    server: AuthServer, spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in(spec, tmp_path, expires=1.0)
    server.tokens.clear()
    server.twists["/token"] = endless
    assert run(lambda: answer(spec, tmp_path)) == 401
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(auth, "REFRESH_SECONDS", 0.3)
        found = kept.load(tmp_path, spec)
        assert found is not None
        found.token_endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        kept.save(tmp_path, spec, found)
        assert run(lambda: answer(spec, tmp_path)) == 401
    assert is_logged_in(spec, tmp_path)


def test_a_logout_during_a_renewal_holds(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path, expires=1.0)

    async def work() -> None:
        async with anyio.create_task_group() as group:
            async with kept.alone(tmp_path, spec):  # a process renews it
                group.start_soon(logout, spec, tmp_path, print)
                await anyio.sleep(0.1)
                found = kept.load(tmp_path, spec)
                assert found is not None
                kept.save(tmp_path, spec, found)
        assert kept.load(tmp_path, spec) is None

    run(work)
