"""Manifests: what servers offered the last time, so that a session knows their tools before any server runs.

They are in `mcp/manifests/WORKSPACE-NAME-KEY.json` of the user's data folder, which only the user can read.
"""

from __future__ import annotations

from binascii import crc32
from pathlib import Path
from urllib.parse import quote

import msgspec

from lmagent.config.files import write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError
from lmagent.mcp.spec import McpManifest, ServerSpec

_MOST = 8_000_000
"""Bytes; a larger manifest is not kept."""


def load_manifest(data: Path, workspace: Path, spec: ServerSpec) -> McpManifest | None:
    """Return the kept manifest of a server; None if nothing is kept that can be read."""
    path = _file(data, workspace, spec)
    try:
        content = path.read_bytes() if path.stat().st_size <= _MOST else b""
        return decode_json(content, McpManifest)
    except (OSError, msgspec.DecodeError):
        return None  # the server is asked anew


def keep_manifest(data: Path, workspace: Path, spec: ServerSpec, manifest: McpManifest) -> str:
    """Keep the manifest of a server. Return why that failed; empty if it did not."""
    text = msgspec.json.encode(manifest).decode()
    if len(text) > _MOST:
        return f"its manifest is larger than {_MOST:,} bytes, and is not kept"
    try:
        write_private(_file(data, workspace, spec), text, sync=False)
    except ConfigError as error:
        return error.message
    return ""


def _file(data: Path, workspace: Path, spec: ServerSpec) -> Path:
    """Return the file of a manifest; a spec that was changed has another one.

    A checksum is enough, since it tells apart only versions of one entry; `hashlib` would load OpenSSL.
    """
    key = msgspec.json.encode((spec.name, spec.command, spec.cwd, spec.url, spec.needs, sorted(spec.env)))
    name = f"{quote(bytes(workspace), safe='')[-150:]}-{quote(spec.name, safe='')[-64:]}-{crc32(key):08x}.json"
    return data / "mcp" / "manifests" / name
