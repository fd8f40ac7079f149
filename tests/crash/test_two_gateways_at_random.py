"""Two gateways on one workspace, killed and started anew at random, while clients send to both and watch both.

What was accepted by either is taken in once, reaches the model once and is done once; who watches either has every
recorded event once and in order, whichever process wrote it.
"""

from __future__ import annotations

import json
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from gateway_kit import Running

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

pytestmark = [pytest.mark.crash, pytest.mark.long]

MESSAGES, KILLS = 8, 5
SECONDS = 60.0
AWAY = (OSError, HTTPException)


def stamping(received: Received) -> Reply:
    """Leaves a mark for the input that it is given."""
    last = received.fields["messages"][-1]
    names = re.findall(r"stamp (\w+)", str(last["content"])) if last["role"] == "user" else []
    return slow(call("shell", command=f"echo {names[-1]} >> stamps") if names else say("done"), first=0.05)


def until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Both:
    """Two gateways on one workspace, and what those saw who watch."""

    def __init__(self, folder: Path, model: ScriptedServer) -> None:
        env = {"PERMISSION_MODE": "auto", "SANDBOX": "off"}
        self.gateways = [Running(folder, model, (), env) for _ in range(2)]
        self.workspace = self.gateways[0].workspace
        self.is_over = threading.Event()
        self.seen: dict[tuple[int, str], list[int]] = {}

    def send_all(self, session: str, names: list[str]) -> None:
        """Send messages, one after the other, to either of the two."""
        chance = random.Random(names[0])
        for name in names:
            self._send(session, name, chance)
            time.sleep(chance.uniform(0, 0.3))

    def _send(self, session: str, name: str, chance: random.Random) -> None:
        """Send one message until somebody accepts it."""
        parts = [{"type": "text", "text": f"stamp {name}"}]
        command = {"type": "submit", "id": name, "message": {"role": "user", "parts": parts}}

        def is_accepted() -> bool:
            try:
                answer = chance.choice(self.gateways).ask("POST", f"/api/sessions/{session}/commands", command)
            except AWAY:
                return False
            assert answer.status in (202, 409, 503), answer.body  # 409: the other one has the session open
            return answer.status == 202

        until(is_accepted, f"{name} is not accepted")

    def watch(self, number: int, session: str) -> None:
        """Follow a session at one of them, and come back with the last event whenever the stream breaks."""
        seen = self.seen[number, session] = []
        while not self.is_over.is_set():
            try:
                after = {"Last-Event-ID": str(seen[-1])} if seen else {}
                path = f"/api/sessions/{session}/events"
                with self.gateways[number].stream(path, after, timeout=2) as events:
                    seen.extend(int(event.id) for event in events if event.id)
            except AWAY:
                time.sleep(0.05)

    def log(self, session: str) -> list[dict]:
        file = self.workspace / ".lmagent" / "sessions" / session / "events.jsonl"
        return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]

    def is_done(self, session: str, inputs: int) -> bool:
        kinds = Counter(event["type"] for event in self.log(session))
        return kinds["input.received"] == inputs == kinds["turn.finished"]


def assert_done_once(both: Both, session: str, names: list[str], marks: Counter[str]) -> None:
    """Each was taken in once and reached the model once; its mark was left once, or its call was cut off."""
    events = both.log(session)
    seqs = [event["seq"] for event in events]
    assert seqs == list(range(1, len(seqs) + 1))
    inputs = {event["id"]: event["origin"]["key"] for event in events if event["type"] == "input.received"}
    assert list(inputs.values()) == names
    assert Counter(event["input"] for event in events if event.get("input")) == Counter(list(inputs))
    assert {event["outcome"] for event in events if event["type"] == "turn.finished"} == {"done"}
    cut_off = sum(event["type"] == "tool.finished" and event["status"] == "interrupted" for event in events)
    left = [marks[name] for name in names]
    assert max(left) == 1
    assert len(names) - cut_off <= sum(left)


def test_what_either_accepts_is_done_once_and_seen_once_at_both(tmp_path):
    chance = random.Random(1)
    with ScriptedServer(stamping, slots=64) as model, ThreadPoolExecutor() as threads:
        both = Both(tmp_path, model)
        try:
            for running in both.gateways:
                running.start()
            sessions = [both.gateways[0].ask("POST", "/api/sessions", {}).json["session"] for _ in range(2)]
            names = {session: [f"s{at}m{number}" for number in range(MESSAGES)] for at, session in enumerate(sessions)}
            watchers = [threads.submit(both.watch, number, session) for number in (0, 1) for session in sessions]
            clients = [threads.submit(both.send_all, session, names[session]) for session in sessions]
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.1, 0.8))
                victim = chance.choice(both.gateways)
                victim.kill()
                victim.start()
            for client in clients:
                client.result()
            until(lambda: all(both.is_done(session, MESSAGES) for session in sessions), "the turns do not end")
            marks = Counter((both.workspace / "stamps").read_text().split())
            for session in sessions:
                assert_done_once(both, session, names[session], marks)
                all_of_it = [event["seq"] for event in both.log(session)]
                for number in (0, 1):
                    until(lambda: len(both.seen[number, session]) >= len(all_of_it), "an event is not seen")  # noqa: B023
                    assert both.seen[number, session] == all_of_it
        finally:
            both.is_over.set()
            for running in both.gateways:
                running.stop()
        for watcher in watchers:
            watcher.result()
