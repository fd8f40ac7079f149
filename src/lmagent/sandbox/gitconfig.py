"""Git's config format, and which of its keys make git run something.

The parser takes what git's own takes (`config.c`, git 2.39), byte by byte, and refuses everything else: what it cannot
read, git cannot read either, or it is a way to show this program one thing and git another. The list of keys
is that of `git help config`, with a wildcard for those that come after it and for the tools that extend git.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

MOST_BYTES = 1 << 20
"""A larger config file is no config file."""


class ConfigDamagedError(ValueError):
    """It is no file that git could read."""


class Entry(NamedTuple):
    """A line of a config.

    Attributes:
        section: lower case.
        sub: the subsection, None where there is none.
        key: lower case.
        value: None where the key stands alone, which means true.
    """

    section: str
    sub: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        """As git writes it: `section.sub.key`."""
        return ".".join(part for part in (self.section or None, self.sub, self.key) if part is not None)


_ALPHA = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY = _ALPHA | frozenset(b"0123456789-")
_SPACE = frozenset(b" \t\n\r")
_END = 10
_ESCAPES = {ord("t"): 9, ord("b"): 8, ord("n"): 10, ord("\\"): 92, ord('"'): 34}


def parse(data: bytes) -> list[Entry]:
    """The entries in their order.

    Raises:
        ConfigDamagedError: git could not read it (or reads up to the damage and then stops).
    """
    if len(data) > MOST_BYTES or b"\0" in data:
        raise ConfigDamagedError("too large, or holds a NUL")
    return _Reader(data).entries()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n") + b"\n"
        self.at = 0

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        section, sub = "", None
        while self.at < len(self.data):
            char = self._next()
            if char in _SPACE:
                continue
            if char in b"#;":
                self._comment()
            elif char == ord("["):
                section, sub = self._header()
            elif char in _ALPHA:
                found.append(Entry(section, sub, *self._assignment()))
            else:
                raise ConfigDamagedError(f"byte {char} at {self.at}")
        return found

    def _next(self) -> int:
        if self.at >= len(self.data):
            raise ConfigDamagedError("ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def _comment(self) -> None:
        self.at = self.data.index(b"\n", self.at) + 1

    def _header(self) -> tuple[str, str | None]:
        name = bytearray()
        while True:
            char = self._next()
            if char == ord("]"):
                section, dot, old = _text(name).lower().partition(".")
                return section, old if dot else None
            if char in _SPACE:
                section, dot, old = _text(name).lower().partition(".")
                return section, old + dot + self._subsection(char)
            if char not in _KEY and char != ord("."):
                raise ConfigDamagedError("a section's name")
            name.append(char)

    def _subsection(self, char: int) -> str:
        while char in _SPACE:
            if char == _END:
                raise ConfigDamagedError("a section's name")
            char = self._next()
        if char != ord('"'):
            raise ConfigDamagedError("a section's name")
        name = bytearray()
        while (char := self._next()) != ord('"'):
            if char == ord("\\"):
                char = self._next()
            if char == _END:
                raise ConfigDamagedError("a section's name")
            name.append(char)
        if self._next() != ord("]"):
            raise ConfigDamagedError("a section's name")
        return _text(name)

    def _assignment(self) -> tuple[str, str | None]:
        start = self.at - 1
        while (char := self._next()) in _KEY:
            pass
        key = _text(self.data[start : self.at - 1]).lower()
        while char in b" \t":
            char = self._next()
        if char == _END:
            return key, None
        if char != ord("="):
            raise ConfigDamagedError("a key")
        return key, self._value()

    def _value(self) -> str:
        value, trimmed, quoted = bytearray(), 0, False
        while True:
            char = self._next()
            if char == _END:
                if quoted:
                    raise ConfigDamagedError("a quote that is not closed")
                return _text(value[:trimmed])
            if char in _SPACE and not quoted:
                if value:  # blanks before the value are dropped, those after it by `trimmed`
                    value.append(char)
                continue
            if char in b"#;" and not quoted:
                self._comment()
                return _text(value[:trimmed])
            if char == ord("\\"):
                char = self._next()
                if char == _END:
                    trimmed = len(value)
                    continue
                if char not in _ESCAPES:
                    raise ConfigDamagedError("an escape")
                char = _ESCAPES[char]
            elif char == ord('"'):
                quoted = not quoted
                trimmed = len(value)
                continue
            value.append(char)
            trimmed = len(value)


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
"""Section → keys that run something, or that change what is run, or where git reads its orders and its files."""

SUFFIXES = tuple(_ENDINGS.split())
"""How the names of keys end that nobody told us about."""

_HARMLESS = frozenset({"", "cat", ":", "true", "false", "yes", "no", "on", "off", "0", "1"})
_PATHS: dict[str, frozenset[str]] = {
    # What `cat` or `true` would be a folder's or a file's name in.
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


def runs_something(entries: Iterable[Entry], outside: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Name and value of those that could make git run a program, or read its orders from elsewhere.

    Args:
        entries: of one config.
        outside: whether a `core.worktree` leads out of the workspace. (Submodules have one that does not.)
    """
    return [(entry.name, entry.value) for entry in entries if entry.value is not None and _runs(entry, outside)]


def _runs(entry: Entry, outside: Callable[[str], bool]) -> bool:
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
