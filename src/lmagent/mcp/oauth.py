"""OAuth for servers at an address: `auth_of` uses a kept login, `login` asks the user for one, `logout` forgets it.

`auth_of` never asks the user: a server that needs a login answers 401, and its state becomes `login`. The SDK's own
client performs a login; `login/auth.py` uses the tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.errors import LmagentError
from lmagent.mcp.login import kept as store
from lmagent.mcp.login.kept import KeptLogin, Learn
from lmagent.mcp.spec import ServerSpec

if TYPE_CHECKING:
    import httpx2

Say = Callable[[str], None]
OpenBrowser = Callable[[str], bool]
"""Opens an address, and returns whether a browser was started."""

Pasted = Callable[[], Awaitable[str]]
"""Waits for a line of the user: the address to which the browser was sent."""


class LoginStep(Struct, frozen=True):
    """What the user does to log in: open the address; with `code`, on any device, and enter the code there."""

    address: str
    code: str = ""


Show = Callable[[LoginStep], None]
"""Shows the step, for a surface that has buttons and no lines."""


def auth_of(spec: ServerSpec, data: Path, learn: Learn = lambda _tokens: None) -> httpx2.Auth | None:
    """Return what adds the kept login to requests; None for a program, or with an `Authorization` of the user's own.

    `learn` receives the tokens before they are sent, and again when they are renewed.

    Raises LoginNeeded: the kept login is damaged.
    """
    if not spec.url or any(name.lower() == "authorization" for name in spec.headers):
        return None
    kept = store.load(data, spec)
    if kept is None and not is_unattended(spec):
        return None
    from lmagent.mcp.login.auth import KeptAuth

    return KeptAuth(spec, data, kept or KeptLogin(spec.url), learn)


async def login(
    spec: ServerSpec,
    data: Path,
    say: Say,
    open_browser: OpenBrowser | None,
    pasted: Pasted | None = None,
    show: Show | None = None,
) -> None:
    """Log in to a server and keep the result. It takes at most five minutes.

    Args:
        say: prints a line for the user.
        open_browser: None without a browser; then the device flow is used where the server offers it.
        pasted: reads the address that the browser shows at the end, if it runs on another machine.

    Raises LmagentError: the login failed, was refused or took too long; the text says what to type.
    """
    from lmagent.mcp.login.flow import Flow

    wanted = ""
    try:
        kept = store.load(data, spec)
        wanted = kept.wanted if kept else ""
    except store.LoginNeeded:
        pass  # it is replaced
    made = await Flow(spec, say, open_browser, pasted, wanted, show).run()
    async with store.alone(data, spec):
        store.save(data, spec, made)


async def logout(spec: ServerSpec, data: Path, say: Say) -> bool:
    """Forget a server's login, and have its tokens revoked; return False if nothing was kept. Raises StoreError.

    `say` prints why the tokens may still hold.
    """
    if not store.login_file(data, spec).exists():
        return False
    async with store.alone(data, spec):  # a process that renews it now would keep it again
        try:
            kept = store.load(data, spec)
        except store.LoginNeeded:
            kept = None  # it is damaged, and names no place that could be trusted
        was_kept = store.forget(data, spec)
    if kept is not None and kept.revocation_endpoint:
        from lmagent.mcp.login.auth import revoke

        if why := await revoke(spec, kept):
            say(f"the login to {spec.name} is forgotten here, but its token may hold until it expires: {why}")
    return was_kept


def is_logged_in(spec: ServerSpec, data: Path) -> bool:
    """Return whether a login is kept, without asking the server whether it still holds."""
    try:
        return (kept := store.load(data, spec)) is not None and bool(kept.access_token)
    except LmagentError:
        return False


def is_unattended(spec: ServerSpec) -> bool:
    """Return whether a login needs no user: the entry holds the client's own credentials."""
    return spec.oauth.grant == "client_credentials"
