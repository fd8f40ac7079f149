"""Cassettes: model traffic on file. Recorded once with a model, played back offline by anyone.

A JSON Lines file. The first line is `{"cassette": 1, …}`; every other line is one exchange: `method`, `path`,
`request` (the body as text), `status`, `headers`, `chunks` (text, or `{"base64": …}` where a piece is not UTF-8) and
`end` (`complete`, `closed` when the reader stopped, or the transport's failure). No API key is in it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, ProviderError, StoreError
from lmagent.core.plurals import plural
from lmagent.providers.transport import Failure, Timeouts, Transport, TransportError, TransportResponse

VERSION = 1
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "location")


class Header(Struct, frozen=True):
    cassette: int
    by: str = "lmagent"


class Exchange(Struct):
    method: str
    path: str
    request: str
    status: int = 0
    headers: dict[str, str] = {}
    chunks: list[str | dict[str, str]] = []
    end: str = "complete"


EXCERPT = 200
"""Characters of a difference that are shown."""

BEFORE = 40
"""Characters of these before the difference."""


class Deviation(Struct, frozen=True):
    """A request that differs from the recorded one.

    Attributes:
        exchange: its number, from 1.
        recorded: an excerpt of the cassette, from shortly before the first difference.
        got: the same excerpt of the sent request.
    """

    exchange: int
    recorded: str
    got: str


class RecordingTransport:
    """Passes all traffic through and writes each exchange when it ends, for whatever reason.

    Args:
        path: the cassette; an existing one is continued.

    Raises:
        ConfigError: the file exists and is not a cassette.
        StoreError: the file cannot be written.
    """

    def __init__(self, inner: Transport, path: Path) -> None:
        self._inner = inner
        self.path = path
        try:
            fresh = not path.exists() or path.stat().st_size == 0
            if not fresh:
                load(path)
                _cut_torn_line(path)
            self._file = path.open("ab")
            if fresh:
                self._write(Header(VERSION))
        except OSError as error:
            raise _unwritable(path, error) from error

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        exchange = Exchange(method, urlsplit(url).path, body.decode("utf-8", "replace"), chunks=[])
        try:
            response = await self._inner.send(method, url, headers, body, timeouts)
        except TransportError as error:
            exchange.end = error.kind
            self._write(exchange)
            raise
        exchange.status = response.status
        exchange.headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        exchange.end = ""

        async def chunks() -> AsyncGenerator[bytes]:
            try:
                async for chunk in response.chunks:
                    exchange.chunks.append(_to_text(chunk))
                    yield chunk
                self._end(exchange, "complete")
            except TransportError as error:
                self._end(exchange, error.kind)
                raise

        async def close() -> None:
            self._end(exchange, "closed")
            await response.aclose()

        return TransportResponse(response.status, response.headers, chunks(), close)

    async def aclose(self) -> None:
        self._file.close()
        await self._inner.aclose()

    def _end(self, exchange: Exchange, end: str) -> None:
        """Write an exchange at its first end."""
        if not exchange.end and not self._file.closed:
            exchange.end = end
            self._write(exchange)

    def _write(self, line: Header | Exchange) -> None:
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error


class ReplayTransport:
    """Plays a cassette back: the model's replies in their order, offline, without delays.

    A request that differs from the recorded one is answered nevertheless and noted. Questions to the server about
    itself are answered by their path, any number of times; a path that was not recorded gets "not found".

    Args:
        ignore: regular expressions; parts of a request's body that match may differ (today's date, a folder's name).

    Attributes:
        deviations: the requests that differed.

    Raises:
        ConfigError: the file cannot be read, or is not a cassette of this version.
    """

    def __init__(self, path: Path, ignore: Sequence[str] = ()) -> None:
        self.path = path
        recorded = load(path)
        self._exchanges = [exchange for exchange in recorded if _is_chat(exchange.path)]
        self._answers = {exchange.path: exchange for exchange in recorded if not _is_chat(exchange.path)}
        self._ignore = "|".join(ignore)
        self.deviations: list[Deviation] = []
        self.played = 0

    @property
    def remaining(self) -> int:
        return len(self._exchanges) - self.played

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        """See `Transport`. Raise ProviderError at the end of the cassette."""
        if not _is_chat(path := urlsplit(url).path):
            return _answer(self._answers.get(path))
        if not self.remaining:
            raise ProviderError(
                f"the cassette {self.path.name} holds {self.played} exchanges, and one more was asked for",
                fix="the run went another way than the recorded one: record it again with --record FILE",
            )
        exchange = self._exchanges[self.played]
        self.played += 1
        recorded, sent = map(self._without_ignored, (exchange.request, body.decode("utf-8", "replace")))
        if recorded != sent:
            self.deviations.append(Deviation(self.played, *_excerpts(recorded, sent)))
        return _answer(exchange)

    def _without_ignored(self, body: str) -> str:
        return re.sub(self._ignore, "", body) if self._ignore else body

    def report(self) -> str:
        lines: list[str] = []
        if self.deviations:
            first = self.deviations[0]
            lines.append(
                f"replay: {len(self.deviations)} of {plural(self.played, 'request')} not as recorded; the first is "
                f"number {first.exchange}:\n  recorded: {first.recorded}\n  now:      {first.got}"
            )
        if self.remaining:
            lines.append(f"replay: not asked for: {plural(self.remaining, 'recorded exchange')}")
        return "\n".join(lines)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


def _is_chat(path: str) -> bool:
    return path.endswith(("/chat/completions", "/api/chat"))


def _answer(exchange: Exchange | None) -> TransportResponse:
    exchange = exchange or Exchange("GET", "", "", status=404)
    if not exchange.status:
        raise _recorded(exchange)
    return TransportResponse(exchange.status, exchange.headers, _play(exchange), _nothing)


def load(path: Path) -> list[Exchange]:
    """Return the exchanges of a cassette, without a torn last line. Raise ConfigError for another file."""
    number = 1
    try:
        first, *lines = path.read_bytes().split(b"\n")
        header = decode_json(first, Header)
        if header.cassette != VERSION:
            raise _unplayable(f"the cassette {path} has version {header.cassette}; this lmagent plays {VERSION}")
        exchanges: list[Exchange] = []
        for number, line in enumerate(lines[:-1], start=2):  # noqa: B007  # the last one is empty, or torn
            exchanges.append(decode_json(line, Exchange))
    except OSError as error:
        raise ConfigError(
            f"the cassette {path} cannot be read: {error.strerror}", fix="check the path given to --replay"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fault = f"{path} is not a cassette" if number == 1 else f"line {number} of the cassette {path} is damaged"
        raise _unplayable(f"{fault}: {error}") from error
    return exchanges


def _unplayable(message: str) -> ConfigError:
    return ConfigError(message, fix="record it again with --record FILE")


def _cut_torn_line(path: Path) -> None:
    """Remove half a line that a killed recording may have left, before more is appended."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


async def _play(exchange: Exchange) -> AsyncGenerator[bytes]:
    for chunk in exchange.chunks:
        yield chunk.encode() if isinstance(chunk, str) else b64decode(chunk["base64"])
    if exchange.end not in ("complete", "closed"):
        raise _recorded(exchange)


async def _nothing() -> None:
    """Do nothing: a recorded answer holds no connection."""


def _recorded(exchange: Exchange) -> TransportError:
    return TransportError(cast("Failure", exchange.end) if exchange.end in get_args(Failure) else "lost", "recorded")


def _to_text(chunk: bytes) -> str | dict[str, str]:
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(chunk).decode()}


def _excerpts(old: str, new: str) -> tuple[str, str]:
    """Return both texts around their first difference."""
    start = max(0, len(commonprefix((old, new))) - BEFORE)  # noqa: RUF071  # texts, not paths
    return old[start : start + EXCERPT], new[start : start + EXCERPT]


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the cassette {path} cannot be written: {error.strerror}", fix="give --record a file in a writable folder"
    )
