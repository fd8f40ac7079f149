"""Values: from what a file, a variable or a flag says to a setting's value, or a ValueError saying what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from lmagent.config.fields import Field

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_NO_VALUE = frozenset({"none", "null", "unlimited", "-1"})
_RULE_COMMA = r"[,\n](?![^()]*\))"
_URL = re.compile(r"(?i)https?://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>\d{1,5}))?(?:[/?#][!-~]*)?")
_LOOPBACK = r"(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|\[::1\]"


def read_value(field: Field, raw: object, *, text: bool, base: Path, home: Path) -> Any:
    """The setting's value.

    Args:
        field: the setting.
        raw: what was given; a variable's text, or a value of a TOML file or a flag.
        text: the value is text whatever the setting's type (a variable), so numbers and switches are read from it.
        base: the folder that a relative path counts from.
        home: the home folder, for `~`.

    Raises:
        ValueError: it is not allowed; the text says what is, and never repeats a secret.
    """
    value = _from_text(field, raw) if text and isinstance(raw, str) else raw
    if field.optional and (value is None or value == -1 or (isinstance(value, str) and value.lower() in _NO_VALUE)):
        return None
    checked = _CHECKS[field.kind](field, value)
    if checked is None:
        private = field.secret or (field.kind == "url" and "@" in str(raw))  # a password in it is nobody's business
        shown = "" if private else f", not {_short(raw)}"
        raise ValueError(f"must be {allowed(field)}{shown}")
    return expand_path(cast("str", checked), base, home) if field.kind == "path" else checked


def is_given(field: Field, text: str) -> bool:
    """Whether a variable's text sets the setting: an empty one does only where empty means something."""
    return bool(text.strip()) or field.kind == "text"


def allowed(field: Field) -> str:
    """What the setting may be, as a phrase."""
    if field.kind == "choice":
        return f"{', '.join(field.choices[:-1])} or {field.choices[-1]}"
    phrase = _PHRASES[field.kind]
    if field.low is not None and field.high is not None:
        phrase += f" from {field.low:g} to {field.high:g}"
    elif field.low is not None:
        phrase += f" of at least {field.low:g}"
    return f"{phrase}, or none" if field.optional else phrase


def expand_path(text: str, base: Path, home: Path) -> Path:
    """`~` is the home folder, a relative path counts from `base`; links and `..` stay."""
    if text == "~" or text.startswith(("~/", "~\\")):
        return home / text[2:]
    return base / text


def host_of(url: str) -> str:
    """The host of a URL that was read by `read_value`, in lower case."""
    found = _URL.fullmatch(url)
    return found["host"].lower() if found else url


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine; a name that only looks like an address (`127.example.org`) does not."""
    return re.fullmatch(_LOOPBACK, host_of(url).rstrip(".")) is not None


def _from_text(field: Field, raw: str) -> object:
    """A number, a switch or a list out of text; text that is none of it stays, and is refused by the check."""
    stripped = raw.strip()
    if field.kind == "rules":
        return [part.strip() for part in re.split(_RULE_COMMA, stripped) if part.strip()]
    if field.kind == "presence":
        return bool(raw)
    if field.kind == "switch":
        return _SWITCH.get(stripped.lower(), stripped)
    if field.kind == "choice":
        return stripped.lower()
    if field.kind in ("integer", "number"):
        for convert in (int, float):
            try:
                return convert(stripped)
            except ValueError:
                continue
    return stripped


def _text(_field: Field, value: object) -> str | None:
    # A control character in a model's name or a key would end up in a header or on the terminal.
    return value if isinstance(value, str) and value.isprintable() else None


def _path(_field: Field, value: object) -> str | None:
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str) and value and "\0" not in value else None


def _url(_field: Field, value: object) -> str | None:
    if value == "":
        return ""
    found = _URL.fullmatch(value) if isinstance(value, str) else None
    return found.string if found and int(found["port"] or 0) < 65536 else None


def _integer(field: Field, value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and _in_range(field, value) else None


def _number(field: Field, value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if _in_range(field, value) else None


def _switch(_field: Field, value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _choice(field: Field, value: object) -> str | None:
    if isinstance(value, bool):  # TOML's own true, where "true" is a choice
        value = str(value).lower()
    return value.lower() if isinstance(value, str) and value.lower() in field.choices else None


def _rules(_field: Field, value: object) -> tuple[str, ...] | None:
    items = cast("list[object]", value) if isinstance(value, list | tuple) else None
    if items is None or not all(isinstance(item, str) and item.strip() for item in items):
        return None
    return tuple(dict.fromkeys(cast("str", item).strip() for item in items))


def _in_range(field: Field, value: float) -> bool:
    return (field.low is None or value >= field.low) and (field.high is None or value <= field.high)


def _short(raw: object) -> str:
    shown = ascii(raw)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


_CHECKS: dict[str, Callable[[Field, object], Any]] = {
    "text": _text,
    "secret": _text,
    "path": _path,
    "url": _url,
    "integer": _integer,
    "number": _number,
    "switch": _switch,
    "presence": _switch,
    "choice": _choice,
    "rules": _rules,
}

_PHRASES: dict[str, str] = {
    "text": "text on one line",
    "secret": "text on one line",
    "path": "a path",
    "url": "a URL such as http://localhost:1234/v1, without a name or password in it",
    "integer": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "presence": "true or false",
    "rules": 'a list of rules such as ["write(docs/**)"]',
}
