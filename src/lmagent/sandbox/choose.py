"""Chooses the sandbox that this machine can provide, tested by an attack; never falls back to none silently.

auto         bubblewrap, else docker, else refuse (macOS: docker, else sandbox-exec)
bubblewrap, docker, landlock
             that backend, or refuse; landlock is degraded, so `auto` never chooses it
off          no sandbox, by flag or the user's own configuration only
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Limits, Sandbox, SandboxReport
from lmagent.sandbox.environment import toolchains
from lmagent.sandbox.git.guard import GitGuard
from lmagent.sandbox.guarded import Guarded

Wanted = Literal["off", "landlock", "auto", "docker", "bubblewrap"]


class Wishes(Struct, frozen=True):
    """The user's options for a sandbox.

    Attributes:
        memory_mb: MiB; 0 is the backend's own limit, as for `pids`.
        read: more folders that are readable inside.
        own: this program's own folders and files, relative to the workspace: they are hidden.
        scratch: folder for the /tmp and home of each session; None for new ones with each command.
    """

    backend: Wanted = "auto"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    memory_mb: int = 0
    pids: int = 0
    read: tuple[Path, ...] = ()
    image: str = "lmagent-sandbox"
    network: str = "none"
    own: tuple[Path, ...] = ()
    scratch: Path | None = None


async def choose(workspace: Path, wishes: Wishes) -> tuple[Sandbox, SandboxReport]:
    """Return the first sandbox that works, guarded, and its report.

    Raises:
        SandboxError: none works; the text gives the reason for each, and a fix.
    """
    reports: list[SandboxReport] = []
    guard = GitGuard(workspace)
    for sandbox in _candidates(workspace, wishes, guard):
        report = await sandbox.probe()
        if report.works:
            return Guarded(sandbox, guard if sandbox.root == str(workspace) else None), report
        reports.append(report)
        await sandbox.aclose()
    raise refusal(reports)


async def reports(workspace: Path, wishes: Wishes) -> list[SandboxReport]:
    """Return the reports in the order in which the candidates are tried."""
    found: list[SandboxReport] = []
    for sandbox in _candidates(workspace, wishes, GitGuard(workspace)):
        found.append(await sandbox.probe())
        await sandbox.aclose()
    return found


def refusal(reports: list[SandboxReport]) -> SandboxError:
    why = "; ".join(f"{report.backend}: {report.reason}" for report in reports)
    fix = next((report.fix for report in reports if report.fix), "lmagent sandbox probe shows more")
    return SandboxError(f"there is no sandbox here, so no command is run ({why})", fix=fix)


def _candidates(workspace: Path, wishes: Wishes, guard: GitGuard) -> Iterator[Sandbox]:
    if wishes.backend == "off":
        from lmagent.sandbox.unconfined import Unconfined

        yield Unconfined(workspace, wishes.env, _limited(Limits(), wishes))
        return
    read = toolchains(Path(wishes.env.get("HOME", os.sep)), wishes.read)
    if wishes.backend in ("auto", "bubblewrap") and sys.platform == "linux":
        from lmagent.sandbox.bubblewrap import Bubblewrap, BubblewrapOptions
        from lmagent.sandbox.scratch import Scratch

        limits = _limited(Limits(), wishes)
        scratch = Scratch(wishes.scratch) if wishes.scratch is not None else None
        options = BubblewrapOptions(
            wishes.env, limits, read, protected=guard.protected, own=wishes.own, scratch=scratch
        )
        yield Bubblewrap(workspace, options)
    if wishes.own:
        if wishes.backend not in ("auto", "bubblewrap"):
            where = ", ".join(map(str, wishes.own))
            raise SandboxError(
                f"the workspace holds lmagent's own files ({where}), which only bubblewrap can cover",
                fix="work in another folder: lmagent --workspace DIR",
            )
        return
    if wishes.backend in ("auto", "docker"):
        yield _docker(workspace, wishes)
    if wishes.backend == "auto" and sys.platform == "darwin":
        from lmagent.sandbox.seatbelt import Seatbelt, SeatbeltOptions

        limits = _limited(Limits(), wishes)
        yield Seatbelt(workspace, SeatbeltOptions(wishes.env, limits, read, guard.protected))
    if wishes.backend == "landlock":
        from lmagent.sandbox.landlock import Landlock, LandlockOptions

        yield Landlock(workspace, LandlockOptions(wishes.env, _limited(Limits(), wishes), read, degraded=True))


def _docker(workspace: Path, wishes: Wishes) -> Sandbox:
    from lmagent.sandbox import docker

    options = docker.DockerOptions(
        env=wishes.env,
        image=wishes.image,
        limits=_limited(docker.LIMITS, wishes),
        network=wishes.network,
        read=wishes.read,
    )
    return docker.Docker(workspace, options)


def _limited(own: Limits, wishes: Wishes) -> Limits:
    return replace(own, memory_mb=wishes.memory_mb or own.memory_mb, pids=wishes.pids or own.pids)
