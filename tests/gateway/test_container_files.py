"""Dockerfile and compose files as text; tests/modelserver/test_server_image.py builds and runs the images."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from lmagent.cli.web import web
from lmagent.gateway.http.access import ROUTES

ROOT = Path(__file__).resolve().parents[2]


def stage(name: str) -> str:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    return re.split(r"^FROM .*$", text.partition(f" AS {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def service(name: str) -> str:
    text = (ROOT / "compose.yaml").read_text()
    return re.split(r"^(?:  )?\w", text.partition(f"\n  {name}:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", ["server", "agent"])
def test_each_service_is_hardened_and_published_on_loopback_alone(name: str) -> None:
    text = service(name)
    assert "read_only: true" in text
    assert "cap_drop: [ALL]" in text
    assert "no-new-privileges:true" in text
    assert f"target: {name}" in text
    ports = re.findall(r"^ +- \"([^\"]*:\d+)\"$", text, re.MULTILINE)
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_health_check_asks_an_open_route_on_the_port_that_the_entry_point_opens() -> None:
    text = stage("agent")
    port, path = re.findall(r"urlopen\('http://127\.0\.0\.1:(\d+)(/\w+)'", text)[0]
    assert [route.is_open for route in ROUTES if route.path == path] == [True]
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[0])
    assert entry[:2] == ["lmagent", "web"]
    assert entry[entry.index("--port") + 1] == port
    assert f"EXPOSE {port}" in text
    assert CliRunner().invoke(web, [*entry[2:], "--help"]).exit_code == 0


def test_the_agents_container_runs_as_nobody_and_asks_for_a_sandbox() -> None:
    assert "USER lmagent" in stage("agent")
    assert "SANDBOX: ${SANDBOX:-landlock}" in service("agent")
    assert "SANDBOX" not in stage("agent"), "an image without compose.yaml refuses commands rather than degrade"
