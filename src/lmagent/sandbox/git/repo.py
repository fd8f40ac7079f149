"""Reads one repository as git would find it: the files in it that decide what git runs, and the dangers in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.sandbox.git.config import ConfigDamagedError, GitConfigEntry, parse, runs_something
from lmagent.sandbox.git.files import ASIDE, MOST_LISTED, HeldFile, Root
from lmagent.sandbox.git.scan import Ident, is_dot_git

Role = Literal["config", "commondir", "hook", "attributes", "alternates", "todo", "program"]

FIXED: tuple[tuple[str, Role], ...] = (
    ("config", "config"),
    ("config.worktree", "config"),
    ("commondir", "commondir"),
    ("info/attributes", "attributes"),
    ("objects/info/alternates", "alternates"),
    ("rebase-merge/git-rebase-todo", "todo"),
)
_MOST_INCLUDES = 20
_DRIVERS = (b"filter", b"diff", b"merge")
_KNOWN_HOOKS = (
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    "post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive "
    "post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate "
    "fsmonitor-watchman post-index-change p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit"
)
_HOOKS = frozenset(_KNOWN_HOOKS.split())


class Follow(Struct, frozen=True):
    """Other places in the workspace to which the user's own config sends git; a config of the agent is not followed."""

    includes: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


class Item(Struct, frozen=True):
    role: Role
    held: HeldFile


class Repo(Struct, frozen=True):
    """A repository at one moment.

    Attributes:
        path: its folder, relative to the workspace.
        follow: the targets of its config.
        runs: name and value of the entries that make git run something.
        worktree: its folder of files, if that is in the workspace.
    """

    path: str
    ident: Ident
    files: dict[str, Item]
    follow: Follow
    runs: frozenset[tuple[str, str]]
    worktree: str = ""

    @property
    def dangerous(self) -> bool:
        """Whether git runs one of its files or entries."""
        return bool(self.runs) or any(item.role == "hook" for item in self.files.values())


class Trouble(Struct, frozen=True):
    """A new danger: something that git would act on.

    Attributes:
        what: the danger, as text for the user.
        back: the file that was there before.
        whole: the whole repository must be set aside.
        leave: it is only reported.
    """

    path: str
    what: str
    back: HeldFile | None = None
    whole: bool = False
    leave: bool = False


def look(root: Root, path: str, ident: Ident, follow: Follow | None) -> Repo:
    """Read a repository; with `follow` None, the targets are those of the present config."""
    files: dict[str, Item] = {}
    for name, role in FIXED:
        _add(root, files, _join(path, name), role)
    if follow is None:
        follow = _follow(root, path, files)
    for include in follow.includes:
        _add(root, files, include, "config")
    for program in follow.programs:
        _add(root, files, program, "program")
    hooks = _join(path, "hooks")
    link = root.held(hooks)  # the result is None for a folder
    if link is not None:
        files[hooks] = Item("hook", link)
    for folder in (hooks, *follow.hooks):
        _add_hooks(root, files, folder)
    runs: set[tuple[str, str]] = set()
    for name, item in files.items():
        if item.role == "config":
            runs.update(_runs(root, path, name, item.held) or ())
    config = files.get(_join(path, "config"))
    entries = _entries(config.held) if config else None
    return Repo(path, ident, files, follow, frozenset(runs), _worktree(root, path, entries or []))


def moved(repo: Repo, path: str) -> Repo:
    start = _join(repo.path, "")
    files = {_join(path, name[len(start) :]) if name.startswith(start) else name: i for name, i in repo.files.items()}
    return repo if repo.path == path else replace(repo, path=path, files=files)


def _add(root: Root, files: dict[str, Item], path: str, role: Role) -> None:
    held = root.held(path)
    if held is not None:
        files[path] = Item(role, held)


def _add_hooks(root: Root, files: dict[str, Item], folder: str) -> None:
    names = root.lists(folder)
    if len(names) >= MOST_LISTED:  # git's own names could be among those that were not listed
        names = [*_HOOKS, *names[: MOST_LISTED // 2]]
    mixed = any(is_dot_git(name) for name in names)  # `core.hooksPath = .`: the other files there are no hooks
    for name in names:
        if name.endswith(".sample") or ASIDE.search(name) or (mixed and name not in _HOOKS):
            continue
        _add(root, files, _join(folder, name), "hook")


def _follow(root: Root, path: str, files: dict[str, Item]) -> Follow:
    includes: list[str] = []
    hooks: list[str] = []
    programs: list[str] = []
    linked = root.inside(os.path.join(root.path, path, "hooks"))
    if linked and linked != _join(path, "hooks"):
        hooks.append(linked)
    queue = [name for name, item in files.items() if item.role == "config"]
    while queue and len(includes) < _MOST_INCLUDES:
        name = queue.pop(0)
        held = root.held(name)
        entries = _entries(held) if held else None
        worktree = _worktree(root, path, entries or [])
        for _, value in runs_something(entries or [], lambda _: False):
            programs += _programs(root, worktree, value)
        for entry in entries or []:
            if entry.value is None:
                continue
            if entry.section in ("include", "includeif") and entry.key == "path":
                leads = root.leads(os.path.dirname(name), entry.value)
                if leads and leads not in includes:
                    includes.append(leads)
                    queue.append(leads)
            elif (entry.section, entry.key) == ("core", "hookspath"):
                leads = root.leads(worktree, entry.value)
                hooks += [leads] if leads is not None else []
    programs = [name for name in dict.fromkeys(programs) if name not in includes]
    return Follow(tuple(includes), tuple(dict.fromkeys(hooks)), tuple(programs[:_MOST_INCLUDES]))


def _programs(root: Root, worktree: str, command: str) -> Iterator[str]:
    """Yield the files of the workspace that a command line names."""
    for word in re.split(r"[\s;|&'\"()!=]+", command)[:_MOST_INCLUDES]:
        leads = root.leads(worktree, word) if "/" in word or "." in word else None
        if leads and root.held(leads) is not None:
            yield leads


def _worktree(root: Root, path: str, entries: list[GitConfigEntry]) -> str:
    """Return the folder that hooks run in; `""` if it is not in the workspace."""
    for entry in entries:
        if (entry.section, entry.key) == ("core", "worktree") and entry.value:
            return root.leads(path, entry.value) or ""
    return os.path.dirname(path) if is_dot_git(os.path.basename(path)) else path


def _entries(held: HeldFile) -> list[GitConfigEntry] | None:
    if held.other or held.kind == "other":
        return None
    try:
        return parse(held.data)
    except ConfigDamagedError:
        return None


def _runs(root: Root, repo: str, name: str, held: HeldFile) -> list[tuple[str, str]] | None:
    entries = _entries(held)
    return None if entries is None else runs_something(entries, lambda value: root.leads(repo, value) is None)


def new_trouble(root: Root, repo: Repo) -> Iterator[Trouble]:
    for name, item in repo.files.items():
        if item.role == "config":
            for what in _config(root, repo, name, item.held, frozenset()):
                yield Trouble(name, what, whole=True)
        else:
            yield from _other(root, repo, name, item, None, strict=False)


def changed_trouble(root: Root, was: Repo, now: Repo, *, strict: bool) -> Iterator[Trouble]:
    """Yield the dangers of a repository that changed; `strict` if only the user may change its config."""
    for name in dict.fromkeys([*was.files, *now.files]):
        before, after = was.files.get(name), now.files.get(name)
        back = before.held if before else None
        if after is None:
            if strict and before and before.role in ("config", "hook") and name.startswith(_join(now.path, "")):
                yield Trouble(name, "was deleted", back)
            continue
        if after.held.same(back):
            continue
        if after.role == "config":
            yield from _changed_config(root, was, now, name, back, strict)
        else:
            yield from _other(root, now, name, after, back, strict=strict)


def _changed_config(
    root: Root, was: Repo, now: Repo, name: str, back: HeldFile | None, strict: bool
) -> Iterator[Trouble]:
    held = now.files[name].held
    reasons = list(_config(root, now, name, held, was.runs))
    if not reasons and strict:
        more = back is not None and held.names > back.names
        reasons = [
            "got another name, by which it could be changed later" if more else "was changed" if back else "is new"
        ]
    for what in reasons[:1]:
        yield Trouble(name, what, back)


def _config(root: Root, repo: Repo, name: str, held: HeldFile, known: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Yield the reasons why git should not read a config."""
    if held.kind == "link":
        yield f"is a link to {held.target}, where git would look for its configuration"
        return
    if held.kind == "other":
        yield "is no ordinary file, or cannot be read"
        return
    runs = _runs(root, repo.path, name, held)
    if runs is None:
        yield "cannot be understood as git's configuration"
        return
    for pair in runs:
        if pair not in known:
            yield f"git would act on it: {pair[0]} = {pair[1]}"


def _other(root: Root, repo: Repo, name: str, item: Item, back: HeldFile | None, *, strict: bool) -> Iterator[Trouble]:
    held = item.held
    if item.role == "program":
        if back is not None:
            yield Trouble(name, "was changed, and your git configuration runs it", leave=True)
    elif item.role == "hook":
        what = "is a changed hook, which git would run" if back else "is a new hook, which git would run"
        yield Trouble(name, what, back)
    elif item.role == "commondir":
        if (strict and back is None) or not _is_worktree(root, repo.path, held):
            text = held.data.decode("utf-8", "replace").strip()
            yield Trouble(name, f"sends git to another folder for its configuration: {text}", back, whole=back is None)
    elif item.role == "attributes":
        if held.kind != "file" or any(word in held.data for word in _DRIVERS):
            yield Trouble(name, "chooses programs that git puts files through", back)
    elif item.role == "alternates":
        lines = held.data.decode("utf-8", "surrogateescape").splitlines()
        base = _join(repo.path, "objects")
        out = [line for line in lines if line and line[0] != "#" and root.leads(base, line.strip('"')) is None]
        if held.kind != "file" or out:
            yield Trouble(name, f"reads objects from outside the workspace: {', '.join(out)}", back)
    else:
        before = back.data.splitlines() if back else []
        for line in held.data.splitlines():
            if line.split(b" ")[0] in (b"exec", b"x") and line not in before:
                text = line.decode("utf-8", "replace")
                yield Trouble(name, f"`git rebase --continue` would run: {text}", leave=True)
                return


def _is_worktree(root: Root, path: str, held: HeldFile) -> bool:
    """Return whether it is the commondir of `git worktree add`: two folders up, in the repository that owns it."""
    owner, middle = os.path.split(os.path.dirname(path))
    if held.kind != "file" or middle != "worktrees" or not owner:
        return False
    text = held.data.decode("utf-8", "surrogateescape").strip("\n")
    return root.leads(path, text) == owner


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name  # the workspace itself is ""
