"""Cause: the reason why an engine failed, in plain words, read from the end of its log.

The patterns are messages of llama.cpp (`src/llama-model-loader.cpp`, `ggml/src/ggml-backend.cpp`, `common/chat.cpp`,
`tools/mtmd/clip.cpp`) and of Python, seen with xllamacpp 2026.10.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from msgspec import Struct

SMALLER = "choose a smaller context or a smaller quantisation, or unload other models: lmagent models unload NAME"
AGAIN = "get the file again: lmagent models pull"
NEWER = "a newer engine may know it: pip install -U xllamacpp"
TEMPLATE = "take `template` out of the model's settings, or name another file there"
PROJECTOR = "take `mmproj` out of the model's settings, or name the projector that was made for this model"


class Cause(Struct, frozen=True):
    text: str  # what happened
    fix: str = ""  # what to do; may be empty
    code: str = "load_failed"  # OpenAI's `error.code`

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text


_STAMP = re.compile(r"^\d+\.\d+\.\d+\.\d+ (?P<level>[A-Z]) +(?:(?:srv|cmn|slot) +)?(?P<text>.*)$")
"""`minutes.seconds.milliseconds.microseconds LEVEL [component] function: message`."""

_KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (r"quantized V cache requires", "cached values of a quantised type need flash attention",
     'set flash_attention = "on" or cache_type_v = "f16" in the model\'s settings', "load_failed"),
    (r"\(attempted to allocate ([\d.]+ MB)\)", "not enough memory: {} more were needed at once", SMALLER,
     "out_of_memory"),
    (r"allocating ([\d.]+ Mi?B) on device \S+: .*out of memory", "not enough memory on the graphics card: {} more were "
     "needed at once", f"set fewer gpu_layers, or {SMALLER}", "out_of_memory"),
    (r"insufficient memory|out of memory|failed to allocate|bad_alloc|unable to allocate|MemoryError|CUDA error: out",
     "not enough memory", SMALLER, "out_of_memory"),
    (r"invalid magic characters", "it is not a GGUF file", AGAIN, "load_failed"),
    (r"tensor '([^']*)' data is not within the file bounds",
     "the file is damaged or not complete: the tensor {} lies beyond its end", AGAIN, "load_failed"),
    (r"corrupted or incomplete|failed to read|unexpectedly reached end of file|gguf_init_from_\w+: failed",
     "the file is damaged or not complete", AGAIN, "load_failed"),
    (r"unknown model architecture: '([^']*)'", "the engine does not know the architecture {}", NEWER, "load_failed"),
    (r"unknown pre-tokenizer type: '([^']*)'", "the engine does not know the tokenizer {}", NEWER, "load_failed"),
    (r"Failed to load CLIP model|failed to load multimodal model", "the projector for images cannot be loaded",
     PROJECTOR, "load_failed"),
    (r"common_chat_templates_init: error: (.+)", "the chat template cannot be read: {}", TEMPLATE, "load_failed"),
    (r"chat template parsing error", "the chat template cannot be read", TEMPLATE, "load_failed"),
    (r"failed to load draft model, '?([^']*)", "the draft model cannot be loaded: {}",
     "take `draft` out of the model's settings", "load_failed"),
    (r"error loading model: (.+)", "{}", "", "load_failed"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), words, fix, code) for pattern, words, fix, code in _KNOWN)

_LAST = re.compile(r"GGML_ASSERT|terminate called|what\(\):|Error: |Error$|CUDA error|Fatal Python error")
"""The last messages of a process that dies by itself."""


def from_log(lines: Sequence[str]) -> Cause | None:
    """Return the cause that the lines since the start of a process name; None if they name no cause."""
    text = "\n".join(lines)
    for pattern, words, fix, code in _PATTERNS:
        if found := pattern.search(text):
            return Cause(words.format(*(part.strip() for part in found.groups())), fix, code)
    said = [line.strip() for line in lines if _LAST.search(line)]
    if said:
        return Cause(said[-1])
    errors = [match["text"].strip() for line in lines if (match := _STAMP.match(line)) and match["level"] == "E"]
    return Cause(errors[0]) if errors else None


def from_status(status: int) -> Cause:
    """Return the cause that a `Popen.returncode` names."""
    if status == -signal.SIGTERM:
        return Cause("its process was ended from outside (SIGTERM)")
    if status == -9:
        text = "its process was killed (SIGKILL); the system does that when it runs out of memory"
        return Cause(text, SMALLER, "worker_killed")
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return Cause(f"its process crashed ({name})")
    return Cause(f"its process ended with status {status}")
