"""Shell state: the folder and the exported variables of a session's commands, carried from one to the next.

There is no shell that lives on: every command runs in a sandbox of its own, and reports at its end where it is and what
it exports, over its private channel. That survives a crash of the command, and a restart of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from lmagent.core.events import DurableEvent, ToolFinished

LIMIT = 64 << 10
"""Bytes of exported variables that are carried on; with more, the earlier ones stay."""

_OWN = ("LMAGENT_CHANNEL", "PWD", "OLDPWD", "SHLVL", "_", "BASH_EXECUTION_STRING")

SCRIPT = r"""
__lmagent=$LMAGENT_CHANNEL; unset LMAGENT_CHANNEL
__lmagent_end() {
  { printf '%s\0' "$(jobs -pr | wc -l)" "$PWD"
    for n in $(compgen -e); do printf '%s\0%s\0' "$n" "${!n}"; done; } >&"$__lmagent"; } 2>/dev/null
trap __lmagent_end EXIT
IFS= ; __lmagent_command=$*; unset IFS; set --
eval "$__lmagent_command"
"""
"""Run by bash with the command as its arguments (in pieces, since one may have 128 KiB only)."""

PLAIN = r"""
c=$LMAGENT_CHANNEL; unset LMAGENT_CHANNEL
trap '{ printf "0\0%s\0" "$PWD"; env -0 | tr "\n=" "\n\000"; } >&"$c" 2>/dev/null' EXIT
IFS= ; command=$*; unset IFS; set --
eval "$command"
"""

START = (
    'if command -v bash >/dev/null 2>&1; then s=$1; shift 2; exec bash -c "$s" bash "$@"; fi; s=$2; shift 2; eval "$s"'
)
"""Run by sh: hands over to bash where there is one."""

_PIECE = 100_000


class ShellState(Struct):
    """Where the next command begins.

    Attributes:
        cwd: folder, relative to the workspace.
        exports: variables that commands have set.
    """

    cwd: str = "."
    exports: dict[str, str] = field(default_factory=dict[str, str])


def command_line(command: str) -> tuple[str, ...]:
    """The program and arguments that run a command and report its end."""
    pieces = [command[at : at + _PIECE // 4] for at in range(0, len(command), _PIECE // 4)] or [""]
    return ("/bin/sh", "-c", START, "sh", SCRIPT, PLAIN, *pieces)


def learn(state: ShellState, report: bytes, root: str, base: Mapping[str, str]) -> int:
    """Take over what a command reported at its end; returns how many of its background processes were still running.

    Args:
        state: changed in place.
        report: what came over the channel; empty when the command did not live to report.
        root: the workspace's path inside.
        base: the environment that it was given without exports.
    """
    fields = report.decode("utf-8", "surrogateescape").split("\0")
    if len(fields) < 3:
        return 0
    if (folder := _relative(fields[1], root)) is not None:
        state.cwd = folder
    names = dict(zip(fields[2::2], fields[3::2], strict=False))
    changed = {name: value for name, value in names.items() if _is_carried(name) and base.get(name, "\0") != value}
    if sum(len(name) + len(value) for name, value in changed.items()) <= LIMIT:
        state.exports = changed
    return int(fields[0]) if fields[0].strip().isdigit() else 0


def _is_carried(name: str) -> bool:
    """Functions are not: a later command would not be what its words say."""
    return bool(name) and name not in _OWN and not name.startswith("BASH_FUNC_")


def restore(events: Iterable[DurableEvent]) -> ShellState:
    """The state that a session's log ends with."""
    state = ShellState()
    for event in events:
        if isinstance(event, ToolFinished) and isinstance(saved := event.data.get("shell"), dict):
            cwd, exports = saved.get("cwd"), saved.get("exports")  # type: ignore[reportUnknownVariableType]
            if isinstance(cwd, str) and isinstance(exports, dict):
                state = ShellState(cwd, {str(name): str(value) for name, value in exports.items()})  # type: ignore[reportUnknownVariableType]
    if state.exports:
        state.exports = _harmless(state.exports)
    return state


def _harmless(exports: Mapping[str, str]) -> dict[str, str]:
    """A log can come with a checkout: its variables must not decide what approved commands run."""
    from lmagent.engine.shellline.patterns import is_dangerous  # only a session that goes on pays for it

    return {name: value for name, value in exports.items() if _is_carried(name) and not is_dangerous(name)}


def _relative(path: str, root: str) -> str | None:
    """The folder relative to the workspace; None when it is outside, where the next command cannot begin."""
    if path == root:
        return "."
    return path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else None
