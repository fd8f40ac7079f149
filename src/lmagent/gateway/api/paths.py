"""Paths: files of the workspace for the page, opened beneath it. Links out of it and lmagent's own files are refused.

Names that are not UTF-8 cannot be in JSON. Their bytes are shown as `\\xe9`, and a path with such text means the file
with those bytes, unless a file really has the text as its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from lmagent.core.errors import ToolError
from lmagent.gateway.http.errors import Refusal
from lmagent.tools.beneath import Beneath

T = TypeVar("T")

_ODD = re.compile("[\udc80-\udcff]")
_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")

_STATUSES = {
    "missing": (404, "not_found"),
    "path": (403, "outside"),
    "protected": (403, "protected"),
    "permission": (403, "unreadable"),
    "directory": (400, "a_folder"),
    "kind": (400, "no_file"),
}


def shown(name: str) -> str:
    """Return a name or path of the disk in a form for JSON."""
    text = _ODD.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", name)
    return text.encode("utf-8", "replace").decode()


def meant(path: str) -> str:
    """Return the path on disk of a shown path."""
    return _ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), path)


async def beneath(workspace: Path, path: str, act: Callable[[Beneath, str], T]) -> T:
    """Run `act` on a path of the workspace, in a thread.

    Args:
        path: relative to the workspace, as shown; empty for the workspace itself.
        act: receives the open workspace and the path on disk.

    Raises:
        Refusal: the file does not exist, is outside, is lmagent's own, or cannot be read.
    """
    return await to_thread.run_sync(_at, workspace, path, act)


def _at(workspace: Path, path: str, act: Callable[[Beneath, str], T]) -> T:
    if path.startswith("/"):
        raise Refusal(403, "outside", "the path is not relative to the workspace", fix="GET /api/files lists it")
    named = f"./{path}"  # the name may begin with ~
    try:
        with Beneath(workspace) as files:
            try:
                return act(files, named)
            except ToolError as error:
                other = meant(named)
                if error.data.get("code") != "missing" or other == named:
                    raise
                return act(files, other)
    except ToolError as error:
        status, code = _STATUSES.get(str(error.data.get("code")), (400, "unreadable"))
        raise Refusal(
            status, code, error.message.removeprefix("./"), fix="GET /api/files lists what there is"
        ) from None


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Return up to `size` bytes from `offset` of an open file."""
    pieces = list[bytes]()
    while size > 0 and (piece := os.pread(descriptor, size, offset)):
        pieces.append(piece)
        offset, size = offset + len(piece), size - len(piece)
    return b"".join(pieces)
