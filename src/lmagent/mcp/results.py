"""Results: what a server answers, as a tool's output. Its text is data from outside; images and files are saved.

The engine caps the text and keeps the whole as an artifact, as for all tools.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from lmagent.core.errors import LmagentError, ToolError
from lmagent.core.outside import framed
from lmagent.core.tool import ToolOutput
from lmagent.mcp.spec import McpResult, Part
from lmagent.tools.beneath import Beneath
from lmagent.tools.pictures import picture_of
from lmagent.tools.sanitize import one_line, printable

FOLDER = "mcp-files"
"""The folder of the workspace where images and files are saved: the tools of files and images reach it there."""

LARGEST = 20 << 20
"""Bytes of an image or file that is saved."""

FILES = 20
"""Images and files of a result that are saved."""

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
}


def output_of(server: str, result: McpResult, workspace: Path) -> ToolOutput:
    """Return the output of a call. Raises ToolError with the server's text if that reports an error."""
    text = text_of(server, result.parts, workspace)
    if result.structured is not None and not _repeats(result.structured, result.parts):
        text = "\n".join(filter(None, (text, printable(_json(result.structured)))))
    if result.is_error:
        raise ToolError(outside(server, text or "The tool failed, and the server does not say why."))
    return ToolOutput(outside(server, text or "(no output)"))


def outside(server: str, text: str) -> str:
    """Return a server's text for the model, marked as data from that server."""
    return framed(f"MCP server {server}", text)


def text_of(server: str, parts: Iterable[Part], workspace: Path) -> str:
    """Return the parts as text; images and files are saved and named."""
    lines, files = list[str](), 0
    for part in parts:
        files += bool(part.data)
        if not part.data or files <= FILES:
            lines.append(_shown(server, part, workspace))
    if files > FILES:
        lines.append(f"[{files - FILES} more images and files: not saved, {FILES} of a result are]")
    return "\n".join(filter(None, lines))


def _shown(server: str, part: Part, workspace: Path) -> str:
    text, uri = printable(part.text), one_line(part.uri, 300)
    match part.kind:
        case "text":
            return text
        case "link":
            about = f" ({one_line(part.text, 200)})" if part.text else ""
            return f"[resource {uri}{about}: mcp_resource reads it]"
        case "resource" if not part.data:
            return f"[resource {uri}]\n{text}" if uri else text
        case _:
            return " ".join(filter(None, (_saved(server, part, workspace), text)))


def _saved(server: str, part: Part, workspace: Path) -> str:
    """Save the bytes of a part in the workspace; return the line that names the file, or says why it is not there."""
    picture = picture_of(part.data)
    kind = picture.media_type if picture is not None else one_line(part.mime, 60)
    what = f"{part.kind}{f' {kind}' if kind else ''}, {len(part.data):,} bytes"
    if not part.data or len(part.data) > LARGEST:
        return f"[{what}: not saved, it is {'empty' if not part.data else 'too large'}]"
    if part.kind == "image" and picture is None:
        return f"[{what}: not saved, it is neither png, jpeg, gif nor webp]"
    try:
        name = _write(server, part.data, _SUFFIXES.get(kind, ".bin"), workspace)
    except LmagentError as fault:
        return f"[{what}: not saved, {one_line(fault.message, 200)}]"
    return f"[{what}: saved as {name}]"


def _write(server: str, data: bytes, suffix: str, workspace: Path) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", server).strip("-")[:24] or "server"
    name = f"{FOLDER}/{plain}-{hashlib.sha256(data).hexdigest()[:12]}{suffix}"
    with Beneath(workspace) as files:
        files.write_atomic(name, data)
    return name


def _repeats(structured: Any, parts: tuple[Part, ...]) -> bool:
    """Return whether the texts already say what the structured content says."""
    texts = [part.text.strip() for part in parts if part.kind == "text"]
    if any(_decoded(text) == structured for text in texts):
        return True
    values = list(cast("dict[str, Any]", structured).values()) if isinstance(structured, dict) else []
    if len(values) != 1:
        return False
    value = values[0]
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    said = [item if isinstance(item, str) else _json(item) for item in listed]
    return [text.strip() for text in said] == texts or any(_decoded(text) == value for text in texts)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ...


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
