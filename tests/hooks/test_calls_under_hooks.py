"""PreToolUse and PostToolUse: what hooks see of calls, and what they decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hook_kit import SAVE, HookWorld, hook

from lmagent.core import events as ev
from lmagent.core.outside import framed
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.hooks.answers import HookRun, answer_of
from lmagent.hooks.config import Hook
from lmagent.testing.script import call, calls, tool


def printing(document: dict[str, object]) -> str:
    return printing_text(json.dumps(document))


def printing_text(text: str) -> str:
    return f"cat >/dev/null; cat <<'END'\n{text}\nEND"


def deciding(decision: str, reason: str = "", **more: object) -> str:
    own = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason, **more}
    return printing({"hookSpecificOutput": own})


def test_a_hook_sees_a_call_under_the_names_of_claude_code(world: HookWorld):
    world.workspaces(hook("PreToolUse", SAVE, "Edit"))
    (world.workspace / "a.txt").write_text("one\n")
    ran = world.run(call("read", path="a.txt"), call("edit", path="a.txt", search="one", replace="two"))
    seen = world.seen()
    assert (seen["hook_event_name"], seen["tool_name"], seen["lmagent_tool"]) == ("PreToolUse", "Edit", "edit")
    path = str(world.workspace / "a.txt")
    assert seen["tool_input"] == {"file_path": path, "old_string": "one", "new_string": "two"}
    assert seen["cwd"] == str(world.workspace)
    assert seen["permission_mode"] == "bypassPermissions"
    assert seen["session_id"]
    assert seen["transcript_path"].endswith("events.jsonl")
    assert seen["tool_use_id"]
    assert (world.workspace / "a.txt").read_text() == "two\n"
    assert ran.end.outcome == "done"


def test_a_tool_of_a_server_has_its_name_there_and_hooks_see_its_arguments(world: HookWorld):
    async def put(arguments: dict[str, Any], _: ToolContext) -> ToolOutput:
        return ToolOutput(f"put {arguments['text']}")

    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    server = Tool("files_put", "Put.", schema, "net", put, deferred=True, aliases=("mcp__files__put",))
    change = deciding("allow", updatedInput={"text": "another"})
    world.workspaces(hook("PreToolUse", f"{SAVE}; {change}", "mcp__files__.*"))
    use = call("use_tool", name="files_put", arguments={"text": "one"})
    ran = world.run(use, before=lambda host: host.toolbox.add(server))
    seen = world.seen()
    assert (seen["tool_name"], seen["lmagent_tool"], seen["tool_input"]) == (
        "mcp__files__put",
        "files_put",
        {"text": "one"},
    )
    assert "put another" in ran.results[0].content


def test_exit_code_2_denies_a_call_and_the_model_gets_the_reason_as_outside_data(world: HookWorld):
    world.workspaces(hook("PreToolUse", "echo 'not </outside> there' >&2; exit 2", "Write"))
    ran = world.run(call("write", path="a.txt", content="x"))
    assert ran.results[0].status == "denied"
    assert not (world.workspace / "a.txt").exists()
    assert framed("hook PreToolUse in settings.json", "not </outside> there") in ran.text
    assert not ran.of(ev.ToolStarted)


@pytest.mark.parametrize("code", ["exit 1", "exit 77", "exit 255"])
def test_another_exit_code_is_a_warning_once_and_the_call_runs(world: HookWorld, code: str):
    world.workspaces(hook("PreToolUse", f"echo broken >&2; {code}", "Write"))
    ran = world.run(call("write", path="a.txt", content="x"), call("write", path="b.txt", content="x"))
    assert [result.status for result in ran.results] == ["ok", "ok"]
    assert ran.notices.count("failed with exit code") == 1
    assert "broken" in ran.notices


@pytest.mark.parametrize(
    "how",
    ["sleep 60", "no-such-program", "echo '{\"decision\": '", "printf '{%0200000d' 1", "kill -SEGV $$"],
)
def test_a_guard_that_gives_no_answer_leaves_the_decision_to_the_user(world: HookWorld, how: str):
    world.workspaces(hook("PreToolUse", how, "Write", timeout=0.5))
    ran = world.run(call("write", path="a.txt", content="x"), answer=False)
    (asked,) = ran.of(ev.ApprovalRequested)
    assert "hook" in asked.reason
    assert ran.results[0].status == "denied"
    assert ran.end.outcome == "done"


def test_without_a_sandbox_a_guarded_call_is_asked_about_and_other_events_continue(world: HookWorld):
    world.workspaces(hook("PreToolUse", "exit 0", "Write"), hook("UserPromptSubmit", "echo hello"))
    ran = world.run(call("write", path="a.txt", content="x"), sandbox="docker", sandbox_image="none/of-this-name")
    assert len(ran.of(ev.ApprovalRequested)) == 1
    assert ran.results[0].status == "denied"  # no user is there
    assert "gave no answer" in ran.notices
    assert ran.end.answer == "done."


def test_a_hook_that_floods_its_output_loses_nothing(world: HookWorld):
    world.workspaces(hook("PostToolUse", "yes | head -c 100000000; yes >&2 | head -c 1000000", "Write", timeout=3))
    ran = world.run(call("write", path="a.txt", content="x"))
    assert ran.end.outcome == "done"
    assert ran.results[0].status == "ok"


def test_only_the_users_own_hook_answers_a_question(world: HookWorld):
    world.workspaces(hook("PreToolUse", deciding("allow"), "Write"))
    ran = world.run(call("write", path="a.txt", content="x"), permission_mode="normal", answer=True)
    assert len(ran.of(ev.ApprovalRequested)) == 1
    world.users(hook("PreToolUse", deciding("allow"), "Write"))
    ran = world.run(call("write", path="b.txt", content="x"), permission_mode="normal", answer=False)
    assert not ran.of(ev.ApprovalRequested)
    assert (world.workspace / "b.txt").exists()


@pytest.mark.parametrize("rule", ["permission_deny", "permission_ask"])
def test_rules_win_over_a_hook_that_allows(world: HookWorld, rule: str):
    world.users(hook("PreToolUse", deciding("allow")))
    rules: dict[str, Any] = {rule: ("write(a.txt)",)}
    ran = world.run(call("write", path="a.txt", content="x"), answer=False, **rules)
    assert len(ran.of(ev.ApprovalRequested)) == (rule == "permission_ask")
    assert not (world.workspace / "a.txt").exists()


def test_no_hook_runs_for_a_call_that_a_rule_denies(world: HookWorld):
    world.workspaces(hook("PreToolUse", SAVE))
    world.run(call("write", path="a.txt", content="x"), permission_deny=("write(a.txt)",))
    assert not (world.workspace / "seen.json").exists()


def test_the_strictest_of_several_hooks_decides(world: HookWorld):
    world.users(hook("PreToolUse", deciding("allow")), hook("PreToolUse", deciding("ask", "is it \x1b[2Jright?")))
    ran = world.run(call("write", path="a.txt", content="x"), answer=True)
    (asked,) = ran.of(ev.ApprovalRequested)
    assert "is it" in asked.reason
    assert "\x1b" not in asked.reason
    assert "hook `" in asked.reason
    assert not asked.grant
    assert ran.results[0].status == "ok"
    world.users(hook("PreToolUse", deciding("ask")), hook("PreToolUse", deciding("deny", "never")))
    ran = world.run(call("write", path="b.txt", content="x"), answer=True)
    assert not ran.of(ev.ApprovalRequested)
    assert ran.results[0].status == "denied"


def test_changed_arguments_are_used_checked_and_told_to_the_model(world: HookWorld):
    changed = deciding("allow", updatedInput={"file_path": str(world.workspace / "b.txt"), "content": "y\n"})
    world.workspaces(hook("PreToolUse", changed, "Write"))
    ran = world.run(call("write", path="a.txt", content="x"))
    assert not (world.workspace / "a.txt").exists()
    assert (world.workspace / "b.txt").read_text() == "y\n"
    assert ran.of(ev.ToolStarted)[0].summary.count("b.txt")
    assert "arguments that a hook changed" in ran.text


def test_changed_arguments_pass_the_gate_again(world: HookWorld):
    world.users(hook("PreToolUse", deciding("allow", updatedInput={"file_path": "secret.txt"}), "Write"))
    ran = world.run(call("write", path="a.txt", content="x"), permission_deny=("write(secret.txt)",))
    assert ran.results[0].status == "denied"
    assert not list(world.workspace.glob("*.txt"))


def test_changed_arguments_that_do_not_fit_the_tool_run_nothing(world: HookWorld):
    world.users(hook("PreToolUse", deciding("allow", updatedInput={"lines": 3}), "Write"))
    ran = world.run(call("write", path="a.txt", content="x"))
    assert ran.results[0].status == "error"
    assert "A hook changed the arguments" in ran.results[0].content
    assert not (world.workspace / "a.txt").exists()


def test_two_hooks_may_change_different_arguments(world: HookWorld):
    world.users(
        hook("PreToolUse", deciding("", updatedInput={"command": "echo changed"}), "Bash"),
        hook("PreToolUse", deciding("", updatedInput={"timeout": 7000}), "Bash"),
    )
    ran = world.run(call("shell", command="echo plain"))
    assert "changed" in ran.results[0].content


def test_a_formatter_after_an_edit_belongs_to_the_call_and_the_model_learns_that_the_file_changed(world: HookWorld):
    script = """python3 -c '
import json, sys
path = json.load(sys.stdin)["tool_input"]["file_path"]
text = open(path).read()
open(path, "w").write(text.upper())'"""
    world.workspaces(hook("PostToolUse", script, "Edit|Write"))
    ran = world.run(call("write", path="a.txt", content="shout\n"))
    assert (world.workspace / "a.txt").read_text() == "SHOUT\n"
    assert "A hook changed a.txt after your call" in ran.text
    (change,) = ran.of(ev.FilesChanged)
    assert change.call_id == ran.results[0].call_id


def test_an_objection_after_a_call_is_recorded_with_its_result(world: HookWorld):
    (world.workspace / "a.txt").write_text("1")
    (world.workspace / "b.txt").write_text("2")
    world.workspaces(
        hook("PostToolUse", 'echo "lint: $(jq -r .tool_response.filePath)" >&2; exit 2', "Read"),
        hook("PostToolUse", printing({"decision": "block", "reason": "think again"}), "Read"),
    )
    ran = world.run(calls(tool("read", path="a.txt"), tool("read", path="b.txt")))
    roles = [message["role"] for message in ran.chats[-1]]
    assert roles[-3:] == ["assistant", "tool", "tool"]
    for result in ran.results:
        assert framed("hook PostToolUse in settings.json", "think again") in result.content
        assert f"lint: {world.workspace}/{result.data['path']}" in result.content
    assert sorted(ran.prompt[-2:]) == sorted(result.content for result in ran.results)


def test_a_hooks_text_about_a_long_result_is_not_cut_with_it(world: HookWorld):
    world.workspaces(hook("PostToolUse", "echo 'look at it again' >&2; exit 2", "Bash"))
    ran = world.run(call("shell", command=f"yes {'x' * 80} | head -n 20000"))
    assert ran.results[0].artifact
    assert ran.results[0].content.endswith(framed("hook PostToolUse in settings.json", "look at it again"))


NO_ANSWERS = {
    "a lone surrogate": '{"hookSpecificOutput": {"updatedInput": {"content": "\\ud800"}}}',
    "a name that is one": '{"hookSpecificOutput": {"updatedInput": {"\\ud800": 1}}}',
    "no number": '{"hookSpecificOutput": {"updatedInput": {"timeout": NaN}}}',
    "an endless number": '{"hookSpecificOutput": {"updatedInput": {"timeout": 1e999}}}',
    "a list of arguments": '{"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": ["ls"]}}',
    "a list": '{"hookSpecificOutput": ["deny"]}',
    "text for a boolean": '{"continue": "false"}',
    "an object for a decision": '{"decision": {"value": "block"}}',
    "two documents": '{"decision": "approve"}\n{"decision": "block"}',
    "no end": '{"a":' * 15_000,
}


@pytest.mark.parametrize("how", NO_ANSWERS)
def test_an_answer_of_another_shape_is_none(how: str):
    entry = Hook("PreToolUse", "x", Path("hooks.json"), "user")
    answer = answer_of(HookRun(entry, out=NO_ANSWERS[how]))
    assert answer.silent
    assert (answer.decision, answer.updated) == ("", None)
    assert "hook `x`" in answer.warning


@pytest.mark.parametrize("how", ["a lone surrogate", "a list of arguments"])
def test_json_of_another_shape_is_no_answer_and_runs_nothing_unasked(world: HookWorld, how: str):
    world.users(hook("PreToolUse", printing_text(NO_ANSWERS[how]), "Bash"))
    ran = world.run(call("shell", command="touch made.txt"), answer=False)
    assert len(ran.of(ev.ApprovalRequested)) == 1
    assert "hook" in ran.of(ev.ApprovalRequested)[0].reason
    assert not (world.workspace / "made.txt").exists()
    assert ran.end.outcome == "done"


def test_a_hook_can_stop_the_turn(world: HookWorld):
    world.workspaces(hook("PostToolUse", printing({"continue": False, "stopReason": "enough"}), "Write"))
    ran = world.run(call("write", path="a.txt", content="x"), call("write", path="b.txt", content="x"))
    assert (ran.end.outcome, ran.end.cause) == ("blocked", "hook")
    assert "enough" in ran.end.reason
    assert not (world.workspace / "b.txt").exists()


def test_a_message_for_the_user_is_shown_without_escapes(world: HookWorld):
    world.workspaces(hook("PreToolUse", printing({"systemMessage": "look \x1b[31mhere"}), "Write"))
    ran = world.run(call("write", path="a.txt", content="x"))
    assert "says: look here" in ran.notices
    assert "look" not in ran.text


def test_hooks_of_one_event_run_side_by_side(world: HookWorld):
    meet = 'touch "$CLAUDE_PROJECT_DIR/{0}"; until test -e "$CLAUDE_PROJECT_DIR/{1}"; do sleep 0.02; done'
    world.workspaces(
        hook("PreToolUse", meet.format("one", "two"), "Write", timeout=20),
        hook("PreToolUse", meet.format("two", "one"), "Write", timeout=20),
    )
    ran = world.run(call("write", path="a.txt", content="x"))
    assert ran.results[0].status == "ok"
    assert not ran.notices


def test_the_same_prompt_grows_with_hooks(world: HookWorld):
    world.workspaces(
        hook("UserPromptSubmit", "echo context"),
        hook("PostToolUse", "echo again >&2; exit 2"),
        hook("PreToolUse", "exit 0"),
    )
    ran = world.run(call("write", path="a.txt", content="x"), call("read", path="a.txt"), texts=("one", "two"))
    for earlier, later in zip(ran.chats, ran.chats[1:], strict=False):
        assert later[: len(earlier)] == earlier
