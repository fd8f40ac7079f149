"""The project's own instructions: what is sent, and what is never opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lmagent.app.prompt import MOST, workspace_note


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    return root


def note_of(workspace: Path, limit: int = MOST) -> tuple[str, list[str]]:
    said: list[str] = []
    return workspace_note(workspace, said.append, lambda: limit)(), said


def test_instructions_are_sent_up_to_a_limit_and_nothing_more_is_read(workspace: Path) -> None:
    path = workspace / ".lmagent.md"
    path.write_text("Use tabs.\n")
    note, said = note_of(workspace)
    assert "Use tabs." in note
    assert said == []
    path.write_bytes("ä".encode() * MOST + b"THE END")
    os.truncate(path, 1 << 40)  # a terabyte of nothing: whoever reads it whole will not come back
    note, _ = note_of(workspace)
    assert note.count("ä") == MOST
    assert "THE END" not in note
    assert "[… read .lmagent.md for the rest]" in note


def test_a_small_window_gets_fewer_instructions_and_the_model_knows_where_the_rest_is(workspace: Path) -> None:
    (workspace / ".lmagent.md").write_text("Use tabs. Never push.")
    assert "Use tabs.\n[… read .lmagent.md for the rest]" in note_of(workspace, 9)[0]
    assert "for the rest" not in note_of(workspace, 100)[0]


def test_agents_md_is_read_where_there_are_no_instructions_of_our_own(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("Use tabs.")
    assert "(AGENTS.md):\nUse tabs." in note_of(workspace)[0]
    (workspace / ".lmagent.md").write_text("Use spaces.")
    assert "(.lmagent.md):\nUse spaces." in note_of(workspace)[0]


def test_a_workspace_without_instructions_says_nothing_of_them(workspace: Path) -> None:
    note, said = note_of(workspace)
    assert "instructions" not in note
    assert said == []


def test_a_link_is_not_followed_and_the_person_is_told(workspace: Path) -> None:
    (workspace.parent / "id_rsa").write_text("PRIVATE")
    (workspace / "inside.md").write_text("PRIVATE")
    for target in (workspace.parent / "id_rsa", "inside.md", "nowhere"):
        (workspace / ".lmagent.md").symlink_to(target)
        note, said = note_of(workspace)
        assert "PRIVATE" not in note
        assert len(said) == 1
        assert "a symbolic link" in said[0]
        assert "→" in said[0]
        (workspace / ".lmagent.md").unlink()


def test_a_pipe_a_socket_and_a_folder_are_passed_over(workspace: Path, monkeypatch) -> None:
    monkeypatch.chdir(workspace)  # a socket's path must be short
    path = Path(".lmagent.md")
    os.mkfifo(path)
    assert "a special file" in note_of(workspace)[1][0]
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert "a special file" in note_of(workspace)[1][0]
    path.unlink()
    path.mkdir()
    assert "a folder" in note_of(workspace)[1][0]
