"""The folder and the exported variables of a session's commands, carried from one to the next.

No shell process survives a command: every command runs in a sandbox of its own, and reports its folder and exports at
its end, over its private channel. So the state survives a crash of the command, and a restart of the program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from lmagent.core.events import DurableEvent, ToolFinished
from lmagent.tools.sanitize import one_line

__all__ = ["MOST", "Learned", "ShellState", "learn", "restore", "settle"]

LIMIT = 64 << 10
"""Bytes of exported variables that are carried on; with more, the earlier ones stay."""

MOST = 500
"""Exported variables that are carried on: all are arguments of a program, whose number is limited."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OWN = (
    *("LMAGENT_CHANNEL", "PWD", "OLDPWD", "SHLVL", "_", "BASH_EXECUTION_STRING"),
    *("IFS", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "BASHPID", "UID", "EUID", "PPID"),
)
"""Variables that every shell sets for itself, and variables that change how ours reads its script."""


class ShellState(Struct):
    """The start of the next command; the folder is relative to the workspace."""

    cwd: str = "."
    exports: dict[str, str] = field(default_factory=dict[str, str])


class Learned(Struct, frozen=True):
    """The content of a report.

    Attributes:
        left: background processes that were still running at the end.
        remarks: for the model: state that is not carried on.
        heard: whether a report arrived.
    """

    left: int = 0
    remarks: tuple[str, ...] = ()
    heard: bool = False


def learn(state: ShellState, report: bytes, root: str, base: Mapping[str, str]) -> Learned:
    """Update the state from a command's report, which is empty if the command was killed before.

    Args:
        root: the workspace's path inside.
        base: the environment of the command without exports.
    """
    from lmagent.tools.shell_script import exported

    fields = report.split(b"\0", 4)  # the rest is a second report, with the same content
    if len(fields) < 4:
        return Learned()
    logical, real = (os.fsdecode(part.removesuffix(b"\n")) for part in fields[1:3])
    remarks = [_move(state, logical, real, root)]
    # Without its end, the report exceeds the limit.
    remarks.append(_take(state, exported(fields[3]) if len(fields) > 4 else None, base))
    return Learned(len(fields[0].split()), tuple(filter(None, remarks)), heard=True)


def _move(state: ShellState, logical: str, real: str, root: str) -> str:
    """Update the folder; return a remark if the next command cannot begin there."""
    inside = _relative(real, root)
    if inside is None:
        why = "is outside the workspace"
    else:
        # The shell's logical folder, if that is in the workspace too: `cd ..` depends on it.
        folder = _relative(logical, root) or inside
        if _is_text(folder):
            state.cwd = folder
            return ""
        why = "has a name that is not UTF-8"
    return f"the folder {one_line(real)} {why}: the next command begins in {one_line(state.cwd)}" if real else ""


def _take(state: ShellState, found: Mapping[bytes, bytes] | None, base: Mapping[str, str]) -> str:
    """Update the variables; return a remark about those that cannot be carried on."""
    from lmagent.tools.shell_script import MARK

    if found is None:
        return "the exported variables of this command are too long: the earlier ones were kept"
    names = {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()}
    changed = {name: value for name, value in names.items() if _is_carried(name) and base.get(name, "\0") != value}
    if changed.get("POSIXLY_CORRECT") == MARK:
        del changed["POSIXLY_CORRECT"]
    if len(changed) > MOST or _size(changed) > LIMIT:
        return (
            f"the exported variables of this command were not carried over: {len(changed)} with {_size(changed)} "
            f"bytes, at most {MOST} with {LIMIT} can be; the earlier ones were kept. Put them into a file to source"
        )
    state.exports = {name: value for name, value in changed.items() if _is_text(value)}
    lost = [name for name in changed if name not in state.exports]
    return f"not carried over, since not UTF-8: {one_line(', '.join(lost))}" if lost else ""


_DANGEROUS = (
    r"(?:PATH|\w+PATH|LD_\w+|DYLD_\w+|BASH\w*|ENV|IFS|PS[0-4]|GIT_\w+|PYTHON\w*|NODE_\w+|PERL\w*|RUBY\w*|GEM_\w+|JAVA\w*"
    r"|_JAVA\w*|JDK_\w+|MAVEN_\w+|GRADLE_\w+|GO\w+|CGO_\w+|CARGO\w*|RUST(?!_BACKTRACE)\w*|CC|CXX|CPP|LD|AR|AS|MAKE\w*|SHELL\w*"
    r"|\w*(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|CMD|OPTS|OPTIONS|FLAGS|PLUGINS|PRELOAD|CONFIG\w*|OPEN|CLOSE)"
    r"|HOME|\w+_HOME|XDG_\w+|TMPDIR|LESS\w*|MAN\w*|NPM_\w+|YARN_\w+|PNPM_\w+|PIP_\w+|UV_\w+|VIRTUAL_ENV|PYTEST_\w+|TAR_\w+"
    r"|SSH_\w+|RSYNC_\w+|DOCKER_\w+|TERMINFO\w*|LOCPATH|GCONV_PATH|MALLOC_\w+|GLIBC_\w+|NLSPATH|HOSTALIASES|\w*PROXY"
    r"|PROMPT\w*|HIST\w+|INPUTRC|GLOBIGNORE|CDPATH|FPATH|ZDOTDIR|KRB5\w*|OPENSSL\w*|SSL\w*|CURL_\w+|WGET\w*|LUA_\w+"
    r"|PHP\w*|DOTNET_\w+|CORECLR_\w+|COR_\w+|ELECTRON_\w+|QT_\w+|GTK_\w+|GIO_\w+)"
)  # fmt: skip
"""Variables that change which programs a program runs. Text, not compiled: few sessions are resumed."""


def restore(events: Iterable[DurableEvent]) -> ShellState:
    """Return the state at the end of a session's log."""
    state = ShellState()
    for event in events:
        if isinstance(event, ToolFinished) and isinstance(saved := event.data.get("shell"), dict):
            cwd, exports = saved.get("cwd"), saved.get("exports")  # type: ignore[reportUnknownVariableType]
            if isinstance(cwd, str) and isinstance(exports, dict):
                state = ShellState(cwd, {str(name): str(value) for name, value in exports.items()})  # type: ignore[reportUnknownVariableType]
    if state.exports:
        state.exports = _harmless(state.exports)
    return state


def settle(state: ShellState, workspace: Path) -> str:
    """Begin at the top if the folder is gone, or leads out of the workspace by now; return a remark then."""
    folder = Path(os.path.normpath(workspace / state.cwd))
    try:
        real = Path(os.path.realpath(folder))
        good = folder.is_relative_to(workspace) and real.is_relative_to(workspace)
        good = good and folder.is_dir() and os.access(folder, os.X_OK)
    except (OSError, ValueError):  # replaced during the look; or no path at all, from a log
        good = False
    if good:
        return ""
    left, state.cwd = state.cwd, "."
    return f"the folder {one_line(left)} is not there any more, or outside the workspace: the command began in ."


def _harmless(exports: Mapping[str, str]) -> dict[str, str]:
    """Drop variables that decide which programs approved commands run: a log can come with a checkout."""
    kept = {
        name: value
        for name, value in exports.items()
        if _is_carried(name) and re.fullmatch(_DANGEROUS, name, re.IGNORECASE) is None
    }
    bad = len(kept) > MOST or _size(kept) > LIMIT or any("\0" in value for value in kept.values())
    return {} if bad else kept


def _is_carried(name: str) -> bool:
    """Return whether a variable is carried on. Functions are not: they could change the meaning of later commands."""
    return _NAME.fullmatch(name) is not None and name not in _OWN and not name.startswith("BASH_FUNC_")


def _is_text(value: str) -> bool:
    """Return whether it can be recorded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size(exports: Mapping[str, str]) -> int:
    return sum(len(f"{name}{value}".encode("utf-8", "surrogateescape")) for name, value in exports.items())


def _relative(path: str, root: str) -> str | None:
    """Return the folder relative to the workspace; None if it is outside, where the next command cannot begin."""
    for top in (root, os.path.realpath(root)):
        if path == top:
            return "."
        if path.startswith(f"{top}/"):
            return path.removeprefix(f"{top}/")
    return None
