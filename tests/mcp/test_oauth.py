"""Logins to servers over HTTP: a real authorization server on loopback, our own connection."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp_kit import Opened, Watcher, run
from starlette.responses import Response, StreamingResponse
from testkit.authserver import AuthServer, auth_server, query, redirect_of, visit

from lmagent.core.errors import LmagentError, ToolError
from lmagent.mcp.login import flow, kept
from lmagent.mcp.oauth import auth_of, is_logged_in, login, logout
from lmagent.mcp.spec import ServerSpec


@pytest.fixture(scope="module")
def running() -> Iterator[AuthServer]:
    with auth_server() as made:
        yield made


@pytest.fixture
def server(running: AuthServer) -> AuthServer:
    running.reset()
    return running


@pytest.fixture
def spec(server: AuthServer) -> ServerSpec:
    return ServerSpec("guarded", url=server.url)


def browser(address: str) -> bool:
    visit(address)
    return True


def logged_in(spec: ServerSpec, data: Path, said: list[str] | None = None) -> None:
    run(lambda: login(spec, data, (said if said is not None else []).append, browser))


def answer(spec: ServerSpec, data: Path) -> int:
    """The status of a request with the kept login."""

    async def ask() -> int:
        async with httpx2.AsyncClient(auth=auth_of(spec, data)) as http:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            return (await http.post(spec.url, json=message)).status_code

    return run(ask)


def edit(spec: ServerSpec, data: Path, **values: object) -> None:
    found = kept.load(data, spec)
    assert found is not None
    for name, value in values.items():
        setattr(found, name, value)
    kept.save(data, spec, found)


def test_a_server_asks_for_a_login_and_is_ready_after_it(server: AuthServer, spec: ServerSpec, opened: Opened) -> None:
    opened.auth = auth_of
    servers = opened.servers(spec)

    async def use() -> None:
        with pytest.raises(ToolError, match="lmagent mcp login guarded"):
            await servers.ready("guarded")
        assert servers.states()[0].status == "login"
        await login(spec, opened.data, lambda _text: None, browser)
        await servers.restart("guarded")
        assert [tool.name for tool in (await servers.ready("guarded")).tools] == ["write", "echo"]

    run(use)


def test_a_login_is_kept_for_its_user_alone_and_appears_in_no_text(spec: ServerSpec, tmp_path: Path) -> None:
    said: list[str] = []
    logged_in(spec, tmp_path, said)
    file = kept.login_file(tmp_path, spec)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = kept.load(tmp_path, spec)
    assert found is not None
    for secret in (found.access_token, found.refresh_token):
        assert secret
        assert secret not in "".join(said)
    assert is_logged_in(spec, tmp_path)


def test_a_server_that_sends_its_token_back_shows_it_nowhere_also_after_a_renewal(
    server: AuthServer, spec: ServerSpec, opened: Opened
) -> None:
    opened.auth = auth_of
    logged_in(spec, opened.data)
    servers = opened.servers(spec)
    seen: list[str] = []

    async def use() -> None:
        for fails in (False, True):
            try:
                seen.append(str(await servers.call("guarded", "echo", {"fails": fails}, Watcher())))
            except ToolError as failure:
                seen.append(str(failure))

    async def twice() -> None:
        await use()
        server.tokens.clear()  # the next call renews the login
        await use()
        log = servers.log("guarded")
        assert sum("sent Bearer [redacted]" in line for line in log) == 2

    run(twice)
    assert len(server.refreshes) == 1
    for text in seen:
        assert "Bearer [redacted]" in text
        assert "access-" not in text
    kept_login = kept.load(opened.data, spec)
    assert kept_login is not None
    assert {kept_login.access_token, kept_login.refresh_token} < set(servers.secrets)


def test_a_call_that_lacks_a_scope_asks_for_it_at_the_next_login(
    server: AuthServer, spec: ServerSpec, opened: Opened
) -> None:
    opened.auth = auth_of
    logged_in(spec, opened.data)
    servers = opened.servers(spec)

    async def use() -> None:
        with pytest.raises(ToolError, match="lmagent mcp login guarded"):
            await servers.call("guarded", "write", {}, Watcher())

    run(use)
    logged_in(spec, opened.data)
    assert server.asked_scopes == ["read", "read write"]


def test_the_address_that_a_browser_elsewhere_shows_can_be_pasted(spec: ServerSpec, tmp_path: Path) -> None:
    said: list[str] = []
    lines = ["what?", "http://[", "http://127.0.0.1:1/callback?code=x&state=wrong"]

    async def pasted() -> str:
        if lines:
            return lines.pop(0)
        return redirect_of(next(line for line in said if "/authorize?" in line))

    run(lambda: login(spec, tmp_path, said.append, lambda _address: False, pasted))
    assert sum(line.startswith("That is not the end of this login") for line in said) == 3
    assert answer(spec, tmp_path) == 200


def test_without_a_browser_a_code_is_entered_on_another_device(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    said: list[str] = []
    server.pending = 1
    run(lambda: login(spec, tmp_path, said.append, None))
    assert said == [f"Open {server.address}/enter on any device, and enter the code ABCD-1234"]
    assert answer(spec, tmp_path) == 200


def test_a_device_that_the_user_refuses_ends_the_login(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    server.answer = "deny"
    with pytest.raises(LmagentError, match="it was refused"):
        run(lambda: login(spec, tmp_path, lambda _text: None, None))


def test_a_redirect_with_another_state_is_refused_and_the_login_still_succeeds(
    spec: ServerSpec, tmp_path: Path
) -> None:
    pages: list[str] = []

    def attacked(address: str) -> bool:
        target = query(address)["redirect_uri"][0]
        pages.extend((visit(f"{target}?code=stolen&state=guessed"), visit(target.replace("callback", "other"))))
        pages.append(visit(address))
        return True

    run(lambda: login(spec, tmp_path, lambda _text: None, attacked))
    assert "not the login that lmagent waits for" in pages[0]
    assert "There is nothing here" in pages[1]
    assert "You can close this window" in pages[2]
    assert answer(spec, tmp_path) == 200


def test_a_login_that_the_user_denies_says_so(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    server.answer = "deny"
    with pytest.raises(LmagentError, match="refused in the browser") as refused:
        logged_in(spec, tmp_path)
    assert refused.value.fix == "lmagent mcp login guarded"
    assert not is_logged_in(spec, tmp_path)


def test_a_login_that_no_user_ends_is_given_up(
    spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "SECONDS", 0.6)
    with pytest.raises(LmagentError, match="there was no login within"):
        run(lambda: login(spec, tmp_path, lambda _text: None, lambda _address: False))


def test_a_server_that_is_down_is_named_in_one_line(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    nowhere = ServerSpec("gone", url="http://127.0.0.1:9/mcp")
    with pytest.raises(LmagentError, match="the login to gone failed: no connection") as down:
        logged_in(nowhere, tmp_path)
    assert "\n" not in down.value.message
    server.is_down = True
    with pytest.raises(LmagentError, match="the login to guarded failed"):
        logged_in(spec, tmp_path)


def test_an_expired_token_is_refreshed_before_it_is_sent(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path)
    edit(spec, tmp_path, expires=1.0)
    assert answer(spec, tmp_path) == 200
    assert len(server.refreshes) == 1
    assert answer(spec, tmp_path) == 200
    assert len(server.refreshes) == 1


def test_a_revoked_token_is_refreshed_and_a_revoked_login_is_given_up(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    logged_in(spec, tmp_path)
    server.tokens.clear()
    assert answer(spec, tmp_path) == 200
    server.tokens.clear()
    server.refresh_tokens.clear()
    assert answer(spec, tmp_path) == 401
    assert not is_logged_in(spec, tmp_path)


def test_a_refresh_that_gets_no_answer_keeps_the_login(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path)
    edit(spec, tmp_path, expires=1.0)
    server.tokens.clear()
    server.is_down = True
    assert answer(spec, tmp_path) == 401
    server.is_down = False
    assert answer(spec, tmp_path) == 200


@pytest.mark.parametrize("content", ["{", "[]", '{"url": "http://elsewhere/mcp"}', '{"url": 7}'])
def test_a_damaged_login_says_what_to_type_and_is_replaced_by_the_next(
    content: str, spec: ServerSpec, tmp_path: Path
) -> None:
    logged_in(spec, tmp_path)
    kept.login_file(tmp_path, spec).write_text(content)
    with pytest.raises(LmagentError, match="the kept login of guarded is") as damaged:
        auth_of(spec, tmp_path)
    assert damaged.value.fix == "lmagent mcp login guarded"
    logged_in(spec, tmp_path)
    assert answer(spec, tmp_path) == 200


def test_after_a_logout_nothing_is_kept_and_its_tokens_are_revoked(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    said: list[str] = []
    logged_in(spec, tmp_path)
    made = kept.load(tmp_path, spec)
    assert made is not None
    assert {made.access_token} <= server.tokens
    assert run(lambda: logout(spec, tmp_path, said.append))
    assert not {made.access_token, made.refresh_token} & (server.tokens | server.refresh_tokens)
    assert not run(lambda: logout(spec, tmp_path, said.append))
    assert auth_of(spec, tmp_path) is None
    assert said == []


def test_a_token_that_cannot_be_revoked_is_forgotten_and_the_user_is_notified(
    server: AuthServer, spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    async def nothing() -> AsyncGenerator[bytes]:
        await anyio.sleep_forever()
        yield b""

    logged_in(spec, tmp_path)
    made = kept.load(tmp_path, spec)
    assert made is not None

    def fails(why: str) -> None:
        assert run(lambda: logout(spec, tmp_path, said.append))
        assert not kept.login_file(tmp_path, spec).exists()
        assert said.pop().endswith(f"its token may hold until it expires: {why}")
        kept.save(tmp_path, spec, made)

    server.twists["/revoke"] = lambda _: Response(status_code=503)
    fails("the authorization server answered 503")
    edit(spec, tmp_path, revocation_endpoint="http://127.0.0.1:1/revoke")
    fails("no connection: ConnectError")
    server.twists["/revoke"] = lambda _: StreamingResponse(nothing())
    monkeypatch.setattr("lmagent.mcp.login.auth.REVOKE_SECONDS", 0.5)
    fails("the authorization server did not answer")


def test_a_key_of_the_users_own_is_left_alone(spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path)
    assert auth_of(ServerSpec("guarded", url=spec.url, headers={"authorization": "Bearer mine"}), tmp_path) is None
    assert auth_of(ServerSpec("program", ("true",)), tmp_path) is None


def test_two_processes_that_refresh_at_once_use_the_refresh_token_once(
    server: AuthServer, spec: ServerSpec, tmp_path: Path
) -> None:
    logged_in(spec, tmp_path)
    edit(spec, tmp_path, expires=1.0)
    script = (
        "import sys, anyio, httpx2; from pathlib import Path; from lmagent.mcp.oauth import auth_of; "
        "from lmagent.mcp.spec import ServerSpec\n"
        "async def ask():\n"
        "    auth = auth_of(ServerSpec('guarded', url=sys.argv[1]), Path(sys.argv[2]))\n"
        "    print('loaded', flush=True); sys.stdin.readline()\n"
        "    async with httpx2.AsyncClient(auth=auth) as http:\n"
        "        message = {'jsonrpc': '2.0', 'id': 1, 'method': 'tools/list'}\n"
        "        print((await http.post(sys.argv[1], json=message)).status_code)\n"
        "anyio.run(ask)"
    )
    command = [sys.executable, "-c", script, spec.url, str(tmp_path)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in both] == ["200\n", "200\n"]
    assert len(server.refreshes) == 1
    assert server.replayed == 0


def test_requests_at_once_refresh_a_token_once(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    logged_in(spec, tmp_path)
    server.tokens.clear()

    async def ask() -> list[int]:
        found: list[int] = []
        async with httpx2.AsyncClient(auth=auth_of(spec, tmp_path)) as http, anyio.create_task_group() as group:

            async def one() -> None:
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                found.append((await http.post(spec.url, json=message)).status_code)

            for _ in range(4):
                group.start_soon(one)
        return found

    assert run(ask) == [200] * 4
    assert len(server.refreshes) == 1


def test_the_command_logs_in_with_a_code_and_out_again(server: AuthServer, spec: ServerSpec, tmp_path: Path) -> None:
    folders = {"XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "HOME": "home"}
    env = {"PATH": os.environ["PATH"], **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    config = tmp_path / "config" / "lmagent" / "mcp.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"mcpServers": {"guarded": {"url": spec.url}}}))

    def lmagent(*arguments: str) -> str:
        command = [sys.executable, "-m", "lmagent", "mcp", *arguments]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout + done.stderr

    said = lmagent("login", "guarded", "--no-browser")
    assert "ABCD-1234" in said
    assert "logged in to guarded" in said
    assert not any(token in said for token in server.tokens)
    assert "logged out of guarded" in lmagent("logout", "guarded")
    lmagent("login", "guarded", "--no-browser")
    assert "its login is forgotten" in lmagent("remove", "guarded")
    assert not list((tmp_path / "data").rglob("logins/*.json"))
