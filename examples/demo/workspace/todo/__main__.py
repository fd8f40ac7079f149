"""The command line: add, list, done."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from todo.item import Item
from todo.report import overview
from todo.store import Store


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="todo")
    parser.add_argument("--file", type=Path, default=Path("todo.txt"))
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("text")
    add.add_argument("--due", type=date.fromisoformat)
    commands.add_parser("list")
    commands.add_parser("done").add_argument("number", type=int)
    given = parser.parse_args()

    store = Store(given.file)
    items = store.load()
    if given.command == "add":
        store.save([*items, Item(given.text, given.due)])
    elif given.command == "done":
        items[given.number - 1] = items[given.number - 1].finish()
        store.save(items)
    sys.stdout.write(overview(store.load(), date.today()))


if __name__ == "__main__":
    main()
