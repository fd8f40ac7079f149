"""A router over real HTTP, in front of workers that a test names."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
from testkit import gguf

from lmagent.modelserver.http.guard import AccessRules
from lmagent.modelserver.http.router import Router
from lmagent.modelserver.http.serving import RouterServer, serve
from lmagent.modelserver.pool.journal import Journal
from lmagent.modelserver.spec import (
    Engine,
    LoadOptions,
    ModelEntry,
    ModelServerError,
    ModelState,
    ModelStatus,
    RunningModel,
)

WORD = {"type": "string", "maxLength": 8}
HELLO = [{"role": "user", "content": "hi"}]
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}
Call as <tool_call>{"name": "x", "arguments": {}}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML with tools, as models that call have it."""


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    fields = {"type": "object", "properties": {"path": WORD}, "required": ["path"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters or fields, **more}}


def calling_gguf(path: Path, *, more_letters: Sequence[str] = ()) -> Path:
    """The tiny random model with a template that knows calls, and with bytes that are no text of their own."""
    kept = gguf.TEMPLATE, gguf.vocabulary
    tokens, merges = gguf.vocabulary()
    gguf.TEMPLATE, gguf.vocabulary = TEMPLATE, lambda: ([*tokens, *more_letters], merges)
    try:
        return gguf.build_tiny_gguf(path)
    finally:
        gguf.TEMPLATE, gguf.vocabulary = kept


@dataclass
class Model:
    """A model of the pool; `wait` seconds pass before a lease is given, `refusal` is raised instead."""

    name: str
    url: str = ""
    engine: Engine = "llama"
    state: ModelState = "ready"
    wait: float = 0.0
    refusal: Exception | None = None
    key: str = ""
    served_as: str = ""
    active: int = 0
    leases: int = 0

    @property
    def entry(self) -> ModelEntry:
        return ModelEntry(self.name, self.engine, size=5, needed=7)


@dataclass
class SmallPool:
    """Catalogue and pool of models whose servers are there already."""

    models: list[Model]
    folder: Path = field(default_factory=Path)
    journal: Journal = field(default_factory=lambda: Journal(Path(os.devnull)))
    evictions: int = 0
    options: LoadOptions | None = None

    def entries(self) -> list[ModelEntry]:
        return [model.entry for model in self.models]

    def model(self, name: str) -> Model:
        for model in self.models:
            if model.name == name:
                return model
        raise ModelServerError(f"there is no model {name!r}", status=404, code="model_not_found", fix="pull it")

    def find(self, name: str) -> ModelEntry:
        return self.model(name).entry

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[RunningModel]:
        model = self.model(name)
        if model.wait:
            await anyio.sleep(model.wait)
        if model.refusal:
            raise model.refusal
        model.active += 1
        model.leases += 1
        try:
            yield RunningModel(model.entry, model.url, model.key, model.served_as or model.name)
        finally:
            model.active -= 1

    def statuses(self) -> list[ModelStatus]:
        return [
            ModelStatus(model.entry, model.state, active=model.active, requests=model.leases) for model in self.models
        ]

    async def load(self, name: str, options: LoadOptions | None = None) -> ModelStatus:
        self.model(name).state, self.options = "ready", options
        return ModelStatus(self.find(name), "ready", pid=1)

    async def unload(self, name: str) -> ModelStatus:
        self.model(name).state = "unloaded"
        return ModelStatus(self.find(name), "unloaded")

    def log(self, name: str) -> Path:
        return self.folder / f"{self.find(name).name}.log"


@dataclass
class Lab:
    """A router that runs."""

    port: int
    pool: SmallPool
    router: Router
    server: RouterServer

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """(status, the JSON or text of the body, headers)."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, raw, headers or {})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        value = json.loads(data) if fields.get("content-type", "").startswith("application/json") else data.decode()
        return answer.status, value, fields

    def chat(self, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        return self.ask("POST", "/v1/chat/completions", {"messages": HELLO, **fields})


def chunks(text: str) -> list[Any]:
    """The payloads of a stream, without `[DONE]`."""
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


def joined_calls(events: list[Any]) -> list[tuple[str, str]]:
    """(name, arguments) of the calls that a stream has."""
    calls: list[list[str]] = []
    for event in events:
        for choice in event.get("choices", ()):
            for piece in choice["delta"].get("tool_calls", ()):
                if piece["index"] == len(calls):
                    assert piece["id"]
                    assert piece["type"] == "function"
                    calls.append([piece["function"]["name"], ""])
                calls[piece["index"]][1] += piece["function"].get("arguments") or ""
    return [(name, arguments) for name, arguments in calls]


@contextmanager
def lab(*models: Model, rules: AccessRules | None = None, keep_alive: float = 5.0, grace: float = 2.0) -> Iterator[Lab]:
    """A router over real HTTP while the block runs."""
    pool = SmallPool(list(models))
    router = Router(pool, pool, rules, keep_alive=keep_alive)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    servers: list[RouterServer] = []

    async def main() -> None:
        await serve(router, listener, grace=grace, started=servers.append)

    thread = threading.Thread(target=anyio.run, args=(main,))
    thread.start()
    while not (servers and servers[0].started):
        thread.join(0.005)
        assert thread.is_alive()
    try:
        yield Lab(port, pool, router, servers[0])
    finally:
        servers[0].should_exit = True
        thread.join(30)
        assert not thread.is_alive()
