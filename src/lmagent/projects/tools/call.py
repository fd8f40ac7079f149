"""Call: one call of a project's tool, as a process in a sandbox of its own, which ends with the call.

The code that runs is the text that was read when the agent was loaded. The tool sees the workspace, the project's
folder read-only, and what runs it; its answer comes through a channel that its output cannot reach.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.errors import ConfigError, LmagentError, ToolError
from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox, Stream
from lmagent.core.tool import ToolOutput
from lmagent.projects.tools.spec import OwnTool, ToolPlace
from lmagent.sandbox.environment import find_program
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line, printable

LARGEST = 1 << 20
"""Bytes of a tool's file."""

MOST = 16 << 20
"""Bytes that a call may print, and of its answer."""

PRINTED = 2000
"""Bytes of the output beside the result that are shown: the last ones."""

PROJECT = "LMAGENT_PROJECT"
"""Variable with the project's folder."""

Runtime = Literal["node", "quickjs", "python", "program"]

_INSIDE = Path(__file__).with_name("inside")
_STDIN = 'exec "$@" <"$0"'


class _Command(Struct, frozen=True):
    """What runs a tool: its command line, to which the file with the call is added, and the paths that it reads."""

    argv: tuple[str, ...]
    read: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class _Heard(Struct):
    """What a process wrote, by stream; `flooded` once a stream was too long."""

    streams: dict[Stream, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray(), "channel": bytearray()}
    )
    flooded: bool = False

    def text(self, stream: Stream) -> str:
        return printable(self.streams[stream].decode("utf-8", "replace")).strip()


def javascript(place: ToolPlace) -> Runtime:
    """Return what runs JavaScript here. Raise ConfigError if nothing does."""
    if _node(place) is not None or place.backend() == "docker":
        return "node"
    if find_spec("quickjs") is not None:
        return "quickjs"
    raise ConfigError(
        "JavaScript tools need Node.js, and it is not installed",
        fix="install Node.js, or the small engine: pip install 'lmagent-local[js]'",
    )


def read_source(folder: Path, path: str) -> bytes:
    """Return the content of a file of the project. Raise ToolError if it cannot be read, or is too large."""
    with Beneath(folder) as files:
        source = files.read_bytes(path, LARGEST + 1)
    if len(source) > LARGEST:
        raise ToolError(f"{one_line(path)} has more than {LARGEST >> 20} MB")
    return source


async def call(place: ToolPlace, tool: OwnTool, arguments: dict[str, Any]) -> ToolOutput:
    """Run a call. Raise ToolError if it fails, SandboxError if there is no sandbox."""
    try:
        unchanged = read_source(tool.folder, tool.path) == tool.source
    except LmagentError:
        unchanged = False
    if not unchanged:
        raise ToolError(
            f"{one_line(tool.path)} was changed since this agent was loaded, so {tool.name} was not run. "
            "The user can start the agent again.",
            data={"code": "changed"},
        )
    heard, end = await _carried_out(place, tool, {"arguments": arguments})
    noise = _tail(heard.text("stderr") if tool.kind == "program" else heard.text("stdout"))
    printed = f"\n[printed]\n{noise}" if noise else ""
    if tool.kind == "program":
        if why := _ending(place, tool, heard, end) or (f"exit code {end.code}" if end.code else ""):
            raise _failed(tool, why, noise)
        return ToolOutput((heard.text("stdout") or "(no output)") + printed)
    answer = _answer(heard)
    if answer is None:
        why = _ending(place, tool, heard, end) or f"it ended with exit code {end.code} and without a result"
        raise _failed(tool, why, noise)
    if "error" in answer:
        raise _failed(tool, printable(str(answer["error"])), noise)
    result = answer.get("text", answer.get("json"))
    return ToolOutput(("(no result)" if result is None else printable(str(result))) + printed)


async def describe(place: ToolPlace, tool: OwnTool) -> dict[str, Any]:
    """Load a JavaScript file and return its name, description, parameters and code. Raise ConfigError if it fails."""
    heard, end = await _carried_out(place, tool, {"describe": True})
    answer = _answer(heard)
    if answer is None or "error" in answer:
        why = answer["error"] if answer is not None else _ending(place, tool, heard, end) or heard.text("stdout")
        fix = "correct it; files are CommonJS: module.exports = {name, description, execute}"
        raise ConfigError(f"{tool.path} cannot be loaded: {one_line(printable(str(why)), 300)}", fix=fix)
    return answer


def _failed(tool: OwnTool, why: str, noise: str) -> ToolError:
    printed = f"\n[printed]\n{noise}" if noise and noise not in why else ""
    return ToolError(f"{tool.name} failed: {why}{printed}", data={"code": "tool"})


def _tail(text: str) -> str:
    return text if len(text) <= PRINTED else f"…{text[-PRINTED:]}"


def _answer(heard: _Heard) -> dict[str, Any] | None:
    """Return the answer in the channel; None if it has not exactly one."""
    if heard.flooded:
        return None
    try:
        answer = json.loads(bytes(heard.streams["channel"]))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


def _ending(place: ToolPlace, tool: OwnTool, heard: _Heard, end: Exit) -> str:
    """Return why a call was stopped; empty if it ended by itself."""
    if heard.flooded:
        return f"it wrote more than {MOST >> 20} MB and was stopped"
    if end.reason == "timeout":
        return f"it did not end within {tool.timeout:g} s and was stopped"
    if end.reason == "memory" or "heap out of memory" in heard.text("stdout"):
        return f"it needed more memory than the {_memory(place)} MB that a tool may use"
    if 128 < end.code <= 192:
        return f"it was ended by signal {end.code - 128}"
    if end.code == 127 and tool.kind in ("node", "python"):
        return f"{tool.kind} is not installed in the sandbox"
    return ""


async def _carried_out(place: ToolPlace, tool: OwnTool, asked: Mapping[str, Any]) -> tuple[_Heard, Exit]:
    """Run the tool's process with the call in a file, and return what it wrote."""
    from lmagent.sandbox.choose import alike  # no start waits for the sandboxes to load

    await place.sandbox()
    with TemporaryDirectory(prefix="lmagent-tool-", ignore_cleanup_errors=True) as folder:
        file = Path(os.path.realpath(folder), "call.json")
        runs = _command(place, tool, file)
        request: dict[str, Any] = {
            "file": str(tool.file),
            "source": tool.source.decode("utf-8", "replace"),
            "function": tool.declared.function,
            "project": str(tool.folder),
            "libraries": [str(path) for path in place.libraries],
            **asked,
        }
        file.write_text(json.dumps(asked["arguments"] if tool.kind == "program" else request), encoding="utf-8")
        read = (*_visible(tool.folder, place.workspace), file.parent, *runs.read, *place.libraries, *place.modules)
        options = place.request()
        options = replace(options, read=(*options.read, *read), scratch=None)
        command = Exec(
            runs.argv,
            env={PROJECT: str(tool.folder), **place.env, **runs.env},
            timeout=tool.timeout,
            hosts=place.hosts,
            channel=tool.kind != "program",
            merge=tool.kind != "program",
        )
        sandbox = alike(place.workspace, options, place.backend())
        try:
            return await _heard(sandbox, command)
        finally:
            await sandbox.aclose()


def _visible(folder: Path, workspace: Path) -> tuple[Path, ...]:
    """Return what tools see of a project: no hidden files (`.env`, our own records), and no links, which lead out."""
    if folder.is_relative_to(workspace):
        return ()
    return tuple(path for path in folder.iterdir() if not path.name.startswith(".") and not path.is_symlink())


async def _heard(sandbox: Sandbox, command: Exec) -> tuple[_Heard, Exit]:
    heard = _Heard()

    def take(stream: Stream, piece: bytes) -> None:
        kept = heard.streams[stream]
        kept += piece[: MOST - len(kept)]
        if len(kept) >= MOST and not heard.flooded:
            heard.flooded = True
            running.kill()

    running = await sandbox.start(command, take)
    return heard, await running.wait()


def _command(place: ToolPlace, tool: OwnTool, file: Path) -> _Command:
    """Return what runs a tool: programs of this machine, or in docker those of the image."""
    image = place.backend() == "docker"
    if tool.kind == "program":
        return _Command(("/bin/sh", "-c", _STDIN, str(file), *tool.declared.argv))
    if tool.kind == "node":
        node = None if image else _node(place)
        modules = {"NODE_PATH": os.pathsep.join(map(str, place.modules))} if place.modules else {}
        own = (node,) if node is not None and not node.is_relative_to("/usr") else ()
        heap = f"--max-old-space-size={_memory(place) * 3 // 4}"  # it then says so, instead of crashing at the limit
        return _Command((str(node or "node"), heap, str(_INSIDE / "node.js"), str(file)), (_INSIDE, *own), modules)
    python = ("python3",) if image else (os.path.realpath(sys.executable),)
    base = Path(os.path.realpath(sys.base_prefix))
    own = () if image or base.is_relative_to("/usr") or base == Path("/") else (base,)
    if tool.kind == "python":
        # Without `site`: only the standard library, the project's files and its own packages can be imported.
        return _Command((*python, "-I", "-S", "-B", str(_INSIDE / "run.py"), str(file)), (_INSIDE, *own))
    engine = _quickjs()
    boot = "import sys; sys.path += [sys.argv[1], sys.argv[2]]; from quick import main; main(sys.argv[3])"
    argv = (*python, "-I", "-S", "-B", "-c", boot, str(_INSIDE), str(engine), str(file))
    return _Command(argv, (_INSIDE, engine, *own))


def _memory(place: ToolPlace) -> int:
    return place.request().limited(Limits()).memory_mb


def _node(place: ToolPlace) -> Path | None:
    found = find_program("node", place.request().env, place.workspace)
    return Path(os.path.realpath(found)) if found is not None else None


def _quickjs() -> Path:
    spec = find_spec("quickjs")
    if spec is None or spec.origin is None:
        raise ToolError("The JavaScript engine was uninstalled. The user can install Node.js.", data={"code": "tool"})
    return Path(os.path.realpath(spec.origin)).parent.parent
