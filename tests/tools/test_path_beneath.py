from __future__ import annotations

import os
import random
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmagent.core.errors import ToolError, WorkspaceError
from lmagent.tools.beneath import Beneath
from lmagent.tools.paths import lexical


@pytest.fixture
def files(workspace: Path):
    with Beneath(workspace) as opened:
        yield opened


def refusal(act, *arguments) -> str:
    with pytest.raises(ToolError) as caught:
        act(*arguments)
    return caught.value.message


def everything(path: Path) -> dict[str, bytes]:
    return {str(item): item.read_bytes() for item in path.rglob("*") if item.is_file()}


def test_a_file_is_read_by_its_path_in_any_of_its_spellings(files: Beneath, workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a/b.txt").write_text("x")
    for path in ("a/b.txt", "./a//b.txt", str(workspace / "a/b.txt"), "/workspace/a/b.txt"):
        assert files.read_bytes(path) == b"x"
        assert files.locate(path) == "a/b.txt"


def test_a_folder_called_workspace_is_a_folder_like_any_other(files: Beneath, workspace: Path) -> None:
    (workspace / "workspace").mkdir()
    (workspace / "workspace/x").write_text("inner")
    assert files.read_bytes("workspace/x") == b"inner"


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.txt", "a/../../outside/secret.txt", "..", "/etc/passwd", "/", "~/x", "a\0b", "/workspace/.."],
)
def test_a_path_that_leads_out_is_refused_with_what_to_do(files: Beneath, workspace: Path, path: str) -> None:
    for act in (files.read_bytes, files.stat, files.listdir, files.mkdir):
        message = refusal(act, path)
        assert "workspace" in message or "NUL" in message
    refusal(files.write_atomic, path, b"evil")


def test_a_prefix_of_the_workspaces_name_is_not_the_workspace(files: Beneath, workspace: Path) -> None:
    sibling = workspace.with_name("ws-other")
    sibling.mkdir()
    (sibling / "x").write_text("no")
    assert "outside" in refusal(files.read_bytes, str(sibling / "x"))


@pytest.mark.parametrize("target", ["../../outside", "{outside}"])
def test_links_that_lead_out_are_refused_for_everything(
    files: Beneath, workspace: Path, outside: Path, target: str
) -> None:
    before = everything(outside)
    (workspace / "dir").symlink_to(target.format(outside=outside))
    (workspace / "file").symlink_to(outside / "secret.txt")
    (workspace / "hop").symlink_to("dir")
    for path in ("file", "dir/secret.txt", "hop/secret.txt"):
        assert "leads out" in refusal(files.read_bytes, path)
        assert "leads out" in refusal(files.write_atomic, path, b"evil")
        assert "leads out" in refusal(files.stat, path)
    for path in ("dir", "hop"):
        assert "leads out" in refusal(files.listdir, path)
    assert "leads out" in refusal(files.mkdir, "dir/new")
    assert "leads out" in refusal(files.write_atomic, "dir/new/file", b"evil")
    assert everything(outside) == before
    assert (workspace / "file").is_symlink()


def test_links_that_stay_inside_are_followed_for_reading_and_writing(files: Beneath, workspace: Path) -> None:
    (workspace / "real/deep").mkdir(parents=True)
    (workspace / "real/a.txt").write_text("old")
    (workspace / "link").symlink_to("real/a.txt")
    (workspace / "real/deep/up").symlink_to("../a.txt")
    (workspace / "folder").symlink_to(workspace / "real")
    for path in ("link", "real/deep/up", "folder/a.txt", "folder/deep/up"):
        assert files.read_bytes(path) == b"old"
    files.write_atomic("link", b"new")
    assert (workspace / "link").is_symlink()
    assert (workspace / "real/a.txt").read_text() == "new"
    assert files.write_atomic("folder/fresh/b.txt", b"b")
    assert (workspace / "real/fresh/b.txt").read_text() == "b"


def test_circles_of_links_end(files: Beneath, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    (workspace / "self").symlink_to("self/x")
    for path in ("a", "b/x", "self"):
        refusal(files.read_bytes, path)
        refusal(files.write_atomic, path, b"x")


@pytest.mark.parametrize(
    "path", [".git/config", ".GIT/hooks/x", "sub/.Git/config", ".git", ".g\u200cit/config", ".git./config", "git~1/x"]
)
def test_git_is_never_written(files: Beneath, workspace: Path, path: str) -> None:
    assert ".git" in refusal(files.write_atomic, path, b"x")
    assert ".git" in refusal(files.mkdir, path)
    assert list(workspace.iterdir()) == []


def test_git_may_be_read(files: Beneath, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/HEAD").write_text("ref: x")
    assert files.read_bytes(".git/HEAD") == b"ref: x"


def test_a_gitfile_of_a_worktree_is_not_written_either(files: Beneath, workspace: Path) -> None:
    (workspace / ".git").write_text("gitdir: elsewhere")
    assert ".git" in refusal(files.write_atomic, ".git", b"gitdir: evil")


def test_a_link_to_git_does_not_get_round_it(files: Beneath, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("safe")
    (workspace / "innocent").symlink_to(".git")
    (workspace / "config").symlink_to(".git/config")
    assert ".git" in refusal(files.write_atomic, "innocent/config", b"evil")
    assert ".git" in refusal(files.write_atomic, "config", b"evil")
    assert ".git" in refusal(files.mkdir, "innocent/hooks")
    (workspace / "store").mkdir()
    (workspace / "two").mkdir()
    (workspace / "two/.git").symlink_to("../store")
    assert ".git" in refusal(files.write_atomic, "two/.git/config", b"evil")
    assert everything(workspace / ".git") == {str(workspace / ".git/config"): b"safe"}


@pytest.mark.parametrize("name", [".lmagent", ".LMAgent"])
def test_our_own_records_are_neither_read_nor_written(files: Beneath, workspace: Path, name: str) -> None:
    (workspace / name).mkdir()
    (workspace / name / "log").write_text("x")
    (workspace / "link").symlink_to(name)
    for path in (f"{name}/log", "link/log"):
        assert "records" in refusal(files.read_bytes, path)
        assert "records" in refusal(files.write_atomic, path, b"x")
    assert "records" in refusal(files.listdir, name)


def test_what_is_no_regular_file_is_refused_without_blocking(files: Beneath, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(workspace)  # the path of a socket must be short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        started = time.monotonic()
        for path in ("fifo", "socket"):
            assert "not a regular file" in refusal(files.read_bytes, path)
            assert "not a regular file" in refusal(files.write_atomic, path, b"x")
        (workspace / "dir").mkdir()
        assert "directory" in refusal(files.read_bytes, "dir")
        assert "directory" in refusal(files.write_atomic, "dir", b"x")
        assert "directory" in refusal(files.write_atomic, ".", b"x")
        assert "directory" in refusal(files.write_atomic, "new/", b"x")
        assert time.monotonic() - started < 1


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device needs root")
def test_a_device_is_refused(files: Beneath, workspace: Path) -> None:
    try:
        os.mknod(workspace / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no devices here")
    message = refusal(files.read_bytes, "zero")
    assert "not a regular file" in message or "permission" in message  # nodev mounts say the latter


def test_a_hard_link_to_a_file_outside_is_cut_not_written_through(
    files: Beneath, workspace: Path, outside: Path
) -> None:
    os.link(outside / "secret.txt", workspace / "hard")
    files.write_atomic("hard", b"mine now")
    assert (workspace / "hard").read_text() == "mine now"
    assert (outside / "secret.txt").read_text() == "secret\n"


def test_a_write_keeps_the_mode_makes_parents_and_leaves_nothing_beside(files: Beneath, workspace: Path) -> None:
    assert files.write_atomic("a/b/c.sh", b"1") is True
    os.chmod(workspace / "a/b/c.sh", 0o751)
    assert files.write_atomic("a/b/c.sh", b"2" * 100_000) is False
    assert (workspace / "a/b/c.sh").stat().st_mode & 0o7777 == 0o751
    assert os.listdir(workspace / "a/b") == ["c.sh"]
    files.write_atomic("n" * 255, b"the longest name")
    assert "too long" in refusal(files.write_atomic, "n" * 256, b"x")


def test_a_write_protected_file_is_left_alone(files: Beneath, workspace: Path) -> None:
    (workspace / "ro").write_text("x")
    os.chmod(workspace / "ro", 0o444)
    assert "write-protected" in refusal(files.write_atomic, "ro", b"y")
    assert (workspace / "ro").read_text() == "x"


def test_a_write_that_fails_half_way_changes_nothing(files: Beneath, workspace: Path) -> None:
    (workspace / "f").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # the kernel takes 10 kB and refuses the rest
    try:
        assert "failed" in refusal(files.write_atomic, "f", b"x" * 50_000)
        assert "failed" in refusal(files.write_atomic, "new", b"x" * 50_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert everything(workspace) == {str(workspace / "f"): b"old"}


@pytest.mark.crash
def test_a_kill_inside_a_write_leaves_the_old_or_the_new_file(workspace: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lmagent.tools.beneath import Beneath\n"
        "with Beneath(Path(sys.argv[1])) as files:\n"
        "    while True:\n"
        "        for letter in b'ab':\n"
        "            files.write_atomic('f', bytes([letter]) * 300_000)\n"
        "            print(flush=True)\n"
    )
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", code, str(workspace)], stdout=subprocess.PIPE)
        with child:
            assert child.stdout is not None
            child.stdout.readline()  # it is at work
            time.sleep(random.uniform(0, 0.01))
            child.kill()
        content = (workspace / "f").read_bytes()
        assert len(content) == 300_000
        assert len(set(content)) == 1


def test_a_write_over_a_file_that_became_another_is_refused(files: Beneath, workspace: Path) -> None:
    (workspace / "f").write_text("one")
    stamp = files.load("f").stamp
    (workspace / "f").write_text("two!")
    with pytest.raises(ToolError, match="changed by another program"):
        files.write_atomic("f", b"three", over=stamp)
    with pytest.raises(ToolError, match="changed by another program"):
        files.write_atomic("f", b"three", over=None)
    assert (workspace / "f").read_text() == "two!"
    assert os.listdir(workspace) == ["f"]
    files.write_atomic("f", b"three", over=files.load("f").stamp)
    assert (workspace / "f").read_text() == "three"


def test_a_file_in_the_way_of_a_parent_is_said(files: Beneath, workspace: Path) -> None:
    (workspace / "f").write_text("x")
    assert "not a directory" in refusal(files.write_atomic, "f/g", b"y")
    assert "not a directory" in refusal(files.read_bytes, "f/g")
    assert "not a directory" in refusal(files.mkdir, "f")
    assert "no such file" in refusal(files.read_bytes, "nothing")


def test_directories_are_made_once(files: Beneath, workspace: Path) -> None:
    assert files.mkdir("a/b/c") is True
    assert files.mkdir("a/b/c") is False
    assert files.mkdir("a/b/d") is True
    assert files.mkdir(".") is False


def test_a_limit_reads_only_the_beginning(files: Beneath, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"0123456789" * 300_000)
    assert files.read_bytes("f", 5) == b"01234"
    assert len(files.read_bytes("f")) == 3_000_000
    assert files.stat("f").st_size == 3_000_000


def test_very_deep_paths_work(files: Beneath, workspace: Path) -> None:
    deep = "/".join(["d" * 100] * 60)  # longer than the kernel takes in one call
    files.write_atomic(f"{deep}/f", b"deep")
    assert files.read_bytes(f"{deep}/f") == b"deep"


def test_no_descriptor_is_left_open(files: Beneath, workspace: Path) -> None:
    (workspace / "a/b").mkdir(parents=True)
    (workspace / "l").symlink_to("a")
    (workspace / "out").symlink_to("/etc")
    count = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def work() -> None:
        for path in ("l/b/x", "a/y", "out/z", "a/b", "../x", ".git/x"):
            for act in (lambda p: files.write_atomic(p, b"1"), files.read_bytes, files.listdir, files.stat):
                try:
                    act(path)
                except ToolError:
                    continue

    for _ in range(5):
        work()
    if count:
        assert len(os.listdir("/proc/self/fd")) == count


def test_a_workspace_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be opened"):
        Beneath(tmp_path / "nope")


def test_the_form_for_permission_rules_is_the_same_for_all_spellings() -> None:
    assert {lexical(path) for path in ("src/a", "./src//a", "src/./a/")} == {"src/a"}
    assert lexical("") == lexical(".") == "."
    assert lexical("/etc//passwd") == "/etc/passwd"
