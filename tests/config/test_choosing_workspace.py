from __future__ import annotations

import os
from pathlib import Path

import pytest
from config_machine import Machine, unprivileged

from lmagent.config.workspace import Workspace, choose_workspace, open_workspace
from lmagent.core.errors import WorkspaceError


def resolve_workspace(flag: Path | str | None, setting: Path | str | None, cwd: Path, home: Path) -> Workspace:
    return open_workspace(choose_workspace(flag, setting, cwd, home))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "flag").mkdir(parents=True)
    (folder / "setting").mkdir()
    (folder / "cwd").mkdir()
    return folder


def test_the_flag_goes_before_the_setting_and_that_before_the_current_folder(home: Path) -> None:
    cwd = home / "cwd"
    assert resolve_workspace("~/flag", home / "setting", cwd, home).path == home / "flag"
    assert resolve_workspace(None, "../setting", cwd, home).path == home / "setting"
    here = resolve_workspace(None, None, cwd, home)
    assert (here.path, here.note) == (cwd, "")


@pytest.mark.parametrize("start", ["home", "/"])
def test_started_in_the_home_folder_or_in_the_root_it_is_made_in_the_home_folder(home: Path, start: str) -> None:
    cwd = home if start == "home" else Path("/")
    first = resolve_workspace(None, None, cwd, home)
    assert first.path == home / "lm_workspace"
    assert first.path.is_dir()
    assert str(first.path) in first.note
    assert "\n" not in first.note
    again = resolve_workspace(None, None, cwd, home)
    assert again.note


def test_a_link_to_the_home_folder_is_the_home_folder(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    assert resolve_workspace(None, None, tmp_path / "link", home).path == home / "lm_workspace"
    assert resolve_workspace(None, None, home, tmp_path / "link").path == home / "lm_workspace"


@pytest.mark.parametrize("named", ["~", "/", "~/flag/.."])
def test_the_home_folder_and_the_root_are_refused_as_a_setting(home: Path, named: str) -> None:
    with pytest.raises(WorkspaceError, match="as the workspace") as caught:
        resolve_workspace(None, named, home / "cwd", home)
    assert "lmagent --workspace" in caught.value.fix


def test_the_home_folder_is_taken_by_flag(home: Path) -> None:
    assert resolve_workspace("~", None, home / "cwd", home).path == home


def test_a_workspace_that_does_not_exist_says_how_to_make_it(home: Path) -> None:
    for flag, setting in (("~/gone", None), (None, "~/gone")):
        with pytest.raises(WorkspaceError, match="does not exist") as caught:
            resolve_workspace(flag, setting, home / "cwd", home)
        assert f"mkdir -p {home / 'gone'}" in caught.value.fix
    assert not (home / "gone").exists()


def test_a_workspace_that_is_a_file_is_refused(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(WorkspaceError, match="is no folder"):
        resolve_workspace("~/file", None, home / "cwd", home)
    with pytest.raises(WorkspaceError, match="does not exist"):
        resolve_workspace("~/file/below", None, home / "cwd", home)


def test_a_workspace_that_cannot_be_written_is_refused(public_folder: Path) -> None:
    mine = public_folder / "mine"
    mine.mkdir(mode=0o500)
    if os.geteuid() == 0:
        os.chown(mine, 65534, 65534)
    with unprivileged(), pytest.raises(WorkspaceError, match="is not writable for you") as caught:
        resolve_workspace(mine, None, public_folder, Path("/nonexistent"))
    assert f"ls -ld {mine}" in caught.value.fix


def test_a_workspace_that_cannot_be_reached_is_refused(public_folder: Path) -> None:
    closed = public_folder / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    with unprivileged(), pytest.raises(WorkspaceError, match="no folder that can be reached"):
        resolve_workspace(closed / "inside", None, public_folder, Path("/nonexistent"))


def test_a_home_folder_that_cannot_hold_the_workspace_is_a_clear_error(public_folder: Path) -> None:
    with unprivileged(), pytest.raises(WorkspaceError, match="cannot be made"):
        resolve_workspace(None, None, Path("/"), public_folder)


def test_the_loader_chooses_and_makes_nothing_before_it_is_asked_to(machine: Machine) -> None:
    machine.cwd = machine.home
    loaded = machine.load()
    assert loaded.settings.workspace == machine.home / "lm_workspace"
    assert not loaded.settings.workspace.exists()
    assert loaded.origins["workspace"].layer == "default"
    assert open_workspace(loaded.workspace).path.is_dir()


def test_the_origin_of_the_workspace_is_in_its_error(machine: Machine) -> None:
    loaded = machine.load(WORKSPACE=str(machine.home / "gone"))
    with pytest.raises(WorkspaceError, match="WORKSPACE in the environment"):
        open_workspace(loaded.workspace)
    flagged = machine.load({"workspace": "gone"}, WORKSPACE=str(machine.home))
    assert flagged.origins["workspace"].name == "--workspace"
    with pytest.raises(WorkspaceError, match="--workspace"):
        open_workspace(flagged.workspace)
