"""Workers with several workspaces, with cron jobs, and on machines whose clocks differ."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from cluster_workers_kit import STEPS, WORKSPACE, Workers, workers

from lmagent.schedule.ledger import Ledger

MINUTES = 300.0  # seconds by which clocks differ


def stamps(workspace: Path) -> list[str]:
    file = workspace / "stamps"
    return sorted(file.read_text().split()) if file.exists() else []


def all_of(*numbers: int) -> list[str]:
    return [f"s{number}-{step}" for number in numbers for step in range(STEPS)]


def runs(made: Workers, job: str) -> dict[int, str]:
    """Return the outcomes of a cron job's runs, by the time at which they were due."""
    ledger = Ledger(made.workspace / ".lmagent", time.time)
    ledger.read()
    return {at: run.outcome for at, run in ledger.history(job).runs.items() if run.stage != "missed"}


def write_cron(made: Workers, **job: str) -> None:
    (made.workspace / "cron.json").write_text(json.dumps([job]))


def test_each_of_two_workspaces_in_one_worker_gets_its_own_jobs(tmp_path: Path) -> None:
    with workers(tmp_path, count=0) as made:
        other = made.folder_of("other")
        made.start(1, {WORKSPACE: made.workspace, "other": other})
        made.until_joined()
        made.submit(2)
        made.submit(2, other)
        made.until_all_ended()
        assert stamps(made.workspace) == all_of(0, 1)
        assert stamps(other) == all_of(2, 3)
        counted = "SELECT workspace, count(*) FROM session GROUP BY 1 ORDER BY 1"
        assert made.sql(counted) == [("other", 2), (WORKSPACE, 2)]


def test_the_jobs_of_a_workspace_that_no_worker_mounts_any_more_wait_for_one(tmp_path: Path) -> None:
    with workers(tmp_path, count=0, lanes=2, seconds=0.5) as made:
        other = made.folder_of("other")
        made.start(1, {WORKSPACE: made.workspace, "other": other})
        made.until_joined()
        made.submit(4, other)
        left = "SELECT count(*) FROM job WHERE workspace = 'other' AND state = 'queued'"
        running = "SELECT count(*) FROM session WHERE workspace = 'other' AND owner IS NOT NULL"
        made.until(lambda: (made.sql(left), made.sql(running)) == ([(4,)], [(2,)]), "the jobs do not begin")
        killed = made.processes.pop()
        killed.kill()
        killed.wait(30)
        made.start(1)
        made.submit(1)
        made.until(lambda: stamps(made.workspace) == all_of(4), "the workspace with a worker waits, too")
        time.sleep(8)  # longer than the lease
        assert made.sql(left) == [(4,)]
        shown = made.lmagent("cluster", "status").stdout
        assert "no worker mounts other; its jobs wait\n  → lmagent worker --label other=PATH" in shown
        made.start(1, {"other": other})
        made.until_all_ended()
        cut_off = 2  # calls of the worker that was killed: the model is told, and they are not run again
        assert len(set(all_of(0, 1, 2, 3)) - set(stamps(other))) <= cut_off
        assert max(Counter(stamps(other)).values()) == 1


def test_three_workers_claim_each_time_of_a_cron_job_once(tmp_path: Path) -> None:
    with workers(tmp_path, count=3) as made:
        write_cron(made, id="tick", schedule="every 1s", prompt="stamp tick", catch_up="all")
        made.until(lambda: list(runs(made, "tick").values()).count("done") >= 8, "the job does not run")
        write_cron(made, id="tick", schedule="every 1d", prompt="stamp tick")
        made.until(lambda: set(runs(made, "tick").values()) == {"done"}, "a run does not end")
        found = runs(made, "tick")
        made.submitted = len(found)
        made.until_all_ended()
        lines = (made.workspace / ".lmagent" / "cron-history.jsonl").read_text().splitlines()
        claimed = Counter(entry["at"] for entry in map(json.loads, lines) if entry["what"] == "claimed")
        assert set(claimed.values()) == {1}
        assert set(claimed) == set(found)
        assert Counter(stamps(made.workspace)) == {f"tick-{step}": len(found) for step in range(STEPS)}
        assert len(made.sql("SELECT 1 FROM session")) == len(found)


def test_clocks_that_differ_by_minutes_let_nothing_run_early_or_twice(tmp_path: Path) -> None:
    with workers(tmp_path, count=1, seconds=0.5) as made:
        write_cron(made, id="tick", schedule="every 3s", prompt="stamp tick")
        made.start(1, shift=MINUTES)
        made.start(1, shift=-MINUTES)
        made.until_joined()
        made.submit(6)
        made.submit(3, task="WAIT: +6s: a moment")
        made.until(lambda: len(made.sql("SELECT 1 FROM session WHERE owner IS NOT NULL")) >= 4, "no session begins")
        made.until(lambda: list(runs(made, "tick").values()).count("done") >= 4, "the job does not run")
        write_cron(made, id="tick", schedule="every 1d", prompt="stamp tick")
        made.until(lambda: set(runs(made, "tick").values()) == {"done"}, "a run does not end")
        found = runs(made, "tick")
        made.submitted += len(found) + 3  # a session that waits ends two turns
        made.until_all_ended()
        ((now,),) = made.sql("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert now - MINUTES / 2 < min(found) <= max(found) <= now
        tasks = [stamp for stamp in stamps(made.workspace) if not stamp.startswith("tick")]
        assert tasks == all_of(0, 1, 2, 3, 4, 5)
        epochs = dict(made.sql("SELECT id, max(event.epoch) FROM session JOIN event ON session = number GROUP BY id"))
        for id, events in made.logs().items():
            ends = [event for event in events if event["type"] == "turn.finished"]
            inputs = [event for event in events if event["type"] == "input.received"]
            if ends[0]["outcome"] == "waiting":
                assert -1 < inputs[1]["ts"] - ends[0]["until"] < 10
                assert 4 < inputs[1]["ts"] - ends[0]["ts"] < 20
            else:
                assert epochs[id] == 1  # no other worker took it over
