"""What the python tool answers, on a real sandbox."""

from pathlib import Path

import pytest
from python_kit import Cells

from lmagent.tools.page import BYTES
from lmagent.tools.shell.collect import SPILL_CAP


@pytest.fixture
def cells(workspace: Path) -> Cells:
    return Cells(workspace)


# --- values and output ---------------------------------------------------------------------------------------------


def test_variables_persist_and_the_last_expression_is_shown(cells: Cells) -> None:
    assert cells("x = 20\nprint('hello')\nx + 1", "x * 2", "x = 3", "x;") == ["hello\n=> 21", "=> 40", "", ""]


def test_none_is_not_shown(cells: Cells) -> None:
    assert cells("print('only this')", "None") == ["only this", ""]


def test_output_of_prints_children_and_c_code_keeps_its_order(cells: Cells) -> None:
    code = (
        "import ctypes, os, subprocess, sys\nprint('a', end=' ')\nsubprocess.run('echo b; echo c >&2', shell=True)\n"
        "os.write(1, b'd\\n')\nprint('e', file=sys.stderr)\nos.system('echo f')\nctypes.CDLL(None).printf(b'g\\n')\n"
    )
    assert cells(code + "None", "1") == ["a b\nc\nd\ne\nf\ng", "=> 1"]


def test_output_is_shown_live(cells: Cells) -> None:
    cells("print('one')", "print('\\x1b]0;title\\x07two')")
    assert "".join(cells.live) == "one\ntwo\n"


def test_it_works_in_the_workspace(cells: Cells, workspace: Path) -> None:
    (workspace / "mine.py").write_text("value = 7\n")
    assert cells("import mine; mine.value", "open('new.txt', 'w').write('x')") == ["=> 7", "=> 1"]
    assert (workspace / "new.txt").read_text() == "x"


def test_code_of_any_alphabet_and_size_gets_through(cells: Cells) -> None:
    long = "text = '" + "ñ€𝄞" * 300_000 + "'\nlen(text)"
    assert cells("'grüße 世界 😀'", long, "print('é' * 3)") == ["=> 'grüße 世界 😀'", "=> 900000", "ééé"]


def test_a_flood_of_output_is_shown_in_part_and_kept_in_a_file(cells: Cells) -> None:
    flood, after = cells.run("import sys\nfor _ in range(100): sys.stdout.write('x' * 999_999 + '\\n')\n'end'", "1")
    assert flood.data["bytes"] == 100_000_000
    assert flood.content.endswith("=> 'end'")
    assert "left out" in flood.content
    assert len(flood.content) <= BYTES
    assert flood.file is not None
    assert flood.file.stat().st_size == SPILL_CAP
    assert after.content == "=> 1"


def test_output_that_looks_like_the_beginning_of_a_marker_is_not_lost(cells: Cells) -> None:
    (output,) = cells.run(
        "import os\nfor _ in range(50): os.write(1, b'a\\0lmagent'); os.write(1, b'\\0')\nos._exit(0)"
    )
    assert output.data["bytes"] == 50 * 10
    assert output.content.startswith("almagent" * 50)


def test_a_long_output_is_handed_over_whole(cells: Cells) -> None:
    (output,) = cells.run("for i in range(5000): print('line', i)\n1/0")
    assert output.content.startswith("line 0\n")
    assert "line 2500\n" in output.content
    assert "line 4999" in output.content
    assert output.content.endswith("ZeroDivisionError: division by zero")


def test_a_long_value_is_cut(cells: Cells) -> None:
    short, long = cells("list(range(100))", "'a' * 10_000_000")
    assert short == f"=> {list(range(100))!r}"
    assert "characters left out" in long or "bytes left out" in long


def test_output_that_is_no_utf8_and_half_characters_get_through(cells: Cells) -> None:
    bytes_, halves, code = cells(
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok\\n'); None", "print('\\ud800'); '\\udc80'", "len('\ud800')"
    )
    assert bytes_ == "\ufffd\ufffd ok"
    assert halves == "\\ud800\n=> '\\udc80'"
    assert code == "=> 1"


def test_what_looks_like_a_frame_or_a_marker_is_output(cells: Cells) -> None:
    code = "print('\\0lmagent ' + '0' * 32)\nimport sys; sys.stdout.write('\\0\\0\\0\\x05{\"id\"\\0lmagent'); 1"
    assert cells(code, "2") == [f'lmagent {"0" * 32}\n\x05{{"id"lmagent\n=> 1'.replace("\x05", ""), "=> 2"]


def test_progress_bars_and_escapes_are_reduced_to_what_is_seen(cells: Cells) -> None:
    assert cells("print('\\r10 %\\r50 %\\rdone'); print('\\x1b[31mred\\x1b[0m')") == ["done\nred"]


# --- errors --------------------------------------------------------------------------------------------------------


def test_a_traceback_has_the_users_frames_with_their_source(cells: Cells) -> None:
    text, later = cells("def broken(a):\n    return a / 0\n\nbroken(1)", "broken(2)")
    assert 'File "<cell 1>", line 4, in <module>\n    broken(1)' in text
    assert 'File "<cell 1>", line 2, in broken\n    return a / 0' in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert 'File "<cell 2>", line 1, in <module>' in later
    assert "    return a / 0" in later
    assert "lmagent" not in text + later


def test_a_traceback_leaves_out_frames_within_libraries(cells: Cells) -> None:
    (text,) = cells("import json\njson.loads('{')")
    assert text.count("  File ") == 2
    assert "raw_decode" in text


def test_a_traceback_has_its_causes(cells: Cells) -> None:
    (text,) = cells("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('bad') from e")
    assert "KeyError: 'k'" in text
    assert "direct cause" in text
    assert text.endswith("ValueError: bad")


def test_a_syntax_error_names_its_line(cells: Cells) -> None:
    (text,) = cells("x = 1\ny = = 2")
    assert text.startswith('  File "<cell 1>", line 2')
    assert "SyntaxError" in text
    assert "Traceback" not in text


def test_errors_that_cannot_be_told_do_no_harm(cells: Cells) -> None:
    bad = "class E(Exception):\n    def __str__(self): raise self\nraise E"
    repr_ = "class R:\n    def __repr__(self): raise KeyError('no repr')\nR()"
    nul, deep, first, second, after = cells("a\0b", "def f(): f()\nf()", bad, repr_, "1")
    assert "null bytes" in nul
    assert "RecursionError" in deep
    assert "E" in first
    assert "no repr" in second
    assert after == "=> 1"


def test_exit_ends_the_code_and_not_python(cells: Cells) -> None:
    outputs = cells("x = 1\nexit(3)\nx = 2", "raise SystemExit", "import sys; sys.exit('words')", "x")
    assert outputs == [
        "[exit(3) ended this code; the variables are kept]",
        "[exit() ended this code; the variables are kept]",
        "[exit(words) ended this code; the variables are kept]",
        "=> 1",
    ]


def test_input_is_at_its_end_at_once(cells: Cells) -> None:
    exited, asked = cells("exit()", "input('name? ')")  # exit closes the input
    assert "exit()" in exited
    assert asked.startswith("name? ")
    assert asked.endswith("EOFError: EOF when reading a line")
