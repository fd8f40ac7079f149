"""`--config FILE`: a `config.json` of agent_computer, read in place by every command."""

from __future__ import annotations

import json

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

KEY = "sk-a-very-secret-key-0123456789"


def put(program, **model: str) -> None:
    document = {"agent": {"model": {"provider": "lmstudio", **model}, "max_loop_iterations": 7}}
    (program.workspace / "agent.json").write_text(json.dumps(document))


def test_a_task_goes_to_the_server_and_model_of_the_named_file(program):
    with ScriptedServer([say("Hello.")]) as server:
        put(program, base_url=f"{server.base_url}/v1", model_id="from-json", api_key=KEY)
        run = program.run("--config", "agent.json", "say hello")
    assert (run.returncode, run.stdout) == (0, "Hello.\n")
    assert [request.body["model"] for request in server.requests if request.body] == ["from-json"]
    assert KEY not in run.stderr


def test_config_names_the_file_as_the_origin_and_never_shows_the_key(program):
    put(program, model_id="from-json", api_key=KEY)
    for arguments in (("config", "--config", "agent.json", "--origin"), ("--config=agent.json", "config", "--origin")):
        run = program.run(*arguments)
        assert run.returncode == 0, run.stderr
        assert "agent.model.model_id in " in run.stdout
        assert "agent.json" in run.stdout
        assert KEY not in run.stdout + run.stderr
    assert "from-json" not in program.run("config").stdout


def test_a_broken_file_is_an_error_in_two_lines(program):
    (program.workspace / "agent.json").write_text('{"agent": {"max_loop_iterations": "many"}}')
    run = program.run("config", "--config", "agent.json")
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 2
    assert "agent.max_loop_iterations in " in run.stderr
    assert "must be a whole number" in run.stderr


def test_a_folder_is_trusted_with_its_config_json(program):
    (program.workspace / "config.json").write_text('{"agent": {"model": {"model_id": "from-json"}}}')
    assert "config.json is not read" in program.run("config").stdout
    assert "config.json" in program.run("config", "trust").stdout
    assert "from-json" in program.run("config").stdout


def test_trust_is_taken_back_for_a_folder_by_its_name_even_when_the_folder_is_gone(program):
    folder = str(program.workspace)
    (program.workspace / "config.json").write_text('{"agent": {"model": {"model_id": "from-json"}}}')
    assert "trusted" in program.run("config", "trust", folder).stdout
    assert "no longer trusted" in program.run("config", "untrust", folder).stdout
    assert "config.json is not read" in program.run("config").stdout
    assert "was not trusted" in program.run("config", "untrust").stdout
    gone = program.workspace / "gone"
    gone.mkdir()
    assert program.run("config", "trust", str(gone)).returncode == 0
    gone.rmdir()
    assert "no longer trusted" in program.run("config", "untrust", str(gone)).stdout
