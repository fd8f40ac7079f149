"""Chooses the sandbox that this machine can provide, tested by an attack; never falls back to none silently.

auto         bubblewrap, else docker, else refuse (macOS: docker, else sandbox-exec)
bubblewrap, docker, landlock
             that backend, or refuse; landlock is degraded, so `auto` never chooses it
off          no sandbox, by flag or the user's own configuration only
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Limits, Sandbox, SandboxReport
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest, toolchains
from lmagent.sandbox.git.guard import GitGuard, Protected
from lmagent.sandbox.git.guarded import Guarded
from lmagent.sandbox.landlock import Landlock
from lmagent.sandbox.seatbelt import Seatbelt
from lmagent.sandbox.unconfined import Unconfined


async def choose(workspace: Path, request: SandboxRequest) -> tuple[Sandbox, SandboxReport]:
    """Return the first sandbox that works, guarded, and its report; raises SandboxError."""
    refused: list[SandboxReport] = []
    for sandbox in _candidates(workspace, request):
        report = await sandbox.probe()
        if report.works:
            return sandbox, report
        refused.append(report)
        await sandbox.aclose()
    why = "; ".join(f"{report.backend}: {report.reason}" for report in refused)
    fix = next((report.fix for report in refused if report.fix), "lmagent sandbox probe shows more")
    raise SandboxError(f"there is no sandbox here, so no command is run ({why})", fix=fix)


def alike(workspace: Path, request: SandboxRequest, backend: str) -> Sandbox:
    """Return another sandbox of a backend that was chosen before, without a probe; raises SandboxError."""
    if request.write and backend not in ("bubblewrap", "off"):
        raise SandboxError(
            f"only bubblewrap can give a program a folder to write, and the sandbox here is {backend}",
            fix="install bubblewrap, or leave :rw out",
        )
    named: Any = "auto" if backend == "seatbelt" else backend
    for sandbox in reversed(list(_candidates(workspace, replace(request, backend=named)))):
        return sandbox  # the last one: on macOS, `auto` tries docker before sandbox-exec
    raise SandboxError(f"the sandbox {backend} cannot be used here", fix="lmagent sandbox probe shows more")


async def reports(workspace: Path, request: SandboxRequest) -> list[SandboxReport]:
    """Return the reports in the order in which the candidates are tried."""
    found: list[SandboxReport] = []
    for sandbox in _candidates(workspace, request):
        found.append(await sandbox.probe())
        await sandbox.aclose()
    return found


def _candidates(workspace: Path, request: SandboxRequest) -> Iterator[Sandbox]:
    wanted, env, limits, guard = request.backend, request.env, request.limited(Limits()), GitGuard(workspace)
    if wanted == "off":
        yield Guarded(Unconfined(workspace, env, limits), guard)
        return
    read, shut = toolchains(Path(env.get("HOME", os.sep)), request.read), partial(_protected, workspace, request.fixed)
    if wanted in ("auto", "bubblewrap") and sys.platform == "linux":
        yield Guarded(
            Bubblewrap(workspace, replace(request, read=read, protected=shut(guard))),
            guard,
        )
    if request.own:
        if wanted not in ("auto", "bubblewrap"):
            where = ", ".join(map(str, request.own))
            raise SandboxError(
                f"the workspace holds lmagent's own files ({where}), which only bubblewrap can cover",
                fix="work in another folder: lmagent --workspace DIR",
            )
        return
    if wanted in ("auto", "docker"):
        from lmagent.sandbox.docker import ROOT, Docker

        inner = GitGuard(workspace, inside=ROOT)
        yield Guarded(Docker(workspace, replace(request, protected=shut(inner))), inner)
    if wanted == "auto" and sys.platform == "darwin":
        yield Guarded(Seatbelt(workspace, env, limits, read, shut(guard)), guard)
    if wanted == "landlock":
        yield Guarded(Landlock(workspace, env, limits, read), guard)


def _protected(workspace: Path, fixed: Sequence[Path], guard: GitGuard) -> Callable[[], Sequence[Protected]]:
    """Return what lists git's paths that commands must not change, and the fixed folders before them: those above a
    fixed one must not be moved either."""
    root, found = Path(os.path.realpath(workspace)), list[Protected]()
    for place in fixed:
        found += [Protected(root / above, writable=True) for above in reversed(place.parents[:-1])]
        found.append(Protected(root / place, writable=False))
    return lambda: (*found, *guard.protected())
