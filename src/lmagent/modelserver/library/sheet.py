"""Sheet: the TOML file with a model's settings, or with the address of an upstream model.

# qwen3-8b-q4_k_m.toml, beside the model or in the folder of the library
context = 32768
cache_type_k = "q8_0"

# office.toml: a model on another server
upstream = "http://192.168.1.20:11434/v1"
upstream_model = "qwen3:32b"
key_env = "OFFICE_KEY"
"""

from __future__ import annotations

import difflib
import os.path
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from lmagent.core.decoding import convert
from lmagent.modelserver.spec import ModelServerError, ModelSettings

UPSTREAM_KEYS: dict[str, str] = {
    "upstream": "base URL of another OpenAI-compatible server (`http://host:11434/v1`); makes this an upstream model",
    "upstream_model": "the model's name there; the file's name where it is left out",
    "key_env": "environment variable that holds that server's API key; the key itself is never in the file",
}
"""Keys that only a model on another server has, with their meanings."""

MAX_BYTES = 1 << 20


_ADDRESS = r"^(https?://([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/\S*)?)?$"


class Sheet(Struct, frozen=True):
    path: Path = Path()  # empty without a file
    settings: ModelSettings = ModelSettings()  # how the model is run; files that it names are absolute
    given: frozenset[str] = frozenset()  # the keys that it sets
    upstream: str = ""  # base URL of another server; empty for a model that is run here
    upstream_model: str = ""  # the model's name there
    key_env: str = ""  # environment variable with that server's key


KEYS: dict[str, Any] = {
    **get_type_hints(ModelSettings, include_extras=True),
    **dict.fromkeys(UPSTREAM_KEYS, str),
    "upstream": Annotated[str, Meta(pattern=_ADDRESS)],
}
"""Every key with its type."""


def read_sheet(path: Path) -> Sheet:
    """Read a settings file; an error names the file, the key and the allowed values."""
    try:
        text = path.read_text(encoding="utf-8-sig") if path.stat().st_size <= MAX_BYTES else "it is too large"
        values = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        fix = 'write one `key = value` a line, with texts in "quotes", as UTF-8'
        raise _wrong(path, f"cannot be read as settings in TOML: {error}", fix) from None
    for key, value in values.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            fix = f"did you mean {near[0]}?" if near else f"the keys are: {', '.join(KEYS)}"
            raise _wrong(path, f"there is no setting {key!r}", fix)
        try:
            convert(value, KEYS[key])
        except msgspec.ValidationError as error:
            raise _wrong(path, f"{key}: {str(error)[:200]}", f"{key} has to be {allowed(key)}") from None
    given = frozenset(values)
    more = {key: values.pop(key) for key in UPSTREAM_KEYS if key in values}
    settings = convert(values, ModelSettings)
    files = {key: getattr(settings, key) for key in ("template", "mmproj")}
    absolute = {key: os.path.join(path.parent, os.path.expanduser(name)) for key, name in files.items() if name}
    return Sheet(path, replace(settings, **absolute), given, **more)


def allowed(key: str) -> str:
    """Describe the values that a key may have."""
    kind = KEYS[key]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{name}"' for name in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is str or key == "upstream":
        return "a text in quotes"
    base, bounds = get_args(kind)
    noun = "a whole number" if base is int else "a number of seconds"
    return f"{noun} from {bounds.ge}" + (f" to {bounds.le}" if base is int else "")


def _wrong(path: Path, why: str, fix: str) -> ModelServerError:
    return ModelServerError(f"{path}: {why}", status=422, code="bad_settings", fix=fix)
