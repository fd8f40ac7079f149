"""Servers: one fake model server for each dialect, over real HTTP, each with its own routes, figures and lies.

    with LlamaCppServer([say("hello")], window=16_384, slots=2) as server:
        ...                                # point an agent at server.base_url; it serves 8,192 tokens a slot

    ScriptedServer     (`lmagent.testing`) the common API alone
    LlamaCppServer     llama.cpp: /props, /slots, /tokenize, real slots with a KV prefix each    (llamacpp.py, kv.py)
    OllamaServer       Ollama: /api/tags, ps, show, version, the native chat route, the cut      (ollama.py)
    LMStudioServer     LM Studio: both lists of models, loading on demand                        (lmstudio.py)
    VLLMServer         vLLM: max_model_len, prompt and reply together                            (compatible.py)
    OpenRouterServer   OpenRouter: its list of models                                            (compatible.py)
    GenericServer      KoboldCpp, TabbyAPI, SGLang, LocalAI, MLX, or nothing but the list        (compatible.py)

All are `ScriptedServer`s: the same scripts, `chats`, `requests`, `prefix`. A server's lies are arguments;
state that changes while it runs is an attribute.
"""

from __future__ import annotations

from testkit.servers.compatible import GenericServer, OpenRouterServer, VLLMServer
from testkit.servers.kv import Admission, SlotCache
from testkit.servers.llamacpp import LlamaCppServer
from testkit.servers.lmstudio import LMStudioServer
from testkit.servers.ollama import OllamaServer

__all__ = [
    "Admission",
    "GenericServer",
    "LMStudioServer",
    "LlamaCppServer",
    "OllamaServer",
    "OpenRouterServer",
    "SlotCache",
    "VLLMServer",
]
