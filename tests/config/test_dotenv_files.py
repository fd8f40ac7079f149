from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmagent.config.files import decode_env, parse_env, quoted, save_env
from lmagent.core.errors import ConfigError


def values_of(text: str) -> dict[str, str]:
    return {line.name: line.value for line in parse_env(text) if line.name and line.value is not None}


def broken(text: str) -> list[str]:
    """Names on lines that are neither an assignment, nor a comment, nor blank."""
    return [
        line.name
        for line in parse_env(text)
        if line.value is None and line.text.strip() and not line.text.strip().startswith("#")
    ]


CORPUS = [
    ("A=1", {"A": "1"}),
    ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
    ("A=1\rB=2", {"A": "1", "B": "2"}),
    ("export A=1\n  export\tB = 2", {"A": "1", "B": "2"}),
    ("A = spaced out  ", {"A": "spaced out"}),
    ("A=", {"A": ""}),
    ("A=\nB=2", {"A": "", "B": "2"}),
    ("A=''\nB=\"\"", {"A": "", "B": ""}),
    ("A=x # note", {"A": "x"}),
    ("A=x#y", {"A": "x#y"}),
    ("A=#5", {"A": "#5"}),
    ("A= # note", {"A": ""}),
    ("# A=1\n\n   # B=2\nC=3", {"C": "3"}),
    ("A='x # y' # note", {"A": "x # y"}),
    ("A='$HOME \\n `id`'", {"A": "$HOME \\n `id`"}),
    ('A="$HOME ${X} `id`"', {"A": "$HOME ${X} `id`"}),
    ('A="one\\ntwo\\t\\"q\\" \\\\ \\$ \\x"', {"A": 'one\ntwo\t"q" \\ \\$ \\x'}),
    ("A='one\ntwo'\nB=2", {"A": "one\ntwo", "B": "2"}),
    ('A="one\ntwo"\nB=2', {"A": "one\ntwo", "B": "2"}),
    ("A=it's", {"A": "it's"}),
    ("A=1\nA=2", {"A": "2"}),
    ("A=a=b==", {"A": "a=b=="}),
    ("W='C:\\Users\\new\\table'", {"W": "C:\\Users\\new\\table"}),
    ('W="C:\\\\Users\\\\new"', {"W": "C:\\Users\\new"}),
    ("A=ünï", {"A": "ünï"}),
    ("a.b-c=1", {"a.b-c": "1"}),
]


@pytest.mark.parametrize(("text", "values"), CORPUS)
def test_a_file_is_read_as_people_write_it(text: str, values: dict[str, str]) -> None:
    assert values_of(text) == values
    assert broken(text) == []


@pytest.mark.parametrize(
    ("text", "values", "name"),
    [
        ("nonsense here\nA=1", {"A": "1"}, "nonsense"),
        ("A=1\nLLM_MODEL: qwen\n", {"A": "1"}, "LLM_MODEL"),
        ("A='open\nB=2", {"B": "2"}, "A"),
        ('B=2\nA="open', {"B": "2"}, "A"),
        ("=x\nB=2", {"B": "2"}, ""),
        ("A='x'y\nB=2", {"B": "2"}, "A"),
        ("export A\nB=2", {"B": "2"}, "A"),
    ],
)
def test_a_line_that_is_no_assignment_is_skipped_and_reported(text: str, values: dict[str, str], name: str) -> None:
    assert values_of(text) == values
    assert broken(text) == [name]


@given(st.text())
def test_no_text_makes_the_reader_fail_or_lose_anything(text: str) -> None:
    assert "".join(item.text for item in parse_env(text)) == text


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("A=é".encode(), "é"),
        (b"\xef\xbb\xbfA=\xc3\xa9", "é"),
        ("A=é".encode("utf-16"), "é"),
        (b"A=x\nB=\xff\n", "x"),
    ],
)
def test_the_encodings_that_editors_write_are_read(content: bytes, value: str) -> None:
    assert values_of(decode_env(content))["A"] == value


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), VALUES))
@example({"A": "C:\n"})
@example({"A": "C:\\new\\'s\\"})
@example({"A": "C:\\it's\\new"})
@example({"A": 'C:"x'})
@example({"A": "C:\\\\server\r\n"})
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    text = "".join(f"{name}={quoted(value)}\n" for name, value in values.items())
    assert values_of(text) == values
    assert broken(text) == []


def test_saving_sets_the_named_variables_and_keeps_all_other_lines(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b"# mine\n\nexport A = old # why\nodd \xff line\nB=keep\nA='two\nlines' # second\nlast=1")
    save_env(path, {"A": "it's new", "NEW": "/a b"})
    content = path.read_bytes()
    assert content == b"# mine\nodd \xff line\nB=keep\nlast=1\nA='it\\'s new'\nNEW='/a b'\n"
    assert values_of(decode_env(content))["A"] == "it's new"


def test_saving_keeps_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b"A=1\r\nB=2\r\n")
    save_env(path, {"A": "3", "C": "4"})
    assert path.read_bytes() == b"B=2\r\nA=3\r\nC=4\r\n"


def test_a_saved_file_is_its_owners_alone_and_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "env"
    real.parent.mkdir()
    real.write_text("A=1\n")
    real.chmod(0o644)
    link = tmp_path / ".env"
    link.symlink_to(real)
    save_env(link, {"A": "2"})
    assert link.is_symlink()
    assert real.read_text() == "A=2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert os.listdir(real.parent) == ["env"]


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    save_env(tmp_path / "a" / "b" / ".env", {"A": "1"})
    assert (tmp_path / "a" / "b" / ".env").read_text() == "A=1\n"


def test_a_file_that_cannot_be_written_is_a_clear_error_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_env(tmp_path / "file" / ".env", {"A": "1"})
