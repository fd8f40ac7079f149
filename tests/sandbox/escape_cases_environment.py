"""Escapes by the environment: the host's must not come in, and a command's must not reach the host's programs."""

from __future__ import annotations

import shutil

from escape_kit import KEY, Case, Ground, run

from lmagent.core.sandbox import Exec, Limits, Sandbox
from lmagent.tools.shell.carry import ShellState, command_line, learn


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"environment-{name}", "environment", "sh", script, **{"control": "held", **more})


def _case(name: str, act, **more) -> Case:
    return Case(f"environment-{name}", "environment", "c", act=act, **more)


def _exported(*names: str, value: str, library: str = "preload.so"):
    """A command is run with a variable that another exported."""

    async def act(ground: Ground, sandbox: Sandbox) -> str:
        if library != "preload.so":
            shutil.copy(ground.here / "preload.so", ground.here / library)
        told = value.replace("HERE", str(ground.here))
        await run(ground, sandbox, ("/bin/true",), env=dict.fromkeys(names, told))
        return ""

    return act


async def _before_the_limits(ground: Ground, sandbox: Sandbox) -> str:
    ran = await run(ground, sandbox, ("/bin/true",), env={"LD_PRELOAD": str(ground.here / "preload.so"), "LIMITS": "1"})
    return ground.tripped(ran)


async def _carried(ground: Ground, sandbox: Sandbox) -> str:
    """As the shell tool has it: what one command exports, the next one begins with."""
    state, report = ShellState(), bytearray()
    command = command_line('export LD_PRELOAD="$PWD/preload.so" LD_AUDIT="$PWD/preload.so"')

    def take(stream: str, piece: bytes) -> None:
        if stream == "channel":
            report.extend(piece)

    running = await sandbox.start(Exec(command, env=ground.env, channel=True), take)
    await running.wait()
    learn(state, bytes(report), sandbox.root, sandbox.environment)
    await run(ground, sandbox, command_line("true"), env=state.exports)
    return ""


async def _path(ground: Ground, sandbox: Sandbox) -> str:
    """Programs of the workspace under the names of those that make the sandbox."""
    for name in ("bwrap", "sh", "docker", "prlimit", "true"):
        program = ground.here / name
        program.write_text('#!/bin/bash\n: >"$OUT/pwned"\n')
        program.chmod(0o755)
    ground.note()
    await run(ground, sandbox, ("true",), env={"PATH": f"{ground.here}:.:/usr/bin:/bin"})
    return ""


async def _functions(ground: Ground, sandbox: Sandbox) -> str:
    evil = '() { : >"$OUT/pwned"; }'
    names = ("exec", "echo", "set", "true", "[", "n")
    script = ground.here / "evil.sh"
    script.write_text('echo >"$OUT/pwned"')
    env = {f"BASH_FUNC_{name}%%": evil for name in names} | dict.fromkeys(("BASH_ENV", "ENV"), str(script))
    await run(ground, sandbox, ("/bin/true",), env=env)
    return ""


_NAMES = """
names='BASH_ENV|ENV|PYTHONPATH|PYTHONSTARTUP|LD_|GIT_(SSH|DIR|EXT|CONFIG)'
names="$names|PERL5LIB|NODE_OPTIONS|RUBYOPT|SSH_|DBUS|DISPLAY|XDG"
env | grep -E "^($names)" && echo ESCAPED
"""

CASES = (
    _sh("hosts-variables", _NAMES),
    _sh("hosts-key", f'env; echo "${{{KEY}}}"; python3 -c "import os; print(os.environ)"; git var -l 2>&1'),
    _sh("hosts-bash-env", 'bash -c "env"; bash -ic "env" 2>&1; bash -lc "env"; sh -lc env'),
    _sh("hosts-python-path", 'python3 -c "import sys; print(sys.path, sys.flags)"; python3 -m site'),
    _case("ld-preload", _exported("LD_PRELOAD", value="HERE/preload.so"), own=True),
    _case("ld-preload-before-the-limits", _before_the_limits, own=True, limits=Limits(1024, 64), control="skip"),
    _case("ld-audit", _exported("LD_AUDIT", value="HERE/preload.so"), own=True),
    _case(
        "ld-library-path", _exported("LD_LIBRARY_PATH", value="HERE", library="libcap.so.2"), own=True, control="held"
    ),
    _case(
        "gconv",
        _exported("GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES", "MALLOC_CHECK_", value="HERE"),
        own=True,
        control="held",
    ),
    _case("exported-by-a-command", _carried, own=True),
    _case("path", _path, own=True, control="held"),
    _case("functions", _functions, own=True, control="held"),
)
