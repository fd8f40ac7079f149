"""Gateways of a cluster run no turns: they forward to workers, and each of them serves the same sessions."""

from __future__ import annotations

import base64
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clustered_kit import NAME, Clustered, cluster
from gateway_kit import Client, Running, until
from images_kit import png

from lmagent.testing.script import call, say, slow

PICTURE = png(8, 8)


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return {"script": lambda received: say("hello")}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: dict[str, Any]) -> Any:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, lambda received: model["script"](received), workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def other(running: Clustered, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running.another_gateway(tmp_path_factory.mktemp("other") / "machine") as made:
        yield made


def begun(gateway: Client, **fields: Any) -> str:
    return gateway.ask("POST", "/api/sessions", fields).json["session"]


def send(gateway: Client, session: str, text: str = "go", **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    answer = gateway.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message, **fields})
    assert answer.status == 202, answer.body
    return answer.json


def state(gateway: Client, session: str) -> dict[str, Any]:
    return gateway.ask("GET", f"/api/sessions/{session}").json


def until_ended(gateway: Client, session: str) -> None:
    until(lambda: state(gateway, session)["status"] == "done")


def test_a_message_of_one_gateway_is_answered_by_a_worker_and_seen_at_the_other(
    running: Clustered, other: Running, model: dict[str, Any]
) -> None:
    model["script"] = lambda received: slow(say("one two three four five six"), first=0.3, each=0.15)
    session = begun(running, title="both")
    with other.stream(f"/api/sessions/{session}/events") as events:
        send(running, session)
        seen = []
        for event in events:
            seen.append(event.json)
            if event.json["type"] == "turn.finished":
                break
    assert [event["seq"] for event in seen if event["seq"]] == list(range(1, seen[-1]["seq"] + 1))
    live = [event for event in seen if event["type"] == "text.delta"]
    assert live
    assert "".join(event["text"] for event in live) == "one two three four five six"
    at = next(
        place for place, event in enumerate(seen) if event["type"] == "message.added" and event["origin"] == "model"
    )
    assert max(seen.index(event) for event in live) < at
    owners = running.sql("SELECT kind FROM process JOIN session ON owner = process.id")
    assert {kind for (kind,) in owners} <= {"worker"}
    listed = other.ask("GET", "/api/sessions").json["sessions"]
    assert (listed[0]["id"], listed[0]["title"]) == (session, "both")


def test_an_approval_is_answered_at_another_gateway(running: Clustered, other: Running, model: dict[str, Any]) -> None:
    def script(received: Any) -> Any:
        done = sum(message["role"] == "tool" for message in received.fields["messages"])
        return say("made") if done else call("shell", command="echo made > made.txt")

    model["script"] = script
    session = begun(running, mode="normal")
    send(running, session)
    until(lambda: other.ask("GET", f"/api/sessions/{session}/view").json["view"]["approvals"])
    assert state(other, session)["waiting_for"] == "approval"
    assert "lmagent_approvals_waiting 1" in other.ask("GET", "/metrics").body.decode()
    asked = other.ask("GET", f"/api/sessions/{session}/view").json["view"]["approvals"][0]
    answer = {"type": "approve", "approval": asked["id"], "approved": True}
    assert other.ask("POST", f"/api/sessions/{session}/commands", answer).status == 202
    until_ended(running, session)
    assert (running.workspace / "made.txt").read_text() == "made\n"
    again = running.ask("POST", f"/api/sessions/{session}/commands", answer)
    assert (again.status, again.code) == (409, "resolved")


def test_what_a_sub_agent_asks_is_shown_and_answered_at_another_gateway(
    running: Clustered, other: Running, model: dict[str, Any]
) -> None:
    def script(received: Any) -> Any:
        messages = received.fields["messages"]
        done = messages[-1]["role"] == "tool"
        if "you are a sub-agent" not in str(messages):
            return say("seen") if done else call("use_tool", name="delegate", arguments={"objective": "look around"})
        if done:
            return call("use_tool", name="report_result", arguments={"status": "done", "report": "looked"})
        return call("shell", command="echo looked > looked.txt")

    model["script"] = script
    session = begun(running, mode="normal")
    with other.stream(f"/api/sessions/{session}/events") as events:
        send(running, session, "delegate it")
        until(lambda: other.ask("GET", f"/api/sessions/{session}/view").json["view"]["approvals"])
        told = (event.json for event in events)
        asked = next(event["event"] for event in told if is_asked(event))
    assert state(other, session)["waiting_for"] == "approval"
    answer = {"type": "approve", "approval": asked["id"], "approved": True}
    accepted = other.ask("POST", f"/api/sessions/{session}/commands", answer)
    assert accepted.status == 202
    assert accepted.json["session"] != session
    until_ended(running, session)
    assert (running.workspace / "looked.txt").read_text() == "looked\n"


def is_asked(event: dict[str, Any]) -> bool:
    return event["type"] == "subagent.event" and event["event"]["type"] == "approval.requested"


def test_a_repeated_message_is_accepted_once_whichever_gateway_it_comes_by(
    running: Clustered, other: Running, model: dict[str, Any]
) -> None:
    model["script"] = lambda received: say("hello")
    session = begun(running)
    accepted = {send(gateway, session, id="m1")["seq"] for gateway in (running, other, running)}
    assert len(accepted) == 1
    until_ended(running, session)
    inputs = [event for event in running.logs() if event["type"] == "input.received" and event["origin"]["key"] == "m1"]
    assert len(inputs) == 1


def test_files_go_in_and_come_out_whole(running: Clustered, other: Running) -> None:
    data = os.urandom(3_000_000)
    session = begun(other)
    sent = other.ask(
        "POST", f"/api/sessions/{session}/files?path=big.bin", data, {"Content-Type": "application/octet-stream"}
    )
    assert sent.status in (200, 201), sent.body
    assert (running.workspace / "big.bin").read_bytes() == data
    assert other.ask("GET", "/api/files/raw?path=big.bin").body == data
    assert list(other.workspace.iterdir()) == [other.workspace / ".lmagent"] or not any(other.workspace.iterdir())


def test_an_image_that_one_worker_took_in_is_in_the_message_that_another_records(
    running: Clustered, other: Running, model: dict[str, Any]
) -> None:
    model["script"] = lambda received: say("a picture")
    taken = other.ask("POST", "/api/uploads", PICTURE, {"Content-Type": "image/png"})
    assert taken.status == 201, taken.body
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "data": f"upload:{taken.json['id']}", "media_type": "image/png"},
    ]
    session = begun(running)
    body = {"type": "submit", "message": {"role": "user", "parts": parts}}
    assert running.ask("POST", f"/api/sessions/{session}/commands", body).status == 202
    until_ended(other, session)
    event = next(
        event for event in running.logs() if event["type"] == "input.received" and len(event["message"]["parts"]) == 2
    )
    assert base64.b64decode(event["message"]["parts"][1]["data"]) == PICTURE


def test_a_conversation_by_openais_api_continues_in_its_session(
    running: Clustered, other: Running, model: dict[str, Any]
) -> None:
    model["script"] = lambda received: say("The answer is 4.")
    said = [{"role": "user", "content": "two and two?"}]
    first = running.ask("POST", "/v1/chat/completions", {"model": "agent/lmagent", "messages": said})
    assert first.json["choices"][0]["message"]["content"] == "The answer is 4."
    said += [first.json["choices"][0]["message"], {"role": "user", "content": "and twice that?"}]
    second = other.ask("POST", "/v1/chat/completions", {"model": "agent/lmagent", "messages": said, "stream": True})
    assert second.headers["x-session"] == first.headers["x-session"]
    assert second.body.endswith(b"data: [DONE]\n\n")


def test_a_slash_command_and_a_deletion_are_carried_out_by_a_worker(running: Clustered, other: Running) -> None:
    session = begun(running)
    assert other.ask("POST", f"/api/sessions/{session}/slash", {"line": "/rename weekly report"}).status == 200
    assert state(running, session)["title"] == "weekly report"
    assert other.ask("DELETE", f"/api/sessions/{session}").json == {"deleted": session}
    assert running.ask("GET", f"/api/sessions/{session}").status == 404


@pytest.mark.parametrize("path", ["/api/models/load", "/api/settings", "/api/mcp/restart"])
def test_what_changes_one_machine_is_refused(running: Clustered, path: str) -> None:
    answer = running.ask("POST", path, {})
    assert (answer.status, answer.code) == (409, "in_a_cluster")


def test_a_session_that_a_terminal_has_open_is_answered_as_in_use(running: Clustered, model: dict[str, Any]) -> None:
    session = begun(running)
    until(lambda: not running.sql(f"SELECT 1 FROM session WHERE id = '{session}' AND owner IS NOT NULL"), seconds=60)
    running.sql("INSERT INTO process (kind, name, version, beat) VALUES ('terminal', 'laptop:1', '1', 'infinity')")
    running.sql(
        "UPDATE session SET owner = (SELECT max(id) FROM process WHERE name = 'laptop:1'), epoch = epoch + 1"
        f" WHERE id = '{session}'"
    )
    begun_at = time.monotonic()
    answer = running.ask("POST", f"/api/sessions/{session}/commands", {"type": "rename", "title": "mine"})
    assert (answer.status, answer.code) == (409, "busy"), answer.body
    assert "laptop:1" in answer.json["error"]["message"]
    assert time.monotonic() - begun_at < 10
    running.sql("DELETE FROM process WHERE name = 'laptop:1'")


def test_a_client_that_leaves_a_completion_interrupts_its_turn_if_it_asked_for_that(
    running: Clustered, model: dict[str, Any]
) -> None:
    model["script"] = lambda received: slow(say("word " * 400), each=0.05)
    body = {"model": "agent/lmagent", "messages": [{"role": "user", "content": "write long"}], "stream": True}
    before = len(running.recorded("turn.finished"))
    running.leave(
        "/v1/chat/completions",
        body,
        {"X-Session-Interrupt": "1"},
        once=lambda: any(event["type"] == "step.started" for event in running.logs()[-3:]),
    )
    until(lambda: len(running.recorded("turn.finished")) > before)
    assert running.recorded("turn.finished")[-1]["outcome"] == "interrupted"


def test_a_request_that_the_database_is_slow_to_take_is_carried_out(running: Clustered) -> None:
    session = begun(running)
    with psycopg.connect(running.url_of_database, options="-c search_path=lmagent") as holding:
        holding.execute("LOCK TABLE request IN SHARE MODE")  # it is read, and takes no request
        release = threading.Timer(2.5, holding.commit)
        release.start()
        answer = running.ask("POST", f"/api/sessions/{session}/commands", {"type": "rename", "title": "late"})
        release.join()
    assert answer.status == 202, answer.body
    assert state(running, session)["title"] == "late"


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_without_a_worker_nothing_is_done_and_the_answer_names_the_command(tmp_path: Path) -> None:
    with cluster(tmp_path, (say("hello"),), workers=0) as running:
        answer = running.ask("POST", "/api/sessions", {})
        assert (answer.status, answer.code) == (503, "no_worker")
        assert answer.json["error"]["fix"].endswith(f"lmagent worker --label {NAME}=PATH")
        assert running.ask("GET", "/api/sessions").json["sessions"] == []
        running.workers.append(running.new_worker())
        time.sleep(2)  # the withdrawn request is not carried out later
        assert running.ask("GET", "/api/sessions").json["sessions"] == []
        assert send(running, begun(running))["seq"]
        assert running.sql("SELECT count(*) FROM request WHERE worker IS NULL") == [(0,)]


def test_a_worker_that_dies_during_a_turn_is_replaced_and_watchers_miss_nothing(tmp_path: Path) -> None:
    def script(received: Any) -> Any:
        done = sum(message["role"] == "tool" for message in received.fields["messages"])
        return say("done") if done >= 3 else slow(call("shell", command=f"echo {done} >> steps"), first=0.5)

    with cluster(tmp_path, script, workers=2, PERMISSION_MODE="auto", SANDBOX="off") as running:
        session = begun(running)
        with running.stream(f"/api/sessions/{session}/events", timeout=60) as events:
            send(running, session, id="task")
            seen: list[int] = []
            outcome = ""
            for event in events:
                seen += [int(event.id)] if event.id and int(event.id) not in seen[-1:] else []
                if event.json["type"] == "tool.finished" and event.json["seq"] and len(running.workers) == 2:
                    owner = running.sql(
                        f"SELECT name FROM process JOIN session ON owner = process.id WHERE session.id = '{session}'"
                    )
                    pid = int(owner[0][0].rpartition(":")[2])
                    dead = next(worker for worker in running.workers if worker.pid == pid)
                    dead.kill()
                    dead.wait()
                    running.workers.remove(dead)
                if event.json["type"] == "turn.finished":
                    outcome = event.json["outcome"]
                    break
        assert outcome == "done"
        assert seen == list(range(1, seen[-1] + 1))
        assert send(running, session, id="task")["seq"] < seen[-1]


@pytest.mark.long
def test_a_worker_that_is_stopped_with_a_request_loses_it_and_the_client_is_told(tmp_path: Path) -> None:
    with cluster(tmp_path, (say("hello"),), workers=1) as running:
        session = begun(running)
        running.workers[0].send_signal(signal.SIGSTOP)
        try:
            answer = running.ask(
                "POST", f"/api/sessions/{session}/commands", {"type": "rename", "title": "x"}, timeout=60
            )
        finally:
            running.workers[0].send_signal(signal.SIGCONT)
        assert (answer.status, answer.code) == (503, "no_worker")
        until(lambda: running.sql("SELECT count(*) FROM request") == [(0,)], seconds=90)
        assert running.ask("POST", f"/api/sessions/{session}/commands", {"type": "rename", "title": "y"}).status == 202


def test_requests_wait_for_a_database_that_restarts_or_fail_clearly_and_gateways_recover(tmp_path: Path) -> None:
    with cluster(tmp_path, (say("hello"), say("hello again")), workers=1) as running:
        session = begun(running)
        send(running, session)
        until_ended(running, session)
        running.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        answers = []

        def sent() -> bool:
            answer = running.ask(
                "POST", f"/api/sessions/{session}/commands", {"type": "rename", "title": "after"}, timeout=60
            )
            answers.append(answer.status)
            return answer.status == 202

        until(sent, seconds=30)
        assert set(answers) <= {202, 500, 503}
        assert state(running, session)["title"] == "after"


@pytest.mark.long
def test_connections_that_are_cut_all_the_time_double_no_message_and_lose_none_that_was_accepted(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, lambda received: say("hello"), workers=2) as running:
        session, accepted, ends = begun(running), set[str](), time.monotonic() + 20
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND random() < 0.5"
        number = 0
        while time.monotonic() < ends:
            running.sql(f"{cut} AND datname = current_database()")
            for _ in range(3):
                number += 1
                message = {"role": "user", "parts": [{"type": "text", "text": f"number {number}"}]}
                body = {"type": "submit", "id": f"n{number}", "message": message}
                answer = running.ask("POST", f"/api/sessions/{session}/commands", body, timeout=60)
                assert answer.status in (202, 500, 503), answer.body
                accepted |= {f"n{number}"} if answer.status == 202 else set()
        assert len(accepted) > number / 2
        until(lambda: state(running, session)["status"] == "done", seconds=60)
        inputs = [event["origin"]["key"] for event in running.logs() if event["type"] == "input.received"]
        assert len(inputs) == len(set(inputs))
        assert accepted <= set(inputs)
        until(lambda: running.sql("SELECT count(*) FROM request WHERE state = 'open'") == [(0,)], seconds=60)
        used = [cpu_of(worker.pid) for worker in running.workers]
        time.sleep(3)
        assert all(cpu_of(worker.pid) - before < 1.5 for worker, before in zip(running.workers, used, strict=True))


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
