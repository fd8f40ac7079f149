"""Run as a program: reads a job and a document from its input, and writes a reply as JSON. Used by `apart.py`."""

from __future__ import annotations

import contextlib
import logging
import sys
from io import BytesIO

import msgspec

PAGES = 500
CHARACTERS = 2_000_000
MEMORY = 768 << 20
CPU_SECONDS = 15


def main() -> int:
    bound()
    from lmagent.core.decoding import convert, decode_json
    from lmagent.core.errors import ToolError
    from lmagent.web.apart import DocumentJob, DocumentReply
    from lmagent.web.maintext import read_html

    line, _, body = sys.stdin.buffer.read().partition(b"\n")
    job = decode_json(line, DocumentJob)
    if not job.selector:
        reply = convert(read_pdf(body), DocumentReply)
    else:
        try:
            reply = DocumentReply(read_html(body, job.content_type, job.url, job.selector))
        except ToolError as refused:
            reply = DocumentReply(failure=refused.message, code=str(refused.data.get("code", "")))
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    return 0


def bound() -> None:
    """Bound the memory and the time of this process, as far as the system can."""
    import resource

    for kind, amount in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (amount, amount))


def read_pdf(body: bytes) -> dict[str, object]:
    """Return the title and the pages' texts, or the failure in words."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, WrongPasswordError

    logging.disable()
    texts: list[str] = []
    title = ""
    try:
        document = PdfReader(BytesIO(body))
        total = len(document.pages)
        title = (document.metadata and document.metadata.title) or ""
        for page in document.pages[:PAGES]:
            texts.append(page.extract_text())
            if sum(map(len, texts)) > CHARACTERS:
                break
    except (DependencyError, FileNotDecryptedError, WrongPasswordError):
        return {"failure": "it is encrypted"}
    except MemoryError:
        return {"failure": "it takes more memory than a document may"}
    except Exception as wrong:  # noqa: BLE001 - a damaged file fails in ways that the library does not name
        if not texts:
            return {"failure": f"it is damaged ({type(wrong).__name__})"}
        total = len(texts) + 1
    return {"title": title, "texts": texts, "total": total}


if __name__ == "__main__":
    sys.exit(main())
