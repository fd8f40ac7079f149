"""Metrics and status: what a monitor reads."""

from __future__ import annotations

import re
from pathlib import Path

from gateway_kit import Running, gateway
from seed_client import chatting

from lmagent import __version__
from lmagent.testing.script import call, hang, say

SAMPLE = re.compile(r'([a-z_]+)(\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? (-?[0-9.e+-]+)')


def scraped(running: Running) -> dict[str, float]:
    """All samples; fails on a line that is none, a sample without its type, or a type that comes twice."""
    answer = running.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] in kinds
            samples[found[1] + (found[2] or "")] = float(found[3])
    return samples


def test_what_the_gateway_does_is_measured(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("Hello."), call("shell", command="touch x"), hang(say("x"), chunks=0)]) as running:
        before = scraped(running)
        assert any(name.startswith("lmagent_build_info") and __version__ in name for name in before)
        assert before["lmagent_sessions_open"] == before["lmagent_turns_running"] == 0
        usage = running.ask("POST", "/api/chat/one", {"message": "hi"}).json["usage"]
        assert running.ask("GET", "/api/nothing").status == 404
        with chatting(running, "two") as client:
            client.say("message", content="touch x")
            asked = client.until("approval_request")
            during = scraped(running)
            assert during["lmagent_approvals_waiting"] == 1
            assert during["lmagent_turns_running"] == 1
            assert during["lmagent_sessions_open"] == 2
            assert during["lmagent_watchers"] >= 1
            client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=False)
            client.until("approval_resolved")
        after = scraped(running)
        assert after["lmagent_approvals_waiting"] == 0
        assert after['lmagent_tokens_total{kind="completion"}'] >= usage["completion_tokens"] > 0
        assert after["lmagent_steps_total"] >= 2
        for status, more in (("2xx", 3), ("4xx", 1), ("5xx", 0)):
            name = f'lmagent_http_requests_total{{status="{status}"}}'
            assert after[name] - before[name] >= more
        assert after['lmagent_http_requests_total{status="5xx"}'] == 0
        assert 0 <= after["lmagent_event_loop_lag_seconds"] < 5


def test_counters_do_not_fall_when_a_session_is_deleted(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("Hello."), say("Again.")]) as running:
        running.ask("POST", "/api/chat/one", {"message": "hi"})
        before = scraped(running)
        assert running.ask("DELETE", "/api/sessions/one").status in (200, 204)
        deleted = scraped(running)
        running.ask("POST", "/api/chat/two", {"message": "hi"})
        after = scraped(running)
    for name in ('lmagent_tokens_total{kind="prompt"}', "lmagent_steps_total"):
        assert 0 < before[name] == deleted[name] < after[name]


def test_metrics_need_credentials(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        assert running.anyone.ask("GET", "/metrics").status == 401
        assert running.page().ask("GET", "/metrics").status == 200


def test_status_says_how_the_gateway_is(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("Hello.")]) as running:
        running.ask("POST", "/api/chat/one", {"message": "hi"})
        status = running.ask("GET", "/api/status").json
        assert (status["status"], status["agent"], status["model"]) == ("running", "lmagent", "scripted")
        assert (status["sessions"], status["open"], status["running"]) == (1, 1, 0)
        assert status["uptime"] > 0
        assert status["workspace"] == str(running.workspace)
        tools = running.ask("GET", "/api/tools").json["tools"]
        assert len(tools) == status["tools"]
        shell = next(tool for tool in tools if tool["name"] == "shell")
        assert shell["effect"] == "exec"
        assert shell["parameters"]["properties"]["command"]
