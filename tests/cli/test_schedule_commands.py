"""submit, scheduler and cron as programs."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from program import Program, clear

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, hang, say


@pytest.fixture(autouse=True)
def trusted(program: Program) -> None:
    program.trust()


def in_workspace(program: Program, *arguments: str, **more):
    return program.run("-w", str(program.workspace), *arguments, **more)


def start(program: Program, server: ScriptedServer, *arguments: str) -> subprocess.Popen[str]:
    command = program.command("scheduler", "-w", str(program.workspace), "--base-url", server.base_url, *arguments)
    return subprocess.Popen(
        command, env=program.env, cwd=program.workspace, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds, also on a busy machine."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.05)


def wait_for(program: Program, outcome: str) -> None:
    """Wait until a turn has ended with that outcome."""
    until(lambda: any(event["type"] == "turn.finished" and event["outcome"] == outcome for event in program.events()))


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    return process.returncode, out


@pytest.mark.parametrize("arguments", [("submit", "say hello"), ("--submit", "say hello"), ("--submit=say hello",)])
def test_a_submitted_task_is_done_by_the_scheduler(program, arguments):
    given = in_workspace(program, *arguments)
    assert given.returncode == 0, given.stderr
    assert "no lmagent scheduler runs here" in given.stderr
    with ScriptedServer([say("Hello.")] * 2) as server:
        process = start(program, server)
        try:
            wait_for(program, "done")
            assert in_workspace(program, *arguments).stderr == ""
        finally:
            code, out = stop(process)
    assert code == 0
    assert "begins a task of the inbox: say hello" in out
    assert "stopped; unfinished turns resume when it is started again" in out


def test_the_flags_of_earlier_agents_start_the_scheduler(program):
    with ScriptedServer([say("Hello.")]) as server:
        in_workspace(program, "submit", "say hello")
        command = program.command(
            "--scheduler", "--scheduler-interval", "0.2", "-w", str(program.workspace), "--base-url", server.base_url
        )
        process = subprocess.Popen(command, env=program.env, stdout=subprocess.PIPE, text=True)
        try:
            wait_for(program, "done")
        finally:
            assert stop(process)[0] == 0


def test_a_scheduler_that_is_terminated_in_a_turn_leaves_it_to_the_next_one(program):
    in_workspace(program, "submit", "a long task")
    stopped = threading.Event()  # however often the first scheduler asks, the next one gets the answer

    def answer(received):
        return say("Done.") if stopped.is_set() else hang(say("This takes a while, a good while."), chunks=2)

    with ScriptedServer(answer) as server:
        process = start(program, server)
        until(lambda: server.chats)
        assert stop(process)[0] == 0
        stopped.set()
        assert not any(event["type"] == "turn.finished" for event in program.events())
        process = start(program, server)
        try:
            wait_for(program, "done")
        finally:
            stop(process)
    assert sum(event["type"] == "input.received" for event in program.events()) == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the command in /proc")
def test_a_scheduler_that_is_stopped_in_a_command_leaves_nothing_of_it_running(program):
    in_workspace(program, "submit", "a long task")
    with ScriptedServer([call("shell", command="touch begun; sleep 61.375"), say("Done.")]) as server:
        process = start(program, server, "--permission", "auto")
        until((program.workspace / "begun").exists)
        assert stop(process)[0] == 0
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            left += [path] if b"sleep\x0061.375" in path.read_bytes() else []
    assert not left


def test_ctrl_c_ends_the_scheduler(program):
    with ScriptedServer([]) as server:
        process = start(program, server)
        assert process.stdout is not None
        assert "scheduling" in process.stdout.readline()
        time.sleep(0.3)
        code, out = stop(process, signal.SIGINT)
    assert (code, "Traceback" in out) == (130, False)


def test_a_one_shot_that_waits_says_who_wakes_it_and_the_scheduler_does(program):
    with ScriptedServer([say("WAIT: +2s: the build"), say("It is through.")]) as server:
        given = program.task(server, "watch the build")
        assert given.returncode == 3
        assert "lmagent scheduler" in given.stderr
        process = start(program, server)
        try:
            wait_for(program, "done")
        finally:
            stop(process)


def test_jobs_are_added_listed_switched_and_removed(program):
    added = in_workspace(
        program, "cron", "add", "nightly", "daily 02:30", "Write the report.", "--timezone", "Europe/Berlin"
    )
    assert added.stdout == "added nightly to .lmagent/cron.json\n", added.stderr
    assert "nightly" in in_workspace(program, "cron", "list").stdout
    assert in_workspace(program, "cron", "toggle", "nightly").stdout == "nightly is switched off\n"
    (row,) = map(json.loads, in_workspace(program, "cron", "list", "--json").stdout.splitlines())
    assert (row["id"], row["enabled"], row["next"], row["timezone"]) == ("nightly", False, None, "Europe/Berlin")
    assert in_workspace(program, "cron", "toggle", "nightly").stdout == "nightly is switched on\n"
    assert in_workspace(program, "cron", "history").stdout == "nothing was due yet\n"
    assert in_workspace(program, "cron", "rm", "nightly").stdout == "removed nightly\n"
    assert "no jobs" in in_workspace(program, "cron", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "a", "evry 5m", "x"), "'evry 5m' is not a valid schedule; known are: every 30s"),
        (("add", "a", "daily 09:00", "x", "--timezone", "Mars"), "the time zone 'Mars' is not known"),
        (("add", "a b", "daily 09:00", "x"), "id: up to 64 letters"),
        (("toggle", "nothing"), "there is no job 'nothing'"),
        (("rm", "nothing"), "there is no job 'nothing'"),
        (("run", "nothing"), "there is no job 'nothing'"),
        (("history", "nothing"), "there is no job 'nothing'"),
    ],
)
def test_what_is_wrong_with_a_job_is_said_with_the_next_step(program, arguments, said):
    verb, *rest = arguments
    given = program.run("cron", "-w", str(program.workspace), verb, *rest)
    assert given.returncode == 1
    assert said in clear(given)
    assert "→" in given.stderr
    assert not (program.workspace / ".lmagent" / "cron.json").exists()


def test_a_file_that_is_wrong_makes_list_and_reload_fail_and_name_the_line(program):
    (program.workspace / "cron.json").write_text('[\n {"id": "a", "schedule": "whenever", "prompt": "x"}\n]')
    for verb in ("list", "reload"):
        given = in_workspace(program, "cron", verb)
        assert given.returncode == 1
        assert "cron.json line 2: job 'a': schedule: 'whenever' is not a valid schedule" in given.stdout


def test_a_job_is_run_by_hand_and_its_run_is_in_the_history(program):
    in_workspace(program, "cron", "add", "nightly", "daily 02:30", "Write the report.")
    with ScriptedServer([say("The report is written.")]) as server:
        given = program.run("cron", "-w", str(program.workspace), "run", "nightly", "--base-url", server.base_url)
    assert (given.returncode, given.stdout) == (0, "The report is written.\n"), given.stderr
    (row,) = map(json.loads, in_workspace(program, "cron", "history", "--json").stdout.splitlines())
    assert (row["job"], row["what"], row["outcome"], row["by"]) == ("nightly", "ran", "done", "person")
    assert row["session"] in program.run("-w", str(program.workspace), "sessions", "list").stdout


def test_a_job_that_is_stopped_by_hand_does_not_count_as_running(program):
    in_workspace(program, "cron", "add", "nightly", "daily 02:30", "Write the report.")
    with ScriptedServer([hang(), say("The report is written.")]) as server:
        line = program.command("cron", "-w", str(program.workspace), "run", "nightly", "--base-url", server.base_url)
        running = subprocess.Popen(line, env=program.env, cwd=program.workspace, start_new_session=True)
        deadline = time.monotonic() + 30
        while not server.chats and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
        (row,) = map(json.loads, in_workspace(program, "cron", "history", "--json").stdout.splitlines())
        assert (row["what"], row["outcome"], row["by"]) == ("ran", "interrupted", "person")
        ends = [event for event in program.events() if event["type"] == "turn.finished"]
        assert [end["outcome"] for end in ends] == ["interrupted"], "and no scheduler goes on with it"
        given = program.run("cron", "-w", str(program.workspace), "run", "nightly", "--base-url", server.base_url)
        assert (given.returncode, given.stdout) == (0, "The report is written.\n"), given.stderr


def test_a_job_that_is_stopped_before_it_began_is_never_run(program):
    from lmagent.store.lock import hold

    add = ("cron", "add", "mine", "daily 02:30", "Write it.", "--session-id", "20260101_000000_abcdef")
    in_workspace(program, *add)
    folder = program.workspace / ".lmagent" / "sessions" / "20260101_000000_abcdef"
    with ScriptedServer([say("First."), say("Second.")]) as server:
        base = ("--base-url", server.base_url)
        assert program.run("cron", "-w", str(program.workspace), "run", "mine", *base).returncode == 0
        lock = hold(folder / "lock", "the session")
        try:
            line = program.command("cron", "-w", str(program.workspace), "run", "mine", *base)
            running = subprocess.Popen(
                line, env=program.env, cwd=program.workspace, start_new_session=True, stderr=subprocess.PIPE, text=True
            )
            assert "waits until session" in next(line for line in running.stderr if "waits" in line)
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == 130
            running.stderr.close()
        finally:
            lock.release()
        rows = [json.loads(row) for row in in_workspace(program, "cron", "history", "--json").stdout.splitlines()]
        assert [(row["what"], row["outcome"]) for row in rows] == [("ran", "withdrawn"), ("ran", "done")]
        assert len(server.chats) == 1


def test_nothing_to_submit_is_refused(program):
    given = in_workspace(program, "submit", " ")
    assert given.returncode == 1
    assert "there is no task to submit" in clear(given)


def test_a_workspace_whose_own_folder_leads_elsewhere_is_not_scheduled(program, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (program.workspace / ".lmagent").symlink_to(tmp_path / "elsewhere")
    with ScriptedServer([]) as server:
        given = in_workspace(program, "scheduler", "--base-url", server.base_url)
    assert given.returncode == 1
    assert "is a symbolic link, so nothing is scheduled" in clear(given)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_history_that_is_no_file_is_said_and_stops_no_scheduler(program):
    in_workspace(program, "cron", "add", "nightly", "daily 02:30", "Write the report.")
    (program.workspace / ".lmagent" / "cron-history.jsonl").mkdir()
    given = in_workspace(program, "cron", "list")
    assert given.returncode == 1
    assert "the history of the jobs could not be read" in clear(given)
    in_workspace(program, "submit", "say hello")
    with ScriptedServer([say("Hello.")]) as server:
        process = start(program, server)
        try:
            wait_for(program, "done")
        finally:
            code, out = stop(process)
    assert (code, "the history of the jobs could not be read" in out) == (0, True)


@pytest.mark.parametrize("at", [10**17, -(10**17)])
def test_a_history_with_times_that_are_none_is_shown_without_them(program, at):
    in_workspace(program, "cron", "add", "nightly", "daily 02:30", "Write the report.")
    lines = [{"ts": 1, "job": "nightly", "what": "claimed", "at": when} for when in (at, 86400)]
    history = program.workspace / ".lmagent" / "cron-history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = map(json.loads, in_workspace(program, "cron", "history", "--json").stdout.splitlines())
    assert row["at"] == 86400
    assert "nightly" in in_workspace(program, "cron", "list").stdout
