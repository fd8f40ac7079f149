"""Markdown: writes elements of an HTML page as Markdown, with absolute links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

DEEPEST = 80
"""Levels of elements that are written one by one; deeper text is plain."""

NESTED = 8
"""Levels of lists and quotations that are indented: each level adds to all lines in it."""

LONGEST_LINK = 2000


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_INLINE = words(
    "a abbr acronym audio b bdi bdo big br cite code data del dfn em font i img input ins kbd label mark math "
    "meter nobr output picture q rp rt ruby s samp small span strike strong sub sup time tt u var video wbr"
)
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "cite": "*", "del": "~~", "s": "~~", "strike": "~~"}
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_NESTING = frozenset({"ul", "ol", "menu", "dir", "blockquote"})
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_LANGUAGE = re.compile(r"(?:^|[\s-])(?:language|lang|highlight-source|highlight|brush:)[-:\s]?\s*([\w+#-]{1,20})")
_NO_LANGUAGE = frozenset({"text", "none", "plain", "plaintext", "default", "notranslate", "source", "code"})
_ANCHORS = frozenset({"", "#", "¶", "§", "🔗", "\u200b"})
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")


def flat(text: str) -> str:
    """Return a text on one line."""
    return " ".join(_INVISIBLE.sub("", text).split())


def absolute(base: str, href: str) -> str:
    """Return an address that can be opened; empty for scripts, data and nonsense."""
    try:
        address = urljoin(base, href.strip())
        kind = urlsplit(address).scheme
    except ValueError:
        return ""
    return address if kind in ("http", "https", "mailto", "tel", "ftp") and len(address) <= LONGEST_LINK else ""


class Writer:
    """Writes elements; `links` counts the links that it has written."""

    def __init__(self, base: str) -> None:
        self.links = 0
        self._base = base
        self._nested = 0

    def write(self, node: LexborNode) -> str:
        """Return the Markdown of an element."""
        text = "\n\n".join(self._blocks(node, 0) if _is_container(node) else self._block(node, 0))
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n")

    def link(self, text: str, href: str) -> str:
        """Return a link, or only its text if the address cannot be opened, or is on the same page."""
        address = "" if href.strip().startswith("#") else absolute(self._base, href)
        if not address or not text:
            return text
        self.links += 1
        safe = address.replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        return f"[{text}]({safe})"

    def _blocks(self, node: LexborNode, depth: int) -> Iterator[str]:
        """Yield the blocks in an element; text and inline elements in a row are one paragraph."""
        run: list[str] = []
        for child in children(node):
            if child.is_text_node or child.tag in _INLINE:
                run.append(self._inline(child, depth))
                continue
            yield from _paragraph(run)
            run = []
            yield from self._block(child, depth + 1)
        yield from _paragraph(run)

    def _block(self, node: LexborNode, depth: int) -> Iterator[str]:
        tag = node.tag or ""
        if depth > DEEPEST:
            yield from _paragraph([node.text()])
        elif tag in _HEADINGS:
            if text := _one_line(self._all_inline(node, depth)):
                yield f"{_HEADINGS[tag]} {text}"
        elif tag == "pre":
            yield from _code(node)
        elif tag in _NESTING and self._nested < NESTED:
            self._nested += 1
            text = self._quotation(node, depth) if tag == "blockquote" else self._list(node, depth)
            self._nested -= 1
            if text:
                yield text
        elif tag == "dl":
            if text := self._definitions(node, depth):
                yield text
        elif tag == "table":
            yield from self._table(node, depth)
        elif tag == "hr":
            yield "---"
        elif tag == "li":  # without a list
            yield from _indented("- ", "\n\n".join(self._blocks(node, depth)))
        else:
            yield from self._blocks(node, depth)

    def _all_inline(self, node: LexborNode, depth: int) -> str:
        return "".join(self._inline(child, depth + 1) for child in children(node))

    def _inline(self, node: LexborNode, depth: int) -> str:
        """Return text and inline marks. A line end of a `<br>` stays a line end, all other blanks are one."""
        if node.is_text_node:
            return re.sub(r"\s+", " ", _INVISIBLE.sub("", node.text_content or ""))
        tag = node.tag or ""
        if depth > DEEPEST:
            return f" {flat(node.text())} "
        if tag == "br":
            return "\n"
        if tag == "img":
            return self._image(node)
        if tag == "math":
            return _formula(node)
        if tag in _CODE:
            return _marked(node.text(), "`") if "`" not in node.text() else node.text()
        text = self._all_inline(node, depth)
        if tag == "a":
            return self._anchor(node, text)
        if tag in _MARKS:
            return _marked(text, _MARKS[tag])
        return f'"{text}"' if tag == "q" else text if tag in _INLINE else f" {text} "

    def _anchor(self, node: LexborNode, text: str) -> str:
        href = node.attributes.get("href") or ""
        shown = _one_line(text)
        if shown in _ANCHORS:
            return ""
        before, after = " " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""
        return f"{before}{self.link(shown, href)}{after}"

    def _image(self, node: LexborNode) -> str:
        alternative = flat(node.attributes.get("alt") or "")
        address = absolute(self._base, node.attributes.get("src") or "")
        return f"![{alternative}]({address})" if alternative and address else alternative

    def _quotation(self, node: LexborNode, depth: int) -> str:
        text = "\n\n".join(self._blocks(node, depth))
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n")) if text else ""

    def _list(self, node: LexborNode, depth: int) -> str:
        items: list[str] = []
        number = _number(node.attributes.get("start"), 1) if node.tag == "ol" else None
        for child in children(node):
            blocks = list(self._blocks(child, depth + 1)) if child.is_element_node else []
            if not blocks:
                continue
            mark = "- " if number is None else f"{number}. "
            number = None if number is None else number + 1
            items.extend(_indented(mark, _tight(blocks)))
        return "\n".join(items)

    def _definitions(self, node: LexborNode, depth: int) -> str:
        lines: list[str] = []
        for child in children(node):
            if child.tag == "dt":
                if text := _one_line(self._all_inline(child, depth)):
                    lines.append(f"**{text}**" if "*" not in text else text)
            elif child.tag == "div" and depth < DEEPEST:
                lines.append(self._definitions(child, depth + 1))
            elif child.is_element_node:
                lines.extend(_indented(": ", _tight(list(self._blocks(child, depth + 1)))))
        return "\n".join(filter(None, lines))

    def _table(self, node: LexborNode, depth: int) -> Iterator[str]:
        if not is_data(node):
            for row in _rows(node):
                for cell in children(row):
                    yield from self._blocks(cell, depth + 1)
            return
        if (caption := node.css_first("caption")) is not None:
            yield from _paragraph([self._all_inline(caption, depth)])
        if numbers := _numbered_code(node):
            yield from _code(numbers)
            return
        lines: list[str] = []
        for row in _rows(node):
            cells = [cell for child in children(row) if child.tag in ("td", "th") for cell in self._cell(child, depth)]
            if not any(cells):
                continue
            if not lines:
                head = any(child.tag == "th" for child in children(row)) and not row.css_first("td")
                lines += [] if head else [_row([""] * len(cells)), _row(["---"] * len(cells))]
                lines += [_row(cells), _row(["---"] * len(cells))] if head else [_row(cells)]
            else:
                lines.append(_row(cells))
        if lines:
            yield "\n".join(lines)

    def _cell(self, node: LexborNode, depth: int) -> list[str]:
        text = " ".join(_one_line(block) for block in self._blocks(node, depth + 1)).replace("|", "\\|")
        return [text, *[""] * (min(_number(node.attributes.get("colspan"), 1), 20) - 1)]


def children(node: LexborNode) -> Iterator[LexborNode]:
    """Yield the texts and elements in an element."""
    child = node.child
    while child is not None:
        if child.is_text_node or child.is_element_node:
            yield child
        child = child.next


def _is_container(node: LexborNode) -> bool:
    return node.tag not in _INLINE and node.tag not in _HEADINGS and node.tag not in ("pre", "ul", "ol", "dl", "table")


def _paragraph(run: list[str]) -> Iterator[str]:
    lines = [" ".join(line.split()) for line in "".join(run).split("\n")]
    text = re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip()
    if text:
        yield text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _marked(text: str, mark: str) -> str:
    """Put marks around a text, inside the blanks at its ends."""
    inner = _one_line(text)
    if not inner or inner.startswith(mark):
        return text
    before, after = " " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""
    return f"{before}{mark}{inner}{mark}{after}"


def _tight(blocks: list[str]) -> str:
    """Join the blocks of an item: a list in it follows without an empty line."""
    text = blocks[0] if blocks else ""
    for block in blocks[1:]:
        text += ("\n" if re.match(r"(?:- |\d+\. )", block) else "\n\n") + block
    return text


def _indented(mark: str, text: str) -> Iterator[str]:
    if text.strip():
        yield mark + text.replace("\n", "\n" + " " * len(mark)).replace("\n" + " " * len(mark) + "\n", "\n\n")


def _code(node: LexborNode) -> Iterator[str]:
    for line in node.css("br"):
        line.replace_with("\n")
    text = (node.text() or "").strip("\n").rstrip()
    if text.strip():
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
        yield f"{fence}{_language(node)}\n{text}\n{fence}"


def _language(node: LexborNode) -> str:
    inner = node.css_first("code")
    near: list[LexborNode | None] = [inner, node, node.parent, node.parent.parent if node.parent else None]
    for element in near:
        if element is None:
            continue
        named = element.attributes.get("data-lang") or element.attributes.get("data-language") or ""
        found = _LANGUAGE.search(element.attributes.get("class") or "")
        language = named if re.fullmatch(r"[\w+#-]{1,20}", named) else found[1] if found else ""
        if language and language.lower() not in _NO_LANGUAGE:
            return language.lower()
    return ""


def _formula(node: LexborNode) -> str:
    written = node.attributes.get("alttext") or ""
    if not written and (source := node.css_first("annotation")) is not None:
        written = source.text()
    return f"${flat(written)}$" if written else flat(node.text())


def _rows(table: LexborNode) -> Iterator[LexborNode]:
    for child in children(table):
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in children(child) if row.tag == "tr")


def is_data(table: LexborNode) -> bool:
    """Return whether a table shows data, and does not only place parts of a page."""
    if (
        len(table.css("table")) > 1 or table.css_first("h1, h2, h3, ul, p + p, form") is not None
    ):  # its own is the first
        return False
    rows = [sum(child.tag in ("td", "th") for child in children(row)) for row in _rows(table)]
    return sum(count >= 2 for count in rows) >= 2 or _numbered_code(table) is not None


def _numbered_code(table: LexborNode) -> LexborNode | None:
    """Return the code of a table that puts line numbers beside it."""
    listings = table.css("pre")
    if len(listings) != 2 or not re.fullmatch(r"[\d\s]+", listings[0].text() or "x"):
        return None
    return listings[1]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text.strip()) else default
