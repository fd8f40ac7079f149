"""Shown: the files whose lines the output of a command holds.

`read` says itself which file it shows. `cat`, `sed`, `grep` and Python do not: a file counts as shown by them where the
call or its output names it, and the output has a line of it. What is missed costs one confirmation, no more.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmagent.core.tool import ToolOutput

NAMED = 200
"""Names that are looked up, of the call and of its output each."""

FILES = 20
"""Files that are compared."""

LARGEST = 256 << 10
"""Bytes of a file that is compared."""

_LINE = 4  # characters of a line that is not in every file
_NAME = re.compile(r"[^\s\"'`\\,;:()\[\]{}<>|&=*?]+")
_NUMBER = re.compile(r"^(?:[^\s:]+:)?\s*\d+[:\t│|-]\s*|^[-+ ]")
_BREAK = re.compile(r"\r?\n|\\n")


def files_in(workspace: Path, arguments: str, output: ToolOutput) -> dict[str, str]:
    """The files that an output shows, with the SHA-256 of their contents.

    Args:
        workspace: the folder.
        arguments: the call's arguments, as JSON text.
        output: what it returned.
    """
    lines = {line.strip(" \t'\"") for line in _BREAK.split(output.content)}
    lines |= {_NUMBER.sub("", line).strip() for line in lines}
    found: dict[str, str] = {}
    for name in _names(workspace, arguments, output):
        content = _content(workspace / name)
        if content and _has_a_line(content, lines):
            import hashlib

            found[name] = hashlib.sha256(content).hexdigest()
        if len(found) >= FILES:
            break
    return found


def _names(workspace: Path, arguments: str, output: ToolOutput) -> Iterator[str]:
    """Paths of files, relative to the workspace, that the call or its output names."""
    folders = dict.fromkeys(("", _folder(output.data)))
    done: set[str] = set()
    for text in (arguments, output.content):
        words = dict.fromkeys(found[0] for found in _NAME.finditer(text))
        for word in [word for word in words if "." in word or "/" in word or text is arguments][:NAMED]:
            inside = word.removeprefix(f"{workspace}/").removeprefix("/workspace/")
            for folder in folders:
                name = os.path.normpath(os.path.join(folder, inside))
                if name not in done and not name.startswith(("/", "../")) and os.path.isfile(workspace / name):
                    done.add(name)
                    yield name


def _folder(data: dict[str, Any]) -> str:
    """The folder that a shell ended in."""
    state = data.get("shell")
    return str(state.get("cwd", "")) if isinstance(state, dict) else ""  # type: ignore[reportUnknownMemberType]


def _content(path: Path) -> bytes:
    """The content of a regular file that is not too long; nothing of anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return b""
        return os.read(descriptor, LARGEST)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _has_a_line(content: bytes, lines: set[str]) -> bool:
    own = {line.strip() for line in content.decode("utf-8", "replace").splitlines()} - {""}
    telling = {line for line in own if len(line) >= _LINE} or own
    return not telling.isdisjoint(lines)
