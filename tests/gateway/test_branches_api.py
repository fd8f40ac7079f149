"""Copies of a session that end before a turn, and the turns in which sessions part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import Answer, Running, gateway, until

from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.store.branches import Branch, end_before, forks_of
from lmagent.testing.script import hang, say


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("branches")
    with gateway(
        folder, lambda asked: hang(say("never")) if "for ever" in str(asked.fields) else say("Yes.")
    ) as started:
        yield started


def command(running: Running, session: str, type: str, **fields: Any) -> Answer:
    return running.ask("POST", f"/api/sessions/{session}/commands", {"type": type, **fields})


def said(running: Running, session: str, text: str) -> None:
    parts = [{"type": "text", "text": text}]
    assert command(running, session, "submit", message={"role": "user", "parts": parts}).status == 202


def view(running: Running, session: str) -> dict[str, Any]:
    return running.ask("GET", f"/api/sessions/{session}/view").json["view"]


def talked(running: Running, *texts: str) -> str:
    session = running.ask("POST", "/api/sessions", {}).json["session"]
    for text in texts:
        before = view(running, session)["turn"]
        said(running, session, text)
        until(partial(rests, running, session, before + 1))
    return session


def rests(running: Running, session: str, turn: int) -> bool:
    shown = view(running, session)
    return shown["turn"] == turn and shown["state"] == "idle"


def seen(running: Running, session: str) -> list[str]:
    blocks = view(running, session)["blocks"]
    return [block.get("text") or block["parent"] for block in blocks]


def forks(running: Running, session: str) -> list[tuple[int, int, list[str]]]:
    rows = running.ask("GET", f"/api/sessions/{session}/branches").json["forks"]
    return [(row["turn"], row["at"], [one["id"] for one in row["sessions"]]) for row in rows]


def test_a_copy_ends_before_a_turn_and_the_message_that_began_it(running: Running) -> None:
    session = talked(running, "one", "two", "three")
    copy = command(running, session, "fork", before_turn=2).json["session"]
    assert seen(running, copy) == ["one", "Yes.", session]
    assert seen(running, session) == ["one", "Yes.", "two", "Yes.", "three", "Yes."]
    empty = command(running, session, "fork", before_turn=1).json["session"]
    assert seen(running, empty) == [session]
    whole = command(running, session, "fork", before_turn=4).json["session"]
    assert seen(running, whole)[:-1] == seen(running, session)
    said(running, copy, "another two")
    until(lambda: seen(running, copy)[3:] == ["another two", "Yes."])


def test_the_turns_of_the_blocks_are_told_and_the_list_names_the_parent(running: Running) -> None:
    session = talked(running, "one", "two")
    assert [(block["kind"], block["turn"]) for block in view(running, session)["blocks"]] == [
        ("user", 1),
        ("text", 1),
        ("user", 2),
        ("text", 2),
    ]
    copy = command(running, session, "fork", before_turn=2).json["session"]
    row = running.ask("GET", f"/api/sessions/{copy}").json
    assert (row["parent"], row["branch_turn"]) == (session, 2)


def test_sessions_that_part_in_a_turn_are_known_to_each_other(running: Running) -> None:
    session = talked(running, "one", "two")
    assert forks(running, session) == []
    first = command(running, session, "fork", before_turn=2).json["session"]
    second = command(running, first, "fork", before_turn=2).json["session"]  # a copy of a copy that said nothing yet
    row = [session, first, second]
    assert forks(running, session) == [(2, 0, row)]
    assert forks(running, first) == [(2, 1, row)]
    assert forks(running, second) == [(2, 2, row)]
    assert running.ask("DELETE", f"/api/sessions/{session}").status == 200
    assert forks(running, second) == [(2, 1, [first, second])]
    assert running.ask("GET", "/api/sessions/no-such-session/branches").status == 404


def test_a_copy_in_the_middle_of_the_turn_that_runs_is_refused_with_what_to_do(running: Running) -> None:
    session = talked(running, "one")
    said(running, session, "for ever")
    until(lambda: view(running, session)["turn"] == 2)
    refused = command(running, session, "fork", before_turn=3)
    assert (refused.status, refused.json["error"]["message"]) == (
        409,
        "the turn before the place of the copy is still running",
    )
    assert command(running, session, "fork", before_turn=2).status == 202
    assert command(running, session, "fork", before_turn=2, through_seq=2).status == 400
    assert command(running, session, "interrupt").status == 202


def row(id: str, parent: str = "", turn: int = 0) -> Branch:
    return Branch(id, id, 0.0, parent, turn)


def test_a_branch_of_a_branch_belongs_to_the_session_whose_turns_it_shares() -> None:
    rows = {one.id: one for one in (row("a"), row("b", "a", 3), row("c", "b", 2), row("d", "b", 5), row("e", "d", 4))}

    def ids(session: str) -> list[tuple[int, int, str]]:
        return [(fork.turn, fork.at, "".join(one.id for one in fork.sessions)) for fork in forks_of(session, rows)]

    assert ids("a") == [(2, 0, "ac"), (3, 0, "ab")]
    assert ids("d") == [(2, 0, "ac"), (3, 1, "ab"), (4, 0, "be"), (5, 1, "bd")]
    assert ids("c") == [(2, 1, "ac")]
    assert ids("nowhere") == []


def test_logs_that_name_each_other_as_origin_do_not_go_round_for_ever() -> None:
    rows = {one.id: one for one in (row("a", "b", 2), row("b", "a", 2))}
    assert forks_of("a", rows) is not None


def test_a_message_that_waits_for_the_next_turn_is_not_copied(tmp_path: Path) -> None:
    events = [
        ev.SessionCreated(seq=1, session="s", workspace="/", agent="a", system="", tools=()),
        ev.InputReceived(seq=2, message=user("one"), delivery="submit"),
        ev.TurnStarted(seq=3, turn=1),
        ev.TurnFinished(seq=4, turn=1, outcome="done"),
        ev.InputReceived(seq=5, message=user("two"), delivery="submit"),
        ev.TurnStarted(seq=6, turn=2),
    ]
    assert [end_before(events, turn) for turn in (1, 2, 3)] == [1, 4, 0]
