"""The page's texts: all of them are in `web/words/`, in words that a stranger reads once."""

from __future__ import annotations

import re

import pytest

from lmagent.gateway.http.static import WEB

MODULES = sorted(path for path in WEB.rglob("*.js") if not {"vendor", "words"} & set(path.relative_to(WEB).parts))
TEXTS = sorted((WEB / "words").glob("*.js"))

LABEL = re.compile(r'\b(?:aria-label|title|placeholder|alt)="([^"$]*[A-Za-z][^"$]*)"')
BETWEEN_TAGS = re.compile(r">([^<>${}`=;()]*[A-Za-z]{3,}[^<>${}`=;()]*)</")
TOAST = re.compile(r'\btoast\(["`]')
CODE = re.compile(r"lmagent(?: [a-z]+)*(?: --[a-z]+ [A-Z]+)?|cron\.json")
"""Commands and names of files, which no translation changes."""

AVOIDED = re.compile(
    r"\bbehind\b|\bstands? (?:in|at|for)\b|\b(?:is|are) none\b|\bgoes? on\b|\bgone on\b|\bvouch\b|\bof a kind\b"
)
"""What the page does not say: house words and turns that have to be read twice."""


def shown(source: str) -> list[str]:
    """Texts that a module shows without taking them from `words/`."""
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", source, flags=re.DOTALL | re.MULTILINE)
    found = [*LABEL.findall(code), *(text.strip() for text in BETWEEN_TAGS.findall(code)), *TOAST.findall(code)]
    return [text for text in found if not CODE.fullmatch(text)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(WEB).as_posix())
def test_a_module_takes_its_texts_from_the_folder_of_texts(path):
    assert shown(path.read_text()) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_the_texts_say_it_in_plain_words(path):
    assert AVOIDED.findall(path.read_text()) == []


def test_a_text_outside_of_the_folder_is_found():
    assert shown('html`<p class="x">Not here</p><a title="Read me"></a>`; toast("gone")') == [
        "Read me",
        "Not here",
        'toast("',
    ]
