"""Commands that install packages: one question a session opens the registries; the packages stay in the workspace."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from testkit.registries import NOBODY, Registries, registries

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed"),
    pytest.mark.skipif(not Path("/usr/bin/pip").exists(), reason="needs pip of the system: it is not installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: it is not installed"),
]


@pytest.fixture(scope="module")
def local() -> Iterator[Registries]:
    with registries() as found:
        yield found


@pytest.fixture
def workspace(empty_workspace: Path, local: Registries, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of a user whose pip and npm are set up for the local registries."""
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    local.configure(empty_workspace.parent)
    local.asked.clear()
    return empty_workspace


class Ran:
    def __init__(self) -> None:
        self.results: list[str] = []
        self.asked: list[ev.ApprovalRequested] = []
        self.granted: list[str] = []


def run(workspace: Path, *commands: str, answer: bool | None = True, **flags: object) -> Ran:
    """Let the model run commands, or a cell of Python after `>`. The user, if any, answers every question alike."""
    ran = Ran()

    async def main() -> None:
        calls = [call("python", code=each[1:]) if each[0] == ">" else call("shell", command=each) for each in commands]
        with ScriptedServer([*calls, say("Done.")]) as server:
            options = {"llm_url": server.base_url, "permission_mode": "auto", **flags}
            host = await open_host(HostOptions(workspace, options, attended=answer is not None), say=lambda _: None)
            try:
                session = await host.new_session()
                async with anyio.create_task_group() as tasks:

                    def listen(event: ev.Event) -> None:
                        if isinstance(event, ev.ApprovalRequested):
                            ran.asked.append(event)
                            tasks.start_soon(session.send, Approve(approval=event.id, approved=bool(answer)))

                    session.listen(listen)
                    await session.send(Submit(message=user("install it")))
                    await run_until_idle(session)
                ran.granted = list(session.state.grants)
                ran.results = [str(chat.body["messages"][-1]["content"]) for chat in server.chats[1:]]
            finally:
                await host.aclose()

    anyio.run(main)
    return ran


MADE = "python3 -m venv --without-pip .venv &&"
"""An environment without a pip of its own is made quickly; the machine's pip installs into it."""

PIP = "/usr/bin/python3 -m pip --python .venv/bin/python install -q"


@pytest.mark.parametrize(
    "install",
    [f"{MADE} {PIP} tinypkg", pytest.param("python3 -m venv .venv && pip install -q tinypkg", marks=pytest.mark.long)],
)
def test_one_question_opens_the_registries_and_the_packages_stay_in_the_workspace(workspace, install):
    ran = run(
        workspace,
        install,
        "npm install tinypkg >/dev/null && npx tinypkg",
        "sh -c 'python -c \"import tinypkg; print(tinypkg.WORD, tinypkg.__file__)\"'",
        "env | grep -i -e ^https*_proxy -e ^pip_ -e ^npm_; curl -sS http://example.test/ 2>&1",
    )
    assert ran.results[:2] == ["(no output)", "installed"]
    assert ran.results[2] == f"installed {workspace}/.venv/lib/{_python(workspace)}/site-packages/tinypkg.py"
    assert [(asked.tool, asked.summary) for asked in ran.asked] == [
        ("net", "install packages: allow PyPI, npm and Debian's package index for this session?")
    ]
    assert ran.granted == ["net(packages)"]
    assert (workspace / "node_modules" / "tinypkg" / "run.js").is_file()
    assert "Blocked by lmagent: example.test:80 is not on the allow list" in ran.results[3]

    again = run(workspace, ">import tinypkg; tinypkg.WORD", "node_modules/.bin/tinypkg; which python")
    assert again.results == ["=> 'installed'", f"installed\n{workspace}/.venv/bin/python"]
    assert again.asked == []


def _python(workspace: Path) -> str:
    (folder,) = (workspace / ".venv" / "lib").iterdir()
    return folder.name


@pytest.mark.long
def test_listed_packages_are_not_asked_about(workspace):
    ran = run(workspace, f"{MADE} {PIP} tinypkg; python -c 'import tinypkg'", sandbox_hosts=("packages",))
    assert (ran.results, ran.asked) == (["(no output)"], [])


@pytest.mark.parametrize("answer", [None, pytest.param(False, marks=pytest.mark.long)])
def test_a_refusal_names_the_option_and_nothing_is_sent(workspace, local, answer):
    ran = run(workspace, f"{MADE} {PIP} tinypkg", "npm install tinypkg", answer=answer)
    for result in ran.results:
        assert result.endswith(
            "[package registries are not allowed in this session; the user can allow them: --allow-host packages]"
        )
    assert "npm error 403 Blocked by lmagent" in ran.results[1].replace("403 403", "403")
    assert local.asked == []


@pytest.mark.long
def test_rules_answer_for_the_registries_together_and_for_each_host(workspace, local):
    command = f"{MADE} {PIP} tinypkg; python -c 'import tinypkg' && echo there"
    denied = run(workspace, command, permission_deny=(f"effect:net({local.files})",))
    assert "net(packages)" in denied.granted
    assert "403" in denied.results[0]
    assert "/tinypkg-1.0-py3-none-any.whl" not in local.asked
    allowed = run(workspace, command, permission_allow=("net(packages)",))
    assert (allowed.results, allowed.asked) == (["there"], [])


def test_a_registry_cannot_send_the_command_to_another_host(workspace, local):
    ran = run(workspace, f"{MADE} {PIP} elsewhere", sandbox_hosts=("packages",))
    assert f"{NOBODY} is not on the internet and not on the allow list" in ran.results[0]
    assert any(path.startswith("/away/") for path in local.asked)


def test_without_an_environment_pip_is_refused_and_the_result_says_how_to_make_it(workspace, local):
    (refused,) = run(workspace, "pip install tinypkg").results
    assert refused.endswith("which does not exist: python3 -m venv .venv, then the command again]")
    assert local.asked == []


def test_an_environment_of_another_place_is_not_put_on_the_path(workspace):
    (workspace / ".venv" / "bin").mkdir(parents=True)
    (workspace / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV=/home/other{workspace}/.venv\n")
    assert run(workspace, 'echo "$VIRTUAL_ENV"; echo $PATH | grep -c .venv').results == ["\n0\n[exit code 1]"]


def test_a_password_of_the_users_index_stays_outside(workspace, local):
    local.configure(workspace.parent, "name:secret@")
    ran = run(workspace, "env; pip --version", sandbox_hosts=("packages",))
    assert f"PIP_INDEX_URL={local.index}\n" in ran.results[0]
    assert "secret" not in ran.results[0]
