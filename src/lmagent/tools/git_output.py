"""Parses git's output and summarises it.

`git status --porcelain=v2 --branch -z`: the format is that of git-status(1), "Porcelain Format Version 2".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lmagent.tools.sanitize import printable
from lmagent.tools.walk import withheld

MOST = 100
"""Entries of a list that are shown."""


class GitChange(Struct, frozen=True):
    """A path that differs: `kind` is git's letter, or both letters of a conflict; `origin` is a rename's old path."""

    kind: str
    path: str
    origin: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.path, self.origin)))

    def __str__(self) -> str:
        return f"{self.kind} {f'{name(self.origin)} -> ' if self.origin else ''}{name(self.path)}"


class GitState(Struct, frozen=True):
    """The state of a repository.

    Attributes:
        branch: the current one; empty when HEAD is detached.
        commit: the commit of HEAD; empty before the first commit.
        upstream: the branch that it follows.
        ahead: commits that the upstream lacks.
        behind: commits of the upstream that the branch lacks.
        gone: the upstream does not exist.
        untracked: paths that git does not know; folders end with a slash.
        left_out: paths that permission rules hide.
    """

    branch: str = ""
    commit: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    gone: bool = False
    staged: tuple[GitChange, ...] = ()
    changed: tuple[GitChange, ...] = ()
    conflicts: tuple[GitChange, ...] = ()
    untracked: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def clean(self) -> bool:
        return not (self.staged or self.changed or self.conflicts or self.untracked)

    def without(self, hidden: Callable[[str], bool]) -> GitState:
        def seen(changes: Sequence[GitChange]) -> tuple[GitChange, ...]:
            return tuple(change for change in changes if not any(map(hidden, change.paths)))

        shown = replace(
            self,
            staged=seen(self.staged),
            changed=seen(self.changed),
            conflicts=seen(self.conflicts),
            untracked=tuple(path for path in self.untracked if not hidden(path.rstrip("/"))),
        )
        return replace(shown, left_out=len(self.every_path() - shown.every_path()))

    def every_path(self) -> frozenset[str]:
        """Return all paths of the status, the origins of renames included."""
        changes = (*self.staged, *self.changed, *self.conflicts)
        return frozenset((*(path for change in changes for path in change.paths), *self.untracked))


def parse_status(raw: bytes) -> GitState:
    headers = dict[str, str]()
    staged, changed, conflicts, untracked = list[GitChange](), list[GitChange](), list[GitChange](), list[str]()
    records = iter(raw.decode("utf-8", "surrogateescape").split("\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            headers[key] = value
        elif kind == "?":
            untracked.append(rest)
        elif kind in ("1", "2"):
            codes, *_, path = rest.split(" ", 7 if kind == "1" else 8)
            origin = next(records, "") if kind == "2" else ""
            for code, into in zip(codes, (staged, changed), strict=False):
                if code != ".":
                    into.append(GitChange(code, path, origin if code in "RC" else ""))
        elif kind == "u":
            codes, *_, path = rest.split(" ", 9)
            conflicts.append(GitChange(codes, path))
    branch, commit = headers.get("branch.head", ""), headers.get("branch.oid", "")
    ahead, _, behind = headers.get("branch.ab", "+0 -0").partition(" ")
    return GitState(
        branch="" if branch == "(detached)" else branch,
        commit="" if commit == "(initial)" else commit[:10],
        upstream=headers.get("branch.upstream", ""),
        ahead=int(ahead),
        behind=-int(behind or 0),
        gone="branch.upstream" in headers and "branch.ab" not in headers,
        staged=tuple(staged),
        changed=tuple(changed),
        conflicts=tuple(conflicts),
        untracked=tuple(untracked),
    )


def describe(status: GitState) -> str:
    parts = [_where(status) + (", clean" if status.clean and not status.left_out else "")]
    parts += lists(status)
    if status.left_out:
        parts.append(f"({withheld(status.left_out)})")
    return "\n".join(parts)


def lists(status: GitState) -> list[str]:
    titled: tuple[tuple[str, Iterable[object], int], ...] = (
        ("conflicts", status.conflicts, len(status.conflicts)),
        ("staged", status.staged, len(status.staged)),
        ("changed, not staged", status.changed, len(status.changed)),
        ("untracked", map(name, status.untracked), len(status.untracked)),
    )
    return [listed(title, list(map(str, entries))) for title, entries, count in titled if count]


def listed(title: str, entries: Sequence[str]) -> str:
    shown = [f"  {entry}" for entry in entries[:MOST]]
    if len(entries) > MOST:
        shown.append(f"  … and {len(entries) - MOST} more")
    return "\n".join([f"{title} ({len(entries)}):", *shown])


def name(path: str) -> str:
    """Return a path on one line, quoted if it could be taken for something else."""
    plain = printable(path) == path and not any(char in path for char in '\n\t"\\')
    if plain and path == path.strip():
        return path
    import json  # few paths need quotes

    return json.dumps(path, ensure_ascii=not _writable(path))


def _writable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return printable(path.replace("\n", "").replace("\t", "")) == path.replace("\n", "").replace("\t", "")


def _where(status: GitState) -> str:
    at = f"branch {name(status.branch)}" if status.branch else f"detached HEAD at {status.commit}"
    if not status.commit:
        at += ", no commits yet"
    if not status.upstream:
        return at
    if status.gone:
        return f"{at} ({name(status.upstream)} is gone)"
    apart = [f"{word} {count}" for word, count in (("ahead", status.ahead), ("behind", status.behind)) if count]
    return f"{at} ({' and '.join(apart) or 'level with'}{' of' if apart else ''} {name(status.upstream)})"


def diff_text(raw: bytes) -> str:
    """Return a diff as text, with carriage returns visible where old and new line ends differ."""
    text = raw.decode("utf-8", "replace")
    if "\r" in text:
        ends = {line.endswith("\r") for line in text.split("\n") if line[:1] in ("+", "-")}
        text = text.replace("\r\n", "\\r\n" if len(ends) > 1 else "\n")
    return printable(text)
