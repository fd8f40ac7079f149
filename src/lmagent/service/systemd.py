"""systemd: a unit of the user's own manager that keeps `lmagent web` running.

Sources: systemd.service(5), systemd.unit(5), systemd.exec(5).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from lmagent.config.paths import home_dir
from lmagent.core.errors import LmagentError

STOP = 20
"""Seconds that the gateway has to end; a running turn stays unfinished on record and resumes afterwards."""

PATIENCE = 30.0
"""Seconds that systemctl may take."""

_PASSED_ON = (
    *("PATH", "LMAGENT_CONFIG", "LMAGENT_CONFIG_JSON", "AGENT_DATA_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "VIRTUAL_ENV", "LANG"),
)
"""Variables of the installing user that a service needs: where programs and settings are."""


class ServiceError(LmagentError):
    pass


class ServiceStatus(Struct, frozen=True):
    """systemd's report.

    Attributes:
        installed: its unit exists.
        enabled: it is started with the user's login.
        words: systemd's own.
        file: its unit.
        log: how to read its output.
    """

    name: str
    installed: bool
    running: bool
    enabled: bool
    words: str
    file: str
    log: str


class Service:
    """The service of a workspace, which is an absolute path.

    `env`: the environment: HOME, XDG_CONFIG_HOME, and the variables by which systemctl finds the manager.
    """

    def __init__(self, workspace: Path, env: Mapping[str, str]) -> None:
        words = re.sub(r"[^a-z0-9]+", "-", workspace.name.lower()).strip("-")[:24]
        mark = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        self.name = "-".join(part for part in ("lmagent", words, mark) if part)
        self._workspace = workspace
        self._env = env
        base = env.get("XDG_CONFIG_HOME", "")
        home = Path(base) if base and Path(base).is_absolute() else home_dir(env) / ".config"
        self.file = home / "systemd" / "user" / f"{self.name}.service"
        self.log = f"journalctl --user -u {self.name}"

    def unit(self, arguments: Sequence[str]) -> str:
        """Return the unit, with further arguments of `lmagent web`.

        systemd restarts the program when it fails, not when it was stopped.
        """
        program, *words = (sys.executable, "-m", "lmagent", "web", *arguments, "--no-browser", "-w")
        command = [*words, str(self._workspace)]
        if bad := next((part for part in command if re.search(r"[\x00-\x1f\x7f]", part)), None):
            raise ServiceError(f"{bad!r} holds a control character, which no service description can", fix="rename it")
        variables = "".join(
            f"Environment={_quoted(f'{name}={self._env[name]}')}\n"
            for name in _PASSED_ON
            if self._env.get(name) and "\n" not in self._env[name]
        )
        folder = str(self._workspace).replace("%", "%%")
        return (
            "[Unit]\n"
            f"Description=lmagent for {folder}\n"
            "StartLimitIntervalSec=300\n"
            "StartLimitBurst=10\n"
            "\n[Service]\n"
            "Type=exec\n"
            # systemd expands variables in all words but the program's.
            f"ExecStart={_quoted(program)} {' '.join(_quoted(word.replace('$', '$$')) for word in command)}\n"
            f"WorkingDirectory={folder}\n"
            f"{variables}"
            "Restart=on-failure\n"
            "RestartSec=2\n"
            "KillMode=mixed\n"
            f"TimeoutStopSec={STOP}\n"
            "\n[Install]\n"
            "WantedBy=default.target\n"
        )

    def install(self, arguments: Sequence[str]) -> None:
        """Write the unit and start the service.

        Raises ServiceError if no systemd runs, or it refuses; the unit stays then, so that systemd can be asked why.
        """
        self._need_manager()
        unit = self.unit(arguments)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(unit)
        except OSError as error:
            fix = f"see who owns {self.file}"
            raise ServiceError(f"{self.file} cannot be written: {error.strerror}", fix=fix) from None
        self._call("daemon-reload")
        self._call("enable", self.name)
        self._call("restart", self.name)

    def remove(self) -> bool:
        """Stop it and remove its unit; False if it was not installed. Raises ServiceError if systemd refuses."""
        if not self.file.exists():
            return False
        self._need_manager()
        self._call("disable", "--now", self.name)
        self.file.unlink(missing_ok=True)
        self._call("daemon-reload")
        return True

    def status(self) -> ServiceStatus:
        state = self._ask("is-active", self.name)
        words = (state.stdout or state.stderr).strip() or "unknown"
        enabled = self._ask("is-enabled", self.name).stdout.strip() == "enabled"
        running = state.returncode == 0
        return ServiceStatus(self.name, self.file.exists(), running, enabled, words, str(self.file), self.log)

    def _need_manager(self) -> None:
        asked = self._ask("show-environment")
        if asked.returncode != 0:
            why = asked.stderr.strip().splitlines()
            raise ServiceError(
                f"no systemd of yours runs here{f': {why[0]}' if why else ''}",
                fix="log in on the machine itself or over ssh (not by su or in a container), or run: lmagent web",
            )

    def _call(self, *arguments: str) -> None:
        done = self._ask(*arguments)
        if done.returncode != 0:
            why = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise ServiceError(f"systemctl --user {' '.join(arguments)} failed: {why}", fix=f"see {self.log}")

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call systemctl; a missing or silent program is an exit code like any other."""
        try:
            return subprocess.run(
                ("systemctl", "--user", "--no-pager", *arguments),
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess((), 127, "", f"systemctl cannot be run: {error}")


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if not text or any(sign in text for sign in " \t;'\"\\#") else text
