"""Mountcheck: what comes before a command, and sees that git's protected paths are mounted where they were found.

Bubblewrap follows links, and a command that still runs could have moved a folder on the way to a protected path since
we looked, and put a link in its place: then something else is mounted, or elsewhere. So each protected path has to be a
mount point, and what is mounted there has to be what is there in the mount above it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

MOVED = "lmagent: a folder with a repository was moved while the sandbox was made"
FAILED = 125

_SCRIPT = r"""
wrong=$1 count=$2 all='
' line='
'
shift 2
while IFS=' ' read -r _ _ device root at _; do all="$all$device $root $at$line"; done </proc/self/mountinfo
find() {
    rest=${all%" $1$line"*}
    [ "$rest" != "$all" ] && found=${rest##*"$line"}
}
while [ "$count" -gt 0 ]; do
    find "$1" || { echo "$wrong"; exit 125; }
    here=$found above=${1%/*}
    until find "$above"; do
        [ -n "$above" ] || { echo "$wrong"; exit 125; }
        above=${above%/*}
    done
    [ "$here" = "${found%/}${1#"$above"}" ] || { echo "$wrong"; exit 125; }
    count=$((count - 1))
    shift
done
exec "$@"
"""
"""Only what a shell has itself: it is run before every command of a workspace with repositories in its folders."""


def checked(workspace: Path, protected: Collection[Path]) -> list[str]:
    """What to put before a command; nothing where no folder on the way can be moved, since each is mounted itself.

    Args:
        workspace: the folder; its own place cannot be changed from inside.
        protected: what is mounted onto itself in it.
    """
    root, paths = str(workspace), sorted({str(path) for path in protected})
    fixed = {root, *paths}
    if root != os.path.realpath(root) or all(os.path.dirname(path) in fixed for path in paths):
        return []
    return ["/bin/sh", "-c", _SCRIPT, "sh", MOVED, str(len(paths)), *map(as_listed, paths)]


def as_listed(path: str) -> str:
    """A path as the kernel's list of mounts has it."""
    return re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", path)
