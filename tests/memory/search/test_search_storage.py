"""The index's file: two processes, crashes, damage, and what a purge leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testkit.search_kit import ConceptEmbedder, opened, said

from lmagent.core.errors import StoreError
from lmagent.core.memory import MemoryItem
from lmagent.memory import open_memory

WRITER = """
import sys
from lmagent.memory import open_memory
index = open_memory(sys.argv[1])
for number in range(int(sys.argv[3])):
    index.index([{"id": f"{sys.argv[2]}{number}-{k}", "text": f"entry {k} of batch {number}"} for k in range(20)])
    print(number, flush=True)
"""


def writer(path: Path, name: str, batches: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(batches)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_importing_the_package_loads_neither_sqlite_nor_numpy() -> None:
    code = "import sys, lmagent.memory; print([name for name in ('sqlite3', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_an_embedder_numpy_is_never_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from lmagent.memory import open_memory; index = open_memory(sys.argv[1]);"
        "index.index([{'id': 'a', 'text': 'b'}]); index.search('b', 1); print('numpy' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_path_is_a_folder_or_a_file(tmp_path: Path) -> None:
    open_memory(tmp_path / "new" / "folder").close()
    open_memory(tmp_path / "one.db").close()
    assert (tmp_path / "new" / "folder" / "index.db").is_file()
    assert (tmp_path / "one.db").is_file()
    assert (tmp_path / "one.db").stat().st_mode & 0o077 == 0


def test_items_may_be_dicts_with_iso_times(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index([{"id": "a", "text": "tea", "ts": "2026-01-02T03:04:05+01:00"}, MemoryItem("b", "tea")])
    index.index([{"id": "c", "text": "tea", "ts": "2026-01-02"}])
    assert {hit.id: hit.ts for hit in index.search("tea", 9)} == {"a": 1767319445.0, "b": 0.0, "c": 1767312000.0}


@pytest.mark.parametrize(
    "wrong", [{"text": "x"}, {"id": "", "text": "x"}, {"id": "x"}, {"id": "x", "text": "y", "ts": "soon"}, {"id": 3}]
)
def test_an_item_that_cannot_be_read_is_refused_and_no_other_is_written(tmp_path: Path, wrong: dict[str, str]) -> None:
    index, _ = opened(tmp_path)
    with pytest.raises(ValueError, match=r"id|text|time"):
        index.index([{"id": "good", "text": "good"}, wrong])
    assert index.count() == 0


def test_a_changed_item_is_found_by_its_new_words_alone(tmp_path: Path) -> None:
    index, _ = opened(tmp_path, ConceptEmbedder())
    index.index(said("Ann: a puppy"))
    assert index.wait_embedded(20)
    assert index.search("pet", 1)
    index.index(said("Ann: a soup"))
    assert index.wait_embedded(20)
    assert index.search("puppy", 1)[0].text == "a soup"  # the only item is the nearest to anything
    assert index.count() == 1
    index.close()
    words, _ = opened(tmp_path)
    assert words.search("puppy", 1) == []


def test_two_processes_write_and_each_sees_the_others_items(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    processes = [writer(tmp_path, name, 10) for name in "ab"]
    for number in range(10):
        index.index([{"id": f"c{number}", "text": f"own entry {number}"}])
    assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    assert index.count() == 410
    assert len(index.search("entry batch", 500)) == 410


def test_a_process_sees_the_vectors_that_another_one_made(tmp_path: Path) -> None:
    reader, _ = opened(tmp_path, ConceptEmbedder())
    reader.index(said("Ann: the weather is bad", session="w"))
    assert reader.wait_embedded(20)
    assert reader.search("pet", 1)[0].id == "w1"
    other, _ = opened(tmp_path, ConceptEmbedder())
    other.index(said("Ann: a puppy", session="p"))
    assert other.wait_embedded(20)
    assert reader.search("pet", 1)[0].id == "p1"
    other.remove(["p1"])
    assert [hit.id for hit in reader.search("pet", 5)] == ["w1"]


@pytest.mark.crash
@pytest.mark.parametrize("after", [0, 3, 11])
def test_after_a_kill_while_indexing_the_index_opens_and_holds_no_item_twice(tmp_path: Path, after: int) -> None:
    process = writer(tmp_path, "k", 1000)
    assert process.stdout is not None
    for _ in range(after + 1):
        process.stdout.readline()
    time.sleep(0.003 * after)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(20)
    process.stdout.close()
    index, notices = opened(tmp_path)
    assert notices == []
    assert index.count() >= 20 * (after + 1)
    assert index.count() % 20 == 0  # a call is written whole
    before = index.count()
    index.index(
        [{"id": f"k{number}-{k}", "text": f"entry {k} of batch {number}"} for number in range(3) for k in range(20)]
    )
    assert index.count() == max(before, 60)
    ids = [hit.id for hit in index.search("entry", 100_000)]
    assert len(ids) == len(set(ids)) == index.count()


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()


def newer(path: Path) -> None:
    open_memory(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"no database " * 1000), foreign, newer])
def test_a_file_that_is_no_index_is_set_aside_and_a_new_one_begun(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "index.db"
    spoil(path)  # type: ignore[operator]
    old = path.read_bytes()
    index, notices = opened(path)
    assert len(notices) == 1
    assert "set aside" in notices[0]
    (aside,) = tmp_path.glob("index.db.damaged-*[0-9]")
    assert aside.read_bytes() == old
    index.index([{"id": "a", "text": "words"}])
    assert index.search("words", 1)


def test_damage_that_is_met_in_use_is_no_error(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index({"id": str(n), "text": f"some words {n}"} for n in range(2000))
    index.close()
    path = tmp_path / "index.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    index, notices = opened(path)
    assert index.search("some words", 3) == []
    index.index([{"id": "a", "text": "some words"}])
    assert index.search("some words", 3)[0].id == "a"
    assert len(notices) == 1


def test_a_closed_index_reports_an_error_that_says_so(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.close()
    with pytest.raises(StoreError, match="closed"):
        index.search("x", 1)


@pytest.mark.parametrize("aside", [False, True])
def test_a_purge_leaves_no_byte_of_the_text(tmp_path: Path, aside: bool) -> None:
    secret = "Xylographer quixotry zzyzxfoo"
    index, _ = opened(tmp_path, ConceptEmbedder())
    index.index({"id": f"n{n}", "text": f"harmless entry {n}", "session": "s"} for n in range(300))
    index.index([{"id": "s1", "text": secret, "session": "s"}, {"id": "s2", "text": f"once more {secret}" * 300}])
    index.index([{"id": "s1", "text": f"{secret} changed", "session": "s"}])
    index.index({"id": f"m{n}", "text": f"later entry {n}"} for n in range(300))
    assert index.wait_embedded(30)
    if aside:
        (tmp_path / "index.db.damaged-1").write_bytes(secret.encode())
    assert b"zzyzxfoo" in content(tmp_path)
    assert index.purge(["s1", "s2", "unknown"]) == 2
    left = content(tmp_path).lower()
    for trace in (b"xylograph", b"quixotr", b"zzyzxfoo", b"yzxfo"):
        assert trace not in left
    assert index.count() == 600
    assert len(index.search("entry", 1000)) == 600
    assert index.purge([]) == 0


def test_a_purge_that_a_reader_holds_up_says_so_and_succeeds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmagent.store.database.BUSY_SECONDS", 0.1)
    index, _ = opened(tmp_path)
    index.index([{"id": "s", "text": "zzyzxfoo"}])
    reader = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM item").fetchone()
    with pytest.raises(StoreError, match="another process"):
        index.purge(["s"])
    reader.execute("COMMIT")
    reader.close()
    index.purge(["s"])
    assert b"zzyzxfoo" not in content(tmp_path)
