"""Suggestions: well-known models by the memory that they need; they were not measured here.

Sizes are those of the published files at the named quantisation, in units of 10**9 bytes, rounded up; memory is with a
window of 16,384 tokens and `memory.needed_bytes`' formula, rounded up to whole GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Suggestion(Struct, frozen=True):
    name: str  # short name that `pull` knows
    repo: str  # where it is on Hugging Face
    quant: str  # the quantisation that is meant
    download: float  # size of the download in units of 10**9 bytes
    memory: float  # GiB of memory that it takes
    text: str
    tools: bool = True  # whether it is good at calling tools, which an agent does all the time

    @property
    def bytes(self) -> int:
        return int(self.memory * (1 << 30))


SUGGESTIONS = (
    Suggestion("qwen3-0.6b", "Qwen/Qwen3-0.6B-GGUF", "Q8_0", 0.7, 3, "for trying things out; too small to work", False),
    Suggestion("qwen3-1.7b", "Qwen/Qwen3-1.7B-GGUF", "Q8_0", 1.9, 4, "calls single tools; small machines"),
    Suggestion("gemma-3-4b", "ggml-org/gemma-3-4b-it-GGUF", "Q4_K_M", 2.5, 6, "sees images; weak at tools", False),
    Suggestion("qwen3-4b", "Qwen/Qwen3-4B-GGUF", "Q4_K_M", 2.5, 6, "the smallest for short chains of tool calls"),
    Suggestion("qwen3-8b", "Qwen/Qwen3-8B-GGUF", "Q4_K_M", 5.1, 8, "good all-rounder with tools for 16 GB machines"),
    Suggestion("qwen3-14b", "Qwen/Qwen3-14B-GGUF", "Q4_K_M", 9.1, 12, "steadier than 8b; slow without a graphics card"),
    Suggestion("gemma-3-12b", "ggml-org/gemma-3-12b-it-GGUF", "Q4_K_M", 7.4, 14, "sees images; weak at tools", False),
    Suggestion("gpt-oss-20b", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", 12.2, 14, "fast, strong at tools"),
    Suggestion(
        "qwen3-30b-a3b", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF", "Q4_K_M", 18.7, 20, "fast, strong at tools"
    ),
    Suggestion(
        "qwen3-coder-30b", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF", "Q4_K_M", 18.7, 20, "as fast, made for code"
    ),
    Suggestion("gpt-oss-120b", "ggml-org/gpt-oss-120b-GGUF", "MXFP4", 63.4, 66, "for workstations with 96 GB and more"),
)
"""In the order of the memory that they need."""

NOTE = "These are suggestions by size, from what their makers publish; they were not measured on this machine."


SHARE = 0.75  # share of the machine's memory that a model may take beside the system and a browser


def recommended(total: int) -> Sequence[Suggestion]:
    """Return the suggestions for a machine with that many bytes of memory: good at tools first, then the largest."""
    there = [item for item in SUGGESTIONS if item.bytes <= total * SHARE]
    return sorted(there, key=lambda item: (not item.tools, -item.memory))
