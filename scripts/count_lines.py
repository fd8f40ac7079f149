"""How many lines of Python each package of `src` has, and how many more or fewer than at the last tag."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/lmagent"
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Return the number of lines that hold code: no blank lines, comments, docstrings or imports."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def git(*words: str) -> str:
    """Return the output of a git command; empty where it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def package(path: str) -> str:
    """Return the package of a path below `src/lmagent`."""
    inner = path.removeprefix(f"{SOURCE}/")
    return inner.split("/")[0] if "/" in inner else "."


def main() -> None:
    """Print the table."""
    total: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = package(path.relative_to(ROOT).as_posix())
        total[name] += len(text.splitlines())
        code[name] += code_lines(text)
    change: Counter[str] = Counter()
    tag = git("describe", "--tags", "--abbrev=0")
    if tag:
        for row in git(
            "diff", "--numstat", "--no-renames", tag, "--", f"{SOURCE}/**/*.py", f"{SOURCE}/*.py"
        ).splitlines():
            added, removed, path = row.split("\t")
            change[package(path)] += int(added) - int(removed)
    print(
        f"{'package':<14}{'lines':>8}{'code':>8}" + (f"{'since ' + tag:>16}" if tag else "   (no tag to compare with)")
    )
    for name in [*sorted(total), "all"]:
        if name == "all":
            total[name], code[name], change[name] = total.total(), code.total(), change.total()
        print(f"{name:<14}{total[name]:>8}{code[name]:>8}" + (f"{change[name]:>+16}" if tag else ""))


if __name__ == "__main__":
    main()
