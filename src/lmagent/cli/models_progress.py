"""The progress of a download: a bar on a terminal, lines elsewhere, or nothing. All on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STEP = 10
"""Percent between two lines."""


class Quiet:
    def begin(self, name: str, size: int, have: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class ProgressLines(Quiet):
    def __init__(self) -> None:
        self._name = ""
        self._size = self._have = self._shown = 0

    def begin(self, name: str, size: int, have: int) -> None:
        self._name, self._size, self._have = name, max(size, 1), have
        self._shown = have * 100 // self._size // STEP * STEP
        click.echo(f"{name}: {have / 1e6:,.0f} of {size / 1e6:,.0f} MB", err=True)

    def advance(self, count: int) -> None:
        self._have += count
        percent = self._have * 100 // self._size
        if percent >= self._shown + STEP:
            self._shown = percent // STEP * STEP
            click.echo(f"{self._name}: {self._shown} %", err=True)

    def note(self, text: str) -> None:
        click.echo(one_line(text, 2000), err=True)


class Bar(Quiet):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as SpeedColumn

        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), DownloadColumn(), SpeedColumn(), TimeRemainingColumn())
        self._bar: Progress = Progress(*columns, console=Console(stderr=True, markup=False))
        self._task: TaskID | None = None
        self._name = ""

    def begin(self, name: str, size: int, have: int) -> None:
        if self._task is not None and name == self._name:
            self._bar.reset(self._task, total=size, completed=have)
            return
        self._bar.start()
        self._name = name
        self._task = self._bar.add_task(name, total=size, completed=have)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._bar.advance(self._task, count)

    def note(self, text: str) -> None:
        self._bar.console.print(one_line(text, 2000), highlight=False)

    def close(self) -> None:
        self._bar.stop()


def progress(*, quiet: bool) -> Quiet:
    """Choose the form of progress that suits standard error."""
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else ProgressLines()
