"""The inbox: tasks as files, for whoever wants to give the agent work without a program of ours.

<workspace>/.lmagent/inbox/NAME.task             put there by `lmagent submit`, or by anybody: the task as plain text
                           claimed/ID~NAME.task  taken by a scheduler: the rename says who has it, ID is the session
                           failed/               what cannot be a task; nothing is thrown away

A file that is claimed stays until its turn has ended. The session's log tells whether the task was taken in already.
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
from lmagent.store.failures import store_error
from lmagent.store.files import OPEN_FLAGS, make_private, sync_folder, write_new

SUFFIX = ".task"
CLAIMED, FAILED = "claimed", "failed"

LARGEST = 1_000_000
"""Bytes of a task; what is larger is something else."""

SETTLED = 1.0
"""Seconds for which a file of unknown origin must have been left alone before it is taken for whole."""

STRAY = 60.0
"""Seconds after which a file that is no task is put aside; until then somebody may be about to rename it."""

AT_A_LOOK, HELD = 100, 1000
"""Tasks that are claimed at one look, which is over soon so; and tasks that are claimed and not done, beyond which no
more are: the others may be anybody's."""

LONGEST_NAME = 120
"""Characters of a file's name that its claimed name keeps."""


_OURS = re.compile(r"\d{8}_\d{6}_[0-9a-f]{16}\.task")
"""Names that `submit` gives: these files were whole when they got them."""


class Claimed(Struct, frozen=True):
    """A task that was taken.

    Attributes:
        path: its file.
        session: id of the session that is to do it.
    """

    path: Path
    session: str

    @property
    def job(self) -> str:
        """Id of the job."""
        return f"inbox:{self.path.name}"


class Inbox:
    """The inbox of a workspace.

    Args:
        home: its `.lmagent`.
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / "inbox"
        self._home = home

    def submit(self, task: str, now: float, rights: Rights = NO_RIGHTS) -> Path:
        """Put a task in, whole and on the disk when this returns. Two at one moment are two files.

        Raises:
            StoreError: there is no task, or it could not be written; nothing is left behind.
        """
        if not task.strip():
            raise StoreError("there is no task to submit", terminal='lmagent submit "what to do"')
        content = written(task, rights).encode("utf-8", "replace")
        if len(content) > LARGEST:
            raise StoreError(
                f"the task has {len(content):,} bytes, more than {LARGEST:,}", fix="put it into a file and name that"
            )
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
        """Take what is there. Of two processes, one gets a file.

        Args:
            now: Unix seconds.

        Returns:
            All tasks that are claimed and not done, those of earlier processes included, and a few more at each call;
            and what a person should know.

        Raises:
            StoreError: the inbox cannot be read or changed.
        """
        problems: list[str] = []
        try:
            self._require_real()
            held = self._claimed(problems)
            room = min(AT_A_LOOK, HELD - len(held))
            for entry in self._entries(self.folder) if room > 0 else ():
                if (why := _misfit(entry, now)) is not None:
                    problems += self._put_aside(Path(entry.path), why) if why else []
                    continue
                session = f"{new_session_id(now)}{os.urandom(3).hex()}"  # thousands may be claimed in one second
                taken = self._move(Path(entry.path), CLAIMED, f"{session}~{_plain(entry.name)}{SUFFIX}")
                held += [Claimed(taken, session)] if taken is not None else []
                room -= 1
                if not room:
                    break
            return held, problems
        except OSError as error:
            raise store_error(error, "the inbox could not be read", self.folder) from error

    def read(self, claimed: Claimed) -> str | None:
        """The text of a claimed task, with the rights that it states; None where it is gone: it was done.

        Raises:
            StoreError: it cannot be a task; it was put aside, and the message says why.
        """
        try:
            fd = os.open(claimed.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(claimed.path, error.strerror or "it cannot be opened") from None
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise self._refused(claimed.path, "it is no regular file")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise self._refused(claimed.path, f"it has more than {LARGEST:,} bytes")
        try:
            text = content.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise self._refused(claimed.path, f"it is not UTF-8 (byte {error.start})") from None
        if not text or "\0" in text:
            raise self._refused(claimed.path, "it is empty" if not text else "it holds binary data")
        try:
            task, _ = taken_apart(text)
        except ValueError as error:
            raise self._refused(claimed.path, str(error)) from None
        if not task:
            raise self._refused(claimed.path, "it is empty")
        return text

    def done(self, claimed: Claimed) -> None:
        """Its turn has ended, and the log has it.

        Raises:
            StoreError: the file cannot be removed.
        """
        try:
            claimed.path.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, "a task that is done could not be taken out of the inbox", claimed.path) from error

    def of_job(self, job: str) -> Claimed | None:
        """The claimed task that a job is about; None where the id is none of ours."""
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
        """Move a file into a folder of the inbox; None where another process was faster."""
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
        """Move what is no task where it is in nobody's way; returns what to tell a person."""
        target = self._move(path, FAILED, f"{os.urandom(3).hex()}~{_plain(path.name)}")
        return [f"{path.name!r} is no task: {why}; it is kept as {target}"] if target is not None else []

    def _refused(self, path: Path, why: str) -> StoreError:
        return StoreError("; ".join(self._put_aside(path, why)) or f"{path.name} is gone")

    def _require_real(self) -> None:
        """A link would lead tasks elsewhere.

        Raises:
            StoreError: there is one.
        """
        for folder in (self._home, self.folder, self.folder / CLAIMED, self.folder / FAILED):
            if folder.is_symlink():
                raise StoreError(f"{folder} is a symbolic link; the inbox is not used", fix=f"move it away: {folder}")


def _plain(name: str) -> str:
    """A file's name without its ending, as it may stand in a path and in a log."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.removesuffix(SUFFIX))[:LONGEST_NAME]


def _misfit(entry: os.DirEntry[str], now: float) -> str | None:
    """Why a file is not taken now: words where it never will be, empty where it may be later; None where it is."""
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
