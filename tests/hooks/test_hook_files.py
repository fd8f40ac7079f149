"""Which hooks run: files, trust, the sandbox, and what a broken file costs."""

from __future__ import annotations

import json

import pytest
from hook_kit import SAVE, HookWorld, hook

from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.core import events as ev
from lmagent.hooks.config import matches
from lmagent.testing.script import call

WRITE = call("write", path="a.txt", content="x")


def test_hooks_of_a_folder_run_only_once_it_is_trusted(world: HookWorld):
    world.workspaces(hook("PreToolUse", SAVE), trusted=False)
    ran = world.run(WRITE)
    assert not (world.workspace / "seen.json").exists()
    assert ran.said.count("do not run") == 1
    assert "lmagent config trust '" in ran.said
    trust(data_dir({"HOME": str(world.home)}), world.workspace)
    ran = world.run(WRITE)
    assert (world.workspace / "seen.json").exists()
    assert not ran.said


@pytest.mark.parametrize("name", [".lmagent/hooks.json", ".claude/settings.json", ".claude/settings.local.json"])
def test_a_file_that_changed_after_it_was_trusted_is_not_run(world: HookWorld, name: str):
    file = world.workspace / name
    file.parent.mkdir()
    file.write_text(json.dumps(hook("PreToolUse", SAVE)))
    trust(data_dir({"HOME": str(world.home)}), world.workspace)
    world.run(WRITE)
    (world.workspace / "seen.json").unlink()
    file.write_text(json.dumps(hook("PreToolUse", f"{SAVE} # changed")))
    ran = world.run(WRITE)
    assert not (world.workspace / "seen.json").exists()
    assert "it has changed since you trusted the folder" in ran.said


def test_a_model_that_rewrites_the_file_switches_no_hook_off_in_a_running_program(world: HookWorld):
    world.workspaces(hook("PreToolUse", "exit 2", "Write"))
    ran = world.run(call("shell", command="echo '{}' > .claude/settings.json"), WRITE)
    assert world.claude.read_text() == "{}\n"
    assert ran.results[1].status == "denied"


def test_the_users_own_hooks_run_in_any_folder_and_in_the_sandbox(world: HookWorld):
    world.users(hook("PreToolUse", 'echo "$LMAGENT_SANDBOX $HOME" > "$LMAGENT_PROJECT_DIR/where"'))
    world.run(WRITE)
    assert (world.workspace / "where").read_text().startswith("1 ")
    assert str(world.home) + "\n" not in (world.workspace / "where").read_text()


def test_only_the_users_own_file_can_take_a_hook_out_of_the_sandbox(world: HookWorld):
    command = f"touch {world.home}/outside-$LMAGENT_SANDBOX; true"
    world.workspaces(hook("PreToolUse", command, sandbox=False))
    world.run(WRITE)
    assert not list(world.home.glob("outside-*"))
    world.users(hook("PreToolUse", command, sandbox=False))
    world.run(WRITE)
    assert [path.name for path in world.home.glob("outside-*")] == ["outside-off"]


def test_hooks_of_another_programs_user_settings_run_only_on_demand(world: HookWorld):
    file = world.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"model": "opus", **hook("PreToolUse", SAVE)}))
    world.run(WRITE)
    assert not (world.workspace / "seen.json").exists()
    world.run(WRITE, claude_hooks=True)
    assert (world.workspace / "seen.json").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n "hooks": {\n  "PreToolUse": [}\n', "line 3"),
        ('{\n "hooks": 5}', "line 2: `hooks` must be an object"),
        ('{"hooks": {\n"Stop": {}}}', "line 2: `Stop` must be a list"),
        ('{"hooks": {\n\n"Stop": [{"matcher": "*"}]}}', "line 3: an entry of `Stop`"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}', "line 1: a hook of `Stop` needs a `command`"),
        ('{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}', "line 1: the matcher '(' is no valid pattern"),
        ('{"hooks": {"Stop": [{"matcher": "((a)+.)+B", "hooks": []}]}}', "repeats a group"),
        ('{"hooks": {"Stop": [{"matcher": "a?a?a?a?a?aaaaa", "hooks": []}]}}', "more than 4 characters"),
        ('{"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": "1"}]}]}}', "`timeout`"),
        ('["hooks"]', "line 1: it must hold a JSON object"),
        ("hooks \udcff", "hooks.json"),
        ("[" * 100_000 + '"hooks"', "hooks.json"),
    ],
)
def test_a_broken_file_is_named_with_its_line_and_the_program_starts(world: HookWorld, text: str, expected: str):
    world.own.parent.mkdir(parents=True)
    world.own.write_bytes(text.encode("utf-8", "surrogateescape"))
    ran = world.run(WRITE)
    assert expected in ran.said
    assert "hooks.json" in ran.said
    assert ran.end.outcome == "done"


def test_entries_for_other_programs_are_named_and_the_others_run(world: HookWorld):
    document = hook("PreToolUse", SAVE)
    document["hooks"]["WorktreeCreate"] = [{"hooks": []}]
    document["hooks"]["Stop"] = [{"hooks": [{"type": "prompt", "prompt": "is it done?"}]}]
    world.users(document)
    ran = world.run(WRITE)
    assert "WorktreeCreate" in ran.said
    assert "'prompt'" in ran.said
    assert (world.workspace / "seen.json").exists()


def test_all_hooks_of_a_file_can_be_switched_off(world: HookWorld):
    world.own.parent.mkdir(parents=True)
    world.own.write_text(json.dumps({"disableAllHooks": True, **hook("PreToolUse", "exit 2")}))
    ran = world.run(WRITE)
    assert ran.results[0].status == "ok"


def test_the_same_command_of_two_groups_runs_once(world: HookWorld):
    command = 'echo ran >> "$CLAUDE_PROJECT_DIR/log"'
    world.users(hook("PreToolUse", command, "Write"), hook("PreToolUse", command, "*"))
    world.run(WRITE)
    assert (world.workspace / "log").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ("", True),
        ("*", True),
        ("Write", True),
        ("write", True),
        ("Edit|Write", True),
        ("Wri", False),
        ("W.*e", True),
        ("^Edit$", False),
        ("Notebook.*", False),
        ("(Edit|W.*e)", True),
        ("^(?!mcp__).*$", True),
        ("mcp__.*__w.*", False),
    ],
)
def test_a_matcher_is_a_name_a_choice_or_a_pattern(matcher: str, expected: bool):
    assert matches(matcher, ("Write", "write")) is expected


def test_a_run_without_a_file_has_no_hooks(world: HookWorld):
    found: list[object] = []
    world.claude.parent.mkdir()
    world.claude.write_text('{"model": "opus"}')
    ran = world.run(WRITE, before=lambda host: found.append(host.registry.hooks))
    assert found == [None]
    assert not ran.said
    assert not ran.of(ev.Notice)
