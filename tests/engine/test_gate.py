import pytest

from lmagent.core.errors import ConfigError
from lmagent.engine.gate import Request, Rules, check_rule, judge

READ = Request("read", "read", ("src/a.py",))
WRITE = Request("write", "write", ("src/a.py",))


@pytest.mark.parametrize(
    ("mode", "request_", "decision"),
    [
        ("auto", WRITE, "allow"),
        ("normal", READ, "allow"),
        ("normal", WRITE, "ask"),
        ("normal", Request("fetch", "net"), "ask"),
        ("normal", Request("shell", "exec"), "ask"),
        ("manual", READ, "ask"),
        ("manual", WRITE, "ask"),
    ],
)
def test_the_mode_decides_where_no_rule_does(mode, request_, decision):
    assert judge(request_, mode, Rules()).decision == decision


@pytest.mark.parametrize(
    ("rules", "decision"),
    [
        (Rules(allow=("write",)), "allow"),
        (Rules(allow=("write(src/**)",)), "allow"),
        (Rules(allow=("write(*.py)",)), "allow"),
        (Rules(allow=("effect:write",)), "allow"),
        (Rules(allow=("*",)), "allow"),
        (Rules(allow=("write(docs/**)",)), "ask"),
        (Rules(allow=("write(src/*.md)",)), "ask"),
        (Rules(allow=("*",), deny=("write(src/**)",)), "deny"),
        (Rules(allow=("*",), ask=("write",)), "ask"),
        (Rules(ask=("write",), deny=("*",)), "deny"),
        (Rules(allow=("wri",)), "ask"),
    ],
)
def test_deny_wins_over_ask_and_ask_over_allow(rules, decision):
    assert judge(WRITE, "normal", rules).decision == decision


def test_an_allowance_must_cover_every_path_and_a_denial_any_of_them():
    both = Request("move", "write", ("src/a.py", "docs/b.md"))
    assert judge(both, "normal", Rules(allow=("move(src/**)",))).decision == "ask"
    assert judge(both, "auto", Rules(deny=("move(docs/**)",))).decision == "deny"


def test_a_grant_of_the_session_allows_what_it_names_and_nothing_else():
    assert judge(WRITE, "normal", Rules(), ["write"]).decision == "allow"
    assert judge(Request("edit", "write", ("src/a.py",)), "normal", Rules(), ["write"]).decision == "ask"


def test_asking_names_the_rule_that_always_would_add():
    assert judge(WRITE, "normal", Rules()).grant == "write"


def test_a_person_asked_by_rule_cannot_switch_the_rule_off_with_always():
    assert judge(WRITE, "auto", Rules(ask=("write",))).grant == ""


@pytest.mark.parametrize("rule", ["", "write(", "a b", "(x)"])
def test_a_rule_that_cannot_be_understood_is_refused(rule):
    with pytest.raises(ConfigError, match="cannot be understood"):
        check_rule(rule)
