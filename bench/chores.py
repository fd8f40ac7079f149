"""Twelve small tasks, and seventeen ways in which one call of them can be damaged.

The mind knows what it wants to do, sees by each result whether it was done, and does what was not done again without
the damage. It gives its answer when all was done; it says BLOCKED when it has tried in vain.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, Reply, ScriptedCall, calls, cut, reply, say, status

TRIES = 4
"""How often the mind does a step again before it gives up."""


@dataclass(frozen=True)
class Step:
    """A call, and what its result shows when it was done."""

    name: str
    arguments: dict[str, Any]
    done: str


def read(path: str, shows: str) -> Step:
    return Step("read", {"path": path}, shows)


def edit(path: str, search: str, replace: str) -> Step:
    return Step("edit", {"path": path, "search": search, "replace": replace}, rf"Edited {re.escape(path)}")


def write(path: str, content: str) -> Step:
    return Step("write", {"path": path, "content": content}, rf"(?:Created|Wrote|Replaced) {re.escape(path)}")


def shell(command: str, shows: str) -> Step:
    return Step("shell", {"command": command}, shows)


@dataclass(frozen=True)
class Chore:
    """A task: what is there, what is done, what must be there then, and what the answer must hold."""

    name: str
    task: str
    before: dict[str, str]
    steps: tuple[Step, ...]
    after: dict[str, str | None]
    answer: str = "Done."


CODE = "def total(rows):\n    result = 0\n    for row in rows:\n        result += row\n    return result\n"
CHECK = "from sums import total\nassert total([1, 2]) == 3\nprint('all well')\n"
BROKEN = CODE.replace("+= row", "-= row + 0")  # of another length, or Python may take its cached byte code

CHORES = (
    Chore("look", "What is the port?", {"a.ini": "port = 8141\n"}, (read("a.ini", "8141"),), {}, "8141"),
    Chore(
        "set",
        "Set the port to 9000.",
        {"a.ini": "host = b\nport = 8141\n"},
        (read("a.ini", "8141"), edit("a.ini", "port = 8141", "port = 9000")),
        {"a.ini": "host = b\nport = 9000\n"},
    ),
    Chore(
        "both",
        "Rename alpha to beta in both files.",
        {"x.txt": "alpha\n", "y.txt": "my alpha\n"},
        (
            read("x.txt", "alpha"),
            read("y.txt", "alpha"),
            edit("x.txt", "alpha", "beta"),
            edit("y.txt", "alpha", "beta"),
        ),
        {"x.txt": "beta\n", "y.txt": "my beta\n"},
    ),
    Chore("make", "Write hello to h.txt.", {}, (write("h.txt", "hello\n"),), {"h.txt": "hello\n"}),
    Chore(
        "nest",
        "Write a note to d/e/n.md.",
        {},
        (write("d/e/n.md", "# Note\n\n- a\n"),),
        {"d/e/n.md": "# Note\n\n- a\n"},
    ),
    Chore(
        "mend",
        "The test fails. Mend it.",
        {"sums.py": BROKEN, "check.py": CHECK},
        (
            shell("python3 check.py", "AssertionError"),
            read("sums.py", "result -= row"),
            edit("sums.py", "        result -= row + 0\n    return result", "        result += row\n    return result"),
            shell("python3 check.py", "all well"),
        ),
        {"sums.py": CODE},
    ),
    Chore(
        "inside",
        "Skip negative rows.",
        {"sums.py": CODE},
        (
            read("sums.py", "result = 0"),
            edit("sums.py", "        result += row\n", "        if row > 0:\n            result += row\n"),
        ),
        {"sums.py": CODE.replace("        result += row\n", "        if row > 0:\n            result += row\n")},
    ),
    Chore(
        "move",
        "Move old.txt to new.txt.",
        {"old.txt": "x\n"},
        (shell("mv old.txt new.txt && ls", r"\Anew\.txt"),),
        {"old.txt": None, "new.txt": "x\n"},
    ),
    Chore(
        "append",
        "Add the line 3 to n.txt.",
        {"n.txt": "1\n2\n"},
        (read("n.txt", "1"), shell("printf '3\\n' >> n.txt && tail -n 1 n.txt", r"\A3\b")),
        {"n.txt": "1\n2\n3\n"},
    ),
    Chore(
        "drop",
        "Delete the line with debug.",
        {"c.txt": "one\ndebug\ntwo\n"},
        (Step("grep", {"pattern": "debug"}, "c.txt"), edit("c.txt", "debug\n", "")),
        {"c.txt": "one\ntwo\n"},
    ),
    Chore(
        "replace",
        "Replace r.txt by the word new.",
        {"r.txt": "old\nold\n"},
        (read("r.txt", "old"), write("r.txt", "new\n")),
        {"r.txt": "new\n"},
    ),
    Chore(
        "count",
        "How many lines has big.txt?",
        {"big.txt": "line\n" * 417},
        (shell("wc -l big.txt", "417"),),
        {},
        "417",
    ),
)


def _json(step: Step) -> str:
    return json.dumps(step.arguments)


def _raw(change: Callable[[str], str]) -> Callable[[Step], Behaviour]:
    return lambda step: Reply(calls=(ScriptedCall(step.name, change(_json(step))),))


def _text(form: Callable[[Step], str]) -> Callable[[Step], Behaviour]:
    return lambda step: say(form(step))


def _with(**more: Any) -> Callable[[Step], Behaviour]:
    return lambda step: Reply(calls=(ScriptedCall(step.name, json.dumps(step.arguments | more)),))


def _xml(step: Step) -> str:
    parts = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in step.arguments.items())
    return f"<tool_call>\n<function={step.name}>\n{parts}</function>\n</tool_call>"


def _named(step: Step) -> str:
    return json.dumps({"name": step.name, "arguments": step.arguments})


ALIASES = {"read": "read_file", "write": "write_file", "edit": "edit_file", "shell": "bash", "grep": "search_files"}


def _twice(step: Step) -> Behaviour:
    return calls(ScriptedCall(step.name, _json(step)), ScriptedCall("read", '{"path": "there-is-no-such-file"}'))


def _file_path(step: Step) -> Behaviour:
    known = {"file_path" if name == "path" else name: value for name, value in step.arguments.items()}
    return Reply(calls=(ScriptedCall(step.name, json.dumps(known)),))


DAMAGES: dict[str, Callable[[Step], Behaviour]] = {
    "none": _raw(lambda text: text),
    "trailing comma": _raw(lambda text: text[:-1] + ",}"),
    "no last brace": _raw(lambda text: text[:-1]),
    "single quotes": lambda step: Reply(calls=(ScriptedCall(step.name, repr(step.arguments)),)),
    "in a fence": _raw(lambda text: f"```json\n{text}\n```"),
    "as text, Hermes": _text(lambda step: f"<tool_call>\n{_named(step)}\n</tool_call>"),
    "as text, fenced": _text(lambda step: f"```json\n{_named(step)}\n```"),
    "as text, XML": _text(_xml),
    "another tool's name": lambda step: Reply(calls=(ScriptedCall(ALIASES[step.name], _json(step)),)),
    "file_path": _file_path,
    "an argument too many": _with(reason="because"),
    "JSON in a string": _raw(json.dumps),
    "one of two fails": _twice,
    "empty reply": lambda step: Reply(),
    "announced": lambda step: say(f"I will now use {step.name} to go on with this:"),
    "stream cut": lambda step: cut(Reply(calls=(ScriptedCall(step.name, _json(step)),)), chunks=2),
    "cut at the limit": lambda step: reply(calls=(ScriptedCall(step.name, _json(step)[:-3]),), finish="length"),
    "error 500": lambda step: status(500),
}
"""What the first try of a step that changes or shows something looks like; `none` is the yardstick."""


@dataclass
class Worker:
    """The mind at one task: `at` is the step whose call is damaged."""

    chore: Chore
    damage: str
    at: int
    tried: dict[int, int] = field(default_factory=dict[int, int])
    prompt_bytes: int = 0
    requests: int = 0

    def __call__(self, received: Received) -> Behaviour:
        self.prompt_bytes += len(received.raw)
        self.requests += 1
        position = self._done(received.messages)
        if position == len(self.chore.steps):
            return say(f"{self.chore.answer}")
        step = self.chore.steps[position]
        self.tried[position] = tries = self.tried.get(position, 0) + 1
        if tries > TRIES:
            return say(f"BLOCKED: {step.name} does not do what it should.")
        damaged = position == self.at and tries == 1
        return DAMAGES[self.damage if damaged else "none"](step)

    def _done(self, messages: list[dict[str, Any]]) -> int:
        position = 0
        for message in messages:
            if position == len(self.chore.steps):
                break
            found = message["role"] == "tool" and re.search(self.chore.steps[position].done, str(message["content"]))
            position += bool(found)
        return position


def work(chore: Chore, damage: str, at: int) -> dict[str, Any]:
    """One task with one damage of the call at a step: `done`, `wrong` (with exit 0) or `failed` (and said so)."""
    worker = Worker(chore, damage, at)
    with tempfile.TemporaryDirectory() as home, ScriptedServer(worker) as server:
        folder = Path(home) / "workspace"
        folder.mkdir()
        for path, content in chore.before.items():
            (folder / path).write_text(content)
        flags = ["--permission", "auto", "-w", str(folder), "--base-url", server.base_url]
        done = subprocess.run(
            [sys.executable, "-m", "lmagent", chore.task, *flags],
            env={**os.environ, "HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        held = all(_is(folder / path, content) for path, content in chore.after.items())
    right = held and chore.answer in done.stdout
    result = "done" if right and not done.returncode else "failed" if done.returncode else "wrong"
    counted = {"bytes": worker.prompt_bytes, "requests": worker.requests}
    return {"chore": chore.name, "damage": damage, "at": at, "result": result, **counted}


def _is(path: Path, content: str | None) -> bool:
    return not path.exists() if content is None else path.exists() and path.read_text() == content
