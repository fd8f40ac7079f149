"""Download: one file from a hub, resumed after a break, and named only when it is known to be right.

`FILE.part` grows beside the file's future place, and `FILE.part.json` names the file that it belongs to. The file gets
its name when its length and its hash are those that the hub announced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import SessionBusy
from lmagent.modelserver.library.hub import Failed, HubFile, ModelHub, unreachable
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers.transport import TransportError, TransportResponse
from lmagent.store.files import OPEN_FLAGS, sync_file, sync_folder, write_whole
from lmagent.store.lock import hold

ATTEMPTS = 5  # tries in a row that get no further; every byte further than ever begins them anew
LONGEST_PAUSE = 60.0
BLOCK = 8 << 20


class DownloadProgress(Protocol):
    """A display of how far a download is."""

    def begin(self, name: str, size: int, have: int) -> None:
        """Show a file of `size` bytes, `have` of which are there; called again when it begins anew."""
        ...

    def advance(self, count: int) -> None: ...

    def note(self, text: str) -> None: ...


class Ports(Struct, frozen=True):
    progress: DownloadProgress  # where it is shown
    pause: Callable[[float], Awaitable[None]] = anyio.sleep  # waits so many seconds
    write: Callable[[int, bytes], None] = write_whole  # writes bytes to an open file


class FileDownload:
    def __init__(self, hub: ModelHub, repo: str, file: HubFile, target: Path, ports: Ports) -> None:
        self._hub = hub
        self._ports = ports
        self._repo = repo
        self._file = file
        self._target = target
        self._part = part_of(target)
        self._note = self._part.with_name(self._part.name + ".json")
        self._have = 0
        self._hash = self._new_hash()
        self._fd = -1

    async def run(self) -> None:
        """Fetch the file, or the rest of it; keep the part if it fails."""
        try:
            lock = hold(self._target.with_name(self._target.name + ".lock"), self._target.name)
        except SessionBusy:
            fix = "wait for it, or stop it; the fetched part is kept"
            text = f"{self._target.name} is already being fetched by another process"
            raise ModelServerError(text, status=409, code="busy", fix=fix) from None
        except OSError as error:
            raise unwritable(self._target, error) from error
        try:
            if not is_there(self._file, self._target):  # else another pull has just finished it
                await self._fetch()
        except OSError as error:
            raise self._kept(unwritable(self._part, error)) from error
        finally:
            with contextlib.suppress(OSError):
                lock.path.unlink()  # while it is held: whoever opened it meanwhile sees that it is gone
            lock.release()

    async def _fetch(self) -> None:
        self._fd = os.open(self._part, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o644)
        try:
            await self._resume()
            await self._all()
            sync_file(self._fd)
        finally:
            useless = self._file.size and not os.fstat(self._fd).st_size
            os.close(self._fd)
            if useless:
                self._discard()
        expected = self._file.sha256 or self._file.git
        if expected not in ("", self._hash.hexdigest()):
            self._discard()
            text = f"{self._file.name} came damaged: its checksum is not the one that the hub announced; it was removed"
            raise ModelServerError(text, status=502, code="wrong_checksum", fix="pull it again")
        os.replace(self._part, self._target)
        self._note.unlink(missing_ok=True)
        sync_folder(self._target.parent)

    async def _resume(self) -> None:
        """Continue a part of the same file, whose bytes are hashed again."""
        size = os.fstat(self._fd).st_size
        if read_note(self._note) != self._file or size > self._file.size:
            self._restart()
            return
        if size:
            text = f"resuming {self._part.name} at {gigabytes(size)} of {gigabytes(self._file.size)}"
            self._ports.progress.note(text)
        while block := await to_thread.run_sync(os.read, self._fd, BLOCK):
            self._hash.update(block)
            self._have += len(block)

    def _restart(self) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._have, self._hash = 0, self._new_hash()

    async def _all(self) -> None:
        """Fetch until all bytes are there; ask again after a connection breaks off."""
        self._ports.progress.begin(self._target.name, self._file.size, self._have)
        left, most = ATTEMPTS, self._have
        while self._have < self._file.size:
            failure = Failed("the connection ended too early")
            try:
                await self._some()
            except Failed as error:
                failure = error
            if self._have >= self._file.size:
                return
            if self._have > most:  # a server that begins anew each time gets no further, however much it sends
                left, most = ATTEMPTS, self._have
            left -= 1
            if not left or failure.retry_after > LONGEST_PAUSE:
                raise self._kept(failure)
            seconds = failure.retry_after or 2.0 ** (ATTEMPTS - 1 - left)
            self._ports.progress.note(f"{failure.message}; trying again in {seconds:.0f} s")
            await self._ports.pause(seconds)

    async def _some(self) -> None:
        headers = {"Range": f"bytes={self._have}-"} if self._have else {}
        response = await self._hub.open(self._repo, self._file.path, headers)
        try:
            if self._continues(response):
                async for chunk in response.chunks:
                    self._add(chunk)
        except TransportError as error:
            raise unreachable(self._hub.endpoint, error) from error
        finally:
            await response.aclose()

    def _continues(self, response: TransportResponse) -> bool:
        """Tell whether the body continues the part; begin anew if it does not."""
        if re.match(rf"bytes {self._have}-", response.headers.get("content-range", "")) and response.status == 206:
            return True
        kind, length = response.headers.get("content-type", ""), response.headers.get("content-length", "")
        wrong_length = response.status == 200 and length not in ("", str(self._file.size))
        if wrong_length or kind.lower().startswith("text/html"):
            text = f"something else came in the place of {self._file.name}: {length[:20]} bytes of {kind[:40]!r}"
            fix = "log in to the network if it asks for that, check HF_ENDPOINT and HTTPS_PROXY, and try again"
            raise ModelServerError(text, status=502, code="hub_changed", fix=fix)
        if self._have:
            self._ports.progress.note("the hub does not continue the file: beginning anew")
            self._ports.progress.begin(self._target.name, self._file.size, 0)
        self._restart()
        self._note.write_bytes(msgspec.json.encode(self._file))
        return response.status == 200

    def _add(self, chunk: bytes) -> None:
        if self._have + len(chunk) > self._file.size:
            self._restart()
            text = f"the hub sent more than the {self._file.size:,} bytes of {self._file.name}"
            raise ModelServerError(text, status=502, code="hub_changed", fix="try again")
        try:
            self._ports.write(self._fd, chunk)
        except OSError:
            os.ftruncate(self._fd, self._have)
            raise
        self._hash.update(chunk)
        self._have += len(chunk)
        self._ports.progress.advance(len(chunk))

    def _discard(self) -> None:
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _kept(self, failure: ModelServerError) -> ModelServerError:
        if not self._have:
            return failure
        text = f"{failure.message}; {gigabytes(self._have)} of {gigabytes(self._file.size)} are kept"
        fix = f"{failure.fix}; the same command continues where it stopped"
        return ModelServerError(text, status=failure.status, code=failure.code, fix=fix)

    def _new_hash(self) -> Any:
        if self._file.sha256 or not self._file.git:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)


def read_note(path: Path) -> HubFile | None:
    """Return the file that a part belongs to; None if its note cannot be read."""
    try:
        return decode_json(path.read_bytes(), HubFile)
    except (OSError, ValueError, RecursionError):
        return None


def part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def is_there(file: HubFile, target: Path) -> bool:
    """Tell whether a file was fetched: it has no name before its hash was right."""
    return target.is_file() and target.stat().st_size == file.size


def unwritable(path: Path, error: OSError) -> ModelServerError:
    fix = "check its permissions and its disk, or set AGENT_DATA_DIR to another folder"
    return ModelServerError(f"{path} cannot be written: {error.strerror or error}", status=500, fix=fix)


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 50_000_000 else f"{count / 1e6:.1f} MB"
