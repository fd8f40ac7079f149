import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmagent.providers.textcalls import TextCallParser, parse_text


def split(content: str) -> tuple[str, str]:
    """The thought and the text of a reply in which no calls are looked for."""
    parsed = parse_text(content, (), calls=False)
    return parsed.thinking, parsed.content


CASES = {
    "no thought": ("Hello <b>you</b>", ("", "Hello <b>you</b>")),
    "closed": ("<think>\nhm\n</think>\n\nHello", ("hm", "Hello")),
    "closed after blanks": ("\n <think>hm</think>Hello", ("hm", "Hello")),
    "long name": ("<thinking>hm</thinking> Hello", ("hm", "Hello")),
    "unclosed": ("<think>hm, let me", ("hm, let me", "")),
    "closing tag only": ("I should greet.\n</think>\n\nHello", ("I should greet.", "Hello")),
    "closing tag only, in a line": ("greet</think>Hello", ("greet", "Hello")),
    "empty thought": ("<think></think>\n\nHello", ("", "Hello")),
    "leftover closing tag first": ("</think>\n\nHello", ("", "Hello")),
    "two thoughts": ("<think>a</think>\n<think>b</think>c", ("a\nb", "c")),
    "nested": ("<think>a <think>b</think></think>c", ("a <think>b</think>", "c")),
    "quoted in prose": ("Use `<think>` and `</think>` tags.", ("", "Use `<think>` and `</think>` tags.")),
    "quoted in code": ("```\n</think>\n```\nok", ("", "```\n</think>\n```\nok")),
    "quoted pair": ("The tags <think>x</think> mark it", ("", "The tags <think>x</think> mark it")),
    "second pair later": ("<think>a</think>b <think>c</think>", ("a", "b <think>c</think>")),
    "mention behind a thought": ("<think>a</think>close with </think> then", ("a", "close with </think> then")),
    "word of a sentence": (
        "1. Strip thoughts.\n2. All before the closing </think> tag is removed.\n3. Next: tests.",
        ("", "1. Strip thoughts.\n2. All before the closing </think> tag is removed.\n3. Next: tests."),
    ),
    "word at the end of a sentence": ("It ends with </think>. Then", ("", "It ends with </think>. Then")),
    "closing tag only, behind a sentence": ("I greet. </think> hello", ("I greet.", "hello")),
    "closing tag only, at the end": ("I will greet </think>", ("I will greet", "")),
    "in a string of JSON": ('{"a": "x\\" }}</think>", "b": ""}', ("", '{"a": "x\\" }}</think>", "b": ""}')),
    "in a string of JSON that is cut off": ('{"a": "x</think>", "b', ("", '{"a": "x</think>", "b')),
    "tag cut off": ("<thin", ("", "<thin")),
    "blanks only": (" \n", ("", " \n")),
}


@pytest.mark.parametrize("name", CASES)
def test_thoughts_and_text_are_told_apart(name: str) -> None:
    content, expected = CASES[name]
    assert split(content) == expected


def shown(*deltas: str) -> tuple[str, str]:
    parser = TextCallParser((), calls=False)
    pieces = [piece for delta in deltas for piece in parser.read(delta)]
    parser.finish()
    pieces += [("thinking", parser.rest_of_thought), ("text", parser.rest)]
    return (
        "".join(text for kind, text in pieces if kind == "thinking"),
        "".join(text for kind, text in pieces if kind == "text"),
    )


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("closing tag only")])
def test_the_live_view_shows_what_the_reply_will_hold(name: str) -> None:
    content, (thought, text) = CASES[name]
    live = shown(*content)
    assert live[1] == text
    assert live[0].replace("\n", "") == thought.replace("\n", "")


def test_a_closing_tag_alone_is_not_shown() -> None:
    assert shown(*"greet</think>Hello") == ("", "greetHello")


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "</thinking>",
        "<",
        "</",
        "think",
        "a ",
        ". ",
        "\n",
        "`",
        "```",
        "é",
        "{",
        '"',
        "\\",
    ]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=10), st.lists(st.integers(0, 80), max_size=6))
def test_every_cut_shows_the_thoughts_and_the_text_that_the_reply_will_hold(pieces: list[str], cuts: list[int]) -> None:
    content = "".join(pieces)
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    thought, text = shown(*[content[a:b] for a, b in itertools.pairwise(edges)])
    assert thought == shown(content)[0]
    assert text.endswith(split(content)[1])


@settings(deadline=None)
@given(st.lists(PIECES, max_size=10))
def test_nothing_but_tags_and_blanks_is_lost(pieces: list[str]) -> None:
    content = "".join(pieces)
    thought, text = split(content)
    kept = [piece for piece in (thought + text) if piece in "aé`{"]
    assert sorted(kept) == sorted(piece for piece in content if piece in "aé`{")


def test_many_tags_and_many_blanks_are_read_once() -> None:
    tags = "The `</think>` tag. " * 30_000
    blanks = "\n" * 200_000
    assert split(tags) == ("", tags)
    assert shown(*["The `</think>` tag. "] * 30_000) == ("", tags), "a minute if each tag reads all before it anew"
    assert shown(*blanks, "x") == ("", f"{blanks}x")
