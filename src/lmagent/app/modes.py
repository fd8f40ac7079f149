"""Modes: the permission modes that the user gave to sessions, in the user's data folder.

A session's log may come with a checkout, so its mode proves nothing. `modes.json` records the user's choice: it holds
for the next process that resumes the session, without the flag.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError
from lmagent.core.events import Event, ModeChanged, PermissionMode

if TYPE_CHECKING:
    from lmagent.engine.session import Session

FILE = "modes.json"

MOST = 500
"""Sessions that are remembered; an older one is resumed in the mode of the settings."""


class GivenModes:
    """The modes given to sessions of one workspace."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self._path = folder / FILE
        self._workspace = workspace

    def of(self, session: str, default: PermissionMode) -> PermissionMode:
        return self._load().get(self._key(session), default)

    def inherit(self, source: str, fork: str) -> None:
        """Give a copy of a session the mode that the user gave to the original."""
        if mode := self._load().get(self._key(source)):
            self._keep(fork, mode)

    def watch(self, session: Session, *, given: bool) -> None:
        """Keep the mode of a session, now and at each change. `given`: its present mode comes from the command line."""
        name = session.state.session
        if given or session.state.mode == "auto":
            self._keep(name, session.state.mode)

        def listen(event: Event) -> None:
            if isinstance(event, ModeChanged):
                self._keep(name, event.mode)

        session.listen(listen)

    def _keep(self, session: str, mode: PermissionMode) -> None:
        known, key = self._load(), self._key(session)
        known.pop(key, None)
        known[key] = mode
        newest = dict(list(known.items())[-MOST:])
        with suppress(OSError, ConfigError):  # the session is resumed in the mode of the settings
            write_private(self._path, msgspec.json.format(msgspec.json.encode(newest)).decode())

    def _load(self) -> dict[str, PermissionMode]:
        try:
            return decode_json(read_small(self._path) or b"{}", dict[str, PermissionMode])
        except (OSError, ConfigError, msgspec.DecodeError):
            return {}

    def _key(self, session: str) -> str:
        return f"{self._workspace} {session}"
