"""Requests that a person wrote, without a look at the patterns of the training: how it does on everyday sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from .heldout import MAKERS, Case, Seen
from .requests import Request

_FILES = (
    ("write", "Write milk and bread to shopping.txt", "shopping.txt", "milk and bread"),
    ("write", "Create a file hello.py containing print(42)", "hello.py", "print(42)"),
    ("write", "please save 'Dear Anna' in letters/anna.md", "letters/anna.md", "Dear Anna"),
    ("write", "make a new file todo.md with the text water the plants", "todo.md", "water the plants"),
    ("write", "Could you write version 2.0.1 into VERSION.txt?", "VERSION.txt", "version 2.0.1"),
    ("write", "store my name is Bob in about.txt", "about.txt", "my name is Bob"),
    ("write", 'Put "one two three" into numbers.csv', "numbers.csv", "one two three"),
    ("write", "Write to notes.txt: call the bank on friday", "notes.txt", "call the bank on friday"),
    ("append", "Append eggs to shopping.txt", "shopping.txt", "eggs"),
    ("append", "add buy stamps to todo.txt", "todo.txt", "buy stamps"),
    ("append", "Add the line 'see you soon' to the end of letter.txt", "letter.txt", "see you soon"),
    ("append", "please append finished at noon to work.log", "work.log", "finished at noon"),
    ("append", "Put tomatoes at the end of shopping.txt", "shopping.txt", "tomatoes"),
    ("append", "also add butter to list.md", "list.md", "butter"),
    ("read", "Read shopping.txt", "shopping.txt", ""),
    ("read", "What's in notes.txt?", "notes.txt", ""),
    ("read", "show me src/main.py", "src/main.py", ""),
    ("read", "Can you open report_2.md for me?", "report_2.md", ""),
    ("read", "What does the README.md say?", "README.md", ""),
    ("read", "print the contents of config.yaml", "config.yaml", ""),
    ("list", "List the files", ".", ""),
    ("list", "What files are in this folder?", ".", ""),
    ("list", "Show me what's in src", "src", ""),
    ("list", "list the folder docs/images", "docs/images", ""),
    ("list", "Which files do we have here?", ".", ""),
    ("mkdir", "Make a folder called recipes", "recipes", ""),
    ("mkdir", "create a directory src/utils", "src/utils", ""),
    ("mkdir", "I need a new folder named photos-2024", "photos-2024", ""),
    ("mkdir", "Please make the directory backup", "backup", ""),
    ("count", "How many files are there?", ".", ""),
    ("count", "Count the files in src", "src", ""),
    ("count", "how many files are in the folder photos", "photos", ""),
    ("beyond", "Write a poem about the sea", ".", ""),
    ("beyond", "What is the capital of France?", ".", ""),
    ("beyond", "Fix the failing tests", ".", ""),
    ("beyond", "Delete all my files", ".", ""),
    ("beyond", "Translate notes.txt into Spanish", ".", ""),
    ("beyond", "Why is the sky blue?", ".", ""),
    ("beyond", "Refactor the parser to use a state machine", ".", ""),
    ("about", "Hello!", ".", ""),
    ("about", "What can you do?", ".", ""),
    ("about", "who are you", ".", ""),
)

_COMMANDS = (
    ("Run the command wc -w shopping.txt", "wc -w shopping.txt", '"2 shopping.txt"'),
    ("run sort -r shopping.txt", "sort -r shopping.txt", '"milk"'),
    ("Execute `cat shopping.txt`", "cat shopping.txt", '"bread"'),
    ("please run ls", "ls", '"shopping.txt"'),
    ("run echo hello world", "echo hello world", '"hello world"'),
    ('Run echo "good night"', 'echo "good night"', '"good night"'),
    ("run cat missing.txt", "cat missing.txt", "did not work"),
)


def cases(known: Seen) -> Iterator[Case]:
    """Those that the training has not seen by chance, with a workspace to each."""
    random = Random(3)
    for kind, text, path, words in _FILES:
        if text not in known.texts:
            yield replace(MAKERS[kind](random, Request(kind, text, path, words)), phrasing="handwritten")
    tree: dict[str, str | None] = {"shopping.txt": "bread\nmilk\n"}
    for text, command, said in _COMMANDS:
        if text not in known.texts:
            request = Request("run", text, command=command)
            yield Case(request, "handwritten", tree, tree, (said,), "done", ("shell",))
