"""The index's database, shared by connections of one process and by processes."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lmagent.store.database import open_database

ELSEWHERE = """
import pathlib, sys
from lmagent.store.database import open_database
database = open_database(pathlib.Path(sys.argv[1]))
database.execute("CREATE TABLE IF NOT EXISTS other (word)")
database.execute("INSERT INTO other VALUES ('x')")
database.close()
"""


def test_another_process_does_not_take_the_log_away_under_an_open_connection(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = open_database(path)
    first.execute("CREATE TABLE mine (word)")
    open_database(path).close()
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], check=True)
    assert path.with_name("state.db-wal").exists()
    first.execute("INSERT INTO mine VALUES ('kept')")
    first.close()
    again = open_database(path)
    assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert again.execute("SELECT word FROM mine").fetchall() == [("kept",)]
    again.close()


def test_a_database_is_its_owners_alone_and_made_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    database = open_database(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in tmp_path.iterdir()} <= {"state.db", "state.db-wal", "state.db-shm"}
    database.close()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_its_place_is_not_followed(tmp_path: Path, there: bool) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "state.db"
    if there:
        elsewhere.write_bytes(b"")
    path.symlink_to(elsewhere)
    open_database(path).close()
    assert (elsewhere.read_bytes() if there else elsewhere.exists()) == (b"" if there else False)
