"""The result of a cron job goes where the job says, if the user lets it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import anyio
import pytest
from schedule_kit import a_host, ledger, scheduling, until, write_jobs

from lmagent.core.errors import SessionBusy
from lmagent.schedule import delivering
from lmagent.schedule.delivering import DeliveredResult, deliver
from lmagent.schedule.jobs import CronJob
from lmagent.schedule.times import parse_schedule
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

RESULT = DeliveredResult("nightly", "cron:nightly:1", 1, "s1", "done", "", "It's $HOME & `id`\nGrüße")


@contextmanager
def a_webhook(*codes: int):
    """A server that answers with these codes, then 200; gives its address and what it was sent."""
    taken: list[tuple[dict, str]] = []
    left = list(codes)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((json.loads(body), self.headers["Idempotency-Key"]))
            self.send_response(left.pop(0) if left else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", taken
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def a_webhook_that_never_ends(head: bytes):
    """A server that sends so much of an answer, and a byte now and then; gives its address."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.wfile.write(head)
            with suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b"x")
                    self.wfile.flush()
            self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", "ok"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", "failed: the webhook was not reached: no answer within 2 s"),
    ],
)
def test_a_webhook_whose_answer_never_ends_holds_nothing_up(workspace, monkeypatch, head, said):
    monkeypatch.setattr(delivering, "PATIENCE", 2.0)
    with a_webhook_that_never_ends(head) as place:
        assert delivered(workspace, job(webhook=f"http://{place}/"), sandbox_hosts=(place,)) == said


def job(**more) -> CronJob:
    return CronJob("nightly", parse_schedule("every 5m"), "Report.", **more)


def delivered(workspace, cron: CronJob, *, again: bool = False, **settings) -> str:
    async def main() -> str:
        with ScriptedServer([]) as server:
            async with a_host(workspace, server, **settings) as host:
                return await deliver(host, cron, RESULT, again=again)

    return anyio.run(main)


def test_a_webhook_gets_the_result_with_a_key_that_names_the_run(workspace):
    with a_webhook() as (place, taken):
        assert delivered(workspace, job(webhook=f"http://{place}/hook"), sandbox_hosts=(place,)) == "ok"
    ((body, key),) = taken
    assert (body["job"], body["outcome"], body["answer"], key) == ("nightly", "done", RESULT.answer, "cron:nightly:1")


def test_a_webhook_that_fails_for_a_moment_is_tried_again(workspace):
    with a_webhook(503) as (place, taken):
        assert delivered(workspace, job(webhook=f"http://{place}/"), sandbox_hosts=(place,)) == "ok"
    assert len(taken) == 2


def test_a_webhook_that_refuses_is_not_pestered(workspace):
    with a_webhook(403, 403, 403) as (place, taken):
        said = delivered(workspace, job(webhook=f"http://{place}/"), sandbox_hosts=(place,))
    assert said == "failed: the webhook was not reached: HTTP 403"
    assert len(taken) == 1


@pytest.mark.parametrize("allowed", [(), ("example.org",), ("127.0.0.1:1",)])
def test_a_webhook_that_the_user_has_not_allowed_is_not_called(workspace, allowed):
    with a_webhook() as (place, taken):
        said = delivered(workspace, job(webhook=f"http://{place}/"), sandbox_hosts=allowed)
    assert "is not allowed (sandbox_hosts, --allow-host" in said
    assert taken == []


COMMAND = 'printf %s "$LMAGENT_ANSWER" > answer.txt && test "$LMAGENT_OUTCOME" = done'


def test_a_command_gets_the_result_in_variables_and_nothing_in_it_is_code(workspace):
    assert delivered(workspace, job(command=COMMAND), sandbox="off") == "ok"
    assert (workspace / "answer.txt").read_text() == RESULT.answer


def test_a_command_that_fails_is_told_of(workspace):
    said = delivered(workspace, job(command="echo no such place; exit 3"), sandbox="off")
    assert said == "failed: the command ended with exit code 3: no such place"


def test_after_a_kill_in_the_middle_the_webhook_is_called_again_and_the_command_is_not(workspace):
    with a_webhook() as (place, taken):
        cron = job(webhook=f"http://{place}/", command="touch ran")
        said = delivered(workspace, cron, again=True, sandbox_hosts=(place,), sandbox="off")
    assert said.startswith("not repeated")
    assert len(taken) == 1
    assert not (workspace / "ran").exists()


def test_a_job_of_the_scheduler_delivers_and_the_ledger_says_so(workspace):
    async def check(place: str) -> None:
        row = {"id": "tick", "schedule": "every 1s", "prompt": "Tick.", "webhook": f"http://{place}/"}
        write_jobs(workspace, row)
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server, sandbox_hosts=(place,)) as host, scheduling(host):
                await until(lambda: any(entry["what"] == "delivered" for entry in ledger(workspace)))

    with a_webhook() as (place, taken):
        anyio.run(check, place)
    first = next(entry["at"] for entry in ledger(workspace) if entry["what"] == "claimed")
    stages = [entry["what"] for entry in ledger(workspace) if entry.get("at") == first]
    assert stages == ["claimed", "ran", "delivering", "delivered"]
    assert taken[0][0]["answer"] == "Tock."


def opened(host, session: str) -> bool:
    with suppress(SessionBusy):
        host.store.open(session).close()
        return True
    return False


def test_the_session_of_a_job_is_free_while_its_result_is_delivered(workspace):
    async def check(place: str) -> None:
        row = {"id": "tick", "schedule": "every 1s", "prompt": "Tick.", "webhook": f"http://{place}/"}
        write_jobs(workspace, row)
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server, sandbox_hosts=(place,)) as host, scheduling(host):
                await until(lambda: any(entry["what"] == "delivering" for entry in ledger(workspace)))
                session = next(entry["session"] for entry in ledger(workspace) if entry["what"] == "ran")
                await until(lambda: opened(host, session))
                assert not any(entry["what"] == "delivered" for entry in ledger(workspace))

    with a_webhook_that_never_ends(b"") as place:
        anyio.run(check, place)
