"""Files: the Markdown files that are slash commands, in the workspace and among the user's own, and what they say.

The form is that of Claude Code: front matter with `description` and `argument-hint`, and a text with `$ARGUMENTS`,
`$1` to `$9`, `` !`command` `` and `@file`. `allowed-tools` and `model` are not used: the permission rules and the model
of the session hold, whatever a file says.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path

from msgspec import Struct

from lmagent.config.paths import config_dir
from lmagent.tools.plain import NotPlain, names_in, read_plain
from lmagent.tools.sanitize import one_line

LONGEST = 50_000  # characters of a command; a longer text is something else
SHOWN = 80  # characters of a description that are shown
DEEPEST, MOST = 4, 200  # folders below each other; commands and folders of a place

RUNS = re.compile(r"(?<![\w!`\\])!`([^`\n]+)`")

_FOLDERS = ((".lmagent", "commands"), (".claude", "commands"))
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FRONT = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^([A-Za-z_-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)


class CommandFile(Struct, frozen=True):
    """A file that is a command: `parts` below `root`; `own` if it is the user's, and not the workspace's."""

    name: str
    root: Path
    parts: tuple[str, ...]
    own: bool

    @property
    def path(self) -> str:
        """The file as messages name it."""
        return str(self.root.joinpath(*self.parts)) if self.own else "/".join(self.parts)


class CommandText(Struct, frozen=True):
    """The content of a command's file."""

    description: str
    usage: str
    body: str


def command_files(workspace: Path) -> dict[str, CommandFile]:
    """Return the files by the names of their commands: `sub/fix.md` is `sub:fix`. The user's own come first."""
    found = dict[str, CommandFile]()
    places = [_within(config_dir(os.environ), ("commands",), ("commands",), own=True)]
    places += [_within(workspace, folder, folder, own=False) for folder in _FOLDERS]
    for place in places:
        for file in islice(place, MOST):  # a key that is typed looks through them
            if file is not None:
                found.setdefault(file.name, file)
    return found


def _within(root: Path, top: tuple[str, ...], folder: tuple[str, ...], *, own: bool) -> Iterator[CommandFile | None]:
    """Yield the commands of a folder and of those in it, and None for each folder; links to these are not followed."""
    yield None
    with suppress(NotPlain):
        for name in names_in(root, folder)[:MOST]:
            if name.endswith(".md") and _NAME.fullmatch(stem := name.removesuffix(".md")):
                yield CommandFile(":".join((*folder[len(top) :], stem)), root, (*folder, name), own)
            elif (
                _NAME.fullmatch(name) and len(folder) - len(top) < DEEPEST and _is_folder(root.joinpath(*folder, name))
            ):
                yield from _within(root, top, (*folder, name), own=own)


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


def load(file: CommandFile) -> CommandText | None:
    """Return the content; None if the file is gone or too long. Raise NotPlain for a link, a special or binary file."""
    found = read_plain(file.root, file.parts, LONGEST)
    if found is None or found.more:
        return None
    if "\0" in found.text:
        raise NotPlain("no text")
    return parse(found.text)


@lru_cache(maxsize=256)  # a completion asks at every key
def parse(text: str) -> CommandText:
    """Read a command's text. Its front matter is read line by line: `argument-hint: [a] [b]` is no YAML."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    front = _FRONT.match(text)
    body = text[front.end() :] if front else text
    fields = {name.lower(): _value(value) for name, value in _FIELD.findall(front[1])} if front else {}
    first = next((line.strip("# ") for line in body.splitlines() if line.strip()), "")
    description = fields.get("description") or first
    return CommandText(one_line(description, SHOWN), one_line(fields.get("argument-hint", ""), SHOWN), body.strip())


def _value(text: str) -> str:
    value = " ".join(text.split())
    value = re.sub(r"^[|>][+-]? ", "", value)
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
