"""Compares two states of a workspace and lists the changes between them."""

from __future__ import annotations

from collections.abc import Callable, Container

from msgspec.structs import replace

from lmagent.core.changes import Change, PathState
from lmagent.undo.names import join
from lmagent.undo.records import Record, Tree, equal_contents, state
from lmagent.undo.scan import Taken

NOT_KEPT = "its content was not kept before the call"
_NOTHING = dict[str, Record]()


Loss = Callable[[Record], str]
"""Why the earlier content of a changed file is lost; empty if it is kept."""


def differences(before: Taken, after: Taken, loss: Loss) -> list[Change]:
    """Return the changes in path order, without paths below a folder that one of the walks could not look into."""
    blind = before.blind | after.blind
    found = list[Change]()
    for folder in before.tree.keys() | after.tree.keys():
        old, new = before.tree.get(folder, _NOTHING), after.tree.get(folder, _NOTHING)
        if old is new or (blind and _is_below(folder, blind)):
            continue
        for name in old.keys() | new.keys():
            was, now = old.get(name), new.get(name)
            if was != now and (change := _change(join(folder, name), was, now, loss)) is not None:
                found.append(_with_loss(change, before.blind.get(change.path, "")))
    return sorted(found, key=lambda change: change.path)


def same_tree(one: Tree, other: Tree) -> bool:
    """Quick, since unchanged folders are shared."""
    return one.keys() == other.keys() and all(other[folder] is names for folder, names in one.items())


def _change(path: str, before: Record | None, after: Record | None, loss: Loss) -> Change | None:
    was, now = state(before), state(after)
    if was == now:  # another inode, or one more link
        return None
    lost = ""
    if before is not None and was is not None and was.kind == "file" and not _is_same_content(was, now):
        lost = loss(before)
    return Change(path, was, now, lost)


def _with_loss(change: Change, unseen: str) -> Change:
    """Mark a folder that is gone and could not be looked into: only the folder itself can be restored."""
    if not unseen or (change.after is not None and change.after.kind == "folder"):
        return change
    return replace(change, lost=f"its contents were not kept: {unseen}")


def _is_same_content(was: PathState, now: PathState | None) -> bool:
    if now is None or (was.kind, was.size) != (now.kind, now.size):
        return False
    equal = equal_contents(was.sha256, now.sha256)
    return was.mtime == now.mtime and was.sha256 == now.sha256 if equal is None else equal


def _is_below(folder: str, blind: Container[str]) -> bool:
    if folder in blind or "" in blind:
        return True
    end = folder.find("/")
    while end >= 0:
        if folder[:end] in blind:
            return True
        end = folder.find("/", end + 1)
    return False
