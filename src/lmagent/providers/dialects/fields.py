"""Fields: reads values from untrusted JSON. A value of another type counts as missing."""

from __future__ import annotations

from typing import Any, cast

LEAST_WINDOW = 16
"""Least tokens of a window (0 and -1 mean "unknown" or "the model's own")."""

LARGEST_WINDOW = 10**9
_MOST = 10**15


def at(value: Any, *path: str) -> Any:
    """Return the value at the end of a path of keys; None if one is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(key)
    return value


def mapping(value: Any, *path: str) -> dict[str, Any]:
    found = at(value, *path)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def entries(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects of the list at the end of a path, without its other items."""
    found = at(value, *path)
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", entry) for entry in listed if isinstance(entry, dict)]


def words(value: Any, *path: str) -> tuple[str, ...]:
    found = at(value, *path)
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return tuple(entry for entry in listed if isinstance(entry, str))


def text(value: Any, *path: str) -> str:
    found = at(value, *path)
    return found.strip() if isinstance(found, str) else ""


def flag(value: Any, *path: str) -> bool | None:
    found = at(value, *path)
    return found if isinstance(found, bool) else None


def number(value: Any, *path: str) -> int | None:
    """Return the whole number from 0 up at the end of a path; a number in a string is no documented answer."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found <= _MOST else None  # NaN and infinity fail the comparison


def window(value: Any, *path: str) -> int | None:
    found = number(value, *path)
    return found if found is not None and LEAST_WINDOW <= found <= LARGEST_WINDOW else None


def named(listed: list[dict[str, Any]], model: str) -> dict[str, Any] | None:
    """Return the entry of that name (`:latest` may be left out)."""
    wanted = {model, f"{model}:latest"}
    return next((entry for entry in listed if wanted & {text(entry, "name"), text(entry, "model")}), None)
