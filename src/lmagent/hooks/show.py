"""Show: the hooks as lines for the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmagent.hooks.answers import HookAnswer, HookRun, answer_of
from lmagent.hooks.config import Hook, HookFile
from lmagent.tools.sanitize import one_line, printable, visible


def problems(files: Sequence[HookFile]) -> Iterator[str]:
    """Yield a line for each file whose hooks do not run, and for entries that are left out."""
    for file in files:
        if file.state == "broken":
            yield f"hooks do not run: {file.reason}\n  → {file.fix}"
        elif file.state in ("untrusted", "changed"):
            yield f"the hooks in {file.path} do not run: {file.reason}\n  → {file.fix}"
        elif file.state == "used" and file.left:
            yield f"{file.path}: not run: {'; '.join(one_line(entry, 100) for entry in file.left)}"


def hook_lines(files: Sequence[HookFile]) -> Iterator[str]:
    """Yield the hooks by file, with whether they run."""
    for file in files:
        runs = "runs" if file.state == "used" else f"does not run: {file.reason}"
        whose = "yours" if file.scope == "user" else "this workspace's"
        yield f"{visible(str(file.path))} ({whose}): {visible(runs)}"
        if file.fix:
            yield f"  → {visible(file.fix)}"
        yield from (f"  {_line(hook)}" for hook in file.hooks)
        yield from (f"  not run: {one_line(entry, 200)}" for entry in file.left)


def _line(hook: Hook) -> str:
    where = "" if hook.sandbox else ", outside the sandbox"
    return (
        f"{hook.event} {one_line(hook.matcher, 60) or '*'}: {one_line(hook.command, 200)} ({hook.timeout:g} s{where})"
    )


def run_lines(run: HookRun) -> Iterator[str]:
    """Yield how a hook ended, what it printed, and what that means."""
    yield f"{_line(run.hook)}: {visible(run.failure) or f'exit code {run.code}'} after {run.seconds:.1f} s"
    for name, text in (("output", run.out), ("errors", run.err)):
        if text.strip():
            yield f"  {name}:"
            yield from (f"    {line}" for line in printable(text).rstrip().split("\n"))
    yield f"  → {_meaning(answer_of(run))}"


def _meaning(answer: HookAnswer) -> str:
    if answer.warning:
        asked = "; a call that it guards is asked about" if answer.silent and answer.hook.event == "PreToolUse" else ""
        return f"{visible(answer.warning)}{asked}"
    known = {"allow": "it allows", "ask": "the user is asked", "deny": "it objects"}
    parts = [known[answer.decision]] if answer.decision else []
    parts += ["it stops the turn"] if answer.stop is not None else []
    parts += ["it changes the arguments"] if answer.updated is not None else []
    parts += ["it adds to the conversation"] if answer.context else []
    return ", ".join(parts) or "no objection"
