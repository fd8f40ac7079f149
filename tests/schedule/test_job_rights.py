"""What jobs may do: nothing before the folder is trusted; then what they state themselves; a denial is no success."""

from __future__ import annotations

import json
import re
import time

import anyio
import pytest
from schedule_kit import a_host, logs, scheduling, until

from lmagent.app.clock import SystemClock
from lmagent.app.runner import Runner
from lmagent.config.trust import untrust
from lmagent.core.errors import ConfigError
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import read_jobs
from lmagent.schedule.rights import NO_RIGHTS, Rights, taken_apart, written
from lmagent.schedule.scheduler import Scheduler
from lmagent.store.jsonl import JsonlStore
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

WRITES = [call("write", path="report.md", content="x\n"), say("I did what I could.")]


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def job(workspace, **more):
    entry = {"id": "report", "schedule": "startup", "prompt": "Write the report.", **more}
    (workspace / "cron.json").write_text(json.dumps([entry]))


def submitted(workspace, rights=NO_RIGHTS):
    (workspace / ".lmagent").mkdir(exist_ok=True)
    Inbox(workspace / ".lmagent").submit("Write the report.", time.time(), rights)


def run_to_its_end(workspace, replies, **more) -> list[str]:
    """Schedule until a turn has ended; returns what was said."""
    said: list[str] = []

    async def do() -> None:
        with ScriptedServer(replies) as server:
            async with a_host(workspace, server, **more) as host, scheduling(host, said, startup=True) as work:
                await until(lambda: any(re.search(": (done|denied|error)", line) for line in said))
                await until(lambda: not work.dispatcher.queue)

    anyio.run(do)
    return said


def test_the_jobs_of_a_folder_run_once_it_is_trusted_and_not_before(workspace):
    job(workspace)
    submitted(workspace)
    said: list[str] = []

    async def do() -> None:
        with ScriptedServer([say("Done.")] * 4) as server:
            async with a_host(workspace, server) as host:
                untrust(host.settings.agent_data_dir, workspace)
                async with scheduling(host, said, startup=True):
                    await until(lambda: said)
                    await anyio.sleep(0.5)
                with pytest.raises(ConfigError, match="wait until you trust it"):
                    await Scheduler(Runner(host, said.append)).run_now("report", "person")
                assert not server.chats

    anyio.run(do)
    assert said == ["the jobs of this folder (cron.json, inbox) wait until you trust it: lmagent config trust"]
    assert run_to_its_end(workspace, [say("Done.")] * 4)


@pytest.mark.parametrize("kind", ["cron", "inbox"])
def test_a_job_whose_call_was_denied_ends_as_denied_wherever_it_is_listed(workspace, kind):
    job(workspace) if kind == "cron" else submitted(workspace)
    said = run_to_its_end(workspace, WRITES)
    assert said[-1].endswith(": denied")
    assert not (workspace / "report.md").exists()
    with JsonlStore(workspace / ".lmagent" / "sessions", SystemClock()).index() as index:
        index.refresh()
        assert [row.status for row in index.list()] == ["denied"]
    if kind == "cron":
        lines = (workspace / ".lmagent" / "cron-history.jsonl").read_text().splitlines()
        (ran,) = (entry for entry in map(json.loads, lines) if entry["what"] == "ran")
        assert ran["outcome"] == "denied"


@pytest.mark.parametrize("kind", ["cron", "inbox"])
@pytest.mark.parametrize("rights", [Rights("auto"), Rights("", ("write(report.md)",))])
def test_a_job_may_do_what_it_states(workspace, kind, rights):
    stated = {"permission": rights.permission, "allow": list(rights.allow)}
    job(workspace, **stated) if kind == "cron" else submitted(workspace, rights)
    assert run_to_its_end(workspace, WRITES)[-1].endswith(": done")
    assert (workspace / "report.md").read_text() == "x\n"


def test_a_job_may_be_stricter_than_the_settings(workspace):
    job(workspace, permission="normal")
    assert run_to_its_end(workspace, WRITES, permission_mode="auto")[-1].endswith(": denied")


def test_a_deny_rule_of_the_user_binds_a_job_whatever_it_states(workspace):
    job(workspace, permission="auto", allow=["write"])
    run_to_its_end(workspace, [*WRITES, say("It is forbidden.")], permission_deny=("write(report.md)",))
    assert not (workspace / "report.md").exists()
    results = [event for log in logs(workspace).values() for event in log if event["type"] == "tool.finished"]
    assert "forbids it" in results[0]["content"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"permission": "all"}, "permission: 'all' is not one of auto, normal, manual"),
        ({"allow": "write"}, "allow: must be a list of rules"),
        ({"allow": ["write("]}, "allow: permission rule 'write('"),
        ({"allow": ["write"], "session_id": "mine"}, "sessions of its own only"),
    ],
)
def test_rights_that_cannot_be_right_are_a_problem_of_the_job(workspace, fields, said):
    job(workspace, **fields)
    found = read_jobs(workspace)
    assert not found.jobs
    assert said in found.problems[0]


@pytest.mark.parametrize("text", ["---\nallow: write", "---\nnote: x\n---\nTask", "---\n---\nTask", "plain"])
def test_lines_that_state_no_rights_are_part_of_the_task(text):
    assert taken_apart(text) == (text, NO_RIGHTS)


def test_the_rights_of_a_task_survive_being_written():
    rights = Rights("manual", ("shell(git log *)", "write(docs/**)"))
    assert taken_apart(written("Do it.\n---\nNow.", rights)) == ("Do it.\n---\nNow.", rights)
