"""Checks: one function for each, which returns what it found and raises if it found a fault.

They run in a home and a workspace of their own, so the user's settings and files are neither used nor touched.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from lmagent import __version__
from lmagent.app.clock import SystemClock
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.servers.battery import Finding
from lmagent.app.wiring import open_registry
from lmagent.core.errors import LmagentError
from lmagent.core.sandbox import Exec
from lmagent.selftest.rehearsal import FILE, TEXT, Rehearsal, rehearse
from lmagent.store.jsonl import JsonlStore

PACKAGE = "lmagent-local"
SPACE = 500_000_000  # bytes that sessions, snapshots and a model's download should find
NEEDED = 50_000_000  # bytes that the checks themselves write
BUILT = 1_767_225_600  # 2026-01-01: the clock of a machine that says less is not set
PATIENCE = 60.0  # seconds for a check on a slow machine
_AGAIN = "install lmagent again"


class CheckFailed(Exception):
    """A check found a fault."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


class PartMissing(CheckFailed):
    """A part that is not needed is not there."""


class TestBed(Struct, frozen=True):
    """Where the checks run: an empty folder, and the rehearsal held there."""

    folder: Path
    rehearsal: Rehearsal


Check = Callable[[TestBed], Awaitable[str]]


async def run_checks(folder: Path, tell: Callable[[Finding], None]) -> None:
    """Run all checks in an empty folder, side by side; `tell` gets the findings in the order of the checks.

    Without a disk to write to, or a session, the others would all fail, each for a reason of its own.
    """
    workspace = folder / "work"
    try:
        if (free := shutil.disk_usage(folder).free) < NEEDED:
            text = f"only {free / 1e6:.0f} MB are free on the disk of temporary files, so nothing else was checked"
            return tell(Finding("disk", "fault", text, CHECKS["disk"][1]))
        workspace.mkdir()
        bed = TestBed(workspace, await rehearse(workspace))
    except (LmagentError, OSError) as failure:
        return tell(Finding("loop", "fault", f"a session cannot be held: {failure}", _AGAIN))
    waiting, found = [*CHECKS], dict[str, Finding]()

    async def run(name: str) -> None:
        check, fix = CHECKS[name]
        found[name] = await _finding(name, check, fix, bed)
        while waiting and waiting[0] in found:
            tell(found[waiting.pop(0)])

    async with anyio.create_task_group() as tasks:
        for name in CHECKS:
            tasks.start_soon(run, name)
    return None


async def _finding(name: str, check: Check, fix: str, bed: TestBed) -> Finding:
    try:
        with anyio.fail_after(PATIENCE):
            return Finding(name, "ok", await check(bed))
    except PartMissing as missing:
        return Finding(name, "warning", str(missing), missing.fix or fix)
    except CheckFailed as broken:
        return Finding(name, "fault", str(broken), broken.fix or fix)
    except LmagentError as failure:
        return Finding(name, "fault", failure.message, failure.typed or fix)
    except TimeoutError:
        return Finding(name, "fault", f"no answer within {PATIENCE:.0f} seconds", fix)
    except Exception as error:  # noqa: BLE001 - a fault of any kind is a finding
        return Finding(name, "fault", f"{type(error).__name__}: {error}", fix)


# --- the machine ---


async def _installation(_: TestBed) -> str:
    needed = [
        re.split(r"[ ;<>=!~\[]", line)[0]
        for line in importlib.metadata.requires(PACKAGE) or ()
        if "extra ==" not in line
    ]
    missing: list[str] = []
    for name in needed:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise CheckFailed(f"packages are missing: {', '.join(missing)}")
    return f"lmagent {__version__} with {len(needed)} packages on Python {sys.version.split()[0]}"


async def _clock(_: TestBed) -> str:
    if time.time() < BUILT:
        raise CheckFailed(f"the clock says {time.strftime('%Y-%m-%d')}")
    before = time.monotonic()
    await anyio.sleep(0.02)
    if not 0.01 < time.monotonic() - before < PATIENCE:
        raise CheckFailed("the clock does not run evenly")
    return time.strftime("%Y-%m-%d %H:%M %Z")


async def _disk(bed: TestBed) -> str:
    free = shutil.disk_usage(bed.folder).free
    if free < SPACE:
        raise PartMissing(f"{free / 1e6:.0f} MB are free on the disk of temporary files")
    return f"{free / 1e9:.0f} GB are free"


async def _locks(bed: TestBed) -> str:
    """Two processes: the second must be refused while the first has the lock, and get it afterwards."""
    from lmagent.store.lock import locked

    path = bed.folder / "locks" / "lock"
    script = f"import pathlib; from lmagent.store.lock import hold; hold(pathlib.Path({str(path)!r}), 'test').release()"

    async def other() -> int:
        command = [sys.executable, "-P", "-c", script]
        return (await anyio.run_process(command, check=False, stderr=subprocess.DEVNULL)).returncode

    with locked(path, "it is held"):
        if await other() == 0:
            raise CheckFailed("two processes can hold one lock")
    if await other() != 0:
        raise CheckFailed("a lock stays after its owner has let go")
    return "a second process waits for the first"


# --- a session ---


async def _loop(bed: TestBed) -> str:
    worked = bed.rehearsal.worked
    if worked is None or worked.outcome != "done":
        raise CheckFailed(
            f"a turn did not end as it should: {worked.reason or worked.outcome if worked else 'it did not run'}"
        )
    return f"a turn with {len(bed.rehearsal.results)} calls"


async def _unicode(bed: TestBed) -> str:
    if bed.rehearsal.written != TEXT.encode():
        raise CheckFailed(f"the text of {FILE} is not the one written")
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        raise CheckFailed(f"names of files are {sys.getfilesystemencoding()}", "set LANG=C.UTF-8")
    return f"{FILE} holds its text"


async def _permissions(bed: TestBed) -> str:
    refused = bed.rehearsal.refused
    if refused is None or refused.ending != "denied":
        raise CheckFailed("a call that needs a user ran without one")
    return "a call that needs a user did not run"


async def _search(bed: TestBed) -> str:
    if "שלום" not in bed.rehearsal.result("grep"):
        raise CheckFailed("grep does not find a text that is there")
    return "grep finds a text"


async def _text_calls(bed: TestBed) -> str:
    if "東京" not in bed.rehearsal.result("read"):
        raise CheckFailed("a call that a model writes as text is not run")
    return "a call that a model wrote as text ran"


async def _undo(bed: TestBed) -> str:
    if not bed.rehearsal.undone:
        raise CheckFailed("undo did not take a new file back")
    return "a new file was taken back"


async def _store(bed: TestBed) -> str:
    """The log must be on the disk, and survive the torn line that a crash leaves."""
    sessions, name = bed.folder / ".lmagent" / "sessions", bed.rehearsal.session
    with open(sessions / name / "events.jsonl", "ab") as log:
        log.write(b'{"type":"turn.fin')
    store = JsonlStore(sessions, SystemClock())
    store.open(name).close()
    stored = [event.id for event in store.read(name)]
    if stored[-len(bed.rehearsal.events) :] != bed.rehearsal.events:
        raise CheckFailed("a session's log does not hold what happened")
    return f"{len(stored)} events, after a torn line too"


# --- features ---


async def _memory(bed: TestBed) -> str:
    loaded = load_settings(HostOptions(bed.folder))
    from lmagent.memory.opening import open_memories

    memories = open_memories(bed.folder, loaded.settings, SystemClock())
    try:
        memories.scopes["workspace"].store("The staging server is called heron.", by="user")
        found = memories.search("staging server", 3)
    finally:
        memories.close()
    if not any("heron" in hit.hit.text for hit in found):
        raise CheckFailed("a fact that was stored is not found")
    return "a fact was stored and found"


async def _sandbox(bed: TestBed) -> str:
    registry = open_registry(load_settings(HostOptions(bed.folder)))
    try:
        sandbox = await registry.confined.get()
        running = await sandbox.start(Exec(("sh", "-c", "echo inside >made"), timeout=20), lambda _stream, _piece: None)
        if (await running.wait()).code != 0 or (bed.folder / "made").read_text() != "inside\n":
            raise CheckFailed("a command in the sandbox cannot write in the workspace")
        report = registry.confined.report
        assert report is not None
        if broken := [f"{promise.name} ({promise.detail})" for promise in report.promises if not promise.kept]:
            raise PartMissing(
                f"{report.backend} does not keep: {', '.join(broken)}", "lmagent sandbox probe shows more"
            )
        return f"{report.backend} held against {len(report.promises)} attacks"
    finally:
        await registry.aclose()


async def _page(bed: TestBed) -> str:
    """The gateway must answer those who have its token, and no others."""
    folder = bed.folder / "page"
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "lmagent", "web"]
    token = await _printed([*command, "token"], folder, "the page's token cannot be made")
    process = await anyio.open_process([*command, "--port", "0", "--no-browser"], cwd=folder)
    try:
        assert process.stdout is not None
        printed = ""
        while (address := re.search(r"http://127\.0\.0\.1:\d+(?=\s)", printed)) is None:
            printed += (await process.stdout.receive()).decode()
        page, _ = await _get(address[0])
        known, status = await _get(f"{address[0]}/api/status", {"Authorization": f"Bearer {token}"})
        stranger, _ = await _get(f"{address[0]}/api/status")
    finally:
        process.terminate()
        await process.wait()
        await process.aclose()
    if (page, known, stranger) != (200, 200, 401):
        raise CheckFailed(f"the page answered {page}, the API {known} with its token and {stranger} without")
    return f"the page and its API answer ({len(json.loads(status))} facts)"


async def _get(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get() -> tuple[int, bytes]:
        try:
            with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code, b""

    return await anyio.to_thread.run_sync(get)


async def _engine(bed: TestBed) -> str:
    from lmagent.modelserver.engine.devices import ask_engine

    engine = await anyio.to_thread.run_sync(ask_engine)
    if engine.problem:
        raise PartMissing(engine.problem, engine.fix)
    folder = bed.folder / "engine"
    folder.mkdir()
    task = [sys.executable, "-P", "-m", "lmagent", "demo", "-w", str(folder), "Write milk and bread to shopping.txt"]
    printed = await _printed(task, folder, "the tiny model did not do its task")
    if not (folder / "shopping.txt").exists():
        raise CheckFailed(f"the tiny model did not do its task: {_last(printed)}")
    return f"{engine.version} ran the tiny model"


async def _printed(command: list[str], folder: Path, otherwise: str) -> str:
    """Return the output of a program. Raise CheckFailed with its last line if it fails."""
    ran = await anyio.run_process(command, cwd=folder, check=False)
    if ran.returncode:
        raise CheckFailed(f"{otherwise}: {_last((ran.stdout + ran.stderr).decode('utf-8', 'replace'))}")
    return ran.stdout.decode("utf-8", "replace").strip()


def _last(printed: str) -> str:
    lines = printed.strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"


async def _offline(_: TestBed) -> str:
    from lmagent.offline.watch import ConnectionWatch

    def planted() -> list[str]:
        watch = ConnectionWatch()
        watch.start(
            ["sh", "-c", f"{sys.executable} -c \"import socket; socket.socket().connect_ex(('192.0.2.1', 9))\""]
        ).wait()
        watch.join(5)
        return [attempt.address for attempt in watch.attempts]

    try:
        seen = await anyio.to_thread.run_sync(planted)
    except LmagentError as refusal:
        raise PartMissing(refusal.message, refusal.typed) from refusal
    if seen != ["tcp 192.0.2.1:9"]:
        raise CheckFailed(f"a planted connection was not seen as it is: {seen}")
    return "a planted connection was seen and not let out"


CHECKS: dict[str, tuple[Check, str]] = {
    "installation": (_installation, _AGAIN),
    "clock": (_clock, "set the machine's clock"),
    "disk": (_disk, "free some space, or set TMPDIR to a disk that has it"),
    "locks": (_locks, "use a file system with locks: not all network drives have them"),
    "loop": (_loop, _AGAIN),
    "Unicode": (_unicode, "use a file system that takes all names"),
    "permissions": (_permissions, _AGAIN),
    "search": (_search, _AGAIN),
    "text calls": (_text_calls, _AGAIN),
    "undo": (_undo, _AGAIN),
    "store": (_store, "use another file system: this one loses data"),
    "memory": (_memory, "install a Python whose sqlite3 has FTS5"),
    "sandbox": (_sandbox, "lmagent sandbox probe names the missing part"),
    "page": (_page, "let lmagent listen on 127.0.0.1"),
    "engine": (_engine, _AGAIN),
    "prove-offline": (_offline, "lmagent prove-offline needs Linux 5.9 or newer"),
}
"""The checks by name, in their order, with what to do about a fault."""
