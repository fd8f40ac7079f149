"""`lmagent worker` and `lmagent cluster …` as processes: takeover, drain, and the answers to what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_workers_kit import Workers, workers
from old_postgres_kit import old_postgres
from testkit.postgres import database, shared_server, stranger

from lmagent.sandbox.scratch import scratch_root

TAKEOVER = 10.0  # seconds


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, count=2, lanes=8, seconds=1.0) as made:  # one worker has lanes for the work of both
        yield made


def status(made: Workers) -> dict[str, Any]:
    return json.loads(made.lmagent("cluster", "status", "--json").stdout)


def test_the_sessions_of_a_killed_worker_continue_elsewhere_within_the_bar(two: Workers) -> None:
    two.submit(6)
    running = "SELECT owner, id, epoch FROM session WHERE owner IS NOT NULL"
    two.until(lambda: len(two.sql(running)) >= 4, "no session begins")
    two.processes[0].kill()
    killed = time.monotonic()
    dead = two.sql(f"SELECT id FROM process WHERE name LIKE '%:{two.processes[0].pid}'")[0][0]
    left = two.sql(f"SELECT id, epoch FROM session WHERE owner = {dead}")
    assert left
    for id, epoch in left:
        two.until(
            lambda id=id, epoch=epoch: two.sql(f"SELECT epoch FROM session WHERE id = '{id}'")[0][0] > epoch,
            "a session is not taken over",
        )
    took = time.monotonic() - killed
    print(f"takeover of {len(left)} sessions after {took:.1f} s")
    assert took <= TAKEOVER
    two.until_all_ended()
    assert two.assert_done_once() <= len(left)


def test_a_drained_worker_ends_its_turns_and_its_jobs_go_to_the_other(two: Workers) -> None:
    two.submit(10)
    two.until(lambda: len(two.sql("SELECT 1 FROM job WHERE process IS NOT NULL")) >= 6, "no job begins")
    name = next(one["name"] for one in status(two)["processes"] if one["name"].endswith(f":{two.processes[0].pid}"))
    asked = two.lmagent("cluster", "drain", name)
    assert asked.stdout.strip() == f"{name} takes no more jobs, and ends with its turns"
    assert two.processes[0].wait(30) == 0
    two.until_all_ended()
    assert two.assert_done_once() == 0
    found = status(two)
    assert [one["name"].endswith(f":{two.processes[1].pid}") for one in found["processes"]] == [True]
    assert found["workspaces"][0] | {"sessions": 10, "workers": 1, "waiting": 0, "running": 0} == found["workspaces"][0]


def test_a_stopped_worker_that_wakes_up_repeats_nothing(two: Workers) -> None:
    two.submit(6)
    two.until(lambda: len(two.sql("SELECT 1 FROM session WHERE owner IS NOT NULL")) >= 4, "no session begins")
    two.pause(0, 9)
    two.until_all_ended()
    two.assert_done_once()


def test_jobs_wait_for_a_worker_that_mounts_their_workspace(two: Workers) -> None:
    two.until_joined()
    for process in two.processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(30) for process in two.processes] == [0, 0]
    two.sql("SELECT * FROM job_submit('elsewhere', 'inbox:a', 'lane', 0, 0)")
    shown = two.lmagent("cluster", "status").stdout
    assert "no worker mounts elsewhere; its jobs wait\n  → lmagent worker --label elsewhere=PATH" in shown
    checked = two.lmagent("cluster", "doctor")
    assert "no worker mounts elsewhere; waiting: 1 job" in checked.stdout
    assert checked.returncode == 0
    refused = two.lmagent("worker", "--label", f"elsewhere={two.workspace / 'missing'}")
    assert "the workspace elsewhere is not mounted" in refused.stderr
    assert refused.returncode == 1


def test_old_sessions_go_with_their_files_and_one_worker_deletes_them(tmp_path: Path) -> None:
    with workers(tmp_path, count=1, more={"LMAGENT_CLUSTER_RETENTION_DAYS": "30"}) as made:
        made.submit(3)
        made.until_all_ended()
        first, second, _ = (id for (id,) in made.sql("SELECT id FROM session ORDER BY id"))
        agents = [made.workspace / ".lmagent" / "agents" / id for id in (first, second)]
        scratch = [scratch_root(made.folder / "data", made.workspace) / id for id in (first, second)]
        for folder in (*agents, *scratch):
            folder.mkdir(parents=True, exist_ok=True)
        made.sql(f"UPDATE session SET changed = changed - interval '31 days' WHERE id = '{first}' RETURNING 1")
        upkeep = "SELECT id FROM job WHERE id LIKE 'upkeep %'"
        assert len(made.sql(upkeep)) == 1
        made.sql("UPDATE job SET id = 'upkeep 2020010100' WHERE id LIKE 'upkeep %' RETURNING 1")  # the next hour
        made.start(2)
        made.until(lambda: len(made.sql("SELECT 1 FROM session")) == 2, "the old session stays")
        made.until(lambda: not (agents[0].exists() or scratch[0].exists()), "its files stay")
        assert agents[1].exists()
        assert scratch[1].exists()
        made.until_joined()
        assert len(made.sql(upkeep)) == 2
        report = "deleted 1 session that nothing was written in for 30 days"
        made.until(lambda: report in made.log.read_text(), "the deletion is not reported")
        assert made.log.read_text().count(report) == 1


# --- no cluster -------------------------------------------------------------------------------------------------------


def run(tmp_path: Path, url: str, *arguments: str) -> Any:
    env = {key: value for key, value in os.environ.items() if not key.startswith("LMAGENT")}
    env |= {"HOME": str(tmp_path), **({"LMAGENT_CLUSTER_URL": url} if url else {})}
    command = [sys.executable, "-m", "lmagent", *arguments]
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("worker",), ("cluster", "init"), ("cluster", "doctor")])
def test_without_the_setting_the_commands_name_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    refused = run(tmp_path, "", *arguments)
    assert refused.returncode == 1
    assert "cluster_url is not set" in refused.stderr
    assert "LMAGENT_CLUSTER_URL=" in refused.stderr


def test_a_database_that_is_away_is_named_by_each_command(tmp_path: Path) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/work"
    for arguments in (("worker",), ("cluster", "init"), ("cluster", "status")):
        refused = run(tmp_path, url, *arguments)
        assert refused.returncode == 1
        assert "work at 127.0.0.1:1 cannot be reached" in refused.stderr
        assert "secret" not in refused.stderr
    checked = run(tmp_path, url, "cluster", "doctor")
    assert checked.returncode == 1
    assert "✗ database" in checked.stdout


def test_init_makes_the_tables_that_worker_and_status_ask_for(tmp_path: Path) -> None:
    with database(schema=False) as url:
        for arguments in (("worker",), ("cluster",)):
            refused = run(tmp_path, url, *arguments)
            assert refused.returncode == 1
            assert "has no tables of lmagent\n  → lmagent cluster init" in refused.stderr
        assert "steps of the schema" in run(tmp_path, url, "cluster", "init").stdout
        assert "up to date" in run(tmp_path, url, "cluster", "init").stdout
        checked = run(tmp_path, url, "cluster", "doctor", "--json")
        findings = {one["name"]: one["state"] for one in map(json.loads, checked.stdout.splitlines())}
        assert findings["schema"] == findings["clock"] == findings["rights"] == "ok"
        assert findings["workers"] == "warning"


def test_a_server_that_is_too_old_is_refused_by_each_command(tmp_path: Path) -> None:
    with database(schema=False) as url, old_postgres(url) as old:
        for arguments in (("worker",), ("cluster", "init"), ("cluster", "status"), ("sessions", "list")):
            refused = run(tmp_path, old, *arguments)
            assert refused.returncode == 1
            assert "is PostgreSQL 12; lmagent needs 13 or newer" in refused.stderr
            assert "→ give the address of a newer server in cluster_url" in refused.stderr
        checked = run(tmp_path, old, "cluster", "doctor")
        assert checked.returncode == 1
        assert "PostgreSQL 12" in checked.stdout
        name = url.rpartition("/")[2]
        assert shared_server().psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'lmagent'", name) == "0"


def test_each_command_names_what_mends_missing_rights_and_an_older_schema(tmp_path: Path) -> None:
    with database() as url:
        with stranger(url) as weak:
            for arguments in (("worker",), ("sessions", "list")):
                refused = run(tmp_path, weak, *arguments)
                assert refused.returncode == 1
                assert "stranger lacks rights in the database" in refused.stderr
                assert "→ see the GRANT that is missing: lmagent cluster doctor" in refused.stderr
            checked = run(tmp_path, weak, "cluster", "doctor")
            assert checked.returncode == 1
            assert "stranger may not use the tables of lmagent" in checked.stdout
            assert "GRANT USAGE ON SCHEMA lmagent" in checked.stdout
        older = "DELETE FROM lmagent.migration WHERE number = (SELECT max(number) FROM lmagent.migration)"
        shared_server().psql(older, url.rpartition("/")[2])
        for arguments in (("worker",), ("sessions", "list"), ("cluster", "status")):
            refused = run(tmp_path, url, *arguments)
            assert refused.returncode == 1
            assert "and this version needs" in refused.stderr
            assert "→ lmagent cluster init" in refused.stderr
        checked = run(tmp_path, url, "cluster", "doctor")
        assert "and this version needs" in checked.stdout
        assert "→ lmagent cluster init" in checked.stdout


def test_a_drain_of_an_unknown_worker_is_an_error(tmp_path: Path) -> None:
    with database() as url:
        refused = run(tmp_path, url, "cluster", "drain", "nobody:1")
        assert refused.returncode == 1
        assert "no worker nobody:1 is alive" in refused.stderr
