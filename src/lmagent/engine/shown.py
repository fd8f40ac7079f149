"""Shown: the files whose lines a command's output contains.

`read` names the file that it shows. `cat`, `sed`, `grep` and Python do not: a file counts as shown if the call or its
output names it, and the output contains a line of it. A missed file costs one confirmation, no more.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from lmagent.core.tool import ToolOutput

NAMED = 2000
"""Words that are tried as paths, from the call and from its output each."""

FILES = 20
"""Cap on the files that an output shows."""

LARGEST = 256 << 10
"""Larger files, in bytes, are not compared."""

_LINE = 4  # characters of a line that is not in every file
_WORD = re.compile(r"[^\s\"'`\\,;:()\[\]{}<>|&=*?]+")
_NUMBER = re.compile(r"^(?:[^\s:]+:)?\s*\d+[:\t│|-]\s*|^[-+ ]")
_BREAK = re.compile(r"\r?\n|\\n")


def files_in(workspace: Path, arguments: str, output: ToolOutput) -> dict[str, str]:
    """Return the files that an output shows, with the SHA-256 of their contents.

    `arguments` is the call's JSON text.
    """
    lines = {line.strip(" \t'\"") for line in _BREAK.split(output.content)}
    lines |= {_NUMBER.sub("", line).strip() for line in lines}
    found: dict[str, str] = {}
    for name in dict.fromkeys(_names(workspace, arguments, output)):
        content = _content(workspace / name)
        same = lines & {line.strip() for line in content.decode("utf-8", "replace").splitlines()}
        if len(found) < FILES and any(len(line) >= _LINE for line in same):
            found[name] = hashlib.sha256(content).hexdigest()
    return found


def _names(workspace: Path, arguments: str, output: ToolOutput) -> Iterator[str]:
    """Return the paths of files, relative to the workspace, that the call or its output names."""
    folders = {"", output.data.get("shell", {}).get("cwd", "")}
    for text in (arguments, output.content):
        words = dict.fromkeys(_WORD.findall(text))
        for word, folder in product(islice(words, NAMED), folders):
            inside = word.removeprefix(f"{workspace}/").removeprefix("/workspace/")
            name = os.path.normpath(os.path.join(folder, inside))
            if not name.startswith(("/", "../")) and os.path.isfile(workspace / name):
                yield name


def _content(path: Path) -> bytes:
    """Return the content of a regular file that is not too large, else nothing."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            return file.read(LARGEST) if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST else b""
    except OSError:
        return b""
