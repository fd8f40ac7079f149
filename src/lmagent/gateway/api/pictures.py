"""Pictures: the images that the gateway accepts and shows, judged by their bytes (`tools/pictures.py`)."""

from __future__ import annotations

from lmagent.gateway.http.errors import Refusal
from lmagent.tools.pictures import MAX_PIXELS, Picture, picture_of

SANDBOX = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
"""Headers that make untrusted content safe to serve: it runs in no origin."""

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Formats that browsers and model servers support."""


def image_of(data: bytes) -> Picture | None:
    """Return the image that begins with these bytes; None if it is of another format or too large."""
    found = picture_of(data)
    return found if found is not None and found.media_type in _SHOWN and not found.is_too_large else None


def judged(data: bytes) -> Picture:
    """Return the image that these bytes are.

    Raises:
        Refusal: it is of another format (415), or too large to decode (413).
    """
    found = picture_of(data)
    if found is None or found.media_type not in _SHOWN:
        raise Refusal(415, "no_image", "this is no PNG, JPEG, GIF or WebP image", fix="save it as one of these")
    if found.is_too_large:
        raise Refusal(
            413,
            "too_many_pixels",
            f"the image has {found.width:,} x {found.height:,} pixels, more than {MAX_PIXELS // 1_000_000} million",
            fix="make it smaller",
        )
    return found
