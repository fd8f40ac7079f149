"""Pictures: what an image is by its own bytes. A name or a declared type proves nothing, and SVG and HTML are none.

Only headers are read: what a decoder would have to allocate is known before anybody decodes it. Formats:
PNG (W3C) section 11.2.1, JPEG (ITU T.81) B.2.2, GIF89a sections 15, 18 and 20, WebP (RFC 9649) section 2.
"""

from __future__ import annotations

import re

from msgspec import Struct

from lmagent.gateway.http.errors import Refusal

MAX_PIXELS = 50_000_000
"""Pixels of an image: an A4 page at 600 dpi has 35 million."""

SANDBOX = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
"""Headers under which anybody's content can be served: whatever it is, it acts in no origin."""

MOST_PIECES = 10_000
"""Pieces of a file that are looked at for its size: a colour profile has 255 at most, and whoever made millions of them
wants to keep us busy."""

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_SCAN, _END = 0xDA, 0xD9
_MARKER = re.compile(rb"\xff++([^\xff])", re.DOTALL)
_FRAME, _EXTENSION = 0x2C, 0x21


class Picture(Struct, frozen=True):
    """An image.

    Attributes:
        media_type: for example `image/png`.
        width: in pixels.
        height: in pixels.
    """

    media_type: str
    width: int
    height: int


def picture_of(data: bytes) -> Picture | None:
    """What image these bytes begin; None for no image, or one without a size."""
    found = _png(data) or _gif(data) or _webp(data) or _jpeg(data)
    return found if found is not None and found.width > 0 and found.height > 0 else None


def judged(data: bytes) -> Picture:
    """The image that these bytes are.

    Raises:
        Refusal: they are none (415), or one that is too large to decode (413).
    """
    found = picture_of(data)
    if found is None:
        raise Refusal(415, "no_image", "this is no PNG, JPEG, GIF or WebP image", fix="save it as one of these")
    if found.width * found.height > MAX_PIXELS:
        raise Refusal(
            413,
            "too_many_pixels",
            f"the image has {found.width:,} x {found.height:,} pixels, more than {MAX_PIXELS // 1_000_000} million",
            fix="make it smaller",
        )
    return found


def _png(data: bytes) -> Picture | None:
    if not data.startswith(_PNG) or data[12:16] != b"IHDR" or len(data) < 33:
        return None
    return Picture("image/png", int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))


def _gif(data: bytes) -> Picture | None:
    """The screen, or the first frame where that is larger: viewers make room for it."""
    if data[:6] not in (b"GIF87a", b"GIF89a") or len(data) < 13:
        return None
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    left = MOST_PIECES
    while left > 0 and data[at : at + 1] == bytes([_EXTENSION]):
        at += 2
        while left > 0 and at < len(data) and data[at]:  # its pieces, each behind its length
            at, left = at + 1 + data[at], left - 1
        at, left = at + 1, left - 1
    if left <= 0 or data[at : at + 1] != bytes([_FRAME]) or at + 10 > len(data):
        return None
    x, y, width, height = (int.from_bytes(data[place : place + 2], "little") for place in range(at + 1, at + 9, 2))
    screen = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    return Picture("image/gif", max(screen[0], x + width), max(screen[1], y + height))


def _webp(data: bytes) -> Picture | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":  # the canvas, less one
            width, height = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L" if data[20] == 0x2F:  # 14 bits each, less one
            bits = int.from_bytes(data[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":  # 14 bits each, above them how to scale
            width = int.from_bytes(data[26:28], "little") & 0x3FFF
            height = int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            return None
    return Picture("image/webp", width, height)


def _jpeg(data: bytes) -> Picture | None:
    """The size stands in the frame header, behind as many other segments as somebody liked to put there."""
    if not data.startswith(_JPEG):
        return None
    at = 2
    for _ in range(MOST_PIECES):
        if (found := _MARKER.match(data, at)) is None:
            return None
        marker, at = found[1][0], found.end() - 2  # bytes of 0xFF before it only fill
        if marker in _ALONE:
            at += 2
        elif marker in (_SCAN, _END):
            return None
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            if at + 9 > len(data):
                return None
            return Picture("image/jpeg", int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7]))
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    return None
