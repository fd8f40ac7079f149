"""Worker: one GGUF model in a process of its own, served by llama.cpp.

Run as `python -m lmagent.modelserver.engine.worker`. Standard input has a `WorkerSpec`, standard output gets a `Hello`,
standard error the engine's log. Needs the extra `local` (xllamacpp).
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

from lmagent.modelserver.engine import lifeline
from lmagent.modelserver.engine.devices import missing_engine
from lmagent.modelserver.pool.machine import compute_threads
from lmagent.modelserver.spec import DEFAULT_CONTEXT, Hello, ModelSettings, WorkerSpec

PING = 15
"""Seconds of silence in a stream after which the engine sends a comment, so that clients do not take it for dead."""

PROMPT_CACHE = 1024
"""MiB of prompts that have left their slot which the engine keeps; its own default of 8 GiB could fill a machine."""

_SETTLE = 1.0
"""Seconds that the engine, which writes its log in a thread, has to come to the line that says why it failed."""

_FLASH = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}


class LoadError(Exception):
    """The model cannot be loaded; the text says why."""


def load(spec: WorkerSpec) -> Any:
    """Load the model and open its HTTP server, whose address is `listening_address`."""
    engine = _engine()
    with open(spec.model, "rb"):  # the engine's message does not name a missing file
        pass
    try:
        return engine.Server(parameters(engine, spec))
    except (RuntimeError, MemoryError, ValueError, TypeError) as error:
        time.sleep(_SETTLE)
        raise LoadError(str(error)) from error


def parameters(engine: Any, spec: WorkerSpec) -> Any:
    """Translate our settings into the engine's own."""
    settings = spec.settings
    chosen: Any = engine.CommonParams()
    chosen.model.path = spec.model
    chosen.model_alias = {spec.alias}
    chosen.n_ctx = (settings.context or DEFAULT_CONTEXT) * max(1, settings.parallel)
    chosen.n_parallel = max(1, settings.parallel)
    chosen.n_gpu_layers = settings.gpu_layers
    chosen.flash_attn_type = engine.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{_FLASH[settings.flash_attention]}"]
    chosen.cache_type_k = engine.ggml_type[f"GGML_TYPE_{settings.cache_type_k.upper()}"]
    chosen.cache_type_v = engine.ggml_type[f"GGML_TYPE_{settings.cache_type_v.upper()}"]
    chosen.cache_ram_mib = PROMPT_CACHE
    chosen.fit_params = False
    chosen.warmup = False
    chosen.use_jinja = True
    if settings.template:
        chosen.chat_template = Path(settings.template).read_text("utf-8")
    if settings.mmproj:
        chosen.mmproj.path = settings.mmproj
    if settings.embedding:
        chosen.embedding = True
    if settings.pooling:
        chosen.pooling_type = engine.llama_pooling_type[f"LLAMA_POOLING_TYPE_{settings.pooling.upper()}"]
    threads = settings.threads or compute_threads()
    _threads(chosen, threads)
    if spec.draft:
        draft = chosen.speculative.draft
        draft.mparams.path = spec.draft
        draft.n_gpu_layers = settings.gpu_layers
        _threads(draft, threads)
        chosen.speculative.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    _serving(chosen, spec.key, settings)
    return chosen


def _threads(chosen: Any, threads: int) -> None:
    """Set the threads, without polling: two polling threads on two busy cores are 50 times slower than one."""
    for part in (chosen.cpuparams, chosen.cpuparams_batch):
        part.n_threads = threads
        part.poll = 0


def _serving(chosen: Any, key: str, settings: ModelSettings) -> None:
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    chosen.api_keys = [key] if key else []
    # One for each stream and each request that waits for a slot.
    chosen.n_threads_http = 32 + 2 * max(1, settings.parallel)
    chosen.sse_ping_interval = PING
    chosen.sleep_idle_seconds = max(1, math.ceil(settings.sleep)) if settings.sleep > 0 else -1
    chosen.endpoint_slots = True
    chosen.endpoint_metrics = True
    chosen.endpoint_props = True
    chosen.ui = False


def _engine() -> Any:
    try:
        import xllamacpp  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        missing = missing_engine(error)
        raise LoadError(f"{missing.problem}; {missing.fix}") from error
    return xllamacpp


def gpu_memory(engine: Any) -> int:
    """Return the free bytes on all graphics cards that the engine sees."""
    cards = [device for device in engine.get_device_info() if "GPU" in device["type"].name]
    return sum(int(card["memory_free"]) for card in cards)


def main() -> None:
    began = time.monotonic()
    try:
        spec = lifeline.read_spec()
        lifeline.hold()
        engine = _engine()
        free = gpu_memory(engine)
        server = load(spec)
    except (LoadError, ValueError, OSError, KeyError) as error:
        lifeline.fail(f"{error}")
    gpu = max(0, free - gpu_memory(engine))
    lifeline.say(Hello(server.listening_address, os.getpid(), round(time.monotonic() - began, 3), gpu=gpu))
    lifeline.wait()


if __name__ == "__main__":
    main()
