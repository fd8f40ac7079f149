"""Reads git's config format, and knows which of its keys make git run something.

The reader takes the text that git's own takes (`config.c`, git 2.39) and refuses everything else: text that it cannot
read, git cannot read either, or it is a way to show this program something else than git. The list of keys is that of
`git help config`, with a wildcard for newer keys and for the tools that extend git.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

MOST_BYTES = 1 << 20
"""A larger config file is no config file."""


class ConfigDamagedError(ValueError):
    """Git could not read the file."""


class GitConfigEntry(NamedTuple):
    """An entry of a config: section and key in lower case; a value of None means true."""

    section: str
    sub: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        return ".".join(part for part in (self.section or None, self.sub, self.key) if part is not None)


_HEADER = re.compile(rb'\[([A-Za-z0-9.-]*+)(?:[ \t\r]++"((?:[^"\\\n]|\\[^\n])*+)")?\]')
_KEY = re.compile(rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+(=?)")
_VALUE = re.compile(
    rb"""((?:[^"\\#;\n] | \\[tbn"\\\n] | "(?:[^"\\\n] | \\[tbn"\\\n])*+")*+)  (?:[#;][^\n]*+)? \n""", re.VERBOSE
)
_SKIPPED = re.compile(rb"(?:[ \t\n\r]|[#;][^\n]*+\n)*+")
_PIECE = re.compile(rb'\\(.)|(")|([ \t\r])|[^\\" \t\r]+', re.DOTALL)
_ESCAPES = {b"t": b"\t", b"b": b"\b", b"\n": b""}


def parse(data: bytes) -> list[GitConfigEntry]:
    """Return the entries in their order.

    Raises:
        ConfigDamagedError: git could not read the file, or reads up to the damage and then stops.
    """
    if len(data) > MOST_BYTES or b"\0" in data:
        raise ConfigDamagedError("too large, or holds a NUL")
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n") + b"\n"
    found: list[GitConfigEntry] = []
    section, sub, at = "", None, 0
    while (at := _match(_SKIPPED, data, at).end()) < len(data):
        if data[at] == ord("["):
            header = _match(_HEADER, data, at)
            section, dot, old = _text(header[1]).lower().partition(".")
            sub = old if dot else None
            if header[2] is not None:
                sub = old + dot + re.sub(r"\\(.)", r"\1", _text(header[2]))
            at = header.end()
            continue
        key = _match(_KEY, data, at)
        value = _match(_VALUE, data, key.end())
        if not key[2] and value[0] != b"\n":
            raise ConfigDamagedError("a key without a value that is followed by text")
        found.append(GitConfigEntry(section, sub, _text(key[1]).lower(), _unquoted(value[1]) if key[2] else None))
        at = value.end()
    return found


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> re.Match[bytes]:
    found = pattern.match(data, at)
    if found is None:
        raise ConfigDamagedError(f"byte {at} is not what git expects")
    return found


def _unquoted(raw: bytes) -> str:
    """Return a value without its quotes and escapes, and without unquoted blanks at its ends."""
    value, kept, quoted = bytearray(), 0, False
    for piece in _PIECE.finditer(raw):
        quoted ^= piece[2] is not None
        blank = piece[3] is not None and not quoted
        if piece[1] is not None:
            value += _ESCAPES.get(piece[1], b"\n" if piece[1] == b"n" else piece[1])
        elif piece[2] is None and (value or not blank):
            value += piece[0]
        kept = kept if blank else len(value)
    return _text(value[:kept])


def _text(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "surrogateescape")


ALL = frozenset({"*"})
_CORE = (
    "fsmonitor hookspath sshcommand pager editor askpass gitproxy alternaterefscommand attributesfile "
    "virtualfilesystem worktree"
)
_ENDINGS = (
    "command cmd program prog helper driver process textconv editor pager hook hookpath hookspath askpass viewer "
    "browser tunnel exec script"
)
COMMANDS: dict[str, frozenset[str]] = {
    "alias": ALL,
    "browser": frozenset({"cmd", "path"}),
    "core": frozenset(_CORE.split()),
    "credential": frozenset({"helper"}),
    "diff": frozenset({"external", "command", "textconv"}),
    "difftool": frozenset({"cmd", "path"}),
    "filter": frozenset({"clean", "smudge", "process"}),
    "gc": frozenset({"recentobjectshook"}),
    "gpg": frozenset({"program", "defaultkeycommand"}),
    "guitool": frozenset({"cmd"}),
    "help": frozenset({"browser"}),
    "hook": ALL,
    "http": frozenset({"proxy"}),
    "imap": frozenset({"tunnel"}),
    "include": frozenset({"path"}),
    "includeif": frozenset({"path"}),
    "init": frozenset({"templatedir"}),
    "instaweb": frozenset({"httpd", "browser", "modulepath"}),
    "interactive": frozenset({"difffilter"}),
    "lfs": frozenset({"path", "args", "clean", "smudge", "standalonetransferagent"}),
    "man": frozenset({"viewer", "cmd", "path"}),
    "merge": frozenset({"driver"}),
    "mergetool": frozenset({"cmd", "path"}),
    "pager": ALL,
    "protocol": frozenset({"allow"}),
    "remote": frozenset({"uploadpack", "receivepack", "vcs", "proxy"}),
    "sendemail": frozenset({"smtpserver", "sendmailcmd", "tocmd", "cccmd", "headercmd"}),
    "sequence": frozenset({"editor"}),
    "tar": frozenset({"command"}),
    "trailer": frozenset({"command", "cmd"}),
    "uploadpack": frozenset({"packobjectshook"}),
    "url": frozenset({"insteadof", "pushinsteadof"}),
    "web": frozenset({"browser"}),
}
"""Section → keys that make git run a program, or change which program it runs or where it reads config and files."""

SUFFIXES = tuple(_ENDINGS.split())
"""Endings of unknown keys that make git run something."""

_HARMLESS = frozenset({"", "cat", ":", "true", "false", "yes", "no", "on", "off", "0", "1"})
_PATHS: dict[str, frozenset[str]] = {
    # `cat` or `true` would be the name of a folder or file here.
    "core.hookspath": frozenset({"/dev/null"}),
    "core.attributesfile": frozenset({"/dev/null"}),
    "init.templatedir": frozenset({""}),
    "include.path": frozenset[str](),
    "includeif.path": frozenset[str](),
    "url.insteadof": frozenset[str](),
    "url.pushinsteadof": frozenset[str](),
    "protocol.allow": frozenset({"never"}),
    "remote.vcs": frozenset({""}),
}
_HELPER_URL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")


def runs_something(entries: Iterable[GitConfigEntry], outside: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Return name and value of the entries that could make git run a program, or read config from elsewhere.

    `outside` returns whether a `core.worktree` leads out of the workspace. (That of a submodule does not.)
    """
    return [(entry.name, entry.value) for entry in entries if entry.value is not None and _runs(entry, outside)]


def _runs(entry: GitConfigEntry, outside: Callable[[str], bool]) -> bool:
    value = entry.value or ""
    if value.startswith("!") or _HELPER_URL.match(value):
        return True
    keys = COMMANDS.get(entry.section, frozenset[str]())
    if keys is not ALL and entry.key not in keys and not entry.key.endswith(SUFFIXES):
        return False
    plain = f"{entry.section}.{entry.key}"
    if plain == "core.worktree":
        return outside(value)
    harmless = _PATHS.get(plain, _HARMLESS)
    return (value if plain in _PATHS else value.lower()) not in harmless
