"""The unified diff of a write or an edit, for people."""

from __future__ import annotations

from lmagent.core.plurals import plural
from lmagent.tools.sanitize import one_line, visible

LIMIT = 20_000
"""Bytes of a diff that are kept."""

_CONTEXT = 3
_COMPARED = 3000
"""Lines on a side up to which they are compared one by one: above, the whole stretch counts as replaced."""

_Op = tuple[str, int, int, int, int]


def unified(path: str, old: str, new: str) -> str:
    """Return the difference of two texts, capped, without terminal escapes; empty if they are equal."""
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    name = one_line(path, 300)
    out = [f"--- {name if old else '/dev/null'}", f"+++ {name}"]
    for group in _groups(before, after):
        first, last = group[0], group[-1]
        out.append(f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@")
        for tag, a, b, c, d in group:
            if tag == "equal":
                out += [_line(" ", text) for text in before[a:b]]
            else:
                out += [_line("-", text) for text in before[a:b]]
                out += [_line("+", text) for text in after[c:d]]
    return _capped(out)


def counts(diff: str) -> tuple[int, int]:
    body = diff.split("\n")[2:]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def changed_lines(old: str, new: str) -> tuple[int, int]:
    """Return rough numbers of added and removed lines: all lines between the equal beginning and end."""
    before, after = _lines(old), _lines(new)
    head, tail = _common(before, after)
    return len(after) - head - tail, len(before) - head - tail


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [*(line + "\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


def _common(before: list[str], after: list[str]) -> tuple[int, int]:
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    room = shorter - head
    tail = next((at for at in range(room) if before[-1 - at] != after[-1 - at]), room)
    return head, tail


def _groups(before: list[str], after: list[str]) -> list[list[_Op]]:
    """Return groups of operations with context around them; equal ends are cut off before the comparison."""
    head, tail = _common(before, after)
    skip, keep = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    left, right = before[skip : len(before) - keep], after[skip : len(after) - keep]
    if max(len(left), len(right)) > _COMPARED:
        lead, trail = head - skip, tail - keep
        ops: list[_Op] = [
            ("equal", 0, lead, 0, lead),
            ("replace", lead, len(left) - trail, lead, len(right) - trail),
            ("equal", len(left) - trail, len(left), len(right) - trail, len(right)),
        ]
        groups = [ops]
    else:
        import difflib  # only a real change pays for it

        matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
        groups = [list(group) for group in matcher.get_grouped_opcodes(_CONTEXT)]
    return [[(tag, a + skip, b + skip, c + skip, d + skip) for tag, a, b, c, d in group] for group in groups]


def _span(start: int, stop: int) -> str:
    count = stop - start
    return f"{start + 1 if count else start},{count}"


def _line(sign: str, text: str) -> str:
    body = text[:-1] if text.endswith("\n") else text
    mark = "" if text.endswith("\n") else "\n\\ No newline at end of file"
    return sign + visible(body.removesuffix("\r")).replace("\n", " ") + mark


def _capped(lines: list[str]) -> str:
    size = 0
    for at, line in enumerate(lines):
        size += len(line.encode("utf-8")) + 1
        if size > LIMIT:
            return "\n".join([*lines[:at], f"… {plural(len(lines) - at, 'more line')} of diff …"])
    return "\n".join(lines)
