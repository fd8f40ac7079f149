"""Spec: the types that the parts of the model server exchange.

library ──ModelEntry──▶ pool ──WorkerSpec, a line of JSON on stdin──▶ worker ──Hello, a line on stdout──▶ pool
                         ▲                                                                                 │
router ──lease(name)─────┘◀──────────────────────────Running (address, key)────────────────────────────────┘
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from lmagent.core.errors import LmagentError

Engine = Literal["llama", "transformers", "upstream"]
"""What runs a model: the llama.cpp engine, Hugging Face's transformers, or another server that is only passed on to."""

ModelState = Literal["unloaded", "loading", "ready", "sleeping", "stopping", "quarantined"]
"""`sleeping`: the worker is there and has given its memory back; a request wakes it. `quarantined`: it crashed too
often and is not started again until the user asks for it or the pause is over."""

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings in the TOML file of a model, in the library's folder. 0 and "" mean the default."""

    # tokens of the window of one slot; 0 for the model's own, at most `DEFAULT_CONTEXT`
    context: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1  # layers on the GPU; -1 for as many as fit
    flash_attention: Literal["auto", "on", "off"] = "auto"  # "auto" where the engine finds it useful
    cache_type_k: CacheType = "f16"  # type of the cached keys and values; a quantised one takes less memory
    cache_type_v: CacheType = "f16"  # type of the cached keys and values; a quantised one takes less memory
    parallel: Annotated[int, Meta(ge=1, le=64)] = 1  # conversations that are kept and served at the same time
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0  # compute threads; 0 for one less than there are physical cores
    ttl: Seconds = 1800.0  # seconds without a request after which the worker is ended; 0 for never
    sleep: Seconds = 300.0  # seconds without a request after which the worker gives its memory back; 0 for never
    template: str = ""  # file of a chat template in Jinja that replaces the model's own
    draft: str = ""  # name of a smaller model that guesses ahead (speculative decoding)
    mmproj: str = ""  # file of the projector with which the model sees images
    embedding: bool = False  # the model makes embeddings
    pooling: Literal["", "none", "mean", "cls", "last", "rank"] = ""  # "" for the model's own way


class LoadOptions(Struct, frozen=True, omit_defaults=True):
    """Settings that a request to load a model gives, in place of the model's own until it is unloaded by a request."""

    context: Annotated[int, Meta(ge=1, le=1 << 24)] | None = None
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] | None = None
    flash_attention: Literal["auto", "on", "off"] | None = None
    ttl: Seconds | None = None


DEFAULT_CONTEXT = 16_384  # tokens of a window without a setting: enough for an agent to work in comfort


class ModelEntry(Struct, frozen=True):
    """A model that requests can name."""

    name: str  # unique; what requests call it
    engine: Engine  # what runs it
    path: Path = Path()  # the GGUF file, or the folder of a transformers model; empty for an upstream one
    settings: ModelSettings = ModelSettings()
    source: str = "library"  # where it was found: "library", "lmstudio", "ollama", "upstream" or "demo"
    size: int = 0  # bytes on disk
    needed: int = 0  # estimated bytes of memory at its settings
    url: str = ""  # base URL of an upstream server (`http://h:11434/v1`)
    upstream: str = ""  # the model's name there
    key: str = ""  # that server's API key
    broken: str = ""  # why it cannot be loaded; empty where nothing speaks against it


class WorkerSpec(Struct, frozen=True):
    """The model for a worker, one line of JSON on its standard input. The worker ends when that input does."""

    model: str  # path of the model
    alias: str  # the name that it reports
    key: str  # every request needs this API key
    settings: ModelSettings  # how to run it, with every default filled in
    draft: str = ""  # path of the draft model; empty for none


class Hello(Struct, frozen=True, omit_defaults=True):
    """The one line of JSON that a worker prints on its standard output."""

    address: str = ""  # `http://127.0.0.1:PORT`; empty if it could not load
    pid: int = 0  # its process
    load_s: float = 0.0  # seconds from its start to being ready
    error: str = ""  # why it could not load
    gpu: int = 0  # bytes that it took of the graphics cards' memory, as far as the engine tells


class RunningModel(Struct, frozen=True):
    """A model that can be used for as long as the lease lasts."""

    entry: ModelEntry
    address: str  # root of its server, without `/v1`
    key: str  # API key to send; empty for none
    model: str  # name to ask for there


class ModelStatus(Struct, frozen=True):
    entry: ModelEntry
    state: ModelState
    pid: int = 0  # 0 without a worker
    memory: int = 0  # bytes that the worker takes now, measured
    active: int = 0  # requests that run
    waiting: int = 0  # requests that wait for it
    requests: int = 0  # requests so far
    crashes: int = 0  # how often its worker ended by itself
    idle_s: float = 0.0  # seconds since the last request; 0 while one runs
    loaded_s: float = 0.0  # seconds that the last load took
    loads: int = 0  # how often it was loaded
    reason: str = ""  # why it is quarantined, or why the last load failed


class ModelServerError(LmagentError):
    """A request that the model server cannot serve; `code` is OpenAI's `error.code`."""

    def __init__(self, message: str, *, status: int = 500, code: str = "server_error", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code
