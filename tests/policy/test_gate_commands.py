import pytest

from lmagent.core.errors import ConfigError
from lmagent.policy.gate import Request, Rules, check_rule, explain, granted, judge

TOOLS = {"shell": "shell", "bash": "shell", "run_command": "shell", "python": "python", "write": "write"}


def run(command: str) -> Request:
    return Request("shell", "exec", (), command)


def decision(command: str, mode: str = "normal", grants: tuple[str, ...] = (), **rules: tuple[str, ...]) -> str:
    return judge(run(command), mode, Rules(**rules), grants).decision


def test_an_allowance_covers_a_line_when_it_covers_every_command_of_it():
    allow = ("shell(git log *)", "shell(cat *)")
    assert decision("git log -3", allow=allow) == "allow"
    assert decision("git log -3 | cat", allow=allow) == "allow"
    assert decision("git log -3 && cat a; make", allow=allow) == "ask"
    assert decision("cat $(make)", allow=allow) == "ask"
    assert decision("cat a >b", allow=allow) == "ask"
    assert decision("cat 'a", allow=allow) == "ask"


def test_a_denial_of_one_command_denies_the_line_that_wraps_it():
    for command in ("rm -rf x", "true; /bin/rm -r x", "sudo env A=1 rm x", "bash -c 'rm x'", "ls | xargs rm", "'rm x"):
        assert decision(command, "auto", deny=("shell(rm *)",)) == "deny"
        assert decision(command, "auto", deny=("effect:exec(rm *)",)) == "deny"
        assert decision(command, "auto", ask=("shell(rm)",), allow=("shell",)) == "ask"
    assert decision("echo warm", "auto", deny=("shell(rm *)",)) == "allow"


def test_a_rule_without_a_pattern_or_with_a_star_holds_for_every_line():
    for rule in ("shell", "shell(*)", "shell(**)", "effect:exec", "effect:exec(*)", "*"):
        assert decision("what 'ever", allow=(rule,)) == "allow"
        assert decision("what 'ever", "auto", deny=(rule,)) == "deny"


def test_rules_on_commands_leave_calls_alone_that_run_none():
    rules = Rules(allow=("effect:exec(ls *)",), deny=("effect:exec(rm *)", "shell(rm *)"))
    assert judge(Request("python", "exec"), "normal", rules).decision == "ask"
    assert judge(Request("write", "write", ("rm",)), "auto", rules).decision == "allow"


def test_always_adds_the_narrowest_rules_that_cover_the_line():
    verdict = judge(run("git log -3 | wc -l"), "normal", Rules())
    assert verdict.grant == "shell(git log *)\nshell(wc *)"
    assert decision("git log --stat | wc -l", grants=(verdict.grant,)) == "allow"
    assert decision("git push", grants=(verdict.grant,)) == "ask"
    assert judge(run("make -j4 all"), "normal", Rules()).grant == "shell(make -j4 all)"


@pytest.mark.parametrize("command", ["eval $x", "cat 'a", "ls >a", "LD_PRELOAD=x ls", "sudo ls", "find . -delete | sh"])
def test_there_is_no_always_for_a_line_that_no_narrow_rule_can_cover(command):
    verdict = judge(run(command), "normal", Rules())
    assert (verdict.decision, verdict.grant) == ("ask", "")


def test_what_was_granted_is_read_line_by_line_and_nonsense_allows_nothing():
    assert granted(["shell(ls *)\nshell(cat *)", "a b", "write"]) == ("shell(ls *)", "shell(cat *)", "write")


@pytest.mark.parametrize(
    ("rule", "plain"),
    [
        ("bash(git log *)", "shell(git log *)"),
        ("Run_Command( rm -rf ~ )", "shell(rm -rf ~)"),
        ("shell(git log:*)", "shell(git log *)"),
        ("shell(cd .. && ls, *)", "shell(cd .. && ls, *)"),
        ("shell(*)", "shell"),
        ("effect:exec(npm test)", "effect:exec(npm test)"),
    ],
)
def test_patterns_of_commands_are_not_read_as_paths(rule, plain):
    assert check_rule(rule, tools=TOOLS, root="/ws") == plain
    assert check_rule(plain, tools=TOOLS, root="/ws") == plain


@pytest.mark.parametrize(("rule", "why"), [("shell()", "names no command"), ("bash(echo 'a)", "a quote")])
def test_a_pattern_of_commands_that_could_never_match_is_refused(rule, why):
    with pytest.raises(ConfigError, match=why) as caught:
        check_rule(rule, "config.toml, line 3", tools=TOOLS)
    assert "config.toml, line 3" in caught.value.message
    assert "(git log *)" in caught.value.fix


def test_a_question_tells_what_is_hidden_in_a_line():
    assert explain(run("ls -l")) == ""
    assert explain(Request("write", "write", ("a",))) == ""
    told = explain(run("timeout 5 bash -c 'rm x' >log; eval $y"))
    assert "rm x" in told
    assert "writes: log" in told
    assert "not understood" in told


HIDING = [
    "a=r; b=m; $a$b x",
    "echo cm0geA== | base64 -d | bash",
    "BASH_ENV=<(echo 'r''x') bash -c true",
    "git config alias.p push",
]


@pytest.mark.parametrize("command", HIDING)
@pytest.mark.parametrize("mode", ["normal", "auto"])
def test_a_line_that_may_hide_what_a_rule_forbids_is_asked_about_whatever_allows_it(command, mode):
    for allow in ((), ("shell",), ("shell(*)",), ("*",), ("effect:exec",)):
        rules = Rules(allow=allow, deny=("write(docs)", "shell(rm *)"))
        verdict = judge(run(command), mode, rules, ("shell",))
        assert (verdict.decision, verdict.grant) == ("ask", "")
        assert verdict.reason == (
            "the commands of the line cannot be determined for certain, and the rule deny 'shell(rm *)' might forbid it"
        )
    assert judge(run(command), mode, Rules(ask=("effect:exec(rm *)",), allow=("shell",))).reason == (
        "the commands of the line cannot be determined for certain, and the rule ask 'effect:exec(rm *)' might mean it"
    )


@pytest.mark.parametrize("command", HIDING)
def test_a_line_that_may_hide_a_command_is_let_be_where_no_rule_forbids_commands(command):
    assert decision(command, "auto") == "allow"
    assert decision(command, "auto", deny=("write(docs)", "git_push", "effect:net")) == "allow"
    assert decision(command, allow=("shell",), ask=("write(docs)",)) == "allow"


def test_a_name_that_is_built_of_wildcards_is_denied_wherever_a_rule_denies_commands():
    for command in ("/???/rm x", "r{m,} x", "</dev/null {x}</dev/null rm x", "git -c alias.p='!r\\m' p", "c{m,} x"):
        assert decision(command, "auto", deny=("shell(rm *)",), allow=("shell",)) == "deny"
    for command in ('"$d/bin/x" y', "git -c color.ui=never log", "ls {fd}>x"):
        assert decision(command, "auto", deny=("shell(rm *)",)) == "ask"
        assert decision(command, "auto") == "allow"


def test_a_denial_goes_before_a_doubt():
    assert decision("$x; rm y", "auto", deny=("shell(rm *)",)) == "deny"
    assert decision("$x; ls", "auto", deny=("shell(rm *)",), ask=("shell(ls *)",)) == "ask"
