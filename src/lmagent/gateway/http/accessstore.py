"""Where logins are kept: in the user's data folder or, with `cluster_url`, in the cluster's database."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

from lmagent.config.settings import Settings
from lmagent.core.errors import StoreError
from lmagent.store.files import FILE_MODE, append_lines, make_private, read_regular, write_new

SecretName = Literal["token", "cookie.key", "pin"]

Change = Callable[[dict[str, float], float], float]
"""Receives the times at which used tries are whole again, by name, and the time now; changes the former."""


class AccessStore(Protocol):
    """What gateways share that let the same browsers and programs in. Its methods may be called from all threads.

    Errors: StoreError if it cannot be read or written.
    """

    def keep(self, name: SecretName, fresh: str) -> str:
        """Return the secret of that name; it becomes `fresh` if it does not exist."""
        ...

    def revoke(self, number: str, seconds: float) -> None:
        """Revoke a cookie that expires within so many seconds."""
        ...

    def is_revoked(self, number: str) -> bool:
        """Tell whether a cookie was revoked, also by another gateway. The database is not waited for."""
        ...

    def add_link(self, digest: bytes, seconds: float) -> None:
        """Let a login link be used once within so many seconds."""
        ...

    def use_link(self, digest: bytes) -> bool:
        """Use a link up; return whether it could be used."""
        ...

    def share_tries(self, change: Change) -> float:
        """Return the result of `change` on the tries that all gateways share; no other gateway changes them meanwhile.

        It is called a second time if the database was lost. Return 0 without it if no tries are shared.
        """
        ...


def access_store(settings: Settings) -> AccessStore:
    """Return where these settings keep logins. Raise LmagentError if the cluster's database cannot be used."""
    if not settings.cluster_url:
        return AccessFiles(settings.agent_data_dir / "web")
    from lmagent.cluster.access import AccessTables  # only with PostgreSQL
    from lmagent.cluster.member import member_at

    tables = AccessTables(member_at(settings.cluster_url).database)
    atexit.register(tables.close)
    return tables


class AccessFiles:
    """Token, cookie key and the numbers of revoked cookies as files that their owner alone can read.

    The PIN is new at each start. Links and tries belong to one process.
    """

    def __init__(self, folder: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._links: dict[bytes, float] = {}

    def keep(self, name: SecretName, fresh: str) -> str:
        return fresh if name == "pin" else _kept(self._folder / name, fresh)

    def revoke(self, number: str, seconds: float) -> None:
        file = self._folder / "returned"
        try:
            append_lines(file, f"{number}\n".encode())
        except OSError as error:
            text = f"{file} cannot be written: {error.strerror}"
            raise StoreError(text, fix="free some disk, then try again") from None

    def is_revoked(self, number: str) -> bool:
        file = self._folder / "returned"
        try:
            return number in file.read_text("utf-8", "replace").split()
        except FileNotFoundError:
            return False
        except OSError as error:
            fix = "look at its owner and mode; programs with the token are let in"
            raise StoreError(f"{file} cannot be read: {error.strerror}", fix=fix) from None

    def add_link(self, digest: bytes, seconds: float) -> None:
        self._links[digest] = self._monotonic() + seconds

    def use_link(self, digest: bytes) -> bool:
        return self._monotonic() <= self._links.pop(digest, 0.0)

    def share_tries(self, change: Change) -> float:
        return 0.0


def _kept(file: Path, fresh: str) -> str:
    """Return the file's content, created from `fresh` if missing. If several processes create it at once, one wins."""
    try:
        make_private(file.parent)
        if not file.exists():
            draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
            write_new(draft, fresh.encode())
            try:
                with suppress(FileExistsError):
                    os.link(draft, file)
            finally:
                draft.unlink(missing_ok=True)
        known = read_regular(file, 4096).decode("ascii", "replace").strip()
        file.chmod(FILE_MODE)
    except OSError as error:
        fix = "look at the folder's owner and mode"
        raise StoreError(f"{file} cannot be kept: {error.strerror}", fix=fix) from None
    if not known:
        raise StoreError(f"{file} is empty", fix="remove it: it is made anew, and browsers have to log in again")
    return known
