"""The /tmp and home that the commands of one session share."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import anyio
import pytest
from sandbox_kit import bubblewrap

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits
from lmagent.sandbox.scratch import UNUSED, Scratch, covered, forget_scratch, scratch_root

bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


def run(workspace: Path, data: Path, session: str, script: str, **more) -> str:
    shown = bytearray()
    workspace.mkdir(exist_ok=True)

    async def main() -> None:
        box = bubblewrap(workspace, scratch=scratch_root(data, workspace), **more)
        command = Exec(("bash", "-c", script), merge=True, timeout=30, session=session)
        end = await (await box.start(command, lambda _, piece: shown.extend(piece))).wait()
        assert end.reason == "exit", (end, bytes(shown))

    anyio.run(main)
    return shown.decode()


@bwrap
@pytest.mark.parametrize("group", [True, False])
def test_commands_of_one_session_share_tmp_and_home_and_those_of_another_do_not(tmp_path: Path, group: bool) -> None:
    workspace, data = tmp_path / "ws", tmp_path / "data"
    run(workspace, data, "one", "echo kept >/tmp/x; echo home >~/y; sleep 0.3", group=group)
    assert run(workspace, data, "one", "cat /tmp/x ~/y; sleep 0.3", group=group) == "kept\nhome\n"
    assert "No such file" in run(workspace, data, "two", "cat /tmp/x ~/y", group=group)
    assert "No such file" in run(workspace, data, "", "cat /tmp/x ~/y", group=group)
    assert os.listdir(workspace) == []


@bwrap
def test_what_a_session_keeps_is_removed_with_it_whatever_it_did_to_its_modes(tmp_path: Path) -> None:
    workspace, data = tmp_path / "ws", tmp_path / "data"
    (tmp_path / "outside").mkdir(mode=0o500)
    run(
        workspace, data, "one", f"mkdir -p ~/a/b; echo x >~/a/b/c; ln -s {tmp_path}/outside ~/link; chmod 0 ~/a/b ~/a ~"
    )
    forget_scratch(data, workspace, "one")
    assert os.listdir(scratch_root(data, workspace)) == []
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o500


@bwrap
def test_a_single_file_has_its_limit_there_too(tmp_path: Path) -> None:
    workspace, data = tmp_path / "ws", tmp_path / "data"
    run(workspace, data, "one", "head -c 30M /dev/zero >/tmp/big", limits=Limits(file_mb=8))
    assert (scratch_root(data, workspace) / "one" / "tmp" / "big").stat().st_size <= 8 << 20


@bwrap
def test_no_command_moves_the_place_of_the_workspace_where_that_is_below_tmp(tmp_path: Path) -> None:
    top = Path(*tmp_path.parts[:3])
    if top.parent != Path("/tmp"):
        pytest.skip("the tests do not run below /tmp")
    workspace, data = tmp_path / "ws", tmp_path / "data"
    told = run(
        workspace, data, "one", f"mv {top} /tmp/moved; rm -rf {top}; ln -sfn /oldroot/etc {top}; pwd; ls -ld {top}"
    )
    assert "busy" in told
    assert run(workspace, data, "one", "touch here; pwd") == f"{workspace}\n"
    assert os.listdir(workspace) == ["here"]


def test_a_link_in_the_place_of_a_mount_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tools").symlink_to("/oldroot/etc")
    with pytest.raises(SandboxError, match="nothing was run"):
        covered(tmp_path, Path("/tmp"), [Path("/tmp/tools/bin")])
    assert covered(tmp_path, Path("/tmp"), [Path("/usr/lib"), Path("/tmp")]) == []


def test_folders_of_sessions_that_ran_nothing_for_two_weeks_are_removed(tmp_path: Path) -> None:
    old, new = (Scratch(tmp_path).folders(name)[0].parent for name in ("old", "new"))
    long_ago = time.time() - UNUSED - 60
    os.utime(old, (long_ago, long_ago))
    Scratch(tmp_path).folders("third")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("place", ["one", "one/tmp", "one/home"])
def test_a_link_in_their_place_is_not_followed(tmp_path: Path, place: str) -> None:
    root = tmp_path / "root"
    (root / place).parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxError, match="nothing was run"):
        Scratch(root).folders("one")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_where_they_cannot_be_made_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="nothing was run") as refused:
        Scratch(tmp_path / "file" / "root").folders("one")
    assert "AGENT_DATA_DIR" in refused.value.fix
