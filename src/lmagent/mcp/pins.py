"""Pins: the description and schema that each tool had when the user first allowed it; a changed one asks again.

A server may describe a harmless tool, and another once it is allowed. The texts are kept in the user's data folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from lmagent.config.files import MAX_BYTES, read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, StoreError, ToolError
from lmagent.core.tool import Question, ToolContext
from lmagent.mcp.spec import McpTool, ServerSpec
from lmagent.store.lock import locked
from lmagent.tools.diff import unified
from lmagent.tools.sanitize import one_line, visible

KEPT = 20_000
"""Characters of a description and schema that are kept to be shown; the digest covers all of them."""

_LARGEST = 900_000
"""Bytes of the file; texts beyond that are forgotten, and their digests stay."""

PATIENCE = 2.0
"""Seconds to wait for another process that writes the file."""


class Pin(Struct, frozen=True):
    """A tool as it was allowed."""

    sha256: str
    text: str = ""


class _Pins(Struct):
    """The pins by server and tool."""

    servers: dict[str, dict[str, Pin]] = field(default_factory=dict[str, dict[str, Pin]])

    def of(self, server: str, name: str) -> Pin | None:
        return self.servers.get(server, {}).get(name.lower())


class Pins:
    """The pins of all servers of a user; `workspace` tells the servers of different folders apart."""

    def __init__(self, data: Path, workspace: Path) -> None:
        self._file = data / "mcp" / "tools.json"
        self._workspace = workspace

    async def check(
        self, spec: ServerSpec, name: str, shown: McpTool | None, tool: McpTool, context: ToolContext
    ) -> None:
        """Pin a tool at its first call; ask the user if it has changed since, or since it was `shown`. `name` is ours
        for it, by which rules allow it: a tool that the server gives another name counts as changed.

        Raises ToolError: the user does not allow the changed tool. Raises ConfigError: the file is damaged, or cannot
        be written; without a pin, a later change would not be noticed.
        """
        server = self._key(spec)
        now, known = pin_of(tool), self._load().of(server, name)
        if known is not None and known.sha256 == now.sha256:
            return
        before = known if known is not None or shown is None else pin_of(shown)
        if before is not None and before.sha256 != now.sha256:
            answer = await context.ask(_question(spec.name, name, before, now))
            if not answer.approved:
                raise _denied(spec.name, name, attended=answer.attended)
        self._keep(server, name, known, now)

    def _keep(self, server: str, name: str, known: Pin | None, now: Pin) -> None:
        """Write a pin, unless another process has changed it meanwhile."""
        lock = self._file.with_suffix(".lock")
        busy = f"another process keeps the list of known MCP tools locked, by {lock}"
        try:
            with locked(lock, busy, patience=PATIENCE):
                pins = self._load()
                if pins.of(server, name) != known:
                    raise ToolError(f"{name} was allowed elsewhere at the same time. It was not run; call it again.")
                pins.servers.setdefault(server, {})[name.lower()] = now
                self._save(pins)
        except StoreError as error:
            raise ConfigError(error.message, fix=f"check the folder: ls -ld {lock.parent}") from error

    def changed(self, spec: ServerSpec, tools: Mapping[str, McpTool]) -> set[str]:
        """Return which of a server's tools, by our names, have changed since the user allowed them."""
        known = self._load().servers.get(self._key(spec), {})
        return {
            name
            for name, tool in tools.items()
            if (pin := known.get(name.lower())) is not None and pin.sha256 != pin_of(tool).sha256
        }

    def _key(self, spec: ServerSpec) -> str:
        return spec.name if spec.scope == "user" else f"{spec.name} in {self._workspace}"

    def _load(self) -> _Pins:
        content = read_small(self._file)
        if content is None:
            return _Pins()
        try:
            return decode_json(content, _Pins)
        except msgspec.DecodeError as error:
            fix = f"delete it (rm {self._file}): each tool then counts as new"
            raise ConfigError(f"the list of known MCP tools, {self._file}, is damaged: {error}", fix=fix) from error

    def _save(self, pins: _Pins) -> None:
        text = msgspec.json.encode(pins).decode()
        if len(text.encode()) > _LARGEST:
            bare = {
                server: {tool: Pin(pin.sha256) for tool, pin in tools.items()} for server, tools in pins.servers.items()
            }
            text = msgspec.json.encode(_Pins(bare)).decode()
        if len(text) > MAX_BYTES:
            fix = f"delete it (rm {self._file}): each tool then counts as new"
            raise ConfigError(f"the list of known MCP tools, {self._file}, is full", fix=fix)
        write_private(self._file, text)


def pin_of(tool: McpTool) -> Pin:
    """Return the pin of a tool: everything that a model may read about it."""
    whole = {"name": tool.name, "title": tool.title, "description": tool.description, "schema": tool.schema}
    encoded = msgspec.json.encode(whole, order="sorted")
    text = f"{tool.title}\n{tool.description}".strip()
    digest, shown = hashlib.sha256(encoded).hexdigest(), visible(f"{text}\n\n{_lines(tool.schema)}")
    more = f"\n[… {len(shown) - KEPT:,} more characters, SHA-256 {digest[:12]}]" if len(shown) > KEPT else ""
    return Pin(digest, shown[:KEPT] + more)


def _lines(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode()


def _denied(server: str, name: str, *, attended: bool) -> ToolError:
    why = f"the server changed it{'' if attended else ', and no user was there to allow the change'}"
    text = (
        f"Denied: the server {server} describes {name} differently than when it was shown or allowed, and the change "
        "is not allowed. It was not run. Do what you can without it."
    )
    return ToolError(text, data={"code": "denied", "summary": name, "why": why})


def _question(server: str, name: str, known: Pin, now: Pin) -> Question:
    """Return the question; the text of the server is in the lines of a diff, each with a sign in front."""
    diff = unified(f"{name}, as {one_line(server, 60)} describes it", known.text or "(not kept)", now.text)
    return Question(
        id="changed",
        tool=name,
        summary=f"{name}: its server describes it differently than when it was shown or allowed",
        preview=diff,
        reason="a changed description may make the model do other things than you allowed",
    )
