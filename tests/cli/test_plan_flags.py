"""Plans and deep work on the command line: with a terminal, without one, and from another process."""

from __future__ import annotations

import json
import sys
from typing import Self

import pytest
from program import clear
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

PLAN = {
    "title": "Copy it",
    "goal": "b.txt is like a.txt",
    "risk_areas": ["b.txt may be there"],
    "steps": [{"id": "1", "description": "write b.txt", "verification": "read it", "risk": "", "dependencies": []}],
}
QUESTION = "Approve the plan?"


def script(plan=PLAN, step="1"):
    notes = {"step_id": step, "verification_notes": "read it"}
    return [
        say(json.dumps(plan)),
        call("write", path="b.txt", content="alpha\n"),
        call("use_tool", name="plan_complete_step", arguments=notes),
        say("Copied."),
    ]


class OneShot(Terminal):
    """A one-shot run on a terminal."""

    def __init__(self, program, server: ScriptedServer, *arguments: str) -> None:
        told = (*arguments, "--permission", "auto", "--base-url", server.base_url)
        super().__init__(program.workspace, "", *told)

    def __enter__(self) -> Self:
        return self


def session_of(program) -> str:
    return next(event["session"] for event in program.events() if event["type"] == "session.created")


def test_without_a_terminal_a_plan_waits_and_is_approved_by_another_process(program):
    with ScriptedServer(script(), strict=True) as server:
        first = program.task(server, "--permission", "auto", "--plan", "copy a.txt")
        assert first.returncode == 3
        name = session_of(program)
        assert f"lmagent plan show {name}" in first.stderr
        assert not (program.workspace / "b.txt").exists()
        shown = program.run("plan", "show")
        assert "write b.txt" in shown.stdout
        assert json.loads(program.run("plan", "show", name, "--json").stdout) == PLAN
        again = program.task(server, "--resume", name)
        assert again.returncode == 3, "it waits still"
        assert f"lmagent plan show {name}" in clear(again)
        second = program.run("plan", "approve", "--base-url", server.base_url)
        assert second.returncode == 0, second.stderr
        assert (program.workspace / "b.txt").read_text() == "alpha\n"
        assert "1 of 1 steps are over" in program.run("plan", "show", name).stdout
        assert "no plan waits" in program.run("plan", "show").stderr
        assert server.prefix.breaks == []


def test_a_person_reads_a_plan_and_never_its_json(program):
    bad = json.dumps({**PLAN, "steps": []})
    replies = [say(f"I looked around.\n```json\n{text}\n```\n") for text in (bad, json.dumps(PLAN))]
    with ScriptedServer([*replies, say("Both are `alike`, {as} it seems.")], strict=True) as server:
        first = program.task(server, "--plan", "copy a.txt")
        read = "Plan: Copy it\nGoal: b.txt is like a.txt\nRisks: b.txt may be there\n\n- 1: write b.txt\n"
        fault = "(The plan cannot be followed: it has no steps.)"
        assert first.stdout == f"I looked around.\n{fault}\nI looked around.\n{read}    - check: read it\n"
        name = session_of(program)
        program.run("plan", "reject", name, "--base-url", server.base_url)
        again = program.task(server, "--resume", name, "and now?")
        assert again.stdout == "Both are `alike`, {as} it seems.\n"


def test_a_plan_is_revised_rejected_and_replaced_by_a_file_from_a_script(program):
    other = {**PLAN, "steps": [{**PLAN["steps"][0], "id": "x"}]}
    with ScriptedServer([say(json.dumps(PLAN)), *script(step="x")], strict=True) as server:
        flags = ("--base-url", server.base_url, "--permission", "auto")
        program.task(server, "--plan", "copy a.txt")
        name = session_of(program)
        assert program.run("plan", "revise", name, "in", "one", "step", *flags).returncode == 3
        assert "in one step" in server.chats[-1].body["messages"][-1]["content"]
        file = program.workspace / "plan.json"
        file.write_text(json.dumps({**PLAN, "steps": []}))
        bad = program.run("plan", "approve", name, "--plan", str(file), *flags)
        assert bad.returncode == 1
        assert "it has no steps" in clear(bad)
        file.write_text(json.dumps(other))
        assert program.run("plan", "approve", name, "--plan", str(file), *flags).returncode == 0
        late = program.run("plan", "reject", name, "--base-url", server.base_url)
        assert late.returncode == 1
        assert "no plan to decide on" in clear(late)


@pytest.mark.long
def test_who_decides_is_heard_even_where_plans_are_approved_unread(program):
    other = {**PLAN, "title": "Mine"}
    with ScriptedServer([say(json.dumps(PLAN)), say(json.dumps(PLAN)), say("BLOCKED: no")], strict=True) as server:
        flags = ("--base-url", server.base_url, "--permission", "auto")
        program.task(server, "--plan", "copy a.txt")
        name = session_of(program)
        program.env["LMAGENT_APPROVE_PLANS"] = "true"
        assert program.run("plan", "revise", name, "again", *flags).returncode == 3
        file = program.workspace / "plan.json"
        file.write_text(json.dumps(other))
        assert program.run("plan", "approve", name, "--plan", str(file), *flags).returncode == 3
        decided = [event for event in program.events() if event["type"] == "plan.decided"]
        assert [event["by"] for event in decided] == ["cli", "cli"]
        assert decided[1]["plan"]["title"] == "Mine"


def test_a_rejected_plan_leaves_an_ordinary_session(program):
    with ScriptedServer([say(json.dumps(PLAN)), say("Hello.")], strict=True) as server:
        program.task(server, "--plan", "copy a.txt")
        name = session_of(program)
        assert program.run("plan", "reject", name, "--base-url", server.base_url).stdout == "rejected\n"
        assert program.task(server, "--resume", name, "hello").returncode == 0


def test_at_night_a_plan_is_approved_unread_and_deep_work_reports(program):
    with ScriptedServer(script(), strict=True) as server:
        run = program.task(server, "--permission", "auto", "--deep", "--yes-plan", "--budget-steps", "9", "copy a.txt")
        assert run.returncode == 0, run.stderr
        (report,) = program.workspace.glob(".lmagent/reports/*.md")
        assert report.name in run.stderr
        assert "4 of 9, sub-agents included" in report.read_text()
        assert "- [x] 1 [completed] write b.txt" in report.read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--deep", "--budget-steps", "0", "x"), "0 is not in the range"),
        (("--plan",), "need a task"),
        (("plan", "show", "nothing"), "nothing"),
    ],
)
def test_what_makes_no_sense_is_said(program, arguments, why):
    run = program.run(*arguments)
    assert run.returncode in (1, 64)
    assert why in clear(run)


def test_a_budget_without_deep_work_is_refused(program):
    with ScriptedServer([say("Hello.")]) as server:
        run = program.task(server, "--budget-steps", "5", "x")
    assert run.returncode == 64
    assert "belongs to --deep" in clear(run)


def test_at_a_terminal_a_plan_is_shown_asked_about_and_carried_out(program):
    second = {**PLAN, "title": "Copy it again"}
    with ScriptedServer([say(json.dumps(PLAN)), *script(second)], strict=True) as server:
        with OneShot(program, server, "--plan", "copy a.txt") as terminal:
            assert '"steps"' not in terminal.wait_for(QUESTION, 30)
            assert terminal.screen.count("write b.txt") == 1
            terminal.enter("another title, please")
            terminal.wait_for("Copy it again", 30)
            terminal.wait_for(QUESTION, 30, times=2)
            terminal.enter("y")
            terminal.wait_for("Copied.", 30)
            assert terminal.ended(30) == 0
    assert (program.workspace / "b.txt").exists()


def test_at_a_terminal_a_plan_is_edited_in_the_person_s_editor(program, monkeypatch, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\np = pathlib.Path(sys.argv[1])\n"
        "p.write_text('{' if 'xx' in p.read_text() else p.read_text().replace('\"1\"', '\"xx\"'))\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    with ScriptedServer(script(step="xx"), strict=True) as server:
        with OneShot(program, server, "--plan", "copy a.txt") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("e")
            terminal.wait_for("Copied.", 30)
            assert terminal.ended(30) == 0
    (changed,) = [event for event in program.events() if event["type"] == "plan.decided"]
    assert [step["id"] for step in changed["plan"]["steps"]] == ["xx"]


@pytest.mark.parametrize(("editor", "told"), [('vi "', "EDITOR is no command"), ("rm", "Nothing is decided yet")])
@pytest.mark.long
def test_an_editor_that_cannot_be_used_leaves_the_question(program, monkeypatch, editor, told):
    monkeypatch.setenv("VISUAL", " ")
    monkeypatch.setenv("EDITOR", editor)
    with ScriptedServer(script(), strict=True) as server:
        with OneShot(program, server, "--plan", "copy a.txt") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("e")
            terminal.wait_for(told, 30)
            terminal.wait_for(QUESTION, 30, times=2)
            terminal.enter("n")
            assert terminal.ended(30) == 3


@pytest.mark.long
def test_at_a_terminal_an_edited_plan_that_does_not_fit_its_session_is_asked_about_again(program, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", 'sed -i \'s/"1"/"todo1"/\'')
    todo = call("use_tool", name="todo_add", arguments={"description": "buy milk"})
    with ScriptedServer([todo, say("BLOCKED: no"), say(json.dumps(PLAN))], strict=True) as server:
        program.task(server, "note it")
        with OneShot(program, server, "--resume", session_of(program), "--plan", "copy a.txt") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("e")
            terminal.wait_for("belongs to another task", 30)
            terminal.wait_for(QUESTION, 30, times=2)
            terminal.enter("n")
            assert terminal.ended(30) == 3


def test_the_text_of_an_edited_plan_that_was_refused_is_edited_again(program, monkeypatch, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\np = pathlib.Path(sys.argv[1])\nt = p.read_text()\n"
        "p.write_text(t[:-3] if t.rstrip().endswith('}') else t + '}\\n')\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    with ScriptedServer(script(), strict=True) as server:
        with OneShot(program, server, "--plan", "copy a.txt") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("e")
            terminal.wait_for("your text is kept in", 30)
            (draft,) = (program.workspace / ".lmagent" / "plans").iterdir()
            assert not draft.read_text().rstrip().endswith("}")
            terminal.wait_for(QUESTION, 30, times=2)
            terminal.enter("e")
            terminal.wait_for("Copied.", 30)
            assert terminal.ended(30) == 0
    assert not draft.exists()


def test_a_question_about_a_plan_that_waits_is_answered_and_the_plan_waits_on(program):
    with ScriptedServer([say(json.dumps(PLAN)), say("It copies one file."), *script()[1:]], strict=True) as server:
        assert program.task(server, "--plan", "copy a.txt").returncode == 3
        answered = program.task(server, "--resume", session_of(program), "what does it do?")
        assert (answered.returncode, answered.stdout.strip()) == (0, "It copies one file.")
        assert "the plan still waits" in answered.stderr
        assert "approved" not in {event.get("decision") for event in program.events()}


def test_at_a_terminal_no_ends_the_run_and_nothing_is_done(program):
    with ScriptedServer(script(), strict=True) as server:
        with OneShot(program, server, "--plan", "copy a.txt") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("n")
            assert terminal.ended(30) == 3
    assert not (program.workspace / "b.txt").exists()
