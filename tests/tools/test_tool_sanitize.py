from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.tools.sanitize import one_line, printable, visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\n\ttext ü 漢 🙂", "plain\n\ttext ü 漢 🙂"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mx\x1b[?25l", "x"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1bPq#0;2\x1b\\b", "ab"),
        ("a\x1b_Gf=100;AAAA\x1b\\b", "ab"),
        ("\x1b(B\x1b)0x", "x"),
        ("\x1bcx\x1b7y", "xy"),
        ("x\x1b", "x"),
        ("x\x9b31my\x90z", "x31myz"),
        ("bell\x07 back\x08space nul\x00 del\x7f", "bell backspace nul del"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("a\u2028b", "a\\u2028b"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("name\udcff", "name\\udcff"),
    ],
)
def test_what_is_shown_of(raw: str, shown: str) -> None:
    assert printable(raw) == shown


def test_text_that_the_user_decides_about_hides_nothing_and_keeps_emoji_and_scripts() -> None:
    assert visible("rm\u200b -rf \u00ad\ufeff\u200f\U000e0101") == "rm\\u200b -rf \\xad\\ufeff\\u200f\\U000e0101"
    assert visible("❤️‍🔥 👨‍👩‍👧 می‌خواهم") == "❤️‍🔥 👨‍👩‍👧 می‌خواهم"


def test_an_unclosed_control_string_hides_nothing_that_follows() -> None:
    assert "rm -rf" in printable("a\x1b]0;never closed\nrm -rf")
    assert "rm -rf" in printable("a\x1bPrm -rf")


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]P\\_0;m\x07\x9b\x9c\r\n\t"))))
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") for char in shown)
    assert printable(shown) == shown
    shown.encode("utf-8")


@pytest.mark.parametrize("unit", ["\x1b]", "\x1b[", "\x1b]a", "\x1b[1;", "\x1b", "\x1b (", "a\x1bP", "\x1b]0;\x1b"])
def test_it_takes_linear_time(unit: str) -> None:
    started = time.perf_counter()
    printable(unit * 200_000)
    printable("\x1b]" + unit.strip("\x1b") * 200_000)
    printable("\x1b[" + "1" * 400_000)
    assert time.perf_counter() - started < 3


def test_a_label_is_one_short_line() -> None:
    assert one_line("a\nb\tc") == "a b c"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"


HIDING = [
    "ls \x1b]0;; rm -rf precious; echo \x07",
    "a='\x1bP'; import os\x1b\\",
    "echo hi\r; rm -rf ~",
    "echo \x9d52;c;eA==\x9c done",
    "echo \u202egnp.exe",
    "ls\x1b[2K\x1b[1G",
]


@pytest.mark.parametrize("text", HIDING)
def test_what_a_person_decides_about_is_shown_whole(text):
    shown = visible(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert [char for char in shown if char in text] != []
    for word in ("rm -rf precious", "import os", "rm -rf ~", "52;c;eA==", "gnp.exe", "[2K"):
        assert (word in text) == (word in shown)


def test_ordinary_text_is_shown_as_it_is():
    text = "a\tb\nc ä 漢字 🙂\n"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"
    assert visible("a\x1bb\x00\u2028") == "a\\x1bb\\x00\\u2028"


def test_a_label_hides_nothing():
    assert one_line("shell ls \x1b]0;; rm -rf x\x07") == "shell ls \\x1b]0;; rm -rf x\\x07"
