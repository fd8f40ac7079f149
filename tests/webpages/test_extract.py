"""The text of pages: HTML by its parts, other kinds, charsets, feeds, PDF, and refusals."""

from __future__ import annotations

import importlib.util
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from lmagent.core.errors import ToolError
from lmagent.web.extract import WebPage, extract

BENCH = Path(__file__).parents[2] / "bench"
URL = "https://site.example/folder/page.html"
LONG = "The kettle holds two litres and a half, which is enough for nine cups of tea. " * 4


def html(body: str, **options: str) -> WebPage:
    return extract(f"<!doctype html><title>A page</title>{body}".encode(), "text/html; charset=utf-8", URL, **options)


def test_the_main_text_of_forty_kinds_of_pages_is_within_a_tenth_of_the_reference() -> None:
    spec = importlib.util.spec_from_file_location("bench_extract", BENCH / "extract.py")
    assert spec is not None
    assert spec.loader is not None
    bench: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    pages = sorted(bench.PAGES.glob("*.html"))
    scores = {path.stem: bench.score(path, extract(bench.page(path), "text/html", URL).text) for path in pages}
    assert len(scores) == 40
    assert sum(score >= bench.PASSES for score in scores.values()) >= 36, scores


def test_a_page_is_written_as_markdown() -> None:
    page = html(
        f"""<article><h1>Tea</h1><p>{LONG}</p><h2>How <em>we</em> brew</h2><p>See <a href="../pots?a=1">pots</a>,
        <a href="#x">below</a> and <a href="javascript:x()">this</a>.<br>Use <code>kettle -t 80</code>.</p>
        <ol start="3"><li>Boil<ul><li>gas</li><li>induction</li></ul></li><li>Pour</li></ol>
        <table><tr><th>Tea</th><th>°C</th></tr><tr><td>Green | white</td><td>80</td></tr></table>
        <pre><code class="language-python">def brew():\n    return "tea"</code></pre>
        <blockquote><p>Hot.</p></blockquote><dl><dt>Oolong</dt><dd>In between</dd></dl></article>"""
    )
    assert page.title == "A page"
    assert page.links == 1
    assert page.kind == "html"
    assert page.text.replace(LONG.strip(), "LONG") == "\n\n".join(
        (
            "# Tea",
            "LONG",
            "## How *we* brew",
            "See [pots](https://site.example/pots?a=1), below and this.\nUse `kettle -t 80`.",
            "3. Boil\n   - gas\n   - induction\n4. Pour",
            "| Tea | °C |\n| --- | --- |\n| Green \\| white | 80 |",
            '```python\ndef brew():\n    return "tea"\n```',
            "> Hot.",
            "**Oolong**\n: In between",
        )
    )


@pytest.mark.parametrize(
    "hidden",
    [
        '<p style="color:red; display : none">SECRET</p>',
        '<div style="visibility:hidden"><p>SECRET</p></div>',
        "<p hidden>SECRET</p>",
        '<p aria-hidden="true">SECRET</p>',
        "<!-- SECRET -->",
        "<!-- a -- > <p>SECRET</p> -->",
        "<template><p>SECRET</p></template>",
        "<script>document.write('<p>SECRET</p>')</script>",
        "<style>p::after{content:'SECRET'}</style>",
        "<noscript>SECRET</noscript>",
        "<svg><text>SECRET</text></svg>",
    ],
)
def test_what_a_reader_would_not_see_is_left_out(hidden: str) -> None:
    assert html(f"<main><p>{LONG}</p>{hidden}</main>").text == LONG.strip()


def test_a_selector_takes_only_the_elements_that_match_and_each_once() -> None:
    body = f"<nav class=x><a href=/a>A</a><i hidden>no</i><div class=x>one<b>two</b></div></nav><p>{LONG}</p>"
    assert html(body, selector=".x").text == "[A](https://site.example/a)\n\none**two**"


@pytest.mark.parametrize(("selector", "words"), [("p[[", "is no CSS selector"), ("h4", "No element of https://site")])
def test_a_selector_that_is_wrong_or_matches_nothing_is_said(selector: str, words: str) -> None:
    with pytest.raises(ToolError, match=re.escape(words)):
        html("<p>x", selector=selector)


@pytest.mark.long  # it takes its whole time
def test_a_selector_that_would_take_hours_is_given_up() -> None:
    with pytest.raises(ToolError, match="takes more time or memory than a page may"):
        html("<p>x</p>" * 100_000, selector="x ~ p ~ p")


def test_a_short_page_is_read_whole_and_one_for_scripts_shows_its_notice() -> None:
    assert html("<p>It works!</p>").text == "It works!"
    assert html("<div id=app></div><noscript>Enable scripts.</noscript>").text == "Enable scripts."
    assert html("").text == ""


def test_a_thread_of_comments_is_read_if_the_page_has_nothing_else() -> None:
    comments = "".join(f"<div class=comment><p>{number}: {LONG}</p></div>" for number in range(3))
    assert html(f"<nav><a href=/>Home</a></nav>{comments}").text.count("kettle") == 12


def test_links_follow_the_base_of_the_page() -> None:
    assert "(https://other.example/x/a%20b)" in html("<base href='//other.example/x/'><p><a href='a b'>A</a>").text


@pytest.mark.parametrize("fence", ["```", "`````"])
def test_code_that_holds_a_fence_gets_a_longer_one(fence: str) -> None:
    assert html(f"<pre>{fence}\nx</pre>").text == f"{fence}`\n{fence}\nx\n{fence}`"


@pytest.mark.parametrize(
    ("encoding", "header", "meta"),
    [
        ("utf-8", "", ""),
        ("utf-8", "iso-8859-1", ""),
        ("utf-8-sig", "windows-1251", "koi8-r"),
        ("utf-16", "", ""),
        ("windows-1251", "windows-1251", ""),
        ("windows-1251", "", "windows-1251"),
        ("windows-1251", "utf-8", "windows-1251"),
        ("windows-1251", "", ""),
        ("koi8-r", "nonsense-8", "koi8-r"),
    ],
)
def test_the_charset_is_found_also_where_it_is_declared_wrongly(encoding: str, header: str, meta: str) -> None:
    text = "Зимой зелёный лук стоит дорого, а вырастить его можно за две недели в обычной банке с водой. " * 5
    body = f"<html><head><meta charset='{meta}'></head><body><p>{text}</p></body></html>".encode(encoding)
    assert extract(body, f"text/html; charset={header}", URL).text == text.strip()


@pytest.mark.parametrize("encoding", ["shift_jis", "euc-jp", "iso-2022-jp"])
def test_japanese_charsets_are_read(encoding: str) -> None:
    text = "十年使った石窯の天井に、とうとうひびが入りました。" * 12
    body = f'<meta http-equiv="Content-Type" content="text/html; charset={encoding}"><p>{text}'.encode(encoding)
    assert extract(body, "text/html", URL).text == text


def test_other_texts_are_read_by_their_kind() -> None:
    assert (
        extract(b'{"b":[1,2],"a":null}', "application/json", URL).text
        == '{\n  "b": [\n    1,\n    2\n  ],\n  "a": null\n}'
    )
    assert extract(b'{"b":', "application/json", URL) == WebPage("", '{"b":', 0, "json")
    assert extract(b"# Pots\n\n[a](b)", "text/markdown", URL) == WebPage("Pots", "# Pots\n\n[a](b)", 1, "markdown")
    assert extract(b"a,b\n1,2\n", "text/csv", URL).kind == "text"
    assert extract(b"plain", "", URL) == WebPage("", "plain", 0, "text")
    assert extract(b"\n<!-- x -->\n<HTML><p>x", "text/plain", URL).kind == "html"
    assert extract(b"<?xml version='1.0'?><a><b>x</b></a>", "application/xml", URL).kind == "xml"


def test_a_feed_is_read_as_its_entries() -> None:
    rss = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>Slow Miles</title><link>https://s.example</link>
    <item><title>Paper maps</title><link>https://s.example/1</link><pubDate>Tue, 12 May 2026</pubDate>
    <description>&lt;p&gt;Why I &lt;b&gt;went&lt;/b&gt; back&lt;/p&gt;</description></item></channel></rss>"""
    page = extract(rss, "application/rss+xml", URL)
    assert page.title == "Slow Miles"
    assert page.text == (
        "# Slow Miles\n\n## [Paper maps](https://s.example/1)\n\nTue, 12 May 2026\n\nWhy I **went** back"
    )
    atom = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><title>E</title>
    <link rel="alternate" href="/e"/><updated>2026-01-01</updated><summary>S</summary></entry></feed>"""
    assert extract(atom, "application/atom+xml", URL).text == "# T\n\n## [E](https://site.example/e)\n\n2026-01-01\n\nS"


def test_xml_that_defines_entities_is_shown_as_it_came() -> None:
    bomb = b'<!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><rss><item><title>&b;</title></item></rss>'
    page = extract(bomb, "application/rss+xml", URL)
    assert (page.kind, page.text) == ("xml", bomb.decode())


def pdf(*pages: str) -> bytes:
    """Return a PDF with a line of text on each page."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", ""]
    kids: list[int] = []
    for text in pages:
        content = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        objects.append(f"<</Length {len(content)}>>stream\n{content}\nendstream")
        font = "<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
        number = len(objects)
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {number} 0 R/Resources{font}>>")
        kids.append(len(objects))
    objects[1] = f"<</Type/Pages/Count {len(kids)}/Kids[{' '.join(f'{kid} 0 R' for kid in kids)}]>>"
    out, places = BytesIO(), list[int]()
    out.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj{content}endobj\n".encode())
    start = out.tell()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    out.write(f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\n".encode())
    out.write(f"startxref\n{start}\n%%EOF".encode())
    return out.getvalue()


def test_a_pdf_is_read_page_by_page() -> None:
    page = extract(pdf("Kettles for nine", "and their lids"), "application/octet-stream", URL)
    assert (page.kind, page.text) == ("pdf", "[Page 1]\n\nKettles for nine\n\n[Page 2]\n\nand their lids")


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png", "page.html is image/png, which is no text"),
        (b"PK\3\4\0\0", "", "of an unknown kind, which is no text"),
        (b"\0\1\2", "application/octet-stream", "application/octet-stream, which is no text"),
        (b"\0\1", "video/mp4", "is video/mp4"),
        (b"%PDF-1.7 nonsense", "application/pdf", "is a PDF that cannot be read: it is damaged"),
    ],
)
def test_what_is_no_text_is_refused_by_its_kind(body: bytes, kind: str, words: str) -> None:
    with pytest.raises(ToolError, match=re.escape(words)):
        extract(body, kind, URL)


def test_a_selector_for_something_else_than_html_is_refused() -> None:
    with pytest.raises(ToolError, match="css_selector is for HTML pages"):
        extract(b"{}", "application/json", URL, "p")
