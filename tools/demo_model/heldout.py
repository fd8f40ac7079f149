"""Requests to judge the model by, each with a workspace to begin with and the one that it must end with.

Their words, and half of their phrasings, are none that it was trained on: `cases` draws again where the training has
seen the sentence, the path or the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from random import Random

from . import dialogues
from .requests import Request, held_out_request
from .words import HELD_OUT, file_name, folder, phrase, syllables, word

SEED = 20_260_101
"""Of the requests; the training draws with another one."""

SHARE = {"list": 8, "read": 14, "write": 20, "append": 16, "mkdir": 8, "run": 16, "count": 8, "beyond": 8, "about": 2}
"""Of 100 requests."""

Tree = dict[str, str | None]
"""What a workspace holds: contents of files, None for folders."""


@dataclass(frozen=True)
class Case:
    """A request and what is right.

    Attributes:
        request: what is asked.
        phrasing: `trained`, `held out` or `handwritten`.
        before: the workspace at first.
        after: the workspace at the end.
        said: texts that the answer must hold.
        outcome: how the turn must end.
        calls: the tools that must run, in this order.
    """

    request: Request
    phrasing: str
    before: Tree
    after: Tree
    said: tuple[str, ...]
    outcome: str
    calls: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What the training has shown the model: whole sentences, their forms, and the paths and words in them."""

    texts: frozenset[str]
    forms: frozenset[str]
    pieces: frozenset[str]


@cache
def seen() -> Seen:
    """What the training of the packaged model has shown, drawn again from the generator that it used."""
    drawn = dialogues.COUNT + 2_000  # the training draws a little ahead
    requests = [request for request, _ in islice(dialogues.training(dialogues.SEED), drawn)]
    pieces = {piece for request in requests for piece in (request.path, request.words, request.command) if piece}
    forms = frozenset(request.form for request in requests)
    return Seen(frozenset(request.text for request in requests), forms, frozenset(pieces))


def cases(count: int, known: Seen, seed: int = SEED) -> Iterator[Case]:
    """So many cases, of each kind its share, every other one in a phrasing that was not trained on."""
    random = Random(seed)
    queue = [kind for kind, share in SHARE.items() for _ in range(share)]
    random.shuffle(queue)
    for at in range(count):
        case = _case(random, queue[at % len(queue)], new_phrasing=at % 2 == 1, known=known)
        assert case.request.text not in known.texts
        yield case


def _case(random: Random, kind: str, *, new_phrasing: bool, known: Seen) -> Case:
    phrasing = "held out" if new_phrasing else "trained"
    while True:
        run, before, after, said = _command(random) if kind == "run" else ("", {}, {}, ())
        request = held_out_request(random, kind, new_phrasing=new_phrasing, run=run)
        pieces = {request.path, request.words, request.command} - {"", "."}
        if request.text in known.texts or pieces & known.pieces or (new_phrasing and request.form in known.forms):
            continue
        if kind == "run":
            return Case(request, phrasing, before, after, said, "done", ("shell",))
        return replace(MAKERS[kind](random, request), phrasing=phrasing)


def _list(random: Random, request: Request) -> Case:
    tree = _entries(random, request.path, random.randint(0, 5))
    tops = _tops(tree, request.path)
    said = ("nothing",) if not tops else tuple(tops[:3])
    return Case(request, "", tree, tree, said, "done", ("ls",))


def _read(random: Random, request: Request) -> Case:
    if random.random() < 0.1:
        return Case(request, "", {}, {}, ("did not work",), "done", ("read",))
    lines = [phrase(random, HELD_OUT) for _ in range(random.choice((1, 2, 3, random.randint(4, 40))))]
    tree = _with_parents({request.path: "".join(f"{line}\n" for line in lines)})
    said = (f'"{lines[0]}"', "1 line:" if len(lines) == 1 else f"{len(lines)} lines.")
    return Case(request, "", tree, tree, said, "done", ("read",))


def _write(random: Random, request: Request) -> Case:
    after = _with_parents({request.path: f"{request.words}\n"})
    if random.random() < 0.15:
        before = _with_parents({request.path: f"{phrase(random, HELD_OUT)}\n"})
        return Case(request, "", before, after, ("is replaced",), "done", ("write", "read", "write"))
    return Case(request, "", {}, after, ("is written",), "done", ("write",))


def _append(random: Random, request: Request) -> Case:
    old = "".join(f"{phrase(random, HELD_OUT)}\n" for _ in range(random.randint(0, 3)))
    before = _with_parents({request.path: old})
    after = before | {request.path: f"{old}{request.words}\n"}
    return Case(request, "", before, after, ("is added",), "done", ("shell",))


def _mkdir(random: Random, request: Request) -> Case:
    after = _with_parents({request.path: None})
    before = after if random.random() < 0.1 else {}
    return Case(request, "", before, after, ("folder",), "done", ("shell",))


def _count(random: Random, request: Request) -> Case:
    if request.path != "." and random.random() < 0.08:
        return Case(request, "", {}, {}, ("did not work",), "done", ("shell",))
    tree = _entries(random, request.path, random.randint(0, 12))
    prefix = "" if request.path == "." else f"{request.path}/"
    number = sum(
        held is not None and path.startswith(prefix) and "/" not in path[len(prefix) :] for path, held in tree.items()
    )
    said = "There is 1 file." if number == 1 else f"There are {number} files."
    return Case(request, "", tree, tree, (said,), "done", ("shell",))


def _beyond(random: Random, request: Request) -> Case:
    tree = _entries(random, ".", 3)
    return Case(request, "", tree, tree, ("beyond me",), "blocked", ())


def _about(random: Random, request: Request) -> Case:
    tree = _entries(random, ".", 2)
    return Case(request, "", tree, tree, ("tiny demo model",), "done", ())


MAKERS = {
    "list": _list,
    "read": _read,
    "write": _write,
    "append": _append,
    "mkdir": _mkdir,
    "count": _count,
    "beyond": _beyond,
    "about": _about,
}
"""What is right for a request of a kind, and a workspace to try it in."""


def _command(random: Random) -> tuple[str, Tree, Tree, tuple[str, ...]]:
    """A command whose effect is known: with the workspace before and after, and what the answer must hold."""
    name = file_name(random, HELD_OUT)
    other = f"{syllables(random)}{random.randint(0, 99)}.{random.choice(HELD_OUT.endings)}"
    lines = sorted({word(random, HELD_OUT) for _ in range(random.randint(1, 4))}, reverse=True)
    words, place = "?", folder(random, HELD_OUT)
    while not re.fullmatch(r"[\w ,.-]+", words):  # the others mean something to the shell
        words = phrase(random, HELD_OUT, 3)
    text = "".join(f"{line}\n" for line in lines)
    before = _with_parents({name: text})
    first, last = random.randint(1, 9), random.randint(10, 99)
    numbers = "".join(f"{number}\n" for number in range(first, last + 1))
    without = {path: held for path, held in before.items() if path != name}
    silent = ("printed nothing",)
    return random.choice(
        (
            (f"touch {other}", before, before | {other: ""}, silent),
            (f"echo {words} > {other}", {}, {other: f"{words}\n"}, silent),
            (f"echo '{words}' > {other}", {}, {other: f"{words}\n"}, silent),
            (f"echo {words}", {}, {}, (f'"{words}"',)),
            (f"cp {name} {other}", before, before | {other: text}, silent),
            (f"mv {name} {other}", before, without | {other: text}, silent),
            (f"rm {name}", before, without, silent),
            (f"cat {name}", before, before, (f'"{lines[0]}"',)),
            (f"wc -l {name}", before, before, (f'"{len(lines)} {name}"',)),
            (
                f"sort {name} > {other}",
                before,
                before | {other: "".join(f"{line}\n" for line in sorted(lines))},
                silent,
            ),
            (f"seq {first} {last} > {other}", {}, {other: numbers}, silent),
            (f"seq {first} {last}", {}, {}, (f'"{first}"',)),
            (f"mkdir -p {place}", {}, _with_parents({place: None}), silent),
        )
    )


def _entries(random: Random, path: str, count: int) -> Tree:
    prefix = "" if path == "." else f"{path}/"
    tree: Tree = {} if path == "." else _with_parents({path: None})
    for _ in range(count):
        name = file_name(random, HELD_OUT).rpartition("/")[2]
        if random.random() < 0.25:
            tree[f"{prefix}{syllables(random)}{random.randint(0, 9)}"] = None
        else:
            tree[f"{prefix}{name}"] = f"{word(random, HELD_OUT)}\n"
    return tree


def _tops(tree: Tree, path: str) -> list[str]:
    prefix = "" if path == "." else f"{path}/"
    inside = {name[len(prefix) :]: held for name, held in tree.items() if name.startswith(prefix) and name != path}
    tops = {name: held for name, held in inside.items() if "/" not in name}
    ordered = sorted(tops, key=lambda name: (tops[name] is not None, name))
    return [name if tops[name] is not None else f"{name}/" for name in ordered]


def _with_parents(tree: Tree) -> Tree:
    whole: Tree = {}
    for path, held in tree.items():
        parts = path.split("/")
        whole |= {"/".join(parts[:at]): None for at in range(1, len(parts))}
        whole[path] = held
    return whole
