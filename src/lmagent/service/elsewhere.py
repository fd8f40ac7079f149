"""Elsewhere: launchd's agent and Windows' scheduled task. Written by their documentation; not run by our tests.

Sources: launchd.plist(5), launchctl(1); the Task Scheduler schema 1.2 and schtasks.exe.
"""

from __future__ import annotations

import getpass
import os
import plistlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from lmagent.config.paths import home_dir
from lmagent.service.ask import ask, said_by
from lmagent.service.spec import ServiceError, ServiceSpec, ServiceStatus


class Launchd:
    """macOS.

    Args:
        env: the environment; HOME.
        user: the user's number, whose session launchd serves.
    """

    def __init__(self, env: Mapping[str, str], user: int) -> None:
        self.folder = home_dir(env) / "Library" / "LaunchAgents"
        self._domain = f"gui/{user}"

    def describe(self, spec: ServiceSpec) -> str:
        """Return the property list. launchd restarts the program when it fails, not when it was stopped."""
        fields = {
            "Label": spec.name,
            "ProgramArguments": list(spec.command),
            "WorkingDirectory": str(spec.workspace),
            "EnvironmentVariables": dict(spec.variables),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Interactive",
            "StandardOutPath": str(spec.log),
            "StandardErrorPath": str(spec.log),
        }
        return plistlib.dumps(fields).decode()

    def install(self, spec: ServiceSpec) -> Sequence[str]:
        file = self._file(spec.name)
        _write(file, self.describe(spec), spec.log.parent)
        ask("launchctl", "bootout", f"{self._domain}/{spec.name}")  # remove an older one, if it exists
        done = ask("launchctl", "bootstrap", self._domain, str(file))
        if done.returncode != 0:
            file.unlink(missing_ok=True)
            raise _refused("launchctl bootstrap", done)
        return (f"installed and started: {file}", f"output, with the PIN: {spec.log}")

    def remove(self, name: str) -> bool:
        file = self._file(name)
        if not file.exists():
            return False
        ask("launchctl", "bootout", f"{self._domain}/{name}")
        file.unlink(missing_ok=True)
        return True

    def status(self, name: str) -> ServiceStatus:
        file = self._file(name)
        asked = ask("launchctl", "print", f"{self._domain}/{name}")
        running = asked.returncode == 0 and "state = running" in asked.stdout
        log = plistlib.loads(file.read_bytes()).get("StandardOutPath", "") if file.exists() else ""
        words = "running" if running else "loaded" if asked.returncode == 0 else "not loaded"
        return ServiceStatus(name, file.exists(), running, asked.returncode == 0, words, str(file), str(log))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.plist"


class ScheduledTask:
    """Windows: a task that runs from the user's login on. `env`: the environment: SYSTEMROOT."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._program = str(Path(env.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "schtasks.exe")

    def describe(self, spec: ServiceSpec) -> str:
        user = escape(getpass.getuser())
        program, *arguments = spec.command
        return (
            '<?xml version="1.0" encoding="UTF-16"?>\n'
            '<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">\n'
            f"  <RegistrationInfo><Description>lmagent for {escape(str(spec.workspace))}</Description>"
            "</RegistrationInfo>\n"
            f"  <Triggers><LogonTrigger><UserId>{user}</UserId></LogonTrigger></Triggers>\n"
            f'  <Principals><Principal id="me"><UserId>{user}</UserId><LogonType>InteractiveToken</LogonType>'
            "<RunLevel>LeastPrivilege</RunLevel></Principal></Principals>\n"
            "  <Settings><MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>"
            "<DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>"
            "<StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>"
            "<ExecutionTimeLimit>PT0S</ExecutionTimeLimit>"
            "<RestartOnFailure><Interval>PT1M</Interval><Count>10</Count></RestartOnFailure></Settings>\n"
            f'  <Actions Context="me"><Exec><Command>{escape(program)}</Command>'
            f"<Arguments>{escape(subprocess.list2cmdline(arguments))}</Arguments>"
            f"<WorkingDirectory>{escape(str(spec.workspace))}</WorkingDirectory></Exec></Actions>\n"
            "</Task>\n"
        )

    def install(self, spec: ServiceSpec) -> Sequence[str]:
        handle, name = tempfile.mkstemp(suffix=".xml")
        os.close(handle)
        file = Path(name)
        try:
            file.write_text(self.describe(spec), encoding="utf-16")
            done = ask(self._program, "/Create", "/F", "/TN", spec.name, "/XML", str(file))
        finally:
            file.unlink(missing_ok=True)
        if done.returncode != 0:
            raise _refused("schtasks /Create", done)
        started = ask(self._program, "/Run", "/TN", spec.name)
        if started.returncode != 0:
            ask(self._program, "/Delete", "/F", "/TN", spec.name)
            raise _refused("schtasks /Run", started)
        return (f"installed and started: the task {spec.name}", "set AGENT_PIN: a task's output is shown nowhere")

    def remove(self, name: str) -> bool:
        if ask(self._program, "/Query", "/TN", name).returncode != 0:
            return False
        ask(self._program, "/End", "/TN", name)
        done = ask(self._program, "/Delete", "/F", "/TN", name)
        if done.returncode != 0:
            raise _refused("schtasks /Delete", done)
        return True

    def status(self, name: str) -> ServiceStatus:
        asked = ask(self._program, "/Query", "/TN", name, "/FO", "CSV", "/NH")
        there = asked.returncode == 0
        words = asked.stdout.strip().rpartition(",")[2].strip('"') if there else "not installed"
        return ServiceStatus(
            name, there, words == "Running", there and words != "Disabled", words, f"task {name}", "none"
        )


def _write(file: Path, text: str, logs: Path) -> None:
    try:
        logs.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise ServiceError(f"{file} cannot be written: {error.strerror}", fix=f"see who owns {file.parent}") from None


def _refused(what: str, done: subprocess.CompletedProcess[str]) -> ServiceError:
    return ServiceError(f"{what} failed: {said_by(done)}", fix="run `lmagent web` by hand to see whether it starts")
