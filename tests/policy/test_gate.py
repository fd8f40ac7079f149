import pytest

from lmagent.core.errors import ConfigError
from lmagent.policy.gate import Request, Rules, check_rule, judge, sight
from lmagent.policy.paths import located, through_links

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


@pytest.mark.parametrize("rule", ["", "write(", "a b", "(x)", "effect:reed", "write (docs)"])
def test_a_rule_that_cannot_be_understood_is_refused(rule):
    with pytest.raises(ConfigError, match="cannot be understood"):
        check_rule(rule)


# --- how patterns are read -----------------------------------------------------------------------------------

TOOLS = {"write": "write", "write_file": "write", "edit": "edit", "grep": "grep", "search": "grep"}


def denies(rule: str, path: str, root: str = "/home/me/ws") -> bool:
    plain = check_rule(rule, tools=TOOLS, root=root)
    assert check_rule(plain, tools=TOOLS) == plain  # what is kept is read the same again
    return judge(Request("write", "write", (path,)), "auto", Rules(deny=(plain,))).decision == "deny"


def allows(rule: str, path: str) -> bool:
    return judge(Request("write", "write", (path,)), "normal", Rules(allow=(rule,))).decision == "allow"


SPELLINGS = [
    *("write(docs/**)", "write(./docs/**)", "write(docs/)", "write(docs)", "write(././docs//)", "write( docs/** )"),
    *(
        "Write(docs/**)",
        "write_file(docs/**)",
        "WRITE_FILE(docs)",
        "effect:write(docs)",
        "Effect:Write(docs/)",
        "*(docs)",
    ),
    *("write(/home/me/ws/docs/**)", "write(/home/me/ws/docs)", "write(/workspace/docs/)", "write({docs,src}/**)"),
    *("wri*(docs)", "write(**/docs/**)", "write(docs/**/**)", "write(do?s)", "write([cd]ocs)", "write(.)", "write(**)"),
]


@pytest.mark.parametrize("rule", SPELLINGS)
def test_every_spelling_of_a_denied_folder_denies_the_folder_and_what_is_below(rule):
    assert denies(rule, "docs/a.md")
    assert denies(rule, "docs/deep/er/a.md")
    assert denies(rule, "docs")
    assert denies(rule, "lib/a.md") == (rule in ("write(.)", "write(**)"))


def test_a_name_alone_is_meant_at_any_depth_and_with_a_slash_at_the_top():
    assert denies("write(docs)", "a/docs/b")
    assert not denies("write(docs/)", "a/docs/b")
    assert not denies("write(./docs)", "a/docs/b")
    assert not denies("write(docs)", "mydocs/b")


def test_a_denial_reaches_below_a_folder_that_a_wildcard_matches_and_an_allowance_does_not():
    assert denies("write(src/*)", "src/a/b.py")
    assert allows("write(src/*)", "src/a.py")
    assert not allows("write(src/*)", "src/a/b.py")
    assert allows("write(src)", "src/a/b.py")
    assert allows("write(src/**)", "src")


def test_brackets_stand_for_themselves_too():
    assert denies("write(app/[id]/**)", "app/[id]/page.tsx")
    assert denies("write(app/[id])", "app/d")
    assert not denies("write(a[!b]c)", "abc")
    assert not denies("write(a[!b]c)", "a/c")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("write(/docs/**)", "outside the workspace"),
        ("write(/home/me/wsx/a)", "outside the workspace"),
        ("write(~/ws/docs)", "'~' is not expanded"),
        ("write(../x)", "'..' is not followed"),
        ("write(docs/../../x)", "'..' is not followed"),
        ("write()", "names no path"),
        ("write(docs/*,src/*)", "comma"),
        ("write({/etc,docs})", "outside the workspace"),
        ("write({a,b}{c,d}{e,f}{g,h}{i,j}{k,l}{m,n})", "alternatives"),
    ],
)
def test_a_pattern_that_could_never_match_is_refused_with_its_origin(rule, why):
    with pytest.raises(ConfigError, match=why) as caught:
        check_rule(rule, "config.toml, line 3", tools=TOOLS, root="/home/me/ws")
    assert "config.toml, line 3" in caught.value.message
    assert "relative to the workspace" in caught.value.fix


def test_rules_that_nobody_checked_are_refused_too_and_never_passed_over():
    with pytest.raises(ConfigError, match="could never match"):
        Rules(deny=("write(/etc/**)",))


def test_an_unknown_tool_is_refused_with_its_origin_and_the_near_ones():
    with pytest.raises(ConfigError, match="does not exist") as caught:
        check_rule("wirte(docs/**)", "LMAGENT_PERMISSION_DENY", tools=TOOLS)
    assert "LMAGENT_PERMISSION_DENY" in caught.value.message
    assert "did you mean write" in caught.value.fix


@pytest.mark.parametrize("rule", ["mcp__files__delete", "mcp__files", "mcp__*", "*_file(docs)", "*", "effect:net"])
def test_a_tool_that_may_come_later_can_be_named(rule):
    assert check_rule(rule, tools=TOOLS) == rule


def test_the_name_of_an_mcp_server_stands_for_all_its_tools():
    rules = Rules(deny=("mcp__files",))
    assert judge(Request("mcp__files__delete", "write"), "auto", rules).decision == "deny"
    assert judge(Request("mcp__filesystem__delete", "write"), "auto", rules).decision == "allow"


def test_a_grant_that_cannot_be_understood_allows_nothing():
    assert judge(WRITE, "normal", Rules(), ["a b", "write(/etc)"]).decision == "ask"


# --- what a walker must not see ------------------------------------------------------------------------------


def hidden(rules: Rules, *paths: str, targets: tuple[str, ...] = (".",)) -> list[str]:
    hides = sight(Request("grep", "read", targets), rules)
    return [path for path in paths if hides is not None and hides(path)]


def test_what_is_denied_is_hidden_from_a_walk_that_begins_above():
    paths = ("secrets", "secrets/k", "a/secrets", "a.txt")
    for rule in ("grep(secrets/**)", "*(secrets/)", "effect:read(./secrets)"):
        assert hidden(Rules(deny=(rule,)), *paths) == ["secrets", "secrets/k"]
    assert hidden(Rules(deny=("effect:read(secrets)",)), *paths) == ["secrets", "secrets/k", "a/secrets"]


def test_rules_for_other_tools_and_rules_without_paths_hide_nothing():
    assert sight(Request("grep", "read", (".",)), Rules(deny=("write(a)", "edit"), ask=("grep",))) is None


def test_a_walk_that_begins_in_a_denied_folder_is_denied_and_one_at_the_top_is_not():
    rules = Rules(deny=("grep(secrets/**)", "grep(.*)"))
    for target in ("secrets", "secrets/deep", ".env"):
        assert judge(Request("grep", "read", (target,)), "auto", rules).decision == "deny"
    assert judge(Request("grep", "read", (".",)), "auto", rules).decision == "allow"


def test_what_must_be_asked_about_is_hidden_unless_the_call_named_it():
    rules = Rules(ask=("grep(secrets/**)", "grep(keys/**)"))
    paths = ("secrets/k", "keys/k", "a")
    assert hidden(rules, *paths) == ["secrets/k", "keys/k"]
    assert hidden(rules, *paths, targets=("secrets",)) == ["keys/k"]
    assert hidden(rules, "secrets/a/k", "secrets/b/k", targets=("secrets/a", ".")) == ["secrets/b/k"]
    assert hidden(Rules(ask=("grep(**)",)), *paths) == []


def test_what_was_approved_stays_hidden_where_it_is_denied():
    rules = Rules(ask=("grep(secrets)",), deny=("grep(secrets/private)",))
    assert hidden(rules, "secrets/a", "secrets/private/k", targets=("secrets",)) == ["secrets/private/k"]


# --- where targets lie ---------------------------------------------------------------------------------------


def test_targets_are_known_by_their_name_and_by_their_real_place(tmp_path):
    (tmp_path / "ws/secrets").mkdir(parents=True)
    (tmp_path / "ws/link").symlink_to("secrets")
    root = str(tmp_path / "ws")
    assert located(root, ["link/k"]) == ("link/k", "secrets/k")
    assert located(root, ["./secrets//k/", f"{root}/secrets/k", "/workspace/secrets/k"]) == ("secrets/k",)
    assert located(root, ["."]) == located(root, ["/workspace"]) == located(root, [root]) == (".",)
    assert located(root, ["/etc/passwd"])[0].startswith("../")


def test_the_alias_of_the_workspace_is_none_where_the_workspace_is_at_that_place():
    assert located("/workspace/proj", ["/workspace/proj/secrets/k"]) == ("secrets/k",)
    assert located("/workspace/proj", ["/workspace/secrets/k"]) == ("../secrets/k",)


def test_a_folder_seen_through_a_link_is_hidden_by_the_rule_for_its_real_place(tmp_path):
    (tmp_path / "a/secrets").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "round").symlink_to(".")
    hides = sight(Request("grep", "read", ("link",)), Rules(deny=("grep(a/secrets)", "grep(top/)")))
    assert hides is not None
    see = through_links(str(tmp_path), hides)
    assert see("link/secrets")
    assert see("link/secrets/k")
    assert see("round/a/secrets")
    assert see("round/top")
    assert not see("link/other")
    assert not see("round/b")
