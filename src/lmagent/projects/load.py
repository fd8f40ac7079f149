"""Load: a folder with an agent.yaml as a named agent.

The system text comes from, in rising order: a sentence about its type, `system_prompt`, `prompts/system.yaml`. The
personality follows, whichever it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lmagent.config.files import decode_env, parse_env, read_small
from lmagent.core.agent import NamedAgent
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.model import SessionOptions
from lmagent.core.tool import Tool
from lmagent.projects.prompts import PromptFiles
from lmagent.projects.spec import AgentType, AgentYaml, ModelSpec, ToolEntry
from lmagent.projects.yamlfile import YamlFile
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line, visible

FILE = "agent.yaml"
LARGEST = 1_000_000
"""Bytes of a file of a project that is read as configuration."""

READING = ("read", "glob", "grep", "ls", "data_view", "web_fetch")
WRITING = ("read", "write", "edit", "glob", "grep", "ls")

TOOLS: dict[AgentType, tuple[str, ...] | None] = {
    "conversational": (),
    "task-oriented": None,
    "knowledge": READING,
    "creative": WRITING,
}
"""The built-in tools of an agent whose agent.yaml has no `tools`; None for all of them."""

SENTENCES: dict[AgentType, str] = {
    "conversational": "You are {name}. You talk with the user.",
    "task-oriented": "You are {name}. You carry out the user's tasks.",
    "knowledge": "You are {name}. You answer questions from sources that you have read, and name them.",
    "creative": "You are {name}. You write texts with the user.",
}


class AgentFolder(Struct, frozen=True):
    """A project that was read.

    Attributes:
        path: the folder.
        slug: the agent's name in commands and addresses: small letters, digits and dashes.
        system: the agent's system text, with its personality.
        template: the frame of the user's messages; empty for none.
        versions: versions of the prompts that are used, by their files.
        file: agent.yaml, for errors about what it says.
    """

    path: Path
    spec: AgentYaml
    slug: str
    system: str
    template: str
    versions: dict[str, str]
    file: YamlFile


def load_folder(path: Path) -> AgentFolder:
    """Read a project: its folder, or the agent.yaml in it.

    Raises ConfigError, with file, line and column, if it cannot be used.
    """
    folder, name = (path.parent, path.name) if path.is_file() or path.suffix in (".yaml", ".yml") else (path, FILE)
    folder = Path(os.path.realpath(folder))
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {visible(str(path))}", fix="lmagent agent init NAME makes a project")
    with Beneath(folder) as files:
        content = _read(files, name)
        if content is None:
            fix = "lmagent agent init NAME makes a project, and this command takes its folder"
            raise ConfigError(f"there is no {name} in {visible(str(folder))}", fix=fix)
        file = YamlFile(name, content)
        spec = file.as_type(AgentYaml)
        _check(file, spec)
        prompts = PromptFiles(lambda wanted: _read(files, wanted), {"agent_name": spec.name, **spec.variables})
        own, user = prompts.get(spec.prompts.system), prompts.get(spec.prompts.user, user=True)
        for number, name in enumerate(spec.skills):
            if _read(files, f"skills/{name}/SKILL.md") is None:
                raise file.wrong(("skills", number), f"there is no skills/{name}/SKILL.md", "write it: docs/skills.md")
    for found, wanted, place in ((own, spec.prompts.system, "system"), (user, spec.prompts.user, "user")):
        if found is None and (("prompts", place) in file):
            raise file.wrong(("prompts", place), f"there is no prompts/{wanted}.yaml", "correct the name")
    slug = slug_of(spec.name)
    if not slug:
        raise file.wrong(("name",), f"{visible(spec.name)!r} cannot be an agent's name", "choose another one")
    return AgentFolder(
        path=folder,
        spec=spec,
        slug=slug,
        system=system_of(spec, own.text if own is not None else ""),
        template=user.text if user is not None else "",
        versions={prompt.source: prompt.version for prompt in (own, user) if prompt is not None},
        file=file,
    )


def system_of(spec: AgentYaml, text: str = "") -> str:
    """Return the system text: the given one, that of agent.yaml, or a sentence; and the personality."""
    base = text or spec.system_prompt.strip() or SENTENCES[spec.type].format(name=spec.name)
    lines = [
        f"- {trait.replace('_', ' ')}: {value if isinstance(value, str) else ', '.join(value)}"
        for trait, value in spec.personality.items()
    ]
    return "\n".join((base, "\nYour personality:", *lines)) if lines else base


def agent_of(folder: AgentFolder, own: Sequence[Tool] = ()) -> NamedAgent:
    """Return the project's agent; `own` are its tools that have a file."""
    agent = agent_from(folder.spec, folder.slug, own)
    return replace(agent, system=folder.system, template=folder.template, source=str(folder.path))


def agent_from(spec: AgentYaml, slug: str, own: Sequence[Tool] = ()) -> NamedAgent:
    """Return the agent that the keys describe, without its prompt files."""
    return NamedAgent(
        name=slug,
        title=one_line(spec.name, 100),
        description=one_line(spec.description or spec.name, 200),
        system=system_of(spec),
        model=model_name(spec),
        options=SessionOptions(**asdict(spec.parameters)),
        tools=_built_in(spec, {tool.name for tool in own}),
        own=tuple(own),
        mode=spec.permissions.mode,
        allow=(*spec.permissions.allow, *(f"effect:net({host})" for host in spec.network.hosts)),
        ask=spec.permissions.ask,
        deny=spec.permissions.deny,
        steps=spec.limits.steps,
        turn_tokens=spec.limits.turn_tokens,
        turn_seconds=spec.limits.turn_seconds,
        keep_turns=0 if spec.memory.type == "none" else spec.memory.retention_size,
        memory=spec.memory.type == "long_term",
        converses=spec.type == "conversational",
        servers=bool(spec.mcp_servers),
    )


def _built_in(spec: AgentYaml, own: set[str]) -> tuple[str, ...] | None:
    named = TOOLS[spec.type] if spec.tools is None else tuple(row.name for row in tool_rows(spec))
    if named is None:
        return None
    needed = (*(("delegate",) if spec.agents else ()), *(("skill",) if spec.skills else ()))
    return tuple(dict.fromkeys(name for name in (*named, *needed) if name not in own))


def tool_rows(spec: AgentYaml) -> tuple[ToolEntry, ...]:
    """Return the tools that agent.yaml lists and does not switch off."""
    rows = (ToolEntry(row) if isinstance(row, str) else row for row in spec.tools or ())
    return tuple(row for row in rows if row.enabled)


def model_name(spec: AgentYaml) -> str:
    """Return the model's name, with its provider unless that is the server which is set."""
    model = ModelSpec(model_id=spec.model) if isinstance(spec.model, str) else spec.model
    is_local = model.provider in ("", "local")
    return model.model_id if is_local or not model.model_id else f"{model.provider}:{model.model_id}"


def env_file_of(folder: AgentFolder) -> dict[str, str]:
    """Return the variables in the project's own `.env`, which is on this machine only."""
    content = read_small(folder.path / ".env")
    lines = parse_env(decode_env(content)) if content is not None else ()
    return {line.name: line.value for line in lines if line.name and line.value is not None}


def slug_of(name: str) -> str:
    """Return a name in the form of commands and addresses; empty if no agent can have it."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return "" if slug == "lmagent" else slug


def _read(files: Beneath, path: str) -> bytes | None:
    try:
        content = files.read_bytes(path, LARGEST + 1)
    except ToolError as error:
        if error.data.get("code") in ("missing", "kind"):
            return None
        raise ConfigError(str(error), fix="a project's files are regular files inside its folder") from None
    if len(content) > LARGEST:
        raise ConfigError(f"{path} is larger than {LARGEST:,} bytes", fix="a configuration file is small: shorten it")
    return content


def _check(file: YamlFile, spec: AgentYaml) -> None:
    """Check what the types do not tell. Raise ConfigError with line and column."""
    if str(spec.version) not in ("1", "1.0"):
        raise file.wrong(("version",), f"version {spec.version} is not known", 'write version: "1.0"')
    seen = dict[str, int]()
    for number, row in enumerate(spec.tools or ()):
        name = row if isinstance(row, str) else row.name
        if name in seen:
            raise file.wrong(("tools", number), f"two tools are named {name!r}", "rename one of them")
        seen[name] = number
    for name, variable in spec.env.items():
        if variable.secret and variable.default:
            what = f"{name} is a secret, and has a default in the file"
            raise file.wrong(("env", name, "default"), what, "remove it: a secret's value comes from the environment")
