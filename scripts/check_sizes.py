"""Files of at most 600 lines, functions of at most 50: what a person can hold in the head.

A function's length is counted without its docstring. `scripts/sizes_allowed.txt` lists what may be longer, one
`path` or `path:function` with its size a line; an entry that is no longer needed, or larger than it has to be, is an
error too, so the list can only shrink.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "scripts", "bench", "examples")
ALLOWED = ROOT / "scripts" / "sizes_allowed.txt"
FILE_LIMIT = 600
FUNCTION_LIMIT = 50


def sizes(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and limit of a file and of each of its functions."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    yield name, len(text.splitlines()), FILE_LIMIT
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}:{node.name}", _length(node), FUNCTION_LIMIT


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def allowed() -> dict[str, int]:
    """The list of exceptions."""
    if not ALLOWED.exists():
        return {}
    lines = (line.split("#")[0].split() for line in ALLOWED.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if words}


def main() -> int:
    """Check everything; returns the exit code."""
    exceptions = allowed()
    wrong: list[str] = []
    too_long: set[str] = set()
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "/." not in path.as_posix())
    for path in paths:
        for name, size, limit in sizes(path):
            if size <= limit:
                continue
            too_long.add(name)
            if size > exceptions.get(name, limit):
                wrong.append(f"{name}: {size} lines, the limit is {exceptions.get(name, limit)}")
            elif size < exceptions[name]:
                wrong.append(f"{name}: {size} lines now; lower its entry in {ALLOWED.name} from {exceptions[name]}")
    wrong += [f"{name}: remove it from {ALLOWED.name}" for name in exceptions if name not in too_long]
    print("\n".join(wrong) or f"sizes: {len(paths)} files within {FILE_LIMIT} lines, functions within {FUNCTION_LIMIT}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
