from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from lmagent.core import events as ev
from lmagent.terminal.pictures import LARGEST, printed
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import PlainStyle

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
KITTY = {"TERM": "xterm-kitty"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.png").write_bytes(PNG)
    return folder


def test_kitty_receives_the_picture_in_pieces_no_wider_than_the_window(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", printed(workspace, "a.png", KITTY))
    assert base64.b64decode("".join(text for _, text in pieces)) == PNG
    assert [keys for keys, _ in pieces] == ["a=T,f=100,q=2,c=60,m=1", "m=1", "m=1", "m=0"]
    assert all(len(text) <= 4096 for _, text in pieces)


def test_iterm_receives_the_picture_in_one_piece(workspace: Path) -> None:
    text = printed(workspace, "a.png", {"TERM_PROGRAM": "iTerm.app"})
    assert base64.b64decode(text.partition(":")[2].removesuffix("\x07\n")) == PNG


def test_other_terminals_and_files_get_nothing(workspace: Path) -> None:
    assert printed(workspace, "a.png", {"TERM": "xterm-256color"}) == ""
    assert printed(workspace, "a.png", {**KITTY, "TMUX": "/tmp/tmux"}) == ""
    (workspace.parent / "secret.png").write_bytes(PNG)
    (workspace / "link.png").symlink_to(workspace.parent / "secret.png")
    (workspace / "no.png").write_text("no picture")
    (workspace / "large.png").write_bytes(PNG + bytes(LARGEST))
    for path in (
        "missing.png",
        "../secret.png",
        "link.png",
        "no.png",
        "large.png",
        str(workspace.parent / "secret.png"),
    ):
        assert printed(workspace, path, KITTY) == ""


def test_a_drawn_picture_follows_the_line_of_its_call(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "STY", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-kitty")
    shown: list[str] = []
    renderer = Renderer(PlainStyle(), shown.append)
    done = ev.ToolFinished(call_id="c", tool="data_plot", status="ok", content="Drawn", data={"picture": "a.png"})
    renderer(done)
    assert "\x1b_G" not in "".join(shown)
    renderer.workspace = workspace
    renderer(done)
    assert "".join(shown).count("\x1b_Ga=T") == 1
