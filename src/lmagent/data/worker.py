"""Worker: a process in the sandbox that looks into one file. It sees that file, Python, and the libraries of the extra.

Its sandbox is not that of the commands: the workspace is an empty folder, so a query that gets around DuckDB's own
limits finds no other file of the user either, and no network.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox, Stream
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line, printable

if TYPE_CHECKING:
    from lmagent.data.feature import DataPlace

SECONDS = 240.0
"""How long a look at a file may take."""

PASS_SECONDS = 60.0
"""How long describe, sample and plot read; then they answer about the part that they have read."""

_PASSES = ("describe", "sample", "plot")

LIMITS = Limits(memory_mb=1024, pids=64, file_mb=512, tmp_mb=512)

LIBRARIES = ("duckdb", "python_calamine", "arro3", "vl_convert")
"""The libraries of the extra `data`."""

MOST = 64 << 20
"""Bytes of an answer."""

_GRACE = 20.0
_BOOT = "import sys; sys.path += sys.argv[1].splitlines(); from inside.main import main; main()"
_INSIDE = Path(__file__).with_name("inside")


async def look(place: DataPlace, path: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worker's answer about a file of the workspace.

    Raises ToolError, or SandboxError if there is no sandbox.
    """
    with Beneath(place.workspace) as files:
        descriptor = files.open_read(path)
        name = files.locate(path)
    try:
        before = os.fstat(descriptor)
        real = os.path.realpath(place.workspace / name)
        seconds = PASS_SECONDS if request["operation"] in _PASSES else SECONDS
        given = {"path": real, "name": os.path.basename(name), "seconds": seconds, **request}
        answer = await _answer(place, given)
        # The worker opens the file by its path. Another program may have put a link there after our look.
        if answer.get("file") != [before.st_dev, before.st_ino] and place.backend() != "docker":
            raise ToolError(f"{one_line(name)} was replaced while it was opened. Try again.", data={"code": "race"})
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if "error" in answer:
        raise ToolError(f"{one_line(name)}: {printable(str(answer['error']))}.", data={"code": "data", "path": name})
    notes: list[str] = answer.setdefault("notes", [])
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        notes.append("the file was changed while it was read: parts of this may be wrong")
    if str(answer.get("kind", "")).startswith("SQLite") and _has_journal(real):
        notes.append("a program has it open: changes in its -wal file are not shown")
    return {**answer, "path": name}


def _has_journal(path: str) -> bool:
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


async def _answer(place: DataPlace, request: Mapping[str, Any]) -> dict[str, Any]:
    site = _site()
    read = (Path(request["path"]), _INSIDE, *site, *_python())
    with TemporaryDirectory(prefix="lmagent-data-", ignore_cleanup_errors=True) as folder:
        sandbox = await place.sandbox(Path(os.path.realpath(folder)), read, LIMITS)
        try:
            return await _run(sandbox, _command(place.backend(), site, request))
        finally:
            await sandbox.aclose()


def _command(backend: str, site: tuple[Path, ...], request: Mapping[str, Any]) -> Exec:
    # Without `site`, which reads every installed package's startup files: the worker starts in half the time.
    python = os.path.realpath(sys.executable), "-I", "-S"
    if backend == "docker":  # an image has a Python and libraries of its own
        python, site = ("python3", "-I"), ()
    folders = "\n".join(map(str, (_INSIDE.parent, *site)))
    argv = (*python, "-c", _BOOT, folders, json.dumps(request))
    return Exec(argv, env={"PYTHONDONTWRITEBYTECODE": "1"}, timeout=SECONDS + _GRACE)


async def _run(sandbox: Sandbox, command: Exec) -> dict[str, Any]:
    pieces: dict[Stream, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0

    def take(stream: Stream, piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size <= MOST:
            pieces[stream].append(piece)
        else:
            running.kill()

    running = await sandbox.start(command, take)
    end = await running.wait()
    try:
        return json.loads(b"".join(pieces["stdout"]))
    except ValueError:
        raise ToolError(_ending(end, size, b"".join(pieces["stderr"])), data={"code": "data"}) from None


def _ending(end: Exit, size: int, errors: bytes) -> str:
    if size > MOST:
        return "The answer is too large. Ask for fewer rows."
    if end.reason == "memory":
        return f"It needs more than {LIMITS.memory_mb} MB of memory, which a look at a file may not take."
    if end.reason == "timeout":
        return f"It took longer than {SECONDS + _GRACE:g} s. Ask for less: head, or a smaller file."
    last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return (
        f"The file could not be read: its reader ended with code {end.code}. {one_line(printable(last), 300)}".strip()
    )


def _site() -> tuple[Path, ...]:
    """Return the folders where the installed libraries of the extra are."""
    found = dict[Path, None]()
    for name in LIBRARIES:
        spec = find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            found[Path(os.path.realpath(place)).parent] = None
    return tuple(found)


def _python() -> tuple[Path, ...]:
    """Return the folder of this Python, if it is not a part of the system."""
    folder = Path(os.path.realpath(sys.base_prefix))
    return () if folder.is_relative_to("/usr") or folder == Path("/") else (folder,)
