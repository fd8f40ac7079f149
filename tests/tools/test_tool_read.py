from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HEADER = re.compile(r"\[(?P<path>.*?): lines (?P<first>\d+)-(?P<last>\d+) of (?P<total>\d+)(?P<rest>.*)\]")


def parse(content: str) -> tuple[re.Match[str], list[tuple[int, str]]]:
    header, *rows = content.split("\n")
    found = HEADER.fullmatch(header)
    assert found is not None, header
    return found, [(int(number), text) for number, _, text in (row.partition("\t") for row in rows)]


def pages(hands, path: str, limit: int = 0) -> list[str]:
    found, offset, rounds = list[str](), 1, 0
    while True:
        header, rows = parse(hands("read", path=path, offset=offset, limit=limit).content)
        assert rows[0][0] == offset == int(header["first"])
        assert [number for number, _ in rows] == list(range(offset, int(header["last"]) + 1))
        found += [text for _, text in rows]
        further = re.search(r"continue with offset=(\d+)", header["rest"])
        rounds += 1
        assert rounds < 2000
        if further is None:
            assert len(found) == int(header["total"])
            return found
        offset = int(further[1])


def test_lines_are_numbered_and_the_header_says_which_they_are(hands, workspace: Path) -> None:
    (workspace / "a.py").write_text("import os\n\n\tx = 1\n")
    output = hands("read", path="a.py")
    assert output.content == "[a.py: lines 1-3 of 3]\n     1\timport os\n     2\t\n     3\t\tx = 1"
    digest = hashlib.sha256((workspace / "a.py").read_bytes()).hexdigest()
    assert output.data == {"path": "a.py", "sha256": digest, "lines": 3, "truncated": False}


def test_offset_and_limit_choose_a_window(hands, workspace: Path) -> None:
    (workspace / "f").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    output = hands("read", path="f", offset=10, limit=3)
    assert output.content.split("\n")[0] == "[f: lines 10-12 of 100; continue with offset=13]"
    assert output.content.endswith("    12\tline 12")
    assert output.data["truncated"] is True
    assert hands("read", path="f", offset=-2).content.endswith("    99\tline 99\n   100\tline 100")
    assert "lines 1-100 of 100" in hands("read", path="f", offset=-500).content
    assert "lines 1-100 of 100" in hands("read", path="f", offset=0).content
    assert "after the end: the file has 100 lines" in hands.refused("read", path="f", offset=101).message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    body=st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), max_size=40), min_size=1
    ),
    times=st.integers(1, 60),
    limit=st.sampled_from([0, 1, 7, 400]),
    room=st.sampled_from([500, 777, 2500, 50_000]),
    ended=st.booleans(),
)
def test_the_pages_together_are_the_file(hands, workspace: Path, body, times, limit, room, ended) -> None:
    text = "\n".join(body * times) + "\n" * ended
    (workspace / "f").write_text(text, newline="")
    if not text:
        return
    wanted = text.split("\n")[: -1 if text.endswith("\n") else None]
    if limit == 1 and len(wanted) > 300:
        limit = 50
    hands.room = room
    assert pages(hands, "f", limit) == wanted


def test_a_page_holds_whole_lines_up_to_its_size(hands, workspace: Path) -> None:
    (workspace / "f").write_text("x" * 99 + "\n" + ("ü" * 60 + "\n") * 500)
    for room in (500, 2000, 7500, 50_000):
        hands.room = room
        content = hands("read", path="f").content
        assert room - 300 < len(content.encode()) <= room
        assert all(text in ("x" * 99, "ü" * 60) for _, text in parse(content)[1])


def test_a_long_line_is_cut_with_a_note(hands, workspace: Path) -> None:
    (workspace / "f").write_text("a\n" + "漢" * 5000 + "\nb\n")
    header, rows = parse(hands("read", path="f").content)
    assert "1 long line cut" in header["rest"]
    assert rows[1][1].endswith("… [cut: the line has 5,000 characters]")
    assert rows[2] == (3, "b")


def test_a_line_that_has_no_room_is_cut_and_says_how_to_see_more_of_it(hands, workspace: Path) -> None:
    (workspace / "f").write_text("a\n" + "x" * 1500 + "\nb\n")
    hands.room = 600
    assert "continue with offset=2" in hands("read", path="f").content
    header, rows = parse(hands("read", path="f", offset=2).content)
    assert "1 long line cut" in header["rest"]
    assert rows[0][1].endswith("… [cut: the line has 1,500 characters; offset=2, limit=1 alone may show more]")
    hands.room = 2500
    assert parse(hands("read", path="f", offset=2, limit=1).content)[1] == [(2, "x" * 1500)]


@pytest.mark.parametrize(
    ("stored", "shown", "note"),
    [
        ("häß\n".encode(), "häß", ""),
        (b"\xef\xbb\xbfx\n", "x", "byte order mark"),
        ("häß\n".encode("utf-16"), "häß", "UTF-16-LE"),
        (b"\xfe\xff" + "häß\n".encode("utf-16-be"), "häß", "UTF-16-BE"),
        ("häß\n".encode("utf-32"), "häß", "UTF-32-LE"),
        (b"h\xe4\xdf\n", "häß", "not UTF-8, read as Latin-1"),
        (b"a\r\n", "a", "CRLF line ends"),
        (b"a", "a", "no line end at the end"),
        (b"a\x1b[31mred\x07\n", "ared", "control characters left out or escaped"),
        (b"50%\r100%\n", "50%\\r100%", "control characters left out or escaped"),
    ],
)
def test_encodings_are_read_and_told(hands, workspace: Path, stored: bytes, shown: str, note: str) -> None:
    (workspace / "f").write_bytes(stored)
    output = hands("read", path="f")
    header, rows = parse(output.content)
    assert rows == [(1, shown)]
    assert note in header["rest"]
    assert output.data["sha256"] == hashlib.sha256(stored).hexdigest()


@pytest.mark.parametrize(
    "stored",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"%PDF-1.7\n",
        b"\x7fELF\x02\x01\x01\0",
        b"text\0more",
        bytes(range(1, 32)) * 10,
    ],
)
def test_a_binary_file_is_described_and_not_dumped(hands, workspace: Path, stored: bytes) -> None:
    (workspace / "f").write_bytes(stored)
    output = hands("read", path="f")
    assert "binary file" in output.content
    assert f"{len(stored)} bytes" in output.content
    assert stored[:4].hex(" ") in output.content
    assert "sha256" not in output.data  # what was not shown has not been read


def test_an_empty_file_is_said_to_be_empty(hands, workspace: Path) -> None:
    (workspace / "f").write_text("")
    output = hands("read", path="f")
    assert output.content == "f is empty (0 lines)."
    assert output.data["sha256"] == hashlib.sha256(b"").hexdigest()


def test_a_missing_file_is_answered_with_the_closest_names(hands, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src/main.py").write_text("x")
    assert "Did you mean src/main.py?" in hands.refused("read", path="main.py").message
    assert "src/main.py" in hands.refused("read", path="src/mian.py").message
    (workspace / os.fsdecode(b"caf\xe9.txt")).touch()
    refusal = hands.refused("read", path="cafe.txt")
    msgspec.json.encode([refusal.message, refusal.data])
    assert "ls or glob" in hands.refused("read", path="zzz").message


def test_a_directory_is_answered_with_ls(hands, workspace: Path) -> None:
    (workspace / "src").mkdir()
    assert "Use ls" in hands.refused("read", path="src").message


def test_a_huge_file_is_left_to_the_shell(hands, workspace: Path) -> None:
    with open(workspace / "f", "wb") as file:
        file.write(b"text\n" * (4 << 20))
    refusal = hands.refused("read", path="f")
    assert refusal.message == "f has 20,971,520 bytes, and read takes 16 MB. Use shell, with tail or sed -n 1,200p."


def test_a_very_long_line_is_cut_quickly(hands, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"x" * (10 << 20))
    assert f"the line has {10 << 20:,} characters" in hands("read", path="f").content


def test_a_small_read_costs_next_to_nothing(hands, workspace: Path) -> None:
    import anyio

    (workspace / "f.py").write_text("def function(argument):  # some line\n" * 100)

    async def many() -> float:
        arguments, best = hands.arguments("read", path="f.py"), 1.0
        for _ in range(50):
            started = time.perf_counter()
            await hands.tools["read"].run(arguments, hands.context)
            best = min(best, time.perf_counter() - started)
        return best

    assert anyio.run(many) < 0.001  # 0.15 ms on an idle machine; the rest is for busy ones


def test_the_summary_is_one_line(hands) -> None:
    assert hands.summary("read", path="./src/a.py") == "read src/a.py"
    assert hands.summary("read", path="a.py", offset=201, limit=100) == "read a.py 201-300"
    assert hands.summary("read", path="a.py", offset=-50) == "read a.py from -50"
    assert hands.summary("read", path="a\n\x1b[2Jb") == "read a \\x1b[2Jb"
    assert hands.targets("read", path="./src//a.py") == ("src/a.py",)
