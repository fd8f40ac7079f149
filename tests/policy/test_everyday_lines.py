"""Ordinary work is not asked about: lines that agents and people type every day, under typical rules."""

import json
from pathlib import Path

from lmagent.core.events import PermissionMode
from lmagent.policy.gate import Request, Rules, judge

ALLOW = (
    "shell(git status *)", "shell(git diff *)", "shell(git log *)", "shell(git show *)", "shell(git branch *)",
    "shell(git add *)", "shell(git commit *)", "shell(ls *)", "shell(cat *)", "shell(head *)", "shell(tail *)",
    "shell(wc *)", "shell(grep *)", "shell(rg *)", "shell(find *)", "shell(sed -n *)", "shell(sort *)",
    "shell(uniq *)", "shell(cut *)", "shell(echo *)", "shell(cd *)", "shell(pwd)", "shell(which *)",
    "shell(python3 -m pytest *)", "shell(python -m pytest *)", "shell(pytest *)", "shell(uv run *)", "shell(ruff *)",
    "shell(mypy *)", "shell(npm test *)", "shell(npm run *)", "shell(npx *)", "shell(make *)", "shell(cargo *)",
    "shell(go *)", "shell(jq *)", "shell(curl *)", "shell(docker *)", "shell(test *)", "shell([ *)",
)  # fmt: skip
DENY = ("shell(rm -rf *)", "shell(sudo *)", "shell(git push *)", "shell(git reset --hard *)")
STRICTER = 5
"""Lines that the rule of today may ask about, while an analysis of each program's options did not."""


def _answers() -> list[tuple[str, str, str]]:
    """The answers of that analysis: in normal mode with rules that allow, in auto mode with rules that deny."""
    text = Path(__file__).with_name("everyday_lines.txt").read_text(encoding="utf-8")
    rows = (line.split(maxsplit=2) for line in text.splitlines())
    return [(allowed, denied, json.loads(line)) for allowed, denied, line in rows]


def _judged(line: str, mode: PermissionMode, rules: Rules) -> str:
    return judge(Request("shell", "exec", (), line), mode, rules).decision


def test_everyday_lines_are_judged_as_before_under_rules_that_allow():
    judged = [(line, before, _judged(line, "normal", Rules(allow=ALLOW))) for before, _, line in _answers()]
    assert len(judged) > 250
    assert sum(before == "allow" for _, before, _ in judged) > 120
    _expect_few_changes(judged)


def test_everyday_lines_are_judged_as_before_under_rules_that_deny():
    _expect_few_changes([(line, before, _judged(line, "auto", Rules(deny=DENY))) for _, before, line in _answers()])


def _expect_few_changes(judged: list[tuple[str, str, str]]) -> None:
    changed = [(line, before, now) for line, before, now in judged if before != now]
    assert all((before, now) == ("allow", "ask") for _, before, now in changed), changed
    assert len(changed) <= STRICTER, changed
