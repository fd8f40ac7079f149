"""Content: texts, diffs and calls of ours in the protocol's form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.engine.toolbox import Toolbox
from lmagent.tools.sanitize import one_line, printable, visible

Object = dict[str, Any]
"""An object of the protocol, as in its JSON schema."""

SHOWN = 20_000
"""Characters of a result that the editor gets; the model's own view of it is in the log."""

TITLE = 160

_KINDS = {
    **dict.fromkeys(("read", "ls", "read_artifact", "vision"), "read"),
    **dict.fromkeys(("glob", "grep", "recall", "memory_search"), "search"),
    **dict.fromkeys(("write", "edit", "mkdir"), "edit"),
    **dict.fromkeys(("shell", "python", "jobs"), "execute"),
}
_BY_EFFECT = {"read": "read", "write": "edit", "exec": "execute", "net": "fetch"}


class CallFacts(Struct, frozen=True):
    """A call as the editor shows it; `paths` are relative to the workspace."""

    title: str
    kind: str = "other"
    paths: tuple[str, ...] = ()


def facts_of(call: ToolCall, toolbox: Toolbox) -> CallFacts:
    try:
        invocation = toolbox.resolve(call)
    except ToolError:  # the result says why
        return CallFacts(code(call.name))
    kind = kind_of(invocation.tool.name, invocation.tool.effect)
    return CallFacts(code(invocation.summary), kind, invocation.targets)


def kind_of(tool: str, effect: str = "") -> str:
    return _KINDS.get(tool) or _BY_EFFECT.get(effect, "other")


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def shown(words: str) -> Object:
    """Return text from outside as content of a call: in a fence that the text cannot close."""
    words = printable(words)
    cut = words if len(words) <= SHOWN else f"{words[: SHOWN // 2]}\n…\n{words[-SHOWN // 2 :]}"
    return {"type": "content", "content": text(fenced(cut))}


def fenced(words: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", words)), default=0))
    return f"{fence}\n{words.rstrip()}\n{fence}"


def code(words: str) -> str:
    """Return one line as inline code that the line cannot close: editors show titles as Markdown."""
    line = one_line(words, TITLE).strip() or "…"
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def quoted(words: str) -> str:
    """Return a notice as a quotation of its own."""
    return "\n".join(f"> {line}" for line in visible(words).split("\n"))


def locations(workspace: Path, paths: tuple[str, ...]) -> list[Object]:
    return [{"path": str(workspace / path)} for path in paths]


def is_diff(words: str) -> bool:
    return re.match(r"--- .*\n\+\+\+ .*\n@@ ", words) is not None


def diffs(unified: str, path: Path) -> list[Object]:
    """Return each hunk of a unified diff as the text before and after: the protocol knows no unified diffs."""
    is_new = unified.startswith("--- /dev/null\n")
    found: list[Object] = []
    for hunk in re.split(r"^@@ .*@@$\n?", unified, flags=re.MULTILINE)[1:]:
        before, after = list[str](), list[str]()
        for line in hunk.rstrip("\n").split("\n"):
            sign, rest = line[:1], line[1:]
            if sign in (" ", "-", ""):
                before.append(rest)
            if sign in (" ", "+", ""):
                after.append(rest)
        item: Object = {"type": "diff", "path": str(path), "newText": "\n".join(after) + "\n" * bool(after)}
        found.append(item if is_new else {**item, "oldText": "\n".join(before) + "\n" * bool(before)})
    return found
