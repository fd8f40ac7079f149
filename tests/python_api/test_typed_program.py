"""The program that the type checker reads works, and importing the API costs little."""

from __future__ import annotations

import subprocess
import sys

from typed_program import main

from lmagent.testing import ScriptedServer, call, say

LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def loaded(statement: str) -> set[str]:
    run = subprocess.run([sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_a_typed_program_works_as_it_is_written(empty_workspace):
    script = [call("stock", item="lamp"), say("3 in stock"), say("3"), say('{"total": 5}')]
    with ScriptedServer(script) as server:
        assert main(str(empty_workspace), server.base_url) == ("3 in stock", 5.0)
        assert server.left == 0


def test_importing_the_package_loads_nothing_but_itself():
    assert loaded("import lmagent") == {"lmagent"}


def test_importing_the_api_loads_no_event_loop_no_client_and_no_server():
    modules = loaded("from lmagent import Agent, tool; Agent(tools=[])")
    heavy = {"asyncio", "anyio", "httpcore", "starlette", "jsonschema", "pydantic", "sqlite3", "rich", "prompt_toolkit"}
    assert {name.partition(".")[0] for name in modules} & heavy == set()
    assert not [name for name in modules if name.startswith(("lmagent.app", "lmagent.providers", "lmagent.store"))]


def test_every_name_of_the_package_can_be_imported():
    loaded("import lmagent; [getattr(lmagent, name) for name in dir(lmagent)]")
    run = subprocess.run(
        [sys.executable, "-c", "from lmagent import Agnet"], capture_output=True, text=True, check=False
    )
    assert "cannot import name 'Agnet' from 'lmagent'" in run.stderr
