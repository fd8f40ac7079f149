from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def source(hands, workspace: Path) -> Path:
    path = workspace / "a.py"
    path.write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    hands("read", path="a.py")
    return path


def test_a_piece_is_replaced_and_the_change_is_told(hands, source: Path) -> None:
    output = hands("edit", path="a.py", search="return 1", replace="return 10")
    assert "return 10\n" in source.read_text()
    assert output.content.startswith("Edited a.py (+1 −1).\n@@ -1,5 +1,5 @@\n")
    assert "-    return 1\n+    return 10" in output.data["diff"]
    assert output.data["changed"] is True
    assert hands("edit", path="a.py", search="return 10", replace="return 1").data["changed"]


def test_a_file_that_was_never_read_is_edited_since_the_search_is_the_proof(hands, workspace: Path) -> None:
    (workspace / "b.py").write_text("x = 1\n")
    hands("edit", path="b.py", search="x", replace="y")
    assert (workspace / "b.py").read_text() == "y = 1\n"
    hands("edit", path="b.py", search="y", replace="z")  # what an edit left counts as seen
    (workspace / "b.py").write_text("z = 2\n")
    assert "Read it again" in hands.refused("edit", path="b.py", search="z", replace="a").message


def test_a_file_that_changed_since_it_was_read_is_refused(hands, source: Path) -> None:
    source.write_text(source.read_text() + "# a person was here\n")
    assert hands.refused("edit", path="a.py", search="return 1", replace="return 3").data["code"] == "stale"
    assert "return 1\n" in source.read_text()


def test_what_does_not_match_leaves_the_file_alone(hands, source: Path) -> None:
    before = source.read_bytes()
    hands.refused("edit", path="a.py", search="return 99", replace="x")
    hands.refused("edit", path="a.py", search="return", replace="x")  # in two places
    hands.refused("edit", path="a.py", search="", replace="x")
    assert source.read_bytes() == before
    hands("edit", path="a.py", search="return", replace="yield", replace_all=True)
    assert source.read_text().count("yield") == 2


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("latin-1", b""), ("utf-8", b"")]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encoding_mark_and_line_ends_stay(hands, workspace: Path, encoding: str, mark: bytes, end: str) -> None:
    text = f"grüße{end}zwei{end}drei"
    (workspace / "f").write_bytes(mark + text.encode(encoding))
    hands("read", path="f")
    hands("edit", path="f", search="zwei", replace="zwölf\nmehr")
    assert (workspace / "f").read_bytes() == mark + text.replace("zwei", f"zwölf{end}mehr").encode(encoding)


def test_a_character_that_the_encoding_lacks_is_refused(hands, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"caf\xe9 one\n")
    hands("read", path="f")
    assert "has no" in hands.refused("edit", path="f", search="one", replace="漢").message
    assert (workspace / "f").read_bytes() == b"caf\xe9 one\n"


def test_a_binary_file_is_refused(hands, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"abc\0def")
    hands.mark("f")
    assert "binary" in hands.refused("edit", path="f", search="abc", replace="x").message


def test_a_missing_file_is_answered_with_the_closest_name(hands, source: Path) -> None:
    assert "a.py" in hands.refused("edit", path="aa.py", search="x", replace="y").message


def test_the_preview_is_a_diff_and_refuses_what_the_call_would_refuse(hands, source: Path) -> None:
    before = source.read_bytes()
    assert "+    return 5" in hands.preview("edit", path="a.py", search="return 1", replace="return 5")
    assert hands.refused_unasked("edit", path="a.py", search="nothing", replace="x").data["code"] == "missing"
    assert source.read_bytes() == before
    source.write_text("return 1\n")
    assert hands.refused_unasked("edit", path="a.py", search="return 1", replace="x").data["code"] == "stale"


def test_the_summary_counts_lines(hands) -> None:
    assert hands.summary("edit", path="a", search="x\ny\nz", replace="x\n1\n2\nz") == "edit a (+2 −1)"
    assert hands.summary("edit", path="a", search="x", replace="y", replace_all=True) == "edit a (+1 −1, everywhere)"


def test_a_match_that_was_not_exact_is_told_with_the_diff(hands, workspace: Path) -> None:
    (workspace / "b.py").write_text("if a:\n    if b:\n        c()\n    d()\n")
    hands("read", path="b.py")
    output = hands("edit", path="b.py", search="if b:\n    c()", replace="if b:\n    c()\n    e()")
    assert output.content == (
        "Edited b.py (+1 −0). The search differed from the file in indentation.\n"
        "@@ -1,4 +1,5 @@\n if a:\n     if b:\n         c()\n+        e()\n     d()"
    )


def test_an_exact_match_is_told_as_a_diff_without_a_remark(hands, source: Path) -> None:
    assert "differs" not in hands("edit", path="a.py", search="    return 2\n", replace="    return 3\n").content


def test_a_long_replacement_that_was_bridged_is_shown_in_part(hands, workspace: Path) -> None:
    (workspace / "b.py").write_text("if a:\n    b  = 1\n    c()\n")
    hands("read", path="b.py")
    new = "\n".join(f"x = {number}" for number in range(50))
    output = hands("edit", path="b.py", search="b = 1\nc()", replace=new)
    assert "in indentation and runs of blanks" in output.content
    assert "\n+    x = 0\n" in output.content
    assert output.content.endswith("… 34 more lines of diff")
