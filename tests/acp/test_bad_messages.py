"""Bad input of an editor: each is answered by a clear error, and the next message is read."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from acp import RequestError
from acp_kit import LIMIT, Program, begun, text

from lmagent.testing import call, hang, say, status


async def exchanged(program: Program, *lines: str) -> list[dict]:
    """Send lines and the end of the input; return what was answered, line by line."""
    process = await program.start()
    out, err = await asyncio.wait_for(process.communicate("".join(f"{line}\n" for line in lines).encode()), LIMIT)
    assert process.returncode == 0
    assert b"Traceback" not in err
    return [json.loads(line) for line in out.splitlines()]


HELLO = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}})


def test_lines_that_are_no_messages_are_answered_by_an_error_and_the_next_one_is_read(served):
    program = served([])
    answers = asyncio.run(exchanged(program, "{not json", "[1, 2]", '"text"', "", '{"id": 1, "method": 5}', HELLO))
    assert [answer["error"]["code"] for answer in answers[:-1]] == [-32700, -32600, -32600, -32600]
    assert answers[-1]["id"] == 7
    assert answers[-1]["result"]["protocolVersion"] == 1
    assert answers[-1]["result"]["authMethods"] == []


def test_unknown_methods_and_wrong_fields_are_the_protocols_errors(served):
    program = served([])
    wrong = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": 5}})
    unknown = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "session/dance", "params": {}})
    login = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "authenticate", "params": {"methodId": "x"}})
    answers = {answer["id"]: answer for answer in asyncio.run(exchanged(program, wrong, unknown, login))}
    assert [answers[id]["error"]["code"] for id in (1, 2, 3)] == [-32602, -32601, -32601]


def test_folders_that_cannot_be_a_workspace_are_refused_in_words(served):
    program = served([])
    home = program.home
    (home / "file").write_text("x")
    refused = {
        "relative": "must be an absolute path",
        "/": "could change everything",
        str(home): "could change everything",
        f"{home}/none": "does not exist",
        f"{home}/file": "no folder",
        f"{home}/\0": "cannot be the path",
        f"{home}/\ud800": "cannot be the path",
    }

    async def scenario():
        async with program.editor() as (_, agent):
            for cwd, says in refused.items():
                with pytest.raises(RequestError, match=says):
                    await agent.new_session(cwd=cwd)
            with pytest.raises(RequestError, match="listed for a folder"):
                await agent.list_sessions()
            assert (await agent.new_session(cwd=str(program.workspace))).session_id

    asyncio.run(scenario())


def test_unknown_sessions_and_a_second_prompt_are_refused(served):
    program = served([hang(say("half of an answer, and more"), chunks=2)])

    async def scenario():
        async with program.editor() as (editor, agent):
            for method in (agent.load_session, agent.resume_session):
                with pytest.raises(RequestError, match="there is no session"):
                    await method(cwd=str(program.workspace), session_id="20200101_000000_abcdef", mcp_servers=[])
            with pytest.raises(RequestError, match="not open here"):
                await agent.prompt(session_id="../../etc", prompt=text("hi"))
            new = await agent.new_session(cwd=str(program.workspace))
            running = begun(agent.prompt(session_id=new.session_id, prompt=text("begin")))
            await editor.until(lambda: editor.text())
            with pytest.raises(RequestError, match="a turn is running"):
                await agent.prompt(session_id=new.session_id, prompt=text("and this"))
            with pytest.raises(RequestError, match="there is no mode"):
                await agent.set_session_mode(session_id=new.session_id, mode_id="yolo")
            await agent.cancel(session_id=new.session_id)
            assert (await asyncio.wait_for(running, LIMIT)).stop_reason == "cancelled"

    asyncio.run(scenario())


def test_answers_that_are_none_deny_the_call_and_the_connection_stays(served):
    program = served([call("write", path="b.txt", content="x"), say("Not written.")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))

            async def choose(call, options):
                id = next(m["id"] for _, m in editor.messages if m.get("method") == "session/request_permission")
                lines = [{"id": [1], "result": 1}, {"id": {}, "error": 5}, {"id": False, "result": 1}]
                for line in (*lines, {"id": id, "error": 5}):
                    editor.process.stdin.write(json.dumps(line).encode() + b"\n")
                return "once"

            editor.choose = choose
            done = await agent.prompt(session_id=new.session_id, prompt=text("write b.txt"))
            assert done.stop_reason == "end_turn"
            assert not (program.workspace / "b.txt").exists()

    asyncio.run(scenario())


def test_requests_for_one_session_at_once_leave_it_usable(served, tmp_path):
    program = served([say("Hello.")])
    other = tmp_path / "other"
    other.mkdir()

    async def scenario():
        async with program.editor() as (editor, agent):
            cwd = str(program.workspace)
            session = (await agent.new_session(cwd=cwd)).session_id
            with pytest.raises(RequestError, match="there is no session"):
                await agent.load_session(cwd=str(other), session_id=session)
            for load in [begun(agent.load_session(cwd=cwd, session_id=session)) for _ in range(3)]:
                await load
            await agent.prompt(session_id=session, prompt=text("hi"))
            assert editor.text() == "Hello."
            await agent.cancel(session_id="not open")
            closed = [begun(agent.close_session(session_id=session)) for _ in range(2)]
            await closed[0]
            with pytest.raises(RequestError, match="not open here"):
                await closed[1]

    asyncio.run(scenario())


def test_a_workspace_that_vanishes_while_a_question_waits_ends_the_prompt_with_an_error(served):
    program = served([call("write", path="b.txt", content="x")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))

            async def choose(call, options):
                shutil.rmtree(program.workspace)
                return "once"

            editor.choose = choose
            with pytest.raises(RequestError, match="log was deleted"):
                await asyncio.wait_for(agent.prompt(session_id=new.session_id, prompt=text("write")), LIMIT)
            with pytest.raises(RequestError, match="does not exist"):
                await agent.new_session(cwd=str(program.workspace))
            assert not program.workspace.exists()

    asyncio.run(scenario())


def test_a_model_server_that_fails_or_is_not_there_is_an_error_with_the_next_thing_to_do(served, tmp_path):
    program = served(lambda _: status(401))
    away = Program(tmp_path / "away", "http://127.0.0.1:9")

    async def failing(program: Program) -> str:
        async with program.editor() as (_, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            with pytest.raises(RequestError) as failure:
                await agent.prompt(session_id=new.session_id, prompt=text("hi"))
            return str(failure.value)

    assert "→" in asyncio.run(failing(program))
    refused = asyncio.run(failing(away))
    assert "127.0.0.1:9" in refused
    assert "→" in refused


def test_mcp_servers_that_come_after_the_folder_was_opened_are_named_as_unused(served):
    program = served([])
    server = {"name": "everything", "command": "/bin/true", "args": [], "env": []}

    async def scenario():
        async with program.editor() as (editor, agent):
            await agent.new_session(cwd=str(program.workspace))
            await agent.new_session(cwd=str(program.workspace), mcp_servers=[server])
            await editor.until(lambda: "everything" in editor.text())

    asyncio.run(scenario())


def test_started_by_hand_with_a_file_as_its_input_it_says_who_starts_it(served, tmp_path):
    program = served([])
    (tmp_path / "in").write_text("")
    with open(tmp_path / "in") as file:
        done = subprocess.run(
            program.command(), stdin=file, capture_output=True, text=True, env=program.env, timeout=LIMIT, check=False
        )
    assert done.returncode == 1
    assert "let an editor start it" in done.stderr
    assert done.stdout == ""


def test_a_folder_in_which_another_program_has_the_session_open_is_an_error(served):
    program = served([say("Hello.")])

    async def scenario():
        async with program.editor() as (_, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            async with program.editor() as (_, second):
                with pytest.raises(RequestError, match="process"):
                    await second.load_session(cwd=str(Path(program.workspace)), session_id=new.session_id)

    asyncio.run(scenario())
