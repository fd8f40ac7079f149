"""Forwards connections inside a sandbox without network, so that its programs find the proxy of the host.

  python3 -I -S -c <this file> SOCKET PORT NO_PROXY COMMAND [ARGUMENT…]

It listens on 127.0.0.1:PORT, leaves a process that carries every connection to the unix socket, and *becomes* the
command, which so has its own exit status, signals, input and output. The process is detached: it holds none of the
command's descriptors, and dies with the process namespace.

This program is no barrier: the command can use the socket directly. The proxy decides. There are no threads, since each
would count against the command's limit.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

CONNECTIONS = 64
PIECE = 65536
FAILED = 125
"""Exit status when the command was not run, as `env`, `nice` and `timeout` have it."""


def serve(listener: socket.socket, path: str) -> None:
    """Carry each connection to the socket at `path`, and back."""
    import asyncio  # after the command has begun, which need not wait for it

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, other: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(PIECE):
                sink.write(piece)
                await sink.drain()
            sink.write_eof()
        except OSError:
            sink.close()
            other.close()

    async def run() -> None:
        slots = asyncio.Semaphore(CONNECTIONS)

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with slots:
                try:
                    far, to_proxy = await asyncio.open_unix_connection(path)
                except OSError:
                    writer.close()
                    return
                both = pump(reader, to_proxy, writer), pump(far, writer, to_proxy)
                await asyncio.gather(*both)  # noqa: TID251 - only the standard library is here
                to_proxy.close()
                writer.close()

        server = await asyncio.start_server(carry, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


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
