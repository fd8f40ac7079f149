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
from ipaddress import ip_address
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from lmagent.core.errors import ConfigError, SandboxError
from lmagent.core.sandbox import NOT_ALLOWED, Exec, HostOpener
from lmagent.sandbox.hosts import LOOPBACK, Address, Target, is_private, is_reachable, parse_pattern, reach_of
from lmagent.sandbox.inside import forward
from lmagent.sandbox.proxyhttp import GONE, HEAD_LIMIT, ProxyExchange, ProxyRefusal, ProxyRequest, parse_request

SOCKET = "/run/lmagent/proxy.sock"
"""Where the socket is inside."""

PORT = 3128
"""Port of the forwarder inside; its network namespace has no other listener."""

ADVICE = "The user can allow it: --allow-host {}"

_LINGER_SECONDS, _LINGER_BYTES = 2.0, 1 << 20
_TRIES = 4


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
Barred = Callable[[str, int], bool]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def deny(host: str, port: int) -> bool:
    return False


async def system_resolve(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=sockets.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class AllowListProxy:
    """The proxy of one command.

    Args:
        hosts: patterns of the hosts that may be reached; see `lmagent.sandbox.hosts`.
        opens: asked first about a host and port that is not listed.
        decide: asked about a host and port on the internet that is not listed, once for each.
        barred: whether a rule of the user forbids a host and port, listed or not.

    Raises:
        ConfigError: a text in `hosts` is no pattern.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        opens: HostOpener | None = None,
        decide: Decide = deny,
        barred: Barred | None = None,
        resolve: Resolve = system_resolve,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    ) -> None:
        self._patterns = [parse_pattern(host) for host in hosts]
        self._opens, self._decide, self._barred = opens, decide, barred
        self._resolve, self._bounds = resolve, bounds
        self._refused: set[Target] = set()
        self._answers: dict[Target, bool] = {}
        self._asking = anyio.Lock()
        self._folder: Path | None = None
        self._listener: SocketListener | None = None

    @property
    def path(self) -> Path:
        """The socket on the host; it exists from `start` to `close`."""
        assert self._folder is not None
        return self._folder / "s"

    async def start(self, folder: str = "") -> None:
        """Make the socket, below a folder if one is given. Connections wait until `serve` runs. Raises SandboxError."""
        try:
            # mkdtemp makes it for this user only.
            self._folder = Path(tempfile.mkdtemp(prefix="lmagent-", dir=folder or short_temp()))
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

    def wrap(self, argv: Sequence[str], python: str, socket: str = SOCKET, port: int = PORT) -> list[str]:
        """Return the command with the forwarder in front. `python` and `socket` are paths inside; 0: a free port."""
        listed = {pattern.host for pattern in self._patterns} | set(self._opens.loopback if self._opens else ())
        # Servers that the command starts itself are reached directly, unless the list allows the host's by that name.
        direct = ",".join(name for name in LOOPBACK if name not in listed)
        program = Path(forward.__file__).read_text(encoding="utf-8")
        return [python, "-I", "-S", "-c", program, socket, str(port), direct, *argv]

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
            await ProxyExchange(client, source, server, request).carry(self._bounds.idle)

    async def _request(self, source: BufferedByteReceiveStream) -> ProxyRequest:
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
        if len(source.buffer) > request.length:
            raise ProxyRefusal(400, "One request a connection: more was sent than the request.")
        return request

    async def _admit(self, request: ProxyRequest) -> Sequence[Address]:
        """Return the addresses that a request may be sent to, in order; raises ProxyRefusal."""
        target = request.target
        if self._barred is not None and self._barred(target.host, target.port):
            raise _denied(f"a permission rule forbids {target}", "Deny rules win over lists of hosts.")
        reach = reach_of(self._patterns, target, tunnel=request.is_tunnel)
        if reach is None and self._opens is not None:
            await self._open(target, self._opens)
            reach = reach_of(self._patterns, target, tunnel=request.is_tunnel)
        if reach is None:
            await self._ask(target)
        addresses = await self._addresses(target)
        allowed = [address for address in addresses if is_reachable(address, reach or "public")]
        if addresses and not allowed:
            why = f"{target.host} is {addresses[0]}, which is not on the internet"
            listed_itself = "An address like this must be listed itself."
            raise _denied(why, listed_itself if reach in ("local", "reserved") else ADVICE.format(f"ip:{target}"))
        if not allowed:
            raise ProxyRefusal(502, f"{target.host} cannot be resolved")
        return allowed

    async def _open(self, target: Target, opens: HostOpener) -> None:
        """List a target of package registries, if it is one and allowed; raises ProxyRefusal if it is not allowed."""
        async with self._asking:
            if target not in self._refused and reach_of(self._patterns, target) is None:
                try:
                    pattern = await opens.pattern(target.host, target.port)
                    self._patterns += [parse_pattern(pattern)] if pattern else []
                except Exception:  # noqa: BLE001 - `opens` is not our code; a failure means refused
                    pattern = ""
                if pattern == "":
                    self._refused.add(target)
        if target in self._refused:
            raise _denied(NOT_ALLOWED, f"{target} is one of them.")

    async def _ask(self, target: Target) -> None:
        """Return if a target that is not listed is allowed; raises ProxyRefusal."""
        if is_private(target):
            raise _denied(
                f"{target} is not on the internet and not on the allow list of this command", ADVICE.format(target)
            )
        async with self._asking:  # the user answers one question at a time, and each only once
            if target not in self._answers:
                if len(self._answers) >= self._bounds.questions:
                    raise _denied(
                        f"{target} is not on the allow list, and too many hosts were asked about", ADVICE.format(target)
                    )
                try:
                    self._answers[target] = await self._decide(target.host, target.port) is True
                except Exception:  # noqa: BLE001 - `decide` is not our code; a failure means denied
                    self._answers[target] = False
        if not self._answers[target]:
            raise _denied(f"{target} is not on the allow list of this command", ADVICE.format(target))

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


def allowing(command: Exec) -> AllowListProxy:
    """Return the proxy of a command that may reach hosts. Raise SandboxError if one of them is no pattern."""
    try:
        decide = command.decide or deny
        return AllowListProxy(command.hosts, opens=command.opens, decide=decide, barred=command.barred)
    except ConfigError as wrong:
        raise SandboxError(f"{wrong.message}; nothing was run", fix=wrong.fix) from wrong


def short_temp() -> str:
    """Return the folder of temporary files, if it is short: the path of a socket must fit into 108 bytes."""
    parent = tempfile.gettempdir()
    return parent if len(parent) < 64 else "/tmp"


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


def _denied(why: str, advice: str) -> ProxyRefusal:
    return ProxyRefusal(403, f"Blocked by lmagent: {why}\n{advice}")


async def _refuse(client: SocketStream, refusal: ProxyRefusal) -> None:
    """Answer, and read on for a while: a client that is still sending would not see the answer otherwise."""
    with anyio.move_on_after(_LINGER_SECONDS):
        await client.send(refusal.encode())
        await client.send_eof()
        drained = 0
        while drained < _LINGER_BYTES:
            drained += len(await client.receive())
