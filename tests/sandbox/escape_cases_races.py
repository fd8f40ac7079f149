"""Escapes by races: a command that still runs changes names while the host looks at them."""

from __future__ import annotations

import contextlib
import os

import anyio
import anyio.lowlevel
from escape_kit import TRIED, Case, Ground, bash, python, run

from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Exec, Sandbox
from lmagent.tools.beneath import Beneath

_SWAP = """
def swap(a, b): return libc.renameat2(-100, a.encode(), -100, b.encode(), 2)  # RENAME_EXCHANGE
end = time.time() + 12
"""

_FOLDER_AND_LINK = (
    _SWAP
    + """
os.makedirs("d", exist_ok=True); open("d/canary", "w").write("inside"); os.symlink(E["OUT"], "l")
while time.time() < end: swap("d", "l")
"""
)

_FILE_AND_LINK = (
    _SWAP
    + """
open("f", "w").write("inside"); os.symlink(E["CANARY"], "l")
while time.time() < end: swap("f", "l")
"""
)

_GIT_AND_LINK = (
    _SWAP
    + """
for n in range(6): os.symlink("../next-door", f"link{n}")
while time.time() < end:
    for n in range(6): swap(f"repo{n}", f"link{n}")
    time.sleep(0.003)
"""
)

_OURS_AND_LINK = (
    _SWAP
    + """
os.makedirs(".lmagent", exist_ok=True); os.symlink("..", "link")
while time.time() < end:
    swap(".lmagent", "link"); time.sleep(0.003)
"""
)


@contextlib.asynccontextmanager
async def _meanwhile(ground: Ground, sandbox: Sandbox, script: str):
    """A background command swaps names."""
    cwd = os.path.relpath(ground.here, sandbox.workspace)
    command = Exec(python(script), cwd=cwd, env=ground.env, timeout=12)
    running = await sandbox.start(command, lambda *_: None)
    async with anyio.create_task_group() as group:
        group.start_soon(running.wait)
        await anyio.sleep(0.4)
        try:
            yield
        finally:
            running.kill()


async def _tools_read(ground: Ground, sandbox: Sandbox, script: str, name: str) -> str:
    """The file tools read and write where names change."""
    read = ""
    async with _meanwhile(ground, sandbox, script):
        with Beneath(ground.here) as files:
            until = anyio.current_time() + 1.5
            while anyio.current_time() < until and not read:
                with contextlib.suppress(ToolError):
                    read = "the secret" * (ground.secret.encode() in files.read_bytes(name))
                with contextlib.suppress(ToolError):
                    files.write_atomic(name, b"written by a tool")
                await anyio.lowlevel.checkpoint()
    return f"a file tool read {read}" if read else ""


async def _folder(ground: Ground, sandbox: Sandbox) -> str:
    return await _tools_read(ground, sandbox, _FOLDER_AND_LINK, "d/canary")


async def _file(ground: Ground, sandbox: Sandbox) -> str:
    return await _tools_read(ground, sandbox, _FILE_AND_LINK, "f")


async def _listing(ground: Ground, sandbox: Sandbox) -> str:
    (ground.outside / "named-outside").touch()
    ground.note()
    seen: list[str] = []
    async with _meanwhile(ground, sandbox, _FOLDER_AND_LINK):
        with Beneath(ground.here) as files:
            for _ in range(300):
                with contextlib.suppress(ToolError):
                    seen += [entry.path for entry in files.listdir("d")]
                with contextlib.suppress(ToolError):
                    files.mkdir("d/made")
                await anyio.lowlevel.checkpoint()
    return "a listing showed what is outside" if any("outside" in name for name in seen) else ""


async def _commands(ground: Ground, sandbox: Sandbox, script: str, attack: str, tries: int, cwd: str = ".") -> str:
    """Other commands start meanwhile, and look whether the mounts went astray."""
    async with _meanwhile(ground, sandbox, script):
        for _ in range(tries):
            with contextlib.suppress(SandboxError):  # it saw that something moved, and ran nothing
                folder = os.path.relpath(ground.here / cwd, sandbox.workspace)
                ran = await run(ground, sandbox, bash(attack), 10, cwd=folder)
                if how := ground.tripped(ran):
                    return how
    return ""


def _repositories(ground: Ground) -> None:
    """The user's, beside the workspace and in it: their .git folders are mounted in every command."""
    for folder in (ground.ws.parent / "next-door", *(ground.here / f"repo{n}" for n in range(6))):
        for part in ("objects", "refs/heads"):
            (folder / ".git" / part).mkdir(parents=True, exist_ok=True)
        (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (ground.ws.parent / "next-door/.git/config").write_text(f"[x]\n\ty = {ground.secret}\n")


async def _git(ground: Ground, sandbox: Sandbox) -> str:
    attack = "cat ../next-door/.git/config */.git/config"
    ran = await run(ground, sandbox, bash(f"{attack}; echo {TRIED}"))
    if TRIED not in ran.text:
        raise RuntimeError("commands are not even run while nothing moves")
    return ground.tripped(ran) or await _commands(ground, sandbox, _GIT_AND_LINK, attack, 30)


async def _ours(ground: Ground, sandbox: Sandbox) -> str:
    (ground.ws.parent / "beside").write_text(ground.secret)
    return await _commands(ground, sandbox, _OURS_AND_LINK, "cat ../beside .lmagent/beside", 15)


async def _cwd(ground: Ground, sandbox: Sandbox) -> str:
    return await _commands(ground, sandbox, _FOLDER_AND_LINK, "cat canary; echo x >new", 15, cwd="d")


def _case(name: str, act, **more) -> Case:
    return Case(f"race-{name}", "races", "python", act=act, own=True, **more)


CASES = (
    _case("folder-under-the-file-tools", _folder, control="held"),
    _case("file-under-the-file-tools", _file, control="held"),
    _case("folder-under-a-listing", _listing, control="held"),
    _case("folder-of-the-next-command", _cwd),
    _case(
        "git-folder-of-the-next-command",
        _git,
        alone=True,
        control="skip",
        before=_repositories,
    ),
    _case("lmagent-folder-of-the-next-command", _ours, control="skip"),
)
