"""Access: the PIN logs a browser in, the bearer token lets programs in, a link logs in once; and the routes for that.

What gateways share of it is in an `AccessStore` (accessstore.py).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from lmagent import __version__
from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.accessstore import AccessStore, Change
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes, json

ROUTES = Routes()
# The sender of a request: a logged-in browser, a program with the bearer token, or anyone (for open routes).
Caller = Literal["page", "token", "anyone"]

COOKIE = "lmagent"

AGE = 30 * 86400  # seconds until a browser's login expires
SKEW = 86400  # seconds for which a cookie stays revoked after that: the clocks of gateways may differ
LINK = 60.0  # seconds until a login link expires

# Marks a device that has logged in before. It gives no access, and logging out does not remove it.
DEVICE_COOKIE = "lmagent-device"

DEVICE_AGE = 90 * 86400

LOGIN = "/api/login"  # route that takes the PIN; the device cookie is sent only here

NO_COOKIES: Mapping[str, str] = {}

WEAK = 16  # characters below which a token can be guessed: the number of tries is not limited


class Access:
    """Identifies the sender of a request; issues and revokes cookies.

    Args:
        store: what it shares with other gateways.
        pin: the user's; without it, the store's.
        token: the user's, which is not stored; without it, the store's.

    Attributes:
        is_new: whether the token was made now.
    """

    def __init__(
        self,
        store: AccessStore,
        pin: str = "",
        token: str = "",
        *,
        secure: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            raise ConfigError("AGENT_TOKEN has characters that no request can carry", fix="use letters and digits")
        fresh = f"lmw-{secrets.token_urlsafe(32)}"
        self.token = token or store.keep("token", fresh)
        self.is_new = self.token == fresh
        self.pin = pin or store.keep("pin", new_pin())
        self._signer = store.keep("cookie.key", secrets.token_urlsafe(32)).encode()
        self._store = store
        self._secure = secure
        self._clock = clock
        self._tries = Tries(monotonic, store.share_tries)

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
        return hmac.digest(self._signer, f"caller {who}".encode(), "sha256")

    def link(self) -> str:
        """Return a ticket that logs a browser in once, within `LINK` seconds."""
        ticket = self._signed("link")
        self._store.add_link(_digest(ticket.encode()), LINK)
        return ticket

    def follow(self, ticket: str) -> tuple[str, str]:
        """Return the `Set-Cookie` values for a ticket, as `login` does."""
        # The store knows when it expires. The signature keeps guesses from the store.
        if not (self._is_signed("link", ticket, AGE) and self._store.use_link(_digest(ticket.encode()))):
            text = f"this link was used before, or is older than {LINK:.0f} s"
            raise Refusal(404, "link_gone", text, fix="open the page and enter the PIN")
        return self._let_in()

    def logout(self, cookies: Mapping[str, str]) -> str:
        """Revoke the browser's cookie, copies included, and return the `Set-Cookie` that removes it."""
        value = cookies.get(COOKIE, "")
        if self._is_ours(value):
            self._store.revoke(value.partition("~")[0], AGE + SKEW)
        return self._cookie(COOKIE, "", 0)

    def _let_in(self) -> tuple[str, str]:
        device = self._cookie(DEVICE_COOKIE, self._signed("device"), DEVICE_AGE, LOGIN)
        return device, self._cookie(COOKIE, self._signed("cookie"), AGE)

    def _signed(self, kind: str) -> str:
        body = f"{int(self._clock()):x}.{secrets.token_urlsafe(12)}"
        return f"{body}~{self._signature(kind, body)}"

    def _signature(self, kind: str, body: str) -> str:
        return urlsafe_b64encode(hmac.digest(self._signer, f"{kind} {body}".encode(), "sha256")).decode()

    def _is_signed(self, kind: str, value: str, age: float) -> bool:
        """Check signature, kind and age of a cookie."""
        body, _, signature = value.partition("~")
        if not (value.isascii() and signature and same(signature.encode(), self._signature(kind, body).encode())):
            return False
        return self._clock() - int(body.partition(".")[0], 16) < age

    def _is_ours(self, value: str) -> bool:
        return self._is_signed("cookie", value, AGE) and not self._store.is_revoked(value.partition("~")[0])

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
def _login(call: Call, body: Login) -> Response:
    request, answer = call.request, json(Done())
    address = request.client.host if request.client is not None else ""
    for cookie in call.access.login(body.pin, address, request.cookies):
        answer.headers.append("set-cookie", cookie)
    return answer


@ROUTES.post("/api/logout", "Log the browser out", answer=Done, place="gateway")
def _logout(call: Call) -> Response:
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
def _open(call: Call) -> Response:
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

Budgets = tuple[tuple[str, Rate], tuple[str, Rate]]


class Tries:
    """The tries of a PIN: at most 25 in ten seconds, at all gateways together if they share them.

    A budget that is used is remembered as the time at which it is whole again. So the number of remembered clients is
    bounded by the common budgets, however many addresses an attacker has. A gateway counts for itself first: tries
    beyond its own budgets are not asked for at the store.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, share: Callable[[Change], float] | None = None
    ) -> None:
        self._clock = clock
        self._share = share
        self._whole: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, address: str, device: str) -> float:
        """Take a try; return 0, or the seconds until there is one. `device` is empty unless its cookie is valid."""
        return self._change(partial(_take, _budgets(address, device)))

    def give_back(self, address: str, device: str) -> None:
        self._change(partial(_give_back, _budgets(address, device)))

    def _change(self, change: Change) -> float:
        with self._lock:
            wait = change(self._whole, self._clock())
        return wait or (self._share(change) if self._share is not None else 0.0)


def _take(budgets: Budgets, whole: dict[str, float], now: float) -> float:
    for name in [name for name, at in whole.items() if at <= now]:
        del whole[name]
    for name, rate in budgets:
        wait = whole.get(name, now) - now - (rate.burst - 1) * rate.every
        if wait > ROUNDING:
            return wait
    for name, rate in budgets:
        whole[name] = whole.get(name, now) + rate.every
    return 0.0


def _give_back(budgets: Budgets, whole: dict[str, float], now: float) -> float:
    for name, rate in budgets:
        whole[name] = whole.get(name, now) - rate.every
    return 0.0


def _budgets(address: str, device: str) -> Budgets:
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
