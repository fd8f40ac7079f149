"""A gateway that is killed behind an answer: what it accepted is neither lost nor done twice.

A real process is ended with SIGKILL right behind an answer, or a moment later; it is started anew, and the client sends
the same again, as one does that got no answer. The log says what was accepted, a file what the tool did.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from gateway_kit import Answer, Running, gateway
from testkit.amount import spread

from lmagent.schedule.inbox import Inbox
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

pytestmark = pytest.mark.long

SECONDS = 40.0
AUTO = {"PERMISSION_MODE": "auto", "SANDBOX": "off"}
MANUAL = {**AUTO, "PERMISSION_MODE": "manual"}


def stamping(received: Received) -> Reply:
    """A model that leaves a mark for each input that says so, by a command."""
    messages = received.fields["messages"]
    names = re.findall(r"stamp (\w+)", str(messages[-1]["content"]))  # a steering input stands behind a result
    if not names:
        return slow(say("done"), first=0.1)
    return slow(call("shell", command=f"echo {names[-1]} >> stamps; sleep 0.1"), first=0.1)


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with gateway(tmp_path, stamping, **getattr(request, "param", AUTO)) as started:
        yield started


def begun(running: Running) -> str:
    answer = running.ask("POST", "/api/sessions", {})
    assert answer.status == 201, answer.body
    return answer.json["session"]


def send(running: Running, session: str, command: dict[str, Any]) -> Answer:
    answer = running.ask("POST", f"/api/sessions/{session}/commands", command)
    assert answer.status == 202, answer.body
    return answer


def said(text: str, id: str, type: str = "submit") -> dict[str, Any]:
    return {"type": type, "id": id, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}


def events(running: Running, session: str, kind: str = "") -> list[dict[str, Any]]:
    file = running.workspace / ".lmagent" / "sessions" / session / "events.jsonl"
    if not file.exists():
        return []
    import json

    found = [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
    return [event for event in found if not kind or event["type"] == kind]


def until(done: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def stamps(running: Running) -> Counter[str]:
    file = running.workspace / "stamps"
    return Counter(file.read_text().split()) if file.exists() else Counter()


def crash(running: Running, pause: float = 0.0) -> None:
    time.sleep(pause)
    running.kill()
    running.start()


def is_idle(running: Running, session: str, inputs: int) -> bool:
    row = running.ask("GET", f"/api/sessions/{session}").json
    return len(events(running, session, "input.received")) == inputs and row["status"] == "done"


def once(running: Running, session: str, names: list[str]) -> None:
    """Each input was accepted once and reached the model once; each mark was left once, or cut off and not repeated."""
    received = events(running, session, "input.received")
    assert [event["origin"]["key"] for event in received] == names
    reached = [event["input"] for event in events(running, session, "message.added") if event["input"]]
    assert sorted(reached) == sorted(event["id"] for event in received)
    seqs = [event["seq"] for event in events(running, session)]
    assert seqs == list(range(1, len(seqs) + 1))
    cut_off = sum(event["status"] == "interrupted" for event in events(running, session, "tool.finished"))
    marks = stamps(running)
    assert max(marks.values(), default=0) <= 1
    assert len(names) - cut_off <= sum(marks.values()) <= len(names)


@pytest.mark.parametrize("pause", spread([0.3, 0.0, 0.03, 0.15], 2))
def test_a_message_that_was_accepted_is_answered_once(running, pause):
    session = begun(running)
    first = send(running, session, said("stamp a", "a")).json
    crash(running, pause)
    again = send(running, session, said("stamp a", "a")).json
    assert again == first
    until(lambda: is_idle(running, session, 1), "the turn does not end")
    once(running, session, ["a"])


def test_a_message_that_was_accepted_is_answered_though_nobody_comes_back(running):
    session = begun(running)
    send(running, session, said("stamp a", "a"))
    crash(running)
    until(lambda: is_idle(running, session, 1), "the turn does not end")
    once(running, session, ["a"])


@pytest.mark.parametrize("kind", ["submit", "steer"])
@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_a_message_that_was_accepted_while_a_turn_ran_is_answered_once(running, kind, pause):
    session = begun(running)
    send(running, session, said("stamp a", "a"))
    until(lambda: events(running, session, "step.started"), "no step")
    second = send(running, session, said("stamp b", "b", kind)).json
    crash(running, pause)
    assert send(running, session, said("stamp b", "b", kind)).json == second
    until(lambda: is_idle(running, session, 2), "the turns do not end")
    once(running, session, ["a", "b"])


@pytest.mark.parametrize("running", [MANUAL], indirect=True)
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_an_approval_that_was_accepted_lets_its_call_run_once_at_most(running, pause):
    session = begun(running)
    send(running, session, said("stamp a", "a"))
    until(lambda: events(running, session, "approval.requested"), "nothing is asked")
    asked = events(running, session, "approval.requested")[0]["id"]
    send(running, session, {"type": "approve", "approval": asked, "approved": True})
    crash(running, pause)
    yes = {"type": "approve", "approved": True}
    again = running.ask("POST", f"/api/sessions/{session}/commands", {**yes, "approval": asked})
    assert again.status in (202, 409)

    def over() -> bool:
        open_ones = {event["id"] for event in events(running, session, "approval.requested")}
        open_ones -= {event["approval"] for event in events(running, session, "approval.resolved")}
        for id in open_ones:  # asked again: what an earlier process was told lets nothing run
            send(running, session, {**yes, "approval": id})
        return is_idle(running, session, 1)

    until(over, "the turn does not end")
    once(running, session, ["a"])


@pytest.mark.parametrize(("pause", "again"), spread(list(product([0.0, 0.1, 0.3], [True, False])), 2))
def test_a_message_that_was_accepted_while_a_job_ran_and_the_job_are_done_once(running, pause, again):
    task = Inbox(running.workspace / ".lmagent").submit("stamp a", time.time())
    sessions = running.workspace / ".lmagent" / "sessions"
    until(lambda: sessions.is_dir() and list(sessions.iterdir()), "no job begins")
    (session,) = [folder.name for folder in sessions.iterdir()]
    until(lambda: events(running, session, "step.started"), "no step")
    first = send(running, session, said("stamp b", "b")).json
    crash(running, pause)
    if again:
        assert send(running, session, said("stamp b", "b")).json == first
    until(lambda: is_idle(running, session, 2), "the turns do not end")
    origins = [event["origin"] for event in events(running, session, "input.received")]
    assert origins == [{"kind": "inbox", "key": f"{session}~{task.name}"}, {"kind": "web", "key": "b"}]
    ended = events(running, session, "turn.finished")
    assert [event["outcome"] for event in ended] == ["done", "done"]
    once(running, session, [origin["key"] for origin in origins])
    until(lambda: not list((task.parent / "claimed").iterdir()), "the task is not settled")


def test_a_turn_that_was_interrupted_is_not_gone_on_with(running):
    session = begun(running)
    send(running, session, said("stamp a", "a"))
    until(lambda: events(running, session, "step.started"), "no step")
    answer = send(running, session, {"type": "interrupt"}).json
    crash(running)
    finished = events(running, session, "turn.finished")
    assert [(event["outcome"], event["seq"]) for event in finished] == [("interrupted", answer["seq"])]
    time.sleep(1)
    assert len(events(running, session)) == answer["seq"]


def test_other_commands_are_on_disk_when_they_are_answered(running):
    session = begun(running)
    seqs = {}
    for command in (
        {"type": "set_mode", "mode": "manual"},
        {"type": "set_model", "model": "another"},
        {"type": "rename", "title": "Named"},
        {"type": "set_work", "mode": "plan"},
        {"type": "change_tasks", "items": [{"id": "t1", "kind": "todo", "title": "one"}]},
    ):
        seqs[command["type"]] = send(running, session, command).json["seq"]
    copy = send(running, session, {"type": "fork"}).json["session"]
    gone = begun(running)
    assert running.ask("DELETE", f"/api/sessions/{gone}").status == 200
    crash(running)
    kinds = {event["seq"]: event["type"] for event in events(running, session)}
    assert [kinds[seq] for seq in seqs.values()] == [
        "mode.changed",
        "model.changed",
        "session.renamed",
        "work.changed",
        "tasks.changed",
    ]
    assert running.ask("GET", f"/api/sessions/{copy}").status == 200
    assert running.ask("GET", f"/api/sessions/{gone}").status == 404
    assert running.ask("GET", f"/api/sessions/{session}/view").json["view"]["title"] == "Named"


def test_a_client_that_sends_on_through_several_crashes_loses_nothing_and_repeats_nothing(running):
    """Messages to three sessions, each sent until it is answered, while the process dies at random moments."""
    chance = random.Random(7)
    sessions = [begun(running) for _ in range(3)]
    sent: dict[str, list[str]] = {session: [] for session in sessions}
    for number in range(12):
        session = sessions[number % 3]
        name = f"m{number}"
        send(running, session, said(f"stamp {name}", name, chance.choice(["submit", "steer"])))
        sent[session].append(name)
        if number % 4 == 3:
            crash(running, chance.random() * 0.4)
            for known in sessions:
                send(running, known, said(f"stamp {sent[known][-1]}", sent[known][-1]))
    for session in sessions:
        until(lambda: is_idle(running, session, len(sent[session])), "the turns do not end")  # noqa: B023
        received = events(running, session, "input.received")
        assert [event["origin"]["key"] for event in received] == sent[session]
        reached = [event["input"] for event in events(running, session, "message.added") if event["input"]]
        assert sorted(reached) == sorted(event["id"] for event in received)
    assert max(stamps(running).values()) == 1
