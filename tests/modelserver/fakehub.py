"""A hub on loopback, with a store on another origin that it redirects to, and every way of going wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from lmagent.testing.loopback import Drop, LoopbackServer, Pause, Received, Response

REPO = "owner/Model-GGUF"


@dataclass
class FakeHub:
    """Serves files of one repository.

    Attributes:
        files: content by path.
        cuts: after how many bytes of the whole file each answer in turn breaks off.
        ranges: whether the store knows ranges.
        etags: what each answer of the store calls the file, the last one for all others.
        wrong: the store gives other bytes than the hub announced.
        refuse: answers of the hub instead of the list: (status, headers, body).
        refuse_files: answers of the hub instead of a file, in turn.
        small: paths that Git itself keeps, without a SHA-256.
        slow: seconds between the pieces of a file.
        pages: files on a page of the list.
        append: bytes that come behind a file's end.
        repo: the repository.
    """

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    etags: list[str] = field(default_factory=lambda: ['"one"'])
    wrong: bool = False
    refuse: tuple[int, dict[str, str], bytes] | None = None
    refuse_files: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    small: Sequence[str] = ()
    slow: float = 0.0
    pages: int = 1000
    append: bytes = b""
    loop: bool = False
    repo: str = REPO

    def __enter__(self) -> Self:
        self.store = LoopbackServer(self._stored).__enter__()
        self.hub = LoopbackServer(self._asked).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hub.__exit__(kind, error, trace)
        self.store.__exit__(kind, error, trace)

    @property
    def env(self) -> dict[str, str]:
        return {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": "hf_secret", "NO_PROXY": "*"}

    @property
    def ranges_asked(self) -> list[str]:
        return [request.headers.get("range", "") for request in self.store.requests]

    async def _asked(self, request: Received) -> Response:
        if request.path.startswith("/api/"):
            return self._list(request)
        if self.refuse_files:
            status, headers, body = self.refuse_files.pop(0)
            return Response((body,), status, headers)
        if self.loop:
            return Response((), 302, {"Location": request.path})
        return Response((), 302, {"Location": f"{self.store.url}{request.path}?signed=1"})

    def _list(self, request: Received) -> Response:
        if self.refuse is not None:
            status, headers, body = self.refuse
            return Response((body,), status, headers)
        if f"/api/models/{self.repo}/" not in request.path:
            return Response((b'{"error":"Repository not found"}',), 401, {"X-Error-Code": "RepoNotFound"})
        rows: list[dict] = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "sub"}]
        for path, content in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            row: dict = {"type": "file", "oid": git, "size": len(content), "path": path}
            if path not in self.small:
                row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            rows.append(row)
        start = int(request.query.partition("cursor=")[2] or 0)
        headers = {}
        if start + self.pages < len(rows):
            headers["Link"] = f'<{self.hub.url}{request.path}?cursor={start + self.pages}>; rel="next"'
        return Response((json.dumps(rows[start : start + self.pages]).encode(),), 200, headers)

    async def _stored(self, request: Received) -> Response:
        content = self.files[request.path.partition("/resolve/main/")[2]]
        whole = len(content)
        if self.wrong:
            content = bytes(byte ^ 1 for byte in content)
        etag = self.etags.pop(0) if len(self.etags) > 1 else self.etags[0]
        asked, unless = request.headers.get("range", ""), request.headers.get("if-range", etag)
        begin, status, headers = 0, 200, {"ETag": etag}
        if asked and self.ranges and unless == etag:
            begin, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            if begin >= whole:
                return Response((), 416, headers)
            headers["Content-Range"] = f"bytes {begin}-{whole - 1}/{whole}"
        steps: list[bytes | Drop | Pause] = []
        end = self.cuts.pop(0) if self.cuts else whole
        for place in range(begin, whole, 16_384):
            if place >= end:
                steps.append(Drop())
            steps.append(content[place : min(place + 16_384, whole)])
            if self.slow:
                steps.append(Pause(self.slow))
        if self.append:
            return Response((*steps, self.append), status, headers, framing="chunked")
        return Response(steps, status, headers)
