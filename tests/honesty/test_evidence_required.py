"""--require-proof: what changed has to be checked before a turn is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import anyio
import pytest
from playing import RUNS, play_replies

from lmagent.engine.evidence.project import own_checks
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

READ = call("read", path="calc.py")
FIX = call("edit", path="calc.py", old_text="a - b", new_text="a + b")
WORSE = call("edit", path="calc.py", old_text="a - b", new_text="a * a + b")
TEST = call("shell", command="make test")


@pytest.fixture
def project(folder):
    for name, content in RUNS["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def played(project, replies, tasks=("Mend it.",), **flags):
    return anyio.run(lambda: play_replies(project, replies, list(tasks), require_proof=True, **flags))


def told(project) -> list[str]:
    logs = project.glob(".lmagent/sessions/*/events.jsonl")
    events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    nudges = [event for event in events if event["type"] == "message.added" and event["origin"] == "nudge"]
    return [event["message"]["parts"][0]["text"] for event in nudges]


def test_a_turn_goes_on_until_the_check_has_passed(project):
    (end,) = played(project, [READ, FIX, say("Done."), TEST, say("Done, and tested.")])
    assert (end.outcome, end.proof, end.answer) == ("done", "verified", "Done, and tested.")
    assert end.proof_reason == "make test passed after the last change"
    (nudge,) = told(project)
    assert "calc.py changed, nothing checked it" in nudge
    assert "`make test`" in nudge


def test_a_model_that_does_not_prove_it_ends_as_unproven(project):
    (end,) = played(project, [READ, WORSE, *[say("Done.")] * 9])
    assert (end.outcome, end.cause, end.proof) == ("error", "unproven", "unverified")
    assert len(told(project)) == 3
    assert "nothing checked it" in end.reason
    assert "make test" in end.fix


def test_a_failing_check_proves_nothing(project):
    (end,) = played(project, [READ, WORSE, TEST, *[say("Done.")] * 9])
    assert (end.outcome, end.cause) == ("error", "unproven")
    assert "make test failed (exit code 2)" in end.reason


def test_a_turn_without_a_change_has_nothing_to_prove(project):
    (end,) = played(project, [READ, call("shell", command="ls"), say("There are three files.")])
    assert (end.outcome, end.proof) == ("done", "")


@pytest.mark.parametrize(
    ("answer", "outcome"), [("BLOCKED: the key is missing", "blocked"), ("Which one do you mean?", "question")]
)
def test_a_turn_that_is_not_done_need_not_prove_anything(project, answer, outcome):
    (end,) = played(project, [READ, WORSE, say(answer)])
    assert (end.outcome, end.proof) == (outcome, "unverified")


def test_what_was_left_unproven_is_not_held_against_a_later_answer(project):
    replies = [READ, WORSE, *[say("Done.")] * 4, say("It adds.")]
    first, second = played(project, replies, ["Mend it.", "What does it do?"])
    assert (first.cause, second.outcome, second.proof) == ("unproven", "done", "")


def test_a_check_in_the_next_turn_verifies_what_the_last_one_changed(project):
    replies = [READ, FIX, *[say("Done.")] * 4, TEST, say("It passes.")]
    first, second = played(project, replies, ["Mend it.", "Test it."])
    assert (first.proof, second.proof) == ("unverified", "verified")


def test_a_new_test_and_its_code_are_proven_by_a_run_but_not_wholly_verified(project):
    write = call(
        "write", path="test_more.py", content="import unittest\nclass T(unittest.TestCase):\n def test_t(self): 1\n"
    )
    (end,) = played(project, [READ, FIX, write, TEST, say("Done.")])
    assert (end.outcome, end.proof) == ("done", "partly verified")
    assert end.proof_reason == "make test passed after the last change, but test_more.py was changed too"


def test_a_command_that_a_person_calls_a_check_is_one(project):
    check = call("shell", command="grep -q 'a + b' calc.py")
    (end,) = played(project, [READ, FIX, check, say("Done.")], check_commands=("grep -q 'a + b' calc.py",))
    assert (end.outcome, end.proof) == ("done", "verified")


def test_what_a_sub_agent_changed_is_proven_by_whom_it_works_for(project):
    brief = {"objective": "mend it", "deliverable_type": "file", "deliverable_path": "calc.py"}
    report = {"status": "ok", "summary": "mended; all tests pass"}
    replies = [
        call("use_tool", name="delegate", arguments=brief),
        *[READ, FIX, call("use_tool", name="report_result", arguments=report)],
        *[say("Done, and the sub-agent tested it."), TEST, say("Done.")],
    ]
    (end,) = played(project, replies)
    assert (end.outcome, end.proof) == ("done", "partly verified")
    assert end.proof_reason == "make test passed after the last change, but what sub-agents ran is not on this record"
    (nudge,) = told(project)
    assert "calc.py changed, nothing checked it" in nudge


def test_without_a_record_of_changes_a_command_may_have_changed_anything(project):
    flags = {"undo_mb": 0, "require_proof": False}
    replies = [READ, FIX, TEST, call("shell", command="sed -i s/a/b/ calc.py"), say("Done.")]
    (end,) = anyio.run(lambda: play_replies(project, replies, ["Mend it."], **flags))
    assert end.proof == "unverified"


def test_without_a_record_of_changes_a_command_may_have_changed_a_test(project):
    flags = {"undo_mb": 0, "require_proof": False}
    replies = [READ, WORSE, call("shell", command="sed -i 's/, 4)/, 6)/' test_calc.py"), TEST, say("Done.")]
    (end,) = anyio.run(lambda: play_replies(project, replies, ["Mend it."], **flags))
    assert (end.proof, "not recorded" in end.proof_reason) == ("partly verified", True)


def test_the_projects_own_check_is_found(tmp_path):
    assert own_checks(tmp_path) == ()
    (tmp_path / "package.json").write_text('{"scripts": {"test": "jest"}}')
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    assert own_checks(tmp_path) == ("npm test", "python3 -m pytest")
    (tmp_path / "Makefile").write_text("CHECK := 1\ntest: build\n\tx\ncheck: test\n")
    assert own_checks(tmp_path)[0] == "make check"


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"scripts": 1}', '{"scripts": {"test": "echo no test specified"}}']
)
def test_an_odd_package_file_names_no_check(tmp_path, content):
    (tmp_path / "package.json").write_text(content)
    assert own_checks(tmp_path) == ()


def test_the_terminal_says_in_one_line_what_the_work_rests_on(project):
    replies = [READ, WORSE, *[say("Done.")] * 9]
    with ScriptedServer(replies) as server:
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
    assert "unverified: calc.py changed, nothing checked it\n" in run.stderr
    assert "error: not proven: calc.py changed, nothing checked it" in run.stderr
    assert "unverified: calc.py changed, nothing checked it" in shown.stdout


def told_of_proof(folder, write, **flags):
    (end,) = anyio.run(lambda: play_replies(folder, [write, say("Written.")], ["Write it."], **flags))
    return end.proof


LIST = call("write", path="shopping.md", content="- milk\n")
CODE = call("write", path="calc.py", content="x = 1\n")


def test_what_nothing_could_have_checked_is_not_called_unverified(folder):
    assert told_of_proof(folder, LIST) == ""


def test_what_the_projects_own_check_could_have_checked_is(project):
    assert told_of_proof(project, LIST) == "unverified"


def test_code_is_called_unverified_in_a_project_without_a_check_too(folder):
    assert told_of_proof(folder, CODE) == "unverified"


def test_who_has_named_a_check_is_told_of_everything(folder):
    assert told_of_proof(folder, LIST, check_commands=("true",)) == "unverified"


def test_a_list_has_to_be_proven_where_a_proof_is_demanded(folder):
    replies = [LIST, *[say("Written.")] * 9]
    (end,) = anyio.run(lambda: play_replies(folder, replies, ["Write it."], require_proof=True))
    assert (end.outcome, end.cause, end.proof) == ("error", "unproven", "unverified")
