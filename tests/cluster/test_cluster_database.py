"""The database of a cluster: its schema, and what is said when it cannot be used."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from testkit.postgres import database, postgres, shared_server, stranger

from lmagent.app.clock import SystemClock
from lmagent.cluster.clock import ClusterClock
from lmagent.cluster.database import Database, migrations
from lmagent.core.errors import ConfigError, StoreError

PROCRASTINATE = "c70ec4b400a60ad9592787653aae5ae77ae41bf801d56b5bd2712751a07f2009"
"""SHA-256 of `schema.sql` of Procrastinate 3.10."""


def answer(known: Database) -> int:
    return int(known.rows("SELECT count(*) FROM session", patience=0)[0][0])


def test_no_two_steps_have_the_same_number() -> None:
    files = [path for path in migrations()[1].parent.iterdir() if path.suffix == ".sql"]
    numbers = [int(path.name[:3]) for path in files]
    assert len(numbers) == len(set(numbers))
    assert {*numbers, 4} == set(migrations())  # step 4 is the schema of Procrastinate


def test_the_schema_of_procrastinate_is_the_one_that_step_4_was_written_for() -> None:
    found = hashlib.sha256(migrations()[4].read_bytes()).hexdigest()
    assert found == PROCRASTINATE, (
        "Procrastinate's schema has changed: databases made by step 4 now differ from earlier ones. "
        "Write the further step that src/lmagent/cluster/migrations/__init__.py describes, "
        f"and then set PROCRASTINATE to {found!r}"
    )


def test_migrating_makes_the_tables_and_migrating_again_changes_nothing() -> None:
    with database(schema=False) as url:
        known = Database(url)
        assert known.migrate() == list(migrations())
        assert known.migrate() == []
        assert answer(known) == 0
        known.close()


def test_two_processes_that_migrate_at_once_take_each_step_once() -> None:
    with database(schema=False) as url:
        taken: list[list[int]] = []
        both = [threading.Thread(target=lambda: taken.append(Database(url).migrate())) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert sorted(taken) == [[], list(migrations())]


def test_a_schema_of_a_newer_version_is_refused() -> None:
    with database() as url:
        newer = max(migrations()) + 1
        shared_server().psql(f"INSERT INTO lmagent.migration VALUES ({newer})", url.rpartition("/")[2])
        with pytest.raises(StoreError, match=f"has schema {newer}") as refused:
            answer(Database(url))
        assert refused.value.fix == "update lmagent on this machine"


def test_a_url_that_is_none_is_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError, match="cluster_url cannot be read"):
        Database("not a url =")


def test_a_user_without_rights_is_told_which_right_is_missing() -> None:
    with database(schema=False) as url, stranger(url) as weak:
        with pytest.raises(StoreError, match="stranger lacks rights") as refused:
            Database(weak).migrate()
        assert "GRANT CREATE ON DATABASE" in refused.value.fix


def test_the_clock_of_a_cluster_has_the_time_of_the_database_and_is_not_moved_by_slow_answers() -> None:
    class Clock(SystemClock):
        def now(self) -> float:
            return 1000.0

    known = Database("postgresql://127.0.0.1:1/work")
    clock = ClusterClock(known, Clock())
    now = time.time()
    known.compare_clocks(now, now + 0.5)
    assert clock.now() == 1000.0
    known.compare_clocks(now, now + 300)
    assert clock.now() == pytest.approx(1300, abs=1)
    known.compare_clocks(now - 2, now)
    assert clock.now() == pytest.approx(1300, abs=1)
    now = time.time()
    known.compare_clocks(now, now)
    assert clock.now() == pytest.approx(1000, abs=1)


def test_work_survives_a_restart_of_the_database() -> None:
    with postgres() as server:
        known = Database(server.url())
        known.migrate()
        assert answer(known) == 0
        server.stop()
        later = threading.Timer(0.5, server.start)
        later.start()
        assert known.rows("SELECT 1") == [(1,)]
        later.join()
        known.close()
