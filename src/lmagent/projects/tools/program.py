"""Program: a tool that is an executable, by the manifest beside it: `tools/NAME.json`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from lmagent.core.errors import ConfigError
from lmagent.projects.tools.schema import declared_schema
from lmagent.projects.tools.spec import Declared
from lmagent.tools.sanitize import one_line

KEYS = ("name", "description", "parameters", "command")


def read_manifest(source: bytes, where: str, folder: Path) -> Declared:
    """Return the tool of a manifest. Raise ConfigError."""
    try:
        manifest = json.loads(source)
    except (ValueError, RecursionError) as wrong:
        raise ConfigError(f"{where} is no JSON: {wrong}", fix=f"write an object with {', '.join(KEYS)}") from None
    if not isinstance(manifest, dict):
        raise ConfigError(f"{where} is no JSON object", fix=f"write one with {', '.join(KEYS)}")
    known = cast("dict[str, Any]", manifest)
    if unknown := [key for key in known if key not in KEYS]:
        raise ConfigError(f"{where} has the unknown key {one_line(unknown[0], 40)!r}", fix=f"keys: {', '.join(KEYS)}")
    command = known.get("command")
    given = cast("list[Any]", command) if isinstance(command, list) else []
    if not given or not all(isinstance(word, str) and word and "\0" not in word for word in given):
        raise ConfigError(f"{where} has no command", fix='write "command": ["./tools/convert.sh"]')
    schema = declared_schema(known.get("parameters", {}), f"the parameters in {where}")
    argv = tuple(located(word, folder) for word in given)
    if missing := [word for word in argv if word.startswith("./")]:
        raise ConfigError(f"the command names {missing[0]}, which is no file of the project", fix="correct the path")
    program = Path(argv[0])
    if program.is_absolute() and program.is_relative_to(folder) and not os.access(program, os.X_OK):
        raise ConfigError(f"the command of {where} cannot be run: {given[0]}", fix=f"chmod +x {given[0]}")
    return Declared(str(known.get("name", "")), str(known.get("description", "")), schema, "its manifest", argv=argv)


def located(word: str, folder: Path) -> str:
    """Return a word of a command; one that names a file of the project gets that file's path."""
    path = Path(os.path.normpath(folder / word))
    return str(path) if word and path.is_relative_to(folder) and path.is_file() else word
