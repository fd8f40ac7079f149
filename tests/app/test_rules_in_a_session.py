"""Permission rules from the settings down to what a model is told."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer, call, say


def results(workspace: Path, *calls, **flags: object) -> list[str]:
    """What the model is told of its calls, each in a step of its own."""

    async def go(url: str) -> None:
        options = HostOptions(workspace, {"llm_url": url, "llm_model": "m", "permission_mode": "auto", **flags})
        host = await open_host(options, say=lambda _: None)
        try:
            session = await host.new_session()
            await session.send(Submit(message=user("go")))
            await run_until_idle(session)
        finally:
            await host.aclose()

    with ScriptedServer([*calls, say("done.")]) as server:
        anyio.run(go, server.base_url)
        return [str(message["content"]) for message in server.chats[-1].messages if message["role"] == "tool"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "ws"
    (root / "secrets").mkdir(parents=True)
    (root / "secrets/k.txt").write_text("TOPSECRET=1\n")
    return root


@pytest.mark.parametrize("verdict", ["permission_deny", "permission_ask"])
def test_no_walker_brings_out_what_a_rule_keeps_back(workspace: Path, verdict: str) -> None:
    told = results(
        workspace,
        call("grep", pattern="TOPSECRET"),
        call("grep", pattern="TOPSECRET", paths=["./secrets"]),
        call("glob", pattern="**/k.txt"),
        call("ls", path="."),
        call("ls", path="/workspace/secrets"),
        call("use_tool", name="grep", arguments={"pattern": "TOPSECRET"}),
        **{verdict: ("effect:read(secrets)",)},
    )
    assert len(told) == 6
    assert not any("=1" in text or "k.txt  " in text or "secrets/k" in text for text in told), json.dumps(told)
    assert [index for index, text in enumerate(told) if "left out by permission rules" in text] == [0, 2, 3, 5]
    assert [index for index, text in enumerate(told) if text.startswith("Denied")] == [1, 4]


def test_a_nul_in_a_path_comes_back_to_the_model_in_words(workspace: Path) -> None:
    told = results(workspace, call("read", path="a\0b"), call("glob", pattern="a\0b/*"), call("ls", path="\0"))
    assert all("NUL" in text for text in told)
