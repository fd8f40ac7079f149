"""Brief: the order of a sub-agent as its session gets it, and its files `.lmagent/agents/<id>/brief.json` and
`result.json`.

The files are for users and other programs; the logs are the record. Nothing here removes the files.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from lmagent.agents.childhost import PromptPlace, depth_of
from lmagent.agents.feature import AgentBounds
from lmagent.agents.orders import Order, inside, named
from lmagent.core.errors import StoreError
from lmagent.core.ids import is_session_id
from lmagent.core.messages import Message, Text, ToolResult
from lmagent.core.plurals import plural
from lmagent.core.work import Brief, ChildResult
from lmagent.engine.session import Session
from lmagent.policy import gate, paths
from lmagent.store.files import make_private, replace_whole

FOLDER = ".lmagent/agents"

PASSED_ARTIFACTS, PASSED_BYTES, PASSED_DATA = 3, 8192, 2000
"""A task passes on at most three files of 8 KiB each, and 2,000 characters of data, to the tasks that depend on it."""

OBJECTIVE = 1000
"""Characters of the parent's own task that the brief quotes."""

PIECE = 600
"""Characters of one piece of the parent's findings."""

_WORD = re.compile(r"\w{3,}")
_NOTE = re.compile(r"<[a-z_]+>")


def steps_for(bounds: AgentBounds, depth: int) -> int:
    return max(8, bounds.steps - 4 * depth)


def brief_of(parent: Session, child: str, order: Order, bounds: AgentBounds, place: PromptPlace, passed: str) -> Brief:
    """Build the brief of a sub-agent; `passed` holds the results of the tasks that it depends on."""
    state, above = parent.state, parent
    while above.above is not None:
        above = above.above
    words = f"{order.objective} {order.hint} {order.deliverable.description}"
    data = [passed, "" if place.inherits else picked(state.messages, words, max(0, bounds.data - len(passed)))]
    return Brief(
        agent_id=child,
        parent_id=state.session,
        depth=depth_of(parent) + 1,
        max_depth=bounds.depth,
        objective=order.objective,
        deliverable=order.deliverable,
        data="\n\n".join(part for part in data if part),
        constraints=order.constraints,
        parent_objective=state.user_texts[-1][:OBJECTIVE] if state.user_texts else "",
        scope_path=f"{FOLDER}/{child}/scope",
        parent_scope=f"{FOLDER}/{state.session}/scope" if depth_of(parent) else "",
        session_id=above.state.session,
        created_at=parent.wiring.clock.now(),
        agent=order.agent,
    )


def told(brief: Brief, place: PromptPlace, steps: int, *, direct: bool = False) -> str:
    """Return the brief for the model; `direct`: report_result is in its tool block."""
    wanted = brief.deliverable
    where = ", ".join(named(wanted))
    form = f" ({wanted.format})" if wanted.format else ""
    what = f": {wanted.description}" if wanted.description != brief.objective else ""
    lines = [
        "[From here on you are a sub-agent. The messages above are your parent's work: background, not your task. "
        "Do only what this brief says, then report.]"
        if place.inherits
        else "[You are a sub-agent. Do only what this brief says, then report.]",
        f"Objective: {brief.objective}",
        f"Deliverable: {wanted.type}{f' {where}' if where else ''}{form}{what}",
    ]
    if wanted.schema is not None:
        lines.append(f"Schema of it: {msgspec.json.encode(wanted.schema).decode()}")
    lines += [f"Constraint: {constraint}" for constraint in brief.constraints]
    if brief.parent_objective and not place.inherits:
        lines.append(f"The whole that it is a part of: {brief.parent_objective}")
    if brief.data:
        lines.append(f"Data:\n{brief.data}")
    report = '{"status": "ok", "summary": "...", "artifacts": ["path"], "data": null, "error": ""}'
    through = report if direct else f'{{"name": "report_result", "arguments": {report}}}'
    lines.append(
        f"You have at most {plural(steps, 'step')}, and no user answers questions. At the end call "
        f"{'report_result' if direct else 'use_tool'} with {through}; status is ok, partial, blocked or error."
    )
    return "\n".join(lines)


def passed_on(parent: Session, results: Mapping[str, ChildResult]) -> str:
    """Describe the results that a task depends on, with the files that the parent may read without asking."""
    return "\n\n".join("\n".join(_passed(parent, name, result)) for name, result in results.items())


def _passed(parent: Session, name: str, result: ChildResult) -> Iterator[str]:
    error = f" ({result.error})" if result.error else ""
    yield f"Result of {name}: {result.status}{error}: {result.summary}"
    if result.data is not None:
        yield f"Its data: {msgspec.json.encode(result.data).decode()[:PASSED_DATA]}"
    for path in result.artifacts[:PASSED_ARTIFACTS]:
        content = _readable(parent, path)
        yield f"Its file {path}:\n{content}" if content else f"Its file: {path}"


def _readable(parent: Session, path: str) -> str:
    """Return the text of a small file that the parent may read without asking; empty for any other file."""
    wiring, state = parent.wiring, parent.state
    if inside(wiring.workspace, path) is None:
        return ""
    request = gate.Request("read", "read", paths.located(str(wiring.workspace), (path,)))
    if gate.judge(request, state.mode, wiring.rules, state.grants).decision != "allow":
        return ""
    try:
        with (wiring.workspace / path).open("rb") as file:
            content = file.read(PASSED_BYTES)
    except OSError:
        return ""
    return "" if len(content) == PASSED_BYTES or b"\0" in content else content.decode("utf-8", "replace")


# --- data from the parent's conversation --------------------------------------------------------------------------


def picked(messages: Sequence[Message], words: str, limit: int) -> str:
    """Return the pieces of a conversation that contain the words, rare words first, up to `limit` characters."""
    wanted = {word.lower() for word in _WORD.findall(words)}
    pieces = list(_pieces(messages))
    found = [wanted & {word.lower() for word in _WORD.findall(piece)} for piece in pieces]
    often = Counter(word for words_in in found for word in words_in)
    scored = [
        (sum(1 / often[word] for word in words_in), number, piece)
        for number, (piece, words_in) in enumerate(zip(pieces, found, strict=True))
        if words_in
    ]
    chosen: list[tuple[int, str]] = []
    for _, number, piece in sorted(scored, reverse=True):
        if len(piece) + 1 <= limit:
            limit -= len(piece) + 1
            chosen.append((number, piece))
    return "\n".join(piece for _, piece in sorted(chosen))


def _pieces(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the user's messages and the results of tools, in pieces of whole lines."""
    for message in messages:
        if message.role == "assistant":
            continue
        for part in message.parts:
            text = part.text if isinstance(part, Text) else part.content if isinstance(part, ToolResult) else ""
            if _NOTE.match(text):
                continue  # the sub-agent has its own
            piece = ""
            for line in text.splitlines():
                if len(piece) + len(line) > PIECE and piece:
                    yield piece
                    piece = ""
                piece = f"{piece}\n{line[:PIECE]}" if piece else line[:PIECE]
            if piece.strip():
                yield piece


# --- the files ----------------------------------------------------------------------------------------------------


def write_brief(workspace: Path, child: str, brief: Brief) -> None:
    """Write the brief and make the scratch folder. `brief.agent_id` comes from a log, which may lie."""
    _write(workspace, child, "brief.json", msgspec.json.encode(brief))


def write_result(workspace: Path, child: str, result: ChildResult) -> None:
    _write(workspace, child, "result.json", msgspec.json.encode(result))


def _write(workspace: Path, child: str, name: str, content: bytes) -> None:
    if not is_session_id(child):
        raise StoreError(f"{child!r} cannot be the id of a session", fix="the log that says so is damaged, or a lie")
    folder = workspace / FOLDER / child
    try:
        for place in (workspace / ".lmagent", workspace / FOLDER, folder, folder / "scope"):
            if place.is_symlink():
                raise StoreError(
                    f"{place} is a link", fix="remove it: links in a checkout must not redirect the agent's files"
                )
        make_private(folder / "scope")
        replace_whole(folder / name, folder / f".{name}.{os.getpid()}", msgspec.json.format(content, indent=1) + b"\n")
    except OSError as error:
        raise StoreError(f"{folder / name} could not be written: {error.strerror}", fix="make room there") from error
