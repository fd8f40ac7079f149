"""A request: a sentence, and what is to be done for it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from . import beyond, phrasings
from .words import HELD_OUT, TRAINING, Lexicon, file_name, folder, phrase, stem, word

SHARE = {"list": 8, "read": 12, "write": 24, "append": 18, "mkdir": 8, "run": 16, "count": 6, "beyond": 9, "about": 3}
"""How often a kind occurs in the training, of 104."""

PLAIN = 0.15
"""Share of the training's requests that are put as plainly as can be."""

LONGEST = 130
"""Characters of a request."""

_SPEECHLESS = (
    "pwd",
    "date",
    "whoami",
    "uname -a",
    "df -h",
    "ls -la",
    "env",
    "id",
    "uptime",
    "ls -l",
    "ls",
    "ls",
    "git status",
    "make",
    "python3 --version",
)


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        kind: one of `phrasings.KINDS`.
        text: the sentence.
        path: the file or folder; `.` is the workspace.
        words: what is to be written.
        command: what is to be run.
        form: how it is put: the sentence without courtesies, its slots unfilled.
    """

    kind: str
    text: str
    path: str = ""
    words: str = ""
    command: str = ""
    form: str = ""


def training_request(random: Random, longest: int) -> Request:
    """A request to train on, of so many characters at most."""
    kind = random.choices(tuple(SHARE), tuple(SHARE.values()))[0]
    patterns = (phrasings.TRAINING | beyond.TRAINING)[kind]
    if random.random() < PLAIN:
        patterns = phrasings.PLAIN.get(kind, patterns)
    while True:
        run = command(random, TRAINING) if kind == "run" else ""
        request = _filled(random, kind, random.choice(patterns), TRAINING, run)
        if len(request.text) <= longest:
            return request


def held_out_request(random: Random, kind: str, *, new_phrasing: bool, run: str = "") -> Request:
    """A request to judge by: names and words from the held-out lexicon.

    Args:
        random: what it is drawn with.
        kind: one of `phrasings.KINDS`.
        new_phrasing: put in a way that is not trained on either.
        run: the command, for requests to run one.
    """
    source = (phrasings.HELD_OUT | beyond.HELD_OUT) if new_phrasing else (phrasings.TRAINING | beyond.TRAINING)
    while True:
        request = _filled(random, kind, random.choice(source[kind]), HELD_OUT, run)
        if len(request.text) <= LONGEST:
            return request


def command(random: Random, lexicon: Lexicon) -> str:
    """A command for the shell, of the usual shapes or of any words."""
    name, other = file_name(random, lexicon), file_name(random, lexicon)
    shapes = (
        f"touch {name}",
        f"echo {phrase(random, lexicon)}",
        f"echo {phrase(random, lexicon)} > {name}",
        f"echo '{phrase(random, lexicon)}' > {name}",
        f'echo "{phrase(random, lexicon)}"',
        f'echo "{phrase(random, lexicon)}" >> {name}',
        f"cp {name} {other}",
        f"mv {name} {other}",
        f"rm {name}",
        f"cat {name}",
        f"wc -{random.choice('lwc')} {name}",
        f"head -n {random.randint(1, 20)} {name}",
        f"sort {name} > {other}",
        f"seq {random.randint(1, 9)} {random.randint(10, 99)}",
        f"mkdir -p {folder(random, lexicon)}",
        f"grep {word(random, lexicon)} {name}",
        f"python3 {name}",
        f"ls {folder(random, lexicon)}",
        f"{stem(random, lexicon)} --{word(random, lexicon)} {phrase(random, lexicon, 2)}",
        f"printf {word(random, lexicon)} | wc -c",
        random.choice(_SPEECHLESS),
    )
    text = random.choice(shapes)
    return f"{text} && {random.choice(_SPEECHLESS)}" if random.random() < 0.06 else text


def _filled(random: Random, kind: str, pattern: str, lexicon: Lexicon, run: str) -> Request:
    text = phrasings.expand(random, pattern)
    form = text.replace("{q}", "{w}")
    if kind not in ("beyond", "about") or random.random() < 0.3:
        text = phrasings.dress(random, text, ends_open=text.endswith(("{w}", "{c}", "{q}")))
    path, words = "", ""
    for slot in ("{p}", "{e}", "{d}", "{w}", "{q}", "{c}", "{x}", "{n}"):
        while slot in text:
            filling = _filling(random, slot, lexicon, run)
            path = filling.strip("'\"`") if slot in ("{p}", "{e}", "{d}") else path
            words = filling.strip("'\"") if slot in ("{w}", "{q}") else words
            text = text.replace(slot, filling, 1)
    return Request(kind, text, path or ".", words, run if kind == "run" else "", form)


def _filling(random: Random, slot: str, lexicon: Lexicon, run: str) -> str:
    match slot:
        case "{p}" | "{e}" | "{d}":
            name = folder(random, lexicon) if slot == "{d}" else file_name(random, lexicon, bare=slot == "{p}")
            mark = random.choice("'\"`") if random.random() < 0.06 else ""
            return f"{mark}{name}{mark}"
        case "{w}":
            words = phrase(random, lexicon)
            mark = random.choice(("", "", "", "", "'", '"'))
            return f"{mark}{words}{mark}"
        case "{q}":
            mark = random.choice("'\"")
            words = phrase(random, lexicon)
            stop = random.choice(".!?") if random.random() < 0.1 and words[-1] not in "!?" else ""
            return f"{mark}{words}{stop}{mark}"
        case "{c}":
            return run
        case "{n}":
            return str(random.randint(0, 10 ** random.randint(1, 4)))
        case _:
            return phrase(random, lexicon, 4)
