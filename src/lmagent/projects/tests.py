"""Tests of a project: the messages of a file in `tests/`, and the results that they must have.

A test is played from its cassette, `tests/cassettes/NAME.jsonl`, without a model: the model's replies are the recorded
ones, and the agent's tools really run.
"""

# Without `from __future__ import annotations`: msgspec reads the types, and texts would make it slow.

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import ConfigError, ToolError
from lmagent.projects.spec import Line, Text
from lmagent.projects.yamlfile import YamlFile
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line

FOLDER = "tests"
MOST = 500


class CallMade(Struct, frozen=True, forbid_unknown_fields=True):
    """A call that must be made; `arguments` are among those that it has."""

    name: str
    arguments: dict[str, Any] = {}


class Judge(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that decides whether the answer meets the criteria. `model`: another one than the agent's."""

    criteria: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    model: Line = ""

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.criteria,) if isinstance(self.criteria, str) else self.criteria


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """What has to come of a test.

    Attributes:
        calls: tools that are called, in this order; others may come between.
        not_called: tools that are not called.
        text: patterns (regular expressions, in any case) that the answer contains.
        files: patterns that files of the workspace contain.
        json_schema: a JSON schema that the answer follows, as JSON.
        status: how the turn ends.
        judge: criteria that a model finds met by the last answer; a text alone is the criteria.
    """

    calls: tuple[CallMade | str, ...] = ()
    not_called: tuple[str, ...] = ()
    text: tuple[str, ...] | str = ()
    files: dict[str, str] = {}
    json_schema: dict[str, Any] | None = None
    status: str = "done"
    judge: Judge | Text | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def judging(self) -> Judge | None:
        return Judge(self.judge) if isinstance(self.judge, str) else self.judge


class TestYaml(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file in `tests/`."""

    message: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    expect: Expected = Expected()
    description: Line = ""

    @property
    def messages(self) -> tuple[str, ...]:
        return (self.message,) if isinstance(self.message, str) else self.message


class ProjectTest(Struct, frozen=True):
    """A test; `name` is that of its file."""

    name: str
    wanted: TestYaml
    cassette: Path


class RunOutcome(Struct, frozen=True):
    """What came of a test: the calls with their arguments, the last answer, how the turn ended, and the workspace.

    Attributes:
        verdict: why the judge rejects the answer; empty if it does not.
    """

    calls: Sequence[tuple[str, dict[str, Any]]]
    answer: str
    status: str
    workspace: Path
    verdict: str = ""


def read_tests(folder: Path) -> list[ProjectTest]:
    """Return the tests of a project by their names. Raise ConfigError, with the line, for one that cannot be read."""
    found = list[ProjectTest]()
    for path in sorted((folder / FOLDER).glob("*.yaml"))[:MOST]:
        if path.is_symlink() or not path.is_file():
            raise ConfigError(f"{FOLDER}/{path.name} is no regular file", fix="a project has no links")
        file = YamlFile(f"{FOLDER}/{path.name}", path.read_bytes())
        wanted = file.as_type(TestYaml)
        patterns = [(("text",), pattern) for pattern in wanted.expect.texts]
        for place, pattern in (*patterns, *((("files", name), each) for name, each in wanted.expect.files.items())):
            try:
                re.compile(pattern)
            except re.error as wrong:
                fix = "correct the regular expression"
                raise file.wrong(("expect", *place), f"{one_line(pattern, 60)!r}: {wrong}", fix) from None
        found.append(ProjectTest(path.stem, wanted, folder / FOLDER / "cassettes" / f"{path.stem}.jsonl"))
    return found


def faults(expected: Expected, seen: RunOutcome) -> Iterator[str]:
    """Yield each difference from the expectation, in a line."""
    if seen.status != expected.status:
        yield f"the turn ended as {seen.status}, not as {expected.status}"
    made = iter(seen.calls)
    for wanted in expected.calls:
        call = CallMade(wanted) if isinstance(wanted, str) else wanted
        if not any(name == call.name and _has(given, call.arguments) for name, given in made):
            names = ", ".join(name for name, _ in seen.calls) or "no tool"
            with_these = f" with {call.arguments}" if call.arguments else ""
            yield f"{call.name}{with_these} was not called in this order; called: {names}"
            break
    for name in sorted({name for name, _ in seen.calls} & {*expected.not_called}):
        yield f"{name} was called"
    for pattern in expected.texts:
        if re.search(pattern, seen.answer, re.IGNORECASE) is None:
            yield f"the answer does not contain {pattern!r}: {one_line(seen.answer, 100)}"
    if seen.verdict:
        yield seen.verdict
    with Beneath(seen.workspace) as files:
        for name, pattern in expected.files.items():
            yield from _of_file(files, name, pattern)


def _has(given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in given and given[name] == value for name, value in wanted.items())


def _of_file(files: Beneath, name: str, pattern: str) -> Iterator[str]:
    try:
        content = files.read_bytes(name, 10_000_000).decode("utf-8", "replace")
    except ToolError as error:
        yield str(error)
        return
    if re.search(pattern, content, re.IGNORECASE) is None:
        yield f"the file {name} does not contain {pattern!r}"
