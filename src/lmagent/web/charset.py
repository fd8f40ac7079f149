"""Charset: the text of bytes whose encoding is declared wrongly, or not at all."""

from __future__ import annotations

import codecs
import re

_DECLARED = re.compile(
    rb"""<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{2,40})""", re.I
)
_HEADER = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.I)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MEANT = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
}
"""Browsers read these as their supersets, and pages rely on it."""

_SAMPLE = 64 << 10


def decoded(body: bytes, content_type: str = "", head: bytes | None = None) -> str:
    """Return the text; bytes that are invalid become U+FFFD. `head` is where a declaration is looked for."""
    return body.decode(encoding_of(body, content_type, head), "replace")


def encoding_of(body: bytes, content_type: str = "", head: bytes | None = None) -> str:
    """Return the encoding: by its mark, as UTF-8 if the bytes are valid, as declared, or by detection.

    Text that is valid UTF-8 and not ASCII is hardly ever anything else, whatever a server declares.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    header = _HEADER.search(content_type)
    meta = _DECLARED.search((body if head is None else head)[:4096])
    names = [_known(header[1]) if header else "", _known(meta[1].decode()) if meta else ""]
    if any(name.startswith("iso2022") for name in names):
        return next(filter(None, names))
    if _is_utf8(body):
        return "utf-8"
    sample = body[:_SAMPLE]
    fitting = [name for name in names if name not in ("", "utf-8") and _fits(sample, name)]
    return fitting[0] if fitting else _detected(sample)


def _known(name: str) -> str:
    """Return a charset as Python names it; empty if it is unknown, or no charset of texts."""
    try:
        found = codecs.lookup(name).name
        "a".encode(found)
    except (LookupError, UnicodeError, TypeError, AssertionError):
        return ""
    return "" if found in ("utf-7", "idna", "punycode", "undefined") else _MEANT.get(found, found)


def _is_utf8(body: bytes) -> bool:
    """Return whether it is UTF-8; it may end within a character, and a few bytes may be damaged."""
    text = body[: 4 * _SAMPLE].decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    return wrong <= 1 or wrong * 200 < sum(character > "\x7f" for character in text)


def _fits(sample: bytes, name: str) -> bool:
    text = sample.decode(name, "replace")
    return text.count("\ufffd") * 50 <= len(text)


def _detected(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(sample, steps=5, chunk_size=512).best()
    return best.encoding if best is not None else "cp1252"
