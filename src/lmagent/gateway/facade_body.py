"""Bodies of OpenAI's API: text within the usual limit, and image data in addition.

Images are `data:` URLs in the JSON (RFC 2397), so a photo makes a body of megabytes. Their data is removed while the
body arrives: the rest is small and decoded like other bodies, and no step handles all the data at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.requests import Request

from lmagent.core.messages import Image
from lmagent.gateway.api.uploads import MAX_UPLOAD
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import MAX_BODY as MAX_TEXT
from lmagent.gateway.http.route import decode, must_be_json

MAX_IMAGE = (MAX_UPLOAD + 2) // 3 * 4
"""Bytes of an image in base64."""

MAX_IMAGES = 40_000_000
"""Bytes of all images of a request in base64."""

MAX_BODY = MAX_TEXT + MAX_IMAGES + MAX_IMAGES // 6
"""Bytes of a body. Some clients write a slash as two characters, or a plus or a slash as six (RFC 8259, section 7);
two of 64 base64 characters are affected.
"""

AT_ONCE = 4
"""Large bodies that are read at once; others wait."""

PATIENCE = 60.0
"""Seconds that they wait."""

_MARK = b";base64,"
_RUN = re.compile(rb'(?:[^"\\]++|\\/|\\u00[2-7][0-9A-Fa-f])*+')
_NUMBER = re.compile(rb"\\u00(..)")
_CUT = re.compile(rb"\\(?:u(?:0(?:0[2-7]?)?)?)?")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_places: RunVar[anyio.Semaphore] = RunVar("places of large bodies")


class Said(Struct, frozen=True):
    """A message of the client: `content` is a text, or parts."""

    role: str
    content: Any = None


class StreamOptions(Struct, frozen=True):
    """`include_usage`: the last chunk has the tokens."""

    include_usage: bool = False


class Completion(Struct, frozen=True):
    """A chat completion. The agent samples by its own settings: `temperature` and similar fields are ignored."""

    model: str
    messages: Annotated[list[Said], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None


@asynccontextmanager
async def taken_in(request: Request) -> AsyncGenerator[Completion]:
    """Read the completion of a request; image data becomes an `Image` in its content.

    A large body counts against `AT_ONCE` until the context closes.

    Raises:
        Refusal: the body is not JSON (415), too large (413), or too many others are being read (503).
        msgspec.DecodeError, msgspec.ValidationError: see `route.decode`.
    """
    must_be_json(request)
    sieve = Sieve()
    async with AsyncExitStack() as held:
        is_large = False
        async for piece in request.stream():
            if not is_large and sieve.size + len(piece) > MAX_TEXT:
                is_large = True
                await held.enter_async_context(_place())
            sieve.feed(piece)
        yield await to_thread.run_sync(sieve.completion) if is_large else sieve.completion()


@asynccontextmanager
async def _place() -> AsyncGenerator[None]:
    places = _places.get(None)
    if places is None:
        places = anyio.Semaphore(AT_ONCE)
        _places.set(places)
    try:
        with anyio.fail_after(PATIENCE):
            await places.acquire()
    except TimeoutError:
        text = f"{AT_ONCE} other large requests are being taken in"
        raise Refusal(503, "busy", text, fix="send it again") from None
    try:
        yield
    finally:
        places.release()


class Sieve:
    """Replaces the data of `data:` URLs in arriving JSON by a mark that clients cannot guess."""

    def __init__(self) -> None:
        self.size = 0
        self._text = bytearray()
        self._data: list[bytearray] = []
        self._rest = b""
        self._is_inside = False
        self._total = 0
        self._secret = os.urandom(8).hex()
        self._marks = re.compile(rf"(?<=;base64,){self._secret}:([0-9]+);")

    def feed(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            Refusal: the text, an image or all images are too large (413).
        """
        self.size += len(piece)
        piece, self._rest, at = self._rest + piece, b"", 0
        while at < len(piece):
            at = self._take_data(piece, at) if self._is_inside else self._take_text(piece, at)
        if len(self._text) > MAX_TEXT:
            raise _too_large()

    def _take_text(self, piece: bytes, at: int) -> int:
        found = piece.find(_MARK, at)
        if found < 0:
            end = max(at, len(piece) - len(_MARK) + 1)  # the mark may be cut in two
            self._text += piece[at:end]
            self._rest = piece[end:]
            return len(piece)
        self._text += piece[at : found + len(_MARK)] + f"{self._secret}:{len(self._data)};".encode()
        self._data.append(bytearray())
        self._is_inside = True
        return found + len(_MARK)

    def _take_data(self, piece: bytes, at: int) -> int:
        """Take data up to the end of its string, or to the first byte that is not data."""
        found = _RUN.match(piece, at)
        assert found is not None
        run = found[0].replace(b"\\/", b"/")
        if b"\\" in run:
            run = _NUMBER.sub(_character, run)
        if _CONTROL.search(run):
            raise Refusal(400, "invalid", "the body is no JSON: a string has a control character")
        self._data[-1] += run
        self._total += len(run)
        if len(self._data[-1]) > MAX_IMAGE:
            text = f"an image is larger than {MAX_UPLOAD:,} bytes"
            raise Refusal(413, "too_large", text, fix="make it smaller")
        if self._total > MAX_IMAGES:
            text = f"the images come to more than {MAX_IMAGES // 4 * 3:,} bytes"
            raise Refusal(413, "too_large", text, fix="send fewer, or smaller ones")
        if _CUT.fullmatch(piece, found.end()):  # the rest of an escape is in the next piece
            self._rest = piece[found.end() :]
            return len(piece)
        self._is_inside = found.end() == len(piece)
        return found.end()

    def completion(self) -> Completion:
        """Return the request after its last piece.

        Raises:
            Refusal: the text is too large, now that the images are known (413).
            msgspec.DecodeError, msgspec.ValidationError: see `route.decode`.
        """
        body: Completion = decode(bytes(self._text) + self._rest, Completion)
        size = len(self._text)

        def back(found: re.Match[str]) -> str:
            nonlocal size
            data = self._data[int(found[1])]
            size += len(data)
            if size > MAX_TEXT:
                raise _too_large()
            return _words(data)

        def part_of(part: Any) -> Any:
            match part:
                case {"type": "text", "text": str(text)}:
                    return {**part, "text": self._marks.sub(back, text)}
                case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
                    return self._image(url) or part
                case _:
                    return part

        def content_of(content: Any) -> Any:
            if isinstance(content, str):
                return self._marks.sub(back, content)
            return [part_of(part) for part in cast("list[Any]", content)] if isinstance(content, list) else content

        return replace(body, messages=[replace(said, content=content_of(said.content)) for said in body.messages])

    def _image(self, url: str) -> Image | None:
        """Return the image if the URL holds nothing else."""
        found = self._marks.search(url)
        if found is None or found.end() != len(url) or url[:5].lower() != "data:" or url.index(",") < found.start() - 1:
            return None
        return Image("", _words(self._data[int(found[1])]))


def _character(number: re.Match[bytes]) -> bytes:
    return bytes.fromhex(number[1].decode())


def _words(data: bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, "invalid", f"the body is not UTF-8: {error.reason}") from None


def _too_large() -> Refusal:
    return Refusal(413, "too_large", f"the text is larger than {MAX_TEXT:,} bytes", fix="send less of the conversation")
