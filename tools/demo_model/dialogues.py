"""A request as a whole conversation: calls, results as `template.jinja` shortens them, the answer."""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator
from random import Random

from .requests import LONGEST, Request, training_request
from .speech import BEYOND, CAN, UNREAD, WRITTEN
from .words import TRAINING, Lexicon, file_name, phrase, stem, syllables

SEED = 7
"""Of the packaged model's training data."""

COUNT = 115_200
"""Dialogues that the packaged model was trained on, each once."""

EASY = 20_000
"""Dialogues at the beginning that are short: copying is learned sooner by them."""

Part = tuple[str, bool]
"""A piece of a conversation, and whether the model wrote it."""


def call_of(request: Request) -> tuple[str, dict[str, str]] | None:
    """The call that a request is answered with, or None."""
    match request.kind:
        case "list":
            return "ls", {"path": request.path}
        case "read":
            return "read", {"path": request.path}
        case "write":
            return "write", {"path": request.path, "content": f"{request.words}\n"}
        case "append":
            return "shell", {"command": f"echo '{request.words}' >> {request.path}"}
        case "mkdir":
            return "shell", {"command": f"mkdir -p {request.path}"}
        case "run":
            return "shell", {"command": request.command}
        case "count":
            return "shell", {"command": f"find {request.path} -maxdepth 1 -type f | wc -l"}
        case _:
            return None


def dialogue(random: Random, request: Request, lexicon: Lexicon) -> list[Part]:
    """A conversation to train on: every so often the tool fails, or a file must be read before it is replaced."""
    parts: list[Part] = [(f"<|user|>{request.text}", False)]
    wanted = call_of(request)
    if wanted is None:
        _say(parts, CAN if request.kind == "about" else BEYOND)
        return parts
    _call(parts, *wanted)
    if random.random() < (0.12 if request.kind == "read" else 0.07):
        _fail(random, parts, request, lexicon)
        return parts
    if request.kind == "write" and random.random() < 0.1:
        _result(parts, f"! {request.path} {UNREAD}")
        _call(parts, "read", {"path": request.path})
        _result(parts, f"= {_lines(random, lexicon)}")
        _call(parts, *wanted)
        _result(parts, "= Replaced")
        _say(parts, WRITTEN["Replaced"])
        return parts
    _succeed(random, parts, request, lexicon)
    return parts


def _succeed(random: Random, parts: list[Part], request: Request, lexicon: Lexicon) -> None:
    result, answer = "", ""
    match request.kind:
        case "list":
            result = _entries(random, lexicon)
            answer = f"The folder holds {result}."
        case "read":
            result = _lines(random, lexicon)
            answer = f"The file has {result}"
        case "write":
            result = random.choice(("Created",) * 7 + ("Replaced", "Replaced", "Same"))
            answer = WRITTEN[result]
        case "mkdir":
            result, answer = "nothing", "The folder is there."
        case "append":
            result, answer = "nothing", "The line is added."
        case "count":
            count = str(random.choice((0, 1, 1, 2, 3, random.randint(4, 30), random.randint(10, 999))))
            result, answer = f'"{count}"', "There is 1 file." if count == "1" else f"There are {count} files."
        case _:
            result = (
                "nothing" if random.random() < 0.35 else _quoted(random, lexicon) + random.choice(("", " and more"))
            )
            answer = "It ran and printed nothing." if result == "nothing" else f"It printed: {result}"
    _result(parts, f"= {result}")
    _say(parts, answer)


def _fail(random: Random, parts: list[Part], request: Request, lexicon: Lexicon) -> None:
    if request.kind == "count":
        if request.path == ".":
            _succeed(random, parts, request, lexicon)
            return
        quote = random.choice(("'", ""))  # GNU's curly ones are no tokens
        _result(parts, f'= "find: {quote}{request.path}{quote}: No such file or directory" and more')
        _say(parts, f"That did not work: There is no {request.path}.")
        return
    name = request.path if random.random() < 0.8 else file_name(random, lexicon)
    said = _any_text(random, lexicon)
    reason = random.choice(
        (
            f"There is no {name}",
            f"There is no {name}",
            f"{name} is outside the workspace",
            f"{name} is a directory",
            f"exit code {random.randint(1, 127)}",
            f"exit code {random.randint(1, 127)}: {said}",
            f"exit code {random.randint(1, 127)}: bash: line 1: {syllables(random)}: command not found",
            f"{said}",
            f"{syllables(random).capitalize()} {said}",
        )
    )
    _result(parts, f"! {reason}")
    _say(parts, f"That did not work: {reason}.")


def _entries(random: Random, lexicon: Lexicon) -> str:
    if random.random() < 0.08:
        return "nothing"
    names: list[str] = []
    for _ in range(random.choice((1, 1, 2, 3, 3, 3))):
        name = file_name(random, lexicon).rpartition("/")[2]
        names.append(f"{stem(random, lexicon)}/" if random.random() < 0.3 else name)
    return ", ".join(names) + (" and more" if len(names) == 3 and random.random() < 0.6 else "")


def _lines(random: Random, lexicon: Lexicon) -> str:
    at = random.random()
    if at < 0.06:
        return "no lines"
    text = '"(blank)"' if at < 0.1 else _quoted(random, lexicon)
    if random.random() < 0.5:
        return f"1 line: {text}"
    return f"{random.choice((2, 3, random.randint(4, 30), random.randint(20, 3000)))} lines. First: {text}"


def _quoted(random: Random, lexicon: Lexicon) -> str:
    return f'"{_any_text(random, lexicon)}"'


def _any_text(random: Random, lexicon: Lexicon) -> str:
    """What a file or a program may say: words, numbers, code."""
    at = random.random()
    if at < 0.5:
        return phrase(random, lexicon)
    if at < 0.65:
        return str(random.randint(0, 10 ** random.randint(1, 8)))
    if at < 0.8:
        return f"{stem(random, lexicon)}: {phrase(random, lexicon, 3)}"
    if at < 0.9:
        return f"{syllables(random)} {random.choice(('=', '+', '->', ':=', '|', '#'))} {phrase(random, lexicon, 2)}"
    signs = string.ascii_lowercase + string.digits + "()[]{}<>=+*/.,;:_-'#@&%$!? "
    return "".join(random.choice(signs) for _ in range(random.randint(3, 30))).strip() or "-"


def rendered_call(name: str, arguments: dict[str, str]) -> str:
    """A call as the template renders it and the model writes it."""
    shortest = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return f'<tool_call>{{"name": "{name}", "arguments": {shortest}}}</tool_call>'


def _call(parts: list[Part], name: str, arguments: dict[str, str]) -> None:
    parts.append(("<|bot|>", False))
    parts.append((f"{rendered_call(name, arguments)}<|end|>", True))


def _result(parts: list[Part], text: str) -> None:
    parts.append((f"<|tool|>{text}", False))


def _say(parts: list[Part], text: str) -> None:
    parts.append(("<|bot|>", False))
    parts.append((f"{text}<|end|>", True))


def training(seed: int) -> Iterator[tuple[Request, list[Part]]]:
    """The training data, without end; the same for the same seed."""
    random = Random(seed)
    for at in itertools.count():
        request = training_request(random, 45 if at < EASY else LONGEST)
        yield request, dialogue(random, request, TRAINING)
