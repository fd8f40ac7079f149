"""Access: the PIN logs a browser in, the bearer token lets programs in, a link logs in once; and the routes for that.

Token, cookie key and the numbers of revoked cookies are files in the user's data folder, readable by their owner alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from lmagent import __version__
from lmagent.core.errors import ConfigError, StoreError
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes, json
from lmagent.store.files import FILE_MODE, append_lines, make_private, read_regular, write_new

ROUTES = Routes()
# The sender of a request: a logged-in browser, a program with the bearer token, or anyone (for open routes).
Caller = Literal["page", "token", "anyone"]

COOKIE = "lmagent"

AGE = 30 * 86400  # seconds until a browser's login expires
LINK = 60.0  # seconds until a login link expires

# Marks a device that has logged in before. It gives no access, and logging out does not remove it.
DEVICE_COOKIE = "lmagent-device"

DEVICE_AGE = 90 * 86400

LOGIN = "/api/login"  # route that takes the PIN; the device cookie is sent only here

NO_COOKIES: Mapping[str, str] = {}

WEAK = 16  # characters below which a token can be guessed: the number of tries is not limited


class Keys(Struct, frozen=True):
    """Secrets that give access; `returned` is the file with the numbers of revoked cookies."""

    token: str
    signer: bytes
    returned: Path


class Access:
    """Identifies the sender of a request; issues and revokes cookies."""

    def __init__(
        self,
        keys: Keys,
        pin: str,
        *,
        secure: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pin = pin
        self.token = keys.token
        self._keys = keys
        self._secure = secure
        self._clock = clock
        self._monotonic = monotonic
        self._tries = Tries(monotonic)
        self._links: dict[bytes, float] = {}

    def caller(self, authorization: bytes, cookies: Mapping[str, str]) -> Caller:
        """Return the sender of these headers. A bearer token counts before any cookie."""
        if authorization:
            scheme, _, given = authorization.partition(b" ")
            return "token" if scheme.lower() == b"bearer" and same(given.strip(), self.token.encode()) else "anyone"
        return "page" if self._is_ours(cookies.get(COOKIE, "")) else "anyone"

    def login(self, pin: str, address: str = "", cookies: Mapping[str, str] = NO_COOKIES) -> tuple[str, str]:
        """Return the `Set-Cookie` values for a correct PIN: the device's, then the login's.

        A device that has logged in before has tries of its own.
        """
        device = cookies.get(DEVICE_COOKIE, "")
        device = device if self._is_signed("device", device, DEVICE_AGE) else ""
        wait = self._tries.take(address, device)
        if wait:
            text = "too many PINs were tried; this one was not looked at"
            after = str(ceil(wait))
            fix = f"try again in {after} s, or use the token"
            raise Refusal(429, "throttled", text, fix=fix, headers={"retry-after": after})
        if not same(pin.encode(), self.pin.encode()):
            raise Refusal(401, "wrong_pin", "this is not the PIN", fix="the terminal showed it when lmagent started")
        self._tries.give_back(address, device)
        return self._let_in()

    def key_of(self, caller: Caller) -> bytes:
        """Return a secret that identifies the caller; it changes with the token, and reveals nothing of it."""
        who = f"{caller} {self.token if caller == 'token' else ''}"
        return hmac.digest(self._keys.signer, f"caller {who}".encode(), "sha256")

    def link(self) -> str:
        """Return a ticket that logs a browser in once, within `LINK` seconds."""
        ticket = secrets.token_urlsafe(24)
        self._links[_digest(ticket.encode())] = self._monotonic() + LINK
        return ticket

    def follow(self, ticket: str) -> tuple[str, str]:
        """Return the `Set-Cookie` values for a ticket, as `login` does."""
        ends = self._links.pop(_digest(ticket.encode()), 0.0)
        if self._monotonic() > ends:
            text = f"this link was used before, or is older than {LINK:.0f} s"
            raise Refusal(404, "link_gone", text, fix="open the page and enter the PIN")
        return self._let_in()

    def logout(self, cookies: Mapping[str, str]) -> str:
        """Revoke the browser's cookie, copies included, and return the `Set-Cookie` that removes it."""
        value = cookies.get(COOKIE, "")
        if self._is_ours(value):
            self._revoke(value.partition("~")[0])
        return self._cookie(COOKIE, "", 0)

    def _let_in(self) -> tuple[str, str]:
        device = self._cookie(DEVICE_COOKIE, self._signed("device"), DEVICE_AGE, LOGIN)
        return device, self._cookie(COOKIE, self._signed("cookie"), AGE)

    def _signed(self, kind: str) -> str:
        body = f"{int(self._clock()):x}.{secrets.token_urlsafe(12)}"
        return f"{body}~{self._signature(kind, body)}"

    def _signature(self, kind: str, body: str) -> str:
        return urlsafe_b64encode(hmac.digest(self._keys.signer, f"{kind} {body}".encode(), "sha256")).decode()

    def _is_signed(self, kind: str, value: str, age: float) -> bool:
        """Check signature, kind and age of a cookie."""
        body, _, signature = value.partition("~")
        if not (value.isascii() and signature and same(signature.encode(), self._signature(kind, body).encode())):
            return False
        return self._clock() - int(body.partition(".")[0], 16) < age

    def _is_ours(self, value: str) -> bool:
        return self._is_signed("cookie", value, AGE) and not self._is_revoked(value.partition("~")[0])

    def _revoke(self, number: str) -> None:
        file = self._keys.returned
        try:
            append_lines(file, f"{number}\n".encode())
        except OSError as error:
            text = f"{file} cannot be written: {error.strerror}"
            raise StoreError(text, fix="free some disk, then try again") from None

    def _is_revoked(self, number: str) -> bool:
        """Tell whether a cookie was revoked, also by another gateway of the user."""
        file = self._keys.returned
        try:
            return number in file.read_text("utf-8", "replace").split()
        except FileNotFoundError:
            return False
        except OSError as error:
            fix = "look at its owner and mode; programs with the token are let in"
            raise StoreError(f"{file} cannot be read: {error.strerror}", fix=fix) from None

    def _cookie(self, name: str, value: str, age: int, path: str = "/") -> str:
        secure = "; Secure" if self._secure else ""
        return f"{name}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"


def same(given: bytes, right: bytes) -> bool:
    """Compare in constant time, and by digests, so that the time does not reveal the length."""
    return hmac.compare_digest(_digest(given), _digest(right))


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def new_pin() -> str:
    return f"{secrets.randbelow(1_000_000):06d}"


def keys_in(folder: Path, token: str = "") -> Keys:
    """Return the keys in `folder`; missing ones are created. A `token` from the settings is used but not saved."""
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("AGENT_TOKEN has characters that no request can carry", fix="use letters and digits")
    return Keys(
        token or _kept(folder / "token", f"lmw-{secrets.token_urlsafe(32)}"),
        _kept(folder / "cookie.key", secrets.token_urlsafe(32)).encode(),
        folder / "returned",
    )


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


# --- routes -----------------------------------------------------------------------------------------------------------


class Login(Struct, frozen=True):
    """The PIN, as `lmagent web` printed it."""

    pin: Annotated[str, Meta(max_length=256)]


class Done(Struct, frozen=True):
    ok: bool = True


class Me(Struct, frozen=True):
    """The caller, and the gateway's version, workspace, model server and defaults of new sessions.

    `agent` is that of new sessions, and `title` its name for display.
    """

    caller: Caller
    version: str
    workspace: str
    model: str
    mode: PermissionMode
    endpoint: str
    models_url: bool
    agent: str
    title: str


@ROUTES.post(LOGIN, "Log a browser in", answer=Done, is_open=True, limit=10_000, place="gateway")
async def _login(call: Call, body: Login) -> Response:
    request, answer = call.request, json(Done())
    address = request.client.host if request.client is not None else ""
    for cookie in call.access.login(body.pin, address, request.cookies):
        answer.headers.append("set-cookie", cookie)
    return answer


@ROUTES.post("/api/logout", "Log the browser out", answer=Done, place="gateway")
async def _logout(call: Call) -> Response:
    answer = json(Done())
    answer.headers["set-cookie"] = call.access.logout(call.request.cookies)
    return answer


@ROUTES.get(
    "/open/{ticket}",
    "Log a browser in by a link that works once",
    status=303,
    media="text/html",
    is_open=True,
    place="gateway",
)
async def _open(call: Call) -> Response:
    if call.request.method == "HEAD":  # a link preview must not use the link up
        return Response(media_type="text/html")
    try:
        cookies = call.access.follow(call.path["ticket"])
    except Refusal as refusal:
        if "text/html" not in call.request.headers.get("accept", ""):
            raise
        page = f"<!doctype html><title>lmagent</title><p>{refusal.message}. <a href='/'>Enter the PIN</a></p>"
        return HTMLResponse(page, refusal.status)
    answer = RedirectResponse("/", 303)
    for cookie in cookies:
        answer.headers.append("set-cookie", cookie)
    return answer


@ROUTES.get("/healthz", "Say that the gateway answers", media="text/plain", is_open=True, place="gateway")
async def _health(_: Call) -> Response:
    return PlainTextResponse("ok")  # open to anyone, so it says nothing else


@ROUTES.get("/api/me", "Say who asks, and what serves", place="gateway")
async def _me(call: Call) -> Me:
    host = call.gateway.host
    agent, named = host.parts(host.named).agent, host.named
    return Me(
        caller=call.caller,
        version=__version__,
        workspace=call.gateway.place,
        model=agent.model,
        mode=host.mode_of(named),
        endpoint=host.settings.endpoint,
        models_url=host.replay is None,
        agent=agent.name,
        title=(named.title if named is not None else "") or agent.name,
    )


# --- tries of the PIN -------------------------------------------------------------------------------------------------


class Rate(Struct, frozen=True):
    """A limit: at most `burst` at once, and one more every `every` seconds."""

    burst: int
    every: float


# Tries of all unknown clients together: guessing half of a million PINs takes at least eleven days.
STRANGERS = Rate(10, 2.0)

ADDRESS = Rate(5, 10.0)  # the share of one address: four addresses that guess all the time leave some tries to others
DEVICES = Rate(5, 2.0)  # tries of all devices that have logged in before, in addition
DEVICE = Rate(3, 10.0)  # the share of one device
ROUNDING = 1e-6  # seconds


class Tries:
    """The tries of a server's PIN: at most 25 in ten seconds.

    A budget that is used is remembered as the time at which it is whole again. So the number of remembered clients is
    bounded by the common budgets, however many addresses an attacker has.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._whole: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, address: str, device: str) -> float:
        """Take a try; return 0, or the seconds until there is one. `device` is empty unless its cookie is valid."""
        now = self._clock()
        self._whole = {name: whole for name, whole in self._whole.items() if whole > now}
        budgets = _budgets(address, device)
        for name, rate in budgets:
            wait = self._whole.get(name, now) - now - (rate.burst - 1) * rate.every
            if wait > ROUNDING:
                return wait
        for name, rate in budgets:
            self._whole[name] = self._whole.get(name, now) + rate.every
        return 0.0

    def give_back(self, address: str, device: str) -> None:
        for name, rate in _budgets(address, device):
            self._whole[name] -= rate.every


def _budgets(address: str, device: str) -> tuple[tuple[str, Rate], tuple[str, Rate]]:
    """Return the common budget and the client's share of it, by name."""
    if device:
        return ("devices", DEVICES), (f"device {device}", DEVICE)
    return ("strangers", STRANGERS), (f"address {network_of(address)}", ADDRESS)


def network_of(address: str) -> str:
    """Return the network of an address: itself, or its /64 (RFC 4291, 2.5.4); "" for text that is no address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))
