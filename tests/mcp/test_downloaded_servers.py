"""Servers that npx downloads: only from the registry that the user's npm is configured with, and only if allowed."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from mcp_kit import Opened, QuietHandler, Watcher, listening, run

from lmagent.core.errors import ToolError
from lmagent.mcp.spec import Needs, ServerSpec
from lmagent.sandbox.packages import find_registries

SERVER = """#!/usr/bin/env node
const lines = require('readline').createInterface({ input: process.stdin });
const answers = {
  initialize: {
    protocolVersion: '2025-06-18', serverInfo: { name: 'tiny', version: '1' }, capabilities: { tools: {} },
  },
  'tools/list': { tools: [{ name: 'where', inputSchema: { type: 'object' } }] },
  'tools/call': { content: [{ type: 'text', text: __dirname }] },
};
lines.on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method] ? { result: answers[method] } : { error: { code: -32601, message: 'no' } };
  console.log(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
});
"""

pytestmark = pytest.mark.skipif(shutil.which("npx") is None, reason="npm is not installed")


def _tarball() -> bytes:
    about = {"name": "tiny-mcp", "version": "1.0.0", "bin": {"tiny-mcp": "server.js"}}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (("package/package.json", json.dumps(about)), ("package/server.js", SERVER)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


@contextmanager
def registry() -> Generator[tuple[str, list[str]]]:
    """A registry of npm with one package; yields its address and the paths that were asked for."""
    asked: list[str] = []
    tarball = _tarball()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            place = f"http://127.0.0.1:{self.server.server_address[1]}"  # type: ignore[attr-defined]
            digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
            version = {
                "name": "tiny-mcp",
                "version": "1.0.0",
                "bin": {"tiny-mcp": "server.js"},
                "dist": {"tarball": f"{place}/tiny-mcp.tgz", "integrity": f"sha512-{digest}"},
            }
            about = {"name": "tiny-mcp", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            body = tarball if self.path.endswith(".tgz") else json.dumps(about).encode()
            self.answer(200, body)

    with listening(Handler) as address:
        yield address, asked


def test_npx_downloads_a_server_into_its_home_once(opened: Opened) -> None:
    with registry() as (url, asked):
        opened.request = type(opened.request)(env={**os.environ, "npm_config_registry": url})
        spec = ServerSpec("tiny", ("npx", "-y", "tiny-mcp"), needs=Needs(network=("packages",)), start_timeout=60)

        async def work() -> None:
            for _ in range(2):
                servers = opened.servers(spec)
                result = await servers.call("tiny", "where", {}, Watcher())
                assert result.parts[0].text.startswith("/home/agent/.npm/_npx/")
                assert servers.states()[0].confinement == "sandbox, network: packages"
                await servers.aclose()

        run(work)
        assert asked.count("/tiny-mcp.tgz") == 1


def test_npx_without_a_registry_says_what_to_add_to_the_entry(opened: Opened) -> None:
    spec = ServerSpec("tiny", ("npx", "-y", "tiny-mcp"), {"npm_config_fetch_retries": "0"}, start_timeout=60)
    servers = opened.servers(spec)

    async def work() -> None:
        with pytest.raises(ToolError, match='add "network": \\["packages"\\] to its entry'):
            await servers.ready("tiny")

    run(work)


def test_a_registry_is_asked_of_the_users_programs_and_not_of_the_workspace(opened: Opened) -> None:
    (opened.workspace / ".npmrc").write_text("registry=http://127.0.0.1:1/\n")
    env = {**os.environ, "npm_config_registry": "http://127.0.0.1:4873/npm/", "PIP_INDEX_URL": "http://127.0.0.1:1/pip"}
    assert find_registries(env, opened.workspace, "npx").hosts == ("127.0.0.1:4873",)
    assert find_registries(env, opened.workspace, "uvx").env == {
        "PIP_INDEX_URL": "http://127.0.0.1:1/pip",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:1/pip",
    }
    assert find_registries({"HOME": str(opened.workspace / "none"), "PATH": ""}, opened.workspace, "npx").hosts == ()
