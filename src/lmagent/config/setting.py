"""Setting: the declaration of a setting, its allowed values, and the conversion of a given value."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Unpack, cast, get_args, get_origin

from msgspec import Struct, ValidationError, field
from msgspec.structs import fields, replace

from lmagent.config.paths import expand_path
from lmagent.core.decoding import convert

Kind = Literal["text", "secret", "path", "url", "integer", "number", "switch", "presence", "choice", "rules"]

FolderRule = Literal["free", "stricter", "smaller", "endpoint", "trusted", "elsewhere"]
"""The rights of a file in a folder that the user does not trust (its `.lmagent/config.toml`, its `.env`):

free       set it
stricter   move the permission mode towards manual
smaller    lower a budget
endpoint   name a server on this machine, unless the user's own key would go there; a key only for such a server
trusted    none, until the user trusts the folder
elsewhere  none, ever: the value is needed before the file is read, or protects the user from it
"""

URL = re.compile(r"(?i)https?://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>\d{1,5}))?(?:[/?#][!-~]*)?")

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_NO_VALUE = frozenset({"none", "null", "unlimited", "-1"})
_RULE_COMMA = r"[,\n](?![^()]*\))"
_KINDS: dict[Any, Kind] = {
    str: "text",
    Path: "path",
    int: "integer",
    float: "number",
    bool: "switch",
    tuple: "rules",
    Literal: "choice",
}
_TYPES: dict[Kind, Any] = {"integer": int, "number": float, "switch": bool, "presence": bool, "rules": list[str]}
_PHRASES: dict[Kind, str] = {
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


class Setting(Struct, frozen=True):
    """One setting. Its name, choices and `optional` are derived, and its kind unless it is url, secret or presence."""

    default: Any
    variables: tuple[str, ...]  # the setting's own first; the others are names that older systems gave it
    help: str
    kind: Kind = "text"
    flag: str = ""
    bounds: tuple[float | None, float | None] = (None, None)  # both allowed
    folder: FolderRule = "free"
    name: str = ""  # the key in `config.toml` and the attribute of `Settings`
    choices: tuple[str, ...] = ()  # from the loosest to the strictest
    optional: bool = False  # "none" and -1 mean that there is no value

    def __call__(self) -> Any:
        """Return the default: a declared setting is the default factory of its attribute."""
        return self.default

    @property
    def env(self) -> str:
        return self.variables[0]

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind == "secret"

    @property
    def allowed(self) -> str:
        """The allowed values, as a phrase."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        low, high = self.bounds
        phrase = _PHRASES[self.kind]
        if low is not None:
            phrase += f" of at least {low:g}" if high is None else f" from {low:g} to {high:g}"
        return f"{phrase}, or none" if self.optional else phrase

    def is_given(self, text: str) -> bool:
        """Return whether a variable's text sets the setting; an empty text sets only settings of text."""
        return bool(text.strip()) or self.kind == "text"

    def read(self, raw: object, base: Path, home: Path, *, text: bool = False) -> Any:
        """Return the value that was given; `text`: numbers, switches and lists are written as text.

        Raises ValueError if it is not allowed; the message has the allowed values, and repeats no secret.
        """
        value = _of_text(self.kind, raw.strip()) if text and isinstance(raw, str) else raw
        if self.optional and (value is None or value == -1 or str(value).lower() in _NO_VALUE):
            return None
        try:
            checked = _of_kind(self.kind, value, text=text)
        except ValidationError:
            checked = None
        if checked is None or not self._fits(checked):
            private = self.secret or (self.kind == "url" and "@" in str(raw))
            given = ascii(raw)
            shown = "" if private else f", not {given if len(given) <= 60 else f'{given[:57]}...'}"
            raise ValueError(f"must be {self.allowed}{shown}")
        return expand_path(checked, base, home) if self.kind == "path" else checked

    def _fits(self, value: Any) -> bool:
        match self.kind:
            case "integer" | "number":
                low, high = self.bounds
                return math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
            case "choice":
                return value in self.choices
            case "rules":
                return all(value)
            case "url":
                found = URL.fullmatch(value)
                return not value or (found is not None and int(found["port"] or 0) < 65536)
            case "path":
                return bool(value) and "\0" not in value
            case "text" | "secret":  # a control character would reach a header or the terminal
                return value.isprintable()
            case _:
                return True


def _of_text(kind: Kind, text: str) -> object:
    """Return the switch or list in a text; other text is left for `_of_kind` to convert or refuse."""
    if kind == "rules":
        return [part.strip() for part in re.split(_RULE_COMMA, text) if part.strip()]
    if kind == "presence":
        return bool(text)
    return _SWITCH.get(text.lower(), text) if kind == "switch" else text


def _of_kind(kind: Kind, value: object, *, text: bool) -> Any:
    if kind == "choice":
        return str(value).lower()  # TOML has a `true` of its own, where "true" is a choice
    if kind == "path" and isinstance(value, Path):
        return str(value)
    found = convert(value, _TYPES.get(kind, str), strict=not text)
    return tuple(dict.fromkeys(item.strip() for item in found)) if kind == "rules" else found


class _More(TypedDict, total=False):
    kind: Kind
    flag: str
    bounds: tuple[float | None, float | None]
    folder: FolderRule


def setting(default: Any, variables: str, *, help: str, **more: Unpack[_More]) -> Any:
    """Declare an attribute of `Settings`; `variables` are separated by blanks, the rest is as in `Setting`."""
    return field(default_factory=Setting(default, tuple(variables.split()), help, **more))


def declared(struct: type[Struct]) -> tuple[Setting, ...]:
    """Return the settings that a Struct declares, completed by its attributes' names and types."""
    return tuple(_completed(cast("Setting", info.default_factory), info.name, info.type) for info in fields(struct))


def _completed(setting: Setting, name: str, hint: Any) -> Setting:
    types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = get_origin(types[0]) or types[0]
    return replace(
        setting,
        name=name,
        kind=_KINDS[kind] if setting.kind == "text" else setting.kind,
        choices=get_args(types[0]) if kind is Literal else (),
        optional=NoneType in types,
    )
