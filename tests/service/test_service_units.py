"""The service: its descriptions, and what happens with the system's manager, played by a small program on PATH."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lmagent.service.elsewhere import Launchd, ScheduledTask
from lmagent.service.spec import ServiceError, ServiceSpec, name_for, spec_for
from lmagent.service.systemd import Systemd, variables_of

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


def spec(folder: Path) -> ServiceSpec:
    return spec_for(folder, ("9000",), folder / "data", {"PATH": "/usr/bin"})


def test_each_workspace_has_a_service_of_its_own_with_a_readable_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "My Notes", tmp_path / "b" / "My Notes"
    assert name_for(first).startswith("lmagent-my-notes-")
    assert name_for(first) != name_for(second)
    assert name_for(Path("/")).startswith("lmagent-")


def test_a_name_with_control_characters_cannot_break_out_of_the_description() -> None:
    with pytest.raises(ServiceError, match="control character"):
        spec(Path("/tmp/x\nExecStartPre=/bin/evil"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    "name", ["plain", "with space", 'quo"te', "per%cent", "dol$lar", "back\\slash", "ümlaut", "a#b"]
)
def test_systemd_reads_the_unit_without_a_complaint(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    unit = tmp_path / "lmagent-test.service"
    unit.write_text(Systemd({"HOME": "/home/me"}).describe(spec(folder)))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    said = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)], env=env, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")


def test_installing_writes_the_unit_and_starts_it_and_removing_leaves_nothing(
    machine: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    env, state = machine
    manager, wanted = Systemd(env), spec(tmp_path)
    told = manager.install(wanted)
    file = Path(env["HOME"]) / ".config/systemd/user" / f"{wanted.name}.service"
    assert file.read_text() == manager.describe(wanted)
    assert any("PIN" in line and wanted.name in line for line in told)
    now = manager.status(wanted.name)
    assert (now.installed, now.running, now.enabled, now.words) == (True, True, True, "active")
    assert manager.remove(wanted.name)
    assert not file.exists()
    assert not manager.status(wanted.name).running
    assert not manager.remove(wanted.name)
    assert (state / "calls").read_text().count("daemon-reload") == 2


def test_installing_again_takes_over_new_options(machine: tuple[dict[str, str], Path], tmp_path: Path) -> None:
    env, state = machine
    manager = Systemd(env)
    manager.install(spec(tmp_path))
    manager.install(spec_for(tmp_path, ("9001", "--lan"), tmp_path, {}))
    unit = next((Path(env["HOME"]) / ".config/systemd/user").iterdir())
    assert "web 9001 --lan --no-browser" in unit.read_text()
    assert (state / "calls").read_text().count("restart") == 2


@pytest.mark.parametrize("step", ["enable", "restart", "daemon-reload"])
def test_what_the_manager_refuses_is_taken_away_again_and_told(
    machine: tuple[dict[str, str], Path], tmp_path: Path, step: str
) -> None:
    env, state = machine
    (state / "refuse").write_text(step)
    with pytest.raises(ServiceError, match="said no"):
        Systemd(env).install(spec(tmp_path))
    assert list((Path(env["HOME"]) / ".config/systemd/user").iterdir()) == []


def test_a_failed_change_of_options_leaves_the_older_unit_in_place(
    machine: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    env, state = machine
    manager = Systemd(env)
    manager.install(spec(tmp_path))
    before = next(manager.folder.iterdir()).read_text()
    (state / "refuse").write_text("restart")
    with pytest.raises(ServiceError):
        manager.install(spec_for(tmp_path, ("9001",), tmp_path, {}))
    assert next(manager.folder.iterdir()).read_text() == before


def test_without_a_manager_nothing_is_written_and_the_way_out_is_named(tmp_path: Path) -> None:
    manager = Systemd({"HOME": str(tmp_path), "PATH": str(tmp_path)})
    with pytest.raises(ServiceError, match="no systemd of yours runs here") as refusal:
        manager.install(spec(tmp_path))
    assert "lmagent web" in refusal.value.fix
    assert not manager.folder.exists()
    assert not manager.status("lmagent-x").installed


def test_only_what_the_service_needs_of_the_environment_goes_into_it() -> None:
    env = {"PATH": "/usr/bin", "LLM_API_KEY": "secret", "AGENT_PIN": "123456", "LANG": "C", "AGENT_DATA_DIR": "/a\nb"}
    assert variables_of(env) == {"PATH": "/usr/bin", "LANG": "C"}


def test_launchds_property_list_holds_the_command_word_for_word(tmp_path: Path) -> None:
    wanted = spec(tmp_path / "a <b> & c")
    fields = plistlib.loads(Launchd({"HOME": str(tmp_path)}, 501).describe(wanted).encode())
    assert fields["ProgramArguments"] == list(wanted.command)
    assert fields["KeepAlive"] == {"SuccessfulExit": False}


def test_windows_task_is_well_formed_and_never_times_out(tmp_path: Path) -> None:
    wanted = spec(tmp_path / "a <b> & c")
    text = ScheduledTask({}).describe(wanted).partition("\n")[2]
    root = ElementTree.fromstring(text)
    space = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    assert root.findtext("t:Actions/t:Exec/t:Command", namespaces=space) == sys.executable
    assert "a <b> & c" in (root.findtext("t:Actions/t:Exec/t:Arguments", namespaces=space) or "")
    assert root.findtext("t:Settings/t:ExecutionTimeLimit", namespaces=space) == "PT0S"


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
