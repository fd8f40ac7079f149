"""UserPromptSubmit, Stop, SubagentStop, SessionStart, SessionEnd, PreCompact and Notification."""

from __future__ import annotations

import json

from hook_kit import SAVE, HookWorld, hook

from lmagent.core import events as ev
from lmagent.core.outside import framed
from lmagent.testing.script import call, say, slow

OBJECT = """jq -r .stop_hook_active >> "$CLAUDE_PROJECT_DIR/active"; echo "run the tests" >&2; exit 2"""


def test_a_refused_input_is_not_sent_and_the_user_sees_why(world: HookWorld):
    refuse = 'jq -e \'.prompt | contains("password")\' >/dev/null || exit 0; echo "no secrets, please" >&2; exit 2'
    world.workspaces(hook("UserPromptSubmit", refuse))
    ran = world.run(texts=("the password is 1234", "hello"))
    first, second = ran.of(ev.TurnFinished)
    assert (first.outcome, first.cause, first.reason) == ("blocked", "hook", "no secrets, please")
    assert second.outcome == "done"
    assert len(ran.of(ev.InputWithdrawn)) == 1
    assert len(ran.chats) == 1
    assert "1234" not in ran.text


def test_a_message_during_a_turn_may_be_refused_too(world: HookWorld):
    refuse = 'jq -e \'.prompt | contains("password")\' >/dev/null || exit 0; echo "no secrets" >&2; exit 2'
    world.workspaces(hook("UserPromptSubmit", refuse))
    ran = world.run(slow(say("done."), first=1.0), steer="the password is 1234")
    assert ran.end.outcome == "done"
    assert "a message was not sent: no secrets" in ran.notices
    assert len(ran.chats) == 2
    assert ran.chats[-1][-1]["role"] == "user"
    assert "1234" not in ran.text


def test_the_output_at_the_start_is_kept_if_the_first_message_is_refused(world: HookWorld):
    world.workspaces(hook("SessionStart", "echo branch: main"), hook("UserPromptSubmit", "grep -q hello || exit 2"))
    ran = world.run(texts=("one", "hello"))
    assert ran.text.count("branch: main") == 1


def test_an_input_of_any_length_reaches_a_hook_whole(world: HookWorld):
    world.workspaces(hook("UserPromptSubmit", SAVE))
    text = "ü" * 300_000
    world.run(texts=(text,))
    assert world.seen()["prompt"] == text


def test_output_for_an_input_comes_before_it_in_the_conversation_as_outside_data(world: HookWorld):
    world.workspaces(hook("UserPromptSubmit", "echo the build is red"))
    ran = world.run(texts=("why?",))
    told = framed("hook UserPromptSubmit in settings.json", "the build is red")
    assert ran.text.index(told) < ran.text.index("why?")


def test_a_hook_that_prints_garbage_or_hangs_does_not_hold_an_input_up(world: HookWorld):
    world.workspaces(
        hook("UserPromptSubmit", "head -c 3000 /dev/urandom"), hook("UserPromptSubmit", "sleep 60", timeout=0.5)
    )
    ran = world.run()
    assert ran.end.outcome == "done"
    assert "did not end within 0.5 seconds" in ran.notices


def test_a_long_text_of_a_hook_is_cut(world: HookWorld):
    world.workspaces(hook("UserPromptSubmit", "yes 'a long story' | head -c 60000"))
    ran = world.run()
    assert len(ran.text) < 25_000
    assert "left out" in ran.text


def test_a_stop_hook_sends_the_model_back_a_few_times_at_most(world: HookWorld):
    world.workspaces(hook("Stop", OBJECT))
    ran = world.run(*[say("done.")] * 5)
    assert ran.end.outcome == "done"
    assert len(ran.chats) == 4
    assert ran.text.count("run the tests") == 3
    assert (world.workspace / "active").read_text().split() == ["false", "true", "true", "true"]
    assert "still objects" in ran.notices


def test_a_stop_hook_may_let_the_turn_end_after_all(world: HookWorld):
    world.workspaces(hook("Stop", 'test -e "$CLAUDE_PROJECT_DIR/a.txt" || { echo write a.txt >&2; exit 2; }'))
    ran = world.run(say("done."), call("write", path="a.txt", content="x"), say("now done."))
    assert (ran.end.outcome, ran.end.answer) == ("done", "now done.")


def test_the_output_at_the_start_of_a_session_is_added_once(world: HookWorld):
    world.workspaces(hook("SessionStart", 'jq -r .source; echo "branch: main"', "startup"))
    ran = world.run(texts=("one", "two"))
    assert ran.text.count("branch: main") == 1
    assert "startup" in ran.text


def test_hooks_run_at_the_end_of_a_session_even_in_a_run_of_one_task(world: HookWorld):
    world.workspaces(hook("SessionEnd", SAVE))
    world.run()
    seen = world.seen()
    assert (seen["hook_event_name"], seen["reason"]) == ("SessionEnd", "other")


def test_the_hooks_of_sessions_that_end_together_run_side_by_side(world: HookWorld):
    meet = """
        cd "$CLAUDE_PROJECT_DIR"; id=$(jq -r .session_id); touch "met-$id"
        until [ "$(ls | grep -c ^met-)" = 2 ]; do sleep 0.05; done
        touch "left-$id"
    """
    world.workspaces(hook("SessionEnd", meet))
    world.run(sessions=2)
    assert len(list(world.workspace.glob("left-*"))) == 2


def test_hooks_run_before_the_conversation_is_shortened_and_add_to_it_afterwards(world: HookWorld):
    world.workspaces(
        hook("PreCompact", SAVE, "manual"),
        hook("PreCompact", "touch automatic", "auto"),
        hook("SessionStart", "echo remember the milk", "compact"),
    )
    long = "\n".join(f"line {number} of a long file" for number in range(400))
    (world.workspace / "a.txt").write_text(long)
    ran = world.run(call("read", path="a.txt"), say("read."), say("a summary"), compact=True)
    assert ran.of(ev.CompactionDone)
    assert world.seen()["trigger"] == "manual"
    assert not (world.workspace / "automatic").exists()
    added = [event.message.text for event in ran.of(ev.MessageAdded) if event.origin == "note"]
    assert "remember the milk" in added[-1]


def test_a_waiting_approval_and_the_end_of_a_turn_are_notified_beside_the_turn(world: HookWorld):
    note = 'jq -r .message >> "$CLAUDE_PROJECT_DIR/notes"'
    world.workspaces(hook("Notification", note))
    ran = world.run(call("shell", command="echo hi"), permission_mode="normal", answer=True)
    assert ran.end.outcome == "done"
    notes = (world.workspace / "notes").read_text()
    assert "needs your permission to use Bash" in notes
    assert "waiting for your input" in notes


def test_hooks_watch_the_calls_of_sub_agents_and_their_reports(world: HookWorld):
    objection = 'test -e "$CLAUDE_PROJECT_DIR/proof" || { echo "no proof yet" >&2; exit 2; }'
    log = 'jq -c "[.session_id, .tool_name]" >> "$CLAUDE_PROJECT_DIR/log"'
    world.workspaces(hook("SubagentStop", objection), hook("PreToolUse", log), hook("Stop", SAVE))
    report = call("use_tool", name="report_result", arguments={"status": "ok", "summary": "found it"})
    ran = world.run(
        call("use_tool", name="delegate", arguments={"objective": "look", "deliverable_type": "report"}),
        report,
        call("write", path="proof", content="x"),
        report,
        say("done."),
    )
    assert ran.end.outcome == "done"
    calls = [json.loads(line) for line in (world.workspace / "log").read_text().splitlines()]
    assert [name for _, name in calls] == ["Task", "Write"]
    assert len({session for session, _ in calls}) == 2
    assert any("no proof yet" in str(message["content"]) for chat in ran.chats for message in chat)
    assert world.seen()["hook_event_name"] == "Stop"
