"""Logs of version 1 can be read for ever."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec

from lmagent.core.events import DurableEvent, decode, encode

GOLDEN = Path(__file__).parent.parent / "golden" / "events-v1.jsonl"


def test_every_event_of_version_1_decodes_and_loses_nothing_when_it_is_written_again() -> None:
    for line in GOLDEN.read_bytes().splitlines():
        before, after = msgspec.json.decode(line), msgspec.json.decode(encode(decode(line)))
        assert {name: after[name] for name in before} == before  # fields may be added, with defaults


def test_the_golden_log_has_every_durable_event() -> None:
    golden = {msgspec.json.decode(line)["type"] for line in GOLDEN.read_bytes().splitlines()}
    assert golden == {str(kind.__struct_config__.tag) for kind in get_args(DurableEvent)}
