"""Permission rules for the tools of MCP servers."""

from __future__ import annotations

import pytest

from lmagent.policy.gate import Request, Rules, judge

ECHO = Request("everything_echo", "exec", outside="mcp__everything__echo")
OURS = Request("git_diff", "read")


@pytest.mark.parametrize("rule", ["everything_echo", "everything_*", "mcp__everything", "mcp__everything__echo"])
def test_a_rule_names_a_tool_or_all_tools_of_a_server(rule: str) -> None:
    assert judge(ECHO, "normal", Rules(allow=(rule,))).decision == "allow"
    assert judge(ECHO, "auto", Rules(deny=(rule,))).decision == "deny"


@pytest.mark.parametrize("rule", ["mcp__git", "mcp__git__git_diff", "mcp__everything__other", "everything_add"])
def test_a_rule_for_another_tool_changes_nothing(rule: str) -> None:
    assert judge(ECHO, "normal", Rules(allow=(rule,))).decision == "ask"
    assert judge(OURS, "auto", Rules(deny=(rule,))).decision == "allow"


def test_the_question_offers_a_rule_for_the_tool_alone() -> None:
    verdict = judge(ECHO, "normal", Rules())
    assert (verdict.decision, verdict.grant) == ("ask", "everything_echo")
