"""The project's check at the end of a turn: off, asked for, by itself, and demanded by --require-proof."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import anyio
import pytest
from playing import RUNS, play_replies

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

READ = call("read", path="calc.py")
FIX = call("edit", path="calc.py", old_text="a - b", new_text="a + b")
WORSE = call("edit", path="calc.py", old_text="a - b", new_text="a * a + b")
MEND = call("edit", path="calc.py", old_text="a * a + b", new_text="a + b")
TEST = call("shell", command="make test")
LIST = call("write", path="shopping.md", content="- milk\n")
CODE = call("write", path="calc.py", content="x = 1\n")


@pytest.fixture
def project(folder):
    for name, content in RUNS["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def played(project, replies, tasks=("Mend it.",), **flags):
    return anyio.run(lambda: play_replies(project, replies, list(tasks), **{"check": "auto", **flags}))


def events(project) -> list[dict]:
    logs = project.glob(".lmagent/sessions/*/events.jsonl")
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def told(project) -> list[str]:
    nudges = [one for one in events(project) if one["type"] == "message.added" and one["origin"] == "nudge"]
    return [one["message"]["parts"][0]["text"] for one in nudges]


def own_runs(project) -> list[dict]:
    """The results of the calls that lmagent made itself."""
    return [one for one in events(project) if one["type"] == "tool.finished" and one["call_id"].startswith("lmagent-")]


# --- lmagent runs the check ------------------------------------------------------------------------------------------


def test_the_projects_check_runs_at_the_end_of_a_turn_that_changed_files(project):
    (end,) = played(project, [READ, FIX, say("Done.")])
    assert (end.outcome, end.proof, end.answer) == ("done", "verified", "Done.")
    assert end.proof_reason == "make test passed after the last change"
    (run,) = own_runs(project)
    assert (run["tool"], run["data"]["exit_code"]) == ("shell", 0)
    assert told(project) == []


def test_a_failed_check_is_shown_to_the_model_which_mends_it(project):
    (end,) = played(project, [READ, WORSE, say("Done."), MEND, say("Now it is.")])
    assert (end.outcome, end.proof, end.answer) == ("done", "verified", "Now it is.")
    (nudge,) = told(project)
    assert "make test failed (exit code 2)" in nudge
    assert "AssertionError: 6 != 4" in nudge
    assert [run["data"]["exit_code"] for run in own_runs(project)] == [2, 0]


def test_a_model_is_sent_back_three_times_a_turn_and_the_verdict_is_failed(project):
    (end,) = played(project, [READ, WORSE, *[say("Done.")] * 9])
    assert (end.outcome, end.proof, end.answer) == ("done", "failed", "Done.")
    assert end.proof_reason == "make test failed (exit code 2)"
    assert len(told(project)) == 3
    assert len(own_runs(project)) == 1  # nothing had changed in between


def test_a_turn_without_a_change_runs_no_check(project):
    (end,) = played(project, [READ, call("shell", command="ls"), say("There are three files.")])
    assert (end.outcome, end.proof, own_runs(project)) == ("done", "", [])


@pytest.mark.parametrize(
    ("answer", "outcome"), [("BLOCKED: the key is missing", "blocked"), ("Which one do you mean?", "question")]
)
def test_a_turn_that_is_not_done_runs_no_check(project, answer, outcome):
    (end,) = played(project, [READ, WORSE, say(answer)])
    assert (end.outcome, end.proof, own_runs(project)) == (outcome, "unchecked", [])


def test_a_check_that_the_model_ran_alone_after_the_last_change_is_not_run_again(project):
    (end,) = played(project, [READ, FIX, TEST, say("Done.")])
    assert (end.proof, own_runs(project)) == ("verified", [])


def test_the_check_starts_at_the_top_without_the_variables_of_earlier_commands(project):
    begin = call("shell", command="cd other && export MAKEFLAGS=-n")
    (end,) = played(project, [READ, WORSE, begin, say("Done."), say("BLOCKED: I cannot")])
    assert (end.outcome, end.proof) == ("blocked", "failed")


def test_the_check_leaves_the_shell_of_the_model_as_it_was(project):
    begin = call("shell", command="cd other && export WHO=me")
    asks = call("shell", command='echo "$WHO in $PWD"')
    played(project, [READ, WORSE, begin, say("Done."), asks, MEND, say("Done.")])
    (shown,) = [one for one in events(project) if one["type"] == "tool.finished" and "me in" in one["content"]]
    assert shown["content"].startswith(f"me in {project}/other")


def test_all_check_commands_of_the_user_have_to_pass(project):
    commands = ("make test", "grep -q nothing calc.py")
    (end,) = played(project, [READ, FIX, TEST, *[say("Done.")] * 4], check_commands=commands)
    assert (end.proof, len(own_runs(project))) == ("failed", 1)
    assert end.proof_reason == "(make test) && (grep -q nothing calc.py) failed (exit code 1)"


def test_a_check_that_takes_too_long_is_stopped_and_has_failed(project):
    (end,) = played(project, [READ, FIX, *[say("Done.")] * 4], check_commands=("sleep 60",), check_timeout=1)
    assert (end.proof, end.proof_reason) == ("failed", "sleep 60 was stopped (timeout)")


def test_a_check_whose_program_is_missing_is_no_failed_check(project):
    (end,) = played(project, [READ, FIX, say("Done.")], check_commands=("no-such-runner",))
    assert (end.outcome, end.proof) == ("done", "unchecked")
    assert "no-such-runner did not run" in end.proof_reason


def test_a_rule_that_denies_the_check_holds(project):
    (end,) = played(project, [READ, FIX, say("Done.")], permission_deny=("shell(make *)",))
    assert (end.outcome, end.proof) == ("done", "unchecked")
    (run,) = own_runs(project)
    assert run["status"] == "denied"
    assert "make test did not run" in end.proof_reason


def test_a_check_that_needs_permission_does_not_run_unattended(project):
    flags = {"check": "ask", "permission_mode": "normal", "permission_allow": ("edit",)}
    (end,) = played(project, [READ, FIX, say("Done.")], **flags)
    assert (end.outcome, end.cause, end.proof) == ("done", "", "unchecked")
    assert own_runs(project)[0]["status"] == "denied"


def test_a_check_that_runs_by_itself_asks_for_no_permission(project):
    flags = {"permission_mode": "normal", "permission_allow": ("edit",)}
    (end,) = played(project, [READ, FIX, say("Done.")], **flags)
    assert end.proof == "verified"


def test_a_check_that_is_switched_off_does_not_run(project):
    (end,) = played(project, [READ, WORSE, say("Done.")], check="off")
    assert (end.outcome, end.proof, own_runs(project), told(project)) == ("done", "unchecked", [], [])


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_a_check_in_the_next_turn_verifies_the_changes_of_the_last_turn(project):
    first, second = played(project, [READ, FIX, say("Done."), TEST, say("It passes.")], ["Mend.", "Test."], check="off")
    assert (first.proof, second.proof) == ("unchecked", "verified")


def test_an_unchecked_turn_is_not_held_against_a_later_answer(project):
    first, second = played(project, [READ, WORSE, say("Done."), say("It adds.")], ["Mend.", "What?"], check="off")
    assert (first.proof, second.proof) == ("unchecked", "")


def test_a_new_test_beside_its_code_is_partly_verified(project):
    test = "import unittest\nclass T(unittest.TestCase):\n def test_t(self): 1\n"
    (end,) = played(project, [READ, FIX, call("write", path="test_more.py", content=test), say("Done.")])
    assert (end.outcome, end.proof) == ("done", "partly verified")
    assert end.proof_reason == "make test passed after the last change, but test_more.py was changed too"


def test_a_command_that_the_user_calls_a_check_is_a_check(project):
    check = call("shell", command="grep -rq 'a + b' .")
    (end,) = played(project, [READ, FIX, check, say("Done.")], check="off", check_commands=("grep -rq 'a + b' .",))
    assert (end.outcome, end.proof) == ("done", "verified")


def test_the_work_of_a_sub_agent_is_checked_where_it_is_used(project):
    brief = {"objective": "mend it", "deliverable_type": "file", "deliverable_path": "calc.py"}
    report = {"status": "ok", "summary": "mended; all tests pass"}
    replies = [
        call("use_tool", name="delegate", arguments=brief),
        *[READ, FIX, call("use_tool", name="report_result", arguments=report)],
        say("Done, and the sub-agent tested it."),
    ]
    (end,) = played(project, replies)
    assert (end.outcome, end.proof, len(own_runs(project))) == ("done", "partly verified", 1)
    assert "the commands of sub-agents are not in this record" in end.proof_reason


def test_without_a_record_of_changes_a_command_may_have_changed_anything(project):
    replies = [READ, FIX, TEST, call("shell", command="sed -i s/a/b/ calc.py"), say("Done.")]
    (end,) = played(project, replies, check="off", undo_mb=0)
    assert end.proof == "unchecked"


def test_without_a_record_of_changes_a_command_may_have_changed_a_test(project):
    replies = [READ, WORSE, call("shell", command="sed -i 's/, 4)/, 6)/' test_calc.py"), say("Done.")]
    (end,) = played(project, replies, undo_mb=0)
    assert end.proof == "partly verified"
    assert "other commands ran before it" in end.proof_reason


def proof_of(folder, write, **flags):
    (end,) = played(folder, [write, say("Written.")], **{"check": "off", **flags})
    return end.proof


def test_a_list_in_a_folder_without_a_check_gets_no_verdict(folder):
    assert proof_of(folder, LIST) == ""


def test_a_list_in_a_project_with_a_check_is_unchecked(project):
    assert proof_of(project, LIST) == "unchecked"


def test_code_in_a_project_without_a_check_is_unchecked(folder):
    assert proof_of(folder, CODE) == "unchecked"


def test_a_list_is_unchecked_for_a_user_who_named_a_check(folder):
    assert proof_of(folder, LIST, check_commands=("true",)) == "unchecked"


# --- --require-proof -------------------------------------------------------------------------------------------------


def test_a_demanded_proof_that_fails_ends_the_turn_as_unproven(project):
    (end,) = played(project, [READ, WORSE, *[say("Done.")] * 9], check="off", require_proof=True)
    assert (end.outcome, end.cause, end.proof) == ("error", "unproven", "failed")
    assert "make test failed (exit code 2)" in end.reason
    assert len(told(project)) == 3


def test_a_list_has_to_be_proven_where_a_proof_is_demanded(folder):
    (end,) = played(folder, [LIST, *[say("Written.")] * 9], require_proof=True)
    assert (end.outcome, end.cause, end.proof) == ("error", "unproven", "unchecked")
    assert "a check of the project" in told(folder)[0]


def test_the_terminal_prints_the_check_and_the_verdict(project):
    with ScriptedServer([READ, WORSE, *[say("Done.")] * 9]) as server:
        command = [sys.executable, "-m", "lmagent", "Mend it.", "--base-url", server.base_url, "--permission", "auto"]
        environment = {**os.environ, "NO_COLOR": "1"}
        run = subprocess.run(
            [*command, "--require-proof", "-w", str(project), "--sandbox", "off"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        shown = subprocess.run(
            [sys.executable, "-m", "lmagent", "sessions", "-w", str(project), "show", "2"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 1
    assert "shell make test" in run.stderr
    assert "failed: make test failed (exit code 2)\n" in run.stderr
    assert "error: not proven: make test failed (exit code 2)" in run.stderr
    assert "shell make test" in shown.stdout
    assert "failed: make test failed (exit code 2)" in shown.stdout
