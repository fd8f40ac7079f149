"""The inbox: tasks as files, for programs that give the agent work without using ours.

<workspace>/.lmagent/inbox/NAME.task   written by `lmagent submit` or any other program: the task as plain text
    claimed/ID~NAME.task  taken by a scheduler, by renaming it; ID is the session
    failed/               files that cannot be tasks; nothing is thrown away

A claimed file stays until its turn has ended. The session's log tells whether the task was submitted already.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from lmagent.core.errors import StoreError
from lmagent.core.ids import is_session_id, new_session_id
from lmagent.schedule.rights import NO_RIGHTS, Rights, taken_apart, written
from lmagent.store.files import make_private, read_regular, store_error, sync_folder, write_new

SUFFIX = ".task"
CLAIMED, FAILED = "claimed", "failed"

LARGEST = 1_000_000  # bytes of a task; a larger file is not a task
SETTLED = 1.0  # seconds for which a file of unknown origin must be unchanged before it counts as whole

# Seconds after which a file that is no task is put aside; before that, a program may be about to rename it.
STRAY = 60.0

# Tasks claimed at one look, to keep it short; and claimed unfinished tasks at most, which leaves the rest to others.
AT_A_LOOK, HELD = 100, 1000

LONGEST_NAME = 120

# Names that `submit` gives: these files were whole when they got them.
_OURS = re.compile(r"\d{8}_\d{6}_[0-9a-f]{16}\.task")


class Claimed(Struct, frozen=True):
    """A task that was taken: its file, and the id of the session for it."""

    path: Path
    session: str

    @property
    def job(self) -> str:
        return f"inbox:{self.path.name}"


class Inbox:
    """The inbox of a workspace; `home` is its `.lmagent`."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "inbox"
        self._home = home

    def submit(self, task: str, now: float, rights: Rights = NO_RIGHTS) -> Path:
        """Put a task in; it is whole and on disk when this returns. Two tasks at one moment are two files."""
        if not task.strip():
            raise StoreError("there is no task to submit", terminal='lmagent submit "what to do"')
        content = written(task, rights).encode("utf-8", "replace")
        if len(content) > LARGEST:
            text = f"the task has {len(content):,} bytes, more than {LARGEST:,}"
            raise StoreError(text, fix="put it into a file and name that")
        name = f"{new_session_id(now)}{os.urandom(5).hex()}{SUFFIX}"
        beside, target = self.folder / f".{name}.new", self.folder / name
        try:
            self._require_real()
            made = make_private(self.folder)
            write_new(beside, content)
            os.rename(beside, target)
            for folder in (*made, self.folder):
                sync_folder(folder)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside)
            raise store_error(error, "the task could not be put into the inbox", target) from error
        return target

    def claim(self, now: float) -> tuple[list[Claimed], list[str]]:
        """Claim waiting tasks; only one of several processes gets a file.

        Return all claimed and unfinished tasks, those of earlier processes too, and notices for the user.
        """
        problems: list[str] = []
        try:
            self._require_real()
            held = self._claimed(problems)
            most = min(HELD, len(held) + AT_A_LOOK)
            for entry in self._entries(self.folder):
                if len(held) >= most:
                    break
                if (why := _misfit(entry, now)) is not None:
                    problems += self._put_aside(Path(entry.path), why) if why else []
                    continue
                session = f"{new_session_id(now)}{os.urandom(3).hex()}"  # thousands may be claimed in one second
                taken = self._move(Path(entry.path), CLAIMED, f"{session}~{_plain(entry.name)}{SUFFIX}")
                held += [Claimed(taken, session)] if taken is not None else []
            return held, problems
        except OSError as error:
            raise store_error(error, "the inbox could not be read", self.folder) from error

    def read(self, claimed: Claimed) -> str | None:
        """Return the text of a claimed task, with its rights; None if the file is gone because the task is done.

        A file that cannot be a task is put aside, and the StoreError says why.
        """
        try:
            return _text_of(claimed.path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = error.strerror or "it cannot be opened" if isinstance(error, OSError) else str(error)
            aside = self._put_aside(claimed.path, why) or [f"{claimed.path.name} is gone"]
            raise StoreError(aside[0]) from None

    def done(self, claimed: Claimed) -> None:
        """Remove the file: its turn has ended, and the log has it."""
        try:
            claimed.path.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, "a task that is done could not be taken out of the inbox", claimed.path) from error

    def of_job(self, job: str) -> Claimed | None:
        """Return the claimed task of a job; None if the id belongs to no task of this inbox."""
        name = job.removeprefix("inbox:")
        session = name.partition("~")[0]
        if name == job or "/" in name or not is_session_id(session):
            return None
        return Claimed(self.folder / CLAIMED / name, session)

    # --- files ------------------------------------------------------------------------------------------------------

    def _claimed(self, problems: list[str]) -> list[Claimed]:
        found: list[Claimed] = []
        for entry in self._entries(self.folder / CLAIMED):
            claimed = self.of_job(f"inbox:{entry.name}") if entry.name.endswith(SUFFIX) else None
            if claimed is None or "~" not in entry.name:
                problems += self._put_aside(Path(entry.path), "nothing here has claimed it")
            else:
                found.append(claimed)
        return found

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                names = (CLAIMED, FAILED) if folder == self.folder else ()
                found = [entry for entry in entries if entry.name not in names and not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda entry: entry.name)

    def _move(self, path: Path, folder: str, name: str) -> Path | None:
        """Move a file into a folder of the inbox; None if another process was faster."""
        target = self.folder / folder / name
        make_private(target.parent)
        try:
            os.rename(path, target)
        except FileNotFoundError:
            return None
        sync_folder(target.parent)
        sync_folder(path.parent)
        return target

    def _put_aside(self, path: Path, why: str) -> list[str]:
        """Move a file that is no task to `failed`; returns notices for the user."""
        target = self._move(path, FAILED, f"{os.urandom(3).hex()}~{_plain(path.name)}")
        return [f"{path.name!r} is no task: {why}; it is kept as {target}"] if target is not None else []

    def _require_real(self) -> None:
        """Raise StoreError for a link, which would lead tasks elsewhere."""
        for folder in (self._home, self.folder, self.folder / CLAIMED, self.folder / FAILED):
            if folder.is_symlink():
                raise StoreError(f"{folder} is a symbolic link; the inbox is not used", fix=f"move it away: {folder}")


def _text_of(path: Path) -> str:
    """Return the text of a task. Raise ValueError if the file cannot be one, with the reason."""
    content = read_regular(path, LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from None
    if "\0" in text:
        raise ValueError("it holds binary data")
    if not text or not taken_apart(text)[0]:
        raise ValueError("it is empty")
    return text


def _plain(name: str) -> str:
    """Return a file's name without its ending, safe for a path and a log."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.removesuffix(SUFFIX))[:LONGEST_NAME]


def _misfit(entry: os.DirEntry[str], now: float) -> str | None:
    """Return why a file is not taken: a reason if it never will be, empty if it may be later, None if it is taken."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ""
    age = now - max(found.st_mtime, found.st_ctime)
    old = not 0 <= age < STRAY  # a file from the future was not written just now
    if not entry.name.endswith(SUFFIX):
        return f"its name does not end in {SUFFIX}" if old else ""
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    return None if _OURS.fullmatch(entry.name) or not 0 <= age < SETTLED else ""
