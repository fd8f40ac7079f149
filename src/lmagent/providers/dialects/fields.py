"""Fields: reads values out of JSON that may hold anything. A value of another type counts as missing."""

from __future__ import annotations

from typing import Any, cast

LEAST_WINDOW = 16
"""Tokens below which a figure is no window (0 and -1 mean "unknown" or "the model's own")."""

LARGEST_WINDOW = 10**9
_MOST = 10**15


def at(value: Any, *path: str) -> Any:
    """The value at the end of a path of keys; None where one is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(key)
    return value


def mapping(value: Any, *path: str) -> dict[str, Any]:
    """The object at the end of a path; empty without one."""
    found = at(value, *path)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def entries(value: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of the list at the end of a path; other items are left out."""
    found = at(value, *path)
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", entry) for entry in listed if isinstance(entry, dict)]


def words(value: Any, *path: str) -> tuple[str, ...]:
    """The strings of the list at the end of a path."""
    found = at(value, *path)
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return tuple(entry for entry in listed if isinstance(entry, str))


def text(value: Any, *path: str) -> str:
    """The string at the end of a path, stripped; empty without one."""
    found = at(value, *path)
    return found.strip() if isinstance(found, str) else ""


def flag(value: Any, *path: str) -> bool | None:
    """The truth value at the end of a path; None without one."""
    found = at(value, *path)
    return found if isinstance(found, bool) else None


def number(value: Any, *path: str) -> int | None:
    """The whole number from 0 up at the end of a path.

    A number in a string is not taken: a server that sends one is not the server that is documented to send a number,
    and a window read too large is the one mistake that must not happen.
    """
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found <= _MOST else None  # NaN and infinity fail the comparison


def window(value: Any, *path: str) -> int | None:
    """A number of tokens that can be a window."""
    found = number(value, *path)
    return found if found is not None and LEAST_WINDOW <= found <= LARGEST_WINDOW else None


def version(said: str) -> tuple[int, ...]:
    """`0.11.2rc1` as (0, 11, 2), for comparisons; empty without one."""
    parts: list[int] = []
    for piece in said.lstrip("v").split("."):
        digits = ""
        for char in piece:
            if not char.isascii() or not char.isdigit():
                break
            digits += char
        if not digits or len(digits) > 9:
            break
        parts.append(int(digits))
        if digits != piece:
            break
    return tuple(parts)


def named(listed: list[dict[str, Any]], model: str, *keys: str) -> dict[str, Any] | None:
    """The entry of that name (`:latest` may be left out); without a name, the only entry."""
    if not model:
        return listed[0] if len(listed) == 1 else None
    for entry in listed:
        names = {text(entry, key) for key in keys}
        if model in names or f"{model}:latest" in names:
            return entry
    return None
