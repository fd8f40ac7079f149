"""Reads the files of a repository that decide what git runs, and judges which of them do no harm.

Only a short list of files and settings is harmless: those that git and its tools write by themselves. Whatever is not
on it, or is not written as git writes it, counts as a danger. So git's own reading of a file need not be known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

from msgspec import Struct

from lmagent.sandbox.git.files import ASIDE, HeldFile, Root
from lmagent.sandbox.git.scan import Ident, is_dot_git, joined

TODO = "rebase-merge/git-rebase-todo"
FIXED = ("config", "config.worktree", "commondir", "info/attributes", "objects/info/alternates", TODO)

MOST_HOOKS = 500
"""Files in a folder of hooks; a folder with more is a danger as a whole."""

MOST_INDEX = 16 << 20
"""Bytes of an index that are read."""

_GITLINK = b"\0\0\xe0\0"
"""The mode of a gitlink in an index."""

_MOST_LED = 20

_SECTION = re.compile(rb'[ \t]*\[([A-Za-z0-9-]+)(?:[ \t]+"([^"\\\n]*)")?\][ \t]*')
_SETTING = re.compile(rb'[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*([^"\\#;\n\r\0]*?)[ \t]*')
_ANY_SETTING = re.compile(rb"\s*([\w-]+)\s*=\s*\"?(.*?)\"?\s*(?:\s[#;].*)?$")
_REMARK = re.compile(rb"[ \t]*(?:[#;][^\0]*)?")

_HARMLESS = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|longpaths|sharedrepository|compression|untrackedcache|sparsecheckout(?:cone)?)=.*"
    r"|core\.(?:fsmonitor=false|hookspath=/dev/null|pager=cat)"
    r"|(?:remote\.(?:url|pushurl|fetch|push|tagopt|mirror|prune|promisor|partialclonefilter|gh-resolved)"
    r"|branch\.(?!mergeoptions=)[\w-]+|submodule\.(?:url|active|branch|ignore|path|recurse|update))="
    r"(?![!-]|[A-Za-z0-9+.-]+::).*"
    r"|extensions\.(?:worktreeconfig|objectformat|partialclone|refstorage)=.*|lfs\.(?:repositoryformatversion|access)=.*"
    r"|user\.(?:name|email)=.*|init\.defaultbranch=.*|(?:commit|tag)\.gpgsign=false|pull\.(?:rebase|ff)=.*"
    r"|push\.(?:default|autosetupremote|followtags)=.*|(?:color|advice|feature|index)\.\w+=.*"
    r"|(?:merge\.conflictstyle|gc\.auto|maintenance\.auto|fetch\.prune)=.*",
    re.DOTALL,
)
"""`section.key=value` of the settings with which git runs no other program and reads no other configuration."""


class Repo(Struct, frozen=True):
    """A repository at one moment.

    Attributes:
        files: those that decide what git runs, by their path in the repository.
        worktree: its folder of files, where that is in the workspace.
    """

    path: str
    ident: Ident
    files: dict[str, HeldFile]
    worktree: str


class Led(Struct):
    """Files and folders elsewhere in the workspace to which the configuration of a repository leads git."""

    includes: list[str]
    hooks: list[str]
    programs: list[str]


def read(root: Root, path: str, ident: Ident) -> Repo:
    files = {name: held for name in FIXED if (held := root.held(joined(path, name))) is not None}
    folder = joined(path, "hooks")
    names = root.lists(folder, MOST_HOOKS + 1)
    hooks = HeldFile("other", marks=(len(names),)) if len(names) > MOST_HOOKS else root.held(folder)
    if hooks is not None:
        files["hooks"] = hooks
    else:
        files.update({f"hooks/{name}": held for name, held in read_hooks(root, folder)})
    worktree = os.path.dirname(path) if is_dot_git(os.path.basename(path)) else path
    for name, value in _settings(files["config"].data, strict=False) if "config" in files else ():
        if name == "core.worktree":
            worktree = root.leads(path, value) or ""
    return Repo(path, ident, files, worktree)


def read_hooks(root: Root, folder: str) -> Iterator[tuple[str, HeldFile]]:
    """Yield name and content of the hooks in a folder. A worktree (`core.hooksPath = .`) has other files too."""
    names = root.lists(folder, MOST_HOOKS)
    is_worktree = any(map(is_dot_git, names))
    for name in sorted(names):
        if name.endswith(".sample") or ASIDE.search(name) or (is_worktree and not re.fullmatch(r"[a-z0-9-]+", name)):
            continue
        if (held := root.held(joined(folder, name))) is not None:
            yield name, held


def led_by(root: Root, repo: Repo) -> Led:
    """Return the places of the workspace that the configuration names; it is the user's, or harmless."""
    led = Led([], [], [])
    linked = root.leads("", joined(repo.path, "hooks"))
    if linked and linked != joined(repo.path, "hooks"):
        led.hooks.append(linked)
    queue = [joined(repo.path, name) for name in ("config", "config.worktree") if name in repo.files]
    for path in queue:
        held = root.held(path)
        for name, value in _settings(held.data, strict=False) if held else ():
            if re.fullmatch(r"include(if)?\.path", name):
                leads = root.leads(os.path.dirname(path), value)
                if leads and leads not in queue and len(queue) < _MOST_LED:
                    queue.append(leads)
                    led.includes.append(leads)
            elif name == "core.hookspath":
                leads = root.leads(repo.worktree, value)
                led.hooks += [leads] if leads is not None else []
            elif not _HARMLESS.fullmatch(f"{name}={value}"):
                led.programs += _programs(root, repo.worktree, value)
    return led


def _programs(root: Root, worktree: str, command: str) -> Iterator[str]:
    """Yield the files of the workspace that a command line names."""
    for word in re.split(r"[\s;|&'\"()!=\\]+", command)[:_MOST_LED]:
        leads = root.leads(worktree, word) if "/" in word or "." in word else None
        if leads and root.held(leads) is not None:
            yield leads


def _settings(data: bytes, *, strict: bool = True) -> Iterator[tuple[str, str]]:
    """Yield `section.key` and value of a config; if strict, raises ValueError for text that git does not write."""
    section = b""
    for line in data.split(b"\n"):
        header = _SECTION.fullmatch(line) if strict else _SECTION.match(line)
        section, rest = (header[1], line[header.end() :]) if header else (section, line)
        setting = _SETTING.fullmatch(rest) if strict else _ANY_SETTING.match(rest)
        if setting is not None and section:
            name, value = b"%b.%b" % (section, setting[1]), setting[2].decode("utf-8", "surrogateescape")
            yield name.decode().lower(), value
        elif strict and not _REMARK.fullmatch(rest):
            raise ValueError(line.decode("utf-8", "replace"))


def danger(root: Root, repo: Repo, name: str, was: HeldFile | None, owners: Collection[str]) -> str:
    """Return why git must not find this file of the repository; empty if it is harmless.

    `owners` are repositories that have worktrees.
    """
    held, what = repo.files[name], ""
    if held.target:
        return f"is a link to {held.target}"
    if held.kind == "other":
        return "is no ordinary file, is too large, or cannot be read"
    text = held.data.decode("utf-8", "surrogateescape")
    if name.startswith("config"):
        what = _danger_of_config(root, repo.path, held.data)
    elif name.startswith("hooks"):
        what = "is a changed hook, which git would run" if was else "is a new hook, which git would run"
    elif name == "commondir":
        owner, middle = os.path.split(os.path.dirname(repo.path))
        if middle != "worktrees" or owner not in owners or text.strip("\n") != "../..":
            what = f"sends git to another folder for its configuration: {text.strip()}"
    elif name == "info/attributes":
        if re.search("filter|diff|merge", text):
            what = "chooses programs that git puts files through"
    elif name == "objects/info/alternates":
        folder = joined(repo.path, "objects")
        lines = (line for line in text.splitlines() if line and line[0] != "#")
        if out := [line for line in lines if root.leads(folder, line.strip('"')) is None]:
            what = f"reads objects from outside the workspace: {', '.join(out)}"
    elif orders := _orders(held) - _orders(was):
        what = f"`git rebase --continue` would run: {min(orders).decode('utf-8', 'replace')}"
    return what


def _orders(todo: HeldFile | None) -> set[bytes]:
    """Return the commands in the plan of a rebase."""
    return set(re.findall(rb"^[ \t]*(?:exec|x)\b.*", todo.data, re.MULTILINE)) if todo else set()


def _danger_of_config(root: Root, path: str, data: bytes) -> str:
    try:
        for name, value in _settings(data):
            is_inner = name == "core.worktree" and root.leads(path, value) is not None
            if not is_inner and not _HARMLESS.fullmatch(f"{name}={value}"):
                return f"git would act on it: {name} = {value}"
    except ValueError as line:
        return f"git might act on this line of it: {line}"
    return ""


def gitlinks(data: bytes) -> set[str]:
    """Return all that may be gitlinks in an index: the folders in which a `git status` runs git again.

    Before a name are its mode, five numbers and a hash of either length, and flags (`gitformat-index(5)`). Names of
    version 4 cannot be read.
    """
    found, at = set[str](), -1
    while (at := data.find(_GITLINK, at + 1)) >= 0:
        for start in (at + 16 + hash_bytes + flags for hash_bytes in (20, 32) for flags in (2, 4)):
            found.add(data[start : data.find(b"\0", start)].decode("utf-8", "surrogateescape"))
    return found
