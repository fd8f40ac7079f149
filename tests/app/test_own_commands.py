"""The workspace's own slash commands: files that are sent as prompts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from lmagent.app.owncommands.files import LONGEST, MOST
from lmagent.app.slash import SlashResult, dispatch, is_command, user_commands
from lmagent.config.paths import config_dir
from lmagent.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "ws/.lmagent/commands"
    folder.mkdir(parents=True)
    return folder


def give(folder: Path, line: str) -> SlashResult:
    workspace = folder.parent.parent
    context: Any = SimpleNamespace(
        host=SimpleNamespace(workspace=workspace, registry=SimpleNamespace(commands={}, late_commands=[]))
    )
    return anyio.run(dispatch, line, context)


def test_a_file_is_sent_with_its_arguments(folder: Path) -> None:
    (folder / "fix.md").write_text("# Fix it\nFix $ARGUMENTS now.")
    (folder / "plain.md").write_text("Just do it.")
    (folder / "no command.md").write_text("x")
    commands = user_commands(folder.parent.parent)
    assert {name: command.help for name, command in commands.items()} == {"fix": "Fix it", "plain": "Just do it."}
    assert give(folder, "/fix the bug").submit == "# Fix it\nFix the bug now."
    assert give(folder, "/plain now").submit == "Just do it.\n\nnow"


def test_a_link_and_a_pipe_are_listed_as_skipped_and_never_opened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("PRIVATE")
    (folder / "link.md").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe.md")
    listed = {name: command.help for name, command in user_commands(folder.parent.parent).items()}
    assert listed == {"link": "skipped: its file is a symbolic link", "pipe": "skipped: its file is a special file"}
    for name in listed:
        with pytest.raises(ConfigError, match="cannot be used"):
            give(folder, f"/{name}")


def test_a_folder_of_commands_that_is_a_link_is_left_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/fix.md").write_text("PRIVATE")
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert user_commands(folder.parent.parent) == {}
    with pytest.raises(ConfigError, match=r"there is no command /fix\n"):
        give(folder, "/fix")


def test_a_misspelt_command_names_those_that_are_near(folder: Path) -> None:
    (folder / "review.md").write_text("Review it.")
    with pytest.raises(ConfigError) as refused:
        give(folder, "/reveiw src")
    assert refused.value.message == "there is no command /reveiw"
    assert refused.value.fix.startswith("did you mean /review? /help lists them")
    assert give(folder, "/review\nall of it\nplease").submit == "Review it.\n\nall of it\nplease"


@pytest.mark.parametrize("text", ["/", "/hlep", "/help ", "/mode auto", "/plan\nin two lines", "/größe"])
def test_a_slash_and_a_word_is_a_command(text: str) -> None:
    assert is_command(text)


@pytest.mark.parametrize("text", ["/etc/hosts is wrong", "/usr/", " /help", "help", "", "//", "/a.txt is gone"])
def test_a_path_and_a_slash_behind_a_space_are_none(text: str) -> None:
    assert not is_command(text)


def test_a_place_has_a_limited_number_of_commands_however_they_lie(folder: Path) -> None:
    for n in range(MOST):
        below = folder / f"f{n}"
        below.mkdir()
        for name in "abc":
            (below / f"{name}.md").write_text("x")
    assert 0 < len(user_commands(folder.parent.parent)) < MOST


def test_a_workspace_takes_no_name_of_a_command_and_the_user_takes_those_of_other_programs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    own = config_dir(os.environ) / "commands"
    own.mkdir(parents=True)
    for name in ("exit", "clear", "mine"):
        (folder / f"{name}.md").write_text("of the workspace")
    (own / "ask.md").write_text("of the user")
    assert {*user_commands(folder.parent.parent)} == {"mine", "ask"}


def test_a_binary_file_is_no_command(folder: Path) -> None:
    (folder / "bin.md").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ConfigError, match="is no text"):
        give(folder, "/bin")


def test_a_text_that_is_too_long_is_refused_and_not_cut(folder: Path) -> None:
    (folder / "long.md").write_text("x" * (LONGEST + 1))
    with pytest.raises(ConfigError, match="longer than"):
        give(folder, "/long")
