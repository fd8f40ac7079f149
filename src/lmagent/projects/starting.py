"""Starting: a new project from the example of its type, in `examples/`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lmagent.core.errors import ConfigError
from lmagent.projects.load import slug_of
from lmagent.projects.spec import AgentType
from lmagent.store.files import store_error
from lmagent.tools.sanitize import visible

EXAMPLES = Path(__file__).with_name("examples")


def start(path: Path, kind: AgentType) -> Path:
    """Make a project, and return its folder. Raise ConfigError if it exists, or the name cannot be used."""
    target = Path(os.path.abspath(path))
    name, slug = target.name, slug_of(target.name)
    if not slug or '"' in name or "\\" in name or visible(name) != name:
        raise ConfigError(f"{visible(name)!r} cannot be an agent's name", fix="use letters, digits and dashes")
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target} is there already, and not empty", fix="choose another name")
    draft = target.with_name(f".{name}.{os.getpid()}.new")
    try:
        for source in (EXAMPLES / "common", EXAMPLES / kind):
            shutil.copytree(source, draft, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        named = (draft / file for file in ("agent.yaml", "README.md", "Agentfile"))
        for file in (*named, *draft.glob("tests/cassettes/*.jsonl")):
            content = file.read_text(encoding="utf-8").replace("$NAME", name).replace("$SLUG", slug)
            file.write_text(content, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        raise store_error(error, "the project could not be made", target) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target
