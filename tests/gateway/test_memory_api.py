"""Memory over HTTP: stored, found, explained, changed, taken back, and reflected on."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gateway_kit import Client, Running, gateway, held, until

from lmagent.testing.script import say


def stored(running: Client, text: str, **more: Any) -> dict[str, Any]:
    answer = running.ask("POST", "/api/memory", {"text": text, **more})
    assert answer.status == 201, answer.body
    return answer.json


def begun(running: Running, text: str) -> str:
    """A session with one turn; its id."""
    session = running.ask("POST", "/api/sessions", {}).json["session"]
    submit = {"type": "submit", "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}
    assert running.ask("POST", f"/api/sessions/{session}/commands", submit).status == 202
    until(lambda: running.ask("GET", f"/api/sessions/{session}").json["turns"])
    return session


def texts(running: Client, query: str = "") -> list[str]:
    return [row["text"] for row in running.ask("GET", f"/api/memory{query}").json["memories"]]


def test_memories_of_both_scopes_are_listed_with_the_pinned_ones_first(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        empty = {"memories": [], "refused": [], "problems": [], "last": None}
        assert running.ask("GET", "/api/memory").json == empty
        pinned = stored(running, "The user likes tabs.", kind="preference", scope="user", pinned=True)
        note = stored(running, "The office is in Bergen.")
        assert (pinned["file"], pinned["pinned"], note["pinned"], note["by"]) == ("USER.md", True, False, "user")
        assert texts(running) == ["The user likes tabs.", "The office is in Bergen."]
        assert texts(running, "?scope=workspace") == ["The office is in Bergen."]
        assert running.ask("GET", "/api/memory?scope=moon").status == 400


def test_a_memory_is_edited_pinned_forgotten_and_each_change_is_taken_back(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        first = stored(running, "The office is in Bergen.")
        moved = running.ask(
            "POST", f"/api/memory/entries/{first['id']}", {"text": "The office is in Oslo.", "pinned": True}
        ).json
        assert (moved["text"], moved["file"]) == ("The office is in Oslo.", "MEMORY.md")
        assert moved["id"] != first["id"]
        assert running.ask("DELETE", f"/api/memory/entries/{moved['id']}").status == 200
        assert texts(running) == []
        last = running.ask("GET", "/api/memory").json["last"]
        assert (last["what"], last["removed"]) == ("forget", ["The office is in Oslo."])
        assert running.ask("POST", "/api/memory/undo").json["added"] == ["The office is in Oslo."]
        assert texts(running) == ["The office is in Oslo."]
        for _ in ("pin", "edit", "store"):
            assert running.ask("POST", "/api/memory/undo").status == 200
        assert texts(running) == []
        answer = running.ask("POST", "/api/memory/undo")
        assert (answer.status, answer.code) == (409, "nothing_to_undo")


def test_undo_takes_back_the_newest_change_of_both_scopes(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        stored(running, "The office is in Bergen.")
        stored(running, "The user likes tabs.", scope="user")
        assert running.ask("POST", "/api/memory/undo").json["scope"] == "user"
        assert texts(running) == ["The office is in Bergen."]


def test_what_may_not_be_remembered_is_refused_with_the_reason_and_a_secret_is_not_repeated(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        known = stored(running, "The office is in Bergen.")
        for method, path in (("POST", "/api/memory"), ("POST", f"/api/memory/entries/{known['id']}")):
            answer = running.ask(method, path, {"text": "The password is hunter2."})
            assert (answer.status, answer.code) == (422, "refused")
            assert "secret" in answer.json["error"]["message"]
        (row, _) = running.ask("GET", "/api/memory").json["refused"]
        assert (row["text"], row["reason"]) == ("", "it looks like a secret")
        assert running.ask("POST", "/api/memory", {"text": "  "}).code == "refused"
        assert running.ask("POST", "/api/memory", {"text": "A fact.", "by": "hand"}).status == 400


def test_a_memory_that_is_not_there_and_a_caller_without_credentials_get_nothing(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        stored(running, "The office is in Bergen.")
        for method, path, body in (
            ("GET", "/api/memory/entries/m-nothing/why", None),
            ("POST", "/api/memory/entries/m-nothing", {"pinned": True}),
            ("DELETE", "/api/memory/entries/..%2f..%2fx", None),
        ):
            answer = running.ask(method, path, body)
            assert (answer.status, answer.code) == (404, "not_found"), answer.body
        for method, path in (("GET", "/api/memory"), ("POST", "/api/memory/undo"), ("GET", "/api/memory/search?q=x")):
            assert running.anyone.ask(method, path).status == 401
        page = running.page()
        other = Client(running.port, {"Cookie": page.headers["Cookie"]})  # as a form of another site
        assert other.ask("POST", "/api/memory/undo").status == 403
        assert texts(running) == ["The office is in Bergen."]


def test_a_full_pinned_part_is_no_fault_of_the_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        for letter in "abcd":
            stored(running, letter * 900, pinned=True)
        answer = running.ask("POST", "/api/memory", {"text": "e" * 900, "pinned": True})
        assert (answer.status, answer.code) == (409, "not_written")
        assert "more than 4,000" in answer.json["error"]["message"]


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_listed(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        stored(running, "The office is in Bergen.")
        (running.workspace / ".lmagent/memory/MEMORY.md").write_bytes(b"\xff\xfe")
        listed = running.ask("GET", "/api/memory").json
        assert "no UTF-8" in listed["problems"][0]
        assert texts(running) == ["The office is in Bergen."]


def test_search_finds_memories_and_messages_of_sessions(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("Noted.")]) as running:
        session = begun(running, "Our mascot is a walrus named Ola.")
        stored(running, "The walrus has a blue hat.")
        hits = running.ask("GET", "/api/memory/search?q=walrus").json["hits"]
        assert {hit["session"] for hit in hits if hit["memory"] is None} == {session}
        assert [hit["memory"]["text"] for hit in hits if hit["memory"]] == ["The walrus has a blue hat."]
        assert len(running.ask("GET", "/api/memory/search?q=walrus&limit=1").json["hits"]) == 1
        assert running.ask("GET", "/api/memory/search?q=x&limit=1000").status == 400


def test_reflection_stores_facts_whose_evidence_why_shows_and_proposes_the_others(tmp_path: Path) -> None:
    script = [say("Ada likes tea. Fine.")]
    with gateway(tmp_path, script) as running:
        session = begun(running, "Remember: the deploy key is in the safe of Ada.")
        events = running.logs()
        (heard,) = (event["seq"] for event in events if event["type"] == "input.received")
        said = max(event["seq"] for event in events if event["type"] == "message.added")
        facts = [
            {"text": "The deploy key is in the safe of Ada.", "kind": "fact", "evidence": [str(heard)]},
            {"text": "Ada likes tea.", "kind": "fact", "evidence": [str(said)]},
        ]
        script.append(say(json.dumps({"facts": facts})))
        report = running.ask("POST", "/api/memory/reflect", timeout=60)
        assert report.status == 200, report.body
        assert (report.json["sessions"], report.json["failed"]) == (1, [])
        rows = {row["text"]: row for row in running.ask("GET", "/api/memory").json["memories"]}
        pinned, noted = (rows[fact["text"]] for fact in facts)
        assert (pinned["pinned"], pinned["proposed"]) == (True, False)
        assert (noted["pinned"], noted["proposed"]) == (False, True)
        why = running.ask("GET", f"/api/memory/entries/{pinned['id']}/why").json
        assert why["path"].endswith("MEMORY.md")
        assert [change["what"] for change in why["changes"]] == ["reflect"]
        (evidence,) = why["evidence"]
        assert (evidence["session"], evidence["seq"]) == (session, heard)
        assert "the safe of Ada" in evidence["text"]
        accepted = running.ask("POST", f"/api/memory/entries/{noted['id']}", {"pinned": True}).json
        assert (accepted["pinned"], accepted["proposed"]) == (True, False)
        assert running.ask("POST", "/api/memory/reflect").json["sessions"] == 0


def test_a_second_reflection_is_refused_while_one_runs_and_the_first_ends(tmp_path: Path) -> None:
    gate = threading.Event()
    script: list[Any] = [say("Fine.")]
    with gateway(tmp_path, script) as running, ThreadPoolExecutor() as beside:
        begun(running, "Remember: the deploy key is in the safe of Ada.")
        script.append(held(say(json.dumps({"facts": []})), gate))
        first = beside.submit(running.ask, "POST", "/api/memory/reflect", timeout=60)
        running.until_asked(0)
        second = running.ask("POST", "/api/memory/reflect")
        gate.set()
        assert (second.status, second.code) == (409, "not_written")
        assert "is running" in second.json["error"]["message"]
        assert first.result().json["sessions"] == 1
