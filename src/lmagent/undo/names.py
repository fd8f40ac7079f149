"""Names of files as text that survives JSON, and back.

A file name is bytes. Python shows bytes that are no UTF-8 as lone surrogates, which neither JSON nor msgspec takes. In
the manifest and in values that leave this package (`Change.path`, `PathState.target`, `Refusal.path`) such a byte is
written as `\\xff`, and a backslash as two; every other name is itself. This is the only place that knows it.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile("[\\\\\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|x[89a-f][0-9a-f])")
_SURROGATE = 0xDC00  # os.fsdecode shows the byte b as the code point 0xDC00 + b (PEP 383)


def escaped(name: str) -> str:
    """Return a name or path of the operating system as text without surrogates."""
    if name.isascii() and "\\" not in name:
        return name
    return _SPECIAL.sub(lambda found: _escape(found.group()), name)


def unescaped(text: str) -> str:
    """Return the name or path that `escaped` received."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _unescape(found.group(1)), text)


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder; the workspace is the empty path."""
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def is_path(path: str) -> bool:
    """Return whether a text may be a path in the workspace: relative, without `.`, `..`, empty parts and NUL."""
    return "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


def _escape(character: str) -> str:
    return "\\\\" if character == "\\" else f"\\x{ord(character) - _SURROGATE:02x}"


def _unescape(code: str) -> str:
    return "\\" if code == "\\" else chr(_SURROGATE + int(code[1:], 16))
