"""The script that runs a command inside, and reports at its end the shell's folder and exported variables.

The carried variables come as arguments and are exported only after the shell has started: none of them, such as an
invalid PATH, can keep the shell from starting. The report goes to the private channel: the numbers of the jobs that
still run, the shell's logical folder, the real folder, and `export -p`; a NUL after each.

A command must not be able to spoil the report or its own exit code. So the report is made in a command substitution,
which has no effect on the shell: POSIX mode finds `unset`, `set`, `export` and other special builtins before functions
of those names, and no variable is used that could be readonly. Functions are parsed before an alias can exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MARK = "lmagent"
"""Our own value of POSIXLY_CORRECT, which is no export, for shells that export all assignments."""

KEEP = 'eval "$1"; eval " $__lmagent_command"'
END = f'{KEEP}; {{ __lmagent_end "$?"; }} >/dev/null 2>&1 && {{ :; }} >/dev/null 2>&1'
"""The end of bash's input: on one line, so that line numbers in its messages are those of the command. The second part
reports again, since the command may have a trap on EXIT of its own; a list with && keeps its code, even with set -e."""

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
    \export -p; \builtin printf "\0"
  }} >&'"$LMAGENT_CHANNEL"'
) in *) \return "$1" ;; esac; }}'
unset LMAGENT_CHANNEL
builtin trap '{{ __lmagent_end "$?"; }} >/dev/null 2>&1' EXIT
__lmagent_keep() {{
  case $BASH_SUBSHELL in 0) ;; *) return 0 ;; esac
  eval "set -- $(builtin trap -p EXIT)"
  case ${{3-}} in *__lmagent_end*) return 0 ;; esac
  builtin trap -- "{{ __lmagent_end \"\$?\"; }} >/dev/null 2>&1 && {{ :; }} >/dev/null 2>&1
${{3-}}" EXIT
}}
if [ "$2" = keep ]; then trap() {{ builtin trap "$@" || return; {{ __lmagent_keep; }} 2>/dev/null; }}; fi
__lmagent_left=$3; shift 3
while [ "$__lmagent_left" -gt 0 ]; do export "$1" 2>/dev/null; shift; __lmagent_left=$((__lmagent_left - 1)); done
__lmagent_ifs=$IFS; IFS=; __lmagent_command=$*; IFS=$__lmagent_ifs
unset __lmagent_left __lmagent_ifs; set --
"""
"""Run by bash; its arguments: this, whether traps are to be kept, the number of exports, the exports, and the command
(in pieces, since one argument may have 128 KiB only)."""

PLAIN = r"""
c=${LMAGENT_CHANNEL-}
case $c in
'' | ?) ;;
*) if (exec 9>&"$c") 2>/dev/null; then exec 9>&"$c"; c=9
   elif command -v python3 >/dev/null 2>&1; then exec python3 -I -S -c '
import os, sys
os.dup2(int(os.environ["LMAGENT_CHANNEL"]), 9)
os.environ["LMAGENT_CHANNEL"] = "9"
os.execv("/bin/sh", ["sh", "-c", sys.argv[1], "sh", *sys.argv[1:]])' "$@"
   else c=; fi ;;
esac
unset LMAGENT_CHANNEL
if [ -n "$c" ]; then
  eval '__lmagent_end() { (
    set +efuvx; unset -f command
    { command printf "\0"; command pwd -L; command printf "\0"; command pwd -P; command printf "\0"
      export -p; command printf "\0"; } >&'"$c"'
  ); return "$1"; }'
else __lmagent_end() { return "$1"; }; fi
trap '{ __lmagent_end "$?"; exit "$?"; } >/dev/null 2>&1' EXIT
left=$3; shift 3
while [ "$left" -gt 0 ]; do export "$1"; shift; left=$((left - 1)); done
ifs=$IFS; IFS=; __lmagent_command=$*; IFS=$ifs
unset c left ifs; set --
eval " $__lmagent_command"
{ __lmagent_end "$?"; } >/dev/null 2>&1 || exit "$?"
"""
"""The same for a shell other than bash, with itself as the first argument. dash accepts one-digit descriptors only,
which the channel's rarely is, and cannot move it there by itself."""

START = r"""
run=$1 script=$2 plain=$3; shift 3
if bash=$(command -v bash); then exec "$bash" -c "$run" bash "$script" "$@"; fi
exec /bin/sh -c "$plain" sh "$plain" "$@"
"""
"""Run by sh: executes bash if there is one, on the PATH that every command begins with."""

_PIECE = 25_000
"""Characters, of at most four bytes."""

_TRAP = re.compile(r"\btrap\b")
_SCOPED = re.compile(r"\b(?:ERR|DEBUG|RETURN)\b", re.IGNORECASE)

_ENTRY = re.compile(
    rb"""(?:declare\ -[A-Za-z]+|export)\ ([A-Za-z_][A-Za-z0-9_]*)
    (?:=((?:'[^']*+'|"(?:[^"\\]++|\\.)*+"|\$'(?:[^'\\]++|\\.)*+'|\\.|[^\s'"\\])*+))?\n""",
    re.DOTALL | re.VERBOSE,
)
_PART = re.compile(
    rb"""'([^']*+)'|"((?:[^"\\]++|\\.)*+)"|\$'((?:[^'\\]++|\\.)*+)'|\\(.)|([^'"\\$]++|\$)""", re.DOTALL | re.VERBOSE
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def command_line(command: str, exports: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the program and arguments that run a command and report its end.

    The names of `exports`, variables besides the sandbox's own, have to be identifiers.
    """
    keep = _keeps_traps(command)
    given = [f"{name}={value}" for name, value in (exports or {}).items()]
    pieces = [command[at : at + _PIECE] for at in range(0, len(command), _PIECE)] or [""]
    return (
        "/bin/sh",
        "-c",
        START,
        "sh",
        KEEP if keep else END,
        SCRIPT,
        PLAIN,
        "keep" if keep else "",
        str(len(given)),
        *given,
        *pieces,
    )


def _keeps_traps(command: str) -> bool:
    """Return whether `trap` has to be a function that adds the report to a trap on EXIT.

    bash undoes a function's changes to the traps on ERR, DEBUG and RETURN when it returns: a command with one of those
    keeps the builtin, and reports only if it gets to its end.
    """
    return _TRAP.search(command) is not None and _SCOPED.search(command) is None


def exported(listing: bytes) -> dict[bytes, bytes]:
    """Return the variables that `export -p` lists, of bash, dash or busybox."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(listing):
        entry = _ENTRY.match(listing, at)
        if entry is None:  # an array: it cannot be passed to a program
            at = listing.find(b"\n", at) + 1 or len(listing)
            continue
        if entry[2] is not None:
            found[entry[1]] = b"".join(map(_part, _PART.finditer(entry[2])))
        at = entry.end()
    return found


def _part(quoted: re.Match[bytes]) -> bytes:
    single, double, escaped, char, bare = quoted.groups()
    if double is not None:
        return re.sub(rb"\\([\\\"$`])", rb"\1", double)
    if escaped is not None:
        return _ESCAPE.sub(_unescaped, escaped)
    return next(text for text in (single, char, bare) if text is not None)


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes([int(found[1], 8) & 0xFF])
    return bytes([_LETTERS.get(found[2][0], found[2][0])])
