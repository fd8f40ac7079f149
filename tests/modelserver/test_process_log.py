"""The log of a worker: bounded, and its last words are there."""

from __future__ import annotations

import os

from lmagent.modelserver.pool.process import WorkerLog, log_path


def test_a_long_log_begins_anew_while_the_worker_goes_on_writing(tmp_path):
    log = WorkerLog(tmp_path / "logs" / "m.log", limit=1000)
    descriptor = log.open()
    for number in range(5):
        os.write(descriptor, f"round {number} {'x' * 1000}\n".encode())
        log.rotate()
    os.write(descriptor, b"the last words\n")
    os.close(descriptor)
    assert log.tail() == ["the last words"]
    assert sorted(file.name for file in log.path.parent.iterdir()) == ["m.log", "m.log.1"]
    assert "round 4" in (tmp_path / "logs" / "m.log.1").read_text()


def test_the_tail_has_the_lines_since_the_last_start_alone(tmp_path):
    log = WorkerLog(tmp_path / "m.log")
    for words in (b"old\n", b"new\n"):
        descriptor = log.open()
        os.write(descriptor, words)
        os.close(descriptor)
    assert log.tail() == ["new"]
    assert "old" in log.path.read_text()


def test_names_of_models_become_names_of_files_that_differ(tmp_path):
    names = ["a", "org/a", "org_a", "../a", "a:b", "ä" * 300]
    paths = [log_path(tmp_path, name) for name in names]
    assert len(set(paths)) == len(names)
    assert all(path.parent == tmp_path and len(path.name) < 120 for path in paths)
