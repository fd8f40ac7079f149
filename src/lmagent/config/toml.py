"""TOML: a writer for flat tables, and an update that keeps the comments and the order of a file.

Format: TOML 1.0 (https://toml.io/en/v1.0.0). Reading is the standard library's `tomllib`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Scalar = str | int | float | bool
FlatValue = Scalar | Sequence[Scalar]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def dump_flat(values: Mapping[str, FlatValue]) -> str:
    """One `key = value` line each, in order."""
    return "".join(f"{_key(name)} = {toml_value(value)}\n" for name, value in values.items())


def toml_value(value: FlatValue) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return _number(value)
    return f"[{', '.join(toml_value(item) for item in value)}]"


def update_flat(text: str, values: Mapping[str, FlatValue | None]) -> str:
    """The file's text with keys of its first, unnamed table set, or taken out (None); all else stays as it is.

    Raises:
        ValueError: the text is no TOML, or is laid out in a way that cannot be updated safely.
    """
    import tomllib

    expected = {**tomllib.loads(text), **{name: _plain(value) for name, value in values.items() if value is not None}}
    for name, value in values.items():
        if value is None:
            expected.pop(name, None)
        text = _with_key(text, name, "" if value is None else f"{_key(name)} = {toml_value(value)}\n")
    if tomllib.loads(text) != expected:
        raise ValueError("the file is laid out in a way that cannot be updated safely")
    return text


def line_of(text: str, key: str) -> int | None:
    """The line, from 1, on which a key of the first table (or a table of that name) begins."""
    quoted = re.escape(key)
    found = re.search(rf"^[ \t]*(?:\[+[ \t]*)?(?:\"{quoted}\"|'{quoted}'|{quoted})[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _with_key(text: str, name: str, line: str) -> str:
    header = _HEADER.search(text)
    end = header.start() if header else len(text)
    spellings = "|".join(re.escape(spelling) for spelling in (_key(name), _string(name), f"'{name}'"))
    found = re.search(rf"^[ \t]*(?:{spellings})[ \t]*=", text[:end], re.MULTILINE)
    if found:
        return text[: found.start()] + line + text[_end_of_value(text, found.start()) :]
    if not line:
        return text
    top = text[:end]
    gap = "" if not top or top.endswith("\n") else "\n"
    return f"{top}{gap}{line}{text[end:]}"


def _end_of_value(text: str, start: int) -> int:
    """Where the assignment that begins at `start` ends: after the first line at which it reads as TOML."""
    import tomllib

    end = start
    while end < len(text):
        following = text.find("\n", end)
        end = len(text) if following < 0 else following + 1
        try:
            tomllib.loads(text[start:end])
        except tomllib.TOMLDecodeError:
            continue
        return end
    return len(text)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(value: str) -> str:
    body = "".join(
        _ESCAPES.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x20 or char == "\x7f" else char) for char in value
    )
    return f'"{body}"'


def _number(value: float) -> str:
    # A float's repr is TOML except for an exponent without a fraction, which TOML has too, and for inf and nan.
    return repr(value)


def _plain(value: FlatValue) -> Any:
    return value if isinstance(value, Scalar) else list(value)
