"""What the model says, and the words that are tokens of their own."""

from __future__ import annotations

import re
from collections import Counter

from . import beyond, phrasings

CAN = "I am a tiny demo model: I can list, read, write and append to files, make folders, run commands and count files."
BEYOND = f"BLOCKED: that is beyond me. {CAN}"
WRITTEN = {
    "Created": "The file is written.",
    "Replaced": "The file is replaced.",
    "Same": "The file says just that already.",
}
"""Answers by how `write` ended."""

UNREAD = "exists and has not been read in this session; nothing was changed"

_ANSWERS = f"""{BEYOND} {UNREAD} The folder holds nothing no lines line First and more
It printed ran There is are no file files That did not work exit code Created Replaced Same the file is written
replaced says just that already folder there line added outside directory workspace command not found"""
_SHELL = "echo touch cat head sort seq grep python"


def common_words() -> list[str]:
    """Words that the requests and answers are made of, with a capital letter too where they may begin a sentence."""
    tasks = [pattern for patterns in phrasings.TRAINING.values() for pattern in patterns]
    others = [pattern for patterns in beyond.TRAINING.values() for pattern in patterns]
    texts = [*tasks, *phrasings.BEFORE, *phrasings.AFTER]
    words = set(re.findall(r"[a-z]{2,}", re.sub(r"\{.\}", " ", " ".join(texts))))
    first = {found[0] for text in texts if (found := re.findall(r"[a-z]{2,}", text.split("{")[0])[:1])}
    first |= {word for text in tasks for word in re.findall(r"[a-z]{2,}", text.partition(")")[0]) if text[0] == "("}
    often = Counter(re.findall(r"[a-z]{2,}", re.sub(r"\{.\}", " ", " ".join(others))))
    words |= {word for word, times in often.items() if times > 3}
    words |= {word.capitalize() for word in first}
    words |= set(re.findall(r"[A-Za-z]{2,}", f"{_ANSWERS} {_SHELL}"))
    return sorted(words)
