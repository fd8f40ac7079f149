"""Abuse by special files: what a command leaves in the workspace must not stop, fool or blow up the host's tools."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import anyio
from escape_kit import Case, Ground, python, run

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Sandbox
from lmagent.sandbox.git.guard import GitGuard
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line

SECONDS = 20.0


def _tools(ground: Ground, name: str, *, refused: bool) -> str:
    """Read, write, list and look at a name with every tool that there is."""
    told: list[str] = []
    with Beneath(ground.here) as files:
        for act in (
            lambda: files.read_bytes(name, 1 << 20),
            lambda: files.stat(name) and None,
            lambda: files.listdir("."),
            lambda: files.write_atomic(name, b"x"),
        ):
            try:
                found = act()
                if isinstance(found, bytes) and (ground.secret.encode() in found or refused):
                    return f"it was read: {found[:40]!r}"
            except ToolError as error:
                told.append(error.message)
    if refused and len(told) < 2:
        return f"it was not refused: {told}"
    if any(re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) for text in told):
        return f"a message has control characters: {told}"
    guard = GitGuard(ground.here)
    guard.check(guard.baseline())
    guard.protected()
    return ""


def _left(name: str, script: str, file: str = "x", look: Callable[..., str] | None = None, **more) -> Case:
    """A case in which a command leaves a file, and the host's tools meet it."""
    refused = more.pop("refused", True)

    async def act(ground: Ground, sandbox: Sandbox) -> str:
        await run(ground, sandbox, python(script))
        began, how = time.monotonic(), "the host's tools hang"
        with anyio.move_on_after(SECONDS):
            meet = look or (lambda g: _tools(g, file, refused=refused))
            how = await anyio.to_thread.run_sync(meet, ground, abandon_on_cancel=True)
        return how if how or time.monotonic() - began < SECONDS else "the host's tools were slow"

    return Case(f"special-{name}", "special", "python", act=act, control="held", **more)


def _names(ground: Ground) -> str:
    with Beneath(ground.here) as files:
        shown = [one_line(entry.path) for entry in files.listdir(".")]
    bad = [name for name in shown if re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", name)]
    return f"names with orders in them are shown: {bad}" if bad or len(shown) < 5 else ""


CASES = (
    _left("fifo", "os.mkfifo('x')"),
    _left("fifo-with-writer", "os.mkfifo('x'); os.open('x', os.O_RDWR)"),
    _left("socket", "s = socket.socket(socket.AF_UNIX); s.bind('x')"),
    _left("link-to-device", "os.symlink('/dev/zero', 'x')"),
    _left("link-to-proc", "os.symlink('/proc/self/environ', 'x')"),
    _left("link-out", "os.symlink(E['CANARY'], 'x')"),
    _left("link-out-by-dots", "os.symlink(E['RELATIVE'], 'x')"),
    _left("folder-link-out", "os.symlink(E['OUT'], 'd')", "d/canary"),
    _left("link-loop", "os.symlink('y', 'x'); os.symlink('x', 'y')"),
    _left(
        "names",
        r"""
        for n in ('a\nb', 'c\x1b]0;t\x07', 'd\u202ee', '-rf', ' ', '\x9b2J', b'\xff\xfe'): open(n, 'w')
        """,
        look=_names,
    ),
    _left("deep", "for _ in range(600):\n    os.mkdir('d' * 200); os.chdir('d' * 200)", refused=False),
    _left("wide", "for n in range(20000): open(f'w{n}', 'w').close()", refused=False, own=True),
    _left("sparse-terabyte", "os.truncate(os.open('x', os.O_CREAT | os.O_WRONLY), 1 << 29)", refused=False),
    _left("no-permission", "os.mkdir('x'); os.chmod('x', 0)", refused=False),
)
