"""Checks, before a command, that git's protected paths are mounted where they were found.

Bubblewrap follows links, and a command that still runs could have replaced a folder on the way to a protected path by a
link since our look: then the mount has another source or place. So each protected path must be a mount point, with the
file or folder that the mount above it has there.
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
"""Uses shell builtins only: it runs before every command of a workspace with repositories in its folders."""


def checked(workspace: Path, protected: Collection[Path]) -> list[str]:
    """Return the prefix of a command; empty if no folder on the way can be moved, since each is mounted itself."""
    root, paths = str(workspace), sorted({str(path) for path in protected})
    fixed = {root, *paths}
    if root != os.path.realpath(root) or all(os.path.dirname(path) in fixed for path in paths):
        return []
    return ["/bin/sh", "-c", _SCRIPT, "sh", MOVED, str(len(paths)), *map(as_listed, paths)]


def as_listed(path: str) -> str:
    """Return a path in the spelling of the kernel's list of mounts."""
    return re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", path)
