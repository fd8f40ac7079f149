"""Extraction of a page's main text: 40 pages of our own in `webpages/`, each with its main text marked by hand.

    .venv/bin/python bench/extract.py              lmagent's extraction, page by page, with time and memory
    python bench/extract.py trafilatura ...        other libraries, in an environment that has them

A page's marks are comments, which are taken out before the page is extracted: `<!--main-->` encloses the main text,
`<!--not-->` a part of it that is not (a mark at a heading, an "edit" link), and `<!--may-->` text that counts neither
way (an author's line). The measure is F1 of the words, as a bag; a Chinese or Japanese character is a word. A page
passes with 0.90: the main text is then within 10 % of the reference.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

PAGES = Path(__file__).parent / "webpages"
PASSES = 0.90
ENCODINGS = {"14": "iso-8859-1", "27": "gb2312", "28": "shift_jis", "29": "windows-1251"}
MARK = re.compile(rb"<!--/?(?:main|not|may)-->")
URL = "https://site.example/folder/page.html"

_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W_]+")


class _Reference(HTMLParser):
    """Collects the words of the marked parts."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.may = "", ""
        self._in: dict[str, bool] = {}

    def handle_comment(self, data: str) -> None:
        self._in[data.removeprefix("/")] = not data.startswith("/")
        self._add(" ")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._space(tag)

    def handle_endtag(self, tag: str) -> None:
        self._space(tag)

    def _space(self, tag: str) -> None:
        if tag not in ("b", "i", "em", "strong", "code", "span", "a", "sup", "font", "mi", "mn", "mo"):
            self._add(" ")

    def _add(self, text: str) -> None:
        if self._in.get("may"):
            self.may += text
        elif self._in.get("main") and not self._in.get("not"):
            self.main += text


def words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def plain(markdown: str) -> str:
    """Return the text of Markdown, without the addresses of links and images."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", markdown)
    text = re.sub(r"\]\((?:[^()]|\([^()]*\))*\)", " ", text)
    text = re.sub(r"^```\w*$", "", text, flags=re.MULTILINE)
    return re.sub(r"[*`\\]", "", text)


def score(path: Path, markdown: str) -> float:
    """Return F1 of the words of an extraction."""
    parser = _Reference()
    parser.feed(path.read_bytes().decode(ENCODINGS.get(path.name[:2], "utf-8")))
    main, found = words(parser.main), words(plain(markdown))
    found -= words(parser.may) & (found - main)  # words that count neither way
    common = (main & found).total()
    return 2 * common / (main.total() + found.total()) if common else 0.0


def page(path: Path) -> bytes:
    """Return a page without the marks."""
    return MARK.sub(b"", path.read_bytes())


def _ours() -> Callable[[Path], str]:
    from lmagent.web.extract import extract

    return lambda path: extract(page(path), "text/html", URL).text


def main() -> int:
    ours = _ours()
    scores: dict[str, float] = {}
    began = time.process_time()
    for path in sorted(PAGES.glob("*.html")):
        scores[path.stem] = score(path, ours(path))
    seconds = time.process_time() - began
    for name, value in scores.items():
        print(f"{value:.3f}  {name}{'' if value >= PASSES else '  <--'}")
    passed = sum(value >= PASSES for value in scores.values())
    print(f"{passed} of {len(scores)} pages, mean {sum(scores.values()) / len(scores):.3f}, {seconds * 1000:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
