"""Finds files of a command that a later git of the user, outside the sandbox, would run.

  guard = GitGuard(workspace)
  mark = guard.baseline()          # before a command
  ...                              # it runs
  findings = guard.check(mark)     # when it has ended, and before its folder is handed back to the user

A `git status` runs the program of `core.fsmonitor`, filters and hooks, so a command that writes a repository anywhere
in the workspace decides which programs the user's next prompt runs. In the user's own repositories, the files that
decide what git runs stay unchanged. In others they must be harmless. Any other file is renamed within its folder, to
`<name>.lmagent-quarantine-<n>`, and a file that it replaced is put back. Git itself is never run here (ADR 0007).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from lmagent.sandbox.git.files import HeldFile, Root
from lmagent.sandbox.git.repo import MOST_HOOKS, MOST_INDEX, TODO, Repo, danger, gitlinks, led_by, read, read_hooks
from lmagent.sandbox.git.scan import Ident, Places, ScanBounds, is_dot_git, joined, scan

_MOST_MOUNTED = 64
_MOST_FINDINGS = 50
_SLACK_NS = 1_000_000_000  # a file system's clock and ours may differ slightly


class Protected(Struct, frozen=True):
    """A path that a sandbox mounts onto itself, in this order: it exists and is no link.

    A writable path becomes a mount point only so that it cannot be renamed or replaced.
    """

    path: Path
    writable: bool


class GitFinding(Struct, frozen=True):
    """A finding, in text for the user; control characters are spelled out.

    `what` is the danger, `action` the reaction of the guard; `path` is relative to the workspace, which is `.`.
    """

    path: str
    what: str
    action: str


@dataclass
class GitMark:
    """The repositories at one moment; only the guard looks inside.

    Attributes:
        includes: files elsewhere that the user's configuration includes; and `hooks` in its `hook_folders`.
        programs: files elsewhere that the user's configuration runs otherwise.
        runs: the repositories in which git runs something, with their folders of files.
        indexes: of all repositories, if an index can lead git to one in which it runs something.
    """

    at: int = 0
    places: Places = field(default_factory=Places)
    repos: dict[str, Repo] = field(default_factory=dict[str, Repo])
    pointers: dict[str, HeldFile] = field(default_factory=dict[str, HeldFile])
    includes: dict[str, HeldFile] = field(default_factory=dict[str, HeldFile])
    hooks: dict[str, HeldFile] = field(default_factory=dict[str, HeldFile])
    hook_folders: set[str] = field(default_factory=set[str])
    programs: dict[str, HeldFile] = field(default_factory=dict[str, HeldFile])
    runs: dict[Ident, str] = field(default_factory=dict[Ident, str])
    indexes: dict[str, HeldFile | None] = field(default_factory=dict[str, HeldFile | None])

    def repo(self, path: str, ident: Ident) -> Repo | None:
        """Return the repository that is at this path now: it may have been elsewhere."""
        here = self.repos.get(path)
        if here is not None and here.ident == ident:
            return here
        return next((repo for repo in self.repos.values() if repo.ident == ident), here)


class GitGuard:
    """Guards one workspace; `inside` is its path in the sandbox, if that differs: worktrees made inside name it."""

    def __init__(self, workspace: Path, *, inside: str = "", bounds: ScanBounds | None = None) -> None:
        self._root = os.path.realpath(workspace)
        self._inside = "" if inside and os.path.lexists(inside) else inside.rstrip("/")
        self._bounds = bounds or ScanBounds()
        self._mark: GitMark | None = None
        self._own: frozenset[str] = frozenset()

    def baseline(self) -> GitMark:
        """Note the present repositories. Those of the first baseline count as the user's own.

        Returns the mark that `check` compares with. A command that runs beside others is checked with its own mark.

        Raises:
            OSError: the workspace cannot be opened.
        """
        mark = GitMark(time.time_ns())
        with Root(self._root) as root:
            mark.places = scan(self._root, self._bounds)
            mark.repos = {path: read(root, path, ident) for path, ident in mark.places.gitdirs.items()}
            mark.pointers = _all_held(root, mark.places.pointers)
            for repo in mark.repos.values():
                led = led_by(root, repo)
                mark.hook_folders.update(led.hooks)
                mark.includes |= _all_held(root, led.includes)
                mark.programs |= _all_held(root, led.programs)
                if any(danger(root, repo, name, None, mark.places.gitdirs) for name in repo.files):
                    mark.runs[repo.ident] = repo.worktree
            mark.hooks = _hooks_in(root, mark.hook_folders)
            if any(repo.ident in mark.runs and path != ".git" for path, repo in mark.repos.items()):
                mark.indexes = {path: root.held(joined(path, "index"), MOST_INDEX) for path in mark.repos}
        if self._mark is None:
            self._own = frozenset([*mark.repos, *mark.pointers])
        self._mark = mark
        return mark

    def check(self, mark: GitMark | None = None) -> tuple[GitFinding, ...]:
        """Look again, set aside new files that could make git run something, and return the findings.

        The look is compared with the latest mark if `mark` is None. Without any mark, all repositories are new.

        Raises:
            OSError: the workspace cannot be opened.
        """
        with Root(self._root) as root:
            return _Check(root, mark or self._mark or GitMark(), self._own, self._inside, self._bounds).run()

    def protected(self) -> tuple[Protected, ...]:
        """Return the paths that a sandbox mounts onto themselves, as of the latest mark. Folders come first.

        Repositories that are newer than the first mark are the agent's: they are checked, not mounted.
        """
        mark = self._mark or self.baseline()
        with Root(self._root) as root:
            return tuple(_protected(root, mark, self._own))


def _all_held(root: Root, paths: Iterable[str]) -> dict[str, HeldFile]:
    return {path: held for path in paths if (held := root.held(path)) is not None}


def _hooks_in(root: Root, folders: set[str]) -> dict[str, HeldFile]:
    return {joined(folder, name): held for folder in folders for name, held in read_hooks(root, folder)}


def _protected(root: Root, mark: GitMark, own: frozenset[str]) -> Iterator[Protected]:
    base = Path(root.path)
    repos = [repo for path, repo in mark.repos.items() if path in own][:_MOST_MOUNTED]
    for repo in repos:
        if is_dot_git(os.path.basename(repo.path)) and root.status(repo.path) is not None:
            yield Protected(base / repo.path, writable=True)
    hooks = (joined(repo.path, "hooks") for repo in repos)
    # A `core.hooksPath` that is the worktree itself cannot be read-only.
    folders = (path for path in sorted(mark.hook_folders) if not any(map(is_dot_git, root.lists(path, MOST_HOOKS))))
    fixed = ("config", "config.worktree", "commondir", "info/attributes")
    files = (joined(repo.path, name) for repo in repos for name in fixed if name in repo.files)
    pointers = [path for path in mark.pointers if path in own][:_MOST_MOUNTED]
    for path in dict.fromkeys([*hooks, *folders, *files, *mark.includes, *pointers]):
        info = root.status(path)
        if info is not None and not stat.S_ISLNK(info.st_mode):
            yield Protected(base / path, writable=False)


class _Check:
    """One look at the workspace, compared with a mark.

    Args:
        own: repositories of the user, and files that name one.
        inside: the workspace's path in the sandbox, empty if it is the same.
    """

    def __init__(self, root: Root, mark: GitMark, own: frozenset[str], inside: str, bounds: ScanBounds) -> None:
        self.root, self.mark, self.own, self.inside, self.bounds = root, mark, own, inside, bounds
        self.findings: list[GitFinding] = []

    def run(self) -> tuple[GitFinding, ...]:
        now = self._scan()
        for path in sorted(now.closed - self.mark.places.closed):
            self._say(path, "cannot be listed", "nothing: do not run git in it")
        if not now.complete:
            what = f"only the first {now.seen:,} names were looked at, so a repository can be hidden in the rest"
            self._say("", what, "nothing: look before you run git")
        if self._bring_back(now):
            now = self._scan()
        for path in sorted(now.pointers):
            self._pointer(path)
        repos = {path: self._repository(path, now) for path in sorted(now.gitdirs)}
        self._led()
        for path in self.mark.indexes:
            self._index(path, {repo.worktree for repo in repos.values() if repo and repo.ident in self.mark.runs})
        if more := self.findings[_MOST_FINDINGS:]:
            self.findings[_MOST_FINDINGS:] = [GitFinding(".", f"{len(more)} more like these", "the same")]
        return tuple(self.findings)

    def _say(self, path: str, what: str, action: str) -> None:
        self.findings.append(GitFinding(_shown(path) or ".", _shown(what, 200), _shown(action)))

    def _scan(self) -> Places:
        """Look for repositories; even if the look must end early, at those that git would visit by itself."""
        index = self.root.held(".git/index", MOST_INDEX)
        links = gitlinks(index.data) if index else ()
        known = [*self.mark.repos, *self.mark.pointers, *(f"{link}/.git" for link in links)]
        return scan(self.root.path, self.bounds, known, self._open_up)

    def _open_up(self, path: str) -> bool:
        """Make a folder readable that hides a repository which git would still find by its name."""
        if path in self.mark.places.closed or not self.root.open_up(path):
            return False
        self._say(path, "could not be listed any more, which hides its contents", "made it readable for you again")
        return True

    def _set_aside(self, path: str, what: str, back: HeldFile | None = None) -> None:
        done: list[str] = []
        if self.root.status(path) is not None:
            try:
                done.append(f"renamed to {self.root.set_aside(path)}")
            except OSError as error:
                return self._say(path, what, f"could not be renamed ({error.strerror}): do not run git there")
        if back is not None:
            try:
                self.root.put_back(path, back)
                done.append("the earlier file is back")
            except OSError:
                done.append("the earlier file could not be put back")
        return self._say(path, what, "; ".join(done))

    def _bring_back(self, now: Places) -> bool:
        """Put the user's `.git` back where it was renamed and something else took its place."""
        brought = False
        for path in self.own & self.mark.repos.keys():
            ident = self.mark.repos[path].ident
            at = next((other for other, its in now.gitdirs.items() if its == ident), None)
            taken = path in now.gitdirs or path in now.pointers
            if at in (None, path) or not taken or (path != ".git" and is_dot_git(os.path.basename(at))):
                continue
            self._set_aside(path, f"is another one: yours was renamed to {at}, and comes back to its place")
            try:
                self.root.move(at, path)
            except OSError as error:
                self._say(at, "is your repository", f"could not be renamed to {path} ({error.strerror})")
            brought = True
        return brought

    def _pointer(self, path: str) -> None:
        held, back = self.root.held(path), self.mark.pointers.get(path)
        if held is None or held.same(back) or (back is None and self._is_older(path)):
            return
        what = ""
        if held.target:
            what = f"is a link to {held.target}"
        elif path in self.own:
            what = "was changed" if back else "took the place of your repository"
        elif held.data.startswith(b"gitdir:"):
            what = self._gitfile(path, held)
        if what:
            self._set_aside(path, f"{what}, where git would look for its configuration", back)

    def _gitfile(self, path: str, held: HeldFile) -> str:
        target = held.data.removeprefix(b"gitdir:").decode("utf-8", "surrogateescape").strip(" \r\n")
        mapped = target
        if self.inside and (target == self.inside or target.startswith(self.inside + "/")):
            mapped = self.root.path + target[len(self.inside) :]
        leads = self.root.leads(os.path.dirname(path), mapped)
        if leads is None:
            return f"names a folder outside the workspace, {target}"
        known = self.mark.repos.get(leads)
        return f"names {target}" if known is not None and known.ident in self.mark.runs else ""

    def _is_older(self, path: str) -> bool:
        """Return whether a path is as old as a mark that could not see everything: then it counts as seen."""
        if self.mark.places.complete:
            return False
        names = (path, f"{path}/config", f"{path}/hooks", f"{path}/commondir")
        times = [info.st_ctime_ns for name in names if (info := self.root.status(name)) is not None]
        return max(times, default=0) < self.mark.at - _SLACK_NS

    def _repository(self, path: str, places: Places) -> Repo | None:
        """Set aside the files of a repository that may not be there, and return the repository."""
        ident = places.gitdirs[path]
        if path in self.own and (pointer := self.mark.pointers.get(path)) is not None:
            self._set_aside(path, "took the place of your .git file", pointer)
            return None
        was = self.mark.repo(path, ident)
        if was is None and self._is_older(path):
            return None
        now = read(self.root, path, ident)
        before = was.files if was else {}
        for name in dict.fromkeys([*now.files, *before]):
            held, back = now.files.get(name), before.get(name)
            what = danger(self.root, now, name, back, places.gitdirs) if held and not held.same(back) else ""
            # The plan of a rebase changes with every step of it.
            if was is not None and was.path in self.own and name != TODO and not (held and held.same(back)):
                what = what or ("is not as it was" if held else "was deleted")
            if what:
                self._set_aside(joined(path, name), what, back)
        return now

    def _led(self) -> None:
        mark, root, known = self.mark, self.root, {**self.mark.hooks, **self.mark.includes}
        now = {**_hooks_in(root, mark.hook_folders), **_all_held(root, mark.includes)}
        for path, held in now.items():
            if not held.same(known.get(path)):
                self._set_aside(path, "was changed, and your git configuration leads to it", known.get(path))
        for path, back in mark.programs.items():
            held = root.held(path)
            if path not in known and held is not None and not held.same(back):
                self._say(path, "was changed, and your git configuration runs it", "not changed: look at it first")

    def _index(self, path: str, dangerous: set[str]) -> None:
        """Judge the gitlinks: an index alone can make a `git status` run git in another repository of the user."""
        name, was = joined(path, "index"), self.mark.indexes[path]
        held = self.root.held(name, MOST_INDEX)
        if held is None:
            return
        before, now = self._linked(path, was), self._linked(path, held, shared=True)
        new = (now & dangerous) - (before & set(self.mark.runs.values()))
        unread = held.data[4:8] == b"\0\0\0\4" and not held.same(was)
        if new or unread:
            what = f"makes a git status run git in {min(new, default='others')} too, whose configuration runs something"
            self._set_aside(name, what, None if before & new else was)

    def _linked(self, path: str, index: HeldFile | None, *, shared: bool = False) -> set[str]:
        """Return the folders that an index may link to, and those that it shares its entries with."""
        names = [name for name in self.root.lists(path, MOST_HOOKS) if name.startswith("sharedindex.") and shared]
        parts = [index, *(self.root.held(joined(path, name), MOST_INDEX) for name in names)]
        links = set[str]().union(*(gitlinks(part.data) for part in parts if part is not None))
        return {os.path.normpath(os.path.join(self.mark.repos[path].worktree, link)) for link in links}


def _shown(text: str, most: int = 4096) -> str:
    """Return `text` for a terminal, without characters that move the cursor or hide."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )
    return safe if len(safe) <= most else safe[: most - 1] + "…"
