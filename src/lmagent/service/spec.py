"""Spec: the program to keep running, and the manager's report about it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from lmagent.core.errors import LmagentError


class ServiceError(LmagentError):
    pass


class ServiceSpec(Struct, frozen=True):
    """A program to keep running for a user.

    Attributes:
        name: of the service; one a workspace.
        workspace: the folder that it serves.
        command: the program and its arguments.
        variables: of its environment, beyond the manager's own.
        log: file for its output, on systems whose manager keeps none.
    """

    name: str
    workspace: Path
    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    log: Path = Path()


class ServiceStatus(Struct, frozen=True):
    """The manager's report.

    Attributes:
        name: of the service.
        installed: its description exists.
        running: it runs now.
        enabled: it is started with the user's login.
        words: the manager's own.
        file: its description.
        log: how to read its output.
    """

    name: str
    installed: bool
    running: bool
    enabled: bool
    words: str
    file: str
    log: str


class Manager(Protocol):
    """A system's own way of keeping programs running."""

    def describe(self, spec: ServiceSpec) -> str: ...

    def install(self, spec: ServiceSpec) -> Sequence[str]:
        """Write the description and start the service; returns notes for the user.

        Raises ServiceError if the manager is missing, or refuses. The description is removed again.
        """
        ...

    def remove(self, name: str) -> bool:
        """Stop it and remove its description; False if it was not installed.

        Raises ServiceError if the manager refuses.
        """
        ...

    def status(self, name: str) -> ServiceStatus: ...


def name_for(workspace: Path) -> str:
    """Return the name of a workspace's service: readable, and unique to the folder."""
    words = re.sub(r"[^a-z0-9]+", "-", workspace.name.lower()).strip("-")[:24]
    mark = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return "-".join(part for part in ("lmagent", words, mark) if part)


def spec_for(workspace: Path, arguments: Sequence[str], data: Path, variables: Mapping[str, str]) -> ServiceSpec:
    """Describe `lmagent web` for a workspace.

    Args:
        workspace: the folder, absolute.
        arguments: further arguments of `lmagent web`.
        data: the user's data folder, for the log.
        variables: of the environment.
    """
    name = name_for(workspace)
    command = (sys.executable, "-m", "lmagent", "web", *arguments, "--no-browser", "-w", str(workspace))
    if bad := next((part for part in command if re.search(r"[\x00-\x1f\x7f]", part)), None):
        raise ServiceError(f"{bad!r} holds a control character, which no service description can", fix="rename it")
    return ServiceSpec(name, workspace, command, variables, data / "logs" / f"{name}.log")
