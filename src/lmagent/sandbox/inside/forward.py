"""Forwards connections inside a sandbox without network, so that its programs find the proxy of the host.

  python3 -I -S -c <this file> SOCKET PORT NO_PROXY COMMAND [ARGUMENT…]

It listens on 127.0.0.1:PORT, leaves a process that carries every connection to the unix socket, and *becomes* the
command, which so has its own exit status, signals, input and output. The process is detached: it holds none of the
command's descriptors, and dies with the process namespace.

This program is no barrier: the command can use the socket directly. The proxy decides. Only the standard library is
used, and only modules that load fast; there are no threads, since each would count against the command's limit.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time

CONNECTIONS = 64
PIECE = 65536
FAILED = 125
"""Exit status when the command was not run, as `env`, `nice` and `timeout` have it."""


class Flow:
    """One direction of a connection. At most one piece waits to be written; meanwhile nothing more is read."""

    __slots__ = ("ended", "piece", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.piece = b""
        self.ended = False

    def read(self) -> None:
        """Take a piece; at the end of the stream, pass the end on."""
        try:
            self.piece = self.source.recv(PIECE)
        except BlockingIOError:
            return
        if not self.piece:
            self.ended = True
            self.sink.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        """Write as much of the piece as the target accepts."""
        try:
            self.piece = self.piece[self.sink.send(self.piece) :]
        except BlockingIOError:
            return


Pair = tuple[Flow, Flow]


def serve(listener: socket.socket, path: str) -> None:
    pairs: list[Pair] = []
    while True:
        poll = select.poll()
        if len(pairs) < CONNECTIONS:
            poll.register(listener, select.POLLIN)
        wanted: dict[int, int] = {}
        for flow in (flow for pair in pairs for flow in pair):
            if flow.piece:
                wanted[flow.sink.fileno()] = wanted.get(flow.sink.fileno(), 0) | select.POLLOUT
            elif not flow.ended:
                wanted[flow.source.fileno()] = wanted.get(flow.source.fileno(), 0) | select.POLLIN
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll())
        for pair in [pair for pair in pairs if not carry(pair, ready)]:
            pairs.remove(pair)
            pair[0].source.close()
            pair[0].sink.close()
        if listener.fileno() in ready and (pair := accept(listener, path)):
            pairs.append(pair)


def carry(pair: Pair, ready: dict[int, int]) -> bool:
    """Do the work that does not block; return False when the connection is over."""
    try:
        for flow in pair:
            if flow.piece and ready.get(flow.sink.fileno(), 0):
                flow.write()
            elif not flow.piece and not flow.ended and ready.get(flow.source.fileno(), 0):
                flow.read()
                if flow.piece:
                    flow.write()
    except OSError:
        return False
    return not all(flow.ended for flow in pair)


def accept(listener: socket.socket, path: str) -> Pair | None:
    """Return the next connection, and one to the proxy; None if either fails."""
    try:
        client, _ = listener.accept()
    except OSError:
        time.sleep(0.01)  # most likely out of descriptors; the listener would be ready again at once
        return None
    proxy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        proxy.setblocking(False)
        proxy.connect(path)
    except OSError:
        client.close()
        proxy.close()
        return None
    return Flow(client, proxy), Flow(proxy, client)


def detach(listener: socket.socket, path: str) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        kept = listener.fileno()
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        # The command's pipes and channel: an open copy would keep their reader waiting.
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        if os.fork() == 0:
            serve(listener, path)
    finally:
        os._exit(0)


def environment(port: int, no_proxy: str) -> dict[str, str]:
    """Return the variables by which programs find a proxy."""
    url = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxies = {spelled: url for name in names for spelled in (name, name.lower())}
    return {**proxies, "NO_PROXY": no_proxy, "no_proxy": no_proxy, "NODE_USE_ENV_PROXY": "1"}


def main(path: str, port: str, no_proxy: str, *command: str) -> int:
    """Start to serve, and become the command; return the exit status if that fails."""
    try:
        os.stat(path)
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
        detach(listener, path)
    except OSError as error:
        sys.stderr.write(f"lmagent: the network of this command could not be set up: {error}\n")
        return FAILED
    variables = {**os.environ, **environment(listener.getsockname()[1], no_proxy)}
    # Python ignores these signals, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, variables)
    except FileNotFoundError:
        sys.stderr.write(f"lmagent: {command[0]}: not found\n")
        return 127
    except OSError as error:
        sys.stderr.write(f"lmagent: {command[0]}: {error.strerror}\n")
        return 126


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
