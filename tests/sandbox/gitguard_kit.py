"""A workspace with a repository of the user's, attacks on it, and the user's own git on the host to prove them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lmagent.sandbox.git.guard import GitFinding, GitGuard


@dataclass
class Ground:
    base: Path

    def __post_init__(self) -> None:
        self.ws, self.home, self.marker = self.base / "ws", self.base / "home", self.base / "pwned"
        self.ws.mkdir(parents=True)
        self.home.mkdir()
        self.payload = f"touch {self.marker}; false"

    def git(self, *args: str, cwd: Path | str = ".", check: bool = False) -> str:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_PAGER": "cat",
        }
        for who in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{who}_NAME": "U", f"GIT_{who}_EMAIL": "u@example.com"}
        done = subprocess.run(
            ["git", *args], cwd=self.ws / cwd, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
        )
        assert not check or done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout.decode("utf-8", "replace")

    def repo(self, at: str = ".") -> Path:
        """A repository with one commit."""
        (self.ws / at).mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", cwd=at, check=True)
        self.write(f"{at}/a.txt", "one\n")
        self.git("add", "a.txt", cwd=at, check=True)
        self.git("commit", "-qm", "first", cwd=at, check=True)
        return self.ws / at / ".git"

    def write(self, path: str, text: str, *, run: bool = False) -> Path:
        file = self.ws / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if run:
            file.chmod(0o755)
        return file

    def append(self, path: str, text: str) -> None:
        with open(self.ws / path, "a") as file:
            file.write(text)

    def evil(self, at: str, text: str = "") -> None:
        """Make a config call the payload at the next status."""
        self.append(at, text or f'[core]\n\tfsmonitor = "{self.payload}"\n')

    def use(self, *where: str) -> bool:
        """What a user does, in each folder; whether the payload ran."""
        self.marker.unlink(missing_ok=True)
        for cwd in where or (".",):
            if not (self.ws / cwd).is_dir():
                continue
            touched = self.ws / cwd / "a.txt"
            if touched.is_file():
                touched.write_text("changed\n")  # so that filters and diffs have something to do
            for args in (("status",), ("diff",), ("log", "-p", "-1"), ("checkout", "-q", "HEAD", "--", ".")):
                self.git(*args, cwd=cwd)
            self.git("checkout", "-q", "-b", "other", cwd=cwd)
        return self.marker.exists()


@dataclass(frozen=True)
class Attack:
    name: str
    plant: Callable[[Ground], None]
    where: tuple[str, ...] = (".",)
    before: Callable[[Ground], object] = lambda ground: ground.repo()
    runs: bool = True  # with git 2.39: False where it refuses or needs more


def checked(ground: Ground, plant: Callable[[Ground], None]) -> tuple[GitFinding, ...]:
    guard = GitGuard(ground.ws)
    mark = guard.baseline()
    plant(ground)
    return guard.check(mark)


def as_nobody(act: Callable[[], list[str]]) -> str:
    """The lines it returns, from a process of another user: root can list every folder."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir("/")
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(write, "\n".join(act()).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, encoding="utf-8") as pipe:
        return pipe.read()


def _replace(ground: Ground) -> None:
    ground.git("config", "core.fsmonitor", ground.payload)


def _rebuilt(ground: Ground) -> None:
    (ground.ws / ".git").rename(ground.ws / "old")
    ground.repo()
    ground.evil(".git/config")


def _rebuilt_for_good(ground: Ground) -> None:
    shutil.rmtree(ground.ws / ".git")
    ground.repo()
    ground.evil(".git/config")


def _gitfile(ground: Ground) -> None:
    (ground.ws / ".git").rename(ground.ws / "moved")
    ground.evil("moved/config")
    ground.write(".git", "gitdir: moved\n")


def _link(ground: Ground) -> None:
    (ground.ws / ".git").rename(ground.ws / "moved")
    ground.evil("moved/config")
    (ground.ws / ".git").symlink_to("moved")


def _commondir(ground: Ground) -> None:
    shutil.copytree(ground.ws / ".git", ground.ws / "x")
    ground.evil("x/config")
    ground.write(".git/commondir", "../x\n")


def _config_worktree(ground: Ground) -> None:
    ground.git("config", "extensions.worktreeConfig", "true")
    ground.git("config", "--worktree", "core.fsmonitor", ground.payload)


def _only_config_worktree(ground: Ground) -> None:
    ground.evil(".git/config.worktree")


def _gitlink(ground: Ground) -> None:
    ground.repo("sub")
    ground.git("add", "sub")
    ground.evil("sub/.git/config")


def _module(ground: Ground) -> None:
    """As a submodule has it: its folder is in `.git/modules`, and a file leads there."""
    ground.repo("sub")
    (ground.ws / ".git/modules").mkdir()
    ground.git("add", "sub")
    (ground.ws / "sub/.git").rename(ground.ws / ".git/modules/sub")
    ground.write("sub/.git", "gitdir: ../.git/modules/sub\n")
    ground.evil(".git/modules/sub/config")


def _bare(ground: Ground) -> None:
    ground.git("init", "-q", "--bare", "docs/images")
    ground.evil("docs/images/config", f'[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "{ground.payload}"\n')


def _bare_by_commondir(ground: Ground) -> None:
    ground.repo("real")
    ground.write("real/.git/info/attributes", "* diff=x\n")
    ground.evil("real/.git/config", f'[diff "x"]\n\ttextconv = "touch {ground.marker}; cat"\n')
    ground.write("docs/HEAD", ground.git("symbolic-ref", "HEAD", cwd="real").replace("refs", "ref: refs", 1))
    ground.write("docs/commondir", "../real/.git\n")


def _root_is_bare(ground: Ground) -> None:
    ground.git("init", "-q", "--bare", ".")
    ground.evil("config", f'[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "{ground.payload}"\n')


def _fresh(ground: Ground) -> None:
    ground.repo()
    ground.evil(".git/config")


def _in_objects(ground: Ground) -> None:
    shutil.copytree(ground.ws / ".git", ground.base / "copy")
    (ground.base / "copy").rename(ground.ws / ".git/objects/aa1")
    ground.evil(".git/objects/aa1/config")
    ground.write("p/.git", "gitdir: ../.git/objects/aa1\n")


def _hook(ground: Ground) -> None:
    ground.write(".git/hooks/post-checkout", f"#!/bin/sh\n{ground.payload}\n", run=True)


def _status_hook(ground: Ground) -> None:
    ground.write(".git/hooks/post-index-change", f"#!/bin/sh\n{ground.payload}\n", run=True)


def _linked_hook(ground: Ground) -> None:
    ground.write("tool.sh", f"#!/bin/sh\n{ground.payload}\n", run=True)
    (ground.ws / ".git/hooks/post-checkout").symlink_to("../../tool.sh")


def _hard_linked_hook(ground: Ground) -> None:
    os.link(ground.write("tool.sh", f"#!/bin/sh\n{ground.payload}\n", run=True), ground.ws / ".git/hooks/post-checkout")


def _hooks_linked(ground: Ground) -> None:
    ground.write("h/post-checkout", f"#!/bin/sh\n{ground.payload}\n", run=True)
    shutil.rmtree(ground.ws / ".git/hooks")
    (ground.ws / ".git/hooks").symlink_to("../h")


def _config_linked(ground: Ground) -> None:
    (ground.ws / ".git/config").rename(ground.ws / "c")
    ground.evil("c")
    (ground.ws / ".git/config").symlink_to("../c")


def _included(ground: Ground) -> None:
    ground.evil("inc")
    ground.append(".git/config", "[include]\n\tpath = ../inc\n")


def _filter(ground: Ground) -> None:
    ground.write(".gitattributes", "* filter=x\n")
    ground.append(".git/config", f'[filter "x"]\n\tclean = "{ground.payload}"\n')


def _info_filter(ground: Ground) -> None:
    ground.write(".git/info/attributes", "* diff=x\n")
    ground.append(".git/config", f'[diff "x"]\n\ttextconv = "touch {ground.marker}; cat"\n')


def _whole_name(ground: Ground) -> None:
    ground.repo("up")
    (ground.ws / "up/.git").rename(ground.ws / "up/.GIT")
    ground.evil("up/.GIT/config")


def _nothing(_: Ground) -> None:
    """No repository at first."""


ATTACKS = [
    Attack("a config that is changed", _replace),
    Attack("a git folder that is renamed and rebuilt", _rebuilt),
    Attack("a git folder that is deleted and rebuilt", _rebuilt_for_good),
    Attack("a gitfile in place of the git folder", _gitfile),
    Attack("a link in place of the git folder", _link),
    Attack("a commondir", _commondir),
    Attack("a config.worktree that is asked for", _config_worktree),
    Attack("a config.worktree that nobody asks for yet", _only_config_worktree, runs=False),
    Attack("an embedded repository as gitlink", _gitlink),
    Attack("a submodule's folder in .git/modules", _module),
    Attack("a bare repository by another name", _bare, ("docs/images",)),
    Attack("a bare repository that is only HEAD and commondir", _bare_by_commondir, ("docs",)),
    Attack("a workspace that becomes a bare repository", _root_is_bare, before=_nothing),
    Attack("a git init where none was", _fresh, before=_nothing),
    Attack("a repository among the objects", _in_objects, ("p",)),
    Attack("a hook", _hook),
    Attack("a hook that runs at git status", _status_hook),
    Attack("a hook that is a link", _linked_hook),
    Attack("a hook that is a hard link", _hard_linked_hook),
    Attack("a folder of hooks that is a link", _hooks_linked),
    Attack("a config that is a link", _config_linked),
    Attack("a config that includes another", _included),
    Attack("a filter with its .gitattributes", _filter),
    Attack("a textconv with info/attributes", _info_filter),
    Attack("a .GIT for other file systems", _whole_name, ("up",), runs=False),
]
