"""Rules on hosts: which calls of tools that connect they cover."""

from __future__ import annotations

import pytest

from lmagent.core.errors import ConfigError
from lmagent.policy.gate import Request, Rules, check_rule, is_barred, judge, judge_host


def fetch(*hosts: str, tool: str = "web_fetch") -> Request:
    return Request(tool, "net", hosts=tuple(host if ":" in host else f"{host}:443" for host in hosts))


def allows(rule: str, *hosts: str) -> bool:
    return judge(fetch(*hosts), "normal", Rules(allow=(rule,))).decision == "allow"


def denies(rule: str, *hosts: str) -> bool:
    return judge(fetch(*hosts), "auto", Rules(deny=(rule,))).decision == "deny"


@pytest.mark.parametrize(
    ("rule", "host", "covered"),
    [
        ("web_fetch(docs.python.org)", "docs.python.org", True),
        ("web_fetch(docs.python.org)", "docs.python.org:80", True),
        ("web_fetch(docs.python.org)", "docs.python.org:8443", False),
        ("web_fetch(docs.python.org:8443)", "docs.python.org:8443", True),
        ("web_fetch(docs.python.org:443)", "docs.python.org:80", False),
        ("web_fetch(docs.python.org)", "evil.docs.python.org", False),
        ("web_fetch(docs.python.org)", "docs.python.org.evil.com", False),
        ("web_fetch(*.python.org)", "docs.python.org", True),
        ("web_fetch(*.python.org)", "a.b.python.org", True),
        ("web_fetch(*.python.org)", "python.org", False),
        ("web_fetch(*.python.org)", "evilpython.org", False),
        ("web_fetch(Docs.Python.org.)", "docs.python.org", True),
        ("web_fetch(domain:docs.python.org)", "docs.python.org", True),
        ("web_fetch(*)", "anything.example", True),
        ("web_fetch", "anything.example", True),
        ("effect:net(docs.python.org)", "docs.python.org", True),
        ("web_*(docs.python.org)", "docs.python.org", True),
        ("web_search(docs.python.org)", "docs.python.org", False),
        ("web_fetch([::1]:8080)", "[::1]:8080", True),
        ("web_fetch([0:0::1]:8080)", "[::1]:8080", True),
        ("*(docs.python.org)", "docs.python.org", False),
    ],
)
def test_an_allow_rule_covers_the_host_that_it_names(rule, host, covered):
    assert allows(rule, host) is covered


@pytest.mark.parametrize(
    ("rule", "host"),
    [
        ("web_fetch(python.org)", "python.org:8443"),
        ("web_fetch(python.org)", "docs.python.org"),
        ("effect:net(*.python.org)", "docs.python.org:81"),
        ("effect:net(python.org)", "python.org"),
    ],
)
def test_a_deny_rule_also_covers_other_ports_and_the_names_below(rule, host):
    assert denies(rule, host)
    assert not denies(rule, "notpython.org")


def test_a_denied_host_is_denied_among_others_and_an_allowed_one_allows_not_the_others():
    assert denies("effect:net(b.example)", "a.example", "b.example")
    assert not allows("web_fetch(a.example)", "a.example", "b.example")


def test_the_question_names_the_host_and_always_grants_it():
    verdict = judge(fetch("docs.python.org"), "normal", Rules())
    assert (verdict.decision, verdict.reason) == ("ask", "normal mode asks before connecting to docs.python.org")
    assert verdict.grant == "web_fetch(docs.python.org)"
    assert judge(fetch("docs.python.org"), "normal", Rules(), [verdict.grant]).decision == "allow"
    assert judge(fetch("python.org"), "normal", Rules(), [verdict.grant]).decision == "ask"
    assert judge(fetch("nas.home:5000"), "normal", Rules()).grant == "web_fetch(nas.home:5000)"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("web_fetch(https://docs.python.org/)", "without https://"),
        ("web_fetch(docs.python.org/3)", "without a path"),
        ("web_fetch(b\u00fccher.example)", "xn--"),
        ("web_fetch(127.1)", "four decimal numbers"),
        ("web_fetch()", "names no host"),
        ("effect:net(docs/**)", "names no host"),
        ("web_fetch(a.*.org)", "names no host"),
        ("web_fetch([::g])", "names no host"),
    ],
)
def test_a_pattern_that_is_no_host_is_refused(rule, why):
    with pytest.raises(ConfigError, match="could never match") as refused:
        check_rule(rule)
    assert why in refused.value.message
    assert "docs.python.org" in refused.value.fix


@pytest.mark.parametrize("rule", ["web_search(search.example)", "web_fetch_js", "net(pypi.org:443)"])
def test_a_tool_that_connects_can_be_named_where_it_is_not_offered(rule):
    assert check_rule(rule, tools={"read": "read"}) == rule


class TestHostsOfCommands:
    def test_no_mode_and_no_general_rule_lets_a_command_reach_a_host(self):
        for rules in (Rules(), Rules(allow=("*",)), Rules(allow=("effect:net",)), Rules(allow=("net",))):
            verdict = judge_host("example.test:80", rules)
            assert (verdict.decision, verdict.grant) == ("ask", "net(example.test:80)")

    def test_a_rule_that_names_the_host_answers(self):
        assert judge_host("pypi.org:443", Rules(allow=("effect:net(pypi.org)",))).decision == "allow"
        assert judge_host("pypi.org:443", Rules(allow=("net(pypi.org)",), deny=("effect:net(pypi.org)",))).decision == (
            "deny"
        )
        assert judge_host("pypi.org:443", Rules(allow=("web_fetch(pypi.org)",))).decision == "ask"

    def test_a_grant_is_for_one_host_and_port(self):
        assert judge_host("example.test:80", Rules(), ["net(example.test:80)"]).decision == "allow"
        assert judge_host("example.test:443", Rules(), ["net(example.test:80)"]).decision == "ask"


@pytest.mark.parametrize("reaching", [fetch("example.com:443"), Request("shell", "exec", command="curl x")])
def test_a_deny_rule_bars_a_host_from_the_page_or_command_that_reaches_for_it(reaching):
    rules = Rules(allow=("*",), ask=("effect:net(asked.test)",), deny=("effect:net(ads.example.com)", "read"))
    hosts = ("ads.example.com:443", "x.ads.example.com:80", "example.com:443", "asked.test:443")
    assert [is_barred(reaching, host, rules) for host in hosts] == [True, True, False, False]
