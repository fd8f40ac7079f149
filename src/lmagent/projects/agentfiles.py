"""Agent files: agents of one file, `NAME.md` as Claude Code has them, or `NAME.toml` with the keys of agent.yaml.

A Markdown file has front matter with `name`, `description`, `tools` and `model`, and its text is the agent's system
text; other keys of that program are passed over. A workspace's files count once the user trusts the folder, and cannot
allow anything: they can only ask for less.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from lmagent.core.agent import NamedAgent
from lmagent.core.decoding import convert
from lmagent.core.errors import ConfigError
from lmagent.projects.load import AgentFolder, agent_from
from lmagent.projects.spec import AgentYaml
from lmagent.projects.yamlfile import YamlFile, as_mapping
from lmagent.tools.plain import NotPlain, names_in, read_plain
from lmagent.tools.sanitize import one_line

FOLDERS = ((".lmagent", "agents"), (".claude", "agents"))
"""Where a workspace has such files."""

FOLDER = "agents"
"""Of a project, with the files of its sub-agents."""

LONGEST = 100_000  # characters of a file
MOST = 100  # files of a folder

_FRONT = re.compile(r"---[ \t]*\n(?P<front>.*?)^---[ \t]*(?:\n|\Z)(?P<text>.*)", re.DOTALL | re.MULTILINE)
_THEIR_MODELS = re.compile(r"(?:inherit|sonnet|opus|haiku|claude.*)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

Say = Callable[[str], None]


class AgentFiles:
    """The agents in the files of a folder; `say` shows each faulty file once.

    Args:
        root: the workspace, or the user's folder of configuration.
        parts: the way from there to the folder.
        counts: whether the files count, as those of a folder that the user trusts do.
        own: the files are the user's own, and may allow what they name.
    """

    def __init__(self, root: Path, parts: tuple[str, ...], counts: Callable[[], bool], say: Say, *, own: bool) -> None:
        self._root = root
        self._parts = parts
        self._counts = counts
        self._say = say
        self._own = own
        self._reported = set[str]()

    def __call__(self) -> Iterator[NamedAgent]:
        """Yield the agents, in the order of their files' names."""
        if not self._root.joinpath(*self._parts).is_dir() or not self._counts():
            return
        for name in names_in(self._root, self._parts)[:MOST]:
            if name.endswith((".md", ".toml")):
                try:
                    agent = _agent_in(self._root, (*self._parts, name))
                except (ConfigError, NotPlain) as wrong:
                    self._report(name, str(wrong))
                    continue
                if agent is not None:
                    agent = replace(agent, source=str(self._root.joinpath(*self._parts, name)))
                    yield agent if self._own else tightened(agent)

    def _report(self, name: str, what: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self._say(f"lmagent: the agent in {name} is left out: {one_line(what, 300)}")


def tightened(agent: NamedAgent) -> NamedAgent:
    """Return the agent without what it would be allowed in addition: its file came with a folder."""
    return replace(agent, allow=(), mode="manual" if agent.mode == "manual" else None)


def agents_of(folder: AgentFolder) -> tuple[NamedAgent, ...]:
    """Return the sub-agents of a project: files in its folder `agents/`, which can only ask for less than it may do.

    Raises ConfigError, with line and column, for one that cannot be used.
    """
    found = dict[str, NamedAgent]()
    for number, name in enumerate(folder.spec.agents):
        try:
            forms = (_agent_in(folder.path, (FOLDER, f"{name}{form}")) for form in (".md", ".toml"))
            agent = next(filter(None, forms), None)
        except (ConfigError, NotPlain) as wrong:
            what = wrong.message if isinstance(wrong, ConfigError) else f"{FOLDER}/{name} is {wrong}"
            raise folder.file.wrong(("agents", number), what, "correct the file") from None
        if agent is None or agent.name in (folder.slug, *found):
            what = f"there is no {FOLDER}/{name}.md" if agent is None else f"two agents are named {agent.name!r}"
            raise folder.file.wrong(("agents", number), what, f"write {FOLDER}/{name}.md, or correct the name")
        found[agent.name] = tightened(agent)
    return tuple(found.values())


def _agent_in(root: Path, parts: tuple[str, ...]) -> NamedAgent | None:
    """Return the agent in a file; None if the file does not exist. Raise ConfigError or NotPlain."""
    file, source = read_plain(root, parts, LONGEST), "/".join(parts)
    if file is None:
        return None
    if file.more:
        raise ConfigError(f"{source} is longer than {LONGEST:,} characters", fix="shorten it")
    return of_toml(file.text, source) if source.endswith(".toml") else of_markdown(file.text, source)


def of_toml(text: str, source: str) -> NamedAgent:
    """Return the agent in a TOML file. Raise ConfigError if it has another form."""
    try:
        spec = convert(tomllib.loads(text), AgentYaml)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as wrong:
        raise ConfigError(f"{source}: {wrong}", fix="docs/agent-projects.md has all keys") from None
    if (
        spec.agents
        or spec.skills
        or spec.mcp_servers
        or any(not isinstance(row, str) and row.path for row in spec.tools or ())
    ):
        what = "tools with a file, agents, skills and mcp_servers need a project"
        raise ConfigError(f"{source}: {what}", fix="lmagent agent init makes one")
    return agent_from(spec, _slug(spec.name, source))


def of_markdown(text: str, source: str) -> NamedAgent:
    """Return the agent in a Markdown file. Raise ConfigError if it has another form."""
    found = _FRONT.fullmatch(text.lstrip("\ufeff").replace("\r\n", "\n"))
    if found is None:
        raise ConfigError(f"{source} does not begin with front matter", fix="write name and description between ---")
    front = as_mapping(YamlFile(source, found["front"].encode()).value)
    name = front.get("name") or Path(source).stem
    system = found["text"].strip()
    if not isinstance(name, str) or not system:
        raise ConfigError(f"{source} has no name, or no text", fix="the text below the front matter tells the agent")
    model = front.get("model")
    return NamedAgent(
        name=_slug(name, source),
        description=one_line(str(front.get("description") or ""), 200),
        system=system,
        model=model if isinstance(model, str) and not _THEIR_MODELS.fullmatch(model) else "",
        tools=_tools(front),
        mode="manual" if front.get("permissionMode") in ("plan", "manual") else None,
    )


def _tools(front: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the tools that a file names, as a list or with commas; None if it names none."""
    given = front.get("tools")
    if given is None or given == "*":
        return None
    rows = cast("list[Any]", given) if isinstance(given, list) else re.split(r",(?![^(]*\))", str(given))
    names = (str(row).partition("(")[0].strip() for row in rows)
    return tuple(name for name in names if name)


def _slug(name: str, source: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-").lower()
    if not _NAME.fullmatch(slug) or slug == "lmagent":
        raise ConfigError(f"{source}: {name[:80]!r} cannot be an agent's name", fix="use letters, digits and dashes")
    return slug
