"""python: run code in a process that keeps its variables, in the sandbox."""

from __future__ import annotations

import signal
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.sandbox import Exit, GetSandbox
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.engine.context.intake import shorten
from lmagent.tools.page import BYTES, paged, size
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


def python_tool(sandbox: GetSandbox, kernels: Kernels) -> Tool:
    """Return the tool, which calls `sandbox` at every call; the caller closes `kernels`."""

    async def run(arguments: Python, ctx: ToolContext) -> ToolOutput:
        timeout = min(max(arguments.timeout, SHORTEST), LONGEST)
        outcome = await kernels.run(
            ctx.session, await sandbox(), arguments.code, reset=arguments.reset, timeout=timeout, emit=ctx.emit
        )
        return _output(outcome, timeout)

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


def _output(outcome: Outcome, timeout: float) -> ToolOutput:
    before = ["[a new Python: the earlier variables are gone]"] if outcome.fresh else []
    output, remarks = outcome.output, _remarks(outcome, timeout)
    facts = {"status": _status(outcome), "bytes": output.total, "notes": [*before, *remarks]}

    def shown(room: int) -> ToolOutput:
        result = _result(outcome)
        if output.file is not None:
            result = shorten(result, room // 2)
        printed = output.text(room - size([*before, result, *remarks])).rstrip("\n")
        if outcome.end is not None:  # if Python crashed, its report has the cell's frames and then the kernel's
            printed = "\n".join(line for line in printed.split("\n") if not line.startswith(_OWN_FRAMES))
        return ToolOutput("\n".join(filter(None, (*before, printed, result, *remarks))), facts, file=output.file)

    return shown(BYTES) if output.file is None else paged(shown)


def _result(outcome: Outcome) -> str:
    reply = outcome.reply
    if reply is None or reply.status == "exit" or not reply.result:
        return ""
    return printable(reply.result).rstrip("\n") if reply.status == "error" else f"=> {printable(reply.result)}"


def _remarks(outcome: Outcome, timeout: float) -> list[str]:
    remarks = list[str]()
    reply, end = outcome.reply, outcome.end
    if reply is not None and reply.status == "exit":
        code = "" if reply.result == "None" else one_line(printable(reply.result), 300)
        remarks.append(f"[exit({code}) ended this code; the variables are kept]")
    if outcome.late and end is None:
        remarks.append(f"[timed out after {timeout:g} s: interrupted; the variables are kept]")
    elif outcome.late:
        why = "its threads did not stop" if reply and reply.threads else "the interrupt did not stop it"
        remarks.append(f"[timed out after {timeout:g} s: {why}, so Python was killed; all variables are gone]")
    elif end is not None:
        remarks.append(f"[Python {_how_ended(end)}; all variables are gone]")
    return remarks + [f"[{one_line(note, 500)}]" for note in outcome.notes]


def _how_ended(end: Exit) -> str:
    if end.reason != "exit":
        return f"was killed{': it used more memory than the sandbox allows' if end.reason == 'memory' else ''}"
    if end.code == _CLOSED:
        return "ended: the code closed its channel"
    signals = {128 + each.value: each.name for each in signal.Signals}
    return f"died of {signals[end.code]}" if end.code in signals else f"ended with exit code {end.code}"


def _status(outcome: Outcome) -> str:
    if outcome.late:
        return "timeout"
    return "died" if outcome.end is not None or outcome.reply is None else outcome.reply.status
