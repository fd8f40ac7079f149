"""Memory: what a model will take, and what the machine has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from madegguf import chat_file
from msgspec.structs import replace

from lmagent.modelserver.library.facts import GgufFacts, read_facts
from lmagent.modelserver.library.memory import (
    cache_bytes,
    context_of,
    estimate_gpu_layers,
    needed_bytes,
)
from lmagent.modelserver.pool.machine import machine_memory
from lmagent.modelserver.spec import ModelSettings

GIB = 1 << 30

QWEN3_8B = GgufFacts(
    Path("qwen3-8b.gguf"), architecture="qwen3", weights=5_027_783_488, size=5_027_783_488, context=40_960, layers=36,
    heads=32, kv_heads=(8,) * 36, key_length=128, value_length=128, embedding=4096, feed_forward=12_288,
    vocabulary=151_936, layer_sizes=(120_000_000,) * 36,
)  # fmt: skip
"""Figures of the published Q4_K_M file."""


def test_the_cache_of_a_known_model_has_the_size_that_the_engine_reports():
    # llama.cpp prints "KV self size = 2304.00 MiB" for 16384 tokens of this shape: 36 layers * 8 heads * 256 * 2 bytes
    assert cache_bytes(QWEN3_8B, ModelSettings(context=16_384)) == 2304 << 20
    assert cache_bytes(QWEN3_8B, ModelSettings(context=16_384, parallel=2)) == 4608 << 20
    quantised = ModelSettings(context=16_384, cache_type_k="q8_0", cache_type_v="q8_0")
    assert cache_bytes(QWEN3_8B, quantised) == 1224 << 20


def test_the_window_is_what_the_model_was_made_for_but_at_most_the_default():
    assert context_of(QWEN3_8B, ModelSettings()) == 16_384
    assert context_of(replace(QWEN3_8B, context=4096), ModelSettings()) == 4096
    assert context_of(replace(QWEN3_8B, context=4096), ModelSettings(context=8192)) == 8192


def test_layers_without_keys_cost_no_cache_and_recurrent_ones_a_state(tmp_path):
    path = chat_file(tmp_path / "m.gguf", attention__head_count_kv=[0, 2], ssm__inner_size=128, ssm__state_size=16)
    facts = read_facts(path)
    assert facts.state == 2 * 4 * 128 * 16
    assert cache_bytes(facts, ModelSettings(context=1024)) == 1024 * 2 * 32 * 2 + facts.state


@given(context=st.integers(256, 1 << 20), parallel=st.integers(1, 16))
def test_more_of_anything_never_needs_less(context, parallel):
    less = needed_bytes(QWEN3_8B, ModelSettings(context=context, parallel=parallel))
    assert less > QWEN3_8B.weights
    assert needed_bytes(QWEN3_8B, ModelSettings(context=context + 1, parallel=parallel)) >= less
    assert needed_bytes(QWEN3_8B, ModelSettings(context=context, parallel=parallel + 1)) >= less
    assert needed_bytes(QWEN3_8B, ModelSettings(context=context, parallel=parallel, flash_attention="off")) >= less


def test_layers_go_to_the_cards_as_far_as_they_have_room():
    fits = [estimate_gpu_layers(QWEN3_8B, ModelSettings(), [room]) for room in (0, 2 * GIB, 4 * GIB, 8 * GIB, 24 * GIB)]
    assert fits[0] == 0
    assert fits == sorted(fits)
    assert 0 < fits[2] < 36
    assert fits[-1] == 37
    assert estimate_gpu_layers(QWEN3_8B, ModelSettings(), [4 * GIB, 4 * GIB]) > fits[2]
    assert estimate_gpu_layers(QWEN3_8B, ModelSettings(), []) == 0


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


MEMINFO = "MemTotal:       16000000 kB\nMemFree:  1000000 kB\nMemAvailable:    8000000 kB\nCached: 6000000 kB\n"


def test_the_free_memory_is_what_the_kernel_says_is_available(tmp_path):
    found = machine_memory(machine(tmp_path, {"proc/meminfo": MEMINFO}))
    assert (found.total, found.free, found.limit) == (16_000_000 * 1024, 8_000_000 * 1024, "machine")


def test_the_limit_of_a_control_group_counts_and_so_does_that_of_its_parent(tmp_path):
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/inner/memory.current": "5\n",
        "sys/fs/cgroup/outer/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/outer/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/outer/memory.stat": f"anon 1\ninactive_file {GIB}\n",
    }
    found = machine_memory(machine(tmp_path, files))
    assert (found.total, found.free, found.limit) == (4 * GIB, 2 * GIB, "container")


def test_in_a_container_whose_group_lies_elsewhere_the_root_of_the_mount_counts(tmp_path):
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/../../system.slice/docker-1.scope\n",
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory.current": "0\n",
    }
    assert machine_memory(machine(tmp_path, files)).free == 2 * GIB


def test_the_first_version_of_control_groups_is_understood(tmp_path):
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "11:cpu,cpuacct:/x\n4:memory:/docker/1\n",
        "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    }
    assert machine_memory(machine(tmp_path, files)).free == 2 * GIB


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_of_this_machine_both_figures_are_known():
    found = machine_memory()
    assert 0 < found.free <= found.total


@pytest.mark.engine
def test_the_real_engine_takes_no_more_than_was_estimated(tmp_path):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    if not os.path.isdir("/proc/self"):
        pytest.skip("memory of a process is read in /proc")
    from testkit.engine import EngineServer
    from testkit.gguf import build_tiny_gguf

    path = build_tiny_gguf(tmp_path / "tiny.gguf", context=262_144)
    facts = read_facts(path)
    for context in (4096, 262_144):
        with EngineServer(path, context=context) as engine:
            assert engine._process is not None
            status = Path(f"/proc/{engine._process.pid}/status").read_text()
        taken = int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) * 1024
        estimate = needed_bytes(facts, ModelSettings(context=context))
        assert taken <= estimate, (context, taken, estimate)
