"""What a workspace and its settings can get wrong, found when the program starts."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.records import open_records
from lmagent.app.wiring import open_host
from lmagent.core.errors import ConfigError, LmagentError, StoreError


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("LLM", "LM", "XDG", "PERMISSION")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLM_URL", "http://127.0.0.1:9/v1")
    root = tmp_path / "ws"
    root.mkdir()
    return root


def opened(workspace: Path, **flags: object) -> tuple[Host, list[str]]:
    said: list[str] = []

    async def go() -> Host:
        host = await open_host(HostOptions(workspace, dict(flags)), say=said.append)
        await host.aclose()
        return host

    return anyio.run(go), said


def test_rules_are_kept_in_their_plain_form(workspace: Path) -> None:
    rules = ("write_file(./docs/)", "Search", f"effect:read({workspace}/secrets/**)", "mcp__x__y", "shell")
    host, _ = opened(workspace, permission_deny=rules)
    assert host.rules.deny == ("write(./docs)", "grep", "effect:read(secrets/**)", "mcp__x__y", "shell")


@pytest.mark.parametrize("rule", ["wirte(docs)", "write(/docs)"])
def test_a_rule_that_could_never_match_is_refused_with_where_it_was_written(workspace: Path, monkeypatch, rule) -> None:
    monkeypatch.setenv("LMAGENT_PERMISSION_DENY", rule)
    with pytest.raises(ConfigError, match="LMAGENT_PERMISSION_DENY") as caught:
        opened(workspace)
    assert rule in caught.value.message
    assert caught.value.fix


def test_instructions_that_are_not_sent_are_said_at_the_start(workspace: Path) -> None:
    (workspace / ".lmagent.md").symlink_to("/etc/passwd")
    _, said = opened(workspace)
    assert any(".lmagent.md is not sent: it is a symbolic link" in line for line in said)


def begin(workspace: Path) -> None:
    async def go() -> None:
        host = await open_host(HostOptions(workspace, {}), say=lambda _: None)
        try:
            await host.new_session()
        finally:
            await host.aclose()

    anyio.run(go)


@pytest.mark.parametrize("place", [".lmagent", ".lmagent/sessions"])
def test_records_go_nowhere_but_into_the_workspace(workspace: Path, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = workspace / place
    path.parent.mkdir(exist_ok=True)
    for target in (outside, "/nonexistent/x"):
        path.symlink_to(target)
        with pytest.raises(StoreError, match="is a symbolic link") as caught:
            begin(workspace)
        assert "mv " in caught.value.fix
        assert list(outside.iterdir()) == []
        path.unlink()
    path.write_text("x")
    with pytest.raises(LmagentError, match="is a file"):
        begin(workspace)
    path.unlink()
    begin(workspace)


def test_a_session_behind_a_link_is_not_gone_on_with(workspace: Path, tmp_path: Path) -> None:
    begin(workspace)
    (workspace / ".lmagent").rename(tmp_path / "elsewhere")
    (workspace / ".lmagent").symlink_to(tmp_path / "elsewhere")
    session = next((tmp_path / "elsewhere/sessions").iterdir()).name
    before = (tmp_path / "elsewhere/sessions" / session / "events.jsonl").read_bytes()

    async def go() -> None:
        host = await open_host(HostOptions(workspace, {}), say=lambda _: None)
        try:
            await host.open_session(session)
        finally:
            await host.aclose()

    with pytest.raises(StoreError, match="symbolic link"):
        anyio.run(go)
    assert (tmp_path / "elsewhere/sessions" / session / "events.jsonl").read_bytes() == before


def resumed_mode(workspace: Path, session: str = "", **flags: str) -> tuple[str, str]:
    """A session that is begun, or resumed, by a process of its own; its id and its mode."""

    async def go() -> tuple[str, str]:
        host = await open_host(HostOptions(workspace, dict(flags)), say=lambda _: None)
        try:
            opened = await host.open_session(session) if session else await host.new_session()
            return opened.state.session, opened.state.mode
        finally:
            await host.aclose()

    return anyio.run(go)


def test_the_mode_that_the_user_gave_to_a_session_holds_for_the_next_process(workspace: Path) -> None:
    session, _ = resumed_mode(workspace, permission_mode="auto")
    assert resumed_mode(workspace, session) == (session, "auto")
    assert resumed_mode(workspace, session, permission_mode="manual") == (session, "manual")
    assert resumed_mode(workspace, session) == (session, "manual"), "the last word counts"
    assert resumed_mode(workspace)[1] == "normal", "of that session alone"


def test_a_fork_has_the_mode_that_the_user_gave_to_its_session(workspace: Path) -> None:
    async def forked(session: str) -> str:
        host = await open_host(HostOptions(workspace), say=lambda _: None)
        try:
            return (await host.fork_session(session)).state.mode
        finally:
            await host.aclose()

    session, _ = resumed_mode(workspace, permission_mode="auto")
    assert anyio.run(forked, session) == "auto"
    assert resumed_mode(workspace, open_records(workspace).fork(session, None))[1] == "auto"


def test_a_mode_that_comes_with_a_checkout_does_not_hold(workspace: Path, tmp_path: Path) -> None:
    session, _ = resumed_mode(workspace, permission_mode="auto")
    checkout = tmp_path / "checkout"
    workspace.rename(checkout)
    assert resumed_mode(checkout, session) == (session, "normal")
