"""Devices: the processors and graphics cards that the engine can use.

The engine is asked in a process of its own, because a driver may take that process down:
`python -m lmagent.modelserver.engine.devices` prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.config.installed import install_command
from lmagent.core.decoding import decode_json

SECONDS = 60.0  # how long a driver may take; the first call of some builds compiles
LIBRARIES = "install the library that it needs: sudo apt install libgomp1 (Fedora, Alpine: libgomp; Arch: gcc-libs)"
"""libgomp is the one library outside of libc and libstdc++ that the engine's wheel links to and does not contain."""


class Device(Struct, frozen=True):
    name: str  # as the engine calls it (`CPU`, `CUDA0`, `Metal`, `Vulkan0`)
    description: str = ""  # as its maker does
    gpu: bool = False  # whether layers can be put on it
    free: int = 0  # bytes of its memory that are free
    total: int = 0  # bytes of its memory


class EngineReport(Struct, frozen=True):
    version: str = ""  # of the package; empty where it is not installed or does not start
    system: str = ""  # the instructions that it uses
    devices: tuple[Device, ...] = ()
    problem: str = ""  # why there is nothing to say
    fix: str = ""  # what to do about that

    @property
    def gpus(self) -> list[Device]:
        return [device for device in self.devices if device.gpu]


COMMAND = (sys.executable, "-P", "-m", __name__)  # `-P`: nothing is imported from the folder that we happen to be in


def ask_engine(command: tuple[str, ...] = COMMAND, seconds: float = SECONDS) -> EngineReport:
    again = f"install it again: {install_command('local')}"
    try:
        run = subprocess.run(command, capture_output=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        fix = "check the graphics driver (nvidia-smi, rocminfo, vulkaninfo)"
        return EngineReport(problem=f"the engine did not answer within {seconds:.0f} seconds", fix=fix)
    except OSError as error:
        return EngineReport(problem=f"the engine could not be asked: {error}", fix=again)
    try:
        return decode_json(run.stdout.strip().rpartition(b"\n")[2], EngineReport)
    except ValueError:
        lines = run.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"it ended with status {run.returncode}" + (f": {lines[-1][:300]}" if lines else "")
        return EngineReport(problem=f"the engine does not start: {why}", fix=again)


def report() -> EngineReport:
    """Return the report of the engine in this process."""
    try:
        engine: Any = importlib.import_module("xllamacpp")  # it has no type stubs
    except ImportError as error:
        return missing_engine(error)
    devices = tuple(_device(info) for info in engine.get_device_info())
    return EngineReport(str(getattr(engine, "__version__", "")), str(engine.get_system_info()).strip(" |\n"), devices)


def missing_engine(error: ImportError) -> EngineReport:
    """Explain why the engine cannot be imported: it is not installed, or the system lacks a library that it needs."""
    if isinstance(error, ModuleNotFoundError):
        return EngineReport(problem="the engine is not installed", fix=f"install it: {install_command('local')}")
    return EngineReport(problem=f"the engine cannot start: {error}", fix=LIBRARIES)


def _device(info: dict[str, Any]) -> Device:
    kind = str(getattr(info.get("type"), "name", ""))
    return Device(
        name=str(info.get("name", "")),
        description=str(info.get("description", "")),
        gpu=kind.endswith(("_GPU", "_IGPU")),
        free=int(info.get("memory_free", 0)),
        total=int(info.get("memory_total", 0)),
    )


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(msgspec.to_builtins(report())) + "\n")
