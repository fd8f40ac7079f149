"""Types are decoded by many threads at once from their first use on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lmagent
from lmagent.core.decoding import convert, decode_json, decoder

ROOT = Path(lmagent.__file__).parent
THREADS = """
import sys, threading
import msgspec
from lmagent.core.decoding import decode_json
sys.setswitchinterval(1e-6)
for _ in range(30):
    inner = [msgspec.defstruct(f"Inner{i}", [(f"field{j}", int, 0) for j in range(20)]) for i in range(50)]
    outer = msgspec.defstruct("Outer", [(f"part{i}", kind | None, None) for i, kind in enumerate(inner)])
    line = msgspec.json.encode({f"part{i}": {"field19": 1} for i in range(50)})
    barrier, right = threading.Barrier(3), []
    def read():
        barrier.wait()
        right.append(decode_json(line, outer).part49.field19)
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert right == [1, 1, 1]
"""


def test_threads_that_decode_a_new_type_at_the_same_time_do_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_text_and_values_become_the_type_that_was_asked_for() -> None:
    assert decode_json(b'{"a": 1}', dict[str, int]) == decoder(dict[str, int]).decode(b'{"a": 1}') == {"a": 1}
    assert convert({"a": "1"}, dict[str, int], strict=False) == {"a": 1}


def _decodes_by_itself(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):  # its calls would not name msgspec
        asked = {alias.name for alias in node.names} & {"convert", "decode", "Decoder"}
        return (node.module or "").startswith("msgspec") and bool(asked)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    typed = any(keyword.arg == "type" for keyword in node.keywords)
    return name.startswith("msgspec.") and (
        name.endswith(".convert")
        or (name.endswith(".Decoder") and bool(node.args or node.keywords))
        or (name.endswith(".decode") and typed)
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("msgspec.convert(value, Kind)", True),
        ("msgspec.json.Decoder(Kind)", True),
        ("msgspec.json.decode(data, type=Kind)", True),
        ("from msgspec import Struct, convert", True),
        ("from msgspec.json import decode", True),
        ("from msgspec import Struct", False),
        ("msgspec.json.decode(data)", False),
        ("decode_json(data, Kind)", False),
    ],
)
def test_code_that_asks_msgspec_for_a_type_is_recognised(code: str, found: bool) -> None:
    assert any(_decodes_by_itself(node) for node in ast.walk(ast.parse(code))) is found


def test_only_one_module_asks_msgspec_for_a_type() -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if path != ROOT / "core" / "decoding.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if _decodes_by_itself(node)
    ]
    assert not wrong, "use lmagent.core.decoding"
