"""Memory across sessions, as a user has it: told in one session, known in another, and gone after a purge."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testkit.amount import mostly_long

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, hang, say

FACTS = ("I am called Ada.", "We deploy on Fridays.", "The staging host is called nordwind.")


def environment(workspace: Path, **env: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LLM", "XDG", "AGENT", "LMAGENT"))
    }
    return {**kept, "HOME": str(workspace.parent), **env}


def lmagent(workspace: Path, *arguments: str, url: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    env = {**env, **({"LLM_URL": url} if url else {})}
    return subprocess.run(
        [sys.executable, "-m", "lmagent", *arguments],
        env=environment(workspace, **env),
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def remember(text: str, **more: object):
    return call("use_tool", name="memory", arguments={"operation": "store", "content": text, **more})


def search(query: str):
    return call("use_tool", name="memory_search", arguments={"query": query})


def prompt_of(request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def listed(workspace: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in lmagent(workspace, "memory", "list", "--json").stdout.splitlines()]


def test_three_facts_told_in_a_session_that_is_killed_are_known_in_the_next_one_and_why(empty_workspace):
    steps = [*(remember(fact) for fact in FACTS), hang()]
    with ScriptedServer(steps) as server:
        task = "Please remember: " + " ".join(FACTS)
        command = [sys.executable, "-m", "lmagent", "--permission", "auto", task]
        env = environment(empty_workspace, LLM_URL=server.url)
        running = subprocess.Popen(command, env=env, cwd=empty_workspace, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while len(server.chats) < 4 and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
        running.wait(10)
    assert [row["pinned"] for row in listed(empty_workspace)] == [True] * 3

    with ScriptedServer([search("Where is staging?"), say("It is nordwind.")]) as server:
        done = lmagent(empty_workspace, "What is the staging host called?", url=server.url)
        assert done.returncode == 0, done.stderr
        first, second = server.chats[0], server.chats[1]
    assert all(fact in prompt_of(first) for fact in FACTS)
    assert "nordwind" in second.body["messages"][-1]["content"]

    id = next(str(row["id"]) for row in listed(empty_workspace) if "nordwind" in str(row["text"]))
    why = lmagent(empty_workspace, "memory", "why", id).stdout
    assert "stored by the model" in why
    assert "the user: Please remember: I am called Ada." in why


def test_what_the_user_did_not_ask_to_be_remembered_is_a_note_and_not_in_the_next_prompt(empty_workspace):
    with ScriptedServer([remember("The office has a blue door."), say("Noted.")]) as server:
        lmagent(empty_workspace, "Look around.", url=server.url)
    assert [row["pinned"] for row in listed(empty_workspace)] == [False]
    with ScriptedServer([search("door"), say("Blue.")]) as server:
        lmagent(empty_workspace, "What colour is the door?", url=server.url)
        assert "blue door" not in prompt_of(server.chats[0])
        assert "blue door" in server.chats[1].body["messages"][-1]["content"]


def test_earlier_messages_are_found_without_being_stored_but_not_those_of_the_own_session(empty_workspace):
    with ScriptedServer([say("Gustav is the name of the printer, as you say.")]) as server:
        lmagent(empty_workspace, "Our printer is called Gustav.", url=server.url)
    with ScriptedServer([search("printer"), say("Gustav.")]) as server:
        lmagent(empty_workspace, "How is the printer called?", url=server.url)
        found = server.chats[1].body["messages"][-1]["content"]
    assert "Our printer is called Gustav." in found
    assert "How is the printer called?" not in found
    shown = lmagent(empty_workspace, "memory", "search", "printer").stdout
    assert "user said" in shown


def test_without_memories_the_first_prompt_has_no_note_of_them(empty_workspace):
    with ScriptedServer([say("Hello.")]) as server:
        lmagent(empty_workspace, "hello", url=server.url)
        assert "<memory>" not in prompt_of(server.chats[0])
    assert not (empty_workspace / ".lmagent" / "memory").exists()


def test_the_pinned_part_stays_as_it_was_for_the_life_of_a_session(empty_workspace):
    lmagent(empty_workspace, "memory", "add", "--pin", "The cat is called Minka.")
    with ScriptedServer([say("Hello."), say("Still here.")]) as server:
        lmagent(empty_workspace, "hello", url=server.url)
        lmagent(empty_workspace, "memory", "add", "--pin", "The dog is called Rex.")
        lmagent(empty_workspace, "--continue", "and now?", url=server.url)
        first, second = (request.body["messages"] for request in server.chats)
    assert second[: len(first)] == first
    assert "Minka" in json.dumps(first)
    assert "Rex" not in json.dumps(second)


def test_memories_of_a_folder_that_is_not_trusted_are_said_to_be_data(empty_workspace):
    (empty_workspace / ".lmagent" / "memory").mkdir(parents=True)
    (empty_workspace / ".lmagent" / "memory" / "MEMORY.md").write_text("- The moon is made of cheese.\n")
    with ScriptedServer([say("Hello.")]) as server:
        lmagent(empty_workspace, "hello", url=server.url)
        assert "The folder is not trusted" in prompt_of(server.chats[0])


def test_a_refused_text_is_told_to_the_model_and_listed_and_a_secret_is_nowhere(empty_workspace):
    with ScriptedServer([remember("The password is hunter2hunter2."), say("Sorry.")]) as server:
        lmagent(empty_workspace, "store the thing", url=server.url)
        assert "looks like a secret" in server.chats[1].body["messages"][-1]["content"]
    assert listed(empty_workspace) == []
    refused = lmagent(empty_workspace, "memory", "list", "--refused").stdout
    assert "looks like a secret" in refused
    assert "hunter2" not in refused


def test_a_purge_leaves_no_byte_of_the_text(empty_workspace):
    secret = "Operation Kingfisher begins in Narvik"
    with ScriptedServer([remember(f"{secret}."), search("kingfisher"), say(f"Noted: {secret}.")]) as server:
        lmagent(empty_workspace, f"Remember that {secret}.", url=server.url)
    lmagent(empty_workspace, "memory", "search", "kingfisher")
    lmagent(empty_workspace, "sessions", "list")
    id = str(listed(empty_workspace)[0]["id"])
    lmagent(empty_workspace, "memory", "edit", id, f"{secret} at dawn.")
    done = lmagent(empty_workspace, "memory", "purge", "--yes", secret)
    assert done.returncode == 0, done.stderr
    left = [path for path in empty_workspace.parent.rglob("*") if path.is_file() and b"Kingfisher" in path.read_bytes()]
    assert left == []
    assert lmagent(empty_workspace, "sessions", "show", "last").returncode == 0
    assert listed(empty_workspace) == []


def test_the_folder_of_agent_computer_is_taken_over_and_written_again(empty_workspace):
    old = empty_workspace / "memory"
    old.mkdir()
    (old / "knowledge.md").write_text(
        "# Knowledge\n\n## API\nThe API listens on port 8000.\n\n## List\n- Ports are open.\n"
    )
    (old / "learnings.md").write_text("# Learnings\n\n- A missing comma broke the JSON; adding it fixed it.\n")
    with sqlite3.connect(old / "memory.db") as db:
        db.execute("CREATE TABLE memories (id INTEGER, title TEXT, content TEXT, category TEXT, embedding BLOB)")
        rows = [("Cats", "The cat likes fish.", "knowledge"), ("Key", "The password is hunter2.", "knowledge")]
        db.executemany("INSERT INTO memories VALUES (1, ?, ?, ?, NULL)", rows)
    done = lmagent(empty_workspace, "memory", "import", "memory")
    assert "took 4 memories" in done.stdout, done.stderr
    assert "looks like a secret" in done.stderr
    assert "API listens" in lmagent(empty_workspace, "memory", "search", "which port has the API").stdout
    written = lmagent(empty_workspace, "memory", "export", "out")
    assert written.returncode == 0, written.stderr
    assert "- Cats: The cat likes fish." in (empty_workspace / "out" / "knowledge.md").read_text()
    assert "missing comma" in (empty_workspace / "out" / "learnings.md").read_text()
    assert "processed_sessions" in json.loads((empty_workspace / "out" / "index.json").read_text())


def test_reflection_reads_what_is_new_and_its_run_can_be_taken_back(empty_workspace):
    with ScriptedServer([say("Fine.")]) as server:
        lmagent(empty_workspace, "Remember: the deploy key is in the safe of Ada.", url=server.url)
    (log,) = empty_workspace.glob(".lmagent/sessions/*/events.jsonl")
    seq = next(
        event["seq"] for event in map(json.loads, log.read_text().splitlines()) if event["type"] == "input.received"
    )
    fact = {"text": "The deploy key is in the safe of Ada.", "kind": "fact", "evidence": [str(seq)]}
    with ScriptedServer([say(json.dumps({"facts": [fact]}))]) as server:
        done = lmagent(empty_workspace, "memory", "reflect", url=server.url)
        assert "+ m-" in done.stdout, done.stdout + done.stderr
        assert "the deploy key is in the safe" in prompt_of(server.chats[0])
    assert [row["pinned"] for row in listed(empty_workspace)] == [True]
    with ScriptedServer([]) as server:
        assert "read 0 sessions" in lmagent(empty_workspace, "memory", "reflect", url=server.url).stdout
    assert "undo" in lmagent(empty_workspace, "memory", "undo").stdout
    assert listed(empty_workspace) == []


def test_an_index_that_was_damaged_is_named_and_built_again(empty_workspace):
    lmagent(empty_workspace, "memory", "add", "The office is in Bergen.")
    (empty_workspace / ".lmagent" / "memory" / "index.db").write_bytes(b"damaged " * 1000)
    found = lmagent(empty_workspace, "memory", "search", "office")
    assert "Bergen" in found.stdout
    assert "damaged" in found.stderr


def test_undo_takes_back_the_newest_change_of_both_scopes_or_of_the_one_that_is_named(empty_workspace):
    lmagent(empty_workspace, "memory", "add", "The office is in Bergen.")
    lmagent(empty_workspace, "memory", "add", "--scope", "user", "The user is called Ada.")
    lmagent(empty_workspace, "memory", "add", "--scope", "user", "The user likes tabs.")
    assert "- notes" in lmagent(empty_workspace, "memory", "undo").stdout
    assert [row["text"] for row in listed(empty_workspace)] == ["The office is in Bergen.", "The user is called Ada."]
    assert "Bergen" in lmagent(empty_workspace, "memory", "undo", "--scope", "workspace").stdout
    assert [row["text"] for row in listed(empty_workspace)] == ["The user is called Ada."]


@pytest.mark.parametrize("arguments", [("show", "m-nothing"), ("import", "."), ("search", "x", "--since", "soon")])
def test_bad_input_is_one_clear_line(empty_workspace, arguments):
    done = lmagent(empty_workspace, "memory", *arguments)
    assert done.returncode in (1, 64)
    assert done.stderr.count("\n") <= 4
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", mostly_long(["role", "input.received", "message", "user"]))
def test_a_word_of_the_log_s_format_is_refused_and_nothing_is_changed(empty_workspace, word):
    with ScriptedServer([say("Fine.")]) as server:
        lmagent(empty_workspace, "a message of the user in a role", url=server.url)
    (log,) = empty_workspace.glob(".lmagent/sessions/*/events.jsonl")
    before = log.read_bytes()
    done = lmagent(empty_workspace, "memory", "purge", "--yes", word)
    assert done.returncode == 1
    assert "how logs are written" in done.stderr
    assert log.read_bytes() == before
