"""The tools as a model calls them, with the worker in a real sandbox."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from data_kit import Looks, arrow, parquet, sandbox_of, xlsx

from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Limits, Sandbox
from lmagent.data import worker
from lmagent.data.feature import DataPlace, view_tool
from lmagent.tools.pictures import picture_of

SALES = "day,city,sales\n" + "".join(
    f"2024-01-{at:02d},{'Rome' if at % 2 else 'Oslo'},{at * 10}\n" for at in range(1, 29)
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "sales.csv").write_text(SALES)
    return folder


@pytest.fixture
def looks(workspace: Path) -> Looks:
    return Looks(workspace)


def test_a_model_reads_a_compact_table(looks: Looks) -> None:
    assert looks("sales.csv", n_rows=2) == (
        "[sales.csv: CSV (comma, UTF-8); the first rows]\n"
        "day date | city text | sales integer\n"
        "2024-01-01 | Rome | 10\n"
        "2024-01-02 | Oslo | 20"
    )
    assert looks("sales.csv", "shape") == "[sales.csv: CSV (comma, UTF-8); 28 rows, 3 columns: day, city, sales]"


def test_every_library_of_the_extra_works_in_the_sandbox(looks: Looks, workspace: Path) -> None:
    parquet(workspace / "a.parquet", "SELECT 7 AS seven")
    xlsx(workspace / "a.xlsx", {"T": [["seven"], [7]]})
    arrow(workspace / "a.feather")
    assert "\n7" in looks("a.parquet")
    assert "\n7" in looks("a.xlsx")
    assert "name 1" in looks("a.feather")
    query = "SELECT city, sum(sales) AS total FROM data GROUP BY city ORDER BY city"
    assert looks("sales.csv", "sql", query=query).endswith("city text | total integer\nOslo | 2100\nRome | 1960")


def test_cells_are_shown_on_one_line_and_cannot_play_tricks(looks: Looks, workspace: Path) -> None:
    cells = {"a": "two\nlines", "b": "x|y", "c": "NULL", "d": None, "e": "\x1b[31mred", "f": "z" * 500, "g": ""}
    (workspace / "a.jsonl").write_text(json.dumps(cells))
    row = looks("a.jsonl").splitlines()[2].split(" | ")
    assert row[:5] == ["two\\nlines", "x\\|y", '"NULL"', "NULL", "red"]
    assert row[5] == "z" * 200 + "… (500 characters)"
    assert row[6] == '""'


def test_of_a_wide_table_the_names_of_the_left_out_columns_are_told(looks: Looks, workspace: Path) -> None:
    (workspace / "wide.csv").write_text(",".join(f"c{at}" for at in range(40)) + "\n" + ",".join(["1"] * 40) + "\n")
    shown = looks("wide.csv")
    assert "c29 integer" in shown
    assert "[10 columns are not shown: c30, c31, c32" in shown


def test_wrong_operations_and_paths_are_answered_by_what_to_do(looks: Looks, workspace: Path) -> None:
    for arguments, answer in (
        ({"path": "sales.csv", "operation": "plot"}, "Call data_plot"),
        ({"path": "sales.csv", "operation": "delete"}, "It has head, tail, shape"),
        ({"path": "missing.csv"}, "no such file"),
        ({"path": "../secret.csv"}, "refused"),
        ({"path": "/etc/passwd"}, "outside the workspace"),
        ({"path": "."}, "directory"),
        ({"path": "sales.csv", "query": "x" * 30_000, "operation": "sql"}, "Make it shorter"),
    ):
        with pytest.raises(ToolError, match=answer):
            looks(**arguments)


def test_a_link_out_of_the_workspace_is_refused(looks: Looks, workspace: Path) -> None:
    (workspace.parent / "secret.csv").write_text("word\nopensesame\n")
    (workspace / "link.csv").symlink_to(workspace.parent / "secret.csv")
    (workspace / "inner.csv").symlink_to("sales.csv")
    with pytest.raises(ToolError, match="leads out of the workspace"):
        looks("link.csv")
    assert "Rome" in looks("inner.csv")
    os.mkfifo(workspace / "pipe.csv")
    with pytest.raises(ToolError, match="not a regular file"):
        looks("pipe.csv")


def test_other_names_for_arguments_are_understood(looks: Looks) -> None:
    output = looks.run(looks.view, file_path="sales.csv", op="sql", sql="SELECT 1 AS one FROM data", limit=1)
    assert output.content.endswith("one integer\n1")


def test_the_worker_sees_the_file_and_no_other_one_and_cannot_write(
    looks: Looks, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "secret.csv").write_text("word\nopensesame\n")
    spy = (
        "import json, os, socket\n"
        "def can(act):\n"
        "    try: return str(act())\n"
        "    except OSError as error: return type(error).__name__\n"
        f"w = {str(workspace)!r}\n"
        "open('/dev/fd/1', 'w').write(json.dumps({'file': [os.stat(w + '/sales.csv').st_dev, os.stat(w + '/sales.csv')"
        ".st_ino], 'kind': 'CSV', 'columns': [], 'rows': [], 'title': json.dumps([can(lambda: os.listdir(w)), "
        "can(lambda: open(w + '/secret.csv').read()), can(lambda: open(w + '/sales.csv', 'a').write('x')), "
        "can(lambda: os.unlink(w + '/sales.csv')), can(lambda: open('/etc/shadow').read()), "
        "can(lambda: socket.create_connection(('1.1.1.1', 53), 1))])}))\n"
    )
    monkeypatch.setattr(worker, "_BOOT", spy)
    shown = looks("sales.csv")
    listed, *tried = json.loads(shown[shown.index("; [") + 2 : -1])
    assert listed == "['sales.csv']"
    assert not any(attempt.isdigit() or "opensesame" in attempt for attempt in tried)
    assert (workspace / "sales.csv").read_text() == SALES


def test_a_worker_that_takes_too_much_memory_is_ended(
    looks: Looks, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LIMITS", Limits(memory_mb=100, pids=64, file_mb=64, tmp_mb=64))
    (workspace / "a.json").write_text("[" + ",".join(['{"a": {"b": [1, 2, 3]}}'] * 400_000) + "]")
    with pytest.raises(ToolError, match=r"memory|ended with code"):
        looks("a.json")


def test_a_worker_that_never_ends_is_ended(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_BOOT", "import time; time.sleep(1000)")
    monkeypatch.setattr(worker, "SECONDS", 0.2)
    monkeypatch.setattr(worker, "_GRACE", 0.2)
    with pytest.raises(ToolError, match="It took longer"):
        looks("sales.csv")


def test_a_worker_that_crashes_or_answers_without_end_is_told_in_one_line(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_BOOT", "import os, sys; sys.stderr.write('boom\\n'); os.abort()")
    with pytest.raises(ToolError, match=r"its reader ended with code 134\. boom"):
        looks("sales.csv")
    monkeypatch.setattr(worker, "MOST", 1 << 20)
    monkeypatch.setattr(worker, "_BOOT", "while True: print('x' * 1000)")
    with pytest.raises(ToolError, match="too large"):
        looks("sales.csv")


def test_a_file_that_is_replaced_by_a_link_while_it_is_opened_is_not_shown(looks: Looks, workspace: Path) -> None:
    secret = workspace.parent / "secret.csv"
    secret.write_text("word\nopensesame\n")

    def swap() -> None:  # after the file was opened here, before the sandbox mounts it
        (workspace / "sales.csv").unlink()
        (workspace / "sales.csv").symlink_to(secret)

    tool = view_tool(DataPlace(workspace, sandbox_of("bubblewrap", swap), lambda: "bubblewrap"))
    with pytest.raises(ToolError, match="was replaced while it was opened"):
        looks.run(tool, path="sales.csv")


def test_a_file_that_grows_while_it_is_read_is_named(looks: Looks, workspace: Path) -> None:
    path = workspace / "log.csv"
    path.write_text("a,b\n" + "1,2\n" * 500_000)
    over = threading.Event()

    def grow() -> None:
        while not over.is_set():
            with path.open("a") as file:
                file.write("1,2\n")
            time.sleep(0.005)

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        shown = looks("log.csv", "shape")
    finally:
        over.set()
        growing.join()
    assert "the file was changed while it was read" in shown


def test_changes_in_the_journal_of_a_database_are_named(looks: Looks, workspace: Path) -> None:
    connection = sqlite3.connect(workspace / "a.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO t VALUES (1)")
    try:
        assert "changes in its -wal file are not shown" in looks("a.db", "shape")
    finally:
        connection.close()


def test_without_a_sandbox_no_file_is_opened(workspace: Path, looks: Looks) -> None:
    async def none(*_: object) -> Sandbox:
        raise SandboxError("there is no sandbox here", fix="install bubblewrap")

    tool = view_tool(DataPlace(workspace, none, lambda: "auto"))
    with pytest.raises(SandboxError, match="there is no sandbox here"):
        looks.run(tool, path="sales.csv")


def test_if_the_user_switched_the_sandbox_off_the_worker_runs_without_one(workspace: Path, looks: Looks) -> None:
    tool = view_tool(DataPlace(workspace, sandbox_of("off"), lambda: "off"))
    assert "28 rows" in looks.run(tool, path="sales.csv", operation="shape").content


def test_without_the_extra_the_answer_is_what_to_type(
    looks: Looks, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(workspace / "a.parquet", "SELECT 7 AS seven")
    monkeypatch.setattr(worker, "LIBRARIES", ())
    for arguments in ({"path": "a.parquet"}, {"path": "sales.csv", "operation": "sql", "query": "SELECT 1 FROM data"}):
        with pytest.raises(ToolError, match=r"pip install 'lmagent-local\[data\]'"):
            looks(**arguments)
    assert "Rome" in looks("sales.csv")


# --- pictures -------------------------------------------------------------------------------------------------------


def test_a_picture_of_a_file_is_drawn_beside_it(looks: Looks, workspace: Path) -> None:
    output = looks.plot("sales.csv")
    found = picture_of((workspace / "sales.png").read_bytes())
    assert found is not None
    assert found.media_type == "image/png"
    assert "line: sales by day; 28 points" in output.content
    assert output.content.endswith("KB).")
    assert output.data["picture"] == output.data["path"] == "sales.png"
    assert output.data["changed"]


def test_a_picture_of_a_query_goes_where_the_call_says(looks: Looks, workspace: Path) -> None:
    query = "SELECT city, sum(sales) AS total FROM data GROUP BY city ORDER BY city"
    output = looks.plot("sales.csv", query=query, output="out/totals.png", kind="bar")
    assert "bar: total by city; 2 bars" in output.content
    assert (workspace / "out" / "totals.png").exists()


def test_a_picture_replaces_only_pictures_of_the_session(looks: Looks, workspace: Path) -> None:
    (workspace / "mine.png").write_bytes(b"the user's")
    with pytest.raises(ToolError, match="Name another file"):
        looks.plot("sales.csv", output="mine.png")
    assert (workspace / "mine.png").read_bytes() == b"the user's"
    first = looks.plot("sales.csv").data["sha256"]
    assert looks.plot("sales.csv", kind="bar", x="city").data["sha256"] != first


def test_what_cannot_be_drawn_is_refused(workspace: Path) -> None:
    looks = Looks(workspace, hidden=["hidden.csv"])
    shutil.copy(workspace / "sales.csv", workspace / "hidden.csv")
    for arguments, answer in (
        ({"path": "hidden.csv"}, "a rule forbids it"),
        ({"path": "sales.csv", "output": "sales.txt"}, "ends in .png"),
        ({"path": "sales.csv", "output": "../x.png"}, "refused"),
        ({"path": "sales.csv", "x": "nope"}, "no column 'nope'"),
        ({"path": "sales.csv", "y": "city"}, "only numbers"),
        ({"path": "sales.csv", "kind": "pie"}, "no kind of plot 'pie'"),
    ):
        with pytest.raises(ToolError, match=answer):
            looks.plot(**arguments)
    assert sorted(os.listdir(workspace)) == ["hidden.csv", "sales.csv"]


# --- the program ----------------------------------------------------------------------------------------------------


def test_the_program_works_without_the_folder(tmp_path: Path) -> None:
    source = Path(worker.__file__).parents[1]
    copy = tmp_path / "lmagent"
    shutil.copytree(source, copy, ignore=lambda folder, names: {"__pycache__", "data", "demo"} & set(names))
    wiring = copy / "app" / "wiring.py"
    lines = wiring.read_text().splitlines(keepends=True)
    without = [line for line in lines if line.strip() != "data_files(registry)"]
    assert len(without) == len(lines) - 1
    wiring.write_text("".join(without))
    (tmp_path / "workspace").mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from lmagent.cli.main import main; main()",
            str(tmp_path),
            "tool",
            "list",
        ],
        cwd=tmp_path / "workspace",
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "shell" in done.stdout
    assert "data_view" not in done.stdout
