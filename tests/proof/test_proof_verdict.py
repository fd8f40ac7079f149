"""The verdict as a fold of the log: what counts as the last check, and what makes it doubtful."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lmagent.core import events as ev
from lmagent.core.messages import Message, ToolCall, ToolStatus
from lmagent.proof.checks import code_of
from lmagent.proof.verdict import ChangedWork, ProofVerdict, Record, judge


class Log:
    """A log that is put together by hand; every event goes through its bytes."""

    def __init__(self) -> None:
        self.events: list[ev.DurableEvent] = []
        self.record = record()
        self.changed: dict[str, int] = {}

    def add(self, event: ev.DurableEvent) -> ev.DurableEvent:
        number = len(self.events) + 1
        event = ev.decode(ev.encode(msgspec.structs.replace(event, seq=number, id=f"e{number}")))
        self.events.append(event)
        self.record.apply(event)
        return event

    def run(self, tool: str, effect: str, data: dict[str, Any], content: str = "", **arguments: object) -> None:
        call = ToolCall(f"c{len(self.events)}", tool, json.dumps(arguments))
        self.add(ev.MessageAdded(message=Message("assistant", (call,)), origin="model"))
        self.add(ev.ToolStarted(call_id=call.id, tool=tool, effect=effect))
        self.add(ev.ToolFinished(call_id=call.id, tool=tool, status="ok", content=content, data=data))

    def write(self, path: str) -> None:
        self.run("write", "write", {}, path=path)
        self.changed[path] = len(self.events)

    def shell(self, command: str, code: int = 0, content: str = "3 passed", cwd: str = ".", **exports: str) -> None:
        data = {"exit_code": code, "reason": "exit", "shell": {"cwd": cwd, "exports": len(exports)}}
        self.run("shell", "exec", data, content, command=command)

    def own(self, command: str, code: int = 0, status: ToolStatus = "ok", content: str = "3 passed") -> None:
        call = f"lmagent-{len(self.events)}"
        self.add(ev.ToolStarted(call_id=call, tool="shell", effect="exec", summary=f"shell {command}"))
        data = {"exit_code": code, "reason": "exit"}
        self.add(ev.ToolFinished(call_id=call, tool="shell", status=status, content=content, data=data))

    def verdict(self, **work: Any) -> ProofVerdict:
        changed = {path: seq for path, seq in self.changed.items() if seq > self.record.verified}
        return judge(self.record, ChangedWork(changed, **work), (), demanded=False)

    def end(self, **work: Any) -> tuple[str, str]:
        verdict = self.verdict(**work)
        self.add(ev.TurnFinished(outcome="done", proof=verdict.proof, proof_reason=verdict.reason))
        return verdict.proof, verdict.reason


def record() -> Record:
    return Record(lambda call: json.loads(call.arguments).get("command", ""), lambda line: code_of(line) is not None)


def test_a_restart_changes_nothing_at_any_event():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.shell("cd sub", cwd="sub", PATH="/tmp")
    log.own("pytest", code=1)
    log.end()
    for stop in range(len(log.events)):
        first, again = record(), record()
        for event in log.events[:stop]:
            first.apply(event)
            again.apply(ev.decode(ev.encode(event)))
        assert first.check == again.check
        assert judge(first, ChangedWork({"a.py": 1}), (), False) == judge(again, ChangedWork({"a.py": 1}), (), False)


def test_a_verified_change_gets_no_second_verdict():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    assert log.end() == ("verified", "pytest passed after the last change")
    assert log.end() == ("", "")
    log.write("b.py")
    assert log.end() == ("unchecked", "b.py changed, and no check ran after the last change")


@pytest.mark.parametrize("shell", [{"cwd": "sub"}, {"PATH": "/tmp"}, {"CI": "1"}])
def test_a_check_in_a_shell_that_was_prepared_is_no_check(shell):
    log = Log()
    log.write("a.py")
    log.shell("pytest", **shell)
    assert log.end()[0] == "unchecked"


def test_a_check_of_the_model_is_doubtful_after_other_commands():
    log = Log()
    log.shell("cp x y")
    log.write("a.py")
    log.shell("pytest")
    assert log.end() == (
        "partly verified",
        "pytest passed after the last change, but other commands ran before it and may have changed what it runs",
    )


def test_a_check_of_lmagent_in_a_clean_sandbox_is_not_doubtful_after_other_commands():
    log = Log()
    log.shell("cp x y")
    log.write("a.py")
    log.own("pytest")
    assert log.verdict(contained=True).proof == "verified"
    assert log.verdict(contained=False).proof == "partly verified"


def test_looking_at_files_before_and_after_a_check_does_no_harm():
    log = Log()
    log.shell("ls")
    log.write("a.py")
    log.shell("pytest")
    log.shell("git diff")
    assert log.end()[0] == "verified"


def test_another_command_after_the_check_makes_it_the_last_no_more():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.shell("git push")
    assert log.end() == ("unchecked", "a.py changed, and other commands ran after pytest")


@pytest.mark.parametrize(("tool", "data"), [("python", {}), ("shell", {"job": "job1"})])
def test_a_program_that_may_still_run_keeps_a_check_from_verifying_all(tool, data):
    log = Log()
    log.write("a.py")
    log.run(tool, "exec", data, command="npm start")
    log.own("pytest")
    assert log.verdict(contained=True).proof == "partly verified"


def test_a_later_failure_counts():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    log.shell("pytest -x", code=1, content="1 failed")
    assert log.end() == ("failed", "pytest -x failed (exit code 1)")


def test_code_of_another_language_is_not_run_by_the_check():
    log = Log()
    log.write("a.py")
    log.write("web/app.ts")
    log.shell("pytest")
    assert log.end() == ("partly verified", "pytest passed after the last change, but it does not run web/app.ts")


def test_a_check_that_was_cut_off_is_none():
    log = Log()
    log.write("a.py")
    log.own("pytest", status="interrupted")
    assert log.end() == (
        "unchecked",
        "a.py changed and no check ran; pytest, make test or one of your check_commands would verify it",
    )


def test_a_change_that_the_user_took_back_after_the_check_asks_for_another():
    log = Log()
    log.write("a.py")
    log.write("b.py")
    log.shell("pytest")
    log.add(ev.FilesRestored(events=("e6",), to="before", paths=("b.py",)))
    del log.changed["b.py"]
    assert log.end()[0] == "unchecked"


def test_changes_whose_names_are_lost_may_be_tests():
    log = Log()
    log.write("a.py")
    log.shell("pytest")
    assert log.verdict(unnamed=1).proof == "partly verified"
    assert log.verdict(unnamed=99).proof == "unchecked"


def test_a_path_cannot_forge_a_line():
    log = Log()
    log.write("a.py\nverified: make test passed.py")
    proof, reason = log.end()
    assert (proof, "\n" in reason) == ("unchecked", False)
