"""The conformance package of the protocol, against our own connection: the client's scenarios, logins included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.conformance import ConformancePackage, documented

pytestmark = [pytest.mark.long]

REFUSED = {"sep-2322-client-request-state": "CallToolResult.resultType: Field required"}
"""Scenarios whose last step we refuse, and the refusal; `docs/mcp-conformance.md` has the reasons."""

RESULTS = documented("Client")
APPLY = [scenario for scenario, result in RESULTS.items() if not result.startswith("does not apply: ")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command of our client, which serves all scenarios."""
    folder = tmp_path_factory.mktemp("client")
    program = [sys.executable, str(Path(__file__).with_name("conformance_client.py")), str(folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield str(folder / "client")
        process.kill()


def test_the_documentation_has_the_result_of_each_scenario():
    assert set(RESULTS) == set(ConformancePackage().scenarios("Client"))


@pytest.mark.parametrize("scenario", APPLY)
def test_a_scenario_for_clients_that_applies_passes(scenario: str, client: str, tmp_path: Path) -> None:
    words = ("client", "--command", client, "--scenario", scenario, "--timeout", "90000")
    status, output = ConformancePackage().run(*words, cwd=tmp_path)
    if scenario in REFUSED:
        assert REFUSED[scenario] in output
        assert ", 0 failed, 0 warnings" in output
    else:
        assert status == 0, output[-3000:]
