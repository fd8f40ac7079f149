"""The entries beneath a directory of the workspace, in the order of their paths, ignore rules honoured.

Directories are opened one at a time. Symbolic links are named and never followed; git's and our own are skipped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.tools.beneath import Beneath, Entry
from lmagent.tools.paths import is_below, is_internal
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_LONGEST_IGNORE_FILE = 1 << 20
_LOOKED_AT = 3000  # paths that are compared with a missing one
_SUGGESTED = 4


class _Rules(Struct, frozen=True):
    """The ignore rules of one directory; `prefix` is its path with a slash, empty for the workspace."""

    prefix: str
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """Return True to ignore, False to include again, None without a rule; a directory's path ends with a slash."""
        return self.spec.check_file(path[len(self.prefix) :]).include


_Chain = tuple[_Rules, ...]
_Children = list[tuple[Entry, _Chain | None]]
"""Entries with the rules for their contents; None for a directory that is not entered."""


class Walk:
    """One walk; `ignored`, `withheld` and `unreadable` count the entries that it left out, so far."""

    def __init__(
        self,
        files: Beneath,
        start: str = ".",
        *,
        gitignore: bool = True,
        enter: Callable[[str], bool] | None = None,
        hidden: Callable[[str], bool] | None = None,
        listing: bool = False,
    ) -> None:
        """Prepare a walk.

        Args:
            start: the first directory. Rules that ignore this very directory are left aside: the caller named it.
            enter: returns for a directory's path whether to enter it.
            hidden: returns for a path whether it must not be seen: `ToolContext.hidden`.
            listing: entries have sizes and come level by level; `.git` and ignored directories are named too, but not
                entered.
        """
        self.ignored = 0
        self.withheld = 0
        self.unreadable = 0
        self._files = files
        self._start = files.locate(start)
        self._gitignore = gitignore
        self._enter = enter
        self._hidden = hidden
        self._listing = listing

    @property
    def notes(self) -> list[str]:
        """The notes for the model on the entries that were left out so far."""
        notes = [withheld(self.withheld)] if self.withheld else []
        if self.ignored:
            left = plural(self.ignored, "entry", "entries")
            notes.append(f"{left} left out, as .gitignore says or in .git; name the directory to look into it.")
        if self.unreadable:
            notes.append(f"{plural(self.unreadable, 'directory', 'directories')} could not be read.")
        return notes

    def _is_own(self, entry: Entry) -> bool:
        own = self._files.own
        return bool(own) and any(is_below(entry.path.split("/"), place) for place in own)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries, directories before their contents."""
        chain = self._above() if self._gitignore else ()
        stack = deque(self._children(self._start, chain, self._files.listdir(self._start, sizes=self._listing)))
        while stack:
            entry, rules = stack.popleft() if self._listing else stack.pop()
            yield entry
            if entry.kind != "dir" or (self._enter is not None and not self._enter(entry.path)):
                continue
            if rules is None:
                self.ignored += 1
                continue
            try:
                listed = self._files.listdir(entry.path, sizes=self._listing)
            except ToolError:
                self.unreadable += 1
                continue
            stack += self._children(entry.path, rules, listed)

    def _children(self, path: str, chain: _Chain, listed: list[Entry]) -> _Children:
        """Return a directory's entries and the rules for their contents, last first."""
        if self._gitignore and any(_name(entry) == ".gitignore" and entry.kind == "file" for entry in listed):
            chain = (*chain, *self._rules(path, _join(path, ".gitignore")))
        kept: _Children = []
        for entry in listed:
            internal = is_internal(_name(entry))
            if (internal and not (self._listing and _name(entry) == ".git")) or self._is_own(entry):
                continue
            if self._hidden is not None and self._hidden(entry.path):
                self.withheld += 1
                continue
            ignored = internal or (bool(chain) and _ignored(entry.path, entry.kind == "dir", chain))
            if ignored and not self._listing:
                self.ignored += 1
                continue
            kept.append((entry, None if ignored else chain))
        kept.sort(key=lambda item: item[0].path + "/" * (item[0].kind == "dir"), reverse=True)
        return kept

    def _above(self) -> _Chain:
        chain = self._rules(".", ".git/info/exclude")
        if self._start == ".":
            return chain
        parts = self._start.split("/")
        for depth in range(len(parts)):
            above = "/".join(parts[:depth]) or "."
            chain = (*chain, *self._rules(above, _join(above, ".gitignore")))
            if _ignored("/".join(parts[: depth + 1]), True, chain):
                return ()
        return chain

    def _rules(self, directory: str, path: str) -> _Chain:
        try:
            text = self._files.read_bytes(path, _LONGEST_IGNORE_FILE).decode("utf-8", "replace")
        except ToolError:  # missing, or not a readable file: no rules
            return ()
        return (_Rules("" if directory == "." else directory + "/", _parse(text.splitlines())),)


def withheld(count: int) -> str:
    """Return the note on entries that permission rules leave out; empty if there are no such entries."""
    return f"{plural(count, 'path')} left out by permission rules." if count else ""


def missing(files: Beneath, path: str, hidden: Callable[[str], bool]) -> ToolError:
    """Return the error for a missing path, with the closest names that exist and are not hidden."""
    wanted = files.locate(path)
    near = [one_line(path) for path in _near(files, wanted, hidden)]  # a name may have bytes that are no UTF-8
    hint = f" Did you mean {', '.join(near)}?" if near else " Use ls or glob to see what there is."
    return ToolError(f"There is no {one_line(wanted)}.{hint}", data={"code": "missing", "near": near})


@contextmanager
def suggesting(files: Beneath, path: str, hidden: Callable[[str], bool]) -> Generator[None]:
    """Add the closest names to the error for a missing path."""
    try:
        yield
    except ToolError as error:
        if error.data.get("code") == "missing":
            raise missing(files, path, hidden) from None
        raise


def _near(files: Beneath, wanted: str, hidden: Callable[[str], bool]) -> list[str]:
    """Return paths whose last name is the same or close, those in the wanted directory first."""
    import difflib  # only a wrong name pays for it

    by_name = dict[str, list[str]]()
    for entry in itertools.islice(Walk(files, hidden=hidden), _LOOKED_AT):
        by_name.setdefault(entry.path.rpartition("/")[2].casefold(), []).append(entry.path)
    directory, _, name = wanted.rpartition("/")
    close = difflib.get_close_matches(name.casefold(), by_name, n=_SUGGESTED, cutoff=0.6)
    found = [path for key in close for path in by_name[key]]
    return sorted(found, key=lambda path: path.rpartition("/")[0] != directory)[:_SUGGESTED]


def _parse(lines: list[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # 20 ms, and only a workspace with ignore rules pays them

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git skips a pattern that it cannot read; so do we, line by line
        good = list[str]()
        for line in lines:
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:
                continue
            good.append(line)
        return GitIgnoreSpec.from_lines(good)


def _ignored(path: str, is_directory: bool, chain: _Chain) -> bool:
    name = path + "/" if is_directory else path
    for rules in reversed(chain):  # the nearest file decides
        if (verdict := rules.verdict(name)) is not None:
            return verdict
    return False


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _join(directory: str, name: str) -> str:
    return name if directory == "." else f"{directory}/{name}"
