"""Which servers are configured: files, shapes, levels, trust, and what a damaged file or entry loses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from lmagent.config.settings import Settings
from lmagent.config.trust import trust
from lmagent.core.errors import ConfigError
from lmagent.mcp.config import LoadedServers, load_servers, remove_server, user_file, workspace_file, write_server
from lmagent.mcp.spec import Needs, ServerSpec


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LMAGENT_CONFIG", raising=False)
    (tmp_path / "work").mkdir()
    return Settings(agent_data_dir=tmp_path / "data", workspace=tmp_path / "work")


def written(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def names(loaded: LoadedServers) -> list[str]:
    return [spec.name for spec in loaded.specs]


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"fetch": {"command": "python", "args": ["-m", "mcp_server_fetch"], "env": {"A": "b"}}}}',
        '{"servers": {"fetch": {"type": "stdio", "command": "python", "args": ["-m", "mcp_server_fetch"],'
        ' "env": {"A": "b"}}}, "inputs": []}',
        '\ufeff// mine\n{"servers": { /* one */ "fetch": {"command": "python",\n'
        ' "args": ["-m", "mcp_server_fetch", ], "env": {"A": "b"},},},}',
    ],
)
def test_the_shapes_of_earlier_agents_claude_and_editors_are_read(settings: Settings, text: str) -> None:
    file = written(user_file(), text)
    loaded = load_servers(settings.workspace, settings)
    assert loaded.problems == ()
    assert loaded.specs == (
        ServerSpec("fetch", ("python", "-m", "mcp_server_fetch"), {"A": "b"}, file=file, scope="user"),
    )


def test_comments_and_commas_inside_of_texts_stay(settings: Settings) -> None:
    written(user_file(), '{"mcpServers": {"a": {"command": "x", "args": ["http://h//p", "[1,]", "/* no */"]}}}')
    assert load_servers(settings.workspace, settings).specs[0].command == ("x", "http://h//p", "[1,]", "/* no */")


def test_a_server_with_an_address_and_what_a_program_needs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    written(
        user_file(),
        {
            "mcpServers": {
                "far": {"type": "http", "url": "https://h.example/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
                "near": {
                    "command": "npx",
                    "args": ["${env:KEY}", "${NO_SUCH:-x}", "${workspaceFolder}"],
                    "network": ["packages", "api.example.com:443"],
                    "paths": ["~/notes:rw", "../other"],
                    "start_timeout": 90,
                    "call_timeout": 5,
                },
                "off": {"command": "x", "disabled": True, "env": {"A": "${NO_SUCH}"}},
            }
        },
    )
    loaded = load_servers(settings.workspace, settings)
    assert loaded.problems == ()
    far, near, off = loaded.specs
    assert (far.url, far.headers) == ("https://h.example/mcp", {"Authorization": "Bearer s3cret"})
    assert near.command == ("npx", "s3cret", "x", str(settings.workspace))
    home = Path(os.environ["HOME"])
    assert near.needs == Needs(
        ("packages", "api.example.com:443"), (f"{home}/notes:rw", str(settings.workspace / "../other"))
    )
    assert (near.start_timeout, near.call_timeout) == (90, 5)
    assert not off.enabled


def test_a_broken_file_names_file_and_line_and_loses_only_its_own_servers(settings: Settings) -> None:
    written(user_file(), {"mcpServers": {"good": {"command": "x"}}})
    broken = written(settings.workspace / ".mcp.json", '{"mcpServers": {\n  "a": {"command": "x"\n  "b": {}\n}}')
    trust(settings.agent_data_dir, settings.workspace)
    loaded = load_servers(settings.workspace, settings)
    assert names(loaded) == ["good"]
    (problem,) = loaded.problems
    assert (problem.file, problem.line) == (broken, 3)
    assert str(problem).startswith(f"{broken}:3: it is not valid JSON: ")
    assert "\n  → " in str(problem)


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": []}', "\x00", "[" * 100_000, '{"mcpServers": 3}', "\udcff"])
def test_a_file_of_another_form_is_a_problem_and_no_error(settings: Settings, text: str) -> None:
    file = user_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    loaded = load_servers(settings.workspace, settings)
    assert loaded.specs == ()
    assert [problem.line for problem in loaded.problems] == [1]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "neither a command nor a url"),
        ({"command": "x", "url": "http://h"}, "both a command and a url"),
        ({"command": 3}, "Expected str, got int - at $.command"),
        ({"command": "x", "args": "-y"}, "Expected array"),
        ("npx", "Expected object"),
        ({"type": "sse", "url": "http://h"}, "replaced by streamable HTTP"),
        ({"url": "ftp://h"}, "is no address"),
        ({"url": "http://h", "unconfined": True}, "are for programs"),
        ({"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}, "the variable NO_SUCH_VARIABLE is not set"),
        ({"command": "x", "args": ["${input:key}"]}, "only editors do"),
        ({"command": "x", "network": ["http://h"]}, "cannot be allowed"),
        ({"command": "x", "paths": ["/:rw"]}, "the whole file system"),
        ({"command": "x", "start_timeout": 0}, "Expected float"),
    ],
)
def test_a_broken_entry_loses_only_itself(settings: Settings, entry: object, said: str) -> None:
    written(user_file(), {"mcpServers": {"good": {"command": "x"}, "bad one": entry, "later": {"command": "y"}}})
    loaded = load_servers(settings.workspace, settings)
    assert names(loaded) == ["good", "later"]
    (problem,) = loaded.problems
    assert said in problem.text
    assert "'bad one'" in problem.text
    assert problem.line == next(
        number for number, line in enumerate(problem.file.read_text().splitlines(), 1) if "bad one" in line
    )
    assert problem.fix


def test_a_name_that_could_deceive_is_refused(settings: Settings) -> None:
    written(user_file(), {"mcpServers": {name: {"command": "x"} for name in ("a\x1b[2J", "b" * 65, "c__d")}})
    loaded = load_servers(settings.workspace, settings)
    assert loaded.specs == ()
    assert ["its name cannot be used" in problem.text for problem in loaded.problems] == [True] * 3


def test_a_workspace_may_not_replace_a_server_of_the_user(settings: Settings) -> None:
    mine = written(user_file(), {"mcpServers": {"git": {"command": "mine"}}})
    theirs = written(workspace_file(settings.workspace), {"mcpServers": {"git": {"command": "theirs"}}})
    written(settings.workspace / ".mcp.json", {"mcpServers": {"git": {"command": "mine"}}})
    trust(settings.agent_data_dir, settings.workspace)
    loaded = load_servers(settings.workspace, settings)
    assert [spec.command for spec in loaded.specs] == [("mine",)]
    (problem,) = loaded.problems  # an equal entry is no problem
    assert problem.file == theirs
    assert str(mine) in problem.text
    assert loaded.untrusted == {}


def test_a_workspaces_servers_are_untrusted_until_the_user_trusts_the_content(settings: Settings) -> None:
    workspace = settings.workspace
    for file, name in ((".lmagent/mcp.json", "ours"), (".mcp.json", "claude"), (".vscode/mcp.json", "code")):
        written(workspace / file, {"mcpServers": {name: {"command": "${NO_SUCH:-x}", "env": {"A": "${HOME}"}}}})
    loaded = load_servers(workspace, settings)
    assert loaded.problems == ()
    assert {spec.command for spec in loaded.specs} == {("${NO_SUCH:-x}",)}  # an untrusted file gets no variable
    assert set(loaded.untrusted) == {"ours", "claude", "code"}
    assert "a folder you do not trust" in loaded.untrusted["claude"]

    assert ".mcp.json" in trust(settings.agent_data_dir, workspace)
    assert "claude" not in load_servers(workspace, settings).untrusted

    written(workspace / ".mcp.json", {"mcpServers": {"claude": {"command": "worse"}}})
    assert "has changed since you trusted the folder" in load_servers(workspace, settings).untrusted["claude"]


def test_without_mcp_nothing_is_read(settings: Settings) -> None:
    written(user_file(), "{broken")
    assert load_servers(settings.workspace, replace(settings, enable_mcp=False)) == LoadedServers()


def test_a_server_is_written_read_back_and_removed_and_the_rest_of_the_file_stays(settings: Settings) -> None:
    file = written(
        workspace_file(settings.workspace), {"mine": [1], "servers": {"old": {"command": "o", "gallery": 1}}}
    )
    spec = ServerSpec(
        "new", ("npx", "-y", "pkg"), {"A": "${HOME}"}, "sub", needs=Needs(("packages",), ("/srv",)), start_timeout=60
    )
    write_server(file, spec)
    write_server(file, ServerSpec("far", url="https://h.example/mcp", headers={"X": "y"}))
    trust(settings.agent_data_dir, settings.workspace)
    loaded = load_servers(settings.workspace, settings)
    assert names(loaded) == ["far", "new", "old"]
    expected = replace(spec, file=file, scope="workspace", env={"A": os.environ["HOME"]})
    assert loaded.specs[1] == expected
    assert remove_server(file, "new")
    assert not remove_server(file, "new")
    assert json.loads(file.read_text()) == {
        "mine": [1],
        "servers": {
            "old": {"command": "o", "gallery": 1},
            "far": {"type": "http", "url": "https://h.example/mcp", "headers": {"X": "y"}},
        },
    }
    assert not remove_server(user_file(), "new")


def test_a_file_that_would_lose_something_is_not_written(settings: Settings) -> None:
    file = user_file()
    for text, said in (
        ("{} // mine", "has comments"),
        ("{", ":1: it is not valid JSON"),
        ('{"servers": 1}', "servers"),
    ):
        written(file, text)
        with pytest.raises(ConfigError, match=said):
            write_server(file, ServerSpec("a", ("x",)))
        assert file.read_text() == text
    file.unlink()
    with pytest.raises(ConfigError, match="neither a command nor a url"):
        write_server(file, ServerSpec("a"))
    assert not file.exists()
    write_server(file, ServerSpec("a", ("x",)))
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("other", ["GitHub", "git.hub", "mcp-github", "github"])
@pytest.mark.parametrize("own", [{"command": "x"}, {"command": "x", "env": {"A": "${env:NOT_SET_ANYWHERE}"}}])
def test_no_server_of_a_folder_comes_under_the_rules_for_one_of_the_user(
    settings: Settings, other: str, own: dict[str, object]
) -> None:
    mine = "git-hub" if other == "git.hub" else "github"
    written(user_file(), {"mcpServers": {mine: own}})
    written(workspace_file(settings.workspace), {"mcpServers": {other: {"command": "evil"}, "calm": {"command": "y"}}})
    trust(settings.agent_data_dir, settings.workspace)
    loaded = load_servers(settings.workspace, settings)
    assert {spec.name: spec.command for spec in loaded.specs if spec.name != "calm"} in ({}, {mine: ("x",)})
    assert "could not tell them apart" in str(loaded.problems) or "is left out" in str(loaded.problems)


def test_while_the_users_own_file_is_damaged_no_server_of_a_folder_takes_a_name_in_it(settings: Settings) -> None:
    written(user_file(), '{"mcpServers": {"github": ')
    written(workspace_file(settings.workspace), {"mcpServers": {"github": {"command": "evil"}}})
    trust(settings.agent_data_dir, settings.workspace)
    loaded = load_servers(settings.workspace, settings)
    assert loaded.specs == ()
    assert "no server is used until then" in str(loaded.problems[0])
