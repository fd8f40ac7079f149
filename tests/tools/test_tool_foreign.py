"""What models write for the tools of other agents, and what becomes of it."""

import pytest

from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.engine.toolbox import Toolbox


@pytest.fixture
def box(hands) -> Toolbox:
    return Toolbox(hands.tools.values())


@pytest.mark.parametrize(
    ("tool", "raw", "wanted"),
    [
        ("read", '{"path": "a", "start_line": 10, "end_line": 20}', {"offset": 10, "limit": 11}),
        ("read", '{"path": "a", "end_line": "20"}', {"offset": 1, "limit": 20}),
        ("view", '{"path": "a", "view_range": [5, 7]}', {"offset": 5, "limit": 3}),
        ("view", '{"path": "a", "view_range": [5, -1]}', {"offset": 5, "limit": 0}),
        ("Read", '{"filePath": "a", "encoding": "UTF-8"}', {"path": "a"}),
        ("write", '{"path": "a", "content": "x", "mode": "overwrite", "create_dirs": true}', {"content": "x"}),
        ("write", '{"path": "a", "content": 5}', {"content": "5"}),
        ("write", '{"path": "a", "content": "x", "append": true}', {"mode": "append"}),
        ("glob", '{"pattern": "*.py", "path": "src/"}', {"pattern": "src/*.py"}),
        ("glob", '{"pattern": "*.py", "path": "."}', {"pattern": "*.py"}),
        ("grep", '{"pattern": "a.b", "path": "src", "-i": true}', {"pattern": r"(?i)a\.b", "regex": True}),
        ("grep", '{"pattern": "a|b", "regex": true, "case_sensitive": false}', {"pattern": "(?i)a|b", "paths": []}),
        ("Grep", '{"pattern": "a", "output_mode": "content", "-n": true, "-C": 2}', {"pattern": "a", "context": 2}),
        ("ls", '{"path": "a", "recursive": false}', {"path": "a", "depth": 1}),
        ("list_files", '{"path": "a", "recursive": true}', {"path": "a", "depth": 10}),
        ("list_files", '{"path": "a", "recursive": true, "max_depth": 3}', {"path": "a", "depth": 3}),
        ("list_directory", '{"path": "a", "max_depth": "2"}', {"path": "a", "depth": 2}),
        ("mkdir", '{"path": "a", "parents": true}', {"path": "a"}),
    ],
)
def test_what_our_tools_can_do_is_done_as_it_was_asked_for(box: Toolbox, tool: str, raw: str, wanted: dict) -> None:
    arguments = box.resolve(ToolCall("1", tool, raw)).arguments
    assert {name: getattr(arguments, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("tool", "raw", "named"),
    [
        ("write", '{"path": "a", "content": "x", "insert_line": 3}', "insert_line"),
        ("write", '{"path": "a", "content": "x", "append": "at line 3"}', "append"),
        ("write", '{"path": "a", "content": "x", "overwrite": false}', "overwrite"),
        ("write", '{"path": "a", "content": "x", "encoding": "latin-1"}', "encoding"),
        ("read", '{"path": "a", "offset": 20, "end_line": 10}', "end_line"),
        ("ls", '{"path": "a", "recursive": "all"}', "recursive"),
        ("glob", '{"pattern": "*.py", "path": "s*"}', "path"),
        ("grep", '{"pattern": "a", "output_mode": "count"}', "output_mode"),
        ("get_time", '{"timezone": "UTC"}', "timezone"),
    ],
)
def test_what_they_cannot_do_is_refused_by_its_name_and_nothing_is_done(
    box: Toolbox, tool: str, raw: str, named: str
) -> None:
    with pytest.raises(ToolError, match=f"{tool} has no argument '{named}'") as refusal:
        box.resolve(ToolCall("1", tool, raw))
    assert "Nothing was run" in refusal.value.message


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        ('{"command": "make", "cwd": "my src"}', "cd 'my src' && make"),
        ('{"command": "make", "max_memory_mb": "200"}', "ulimit -Sv 204800 2>/dev/null\nmake"),
        (
            '{"command": "make", "max_memory_mb": 1, "cwd": "src"}',
            "cd src || exit 1\nulimit -Sv 1024 2>/dev/null\nmake",
        ),
        ('{"command": "a\\nb", "workdir": "src"}', "cd src || exit 1\na\nb"),
        ('{"command": "ls", "description": "List files"}', "ls"),
    ],
)
def test_a_command_for_another_folder_goes_there_first(raw: str, command: str) -> None:
    from lmagent.tools.shell import ShellRunner, shell_tool

    box = Toolbox([shell_tool(ShellRunner(None, None, None, None))])
    assert box.resolve(ToolCall("1", "Bash", raw)).arguments.command == command
