"""Thoughts: which models want their own earlier thoughts back with the conversation.

Most were trained without them (Qwen3, QwQ, DeepSeek R1), and their templates drop them. Those below were trained to
call tools in the midst of thinking, and get worse without: gpt-oss, MiniMax M2, Kimi K2 Thinking, GLM from 4.5 on,
DeepSeek from V3.2 on, by their makers' notes on tool calls.
"""

from __future__ import annotations

import re
from functools import lru_cache

_KEEPING = re.compile(
    r"gpt-?oss|minimax-?m[2-9]|kimi-?k2[^/]*think|glm-?(?:4\.[5-9]|[5-9])|deepseek-?(?:v3\.[2-9]|v[4-9])", re.IGNORECASE
)


@lru_cache(maxsize=32)
def keeps_thoughts(model: str) -> bool:
    """Whether a model of this name gets its thoughts back."""
    return _KEEPING.search(model.replace("_", "-")) is not None
