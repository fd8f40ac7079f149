"""The environment of commands: their variables, their folder, and the programs of this machine.

Almost no variable of this process is passed on, so that no key can leak.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits

if TYPE_CHECKING:
    from lmagent.sandbox.git.guard import Protected

HOME = "/home/agent"
"""The home folder inside: empty at the beginning of every command."""

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

ALLOWED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "TZ")
"""Variables that are passed on if they are set."""

TOOLCHAINS = (
    *(".pyenv/versions", ".local/share/uv/python", ".local/share/uv/tools", ".rustup/toolchains", ".cargo/bin"),
    *(".nvm/versions", ".volta/tools", ".asdf/installs", ".local/share/mise/installs", ".sdkman/candidates", "go/bin"),
)
"""Folders under the home folder that hold installed programs and no secrets; they are readable inside."""

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SYSTEM_TOOLCHAINS = ("/opt", "/nix/store", "/home/linuxbrew/.linuxbrew", "/snap")


class SandboxRequest(Struct, frozen=True):
    """The options of a sandbox.

    Attributes:
        env: environment of this process, of which little is passed on.
        limits: None is the backend's own; `memory_mb` (MiB) and `pids` change these, unless they are 0.
        read: more folders that are readable inside, at their own paths.
        write: more folders that are writable inside, at their own paths; only bubblewrap can do that.
        image: of docker; it must have a python3.
        network: of docker; on any docker network but `none`, all of its hosts can be reached.
        own: this program's own folders and files, relative to the workspace: they are hidden.
        fixed: folders, relative to the workspace, that commands must not change: Landlock cannot keep that.
        scratch: folder for the /tmp and home of each session; None for new ones with each command.
        group: whether control groups are used where that is possible.
        protected: git's paths that commands must not change, from the guard's latest look; None looks again.
    """

    backend: Literal["off", "landlock", "auto", "docker", "bubblewrap"] = "auto"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits | None = None
    memory_mb: int = 0
    pids: int = 0
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    image: str = "lmagent-sandbox"
    network: str = "none"
    own: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    scratch: Path | None = None
    group: bool = True
    protected: Callable[[], Sequence[Protected]] | None = None

    def limited(self, own: Limits) -> Limits:
        """Return the limits, which are `own` of the backend if no others are set."""
        memory, pids = self.memory_mb or own.memory_mb, self.pids or own.pids
        return self.limits or replace(own, memory_mb=memory, pids=pids)


def toolchains(home: Path, extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the paths outside /usr that are readable inside: those of version managers, and the additions."""
    usual = [*(home / name for name in TOOLCHAINS), *map(Path, SYSTEM_TOOLCHAINS)]
    return tuple(dict.fromkeys(path for path in (*usual, *extra) if path.is_absolute() and path.exists()))


def base_environment(env: Mapping[str, str], visible: Iterable[Path], *, home: str = HOME) -> dict[str, str]:
    """Return the environment of every command; entries of PATH in `visible` folders are kept, in their order."""
    roots = [str(path) for path in visible]
    kept = [
        entry
        for entry in env.get("PATH", "").split(os.pathsep)
        if entry not in SYSTEM_PATH and any(entry == root or entry.startswith(f"{root}/") for root in roots)
    ]
    passed = {name: env[name] for name in ALLOWED if env.get(name)}
    return {
        "LANG": "C.UTF-8",
        **passed,
        "PATH": ":".join((*kept, *SYSTEM_PATH)),
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",
        "LMAGENT_SANDBOX": "1",
    }


def with_home(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for lmagent itself in a home of its own: no setting, key or file of the user is used."""
    kept = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")
    return {**{name: env[name] for name in kept if name in env}, "HOME": str(home)}


def accounts() -> dict[str, str]:
    """Return the files inside that name this user, by their path in the root folder."""
    uid, gid = os.getuid(), os.getgid()
    return {
        "etc/passwd": f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        "etc/group": f"agent:x:{gid}:\nnogroup:x:65534:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def inside(workspace: Path, command: Exec) -> Path:
    """Return the folder of a command; raises SandboxError."""
    if any("\0" in text for text in (*command.argv, *command.env, *command.env.values())) or not command.argv:
        raise SandboxError("the command has a NUL in it, or is empty; nothing was run")
    if workspace == Path(workspace.anchor):
        raise SandboxError("the workspace is the whole file system; nothing was run", fix="choose a folder in it")
    folder = Path(os.path.normpath(workspace / command.cwd))
    try:
        real = Path(os.path.realpath(folder))
    except OSError as error:  # another command moves the folder during the look
        raise SandboxError(
            f"the folder {command.cwd!r} cannot be looked at: {error.strerror}; nothing was run"
        ) from None
    if not folder.is_relative_to(workspace) or not real.is_relative_to(workspace):
        raise SandboxError(f"the folder {command.cwd!r} is outside the workspace; nothing was run")
    if not folder.is_dir():
        raise SandboxError(f"the folder {command.cwd!r} does not exist; nothing was run")
    return folder


def find_program(name: str, env: Mapping[str, str], workspace: Path) -> str | None:
    """Return the path of a program on PATH, never one in the workspace, where the agent could have put it."""
    for entry in env.get("PATH", os.defpath).split(os.pathsep):
        path = Path(entry, name)
        if not path.is_absolute() or path.is_relative_to(workspace) or path.resolve().is_relative_to(workspace):
            continue
        if os.access(path, os.X_OK) and path.is_file():
            return str(path)
    return None


def find_browser(configured: str, env: Mapping[str, str], workspace: Path) -> str:
    """Return the path of the configured Chromium, or of one on this machine; empty without one."""
    if configured:
        path = Path(configured).expanduser()
        return str(path) if path.is_absolute() and os.access(path, os.X_OK) and path.is_file() else ""
    on_path = (find_program(name, env, workspace) for name in BROWSERS)
    return next(filter(None, on_path), None) or next(_downloaded(env), "")


def _downloaded(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the browsers that playwright has downloaded, the newest first."""
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", os.sep), ".cache")) / "ms-playwright"
    for pattern in ("chromium*/chrome-*/*headless?shell", "chromium*/chrome-*/chrome"):
        yield from (str(path) for path in sorted(cache.glob(pattern), reverse=True) if os.access(path, os.X_OK))
