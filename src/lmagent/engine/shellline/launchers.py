"""Launchers: `uv run pytest`, `npx eslint`, `python -m pytest`: programs that are only there to start another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lmagent.engine.shellline.words import Word, names_in

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


class Launcher(NamedTuple):
    """How a launcher is called.

    Attributes:
        prefix: the words that come first, each set one of them; options may stand between.
        texts: options whose value is text for a shell.
        sharp: its own options that a final `*` does not cover.
    """

    prefix: tuple[frozenset[str], ...] = ()
    texts: frozenset[str] = frozenset()
    sharp: str = ""


def _of(prefix: str = "", texts: str = "", sharp: str = "") -> Launcher:
    return Launcher(tuple(names_in(one.replace("|", " ")) for one in prefix.split()), names_in(texts), sharp)


_NODE = "-p --package -c --call --prefix -C --dir --node-options --script-shell --userconfig --globalconfig"
_LAUNCHERS: dict[str, tuple[Launcher, ...]] = {
    "uv": (
        _of("run", sharp="--with --with-requirements --with-editable -p --python --project --directory --env-file "
            "--config-file --index --default-index --index-url --extra-index-url --find-links -f -i -s --script -m "
            "--module -w --gui-script --cache-dir"),
        _of("tool run", sharp="--from --with --with-editable -p --python --index --default-index --index-url -i -f"),
    ),
    "uvx": (_of(sharp="--from --with --with-editable -p --python --index --default-index --index-url -i -f"),),
    "poetry": (_of("run", sharp="-C --directory -P --project"),),
    "pipenv": (_of("run", sharp="--python --pypi-mirror"),),
    "pdm": (_of("run", sharp="-p --project -c --config -s"),),
    "hatch": (_of("run", sharp="--config --data-dir -p --project"),), "rye": (_of("run", sharp="--pyproject"),),
    "pipx": (_of("run", sharp="--spec --index-url -i --pip-args --with --python"),),
    "bundle": (_of("exec", sharp="--gemfile"),), "npx": (_of(texts="-c --call", sharp=_NODE),),
    "bunx": (_of(sharp="-p --package"),), "bun": (_of("x", sharp="-p --package --cwd -r --preload --config -c -e"),),
    "npm": (_of("exec|x", texts="-c --call", sharp=_NODE),),
    "pnpm": (_of("exec|dlx", texts="-c --shell-mode", sharp=_NODE + " --shell-mode "
        "--package"),), "pnpx": (_of(sharp=_NODE),),
    "yarn": (_of("exec|dlx|run", sharp="--cwd -p --package --use-yarnrc --scripts-prepend-node-path"),),
    "direnv": (_of("exec"),), "conda": (_of("run", sharp="-p --prefix --cwd"),), "mise": (_of("exec|x", "-c "
        "--command", "-C --cd"),),
    "rbenv": (_of("exec"),), "pyenv": (_of("exec"),), "asdf": (_of("exec"),), "rustup": (_of("run"),),
    "coverage": (_of("run", sharp="--rcfile --data-file --source -o"),), "dotenv": (_of("run", sharp="-f --file"),),
    "tmux": (_of(),), "screen": (_of(),), "dtach": (_of(),), "abduco": (_of(),),
}  # fmt: skip
FREE = frozenset(("tmux", "screen", "dtach", "abduco"))


def launched(name: str, words: Sequence[str]) -> tuple[Launcher, int, tuple[int, ...]] | None:
    """The launcher, where its own options begin, and where the inner command may begin; None where it is none.

    An option may have a value, and nobody knows which: the word that follows one may be the program, and the search
    goes on.
    """
    if _PYTHON.fullmatch(name):
        return _module(words)
    for launcher in _LAUNCHERS.get(name, ()):
        at = _after(launcher, words)
        if at < 0:
            continue
        if name in FREE:
            return launcher, at, tuple(range(at, len(words)))
        return launcher, 1, operands(words, at)
    return None


def _module(words: Sequence[str]) -> tuple[Launcher, int, tuple[int, ...]] | None:
    for at in range(1, len(words)):
        if words[at] == "-m":
            return Launcher(), 1, (at + 1,) if at + 1 < len(words) else ()
        if not words[at].startswith("-") and words[at - 1] not in ("-W", "-X"):
            return None
    return None


def _after(launcher: Launcher, words: Sequence[str]) -> int:
    """Behind the prefix, or -1. Options before it may have values."""
    at = 1
    for one in launcher.prefix:
        while at < len(words) and words[at] not in one:
            if not words[at].startswith("-") and not words[at - 1].startswith("-"):
                return -1
            at += 1
        at += 1
    return at if at <= len(words) else -1


def operands(words: Sequence[str], at: int) -> tuple[int, ...]:
    """The first words that may be the operand, where an option in front of one may have it for its value."""
    found: list[int] = []
    optional = False
    for place in range(at, len(words)):
        word = words[place]
        if word == "--":
            return (*found, place + 1) if place + 1 < len(words) else tuple(found)
        if word.startswith(("-", "+")):
            optional = "=" not in word
            continue
        found.append(place)
        if not optional:
            break
        optional = False
    return tuple(found)


def inner_commands(name: str, words: Sequence[Word]) -> tuple[tuple[tuple[Word, ...], ...], tuple[str, ...], str]:
    """The commands and the texts that a launcher starts, and why some may be unknown; for rules that deny."""
    texts = [word.text for word in words]
    found = launched(name, texts)
    if found is None or _PYTHON.fullmatch(name):
        return (), (), ""
    launcher, _, places = found
    # What stands behind is quoted once more where a session is opened with it.
    shell = [word.text for word in words if word.known and name in FREE and re.search(r"\s", word.text)]
    hides = ""
    for at, word in enumerate(texts[:-1]):
        if word in launcher.texts:
            if words[at + 1].known:
                shell.append(texts[at + 1])
            else:
                hides = f"{name} runs text that is only known at run time"
    return tuple(tuple(words[place:]) for place in places[:20]), tuple(shell), hides
