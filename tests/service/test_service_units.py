"""The service: its descriptions, and what happens with the system's manager, played by a small program on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmagent.service.systemd import Service, ServiceError

SYSTEMCTL = """#!{python}
import json, os, sys
folder = {folder!r}
words = [word for word in sys.argv[1:] if not word.startswith("--")]
with open(folder + "/calls", "a") as out:
    out.write(" ".join(words) + "\\n")
refuse = open(folder + "/refuse").read().split() if os.path.exists(folder + "/refuse") else []
if words[0] in refuse:
    sys.exit(f"Failed to {{words[0]}} unit: said no")
on = folder + "/on"
if words[0] in ("enable", "restart"):
    open(on, "w").close()
elif words[0] == "disable" and os.path.exists(on):
    os.unlink(on)
elif words[0] == "is-active":
    print("active" if os.path.exists(on) else "inactive")
    sys.exit(0 if os.path.exists(on) else 3)
elif words[0] == "is-enabled":
    print("enabled" if os.path.exists(on) else "disabled")
"""


@pytest.fixture
def machine(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment whose systemctl is the small program, and the folder in which that keeps its state."""
    state, programs = tmp_path / "state", tmp_path / "bin"
    state.mkdir()
    programs.mkdir()
    program = programs / "systemctl"
    program.write_text(SYSTEMCTL.format(python=sys.executable, folder=str(state)))
    program.chmod(0o755)
    env = {"HOME": str(tmp_path / "home"), "PATH": f"{programs}:{os.environ['PATH']}"}
    return env, state


def test_each_workspace_has_a_service_of_its_own_with_a_readable_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "My Notes", tmp_path / "b" / "My Notes"
    assert Service(first, {}).name.startswith("lmagent-my-notes-")
    assert Service(first, {}).name != Service(second, {}).name
    assert Service(Path("/"), {}).name.startswith("lmagent-")


def test_a_name_with_control_characters_cannot_break_out_of_the_description() -> None:
    with pytest.raises(ServiceError, match="control character"):
        Service(Path("/tmp/x\nExecStartPre=/bin/evil"), {}).unit(())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    "name", ["plain", "with space", 'quo"te', "per%cent", "dol$lar", "back\\slash", "ümlaut", "a#b"]
)
def test_systemd_reads_the_unit_without_a_complaint(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    unit = tmp_path / "lmagent-test.service"
    unit.write_text(Service(folder, {"HOME": "/home/me", "PATH": "/usr/bin"}).unit(("9000",)))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    said = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)], env=env, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")


def test_installing_writes_the_unit_and_starts_it_and_removing_leaves_nothing(
    machine: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    env, state = machine
    service = Service(tmp_path, env)
    service.install(("9000",))
    assert service.file == Path(env["HOME"]) / ".config/systemd/user" / f"{service.name}.service"
    assert service.file.read_text() == service.unit(("9000",))
    now = service.status()
    assert (now.installed, now.running, now.enabled, now.words) == (True, True, True, "active")
    assert service.remove()
    assert not service.file.exists()
    assert not service.status().running
    assert not service.remove()
    assert (state / "calls").read_text().count("daemon-reload") == 2


def test_installing_again_takes_over_new_options(machine: tuple[dict[str, str], Path], tmp_path: Path) -> None:
    env, state = machine
    service = Service(tmp_path, env)
    service.install(("9000",))
    service.install(("9001", "--lan"))
    assert "web 9001 --lan --no-browser" in service.file.read_text()
    assert (state / "calls").read_text().count("restart") == 2


@pytest.mark.parametrize("step", ["enable", "restart", "daemon-reload"])
def test_what_the_manager_refuses_is_told_and_the_unit_can_be_removed(
    machine: tuple[dict[str, str], Path], tmp_path: Path, step: str
) -> None:
    env, state = machine
    (state / "refuse").write_text(step)
    service = Service(tmp_path, env)
    with pytest.raises(ServiceError, match="said no"):
        service.install(())
    (state / "refuse").write_text("nothing")
    assert service.remove()
    assert list((Path(env["HOME"]) / ".config/systemd/user").iterdir()) == []


def test_without_a_manager_nothing_is_written_and_the_way_out_is_named(tmp_path: Path) -> None:
    service = Service(tmp_path, {"HOME": str(tmp_path), "PATH": str(tmp_path)})
    with pytest.raises(ServiceError, match="no systemd of yours runs here") as refusal:
        service.install(())
    assert "lmagent web" in refusal.value.fix
    assert not service.file.parent.exists()
    assert not service.status().installed


def test_only_what_the_service_needs_of_the_environment_goes_into_it() -> None:
    env = {"PATH": "/usr/bin", "LLM_API_KEY": "secret", "AGENT_PIN": "123456", "LANG": "C", "AGENT_DATA_DIR": "/a\nb"}
    unit = Service(Path("/ws"), env).unit(())
    assert [line for line in unit.splitlines() if line.startswith("Environment")] == [
        "Environment=PATH=/usr/bin",
        "Environment=LANG=C",
    ]


def test_the_command_line_installs_asks_and_removes(machine: tuple[dict[str, str], Path], tmp_path: Path) -> None:
    env, _ = machine
    workspace = tmp_path / "ws"
    workspace.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lmagent", "service", *words, "-w", str(workspace)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert run("status").returncode == 1
    assert "no service is installed" in run("remove").stderr
    shown = run("install", "--print", "--port", "9009")
    assert "web 9009 --no-browser" in shown.stdout
    assert run("status").returncode == 1, "printing installs nothing"
    installed = run("install", "--port", "9009", "--lan")
    assert (installed.returncode, installed.stderr) == (0, "")
    assert json.loads(run("status", "--json").stdout)["running"] is True
    assert run("remove").returncode == 0
    assert run("install", "--port", "99999").returncode == 64
