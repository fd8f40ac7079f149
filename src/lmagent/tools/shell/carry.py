"""The folder and the exported variables of a session's commands, carried from one to the next.

No shell process survives a command: every command runs in a sandbox of its own, and its shell reports at its end over
its private channel, each followed by a NUL: the numbers of the jobs that still run, the shell's logical folder, the
real folder, the variables as `env -0` lists them, and nothing.

The carried variables come as arguments and are exported only after the shell has started: none of them, such as an
invalid PATH, can keep the shell from starting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from lmagent.core.events import DurableEvent, ToolFinished
from lmagent.tools.sanitize import one_line

LIMIT = 64 << 10
"""Bytes of exported variables that are carried; with more, the earlier ones stay."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OWN = (
    *("LMAGENT_CHANNEL", "PWD", "OLDPWD", "SHLVL", "_", "BASH_EXECUTION_STRING"),
    *("IFS", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "BASHPID", "UID", "EUID", "PPID"),
)
"""Variables that every shell sets for itself, and variables that change how ours reads its script."""

MARK = "lmagent"
"""Our own value of POSIXLY_CORRECT, which is no export, for shells that export all assignments."""

END = 'eval "$1"; eval " $__lmagent_command"; { __lmagent_end "$?"; } >/dev/null 2>&1 && { :; } >/dev/null 2>&1'
"""The end of bash's input: on one line, so that line numbers in its messages are those of the command. It reports
again, since the command may have replaced the trap on EXIT; a list with && keeps its code, even with set -e."""

SCRIPT = rf"""
eval '__lmagent_end() {{ case $(
  POSIXLY_CORRECT=${{POSIXLY_CORRECT-{MARK}}}
  \trap - DEBUG ERR RETURN
  \set +efuvx
  \unset -f builtin
  {{
    \builtin jobs -pr; \builtin printf "\0"
    \builtin pwd -L; \builtin printf "\0"
    \builtin pwd -P; \builtin printf "\0"
    /usr/bin/env -0; \builtin printf "\0"
  }} >&'"$LMAGENT_CHANNEL"'
) in *) \return "$1" ;; esac; }}'
unset LMAGENT_CHANNEL
builtin trap '{{ __lmagent_end "$?"; }} >/dev/null 2>&1' EXIT
__lmagent_left=$2; shift 2
while [ "$__lmagent_left" -gt 0 ]; do export "$1" 2>/dev/null; shift; __lmagent_left=$((__lmagent_left - 1)); done
__lmagent_ifs=$IFS; IFS=; __lmagent_command=$*; IFS=$__lmagent_ifs
unset __lmagent_left __lmagent_ifs; set --
"""
"""Run by bash; its arguments: this, the number of exports, the exports, and the command (in pieces, since one argument
may have 128 KiB only).

A command must not be able to spoil the report or its own exit code. So the report is made in a command substitution,
which has no effect on the shell: POSIX mode finds `unset`, `set` and other special builtins before functions of those
names, and no variable is used that could be readonly. Functions are parsed before an alias can exist."""

START = r"""
run=$1 script=$2; shift 2
if bash=$(command -v bash); then exec "$bash" -c "$run" bash "$script" "$@"; fi
shift "$(($1 + 1))"; IFS=; __lmagent_command=$*
unset IFS run script bash LMAGENT_CHANNEL; set --
eval " $__lmagent_command"
"""
"""Run by sh: executes bash if there is one, on the PATH that every command begins with; another shell carries nothing.
"""

_PIECE = 25_000
"""Characters, of at most four bytes."""


class ShellState(Struct):
    """The start of the next command; the folder is relative to the workspace.

    `lost` is whether variables were exported before the program was started anew: a log can come with a checkout, so
    it must not decide which programs a command runs.
    """

    cwd: str = "."
    exports: dict[str, str] = field(default_factory=dict[str, str])
    lost: bool = False

    @property
    def saved(self) -> dict[str, object]:
        """The part that the log keeps."""
        return {"cwd": self.cwd, "exports": len(self.exports)}


class Learned(Struct, frozen=True):
    """The content of a report.

    Attributes:
        left: background processes that were still running at the end.
        remarks: for the model: state that is not carried.
        heard: whether a report arrived.
    """

    left: int = 0
    remarks: tuple[str, ...] = ()
    heard: bool = False


def command_line(command: str, exports: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the program and arguments that run a command and report its end.

    The names of `exports`, variables besides the sandbox's own, have to be identifiers.
    """
    given = [f"{name}={value}" for name, value in (exports or {}).items()]
    pieces = [command[at : at + _PIECE] for at in range(0, len(command), _PIECE)] or [""]
    return ("/bin/sh", "-c", START, "sh", END, SCRIPT, str(len(given)), *given, *pieces)


def learn(state: ShellState, report: bytes, root: str, base: Mapping[str, str]) -> Learned:
    """Update the state from a command's report, which is empty if the command was killed before.

    Args:
        root: the workspace's path inside.
        base: the environment of the command without exports.
    """
    fields = report.split(b"\0")
    if len(fields) < 4:
        return Learned()
    logical, real = (os.fsdecode(part.removesuffix(b"\n")) for part in fields[1:3])
    entries = fields[3:]
    whole = entries[0] != b"" and b"" in entries[:-1]  # if it ends within the limit, and a program could list them
    remarks = [
        _move(state, logical, real, root),
        _take(state, entries[: entries.index(b"")], base)
        if whole
        else "the exported variables of this command are too long: the earlier ones were kept",
    ]
    return Learned(len(fields[0].split()), tuple(filter(None, remarks)), heard=True)


def _move(state: ShellState, logical: str, real: str, root: str) -> str:
    """Update the folder; return a remark if the next command cannot begin there."""
    inside = _relative(real, root)
    # The shell's logical folder, if that is in the workspace too: `cd ..` depends on it.
    folder = inside and (_relative(logical, root) or inside)
    if folder and _is_text(folder):
        state.cwd = folder
        return ""
    why = "is outside the workspace, or not UTF-8"
    return f"the folder {one_line(real)} {why}: the next command begins in {one_line(state.cwd)}" if real else ""


def _take(state: ShellState, entries: Iterable[bytes], base: Mapping[str, str]) -> str:
    """Update the variables; return a remark about those that cannot be carried."""
    found = {name: value for name, _, value in (os.fsdecode(entry).partition("=") for entry in entries)}
    if found.get("POSIXLY_CORRECT") == MARK:
        del found["POSIXLY_CORRECT"]
    changed = {name: value for name, value in found.items() if _is_carried(name) and base.get(name, "\0") != value}
    size = sum(len(os.fsencode(name + value)) for name, value in changed.items())
    if size > LIMIT:
        return (
            f"the exported variables of this command were not carried over: {len(changed)} with {size} bytes, at most "
            f"{LIMIT} can be; the earlier ones were kept. Put them into a file to source"
        )
    state.exports = {name: value for name, value in changed.items() if _is_text(value)}
    lost = [name for name in changed if name not in state.exports]
    return f"not carried over, since not UTF-8: {one_line(', '.join(lost))}" if lost else ""


def restore(events: Iterable[DurableEvent]) -> ShellState:
    """Return the state at the end of a session's log."""
    state = ShellState()
    for event in events:
        match event:
            case ToolFinished(data={"shell": {"cwd": str(cwd), **saved}}):
                state = ShellState(cwd, lost=bool(saved.get("exports")))
            case _:
                pass
    return state


def settle(state: ShellState, workspace: Path) -> list[str]:
    """Begin at the top if the folder is gone, or leads out of the workspace by now; return remarks on the loss."""
    remarks = list[str]()
    if state.lost:
        state.lost = False
        remarks.append("lmagent was started anew: the variables that earlier commands exported are gone")
    folder = Path(os.path.normpath(workspace / state.cwd))
    try:
        real = Path(os.path.realpath(folder))
        good = folder.is_relative_to(workspace) and real.is_relative_to(workspace)
        good = good and folder.is_dir() and os.access(folder, os.X_OK)
    except (OSError, ValueError):  # replaced during the look; or no path at all, from a log
        good = False
    if not good:
        left, state.cwd = state.cwd, "."
        remarks.append(
            f"the folder {one_line(left)} is not there any more, or outside the workspace: the command began in ."
        )
    return remarks


def _is_carried(name: str) -> bool:
    """Return whether a variable is carried. Functions are not: they could change the meaning of later commands."""
    return _NAME.fullmatch(name) is not None and name not in _OWN and not name.startswith("BASH_FUNC_")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _relative(path: str, root: str) -> str | None:
    """Return the folder relative to the workspace; None if it is outside, where the next command cannot begin."""
    for top in (root, os.path.realpath(root)):
        if path == top:
            return "."
        if path.startswith(f"{top}/"):
            return path.removeprefix(f"{top}/")
    return None
