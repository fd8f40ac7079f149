"""A server of S3 for tests: moto's, as a process of its own on loopback, and an empty bucket for each test."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from urllib.request import ProxyHandler, Request, build_opener

import pytest

_DIRECT = build_opener(ProxyHandler({}))


class ObjectServer:
    """The server. With `strict`, it refuses keys that it does not know, and it knows none."""

    def __init__(self, *, strict: bool = False) -> None:
        if find_spec("moto") is None or find_spec("obstore") is None:
            pytest.skip("moto or obstore is not installed")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            env=dict(os.environ) | ({"INITIAL_NO_AUTH_ACTION_COUNT": "0"} if strict else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, "the server of S3 does not start"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "the server of S3 does not answer"
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def ask(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Send a request of S3 by plain HTTP, and return the answer's body."""
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"}
        request = Request(f"http://127.0.0.1:{self.port}/{path}", content, signed, method=method)
        with _DIRECT.open(request, timeout=30) as answer:
            return bytes(answer.read())


class Bucket:
    """A bucket as the test sees it, beside the code under test."""

    def __init__(self, server: ObjectServer, name: str) -> None:
        self.server, self.name = server, name
        self.address = f"s3://{name}/some/where"

    def objects(self) -> list[str]:
        """Return the keys of all objects, with the prefix."""
        return re.findall(r"<Key>([^<]*)</Key>", self.server.ask("GET", self.name).decode())

    def write(self, key: str, content: bytes) -> None:
        self.server.ask("PUT", f"{self.name}/{key}", content)

    def delete(self, key: str) -> None:
        self.server.ask("DELETE", f"{self.name}/{key}")


def variables(port: int) -> dict[str, str]:
    """Return the variables with which a server on loopback is used."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@contextmanager
def bucket(server: ObjectServer | None = None) -> Iterator[Bucket]:
    """Yield an empty bucket, with the variables of its server set meanwhile."""
    server = server or shared_object_server()
    name = f"bucket-{time.monotonic_ns()}"
    server.ask("PUT", name)
    with pytest.MonkeyPatch.context() as patch:
        for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
            patch.delenv(variable)
        for variable, value in variables(server.port).items():
            patch.setenv(variable, value)
        yield Bucket(server, name)


@cache
def shared_object_server() -> ObjectServer:
    """Return the server of this test process; it ends with the process."""
    import atexit

    server = ObjectServer()
    atexit.register(server.stop)
    return server
