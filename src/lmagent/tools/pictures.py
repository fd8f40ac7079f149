"""Detects image formats and sizes by the bytes of a file. A name or a declared type proves nothing; SVG is no image.

Only headers are read, so that a decoder's memory use is known before an image is decoded. Formats: PNG (W3C), JPEG (ITU
T.81), GIF89a, WebP (RFC 9649).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

Size = tuple[int, int]

MAX_PIXELS = 50_000_000
"""Pixels of an image that may be decoded: an A4 page at 600 dpi has 35 million."""

MOST_PIECES = 10_000
"""Pieces of a file that are searched for its size: a colour profile has 255 at most, and a file with millions of them
is an attack."""

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_GIF = (b"GIF87a", b"GIF89a")
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_SCAN, _END = 0xDA, 0xD9
_MARKER = re.compile(rb"\xff++([^\xff])", re.DOTALL)
_FRAME, _EXTENSION = 0x2C, 0x21


class Picture(Struct, frozen=True):
    """An image's type, such as `image/png`, and its size in pixels."""

    media_type: str
    width: int
    height: int

    @property
    def is_too_large(self) -> bool:
        return self.width * self.height > MAX_PIXELS


def media_type_of(head: bytes) -> str | None:
    """Return the image format of a file that begins with these bytes; `picture_of` checks the rest."""
    if head.startswith(_PNG):
        return "image/png"
    if head.startswith(_JPEG + b"\xff"):
        return "image/jpeg"
    if head.startswith(_GIF):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def picture_of(data: bytes) -> Picture | None:
    """Return the image at the beginning of these bytes; None for no image, or one without a size."""
    kind = media_type_of(data)
    size = _SIZES[kind](data) if kind is not None else None
    return Picture(kind, *size) if kind is not None and size is not None and min(size) > 0 else None


def _png(data: bytes) -> Size | None:
    if data[12:16] != b"IHDR" or len(data) < 33:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif(data: bytes) -> Size | None:
    """Return the size of the screen, or of the first frame if that is larger: viewers make room for it."""
    if len(data) < 13:
        return None
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    left = MOST_PIECES
    while left > 0 and data[at : at + 1] == bytes([_EXTENSION]):
        at += 2
        while left > 0 and at < len(data) and data[at]:  # its pieces, each after its length
            at, left = at + 1 + data[at], left - 1
        at, left = at + 1, left - 1
    if left <= 0 or data[at : at + 1] != bytes([_FRAME]) or at + 10 > len(data):
        return None
    x, y, width, height = (int.from_bytes(data[place : place + 2], "little") for place in range(at + 1, at + 9, 2))
    screen = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    return max(screen[0], x + width), max(screen[1], y + height)


def _webp(data: bytes) -> Size | None:
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":  # the canvas, minus one
            width, height = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L" if data[20] == 0x2F:  # 14 bits each, minus one
            bits = int.from_bytes(data[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":  # 14 bits each; the bits above are the scaling
            width = int.from_bytes(data[26:28], "little") & 0x3FFF
            height = int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            return None
    return width, height


def _jpeg(data: bytes) -> Size | None:
    """Search the frame header with the size, after an arbitrary number of other segments."""
    at = 2
    for _ in range(MOST_PIECES):
        if (found := _MARKER.match(data, at)) is None:
            return None
        marker, at = found[1][0], found.end() - 2  # further 0xFF bytes before it are padding
        if marker in _ALONE:
            at += 2
        elif marker in (_SCAN, _END):
            return None
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            if at + 9 > len(data):
                return None
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    return None


_SIZES: dict[str, Callable[[bytes], Size | None]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}
