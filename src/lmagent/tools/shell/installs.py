"""Commands that install packages: where the packages go, and how the programs are led there.

Packages of Python go to `.venv` of the workspace, those of npm to `node_modules`. So `.venv/bin` is first on the PATH
of every command, and pip installs nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lmagent.config.files import read_small
from lmagent.core.errors import ConfigError
from lmagent.core.sandbox import Sandbox

VENV = ".venv"

HINT = (
    f"pip installs into {VENV} of the workspace, which does not exist: python3 -m venv {VENV}, then the command again"
)

_PYTHON = r"pip[\d.]*|uvx?|pipx|poetry|pdm"
_NODE = r"(?:npm|pnpm|yarn)(?!\s+(?:run|start|t|test)\b)|p?npx|bunx?|corepack"
_INSTALLER = re.compile(rf"(?<![\w.-])(?:{_PYTHON}|{_NODE}|apt(?:-get)?)(?![\w.-])")
_PIP = re.compile(r"(?<![\w.-])pip[\d.]*(?![\w.-])")

_OPTIONS = {
    "PIP_REQUIRE_VIRTUALENV": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "npm_config_yes": "true",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "UV_LINK_MODE": "copy",  # the cache is on another mount
    "PIP_RETRIES": "1",  # a refusal is repeated with each
    # The user may take a while to allow the registries.
    "PIP_DEFAULT_TIMEOUT": "120",
    "UV_HTTP_TIMEOUT": "120",
}


def may_install(command: str) -> bool:
    """Return whether a command names a program that installs packages, and so may need their registries."""
    return _INSTALLER.search(command) is not None


def install_variables(sandbox: Sandbox, registries: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command that may install; without a sandbox, the user's own ones lead the programs."""
    return {**_OPTIONS, **registries} if _is_confined(sandbox) else {}


def venv_variables(sandbox: Sandbox) -> dict[str, str]:
    """Return the variables that put `.venv` first; none if it was made for another path, as in docker or after a move.

    It is on the PATH before it exists, so that one command can make and use it.
    """
    folder, outside = f"{sandbox.root}/{VENV}", sandbox.workspace / VENV
    path = {"PATH": f"{folder}/bin:{sandbox.environment['PATH']}"}
    if not outside.exists():
        return path
    try:
        text = (read_small(outside / "bin" / "activate") or b"").decode("utf-8", "replace")
    except ConfigError:
        return {}
    is_here = re.search(rf"(?<![\w./-]){re.escape(folder)}(?![\w./-])", text)
    return {**path, "VIRTUAL_ENV": folder} if is_here else {}


def hint(sandbox: Sandbox, command: str, code: int) -> list[str]:
    """Return what to do after a command of pip that failed for want of a virtual environment."""
    is_missing = code != 0 and _PIP.search(command) and _is_confined(sandbox)
    return [HINT] if is_missing and not (sandbox.workspace / VENV).exists() else []


def in_venv(sandbox: Sandbox, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with `.venv` first on its PATH, if that exists."""
    found = venv_variables(sandbox)
    return ("/usr/bin/env", f"PATH={found['PATH']}", *argv) if "VIRTUAL_ENV" in found else argv


def _is_confined(sandbox: Sandbox) -> bool:
    return sandbox.environment.get("LMAGENT_SANDBOX") == "1"
