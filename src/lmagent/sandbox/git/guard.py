"""Finds files of a command that a later git of the user, outside the sandbox, would run.

  guard = GitGuard(workspace)
  mark = guard.baseline()          # before a command
  ...                              # it runs
  findings = guard.check(mark)     # when it has ended, and before its folder is handed back to the user

A `git status` runs the program of `core.fsmonitor`, filters and hooks, so a command that writes a repository anywhere
in the workspace decides which programs the user's next prompt runs. Files that existed at the mark stay. A newer file
that git would act on is renamed within its folder, to `<name>.lmagent-quarantine-<n>`; a file that it replaced is
restored. A harmless new repository is left alone. Git itself is never run here (ADR 0007).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from lmagent.sandbox.git.check import MOST_INDEX, GitCheck, GitFinding, GitMark
from lmagent.sandbox.git.files import HeldFile, Root
from lmagent.sandbox.git.repo import Repo, look
from lmagent.sandbox.git.scan import Places, ScanBounds, is_dot_git, scan

__all__ = ["GitFinding", "GitGuard", "GitMark", "Protected", "ScanBounds", "protected_paths"]

SKIPPED = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", "site-packages", "target", "objects"})
"""Folders that `protected_paths` does not look into; the guard looks into all folders."""

_MOUNTED = 64
_FEW = ScanBounds(entries=50_000, seconds=0.5, repositories=_MOUNTED)


class Protected(Struct, frozen=True):
    """A path that a sandbox mounts onto itself, in this order: it exists and is no link.

    A writable path becomes a mount point only so that it cannot be renamed or replaced.
    """

    path: Path
    writable: bool


class GitGuard:
    """Guards one workspace; `inside` is its path in the sandbox, if that differs: worktrees made inside name it."""

    def __init__(self, workspace: Path, *, inside: str = "", bounds: ScanBounds | None = None) -> None:
        self._root = os.path.realpath(workspace)
        self._inside = "" if inside and os.path.lexists(inside) else inside.rstrip("/")
        self._bounds = bounds or ScanBounds()
        self._mark: GitMark | None = None
        self._own: frozenset[str] | None = None

    def baseline(self) -> GitMark:
        """Note the present repositories. Those of the first baseline count as the user's own.

        Returns the mark that `check` compares with. A command that runs beside others is checked with its own mark.

        Raises:
            OSError: the workspace cannot be opened.
        """
        at = time.time_ns()
        with Root(self._root) as root:
            places = scan(self._root, self._bounds)
            repos = {path: look(root, path, ident, None) for path, ident in places.gitdirs.items()}
            mark = GitMark(at, places, repos, _held(root, places.pointers))
            if any(repo.dangerous and path != ".git" for path, repo in repos.items()):
                # Then a new gitlink in an index alone would make git run a program that it did not run before.
                mark.indexes = {path: root.held(f"{path}/index", MOST_INDEX) for path in repos}
        if self._own is None:
            self._own = frozenset([*repos, *mark.pointers])
        self._mark = mark
        return mark

    def check(self, mark: GitMark | None = None) -> tuple[GitFinding, ...]:
        """Look again, set aside new files that could make git run something, and return the findings.

        The look is compared with the latest mark if `mark` is None. Without any mark, all repositories are new.

        Raises:
            OSError: the workspace cannot be opened.
        """
        mark = mark or self._mark or GitMark(0, Places(), {}, {})
        with Root(self._root) as root:
            return GitCheck(root, mark, self._own or frozenset(), self._inside, self._bounds).run()

    def protected(self) -> tuple[Protected, ...]:
        """Return the paths to mount, as of the latest mark: like `protected_paths` without a second look.

        Repositories that are newer than the first mark are the agent's: they are checked, not mounted.
        """
        if self._mark is None:
            return protected_paths(Path(self._root))
        own = self._own or frozenset()
        with Root(self._root) as root:
            repos = [repo for path, repo in self._mark.repos.items() if path in own]
            pointers = [path for path in self._mark.pointers if path in own]
            return tuple(_protect(root, repos[:_MOUNTED], pointers[:_MOUNTED]))


def protected_paths(workspace: Path) -> tuple[Protected, ...]:
    """Return the paths that a sandbox mounts onto themselves, to keep the programs of the user's git unchanged.

    The look for repositories is bounded and skips dependencies. Folders come before their contents.

    Raises:
        OSError: the workspace cannot be opened.
    """
    path = os.path.realpath(workspace)
    with Root(path) as root:
        places = scan(path, _FEW, skip=SKIPPED, depth=8)
        repos = [look(root, name, ident, None) for name, ident in list(places.gitdirs.items())[:_MOUNTED]]
        return tuple(_protect(root, repos, places.pointers[:_MOUNTED]))


def _protect(root: Root, repos: Collection[Repo], pointers: Collection[str]) -> Iterator[Protected]:
    base = Path(root.path)
    seen: set[str] = set()
    for repo in repos:
        if is_dot_git(os.path.basename(repo.path)) and root.status(repo.path) is not None:
            yield Protected(base / repo.path, writable=True)
    for repo in repos:
        folders = [f"{repo.path}/hooks" if repo.path else "hooks", *repo.follow.hooks]
        # A `core.hooksPath` that is the worktree itself cannot be read-only.
        folders = [folder for folder in folders if not any(map(is_dot_git, root.lists(folder)))]
        files = [
            name
            for name, item in repo.files.items()
            if item.role in ("config", "commondir", "attributes") and item.held.kind == "file"
        ]
        for name in (*folders, *files):
            info = root.status(name)
            if name and name not in seen and info is not None and not stat.S_ISLNK(info.st_mode):
                seen.add(name)
                yield Protected(base / name, writable=False)
    for name in pointers:
        held = root.held(name)
        if held is not None and held.kind == "file" and name not in seen:
            yield Protected(base / name, writable=False)


def _held(root: Root, paths: Collection[str]) -> dict[str, HeldFile]:
    return {path: held for path in paths if (held := root.held(path)) is not None}
