"""Registries of packages on loopback: an index of wheels, whose files are on another host, and a registry of npm.

Both have one package, `tinypkg`. The index says of `elsewhere` that its file is at the registry itself, which sends the
client on to a host of nobody.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct, field

WHEEL, TARBALL = "-1.0-py3-none-any.whl", "tinypkg-1.0.0.tgz"
NOBODY = "127.0.0.1:9"


class Registries(Struct):
    """The `host:port` of both servers, and the paths that they were asked for."""

    place: str = ""
    files: str = ""
    asked: list[str] = field(default_factory=list[str])

    @property
    def index(self) -> str:
        return f"http://{self.place}/simple"

    @property
    def locks(self) -> dict[str, str]:
        """The files of a project that needs `tinypkg` of both."""
        dist = json.loads(_about(self.place))["versions"]["1.0.0"]["dist"]
        package = {"version": "1.0.0", "resolved": dist["tarball"], "integrity": dist["integrity"]}
        needs = {"name": "needs", "version": "1.0.0", "dependencies": {"tinypkg": "1.0.0"}}
        lock = {**needs, "lockfileVersion": 3, "packages": {"": needs, "node_modules/tinypkg": package}}
        return {
            "requirements.txt": f"tinypkg==1.0 --hash=sha256:{hashlib.sha256(_wheel()).hexdigest()}\n",
            "package.json": json.dumps(needs),
            "package-lock.json": json.dumps(lock),
        }

    @property
    def npm(self) -> str:
        return f"http://{self.place}/npm/"

    def configure(self, home: Path, login: str = "") -> None:
        """Name the registries in files of the user, perhaps with a name and a password."""
        (home / ".config" / "pip").mkdir(parents=True, exist_ok=True)
        address = self.index.replace("http://", f"http://{login}")
        (home / ".config" / "pip" / "pip.conf").write_text(f"[global]\nindex-url = {address}\n")
        (home / ".npmrc").write_text(f"audit = false\nregistry = {self.npm}\n")


@contextmanager
def registries() -> Iterator[Registries]:
    found = Registries()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            where, body = _answer(self.path, found)
            self.send_response(302 if where else 200 if body else 404)
            if where:
                self.send_header("Location", where)
            self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with ExitStack() as held:
        found.place, found.files = (held.enter_context(_serving(Handler)) for _ in range(2))
        yield found


def _answer(path: str, found: Registries) -> tuple[str, bytes]:
    """Return the address of a redirect, and the body."""
    if path in ("/simple/tinypkg/", "/simple/pip/"):
        return "", _page(f"http://{found.files}/tinypkg{WHEEL}")
    if path == "/simple/elsewhere/":
        return "", _page(f"http://{found.place}/away/elsewhere{WHEEL}")
    if path.startswith("/away/"):
        return f"http://{NOBODY}{path}", b""
    if path == f"/tinypkg{WHEEL}":
        return "", _wheel()
    if path == "/npm/tinypkg":
        return "", _about(found.place)
    return "", _tarball() if path == f"/npm/{TARBALL}" else b""


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _page(link: str) -> bytes:
    return f'<!DOCTYPE html><html><body><a href="{link}">{link.rpartition("/")[2]}</a></body></html>'.encode()


@cache  # it has the time in it
def _wheel() -> bytes:
    made, info = io.BytesIO(), "tinypkg-1.0.dist-info"
    files = {
        "tinypkg.py": "WORD = 'installed'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return made.getvalue()


def _about(place: str) -> bytes:
    digest = base64.b64encode(hashlib.sha512(_tarball()).digest()).decode()
    dist = {"tarball": f"http://{place}/npm/{TARBALL}", "integrity": f"sha512-{digest}"}
    version = {"name": "tinypkg", "version": "1.0.0", "bin": {"tinypkg": "run.js"}, "dist": dist}
    about = {"name": "tinypkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return json.dumps(about).encode()


@cache  # it has the time in it
def _tarball() -> bytes:
    about = {"name": "tinypkg", "version": "1.0.0", "main": "run.js", "bin": {"tinypkg": "run.js"}}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (
            ("package/package.json", json.dumps(about)),
            ("package/run.js", "#!/usr/bin/env node\nconsole.log('installed')\n"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()
