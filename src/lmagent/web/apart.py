"""Apart: reads in a process of its own, with bounded time and memory, what this one could not stop reading.

A PDF may hold compressed data that is a thousand times its size, and loops. A CSS selector that is harmless on other
pages can take hours on a page that is made for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ToolError
from lmagent.web import worker
from lmagent.web.extract import CUT, WebPage

SECONDS = 25.0
"""Time for a document, with the start of the process. Its own limit, of processor time, is lower."""


class DocumentJob(Struct, frozen=True):
    """What the process reads: a PDF, or the elements of a page that match a selector."""

    url: str
    content_type: str = ""
    selector: str = ""


class DocumentReply(Struct, frozen=True):
    """The page, the texts of a PDF's pages, or a failure in words, with its code."""

    page: WebPage | None = None
    title: str = ""
    texts: tuple[str, ...] = ()
    total: int = 0
    failure: str = ""
    code: str = ""


def read_pdf(body: bytes, url: str) -> WebPage:
    """Return the text of a PDF, page by page. Raise ToolError if it cannot be read, or has no text."""
    reply = _run(DocumentJob(url), body, "is a PDF that takes")
    if reply.failure:
        raise ToolError(f"{url} is a PDF that cannot be read: {reply.failure}.", data={"code": "not_text"})
    if not any(text.strip() for text in reply.texts):
        raise ToolError(f"{url} is a PDF without text: its pages are pictures.", data={"code": "not_text"})
    texts = [f"[Page {number}]\n\n{text.strip()}" for number, text in enumerate(reply.texts, 1) if text.strip()]
    cut = [CUT] if len(reply.texts) < reply.total else []
    return WebPage(" ".join(reply.title.split())[:300], "\n\n".join([*texts, *cut]), 0, "pdf")


def read_selected(body: bytes, content_type: str, url: str, selector: str) -> WebPage:
    """Return the elements of an HTML page that match. Raise ToolError if nothing matches, or for a wrong selector."""
    reply = _run(DocumentJob(url, content_type, selector), body, f"with the selector {selector!r} takes")
    if reply.page is None:
        raise ToolError(reply.failure, data={"code": reply.code})
    return reply.page


def _run(job: DocumentJob, body: bytes, what: str) -> DocumentReply:
    line = [sys.executable, "-I", str(Path(worker.__file__))]
    given = msgspec.json.encode(job) + b"\n" + body
    try:
        done = subprocess.run(line, input=given, capture_output=True, timeout=SECONDS, env={}, check=False)
        return decode_json(done.stdout, DocumentReply)
    except (subprocess.TimeoutExpired, msgspec.DecodeError):  # its own limits end it without a reply
        raise ToolError(
            f"{job.url} {what} more time or memory than a page may. Nothing was read.", data={"code": "too_costly"}
        ) from None
