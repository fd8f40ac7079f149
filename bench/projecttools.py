"""What a call of an agent project's own tool costs; JSON on standard output, in milliseconds.

    python bench/projecttools.py [--runs 25]

`true` is `/bin/true` in the same sandbox. `started` is the bare start of the program that runs a kind of tool, in that
sandbox too; `call` is a call of a tool that returns its argument. All are medians, and are measured in turns, so that a
loaded machine slows all of them alike; `ratio` is call / started. `read_ms` is for reading the files of three tools,
`again_ms` for reading them once more. Exit code 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from lmagent.core.sandbox import Exec, Sandbox
from lmagent.core.tool import ToolContext
from lmagent.projects.spec import ToolEntry
from lmagent.projects.tools.javascript import read_javascript
from lmagent.projects.tools.own import read_tools
from lmagent.projects.tools.python import read_python
from lmagent.projects.tools.spec import ToolPlace
from lmagent.sandbox.choose import alike, choose
from lmagent.sandbox.environment import SandboxRequest

JAVASCRIPT = "module.exports = { description: 'Echo.', execute({ text }) { return text; } };"
PYTHON = 'def echo(text: str) -> str:\n    """Echo."""\n    return text\n'
MANIFEST = '{"description": "Echo.", "parameters": {"text": "string"}, "command": ["/bin/cat"]}'
FILES = {"node.js": JAVASCRIPT, "quickjs.js": JAVASCRIPT, "python.py": PYTHON, "program.json": MANIFEST}
BARS = {"node": 1.5, "quickjs": 1.7, "python": 2.0, "program": 1.5}
"""A call takes at most so many times as long as the start of its program in the sandbox."""


def started() -> dict[str, tuple[str, ...]]:
    python = (os.path.realpath(sys.executable), "-I", "-S", "-c")
    engine = str(Path(find_spec("quickjs").origin).parent.parent)
    quick = (*python, f"import sys; sys.path.append({engine!r}); import json, quickjs; quickjs.Context()")
    return {
        "node": ("node", "-e", "0"),
        "quickjs": quick,
        "python": (*python, "0"),
        "program": ("/bin/sh", "-c", "true"),
    }


def without_node(env: dict[str, str], folder: Path) -> dict[str, str]:
    folder.mkdir()
    for name in ("bwrap", "python3"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return {**env, "PATH": str(folder)}


def written(folder: Path) -> dict[str, ToolEntry]:
    """Write the tools' files, and return their rows by the kind of tool."""
    (folder / "tools").mkdir(parents=True)
    for file, text in FILES.items():
        (folder / "tools" / file).write_text(text)
    return {kind: ToolEntry(kind, f"tools/{file}") for file in FILES for kind in (file.partition(".")[0],)}


async def measure(root: Path, runs: int) -> dict[str, Any]:
    folder, workspace = root / "project", root / "workspace"
    workspace.mkdir()
    entries = written(folder)
    request = SandboxRequest(env=dict(os.environ))
    sandbox, report = await choose(workspace, request)

    async def get() -> Sandbox:
        return sandbox

    place = ToolPlace(workspace, get, lambda: report.backend, lambda: request)
    lacking = SandboxRequest(env=without_node(dict(os.environ), root / "programs"))
    bare = replace(place, request=lambda: lacking)
    tools = {
        name: read_tools(folder, [entry], bare if name == "quickjs" else place).tools[0]
        for name, entry in entries.items()
    }
    python = Path(os.path.realpath(sys.base_prefix))
    packages = Path(find_spec("quickjs").origin).parent.parent
    visible = replace(request, read=(python, packages))

    async def bare_start(argv: tuple[str, ...]) -> float:
        begun = time.perf_counter()
        running = await alike(workspace, visible, report.backend).start(Exec(argv), lambda *_: None)
        assert (await running.wait()).code == 0, argv
        return time.perf_counter() - begun

    context = ToolContext("s", "c", workspace, {}, lambda _: None)
    programs = {"true": ("/bin/true",), **started()}
    starts: dict[str, list[float]] = {name: [] for name in programs}
    calls: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(runs):
        for name, argv in programs.items():
            starts[name].append(await bare_start(argv))
        for name, tool in tools.items():
            begun = time.perf_counter()
            output = await tool.run({"text": "hoo"}, context)
            calls[name].append(time.perf_counter() - begun)
            assert "hoo" in output.content, output.content
    before, after = medians(starts), medians(calls)
    return {
        "sandbox": report.backend,
        "true_ms": before.pop("true"),
        "started_ms": before,
        "call_ms": after,
        "ratio": {name: round(after[name] / before[name], 2) for name in after},
        **reading(folder, [entry for name, entry in entries.items() if name != "quickjs"], place),
    }


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values) * 1000, 1) for name, values in times.items()}


def reading(folder: Path, entries: list[ToolEntry], place: ToolPlace) -> dict[str, float]:
    """Return the milliseconds for reading files, and for reading them once more."""
    read_javascript.cache_clear()
    read_python.cache_clear()
    times = list[float]()
    for _ in range(2):
        begun = time.perf_counter()
        read_tools(folder, entries, place)
        times.append(round((time.perf_counter() - begun) * 1000, 1))
    return {"read_ms": times[0], "again_ms": times[1]}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=25)
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(measure, Path(folder).resolve(), options.parse_args().runs)
    found["failed"] = [name for name, bar in BARS.items() if found["ratio"][name] > bar]
    print(json.dumps(found, indent=2))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
