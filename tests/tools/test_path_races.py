"""Somebody swaps files for links while they are used: nothing outside is ever read or written."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmagent.core.errors import ToolError
from lmagent.tools.beneath import Beneath
from lmagent.tools.walk import Walk

ROUNDS = 2000


@pytest.fixture
def files(workspace: Path):
    with Beneath(workspace) as opened:
        yield opened


@contextmanager
def swapping(swap: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            swap()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_file_swapped_for_a_link_while_it_is_read(files: Beneath, workspace: Path, outside: Path) -> None:
    (workspace / "good").write_text("good")
    (workspace / "evil").symlink_to(outside / "secret.txt")
    seen = set[bytes]()

    def swap() -> None:
        for source in ("good", "evil"):
            spare = workspace / f"{source}.spare"
            os.link(workspace / source, spare, follow_symlinks=False)
            os.replace(spare, workspace / "x")

    swap()
    with swapping(swap):
        for _ in range(ROUNDS):
            try:
                seen.add(files.read_bytes("x"))
            except ToolError:
                continue
    assert seen == {b"good"}


RENAMEAT2 = getattr(ctypes.CDLL(None), "renameat2", None)


def exchange(one: Path, two: Path) -> Callable[[], None]:
    """Swaps two names in one instant, so that neither is ever missing."""
    if RENAMEAT2 is None:
        pytest.skip("this system cannot exchange two names")
    names = os.fsencode(one), os.fsencode(two)
    return lambda: RENAMEAT2(-100, names[0], -100, names[1], 2)


def test_a_directory_swapped_for_a_link_while_it_is_used(files: Beneath, workspace: Path, outside: Path) -> None:
    (outside / "foreign").write_text("secret")
    (workspace / "d").mkdir()
    (workspace / "d/secret.txt").write_text("mine")
    (workspace / "evil").symlink_to(outside)
    seen, listed, told = set[bytes](), set[str](), set[object]()
    with swapping(exchange(workspace / "d", workspace / "evil")):
        for number in range(ROUNDS):
            for act in (
                lambda: seen.add(files.read_bytes("d/secret.txt")),
                lambda: listed.update(entry.path for entry in files.listdir("d")),
                lambda: files.write_atomic("d/secret.txt", b"evil") if number % 40 == 0 else None,  # noqa: B023
                lambda: files.mkdir(f"d/sub{number}/deep") if number % 40 == 0 else None,  # noqa: B023
            ):
                try:
                    act()
                except ToolError as refusal:
                    told.add(refusal.data["code"])
    assert told <= {"path", "race", "stale", "kind"}
    assert seen
    assert seen <= {b"mine", b"evil"}
    assert not any(path.endswith("foreign") for path in listed)
    assert sorted(os.listdir(outside)) == ["foreign", "secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret\n"


def test_a_walk_never_enters_a_link_that_was_a_directory(files: Beneath, workspace: Path, outside: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d/mine.txt").write_text("mine")
    (workspace / "evil").symlink_to(outside)
    names = set[str]()
    with swapping(exchange(workspace / "d", workspace / "evil")):
        for _ in range(ROUNDS // 4):
            names.update(entry.path for entry in Walk(files))
    assert {name.rpartition("/")[2] for name in names} == {"d", "evil", "mine.txt"}
