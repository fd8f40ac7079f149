"""Files: the agent's character (soul), the user, and the project's instructions. Read once a program.

.lmagent/.soul.md, .soul.md, SOUL.md    the agent's character; the first that exists counts
USER.md                                 about the user
.lmagent.md, AGENTS.md, CLAUDE.md       the project's instructions; the first that exists counts
*/AGENTS.md, */CLAUDE.md                those of folders: only named, to be read before working there
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from lmagent.tools.paths import Parts
from lmagent.tools.plain import NotPlain, read_plain

LARGE = 4_000  # bytes from which a file is warned about: a local model reads each of them before its first word
LARGEST = 16_000  # bytes above which a file is not sent

KINDS: dict[str, tuple[Parts, ...]] = {
    "Character": ((".lmagent", ".soul.md"), (".soul.md",), ("SOUL.md",)),
    "About the user": (("USER.md",),),
    "Project instructions": ((".lmagent.md",), ("AGENTS.md",), ("CLAUDE.md",)),
}
SOUL = KINDS["Character"]

NESTED = ("AGENTS.md", "CLAUDE.md")
DEEPEST = 3  # levels of folders in which nested instructions are looked for
FOLDERS = 300  # folders that are looked into
NAMED = 10  # nested files that are named to the model

_PASSED_OVER = frozenset({"node_modules", "vendor", "venv", "target", "build", "dist", "__pycache__"})


class IdentityFile(Struct, frozen=True):
    """A file that was found.

    Attributes:
        kind: its heading.
        name: its path in the workspace.
        text: the part that is sent; empty if it is refused.
        size: bytes.
        refused: why it is not sent; empty if it is.
    """

    kind: str
    name: str
    text: str
    size: int
    refused: str = ""

    @property
    def advice(self) -> str:
        """Return the line for the user about a file that is refused or large; empty for others."""
        if self.refused:
            return f"{self.name} is not sent: {self.refused}"
        if self.size > LARGE:
            return f"{self.name} has {self.size:,} bytes, which each prompt begins with; a local model waits for them"
        return ""


def find_identity(workspace: Path) -> list[IdentityFile]:
    """Return the first existing file of each kind. Links and special files are refused, not opened."""
    found = list[IdentityFile]()
    for kind, candidates in KINDS.items():
        for parts in candidates:
            if (file := _read(workspace, kind, parts)) is not None:
                found.append(file)
                break
    return found


def _read(workspace: Path, kind: str, parts: Parts) -> IdentityFile | None:
    name = "/".join(parts)
    try:
        plain = read_plain(workspace, parts, LARGEST + 1)
    except NotPlain as what:
        return IdentityFile(kind, name, "", 0, f"it is {what}")
    if plain is None:
        return None
    size = len(plain.text.encode())
    if plain.more or size > LARGEST:
        return IdentityFile(kind, name, "", size, f"it has more than {LARGEST:,} bytes; shorten it, or split it")
    return IdentityFile(kind, name, plain.text.strip(), size)


def nested_instructions(workspace: Path) -> list[str]:
    """Return the paths of instructions in the folders below, nearest first; a large tree is looked at in part."""
    found, left = list[str](), FOLDERS
    level = list(_folders(workspace, ""))
    for _ in range(DEEPEST):
        below = list[str]()
        for folder in level[:left]:
            found += [f"{folder}/{name}" for name in NESTED if os.path.isfile(workspace / folder / name)][:1]
            below += _folders(workspace, folder)
        left, level = left - len(level), below
        if left <= 0:
            break
    return found


def _folders(workspace: Path, folder: str) -> Iterator[str]:
    try:
        with os.scandir(workspace / folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        if not name.startswith(".") and name not in _PASSED_OVER:
            yield f"{folder}/{name}" if folder else name
