"""The conformance package of the protocol, against our own connection: the client's scenarios, logins included."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from testkit.conformance import ConformancePackage, documented

pytestmark = [pytest.mark.long]

REFUSED = {"sep-2322-client-request-state": "CallToolResult.resultType: Field required"}
"""Scenarios whose last step we refuse, and the refusal; `docs/mcp-conformance.md` has the reasons."""


def test_all_scenarios_for_clients_that_apply_pass(tmp_path: Path) -> None:
    package = ConformancePackage()
    scenarios, results = package.scenarios("Client"), documented("Client")
    assert set(results) == set(scenarios)
    client = f"{sys.executable} {Path(__file__).with_name('conformance_client.py')}"
    failed: dict[str, str] = {}
    for scenario in scenarios:
        if results[scenario].startswith("does not apply: "):
            continue
        words = ("client", "--command", client, "--scenario", scenario, "--timeout", "90000")
        status, output = package.run(*words, cwd=tmp_path)
        if scenario in REFUSED:
            is_fine = REFUSED[scenario] in output and ", 0 failed, 0 warnings" in output
        else:
            is_fine = status == 0
        if not is_fine:
            failed[scenario] = output[-3000:]
    assert failed == {}
