"""`lmagent acp` as a process, and an editor of the protocol's own library that talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError, connect_to_agent
from acp.schema import ClientCapabilities, FileSystemCapabilities
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "acp"
LIMIT = 60.0


def sdk() -> Path:
    """Return the folder of the protocol's official npm package; it is installed once."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not on this machine: the protocol's schema and its npm client are not tested")
    CACHE.mkdir(parents=True, exist_ok=True)
    package = CACHE / "node_modules" / "@agentclientprotocol" / "sdk"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (package / "package.json").exists():
            command = [
                "npm",
                "install",
                "--prefix",
                str(CACHE),
                "--no-audit",
                "--no-fund",
                "@agentclientprotocol/sdk@2",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode:
                pytest.skip(f"the protocol's npm package cannot be installed: {done.stderr[-300:]}")
    return package


class Schema:
    """The published JSON schema of the protocol: the bodies of each method."""

    def __init__(self) -> None:
        self._whole = json.loads((sdk() / "schema" / "v1" / "schema.json").read_text())
        self._validators: dict[str, Draft202012Validator] = {}

    def check(self, method: str, kind: str, body: Any) -> None:
        """Raise if a body is not what the schema allows; `kind` is Request, Response or Notification."""
        names = [
            name
            for name, found in self._whole["$defs"].items()
            if found.get("x-method") == method and name.endswith(kind)
        ]
        assert names, f"the schema has no {kind} of {method}"
        schema = {"$ref": f"#/$defs/{names[0]}", "$defs": self._whole["$defs"]}
        validator = self._validators.setdefault(names[0], Draft202012Validator(schema))
        faults = [f"{method} {kind}: {error.json_path}: {error.message[:300]}" for error in validator.iter_errors(body)]
        assert not faults, "\n".join(faults)

    def check_all(self, messages: list[tuple[str, dict[str, Any]]]) -> int:
        """Check all messages of a connection, in both directions; return how many there were."""
        asked: dict[tuple[str, Any], str] = {}
        for direction, message in messages:
            other = "outgoing" if direction == "incoming" else "incoming"
            if "method" in message and "id" in message:
                asked[direction, message["id"]] = message["method"]
                self.check(message["method"], "Request", message.get("params"))
            elif "method" in message:
                self.check(message["method"], "Notification", message.get("params"))
            elif "result" in message:
                self.check(asked[other, message["id"]], "Response", message["result"])
        return len(messages)


class Editor:
    """An editor: it keeps what it gets, answers questions by `choose`, and has buffers by path."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[Any, list[Any]]] = []
        self.buffers: dict[str, str] = {}
        self.choose: Callable[[Any, list[Any]], Awaitable[str]] = self._allow
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.news = asyncio.Event()

    async def _allow(self, call: Any, options: list[Any]) -> str:
        return "once"

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.news.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.asked.append((tool_call, options))
        self.news.set()
        chosen = await self.choose(tool_call, options)
        return {"outcome": {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}}

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return {"content": self.buffers[path]}

    def see(self, event: Any) -> None:
        self.messages.append((event.direction.value, event.message))

    # --- what it got ------------------------------------------------------------------------------------------------

    def of(self, kind: str, session: str = "") -> list[Any]:
        return [update for id, update in self.updates if update.session_update == kind and session in ("", id)]

    def text(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        return "".join(update.content.text for update in self.of(kind, session))

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT):
            while not true():
                self.news.clear()
                await self.news.wait()


class Program:
    """`lmagent acp` in a home folder of its own, with a workspace."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.home, self.workspace, self.base_url = folder / "home", folder / "workspace", base_url
        self.home.mkdir(parents=True)
        self.workspace.mkdir()
        (self.workspace / "a.txt").write_text("alpha\nbeta\n")
        own = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG", "AGENT"))}
        self.env = {**own, "HOME": str(self.home), "LLM_RETRY_DELAY": "0", "LLM_MAX_RETRIES": "1"}

    def command(self, *more: str) -> list[str]:
        server = ["--base-url", self.base_url] if self.base_url else []
        return [sys.executable, "-m", "lmagent", "acp", *server, *more]

    async def start(self, *more: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *self.command(*more), stdin=pipe, stdout=pipe, stderr=pipe, env=self.env, cwd=self.home, limit=1 << 26
        )

    @contextlib.asynccontextmanager
    async def editor(self, *more: str, reads: bool = False) -> AsyncGenerator[tuple[Editor, Any]]:
        """Start the program with an editor that has said hello; at the end the editor closes the connection."""
        process = await self.start(*more)
        assert process.stdin is not None
        assert process.stderr is not None
        editor = Editor(process)
        agent = connect_to_agent(
            cast("Any", editor), process.stdin, process.stdout, use_unstable_protocol=True, observers=[editor.see]
        )
        try:
            fs = FileSystemCapabilities(read_text_file=reads, write_text_file=False)
            await agent.initialize(protocol_version=1, client_capabilities=ClientCapabilities(fs=fs, terminal=False))
            yield editor, agent
        finally:
            if process.returncode is None:
                process.stdin.close()
            errors = await asyncio.wait_for(process.stderr.read(), LIMIT)
            code = await asyncio.wait_for(process.wait(), LIMIT)
            with contextlib.suppress(ConnectionError):  # of an answer that was still on its way
                await agent.close()
            assert "Traceback" not in errors.decode(), errors.decode()
            assert code in (0, -15, 143), errors.decode()


def events(workspace: Path, session: str) -> list[dict[str, Any]]:
    log = workspace / ".lmagent" / "sessions" / session / "events.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def begun(request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a request whose answer is awaited later."""
    return asyncio.get_running_loop().create_task(request)
