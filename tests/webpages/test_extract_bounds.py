"""Pages that are made to take hours or gigabytes are cut before they are parsed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lmagent.web.extract import CUT, extract
from lmagent.web.trimmed import DEPTH, trimmed

URL = "https://site.example/"
TRAPS = {
    "nested elements": "b'<div>' * 100_000 + b'x'",
    "nested lists": "b'<ul><li>' * 100_000 + b'x'",
    "nested tables": "b'<table><tr><td>' * 100_000 + b'x'",
    "nested in SVG": "b'<svg>' + b'<td>' * 100_000",
    "a million attributes": "b'<div ' + b' '.join(b'a%d=1' % n for n in range(1_000_000)) + b'>x</div>'",
    "many tags with many attributes": "(b'<b ' + b' '.join(b'a%d' % n for n in range(300)) + b'>x</b>') * 7000",
    "a million cells": "b'<table>' + (b'<tr>' + b'<td>x</td>' * 1000 + b'</tr>') * 1000 + b'</table>'",
    "formatting that is opened anew": "b''.join(b'<font a=%d>' % n for n in range(3000)) + b'<p>x' * 300_000",
    "quotations of many lines": "b'<blockquote>' * 100 + b'x<br>' * 1_000_000",
    "unclosed comments": "b'<!--' * 2_500_000",
    "empty comments": "b'<!-->' * 2_000_000",
    "signs that open nothing": "b'<' * 10_000_000",
    "a long text": "b'hello world ' * 850_000",
    "noise": "__import__('random').Random(1).randbytes(10_000_000)",
}
PROGRAM = """
import sys
from lmagent.web.extract import extract
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
extract(b"<p>x", "text/html", "http://a/")
body = eval(sys.argv[1])
before = peak()
extract(body, "text/html", "http://a/")
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_a_hostile_page_takes_at_most_64_megabytes(trap: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, trap], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) <= 64 << 10


def test_tags_that_are_too_deep_are_left_out_and_their_text_stays() -> None:
    page = extract(b"<div>" * 5000 + b"<p>deep</p>" + b"</div>" * 5000 + b"<p>after</p>", "text/html", URL)
    assert page.text == "deep\n\nafter"
    assert trimmed(b"<div>" * 5000).html.count(b"<div>") == DEPTH


def test_a_page_with_too_much_markup_is_cut_and_says_so() -> None:
    page = extract(b"<p>first</p>" + b"<p>x</p>" * 60_000, "text/html", URL)
    assert page.text.startswith("first\n\nx\n\n")
    assert page.text.endswith(f"x\n\n{CUT}")


def test_a_page_of_scripts_and_inline_pictures_is_read_whole() -> None:
    noise = b"<script>" + b"x<y;" * 500_000 + b"</script><img src='data:image/png;base64," + b"A" * 2_000_000 + b"'>"
    page = extract(noise * 2 + b"<p>the text</p>", "text/html", URL)
    assert page.text == "the text"


def test_a_script_that_is_not_closed_takes_the_rest_of_the_page() -> None:
    assert extract(b"<p>before</p><script>x<p>after</p>", "text/html", URL).text == "before"


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    page = extract(b"line of text\n" * 400_000, "text/plain", URL)
    assert page.text.endswith(CUT)
