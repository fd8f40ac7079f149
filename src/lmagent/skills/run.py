"""Run: a Python skill is called in the sandbox, in a process of its own, and never in ours."""

from __future__ import annotations

import json
import time
from typing import Any

from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Stream
from lmagent.skills.shelf import RunRecord, Shelf, Skill
from lmagent.skills.tools import Confinement

MOST = 64_000  # bytes of output that are kept: the beginning
KEPT = 500  # characters of a result in the record

# The skill's own output goes to standard error, so that only its result is on standard output.
PROGRAM = """
import asyncio, inspect, json, os, sys
asked = json.loads(sys.argv[1])
out, sys.stdout = sys.stdout, sys.stderr
sys.path.insert(0, os.getcwd())
space = {"__name__": "skill", "__file__": asked["file"]}
exec(compile(asked["code"], asked["file"], "exec"), space)
result = space[asked["function"]](**asked["arguments"])
if inspect.isawaitable(result):
    async def wait():
        return await result
    result = asyncio.run(wait())
out.write(json.dumps(result, default=str, ensure_ascii=False) if not isinstance(result, str) else result)
out.flush()
"""


class SkillResult(Struct, frozen=True):
    """The end of a call: its result, or what went wrong."""

    ok: bool
    text: str
    seconds: float


async def call(sandbox: Confinement, code: str, function: str, file: str, arguments: dict[str, Any]) -> SkillResult:
    """Call a function in the sandbox. A failure of the skill, or of the sandbox, is a result."""
    asked = json.dumps({"code": code, "function": function, "file": file, "arguments": arguments})
    kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray(), "channel": bytearray()}

    def show(stream: Stream, piece: bytes) -> None:
        kept[stream] += piece[: max(0, MOST - len(kept[stream]))]

    command = Exec(("python3", "-I", "-c", PROGRAM, asked), timeout=sandbox.timeout)
    begun = time.monotonic()
    try:
        running = await (await sandbox.get()).start(command, show)
        ended = await running.wait()
    except SandboxError as failure:
        return SkillResult(False, f"it could not be run: {failure.message}", time.monotonic() - begun)
    out, err = (kept[stream].decode("utf-8", "replace").strip() for stream in ("stdout", "stderr"))
    if ended.reason == "timeout":
        return SkillResult(False, f"it did not end within {sandbox.timeout:g} s", ended.seconds)
    if ended.code or ended.reason != "exit":
        why = "it used too much memory" if ended.reason == "memory" else f"it failed with exit code {ended.code}"
        return SkillResult(False, f"{why}\n{err[-2000:]}".strip(), ended.seconds)
    return SkillResult(True, out + (f"\n[printed]\n{err[-2000:]}" if err else ""), ended.seconds)


async def use(
    shelf: Shelf, skill: Skill, sandbox: Confinement, arguments: dict[str, Any], *, trial: bool = False
) -> SkillResult:
    """Call a Python skill and record the use."""
    manifest = skill.manifest
    assert manifest is not None
    result = await call(sandbox, skill.code, manifest.function, f"{skill.name}.py", arguments)
    shelf.record(skill, RunRecord(time.time(), result.ok, round(result.seconds, 3), result.text[:KEPT], trial))
    return result


async def test(shelf: Shelf, skill: Skill, sandbox: Confinement) -> SkillResult:
    """Run the recorded call of a Python skill. A text skill has none, and passes if it can be read."""
    if skill.manifest is None:
        return SkillResult(skill.state != "broken", skill.reason or "it can be read", 0.0)
    return await use(shelf, skill, sandbox, skill.manifest.trial.arguments, trial=True)
