"""Matrix: the model servers that a run must cope with, honest ones and lying ones, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lmagent.testing.script import Script
from testkit.servers.base import DialectServer, Lies
from testkit.servers.compatible import GenericServer, OpenRouterServer, VLLMServer
from testkit.servers.llamacpp import LlamaCppServer
from testkit.servers.lmstudio import LMStudioServer
from testkit.servers.ollama import OllamaServer

HONEST: Mapping[str, Callable[[Script], DialectServer]] = {
    "llama.cpp with 4k": lambda script: LlamaCppServer(script, context=4096),
    "llama.cpp with 32k in 4 slots": lambda script: LlamaCppServer(script, context=32768, slots=4),
    "LM Studio with its default of 4k": lambda script: LMStudioServer(script, window=4096, maximum=131072, loaded=True),
    "LM Studio that loads on demand with 4k": lambda script: LMStudioServer(script, window=4096, loaded=False),
    "vLLM with 8k": lambda script: VLLMServer(script, window=8192),
    "Ollama with its default of 4k": lambda script: OllamaServer(script),
    "Ollama with a small model": lambda script: OllamaServer(script, maximum=4096),
    "an unknown server, with 6k": lambda script: GenericServer(script, window=6000),
    "KoboldCpp with 8k": lambda script: GenericServer(script, kind="koboldcpp", window=8192),
    "OpenRouter with 8k": lambda script: OpenRouterServer(script, window=8192),
}

LYING: Mapping[str, Callable[[Script], DialectServer]] = {
    "cuts in silence": lambda script: GenericServer(script, window=6000, lies=Lies(cut=True)),
    "cuts in silence at 4k": lambda script: GenericServer(script, window=4096, lies=Lies(cut=True)),
    "states more than it serves, and cuts": lambda script: LMStudioServer(
        script, window=6000, maximum=131072, loaded=True, lies=Lies(cut=True, stated_window=32768)
    ),
    "states more than it serves, and refuses": lambda script: VLLMServer(
        script, window=6000, lies=Lies(stated_window=32768)
    ),
    "loads on demand with 4k, and cuts": lambda script: LMStudioServer(
        script, window=4096, loaded=False, lies=Lies(cut=True)
    ),
    "shrinks on the way": lambda script: LlamaCppServer(
        script, context=16384, lies=Lies(shrinks=[16384] * 10 + [6000])
    ),
    "counts nothing": lambda script: LlamaCppServer(script, context=8192, lies=Lies(usage="missing")),
    "counts zero": lambda script: LlamaCppServer(script, context=8192, lies=Lies(usage="zero")),
    "counts in a field of its own": lambda script: LMStudioServer(
        script, window=8192, loaded=True, lies=Lies(usage="wrong_field")
    ),
    "answers questions with a web page": lambda script: VLLMServer(script, window=8192, lies=Lies(html=True)),
    "states figures as text": lambda script: LlamaCppServer(script, context=8192, lies=Lies(stated_as_text=True)),
}
