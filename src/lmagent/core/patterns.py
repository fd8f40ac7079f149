"""Patterns: regular expressions that are compiled when they are first used.

The formats of calls alone have a hundred. Compiling them took a quarter of the start of a task that needs none.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _LatePattern:
    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)  # the next use does not come here
        return value


def late(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that compiles itself at the first use of one of its methods."""
    return cast("re.Pattern[str]", _LatePattern(text, flags))
