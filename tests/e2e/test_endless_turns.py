"""What becomes of a turn whose model does not stop writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, call_raw, hang, say, think

CIRCLE = hang(say("and so on, " * 3000), chunks=2000)
"""A stream that repeats itself, and then stands still: whoever waits for its end waits for ever."""


def play(script: list[Any], workspace: Path) -> tuple[ev.TurnFinished, list[ev.Event], ScriptedServer]:
    """The end of a turn, the events shown, and the server."""
    shown: list[ev.Event] = []
    workspace.mkdir(exist_ok=True)

    async def main(server: ScriptedServer) -> ev.TurnFinished:
        flags = {"llm_url": server.base_url, "llm_model": "test-model", "permission_mode": "auto", "llm_retry_delay": 0}
        flags["agent_data_dir"] = str(workspace.parent / "data")
        host = await open_host(HostOptions(workspace, flags), say=print)
        session = await host.new_session()
        session.listen(shown.append)
        await session.send(Submit(message=user("Write a.txt.")))
        with anyio.fail_after(60):
            finished = await run_until_idle(session)
        await host.aclose()
        assert finished is not None
        return finished

    with ScriptedServer(script, strict=True) as server:
        return anyio.run(main, server), shown, server


def test_the_model_is_told_and_the_turn_goes_on(tmp_path: Path) -> None:
    script = [CIRCLE, call("write", path="a.txt", content="done\n"), say("Written.")]
    finished, shown, server = play(script, tmp_path / "w")
    assert (finished.outcome, finished.answer) == ("done", "Written.")
    assert (tmp_path / "w/a.txt").read_text() == "done\n"
    *_, begun, told = server.chats[1].body["messages"]
    assert begun["role"] == "assistant"
    assert begun["content"].startswith("and so on, ")
    assert len(begun["content"]) < 1000
    assert told["role"] == "user"
    assert "cut off" in told["content"]
    assert [event.code for event in shown if isinstance(event, ev.Notice)] == ["endless_reply"]
    assert server.prefix.breaks == []


def test_a_second_endless_reply_in_a_row_ends_the_turn_as_an_error(tmp_path: Path) -> None:
    circle = hang(think("Wait, once more. " * 2000), chunks=1500)
    finished, _, server = play([circle, CIRCLE, say("Written.")], tmp_path / "w")
    assert (finished.outcome, finished.cause) == ("error", "endless")
    assert "2 endless replies in a row" in finished.reason
    assert len(server.chats) == 2


def test_a_file_without_end_is_never_written(tmp_path: Path) -> None:
    endless = hang(call_raw("write", '{"path": "a.txt", "content": "' + "0," * 40_000), chunks=4)
    finished, shown, _ = play([endless, say("I could not write it.")], tmp_path / "w")
    assert finished.outcome == "done"
    assert not (tmp_path / "w/a.txt").exists()
    assert not [event for event in shown if isinstance(event, ev.ToolStarted)]
