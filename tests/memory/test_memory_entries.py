"""Entries and their folder: what a line of a file is, and that no change is lost, done twice or half done."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.app.clock import SystemClock
from lmagent.core.errors import StoreError
from lmagent.memory.entries import EntryChange, MemoryEntry, changed, entry_id, parse, parse_line
from lmagent.memory.folder import JOURNAL, PINNED_BYTES, MemoryFolder
from lmagent.memory.memory import MemoryRefused, MemoryScope
from lmagent.memory.search.sources import SqliteSourcedIndex

NOTE = "notes/2026-11-27.md"


def opened(root: Path) -> MemoryScope:
    return MemoryScope("workspace", root, SystemClock(), lambda path: SqliteSourcedIndex(path, None, print))


@pytest.fixture
def memory(tmp_path: Path) -> MemoryScope:
    return opened(tmp_path / "memory")


# --- lines --------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_back_as_it_was_written():
    entry = MemoryEntry(
        "The port is 8080.", NOTE, "decision", "model", 1795000000.0, ("20261127_1_ab#4",), "m-0123456789ab"
    )
    assert parse_line(entry.line, NOTE) == entry


def test_a_line_that_the_user_wrote_is_an_entry_and_a_heading_or_prose_is_none():
    assert parse_line("- tabs, not spaces", NOTE) == MemoryEntry("tabs, not spaces", NOTE)
    assert [parse_line(line, NOTE) for line in ("# Title", "", "Prose.", "-no item")] == [None] * 4


def test_a_comment_that_is_not_ours_is_part_of_no_entry():
    assert parse_line("- text <!-- todo: check -->", NOTE) == MemoryEntry("text", NOTE)


def test_the_id_is_of_the_text_whatever_its_case_and_blanks():
    assert entry_id("The  port is 8080.") == entry_id("the port\tis 8080") != entry_id("the port is 8081")


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=60))
def test_any_text_of_one_line_survives_its_file(text):
    entry = MemoryEntry(" ".join(text.split()), NOTE, "fact", "user", 1795000000.0)
    if entry.text and "<!--" not in entry.text and "-->" not in entry.text:
        found = list(parse(changed("", NOTE, [EntryChange(None, entry)]), NOTE))
        assert [one.text for one in found] == [entry.text]


def test_what_the_user_wrote_between_the_entries_stays_when_one_of_them_changes():
    text = "# Notes\n\nSome prose.\n- one\n- two\n\nMore prose.\n"
    old, new = MemoryEntry("one", NOTE), MemoryEntry("uno", NOTE, by="user")
    done = changed(text, NOTE, [EntryChange(old, new)])
    assert done.splitlines()[:3] == ["# Notes", "", "Some prose."]
    assert "- two\n\nMore prose.\n" in done
    assert changed(done, NOTE, [EntryChange(old, new)]) == done


# --- changes ------------------------------------------------------------------------------------------------------


def test_the_same_text_is_stored_once_and_pinning_moves_it(memory):
    first = memory.store("Tests run with make check.", by="model")
    again = memory.store("tests run with  make check", by="model")
    assert (first.id, len(memory.entries())) == (again.id, 1)
    assert memory.pin(first.id).file == "MEMORY.md"
    assert [entry.file for entry in memory.entries()] == ["MEMORY.md"]
    assert memory.pin(first.id, pinned=False).file.startswith("notes/")


def test_storing_a_known_text_returns_what_the_files_hold(memory):
    first = memory.store("Tests run with make check.", by="model", kind="decision", evidence=("s#1",))
    pinned = memory.store("tests run with make check", by="user", pinned=True)
    assert [pinned] == memory.entries()
    assert (pinned.text, pinned.by, pinned.kind, pinned.file) == (first.text, "model", "decision", "MEMORY.md")


def test_undo_takes_back_one_change_after_the_other_and_then_has_nothing_left(memory):
    one = memory.store("One fact.", by="user")
    memory.edit(one.id, "Another fact.")
    memory.forget(entry_id("Another fact."))
    assert memory.entries() == []
    for texts in (["Another fact."], ["One fact."], []):
        assert memory.undo() is not None
        assert [entry.text for entry in memory.entries()] == texts
    assert memory.undo() is None


def test_what_the_user_has_forgotten_is_not_stored_again_but_by_the_user(memory):
    entry = memory.store("The office has a cat.", by="reflection")
    memory.forget(entry.id)
    with pytest.raises(MemoryRefused, match="forgotten"):
        memory.store("The office has a cat", by="model")
    assert "forgotten" in memory.folder.refused()[-1].reason
    assert memory.store("The office has a cat", by="user").id == entry.id


def test_a_pinned_file_has_a_limit_and_the_refusal_changes_nothing(memory):
    for number in range(4):
        memory.store(f"Fact number {number}: " + "x" * 850, by="user", pinned=True)
    before = memory.entries()
    with pytest.raises(StoreError, match=r"MEMORY\.md would have"):
        memory.store("One more fact, " + "x" * 850, by="user", pinned=True)
    assert memory.entries() == before
    assert (memory.folder.root / "MEMORY.md").stat().st_size <= PINNED_BYTES


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_there(memory):
    memory.store("A fact.", by="user")
    notes = memory.folder.root / "notes"
    (notes / "2020-01-01.md").write_bytes(b"\xff\xfe\x00")
    (notes / "2020-01-02.md").symlink_to("/etc/passwd")
    os.mkfifo(notes / "2020-01-03.md")
    (notes / "2020-01-04.md").write_bytes(b"- x\n" * 500_000)
    assert [entry.text for entry in memory.entries()] == ["A fact."]
    assert len(memory.folder.problems) == 4
    assert memory.index().search("fact", 5)[0].text == "A fact."


# --- crashes and other processes ----------------------------------------------------------------------------------

WRITER = """
import os, sys
from pathlib import Path
from lmagent.store import files as module
from tests.memory.test_memory_entries import opened
memory, stop = opened(Path(sys.argv[1])), int(sys.argv[2])
calls = 0
def counted(real):
    def wrapped(*given, **named):
        global calls
        calls += 1
        if calls == stop:
            os.kill(os.getpid(), 9)
        return real(*given, **named)
    return wrapped
for name in ("write_new", "write_whole", "sync_file", "sync_folder"):
    setattr(module, name, counted(getattr(module, name)))
memory.store("First fact.", by="user", pinned=True)
print("stored", flush=True)
memory.edit(memory.find(memory.entries()[0].id).id, "Second fact.")
print("edited", flush=True)
"""


@pytest.mark.parametrize("stop", range(1, 25))
def test_a_process_killed_at_any_write_loses_nothing_it_reported_and_doubles_nothing(tmp_path, stop):
    root = tmp_path / "memory"
    here = Path(__file__).parents[2]
    command = [sys.executable, "-c", WRITER, str(root), str(stop)]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    memory = opened(root)
    if root.exists():
        memory.store("A later fact.", by="user")  # finishes what was cut off
    texts = [entry.text for entry in memory.entries()]
    assert len(texts) == len(set(texts))
    if "edited" in done.stdout:
        assert texts.count("Second fact.") == 1
    elif "stored" in done.stdout:
        assert texts.count("First fact.") + texts.count("Second fact.") == 1
    assert sorted(hit.text for hit in memory.index().search("fact", 9)) == sorted(texts)


def _store_many(root: Path, name: str) -> None:
    memory = opened(root)
    for number in range(25):
        memory.store(f"Fact {number} of {name}.", by="user")


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_store_many, args=(tmp_path / "memory", name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    memory = opened(tmp_path / "memory")
    assert len(memory.entries()) == 50
    assert memory.index().count() == 50


def test_a_torn_line_of_the_journal_is_no_operation(memory):
    memory.store("One fact.", by="user")
    with (memory.folder.root / JOURNAL).open("ab") as file:
        file.write(b'{"id":"x","at":1,"what":"store","chan')
    memory.store("Two facts.", by="user")
    assert [operation.what for operation in memory.folder.operations()] == ["store", "store"]
    assert MemoryFolder(memory.folder.root, SystemClock()).entries() == memory.entries()


def test_a_deleted_index_is_built_again_from_the_files(memory):
    memory.store("The cat is called Minka.", by="user")
    assert memory.index().search("cat", 1)
    memory.close()
    for path in memory.folder.root.glob("index.db*"):
        path.unlink()
    assert memory.index().search("cat", 1)[0].text == "The cat is called Minka."


def test_a_line_that_the_user_writes_or_deletes_is_found_or_gone_at_once(memory):
    memory.store("One fact.", by="user", pinned=True)
    memory.index()
    path = memory.folder.root / "MEMORY.md"
    path.write_text("# Mine\n- Written by hand.\n")
    assert [hit.text for hit in memory.index().search("hand fact", 5)] == ["Written by hand."]
