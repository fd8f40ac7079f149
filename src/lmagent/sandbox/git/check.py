"""Compares the repositories with a mark: sets aside new files that would make git run something, and reports them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from msgspec import Struct

from lmagent.sandbox.git.files import HeldFile, Root
from lmagent.sandbox.git.index import IndexDamagedError, gitlinks
from lmagent.sandbox.git.repo import Follow, Repo, Trouble, changed_trouble, look, moved, new_trouble
from lmagent.sandbox.git.scan import Ident, Places, ScanBounds, is_dot_git, note_pointer, scan

MOST_INDEX = 16 << 20
"""Bytes of an index that are kept."""

_MOST_FINDINGS = 50
_SLACK_NS = 1_000_000_000  # a file system's clock and ours may differ slightly


class GitFinding(Struct, frozen=True):
    """A finding, in text for the user; control characters are spelled out.

    `what` is the danger, `action` the reaction of the guard; `path` is relative to the workspace, which is `.`.
    """

    path: str
    what: str
    action: str


@dataclass
class GitMark:
    """The repositories at one moment; only `GitGuard` looks inside."""

    at: int
    places: Places
    repos: dict[str, Repo]
    pointers: dict[str, HeldFile]
    indexes: dict[str, HeldFile | None] = field(default_factory=dict[str, "HeldFile | None"])

    def repo(self, path: str, ident: Ident) -> Repo | None:
        """Return the repository that is at this path now: it may have been elsewhere."""
        here = self.repos.get(path)
        if here is not None and here.ident == ident:
            return here
        return next((repo for repo in self.repos.values() if repo.ident == ident), here)


class GitCheck:
    """One look at the workspace, compared with a mark.

    Args:
        mark: the state before.
        own: repositories of the user: in these, each change of a file that git acts on is put back.
        inside: the workspace's path in the sandbox, empty if it is the same.
        bounds: how far to look.
    """

    def __init__(self, root: Root, mark: GitMark, own: frozenset[str], inside: str, bounds: ScanBounds) -> None:
        self.root, self.mark, self.own, self.inside, self.bounds = root, mark, own, inside, bounds
        self.findings: list[GitFinding] = []
        self.more = 0

    def run(self) -> tuple[GitFinding, ...]:
        """Look, and return the findings. Inner folders come first: renaming an outer one changes their paths."""
        now = scan(self.root.path, self.bounds, open_up=self._open_up)
        for path in sorted(now.closed - self.mark.places.closed):
            self._say(path, "cannot be listed", "nothing: do not run git in it")
        if now.hit or now.closed:
            self._add_known(now)
        if now.hit:
            self._say("", f"{now.hit}, so a repository can be hidden in the rest", "nothing: look before you run git")
        if self._bring_back(now):
            now = scan(self.root.path, self.bounds)
        for path in sorted(now.pointers, key=_depth, reverse=True):
            self._pointer(path)
        for path in sorted(now.gitdirs, key=_depth, reverse=True):
            self._repository(path, now.gitdirs[path])
        self._indexes()
        if self.more:
            self._say("", f"{self.more} more like these", "the same", always=True)
        return tuple(self.findings)

    def _say(self, path: str, what: str, action: str, *, always: bool = False) -> None:
        if len(self.findings) >= _MOST_FINDINGS and not always:
            self.more += 1
            return
        self.findings.append(GitFinding(_shown(path) or ".", _shown(what, 200), _shown(action)))

    def _open_up(self, path: str) -> bool:
        """Make a folder readable that hides a repository which git would still find by its name."""
        if path in self.mark.places.closed or not self.root.open_up(path):
            return False
        self._say(path, "could not be listed any more, which hides its contents", "made it readable for you again")
        return True

    def _add_known(self, now: Places) -> None:
        """Add the places that git would visit by itself, since the look was incomplete."""
        paths = [*self.mark.repos, *self.mark.pointers]
        held = self.root.held(".git/index")
        if held is not None:
            try:
                paths += [f"{link}/.git" for link in gitlinks(held.data)]
            except IndexDamagedError:
                self._say(".git/index", "cannot be read", "nothing: do not run git here")
        for path in paths:
            if path not in now.gitdirs and self.root.status(path) is not None:
                note_pointer(os.path.join(self.root.path, path), path, now)

    def _bring_back(self, now: Places) -> bool:
        """Put the user's `.git` back where it was renamed and something else took its place."""
        brought = False
        for path in self.own & self.mark.repos.keys():
            ident = self.mark.repos[path].ident
            if not is_dot_git(os.path.basename(path)) or now.gitdirs.get(path) == ident:
                continue
            at = next((other for other, its in now.gitdirs.items() if its == ident), None)
            taken = path in now.gitdirs or path in now.pointers
            if at is None or not taken or (path != ".git" and is_dot_git(os.path.basename(at))):
                continue
            what = f"is another one: yours was renamed to {at}, and is back in its place"
            if self._put_repository_aside(path, what):
                try:
                    self.root.move(at, path)
                except OSError as error:
                    self._say(at, "is your repository", f"could not be renamed to {path} ({error.strerror})")
                brought = True
        return brought

    def _pointer(self, path: str) -> None:
        held, back = self.root.held(path), self.mark.pointers.get(path)
        if held is None or held.same(back) or self._older(path, path in self.mark.pointers):
            return
        what = ""
        if held.kind == "link":
            what = f"is a link to {held.target}"
        elif path in self.own:
            what = "was changed" if back else "took the place of your repository"
        elif held.data.startswith(b"gitdir:"):
            what = self._gitfile(path, held)
        if what:
            self._put_aside(Trouble(path, f"{what}, where git would look for its configuration", back))

    def _gitfile(self, path: str, held: HeldFile) -> str:
        target = held.data.removeprefix(b"gitdir:").decode("utf-8", "surrogateescape").strip(" \r\n")
        mapped = target
        if self.inside and (target == self.inside or target.startswith(self.inside + "/")):
            mapped = self.root.path + target[len(self.inside) :]
        leads = self.root.leads(os.path.dirname(path), mapped)
        if leads is None:
            return f"names a folder outside the workspace, {target}"
        known = self.mark.repos.get(leads)
        return f"names {target}" if known is not None and known.dangerous else ""

    def _older(self, path: str, known: bool) -> bool:
        """Return whether a path is as old as a mark that could not see everything: then it counts as seen."""
        if known or not self.mark.places.hit:
            return False
        names = (path, f"{path}/config", f"{path}/hooks", f"{path}/commondir")
        times = [info.st_ctime_ns for name in names if (info := self.root.status(name)) is not None]
        return max(times, default=0) < self.mark.at - _SLACK_NS

    def _repository(self, path: str, ident: Ident) -> None:
        was = self.mark.repo(path, ident)
        if self._older(path, was is not None):
            return
        pointer = self.mark.pointers.get(path) if path in self.own else None
        if pointer is not None:
            if self._put_repository_aside(path, "took the place of your .git file"):
                self._put_back(path, pointer)
            return
        if was is None:
            now = look(self.root, path, ident, Follow())
            troubles = list(new_trouble(self.root, now))
            whole = next((trouble for trouble in troubles if trouble.whole), None)
            if whole is not None:
                self._put_repository_aside(path, f"{_inner(path, whole.path)}{whole.what}")
                return
        else:
            strict = was.path in self.own
            was = moved(was, path)
            troubles = changed_trouble(self.root, was, look(self.root, path, ident, was.follow), strict=strict)
        for trouble in troubles:
            self._put_aside(trouble)

    def _put_repository_aside(self, path: str, what: str) -> bool:
        """Rename a repository so that git recognises it by no path, not even in its renamed folder."""
        start = f"{path}/" if path else ""
        new = ""
        try:
            for name in ("HEAD", "commondir", "config", "config.worktree"):
                if self.root.status(start + name) is not None:
                    new = f"its {name} is now {self.root.set_aside(start + name)}"
            if is_dot_git(os.path.basename(path)):
                new = f"renamed to {self.root.set_aside(path)}"
        except OSError as error:
            self._say(path, what, f"could not be renamed ({error.strerror}): do not run git there")
            return False
        self._say(path, what, f"{new}; no repository any more" if new else "it was no repository yet")
        return True

    def _put_aside(self, trouble: Trouble) -> None:
        path, back = trouble.path, trouble.back
        if trouble.leave:
            self._say(path, trouble.what, "not changed: look at it first")
            return
        held, action = self.root.held(path), ""
        if held is not None:
            try:
                action = f"renamed to {self.root.set_aside(path)}"
            except OSError as error:
                self._say(path, trouble.what, f"could not be renamed ({error.strerror}): do not run git there")
                return
        if back is not None:
            # A link with an unchanged target led to a file that was changed: the kept content replaces the link.
            as_file = held is not None and held.kind == "link" and held.target == back.target
            done = self._put_back(path, back, as_file=as_file)
            action += "; " * bool(action) + (
                "the earlier file is back" if done else "the earlier file could not be put back"
            )
        self._say(path, trouble.what, action)

    def _put_back(self, path: str, back: HeldFile, *, as_file: bool = False) -> bool:
        if not back.whole and back.kind != "link":
            return False
        try:
            self.root.put_back(path, back, as_file=as_file)
        except OSError:
            return False
        return True

    def _indexes(self) -> None:
        """Judge the gitlinks: an index alone can make a `git status` run git in another repository of the user."""
        dangerous = {repo.ident: repo.worktree for repo in self.mark.repos.values() if repo.dangerous}
        for path, was in self.mark.indexes.items():
            name = _join(path, "index")
            held = self.root.held(name, MOST_INDEX)
            if held is None:
                continue
            try:
                before = self._gitlinks("", was)
                now = self._gitlinks(path, held)
            except IndexDamagedError:
                if not held.same(was):
                    self._put_aside(Trouble(name, "cannot be read, and could lead git to where it runs something", was))
                continue
            base = self.mark.repos[path].worktree
            links = {link: os.path.normpath(os.path.join(base, link)) for link in now}
            into = {link: at for link, at in links.items() if self._leads_to(at, dangerous)}
            what = "makes a git status run git in {} too, whose configuration runs something"
            new = sorted(into.keys() - before)
            if new:
                self._put_aside(Trouble(name, what.format(into[new[0]]), was))
            for at in (at for link, at in into.items() if link in before and at not in dangerous.values()):
                self._put_repository_aside(f"{at}/.git", "was moved to where a git status of the outer one runs it")

    def _gitlinks(self, path: str, held: HeldFile | None) -> frozenset[str]:
        """Return the gitlinks of an index, and of those that it shares its entries with."""
        shared = [name for name in self.root.lists(path) if name.startswith("sharedindex.")] if path else []
        parts = [held, *(self.root.held(_join(path, name), MOST_INDEX) for name in shared)]
        return frozenset(link for part in parts if part is not None for link in gitlinks(part.data))

    def _leads_to(self, at: str, dangerous: dict[Ident, str]) -> bool:
        if at in dangerous.values():
            return True
        info = self.root.status(f"{at}/.git")
        return info is not None and (info.st_dev, info.st_ino) in dangerous


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0


def _inner(path: str, name: str) -> str:
    return "" if name == path else f"its {name.removeprefix(path).lstrip('/')}: "


def _shown(text: str, most: int = 4096) -> str:
    """Return `text` for a terminal, without characters that move the cursor or hide."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )
    return safe if len(safe) <= most else safe[: most - 1] + "…"
