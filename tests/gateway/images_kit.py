"""Images of any size, as bytes: headers that say so, and for PNG the whole picture."""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\0\0\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif(width: int, height: int, *, screen: tuple[int, int] | None = None, before: bytes = b"") -> bytes:
    colours = b"\x80\0\0" + b"\0" * 6
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02D\x01\0"
    return b"GIF89a" + struct.pack("<HH", *(screen or (width, height))) + colours + before + frame + b";"


def jpeg(width: int, height: int, *, before: int = 0) -> bytes:
    filler = (b"\xff\xe1" + struct.pack(">H", 65_000) + b"\0" * 64_998) * before
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return b"\xff\xd8" + filler + b"\xff\xc4\0\x04\0\0" + frame + b"\xff\xda\0\x02\xff\xd9"


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        body = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + b"\0" * 5
    else:
        body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 1 << 14, height)
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk
