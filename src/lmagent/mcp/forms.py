"""Forms: the values that a server asks the user for, read from one line or several of typed text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.core.repair import fit_text, fits
from lmagent.tools.sanitize import one_line

MOST = 20
"""Fields of a form."""

_LINE = re.compile(r"\s*([^:=\n]{1,80}?)\s*[:=]\s*(.*?)\s*")


class ElicitationForm:
    """A form: the fields of a schema, which are plain values."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        known = _field(schema.get("properties"))
        self._fields = {name: _field(sub) for name, sub in list(known.items())[:MOST]}
        required: Any = schema.get("required")
        listed = cast("list[Any]", required) if isinstance(required, list) else []
        self._required = [name for name in listed if name in self._fields]
        self._is_whole = len(known) <= MOST and all(name in self._fields for name in listed)

        self.title, self.help = (
            ("a yes or no", "answer yes or no")
            if not self._fields
            else ("a value", "type the value, or no")
            if len(self._fields) == 1
            else (f"{len(self._fields)} values", "type a line `name: value` for each, or JSON, or no")
        )

    @property
    def rows(self) -> list[str]:
        """Return a line for each field."""
        return [self._row(name, sub) for name, sub in self._fields.items()]

    def _row(self, name: str, sub: Mapping[str, Any]) -> str:
        facts = [one_line(str(sub.get("type", "text")), 20)]
        if values := _values(sub):
            facts.append("one of " + ", ".join(one_line(str(value), 40) for value in values[:20]))
        facts += [f"default {one_line(str(sub['default']), 60)}"] if "default" in sub else []
        facts += [] if name in self._required else ["optional"]
        about = sub.get("description") or sub.get("title")
        more = f": {one_line(about, 200)}" if isinstance(about, str) else ""
        return f"> {one_line(name, 60)} ({', '.join(facts)}){more}"

    def read(self, text: str) -> tuple[dict[str, Any], str]:
        """Return the values in a text with the defaults of the others, and the fault; empty if it is right."""
        if not self._is_whole:
            return {}, f"the form has more than {MOST} fields; only no is possible"
        given, fault = self._given(text.strip())
        if fault:
            return {}, fault
        values = {name: sub["default"] for name, sub in self._fields.items() if "default" in sub}
        for name, value in given.items():
            value = fit_text(value, self._fields[name]) if isinstance(value, str) else value
            if fault := _fault(name, value, self._fields[name]):
                return {}, fault
            values[name] = value
        missing = [name for name in self._required if name not in values]
        if missing:
            return {}, f"{', '.join(one_line(name, 60) for name in missing)} missing; {self.help}"
        return values, ""

    def _given(self, text: str) -> tuple[dict[str, Any], str]:
        if not text or not self._fields:
            return {}, ""
        given: dict[str, Any] | None = None
        if text.startswith("{"):
            try:
                given = decode_json(text, dict[str, Any])
            except msgspec.DecodeError:
                return {}, f"that is no valid JSON; {self.help}"
        elif found := self._lines(text):
            given = found
        elif len(self._fields) == 1 or len(self._required) == 1:
            given = {next(iter(self._required or self._fields)): text}
        if given is None:
            return {}, self.help
        unknown = [name for name in given if name not in self._fields]
        return (given, f"there is no field {one_line(unknown[0], 60)!r}") if unknown else (given, "")

    def _lines(self, text: str) -> dict[str, Any]:
        """Return the values of lines `name: value`; empty if a line has another form, or names no field."""
        found: dict[str, Any] = {}
        spelled = {name.lower(): name for name in self._fields}
        for line in filter(str.strip, text.splitlines()):
            match = _LINE.fullmatch(line)
            name = spelled.get(match[1].lower()) if match else None
            if match is None or name is None:
                return {}
            found[name] = match[2]
        return found


def _field(sub: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", sub) if isinstance(sub, dict) else {}


def _values(sub: Mapping[str, Any]) -> list[Any]:
    """Return the allowed values of a field or of its items; some servers name each with a title."""
    for source in (sub, _field(sub.get("items"))):
        if isinstance(values := source.get("enum"), list):
            return cast("list[Any]", values)
        for key in ("oneOf", "anyOf"):
            options = source.get(key)
            if isinstance(options, list):
                return [
                    cast("dict[str, Any]", option)["const"]
                    for option in cast("list[Any]", options)
                    if isinstance(option, dict) and "const" in option
                ]
    return []


def _fault(name: str, value: Any, sub: Mapping[str, Any]) -> str:
    shown = one_line(name, 60)
    values = _values(sub)
    given = cast("list[Any]", value) if isinstance(value, list) else [value]
    if values and any(item not in values for item in given):
        return f"{shown} must be one of {', '.join(one_line(str(value), 40) for value in values[:20])}"
    if not values and not fits(value, sub):
        return f"{shown} must be of the type {one_line(str(sub.get('type', 'text')), 20)}"
    is_text = isinstance(value, str)
    if isinstance(value, bool) or not (is_text or isinstance(value, int | float)):
        return ""
    size = len(value) if is_text else value
    low, high = (_limit(sub, name) for name in (("minLength", "maxLength") if is_text else ("minimum", "maximum")))
    if (low is None or size >= low) and (high is None or size <= high):
        return ""
    return f"{shown} must {'have' if is_text else 'be'} between {low} and {high}{' characters' if is_text else ''}"


def _limit(sub: Mapping[str, Any], name: str) -> float | None:
    value = sub.get(name)
    return value if isinstance(value, int | float) else None
