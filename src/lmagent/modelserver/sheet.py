"""Sheet: the TOML file that says how a model is run, or where an upstream one is.

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
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from msgspec import Struct

from lmagent.config.files import line_of
from lmagent.core.decoding import convert
from lmagent.modelserver.spec import ModelServerError, ModelSettings

POOLINGS = ("", "none", "mean", "cls", "last", "rank")

UPSTREAM_KEYS: dict[str, str] = {
    "upstream": "base URL of another OpenAI-compatible server (`http://host:11434/v1`); makes this an upstream model",
    "upstream_model": "the model's name there; the file's name where it is left out",
    "key_env": "environment variable that holds that server's API key; the key itself never stands in the file",
}
"""Keys that only a model on another server has, and what they mean."""

_LOWEST: dict[str, float] = {"context": 0, "gpu_layers": -1, "parallel": 1, "threads": 0, "ttl": 0, "sleep": 0}
_HIGHEST: dict[str, float] = {"context": 1 << 24, "gpu_layers": 10_000, "parallel": 64, "threads": 1024}
_SMALLEST_CONTEXT = 256
MAX_BYTES = 1 << 20


class Sheet(Struct, frozen=True):
    """A settings file that was read.

    Attributes:
        path: the file; an empty path where there is none.
        settings: how the model is run; files that it names are absolute.
        given: the keys that it sets.
        upstream: base URL of another server; empty for a model that is run here.
        upstream_model: the model's name there.
        key_env: environment variable with that server's key.
    """

    path: Path = Path()
    settings: ModelSettings = ModelSettings()
    given: frozenset[str] = frozenset()
    upstream: str = ""
    upstream_model: str = ""
    key_env: str = ""


def read_sheet(path: Path) -> Sheet:
    """Read a settings file.

    Raises:
        ModelServerError: it is no TOML, or a key or a value in it is not allowed; with file, line and what is allowed.
    """
    text = _read(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, f"is no TOML: {error}", 'write one `key = value` a line, with texts in "quotes"') from None
    except RecursionError:
        raise _wrong(path, "is nested too deeply", "write one `key = value` a line") from None
    except ValueError:  # Python reads no number of more than 4300 digits
        raise _wrong(path, "has a number that is far too long", "shorten it") from None
    given = frozenset(values)
    for key in values:
        if key not in KEYS:
            raise _unknown(path, text, key)
    more = {key: values.pop(key) for key in UPSTREAM_KEYS if key in values}
    for key, value in {**more, **values}.items():
        _check(path, text, key, value)
    settings = convert(values, ModelSettings)
    if settings.flash_attention == "off" and settings.cache_type_v not in ("f32", "f16", "bf16"):
        where = _place(text, "cache_type_v")
        fix = 'set flash_attention = "auto", or cache_type_v = "f16"'
        raise _wrong(path, f"{where}: the engine quantises cached values only with flash attention", fix)
    if not more.get("upstream") and given & {"upstream_model", "key_env"}:
        raise _wrong(
            path, "names a model of another server, but not the server", 'add: upstream = "http://HOST:PORT/v1"'
        )
    return Sheet(path, _absolute(settings, path.parent), given, **more)


KEYS: dict[str, Any] = {**get_type_hints(ModelSettings), **dict.fromkeys(UPSTREAM_KEYS, str)}
"""Every key with its type."""


def allowed(key: str) -> str:
    """What a key may be, in words."""
    kind = KEYS[key]
    if key == "pooling":
        return "one of " + ", ".join(f'"{name}"' for name in POOLINGS)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{name}"' for name in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is str:
        return "a text in quotes"
    noun = "a whole number" if kind is int else "a number of seconds"
    bounds = f"{noun} from {int(_LOWEST[key])}"
    return f"{bounds} to {int(_HIGHEST[key])}" if key in _HIGHEST else bounds


def _check(path: Path, text: str, key: str, value: Any) -> None:
    kind = KEYS[key]
    if key == "pooling":
        fine = value in POOLINGS
    elif get_origin(kind) is Literal:
        fine = isinstance(value, str) and value in get_args(kind)
    elif kind in (bool, str):
        fine = isinstance(value, kind)
    else:
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        fine = number and _LOWEST[key] <= value <= _HIGHEST.get(key, 1e12)
        fine = fine and not (key == "context" and 0 < value < _SMALLEST_CONTEXT)
    if not fine:
        shown = _shown(value)
        more = f" (0 or at least {_SMALLEST_CONTEXT})" if key == "context" else ""
        raise _wrong(path, f"{_place(text, key)}: {key} is {shown}", f"{key} has to be {allowed(key)}{more}")
    if key in ("template", "mmproj") and not _is_path(str(value)):
        raise _wrong(path, f"{_place(text, key)}: {key} is no path of a file", "correct it, or leave it out")
    if key == "upstream" and not _is_address(str(value)):
        raise _wrong(path, f"{_place(text, key)}: {value!r} is no address", 'write "http://HOST:PORT/v1"')


def _shown(value: object) -> str:
    """A wrong value, if it is short enough to be shown, else what kind of a value it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        text = ""
    if 0 < len(text) < 60:
        return text
    kinds = (int, "a whole number that is far too large"), (str, "a long text"), (list, "a list"), (dict, "a table")
    return next((what for kind, what in kinds if isinstance(value, kind)), "no such thing")


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_path(value: str) -> bool:
    """Whether a text can name a file: it has no zero byte, and the person whose home it begins with is known."""
    try:
        Path(value).expanduser()
    except RuntimeError:
        return False
    return "\0" not in value


def _unknown(path: Path, text: str, key: str) -> ModelServerError:
    near = difflib.get_close_matches(key, KEYS, 1)
    fix = f"did you mean {near[0]}?" if near else f"the keys are: {', '.join(KEYS)}"
    return _wrong(path, f"{_place(text, key)}: there is no setting {key!r}", fix)


def _place(text: str, key: str) -> str:
    line = line_of(text, key)
    return f"line {line}" if line else "a line"


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _wrong(path, "is too large for a file of settings", "shorten it, or remove it")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}", "check its permissions") from None
    except UnicodeDecodeError:
        raise _wrong(path, "is no UTF-8 text", "save it as UTF-8") from None


def _absolute(settings: ModelSettings, folder: Path) -> ModelSettings:
    """Files are looked for beside the settings file."""
    from msgspec.structs import replace

    def full(name: str) -> str:
        return str(folder / Path(name).expanduser()) if name else ""

    return replace(settings, template=full(settings.template), mmproj=full(settings.mmproj))


def _wrong(path: Path, why: str, fix: str) -> ModelServerError:
    return ModelServerError(f"{path}: {why}", status=422, code="bad_settings", fix=fix)
