"""python: run code in a process that keeps its variables, in the sandbox."""

from __future__ import annotations

import signal
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.sandbox import Exit, GetSandbox, Limits
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.python.kernel import Kernels, Outcome
from lmagent.tools.read import REMARKS
from lmagent.tools.sanitize import one_line, printable

LONGEST = 600.0
SHORTEST = 0.1

_CLOSED = 70
"""Exit status of a kernel that a cell has cut off from its channel."""

_OWN_FRAMES = ('  File "<lmagent>", line ', '  File "<string>", line 1 in <module>')


class Python(Struct, frozen=True):
    """Arguments of python."""

    code: str
    reset: Annotated[bool, Meta(description="forget all variables first")] = False
    timeout: Annotated[float, Meta(description="seconds, at most 600")] = 120


def python_tool(sandbox: GetSandbox, kernels: Kernels, *, memory_mb: int = Limits().memory_mb) -> Tool:
    """Return the tool, which calls `sandbox` at every call.

    The caller closes `kernels`. `memory_mb` is the
    sandbox's limit, for the message when it was hit.
    """

    async def run(arguments: Python, ctx: ToolContext) -> ToolOutput:
        timeout = min(max(arguments.timeout, SHORTEST), LONGEST)
        outcome = await kernels.run(
            ctx.session, await sandbox(), arguments.code, reset=arguments.reset, timeout=timeout, emit=ctx.emit
        )
        return _output(outcome, timeout, memory_mb)

    return Tool(
        name="python",
        description="Run Python in the workspace; variables are kept. Shows output and the last expression.",
        arguments=Python,
        effect="exec",
        run=run,
        aliases=("pyexe", "run_python", "execute_python", "python_exec", "ipython", "code_interpreter"),
        renames={"source": "code", "script": "code", "restart": "reset", "timeout_seconds": "timeout", **REMARKS},
        summary=lambda arguments: f"python {one_line(arguments.code, 110)}",
        preview=lambda arguments, _: arguments.code,
    )


def _output(outcome: Outcome, timeout: float, memory_mb: int) -> ToolOutput:
    before = "[a new Python: the earlier variables are gone]" if outcome.fresh else ""
    printed = outcome.output.text()
    if outcome.end is not None:  # if Python crashed, its report has the cell's frames and then the kernel's
        printed = "\n".join(line for line in printed.split("\n") if not line.startswith(_OWN_FRAMES))
    remarks = _remarks(outcome, timeout, memory_mb)
    notes = [note for note in (before, *remarks) if note]
    facts = {"status": _status(outcome), "bytes": outcome.output.total, "notes": notes}
    return ToolOutput("\n".join(filter(None, (before, printed.rstrip("\n"), _result(outcome), *remarks))), facts)


def _result(outcome: Outcome) -> str:
    reply = outcome.reply
    if reply is None:
        return ""
    if reply.error is not None:
        return printable(reply.error).rstrip("\n")
    return "" if reply.value is None else f"=> {printable(reply.value)}"


def _remarks(outcome: Outcome, timeout: float, memory_mb: int) -> list[str]:
    remarks = list[str]()
    reply, end = outcome.reply, outcome.end
    if reply is not None and reply.exit is not None:
        code = "" if reply.exit == "None" else one_line(printable(reply.exit), 300)
        remarks.append(f"[exit({code}) ended this code; the variables are kept]")
    if outcome.late:
        remarks.append(f"[timed out after {timeout:g} s: {_how_stopped(outcome)}]")
    elif end is not None:
        remarks.append(f"[{_how_ended(outcome, end, memory_mb)}; all variables are gone]")
    return remarks + [f"[{one_line(note, 500)}]" for note in outcome.notes]


def _how_stopped(outcome: Outcome) -> str:
    if outcome.end is None:
        return "interrupted; the variables are kept"
    left = outcome.reply.threads if outcome.reply else 0
    why = "its threads did not stop" if left else "the interrupt did not stop it"
    return f"{why}, so Python was killed; all variables are gone"


def _how_ended(outcome: Outcome, end: Exit, memory_mb: int) -> str:
    if outcome.broken:
        return f"Python was killed: {outcome.broken}"
    if end.reason == "memory":
        return f"Python was killed: out of memory, limit {memory_mb} MiB"
    if end.reason != "exit":
        return "Python was killed"
    if end.code == _CLOSED:
        return "Python ended: the code closed its channel"
    if end.code > 128:
        number = end.code - 128
        known = {each.value: each.name for each in signal.Signals}
        return f"Python died of {known.get(number, f'signal {number}')}"
    return f"Python ended with exit code {end.code}"


def _status(outcome: Outcome) -> str:
    if outcome.late:
        return "timeout"
    if outcome.end is not None or outcome.reply is None:
        return "died"
    if outcome.reply.exit is not None:
        return "exit"
    return "ok" if outcome.reply.error is None else "error"
