"""Pinned and archived sessions: facts of their logs, for the page, the terminal and programs alike."""

from __future__ import annotations

import os
import subprocess
import sys

from gateway_kit import Running, gateway, shared

from lmagent.testing.script import say


def begin(running: Running, title: str) -> str:
    return running.ask("POST", "/api/sessions", {"title": title}).json["session"]


def mark(running: Running, session: str, **marks: bool) -> None:
    answer = running.ask("POST", f"/api/sessions/{session}/commands", {"type": "mark", **marks})
    assert answer.status == 202, answer.body


def titles(running: Running, query: str = "") -> list[str]:
    return [row["title"] for row in running.ask("GET", f"/api/sessions?{query}").json["sessions"]]


def cli(running: Running, *words: str) -> str:
    command = [sys.executable, "-m", "lmagent", "sessions", "-w", str(running.workspace), *words]
    env = {**os.environ, **running.env}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_pinned_sessions_come_first_on_every_page_and_archived_ones_have_a_shelf_of_their_own():
    with shared([say("ok")]) as running:
        ids = {name: begin(running, name) for name in ("alpha", "beta", "charlie", "delta")}
        mark(running, ids["alpha"], pinned=True)
        mark(running, ids["charlie"], archived=True)
        assert titles(running, "shelf=open") == ["alpha", "delta", "beta"]
        assert titles(running, "shelf=archived") == ["charlie"]
        assert titles(running) == ["alpha", "delta", "charlie", "beta"]
        seen, after = [], ""
        while True:
            page = running.ask("GET", f"/api/sessions?limit=1&shelf=open&after={after}").json
            seen += [row["title"] for row in page["sessions"]]
            if not (after := page["next"]):
                break
        assert seen == ["alpha", "delta", "beta"]
        assert titles(running, "search=charlie") == ["charlie"]


def test_a_mark_outlives_the_index_and_a_copy_has_none(tmp_path):
    with gateway(tmp_path, [say("ok")]) as running:
        session = begin(running, "kept")
        mark(running, session, pinned=True, archived=True)
        mark(running, session, archived=False)
        answer = running.ask("POST", f"/api/sessions/{session}/commands", {"type": "fork"})
        running.stop()
        for file in (running.workspace / ".lmagent").glob("state.db*"):
            file.unlink()
        running.start()
        row = running.ask("GET", f"/api/sessions/{session}").json
        assert (row["pinned"], row["archived"]) == (True, False)
        copy = running.ask("GET", f"/api/sessions/{answer.json['session']}").json
        assert (copy["pinned"], copy["archived"]) == (False, False)


def test_the_terminal_pins_and_archives_too(tmp_path):
    with gateway(tmp_path, [say("ok")]) as running:
        first, second = begin(running, "first"), begin(running, "second")
        running.stop()
        assert cli(running, "pin", first) == f"pinned {first}\n"
        assert cli(running, "archive", second) == f"archived {second}\n"
        assert "second" not in cli(running, "list")
        assert "* first" in cli(running, "list")
        assert "second" in cli(running, "list", "--archived")
        assert cli(running, "archive", "--off", second) == f"listed again: {second}\n"
        assert "second" in cli(running, "list")
        running.start()
        answer = running.ask("POST", f"/api/sessions/{first}/slash", {"line": "/pin off"})
        assert answer.json["text"] == "no longer pinned"
        assert running.ask("GET", f"/api/sessions/{first}").json["pinned"] is False
