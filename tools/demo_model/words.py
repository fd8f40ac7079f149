"""Names and words for requests: common English, syllables, letters at random, numbers.

`TRAINING` and `HELD_OUT` share no English word, no ending of a file name and no name without an ending. What both draw
at random is kept apart by the caller, who rejects what the training has seen (`heldout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from .speech import common_words

_TRAINING_WORDS = """
apple river stone green window garden silver morning coffee paper music yellow bridge market winter summer orange
pencil button castle dragon engine flower guitar hammer island jacket kitchen ladder mirror needle ocean pepper
quiet rabbit saddle table umbrella violin wagon zebra buy milk eggs bread call mother dentist meeting monday tuesday
tomorrow later remember hello world good day version alpha beta release draft final budget report notes plan ideas
list todo data config setup server client user admin test build main index readme log backup archive image photo
train station ticket number price total sum average first second third last big small old new red blue black white
happy sad slow fast early late north south east west fire water earth air sun moon star cloud rain snow wind tree
leaf root branch seed fruit grape lemon cherry banana potato carrot onion cheese butter sugar salt tea juice wine
dog cat horse cow sheep bird fish frog snake spider mouse lion tiger bear wolf fox deer goat duck goose owl eagle
"""

_HELD_OUT_WORDS = """
walnut kettle harbor velvet copper lantern meadow pillow rocket saturn thunder turtle valley willow acorn anchor
basket beacon candle canyon carpet cellar cotton crystal desert diamond dolphin falcon feather ferry forest galaxy
ginger glacier hazel helmet honey jungle kitten lagoon lobster magnet maple marble mustard nectar nickel noodle
orchid oyster paddle panda parrot pebble penguin pigeon planet plasma plum pocket poppy puzzle quartz radish raven
ribbon robin ruby saffron salmon scarf shadow shelf spoon squirrel statue sunset sweater teapot temple tomato trumpet
tulip tunnel vanilla vessel violet waffle walrus whale whistle yogurt zipper brave calm clever cosmic eager frozen
gentle golden hidden humble jolly lucky mellow narrow polite proud rapid royal rusty shiny silent smooth spicy sturdy
sweet tender tidy tiny vivid warm wild wise young invoice receipt schedule journal recipe memo agenda letter essay
"""

_TRAINING_ENDINGS = "txt md py csv json log html yaml toml cfg sh ini xml js css c h dat tmp bak conf"
_HELD_OUT_ENDINGS = "txt md py csv json log rst sql tsv rs go tex env out"
_TRAINING_BARE = "Makefile README LICENSE notes data TODO Dockerfile .gitignore .profile"
_HELD_OUT_BARE = "CHANGELOG AUTHORS Justfile .editorconfig .npmrc VERSION"
_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
LATIN = "äöüßÄÖÜàáâçèéêëíîïñóôúûå"
"""Letters beyond ASCII that the model knows."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Lexicon:
    """What names and words are made from."""

    words: tuple[str, ...]
    endings: tuple[str, ...]
    bare: tuple[str, ...]
    common: tuple[str, ...] = ()


def _lexicon(words: str, endings: str, bare: str) -> Lexicon:
    return Lexicon(tuple(words.split()), tuple(endings.split()), tuple(bare.split()))


_BETWEEN = (
    "and",
    "and",
    "and",
    "of",
    "for",
    "the",
    "is",
    "with",
    "to",
    "at",
    "in",
    "on",
    "not",
    "my",
    "a",
    "or",
    "from",
)
"""Words in the middle of what is to be copied: those that join sentences, too."""

_JOINING = """
to in into with as at by and that says saying containing file end of after below behind called named it inside line
word words text content contents the last needs should say contain let
"""
"""Words that, alone, could end what is to be copied."""


TRAINING = replace(_lexicon(_TRAINING_WORDS, _TRAINING_ENDINGS, _TRAINING_BARE), common=tuple(common_words()))
HELD_OUT = _lexicon(_HELD_OUT_WORDS, _HELD_OUT_ENDINGS, _HELD_OUT_BARE)


def word(random: Random, lexicon: Lexicon) -> str:
    """A word: English, syllables, letters, or with digits in it."""
    at = random.random()
    if at < 0.12 and lexicon.common:
        made = _with_common(random, lexicon)
    elif at < 0.42:
        made = random.choice(lexicon.words)
    elif at < 0.72:
        made = syllables(random)
    elif at < 0.88:
        made = "".join(random.choice(_LETTERS) for _ in range(random.randint(2, 9)))
    elif at < 0.98:
        return _figures(random)
    else:
        made = syllables(random) + random.choice(LATIN) + syllables(random)
    at = random.random()
    if at < 0.12:
        return made.capitalize()
    return made.upper() if at < 0.15 and len(made) > 2 else made


def _with_common(random: Random, lexicon: Lexicon) -> str:
    made = random.choice(lexicon.common)
    match random.randrange(4):
        case 0:
            return f"{made}{syllables(random)}"
        case 1:
            return f"{syllables(random)}{made}"
        case _:
            return f"{made}s" if made in _JOINING.split() else made


def syllables(random: Random) -> str:
    """A word that nobody has heard."""
    parts = [random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in range(random.randint(1, 4))]
    return "".join(parts) + (random.choice(_CONSONANTS) if random.random() < 0.5 else "")


def _figures(random: Random) -> str:
    letters = "".join(random.choice(_LETTERS) for _ in range(random.randint(1, 4)))
    match random.randrange(8):
        case 0:
            return str(random.randint(0, 10 ** random.randint(1, 5)))
        case 1:
            return f"{letters}{random.randint(0, 99)}"
        case 2:
            return f"{random.randint(1990, 2040)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
        case 3:
            return f"{letters}-{syllables(random)}"
        case 4:
            return f"{random.randint(0, 12)}.{random.randint(0, 99)}"
        case 5:
            return f"{letters}_{random.randint(0, 9)}"
        case 6:
            return f"{syllables(random)}{random.choice(('()', f'({random.randint(0, 99)})', '[0]', ':', ';', '%'))}"
        case _:
            return f"{letters}{random.choice('=+/@#:*&')}{syllables(random)}"


def phrase(random: Random, lexicon: Lexicon, longest: int = 5) -> str:
    """One to five words; some with commas. No quote and no backslash: JSON and the shell would want them escaped."""
    count = min(longest, random.choice((1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5)))
    words = [word(random, lexicon) for _ in range(count)]
    if count > 2 and random.random() < 0.3:
        words[random.randrange(1, count - 1)] = random.choice(_BETWEEN)
    mark = ", " if count > 1 and random.random() < 0.1 else " "
    text = mark.join(words)
    return text + random.choice("!?") if random.random() < 0.05 else text


def stem(random: Random, lexicon: Lexicon) -> str:
    """A name without its ending."""
    at = random.random()
    first = random.choice(lexicon.words) if at < 0.45 else syllables(random)
    if at < 0.1 and lexicon.common:
        first = _with_common(random, lexicon)
    elif at > 0.85:
        first = "".join(random.choice(_LETTERS) for _ in range(random.randint(1, 8)))
    at = random.random()
    if at < 0.18:
        first += random.choice("_-") + (syllables(random) if random.random() < 0.5 else random.choice(lexicon.words))
    elif at < 0.34:
        first += random.choice(("_", "-", "")) + str(random.randint(0, 10 ** random.randint(1, 4)))
    at = random.random()
    return first.capitalize() if at < 0.1 else first.upper() if at < 0.12 else first


def file_name(random: Random, lexicon: Lexicon, *, bare: bool = True) -> str:
    """A path of a file: notes.txt, report_2.md, src/main.py; Makefile where the name may be `bare`."""
    if bare and random.random() < 0.12:
        name = _bare_name(random, lexicon)
    else:
        odd = "".join(random.choice(_LETTERS) for _ in range(random.randint(1, 4)))
        ending = odd if random.random() < 0.2 else random.choice(lexicon.endings)
        name = f"{stem(random, lexicon)}.{ending}"
    return f"{folder(random, lexicon, deepest=2)}/{name}" if random.random() < 0.22 else name


def _bare_name(random: Random, lexicon: Lexicon) -> str:
    match random.randrange(6):
        case 0:
            return stem(random, lexicon)
        case 1:
            return stem(random, lexicon).capitalize()
        case 2 | 3:
            return stem(random, lexicon).upper()
        case 4:
            return f".{syllables(random)}{random.choice(('', 'rc', 'ignore'))}"
        case _:
            return random.choice(lexicon.bare)


def folder(random: Random, lexicon: Lexicon, deepest: int = 3) -> str:
    """A path of a folder."""
    depth = min(deepest, random.choice((1, 1, 1, 1, 2, 2, 3)))
    return "/".join(stem(random, lexicon) for _ in range(depth))
