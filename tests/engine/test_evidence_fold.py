"""The evidence as a fold: the same after a restart, with undo, sub-agents, and more changes than an event names."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import msgspec
import pytest

from lmagent.core import events as ev
from lmagent.core.changes import Change, PathState
from lmagent.core.messages import Message, ToolCall
from lmagent.core.model import Usage
from lmagent.core.work import Brief, ChildResult, Deliverable
from lmagent.engine.evidence.disk import is_run_by, moved
from lmagent.engine.evidence.record import Evidence, command_of
from lmagent.engine.evidence.verdict import Setting, judge

SETTING = Setting("/w")


class Log:
    """A log that is put together by hand; every event goes through its bytes."""

    def __init__(self) -> None:
        self.events: list[ev.DurableEvent] = []
        self.evidence = Evidence()

    def add(self, event: ev.DurableEvent) -> ev.DurableEvent:
        number = len(self.events) + 1
        event = ev.decode(ev.encode(msgspec.structs.replace(event, seq=number, id=f"e{number}")))
        self.events.append(event)
        self.evidence.apply(event)
        return event

    def begin(self, tool: str, effect: str = "exec", **arguments: object) -> str:
        call = ToolCall(f"c{len(self.events)}", tool, json.dumps(arguments))
        self.add(ev.MessageAdded(message=Message("assistant", (call,)), origin="model"))
        self.add(ev.ToolStarted(call_id=call.id, tool=tool, effect=effect))
        return call.id

    def changed(self, call: str, *paths: str, blob: str = "") -> ev.DurableEvent:
        state = PathState("file", sha256="a" * 64)
        changes = () if blob else tuple(Change(path, None, state) for path in paths)
        return self.add(ev.FilesChanged(call_id=call, tool="write", count=len(paths), changes=changes, blob=blob))

    def write(self, *paths: str, blob: str = "") -> ev.DurableEvent:
        call = self.begin("write", "write", path=paths[0])
        event = self.changed(call, *paths, blob=blob)
        self.add(ev.ToolFinished(call_id=call, tool="write", status="ok", content="written"))
        return event

    def shell(self, command: str, code: int = 0, content: str = "3 passed", cwd: str = ".", **exports: str) -> None:
        call = self.begin("shell", command=command)
        data = {"exit_code": code, "reason": "exit", "shell": {"cwd": cwd, "exports": exports}}
        self.add(ev.ToolFinished(call_id=call, tool="shell", status="ok", content=content, data=data))

    def end(self) -> tuple[str, str]:
        verdict = judge(self.evidence, SETTING)
        self.add(ev.TurnFinished(outcome="done", proof=verdict.proof, proof_reason=verdict.reason))
        return verdict.proof, verdict.reason


def test_a_restart_changes_nothing_at_any_event():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.write("tests/test_a.py")
    log.shell("cd sub", cwd="sub", PATH="/tmp")
    log.end()
    for stop in range(len(log.events)):
        first, again = Evidence(), Evidence()
        for event in log.events[:stop]:
            first.apply(event)
            again.apply(ev.decode(ev.encode(event)))
        assert judge(first, SETTING) == judge(again, SETTING)
        assert first == again


def test_what_is_verified_is_not_asked_about_again():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    assert log.end() == ("verified", "pytest passed after the last change")
    assert log.end() == ("", "")
    log.write("b.py")
    assert log.end() == ("unverified", "pytest passed, but b.py was changed after it")


def test_a_change_that_a_person_took_back_needs_no_proof():
    log = Log()
    changed = log.write("a.py")
    log.add(ev.FilesRestored(events=(changed.id,), to="before", paths=("a.py",)))
    assert log.end() == ("", "")
    log.add(ev.FilesRestored(events=(changed.id,), to="after", paths=("a.py",)))
    assert log.end() == ("unverified", "a.py changed, nothing checked it")


def test_a_test_that_was_changed_and_taken_back_is_the_persons_own_again():
    log = Log()
    test = log.write("tests/test_a.py")
    log.write("a.py")
    log.add(ev.FilesRestored(events=(test.id,), to="before", paths=("tests/test_a.py",)))
    log.shell("pytest")
    assert log.end()[0] == "verified"


def test_a_test_changed_in_an_earlier_turn_is_remembered():
    log = Log()
    log.write("tests/test_a.py")
    log.shell("pytest")
    assert log.end()[0] == "partly verified"
    log.write("a.py")
    log.shell("pytest")
    assert log.end() == ("partly verified", "pytest passed after the last change, but tests/test_a.py was changed too")


def test_more_changes_than_an_event_names_may_be_tests():
    log = Log()
    log.write("many", blob="f" * 64)
    assert log.end() == ("unverified", "many files changed, nothing checked them")
    log.shell("pytest")
    assert log.end()[0] == "partly verified"


def test_many_changes_are_looked_up_where_they_stand():
    log = Log()
    log.write("many", blob="f" * 64)
    log.write("a.py")
    log.shell("pytest")

    def proof(*paths: str) -> str:
        return judge(log.evidence, Setting("/w", paths_of=lambda _: paths)).proof

    assert proof("lib/a.py", "lib/b.py") == "verified"
    assert proof("lib/a.py", "tests/test_b.py") == "partly verified"


def test_a_check_that_leaves_many_files_behind_is_no_change():
    log = Log()
    log.write("a.py")
    call = log.begin("shell", command="pytest")
    log.changed(call, "many", blob="f" * 64)
    data = {"exit_code": 0, "reason": "exit", "shell": {"cwd": ".", "exports": {}}}
    log.add(ev.ToolFinished(call_id=call, tool="shell", status="ok", content="3 passed", data=data))
    paths = [f"pkg{at}/__pycache__/m.pyc" for at in range(200)]
    assert judge(log.evidence, Setting("/w", paths_of=lambda _: paths)).proof == "verified"


def test_what_a_sub_agent_says_is_no_proof():
    log = Log()
    brief = Brief("child", "s", 1, 3, "mend it", Deliverable("file", "the file", "a.py"))
    log.add(ev.SubagentStarted(call_id="c", child="child", brief=brief))
    result = ChildResult("child", "ok", "Mended; make test passed.", artifacts=("a.py",))
    log.add(ev.SubagentFinished(call_id="c", child="child", result=result, usage=Usage(1, 1)))
    assert log.end() == ("unverified", "a.py changed, nothing checked it")
    log.shell("pytest")
    assert log.end()[0] == "partly verified"


def test_a_command_in_the_background_keeps_a_check_from_proving_all():
    log = Log()
    log.write("a.py")
    call = log.begin("shell", command="npm start", background=True)
    log.add(ev.ToolFinished(call_id=call, tool="shell", status="ok", content="job1: running", data={"job": "job1"}))
    log.shell("pytest")
    assert log.end() == (
        "partly verified",
        "pytest passed after the last change, but what ran in the background is not on record",
    )


def test_a_later_failure_of_the_same_check_counts():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.shell("pytest -x", code=1, content="1 failed")
    assert log.end() == ("unverified", "pytest failed (exit code 1)")


def test_a_passing_check_beside_a_failing_one_verifies_in_part():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.shell("mypy src", code=1, content="1 error")
    assert log.end() == ("partly verified", "pytest passed after the last change, but mypy failed (exit code 1)")


def test_code_of_another_language_is_not_run_by_the_check():
    log = Log()
    log.write("a.py")
    log.write("web/app.ts")
    log.shell("pytest")
    assert log.end() == ("partly verified", "pytest passed after the last change, but it does not run web/app.ts")
    log.shell("npx jest", content="Tests: 3 passed, 3 total")
    assert log.end() == ("verified", "pytest and jest passed after the last change")


def test_a_sub_agents_own_check_never_verifies_all():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    assert judge(log.evidence, Setting("/w", child=True)).proof == "partly verified"


def test_a_path_cannot_forge_a_line():
    log = Log()
    log.write("a.py\nverified: make test passed after the last change")
    assert "\n" not in log.end()[1]


def test_a_call_that_was_cut_off_is_a_change_all_the_same():
    log = Log()
    call = log.begin("shell", command="sed -i s/a/b/ a.py && pytest")
    log.changed(call, "a.py")
    log.add(ev.ToolFinished(call_id=call, tool="shell", status="interrupted", content="interrupted"))
    assert log.end()[0] == "unverified"


def test_a_damaged_or_double_command_is_none():
    def command(arguments: str, name: str = "shell") -> str:
        return command_of(ToolCall("c", name, arguments))

    assert command('{"command": "pytest"}') == "pytest"
    assert command('{"name": "shell", "arguments": {"cmd": "pytest"}}', "use_tool") == "pytest"
    for damaged in ("{", "[]", '{"command": 1}', '{"command": "pytest", "cmd": "true"}', "[" * 5000):
        assert command(damaged) == ""


def test_what_somebody_changed_behind_the_record_after_the_check_is_not_verified(tmp_path):
    log = Log()
    content = b"x = 1\n"
    state = PathState("file", sha256=hashlib.sha256(content).hexdigest(), size=len(content), mtime=1)
    (tmp_path / "a.py").write_bytes(content)
    call = log.begin("write", "write", path="a.py")
    log.add(ev.FilesChanged(call_id=call, tool="write", count=1, changes=(Change("a.py", None, state),)))
    log.add(ev.ToolFinished(call_id=call, tool="write", status="ok", content="written"))
    log.shell("pytest")
    setting = Setting(str(tmp_path), moved=partial(moved, tmp_path))
    assert judge(log.evidence, setting).proof == "verified"  # it was only touched
    (tmp_path / "a.py").write_bytes(b"x = 2\n")
    verdict = judge(log.evidence, setting)
    assert (verdict.proof, verdict.passed) == ("unverified", False)
    assert verdict.reason == "pytest passed, but a.py was changed after it"
    (tmp_path / "a.py").unlink()
    assert judge(log.evidence, setting).proof == "unverified"


def test_data_that_a_server_goes_on_changing_does_not_take_a_check_back(tmp_path):
    log = Log()
    log.write("a.py")
    state = PathState("file", sha256="a" * 64, size=3, mtime=1)
    call = log.begin("shell", command="python3 fill.py")
    changes = (Change("app.db", None, state),)
    log.add(ev.FilesChanged(call_id=call, tool="shell", count=1, changes=changes, seconds=3.0))
    log.shell("pytest")
    (tmp_path / "a.py").write_bytes(b"")
    (tmp_path / "app.db").write_bytes(b"x" * 9)
    assert list(moved(tmp_path, log.evidence)) == ["a.py"]
    log.evidence.jobs.add("job1")
    assert moved(tmp_path, log.evidence) == {}


def test_a_runner_that_is_not_there_is_no_failed_check():
    log = Log()
    log.write("a.py")
    log.shell("pytest", 127, "bash: pytest: command not found")
    log.shell("python3 -m pytest", 1, "/usr/bin/python3: No module named pytest")
    assert log.end() == (
        "unverified",
        "a.py changed, and pytest proves nothing: it could not be started (exit code 1)",
    )
    log.shell("python3 -m unittest", 0, "Ran 3 tests in 0.1s\n\nOK")
    assert log.end() == ("verified", "unittest passed after the last change")


def test_a_line_that_failed_is_not_called_a_failed_check_where_something_else_may_have():
    log = Log()
    log.write("a.py")
    log.shell("cat a.py && pytest && git push", 128)
    assert log.end() == ("unverified", "cat a.py && pytest && git push failed (exit code 128)")


@pytest.mark.parametrize(
    ("path", "recipe", "runs"),
    [
        ("run.sh", "test:\n\t@./run.sh\n", True),
        ("run.sh", "test:\n\tsh -e run.sh\n", True),
        ("tools/go.py", "test: lint\n\t@python3 -B tools/go.py all\n", True),
        ("tools/go", "test:\n\ttools/go\n", True),
        ("go.js", "node ./go.js && true", True),
        ("calc.py", "test:\n\tpytest\n", False),
        ("main.c", "prog: main.c\n\tcc -o prog main.c\n", False),
        ("go.py", "test:\n\tpython3 go.pyx\n", False),
    ],
)
def test_a_file_that_a_target_runs_is_known(path, recipe, runs):
    assert is_run_by(path, recipe) is runs


def test_changes_whose_names_are_lost_are_not_judged_where_nothing_could_have_checked_them():
    log = Log()
    log.write("shopping.md", blob="b" * 64)
    unasked = Setting("/w", demanded=lambda: False)
    assert judge(log.evidence, unasked).proof == ""
    log.shell("pytest -q", code=1, content="1 failed")
    assert judge(log.evidence, unasked).proof == "unverified"
