"""A session in an editor: the protocol's own client, the real program, a scripted model."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from acp import RequestError
from acp_kit import LIMIT, begun, events, text
from testkit import tinymcp

from lmagent.testing import call, calls, hang, say, think, tool

SYSTEM_PYTHON = Path("/usr/bin/python3")
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db0"
        "0000000049454e44ae426082"
    )
).decode()


def test_a_prompt_with_an_approval_a_cancelled_one_a_load_and_a_list_follow_the_published_schema(served, schema):
    write = calls(tool("write", path="b.txt", content="x\n"), text="I write it.")
    program = served(
        [
            think("Which file?", write),
            say("It is written."),
            hang(say("And then more than one piece"), chunks=2),
            say("And now?"),
        ]
    )

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            done = await agent.prompt(session_id=new.session_id, prompt=text("write b.txt"))
            assert done.stop_reason == "end_turn"
            assert (program.workspace / "b.txt").read_text() == "x\n"
            assert editor.text("agent_thought_chunk") == "Which file?"
            assert editor.text().startswith("I write it.")
            assert editor.text().endswith("It is written.")
            ((question, options),) = editor.asked
            assert question.content[0].new_text == "x\n"
            assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
            assert options[1].name == "Always allow in this session: write"
            (announced,) = editor.of("tool_call")
            assert announced.locations[0].path == str(program.workspace / "b.txt")
            assert [update.status for update in editor.of("tool_call_update")] == ["in_progress", "completed"]

            running = begun(agent.prompt(session_id=new.session_id, prompt=text("and more")))
            await editor.until(lambda: "And" in editor.text())
            assert editor.of("agent_message_chunk")[-1].content.text.startswith("And")  # no gap begins a turn
            await agent.cancel(session_id=new.session_id)
            assert (await asyncio.wait_for(running, LIMIT)).stop_reason == "cancelled"
            assert editor.of("usage_update")[-1].size > 0
            listed = await agent.list_sessions(cwd=str(program.workspace))
            assert [row.session_id for row in listed.sessions] == [new.session_id]
            messages = editor.messages
        async with program.editor() as (editor, agent):
            loaded = await agent.load_session(cwd=str(program.workspace), session_id=new.session_id, mcp_servers=[])
            assert loaded.modes.current_mode_id == "normal"
            assert [chunk.content.text for chunk in editor.of("user_message_chunk")] == ["write b.txt", "and more"]
            assert editor.of("tool_call_update")[-1].content[0].type == "diff"
            assert "It is written." in editor.text()
            again = await agent.prompt(session_id=new.session_id, prompt=text("still there?"))
            assert again.stop_reason == "end_turn"
            assert editor.text().endswith("And now?")
            return messages + editor.messages

    messages = asyncio.run(scenario())
    assert schema.check_all(messages) > 40


@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason=f"needs {SYSTEM_PYTHON}, which the sandbox shows")
def test_an_mcp_server_that_the_editor_hands_over_is_used_in_its_sessions(served):
    program = served(
        [
            call("use_tool", name="describe", arguments={"name": "tiny"}),  # waits for its start
            call("use_tool", name="tiny_echo", arguments={"message": "hi"}),
            say("It said hi."),
        ]
    )
    tinymcp.put(program.workspace)
    server = {"name": "tiny", "command": str(SYSTEM_PYTHON), "args": [tinymcp.NAME], "env": []}

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace), mcp_servers=[server])
            await agent.prompt(session_id=new.session_id, prompt=text("say hi with tiny"))
            assert editor.text().endswith("It said hi.")
            ((question, _),) = editor.asked
            assert "tiny_echo" in question.title
            assert [update.status for update in editor.of("tool_call_update")][-1] == "completed"

    asyncio.run(scenario())


def test_a_rejected_call_is_not_run_and_always_is_asked_once(served):
    script = [
        call("write", path="no.txt", content="x"),
        say("Not written."),
        call("write", path="one.txt", content="1"),
        call("write", path="two.txt", content="2"),
        say("Both are written."),
    ]
    program = served(script)

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))

            async def choose(call, options, choice):
                return choice

            editor.choose = lambda call, options: choose(call, options, "reject")
            await agent.prompt(session_id=new.session_id, prompt=text("write"))
            assert not (program.workspace / "no.txt").exists()
            assert editor.of("tool_call_update")[-1].status == "failed"
            editor.choose = lambda call, options: choose(call, options, "always")
            await agent.prompt(session_id=new.session_id, prompt=text("write both"))
            assert (program.workspace / "two.txt").read_text() == "2"
            assert len(editor.asked) == 2

    asyncio.run(scenario())


def test_a_cancel_while_a_question_waits_ends_the_turn_and_denies_the_call(served):
    program = served([call("write", path="b.txt", content="x"), say("never")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            never = asyncio.Event()

            async def choose(call, options):
                await never.wait()
                return ""

            editor.choose = choose
            running = begun(agent.prompt(session_id=new.session_id, prompt=text("write")))
            await editor.until(lambda: editor.asked)
            await agent.cancel(session_id=new.session_id)
            assert (await asyncio.wait_for(running, LIMIT)).stop_reason == "cancelled"
            assert not (program.workspace / "b.txt").exists()
            never.set()

    asyncio.run(scenario())


def test_modes_and_models_are_chosen_and_a_plan_is_put_to_the_user(served, schema):
    plan = {
        "title": "Add b",
        "goal": "b.txt is there",
        "risk_areas": [],
        "steps": [{"id": "s1", "description": "write b.txt", "verification": "it is there"}],
    }
    planned = say(f"```json\n{json.dumps(plan)}\n```")
    program = served([planned, say("Which name should b.txt have?")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            assert {mode.id for mode in new.modes.available_modes} == {"auto", "normal", "manual", "plan"}
            assert {option.id for option in new.config_options} == {"mode", "model"}
            await agent.set_session_mode(session_id=new.session_id, mode_id="plan")
            assert editor.of("current_mode_update")[-1].current_mode_id == "plan"
            done = await agent.prompt(session_id=new.session_id, prompt=text("add b.txt"))
            (question, _), *_ = editor.asked
            assert question.title == "Plan"
            assert "write b.txt" in question.content[0].content.text
            assert done.stop_reason == "end_turn"
            assert editor.of("plan")[-1].entries[0].content == "write b.txt"
            assert editor.of("current_mode_update")[-1].current_mode_id == "normal"
            chosen = await agent.set_config_option(session_id=new.session_id, config_id="mode", value="auto")
            assert chosen.config_options[0].current_value == "auto"
            with pytest.raises(RequestError, match="there is no model"):
                await agent.set_config_option(session_id=new.session_id, config_id="model", value="none-such")
            schema.check_all(editor.messages)

    asyncio.run(scenario())


def test_slash_commands_are_offered_and_answered(served):
    program = served([say("unused")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            await editor.until(lambda: editor.of("available_commands_update"))
            names = {command.name for command in editor.of("available_commands_update")[0].available_commands}
            assert {"status", "compact", "plan", "undo"} <= names
            assert not names & {"quit", "new", "steer"}
            done = await agent.prompt(session_id=new.session_id, prompt=text("/session"))
            assert done.stop_reason == "end_turn"
            assert new.session_id in editor.text()
            await agent.prompt(session_id=new.session_id, prompt=text("/nothing"))
            assert "there is no command /nothing" in editor.text()

    asyncio.run(scenario())


def test_files_of_the_prompt_reach_the_model_and_a_blind_model_takes_no_image(served):
    bodies = []

    def script(received):
        bodies.append(json.dumps(received.fields))
        return say("Seen.")

    program = served(script)
    prompt = [
        {"type": "text", "text": "look at "},
        {"type": "resource_link", "uri": f"file://{program.workspace}/a.txt", "name": "a.txt"},
        {"type": "text", "text": " and at "},
        {"type": "resource", "resource": {"uri": f"file://{program.workspace}/b.txt", "text": "unsaved words"}},
    ]

    async def scenario():
        async with program.editor() as (_, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            await agent.prompt(session_id=new.session_id, prompt=prompt)
            assert "look at a.txt and at b.txt" in bodies[-1]
            assert "unsaved words" in bodies[-1]
            link = {"type": "resource_link", "uri": "http://[", "name": "x"}  # no address: shown as text
            await agent.prompt(session_id=new.session_id, prompt=[*text("look at "), link])
            assert "look at http://[" in bodies[-1]
            image = [*text("look"), {"type": "image", "data": PNG, "mimeType": "image/png"}]
            with pytest.raises(RequestError, match="takes no images"):
                await agent.prompt(session_id=new.session_id, prompt=image)
            with pytest.raises(RequestError, match="the message is empty"):
                await agent.prompt(session_id=new.session_id, prompt=text("  "))

    asyncio.run(scenario())


def test_unsaved_text_is_read_once_the_user_has_seen_it_and_no_call_changes_its_file(served):
    edit = {"path": "a.txt", "search": "alpha", "replace": "omega"}
    calls = [call("read", path="a.txt"), call("edit", **edit), call("read", path="a.txt")]
    program = served([*calls, say("It is not saved."), say("It is not saved.")])
    file = program.workspace / "a.txt"
    before = file.read_text()

    async def scenario():
        async with program.editor("--permission", "auto", reads=True) as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            editor.buffers[str(file)] = "alpha\nmine\n"
            answers = ["once", "reject"]

            async def choose(call, options):
                editor.buffers[str(file)] = "something else\n"  # not the text that the user was shown
                return answers.pop(0)

            editor.choose = choose
            with pytest.raises(RequestError, match="no file was changed"):
                await agent.prompt(session_id=new.session_id, prompt=text("edit a.txt"))
            (question, _), *_ = editor.asked
            assert "let the agent read them?" in question.title
            assert "+mine" in str(question.content), question.content
            return new.session_id

    session = asyncio.run(scenario())
    shown, edited, again = (event for event in events(program.workspace, session) if event["type"] == "tool.finished")
    assert "lines 1-2 of 2; the text in the user's editor, with unsaved changes]" in shown["content"]
    assert "mine" in shown["content"]
    assert (edited["status"], again["status"]) == ("error", "error")
    assert "nothing was changed" in edited["content"]
    assert "Ask the user to save it" in again["content"]
    assert file.read_text() == before


def test_a_file_with_unsaved_changes_is_read_after_the_user_has_saved_it_and_is_never_overwritten(served):
    edit = {"path": "a.txt", "search": "alpha", "replace": "omega"}
    script = [call("read", path="a.txt"), call("edit", **edit), call("edit", **edit), say("Done.")]
    program = served(script)
    file = program.workspace / "a.txt"

    async def scenario():
        async with program.editor("--permission", "auto", reads=True) as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            editor.buffers[str(file)] = "alpha\nmine\n"

            async def save(call, options):
                file.write_text("alpha\nmine\n")
                return "once"

            editor.choose = save
            await agent.prompt(session_id=new.session_id, prompt=text("edit a.txt"))
            (question, _), *_ = editor.asked
            assert "unsaved changes" in question.title
            assert file.read_text() == "omega\nmine\n"
            return new.session_id

    session = asyncio.run(scenario())
    results = [event for event in events(program.workspace, session) if event["type"] == "tool.finished"]
    assert "mine" in results[0]["content"]
    assert results[1]["status"] == "ok"
    assert results[2]["status"] == "error"  # the buffer is the older one by now
    assert "unsaved changes" in results[2]["content"]


def test_two_folders_have_sessions_of_their_own_in_one_process(served, tmp_path):
    program = served(lambda received: call("ls") if len(received.messages) < 4 else say("Seen."))
    other = tmp_path / "other"
    other.mkdir()
    (other / "only-here.txt").write_text("x")

    async def scenario():
        async with program.editor() as (editor, agent):
            first = await agent.new_session(cwd=str(program.workspace))
            second = await agent.new_session(cwd=str(other))
            async with asyncio.TaskGroup() as tasks:
                for new in (first, second):
                    tasks.create_task(agent.prompt(session_id=new.session_id, prompt=text("look")))
            shown = [update.content[0].content.text for update in editor.of("tool_call_update", second.session_id)[-1:]]
            assert "only-here.txt" in shown[0]
            await agent.close_session(session_id=second.session_id)
            with pytest.raises(RequestError, match="not open here"):
                await agent.prompt(session_id=second.session_id, prompt=text("look"))
            resumed = await agent.resume_session(cwd=str(other), session_id=second.session_id)
            assert resumed.modes.current_mode_id == "normal"

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["the editor leaves", "a signal"])
def test_a_turn_that_the_end_of_the_program_cuts_off_can_be_continued(served, how):
    program = served([hang(say("half of an answer, and more"), chunks=2), say("The rest.")])

    async def scenario():
        async with program.editor() as (editor, agent):
            new = await agent.new_session(cwd=str(program.workspace))
            running = begun(agent.prompt(session_id=new.session_id, prompt=text("begin")))
            await editor.until(lambda: editor.text())
            if how == "a signal":
                editor.process.terminate()
                with pytest.raises(ConnectionError):
                    await asyncio.wait_for(running, LIMIT)
            running.cancel()
        types = [event["type"] for event in events(program.workspace, new.session_id)]
        assert "turn.started" in types
        assert "turn.finished" not in types
        async with program.editor() as (editor, agent):
            await agent.load_session(cwd=str(program.workspace), session_id=new.session_id)
            await editor.until(lambda: "ended in the middle" in editor.text())
            done = await agent.prompt(session_id=new.session_id, prompt=text("continue"))
            assert done.stop_reason == "end_turn"
            assert editor.text().endswith("The rest.")

    asyncio.run(scenario())
