"""Measures: each takes the lab and how often, runs lmagent and the bare loop in turns, and gives figures and bars."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab import TASK, Lab, Run, agent_command, agent_env
from scripted import bench_script

from lmagent.testing import ScriptedServer
from lmagent.testing.prefix import canonical, common_prefix

Figures = dict[str, Any]
median = statistics.median
BENCH = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Bar:
    """What a figure must keep: at most, or at least, `limit`."""

    figure: str
    limit: float
    at_least: bool = False

    def holds(self, figures: Mapping[str, Any]) -> bool:
        value = figures[self.figure]
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Measure:
    """A measure with its bars."""

    run: Callable[[Lab, bool], Figures]
    bars: tuple[Bar, ...]


def start(lab: Lab, quick: bool) -> Figures:
    """Spawn to first model request, lmagent and the floor in turns."""
    server = lab.server("--steps", "0")
    for _ in range(2):  # warm: byte code written, files in the page cache
        lab.agent(server)
        lab.floor(server)
    pairs = [(lab.agent(server), lab.floor(server)) for _ in range(5 if quick else 21)]
    ours, floor = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "start_ms": _ms(run.start_ms for run in ours),
        "floor_start_ms": _ms(run.start_ms for run in floor),
        "start_ratio": round(median(a.start_ms / b.start_ms for a, b in pairs), 3),
        "start_cpu_ms": _ms(run.cpu * 1000 for run in ours),
        "floor_cpu_ms": _ms(run.cpu * 1000 for run in floor),
        "oneshot_ms": _ms((run.exited - run.spawned) * 1000 for run in ours),
        "exit_tail_ms": _ms((run.exited - run.chats[-1]["t_end"]) * 1000 for run in ours),
        "rss_mb": _mb(ours),
        "floor_rss_mb": _mb(floor),
        **_extras(ours, expected=1),
    }


def step(lab: Lab, quick: bool) -> Figures:
    """End of an answer with a read call to the next model request."""
    steps = 10 if quick else 30
    server = lab.server("--steps", str(steps))
    pairs = [(lab.agent(server), lab.floor(server)) for _ in range(2 if quick else 5)]
    ours = [gap for run, _ in pairs for gap in run.gaps_ms]
    floor = [gap for _, run in pairs for gap in run.gaps_ms]
    cpu = median((run.cpu - bare.cpu) * 1000 / steps for run, bare in pairs)
    return {
        "step_ms": round(median(ours), 2),
        "step_p95_ms": round(statistics.quantiles(ours, n=20)[-1], 2),
        "floor_step_ms": round(median(floor), 2),
        "step_ratio": round(median(ours) / median(floor), 2),
        "step_cpu_over_floor_ms": round(cpu, 2),
        "step_rss_mb": _mb([run for run, _ in pairs]),
        **_extras([run for run, _ in pairs], expected=steps + 1),
    }


def growth(lab: Lab, quick: bool) -> Figures:
    """How a step's cost grows over a conversation."""
    steps = 60 if quick else 200
    server = lab.server("--steps", str(steps))
    ours, floor = lab.agent(server), lab.floor(server)
    return {
        "growth": _growth(ours),
        "floor_growth": _growth(floor),
        "growth_steps": len(ours.gaps_ms),
        "growth_first_ms": round(median(ours.gaps_ms[:20]), 2),
        "growth_last_ms": round(median(ours.gaps_ms[-20:]), 2),
        "growth_prefix_min": min(row["prefix"]["ratio"] for row in ours.chats[1:]),
        "growth_rss_mb": _mb([ours]),
        "growth_last_body_bytes": ours.chats[-1]["body_bytes"],
    }


def prompt(lab: Lab, quick: bool) -> Figures:
    """Size of the fixed block: system text and tools, in tokens (bytes / 4)."""
    row = lab.agent(lab.server("--steps", "0")).chats[0]
    return {
        "prompt_tokens": (row["system_bytes"] + row["tools_bytes"]) // 4,
        "system_bytes": row["system_bytes"],
        "tools_bytes": row["tools_bytes"],
        "tools": row["tools"],
        "first_body_bytes": row["body_bytes"],
    }


def prefix(lab: Lab, quick: bool) -> Figures:
    """What a server's prompt cache can reuse: from step to step, over a resume, and from session to session."""
    steps = 4

    def go(server: ScriptedServer, task: str, *more: str) -> list[bytes]:
        seen = len(server.chats)
        command, env = agent_command(lab.workspace, task), agent_env(lab.home, server.base_url)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*command, *more], env=env, check=True, timeout=lab.timeout, **quiet)
        return [canonical(received.body) for received in server.chats[seen:]]

    with ScriptedServer(bench_script(steps), strict=True) as server:
        first = go(server, TASK)
        later = go(server, "Thank you. Was there anything about snow?", "--continue")
        other = go(server, TASK)
    chain = [*first, *later]
    return {
        "prefix_min": min(_share(sooner, further) for sooner, further in pairwise(chain)),
        "prefix_resume": _share(first[-1], later[0]),
        "prefix_sessions": _share(first[0], other[0]),
        "prefix_requests": len(chain) + len(other),
        "strict_objections": len(server.objections),
    }


def stream(lab: Lab, quick: bool) -> Figures:
    """CPU per streamed delta of 8 characters, output to a file."""
    words = 1000 if quick else 4000
    short = lab.server("--steps", "0")
    long = lab.server("--steps", "0", "--final-words", str(words), "--chunk", "8")
    rounds = [(lab.agent(short), lab.agent(long), lab.floor(short), lab.floor(long)) for _ in range(3 if quick else 7)]
    ours = [(long_run.cpu - short_run.cpu) * 1e6 / words for short_run, long_run, _, _ in rounds]
    floor = [(long_run.cpu - short_run.cpu) * 1e6 / words for _, _, short_run, long_run in rounds]
    return {
        "delta_cpu_us": round(median(ours), 1),
        "floor_delta_cpu_us": round(median(floor), 1),
        "deltas": words,
        "stream_rss_mb": _mb([long_run for _, long_run, _, _ in rounds]),
    }


MEASURES: dict[str, Measure] = {
    "start": Measure(
        start, (Bar("start_ratio", 1.25), Bar("rss_mb", 60), Bar("extra_calls", 0), Bar("extra_connections", 0))
    ),
    "step": Measure(step, (Bar("step_ratio", 2.0), Bar("step_rss_mb", 60), Bar("extra_calls", 0))),
    "growth": Measure(growth, (Bar("growth", 1.3), Bar("growth_prefix_min", 1.0, at_least=True))),
    "prompt": Measure(prompt, (Bar("prompt_tokens", 2500),)),
    "prefix": Measure(
        prefix,
        (
            Bar("prefix_min", 1.0, at_least=True),
            Bar("prefix_resume", 1.0, at_least=True),
            Bar("prefix_sessions", 1.0, at_least=True),
            Bar("strict_objections", 0),
        ),
    ),
    "stream": Measure(stream, (Bar("delta_cpu_us", 30),)),
}

SUITES = (
    *("edits", "compaction", "crash", "undo", "sandbox", "textcalls", "slots", "constrained"),
    *(
        "relay",
        "modelserver",
        "demo",
        "subagents",
        "planning",
        "honesty",
        "facts",
        "schedule",
        "web",
        "gateway",
        "behaviours",
        "pages",
        "memory",
        "knowledge",
        "mcpservers",
    ),
)
"""Suites of their own: `bench/NAME.py`, a program that prints its figures as one JSON object on its last line; in it
`ok` says whether its bars hold."""


def run_suite(name: str, quick: bool, timeout: float) -> Figures | None:
    """The figures of a suite; None if it does not exist."""
    script = BENCH / f"{name}.py"
    if not script.exists():
        return None
    command = [sys.executable, str(script), *(["--quick"] if quick else [])]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout
    )
    lines = done.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"ok": False, "error": f"exit {done.returncode}: {(done.stderr or done.stdout)[-500:]}"}


def _extras(runs: list[Run], *, expected: int) -> Figures:
    return {
        "extra_calls": max(len(run.chats) - expected for run in runs),
        "other_requests": max(len(run.rows) - len(run.chats) for run in runs),
        "extra_connections": max(len({row["connection"] for row in run.rows}) - 1 for run in runs),
    }


def _growth(run: Run) -> float:
    gaps = run.gaps_ms
    return round(median(gaps[-20:]) / median(gaps[:20]), 2)


def _share(sooner: bytes, later: bytes) -> float:
    return round(common_prefix(sooner, later) / len(sooner), 4)


def _ms(values: Any) -> float:
    return round(median(values), 1)


def _mb(runs: list[Run]) -> float:
    return round(max(run.rss for run in runs) / 1e6, 1)
