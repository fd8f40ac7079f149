"""A client of OpenAI's API that asks again before its first try is on record is given the same turn, not another."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateway_kit import Answer, Running

from lmagent.testing import ScriptedServer
from lmagent.testing.script import PlainAnswer, say, slow, status

MODEL = "agent/lmagent:test-model"
LISTED = {"object": "list", "data": [{"id": "test-model", "object": "model"}]}


class SlowToList:
    """A model server that takes its time to say what it serves, from when it `is_slow` until it `may`."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may = threading.Event()
        self.is_slow = False
        self.fails = False

    def __call__(self, received: object) -> PlainAnswer:
        if self.is_slow:
            self.asked.set()
            assert self.may.wait(30)
            if self.fails:
                self.fails = False
                return status(401)
        return status(200, LISTED)


@pytest.mark.parametrize("session", ["", "named-by-its-client"])
@pytest.mark.parametrize("fails", [False, True])
def test_who_asks_again_before_the_first_try_is_on_record_is_given_the_same_turn(
    tmp_path: Path, session: str, fails: bool
) -> None:
    listing = SlowToList()
    replies = [slow(say("Done."), first=0.5), say("Twice.")]
    with ScriptedServer(replies, routes={"/v1/models": listing}) as model, ThreadPoolExecutor() as threads:
        running = Running(tmp_path, model, (), {})
        running.start()
        try:

            def ask(**headers: str) -> Answer:
                body = {"model": MODEL, "messages": [{"role": "user", "content": "do it"}]}
                return running.ask("POST", "/v1/chat/completions", body, {"X-Session": session, **headers})

            listing.is_slow, listing.fails = True, fails
            first = threads.submit(ask)
            assert listing.asked.wait(30)
            again = threads.submit(ask, **{"X-Stainless-Retry-Count": "1"})
            time.sleep(0.5)  # it arrives
            listing.may.set()
            answers = [first.result(), again.result()]
            assert [answer.status for answer in answers] == [502 if fails else 200, 200]
            assert answers[-1].json["choices"][0]["message"]["content"] == "Done."
            logs = list(running.workspace.glob(".lmagent/sessions/*/events.jsonl"))
            assert sum(log.read_text().count('"type":"input.received"') for log in logs) == 1
        finally:
            listing.may.set()
            running.stop()
