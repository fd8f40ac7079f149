"""What `lmagent doctor` says of the system."""

from __future__ import annotations

import pytest

from lmagent.app.servers.doctor import system


@pytest.mark.parametrize(
    ("platform", "state", "word"),
    [
        ("linux", "ok", "Linux"),
        ("darwin", "warning", "macOS"),
        ("win32", "warning", "WSL2"),
        ("freebsd14", "warning", "freebsd14"),
    ],
)
def test_a_system_that_was_never_tried_is_named(platform, state, word):
    finding = system(platform)
    assert finding.state == state
    assert word in f"{finding.text} {finding.fix}"
