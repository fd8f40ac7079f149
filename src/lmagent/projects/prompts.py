"""Prompts: the templates in `prompts/*.yaml`, with their variables and includes filled in.

`{{name}}` is a variable of the file or of agent.yaml; `{{> other}}` includes the content of
prompts/other.yaml. A name that is unknown is an error, since a model would read the braces. `\\{{` gives `{{`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from lmagent.core.agent import USER_INPUT
from lmagent.core.errors import ConfigError
from lmagent.projects.spec import PromptYaml
from lmagent.projects.yamlfile import YamlFile, as_mapping, nearest
from lmagent.tools.sanitize import visible

FOLDER = "prompts"
DEEPEST = 8
"""Levels of includes."""

LONGEST = 200_000
"""Characters of a prompt with its includes."""

_PLACE = re.compile(r"(?P<escaped>\\)?\{\{\s*(?P<include>>)?\s*(?P<name>[^{}]*?)\s*\}\}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Read = Callable[[str], bytes | None]
"""Returns the content of a file of the project; None if it is not there."""


class Prompt(Struct, frozen=True):
    """A prompt whose variables are filled in."""

    text: str
    version: str
    source: str


class PromptFiles:
    """The templates of a project.

    Args:
        read: reads a file of the project by its path.
        variables: those of agent.yaml, which win over a template's own.
    """

    def __init__(self, read: Read, variables: Mapping[str, str]) -> None:
        self._read = read
        self._variables = variables

    def get(self, name: str, *, user: bool = False) -> Prompt | None:
        """Return a prompt; None if it has no file. `user`: it is the frame of the user's messages.

        Raises ConfigError, with line and column, for a file that cannot be used.
        """
        found = self._template(name)
        if found is None:
            return None
        file, prompt = found
        text = self._filled(file, prompt, (name,), user=user).strip()
        if user and text.count(USER_INPUT) != 1:
            raise file.wrong(("content",), f"the template must contain {USER_INPUT} once", "write it where it belongs")
        return Prompt(text, str(prompt.version), file.name)

    def _template(self, name: str) -> tuple[YamlFile, PromptYaml] | None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{visible(name)!r} is no name of a prompt", fix=f"name a file in {FOLDER}/ without .yaml"
            )
        path = f"{FOLDER}/{name}.yaml"
        content = self._read(path)
        if content is None:
            return None
        file = YamlFile(path, content)
        return file, file.as_type(PromptYaml)

    def _filled(self, file: YamlFile, prompt: PromptYaml, above: tuple[str, ...], *, user: bool) -> str:
        variables = {**prompt.variables, **self._variables}

        def place(found: re.Match[str]) -> str:
            name = found["name"]
            if found["escaped"]:
                return found[0][1:]
            if found["include"]:
                return self._included(file, found, above, user=user)
            if user and name == "user_input":
                return USER_INPUT
            if name in variables:
                return variables[name]
            fix = nearest(name, sorted(variables), "give it a value under `variables`; those here are")
            raise _wrong(file, prompt, found, f"there is no variable {visible(name)!r}", fix)

        text = _PLACE.sub(place, prompt.content)
        if len(text) > LONGEST:
            raise file.wrong(("content",), f"the prompt has more than {LONGEST:,} characters", "shorten it")
        return text

    def _included(self, file: YamlFile, found: re.Match[str], above: tuple[str, ...], *, user: bool) -> str:
        name = found["name"]
        prompt = file.as_type(PromptYaml)
        if name in above or len(above) >= DEEPEST:
            raise _wrong(file, prompt, found, f"{visible(name)!r} includes itself", "take the include away")
        inner = self._template(name) if _NAME.fullmatch(name) else None
        if inner is None:
            raise _wrong(file, prompt, found, f"there is no {FOLDER}/{visible(name)}.yaml", "correct the name")
        return self._filled(*inner, (*above, name), user=user).strip()


def _wrong(file: YamlFile, prompt: PromptYaml, found: re.Match[str], what: str, fix: str) -> ConfigError:
    """Return the error at the line of a place in the template, as far as the file's layout tells it."""
    line = prompt.content[: found.start()].count("\n")
    error = file.wrong(("content",), what, fix)
    at = int(error.message.split(":")[1]) + line + (1 if "\n" in str(as_mapping(file.value).get("content")) else 0)
    return ConfigError(f"{file.name}:{at}: {what}", fix=fix)
