"""Show: settings as lines for a person, without secrets."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmagent.config.fields import FIELDS, Field
from lmagent.config.loader import Loaded
from lmagent.config.settings import PLACEHOLDER_KEYS


class Row(Struct, frozen=True):
    """One line of `lmagent config`: a setting, its value as text, and where it comes from."""

    name: str
    value: str
    origin: str


def rows(loaded: Loaded) -> tuple[Row, ...]:
    """All settings; a list of rules has one row a rule, each with its own origin."""
    found: list[Row] = []
    for field in FIELDS:
        value = getattr(loaded.settings, field.name)
        if field.kind == "rules" and value:
            origins = loaded.item_origins[field.name]
            found += [Row(field.name, rule, str(origin)) for rule, origin in zip(value, origins, strict=True)]
        else:
            found.append(Row(field.name, shown(field, value), str(loaded.origins[field.name])))
    return tuple(found)


def shown(field: Field, value: Any) -> str:
    """A value as text; of a secret only that it is set."""
    if field.secret:
        return (value or "(none)") if value in PLACEHOLDER_KEYS else f"(set, {len(value)} characters)"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ", ".join(str(item) for item in value) or "(none)"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:g}" if isinstance(value, float) else str(value) or "(none)"
