"""What the tests of workers share."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from testkit import fakeworker
from testkit.fakeworker import FakeModel, write_model

from lmagent.modelserver.spec import ModelEntry, ModelSettings, WorkerSpec

FAKE = (sys.executable, "-P", fakeworker.__file__)


def fake_program(entry: ModelEntry) -> tuple[str, ...]:
    return FAKE


def fake_entry(folder: Path, name: str, *, needed: int = 1, settings: ModelSettings | None = None, **model):
    path = write_model(folder / f"{name}.json", FakeModel(**model))
    return ModelEntry(name, "llama", path, settings or ModelSettings(threads=1), size=1, needed=needed)


def spec_of(entry: ModelEntry, key: str = "k") -> WorkerSpec:
    return WorkerSpec(str(entry.path), entry.name, key, entry.settings)


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def group(leader: int) -> list[int]:
    """The living processes of a group."""
    members = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = []
    for pid in members:
        try:
            if os.getpgid(pid) == leader and alive(pid):
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def until(condition, seconds: float = 20.0) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.02)
