"""The kept logins: one file a server in the user's data folder, which only the user can read."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import LmagentError
from lmagent.mcp.spec import ServerSpec

EARLY = 30.0
"""Seconds before its end at which a token is refreshed."""

PATIENCE = 60.0
"""Seconds to wait for another process that refreshes the same login."""


Learn = Callable[[Iterable[str]], None]
"""Receives the secrets of a login, to keep them out of all texts."""


class LoginNeeded(LmagentError):
    """The server cannot be used until the user logs in."""

    def __init__(self, spec: ServerSpec, message: str) -> None:
        super().__init__(message, fix=command(spec))


class KeptLogin(Struct):
    """What a login gave, and what refreshing it needs.

    Attributes:
        client: the client's registration at the authorization server (RFC 7591).
        resource: the address that tokens are for (RFC 8707); empty if the server has no metadata.
        expires: the time at which the access token ends; 0 if the server did not say.
        wanted: scopes that the server asked for since; the next login includes them.
    """

    url: str
    access_token: str = ""
    refresh_token: str = ""
    expires: float = 0.0
    scope: str = ""
    client: dict[str, Any] = {}
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    resource: str = ""
    wanted: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        registration = (str(self.client.get(name, "")) for name in ("client_secret", "registration_access_token"))
        return (self.access_token, self.refresh_token, *registration)

    @property
    def is_fresh(self) -> bool:
        return bool(self.access_token) and (not self.expires or time.time() < self.expires - EARLY)


def command(spec: ServerSpec) -> str:
    """Return what the user types to log in."""
    from shlex import quote

    return f"lmagent mcp login {quote(spec.name)}"


def login_file(data: Path, spec: ServerSpec) -> Path:
    """Return the file of a server's login; servers of one address share it."""
    import hashlib

    return data / "mcp" / "logins" / f"{hashlib.sha256(spec.url.encode()).hexdigest()[:32]}.json"


def load(data: Path, spec: ServerSpec) -> KeptLogin | None:
    """Return the kept login; None if the user has not logged in.

    Raises LoginNeeded: the file is damaged, or not the user's alone: it names where tokens are sent.
    """
    path = login_file(data, spec)
    if why := _exposure(path):
        raise LoginNeeded(spec, f"the kept login of {spec.name} {why}: {path}")
    content = read_small(path)
    if content is None:
        return None
    try:
        kept = decode_json(content, KeptLogin)
    except (ValueError, LmagentError):
        raise LoginNeeded(spec, f"the kept login of {spec.name} is damaged: {path}") from None
    if kept.url != spec.url:
        raise LoginNeeded(spec, f"the kept login of {spec.name} is for another address: {path}")
    return kept


def _exposure(path: Path) -> str:
    """Return why a file cannot be trusted; empty if only the user can read and write it, or it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return "is open to other users" if found.st_mode & 0o077 else ""


def save(data: Path, spec: ServerSpec, kept: KeptLogin) -> None:
    """Keep a login. Raises ConfigError if it cannot be written."""
    write_private(login_file(data, spec), msgspec.json.encode(kept).decode())


def forget(data: Path, spec: ServerSpec) -> bool:
    """Delete a login; return False if nothing was kept."""
    path = login_file(data, spec)
    had = path.exists()
    path.unlink(missing_ok=True)
    return had


@asynccontextmanager
async def alone(data: Path, spec: ServerSpec) -> AsyncGenerator[None]:
    """Hold the login's lock: only its holder changes the login. Raises StoreError."""
    from anyio import CancelScope
    from anyio.to_thread import run_sync

    from lmagent.store.lock import locked

    busy = f"another process renews the login of {spec.name}"
    lock = locked(login_file(data, spec).with_suffix(".lock"), busy, patience=PATIENCE)
    await run_sync(lock.__enter__)
    try:
        yield
    finally:
        with CancelScope(shield=True):
            await run_sync(lock.__exit__, None, None, None)
