"""Logs of version 1 can be read for ever."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec

from lmagent.core.events import DurableEvent, decode, encode

GOLDEN = Path(__file__).parent.parent / "golden" / "events-v1.jsonl"


def test_every_event_of_version_1_decodes_and_encodes_to_the_same_bytes() -> None:
    for line in GOLDEN.read_bytes().splitlines():
        assert encode(decode(line)) == line


def test_the_golden_log_has_each_durable_event_once() -> None:
    golden = [msgspec.json.decode(line)["type"] for line in GOLDEN.read_bytes().splitlines()]
    assert sorted(golden) == sorted(str(kind.__struct_config__.tag) for kind in get_args(DurableEvent))
