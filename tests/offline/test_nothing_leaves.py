"""The claim itself: lmagent at work tries no connection beyond this machine; one that somebody plants is found."""

from pathlib import Path

import pytest

from lmagent.modelserver.engine.devices import ask_engine
from lmagent.offline.parts import run_parts

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ask_engine().problem), reason="needs the xllamacpp engine: it is not installed"),
]


def test_no_part_of_the_program_tries_a_connection_beyond_this_machine():
    parts = {part.name: part for part in run_parts()}
    assert list(parts) == ["one task", "conversation", "page", "model server"]
    assert [part.failure for part in parts.values()] == [""] * 4
    assert {name: part.skipped for name, part in parts.items() if part.skipped} == {}
    assert {name: part.attempts for name, part in parts.items() if part.attempts} == {}


def test_a_planted_connection_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    planted = "import socket, sys\nif 'run' in sys.orig_argv:\n    socket.socket().connect_ex(('192.0.2.1', 80))\n"
    (tmp_path / "sitecustomize.py").write_text(planted)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    parts = run_parts()
    task = next(parts)
    parts.close()
    assert (task.name, task.failure) == ("one task", "")
    ((attempt, count),) = task.attempts.items()
    assert (attempt.address, count) == ("tcp 192.0.2.1:80", 1)
    assert "lmagent run" in attempt.program
