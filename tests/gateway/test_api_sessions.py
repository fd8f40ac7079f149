"""Sessions, commands, views and slash commands over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from gateway_kit import Answer, Running, gateway, until
from images_kit import png

from lmagent.app.clock import SystemClock
from lmagent.core import events as ev
from lmagent.core.messages import Message, ToolCall
from lmagent.store.jsonl import JsonlStore
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, calls, say, think, tool

AUTO = {"PERMISSION_MODE": "auto", "SANDBOX": "off"}


def model(received: Received) -> Reply:
    """Does what the last message says."""
    last = received.fields["messages"][-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return say("That is done.")
    if "write it" in text:
        return call("write", path="note.txt", content="one\ntwo\n")
    if "print much" in text:
        return calls(tool("shell", command="seq 60000"), text="Printing.")
    if "ask me" in text:
        return say("Which colour do you want?")
    return think("hm", say("Hello."))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("api"), model, **AUTO) as started:
        yield started


def begun(running: Running, **body: Any) -> str:
    answer = running.ask("POST", "/api/sessions", body)
    assert answer.status == 201, answer.body
    return answer.json["session"]


def command(running: Running, session: str, type: str, **fields: Any) -> Answer:
    return running.ask("POST", f"/api/sessions/{session}/commands", {"type": type, **fields})


def said(*parts: dict[str, Any] | str) -> dict[str, Any]:
    texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "parts": texts}


def done(running: Running, session: str, text: str) -> dict[str, Any]:
    """Say something and wait until the turn has ended; the view then."""
    before = running.ask("GET", f"/api/sessions/{session}/view").json["view"]["turn"]
    assert command(running, session, "submit", message=said(text)).status == 202
    end = time.monotonic() + 30
    while True:
        view = running.ask("GET", f"/api/sessions/{session}/view?last=500").json["view"]
        if view["turn"] > before and view["state"] == "idle" and view["outcome"]:
            return view
        assert time.monotonic() < end, view
        time.sleep(0.05)


def test_a_session_begins_with_title_mode_and_model_and_is_listed(running):
    session = begun(running, title="My  work", mode="manual", model="other")
    row = running.ask("GET", f"/api/sessions/{session}").json
    assert (row["id"], row["session_id"], row["title"], row["waiting_for"]) == (session, session, "My work", "")
    view = running.ask("GET", f"/api/sessions/{session}/view").json["view"]
    assert (view["title"], view["mode"], view["model"]) == ("My work", "manual", "other")
    listed = running.ask("GET", "/api/sessions?limit=500").json["sessions"]
    assert session in [one["id"] for one in listed]
    found = running.ask("GET", "/api/sessions?search=work").json["sessions"]
    assert session in [one["id"] for one in found]


def test_a_list_is_read_to_its_end_page_by_page(running):
    made = {begun(running, title=f"paged {number}") for number in range(5)}
    done(running, min(made), "now this one is the newest")
    seen, after = [], ""
    while True:
        page = running.ask("GET", f"/api/sessions?limit=2&children=true&search=paged&after={quote(after)}").json
        assert len(page["sessions"]) <= 2
        seen += [row["id"] for row in page["sessions"]]
        if not (after := page["next"]):
            break
    assert len(seen) == 5
    assert set(seen) == made
    assert seen[0] == min(made)


@pytest.mark.parametrize(
    "query", ["after=yesterday", "limit=0", "limit=501", "limit=x", "children=maybe", "words=1", "limit=1&limit=2"]
)
def test_a_list_that_nobody_can_give_is_refused(running, query):
    assert running.ask("GET", f"/api/sessions?{query}").status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"type": "nothing"},
        {"type": "submit"},
        {"type": "submit", "message": {"role": "assistant", "parts": [{"type": "text", "text": "x"}]}},
        {"type": "submit", "message": {"role": "user", "parts": []}},
        {"type": "submit", "message": {"role": "user", "parts": [{"type": "text", "text": " \n"}]}},
        {"type": "submit", "message": {"role": "user", "parts": [{"type": "thinking", "text": "x"}]}},
        {"type": "submit", "id": "a b", "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}},
        {"type": "submit", "id": "a\n", "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}},
        {"type": "set_mode", "mode": "root"},
        {"type": "approve", "approval": "x", "approved": "perhaps"},
        {"type": "fork", "through_seq": 0},
        {"type": "fork", "through_seq": 1000},
        [],
        "submit",
    ],
)
def test_a_command_that_is_none_is_refused_and_records_nothing(running, body):
    session = begun(running)
    answer = running.ask("POST", f"/api/sessions/{session}/commands", body)
    assert answer.status == 400
    assert answer.json["error"]["message"]
    assert running.ask("GET", f"/api/sessions/{session}/view").json["seq"] == 1


@pytest.mark.parametrize(
    ("type", "fields"),
    [
        ("approve", {"approval": "gone", "approved": True}),
        ("withdraw", {"input": "gone"}),
        ("undo", {}),
        ("redo", {}),
        ("decide_plan", {"decision": "approved"}),
        ("answer", {"text": "blue"}),
        ("steer", {"message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}, "to": "nobody"}),
    ],
)
def test_a_command_that_does_not_fit_now_is_a_conflict(running, type, fields):
    session = begun(running)
    answer = command(running, session, type, **fields)
    assert answer.status == 409, answer.body
    assert running.ask("GET", f"/api/sessions/{session}/view").json["seq"] == 1


@pytest.mark.parametrize("type", ["interrupt", "continue", "compact", "close"])
def test_a_command_that_nothing_records_answers_the_last_event(running, type):
    session = begun(running)
    answer = command(running, session, type)
    assert (answer.status, answer.json) == (202, {"seq": 1, "session": session})


def test_a_client_cannot_pretend_to_be_a_job(running):
    session = begun(running)
    answer = command(
        running, session, "submit", message=said("hi"), origin={"kind": "cron", "key": "x:1"}, by="cron:x", id="mine"
    )
    assert answer.status == 202
    logged = [event for event in running.logs() if event["id"] and event["type"] == "input.received"]
    assert ({"kind": "web", "key": "mine"}, "web") in [(event["origin"], event["by"]) for event in logged]
    assert "cron" not in [event["origin"]["kind"] for event in logged]


def test_a_copy_is_a_session_of_its_own(running):
    session = begun(running)
    done(running, session, "hi")
    answer = command(running, session, "fork", through_seq=3).json
    copy = running.ask("GET", f"/api/sessions/{answer['session']}/view").json
    assert answer["session"] != session
    assert copy["seq"] == answer["seq"] == 4
    assert copy["view"]["session"] == answer["session"]


def test_a_deleted_session_is_gone_everywhere(running):
    session = begun(running)
    assert running.ask("DELETE", f"/api/sessions/{session}").json == {"deleted": session}
    for path in ("", "/view", "/events", "/tree", "/diff", "/export", "/blocks?before=1"):
        assert running.ask("GET", f"/api/sessions/{session}{path}").status == 404
    assert running.ask("DELETE", f"/api/sessions/{session}").status == 404
    assert command(running, session, "submit", message=said("hi")).status == 404


def test_the_view_has_the_last_blocks_and_the_others_are_fetched(running):
    session = begun(running)
    view = done(running, session, "hi")
    assert [block["kind"] for block in view["blocks"]] == ["user", "thinking", "text"]
    page = running.ask("GET", f"/api/sessions/{session}/view?last=1").json
    assert (page["first"], page["total"], len(page["view"]["blocks"])) == (2, 3, 1)
    earlier = running.ask("GET", f"/api/sessions/{session}/blocks?before=2&count=500").json
    assert earlier["first"] == 0
    assert [*earlier["blocks"], *page["view"]["blocks"]] == view["blocks"]
    assert running.ask("GET", f"/api/sessions/{session}/blocks?before=0").json == {"blocks": [], "first": 0}
    assert running.ask("GET", f"/api/sessions/{session}/blocks?before=999").json["first"] == 0
    assert running.ask("GET", f"/api/sessions/{session}/blocks").status == 400


def test_a_long_result_is_cut_in_the_view_and_whole_by_its_call(running):
    session = begun(running)
    assert command(running, session, "close").status == 202
    made = Message("assistant", (ToolCall("c1", "shell", '{"command": "seq"}'),))
    log = JsonlStore(running.workspace / ".lmagent" / "sessions", SystemClock()).open(session)
    for event in (
        ev.MessageAdded(message=made, origin="model"),
        ev.ToolFinished(call_id="c1", tool="shell", status="ok", content="x" * 9000),
    ):
        anyio.run(log.append, event)
    log.close()
    (block,) = running.ask("GET", f"/api/sessions/{session}/view").json["view"]["blocks"]
    assert (block["cut"], len(block["content"])) == (True, 8000)
    whole = running.ask("GET", f"/api/sessions/{session}/calls/c1").json
    assert (len(whole["content"]), whole["arguments"]) == (9000, '{"command": "seq"}')


def test_an_output_that_was_too_long_for_the_model_is_fetched_by_parts(running):
    session = begun(running)
    view = done(running, session, "print much")
    (block,) = [block for block in view["blocks"] if block["kind"] == "tool"]
    whole = running.ask("GET", f"/api/sessions/{session}/calls/{block['call_id']}").json
    assert (whole["tool"], whole["status"]) == ("shell", "ok")
    path = f"/api/sessions/{session}/artifacts/{whole['artifact']}"
    pieces, offset = b"", 0
    while piece := running.ask("GET", f"{path}?offset={offset}&limit=100000").body:
        pieces, offset = pieces + piece, offset + len(piece)
    assert pieces.split()[-1] == b"60000"
    assert running.ask("GET", path).headers["content-security-policy"] == "default-src 'none'; sandbox"
    for wrong in ("x", "0" * 64, "..%2F..", whole["artifact"][:10]):
        assert running.ask("GET", f"/api/sessions/{session}/artifacts/{wrong}").status == 404
    assert running.ask("GET", f"/api/sessions/{session}/calls/nothing").status == 404


def test_an_image_of_a_message_can_be_seen(running):
    session = begun(running)
    data = png(3, 2)
    upload = running.ask("POST", "/api/uploads", data, {"Content-Type": "image/png"}).json["id"]
    image = {"type": "image", "media_type": "image/png", "data": f"upload:{upload}"}
    assert command(running, session, "submit", message=said("what is it?", image)).status == 202
    block = running.ask("GET", f"/api/sessions/{session}/view").json["view"]["blocks"][0]
    assert (block["kind"], block["images"]) == ("user", 1)
    shown = running.ask("GET", f"/api/sessions/{session}/images/{block['id']}/0")
    assert (shown.status, shown.headers["content-type"], shown.body) == (200, "image/png", data)
    assert "sandbox" in shown.headers["content-security-policy"]
    for wrong in (f"{block['id']}/1", f"{block['id']}/x", f"{block['id']}/-1", "nothing/0"):
        assert running.ask("GET", f"/api/sessions/{session}/images/{wrong}").status == 404


def test_what_a_session_changed_is_shown_and_taken_back(running):
    session = begun(running)
    done(running, session, "write it")
    before = running.ask("GET", f"/api/sessions/{session}/diff").json
    assert "+two" in before["text"]
    assert before["redo"] is False
    assert command(running, session, "undo").status == 202
    assert running.ask("GET", f"/api/sessions/{session}/diff").json == {"text": "", "redo": True}
    assert not (Path(running.workspace) / "note.txt").exists()
    assert command(running, session, "redo").status == 202
    assert (Path(running.workspace) / "note.txt").read_text() == "one\ntwo\n"


def test_a_question_is_answered_once(running):
    session = begun(running)
    view = done(running, session, "ask me")
    row = running.ask("GET", f"/api/sessions/{session}").json
    assert view["outcome"] == "question"
    assert row["waiting_for"] == "question"
    first = command(running, session, "answer", text="blue", id="once")
    again = command(running, session, "answer", text="blue", id="once")
    assert (first.status, first.json) == (again.status, again.json)


@pytest.mark.parametrize(("form", "begins"), [("md", b"#"), ("html", b"<!"), ("jsonl", b"{")])
def test_a_session_is_a_file_that_is_never_shown_in_our_origin(running, form, begins):
    session = begun(running)
    done(running, session, "hi")
    answer = running.ask("GET", f"/api/sessions/{session}/export?format={form}")
    assert answer.status == 200
    assert answer.body.lstrip().startswith(begins)
    assert answer.headers["content-disposition"] == f'attachment; filename="{session}.{form}"'
    assert running.ask("GET", f"/api/sessions/{session}/export?format=pdf").status == 400


def test_slash_commands_are_those_of_every_surface(running):
    names = [row["name"] for row in running.ask("GET", "/api/slash").json["commands"]]
    assert {"help", "undo", "diff", "compact"} <= set(names)
    assert "quit" not in names
    session = begun(running)

    def slash(line: str, where: str = f"/api/sessions/{session}/slash") -> Answer:
        return running.ask("POST", where, {"line": line})

    assert "/undo" in slash("/help").json["text"]
    assert slash("/help", "/api/slash").status == 200
    assert slash("/rename Other").json == {"text": "renamed: Other", "session": "", "fresh": False}
    assert slash("/new").json["fresh"] is True
    copy = slash("/fork").json["session"]
    assert running.ask("GET", f"/api/sessions/{copy}").status == 200
    assert command(running, copy, "submit", message=said("hi")).status == 202
    assert slash("/session", "/api/slash").status == 400
    for line, status in (("/nothing", 400), ("hello", 400), ("/quit", 409), ("/undo", 409), ("/help", 200)):
        assert slash(line).status == status
    assert slash("/help", "/api/sessions/nothing/slash").status == 404


def test_a_tree_begins_with_the_session_itself(running):
    session = begun(running, title="Alone")
    (node,) = running.ask("GET", f"/api/sessions/{session}/tree").json["nodes"]
    assert (node["session"], node["parent"], node["title"]) == (session, "", "Alone")


def test_a_command_of_a_file_asks_in_the_session_and_a_new_one_is_begun_for_it(tmp_path):
    with gateway(tmp_path, [say("Seen."), say("Seen.")], PERMISSION_MODE="normal", SANDBOX="off") as running:
        folder = running.workspace / ".claude/commands/git"
        folder.mkdir(parents=True)
        (folder / "look.md").write_text("---\nargument-hint: N\n---\nSee !`echo sum-$((40 + $1))`")
        rows = running.ask("GET", "/api/slash").json["commands"]
        assert {"name": "git:look", "usage": "N", "help": "See !`echo sum-$((40 + $1))`"} in rows
        session = running.ask("POST", "/api/slash", {"line": "/git:look 2"}).json["session"]
        (approval,) = asked(running, session)
        assert approval["summary"] == "shell echo sum-$((40 + 2))"
        assert command(running, session, "approve", approval=approval["id"], approved=False).status == 202
        until(lambda: [event for event in running.recorded("notice") if "was not sent" in event["text"]])
        session = running.ask("POST", "/api/slash", {"line": "/git:look 2"}).json["session"]
        (approval,) = asked(running, session)
        assert command(running, session, "approve", approval=approval["id"], approved=True).status == 202
        until(lambda: running.recorded("turn.finished"))
        assert "sum-42\n</outside " in str(running.model.chats[0].messages[-1]["content"])


def asked(running: Running, session: str) -> list[dict]:
    def waiting() -> list[dict]:
        return running.ask("GET", f"/api/sessions/{session}/view").json["view"].get("approvals", [])

    until(waiting)
    return waiting()
