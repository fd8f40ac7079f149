"""LlamaCppServer: a llama.cpp server whose slots really keep the beginning of their last prompt.

    with LlamaCppServer(script, context=16_384, slots=2) as server:
        ...
    assert server.kv.evictions == 0        # the main conversation has kept its slot
    print(server.kv.read, server.kv.cached)

The routes and their fields are those of llama-server (recorded from a build of 2026-10). Requests that find no free
slot wait. Progress is reported on request (`return_progress`), in batches; `speed` makes reading take time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from lmagent.testing import wire
from lmagent.testing.loopback import Pause, Received, Response, Step
from lmagent.testing.prefix import canonical
from lmagent.testing.script import Behaviour, PlainAnswer, Reply, Script, status
from testkit.servers.base import DialectServer, renamed
from testkit.servers.kv import Admission, SlotCache

_encode = msgspec.json.encode


class LlamaCppServer(DialectServer):
    """A llama.cpp server.

    Args:
        script: see `ScriptedServer`.
        context: the whole window, which the slots divide among them.
        slots: how many there are.
        batch: tokens that are read between two reports of progress.
        speed: tokens read a second; 0 takes no time.
        vision: it takes images.
        router: several models are offered and none is at first loaded; see `loads`.
        settings: see `DialectServer`.

    Attributes:
        kv: the slots, and the account of read tokens.
        loads: how often a question or a chat request loaded the model.
    """

    owner = "llamacpp"

    def __init__(
        self,
        script: Script = (),
        *,
        context: int = 8192,
        slots: int = 1,
        batch: int = 2048,
        speed: float = 0.0,
        vision: bool = False,
        router: bool = False,
        **settings: Any,
    ) -> None:
        self.kv = SlotCache(slots)
        self.loads = 0
        self._batch, self._speed = batch, speed
        self._vision, self._router = vision, router
        self._busy: dict[int, int] = {}
        self._freed = asyncio.Event()
        self._received: Received | None = None
        self._after: Callable[[Received], None] | None = settings.pop("finished", None)
        super().__init__(script, window=context // slots, finished=self._release, slots=slots, **settings)
        self.loaded = not router
        for path, answer in (("/props", self._props), ("/slots", self._slots), ("/metrics", self._metrics)):
            self.get(path, answer)
        self.get("/health", lambda _: {"status": "ok"})
        self.post("/tokenize", lambda asked: {"tokens": list(range(_size(asked.fields.get("content"))))})
        self.post("/apply-template", lambda asked: {"prompt": canonical(asked.fields).decode()})
        self.post(
            "/v1/chat/completions/input_tokens", lambda asked: {"input_tokens": len(canonical(asked.fields)) // 4}
        )

    # --- information ------------------------------------------------------------------------------------------------

    def listing(self) -> Any:
        entry: dict[str, Any] = {"id": self.model, "object": "model", "created": 0, "owned_by": self.owner}
        if self._router:
            entry["status"] = {"value": "loaded" if self.loaded else "unloaded"}
        else:
            meta = {"n_ctx": self.stated(self.window), "n_ctx_train": self.maximum, "n_params": 8_030_261_248}
            entry["meta"] = meta | {"size": 4_912_916_480, "ftype": "Q4_K - Medium"}
            entry["architecture"] = {"input_modalities": ["text", "image"] if self._vision else ["text"]}
        return {"object": "list", "data": [entry]}

    def _props(self, received: Received) -> Any:
        query = dict(parse_qsl(received.query))
        if self._router and "model" not in query:
            return {"role": "router", "build_info": "b7000-abcdef0", "max_instances": 4}
        if self._router and not self.loaded:
            if query.get("autoload") == "false":
                return status(400, {"error": {"code": 400, "message": "model is not loaded"}})
            self.loads, self.loaded = self.loads + 1, True
        props: dict[str, Any] = {
            "default_generation_settings": {"n_ctx": self.stated(self.window), "params": {"n_predict": -1}},
            "total_slots": len(self.kv.slots),
            "model_alias": self.model,
            "model_path": f"{self.model}.gguf",
            "model_ftype": "Q4_K - Medium",
            "modalities": {"vision": self._vision, "audio": False},
            "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
            "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
            "build_info": "b7000-abcdef0",
            "is_sleeping": not self.loaded,
        }
        return props

    def _slots(self, received: Received) -> Any:
        last = {row.slot: row for row in self.kv.log}
        slots: list[dict[str, Any]] = []
        for number, slot in enumerate(self.kv.slots):
            known: dict[str, Any] = {"id": number, "n_ctx": self.window, "is_processing": slot.busy}
            if row := last.get(number):
                known |= {"n_prompt_tokens": row.tokens, "n_prompt_tokens_processed": row.read}
                known["n_prompt_tokens_cache"] = row.cached
            slots.append(known)
        return slots

    def _metrics(self, received: Received) -> PlainAnswer:
        figures = {"prompt_tokens_total": self.kv.read, "prompt_tokens_cached_total": self.kv.cached}
        return status(200, "".join(f"llamacpp:{name} {value}\n" for name, value in figures.items()))

    # --- chat -------------------------------------------------------------------------------------------------------

    async def _answer(self, received: Received) -> Response:
        if received.method == "POST" and received.path.endswith("/chat/completions"):
            while not self.kv.free(_wanted(received.fields)):
                self._freed.clear()
                await self._freed.wait()
        return await super()._answer(received)

    def _release(self, received: Received) -> None:
        slot = self._busy.pop(id(received), None)
        if slot is not None:
            self.kv.release(slot)
            self._freed.set()
        if self._after is not None:
            self._after(received)

    def _load(self, received: Received) -> None:
        self.loads += not self.loaded
        self._received = received
        super()._load(received)

    def _send(self, behaviour: Behaviour, body: dict[str, Any], row: Any) -> Response:
        if row is None:  # a refusal: no slot was taken
            return super()._send(behaviour, body, row)
        cache = body.get("cache_prompt") is not False
        admitted = self.kv.admit(canonical(body), _wanted(body), cache=cache)
        self._busy[id(self._received)] = admitted.slot
        if isinstance(behaviour, PlainAnswer):
            return super()._send(behaviour, body, row)
        asked = self._asked(body, min(admitted.tokens, self.window), admitted.cached)
        return self._with_figures(behaviour, asked, admitted, progress=body.get("return_progress") is True)

    def _with_figures(self, reply: Reply, asked: wire.ServerRequest, row: Admission, *, progress: bool) -> Response:
        """Return the reply with progress before it and timings at its end."""
        silence: list[Step] = [Pause(row.read / self._speed)] if self._speed else []
        before = self._prefill(asked, row) if progress else silence
        plain = reply.stop_chunks is None and reply.stop_bytes is None and not reply.error
        if not asked.stream or not plain or self.lies.usage:
            response = wire.respond(reply, asked)
            response = renamed(response) if self.lies.usage == "wrong_field" else response
            return replace(response, steps=[*before, *_listed(response)]) if asked.stream else response
        bare = replace(reply, style=replace(reply.style, usage="never", done=False))
        response = wire.respond(bare, asked)
        made = wire.counts(reply, asked)
        last: dict[str, Any] = {"choices": [], "model": asked.model, "object": "chat.completion.chunk"}
        if asked.usage:
            last["usage"] = wire.usage_fields(made)
        last["timings"] = {"cache_n": row.cached, "prompt_n": row.read, "predicted_n": made.completion}
        return replace(response, steps=[*before, *_listed(response), _event(last), b"data: [DONE]\n\n"])

    def _prefill(self, asked: wire.ServerRequest, row: Admission) -> list[Step]:
        """Return `prompt_progress` events in llama-server's form: `processed` begins with the cached tokens."""
        steps: list[Step] = []
        done, spent = row.cached, 0.0
        while True:
            progress = {"total": row.tokens, "cache": row.cached, "processed": done, "time_ms": round(spent * 1000)}
            delta = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
            chunk = {"choices": [delta], "model": asked.model, "object": "chat.completion.chunk"}
            steps.append(_event(chunk | {"prompt_progress": progress}))
            if done >= row.tokens:
                return steps
            size = min(self._batch, row.tokens - done)
            done += size
            if self._speed:
                spent += size / self._speed
                steps.append(Pause(size / self._speed))


def _wanted(body: dict[str, Any]) -> int:
    slot = body.get("id_slot")
    return slot if isinstance(slot, int) and not isinstance(slot, bool) else -1


def _size(content: Any) -> int:
    return len(content.encode()) // 4 if isinstance(content, str) else 0


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


def _listed(response: Response) -> list[Step]:
    assert isinstance(response.steps, Sequence)
    return list(response.steps)
