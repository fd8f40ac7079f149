"""Runs cases of the suite against one backend, as the user that this process is: python escape_run.py PLAN RESULT

A process of its own, so that it can be another user's, and that a case which hurts the agent hurts this one only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
from escape_cases import CASES
from escape_kit import KEY, TRIED, Case, Ground, Outcome, Ran, Unavailable, run

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits, Sandbox
from lmagent.sandbox.git.guard import GitGuard
from lmagent.sandbox.git.guarded import Guarded

AT_ONCE = 4
HOST_ONLY = ("BASH_ENV", "ENV", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "LD_LIBRARY_PATH", "GIT_SSH_COMMAND")
HOST_ONLY += ("GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "PROMPT_COMMAND", "PERL5LIB", "NODE_OPTIONS", "RUBYOPT")


class Plan(msgspec.Struct):
    """What to run.

    Attributes:
        backend: `bubblewrap`, `docker` or `off`.
        cases: their ids.
        scratch: folder for everything.
        programs: compiled C programs.
        key: the secret in the agent's environment.
        engine: environment in which docker works.
    """

    backend: str
    cases: list[str]
    scratch: str
    programs: str
    key: str
    engine: dict[str, str] = {}


def sandbox_for(plan: Plan, workspace: Path, limits: Limits | None) -> Sandbox:
    """The backend as the product has it: guarded, told the agent's environment."""
    told = {**os.environ, KEY: plan.key, "http_proxy": f"http://user:{plan.key}@192.0.2.1:3128"}
    told |= {"HOME": str(Path(plan.scratch) / "home")}
    if plan.backend == "off":
        from lmagent.sandbox.unconfined import Unconfined

        return Unconfined(workspace, told)  # no guard either: it shows what happens to somebody without any of this
    told |= dict.fromkeys(HOST_ONLY, plan.key)
    if plan.backend == "docker":
        from docker_kit import IMAGE

        from lmagent.sandbox.docker import Docker
        from lmagent.sandbox.environment import SandboxRequest

        engine = {**plan.engine, KEY: plan.key, "http_proxy": told["http_proxy"]}
        guard = GitGuard(workspace, inside="/workspace")
        options = SandboxRequest(
            env=engine, image=IMAGE, limits=limits or Limits(1024, 200, 2), protected=guard.protected
        )
        return Guarded(Docker(workspace, options), guard)
    from lmagent.sandbox.bubblewrap import Bubblewrap
    from lmagent.sandbox.environment import SandboxRequest

    guard = GitGuard(workspace)
    return Guarded(Bubblewrap(workspace, SandboxRequest(env=told, limits=limits, protected=guard.protected)), guard)


@contextlib.asynccontextmanager
async def opened(plan: Plan, workspace: Path, limits: Limits | None = None) -> AsyncIterator[Sandbox]:
    workspace.mkdir(parents=True, exist_ok=True)
    sandbox = sandbox_for(plan, workspace, limits)
    try:
        yield sandbox
    finally:
        await sandbox.aclose()


async def play(plan: Plan, case: Case, shared: Sandbox) -> Outcome:
    """One case, to its outcome."""
    began = time.monotonic()
    scratch = Path(plan.scratch)
    own = scratch / "own" / case.id
    ground: Ground | None = None
    try:
        ground = Ground(scratch / "grounds", own if case.own else shared.workspace, case, plan.key)
        if case.own:
            async with opened(plan, own, case.limits) as sandbox:
                outcome = await _attempt(plan, case, ground, sandbox)
        else:
            outcome = await _attempt(plan, case, ground, shared)
    except Unavailable as why:
        outcome = Outcome(case.id, "skipped", str(why))
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        outcome = Outcome(case.id, "broken", traceback.format_exc()[-1500:])
    finally:
        if ground is not None:
            ground.close()
            shutil.rmtree(ground.elsewhere, ignore_errors=True)
    outcome.seconds = round(time.monotonic() - began, 2)
    return outcome


async def _attempt(plan: Plan, case: Case, ground: Ground, sandbox: Sandbox) -> Outcome:
    for program in Path(plan.programs).iterdir():
        shutil.copy(program, ground.here)
    if case.before is not None:
        await anyio.to_thread.run_sync(case.before, ground)
    ground.note()
    ran, how = Ran(), ""
    if case.act is not None:
        how = await case.act(ground, sandbox)
    else:
        try:
            ran = await run(ground, sandbox, case.argv, case.timeout)
        except SandboxError as error:  # it broke its own sandbox, which is a way to end
            if case.ends:
                raise
            ran.raw = str(error).encode()
    if not how and case.proof is not None:
        how = await anyio.to_thread.run_sync(case.proof, ground, ran)
    how = how or ground.tripped(ran)
    if how:
        return Outcome(case.id, "escaped", how)
    if case.ends and case.act is None and TRIED not in ran.text:
        return Outcome(case.id, "broken", f"it did not come to its end ({ran.end}): {ran.text[-800:]}")
    return Outcome(case.id, "held", ran.text[-300:])


async def play_all(plan: Plan) -> list[Outcome]:
    """All cases: those that bear company together, the others one by one."""
    outcomes: list[Outcome] = []
    cases = [CASES[name] for name in plan.cases]
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(case: Case, shared: Sandbox) -> None:
        async with limiter:
            outcomes.append(await play(plan, case, shared))

    async with opened(plan, Path(plan.scratch) / "ws") as shared:
        async with anyio.create_task_group() as group:
            for case in cases:
                if not case.alone:
                    group.start_soon(one, case, shared)
        for case in cases:
            if case.alone:
                await one(case, shared)
    return outcomes


def prepare(plan: Plan) -> None:
    """What the agent's user has: keys at home, an open file that children could inherit."""
    home = Path(plan.scratch) / "home"
    files = (".ssh/id_rsa", ".aws/credentials", ".config/lmagent/.env", ".git-credentials", ".netrc", ".bash_history")
    for name in (*files, ".docker/config.json", ".gnupg/private-keys-v1.d/key", ".kube/config", ".pgpass"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"https://user:{plan.key}@example.com\n")
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file {home}/.git-credentials\n")
    os.set_inheritable(os.open(home / ".netrc", os.O_RDONLY), True)
    os.environ[KEY] = plan.key


async def beat(plan: Plan) -> None:
    """Start what the kill of this process must end; see the case of the agent that is killed."""
    async with opened(plan, Path(plan.scratch) / "ws") as sandbox:
        script = "(setsid bash -c 'for i in {1..240}; do date +%N >beat; sleep 0.05; done' &); sleep 15"
        running = await sandbox.start(Exec(("/bin/bash", "-c", script)), lambda *_: None)
        await running.wait()


def main() -> None:
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    if sys.argv[2] == "beat":
        anyio.run(beat, plan)
        return
    prepare(plan)
    os.environ["ESCAPE_PLAN"] = sys.argv[1]
    outcomes = anyio.run(play_all, plan)
    Path(sys.argv[2]).write_text(json.dumps([msgspec.to_builtins(outcome) for outcome in outcomes]))
    os._exit(0)  # a file tool that hangs in a thread is a finding, and must not keep this process


if __name__ == "__main__":
    main()
