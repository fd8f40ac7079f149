"""Bytes to text and back without loss: the encoding of a text file."""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.tools.pictures import media_type_of

SNIFF = 8192
"""Bytes from the start of a file that decide its kind."""

_BOMS = (  # UTF-32 LE begins with the mark of UTF-16 LE
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_ODD = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\b\x1b")
_ODD_SHARE = 0.1


class Encoding(Struct, frozen=True):
    """A text file's encoding: Python's name of it, and the byte order mark, if any."""

    codec: str
    mark: bytes = b""

    @property
    def note(self) -> str:
        """The text about it for the model; empty for plain UTF-8."""
        if self.codec == "utf-8":
            return "byte order mark" if self.mark else ""
        return "not UTF-8, read as Latin-1" if self.codec == "latin-1" else self.codec.upper()


def is_binary(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is no text."""
    if any(head.startswith(mark) for mark, _ in _BOMS):
        return False
    # A text may begin with "GIF89a", but not with the first bytes of a JPEG.
    known = head.startswith(b"%PDF-") or media_type_of(head) == "image/jpeg"
    return known or b"\0" in head or len(head) - len(head.translate(None, _ODD)) > len(head) * _ODD_SHARE


def sniff(head: bytes, *, whole: bool) -> Encoding:
    """Return the encoding of a text file by its first bytes; without `whole`, a character may be cut at their end."""
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.start < len(head) - 3:
            return Encoding("latin-1")
    return Encoding("utf-8")


def decode(data: bytes) -> tuple[str, Encoding] | None:
    """Return the text of a file without its byte order mark, and its encoding; None if it is not text.

    Latin-1 is used for every unknown encoding: it maps bytes to characters one to one.
    """
    if is_binary(data[:SNIFF]):
        return None
    encoding = sniff(data, whole=True)
    try:
        return data[len(encoding.mark) :].decode(encoding.codec), encoding
    except UnicodeDecodeError:
        return None


def encode(text: str, encoding: Encoding) -> bytes:
    """Return the bytes of a text in the encoding of its file; raises ToolError for a character that it lacks."""
    try:
        return encoding.mark + text.encode(encoding.codec)
    except UnicodeEncodeError as error:
        bad = text[error.start : error.end][:20]
        raise ToolError(
            f"The file is {encoding.codec}, which has no {bad!r}. Nothing was changed. Use plain characters there.",
            data={"code": "encoding"},
        ) from None


def describe_binary(head: bytes, size: int) -> str:
    first = " ".join(f"{byte:02x}" for byte in head[:16])
    return f"binary file, {size:,} bytes, begins {first}"
