"""Words that make a reader stop, and class names that mean two things: how many are left, package by package.

`scripts/words_allowed.txt` holds what is left, one `path count` a line and `classes count` for the class names. A count
that is exceeded is an error, and so is one that is larger than it has to be: the list can only shrink.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "scripts" / "words_allowed.txt"
SUFFIXES = {".py", ".js", ".md", ".html", ".css"}
# Vendored code, records of decisions and measurements, and what is written by machine out of other files.
EXEMPT = re.compile(r"/vendor/|^docs/adr/|^docs/benchmarks\.md$|/seccomp_calls\.py$")

AVOID = {
    "is none": r"\b(?:is|are|was|were|be|there) none\b",
    "stands in": r"\bst(?:ands?|ood|anding) (?:in|at|for|on|here|there|beside|with|alone|first|last|before|after|above"
    r"|below|behind|under)\b",
    "goes on": r"\b(?:go|goes|going|gone|went) on\b",
    "is told": r"\b(?:is|are|was|were|be|been|being|gets|get) told\b|\btells? of\b|\btold (?:of|so|apart|by)\b",
    "who without a noun": r"(?:^|[.:;,(#\"]\s*)[Ww]ho (?!am)\w+",
    "what is": r"\b[Ww]hat (?:is|was|are|were)\b(?![^.]*\?)",
    "filler": r"\bby its id\b|\bof a kind\b|\band the like\b|\bas they are\b",
    "vouch": r"\bvouch|\bput before a person",
    "somebody": r"\b[Ss]omebody\b|\b[Nn]obody\b|\ba person\b",
    "wish": r"\bwish(?:es|ed)?\b",
}


def place(path: Path) -> str:
    """Return the package, document or folder under which the words of a file are counted."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:3]) if parts[0] == "src" else "/".join(parts[:2])


def texts() -> list[Path]:
    """Return the files that a user or a reader of the code meets."""
    found = [path for folder in ("src", "docs") for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    found += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")]
    return sorted(path for path in found if not EXEMPT.search(path.relative_to(ROOT).as_posix()))


def avoided(path: Path) -> list[str]:
    """Return the lines of a file that use a word to avoid, as `path:line: [word] text`."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{number}: [{word}] {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word, pattern in AVOID.items()
        if re.search(pattern, line)
    ]


def shared_class_names() -> list[str]:
    """Return the public class names that more than one module of `src` defines, with the modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.relative_to(ROOT).as_posix())
    return [f"class {name}: {', '.join(where)}" for name, where in sorted(modules.items()) if len(where) > 1]


def main() -> int:
    """Compare the counts with the list, or write the list anew (`--write`); return the exit code."""
    lines: dict[str, list[str]] = defaultdict(list)
    for path in texts():
        if found := avoided(path):
            lines[place(path)] += found
    if shared := shared_class_names():
        lines["classes"] = shared
    counts = Counter({name: len(found) for name, found in lines.items()})
    if "--write" in sys.argv:
        ALLOWED.write_text("".join(f"{name} {counts[name]}\n" for name in sorted(counts)), encoding="utf-8")
    listed = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    allowed = Counter({name: int(count) for name, count in (line.split() for line in listed)})
    wrong: list[str] = []
    for name in sorted(counts | allowed):
        if counts[name] > allowed[name]:
            wrong += [*lines[name], f"{name}: {counts[name]} lines with words to avoid, {allowed[name]} are allowed"]
        elif counts[name] < allowed[name]:
            wrong.append(f"{name}: {counts[name]} now; lower its entry in {ALLOWED.name} from {allowed[name]}")
    print(
        "\n".join(wrong) or f"words: {counts.total() - counts['classes']} left, {counts['classes']} shared class names"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
