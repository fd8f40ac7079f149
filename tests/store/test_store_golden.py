"""Logs of version 1 can be read for ever."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from lmagent.core.events import DurableEvent, InputReceived, decode, encode
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import user

GOLDEN = Path(__file__).parent.parent / "golden" / "events-v1.jsonl"


def test_every_event_of_version_1_decodes_and_loses_nothing_when_it_is_written_again() -> None:
    for line in GOLDEN.read_bytes().splitlines():
        before, after = msgspec.json.decode(line), msgspec.json.decode(encode(decode(line)))
        if (job := before.pop("job", None)) is not None:
            assert str(InputOrigin(**after["origin"])) == job
        assert {name: after[name] for name in before} == before  # fields may be added, with defaults


def test_the_golden_log_has_every_durable_event() -> None:
    golden = {msgspec.json.decode(line)["type"] for line in GOLDEN.read_bytes().splitlines()}
    assert golden == {str(kind.__struct_config__.tag) for kind in get_args(DurableEvent)}


@pytest.mark.parametrize(
    ("job", "origin"),
    [
        ("", InputOrigin()),
        ("web:c0ffee", InputOrigin("web", "c0ffee")),
        ("web:inbox:a", InputOrigin("web", "inbox:a")),
        ("web:oai:d16e57:c0ffee", InputOrigin("api", "oai:d16e57:c0ffee")),
        ("web:oas:d16e57:c0ffee", InputOrigin("api", "oas:d16e57:c0ffee")),
        ("cron:nightly:1767323048", InputOrigin("cron", "nightly:1767323048")),
        ("inbox:20260102_030408_c0ffee~a.task", InputOrigin("inbox", "20260102_030408_c0ffee~a.task")),
        ("wait:c0ffee000001", InputOrigin("wait", "c0ffee000001")),
        ("plan-c0ffee000001", InputOrigin("plan", "c0ffee000001")),
        ("20260102_030408_c0ffee", InputOrigin("agent", "20260102_030408_c0ffee")),
    ],
)
def test_the_origin_of_an_input_in_an_earlier_log_is_read(job: str, origin: InputOrigin) -> None:
    line = {"type": "input.received", "message": {"role": "user", "parts": []}, "delivery": "submit", "job": job}
    event = decode(msgspec.json.encode(line))
    assert isinstance(event, InputReceived)
    assert event.origin == InputOrigin.of(str(origin)) == origin
    assert event.origin.is_attended == (not job.startswith(("cron:", "inbox:")))


def test_the_text_of_a_message_is_not_taken_for_its_origin() -> None:
    said = user('{"job":"cron:a:1"}')
    event = decode(encode(InputReceived(message=said, delivery="submit")))
    assert isinstance(event, InputReceived)
    assert event.origin == InputOrigin()
