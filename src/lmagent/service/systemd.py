"""systemd: a unit of the user's own manager. Sources: systemd.service(5), systemd.unit(5), systemd.exec(5)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmagent.config.paths import home_dir
from lmagent.service.ask import ask, said_by
from lmagent.service.spec import ServiceError, ServiceSpec, ServiceStatus

STOP = 20
"""Seconds that the gateway has to end; a running turn stays unfinished on record and resumes afterwards."""


class Systemd:
    """The user's systemd.

    `env`: the environment: HOME, XDG_CONFIG_HOME, and the variables by which systemctl finds the manager.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        base = env.get("XDG_CONFIG_HOME", "")
        home = Path(base) if base and Path(base).is_absolute() else home_dir(env) / ".config"
        self.folder = home / "systemd" / "user"

    def describe(self, spec: ServiceSpec) -> str:
        """Return the unit. systemd restarts the program when it fails, not when it was stopped."""
        variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in spec.variables.items())
        folder = str(spec.workspace).replace("%", "%%")
        return (
            "[Unit]\n"
            f"Description=lmagent for {folder}\n"
            "StartLimitIntervalSec=300\n"
            "StartLimitBurst=10\n"
            "\n[Service]\n"
            "Type=exec\n"
            f"ExecStart={' '.join((_quoted(spec.command[0]), *map(_argument, spec.command[1:])))}\n"
            f"WorkingDirectory={folder}\n"
            f"{variables}"
            "Restart=on-failure\n"
            "RestartSec=2\n"
            "KillMode=mixed\n"
            f"TimeoutStopSec={STOP}\n"
            "\n[Install]\n"
            "WantedBy=default.target\n"
        )

    def install(self, spec: ServiceSpec) -> Sequence[str]:
        self._need()
        file = self._file(spec.name)
        before = file.read_text() if file.exists() else None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(self.describe(spec))
        except OSError as error:
            raise ServiceError(f"{file} cannot be written: {error.strerror}", fix=f"see who owns {file}") from None
        try:
            self._call("daemon-reload")
            self._call("enable", spec.name)
            self._call("restart", spec.name)
        except ServiceError:
            if before is None:
                self._run("disable", "--now", spec.name)
                file.unlink(missing_ok=True)
            else:
                file.write_text(before)
            self._run("daemon-reload")
            raise
        return (
            f"installed and started: {file}",
            f"output, with the PIN: journalctl --user -u {spec.name}",
            "it runs while you are logged in; for longer: loginctl enable-linger",
        )

    def remove(self, name: str) -> bool:
        file = self._file(name)
        if not file.exists():
            return False
        self._need()
        self._call("disable", "--now", name)
        file.unlink(missing_ok=True)
        self._call("daemon-reload")
        return True

    def status(self, name: str) -> ServiceStatus:
        file = self._file(name)
        state = self._run("is-active", name)
        enabled = self._run("is-enabled", name)
        words = (state.stdout or state.stderr).strip() or "unknown"
        return ServiceStatus(
            name,
            installed=file.exists(),
            running=state.returncode == 0,
            enabled=enabled.stdout.strip() == "enabled",
            words=words,
            file=str(file),
            log=f"journalctl --user -u {name}",
        )

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.service"

    def _need(self) -> None:
        """Raise ServiceError if no manager runs."""
        asked = self._run("show-environment")
        if asked.returncode != 0:
            why = asked.stderr.strip().splitlines()
            raise ServiceError(
                f"no systemd of yours runs here{f': {why[0]}' if why else ''}",
                fix="log in on the machine itself or over ssh (not by su or in a container), or run: lmagent web",
            )

    def _call(self, *arguments: str) -> None:
        done = self._run(*arguments)
        if done.returncode != 0:
            words = f"systemctl --user {' '.join(arguments)} failed: {said_by(done)}"
            raise ServiceError(words, fix="see journalctl --user -xe")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ask("systemctl", "--user", "--no-pager", *arguments, env=self._env)


def _argument(text: str) -> str:
    """Quote an argument; systemd expands variables in all words but the program's."""
    return _quoted(text.replace("$", "$$"))


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if not text or any(sign in text for sign in " \t;'\"\\#") else text


def variables_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the installing user that a service needs: where programs and settings are."""
    wanted = (
        *("PATH", "LMAGENT_CONFIG", "LMAGENT_CONFIG_JSON", "AGENT_DATA_DIR"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "VIRTUAL_ENV", "LANG"),
    )
    return {name: env[name] for name in wanted if env.get(name) and os.linesep not in env[name]}
