"""The one way out of a sandbox without network: an HTTP proxy on a unix socket, with an allow list.

  proxy = AllowListProxy(("pypi.org:443", "*.pythonhosted.org"), decide=ask)
  await proxy.start()                                 # the socket exists; it can be mounted at SOCKET
  argv = proxy.wrap(("pip", "download", "idna"), find_python())
  ...                                                 # await proxy.serve() beside the command
  proxy.close()

A request is decided on by its target (`http://host/…`, or CONNECT `host:port`), never by its Host header, which is
written anew. Only then is the name resolved, here; its address must be on the internet, unless that very host and port
are listed (see `hosts`), and the connection goes to that address. One request a connection.

The gaps of every proxy that does not decrypt TLS:

- Data can be sent to an allowed server, and some allowed servers publish it (a gist, an issue, an upload).
- Domain fronting: the name inside TLS may be another one than that of the tunnel, and a shared front may follow it.
- Through an allowed tunnel any protocol can be spoken.

Names are never resolved inside, so DNS carries nothing out, except the names that the list or the user allows: a
`*.example.com` lets the command send data to example.com's name server, as names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket as sockets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.sandbox import forward
from lmagent.sandbox.hosts import Address, Reach, Target, is_private, is_reachable, parse_patterns, reach_of
from lmagent.sandbox.proxyhttp import HEAD_LIMIT, ProxyRefusal, ProxyRequest, parse_request, simple_response
from lmagent.sandbox.relay import GONE, exchange, tunnel

SOCKET = "/run/lmagent/proxy.sock"
"""Where the socket is inside."""

PORT = 3128
"""Port of the forwarder inside; its network namespace has no other listener."""

ADVICE = "The user can allow it: --allow-host {target}"

_LINGER_SECONDS, _LINGER_BYTES = 2.0, 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TRIES = 4


class Decision(Struct, frozen=True):
    """The decision about a request; host and port are empty and 0 if its target could not be parsed."""

    host: str
    port: int
    allowed: bool
    reason: str


class Bounds(Struct, frozen=True):
    """The resources of the proxy for one command. Times are in seconds.

    Attributes:
        connections: at once; more wait.
        connect: time for each address.
        idle: time without data, after which a connection is closed.
        questions: unknown hosts that the user is asked about; more are denied.
    """

    connections: int = 64
    head: float = 10.0
    resolve: float = 10.0
    connect: float = 10.0
    idle: float = 300.0
    questions: int = 32


Decide = Callable[[str, int], Awaitable[bool]]
Log = Callable[[Decision], None]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def deny(host: str, port: int) -> bool:
    return False


async def system_resolve(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=sockets.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _forget(decision: Decision) -> None:
    """Do nothing: the default without a log."""


class AllowListProxy:
    """The proxy of one command.

    Args:
        hosts: patterns of the hosts that may be reached; see `lmagent.sandbox.hosts`.
        decide: asked about a host and port on the internet that is not listed, once for each.
        log: receives every decision.

    Raises:
        ConfigError: a text in `hosts` is no pattern.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        decide: Decide = deny,
        log: Log = _forget,
        resolve: Resolve = system_resolve,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    ) -> None:
        self._patterns = parse_patterns(hosts)
        self._decide, self._log, self._resolve, self._bounds = decide, log, resolve, bounds
        self._answers: dict[Target, bool] = {}
        self._asking = anyio.Lock()
        self._folder: Path | None = None
        self._listener: SocketListener | None = None
        self._group: TaskGroup | None = None

    @property
    def path(self) -> Path:
        """The socket on the host; it exists from `start` to `close`."""
        assert self._folder is not None
        return self._folder / "s"

    async def start(self) -> None:
        """Make the socket. Connections wait until `serve` runs.

        Raises:
            SandboxError: it cannot be made.
        """
        try:
            # Short, since the path of a socket must fit into 108 bytes; mkdtemp makes it for this user only.
            parent = tempfile.gettempdir()
            self._folder = Path(tempfile.mkdtemp(prefix="lmagent-", dir=parent if len(parent) < 64 else "/tmp"))
            self._listener = await anyio.create_unix_listener(self.path, mode=0o600, backlog=128)
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise SandboxError(f"the command's proxy cannot be started: {error}; nothing was run") from error

    async def serve(self) -> None:
        """Serve until cancelled. No failure of a connection ends it."""
        listener = self._listener
        assert listener is not None
        slots = anyio.Semaphore(self._bounds.connections)
        async with anyio.create_task_group() as group:
            while True:
                await slots.acquire()
                try:
                    client = await listener.accept()
                except anyio.ClosedResourceError:
                    return
                except (anyio.BrokenResourceError, OSError):
                    slots.release()
                    if self._listener is None:  # closed meanwhile
                        return
                    await anyio.sleep(0.05)  # out of descriptors, most likely
                    continue
                group.start_soon(self._client, client, slots)

    def close(self) -> None:
        """Remove the socket, after `serve` has been cancelled. May be called again."""
        if self._listener is not None:
            self._listener.extra(SocketAttribute.raw_socket).close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._listener = self._folder = None

    async def __aenter__(self) -> Self:
        await self.start()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        try:
            return await self._group.__aexit__(kind, error, trace)
        finally:
            self.close()

    def wrap(self, argv: Sequence[str], python: str, *, socket: str = SOCKET, port: int = PORT) -> list[str]:
        """Return the command with the forwarder in front; `python` and `socket` are paths inside, port 0 is any."""
        listed = {pattern.host for pattern in self._patterns}
        # Servers that the command starts itself are reached directly, unless the list allows the host's by that name.
        direct = ",".join(name for name in _LOOPBACK if name not in listed)
        return [python, "-I", "-S", "-c", _forwarder(), socket, str(port), direct, *argv]

    async def _client(self, client: SocketStream, slots: anyio.Semaphore) -> None:
        try:
            with contextlib.suppress(*GONE):
                async with client:
                    try:
                        await self._answer(client)
                    except ProxyRefusal as refusal:
                        await _refuse(client, refusal)
        finally:
            slots.release()

    async def _answer(self, client: SocketStream) -> None:
        source = BufferedByteReceiveStream(client)
        request = await self._request(source)
        addresses = await self._admit(request)
        async with await self._connect(request.target, addresses) as server:
            if request.tunnel:
                await tunnel(client, server, self._bounds.idle)
            else:
                await exchange(client, source, server, request, self._bounds.idle)

    async def _request(self, source: BufferedByteReceiveStream) -> ProxyRequest:
        head = b""
        try:
            try:
                with anyio.fail_after(self._bounds.head):
                    head = await source.receive_until(b"\r\n\r\n", HEAD_LIMIT)
            except TimeoutError:
                raise ProxyRefusal(408, "The request took too long.") from None
            except anyio.DelimiterNotFound:
                raise ProxyRefusal(431, "The header is too large.") from None
            if len(head) > HEAD_LIMIT:
                raise ProxyRefusal(431, "The header is too large.")
            request = parse_request(head)
            if request.body.framing == "length" and len(source.buffer) > request.body.length:
                raise ProxyRefusal(400, "One request a connection: more was sent than the request.")
        except ProxyRefusal as refusal:
            first = ascii(head.partition(b"\r\n")[0].decode("latin-1"))[:160]
            self._log(Decision("", 0, False, f"{refusal.text} {first}"))
            raise
        return request

    async def _admit(self, request: ProxyRequest) -> Sequence[Address]:
        """Return the addresses that a request may be sent to, in order.

        Raises:
            Refusal: the request is denied, or the name has no allowed address.
        """
        target = request.target
        reach = reach_of(self._patterns, target, tunnel=request.tunnel)
        reason = "listed" if reach else await self._ask(target)
        addresses = await self._addresses(target)
        allowed = [address for address in addresses if is_reachable(address, reach or "public")]
        if addresses and not allowed:
            why = f"{target.host} is {addresses[0]}, which is not on the internet"
            self._deny(target, why, _listing(target, reach))
        self._log(Decision(target.host, target.port, True, reason))
        if not allowed:
            raise ProxyRefusal(502, f"{target.host} cannot be resolved")
        return allowed

    async def _ask(self, target: Target) -> str:
        """Return the reason to allow a target that is not listed.

        Raises:
            Refusal: it is denied.
        """
        if is_private(target):
            self._deny(target, f"{target} is not on the internet and not on the allow list of this command")
        async with self._asking:  # the user answers one question at a time, and each only once
            if target not in self._answers:
                if len(self._answers) >= self._bounds.questions:
                    self._deny(target, f"{target} is not on the allow list, and too many hosts were asked about")
                self._answers[target] = await self._decided(target)
        if not self._answers[target]:
            self._deny(target, f"{target} is not on the allow list of this command")
        return "approved"

    async def _decided(self, target: Target) -> bool:
        try:
            return await self._decide(target.host, target.port) is True
        except Exception as error:  # noqa: BLE001 - `decide` is not our code; a failure means denied
            self._log(Decision(target.host, target.port, False, f"the question failed: {error!r}"))
            return False

    def _deny(self, target: Target, why: str, advice: str = "") -> None:
        self._log(Decision(target.host, target.port, False, why))
        raise ProxyRefusal(403, f"Blocked by lmagent: {why}\n{advice or ADVICE.format(target=target)}\n")

    async def _addresses(self, target: Target) -> Sequence[Address]:
        if address := target.address:
            return (address,)
        try:
            with anyio.fail_after(self._bounds.resolve):
                return tuple(map(ip_address, await self._resolve(target.host, target.port)))
        except (OSError, ValueError):  # UnicodeError, for a label that is too long, is a ValueError
            return ()

    async def _connect(self, target: Target, addresses: Sequence[Address]) -> SocketStream:
        for address in addresses[:_TRIES]:
            with contextlib.suppress(OSError):
                with anyio.fail_after(self._bounds.connect):
                    return await anyio.connect_tcp(str(address), target.port)
        raise ProxyRefusal(502, f"{target} does not accept a connection")


def find_python(visible: Iterable[Path] = ()) -> str:
    """Return an interpreter that can be run inside, for the forwarder; any version from 3.9 on will do.

    Raises:
        SandboxError: no interpreter was found.
    """
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(path, os.X_OK) and Path(os.path.realpath(path)).is_relative_to("/usr"):
            return path
    own, home = Path(os.path.realpath(sys.executable)), Path(os.path.realpath(sys.base_prefix))
    roots = [Path(os.path.realpath(path)) for path in visible]
    if any(own.is_relative_to(root) and home.is_relative_to(root) for root in roots):
        return str(own)
    raise SandboxError(
        "a command that may reach hosts needs a python3 that can be seen inside the sandbox; nothing was run",
        fix="install it: sudo apt install python3 (or dnf, pacman, zypper). Or run the command without network",
    )


@cache
def _forwarder() -> str:
    return Path(forward.__file__).read_text(encoding="utf-8")


def _listing(target: Target, reach: Reach | None) -> str:
    if reach == "local":
        return "An address like this must be listed itself."
    return f"If it is meant, the user can allow it: --allow-host ip:{target}"


async def _refuse(client: SocketStream, refusal: ProxyRefusal) -> None:
    """Answer, and read on for a while: a client that is still sending would not see the answer otherwise."""
    reason = refusal.text.partition("\n")[0][:200]
    with anyio.move_on_after(_LINGER_SECONDS):
        await client.send(simple_response(refusal.status, reason, refusal.text.rstrip("\n") + "\n"))
        await client.send_eof()
        drained = 0
        while drained < _LINGER_BYTES:
            drained += len(await client.receive())
